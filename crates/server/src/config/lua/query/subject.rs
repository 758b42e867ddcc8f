//! What `dq` and `dr` look at: a copy of a query or response, and of what was decided about it.

use super::super::{place, wrong};
use super::{answers, asynchronous};
use crate::backend::server::ServerId;
use crate::clock::Now;
use crate::config::pools::PoolId;
use crate::config::{Config, Tuning};
use crate::holder::{Holder, Key, Reservation};
use crate::pipeline::Env;
use crate::pipeline::carried::Carried;
use crate::pipeline::extras::{Extras, Marks};
use crate::pipeline::query::{MESSAGE_MAX, Protocol, Query, octets};
use crate::pipeline::subnet::{SubnetTuning, SubnetWishes};
use crate::pipeline::suspended::Suspended;
use mlua::Lua;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wire::answer::truncate_response;
use wire::codes::rcode;
use wire::message::{Header, QueryParts, parse_query, parse_response};
use wire::name::Name;

/// Where an OPT record has the upper bits of the response code: behind its name, type and class (RFC 6891 §6.1.3).
const EXTENDED_RCODE_AT: usize = 5;

/// The query or response of the call that runs.
pub(super) struct Subject {
    /// What functions call it.
    pub(super) name: &'static str,
    /// A call runs.
    live: bool,
    /// All of the message, what trails it included.
    pub(super) message: Vec<u8>,
    /// The message is not the one that came.
    changed: bool,
    /// The message was an answer before the call.
    was_answer: bool,
    /// The call has made the whole message, or an answer with records of its own: it is sent as it is.
    pub(super) composed: bool,
    /// The upper bits of the response code that the call has given a query, for the answer that it may become.
    pub(super) extended_rcode: u8,
    /// Where its parts are.
    pub(super) parts: QueryParts,
    /// The header's second word as the client sent it.
    pub(super) client_flags: u16,
    /// Where the client is.
    pub(super) client: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) protocol: Protocol,
    pub(super) pool: PoolId,
    pub(super) skip_cache: bool,
    pub(super) marks: Marks,
    pub(super) extras: Carried,
    pub(super) received: Now,
    /// Whose response it is.
    pub(super) server: Option<ServerId>,
    /// The UDP payload size in octets of an OPT record of ours; `None`: answers of ours have none.
    pub(super) own_payload_size: Option<u16>,
    /// What servers with `useClientSubnet` are told, where nothing else is said of this query.
    pub(super) subnets: SubnetTuning,
    /// The call may suspend it.
    may_wait: bool,
    /// The call has; none between calls.
    suspension: Option<Reservation>,
    /// It was suspended before.
    pub(super) is_held: bool,
}

/// Where a query or response comes from.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    /// When the client did.
    pub(super) asked: Now,
    /// Whose response it is.
    pub(super) server: Option<ServerId>,
    /// It may be suspended.
    pub(super) may_wait: bool,
}

impl Origin {
    /// Of a query that has just come.
    pub(super) fn query(env: &Env<'_>) -> Origin {
        Origin {
            asked: env.now,
            server: None,
            may_wait: false,
        }
    }

    /// Of a query that an action is for. One that is supposed goes nowhere; the answer to one that is signed has its time.
    pub(super) fn of_action(query: &Query<'_>, env: &Env<'_>) -> Origin {
        Origin {
            may_wait: !env.is_rehearsal() && !query.parts.is_signed,
            ..Origin::query(env)
        }
    }
}

/// Behind a lock for the language's sake: whoever gets here has the state's.
pub(super) type Shared = Arc<Mutex<Subject>>;

/// What an object of Lua's looks at.
pub(super) trait Live {
    fn subject(&self) -> &Shared;
}

/// Does something with what `object` looks at.
///
/// # Errors
/// That of `act`, with the line that called; and that the call of the object has ended.
pub(super) fn with<R>(
    lua: &Lua,
    object: &impl Live,
    act: impl FnOnce(&mut Subject) -> mlua::Result<R>,
) -> mlua::Result<R> {
    let mut subject = lock(object.subject());
    let result = match subject.live {
        true => act(&mut subject),
        false => Err(ended(subject.name)),
    };
    drop(subject);
    result.map_err(|error| {
        wrong(format!(
            "{}: {}",
            place::caller(lua),
            place::text_of(&error)
        ))
    })
}

fn ended(name: &str) -> mlua::Error {
    wrong(format!(
        "this {name} belongs to a call that has ended, or has suspended it: keep what is needed of it in variables"
    ))
}

fn lock(subject: &Shared) -> std::sync::MutexGuard<'_, Subject> {
    subject.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subject {
    /// One that looks at nothing yet.
    pub(super) fn shared(name: &'static str) -> Shared {
        let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        Arc::new(Mutex::new(Subject {
            name,
            live: false,
            message: Vec::new(),
            changed: false,
            was_answer: false,
            composed: false,
            extended_rcode: 0,
            parts: QueryParts {
                qname_length: 1,
                labels: 0,
                qtype: 0,
                qclass: 0,
                question_end: 0,
                end: 0,
                edns: None,
                is_signed: false,
            },
            client_flags: 0,
            client: nobody,
            destination: nobody,
            protocol: Protocol::Udp,
            pool: PoolId::DEFAULT,
            skip_cache: false,
            marks: Marks::default(),
            extras: Carried::NOTHING,
            received: Now::default(),
            server: None,
            own_payload_size: None,
            subnets: SubnetTuning::default(),
            may_wait: false,
            suspension: None,
            is_held: false,
        }))
    }

    /// Looks at `query` while `act` runs, and puts into it what has changed, whatever `act` came to.
    ///
    /// # Errors
    /// That of `act`, or there is no memory for what has changed.
    pub(super) fn lend<R>(
        shared: &Shared,
        query: &mut Query<'_>,
        origin: Origin,
        env: &Env<'_>,
        act: impl FnOnce() -> mlua::Result<R>,
    ) -> mlua::Result<R> {
        let mut subject = lock(shared);
        subject.copy(query, origin, env.config);
        subject.extras = query.extras.take();
        drop(subject);
        let result = act();
        let mut subject = lock(shared);
        let is_unloaded = subject.unload(query);
        if subject.suspension.is_some() {
            let suspension = subject.suspension.take();
            drop(subject);
            // A call that fails has suspended nothing.
            if let Some(reservation) = suspension.filter(|_| is_unloaded && result.is_ok()) {
                asynchronous::hold(reservation, query, origin, env)?;
            }
        }
        match is_unloaded {
            true => result,
            false => Err(wrong("no memory for the longer message")),
        }
    }

    /// Looks at `query` while `act` runs; what changes is not kept.
    pub(super) fn show<R>(
        shared: &Shared,
        query: &Query<'_>,
        env: &Env<'_>,
        act: impl FnOnce() -> R,
    ) -> R {
        let mut subject = lock(shared);
        subject.copy(query, Origin::query(env), env.config);
        subject.extras.clone_from(&query.extras);
        drop(subject);
        let result = act();
        lock(shared).live = false;
        result
    }

    /// Changes what a call looks at that has not ended.
    pub(super) fn change(
        shared: &Shared,
        change: &dyn Fn(&mut Subject) -> mlua::Result<()>,
    ) -> mlua::Result<()> {
        change(&mut lock(shared))
    }

    /// `dq:suspend`: "Returns true on success and false on failure, indicating that the query has not been suspended and the
    /// normal processing will continue." It takes effect when the call ends without an error.
    pub(super) fn suspend(&mut self, holder: &Arc<Holder>, key: Key, timeout: Duration) -> bool {
        let extras = self.extras.as_ref();
        let is_unwanted = extras.is_some_and(|extras| extras.wants_restart());
        if !self.may_wait || is_unwanted {
            return false;
        }
        self.suspension = holder.reserve(key, timeout, self.message.len());
        // "Note that the DNSQuestion object should NOT be accessed after successfully calling this method."
        self.live = self.suspension.is_none();
        !self.live
    }

    /// One that looks at what was suspended, from call to call.
    pub(super) fn of(suspended: &mut Suspended) -> Shared {
        let name = match suspended.server {
            None => "dq",
            Some(_) => "dr",
        };
        let shared = Subject::shared(name);
        let origin = Origin {
            asked: suspended.asked,
            server: suspended.server,
            may_wait: false,
        };
        let config = Arc::clone(&suspended.config);
        let view = suspended.view();
        let mut subject = lock(&shared);
        subject.copy(&view, origin, &config);
        subject.extras.clone_from(&view.extras);
        subject.is_held = true;
        drop(subject);
        shared
    }

    /// Puts what has changed into what was suspended, which goes on.
    pub(super) fn put_into(shared: &Shared, suspended: &mut Suspended) {
        let mut subject = lock(shared);
        subject.end();
        suspended.message.clone_from(&subject.message);
        suspended.extras = subject.extras.take();
        let found = &mut suspended.found;
        found.length = octets(subject.message.len());
        found.parts = subject.parts;
        (found.pool, found.skip_cache) = (subject.pool, subject.skip_cache);
        found.marks = subject.marks;
    }

    fn copy(&mut self, query: &Query<'_>, origin: Origin, config: &Config) {
        self.live = true;
        self.message.clear();
        self.message.extend_from_slice(query.bytes());
        self.changed = false;
        self.was_answer = query.header().qr();
        self.composed = false;
        self.extended_rcode = 0;
        self.parts = query.parts;
        self.client_flags = query.client_flags;
        self.client = *query.client();
        self.destination = *query.destination();
        self.protocol = query.protocol;
        self.pool = query.pool;
        self.skip_cache = query.skip_cache;
        self.marks = query.marks;
        self.received = origin.asked;
        self.server = origin.server;
        self.own_payload_size = own_payload_size(&config.tuning);
        self.subnets = config.tuning.subnets;
        self.may_wait = origin.may_wait;
    }

    /// False: there is no memory for a message that has become longer; the query has the one that it had.
    fn unload(&mut self, query: &mut Query<'_>) -> bool {
        self.end();
        query.pool = self.pool;
        query.skip_cache = self.skip_cache;
        query.marks = self.marks;
        query.extras = self.extras.take();
        if self.changed {
            let length = self.message.len();
            // No longer than a message may be: `replace` sees to that.
            if !query.grow(length) {
                return false;
            }
            query.message[..length].copy_from_slice(&self.message);
            query.length = self.message.len();
            query.parts = self.parts;
        }
        true
    }

    /// Nobody changes it any more.
    fn end(&mut self) {
        self.live = false;
        if self.header().qr() && !self.was_answer && !self.composed {
            answers::from_header(self);
        }
    }

    pub(super) fn header(&self) -> Header {
        Header::read(&self.message).unwrap_or_default()
    }

    pub(super) fn edit_header(&mut self, edit: impl FnOnce(&mut Header)) {
        let mut header = self.header();
        edit(&mut header);
        self.changed |= header.write(&mut self.message).is_some();
    }

    /// Gives the message a response code. What four bits do not hold stands in its OPT record; an answer without one says
    /// SERVFAIL, for the lower bits alone would mean something else.
    pub(super) fn set_rcode(&mut self, code: u8) {
        let upper = code >> 4;
        let mut low = code & 15;
        if !self.was_answer && !self.composed {
            // Whether its answer has an OPT record is known when the call has ended.
            self.extended_rcode = upper;
        } else if let Some(edns) = &mut self.parts.edns {
            edns.extended_rcode = upper;
            let at = usize::from(edns.start) + EXTENDED_RCODE_AT;
            if let Some(octet) = self.message.get_mut(at) {
                *octet = upper;
            }
        } else if upper > 0 {
            low = rcode::SERVFAIL as u8;
        }
        self.edit_header(|header| header.set_rcode(low));
    }

    /// Writes TTLs, in seconds, to their places.
    pub(super) fn write_ttls(&mut self, ttls: &[(usize, u32)]) {
        for (place, ttl) in ttls {
            if let Some(field) = self.message.get_mut(*place..place + 4) {
                field.copy_from_slice(&ttl.to_be_bytes());
                self.changed = true;
            }
        }
    }

    /// The name asked for; the root where there is no question (SpoofPacketAction sends what it was given).
    pub(super) fn name(&self) -> Name<'_> {
        match usize::from(self.parts.question_end) <= self.message.len() {
            true => self.parts.qname(&self.message),
            false => Name::ROOT,
        }
    }

    /// What travels with the query.
    pub(super) fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// What rules and functions have said of the client's network.
    pub(super) fn subnet_wishes(&self) -> SubnetWishes {
        let extras = self.extras.as_ref();
        extras
            .map(|extras| extras.subnet.clone())
            .unwrap_or_default()
    }

    /// AsynchronousObject:setRCode: a query becomes an answer without records, for no other message has a response code (RFC 1035
    /// §4.1.1: it is "set as part of responses"). A response keeps its records, but where they are to go.
    pub(super) fn answer_with(&mut self, code: u8, clear_records: bool) {
        let is_cut = self.header().tc();
        if clear_records && self.was_answer {
            self.truncate();
        }
        self.set_rcode(code);
        self.edit_header(|header| {
            header.set_qr(true);
            header.set_tc(is_cut);
        });
    }

    /// Takes all records but the OPT record out of the response, and sets TC.
    pub(super) fn truncate(&mut self) {
        let mut message = self.message.clone();
        let length = message.len();
        let left = truncate_response(&mut message, length);
        message.truncate(left);
        self.replace(message);
    }

    /// Takes `message` in place of the one there is. False, and nothing has changed: it is no DNS message with one
    /// question, or longer than such a message can be.
    pub(super) fn replace(&mut self, message: Vec<u8>) -> bool {
        let Some(parts) = parts_of(&message).filter(|_| message.len() <= MESSAGE_MAX) else {
            return false;
        };
        self.message = message;
        self.parts = parts;
        self.changed = true;
        true
    }
}

fn own_payload_size(tuning: &Tuning) -> Option<u16> {
    tuning
        .edns_in_self_generated
        .then_some(tuning.payload_size_self_generated)
}

/// Where the parts of a query are, or of a response.
fn parts_of(message: &[u8]) -> Option<QueryParts> {
    let header = Header::read(message)?;
    if !header.qr() {
        return parse_query(message).ok();
    }
    let parts = parse_response(message).ok()?;
    let question = parts.question?;
    Some(QueryParts {
        qname_length: question.qname_length,
        labels: question.labels,
        qtype: question.qtype,
        qclass: question.qclass,
        question_end: question.end,
        end: parts.end,
        edns: parts.edns,
        is_signed: false,
    })
}
