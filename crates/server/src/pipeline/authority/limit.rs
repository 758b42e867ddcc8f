//! Response rate limiting: nobody's address is flooded with answers that a forger asked for in its name. Over AF_XDP no
//! firewall stands before us.
//!
//! A limit is for one client network and one answer: the same name and type, all names and types that one wildcard, one
//! alias or one delegation answers alike, all names of a zone that are not there, all refusals. What is above it is dropped, or sent as a short
//! answer that says "ask again over TCP", which no forger can do. A client with a good cookie (RFC 7873) is no forger's victim and
//! is not limited; one with cookies but no good one gets a good one (BADCOOKIE) in place of the TC answer, so that it
//! need not go to TCP. TCP itself is not limited.
//!
//! For answers from zones, those that the runtime makes included, and the refusals of those who serve zones: answers of rules
//! and backends have the limits that their rules say (`MaxQPSIPRule`), as in dnsdist.

use super::Reply;
use crate::clock::Now;
use crate::counters::Sharded;
use crate::pipeline::Env;
use crate::pipeline::acl::Netmasks;
use crate::pipeline::query::{Protocol, Query};
use crate::pipeline::rules::limiter::{Buckets, Prefixes, Rate};
use std::net::IpAddr;
use std::sync::Arc;
use wire::codes::rcode;

/// What is said of it in the configuration, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitOptions {
    /// Answers a second to one network, of one kind each.
    pub rate: u32,
    /// Answers at once.
    pub burst: u32,
    /// Answers a second to one network, whatever they are; 0: no limit.
    pub total: u32,
    /// Of so many answers above the limit one is sent with TC, on average; 0: none, 1: all.
    pub slip: u32,
    pub prefixes: Prefixes,
    /// Buckets of the table, of 16 bytes each.
    pub buckets: usize,
    /// Nothing is dropped, only counted.
    pub dry_run: bool,
}

/// The limit that serves.
pub struct ResponseRateLimit {
    pub options: LimitOptions,
    /// Who is not limited.
    pub allowed: Netmasks,
    rate: Rate,
    total: Rate,
    /// These live on over a reload, see [`ResponseRateLimit::new`].
    buckets: Arc<Buckets>,
    pub counts: Counts,
}

/// What became of answers above the limit.
#[derive(Clone, Default)]
pub struct Counts {
    pub dropped: Sharded,
    /// Sent with TC, or as BADCOOKIE.
    pub slipped: Sharded,
    /// In a dry run: those that would have been one or the other.
    pub would_have: Sharded,
}

/// What becomes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Sent,
    Dropped,
    /// A short answer goes in its place.
    Slipped,
}

/// What answers have in common that share a limit.
#[derive(Clone, Copy, Hash)]
struct Kind {
    /// A zone and a name of it; see [`zone::answer::Answered::origin`].
    zone: Option<u32>,
    origin: u32,
    /// Of what was given, not of what was asked for: there are 65,000 that an alias answers alike. 0 where the type makes no
    /// difference.
    qtype: u16,
    rcode: u16,
}

impl ResponseRateLimit {
    /// A limit that goes on with the counts of `previous`, and with its buckets where the table is as large, unless a client
    /// that was above the former limit would wait longer than this one has it wait: a rate is raised to end that.
    pub fn new(
        options: LimitOptions,
        allowed: Netmasks,
        previous: Option<&ResponseRateLimit>,
    ) -> ResponseRateLimit {
        let rate = Rate::new(options.rate, options.burst);
        let same = previous.filter(|previous| {
            previous.options.buckets == options.buckets && rate.goes_on_from(previous.rate)
        });
        ResponseRateLimit {
            options,
            allowed,
            rate,
            total: Rate::new(options.total, options.total),
            buckets: same.map_or_else(
                || Arc::new(Buckets::new(options.buckets)),
                |previous| Arc::clone(&previous.buckets),
            ),
            counts: previous.map_or_else(Counts::default, |previous| previous.counts.clone()),
        }
    }

    /// Judges the answer to a query, and counts it.
    pub(super) fn judge(
        &self,
        query: &Query<'_>,
        reply: &Reply,
        is_known: bool,
        env: &mut Env<'_>,
    ) -> Fate {
        let client = query.client.ip();
        let is_free = query.protocol == Protocol::Tcp || is_known || self.allowed.contains(client);
        if is_free || self.allows(client, reply.kind(), env) {
            return Fate::Sent;
        }
        self.above(env)
    }

    /// Judges an answer over UDP that was made beside the packet path, and counts it: what answers with this code a query for
    /// this type, of the zone with this number.
    pub fn judge_beside(
        &self,
        client: IpAddr,
        (zone, qtype, code): (Option<usize>, u16, u16),
        env: &mut Env<'_>,
    ) -> Fate {
        let kind = Kind {
            zone: zone.map(|zone| zone as u32),
            origin: 0,
            qtype: if code == rcode::NOERROR { qtype } else { 0 },
            rcode: code,
        };
        match self.allowed.contains(client) || self.allows(client, kind, env) {
            true => Fate::Sent,
            false => self.above(env),
        }
    }

    /// What becomes of an answer above the limit.
    fn above(&self, env: &mut Env<'_>) -> Fate {
        let lane = env.shard.lane;
        if self.options.dry_run {
            self.counts.would_have.count(lane);
            return Fate::Sent;
        }
        // By chance, so that nobody can have all the answers that slip.
        let slips = self.options.slip > 0 && env.random.below(self.options.slip) == 0;
        if slips {
            self.counts.slipped.count(lane);
            Fate::Slipped
        } else {
            self.counts.dropped.count(lane);
            Fate::Dropped
        }
    }

    /// Whether the answer is within the limits; a query that is only supposed uses nothing of them up.
    fn allows(&self, client: IpAddr, kind: Kind, env: &Env<'_>) -> bool {
        if !env.is_rehearsal() {
            return self.is_within(client, kind, env.now);
        }
        let network = self.options.prefixes.network(client);
        let has = self.buckets.has((network, kind), self.rate, env.now);
        has && (self.options.total == 0 || self.buckets.has(network, self.total, env.now))
    }

    fn is_within(&self, client: IpAddr, kind: Kind, now: Now) -> bool {
        let network = self.options.prefixes.network(client);
        let is_within = self.buckets.take((network, kind), self.rate, now);
        // What is not sent does not count towards the total.
        is_within && (self.options.total == 0 || self.buckets.take(network, self.total, now))
    }
}

impl Reply {
    fn kind(&self) -> Kind {
        let is_there = self.rcode == rcode::NOERROR && !self.no_data;
        Kind {
            zone: self.zone.map(|zone| zone as u32),
            origin: if is_there { self.origin } else { 0 },
            qtype: if is_there { self.given } else { 0 },
            rcode: self.rcode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::scene::Scene;
    use proptest::prelude::*;
    use wire::codes::qtype;

    const OPTIONS: LimitOptions = LimitOptions {
        rate: 5,
        burst: 5,
        total: 0,
        slip: 1,
        prefixes: Prefixes { v4: 24, v6: 56 },
        buckets: 64,
        dry_run: false,
    };

    fn limit(options: LimitOptions) -> ResponseRateLimit {
        ResponseRateLimit::new(options, Netmasks::default(), None)
    }

    const KIND: Kind = Kind {
        zone: Some(0),
        origin: 0,
        qtype: 0,
        rcode: 3,
    };

    #[test]
    fn a_network_and_a_kind_have_a_limit_of_their_own() {
        let limit = limit(OPTIONS);
        let sent = |client: &str, kind: Kind| {
            let client: IpAddr = client.parse().unwrap();
            (0..20)
                .filter(|_| limit.is_within(client, kind, Now(1)))
                .count()
        };
        assert_eq!(sent("192.0.2.1", KIND), 5);
        assert_eq!(sent("192.0.2.200", KIND), 0, "the same /24");
        assert_eq!(sent("192.0.3.1", KIND), 5);
        assert_eq!(sent("192.0.2.1", Kind { qtype: 1, ..KIND }), 5);
        assert_eq!(sent("192.0.2.1", Kind { zone: None, ..KIND }), 5);
        assert_eq!(sent("2001:db8:0:1::1", KIND), 5);
        assert_eq!(sent("2001:db8:0:2::1", KIND), 0, "the same /56");
    }

    #[test]
    fn a_total_is_for_all_kinds() {
        let limit = limit(LimitOptions {
            total: 12,
            ..OPTIONS
        });
        let client = "192.0.2.1".parse().unwrap();
        let sent = (0..100).filter(|&number| {
            let kind = Kind {
                origin: number % 10,
                ..KIND
            };
            limit.is_within(client, kind, Now(1))
        });
        assert_eq!(sent.count(), 12);
    }

    #[test]
    fn what_the_runtime_answers_has_limits_too() {
        let limit = limit(OPTIONS);
        let mut scene = Scene::default();
        let mut sent = |client: &str, zone: usize, code: u16| {
            let client: IpAddr = client.parse().unwrap();
            let mut judge = || {
                let kind = (Some(zone), qtype::IXFR, code);
                scene.with_env(|env| limit.judge_beside(client, kind, env))
            };
            (0..9).filter(|_| judge() == Fate::Sent).count()
        };
        assert_eq!(sent("192.0.2.1", 0, rcode::NOERROR), 5);
        assert_eq!(sent("192.0.2.1", 0, rcode::NOERROR), 0);
        assert_eq!(sent("192.0.2.1", 1, rcode::NOERROR), 5);
        assert_eq!(sent("192.0.2.1", 0, rcode::NOTAUTH), 5);
        assert_eq!(sent("192.0.3.1", 0, rcode::NOTAUTH), 5);
        assert_eq!(limit.counts.slipped.sum(), 4 + 9 + 4 + 4 + 4);
    }

    #[test]
    fn a_reload_goes_on_with_what_was_counted() {
        let first = limit(OPTIONS);
        let client = "192.0.2.1".parse().unwrap();
        assert_eq!(
            (0..9)
                .filter(|_| first.is_within(client, KIND, Now(1)))
                .count(),
            5
        );
        let again = LimitOptions { slip: 2, ..OPTIONS };
        let second = ResponseRateLimit::new(again, Netmasks::default(), Some(&first));
        assert!(!second.is_within(client, KIND, Now(1)));
        let other = LimitOptions {
            buckets: 128,
            ..OPTIONS
        };
        let third = ResponseRateLimit::new(other, Netmasks::default(), Some(&second));
        assert!(third.is_within(client, KIND, Now(1)));
    }

    /// 200 at once and one a second: who has had them is above a limit of that depth for up to 200 s.
    #[test]
    fn a_rate_that_is_raised_is_so_at_once() {
        let options = |rate| LimitOptions {
            rate,
            burst: 200,
            ..OPTIONS
        };
        let client = "192.0.2.1".parse().unwrap();
        let slow = limit(options(1));
        let sent = |limit: &ResponseRateLimit| {
            let is_within = |_: &u32| limit.is_within(client, KIND, Now(1));
            (0..300).filter(is_within).count()
        };
        assert_eq!(sent(&slow), 200);
        let fast = ResponseRateLimit::new(options(100), Netmasks::default(), Some(&slow));
        assert_eq!(sent(&fast), 200);
        let slower = ResponseRateLimit::new(options(50), Netmasks::default(), Some(&fast));
        assert!(sent(&slower) < 200, "what was given counts");
    }

    proptest! {
        /// However queries come, in any time a network gets a burst and the rate of one answer, no more, as long as the
        /// table has room.
        #[test]
        fn no_network_gets_more_than_its_limit(
            queries in proptest::collection::vec((0_u8..3, 0_u32..3, 0_u64..400_000_000), 1..300),
        ) {
            let limit = limit(OPTIONS);
            let mut now = Now(1_000_000_000);
            let mut sent = std::collections::HashMap::<(u8, u32), Vec<u64>>::new();
            for (network, origin, wait) in queries {
                now.0 += wait;
                let client = IpAddr::from([192, 0, network, 1]);
                if limit.is_within(client, Kind { origin, ..KIND }, now) {
                    sent.entry((network, origin)).or_default().push(now.0);
                }
            }
            for moments in sent.values() {
                for (first, from) in moments.iter().enumerate() {
                    for (last, until) in moments.iter().enumerate().skip(first) {
                        let allowed = u64::from(OPTIONS.burst) + (until - from) * u64::from(OPTIONS.rate) / 1_000_000_000;
                        prop_assert!((last - first) as u64 <= allowed);
                    }
                }
            }
        }
    }
}
