//! Policies: which server of a pool is asked. Names and meaning are dnsdist's (its manual, "Loadbalancing and Server
//! Policies").
//!
//! Nothing here allocates or locks: a policy looks at the pool's servers once or twice and reads their atomics.

use super::pool::Pool;
use super::server::Server;
use crate::clock::Now;
use crate::pipeline::extras::Tags;
use crate::random::Random;
use rapidhash::v3::rapidhash_v3;
use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use wire::name::{NAME_LENGTH_MAX, Name};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// The fewest queries in flight; then the lowest order; then the lowest latency.
    #[default]
    LeastOutstanding,
    /// The first by order that is within its `qps`; above all limits, as leastOutstanding.
    FirstAvailable,
    /// One after the other.
    RoundRobin,
    /// At random, each as often as its weight says.
    WRandom,
    /// By the name asked for, each for as many names as its weight says.
    WHashed,
    /// The same, and a server more or less moves few names to another.
    CHashed,
    /// As wrandom among those of the lowest order that are up and were not asked yet: the query has no tag that names them.
    OrderedWrandUntag,
    /// Several at once; the first good answer is the client's. Ours, as hedge: see [`super::several`].
    Race {
        /// So many of those that are up; 0: all.
        width: u8,
    },
    /// As leastOutstanding; and a second one when the first is slow.
    Hedge,
}

/// What the policies can be told, beside the servers' own options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyTuning {
    /// setRoundRobinFailOnNoServer.
    pub round_robin_fail_on_no_server: bool,
    /// setWeightedBalancingFactor, in thousandths; 0 is off.
    pub weighted_balancing_factor: u32,
    /// setConsistentHashingBalancingFactor, in thousandths; 0 is off.
    pub consistent_hashing_balancing_factor: u32,
    /// setWHashedPerturbation; else a random number that the process keeps.
    pub hash_perturbation: Option<u32>,
}

/// What a choice may depend on.
pub struct Choice<'q> {
    pub now: Now,
    pub random: &'q mut Random,
    pub tuning: &'q PolicyTuning,
    /// The name asked for.
    pub name: Name<'q>,
    /// The query's tags, if it has any.
    pub tags: Option<&'q Tags>,
    /// Whether `qps` counts the query now: not one that the cache may answer yet.
    pub is_counted: bool,
}

impl Policy {
    /// All policies with the names that a configuration uses.
    pub const ALL: [(&'static str, Policy); 9] = [
        ("leastOutstanding", Policy::LeastOutstanding),
        ("firstAvailable", Policy::FirstAvailable),
        ("roundrobin", Policy::RoundRobin),
        ("wrandom", Policy::WRandom),
        ("whashed", Policy::WHashed),
        ("chashed", Policy::CHashed),
        ("orderedWrandUntag", Policy::OrderedWrandUntag),
        ("race", Policy::Race { width: 0 }),
        ("hedge", Policy::Hedge),
    ];

    /// dnsdist's name.
    pub fn name(self) -> &'static str {
        let width = |policy| match policy {
            Policy::Race { .. } => Policy::Race { width: 0 },
            other => other,
        };
        let found = Policy::ALL
            .iter()
            .find(|(_, policy)| *policy == width(self));
        found.map_or("", |(name, _)| name)
    }

    /// The name as people are shown it: of a race also how many servers it asks, as in `race(2)`.
    pub fn shown(self) -> Cow<'static, str> {
        match self {
            Policy::Race { width } if width > 0 => format!("{}({width})", self.name()).into(),
            _ => self.name().into(),
        }
    }

    /// Whether a query may go to more than one server.
    #[inline]
    pub fn asks_several(self) -> bool {
        matches!(self, Policy::Race { .. } | Policy::Hedge)
    }

    /// The server to ask; `None`: there is none.
    pub fn choose<'p>(self, pool: &'p Pool, choice: &mut Choice<'_>) -> Option<&'p Arc<Server>> {
        match self {
            // Whoever else is asked is chosen when the query is forwarded.
            Policy::LeastOutstanding | Policy::Race { .. } | Policy::Hedge => {
                least_outstanding(pool)
            }
            Policy::FirstAvailable => first_available(pool, choice),
            Policy::RoundRobin => round_robin(pool, choice.tuning),
            Policy::WRandom => Candidates::of(pool, choice.tuning).by_chance(choice.random),
            Policy::WHashed => whashed(pool, choice),
            Policy::CHashed => chashed(pool, choice),
            Policy::OrderedWrandUntag => ordered_wrand_untag(pool, choice),
        }
    }
}

/// "Only servers that are marked as 'up' … might be selected."
fn up(pool: &Pool) -> impl Iterator<Item = &Arc<Server>> {
    pool.servers.iter().filter(|server| server.state.is_up())
}

fn least_outstanding(pool: &Pool) -> Option<&Arc<Server>> {
    up(pool).min_by_key(|server| {
        (
            server.outstanding.get(),
            server.options.order,
            server.latency(),
        )
    })
}

fn first_available<'p>(pool: &'p Pool, choice: &Choice<'_>) -> Option<&'p Arc<Server>> {
    let is_within_rate = |server: &Server| match choice.is_counted {
        true => server.is_within_rate(choice.now),
        false => server.would_be_within_rate(choice.now),
    };
    up(pool)
        .find(|server| is_within_rate(server))
        .or_else(|| least_outstanding(pool))
}

fn round_robin<'p>(pool: &'p Pool, tuning: &PolicyTuning) -> Option<&'p Arc<Server>> {
    let position = pool.position.fetch_add(1, Relaxed) as usize;
    let count = up(pool).count();
    if count > 0 {
        // One that goes down in between: the last that is up.
        return up(pool).nth(position % count).or_else(|| up(pool).last());
    }
    // "If all servers are down, the policy will still select one server by default."
    let fails = tuning.round_robin_fail_on_no_server || pool.servers.is_empty();
    (!fails).then(|| &pool.servers[position % pool.servers.len()])
}

/// The servers that a weighted policy chooses from: up, of an order of at most `order`, not named by a tag, and with bounded
/// loads none that has more queries in flight than its share times the factor.
struct Candidates<'p, 'q> {
    pool: &'p Pool,
    order: i32,
    tags: Option<&'q Tags>,
    bound: Option<Bound>,
}

/// "the maximum number of outstanding queries that a given server can have at a given time, as a ratio of the total number
/// of outstanding queries for all the active servers in the pool, pondered by the weight of the server."
#[derive(Clone, Copy)]
struct Bound {
    /// Thousandths.
    factor: u64,
    outstanding: u64,
    weight: u64,
}

impl Bound {
    /// Over the servers that there are to choose from; `None` when `factor` is 0.
    fn of<'p>(servers: impl Iterator<Item = &'p Arc<Server>>, factor: u32) -> Option<Bound> {
        let none = Bound {
            factor: u64::from(factor),
            outstanding: 0,
            weight: 0,
        };
        (factor > 0).then(|| {
            servers.fold(none, |bound, server| Bound {
                outstanding: bound.outstanding + outstanding(server),
                weight: bound.weight + weight(server),
                ..bound
            })
        })
    }

    fn allows(self, server: &Server) -> bool {
        let own = u128::from(outstanding(server) * 1_000) * u128::from(self.weight);
        let share = u128::from(self.factor * self.outstanding) * u128::from(weight(server));
        own <= share
    }
}

fn weight(server: &Server) -> u64 {
    u64::from(server.options.weight)
}

fn outstanding(server: &Server) -> u64 {
    server.outstanding.get().max(0) as u64
}

impl<'p> Candidates<'p, '_> {
    /// All that are up, within the bounds of setWeightedBalancingFactor.
    fn of(pool: &'p Pool, tuning: &PolicyTuning) -> Candidates<'p, 'static> {
        Candidates {
            pool,
            order: i32::MAX,
            tags: None,
            bound: None,
        }
        .bounded(tuning)
    }

    /// Those of these that are within the bounds: what others have in flight, which are not to be asked, is no matter.
    fn bounded(self, tuning: &PolicyTuning) -> Self {
        let bound = Bound::of(self.iter(), tuning.weighted_balancing_factor);
        Candidates { bound, ..self }
    }

    fn by_chance(&self, random: &mut Random) -> Option<&'p Arc<Server>> {
        self.weighted(|total| below(total, random))
    }

    fn iter(&self) -> impl Iterator<Item = &'p Arc<Server>> {
        let (order, tags, bound) = (self.order, self.tags, self.bound);
        up(self.pool)
            .filter(move |server| server.options.order <= order && !is_tagged(tags, server))
            .filter(move |server| bound.is_none_or(|bound| bound.allows(server)))
    }

    fn total(&self) -> u64 {
        self.iter().map(|server| weight(server)).sum()
    }

    /// Candidates stand side by side, each as wide as its weight; the one at a place that `place` chooses below the sum.
    fn weighted(&self, place: impl FnOnce(u64) -> u64) -> Option<&'p Arc<Server>> {
        let total = self.total();
        if total > 0 {
            return self.at(place(total));
        }
        // While loads change, all may be above their share for a moment: one of them is asked all the same.
        let all = self.unbounded();
        match all.total() {
            0 => None,
            total => all.at(place(total)),
        }
    }

    fn unbounded(&self) -> Self {
        Candidates {
            bound: None,
            ..*self
        }
    }

    fn at(&self, place: u64) -> Option<&'p Arc<Server>> {
        let mut left = place;
        let at_place = self.iter().find(|server| {
            let width = weight(server);
            let here = left < width;
            left = left.saturating_sub(width);
            here
        });
        // Loads and states may have changed between the two walks.
        at_place.or_else(|| self.unbounded().iter().next())
    }
}

/// A number below `bound`, which sums of weights may make longer than 32 bits.
fn below(bound: u64, random: &mut Random) -> u64 {
    let mut number = u64::from(random.next_u32());
    if bound > u64::from(u32::MAX) {
        number = number << 32 | u64::from(random.next_u32());
    }
    number % bound
}

/// "filter out server(s) that were tagged with key string of Server:getNameWithAddr in the query that was set by
/// DNSQuestion:setTag": so a query that is restarted goes to another one.
fn ordered_wrand_untag<'p>(pool: &'p Pool, choice: &mut Choice<'_>) -> Option<&'p Arc<Server>> {
    let tags = choice.tags;
    let left = up(pool).filter(|server| !is_tagged(tags, server));
    let candidates = Candidates {
        pool,
        order: left.map(|server| server.options.order).min()?,
        tags,
        bound: None,
    };
    candidates.bounded(choice.tuning).by_chance(choice.random)
}

/// Whether a tag names this server.
fn is_tagged(tags: Option<&Tags>, server: &Server) -> bool {
    tags.is_some_and(|tags| tags.contains_key(server.name_with_address().as_bytes()))
}

fn whashed<'p>(pool: &'p Pool, choice: &Choice<'_>) -> Option<&'p Arc<Server>> {
    Candidates::of(pool, choice.tuning).weighted(|total| name_hash(choice) % total)
}

fn chashed<'p>(pool: &'p Pool, choice: &Choice<'_>) -> Option<&'p Arc<Server>> {
    up(pool).next()?;
    let bound = Bound::of(up(pool), choice.tuning.consistent_hashing_balancing_factor);
    // As in `Candidates::weighted`: when all are above their share, there is no bound.
    let bound = bound.filter(|bound| up(pool).any(|server| bound.allows(server)));
    let allowed =
        |server: &Server| server.state.is_up() && bound.is_none_or(|bound| bound.allows(server));
    let servers = pool.circle.from(name_hash(choice) as u32);
    servers
        .filter_map(|index| pool.servers.get(index))
        .find(|server| allowed(server))
}

/// The hash of the name in lower case: the same in every instance with the same perturbation.
fn name_hash(choice: &Choice<'_>) -> u64 {
    let mut buffer = [0; NAME_LENGTH_MAX];
    let name = choice.name.to_lowercase(&mut buffer);
    hash(name.as_bytes(), perturbation(choice.tuning))
}

fn perturbation(tuning: &PolicyTuning) -> u32 {
    static OF_THE_PROCESS: LazyLock<u32> = LazyLock::new(|| {
        let random = Random::from_kernel();
        // Without random numbers nothing else starts; then any number will do here.
        random.map_or(0, |mut random| random.next_u32())
    });
    tuning.hash_perturbation.unwrap_or_else(|| *OF_THE_PROCESS)
}

fn hash(bytes: &[u8], perturbation: u32) -> u64 {
    let mut buffer = [0; NAME_LENGTH_MAX + 4];
    let length = bytes.len().min(NAME_LENGTH_MAX);
    buffer[..4].copy_from_slice(&perturbation.to_be_bytes());
    buffer[4..4 + length].copy_from_slice(&bytes[..length]);
    rapidhash_v3(&buffer[..4 + length])
}

/// chashed's circle: "assigns as many points on a circle to a server than its weight, and distributes a query to the server
/// who has the closest point on the circle from the hash of the query's qname".
#[derive(Debug, Clone, Default)]
pub struct Circle {
    /// Point and index of its server, by point.
    points: Vec<(u32, u16)>,
}

/// Points that one server gets at most: with more the circle of a few thousand servers would not fit a cache.
const POINTS_MAX: u32 = 10_000;

/// How many points a server gets in a pool whose greatest weight is `greatest`: its weight, or where that would be too many
/// for one of them, its part of them.
fn points_of(weight: u32, greatest: u32) -> u32 {
    if greatest <= POINTS_MAX {
        return weight;
    }
    let points = u64::from(weight) * u64::from(POINTS_MAX) / u64::from(greatest);
    (points as u32).max(weight.min(1))
}

impl Circle {
    /// The circle of a pool with this policy and these servers: empty but for chashed. A server's points depend on its `id`.
    pub fn new(policy: Policy, servers: &[Arc<Server>], tuning: &PolicyTuning) -> Circle {
        let mut circle = Circle::default();
        if policy == Policy::CHashed {
            let perturbation = perturbation(tuning);
            let weights = servers.iter().map(|server| server.options.weight);
            let greatest = weights.max().unwrap_or(0);
            for (index, server) in (0..u16::MAX).zip(servers) {
                let points = (0..points_of(server.options.weight, greatest)).map(|number| {
                    let text = format!("{number}-{}", server.options.id);
                    (hash(text.as_bytes(), perturbation) as u32, index)
                });
                circle.points.extend(points);
            }
            circle.points.sort_unstable();
        }
        circle
    }

    /// The servers' indices in the order of their points, once around from `place`.
    fn from(&self, place: u32) -> impl Iterator<Item = usize> {
        let start = self.points.partition_point(|(point, _)| *point < place);
        let (before, after) = self.points.split_at(start);
        after
            .iter()
            .chain(before)
            .map(|(_, index)| usize::from(*index))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::backend::server::HealthMode;
    use std::collections::HashMap;

    /// Servers with these orders and weights; numbers from 0.
    fn pool(policy: Policy, servers: &[(i32, u32)]) -> Pool {
        let servers: Vec<Arc<Server>> = (0..)
            .zip(servers)
            .map(|(number, &(order, weight))| {
                let mut options = fixture::options(&format!("192.0.2.{number}:53"));
                (options.order, options.weight) = (order, weight);
                options.id = format!("id-{number}");
                Arc::new(fixture::server(number, options))
            })
            .collect();
        Pool {
            name: String::new(),
            circle: Circle::new(policy, &servers, &tuning()),
            servers,
            cache: None,
            policy,
            position: Arc::default(),
            chooser: None,
            hedging: Arc::default(),
            subnets: Default::default(),
        }
    }

    fn tuning() -> PolicyTuning {
        PolicyTuning {
            hash_perturbation: Some(5),
            ..PolicyTuning::default()
        }
    }

    /// The number of the server that is asked for `name`.
    fn ask(pool: &Pool, name: &str, tuning: &PolicyTuning, random: &mut Random) -> Option<u32> {
        ask_tagged(pool, name, tuning, random, None)
    }

    fn ask_tagged(
        pool: &Pool,
        name: &str,
        tuning: &PolicyTuning,
        random: &mut Random,
        tags: Option<&Tags>,
    ) -> Option<u32> {
        let name: wire::name::NameBuf = name.parse().expect("a name");
        let mut choice = Choice {
            now: Now(1),
            random,
            tuning,
            name: name.as_name(),
            tags,
            is_counted: true,
        };
        let server = pool.policy.choose(pool, &mut choice)?;
        Some(server.number.0)
    }

    /// How often each server is asked in 10,000 queries for as many names.
    fn shares(pool: &Pool, tuning: &PolicyTuning) -> HashMap<u32, u32> {
        let mut random = Random::from_seed(3);
        let mut shares = HashMap::new();
        for number in 0..10_000 {
            let name = format!("host-{number}.example.");
            let server = ask(pool, &name, tuning, &mut random).expect("servers are up");
            *shares.entry(server).or_default() += 1;
        }
        shares
    }

    fn first(pool: &Pool) -> Option<u32> {
        ask(pool, "example.", &tuning(), &mut Random::from_seed(1))
    }

    fn load(pool: &Pool, server: usize, queries: usize) {
        (0..queries).for_each(|_| assert!(pool.servers[server].outstanding.enter(u32::MAX)));
    }

    fn down(pool: &Pool, server: usize) {
        pool.servers[server].state.set_mode(HealthMode::Down);
    }

    #[test]
    fn least_outstanding_then_order_then_latency() {
        let pool = pool(Policy::LeastOutstanding, &[(1, 1), (1, 1), (2, 1)]);
        pool.servers[0].record_latency(100_000);
        pool.servers[1].record_latency(50_000);
        assert_eq!(first(&pool), Some(1));
        load(&pool, 1, 1);
        assert_eq!(first(&pool), Some(0));
        load(&pool, 0, 1);
        assert_eq!(first(&pool), Some(2));
        load(&pool, 2, 1);
        assert_eq!(first(&pool), Some(1));
        (0..3).for_each(|server| down(&pool, server));
        assert_eq!(first(&pool), None);
    }

    #[test]
    fn first_available_respects_qps_and_falls_back_to_the_least_outstanding() {
        let mut pool = pool(Policy::FirstAvailable, &[(1, 1), (2, 1)]);
        for server in &mut pool.servers {
            let mut options = server.options.clone();
            options.qps = 2;
            *server = Arc::new(fixture::server(server.number.0, options));
        }
        let asked: Vec<u32> = (0..4).filter_map(|_| first(&pool)).collect();
        assert_eq!(asked, [0, 0, 1, 1]);
        load(&pool, 0, 1);
        assert_eq!(first(&pool), Some(1), "all above their limit");
    }

    #[test]
    fn round_robin_takes_turns_and_asks_somebody_when_all_are_down() {
        let pool = pool(Policy::RoundRobin, &[(1, 1), (2, 1), (3, 1)]);
        let asked = |count| -> Vec<u32> { (0..count).filter_map(|_| first(&pool)).collect() };
        assert_eq!(asked(4), [0, 1, 2, 0]);
        down(&pool, 1);
        assert_eq!(asked(4), [0, 2, 0, 2]);
        (0..3).for_each(|server| down(&pool, server));
        assert_eq!(asked(2), [2, 0]);
        let fail = PolicyTuning {
            round_robin_fail_on_no_server: true,
            ..tuning()
        };
        assert_eq!(
            ask(&pool, "example.", &fail, &mut Random::from_seed(1)),
            None
        );
    }

    #[test]
    fn weighted_policies_give_each_server_its_share() {
        for policy in [Policy::WRandom, Policy::WHashed] {
            let pool = pool(policy, &[(1, 2), (1, 1), (1, 0)]);
            let shares = shares(&pool, &tuning());
            assert!(
                (6_300..7_000).contains(&shares[&0]),
                "{policy:?}: {shares:?}"
            );
            assert_eq!(shares.len(), 2, "{policy:?}: {shares:?}");
        }
        let pool = pool(Policy::CHashed, &[(1, 2_000), (1, 1_000)]);
        let shares = shares(&pool, &tuning());
        assert!((6_000..7_300).contains(&shares[&0]), "{shares:?}");
    }

    /// They add up to more than 32 bits, and are more than there are points for.
    #[test]
    fn huge_weights_are_weights_too() {
        const HUGE: u32 = 0x7fff_ffff;
        for policy in [Policy::WRandom, Policy::WHashed, Policy::CHashed] {
            let pool = pool(policy, &[(1, HUGE), (1, HUGE), (1, HUGE)]);
            let shares = shares(&pool, &tuning());
            let is_fair = |server: u32| (2_900..3_800).contains(&shares[&server]);
            assert!((0..3).all(is_fair), "{policy:?}: {shares:?}");
        }
        let pool = pool(Policy::CHashed, &[(1, 200_000), (1, 100_000), (1, 1)]);
        let shares = shares(&pool, &tuning());
        assert!((6_000..7_300).contains(&shares[&0]), "{shares:?}");
        assert_eq!(points_of(1, HUGE), 1);
    }

    #[test]
    fn hashes_ask_the_same_server_for_the_same_name_whatever_its_case() {
        for policy in [Policy::WHashed, Policy::CHashed] {
            let pool = pool(policy, &[(1, 100), (1, 100), (1, 100)]);
            let ask = |name| ask(&pool, name, &tuning(), &mut Random::from_seed(1));
            assert_eq!(ask("www.EXAMPLE."), ask("WWW.example."), "{policy:?}");
        }
    }

    /// "Adding or removing servers will only remap a small part of the queries."
    #[test]
    fn chashed_moves_only_the_names_of_the_server_that_went_down() {
        let pool = pool(Policy::CHashed, &[(1, 1_000); 4]);
        let names: Vec<String> = (0..1_000)
            .map(|number| format!("host-{number}.example."))
            .collect();
        let ask = |name: &String| ask(&pool, name, &tuning(), &mut Random::from_seed(1));
        let before: Vec<_> = names.iter().map(ask).collect();
        down(&pool, 2);
        for (name, before) in names.iter().zip(before) {
            let after = ask(name);
            assert_ne!(after, Some(2));
            assert!(before == Some(2) || before == after, "{name} moved");
        }
    }

    /// The manual's example: weights 1 and 4, factor 1.1: the first gets no more than 1.1/5 of what is in flight.
    #[test]
    fn bounded_loads_pass_over_servers_with_more_than_their_share() {
        let bounded = PolicyTuning {
            weighted_balancing_factor: 1_100,
            consistent_hashing_balancing_factor: 1_100,
            ..tuning()
        };
        for policy in [Policy::WRandom, Policy::WHashed, Policy::CHashed] {
            let pool = pool(policy, &[(1, 100), (1, 400)]);
            load(&pool, 0, 22);
            load(&pool, 1, 78);
            assert_eq!(shares(&pool, &bounded).len(), 2, "{policy:?}");
            load(&pool, 0, 1);
            assert_eq!(
                shares(&pool, &bounded),
                HashMap::from([(1, 10_000)]),
                "{policy:?}"
            );
        }
    }

    /// Loads that change between two looks at them must not make a query fail while servers are up.
    #[test]
    fn bounds_that_nobody_keeps_are_none() {
        let narrow = PolicyTuning {
            weighted_balancing_factor: 500,
            consistent_hashing_balancing_factor: 500,
            ..tuning()
        };
        for policy in [
            Policy::WRandom,
            Policy::WHashed,
            Policy::CHashed,
            Policy::OrderedWrandUntag,
        ] {
            let pool = pool(policy, &[(1, 100), (1, 100)]);
            load(&pool, 0, 10);
            load(&pool, 1, 10);
            assert_eq!(shares(&pool, &narrow).len(), 2, "{policy:?}");
            (0..2).for_each(|server| down(&pool, server));
            let random = &mut Random::from_seed(1);
            assert_eq!(ask(&pool, "example.", &narrow, random), None, "{policy:?}");
        }
    }

    /// The widest bounds that can be configured, with the heaviest servers.
    #[test]
    fn bounds_do_not_overflow() {
        let wide = PolicyTuning {
            weighted_balancing_factor: 1_000_000_000,
            consistent_hashing_balancing_factor: 1_000_000_000,
            ..tuning()
        };
        for policy in [Policy::WRandom, Policy::WHashed, Policy::CHashed] {
            let pool = pool(policy, &[(1, 0x7fff_ffff), (1, 0x7fff_ffff)]);
            load(&pool, 0, 1_000);
            assert_eq!(shares(&pool, &wide).len(), 2, "{policy:?}");
        }
    }

    /// F19: a server that comes back gets what the others have, not all that comes.
    #[test]
    fn a_server_that_comes_back_meets_no_herd() {
        let pool = pool(Policy::LeastOutstanding, &[(1, 1); 10]);
        (1..10).for_each(|server| load(&pool, server, 20));
        down(&pool, 0);
        assert_ne!(first(&pool), Some(0));
        pool.servers[0].state.set_mode(HealthMode::Up);
        let mut got = 0;
        for _ in 0..200 {
            let server = first(&pool).expect("all are up") as usize;
            load(&pool, server, 1);
            got += usize::from(server == 0);
        }
        // 20 to be where the others are, and its tenth of the other 180.
        assert_eq!(got, 20 + 18);
    }

    #[test]
    fn ordered_wrand_untag_stays_with_the_lowest_order() {
        let pool = pool(Policy::OrderedWrandUntag, &[(1, 1), (1, 1), (2, 9)]);
        assert_eq!(shares(&pool, &tuning()).len(), 2);
        down(&pool, 0);
        down(&pool, 1);
        assert_eq!(first(&pool), Some(2));
    }

    /// Those of a higher order have nothing in flight: that does not make all the others too busy.
    #[test]
    fn ordered_wrand_untag_bounds_the_load_among_those_that_it_may_ask() {
        let bounded = PolicyTuning {
            weighted_balancing_factor: 1_100,
            ..tuning()
        };
        let pool = pool(Policy::OrderedWrandUntag, &[(1, 1), (1, 1), (2, 2)]);
        load(&pool, 0, 50);
        load(&pool, 1, 50);
        assert_eq!(shares(&pool, &bounded).len(), 2);
        load(&pool, 0, 20);
        assert_eq!(shares(&pool, &bounded), HashMap::from([(1, 10_000)]));
    }

    #[test]
    fn ordered_wrand_untag_asks_none_twice() {
        let pool = pool(Policy::OrderedWrandUntag, &[(1, 1), (1, 1), (2, 9)]);
        let (mut tags, mut random) = (Tags::new(), Random::from_seed(3));
        let mut asked = Vec::new();
        while let Some(server) = ask_tagged(&pool, "a.", &tuning(), &mut random, Some(&tags)) {
            let tagged = &pool.servers[server as usize];
            let key = tagged.name_with_address().as_bytes();
            tags.insert(key.into(), Box::default());
            asked.push(server);
        }
        asked[..2].sort_unstable();
        assert_eq!(asked, [0, 1, 2]);
    }
}
