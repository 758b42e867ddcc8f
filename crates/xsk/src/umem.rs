//! The memory of one worker's frames, and who owns each of them.
//!
//! ```text
//!  chunk 0                    chunk 1                    chunk 2
//!  ├──────── 2,048 octets ───┼──────────────────────────┼───────
//!  │ headroom 256 │ frame received, up to 1,792 octets  │
//!                 ▲ start                 ▲ start + length
//! ```
//!
//! The kernel reads and writes only chunks that lie in one of a socket's rings or on their way between two. The ledger has
//! an octet for each chunk that says where it is; it is written whenever a chunk changes hands and read before anybody
//! touches the content. So a stray token, a token of another UMEM, or an address that the kernel returns twice is found
//! out instead of being a data race.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::pages::Area;
use crate::socket::Socket;
use crate::sys::memory::{Mapping, nameless, nameless_length};

/// Octets of a chunk. The kernel allows 2,048 and 4,096; a larger one would only take more cache.
pub const CHUNK: usize = 2048;

/// Most sockets of one UMEM.
pub(crate) const SOCKETS: u8 = 64;

/// How long a chunk that a closed socket had with the hardware stays untouched: the kernel takes a zero-copy queue back
/// from the driver in a work queue after close() (seen: 35 ms), and until then the hardware may write.
const QUARANTINE: Duration = Duration::from_millis(200);

/// The right to one chunk of a [`Umem`]: its holder alone may touch it. Cannot be copied, and must be given on: to
/// [`Umem::give`] or [`Socket::send`]. Losing one is a bug; debug builds panic.
#[must_use = "a frame that nobody gives back is lost to the UMEM"]
pub struct Frame(u32);

impl Frame {
    /// The chunk's number, for logs.
    pub fn index(&self) -> u32 {
        self.0
    }

    /// Gives the token up without giving the chunk back: whoever calls has noted the new owner.
    pub(crate) fn surrender(self) -> u32 {
        let chunk = self.0;
        std::mem::forget(self);
        chunk
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            panic!(
                "frame {} was dropped: give it back with Umem::give, or send it",
                self.0
            );
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Frame({})", self.0)
    }
}

/// How a [`Umem`] is made.
#[derive(Clone, Copy, Debug)]
pub struct UmemOptions {
    /// Ask for huge pages, reserved or transparent: fewer TLB misses; nothing is lost where there are none.
    pub huge_pages: bool,
    /// The node of the machine whose memory is best: that of the card ([`nic::node`](crate::nic::node)).
    pub node: Option<u32>,
}

impl Default for UmemOptions {
    fn default() -> UmemOptions {
        UmemOptions {
            huge_pages: true,
            node: None,
        }
    }
}

/// Chunks by owner. The sum is the number of chunks (I3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// On the free list.
    pub free: u32,
    /// With the kernel to receive into.
    pub fill: u32,
    /// Received, in an RX ring, not yet taken.
    pub rx: u32,
    /// Held as [`Frame`]: in an RX batch or in the pipeline.
    pub pipeline: u32,
    /// With the kernel to send.
    pub tx: u32,
    /// Sent, in a completion ring, not yet taken back.
    pub completion: u32,
    /// Of a closed socket, until nobody can write to them any more.
    pub quarantine: u32,
}

impl Census {
    /// All owners by name, with their chunks.
    pub fn owners(&self) -> [(&'static str, u32); 7] {
        [
            ("free", self.free),
            ("fill", self.fill),
            ("rx", self.rx),
            ("pipeline", self.pipeline),
            ("tx", self.tx),
            ("completion", self.completion),
            ("quarantine", self.quarantine),
        ]
    }

    /// All chunks.
    pub fn total(&self) -> u32 {
        self.owners().into_iter().map(|(_, chunks)| chunks).sum()
    }
}

/// The frames of one worker: memory, free list, ledger. At least as many frames as its sockets' rings can hold
/// ([`RingSizes::frames`](crate::RingSizes::frames)) keep it from starving.
pub struct Umem {
    memory: Mapping,
    /// Numbers of free chunks. The last one given is the first one taken: it may still be in the cache.
    free: Vec<u32>,
    ledger: Arc<Ledger>,
    /// Bound sockets, any of which lets another one join.
    sharers: Vec<Weak<OwnedFd>>,
    /// Another process has registered it with the first socket.
    registered: bool,
}

impl Umem {
    /// Maps memory for `frames` chunks. The first socket registers it with the kernel.
    pub fn new(frames: u32, options: UmemOptions) -> Result<Umem> {
        if frames == 0 || frames > 1 << 24 {
            return Err(Error::Invalid(format!(
                "a UMEM of {frames} frames: must be 1 to {}",
                1 << 24
            )));
        }
        let length = frames as usize * CHUNK;
        let memory = Mapping::anonymous(length, options.huge_pages, options.node);
        let memory = memory.map_err(|error| {
            Error::system(
                format!("mapping {length} octets for {frames} frames"),
                error,
            )
        })?;
        Ok(Umem::of(memory, frames, false))
    }

    fn of(memory: Mapping, frames: u32, registered: bool) -> Umem {
        Umem {
            memory,
            free: (0..frames).rev().collect(),
            ledger: Arc::new(Ledger::new(frames)),
            sharers: Vec::new(),
            registered,
        }
    }

    /// Memory for at least `frames` chunks that a process with CAP_IPC_LOCK can register for us
    /// ([`Socket::open_registered`]): it is locked, and without that capability counts against RLIMIT_MEMLOCK. `node`: as in
    /// [`UmemOptions`].
    pub fn shared_memory(frames: u32, node: Option<u32>) -> Result<OwnedFd> {
        let length = frames as usize * CHUNK;
        let failed = |error| Error::system(format!("making {length} octets of memory"), error);
        nameless(length, node).map_err(failed)
    }

    /// Maps such memory. The first socket to be bound must be the one that it was registered with.
    pub fn of_shared_memory(memory: &OwnedFd) -> Result<Umem> {
        let failed = |error| Error::system("mapping frames in shared memory", error);
        let length = nameless_length(memory).map_err(failed)?;
        let frames = u32::try_from(length / CHUNK)
            .ok()
            .filter(|&frames| frames > 0 && length.is_multiple_of(CHUNK))
            .ok_or_else(|| Error::Invalid(format!("{length} octets of frames")))?;
        let memory = Mapping::of_nameless(memory.as_fd(), length).map_err(failed)?;
        Ok(Umem::of(memory, frames, true))
    }

    /// Whether the next socket comes registered; then no other one does.
    pub(crate) fn take_registered(&mut self) -> bool {
        std::mem::take(&mut self.registered)
    }

    /// Number of chunks.
    pub fn frames(&self) -> u32 {
        self.ledger.places.len() as u32
    }

    /// A free chunk.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        let chunk = self.take_free(Place::PIPELINE)?;
        Some(Frame(chunk))
    }

    /// Gives a chunk back to the free list.
    #[inline]
    pub fn give(&mut self, frame: Frame) {
        let chunk = frame.surrender();
        self.ledger.moved(chunk, Place::PIPELINE, Place::FREE);
        self.free.push(chunk);
    }

    /// The octets of a chunk, all [`CHUNK`] of them.
    #[inline]
    #[allow(unsafe_code)]
    pub fn chunk<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        self.ledger.check(frame.0, Place::PIPELINE);
        // SAFETY: the ledger has the chunk with us, so no ring holds it and the kernel does not write to it; it can go
        // to the kernel only by refill(), which needs `&mut self`, or by giving up the token, which is borrowed.
        unsafe { self.memory.slice(frame.0 as usize * CHUNK, CHUNK) }
    }

    /// Asks for the first two cache lines of a frame at `address`, headers and question of most: another processor has
    /// written them, and a batch waits for all its frames at once instead of for each in turn.
    #[inline]
    pub(crate) fn prefetch(&self, address: u64) {
        self.memory.prefetch(address as usize);
        self.memory.prefetch(address as usize + 64);
    }

    /// The octets of a chunk, to change.
    #[inline]
    #[allow(unsafe_code)]
    pub fn chunk_mut<'a>(&'a mut self, frame: &'a Frame) -> &'a mut [u8] {
        self.ledger.check(frame.0, Place::PIPELINE);
        // SAFETY: as in `chunk`; and `&mut self` lets no second reference into this memory exist.
        unsafe { self.memory.slice_mut(frame.0 as usize * CHUNK, CHUNK) }
    }

    /// Counts all chunks by owner. Walks the whole ledger: for tests, metrics and debugging, not for every batch.
    /// `sockets`: those of this UMEM; frames of one that is missing count as with the kernel though they may wait in a ring.
    pub fn census<'a>(&self, sockets: impl IntoIterator<Item = &'a Socket>) -> Census {
        let mut census = Census {
            free: self.free.len() as u32,
            ..Census::default()
        };
        let closed = self.ledger.closed.load(Relaxed);
        let mut listed_free = 0;
        for place in &self.ledger.places {
            let place = Place(place.load(Relaxed));
            match place {
                Place::FREE => listed_free += 1,
                Place::PIPELINE => census.pipeline += 1,
                _ if closed & 1 << place.socket() != 0 => census.quarantine += 1,
                _ if place.is_fill() => census.fill += 1,
                _ => census.tx += 1,
            }
        }
        for socket in sockets {
            let (rx, completion) = socket.waiting();
            (census.fill, census.rx) = (census.fill - rx, census.rx + rx);
            (census.tx, census.completion) =
                (census.tx - completion, census.completion + completion);
        }
        debug_assert_eq!(
            listed_free, census.free,
            "chunks free by the ledger and on the free list"
        );
        debug_assert_eq!(
            census.total(),
            self.frames(),
            "chunks of all owners: {census:?}"
        );
        census
    }

    /// Takes back the chunks of sockets that have been closed, once nobody can write to them; returns how many. A
    /// [`Socket::refill`] does this by itself.
    pub fn reclaim(&mut self) -> u32 {
        let mut ready = 0;
        self.ledger.closings().retain(|closing| {
            let wait = closing.at.elapsed() < closing.quarantine;
            ready |= if wait { 0 } else { 1 << closing.socket };
            wait
        });
        if ready == 0 {
            return 0;
        }
        let before = self.free.len();
        for (chunk, cell) in self.ledger.places.iter().enumerate() {
            let place = Place(cell.load(Relaxed));
            if place.is_kernel() && ready & 1 << place.socket() != 0 {
                cell.store(Place::FREE.0, Relaxed);
                self.free.push(chunk as u32);
            }
        }
        self.ledger.closed.fetch_and(!ready, Relaxed);
        self.ledger.open.fetch_and(!ready, Relaxed);
        (self.free.len() - before) as u32
    }

    /// As [`Umem::reclaim`], when the quarantine of all closed sockets is over: for simulations, whose time is another one.
    #[cfg(any(test, feature = "simulation"))]
    pub fn end_quarantine(&mut self) -> u32 {
        let mut closings = self.ledger.closings();
        for closing in closings.iter_mut() {
            closing.quarantine = Duration::ZERO;
        }
        drop(closings);
        self.reclaim()
    }

    /// Whether closed sockets have frames to take back.
    pub(crate) fn has_closed_sockets(&self) -> bool {
        self.ledger.closed.load(Relaxed) != 0
    }

    /// Takes a free chunk to another place.
    pub(crate) fn take_free(&mut self, to: Place) -> Option<u32> {
        let chunk = self.free.pop()?;
        self.ledger.moved(chunk, Place::FREE, to);
        Some(chunk)
    }

    /// A token for a chunk that the kernel says it has filled. `None`: no such chunk there, or none of this socket.
    pub(crate) fn received(&mut self, address: u64, from: Place) -> Option<Frame> {
        let chunk = self.ledger.claimed(address, from, Place::PIPELINE)?;
        Some(Frame(chunk))
    }

    /// Frees a chunk that the kernel says it has sent. `false`: no such chunk there, or none of this socket.
    pub(crate) fn completed(&mut self, address: u64, from: Place) -> bool {
        let Some(chunk) = self.ledger.claimed(address, from, Place::FREE) else {
            return false;
        };
        self.free.push(chunk);
        true
    }

    /// The octets of a frame that lies in a TX ring of ours and was not published: `from` is that ring. `None` where it is
    /// not so.
    #[allow(unsafe_code)]
    pub(crate) fn unpublished(&self, address: u64, length: u32, from: Place) -> Option<&[u8]> {
        let (address, length) = (usize::try_from(address).ok()?, length as usize);
        let chunk = address / CHUNK;
        let inside = address % CHUNK + length <= CHUNK && chunk < self.frames() as usize;
        if !inside || !self.ledger.is_at(chunk as u32, from) {
            return None;
        }
        // SAFETY: inside the memory, as was just checked; the kernel only reads what is in a TX ring, we write to a chunk
        // only while the ledger has it with the pipeline, and it comes back from the ring by `&mut self`.
        Some(unsafe { self.memory.slice(address, length) })
    }

    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Octets of all chunks; the memory itself may end with its huge page.
    pub(crate) fn length(&self) -> u64 {
        u64::from(self.frames()) * CHUNK as u64
    }

    /// Where the chunks are in this process's memory.
    pub fn area(&self) -> Area {
        Area::new(self.address(), self.length())
    }

    /// Sockets that are still open and bound with this UMEM.
    pub(crate) fn sharers(&mut self) -> Vec<Arc<OwnedFd>> {
        self.sharers.retain(|sharer| sharer.strong_count() > 0);
        self.sharers.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn add_sharer(&mut self, socket: &Arc<OwnedFd>) {
        self.sharers.push(Arc::downgrade(socket));
    }
}

/// Where a chunk is, in one octet: free, with us, or with the kernel for a socket, to receive or to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u8);

impl Place {
    pub(crate) const FREE: Place = Place(0);
    pub(crate) const PIPELINE: Place = Place(1);

    /// In the fill ring, with the receiving driver, or in the RX ring of a socket.
    pub(crate) fn fill(socket: u8) -> Place {
        Place(2 + 2 * socket)
    }

    /// In the TX ring, on its way out, or in the completion ring of a socket.
    pub(crate) fn tx(socket: u8) -> Place {
        Place(3 + 2 * socket)
    }

    fn is_kernel(self) -> bool {
        self.0 >= 2
    }

    fn is_fill(self) -> bool {
        self.is_kernel() && self.0.is_multiple_of(2)
    }

    fn socket(self) -> u8 {
        (self.0 - 2) / 2
    }
}

/// The place of every chunk, and which sockets are there. Shared by a UMEM and its sockets, all on one thread: the atomics
/// are relaxed and cost what plain memory costs.
pub(crate) struct Ledger {
    places: Box<[AtomicU8]>,
    /// Bit per socket number: in use.
    open: AtomicU64,
    /// Bit per socket number: closed, its chunks not yet taken back.
    closed: AtomicU64,
    closings: Mutex<Vec<Closing>>,
}

#[cold]
fn misplaced(chunk: u32, place: Place, found: Option<&AtomicU8>) -> ! {
    let found = found.map(|cell| Place(cell.load(Relaxed)));
    panic!("frame {chunk} should be at {place:?} but is at {found:?}: of another UMEM?")
}

/// A socket that was closed with frames still out.
struct Closing {
    socket: u8,
    at: Instant,
    quarantine: Duration,
}

impl Ledger {
    fn new(frames: u32) -> Ledger {
        Ledger {
            places: (0..frames).map(|_| AtomicU8::new(Place::FREE.0)).collect(),
            open: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            closings: Mutex::new(Vec::new()),
        }
    }

    /// A number for a new socket; `None`: all are taken.
    pub(crate) fn open_socket(&self) -> Option<u8> {
        let socket = self.open.load(Relaxed).trailing_ones() as u8;
        if socket >= SOCKETS {
            return None;
        }
        self.open.fetch_or(1 << socket, Relaxed);
        Some(socket)
    }

    /// Notes that a socket is closed. `hardware`: its chunks may still be written to or read for a while.
    pub(crate) fn close_socket(&self, socket: u8, hardware: bool) {
        let quarantine = if hardware { QUARANTINE } else { Duration::ZERO };
        self.closings().push(Closing {
            socket,
            at: Instant::now(),
            quarantine,
        });
        self.closed.fetch_or(1 << socket, Relaxed);
    }

    /// Whether any chunk is there.
    pub(crate) fn any_at(&self, place: Place) -> bool {
        self.places.iter().any(|cell| cell.load(Relaxed) == place.0)
    }

    fn is_at(&self, chunk: u32, place: Place) -> bool {
        let cell = self.places.get(chunk as usize);
        cell.is_some_and(|cell| cell.load(Relaxed) == place.0)
    }

    /// Moves a chunk that we hold. Panics when it is not where its holder thinks: the token is of another UMEM.
    #[inline(always)]
    pub(crate) fn moved(&self, chunk: u32, from: Place, to: Place) {
        self.checked(chunk, from).store(to.0, Relaxed);
    }

    /// Panics when a chunk is not where its holder thinks.
    #[inline(always)]
    fn check(&self, chunk: u32, place: Place) {
        self.checked(chunk, place);
    }

    // Six times a query: the panic is elsewhere, so that what is left is short enough to be everywhere.
    #[inline(always)]
    fn checked(&self, chunk: u32, place: Place) -> &AtomicU8 {
        match self.places.get(chunk as usize) {
            Some(cell) if cell.load(Relaxed) == place.0 => cell,
            found => misplaced(chunk, place, found),
        }
    }

    /// Moves a chunk by an address that the kernel gave us: the one place where such an address is checked.
    fn claimed(&self, address: u64, from: Place, to: Place) -> Option<u32> {
        let chunk = usize::try_from(address / CHUNK as u64).ok()?;
        let cell = self.places.get(chunk)?;
        if cell.load(Relaxed) != from.0 {
            return None;
        }
        cell.store(to.0, Relaxed);
        Some(chunk as u32)
    }

    fn closings(&self) -> std::sync::MutexGuard<'_, Vec<Closing>> {
        self.closings
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
