//! What one run over AF_XDP came to, and where queries and answers were lost.

use super::lane::Lane;
use crate::failure::{Failure, Outcome};
use crate::judge::Fault;
use crate::report::percent;
use crate::tally::Tally;
use std::time::{Duration, Instant, SystemTime};
use xsk::{Collected, Collector};

/// One run.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// When it began.
    pub began: SystemTime,
    /// How long the sending took.
    pub sending: Duration,
    /// What was counted, by all lanes together.
    pub tally: Tally,
    /// By lane.
    pub lanes: Vec<LaneCounts>,
    /// What was lost or went elsewhere on our side.
    pub losses: Losses,
    /// Queries, among the unanswered ones, that nobody waited for any more when the run was stopped (sockets).
    pub interrupted: u64,
    /// In words: what of our side or of our options was the limit, if anything.
    pub limits: Vec<String>,
    /// Answers were thrown away unread (`-r`): nothing is known of them.
    pub unread: bool,
    /// What ended the run before its time: the counts are those until then.
    pub failure: Option<Failure>,
    /// In words: what the counts do not tell, and nobody on our side can help.
    pub remark: Option<String>,
}

/// The time of day at which it was `then`.
pub(crate) fn time_of_day(then: Instant) -> SystemTime {
    SystemTime::now() - then.elapsed()
}

/// The generator was the limit when it could not send so much of what was due, in per cent.
const LIMIT_PERCENT: f64 = 0.1;

/// What may help where not everything was sent in time.
const ADVICE: &str = "a larger batch (-b), more queues, or drop answers (-r)";

/// In words: that the generator itself was the limit, for it could not send in time, if it was. `advice`: what to try.
pub fn not_sent(tally: &Tally, advice: &str) -> Option<String> {
    let skipped = percent(tally.skipped, tally.sent + tally.skipped);
    (skipped > LIMIT_PERCENT).then(|| {
        format!(
            "The generator itself was the limit: it could not send {skipped:.1}% of the queries in time. Try {advice}; \
             latencies hold its own delay, up to --patience."
        )
    })
}

/// In words: how the generator itself was the limit, if it was.
fn limits(tally: &Tally, losses: &Losses) -> Vec<String> {
    let mut limits: Vec<String> = not_sent(tally, ADVICE).into_iter().collect();
    if losses.answers() > tally.sent / 1000 {
        limits.push(
            "The generator itself was the limit: answers were lost on its side, after the server had given them."
                .to_owned(),
        );
    }
    limits
}

/// Counts of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCounts {
    pub sent: u64,
    /// Everything that came to this lane's queue, right or not.
    pub received: u64,
}

/// What happened to frames on our side, during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Answers thrown away in the kernel, as asked (`-r`).
    pub unwanted: u64,
    /// Answers longer than a frame of ours, or in fragments, which went to the kernel.
    pub large: u64,
    /// Answers on a queue without a socket of ours, which went to the kernel.
    pub elsewhere: u64,
    /// Datagrams to our ports from elsewhere than a target: the kernel has them, and the tally counts them as wrong.
    pub other_source: u64,
    /// Answers that found our rings full, or the buffers of our sockets.
    pub rings_full: u64,
    /// Frames that our interface dropped, received and to be sent; everybody's frames. `None`: nobody looked, for kernel
    /// sockets send by whichever interfaces the kernel chooses, or it has gone, and its counts with it.
    pub interface: Option<(u64, u64)>,
}

impl Losses {
    /// Answers that are known to have come to this machine and not to us.
    pub fn answers(&self) -> u64 {
        self.large + self.elsewhere + self.rings_full
    }
}

impl Measurement {
    pub(crate) fn new(
        (began, sending): (SystemTime, Duration),
        tallies: Vec<Tally>,
        losses: Losses,
    ) -> Measurement {
        let lanes = tallies.iter().map(|tally| LaneCounts {
            sent: tally.sent,
            received: tally.answers(),
        });
        let lanes = lanes.collect();
        let mut tally = Tally::sum(&tallies);
        tally.wrong[Fault::Source.index()] += losses.other_source;
        Measurement {
            began,
            sending,
            limits: limits(&tally, &losses),
            tally,
            lanes,
            losses,
            interrupted: 0,
            unread: false,
            failure: None,
            remark: None,
        }
    }

    /// What is said in words.
    pub fn sentences(&self) -> impl Iterator<Item = &String> {
        self.limits.iter().chain(&self.remark)
    }

    /// Queries that the rate asked for until the run ended.
    pub fn offered(&self) -> u64 {
        self.tally.offered()
    }
}

/// The counters of kernel and interface at one moment.
pub(super) struct Baseline(Losses);

impl Baseline {
    pub(super) fn read(
        interface: &str,
        collector: &Collector,
        lanes: &[Lane],
    ) -> Outcome<Baseline> {
        let collected = collector.counts()?;
        let count = |what: Collected| collected[what as usize];
        let mut rings_full = 0;
        for lane in lanes {
            let statistics = lane.socket.statistics()?;
            // What finds no free frame is counted as dropped too.
            rings_full += statistics.rx_ring_full + statistics.rx_dropped;
        }
        Ok(Baseline(Losses {
            unwanted: count(Collected::AnswerDropped),
            large: count(Collected::AnswerLarge),
            elsewhere: count(Collected::AnswerSocket),
            other_source: count(Collected::OtherSource),
            rings_full,
            interface: interface_drops(interface)?,
        }))
    }

    /// What was added since.
    pub(super) fn since(&self, before: &Baseline) -> Losses {
        let (now, then) = (&self.0, &before.0);
        let drops = |(now, then): ((u64, u64), (u64, u64))| {
            let received = now.0.saturating_sub(then.0);
            (received, now.1.saturating_sub(then.1))
        };
        Losses {
            unwanted: now.unwanted - then.unwanted,
            large: now.large - then.large,
            elsewhere: now.elsewhere - then.elsewhere,
            other_source: now.other_source - then.other_source,
            rings_full: now.rings_full.saturating_sub(then.rings_full),
            interface: now.interface.zip(then.interface).map(drops),
        }
    }
}

/// Frames that an interface dropped, received and to be sent; `None` of one that is not there.
fn interface_drops(interface: &str) -> Outcome<Option<(u64, u64)>> {
    // Not in /sys/class/net: that may show another network namespace than this thread's.
    let path = "/proc/thread-self/net/dev";
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("reading {path}: {error}")))?;
    Ok(drops_in(&text, interface))
}

/// Two header lines, then `NAME: bytes packets errs drop fifo frame compressed multicast` and the same to be sent.
fn drops_in(text: &str, interface: &str) -> Option<(u64, u64)> {
    let line = text.lines().skip(2).find_map(|line| {
        let (name, counters) = line.split_once(':')?;
        (name.trim() == interface).then_some(counters)
    })?;
    let counters: Vec<u64> = line
        .split_whitespace()
        .map_while(|counter| counter.parse().ok())
        .collect();
    Some((*counters.get(3)?, *counters.get(11)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
  cli0:    9000     100    0    3    0     0          0         0     8000      90    0    4    0     0       0          0
";

    #[test]
    fn what_the_generator_could_not_do_is_said() {
        let mut tally = Tally {
            sent: 9_000,
            skipped: 1_000,
            ..Tally::default()
        };
        let losses = Losses {
            rings_full: 10,
            ..Losses::default()
        };
        let said = limits(&tally, &losses);
        assert!(said[0].contains("could not send 10.0% of the queries"));
        assert!(said[1].contains("answers were lost on its side"));
        tally.skipped = 0;
        assert!(limits(&tally, &Losses::default()).is_empty());
    }

    #[test]
    fn an_interface_counts_from_the_start_of_the_run() {
        let at = |interface| {
            Baseline(Losses {
                interface,
                ..Losses::default()
            })
        };
        let added = |now, then| at(now).since(&at(then)).interface;
        assert_eq!(added(Some((5, 9)), Some((3, 9))), Some((2, 0)));
        assert_eq!(added(None, None), None);
    }

    #[test]
    fn drops_are_the_fourth_and_the_twelfth_counter() {
        assert_eq!(drops_in(TEXT, "cli0"), Some((3, 4)));
        assert_eq!(drops_in(TEXT, "lo"), Some((0, 0)));
        assert_eq!(drops_in(TEXT, "cli"), None);
    }

    #[test]
    fn the_loopback_interface_has_a_line() {
        assert!(interface_drops("lo").unwrap().is_some());
        assert_eq!(interface_drops("not there"), Ok(None));
    }
}
