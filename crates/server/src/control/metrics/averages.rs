//! dnsdist's average latencies: over about the last 100, 1,000, 10,000 and 1,000,000 answers.
//!
//! dnsdist moves each average with each answer. Here nothing is done per answer: whoever reads the sums of latencies and
//! answers (once a second, and for each look) moves the averages by all answers since the last time at once. That is
//! the same number as long as the latencies within a second are alike.

/// Averages that decay with answers, not with time. Latencies are in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Averages {
    answers: u64,
    sum: u64,
    averages: [f64; WINDOWS.len()],
}

const WINDOWS: [u32; 4] = [100, 1_000, 10_000, 1_000_000];

impl Averages {
    /// Takes in the totals as they are now.
    pub fn take(&mut self, answers: u64, sum: u64) {
        let new = answers.saturating_sub(self.answers);
        if new == 0 {
            return;
        }
        let mean = sum.saturating_sub(self.sum) as f64 / new as f64;
        for (window, average) in WINDOWS.into_iter().zip(&mut self.averages) {
            // One answer keeps (window - 1) / window of what was; `new` answers keep that to the power of `new`.
            let kept = (1.0 - 1.0 / f64::from(window)).powf(new as f64);
            *average = *average * kept + mean * (1.0 - kept);
        }
        self.answers = answers;
        self.sum = sum;
    }

    /// The average over about so many answers, one of 100, 1,000, 10,000 and 1,000,000.
    ///
    /// # Panics
    /// For another number: a mistake in the table of statistics.
    pub fn over(&self, answers: u32) -> f64 {
        let index = WINDOWS.iter().position(|&window| window == answers);
        self.averages[index.expect("averages are kept over 100, 1,000, 10,000 and 1,000,000")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_at_once_move_an_average_as_one_by_one() {
        let mut at_once = Averages::default();
        at_once.take(50, 50 * 300);
        let mut one_by_one = Averages::default();
        for answers in 1..=50 {
            one_by_one.take(answers, answers * 300);
        }
        for window in WINDOWS {
            let (one, other) = (at_once.over(window), one_by_one.over(window));
            assert!((one - other).abs() < 1e-6, "{window}: {one} and {other}");
        }
    }

    #[test]
    fn averages_come_near_what_is_constant() {
        let mut averages = Averages::default();
        averages.take(2_000, 2_000 * 300);
        assert!((averages.over(100) - 300.0).abs() < 0.001);
        assert!(averages.over(1_000_000) < 1.0);
        let before = averages;
        averages.take(2_000, 2_000 * 300);
        assert_eq!(averages, before, "no answer, no change");
    }
}
