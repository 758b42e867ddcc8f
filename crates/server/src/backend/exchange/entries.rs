//! Which exchange waits for which ID at which backend port: one atomic word per exchange, found by port and ID.
//!
//! ```text
//!  63        48 47        32 31                              2 1     0
//!  backend port │ ID         │ body, or until when it is kept  │ state      one entry
//!
//!  bucket = 8 entries = one cache line; a key (port, ID) belongs to exactly one bucket
//! ```
//!
//! Cost: one cache line for opening, one for ending. No lock: an entry changes by compare-and-swap only, so of two
//! answers, or an answer and the time-out, exactly one wins (I1). An ended entry keeps its key and says until when: a late
//! answer is known as late, and the key is refused to new queries while an answer to its former life could match. How long
//! that is, its own life says: the next query may wait for another server, which has another time-out.

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

    /// Ticks until the key of this ended entry is free, if it is kept back. The counter wraps after 13 days, which at worst
    /// keeps a key back once more, for [`KEPT_MAX`] at most.
    fn left(self, now: Now) -> Option<u64> {
        let left = self.value().wrapping_sub(ticks(now)) & VALUE_MASK;
        (1..=KEPT_TICKS_MAX).contains(&left).then_some(left)
    }

    /// Ticks since the key of this ended entry is free.
    fn idle(self, now: Now) -> u64 {
        ticks(now).wrapping_sub(self.value()) & VALUE_MASK
    }
}

/// Time in units of 2^20 ns, about a millisecond.
const TICK_BITS: u32 = 20;

fn ticks(now: Now) -> u64 {
    now.0 >> TICK_BITS
}

/// How long an ended key is refused to new queries at most: 18 minutes.
const KEPT_TICKS_MAX: u64 = 1 << 20;
const KEPT_MAX: Duration = Duration::from_nanos(KEPT_TICKS_MAX << TICK_BITS);

/// How long the key of a query that was answered is kept back: only the answer's duplicate can come, and networks duplicate
/// within milliseconds.
pub(super) const AFTER_ANSWER: Duration = Duration::from_millis(250);

/// How long the key of a query that timed out is kept back: the answer itself may still come, and gets as long again as it had,
/// twice. Never longer than what memory allows: see [`super::Exchanges`].
pub(super) fn after_timeout(timeout: Duration) -> Duration {
    (timeout * 2).min(KEPT_MAX)
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
    pub(super) fn claim(&self, key: Key, body: u32, now: Now) -> Result<Place, Refused> {
        let bucket = self.bucket_of(key);
        let (index, old) = self.victim(bucket, key, now)?;
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

    /// The entry of the bucket to write over: the key's own former one, else an empty one, else the one that has been free for
    /// longest. Where all are kept back, the one that was answered first: better to forget a key whose answer has come, and may
    /// come twice, than not to ask a query. Only who draws that very key before its time would then take the second one for the
    /// answer to another question, and that is compared.
    fn victim(&self, bucket: usize, key: Key, now: Now) -> Result<(usize, Entry), Refused> {
        // Above the rank of all that are kept back; and above that of all that are free.
        const FREE: u64 = KEPT_TICKS_MAX + 1;
        const EMPTY: u64 = FREE + VALUE_MASK + 1;
        let (mut highest, mut victim) = (0, None);
        for (index, word) in self.lines.array::<LINE>(bucket).iter().enumerate() {
            let entry = Entry(word.load(Relaxed));
            // Most are empty while few queries are in flight.
            let rank = if entry == Entry::EMPTY {
                EMPTY
            } else {
                let own = entry.key() == key;
                match (entry.state(), entry.left(now)) {
                    (State::Waiting, _) | (_, Some(_)) if own => return Err(Refused::KeyInUse),
                    (State::Answered, Some(left)) => FREE - left,
                    (State::Waiting, _) | (_, Some(_)) => continue,
                    (_, None) if own => u64::MAX,
                    (_, None) => FREE + entry.idle(now),
                }
            };
            if rank > highest {
                (highest, victim) = (rank, Some((index, entry)));
            }
        }
        victim.ok_or(Refused::BucketFull)
    }

    /// Ends the waiting `entry` at `place`, its key being kept back until `free`; false when somebody else has ended it.
    pub(super) fn end(&self, place: Place, entry: Entry, state: State, free: Now) -> bool {
        let ended = Entry::new(entry.key(), ticks(free), state);
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

    fn entries(bits: u32) -> Entries {
        Entries::new(bits, &mut Random::from_seed(1))
    }

    /// So much later than `now`, which is in nanoseconds.
    fn later(now: u64, time: Duration) -> Now {
        Now(now + time.as_nanos() as u64)
    }

    /// Ends the entry at `place` by a time-out at `now` of a query that waited for so long.
    fn time_out(entries: &Entries, place: Place, waited: Duration, now: u64) {
        let free = later(now, after_timeout(waited));
        assert!(entries.end(place, entries.get(place), State::TimedOut, free));
    }

    /// Ends the entry at `place` by an answer at `now`.
    fn answer(entries: &Entries, place: Place, now: u64) {
        let free = later(now, AFTER_ANSWER);
        assert!(entries.end(place, entries.get(place), State::Answered, free));
    }

    #[test]
    fn a_key_in_use_is_refused_until_its_quarantine_is_over() {
        let entries = entries(6);
        let key = Key::new(40_000, 7);
        let claim = |now| entries.claim(key, 5, Now(now));
        let place = claim(0).expect("the table is empty");
        assert_eq!(claim(0), Err(Refused::KeyInUse));
        time_out(&entries, place, Duration::from_secs(1), SECOND);
        assert_eq!(claim(SECOND + 19 * SECOND / 10), Err(Refused::KeyInUse));
        assert_eq!(claim(SECOND * 3), Ok(place));
    }

    /// Servers have time-outs of their own: whoever claims a key, it is the former query's that counts.
    #[test]
    fn a_key_is_kept_back_as_long_as_its_own_time_out_says() {
        let entries = entries(3);
        let waited = |id| Duration::from_millis(if id < 4 { 100 } else { 2_000 });
        let claim = |id, now| entries.claim(Key::new(1, id), 0, Now(now));
        let places: Vec<Place> = (0..8).map(|id| claim(id, 0).expect("room")).collect();
        for (id, &place) in (0..).zip(&places) {
            time_out(&entries, place, waited(id), 2 * SECOND);
        }
        let moment = 2 * SECOND + SECOND / 10;
        assert_eq!(claim(9, moment), Err(Refused::BucketFull));
        let moment = 2 * SECOND + SECOND / 4;
        assert_eq!(claim(7, moment), Err(Refused::KeyInUse));
        assert_eq!(claim(2, moment), Ok(places[2]));
        for id in 9..12 {
            let place = claim(id, moment).expect("the short ones are free");
            assert!(places[..4].contains(&place));
        }
        assert_eq!(claim(12, moment), Err(Refused::BucketFull));
        let moment = 6 * SECOND - SECOND / 100;
        assert_eq!(claim(7, moment), Err(Refused::KeyInUse));
        assert_eq!(claim(7, 6 * SECOND), Ok(places[7]));
    }

    /// setUDPTimeout takes any number of seconds, and an entry has room for 13 days.
    #[test]
    fn no_key_is_kept_back_for_ever() {
        let entries = entries(6);
        let key = Key::new(40_000, 7);
        let place = entries.claim(key, 5, Now(0)).expect("room");
        time_out(&entries, place, Duration::from_secs(u32::MAX.into()), 0);
        let claim = |seconds: u64| entries.claim(key, 5, Now(seconds * SECOND));
        assert_eq!(claim(1_000), Err(Refused::KeyInUse));
        assert_eq!(claim(1_100), Ok(place));
    }

    #[test]
    fn a_full_bucket_gives_nothing_then_the_entry_that_ended_first() {
        let entries = entries(3);
        let claim = |id, now| entries.claim(Key::new(1, id), 0, Now(now));
        let places: Vec<Place> = (0..8).map(|id| claim(id, 0).expect("room")).collect();
        assert_eq!(claim(9, 0), Err(Refused::BucketFull));
        for (turn, &place) in places.iter().rev().enumerate() {
            answer(&entries, place, turn as u64 * SECOND / 10);
        }
        assert_eq!(claim(9, 2 * SECOND), Ok(places[7]));
    }

    #[test]
    fn where_all_keys_are_kept_back_the_first_that_was_answered_is_forgotten() {
        let entries = entries(3);
        let claim = |id, now| entries.claim(Key::new(1, id), 0, Now(now));
        let places: Vec<Place> = (0..8).map(|id| claim(id, 0).expect("room")).collect();
        time_out(&entries, places[0], Duration::from_secs(1), 0);
        assert_eq!(claim(9, SECOND / 100), Err(Refused::BucketFull));
        for (turn, &place) in places.iter().enumerate().skip(1).rev() {
            answer(&entries, place, turn as u64 * SECOND / 100);
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
            Ok(places[3]),
            "what has been free for longest goes first"
        );
    }

    #[test]
    fn an_entry_ends_once() {
        let entries = entries(3);
        let place = entries.claim(Key::new(1, 2), 3, Now(0)).expect("room");
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
