//! recvmmsg and sendmmsg with everything allocated once, the socket door's system calls; and TCP Fast Open's options.
//!
//! The one place of the frontends with `unsafe`: the kernel is given pointers into boxes that live as long as [`Inbox`] and
//! [`Outbox`] and never move.
#![allow(unsafe_code)] // I14: a file named sys.rs; each block says why it is sound

use crate::backend::exchange::Port;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Datagrams per system call.
pub const BATCH: usize = 64;

/// Room for the messages of an [`Outbox`], in bytes: a whole batch of answers of 4,096 bytes, or four of the largest.
const ARENA: usize = BATCH * 4_096;

/// Room for IP_PKTINFO or IPV6_PKTINFO, in bytes, aligned as cmsghdr wants it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

fn zeroed_header() -> libc::mmsghdr {
    // SAFETY: all-zero is a valid mmsghdr: integers and null pointers.
    unsafe { std::mem::zeroed() }
}

fn zeroed_peer() -> libc::sockaddr_storage {
    // SAFETY: all-zero is a valid sockaddr_storage: integers.
    unsafe { std::mem::zeroed() }
}

const NO_PART: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// A batch of received datagrams.
///
/// ```text
///  datagram i:  buffers[i × room ..]   peers[i]   controls[i]   parts[i] → buffer   headers[i] → peer, part, control
/// ```
pub struct Inbox {
    room: usize,
    buffers: Box<[u8]>,
    peers: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    parts: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    received: usize,
}

// SAFETY: the raw pointers in `parts` and `headers` point into the boxes of the same Inbox, whose heap memory stays where
// it is when the Inbox moves, and nobody else has them.
unsafe impl Send for Inbox {}

/// One received datagram.
pub struct Datagram<'b> {
    /// The whole room; the datagram is the first `length` bytes.
    pub buffer: &'b mut [u8],
    pub length: usize,
    pub peer: SocketAddr,
    /// Where it was sent to, when the socket tells (IP_PKTINFO on wildcard listeners).
    pub local: Option<IpAddr>,
}

impl Inbox {
    /// `room`: bytes per datagram; a longer one is not delivered. Pages are touched only as datagrams fill them.
    pub fn new(room: usize) -> Inbox {
        let mut inbox = Inbox {
            room,
            buffers: vec![0; BATCH * room].into_boxed_slice(),
            peers: vec![zeroed_peer(); BATCH].into_boxed_slice(),
            controls: vec![Control([0; 64]); BATCH].into_boxed_slice(),
            parts: vec![NO_PART; BATCH].into_boxed_slice(),
            headers: vec![zeroed_header(); BATCH].into_boxed_slice(),
            received: 0,
        };
        for index in 0..BATCH {
            let buffer = inbox.buffers[index * room..].as_mut_ptr();
            inbox.parts[index] = libc::iovec {
                iov_base: buffer.cast(),
                iov_len: room,
            };
            let header = &mut inbox.headers[index].msg_hdr;
            header.msg_name = (&raw mut inbox.peers[index]).cast();
            header.msg_iov = &raw mut inbox.parts[index];
            header.msg_iovlen = 1;
            header.msg_control = inbox.controls[index].0.as_mut_ptr().cast();
        }
        inbox
    }

    /// Receives what is there, without waiting; how many datagrams.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        // The last call's lengths: the kernel changed them for as many headers as it filled.
        for header in &mut self.headers[..] {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
            header.msg_hdr.msg_controllen = size_of::<Control>();
        }
        self.received = 0;
        let (headers, fd) = (self.headers.as_mut_ptr(), socket.as_raw_fd());
        // SAFETY: every header points to memory of this Inbox that is as large as the lengths given, and the kernel
        // keeps no pointer after the call.
        let count = unsafe {
            libc::recvmmsg(
                fd,
                headers,
                BATCH as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock {
                Ok(0)
            } else {
                Err(error)
            };
        }
        self.received = count as usize;
        Ok(self.received)
    }

    /// Datagram `index` of the last [`Inbox::receive`]; `None` when it was longer than the room.
    pub fn datagram(&mut self, index: usize) -> Option<Datagram<'_>> {
        let header = self.headers[..self.received].get(index)?;
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let length = header.msg_len as usize;
        let local = self.local(index);
        let peer = address_of(&self.peers[index])?;
        Some(Datagram {
            buffer: &mut self.buffers[index * self.room..(index + 1) * self.room],
            length,
            peer,
            local,
        })
    }

    /// The destination address from IP_PKTINFO or IPV6_PKTINFO.
    fn local(&self, index: usize) -> Option<IpAddr> {
        let header = &self.headers[index].msg_hdr;
        // SAFETY: the kernel filled msg_control with msg_controllen bytes of well-formed control messages; CMSG_DATA of
        // such a message of this type holds the struct read, which may be unaligned.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(header);
            if message.is_null() {
                return None;
            }
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info: libc::in_pktinfo =
                        std::ptr::read_unaligned(libc::CMSG_DATA(message).cast());
                    Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(
                        info.ipi_addr.s_addr,
                    ))))
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info: libc::in6_pktinfo =
                        std::ptr::read_unaligned(libc::CMSG_DATA(message).cast());
                    Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)))
                }
                _ => None,
            }
        }
    }
}

/// Datagrams on their way out: copied in one by one, sent by as few system calls as their sockets allow.
pub struct Outbox {
    arena: Box<[u8]>,
    used: usize,
    sockets: [RawFd; BATCH],
    /// The backend port that a query leaves from, and its ID; `None` for answers.
    queries: [Option<(Port, u16)>; BATCH],
    peers: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    parts: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    waiting: usize,
    lost: u64,
    unsent: Vec<(Port, u16)>,
}

// SAFETY: as for Inbox.
unsafe impl Send for Outbox {}

impl Default for Outbox {
    fn default() -> Outbox {
        Outbox {
            arena: vec![0; ARENA].into_boxed_slice(),
            used: 0,
            sockets: [-1; BATCH],
            queries: [None; BATCH],
            peers: vec![zeroed_peer(); BATCH].into_boxed_slice(),
            controls: vec![Control([0; 64]); BATCH].into_boxed_slice(),
            parts: vec![NO_PART; BATCH].into_boxed_slice(),
            headers: vec![zeroed_header(); BATCH].into_boxed_slice(),
            waiting: 0,
            lost: 0,
            unsent: Vec::with_capacity(BATCH),
        }
    }
}

impl Outbox {
    /// Takes a copy of `message` for `peer`, to leave by `socket` at the next [`Outbox::flush`] (or now, when the outbox is
    /// full). `source` is set for sockets that are bound to a wildcard.
    ///
    /// The socket must stay open until then: whoever closes one flushes first.
    pub fn push(
        &mut self,
        socket: BorrowedFd<'_>,
        peer: SocketAddr,
        source: Option<IpAddr>,
        message: &[u8],
    ) {
        self.gather(socket, peer, (source, None), (&[], message));
    }

    /// The same for a query to a backend, `header` in front, which leaves by the socket of `port`: if it does not leave,
    /// [`Outbox::take_unsent`] tells.
    pub fn push_query(
        &mut self,
        socket: BorrowedFd<'_>,
        backend: SocketAddr,
        port: Port,
        (header, message): (&[u8], &[u8]),
    ) {
        // RFC 1035 section 4.1.1: the ID comes first.
        let id = message
            .first_chunk()
            .map_or(0, |id| u16::from_be_bytes(*id));
        self.gather(socket, backend, (None, Some((port, id))), (header, message));
    }

    fn gather(
        &mut self,
        socket: BorrowedFd<'_>,
        peer: SocketAddr,
        (source, query): (Option<IpAddr>, Option<(Port, u16)>),
        (header, message): (&[u8], &[u8]),
    ) {
        let length = header.len() + message.len();
        if self.waiting == BATCH || self.used + length > ARENA {
            self.flush();
        }
        if length > ARENA {
            self.lost += 1;
            return;
        }
        let index = self.waiting;
        let place = &mut self.arena[self.used..self.used + length];
        place[..header.len()].copy_from_slice(header);
        place[header.len()..].copy_from_slice(message);
        self.parts[index] = libc::iovec {
            iov_base: place.as_mut_ptr().cast(),
            iov_len: length,
        };
        self.used += length;
        self.sockets[index] = socket.as_raw_fd();
        self.queries[index] = query;
        let header = &mut self.headers[index].msg_hdr;
        header.msg_namelen = write_address(&mut self.peers[index], peer);
        header.msg_name = (&raw mut self.peers[index]).cast();
        header.msg_iov = &raw mut self.parts[index];
        header.msg_iovlen = 1;
        header.msg_control = self.controls[index].0.as_mut_ptr().cast();
        header.msg_controllen =
            source.map_or(0, |source| write_source(&mut self.controls[index], source));
        self.waiting += 1;
    }

    /// Sends everything: one system call per run of datagrams that share a socket.
    pub fn flush(&mut self) {
        let mut at = 0;
        while at < self.waiting {
            let socket = self.sockets[at];
            let run = self.sockets[at..self.waiting]
                .iter()
                .take_while(|&&other| other == socket)
                .count();
            // SAFETY: headers at..at+run were filled by `push` and point into this Outbox; the kernel keeps none of it.
            let sent = unsafe {
                libc::sendmmsg(
                    socket,
                    &raw mut self.headers[at],
                    run as u32,
                    libc::MSG_DONTWAIT,
                )
            };
            // sendmmsg(2): an error is told only when the first datagram has it. That one is lost, the next are tried.
            if sent <= 0 {
                self.note_lost(at);
                at += 1;
            } else {
                at += sent as usize;
            }
        }
        self.waiting = 0;
        self.used = 0;
    }

    fn note_lost(&mut self, index: usize) {
        match self.queries[index] {
            None => self.lost += 1,
            Some(query) => self.unsent.push(query),
        }
    }

    /// How many answers the kernel did not take since the last call.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// A query that the kernel did not take: its port and ID.
    pub fn take_unsent(&mut self) -> Option<(Port, u16)> {
        self.unsent.pop()
    }
}

/// Answers are sent without "don't fragment" and whatever path MTU somebody claims by ICMP: a forged "fragmentation
/// needed" must not shrink or lose them (ip(7), IP_PMTUDISC_OMIT).
pub fn ignore_path_mtu(socket: BorrowedFd<'_>, ipv4: bool) -> io::Result<()> {
    let (level, option, value) = if ipv4 {
        (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_OMIT,
        )
    } else {
        (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_OMIT,
        )
    };
    // SAFETY: the option's value is an int, given with its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as u32,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// TCP_FASTOPEN (tcp(7)): so many connections may wait whose first octets came with the SYN; 0 switches it off.
pub fn set_fast_open_queue(socket: BorrowedFd<'_>, queue: u32) -> io::Result<()> {
    let queue = libc::c_int::try_from(queue).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option's value is an int, given with its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_FASTOPEN,
            (&raw const queue).cast(),
            size_of::<libc::c_int>() as u32,
        )
    };
    done(result)
}

/// TCP_FASTOPEN_KEY: the key that makes the cookies of RFC 7413 §4.1.2.
pub fn set_fast_open_key(socket: BorrowedFd<'_>, key: &[u8; 16]) -> io::Result<()> {
    // SAFETY: the option's value is sixteen octets, given with their number.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_FASTOPEN_KEY,
            key.as_ptr().cast(),
            key.len() as u32,
        )
    };
    done(result)
}

/// linux/tcp.h; not in libc for this system.
const TCP_FASTOPEN_KEY: libc::c_int = 33;

/// The queue and the first key of a listening socket.
#[cfg(test)]
pub fn fast_open(socket: BorrowedFd<'_>) -> io::Result<(u32, [u8; 16])> {
    let (mut queue, mut key) = (0 as libc::c_int, [0; 16]);
    let mut length = size_of::<libc::c_int>() as u32;
    // SAFETY: the kernel writes at most `length` bytes, the size of `queue`.
    done(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_FASTOPEN,
            (&raw mut queue).cast(),
            &raw mut length,
        )
    })?;
    let mut length = key.len() as u32;
    // SAFETY: the kernel writes at most `length` bytes, those of `key`.
    done(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_FASTOPEN_KEY,
            key.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    Ok((queue as u32, key))
}

fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn address_of(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let place = &raw const *storage;
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the kernel wrote a sockaddr_in; sockaddr_storage is larger and at least as aligned.
            let raw = unsafe { &*place.cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr));
            Some(SocketAddr::V4(SocketAddrV4::new(
                address,
                u16::from_be(raw.sin_port),
            )))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for sockaddr_in6.
            let raw = unsafe { &*place.cast::<libc::sockaddr_in6>() };
            let address = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(
                address,
                u16::from_be(raw.sin6_port),
                0,
                raw.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

/// Writes `address` as the kernel reads it; its length in bytes.
fn write_address(storage: &mut libc::sockaddr_storage, address: SocketAddr) -> u32 {
    let place = &raw mut *storage;
    match address {
        SocketAddr::V4(address) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*address.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is larger than sockaddr_in and at least as aligned.
            unsafe { place.cast::<libc::sockaddr_in>().write(raw) };
            size_of::<libc::sockaddr_in>() as u32
        }
        SocketAddr::V6(address) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: sockaddr_storage is larger than sockaddr_in6 and at least as aligned.
            unsafe { place.cast::<libc::sockaddr_in6>().write(raw) };
            size_of::<libc::sockaddr_in6>() as u32
        }
    }
}

/// Writes the control message that names the source address; its length in bytes.
fn write_source(control: &mut Control, source: IpAddr) -> usize {
    match source {
        IpAddr::V4(source) => write_control(
            control,
            libc::IPPROTO_IP,
            libc::IP_PKTINFO,
            packet_info_v4(source),
        ),
        IpAddr::V6(source) => write_control(
            control,
            libc::IPPROTO_IPV6,
            libc::IPV6_PKTINFO,
            packet_info_v6(source),
        ),
    }
}

/// Names the source of a datagram. The interface stays 0: the route to the client decides, not the way the query came
/// (ip(7): a non-zero ipi_ifindex would force it).
pub fn packet_info_v4(source: Ipv4Addr) -> libc::in_pktinfo {
    libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr {
            s_addr: u32::from(source).to_be(),
        },
        ipi_addr: libc::in_addr { s_addr: 0 },
    }
}

/// See [`packet_info_v4`].
pub fn packet_info_v6(source: Ipv6Addr) -> libc::in6_pktinfo {
    libc::in6_pktinfo {
        ipi6_addr: libc::in6_addr {
            s6_addr: source.octets(),
        },
        ipi6_ifindex: 0,
    }
}

fn write_control<T>(control: &mut Control, level: i32, kind: i32, info: T) -> usize {
    let start = control.0.as_mut_ptr();
    // SAFETY: CMSG_LEN and CMSG_SPACE only compute.
    let (length, space) = unsafe {
        (
            libc::CMSG_LEN(size_of::<T>() as u32),
            libc::CMSG_SPACE(size_of::<T>() as u32),
        )
    };
    assert!(space as usize <= size_of::<Control>());
    // SAFETY: `control` is aligned for cmsghdr and, as asserted, has room for header and payload.
    unsafe {
        let header = start.cast::<libc::cmsghdr>();
        (*header).cmsg_len = length as usize;
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(info);
    }
    space as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    /// Receives when something is there: usually loopback delivers before a call that sends returns, a busy machine later.
    fn receive(inbox: &mut Inbox, socket: &UdpSocket) -> usize {
        socket.peek(&mut [0]).unwrap();
        inbox.receive(socket.as_fd()).unwrap()
    }

    #[test]
    fn what_goes_into_the_outbox_comes_out_of_the_inbox() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let (here, there) = (
                UdpSocket::bind(local).unwrap(),
                UdpSocket::bind(local).unwrap(),
            );
            let mut outbox = Outbox::default();
            for number in 0..3u8 {
                outbox.push(
                    here.as_fd(),
                    there.local_addr().unwrap(),
                    None,
                    &[number; 100],
                );
            }
            outbox.flush();
            let mut inbox = Inbox::new(512);
            let mut number = 0;
            while number < 3 {
                for place in 0..receive(&mut inbox, &there) {
                    let datagram = inbox.datagram(place).unwrap();
                    assert_eq!(datagram.buffer[..datagram.length], [number; 100]);
                    assert_eq!(datagram.peer, here.local_addr().unwrap());
                    number += 1;
                }
            }
            assert_eq!((number, inbox.receive(there.as_fd()).unwrap()), (3, 0));
        }
    }

    #[test]
    fn a_datagram_longer_than_the_room_is_not_delivered() {
        let (here, there) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        here.send_to(&[1; 600], there.local_addr().unwrap())
            .unwrap();
        let mut inbox = Inbox::new(512);
        assert_eq!(receive(&mut inbox, &there), 1);
        assert!(inbox.datagram(0).is_none());
    }

    #[test]
    fn a_query_that_does_not_leave_is_known_by_its_port_and_id() {
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut outbox = Outbox::default();
        let bad: SocketAddr = "[2001:db8::1]:53".parse().unwrap();
        let good = here.local_addr().unwrap();
        let port = |number| Port {
            pool: 0,
            socket: 0,
            number,
            source: good.ip(),
        };
        outbox.push_query(here.as_fd(), good, port(1), (b"header", b"\x01\x01 query"));
        outbox.push_query(here.as_fd(), bad, port(2), (b"header", b"\x02\x03 query"));
        outbox.push(here.as_fd(), bad, None, b"\x04\x05 answer");
        outbox.flush();
        assert_eq!(outbox.take_unsent(), Some((port(2), 0x0203)));
        assert_eq!((outbox.take_unsent(), outbox.take_lost()), (None, 1));
    }

    #[test]
    fn a_full_outbox_sends_by_itself_and_one_bad_peer_costs_one_datagram() {
        let (here, there) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        let mut outbox = Outbox::default();
        let bad: SocketAddr = "[2001:db8::1]:53".parse().unwrap(); // an IPv6 peer on an IPv4 socket
        outbox.push(here.as_fd(), bad, None, b"lost");
        for _ in 0..BATCH + 1 {
            outbox.push(here.as_fd(), there.local_addr().unwrap(), None, b"kept");
        }
        outbox.flush();
        assert_eq!(outbox.take_lost(), 1);
        let mut inbox = Inbox::new(512);
        let mut count = 0;
        while count < BATCH + 1 {
            count += receive(&mut inbox, &there);
        }
        let more = inbox.receive(there.as_fd()).unwrap();
        assert_eq!((count, more), (BATCH + 1, 0));
    }
}
