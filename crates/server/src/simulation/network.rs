//! The network around us: two interfaces with a router behind each. What there is, what happens to it, and what the kernel
//! says of that.
//!
//! ```text
//!  clients ── router ══ clients0   us   backends0 ══ router ── backends
//!                          └── routes to backends may leave here, too ──┘
//! ```

use super::clients::{FAMILIES, OUR_MAC, service};
use super::ground::WORKERS;
use crate::network::addresses::LocalAddress;
use crate::network::events::NetworkEvent;
use crate::network::links::{Link, LinkKind};
use crate::network::neighbours::Neighbour;
use crate::network::{Destination, NetworkView, Route};
use crate::random::Random;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::frame::{Family, Mac};

/// Queues of an interface, one for each worker.
pub(super) const QUEUES: u32 = WORKERS as u32;

/// Our addresses towards backends: the ports are bound to them, whichever way packets leave (the routes' `src`).
const SOURCES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1)),
];

/// The routers, by side and IP version.
const NEXT_HOPS: [[IpAddr; 2]; 2] = [
    [
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0xfe)),
    ],
    [
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, 254)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0xfe)),
    ],
];

const NAMES: [&str; 2] = ["clients0", "backends0"];

/// The loopback interface's index; those of the others follow.
const LOOPBACK: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Clients,
    Backends,
}

impl Side {
    pub(super) const ALL: [Side; 2] = [Side::Clients, Side::Backends];
}

/// An interface and the router behind it.
struct Interface {
    index: u32,
    exists: bool,
    is_up: bool,
    has_carrier: bool,
    queues: u32,
    mac: Mac,
    router: Mac,
    router_answers: bool,
}

impl Interface {
    fn is_normal(&self) -> bool {
        self.works() && self.queues == QUEUES && self.router_answers
    }

    /// Whether frames come and go.
    fn works(&self) -> bool {
        self.exists && self.is_up && self.has_carrier
    }

    /// Whether the kernel knows the router's Ethernet address.
    fn is_known(&self) -> bool {
        self.works() && self.router_answers
    }
}

pub(super) struct Network {
    interfaces: [Interface; 2],
    next_index: u32,
    /// Whether the services' addresses are there, by IP version.
    has_address: [bool; 2],
    /// By which interface packets to backends leave, by IP version.
    routes: [Option<Side>; 2],
    /// An interface was made, or something of one was lost or refused, since the network was last known to be served.
    is_new: bool,
}

impl Network {
    /// Everything is there.
    pub(super) fn new() -> Network {
        let interface = |(index, mac): (u32, Mac)| Interface {
            index,
            exists: true,
            is_up: true,
            has_carrier: true,
            queues: QUEUES,
            mac,
            router: [2, 0, 0, 0, 1, index as u8],
            router_answers: true,
        };
        let theirs = [2, 0, 0, 0, 2, 0];
        Network {
            interfaces: [(LOOPBACK + 1, OUR_MAC), (LOOPBACK + 2, theirs)].map(interface),
            next_index: LOOPBACK + 3,
            has_address: [true; 2],
            routes: [Some(Side::Backends); 2],
            is_new: false,
        }
    }

    // ------------------------------------------------------------------------------------------ what there is

    fn interface(&self, side: Side) -> &Interface {
        &self.interfaces[side as usize]
    }

    fn at(&self, index: u32) -> Option<&Interface> {
        let mut interfaces = self.interfaces.iter();
        interfaces.find(|interface| interface.exists && interface.index == index)
    }

    /// Whether there is an interface with this index.
    pub(super) fn has(&self, index: u32) -> bool {
        self.at(index).is_some()
    }

    /// Whether frames that leave by the interface with this index arrive anywhere.
    pub(super) fn carries(&self, index: u32) -> bool {
        self.at(index).is_some_and(Interface::works)
    }

    /// Queues of the interface with this index: what it tells whoever asks.
    pub(super) fn queues(&self, index: u32) -> Option<u32> {
        self.at(index).map(|interface| interface.queues)
    }

    /// The index and the queues of the interface by which frames of clients come, or those of backends.
    pub(super) fn receiver(&self, side: Side) -> Option<(u32, u32)> {
        let interface = self.interface(side);
        interface
            .works()
            .then_some((interface.index, interface.queues))
    }

    /// The side on which packets to and from backends go.
    pub(super) fn side_of_backends(&self, family: Family) -> Option<Side> {
        self.routes[family as usize]
    }

    /// Whether a frame to this Ethernet address, sent by this interface, gets to the backends.
    pub(super) fn reaches_backends(&self, index: u32, mac: Mac) -> bool {
        self.at(index)
            .is_some_and(|interface| interface.is_known() && interface.router == mac)
    }

    /// The interface and the next hop for frames to backends.
    pub(super) fn way_to_backends(&self, family: Family) -> Option<(u32, Mac)> {
        let interface = self.interface(self.side_of_backends(family)?);
        Some((interface.index, interface.router))
    }

    /// The interface's own Ethernet address.
    pub(super) fn mac(&self, index: u32) -> Option<Mac> {
        self.at(index).map(|interface| interface.mac)
    }

    /// Whether this address is one of ours and there.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses()
            .iter()
            .any(|local| local.address == address)
    }

    /// The source of queries to backends.
    pub(super) fn source(family: Family) -> IpAddr {
        SOURCES[family as usize]
    }

    /// Whether nothing is amiss.
    pub(super) fn is_normal(&self) -> bool {
        self.interfaces.iter().all(Interface::is_normal)
            && self.has_address == [true; 2]
            && self.routes == [Some(Side::Backends); 2]
    }

    /// Whether an interface was made, or something of one was lost or refused, since the network was last known to be served.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Something of an interface is lost, or refused: as after a reset it may take longer to be served.
    pub(super) fn is_reset(&mut self) {
        self.is_new = true;
    }

    /// The index of the interface on this side, if there is one.
    pub(super) fn index(&self, side: Side) -> Option<u32> {
        let interface = self.interface(side);
        interface.exists.then_some(interface.index)
    }

    /// It is known to be served.
    pub(super) fn is_served(&mut self) {
        self.is_new = false;
    }

    // ------------------------------------------------------------------------------------------ what the kernel says

    /// All that the plan asks the kernel for.
    pub(super) fn view(&self, destinations: &[Destination]) -> NetworkView {
        let routes = destinations.iter();
        NetworkView {
            links: self.links(),
            addresses: self.addresses(),
            routes: routes
                .map(|destination| (*destination, self.route(destination)))
                .collect(),
        }
    }

    pub(super) fn links(&self) -> Vec<Link> {
        let loopback = Link {
            index: LOOPBACK,
            name: "lo".to_owned(),
            kind: LinkKind::Loopback,
            ..self.link(Side::Clients)
        };
        let sides = Side::ALL.into_iter();
        let sides = sides.filter(|side| self.interface(*side).exists);
        let links = sides.map(|side| self.link(side));
        std::iter::once(loopback).chain(links).collect()
    }

    fn link(&self, side: Side) -> Link {
        let interface = self.interface(side);
        Link {
            index: interface.index,
            name: NAMES[side as usize].to_owned(),
            mac: Some(interface.mac),
            mtu: 1_500,
            up: interface.is_up,
            carrier: interface.is_up && interface.has_carrier,
            kind: LinkKind::Device,
            master: None,
            queues: interface.queues,
            partial_checksums: false,
        }
    }

    fn addresses(&self) -> Vec<LocalAddress> {
        let services = FAMILIES.into_iter().filter(|family| {
            self.has_address[*family as usize] && self.interface(Side::Clients).exists
        });
        let services = services.map(|family| self.service(family));
        let sources = SOURCES
            .into_iter()
            .filter(|_| self.interface(Side::Backends).exists);
        let sources = sources.map(|address| LocalAddress {
            address,
            interface: self.interface(Side::Backends).index,
            prefix: prefix(address),
        });
        services.chain(sources).collect()
    }

    fn service(&self, family: Family) -> LocalAddress {
        let address = service(family).ip();
        LocalAddress {
            address,
            interface: self.interface(Side::Clients).index,
            prefix: prefix(address),
        }
    }

    /// The kernel's answer for a destination: with what is down or gone its routes have gone, too, and with an address those
    /// that name it as the source.
    pub(super) fn route(&self, destination: &Destination) -> Result<Route, String> {
        let family = usize::from(destination.address.is_ipv6());
        let side = self.routes[family].filter(|side| {
            let interface = self.interface(*side);
            interface.exists && interface.is_up && self.interface(Side::Backends).exists
        });
        let side = side.ok_or("Network is unreachable")?;
        Ok(Route {
            interface: self.interface(side).index,
            source: SOURCES[family],
            next_hop: NEXT_HOPS[side as usize][family],
        })
    }

    /// The table of next hops, without those that do not answer.
    pub(super) fn neighbours(&self) -> Vec<Neighbour> {
        let sides = Side::ALL.into_iter();
        let sides = sides.filter(|side| self.interface(*side).is_known());
        sides.flat_map(|side| self.neighbours_on(side)).collect()
    }

    fn neighbours_on(&self, side: Side) -> [Neighbour; 2] {
        let interface = self.interface(side);
        NEXT_HOPS[side as usize].map(|address| Neighbour {
            interface: interface.index,
            address,
            mac: interface.router_answers.then_some(interface.router),
            stale: false,
        })
    }

    /// Somebody sends to a next hop: what the kernel finds out by that.
    pub(super) fn knock(&self, next_hop: IpAddr, interface: u32) -> Option<NetworkEvent> {
        let side = Side::ALL.into_iter();
        let mut side = side.filter(|side| self.interface(*side).index == interface);
        let side = side.next()?;
        let answers = self.interface(side).is_known();
        let mut neighbours = self.neighbours_on(side).into_iter();
        let neighbour = neighbours.find(|neighbour| neighbour.address == next_hop);
        neighbour
            .filter(|_| answers)
            .map(NetworkEvent::NeighbourChanged)
    }

    // ------------------------------------------------------------------------------------------ what happens

    /// Something happens; what netlink tells of it.
    pub(super) fn happen(&mut self, random: &mut Random) -> Vec<NetworkEvent> {
        let side = Side::ALL[random.below(2) as usize];
        let family = FAMILIES[random.below(2) as usize];
        match random.below(13) {
            0..=1 => self.change_address(family),
            2 => self.change_link(side, |interface| interface.is_up ^= true),
            3 => self.change_link(side, |interface| interface.has_carrier ^= true),
            4 => match self.interface(side).exists {
                true => self.delete(side),
                false => self.create(side),
            },
            5 => {
                // Whoever wants to know has to ask.
                let interface = &mut self.interfaces[Side::Clients as usize];
                interface.queues = QUEUES + 1 - interface.queues;
                Vec::new()
            }
            6..=7 => self.reroute(family, random),
            8 => self.change_router(side, |interface| interface.router_answers ^= true),
            9 => self.change_router(side, |interface| interface.router[5] ^= 0x80),
            10 => self.forget_router(side, random.below(2) == 0),
            11 => self.change_link(Side::Backends, |interface| interface.mac[5] ^= 1),
            _ => self.lose_count(random),
        }
    }

    fn change_address(&mut self, family: Family) -> Vec<NetworkEvent> {
        self.has_address[family as usize] ^= true;
        match self.interface(Side::Clients).exists {
            true => vec![NetworkEvent::AddressChanged(self.service(family))],
            false => Vec::new(),
        }
    }

    fn change_link(
        &mut self,
        side: Side,
        change: impl FnOnce(&mut Interface),
    ) -> Vec<NetworkEvent> {
        if !self.interface(side).exists {
            return Vec::new();
        }
        let worked = self.interface(side).works();
        change(&mut self.interfaces[side as usize]);
        let link = NetworkEvent::LinkChanged(self.link(side));
        let mut told = vec![link, NetworkEvent::RouteChanged];
        let neighbours = self.neighbours_on(side).into_iter();
        match (worked, self.interface(side).works()) {
            // The kernel forgets who was behind it; when it works again the router says who it is.
            (true, false) => told.extend(neighbours.map(NetworkEvent::NeighbourGone)),
            (false, true) => told.extend(neighbours.map(NetworkEvent::NeighbourChanged)),
            _ => {}
        }
        told
    }

    fn delete(&mut self, side: Side) -> Vec<NetworkEvent> {
        let interface = &mut self.interfaces[side as usize];
        interface.exists = false;
        vec![NetworkEvent::LinkGone(interface.index)]
    }

    fn create(&mut self, side: Side) -> Vec<NetworkEvent> {
        let interface = &mut self.interfaces[side as usize];
        (interface.exists, interface.index) = (true, self.next_index);
        self.next_index += 1;
        self.is_new = true;
        let link = NetworkEvent::LinkChanged(self.link(side));
        vec![link, NetworkEvent::RouteChanged]
    }

    fn reroute(&mut self, family: Family, random: &mut Random) -> Vec<NetworkEvent> {
        let sides = [Some(Side::Clients), Some(Side::Backends), None];
        self.routes[family as usize] = sides[random.below(3) as usize];
        vec![NetworkEvent::RouteChanged]
    }

    fn change_router(
        &mut self,
        side: Side,
        change: impl FnOnce(&mut Interface),
    ) -> Vec<NetworkEvent> {
        change(&mut self.interfaces[side as usize]);
        if !self.interface(side).works() {
            return Vec::new();
        }
        let neighbours = self.neighbours_on(side).into_iter();
        neighbours.map(NetworkEvent::NeighbourChanged).collect()
    }

    /// The kernel throws its entry away, or has not heard of the router for a while.
    fn forget_router(&mut self, side: Side, is_stale: bool) -> Vec<NetworkEvent> {
        if !self.interface(side).is_known() {
            return Vec::new();
        }
        let neighbours = self.neighbours_on(side).into_iter();
        let told = neighbours.map(|neighbour| match is_stale {
            true => NetworkEvent::NeighbourChanged(Neighbour {
                stale: true,
                ..neighbour
            }),
            false => NetworkEvent::NeighbourGone(neighbour),
        });
        told.collect()
    }

    /// Something happens, and all that netlink tells is that there was too much to tell.
    fn lose_count(&mut self, random: &mut Random) -> Vec<NetworkEvent> {
        self.happen(random);
        vec![NetworkEvent::Lost]
    }

    /// Everything is as it was; what netlink tells of what was not.
    pub(super) fn restore(&mut self) -> Vec<NetworkEvent> {
        let mut told = Vec::new();
        for side in Side::ALL {
            if !self.interface(side).exists {
                told.extend(self.create(side));
            }
            let interface = &mut self.interfaces[side as usize];
            interface.queues = QUEUES;
            if !interface.works() {
                told.extend(self.change_link(side, |interface| {
                    (interface.is_up, interface.has_carrier) = (true, true);
                }));
            }
            if !self.interface(side).router_answers {
                told.extend(self.change_router(side, |interface| interface.router_answers = true));
            }
        }
        for family in FAMILIES {
            if !self.has_address[family as usize] {
                told.extend(self.change_address(family));
            }
            if self.routes[family as usize] != Some(Side::Backends) {
                self.routes[family as usize] = Some(Side::Backends);
                told.push(NetworkEvent::RouteChanged);
            }
        }
        told
    }
}

/// Bits of the network that an address of ours is in.
fn prefix(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 24,
        IpAddr::V6(_) => 64,
    }
}
