//! Listening sockets that are older than this process: handed over by the one that it succeeds, or kept by systemd. What they
//! are bound to they tell themselves, so that no names have to be agreed upon; whose the file of a path is they do not.

use super::named::Owner;
use nix::sys::socket::{
    SockType, SockaddrLike, SockaddrStorage, UnixAddr, getsockname, getsockopt, sockopt,
};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// By the addresses that they are bound to; each is taken once.
#[derive(Debug, Default)]
pub struct Inherited {
    udp: HashMap<SocketAddr, Vec<UdpSocket>>,
    tcp: HashMap<SocketAddr, Vec<TcpListener>>,
    named: HashMap<PathBuf, (UnixListener, Owner)>,
    /// Of which whoever started us has duplicates, and keeps them.
    lent: HashSet<SocketAddr>,
}

impl Inherited {
    /// Takes in a socket; one that is neither bound to an address of IP nor UDP nor listening comes back. The file of one that
    /// listens at a path is somebody else's.
    pub fn add(&mut self, socket: OwnedFd) -> Option<OwnedFd> {
        let Some(address) = address_of(&socket) else {
            return self.add_named(socket, Owner::Other);
        };
        match getsockopt(&socket, sockopt::SockType) {
            Ok(SockType::Datagram) => self.udp.entry(address).or_default().push(socket.into()),
            Ok(SockType::Stream) if getsockopt(&socket, sockopt::AcceptConn) == Ok(true) => {
                self.tcp.entry(address).or_default().push(socket.into());
            }
            _ => return Some(socket),
        }
        None
    }

    /// The same for a socket of which whoever started us has a duplicate, and keeps it: systemd, of what a socket unit listens at.
    pub fn add_lent(&mut self, socket: OwnedFd) -> Option<OwnedFd> {
        self.lent.extend(address_of(&socket));
        self.add(socket)
    }

    /// Duplicates of the sockets of this address, as lent as these are.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn copies_at(&self, address: SocketAddr) -> io::Result<Inherited> {
        let udp = self.udp.get(&address).into_iter().flatten();
        let tcp = self.tcp.get(&address).into_iter().flatten();
        let mut copies = Inherited::default();
        for socket in udp.map(AsFd::as_fd).chain(tcp.map(AsFd::as_fd)) {
            copies.add_lent(socket.try_clone_to_owned()?);
        }
        Ok(copies)
    }

    /// Closes all but what is lent and stands at no address of which this is true.
    pub fn keep_lent(&mut self, is_served: impl Fn(SocketAddr) -> bool) {
        let stays = |address: &SocketAddr| self.lent.contains(address) && !is_served(*address);
        self.udp.retain(|address, _| stays(address));
        self.tcp.retain(|address, _| stays(address));
        self.named.clear();
    }

    /// Whether somebody else may go on with the sockets of this address.
    pub fn is_lent(&self, address: SocketAddr) -> bool {
        self.lent.contains(&address)
    }

    /// Takes in a socket that listens at a path; another one comes back.
    pub fn add_named(&mut self, socket: OwnedFd, owner: Owner) -> Option<OwnedFd> {
        let Some(path) = path_of(&socket) else {
            return Some(socket);
        };
        self.named.insert(path, (socket.into(), owner));
        None
    }

    /// The socket that listens at this path, and whose its file is.
    pub fn take_named(&mut self, path: &Path) -> Option<(UnixListener, Owner)> {
        self.named.remove(path)
    }

    /// All sockets at paths that nobody has taken.
    pub fn take_all_named(&mut self) -> HashMap<PathBuf, (UnixListener, Owner)> {
        std::mem::take(&mut self.named)
    }

    /// Whether there are sockets for datagrams to this address, by this interface alone or by all.
    pub fn has_udp(&self, address: SocketAddr, interface: Option<&str>) -> bool {
        self.udp.get(&address).is_some_and(|sockets| {
            let mut sockets = sockets.iter();
            sockets.all(|socket| {
                let device = getsockopt(socket, sockopt::BindToDevice).unwrap_or_default();
                device == interface.unwrap_or_default()
            })
        })
    }

    /// The sockets for datagrams to this address.
    pub fn take_udp(&mut self, address: SocketAddr) -> Vec<UdpSocket> {
        self.udp.remove(&address).unwrap_or_default()
    }

    /// The listener at this address.
    pub fn take_tcp(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let mut listeners = self.tcp.remove(&address)?.into_iter();
        listeners.next()
    }

    /// Closes what is bound to this address, which would keep others from it; whether there was something.
    pub fn close(&mut self, address: SocketAddr) -> bool {
        let udp = self.udp.remove(&address);
        let tcp = self.tcp.remove(&address);
        udp.is_some() || tcp.is_some()
    }

    /// The addresses of what nobody has taken.
    pub fn left(&self) -> Vec<SocketAddr> {
        let mut left: Vec<_> = self.udp.keys().chain(self.tcp.keys()).copied().collect();
        left.sort_unstable();
        left.dedup();
        left
    }
}

/// What a socket is bound to, if that is an address and port of IP.
fn address_of(socket: &OwnedFd) -> Option<SocketAddr> {
    let own: SockaddrStorage = getsockname(socket.as_raw_fd()).ok()?;
    own.family()?;
    let v4 = own
        .as_sockaddr_in()
        .map(|&address| SocketAddr::V4(address.into()));
    v4.or_else(|| {
        own.as_sockaddr_in6()
            .map(|&address| SocketAddr::V6(address.into()))
    })
}

/// Where a socket listens, if that is a path.
fn path_of(socket: &OwnedFd) -> Option<PathBuf> {
    let own: UnixAddr = getsockname(socket.as_raw_fd()).ok()?;
    let is_stream = getsockopt(socket, sockopt::SockType) == Ok(SockType::Stream);
    let listens = is_stream && getsockopt(socket, sockopt::AcceptConn) == Ok(true);
    own.path().filter(|_| listens).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use testnet::loopback::own_port;

    #[test]
    fn sockets_at_paths_are_found_by_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        let [streams, datagrams] = ["streams", "datagrams"].map(|name| folder.path().join(name));
        let listener = UnixListener::bind(&streams).unwrap();
        let mut inherited = Inherited::default();
        let copy = listener.try_clone().unwrap();
        assert!(inherited.add(copy.into()).is_none());
        let (_, owner) = inherited.take_named(&streams).unwrap();
        assert_eq!(owner, Owner::Other, "as with a socket unit");
        assert!(
            inherited
                .add_named(listener.into(), Owner::Successor)
                .is_none()
        );
        let no_stream = UnixDatagram::bind(&datagrams).unwrap();
        assert!(inherited.add(no_stream.into()).is_some());
        let (nameless, _) = UnixStream::pair().unwrap();
        assert!(inherited.add(nameless.into()).is_some());
        assert!(inherited.left().is_empty(), "no addresses");
        let left = inherited.take_all_named();
        assert_eq!(left[&streams].1, Owner::Successor);
        assert!(inherited.take_named(&streams).is_none());
    }

    #[test]
    fn sockets_are_found_by_what_they_are_bound_to() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("[::1]:0").unwrap();
        let (datagrams, streams) = (udp.local_addr().unwrap(), tcp.local_addr().unwrap());
        let connected = TcpStream::connect(streams).unwrap();
        let mut inherited = Inherited::default();
        assert!(inherited.add(udp.into()).is_none());
        assert!(inherited.add(tcp.into()).is_none());
        assert!(inherited.add(connected.into()).is_some(), "no listener");
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(inherited.add(file.into()).is_some(), "no socket");
        assert_eq!(inherited.left().len(), 2);
        assert_eq!(inherited.take_udp(streams).len(), 0);
        assert_eq!(inherited.take_udp(datagrams).len(), 1);
        assert!(inherited.take_tcp(datagrams).is_none());
        assert!(inherited.take_tcp(streams).is_some());
        assert!(inherited.left().is_empty());
    }

    #[test]
    fn what_is_closed_keeps_nobody_from_its_address() {
        let address = SocketAddr::from(([127, 0, 0, 1], own_port()));
        let udp = UdpSocket::bind(address).unwrap();
        let mut inherited = Inherited::default();
        assert!(inherited.add(udp.into()).is_none());
        assert!(inherited.has_udp(address, None) && !inherited.has_udp(address, Some("lo")));
        assert!(inherited.close(address) && !inherited.close(address));
        assert!(inherited.left().is_empty());
        UdpSocket::bind(address).unwrap();
    }
}
