//! What the runtime answers for zones of our own: transfers out (AXFR: RFC 5936; IXFR: RFC 1995), NOTIFY in (RFC 1996),
//! and queries of any kind that are signed (RFC 8945). [`crate::pipeline::zone_traffic`] hands them over.

mod opt;
mod transfers;

pub use transfers::{Messages, alone, transfer};

use super::acl::{Action, Asking};
use super::settings::{Peer, ZoneSettings};
use super::{Live, Order};
use crate::clock::{self, Now};
use crate::config::Config;
use crate::counters::Shard;
use crate::heap;
use crate::log;
use crate::pipeline::authority::limit::Fate;
use crate::pipeline::authority::statistics::{Beside, Operation};
use crate::pipeline::carried::Carried;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::{Arrival, Found, OwnedQuery, Protocol, Way, octets};
use crate::pipeline::{HandOver, respond};
use crate::runtime::{Decision, Shared};
use opt::Opt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use wire::codes::{QtypeText, class, edns_option, opcode, qtype, rcode};
use wire::cookie::Cookie;
use wire::message::{HEADER_LENGTH, Header, parse_query};
use wire::name::NameBuf;
use zone::transfer::query as asked_for;
use zone::tsig::{Refusal, Session, TsigError, verify_request};
use zone::zone::Zone;

/// A query that was handed over, with the configuration that it was judged by.
pub struct Asked {
    pub config: Arc<Config>,
    pub message: Box<[u8]>,
    pub found: Found,
    pub extras: Carried,
    /// Who sent it, to where: the reply's way back.
    pub client: SocketAddr,
    pub destination: SocketAddr,
    /// The path of the listener that it came by.
    pub path: Option<Arc<Path>>,
    pub protocol: Protocol,
    pub way: Way,
}

/// What becomes of it.
pub enum Reply {
    Message(Vec<u8>),
    /// Many messages, over the stream.
    Transfer(Box<Transfer>),
}

/// A zone, or its changes, on its way out.
pub struct Transfer {
    zone: Arc<Zone>,
    live: Arc<Live>,
    settings: Arc<ZoneSettings>,
    state: Arc<super::StateDirectory>,
    /// Header and question of the query.
    head: Box<[u8]>,
    /// The serial that the client has, where it asked for changes.
    known: Option<u32>,
    session: Option<Session>,
    opt: Option<Opt>,
    client: SocketAddr,
    /// What is counted of it when it has ended.
    beside: Beside,
    config: Arc<Config>,
    shard: Arc<Shard>,
}

impl Asked {
    /// A copy of the query out of its buffer. `None`: there is no memory.
    pub fn copy(
        hand_over: &HandOver<'_>,
        found: Found,
        arrival: &Arrival<'_>,
        config: &Arc<Config>,
    ) -> Option<Asked> {
        Some(Asked {
            extras: hand_over.extras.clone(),
            config: Arc::clone(config),
            message: heap::copy(arrival.bytes(found.length.into()))?.into_boxed_slice(),
            found,
            client: *arrival.client,
            destination: *arrival.destination,
            path: config.path_at(arrival.listener).map(Arc::clone),
            protocol: arrival.protocol,
            way: *arrival.way,
        })
    }

    /// Who asks: where a proxy passed the query on, as that says.
    fn asker(&self) -> SocketAddr {
        let proxied = self.extras.as_ref().and_then(|extras| extras.proxied);
        proxied.map_or(self.client, |proxied| proxied.client)
    }

    /// The path that whoever asks has come by. `None`: he has an address, as a proxy says where one passed the query on.
    fn path(&self) -> Option<&Path> {
        let extras = self.extras.as_ref();
        let is_proxied = extras.is_some_and(|extras| extras.proxied.is_some());
        self.path.as_deref().filter(|_| !is_proxied)
    }

    /// The reply. Reads a journal, which may take a moment: where that is allowed.
    pub fn reply(&self, shared: &Shared) -> Option<Reply> {
        let key_of = |name: wire::name::Name<'_>| self.config.local.key(name);
        let verified = verify_request(&self.message, key_of, clock::unix());
        let extras = self.extras.as_ref();
        if let Some(answer) = extras.and_then(|extras| extras.answer.as_ref()) {
            return self.ruled(answer, verified, shared);
        }
        match verified {
            Err(refusal) => self.refused(*refusal, shared),
            Ok(session) => {
                let length = session
                    .as_ref()
                    .map_or(self.message.len(), Session::request_length);
                let request = unsigned(&self.message, length, session.is_some());
                self.judged(&request, session, shared)
            }
        }
    }

    /// What a rule answered, signed where the query is with a key of ours.
    fn ruled(
        &self,
        answer: &[u8],
        verified: Result<Option<Session>, Box<Refusal>>,
        shared: &Shared,
    ) -> Option<Reply> {
        let mut message = answer.to_vec();
        match verified {
            Ok(Some(mut session)) => {
                // RFC 8945 §5.3: "If addition of the TSIG record will cause the message to be truncated, the server MUST
                // alter the response so that a TSIG can be included."
                if message.len() + session.signature_length() > usize::from(self.found.limit) {
                    message = self.come_by_tcp();
                }
                session.sign(&mut message, clock::unix());
            }
            // The key may be that of a server behind us: what a rule says holds without it.
            Err(refusal) if refusal.error != TsigError::BadKey => {
                return self.refused(*refusal, shared);
            }
            Ok(None) | Err(_) => {}
        }
        Some(Reply::Message(message))
    }

    fn refused(&self, refusal: Refusal, shared: &Shared) -> Option<Reply> {
        log::verbose!(
            "{}: {} for {} is refused: {}",
            self.asker(),
            QtypeText(self.found.parts.qtype),
            self.found.parts.qname(&self.message),
            refusal.error
        );
        let (code, signature_error) = (refusal.rcode(), refusal.tsig_error());
        if self.fate(code, shared) == Fate::Dropped {
            return self.dropped(shared);
        }
        // NOTAUTH says here that a signature is no good, not whose the zone is.
        let mut answer = self.refusal(code, None);
        refusal.sign(&mut answer);
        self.count(&answer, code, signature_error, shared);
        Some(Reply::Message(answer))
    }

    /// What becomes of an answer with this code where answers are limited.
    fn fate(&self, code: u16, shared: &Shared) -> Fate {
        let limit = self.config.authority.limit.as_ref();
        let Some(limit) = limit.filter(|_| self.protocol == Protocol::Udp) else {
            return Fate::Sent;
        };
        let kind = (self.zone(), self.found.parts.qtype, code);
        shared.with_env(&self.config, |env| match self.has_good_cookie(env.now) {
            true => Fate::Sent,
            false => limit.judge_beside(self.asker().ip(), kind, env),
        })
    }

    /// Whether the client has shown that it gets what is sent to its address (RFC 7873 §5.2.5).
    fn has_good_cookie(&self, now: Now) -> bool {
        let cookies = self.config.authority.cookies.as_ref();
        let Some((cookies, edns)) = cookies.zip(self.found.parts.edns) else {
            return false;
        };
        let option = edns.option(&self.message, edns_option::COOKIE);
        let cookie = option.and_then(Cookie::parse);
        cookie.is_some_and(|cookie| cookies.answer(&cookie, self.asker().ip(), now).1)
    }

    /// No answer: it would have been one above the limit. Counted.
    fn dropped(&self, shared: &Shared) -> Option<Reply> {
        let statistics = &self.config.authority.statistics;
        statistics.count_unanswered(self.zone(), &self.beside(), &shared.shard);
        shared.shard.count_drop(DropReason::ResponseRate);
        None
    }

    /// What goes in place of an answer with records that is above the limit: "come by TCP", signed where the request was; counted.
    fn slipped(&self, session: Option<Session>, shared: &Shared) -> Option<Reply> {
        let mut message = self.come_by_tcp();
        if let Some(mut session) = session {
            session.sign(&mut message, clock::unix());
        }
        self.count(&message, rcode::NOERROR, None, shared);
        Some(Reply::Message(message))
    }

    /// An answer that is cut to nothing.
    fn come_by_tcp(&self) -> Vec<u8> {
        let mut message = self.refusal(rcode::NOERROR, None);
        respond::edit_header(&mut message, |header| header.set_tc(true));
        message
    }

    /// Counts the query and its one answer, which has this code.
    fn count(&self, answer: &[u8], code: u16, signature_error: Option<u16>, shared: &Shared) {
        let beside = Beside {
            response_octets: answer.len() as u64,
            rcode: code,
            signature_error,
            ..self.beside()
        };
        let statistics = &self.config.authority.statistics;
        statistics.count_beside(self.zone(), &beside, &shared.shard);
        // The answer of a rule, in whose place this one may go, has been counted.
        let extras = self.extras.as_ref();
        if extras.is_none_or(|extras| extras.answer.is_none()) {
            respond::count_from_zone(answer, &shared.shard);
        }
    }

    /// What there is to count before there is an answer.
    fn beside(&self) -> Beside {
        let edns = self.found.parts.edns;
        Beside {
            way: (self.protocol, self.way),
            client: self.asker(),
            operation: Operation::of(self.message[2], self.found.parts.qtype),
            has_edns: edns.is_some(),
            dnssec_ok: edns.is_some_and(|edns| edns.dnssec_ok),
            request_octets: self.message.len() as u64,
            response_octets: 0,
            rcode: rcode::NOERROR,
            signature_error: None,
        }
    }

    /// The number of the zone that is asked for by its very name, and serves the query's pool.
    fn zone(&self) -> Option<usize> {
        let name = self.found.parts.qname(&self.message);
        let pools = &self.config.authority.pools;
        let number = self.config.local.zones().number_of(name);
        number.filter(|number| pools.serves(*number, self.found.pool))
    }

    /// An answer without records, with this code and extended error.
    fn refusal(&self, code: u16, error: Option<u16>) -> Vec<u8> {
        let mut answer = self.bare(code);
        if let Some(opt) = Opt::of(self) {
            opt.append(&mut answer, code, error);
        }
        answer
    }

    /// Header and question of the query.
    fn head(&self) -> &[u8] {
        &self.message[..self.found.parts.question_end.into()]
    }

    /// Octets that an answer may have, its signature counted.
    fn limit(&self) -> usize {
        let configured = usize::from(self.config.tuning.payload_size_self_generated);
        match self.protocol {
            Protocol::Udp => configured.min(self.found.limit.into()),
            Protocol::Tcp => self.found.limit.into(),
        }
    }

    /// Header and question with this code, whose upper bits are the OPT record's.
    fn bare(&self, code: u16) -> Vec<u8> {
        let mut answer = self.head().to_vec();
        let asked = Header::read(&answer).unwrap_or_default();
        let mut header = Header::default();
        header.set_id(asked.id());
        header.set_qr(true);
        header.set_opcode(asked.opcode());
        header.set_rd(asked.rd());
        header.set_rcode((code & 15) as u8);
        header.set_question_count(1);
        answer[..HEADER_LENGTH].copy_from_slice(header.as_bytes());
        answer
    }

    fn judged(&self, request: &[u8], session: Option<Session>, shared: &Shared) -> Option<Reply> {
        let opcode = Header::read(request)?.opcode();
        let is_newer = self.found.parts.edns.is_some_and(|edns| edns.version > 0);
        let code = match (opcode, self.found.parts.qtype) {
            // RFC 6891 §6.1.3: "If a responder does not implement the VERSION level of the request, then it MUST respond
            // with RCODE=BADVERS."
            _ if is_newer && self.config.tuning.edns_in_self_generated => rcode::BADVERS,
            (opcode::NOTIFY, _) => self.notified(request, session.as_ref()),
            (opcode::QUERY, qtype::AXFR | qtype::IXFR) => {
                return self.transfer(request, session, shared);
            }
            (opcode::QUERY, _) => {
                return self.ordinary(request, session?, shared).map(Reply::Message);
            }
            _ => rcode::NOTIMP,
        };
        self.answered(session, code, shared)
    }

    /// An answer without records, signed where the request was; counted.
    fn answered(&self, mut session: Option<Session>, code: u16, shared: &Shared) -> Option<Reply> {
        let error = match self.fate(code, shared) {
            Fate::Sent => opt::error_of(code),
            // RFC 2136 §2.2, RFC 1996 §3.4: UPDATE and NOTIFY know no TC; and NOERROR would say that an UPDATE was made.
            Fate::Slipped => None,
            Fate::Dropped => return self.dropped(shared),
        };
        let mut message = self.refusal(code, error);
        let is_notify =
            Header::read(&message).is_some_and(|header| header.opcode() == opcode::NOTIFY);
        if let Some(mut header) =
            Header::read(&message).filter(|_| is_notify && code == rcode::NOERROR)
        {
            header.set_aa(true);
            message[..HEADER_LENGTH].copy_from_slice(header.as_bytes());
        }
        if let Some(session) = &mut session {
            session.sign(&mut message, clock::unix());
        }
        self.count(&message, code, None, shared);
        Some(Reply::Message(message))
    }

    /// The zone that is asked for by its very name, if this client may.
    ///
    /// # Errors
    /// The code that says why not.
    fn permitted(
        &self,
        action: Action,
        session: Option<&Session>,
    ) -> Result<(&Arc<Live>, &Arc<ZoneSettings>), u16> {
        // RFC 1035 §4.1.2: QCLASS "specifies the class of the query", and IN is that of all zones here.
        let is_internet = self.found.parts.qclass == class::IN;
        let number = self.zone().filter(|_| is_internet);
        let zone = number.and_then(|number| self.config.local.numbered(number));
        // RFC 5936 §2.2.1: "If a server is not authoritative for the queried zone, the server SHOULD set the value to
        // NotAuth(9)."
        let (live, settings) = zone.ok_or(rcode::NOTAUTH)?;
        let key = session.map(|session| session.key().name());
        let (client, path) = (self.asker().ip(), self.path());
        let is_primary = |settings: &ZoneSettings| {
            let has_address = |peer: &Peer| {
                path.is_none() && peer.address.ip().to_canonical() == client.to_canonical()
            };
            settings.primaries.iter().any(|peer| {
                let peer_key = peer.key.as_ref().map(|key| key.name());
                has_address(peer) && (peer_key.is_none() || peer_key == key)
            })
        };
        let asking = Asking {
            client,
            path,
            key,
            protocol: self.protocol,
        };
        let said = settings.acl.says(action, asking);
        let is_allowed = said.unwrap_or_else(|| action == Action::Notify && is_primary(settings));
        if is_allowed {
            return Ok((live, settings));
        }
        log::verbose!(
            "zone {}: {} may not {action:?} over {:?}: {}{}",
            live.apex,
            path.map_or_else(|| client.to_string(), |path| path.display().to_string()),
            self.protocol,
            match said {
                Some(_) => "an acl entry denies it",
                None => "no acl entry names it",
            },
            if key.is_some() {
                " with its key"
            } else {
                "; its message was not signed"
            }
        );
        Err(rcode::REFUSED)
    }

    /// Passes a NOTIFY on; the code of its answer, which repeats the question (RFC 1996 §4.7).
    fn notified(&self, request: &[u8], session: Option<&Session>) -> u16 {
        if self.found.parts.qtype != qtype::SOA {
            return rcode::FORMERR;
        }
        let live = match self.permitted(Action::Notify, session) {
            Ok((live, settings)) if settings.is_secondary() => live,
            // RFC 1996 §3.10 leaves it open; a primary is told nothing.
            Ok(_) => return rcode::NOTAUTH,
            Err(code) => return code,
        };
        let serial = parse_query(request)
            .ok()
            .and_then(|parts| asked_for::stated_serial(request, &parts));
        let order = Order::Notified {
            from: self.asker().ip().to_canonical(),
            serial,
        };
        // Where the queue is full, its task will look at the primaries anyway.
        live.orders.offer(order);
        rcode::NOERROR
    }

    /// A transfer out, or why not.
    fn transfer(&self, request: &[u8], session: Option<Session>, shared: &Shared) -> Option<Reply> {
        let refuse = |session, code| self.answered(session, code, shared);
        let (live, settings) = match self.permitted(Action::Transfer, session.as_ref()) {
            Ok(permitted) => permitted,
            Err(code) => return refuse(session, code),
        };
        if live.is_withheld() {
            return refuse(session, rcode::REFUSED);
        }
        let Some(zone) = live.served() else {
            return refuse(session, rcode::SERVFAIL);
        };
        let is_incremental = self.found.parts.qtype == qtype::IXFR;
        let known = parse_query(request)
            .ok()
            .filter(|_| is_incremental)
            .and_then(|parts| asked_for::stated_serial(request, &parts));
        // RFC 1995 §3: an IXFR query has the SOA record of the client's version.
        if is_incremental && known.is_none() {
            return refuse(session, rcode::FORMERR);
        }
        let transfer = Transfer {
            zone,
            live: Arc::clone(live),
            settings: Arc::clone(settings),
            state: Arc::clone(self.config.local.state()),
            head: self.head().into(),
            known,
            session,
            opt: Opt::of(self).map(|opt| opt.with_expiry(self)),
            client: self.asker(),
            beside: self.beside(),
            config: Arc::clone(&self.config),
            shard: Arc::clone(&shared.shard),
        };
        match (self.protocol, is_incremental) {
            (Protocol::Tcp, _) => Some(Reply::Transfer(Box::new(transfer))),
            (Protocol::Udp, true) => match self.fate(rcode::NOERROR, shared) {
                Fate::Sent => Some(Reply::Message(transfer.datagram(self.limit()))),
                Fate::Slipped => self.slipped(transfer.session, shared),
                Fate::Dropped => self.dropped(shared),
            },
            // RFC 5936 §4.2: AXFR over UDP is "not defined".
            (Protocol::Udp, false) => refuse(transfer.session, rcode::NOTIMP),
        }
    }

    /// A query like any other, but signed: answered as others are, and signed.
    fn ordinary(&self, request: &[u8], mut session: Session, shared: &Shared) -> Option<Vec<u8>> {
        let parts = parse_query(request).ok()?;
        let limit = self.limit().saturating_sub(session.signature_length());
        let found = Found {
            length: octets(request.len()),
            parts,
            limit: octets(limit),
            ..self.found
        };
        let ends = (self.client, self.destination);
        let mut query = OwnedQuery::copy(request, limit, ends, (self.protocol, self.way))?;
        let extras = self.extras.clone();
        let mut decision = shared.resume(&self.config, &mut query, &found, extras);
        if let Decision::Suspended(ticket) = decision {
            // The signature's time is now.
            (query, decision) = shared.go_on(ticket.take()?, None)?;
        }
        let Decision::Answer(length, _) = decision else {
            return None;
        };
        let mut answer = query.bytes(length).to_vec();
        session.sign(&mut answer, clock::unix());
        Some(answer)
    }
}

/// The message as it was before it was signed.
fn unsigned(message: &[u8], length: usize, was_signed: bool) -> Vec<u8> {
    let mut message = message[..length].to_vec();
    if was_signed && let Some(mut header) = Header::read(&message) {
        header.set_additional_count(header.additional_count().saturating_sub(1));
        message[..HEADER_LENGTH].copy_from_slice(header.as_bytes());
    }
    message
}

/// How the log calls a zone.
fn shown(zone: &Zone) -> NameBuf {
    zone.apex()
}
