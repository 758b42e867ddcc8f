//! Addresses of loopback that nobody else has.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

/// Below the ports that the kernel gives to clients, so that no client has it by chance.
const PORT: u16 = 5_300;

/// An address and port that no other test has, of 127.64.0.0/10: 6 bits count the calls, 16 are the process's number. (A port
/// of 127.0.0.1 that the kernel gave and that was let go again may be somebody's a moment later.)
pub fn own_address() -> SocketAddr {
    static CALLS: AtomicU8 = AtomicU8::new(0);
    let process = std::process::id().to_be_bytes();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let address = Ipv4Addr::new(127, 64 | (call & 63), process[2], process[3]);
    SocketAddr::from((address, PORT))
}

/// A port of 127.0.0.1 that no other test has, for servers that listen to the addresses of interfaces alone (named). Below those
/// that the kernel gives to clients; where another service of this machine has it already, the next one.
pub fn own_port() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let number = (std::process::id() as u16).wrapping_mul(16);
    let next = || {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        10_000 + number.wrapping_add(call) % 20_000
    };
    let is_free = |port: &u16| {
        let address = (Ipv4Addr::LOCALHOST, *port);
        TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
    };
    let mut ports = std::iter::repeat_with(next).take(1_000);
    ports.find(is_free).expect("a free port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_gives_another_and_a_server_can_have_it() {
        let addresses = [own_address(), own_address()];
        assert_ne!(addresses[0], addresses[1]);
        for address in addresses {
            let _tcp = std::net::TcpListener::bind(address).expect("nobody has it");
            let _udp = std::net::UdpSocket::bind(address).expect("nobody has it");
        }
    }
}
