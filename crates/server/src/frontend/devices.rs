//! The AF_XDP side of one worker: its frames, and its queue of every device.

use super::tap::{Mark, Tap};
use crate::clock::Now;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wire::frame::{Headers, Mac, write_headers};
use xsk::{
    BindMode, CHUNK, Flushed, Frame, Heartbeat, KernelCounters, Options, RingSizes, Socket, Umem,
    UmemOptions,
};

/// Where a copied message starts in its chunk, in bytes: room for the longest headers in front (Ethernet, IPv6, UDP), on
/// a cache line.
const COPY_START: usize = 128;

/// This worker's queue of one device.
pub struct Queue {
    pub socket: Socket,
    /// `None` where somebody else's program is used, which looks at none.
    pub heartbeat: Option<Heartbeat>,
    /// Our own Ethernet address there.
    pub mac: Mac,
    /// Whether clients behind the device may leave UDP checksums partial (veth, virtio, tap).
    pub accept_partial: bool,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// Slots of the fill ring.
    fill: u32,
    /// Frames whose checksum their sender had left to its device.
    pub partial_checksums: u64,
    pub rows: Arc<QueueRows>,
}

/// What a worker must know of an interface; all of it can change while we serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    pub mac: Mac,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    pub accept_partial: bool,
}

/// A queue to bind.
pub struct Opening {
    /// The device's number.
    pub device: u8,
    /// The interface's index.
    pub interface: u32,
    pub queue: u32,
    /// An AF_XDP socket that is bound to nothing yet.
    pub descriptor: OwnedFd,
    pub heartbeat: Option<Heartbeat>,
    pub facts: Facts,
    pub rows: Arc<QueueRows>,
    /// Memory for frames, registered with the descriptor already: for a worker that has no other queue.
    pub memory: Option<OwnedFd>,
    /// How long a busy queue may be waited for.
    pub patience: Duration,
}

/// A queue that was bound.
pub struct Opened {
    /// The same socket, to enter it into its program's map.
    pub socket: OwnedFd,
    pub zero_copy: bool,
}

/// Wake-ups for the last frames of a TX ring: a full one takes 64 of 32 frames each.
const WAKE_UPS_LEFT: u32 = 1_000;

/// Slots of a fill ring, at least: fewer would lose frames in every burst.
const FILL_AT_LEAST: u32 = 256;

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
    /// Frames that fill rings of open queues can hold.
    filled: u32,
    /// By device number (network::devices).
    queues: Vec<Option<Queue>>,
    /// Who wants to see packets of a device.
    taps: Vec<(u8, Tap)>,
}

impl Devices {
    pub fn new(umem: Umem) -> Devices {
        Devices {
            umem,
            filled: 0,
            queues: Vec::new(),
            taps: Vec::new(),
        }
    }

    /// Binds a queue of one more device. A worker that had none gets frames for it; one that has shares them.
    ///
    /// # Errors
    /// The queue is busy or gone, or there are too few frames left for another device.
    pub fn open(&mut self, opening: Opening) -> xsk::Result<Opened> {
        self.remove(opening.device);
        self.make_room(opening.memory.as_ref())?;
        let rings = self.rings()?;
        let options = Options {
            rings,
            mode: BindMode::Auto,
            patience: opening.patience,
        };
        let (interface, queue) = (opening.interface, opening.queue);
        let umem = &mut self.umem;
        let socket = Socket::bind_descriptor(opening.descriptor, umem, interface, queue, options)?;
        let duplicate = socket.as_fd().try_clone_to_owned();
        let opened = Opened {
            socket: duplicate
                .map_err(|error| xsk::Error::system("duplicating an AF_XDP socket", error))?,
            zero_copy: matches!(socket.mode()?, BindMode::ZeroCopy),
        };
        self.filled += rings.fill;
        let queue = Queue {
            socket,
            heartbeat: opening.heartbeat,
            mac: opening.facts.mac,
            accept_partial: opening.facts.accept_partial,
            mtu: opening.facts.mtu,
            fill: rings.fill,
            partial_checksums: 0,
            rows: opening.rows,
        };
        self.insert(opening.device, queue);
        Ok(opened)
    }

    /// A queue that is there already, because it is simulated.
    #[cfg(test)]
    pub(crate) fn adopt(&mut self, device: u8, socket: Socket, facts: Facts) {
        let queue = Queue {
            socket,
            heartbeat: None,
            mac: facts.mac,
            accept_partial: facts.accept_partial,
            mtu: facts.mtu,
            fill: 0,
            partial_checksums: 0,
            rows: Arc::default(),
        };
        self.insert(device, queue);
    }

    /// Frames for the first queue of a worker that had none.
    fn make_room(&mut self, memory: Option<&OwnedFd>) -> xsk::Result<()> {
        let wanted = RingSizes::default().frames();
        if self.queues.iter().any(Option::is_some) {
            return Ok(());
        }
        match memory {
            Some(memory) => self.umem = Umem::of_shared_memory(memory)?,
            None if self.umem.frames() < wanted => {
                self.umem = Umem::new(wanted, UmemOptions::default())?;
            }
            None => {}
        }
        Ok(())
    }

    /// Ring sizes for one more queue. Its fill ring takes at most half of the frames that no other one can hold, so that
    /// some are always left to send with.
    fn rings(&self) -> xsk::Result<RingSizes> {
        let usual = RingSizes::default();
        let half = self.umem.frames().saturating_sub(self.filled) / 2;
        if half < FILL_AT_LEAST {
            return Err(xsk::Error::Invalid(format!(
                "a worker has {} frames, and its other queues need them: a restart makes more",
                self.umem.frames()
            )));
        }
        let fill = usual.fill.min(1 << half.ilog2());
        Ok(RingSizes { fill, ..usual })
    }

    fn insert(&mut self, device: u8, queue: Queue) {
        let device = usize::from(device);
        if self.queues.len() <= device {
            self.queues.resize_with(device + 1, || None);
        }
        self.queues[device] = Some(queue);
    }

    pub fn remove(&mut self, device: u8) -> Option<Queue> {
        let queue = self.queues.get_mut(usize::from(device))?.take()?;
        self.filled -= queue.fill;
        Some(queue)
    }

    /// An interface has changed under its queue.
    pub fn change(&mut self, device: u8, facts: Facts) {
        if let Some(queue) = self.queue_mut(device) {
            queue.mac = facts.mac;
            queue.mtu = facts.mtu;
            queue.accept_partial = facts.accept_partial;
        }
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

    /// All frames by owner, and how many there are: the sum must be that (invariant I3). Walks them all.
    pub fn census(&self) -> (xsk::Census, u32) {
        let sockets = self.queues.iter().flatten().map(|queue| &queue.socket);
        (self.umem.census(sockets), self.umem.frames())
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
        self.send_after_flush(device, frame, head, total)
    }

    /// The TX ring was full: once more, after the kernel has taken what is there.
    #[cold]
    fn send_after_flush(&mut self, device: u8, frame: Frame, head: u32, total: u32) -> bool {
        self.show_sent();
        let Some(queue) = self.queue_mut(device) else {
            self.umem.give(frame);
            return false;
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
        if self.is_tapped() {
            self.show_sent();
        }
        let mut waits = false;
        for queue in self.queues.iter_mut().flatten() {
            waits |= matches!(queue.socket.flush(), Flushed::Pending(_));
            queue.publish(None);
        }
        waits
    }

    /// Sends what is in the TX ring of a device and takes back what it has sent: what is sent by a driver itself is lost when
    /// its socket is closed before. A device that sends no more is not waited for.
    pub fn finish(&mut self, device: u8) {
        let Some(queue) = self
            .queues
            .get_mut(usize::from(device))
            .and_then(Option::as_mut)
        else {
            return;
        };
        for _ in 0..WAKE_UPS_LEFT {
            let flushed = queue.socket.flush();
            queue.socket.complete(&mut self.umem);
            let counters = queue.socket.counters();
            if flushed == Flushed::Drained && counters.sent == counters.completed {
                return;
            }
        }
    }

    /// From now on packets of a device are copied into the tap.
    pub fn tap(&mut self, device: u8, tap: Tap) {
        self.taps.push((device, tap));
    }

    /// Taps that were closed are copied into no longer.
    pub fn untap(&mut self) {
        self.taps.retain(|(_, tap)| !tap.is_closed());
    }

    #[inline]
    pub fn is_tapped(&self) -> bool {
        !self.taps.is_empty()
    }

    /// Copies a frame that was received, for those who want it.
    pub fn show_received(&self, device: u8, frame: &[u8], mark: Mark, now: Now) {
        let Some(queue) = self.queue(device) else {
            return;
        };
        for (_, tap) in self.taps.iter().filter(|(tapped, _)| *tapped == device) {
            if tap.wants(frame, true) {
                tap.copy(frame, queue.socket.queue(), mark, now);
            }
        }
    }

    /// Copies the frames that lie in the TX rings and that the kernel has not been shown yet.
    #[cold]
    fn show_sent(&self) {
        let now = Now::read();
        for (device, tap) in &self.taps {
            let Some(queue) = self.queue(*device) else {
                continue;
            };
            queue.socket.for_each_unpublished(&self.umem, |frame| {
                if tap.wants(frame, false) {
                    tap.copy(frame, queue.socket.queue(), Mark::Sent, now);
                }
            });
        }
    }

    /// Reads the kernel's own counters into the rows.
    pub fn publish_kernel(&self) {
        for queue in self.queues.iter().flatten() {
            queue.publish(queue.socket.statistics().ok());
        }
    }
}
