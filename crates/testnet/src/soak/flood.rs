//! F30 over the wire: a million forged sources ask for random names below a zone; a client at 100 queries a second gets its
//! answers, so does one with a cookie whose own network is forged, and what the daemon keeps of all that is bounded. The small
//! form is the same by fewer sources, of which each network sends as many queries a second.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Options;
use super::daemon::Daemon;
use super::drift::Reading;
use crate::dns::{Answer, Edns, Query};
use crate::kernel_counters::KernelCounters;
use crate::lab::{Lab, Plan, SERVER_CLIENTS, SERVER_V4, TO_SERVER, Topology};
use crate::metrics::Metrics;
use crate::subject::Subject;
use crate::{During, Failure, Outcome, again_if_interrupted, signals};

/// The forged sources' network, of 2^20 addresses, and the client in it that has a cookie.
const FORGED: &str = "10.0.0.0/12";
const WITH_COOKIE: Ipv4Addr = Ipv4Addr::new(10, 15, 255, 254);
/// Who has none, in another network.
const PLAIN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 101);

/// For eight seconds, as far as this machine can, unless another rate is asked for.
const RATE: u32 = 125_000;
/// A busy machine is behind, and gives nothing up.
const PATIENCE_SECONDS: &str = "60";

/// How much of it there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    queries: u64,
    rate: u32,
    /// Queries before it is looked at what the daemon takes.
    warm_up: u64,
}

impl Extent {
    fn of(options: &Options) -> Self {
        let (queries, rate, warm_up) = match options.is_small {
            true => (40_000, 10_000, 20_000),
            false => (1_000_000, RATE, 50_000),
        };
        Self {
            queries,
            rate: options.rate.unwrap_or(rate),
            warm_up,
        }
    }
}

const WARM_UP_RATE: u32 = 20_000;

/// Random names go round: they are other names for other sources.
const NAMES: u32 = 200_000;

/// 100 queries a second, by turns for these, none of them often enough for its own network's limit.
const EVERY: Duration = Duration::from_millis(10);
const ASKED: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// What the daemon may take more afterwards: the tables of both limits are filled.
const GROWTH_KILOBYTES: u64 = 64 << 10;

const COOKIE: u16 = 10;

/// Runs it.
pub(super) fn run(prefix: &str, subject: &Subject, options: &Options) -> Outcome<ExitCode> {
    let extent = Extent::of(options);
    let lab = Lab::up(Plan {
        prefix: prefix.to_owned(),
        topology: Topology::TwoInterfaces,
    })?;
    lab.client()
        .ip(&format!("address add {WITH_COOKIE}/12 dev {TO_SERVER}\n"))?;
    lab.server().ip(&format!(
        "route add {FORGED} via {PLAIN} dev {SERVER_CLIENTS}\n"
    ))?;
    let folder = lab.ledger().folder().to_owned();
    fs::write(folder.join("zone"), zone()).during("writing the zone")?;
    fs::write(folder.join("names"), names()).during("writing the names")?;
    let daemon = Daemon::start(subject, &lab, CONFIGURATION, &folder)?;
    let kernel_before = KernelCounters::of(&lab.client())?;
    let reading = || Reading::of(daemon.id(), 1);
    // Until every queue is open and every frame was used once, memory and descriptors grow by what is configured.
    send_flood(&lab, (extent.warm_up, WARM_UP_RATE))?;
    let before = reading()?;
    let (flood, clients) = flooded(&lab, extent)?;
    let after = reading()?;
    let metrics = Metrics::of(&lab.server())?;
    judge(&flood, extent, &clients)?;
    judge_tables(&metrics, [before, after])?;
    KernelCounters::of(&lab.client())?.check_unchanged_since(&kernel_before)?;
    daemon.stop()?;
    println!(
        "flood: {} queries from forged sources, plain client {:?}, client with a cookie {:?}, {} kB and then {} kB",
        flood["queries"],
        clients[0],
        clients[1],
        before.resident_kilobytes,
        after.resident_kilobytes
    );
    Ok(ExitCode::SUCCESS)
}

/// Zones with response rate limiting, and a limit by client, whose table has all the forged ones pass.
const CONFIGURATION: &str = "addLocal(\"192.0.2.1:53\", {xdp=true})\n\
     millrace.addZone{name=\"example.com.\", file=\"zone\"}\n\
     millrace.setResponseRateLimit{rate=20, slip=2}\n\
     addAction(MaxQPSIPRule(1000), DropAction())\n";

fn zone() -> String {
    let line = |name: &&str| format!("{name} 300 A 192.0.2.80\n");
    "@ 300 SOA ns hostmaster 7 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n".to_owned()
        + &ASKED.iter().map(line).collect::<String>()
}

fn names() -> String {
    (0..NAMES)
        .map(|number| format!("x{:08x}.example.com A\n", number.wrapping_mul(0x9e37_79b1)))
        .collect()
}

/// How a client fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fared {
    asked: u32,
    right: u32,
}

/// The flood's result and how both clients fared meanwhile.
fn flooded(lab: &Lab, extent: Extent) -> Outcome<(Value, [Fared; 2])> {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients = [(PLAIN, false), (WITH_COOKIE, true)];
        let clients = clients.map(|(from, has_cookie)| {
            let (client, end) = (lab.client(), &end);
            scope.spawn(move || client.run(|| ask_until(end, from, has_cookie))?)
        });
        let flood = send_flood(lab, (extent.queries, extent.rate));
        end.store(true, Relaxed);
        let [plain, known] = clients.map(|client| client.join().expect("a client"));
        Ok((flood?, [plain?, known?]))
    })
}

/// The forged addresses at this rate: as many queries a second from each network of them as at the full rate.
fn sources(rate: u32) -> String {
    let fewer = RATE
        .div_ceil(rate.clamp(1, RATE))
        .next_power_of_two()
        .ilog2();
    let first = u32::from(WITH_COOKIE) & (u32::MAX << (20 - fewer));
    format!("{}/{}", Ipv4Addr::from(first), 12 + fewer)
}

/// floodgate sends, and throws away what comes for it.
fn send_flood(lab: &Lab, (queries, rate): (u64, u32)) -> Outcome<Value> {
    let seconds = queries.div_ceil(rate.into()).to_string();
    let own = std::env::current_exe().during("finding floodgate")?;
    let mut command = Command::new(own.with_file_name("floodgate"));
    command
        .args(["xdp", "-j", "-q", "-r", "-t", &seconds])
        .args(["-Q", &rate.to_string()])
        .args([
            "--patience",
            PATIENCE_SECONDS,
            "-I",
            TO_SERVER,
            "-l",
            &sources(rate),
        ])
        .arg("-i")
        .arg(lab.ledger().folder().join("names"))
        .arg(SERVER_V4.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = lab.client().spawn(&mut command, None)?;
    lab.ledger().add(child.id(), "floodgate")?;
    let output = child.wait_with_output().during("waiting for floodgate")?;
    signals::go_on()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    serde_json::from_str(last).during(format!(
        "floodgate said {}",
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Asks one query after the other, every 10 ms, until the end.
fn ask_until(end: &AtomicBool, from: Ipv4Addr, has_cookie: bool) -> Outcome<Fared> {
    let socket = UdpSocket::bind((from, 0)).during(format!("binding {from}"))?;
    let server = SocketAddr::new(SERVER_V4, 53);
    socket.connect(server).during("connecting")?;
    let patience = Some(Duration::from_secs(1));
    socket.set_read_timeout(patience).during("a time-out")?;
    let mut cookie = has_cookie.then(|| b"01234567".to_vec());
    let mut fared = Fared { asked: 0, right: 0 };
    while !end.load(Relaxed) {
        let next = Instant::now() + EVERY;
        // Before its first answer a client has no cookie of the server's, and may be told so.
        let is_counted = cookie.as_ref().is_none_or(|cookie| cookie.len() > 8);
        let is_right = ask(&socket, fared.asked, &mut cookie)?;
        if is_counted {
            fared.asked += 1;
            fared.right += u32::from(is_right);
        }
        std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
    }
    Ok(fared)
}

/// Whether one query was answered right. The server's cookie is kept.
fn ask(socket: &UdpSocket, number: u32, cookie: &mut Option<Vec<u8>>) -> Outcome<bool> {
    let name = ASKED[number as usize % ASKED.len()];
    let mut query = Query::new(&format!("{name}.example.com."), "A")?;
    query.id = number as u16;
    query.edns = cookie.as_ref().map(|cookie| Edns {
        options: vec![(COOKIE, cookie.clone())],
        ..Edns::default()
    });
    if socket.send(&query.octets()).is_err() {
        return Ok(false);
    }
    let mut octets = [0; 1_500];
    // What comes late is an answer to another query.
    while let Ok(length) = again_if_interrupted(|| socket.recv(&mut octets)) {
        let answer = Answer::read(&octets[..length])?;
        if answer.id == query.id {
            let options = answer.opt.as_ref().map(|opt| opt.options.as_slice());
            if let (Some(_), Some([0, 10, _, octets, rest @ ..])) = (&cookie, options) {
                *cookie = Some(rest[..usize::from(*octets)].to_vec());
            }
            return Ok(answer.rcode == 0 && answer.sections[0].len() == 1);
        }
    }
    Ok(false)
}

fn judge(flood: &Value, extent: Extent, [plain, known]: &[Fared; 2]) -> Outcome<()> {
    let (sent, wanted) = (flood["queries"].as_u64().unwrap_or(0), extent.queries);
    if sent < wanted {
        return Err(Failure::new(format!("only {sent} of {wanted} were sent")));
    }
    for (who, fared) in [("plain client", plain), ("client with a cookie", known)] {
        if fared.asked < 100 || fared.right * 100 < fared.asked * 99 {
            return Err(Failure::new(format!("the {who}: {fared:?}")));
        }
    }
    Ok(())
}

/// The limits have worked, and what the daemon keeps is bounded.
fn judge_tables(metrics: &Metrics, [before, after]: [Reading; 2]) -> Outcome<()> {
    let rows = metrics.rows("millrace_response_rate_limit", &[]);
    let outcomes: BTreeMap<String, u64> = rows
        .map(|row| (row.labels[0].1.clone(), row.value as u64))
        .collect();
    let held_back: u64 = outcomes.values().sum();
    let grown = after
        .resident_kilobytes
        .saturating_sub(before.resident_kilobytes);
    if held_back == 0 {
        return Err(Failure::new(format!("no answer was limited: {outcomes:?}")));
    }
    if grown > GROWTH_KILOBYTES || after.descriptors > before.descriptors {
        return Err(Failure::new(format!("it grew: {before:?}, {after:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_queries_come_from_fewer_sources() {
        assert_eq!(sources(RATE), FORGED);
        assert_eq!(sources(2 * RATE), FORGED);
        assert_eq!(sources(20_000), "10.14.0.0/15");
    }

    #[test]
    fn the_small_form_is_over_soon_and_every_network_is_limited_all_the_same() {
        let of = |words: &[&str]| Extent::of(&Options::read(words).expect("options"));
        let (all, small) = (of(&["flood"]), of(&["flood", "--small"]));
        assert_eq!((all.queries, all.rate), (1_000_000, RATE));
        assert_eq!(small.queries.div_ceil(small.rate.into()), 4, "seconds");
        // 256 networks of 256 addresses; 20 answers of a kind a second are for each.
        assert_eq!(sources(small.rate), "10.15.0.0/16");
        assert!(small.rate / 256 > 20);
        assert_eq!(of(&["flood", "--small", "--rate", "7000"]).rate, 7_000);
    }
}
