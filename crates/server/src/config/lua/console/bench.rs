//! benchRule: how long a selector takes.

use super::super::selectors::AnySelector;
use super::super::{define, wrong};
use super::{say, serving};
use crate::clock::Now;
use crate::config::Config;
use crate::counters::Shard;
use crate::pipeline::Env;
use crate::pipeline::proxy::InFront;
use crate::pipeline::query::{Arrival, NO_LISTENER, Protocol, Query, Way};
use crate::pipeline::rules::Selector;
use crate::random::Random;
use mlua::Lua;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::codes::{class, qtype};
use wire::message::{QueryFlags, write_query};
use wire::name::NameBuf;

/// As many as dnsdist's.
const TRIES: u64 = 100_000;

/// Functions of the configuration wait while it runs.
const TRIES_MAX: u64 = 10_000_000;

/// After this time it tells of the tries that it had, as no command takes longer.
const TIME_MAX: Duration = Duration::from_secs(10);

/// What is asked for, under random labels.
const SUFFIX: &str = "powerdns.com.";

/// Different queries.
const QUERIES: u64 = 1_000;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "benchRule",
        |lua, (selector, tries, suffix): (AnySelector, Option<u64>, Option<String>)| {
            let tries = tries.unwrap_or(TRIES);
            if tries > TRIES_MAX {
                return Err(wrong(format!(
                    "{tries} tries: at most {TRIES_MAX} expected"
                )));
            }
            let suffix: NameBuf = suffix
                .as_deref()
                .unwrap_or(SUFFIX)
                .parse()
                .map_err(|error| wrong(format!("the suffix is no name: {error}")))?;
            let Some(metrics) = serving(lua) else {
                return Ok(());
            };
            let config = metrics.config();
            let limits = (tries, TIME_MAX);
            let (matches, tries, took) = bench(&*selector.0, limits, &suffix, &config)?;
            let (seconds, microseconds) = (took.as_secs_f64(), took.as_secs_f64() * 1e6);
            let rate = tries as f64 / seconds.max(1e-9);
            say(
                lua,
                format!(
                    "Had {matches} matches out of {tries}, {rate:.1} qps, in {microseconds:.1} usec"
                ),
            );
            Ok(())
        },
    )
}

/// How many queries the selector matched, out of how many, and the time that this took.
fn bench(
    selector: &dyn Selector,
    (tries, most): (u64, Duration),
    suffix: &NameBuf,
    config: &Config,
) -> mlua::Result<(u64, u64, Duration)> {
    // Without its functions: they would wait for the lock of the state, which this command has. LuaRule matches nothing.
    let config = Arc::new(Config {
        lua: None,
        ..config.clone()
    });
    let mut names = Random::from_seed(tries);
    let (mut random, shard) = (Random::from_seed(tries), Shard::for_rehearsal());
    let mut env = Env {
        config: &config,
        now: Now::read(),
        random: &mut random,
        shard: &shard,
        forwarder: None,
    };
    let (mut matches, mut took, mut left) = (0, Duration::ZERO, tries);
    while left > 0 && took < most {
        let label = format!("{:x}.", names.next_u32());
        let name: NameBuf = format!("{label}{suffix}")
            .parse()
            .map_err(|error| wrong(format!("the suffix is too long: {error}")))?;
        let round = left.min(tries.div_ceil(QUERIES));
        let mut message = [0; 512];
        let question = (name.as_name(), qtype::A, class::IN);
        let length = write_query(&mut message, 0, question, QueryFlags::default());
        let length = length.ok_or_else(|| wrong("the suffix is too long"))?;
        let mut outgrown = Vec::new();
        let mut arrival = arrival(&mut message, length, &mut outgrown);
        let Ok(parsed) = Query::parse(&mut arrival, None, &env) else {
            break;
        };
        let mut query = Query::new(&mut arrival, parsed);
        let began = Instant::now();
        for _ in 0..round {
            matches += u64::from(selector.matches(&mut query, &mut env));
        }
        took += began.elapsed();
        left -= round;
    }
    Ok((matches, tries - left, took))
}

/// Who asks, and whom.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);

fn arrival<'m>(message: &'m mut [u8], length: usize, outgrown: &'m mut Vec<u8>) -> Arrival<'m> {
    Arrival {
        room: message.len(),
        message,
        length,
        client: &NOBODY,
        destination: &NOBODY,
        protocol: Protocol::Udp,
        way: &Way::Stream,
        listener: NO_LISTENER,
        outgrown,
        in_front: InFront::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::Scene;

    #[test]
    fn every_try_is_counted() {
        let config = Scene::default().config;
        let suffix: NameBuf = SUFFIX.parse().unwrap();
        for tries in [0, 1, 999, 2_500] {
            let limits = (tries, Duration::MAX);
            let (matches, tried, _) = bench(&AllRule, limits, &suffix, &config).unwrap();
            assert_eq!((matches, tried), (tries, tries));
        }
    }

    #[test]
    fn it_ends_when_its_time_is_over() {
        let config = Scene::default().config;
        let suffix: NameBuf = SUFFIX.parse().unwrap();
        let limits = (TRIES_MAX, Duration::from_nanos(1));
        let (matches, tried, took) = bench(&AllRule, limits, &suffix, &config).unwrap();
        assert!(matches == tried && tried < TRIES_MAX, "{tried} in {took:?}");
    }
}
