//! What has to be attached: from a configuration and the network as it is, without asking anybody.

use super::addresses::{ImpossibleSources, is_link_local};
use super::devices::{Device, Devices};
use super::interfaces::{
    InterfaceQueues, Interfaces, QueueWish, Why, listens_to, scope_of, which_interfaces,
};
use super::links::Link;
use super::routes::{Destination, Route};
use super::view::NetworkView;
use crate::backend::server::{Server, ServerId};
use crate::config::{Listener, Xdp};
use crate::log;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// Devices, queues and destinations that a configuration needs. Two plans of one process compare by device number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub devices: Vec<PlannedDevice>,
    /// The servers that want AF_XDP and have a route now.
    pub paths: Vec<PlannedPath>,
    /// Interfaces (by index) that are there and down: what is known of them stays as it is.
    pub down: Vec<u32>,
    /// Interfaces of devices, of this plan or an earlier one, that are there and down or without a carrier: nothing comes by them.
    pub silent: Vec<u32>,
    pub impossible_sources: ImpossibleSources,
    /// One line for each listener or server and interface: what is opened and why.
    pub lines: Vec<String>,
    /// One line for each thing that was asked for and cannot be; kernel sockets serve there.
    pub warnings: Vec<String>,
}

/// One interface to attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedDevice {
    pub device: Device,
    /// By number, each once.
    pub queues: Vec<QueueWish>,
    /// What the kernel program takes from clients: exact addresses and ports.
    pub destinations: Vec<SocketAddr>,
    /// What it takes from backends: which of our addresses each is asked from.
    pub backends: Vec<BackendPair>,
}

impl Plan {
    /// Logs the lines that `old` did not have.
    pub fn say_what_is_new(&self, old: &Plan) {
        new_in(&self.lines, &old.lines).for_each(|line| log::info!("{line}"));
    }

    /// The same of warnings.
    pub fn warn_of_what_is_new(&self, old: &Plan) {
        new_in(&self.warnings, &old.warnings).for_each(|line| log::warn!("{line}"));
    }

    /// How many servers are to be asked from another address than by `old`.
    pub fn moved_since(&self, old: &Plan) -> usize {
        let is_moved = |path: &&PlannedPath| {
            let mut paths = old.paths.iter();
            let before = paths.find(|before| before.server == path.server);
            before.is_some_and(|before| before.route.source != path.route.source)
        };
        self.paths.iter().filter(is_moved).count()
    }
}

/// Each once: two lines of a configuration may lack the same interface.
fn new_in<'l>(lines: &'l [String], old: &[String]) -> impl Iterator<Item = &'l String> {
    let is_new =
        |(place, line): &(usize, &String)| !old.contains(line) && !lines[..*place].contains(line);
    lines
        .iter()
        .enumerate()
        .filter(is_new)
        .map(|(_, line)| line)
}

impl PlannedDevice {
    /// The xskMapPath of newXsk, where there is one.
    pub fn map_path(&self) -> Option<&str> {
        let mut queues = self.queues.iter();
        queues.find_map(|wish| wish.map_path.as_deref())
    }
}

/// A backend and the address of ours that it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BackendPair {
    pub source: IpAddr,
    pub backend: SocketAddr,
}

/// The way to one server at the time of planning. Programs take answers to its source, and the ports that queries leave from
/// are bound to it: where the next plan has another one they move ([`crate::backend::ports`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedPath {
    pub server: ServerId,
    pub route: Route,
}

/// Where routes are needed: to give to [`NetworkView::read`].
pub fn destinations(servers: &[Arc<Server>]) -> Vec<Destination> {
    servers
        .iter()
        .filter(|server| server.options.xdp != Xdp::Off)
        .map(|server| destination(server))
        .collect()
}

/// Where a server is.
pub fn destination(server: &Server) -> Destination {
    let address = server.options.address;
    let source = &server.options.source;
    let interface = match (scope_of(address), &source.interface) {
        (0, Some(name)) => index_of(name),
        (scope, _) => scope,
    };
    Destination {
        address: address.ip(),
        source: source.address,
        interface,
    }
}

/// The index of an interface; one that none has where it is not there, so that there is no route either.
fn index_of(interface: &str) -> u32 {
    nix::net::if_::if_nametoindex(interface).unwrap_or(NO_INTERFACE)
}

/// The kernel's are positive numbers of 32 bits with a sign.
const NO_INTERFACE: u32 = i32::MAX as u32;

/// Plans for all listeners and servers that want AF_XDP.
pub fn plan(
    listeners: &[Listener],
    servers: &[Arc<Server>],
    view: &NetworkView,
    devices: &mut Devices,
) -> Plan {
    devices.retire_all_but(&view.links, Instant::now());
    let mut planning = Planning {
        view,
        devices,
        plan: Plan {
            impossible_sources: ImpossibleSources::of(&view.addresses),
            down: indices(view, |link| !link.up),
            ..Plan::default()
        },
    };
    for listener in listeners {
        planning.listener(listener);
    }
    for server in servers
        .iter()
        .filter(|server| server.options.xdp != Xdp::Off)
    {
        planning.server(server);
    }
    for planned in &mut planning.plan.devices {
        planned.queues.sort();
    }
    let devices = planning.devices;
    planning.plan.silent = indices(view, |link| !link.carrier && devices.has(link.index));
    planning.plan
}

/// The links of which that is so.
fn indices(view: &NetworkView, is_so: impl Fn(&Link) -> bool) -> Vec<u32> {
    let links = view.links.iter().filter(|link| is_so(link));
    links.map(|link| link.index).collect()
}

struct Planning<'p> {
    view: &'p NetworkView,
    devices: &'p mut Devices,
    plan: Plan,
}

impl Planning<'_> {
    fn listener(&mut self, listener: &Listener) {
        let interfaces = which_interfaces(self.view, listener.address, &listener.xdp);
        for position in self.open(&listener.address.to_string(), &interfaces) {
            let destinations = self.served(
                listener.address,
                self.plan.devices[position].device.interface,
            );
            add_new(&mut self.plan.devices[position].destinations, destinations);
        }
    }

    /// The local addresses that a listener serves on one interface. The kernel takes a packet for any of its addresses
    /// on any interface, but for link-local ones.
    fn served(&self, listener: SocketAddr, interface: u32) -> Vec<SocketAddr> {
        if !listener.ip().is_unspecified() {
            return vec![SocketAddr::new(listener.ip(), listener.port())];
        }
        let owner = self.view.link(interface).and_then(|link| link.master);
        let locals = self.view.addresses.iter().filter(|local| {
            let here = local.interface == interface || Some(local.interface) == owner;
            listens_to(listener.ip(), local.address)
                && !local.address.is_loopback()
                && (here || !is_link_local(local.address))
        });
        locals
            .map(|local| SocketAddr::new(local.address, listener.port()))
            .collect()
    }

    fn server(&mut self, server: &Server) {
        let address = server.options.address;
        let subject = format!("server {address}");
        let route = match self.view.way_to(&destination(server)) {
            Ok(route) => route,
            Err(reason) => {
                self.plan.warnings.push(format!(
                    "{subject}: no way over AF_XDP, kernel sockets are used: {reason}"
                ));
                return;
            }
        };
        let interfaces = self.interfaces_for(server, &route);
        for position in self.open(&subject, &interfaces) {
            let pair = BackendPair {
                source: route.source,
                backend: address,
            };
            add_new(&mut self.plan.devices[position].backends, [pair]);
        }
        self.plan.paths.push(PlannedPath {
            server: server.number,
            route,
        });
    }

    /// Those that the server names, and the one by which the route leaves.
    fn interfaces_for(&self, server: &Server, route: &Route) -> Interfaces {
        let mut interfaces = match &server.options.xdp {
            Xdp::Auto => Interfaces::default(),
            named => which_interfaces(self.view, server.options.address, named),
        };
        let why = if server.options.xdp == Xdp::Auto {
            Why::Route
        } else {
            Why::RouteElsewhere
        };
        let Some(link) = self.view.link(route.interface) else {
            interfaces.missing.push(format!(
                "the interface of its route (index {}) is gone",
                route.interface
            ));
            return interfaces;
        };
        let receivers = self.view.receivers(link);
        let covered = interfaces
            .found
            .iter()
            .any(|found| receivers.iter().any(|link| link.index == found.interface));
        if !covered {
            interfaces.open(self.view, link, &why);
        }
        interfaces
    }

    /// Notes interfaces and lines of one listener or server; the places of its devices in the plan.
    fn open(&mut self, subject: &str, interfaces: &Interfaces) -> Vec<usize> {
        for missing in &interfaces.missing {
            self.plan.warnings.push(format!(
                "{subject}: not over AF_XDP, kernel sockets serve there: {missing}"
            ));
        }
        let mut positions = Vec::new();
        for interface in &interfaces.found {
            let Some(position) = self.place(interface) else {
                let reason = format!(
                    "{} devices are the most one process can open",
                    Devices::LIMIT
                );
                self.plan.warnings.push(format!(
                    "{subject}: not over AF_XDP on {}: {reason}",
                    interface.name
                ));
                continue;
            };
            self.plan
                .lines
                .push(format!("{subject} over AF_XDP: {interface}"));
            self.merge_queues(position, interface);
            positions.push(position);
        }
        positions
    }

    /// Where the interface's device stands in the plan, at its end when it is new there.
    fn place(&mut self, interface: &InterfaceQueues) -> Option<usize> {
        let devices = &mut self.plan.devices;
        if let Some(position) = devices
            .iter()
            .position(|planned| planned.device.interface == interface.interface)
        {
            return Some(position);
        }
        let device = self.devices.device(self.view.link(interface.interface)?)?;
        devices.push(PlannedDevice {
            device,
            queues: Vec::new(),
            destinations: Vec::new(),
            backends: Vec::new(),
        });
        Some(devices.len() - 1)
    }

    /// A queue that both newXsk and `xdp=true` want is opened once, as newXsk says.
    fn merge_queues(&mut self, position: usize, interface: &InterfaceQueues) {
        let queues = &mut self.plan.devices[position].queues;
        for wish in &interface.queues {
            match queues.iter_mut().find(|queue| queue.number == wish.number) {
                Some(queue) if queue.map_path.is_none() => *queue = wish.clone(),
                Some(_) => {}
                None => queues.push(wish.clone()),
            }
        }
    }
}

fn add_new<T: PartialEq>(list: &mut Vec<T>, items: impl IntoIterator<Item = T>) {
    for item in items {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{add_route, ip, lab, listener, server, shared, socket};
    use super::*;

    fn planned(listeners: &[Listener], servers: Vec<Server>, view: &NetworkView) -> Plan {
        let servers: Vec<Arc<Server>> = servers.into_iter().map(shared).collect();
        plan(listeners, &servers, view, &mut Devices::default())
    }

    fn numbers(device: &PlannedDevice) -> Vec<u32> {
        device.queues.iter().map(|queue| queue.number).collect()
    }

    #[test]
    fn what_is_new_is_said_once() {
        let lines = ["no a", "no b", "no a", "no c"].map(str::to_owned);
        let new: Vec<&String> = new_in(&lines, &lines[1..2]).collect();
        assert_eq!(new, ["no a", "no c"]);
    }

    #[test]
    fn example_a_needs_nothing() {
        let plan = planned(
            &[listener("192.0.2.1:53", Xdp::Off)],
            vec![server(1, "192.0.2.2:53", Xdp::Off)],
            &lab(),
        );
        assert!(plan.devices.is_empty() && plan.paths.is_empty());
        assert!(plan.lines.is_empty() && plan.warnings.is_empty());
    }

    #[test]
    fn example_b_opens_the_queues_of_its_sockets() {
        let xdp = Xdp::Queues(vec![socket("enp1s0", 0), socket("enp1s0", 1)]);
        let plan = planned(&[listener("192.0.2.1:53", xdp)], vec![], &lab());
        assert_eq!(plan.devices.len(), 1);
        assert_eq!(numbers(&plan.devices[0]), [0, 1]);
        assert_eq!(
            plan.devices[0].destinations,
            ["192.0.2.1:53".parse().expect("an address")]
        );
        assert_eq!(
            plan.lines,
            ["192.0.2.1:53 over AF_XDP: enp1s0 queues 0, 1 (named by newXsk)"]
        );
        assert!(plan.warnings.is_empty());
    }

    #[test]
    fn example_c_opens_the_interface_of_the_route_too() {
        let xdp = Xdp::Queues(vec![socket("enp1s0", 0), socket("enp1s0", 1)]);
        let mut view = lab();
        add_route(&mut view, "192.0.2.2", 3, "198.51.100.1", "192.0.2.2");
        let plan = planned(
            &[listener("192.0.2.1:53", xdp.clone())],
            vec![server(1, "192.0.2.2:53", xdp)],
            &view,
        );
        let line = "server 192.0.2.2:53 over AF_XDP: enp2s0 queues 0, 1 (the route leaves there and not where the \
                    configured sockets are: opened too)";
        assert_eq!(plan.lines[2], line);
        let names: Vec<&str> = plan
            .devices
            .iter()
            .map(|planned| planned.device.name.as_str())
            .collect();
        assert_eq!(names, ["enp1s0", "enp2s0"]);
        let pair = BackendPair {
            source: ip("198.51.100.1"),
            backend: "192.0.2.2:53".parse().expect("an address"),
        };
        assert_eq!(plan.devices[1].backends, [pair]);
        assert!(plan.devices[1].destinations.is_empty());
        assert_eq!(plan.paths[0].route.interface, 3);
    }

    #[test]
    fn servers_whose_source_is_another_one_have_moved() {
        let by_source = |source| {
            let mut view = lab();
            add_route(&mut view, "192.0.2.2", 3, source, "192.0.2.2");
            add_route(&mut view, "192.0.2.3", 3, "198.51.100.1", "192.0.2.3");
            let servers = [(1, "192.0.2.2:53"), (2, "192.0.2.3:53")];
            let servers = servers.map(|(number, address)| server(number, address, Xdp::Auto));
            planned(&[], servers.into(), &view)
        };
        let (old, new) = (by_source("198.51.100.1"), by_source("198.51.100.77"));
        assert_eq!(old.moved_since(&old), 0);
        assert_eq!(new.moved_since(&old), 1);
        assert_eq!(new.moved_since(&Plan::default()), 0, "they are new");
        assert_ne!(new, old);
    }

    #[test]
    fn example_c_on_one_interface_opens_nothing_more() {
        let xdp = Xdp::Queues(vec![socket("enp1s0", 0)]);
        let mut view = lab();
        add_route(&mut view, "192.0.2.2", 2, "192.0.2.1", "192.0.2.2");
        let plan = planned(
            &[listener("192.0.2.1:53", xdp.clone())],
            vec![server(1, "192.0.2.2:53", xdp)],
            &view,
        );
        assert_eq!(plan.devices.len(), 1);
        assert_eq!(numbers(&plan.devices[0]), [0]);
        assert_eq!(plan.devices[0].backends.len(), 1);
    }

    #[test]
    fn example_d_finds_interfaces_from_address_and_route() {
        let mut view = lab();
        add_route(&mut view, "192.0.2.2", 3, "198.51.100.1", "198.51.100.254");
        let listeners = [
            listener("192.0.2.1:53", Xdp::Auto),
            listener("[2001:db8::1]:53", Xdp::Auto),
        ];
        let plan = planned(
            &listeners,
            vec![server(1, "192.0.2.2:53", Xdp::Auto)],
            &view,
        );
        assert_eq!(plan.devices[0].destinations.len(), 2);
        assert_eq!(plan.devices[1].device.name, "enp2s0");
        assert_eq!(
            plan.lines[2],
            "server 192.0.2.2:53 over AF_XDP: enp2s0 queues 0, 1 (the route leaves there)"
        );
    }

    #[test]
    fn a_wildcard_serves_every_local_address() {
        let plan = planned(
            &[
                listener("0.0.0.0:53", Xdp::Auto),
                listener("[::]:5353", Xdp::Auto),
            ],
            vec![],
            &lab(),
        );
        let texts: Vec<String> = plan.devices[1]
            .destinations
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            texts,
            [
                "192.0.2.1:53",
                "198.51.100.1:53",
                "[2001:db8::1]:5353",
                "[fe80::3]:5353"
            ]
        );
    }

    #[test]
    fn a_server_without_a_route_is_left_to_the_kernel() {
        let mut view = lab();
        let options = server(1, "192.0.2.2:53", Xdp::Auto);
        view.routes.insert(
            destination(&options),
            Err("Network is unreachable".to_owned()),
        );
        let plan = planned(&[], vec![options], &view);
        assert_eq!(plan.devices, []);
        let line = "server 192.0.2.2:53: no way over AF_XDP, kernel sockets are used: Network is unreachable";
        assert_eq!(plan.warnings, [line]);
    }

    #[test]
    fn numbers_are_the_same_in_the_next_plan() {
        let (view, mut devices) = (lab(), Devices::default());
        let both = [
            listener("192.0.2.1:53", Xdp::Auto),
            listener("198.51.100.1:53", Xdp::Auto),
        ];
        let first = plan(&both, &[], &view, &mut devices);
        let second = plan(&both[1..], &[], &view, &mut devices);
        assert_eq!(second.devices[0], first.devices[1]);
    }
}
