//! healthCheckMode lazy: what the queries of clients tell of a server. Checks begin when too many of the last ones failed.
//!
//! Workers write, the task of the server's checks reads: one octet per query in a ring, and how many of them say that it
//! failed. No lock: an addition and a swap per query, another addition when that count changes, for servers of this mode alone.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use wire::codes::rcode;

/// The `lazyHealthCheck` options, without that word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LazyOptions {
    /// SampleSize: so many queries are looked back at.
    pub sample_size: u16,
    /// MinSampleCount: with fewer of them nothing is concluded.
    pub minimum_sample: u16,
    /// Threshold: percent of them that failed.
    pub threshold: u8,
    /// Mode: TimeoutOrServFail, else TimeoutOnly.
    pub counts_servfail: bool,
    /// FailedInterval: between the checks of a server that is down.
    pub failed_interval: Duration,
    /// MaxBackOff, where UseExponentialBackOff is wanted: each interval is twice the last one, up to this.
    pub maximum_back_off: Option<Duration>,
}

impl Default for LazyOptions {
    /// dnsdist's defaults.
    fn default() -> LazyOptions {
        LazyOptions {
            sample_size: 100,
            minimum_sample: 1,
            threshold: 20,
            counts_servfail: true,
            failed_interval: Duration::from_secs(30),
            maximum_back_off: None,
        }
    }
}

const NOTHING: u8 = 0;
const WELL: u8 = 1;
const FAILED: u8 = 2;

/// The last queries of one server.
#[derive(Debug)]
pub struct Sample {
    results: Box<[AtomicU8]>,
    recorded: AtomicU64,
    /// How many of `results` are [`FAILED`].
    failed: AtomicI64,
    is_suspected: AtomicBool,
    options: LazyOptions,
}

impl Sample {
    pub fn new(options: LazyOptions) -> Sample {
        Sample {
            results: (0..options.sample_size.max(1))
                .map(|_| AtomicU8::new(NOTHING))
                .collect(),
            recorded: AtomicU64::new(0),
            failed: AtomicI64::new(0),
            is_suspected: AtomicBool::new(false),
            options,
        }
    }

    /// An answer has come.
    pub fn answered(&self, code: u16) {
        self.record(code == rcode::SERVFAIL && self.options.counts_servfail);
    }

    /// None came, or the query could not be sent.
    pub fn failed(&self) {
        self.record(true);
    }

    fn record(&self, failed: bool) {
        let size = self.results.len() as u64;
        let at = self.recorded.fetch_add(1, Relaxed);
        let new = if failed { FAILED } else { WELL };
        let old = self.results[(at % size) as usize].swap(new, Relaxed);
        let change = i64::from(failed) - i64::from(old == FAILED);
        if change != 0 {
            self.failed.fetch_add(change, Relaxed);
        }
    }

    /// Whether too many of the last queries have failed, or had when this was asked before: until [`Sample::clear`].
    pub fn is_suspected(&self) -> bool {
        if self.has_too_many_failures() {
            self.is_suspected.store(true, Relaxed);
        }
        self.is_suspected.load(Relaxed)
    }

    /// In whatever order they came.
    fn has_too_many_failures(&self) -> bool {
        let recorded = self.recorded.load(Relaxed);
        let looked_at = recorded.min(self.results.len() as u64);
        let failures = self.failed.load(Relaxed);
        failures > 0
            && looked_at >= self.options.minimum_sample.into()
            && failures * 100 >= looked_at as i64 * i64::from(self.options.threshold)
    }

    /// How many of the last queries are said to have failed.
    #[cfg(test)]
    pub(crate) fn failures(&self) -> u64 {
        self.failed.load(Relaxed).unsigned_abs()
    }

    /// The server is well: what was before says nothing any more.
    pub fn clear(&self) {
        for result in &self.results {
            if result.swap(NOTHING, Relaxed) == FAILED {
                self.failed.fetch_sub(1, Relaxed);
            }
        }
        self.recorded.store(0, Relaxed);
        self.is_suspected.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(size: u16, minimum: u16, threshold: u8) -> Sample {
        Sample::new(LazyOptions {
            sample_size: size,
            minimum_sample: minimum,
            threshold,
            ..LazyOptions::default()
        })
    }

    #[test]
    fn with_the_defaults_the_first_failure_is_all_that_is_known() {
        let first = sample(100, 1, 20);
        first.failed();
        assert!(first.is_suspected());
    }

    #[test]
    fn a_fifth_of_the_last_hundred_must_fail() {
        let sample = sample(100, 10, 20);
        for _ in 0..90 {
            sample.answered(0);
        }
        // 19 of 100, and well ones give way to them.
        for _ in 0..19 {
            sample.failed();
        }
        assert!(!sample.is_suspected());
        sample.failed();
        assert!(sample.is_suspected());
    }

    #[test]
    fn what_is_older_than_the_sample_is_forgotten() {
        let sample = sample(10, 1, 50);
        for _ in 0..10 {
            sample.answered(0);
        }
        for _ in 0..20 {
            (0..4).for_each(|_| sample.failed());
            (0..6).for_each(|_| sample.answered(0));
        }
        assert!(!sample.is_suspected(), "4 of 10 at any time");
        (0..5).for_each(|_| sample.failed());
        assert!(sample.is_suspected());
        sample.clear();
        assert!(!sample.is_suspected());
        assert_eq!(sample.failed.load(Relaxed), 0);
    }

    #[test]
    fn fewer_than_the_minimum_say_nothing() {
        let sample = sample(10, 3, 20);
        sample.failed();
        sample.failed();
        assert!(!sample.is_suspected());
        sample.failed();
        assert!(sample.is_suspected());
    }

    /// The manual counts percent of the last queries, not what the last one was.
    #[test]
    fn the_order_of_queries_is_no_matter() {
        let sample = sample(10, 3, 50);
        sample.failed();
        sample.failed();
        assert!(!sample.is_suspected());
        sample.answered(0);
        assert!(sample.is_suspected());
        // Who is suspected stays so until checks say otherwise.
        (0..10).for_each(|_| sample.answered(0));
        assert!(sample.is_suspected());
        sample.clear();
        assert!(!sample.is_suspected());
    }

    #[test]
    fn servfail_counts_unless_only_timeouts_are_wanted() {
        let with = Sample::new(LazyOptions::default());
        with.answered(rcode::SERVFAIL);
        let without = Sample::new(LazyOptions {
            counts_servfail: false,
            ..LazyOptions::default()
        });
        without.answered(rcode::SERVFAIL);
        assert_eq!((with.is_suspected(), without.is_suspected()), (true, false));
        without.failed();
        assert!(without.is_suspected());
    }
}
