//! Links: the network interfaces as the kernel describes them (rtnetlink(7), RTM_NEWLINK).

use rtnetlink::packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use std::fmt;
use std::io;
use wire::frame::Mac;
use xsk::nic::Nic;

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// `None`: not an Ethernet interface (tunnels, point to point).
    pub mac: Option<Mac>,
    /// The longest IP packet, in bytes.
    pub mtu: u32,
    /// Somebody has set it up (IFF_UP).
    pub up: bool,
    /// It is up and has a carrier (IFF_LOWER_UP).
    pub carrier: bool,
    pub kind: LinkKind,
    /// The index of the bond, bridge or VRF that it belongs to.
    pub master: Option<u32>,
    /// How many receive queues it serves now; at least 1.
    pub queues: u32,
    /// Its frames come from this host's or its host's guests, with partial UDP checksums (veth, virtio, tap and what is
    /// stacked on them; docs/af_xdp.md, "Checksums").
    pub partial_checksums: bool,
}

/// What an interface is, as far as AF_XDP cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// Hardware, virtual or real.
    Device,
    Loopback,
    Veth,
    /// A bond or team: its members receive.
    Bond,
    Bridge,
    Vlan,
    Vrf,
    /// Receives nothing, ever; addresses on it are anycast addresses as those on `lo` are.
    Dummy,
    /// Any other virtual interface.
    Virtual,
}

impl Link {
    /// `None`: a message about a port of a bridge, which comes in the same group and is not about the link itself.
    pub(super) fn parse(message: &LinkMessage) -> Option<Link> {
        if message.header.interface_family != AddressFamily::Unspec {
            return None;
        }
        let index = message.header.index;
        let flags = message.header.flags;
        let name = find(message, |attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        })?;
        let kind = match flags.contains(LinkFlags::Loopback) {
            true => LinkKind::Loopback,
            false => kind(message),
        };
        let ethernet = message.header.link_layer_type == LinkLayerType::Ether;
        // Netlink tells how many queues a link could have; how many it has, and its driver, its own facts tell. A link
        // that is just going away has none any more, and no queue that could be opened.
        let nic = Nic::by_index(index).ok();
        Some(Link {
            index,
            name,
            mac: mac(message).filter(|_| ethernet),
            mtu: mtu(message),
            up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            kind,
            master: master(message),
            queues: nic.as_ref().map_or(1, |nic| nic.queues),
            partial_checksums: kind != LinkKind::Device
                || nic.is_some_and(|nic| nic.may_have_partial_checksums()),
        })
    }
}

/// An Ethernet address as people write it: `02:00:00:00:00:01`.
pub struct MacText(pub Mac);

impl fmt::Display for MacText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// Reads all links.
pub(super) async fn read(handle: &mut rtnetlink::Handle) -> io::Result<Vec<Link>> {
    let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let messages = super::netlink::ask(handle, question, super::netlink::DUMP).await?;
    let links = messages.iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewLink(message) => Link::parse(message),
        _ => None,
    });
    Ok(links.collect())
}

fn kind(message: &LinkMessage) -> LinkKind {
    let info = find(message, |attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    let named = info.into_iter().flatten().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    });
    match named {
        None => LinkKind::Device,
        Some(InfoKind::Veth) => LinkKind::Veth,
        Some(InfoKind::Bond | InfoKind::Team) => LinkKind::Bond,
        Some(InfoKind::Bridge) => LinkKind::Bridge,
        Some(InfoKind::Vlan) => LinkKind::Vlan,
        Some(InfoKind::Vrf) => LinkKind::Vrf,
        Some(InfoKind::Dummy | InfoKind::Ifb | InfoKind::Nlmon) => LinkKind::Dummy,
        Some(_) => LinkKind::Virtual,
    }
}

fn mtu(message: &LinkMessage) -> u32 {
    let mtu = find(message, |attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    mtu.unwrap_or(0)
}

fn master(message: &LinkMessage) -> Option<u32> {
    find(message, |attribute| match attribute {
        LinkAttribute::Controller(index) => Some(*index).filter(|&index| index != 0),
        _ => None,
    })
}

fn mac(message: &LinkMessage) -> Option<Mac> {
    find(message, |attribute| match attribute {
        LinkAttribute::Address(bytes) => Mac::try_from(bytes.as_slice()).ok(),
        _ => None,
    })
}

/// The first attribute that `wanted` takes.
fn find<'m, T>(
    message: &'m LinkMessage,
    wanted: impl FnMut(&'m LinkAttribute) -> Option<T>,
) -> Option<T> {
    message.attributes.iter().find_map(wanted)
}
