//! setUDPSocketBufferSizes: how much the kernel keeps for a UDP socket, at listeners and towards servers.

use crate::config::UdpBuffers;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use std::io;
use std::os::fd::AsFd;

/// Gives a socket these sizes; 0 leaves what it has. Only a process with CAP_NET_ADMIN gets more than the manual says: "the
/// maximum values are restricted by net.core.rmem_max and net.core.wmem_max".
///
/// # Errors
/// What the kernel says; not of sizes that it cuts.
pub fn set(socket: &impl AsFd, wanted: UdpBuffers) -> io::Result<()> {
    if wanted.receive != 0 && setsockopt(socket, sockopt::RcvBufForce, &wanted.receive).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &wanted.receive)?;
    }
    if wanted.send != 0 && setsockopt(socket, sockopt::SndBufForce, &wanted.send).is_err() {
        setsockopt(socket, sockopt::SndBuf, &wanted.send)?;
    }
    Ok(())
}

/// What the kernel gave less of than was wanted, in words. socket(7): "The kernel doubles this value … when it is set using
/// setsockopt(2), and this doubled value is returned by getsockopt(2)."
pub fn shortfall(socket: &impl AsFd, wanted: UdpBuffers) -> Option<String> {
    let receive = getsockopt(socket, sockopt::RcvBuf).map(|bytes| bytes / 2);
    let send = getsockopt(socket, sockopt::SndBuf).map(|bytes| bytes / 2);
    let short = [
        ("receive", receive, wanted.receive, "net.core.rmem_max"),
        ("send", send, wanted.send, "net.core.wmem_max"),
    ];
    let lines: Vec<String> = short
        .into_iter()
        .filter_map(|(name, given, wanted, limit)| {
            let given = given.ok().filter(|given| *given < wanted)?;
            Some(format!(
                "the kernel gave {given} bytes to {name} instead of {wanted}: raise {limit}"
            ))
        })
        .collect();
    (!lines.is_empty()).then(|| format!("setUDPSocketBufferSizes: {}", lines.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn sizes(socket: &UdpSocket) -> (usize, usize) {
        let receive = getsockopt(socket, sockopt::RcvBuf).unwrap();
        (
            receive / 2,
            getsockopt(socket, sockopt::SndBuf).unwrap() / 2,
        )
    }

    #[test]
    fn a_socket_gets_what_is_wanted_and_keeps_what_is_not_said() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let before = sizes(&socket);
        set(&socket, UdpBuffers::default()).unwrap();
        assert_eq!(sizes(&socket), before);
        let wanted = UdpBuffers {
            receive: 40_000,
            send: 30_000,
        };
        set(&socket, wanted).unwrap();
        assert_eq!(sizes(&socket), (40_000, 30_000));
        assert_eq!(shortfall(&socket, wanted), None);
    }

    #[test]
    fn what_the_kernel_gave_less_of_is_said() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let had = UdpBuffers {
            receive: 40_000,
            send: 30_000,
        };
        set(&socket, had).unwrap();
        let wanted = UdpBuffers {
            receive: 50_000,
            send: 30_000,
        };
        let line = "setUDPSocketBufferSizes: the kernel gave 40000 bytes to receive instead of 50000: raise net.core.rmem_max";
        assert_eq!(shortfall(&socket, wanted).as_deref(), Some(line));
        let unsaid = UdpBuffers::default();
        assert_eq!(shortfall(&socket, unsaid), None);
    }
}
