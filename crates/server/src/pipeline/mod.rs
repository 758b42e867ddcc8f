//! The one way from a query to a verdict, whatever door it came through.
//!
//! Nothing here opens a socket, reads a clock, or allocates on a hit (invariant I13): time, random numbers and the
//! configuration come in through [`Env`].

pub mod acl;
pub mod authority;
pub mod cache;
pub mod carried;
pub mod compose;
pub mod drop;
pub mod explain;
pub mod extras;
pub mod muted;
pub mod proxy;
pub mod query;
mod ranges;
pub mod respond;
pub mod restart;
pub mod rings;
pub mod route;
pub mod rules;
#[cfg(test)]
pub(crate) mod scene;
pub mod subnet;
pub mod suspended;
pub mod xfr;
pub mod zone_traffic;

use crate::backend::server::Server;
use crate::backend::{Forwarded, Forwarder};
use crate::clock::Now;
use crate::config::Config;
use crate::counters::{Counter, Lane, Shard, Traffic};
use crate::heap;
use crate::random::Random;
use carried::Carried;
use drop::DropReason;
use query::{Arrival, Door, Found, Query};
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

/// The stages in the order in which [`run`] takes them; the manual prints this list and a test compares the two.
pub const STAGES: [&str; 8] = [
    "acl",
    "proxy",
    "parse",
    "rules",
    "authority",
    "subnet",
    "cache",
    "route",
];

/// What a stage may use beside the query itself: one per worker and batch.
pub struct Env<'c> {
    pub config: &'c Arc<Config>,
    /// Read once per batch.
    pub now: Now,
    pub random: &'c mut Random,
    /// The worker's own counters and rings of recent queries.
    pub shard: &'c Shard,
    /// `None` where queries are never sent from the buffer they came in (TCP).
    pub forwarder: Option<Forwarder<'c>>,
}

impl Env<'_> {
    /// Whether the query is only supposed ([`explain`]): then no limit is used up.
    #[inline]
    pub fn is_rehearsal(&self) -> bool {
        self.shard.lane == Lane::REHEARSAL
    }

    /// What there is to know of the query that was just forwarded.
    #[inline]
    pub fn forwarded(&self) -> Option<Forwarded> {
        self.forwarder.as_ref()?.forwarded
    }

    /// The counters of what came by this door.
    #[inline]
    fn traffic(&self, (listener, protocol): Door) -> Option<&Traffic> {
        let traffic = self.config.traffic.get(usize::from(listener))?;
        Some(&traffic[protocol as usize])
    }
}

/// What becomes of a query. Nothing else ever leaves the pipeline.
///
/// Each has one word beside its kind, so that it is handed on in two registers. What is longer goes through memory, and there in
/// other pieces than it was written in: then the processor waits until all that was written before is in the cache ("store
/// forwarding" fails), 60 ns behind a ring of recent queries.
#[derive(Debug)]
pub enum Verdict<'c> {
    /// The buffer holds the answer; its length in bytes.
    Answer(usize),
    /// The buffer holds the query under its new ID, for this server over UDP: [`Forwarder::forwarded`] tells the rest. What the
    /// answer will need is in an exchange slot.
    Forward(&'c Arc<Server>),
    /// For the asynchronous runtime: what a frame cannot wait for.
    HandOver(Box<HandOver<'c>>),
    Drop(DropReason),
}

const _: () = assert!(size_of::<Verdict<'_>>() == 16);

/// A query that the asynchronous runtime takes over, as an owned copy.
#[derive(Debug)]
pub struct HandOver<'c> {
    pub reason: HandOverReason,
    /// Whom to ask; `None` when the answer is made here.
    pub server: Option<&'c Arc<Server>>,
    pub found: Found,
    /// What rules want of the answer.
    pub extras: Carried,
}

impl<'c> HandOver<'c> {
    /// The verdict that `query` is taken over, as the stages have left it.
    #[cold]
    pub fn of(
        query: &mut Query<'_>,
        reason: HandOverReason,
        server: Option<&'c Arc<Server>>,
    ) -> Verdict<'c> {
        let hand_over = HandOver {
            reason,
            server,
            found: query.found(),
            extras: query.extras.take(),
        };
        hand_over.verdict()
    }

    /// The verdict that this is handed over; without memory it is lost.
    #[cold]
    pub fn verdict(self) -> Verdict<'c> {
        match heap::is_short() {
            true => Verdict::Drop(DropReason::OutOfMemory),
            false => Verdict::HandOver(Box::new(self)),
        }
    }

    /// How long the answer waits that lies in the buffer; zero when it is none.
    pub fn delay(&self) -> Duration {
        match (self.reason, self.extras.as_deref()) {
            (HandOverReason::Delayed, Some(extras)) => extras.delay,
            _ => Duration::ZERO,
        }
    }
}

/// Why a query or its answer leaves the packet path. One counter each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum HandOverReason {
    /// The client came over TCP, so the backend is asked over TCP.
    Stream,
    /// The backend takes TCP only (`tcpOnly`).
    TcpOnlyBackend,
    /// The query is longer than what an exchange remembers.
    LongQuery,
    /// The client takes an answer that its frame has no room for: the listener's kernel socket sends it.
    Oversized,
    /// The answer is made, and a rule wants it to wait (DelayAction).
    Delayed,
    /// A transfer, a NOTIFY or a signed query for a zone of our own; or a rule's answer to a query that is signed.
    Zone,
    /// A function has suspended it (`dq:suspend`).
    Suspended,
}

impl HandOverReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [HandOverReason; 7] = [
        HandOverReason::Stream,
        HandOverReason::TcpOnlyBackend,
        HandOverReason::LongQuery,
        HandOverReason::Oversized,
        HandOverReason::Delayed,
        HandOverReason::Zone,
        HandOverReason::Suspended,
    ];

    /// The label of the counter.
    pub fn name(self) -> &'static str {
        match self {
            HandOverReason::Stream => "stream",
            HandOverReason::TcpOnlyBackend => "tcp-only-backend",
            HandOverReason::LongQuery => "long-query",
            HandOverReason::Oversized => "oversized",
            HandOverReason::Delayed => "delayed",
            HandOverReason::Zone => "zone",
            HandOverReason::Suspended => "suspended",
        }
    }
}

/// Who follows a query through its stages.
pub(in crate::pipeline) trait Follow {
    /// It has come to this stage, an index of [`STAGES`]; before it is parsed there is no query yet.
    fn reached(&mut self, stage: usize, query: Option<&Query<'_>>);
}

/// Nobody: what the packet path has.
impl Follow for () {
    #[inline(always)]
    fn reached(&mut self, _: usize, _: Option<&Query<'_>>) {}
}

/// Takes one query through all stages.
///
/// Cost of a REFUSED: acl, parse, one rule chain. No lock, no allocation, no clock.
pub fn run<'c>(arrival: &mut Arrival<'_>, env: &mut Env<'c>) -> Verdict<'c> {
    run_followed(arrival, env, &mut ())
}

/// [`run`], watched.
#[inline(always)]
fn run_followed<'c>(
    arrival: &mut Arrival<'_>,
    env: &mut Env<'c>,
    follow: &mut impl Follow,
) -> Verdict<'c> {
    let door = arrival.door();
    judge(arrival, env, follow, |query, env, follow| {
        counted(door, decide(query, None, env, follow), env)
    })
}

/// A query between the rules and the zones or the cache, without its bytes, and what it will need next: memory was asked for. It
/// is filled where it lies, for to move it takes as long as to make it.
///
/// What is in it of every query is one cache line, and the key for the cache, or what a zone will need, begins another one: a worker
/// finds them cold when it has slept.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Paused {
    found: Found,
    /// A zone comes next, of which [`Paused::zone`] is; else the cache.
    is_of_zone: bool,
    extras: Carried,
    cache: cache::Foreseen,
    zone: Option<authority::Foreseen>,
}

const _: () = assert!(offset_of!(Paused, cache) + cache::Foreseen::KEY_AT == 64);
const _: () = assert!(offset_of!(Paused, zone) == 192 && size_of::<Paused>() == 256);

impl Paused {
    /// Whether zones or the cache will need memory for this query, which then has paused.
    #[inline]
    fn pause(&mut self, query: &mut Query<'_>, config: &Config) -> bool {
        self.is_of_zone = authority::foresee(query, config, &mut self.zone);
        let waits = self.is_of_zone || cache::foresee(query, config, &mut self.cache).is_some();
        if waits {
            self.found = query.found();
            self.extras = query.extras.take();
        }
        waits
    }

    /// Asks memory for what comes next; whether there will be more to ask for when that has come. To be called when all queries of
    /// a batch have paused, for each of them in turn, and before the first goes on. `message`: its own. `is_alone`: there is no
    /// other, and what a zone has is read when it is needed.
    #[inline]
    pub fn foresee<'m>(
        &mut self,
        message: impl FnOnce() -> &'m [u8],
        is_alone: bool,
        config: &Config,
    ) -> bool {
        if self.is_of_zone
            && let Some(foreseen) = &mut self.zone
        {
            let parts = &self.found.parts;
            return !is_alone && authority::ask(foreseen, (message(), parts), config);
        }
        cache::foresee_entry(&mut self.cache, self.found.pool, config);
        false
    }

    #[inline]
    fn zone(&self) -> Option<&authority::Foreseen> {
        // What is not asked for is not looked at: it is a cache line of its own.
        match self.is_of_zone {
            true => self.zone.as_ref(),
            false => None,
        }
    }

    #[inline]
    fn entry(&self) -> Option<&cache::Foreseen> {
        (!self.is_of_zone).then_some(&self.cache)
    }
}

/// Takes a query through its stages as [`run`] does, or to where it will need memory that others of its batch can be waited
/// for with: it is then in `paused`, and [`go_on`] takes it on when the others are there, too.
#[inline]
pub fn begin<'c>(
    arrival: &mut Arrival<'_>,
    paused: &mut Paused,
    env: &mut Env<'c>,
) -> Option<Verdict<'c>> {
    let door = arrival.door();
    judge(arrival, env, &mut (), |query, env, follow| {
        // What has outgrown its buffer stays in one piece.
        if query.spare.is_some() && paused.pause(query, env.config) {
            return None;
        }
        Some(counted(door, decide(query, None, env, follow), env))
    })
}

/// Takes a query on that has paused, in the same buffer.
#[inline]
pub fn go_on<'c>(arrival: &mut Arrival<'_>, paused: &mut Paused, env: &mut Env<'c>) -> Verdict<'c> {
    let door = arrival.door();
    if paused.extras.is_none()
        && let Some(entry) = paused.entry()
        && let Some(length) = cache::answer_at_once(arrival, &paused.found, entry, env)
    {
        return counted(door, Verdict::Answer(length), env);
    }
    let mut query = Query::resume(arrival, &paused.found, paused.extras.take());
    counted(door, decide(&mut query, Some(paused), env, &mut ()), env)
}

/// The verdict on a query, which is counted, for its listener too.
#[inline(always)]
fn counted<'c>(door: Door, verdict: Verdict<'c>, env: &Env<'_>) -> Verdict<'c> {
    match &verdict {
        Verdict::Answer(_) => count_query(door, true, env),
        Verdict::Forward(_) => count_query(door, false, env),
        Verdict::HandOver(hand_over) => {
            count_query(door, false, env);
            env.shard.count_hand_over(hand_over.reason);
        }
        Verdict::Drop(reason) => {
            // What the ACL drops is no query, nor is what a proxy should have put a header in front of: see `judge`.
            if !matches!(reason, DropReason::Acl | DropReason::ProxyProtocolInvalid) {
                count_query(door, false, env);
            }
            env.shard.count_drop(*reason);
        }
    }
    verdict
}

#[inline(always)]
fn count_query(door: Door, is_answered: bool, env: &Env<'_>) {
    if let Some(traffic) = env.traffic(door) {
        traffic.count_query(is_answered, env.shard);
    }
}

/// The same where a query ends before it is one.
#[cold]
fn rejected<'c>(door: Door, verdict: Verdict<'c>, env: &Env<'_>) -> Verdict<'c> {
    counted(door, verdict, env)
}

/// Takes a query on whose answer had no room in its first buffer: rules have seen it, zones and cache are next.
pub fn resume<'c>(
    arrival: &mut Arrival<'_>,
    found: &Found,
    extras: Carried,
    env: &mut Env<'c>,
) -> Verdict<'c> {
    let mut query = Query::resume(arrival, found, extras);
    let verdict = authority::answer(&mut query, None, env)
        .or_else(|| cache::answer(&mut query, None, env))
        .unwrap_or_else(|| route::choose(&mut query, None, env));
    if let Verdict::Drop(reason) = &verdict {
        env.shard.count_drop(*reason);
    }
    verdict
}

/// The stages up to the rules, and what is `behind` them for a query on which they have no verdict: a query is made in its place
/// and not moved from there.
#[inline(always)]
fn judge<'c, F: Follow, R: From<Verdict<'c>>>(
    arrival: &mut Arrival<'_>,
    env: &mut Env<'c>,
    follow: &mut F,
    behind: impl FnOnce(&mut Query<'_>, &mut Env<'c>, &mut F) -> R,
) -> R {
    let door = arrival.door();
    follow.reached(0, None);
    if !acl::allows(*arrival.client, env) {
        return rejected(door, Verdict::Drop(DropReason::Acl), env).into();
    }
    follow.reached(1, None);
    let said = match proxy::take(arrival, env) {
        Ok(said) => said,
        Err(verdict) => return rejected(door, verdict, env).into(),
    };
    // dnsdist's manual on acl-drops: such a packet "is not counted in the queries statistic".
    env.shard.count(Counter::Queries);
    follow.reached(2, None);
    let mut query = match Query::parse(arrival, said.as_deref(), env) {
        Ok(parsed) => Query::new(arrival, parsed),
        Err(verdict) => return rejected(door, verdict, env).into(),
    };
    if said.is_some() {
        query.carry(said);
    } else {
        // There is nothing to drop: that need not be found out once more.
        std::mem::forget(said);
    }
    env.shard.rings.record_query(&query, env.now);
    follow.reached(3, Some(&query));
    let decided = match query.parts.is_signed {
        false => rules::apply(&mut query, env),
        true => zone_traffic::apply_rules(&mut query, env),
    };
    match decided {
        Some(verdict) => counted(door, verdict, env).into(),
        None => behind(&mut query, env, follow),
    }
}

/// The stages behind the rules. `paused`: what is known of the query by now.
#[inline(always)]
fn decide<'c>(
    query: &mut Query<'_>,
    paused: Option<&Paused>,
    env: &mut Env<'c>,
    follow: &mut impl Follow,
) -> Verdict<'c> {
    follow.reached(4, Some(query));
    if let Some(verdict) = authority::answer(query, paused.and_then(Paused::zone), env) {
        return verdict;
    }
    follow.reached(5, Some(query));
    let mut picked = None;
    if let Err(verdict) = subnet::add(query, &mut picked, env) {
        return verdict;
    }
    follow.reached(6, Some(query));
    if let Some(verdict) = cache::answer(query, paused.and_then(Paused::entry), env) {
        return verdict;
    }
    follow.reached(7, Some(query));
    route::choose(query, picked, env)
}

#[cfg(test)]
mod tests {
    use super::rules::actions::answer::RCodeAction;
    use super::rules::selectors::logic::AllRule;
    use super::scene::{Reply, Scene, query};
    use super::*;
    use wire::codes::{qtype, rcode};

    #[test]
    fn the_manual_prints_the_stages_in_their_order() {
        let manual = include_str!("../../../../docs/pipeline.md");
        let printed: Vec<&str> = manual
            .lines()
            .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
            .filter_map(|line| line.split('`').nth(1))
            .collect();
        assert_eq!(printed, STAGES);
    }

    #[test]
    fn refused_without_a_nic_and_without_root() {
        let mut scene = Scene::with_rule(AllRule, RCodeAction::new(rcode::REFUSED as u8));
        let question = query("WwW.example.com.", qtype::A);
        let Reply::Answer(answer) = scene.ask(&question) else {
            panic!("no answer")
        };
        assert_eq!(answer[..2], question[..2], "ID");
        assert_eq!(answer[2..4], [0x81, 0x85], "QR RD RA REFUSED");
        assert_eq!(answer[12..], question[12..], "question, its case kept");
        assert_eq!(scene.counted(Counter::Queries), 1);
        assert_eq!(scene.counted(Counter::SelfAnswered), 1);
        assert_eq!(scene.counted(Counter::Responses), 1);
        assert_eq!(scene.counted(Counter::Latency0To1), 1);
    }

    #[test]
    fn a_client_outside_the_acl_is_dropped_and_is_no_query() {
        let mut scene = Scene::default();
        scene.client = "203.0.113.1:1000".parse().unwrap();
        let reply = scene.ask(&query("example.com.", qtype::A));
        assert_eq!(reply, Reply::Drop(DropReason::Acl));
        assert_eq!(scene.counted(Counter::AclDrops), 1);
        assert_eq!(scene.counted(Counter::Queries), 0);
    }
}
