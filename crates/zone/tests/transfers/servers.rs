//! knotd, nsd and named, started for one test each on a port of loopback.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use tempfile::TempDir;

/// The secret of key `k.`, which is hmac-sha256.
pub(crate) const SECRET: &str = "bWlsbHJhY2UgdHJhbnNmZXIgdGVzdCBzZWNyZXQgIQ==";

/// Keys with the same secret, each called as its algorithm is.
pub(crate) const ALGORITHMS: [&str; 6] = [
    "hmac-md5",
    "hmac-sha1",
    "hmac-sha224",
    "hmac-sha256",
    "hmac-sha384",
    "hmac-sha512",
];

/// A piece of configuration per algorithm.
fn of_all(piece: impl Fn(&str) -> String) -> String {
    ALGORITHMS.iter().map(|name| piece(name)).collect()
}

/// What the server is for the zone.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Primary,
    /// Of a primary on this port of 127.0.0.1.
    Secondary(u16),
}

/// A server that runs until this is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone by itself; both are fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port of 127.0.0.1 that no other test has, below those that the kernel gives to clients: none of them takes it while a server
/// starts.
pub(crate) fn free_port() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let number = (std::process::id() as u16).wrapping_mul(16);
    loop {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let port = 30_000 + number.wrapping_add(call) % 2_700;
        let address = (Ipv4Addr::LOCALHOST, port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return port;
        }
    }
}

/// A server to test against.
pub(crate) struct Kind {
    pub(crate) program: &'static str,
    arguments: &'static [&'static str],
    /// A part of the line it prints when it can be asked.
    ready: &'static str,
    configuration: fn(u16, Role, &Path) -> String,
}

pub(crate) const ALL: &[Kind] = &[
    Kind {
        program: "/usr/sbin/knotd",
        arguments: &["-c"],
        ready: "server started",
        configuration: knot,
    },
    Kind {
        program: "/usr/sbin/nsd",
        arguments: &["-d", "-c"],
        ready: "nsd started",
        configuration: nsd,
    },
    Kind {
        program: "/usr/sbin/named",
        arguments: &["-g", "-c"],
        ready: "running",
        configuration: named,
    },
];

impl Kind {
    /// Starts it with `zone` as the zone's file; `None` where it is not installed.
    pub(crate) fn start(&self, role: Role, zone: &str) -> Option<Server> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("example.com.zone"), zone).unwrap();
        let port = free_port();
        let file = folder.path().join("configuration");
        fs::write(&file, (self.configuration)(port, role, folder.path())).unwrap();
        let started = Command::new(self.program)
            .args(self.arguments)
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = match started {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => panic!("{}: {error}", self.program),
        };
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
            said.push_str(&line);
            said.push('\n');
            line.contains(self.ready)
        });
        assert!(is_ready, "{} is not ready:\n{said}", self.program);
        // Somebody must read on, else it blocks.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Server {
            process,
            port,
            _folder: folder,
        })
    }
}

fn knot(port: u16, role: Role, folder: &Path) -> String {
    let folder = folder.display();
    let (remote, zone) = match role {
        Role::Primary => (String::new(), String::new()),
        Role::Secondary(primary) => (
            format!("remote:\n  - id: p\n    address: 127.0.0.1@{primary}\n    key: k.\n"),
            "    master: p\n    zonefile-load: none\n".to_owned(),
        ),
    };
    let keys =
        of_all(|name| format!("  - id: {name}.\n    algorithm: {name}\n    secret: {SECRET}\n"));
    let allowed = of_all(|name| format!(", {name}."));
    format!(
        "server:\n    rundir: {folder}\n    listen: 127.0.0.1@{port}\n\
         log:\n  - target: stderr\n    any: info\n\
         database:\n    storage: {folder}\n\
         key:\n  - id: k.\n    algorithm: hmac-sha256\n    secret: {SECRET}\n{keys}{remote}\
         acl:\n  - id: a\n    address: 127.0.0.1\n    key: [k.{allowed}]\n    action: [transfer]\n  - id: n\n    address: 127.0.0.1\n    action: [notify]\n\
         zone:\n  - domain: example.com\n    storage: {folder}\n    file: example.com.zone\n    acl: [a, n]\n{zone}"
    )
}

fn nsd(port: u16, role: Role, folder: &Path) -> String {
    let folder = folder.display();
    let zone = match role {
        Role::Primary => String::new(),
        Role::Secondary(primary) => {
            format!("  request-xfr: 127.0.0.1@{primary} k.\n  allow-notify: 127.0.0.1 NOKEY\n")
        }
    };
    let file = match role {
        Role::Primary => "example.com.zone",
        Role::Secondary(_) => "secondary.zone",
    };
    let keys = of_all(|name| {
        format!("key:\n  name: {name}.\n  algorithm: {name}\n  secret: \"{SECRET}\"\n")
    });
    let allowed = of_all(|name| format!("  provide-xfr: 127.0.0.1 {name}.\n"));
    format!(
        "server:\n  ip-address: 127.0.0.1@{port}\n  username: \"\"\n  zonesdir: \"{folder}\"\n  database: \"\"\n  pidfile: \"\"\n\
         \x20 xfrdfile: \"{folder}/xfrd\"\n  zonelistfile: \"{folder}/list\"\n  xfrdir: \"{folder}\"\n  verbosity: 2\n  server-count: 1\n  xfrd-reload-timeout: 0\n\
         remote-control:\n  control-enable: no\n\
         key:\n  name: k.\n  algorithm: hmac-sha256\n  secret: \"{SECRET}\"\n\
         {keys}zone:\n  name: example.com\n  zonefile: {file}\n  provide-xfr: 127.0.0.1 k.\n{allowed}{zone}"
    )
}

fn named(port: u16, role: Role, folder: &Path) -> String {
    let folder = folder.display();
    let zone = match role {
        Role::Primary => "type primary; file \"example.com.zone\";".to_owned(),
        Role::Secondary(primary) => format!(
            "type secondary; file \"secondary.zone\"; primaries {{ 127.0.0.1 port {primary} key k.; }}; allow-notify {{ 127.0.0.1; }};"
        ),
    };
    let keys =
        of_all(|name| format!("key {name}. {{ algorithm {name}; secret \"{SECRET}\"; }};\n"));
    let allowed = of_all(|name| format!(" key {name}.;"));
    format!(
        "{keys}key k. {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n\
         controls {{ }};\n\
         options {{ directory \"{folder}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; pid-file none; session-keyfile none; recursion no; notify no; dnssec-validation no; min-refresh-time 1; }};\n\
         zone example.com {{ {zone} allow-transfer {{ key k.;{allowed} }}; }};\n"
    )
}
