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
        }
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
