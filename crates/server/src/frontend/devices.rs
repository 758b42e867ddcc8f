//! The AF_XDP side of one worker: its frames, and its queue of every device.
//!
//! A device may get more queues than there are workers (`ethtool -L`, an interface that comes): a worker receives from those
//! too, and sends what came in them by its own queue of the device. All of its queues share its frames.

use super::tap::{Mark, Tap};
use super::watch::{POLLED, Watch};
use crate::clock::Now;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wire::frame::{Headers, Mac, write_headers};
use xsk::{
    BindMode, CHUNK, Counters, Flushed, Frame, Heartbeat, KernelCounters, Options, RingSizes,
    Socket, Tally, Umem, UmemOptions,
};

/// Where a copied message starts in its chunk, in bytes: room for the longest headers in front (Ethernet, IPv6, UDP), on
/// a cache line.
const COPY_START: usize = 128;

/// This worker's queue of one device.
pub struct Queue {
    pub socket: Socket,
    /// `None` where somebody else's program is used, which looks at none.
    pub heartbeat: Option<Heartbeat>,
    /// Frames were taken since the last one.
    owes_beat: bool,
    /// A turn has ended since what was sent was taken back, and the kernel was given frames.
    is_behind: bool,
    /// Our own Ethernet address there.
    pub mac: Mac,
    /// Whether clients behind the device may leave UDP checksums partial (veth, virtio, tap).
    pub accept_partial: bool,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// For how long it is polled after the last frame; `None`: it is not.
    polled: Option<Duration>,
    /// Whether it is in the worker's epoll, and not among the descriptors that are polled when the worker waits.
    is_watched: bool,
    /// How many waits there were since the last frame.
    quiet: u32,
    /// Frames that had come when the rate was looked at last.
    received: u64,
    /// Slots of the fill ring.
    fill: u32,
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
    /// How many frames a worker that has no other queue is to have.
    pub frames: u32,
    /// Memory for these, registered with the descriptor already.
    pub memory: Option<OwnedFd>,
    /// The node of the machine whose memory is best for the card.
    pub node: Option<u32>,
    /// How frames are to come and go.
    pub mode: BindMode,
    /// How long a busy queue may be waited for.
    pub patience: Duration,
}

/// A queue that was bound.
pub struct Opened {
    /// The same socket, to enter it into its program's map.
    pub socket: OwnedFd,
    pub zero_copy: bool,
    pub is_polled: bool,
    /// Where its frames are.
    pub memory: xsk::Area,
}

/// Why a frame was not sent.
#[derive(Debug)]
pub enum Unsent {
    /// The TX ring stays full even after a wake-up; the frame is free again.
    RingFull,
    /// This worker has no ring there, or the packet would not fit; the frame is as it was.
    NoWay(Frame),
}

/// After so many waits without a frame a queue goes into the epoll: there it costs a wait nothing, and to go there and back costs
/// less than it does in so many waits.
const QUIET: u32 = 32;

/// What comes in so long has frames: a worker that does not run loses nothing until then, up to 200,000 queries a second.
const READY: Duration = Duration::from_millis(10);

/// For a burst after silence.
const READY_LEAST: u32 = 1_024;

/// Whatever the rate: where frames come faster, each must be used again before it is out of the processors' caches. With 4,096 of
/// them in turn a core answered a tenth fewer queries at its peak than with these, as many as Knot DNS has in a ring.
const READY_MOST: u32 = 2_048;

/// Wake-ups for the last frames of a TX ring: a full one takes 64 of 32 frames each.
const WAKE_UPS_LEFT: u32 = 1_000;

/// Slots of a fill ring, at least: fewer would lose frames in every burst.
const FILL_AT_LEAST: u32 = 256;

/// Slots of the fill ring of a further queue of a device, at most: the frames of one queue are enough for ten.
const FILL_OF_FURTHER: u32 = 1_024;

/// What `/metrics` shows of one queue: written by its worker, read by anybody.
#[derive(Debug, Default)]
pub struct QueueRows {
    own: Arc<Tally>,
    kernel: Mutex<KernelCounters>,
}

impl QueueRows {
    /// What this side counts, as it does.
    pub fn own(&self) -> Counters {
        self.own.read()
    }

    /// What the kernel has counted when it was asked last.
    pub fn kernel(&self) -> KernelCounters {
        *self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No worker waits for somebody who reads: it asks the kernel again soon.
    fn keep(&self, kernel: KernelCounters) {
        if let Ok(mut kept) = self.kernel.try_lock() {
            *kept = kernel;
        }
    }
}

impl Queue {
    /// Bytes of DNS message that a packet of this device carries.
    pub fn room(&self, ipv4: bool) -> usize {
        let headers = if ipv4 { 20 + 8 } else { 40 + 8 };
        self.mtu.saturating_sub(headers)
    }

    /// The frames come first: they are asked of the sender's processor, and what else is done, once a turn, needs none of them.
    #[inline]
    fn receive(&mut self, umem: &mut Umem, batch: &mut xsk::Batch) -> usize {
        let count = self.socket.receive(umem, batch);
        if count > 0 {
            self.owes_beat = true;
            self.quiet = 0;
        }
        if std::mem::take(&mut self.is_behind) {
            self.socket.complete(umem);
            self.owes_beat |= self.socket.owes_many() && self.socket.refill(umem).was_empty;
        }
        count
    }

    /// Whether it is polled in the wait that comes, if it may be; else it is watched.
    #[inline]
    fn attend(&mut self, may_be_polled: bool, watch: &Watch) -> bool {
        let is_polled = may_be_polled && self.quiet < QUIET;
        self.quiet = self.quiet.saturating_add(1);
        if is_polled == self.is_watched {
            self.change_attention(is_polled, watch);
        }
        !self.is_watched
    }

    #[cold]
    fn change_attention(&mut self, is_polled: bool, watch: &Watch) {
        if is_polled {
            watch.remove(&self.socket);
            self.is_watched = false;
        } else {
            // Without memory for it, it is polled some more.
            self.is_watched = watch.add_ring(self.socket.as_fd()).is_ok();
            self.quiet = if self.is_watched { self.quiet } else { 0 };
        }
    }

    /// Has as many frames ready for the kernel as the rate of the last `elapsed` lets expect.
    fn suit_rate(&mut self, elapsed: Duration) {
        let received = self.socket.counters().received;
        let came = received.saturating_sub(std::mem::replace(&mut self.received, received));
        self.socket
            .keep_ready(frames_ready(came, elapsed, self.socket.ready()));
    }

    /// Shows the kernel what was put into the TX ring; whether some of it must wait for another turn.
    #[inline]
    fn flush(&mut self) -> bool {
        if self.owes_beat
            && let Some(heartbeat) = &self.heartbeat
        {
            heartbeat.foresee();
        }
        self.is_behind = true;
        matches!(self.socket.flush(), Flushed::Pending(_))
    }
}

/// The queue of this number of a device.
fn find<'q>(
    queues: &'q mut [Option<Queue>],
    further: &'q mut [(u8, Queue)],
    (device, number): (u8, u32),
) -> Option<&'q mut Queue> {
    let own = queues.get_mut(usize::from(device));
    let own = own.and_then(Option::as_mut).into_iter();
    let further = further.iter_mut().filter(|(owner, _)| *owner == device);
    let mut all = own.chain(further.map(|(_, queue)| queue));
    all.find(|queue| queue.socket.queue() == number)
}

/// All queues of one worker over one UMEM.
pub struct Devices {
    umem: Umem,
    /// Frames that fill rings of open queues can hold.
    filled: u32,
    /// By device number (network::devices): the queue that this worker sends by.
    queues: Vec<Option<Queue>>,
    /// More queues of the same devices, by device number: received from, not sent by.
    further: Vec<(u8, Queue)>,
    /// For how long queues are polled after the last frame, at most; `None`: none is.
    polling: Option<Duration>,
    /// Who wants to see packets of a device.
    taps: Vec<(u8, Tap)>,
}

impl Devices {
    pub fn new(umem: Umem) -> Devices {
        Devices {
            umem,
            filled: 0,
            queues: Vec::new(),
            further: Vec::new(),
            polling: None,
            taps: Vec::new(),
        }
    }

    /// Binds one more queue. A worker that had none gets frames for it; one that has shares them.
    ///
    /// # Errors
    /// The queue is busy or gone, or there are too few frames left for another one.
    pub fn open(&mut self, opening: Opening) -> xsk::Result<Opened> {
        self.remove(opening.device, opening.queue);
        self.make_room(&opening)?;
        let rings = self.rings(opening.device)?;
        let options = Options {
            rings,
            mode: opening.mode,
            patience: opening.patience,
        };
        let (interface, queue) = (opening.interface, opening.queue);
        let umem = &mut self.umem;
        let mut socket =
            Socket::bind_descriptor(opening.descriptor, umem, interface, queue, options)?;
        socket.count_in(Arc::clone(&opening.rows.own));
        let duplicate = socket.as_fd().try_clone_to_owned();
        let opened = Opened {
            socket: duplicate
                .map_err(|error| xsk::Error::system("duplicating an AF_XDP socket", error))?,
            zero_copy: matches!(socket.mode()?, BindMode::ZeroCopy),
            is_polled: socket.busy_poll().is_some(),
            memory: self.umem.area(),
        };
        self.filled += rings.fill;
        let queue = Queue {
            heartbeat: opening.heartbeat,
            owes_beat: false,
            is_behind: true,
            mac: opening.facts.mac,
            accept_partial: opening.facts.accept_partial,
            mtu: opening.facts.mtu,
            polled: socket.busy_poll(),
            is_watched: false,
            quiet: QUIET,
            received: socket.counters().received,
            socket,
            fill: rings.fill,
            rows: opening.rows,
        };
        self.insert(opening.device, queue);
        Ok(opened)
    }

    /// A queue that is there already, because it is simulated: for simulations, and for counting.
    pub fn adopt(&mut self, device: u8, mut socket: Socket, facts: Facts) {
        let rows = Arc::<QueueRows>::default();
        socket.count_in(Arc::clone(&rows.own));
        let queue = Queue {
            received: 0,
            socket,
            heartbeat: None,
            owes_beat: false,
            is_behind: true,
            is_watched: false,
            quiet: QUIET,
            mac: facts.mac,
            accept_partial: facts.accept_partial,
            mtu: facts.mtu,
            polled: None,
            fill: 0,
            rows,
        };
        self.insert(device, queue);
    }

    /// Frames for the first queue of a worker that had none.
    fn make_room(&mut self, opening: &Opening) -> xsk::Result<()> {
        if self.all().next().is_some() {
            return Ok(());
        }
        match &opening.memory {
            Some(memory) => self.umem = Umem::of_shared_memory(memory)?,
            None if self.umem.frames() < opening.frames => {
                let options = UmemOptions {
                    node: opening.node,
                    ..UmemOptions::default()
                };
                self.umem = Umem::new(opening.frames, options)?;
            }
            None => {}
        }
        Ok(())
    }

    /// Ring sizes for one more queue. Its fill ring takes at most half of the frames that no other one can hold, so that
    /// some are always left to send with.
    fn rings(&self, device: u8) -> xsk::Result<RingSizes> {
        let mut usual = RingSizes::default();
        if self.queue(device).is_some() {
            usual.fill = FILL_OF_FURTHER;
        }
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

    /// The lowest queue of a device is the one to send by: the worker's own, where it has it.
    fn insert(&mut self, device: u8, queue: Queue) {
        let place = usize::from(device);
        if self.queues.len() <= place {
            self.queues.resize_with(place + 1, || None);
        }
        let further = match &mut self.queues[place] {
            Some(first) if first.socket.queue() < queue.socket.queue() => Some(queue),
            first => first.replace(queue),
        };
        self.further.extend(further.map(|queue| (device, queue)));
        self.polling = self.all().filter_map(|queue| queue.polled).max();
    }

    /// For how long after the last frame queues are to be polled; `None`: not at all.
    #[inline]
    pub fn polling(&self) -> Option<Duration> {
        self.polling
    }

    /// Has the kernel look at the queues that are polled: what came is in their rings then.
    #[cold]
    pub fn poll(&self) {
        let polled = self.all().filter(|queue| queue.polled.is_some());
        polled.for_each(|queue| queue.socket.poll_queue());
    }

    /// Gives up a queue of a device. Another one takes its place, if there is one.
    pub fn remove(&mut self, device: u8, queue: u32) -> Option<Queue> {
        let first = self.queues.get_mut(usize::from(device))?;
        let removed = match first {
            Some(own) if own.socket.queue() == queue => {
                let removed = first.take();
                let lowest = self.further.iter().enumerate();
                let lowest = lowest.filter(|(_, (number, _))| *number == device);
                let lowest = lowest.min_by_key(|(_, (_, queue))| queue.socket.queue());
                let lowest = lowest.map(|(place, _)| place);
                *first = lowest.map(|place| self.further.swap_remove(place).1);
                removed?
            }
            _ => {
                let is_it = |(number, further): &(u8, Queue)| {
                    *number == device && further.socket.queue() == queue
                };
                let place = self.further.iter().position(is_it)?;
                self.further.swap_remove(place).1
            }
        };
        self.filled -= removed.fill;
        self.polling = self.all().filter_map(|queue| queue.polled).max();
        Some(removed)
    }

    fn all(&self) -> impl Iterator<Item = &Queue> + Clone {
        let further = self.further.iter().map(|(_, queue)| queue);
        self.queues.iter().flatten().chain(further)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Queue> {
        let further = self.further.iter_mut().map(|(_, queue)| queue);
        self.queues.iter_mut().flatten().chain(further)
    }

    /// The numbers of the queues of a device that are open here.
    pub fn numbers(&self, device: u8) -> Vec<u32> {
        let further = self.further.iter().filter(|(number, _)| *number == device);
        let further = further.map(|(_, queue)| queue);
        let all = self.queue(device).into_iter().chain(further);
        all.map(|queue| queue.socket.queue()).collect()
    }

    /// The socket of one queue.
    pub fn socket(&self, device: u8, queue: u32) -> Option<&Socket> {
        let further = self.further.iter().filter(|(number, _)| *number == device);
        let further = further.map(|(_, queue)| queue);
        let mut all = self.queue(device).into_iter().chain(further);
        let found = all.find(|open| open.socket.queue() == queue);
        found.map(|open| &open.socket)
    }

    /// Puts a queue that was opened into the epoll: nothing has come from it yet.
    ///
    /// # Errors
    /// Those of [`Watch::add_ring`].
    pub fn watch(&mut self, device: u8, queue: u32, watch: &Watch) -> io::Result<()> {
        if let Some(opened) = find(&mut self.queues, &mut self.further, (device, queue)) {
            watch.add_ring(opened.socket.as_fd())?;
            opened.is_watched = true;
        }
        Ok(())
    }

    /// Before a wait: decides which queues are polled in it, those that frames come from. All others are in the epoll.
    pub fn attend(&mut self, watch: &Watch) {
        let mut left = POLLED;
        for queue in self.all_mut() {
            left = left.saturating_sub(queue.attend(left > 0, watch).into());
        }
    }

    /// The descriptors of the queues that are polled.
    pub fn polled_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let polled = self.all().filter(|queue| !queue.is_watched);
        polled.map(|queue| queue.socket.as_fd())
    }

    /// An interface has changed under its queue.
    pub fn change(&mut self, device: u8, facts: Facts) {
        let own = self.queues.get_mut(usize::from(device));
        let own = own.and_then(Option::as_mut).into_iter();
        let further = self.further.iter_mut();
        let further = further.filter(|(owner, _)| *owner == device);
        // The others too: one of them takes its place when it goes.
        for queue in own.chain(further.map(|(_, queue)| queue)) {
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

    /// How many queues there are beside the one of each device that is sent by.
    #[inline]
    pub fn count_of_further(&self) -> usize {
        self.further.len()
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
        (
            self.umem.census(self.all().map(|queue| &queue.socket)),
            self.umem.frames(),
        )
    }

    /// Whether a queue has frames to be received.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.all().any(|queue| queue.socket.has_waiting())
    }

    /// A sign of life for each queue that has taken frames since its last one. To be called before each wait and, where none is
    /// needed, many times in the 100 ms after which a program takes a worker for stalled. Not after each batch: the program has read
    /// the cell for each frame on the sender's processor, and would have to ask this one for it again.
    pub fn beat(&mut self) {
        for queue in self.all_mut() {
            if std::mem::take(&mut queue.owes_beat)
                && let Some(heartbeat) = &queue.heartbeat
            {
                heartbeat.beat();
            }
        }
    }

    /// Asks for what [`receive`](Devices::receive) will read first: the sender's processor has written it.
    #[inline]
    pub fn foresee(&self) {
        self.all().for_each(|queue| queue.socket.foresee());
    }

    /// Receives a batch of `device`; the first time in a turn it takes back what was sent, and gives the kernel frames to receive
    /// into.
    pub fn receive(&mut self, device: u8, batch: &mut xsk::Batch) -> usize {
        let Some(queue) = self
            .queues
            .get_mut(usize::from(device))
            .and_then(Option::as_mut)
        else {
            return 0;
        };
        queue.receive(&mut self.umem, batch)
    }

    /// The same with the queue at a place among the further ones; its device and number, and how many frames.
    #[cold]
    pub fn receive_further(
        &mut self,
        place: usize,
        batch: &mut xsk::Batch,
    ) -> Option<(u8, u32, usize)> {
        let (device, queue) = self.further.get_mut(place)?;
        let count = queue.receive(&mut self.umem, batch);
        Some((*device, queue.socket.queue(), count))
    }

    /// Sends the message that lies in `frame` at `start`, `length` bytes of it, with `headers` written in front.
    ///
    /// # Errors
    /// See [`Unsent`].
    #[inline]
    pub fn send(
        &mut self,
        device: u8,
        frame: Frame,
        start: usize,
        length: usize,
        headers: &Headers<'_>,
    ) -> Result<(), Unsent> {
        let queues = &mut self.queues;
        let Some(Some(queue)) = queues.get_mut(usize::from(device)) else {
            return Err(Unsent::NoWay(frame));
        };
        if length > queue.room(headers.destination.is_ipv4()) {
            return Err(Unsent::NoWay(frame));
        }
        let chunk = self.umem.chunk_mut(&frame);
        let Some(head) = write_headers(chunk, start, length, headers) else {
            return Err(Unsent::NoWay(frame));
        };
        let (head, total) = (head as u32, (start + length - head) as u32);
        match queue.socket.send(frame, head, total) {
            Ok(()) => Ok(()),
            Err(frame) => self.send_after_flush(device, frame, head, total),
        }
    }

    /// The TX ring was full: once more, after the kernel has taken what is there.
    #[cold]
    fn send_after_flush(
        &mut self,
        device: u8,
        frame: Frame,
        head: u32,
        total: u32,
    ) -> Result<(), Unsent> {
        self.show_sent();
        let Some(queue) = self.queue_mut(device) else {
            return Err(Unsent::NoWay(frame));
        };
        queue.socket.flush();
        queue.socket.send(frame, head, total).map_err(|frame| {
            self.umem.give(frame);
            Unsent::RingFull
        })
    }

    /// Sends a copy of `message`, `prefix` in front; false when this worker has no ring there, no free frame, or the packet
    /// would not fit.
    pub fn send_copy(
        &mut self,
        device: u8,
        headers: &Headers<'_>,
        (prefix, message): (&[u8], &[u8]),
    ) -> bool {
        let length = prefix.len() + message.len();
        let Some(queue) = self.queue(device) else {
            return false;
        };
        if length
            > queue
                .room(headers.destination.is_ipv4())
                .min(CHUNK - COPY_START)
        {
            return false;
        }
        let Some(frame) = self.umem.take() else {
            return false;
        };
        let place = &mut self.umem.chunk_mut(&frame)[COPY_START..COPY_START + length];
        place[..prefix.len()].copy_from_slice(prefix);
        place[prefix.len()..].copy_from_slice(message);
        match self.send(device, frame, COPY_START, length, headers) {
            Ok(()) => true,
            Err(Unsent::RingFull) => false,
            Err(Unsent::NoWay(frame)) => {
                self.umem.give(frame);
                false
            }
        }
    }

    /// Ends a turn: shows the kernel what was put into the TX rings; whether some of it must wait for another turn.
    pub fn flush(&mut self) -> bool {
        if self.is_tapped() {
            self.show_sent();
        }
        let mut waits = false;
        for queue in self.queues.iter_mut().flatten() {
            waits |= queue.flush();
        }
        for (_, queue) in &mut self.further {
            // One that was sent by until a lower one came may have something left.
            waits |= queue.flush();
        }
        waits
    }

    /// Sends what is in the TX ring of a queue and takes back what it has sent: what is sent by a driver itself is lost when
    /// its socket is closed before. A device that is down or gone is not waited for: how many frames it leaves there, which
    /// nobody will get.
    pub fn finish(&mut self, device: u8, number: u32) -> u32 {
        let Some(queue) = find(&mut self.queues, &mut self.further, (device, number)) else {
            return 0;
        };
        for _ in 0..WAKE_UPS_LEFT {
            let flushed = queue.socket.flush();
            queue.socket.complete(&mut self.umem);
            let counters = queue.socket.counters();
            match flushed {
                Flushed::Drained if counters.sent == counters.completed => return 0,
                Flushed::Down(_) => return queue.socket.unsent(),
                Flushed::Drained | Flushed::Pending(_) => {}
            }
        }
        0
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
    pub fn show_received(&self, (device, queue): (u8, u32), frame: &[u8], mark: Mark, now: Now) {
        for (_, tap) in self.taps.iter().filter(|(tapped, _)| *tapped == device) {
            if tap.wants(frame, true) {
                tap.copy(frame, queue, mark, now);
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

    /// Has as many frames ready for the kernel as the rate of the last `elapsed` lets expect, for each queue.
    pub fn suit_rates(&mut self, elapsed: Duration) {
        self.all_mut().for_each(|queue| queue.suit_rate(elapsed));
    }

    /// Reads the kernel's own counters into the rows.
    pub fn publish_kernel(&self) {
        for queue in self.all() {
            if let Ok(kernel) = queue.socket.statistics() {
                queue.rows.keep(kernel);
            }
        }
    }
}

/// How many frames are to be ready where so many `came` within `elapsed`, and so many were `before`.
fn frames_ready(came: u64, elapsed: Duration, before: u32) -> u32 {
    let expected = u128::from(came) * READY.as_nanos() / elapsed.as_nanos().max(1);
    let expected = u32::try_from(expected).unwrap_or(u32::MAX);
    // Half of what they were a moment ago: rates go up and down.
    expected.max(before / 2).clamp(READY_LEAST, READY_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xsk::simulated::Kernel;

    const RINGS: RingSizes = RingSizes {
        fill: 8,
        rx: 8,
        tx: 8,
        completion: 16,
    };

    const OLD: Facts = Facts {
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1_500,
        accept_partial: true,
    };

    /// A device, number 3, with one queue over rings of these sizes.
    fn adopted(frames: u32, rings: &RingSizes) -> (Devices, Kernel) {
        let chunks = Umem::shared_memory(frames, None).expect("memory");
        let umem = Umem::of_shared_memory(&chunks).expect("memory");
        let mut devices = Devices::new(umem);
        let made = xsk::simulated::socket(devices.umem(), &chunks, rings, 0);
        let (socket, kernel) = made.expect("memory");
        devices.adopt(3, socket, OLD);
        (devices, kernel)
    }

    /// So many frames come, which is no more than a batch, and a turn ends.
    fn bring(devices: &mut Devices, device: u8, kernel: &mut Kernel, count: usize) {
        let mut batch = xsk::Batch::new();
        (0..count).for_each(|_| assert!(kernel.receive(&[0; 60])));
        assert_eq!(devices.receive(device, &mut batch), count);
        for received in batch.drain() {
            devices.umem().give(received.frame);
        }
        devices.flush();
    }

    /// Frames come one at a time, each in a turn of its own; four are an eighth of this ring.
    #[test]
    fn the_fill_ring_is_filled_for_many_frames_at_once() {
        let rings = RingSizes { fill: 32, ..RINGS };
        let (mut devices, mut kernel) = adopted(64, &rings);
        let levels = [(); 5].map(|()| {
            bring(&mut devices, 3, &mut kernel, 1);
            devices.census().0.fill
        });
        assert_eq!(levels, [31, 30, 29, 32, 31]);
    }

    /// In 20 ms so many frames come, once the queue has long been quiet; what lies in the fill ring after each.
    #[test]
    fn what_comes_in_ten_milliseconds_has_frames() {
        let rings = RingSizes {
            fill: 4_096,
            rx: 64,
            tx: 8,
            completion: 16,
        };
        let (mut devices, mut kernel) = adopted(rings.frames(), &rings);
        for _ in 0..32 {
            devices.suit_rates(Duration::from_millis(20));
        }
        let levels = [4_096, 4_096, 5_120, 64, 64, 4_096].map(|count| {
            for _ in 0..count / 64 {
                bring(&mut devices, 3, &mut kernel, 64);
            }
            devices.suit_rates(Duration::from_millis(20));
            devices.census().0.fill
        });
        // What 256,000 a second bring is more than stays in the caches.
        assert_eq!(levels, [1_024, 2_048, 2_048, 2_048, 1_984, 1_024]);
    }

    #[test]
    fn a_queue_that_takes_anothers_place_knows_what_has_changed() {
        let chunks = Umem::shared_memory(64, None).expect("memory");
        let umem = Umem::of_shared_memory(&chunks).expect("memory");
        let mut devices = Devices::new(umem);
        let _kernels = [0, 4].map(|number| {
            let made = xsk::simulated::socket(devices.umem(), &chunks, &RINGS, number);
            let (socket, kernel) = made.expect("memory");
            devices.adopt(3, socket, OLD);
            kernel
        });
        let new = Facts {
            mac: [2, 0, 0, 0, 0, 2],
            mtu: 1_280,
            accept_partial: false,
        };
        devices.change(3, new);
        devices.change(2, OLD);
        assert!(devices.remove(3, 0).is_some());
        let queue = devices.queue(3).expect("the other one");
        let known = (queue.mac, queue.mtu, queue.accept_partial);
        assert_eq!(queue.socket.queue(), 4);
        assert_eq!(known, (new.mac, new.mtu, new.accept_partial));
    }

    #[test]
    fn queues_that_frames_come_from_are_polled_and_all_others_watched() {
        let count = POLLED as u32 + 1;
        let chunks = Umem::shared_memory(256, None).expect("memory");
        let umem = Umem::of_shared_memory(&chunks).expect("memory");
        let mut devices = Devices::new(umem);
        let mut kernels: Vec<_> = (0..count)
            .map(|number| {
                let made = xsk::simulated::socket(devices.umem(), &chunks, &RINGS, number);
                let (socket, kernel) = made.expect("memory");
                devices.adopt(number as u8, socket, OLD);
                kernel
            })
            .collect();
        let watch = Watch::new().expect("a descriptor");
        let polled = |devices: &mut Devices| -> Vec<u32> {
            devices.attend(&watch);
            let polled = devices.all().filter(|queue| !queue.is_watched);
            polled.map(|queue| queue.socket.queue()).collect()
        };
        let mut bring = |devices: &mut Devices, number: u32| {
            bring(devices, number as u8, &mut kernels[number as usize], 1);
        };
        assert!(polled(&mut devices).is_empty());
        bring(&mut devices, 3);
        for _ in 0..QUIET {
            assert_eq!(polled(&mut devices), [3]);
        }
        assert!(polled(&mut devices).is_empty());
        for number in 0..count {
            bring(&mut devices, number);
        }
        assert_eq!(polled(&mut devices), [0, 1, 2, 3]);
        for _ in 1..QUIET {
            bring(&mut devices, count - 1);
            assert_eq!(polled(&mut devices), [0, 1, 2, 3]);
        }
        assert_eq!(polled(&mut devices), [count - 1]);
    }

    #[test]
    fn as_many_frames_are_ready_as_ten_milliseconds_bring_within_bounds() {
        let ready =
            |a_second: u64, before| frames_ready(a_second / 50, Duration::from_millis(20), before);
        assert_eq!(ready(150_000, 1_024), 1_500);
        // For a burst after silence; and no more than stay in the caches, also of a ring that is new.
        assert_eq!(ready(0, 1_024), 1_024);
        assert_eq!(ready(1_000_000, 1_024), 2_048);
        assert_eq!(ready(0, u32::MAX), 2_048);
        // They become fewer by halves.
        assert_eq!(ready(0, 2_048), 1_024);
        assert_eq!(ready(110_000, 2_048), 1_100);
    }
}
