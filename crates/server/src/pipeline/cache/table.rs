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
use std::cmp::Reverse;
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

impl<'t> Place<'t> {
    /// What is in a slot now; `None`: it is free. The head is read after the slot: by an older one, what was written since
    /// would look as if it were lost.
    fn now(slot: &'t AtomicU64, log: &Log) -> Option<Place<'t>> {
        match slot.load(Ordering::Acquire) {
            0 => None,
            value => Some(Place {
                slot,
                value,
                position: whole(value, log.head()),
            }),
        }
    }

    /// The same place with what is there by now.
    pub(super) fn again(&self, log: &Log) -> Option<Place<'t>> {
        Place::now(self.slot, log)
    }

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

/// The oldest of those places of a set that `may` be taken; of free ones the first, for a set is full when its last is
/// not free.
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
    places
        .filter(may)
        .min_by_key(|place| Reverse(place.age(head)))
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

    /// Asks the processor for the set of a hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.lines.prefetch(self.set_of(hash));
    }

    /// The position in the first slot of that set with the tag of `hash`. All are compared: which one it is no processor can
    /// foretell, and a wrong guess costs as much as the others do.
    #[inline]
    pub(super) fn glance(&self, hash: u64, head: u64) -> Option<u64> {
        let tag = tag(hash) << POSITION_BITS;
        let set = self.lines.array::<LINE>(self.set_of(hash));
        let mut same = 0_u32;
        // The first one comes last, into the lowest bit: doubling and adding what a comparison carries is one instruction.
        for slot in set.iter().rev() {
            let differs = slot.load(Ordering::Relaxed) ^ tag;
            same = 2 * same + u32::from(differs <= POSITION);
        }
        let slot = set.get(same.trailing_zeros() as usize)?;
        // Acquire: what the record's writer wrote there before it put the position here is read behind it.
        Some(whole(slot.load(Ordering::Acquire), head))
    }

    /// The first of the places with the tag of `hash` whose records are still there of which `is_it` is true.
    pub(super) fn search<'t>(
        &'t self,
        hash: u64,
        log: &Log,
        is_it: impl Fn(Place<'t>) -> bool,
    ) -> Option<Place<'t>> {
        let own = self.set_of(hash);
        for set in [own, self.behind(own)] {
            let mut value = 0;
            for slot in self.lines.array::<LINE>(set) {
                value = slot.load(Ordering::Acquire);
                let place = Table::place(hash, slot, value, log);
                if let Some(place) = place.filter(|place| is_it(*place)) {
                    return Some(place);
                }
            }
            // A set with room, and that is at its end, has none of its entries in the next one.
            if value == 0 {
                return None;
            }
        }
        None
    }

    /// What is in a slot with this value, if it may be what `hash` is of and its record is still there.
    #[inline]
    fn place<'t>(hash: u64, slot: &'t AtomicU64, value: u64, log: &Log) -> Option<Place<'t>> {
        let head = log.head();
        let position = whole(value, head);
        let may_be = value >> POSITION_BITS == tag(hash) && value != 0;
        let is_there = head.wrapping_sub(position) <= log.capacity();
        (may_be && is_there).then_some(Place {
            slot,
            value,
            position,
        })
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
        let slots = self.lines.get(0, self.sets).iter();
        slots.filter_map(move |slot| Place::now(slot, log))
    }

    #[inline]
    fn set_of(&self, hash: u64) -> usize {
        ((hash & 0xffff_ffff) as usize * self.sets) >> 32
    }

    #[inline]
    fn sets_of(&self, hash: u64) -> [&[AtomicU64]; 2] {
        let set = self.set_of(hash);
        [set, self.behind(set)].map(|set| self.lines.get(set, 1))
    }

    #[inline]
    fn behind(&self, set: usize) -> usize {
        if set + 1 == self.sets { 0 } else { set + 1 }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise every miss would look at two sets.
    #[test]
    fn a_set_fills_from_its_first_place() {
        let (table, log) = (Table::new(4), Log::new(1));
        for count in 1..=4 {
            let room = log.reserve(1).expect("no other writer");
            assert!(table.put(7, room.position, None, &log));
            let used = table.sets_of(7)[0]
                .iter()
                .map(|slot| slot.load(Ordering::Relaxed) != 0);
            assert_eq!(used.take_while(|used| *used).count(), count);
        }
    }
}
