//! Statistics of zones as scripts and graphs get them: packaging/knotc, packaging/munin/millrace_zones and
//! packaging/grafana/millrace-zones.json, against a daemon on loopback.

use crate::daemon::Daemon;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use wire::codes::qtype;

impl Daemon {
    /// What one of our scripts prints about this daemon.
    fn script(&self, path: &str, words: &[&str]) -> String {
        let control = self.control();
        let output = Command::new(packaging(path))
            .args(words)
            .env("MILLRACE", env!("CARGO_BIN_EXE_millrace"))
            .env("control", &control)
            .output()
            .expect("the script is executable");
        success(output)
    }
}

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(path)
}

fn success(output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).expect("text")
}

/// The value of a line `NAME = VALUE`.
fn value(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    line.map(|value| value.parse().expect("a number"))
}

#[test]
fn scripts_and_graphs_read_what_the_daemon_counts() {
    let daemon = Daemon::start("millrace.setResponseRateLimit{rate=1000}\n");
    for (name, qtype) in [
        ("ns.example.com.", qtype::A),
        ("nx.example.com.", qtype::A),
        ("ns.example.com.", qtype::AAAA),
        ("ns.example.org.", qtype::A),
    ] {
        daemon.ask(name, qtype);
    }
    knotc(&daemon);
    munin(&daemon);
    let metrics = daemon.metrics();
    for row in [
        "millrace_zone_serial{zone=\"example.com.\"} 7",
        "millrace_zone_loaded{zone=\"example.org.\"} 1",
    ] {
        assert!(metrics.lines().any(|line| line == row), "{row}\n{metrics}");
    }
}

fn knotc(daemon: &Daemon) {
    let control = daemon.control();
    let control = control.to_str().expect("a path of ours");
    let knotc = |words: &[&str]| daemon.script("knotc", &[&["-s", control], words].concat());
    let until = Instant::now() + Duration::from_secs(60);
    let asked = |stats: &str| value(stats, "mod-stats.request-protocol[udp4]");
    let mut stats = knotc(&["stats"]);
    // What a worker counts it shows after its batch, which is after its answer.
    while asked(&stats) < Some(4) && Instant::now() < until {
        stats = knotc(&["stats"]);
    }
    // A first query may have been asked twice.
    assert!(asked(&stats) >= Some(4), "{stats}");
    assert_eq!(value(&stats, "mod-stats.reply-nodata[AAAA]"), Some(1));
    assert_eq!(value(&stats, "server.zone-count"), Some(2));
    assert_eq!(
        value(&stats, "mod-stats.request-protocol[udp4-xdp]"),
        None,
        "it is zero"
    );
    assert!(
        !stats.contains("queries"),
        "dnsdist's are for `millrace stats`"
    );
    let all = knotc(&["-f", "stats", "mod-stats.request-protocol"]);
    assert_eq!(value(&all, "mod-stats.request-protocol[udp4-xdp]"), Some(0));
    assert!(
        all.lines()
            .all(|line| line.starts_with("mod-stats.request-protocol["))
    );
    let own = knotc(&["zone-stats", "example.com", "mod-stats.response-code"]);
    assert_eq!(
        value(&own, "[example.com.] mod-stats.response-code[NXDOMAIN]"),
        Some(1)
    );
    let same = knotc(&["zone-stats", "EXAMPLE.Com.", "mod-stats.response-code"]);
    assert_eq!(
        value(&same, "[example.com.] mod-stats.response-code[NXDOMAIN]"),
        Some(1),
        "RFC 4343: names are the same in upper and lower case"
    );
    assert_eq!(
        knotc(&["zone-stats", "example.org."]),
        "",
        "it did not ask for it"
    );
    verbs(&knotc);
    failures(daemon, control);
}

/// What must not end with 0.
fn failures(daemon: &Daemon, control: &str) {
    let knotc = |words: &[&str]| {
        let mut shim = Command::new(packaging("knotc"));
        shim.env("MILLRACE", env!("CARGO_BIN_EXE_millrace"));
        shim.args(words).output().expect("a script")
    };
    let nobody = daemon.control().with_extension("of-nobody");
    let nobody = nobody.to_str().expect("a path of ours");
    for words in [
        // Nobody to ask is a failure, of what is counted too.
        &["-s", nobody, "stats"][..],
        &["-s", nobody, "zone-stats", "example.com"],
        &["-s", nobody, "zone-status"],
        &["-s", nobody, "zone-read", "--"],
        &["zone-status", "+roles"],
        &["zone-sign"],
        &["zone-purge"],
        &["zone-purge", "--"],
        &["zone-backup", "--"],
        &["zone-restore", "+backupdir"],
    ] {
        assert!(!knotc(words).status.success(), "{words:?}");
    }
    // As Knot, which has nothing to do then; but nobody has a primary to ask where there is none.
    for (words, succeeds) in [
        (&["zone-flush"][..], true),
        (&["zone-flush", "example.com"], true),
        (&["zone-notify", "--"], true),
        (&["zone-notify", "example.com"], true),
        (&["zone-refresh"], true),
        (&["zone-retransfer"], true),
        (&["zone-refresh", "example.com"], false),
        (&["zone-flush", "example.net"], false),
    ] {
        let output = knotc(&[&["-s", control], words].concat());
        assert_eq!(output.status.success(), succeeds, "{words:?}: {output:?}");
    }
    for verb in ["zone-status", "zone-stats"] {
        let unknown = knotc(&["-s", control, verb, "example.net"]);
        assert!(!unknown.status.success(), "{verb}");
        let said = String::from_utf8_lossy(&unknown.stdout).into_owned();
        assert_eq!(said, "error: [example.net.] (no such zone found)\n");
    }
    // As Knot, which knows no beginnings of names: a script that asks for the wrong one is not told that there was nothing.
    for words in [
        &["stats", "server-operation"][..],
        &["stats", "mod-stats.request"],
        &["zone-stats", "example.com", "mod-stats.querytype"],
    ] {
        let unknown = knotc(&[&["-s", control], words].concat());
        let counter = words[words.len() - 1];
        assert!(!unknown.status.success(), "{words:?}");
        let said = String::from_utf8_lossy(&unknown.stdout).into_owned();
        assert_eq!(said, format!("error: (not exists) {counter}\n"));
    }
}

/// knotc(8), zone-status, as monitoring takes it to pieces.
fn zone_status(knotc: &impl Fn(&[&str]) -> String) {
    assert_eq!(
        knotc(&["zone-status", "example.com."]),
        "[example.com.] role: master | serial: 7 | freeze: yes\n"
    );
    assert_eq!(
        knotc(&["zone-status", "example.com", "+role", "+serial"]),
        "[example.com.] role: master | serial: 7\n"
    );
    assert_eq!(
        knotc(&["zone-status", "+transaction", "example.com"]),
        "[example.com.]\n",
        "\"Empty zone parameters are omitted\""
    );
    assert_eq!(
        knotc(&["-e", "zone-status", "+freeze", "example.com"]),
        "[example.com.] freeze: yes | XFR-freeze: -\n",
        "\"unless the --extended option is used\""
    );
    assert_eq!(knotc(&["zone-status", "--"]).lines().count(), 2);
}

/// Knot's verbs, as its scripts call them.
fn verbs(knotc: &impl Fn(&[&str]) -> String) {
    assert_eq!(knotc(&["status"]), "Running\n");
    let frozen = "example.com.: it is frozen\n";
    assert_eq!(knotc(&["-b", "zone-freeze", "example.com"]), frozen);
    zone_status(knotc);
    let thawed = knotc(&["--timeout=5", "--mono", "zone-thaw", "-b", "--"]);
    assert_eq!(thawed.matches("nothing was held back").count(), 2);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a path of ours");
    let flushed = knotc(&["zone-flush", "example.com.", "+outdir", path]);
    assert!(flushed.contains("3 records written to"), "{flushed}");
    assert!(folder.path().join("example.com.zone").exists());
    backups(knotc, &folder.path().join("backups"));
    let soa = knotc(&["zone-read", "example.com", "@", "SOA"]);
    let expected = "[example.com.] example.com. 300 SOA ns.example.com. ";
    assert!(soa.starts_with(expected), "{soa}");
    let all = knotc(&["zone-read", "--", "@", "SOA"]);
    assert!(all.contains(&soa), "{all}");
    assert_eq!(all.matches(" SOA ").count(), 2, "{all}");
}

/// Of lines as `millrace zone status` says them: `cat zone status` in its place.
#[test]
fn knotc_shows_timers_as_knot_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = [
        "example.net. secondary, serial 7, 3 records, asks in 3570 s, expires in 604799 s; last: a, b\n",
        "example.org. secondary, not loaded: SERVFAIL, asks in 0 s, transfers out are frozen\n",
    ];
    fs::write(folder.path().join("zone"), lines.concat()).expect("a file");
    fs::write(folder.path().join("status"), "").expect("a file");
    let shim = packaging("knotc").canonicalize().expect("it is there");
    let output = Command::new(shim)
        .arg("zone-status")
        .current_dir(folder.path())
        .env("MILLRACE", "cat")
        .output()
        .expect("the script is executable");
    assert_eq!(
        success(output),
        "[example.net.] role: slave | serial: 7 | refresh: +59m30s | expiration: +6D23h59m59s\n\
         [example.org.] role: slave | serial: - | XFR-freeze: yes | refresh: pending\n"
    );
}

/// knotc(8), zone-backup and zone-restore.
fn backups(knotc: &impl Fn(&[&str]) -> String, folder: &Path) {
    let path = folder.to_str().expect("a path of ours");
    let copied = knotc(&["zone-backup", "+backupdir", path, "+nokaspdb", "--"]);
    assert_eq!(copied.matches("serial 7 copied to ").count(), 2, "{copied}");
    let words = ["zone-backup", "--force", "example.com.", "+backupdir", path];
    let again = knotc(&words);
    assert!(again.starts_with("example.com.: serial 7"), "{again}");
    let words = ["zone-restore", "example.com", "+backupdir", path];
    let restored = knotc(&words);
    let expected = "example.com.: serial 7 restored from ";
    assert!(restored.starts_with(expected), "{restored}");
}

fn munin(daemon: &Daemon) {
    assert_eq!(
        daemon.script("munin/millrace_zones", &["autoconf"]),
        "yes\n"
    );
    let config = daemon.script("munin/millrace_zones", &["config"]);
    let fields: Vec<&str> = config
        .lines()
        .filter_map(|line| line.split_once(".label ").map(|(field, _)| field))
        .collect();
    let values = daemon.script("munin/millrace_zones", &[]);
    let value = |field: &str| {
        let line = values
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(".value "));
        line.unwrap_or_else(|| panic!("{field} has no value"))
            .parse::<u64>()
            .expect("a number")
    };
    assert!(value("udp4") >= 4);
    fields
        .iter()
        .copied()
        .for_each(|field| assert!(value(field) < u64::MAX));
    assert_eq!(fields.len(), values.lines().count());
    assert!(
        fields
            .iter()
            .all(|field| config.contains(&format!("{field}.type DERIVE\n")))
    );
    let nobody = Command::new(packaging("munin/millrace_zones"))
        .env("MILLRACE", env!("CARGO_BIN_EXE_millrace"))
        .env("control", daemon.control().with_extension("nobody"))
        .output()
        .expect("the script is executable");
    let values = String::from_utf8_lossy(&nobody.stdout);
    let unknown = fields.iter().map(|field| format!("{field}.value U\n"));
    assert_eq!(values, String::from_iter(unknown));
    assert_eq!(nobody.status.code(), Some(1));
    assert!(!nobody.stderr.is_empty(), "the reason");
}

/// Of a daemon that has something for every panel of the dashboard: counters of all groups, and a zone from a primary.
#[test]
fn the_dashboard_asks_for_what_there_is() {
    let primary = Daemon::start(
        "millrace.setStateDirectory('state')\n\
         millrace.addZone{name='example.net.', file='zone', acl={{action='transfer', address='127.0.0.0/8'}}}\n",
    );
    primary.ask("ns.example.net.", qtype::A);
    let secondary = Daemon::start(&format!(
        "millrace.setResponseRateLimit{{rate=1000}}\nmillrace.setStateDirectory('state')\n\
         millrace.addZone{{name='example.net.', primaries='{}'}}\n",
        primary.dns
    ));
    for name in ["ns.example.com.", "ns.example.org."] {
        secondary.ask(name, qtype::A);
    }
    let said = secondary.say(&["zone", "retransfer", "example.net."]);
    let until = Instant::now() + Duration::from_secs(60);
    let mut metrics = secondary.metrics();
    // What a worker counts it shows after its batch, which is after its answer.
    while !shows_all(&metrics) {
        assert!(Instant::now() < until, "{said}\n{metrics}");
        metrics = secondary.metrics();
    }
    grafana(&metrics);
}

/// Whether there are rows of what has none at first.
fn shows_all(metrics: &str) -> bool {
    let last = [
        "zone_expire_seconds",
        "zone_request_protocol",
        "zones_reply_size",
    ];
    last.iter()
        .all(|name| metrics.contains(&format!("\nmillrace_{name}{{")))
}

/// Labels that Prometheus puts to every row.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];

/// The dashboard is JSON; every metric that it names is there, and has each label that it is chosen, summed or called by. How
/// zones are it shows whole.
fn grafana(metrics: &str) {
    let text = fs::read_to_string(packaging("grafana/millrace-zones.json")).expect("a dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut shown = BTreeSet::new();
    for target in of_lists(&dashboard["panels"], "targets") {
        let expression = target["expr"].as_str().expect("an expression");
        let legend = target["legendFormat"].as_str().expect("a legend");
        let labels = summed_by(expression);
        for label in between(legend, "{{", "}}") {
            assert!(labels.contains(&label), "{expression} has no {label}");
        }
        let chosen = between(expression, "{", "}").into_iter();
        let chosen = chosen.flat_map(|labels| labels.split(','));
        let chosen = chosen.filter_map(|label| Some(label.split_once('=')?.0));
        let labels: Vec<&str> = labels.into_iter().chain(chosen).collect();
        let names = names(expression);
        assert!(!names.is_empty(), "{expression} asks for nothing");
        for name in names {
            has_labels(metrics, name, &labels);
            shown.insert(name.to_owned());
        }
    }
    let variables = &dashboard["templating"]["list"];
    for variable in variables.as_array().expect("a list") {
        let definition = variable["definition"].as_str().unwrap_or_default();
        for name in names(definition) {
            has_labels(metrics, name, &OF_PROMETHEUS);
        }
    }
    let types = metrics.lines();
    let types = types.filter_map(|line| line.strip_prefix("# TYPE "));
    let gauges = types.filter_map(|line| line.strip_suffix(" gauge"));
    for gauge in gauges.filter(|name| name.starts_with("millrace_zone_")) {
        assert!(shown.contains(gauge), "{gauge} is in no panel");
    }
}

/// The entries of the list `name` of each of these.
fn of_lists<'d>(
    all: &'d serde_json::Value,
    name: &'d str,
) -> impl Iterator<Item = &'d serde_json::Value> {
    let all = all.as_array().expect("a list").iter();
    all.flat_map(move |one| one[name].as_array().expect("a list"))
}

/// The metrics that an expression names.
fn names(expression: &str) -> Vec<&str> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let words = expression.split(|character: char| !is_word(character));
    words.filter(|word| word.starts_with("millrace_")).collect()
}

/// A row of this name has all of these labels, but for Prometheus' own.
fn has_labels(metrics: &str, name: &str, labels: &[&str]) {
    let kind = format!("# TYPE {name} ");
    assert!(metrics.contains(&kind), "{name} is not in /metrics");
    let mut rows = metrics.lines().filter_map(|line| {
        let behind = line.strip_prefix(name)?;
        behind.starts_with(['{', ' ']).then_some(behind)
    });
    let row = rows.next().unwrap_or_else(|| panic!("{name} has no row"));
    for label in labels.iter().filter(|label| !OF_PROMETHEUS.contains(label)) {
        let has_it = ["{", ","].map(|before| row.contains(&format!("{before}{label}=\"")));
        assert!(has_it.contains(&true), "{name}{row} has no {label}");
    }
}

/// The labels of each `by (label, …)`.
fn summed_by(expression: &str) -> Vec<&str> {
    let lists = between(expression, " by (", ")").into_iter();
    lists
        .flat_map(|list| list.split(',').map(str::trim))
        .collect()
}

/// What stands between each `open` and the `close` behind it.
fn between<'t>(text: &'t str, open: &str, close: &str) -> Vec<&'t str> {
    let pieces = text.split(open).skip(1);
    pieces
        .filter_map(|piece| Some(piece.split_once(close)?.0))
        .collect()
}
