//! The packet cache: whole responses by question, flags and EDNS (`newPacketCache`).
//!
//! Two parts, both bounded by the configuration and without a lock: a [`table`] of slots, eight to a cache line, and a
//! [`log`] with the bytes, in which the oldest entry gives way to the newest. A hit reads one line of the table and the
//! entry, straight into the client's buffer, and then makes sure that nobody wrote there meanwhile. Entries that are hit
//! when an eighth of their way is behind them are written again: who is asked for stays. The way is measured in words of new
//! entries, so that entries written again do not drive each other on.
//!
//! A writer that meets another one at the same slot or at the head of the log gives up and counts: what is not kept now is
//! kept next time.

mod at_once;
mod buffer;
pub mod cleaning;
mod foreseen;
mod inspect;
mod key;
mod lifetime;
mod log;
mod moving;
mod record;
mod sync;
mod table;
#[cfg(test)]
mod tests;

pub use at_once::answer_at_once;
pub use foreseen::{Foreseen, foresee, foresee_entry};
pub use inspect::Entry;
pub use moving::FORM;

use super::query::{Protocol, Query};
use super::rules;
use super::{Env, HandOver, HandOverReason, Verdict, respond, suspended};
use crate::backend::pool::Pool;
use crate::clock::Now;
use crate::config::Config;
use crate::config::cache::CacheOptions;
use crate::counters::{Counter, Lane, Shard, Sharded};
use crate::words::{self, GROUP};
use buffer::Buffer;
use key::Key;
use lifetime::{Lifetime, lifetime};
use log::Log;
use rapidhash::quality::RandomState;
use record::{Draft, Record, Ttl, moment};
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use table::{Place, Table};
use wire::edit::shuffle_addresses;
use wire::message::{QueryParts, ResponseParts};
use wire::ttl::{self, TtlError};

/// Bytes of the log per entry: dnsdist's manual assumes responses of 512 bytes. What is larger on average makes old entries
/// give way before there are as many as configured.
const ENTRY_BYTES: usize = 1_024;

/// A cache, shared by all threads and by the pools that name it.
pub struct PacketCache {
    options: CacheOptions,
    table: Table,
    log: Log,
    /// Not rapidhash's fast form: its bits are too uneven to choose sets by (seen: half of them empty, others overflowing).
    hashing: RandomState,
    counts: CacheCounts,
    /// How many new entries there were, and how many words they took.
    new_entries: AtomicU64,
    new_words: AtomicU64,
    /// Entries that are hit when so many words of new ones came after them are written again.
    renew_after: AtomicU64,
}

/// What is counted per cache; names are those of dnsdist's per-pool rows in /metrics.
#[derive(Debug, Default)]
pub struct CacheCounts {
    pub hits: Sharded,
    pub misses: Sharded,
    /// Entries that were not kept because another writer was faster.
    pub deferred_inserts: Sharded,
    /// Entries that were overwritten while they were read.
    pub deferred_lookups: Sharded,
    /// Two questions with the same 64 bits of hash: one replaced the other.
    pub insert_collisions: Sharded,
    pub lookup_collisions: Sharded,
    /// Responses below minTTL.
    pub ttl_too_shorts: Sharded,
    /// How often it was cleaned.
    pub cleanups: Sharded,
}

/// What a response is kept for: the query that it answers, as it went to the backend.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'q> {
    pub query: &'q [u8],
    pub parts: &'q QueryParts,
    pub protocol: Protocol,
    /// The query's OPT record is not its client's, whose answer has none: see [`super::extras::Marks::edns_added`].
    pub edns_added: bool,
    /// For how many seconds SERVFAIL and REFUSED are kept, in place of the cache's own number.
    pub failure_ttl: Option<u32>,
}

impl<'q> Asked<'q> {
    /// By a query as it is now.
    #[inline]
    fn by(query: &'q Query<'_>) -> Asked<'q> {
        Asked {
            query: query.bytes(),
            parts: &query.parts,
            protocol: query.protocol,
            edns_added: query.marks.edns_added,
            failure_ttl: None,
        }
    }

    /// What of the key is not in the query's bytes: how it came, and whether its OPT record did not.
    #[inline]
    fn origin(&self) -> (Protocol, bool) {
        (self.protocol, self.edns_added)
    }
}

impl PacketCache {
    /// Memory is taken as it fills: at most 16 bytes and one to two KiB per entry, but up to 2 MiB for small caches.
    pub fn new(options: CacheOptions) -> PacketCache {
        let entries = options.maximum_entries;
        let log = Log::new(entries.saturating_mul(ENTRY_BYTES));
        PacketCache {
            options,
            table: Table::new(entries),
            new_entries: AtomicU64::new(0),
            new_words: AtomicU64::new(0),
            renew_after: AtomicU64::new(log.capacity() / WAY_PARTS),
            log,
            hashing: RandomState::default(),
            counts: CacheCounts::default(),
        }
    }

    pub fn options(&self) -> &CacheOptions {
        &self.options
    }

    pub fn counts(&self) -> &CacheCounts {
        &self.counts
    }

    /// Two words with each multiplication: one by one takes twice the instructions.
    #[inline]
    fn hash(&self, key: &[u64]) -> u64 {
        let mut hasher = self.hashing.build_hasher();
        let mut write = |[first, second, third, fourth]: &[u64; GROUP]| {
            hasher.write_u128(u128::from(*second) << 64 | u128::from(*first));
            hasher.write_u128(u128::from(*fourth) << 64 | u128::from(*third));
        };
        if let Some((front, last)) = words::in_groups(key) {
            front.iter().for_each(&mut write);
            write(last);
        }
        hasher.finish()
    }

    /// The entry for queries like this one, of which `foreseen` is known.
    ///
    /// It is opened in one place: of two, all that is known of it would go through memory where they meet.
    #[inline(always)]
    fn find(&self, query: &Query<'_>, foreseen: &Foreseen) -> Option<Record<'_>> {
        let mut position = foreseen.position();
        let mut is_searched = false;
        loop {
            if let Some(position) = position
                && let Some(record) = Record::open(&self.log, position)
                && self.is_for(&record, query, foreseen)
            {
                return Some(record);
            }
            if is_searched {
                return None;
            }
            position = Some(self.search(query, foreseen)?);
            is_searched = true;
        }
    }

    /// Where that entry is, by the whole table.
    #[inline(never)]
    fn search(&self, query: &Query<'_>, foreseen: &Foreseen) -> Option<u64> {
        let is_it = |record: &Record<'_>| self.is_for(record, query, foreseen);
        let place = self.place_of(self.hash_of(query, foreseen)?, is_it)?;
        Some(place.position)
    }

    /// The place of the entry with this hash of which `is_it` is true.
    fn place_of(&self, hash: u64, is_it: impl Fn(&Record<'_>) -> bool) -> Option<Place<'_>> {
        let is_there = |place: Place<'_>| {
            let record = Record::open(&self.log, place.position);
            record.is_some_and(|record| is_it(&record))
        };
        self.table.search(hash, &self.log, is_there)
    }

    /// Whether `record` is what is kept for queries like this one.
    #[inline]
    fn is_for(&self, record: &Record<'_>, query: &Query<'_>, foreseen: &Foreseen) -> bool {
        match foreseen.key() {
            Some(words) => record.has_key(words),
            None => self.is_for_long(record.key(), query),
        }
    }

    /// The same by the query itself.
    #[cold]
    fn is_for_long(&self, key: &[AtomicU64], query: &Query<'_>) -> bool {
        let asked = Asked::by(query);
        let mut own = key.iter();
        let mut same = true;
        let origin = asked.origin();
        let walked = key::walk(asked.query, asked.parts, origin, &self.options, |word| {
            same &= own.next().is_some_and(|own| own.load(Relaxed) == word);
        });
        walked.is_some() && same && own.all(|behind| behind.load(Relaxed) == 0)
    }

    /// Keeps a response, the bytes that `parts` are of, for queries like `asked`; whether it does.
    ///
    /// `lane`: where the thread counts.
    pub fn insert(
        &self,
        asked: Asked<'_>,
        response: &[u8],
        parts: &ResponseParts,
        now: Now,
        lane: Lane,
    ) -> bool {
        let fits = response.len() <= self.options.maximum_entry_size;
        let same_question = parts.question_end == asked.parts.question_end;
        let mut key = Key::default();
        let options = &self.options;
        let filled = key.fill(asked.query, asked.parts, asked.origin(), options);
        if !fits || !same_question || filled.is_none() {
            return false;
        }
        let mut few = [0; ttl::FEW_RECORDS];
        match ttl::collect(response, parts, &mut few) {
            Ok(ttls) => {
                let places = &mut few[..ttls.count];
                let failure_ttl = asked.failure_ttl;
                self.keep(
                    (&key, failure_ttl),
                    response,
                    parts,
                    (&ttls, places),
                    now,
                    lane,
                )
            }
            Err(TtlError::TooMany) => {
                self.insert_many((&key, asked.failure_ttl), response, parts, now, lane)
            }
            Err(TtlError::BadRecords) => false,
        }
    }

    /// As [`PacketCache::insert`], for responses of more records than fit a small array.
    #[cold]
    fn insert_many(
        &self,
        key: (&Key, Option<u32>),
        response: &[u8],
        parts: &ResponseParts,
        now: Now,
        lane: Lane,
    ) -> bool {
        let mut many = [0; ttl::RECORDS_MAX];
        let Ok(ttls) = ttl::collect(response, parts, &mut many) else {
            return false;
        };
        let places = &mut many[..ttls.count];
        self.keep(key, response, parts, (&ttls, places), now, lane)
    }

    fn keep(
        &self,
        (key, failure_ttl): (&Key, Option<u32>),
        response: &[u8],
        parts: &ResponseParts,
        (ttls, places): (&ttl::Ttls, &mut [u16]),
        now: Now,
        lane: Lane,
    ) -> bool {
        let seconds = match lifetime(&self.options, parts, ttls, failure_ttl) {
            Lifetime::Keep(seconds) => seconds,
            Lifetime::TooShort => {
                self.counts.ttl_too_shorts.count(lane);
                return false;
            }
            Lifetime::No => return false,
        };
        for place in &mut *places {
            *place -= parts.question_end;
        }
        let (head, body) = response.split_at(parts.question_end.into());
        let stored = moment(now);
        let kept = self.write(Draft {
            key,
            stored,
            expires: stored.saturating_add(seconds),
            stamp: 0,
            head,
            body,
            places,
        });
        if !kept {
            self.counts.deferred_inserts.count(lane);
        }
        kept
    }

    fn write(&self, mut draft: Draft<'_>) -> bool {
        let Some(room) = self.log.reserve(draft.len()) else {
            return false;
        };
        draft.stamp = self.count_new(draft.len() as u64) as u32;
        draft.write(&room);
        let key = draft.key.words();
        let hash = self.hash(key);
        let older = self.place_of(hash, |record| record.has_key(key));
        self.table.put(hash, room.position, older, &self.log)
    }

    /// Counts a new entry of so many words; how many there were with it. Now and then finds out anew how far entries get:
    /// a round of the log, or less where the table is full before, which is as many words as its entries take on average.
    fn count_new(&self, words: u64) -> u64 {
        let all = self.new_words.fetch_add(words, Relaxed) + words;
        let entries = self.new_entries.fetch_add(1, Relaxed) + 1;
        if entries.is_multiple_of(MEASURE) {
            let full = (all / entries).saturating_mul(self.options.maximum_entries as u64);
            let way = full.min(self.log.capacity());
            self.renew_after.store(way / WAY_PARTS, Relaxed);
        }
        all
    }

    /// Answers the query in its buffer. `foreseen`: what it is looked up by, if that is known. `stale`: for how many seconds past
    /// its end an entry may still be used.
    #[inline]
    fn serve(
        &self,
        query: &mut Query<'_>,
        foreseen: Option<&Foreseen>,
        now: Now,
        stale: impl FnOnce() -> u32,
        lane: Lane,
    ) -> Option<Served> {
        let mut own;
        let foreseen = match foreseen {
            Some(foreseen) => foreseen,
            None => {
                own = Foreseen::default();
                if self.foresee(query, &mut own).is_none() {
                    query.skip_cache = true;
                    return None;
                }
                &own
            }
        };
        let record = self.find(query, foreseen)?;
        let (expires, stored) = record.times();
        let now = moment(now);
        let change = if now < expires {
            Ttl::Age(self.age(stored, now))
        } else if now - expires < stale() {
            mark_stale(query);
            Ttl::Set(self.options.stale_ttl)
        } else {
            return None;
        };
        if self.is_renewed(&record)
            && let Some(hash) = self.hash_of(query, foreseen)
        {
            self.renew(record.position(), hash);
        }
        let end = usize::from(query.parts.question_end) + record.body_length();
        if end > query.message.len() {
            return record.is_whole().then_some(Served::TooLong);
        }
        let buffer = Buffer {
            length: query.length,
            question_end: query.parts.question_end,
            client_flags: query.client_flags,
            message: query.message,
        };
        let length = buffer.fill(&record, change);
        if length.is_none() {
            self.counts.deferred_lookups.count(lane);
        }
        length.map(Served::Answer)
    }

    /// How many seconds are taken off the TTLs of an entry that was stored at this moment.
    #[inline]
    fn age(&self, stored: u32, now: u32) -> u32 {
        match self.options.dont_age {
            true => 0,
            false => now.saturating_sub(stored),
        }
    }

    #[inline]
    fn count_hit(&self, shard: &Shard) {
        shard.count(Counter::CacheHits);
        self.counts.hits.count(shard.lane);
    }

    /// Whether an entry that is hit is written again.
    #[inline]
    fn is_renewed(&self, record: &Record<'_>) -> bool {
        let since = (self.new_words.load(Relaxed) as u32).wrapping_sub(record.stamp());
        u64::from(since) > self.renew_after.load(Relaxed)
    }

    /// Writes an entry again.
    #[cold]
    fn renew(&self, position: u64, hash: u64) {
        let stamp = self.new_words.load(Relaxed) as u32;
        let place = self.place_of(hash, |record| record.position() == position);
        if let Some(place) = place
            && let Some(record) = Record::open(&self.log, position)
            && let Some(copy) = record.copy(stamp)
        {
            self.table.put(hash, copy, Some(place), &self.log);
        }
    }
}

/// Notes for rules that the answer is past its time.
#[cold]
#[inline(never)]
fn mark_stale(query: &mut Query<'_>) {
    query.extras().stale = true;
}

/// What the cache has for a query.
enum Served {
    /// The buffer holds the answer; its length in bytes.
    Answer(usize),
    /// There is one, but the buffer has no room for it; the query is as it was.
    TooLong,
}

/// An entry that is asked for is written again after this part of its way: the smaller, the surer it stays, and the more
/// often it is written.
const WAY_PARTS: u64 = 8;

/// After so many entries it is found out anew how far they get.
const MEASURE: u64 = 64;

#[inline]
fn cache_of<'c>(query: &Query<'_>, config: &'c Config) -> Option<&'c PacketCache> {
    let pool = config.pool(query.pool).filter(|_| !query.skip_cache)?;
    pool.cache.as_deref()
}

/// The "cache" stage: the answer from the pool's cache, if it has one.
#[inline]
pub fn answer<'c>(
    query: &mut Query<'_>,
    foreseen: Option<&Foreseen>,
    env: &mut Env<'c>,
) -> Option<Verdict<'c>> {
    if query.skip_cache {
        return None;
    }
    let config: &'c Config = env.config;
    let pool = config.pool(query.pool)?;
    let cache = pool.cache.as_ref()?;
    if let Some(verdict) = hit(cache, pool, query, foreseen, env) {
        return Some(verdict);
    }
    env.shard.count(Counter::CacheMisses);
    cache.counts.misses.count(env.shard.lane);
    let verdict = rules::apply_chain(&config.chains.cache_miss, query, env);
    if let Some(Verdict::HandOver(hand_over)) = &verdict {
        suspended::keep_behind_cache(hand_over);
    }
    verdict
}

/// What the pool's cache has for this query whatever network it comes from, where it has `parseECS`.
pub fn answer_for_all<'c>(query: &mut Query<'_>, env: &mut Env<'c>) -> Option<Verdict<'c>> {
    let config: &'c Config = env.config;
    let pool = config.pool(query.pool).filter(|_| !query.skip_cache)?;
    let cache = pool.cache.as_ref()?;
    match cache.options.parse_subnet {
        true => hit(cache, pool, query, None, env),
        false => None,
    }
}

#[inline(always)]
fn hit<'c>(
    cache: &PacketCache,
    pool: &Pool,
    query: &mut Query<'_>,
    foreseen: Option<&Foreseen>,
    env: &mut Env<'c>,
) -> Option<Verdict<'c>> {
    let config: &'c Config = env.config;
    let stale = || match pool.servers.iter().any(|server| server.state.is_up()) {
        true => 0,
        false => config.tuning.stale_cache_entries_ttl,
    };
    let length = match cache.serve(query, foreseen, env.now, stale, env.shard.lane) {
        Some(Served::Answer(length)) => {
            if cache.options.shuffle {
                shuffle(query, length, env);
            }
            length
        }
        Some(Served::TooLong) if query.limit > query.message.len() => {
            // The client takes more than this buffer holds: one with more room asks the cache again.
            let reason = HandOverReason::Oversized;
            return Some(HandOver::of(query, reason, None));
        }
        Some(Served::TooLong) => respond::truncated(query, env),
        None => return None,
    };
    cache.count_hit(env.shard);
    Some(respond::give(&config.chains.cache_hit, query, length, env))
}

/// newPacketCache's `shuffle`.
#[cold]
#[inline(never)]
fn shuffle(query: &mut Query<'_>, length: usize, env: &mut Env<'_>) {
    let question_end = query.parts.question_end;
    shuffle_addresses(&mut query.message[..length], question_end, |bound| {
        env.random.below(bound)
    });
}

impl fmt::Debug for PacketCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PacketCache({} entries at most)",
            self.options.maximum_entries
        )
    }
}
