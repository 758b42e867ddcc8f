//! The kernel's end of a socket's four rings without a kernel, an interface or root: for simulations (feature `simulation`).
//!
//! The socket is the one that serves, over memory of the same layout. What the kernel would do by itself happens when
//! whoever simulates says so, so that every order of events can be had, and had again.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ring::{Consumer, Producer};
use crate::socket::{RingSizes, Socket};
use crate::sys::memory::{MappedRing, Mapping, nameless};
use crate::umem::{CHUNK, Umem};

/// A line for each position and for the flags, as the kernel has them.
const OFFSETS: libc::xdp_ring_offset = libc::xdp_ring_offset {
    producer: 0,
    consumer: 64,
    flags: 128,
    desc: 192,
};

/// Where the kernel puts a frame in its chunk: behind XDP's headroom.
const HEADROOM: u64 = 256;

/// The kernel as one socket knows it.
pub struct Kernel {
    fill: Consumer<MappedRing<u64>>,
    rx: Producer<MappedRing<libc::xdp_desc>>,
    tx: Consumer<MappedRing<libc::xdp_desc>>,
    completion: Producer<MappedRing<u64>>,
    chunks: Mapping,
    /// Taken from the TX ring, not yet said to be sent.
    sending: VecDeque<u64>,
}

/// A socket over `umem`, which must be of the shared memory `chunks`, for a queue with this number, and its kernel. Nothing need
/// be woken: what the socket flushes is there when the simulation looks.
pub fn socket(
    umem: &mut Umem,
    chunks: &OwnedFd,
    sizes: &RingSizes,
    queue: u32,
) -> Result<(Socket, Kernel)> {
    let rx = Ring::new::<libc::xdp_desc>(sizes.rx)?;
    let tx = Ring::new::<libc::xdp_desc>(sizes.tx)?;
    let fill = Ring::new::<u64>(sizes.fill)?;
    let completion = Ring::new::<u64>(sizes.completion)?;
    let kernel = Kernel {
        fill: Consumer::new(fill.map()?),
        rx: Producer::new(rx.map()?),
        tx: Consumer::new(tx.map()?),
        completion: Producer::new(completion.map()?),
        chunks: Mapping::of_descriptor(chunks.as_fd(), umem.frames() as usize * CHUNK, 0)
            .map_err(mapping)?,
        sending: VecDeque::new(),
    };
    // Something that can be polled.
    let descriptor = Arc::new(UnixDatagram::unbound().map_err(mapping)?.into());
    let mut socket = Socket::over(
        (Consumer::new(rx.map()?), Producer::new(tx.map()?)),
        (Producer::new(fill.map()?), Consumer::new(completion.map()?)),
        (descriptor, queue),
        umem,
    )?;
    socket.refill(umem);
    Ok((socket, kernel))
}

fn mapping(error: std::io::Error) -> Error {
    Error::system("mapping the rings of a simulated socket", error)
}

/// Memory for a ring, to be mapped by both of its sides.
struct Ring {
    memory: OwnedFd,
    size: u32,
}

impl Ring {
    fn new<T>(size: u32) -> Result<Ring> {
        let length = OFFSETS.desc as usize + size as usize * size_of::<T>();
        let memory = nameless(length, None).map_err(mapping)?;
        Ok(Ring { memory, size })
    }

    fn map<T: crate::sys::memory::Slot>(&self) -> Result<MappedRing<T>> {
        MappedRing::map(self.memory.as_fd(), 0, &OFFSETS, self.size).map_err(mapping)
    }
}

impl Kernel {
    /// A frame comes in. `false`: it is lost, for want of chunks or of room in the RX ring.
    #[allow(unsafe_code)]
    pub fn receive(&mut self, frame: &[u8]) -> bool {
        assert!(
            frame.len() + HEADROOM as usize <= CHUNK,
            "{} octets: the program redirects none so long",
            frame.len()
        );
        if self.rx.room(1) == 0 {
            return false;
        }
        let Some(address) = self.fill.pop() else {
            return false;
        };
        self.fill.release();
        let start = address / CHUNK as u64 * CHUNK as u64 + HEADROOM;
        // SAFETY: the fill ring has given the chunk away, and it is another mapping than the one that the socket's side reads
        // after the RX ring has shown it.
        unsafe { self.chunks.slice_mut(start as usize, frame.len()) }.copy_from_slice(frame);
        self.rx.push(libc::xdp_desc {
            addr: start,
            len: frame.len() as u32,
            options: 0,
        });
        self.rx.publish();
        true
    }

    /// Takes the next frame that is to leave; its chunk stays with the kernel until [`Kernel::complete`].
    #[allow(unsafe_code)]
    pub fn send(&mut self) -> Option<Vec<u8>> {
        let slot = self.tx.pop()?;
        self.tx.release();
        self.sending.push_back(slot.addr);
        // SAFETY: the TX ring has given the chunk away, and nobody writes to it before the completion ring shows it.
        let octets = unsafe { self.chunks.slice(slot.addr as usize, slot.len as usize) };
        Some(octets.to_vec())
    }

    /// Gives back the chunk of the frame that was sent first; whether there was one.
    pub fn complete(&mut self) -> bool {
        let Some(address) = self.sending.pop_front() else {
            return false;
        };
        self.give_back(address);
        true
    }

    /// A kernel with a fault: it gives back a chunk twice. `None`: it has none to give back.
    pub fn complete_twice(&mut self) -> Option<()> {
        let address = self.sending.pop_front()?;
        self.give_back(address);
        self.give_back(address);
        Some(())
    }

    fn give_back(&mut self, address: u64) {
        let has_room = self.completion.push(address);
        assert!(
            has_room,
            "a socket has no more frames out than its rings hold"
        );
        self.completion.publish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Batch, Flushed};

    const SIZES: RingSizes = RingSizes {
        fill: 8,
        rx: 8,
        tx: 4,
        completion: 16,
    };

    #[test]
    fn a_frame_goes_round() {
        let chunks = Umem::shared_memory(16, None).unwrap();
        let mut umem = Umem::of_shared_memory(&chunks).unwrap();
        let (mut socket, mut kernel) = socket(&mut umem, &chunks, &SIZES, 0).unwrap();
        assert!(!socket.has_waiting());
        assert!(kernel.receive(&[7; 60]));
        assert!(socket.has_waiting());
        let mut batch = Batch::new();
        assert_eq!(socket.receive(&mut umem, &mut batch), 1);
        assert!(!socket.has_waiting());
        for received in batch.drain() {
            assert_eq!(umem.chunk(&received.frame)[256..316], [7; 60]);
            let sent = socket.send(received.frame, received.start, received.length);
            sent.expect("the ring is empty");
        }
        assert_eq!(socket.flush(), Flushed::Pending(1), "nobody has looked");
        assert_eq!(kernel.send(), Some(vec![7; 60]));
        assert_eq!(umem.census([&socket]).tx, 1);
        assert!(kernel.complete() && !kernel.complete());
        assert_eq!(socket.complete(&mut umem), 1);
        assert_eq!(umem.census([&socket]).total(), 16);
    }

    #[test]
    fn what_a_closed_socket_had_comes_back_when_its_quarantine_is_over() {
        let chunks = Umem::shared_memory(16, None).unwrap();
        let mut umem = Umem::of_shared_memory(&chunks).unwrap();
        let (mut socket, mut kernel) = socket(&mut umem, &chunks, &SIZES, 3).unwrap();
        assert_eq!(socket.queue(), 3);
        let frame = umem.take().expect("there are free ones");
        socket.send(frame, 256, 60).expect("the ring is empty");
        socket.flush();
        drop(socket);
        assert_eq!(umem.census([]).quarantine, 9);
        assert!(kernel.send().is_some(), "what was shown to it leaves");
        assert_eq!(umem.end_quarantine(), 9);
        assert_eq!(umem.census([]).free, 16);
    }

    #[test]
    fn as_many_frames_are_ready_as_are_asked_for() {
        let chunks = Umem::shared_memory(16, None).unwrap();
        let mut umem = Umem::of_shared_memory(&chunks).unwrap();
        let (mut socket, mut kernel) = socket(&mut umem, &chunks, &SIZES, 0).unwrap();
        let mut batch = Batch::new();
        let mut refill_after = |socket: &mut Socket, count| {
            (0..count).for_each(|_| assert!(kernel.receive(&[7; 60])));
            assert_eq!(socket.receive(&mut umem, &mut batch), count);
            batch.drain().for_each(|received| umem.give(received.frame));
            socket.refill(&mut umem).count
        };
        socket.keep_ready(3);
        assert_eq!(refill_after(&mut socket, 4), 0, "four of eight are left");
        assert_eq!(refill_after(&mut socket, 2), 1, "two are left");
        assert_eq!(refill_after(&mut socket, 3), 3);
        socket.keep_ready(0);
        assert_eq!(refill_after(&mut socket, 3), 1, "never none");
        socket.keep_ready(u32::MAX);
        assert_eq!(
            refill_after(&mut socket, 1),
            8,
            "all that there is room for"
        );
    }

    #[test]
    fn without_chunks_frames_are_lost() {
        let chunks = Umem::shared_memory(16, None).unwrap();
        let mut umem = Umem::of_shared_memory(&chunks).unwrap();
        let (_socket, mut kernel) = socket(&mut umem, &chunks, &SIZES, 0).unwrap();
        let taken = (0..20).filter(|_| kernel.receive(&[0; 60])).count();
        assert_eq!(taken, 8);
    }
}
