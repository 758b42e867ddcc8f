//! dnsperf's published test: 12,018 unique names, each once, over kernel sockets on the client's side, by one client and by 500 of
//! 16 threads; the upstream is a race of four resolvers with different delays and caches ([`crate::resolvers`]). AF_XDP, sockets,
//! AF_XDP again: no query is lost, each resolver is asked each of them once, three answers to each come too late.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use super::daemon::Daemon;
use crate::kernel_counters::KernelCounters;
use crate::lab::{Lab, Plan, SERVER_CLIENTS, SERVER_V4, Topology};
use crate::metrics::{Metrics, Row};
use crate::subject::{Door, Subject};
use crate::{During, Failure, Outcome, signals, sys};

const NAMES: u32 = 12_018;
const RESOLVERS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 2));

const DOORS: [Door; 3] = [Door::Xdp, Door::Sockets, Door::Xdp];
/// dnsperf's defaults, and what its test adds.
const CLIENTS: [&[&str]; 2] = [&[], &["-c", "500", "-T", "16"]];

/// How long answers may be under way after the last query: the slowest resolver takes 20 ms.
const AT_REST_WITHIN: Duration = Duration::from_secs(5);

/// Runs it.
pub(super) fn run(prefix: &str, subject: &Subject) -> Outcome<ExitCode> {
    let lab = Lab::up(Plan {
        prefix: prefix.to_owned(),
        topology: Topology::TwoInterfaces,
    })?;
    let folder = lab.ledger().folder().to_owned();
    fs::write(folder.join("names"), names()).during("writing the names")?;
    let before = KernelCounters::of(&lab.client())?;
    for clients in CLIENTS {
        for door in DOORS {
            let _resolvers = Resolvers::start(&lab)?;
            let daemon = start(subject, (&lab, &folder), door)?;
            let said = ask_all(&lab, &folder, clients)?;
            judge(&said).during(format!("{} {}", door.word(), clients.join(" ")))?;
            judge_counts(&lab, &daemon, door)?;
            daemon.stop()?;
            println!("race: {:<8} {}", door.word(), summary(&said, clients));
        }
    }
    KernelCounters::of(&lab.client())?.check_unchanged_since(&before)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the daemon, and awaits that its two queues of two interfaces are there.
fn start(subject: &Subject, (lab, folder): (&Lab, &Path), door: Door) -> Outcome<Daemon> {
    let log = folder.join("server.log");
    let read = || fs::read_to_string(&log).unwrap_or_default();
    let before = read().matches(SERVED).count();
    let daemon = Daemon::start(subject, lab, &configuration(door), folder)?;
    let queues = match door {
        Door::Xdp => 4,
        Door::Sockets => 0,
    };
    daemon.until(AT_REST_WITHIN, "AF_XDP", || {
        Ok(read().matches(SERVED).count() >= before + queues)
    })?;
    Ok(daemon)
}

/// What the daemon says of each queue.
const SERVED: &str = "is served over AF_XDP";

/// Every query goes to all four. Resolvers are asked as soon as they are there: health checks would be more of them.
fn configuration(door: Door) -> String {
    let (listen, backend) = door.options();
    format!(
        "addLocal(\"{SERVER_V4}:53\", {{{listen}}})\n\
         setServerPolicy(race)\n\
         for port = 5301, 5304 do\n\
         \x20 newServer({{address=\"{RESOLVERS}:\" .. port, healthCheckMode=\"up\", {backend}}})\n\
         end\n"
    )
}

/// Each name once, in an order that has nothing to do with the resolvers' caches.
fn names() -> String {
    (0..NAMES)
        .map(|number| format!("r{:08x}.example.com A\n", number.wrapping_mul(0x9e37_79b1)))
        .collect()
}

/// The four resolvers, in a process of their own, ended when this is dropped.
struct Resolvers(Child);

impl Resolvers {
    fn start(lab: &Lab) -> Outcome<Self> {
        let own = std::env::current_exe().during("finding the resolvers")?;
        let mut command = Command::new(own);
        command.args(["resolvers", &RESOLVERS.to_string()]);
        command.stdin(Stdio::null());
        sys::unblock_signals(&mut command);
        let child = lab.backend().spawn(&mut command, None)?;
        lab.ledger().add(child.id(), "lab")?;
        Ok(Self(child))
    }
}

impl Drop for Resolvers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks each name once; what floodgate says of it.
fn ask_all(lab: &Lab, folder: &Path, clients: &[&str]) -> Outcome<String> {
    let own = std::env::current_exe().during("finding floodgate")?;
    let mut command = Command::new(own.with_file_name("floodgate"));
    command
        .args(["sockets", "--quiet", "-s", &SERVER_V4.to_string(), "-d"])
        .arg(folder.join("names"))
        .args(clients)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    sys::unblock_signals(&mut command);
    let child = lab.client().spawn(&mut command, None)?;
    lab.ledger().add(child.id(), "floodgate")?;
    let output = child.wait_with_output().during("waiting for floodgate")?;
    signals::go_on()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Failure::new(format!("floodgate: {complaint}"))),
    }
}

/// What stands behind this word of dnsperf's statistics.
fn told<'t>(said: &'t str, word: &str) -> &'t str {
    let mut lines = said.lines();
    let line = lines.find_map(|line| line.trim().strip_prefix(word));
    line.unwrap_or_default().trim()
}

fn count(said: &str, word: &str) -> Option<u32> {
    told(said, word).split(' ').next()?.parse().ok()
}

/// All were asked, all were answered, and none with an error.
fn judge(said: &str) -> Outcome<()> {
    let counts =
        ["Queries sent:", "Queries completed:", "Queries lost:"].map(|word| count(said, word));
    let is_good = told(said, "Response codes:") == format!("NOERROR {NAMES} (100.00%)");
    match counts == [Some(NAMES), Some(NAMES), Some(0)] && is_good {
        true => Ok(()),
        false => Err(Failure::new(said)),
    }
}

/// Each server was asked everything; of four answers to a query one was taken.
fn judge_counts(lab: &Lab, daemon: &Daemon, door: Door) -> Outcome<()> {
    let names = f64::from(NAMES);
    let mut seen = String::new();
    let outcome = daemon.until(AT_REST_WITHIN, "three losers a query", || {
        let metrics = Metrics::of(&lab.server())?;
        let labels = |name: &str, value: &str| [(name.to_owned(), value.to_owned())];
        let sum = |name, labels: &[(String, String)]| metrics.sum(name, labels).unwrap_or(0.0);
        let lost = sum("millrace_drops", &labels("reason", "response-lost"));
        let asked: Vec<f64> = metrics
            .rows("dnsdist_server_queries", &[])
            .map(|row| row.value)
            .collect();
        let clients = labels("interface", SERVER_CLIENTS);
        let received = sum("millrace_xsk_received", &clients);
        // After a pause of the machine's nobody has shown life for 100 ms: the kernel has what comes then.
        let passed = sum("millrace_xsk_heartbeat_passes", &clients);
        let dropped = metrics.rows("millrace_drops", &[]);
        let dropped = dropped.filter(|row| row.value > 0.0).map(Row::to_string);
        seen = format!(
            "{lost} losers, servers asked {asked:?}, {received} over AF_XDP, {passed} passed, {:?}",
            dropped.collect::<Vec<_>>()
        );
        Ok(lost == 3.0 * names
            && asked == [names; 4]
            && (door == Door::Sockets || received + passed == names))
    });
    outcome.map_err(|failure| Failure::new(format!("{failure}: {seen}")))
}

fn summary(said: &str, clients: &[&str]) -> String {
    format!(
        "{:<14} {NAMES} queries, 0 lost, average latency {} s, {} queries/s, {} s",
        clients.join(" "),
        told(said, "Average Latency (s):"),
        told(said, "Queries per second:"),
        told(said, "Run time (s):")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_unique() {
        let text = names();
        let unique: std::collections::HashSet<&str> = text.lines().collect();
        assert_eq!(unique.len(), NAMES as usize);
    }

    #[test]
    fn one_lost_query_is_a_failure() {
        let said = |lost: u32| {
            let completed = NAMES - lost;
            format!(
                "  Queries sent:         {NAMES}\n  Queries completed:    {completed} (99.99%)\n  \
                 Queries lost:         {lost} (0.01%)\n\n  Response codes:       NOERROR {NAMES} (100.00%)\n"
            )
        };
        assert!(judge(&said(0)).is_ok());
        assert!(judge(&said(1)).is_err());
        assert!(judge("").is_err());
    }
}
