//! A worker without rings and sockets: frames go in, answers and forwarded queries come out, and every one of them is held
//! against the invariants of ARCHITECTURE.md.

use crate::frames;
use millrace::backend::Forwarder;
use millrace::backend::exchange::{Exchanges, Port, Share, Waiting};
use millrace::backend::ports::{Departures, Ports};
use millrace::backend::server::{Server, ServerId, ServerOptions};
use millrace::backend::servers::Servers;
use millrace::clock::Now;
use millrace::config::pools::{PoolId, PoolNames};
use millrace::config::spec::{Purpose, Spec};
use millrace::config::{Config, LuaState, derive};
use millrace::counters::{Shard, Writers};
use millrace::frontend::udp::QUERY_ROOM;
use millrace::pipeline::cache::PacketCache;
use millrace::pipeline::drop::DropReason;
use millrace::pipeline::proxy::InFront;
use millrace::pipeline::query::{Arrival, Protocol, Way};
use millrace::pipeline::rings::Rings;
use millrace::pipeline::{Env, Verdict, respond, run};
use millrace::random::Random;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use wire::frame::{Headers, Mac, Packet, UdpChecksum, write_headers};
use wire::message::{
    HEADER_LENGTH, Header, OPT_LENGTH, parse_query, parse_response, refused_dnssec_ok,
};
use xsk::{CHUNK, ROOM};

/// Where a received frame starts in its chunk: behind XDP's headroom.
const FRAME_START: usize = CHUNK - ROOM;

/// The interface's address: the kernel program takes no frames to others.
const OUR_MAC: Mac = [2, 0, 0, 0, 0, 1];

/// The table looks for time-outs every 2 ms at most.
pub const LATE: Duration = Duration::from_millis(2);

/// What all inputs share: it does not change.
struct Fixture {
    config: Arc<Config>,
    ports: Ports,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).expect("a state");
    let text = include_bytes!("../fixtures/reply.lua");
    state
        .run("reply.lua", text)
        .expect("the file is what it should be");
    let config = state
        .edit(|spec| derive(spec, None))
        .expect("a configuration");
    let ports = Ports::new(1, 4, Box::new(())).expect("epoll");
    for server in &config.servers {
        ports.prepare(server).expect("ports on loopback");
    }
    Fixture {
        config: Arc::new(config),
        ports,
    }
});

/// A query that waits for its answer.
struct Pending {
    /// As the client sent it.
    message: Vec<u8>,
    packet: Packet,
    /// The longest answer, in octets.
    limit: usize,
    /// Under which it went to the backend.
    id: u16,
    port: Port,
    server: SocketAddr,
    deadline: Now,
}

pub struct World {
    config: Arc<Config>,
    exchanges: Exchanges,
    share: Share,
    shard: Shard,
    random: Random,
    now: Now,
    waiting: Waiting,
    pending: Vec<Pending>,
}

impl Default for World {
    /// `fixtures/reply.lua`, with nothing in the cache.
    fn default() -> World {
        let (_, cache) = cached_pool();
        cache.expunge(0);
        World::with_config(Arc::clone(&FIXTURE.config))
    }
}

impl World {
    /// A worker with this configuration. Backends can be asked over UDP only where they have ports already.
    pub fn with_config(config: Arc<Config>) -> World {
        let mut random = Random::from_seed(1);
        let servers = Arc::new(Servers::default());
        servers.publish(&config.servers);
        let exchanges = Exchanges::new(1, 16, servers, &mut random);
        World {
            config,
            share: exchanges.share(0),
            exchanges,
            shard: Shard::new(0, Writers::One, Rings::new(16, 16, Writers::One)),
            random,
            now: Now(1_000_000_000_000),
            waiting: Waiting::new(),
            pending: Vec::new(),
        }
    }

    /// A frame from the network.
    pub fn receive(&mut self, frame: &[u8]) {
        let mut chunk = [0; CHUNK];
        let length = frame.len().min(ROOM);
        chunk[FRAME_START..FRAME_START + length].copy_from_slice(&frame[..length]);
        let Ok(packet) = Packet::parse(&chunk[FRAME_START..FRAME_START + length], true) else {
            return;
        };
        if packet.destination_mac != OUR_MAC {
            return;
        }
        let start = FRAME_START + usize::from(packet.payload_start);
        let mut listeners = self.config.listeners.iter();
        if listeners.any(|listener| listener.address == packet.destination) {
            self.query(&mut chunk, start, &packet);
        } else {
            self.response(&mut chunk, start, &packet);
        }
        let outstanding: i64 = self
            .config
            .servers
            .iter()
            .map(|server| server.outstanding.get())
            .sum();
        assert_eq!(
            outstanding,
            self.pending.len() as i64,
            "queries in flight are counted exactly"
        );
    }

    /// A message from a client in a good frame.
    pub fn ask(&mut self, client: SocketAddr, message: &[u8]) {
        let ours = match client {
            SocketAddr::V4(_) => "192.0.2.1:53",
            SocketAddr::V6(_) => "[2001:db8::1]:53",
        };
        self.receive(&framed(
            client,
            ours.parse().expect("an address and port"),
            message,
        ));
    }

    /// How many queries wait.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// The answer that a good server gives to the query that waits as number `index`: no records.
    pub fn true_answer(&self, index: usize) -> Vec<u8> {
        let pending = &self.pending[index];
        let parts = parse_query(&pending.message).expect("what was forwarded is a query");
        let mut answer = pending.message[..parts.question_end.into()].to_vec();
        let mut header = Header::read(&answer).expect("a query has a header");
        header.set_id(pending.id);
        header.set_qr(true);
        header.set_additional_count(0);
        header.set_answer_count(0);
        header.set_authority_count(0);
        header.write(&mut answer).expect("it was just read there");
        answer
    }

    /// `message` from the server that was asked, to the port that it was asked from.
    pub fn answer(&mut self, index: usize, message: &[u8]) {
        let pending = &self.pending[index];
        let local = SocketAddr::new(pending.port.source, pending.port.number);
        self.respond(pending.server, local, message);
    }

    /// The same from another address, then to another port: never taken.
    pub fn forge(&mut self, index: usize, message: &[u8]) {
        let pending = &self.pending[index];
        let (server, local) = (
            pending.server,
            SocketAddr::new(pending.port.source, pending.port.number),
        );
        let waiting = self.pending.len();
        let next = |address: SocketAddr| {
            SocketAddr::new(address.ip(), address.port().wrapping_add(1).max(1))
        };
        self.respond(next(server), local, message);
        assert_eq!(self.pending.len(), waiting, "taken from a wrong port");
        let other: SocketAddr = "127.0.0.2:53".parse().expect("an address and port");
        self.respond(other, local, message);
        assert_eq!(self.pending.len(), waiting, "taken from a wrong address");
    }

    fn respond(&mut self, remote: SocketAddr, local: SocketAddr, message: &[u8]) {
        // Loopback addresses are martians on the wire: this door is the kernel socket's.
        let mut buffer = vec![0; ROOM - 62];
        let length = message.len().min(buffer.len());
        buffer[..length].copy_from_slice(&message[..length]);
        self.accept(&mut buffer, length, remote, local);
    }

    /// The moment it is.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Time passes; queries that were not answered are given up.
    pub fn wait(&mut self, duration: Duration) {
        self.now.0 += duration.as_nanos() as u64;
        let (now, pending) = (self.now, &mut self.pending);
        let mut expired = |waiting: &Waiting| {
            let place = pending.iter().position(|one| {
                one.deadline <= now
                    && one.packet.source == waiting.client
                    && one.message == waiting.message()
            });
            pending.remove(place.expect("only what waits is given up, and not too early"));
        };
        self.exchanges.expire(
            &mut self.share,
            now,
            &self.shard,
            &mut self.waiting,
            &mut expired,
        );
        let earlier = Now(now.0.saturating_sub(LATE.as_nanos() as u64));
        assert!(
            self.pending.iter().all(|one| one.deadline > earlier),
            "given up too late"
        );
    }

    /// Whatever happened: every query that still waits can be answered, once.
    pub fn settle(&mut self) {
        while let Some(last) = self.pending.len().checked_sub(1) {
            let answer = self.true_answer(last);
            self.answer(last, &answer);
            assert_eq!(
                self.pending.len(),
                last,
                "junk has ended the wait for the true answer (I7)"
            );
        }
    }

    // ------------------------------------------------------------------------------------------- doors

    fn query(&mut self, chunk: &mut [u8; CHUNK], start: usize, packet: &Packet) {
        let length = usize::from(packet.payload_length);
        let asked = chunk[start..start + length].to_vec();
        let way = Way::Xsk {
            device: 0,
            client_mac: packet.source_mac,
            our_mac: packet.destination_mac,
        };
        let mut outgrown = Vec::new();
        let mut arrival = Arrival {
            message: &mut chunk[start..],
            length,
            client: &packet.source,
            destination: &packet.destination,
            protocol: Protocol::Udp,
            way: &way,
            listener: 0,
            room: QUERY_ROOM,
            outgrown: &mut outgrown,
            in_front: InFront::FromProxies,
        };
        let drops = self.drops();
        let is_response = Header::read(&asked).is_some_and(|header| header.qr());
        // RFC 6891 §6.1.1: to what cannot be a query, too, an OPT record is answered with one.
        let refused = HEADER_LENGTH + refused_dnssec_ok(&asked).map_or(0, |_| OPT_LENGTH);
        let limit = parse_query(&asked)
            .map_or(refused, |parts| QUERY_ROOM.min(parts.payload_size().into()));
        let verdict = self.with_env(|env| match run(&mut arrival, env) {
            Verdict::Answer(length) => Fate::Answer(length),
            Verdict::Forward(server) => {
                let forwarded = env.forwarded().expect("it was just forwarded");
                Fate::Forward(forwarded.port, server.options.address)
            }
            Verdict::HandOver(_) => Fate::Elsewhere,
            Verdict::Drop(_) => Fate::Drop,
        });
        assert!(
            !is_response || matches!(verdict, Fate::Drop),
            "a response was answered"
        );
        match verdict {
            Fate::Answer(length) => {
                assert!(
                    length <= limit,
                    "{length} octets for a client that takes {limit}"
                );
                check_answer(&asked, &chunk[start..start + length]);
                check_frame(chunk, start, length, packet);
            }
            Fate::Forward(port, server) => {
                let sent = &chunk[start..start + length];
                assert_eq!(
                    sent[2..],
                    asked[2..],
                    "the backend gets what the rules saw (I7)"
                );
                self.pending.push(Pending {
                    id: u16::from_be_bytes([sent[0], sent[1]]),
                    message: asked,
                    packet: *packet,
                    limit,
                    port,
                    server,
                    deadline: Now(self.now.0 + 2_000_000_000),
                });
            }
            Fate::Elsewhere => {}
            Fate::Drop => assert_eq!(self.drops(), drops + 1, "every drop is counted (I11)"),
        }
    }

    fn response(&mut self, chunk: &mut [u8; CHUNK], start: usize, packet: &Packet) {
        let length = usize::from(packet.payload_length);
        self.accept(
            &mut chunk[start..],
            length,
            packet.source,
            packet.destination,
        );
    }

    fn accept(
        &mut self,
        message: &mut [u8],
        length: usize,
        remote: SocketAddr,
        local: SocketAddr,
    ) -> Option<()> {
        let id = Header::read(&message[..length]).map(|header| header.id());
        let place = self.pending.iter().position(|one| {
            (one.port.number, one.port.source) == (local.port(), local.ip()) && Some(one.id) == id
        });
        let mut waiting = std::mem::take(&mut self.waiting);
        let accepted =
            self.with_env(|env| respond::accept(local, remote, message, length, &mut waiting, env));
        self.waiting = waiting;
        let length = accepted.ok()?;
        let pending = self
            .pending
            .remove(place.expect("only what waits is answered (I1)"));
        assert_eq!(
            pending.server, remote,
            "answered by another than was asked (I7)"
        );
        assert_eq!(self.waiting.client, pending.packet.source);
        assert_eq!(self.waiting.destination, pending.packet.destination);
        assert!(
            length <= pending.limit,
            "{length} octets for a client that takes {}",
            pending.limit
        );
        check_answer(&pending.message, &message[..length]);
        let mut chunk = [0; CHUNK];
        let start = FRAME_START + 62;
        chunk[start..start + length].copy_from_slice(&message[..length]);
        check_frame(&mut chunk, start, length, &pending.packet);
        Some(())
    }

    /// Does something with a worker's surroundings.
    pub fn with_env<T>(&mut self, act: impl FnOnce(&mut Env<'_>) -> T) -> T {
        let mut departures = Departures::default();
        act(&mut Env {
            config: &self.config,
            now: self.now,
            random: &mut self.random,
            shard: &self.shard,
            forwarder: Some(Forwarder {
                ports: &FIXTURE.ports,
                exchanges: &self.exchanges,
                share: &mut self.share,
                departures: &mut departures,
                forwarded: None,
            }),
        })
    }

    fn drops(&self) -> u64 {
        DropReason::ALL
            .iter()
            .map(|reason| self.shard.drops(*reason))
            .sum()
    }
}

/// A verdict without its loans.
enum Fate {
    Answer(usize),
    Forward(Port, SocketAddr),
    Elsewhere,
    Drop,
}

// --------------------------------------------------------------------------------------------- answers

/// I2: the answer has its query's ID and question bytes, and is a whole response.
fn check_answer(asked: &[u8], answer: &[u8]) {
    let (query, header) = (Header::read(asked), Header::read(answer));
    let (query, header) = (
        query.expect("a query has a header"),
        header.expect("an answer has a header"),
    );
    assert!(header.qr(), "an answer says so");
    assert_eq!(
        (header.id(), header.rd(), header.cd()),
        (query.id(), query.rd(), query.cd())
    );
    let read = parse_response(answer).expect("an answer reads back");
    assert_eq!(usize::from(read.end), answer.len(), "nothing trails");
    match parse_query(asked) {
        Ok(parts) => assert_eq!(
            &answer[HEADER_LENGTH..usize::from(read.question_end)],
            parts.question(asked),
            "the question as it was asked"
        ),
        Err(error) => {
            assert_eq!(
                error.answer().map(u16::from),
                Some(read.rcode),
                "what {error} is owed"
            );
            let opt = read.edns.map_or(0, |edns| edns.end - edns.start);
            assert!(opt == 0 || refused_dnssec_ok(asked).is_some());
            assert_eq!(answer.len(), HEADER_LENGTH + usize::from(opt));
        }
    }
}

/// I2: an answer goes where its query came from, with right checksums.
fn check_frame(chunk: &mut [u8; CHUNK], start: usize, length: usize, query: &Packet) {
    let head = write_headers(chunk, start, length, &query.reply_headers())
        .expect("room for headers in front");
    let frame = &chunk[head..start + length];
    let packet = match Packet::parse(frame, false) {
        Ok(packet) => packet,
        Err(error) => panic!("an answer of ours: {error}"),
    };
    assert_eq!(
        (packet.source, packet.destination),
        (query.destination, query.source)
    );
    assert_eq!(
        (packet.source_mac, packet.destination_mac),
        (query.destination_mac, query.source_mac)
    );
    assert_eq!(packet.checksum, UdpChecksum::Verified);
}

/// The pool that has a cache, and that cache.
pub fn cached_pool() -> (PoolId, &'static PacketCache) {
    let config = &FIXTURE.config;
    let pool = config.pool_names.find("auth").expect("the file names it");
    let cache = config.pool(pool).and_then(|pool| pool.cache.as_deref());
    (pool, cache.expect("the file gives it one"))
}

/// A server like the configuration's, with numbers and counters of its own.
pub fn server(number: u32, address: &str) -> Arc<Server> {
    let options = ServerOptions {
        address: address.parse().expect("an address and port"),
        ..FIXTURE.config.servers[0].options.clone()
    };
    Arc::new(Server::new(ServerId(number), options))
}

/// A good frame from `source` to `destination`.
fn framed(source: SocketAddr, destination: SocketAddr, message: &[u8]) -> Vec<u8> {
    let mut chunk = vec![0; 64 + message.len()];
    chunk[64..].copy_from_slice(message);
    let headers = Headers {
        source_mac: &[2, 0, 0, 0, 0, 9],
        destination_mac: &OUR_MAC,
        source: &source,
        destination: &destination,
        code_point: 0,
    };
    match write_headers(&mut chunk, 64, message.len(), &headers) {
        Some(start) => chunk.split_off(start),
        None => Vec::new(),
    }
}

/// A frame as the fuzzer made it, then with right checksums.
pub fn receive_both(world: &mut World, frame: &[u8]) {
    world.receive(frame);
    let mut frame = frame.to_vec();
    frames::repair(&mut frame);
    world.receive(&frame);
}
