//! From where servers are asked: `source` of newServer, and what else is said there of the sockets that lead to one.

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use tokio::net::TcpSocket;

/// What `newServer` says of the sockets towards a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// `source`: the address that queries leave from; `None`: the kernel chooses.
    pub address: Option<IpAddr>,
    /// `source`: the interface by which queries leave and answers come, by name. It may come later than the daemon.
    pub interface: Option<String>,
    /// `dscp`: the code point that marks packets to the server (RFC 2474 §3), up to 63; 0 marks none.
    pub dscp: u8,
    /// `ipBindAddrNoPort`: a TCP connection from `address` gets its port when it is made, so that servers can share ports.
    pub late_port: bool,
    /// `tcpFastOpen`: the first query may go out with the SYN (RFC 7413).
    pub tcp_fast_open: bool,
}

impl Default for Source {
    fn default() -> Source {
        Source {
            address: None,
            interface: None,
            dscp: 0,
            late_port: true,
            tcp_fast_open: false,
        }
    }
}

impl Source {
    /// An unconnected UDP socket whose packets leave as is said here, from `address`.
    ///
    /// # Errors
    /// What the kernel says: the address is not ours, the interface is not there.
    pub fn udp(&self, address: SocketAddr) -> io::Result<UdpSocket> {
        let socket = self.unbound(address)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
        Ok(socket)
    }

    /// The same without an address, of the family that `peer` has.
    fn unbound(&self, peer: SocketAddr) -> io::Result<UdpSocket> {
        let family = match peer {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket: OwnedFd = socket(family, SockType::Datagram, flags, None)?;
        self.mark(&socket, peer.is_ipv4())?;
        Ok(UdpSocket::from(socket))
    }

    /// A TCP socket towards `server`, to be connected. `from`: what it is bound to in place of `address`.
    ///
    /// # Errors
    /// As [`Source::udp`].
    pub fn tcp(&self, server: SocketAddr, from: Option<SocketAddr>) -> io::Result<TcpSocket> {
        let socket = match server {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        self.mark(&socket, server.is_ipv4())?;
        if self.tcp_fast_open {
            setsockopt(&socket, sockopt::TcpFastOpenConnect, &true)?;
        }
        let address = self.address.map(|address| SocketAddr::new(address, 0));
        if let Some(from) = from.or(address) {
            if self.late_port {
                setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
            }
            socket.bind(from)?;
        }
        Ok(socket)
    }

    /// A UDP socket connected to `server`: it has the address that the kernel sends from, `address` if that is said, and a
    /// random port (RFC 5452, section 9.2).
    ///
    /// # Errors
    /// No route, an address that is not ours, an interface that is not there.
    pub fn connected(&self, server: SocketAddr) -> io::Result<UdpSocket> {
        let socket = match self.address {
            Some(address) => self.udp(SocketAddr::new(address, 0))?,
            // Connecting binds it: one system call less.
            None => self.unbound(server)?,
        };
        socket.connect(server)?;
        Ok(socket)
    }

    fn mark(&self, socket: &impl AsFd, is_v4: bool) -> io::Result<()> {
        if let Some(name) = &self.interface {
            bind_to(socket, name)?;
        }
        if self.dscp != 0 {
            // RFC 2474 §3: the code point is the upper six bits of the octet.
            let octet = i32::from(self.dscp) << 2;
            match is_v4 {
                true => setsockopt(socket, sockopt::Ipv4Tos, &octet)?,
                false => setsockopt(socket, sockopt::Ipv6TClass, &octet)?,
            }
        }
        Ok(())
    }
}

/// From now on the socket gets what comes by the interface and sends by it alone. No privilege is needed for a socket
/// without an interface since Linux 5.7.
///
/// # Errors
/// What the kernel says, with the interface's name.
pub fn bind_to(socket: &impl AsFd, interface: &str) -> io::Result<()> {
    setsockopt(socket, sockopt::BindToDevice, &OsString::from(interface)).map_err(|number| {
        let error = io::Error::from(number);
        io::Error::new(error.kind(), format!("interface {interface}: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::getsockopt;
    use std::net::Ipv4Addr;

    fn loopback() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    #[test]
    fn sockets_are_as_the_options_say() {
        let source = Source {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            interface: Some("lo".to_owned()),
            dscp: 46,
            tcp_fast_open: true,
            ..Source::default()
        };
        let udp = source.udp(loopback()).unwrap();
        let tcp = source.tcp("127.0.0.1:53".parse().unwrap(), None).unwrap();
        for (device, tos) in [
            (
                getsockopt(&udp, sockopt::BindToDevice),
                getsockopt(&udp, sockopt::Ipv4Tos),
            ),
            (
                getsockopt(&tcp, sockopt::BindToDevice),
                getsockopt(&tcp, sockopt::Ipv4Tos),
            ),
        ] {
            assert_eq!(device.unwrap(), "lo");
            assert_eq!(tos.unwrap(), 46 << 2);
        }
        assert!(getsockopt(&tcp, sockopt::IpBindAddressNoPort).unwrap());
        assert!(getsockopt(&tcp, sockopt::TcpFastOpenConnect).unwrap());
        assert_eq!(tcp.local_addr().unwrap(), loopback(), "the port comes late");
        let early = Source {
            late_port: false,
            ..source
        };
        let tcp = early.tcp("127.0.0.1:53".parse().unwrap(), None).unwrap();
        assert_ne!(tcp.local_addr().unwrap().port(), 0);
    }

    #[test]
    fn without_options_the_kernel_chooses() {
        let source = Source::default();
        let server = "127.0.0.1:53".parse().unwrap();
        let connected = source.connected(server).unwrap();
        assert_eq!(connected.peer_addr().unwrap(), server);
        let from = connected.local_addr().unwrap();
        assert_eq!(from.ip(), loopback().ip());
        assert_ne!(from.port(), 0);
        let tcp = source.tcp("127.0.0.1:53".parse().unwrap(), None).unwrap();
        assert_eq!(getsockopt(&tcp, sockopt::Ipv4Tos).unwrap(), 0);
        assert!(!getsockopt(&tcp, sockopt::TcpFastOpenConnect).unwrap());
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let source = Source {
            interface: Some("nosuch0".to_owned()),
            ..Source::default()
        };
        let error = source
            .connected("127.0.0.1:53".parse().unwrap())
            .unwrap_err();
        assert!(
            error.to_string().starts_with("interface nosuch0: "),
            "{error}"
        );
    }
}
