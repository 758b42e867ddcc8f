//! A query as the stages see it, and where it came from.

use super::authority::statistics::{Beside, Operation};
use super::carried::Carried;
use super::drop::DropReason;
use super::extras::{Extras, Marks};
use super::muted::is_muted;
use super::proxy::{InFront, Proxied};
use super::{Env, Verdict, authority};
use crate::config::pools::PoolId;
use crate::counters::{Counter, Passage};
use crate::heap;
use std::net::SocketAddr;
use wire::answer::{OptFields, append_opt};
use wire::frame::Mac;
use wire::message::{Header, QueryError, QueryParts, parse_response, refused_dnssec_ok};
use wire::name::Name;
use wire::proxy::Transport;

/// How a query reached us. dnsdist's words are those of `IncomingProtocolRule`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Udp,
    Tcp,
}

impl Protocol {
    /// What the PROXY protocol calls it.
    pub fn transport(self) -> Transport {
        match self {
            Protocol::Udp => Transport::Datagram,
            Protocol::Tcp => Transport::Stream,
        }
    }
}

/// The way an answer goes back to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the ring of this device, to this Ethernet address. `device` is an index into the table of devices
    /// (network::devices), the same in every worker.
    Xsk {
        device: u8,
        client_mac: Mac,
        our_mac: Mac,
    },
    /// By the kernel socket of the listener with this number.
    Socket { listener: u16 },
    /// By the stream that the asynchronous runtime holds.
    Stream,
}

/// No place of a listener.
pub const NO_LISTENER: u16 = u16::MAX;

/// The longest DNS message, in bytes: TCP's length field has two octets (RFC 1035 §4.2.2).
pub const MESSAGE_MAX: usize = 65_535;

/// So many octets of a message, as a [`Found`] holds them; of more than a message may have, as many as it may.
#[inline]
pub fn octets(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

const _: () = assert!(MESSAGE_MAX == u16::MAX as usize);

/// A message that a frontend received, before anybody looked at it.
pub struct Arrival<'m> {
    /// The room for the message and for its answer: the query at the front, `length` bytes of it.
    pub message: &'m mut [u8],
    pub length: usize,
    pub client: &'m SocketAddr,
    /// The address and port that the client sent to: the source of the answer.
    pub destination: &'m SocketAddr,
    pub protocol: Protocol,
    pub way: &'m Way,
    /// The listener's place in the configuration (`Config::place_of`), for its counters and its word on proxies;
    /// [`NO_LISTENER`] where nobody counts.
    pub listener: u16,
    /// The longest answer that this door can carry, in bytes. It may be more than `message.len()`: what a frame has no room
    /// for, the kernel socket beside it carries.
    pub room: usize,
    /// Where a query or answer goes on that `message` has no room for, see [`Query::grow`]; empty before.
    pub outgrown: &'m mut Vec<u8>,
    pub in_front: InFront,
}

/// Who sent a query, and the address and port that it was sent to: the answer's way back.
pub type Ends<'m> = (&'m SocketAddr, &'m SocketAddr);

/// The listener's place in the configuration, and what a query came by: whose counters it is in.
pub type Door = (u16, Protocol);

impl Arrival<'_> {
    #[inline(always)]
    pub fn door(&self) -> Door {
        (self.listener, self.protocol)
    }

    /// The first `length` bytes of what a verdict tells of, wherever it lies.
    pub fn bytes(&self, length: usize) -> &[u8] {
        match self.outgrown.is_empty() {
            true => &self.message[..length],
            false => &self.outgrown[..length],
        }
    }
}

/// An [`Arrival`] that owns its bytes: for doors whose buffers are not theirs to keep, or which wait.
#[derive(Debug)]
pub struct OwnedQuery {
    message: Box<[u8]>,
    outgrown: Vec<u8>,
    length: usize,
    pub client: SocketAddr,
    pub destination: SocketAddr,
    pub protocol: Protocol,
    pub way: Way,
    in_front: InFront,
}

impl OwnedQuery {
    /// A copy of `query` in a buffer with room for an answer of `room` bytes. `None`: there is no memory.
    pub fn copy(
        query: &[u8],
        room: usize,
        (client, destination): (SocketAddr, SocketAddr),
        (protocol, way): (Protocol, Way),
    ) -> Option<OwnedQuery> {
        let mut message = heap::zeroed(room.max(query.len()))?.into_boxed_slice();
        message[..query.len()].copy_from_slice(query);
        Some(OwnedQuery {
            message,
            outgrown: Vec::new(),
            length: query.len(),
            client,
            destination,
            protocol,
            way,
            in_front: InFront::Nothing,
        })
    }

    /// The same where the header of a proxy stands in front of the query.
    pub fn behind_header(self) -> OwnedQuery {
        OwnedQuery {
            in_front: InFront::Header,
            ..self
        }
    }

    /// The form in which the stages take it.
    pub fn as_arrival(&mut self) -> Arrival<'_> {
        Arrival {
            room: self.message.len().min(MESSAGE_MAX),
            message: &mut self.message,
            length: self.length,
            client: &self.client,
            destination: &self.destination,
            protocol: self.protocol,
            way: &self.way,
            listener: NO_LISTENER,
            outgrown: &mut self.outgrown,
            in_front: self.in_front,
        }
    }

    /// The first `length` bytes of the buffer: the query, or the answer that a verdict tells of.
    pub fn bytes(&self, length: usize) -> &[u8] {
        match self.outgrown.is_empty() {
            true => &self.message[..length],
            false => &self.outgrown[..length],
        }
    }
}

/// A query that was parsed: rules, cache and route work on it.
pub struct Query<'m> {
    pub message: &'m mut [u8],
    pub length: usize,
    pub parts: QueryParts,
    /// Who asks is somebody else where a proxy passed it on: [`Query::client`].
    pub ends: Ends<'m>,
    pub protocol: Protocol,
    pub way: &'m Way,
    /// The longest answer that fits both this door and what the client said it takes (RFC 6891, section 6.2.3), in bytes.
    pub limit: usize,
    /// The pool that will be asked; "" until an action says otherwise.
    pub pool: PoolId,
    pub skip_cache: bool,
    /// The header's second word as the client sent it: its answer has this RD and CD, whatever rules made of them.
    pub client_flags: u16,
    pub marks: Marks,
    /// What rules want of the answer; most queries have none.
    pub extras: Carried,
    /// Where it goes on when it outgrows `message`; `None`: it has, or must not.
    pub spare: Option<&'m mut Vec<u8>>,
}

/// What the stages found out and decided about a query, without its bytes: what whoever takes it over needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// The query is so many bytes at the front of the arrival's buffer.
    pub length: u16,
    pub parts: QueryParts,
    /// See [`Query::limit`].
    pub limit: u16,
    pub pool: PoolId,
    pub skip_cache: bool,
    /// See [`Query::client_flags`].
    pub client_flags: u16,
    pub marks: Marks,
}

/// What the "parse" stage found.
pub struct Parsed {
    parts: QueryParts,
    /// The second word of the header: [`Query::client_flags`].
    flags: u16,
}

impl<'m> Query<'m> {
    /// A query that was parsed and judged before, maybe in another buffer. Its limit is what this door can carry.
    #[inline(always)]
    pub fn resume(arrival: &'m mut Arrival<'_>, found: &Found, extras: Carried) -> Query<'m> {
        let mut query = Query {
            length: found.length.into(),
            parts: found.parts,
            ends: (arrival.client, arrival.destination),
            protocol: arrival.protocol,
            way: arrival.way,
            limit: arrival.room.min(found.limit.into()),
            pool: found.pool,
            skip_cache: found.skip_cache,
            client_flags: found.client_flags,
            marks: found.marks,
            extras: Carried::NOTHING,
            message: arrival.message,
            spare: Some(arrival.outgrown),
        };
        query.carry(extras);
        query
    }

    /// The "parse" stage: whether it is a well-formed query, or the verdict on what is none.
    ///
    /// An EDNS version above 0 is no error here: rules (`EDNSVersionRule`) and backends decide what becomes of it. `said`: what
    /// a proxy says of it.
    #[inline(always)]
    pub fn parse<'c>(
        arrival: &mut Arrival<'_>,
        said: Option<&Extras>,
        env: &Env<'_>,
    ) -> Result<Parsed, Verdict<'c>> {
        let message = &arrival.message[..arrival.length];
        let header = Header::read(message).unwrap_or_default();
        if !header.qr() && header.rd() {
            env.shard.count(Counter::RdQueries);
        }
        match wire::message::parse_query(message) {
            Ok(parts) => Ok(Parsed {
                parts,
                flags: header.flags(),
            }),
            Err(error) => Err(reject(arrival, said, env, error)),
        }
    }

    /// The query that was parsed, before any rule has seen it.
    #[inline(always)]
    pub fn new(arrival: &'m mut Arrival<'_>, parsed: Parsed) -> Query<'m> {
        let Parsed { parts, flags } = parsed;
        let limit = match arrival.protocol {
            Protocol::Udp => arrival.room.min(parts.payload_size().into()),
            Protocol::Tcp => arrival.room,
        };
        Query {
            length: arrival.length,
            parts,
            ends: (arrival.client, arrival.destination),
            protocol: arrival.protocol,
            way: arrival.way,
            limit,
            pool: PoolId::DEFAULT,
            skip_cache: false,
            client_flags: flags,
            marks: Marks::default(),
            extras: Carried::NOTHING,
            message: arrival.message,
            spare: Some(arrival.outgrown),
        }
    }

    /// The query's name, as the client wrote it.
    pub fn name(&self) -> Name<'_> {
        self.parts.qname(self.message)
    }

    #[inline(always)]
    pub fn header(&self) -> Header {
        Header::read(self.message).expect("a parsed query has a header")
    }

    #[inline]
    pub fn found(&self) -> Found {
        Found {
            length: octets(self.length),
            parts: self.parts,
            limit: octets(self.limit),
            pool: self.pool,
            skip_cache: self.skip_cache,
            client_flags: self.client_flags,
            marks: self.marks,
        }
    }

    /// Makes room for `needed` bytes. A frame has less than what its client may be told, so a message that outgrows its buffer
    /// goes on in memory of its own, which the door sends by its kernel socket: both doors give the same answers
    /// (invariant I10). False: no DNS message is so long, or there is no memory, and nothing has changed.
    #[inline]
    pub fn grow(&mut self, needed: usize) -> bool {
        needed <= self.message.len() || self.outgrow(needed)
    }

    #[cold]
    fn outgrow(&mut self, needed: usize) -> bool {
        if needed > MESSAGE_MAX {
            return false;
        }
        // Once for all: it does not grow again.
        let spare = &mut self.spare;
        let Some(spare) = spare.take_if(|spare| spare.try_reserve_exact(MESSAGE_MAX).is_ok())
        else {
            return false;
        };
        spare.resize(MESSAGE_MAX, 0);
        spare[..self.message.len()].copy_from_slice(self.message);
        self.message = spare;
        true
    }

    /// Gives it what it carries along. Who asks is then who a proxy said.
    #[inline]
    pub fn carry(&mut self, extras: Carried) {
        self.extras = extras;
    }

    /// Who asks: where a proxy passed it on, as that says.
    #[inline]
    pub fn client(&self) -> &SocketAddr {
        match self.proxied() {
            None => self.ends.0,
            Some(proxied) => &proxied.client,
        }
    }

    /// Whom they ask, as a proxy that passed it on says.
    #[inline]
    pub fn destination(&self) -> &SocketAddr {
        match self.proxied() {
            None => self.ends.1,
            Some(proxied) => &proxied.destination,
        }
    }

    #[inline]
    fn proxied(&self) -> Option<&Proxied> {
        self.extras.as_ref()?.proxied.as_ref()
    }

    /// What rules want of the answer, to be added to.
    pub fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Whether the client knows EDNS: rules may have put an OPT record into its query.
    pub fn knows_edns(&self) -> bool {
        self.parts.edns.is_some() && !self.marks.edns_added
    }

    /// Looks where the OPT record and the end are of what a rule has made an answer, or given other records.
    pub fn find_end(&mut self) {
        (self.parts.edns, self.parts.end) = match parse_response(self.bytes()) {
            Ok(parts) => (parts.edns, parts.end),
            // Whatever the rule has put there: it ends where it ends.
            Err(_) => (None, self.length as u16),
        };
    }

    /// The whole query, its trailing bytes included.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.message[..self.length]
    }
}

/// What becomes of a message that is no well-formed query, and its counter.
#[cold]
fn reject<'c>(
    arrival: &mut Arrival<'_>,
    said: Option<&Extras>,
    env: &Env<'_>,
    error: QueryError,
) -> Verdict<'c> {
    let Some(rcode) = error.answer() else {
        count_noncompliant(arrival, env);
        return Verdict::Drop(match error {
            QueryError::Response => DropReason::NotQuery,
            _ => DropReason::TooShort,
        });
    };
    if error == QueryError::NoQuestion {
        env.shard.count(Counter::EmptyQueries);
        if env.config.tuning.drop_empty_queries {
            return Verdict::Drop(DropReason::EmptyQuery);
        }
    } else {
        count_noncompliant(arrival, env);
    }
    if is_muted(env.config, *arrival.destination, arrival.protocol) {
        return Verdict::Drop(DropReason::ResponseRule);
    }
    let proxied = said.and_then(|said| said.proxied);
    let client = proxied.map_or(*arrival.client, |proxied| proxied.client);
    if error == QueryError::NoQuestion
        && let Some(length) = authority::answer_without_question(arrival, client.ip(), env)
    {
        return Verdict::Answer(length);
    }
    let edns = refused_dnssec_ok(&arrival.message[..arrival.length]);
    let length = refuse(&mut arrival.message[..arrival.length], rcode, env);
    if !env.config.local.is_empty() {
        // As Knot counts what it answers of these. They name no zone, so they are in no zone's own counters.
        let invalid = Beside {
            way: (arrival.protocol, *arrival.way),
            client,
            operation: Operation::INVALID,
            has_edns: edns.is_some(),
            dnssec_ok: edns == Some(true),
            request_octets: arrival.length as u64,
            response_octets: length as u64,
            rcode: rcode.into(),
            signature_error: None,
        };
        let statistics = &env.config.authority.statistics;
        statistics.count_beside(None, &invalid, env.shard);
    }
    Verdict::Answer(length)
}

/// Turns a message into the header of its answer, and its OPT record where there is one in the message; the length in bytes.
/// RFC 6891 §6.1.1: "If an OPT record is present in a received request, compliant responders MUST include an OPT record in
/// their respective responses."
fn refuse(message: &mut [u8], rcode: u8, env: &Env<'_>) -> usize {
    let tuning = &env.config.tuning;
    let asked = refused_dnssec_ok(message).filter(|_| tuning.edns_in_self_generated);
    let length = wire::answer::header_only(message, rcode);
    let Some(dnssec_ok) = asked else {
        return length;
    };
    let fields = OptFields {
        payload_size: tuning.payload_size_self_generated,
        extended_rcode: 0,
        dnssec_ok,
    };
    append_opt(message, length, fields, &[])
}

fn count_noncompliant(arrival: &Arrival<'_>, env: &Env<'_>) {
    env.shard.count(Counter::NoncompliantQueries);
    if let Some(traffic) = env.traffic(arrival.door()) {
        traffic.count(Passage::Noncompliant, env.shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::scene::{Reply, Scene, query};
    use proptest::prelude::*;
    use wire::codes::qtype;

    #[test]
    fn responses_and_fragments_of_a_header_are_dropped() {
        let mut scene = Scene::default();
        let mut response = query("example.com.", qtype::A);
        response[2] |= 0x80;
        assert_eq!(scene.ask(&response), Reply::Drop(DropReason::NotQuery));
        assert_eq!(scene.ask(&[0; 11]), Reply::Drop(DropReason::TooShort));
        assert_eq!(scene.counted(Counter::NoncompliantQueries), 2);
    }

    #[test]
    fn an_empty_query_is_answered_with_notimp_or_dropped() {
        let empty = [0x12, 0x34, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut scene = Scene::default();
        let notimp = [0x12, 0x34, 0x81, 0x04, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(scene.ask(&empty), Reply::Answer(notimp.to_vec()));
        scene.change(|config| config.tuning.drop_empty_queries = true);
        assert_eq!(scene.ask(&empty), Reply::Drop(DropReason::EmptyQuery));
        assert_eq!(scene.counted(Counter::EmptyQueries), 2);
    }

    /// F9, F10: counts that lie, names that loop.
    #[test]
    fn what_cannot_be_parsed_gets_formerr() {
        let mut scene = Scene::default();
        let mut counts = query("example.com.", qtype::A);
        counts[4..12].fill(0xff);
        let mut pointer = query(".", qtype::A);
        pointer[12..14].copy_from_slice(&[0xc0, 12]);
        for message in [counts, pointer] {
            let Reply::Answer(answer) = scene.ask(&message) else {
                panic!("no answer")
            };
            assert_eq!((answer.len(), answer[3] & 15), (12, 1));
        }
    }

    /// F11, F12: RFC 6891 §6.1.1 and RFC 9619 §4.
    #[test]
    fn what_is_refused_with_an_opt_record_is_answered_with_one() {
        let mut scene = Scene::default();
        let opt = [0, 0, 41, 16, 0, 0, 0, 0x80, 0, 0, 0];
        let message = |questions: u8, opts: u8| {
            let mut message = vec![0x12, 0x34, 1, 0, 0, questions, 0, 0, 0, 0, 0, opts];
            let asked = [0, 0, 1, 0, 1].repeat(questions.into());
            message.extend(asked.into_iter().chain(opt.repeat(opts.into())));
            message
        };
        let mut ask = |message: &[u8]| match scene.ask(message) {
            Reply::Answer(answer) => answer,
            other => panic!("no answer: {other:?}"),
        };
        // 1,232 octets, and the DO bit again.
        let with_opt = |rcode: u8| {
            let header = [0x12, 0x34, 0x81, rcode, 0, 0, 0, 0, 0, 0, 0, 1];
            let opt = [0, 0, 41, 0x04, 0xd0, 0, 0, 0x80, 0, 0, 0];
            [&header[..], &opt].concat()
        };
        let (formerr, notimp) = (with_opt(1), with_opt(4));
        assert_eq!(ask(&message(2, 1)), formerr, "two questions");
        assert_eq!(ask(&message(1, 2)), formerr, "two OPT records");
        assert_eq!(ask(&message(0, 1)), notimp, "no question");
        let mut lying = message(2, 1);
        lying[11] = 2;
        assert_eq!(ask(&lying).len(), 12, "it cannot be read");
        scene.change(|config| config.tuning.edns_in_self_generated = false);
        let Reply::Answer(answer) = scene.ask(&message(2, 1)) else {
            panic!("no answer")
        };
        assert_eq!(answer.len(), 12);
    }

    #[test]
    fn an_answer_may_be_as_long_as_client_and_door_allow() {
        let limit = |payload_size: Option<u16>, protocol| {
            let mut scene = Scene::default();
            scene.protocol = protocol;
            scene.room = 1_400;
            let message = crate::pipeline::scene::query_with_edns("a.", qtype::A, payload_size);
            scene.parse(&message, |query| query.limit)
        };
        assert_eq!(limit(None, Protocol::Udp), 512);
        assert_eq!(limit(Some(100), Protocol::Udp), 512);
        assert_eq!(limit(Some(1_232), Protocol::Udp), 1_232);
        assert_eq!(limit(Some(4_096), Protocol::Udp), 1_400);
        assert_eq!(limit(None, Protocol::Tcp), 1_400);
    }

    proptest! {
        #[test]
        fn any_bytes_get_a_verdict(message in proptest::collection::vec(any::<u8>(), 0..600)) {
            Scene::default().ask(&message);
        }
    }
}
