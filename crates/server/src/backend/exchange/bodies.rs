//! What an answer will need of its query, in atomic words.
//!
//! ```text
//! word  0 deadline            4 ns
//!       1 server 32 │ place of the entry 32
//!       2 sent                ns
//!       3 backend's port 16 │ client's port 16 │ destination's port 16 │ query length 16
//!   4.. 5 backend's address         6.. 7 backend port's address
//!   8.. 9 client's address         10..11 destination's address
//!      12 flags 8 │ device 8 │ listener 16 │ pool 16 │ limit 16
//!      13 client's MAC 48 │ our MAC, first 16
//!      14 our MAC, last 32 │ client's scope 32
//!      15 destination's scope 32 │ marks 16 │ client's header flags 16
//!  16..18 parts of the query
//!      19 of a leg: body of the race's first leg     20 of a first leg: the race
//!  24..87 the query as the client sent it
//! ```
//!
//! Three lines of 64 bytes and as many as the query needs: four for most. Only whoever opened a body writes it, before its
//! entry is published; what a reader sees who did not win the entry may be a mixture and decides nothing.

use super::race::{Ending, Outcome, Race};
use super::{Port, QUERY_ROOM, Waiting};
use crate::backend::server::{Server, ServerId};
use crate::clock::Now;
use crate::config::pools::PoolId;
use crate::pipeline::carried::Carried;
use crate::pipeline::extras::Marks;
use crate::pipeline::query::{Query, Way};
use crate::words::{self, LINE, Lines, words_for};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use wire::message::{EdnsParts, HEADER_LENGTH, QueryParts, question_matches};

const DEADLINE: usize = 0;
const SERVER: usize = 1;
const SENT: usize = 2;
const PORTS: usize = 3;
const BACKEND: usize = 4;
const LOCAL: usize = 6;
const CLIENT: usize = 8;
const DESTINATION: usize = 10;
const WAY: usize = 12;
const MACS: usize = 13;
const DESTINATION_SCOPE: usize = 15;
const PARTS: usize = 16;
const FIRST_LEG: usize = 19;
const RACE: usize = 20;
const QUERY: usize = 24;

/// Cache lines of a body.
const BODY_LINES: usize = (QUERY + words_for(QUERY_ROOM)).div_ceil(LINE);

/// A question is a name of at most 255 bytes, a type and a class.
const QUESTION_MAX: usize = 255 + 4;

const SKIP_CACHE: u64 = 1;
const BACKEND_V6: u64 = 1 << 1;
const CLIENT_V6: u64 = 1 << 2;
const DESTINATION_V6: u64 = 1 << 3;
const WAY_SHIFT: u32 = 4;
const WAY_BITS: u64 = 3;
/// The exchange is a leg of a race.
const LEG: u64 = 1 << 6;
/// Where the eight flags are in their word.
const FLAGS_SHIFT: u32 = 56;

/// Marks, in the word of the destination's scope.
const EDNS_ADDED: u64 = 1 << 16;
const SUBNET_ADDED: u64 = 1 << 17;
const HAS_EXTRAS: u64 = 1 << 18;
const ZERO_SCOPE: u64 = 1 << 19;

/// All bodies.
pub(super) struct Bodies {
    lines: Lines,
}

impl Bodies {
    pub(super) fn new(count: usize) -> Bodies {
        Bodies {
            lines: Lines::zeroed(count * BODY_LINES),
        }
    }

    pub(super) fn get(&self, body: u32) -> Body<'_> {
        Body(self.lines.array(body as usize * BODY_LINES))
    }
}

/// The words of one body.
#[derive(Clone, Copy)]
pub(super) struct Body<'b>(&'b [AtomicU64; BODY_LINES * LINE]);

impl Body<'_> {
    #[inline]
    fn load(&self, word: usize) -> u64 {
        self.0[word].load(Relaxed)
    }

    #[inline]
    fn store(&self, word: usize, value: u64) {
        self.0[word].store(value, Relaxed);
    }

    /// Writes everything but the place. The query must fit [`QUERY_ROOM`].
    pub(super) fn write(
        &self,
        query: &Query<'_>,
        server: &Server,
        port: Port,
        now: Now,
        deadline: Now,
    ) {
        let backend = server.options.address;
        let (client, destination) = (*query.ends.0, *query.ends.1);
        self.store(DEADLINE, deadline.0);
        self.store(SERVER, u64::from(server.number.0) << 32);
        self.store(SENT, now.0);
        self.store(
            PORTS,
            pack([
                backend.port(),
                client.port(),
                destination.port(),
                query.length as u16,
            ]),
        );
        self.store_address(BACKEND, backend.ip());
        self.store_address(LOCAL, port.source);
        self.store_address(CLIENT, client.ip());
        self.store_address(DESTINATION, destination.ip());
        self.store_way(query, (client, destination), backend);
        for (index, word) in parts_to_words(&query.parts).into_iter().enumerate() {
            self.store(PARTS + index, word);
        }
        words::store(&self.0[QUERY..], &query.message[..query.length]);
    }

    fn store_way(
        &self,
        query: &Query<'_>,
        (client, destination): (SocketAddr, SocketAddr),
        backend: SocketAddr,
    ) {
        let (kind, device, listener, client_mac, our_mac) = match *query.way {
            Way::Xsk {
                device,
                client_mac,
                our_mac,
            } => (0, device, 0, client_mac, our_mac),
            Way::Socket { listener } => (1, 0, listener, [0; 6], [0; 6]),
            Way::Stream => (2, 0, 0, [0; 6], [0; 6]),
        };
        let flags = flag(query.skip_cache, SKIP_CACHE)
            | flag(backend.is_ipv6(), BACKEND_V6)
            | flag(client.is_ipv6(), CLIENT_V6)
            | flag(destination.is_ipv6(), DESTINATION_V6)
            | kind << WAY_SHIFT;
        let head = (flags as u16) << 8 | u16::from(device);
        let limit = query.limit.min(usize::from(u16::MAX)) as u16;
        self.store(WAY, pack([head, listener, query.pool.0, limit]));
        let ours = mac_to_number(our_mac);
        self.store(MACS, mac_to_number(client_mac) << 16 | ours >> 32);
        self.store(MACS + 1, ours << 32 | u64::from(scope(client)));
        let scope = u64::from(scope(destination)) << 32;
        let marks = flag(query.marks.edns_added, EDNS_ADDED)
            | flag(query.marks.subnet_added, SUBNET_ADDED)
            | flag(query.marks.zero_scope, ZERO_SCOPE)
            | flag(query.extras.is_some(), HAS_EXTRAS);
        self.store(
            DESTINATION_SCOPE,
            scope | marks | u64::from(query.client_flags),
        );
    }

    /// Whether extras are kept beside this body.
    pub(super) fn has_extras(&self) -> bool {
        self.load(DESTINATION_SCOPE) & HAS_EXTRAS != 0
    }

    /// Makes this body, which was written as number `own`, the first of `legs` of a race.
    pub(super) fn lead(&self, own: u32, legs: u8) {
        self.store(WAY, self.load(WAY) | LEG << FLAGS_SHIFT);
        self.store(FIRST_LEG, u64::from(own));
        self.store(RACE, Race::of(legs).0);
    }

    /// Writes everything but the place: the query that `first`, the first leg of its race, remembers, sent to another
    /// server.
    pub(super) fn follow(
        &self,
        first: &Body<'_>,
        (server, port): (&Server, Port),
        (now, deadline): (Now, Now),
    ) {
        let backend = server.options.address;
        let [_, client_port, destination_port, length] = unpack(first.load(PORTS));
        let words = QUERY + words_for(usize::from(length).min(QUERY_ROOM));
        for word in SENT..words {
            self.store(word, first.load(word));
        }
        self.store(DEADLINE, deadline.0);
        self.store(SERVER, u64::from(server.number.0) << 32);
        self.store(SENT, now.0);
        let ports = [backend.port(), client_port, destination_port, length];
        self.store(PORTS, pack(ports));
        self.store_address(BACKEND, backend.ip());
        self.store_address(LOCAL, port.source);
        let other = first.load(WAY) & !(BACKEND_V6 << FLAGS_SHIFT);
        let family = flag(backend.is_ipv6(), BACKEND_V6) << FLAGS_SHIFT;
        self.store(WAY, other | family);
    }

    /// The body of the first leg, of a leg.
    pub(super) fn first_leg(&self) -> u32 {
        self.load(FIRST_LEG) as u32
    }

    /// Whether this is a leg of a race. Only for whoever won the entry.
    pub(super) fn is_leg(&self) -> bool {
        self.load(WAY) >> FLAGS_SHIFT & LEG != 0
    }

    pub(super) fn sent(&self) -> Now {
        Now(self.load(SENT))
    }

    /// Of a first leg: one leg has ended; what that means, and whether it was the last.
    pub(super) fn leave_race(&self, ending: Ending) -> (Outcome, bool) {
        // AcqRel: who leaves last, and frees the first body, comes after all that the others read of it.
        let leave = |race| Some(Race(race).leave(ending).0.0);
        let before = self.0[RACE].fetch_update(AcqRel, Relaxed, leave);
        let (after, outcome) = Race(before.unwrap_or_else(|race| race)).leave(ending);
        (outcome, after.legs() == 0)
    }

    /// Of a first leg: one leg more, unless the race is over.
    pub(super) fn join_race(&self) -> bool {
        let join = |race| Race(race).join().map(|race| race.0);
        self.0[RACE].fetch_update(AcqRel, Relaxed, join).is_ok()
    }

    /// Remembers where the entry is, so that the time-out finds it.
    pub(super) fn set_place(&self, place: u32) {
        let server = self.load(SERVER) & !0xffff_ffff;
        self.store(SERVER, server | u64::from(place));
    }

    pub(super) fn place(&self) -> u32 {
        self.load(SERVER) as u32
    }

    pub(super) fn server(&self) -> ServerId {
        ServerId((self.load(SERVER) >> 32) as u32)
    }

    pub(super) fn deadline(&self) -> Now {
        Now(self.load(DEADLINE))
    }

    /// Whether `remote` was asked, from the address of `local`. The ports of `local` are in the entry's key.
    pub(super) fn is_between(&self, local: IpAddr, remote: SocketAddr) -> bool {
        let family = self.load(WAY) >> FLAGS_SHIFT & BACKEND_V6 != 0;
        family == remote.is_ipv6()
            && family == local.is_ipv6()
            && unpack(self.load(PORTS))[0] == remote.port()
            && self.holds_address(BACKEND, remote.ip())
            && self.holds_address(LOCAL, local)
    }

    /// Whether `response` repeats the question: the name without regard to case, type and class.
    pub(super) fn asks_for(&self, response: &[u8]) -> bool {
        // The whole words from the question's first on; it starts in the middle of that.
        const SKIPPED: usize = HEADER_LENGTH % 8;
        let mut question = [0; (SKIPPED + QUESTION_MAX).next_multiple_of(8)];
        let length = (self.load(PARTS) >> 56) as usize + 4;
        let end = (SKIPPED + length).min(question.len());
        words::load(&self.0[QUERY + HEADER_LENGTH / 8..], &mut question[..end]);
        question_matches(response, &question[SKIPPED..end])
    }

    /// Copies everything out. Only for whoever won the entry: nobody else writes meanwhile.
    pub(super) fn read(&self, waiting: &mut Waiting) {
        let [_, client_port, destination_port, length] = unpack(self.load(PORTS));
        let [head, listener, pool, limit] = unpack(self.load(WAY));
        let flags = u64::from(head >> 8);
        waiting.extras = Carried::NOTHING;
        waiting.server = self.server();
        waiting.sent = Now(self.load(SENT));
        let client = self.load_address(CLIENT, flags & CLIENT_V6 != 0);
        waiting.client = socket_address(client, client_port, self.load(MACS + 1) as u32);
        let destination = self.load_address(DESTINATION, flags & DESTINATION_V6 != 0);
        let scope = (self.load(DESTINATION_SCOPE) >> 32) as u32;
        waiting.destination = socket_address(destination, destination_port, scope);
        waiting.way = self.load_way(flags >> WAY_SHIFT & WAY_BITS, head as u8, listener);
        waiting.is_leg = flags & LEG != 0;
        waiting.pool = PoolId(pool);
        waiting.limit = usize::from(limit);
        waiting.skip_cache = flags & SKIP_CACHE != 0;
        let tail = self.load(DESTINATION_SCOPE);
        waiting.client_flags = tail as u16;
        waiting.marks = Marks {
            edns_added: tail & EDNS_ADDED != 0,
            subnet_added: tail & SUBNET_ADDED != 0,
            zero_scope: tail & ZERO_SCOPE != 0,
        };
        waiting.parts = words_to_parts([PARTS, PARTS + 1, PARTS + 2].map(|word| self.load(word)));
        waiting.query_length = usize::from(length).min(QUERY_ROOM);
        words::load(&self.0[QUERY..], &mut waiting.query[..waiting.query_length]);
    }

    fn load_way(&self, kind: u64, device: u8, listener: u16) -> Way {
        let (first, second) = (self.load(MACS), self.load(MACS + 1));
        match kind {
            0 => Way::Xsk {
                device,
                client_mac: number_to_mac(first >> 16),
                our_mac: number_to_mac((first & 0xffff) << 32 | second >> 32),
            },
            1 => Way::Socket { listener },
            _ => Way::Stream,
        }
    }

    fn store_address(&self, word: usize, address: IpAddr) {
        let [first, second] = address_to_words(address);
        self.store(word, first);
        self.store(word + 1, second);
    }

    fn holds_address(&self, word: usize, address: IpAddr) -> bool {
        [self.load(word), self.load(word + 1)] == address_to_words(address)
    }

    fn load_address(&self, word: usize, v6: bool) -> IpAddr {
        let (first, second) = (self.load(word), self.load(word + 1));
        if v6 {
            Ipv6Addr::from(u128::from(first) << 64 | u128::from(second)).into()
        } else {
            Ipv4Addr::from(second as u32).into()
        }
    }
}

fn flag(on: bool, bit: u64) -> u64 {
    if on { bit } else { 0 }
}

/// Four numbers in one word, the first highest.
fn pack(numbers: [u16; 4]) -> u64 {
    numbers
        .into_iter()
        .fold(0, |word, number| word << 16 | u64::from(number))
}

fn unpack(word: u64) -> [u16; 4] {
    [48, 32, 16, 0].map(|shift| (word >> shift) as u16)
}

fn address_to_words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [0, u64::from(address.to_bits())],
        IpAddr::V6(address) => [(address.to_bits() >> 64) as u64, address.to_bits() as u64],
    }
}

fn socket_address(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match address {
        IpAddr::V4(address) => SocketAddrV4::new(address, port).into(),
        IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, scope).into(),
    }
}

/// The interface of a link-local address.
fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

fn mac_to_number(mac: [u8; 6]) -> u64 {
    mac.into_iter()
        .fold(0, |number, octet| number << 8 | u64::from(octet))
}

fn number_to_mac(number: u64) -> [u8; 6] {
    let [_, _, mac @ ..] = number.to_be_bytes();
    mac
}

/// ```text
///  name length 8 │ labels 8 │ type 16 │ class 16 │ end 16
///  EDNS start 16 │ end 16 │ payload size 16 │ extended RCODE 8 │ version 8
///  0 │ is signed 1 │ there is EDNS 1 │ DO 1 │ Z 16
/// ```
fn parts_to_words(parts: &QueryParts) -> [u64; 3] {
    let head = parts.qname_length << 8 | u16::from(parts.labels);
    let first = pack([head, parts.qtype, parts.qclass, parts.end]);
    let signed = u64::from(parts.is_signed) << 18;
    let Some(edns) = parts.edns else {
        return [first, 0, signed];
    };
    let tail = u16::from(edns.extended_rcode) << 8 | u16::from(edns.version);
    let second = pack([edns.start, edns.end, edns.payload_size, tail]);
    let third = signed | 1 << 17 | u64::from(edns.dnssec_ok) << 16 | u64::from(edns.z);
    [first, second, third]
}

fn words_to_parts([first, second, third]: [u64; 3]) -> QueryParts {
    let [head, qtype, qclass, end] = unpack(first);
    let [start, edns_end, payload_size, tail] = unpack(second);
    let qname_length = head >> 8;
    QueryParts {
        qname_length,
        labels: head as u8,
        qtype,
        qclass,
        question_end: HEADER_LENGTH as u16 + qname_length + 4,
        end,
        edns: (third >> 17 & 1 == 1).then_some(EdnsParts {
            start,
            end: edns_end,
            payload_size,
            extended_rcode: (tail >> 8) as u8,
            version: tail as u8,
            dnssec_ok: third >> 16 & 1 == 1,
            z: third as u16,
        }),
        is_signed: third >> 18 & 1 == 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mac() -> impl Strategy<Value = [u8; 6]> {
        any::<[u8; 6]>()
    }

    fn way() -> impl Strategy<Value = Way> {
        prop_oneof![
            (any::<u8>(), mac(), mac()).prop_map(|(device, client_mac, our_mac)| Way::Xsk {
                device,
                client_mac,
                our_mac
            }),
            any::<u16>().prop_map(|listener| Way::Socket { listener }),
            Just(Way::Stream),
        ]
    }

    /// An address; IPv6 ones with an interface.
    fn address() -> impl Strategy<Value = SocketAddr> {
        (any::<IpAddr>(), any::<u16>(), any::<u32>())
            .prop_map(|(address, port, scope)| socket_address(address, port, scope))
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            (client, destination, way) in (address(), address(), way()),
            (limit, pool, skip_cache) in (any::<u16>(), any::<u16>(), any::<bool>()),
            (client_flags, edns_added, subnet_added) in (any::<u16>(), any::<bool>(), any::<bool>()),
            (dnssec_ok, payload_size) in (any::<bool>(), proptest::option::of(any::<u16>())),
            sent in any::<u64>(),
        ) {
            let mut message = [0; QUERY_ROOM];
            let flags = wire::message::QueryFlags { payload_size, dnssec_ok, ..Default::default() };
            let name = wire::name::Name::parse(b"\x03www\x07eXample\x00").expect("a name");
            let length = wire::message::write_query(&mut message, 77, (name, 1, 1), flags).expect("room");
            let parts = wire::message::parse_query(&message[..length]).expect("a query");
            let marks = Marks { edns_added, subnet_added, zero_scope: subnet_added };
            let query = Query {
                message: &mut message,
                length,
                parts,
                ends: (&client, &destination),
                protocol: crate::pipeline::query::Protocol::Udp,
                way: &way,
                limit: usize::from(limit),
                pool: PoolId(pool),
                skip_cache,
                client_flags,
                marks,
                extras: Carried::NOTHING,
                spare: None,
            };
            let server = super::super::tests::server(5, "192.0.2.7:53");
            let port = Port { pool: 0, socket: 3, number: 40_000, source: "192.0.2.1".parse().expect("an address") };
            let bodies = Bodies::new(2);
            let body = bodies.get(1);
            body.write(&query, &server, port, Now(sent), Now(9));
            body.set_place(0xdead_beef);
            prop_assert_eq!((body.place(), body.server(), body.deadline()), (0xdead_beef, ServerId(5), Now(9)));
            let mut waiting = Waiting::new();
            body.read(&mut waiting);
            prop_assert_eq!((waiting.client, waiting.destination, waiting.way), (client, destination, way));
            prop_assert_eq!((waiting.limit, waiting.pool, waiting.skip_cache), (usize::from(limit), PoolId(pool), skip_cache));
            prop_assert_eq!((waiting.client_flags, waiting.marks), (client_flags, marks));
            prop_assert_eq!((waiting.server, waiting.sent, waiting.parts), (ServerId(5), Now(sent), parts));
            prop_assert_eq!(&waiting.query[..waiting.query_length], &query.message[..length]);
            prop_assert!(bodies.get(0).0.iter().all(|word| word.load(Relaxed) == 0));
        }
    }
}
