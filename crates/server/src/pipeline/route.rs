//! Which backend is asked.

use super::drop::DropReason;
use super::query::{Protocol, Query, Way};
use super::{Env, HandOver, HandOverReason, Verdict, authority, respond};
use crate::backend::Forwarded;
use crate::backend::exchange::OpenError;
use crate::backend::policy::{Choice, Policy};
use crate::backend::pool::{Pool, Subnets};
use crate::backend::server::Server;
use crate::backend::several::{Contenders, Opening};
use crate::clock::Now;
use crate::config::Config;
use crate::config::pools::PoolId;
use crate::counters::Counter;
use std::borrow::Cow;
use std::sync::Arc;
use wire::codes::rcode;

/// A policy of the configuration's own.
pub trait Chooser: Send + Sync {
    /// The server to ask, one of `pool` or of another one; `None`: there is none.
    fn choose<'c>(
        &self,
        pool: &'c Pool,
        query: &Query<'_>,
        env: &Env<'c>,
    ) -> Option<&'c Arc<Server>>;
    fn name(&self) -> &str;
}

/// The name of what chooses: a policy of the configuration's own goes before a built-in one.
pub fn policy_name(policy: Policy, chooser: Option<&Arc<dyn Chooser>>) -> Cow<'_, str> {
    match chooser {
        Some(chooser) => chooser.name().into(),
        None => policy.shown(),
    }
}

/// A server that the policy has chosen.
#[derive(Clone, Copy)]
pub struct Picked<'c> {
    id: PoolId,
    pool: &'c Arc<Pool>,
    pub server: &'c Arc<Server>,
}

impl Picked<'_> {
    /// What is said of the client to the server. Several are asked the same: what all of the pool's are to hear.
    pub fn subnets(&self) -> Subnets {
        let of = |server: &Arc<Server>| {
            let options = &server.options;
            (options.use_client_subnet, options.disable_zero_scope)
        };
        let (are_added, disable_zero_scope) = match self.pool.policy.asks_several() {
            true => self
                .pool
                .servers
                .iter()
                .map(of)
                .fold((true, false), |all, one| (all.0 && one.0, all.1 || one.1)),
            false => of(self.server),
        };
        Subnets {
            are_added,
            disable_zero_scope,
        }
    }

    /// Now the server is asked: firstAvailable counts that. Where all are above their limits there is nothing left to count.
    fn count(&self, now: Now) {
        if self.pool.chooser.is_none() && self.pool.policy == Policy::FirstAvailable {
            self.server.is_within_rate(now);
        }
    }
}

/// Has the policy of the query's pool choose a server.
#[inline]
pub fn pick<'c>(query: &Query<'_>, env: &mut Env<'c>) -> Option<Picked<'c>> {
    pick_for(query, env, true)
}

/// The same for a query that the cache may answer yet.
pub fn pick_early<'c>(query: &Query<'_>, env: &mut Env<'c>) -> Option<Picked<'c>> {
    pick_for(query, env, false)
}

#[inline]
fn pick_for<'c>(query: &Query<'_>, env: &mut Env<'c>, is_counted: bool) -> Option<Picked<'c>> {
    let config: &'c Config = env.config;
    let pool = config.pool(query.pool)?;
    let picked = |server| Picked {
        id: query.pool,
        pool,
        server,
    };
    if let Some(chooser) = &pool.chooser {
        return chooser.choose(pool, query, env).map(picked);
    }
    let mut choice = Choice {
        now: env.now,
        random: env.random,
        tuning: &config.tuning.policies,
        name: query.name(),
        tags: query.extras.as_ref().map(|extras| &extras.tags),
        is_counted,
    };
    let server = pool.policy.choose(pool, &mut choice)?;
    let is_udp = || query.protocol == Protocol::Udp;
    if pool.policy.asks_several() && server.options.tcp_only && is_udp() {
        // Who takes TCP only takes part over UDP when nobody else is up.
        let others = Contenders::of(pool, 1, false);
        let other = others.iter().next();
        return Some(picked(other.unwrap_or(server)));
    }
    Some(picked(server))
}

/// Opens an exchange with the server that was picked early, or with one that is chosen now.
pub fn choose<'c>(
    query: &mut Query<'_>,
    picked: Option<Picked<'c>>,
    env: &mut Env<'c>,
) -> Verdict<'c> {
    let config: &'c Config = env.config;
    // Rules on what the cache has not may have chosen another pool since.
    let picked = match picked {
        Some(picked) if picked.id == query.pool => {
            picked.count(env.now);
            Some(picked)
        }
        _ => pick(query, env),
    };
    let Some(Picked { pool, server, .. }) = picked else {
        env.shard.count(Counter::NoPolicy);
        return no_server(query, env);
    };
    let hand_over = |reason, query: &mut Query<'_>| HandOver::of(query, reason, Some(server));
    if *query.way == Way::Stream {
        return hand_over(HandOverReason::Stream, query);
    }
    if server.options.tcp_only {
        return hand_over(HandOverReason::TcpOnlyBackend, query);
    }
    // The asynchronous runtime has streams alone.
    let Some(forwarder) = &mut env.forwarder else {
        return hand_over(HandOverReason::Stream, query);
    };
    let opened = if pool.policy.asks_several() {
        let opening = Opening {
            tuning: &config.tuning,
            now: env.now,
            random: env.random,
        };
        forwarder.forward_to_several(query, pool, server, opening)
    } else {
        let port = forwarder.forward(query, server, &config.tuning, env.now, env.random);
        port.map(|port| (server, port))
    };
    match opened {
        Ok((server, port)) => {
            let length = query.length;
            forwarder.forwarded = Some(Forwarded { length, port });
            Verdict::Forward(server)
        }
        Err(OpenError::QueryTooLong) => hand_over(HandOverReason::LongQuery, query),
        Err(OpenError::Full) => Verdict::Drop(DropReason::ExchangesFull),
        Err(OpenError::NoPort | OpenError::ProxyHeader) => {
            env.shard.count(Counter::DownstreamSendErrors);
            server.send_errors.count(env.shard.lane);
            Verdict::Drop(DropReason::SendFailed)
        }
    }
}

/// setServFailWhenNoServer decides between SERVFAIL and silence. A pool of zones and no
/// server at all is asked for what is not its own.
fn no_server<'c>(query: &mut Query<'_>, env: &mut Env<'c>) -> Verdict<'c> {
    let config: &'c Config = env.config;
    let has_servers = config
        .pool(query.pool)
        .is_some_and(|pool| !pool.servers.is_empty());
    if !has_servers && !config.local.is_empty() && config.authority.pools.has(query.pool) {
        return authority::refuse(query, env);
    }
    if !config.tuning.servfail_when_no_server {
        return Verdict::Drop(DropReason::NoServer);
    }
    let length = respond::with_rcode(query, env, rcode::SERVFAIL);
    // dnsdist's answer here has no RA, unlike those of its actions: nobody is there who would recurse.
    respond::edit_header(query.message, |header| header.set_ra(false));
    respond::give(&config.chains.self_answered, query, length, env)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fixture;
    use crate::pipeline::scene::{Reply, Scene, query};

    /// From the ports of its family, if a route leads to it: without one it has none.
    #[test]
    fn a_query_without_a_port_to_leave_from_counts_as_the_servers_send_error() {
        let server = Arc::new(fixture::server(0, fixture::options("192.0.2.53:53")));
        let mut scene = Scene::default();
        let pool = fixture::pool("", std::slice::from_ref(&server));
        scene.change(|config| config.pools = vec![Some(pool)]);
        let reply = scene.ask(&query("a.example", 1));
        assert_eq!(reply, Reply::Drop(DropReason::SendFailed));
        assert_eq!(scene.counted(Counter::DownstreamSendErrors), 1);
        assert_eq!(server.send_errors.sum(), 1);
    }
}
