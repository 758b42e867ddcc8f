//! The highest rate that a server keeps up with: growing steps until it does not, then halving the distance.
//!
//! R99 is "the highest offered rate of which at least 99 % was answered right for 5 s (bisection to 3 %, median of 5)". It is
//! measured against what was *offered*: a generator that does not get its queries out finds its own limit, which
//! [`Probe::generator_failed`] tells apart.

use crate::failure::Outcome;

/// A lower and a higher rate closer than this are the same, as a ratio.
pub const PRECISION: f64 = 1.03;

/// The first step from where a search starts, as a ratio: small, for whoever has searched before starts near the limit, and just
/// below the fourth power of [`PRECISION`], which two halvings bring down to it (1.15 takes three). Each further one is the last
/// one's square, [`LARGEST_STEP`] at most.
const FIRST_STEP: f64 = 1.125;
const LARGEST_STEP: f64 = 2.0;

/// What a rate is held for has so many queries at least, that one in a hundred can be told.
pub const QUERIES: f64 = 100.0;
/// The lowest rate where each is held for a second or less, in queries a second.
const LEAST: f64 = 100.0;

/// The lowest rate that is worth a try where each is held for so many seconds, in queries a second.
pub fn least_rate(seconds: f64) -> f64 {
    (QUERIES / seconds).min(LEAST)
}

/// Which rates are tried, in queries a second.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub least: f64,
    pub start: f64,
    pub highest: f64,
}

/// How a server did at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Queries a second that were offered.
    pub rate: f64,
    /// Queries offered, sent, and answered right.
    pub offered: u64,
    pub sent: u64,
    pub right: u64,
    /// Answers that came to this machine and not to us: [`crate::xdp::Losses::answers`].
    pub lost_here: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

impl Probe {
    /// Whether this part of what was offered was answered right.
    pub fn reaches(&self, goal: f64) -> bool {
        self.right as f64 >= goal * self.offered as f64
    }

    /// Whether the generator alone misses it: by what it did not send, and what it lost of the answers.
    pub fn generator_failed(&self, goal: f64) -> bool {
        let kept = self.sent.saturating_sub(self.lost_here);
        (kept as f64) < goal * self.offered as f64
    }

    /// Right answers a second.
    pub fn answers_per_second(&self) -> f64 {
        self.right as f64 / self.seconds
    }
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The highest rate that reached the goal, in queries a second; 0: not even the lowest did.
    pub rate: f64,
    /// The limit was the generator: at the lowest rate that failed it did not send what was due or lost the answers, or there
    /// was no higher rate to try.
    pub generator_was_the_limit: bool,
}

/// A search among some rates, one probe at a time: whoever has several searches may make their probes by turns.
#[derive(Clone, Debug)]
pub struct Search {
    /// The part that must be answered right.
    goal: f64,
    least: f64,
    highest: f64,
    /// The highest rate that reached the goal, and the lowest that did not.
    low: f64,
    high: f64,
    /// The one that is tried next.
    rate: f64,
    step: f64,
    generator_was_the_limit: bool,
}

impl Search {
    /// Begins at the start of these rates. `goal`: the part that must be answered right.
    pub fn new(goal: f64, rates: Rates) -> Search {
        let highest = rates.highest.max(rates.least);
        Search {
            goal,
            least: rates.least,
            highest,
            low: 0.0,
            high: f64::INFINITY,
            rate: rates.start.clamp(rates.least, highest),
            step: FIRST_STEP,
            generator_was_the_limit: false,
        }
    }

    /// What is to be offered next, in queries a second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The part that must be answered right.
    pub fn goal(&self) -> f64 {
        self.goal
    }

    /// Takes what came of that rate. `Some`: the search is over.
    pub fn take(&mut self, probe: &Probe) -> Option<Found> {
        if probe.reaches(self.goal) {
            self.low = self.rate;
        } else {
            self.high = self.rate;
            self.generator_was_the_limit = probe.generator_failed(self.goal);
        }
        let (low, high) = (self.low, self.high);
        let at_the_end = low >= self.highest || high <= self.least;
        if at_the_end || high / low <= PRECISION {
            return Some(Found {
                rate: low,
                generator_was_the_limit: self.generator_was_the_limit || low >= self.highest,
            });
        }
        self.rate = match (low, high) {
            (low, f64::INFINITY) => (low * self.step).min(self.highest),
            (0.0, high) => (high / self.step).max(self.least),
            // The geometric mean: as many steps wherever the limit lies.
            (low, high) => (low * high).sqrt(),
        };
        self.step = (self.step * self.step).min(LARGEST_STEP);
        None
    }
}

/// Searches among these rates. `goal`: the part that must be answered right. `None`: the probe says to stop.
///
/// # Errors
/// What the probe fails with.
pub fn search(
    goal: f64,
    rates: Rates,
    mut probe: impl FnMut(f64) -> Outcome<Option<Probe>>,
) -> Outcome<Option<Found>> {
    let mut search = Search::new(goal, rates);
    loop {
        let Some(probe) = probe(search.rate())? else {
            return Ok(None);
        };
        if let Some(found) = search.take(&probe) {
            return Ok(Some(found));
        }
    }
}

/// The middle one of some numbers, or the mean of both; 0 of none.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A server that answers `limit` queries a second, asked by a generator that sends `sender`.
    fn probe(rate: f64, limit: f64, sender: f64) -> Probe {
        Probe {
            rate,
            offered: (rate * 5.0) as u64,
            sent: (rate.min(sender) * 5.0) as u64,
            right: (rate.min(sender).min(limit) * 5.0) as u64,
            lost_here: 0,
            seconds: 5.0,
        }
    }

    fn rates(start: f64, highest: f64) -> Rates {
        Rates {
            least: LEAST,
            start,
            highest,
        }
    }

    fn limit_of(limit: f64, sender: f64) -> (Found, usize) {
        let mut probes = 0;
        let found = search(0.99, rates(10_000.0, 1e7), |rate| {
            probes += 1;
            Ok(Some(probe(rate, limit, sender)))
        });
        (found.unwrap().unwrap(), probes)
    }

    #[test]
    fn whoever_starts_near_the_limit_is_there_soon() {
        for limit in [9_000.0, 10_000.0, 11_000.0] {
            let (found, probes) = limit_of(limit, 5e6);
            assert!(found.rate <= limit / 0.99 && found.rate >= limit / 0.99 / PRECISION);
            assert!(probes <= 4, "{probes} probes");
        }
    }

    #[test]
    fn a_servers_limit_is_found_to_three_per_cent() {
        let (found, probes) = limit_of(700_000.0, 5e6);
        assert!(found.rate <= 700_000.0 / 0.99 && found.rate >= 700_000.0 / 0.99 / PRECISION);
        assert!(!found.generator_was_the_limit);
        assert!(probes < 16, "{probes} probes");
    }

    #[test]
    fn the_generators_own_limit_is_told() {
        assert!(limit_of(1e9, 300_000.0).0.generator_was_the_limit);
        assert!(
            limit_of(1e9, 1e9).0.generator_was_the_limit,
            "no higher rate to try"
        );
    }

    /// A server that gives every answer, to a generator that reads 300,000 of them a second.
    #[test]
    fn answers_that_the_generator_loses_are_its_limit() {
        let read = |lost_here: u64| {
            search(0.99, rates(10_000.0, 1e7), |rate| {
                let probe = probe(rate, 300_000.0, 1e9);
                let lost_here = lost_here * (probe.sent - probe.right);
                Ok(Some(Probe { lost_here, ..probe }))
            })
        };
        let [servers, generators] = [0, 1].map(|lost_here| read(lost_here).unwrap().unwrap());
        assert_eq!(servers.rate, generators.rate);
        assert!(!servers.generator_was_the_limit && generators.generator_was_the_limit);
    }

    #[test]
    fn a_server_that_answers_nothing_has_no_rate() {
        assert_eq!(limit_of(0.0, 1e9).0.rate, 0.0);
    }

    #[test]
    fn a_highest_rate_below_the_least_is_the_least() {
        let found = search(1.0, rates(0.0, 1.0), |rate| Ok(Some(probe(rate, 1e9, 1e9))));
        assert_eq!(found.unwrap().unwrap().rate, LEAST);
    }

    #[test]
    fn slow_servers_are_found_where_rates_are_held_for_long() {
        assert_eq!([0.2, 1.0, 5.0].map(least_rate), [100.0, 100.0, 20.0]);
        let slow = Rates {
            least: least_rate(5.0),
            start: 1_000.0,
            highest: 1e7,
        };
        let found = search(0.99, slow, |rate| Ok(Some(probe(rate, 50.0, 1e9))));
        let rate = found.unwrap().unwrap().rate;
        assert!((48.0..51.0).contains(&rate), "{rate}");
    }

    #[test]
    fn a_stop_ends_the_search() {
        assert_eq!(search(0.99, rates(1e4, 1e7), |_| Ok(None)), Ok(None));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    proptest! {
        #[test]
        fn every_limit_is_found(limit in 200.0..5e6_f64, start in 100.0..1e6_f64) {
            let mut probes = 0;
            let found = search(0.99, rates(start, 1e7), |rate| {
                probes += 1;
                Ok(Some(probe(rate, limit, 1e9)))
            }).unwrap().unwrap();
            prop_assert!(probes < 40);
            prop_assert!(found.rate >= limit / PRECISION * 0.99 && found.rate <= limit / 0.98, "{found:?}");
        }
    }
}
