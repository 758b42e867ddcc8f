//! The way to a server: which interface, from which address, to which neighbour. The kernel is asked (rtnetlink(7)), so
//! that queries go where ordinary ones would.

mod netlink;

use crate::failure::{During, Failure, Outcome};
use netlink::{Answer, Attribute, Netlink};
use nix::ifaddrs::getifaddrs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};
use wire::frame::Mac;

/// Where the kernel would send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of the interface.
    pub interface: u32,
    /// The address that the kernel would send from.
    pub source: IpAddr,
    /// The gateway, or the server itself.
    pub next_hop: IpAddr,
}

/// How long an address resolution may take.
const RESOLUTION_LIMIT: Duration = Duration::from_secs(2);
const RESOLUTION_PAUSE: Duration = Duration::from_millis(5);

/// The discard service (RFC 863): where the datagram goes that makes the kernel look for the next hop.
const DISCARD_PORT: u16 = 9;

const RTM_GETROUTE: u16 = 26;
const RTM_GETNEIGH: u16 = 30;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_VIA: u16 = 18;
/// Octets in front of a route's attributes: struct rtmsg.
const ROUTE_FIXED: usize = 12;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// NUD_REACHABLE, STALE, DELAY, PROBE, NOARP, PERMANENT: the MAC address is known.
const NUD_KNOWN: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// An address and a port; one that every link has for itself (RFC 4291 §2.5.6) is that of this interface.
pub fn on_link(address: IpAddr, port: u16, interface: u32) -> SocketAddr {
    match address {
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            SocketAddrV6::new(address, port, 0, interface).into()
        }
        other => SocketAddr::new(other, port),
    }
}

/// The interface (index) that a server's address names itself, as `fe80::1%eth0` does (RFC 4007 §11); 0: none.
pub fn scope_of(server: SocketAddr) -> u32 {
    match server {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(server) => server.scope_id(),
    }
}

/// Why a word of the command line is the address of no server, if it says more than an address: ports have an option of their own.
///
/// # Errors
/// It has a port, or brackets.
pub fn check_plain(word: &str) -> Outcome<()> {
    let bracketed = word
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let inner = bracketed.and_then(|inner| inner.parse::<IpAddr>().ok());
    let address = word.parse::<SocketAddr>().map(|server| server.ip());
    match address.ok().or(inner) {
        None => Ok(()),
        Some(address) => Err(Failure::new(format!(
            "{word}: an address alone is needed, {address}; -p takes the port"
        ))),
    }
}

/// Whether it is clear which link a server is on.
///
/// # Errors
/// Every link has such an address, and it does not say which one is meant.
pub fn check_scope(server: SocketAddr) -> Outcome<()> {
    let everywhere = on_link(server.ip(), 0, 1) != SocketAddr::new(server.ip(), 0);
    if everywhere && scope_of(server) == 0 {
        return Err(Failure::new(format!(
            "{0} is an address of every link: say which one is meant, such as {0}%eth0",
            server.ip()
        )));
    }
    Ok(())
}

/// Whether an interface carries Ethernet frames to other machines, as AF_XDP needs it.
///
/// # Errors
/// It is a tunnel, or the loopback interface. What AF_XDP sends there comes in as from a wire, from one of this machine's own
/// addresses, and the kernel drops it as a martian (RFC 1812 §5.3.7).
pub fn check_ethernet(interface: &str, target: IpAddr) -> Outcome<()> {
    let all = getifaddrs().during("asking for the interfaces")?;
    let own = all.filter(|one| one.interface_name == interface);
    // What has no address on its link is told without one.
    let kinds: Vec<Option<u16>> = own
        .map(|one| Some(one.address?.as_link_addr()?.hatype()))
        .collect();
    let other = match kinds.iter().copied().flatten().next() {
        _ if kinds.is_empty() => return Ok(()),
        Some(libc::ARPHRD_ETHER) => return Ok(()),
        Some(libc::ARPHRD_LOOPBACK) => "the loopback interface",
        _ => "no Ethernet",
    };
    Err(Failure::new(format!(
        "interface {interface} is {other}, where AF_XDP reaches no server: name the interface that leads to {target} by Ethernet \
         (-I), or use `floodgate sockets`"
    )))
}

/// Asks for the route to a server, over one interface (index) where one is given.
///
/// # Errors
/// No route, or one that does not leave this machine: AF_XDP sends out of an interface.
pub fn route(target: IpAddr, interface: Option<u32>) -> Outcome<Route> {
    let asking = format!("asking the kernel for the route to {target}");
    let octets = octets_of(target);
    // struct rtmsg: family, length of the destination, and six fields of which none matters here.
    let mut body = vec![family_of(target), octets.len() as u8 * 8];
    body.extend([0; 10]);
    let mut attributes = vec![Attribute::new(RTA_DST, octets)];
    attributes.extend(interface.map(|index| Attribute::new(RTA_OIF, index.to_ne_bytes())));
    let answer = Netlink::open().and_then(|netlink| netlink.ask(RTM_GETROUTE, &body, &attributes));
    let answer = answer.map_err(|error| match error.kind() {
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => Failure::new(format!(
            "no route leads to {target} from here: {error} (`ip route get {target}` asks again; -I, -l and -R together need none)"
        )),
        _ => Failure::new(format!("{asking}: {error}")),
    })?;
    let kind = answer.fixed::<ROUTE_FIXED>().map_or(0, |route| route[7]);
    if kind != RTN_UNICAST {
        return Err(Failure::new(match kind {
            RTN_LOCAL => format!(
                "{target} is this machine: AF_XDP sends out of an interface; use `floodgate sockets`"
            ),
            _ => format!("{target} is not one host: a unicast address is needed"),
        }));
    }
    let broken = || {
        Failure::new(format!(
            "{asking}: its answer lacks the interface or the source address"
        ))
    };
    let interface = answer
        .attribute(ROUTE_FIXED, RTA_OIF)
        .and_then(|index| index.try_into().ok())
        .map(u32::from_ne_bytes);
    let source = answer
        .attribute(ROUTE_FIXED, RTA_PREFSRC)
        .and_then(address_of);
    Ok(Route {
        interface: interface.ok_or_else(broken)?,
        source: source.ok_or_else(broken)?,
        next_hop: gateway_of(&answer).unwrap_or(target),
    })
}

/// The gateway of a route: of the target's version of IP, or of another one (RFC 8950), which comes behind its family in two
/// octets.
fn gateway_of(answer: &Answer) -> Option<IpAddr> {
    let via = || answer.attribute(ROUTE_FIXED, RTA_VIA)?.get(2..);
    let octets = answer.attribute(ROUTE_FIXED, RTA_GATEWAY).or_else(via)?;
    address_of(octets)
}

/// The MAC address of the next hop to a server: makes the kernel resolve it, and waits.
///
/// # Errors
/// It does not answer within two seconds.
pub fn resolve(route: &Route, target: IpAddr) -> Outcome<Mac> {
    let next_hop = route.next_hop;
    let asking = format!("resolving {next_hop}, the next hop to {target}");
    let netlink = Netlink::open().during(&asking)?;
    // Whether it arrives does not matter: sending it makes the kernel resolve, or confirm what it knows.
    let (source, discard) = (
        on_link(route.source, 0, route.interface),
        on_link(target, DISCARD_PORT, route.interface),
    );
    let _ = UdpSocket::bind(source).and_then(|socket| socket.send_to(&[], discard));
    let started = Instant::now();
    loop {
        if let Some(mac) = neighbour(&netlink, route.interface, next_hop).during(&asking)? {
            return Ok(mac);
        }
        if started.elapsed() > RESOLUTION_LIMIT {
            return Err(Failure::new(format!(
                "{next_hop}, the next hop to {target}, does not say its MAC address within {} s: is it up? \
                 (-R gives one by hand)",
                RESOLUTION_LIMIT.as_secs()
            )));
        }
        std::thread::sleep(RESOLUTION_PAUSE);
    }
}

/// The MAC address that the kernel knows, if it does.
fn neighbour(netlink: &Netlink, interface: u32, address: IpAddr) -> std::io::Result<Option<Mac>> {
    // struct ndmsg: family, padding 3, interface 4, state 2, flags, type.
    let mut body = vec![family_of(address), 0, 0, 0];
    body.extend(interface.to_ne_bytes());
    body.extend([0; 4]);
    let attributes = [Attribute::new(NDA_DST, octets_of(address))];
    let answer = match netlink.ask(RTM_GETNEIGH, &body, &attributes) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        other => other?,
    };
    let state = answer.fixed::<12>().map_or(0, |neighbour| {
        u16::from_ne_bytes([neighbour[8], neighbour[9]])
    });
    let mac = answer.attribute(12, NDA_LLADDR);
    Ok(mac
        .filter(|_| state & NUD_KNOWN != 0)
        .and_then(|mac| mac.try_into().ok()))
}

fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn octets_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn address_of(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_refused_with_what_would_be_right() {
        let failure = route("127.0.0.1".parse().unwrap(), None).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "127.0.0.1 is this machine: AF_XDP sends out of an interface; use `floodgate sockets`"
        );
    }

    #[test]
    fn the_loopback_interface_leads_nowhere() {
        let target = "192.0.2.1".parse().unwrap();
        let failure = check_ethernet("lo", target).unwrap_err().to_string();
        assert!(
            failure.contains("interface lo is the loopback interface"),
            "{failure}"
        );
        assert!(failure.contains("leads to 192.0.2.1"), "{failure}");
        assert_eq!(check_ethernet("eth-that-is-not-there", target), Ok(()));
    }

    #[test]
    fn a_port_behind_an_address_is_no_name() {
        for word in ["192.0.2.1:53", "[2001:db8::1]:53", "[2001:db8::1]"] {
            let failure = check_plain(word).unwrap_err().to_string();
            assert!(failure.ends_with("-p takes the port"), "{failure}");
        }
        for word in ["192.0.2.1", "2001:db8::1", "fe80::1%eth0", "ns.example"] {
            assert_eq!(check_plain(word), Ok(()));
        }
    }

    #[test]
    fn a_group_is_no_host() {
        let target = "255.255.255.255".parse().unwrap();
        let failure = route(target, None).unwrap_err().to_string();
        assert!(failure.contains("255.255.255.255"), "{failure}");
    }

    #[test]
    fn an_address_of_every_link_says_which_one() {
        let (here, anywhere) = ("fe80::1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!(on_link(here, 53, 7), "[fe80::1%7]:53".parse().unwrap());
        assert_eq!(on_link(anywhere, 53, 7), SocketAddr::new(anywhere, 53));
        assert_eq!(scope_of(on_link(here, 53, 7)), 7);
        for clear in [on_link(here, 53, 7), on_link(anywhere, 53, 7)] {
            assert_eq!(check_scope(clear), Ok(()));
        }
        let unclear = check_scope(SocketAddr::new(here, 53)).unwrap_err();
        assert!(unclear.to_string().ends_with("such as fe80::1%eth0"));
    }

    #[test]
    fn a_gateway_may_be_of_another_version_of_ip() {
        let route = |kind: u16, value: &[u8]| {
            let length = 4 + value.len() as u16;
            let mut octets = vec![0; ROUTE_FIXED];
            octets.extend(length.to_ne_bytes());
            octets.extend(kind.to_ne_bytes());
            octets.extend(value);
            octets.resize(octets.len().next_multiple_of(4), 0);
            gateway_of(&Answer(octets))
        };
        assert_eq!(
            route(RTA_GATEWAY, &[192, 0, 2, 1]),
            "192.0.2.1".parse().ok()
        );
        let address: std::net::Ipv6Addr = "fe80::1".parse().unwrap();
        let via = [&libc::AF_INET6.to_ne_bytes()[..2], &address.octets()].concat();
        assert_eq!(route(RTA_VIA, &via), Some(address.into()));
        for none in [route(RTA_VIA, &[10]), route(RTA_OIF, &[0; 4])] {
            assert_eq!(none, None);
        }
    }

    #[test]
    fn addresses_come_from_their_octets() {
        assert_eq!(address_of(&[192, 0, 2, 1]), "192.0.2.1".parse().ok());
        assert_eq!(address_of(&[0; 16]), "::".parse().ok());
        assert_eq!(address_of(&[1; 5]), None);
    }
}
