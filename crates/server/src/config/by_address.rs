//! Which listener an address is of. Every frame asks, and every answer of a backend: hundreds of listeners cost a few
//! comparisons.

use super::Listener;
use std::net::{IpAddr, SocketAddr};

/// A port and an address. Without scope and flow: no listener is told apart by them.
type End = (u16, IpAddr);

/// So many are looked at one by one.
const FEW: usize = 8;

/// Listeners by port and address, with their places in the configuration.
#[derive(Debug, Clone, Default)]
pub struct ByAddress {
    /// All of them, ascending.
    exact: Vec<(End, u16)>,
    /// Those of all addresses.
    wildcards: Vec<(End, u16)>,
}

impl ByAddress {
    pub fn of(listeners: &[Listener]) -> ByAddress {
        let ends = listeners.iter().map(|listener| end(listener.address));
        let mut exact: Vec<_> = ends.zip(0..).collect();
        let is_wildcard = |((_, address), _): &(End, u16)| address.is_unspecified();
        let wildcards = exact.iter().copied().filter(is_wildcard).collect();
        exact.sort_unstable();
        // Of those that differ in their scope only, the first.
        exact.dedup_by_key(|(end, _)| *end);
        ByAddress { exact, wildcards }
    }

    /// The place of the listener that serves `destination`: as with the kernel's sockets the one with this very address, or
    /// one of all addresses of its family; at last `[::]`, whose sockets take IPv4, too.
    #[inline]
    pub fn find(&self, destination: &SocketAddr) -> Option<u16> {
        let found = match self.exact.len() <= FEW {
            true => self.exact.iter().find(|(end, _)| is_at(end, destination)),
            false => self.search(&end(*destination)),
        };
        match found {
            Some((_, place)) => Some(*place),
            None => self.find_wildcard(destination),
        }
    }

    fn search(&self, wanted: &End) -> Option<&(End, u16)> {
        let found = self.exact.binary_search_by(|(end, _)| end.cmp(wanted));
        self.exact.get(found.ok()?)
    }

    fn find_wildcard(&self, destination: &SocketAddr) -> Option<u16> {
        let of_port = |((port, _), _): &&(End, u16)| *port == destination.port();
        let found = || self.wildcards.iter().filter(of_port);
        let of_family = found().find(|((_, ip), _)| ip.is_ipv4() == destination.is_ipv4());
        of_family
            .or_else(|| found().next())
            .map(|(_, place)| *place)
    }
}

/// Whether it is the end of an address. No other end is made for it: one of IPv4 is copied with what it does not fill, which waits
/// for whatever was written there last (10 ns here).
#[inline]
fn is_at((port, address): &End, destination: &SocketAddr) -> bool {
    let is_address = match (address, destination) {
        (IpAddr::V4(address), SocketAddr::V4(destination)) => address == destination.ip(),
        (IpAddr::V6(address), SocketAddr::V6(destination)) => address == destination.ip(),
        _ => false,
    };
    is_address && *port == destination.port()
}

#[inline]
fn end(address: SocketAddr) -> End {
    (address.port(), address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FastOpen, Xdp};

    fn listeners(addresses: &[&str]) -> ByAddress {
        let listener = |address: &&str| Listener {
            address: address.parse().unwrap(),
            sockets: 1,
            reuse_port: false,
            xdp: Xdp::Off,
            tcp_listen_queue_size: 0,
            maximum_tcp_connections: 0,
            pinning: Vec::new(),
            tcp_in_flight: 0,
            interface: None,
            tcp_fast_open: FastOpen::default(),
            proxy_protocol: false,
        };
        let listeners: Vec<Listener> = addresses.iter().map(listener).collect();
        ByAddress::of(&listeners)
    }

    fn find(listeners: &ByAddress, destination: &str) -> Option<u16> {
        listeners.find(&destination.parse().unwrap())
    }

    #[test]
    fn the_very_address_wins_over_all_addresses_and_a_family_over_the_other() {
        let listeners = listeners(&[
            "0.0.0.0:53",
            "192.0.2.1:53",
            "[::]:53",
            "192.0.2.1:54",
            "[::]:55",
        ]);
        for (destination, place) in [
            ("192.0.2.1:53", Some(1)),
            ("192.0.2.2:53", Some(0)),
            ("0.0.0.0:53", Some(0)),
            ("[2001:db8::1]:53", Some(2)),
            ("192.0.2.1:54", Some(3)),
            ("192.0.2.2:54", None),
            ("192.0.2.2:55", Some(4)),
        ] {
            assert_eq!(find(&listeners, destination), place, "{destination}");
        }
        assert_eq!(find(&ByAddress::default(), "192.0.2.1:53"), None);
    }

    #[test]
    fn scopes_tell_no_listeners_apart() {
        let listeners = listeners(&["[fe80::1%3]:53", "[fe80::1%2]:53"]);
        assert_eq!(find(&listeners, "[fe80::1]:53"), Some(0));
    }

    #[test]
    fn each_of_many_is_found() {
        let address = |number: usize| format!("192.0.2.{}:{}", number % 250, 53 + number / 250);
        let addresses: Vec<String> = (0..1_000).rev().map(address).collect();
        let texts: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let listeners = listeners(&texts);
        for (place, text) in texts.iter().enumerate() {
            assert_eq!(find(&listeners, text), Some(place as u16));
        }
    }
}
