//! The kernel sockets of the listeners: every address has them, beside AF_XDP too, for what the kernel program passes and
//! for answers that no ring of ours can send.

use super::sys;
use super::tcp::Counters;
use crate::config::Listener;
use arc_swap::ArcSwap;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, SockaddrStorage, listen,
    sendmsg, setsockopt, socket, sockopt,
};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use xsk::Spread;

/// How a socket gets its address: a port below 1,024 takes a privilege.
pub type Bind<'b> = &'b dyn Fn(&OwnedFd, SocketAddr) -> io::Result<()>;

/// The sockets of one served address.
pub struct Sockets {
    /// Its place in [`Listeners`], and in `Way::Socket`: never used again for another address.
    pub number: u16,
    pub address: SocketAddr,
    /// A SO_REUSEPORT group when there are several; worker `i` reads number `i`, any worker may send on any.
    pub udp: Vec<UdpSocket>,
    pub tcp: TcpListener,
    /// What its TCP connections did.
    pub connections: Arc<Counters>,
    /// The program that goes past stalled workers, where there is one.
    pub spread: Option<Spread>,
}

impl Sockets {
    /// Binds `count` UDP sockets and one for TCP.
    ///
    /// Without `reusePort` the address is first bound alone, so that a second start meets "address in use" rather than
    /// taking half of the queries.
    pub fn bind(
        number: u16,
        listener: &Listener,
        count: usize,
        bind: Bind<'_>,
    ) -> io::Result<Sockets> {
        let address = listener.address;
        if !listener.reuse_port {
            drop(bound(address, SockType::Datagram, false, bind)?);
        }
        let share = listener.reuse_port || count > 1;
        let udp = (0..count)
            .map(|_| udp(address, share, bind))
            .collect::<io::Result<Vec<_>>>()?;
        let tcp = bound(address, SockType::Stream, listener.reuse_port, bind)?;
        let backlog = i32::try_from(listener.tcp_listen_queue_size).unwrap_or(i32::MAX);
        listen(&tcp, Backlog::new(backlog).unwrap_or(Backlog::MAXCONN))?;
        Ok(Sockets {
            number,
            address,
            udp,
            tcp: TcpListener::from(tcp),
            connections: Arc::default(),
            spread: None,
        })
    }

    /// From now on datagrams go past the sockets of workers that show no life.
    ///
    /// # Errors
    /// What the kernel says; then it chooses by hash alone, as it did.
    pub fn spread_by(&mut self, spread: Spread) -> xsk::Result<()> {
        for (worker, socket) in self.udp.iter().enumerate() {
            spread.enter(worker as u32, socket)?;
        }
        spread.attach(&self.udp[0])?;
        self.spread = Some(spread);
        Ok(())
    }

    /// Sends one answer; for those that leave no worker.
    ///
    /// # Errors
    /// What the kernel says; the answer is lost.
    pub fn send(
        &self,
        destination: SocketAddr,
        client: SocketAddr,
        message: &[u8],
    ) -> io::Result<()> {
        let client = SockaddrStorage::from(client);
        let (v4, v6);
        let control = match self.source(destination) {
            None => None,
            Some(IpAddr::V4(source)) => {
                v4 = sys::packet_info_v4(source);
                Some(ControlMessage::Ipv4PacketInfo(&v4))
            }
            Some(IpAddr::V6(source)) => {
                v6 = sys::packet_info_v6(source);
                Some(ControlMessage::Ipv6PacketInfo(&v6))
            }
        };
        let parts = [IoSlice::new(message)];
        let socket = self.udp[0].as_raw_fd();
        sendmsg(
            socket,
            &parts,
            control.as_slice(),
            MsgFlags::MSG_DONTWAIT,
            Some(&client),
        )?;
        Ok(())
    }

    /// The source that answers must name: `None` when the socket is bound to it anyway.
    pub fn source(&self, destination: SocketAddr) -> Option<IpAddr> {
        self.address
            .ip()
            .is_unspecified()
            .then_some(destination.ip())
    }
}

fn udp(address: SocketAddr, share: bool, bind: Bind<'_>) -> io::Result<UdpSocket> {
    let socket = bound(address, SockType::Datagram, share, bind)?;
    if address.is_ipv4() {
        setsockopt(
            &socket,
            sockopt::Ipv4PacketInfo,
            &address.ip().is_unspecified(),
        )?;
    } else {
        setsockopt(
            &socket,
            sockopt::Ipv6RecvPacketInfo,
            &address.ip().is_unspecified(),
        )?;
    }
    sys::ignore_path_mtu(socket.as_fd(), address.is_ipv4())?;
    // Without CAP_NET_ADMIN it gets what net.core.rmem_max allows.
    if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
    }
    Ok(UdpSocket::from(socket))
}

/// SO_RCVBUF of listening sockets in bytes; the kernel doubles it. The default, 212,992, holds 277 small queries: a worker
/// that is kept from its core for a millisecond loses some at 300,000 a second. This holds 2,700.
const RECEIVE_BUFFER: usize = 1 << 20;

fn bound(address: SocketAddr, kind: SockType, share: bool, bind: Bind<'_>) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let socket = socket(
        family,
        kind,
        SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    if kind == SockType::Stream {
        // A restart must not wait for the connections of the last one to time out.
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    }
    setsockopt(&socket, sockopt::ReusePort, &share)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    bind(&socket, address)?;
    Ok(socket)
}

/// All listeners by number, for whoever sends an answer.
#[derive(Default)]
pub struct Listeners(ArcSwap<Vec<Option<Arc<Sockets>>>>);

impl Listeners {
    pub fn new(sockets: Vec<Option<Arc<Sockets>>>) -> Listeners {
        Listeners(ArcSwap::from_pointee(sockets))
    }

    pub fn all(&self) -> Arc<Vec<Option<Arc<Sockets>>>> {
        self.0.load_full()
    }

    pub fn replace(&self, sockets: Vec<Option<Arc<Sockets>>>) {
        self.0.store(Arc::new(sockets));
    }

    pub fn snapshot(&self) -> arc_swap::Guard<Arc<Vec<Option<Arc<Sockets>>>>> {
        self.0.load()
    }
}

/// The listener that serves `destination`: its own, else the wildcard of its family and port.
pub fn serving(all: &[Option<Arc<Sockets>>], destination: SocketAddr) -> Option<&Arc<Sockets>> {
    let exact = all
        .iter()
        .flatten()
        .find(|sockets| sockets.address == destination);
    exact.or_else(|| {
        all.iter().flatten().find(|sockets| {
            sockets.address.ip().is_unspecified()
                && sockets.address.port() == destination.port()
                && sockets.address.is_ipv4() == destination.is_ipv4()
        })
    })
}

/// The socket by which an answer for listener `sockets` leaves worker `worker`.
pub fn outlet(sockets: &Sockets, worker: usize) -> BorrowedFd<'_> {
    sockets.udp[worker % sockets.udp.len()].as_fd()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Xdp;

    fn listener(address: &str, reuse_port: bool) -> Listener {
        Listener {
            address: address.parse().unwrap(),
            sockets: 1,
            reuse_port,
            xdp: Xdp::Off,
            tcp_listen_queue_size: 128,
        }
    }

    fn directly(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
        crate::network::helper::Helper::none().bind(socket, address)
    }

    /// A port of 127.0.0.1 that is free for UDP and TCP.
    fn free_port() -> u16 {
        UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port()
    }

    #[test]
    fn a_second_start_without_reuse_port_meets_address_in_use() {
        let one = listener(&format!("127.0.0.1:{}", free_port()), false);
        let first = Sockets::bind(0, &one, 2, &directly).unwrap();
        assert_eq!(first.udp.len(), 2);
        let error = Sockets::bind(0, &one, 2, &directly).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn with_reuse_port_two_may_share() {
        let one = listener(&format!("127.0.0.1:{}", free_port()), true);
        let _first = Sockets::bind(0, &one, 1, &directly).unwrap();
        assert!(Sockets::bind(1, &one, 1, &directly).is_ok());
    }

    #[test]
    fn a_wildcard_serves_what_no_listener_names() {
        let port = free_port();
        let wild =
            Sockets::bind(0, &listener(&format!("0.0.0.0:{port}"), true), 1, &directly).unwrap();
        let own = Sockets::bind(
            1,
            &listener(&format!("127.0.0.1:{port}"), true),
            1,
            &directly,
        )
        .unwrap();
        let all = [Some(Arc::new(wild)), None, Some(Arc::new(own))];
        let number = |text: String| serving(&all, text.parse().unwrap()).map(|found| found.number);
        assert_eq!(number(format!("127.0.0.1:{port}")), Some(1));
        assert_eq!(number(format!("127.0.0.2:{port}")), Some(0));
        assert_eq!(number(format!("[::1]:{port}")), None);
    }
}
