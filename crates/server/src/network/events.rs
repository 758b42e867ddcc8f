//! What the kernel tells while we serve (rtnetlink(7), multicast groups).

use super::addresses::LocalAddress;
use super::links::Link;
use super::neighbours::Neighbour;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;

/// One change of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkEvent {
    /// A link is new or has changed.
    LinkChanged(Link),
    /// The link with this index was deleted, or moved to another network namespace.
    LinkGone(u32),
    /// An address came, changed or went.
    AddressChanged(LocalAddress),
    /// Some route or routing rule came, changed or went: ask for the ways that matter.
    RouteChanged,
    NeighbourChanged(Neighbour),
    /// The kernel has forgotten the neighbour; that does not say that its address is wrong.
    NeighbourGone(Neighbour),
    /// The kernel had more to tell than the socket's buffer holds: what happened is unknown.
    Lost,
}

/// The groups whose messages [`NetworkEvent::parse`] knows.
pub(super) const GROUPS: [MulticastGroup; 8] = [
    MulticastGroup::Link,
    MulticastGroup::Neigh,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

impl NetworkEvent {
    /// `None`: a message that says nothing that we follow.
    pub(super) fn parse(message: &NetlinkMessage<RouteNetlinkMessage>) -> Option<NetworkEvent> {
        use NetworkEvent::{
            AddressChanged, LinkChanged, LinkGone, NeighbourChanged, NeighbourGone,
        };
        use RouteNetlinkMessage as Message;
        let inner = match &message.payload {
            NetlinkPayload::InnerMessage(inner) => inner,
            NetlinkPayload::Overrun(_) => return Some(NetworkEvent::Lost),
            _ => return None,
        };
        match inner {
            Message::NewLink(link) => Link::parse(link).map(LinkChanged),
            Message::DelLink(link) => Link::parse(link).map(|link| LinkGone(link.index)),
            Message::NewAddress(address) | Message::DelAddress(address) => {
                LocalAddress::parse(address).map(AddressChanged)
            }
            Message::NewNeighbour(neighbour) => Neighbour::parse(neighbour).map(NeighbourChanged),
            Message::DelNeighbour(neighbour) => Neighbour::parse(neighbour).map(NeighbourGone),
            Message::NewRoute(_) | Message::DelRoute(_) => Some(NetworkEvent::RouteChanged),
            Message::NewRule(_) | Message::DelRule(_) => Some(NetworkEvent::RouteChanged),
            _ => None,
        }
    }
}
