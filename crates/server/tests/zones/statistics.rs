//! Statistics of zones as scripts and graphs get them: packaging/knotc, packaging/munin/millrace_zones and
//! packaging/grafana/millrace-zones.json, against a daemon on loopback.

use crate::daemon::Daemon;
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
    grafana(&metrics);
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
    for words in [
        &["zone-sign"][..],
        &["zone-purge"],
        &["zone-purge", "--"],
        &["zone-backup", "--"],
        &["zone-restore", "+backupdir"],
    ] {
        let refused = Command::new(packaging("knotc"))
            .args(words)
            .output()
            .expect("a script");
        assert!(!refused.status.success(), "{words:?}");
    }
}

/// Knot's verbs, as its scripts call them.
fn verbs(knotc: &impl Fn(&[&str]) -> String) {
    assert_eq!(knotc(&["status"]), "Running\n");
    let frozen = "example.com.: it is frozen\n";
    assert_eq!(knotc(&["-b", "zone-freeze", "example.com"]), frozen);
    let status = knotc(&["zone-status", "example.com."]);
    assert!(status.contains(", frozen; "), "{status}");
    assert_eq!(knotc(&["zone-status", "--"]).lines().count(), 2);
    let thawed = knotc(&["--timeout=5", "--mono", "zone-thaw", "-b", "--"]);
    assert_eq!(thawed.matches("nothing was held back").count(), 2);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a path of ours");
    let flushed = knotc(&["zone-flush", "example.com.", "+outdir", path]);
    assert!(flushed.contains("3 records written to"), "{flushed}");
    assert!(folder.path().join("example.com.zone").exists());
    backups(knotc, &folder.path().join("backups"));
    let soa = knotc(&["zone-read", "example.com", "@", "SOA"]);
    let expected = "[example.com.] example.com. 300 IN SOA ns.example.com. ";
    assert!(soa.starts_with(expected), "{soa}");
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
}

/// The dashboard is JSON, every metric that it names is there, and has the label that it is summed by.
fn grafana(metrics: &str) {
    let text = fs::read_to_string(packaging("grafana/millrace-zones.json")).expect("a dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let mut seen = 0;
    for target in targets {
        let expression = target["expr"].as_str().expect("an expression");
        let names =
            expression.split(|character: char| !(character.is_alphanumeric() || character == '_'));
        for name in names.filter(|name| name.starts_with("millrace_")) {
            seen += 1;
            let kind = format!("# TYPE {name} ");
            assert!(metrics.contains(&kind), "{name} is not in /metrics");
            let Some(label) = summed_by(expression) else {
                continue;
            };
            let label = format!("{label}=\"");
            let has_it = |line: &str| line.starts_with(name) && line.contains(&label);
            assert!(metrics.lines().any(has_it), "{name} has no {label}");
        }
    }
    assert!(seen >= panels.len(), "each panel asks for something");
}

/// The label of `sum by (label) (…)`.
fn summed_by(expression: &str) -> Option<&str> {
    let (_, behind) = expression.split_once(" by (")?;
    let (label, _) = behind.split_once(')')?;
    Some(label)
}
