//! Token buckets, each in one atomic word, shared by all workers: what the manual calls a limit is one limit.
//!
//! A bucket of `burst` tokens that fills at `rate` a second is kept as one moment: when it will be full again. Each query
//! moves that moment by 1/rate; it may lie at most burst/rate ahead (the generic cell rate algorithm).
//!
//! What was counted lives on over a reload: see [`Limit::go_on_from`].

use crate::clock::Now;
use crate::pipeline::Env;
use crate::words::{self, Words};
use rapidhash::quality::RandomState;
use std::hash::{BuildHasher, Hash};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, OnceLock};

/// How much is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// What one query takes, in nanoseconds; `u64::MAX`: nothing is allowed.
    interval: u64,
    /// How far ahead of now a bucket's moment may lie, in nanoseconds.
    depth: u64,
}

impl Rate {
    /// `rate` queries a second, `burst` at once; 0 of either: none.
    pub fn new(rate: u32, burst: u32) -> Rate {
        if rate == 0 || burst == 0 {
            return Rate {
                interval: u64::MAX,
                depth: 0,
            };
        }
        let interval = 1_000_000_000 / u64::from(rate);
        Rate {
            interval,
            depth: interval * u64::from(burst),
        }
    }

    /// Whether a bucket that was emptied at the rate `former` has a token by this one after what one query takes here: its
    /// moment lies no further ahead than ours may.
    pub fn goes_on_from(self, former: Rate) -> bool {
        former.depth <= self.depth.saturating_add(self.interval)
    }

    /// Whether both mean the same by a bucket: what is used up at one rate is so at the other, and for no longer.
    fn counts_as(self, former: Rate) -> bool {
        let has_more = self.interval != former.interval && !former.goes_on_from(self);
        self.goes_on_from(former) && !has_more
    }

    /// The moment of a bucket that had `moment` at the rate `former`: as many queries are used up, at most a whole burst.
    fn moment_from(self, former: Rate, moment: u64, now: Now) -> u64 {
        let Some(ahead) = moment.checked_sub(now.0) else {
            return moment;
        };
        let former_interval = u128::from(former.interval.max(1));
        let ahead = u128::from(ahead) * u128::from(self.interval) / former_interval;
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
        now.0.saturating_add(ahead.min(self.depth))
    }
}

/// What a limit counts in: [`Bucket`] or [`Buckets`].
pub trait Tally {
    /// A copy with all moments as `change` makes them.
    fn changed(&self, change: impl Fn(u64) -> u64) -> Self;
}

/// A rate, and what was used up of it.
#[derive(Debug)]
pub struct Limit<T> {
    rate: Rate,
    own: Arc<T>,
    /// What it goes on with in place of its own.
    adopted: OnceLock<Arc<T>>,
}

impl<T> Limit<T> {
    pub fn new(rate: Rate, own: T) -> Limit<T> {
        Limit {
            rate,
            own: Arc::new(own),
            adopted: OnceLock::new(),
        }
    }

    #[inline]
    fn counted(&self) -> &Arc<T> {
        self.adopted.get().unwrap_or(&self.own)
    }
}

impl<T: Tally> Limit<T> {
    /// Goes on with what `former` has counted, the limit of the same rule or server before a reload: nobody has a new burst by
    /// that. To be called before this limit serves; the first call counts, for what stands in several rules.
    ///
    /// Both count together from then on, while the former one still serves. Where the rates are such that a bucket would mean
    /// something else, this one has a copy, in which as many queries are used up, at most a whole burst of its own.
    pub fn go_on_from(&self, former: &Limit<T>) {
        self.go_on_at(former, Now::read);
    }

    /// The same by a clock that a test may have.
    pub fn go_on_at(&self, former: &Limit<T>, now: impl FnOnce() -> Now) {
        let (rate, before) = (self.rate, former.rate);
        self.adopted.get_or_init(|| {
            if rate.counts_as(before) {
                return Arc::clone(former.counted());
            }
            let now = now();
            let change = |moment| rate.moment_from(before, moment, now);
            Arc::new(former.counted().changed(change))
        });
    }
}

impl Limit<Bucket> {
    /// Takes a token; whether there was one.
    pub fn take(&self, now: Now) -> bool {
        self.counted().take(self.rate, now)
    }

    /// Whether there is a token; it stays.
    pub fn has(&self, now: Now) -> bool {
        self.counted().has(self.rate, now)
    }

    /// Takes a token, or only looks where the query is supposed; whether there was one.
    #[inline]
    pub fn take_in(&self, env: &Env<'_>) -> bool {
        if env.is_rehearsal() {
            return self.has(env.now);
        }
        self.take(env.now)
    }

    /// Puts a token back.
    pub fn give_back(&self) {
        self.counted().give_back(self.rate);
    }
}

impl Limit<Buckets> {
    /// Takes a token of the key's bucket, or only looks where the query is supposed; whether there was one.
    #[inline]
    pub fn take_in(&self, key: impl Hash, env: &Env<'_>) -> bool {
        if env.is_rehearsal() {
            return self.has(key, env.now);
        }
        self.take(key, env.now)
    }

    /// Whether the key's bucket has a token; it stays.
    pub fn has(&self, key: impl Hash, now: Now) -> bool {
        self.counted().has(key, self.rate, now)
    }

    /// Takes a token of the key's bucket; whether there was one.
    #[inline]
    pub fn take(&self, key: impl Hash, now: Now) -> bool {
        self.counted().take(key, self.rate, now)
    }
}

/// One bucket, full when new.
#[derive(Debug, Default)]
pub struct Bucket(AtomicU64);

impl Bucket {
    /// Takes a token; whether there was one.
    pub fn take(&self, rate: Rate, now: Now) -> bool {
        take(&self.0, rate, now)
    }

    /// Whether there is a token; it stays.
    pub fn has(&self, rate: Rate, now: Now) -> bool {
        has(&self.0, rate, now)
    }

    /// Puts a token back.
    pub fn give_back(&self, rate: Rate) {
        self.0.fetch_sub(rate.interval, Relaxed);
    }
}

impl Tally for Bucket {
    fn changed(&self, change: impl Fn(u64) -> u64) -> Bucket {
        Bucket(AtomicU64::new(change(self.0.load(Relaxed))))
    }
}

/// The moment in `full_at` when its bucket is full again, moved by one query; whether the query is within the rate.
fn take(full_at: &AtomicU64, rate: Rate, now: Now) -> bool {
    let moved = |moment: u64| moved(moment, rate, now);
    full_at.fetch_update(Relaxed, Relaxed, moved).is_ok()
}

/// Whether [`take`] would find the query within the rate.
fn has(full_at: &AtomicU64, rate: Rate, now: Now) -> bool {
    moved(full_at.load(Relaxed), rate, now).is_some()
}

/// The moment moved by one query; `None`: too far.
#[inline]
fn moved(moment: u64, rate: Rate, now: Now) -> Option<u64> {
    let next = moment.max(now.0).checked_add(rate.interval)?;
    (next <= now.0.saturating_add(rate.depth)).then_some(next)
}

/// How much of an address counts as one client, in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefixes {
    pub v4: u8,
    pub v6: u8,
}

impl Prefixes {
    /// More bits than an address has mean the whole address.
    pub fn new(v4: u8, v6: u8) -> Prefixes {
        Prefixes {
            v4: v4.min(32),
            v6: v6.min(128),
        }
    }

    /// The address with all bits behind the prefix zero.
    pub fn network(self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let behind = 32 - u32::from(self.v4);
                let mask = u32::MAX.checked_shl(behind).unwrap_or(0);
                Ipv4Addr::from(u32::from(address) & mask).into()
            }
            IpAddr::V6(address) => {
                let behind = 128 - u32::from(self.v6);
                let mask = u128::MAX.checked_shl(behind).unwrap_or(0);
                Ipv6Addr::from(u128::from(address) & mask).into()
            }
        }
    }
}

/// Buckets in a set.
const WAYS: usize = 8;

/// A bucket per key, as many as fit: bounded memory, taken as it fills, shared by all workers without a lock.
///
/// When the set of a key is full, the bucket there that is furthest below its limit is forgotten, so that a flood of
/// forged keys does not free the loud ones.
///
/// ```text
///  set i:  key 0 … key 7 │ moment 0 … moment 7      words; a key is a keyed hash, never 0; 0 is free
/// ```
///
/// Two keys with the same 63 bits of hash share a bucket, and a key that is put in a place in the very moment when
/// another one's query is counted there is charged for it: one query too many or too few, no more. Threads that put the same
/// key in at once count in one bucket: see [`claim`].
pub struct Buckets {
    words: Words,
    hashing: RandomState,
}

impl Buckets {
    /// At least `count` of them, of 16 bytes.
    pub fn new(count: usize) -> Buckets {
        let sets = count.div_ceil(WAYS).max(1);
        Buckets {
            words: words::zeroed(sets * WAYS * 2),
            hashing: RandomState::default(),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.words.len() / 2
    }

    /// The key's hash, and keys and moments of its set.
    #[inline]
    fn set_of(&self, key: impl Hash) -> (u64, (&[AtomicU64], &[AtomicU64])) {
        let key = self.hashing.hash_one(key) | 1;
        let sets = self.words.len() / (WAYS * 2);
        // The upper bits choose the set: the lowest one is always 1.
        let set = (key >> 32) as usize % sets;
        (key, self.words[set * WAYS * 2..][..WAYS * 2].split_at(WAYS))
    }

    /// Whether the key's bucket has a token; one that is not there is full.
    pub fn has(&self, key: impl Hash, rate: Rate, now: Now) -> bool {
        let (key, (keys, moments)) = self.set_of(key);
        let way = keys.iter().position(|place| place.load(Relaxed) == key);
        way.map_or_else(
            || Bucket::default().has(rate, now),
            |way| has(&moments[way], rate, now),
        )
    }

    /// Takes a token of the key's bucket; whether there was one.
    pub fn take(&self, key: impl Hash, rate: Rate, now: Now) -> bool {
        let (key, (keys, moments)) = self.set_of(key);
        if let Some(way) = keys.iter().position(|place| place.load(Relaxed) == key) {
            return take(&moments[way], rate, now);
        }
        let way = claim(key, (keys, moments), now);
        take(&moments[way], rate, now)
    }
}

/// A way for a key that has none yet, in the place of the key that is furthest below its limit.
///
/// Only one thread puts a key there: the one whose exchange finds what it has seen. Who is too late counts there all the same:
/// it is his key, or he is charged to another one, once. While there is a free way, threads with the same key choose the same
/// one, or see the key where the first of them has put it. (In a full set they may choose differently where the quietest key is
/// counted in that moment: theirs is there twice, and has one burst more.) A moment is only set to zero as it was seen: what has
/// been counted since stays.
#[inline(never)]
fn claim(key: u64, (keys, moments): (&[AtomicU64], &[AtomicU64]), now: Now) -> usize {
    // The key before its moment: a key that comes in between is not forgotten for the former one's moment.
    let seen = keys.iter().map(|place| place.load(Acquire));
    let seen = seen.zip(moments.iter().map(|moment| moment.load(Relaxed)));
    let furthest = seen.enumerate().min_by_key(|(_, (_, moment))| *moment);
    let (way, (former, moment)) = furthest.expect("a set has ways");
    // Who sees that a key was counted sees the key.
    fence(Acquire);
    if let Some(way) = keys.iter().position(|place| place.load(Relaxed) == key) {
        return way;
    }
    let claimed = keys[way].compare_exchange(former, key, Relaxed, Relaxed);
    fence(Release);
    // A moment that is past says what zero says.
    if claimed.is_ok() && moment > now.0 {
        // Where this fails, the key was counted meanwhile, and begins with what the former one has used up.
        let _ = moments[way].compare_exchange(moment, 0, Relaxed, Relaxed);
    }
    way
}

impl Tally for Buckets {
    fn changed(&self, change: impl Fn(u64) -> u64) -> Buckets {
        let copy = words::zeroed(self.words.len());
        for (place, (word, new)) in self.words.iter().zip(copy.iter()).enumerate() {
            let word = word.load(Relaxed);
            let is_key = place % (WAYS * 2) < WAYS;
            // What is free stays untouched, and takes no memory.
            if word != 0 {
                new.store(if is_key { word } else { change(word) }, Relaxed);
            }
        }
        Buckets {
            words: copy,
            hashing: self.hashing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(bucket: &Bucket, rate: Rate, now: Now, asked: usize) -> usize {
        (0..asked).filter(|_| bucket.take(rate, now)).count()
    }

    #[test]
    fn a_burst_then_the_rate() {
        let (bucket, rate) = (Bucket::default(), Rate::new(10, 20));
        let second = |seconds: u64| Now(seconds * 1_000_000_000);
        assert_eq!(allowed(&bucket, rate, second(5), 100), 20);
        assert_eq!(allowed(&bucket, rate, second(6), 100), 10);
        assert_eq!(allowed(&bucket, rate, Now(6_100_000_000), 100), 1);
        assert_eq!(allowed(&bucket, rate, second(100), 100), 20);
    }

    #[test]
    fn a_look_takes_nothing_and_a_token_can_come_back() {
        let (bucket, rate, now) = (Bucket::default(), Rate::new(1, 1), Now(5_000_000_000));
        assert!(bucket.has(rate, now) && bucket.has(rate, now));
        assert!(bucket.take(rate, now) && !bucket.has(rate, now));
        bucket.give_back(rate);
        assert!(bucket.has(rate, now));
    }

    #[test]
    fn a_rate_goes_on_from_one_that_looks_no_further_ahead() {
        let rate = Rate::new(10, 10);
        assert!(rate.goes_on_from(rate));
        assert!(rate.goes_on_from(Rate::new(7, 7)), "a second, too");
        assert!(rate.goes_on_from(Rate::new(100, 10)));
        assert!(!rate.goes_on_from(Rate::new(1, 10)));
        assert!(Rate::new(0, 0).goes_on_from(rate));
    }

    const THEN: Now = Now(1_000_000_000_000);

    /// How many of 500 queries the second limit lets through when it goes on from the first, of which all was used: at once,
    /// and after some seconds.
    fn goes_on(first: (u32, u32), second: (u32, u32), seconds: u64) -> (usize, usize) {
        let limit = |(rate, burst)| Limit::new(Rate::new(rate, burst), Bucket::default());
        let (first, second) = (limit(first), limit(second));
        while first.take(THEN) {}
        second.go_on_at(&first, || THEN);
        let later = Now(THEN.0 + seconds * 1_000_000_000);
        let passed = |now| (0..500).filter(|_| second.take(now)).count();
        (passed(THEN), passed(later))
    }

    #[test]
    fn a_limit_goes_on_and_waits_no_longer_than_its_own_rate_says() {
        assert_eq!(goes_on((100, 100), (100, 100), 1), (0, 100));
        assert_eq!(goes_on((100, 100), (10, 10), 1), (0, 10));
        assert_eq!(goes_on((100, 100), (200, 200), 1), (0, 200));
        assert_eq!(goes_on((100_000, 100_000), (60_000, 60_000), 0), (0, 0));
        // 200 s of waiting are 2 s, and a burst is as many queries whatever its time.
        assert_eq!(goes_on((1, 200), (100, 200), 2), (0, 200));
        assert_eq!(goes_on((100, 200), (1, 200), 5), (0, 5));
        assert_eq!(goes_on((10, 200), (10, 100), 10), (0, 100));
        assert_eq!(goes_on((10, 200), (10, 300), 10), (100, 100));
        assert_eq!(goes_on((10, 20), (0, 0), 10), (0, 0));
        assert_eq!(goes_on((0, 0), (10, 20), 0), (20, 0));
        assert_eq!(goes_on((1, 100), (4_000_000_000, 1), 0).0, 500);
    }

    #[test]
    fn both_limits_count_together_where_the_rate_is_the_same() {
        let limit = || Limit::new(Rate::new(10, 10), Bucket::default());
        let [first, second, third, other] = [limit(), limit(), limit(), limit()];
        second.go_on_from(&first);
        third.go_on_from(&second);
        // It stands in two rules.
        third.go_on_from(&other);
        let all = [&first, &second, &third];
        let taken = (0..30_usize).filter(|number| all[number % 3].take(THEN));
        assert_eq!(taken.count(), 10);
        assert!(other.take(THEN));
    }

    #[test]
    fn a_copy_of_many_buckets_knows_each() {
        let limit = |rate| Limit::new(Rate::new(rate, 200), Buckets::new(64));
        let (first, second) = (limit(1), limit(100));
        let taken = |limit: &Limit<Buckets>, key: u8, now| {
            let is_there = |_: &u32| limit.counted().take(key, limit.rate, now);
            (0..500).filter(is_there).count()
        };
        assert_eq!(taken(&first, 1, THEN), 200);
        second.go_on_at(&first, || THEN);
        assert_eq!(taken(&second, 1, THEN), 0);
        assert_eq!(taken(&second, 2, THEN), 200);
        let later = Now(THEN.0 + 2_000_000_000);
        assert_eq!(taken(&second, 1, later), 200);
    }

    #[test]
    fn limits_go_on_together_or_by_a_copy() {
        let first = Limit::new(Rate::new(10, 200), Bucket::default());
        while first.take(THEN) {}
        let later = Now(THEN.0 + 2_000_000_000);
        let passed = |limit: &Limit<Bucket>| (0..500).filter(|_| limit.take(later)).count();
        let after = |rate: u32| {
            let limit = Limit::new(Rate::new(rate, 200), Bucket::default());
            limit.go_on_at(&first, || THEN);
            limit
        };
        let faster = after(100);
        assert_eq!(passed(&faster), 200);
        let same = after(10);
        assert_eq!(
            (passed(&first), passed(&same)),
            (20, 0),
            "both count together"
        );
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(allowed(&Bucket::default(), Rate::new(0, 5), Now(1), 10), 0);
    }

    #[test]
    fn threads_share_one_limit() {
        let (bucket, rate) = (Bucket::default(), Rate::new(1_000, 1_000));
        let count = || allowed(&bucket, rate, Now(7), 1_000);
        let total: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(total, 1_000);
    }

    /// Two threads, and many keys that are new to the table: each gets its burst, no more.
    #[test]
    fn threads_that_put_the_same_key_in_at_once_share_one_bucket() {
        const KEYS: u32 = 20_000;
        let (buckets, rate) = (Buckets::new(1 << 20), Rate::new(10, 10));
        let arrived = AtomicU64::new(0);
        let passed_of = |key: u32| {
            // Both begin with a key together.
            arrived.fetch_add(1, Relaxed);
            while arrived.load(Relaxed) < 2 * u64::from(key + 1) {
                std::thread::yield_now();
            }
            (0..20).filter(|_| buckets.take(key, rate, Now(7))).count()
        };
        let all = || (0..KEYS).map(passed_of).collect::<Vec<_>>();
        let (one, other) = std::thread::scope(|scope| {
            let thread = scope.spawn(all);
            (all(), thread.join().unwrap())
        });
        let sums = one.iter().zip(&other).map(|(one, other)| one + other);
        let wrong: Vec<_> = sums.enumerate().filter(|(_, sum)| *sum != 10).collect();
        assert!(wrong.is_empty(), "{}: {:?} …", wrong.len(), wrong[0]);
    }

    /// What was counted of the key in whose place another one comes is not that one's.
    #[test]
    fn a_new_key_in_a_full_set_begins_with_a_whole_burst() {
        let (buckets, rate) = (Buckets::new(WAYS), Rate::new(10, 10));
        let passed = |key: usize| (0..20).filter(|_| buckets.take(key, rate, Now(7))).count();
        for key in 0..3 * WAYS {
            assert_eq!(passed(key), 10, "{key}");
        }
    }

    #[test]
    fn prefixes_of_nothing_and_of_everything() {
        let client = "192.0.2.1".parse().unwrap();
        assert_eq!(Prefixes::new(0, 0).network(client), Ipv4Addr::UNSPECIFIED);
        let whole = Prefixes::new(99, 200);
        assert_eq!(
            whole.network(Ipv6Addr::LOCALHOST.into()),
            Ipv6Addr::LOCALHOST
        );
    }

    /// F30: forged sources by the thousand, and one that is loud.
    #[test]
    fn f30_a_flood_of_keys_does_not_free_the_loud_one() {
        let (buckets, rate) = (Buckets::new(32), Rate::new(10, 10));
        let loud: IpAddr = "192.0.2.1".parse().unwrap();
        let mut passed = 0;
        for number in 0..10_000u32 {
            let now = Now(1_000_000_000 + u64::from(number));
            buckets.take(IpAddr::from(Ipv4Addr::from(number)), rate, now);
            passed += usize::from(buckets.take(loud, rate, now));
        }
        assert_eq!((passed, buckets.count()), (10, 32));
    }
}
