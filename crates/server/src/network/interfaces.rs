//! Which interfaces and queues a listener or a server needs (docs/af_xdp.md, "What you do").

use super::links::{Link, LinkKind};
use super::view::NetworkView;
use crate::config::{Xdp, XskQueue};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// An interface to open, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceQueues {
    /// The interface's index.
    pub interface: u32,
    pub name: String,
    pub queues: Vec<QueueWish>,
    pub why: Why,
}

/// One queue to open. By its number first: a list of them sorts by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueWish {
    pub number: u32,
    /// newXsk's xskMapPath; `None`: no newXsk names this queue.
    pub map_path: Option<String>,
}

/// Why an interface is opened. Displays as the log says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    HasAddress,
    /// It is a member of this bond, which has the address.
    Member(String),
    /// The address is on this loopback or dummy interface: queries arrive anywhere.
    Anycast(String),
    Wildcard,
    /// `xdp={"…"}` names it.
    Named,
    /// newXsk names it.
    Sockets,
    /// Packets to the server leave there.
    Route,
    /// The same, though its newXsk or `xdp={…}` named others.
    RouteElsewhere,
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::HasAddress => write!(out, "it has the address"),
            Why::Member(bond) => write!(out, "a member of {bond}, which has the address"),
            Why::Anycast(interface) => write!(
                out,
                "the address is on {interface}, so queries arrive on any interface"
            ),
            Why::Wildcard => write!(out, "a wildcard address takes queries on any interface"),
            Why::Named => write!(out, "named by xdp"),
            Why::Sockets => write!(out, "named by newXsk"),
            Why::Route => write!(out, "the route leaves there"),
            Why::RouteElsewhere => write!(
                out,
                "the route leaves there and not where the configured sockets are: opened too"
            ),
        }
    }
}

impl fmt::Display for InterfaceQueues {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self
            .queues
            .iter()
            .map(|queue| queue.number.to_string())
            .collect();
        let word = if numbers.len() == 1 {
            "queue"
        } else {
            "queues"
        };
        write!(
            out,
            "{} {word} {} ({})",
            self.name,
            numbers.join(", "),
            self.why
        )
    }
}

/// What was found, and what was asked for but cannot be: for each a reason that the log gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interfaces {
    pub found: Vec<InterfaceQueues>,
    pub missing: Vec<String>,
}

/// The interfaces on which queries for `address` can arrive, as `wish` says.
pub fn which_interfaces(view: &NetworkView, address: SocketAddr, wish: &Xdp) -> Interfaces {
    match wish {
        Xdp::Off => Interfaces::default(),
        Xdp::Auto => automatic(view, address),
        Xdp::Interfaces(names) => named(view, names),
        Xdp::Queues(sockets) => exactly(view, sockets),
    }
}

impl Interfaces {
    /// Adds all queues of `link`, or those of its members when it is a bond.
    pub(super) fn open(&mut self, view: &NetworkView, link: &Link, why: &Why) {
        for receiver in view.receivers(link) {
            match obstacle(receiver) {
                Some(obstacle) => self.missing.push(obstacle),
                None => self.found.push(all_queues(receiver, why.clone())),
            }
        }
        if link.kind == LinkKind::Bond && view.receivers(link).is_empty() {
            self.missing
                .push(format!("{} is a bond without members", link.name));
        }
    }
}

fn automatic(view: &NetworkView, address: SocketAddr) -> Interfaces {
    let mut interfaces = Interfaces::default();
    if address.ip().is_unspecified() {
        interfaces.found = everywhere(view, &Why::Wildcard);
        return interfaces;
    }
    if address.ip().is_loopback() {
        interfaces.missing.push(format!(
            "{} is a loopback address: no interface ever receives for it",
            address.ip()
        ));
        return interfaces;
    }
    let owners = owners(view, address);
    if let Some(loopback) = owners
        .iter()
        .find(|link| matches!(link.kind, LinkKind::Loopback | LinkKind::Dummy))
    {
        interfaces.found = everywhere(view, &Why::Anycast(loopback.name.clone()));
        return interfaces;
    }
    if owners.is_empty() {
        interfaces
            .missing
            .push(format!("no interface has the address {}", address.ip()));
    }
    for owner in owners {
        let bond = owner.kind == LinkKind::Bond;
        let why = if bond {
            Why::Member(owner.name.clone())
        } else {
            Why::HasAddress
        };
        interfaces.open(view, owner, &why);
    }
    interfaces
}

/// The links that have the address; for a link-local one with a scope, only the link of that scope.
fn owners(view: &NetworkView, address: SocketAddr) -> Vec<&Link> {
    let scope = scope_of(address);
    let holders = view
        .addresses
        .iter()
        .filter(|local| local.address == address.ip());
    holders
        .filter(|local| scope == 0 || local.interface == scope)
        .filter_map(|local| view.link(local.interface))
        .collect()
}

/// The interface that a link-local IPv6 address names; 0: none.
pub(super) fn scope_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// All Ethernet interfaces that are up and receive for this host. A bond receives by its members; what comes in by a
/// port of a bridge or virtual switch is received by the bridge.
fn everywhere(view: &NetworkView, why: &Why) -> Vec<InterfaceQueues> {
    let receives = |link: &&Link| {
        let stands_alone = matches!(
            link.kind,
            LinkKind::Device | LinkKind::Veth | LinkKind::Bridge | LinkKind::Virtual
        );
        stands_alone && !is_port(view, link) && obstacle(link).is_none()
    };
    view.links
        .iter()
        .filter(receives)
        .map(|link| all_queues(link, why.clone()))
        .collect()
}

/// Whether frames that come in by `link` are received by its master.
fn is_port(view: &NetworkView, link: &Link) -> bool {
    let master = link.master.and_then(|index| view.link(index));
    master.is_some_and(|master| !matches!(master.kind, LinkKind::Bond | LinkKind::Vrf))
}

/// Why AF_XDP cannot serve on a link.
fn obstacle(link: &Link) -> Option<String> {
    let name = &link.name;
    if link.mac.is_none() {
        return Some(format!("{name} is not an Ethernet interface"));
    }
    if link.kind == LinkKind::Vlan {
        return Some(format!(
            "{name} is a VLAN interface: tagged frames are left to the kernel for now"
        ));
    }
    if link.kind == LinkKind::Loopback {
        return Some(format!(
            "{name} is the loopback interface: nothing arrives there from outside"
        ));
    }
    (!link.up).then(|| format!("{name} is down (ip link set {name} up)"))
}

fn all_queues(link: &Link, why: Why) -> InterfaceQueues {
    let queues = (0..link.queues).map(|number| QueueWish {
        number,
        map_path: None,
    });
    InterfaceQueues {
        interface: link.index,
        name: link.name.clone(),
        queues: queues.collect(),
        why,
    }
}

fn named(view: &NetworkView, names: &[String]) -> Interfaces {
    let mut interfaces = Interfaces::default();
    for name in names {
        match view.link_named(name) {
            Some(link) => interfaces.open(view, link, &Why::Named),
            None => interfaces.missing.push(no_such_interface(view, name)),
        }
    }
    interfaces
}

fn no_such_interface(view: &NetworkView, name: &str) -> String {
    let names: Vec<&str> = view.links.iter().map(|link| link.name.as_str()).collect();
    format!(
        "there is no interface {name} here (there are {})",
        names.join(", ")
    )
}

/// The queues that newXsk names and no others.
fn exactly(view: &NetworkView, sockets: &[XskQueue]) -> Interfaces {
    let mut interfaces = Interfaces::default();
    for socket in sockets {
        if let Err(missing) = add_socket(view, socket, &mut interfaces.found) {
            interfaces.missing.push(missing);
        }
    }
    interfaces
}

fn add_socket(
    view: &NetworkView,
    socket: &XskQueue,
    found: &mut Vec<InterfaceQueues>,
) -> Result<(), String> {
    let name = &socket.interface;
    let link = view
        .link_named(name)
        .ok_or_else(|| no_such_interface(view, name))?;
    if link.kind == LinkKind::Bond {
        return Err(format!("{name} is a bond: name its members in newXsk"));
    }
    if let Some(obstacle) = obstacle(link) {
        return Err(obstacle);
    }
    let count = link.queues;
    if socket.queue >= count {
        let (queue, wanted) = (socket.queue, socket.queue + 1);
        return Err(format!(
            "{name} has no queue {queue}, it has {count} (ethtool -L {name} combined {wanted}, where it can)"
        ));
    }
    let wish = QueueWish {
        number: socket.queue,
        map_path: Some(socket.map_path.clone()),
    };
    match found
        .iter_mut()
        .find(|interface| interface.interface == link.index)
    {
        Some(interface) if interface.queues.contains(&wish) => {}
        Some(interface) => interface.queues.push(wish),
        None => found.push(InterfaceQueues {
            queues: vec![wish],
            ..all_queues(link, Why::Sockets)
        }),
    }
    Ok(())
}

/// Whether `address` is for a listener on `listener`: the same, or any of its family when that is a wildcard.
pub(super) fn listens_to(listener: IpAddr, address: IpAddr) -> bool {
    listener == address || (listener.is_unspecified() && listener.is_ipv4() == address.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::super::addresses::LocalAddress;
    use super::super::fixtures::{ip, lab, link, socket};
    use super::*;

    /// What `xdp=true` opens for an address, as the log says it.
    fn opened(view: &NetworkView, address: &str) -> Vec<String> {
        let address = SocketAddr::new(ip(address), 53);
        which_interfaces(view, address, &Xdp::Auto)
            .found
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn missing(view: &NetworkView, address: &str, wish: &Xdp) -> Vec<String> {
        which_interfaces(view, SocketAddr::new(ip(address), 53), wish).missing
    }

    #[test]
    fn the_interface_that_has_the_address() {
        assert_eq!(
            opened(&lab(), "192.0.2.1"),
            ["enp1s0 queues 0, 1 (it has the address)"]
        );
        assert_eq!(
            opened(&lab(), "2001:db8::1"),
            ["enp1s0 queues 0, 1 (it has the address)"]
        );
    }

    #[test]
    fn members_of_a_bond() {
        let mut view = lab();
        view.links[1].kind = LinkKind::Bond;
        for (index, name) in [(7, "ens3f0"), (8, "ens3f1")] {
            view.links.push(Link {
                master: Some(2),
                queues: 1,
                ..link(index, name, LinkKind::Device)
            });
        }
        let members = [
            "ens3f0 queue 0 (a member of enp1s0, which has the address)",
            "ens3f1 queue 0 (a member of enp1s0, which has the address)",
        ];
        assert_eq!(opened(&view, "192.0.2.1"), members);
    }

    #[test]
    fn everywhere_for_anycast_and_wildcards() {
        let mut view = lab();
        view.addresses.push(LocalAddress {
            address: ip("203.0.113.53"),
            interface: 1,
            prefix: 24,
        });
        let why = "(the address is on lo, so queries arrive on any interface)";
        let expected = [
            format!("enp1s0 queues 0, 1 {why}"),
            format!("enp2s0 queues 0, 1 {why}"),
        ];
        assert_eq!(opened(&view, "203.0.113.53"), expected);
        assert_eq!(opened(&view, "0.0.0.0").len(), 2);
        assert_eq!(opened(&view, "::").len(), 2);
    }

    #[test]
    fn a_wildcard_skips_what_does_not_receive_for_itself() {
        let mut view = lab();
        view.links.push(link(4, "br0", LinkKind::Bridge));
        view.links.push(Link {
            master: Some(4),
            ..link(5, "guest0", LinkKind::Veth)
        });
        view.links.push(link(6, "dummy0", LinkKind::Dummy));
        view.links.push(Link {
            up: false,
            ..link(7, "enp3s0", LinkKind::Device)
        });
        view.links.push(Link {
            mac: None,
            ..link(8, "wg0", LinkKind::Virtual)
        });
        view.links.push(link(9, "enp1s0.5", LinkKind::Vlan));
        let names =
            which_interfaces(&view, "0.0.0.0:53".parse().expect("an address"), &Xdp::Auto).found;
        let names: Vec<&str> = names
            .iter()
            .map(|interface| interface.name.as_str())
            .collect();
        assert_eq!(names, ["enp1s0", "enp2s0", "br0"]);
    }

    #[test]
    fn named_interfaces_with_all_their_queues() {
        let wish = Xdp::Interfaces(vec!["enp2s0".to_owned(), "ens3f1".to_owned()]);
        let interfaces =
            which_interfaces(&lab(), "192.0.2.1:53".parse().expect("an address"), &wish);
        assert_eq!(
            interfaces.found[0].to_string(),
            "enp2s0 queues 0, 1 (named by xdp)"
        );
        assert_eq!(
            interfaces.missing,
            ["there is no interface ens3f1 here (there are lo, enp1s0, enp2s0)"]
        );
    }

    #[test]
    fn f24_exactly_the_queues_of_newxsk() {
        let mut view = lab();
        view.links[1].queues = 4;
        let wish = Xdp::Queues(vec![
            socket("enp1s0", 0),
            socket("enp1s0", 2),
            socket("enp1s0", 2),
        ]);
        let interfaces =
            which_interfaces(&view, "192.0.2.1:53".parse().expect("an address"), &wish);
        assert_eq!(
            interfaces.found[0].to_string(),
            "enp1s0 queues 0, 2 (named by newXsk)"
        );
        assert_eq!(
            interfaces.found[0].queues[0].map_path.as_deref(),
            Some("/sys/fs/bpf/dnsdist/xskmap")
        );
    }

    #[test]
    fn what_cannot_be_says_why() {
        let view = lab();
        let line = "enp1s0 has no queue 5, it has 2 (ethtool -L enp1s0 combined 6, where it can)";
        assert_eq!(
            missing(&view, "192.0.2.1", &Xdp::Queues(vec![socket("enp1s0", 5)])),
            [line]
        );
        assert_eq!(
            missing(&view, "192.0.2.9", &Xdp::Auto),
            ["no interface has the address 192.0.2.9"]
        );
        let line = "127.0.0.1 is a loopback address: no interface ever receives for it";
        assert_eq!(missing(&view, "127.0.0.1", &Xdp::Auto), [line]);
    }
}
