//! The pool of backend ports: kernel UDP sockets that queries to backends leave from, over AF_XDP too.
//!
//! Each source address has a pool of bound, unconnected sockets (1,024 by default), shared by all backends and all workers.
//! They reserve the ports, send what goes by the kernel, and catch what the kernel program passes. RFC 5452, section 9.2:
//! "Use an unpredictable source port for outgoing queries from the range of available ports … 1024 and above … as large as
//! possible", which the kernel's own choice for port 0 is: random, and never a reserved port.
//!
//! Any worker sends on any socket; each is read by one worker ([`PortReader`]). Ports are exchanged one by one
//! ([`Ports::rotate_one`]), so that nobody learns them all.
//!
//! ```text
//!  bind ─▶ watch.opened ─▶ in the pool: chosen at random ─▶ draining: only read ─ time-out ─▶ watch.closing ─▶ closed
//! ```
//!
//! A server whose route gets another source address moves to the ports of that one ([`Ports::prepare`]); those of the old
//! address drain when nobody is asked from it any more ([`Ports::retire_unused`]), and are used again if it comes back
//! meanwhile.

mod descriptors;
mod reader;
mod rotation;

pub use reader::PortReader;
pub use rotation::Rotation;

use super::buffers;
use super::exchange::Port;
use super::server::Server;
use super::source::Source;
use crate::clock::Now;
use crate::config::UdpBuffers;
use crate::random::Random;
use arc_swap::{ArcSwap, Guard};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{setsockopt, sockopt::RcvBuf};
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ports per source address. 1,024 of them and 65,536 IDs are 26 bits to guess.
pub const PORTS_PER_SOURCE: usize = 1_024;

/// Queries of one batch that leave from one port: their answers come to one socket, and one recvmmsg reads them.
const CLUSTER: u8 = 32;

/// SO_RCVBUF in bytes; the kernel doubles it. The smallest power of two that holds one cluster of large answers: 56 of
/// 1,232 bytes (2,304 bytes each in the kernel), 102 of 512 (1,280), 157 of 120 (832), as measured on loopback and veth.
/// All sockets of an address full and unread hold 134 MB; with the kernel's default it would be 218 MB.
const RECEIVE_BUFFER: usize = 65_536;

/// Learns which ports answers can come to: the kernel program's bitmap.
pub trait PortWatch: Send + Sync {
    /// The port is bound and about to be used.
    fn opened(&self, local: SocketAddr);
    /// No answer is waited for at this port any more; it will be closed.
    fn closing(&self, local: SocketAddr);
}

/// Nobody needs to know.
impl PortWatch for () {
    fn opened(&self, _: SocketAddr) {}
    fn closing(&self, _: SocketAddr) {}
}

/// A backend port with its socket.
#[derive(Debug)]
pub struct BoundPort {
    socket: UdpSocket,
    local: SocketAddr,
}

impl BoundPort {
    fn bind(leaving: &Leaving, sizes: UdpBuffers) -> io::Result<BoundPort> {
        let socket = leaving.by.udp(leaving.from)?;
        setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER)?;
        buffers::set(&socket, sizes)?;
        let local = socket.local_addr()?;
        Ok(BoundPort { socket, local })
    }

    /// Where answers to it are sent.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

impl AsFd for BoundPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What the ports of a pool have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Leaving {
    /// With port 0, and the interface of a link-local address.
    from: SocketAddr,
    /// The interface and the mark of packets; no more than that, so that servers share ports.
    by: Source,
}

impl Leaving {
    fn new(from: SocketAddr, said: &Source) -> Leaving {
        let by = Source {
            interface: said.interface.clone(),
            dscp: said.dscp,
            ..Source::default()
        };
        Leaving { from, by }
    }
}

/// The ports of one source address.
#[derive(Debug, Clone)]
struct PortPool {
    leaving: Leaving,
    /// To choose from.
    ports: Vec<Arc<BoundPort>>,
    /// Out of use, still read until the moment given.
    draining: Vec<(Now, Arc<BoundPort>)>,
    /// All of them by their number, in ascending order.
    by_number: Vec<Arc<BoundPort>>,
}

impl PortPool {
    /// One without ports.
    fn new(leaving: Leaving) -> PortPool {
        PortPool {
            leaving,
            ports: Vec::new(),
            draining: Vec::new(),
            by_number: Vec::new(),
        }
    }

    /// Those that would be read longest of the ports that drain, `count` at most: to be used again.
    fn revive(&mut self, count: usize) -> Vec<Arc<BoundPort>> {
        self.draining.sort_by_key(|(until, _)| *until);
        let first = self.draining.len().saturating_sub(count);
        let revived = self.draining.drain(first..);
        revived.map(|(_, port)| port).collect()
    }

    fn sort(&mut self) {
        let draining = self.draining.iter().map(|(_, port)| port);
        self.by_number = self.ports.iter().chain(draining).cloned().collect();
        self.by_number
            .sort_unstable_by_key(|port| port.local.port());
    }

    fn find(&self, number: u16) -> Option<&Arc<BoundPort>> {
        let place = self
            .by_number
            .binary_search_by_key(&number, |port| port.local.port());
        self.by_number.get(place.ok()?)
    }
}

/// All pools as they are at one moment.
type Pools = Vec<Arc<PortPool>>;

/// The pools of all source addresses.
pub struct Ports {
    pools: ArcSwap<Pools>,
    /// Who changes `pools` holds this.
    change: Mutex<()>,
    per_source: usize,
    /// What new ports get; see [`Ports::size_buffers`].
    buffers: Mutex<UdpBuffers>,
    /// One per worker: the sockets that it reads.
    epolls: Vec<Epoll>,
    watch: Box<dyn PortWatch>,
    /// A fault, for the simulation: all queries leave from the first port of a pool.
    #[cfg(test)]
    pub(crate) is_stuck: std::sync::atomic::AtomicBool,
}

impl Ports {
    /// No pools yet; `per_source` ports each when they come, or fewer where the limit of descriptors, raised as far as may be, has
    /// no room for them beside all that others need.
    ///
    /// # Errors
    /// When the kernel gives no epoll descriptors.
    pub fn new(workers: usize, per_source: usize, watch: Box<dyn PortWatch>) -> io::Result<Ports> {
        descriptors::raise_limit();
        let epoll = |_| Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
        Ok(Ports {
            pools: ArcSwap::default(),
            change: Mutex::new(()),
            per_source,
            buffers: Mutex::default(),
            epolls: (0..workers).map(epoll).collect::<Result<_, _>>()?,
            watch,
            #[cfg(test)]
            is_stuck: Default::default(),
        })
    }

    /// setUDPSocketBufferSizes, for ports that are opened from now on: those that are open give way to them one by one
    /// ([`Ports::rotate_one`]).
    pub fn size_buffers(&self, wanted: UdpBuffers) {
        *self.buffers.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
    }

    fn wanted_buffers(&self) -> UdpBuffers {
        *self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds out from where `server` is asked, opens the ports of that address if they are not open, and tells the server.
    /// To be called before queries go to it, and again when the route may have changed. What the kernel was asked with: a
    /// socket connected to the server, from that address and a port that is not of the pool. That the address is another one
    /// than before is a line of the log.
    ///
    /// # Errors
    /// No route, an address that is not ours, or no socket at all. Fewer sockets than wanted are no error but a line of
    /// the log.
    pub fn prepare(&self, server: &Server) -> io::Result<UdpSocket> {
        // Before the kernel is asked: of two threads that ask while routes change the last one to ask tells the server.
        let _change = self.lock();
        let options = &server.options;
        let connected = options.source.connected(options.address)?;
        let mut source = connected.local_addr()?;
        source.set_port(0);
        let leaving = Leaving::new(source, &options.source);
        let before = self.source_of(server);
        server.ports.set(self.pool_of(&leaving)?);
        if let Some(before) = before.filter(|before| *before != source.ip()) {
            // What went unanswered left from another address.
            server.retry_xsk();
            crate::log::notice!(
                "{} is asked from {} now, no longer from {before}",
                server.name_with_address(),
                source.ip()
            );
        }
        Ok(connected)
    }

    /// The address that queries to `server` leave from; `None` where no ports towards it are open.
    pub fn source_of(&self, server: &Server) -> Option<IpAddr> {
        let pools = self.pools.load();
        let pool = pools.get(usize::from(server.ports.get()?))?;
        (!pool.ports.is_empty()).then(|| pool.leaving.from.ip())
    }

    /// Held by whoever changes pools, or which one a server has.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of the pool, opened if it is new. Under the lock only.
    fn pool_of(&self, leaving: &Leaving) -> io::Result<u16> {
        let pools = self.pools.load();
        let open = |pool: &Arc<PortPool>| pool.leaving == *leaving && !pool.ports.is_empty();
        if let Some(index) = pools.iter().position(open) {
            return Ok(index as u16);
        }
        let index = place_for(&pools, leaving)?;
        let former = pools.get(usize::from(index));
        let mut pool = match former.filter(|pool| pool.leaving == *leaving) {
            Some(former) => PortPool::clone(former),
            None => PortPool::new(leaving.clone()),
        };
        let revived = pool.revive(self.per_source);
        pool.ports = self.bind_all(index, leaving, revived)?;
        pool.sort();
        let mut pools = Pools::clone(&pools);
        match pools.get_mut(usize::from(index)) {
            Some(old) => *old = Arc::new(pool),
            None => pools.push(Arc::new(pool)),
        }
        self.pools.store(Arc::new(pools));
        Ok(index)
    }

    /// `ports`, and as many new ones as are missing and there is room for.
    fn bind_all(
        &self,
        pool: u16,
        leaving: &Leaving,
        mut ports: Vec<Arc<BoundPort>>,
    ) -> io::Result<Vec<Arc<BoundPort>>> {
        let share = descriptors::share_of(self.per_source, ports.len());
        let mut reason = None;
        while ports.len() < share && reason.is_none() {
            match self.bind(pool, ports.len(), leaving) {
                Ok(port) => ports.push(port),
                Err(error) if ports.is_empty() => return Err(error),
                Err(error) => reason = Some(error.to_string()),
            }
        }
        if ports.len() < self.per_source {
            let reason =
                reason.unwrap_or_else(|| "listeners and clients need descriptors too".to_owned());
            let text = shortfall(leaving.from, ports.len(), self.per_source, &reason);
            crate::log::warn!("{text}");
        }
        let wanted = self.wanted_buffers();
        let shortfall = ports
            .first()
            .and_then(|port| buffers::shortfall(port, wanted));
        if let Some(text) = shortfall {
            crate::log::warn!("backend ports on {}: {text}", leaving.from.ip());
        }
        Ok(ports)
    }

    /// A new port for place `index` of `pool`; from now on its worker reads it.
    fn bind(&self, pool: u16, index: usize, leaving: &Leaving) -> io::Result<Arc<BoundPort>> {
        let port = BoundPort::bind(leaving, self.wanted_buffers())?;
        let key = u64::from(pool) << 16 | u64::from(port.local.port());
        let epoll = &self.epolls[index % self.epolls.len()];
        epoll.add(&port, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
        self.watch.opened(port.local);
        Ok(Arc::new(port))
    }

    /// What worker number `worker` reads answers with.
    pub fn reader(self: &Arc<Ports>, worker: usize) -> PortReader {
        PortReader::new(Arc::clone(self), worker)
    }

    /// How hard a query is to forge an answer to, in bits: ports in use and IDs. The lowest of all source addresses.
    pub fn entropy_bits(&self) -> f64 {
        let pools = self.pools.load();
        let counts = pools.iter().map(|pool| pool.ports.len());
        let fewest = counts.filter(|&count| count > 0).min().unwrap_or(1);
        16.0 + (fewest as f64).log2()
    }
}

/// Source addresses whose port is remembered within a batch; the others get a new one for each query.
const PICKS: usize = 8;

/// The port that a batch uses.
#[derive(Debug, Clone, Copy, Default)]
struct Pick {
    index: u16,
    /// Queries that may still leave from it.
    left: u8,
}

/// What one batch of a worker sends from, looked up by the first query that leaves. Not to be kept while the worker sleeps: it
/// keeps closed ports open.
#[derive(Default)]
pub struct Departures {
    pools: Option<Guard<Arc<Pools>>>,
    picks: [Pick; PICKS],
}

impl Departures {
    /// A port of `ports`, the same for the whole batch, for a query to `server`; `None` when none towards it are open.
    pub fn pick(&mut self, ports: &Ports, server: &Server, random: &mut Random) -> Option<Port> {
        let picked = self.pick_of(server.ports.get()?, ports, random);
        picked.or_else(|| self.pick_former(ports, server, random))
    }

    /// The server has moved since the batch began, to ports that are unknown here: the rest of the batch leaves as it began.
    #[cold]
    #[inline(never)]
    fn pick_former(&mut self, ports: &Ports, server: &Server, random: &mut Random) -> Option<Port> {
        let picked = self.pick_of(server.ports.former()?, ports, random)?;
        // The place of ports that are closed may be another address's by now.
        let is_ipv4 = server.options.address.is_ipv4();
        (picked.source.is_ipv4() == is_ipv4).then_some(picked)
    }

    #[inline(always)]
    fn pick_of(&mut self, number: u16, ports: &Ports, random: &mut Random) -> Option<Port> {
        let pools = self.pools.get_or_insert_with(|| ports.pools.load());
        let pool = pools.get(usize::from(number))?;
        let count = pool.ports.len() as u32;
        #[cfg(test)]
        let count = match ports.is_stuck.load(std::sync::atomic::Ordering::Relaxed) {
            true => 1,
            false => count,
        };
        let mut single = Pick::default();
        let pick = self
            .picks
            .get_mut(usize::from(number))
            .unwrap_or(&mut single);
        if pick.left == 0 {
            *pick = Pick {
                index: random.below(count) as u16,
                left: CLUSTER,
            };
        }
        pick.left -= 1;
        let local = pool.ports.get(usize::from(pick.index))?.local;
        Some(Port {
            pool: number,
            socket: pick.index,
            number: local.port(),
            source: local.ip(),
        })
    }

    /// The socket of a port that this batch picked.
    pub fn socket(&self, port: Port) -> Option<BorrowedFd<'_>> {
        let pool = self.pools.as_ref()?.get(usize::from(port.pool))?;
        Some(pool.ports.get(usize::from(port.socket))?.as_fd())
    }
}

/// The index for a new pool: that of its former one, or of one that is empty, or a new one.
fn place_for(pools: &Pools, leaving: &Leaving) -> io::Result<u16> {
    let empty = |pool: &Arc<PortPool>| pool.by_number.is_empty();
    let place = pools.iter().position(|pool| pool.leaving == *leaving);
    let place = place
        .or_else(|| pools.iter().position(empty))
        .unwrap_or(pools.len());
    let index = u16::try_from(place).ok().filter(|&index| index != u16::MAX);
    index
        .ok_or_else(|| io::Error::other("65,535 source addresses are in use: no more are possible"))
}

fn shortfall(source: SocketAddr, opened: usize, wanted: usize, reason: &dyn Display) -> String {
    let limit = descriptors::limit();
    format!(
        "{opened} of {wanted} backend ports on {}: {reason} (limit of descriptors: {limit}; each source address needs {wanted})",
        source.ip()
    )
}

#[cfg(test)]
mod tests;
