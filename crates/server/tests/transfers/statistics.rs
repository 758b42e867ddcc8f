//! Transfers, NOTIFY and what else is answered beside the packet path are counted as Knot's module `stats` counts them:
//! the same questions to both, the same lines.

use crate::daemon::{Millrace, answer, answer_by_stream, text, until, until_serial};
use crate::primary::apex;
use crate::servers::SECRET;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testnet::loopback::own_port;
use wire::codes::opcode;
use zone::transfer::query;

/// knotd with its module; it ends with this.
struct Knot {
    process: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Drop for Knot {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Knot {
    /// `None`: it is not installed.
    fn start() -> Option<Knot> {
        let folder = tempfile::tempdir().unwrap();
        let (path, port) = (folder.path().display(), own_port());
        let counters: String = [
            "request-protocol",
            "server-operation",
            "request-bytes",
            "response-bytes",
            "edns-presence",
            "flag-presence",
            "response-code",
            "reply-nodata",
            "query-type",
            "query-size",
            "reply-size",
        ]
        .map(|counter| format!("    {counter}: on\n"))
        .concat();
        let configuration = format!(
            "server:\n    rundir: {path}\n    listen: 127.0.0.1@{port}\n    identity: \"\"\n\
             database:\n    storage: {path}\nmod-stats:\n  - id: all\n{counters}\
             acl:\n  - id: a\n    address: 127.0.0.1\n    action: [transfer, notify]\n\
             template:\n  - id: default\n    storage: {path}\n    global-module: mod-stats/all\n\
             zone:\n  - domain: example.com\n    file: zone\n    acl: a\n"
        );
        fs::write(folder.path().join("knot.conf"), configuration).unwrap();
        fs::write(folder.path().join("zone"), text(5)).unwrap();
        let process = Command::new("/usr/sbin/knotd")
            .arg("--config")
            .arg(folder.path().join("knot.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Knot {
            process,
            folder,
            port,
        })
    }

    fn stats(&self) -> String {
        let output = Command::new("/usr/sbin/knotc")
            .arg("--socket")
            .arg(self.folder.path().join("knot.sock"))
            .arg("stats")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

/// What both are asked.
fn ask(port: u16) {
    let apex = apex();
    for opcode in [opcode::NOTIFY, opcode::STATUS] {
        let mut message = query::soa(9, apex.as_name());
        message[2] = opcode << 3;
        assert!(answer(port, &message).is_some());
    }
    let wrong = format!("hmac-sha256:nobody.:{SECRET}");
    for words in [
        &["example.com", "AXFR"][..],
        &["example.com", "AXFR", "+edns"],
        &["example.com", "IXFR=5"],
        &["example.com", "IXFR=5", "+notcp"],
        &["example.org", "AXFR"],
        &["example.com", "AXFR", "+notcp", "+ignore"],
        &["ns.example.com", "A"],
        &["ns.example.com", "A", "+tcp"],
        &["ns.example.com", "AAAA", "+dnssec"],
        &["ns.example.com", "TXT"],
        &["nx.example.com", "A"],
        &["www.example.net", "MX"],
        &["example.com", "SOA", "-y", &wrong],
    ] {
        let asked = Command::new("kdig")
            .args(["@127.0.0.1", "-p", &port.to_string(), "+retry=0"])
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        // Its status tells of refusals, too.
        asked.unwrap();
    }
}

/// Counters and values; of octets and sizes of answers the names alone, for messages are packed in other ways.
fn lines(stats: &str) -> BTreeSet<String> {
    let lines = stats.lines().filter(|line| line.starts_with("mod-stats."));
    let known = |line: &str| {
        let (name, value) = line.split_once(" = ").unwrap();
        let is_packed = name.contains("response-bytes");
        match (name.contains("reply-size"), is_packed) {
            (true, _) => None,
            (false, true) => Some(name.to_owned()),
            (false, false) => Some(format!("{name} {value}")),
        }
    };
    lines
        .filter(|line| !line.ends_with(" = 0"))
        .filter_map(known)
        .collect()
}

/// How long no counter has changed when nothing is on its way any more: longer than a thread that has answered and not yet counted
/// is kept from its processor.
const SETTLED: Duration = Duration::from_secs(1);

/// What is counted when nothing is on its way any more.
fn settled(read: impl Fn() -> String) -> String {
    let last = RefCell::new((Instant::now(), String::new()));
    let is_settled = || {
        let begun = Instant::now();
        let stats = read();
        let counters = stats.lines().filter(|line| line.starts_with("mod-"));
        let now: String = counters.map(|line| format!("{line}\n")).collect();
        let (since, known) = &mut *last.borrow_mut();
        if *known != now {
            (*since, *known) = (Instant::now(), now);
        }
        begun.saturating_duration_since(*since) > SETTLED
    };
    let growing = || format!("counters grow:\n{}", last.borrow().1);
    until(is_settled, growing);
    last.into_inner().1
}

#[test]
fn transfers_and_notifies_are_counted_as_knot_counts_them() {
    let is_there = |program: &str| Path::new("/usr").join(program).exists();
    let knot = Knot::start().filter(|_| is_there("sbin/knotc") && is_there("bin/kdig"));
    let Some(knot) = knot else {
        println!("SKIP: knotd is not installed");
        return;
    };
    let zone =
        "file='zone', statistics=true, acl={action={'transfer', 'notify'}, address='127.0.0.1'}";
    let ours = Millrace::start(own_port(), zone);

    ours.until_serial(5);
    until_serial(knot.port, 5, "knotd", String::new);
    let ours_before = settled(|| ours.command(&["stats"]));
    let knots_before = settled(|| knot.stats());
    ask(ours.port);
    ask(knot.port);
    let grown = |before: &str, after: &str| {
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        let name = |line: &str| line.split(" = ").next().unwrap().to_owned();
        let before: std::collections::HashMap<_, _> = before
            .lines()
            .filter(|line| line.starts_with("mod-"))
            .map(|line| (name(line), value(line)))
            .collect();
        let lines = after.lines().filter(|line| line.starts_with("mod-"));
        let grown = lines.map(|line| {
            let was = before.get(&name(line)).copied().unwrap_or(0);
            format!("{} = {}\n", name(line), value(line) - was)
        });
        grown.collect::<String>()
    };
    let counted = || {
        let mine = grown(&ours_before, &ours.command(&["stats"]));
        let knots = grown(&knots_before, &knot.stats());
        (lines(&mine), lines(&knots))
    };
    // RFC 1996 §3.10 leaves open what a primary says to NOTIFY: knotd NOERROR, we REFUSED. And knotd looks at type and size of a
    // query whose key it does not know. A transfer of a zone that is not served is NOTAUTH here (RFC 5936 §2.2.1), REFUSED there.
    let is_known = |line: &str| {
        let known = [
            "response-code[NOERROR]",
            "response-code[REFUSED]",
            "response-code[NOTAUTH]",
            "query-type[SOA]",
            "query-size[96-111]",
        ];
        known.iter().any(|name| line.contains(name))
    };
    let others = || -> Vec<String> {
        let (mine, knots) = counted();
        let only = mine.symmetric_difference(&knots);
        only.filter(|line| !is_known(line)).cloned().collect()
    };
    // Both count after they have answered.
    until(
        || others().is_empty(),
        || format!("{:#?}\nours and knotd's {:#?}", others(), counted()),
    );
}

/// dnsdist's manual: "queries - noncompliant-queries = responses - noncompliant-responses + downstream-timeouts + no-policy +
/// rule-drop", by which operators look for lost queries.
#[test]
fn a_transfer_and_a_notify_are_one_response_to_one_query() {
    let zone = "file='zone', acl={action='transfer', address='127.0.0.1'}";
    let ours = Millrace::start(own_port(), zone);
    ours.until_serial(5);
    let apex = apex();
    let notify = query::notify(1, apex.as_name(), None);
    let axfr = query::axfr(2, apex.as_name());
    // The first over UDP is NOTIMP.
    assert!(answer(ours.port, &notify).is_some());
    assert!(answer(ours.port, &axfr).is_some());
    assert!(answer_by_stream(ours.port, &axfr).is_some());
    let counted = |name: &str| -> u64 {
        let stats = ours.command(&["stats"]);
        let mut lines = stats.lines().map(str::split_whitespace);
        let value = lines.find_map(|mut words| {
            let is_it = words.next() == Some(name);
            words.next().filter(|_| is_it)?.parse().ok()
        });
        value.unwrap_or_else(|| panic!("no {name} in {stats}"))
    };
    let counts = || ["queries", "responses", "self-answered"].map(counted);
    // A transfer is counted when it has ended, all else behind its answer.
    until(
        || {
            let [queries, responses, own] = counts();
            queries >= 4 && queries == responses && queries == own
        },
        || format!("queries, responses and those made here: {:?}", counts()),
    );
}
