//! Looking into a cache and taking out of it: for the console, the API and the cleaning.

use super::PacketCache;
use super::key::{QUESTION_START, Question};
use super::record::{Record, Ttl, moment};
use super::table::Place;
use crate::clock::Now;
use crate::counters::Lane;
use crate::pipeline::query::Protocol;
use wire::message::{HEADER_LENGTH, MESSAGE_LENGTH_MAX};
use wire::name::{Name, NameBuf};

/// A copy of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// In lower case.
    pub name: NameBuf,
    pub qtype: u16,
    pub qclass: u16,
    /// A part of the hash of all that makes its query another one: in this cache the same for the same query.
    pub key: u32,
    /// Over what the query came.
    pub protocol: Protocol,
    /// Seconds since it was stored.
    pub age: u32,
    /// Seconds until it expires; negative: since then.
    pub left: i64,
    /// The response as it was stored, with ID 0 and the name in lower case.
    pub response: Vec<u8>,
}

impl PacketCache {
    /// All entries, those that have expired too, in no order. Each is a copy of one moment, the list is not.
    pub fn entries(&self, now: Now) -> impl Iterator<Item = Entry> {
        self.places()
            .filter_map(move |(_, record)| self.entry(&record, moment(now)))
    }

    /// How many entries there are, those that have expired too.
    pub fn len(&self) -> usize {
        self.places().count()
    }

    pub fn is_empty(&self) -> bool {
        self.places().next().is_none()
    }

    /// Takes entries out until at most `left` are there, which ones is not said; how many.
    pub fn expunge(&self, left: usize) -> usize {
        self.remove(left, |_| true)
    }

    /// Takes entries out that have expired, until at most `left` are there; how many.
    pub fn purge_expired(&self, left: usize, now: Now) -> usize {
        self.counts.cleanups.count(Lane::SHARED);
        let now = moment(now);
        self.remove(left, |record| record.times().0 <= now)
    }

    /// Takes entries for `name`, or with `suffix` for all below it too, out; of one type, or with `None` of all. How many.
    pub fn expunge_by_name(&self, name: &Name<'_>, qtype: Option<u16>, suffix: bool) -> usize {
        self.remove(0, |record| {
            let Some(question) = Question::of(&record.key_words()) else {
                return false;
            };
            let Ok(found) = Name::parse(&question.name) else {
                return false;
            };
            let named = if suffix {
                found.is_within(name)
            } else {
                found == *name
            };
            named && qtype.is_none_or(|qtype| qtype == question.qtype)
        })
    }

    /// Takes out what `gone` says, as long as more than `left` are there. Slots of overwritten entries are freed, too.
    fn remove(&self, left: usize, gone: impl Fn(&Record<'_>) -> bool) -> usize {
        let mut too_many = self.len().saturating_sub(left);
        let mut removed = 0;
        for place in self.table.all(&self.log) {
            if self.clear(place, |record| too_many > 0 && gone(record)) {
                too_many -= 1;
                removed += 1;
            }
        }
        removed
    }

    /// Frees a place whose record is lost, or of which `gone` says so; whether there was one. Where somebody writes there
    /// meanwhile, what has come is looked at in its turn: an entry that is only written again goes like any other.
    fn clear(&self, place: Place<'_>, gone: impl Fn(&Record<'_>) -> bool) -> bool {
        let mut next = Some(place);
        while let Some(place) = next {
            let record = Record::open(&self.log, place.position).filter(Record::is_whole);
            if record.as_ref().is_some_and(|record| !gone(record)) {
                return false;
            }
            if self.table.free(place) {
                return record.is_some();
            }
            next = place.again(&self.log);
        }
        false
    }

    pub(super) fn places(&self) -> impl Iterator<Item = (Place<'_>, Record<'_>)> {
        self.table
            .all(&self.log)
            .filter_map(|place| Some((place, Record::open(&self.log, place.position)?)))
            .filter(|(_, record)| record.is_whole())
    }

    fn entry(&self, record: &Record<'_>, now: u32) -> Option<Entry> {
        let key = record.key_words();
        let question = Question::of(&key)?;
        let (expires, stored) = record.times();
        let mut header = [0; HEADER_LENGTH];
        let mut body = vec![0; record.body_length().min(MESSAGE_LENGTH_MAX)];
        record.read(&mut header, &mut body, Ttl::Age(0), |flags| flags)?;
        if !record.is_whole() {
            return None;
        }
        let mut response = header[..QUESTION_START].to_vec();
        response.extend(question.bytes());
        response.extend(body);
        Some(Entry {
            name: Name::parse(&question.name).ok()?.to_owned(),
            qtype: question.qtype,
            qclass: question.qclass,
            key: self.hash(&key) as u32,
            protocol: question.protocol,
            age: now.saturating_sub(stored),
            left: i64::from(expires) - i64::from(now),
            response,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{keep, scene};
    use crate::pipeline::scene::{answer_to, query};
    use std::cell::Cell;
    use wire::codes::qtype;

    #[test]
    fn an_entry_that_is_written_again_while_it_is_taken_out_goes_all_the_same() {
        let (scene, cache) = scene(|_| ());
        let asked = query("www.example.", qtype::A);
        let write = || keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300]));
        assert!(write());
        let is_first = Cell::new(true);
        let removed = cache.remove(0, |_| {
            assert!(!is_first.replace(false) || write());
            true
        });
        assert_eq!((removed, cache.len()), (1, 0));
    }

    /// All that was written since the walk began looked lost, and was freed.
    #[test]
    fn what_comes_while_others_are_taken_out_stays() {
        let (scene, cache) = scene(|_| ());
        let write = |number: u32| {
            let asked = query(&format!("n{number}.example."), qtype::A);
            keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300]))
        };
        assert!(write(0));
        let is_first = Cell::new(true);
        let removed = cache.remove(0, |_| {
            assert!(!is_first.replace(false) || (1..=100).all(&write));
            false
        });
        assert_eq!((removed, cache.len()), (0, 101));
    }
}
