//! Which device and which next hop reach each server over AF_XDP, as the network changes. No I/O and no clock:
//! [`super::due`] feeds it, and passes on what it says.

use super::devices::{Device, Open};
use super::events::NetworkEvent;
use super::links::Link;
use super::neighbours::Neighbour;
use super::routes::{Destination, Route};
use crate::backend::server::ServerId;
use std::collections::HashMap;
use std::net::IpAddr;
use wire::frame::Mac;

/// A server whose way is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    pub server: ServerId,
    /// Asked from the source that was planned: frames leave from it.
    pub destination: Destination,
    /// As the plan asks: from no source, but where the server has one of its own. Another source in the kernel's answer is news
    /// for the plan.
    pub wish: Destination,
    /// MACAddr: used unasked.
    pub mac: Option<Mac>,
    /// Its devices are open. Where they are not (there was no route when they were planned), a route is news for the
    /// plan and for nobody else.
    pub planned: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Frames for the server go out by this device to this next hop.
    Frames {
        server: ServerId,
        device: u8,
        mac: Mac,
    },
    /// The server is reached by kernel sockets only, because of this.
    KernelSockets { server: ServerId, reason: String },
    /// The kernel should find out the next hop's Ethernet address.
    Knock { next_hop: IpAddr, interface: u32 },
    /// A server that was planned without a route has one now, or its route leaves by an interface that is not open, or by
    /// another one than before, or the kernel prefers another source address: what programs take from servers is planned by
    /// interface and source.
    Replan,
}

/// The state behind the decisions.
#[derive(Debug, Default)]
pub struct Paths {
    servers: Vec<Followed>,
    /// Who is at a destination: positions in `servers`.
    at: HashMap<Destination, Vec<usize>>,
    open: Open,
    links: HashMap<u32, Link>,
    /// By interface and address.
    neighbours: HashMap<(u32, IpAddr), Known>,
}

/// The last address that the kernel gave for a next hop.
#[derive(Debug, Clone, Copy)]
struct Known {
    mac: Mac,
    /// The kernel has it in its table now. What it has forgotten is used until it says something else, and asked for.
    present: bool,
}

#[derive(Debug)]
struct Followed {
    watched: Watched,
    /// `None`: the kernel has not been asked yet.
    route: Option<Result<Route, String>>,
    /// The source that the kernel chose when it was last asked what is planned by.
    preferred: Option<IpAddr>,
    told: Told,
}

impl Followed {
    /// The kernel's answer for the wish. Only a change is told: where the plan got another answer it has the last word.
    fn prefer(&mut self, route: &Result<Route, String>) -> Option<Change> {
        let source = route.as_ref().ok()?.source;
        let is_news = self.preferred.replace(source) != Some(source);
        let is_planned = self.watched.destination.source == Some(source);
        (is_news && !is_planned).then_some(Change::Replan)
    }
}

/// What was last said of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Frames(u8, Mac),
    KernelSockets,
}

/// Why there is no way by frames now.
enum Obstacle {
    /// The kernel has not been asked for the route yet.
    Unasked,
    /// The kernel will soon say more.
    Unresolved(Route),
    Lasting(String),
}

/// Whether a route has come back, or leaves by another interface than before.
fn has_moved(old: Option<&Result<Route, String>>, new: &Result<Route, String>) -> bool {
    match (old, new) {
        (Some(Ok(old)), Ok(new)) => old.interface != new.interface,
        (Some(Err(_)), Ok(_)) => true,
        _ => false,
    }
}

impl Paths {
    /// Forgets all links and neighbours and takes these instead.
    pub fn reset(&mut self, links: Vec<Link>, neighbours: Vec<Neighbour>) -> Vec<Change> {
        self.links = links.into_iter().map(|link| (link.index, link)).collect();
        let known = neighbours.into_iter().filter_map(|neighbour| {
            let known = Known {
                mac: neighbour.mac?,
                present: true,
            };
            Some(((neighbour.interface, neighbour.address), known))
        });
        self.neighbours = known.collect();
        self.settle_all()
    }

    /// From now on these servers are followed, over these devices. A server that was followed before keeps what is known.
    pub fn watch(&mut self, servers: Vec<Watched>, open: Open) -> Vec<Change> {
        let old = std::mem::take(&mut self.servers).into_iter();
        let mut old: HashMap<ServerId, Followed> =
            old.map(|known| (known.watched.server, known)).collect();
        self.open = open;
        self.at.clear();
        for (position, watched) in servers.into_iter().enumerate() {
            let (route, preferred, told) = match old.remove(&watched.server) {
                Some(known) if known.watched.destination == watched.destination => {
                    (known.route, known.preferred, known.told)
                }
                Some(known) => (None, known.preferred, known.told),
                None => (None, None, Told::Nothing),
            };
            let (destination, wish) = (watched.destination, watched.wish);
            self.at.entry(destination).or_default().push(position);
            if wish != destination {
                self.at.entry(wish).or_default().push(position);
            }
            self.servers.push(Followed {
                watched,
                route,
                preferred,
                told,
            });
        }
        self.settle_all()
    }

    /// Where the kernel must be asked for the way, each destination once.
    pub fn destinations(&self) -> Vec<Destination> {
        self.at.keys().copied().collect()
    }

    /// Whether nothing is new about a link.
    pub fn knows(&self, link: &Link) -> bool {
        self.links.get(&link.index) == Some(link)
    }

    /// The name of a device's interface.
    pub fn device_name(&self, number: u8) -> &str {
        let device = self
            .open
            .devices
            .iter()
            .find(|device| device.number == number);
        device.map_or("?", |device| &device.name)
    }

    /// Whether a next hop is not in the kernel's table: then [`Paths::remind`] is to be called every now and then.
    pub fn is_waiting(&self) -> bool {
        self.servers
            .iter()
            .any(|followed| self.absent(followed).is_some())
    }

    /// The kernel's answer for a destination.
    pub fn routed(
        &mut self,
        destination: &Destination,
        route: &Result<Route, String>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        for position in self.at.get(destination).cloned().unwrap_or_default() {
            if self.servers[position].watched.destination != *destination {
                changes.extend(self.servers[position].prefer(route));
                continue;
            }
            // A link that is down has taken its routes with it, and most often brings them back.
            let sleeps = self.is_down(&self.servers[position]);
            let followed = &mut self.servers[position];
            if followed.route.as_ref() == Some(route) || (route.is_err() && sleeps) {
                continue;
            }
            let old = followed.route.replace(route.clone());
            if has_moved(old.as_ref(), route) || self.needs_a_plan(&self.servers[position]) {
                changes.push(Change::Replan);
            }
            changes.extend(self.knock(&self.servers[position]));
            changes.extend(self.settle(position));
        }
        changes
    }

    /// Whether the route of a server leaves by a link that is there and down.
    fn is_down(&self, followed: &Followed) -> bool {
        let Some(Ok(route)) = &followed.route else {
            return false;
        };
        let link = self.links.get(&route.interface);
        link.is_some_and(|link| !link.carrier)
    }

    /// Whether a server has a route by which it was not planned to be reached.
    fn needs_a_plan(&self, followed: &Followed) -> bool {
        let Some(Ok(route)) = &followed.route else {
            return false;
        };
        let is_elsewhere = || {
            let link = self.links.get(&route.interface);
            link.is_some_and(|link| self.devices_of(link).next().is_none())
        };
        !followed.watched.planned || is_elsewhere()
    }

    /// One event. After those of links, addresses and routes the ways must be asked for again ([`Paths::routed`]).
    pub fn event(&mut self, event: NetworkEvent) -> Vec<Change> {
        match event {
            NetworkEvent::LinkChanged(link) => {
                self.links.insert(link.index, link);
                self.settle_all()
            }
            NetworkEvent::LinkGone(index) => {
                self.links.remove(&index);
                self.neighbours
                    .retain(|&(interface, _), _| interface != index);
                self.settle_all()
            }
            NetworkEvent::NeighbourChanged(neighbour) => self.neighbour(neighbour),
            NetworkEvent::NeighbourGone(neighbour) => self.neighbour_gone(neighbour),
            NetworkEvent::AddressChanged(_) | NetworkEvent::RouteChanged | NetworkEvent::Lost => {
                Vec::new()
            }
        }
    }

    /// Knocks again at next hops that the kernel does not know, and says so once.
    pub fn remind(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for position in 0..self.servers.len() {
            changes.extend(self.knock(&self.servers[position]));
            if let Err(Obstacle::Unresolved(route)) = self.way(&self.servers[position]) {
                let reason = self.unresolved(&route);
                changes.extend(self.tell_kernel_sockets(position, reason));
            }
        }
        changes
    }

    fn neighbour(&mut self, neighbour: Neighbour) -> Vec<Change> {
        let key = (neighbour.interface, neighbour.address);
        match neighbour.mac {
            Some(mac) => self.neighbours.insert(key, Known { mac, present: true }),
            None => self.neighbours.remove(&key),
        };
        let mut changes = self.settle_all();
        // Frames of ours do not tell the kernel that the next hop is in use: without a knock it would never ask a stale
        // one again, and we would never hear of a new address.
        if neighbour.stale
            && self
                .servers
                .iter()
                .any(|followed| self.hops_by(followed, key))
        {
            changes.push(Change::Knock {
                next_hop: neighbour.address,
                interface: neighbour.interface,
            });
        }
        changes
    }

    fn neighbour_gone(&mut self, neighbour: Neighbour) -> Vec<Change> {
        let key = (neighbour.interface, neighbour.address);
        if let Some(known) = self.neighbours.get_mut(&key) {
            known.present = false;
        }
        let mut users = self
            .servers
            .iter()
            .filter(|followed| self.hops_by(followed, key));
        users
            .find_map(|followed| self.knock(followed))
            .into_iter()
            .collect()
    }

    /// Whether a server's frames go to this neighbour.
    fn hops_by(&self, followed: &Followed, neighbour: (u32, IpAddr)) -> bool {
        let Some(Ok(route)) = &followed.route else {
            return false;
        };
        let asks = followed.watched.planned && followed.watched.mac.is_none();
        asks && (route.interface, route.next_hop) == neighbour
    }

    /// A knock for a server whose next hop the kernel does not know.
    fn knock(&self, followed: &Followed) -> Option<Change> {
        let route = self.absent(followed)?;
        Some(Change::Knock {
            next_hop: route.next_hop,
            interface: route.interface,
        })
    }

    /// The route of a server that could be reached, if only the kernel had its next hop in the table.
    fn absent(&self, followed: &Followed) -> Option<Route> {
        match (self.way(followed), &followed.route) {
            (Err(Obstacle::Unresolved(route)), _) => Some(route),
            (Ok(_), Some(Ok(route))) => {
                let key = (route.interface, route.next_hop);
                let forgotten = self
                    .neighbours
                    .get(&key)
                    .is_some_and(|known| !known.present);
                (forgotten && self.hops_by(followed, key)).then_some(*route)
            }
            _ => None,
        }
    }

    fn settle_all(&mut self) -> Vec<Change> {
        (0..self.servers.len())
            .filter_map(|position| self.settle(position))
            .collect()
    }

    /// Decides for one server; a change only where it differs from what was told.
    fn settle(&mut self, position: usize) -> Option<Change> {
        match self.way(&self.servers[position]) {
            Ok((device, mac)) => self.tell_frames(position, device, mac),
            // What the plan could not place it has told itself.
            Err(_) if !self.servers[position].watched.planned => None,
            Err(Obstacle::Unasked) => None,
            // At start nothing was promised yet, and the kernel answers within a millisecond if anybody is there.
            Err(Obstacle::Unresolved(_)) if self.servers[position].told == Told::Nothing => None,
            Err(Obstacle::Unresolved(route)) => {
                let reason = self.unresolved(&route);
                self.tell_kernel_sockets(position, reason)
            }
            Err(Obstacle::Lasting(reason)) => self.tell_kernel_sockets(position, reason),
        }
    }

    fn tell_frames(&mut self, position: usize, device: u8, mac: Mac) -> Option<Change> {
        let followed = &mut self.servers[position];
        let told = Told::Frames(device, mac);
        let server = followed.watched.server;
        (std::mem::replace(&mut followed.told, told) != told).then_some(Change::Frames {
            server,
            device,
            mac,
        })
    }

    /// Only the way is news: a second reason for the same way is not told.
    fn tell_kernel_sockets(&mut self, position: usize, reason: String) -> Option<Change> {
        let followed = &mut self.servers[position];
        let server = followed.watched.server;
        (std::mem::replace(&mut followed.told, Told::KernelSockets) != Told::KernelSockets)
            .then_some(Change::KernelSockets { server, reason })
    }

    /// The device and next hop for a server's frames.
    fn way(&self, followed: &Followed) -> Result<(u8, Mac), Obstacle> {
        let route = match &followed.route {
            None => return Err(Obstacle::Unasked),
            Some(Err(reason)) => return Err(Obstacle::Lasting(reason.clone())),
            Some(Ok(route)) => *route,
        };
        let device = self.device(&route)?;
        let known = self.neighbours.get(&(route.interface, route.next_hop));
        match followed.watched.mac.or(known.map(|known| known.mac)) {
            Some(mac) => Ok((device, mac)),
            None => Err(Obstacle::Unresolved(route)),
        }
    }

    /// The device of a route's interface, or of a member of the bond that it is.
    fn device(&self, route: &Route) -> Result<u8, Obstacle> {
        let lasting = |reason| Err(Obstacle::Lasting(reason));
        let Some(link) = self.links.get(&route.interface) else {
            return lasting(format!(
                "the interface of the route (index {}) is gone",
                route.interface
            ));
        };
        let mut devices = self.devices_of(link).peekable();
        if devices.peek().is_none() {
            return lasting(format!(
                "the route leaves by {}, which has no AF_XDP socket of ours",
                link.name
            ));
        }
        let has_carrier = |device: &&Device| {
            self.links
                .get(&device.interface)
                .is_some_and(|link| link.carrier)
        };
        let mut devices = devices.filter(has_carrier).peekable();
        if devices.peek().is_none() {
            return lasting(format!("{} is down or has no carrier", link.name));
        }
        match devices.find(|device| self.open.served.contains(&device.number)) {
            Some(device) => Ok(device.number),
            None => lasting(format!("no queue of {} could be opened", link.name)),
        }
    }

    /// The devices that send what leaves by a link: its own, or those of the bond that it is.
    fn devices_of(&self, link: &Link) -> impl Iterator<Item = &Device> {
        let index = link.index;
        self.open.devices.iter().filter(move |device| {
            let link = self.links.get(&device.interface);
            device.interface == index || link.and_then(|link| link.master) == Some(index)
        })
    }

    fn unresolved(&self, route: &Route) -> String {
        let name = self
            .links
            .get(&route.interface)
            .map_or("?", |link| &link.name);
        format!(
            "no answer yet from the next hop {} on {name}",
            route.next_hop
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{ip, lab};
    use super::*;

    const BACKEND_MAC: Mac = [2, 0, 0, 0, 0, 0x99];

    fn destination() -> Destination {
        Destination {
            address: ip("192.0.2.2"),
            source: Some(ip("198.51.100.1")),
            interface: 0,
        }
    }

    /// Asked without a source.
    fn wish() -> Destination {
        Destination {
            source: None,
            ..destination()
        }
    }

    fn watched(mac: Option<Mac>) -> Watched {
        Watched {
            server: ServerId(1),
            destination: destination(),
            wish: wish(),
            mac,
            planned: true,
        }
    }

    /// The device of a link of the lab, numbered from 0.
    fn device(link: &Link) -> Device {
        Device {
            number: link.index as u8 - 2,
            interface: link.index,
            name: link.name.clone(),
            mac: link.mac.expect("an Ethernet interface"),
            mtu: link.mtu,
            queues: link.queues,
            partial_checksums: true,
        }
    }

    fn open() -> Open {
        let devices: Vec<Device> = lab().links[1..].iter().map(device).collect();
        devices.into()
    }

    /// Paths that follow one server over `enp1s0` (device 0) and `enp2s0` (device 1).
    fn following(server: Watched) -> Paths {
        let mut paths = Paths::default();
        let links = lab().links;
        assert_eq!(paths.reset(links, Vec::new()), []);
        assert_eq!(paths.watch(vec![server], open()), []);
        paths
    }

    fn route(interface: u32) -> Result<Route, String> {
        Ok(Route {
            interface,
            source: ip("198.51.100.1"),
            next_hop: ip("192.0.2.2"),
        })
    }

    fn neighbour(interface: u32, mac: Option<Mac>) -> NetworkEvent {
        NetworkEvent::NeighbourChanged(Neighbour {
            interface,
            address: ip("192.0.2.2"),
            mac,
            stale: false,
        })
    }

    fn frames(device: u8, mac: Mac) -> Change {
        Change::Frames {
            server: ServerId(1),
            device,
            mac,
        }
    }

    fn kernel(reason: &str) -> Change {
        Change::KernelSockets {
            server: ServerId(1),
            reason: reason.to_owned(),
        }
    }

    fn knock(interface: u32) -> Change {
        Change::Knock {
            next_hop: ip("192.0.2.2"),
            interface,
        }
    }

    /// A server that is reached by `enp2s0`.
    fn reached() -> Paths {
        let mut paths = following(watched(None));
        assert_eq!(paths.routed(&destination(), &route(3)), [knock(3)]);
        assert_eq!(
            paths.event(neighbour(3, Some(BACKEND_MAC))),
            [frames(1, BACKEND_MAC)]
        );
        paths
    }

    #[test]
    fn a_next_hop_is_resolved_and_told_once() {
        let mut paths = reached();
        assert_eq!(paths.event(neighbour(3, Some(BACKEND_MAC))), []);
        assert_eq!(paths.routed(&destination(), &route(3)), []);
        assert!(!paths.is_waiting());
    }

    #[test]
    fn a_new_mac_is_followed() {
        let mut paths = reached();
        assert_eq!(paths.event(neighbour(3, Some([2; 6]))), [frames(1, [2; 6])]);
    }

    #[test]
    fn a_failed_neighbour_leaves_the_server_to_the_kernel_until_it_is_back() {
        let mut paths = reached();
        let reason = "no answer yet from the next hop 192.0.2.2 on enp2s0";
        assert_eq!(paths.event(neighbour(3, None)), [kernel(reason)]);
        assert!(paths.is_waiting());
        assert_eq!(paths.remind(), [knock(3)]);
        assert_eq!(
            paths.event(neighbour(3, Some(BACKEND_MAC))),
            [frames(1, BACKEND_MAC)]
        );
    }

    #[test]
    fn nobody_answering_at_start_is_told_after_the_first_reminder() {
        let mut paths = following(watched(None));
        paths.routed(&destination(), &route(3));
        let reason = "no answer yet from the next hop 192.0.2.2 on enp2s0";
        assert_eq!(paths.remind(), [knock(3), kernel(reason)]);
        assert_eq!(paths.remind(), [knock(3)]);
    }

    #[test]
    fn a_forgotten_or_stale_neighbour_is_asked_again_and_used_meanwhile() {
        let mut paths = reached();
        let address = ip("192.0.2.2");
        let stale = Neighbour {
            interface: 3,
            address,
            mac: Some(BACKEND_MAC),
            stale: true,
        };
        assert_eq!(
            paths.event(NetworkEvent::NeighbourChanged(stale)),
            [knock(3)]
        );
        assert_eq!(paths.event(NetworkEvent::NeighbourGone(stale)), [knock(3)]);
        let stranger = Neighbour {
            address: ip("192.0.2.77"),
            ..stale
        };
        assert_eq!(paths.event(NetworkEvent::NeighbourGone(stranger)), []);
    }

    #[test]
    fn a_route_that_moves_takes_the_server_along() {
        let mut paths = reached();
        paths.event(neighbour(2, Some([2; 6])));
        let moved = [Change::Replan, frames(0, [2; 6])];
        assert_eq!(paths.routed(&destination(), &route(2)), moved);
        let reason = "Network is unreachable";
        assert_eq!(
            paths.routed(&destination(), &Err(reason.to_owned())),
            [kernel(reason)]
        );
        // By which interface it left is forgotten: the plan knows.
        assert_eq!(paths.routed(&destination(), &route(2)), moved);
    }

    #[test]
    fn a_route_to_an_interface_without_a_device_is_the_kernels_and_news_for_the_plan() {
        let mut paths = reached();
        let mut link =
            super::super::fixtures::link(9, "enp9s0", super::super::links::LinkKind::Device);
        link.queues = 1;
        paths.event(NetworkEvent::LinkChanged(link));
        let reason = "the route leaves by enp9s0, which has no AF_XDP socket of ours";
        let changes = [Change::Replan, kernel(reason)];
        assert_eq!(paths.routed(&destination(), &route(9)), changes);
        assert_eq!(paths.routed(&destination(), &route(9)), []);
    }

    #[test]
    fn f22_link_down_and_up() {
        let mut paths = reached();
        let up = lab().links[2].clone();
        let down = Link {
            carrier: false,
            ..up.clone()
        };
        let reason = "enp2s0 is down or has no carrier";
        for _ in 0..50 {
            assert_eq!(
                paths.event(NetworkEvent::LinkChanged(down.clone())),
                [kernel(reason)]
            );
            assert_eq!(
                paths.event(NetworkEvent::LinkChanged(up.clone())),
                [frames(1, BACKEND_MAC)]
            );
        }
        let gone = "the interface of the route (index 3) is gone";
        assert_eq!(paths.event(NetworkEvent::LinkGone(3)), [kernel(gone)]);
    }

    #[test]
    fn a_neighbour_forgotten_while_the_link_was_down_is_asked_for_when_it_is_up() {
        let mut paths = reached();
        let up = lab().links[2].clone();
        paths.event(NetworkEvent::LinkChanged(Link {
            carrier: false,
            ..up.clone()
        }));
        let gone = Neighbour {
            interface: 3,
            address: ip("192.0.2.2"),
            mac: None,
            stale: false,
        };
        assert_eq!(paths.event(NetworkEvent::NeighbourGone(gone)), []);
        assert!(!paths.is_waiting());
        let changes = paths.event(NetworkEvent::LinkChanged(up));
        assert_eq!(changes, [frames(1, BACKEND_MAC)]);
        assert!(paths.is_waiting());
        assert_eq!(paths.remind(), [knock(3)]);
        paths.event(neighbour(3, Some(BACKEND_MAC)));
        assert!(!paths.is_waiting());
    }

    #[test]
    fn a_bond_uses_a_member_with_a_carrier() {
        use super::super::fixtures::link;
        use super::super::links::LinkKind;
        let mut paths = reached();
        paths.event(NetworkEvent::LinkChanged(link(20, "bond0", LinkKind::Bond)));
        for index in [2, 3] {
            let member = Link {
                master: Some(20),
                carrier: index == 3,
                ..link(index, "member", LinkKind::Device)
            };
            paths.event(NetworkEvent::LinkChanged(member));
        }
        paths.event(neighbour(20, Some([2; 6])));
        let moved = [Change::Replan, frames(1, [2; 6])];
        assert_eq!(paths.routed(&destination(), &route(20)), moved);
    }

    #[test]
    fn a_mac_by_hand_is_used_unasked() {
        let mut paths = following(watched(Some(BACKEND_MAC)));
        assert_eq!(
            paths.routed(&destination(), &route(3)),
            [frames(1, BACKEND_MAC)]
        );
        assert_eq!(paths.event(neighbour(3, Some([2; 6]))), []);
        assert_eq!(paths.event(neighbour(3, None)), []);
    }

    #[test]
    fn a_server_that_was_planned_without_a_route_is_planned_again_when_it_has_one() {
        let mut paths = following(Watched {
            planned: false,
            ..watched(None)
        });
        assert_eq!(
            paths.routed(&destination(), &Err("Network is unreachable".to_owned())),
            []
        );
        assert_eq!(paths.routed(&destination(), &route(9)), [Change::Replan]);
    }

    /// The route stays where it is, from the source that was planned: only without one the kernel's answer is another.
    #[test]
    fn another_source_is_news_for_the_plan_and_told_once() {
        let mut paths = reached();
        let from = |source: &str| {
            let route = route(3).expect("a route");
            Ok(Route {
                source: ip(source),
                ..route
            })
        };
        assert_eq!(paths.destinations().len(), 2);
        assert_eq!(paths.routed(&wish(), &from("198.51.100.1")), []);
        let moved = [Change::Replan];
        assert_eq!(paths.routed(&wish(), &from("198.51.100.77")), moved);
        assert_eq!(paths.routed(&wish(), &from("198.51.100.77")), []);
        assert_eq!(paths.routed(&wish(), &Err("no route".to_owned())), []);
        // The plan has the last word: what it says twice is not asked for again.
        assert_eq!(paths.watch(vec![watched(None)], open()), []);
        assert_eq!(paths.routed(&wish(), &from("198.51.100.77")), []);
        // It has followed, which loses nothing that is known of the way until the kernel has answered.
        let planned = Destination {
            source: Some(ip("198.51.100.77")),
            ..wish()
        };
        let followed = Watched {
            destination: planned,
            ..watched(None)
        };
        assert_eq!(paths.watch(vec![followed], open()), []);
        assert_eq!(paths.routed(&planned, &from("198.51.100.77")), []);
        assert_eq!(paths.routed(&wish(), &from("198.51.100.77")), []);
        assert_eq!(paths.routed(&wish(), &from("198.51.100.1")), moved);
    }

    #[test]
    fn a_source_of_the_servers_own_is_asked_from_alone() {
        let own = Watched {
            wish: destination(),
            ..watched(None)
        };
        assert_eq!(following(own).destinations(), [destination()]);
    }

    #[test]
    fn a_device_without_a_queue_leads_nowhere() {
        let mut paths = reached();
        let mut watch = |served: &[u8]| {
            let served = served.to_vec();
            paths.watch(vec![watched(None)], Open { served, ..open() })
        };
        let [Change::KernelSockets { reason, .. }] = &watch(&[])[..] else {
            panic!("one change");
        };
        assert_eq!(reason, "no queue of enp2s0 could be opened");
        assert_eq!(watch(&[0]), [], "it is said once");
        assert!(matches!(
            watch(&[1])[..],
            [Change::Frames { device: 1, .. }]
        ));
    }

    #[test]
    fn a_reload_keeps_what_is_known() {
        let mut paths = reached();
        assert_eq!(paths.watch(vec![watched(None)], open()), []);
        let same = paths.routed(&destination(), &route(3));
        assert_eq!(same, []);
    }
}
