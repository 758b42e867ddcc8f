//! A lab for the generator: a namespace for it, one for a server that answers as a script says.
#![allow(unreachable_pub)] // shared by several tests, each a crate of its own

mod responder;
mod talking;

pub use responder::{Deed, Responder};
pub use talking::Talking;

use std::io::Read;
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use testnet::lab::{Lab, SERVER_V4, Topology};
use testnet::namespace::Namespace;

/// Ports that floodgate sends from unless told otherwise.
pub const PORTS: std::ops::RangeInclusive<u16> = 16384..=20479;

/// A lab of two namespaces, joined by a veth pair of two queues. `None`, and a line, without root.
pub fn lab() -> Option<Lab> {
    lab_of(Topology::OneInterface)
}

/// The same, joined in another way.
pub fn lab_of(topology: Topology) -> Option<Lab> {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: network namespaces and AF_XDP need root");
        return None;
    }
    Some(Lab::up_beside_others("flood-test", topology).unwrap())
}

/// A file of so many queries, all of them different.
pub fn queries(count: usize) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for number in 0..count {
        std::io::Write::write_all(
            &mut file,
            format!("name{number}.flood.example A\n").as_bytes(),
        )
        .unwrap();
    }
    file
}

/// Starts floodgate in a namespace.
pub fn start(namespace: &Namespace, line: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodgate"));
    command
        .args(line.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    namespace.spawn(&mut command, None).unwrap()
}

/// What a program has printed, and whether it succeeded.
#[derive(Debug)]
pub struct Printed {
    pub out: String,
    pub complaint: String,
    pub success: bool,
}

/// Waits for a program's end.
pub fn end(mut child: Child) -> Printed {
    let mut printed = Printed {
        out: String::new(),
        complaint: String::new(),
        success: false,
    };
    let mut out = child.stdout.take().unwrap();
    out.read_to_string(&mut printed.out).unwrap();
    let mut complaint = child.stderr.take().unwrap();
    complaint.read_to_string(&mut printed.complaint).unwrap();
    printed.success = child.wait().unwrap().success();
    printed
}

/// The last line of JSON output.
pub fn summary(printed: &Printed) -> serde_json::Value {
    assert!(printed.success, "{printed:?}");
    let line = printed.out.lines().last().expect("a line at least");
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// A kernel socket on the server's port 53, so that the server's kernel does not answer by ICMP.
pub fn quiet_port(lab: &Lab, address: IpAddr) -> UdpSocket {
    let bound = lab.server().run(|| UdpSocket::bind((address, 53)));
    bound.unwrap().unwrap()
}

/// The program on an interface, as `ip link` shows it; empty where there is none.
pub fn program_on(namespace: &Namespace, interface: &str) -> String {
    let shown = Command::new("ip")
        .args(["-n", namespace.name(), "-d", "link", "show", interface])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    text.lines()
        .filter(|line| line.contains("prog/xdp"))
        .collect()
}

/// The lab's server.
pub const SERVER: IpAddr = SERVER_V4;
