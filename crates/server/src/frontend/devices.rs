//! The AF_XDP side of one worker: its frames, and its queue of every device.

use std::sync::{Arc, Mutex, PoisonError};
use wire::frame::{Headers, write_headers};
use xsk::{CHUNK, Flushed, Frame, Heartbeat, KernelCounters, Socket, Umem};

/// Where a copied message starts in its chunk, in bytes: room for the longest headers in front (Ethernet, IPv6, UDP), on
/// a cache line.
const COPY_START: usize = 128;

/// This worker's queue of one device.
pub struct Queue {
    pub socket: Socket,
    /// `None` where somebody else's program is used, which looks at none.
    pub heartbeat: Option<Heartbeat>,
    /// Our own Ethernet address there.
    pub mac: wire::frame::Mac,
    /// Whether clients behind the device may leave UDP checksums partial (veth, virtio, tap).
    pub accept_partial: bool,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// Frames whose checksum their sender had left to its device.
    pub partial_checksums: u64,
    pub rows: Arc<QueueRows>,
}

/// What `/metrics` shows of one queue: written by its worker after each batch that had frames, read by anybody.
#[derive(Debug, Default)]
pub struct QueueRows(Mutex<QueueCounts>);

/// One moment of [`QueueRows`].
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueCounts {
    pub own: ::xsk::Counters,
    pub kernel: ::xsk::KernelCounters,
    /// Frames whose checksum their sender had left to its device.
    pub partial_checksums: u64,
}

impl QueueRows {
    pub fn read(&self) -> QueueCounts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Bytes of DNS message that a packet of this device carries.
    pub fn room(&self, ipv4: bool) -> usize {
        let headers = if ipv4 { 20 + 8 } else { 40 + 8 };
        self.mtu.saturating_sub(headers)
    }

    /// Somebody who reads keeps the worker from writing for a moment: then the next turn writes. No worker waits.
    fn publish(&self, kernel: Option<KernelCounters>) {
        if let Ok(mut counts) = self.rows.0.try_lock() {
            counts.own = self.socket.counters();
            counts.partial_checksums = self.partial_checksums;
            if let Some(kernel) = kernel {
                counts.kernel = kernel;
            }
        }
    }
}

/// All queues of one worker over one UMEM.
pub struct Devices {
    umem: Umem,
    /// By device number (network::devices).
    queues: Vec<Option<Queue>>,
}

impl Devices {
    pub fn new(umem: Umem) -> Devices {
        Devices {
            umem,
            queues: Vec::new(),
        }
    }

    pub fn insert(&mut self, device: u8, queue: Queue) {
        let device = usize::from(device);
        if self.queues.len() <= device {
            self.queues.resize_with(device + 1, || None);
        }
        self.queues[device] = Some(queue);
    }

    pub fn remove(&mut self, device: u8) -> Option<Queue> {
        self.queues.get_mut(usize::from(device))?.take()
    }

    pub fn queue_mut(&mut self, device: u8) -> Option<&mut Queue> {
        self.queues.get_mut(usize::from(device))?.as_mut()
    }

    pub fn queue(&self, device: u8) -> Option<&Queue> {
        self.queues.get(usize::from(device))?.as_ref()
    }

    /// One more than the highest number of a device that has a queue here.
    pub fn count(&self) -> u8 {
        self.queues.len() as u8
    }

    pub fn umem(&mut self) -> &mut Umem {
        &mut self.umem
    }

    /// Where the sum over all owners must stay the number of frames (invariant I3).
    pub fn census(&self) -> xsk::Census {
        self.umem
            .census(self.queues.iter().flatten().map(|queue| &queue.socket))
    }

    /// Takes back what was sent and gives the kernel frames to receive into; then receives a batch of `device`.
    pub fn receive(&mut self, device: u8, batch: &mut xsk::Batch) -> usize {
        let Some(queue) = self
            .queues
            .get_mut(usize::from(device))
            .and_then(Option::as_mut)
        else {
            return 0;
        };
        queue.socket.complete(&mut self.umem);
        let refilled = queue.socket.refill(&mut self.umem);
        let count = queue.socket.receive(&mut self.umem, batch);
        if (count > 0 || refilled.was_empty)
            && let Some(heartbeat) = &queue.heartbeat
        {
            heartbeat.beat();
        }
        count
    }

    /// Sends the message that lies in `frame` at `start`, `length` bytes of it, with `headers` written in front. Gives the
    /// frame back and returns false when the TX ring stays full even after a wake-up.
    pub fn send(
        &mut self,
        device: u8,
        frame: Frame,
        start: usize,
        length: usize,
        headers: &Headers,
    ) -> bool {
        let Some(queue) = self
            .queues
            .get_mut(usize::from(device))
            .and_then(Option::as_mut)
        else {
            self.umem.give(frame);
            return false;
        };
        let chunk = self.umem.chunk_mut(&frame);
        let Some(head) = write_headers(chunk, start, length, headers) else {
            self.umem.give(frame);
            return false;
        };
        let (head, total) = (head as u32, (start + length - head) as u32);
        let Err(frame) = queue.socket.send(frame, head, total) else {
            return true;
        };
        queue.socket.flush();
        match queue.socket.send(frame, head, total) {
            Ok(()) => true,
            Err(frame) => {
                self.umem.give(frame);
                false
            }
        }
    }

    /// Sends a copy of `message`; false when this worker has no ring there, no free frame, or the packet would not fit.
    pub fn send_copy(&mut self, device: u8, headers: &Headers, message: &[u8]) -> bool {
        let Some(queue) = self.queue(device) else {
            return false;
        };
        if message.len()
            > queue
                .room(headers.destination.is_ipv4())
                .min(CHUNK - COPY_START)
        {
            return false;
        }
        let Some(frame) = self.umem.take() else {
            return false;
        };
        let place = COPY_START..COPY_START + message.len();
        self.umem.chunk_mut(&frame)[place].copy_from_slice(message);
        self.send(device, frame, COPY_START, message.len(), headers)
    }

    /// Shows the kernel what was put into the TX rings; whether some waits because the kernel takes no more now.
    pub fn flush(&mut self) -> bool {
        let mut waits = false;
        for queue in self.queues.iter_mut().flatten() {
            waits |= matches!(queue.socket.flush(), Flushed::Pending(_));
            queue.publish(None);
        }
        waits
    }

    /// Reads the kernel's own counters into the rows.
    pub fn publish_kernel(&self) {
        for queue in self.queues.iter().flatten() {
            queue.publish(queue.socket.statistics().ok());
        }
    }
}
