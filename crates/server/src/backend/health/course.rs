//! When a server is checked, and what that makes of it: checks in a row (`maxCheckFailures`, `rise`), and the lazy mode.
//!
//! ```text
//!  auto:  a check each checkInterval, always
//!
//!  lazy:          too many queries failed            maxCheckFailures checks failed
//!        healthy ──────────────────────▶ suspected ────────────────────────▶ failed
//!        no checks ◀──────────────────── a check each ──────────             a check each FailedInterval,
//!          ▲          rise successes     checkInterval                       or twice as long each time
//!          └──────────────────────────── rise successes ──────────────────────┘
//! ```

use crate::backend::lazy::{LazyOptions, Sample};
use crate::backend::server::{HealthOptions, Server};
use std::time::Duration;

/// How often a lazy server's queries are looked at: once a second, as dnsdist's thread of checks does.
const TICK: Duration = Duration::from_secs(1);

/// Checks of one kind in a row.
#[derive(Debug, Default)]
pub(super) struct Streak {
    failures: u32,
    successes: u32,
}

impl Streak {
    /// What a check's result makes of a server that is `up` or not; `None`: nothing new.
    pub(super) fn judge(
        &mut self,
        up: bool,
        success: bool,
        options: &HealthOptions,
    ) -> Option<bool> {
        if success {
            self.failures = 0;
            self.successes = self.successes.saturating_add(1);
            return (!up && self.successes >= options.rise).then_some(true);
        }
        self.successes = 0;
        self.failures = self.failures.saturating_add(1);
        (up && self.failures >= options.maximum_failures).then_some(false)
    }
}

/// One server's way through its checks.
#[derive(Debug, Default)]
pub(super) struct Course {
    streak: Streak,
    /// Failed checks since a lazy server is down.
    doublings: u32,
}

impl Course {
    /// How long to wait before [`Course::is_due`] when the last check took the time `spent`: an interval is from one query to
    /// the next. `share` thousandths of it, so that not all are in step.
    pub(super) fn pause(server: &Server, share: u32, spent: Duration) -> Duration {
        let interval = server.options.health.interval;
        let pause = match &server.sample {
            Some(_) => interval.min(TICK),
            None => interval * share / 1_000,
        };
        pause.saturating_sub(spent)
    }

    /// Whether to check now, `since` the last time.
    pub(super) fn is_due(&self, server: &Server, since: Duration) -> bool {
        let Some(sample) = &server.sample else {
            return true;
        };
        let health = &server.options.health;
        match (server.state.is_checked_up(), sample.is_suspected()) {
            (true, suspected) => suspected && since >= health.interval,
            (false, _) => since >= back_off(&health.lazy, self.doublings),
        }
    }

    /// What a check's result makes of the server; `None`: nothing new.
    pub(super) fn judge(&mut self, server: &Server, success: bool) -> Option<bool> {
        let up = server.state.is_checked_up();
        let news = self.streak.judge(up, success, &server.options.health);
        if let Some(sample) = &server.sample {
            self.judge_lazy(server, sample, (up, success), news);
        }
        news
    }

    fn judge_lazy(
        &mut self,
        server: &Server,
        sample: &Sample,
        (up, success): (bool, bool),
        news: Option<bool>,
    ) {
        self.doublings = match (up, success) {
            (false, false) => self.doublings.saturating_add(1),
            _ => 0,
        };
        let is_well = success && (up || news == Some(true));
        if is_well && self.streak.successes >= server.options.health.rise {
            sample.clear();
            self.streak = Streak::default();
        }
    }
}

/// How long to wait after so many failed checks of a server that is down.
fn back_off(options: &LazyOptions, doublings: u32) -> Duration {
    let Some(maximum) = options.maximum_back_off else {
        return options.failed_interval;
    };
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    options.failed_interval.saturating_mul(factor).min(maximum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fixture;

    fn lazy_server(rise: u32, failures: u32) -> Server {
        let mut options = fixture::options("192.0.2.7:53");
        options.health.is_lazy = true;
        (options.health.rise, options.health.maximum_failures) = (rise, failures);
        options.health.lazy.failed_interval = Duration::from_secs(10);
        options.health.lazy.maximum_back_off = Some(Duration::from_secs(35));
        fixture::server(0, options)
    }

    #[test]
    fn a_lazy_server_is_up_at_first_and_not_checked_until_queries_fail() {
        let server = lazy_server(2, 2);
        let mut course = Course::default();
        let long = Duration::from_secs(1_000);
        assert!(server.state.is_checked_up() && !course.is_due(&server, long));
        server.note_failure();
        assert!(course.is_due(&server, Duration::from_secs(1)));
        assert!(!course.is_due(&server, Duration::from_millis(900)));
        // One check fails, then as many as `rise` succeed: a false alarm.
        for success in [false, true] {
            assert_eq!(course.judge(&server, success), None);
            assert!(course.is_due(&server, Duration::from_secs(1)));
        }
        assert_eq!(course.judge(&server, true), None);
        assert!(!course.is_due(&server, long));
    }

    /// The manual: checkInterval is "the interval between two health-check queries".
    #[test]
    fn a_check_that_nobody_answers_does_not_put_off_the_next_one() {
        let mut options = fixture::options("192.0.2.7:53");
        options.health.interval = Duration::from_secs(2);
        let server = fixture::server(0, options);
        let pause = |spent| Course::pause(&server, 1_000, Duration::from_millis(spent));
        let pauses = [0, 500, 2_000, 5_000].map(|spent| pause(spent).as_millis());
        assert_eq!(pauses, [2_000, 1_500, 0, 0]);
    }

    #[test]
    fn a_lazy_server_that_is_down_is_asked_ever_more_seldom() {
        let server = lazy_server(1, 1);
        let mut course = Course::default();
        server.note_failure();
        assert_eq!(course.judge(&server, false), Some(false));
        server.state.set_checked(false);
        for seconds in [10, 20, 35, 35] {
            let due =
                |course: &Course, seconds| course.is_due(&server, Duration::from_secs(seconds));
            assert!(due(&course, seconds) && !due(&course, seconds - 1));
            assert_eq!(course.judge(&server, false), None);
        }
        assert_eq!(course.judge(&server, true), Some(true));
        server.state.set_checked(true);
        assert!(!course.is_due(&server, Duration::from_secs(1_000)));
    }

    #[test]
    fn without_back_off_the_interval_stays() {
        let options = LazyOptions::default();
        assert_eq!(back_off(&options, 40), Duration::from_secs(30));
    }

    #[test]
    fn failures_and_successes_count_in_a_row() {
        let mut options = fixture::options("192.0.2.7:53").health;
        (options.maximum_failures, options.rise) = (3, 2);
        let mut streak = Streak::default();
        let mut up = true;
        let mut seen = Vec::new();
        for success in [
            false, false, true, false, false, false, false, true, false, true, true,
        ] {
            if let Some(now) = streak.judge(up, success, &options) {
                up = now;
            }
            seen.push(up);
        }
        let expected = [
            true, true, true, true, true, false, false, false, false, false, true,
        ];
        assert_eq!(seen, expected);
    }
}
