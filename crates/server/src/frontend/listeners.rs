//! The kernel sockets of the listeners: every address has them, beside AF_XDP too, for what the kernel program passes and
//! for answers that no ring of ours can send.

use super::inherited::Inherited;
use super::sys;
use super::tcp::Counters;
use crate::backend::buffers;
use crate::backend::source::bind_to;
use crate::config::{FastOpen, Listener, UdpBuffers};
use arc_swap::ArcSwap;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType,
    SockaddrStorage, listen, sendmsg, setsockopt, shutdown, socket, sockopt,
};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;
use xsk::{Spread, forget_spread, settle};

/// How a socket gets its address: a port below 1,024 takes a privilege.
pub type Bind<'b> = &'b dyn Fn(&OwnedFd, SocketAddr) -> io::Result<()>;

/// The sockets of one served address.
pub struct Sockets {
    /// Its place in [`Listeners`], and in `Way::Socket`: never used again for another address.
    pub number: u16,
    pub address: SocketAddr,
    /// The only interface by which queries come.
    pub interface: Option<String>,
    /// A SO_REUSEPORT group when there are several; worker `i` reads number `i`, any worker may send on any.
    pub udp: Vec<UdpSocket>,
    pub tcp: TcpListener,
    /// What its TCP connections did.
    pub connections: Arc<Counters>,
    /// The program that goes past stalled workers, where there is one.
    pub spread: OnceLock<Spread>,
    /// What the UDP sockets were given last; see [`Sockets::size_buffers`].
    buffers: Mutex<UdpBuffers>,
    /// Nobody else has them, or will go on with them.
    pub is_ours: bool,
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
        if !listener.reuse_port {
            drop(bound(listener, SockType::Datagram, false, bind)?);
        }
        let share = listener.reuse_port || count > 1;
        let udp = (0..count)
            .map(|_| udp(listener, share, bind))
            .collect::<io::Result<Vec<_>>>()?;
        let tcp = tcp(listener, bind)?;
        Ok(Sockets::of((number, true), listener, udp, tcp))
    }

    /// As [`Sockets::bind`], with the sockets that are there already; those that are missing are bound. How many UDP sockets
    /// could not be added to the group (it belongs to another user), and why.
    ///
    /// # Errors
    /// There is no UDP socket yet and none can be bound, or none for TCP.
    pub fn inherit(
        number: u16,
        listener: &Listener,
        count: usize,
        inherited: &mut Inherited,
        bind: Bind<'_>,
    ) -> io::Result<(Sockets, Option<String>)> {
        let address = listener.address;
        let mut udp = inherited.take_udp(address);
        let mut shortfall = None;
        for socket in &udp {
            // What joins a group must find it open for that.
            setsockopt(
                socket,
                sockopt::ReusePort,
                &(listener.reuse_port || count > 1),
            )?;
            socket.set_nonblocking(true)?;
            prepare_datagrams(socket, address)?;
        }
        while udp.len() < count {
            match self::udp(listener, listener.reuse_port || count > 1, bind) {
                Ok(socket) => udp.push(socket),
                Err(error) if udp.is_empty() => return Err(error),
                Err(error) => {
                    shortfall = Some(format!("{} of {count} sockets: {error}", udp.len()));
                    break;
                }
            }
        }
        let tcp = match inherited.take_tcp(address) {
            Some(tcp) => tcp,
            None => self::tcp(listener, bind)?,
        };
        tcp.set_nonblocking(true)?;
        fast_open(&tcp, listener.tcp_fast_open)?;
        let is_ours = !inherited.is_lent(address);
        let sockets = Sockets::of((number, is_ours), listener, udp, tcp);
        Ok((sockets, shortfall))
    }

    fn of(
        (number, is_ours): (u16, bool),
        listener: &Listener,
        udp: Vec<UdpSocket>,
        tcp: TcpListener,
    ) -> Sockets {
        Sockets {
            number,
            address: listener.address,
            interface: listener.interface.clone(),
            udp,
            tcp,
            connections: Arc::default(),
            spread: OnceLock::new(),
            buffers: Mutex::default(),
            is_ours,
        }
    }

    /// setUDPSocketBufferSizes. What the kernel gave less of, in words. Sizes that the sockets were given before are not asked
    /// for again: what the kernel gave while there were privileges it would cut now.
    ///
    /// # Errors
    /// What the kernel says; not of sizes that it cuts.
    pub fn size_buffers(&self, wanted: UdpBuffers) -> io::Result<Option<String>> {
        let mut given = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if *given == wanted {
            return Ok(None);
        }
        let receive = match wanted.receive {
            0 => RECEIVE_BUFFER,
            bytes => bytes,
        };
        for socket in &self.udp {
            buffers::set(socket, UdpBuffers { receive, ..wanted })?;
        }
        *given = wanted;
        Ok(buffers::shortfall(&self.udp[0], wanted))
    }

    /// From now on datagrams go past the sockets of workers that show no life.
    ///
    /// # Errors
    /// What the kernel says; then it chooses by hash alone, as it did.
    pub fn spread_by(&self, spread: Spread) -> xsk::Result<()> {
        self.enter_all(&spread)?;
        spread.attach(&self.udp[0])?;
        // Two programs for one group there are not.
        let _ = self.spread.set(spread);
        Ok(())
    }

    /// A socket is in one program's map. What a process left there that has ended is gone a moment after its program.
    fn enter_all(&self, spread: &Spread) -> xsk::Result<()> {
        for (worker, socket) in self.udp.iter().enumerate() {
            let mut entered = spread.enter(worker as u32, socket);
            for _ in 0..UNTIL_GONE {
                let is_elsewhere = |error: &xsk::Error| error.raw_os_error() == Some(libc::EBUSY);
                if !entered.as_ref().is_err_and(is_elsewhere) {
                    break;
                }
                forget_spread(socket);
                settle();
                entered = spread.enter(worker as u32, socket);
            }
            entered?;
        }
        Ok(())
    }

    /// The sockets leave the program's map, so that another process can choose among them.
    pub fn stop_spreading(&self) {
        let Some(spread) = self.spread.get() else {
            return;
        };
        for worker in 0..self.udp.len() as u32 {
            // What stays makes the next process's program wait, and say so.
            let _ = spread.leave(worker);
        }
    }

    /// They are in it again.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn spread_again(&self) -> xsk::Result<()> {
        let Some(spread) = self.spread.get() else {
            return Ok(());
        };
        self.enter_all(spread)?;
        spread.attach(&self.udp[0])
    }

    /// Takes no more queries: from now on the ports are closed to all the world, and what waits in the buffers of the UDP sockets
    /// can still be read. Answers can still be sent by these: each is connected to its own address, and to a socket that is
    /// connected comes only what its peer sends (udp(7)), while sendmsg(2) names any other. Sockets that systemd has too stay as they
    /// are: it may listen at them for the next start.
    ///
    /// # Errors
    /// What the kernel says, as where the address is no longer one of this host: then nothing is to be sent from it either.
    pub fn take_no_more(&self) -> io::Result<()> {
        if !self.is_ours {
            return Ok(());
        }
        shutdown(self.tcp.as_raw_fd(), Shutdown::Both)?;
        let own = match self.address.ip() {
            IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            address => address,
        };
        let mut own_end = self.address;
        own_end.set_ip(own);
        self.udp
            .iter()
            .try_for_each(|socket| socket.connect(own_end))
    }

    /// Duplicates of all of them, for another process.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        let udp = self.udp.iter().map(AsFd::as_fd);
        let all = udp.chain([self.tcp.as_fd()]);
        all.map(|socket| socket.try_clone_to_owned()).collect()
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

/// How often to wait for what a former process has left to be gone: each time the kernel ends what it had begun.
const UNTIL_GONE: u32 = 50;

/// Whether [`Sockets::bind`] would find its address free. Of a shared address only that of TCP is tried: to a UDP socket that is
/// gone at once the kernel would give queries of those who share it.
///
/// # Errors
/// The kernel's: the address is in use, or not ours.
pub fn probe(listener: &Listener, bind: Bind<'_>) -> io::Result<()> {
    let share = listener.reuse_port;
    if !share {
        drop(bound(listener, SockType::Datagram, share, bind)?);
    }
    drop(bound(listener, SockType::Stream, share, bind)?);
    Ok(())
}

fn tcp(listener: &Listener, bind: Bind<'_>) -> io::Result<TcpListener> {
    let tcp = bound(listener, SockType::Stream, listener.reuse_port, bind)?;
    let backlog = i32::try_from(listener.tcp_listen_queue_size).unwrap_or(i32::MAX);
    listen(&tcp, Backlog::new(backlog).unwrap_or(Backlog::MAXCONN))?;
    if listener.tcp_fast_open != FastOpen::default() {
        fast_open(&tcp, listener.tcp_fast_open)?;
    }
    Ok(TcpListener::from(tcp))
}

fn fast_open(tcp: &impl AsFd, wanted: FastOpen) -> io::Result<()> {
    if let Some(key) = &wanted.key {
        sys::set_fast_open_key(tcp.as_fd(), key)?;
    }
    sys::set_fast_open_queue(tcp.as_fd(), wanted.queue)
}

fn udp(listener: &Listener, share: bool, bind: Bind<'_>) -> io::Result<UdpSocket> {
    let socket = UdpSocket::from(bound(listener, SockType::Datagram, share, bind)?);
    prepare_datagrams(&socket, listener.address)?;
    Ok(socket)
}

fn prepare_datagrams(socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv4() {
        setsockopt(
            socket,
            sockopt::Ipv4PacketInfo,
            &address.ip().is_unspecified(),
        )?;
    } else {
        setsockopt(
            socket,
            sockopt::Ipv6RecvPacketInfo,
            &address.ip().is_unspecified(),
        )?;
    }
    sys::ignore_path_mtu(socket.as_fd(), address.is_ipv4())?;
    // Without CAP_NET_ADMIN it gets what net.core.rmem_max allows.
    if setsockopt(socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
    }
    Ok(())
}

/// SO_RCVBUF of listening sockets in bytes; the kernel doubles it. The default, 212,992, holds 277 small queries: a worker
/// that is kept from its core for a millisecond loses some at 300,000 a second. This holds 10,900, those of 100 ms at 100,000 a
/// second: a restart is over before.
const RECEIVE_BUFFER: usize = 1 << 22;

fn bound(listener: &Listener, kind: SockType, share: bool, bind: Bind<'_>) -> io::Result<OwnedFd> {
    let address = listener.address;
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
    if let Some(interface) = &listener.interface {
        bind_to(&socket, interface)?;
    }
    bind(&socket, address)?;
    Ok(socket)
}

/// All listeners, for whoever sends an answer.
#[derive(Default)]
pub struct Listeners {
    /// By number.
    all: ArcSwap<Vec<Option<Arc<Sockets>>>>,
    /// Those that a reload has removed, and some of whose queries may still wait for their answers until that moment.
    leaving: ArcSwap<Vec<(Arc<Sockets>, Instant)>>,
}

impl Listeners {
    pub fn new(sockets: Vec<Option<Arc<Sockets>>>) -> Listeners {
        Listeners {
            all: ArcSwap::from_pointee(sockets),
            leaving: ArcSwap::default(),
        }
    }

    pub fn all(&self) -> Arc<Vec<Option<Arc<Sockets>>>> {
        self.all.load_full()
    }

    pub fn replace(&self, sockets: Vec<Option<Arc<Sockets>>>) {
        self.all.store(Arc::new(sockets));
    }

    /// Answers may leave by these until then: to be told before they are no longer among [`Listeners::all`]. As all that changes
    /// listeners the control thread's alone.
    pub fn let_leave(&self, sockets: &[Arc<Sockets>], until: Instant) {
        let mut leaving = Vec::clone(&self.leaving.load());
        leaving.extend(sockets.iter().map(|sockets| (Arc::clone(sockets), until)));
        self.leaving.store(Arc::new(leaving));
    }

    /// No answer leaves any more by those of which this is true; which these are.
    pub fn forget(&self, is_over: impl Fn(&Sockets, Instant) -> bool) -> Vec<Arc<Sockets>> {
        let leaving = Vec::clone(&self.leaving.load());
        let is_over = |(sockets, until): &(Arc<Sockets>, Instant)| is_over(sockets, *until);
        let (gone, kept): (Vec<_>, Vec<_>) = leaving.into_iter().partition(is_over);
        if !gone.is_empty() {
            self.leaving.store(Arc::new(kept));
        }
        gone.into_iter().map(|(sockets, _)| sockets).collect()
    }

    /// Calls `send` with the listener by which an answer leaves whose query was sent to `destination`; `None` where none of ours is
    /// served there any more.
    #[inline]
    pub fn answer_by<R>(
        &self,
        destination: SocketAddr,
        send: impl FnOnce(&Sockets) -> R,
    ) -> Option<R> {
        let all = self.all.load();
        match serving(all.iter().flatten(), destination) {
            Some(sockets) => Some(send(sockets)),
            None => self.answer_leaving(destination, send),
        }
    }

    #[cold]
    fn answer_leaving<R>(
        &self,
        destination: SocketAddr,
        send: impl FnOnce(&Sockets) -> R,
    ) -> Option<R> {
        let leaving = self.leaving.load();
        let leaving = leaving.iter().map(|(sockets, _)| sockets);
        serving(leaving, destination).map(|sockets| send(sockets))
    }
}

/// The listener that serves `destination`: its own, else the wildcard of its family and port.
fn serving<'s>(
    mut all: impl Iterator<Item = &'s Arc<Sockets>> + Clone,
    destination: SocketAddr,
) -> Option<&'s Arc<Sockets>> {
    let exact = all.clone().find(|sockets| sockets.address == destination);
    exact.or_else(|| {
        all.find(|sockets| {
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
    use std::net::TcpStream;
    use testnet::loopback::own_port;

    fn listener(address: &str, reuse_port: bool) -> Listener {
        Listener {
            address: address.parse().unwrap(),
            sockets: 1,
            reuse_port,
            xdp: Xdp::Off,
            tcp_listen_queue_size: 128,
            maximum_tcp_connections: 0,
            pinning: Vec::new(),
            tcp_in_flight: 0,
            interface: None,
            tcp_fast_open: FastOpen::default(),
            proxy_protocol: true,
        }
    }

    fn directly(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
        crate::network::helper::Helper::none().bind(socket, address)
    }

    #[test]
    fn a_second_start_without_reuse_port_meets_address_in_use() {
        let one = listener(&format!("127.0.0.1:{}", own_port()), false);
        let first = Sockets::bind(0, &one, 2, &directly).unwrap();
        assert_eq!(first.udp.len(), 2);
        let error = Sockets::bind(0, &one, 2, &directly).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let probed = probe(&one, &directly).unwrap_err();
        assert_eq!(probed.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        probe(&one, &directly).unwrap();
        let only_tcp = std::net::TcpListener::bind(one.address).unwrap();
        let probed = probe(&one, &directly).unwrap_err();
        assert_eq!(probed.kind(), io::ErrorKind::AddrInUse);
        drop(only_tcp);
    }

    #[test]
    fn with_reuse_port_two_may_share() {
        let one = listener(&format!("127.0.0.1:{}", own_port()), true);
        let _first = Sockets::bind(0, &one, 1, &directly).unwrap();
        assert!(Sockets::bind(1, &one, 1, &directly).is_ok());
    }

    #[test]
    fn a_listener_of_an_interface_is_bound_to_it() {
        let mut one = listener(&format!("127.0.0.1:{}", own_port()), true);
        one.interface = Some("lo".to_owned());
        let sockets = Sockets::bind(0, &one, 2, &directly).unwrap();
        let devices = sockets.duplicates().unwrap();
        for socket in &devices {
            let device = nix::sys::socket::getsockopt(socket, sockopt::BindToDevice);
            assert_eq!(device.unwrap(), "lo");
        }
        assert_eq!(devices.len(), 3);
        let mut inherited = Inherited::default();
        for socket in devices {
            assert!(inherited.add(socket).is_none());
        }
        assert!(inherited.has_udp(one.address, Some("lo")));
        assert!(!inherited.has_udp(one.address, None));
        one.interface = Some("nosuch0".to_owned());
        let error = Sockets::bind(0, &one, 2, &directly).err().unwrap();
        assert!(
            error.to_string().starts_with("interface nosuch0: "),
            "{error}"
        );
    }

    #[test]
    fn tcp_fast_open_is_as_the_options_say() {
        let mut one = listener(&format!("127.0.0.1:{}", own_port()), true);
        let sockets = Sockets::bind(0, &one, 1, &directly).unwrap();
        assert_eq!(sys::fast_open(sockets.tcp.as_fd()).unwrap().0, 0);
        one.tcp_fast_open = FastOpen {
            queue: 64,
            key: Some(*b"0123456789abcdef"),
        };
        let sockets = Sockets::bind(0, &one, 1, &directly).unwrap();
        let (queue, key) = sys::fast_open(sockets.tcp.as_fd()).unwrap();
        assert_eq!((queue, &key[..]), (64, &b"0123456789abcdef"[..]));
    }

    #[test]
    fn every_socket_of_a_listener_gets_the_buffers_that_are_wanted() {
        let one = listener(&format!("127.0.0.1:{}", own_port()), false);
        let sockets = Sockets::bind(0, &one, 2, &directly).unwrap();
        let wanted = UdpBuffers {
            receive: 40_000,
            send: 30_000,
        };
        assert_eq!(sockets.size_buffers(wanted).unwrap(), None);
        for socket in &sockets.udp {
            let receive = nix::sys::socket::getsockopt(socket, sockopt::RcvBuf);
            let send = nix::sys::socket::getsockopt(socket, sockopt::SndBuf);
            assert_eq!((receive.unwrap(), send.unwrap()), (80_000, 60_000));
        }
        // A reload changes nothing where the wish is the same.
        setsockopt(&sockets.udp[1], sockopt::RcvBuf, &20_000).unwrap();
        assert_eq!(sockets.size_buffers(wanted).unwrap(), None);
        let kept = nix::sys::socket::getsockopt(&sockets.udp[1], sockopt::RcvBuf);
        assert_eq!(kept.unwrap(), 40_000);
        sockets.size_buffers(UdpBuffers::default()).unwrap();
        let usual = nix::sys::socket::getsockopt(&sockets.udp[1], sockopt::RcvBuf);
        assert!(usual.unwrap() > 80_000, "what it had without the function");
    }

    #[test]
    fn who_takes_no_more_reads_what_came_and_answers_it() {
        for ip in ["127.0.0.1", "0.0.0.0"] {
            let port = own_port();
            let sockets =
                Sockets::bind(0, &listener(&format!("{ip}:{port}"), false), 1, &directly).unwrap();
            let destination = SocketAddr::from(([127, 0, 0, 1], port));
            let client = || {
                let client = UdpSocket::bind("127.0.0.1:0").unwrap();
                client.connect(destination).unwrap();
                client
            };
            let early = client();
            early.send(b"early").unwrap();
            sockets.take_no_more().unwrap();
            let late = client();
            late.send(b"late").unwrap();
            let closed = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            assert!(late.recv(&mut [0; 8]).is_err_and(closed));
            assert!(TcpStream::connect(destination).is_err_and(closed));
            assert_eq!(sockets.udp[0].recv(&mut [0; 8]).unwrap(), 5);
            let to = early.local_addr().unwrap();
            sockets.send(destination, to, b"answer").unwrap();
            assert_eq!(early.recv(&mut [0; 8]).unwrap(), 6);
        }
    }

    #[test]
    fn sockets_that_systemd_has_too_stay_open() {
        let one = listener(&format!("127.0.0.1:{}", own_port()), true);
        let first = Sockets::bind(0, &one, 1, &directly).unwrap();
        let mut inherited = Inherited::default();
        for socket in first.duplicates().unwrap() {
            assert!(inherited.add_lent(socket).is_none());
        }
        let (lent, _) = Sockets::inherit(1, &one, 1, &mut inherited, &directly).unwrap();
        lent.take_no_more().unwrap();
        TcpStream::connect(one.address).unwrap();
    }

    #[test]
    fn a_wildcard_serves_what_no_listener_names() {
        let port = own_port();
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
        let number = |text: String| {
            serving(all.iter().flatten(), text.parse().unwrap()).map(|found| found.number)
        };
        assert_eq!(number(format!("127.0.0.1:{port}")), Some(1));
        assert_eq!(number(format!("127.0.0.2:{port}")), Some(0));
        assert_eq!(number(format!("[::1]:{port}")), None);
    }
}
