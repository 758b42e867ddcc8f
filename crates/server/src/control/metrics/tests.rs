//! The whole text against golden.txt, and what the format promises.

use super::custom::{CustomMetrics, Shown};
use super::rows::{FrameRow, FrontendRow, SteerRow, XskRow};
use super::*;
use crate::backend::fixture;
use crate::backend::pool::Pool;
use crate::backend::server::{HealthMode, ServerOptions};
use crate::config::cache::CacheOptions;
use crate::config::pools::PoolNames;
use crate::config::spec::{Purpose, Spec};
use crate::config::zones::ZoneSpecs;
use crate::config::{LocalAddress, LuaState};
use crate::control::fixture::{Standing, webserver};
use crate::frontend::tcp::Figures;
use crate::local::Local;
use crate::pipeline::authority::statistics::Statistics;
use crate::pipeline::cache::PacketCache;
use crate::pipeline::query::Protocol;
use crate::pipeline::rules::Rule;
use crate::pipeline::rules::actions::answer::RCodeAction;
use crate::pipeline::rules::actions::count::counting;
use crate::pipeline::rules::selectors::logic::AllRule;
use std::collections::HashSet;
use testnet::manual::Page;
use wire::name::NameBuf;

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
    // No row tells of the first one.
    config.rules = vec![counting(&Arc::default(), None), rule.clone()];
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
            partial_checksums: 32,
            ..xsk::Counters::default()
        },
        kernel: xsk::KernelCounters::default(),
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
            assert!(is_name(name), "{name}");
            assert!(help.ends_with('.') && !help.contains('\\'), "{line}");
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
    let names = label_names(labels);
    assert!(names.iter().all(|name| is_name(name)), "{line}");
    let distinct: HashSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{line}");
    Row {
        name,
        labels,
        value: value.parse().expect("a number"),
    }
}

/// "[a-zA-Z_][a-zA-Z0-9_]*": what families and labels may be called here.
fn is_name(name: &str) -> bool {
    let usual = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_';
    !name.is_empty() && name.bytes().all(usual) && !name.as_bytes()[0].is_ascii_digit()
}

/// Of `a="1",b="2"` a and b.
fn label_names(labels: &str) -> Vec<&str> {
    let (mut names, mut rest) = (Vec::new(), labels);
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").expect("a value in quotes");
        names.push(name);
        let behind = &value[end(value) + 1..];
        rest = match behind {
            "" => "",
            more => more.strip_prefix(',').expect("a comma between labels"),
        };
    }
    names
}

/// Where the quote is that ends a label's value: behind a backslash stand only those three that the format knows.
fn end(value: &str) -> usize {
    let mut is_escaped = false;
    for (place, octet) in value.bytes().enumerate() {
        match octet {
            b'\\' if !is_escaped => is_escaped = true,
            b'"' if !is_escaped => return place,
            other => {
                assert!(!is_escaped || b"\\\"n".contains(&other), "{value}");
                is_escaped = false;
            }
        }
    }
    panic!("{value} does not end")
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
    let buckets = rows.iter();
    let buckets = buckets.filter(|row| row.name == "dnsdist_latency_bucket");
    let buckets: Vec<f64> = buckets.map(|row| row.value).collect();
    assert!(buckets.is_sorted(), "{buckets:?}");
    let count = find(&rows, "dnsdist_latency_count", "");
    assert_eq!(buckets.last(), Some(&count));
}

/// Prometheus refuses the whole text for one row that stands twice, or that nobody can read.
#[test]
fn whatever_the_operator_calls_things_the_text_can_be_read() {
    let named = |name: &str| ServerOptions {
        name: name.to_owned(),
        ..fixture::options("192.0.2.2:53")
    };
    let names = ["a.b", "a_b", "a_b#2", "a_b", "\"\\\n}"];
    let servers = (0..).zip(names);
    let servers = servers.map(|(number, name)| Arc::new(fixture::server(number, named(name))));
    let servers: Vec<_> = servers.collect();
    let pool = |name| Some(fixture::pool(name, &servers));
    let pools = vec![pool(""), pool("_default_"), pool("{\"\\\n"), pool("é")];
    let custom = CustomMetrics::default();
    let declared = custom.declare("seen", "gauge", "What\n\\ever.", Shown::default());
    assert_eq!(declared, Ok(()));
    for instance in ["ns1", "ns2\n"] {
        let label = ("instance".to_owned(), instance.to_owned());
        let set = custom.set("seen", vec![label], f64::INFINITY);
        assert_eq!(set, Ok(f64::INFINITY));
    }
    let mut config = Config {
        servers,
        pools,
        server_id: "\"ns\\1\"".to_owned(),
        custom_metrics: Arc::new(custom),
        webserver: Some(webserver()),
        ..Config::default()
    };
    let web = config.webserver.as_mut().unwrap();
    web.options.add_instance_label = true;
    let text = Metrics::new(Arc::new(Standing::with(config))).text();
    let rows = parse(&text);
    let series: HashSet<_> = rows.iter().map(|row| (row.name, row.labels)).collect();
    assert_eq!(series.len(), rows.len(), "no row stands twice");
    let seen = find(&rows, "dnsdist_seen", "instance=\"ns1\"");
    assert_eq!(seen, f64::INFINITY);
    let count = |name: &str| rows.iter().filter(|row| row.name == name).count();
    assert_eq!(count("dnsdist_server_queries"), names.len());
    assert_eq!(count("dnsdist_pool_servers"), 4);
}

/// As dnsdist has it: a name serves at several addresses, and graphs ask for it by that.
#[test]
fn servers_of_one_name_are_told_apart_by_their_addresses() {
    let mut config = Config::default();
    let addresses = ["192.0.2.2:53", "[2001:db8::2]:53", "192.0.2.2:53"];
    for (number, address) in (0..).zip(addresses) {
        let options = ServerOptions {
            name: "ns1".to_owned(),
            ..fixture::options(address)
        };
        let server = fixture::server(number, options);
        config.servers.push(Arc::new(server));
    }
    let text = Metrics::new(Arc::new(Standing::with(config))).text();
    let rows = parse(&text);
    for labels in [
        "server=\"ns1\",address=\"192.0.2.2:53\"",
        "server=\"ns1\",address=\"[2001:db8::2]:53\"",
        "server=\"ns1#2\",address=\"192.0.2.2:53\"",
    ] {
        assert_eq!(find(&rows, "dnsdist_server_queries", labels), 0.0);
    }
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

/// The families of [`standing`], and those that only zones, their rate limit and functions of the configuration bring.
fn families() -> HashSet<String> {
    let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
    let text = "millrace.setResponseRateLimit{rate=50}";
    state.run("test.conf", text.as_bytes()).unwrap();
    let mut config = Arc::new(state).derive(None).unwrap();
    let apexes = ["example.org.".parse::<NameBuf>().unwrap()];
    let specs = ZoneSpecs::nowhere(&apexes);
    config.local = Arc::new(Local::load(&specs, &Local::default()).0);
    config.authority.statistics = Statistics::new(&apexes, config.local.zones(), 1, None);
    let texts = [standing(), Standing::with(config)];
    let texts = texts.map(|standing| Metrics::new(Arc::new(standing)).text());
    let lines = texts.iter().flat_map(|text| text.lines());
    let heads = lines.filter_map(|line| line.strip_prefix("# HELP "));
    heads
        .filter_map(|head| Some(head.split_once(' ')?.0.to_owned()))
        .collect()
}

/// It would not be shown, and nobody would hear of that.
#[test]
fn no_metric_of_the_operators_takes_a_name_of_ours() {
    let metrics = CustomMetrics::default();
    for family in families() {
        let shown = Shown {
            name: family.clone(),
            with_labels: false,
        };
        let as_row = metrics.declare("own", "counter", "", shown);
        assert!(as_row.is_err(), "{family}");
        if let Some(name) = family.strip_prefix("dnsdist_") {
            let name = name.replace('_', "-");
            let usual = metrics.declare(&name, "counter", "", Shown::default());
            assert!(usual.is_err(), "{family}");
        }
    }
    let statistics = Metrics::new(Arc::new(standing())).statistics();
    for (name, _) in statistics {
        let declared = metrics.declare(&name, "counter", "", Shown::default());
        assert!(declared.is_err(), "{name}");
    }
    for (name, wanted) in [
        ("too-old-drops", "'too-old-drops' is a built-in statistic"),
        ("server-policy", "'server-policy' is a built-in statistic"),
        ("latency", "dnsdist_latency is a built-in row of /metrics"),
    ] {
        let declared = metrics.declare(name, "counter", "", Shown::default());
        let error = declared.unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{error}");
        assert!(error.contains(": another name expected"), "{error}");
    }
    let own = metrics.declare("own-queries", "counter", "", Shown::default());
    assert_eq!(own, Ok(()));
}

/// The rows that a line names: in full, or (`_sent`) by what follows the first two words of the one before.
fn rows_of(line: &str) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let is_between = |letter: char| !(letter.is_ascii_alphanumeric() || "_.".contains(letter));
    for word in line.split(is_between) {
        let word = word.trim_end_matches('.');
        let begins = |start: &&str| word.starts_with(*start);
        let is_short = word
            .strip_prefix('_')
            .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_lowercase()));
        if ["dnsdist_", "millrace_"].iter().any(begins) {
            // With a dot it is a file: millrace_VERSION.deb.
            rows.extend((!word.contains('.')).then(|| word.to_owned()));
        } else if let (true, Some(last)) = (is_short, rows.last()) {
            let stem = last.match_indices('_').nth(1);
            let stem = stem.map_or(last.as_str(), |(place, _)| &last[..place]);
            let row = format!("{stem}{word}");
            rows.push(row);
        }
    }
    rows
}

/// The reasons of `reason="…"` and `reason=~"…\|…"` in a line.
fn reasons_of(line: &str) -> impl Iterator<Item = &str> {
    let labels = line.split("reason=").skip(1);
    let values = labels.filter_map(|label| label.trim_start_matches('~').strip_prefix('"'));
    let values = values.filter_map(|value| value.split_once('"'));
    values.flat_map(|(reasons, _)| reasons.split("\\|"))
}

#[test]
fn rows_and_reasons_of_a_line_are_found() {
    let line = "`millrace_xsk_received`, `_tx_ring_full` `{queue}`, `millrace_zone_…` of x_y, _a.";
    let rows = [
        "millrace_xsk_received",
        "millrace_xsk_tx_ring_full",
        "millrace_zone_",
        "millrace_zone_a",
    ];
    assert_eq!(rows_of(line), rows);
    let files = "`.millrace_history` `millrace_NEW.deb` `_dnsdist`";
    assert_eq!(rows_of(files), Vec::<String>::new());
    let line = "`millrace_drops{reason=~\"acl\\|rule\"}` `{reason=\"no\"}` `{reason=}`";
    let reasons: Vec<&str> = reasons_of(line).collect();
    assert_eq!(reasons, ["acl", "rule", "no"]);
}

/// Nobody hears of an alarm on a row that is not there.
#[test]
fn the_rows_that_the_manual_names_are_there() {
    let families = families();
    let is_family = |row: &String| match row.ends_with('_') {
        true => families.iter().any(|family| family.starts_with(row)),
        false => families.contains(row),
    };
    let is_reason = |reason: &&str| DropReason::ALL.iter().any(|known| known.name() == *reason);
    let mut wrong = Vec::new();
    let mut pages = Page::all();
    pages.push(Page::read("packaging/grafana/millrace-zones.json"));
    for Page { path, text } in pages {
        for line in text.lines() {
            let rows = rows_of(line).into_iter().filter(|row| !is_family(row));
            let reasons = reasons_of(line).filter(|reason| !is_reason(reason));
            let names = rows.chain(reasons.map(str::to_owned));
            wrong.extend(names.map(|name| format!("{path}: {name}")));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
