//! Clients over UDP: connected sockets, so that the kernel checks who answers.
//!
//! What a query and its answer cost is system calls and sleeps, far more than anything that is done here with the messages.
//! So one call sends and one receives up to a batch, and:
//!
//! - **One socket** (a thread's usual share) is waited for by the very call that receives: in a closed loop that is faster than
//!   its server, answers come one by one, and each would cost three calls where one does it (there is nothing; wait; receive).
//!   It is in no epoll, which every datagram would have to tell, sleep or not.
//! - **Several sockets** are waited for by epoll, and those that have something are all read before anything is sent: their
//!   answers make one batch.
//! - Sockets stay blocking, and calls say themselves that they do not wait: the one that does shares the socket with them.

use super::Plan;
use super::sys::{BATCH, Incoming, Outgoing, overflowed};
use super::transport::{LONGEST_WAIT, Taker, Transport, wait_for, wait_for_events};
use crate::failure::{During, Failure, Outcome};
use crate::path;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use xsk::Sources;

/// How often sending is tried where errors are told: Linux takes six at once from a host's ICMP messages, then one a second.
const TRIES: usize = 8;

/// The UDP sockets of one thread.
pub(super) struct UdpClients {
    sockets: Vec<UdpSocket>,
    epoll: Epoll,
    events: Vec<EpollEvent>,
    outgoing: Outgoing,
    incoming: Incoming,
}

impl UdpClients {
    /// Opens the sockets of the clients of these numbers.
    ///
    /// # Errors
    /// The kernel refuses: too many open files, an address that is not ours, a port in use.
    pub(super) fn open(plan: &Plan, clients: std::ops::Range<usize>) -> Outcome<UdpClients> {
        let failed = "opening sockets to wait for";
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).during(failed)?;
        let sockets = clients
            .map(|client| open(plan, client))
            .collect::<Outcome<Vec<_>>>()?;
        if let [socket] = &sockets[..] {
            let limit = Some(LONGEST_WAIT);
            socket.set_read_timeout(limit).during(failed)?;
        } else {
            for (number, socket) in sockets.iter().enumerate() {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, number as u64);
                epoll.add(socket, event).during(failed)?;
            }
        }
        Ok(UdpClients {
            events: vec![EpollEvent::empty(); sockets.len().min(BATCH)],
            sockets,
            epoll,
            outgoing: Outgoing::new(),
            incoming: Incoming::new(),
        })
    }

    /// Takes everything out of one socket; `true` if there was anything. `wait`: for the first datagram.
    fn drain(&mut self, client: usize, wait: bool, taker: &mut dyn Taker) -> Outcome<bool> {
        let mut any = false;
        loop {
            let socket = self.sockets[client].as_fd();
            let received = if wait && !any {
                self.incoming.wait_and_receive(socket)
            } else {
                self.incoming.receive(socket)
            };
            match received {
                Ok(count) => {
                    taker.come();
                    let messages = self.incoming.messages();
                    messages.for_each(|message| taker.take(client, message));
                    any = true;
                    if count < BATCH {
                        return Ok(true);
                    }
                }
                Err(error) => match error.kind() {
                    // Nothing more, nothing in time, or a signal while waiting.
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => return Ok(any),
                    // The queries will time out, and say so.
                    kind if is_told_by_icmp(kind) => any = true,
                    _ => return Err(Failure::new(format!("receiving answers: {error}"))),
                },
            }
        }
    }

    /// Hands out what comes to the one socket.
    fn receive_from_one(&mut self, limit: Duration, taker: &mut dyn Taker) -> Outcome<()> {
        // The socket's own time-out is the longest wait; a shorter one is for ppoll to keep.
        let whole = limit >= LONGEST_WAIT;
        if self.drain(0, whole, taker)? || whole {
            return Ok(());
        }
        if wait_for(self.sockets[0].as_fd(), limit)? {
            self.drain(0, false, taker)?;
        }
        Ok(())
    }
}

impl Transport for UdpClients {
    fn send(&mut self, client: usize, messages: &[(u16, &[u8])]) -> Outcome<usize> {
        let socket = self.sockets[client].as_fd();
        let failed = |error: &std::io::Error| Failure::new(format!("sending queries: {error}"));
        // An error of an earlier datagram is told once, to whichever call comes first: so again.
        let mut told = std::io::Error::from(ErrorKind::ConnectionRefused);
        for _ in 0..TRIES {
            match self.outgoing.send(socket, messages) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) if is_told_by_icmp(error.kind()) => told = error,
                Err(error) => return Err(failed(&error)),
            }
        }
        match told.kind() {
            ErrorKind::ConnectionRefused => Ok(0),
            // It is nobody else who says so: there is no way to the server from here.
            _ => Err(failed(&told)),
        }
    }

    fn receive(&mut self, limit: Duration, taker: &mut dyn Taker) -> Outcome<()> {
        if let [_] = self.sockets[..] {
            return self.receive_from_one(limit, taker);
        }
        let ready = wait_for_events(&self.epoll, &mut self.events, limit)?;
        for at in 0..ready {
            let client = self.events[at].data() as usize;
            self.drain(client, false, taker)?;
        }
        Ok(())
    }

    fn overflowed(&self) -> u64 {
        let sockets = self.sockets.iter();
        sockets.map(|socket| overflowed(socket.as_fd())).sum()
    }
}

/// Whether an error may be about an earlier query: the server's host, or somebody on the way to it, said by ICMP that nobody
/// listens there or that it is not let through (RFC 1122 §4.1.3.3). Then that query is lost, and the run goes on.
fn is_told_by_icmp(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::PermissionDenied
    )
}

fn open(plan: &Plan, client: usize) -> Outcome<UdpSocket> {
    let (local, server) = (local_address(plan, client)?, plan.server(client));
    let opening = || format!("opening socket {} from {local} to {server}", client + 1);
    let socket = UdpSocket::bind(local).during(opening())?;
    socket.connect(server).during(opening())?;
    if let Some(size) = plan.buffer_size {
        setsockopt(&socket, sockopt::SndBuf, &size).during(opening())?;
        setsockopt(&socket, sockopt::RcvBuf, &size).during(opening())?;
    }
    Ok(socket)
}

/// Where a client sends from: its own address where a network is given, its own port where ports are given, counted up
/// from the first.
pub(super) fn local_address(plan: &Plan, client: usize) -> Outcome<SocketAddr> {
    let address = match (plan.local, plan.server(client)) {
        (Some(local), _) => address_of(local, client),
        (None, SocketAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        (None, SocketAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let port = match plan.local_port {
        0 => Some(0),
        first => usize::from(first)
            .checked_add(client)
            .and_then(|port| port.try_into().ok()),
    };
    let port = port.ok_or_else(|| {
        Failure::new(format!(
            "client {} would need a port above 65535: start from a lower one than {} (-x)",
            client + 1,
            plan.local_port
        ))
    })?;
    let scope = path::scope_of(plan.server(client));
    Ok(path::on_link(address, port, scope))
}

/// An address of a network: counted up from its first host, and from there again behind its last one. A network's own address
/// and everybody's (RFC 1122 §3.2.1.3), or its routers' (RFC 4291 §2.6.1), are nobody's to send from, but for links of two
/// (RFC 3021, RFC 6164).
fn address_of(network: Sources, number: usize) -> IpAddr {
    let prefix = u32::from(network.prefix);
    match network.address {
        IpAddr::V4(address) => {
            let hosts = u32::MAX.checked_shr(prefix).unwrap_or(0);
            let host = match hosts {
                0 | 1 => number as u32 & hosts,
                _ => 1 + (number as u64 % u64::from(hosts - 1)) as u32,
            };
            IpAddr::V4((address.to_bits() & !hosts | host).into())
        }
        IpAddr::V6(address) => {
            let hosts = u128::MAX.checked_shr(prefix).unwrap_or(0);
            let host = match hosts {
                0 | 1 => number as u128 & hosts,
                _ => 1 + number as u128 % hosts,
            };
            IpAddr::V6((address.to_bits() & !hosts | host).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::transport::Taken;
    use std::time::Instant;

    /// A client's socket, and the server that it asks.
    fn client_and_server() -> (UdpClients, UdpSocket) {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let plan = Plan::of_one(address, super::super::Transport::Udp);
        (UdpClients::open(&plan, 0..1).unwrap(), server)
    }

    #[test]
    fn one_socket_waits_for_its_first_datagram_and_no_longer_than_it_may() {
        let (mut clients, server) = client_and_server();
        let mut taken = Taken::default();
        for limit in [LONGEST_WAIT, LONGEST_WAIT / 4] {
            let started = Instant::now();
            clients.receive(limit, &mut taken).unwrap();
            // Less than a tick of the kernel's clock may be missing.
            assert!(started.elapsed() > limit / 2, "it sleeps");
            assert!(taken.0.is_empty());
            let queries: [(u16, &[u8]); 2] = [(7, b"xxa"), (8, b"xxb")];
            assert_eq!(clients.send(0, &queries).unwrap(), 2);
            for _ in 0..2 {
                let mut query = [0; 16];
                let (length, client) = server.recv_from(&mut query).unwrap();
                server.send_to(&query[..length], client).unwrap();
            }
            while taken.0.len() < 2 {
                clients.receive(limit, &mut taken).unwrap();
            }
            let answers = [(0, b"\0\x07a".to_vec()), (0, b"\0\x08b".to_vec())];
            assert_eq!(taken.0, answers);
            taken.0.clear();
        }
    }

    #[test]
    fn a_refusal_does_not_end_the_wait_with_an_error() {
        let (mut clients, server) = client_and_server();
        drop(server);
        let mut taken = Taken::default();
        let queries: [(u16, &[u8]); 1] = [(7, b"xxa")];
        for limit in [LONGEST_WAIT, Duration::from_millis(1)] {
            clients.send(0, &queries).unwrap();
            clients.receive(limit, &mut taken).unwrap();
        }
        assert!(taken.0.is_empty());
    }

    #[test]
    fn clients_take_the_addresses_of_a_network_in_turn() {
        let address = |network: &str, prefix, number| {
            let network = Sources {
                address: network.parse().unwrap(),
                prefix,
            };
            address_of(network, number).to_string()
        };
        assert_eq!(address("192.0.2.7", 32, 5), "192.0.2.7");
        let four = [0, 1, 2].map(|number| address("192.0.2.7", 30, number));
        assert_eq!(four, ["192.0.2.5", "192.0.2.6", "192.0.2.5"]);
        let two = [0, 1, 2].map(|number| address("192.0.2.7", 31, number));
        assert_eq!(two, ["192.0.2.6", "192.0.2.7", "192.0.2.6"]);
        assert_eq!(address("192.0.2.0", 24, 253), "192.0.2.254");
        assert_eq!(address("192.0.2.0", 24, 254), "192.0.2.1");
        assert_eq!(address("10.0.0.1", 0, 257), "0.0.1.2");
        assert_eq!(address("2001:db8::1", 128, 9), "2001:db8::1");
        assert_eq!(address("2001:db8::1", 127, 2), "2001:db8::");
        assert_eq!(address("2001:db8::1", 112, 65_534), "2001:db8::ffff");
        assert_eq!(address("2001:db8::1", 112, 65_535), "2001:db8::1");
    }
}
