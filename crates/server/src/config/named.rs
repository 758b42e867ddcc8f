//! Listeners at paths: UNIX stream sockets that `addLocal` and `-l` name, which speak DNS as TCP does.

use super::addresses;
use super::error::Fault;
use super::place::Place;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;

/// Both ends of a query that came by a path, as rules, ACLs, logs and backends see them: 127.0.0.1 and no port.
pub const END: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// The longest path of a socket, in octets. unix(7): "the pathname in sun_path should be null-terminated", and that has 108.
pub const PATH_MAX: usize = 107;

/// Where a listener listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LocalAddress {
    /// UDP and TCP.
    Ip(SocketAddr),
    /// A UNIX stream socket.
    Path(Arc<Path>),
}

impl LocalAddress {
    /// What begins with `/` is a path, all else an address, with `port` if it has none.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(text: &str, port: u16) -> Result<LocalAddress, String> {
        match text.starts_with('/') {
            true => path_of(text).map(LocalAddress::Path),
            false => addresses::with_port(text, port).map(LocalAddress::Ip),
        }
    }

    /// What came by it was sent there.
    pub fn destination(&self) -> SocketAddr {
        match self {
            LocalAddress::Ip(address) => *address,
            LocalAddress::Path(_) => END,
        }
    }
}

/// The path of a listener, in a text that begins with `/`.
///
/// # Errors
/// What was expected.
pub fn path_of(text: &str) -> Result<Arc<Path>, String> {
    if text.ends_with('/') {
        return Err(format!(
            "'{text}' is a folder: the path of a socket expected, as in /run/millrace/dns.sock"
        ));
    }
    if text.contains('\0') {
        return Err(format!(
            "'{}' is no path: no file has an octet 0 in its name",
            text.escape_default()
        ));
    }
    if text.len() > PATH_MAX {
        return Err(format!(
            "'{text}' has {} octets: the path of a socket has at most {PATH_MAX}",
            text.len()
        ));
    }
    Ok(Path::new(text).into())
}

impl From<SocketAddr> for LocalAddress {
    fn from(address: SocketAddr) -> LocalAddress {
        LocalAddress::Ip(address)
    }
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalAddress::Ip(address) => write!(f, "{address}"),
            LocalAddress::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// One line for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSpec {
    pub place: Place,
    pub listener: NamedListener,
}

/// A path that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedListener {
    pub path: Arc<Path>,
    /// tcpListenQueueSize, in connections.
    pub tcp_listen_queue_size: u32,
    /// maxConcurrentTCPConnections; 0 is no limit.
    pub maximum_tcp_connections: usize,
    /// maxInFlight: queries on a connection at a time; 0 is one, in order.
    pub tcp_in_flight: usize,
    /// enableProxyProtocol.
    pub proxy_protocol: bool,
}

impl NamedListener {
    /// What a path means without options.
    pub fn plain(path: Arc<Path>) -> NamedListener {
        NamedListener {
            path,
            tcp_listen_queue_size: super::defaults::TCP_LISTEN_QUEUE_SIZE,
            maximum_tcp_connections: 0,
            tcp_in_flight: 0,
            proxy_protocol: true,
        }
    }
}

/// The paths of all lines, each once.
pub(super) fn listeners(lines: &[NamedSpec], faults: &mut Vec<Fault>) -> Vec<NamedListener> {
    let mut listeners: Vec<NamedListener> = Vec::new();
    for NamedSpec { place, listener } in lines {
        if listeners.iter().any(|known| known.path == listener.path) {
            faults.push(Fault {
                place: place.clone(),
                text: format!(
                    "{} is served by an earlier line already: a path has one line",
                    listener.path.display()
                ),
            });
            continue;
        }
        listeners.push(listener.clone());
    }
    listeners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_a_slash_is_a_path() {
        for text in ["/run/millrace/dns.sock", "/x"] {
            let address = LocalAddress::parse(text, 53).unwrap();
            assert_eq!(address, LocalAddress::Path(Path::new(text).into()));
            assert_eq!(address.to_string(), text);
            assert_eq!(address.destination(), END);
        }
        let address = LocalAddress::parse("192.0.2.1", 53).unwrap();
        assert_eq!(address.to_string(), "192.0.2.1:53");
        assert_eq!(address.destination().to_string(), "192.0.2.1:53");
        assert!(LocalAddress::parse("run/dns.sock", 53).is_err());
    }

    #[test]
    fn a_path_has_107_octets_at_most() {
        let path = |octets: usize| format!("/{}", "a".repeat(octets - 1));
        assert!(LocalAddress::parse(&path(PATH_MAX), 53).is_ok());
        let error = LocalAddress::parse(&path(PATH_MAX + 1), 53).unwrap_err();
        assert!(
            error.ends_with("' has 108 octets: the path of a socket has at most 107"),
            "{error}"
        );
        for bad in ["/", "/run/", "/run/a\0b"] {
            assert!(LocalAddress::parse(bad, 53).is_err(), "{bad:?}");
        }
    }
}
