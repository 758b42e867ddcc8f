//! Neighbours: the kernel's table of next hops and their Ethernet addresses (rtnetlink(7), RTM_NEWNEIGH).

use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use wire::frame::Mac;

/// One entry of the kernel's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    pub interface: u32,
    pub address: IpAddr,
    /// `None`: the kernel does not know it (INCOMPLETE) or gave up (FAILED).
    pub mac: Option<Mac>,
    /// Nobody has heard of it for a while; it is asked again when somebody sends to it.
    pub stale: bool,
}

impl Neighbour {
    /// `None`: an entry of a bridge's forwarding table, or an address that this host answers for (proxy).
    pub(super) fn parse(message: &NeighbourMessage) -> Option<Neighbour> {
        let is_ip = matches!(
            message.header.family,
            AddressFamily::Inet | AddressFamily::Inet6
        );
        if !is_ip || message.header.flags.contains(NeighbourFlags::Proxy) {
            return None;
        }
        let state = message.header.state;
        let mut address = None;
        let mut mac = None;
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(found)) => {
                    address = Some(IpAddr::V4(*found))
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(found)) => {
                    address = Some(IpAddr::V6(*found))
                }
                NeighbourAttribute::LinkLayerAddress(bytes) => {
                    mac = Mac::try_from(bytes.as_slice()).ok()
                }
                _ => {}
            }
        }
        Some(Neighbour {
            interface: message.header.ifindex,
            address: address?,
            mac: mac.filter(|_| is_usable(state)),
            stale: state == NeighbourState::Stale,
        })
    }
}

/// STALE, DELAY and PROBE are addresses that the kernel itself still sends to while it asks again (RFC 4861, section 7.3.2).
fn is_usable(state: NeighbourState) -> bool {
    use NeighbourState::{Delay, Permanent, Probe, Reachable, Stale};
    matches!(state, Reachable | Stale | Delay | Probe | Permanent)
}

/// Reads the whole table.
pub(super) async fn read(handle: &mut rtnetlink::Handle) -> io::Result<Vec<Neighbour>> {
    let question = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    let messages = super::netlink::ask(handle, question, super::netlink::DUMP).await?;
    let neighbours = messages.iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewNeighbour(message) => Neighbour::parse(message),
        _ => None,
    });
    Ok(neighbours.collect())
}

/// The Ethernet address of a neighbour, as the kernel knows it now. Blocks for some milliseconds.
///
/// # Errors
/// When there is no netlink.
pub fn ethernet_address(address: IpAddr) -> io::Result<Option<Mac>> {
    // A thread of its own: the caller's may belong to a runtime already, which takes no second one.
    let asking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        runtime.block_on(async {
            let (connection, mut handle, _) = rtnetlink::new_connection()?;
            let connection = tokio::spawn(connection);
            let neighbours = read(&mut handle).await;
            connection.abort();
            neighbours
        })
    });
    let neighbours = asking
        .join()
        .map_err(|_| io::Error::other("the thread that asks the kernel ended"))??;
    let mut known = neighbours
        .iter()
        .filter(|neighbour| neighbour.address == address);
    Ok(known.find_map(|neighbour| neighbour.mac))
}

/// The port to which [`knock`] sends: discard (RFC 863). Who has no such service answers with an ICMP error at most.
const DISCARD: u16 = 9;

/// Makes the kernel resolve `next_hop`: an empty datagram to its discard port, from a connected socket. What comes of it
/// is told by netlink.
pub(super) fn knock(next_hop: IpAddr, interface: u32) -> io::Result<()> {
    let (any, peer) = match next_hop {
        IpAddr::V4(address) => (
            SocketAddr::from(([0, 0, 0, 0], 0)),
            SocketAddr::from((address, DISCARD)),
        ),
        IpAddr::V6(address) => {
            let scope = if address.is_unicast_link_local() {
                interface
            } else {
                0
            };
            (
                SocketAddr::from(([0; 8], 0)),
                SocketAddr::V6(SocketAddrV6::new(address, DISCARD, 0, scope)),
            )
        }
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    socket.send(&[]).map(|_| ())
}
