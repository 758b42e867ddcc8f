//! sendmmsg and recvmmsg on connected sockets, with everything allocated once.
//!
//! The one place of this crate with `unsafe`: the kernel is given pointers into boxes that live as long as their owner
//! and never move, or into slices that live through the call.
#![allow(unsafe_code)] // I14: a file named sys.rs; each block says why it is sound

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Datagrams per system call.
pub(super) const BATCH: usize = 64;

/// Room for one datagram, the longest one too: 65,527 octets (RFC 8200 §3, see [`crate::questions::Carrier::length_max`]).
/// What no datagram has reached is never touched, and so takes address space and no memory. The odd line keeps the
/// beginnings of buffers, which all answers are in, from sharing cache sets.
const ROOM: usize = 65_536 + 64;

const NO_PART: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

fn no_header() -> libc::mmsghdr {
    // SAFETY: an mmsghdr is integers and pointers: zero is a value of each.
    unsafe { std::mem::zeroed() }
}

/// A batch to send: messages stay where they are, only their IDs are written.
///
/// ```text
///  message i:  ids[i] (2 octets) │ the message from its third octet on     two parts, no copy
/// ```
pub(super) struct Outgoing {
    ids: Box<[[u8; 2]]>,
    parts: Box<[[libc::iovec; 2]]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the pointers in `parts` and `headers` point into the boxes of the same value, whose memory stays where it is when
// the value moves, or are left over from a former call and never read before they are written anew.
unsafe impl Send for Outgoing {}

impl Outgoing {
    pub(super) fn new() -> Outgoing {
        Outgoing {
            ids: vec![[0; 2]; BATCH].into_boxed_slice(),
            parts: vec![[NO_PART; 2]; BATCH].into_boxed_slice(),
            headers: (0..BATCH).map(|_| no_header()).collect(),
        }
    }

    /// Sends up to [`BATCH`] messages on a connected socket, each under its ID; returns how many the kernel took.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        messages: &[(u16, &[u8])],
    ) -> io::Result<usize> {
        let count = messages.len().min(BATCH);
        for (at, (id, message)) in messages[..count].iter().enumerate() {
            self.ids[at] = id.to_be_bytes();
            let head = id_length(message);
            self.parts[at] = [
                libc::iovec {
                    iov_base: self.ids[at].as_mut_ptr().cast(),
                    iov_len: head,
                },
                libc::iovec {
                    // Only read: sendmmsg takes the same structure as recvmmsg.
                    iov_base: message[head..].as_ptr().cast_mut().cast(),
                    iov_len: message.len() - head,
                },
            ];
            let header = &mut self.headers[at].msg_hdr;
            header.msg_iov = self.parts[at].as_mut_ptr();
            header.msg_iovlen = 2;
        }
        // SAFETY: `count` headers were just filled; each points to two parts in a box of ours, and these to an ID in a box of
        // ours and to a message that is borrowed through the call. The kernel reads so much and writes only `msg_len`.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as u32,
                libc::MSG_DONTWAIT,
            )
        };
        taken(sent)
    }
}

/// Octets at a message's start that its ID takes the place of: "Packets shorter than two bytes are sent intact" (dnsperf's
/// manual, `-B`).
pub(super) fn id_length(message: &[u8]) -> usize {
    if message.len() < 2 { 0 } else { 2 }
}

/// A batch that was received.
pub(super) struct Incoming {
    buffers: Box<[u8]>,
    parts: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    received: usize,
}

// SAFETY: the pointers in `parts` and `headers` point into the boxes of the same value, whose memory stays where it is when
// the value moves.
unsafe impl Send for Incoming {}

impl Incoming {
    pub(super) fn new() -> Incoming {
        let mut incoming = Incoming {
            buffers: vec![0; BATCH * ROOM].into_boxed_slice(),
            parts: vec![NO_PART; BATCH].into_boxed_slice(),
            headers: (0..BATCH).map(|_| no_header()).collect(),
            received: 0,
        };
        let buffers = incoming.buffers.chunks_exact_mut(ROOM);
        for ((part, header), buffer) in incoming
            .parts
            .iter_mut()
            .zip(incoming.headers.iter_mut())
            .zip(buffers)
        {
            *part = libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: ROOM,
            };
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
        }
        incoming
    }

    /// Takes what has come to a socket, at most [`BATCH`]; returns how many. Does not wait.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.take(socket, libc::MSG_DONTWAIT)
    }

    /// The same, but where nothing has come it waits for the first datagram, as long as the socket's time-out (SO_RCVTIMEO)
    /// says.
    pub(super) fn wait_and_receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.take(socket, libc::MSG_WAITFORONE)
    }

    fn take(&mut self, socket: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<usize> {
        self.received = 0;
        // SAFETY: `new` has made every header point to a part and every part to a buffer of ROOM octets, all in boxes of ours;
        // nobody else refers to them during the call. No names and no control messages are asked for.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCH as u32,
                flags,
                std::ptr::null_mut(),
            )
        };
        self.received = taken(received)?;
        Ok(self.received)
    }

    /// What was received last, whole: no datagram is longer than the room.
    pub(super) fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let buffers = self.buffers.chunks_exact(ROOM);
        buffers
            .zip(&self.headers[..self.received])
            .map(|(buffer, header)| &buffer[..(header.msg_len as usize).min(ROOM)])
    }
}

/// Datagrams that a socket threw away because its buffer was full, or because their checksum was wrong.
pub(super) fn overflowed(socket: BorrowedFd<'_>) -> u64 {
    /// `SK_MEMINFO_DROPS` (linux/sock_diag.h), the last of what is told.
    const DROPS: usize = 8;
    let mut told = [0_u32; DROPS + 1];
    let mut length = size_of_val(&told) as libc::socklen_t;
    // SAFETY: `told` and `length` live through the call, and `length` says how many octets of `told` may be written.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            told.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    // Linux tells since 4.12.
    if result == 0 { told[DROPS].into() } else { 0 }
}

fn taken(returned: i32) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    #[test]
    fn what_a_full_buffer_threw_away_is_told() {
        let (one, other) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        nix::sys::socket::setsockopt(&other, nix::sys::socket::sockopt::RcvBuf, &1).unwrap();
        for _ in 0..100 {
            one.send_to(&[0; 500], other.local_addr().unwrap()).unwrap();
        }
        other.set_nonblocking(true).unwrap();
        let receive = || std::iter::from_fn(|| other.recv(&mut [0; 500]).ok()).count() as u64;
        // Usually loopback delivers before a call that sends returns, a busy machine later.
        let until = Instant::now() + Duration::from_secs(60);
        let mut kept = receive();
        while overflowed(other.as_fd()) + kept < 100 && Instant::now() < until {
            kept += receive();
        }
        assert_eq!(overflowed(other.as_fd()) + kept, 100);
        assert_eq!(overflowed(one.as_fd()), 0);
    }

    /// What arrives when these messages are sent.
    fn carried(messages: &[(u16, &[u8])]) -> Vec<Vec<u8>> {
        let (one, other) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        one.connect(other.local_addr().unwrap()).unwrap();
        other.connect(one.local_addr().unwrap()).unwrap();
        let mut outgoing = Outgoing::new();
        let sent = outgoing.send(one.as_fd(), messages).unwrap();
        assert_eq!(sent, messages.len());
        let mut incoming = Incoming::new();
        let mut got = Vec::new();
        while got.len() < sent {
            match incoming.receive(other.as_fd()) {
                Ok(_) => got.extend(incoming.messages().map(<[u8]>::to_vec)),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        got
    }

    #[test]
    fn messages_go_out_under_their_ids_and_come_back_whole() {
        let got = carried(&[(0x0102, b"xxfirst"), (0x0304, b"x"), (5, b"")]);
        assert_eq!(got, [&b"\x01\x02first"[..], b"x", b""]);
    }

    #[test]
    fn the_longest_datagram_comes_whole_between_short_ones() {
        // What IPv4 carries at most (RFC 791 §3.1).
        let long = vec![7_u8; 65_507];
        let got = carried(&[(1, b"xxa"), (0x0707, &long), (3, b"xxb")]);
        assert!(got[1] == long, "{} octets", got[1].len());
        assert_eq!(got[0], b"\0\x01a");
        assert_eq!(got[2], b"\0\x03b");
    }
}
