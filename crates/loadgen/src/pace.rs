//! When queries are meant to be sent: an open loop, which does not wait for answers.
//!
//! Queries go in batches. Batch k of b queries at rate r is meant to be sent k · b / r seconds after the start, all of its
//! queries at once. A sender that falls behind sends what it owes as fast as it can, so that a stall shows in the
//! latencies; what it owes for longer than its patience it gives up and counts, so that a rate beyond its reach does
//! not turn into latencies without end.

use crate::failure::{During, Outcome};
use crate::shape::Shape;
use std::time::Duration;

/// Sleeps end when they should, not up to 50 µs later as the kernel's default has it. Inherited by threads started after.
///
/// # Errors
/// The kernel refuses.
pub fn sleep_precisely() -> Outcome<()> {
    nix::sys::prctl::set_timerslack(1).during("setting the precision of sleeps")
}

/// The schedule of one sending thread.
#[derive(Clone, Debug)]
pub struct Pace {
    batch: u32,
    shape: Shape,
    /// Seconds from one batch to the next at a constant rate.
    interval: f64,
    /// Seconds of the whole schedule.
    duration: f64,
    total: u64,
    /// How far the sender may be behind, in nanoseconds.
    patience: u64,
    /// By how much the whole schedule is later, as a part of the interval.
    offset: f64,
    /// Queries that are sent or given up.
    gone: u64,
    /// Those given up that nobody was told of yet: when they were, nothing else was due.
    skipped: u64,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send so many queries now, which were meant for this time, in nanoseconds since the start. Those given up before
    /// them are `skipped`.
    Batch {
        queries: u32,
        intended: u64,
        skipped: u64,
    },
    /// Nothing until then, in nanoseconds since the start.
    At(u64),
    /// Everything is gone; the last ones that were given up are `skipped`.
    Finished { skipped: u64 },
}

impl Pace {
    /// `rate` queries a second for `duration`, `batch` at a time. A rate of 0 sends nothing. `patience`: how far the sender
    /// may be behind.
    pub fn new(rate: f64, duration: Duration, batch: u32, patience: Duration) -> Pace {
        Pace {
            batch: batch.max(1),
            shape: Shape::Constant,
            interval: f64::from(batch.max(1)) / rate,
            duration: duration.as_secs_f64(),
            total: (rate * duration.as_secs_f64()).round() as u64,
            patience: patience.as_nanos() as u64,
            offset: 0.0,
            gone: 0,
            skipped: 0,
        }
    }

    /// The same with a rate that changes.
    #[must_use]
    pub fn shaped(mut self, shape: Shape) -> Pace {
        let rate = f64::from(self.batch) / self.interval;
        self.total = (rate * shape.sent_at(self.duration, self.duration)).round() as u64;
        self.shape = shape;
        self
    }

    /// What the thread of this number, of so many, has of the schedule: together they send every query once. They take turns,
    /// the first one begins: of fewer queries than threads the last ones have none.
    #[must_use]
    pub fn of_thread(mut self, thread: usize, threads: usize) -> Pace {
        let total = self.total.saturating_sub(thread as u64);
        self.total = total.div_ceil(threads as u64);
        self.interval *= threads as f64;
        self
    }

    /// The same, later by this part of the time between two batches, 0 to 1: several senders need not all begin at once.
    #[must_use]
    pub fn later(mut self, part: f64) -> Pace {
        self.offset = part;
        self
    }

    /// Queries of the whole schedule.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// When everything should be sent, in nanoseconds since the start.
    pub fn end(&self) -> u64 {
        self.intended(self.total)
    }

    /// Queries that are due by `now`, in nanoseconds since the start, whether they are sent or not.
    pub fn due_by(&self, now: u64) -> u64 {
        let now = now as f64 / 1e9;
        if now >= self.duration {
            return self.total;
        }
        let sent = self.shape.sent_at(now, self.duration);
        let batches = (sent / self.interval - self.offset).floor() + 1.0;
        // Below 0 it is 0.
        (batches as u64)
            .saturating_mul(u64::from(self.batch))
            .min(self.total)
    }

    /// What is due at `now`, in nanoseconds since the start; a batch counts as sent from then on.
    #[inline]
    pub fn due(&mut self, now: u64) -> Due {
        self.skipped += self.skip(now);
        if self.gone >= self.total {
            return Due::Finished {
                skipped: std::mem::take(&mut self.skipped),
            };
        }
        let intended = self.intended(self.gone);
        if intended > now {
            return Due::At(intended);
        }
        // To the end of this batch: part of it may have been sent before.
        let batch = u64::from(self.batch);
        let queries = (batch - self.gone % batch).min(self.total - self.gone) as u32;
        self.gone += u64::from(queries);
        Due::Batch {
            queries,
            intended,
            skipped: std::mem::take(&mut self.skipped),
        }
    }

    /// Takes back queries of the last batch that could not be sent: they are due again.
    #[inline]
    pub fn put_back(&mut self, queries: u32) {
        self.gone -= u64::from(queries);
    }

    /// Gives up what is owed for too long; returns how many queries.
    #[inline]
    fn skip(&mut self, now: u64) -> u64 {
        let limit = now.saturating_sub(self.patience);
        if self.gone >= self.total || self.intended(self.gone) >= limit {
            return 0;
        }
        let sent = self.shape.sent_at(limit as f64 / 1e9, self.duration);
        let batches = (sent / self.interval - self.offset).ceil() as u64;
        let kept = (batches * u64::from(self.batch)).clamp(self.gone, self.total);
        std::mem::replace(&mut self.gone, kept).abs_diff(kept)
    }

    /// When the query of this number is meant to be sent: with its batch.
    #[inline]
    fn intended(&self, number: u64) -> u64 {
        let sent = ((number / u64::from(self.batch)) as f64 + self.offset) * self.interval;
        (self.shape.time_of(sent, self.duration) * 1e9) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const PATIENCE: Duration = Duration::from_millis(100);

    #[test]
    fn batches_leave_at_their_times() {
        let mut pace = Pace::new(1000.0, Duration::from_millis(25), 10, PATIENCE);
        assert_eq!((pace.total(), pace.end()), (25, 20_000_000));
        let batch = |queries, intended| Due::Batch {
            queries,
            intended,
            skipped: 0,
        };
        assert_eq!(pace.due(0), batch(10, 0));
        assert_eq!(pace.due(0), Due::At(10_000_000));
        assert_eq!(pace.due(25_000_000), batch(10, 10_000_000));
        assert_eq!(pace.due(25_000_000), batch(5, 20_000_000));
        assert_eq!(pace.due(25_000_000), Due::Finished { skipped: 0 });
    }

    #[test]
    fn what_is_owed_for_too_long_is_given_up() {
        let mut pace = Pace::new(1000.0, Duration::from_secs(1), 1, PATIENCE);
        let due = pace.due(SECOND / 2);
        assert_eq!(
            due,
            Due::Batch {
                queries: 1,
                intended: 400_000_000,
                skipped: 400
            }
        );
        assert_eq!(pace.due(10 * SECOND), Due::Finished { skipped: 599 });
    }

    #[test]
    fn what_is_given_up_before_anything_else_is_due_is_told_with_the_next_batch() {
        let mut pace = Pace::new(20.0, Duration::from_secs(1), 10, PATIENCE);
        assert_eq!(pace.due(SECOND / 4), Due::At(SECOND / 2));
        let due = Due::Batch {
            queries: 10,
            intended: SECOND / 2,
            skipped: 10,
        };
        assert_eq!(pace.due(SECOND / 2), due);
        assert_eq!(pace.due(SECOND), Due::Finished { skipped: 0 });
    }

    #[test]
    fn what_could_not_be_sent_is_due_again() {
        let mut pace = Pace::new(1000.0, Duration::from_secs(1), 8, PATIENCE);
        pace.due(0);
        pace.put_back(3);
        let due = Due::Batch {
            queries: 3,
            intended: 0,
            skipped: 0,
        };
        assert_eq!(pace.due(0), due);
        assert_eq!(pace.due(0), Due::At(8_000_000));
    }

    #[test]
    fn a_rate_of_nothing_is_finished_at_once() {
        let mut pace = Pace::new(0.0, Duration::from_secs(1), 8, PATIENCE);
        assert_eq!(pace.due(0), Due::Finished { skipped: 0 });
    }

    #[test]
    fn what_is_due_by_a_time_does_not_depend_on_what_was_sent() {
        let second = Duration::from_secs(1);
        let pace = Pace::new(1000.0, Duration::from_millis(25), 10, PATIENCE);
        let due = [0, 9, 10, 19, 20, 24, 25, 900].map(|time| pace.due_by(time * SECOND / 1000));
        assert_eq!(due, [10, 10, 20, 20, 25, 25, 25, 25]);
        assert_eq!(Pace::new(0.0, second, 1, PATIENCE).due_by(SECOND / 2), 0);
        // From nothing to twice the rate: after half of the time a quarter.
        let ramp = Pace::new(1000.0, second, 1, PATIENCE).shaped(Shape::Ramp { from: 0.0 });
        assert_eq!(ramp.due_by(SECOND / 2), 251);
        assert_eq!(ramp.due_by(2 * SECOND), 1000);
        let later = Pace::new(4.0, second, 1, PATIENCE).later(0.5);
        let due = [100, 130, 400].map(|time| later.due_by(time * SECOND / 1000));
        assert_eq!(due, [0, 1, 2]);
    }

    #[test]
    fn a_shape_moves_batches_and_keeps_their_number() {
        let second = Duration::from_secs(1);
        let shape = Shape::Burst {
            period: 0.5,
            part: 0.5,
        };
        let mut pace = Pace::new(100.0, second, 25, PATIENCE).shaped(shape);
        assert_eq!(pace.total(), 100);
        let times = [0, 125_000_000, 500_000_000, 625_000_000];
        for intended in times {
            assert!(
                matches!(pace.due(intended), Due::Batch { intended: at, skipped: 0, .. } if at == intended)
            );
        }
        assert_eq!(pace.due(SECOND), Due::Finished { skipped: 0 });
    }

    #[test]
    fn senders_take_turns() {
        let pace = Pace::new(4.0, Duration::from_secs(1), 1, PATIENCE);
        let mut later = pace.later(0.5);
        assert_eq!((later.total(), later.due(0)), (4, Due::At(125_000_000)));
        let due = Due::Batch {
            queries: 1,
            intended: 625_000_000,
            skipped: 2,
        };
        assert_eq!(later.due(650_000_000), due);
        assert_eq!(later.due(650_000_000), Due::At(875_000_000));
    }

    #[test]
    fn threads_share_even_a_schedule_of_fewer_queries_than_threads() {
        for queries in [1.0, 50.0, 1000.0] {
            let whole = Pace::new(queries, Duration::from_secs(1), 10, PATIENCE);
            let parts: Vec<Pace> = (0..64)
                .map(|thread| whole.clone().of_thread(thread, 64))
                .collect();
            let total: u64 = parts.iter().map(Pace::total).sum();
            assert_eq!(total, whole.total());
            assert!(parts.iter().all(|part| part.end() <= SECOND));
        }
        // In turns: the first one is due at once, and no part begins behind the end.
        let whole = Pace::new(3.0, Duration::from_secs(1), 1, PATIENCE);
        let first = |thread: usize| {
            let part = whole.clone().of_thread(thread, 4);
            part.later(thread as f64 / 4.0).due(0)
        };
        assert!(matches!(first(0), Due::Batch { queries: 1, .. }));
        assert_eq!(first(2), Due::At(2 * SECOND / 3));
        assert_eq!(first(3), Due::Finished { skipped: 0 });
        // Each at its part of the rate.
        let mut half = Pace::new(1000.0, Duration::from_secs(1), 10, PATIENCE).of_thread(1, 2);
        assert_eq!(half.total(), 500);
        half.due(0);
        assert_eq!(half.due(0), Due::At(20_000_000));
    }

    #[test]
    fn threads_share_a_schedule_without_end() {
        let ten_years = Duration::from_secs(10 * 365 * 86_400);
        let whole = Pace::new(1e12, ten_years, 1, PATIENCE);
        assert_eq!(whole.total(), u64::MAX);
        let parts = (0..3).map(|thread| whole.clone().of_thread(thread, 3).total());
        assert_eq!(parts.sum::<u64>(), whole.total());
    }

    proptest! {
        #[test]
        fn every_query_is_sent_or_given_up_and_none_before_its_time(
            rate in 1.0..1e7_f64,
            milliseconds in 1_u64..300,
            batch in 1_u32..100,
            steps in prop::collection::vec(0_u64..400_000_000, 1..100),
        ) {
            let mut pace = Pace::new(rate, Duration::from_millis(milliseconds), batch, PATIENCE);
            let (mut sent, mut given_up, mut now) = (0, 0, 0);
            for step in steps.into_iter().chain([SECOND]) {
                now += step;
                for _ in 0..3 {
                    match pace.due(now) {
                        Due::Batch { queries, intended, skipped } => {
                            prop_assert!(intended <= now && now - intended <= PATIENCE.as_nanos() as u64);
                            sent += u64::from(queries);
                            given_up += skipped;
                        }
                        Due::At(then) => prop_assert!(then > now),
                        Due::Finished { skipped } => given_up += skipped,
                    }
                }
            }
            prop_assert_eq!(sent + given_up, pace.total());
        }
    }
}
