//! When a secondary asks its primaries again, and when its zone is no longer to be believed (RFC 1034 §4.3.5). No clock
//! here: every time is passed in, in seconds since 1970, because it outlives the process.

use super::settings::TimeBounds;
use std::hash::{DefaultHasher, Hash, Hasher};
use wire::name::Name;
use zone::zone::SoaTimes;

/// Seconds between the first tries for a zone that was never there; they double.
const FIRST_RETRY: u64 = 1;

/// How often the pause behind a failure may have doubled.
const DOUBLINGS: u32 = 12;

/// The longest pause for a zone that was never there: its SOA record, which would tell, is not known.
const BOOTSTRAP_RETRY_MAX: u64 = 3_600;

/// A purge counts as so many failures: two seconds.
const PURGED: u32 = 2;

/// By how much of a pause a zone may be asked for before its end: a tenth, of which each takes so many parts.
const EARLIER: u64 = 10;
const PARTS: u64 = 1_024;

/// The timers of one secondary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timers {
    /// When a primary last confirmed the zone.
    pub(super) refreshed: u64,
    /// When the zone expires by what that primary said, which the SOA record would allow to go on longer.
    pub(super) ends: Option<u64>,
    /// When it was last tried in vain, and how often since it worked.
    tried: u64,
    failures: u32,
    /// A primary confirmed the zone at that try: what came in vain was a newer version of another one's.
    is_confirmed: bool,
}

/// What a primary says that has the zone as it is here, or has sent a newer version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heard {
    /// It has sent one.
    pub(super) came: bool,
    /// For how many seconds the zone may be gone on with: the EXPIRE option of its answer, if there is one.
    pub(super) expires_in: Option<u32>,
}

impl Timers {
    /// Of a zone that a primary confirmed at `refreshed`.
    pub(super) fn new(refreshed: u64) -> Timers {
        Timers {
            refreshed,
            ends: None,
            tried: 0,
            failures: 0,
            is_confirmed: false,
        }
    }

    /// The same, where that primary has said when the zone expires.
    pub(super) fn kept(refreshed: u64, ends: Option<u64>) -> Timers {
        Timers {
            ends,
            ..Timers::new(refreshed)
        }
    }

    /// Of a zone that was forgotten `now`: it is asked for after a moment, in which whoever had it forgotten can see so.
    pub(super) fn purged(now: u64) -> Timers {
        Timers {
            tried: now,
            failures: PURGED,
            ..Timers::new(0)
        }
    }

    /// The same by a clock that says `now` and has gone back since, or was wrong when they were written: what is to come counts
    /// as now. Else the zone would be asked for, and expire, when that clock is again where it was.
    pub(super) fn by_clock(self, now: u64) -> Timers {
        Timers {
            refreshed: self.refreshed.min(now),
            tried: self.tried.min(now),
            ..self
        }
    }

    /// A primary has the zone as it is here, or has sent a newer one: it is good for longer, whatever else is to be tried. `soa`:
    /// that of the zone that is held.
    ///
    /// RFC 7314 §4: behind a transfer the EXPIRE option counts in place of the SOA record's field; where the zone is confirmed,
    /// the later one of what the option says and of what is left; and never more than the SOA record says.
    pub(super) fn confirmed(
        &mut self,
        now: u64,
        heard: Heard,
        soa: Option<SoaTimes>,
        bounds: &TimeBounds,
    ) {
        let left = soa.map(|soa| self.expires(soa, bounds));
        let said = heard
            .expires_in
            .map(|seconds| now + within(seconds, bounds.expire));
        let ends = match heard.came {
            true => said,
            false => said.map(|said| said.max(left.unwrap_or(0))),
        };
        (self.refreshed, self.ends) = (now, ends);
    }

    /// The zone is confirmed, and nothing newer known of.
    pub(super) fn succeeded(&mut self) {
        *self = Timers::kept(self.refreshed, self.ends);
    }

    /// No primary answered, or none that helps. `is_confirmed`: one has confirmed the zone, and another one offered a newer
    /// version, which did not come.
    pub(super) fn failed(&mut self, now: u64, is_confirmed: bool) {
        (self.tried, self.is_confirmed) = (now, is_confirmed);
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// When to ask next for the zone `apex`: when [`Timers::due`] says so, or by up to a tenth of the pause earlier. Zones that
    /// came together would else be asked for in the same second, for ever: each has a part of that tenth of its own, which is
    /// another one each time. The least pause that is configured is kept.
    pub(super) fn turn(&self, apex: Name<'_>, soa: Option<SoaTimes>, bounds: &TimeBounds) -> u64 {
        let due = self.due(soa, bounds);
        if soa.is_none() {
            return due;
        }
        let (since, least) = match self.failures {
            0 => (self.refreshed, bounds.refresh.0),
            _ => (self.tried, bounds.retry.0),
        };
        let pause = due.saturating_sub(since);
        let early = pause / EARLIER * part(apex, since) / PARTS;
        due.min(since + (pause - early).max(least.into()))
    }

    /// When to ask next at the latest. `soa`: that of the zone that is held.
    fn due(&self, soa: Option<SoaTimes>, bounds: &TimeBounds) -> u64 {
        let Some(soa) = soa else {
            return self.bootstrap();
        };
        let expires = self.expires(soa, bounds);
        let refresh = within(soa.refresh, bounds.refresh);
        let in_time = self.in_time(soa, bounds);
        if self.failures == 0 {
            return in_time.min(self.refreshed + refresh);
        }
        // RFC 1035 §3.3.13, RETRY: "time interval that should elapse before a failed refresh should be retried". Doubled
        // while it goes on, up to what REFRESH says, so that a primary that is down is not besieged by all.
        let retry = within(soa.retry, bounds.retry);
        let most = retry.max(refresh);
        let due = self.tried + doubled(retry, self.failures - 1).min(most);
        if self.is_confirmed {
            return due.min(in_time.max(self.tried + within(0, bounds.retry)));
        }
        // One that has expired is not left alone for longer than one that never was there.
        due.min(expires.max(self.tried) + retry.max(BOOTSTRAP_RETRY_MAX))
    }

    /// When the zone is to be confirmed again at the latest: where a primary says so (RFC 7314), it may expire before REFRESH.
    pub(super) fn in_time(&self, soa: SoaTimes, bounds: &TimeBounds) -> u64 {
        let life = self.expires(soa, bounds).saturating_sub(self.refreshed);
        self.refreshed + (life - life / 4).max(bounds.refresh.0.into()).max(1)
    }

    fn bootstrap(&self) -> u64 {
        match self.failures.checked_sub(1) {
            None => 0,
            Some(doublings) => {
                self.tried + doubled(FIRST_RETRY, doublings).min(BOOTSTRAP_RETRY_MAX)
            }
        }
    }

    /// From when on the zone is not to be served. RFC 1035 §3.3.13, EXPIRE: "the upper limit on the time interval that can
    /// elapse before the zone is no longer authoritative".
    pub(super) fn expires(&self, soa: SoaTimes, bounds: &TimeBounds) -> u64 {
        let most = self.refreshed + within(soa.expire, bounds.expire);
        self.ends.map_or(most, |ends| ends.min(most))
    }
}

/// What two primaries say that both confirm the zone: whoever says nothing of its end leaves that to the SOA record.
pub(super) fn longer(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    Some(one?.max(other?))
}

fn within(seconds: u32, (least, most): (u32, u32)) -> u64 {
    // A pause of nothing would be a question without end.
    u64::from(seconds.max(least).min(most).max(1))
}

/// How many of [`PARTS`] the zone has that waits since then: the same whenever it is asked for.
fn part(apex: Name<'_>, since: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (apex, since).hash(&mut hasher);
    hasher.finish() % PARTS
}

fn doubled(seconds: u64, times: u32) -> u64 {
    seconds << times.min(DOUBLINGS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use wire::name::NameBuf;

    const SOA: SoaTimes = SoaTimes {
        serial: 1,
        refresh: 3_600,
        retry: 600,
        expire: 86_400,
        minimum: 60,
    };

    #[test]
    fn a_zone_is_refreshed_retried_with_growing_pauses_and_expires() {
        let bounds = TimeBounds::default();
        let mut timers = Timers::new(1_000);
        assert_eq!(timers.due(Some(SOA), &bounds), 4_600);
        let mut now = 4_600;
        let mut pauses = Vec::new();
        for _ in 0..5 {
            timers.failed(now, false);
            let due = timers.due(Some(SOA), &bounds);
            pauses.push(due - now);
            now = due;
        }
        assert_eq!(pauses, [600, 1_200, 2_400, 3_600, 3_600]);
        assert_eq!(timers.expires(SOA, &bounds), 87_400);
        timers.confirmed(now, heard(false, None), Some(SOA), &bounds);
        timers.succeeded();
        assert_eq!(timers.due(Some(SOA), &bounds), now + 3_600);
    }

    fn heard(came: bool, expires_in: Option<u32>) -> Heard {
        Heard { came, expires_in }
    }

    /// RFC 1034 §4.3.5: the zone expires where no check of its serial is possible; RETRY is the pause behind one that was of no
    /// use.
    #[test]
    fn a_zone_that_is_confirmed_lives_on_while_a_newer_one_is_asked_for_as_behind_a_failure() {
        let bounds = TimeBounds::default();
        let mut timers = Timers::new(1_000);
        let mut now = 4_600;
        let mut pauses = Vec::new();
        for _ in 0..30 {
            timers.confirmed(now, heard(false, None), Some(SOA), &bounds);
            // What did not come took its time.
            timers.failed(now + 40, true);
            assert_eq!(timers.expires(SOA, &bounds), now + 86_400);
            let due = timers.due(Some(SOA), &bounds);
            pauses.push(due - now - 40);
            now = due;
        }
        assert!(now > 87_400, "longer than EXPIRE");
        assert_eq!(pauses[..5], [600, 1_200, 2_400, 3_600, 3_600]);
        timers.failed(now, false);
        assert_eq!(timers.expires(SOA, &bounds), now - 3_640 + 86_400);
        // It is confirmed in time, where a primary has said that it is good for less than the pause.
        timers.confirmed(now, heard(true, Some(2_000)), Some(SOA), &bounds);
        timers.failed(now + 40, true);
        assert_eq!(timers.due(Some(SOA), &bounds), now + 1_500);
        timers.confirmed(now, heard(true, Some(100)), Some(SOA), &bounds);
        assert_eq!(timers.due(Some(SOA), &bounds), now + 75);
        timers.failed(now + 90, true);
        assert_eq!(timers.due(Some(SOA), &bounds), now + 91, "at once");
        timers.succeeded();
        assert_eq!(timers.due(Some(SOA), &bounds), now + 75);
    }

    /// RFC 7314 §4.
    #[test]
    fn what_a_primary_says_of_the_end_counts_and_never_for_more_than_the_soa() {
        let bounds = TimeBounds::default();
        let mut timers = Timers::new(0);
        let mut ends = |now: u64, heard: Heard| {
            timers.confirmed(now, heard, Some(SOA), &bounds);
            timers.expires(SOA, &bounds) - now
        };
        assert_eq!(ends(1_000, heard(true, Some(500))), 500);
        assert_eq!(ends(1_100, heard(false, Some(100))), 400, "what is left");
        assert_eq!(ends(1_200, heard(false, Some(700))), 700);
        assert_eq!(ends(1_300, heard(true, Some(100))), 100);
        assert_eq!(ends(1_300, heard(true, Some(u32::MAX))), 86_400);
        assert_eq!(ends(1_400, heard(false, Some(u32::MAX))), 86_400);
        assert_eq!(ends(1_500, heard(true, Some(100))), 100);
        assert_eq!(ends(1_500, heard(false, None)), 86_400, "the SOA record");
        assert_eq!(longer(Some(1), Some(2)), Some(2));
        assert_eq!(longer(Some(1), None), None);
    }

    #[test]
    fn a_zone_that_expires_before_its_refresh_is_asked_for_in_time() {
        let bounds = TimeBounds::default();
        let ends_in =
            |seconds: u64| Timers::kept(1_000, Some(1_000 + seconds)).due(Some(SOA), &bounds);
        assert_eq!(ends_in(400), 1_300);
        assert_eq!(ends_in(3_700), 3_775);
        assert_eq!(ends_in(5_000), 4_600, "REFRESH");
        assert_eq!(ends_in(0), 1_002, "the least that is configured");
    }

    #[test]
    fn a_zone_that_has_expired_is_asked_for_every_hour_at_least() {
        const DAY: u64 = 86_400;
        let (bounds, soa) = (
            TimeBounds::default(),
            SoaTimes {
                refresh: 86_400,
                expire: 7 * 86_400,
                ..SOA
            },
        );
        let mut timers = Timers::new(0);
        (0..12).for_each(|_| timers.failed(5 * DAY, false));
        assert_eq!(timers.due(Some(soa), &bounds), 6 * DAY);
        timers.failed(7 * DAY - 600, false);
        assert_eq!(timers.due(Some(soa), &bounds), 7 * DAY + 3_600);
        timers.failed(8 * DAY, false);
        assert_eq!(timers.due(Some(soa), &bounds), 8 * DAY + 3_600);
    }

    /// The seconds at which a thousand zones with these timers are asked for.
    fn turns(timers: &Timers, soa: Option<SoaTimes>, bounds: &TimeBounds) -> BTreeSet<u64> {
        let turn = |number: u32| {
            let apex: NameBuf = format!("z{number}.example.").parse().unwrap();
            let turn = timers.turn(apex.as_name(), soa, bounds);
            assert_eq!(turn, timers.turn(apex.as_name(), soa, bounds));
            turn
        };
        (0..1_000).map(turn).collect()
    }

    #[test]
    fn zones_that_came_together_are_asked_for_one_after_the_other() {
        let bounds = TimeBounds::default();
        let mut timers = Timers::new(1_000);
        let spread = turns(&timers, Some(SOA), &bounds);
        // Of 360 seconds, by chance.
        assert!(spread.len() > 200, "{}", spread.len());
        assert!(spread.first() >= Some(&4_240) && spread.last() <= Some(&4_600));
        let next = turns(&Timers::new(1_001), Some(SOA), &bounds);
        let moved: BTreeSet<u64> = spread.iter().map(|second| second + 1).collect();
        assert_ne!(next, moved, "another part each time");
        timers.failed(10_000, false);
        let spread = turns(&timers, Some(SOA), &bounds);
        assert!(spread.len() > 30, "{}", spread.len());
        assert!(spread.first() >= Some(&10_540) && spread.last() <= Some(&10_600));
        // What was never there is waited for.
        assert_eq!(turns(&timers, None, &bounds), BTreeSet::from([10_001]));
    }

    #[test]
    fn no_zone_is_asked_for_before_the_least_pause_or_after_its_expiry() {
        let bounds = TimeBounds {
            refresh: (3_600, 86_400),
            retry: (590, 86_400),
            ..TimeBounds::default()
        };
        let mut timers = Timers::new(1_000);
        assert_eq!(turns(&timers, Some(SOA), &bounds), BTreeSet::from([4_600]));
        timers.failed(5_000, false);
        let spread = turns(&timers, Some(SOA), &bounds);
        assert!(spread.first() == Some(&5_590) && spread.last() <= Some(&5_600));
        let ends = Timers::kept(1_000, Some(1_400));
        let spread = turns(&ends, Some(SOA), &TimeBounds::default());
        assert!(spread.first() >= Some(&1_270) && spread.last() <= Some(&1_300));
        let short = SoaTimes { refresh: 2, ..SOA };
        let spread = turns(&Timers::new(1_000), Some(short), &TimeBounds::default());
        assert_eq!(spread, BTreeSet::from([1_002]));
    }

    #[test]
    fn what_is_to_come_when_a_clock_has_gone_back_was_now() {
        let bounds = TimeBounds::default();
        let timers = Timers::kept(u64::MAX, Some(u64::MAX)).by_clock(1_000);
        assert_eq!(timers.due(Some(SOA), &bounds), 4_600);
        assert_eq!(timers.expires(SOA, &bounds), 87_400);
        let mut timers = Timers::new(1_000);
        timers.failed(9_000, false);
        assert_eq!(timers.by_clock(2_000).due(Some(SOA), &bounds), 2_600);
        assert_eq!(timers.by_clock(9_001), timers);
    }

    #[test]
    fn the_times_of_the_soa_are_held_within_bounds() {
        let bounds = TimeBounds {
            refresh: (10, 60),
            retry: (700, 800),
            expire: (0, 100),
        };
        let mut timers = Timers::new(1_000);
        assert_eq!(timers.due(Some(SOA), &bounds), 1_060);
        timers.failed(2_000, false);
        assert_eq!(timers.due(Some(SOA), &bounds), 2_700);
        assert_eq!(timers.expires(SOA, &bounds), 1_100);
    }

    #[test]
    fn a_zone_that_was_never_there_is_asked_for_at_once_then_ever_more_rarely() {
        let bounds = TimeBounds::default();
        let mut timers = Timers::new(0);
        assert_eq!(timers.due(None, &bounds), 0);
        let pauses: Vec<u64> = (0..14)
            .map(|_| {
                timers.failed(5_000, false);
                timers.due(None, &bounds) - 5_000
            })
            .collect();
        assert_eq!(pauses[..4], [1, 2, 4, 8]);
        assert_eq!(pauses[12..], [3_600, 3_600]);
        assert_eq!(Timers::purged(5_000).due(None, &bounds), 5_002);
    }
}
