//! The Rust half of `bpf/shared.h`: keys, values and verdicts that the kernel program and we agree on.

use std::net::{IpAddr, SocketAddr};

use crate::sys::interface::jiffy_nanoseconds;

/// Number of the layout of the kernel program's maps; rises with every change.
pub const LAYOUT: u32 = 2;

/// RX queues per interface that can have a socket.
pub(crate) const QUEUES: u32 = 256;

/// Our addresses towards backends, per interface.
pub(crate) const LOCALS: u32 = 16;

/// Index of one bitmap more: the ports that any destination has.
pub(crate) const SERVED: u32 = LOCALS;

/// Octets of what each CPU has for itself; its verdict counters come first.
pub(crate) const CPU_LENGTH: usize = REASONS * 8 + 8 * (24 + 44);

/// Octets of `struct device`: MAC address and two unused, then the generation.
pub(crate) const DEVICE_LENGTH: usize = 16;
pub(crate) const GENERATION_OFFSET: usize = 8;

/// Workers whose kernel sockets are spread over.
pub(crate) const WORKERS: u32 = 256;

/// An owner that shows no sign of life for longer than this is stalled.
const STALLED_AFTER_NANOSECONDS: u64 = 100_000_000;
/// Time between the frames that ask a stalled owner for a sign of life.
const PROBE_EVERY_NANOSECONDS: u64 = 1_000_000_000;

/// Octets of one address's port bitmap: a bit per port.
pub(crate) const PORTS_LENGTH: usize = 65_536 / 8;

/// Octets of one queue's heartbeat: a cache line. The count comes first, then what was passed without one.
pub(crate) const HEARTBEAT_LENGTH: usize = 64;
pub(crate) const PASSED_OFFSET: usize = 8;

/// Octets of the longest frame that is taken: a chunk less the headroom that XDP keeps.
pub const ROOM: usize = 1792;

/// Number of verdicts.
pub const REASONS: usize = 17;

/// Why the kernel program took a frame or passed it on. The first three are redirects to a socket, all others PASS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// To an address and port that we serve.
    TakeQuery = 0,
    /// From a backend to one of our ports.
    TakeAnswer = 1,
    /// Once a second to an owner that seems stalled: it may only have been idle.
    TakeProbe = 2,
    /// Ends inside a header.
    PassShort = 3,
    /// To another station, a group or everybody.
    PassMac = 4,
    /// In more than one buffer.
    PassBuffers = 5,
    /// Not IP: ARP, VLAN tags and the like.
    PassProtocol = 6,
    /// IPv4 options or a malformed first octet.
    PassOptions = 7,
    /// IPv4 fragment.
    PassFragment = 8,
    /// Not UDP; for IPv6 also any extension header.
    PassTransport = 9,
    /// Lengths of IP, UDP and frame contradict each other.
    PassLength = 10,
    /// An address and port that are not ours.
    PassOther = 11,
    /// From a backend, to a port that is not open.
    PassPort = 12,
    /// Ours, but less than a DNS header.
    PassDns = 13,
    /// Ours, but longer than a chunk's room.
    PassLarge = 14,
    /// Ours, but no socket on this queue.
    PassSocket = 15,
    /// Ours, but the socket's owner shows no life.
    PassStalled = 16,
}

impl Reason {
    /// All of them, by number.
    pub const ALL: [Reason; REASONS] = [
        Reason::TakeQuery,
        Reason::TakeAnswer,
        Reason::TakeProbe,
        Reason::PassShort,
        Reason::PassMac,
        Reason::PassBuffers,
        Reason::PassProtocol,
        Reason::PassOptions,
        Reason::PassFragment,
        Reason::PassTransport,
        Reason::PassLength,
        Reason::PassOther,
        Reason::PassPort,
        Reason::PassDns,
        Reason::PassLarge,
        Reason::PassSocket,
        Reason::PassStalled,
    ];

    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Reason::TakeQuery => "take-query",
            Reason::TakeAnswer => "take-answer",
            Reason::TakeProbe => "take-probe",
            Reason::PassShort => "pass-short",
            Reason::PassMac => "pass-mac",
            Reason::PassBuffers => "pass-buffers",
            Reason::PassProtocol => "pass-protocol",
            Reason::PassOptions => "pass-options",
            Reason::PassFragment => "pass-fragment",
            Reason::PassTransport => "pass-transport",
            Reason::PassLength => "pass-length",
            Reason::PassOther => "pass-other",
            Reason::PassPort => "pass-port",
            Reason::PassDns => "pass-dns",
            Reason::PassLarge => "pass-large",
            Reason::PassSocket => "pass-socket",
            Reason::PassStalled => "pass-stalled",
        }
    }
}

/// `struct destination`: address, port, version.
pub(crate) fn destination(served: SocketAddr) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&address(served.ip()));
    key[16..18].copy_from_slice(&served.port().to_be_bytes());
    key[18..].copy_from_slice(&version(served.ip()).to_ne_bytes());
    key
}

/// `struct backend`: our address, the backend's, its port, version.
pub(crate) fn backend(local: IpAddr, remote: SocketAddr) -> [u8; 36] {
    let mut key = [0; 36];
    key[..16].copy_from_slice(&address(local));
    key[16..32].copy_from_slice(&address(remote.ip()));
    key[32..34].copy_from_slice(&remote.port().to_be_bytes());
    key[34..].copy_from_slice(&version(remote.ip()).to_ne_bytes());
    key
}

/// The key of dnsdist's destination maps: address, port in network order, two zeros; 8 octets for IPv4, 20 for IPv6.
pub(crate) fn foreign_destination(served: SocketAddr) -> Vec<u8> {
    let mut key = match served.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    key.extend(served.port().to_be_bytes());
    key.extend([0, 0]);
    key
}

/// IPv4 takes the first four octets, the rest is zero.
pub(crate) fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
        IpAddr::V6(address) => address.octets(),
    }
}

fn version(address: IpAddr) -> u16 {
    if address.is_ipv4() { 4 } else { 6 }
}

/// `struct settings`: constants that the program is verified with.
pub(crate) struct Settings {
    pub(crate) stall_jiffies: u64,
    pub(crate) probe_jiffies: u64,
    pub(crate) has_buffers: bool,
    /// Workers to spread datagrams over; the steering program has no use for it.
    pub(crate) workers: u32,
}

impl Settings {
    /// The times in jiffies of this kernel.
    pub(crate) fn new(has_buffers: bool, workers: u32) -> Settings {
        let jiffy = jiffy_nanoseconds();
        Settings {
            stall_jiffies: STALLED_AFTER_NANOSECONDS.div_ceil(jiffy),
            probe_jiffies: PROBE_EVERY_NANOSECONDS.div_ceil(jiffy),
            has_buffers,
            workers,
        }
    }

    pub(crate) fn to_bytes(&self) -> [u8; 24] {
        let mut octets = [0; 24];
        octets[..8].copy_from_slice(&self.stall_jiffies.to_ne_bytes());
        octets[8..16].copy_from_slice(&self.probe_jiffies.to_ne_bytes());
        octets[16..20].copy_from_slice(&u32::from(self.has_buffers).to_ne_bytes());
        octets[20..].copy_from_slice(&self.workers.to_ne_bytes());
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: &str = include_str!("../../../bpf/shared.h");

    /// The number after `#define NAME`.
    fn defined(name: &str) -> u64 {
        let line = SHARED
            .lines()
            .find(|line| line.starts_with(&format!("#define {name} ")));
        let line = line.unwrap_or_else(|| panic!("shared.h defines no {name}"));
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    }

    #[test]
    fn sizes_are_those_of_the_kernel_half() {
        assert_eq!(defined("LAYOUT"), u64::from(LAYOUT));
        assert_eq!(defined("QUEUES"), u64::from(QUEUES));
        assert_eq!(defined("LOCALS"), u64::from(LOCALS));
        assert_eq!(defined("WORKERS"), u64::from(WORKERS));
        assert_eq!(defined("ROOM"), ROOM as u64);
        assert_eq!(ROOM, crate::CHUNK - 256);
    }

    #[test]
    fn verdicts_have_the_names_and_numbers_of_the_kernel_half() {
        for reason in Reason::ALL {
            let name = reason.name().replace('-', "_").to_uppercase();
            let line = format!("\t{name} = {},", reason as u32);
            assert!(SHARED.contains(&line), "shared.h has no line {line:?}");
        }
        assert!(SHARED.contains(&format!("REASONS = {REASONS}\n")));
    }

    #[test]
    fn the_table_of_the_kernel_half_has_every_verdict_once() {
        let page = include_str!("../../../bpf/README.md");
        let rows = page.lines().filter(|line| line.starts_with("| "));
        let counters = rows.filter_map(|row| row.rsplit('`').nth(1));
        let is_verdict = |name: &&str| name.starts_with("take-") || name.starts_with("pass-");
        let mut printed: Vec<&str> = counters.filter(is_verdict).collect();
        let mut known = Reason::ALL.map(Reason::name);
        printed.sort_unstable();
        known.sort_unstable();
        assert_eq!(printed, known);
    }

    #[test]
    fn an_ipv4_key_has_address_port_and_version() {
        let key = destination("192.0.2.1:53".parse().unwrap());
        assert_eq!(key[..6], [192, 0, 2, 1, 0, 0]);
        assert_eq!(key[16..18], [0, 53]);
        assert_eq!(u16::from_ne_bytes([key[18], key[19]]), 4);
    }
}
