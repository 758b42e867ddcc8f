//! `millrace explain`: what would happen to a query, and why. It is taken through the very stages of [`super::run`] with
//! counters, rings and rule matches of its own: nothing is sent, nothing that anybody reads is counted, no limit is used up.
//!
//! Rules keep their counters behind pointers: here each gets a new one, and those that are not 0 afterwards have matched.
//! A door that cannot send from its buffer ([`Way::Stream`]) makes `route` choose a server and stop there.

use super::proxy::InFront;
use super::query::{Arrival, NO_LISTENER, Protocol, Query, Way};
use super::rules::actions::count::COUNTING;
use super::rules::{Rule, RuleOf};
use super::{Env, Follow, STAGES, Verdict, route, run_followed};
use crate::backend::policy::Policy;
use crate::backend::pool::Pool;
use crate::backend::server::Server;
use crate::clock::Now;
use crate::config::Config;
use crate::config::pools::PoolId;
use crate::counters::{Counter, Shard};
use crate::random::Random;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::codes::{class, qtype, rcode};
use wire::message::{Header, QueryFlags, parse_response, write_query};
use wire::name::NameBuf;
use wire::ttl;

/// A query that nobody has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supposed {
    pub name: NameBuf,
    pub qtype: u16,
    pub from: IpAddr,
    /// The address it is sent to; `None`: the first that is served.
    pub to: Option<SocketAddr>,
    pub over_tcp: bool,
}

/// The client's port: any that a client may have.
const CLIENT_PORT: u16 = 53_000;

/// What a client of today says it takes, in bytes.
const PAYLOAD_SIZE: u16 = 1_232;

/// Room for any answer, in bytes.
const ROOM: usize = 65_535;

/// What would happen to the query, a line each: what, then how.
///
/// # Errors
/// There is no such listener.
pub fn explain(
    config: &Config,
    supposed: &Supposed,
    now: Now,
    random: &mut Random,
) -> Result<Vec<String>, String> {
    let destination = destination(config, supposed.to)?;
    let rehearsed = Arc::new(rehearsal_of(config));
    let (shard, mut trail) = (Shard::for_rehearsal(), Trail::default());
    let mut buffer = vec![0; ROOM];
    let length = write(supposed, &mut buffer);
    let (protocol, word) = match supposed.over_tcp {
        true => (Protocol::Tcp, "TCP"),
        false => (Protocol::Udp, "UDP"),
    };
    let mut outgrown = Vec::new();
    let mut arrival = Arrival {
        message: &mut buffer,
        length,
        client: &SocketAddr::new(supposed.from, CLIENT_PORT),
        destination: &destination,
        protocol,
        way: &Way::Stream,
        listener: NO_LISTENER,
        room: ROOM,
        outgrown: &mut outgrown,
        // Who is supposed to ask is whom a proxy would name.
        in_front: InFront::Nothing,
    };
    let within_qps = within_qps(config, now);
    let mut env = Env {
        config: &rehearsed,
        now,
        random,
        shard: &shard,
        forwarder: None,
    };
    let verdict = run_followed(&mut arrival, &mut env, &mut trail);
    let mut lines = Lines::default();
    let type_name = qtype::name(supposed.qtype)
        .map_or_else(|| format!("TYPE{}", supposed.qtype), str::to_owned);
    lines.say(
        "query",
        format!(
            "{} {type_name} from {} over {word} to {destination}",
            supposed.name, supposed.from
        ),
    );
    lines.stages(&trail, &rehearsed, &shard);
    match verdict {
        Verdict::Answer(length) => lines.answer(arrival.bytes(length)),
        Verdict::Drop(reason) => lines.say("verdict", format!("dropped: {}", reason.name())),
        Verdict::Forward(server) => lines.server(server, &trail, &rehearsed),
        Verdict::HandOver(hand_over) => match hand_over.server {
            Some(server) => {
                give_back(server, &trail, &rehearsed, &within_qps);
                lines.server(server, &trail, &rehearsed);
            }
            None => lines.say(
                "verdict",
                format!("handed over: {}", hand_over.reason.name()),
            ),
        },
    }
    Ok(lines.0)
}

fn destination(config: &Config, to: Option<SocketAddr>) -> Result<SocketAddr, String> {
    let mut served = config.local_addresses();
    match to {
        Some(to) if config.listener_of(&to).is_some() => Ok(to),
        Some(to) => {
            let served: Vec<_> = served.map(|address| address.to_string()).collect();
            Err(format!(
                "{to} is not served; served are: {}",
                served.join(", ")
            ))
        }
        None => match served.next() {
            Some(address) => Ok(address.destination()),
            None => Err("no address is served".to_owned()),
        },
    }
}

fn write(supposed: &Supposed, buffer: &mut [u8]) -> usize {
    let flags = QueryFlags {
        recursion_desired: true,
        payload_size: Some(PAYLOAD_SIZE),
        ..QueryFlags::default()
    };
    let question = (supposed.name.as_name(), supposed.qtype, class::IN);
    write_query(buffer, 0, question, flags).expect("a buffer of 64 KiB holds any query")
}

// ---------------------------------------------------------------------------------------------------- the rehearsal

/// The same configuration, but what a query moves on its way is its own: matches of rules, positions of pools.
fn rehearsal_of(config: &Config) -> Config {
    let mut rehearsed = config.clone();
    // It is none of the file's, and a query that nobody has sent is not counted.
    rehearsed.rules.retain(|rule| rule.uuid != COUNTING);
    fresh(&mut rehearsed.rules);
    fresh(&mut rehearsed.chains.cache_miss);
    fresh(&mut rehearsed.chains.cache_hit);
    fresh(&mut rehearsed.chains.self_answered);
    for pool in rehearsed.pools.iter_mut().flatten() {
        let position = AtomicU64::new(pool.position.load(Relaxed));
        *pool = Arc::new(Pool {
            position: Arc::new(position),
            ..Pool::clone(pool)
        });
    }
    rehearsed.traffic = Vec::new();
    rehearsed
}

fn fresh<A: ?Sized>(rules: &mut [RuleOf<A>]) {
    for rule in rules {
        rule.matches = Arc::default();
    }
}

/// Which servers are within their `qps` limit; firstAvailable uses one query of it up.
fn within_qps(config: &Config, now: Now) -> Vec<bool> {
    let servers = config.servers.iter();
    servers
        .map(|server| server.would_be_within_rate(now))
        .collect()
}

fn give_back(server: &Arc<Server>, trail: &Trail, config: &Config, within_qps: &[bool]) {
    let place = config
        .servers
        .iter()
        .position(|other| Arc::ptr_eq(other, server));
    let counted = place.is_some_and(|place| within_qps[place]);
    let policy = config.pool(trail.pool).map(|pool| pool.policy);
    if counted && policy == Some(Policy::FirstAvailable) {
        server.give_back_rate();
    }
}

/// How far the query came, and as what.
#[derive(Debug)]
struct Trail {
    /// An index of [`STAGES`].
    stage: usize,
    pool: PoolId,
    skip_cache: bool,
}

impl Default for Trail {
    fn default() -> Trail {
        Trail {
            stage: 0,
            pool: PoolId::DEFAULT,
            skip_cache: false,
        }
    }
}

impl Follow for Trail {
    fn reached(&mut self, stage: usize, query: Option<&Query<'_>>) {
        self.stage = stage;
        if let Some(query) = query {
            self.pool = query.pool;
            self.skip_cache = query.skip_cache;
        }
    }
}

// ---------------------------------------------------------------------------------------------------- the lines

#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn say(&mut self, what: &str, how: impl Display) {
        self.0.push(format!("{what:<10}{how}"));
    }

    /// One line for each stage that the query came through, as far as there is something to say.
    fn stages(&mut self, trail: &Trail, config: &Config, shard: &Shard) {
        let came_to = |name| STAGES.iter().position(|stage| *stage == name) <= Some(trail.stage);
        let allowed = came_to("proxy");
        self.say("acl", if allowed { "allowed" } else { "not allowed" });
        if came_to("rules") {
            self.rules("rule", &config.rules);
        }
        if came_to("authority") && !config.local.is_empty() {
            self.zone(trail, config);
        }
        if came_to("cache") {
            self.cache(trail, config, shard);
            self.rules("miss rule", &config.chains.cache_miss);
        }
    }

    fn rules(&mut self, word: &str, rules: &[Rule]) {
        let matched = rules.iter().enumerate();
        let matched: Vec<_> = matched
            .filter(|(_, rule)| rule.matches.rehearsed() > 0)
            .collect();
        for (number, rule) in &matched {
            let name = match rule.name.as_str() {
                "" => String::new(),
                name => format!(" ({name})"),
            };
            let (selector, action) = (rule.selector.describe(), rule.action.describe());
            self.say(word, format!("{number}{name}: {selector} => {action}"));
        }
        if matched.is_empty() && !rules.is_empty() {
            self.say(word, format!("none of {} matches", rules.len()));
        }
    }

    fn zone(&mut self, trail: &Trail, config: &Config) {
        let pools = &config.authority.pools;
        if STAGES[trail.stage] == "authority" {
            self.say("zone", "answers");
        } else if pools.has(trail.pool) && !pools.are_named() {
            self.say("zone", "none encloses the name");
        } else if pools.has(trail.pool) {
            self.say("zone", "none that serves the pool encloses the name");
        } else if trail.pool != PoolId::DEFAULT {
            self.say("zone", "not asked: a rule chose a pool");
        } else {
            self.say("zone", "not asked: none serves the default pool");
        }
    }

    fn cache(&mut self, trail: &Trail, config: &Config, shard: &Shard) {
        let pool = config.pool(trail.pool);
        let shown = pool.map_or("", |pool| pool.name.as_str());
        let how = match pool.and_then(|pool| pool.cache.as_ref()) {
            None => format!("pool '{shown}' has none"),
            Some(_) if shard.get(Counter::CacheHits) > 0 => format!("hit, pool '{shown}'"),
            Some(_) if shard.get(Counter::CacheMisses) > 0 => format!("miss, pool '{shown}'"),
            Some(_) if trail.skip_cache => "not asked: a rule said so".to_owned(),
            Some(_) => "not asked: such a query is not for a cache".to_owned(),
        };
        self.say("cache", how);
    }

    fn server(&mut self, server: &Server, trail: &Trail, config: &Config) {
        if let Some(pool) = config.pool(trail.pool) {
            self.pool(pool);
        }
        let chosen = server.name_with_address();
        let by = match server.options.tcp_only {
            true => ", over TCP",
            false => "",
        };
        self.say("verdict", format!("forwarded to {chosen}{by}"));
        let rules = &config.chains.response;
        if !rules.is_empty() {
            let text = format!("{} rules on responses would see the answer", rules.len());
            self.say("then", text);
        }
    }

    /// The policy and all candidates.
    fn pool(&mut self, pool: &Pool) {
        let by_chance = match pool.policy {
            Policy::WRandom | Policy::OrderedWrandUntag => {
                ", by chance: another query, another server"
            }
            Policy::Race { .. } => ": several are asked, the first is named",
            Policy::Hedge => ": another one is asked too when this one is slow",
            _ => "",
        };
        let policy = route::policy_name(pool.policy, pool.chooser.as_ref());
        self.say(
            "policy",
            format!("{policy} in pool '{}'{by_chance}", pool.name),
        );
        for server in &pool.servers {
            let (name, state) = (server.name_with_address(), server.state.word());
            let (order, weight) = (server.options.order, server.options.weight);
            let (waiting, latency) = (server.outstanding.get(), server.latency() as f64 / 1_000.0);
            self.say(
                "server",
                format!("{name} {state}, order {order}, weight {weight}, {waiting} in flight, {latency:.1} ms"),
            );
        }
    }

    fn answer(&mut self, answer: &[u8]) {
        let code = Header::read(answer).map_or(0, |header| u16::from(header.rcode()));
        let code = rcode::name(code).map_or_else(|| code.to_string(), str::to_owned);
        let mut places = [0; ttl::FEW_RECORDS];
        let ttls = parse_response(answer)
            .ok()
            .and_then(|parts| ttl::collect(answer, &parts, &mut places).ok());
        let lowest = ttls.and_then(|ttls| ttls.minimum);
        let ttl = lowest.map_or_else(String::new, |ttl| format!(", lowest TTL {ttl} s"));
        self.say(
            "verdict",
            format!("answered here: {code}, {} bytes{ttl}", answer.len()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fixture::{options, pool, server};
    use crate::backend::server::{HealthMode, ServerOptions};
    use crate::config::cache::CacheOptions;
    use crate::config::pools::PoolNames;
    use crate::config::zones::ZoneSpecs;
    use crate::config::{Listener, Xdp};
    use crate::local::Local;
    use crate::pipeline::authority::pools::ZonePools;
    use crate::pipeline::cache::PacketCache;
    use crate::pipeline::rules::actions::answer::RCodeAction;
    use crate::pipeline::rules::actions::limit::{DropAction, QPSAction};
    use crate::pipeline::rules::actions::pass::AllowAction;
    use crate::pipeline::rules::actions::route::PoolAction;
    use crate::pipeline::rules::selectors::client::TCPRule;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::rules::selectors::rate::MaxQPSRule;
    use crate::pipeline::scene::{Reply, Scene, answer_to, query_with_edns};

    const NOW: Now = Now(1_000_000_000_000);

    fn supposed(name: &str, over_tcp: bool) -> Supposed {
        Supposed {
            name: name.parse().unwrap(),
            qtype: qtype::A,
            from: "192.0.2.9".parse().unwrap(),
            to: None,
            over_tcp,
        }
    }

    /// A listener, and two servers in the default pool with this policy.
    fn config(policy: Policy, qps: u32) -> Config {
        let of = |number, address: &str| {
            Arc::new(server(
                number,
                ServerOptions {
                    qps,
                    ..options(address)
                },
            ))
        };
        let servers = [of(0, "192.0.2.2:53"), of(1, "192.0.2.3:53")];
        let pool = Pool {
            policy,
            ..Arc::into_inner(pool("", &servers)).unwrap()
        };
        Config {
            acl: ["192.0.2.0/24"
                .parse::<crate::pipeline::acl::Netmask>()
                .unwrap()]
            .into_iter()
            .collect(),
            listeners: vec![Listener {
                address: "192.0.2.1:53".parse().unwrap(),
                sockets: 1,
                reuse_port: false,
                xdp: Xdp::Off,
                tcp_listen_queue_size: 0,
                maximum_tcp_connections: 0,
                pinning: Vec::new(),
                tcp_in_flight: 0,
                interface: None,
                tcp_fast_open: crate::config::FastOpen::default(),
                proxy_protocol: true,
            }],
            servers: servers.to_vec(),
            pools: vec![Some(Arc::new(pool))],
            pool_names: PoolNames::default(),
            ..Config::default()
        }
    }

    fn explained(config: &Config, supposed: &Supposed) -> String {
        let mut random = Random::from_seed(1);
        explain(config, supposed, NOW, &mut random)
            .unwrap()
            .join("\n")
    }

    #[test]
    fn a_query_that_is_forwarded() {
        let mut config = config(Policy::LeastOutstanding, 0);
        config.rules = vec![
            Rule::new(TCPRule(true), DropAction),
            Rule::new(AllRule, AllowAction),
        ];
        let expected = "\
query     www.example. A from 192.0.2.9 over UDP to 192.0.2.1:53
acl       allowed
rule      1: All => allow
cache     pool '' has none
policy    leastOutstanding in pool ''
server    192.0.2.2:53 UP, order 1, weight 1, 0 in flight, 0.0 ms
server    192.0.2.3:53 UP, order 1, weight 1, 0 in flight, 0.0 ms
verdict   forwarded to 192.0.2.2:53";
        assert_eq!(
            explained(&config, &supposed("www.example.", false)),
            expected
        );
        assert_eq!(config.rules[1].matches.sum(), 0, "a rehearsal");
        assert_eq!(config.servers[0].queries.sum(), 0);
        assert_eq!(config.servers[0].outstanding.get(), 0);
    }

    #[test]
    fn who_answers_drops_or_shuts_out_is_named() {
        let mut config = config(Policy::LeastOutstanding, 0);
        let mut stranger = supposed("a.", false);
        stranger.from = "203.0.113.1".parse().unwrap();
        let text = explained(&config, &stranger);
        assert!(
            text.ends_with("acl       not allowed\nverdict   dropped: acl"),
            "{text}"
        );
        config.rules = vec![Rule::new(AllRule, RCodeAction::new(rcode::REFUSED as u8))];
        let text = explained(&config, &supposed("a.", true));
        assert!(
            text.contains("\nrule      0: All => set rcode 5\n"),
            "{text}"
        );
        assert!(
            text.contains("\nverdict   answered here: REFUSED, "),
            "{text}"
        );
        config.rules = vec![Rule::new(AllRule, DropAction)];
        let text = explained(&config, &supposed("a.", false));
        assert!(text.ends_with("\nverdict   dropped: rule"), "{text}");
    }

    /// A zone with `pool=` answers what rules send there, and nothing else.
    #[test]
    fn a_zone_of_a_pool_answers_though_a_rule_chose_the_pool() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("zone");
        let zone = "@ 300 SOA ns host 7 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n";
        std::fs::write(&file, zone).unwrap();
        let specs = ZoneSpecs::of_file("example.com.", &file);
        let auth = PoolId(1);
        let mut config = config(Policy::LeastOutstanding, 0);
        config.pools.push(Some(pool("auth", &[])));
        config.local = Arc::new(Local::load(&specs, &Local::default()).0);
        let apex: NameBuf = "example.com.".parse().unwrap();
        let named = [(apex.as_name(), &[auth][..])];
        config.authority.pools = ZonePools::new(named, config.local.zones());
        let aside = explained(&config, &supposed("ns.example.com.", false));
        let not_asked = "zone      not asked: none serves the default pool\n";
        assert!(aside.contains(not_asked), "{aside}");
        let action = PoolAction {
            pool: auth,
            name: "auth".to_owned(),
            stop: true,
        };
        config.rules = vec![Rule::new(AllRule, action)];
        let served = explained(&config, &supposed("ns.example.com.", false));
        assert!(served.contains("zone      answers\n"), "{served}");
        let other = explained(&config, &supposed("ns.example.org.", false));
        let outside = "zone      none that serves the pool encloses the name\n";
        assert!(other.contains(outside), "{other}");
    }

    #[test]
    fn limits_are_looked_at_and_not_used_up() {
        let mut config = config(Policy::FirstAvailable, 1);
        config.rules = vec![
            Rule::new(MaxQPSRule::new(1, None), AllowAction),
            Rule::new(AllRule, QPSAction::new(1)),
        ];
        let first = explained(&config, &supposed("a.", false));
        assert!(first.contains("rule      0: Max 1 qps => allow"), "{first}");
        assert!(first.ends_with("forwarded to 192.0.2.2:53"), "{first}");
        (0..5).for_each(|_| assert_eq!(explained(&config, &supposed("a.", false)), first));
        config.rules.remove(0);
        let second = explained(&config, &supposed("a.", false));
        assert!(second.ends_with("forwarded to 192.0.2.2:53"), "{second}");
        assert_eq!(explained(&config, &supposed("a.", false)), second);
    }

    /// docs/several.md: a server that takes TCP only is asked about a query over UDP when no other one is up.
    #[test]
    fn who_takes_tcp_only_is_not_among_several_over_udp() {
        for policy in [Policy::Race { width: 0 }, Policy::Hedge] {
            let mut config = config(policy, 0);
            let mut first = options("192.0.2.2:53");
            first.tcp_only = true;
            let servers = [
                Arc::new(server(0, first)),
                Arc::new(server(1, options("192.0.2.3:53"))),
            ];
            let pool = config.pools[0].take().unwrap();
            config.pools[0] = Some(Arc::new(Pool {
                servers: servers.to_vec(),
                ..Pool::clone(&pool)
            }));
            config.servers = servers.to_vec();
            let over_udp = explained(&config, &supposed("a.", false));
            assert!(over_udp.ends_with("to 192.0.2.3:53"), "{over_udp}");
            let over_tcp = explained(&config, &supposed("a.", true));
            assert!(
                over_tcp.ends_with("to 192.0.2.2:53, over TCP"),
                "{over_tcp}"
            );
            config.servers[1].state.set_mode(HealthMode::Down);
            let alone = explained(&config, &supposed("a.", false));
            assert!(alone.ends_with("to 192.0.2.2:53, over TCP"), "{alone}");
        }
    }

    #[test]
    fn a_round_robin_stands_still() {
        let config = config(Policy::RoundRobin, 0);
        let first = explained(&config, &supposed("a.", false));
        assert_eq!(explained(&config, &supposed("a.", false)), first);
        assert_eq!(config.pools[0].as_ref().unwrap().position.load(Relaxed), 0);
    }

    /// A hit needs an entry that a real query left behind.
    #[test]
    fn hits_and_misses_are_told_and_not_counted() {
        let mut config = config(Policy::LeastOutstanding, 0);
        let cache = Arc::new(PacketCache::new(CacheOptions::new(100)));
        let pool = config.pools[0].take().unwrap();
        config.pools[0] = Some(Arc::new(Pool {
            cache: Some(Arc::clone(&cache)),
            ..Pool::clone(&pool)
        }));
        let miss = explained(&config, &supposed("www.example.", false));
        assert!(miss.contains("\ncache     miss, pool ''\n"), "{miss}");
        let question = query_with_edns("www.example.", qtype::A, Some(PAYLOAD_SIZE));
        let mut scene = Scene::default();
        scene.examine(&question, |query, env| {
            let response = answer_to(&question, 0, &[300]);
            let parts = parse_response(&response).unwrap();
            let asked = crate::pipeline::cache::Asked {
                query: query.bytes(),
                parts: &query.parts,
                protocol: Protocol::Udp,
                edns_added: false,
                failure_ttl: None,
            };
            assert!(cache.insert(asked, &response, &parts, NOW, env.shard.lane));
        });
        let hit = explained(&config, &supposed("www.example.", false));
        assert!(hit.contains("\ncache     hit, pool ''\n"), "{hit}");
        assert!(hit.contains("answered here: NOERROR, "), "{hit}");
        assert!(hit.ends_with("lowest TTL 300 s"), "{hit}");
        assert_eq!(
            (cache.counts().hits.sum(), cache.counts().misses.sum()),
            (0, 0)
        );
        // A real query is counted.
        scene.config = Arc::new(config);
        assert!(matches!(scene.ask(&question), Reply::Answer(_)));
        assert_eq!(cache.counts().hits.sum(), 1);
    }

    #[test]
    fn an_address_that_is_not_served_is_an_error() {
        let mut elsewhere = supposed("a.", false);
        elsewhere.to = Some("198.51.100.1:53".parse().unwrap());
        let error = explain(
            &config(Policy::LeastOutstanding, 0),
            &elsewhere,
            NOW,
            &mut Random::from_seed(1),
        );
        assert_eq!(
            error.unwrap_err(),
            "198.51.100.1:53 is not served; served are: 192.0.2.1:53"
        );
    }
}
