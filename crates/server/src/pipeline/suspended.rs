//! Queries and responses that a function has suspended (`dq:suspend`, `dr:suspend`), and how they go on.
//!
//! dnsdist's manual on AsynchronousObject:resume: "For a question, it means first checking whether it was turned into a response,
//! and sending the response out if it was. Otherwise do a cache-lookup: on a cache-hit, the response will be sent immediately. On
//! a cache-miss, it means dnsdist will select a backend and send the query to the backend. For a response, it means inserting
//! into the cache if needed and sending the response".

use super::carried::Carried;
use super::drop::DropReason;
use super::query::{Found, OwnedQuery, Protocol, Query, Way, octets};
use super::rules::response::Response;
use super::{Env, HandOver, HandOverReason, Verdict, decide, respond, restart, route, rules};
use crate::backend::exchange::Waiting;
use crate::backend::server::ServerId;
use crate::clock::Now;
use crate::config::Config;
use crate::holder::{Place, Ticket};
use std::net::SocketAddr;
use std::sync::Arc;

/// A query or response out of its frame, with what was decided about it.
pub struct Suspended {
    /// By which it was judged until then, and goes on by over TCP. A worker goes on by its own, as with responses of servers: a
    /// server that is gone since cannot be asked over UDP.
    pub config: Arc<Config>,
    pub message: Vec<u8>,
    pub found: Found,
    pub extras: Carried,
    /// Who sent it, to where: the answer's way back.
    pub ends: (SocketAddr, SocketAddr),
    pub protocol: Protocol,
    pub way: Way,
    /// When the client did.
    pub asked: Now,
    /// Whose response it is.
    pub server: Option<ServerId>,
    pub rest: Rest,
    pub place: Place,
}

/// What is left to do.
#[derive(Default)]
pub enum Rest {
    /// A query behind the rules: zones, cache, a server.
    #[default]
    FromZones,
    /// A query behind the rules of addCacheMissAction: a server.
    FromServers,
    /// An answer that was made or found here, behind its rules.
    Answer(Wishes),
    /// The response of a server behind its rules, and the query that it is for.
    Response(Box<Waiting>, Wishes),
}

/// What rules have decided about a response, see [`Response`].
#[derive(Debug, Clone, Copy)]
pub struct Wishes {
    pub client_edns: bool,
    pub maximum_returned_ttl: Option<u32>,
}

/// One that goes on, in a buffer with room for an answer.
pub struct Resumed {
    pub query: OwnedQuery,
    found: Found,
    extras: Carried,
    rest: Rest,
    asked: Now,
    _place: Place,
}

impl Suspended {
    /// Looks at it as rules do.
    pub fn view(&mut self) -> Query<'_> {
        let mut query = Query {
            length: self.message.len(),
            message: &mut self.message,
            parts: self.found.parts,
            ends: (&self.ends.0, &self.ends.1),
            protocol: self.protocol,
            way: &self.way,
            limit: self.found.limit.into(),
            pool: self.found.pool,
            skip_cache: self.found.skip_cache,
            client_flags: self.found.client_flags,
            marks: self.found.marks,
            extras: Carried::NOTHING,
            spare: None,
        };
        query.carry(self.extras.clone());
        query
    }

    /// `None`: there is no memory.
    pub fn resume(self) -> Option<Resumed> {
        let room = match self.protocol {
            Protocol::Tcp => self.found.limit.into(),
            Protocol::Udp => restart::DATAGRAM_ROOM,
        };
        let door = (self.protocol, self.way);
        Some(Resumed {
            query: OwnedQuery::copy(&self.message, room, self.ends, door)?,
            found: self.found,
            extras: self.extras,
            rest: self.rest,
            asked: self.asked,
            _place: self.place,
        })
    }
}

impl Resumed {
    /// When its query went to a server, if this is the response.
    pub fn asked(&self) -> Option<Now> {
        matches!(self.rest, Rest::Response(..)).then_some(self.asked)
    }
}

/// Takes it from where it was suspended to a verdict, which is counted.
pub fn go_on<'c>(resumed: &mut Resumed, env: &mut Env<'c>) -> Verdict<'c> {
    let mut arrival = resumed.query.as_arrival();
    let mut query = Query::resume(&mut arrival, &resumed.found, resumed.extras.take());
    let verdict = match std::mem::take(&mut resumed.rest) {
        Rest::FromZones => go_on_as_query(&mut query, env, |query, env| {
            decide(query, None, env, &mut ())
        }),
        Rest::FromServers => go_on_as_query(&mut query, env, |query, env| {
            route::choose(query, None, env)
        }),
        Rest::Answer(wishes) => respond::give_suspended(response(query, wishes, None), env),
        Rest::Response(mut waiting, wishes) => {
            let server = Some(waiting.server);
            let response = response(query, wishes, server);
            go_on_as_response(&mut waiting, response, env)
        }
    };
    restart::count(&verdict, env);
    verdict
}

fn go_on_as_query<'c>(
    query: &mut Query<'_>,
    env: &mut Env<'c>,
    behind: impl FnOnce(&mut Query<'_>, &mut Env<'c>) -> Verdict<'c>,
) -> Verdict<'c> {
    match query.header().qr() {
        true => rules::answered(query, query.length, env),
        false => behind(query, env),
    }
}

fn response(view: Query<'_>, wishes: Wishes, server: Option<ServerId>) -> Response<'_> {
    Response {
        view,
        server,
        // What is done to it now asks for neither.
        asked: Now::default(),
        may_wait: false,
        client_edns: wishes.client_edns,
        maximum_returned_ttl: wishes.maximum_returned_ttl,
    }
}

fn go_on_as_response<'c>(
    waiting: &mut Waiting,
    response: Response<'_>,
    env: &mut Env<'c>,
) -> Verdict<'c> {
    let found = response.view.found();
    match respond::complete_suspended(waiting, response, env) {
        Err(reason) => Verdict::Drop(reason),
        Ok(length) if waiting.delay().is_zero() => Verdict::Answer(length),
        Ok(length) => {
            let delayed = HandOver {
                reason: HandOverReason::Delayed,
                server: None,
                found: Found {
                    length: octets(length),
                    ..found
                },
                extras: waiting.extras.take(),
            };
            delayed.verdict()
        }
    }
}

/// The ticket of a query that was handed over because a function has suspended it, or of a response that was.
pub fn ticket(extras: &Carried) -> Option<Ticket> {
    extras.as_ref()?.suspended.clone()
}

/// Why a response of a server does not go to its client now: a function has said so. Keeps what it will go on with.
#[cold]
pub(super) fn interrupted(waiting: &mut Waiting, response: &mut Response<'_>) -> DropReason {
    let wishes = response.wishes();
    let view = &mut response.view;
    (waiting.pool, waiting.skip_cache) = (view.pool, view.skip_cache);
    let extras = view.extras.take();
    let ticket = ticket(&extras);
    if let Some(ticket) = &ticket {
        ticket.set_rest(Rest::Response(Box::new(waiting.clone()), wishes));
    }
    waiting.extras = extras;
    match ticket {
        Some(_) => DropReason::ResponseSuspended,
        None => DropReason::ResponseRestarted,
    }
}

/// Keeps what an answer that was made or found here will go on with.
#[cold]
pub(super) fn keep_answer(extras: &Carried, wishes: Wishes) {
    if let Some(ticket) = ticket(extras) {
        ticket.set_rest(Rest::Answer(wishes));
    }
}

/// The same for a query that the rules of addCacheMissAction have seen.
#[cold]
pub(super) fn keep_behind_cache(hand_over: &HandOver<'_>) {
    if let Some(ticket) = ticket(&hand_over.extras) {
        ticket.set_rest(Rest::FromServers);
    }
}
