//! Entries on their way into the cache of another process: what `millrace restart` takes along.
//!
//! ```text
//!  0 seconds left 32 │ 4 words of key 16, places 16, bytes of body 16 │ 10 header bytes 2…11 │ 20 key │ places │ body
//! ```
//!
//! All numbers are little-endian. An entry leaves as it would be served at this moment, its TTLs aged: so no clock goes with it.
//! The receiver hashes anew, for the seed of a cache is its own.

use super::PacketCache;
use super::key::Key;
use super::record::{Draft, Moving, Record, moment};
use crate::clock::Now;
use wire::message::HEADER_LENGTH;

/// To be raised with every change of this form, of the key's, or of what the key is made from: entries of another form are
/// not taken along.
pub const FORM: u32 = 4;

/// Bytes in front of the key.
const FIXED: usize = 20;

/// A TTL is four bytes.
const TTL: usize = 4;

impl PacketCache {
    /// All entries that have not expired, each in bytes of its own.
    pub fn leaving(&self, now: Now) -> impl Iterator<Item = Vec<u8>> {
        self.places()
            .filter_map(move |(_, record)| self.packed(&record, moment(now)))
    }

    /// Takes one in; whether it does. What another process says is not trusted: a form that does not fit is refused.
    pub fn arrive(&self, bytes: &[u8], now: Now) -> bool {
        let Some((left, moving)) = unpacked(bytes) else {
            return false;
        };
        let Some(key) = Key::of(&moving.key) else {
            return false;
        };
        let stored = moment(now);
        let mut head = [0; HEADER_LENGTH];
        head[2..].copy_from_slice(&moving.header);
        self.write(Draft {
            key: &key,
            stored,
            expires: stored.saturating_add(left),
            stamp: 0,
            head: &head,
            body: &moving.body,
            places: &moving.places,
        })
    }

    fn packed(&self, record: &Record<'_>, now: u32) -> Option<Vec<u8>> {
        let (expires, stored) = record.times();
        let left = expires.checked_sub(now).filter(|&left| left > 0)?;
        let moving = record.moving(self.age(stored, now))?;
        let mut bytes = left.to_le_bytes().to_vec();
        for count in [moving.key.len(), moving.places.len(), moving.body.len()] {
            bytes.extend(u16::try_from(count).ok()?.to_le_bytes());
        }
        bytes.extend(moving.header);
        bytes.extend(moving.key.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(moving.places.iter().flat_map(|place| place.to_le_bytes()));
        bytes.extend(&moving.body);
        record.is_whole().then_some(bytes)
    }
}

fn unpacked(bytes: &[u8]) -> Option<(u32, Moving)> {
    let (fixed, rest) = bytes.split_at_checked(FIXED)?;
    let count = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
    let left = u32::from_le_bytes(*fixed.first_chunk()?);
    let (key, rest) = rest.split_at_checked(count(4) * 8)?;
    let (places, body) = rest.split_at_checked(count(6) * 2)?;
    let places: Vec<u16> = places
        .as_chunks::<2>()
        .0
        .iter()
        .map(|place| u16::from_le_bytes(*place))
        .collect();
    let within = |&place: &u16| usize::from(place) + TTL <= body.len();
    let whole = body.len() == count(8) && places.iter().all(within);
    let moving = Moving {
        key: key
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect(),
        places,
        header: *fixed[10..].first_chunk()?,
        body: body.to_vec(),
    };
    whole.then_some((left, moving))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{hit, keep, scene, ttls, wait};
    use super::*;
    use crate::pipeline::scene::{answer_to, query};
    use wire::codes::qtype;

    #[test]
    fn entries_are_served_by_the_next_process_as_by_the_last() {
        let (mut old, cache) = scene(|_| {});
        let asked = query("www.example.com.", qtype::A);
        assert!(keep(&cache, &old, &asked, &answer_to(&asked, 0, &[300])));
        wait(&mut old, 100);
        let (mut new, other) = scene(|_| {});
        let mut moved = cache.leaving(old.now);
        assert!(moved.all(|entry| other.arrive(&entry, new.now)));
        let (before, after) = (hit(&mut old, &asked), hit(&mut new, &asked));
        assert!(before.is_some());
        assert_eq!(before, after);
        wait(&mut new, 50);
        let later = hit(&mut new, &asked).expect("it lives on");
        assert_eq!(ttls(&later), [150]);
        wait(&mut new, 150);
        assert_eq!(hit(&mut new, &asked), None, "and ends when it would have");
        assert_eq!(cache.leaving(Now(old.now.0 + 400_000_000_000)).count(), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (old, cache) = scene(|_| {});
        let asked = query("www.example.com.", qtype::A);
        keep(&cache, &old, &asked, &answer_to(&asked, 0, &[300]));
        let entry = cache.leaving(old.now).next().expect("one entry");
        let (_, other) = scene(|_| {});
        for length in 0..entry.len() {
            assert!(!other.arrive(&entry[..length], old.now), "{length} bytes");
        }
        let mut outside = entry.clone();
        let place = outside.len() - 16 - 2;
        outside[place..place + 2].copy_from_slice(&u16::MAX.to_le_bytes());
        assert!(!other.arrive(&outside, old.now));
        let mut no_key = entry;
        no_key[4..6].copy_from_slice(&[0, 0]);
        assert!(!other.arrive(&no_key, old.now));
        assert!(other.is_empty());
    }
}
