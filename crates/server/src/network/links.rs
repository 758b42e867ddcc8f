//! Links: the network interfaces as the kernel describes them (rtnetlink(7), RTM_NEWLINK).

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use std::io;
use wire::frame::Mac;

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
    /// How many receive queues it serves now; 0: nobody said.
    pub queues: u32,
    /// Its frames come from this host's or its host's guests, with partial UDP checksums (veth, virtio, tap and what is
    /// stacked on them; design.md, "Partial checksums").
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
    pub(super) fn parse(message: &LinkMessage) -> Option<Link> {
        let flags = message.header.flags;
        let name = find(message, |attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        })?;
        let ethernet = message.header.link_layer_type == LinkLayerType::Ether;
        let kind = if flags.contains(LinkFlags::Loopback) {
            LinkKind::Loopback
        } else {
            kind(message)
        };
        Some(Link {
            index: message.header.index,
            queues: 0,
            mac: mac(message).filter(|_| ethernet),
            mtu: find(message, |attribute| match attribute {
                LinkAttribute::Mtu(mtu) => Some(*mtu),
                _ => None,
            })
            .unwrap_or(0),
            up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            master: find(message, |attribute| match attribute {
                LinkAttribute::Controller(index) if *index != 0 => Some(*index),
                _ => None,
            }),
            partial_checksums: partial_checksums(message, kind),
            kind,
            name,
        })
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
    Ok(links
        .map(|link| Link {
            queues: queues(&link.name),
            ..link
        })
        .collect())
}

/// Receive queues in use, from sysfs: the kernel makes one directory each. 0 when sysfs does not show this interface
/// (it shows the network namespace in which it was mounted).
fn queues(name: &str) -> u32 {
    let Ok(entries) = std::fs::read_dir(format!("/sys/class/net/{name}/queues")) else {
        return 0;
    };
    let receive = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-"));
    u32::try_from(receive.count()).unwrap_or(u32::MAX)
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

/// Hardware computes or checks whole sums; virtio and Xen pass on what a guest of the same host left.
fn partial_checksums(message: &LinkMessage, kind: LinkKind) -> bool {
    let bus = find(message, |attribute| match attribute {
        LinkAttribute::ParentDevBusName(bus) => Some(bus.as_str()),
        _ => None,
    });
    kind != LinkKind::Device || matches!(bus, Some("virtio" | "xen"))
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
