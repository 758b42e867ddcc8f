//! Which backend is asked.

use super::drop::DropReason;
use super::query::{Query, Way};
use super::{Env, Forward, HandOver, HandOverReason, Verdict};
use crate::config::Config;
use crate::counters::Counter;

/// Chooses a server of the query's pool and opens an exchange with it.
pub fn choose<'c>(query: &mut Query<'_>, env: &mut Env<'c>) -> Verdict<'c> {
    let config: &'c Config = env.config;
    let Some(server) = config
        .pool(query.pool)
        .and_then(|pool| pool.policy.choose(pool, env.now))
    else {
        env.shard.count(Counter::NoPolicy);
        return no_server(query, env);
    };
    if query.way == Way::Stream {
        return Verdict::HandOver(HandOver {
            reason: HandOverReason::Stream,
            server: Some(server),
            found: query.found(),
        });
    }
    if server.options.tcp_only {
        return Verdict::HandOver(HandOver {
            reason: HandOverReason::TcpOnlyBackend,
            server: Some(server),
            found: query.found(),
        });
    }
    match env.exchanges.open(query, server, env.now, env.random) {
        Some(port) => Verdict::Forward(Forward { server, port }),
        None => Verdict::Drop(DropReason::ExchangesFull),
    }
}

/// setServFailWhenNoServer decides between SERVFAIL and silence.
fn no_server<'c>(query: &mut Query<'_>, env: &Env<'c>) -> Verdict<'c> {
    if env.config.tuning.servfail_when_no_server {
        return Verdict::Answer(super::respond::with_rcode(
            query,
            env,
            wire::codes::rcode::SERVFAIL,
        ));
    }
    Verdict::Drop(DropReason::NoServer)
}
