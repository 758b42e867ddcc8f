//! Who has the sockets that keep others from an address and port, for an operator whose service cannot have it.

use nix::unistd::{Uid, User, geteuid};
use std::fs::{self, DirEntry};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Sockets that are told of, at most: a group that shares its port may have hundreds.
const SHOWN: usize = 4;

/// The tables of proc_pid_net(5), and what their sockets speak.
const TABLES: [(&str, &str); 4] = [
    ("udp", "UDP"),
    ("tcp", "TCP"),
    ("udp6", "UDP"),
    ("tcp6", "TCP"),
];

/// The state of a TCP socket that listens.
const LISTENS: &str = "0A";

/// A socket of these tables.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    address: SocketAddr,
    user: u32,
    inode: u64,
}

/// Sockets that keep others from `address`, and whose they are, in words. Processes are named where this one may see them: as
/// root.
pub fn of(address: SocketAddr) -> String {
    let mut words = Vec::new();
    for (table, protocol) in TABLES {
        let text = fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        let held = text.lines().filter_map(|line| parsed(line, protocol));
        let held = held.filter(|held| keeps_from(held.address, address));
        let told = |held: Held| format!("{protocol} {} of {}", held.address, whose(&held));
        words.extend(held.take(SHOWN).map(told));
    }
    words.dedup();
    match words.is_empty() {
        true => "somebody who cannot be seen".to_owned(),
        false => words.join(", "),
    }
}

/// One line of a table. `None`: it is the heading, or a TCP connection.
fn parsed(line: &str, protocol: &str) -> Option<Held> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if protocol == "TCP" && *fields.get(3)? != LISTENS {
        return None;
    }
    Some(Held {
        address: address_in(fields.get(1)?)?,
        user: fields.get(7)?.parse().ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// Words of 32 bits as this machine has them, in which the octets are in network order, and a port.
fn address_in(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let octets = ip.as_bytes().chunks(8).map(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    });
    let octets = octets.collect::<Option<Vec<[u8; 4]>>>()?.concat();
    let ip = match <[u8; 4]>::try_from(octets.as_slice()) {
        Ok(v4) => IpAddr::from(v4),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(octets).ok()?),
    };
    Some(SocketAddr::new(ip, port))
}

/// A wildcard has every address; that of IPv6 may have those of IPv4 too (ipv6(7), IPV6_V6ONLY).
fn keeps_from(held: SocketAddr, wanted: SocketAddr) -> bool {
    let is_wild = |all: SocketAddr, one: SocketAddr| {
        all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4())
    };
    let is_same = held.ip() == wanted.ip();
    held.port() == wanted.port() && (is_same || is_wild(held, wanted) || is_wild(wanted, held))
}

fn whose(held: &Held) -> String {
    if geteuid().is_root()
        && let Some(process) = process_with(held.inode)
    {
        return process;
    }
    let user = User::from_uid(Uid::from_raw(held.user)).ok().flatten();
    match user {
        Some(user) => format!("user {}", user.name),
        None => format!("user {}", held.user),
    }
}

/// The first process that has this socket.
fn process_with(inode: u64) -> Option<String> {
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let number = |entry: DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut numbers = processes.filter_map(number);
    let number = numbers.find(|number| has(*number, &socket))?;
    let name = fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
    Some(format!("process {number} ({})", name.trim()))
}

fn has(process: u32, socket: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else {
        return false;
    };
    let mut targets = descriptors
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| target == Path::new(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use testnet::loopback::own_port;

    #[test]
    fn a_line_of_a_table_is_a_socket_and_its_owner() {
        // What the kernel writes on a machine of this order of octets.
        let word = u32::from_ne_bytes([127, 0, 0, 53]);
        let rest =
            "00000000:00000000 00:00000000 00000000   101        0 12345 2 0000000000000000 0";
        let line = format!("  12: {word:08X}:0035 00000000:0000 07 {rest}");
        let held = Held {
            address: SocketAddr::from(([127, 0, 0, 53], 53)),
            user: 101,
            inode: 12_345,
        };
        assert_eq!(parsed(&line, "UDP"), Some(held));
        assert_eq!(parsed(&line, "TCP"), None, "it does not listen");
        let heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!(parsed(heading, "UDP"), None);
        let last = u32::from_ne_bytes([0, 0, 0, 1]);
        let loopback = address_in(&format!("{}{last:08X}:0035", "0".repeat(24)));
        assert_eq!(loopback, Some("[::1]:53".parse().expect("an address")));
    }

    #[test]
    fn wildcards_keep_others_from_addresses_and_addresses_from_wildcards() {
        let keeps = |held: &str, wanted: &str| {
            let [held, wanted] = [held, wanted].map(|text| text.parse().expect("an address"));
            keeps_from(held, wanted)
        };
        assert!(keeps("192.0.2.1:53", "192.0.2.1:53"));
        assert!(keeps("0.0.0.0:53", "192.0.2.1:53"));
        assert!(keeps("[::]:53", "192.0.2.1:53"));
        assert!(keeps("192.0.2.1:53", "0.0.0.0:53"));
        assert!(!keeps("0.0.0.0:53", "[2001:db8::1]:53"));
        assert!(!keeps("192.0.2.1:5353", "192.0.2.1:53"));
        assert!(!keeps("192.0.2.2:53", "192.0.2.1:53"));
    }

    #[test]
    fn who_has_an_address_is_named() {
        let address = SocketAddr::from(([127, 0, 0, 1], own_port()));
        let _udp = UdpSocket::bind(address).expect("a socket");
        let _tcp = TcpListener::bind(address).expect("a socket");
        let said = of(address);
        let own = match geteuid().is_root() {
            true => format!("process {} (", std::process::id()),
            false => "user ".to_owned(),
        };
        for protocol in ["UDP", "TCP"] {
            let expected = format!("{protocol} {address} of {own}");
            assert!(said.contains(&expected), "{said}");
        }
        let free = SocketAddr::from(([127, 0, 0, 1], own_port()));
        assert_eq!(of(free), "somebody who cannot be seen");
    }
}
