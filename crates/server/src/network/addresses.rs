//! The addresses of this host (rtnetlink(7), RTM_NEWADDR).

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use std::io;
use std::net::IpAddr;

/// An address on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalAddress {
    pub address: IpAddr,
    /// The index of the interface that has it.
    pub interface: u32,
    /// Bits of the network that it is in.
    pub prefix: u8,
}

impl LocalAddress {
    pub(super) fn parse(message: &AddressMessage) -> Option<LocalAddress> {
        let mut address = None;
        for attribute in &message.attributes {
            match attribute {
                // On a point-to-point interface IFA_ADDRESS is the peer's and IFA_LOCAL ours; IPv6 has IFA_ADDRESS alone.
                AddressAttribute::Local(local) => return Some(LocalAddress::new(*local, message)),
                AddressAttribute::Address(own) => address = Some(*own),
                _ => {}
            }
        }
        Some(LocalAddress::new(address?, message))
    }

    fn new(address: IpAddr, message: &AddressMessage) -> LocalAddress {
        LocalAddress {
            address,
            interface: message.header.index,
            prefix: message.header.prefix_len,
        }
    }
}

impl LocalAddress {
    /// The address by which all hosts of its network are reached (RFC 919); none on point-to-point links (RFC 3021).
    fn broadcast(&self) -> Option<IpAddr> {
        let IpAddr::V4(address) = self.address else {
            return None;
        };
        let hosts = u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
        (hosts > 1).then(|| IpAddr::V4((u32::from(address) | hosts).into()))
    }
}

/// Sources that cannot be true: our own addresses, and the broadcast addresses of our networks. The kernel drops such
/// packets too.
///
/// Every frame's source is looked for here, so they are kept as numbers of one family: to compare whole [`IpAddr`]s takes ten
/// times the instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImpossibleSources {
    /// In ascending order.
    v4: Vec<u32>,
    /// In ascending order.
    v6: Vec<u128>,
}

impl ImpossibleSources {
    /// Of a host with these addresses.
    pub fn of(addresses: &[LocalAddress]) -> ImpossibleSources {
        let own = addresses.iter().map(|local| local.address);
        let broadcast = addresses.iter().filter_map(LocalAddress::broadcast);
        let mut all = ImpossibleSources::default();
        for address in own.chain(broadcast) {
            match address {
                IpAddr::V4(address) => all.v4.push(address.to_bits()),
                IpAddr::V6(address) => all.v6.push(address.to_bits()),
            }
        }
        all.v4.sort_unstable();
        all.v6.sort_unstable();
        all
    }

    /// Whether `source` is one of them.
    #[inline]
    pub fn has(&self, source: IpAddr) -> bool {
        match source {
            IpAddr::V4(source) => is_among(&self.v4, &source.to_bits()),
            IpAddr::V6(source) => is_among(&self.v6, &source.to_bits()),
        }
    }
}

/// Addresses that a host has, nearly always: all of them are compared, which takes less than to find out which of two is next.
const FEW: usize = 16;

#[inline]
fn is_among<T: Ord>(ascending: &[T], one: &T) -> bool {
    match ascending.len() {
        ..=FEW => ascending
            .iter()
            .fold(false, |is_it, other| is_it | (other == one)),
        _ => ascending.binary_search(one).is_ok(),
    }
}

/// Whether the address means something on one link only.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Reads all addresses.
pub(super) async fn read(handle: &mut rtnetlink::Handle) -> io::Result<Vec<LocalAddress>> {
    let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let messages = super::netlink::ask(handle, question, super::netlink::DUMP).await?;
    let addresses = messages.iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewAddress(message) => LocalAddress::parse(message),
        _ => None,
    });
    Ok(addresses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f6_our_own_and_broadcast_addresses_are_no_sources() {
        let local = |address: &str, prefix| LocalAddress {
            address: address.parse().unwrap(),
            interface: 1,
            prefix,
        };
        let addresses = [
            local("192.0.2.1", 24),
            local("198.51.100.1", 31),
            local("2001:db8::1", 64),
        ];
        let impossible = ImpossibleSources::of(&addresses);
        let has = |address: &&str| impossible.has(address.parse().unwrap());
        let asked = [
            "192.0.2.0",
            "192.0.2.1",
            "192.0.2.255",
            "198.51.100.0",
            "198.51.100.1",
            "2001:db8::1",
            "2001:db8::2",
        ];
        let found: Vec<&str> = asked
            .iter()
            .copied()
            .filter(|address| has(address))
            .collect();
        assert_eq!(
            found,
            ["192.0.2.1", "192.0.2.255", "198.51.100.1", "2001:db8::1"]
        );
        let many: Vec<LocalAddress> = (1..=2 * FEW)
            .map(|number| local(&format!("203.0.113.{}", 2 * number), 32))
            .collect();
        for few in [1, FEW, 2 * FEW] {
            let impossible = ImpossibleSources::of(&many[..few]);
            let has =
                |number: usize| impossible.has(format!("203.0.113.{number}").parse().unwrap());
            let found: Vec<usize> = (0..=4 * FEW + 1).filter(|number| has(*number)).collect();
            let expected: Vec<usize> = (1..=few).map(|number| 2 * number).collect();
            assert_eq!(found, expected);
        }
    }
}
