//! For tests of the stages: a configuration and a worker's surroundings, and queries put to them. No NIC, no root.

use super::drop::DropReason;
use super::proxy::InFront;
use super::query::{Arrival, Protocol, Query, Way};
use super::rules::{Action, Rule, Selector};
use super::{Env, HandOverReason, Paused, Verdict, begin, go_on, run};
use crate::backend::Forwarder;
use crate::backend::exchange::{Exchanges, Share};
use crate::backend::ports::{Departures, Ports};
use crate::backend::server::ServerId;
use crate::clock::Now;
use crate::config::Config;
use crate::counters::{Counter, Shard, Writers};
use crate::pipeline::acl::{Netmask, Netmasks};
use crate::pipeline::rings::Rings;
use crate::random::Random;
use std::net::SocketAddr;
use std::sync::Arc;
use wire::codes::class;
use wire::message::{Header, QueryFlags, parse_query, write_query};
use wire::name::NameBuf;

pub(crate) struct Scene {
    pub(crate) config: Arc<Config>,
    pub(crate) now: Now,
    pub(crate) client: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) protocol: Protocol,
    /// Bytes.
    pub(crate) room: usize,
    /// What the buffer has at most, in bytes: a frame may have less than the room.
    pub(crate) frame: usize,
    random: Random,
    pub(crate) shard: Shard,
    pub(crate) exchanges: Exchanges,
    share: Share,
    /// On loopback.
    pub(crate) ports: Ports,
}

/// A verdict, owned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Answer(Vec<u8>),
    Forward(ServerId),
    HandOver(HandOverReason),
    Drop(DropReason),
}

impl Default for Scene {
    /// Clients 192.0.2.0/24 and 2001:db8::/32 may ask; no rules, no servers.
    fn default() -> Scene {
        let acl = ["192.0.2.0/24", "2001:db8::/32"].map(|mask| mask.parse::<Netmask>().unwrap());
        let mut random = Random::from_seed(1);
        let exchanges = Exchanges::new(1, 64, Arc::default(), &mut random);
        Scene {
            config: Arc::new(Config {
                acl: Netmasks::from_iter(acl),
                ..Config::default()
            }),
            now: Now(1_000_000_000_000),
            client: "192.0.2.9:4242".parse().unwrap(),
            destination: "192.0.2.1:53".parse().unwrap(),
            protocol: Protocol::Udp,
            room: 1_472,
            frame: usize::MAX,
            random,
            shard: Shard::new(0, Writers::One, Rings::new(16, 16, Writers::One)),
            share: exchanges.share(0),
            exchanges,
            ports: Ports::new(1, 4, Box::new(())).expect("epoll"),
        }
    }
}

impl Reply {
    fn of(verdict: Verdict<'_>, arrival: &Arrival<'_>) -> Reply {
        match verdict {
            Verdict::Answer(length) => Reply::Answer(arrival.bytes(length).to_vec()),
            Verdict::Forward(server) => Reply::Forward(server.number),
            Verdict::HandOver(hand_over) => Reply::HandOver(hand_over.reason),
            Verdict::Drop(reason) => Reply::Drop(reason),
        }
    }
}

impl Scene {
    pub(crate) fn with_rule(
        selector: impl Selector + 'static,
        action: impl Action + 'static,
    ) -> Scene {
        let mut scene = Scene::default();
        scene.add_rule(selector, action);
        scene
    }

    pub(crate) fn add_rule(
        &mut self,
        selector: impl Selector + 'static,
        action: impl Action + 'static,
    ) {
        self.change(|config| config.rules.push(Rule::new(selector, action)));
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Config)) {
        change(Arc::get_mut(&mut self.config).expect("nobody else has it"));
    }

    pub(crate) fn counted(&self, counter: Counter) -> u64 {
        self.shard.get(counter)
    }

    /// Takes a message through all stages.
    pub(crate) fn ask(&mut self, message: &[u8]) -> Reply {
        self.with_arrival(message, |arrival, env| {
            let verdict = run(arrival, env);
            Reply::of(verdict, arrival)
        })
    }

    /// The same as one of a batch; whether it has paused, too.
    pub(crate) fn ask_in_batch(&mut self, message: &[u8]) -> (bool, Reply) {
        let mut paused = Paused::default();
        self.with_arrival(message, |arrival, env| {
            match begin(arrival, &mut paused, env) {
                Some(verdict) => (false, Reply::of(verdict, arrival)),
                None => {
                    while paused.foresee(|| &*arrival.message, false, env.config) {}
                    let verdict = go_on(arrival, &mut paused, env);
                    (true, Reply::of(verdict, arrival))
                }
            }
        })
    }

    /// Parses a message that is a query, and looks at it.
    pub(crate) fn parse<T>(&mut self, message: &[u8], look: impl FnOnce(&mut Query<'_>) -> T) -> T {
        self.examine(message, |query, _| look(query))
    }

    /// Whether `selector` matches a message that is a query.
    pub(crate) fn matches(&mut self, selector: &dyn Selector, message: &[u8]) -> bool {
        self.examine(message, |query, env| selector.matches(query, env))
    }

    /// Parses a message that is a query, and does something with it.
    pub(crate) fn examine<T>(
        &mut self,
        message: &[u8],
        act: impl FnOnce(&mut Query<'_>, &mut Env<'_>) -> T,
    ) -> T {
        self.with_arrival(message, |arrival, env| {
            match Query::parse(arrival, None, env).map(|parsed| Query::new(arrival, parsed)) {
                Ok(mut query) => act(&mut query, env),
                Err(verdict) => panic!("no query: {verdict:?}"),
            }
        })
    }

    /// Does something with a worker's surroundings.
    pub(crate) fn with_env<T>(&mut self, act: impl FnOnce(&mut Env<'_>) -> T) -> T {
        self.with_arrival(&[], |_, env| act(env))
    }

    /// Does something with a message before any stage has seen it.
    pub(crate) fn with_arrival<T>(
        &mut self,
        message: &[u8],
        look: impl FnOnce(&mut Arrival<'_>, &mut Env<'_>) -> T,
    ) -> T {
        let mut buffer = vec![0; self.room.min(self.frame).max(message.len())];
        buffer[..message.len()].copy_from_slice(message);
        let mut outgrown = Vec::new();
        let mut arrival = Arrival {
            message: &mut buffer,
            length: message.len(),
            client: &self.client,
            destination: &self.destination,
            protocol: self.protocol,
            way: &Way::Socket { listener: 0 },
            listener: 0,
            room: self.room,
            outgrown: &mut outgrown,
            in_front: InFront::FromProxies,
        };
        let mut departures = Departures::default();
        let mut env = Env {
            config: &self.config,
            now: self.now,
            random: &mut self.random,
            shard: &self.shard,
            forwarder: Some(Forwarder {
                exchanges: &self.exchanges,
                share: &mut self.share,
                ports: &self.ports,
                departures: &mut departures,
                forwarded: None,
            }),
        };
        look(&mut arrival, &mut env)
    }
}

/// A query for `name` with RD, without EDNS, ID 0x1234.
pub(crate) fn query(name: &str, qtype: u16) -> Vec<u8> {
    query_with_edns(name, qtype, None)
}

pub(crate) fn query_with_edns(name: &str, qtype: u16, payload_size: Option<u16>) -> Vec<u8> {
    let name: NameBuf = name.parse().expect("a name");
    let flags = QueryFlags {
        recursion_desired: true,
        payload_size,
        ..QueryFlags::default()
    };
    let mut buffer = vec![0; 300];
    let question = (name.as_name(), qtype, class::IN);
    let length = write_query(&mut buffer, 0x1234, question, flags).expect("300 octets do");
    buffer.truncate(length);
    buffer
}

/// A backend's response to `query` with an address record for each of `ttls`.
pub(crate) fn answer_to(query: &[u8], rcode: u8, ttls: &[u32]) -> Vec<u8> {
    let parts = parse_query(query).expect("a query");
    let mut response = query[..parts.question_end.into()].to_vec();
    let mut header = Header::read(query).expect("a header");
    header.set_qr(true);
    header.set_ra(true);
    header.set_rcode(rcode);
    header.set_answer_count(ttls.len() as u16);
    header.set_additional_count(0);
    header.write(&mut response).expect("room");
    for ttl in ttls {
        response.extend([0xc0, 12, 0, 1, 0, 1]);
        response.extend(ttl.to_be_bytes());
        response.extend([0, 4, 192, 0, 2, 1]);
    }
    response
}
