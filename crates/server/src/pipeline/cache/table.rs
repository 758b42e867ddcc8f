//! Which entries there are: sets of eight words, one cache line each.
//!
//! ```text
//!  slot: tag 24 bits of the key's hash │ position of the record in the log, its lower 40 bits       0: free
//! ```
//!
//! A key's set is given by its hash. When that is full, the next one is used as well. There are twice as many slots as
//! entries, so that hardly any set is full. A slot whose record was overwritten is as good as free.

use super::log::Log;
use crate::words::{LINE, Lines};
use std::sync::atomic::{AtomicU64, Ordering};

const POSITION_BITS: u32 = 40;
const POSITION: u64 = (1 << POSITION_BITS) - 1;

pub(super) struct Table {
    lines: Lines,
    sets: usize,
    /// Slots that are not 0.
    used: AtomicU64,
    /// The most that may be used.
    limit: u64,
}

/// A slot with what was in it.
#[derive(Clone, Copy)]
pub(super) struct Place<'t> {
    slot: &'t AtomicU64,
    value: u64,
    /// Of the record, whole.
    pub(super) position: u64,
}

impl Place<'_> {
    fn is_used(&self) -> bool {
        self.value != 0
    }

    /// Words that were given out since; a free place is older than any entry.
    fn age(&self, head: u64) -> u64 {
        match self.value {
            0 => u64::MAX,
            _ => head.wrapping_sub(self.position),
        }
    }
}

/// The oldest of those places of a set that `may` be taken.
fn oldest<'t>(
    set: &'t [AtomicU64],
    head: u64,
    may: impl Fn(&Place<'t>) -> bool,
) -> Option<Place<'t>> {
    let places = set.iter().map(|slot| {
        let value = slot.load(Ordering::Relaxed);
        Place {
            slot,
            value,
            position: whole(value, head),
        }
    });
    places.filter(may).max_by_key(|place| place.age(head))
}

/// How many sets are searched for an entry to give up.
const NEAR: usize = 8;

impl Table {
    /// For so many entries.
    pub(super) fn new(entries: usize) -> Table {
        let sets = (entries * 2).div_ceil(LINE).clamp(1, u32::MAX as usize);
        Table {
            lines: Lines::zeroed(sets),
            sets,
            used: AtomicU64::new(0),
            limit: entries as u64,
        }
    }

    /// The places with the tag of `hash` whose records are still there.
    #[inline]
    pub(super) fn candidates<'t>(&'t self, hash: u64, log: &'t Log) -> Candidates<'t> {
        let [first, second] = self.sets_of(hash);
        Candidates {
            tag: tag(hash),
            set: first,
            overflow: Some(second),
            last: 0,
            head: log.head(),
            capacity: log.capacity(),
        }
    }

    /// Puts a record's position in the place of an older entry of the same key, or in a free one, or in that of the set's
    /// oldest entry. Whether it is there now.
    pub(super) fn put(
        &self,
        hash: u64,
        position: u64,
        older: Option<Place<'_>>,
        log: &Log,
    ) -> bool {
        let place = match older {
            Some(place) => place,
            None => match self.room(hash, log) {
                Some(place) => place,
                None => return false,
            },
        };
        let value = tag(hash) << POSITION_BITS | position & POSITION;
        let swapped =
            place
                .slot
                .compare_exchange(place.value, value, Ordering::Release, Ordering::Relaxed);
        if swapped.is_ok() && place.value == 0 {
            self.used.fetch_add(1, Ordering::Relaxed);
        }
        swapped.is_ok()
    }

    /// Where a new entry goes, so that it is found there: in the key's set, and in the next one only if that is full.
    /// `None`: the table holds as many as it may, and no entry near by could be given up.
    fn room(&self, hash: u64, log: &Log) -> Option<Place<'_>> {
        let (head, capacity) = (log.head(), log.capacity());
        let full = self.used.load(Ordering::Relaxed) >= self.limit;
        let [set, next] = self.sets_of(hash);
        let own = oldest(set, head, |_| true)?;
        if own.value == 0 {
            return if full {
                self.room_for_room(hash, head, own)
            } else {
                Some(own)
            };
        }
        if own.age(head) > capacity {
            return Some(own);
        }
        let other = oldest(next, head, |place| !full || place.is_used());
        match other.filter(|other| other.age(head) > own.age(head)) {
            Some(other) => Some(other),
            None => Some(own),
        }
    }

    /// `free` is in the key's set, but the table holds as many as it may: the oldest entry of this set or of the next one
    /// that has any is given up.
    fn room_for_room<'t>(&'t self, hash: u64, head: u64, free: Place<'t>) -> Option<Place<'t>> {
        let set = self.set_of(hash);
        let oldest_of = |step: usize| {
            let near = self.lines.get((set + step) % self.sets, 1);
            oldest(near, head, Place::is_used)
        };
        let mine = oldest_of(0);
        let other = (1..=NEAR).find_map(oldest_of);
        let age = |place: Option<Place<'_>>| place.map_or(0, |place| place.age(head));
        if age(mine) >= age(other) {
            return mine;
        }
        self.free(other?).then_some(free)
    }

    /// Frees a place, unless it was given to another entry meanwhile; whether it is free now.
    pub(super) fn free(&self, place: Place<'_>) -> bool {
        let swapped =
            place
                .slot
                .compare_exchange(place.value, 0, Ordering::Relaxed, Ordering::Relaxed);
        if swapped.is_ok() {
            self.used.fetch_sub(1, Ordering::Relaxed);
        }
        swapped.is_ok()
    }

    /// All places that are not free, those with lost records too.
    pub(super) fn all(&self, log: &Log) -> impl Iterator<Item = Place<'_>> {
        let head = log.head();
        self.lines.get(0, self.sets).iter().filter_map(move |slot| {
            match slot.load(Ordering::Acquire) {
                0 => None,
                value => Some(Place {
                    slot,
                    value,
                    position: whole(value, head),
                }),
            }
        })
    }

    #[inline]
    fn set_of(&self, hash: u64) -> usize {
        ((hash & 0xffff_ffff) as usize * self.sets) >> 32
    }

    #[inline]
    fn sets_of(&self, hash: u64) -> [&[AtomicU64]; 2] {
        let set = self.set_of(hash);
        let next = if set + 1 == self.sets { 0 } else { set + 1 };
        [self.lines.get(set, 1), self.lines.get(next, 1)]
    }
}

/// See [`Table::candidates`].
pub(super) struct Candidates<'t> {
    tag: u64,
    /// What is left of the set.
    set: &'t [AtomicU64],
    overflow: Option<&'t [AtomicU64]>,
    /// What was in the slot looked at last.
    last: u64,
    head: u64,
    capacity: u64,
}

impl<'t> Iterator for Candidates<'t> {
    type Item = Place<'t>;

    #[inline]
    fn next(&mut self) -> Option<Place<'t>> {
        loop {
            while let Some((slot, rest)) = self.set.split_first() {
                self.set = rest;
                let value = slot.load(Ordering::Acquire);
                self.last = value;
                if value >> POSITION_BITS == self.tag && value != 0 {
                    let position = whole(value, self.head);
                    if self.head.wrapping_sub(position) <= self.capacity {
                        return Some(Place {
                            slot,
                            value,
                            position,
                        });
                    }
                }
            }
            // A set with room has none of its entries in the next one.
            if self.last == 0 {
                return None;
            }
            self.set = self.overflow.take()?;
        }
    }
}

#[inline]
fn tag(hash: u64) -> u64 {
    hash >> POSITION_BITS
}

/// The position whose lower bits are in a slot: the last one before the head.
#[inline]
fn whole(value: u64, head: u64) -> u64 {
    head.wrapping_sub(head.wrapping_sub(value) & POSITION)
}
