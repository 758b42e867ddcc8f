//! The moments at which checks begin, and at which their answers are looked for.
//!
//! What a probe costs is mostly that a processor which has done other things meanwhile, or slept, does it: a socket, its query
//! and its answer take 180 µs by themselves, 40 µs for each of eight together and 33 µs of sixteen (one virtual machine, AMD
//! EPYC). So the tasks of all servers wake at common beats, and look for answers at common moments behind them.
//!
//! ```text
//!   beat      32 ms      96 ms …              1,024 ms   1,056 ms …                 2,048 ms
//!    │ ask a    │ read a                        │ ask a      │ read a                  │ ask a
//!    │ ask b    │          │ read b             │ ask c      │ read c                  │ ask b
//! ```

use std::time::Duration;
use tokio::time::Instant;

/// From one beat to the next: the shortest interval, or a little more, so that all that is checked each second is so at once. A
/// multiple of 64 ms: so long are the second level's slots in the wheel of tokio's timer, which wakes up once for what ends with a
/// slot, and twice for everything else that is further away.
const BEAT: Duration = Duration::from_millis(1_024);

/// The first look for an answer, after a beat, and what all looks are multiples of. Most answers have come by then.
const LOOK: Duration = Duration::from_millis(32);

/// The first look for an answer that somebody waits for.
const SOON: Duration = Duration::from_millis(1);

/// The beats of a process.
#[derive(Debug, Clone, Copy)]
pub struct Beats {
    start: Instant,
}

impl Default for Beats {
    /// From now on. Where it is made just before the runtime, tokio's slots end with the beats.
    fn default() -> Beats {
        Beats {
            start: Instant::now(),
        }
    }
}

impl Beats {
    /// The beat next to the end of `time` from `now` on, which is to come.
    pub(super) fn near(&self, now: Instant, time: Duration) -> Instant {
        self.multiple(BEAT, now, time)
    }

    /// When to look at something that may not wait for a beat, about so much later: at a time that looks share.
    pub(super) fn look(&self, now: Instant, time: Duration) -> Instant {
        self.multiple(LOOK, now, time)
    }

    /// The multiple of `step` next to the end of `time` from `now` on, which is to come.
    fn multiple(&self, step: Duration, now: Instant, time: Duration) -> Instant {
        let passed = now.saturating_duration_since(self.start);
        let next = passed.as_nanos() / step.as_nanos() + 1;
        let nearest = (passed + time + step / 2).as_nanos() / step.as_nanos();
        let count = u32::try_from(nearest.max(next)).unwrap_or(u32::MAX);
        self.start + step.saturating_mul(count)
    }

    /// The first look for an answer after 32 ms, the next one after twice as long, and so on.
    pub(super) fn pace(self) -> Pace {
        Pace {
            beats: Some(self),
            pause: LOOK,
        }
    }
}

/// When to look for an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    beats: Option<Beats>,
    pause: Duration,
}

impl Pace {
    /// Somebody waits for it: after 1 ms, 2 ms more, 4 ms more, and every 32 ms at last.
    pub(super) fn soon() -> Pace {
        Pace {
            beats: None,
            pause: SOON,
        }
    }

    /// The next time, it being `now`.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let pause = self.pause;
        match self.beats {
            Some(beats) => {
                self.pause = (pause * 2).min(BEAT);
                beats.multiple(LOOK, now, pause)
            }
            None => {
                self.pause = (pause * 2).min(LOOK);
                now + pause
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn what_is_due_at_about_the_same_time_is_done_in_one() {
        let beats = Beats::default();
        let near = |now, time| {
            let beat = beats.near(beats.start + milliseconds(now), milliseconds(time));
            (beat - beats.start).as_millis()
        };
        // An interval of a second, give or take a twentieth.
        assert_eq!(
            [950, 1_000, 1_050].map(|time| near(1_024, time)),
            [2_048; 3]
        );
        assert_eq!(
            [near(0, 0), near(1_023, 0), near(1_024, 0)],
            [1_024, 1_024, 2_048]
        );
        assert_eq!([near(3, 900), near(300, 900)], [1_024, 1_024]);
        let look = beats.look(beats.start + milliseconds(3), milliseconds(500));
        assert_eq!((look - beats.start).as_millis(), 512);
    }

    #[test]
    fn answers_are_looked_for_ever_more_seldom() {
        let beats = Beats::default();
        let looks = |mut pace: Pace, count| {
            let mut now = beats.start;
            let mut seen = Vec::new();
            for _ in 0..count {
                let next = pace.next(now);
                seen.push((next - now).as_millis());
                now = next;
            }
            seen
        };
        assert_eq!(
            looks(beats.pace(), 7),
            [32, 64, 128, 256, 512, 1_024, 1_024]
        );
        assert_eq!(looks(Pace::soon(), 7), [1, 2, 4, 8, 16, 32, 32]);
        // Who asked a moment later looks at the same moment.
        let late = beats.start + milliseconds(512) + Duration::from_micros(900);
        let look = beats.pace().next(late);
        assert_eq!((look - beats.start).as_millis(), 544);
    }
}
