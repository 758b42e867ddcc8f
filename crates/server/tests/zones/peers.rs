//! What EDNS and class CHAOS get from us is what they get from Knot DNS: options, response codes, flags. And cookies of
//! either are believed by the other, as by any two servers of one address (RFC 9018).

use crate::daemon::{Daemon, ZONE, ask, query};
use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use testnet::loopback::own_address;
use wire::codes::{edns_option, opcode, qtype, rcode};
use wire::message::{Header, parse_response};

const SECRET: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf";

/// knotd; it ends with this.
struct Knot {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Knot {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `None` where it is not installed. `module`: what is loaded for all zones.
fn knot(module: &str) -> Option<Knot> {
    let folder = tempfile::tempdir().expect("a folder");
    let address = own_address();
    let path = folder.path().display();
    let module = match module {
        "" => String::new(),
        module => format!("    global-module: [{module}]\n"),
    };
    let text = format!(
        "server:\n    rundir: {path}\n    listen: {}@{}\n    identity: \"ns1\"\n    version: \"one\"\n    nsid: \"ns1\"\n\
         database:\n    storage: {path}\nmod-cookies:\n  - id: shared\n    secret: 0x{SECRET}\n\
         template:\n  - id: default\n    storage: {path}\n{module}\
         zone:\n  - domain: example.com\n    file: zone\n  - domain: broken.example\n",
        address.ip(),
        address.port()
    );
    fs::write(folder.path().join("knot.conf"), text).expect("a file");
    let zone = format!("$ORIGIN example.com.\n{ZONE}");
    fs::write(folder.path().join("zone"), zone).expect("a file");
    let process = Command::new("knotd")
        .arg("--config")
        .arg(folder.path().join("knot.conf"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(process) = process else {
        println!("SKIP: knotd is not installed");
        return None;
    };
    Some(Knot {
        process,
        address,
        _folder: folder,
    })
}

fn millrace() -> Daemon {
    Daemon::start(&format!(
        "setServerID('ns1')\nmillrace.setVersion('one')\nmillrace.setCookies{{secrets={{'{SECRET}'}}}}\n\
         millrace.addZone{{name='broken.example.', file='nowhere'}}\n"
    ))
}

/// A query with an OPT record of this version and these options.
fn with_opt(name: &str, qtype: u16, version: u8, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut message = query(name, qtype);
    message[11] = 1;
    message.extend([0, 0, 41, 0x04, 0xd0, 0, version, 0, 0]);
    let length: usize = options.iter().map(|(_, value)| 4 + value.len()).sum();
    message.extend((length as u16).to_be_bytes());
    for (code, value) in options {
        message.extend(code.to_be_bytes());
        message.extend((value.len() as u16).to_be_bytes());
        message.extend(*value);
    }
    message
}

/// RCODE, flags, records by section, and options by code.
type Said = (u16, u16, [u16; 2], Vec<(u16, Vec<u8>)>);

fn said(server: SocketAddr, query: &[u8]) -> Said {
    let answer = ask(server, query);
    let parts = parse_response(&answer).expect("an answer");
    let options = parts.edns.iter().flat_map(|edns| edns.options(&answer));
    let mut options: Vec<_> = options
        .map(|option| (option.code, option.value.to_vec()))
        .collect();
    options.sort();
    let flags = Header::read(&answer).expect("a header").flags() & 0xfff0;
    (
        parts.rcode,
        flags,
        [parts.answer_count, parts.authority_count],
        options,
    )
}

fn chaos(name: &str, qtype: u16) -> Vec<u8> {
    let mut message = query(name, qtype);
    let class = message.len() - 1;
    message[class] = 3;
    message
}

#[test]
fn options_and_chaos_names_are_answered_as_knot_answers_them() {
    let Some(knot) = knot("") else { return };
    let ours = millrace();
    let mut status = query("ns.example.com.", qtype::A);
    status[2] = opcode::STATUS << 3;
    let asked = [
        with_opt("ns.example.com.", qtype::A, 0, &[]),
        with_opt("ns.example.com.", qtype::A, 0, &[(edns_option::NSID, b"")]),
        with_opt("ns.example.com.", qtype::A, 1, &[]),
        with_opt("example.com.", qtype::SOA, 0, &[(edns_option::EXPIRE, b"")]),
        with_opt("nx.example.com.", qtype::A, 0, &[(65_001, b"whatever")]),
        with_opt("www.example.net.", qtype::A, 0, &[(edns_option::NSID, b"")]),
        with_opt("broken.example.", qtype::SOA, 0, &[]),
        chaos("id.server.", qtype::TXT),
        chaos("hostname.bind.", qtype::TXT),
        chaos("version.server.", qtype::TXT),
        chaos("Version.Bind.", qtype::TXT),
        chaos("version.bind.", qtype::A),
        chaos("else.bind.", qtype::TXT),
        status,
    ];
    for query in asked {
        assert_eq!(
            said(ours.dns, &query),
            said(knot.address, &query),
            "{query:02x?}"
        );
    }
}

#[test]
fn cookies_of_either_are_believed_by_the_other() {
    let Some(knot) = knot("mod-cookies/shared") else {
        return;
    };
    let ours = millrace();
    let cookie = |server, cookie: &[u8]| {
        let query = with_opt(
            "ns.example.com.",
            qtype::A,
            0,
            &[(edns_option::COOKIE, cookie)],
        );
        let (code, _, _, options) = said(server, &query);
        (code, options[0].1.clone())
    };
    // Knot answers only those who have one; we answer, and give one.
    let (code, theirs) = cookie(knot.address, b"01234567");
    assert_eq!(code, rcode::BADCOOKIE);
    assert_eq!(
        cookie(ours.dns, &theirs),
        (rcode::NOERROR, theirs),
        "fresh, and so kept"
    );
    let (code, own) = cookie(ours.dns, b"76543210");
    assert_eq!(code, rcode::NOERROR);
    assert_eq!(cookie(knot.address, &own).0, rcode::NOERROR);
}
