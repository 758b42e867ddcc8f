//! `--ramp`: what a server keeps up with. R99, the highest rate without any loss, and the peak.

use crate::failure::{Failure, Outcome};
use crate::search::{Found, Probe, Rates, least_rate, median, search};
use crate::watch::Watch;
use crate::xdp::{Generator, Measurement};
use std::time::Duration;

/// R99: this part must be answered right.
pub const R99: f64 = 0.99;
/// No loss at all.
pub const ALL: f64 = 1.0;

/// The highest rate that is tried where nothing else is said, in queries a second.
pub const HIGHEST: f64 = 4e6;

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct RampPlan {
    /// Where the first search starts, in queries a second.
    pub start: f64,
    /// The highest rate that is tried.
    pub highest: f64,
    /// How long each rate is held.
    pub duration: Duration,
    /// How often everything is searched; the median counts.
    pub repeats: u32,
    /// Search the highest rate without loss as well.
    pub loss_free: bool,
}

/// What was found so far.
#[derive(Clone, Debug, Default)]
pub struct Ramp {
    /// By repeat.
    pub r99: Vec<Found>,
    /// By repeat.
    pub loss_free: Vec<Found>,
    /// The probe in which most was answered right a second.
    pub peak: Option<Probe>,
    /// The lowest rate that is tried, in queries a second: one of 0 that was found is below it.
    pub least: f64,
    /// What ended it before its time.
    pub failure: Option<Failure>,
}

impl Ramp {
    /// The median over the repeats, in queries a second. `None`: no search has ended.
    pub fn r99_median(&self) -> Option<f64> {
        median_of(&self.r99)
    }

    /// The median over the repeats, in queries a second. `None`: no search has ended, or none was asked for.
    pub fn loss_free_median(&self) -> Option<f64> {
        median_of(&self.loss_free)
    }

    /// Whether the generator, not the server, set the limit in most repeats.
    pub fn generator_was_the_limit(&self) -> bool {
        are_mostly_limited(&self.r99)
    }

    /// The same in words, or that nothing was answered, and where it holds for the rate without loss alone.
    pub fn limit(&self) -> Option<&'static str> {
        const LIMIT: &str =
            "The generator itself or --highest was the limit: the server may do more.";
        const NOTHING: &str = "Nothing was answered right at any rate: is the server there, at this address and port?";
        const WITHOUT_LOSS: &str =
            "The generator itself was the limit of the rate without loss: it may be higher.";
        if self.generator_was_the_limit() {
            return Some(LIMIT);
        }
        if self.peak.is_some_and(|peak| peak.right == 0) {
            return Some(NOTHING);
        }
        are_mostly_limited(&self.loss_free).then_some(WITHOUT_LOSS)
    }

    /// Keeps the peak of the probes that it is shown.
    pub fn see(&mut self, probe: Probe) {
        let better = |peak: &Probe| probe.answers_per_second() > peak.answers_per_second();
        if self.peak.as_ref().is_none_or(better) {
            self.peak = Some(probe);
        }
    }
}

/// Whether the generator set the limit in most searches.
fn are_mostly_limited(found: &[Found]) -> bool {
    let limited = found.iter().filter(|found| found.generator_was_the_limit);
    limited.count() * 2 > found.len()
}

/// The median of what searches found; `None` of none: a rate of 0 is one that was measured.
fn median_of(found: &[Found]) -> Option<f64> {
    let rates: Vec<f64> = found.iter().map(|found| found.rate).collect();
    (!rates.is_empty()).then(|| median(&rates))
}

/// Searches as often as planned, or until the watch says to stop; `show` sees every probe.
///
/// # Errors
/// What measuring fails with.
pub fn run(
    generator: &mut Generator,
    plan: RampPlan,
    watch: &mut Watch,
    mut show: impl FnMut(&Probe, &Measurement),
) -> Outcome<Ramp> {
    let mut failure = None;
    let found = find(plan, |rate| {
        let measurement = generator.measure(rate, plan.duration, watch)?;
        failure.clone_from(&measurement.failure);
        if watch.is_stopped() || failure.is_some() {
            return Ok(None);
        }
        let probe = Probe {
            rate,
            offered: measurement.offered(),
            sent: measurement.tally.sent,
            right: measurement.tally.right,
            lost_here: measurement.losses.answers(),
            seconds: measurement.sending.as_secs_f64(),
        };
        show(&probe, &measurement);
        Ok(Some(probe))
    });
    Ok(Ramp { failure, ..found? })
}

/// The searches, whatever it is that probes a rate; `None` from it says to stop.
fn find(plan: RampPlan, mut probe: impl FnMut(f64) -> Outcome<Option<Probe>>) -> Outcome<Ramp> {
    let mut ramp = Ramp {
        least: least_rate(plan.duration.as_secs_f64()),
        ..Ramp::default()
    };
    let mut rates = Rates {
        least: ramp.least,
        start: plan.start,
        highest: plan.highest,
    };
    let mut seen = |rate: f64, ramp: &mut Ramp| -> Outcome<Option<Probe>> {
        let probe = probe(rate)?;
        if let Some(probe) = probe {
            ramp.see(probe);
        }
        Ok(probe)
    };
    for _ in 0..plan.repeats {
        let Some(found) = search(R99, rates, |rate| seen(rate, &mut ramp))? else {
            break;
        };
        ramp.r99.push(found);
        // The next search starts near by, but below: it must find the limit by itself.
        rates.start = found.rate * 0.7;
        if !plan.loss_free {
            continue;
        }
        if found.rate == 0.0 {
            ramp.loss_free.push(found);
            continue;
        }
        // What loses more than one in a hundred loses one.
        let most = found.rate;
        let below = Rates {
            highest: most,
            ..rates
        };
        let Some(mut found) = search(ALL, below, |rate| seen(rate, &mut ramp))? else {
            break;
        };
        // That there was no higher rate to try is R99's limit, whosever that was.
        found.generator_was_the_limit &= found.rate < most;
        ramp.loss_free.push(found);
    }
    Ok(ramp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::PRECISION;

    const PLAN: RampPlan = RampPlan {
        start: 1_000.0,
        highest: 1e6,
        duration: Duration::from_secs(1),
        repeats: 5,
        loss_free: true,
    };

    /// A second at a server that answers `limit` queries in it.
    fn probe(rate: f64, limit: f64) -> Probe {
        Probe {
            rate,
            offered: rate as u64,
            sent: rate as u64,
            right: rate.min(limit) as u64,
            lost_here: 0,
            seconds: 1.0,
        }
    }

    fn found(rate: f64, generator_was_the_limit: bool) -> Found {
        Found {
            rate,
            generator_was_the_limit,
        }
    }

    #[test]
    fn a_servers_rates_are_found_in_every_repeat() {
        const LIMIT: f64 = 20_000.0;
        let ramp = find(PLAN, |rate| Ok(Some(probe(rate, LIMIT)))).unwrap();
        assert_eq!((ramp.r99.len(), ramp.loss_free.len()), (5, 5));
        let r99 = ramp.r99_median().unwrap();
        let highest = LIMIT / R99 + 2.0;
        assert!(r99 <= highest && r99 >= highest / PRECISION - 3.0, "{r99}");
        // An offer is whole queries: 20,000.9 are 20,000.
        let loss_free = ramp.loss_free_median().unwrap();
        assert!(loss_free < LIMIT + 1.0, "{loss_free}");
        assert!(loss_free >= LIMIT / PRECISION, "{loss_free}");
        assert_eq!(ramp.peak.unwrap().answers_per_second(), LIMIT);
        assert!(!ramp.generator_was_the_limit() && ramp.limit().is_none());
    }

    #[test]
    fn a_generator_that_loses_a_query_on_its_side_is_the_limit_of_the_rate_without_loss() {
        let ramp = find(PLAN, |rate| {
            let mut probe = probe(rate, 20_000.0);
            if rate > 15_000.0 {
                probe.sent -= 1;
                probe.right = probe.right.min(probe.sent);
            }
            Ok(Some(probe))
        });
        let ramp = ramp.unwrap();
        assert!(!ramp.generator_was_the_limit(), "R99 is the server's");
        assert!(ramp.loss_free_median().unwrap() <= 15_000.0);
        assert!(ramp.limit().unwrap().contains("of the rate without loss"));
        // Nothing at all above 20,000: both rates are the same, and the server's.
        let ramp = find(PLAN, |rate| {
            let limit = if rate > 20_000.0 { 0.0 } else { rate };
            Ok(Some(probe(rate, limit)))
        });
        let ramp = ramp.unwrap();
        assert_eq!(ramp.r99_median(), ramp.loss_free_median());
        assert_eq!(ramp.limit(), None);
    }

    #[test]
    fn only_r99_is_searched_where_nothing_else_is_asked_for() {
        let plan = RampPlan {
            loss_free: false,
            ..PLAN
        };
        let ramp = find(plan, |rate| Ok(Some(probe(rate, 20_000.0)))).unwrap();
        assert_eq!((ramp.r99.len(), ramp.loss_free_median()), (5, None));
    }

    #[test]
    fn a_server_that_answers_nothing_was_measured() {
        let ramp = find(PLAN, |rate| Ok(Some(probe(rate, 0.0)))).unwrap();
        let medians = (ramp.r99_median(), ramp.loss_free_median());
        assert_eq!(medians, (Some(0.0), Some(0.0)));
        assert_eq!(ramp.least, 100.0);
        assert!(
            ramp.limit()
                .unwrap()
                .starts_with("Nothing was answered right")
        );
    }

    #[test]
    fn a_ramp_that_is_stopped_has_no_rate_but_its_peak_so_far() {
        let mut left = 2;
        let ramp = find(PLAN, |rate| {
            left -= 1;
            Ok((left >= 0).then(|| probe(rate, 20_000.0)))
        });
        let ramp = ramp.unwrap();
        assert_eq!((ramp.r99_median(), ramp.loss_free_median()), (None, None));
        assert_eq!(ramp.peak.unwrap().rate, 1_125.0);
        assert!(!ramp.generator_was_the_limit());
    }

    #[test]
    fn the_median_counts_and_the_limit_of_most_searches() {
        let mut ramp = Ramp {
            r99: vec![found(3e3, true), found(1e3, false), found(2e3, true)],
            loss_free: vec![found(900.0, false), found(800.0, false)],
            ..Ramp::default()
        };
        let medians = (ramp.r99_median(), ramp.loss_free_median());
        assert_eq!(medians, (Some(2e3), Some(850.0)));
        assert!(ramp.limit().is_some());
        ramp.r99[0].generator_was_the_limit = false;
        assert!(ramp.limit().is_none());
    }
}
