//! Where the bytes of entries are: a ring of words that is written from one end to the other and over again.
//!
//! ```text
//!  position:      … head − capacity ────────────── whole records ────────────── head …
//!  in memory:     position modulo capacity; segments of a huge page, each taken when first written
//! ```
//!
//! A position is never used twice. Whoever writes first moves the head behind its record, and thereby declares lost what
//! lay there one round ago; whoever reads looks at the head once more when done. So no record needs a lock or a sequence of
//! its own, records of all sizes fit without gaps, and memory is exactly what the configuration allows.
//!
//! A writer may be stopped in the middle for longer than a round takes: its words would then fall into somebody else's
//! record. So each segment counts its writers, and nobody enters it for another round while one is there.
//!
//! Where memory is short a segment gives its own back: it is reserved as a record of its length is, so that what lay there is lost,
//! and closed to writers. The head passes it by until there may be more memory.

use super::sync::{
    AtomicU32, AtomicU64, FIRST, OnceLock, Ordering, SEGMENT_BITS, Words, fence, give_back,
    try_zeroed,
};
use std::ops::Deref;

/// Words of a segment. A record lies in one.
const SEGMENT: u64 = 1 << SEGMENT_BITS;

/// How often a writer tries to move the head when others move it, too.
const TRIES: usize = 4;

/// Beside the number of a segment's writers: its memory was given back.
const CLOSED: u32 = 1 << 31;

/// Segments that are not given back.
const KEPT: usize = 2;

pub(super) struct Log {
    segments: Box<[Segment]>,
    /// Where the next record will be: words that were ever given out, the first not used.
    head: AtomicU64,
    /// What gives the words of a segment, or nothing.
    grow: fn(usize) -> Option<Words>,
}

#[derive(Default)]
struct Segment {
    words: OnceLock<Words>,
    /// Who writes there now, or tries to.
    writers: AtomicU32,
}

/// The words of a new record, nobody else's to write as long as this lives.
pub(super) struct Room<'l> {
    pub(super) position: u64,
    words: &'l [AtomicU64],
    _writing: Writing<'l>,
}

impl Deref for Room<'_> {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        self.words
    }
}

/// One of a segment's writers.
struct Writing<'l>(&'l AtomicU32);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Release: what was written there comes before what the next round writes.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Log {
    /// Room for at least so many bytes, up to twice as many; at least two segments.
    pub(super) fn new(bytes: usize) -> Log {
        let segments = bytes.div_ceil(8 << SEGMENT_BITS).next_power_of_two().max(2);
        Log {
            segments: (0..segments).map(|_| Segment::default()).collect(),
            head: AtomicU64::new(FIRST),
            grow: try_zeroed,
        }
    }

    /// Words.
    #[inline]
    pub(super) fn capacity(&self) -> u64 {
        (self.segments.len() as u64) << SEGMENT_BITS
    }

    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// How many words were given out since the record at `position`; above [`Log::capacity`] it is lost.
    ///
    /// What was read of the record before this call is what was written there, if it is not lost.
    #[inline]
    pub(super) fn distance(&self, position: u64) -> u64 {
        fence(Ordering::Acquire);
        self.head.load(Ordering::Relaxed).wrapping_sub(position)
    }

    /// The words from `position` to the end of its segment.
    #[inline]
    pub(super) fn at(&self, position: u64) -> Option<&[AtomicU64]> {
        let words = self.segment(position).words.get()?;
        words.get((position & (SEGMENT - 1)) as usize..)
    }

    #[inline]
    fn segment(&self, position: u64) -> &Segment {
        &self.segments[(position >> SEGMENT_BITS) as usize & (self.segments.len() - 1)]
    }

    /// Room for a record of so many words. `None` when other writers were faster too often or have not finished the last
    /// round, or for more than a segment.
    pub(super) fn reserve(&self, count: usize) -> Option<Room<'_>> {
        let count = u64::try_from(count)
            .ok()
            .filter(|&count| count <= SEGMENT)?;
        // Acquire, here and below: whoever moved the head to here is among the writers that are counted.
        let mut head = self.head.load(Ordering::Acquire);
        for _ in 0..TRIES {
            let left = SEGMENT - (head & (SEGMENT - 1));
            let position = if count <= left { head } else { head + left };
            let writers = &self.segment(position).writers;
            let others = writers.fetch_add(1, Ordering::Acquire);
            let writing = Writing(writers);
            if position & (SEGMENT - 1) == 0 && others > 0 {
                if others & CLOSED == 0 {
                    return None;
                }
                head = self.open_or_pass(position);
                continue;
            }
            let moved = self.head.compare_exchange(
                head,
                position + count,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match moved {
                Ok(_) => return self.room(position, count as usize, writing),
                Err(now) => head = now,
            }
        }
        None
    }

    /// `None` when there is no memory for its segment: what was reserved there is lost, as if it were overwritten.
    fn room<'l>(&'l self, position: u64, count: usize, writing: Writing<'l>) -> Option<Room<'l>> {
        // Whoever sees one of the words that will be written sees the moved head as well.
        fence(Ordering::Release);
        let words = &self.segment(position).words;
        let words = match words.get() {
            Some(words) => words,
            None => {
                let Some(new) = (self.grow)(SEGMENT as usize) else {
                    self.skip_round(position);
                    return None;
                };
                words.get_or_init(|| new)
            }
        };
        Some(Room {
            position,
            words: &words[(position & (SEGMENT - 1)) as usize..][..count],
            _writing: writing,
        })
    }
}

impl Log {
    /// There is no memory at this position: goes on where the ring begins, within the segments that there are. What lies in them
    /// is not lost by this: it is less than a round away still.
    #[cold]
    fn skip_round(&self, position: u64) {
        if self.segments[0].words.get().is_some() {
            let next = (position | (self.capacity() - 1)) + 1;
            self.head.fetch_max(next, Ordering::AcqRel);
        }
    }

    /// Gives back the memory of the oldest segment; how many bytes. What lies there is lost.
    ///
    /// 0 when no more than [`KEPT`] are left, or a writer is there.
    pub(super) fn give_back(&self) -> u64 {
        let is_open = |segment: &&Segment| {
            segment.words.get().is_some() && segment.writers.load(Ordering::Relaxed) & CLOSED == 0
        };
        if self.segments.iter().filter(is_open).count() <= KEPT {
            return 0;
        }
        // Once more from where the ring begins, if its end was never written.
        let room = self.reserve(SEGMENT as usize);
        let Some(room) = room.or_else(|| self.reserve(SEGMENT as usize)) else {
            return 0;
        };
        let segment = self.segment(room.position);
        segment.writers.fetch_or(CLOSED, Ordering::AcqRel);
        segment.words.get().map_or(0, give_back)
    }

    /// The head stands before a closed segment: it is used again if there may be more memory, else passed by. Where the head is then.
    #[cold]
    fn open_or_pass(&self, position: u64) -> u64 {
        if (self.grow)(0).is_some() {
            let writers = &self.segment(position).writers;
            writers.fetch_and(!CLOSED, Ordering::AcqRel);
        } else {
            self.head.fetch_max(position + SEGMENT, Ordering::AcqRel);
        }
        self.head.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn records_never_cross_segments_and_get_lost_after_a_round() {
        let log = Log::new(1);
        assert_eq!(log.capacity(), 2 * SEGMENT);
        let reserve = |count| log.reserve(count).map(|room| (room.position, room.len()));
        let (first, count) = reserve(100).unwrap();
        assert_eq!((first, count), (FIRST, 100));
        assert!(log.distance(first) <= log.capacity());
        let (second, _) = reserve(SEGMENT as usize).unwrap();
        assert_eq!(second, SEGMENT, "the rest of the first segment is left out");
        assert_eq!(log.at(second).unwrap().len(), SEGMENT as usize);
        let (third, _) = reserve(100).unwrap();
        assert_eq!(third, 2 * SEGMENT);
        assert!(log.distance(first) > log.capacity());
        assert!(log.distance(second) <= log.capacity());
        assert!(reserve(SEGMENT as usize + 1).is_none());
    }

    #[test]
    fn without_memory_the_ring_is_as_long_as_what_there_is() {
        thread_local!(static MAY_GROW: Cell<bool> = const { Cell::new(true) });
        let mut log = Log::new(8 << 20);
        log.grow = |count| MAY_GROW.get().then(|| try_zeroed(count)).flatten();
        let whole = SEGMENT as usize;
        let first = log.reserve(whole - FIRST as usize).unwrap().position;
        let second = log.reserve(whole).unwrap().position;
        MAY_GROW.set(false);
        assert!(log.reserve(10).is_none(), "the third segment is not there");
        assert!(log.distance(first) <= log.capacity());
        assert!(log.distance(second) <= log.capacity());
        let third = log.reserve(10).map(|room| room.position);
        assert_eq!(third, Some(log.capacity()), "the ring begins anew");
        assert!(log.distance(first) > log.capacity());
        assert!(log.distance(second) <= log.capacity());
    }

    #[test]
    fn what_is_given_back_is_lost_and_passed_by_until_there_is_memory_again() {
        thread_local!(static MAY_GROW: Cell<bool> = const { Cell::new(true) });
        let mut log = Log::new(8 << 20);
        log.grow = |count| MAY_GROW.get().then(|| try_zeroed(count)).flatten();
        let whole = SEGMENT as usize;
        let place = |count| log.reserve(count).map(|room| room.position / SEGMENT);
        assert_eq!(log.give_back(), 0, "there is none");
        log.reserve(whole - FIRST as usize).unwrap()[0].store(7, Ordering::Relaxed);
        assert_eq!([(); 3].map(|()| place(whole)), [1, 2, 3].map(Some));
        MAY_GROW.set(false);
        assert_eq!(log.give_back(), SEGMENT * 8, "the oldest one");
        assert!(log.distance(FIRST) > log.capacity());
        assert!(log.distance(SEGMENT) <= log.capacity());
        assert_eq!(log.at(FIRST).unwrap()[0].load(Ordering::Relaxed), 0);
        let stopped = log.reserve(whole).unwrap();
        assert_eq!(stopped.position, 5 * SEGMENT);
        assert_eq!(log.give_back(), SEGMENT * 8);
        assert_eq!(log.give_back(), 0, "two are kept");
        assert_eq!(place(whole), Some(7));
        assert_eq!(place(1), None, "a writer is in the next one");
        drop(stopped);
        assert_eq!(
            place(whole),
            Some(9),
            "the closed one before it is passed by"
        );
        assert_eq!(place(whole), Some(11), "so is this");
        MAY_GROW.set(true);
        assert_eq!([(); 4].map(|()| place(whole)), [12, 13, 14, 15].map(Some));
    }

    #[test]
    fn nobody_writes_over_a_writer_that_was_stopped_for_a_round() {
        let log = Log::new(1);
        let stopped = log.reserve(100).unwrap();
        assert!(log.reserve(SEGMENT as usize).is_some());
        assert!(log.reserve(2).is_none(), "that would be in its segment");
        assert!(log.distance(stopped.position) <= log.capacity());
        drop(stopped);
        assert_eq!(log.reserve(2).map(|room| room.position), Some(2 * SEGMENT));
    }
}
