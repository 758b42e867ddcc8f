//! recvmmsg and sendmmsg with everything allocated once: the socket door's system calls.
//!
//! The one place of the frontends with `unsafe`: the kernel is given pointers into vectors that live as long as the
//! [`Batch`] and never grow.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Datagrams per system call.
pub const BATCH: usize = 64;

/// Room for one datagram, in bytes: the largest UDP payload is 65,507; a query of more than 4,096 is nobody's.
pub const ROOM: usize = 4_096;

/// Room for IP_PKTINFO or IPV6_PKTINFO, in bytes, aligned as cmsghdr wants it.
const CONTROL: usize = 64;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// Buffers for a batch of datagrams, in the shape that recvmmsg and sendmmsg take.
///
/// ```text
///  datagram i:  buffers[i × ROOM ..]   peers[i]   controls[i]   parts[i] → buffer   headers[i] → peer, part, control
/// ```
pub struct Batch {
    buffers: Box<[u8]>,
    peers: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    parts: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    received: usize,
    /// Which datagrams are to be sent, in order.
    outgoing: usize,
}

// SAFETY: the raw pointers in `parts` and `headers` point into the boxes of the same Batch, which move with it (the heap
// memory stays where it is), and nobody else has them.
unsafe impl Send for Batch {}

/// One received datagram.
pub struct Datagram<'b> {
    pub buffer: &'b mut [u8],
    pub length: usize,
    pub peer: SocketAddr,
    /// Where it was sent to, when the socket tells (wildcard listeners); the port is not known here.
    pub local: Option<IpAddr>,
}

impl Default for Batch {
    fn default() -> Batch {
        // SAFETY: all-zero is a valid sockaddr_storage, iovec and mmsghdr: integers and null pointers.
        let (storage, part, header): (libc::sockaddr_storage, libc::iovec, libc::mmsghdr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        Batch {
            buffers: vec![0; BATCH * ROOM].into_boxed_slice(),
            peers: vec![storage; BATCH].into_boxed_slice(),
            controls: vec![Control([0; CONTROL]); BATCH].into_boxed_slice(),
            parts: vec![part; BATCH].into_boxed_slice(),
            headers: vec![header; BATCH].into_boxed_slice(),
            received: 0,
            outgoing: 0,
        }
    }
}

impl Batch {
    /// Receives what is there, without waiting; how many datagrams.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.received = 0;
        self.outgoing = 0;
        for index in 0..BATCH {
            self.point(index, ROOM, CONTROL, size_of::<libc::sockaddr_storage>());
        }
        // SAFETY: every header points to memory of this Batch that is large enough for the lengths given, and the
        // kernel keeps no pointer after the call.
        let count = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT, std::ptr::null_mut())
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        }
        self.received = count as usize;
        Ok(self.received)
    }

    /// Datagram `index` of the last [`Batch::receive`]; `None` when it was cut (longer than [`ROOM`]) or its peer is not an
    /// IP address.
    pub fn datagram(&mut self, index: usize) -> Option<Datagram<'_>> {
        let header = self.headers[..self.received].get(index)?;
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let length = header.msg_len as usize;
        let local = self.local(index);
        let peer = address_of(&self.peers[index])?;
        Some(Datagram { buffer: &mut self.buffers[index * ROOM..(index + 1) * ROOM], length, peer, local })
    }

    /// Marks datagram `index` for [`Batch::send`]: `length` bytes of its buffer go back to its peer, from the address it
    /// was sent to. Indices must come in rising order.
    pub fn answer(&mut self, index: usize, length: usize) {
        let control = self.headers[index].msg_hdr.msg_controllen;
        let name = self.headers[index].msg_hdr.msg_namelen as usize;
        self.point(index, length, control, name);
        self.headers.swap(self.outgoing, index);
        self.outgoing += 1;
    }

    /// Sends all marked answers; how many the kernel did not take.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> usize {
        let mut sent = 0;
        let mut lost = 0;
        while sent + lost < self.outgoing {
            let rest = &mut self.headers[sent + lost..self.outgoing];
            // SAFETY: as in `receive`; the headers were filled by `answer` or by the kernel.
            let count = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, libc::MSG_DONTWAIT) };
            // An error concerns the first datagram only (sendmmsg(2)): it is lost, the next ones are tried.
            if count <= 0 { lost += 1 } else { sent += count as usize }
        }
        self.outgoing = 0;
        lost
    }

    /// Lets header `index` point to buffer, peer and control `index`, with these lengths in bytes.
    fn point(&mut self, index: usize, length: usize, control: usize, name: usize) {
        self.parts[index] = libc::iovec { iov_base: self.buffers[index * ROOM..].as_mut_ptr().cast(), iov_len: length };
        let header = &mut self.headers[index].msg_hdr;
        header.msg_name = (&raw mut self.peers[index]).cast();
        header.msg_namelen = name as u32;
        header.msg_iov = &raw mut self.parts[index];
        header.msg_iovlen = 1;
        header.msg_control = self.controls[index].0.as_mut_ptr().cast();
        header.msg_controllen = control;
        header.msg_flags = 0;
    }

    /// The destination address from IP_PKTINFO or IPV6_PKTINFO. The interface is cleared, so that an answer sent with the
    /// same control message takes the route to the client, not the way back (ip(7): a non-zero ipi_ifindex forces it);
    /// link-local addresses need theirs.
    fn local(&mut self, index: usize) -> Option<IpAddr> {
        let header = &self.headers[index].msg_hdr;
        // SAFETY: the kernel filled msg_control with msg_controllen bytes of well-formed control messages; CMSG_DATA of
        // such a message of this type holds the struct read and written, which may be unaligned.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(header);
            if message.is_null() {
                return None;
            }
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let place = libc::CMSG_DATA(message).cast::<libc::in_pktinfo>();
                    let mut info = std::ptr::read_unaligned(place);
                    info.ipi_ifindex = 0;
                    std::ptr::write_unaligned(place, info);
                    Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr))))
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let place = libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>();
                    let mut info = std::ptr::read_unaligned(place);
                    let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    if !address.is_unicast_link_local() {
                        info.ipi6_ifindex = 0;
                    }
                    std::ptr::write_unaligned(place, info);
                    Some(IpAddr::V6(address))
                }
                _ => None,
            }
        }
    }
}

fn address_of(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the kernel wrote a sockaddr_in; sockaddr_storage is larger and at least as aligned.
            let raw = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr));
            Some(SocketAddr::V4(SocketAddrV4::new(address, u16::from_be(raw.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for sockaddr_in6.
            let raw = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let address = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(address, u16::from_be(raw.sin6_port), 0, raw.sin6_scope_id)))
        }
        _ => None,
    }
}
