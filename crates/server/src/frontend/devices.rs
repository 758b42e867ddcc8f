//! The AF_XDP side of one worker: its frames, and its queue of every device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::frame::{Headers, write_headers};
use xsk::{CHUNK, Flushed, Frame, Heartbeat, Socket, Umem};

/// Where a copied message starts in its chunk, in bytes: room for the longest headers in front (Ethernet, IPv6, UDP), on
/// a cache line.
const COPY_START: usize = 128;

/// This worker's queue of one device.
pub struct Queue {
    pub socket: Socket,
    pub heartbeat: Heartbeat,
    /// Our own Ethernet address there.
    pub mac: wire::frame::Mac,
    /// Whether clients behind the device may leave UDP checksums partial (veth, virtio, tap).
    pub accept_partial: bool,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    pub rows: Arc<QueueRows>,
}

/// What `/metrics` shows of one queue. Written by its worker, read by anybody.
#[derive(Debug, Default)]
pub struct QueueRows {
    pub received: AtomicU64,
    pub sent: AtomicU64,
    pub tx_ring_full: AtomicU64,
    pub fill_starved: AtomicU64,
    pub wakeups: AtomicU64,
    pub bad_addresses: AtomicU64,
    pub partial_checksums: AtomicU64,
    pub rx_dropped: AtomicU64,
    pub rx_ring_full: AtomicU64,
    pub rx_invalid: AtomicU64,
    pub tx_invalid: AtomicU64,
}

impl Queue {
    /// Bytes of DNS message that a packet of this device carries.
    pub fn room(&self, ipv4: bool) -> usize {
        self.mtu.saturating_sub(if ipv4 { 20 + 8 } else { 40 + 8 })
    }

    fn publish(&self) {
        let (ours, rows) = (self.socket.counters(), &self.rows);
        rows.received.store(ours.received, Relaxed);
        rows.sent.store(ours.sent, Relaxed);
        rows.tx_ring_full.store(ours.tx_full, Relaxed);
        rows.fill_starved.store(ours.fill_empty, Relaxed);
        rows.wakeups.store(ours.wakeups, Relaxed);
        rows.bad_addresses.store(ours.bad_addresses, Relaxed);
    }

    fn publish_kernel(&self) {
        if let Ok(kernel) = self.socket.statistics() {
            self.rows.rx_dropped.store(kernel.rx_dropped, Relaxed);
            self.rows.rx_ring_full.store(kernel.rx_ring_full, Relaxed);
            self.rows.rx_invalid.store(kernel.rx_invalid, Relaxed);
            self.rows.tx_invalid.store(kernel.tx_invalid, Relaxed);
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
        if count > 0 || refilled.was_empty {
            queue.heartbeat.beat();
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
            queue.publish();
        }
        waits
    }

    /// Reads the kernel's own counters into the rows.
    pub fn publish_kernel(&self) {
        self.queues.iter().flatten().for_each(Queue::publish_kernel);
    }
}
