//! One AF_XDP socket: four rings between a queue of an interface and a worker's UMEM.
//!
//! Copy mode, cost of a frame: a slot read and a ledger octet to receive, the same to send, to complete and to refill; system
//! calls per batch, none per frame. Nothing here locks or allocates after bind.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::{Error, Named, Result};
use crate::ring::{Consumer, Producer};
use crate::sys::memory::MappedRing;
use crate::sys::socket as system;
use crate::tally::{Counters, Tally};
use crate::umem::{CHUNK, Frame, Ledger, Place, SOCKETS, Umem};
use crate::wake;

/// Most frames of one batch: enough to share the cost of a wake-up, few enough to stay in the first-level cache.
pub const BATCH: usize = 64;

/// How long bind waits for a queue that its last owner has not yet let go, unless told otherwise: the kernel releases it
/// in a work queue.
const PATIENCE: Duration = Duration::from_secs(1);
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Frames that one wake-up sends in copy mode unless the kernel was told otherwise: 16 before Linux 5.17, 32 since.
const COPY_BUDGET: u32 = 16;

/// How frames come from and go to the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BindMode {
    /// Zero-copy where the driver can, else copy.
    #[default]
    Auto,
    Copy,
    ZeroCopy,
}

/// Slots of the four rings, each a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    pub fill: u32,
    pub rx: u32,
    pub tx: u32,
    pub completion: u32,
}

impl Default for RingSizes {
    fn default() -> RingSizes {
        RingSizes {
            fill: 4096,
            rx: 4096,
            tx: 2048,
            completion: 2048,
        }
    }
}

impl RingSizes {
    /// Frames that one socket can occupy at most: received and to be received, going out, gone out, one batch in hand.
    pub const fn frames(&self) -> u32 {
        self.fill + self.rx + self.tx + self.completion + BATCH as u32
    }

    fn check(&self) -> Result<()> {
        let rings = [
            ("fill", self.fill),
            ("RX", self.rx),
            ("TX", self.tx),
            ("completion", self.completion),
        ];
        match rings.into_iter().find(|(_, size)| !size.is_power_of_two()) {
            None => Ok(()),
            Some((ring, size)) => Err(Error::Invalid(format!(
                "{ring} ring of {size} slots: must be a power of two"
            ))),
        }
    }
}

/// How a socket is bound. A socket that joins a UMEM which others use already inherits their mode.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub rings: RingSizes,
    pub mode: BindMode,
    /// How long bind may wait for a queue that is busy. A worker that serves meanwhile has none.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            rings: RingSizes::default(),
            mode: BindMode::Auto,
            patience: PATIENCE,
        }
    }
}

/// A frame as it came in: octets `start .. start + length` of its chunk.
#[derive(Debug)]
pub struct Received {
    pub frame: Frame,
    pub start: u32,
    pub length: u32,
}

/// Up to [`BATCH`] received frames, in order.
#[derive(Debug)]
pub struct Batch {
    received: [Option<Received>; BATCH],
    length: usize,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            received: [const { None }; BATCH],
            length: 0,
        }
    }
}

impl Batch {
    pub fn new() -> Batch {
        Batch::default()
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Looks at a frame without taking it (to prefetch).
    pub fn get(&self, index: usize) -> Option<&Received> {
        self.received.get(index)?.as_ref()
    }

    /// Takes all frames out, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Received> + '_ {
        let length = std::mem::take(&mut self.length);
        self.received[..length].iter_mut().filter_map(Option::take)
    }

    fn push(&mut self, received: Received) {
        self.received[self.length] = Some(received);
        self.length += 1;
    }
}

/// What [`Socket::refill`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refilled {
    /// Frames given to the kernel.
    pub count: u32,
    /// The fill ring had been empty: frames may have been lost, and the heartbeat must beat.
    pub was_empty: bool,
}

/// How [`Socket::flush`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The TX ring is empty: the kernel has all frames.
    Drained,
    /// So many frames wait in the TX ring: the kernel cannot take more now. Flush again after the next batch.
    Pending(u32),
    /// The link is down or the device is gone (error number); frames stay in the ring.
    Down(i32),
}

/// What the kernel has counted since bind (XDP_STATISTICS). The last three are zero before Linux 5.9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Dropped for other reasons than a full ring: too long for a chunk.
    pub rx_dropped: u64,
    pub rx_invalid: u64,
    pub tx_invalid: u64,
    pub rx_ring_full: u64,
    pub fill_ring_empty: u64,
    pub tx_ring_empty: u64,
}

/// A bound AF_XDP socket. Dropping it unmaps its rings and closes it; what it had goes back to its UMEM
/// ([`Umem::reclaim`]). To lose nothing: take it out of the program's map, receive and [`flush`](Socket::flush) until both
/// rings are empty, then drop it.
pub struct Socket {
    // Dropped in this order: the queue stays busy for ever when the socket is closed while a ring is mapped, and the
    // chunks are ours again only after close.
    rx: Consumer<MappedRing<libc::xdp_desc>>,
    tx: Producer<MappedRing<libc::xdp_desc>>,
    fill: Producer<MappedRing<u64>>,
    completion: Consumer<MappedRing<u64>>,
    descriptor: Arc<OwnedFd>,
    membership: Membership,
    interface: u32,
    queue: u32,
    budget: u32,
    /// Frames that have come in since the fill ring was last filled; `u32::MAX`: there were not enough free ones then.
    owed: u32,
    /// The fill ring gets no more frames than these: [`Socket::keep_ready`].
    ready: u32,
    /// The kernel has taken all that was put into the TX ring.
    drained: bool,
    tally: Arc<Tally>,
}

impl Socket {
    /// An unbound socket, for [`bind_descriptor`](Socket::bind_descriptor): this is what needs CAP_NET_RAW.
    pub fn open() -> Result<OwnedFd> {
        system::open().map_err(Error::opening)
    }

    /// The same with frames registered that another process will use: what they take counts against nobody's
    /// RLIMIT_MEMLOCK where the caller has CAP_IPC_LOCK.
    pub fn open_registered(memory: &OwnedFd) -> Result<OwnedFd> {
        let umem = Umem::of_shared_memory(memory)?;
        let socket = Socket::open()?;
        register(socket.as_fd(), &umem)?;
        Ok(socket)
    }

    /// Opens a socket and binds it to a queue.
    pub fn bind(umem: &mut Umem, interface: u32, queue: u32, options: Options) -> Result<Socket> {
        Socket::bind_descriptor(Socket::open()?, umem, interface, queue, options)
    }

    /// Binds an open socket to a queue of an interface (index). The first socket of a UMEM registers it; others join.
    /// Waits for a queue that is busy, as long as `options` say.
    pub fn bind_descriptor(
        descriptor: OwnedFd,
        umem: &mut Umem,
        interface: u32,
        queue: u32,
        options: Options,
    ) -> Result<Socket> {
        options.rings.check()?;
        // Joining comes first: it decides whether this socket registers the UMEM, which must precede bind, while rings
        // must be mapped before bind (EBUSY afterwards, before Linux 6.4).
        let membership = Membership::of(umem)?;
        let descriptor = Arc::new(descriptor);
        make_rings(descriptor.as_fd(), &options.rings)?;
        let mut socket = Socket::map(descriptor, membership, interface, queue, &options.rings)?;
        // Before bind even where nothing will be received: ice and i40e leak buffers otherwise.
        socket.refill(umem);
        socket.join(umem, &options)?;
        socket.membership.zero_copy = socket.mode()? == BindMode::ZeroCopy;
        socket.raise_budget(options.rings.tx);
        umem.add_sharer(&socket.descriptor);
        socket.tally = Arc::default();
        Ok(socket)
    }

    fn map(
        descriptor: Arc<OwnedFd>,
        membership: Membership,
        interface: u32,
        queue: u32,
        sizes: &RingSizes,
    ) -> Result<Socket> {
        let fd = descriptor.as_fd();
        let offsets: libc::xdp_mmap_offsets = system::option(fd, libc::XDP_MMAP_OFFSETS)
            .map_err(|error| Error::system("asking where an AF_XDP socket's rings are", error))?;
        let failed = |error| Error::system("mapping the rings of an AF_XDP socket", error);
        let fill = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
        Ok(Socket {
            rx: Consumer::new(
                MappedRing::map(fd, libc::XDP_PGOFF_RX_RING, &offsets.rx, sizes.rx)
                    .map_err(failed)?,
            ),
            tx: Producer::new(
                MappedRing::map(fd, libc::XDP_PGOFF_TX_RING, &offsets.tx, sizes.tx)
                    .map_err(failed)?,
            ),
            fill: Producer::new(
                MappedRing::map(fd, fill, &offsets.fr, sizes.fill).map_err(failed)?,
            ),
            completion: Consumer::new(
                MappedRing::map(fd, completion, &offsets.cr, sizes.completion).map_err(failed)?,
            ),
            descriptor,
            membership,
            interface,
            queue,
            budget: COPY_BUDGET,
            owed: u32::MAX,
            ready: u32::MAX,
            drained: true,
            tally: Arc::default(),
        })
    }

    /// A socket over rings (RX and TX, fill and completion) whose other ends are simulated.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn over(
        (rx, tx): (
            Consumer<MappedRing<libc::xdp_desc>>,
            Producer<MappedRing<libc::xdp_desc>>,
        ),
        (fill, completion): (Producer<MappedRing<u64>>, Consumer<MappedRing<u64>>),
        (descriptor, queue): (Arc<OwnedFd>, u32),
        umem: &Umem,
    ) -> Result<Socket> {
        Ok(Socket {
            rx,
            tx,
            fill,
            completion,
            descriptor,
            membership: Membership::of(umem)?,
            interface: 0,
            queue,
            budget: COPY_BUDGET,
            owed: u32::MAX,
            ready: u32::MAX,
            drained: true,
            tally: Arc::default(),
        })
    }

    /// Binds with the UMEM of a live socket, or registers it.
    fn join(&self, umem: &mut Umem, options: &Options) -> Result<()> {
        for sharer in umem.sharers() {
            // XDP_SHARED_UMEM alone: any other flag is EINVAL, the mode is the sharer's.
            match self.bind_patiently(
                libc::XDP_SHARED_UMEM,
                Some(sharer.as_fd()),
                options.patience,
            ) {
                // Its device is gone: try the next.
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    return Err(Error::ZeroCopyMismatch {
                        interface: self.interface,
                        queue: self.queue,
                    });
                }
                other => return other,
            }
        }
        if !umem.take_registered() {
            register(self.as_fd(), umem)?;
        }
        let mode = match options.mode {
            BindMode::Auto => 0,
            BindMode::Copy => libc::XDP_COPY,
            BindMode::ZeroCopy => libc::XDP_ZEROCOPY,
        };
        self.bind_patiently(mode | libc::XDP_USE_NEED_WAKEUP, None, options.patience)
    }

    fn bind_patiently(
        &self,
        flags: u16,
        sharer: Option<BorrowedFd<'_>>,
        patience: Duration,
    ) -> Result<()> {
        let (interface, queue) = (self.interface, self.queue);
        let started = Instant::now();
        loop {
            let error = match system::bind(self.as_fd(), interface, queue, flags, sharer) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if error.raw_os_error() != Some(libc::EBUSY) {
                let doing = format!(
                    "binding an AF_XDP socket to queue {queue} of interface {}",
                    Named(interface)
                );
                return Err(Error::system(doing, error));
            }
            if started.elapsed() >= patience {
                return Err(Error::QueueBusy { interface, queue });
            }
            thread::sleep(BUSY_PAUSE);
        }
    }

    /// Lets one wake-up send a whole ring where the kernel can be told so; else 32 frames at a time.
    fn raise_budget(&mut self, frames: u32) {
        if system::set_option(self.as_fd(), system::XDP_MAX_TX_SKB_BUDGET, &frames).is_ok() {
            self.budget = frames;
        }
    }

    /// Receives what is there into an empty batch; returns how many.
    pub fn receive(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        debug_assert!(
            batch.is_empty(),
            "{} frames of the last batch are still there",
            batch.len()
        );
        let from = Place::fill(self.membership.number);
        while batch.len() < BATCH {
            let Some(slot) = self.rx.pop() else { break };
            umem.prefetch(slot.addr);
            match umem.received(slot.addr, from) {
                None => self.tally.bad_addresses.add(1),
                Some(frame) => {
                    let start = slot.addr as u32 % CHUNK as u32;
                    if slot.len as usize <= CHUNK - start as usize {
                        batch.push(Received {
                            frame,
                            start,
                            length: slot.len,
                        });
                    } else {
                        self.tally.bad_addresses.add(1);
                        umem.give(frame);
                    }
                }
            }
        }
        self.owed = self.owed.saturating_add(self.rx.release());
        self.tally.received.add(batch.len() as u64);
        batch.len()
    }

    /// Asks for what [`receive`](Socket::receive) reads first.
    #[inline]
    pub fn foresee(&self) {
        self.rx.foresee();
    }

    /// Whether frames are there to be received: one load. What [`receive`](Socket::receive) reads then is asked for.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.rx.foresee();
        self.rx.waiting() > 0
    }

    /// Puts a frame into the TX ring: octets `start .. start + length` of its chunk. It leaves with the next
    /// [`flush`](Socket::flush). `Err` gives the frame back: the ring is full.
    #[inline]
    pub fn send(
        &mut self,
        frame: Frame,
        start: u32,
        length: u32,
    ) -> std::result::Result<(), Frame> {
        // The kernel would skip it and never complete it: the frame would be lost.
        let inside = start as usize + length as usize <= CHUNK && length >= 14;
        assert!(
            inside,
            "{length} octets at {start} are not a frame within a chunk of {CHUNK}"
        );
        if self.tx.room(1) == 0 {
            self.tally.tx_full.add(1);
            return Err(frame);
        }
        let chunk = frame.surrender();
        self.membership
            .ledger
            .moved(chunk, Place::PIPELINE, Place::tx(self.membership.number));
        let address = u64::from(chunk) * CHUNK as u64 + u64::from(start);
        self.tx.push(libc::xdp_desc {
            addr: address,
            len: length,
            options: 0,
        });
        self.tally.sent.add(1);
        Ok(())
    }

    /// Shows the frames that were put into the TX ring since the last [`flush`](Socket::flush): for whoever wants to see
    /// what is sent. `umem` must be this socket's.
    pub fn for_each_unpublished(&self, umem: &Umem, mut show: impl FnMut(&[u8])) {
        for slot in self.tx.unpublished() {
            if let Some(frame) =
                umem.unpublished(slot.addr, slot.len, Place::tx(self.membership.number))
            {
                show(frame);
            }
        }
    }

    /// Shows the kernel what was put into the TX ring, and wakes it until it has taken all or takes no more. Nothing to
    /// send costs nothing.
    pub fn flush(&mut self) -> Flushed {
        if self.tx.publish() == 0 && self.drained {
            return Flushed::Drained;
        }
        let flushed = self.drain();
        self.drained = flushed == Flushed::Drained;
        flushed
    }

    fn drain(&mut self) -> Flushed {
        let mut pending = self.tx.pending();
        // EAGAIN is both "as many sent as one call may, there are more" and "no room for completions". Newer kernels show
        // in the ring which it was; older ones (5.10, 6.1) show nothing before the last frame: so often as it could take.
        let mut calls = pending.div_ceil(self.budget);
        while pending > 0 {
            if !self.tx.needs_wakeup() {
                return Flushed::Pending(pending);
            }
            self.tally.wakeups.add(1);
            let woken = wake::send_waiting(self.descriptor.as_fd());
            let left = self.tx.pending();
            calls = calls.saturating_sub(1);
            match woken.err() {
                Some(error @ (Errno::NXIO | Errno::NETDOWN | Errno::BADF)) => {
                    return Flushed::Down(error.raw_os_error());
                }
                // EBUSY: the device dropped one.
                Some(Errno::AGAIN | Errno::BUSY) if calls > 0 => {}
                _ if left == pending => return Flushed::Pending(left),
                _ => {}
            }
            pending = left;
        }
        Flushed::Drained
    }

    /// Frames in the TX ring that the kernel was shown and has not taken.
    pub fn unsent(&mut self) -> u32 {
        self.tx.pending()
    }

    /// Takes back frames that have been sent; returns how many.
    pub fn complete(&mut self, umem: &mut Umem) -> u32 {
        let from = Place::tx(self.membership.number);
        let mut bad = 0;
        let count = self.completion.pop_each(u32::MAX, |address| {
            bad += u32::from(!umem.completed(address, from));
        });
        self.completion.release();
        self.tally.completed.add((count - bad).into());
        self.tally.bad_addresses.add(bad.into());
        count - bad
    }

    /// Whether it is worth while to [`refill`](Self::refill): frames for a batch are owed, or for an eighth of a small ring. How far
    /// the kernel has come in the fill ring is in a cache line that the sender's processor writes: one look for many frames.
    #[inline]
    pub fn owes_many(&self) -> bool {
        self.owed >= (self.fill.size() / 8).clamp(1, BATCH as u32)
    }

    /// How many frames the fill ring is to hold from now on, at least one and at most all that it has room for, as it does when
    /// it is new. Frames are used in turn: the fewer there are in it, the more of them are still in the caches of the processors,
    /// their pages in the TLBs, when their turn comes again.
    pub fn keep_ready(&mut self, count: u32) {
        self.ready = count.max(1);
    }

    /// What [`keep_ready`](Socket::keep_ready) was told last; `u32::MAX` when it is new.
    pub fn ready(&self) -> u32 {
        self.ready
    }

    /// Gives free frames to the kernel to receive into, as many as the fill ring has room for or is to hold. While none have come
    /// in since the last time it costs nothing.
    pub fn refill(&mut self, umem: &mut Umem) -> Refilled {
        if umem.has_closed_sockets() {
            umem.reclaim();
        }
        if self.owed == 0 {
            return Refilled {
                count: 0,
                was_empty: false,
            };
        }
        let pending = self.fill.pending();
        let was_empty = pending == 0;
        let to = Place::fill(self.membership.number);
        let room = self
            .ready
            .saturating_sub(pending)
            .min(self.fill.room(u32::MAX));
        self.fill.push_each(room, || {
            let chunk = umem.take_free(to)?;
            Some(u64::from(chunk) * CHUNK as u64)
        });
        let count = self.fill.publish();
        self.owed = if count < room { u32::MAX } else { 0 };
        self.tally.fill_empty.add(was_empty.into());
        // In copy mode the kernel never sleeps over an empty fill ring, and the look would wait for all that was just written.
        if count > 0 && self.membership.zero_copy && self.fill.needs_wakeup() {
            wake::take_fill(self.descriptor.as_fd());
        }
        Refilled {
            count,
            was_empty: was_empty && count > 0,
        }
    }

    /// Frames waiting in the RX ring and in the completion ring.
    pub fn waiting(&self) -> (u32, u32) {
        (self.rx.waiting(), self.completion.waiting())
    }

    /// The interface's index.
    pub fn interface(&self) -> u32 {
        self.interface
    }

    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Frames that one wake-up sends in copy mode, at least.
    pub fn budget(&self) -> u32 {
        self.budget
    }

    pub fn counters(&self) -> Counters {
        self.tally.read()
    }

    /// The same for whoever reads it from another thread.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Counts in another tally from now on: one that somebody reads already.
    pub fn count_in(&mut self, tally: Arc<Tally>) {
        self.tally = tally;
    }

    /// The kernel's own counters.
    pub fn statistics(&self) -> Result<KernelCounters> {
        let counted: libc::xdp_statistics = system::option(self.as_fd(), libc::XDP_STATISTICS)
            .map_err(|error| Error::system("reading an AF_XDP socket's statistics", error))?;
        Ok(KernelCounters {
            rx_dropped: counted.rx_dropped,
            rx_invalid: counted.rx_invalid_descs,
            tx_invalid: counted.tx_invalid_descs,
            rx_ring_full: counted.rx_ring_full,
            fill_ring_empty: counted.rx_fill_ring_empty_descs,
            tx_ring_empty: counted.tx_ring_empty_descs,
        })
    }

    /// [`BindMode::Copy`] or [`BindMode::ZeroCopy`]: what the kernel chose.
    pub fn mode(&self) -> Result<BindMode> {
        let options: libc::xdp_options = system::option(self.as_fd(), libc::XDP_OPTIONS)
            .map_err(|error| Error::system("reading an AF_XDP socket's mode", error))?;
        let zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(if zero_copy {
            BindMode::ZeroCopy
        } else {
            BindMode::Copy
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn register(socket: BorrowedFd<'_>, umem: &Umem) -> Result<()> {
    let area = libc::xdp_umem_reg {
        addr: umem.address(),
        len: umem.length(),
        chunk_size: CHUNK as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    system::set_option(socket, libc::XDP_UMEM_REG, &area).map_err(|error| {
        let doing = format!(
            "registering {} frames ({} octets) with the kernel; they are locked in memory: ENOBUFS means that \
             RLIMIT_MEMLOCK (LimitMEMLOCK=infinity) is too low",
            umem.frames(),
            umem.length()
        );
        Error::system(doing, error)
    })
}

/// Makes all four rings. On a shared UMEM too: another device or queue needs its own fill and completion ring.
fn make_rings(descriptor: BorrowedFd<'_>, sizes: &RingSizes) -> Result<()> {
    let rings = [
        ("fill", libc::XDP_UMEM_FILL_RING, sizes.fill),
        (
            "completion",
            libc::XDP_UMEM_COMPLETION_RING,
            sizes.completion,
        ),
        ("RX", libc::XDP_RX_RING, sizes.rx),
        ("TX", libc::XDP_TX_RING, sizes.tx),
    ];
    for (name, option, size) in rings {
        system::set_option(descriptor, option, &size).map_err(|error| {
            Error::system(format!("making the {name} ring of {size} slots"), error)
        })?;
    }
    Ok(())
}

/// A socket's number in its UMEM's ledger.
struct Membership {
    ledger: Arc<Ledger>,
    number: u8,
    zero_copy: bool,
}

impl Membership {
    fn of(umem: &Umem) -> Result<Membership> {
        let number = umem.ledger().open_socket().ok_or_else(|| {
            Error::Invalid(format!(
                "this UMEM has {SOCKETS} sockets already: one worker cannot have more"
            ))
        })?;
        Ok(Membership {
            ledger: umem.ledger().clone(),
            number,
            zero_copy: false,
        })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // In copy mode the kernel has stopped writing when close() returns; what was being sent may still be read.
        let hardware = self.zero_copy || self.ledger.any_at(Place::tx(self.number));
        self.ledger.close_socket(self.number, hardware);
    }
}
