//! Queries that are asked again (`dq:setRestartable`, `dr:restart`), and the rules on queries that nobody answered in time.

use super::carried::Carried;
use super::extras::Marks;
use super::query::{Found, OwnedQuery, Protocol, Query, Way, octets};
use super::rules::response::{self, Response};
use super::{Env, Verdict, decide, respond};
use crate::backend::exchange::Waiting;
use wire::message::QueryParts;

/// How often one query is asked again at most: a function that always wants it would never end (I6).
pub const RESTARTS_MAX: u16 = 10;

/// Room for an answer over UDP, in bytes.
pub(super) const DATAGRAM_ROOM: usize = 4_096;

/// `dq:setRestartable()`: "keep a copy of the initial query around so that we can send it a second time if needed".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    pub query: Box<[u8]>,
    pub parts: QueryParts,
    pub marks: Marks,
    /// How often it was asked again.
    pub times: u16,
    /// `dr:restart()`: it is to be asked again.
    pub wanted: bool,
}

/// A query on its way to be asked again: rules have seen it.
pub struct Again {
    pub query: OwnedQuery,
    found: Found,
    extras: Carried,
}

/// The query to ask again, when a rule wanted that and there is memory for it.
pub fn again(waiting: &mut Waiting) -> Option<Again> {
    let mut extras = waiting.extras.take();
    let restart = extras.as_mut()?.restart.as_mut();
    let restart = restart.filter(|restart| restart.wanted)?;
    (restart.wanted, restart.times) = (false, restart.times + 1);
    let found = Found {
        length: octets(restart.query.len()),
        parts: restart.parts,
        limit: octets(waiting.limit),
        pool: waiting.pool,
        skip_cache: waiting.skip_cache,
        client_flags: waiting.client_flags,
        marks: restart.marks,
    };
    let (protocol, room) = match waiting.way {
        Way::Stream => (Protocol::Tcp, waiting.limit),
        Way::Xsk { .. } | Way::Socket { .. } => (Protocol::Udp, DATAGRAM_ROOM),
    };
    let ends = (waiting.client, waiting.destination);
    Some(Again {
        query: OwnedQuery::copy(&restart.query, room, ends, (protocol, waiting.way))?,
        found,
        extras,
    })
}

/// Asks again: from the zones on.
pub fn run<'c>(again: &mut Again, env: &mut Env<'c>) -> Verdict<'c> {
    let mut arrival = again.query.as_arrival();
    let mut query = Query::resume(&mut arrival, &again.found, again.extras.take());
    let verdict = decide(&mut query, None, env, &mut ());
    count(&verdict, env);
    verdict
}

/// Counts the verdict on a query that has come by its door before.
pub(super) fn count(verdict: &Verdict<'_>, env: &Env<'_>) {
    match verdict {
        Verdict::Drop(reason) => env.shard.count_drop(*reason),
        Verdict::HandOver(hand_over) => env.shard.count_hand_over(hand_over.reason),
        Verdict::Answer(_) | Verdict::Forward(_) => {}
    }
}

/// addTimeoutResponseAction: "timeout triggered from timer expiration or I/O error". The rules see the query; what they
/// make of it goes to nobody, but they may have it asked again.
pub fn timed_out(waiting: &mut Waiting, env: &mut Env<'_>) -> Option<Again> {
    let config = env.config;
    if config.chains.timeout.is_empty() {
        return None;
    }
    let mut message = waiting.query;
    let extras = waiting.extras.take();
    let ends = ((&waiting.client, &waiting.destination), &waiting.way);
    let mut view = respond::as_query(waiting, ends, &mut message, waiting.parts);
    view.length = waiting.query_length;
    view.carry(extras);
    let mut response = Response {
        view,
        server: Some(waiting.server),
        asked: waiting.sent,
        may_wait: false,
        client_edns: waiting.parts.edns.is_some() && !waiting.marks.edns_added,
        maximum_returned_ttl: None,
    };
    let applied = response::apply(&config.chains.timeout, &mut response, env);
    let view = response.view;
    (waiting.pool, waiting.skip_cache) = (view.pool, view.skip_cache);
    waiting.extras = view.extras;
    applied.ok()?;
    again(waiting)
}
