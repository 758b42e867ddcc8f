//! Which exchange waits for which ID at which backend port: one atomic word per exchange, found by port and ID.
//!
//! ```text
//!  63        48 47        32 31                              2 1     0
//!  backend port │ ID         │ body, or moment of the ending   │ state      one entry
//!
//!  bucket = 8 entries = one cache line; a key (port, ID) belongs to exactly one bucket
//! ```
//!
//! Cost: one cache line for opening, one for ending. No lock: an entry changes by compare-and-swap only, so of two
//! answers, or an answer and the time-out, exactly one wins (I1). An ended entry keeps its key and the moment: a late
//! answer is known as late, and the key is refused to new queries while an answer to its former life could match.

use crate::clock::Now;
use crate::random::Random;
use crate::words::{LINE, Lines};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

/// A backend port (host order) and an ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(u32);

impl Key {
    pub(super) fn new(port: u16, id: u16) -> Key {
        Key(u32::from(port) << 16 | u32::from(id))
    }

    pub(super) fn id(self) -> u16 {
        self.0 as u16
    }
}

/// What an entry tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Never used.
    Empty = 0,
    /// For the answer to the query in the body.
    Waiting = 1,
    /// The answer came, or the query never left.
    Answered = 2,
    /// No answer came in time.
    TimedOut = 3,
}

/// A copy of an entry's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u64);

/// What fits between key and state: the number of bodies is below it, moments wrap at it.
const VALUE_BITS: u32 = 30;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;

/// How many bodies an entry can name.
pub(super) const BODIES_MAX: usize = 1 << VALUE_BITS;

impl Entry {
    /// What an entry is until it is used first.
    const EMPTY: Entry = Entry(0);

    fn new(key: Key, value: u64, state: State) -> Entry {
        Entry(u64::from(key.0) << 32 | (value & VALUE_MASK) << 2 | state as u64)
    }

    fn key(self) -> Key {
        Key((self.0 >> 32) as u32)
    }

    fn value(self) -> u64 {
        self.0 >> 2 & VALUE_MASK
    }

    pub(super) fn state(self) -> State {
        match self.0 & 3 {
            0 => State::Empty,
            1 => State::Waiting,
            2 => State::Answered,
            _ => State::TimedOut,
        }
    }

    /// The body of a waiting entry.
    pub(super) fn body(self) -> u32 {
        self.value() as u32
    }

    /// Ticks since this entry ended; the counter wraps after 13 days, which at worst keeps a key back for a moment.
    fn age(self, now: Now) -> u64 {
        ticks(now).wrapping_sub(self.value()) & VALUE_MASK
    }
}

/// Time in units of 2^20 ns, about a millisecond.
const TICK_BITS: u32 = 20;

fn ticks(now: Now) -> u64 {
    now.0 >> TICK_BITS
}

/// How long ended keys are refused to new queries. Never longer than what memory allows: see [`super::Exchanges`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Quarantine {
    answered: u64,
    timed_out: u64,
}

impl Quarantine {
    /// After an answer only its duplicate can come, and networks duplicate within milliseconds.
    const AFTER_ANSWER: Duration = Duration::from_millis(250);

    /// After a time-out the answer itself may still come: it gets as long again as it had, twice.
    pub(super) fn after(timeout: Duration) -> Quarantine {
        let ticks = |time: Duration| time.as_nanos() as u64 >> TICK_BITS;
        Quarantine {
            answered: ticks(Quarantine::AFTER_ANSWER),
            timed_out: ticks(timeout * 2),
        }
    }

    /// None at all: for the test that shows what it is good for.
    #[cfg(test)]
    pub(super) const NONE: Quarantine = Quarantine {
        answered: 0,
        timed_out: 0,
    };

    fn is_over(&self, entry: Entry, now: Now) -> bool {
        match entry.state() {
            State::Empty => true,
            State::Waiting => false,
            State::Answered => entry.age(now) >= self.answered,
            State::TimedOut => entry.age(now) >= self.timed_out,
        }
    }
}

/// The place of an entry in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(pub(super) u32);

/// Why a key was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It waits, or answers to its former life could still come.
    KeyInUse,
    /// All eight entries of its bucket wait, or are kept back after a time-out.
    BucketFull,
    /// Another worker was faster.
    Lost,
}

/// The table of entries.
pub(super) struct Entries {
    lines: Lines,
    bucket_bits: u32,
    /// Multiplier of the hash: odd, secret, so that nobody can choose keys that share a bucket.
    secret: u64,
}

impl Entries {
    /// Room for 2^`bits` entries, at least eight.
    pub(super) fn new(bits: u32, random: &mut Random) -> Entries {
        let bucket_bits = bits.saturating_sub(LINE.trailing_zeros());
        let secret = u64::from(random.next_u32()) << 32 | u64::from(random.next_u32());
        Entries {
            lines: Lines::zeroed(1 << bucket_bits),
            bucket_bits,
            secret: secret | 1,
        }
    }

    fn bucket_of(&self, key: Key) -> usize {
        let hash = u64::from(key.0).wrapping_mul(self.secret);
        // The upper bits of a product depend on all lower ones. A shift by 64 does not exist, hence the two halves.
        (hash >> 1 >> (63 - self.bucket_bits)) as usize
    }

    fn word(&self, place: Place) -> &AtomicU64 {
        let index = place.0 as usize;
        &self.lines.array::<LINE>(index / LINE)[index % LINE]
    }

    pub(super) fn get(&self, place: Place) -> Entry {
        Entry(self.word(place).load(Acquire))
    }

    /// The entries with this key: one, or none; two only when two workers took the same key in the same nanoseconds.
    pub(super) fn find(&self, key: Key) -> impl Iterator<Item = (Place, Entry)> {
        let bucket = self.bucket_of(key);
        self.lines
            .array::<LINE>(bucket)
            .iter()
            .enumerate()
            .map(move |(index, word)| {
                (
                    Place((bucket * LINE + index) as u32),
                    Entry(word.load(Acquire)),
                )
            })
            .filter(move |(_, entry)| entry.key() == key && entry.state() != State::Empty)
    }

    /// Gives `key` to the query in `body`, which must be written whole: from now on answers find it.
    pub(super) fn claim(
        &self,
        key: Key,
        body: u32,
        quarantine: Quarantine,
        now: Now,
    ) -> Result<Place, Refused> {
        let bucket = self.bucket_of(key);
        let (index, old) = self.victim(bucket, key, quarantine, now)?;
        let new = Entry::new(key, u64::from(body), State::Waiting);
        // Release: whoever sees the entry sees the body whole.
        let place = Place((bucket * LINE + index) as u32);
        match self
            .word(place)
            .compare_exchange(old.0, new.0, Release, Relaxed)
        {
            Ok(_) => Ok(place),
            Err(_) => Err(Refused::Lost),
        }
    }

    /// The entry of the bucket to write over: the key's own former one, else an empty one, else the one that ended first. Where
    /// all are kept back, the one that was answered first: better to forget a key whose answer has come, and may come twice, than
    /// not to ask a query. Only who draws that very key before its time would then take the second one for the answer to another
    /// question, and that is compared.
    fn victim(
        &self,
        bucket: usize,
        key: Key,
        quarantine: Quarantine,
        now: Now,
    ) -> Result<(usize, Entry), Refused> {
        // Above any age; and above that.
        const OVER: u64 = VALUE_MASK + 2;
        const EMPTY: u64 = 2 * OVER;
        let (mut highest, mut victim) = (0, None);
        for (index, word) in self.lines.array::<LINE>(bucket).iter().enumerate() {
            let entry = Entry(word.load(Relaxed));
            // Most are empty while few queries are in flight.
            let rank = if entry == Entry::EMPTY {
                EMPTY
            } else {
                let own = entry.key() == key;
                match (quarantine.is_over(entry, now), entry.state()) {
                    (true, _) if own => u64::MAX,
                    (false, _) if own => return Err(Refused::KeyInUse),
                    (true, _) => OVER + entry.age(now),
                    (false, State::Answered) => entry.age(now) + 1,
                    (false, _) => continue,
                }
            };
            if rank > highest {
                (highest, victim) = (rank, Some((index, entry)));
            }
        }
        victim.ok_or(Refused::BucketFull)
    }

    /// Ends the waiting `entry` at `place`; false when somebody else has.
    pub(super) fn end(&self, place: Place, entry: Entry, state: State, now: Now) -> bool {
        let ended = Entry::new(entry.key(), ticks(now), state);
        // Acquire: whoever wins reads the body whole.
        self.word(place)
            .compare_exchange(entry.0, ended.0, AcqRel, Relaxed)
            .is_ok()
    }

    /// Takes back an ending of `entry`: it waits again.
    pub(super) fn reopen(&self, place: Place, entry: Entry) {
        self.word(place).store(entry.0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const QUARANTINE: Duration = Duration::from_secs(1);

    fn entries(bits: u32) -> Entries {
        Entries::new(bits, &mut Random::from_seed(1))
    }

    #[test]
    fn a_key_in_use_is_refused_until_its_quarantine_is_over() {
        let entries = entries(6);
        let key = Key::new(40_000, 7);
        let quarantine = Quarantine::after(QUARANTINE);
        let claim = |now| entries.claim(key, 5, quarantine, Now(now));
        let place = claim(0).expect("the table is empty");
        assert_eq!(claim(0), Err(Refused::KeyInUse));
        assert!(entries.end(place, entries.get(place), State::TimedOut, Now(SECOND)));
        assert_eq!(claim(SECOND + 19 * SECOND / 10), Err(Refused::KeyInUse));
        assert_eq!(claim(SECOND * 3), Ok(place));
    }

    #[test]
    fn a_full_bucket_gives_nothing_then_the_entry_that_ended_first() {
        let entries = entries(3);
        let quarantine = Quarantine::after(QUARANTINE);
        let places: Vec<Place> = (0..8)
            .map(|id| {
                entries
                    .claim(Key::new(1, id), 0, quarantine, Now(0))
                    .expect("room")
            })
            .collect();
        let ninth = |now| entries.claim(Key::new(1, 9), 0, quarantine, Now(now));
        assert_eq!(ninth(0), Err(Refused::BucketFull));
        for (turn, &place) in places.iter().rev().enumerate() {
            let now = Now(turn as u64 * SECOND / 10);
            assert!(entries.end(place, entries.get(place), State::Answered, now));
        }
        assert_eq!(ninth(2 * SECOND), Ok(places[7]));
    }

    #[test]
    fn where_all_keys_are_kept_back_the_first_that_was_answered_is_forgotten() {
        let entries = entries(3);
        let quarantine = Quarantine::after(QUARANTINE);
        let claim = |id, now| entries.claim(Key::new(1, id), 0, quarantine, Now(now));
        let places: Vec<Place> = (0..8).map(|id| claim(id, 0).expect("room")).collect();
        let end = |place: Place, state, now| {
            assert!(entries.end(place, entries.get(place), state, Now(now)));
        };
        end(places[0], State::TimedOut, 0);
        assert_eq!(claim(9, SECOND / 100), Err(Refused::BucketFull));
        for (turn, &place) in places.iter().enumerate().skip(1).rev() {
            end(place, State::Answered, turn as u64 * SECOND / 100);
        }
        let now = SECOND / 10;
        assert_eq!(claim(9, now), Ok(places[1]), "well within 250 ms");
        assert_eq!(claim(10, now), Ok(places[2]));
        assert_eq!(
            claim(7, now),
            Err(Refused::KeyInUse),
            "its own is kept back"
        );
        assert_eq!(
            claim(11, 3 * SECOND),
            Ok(places[0]),
            "what is over goes first"
        );
    }

    #[test]
    fn an_entry_ends_once() {
        let entries = entries(3);
        let quarantine = Quarantine::after(QUARANTINE);
        let place = entries
            .claim(Key::new(1, 2), 3, quarantine, Now(0))
            .expect("room");
        let entry = entries.get(place);
        assert_eq!(
            (entry.body(), entry.state(), entry.key().id()),
            (3, State::Waiting, 2)
        );
        assert!(entries.end(place, entry, State::Answered, Now(0)));
        assert!(!entries.end(place, entry, State::TimedOut, Now(0)));
        entries.reopen(place, entry);
        assert_eq!(
            entries.find(Key::new(1, 2)).collect::<Vec<_>>(),
            [(place, entry)]
        );
    }

    #[test]
    fn keys_spread_over_the_buckets() {
        let entries = entries(16);
        let mut counts = vec![0_u32; 1 << 13];
        for id in 0..=u16::MAX {
            counts[entries.bucket_of(Key::new(50_000, id))] += 1;
        }
        assert!(counts.iter().all(|&count| count <= 24), "mean is 8");
    }
}
