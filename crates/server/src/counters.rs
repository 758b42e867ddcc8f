//! Counters: each thread writes its own, whoever reads adds them up.

use crate::pipeline::HandOverReason;
use crate::pipeline::drop::DropReason;
use crate::pipeline::rings::Rings;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is counted per query or response. The name is dnsdist's, `/metrics` puts `dnsdist_` before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    Queries,
    Responses,
    ServfailResponses,
    RdQueries,
    EmptyQueries,
    NoncompliantQueries,
    NoncompliantResponses,
    AclDrops,
    RuleDrop,
    RuleNxdomain,
    RuleRefused,
    RuleServfail,
    RuleTruncated,
    SelfAnswered,
    DownstreamTimeouts,
    DownstreamSendErrors,
    NoPolicy,
    ProxyProtocolInvalid,
    CacheHits,
    CacheMisses,
    FrontendNoerror,
    FrontendNxdomain,
    FrontendServfail,
    TruncFailures,
    Latency0To1,
    Latency1To10,
    Latency10To50,
    Latency50To100,
    Latency100To1000,
    LatencySlow,
    LatencySumMicroseconds,
    LatencyCount,
    LatencyTcpSumMicroseconds,
    LatencyTcpCount,
}

impl Counter {
    /// All counters with dnsdist's names, in the order of their numbers.
    pub const ALL: [(Counter, &'static str); 34] = [
        (Counter::Queries, "queries"),
        (Counter::Responses, "responses"),
        (Counter::ServfailResponses, "servfail-responses"),
        (Counter::RdQueries, "rdqueries"),
        (Counter::EmptyQueries, "empty-queries"),
        (Counter::NoncompliantQueries, "noncompliant-queries"),
        (Counter::NoncompliantResponses, "noncompliant-responses"),
        (Counter::AclDrops, "acl-drops"),
        (Counter::RuleDrop, "rule-drop"),
        (Counter::RuleNxdomain, "rule-nxdomain"),
        (Counter::RuleRefused, "rule-refused"),
        (Counter::RuleServfail, "rule-servfail"),
        (Counter::RuleTruncated, "rule-truncated"),
        (Counter::SelfAnswered, "self-answered"),
        (Counter::DownstreamTimeouts, "downstream-timeouts"),
        (Counter::DownstreamSendErrors, "downstream-send-errors"),
        (Counter::NoPolicy, "no-policy"),
        (Counter::ProxyProtocolInvalid, "proxy-protocol-invalid"),
        (Counter::CacheHits, "cache-hits"),
        (Counter::CacheMisses, "cache-misses"),
        (Counter::FrontendNoerror, "frontend-noerror"),
        (Counter::FrontendNxdomain, "frontend-nxdomain"),
        (Counter::FrontendServfail, "frontend-servfail"),
        (Counter::TruncFailures, "trunc-failures"),
        (Counter::Latency0To1, "latency0-1"),
        (Counter::Latency1To10, "latency1-10"),
        (Counter::Latency10To50, "latency10-50"),
        (Counter::Latency50To100, "latency50-100"),
        (Counter::Latency100To1000, "latency100-1000"),
        (Counter::LatencySlow, "latency-slow"),
        (Counter::LatencySumMicroseconds, "latency-sum"),
        (Counter::LatencyCount, "latency-count"),
        (Counter::LatencyTcpSumMicroseconds, "latency-tcp-sum"),
        (Counter::LatencyTcpCount, "latency-tcp-count"),
    ];
}

/// Who writes a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Writers {
    /// One thread: an addition is a load and a store, without the bus lock.
    #[default]
    One,
    /// The threads of the asynchronous runtime.
    Many,
}

impl Writers {
    /// Adds `number` to a cell that only these writers write; what was there before.
    #[inline]
    pub fn bump(self, cell: &AtomicU64, number: u64) -> u64 {
        match self {
            Writers::One => {
                let before = cell.load(Relaxed);
                cell.store(before.wrapping_add(number), Relaxed);
                before
            }
            Writers::Many => cell.fetch_add(number, Relaxed),
        }
    }
}

/// One writer's counters and rings of recent queries and responses.
pub struct Shard {
    /// The number of the worker; that of the runtime follows the last worker's.
    pub index: usize,
    /// Where its writers count in [`Sharded`] counters (rules, servers).
    pub lane: Lane,
    writers: Writers,
    counters: [AtomicU64; Counter::ALL.len()],
    drops: [AtomicU64; DropReason::ALL.len()],
    hand_overs: [AtomicU64; HandOverReason::ALL.len()],
    pub rings: Rings,
}

impl Shard {
    pub fn new(index: usize, writers: Writers, rings: Rings) -> Shard {
        Shard {
            index,
            lane: Lane::new(index, writers),
            writers,
            counters: [const { AtomicU64::new(0) }; Counter::ALL.len()],
            drops: [const { AtomicU64::new(0) }; DropReason::ALL.len()],
            hand_overs: [const { AtomicU64::new(0) }; HandOverReason::ALL.len()],
            rings,
        }
    }

    /// For a query that is only supposed: nobody reads what it counts.
    pub fn for_rehearsal() -> Shard {
        Shard {
            lane: Lane::REHEARSAL,
            // Tables with a line for each shard have none for this one.
            index: usize::MAX,
            ..Shard::new(0, Writers::One, Rings::default())
        }
    }

    #[inline]
    pub fn writers(&self) -> Writers {
        self.writers
    }

    #[inline]
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    #[inline]
    pub fn add(&self, counter: Counter, number: u64) {
        self.writers.bump(&self.counters[counter as usize], number);
    }

    #[inline]
    pub fn count_drop(&self, reason: DropReason) {
        self.writers.bump(&self.drops[reason as usize], 1);
    }

    #[inline]
    pub fn count_hand_over(&self, reason: HandOverReason) {
        self.writers.bump(&self.hand_overs[reason as usize], 1);
    }

    /// Adds to a cell that is this shard's.
    #[inline]
    pub fn bump(&self, cell: &AtomicU64, number: u64) {
        self.writers.bump(cell, number);
    }

    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Relaxed)
    }

    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize].load(Relaxed)
    }

    pub fn hand_overs(&self, reason: HandOverReason) -> u64 {
        self.hand_overs[reason as usize].load(Relaxed)
    }
}

/// Which cell of a [`Sharded`] counter is a thread's own: its line's number plus one, or 0 for the one that all share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane(u8);

impl Lane {
    /// That of the only writer of shard `index`, or the shared one.
    pub fn new(index: usize, writers: Writers) -> Lane {
        match writers {
            Writers::One if index + 1 < LINES => Lane(index as u8 + 1),
            _ => Lane::SHARED,
        }
    }

    /// That of threads which are no worker.
    pub const SHARED: Lane = Lane(0);

    /// That of queries which are only supposed: its cell is in no sum.
    pub const REHEARSAL: Lane = Lane(LINES as u8);
}

/// What passes a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Passage {
    Query,
    Response,
    Noncompliant,
}

/// What passed one listener over one protocol: a line for each shard, which nobody else writes.
#[derive(Debug)]
pub struct Traffic(Box<[TrafficLine]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct TrafficLine([AtomicU64; 4]);

/// Where queries are counted that were answered at once: one addition for the query and its response.
const ANSWERED: usize = 3;

impl Traffic {
    /// For so many shards.
    pub fn new(shards: usize) -> Traffic {
        Traffic((0..shards).map(|_| TrafficLine::default()).collect())
    }

    #[inline]
    pub fn count(&self, passage: Passage, shard: &Shard) {
        if let Some(line) = self.0.get(shard.index) {
            shard.writers.bump(&line.0[passage as usize], 1);
        }
    }

    /// A query, and at once its answer where there is one already.
    #[inline]
    pub fn count_query(&self, is_answered: bool, shard: &Shard) {
        if let Some(line) = self.0.get(shard.index) {
            let passage = match is_answered {
                true => ANSWERED,
                false => Passage::Query as usize,
            };
            shard.writers.bump(&line.0[passage], 1);
        }
    }

    /// What the shard with this number has counted.
    pub fn get(&self, passage: Passage, shard: usize) -> u64 {
        let Some(TrafficLine(cells)) = self.0.get(shard) else {
            return 0;
        };
        let answered = match passage {
            Passage::Query | Passage::Response => cells[ANSWERED].load(Relaxed),
            Passage::Noncompliant => 0,
        };
        cells[passage as usize].load(Relaxed) + answered
    }
}

/// A counter that several workers add to, each in a cache line of its own: for rules and servers. A clone counts
/// in the same cells.
///
/// A worker adds by a load and a store: the bus lock would wait until all that was written before is in the cache, 60 ns
/// after a ring of recent queries was written.
#[derive(Debug, Clone)]
pub struct Sharded(Arc<[Line]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// Threads beyond as many workers as this, less one, share a line: 2 KiB a counter.
const LINES: usize = 32;

impl Default for Sharded {
    fn default() -> Sharded {
        Sharded((0..=LINES).map(|_| Line::default()).collect())
    }
}

impl Sharded {
    /// `lane` is [`Shard::lane`] of the thread that counts.
    #[inline]
    pub fn count(&self, lane: Lane) {
        let cell = &self.0[usize::from(lane.0)].0;
        let writers = match lane {
            Lane::SHARED => Writers::Many,
            _ => Writers::One,
        };
        writers.bump(cell, 1);
    }

    /// What [`Lane::REHEARSAL`] has counted here.
    pub fn rehearsed(&self) -> u64 {
        self.0[LINES].0.load(Relaxed)
    }

    pub fn sum(&self) -> u64 {
        let lines = self.0[..LINES].iter();
        lines.map(|line| line.0.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I11: a drop is counted under its own name.
    #[test]
    fn names_stand_in_the_order_of_their_numbers() {
        for (number, (counter, _)) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, number);
        }
        for (number, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, number);
        }
        for (number, reason) in HandOverReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, number);
        }
    }

    #[test]
    fn each_shard_counts_a_listeners_traffic_for_itself() {
        let traffic = Traffic::new(2);
        let shards = [0, 1, 2].map(|index| Shard::new(index, Writers::One, Rings::default()));
        for shard in &shards {
            traffic.count_query(false, shard);
        }
        traffic.count(Passage::Response, &shards[1]);
        assert_eq!(
            [0, 1, 2].map(|shard| traffic.get(Passage::Query, shard)),
            [1, 1, 0]
        );
        assert_eq!(
            [0, 1].map(|shard| traffic.get(Passage::Response, shard)),
            [0, 1]
        );
    }

    #[test]
    fn sharded_sums_all_lines() {
        let sharded = Sharded::default();
        for index in 0..2 * LINES {
            sharded.count(Lane::new(index, Writers::One));
            sharded.count(Lane::new(index, Writers::Many));
        }
        assert_eq!(sharded.sum(), 4 * LINES as u64);
    }

    #[test]
    fn what_is_only_supposed_is_in_no_sum() {
        let sharded = Sharded::default();
        sharded.count(Lane::REHEARSAL);
        assert_eq!((sharded.sum(), sharded.rehearsed()), (0, 1));
    }

    #[test]
    fn threads_that_share_a_line_lose_no_count() {
        let sharded = Sharded::default();
        std::thread::scope(|scope| {
            for index in [0, 1, LINES - 1, LINES] {
                let writers = Writers::One;
                let (sharded, lane) = (&sharded, Lane::new(index, writers));
                scope.spawn(move || (0..100_000).for_each(|_| sharded.count(lane)));
            }
        });
        assert_eq!(sharded.sum(), 400_000);
    }
}
