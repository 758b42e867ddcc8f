//! Whether what is sent to a server over AF_XDP is answered, by whatever way: if not, while the kernel's probe is, its queries go by
//! kernel sockets for a while.
//!
//! Between us and a server can be what only AF_XDP meets: a filter on MAC addresses, a card that loses what it did not see
//! in its own stack, a next hop that went elsewhere. The kernel's probe says that the server itself is well.

use crate::clock::Now;
use crate::counters::{Lane, Sharded};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So many queries without any answer make suspicious: fewer could be lost by accident.
const UNANSWERED: u64 = 4;

/// So long ago they must have left at least: the default of setUDPTimeout. A resolver may take more than a second for a few names that
/// it does not know, and be well.
const PATIENCE: Duration = Duration::from_secs(2);

/// Of so many, and none answered, one would have been in less.
const MANY: u64 = 64;
const PATIENCE_WITH_MANY: Duration = Duration::from_millis(500);

/// How often a server is looked at to which queries are sent.
const BUSY: Duration = PATIENCE_WITH_MANY;

/// How often a server is looked at to which nothing was sent between two looks. A checkInterval of one second, which ends a
/// twentieth later at most (`health`), is shorter.
const QUIET: Duration = Duration::from_millis(1_100);

/// The first pause of AF_XDP; each one that follows without an answer in between is twice as long, up to the longest.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(320);

/// What went to one server over AF_XDP, and what came back.
#[derive(Debug, Default)]
pub struct XskTrust {
    sent: Sharded,
    received: Sharded,
    suspensions: AtomicU64,
    judge: Mutex<Judge>,
}

/// What is to be done about the server's path over AF_XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing.
    Keep,
    /// Queries are not answered: probe by the kernel now, and if that succeeds, [`XskTrust::suspend`].
    Suspect,
    /// The pause is over: try again.
    Resume,
}

impl XskTrust {
    /// A query left over AF_XDP. `lane` is that of the worker.
    pub fn count_sent(&self, lane: Lane) {
        self.sent.count(lane);
    }

    /// A query that left over AF_XDP was answered.
    pub fn count_received(&self, lane: Lane) {
        self.received.count(lane);
    }

    /// How often AF_XDP was given up for this server.
    pub fn suspensions(&self) -> u64 {
        self.suspensions.load(Relaxed)
    }

    /// To be asked about after each [`XskTrust::pause`].
    pub fn judge(&self, now: Now) -> Judgement {
        // What was received is read first: an answer that comes in between makes trust, not suspicion.
        let received = self.received.sum();
        self.lock().judge(self.sent.sum(), received, now)
    }

    /// How long to wait until the next judgement, `left` being the time until the server is checked anyway: then one wake-up
    /// does for both where no queries go to it.
    pub fn pause(&self, left: Duration) -> Duration {
        match self.lock().is_quiet() {
            true => left.min(QUIET),
            false => left.min(BUSY),
        }
    }

    /// The kernel's probe succeeded where AF_XDP got no answers. How long queries go by kernel sockets.
    pub fn suspend(&self, now: Now) -> Duration {
        self.suspensions.fetch_add(1, Relaxed);
        self.lock().suspend(now)
    }

    /// The way to the server is another one: neither what went unanswered on the last one nor its pause says anything about it.
    pub fn begin_anew(&self) {
        let received = self.received.sum();
        self.lock().begin_anew(self.sent.sum(), received);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was seen at the last look.
#[derive(Debug)]
struct Judge {
    /// Totals when the last answer was seen.
    sent: u64,
    received: u64,
    /// Later moments: since when enough are unanswered to judge by, and since when many are.
    enough: Option<Now>,
    many: Option<Now>,
    /// The total that was sent at the last look, and whether that was no more than at the one before.
    last: u64,
    is_still: bool,
    suspended_until: Option<Now>,
    /// The next pause.
    pause: Duration,
}

impl Default for Judge {
    fn default() -> Judge {
        Judge {
            sent: 0,
            received: 0,
            enough: None,
            many: None,
            last: 0,
            is_still: false,
            suspended_until: None,
            pause: PAUSE,
        }
    }
}

impl Judge {
    /// Nothing can come of a look soon: nothing is sent, no more is unanswered than may be lost by accident, and no pause ends.
    fn is_quiet(&self) -> bool {
        let unanswered = self.last.saturating_sub(self.sent);
        self.is_still && unanswered < UNANSWERED && self.suspended_until.is_none()
    }

    fn judge(&mut self, sent: u64, received: u64, now: Now) -> Judgement {
        self.is_still = sent == self.last;
        self.last = sent;
        if let Some(until) = self.suspended_until {
            if now < until {
                return Judgement::Keep;
            }
            self.suspended_until = None;
            self.restart(sent, received);
            return Judgement::Resume;
        }
        if received != self.received {
            self.pause = PAUSE;
            self.restart(sent, received);
            return Judgement::Keep;
        }
        let unanswered = sent - self.sent;
        let is_over = |since: &mut Option<Now>, least: u64, patience: Duration| {
            unanswered >= least && now.since(*since.get_or_insert(now)) >= patience
        };
        let few = is_over(&mut self.enough, UNANSWERED, PATIENCE);
        match few || is_over(&mut self.many, MANY, PATIENCE_WITH_MANY) {
            true => Judgement::Suspect,
            false => Judgement::Keep,
        }
    }

    fn restart(&mut self, sent: u64, received: u64) {
        (self.sent, self.received) = (sent, received);
        (self.enough, self.many) = (None, None);
    }

    /// The next pause stays as long as it is: ways that change all the time and never lead there are tried ever less often.
    fn begin_anew(&mut self, sent: u64, received: u64) {
        self.suspended_until = None;
        self.restart(sent, received);
    }

    fn suspend(&mut self, now: Now) -> Duration {
        let pause = self.pause;
        self.suspended_until = Some(Now(now.0 + pause.as_nanos() as u64));
        self.pause = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(number: u64) -> Now {
        Now(number * 1_000_000)
    }

    #[test]
    fn queries_that_are_answered_are_no_reason() {
        let mut judge = Judge::default();
        for turn in 0..20 {
            let judgement = judge.judge(turn * 1_000, turn, milliseconds(turn * 500));
            assert_eq!(judgement, Judgement::Keep);
        }
        for turn in 20..40 {
            let judgement = judge.judge(19_000, 19, milliseconds(turn * 500));
            assert_eq!(judgement, Judgement::Keep, "nothing sent, nothing missed");
        }
    }

    #[test]
    fn queries_that_left_just_now_may_still_be_answered() {
        let mut judge = Judge::default();
        assert_eq!(judge.judge(0, 0, milliseconds(0)), Judgement::Keep);
        assert_eq!(judge.judge(1_000, 0, milliseconds(500)), Judgement::Keep);
        assert_eq!(judge.judge(1_000, 1, milliseconds(1_000)), Judgement::Keep);
        assert_eq!(judge.judge(3, 0, milliseconds(1_500)), Judgement::Keep);
    }

    #[test]
    fn few_may_take_their_time_and_many_may_not() {
        let suspected_after = |sent: u64| {
            let mut judge = Judge::default();
            judge.judge(0, 0, milliseconds(0));
            let looks = (1..20).map(|look| milliseconds(look * 500));
            let mut looks = looks.filter(|now| judge.judge(sent, 0, *now) == Judgement::Suspect);
            looks.next().map(|now| now.since(milliseconds(500)))
        };
        assert_eq!(suspected_after(UNANSWERED - 1), None);
        assert_eq!(suspected_after(UNANSWERED), Some(PATIENCE));
        assert_eq!(suspected_after(MANY - 1), Some(PATIENCE));
        assert_eq!(suspected_after(MANY), Some(PATIENCE_WITH_MANY));
    }

    #[test]
    fn silence_makes_suspicious_and_pauses_grow_until_an_answer_comes() {
        let mut judge = Judge::default();
        let (mut now, mut sent) = (0, 0);
        for pause in [5, 10, 20, 40] {
            assert_eq!(judge.judge(sent, 0, milliseconds(now)), Judgement::Keep);
            sent += MANY;
            assert_eq!(
                judge.judge(sent, 0, milliseconds(now + 500)),
                Judgement::Keep
            );
            now += 1_000;
            assert_eq!(judge.judge(sent, 0, milliseconds(now)), Judgement::Suspect);
            assert_eq!(judge.suspend(milliseconds(now)), Duration::from_secs(pause));
            now += pause * 1_000;
            assert_eq!(judge.judge(sent, 0, milliseconds(now - 1)), Judgement::Keep);
            assert_eq!(judge.judge(sent, 0, milliseconds(now)), Judgement::Resume);
        }
        assert_eq!(
            judge.judge(sent + 9, 1, milliseconds(now + 500)),
            Judgement::Keep
        );
        assert_eq!(judge.suspend(milliseconds(now)), PAUSE);
    }

    /// Else queries on a second way that leads nowhere would be lost until the pause of the first one ends: up to 320 s.
    #[test]
    fn another_way_is_judged_without_waiting_for_the_pause_of_the_last_one() {
        let mut judge = Judge::default();
        judge.judge(0, 0, milliseconds(0));
        judge.judge(MANY, 0, milliseconds(500));
        let judgement = judge.judge(MANY, 0, milliseconds(1_000));
        assert_eq!(judgement, Judgement::Suspect);
        judge.suspend(milliseconds(1_000));
        judge.begin_anew(MANY, 0);
        let sent = 2 * MANY;
        assert_eq!(judge.judge(sent, 0, milliseconds(1_500)), Judgement::Keep);
        let judgement = judge.judge(sent, 0, milliseconds(2_000));
        assert_eq!(judgement, Judgement::Suspect);
        let pause = judge.suspend(milliseconds(2_000));
        assert_eq!(pause, 2 * PAUSE, "no answer came in between");
    }

    #[test]
    fn a_server_that_is_not_asked_is_looked_at_when_it_is_checked() {
        let trust = XskTrust::default();
        let (soon, late) = (Duration::from_millis(1_049), Duration::from_secs(60));
        let pauses = |trust: &XskTrust| (trust.pause(soon), trust.pause(late));
        let (awake, asleep) = ((BUSY, BUSY), (soon, QUIET));
        assert_eq!(pauses(&trust), awake, "not looked at yet");
        trust.judge(milliseconds(0));
        assert_eq!(pauses(&trust), asleep);
        assert_eq!(trust.pause(Duration::from_millis(5)).as_millis(), 5);
        let mut now = 0;
        let mut send = |queries: u64| {
            (0..queries).for_each(|_| trust.count_sent(Lane::SHARED));
            now += 500;
            trust.judge(milliseconds(now));
            pauses(&trust)
        };
        assert_eq!(send(1), awake, "queries come");
        assert_eq!(send(0), asleep, "one may be lost");
        assert_eq!(send(3), awake);
        assert_eq!(send(0), awake, "four are not answered");
        trust.count_received(Lane::SHARED);
        assert_eq!(send(0), asleep);
        trust.suspend(milliseconds(now));
        assert_eq!(pauses(&trust), awake, "the pause of AF_XDP ends in time");
    }

    #[test]
    fn few_queries_are_judged_together() {
        let mut judge = Judge::default();
        for turn in 0..4 {
            assert_eq!(
                judge.judge(turn, 0, milliseconds(turn * 500)),
                Judgement::Keep
            );
        }
        assert_eq!(judge.judge(4, 0, milliseconds(2_000)), Judgement::Keep);
        assert_eq!(judge.judge(4, 0, milliseconds(3_999)), Judgement::Keep);
        assert_eq!(judge.judge(4, 0, milliseconds(4_000)), Judgement::Suspect);
    }
}
