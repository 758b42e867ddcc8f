//! A live quantile in one atomic word: the 95th percentile of a server's latencies, which the policy `hedge` goes by.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The estimate in nanoseconds: 19 steps up for what was slower, one step down for what was not, so that it rests where one
/// in twenty is slower. A step is 1/256 of the estimate: ten times slower answers are learnt within 30 of them, ten times
/// faster ones within 600. (Frugal streaming: Ma, Muthukrishnan, Sandler, 2013.)
///
/// A lost update between two workers costs one sample: no lock is worth that.
#[derive(Debug, Default)]
pub struct Percentile95(AtomicU64);

const STEP: u64 = 256;
const UP: u64 = 19;

/// The first sample may be a fast one: the estimate starts above it, which hedges too late rather than too often.
const START: u64 = 2;

/// Steps of less than a nanosecond would be none.
const LOWEST: u64 = STEP;

impl Percentile95 {
    pub fn note(&self, latency: Duration) {
        let sample = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX >> 8);
        let old = self.0.load(Relaxed);
        let new = match old {
            0 => (sample * START).max(LOWEST),
            old if sample > old => old + old / STEP * UP,
            old => (old - old / STEP).max(LOWEST),
        };
        self.0.store(new, Relaxed);
    }

    /// `None` before the first sample.
    pub fn get(&self) -> Option<Duration> {
        let estimate = self.0.load(Relaxed);
        (estimate > 0).then_some(Duration::from_nanos(estimate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The estimate after `count` samples between 1 and 2 milliseconds, or ten times that.
    fn feed(percentile: &Percentile95, random: &mut Random, count: usize, factor: u64) -> f64 {
        for _ in 0..count {
            let micros = 1_000 + u64::from(random.below(1_000));
            percentile.note(Duration::from_micros(micros * factor));
        }
        percentile.get().expect("there were samples").as_secs_f64() * 1e3
    }

    #[test]
    fn one_in_twenty_is_slower_and_changes_are_learnt() {
        let (percentile, mut random) = (Percentile95::default(), Random::from_seed(1));
        assert_eq!(percentile.get(), None);
        let fast = feed(&percentile, &mut random, 2_000, 1);
        assert!((1.7..2.3).contains(&fast), "{fast} ms, not 1.95");
        let slow = feed(&percentile, &mut random, 60, 10);
        assert!((15.0..25.0).contains(&slow), "{slow} ms, not 19.5");
        let again = feed(&percentile, &mut random, 1_500, 1);
        assert!((1.7..2.3).contains(&again), "{again} ms, not 1.95");
    }
}
