//! Token buckets, each in one atomic word, shared by all workers: what the manual calls a limit is one limit.
//!
//! A bucket of `burst` tokens that fills at `rate` a second is kept as one moment: when it will be full again. Each query
//! moves that moment by 1/rate; it may lie at most burst/rate ahead (the generic cell rate algorithm).

use crate::clock::Now;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
}

/// One bucket, full when new.
#[derive(Debug, Default)]
pub struct Bucket(AtomicU64);

impl Bucket {
    /// Takes a token; whether there was one.
    pub fn take(&self, rate: Rate, now: Now) -> bool {
        take(&self.0, rate, now)
    }
}

/// The moment in `full_at` when its bucket is full again, moved by one query; whether the query is within the rate.
pub(super) fn take(full_at: &AtomicU64, rate: Rate, now: Now) -> bool {
    let moved = |moment: u64| {
        let next = moment.max(now.0).checked_add(rate.interval)?;
        (next <= now.0.saturating_add(rate.depth)).then_some(next)
    };
    full_at.fetch_update(Relaxed, Relaxed, moved).is_ok()
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
}
