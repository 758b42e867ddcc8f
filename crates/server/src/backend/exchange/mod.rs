//! Queries in flight to backends: what the answer will need, shared by all threads.
//!
//! Any worker opens an exchange, any thread ends it: the network decides who receives the answer. RFC 5452: an answer is
//! matched by address, port, ID and question before it ends anything, and the IDs are unpredictable.
//!
//! ```text
//!  entries (64 bit each)                        bodies (704 bytes each)
//!  (port, ID) ─▶ bucket of 8 │ … waiting, body ─┼─▶ addresses, way back, deadline, query │ …
//!                            │ … ended, when    │   a slice per worker, lowest free first
//! ```
//!
//! An exchange is opened by writing a free body and then publishing it in an entry, and ended by one compare-and-swap on
//! the entry: whoever wins owns the body, copies it out and frees it. The answer, its duplicate and the time-out meet at
//! that swap, so each exchange ends exactly once (invariant I1). No lock, no allocation, no `unsafe`.
//!
//! A query may be asked from several servers at once ([`race`]): exchanges of their own, whose first body says who won.
//!
//! Memory: for each query that may be in flight one body and four entries, so that keys can be kept back after their end
//! (see [`entries::after_timeout`]): in flight 1/4 of the entries, timed out within twice the time-out 2/4 at most. Those of
//! answers are kept back where there is room.

mod bodies;
mod entries;
mod extras;
mod hedges;
#[cfg(test)]
pub(crate) mod planted;
mod race;
mod share;
mod slots;
#[cfg(test)]
pub(crate) mod tests;
mod waiting;

pub use race::{LEGS_MAX, Leg, RaceId, is_error};
pub use share::Share;
pub use waiting::Waiting;

use super::server::{Server, ServerId};
use super::servers::Servers;
use crate::clock::Now;
use crate::counters::{Counter, Lane, Shard, Writers};
use crate::pipeline::carried::Carried;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::Query;
use crate::random::Random;
use bodies::{Bodies, Body};
use entries::{AFTER_ANSWER, Entries, Entry, Key, Place, Refused, State, after_timeout};
use extras::KeptExtras;
use race::Ending;
use slots::Slots;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use wire::codes::rcode;
use wire::message::{Header, ResponseParts, parse_response};

/// A backend port of the pool: which socket, and its number in host order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// The pool of the server's source address.
    pub pool: u16,
    /// Index into that pool, good for the batch that picked it.
    pub socket: u16,
    pub number: u16,
    /// Where the port is bound.
    pub source: IpAddr,
}

impl Port {
    /// The end that its queries come from.
    #[inline]
    pub fn end(&self) -> SocketAddr {
        SocketAddr::new(self.source, self.number)
    }
}

/// The longest query that an exchange remembers whole, in bytes; longer ones are handed over.
pub const QUERY_ROOM: usize = 512;

/// Queries in flight that there is room for at most, whatever the configuration says: 2^20 bodies of 704 bytes.
const IN_FLIGHT_MAX: usize = 1 << 20;

/// How many servers may have all their queries in flight at the same time.
const SERVERS_FULL: usize = 4;

/// IDs that are tried before a query is refused. With three quarters of all entries taken, the most there can be, a bucket
/// is full in one of four cases, and eight in a row are in one of 65,000.
const TRIES: usize = 8;

/// Bodies that one call of [`Exchanges::expire`] looks at: about 20 µs.
const WALK_BUDGET: u32 = 1_024;

/// The table of queries in flight.
pub struct Exchanges {
    entries: Entries,
    bodies: Bodies,
    slots: Slots,
    extras: KeptExtras,
    servers: Arc<Servers>,
    /// Which bits of an ID are chosen: all 16 but in tests, where few IDs make them meet.
    id_mask: u16,
    #[cfg(test)]
    planted: planted::Planted,
}

/// Where a query goes, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Departure<'s> {
    pub server: &'s Server,
    pub port: Port,
    pub now: Now,
    /// udpTimeout of the server, else setUDPTimeout.
    pub timeout: Duration,
    /// setMaxUDPOutstanding: queries that the server may have in flight.
    pub maximum_outstanding: u32,
}

/// Why no exchange was opened. The query is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// Longer than [`QUERY_ROOM`]: for the asynchronous runtime.
    QueryTooLong,
    /// The server has as many queries in flight as it may, or all room is taken.
    Full,
    /// No ports are open towards the server: there is no route to it.
    NoPort,
    /// The server is to be told more by the PROXY protocol than a header can have.
    ProxyHeader,
}

impl Exchanges {
    /// Room for `maximum_outstanding` queries (setMaxUDPOutstanding) to each of a few servers, split over `workers`.
    /// Pages that are not used take no memory.
    pub fn new(
        workers: usize,
        maximum_outstanding: u32,
        servers: Arc<Servers>,
        random: &mut Random,
    ) -> Exchanges {
        let wanted = (maximum_outstanding as usize).saturating_mul(SERVERS_FULL);
        let in_flight = wanted.min(IN_FLIGHT_MAX).next_power_of_two();
        let slice = (in_flight / workers).next_power_of_two();
        let slots = Slots::new(workers, slice.trailing_zeros());
        let bodies = slots.count();
        debug_assert!(bodies <= entries::BODIES_MAX);
        Exchanges {
            entries: Entries::new((bodies * 4).next_power_of_two().trailing_zeros(), random),
            bodies: Bodies::new(bodies),
            slots,
            extras: KeptExtras::new(),
            servers,
            id_mask: u16::MAX,
            #[cfg(test)]
            planted: planted::Planted::default(),
        }
    }

    /// The part of worker number `worker`: one for each, and no second one.
    pub fn share(&self, worker: usize) -> Share {
        Share::new(worker)
    }

    /// The servers whose queries are in the table.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Remembers the query and writes the ID into it under which it goes out by `departure.port`.
    pub fn open(
        &self,
        share: &mut Share,
        query: &mut Query<'_>,
        departure: &Departure<'_>,
        random: &mut Random,
    ) -> Result<(), OpenError> {
        self.open_as(share, query, departure, random, |_, _| {})?;
        Ok(())
    }

    /// Opens an exchange, its body being finished by `finish`; the body's number.
    #[inline(always)]
    fn open_as(
        &self,
        share: &mut Share,
        query: &mut Query<'_>,
        departure: &Departure<'_>,
        random: &mut Random,
        finish: impl FnOnce(&Body<'_>, u32),
    ) -> Result<u32, OpenError> {
        if query.length > QUERY_ROOM {
            return Err(OpenError::QueryTooLong);
        }
        let Departure {
            server, port, now, ..
        } = *departure;
        let (id, body) = self.occupy(share, departure, random, |body, index, deadline| {
            body.write(query, server, port, now, deadline);
            if query.extras.is_some() {
                self.extras.keep(index, query.extras.take());
            }
            finish(body, index);
        })?;
        query.message[..2].copy_from_slice(&id.to_be_bytes());
        Ok(body)
    }

    /// Counts one more query in flight to the server and gives it a body and a key; the key's ID and the body's number.
    #[inline(always)]
    fn occupy(
        &self,
        share: &mut Share,
        departure: &Departure<'_>,
        random: &mut Random,
        write: impl FnOnce(&Body<'_>, u32, Now),
    ) -> Result<(u16, u32), OpenError> {
        let server = departure.server;
        if !server.outstanding.enter(departure.maximum_outstanding) {
            return Err(OpenError::Full);
        }
        let Some(occupied) = self.remember(share, departure, random, write) else {
            server.outstanding.leave();
            return Err(OpenError::Full);
        };
        // Only the worker itself opens exchanges.
        let lane = Lane::new(share.worker, Writers::One);
        server.queries.count(lane);
        Ok(occupied)
    }

    /// Has a body written and gives it a key; the key's ID and the body's number.
    #[inline(always)]
    fn remember(
        &self,
        share: &mut Share,
        departure: &Departure<'_>,
        random: &mut Random,
        write: impl FnOnce(&Body<'_>, u32, Now),
    ) -> Option<(u16, u32)> {
        let Departure { now, timeout, .. } = *departure;
        let index = self.slots.take(share.worker, &mut share.hand)?;
        let body = self.bodies.get(index);
        let deadline = Now(now.0 + timeout.as_nanos() as u64);
        write(&body, index, deadline);
        let Some((key, place)) = self.claim(index, departure, random) else {
            self.take_extras(index);
            self.slots.give(index);
            return None;
        };
        body.set_place(place.0);
        share.walk.note(deadline);
        share.walk.saw(share.hand.word());
        Some((key.id(), index))
    }

    /// RFC 5452, section 9.2: "Use an unpredictable query ID for outgoing queries, utilizing the full range available
    /// (0-65535)".
    fn claim(
        &self,
        body: u32,
        departure: &Departure<'_>,
        random: &mut Random,
    ) -> Option<(Key, Place)> {
        (0..TRIES).find_map(|_| {
            let id = random.next_u32() as u16 & self.id_mask;
            #[cfg(test)]
            let id = self.planted_id(id);
            let key = Key::new(departure.port.number, id);
            match self.entries.claim(key, body, departure.now) {
                Ok(place) => Some((key, place)),
                Err(Refused::KeyInUse | Refused::BucketFull | Refused::Lost) => None,
            }
        })
    }

    /// Until when a key is kept back whose exchange ends now.
    #[inline]
    fn kept_until(&self, now: Now, time: Duration) -> Now {
        #[cfg(test)]
        if self.planted.without_quarantine {
            return now;
        }
        Now(now.0 + time.as_nanos() as u64)
    }

    /// Ends the exchange that `message`, received at `local` from `remote`, answers, and copies out what was remembered.
    ///
    /// The whole message, its addresses and its question are compared before anything ends: junk, even from the right
    /// address, does not end the wait for the true answer (invariant I7).
    ///
    /// # Errors
    /// Why it is dropped; nothing has ended.
    pub fn take(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        message: &[u8],
        now: Now,
        shard: &Shard,
        waiting: &mut Waiting,
    ) -> Result<ResponseParts, DropReason> {
        let ends = (local, remote);
        self.take_with(ends, message, false, now, shard, waiting)
    }

    /// The same; `allow_empty`: a response without question, records and error is taken too (setAllowEmptyResponse).
    ///
    /// # Errors
    /// Why it is dropped; nothing has ended.
    #[inline]
    pub fn take_with(
        &self,
        (local, remote): (SocketAddr, SocketAddr),
        message: &[u8],
        allow_empty: bool,
        now: Now,
        shard: &Shard,
        waiting: &mut Waiting,
    ) -> Result<ResponseParts, DropReason> {
        let header = Header::read(message).ok_or(DropReason::ResponseMalformed)?;
        let key = Key::new(local.port(), header.id());
        let mut reason = DropReason::ResponseUnexpected;
        for (place, entry) in self.entries.find(key) {
            if entry.state() != State::Waiting {
                reason = DropReason::ResponseLate;
                continue;
            }
            let body = self.bodies.get(entry.body());
            let found = check(&body, local.ip(), remote, message).and_then(|parts| {
                if !allow_empty && is_empty(&parts) {
                    return Err(DropReason::ResponseMismatch);
                }
                self.end_answered(place, entry, now, waiting, |body| {
                    body.is_between(local.ip(), remote) && repeats_question(body, message, &parts)
                })?;
                Ok(parts)
            });
            match found {
                Ok(parts) => {
                    self.count_answer(waiting, parts.rcode, now, shard);
                    if waiting.is_leg {
                        self.leave_with_answer(entry.body(), parts.rcode, now, waiting)?;
                        return Ok(parts);
                    }
                    self.slots.give(entry.body());
                    return Ok(parts);
                }
                Err(why) => reason = why,
            }
            self.count_junk(&body, remote, reason, shard);
            #[cfg(test)]
            self.heed_junk((place, entry), now);
        }
        Err(reason)
    }

    /// Ends `entry` for an answer that was found to belong to it. The body is the caller's then, to give back.
    fn end_answered(
        &self,
        place: Place,
        entry: Entry,
        now: Now,
        waiting: &mut Waiting,
        belongs: impl FnOnce(&Body<'_>) -> bool,
    ) -> Result<(), DropReason> {
        let free = self.kept_until(now, AFTER_ANSWER);
        if !self.entries.end(place, entry, State::Answered, free) {
            return Err(DropReason::ResponseLate);
        }
        let body = self.bodies.get(entry.body());
        // Between the comparison and the swap this thread may have slept through an ending, a quarantine and an opening
        // with the same key and body: only now nobody else writes, so only now the comparison is final.
        if !belongs(&body) {
            self.entries.reopen(place, entry);
            return Err(DropReason::ResponseMismatch);
        }
        body.read(waiting);
        if body.has_extras() {
            self.read_extras(entry.body(), waiting);
        }
        Ok(())
    }

    /// Gives `waiting`, which the body was read into, the extras of its query. Only for whoever won the entry. Those of a race
    /// stay for its other legs.
    #[cold]
    fn read_extras(&self, body: u32, waiting: &mut Waiting) {
        waiting.extras = match waiting.is_leg {
            true => self.extras.copy(self.bodies.get(body).first_leg()),
            false => self.extras.take(body),
        };
    }

    /// To be called before the body is free.
    fn take_extras(&self, body: u32) -> Carried {
        match self.bodies.get(body).has_extras() {
            true => self.extras.take(body),
            false => Carried::NOTHING,
        }
    }

    fn count_answer(&self, waiting: &Waiting, code: u16, now: Now, shard: &Shard) {
        self.servers.with(waiting.server, |server| {
            server.outstanding.leave();
            server.responses.count(shard.lane);
            server.note_answer(code);
            server.record_latency(now.since(waiting.sent).as_micros() as u64);
        });
    }

    /// The backend's own counts of answers to something else, and of what is no DNS: only what really came from its address.
    fn count_junk(&self, body: &Body<'_>, remote: SocketAddr, reason: DropReason, shard: &Shard) {
        self.servers.with(body.server(), |server| {
            if server.options.address == remote {
                server.count_junk(reason, shard.lane);
            }
        });
    }

    /// Ends the exchange whose query, under the ID it was given, could not be sent.
    pub fn cancel(&self, port: Port, id: u16, now: Now, shard: &Shard) {
        let free = self.kept_until(now, AFTER_ANSWER);
        for (place, entry) in self.entries.find(Key::new(port.number, id)) {
            let waits = entry.state() == State::Waiting;
            if waits && self.entries.end(place, entry, State::Answered, free) {
                let body = self.bodies.get(entry.body());
                let server = body.server();
                if body.is_leg() {
                    self.leave(entry.body(), Ending::Nothing);
                } else {
                    self.take_extras(entry.body());
                    self.slots.give(entry.body());
                }
                shard.count(Counter::DownstreamSendErrors);
                self.servers.with(server, |server| {
                    server.outstanding.leave();
                    server.send_errors.count(shard.lane);
                    server.note_failure();
                });
            }
        }
    }

    /// Ends the exchanges of this worker whose time is over; `on_timeout` sees what each query was, those of a race when its
    /// last leg has ended and none has won: there may be an error to give ([`Waiting::held_rcode`]).
    ///
    /// To be called with every batch: it looks at nothing before the earliest deadline, and at no more than a thousand
    /// exchanges at once; the next call goes on.
    pub fn expire(
        &self,
        share: &mut Share,
        now: Now,
        shard: &Shard,
        waiting: &mut Waiting,
        mut on_timeout: impl FnMut(&Waiting),
    ) {
        if !share.walk.is_due(now) {
            return;
        }
        let mut budget = WALK_BUDGET;
        while share.walk.cursor < share.hand.high() {
            let index = share.walk.cursor;
            let used = self.slots.used(share.worker, &share.hand, index);
            if used.count_ones() > budget {
                return;
            }
            budget -= used.count_ones();
            share.walk.cursor += 1;
            if used != 0 {
                share.walk.saw(index);
            }
            for bit in bits_of(used) {
                let body = self.slots.body(share.worker, index, bit);
                if self.expire_body(body, share, now, waiting) {
                    self.count_timeout(waiting.server, shard);
                    if self.gives_up(body, now, waiting) {
                        on_timeout(waiting);
                    }
                }
            }
        }
        let high = share.walk.finish(now);
        share.hand.lower(high);
    }

    /// Ends the exchange of `body` if its time is over, the body then being the caller's; else notes its deadline.
    fn expire_body(&self, body: u32, share: &mut Share, now: Now, waiting: &mut Waiting) -> bool {
        let words = self.bodies.get(body);
        if words.deadline() > now {
            share.walk.note(words.deadline());
            return false;
        }
        let place = Place(words.place());
        let entry = self.entries.get(place);
        // An answer may be ending it right now; then whoever takes the answer frees the body.
        let waits = entry.state() == State::Waiting && entry.body() == body;
        let waited = words.deadline().since(words.sent());
        let free = self.kept_until(now, after_timeout(waited));
        if !waits || !self.entries.end(place, entry, State::TimedOut, free) {
            return false;
        }
        words.read(waiting);
        if words.has_extras() {
            self.read_extras(body, waiting);
        }
        true
    }

    fn count_timeout(&self, server: ServerId, shard: &Shard) {
        shard.count(Counter::DownstreamTimeouts);
        self.servers.with(server, |server| {
            server.outstanding.leave();
            server.timeouts.count(shard.lane);
            server.note_failure();
        });
    }

    /// When [`Exchanges::expire`] has something to look at again; `None` while nothing of this worker is in flight.
    pub fn next_expiry(&self, share: &Share) -> Option<Now> {
        share.walk.due()
    }
}

/// Whether `message` is a whole response, from whom and to what was asked.
fn check(
    body: &Body<'_>,
    local: IpAddr,
    remote: SocketAddr,
    message: &[u8],
) -> Result<ResponseParts, DropReason> {
    if !body.is_between(local, remote) {
        return Err(DropReason::ResponseMismatch);
    }
    let parts = parse_response(message).map_err(|_| DropReason::ResponseMalformed)?;
    if !repeats_question(body, message, &parts) {
        return Err(DropReason::ResponseMismatch);
    }
    Ok(parts)
}

/// RFC 5452, section 9.1: "A resolver implementation MUST match responses to all of the following attributes of the query:
/// … Query name, Query class and type".
fn repeats_question(body: &Body<'_>, message: &[u8], parts: &ResponseParts) -> bool {
    match parts.question {
        Some(_) => body.asks_for(message),
        None => is_bare(parts),
    }
}

/// The longest error without a question, in bytes: the client's question must find room behind its header.
const BARE_ERROR_MAX: u16 = 512;

/// An error without a question, and without records but EDNS: old servers send it, and those that could not parse the
/// query. It counts as an answer, as it does with dnsdist, or FORMERR and NOTIMP would be time-outs.
pub(super) fn is_bare_error(parts: &ResponseParts) -> bool {
    !is_empty(parts) && is_bare(parts)
}

/// What setAllowEmptyResponse is about, of responses without a question: "a NoError or NXDomain rcode".
pub fn is_empty(parts: &ResponseParts) -> bool {
    parts.question.is_none() && matches!(parts.rcode, rcode::NOERROR | rcode::NXDOMAIN)
}

/// Whether a response has neither question nor records.
pub(super) fn is_bare(parts: &ResponseParts) -> bool {
    let counts = [
        parts.answer_count,
        parts.authority_count,
        parts.additional_count,
    ];
    let records: u32 = counts.map(u32::from).iter().sum();
    parts.question.is_none()
        && records == u32::from(parts.edns.is_some())
        && parts.end <= BARE_ERROR_MAX
}

/// The positions of the bits that are set.
fn bits_of(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (bits != 0).then(|| {
            let bit = bits.trailing_zeros();
            bits &= bits - 1;
            bit
        })
    })
}
