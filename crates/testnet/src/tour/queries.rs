//! The tour's queries, what came back, and which path each took.

use std::process::Command;

use super::ground::Ground;
use super::output_of;
use crate::lab::{SERVER_BACKENDS, SERVER_CLIENTS};
use crate::metrics::Metrics;
use crate::{Failure, Outcome};

/// What is asked by kdig, and what its output must hold.
struct Query {
    words: &'static str,
    v6: bool,
    shows: &'static str,
}

const fn query(words: &'static str, shows: &'static str) -> Query {
    Query {
        words,
        v6: false,
        shows,
    }
}

const QUERIES: [Query; 8] = [
    query("www.example.com A", "192.0.2.77"),
    Query {
        words: "www.example.com AAAA +dnssec",
        v6: true,
        shows: "2001:db8::77",
    },
    query("alias.example.com A +tcp", "192.0.2.77"),
    query("www.example.net A", "192.0.2.78"),
    query("www.example.net A", "192.0.2.78"),
    query("large.example.net TXT +bufsize=4096", "llllllll"),
    query("www.blocked.example A", "NXDOMAIN"),
    query("www.example.com ANY +ignore", " tc"),
];

/// Asks them all and prints them; an answer that is not the right one is a failure.
pub(super) fn ask_all(ground: &Ground) -> Outcome<()> {
    println!();
    for query in &QUERIES {
        ask(ground, query)?;
    }
    Ok(())
}

fn ask(ground: &Ground, query: &Query) -> Outcome<()> {
    let words = words(ground, query);
    let before = ground.metrics()?;
    let output = output_of(
        ground,
        Command::new("kdig")
            .args(words.split(' '))
            .args(["+time=10", "+retry=1"]),
    )?;
    let after = ground.metrics()?;
    println!("$ kdig {words}");
    answer_lines(&output)
        .iter()
        .for_each(|line| println!("    {line}"));
    println!("    └─ {}", path(&before, &after));
    if output.contains(query.shows) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "`kdig {words}` should show `{}` and printed\n{output}",
        query.shows
    )))
}

fn words(ground: &Ground, query: &Query) -> String {
    let address = ground.server_address();
    match ground {
        Ground::Lab(_) if query.v6 => format!("@2001:db8::1 {}", query.words),
        Ground::Lab(_) => format!("@{} {}", address.ip(), query.words),
        Ground::Here(_) => format!("@{} -p {} {}", address.ip(), address.port(), query.words),
    }
}

/// Status and flags in one line, then the records, long ones cut.
fn answer_lines(output: &str) -> Vec<String> {
    let between = |line: &str, start: &str| {
        Some(
            line.split_once(start)?
                .1
                .split(';')
                .next()?
                .trim()
                .to_owned(),
        )
    };
    let status = output
        .lines()
        .find_map(|line| between(line, "status:"))
        .unwrap_or_default();
    let flags = output
        .lines()
        .find_map(|line| between(line, "Flags:"))
        .unwrap_or_default();
    let records = output
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(';'));
    let cut = |line: &str| match line.char_indices().nth(90) {
        Some((place, _)) => format!("{}…", &line[..place]),
        None => line.to_owned(),
    };
    let mut lines = vec![format!("{status} ({flags})")];
    lines.extend(records.map(|line| cut(&line.split_whitespace().collect::<Vec<_>>().join(" "))));
    lines
}

/// What the counters say about the one query between two readings.
fn path(before: &Metrics, after: &Metrics) -> String {
    let grown = |name: &str, interface: Option<&str>| {
        let labels: Vec<_> = interface
            .map(|name| ("interface".to_owned(), name.to_owned()))
            .into_iter()
            .collect();
        after.sum(name, &labels).unwrap_or(0.0) > before.sum(name, &labels).unwrap_or(0.0)
    };
    let by = |xdp: bool| if xdp { "AF_XDP" } else { "a kernel socket" };
    let inward = by(grown("millrace_xsk_received", Some(SERVER_CLIENTS)));
    let answered = if grown("millrace_zones_request_protocol", None) {
        "answered from its zone".to_owned()
    } else if grown("dnsdist_cache_hits", None) {
        "answered from the cache".to_owned()
    } else if grown("dnsdist_server_queries", None) {
        format!(
            "asked knotd by {}",
            by(grown("millrace_xsk_sent", Some(SERVER_BACKENDS)))
        )
    } else {
        "answered by a rule".to_owned()
    };
    let outward = by(grown("millrace_xsk_sent", Some(SERVER_CLIENTS)));
    format!("came by {inward}, {answered}, left by {outward}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_read_from_the_counters() {
        let metrics = |text: &str| Metrics::read(text).expect("good text");
        let before = metrics(
            "millrace_xsk_received{interface=\"enp1s0\",queue=\"1\"} 3\ndnsdist_cache_hits 0\n",
        );
        let text = "millrace_xsk_received{interface=\"enp1s0\",queue=\"1\"} 4\ndnsdist_cache_hits 1\n\
                    millrace_xsk_sent{interface=\"enp1s0\",queue=\"1\"} 1\n";
        assert_eq!(
            path(&before, &metrics(text)),
            "came by AF_XDP, answered from the cache, left by AF_XDP"
        );
        let zone = "millrace_zones_request_protocol{protocol=\"udp4\"} 1\n";
        assert!(path(&metrics(""), &metrics(zone)).contains(", answered from its zone, "));
        let text = "dnsdist_server_queries{server=\"knotd\"} 1\n";
        assert_eq!(
            path(&metrics(""), &metrics(text)),
            "came by a kernel socket, asked knotd by a kernel socket, left by a kernel socket"
        );
    }

    #[test]
    fn what_kdig_prints_becomes_short() {
        let output = ";; ->>HEADER<<- opcode: QUERY; status: NOERROR; id: 1\n;; Flags: qr rd; QUERY: 1\n\n\
                      ;; ANSWER SECTION:\nwww.example.com.    \t3600\tIN\tA\t192.0.2.77\n";
        assert_eq!(
            answer_lines(output),
            ["NOERROR (qr rd)", "www.example.com. 3600 IN A 192.0.2.77"]
        );
    }
}
