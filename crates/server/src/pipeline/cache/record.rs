//! One entry in the log.
//!
//! ```text
//!  0 stamp 32, position 32 │ 1 moment of expiry 32, of storing 32 │ 2 header bytes 2…9
//!  3 words of key 16, places 16, bytes of body 16, header bytes 10, 11 │ key │ TTLs: place 16, 0 16, seconds 32
//!  body, in whole pairs │ what is left of the cache line
//! ```
//!
//! Records begin where cache lines do, so that one of a usual question and an address takes two lines, with OPT records too.
//!
//! The body is what follows the question; the question is not kept, because the client's own stays in its buffer. Places
//! count from the body's start; the seconds that are there lie beside the place, for a hit would have to put them together
//! from two words of the body. Moments are seconds since the process started. The stamp says how many words of new entries
//! there were when this one was written or written again. Of both numbers of the first word the lower 32 bits are kept: of a
//! position they tell apart what lies in the same place in different rounds, as long as less than 32 GiB is written between.
//!
//! Until [`Log::distance`] has said that a record is not lost, everything read of it may be something else: so every length
//! is held against what is there, and nothing of it decides anything that cannot be taken back.

use super::key::{Key, pack, unpack};
use super::log::{Log, Room};
use crate::clock::Now;
use crate::words::{self, GROUP, LINE, paired_words_for};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::message::{HEADER_LENGTH, MESSAGE_LENGTH_MAX};
use wire::ttl;

const PLACE: usize = 0;
const TIMES: usize = 1;
const HEADER: usize = 2;
const SHAPE: usize = 3;
const KEY: usize = 4;

/// Cache lines of most records: fixed words, a key of seven, an answer of an address.
const USUAL_LINES: usize = 2;

/// Seconds since the process started, as entries hold them: enough for 136 years.
pub(super) fn moment(now: Now) -> u32 {
    now.seconds() as u32
}

/// What will be an entry.
pub(super) struct Draft<'m> {
    pub(super) key: &'m Key,
    pub(super) stored: u32,
    pub(super) expires: u32,
    pub(super) stamp: u32,
    /// The response up to the end of its question.
    pub(super) head: &'m [u8],
    /// The response from there on.
    pub(super) body: &'m [u8],
    /// Where the TTLs are in the body.
    pub(super) places: &'m [u16],
}

/// Words of a record whose key ends there, with so many TTLs and bytes of body.
fn words_of(key_end: usize, places: usize, body: usize) -> usize {
    (key_end + places + paired_words_for(body)).next_multiple_of(LINE)
}

/// What stands first in a record.
#[inline]
fn place_word(stamp: u32, position: u64) -> u64 {
    u64::from(stamp) << 32 | position & 0xffff_ffff
}

impl Draft<'_> {
    /// How many words it takes.
    pub(super) fn len(&self) -> usize {
        words_of(
            KEY + self.key.words().len(),
            self.places.len(),
            self.body.len(),
        )
    }

    /// Writes it to the words that were reserved for it.
    pub(super) fn write(&self, record: &Room<'_>) {
        let key = self.key.words();
        let store = |word: usize, value| record[word].store(value, Relaxed);
        store(PLACE, place_word(self.stamp, record.position));
        store(
            TIMES,
            u64::from(self.expires) << 32 | u64::from(self.stored),
        );
        let (places, body) = (self.places.len() as u16, self.body.len() as u16);
        let (flags_and_counts, last_count) = self.head[2..HEADER_LENGTH].split_at(8);
        words::store(&record[HEADER..], flags_and_counts);
        let last_count = words::partial(last_count) as u16;
        store(SHAPE, pack([key.len() as u16, places, body, last_count]));
        let (key_room, rest) = record[KEY..].split_at(key.len());
        for (word, value) in key_room.iter().zip(key) {
            word.store(*value, Relaxed);
        }
        let (place_room, body_room) = rest.split_at(self.places.len());
        for (word, place) in place_room.iter().zip(self.places) {
            word.store(ttl_word(*place, self.body), Relaxed);
        }
        words::store_all(body_room, self.body);
    }
}

/// The word for the TTL at a place of a body.
fn ttl_word(place: u16, body: &[u8]) -> u64 {
    let octets = body
        .get(place.into()..)
        .and_then(|rest| rest.first_chunk().copied());
    let seconds = ttl::effective(octets.map_or(0, u32::from_be_bytes));
    u64::from(place) << 48 | u64::from(seconds)
}

/// The bits in which groups are not the same.
#[inline]
fn differences(own: &[AtomicU64; GROUP], words: &[u64; GROUP]) -> u64 {
    let each = own.iter().zip(words);
    each.fold(0, |differ, (own, word)| differ | own.load(Relaxed) ^ word)
}

/// What is read at a position.
pub(super) struct Record<'l> {
    log: &'l Log,
    position: u64,
    words: &'l [AtomicU64],
    key_end: usize,
    places: usize,
    body: usize,
    /// Bytes 10 and 11 of the header, the first lower.
    last_count: u16,
}

impl<'l> Record<'l> {
    /// The record at a position, if one begins there.
    #[inline]
    pub(super) fn open(log: &'l Log, position: u64) -> Option<Record<'l>> {
        let words = log.at(position)?;
        // Every record is that long; from here on these words are there.
        let fixed = words.get(..KEY)?;
        if fixed[PLACE].load(Relaxed) as u32 != position as u32 {
            return None;
        }
        let [key, places, body, last_count] = unpack(fixed[SHAPE].load(Relaxed));
        Some(Record {
            log,
            position,
            words,
            key_end: KEY + usize::from(key),
            places: places.into(),
            body: body.into(),
            last_count,
        })
    }

    /// Asks the processor for the record at `position`: as many lines as most have, all at once.
    #[inline]
    pub(super) fn prefetch(log: &Log, position: u64) {
        if let Some(words) = log.at(position) {
            for line in 0..USUAL_LINES {
                words::prefetch(words, line * LINE);
            }
        }
    }

    /// Where it is in the log.
    #[inline]
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes behind the question.
    pub(super) fn body_length(&self) -> usize {
        self.body
    }

    /// The words of its key; none where it cannot be whole.
    #[inline]
    pub(super) fn key(&self) -> &'l [AtomicU64] {
        self.words.get(KEY..self.key_end).unwrap_or_default()
    }

    /// Whether these are the words of its key.
    #[inline]
    pub(super) fn has_key(&self, words: &[u64]) -> bool {
        let own = self.key();
        if own.len() != words.len() {
            return false;
        }
        let (own, words) = (words::in_groups(own), words::in_groups(words));
        let (Some((own, own_last)), Some((words, last))) = (own, words) else {
            return false;
        };
        // Nearly always the same: to look at each word whether to go on takes twice as long.
        let mut differ = differences(own_last, last);
        for (own, words) in own.iter().zip(words) {
            differ |= differences(own, words);
        }
        differ == 0
    }

    pub(super) fn key_words(&self) -> Vec<u64> {
        self.key().iter().map(|word| word.load(Relaxed)).collect()
    }

    /// When it expires and when it was stored.
    #[inline]
    pub(super) fn times(&self) -> (u32, u32) {
        let times = self.words[TIMES].load(Relaxed);
        ((times >> 32) as u32, times as u32)
    }

    /// Whether all that was read of it is what was written.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.log.distance(self.position) <= self.log.capacity()
    }

    /// What it was stamped with.
    #[inline]
    pub(super) fn stamp(&self) -> u32 {
        (self.words[PLACE].load(Relaxed) >> 32) as u32
    }

    /// Writes the header's flags, which `flags` makes of those that are kept, and counts to `head` and what follows the
    /// question to `rest`, with the TTLs that `change` makes of them; how many bytes of `rest` it takes. `None`: it is longer
    /// than `rest`.
    #[inline]
    pub(super) fn read(
        &self,
        head: &mut [u8; HEADER_LENGTH],
        rest: &mut [u8],
        change: Ttl,
        flags: impl Fn(u16) -> u16,
    ) -> Option<usize> {
        let words = self.words.get(self.key_end..)?;
        let (ttls, body_words) = words.split_at_checked(self.places)?;
        let body_words = body_words.get(..paired_words_for(self.body))?;
        words::load_over(body_words, rest, self.body)?;
        self.read_header(head, flags);
        let body = &mut rest[..self.body];
        for word in ttls {
            let word = word.load(Relaxed);
            let at = usize::from((word >> 48) as u16);
            let Some(place) = body.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) else {
                continue;
            };
            let ttl = match change {
                Ttl::Age(seconds) => (word as u32).saturating_sub(seconds),
                Ttl::Set(seconds) => seconds,
            };
            *place = ttl.to_be_bytes();
        }
        Some(self.body)
    }

    /// Each byte is stored once: what is put right afterwards is waited for.
    #[inline]
    fn read_header(&self, head: &mut [u8; HEADER_LENGTH], flags: impl Fn(u16) -> u16) {
        let first = self.words[HEADER].load(Relaxed);
        let flags = flags(u16::from_be_bytes((first as u16).to_le_bytes()));
        let flags = u16::from_le_bytes(flags.to_be_bytes());
        let first = first & !0xffff | u64::from(flags);
        head[2..10].copy_from_slice(&first.to_le_bytes());
        head[10..].copy_from_slice(&self.last_count.to_le_bytes());
    }

    /// Its parts, with TTLs so many seconds lower: for the cache of another process. Whether all of it was read before
    /// somebody else wrote there, [`Record::is_whole`] tells after.
    pub(super) fn moving(&self, age: u32) -> Option<Moving> {
        let mut head = [0; HEADER_LENGTH];
        let mut body = vec![0; self.body.min(MESSAGE_LENGTH_MAX)];
        self.read(&mut head, &mut body, Ttl::Age(age), |flags| flags)?;
        let ttls = self.words.get(self.key_end..)?.get(..self.places)?;
        let places = ttls.iter().map(|word| (word.load(Relaxed) >> 48) as u16);
        Some(Moving {
            key: self.key_words(),
            places: places.collect(),
            header: *head[2..].first_chunk()?,
            body,
        })
    }

    /// Copies the whole record to another place in the log, under a new stamp; `None` when it was lost meanwhile or found no room.
    pub(super) fn copy(&self, stamp: u32) -> Option<u64> {
        let count = words_of(self.key_end, self.places, self.body);
        let words = self.words.get(..count)?;
        let room = self.log.reserve(count)?;
        for (to, from) in room.iter().zip(words) {
            to.store(from.load(Relaxed), Relaxed);
        }
        room[PLACE].store(place_word(stamp, room.position), Relaxed);
        self.is_whole().then_some(room.position)
    }
}

/// An entry on its way to another process.
pub(super) struct Moving {
    pub(super) key: Vec<u64>,
    /// Where the TTLs are in the body.
    pub(super) places: Vec<u16>,
    /// Bytes 2…11 of the header.
    pub(super) header: [u8; HEADER_LENGTH - 2],
    pub(super) body: Vec<u8>,
}

/// What becomes of TTLs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ttl {
    /// So many seconds are taken off.
    Age(u32),
    /// All are this.
    Set(u32),
}
