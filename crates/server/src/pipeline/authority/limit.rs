//! Response rate limiting: nobody's address is flooded with answers that a forger asked for in its name. Over AF_XDP no
//! firewall stands before us.
//!
//! A limit is for one client network and one answer: the same name and type, all names and types that one wildcard, one
//! alias or one delegation answers alike, all names of a zone that are not there, all refusals. What is above it is dropped, or sent as a short
//! answer: its code, no records, and where it had some "ask again over TCP", which no forger can do. A client with a good cookie (RFC 7873) is no forger's victim and
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
use crate::pipeline::rules::limiter::{Buckets, Limit, Prefixes, Rate};
use std::net::IpAddr;
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
    /// Of so many answers above the limit one is sent short, on average; 0: none, 1: all.
    pub slip: u32,
    pub prefixes: Prefixes,
    /// Buckets of each table, of 16 bytes each: there is one more for totals.
    pub buckets: usize,
    /// Nothing is dropped, only counted.
    pub dry_run: bool,
}

/// The limit that serves.
pub struct ResponseRateLimit {
    pub options: LimitOptions,
    /// Who is not limited.
    pub allowed: Netmasks,
    /// Of one kind. What these have counted lives on over a reload, see [`ResponseRateLimit::new`].
    rate: Limit<Buckets>,
    /// Of all kinds. In a table of its own: a moment of it means something else when only the other rate changes.
    total: Option<Limit<Buckets>>,
    pub counts: Counts,
}

/// What became of answers above the limit.
#[derive(Clone, Default)]
pub struct Counts {
    pub dropped: Sharded,
    /// Sent short: with TC, as BADCOOKIE, or as what has no records anyway.
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
    /// A limit that goes on with the counts of `previous`, and where networks and tables are as large, with what its buckets
    /// have counted: see [`Limit::go_on_from`].
    pub fn new(
        options: LimitOptions,
        allowed: Netmasks,
        previous: Option<&ResponseRateLimit>,
    ) -> ResponseRateLimit {
        ResponseRateLimit::new_at(options, allowed, previous, Now::read)
    }

    fn new_at(
        options: LimitOptions,
        allowed: Netmasks,
        previous: Option<&ResponseRateLimit>,
        now: impl Fn() -> Now,
    ) -> ResponseRateLimit {
        let shape = |options: &LimitOptions| (options.buckets, options.prefixes);
        let same = previous.filter(|previous| shape(&previous.options) == shape(&options));
        let limit = |rate: Rate, former: Option<&Limit<Buckets>>| {
            // Memory of a table that is not used is not taken.
            let limit = Limit::new(rate, Buckets::new(options.buckets));
            if let Some(former) = former {
                limit.go_on_at(former, &now);
            }
            limit
        };
        let total = (options.total > 0).then(|| Rate::new(options.total, options.total));
        let former_total = same.and_then(|same| same.total.as_ref());
        ResponseRateLimit {
            options,
            allowed,
            rate: limit(
                Rate::new(options.rate, options.burst),
                same.map(|same| &same.rate),
            ),
            total: total.map(|rate| limit(rate, former_total)),
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
        let client = query.client().ip();
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
        let has_total = |total: &Limit<Buckets>| total.has(network, env.now);
        self.rate.has((network, kind), env.now) && self.total.as_ref().is_none_or(has_total)
    }

    fn is_within(&self, client: IpAddr, kind: Kind, now: Now) -> bool {
        let network = self.options.prefixes.network(client);
        let is_within = self.rate.take((network, kind), now);
        // What is not sent does not count towards the total.
        let takes_total = |total: &Limit<Buckets>| total.take(network, now);
        is_within && self.total.as_ref().is_none_or(takes_total)
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

    fn seconds(seconds: u64) -> Now {
        Now(1 + seconds * 1_000_000_000)
    }

    /// 200 at once and one a second: who has had them is above a limit of that depth for up to 200 s.
    #[test]
    fn another_rate_or_burst_goes_on_and_has_nobody_wait_longer_than_it_says() {
        let client = "192.0.2.1".parse().unwrap();
        let sent = |limit: &ResponseRateLimit, at: u64| {
            let is_within = |_: &u32| limit.is_within(client, KIND, seconds(at));
            (0..300).filter(is_within).count()
        };
        let then = |former: &ResponseRateLimit, (rate, burst): (u32, u32), at: u64| {
            let options = LimitOptions {
                rate,
                burst,
                ..OPTIONS
            };
            let allowed = Netmasks::default();
            ResponseRateLimit::new_at(options, allowed, Some(former), || seconds(at))
        };
        let first = then(&limit(OPTIONS), (1, 200), 0);
        assert_eq!(sent(&first, 0), 200);
        let faster = then(&first, (100, 200), 0);
        assert_eq!([sent(&faster, 0), sent(&faster, 1)], [0, 100]);
        let flatter = then(&faster, (100, 20), 1);
        assert_eq!([sent(&flatter, 1), sent(&flatter, 2)], [0, 20]);
        let deeper = then(&flatter, (100, 200), 2);
        assert_eq!(sent(&deeper, 2), 180);
        let slower = then(&deeper, (50, 200), 2);
        assert_eq!([sent(&slower, 2), sent(&slower, 3)], [0, 50]);
    }

    #[test]
    fn a_total_goes_on_whatever_becomes_of_the_rate() {
        let options = |rate, total| LimitOptions {
            rate,
            burst: 200,
            total,
            ..OPTIONS
        };
        let client = "192.0.2.1".parse().unwrap();
        let sent = |limit: &ResponseRateLimit, at: u64| {
            let kind = |origin| Kind { origin, ..KIND };
            let is_within = |origin: &u32| limit.is_within(client, kind(*origin), seconds(at));
            (0..100).filter(is_within).count()
        };
        let first = limit(options(100, 12));
        assert_eq!(sent(&first, 0), 12);
        // By what the rate has become a second would be a hundred.
        let next = |total: u32, former: &ResponseRateLimit| {
            let allowed = Netmasks::default();
            ResponseRateLimit::new_at(options(1, total), allowed, Some(former), || seconds(0))
        };
        let second = next(12, &first);
        assert_eq!([sent(&second, 0), sent(&second, 1)], [0, 12]);
        let without = next(0, &second);
        assert_eq!(sent(&without, 1), 100);
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
