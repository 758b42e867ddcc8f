//! What EDNS asks for, to us and to knotd, nsd and named: codes, flags, truncation and options are the same. Where the three
//! differ among themselves, the RFC's sentence stands beside the case.

use crate::daemon::{Daemon, ask, ask_stream, query};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testnet::loopback::{own_address, own_port};
use wire::codes::{edns_option, qtype, rcode};
use wire::message::{Header, parse_response};

/// A server of `example.com.`; it ends with this.
struct Peer {
    name: &'static str,
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

type Configure = fn(&Path, SocketAddr) -> String;

const PEERS: [(&str, &[&str], Configure); 3] = [
    ("knotd", &["-c"], knot),
    ("nsd", &["-d", "-c"], nsd),
    ("named", &["-g", "-n", "1", "-c"], named),
];

fn knot(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "server:\n    rundir: {folder}\n    listen: {}@{}\n    nsid: \"ns1\"\n\
         database:\n    storage: {folder}\nzone:\n  - domain: example.com\n    storage: {folder}\n    file: zone\n",
        address.ip(),
        address.port()
    )
}

fn nsd(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "server:\n  ip-address: {}@{}\n  username: \"\"\n  zonesdir: \"{folder}\"\n  database: \"\"\n  pidfile: \"\"\n\
         \x20 xfrdfile: \"{folder}/xfrd\"\n  zonelistfile: \"{folder}/list\"\n  xfrdir: \"{folder}\"\n  server-count: 1\n  nsid: \"ascii_ns1\"\n\
         remote-control:\n  control-enable: no\nzone:\n  name: example.com\n  zonefile: zone\n",
        address.ip(),
        address.port()
    )
}

fn named(folder: &Path, address: SocketAddr) -> String {
    format!(
        "controls {{ }};\noptions {{ directory \"{}\"; listen-on port {} {{ {}; }}; listen-on-v6 {{ none; }}; \
         pid-file none; session-keyfile none; recursion no; notify no; server-id \"ns1\"; answer-cookie no; \
         minimal-responses yes; }};\n\
         zone example.com {{ type primary; file \"zone\"; }};\n",
        folder.display(),
        address.port(),
        address.ip()
    )
}

impl Peer {
    /// `None` where it is not installed.
    fn start((name, words, configure): (&'static str, &[&str], Configure)) -> Option<Peer> {
        let folder = tempfile::tempdir().expect("a folder");
        // named listens to addresses of interfaces alone.
        let address = match name {
            "named" => SocketAddr::from(([127, 0, 0, 1], own_port())),
            _ => own_address(),
        };
        fs::write(folder.path().join("zone"), zone()).expect("a file");
        let file = folder.path().join("configuration");
        fs::write(&file, configure(folder.path(), address)).expect("a file");
        let process = Command::new(Path::new("/usr/sbin").join(name))
            .args(words)
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            println!("SKIP: {name} is not installed");
            return None;
        };
        let peer = Peer {
            name,
            process,
            address,
            _folder: folder,
        };
        peer.await_zone();
        Some(peer)
    }

    /// Until it answers with its zone: some listen before they have read it, and answer SERVFAIL until then.
    fn await_zone(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while said(&ask(self.address, &PLAIN.message())).0 != rcode::NOERROR {
            assert!(Instant::now() < until, "{} has no zone", self.name);
        }
    }
}

/// Answers of 400, of 1,000 and of 3,000 octets.
fn zone() -> String {
    let mut zone = format!("$ORIGIN example.com.\n{}", crate::daemon::ZONE);
    for (name, count) in [("small", 3), ("medium", 8), ("large", 25)] {
        let text = "x".repeat(100);
        for number in 0..count {
            let _ = writeln!(zone, "{name} 300 TXT \"{number:02}{text}\"");
        }
    }
    zone
}

/// A query with an OPT record of this owner, payload size, version, flag DO and options.
struct Asked {
    name: &'static str,
    kind: u16,
    owner: &'static [u8],
    size: u16,
    version: u8,
    dnssec_ok: bool,
    options: &'static [(u16, &'static [u8])],
    records: u8,
}

const PLAIN: Asked = Asked {
    name: "ns",
    kind: qtype::A,
    owner: &[0],
    size: 1_232,
    version: 0,
    dnssec_ok: false,
    options: &[],
    records: 1,
};

impl Asked {
    fn message(&self) -> Vec<u8> {
        let mut message = query(&format!("{}.example.com.", self.name), self.kind);
        message[11] = self.records;
        for _ in 0..self.records {
            message.extend(self.owner);
            message.extend(qtype::OPT.to_be_bytes());
            message.extend(self.size.to_be_bytes());
            message.extend([0, self.version, u8::from(self.dnssec_ok) << 7, 0]);
            let length: usize = self.options.iter().map(|(_, value)| 4 + value.len()).sum();
            message.extend((length as u16).to_be_bytes());
            for (code, value) in self.options {
                message.extend(code.to_be_bytes());
                message.extend((value.len() as u16).to_be_bytes());
                message.extend(*value);
            }
        }
        message
    }
}

/// What is asked, over UDP and over TCP.
fn cases() -> Vec<Asked> {
    let sized = |name, size| Asked {
        name,
        kind: qtype::TXT,
        size,
        ..PLAIN
    };
    let mut cases = vec![
        PLAIN,
        Asked {
            records: 0,
            ..PLAIN
        },
        Asked {
            dnssec_ok: true,
            ..PLAIN
        },
        Asked {
            name: "nx",
            dnssec_ok: true,
            ..PLAIN
        },
        Asked {
            options: &[(edns_option::NSID, b"")],
            ..PLAIN
        },
        Asked {
            version: 1,
            ..PLAIN
        },
        Asked {
            version: 255,
            ..PLAIN
        },
        Asked {
            options: &[(65_001, b"whatever")],
            ..PLAIN
        },
        Asked {
            options: &[(65_001, b""), (edns_option::NSID, b"")],
            ..PLAIN
        },
        // RFC 6891 §6.1.1: "If a query message with more than one OPT RR is received, a FORMERR (RCODE=1) MUST be returned."
        Asked {
            records: 2,
            ..PLAIN
        },
    ];
    // RFC 6891 §6.2.5: "Values lower than 512 MUST be treated as equal to 512."
    for name in ["small", "medium", "large"] {
        cases.extend([0, 511, 512, 1_200, 1_232, 4_096, 65_535].map(|size| sized(name, size)));
    }
    cases
}

/// RCODE, flags AA and TC, records of the answer, and options by code (`None`: no OPT record) but extended errors, which
/// each server words in its own way.
type Said = (u16, bool, bool, u16, Option<Vec<(u16, Vec<u8>)>>);

fn said(answer: &[u8]) -> Said {
    let parts = parse_response(answer).expect("an answer");
    let header = Header::read(answer).expect("a header");
    let options = parts.edns.map(|edns| {
        let options = edns.options(answer);
        let said = options.filter(|option| option.code != edns_option::EXTENDEDERROR);
        said.map(|option| (option.code, option.value.to_vec()))
            .collect()
    });
    // Servers differ in how many of the records they leave in a truncated answer (RFC 2181 §9 allows all of it).
    let count = if header.tc() { 0 } else { parts.answer_count };
    (parts.rcode, header.aa(), header.tc(), count, options)
}

/// A difference that is theirs.
fn is_known(peer: &str, asked: &Asked, ours: &Said, theirs: &Said) -> bool {
    match peer {
        // RFC 6891 §6.1.3: BADVERS is the answer, whatever the rest; whether AA is set is said nowhere.
        _ if asked.version > 0 => ours.0 == rcode::BADVERS && theirs.0 == rcode::BADVERS,
        _ if asked.records > 1 => ours.0 == rcode::FORMERR && theirs.0 == rcode::FORMERR,
        _ => false,
    }
}

#[test]
fn edns_is_answered_as_knotd_nsd_and_named_answer_it() {
    let ours = Daemon::start_with("setServerID('ns1')\n", &[("zone", &zone())]);
    for peer in PEERS.into_iter().filter_map(Peer::start) {
        for asked in cases() {
            let message = asked.message();
            for (over, ask) in [
                ("UDP", ask as fn(SocketAddr, &[u8]) -> Vec<u8>),
                ("TCP", ask_stream),
            ] {
                let (mine, theirs) = (
                    said(&ask(ours.dns, &message)),
                    said(&ask(peer.address, &message)),
                );
                assert!(
                    mine == theirs || is_known(peer.name, &asked, &mine, &theirs),
                    "{} over {over}, {} {} size {} version {} options {:?} OPT records {}:\nours {mine:?}\ntheirs {theirs:?}",
                    peer.name,
                    asked.name,
                    asked.kind,
                    asked.size,
                    asked.version,
                    asked.options,
                    asked.records
                );
            }
        }
    }
}
