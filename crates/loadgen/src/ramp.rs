//! `--ramp`: what a server keeps up with. R99, the highest rate without any loss, and the peak.

use crate::failure::Outcome;
use crate::search::{Found, Probe, median, search};
use crate::watch::Watch;
use crate::xdp::{Generator, Measurement};
use std::time::Duration;

/// R99: this part must be answered right.
pub const R99: f64 = 0.99;
/// No loss at all.
pub const ALL: f64 = 1.0;

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
}

impl Ramp {
    /// The median over the repeats.
    pub fn r99_median(&self) -> f64 {
        median_of(&self.r99)
    }

    /// The median over the repeats.
    pub fn loss_free_median(&self) -> f64 {
        median_of(&self.loss_free)
    }

    /// Whether the generator, not the server, set the limit in most repeats.
    pub fn generator_was_the_limit(&self) -> bool {
        let limited = self
            .r99
            .iter()
            .filter(|found| found.generator_was_the_limit);
        limited.count() * 2 > self.r99.len()
    }

    fn see(&mut self, probe: Probe) {
        let better = |peak: &Probe| probe.answers_per_second() > peak.answers_per_second();
        if self.peak.as_ref().is_none_or(better) {
            self.peak = Some(probe);
        }
    }
}

fn median_of(found: &[Found]) -> f64 {
    median(&found.iter().map(|found| found.rate).collect::<Vec<_>>())
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
    let mut ramp = Ramp::default();
    let mut start = plan.start;
    let mut probe = |rate: f64, ramp: &mut Ramp| -> Outcome<Option<Probe>> {
        let measurement = generator.measure(rate, plan.duration, watch)?;
        if watch.is_stopped() {
            return Ok(None);
        }
        let probe = Probe {
            rate,
            offered: measurement.offered(),
            sent: measurement.tally.sent,
            right: measurement.tally.right,
            seconds: measurement.sending.as_secs_f64(),
        };
        show(&probe, &measurement);
        ramp.see(probe);
        Ok(Some(probe))
    };
    for _ in 0..plan.repeats {
        let Some(found) = search(R99, start, plan.highest, |rate| probe(rate, &mut ramp))? else {
            break;
        };
        ramp.r99.push(found);
        // The next search starts near by, but below: it must find the limit by itself.
        start = found.rate * 0.7;
        if !plan.loss_free {
            continue;
        }
        if found.rate == 0.0 {
            ramp.loss_free.push(found);
            continue;
        }
        // What loses more than one in a hundred loses one.
        let Some(found) = search(ALL, start, found.rate, |rate| probe(rate, &mut ramp))? else {
            break;
        };
        ramp.loss_free.push(found);
    }
    Ok(ramp)
}
