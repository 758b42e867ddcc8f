//! A live quantile in one atomic word: the 95th percentile of a server's latencies, which the policy `hedge` goes by.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// 19 steps up for what was slower, one step down for what was not, so that the estimate rests where one in twenty is slower.
/// A step is 1/256 of the estimate: ten times slower answers are learnt within 30 of them, ten times faster ones within 600.
/// The first samples make longer steps, because the very first says little. (Frugal streaming: Ma, Muthukrishnan, Sandler,
/// 2013.)
///
/// ```text
///  63        56 55                    0
///  │ samples    │ estimate, ns        │    samples stop at 240
/// ```
///
/// A lost update between two workers costs one sample: no lock is worth that.
#[derive(Debug, Default)]
pub struct Percentile95(AtomicU64);

const UP: u64 = 19;

/// The divisor of a step is this and the number of samples.
const FIRST_STEP: u64 = 16;
const SAMPLES_MAX: u64 = 240;

const SAMPLES_SHIFT: u32 = 56;
const ESTIMATE: u64 = (1 << SAMPLES_SHIFT) - 1;

/// The first sample may be a fast one: the estimate starts above it, which hedges too late rather than too often.
const START: u64 = 2;

/// Steps of less than a nanosecond would be none.
const LOWEST: u64 = FIRST_STEP + SAMPLES_MAX;

/// A year, in nanoseconds.
const HIGHEST: u64 = 1 << 54;

impl Percentile95 {
    pub fn note(&self, latency: Duration) {
        let sample = u64::try_from(latency.as_nanos()).unwrap_or(HIGHEST);
        let word = self.0.load(Relaxed);
        let (samples, old) = (word >> SAMPLES_SHIFT, word & ESTIMATE);
        let step = old / (FIRST_STEP + samples);
        let new = match sample > old {
            _ if old == 0 => sample.saturating_mul(START),
            // A long step does not lead past what was seen.
            true if samples < SAMPLES_MAX => (old + step * UP).min(sample),
            true => old + step * UP,
            false => old - step,
        };
        let samples = (samples + 1).min(SAMPLES_MAX);
        let new = new.clamp(LOWEST, HIGHEST);
        self.0.store(samples << SAMPLES_SHIFT | new, Relaxed);
    }

    /// `None` before the first sample.
    pub fn get(&self) -> Option<Duration> {
        let estimate = self.0.load(Relaxed) & ESTIMATE;
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
    fn a_first_sample_far_off_is_soon_forgotten() {
        let (percentile, mut random) = (Percentile95::default(), Random::from_seed(2));
        percentile.note(Duration::from_millis(500));
        let after = feed(&percentile, &mut random, 150, 1);
        assert!((1.2..100.0).contains(&after), "{after} ms");
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
