//! Statistics of zones as scripts and graphs get them: packaging/knotc, packaging/munin/millrace_zones and
//! packaging/grafana/millrace-zones.json, against a daemon on loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};
use wire::codes::{class, qtype};
use wire::message::{QueryFlags, write_query};
use wire::name::NameBuf;

const ZONE: &str = "@ 300 SOA ns hostmaster 7 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n";

/// A daemon that serves a zone, and its folder; it ends with this.
struct Daemon {
    process: Child,
    folder: tempfile::TempDir,
    dns: SocketAddr,
    web: SocketAddr,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address that nobody has at this moment.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
    listener.local_addr().expect("it is bound")
}

impl Daemon {
    fn start() -> Daemon {
        let folder = tempfile::tempdir().expect("a folder");
        let (dns, web) = (free(), free());
        let text = format!(
            "addLocal('{dns}')\nsetACL({{'127.0.0.0/8'}})\nwebserver('{web}')\n\
             setWebserverConfig{{statsRequireAuthentication=false}}\n\
             millrace.addZone{{name='example.com.', file='zone', statistics=true}}\n\
             millrace.addZone{{name='example.org.', file='zone'}}\n\
             millrace.setResponseRateLimit{{rate=1000}}\n"
        );
        fs::write(folder.path().join("millrace.conf"), text).expect("a file");
        fs::write(folder.path().join("zone"), ZONE).expect("a file");
        let process = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["--supervised", "-C"])
            .arg(folder.path().join("millrace.conf"))
            .arg("--control")
            .arg(folder.path().join("control"))
            .spawn()
            .expect("the daemon starts");
        Daemon {
            process,
            folder,
            dns,
            web,
        }
    }

    fn control(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// Asks until there is an answer: the daemon may be starting. How often it asked.
    fn ask(&self, name: &str, qtype: u16) {
        let name: NameBuf = name.parse().expect("a name");
        let mut query = [0; 300];
        let question = (name.as_name(), qtype, class::IN);
        let length = write_query(&mut query, 1, question, QueryFlags::default());
        let query = &query[..length.expect("300 octets do")];
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(self.dns).expect("an address of loopback");
        let wait = Some(Duration::from_millis(200));
        socket.set_read_timeout(wait).expect("a time");
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            // Until the daemon has its socket the kernel refuses.
            let sent = socket.send(query);
            if sent.is_ok() && socket.recv(&mut [0; 1_500]).is_ok() {
                return;
            }
        }
        panic!("no answer within 20 s");
    }

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

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.web).expect("the web server listens");
        let request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
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
    let daemon = Daemon::start();
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
    grafana(&daemon.metrics());
}

fn knotc(daemon: &Daemon) {
    let control = daemon.control();
    let control = control.to_str().expect("a path of ours");
    let knotc = |words: &[&str]| daemon.script("knotc", &[&["-s", control], words].concat());
    let stats = knotc(&["stats"]);
    // A first query may have been asked twice.
    assert!(
        value(&stats, "mod-stats.request-protocol[udp4]") >= Some(4),
        "{stats}"
    );
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
    assert_eq!(
        knotc(&["zone-stats", "example.org."]),
        "",
        "it did not ask for it"
    );
    let reload = Command::new(packaging("knotc"))
        .arg("reload")
        .output()
        .expect("a script");
    assert!(!reload.status.success());
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
    assert_eq!(
        fields.iter().map(|field| value(field)).count(),
        values.lines().count()
    );
    assert!(
        fields
            .iter()
            .all(|field| config.contains(&format!("{field}.type DERIVE\n")))
    );
}

/// The dashboard is JSON, and every metric that it names is there.
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
        }
    }
    assert!(seen >= panels.len(), "each panel asks for something");
}
