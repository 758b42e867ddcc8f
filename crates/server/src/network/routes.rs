//! Routes: the kernel is asked for the way to one address at a time (rtnetlink(7), RTM_GETROUTE), so that its rules,
//! tables, metrics and multipath choices are all obeyed.

use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::IpAddr;

/// Where to, and from which of our addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Destination {
    pub address: IpAddr,
    /// `None`: the kernel chooses.
    pub source: Option<IpAddr>,
    /// The interface of a link-local address (its scope); 0: the kernel chooses.
    pub interface: u32,
}

/// The way to a [`Destination`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The index of the interface by which packets leave.
    pub interface: u32,
    /// The source address of packets.
    pub source: IpAddr,
    /// The gateway, or the destination itself where it is on the link.
    pub next_hop: IpAddr,
}

/// Asks the kernel for the way to `destination`.
///
/// # Errors
/// What the kernel says (ENETUNREACH, EHOSTUNREACH), a source that is not ours, and
/// [`io::ErrorKind::AddrNotAvailable`] for an address of this host: nothing leaves it on the way there.
pub(super) async fn ask(
    handle: &mut rtnetlink::Handle,
    destination: &Destination,
) -> io::Result<Route> {
    let answer = super::netlink::ask(handle, question(destination), super::netlink::ONE).await;
    let messages = answer.map_err(|error| explain(error, destination))?;
    let answer = messages.iter().find_map(|message| match message {
        RouteNetlinkMessage::NewRoute(message) => Some(parse(message, destination)),
        _ => None,
    });
    answer.unwrap_or_else(|| Err(io::Error::other("the kernel answered without a route")))
}

/// A source that this host does not have is an "Invalid argument" or an unreachable network to the kernel.
fn explain(error: io::Error, destination: &Destination) -> io::Error {
    match destination.source {
        Some(source) => io::Error::new(error.kind(), format!("{error}, from {source}")),
        None => error,
    }
}

fn question(destination: &Destination) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    let bits = if destination.address.is_ipv4() {
        32
    } else {
        128
    };
    message.header.address_family = if destination.address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    message.header.destination_prefix_length = bits;
    message
        .attributes
        .push(RouteAttribute::Destination(destination.address.into()));
    if let Some(source) = destination.source {
        message.header.source_prefix_length = bits;
        message
            .attributes
            .push(RouteAttribute::Source(source.into()));
    }
    if destination.interface != 0 {
        message
            .attributes
            .push(RouteAttribute::Oif(destination.interface));
    }
    RouteNetlinkMessage::GetRoute(message)
}

fn parse(message: &RouteMessage, destination: &Destination) -> io::Result<Route> {
    match message.header.kind {
        RouteType::Unicast => {}
        RouteType::Local => {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "it is an address of this host",
            ));
        }
        other => {
            return Err(io::Error::new(
                io::ErrorKind::NetworkUnreachable,
                format!("the route is of type {other:?}"),
            ));
        }
    }
    let mut interface = None;
    let mut source = destination.source;
    let mut next_hop = destination.address;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::PrefSource(address) => source = source.or(ip_of(address)),
            RouteAttribute::Gateway(address) => next_hop = ip_of(address).unwrap_or(next_hop),
            // An IPv4 route with an IPv6 gateway (RFC 5549's way, RTA_VIA).
            RouteAttribute::Via(RouteVia::Inet(address)) => next_hop = (*address).into(),
            RouteAttribute::Via(RouteVia::Inet6(address)) => next_hop = (*address).into(),
            _ => {}
        }
    }
    let interface =
        interface.ok_or_else(|| io::Error::other("the kernel answered without an interface"))?;
    let source =
        source.ok_or_else(|| io::Error::other("the kernel answered without a source address"))?;
    Ok(Route {
        interface,
        source,
        next_hop,
    })
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
