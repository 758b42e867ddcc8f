//! Where the bytes of entries are: a ring of words that is written from one end to the other and over again.
//!
//! ```text
//!  position:      … head − capacity ────────────── whole records ────────────── head …
//!  in memory:     position modulo capacity; segments of 1 MiB, each taken from the allocator when first written
//! ```
//!
//! A position is never used twice. Whoever writes first moves the head behind its record, and thereby declares lost what
//! lay there one round ago; whoever reads looks at the head once more when done. So no record needs a lock or a sequence of
//! its own, records of all sizes fit without gaps, and memory is exactly what the configuration allows.

use crate::words;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Words of a segment as a power of two: 1 MiB. A record lies in one segment.
const SEGMENT_BITS: u32 = 17;
const SEGMENT: u64 = 1 << SEGMENT_BITS;

/// How often a writer tries to move the head when others move it, too.
const TRIES: usize = 4;

pub(super) struct Log {
    segments: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// Where the next record will be: words that were ever given out, the first not used.
    head: AtomicU64,
}

impl Log {
    /// Room for at least so many bytes, up to twice as many; at least two segments.
    pub(super) fn new(bytes: usize) -> Log {
        let segments = bytes.div_ceil(8 << SEGMENT_BITS).next_power_of_two().max(2);
        Log {
            segments: (0..segments).map(|_| OnceLock::new()).collect(),
            head: AtomicU64::new(1),
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
        let number = (position >> SEGMENT_BITS) as usize & (self.segments.len() - 1);
        let segment = self.segments[number].get()?;
        segment.get((position & (SEGMENT - 1)) as usize..)
    }

    /// Room for a record of so many words, with its position. `None` when other writers were faster too often, or for more
    /// than a segment.
    pub(super) fn reserve(&self, count: usize) -> Option<(u64, &[AtomicU64])> {
        let count = u64::try_from(count)
            .ok()
            .filter(|&count| count <= SEGMENT)?;
        let mut head = self.head.load(Ordering::Relaxed);
        for _ in 0..TRIES {
            let left = SEGMENT - (head & (SEGMENT - 1));
            let position = if count <= left { head } else { head + left };
            let moved = self.head.compare_exchange(
                head,
                position + count,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match moved {
                Ok(_) => return Some((position, self.room(position, count as usize))),
                Err(now) => head = now,
            }
        }
        None
    }

    fn room(&self, position: u64, count: usize) -> &[AtomicU64] {
        // Whoever sees one of the words that will be written sees the moved head as well.
        fence(Ordering::Release);
        let number = (position >> SEGMENT_BITS) as usize & (self.segments.len() - 1);
        let segment = self.segments[number].get_or_init(|| words::zeroed(SEGMENT as usize));
        &segment[(position & (SEGMENT - 1)) as usize..][..count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_never_cross_segments_and_get_lost_after_a_round() {
        let log = Log::new(1);
        assert_eq!(log.capacity(), 2 * SEGMENT);
        let (first, room) = log.reserve(100).unwrap();
        assert_eq!((first, room.len()), (1, 100));
        assert!(log.distance(first) <= log.capacity());
        let (second, _) = log.reserve(SEGMENT as usize).unwrap();
        assert_eq!(second, SEGMENT, "the rest of the first segment is left out");
        assert_eq!(log.at(second).unwrap().len(), SEGMENT as usize);
        let (third, _) = log.reserve(2).unwrap();
        assert_eq!(third, 2 * SEGMENT);
        assert!(log.distance(first) > log.capacity());
        assert!(log.distance(second) <= log.capacity());
        assert!(log.reserve(SEGMENT as usize + 1).is_none());
    }
}
