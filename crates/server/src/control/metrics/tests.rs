//! The whole text against golden.txt, and what the format promises.

use super::rows::{FrameRow, FrontendRow, SteerRow, XskRow};
use super::*;
use crate::backend::fixture;
use crate::backend::pool::Pool;
use crate::backend::server::{HealthMode, ServerOptions};
use crate::config::LocalAddress;
use crate::config::cache::CacheOptions;
use crate::control::fixture::Standing;
use crate::frontend::tcp::Figures;
use crate::pipeline::cache::PacketCache;
use crate::pipeline::query::Protocol;
use crate::pipeline::rules::Rule;
use crate::pipeline::rules::actions::answer::RCodeAction;
use crate::pipeline::rules::selectors::logic::AllRule;
use std::collections::HashSet;

/// Two servers, two pools, a rule; every table has rows.
fn standing() -> Standing {
    let first = ServerOptions {
        name: "first.example".to_owned(),
        order: 2,
        weight: 3,
        ..fixture::options("192.0.2.2:53")
    };
    let mut config = Config::default();
    config.servers = vec![
        Arc::new(fixture::server(1, first)),
        Arc::new(fixture::server(2, fixture::options("[2001:db8::2]:53"))),
        Arc::new(fixture::server(3, fixture::options("[2001:db8::2]:53"))),
    ];
    config.pools = vec![
        Some(fixture::pool("", &config.servers)),
        None,
        Some(Arc::new(Pool {
            cache: Some(Arc::new(PacketCache::new(CacheOptions::new(100)))),
            ..Arc::into_inner(fixture::pool("auth", &config.servers[..1])).unwrap()
        })),
    ];
    config.servers[1].state.set_mode(HealthMode::Down);
    let rule = Rule {
        name: "say \"no\"".to_owned(),
        ..Rule::new(AllRule, RCodeAction::new(5))
    };
    config.rules = vec![rule.clone()];
    config.chains.cache_miss = vec![rule];
    let mut standing = Standing::with(config);
    standing.frontends = frontends();
    standing.xsk = vec![XskRow {
        interface: "ens3f0".to_owned(),
        queue: 7,
        zero_copy: false,
        native: true,
        own: xsk::Counters {
            received: 31,
            ..xsk::Counters::default()
        },
        kernel: xsk::KernelCounters::default(),
        partial_checksums: 32,
        heartbeat_passes: 33,
    }];
    standing.frames = vec![FrameRow {
        worker: 1,
        census: xsk::Census {
            free: 35,
            tx: 36,
            ..xsk::Census::default()
        },
        frames: 71,
    }];
    standing.steer_verdicts = vec![SteerRow {
        interface: "ens3f0".to_owned(),
        reason: xsk::Reason::PassFragment,
        frames: 34,
    }];
    standing.shards[0].add(Counter::Queries, 3);
    standing.shards[1].add(Counter::Queries, 4);
    standing.shards[0].count_drop(DropReason::Rule);
    standing.shards[1].count_hand_over(HandOverReason::TcpOnlyBackend);
    standing.shards[0].add(Counter::Latency0To1, 5);
    standing.shards[1].add(Counter::LatencySlow, 6);
    standing.shards[1].add(Counter::LatencyCount, 11);
    standing.shards[1].add(Counter::LatencySumMicroseconds, 9_000_500);
    standing
}

/// One without connections, one with.
fn frontends() -> Vec<FrontendRow> {
    vec![
        FrontendRow {
            address: LocalAddress::parse("192.0.2.1", 53).unwrap(),
            protocol: Protocol::Udp,
            thread: 1,
            queries: 21,
            noncompliant_queries: 22,
            responses: 23,
            connections: None,
        },
        FrontendRow {
            address: LocalAddress::parse("2001:db8::1", 53).unwrap(),
            protocol: Protocol::Tcp,
            thread: 0,
            queries: 24,
            noncompliant_queries: 25,
            responses: 26,
            connections: Some(Figures {
                gave_up: 27,
                duration: 1.5,
                ..Figures::default()
            }),
        },
    ]
}

/// A row of the text: family, rest of the name, labels as written, number.
struct Row<'t> {
    name: &'t str,
    labels: &'t str,
    value: f64,
}

/// A parser of our own, stricter than most: every line must be HELP, TYPE or a row of the family under way.
fn parse(text: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut families = HashSet::new();
    let mut family = ("", "");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help text");
            assert!(families.insert(name), "{name} stands twice");
            assert!(!help.is_empty());
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
            let (same, kind) = kind.and_then(|kind| kind.split_once(' ')).expect("a type");
            assert_eq!(same, name);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            family = (name, kind);
        } else {
            rows.push(row(line, family));
        }
    }
    rows
}

fn row<'t>(line: &'t str, (family, kind): (&str, &str)) -> Row<'t> {
    let (series, value) = line.rsplit_once(' ').expect("a number");
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}').expect("closed labels");
    let suffix = name
        .strip_prefix(family)
        .expect("a row of the family under way");
    let suffixes: &[&str] = match kind {
        "histogram" => &["_bucket", "_sum", "_count"],
        _ => &[""],
    };
    assert!(suffixes.contains(&suffix), "{line}");
    Row {
        name,
        labels,
        value: value.parse().expect("a number"),
    }
}

fn find(rows: &[Row<'_>], name: &str, labels: &str) -> f64 {
    let found = rows
        .iter()
        .find(|row| row.name == name && row.labels == labels);
    found
        .unwrap_or_else(|| panic!("no {name}{{{labels}}}"))
        .value
}

#[test]
fn the_text_keeps_the_formats_promises() {
    let text = Metrics::new(Arc::new(standing())).text();
    let rows = parse(&text);
    let series: HashSet<_> = rows.iter().map(|row| (row.name, row.labels)).collect();
    assert_eq!(series.len(), rows.len(), "no row stands twice");
    assert_eq!(find(&rows, "dnsdist_queries", ""), 7.0);
    assert_eq!(find(&rows, "dnsdist_latency_bucket", "le=\"1000\""), 5.0);
    assert_eq!(find(&rows, "dnsdist_latency_bucket", "le=\"+Inf\""), 11.0);
    assert_eq!(find(&rows, "dnsdist_latency_sum", ""), 9_000.0);
    assert!(find(&rows, "dnsdist_latency_avg100", "") > 0.0);
    assert_eq!(find(&rows, "millrace_drops", "reason=\"rule\""), 1.0);
}

/// What depends on this machine, moment and release, or is listed elsewhere.
fn is_steady(line: &str) -> bool {
    const CHANGING: [&str; 11] = [
        "dnsdist_cpu_",
        "dnsdist_fd_usage ",
        "dnsdist_info{",
        "dnsdist_latency_avg",
        "dnsdist_real_memory_usage ",
        "dnsdist_tcp_listen_overflows ",
        "dnsdist_udp_",
        "dnsdist_udp6_",
        "dnsdist_uptime ",
        "millrace_drops{",
        "millrace_handover{",
    ];
    !CHANGING.iter().any(|start| line.starts_with(start))
}

/// `MILLRACE_GOLDEN=write` writes the file anew; then read the difference.
#[test]
fn the_text_is_golden() {
    let text = Metrics::new(Arc::new(standing())).text();
    let mut found = String::new();
    for line in text.lines().filter(|line| is_steady(line)) {
        found.push_str(line);
        found.push('\n');
    }
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/control/metrics/golden.txt"
    );
    if std::env::var_os("MILLRACE_GOLDEN").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn statistics_have_dnsdists_names() {
    let statistics = Metrics::new(Arc::new(standing())).statistics();
    let value = |name: &str| {
        let found = statistics.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.to_string())
    };
    assert_eq!(value("queries").as_deref(), Some("7"));
    assert_eq!(value("drop-rule").as_deref(), Some("1"));
    assert_eq!(value("hand-over-tcp-only-backend").as_deref(), Some("1"));
}
