//! One half of a ring that we share with the kernel: single producer, single consumer, a power of two of slots.
//!
//! ```text
//!              consumer          producer                positions run from 0 to 2³²−1 and wrap;
//!                 ▼                 ▼                    slot = position & (size − 1)
//!  slots  ░░░░░░░░████████████████████░░░░░░░░░░         producer − consumer = filled slots, at most size
//!         free    filled              free
//! ```
//!
//! Each side stores only its own position (release) after it has touched the slots, and reads the other's (acquire) before
//! it touches them. Each keeps its own position in a plain field and a copy of the other's, which is refreshed only when
//! the copy does not suffice: most batches cost one store and no shared read.
//!
//! Nothing here is unsafe: where slots and positions live is behind [`Shared`]. The model check in `model/rings` compiles
//! this very file with loom's atomics; its unit tests are in `ring_tests.rs` for that reason.

use super::sync::{AtomicU32, FLAG, OBSERVE, PUBLISH, barrier};

/// Where a producer will write next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prod(u32);

/// Where a consumer will read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cons(u32);

impl Prod {
    /// Filled slots between a consumer and this producer. More than the ring has means that the other side is broken.
    fn filled(self, from: Cons) -> u32 {
        self.0.wrapping_sub(from.0)
    }

    fn advanced(self, by: u32) -> Prod {
        Prod(self.0.wrapping_add(by))
    }
}

impl Cons {
    fn advanced(self, by: u32) -> Cons {
        Cons(self.0.wrapping_add(by))
    }
}

/// The memory that both sides see: two positions and the slots.
pub(crate) trait Shared {
    type Slot: Copy;

    /// Number of slots, a power of two.
    fn size(&self) -> u32;
    fn producer(&self) -> &AtomicU32;
    fn consumer(&self) -> &AtomicU32;
    /// The kernel's flags of the ring.
    fn flags(&self) -> &AtomicU32;
    /// The slot of a position: implementations reduce it modulo the size, so that any number is a slot.
    fn read(&self, position: u32) -> Self::Slot;
    fn write(&self, position: u32, slot: Self::Slot);
    /// Asks for the producer's position and this slot, which the other side has written; memory without caches has nothing to ask.
    fn foresee(&self, _position: u32) {}
}

/// XDP_RING_NEED_WAKEUP: the consumer sleeps, and a system call must wake it.
pub(crate) const NEED_WAKEUP: u32 = 1;

/// The producing half: we fill slots, the other side empties them.
pub(crate) struct Producer<S: Shared> {
    shared: S,
    /// Published up to here.
    published: Prod,
    /// Written up to here; ahead of `published` between [`push`](Self::push) and [`publish`](Self::publish).
    written: Prod,
    consumer: Cons,
}

impl<S: Shared> Producer<S> {
    /// Continues where the shared positions stand.
    pub(crate) fn new(shared: S) -> Producer<S> {
        let published = Prod(shared.producer().load(OBSERVE));
        let consumer = Cons(shared.consumer().load(OBSERVE));
        Producer {
            shared,
            published,
            written: published,
            consumer,
        }
    }

    /// Slots of the ring.
    pub(crate) fn size(&self) -> u32 {
        self.shared.size()
    }

    /// Free slots, looking at the consumer only when fewer than `wanted` are known.
    pub(crate) fn room(&mut self, wanted: u32) -> u32 {
        let known = self.free();
        if known >= wanted {
            return known;
        }
        self.look();
        self.free()
    }

    fn free(&self) -> u32 {
        self.shared
            .size()
            .saturating_sub(self.written.filled(self.consumer))
    }

    /// Reads the consumer's position. One that is ahead of what was published, or further behind than the ring is long,
    /// cannot be true: it is not believed, and the ring stands still instead of being overwritten.
    fn look(&mut self) {
        let claimed = Cons(self.shared.consumer().load(OBSERVE));
        if self.published.filled(claimed) <= self.shared.size() {
            self.consumer = claimed;
        }
    }

    /// Writes one slot, not yet visible. `false`: the ring is full.
    pub(crate) fn push(&mut self, slot: S::Slot) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        self.shared.write(self.written.0, slot);
        self.written = self.written.advanced(1);
        true
    }

    /// Writes what `next` gives until it gives nothing more, up to `count` slots and to the ring's end; returns how many. As
    /// [`push`](Self::push) does one by one, in a loop that keeps nothing in memory.
    #[inline]
    pub(crate) fn push_each(
        &mut self,
        count: u32,
        mut next: impl FnMut() -> Option<S::Slot>,
    ) -> u32 {
        let room = self.room(count).min(count);
        let mut written = 0;
        while written < room
            && let Some(slot) = next()
        {
            self.shared.write(self.written.advanced(written).0, slot);
            written += 1;
        }
        self.written = self.written.advanced(written);
        written
    }

    /// The written slots that are not visible yet.
    pub(crate) fn unpublished(&self) -> impl Iterator<Item = S::Slot> {
        let count = self.written.filled(Cons(self.published.0));
        let places = (0..count).map(|place| self.published.advanced(place).0);
        places.map(|position| self.shared.read(position))
    }

    /// Makes all written slots visible; returns how many.
    pub(crate) fn publish(&mut self) -> u32 {
        let count = self.written.filled(Cons(self.published.0));
        if count > 0 {
            self.shared.producer().store(self.written.0, PUBLISH);
            self.published = self.written;
        }
        count
    }

    /// Published slots that the other side has not emptied, as of now.
    pub(crate) fn pending(&mut self) -> u32 {
        self.look();
        self.published.filled(self.consumer)
    }

    /// Whether what was published needs a system call to be seen.
    pub(crate) fn needs_wakeup(&self) -> bool {
        // The kernel sets the flag, then looks at the producer once more; we publish, then look at the flag. Without a
        // full barrier between the two, each side could miss the other, and the ring would stand still.
        barrier();
        self.shared.flags().load(FLAG) & NEED_WAKEUP != 0
    }
}

/// The consuming half: the other side fills slots, we empty them.
pub(crate) struct Consumer<S: Shared> {
    shared: S,
    /// Given back up to here.
    released: Cons,
    /// Read up to here.
    taken: Cons,
    producer: Prod,
}

impl<S: Shared> Consumer<S> {
    /// Continues where the shared positions stand.
    pub(crate) fn new(shared: S) -> Consumer<S> {
        let released = Cons(shared.consumer().load(OBSERVE));
        let producer = Prod(shared.producer().load(OBSERVE));
        Consumer {
            shared,
            released,
            taken: released,
            producer,
        }
    }

    /// Filled slots as of now, not counting those already taken.
    pub(crate) fn waiting(&self) -> u32 {
        let producer = Prod(self.shared.producer().load(OBSERVE));
        self.checked(producer.filled(self.taken))
    }

    /// A producer that claims more than the ring holds is not believed.
    fn checked(&self, filled: u32) -> u32 {
        if filled <= self.shared.size() {
            filled
        } else {
            0
        }
    }

    /// Asks for what the next [`pop`](Self::pop) reads, in one go: one after the other, each takes as long.
    #[inline]
    pub(crate) fn foresee(&self) {
        self.shared.foresee(self.taken.0);
    }

    /// Reads one slot; it stays ours until [`release`](Self::release).
    pub(crate) fn pop(&mut self) -> Option<S::Slot> {
        if self.checked(self.producer.filled(self.taken)) == 0 {
            self.producer = Prod(self.shared.producer().load(OBSERVE));
            if self.checked(self.producer.filled(self.taken)) == 0 {
                return None;
            }
        }
        let slot = self.shared.read(self.taken.0);
        self.taken = self.taken.advanced(1);
        Some(slot)
    }

    /// Reads the slots that are filled as of now, up to `count`; returns how many. As [`pop`](Self::pop) does one by one.
    #[inline]
    pub(crate) fn pop_each(&mut self, count: u32, mut each: impl FnMut(S::Slot)) -> u32 {
        self.producer = Prod(self.shared.producer().load(OBSERVE));
        let count = self.checked(self.producer.filled(self.taken)).min(count);
        for place in 0..count {
            each(self.shared.read(self.taken.advanced(place).0));
        }
        self.taken = self.taken.advanced(count);
        count
    }

    /// Gives all taken slots back to the producer; returns how many.
    pub(crate) fn release(&mut self) -> u32 {
        let count = Prod(self.taken.0).filled(self.released);
        if count > 0 {
            self.shared.consumer().store(self.taken.0, PUBLISH);
            self.released = self.taken;
        }
        count
    }
}
