//! Clients over UDP: connected sockets, so that the kernel checks who answers.

use super::Plan;
use super::sys::{BATCH, Incoming, Outgoing, overflowed};
use super::transport::{Taker, Transport};
use crate::failure::{During, Failure, Outcome};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use xsk::Sources;

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
        for (number, socket) in sockets.iter().enumerate() {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, number as u64);
            epoll.add(socket, event).during(failed)?;
        }
        Ok(UdpClients {
            events: vec![EpollEvent::empty(); sockets.len().min(BATCH)],
            sockets,
            epoll,
            outgoing: Outgoing::new(),
            incoming: Incoming::new(),
        })
    }

    /// Takes everything out of one socket; `true` if there was anything.
    fn drain(&mut self, client: usize, taker: &mut dyn Taker) -> Outcome<bool> {
        let mut any = false;
        loop {
            match self.incoming.receive(self.sockets[client].as_fd()) {
                Ok(count) => {
                    taker.come();
                    let messages = self.incoming.messages();
                    messages.for_each(|message| taker.take(message));
                    any = true;
                    if count < BATCH {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(any),
                // Nobody listens there (ICMP): the queries will time out, and say so.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => any = true,
                Err(error) => return Err(Failure::new(format!("receiving answers: {error}"))),
            }
        }
    }
}

impl Transport for UdpClients {
    fn send(&mut self, client: usize, messages: &[(u16, &[u8])]) -> Outcome<usize> {
        let socket = self.sockets[client].as_fd();
        // An error of an earlier datagram is told once, to whichever call comes first: so twice.
        for _ in 0..2 {
            match self.outgoing.send(socket, messages) {
                Ok(count) => return Ok(count),
                Err(error) => match error.kind() {
                    ErrorKind::ConnectionRefused => {}
                    ErrorKind::WouldBlock => return Ok(0),
                    _ => return Err(Failure::new(format!("sending queries: {error}"))),
                },
            }
        }
        Ok(0)
    }

    fn receive(&mut self, limit: Duration, taker: &mut dyn Taker) -> Outcome<()> {
        if let [_] = self.sockets[..]
            && self.drain(0, taker)?
        {
            return Ok(());
        }
        let timeout = EpollTimeout::try_from(limit).unwrap_or(EpollTimeout::MAX);
        let ready = match self.epoll.wait(&mut self.events, timeout) {
            Err(nix::errno::Errno::EINTR) => 0,
            other => other.during("waiting for answers")?,
        };
        for at in 0..ready {
            let client = self.events[at].data() as usize;
            self.drain(client, taker)?;
        }
        Ok(())
    }

    fn overflowed(&self) -> u64 {
        let sockets = self.sockets.iter();
        sockets.map(|socket| overflowed(socket.as_fd())).sum()
    }
}

fn open(plan: &Plan, client: usize) -> Outcome<UdpSocket> {
    let (local, server) = (local_address(plan, client)?, plan.server(client));
    let opening = || format!("opening socket {} from {local} to {server}", client + 1);
    let socket = UdpSocket::bind(local).during(opening())?;
    socket.connect(server).during(opening())?;
    socket.set_nonblocking(true).during(opening())?;
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
    Ok(SocketAddr::new(address, port))
}

/// An address of a network: counted up from its first one, and from there again behind its last one.
fn address_of(network: Sources, number: usize) -> IpAddr {
    let prefix = u32::from(network.prefix);
    match network.address {
        IpAddr::V4(address) => {
            let hosts = u32::MAX.checked_shr(prefix).unwrap_or(0);
            let host = (number as u32) & hosts;
            // One address alone is itself, a network starts at its first.
            IpAddr::V4((address.to_bits() & !hosts | host).into())
        }
        IpAddr::V6(address) => {
            let hosts = u128::MAX.checked_shr(prefix).unwrap_or(0);
            let host = (number as u128) & hosts;
            IpAddr::V6((address.to_bits() & !hosts | host).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(address("192.0.2.7", 30, 0), "192.0.2.4");
        assert_eq!(address("192.0.2.7", 30, 6), "192.0.2.6");
        assert_eq!(address("10.0.0.1", 0, 258), "0.0.1.2");
        assert_eq!(address("2001:db8::1", 128, 9), "2001:db8::1");
        assert_eq!(address("2001:db8::1", 112, 65_537), "2001:db8::1");
    }
}
