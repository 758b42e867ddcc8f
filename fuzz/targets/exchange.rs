//! The exchange table against a map: each exchange ends exactly once (I1), for the true answer, its time-out or because it
//! could not be sent, never for junk (I7); queries in flight are counted exactly; no key comes back too early.

#![no_main]

use fuzz::input::Input;
use fuzz::world::{LATE, server};
use libfuzzer_sys::fuzz_target;
use millrace::backend::exchange::{Departure, Exchanges, OpenError, Port, Share, Waiting};
use millrace::backend::server::Server;
use millrace::backend::servers::Servers;
use millrace::clock::Now;
use millrace::config::pools::PoolId;
use millrace::counters::{Shard, Writers};
use millrace::pipeline::query::{Protocol, Query, Way};
use millrace::pipeline::rings::Rings;
use millrace::random::Random;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use wire::message::{
    Header, QueryFlags, parse_query, parse_response, question_matches, write_query,
};
use wire::name::Name;

const SERVERS: [&str; 2] = ["192.0.2.7:53", "[2001:db8::7]:53"];
const WORKERS: usize = 2;

/// Queries that a server may have in flight.
const MAXIMUM_OUTSTANDING: u32 = 40;

/// Entries of the table that a key may have.
const BUCKET: usize = 8;

/// A backend port and an ID.
type Key = (u16, u16);

/// One life of a key.
#[derive(Clone, Copy)]
struct Life {
    /// The client's port: names the query.
    number: u16,
    server: usize,
    worker: usize,
    deadline: Now,
    timeout: Duration,
    end: End,
}

impl Life {
    /// When its key may be given again: how long it is kept back its own time-out says, not that of the query which wants it.
    fn free(&self) -> Option<Now> {
        let (end, kept) = match self.end {
            End::Waits => return None,
            End::Answered(at) => (at, Duration::from_millis(250)),
            End::TimedOut(at) => (at, self.timeout * 2),
        };
        Some(Now(end.0 + kept.as_nanos() as u64))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Waits,
    Answered(Now),
    TimedOut(Now),
}

struct Bench {
    exchanges: Exchanges,
    servers: [Arc<Server>; 2],
    shares: [Share; WORKERS],
    shard: Shard,
    waiting: Waiting,
    now: Now,
    lives: HashMap<Key, Life>,
    opened: Vec<Key>,
}

fuzz_target!(|octets: &[u8]| {
    let mut bench = Bench::new();
    let mut input = Input::new(octets);
    while let Some(step) = input.octet() {
        let choice = step / 8;
        match step % 8 {
            0..=2 => bench.open(choice, input.octet().unwrap_or_default()),
            3 => bench.answer(choice.into()),
            4 => bench.answer_junk(choice.into(), input.piece().unwrap_or_default()),
            5 => bench.cancel(choice.into()),
            6 => bench.expire(usize::from(choice) % WORKERS),
            _ => {
                let milliseconds = input.number().unwrap_or_default();
                bench.now.0 += u64::from(milliseconds) * 1_000_000;
                (0..WORKERS).for_each(|worker| bench.expire(worker));
            }
        }
        bench.check();
    }
    bench.now.0 += 3_600_000_000_000;
    (0..WORKERS).for_each(|worker| bench.expire(worker));
    bench.check();
    assert!(
        bench.lives.values().all(|life| life.end != End::Waits),
        "never ended"
    );
});

impl Bench {
    fn new() -> Bench {
        let servers = [0, 1].map(|number| server(number, SERVERS[number as usize]));
        let registry = Arc::new(Servers::default());
        registry.publish(&servers);
        let exchanges = Exchanges::new(WORKERS, 16, registry, &mut Random::from_seed(7));
        Bench {
            shares: [0, 1].map(|worker| exchanges.share(worker)),
            exchanges,
            servers,
            shard: Shard::new(0, Writers::One, Rings::new(16, 16, Writers::One)),
            waiting: Waiting::new(),
            now: Now(1_000_000_000),
            lives: HashMap::new(),
            opened: Vec::new(),
        }
    }

    /// `seed` chooses the ID: one of 256, so that keys come back.
    fn open(&mut self, choice: u8, seed: u8) {
        let (worker, index) = (usize::from(choice & 1), usize::from(choice >> 1 & 1));
        let timeout = Duration::from_millis([2_000, 100][usize::from(choice >> 2 & 1)]);
        let port = port(index, 40_000 + u16::from(choice >> 3 & 1));
        let number = self.opened.len() as u16;
        let mut message = [0; 64];
        let client = client(number);
        let mut query = query(&mut message, &client);
        let departure = Departure {
            server: &self.servers[index],
            port,
            now: self.now,
            timeout,
            maximum_outstanding: MAXIMUM_OUTSTANDING,
        };
        let mut random = Random::from_seed(seed.into());
        let share = &mut self.shares[worker];
        match self
            .exchanges
            .open(share, &mut query, &departure, &mut random)
        {
            Ok(()) => {}
            Err(error) => return assert_eq!(error, OpenError::Full),
        }
        let key = (port.number, query.header().id());
        let life = Life {
            number,
            server: index,
            worker,
            deadline: Now(self.now.0 + timeout.as_nanos() as u64),
            timeout,
            end: End::Waits,
        };
        if let Some(former) = self.lives.insert(key, life) {
            self.check_quarantine(&former);
        }
        self.opened.push(key);
    }

    /// A key is kept back while an answer to its former life could match. Only one whose answer has come may be forgotten
    /// before, when all keys of its bucket are kept back.
    fn check_quarantine(&self, former: &Life) {
        let free = former.free().expect("a key came back that is in use");
        // Moments are kept in units of 2^20 ns.
        let is_free = free.0 <= self.now.0 + LATE.as_nanos() as u64;
        let is_forgotten = match former.end {
            End::Answered(at) => self.may_forget(at),
            End::Waits | End::TimedOut(_) => false,
        };
        assert!(is_free || is_forgotten, "a key came back too early");
    }

    /// Whether at any moment since `since` there may have been a bucket of eight different keys that were all in use or kept
    /// back. Those of them that were used once more are in use, or kept back even longer.
    fn may_forget(&self, since: Now) -> bool {
        let was_kept = |life: &&Life| life.free().is_none_or(|free| free > since);
        self.lives.values().filter(was_kept).count() >= BUCKET
    }

    fn pick(&self, choice: usize) -> Option<(Key, Life)> {
        let back = self.opened.len().checked_sub(choice % 32 + 1)?;
        let key = self.opened[back];
        Some((key, self.lives[&key]))
    }

    fn answer(&mut self, choice: usize) {
        let Some((key, life)) = self.pick(choice) else {
            return;
        };
        let message = answer(key.1, life.number);
        let taken = self.take(local(life.server, key.0), life.server, &message);
        assert_eq!(
            taken,
            life.end == End::Waits,
            "the true answer is taken, once"
        );
    }

    /// The true answer with some octets changed, from either server.
    fn answer_junk(&mut self, choice: usize, changes: &[u8]) {
        let Some((key, life)) = self.pick(choice) else {
            return;
        };
        let mut message = answer(key.1, life.number);
        for change in changes.chunks_exact(2) {
            let place = usize::from(change[0]) % message.len();
            message[place] ^= change[1];
        }
        let from = usize::from(changes.len() % 2 == 1) ^ life.server;
        self.take(local(life.server, key.0), from, &message);
    }

    /// Gives the table a message from server `from`; whether it ended an exchange, which then was one that it may end.
    fn take(&mut self, local: SocketAddr, from: usize, message: &[u8]) -> bool {
        let remote = self.servers[from].options.address;
        let (shard, waiting) = (&self.shard, &mut self.waiting);
        let taken = self
            .exchanges
            .take(local, remote, message, self.now, shard, waiting);
        if taken.is_err() {
            return false;
        }
        let id = Header::read(message).expect("it was taken").id();
        let life = self
            .lives
            .get_mut(&(local.port(), id))
            .expect("a key that was opened");
        assert!(life.end == End::Waits, "ended twice");
        assert_eq!((life.server, life.number), (from, waiting.client.port()));
        let asked = waiting.parts.question(&waiting.query);
        let parts = parse_response(message).expect("a whole response");
        assert!(parts.question.is_none() || question_matches(message, asked));
        life.end = End::Answered(self.now);
        true
    }

    fn cancel(&mut self, choice: usize) {
        let Some((key, life)) = self.pick(choice) else {
            return;
        };
        self.exchanges
            .cancel(port(life.server, key.0), key.1, self.now, &self.shard);
        if life.end == End::Waits {
            self.lives.get_mut(&key).expect("it was picked").end = End::Answered(self.now);
        }
    }

    fn expire(&mut self, worker: usize) {
        let (now, lives) = (self.now, &mut self.lives);
        let ended = |waiting: &Waiting| {
            let number = waiting.client.port();
            let life = lives.values_mut().find(|life| life.number == number);
            let life = life.expect("a query that was opened");
            assert!(life.end == End::Waits && life.worker == worker && life.deadline <= now);
            life.end = End::TimedOut(now);
        };
        let share = &mut self.shares[worker];
        self.exchanges
            .expire(share, now, &self.shard, &mut self.waiting, ended);
        let late = |life: &&Life| life.deadline.0 + LATE.as_nanos() as u64 <= now.0;
        let mut waits = lives
            .values()
            .filter(|life| life.end == End::Waits && life.worker == worker);
        assert!(waits.find(late).is_none(), "given up too late");
    }

    fn check(&self) {
        for (index, server) in self.servers.iter().enumerate() {
            let waits = self
                .lives
                .values()
                .filter(|life| life.end == End::Waits && life.server == index);
            assert_eq!(server.outstanding.get(), waits.count() as i64);
        }
        for (worker, share) in self.shares.iter().enumerate() {
            let waits = |life: &Life| life.end == End::Waits && life.worker == worker;
            assert!(
                self.exchanges.next_expiry(share).is_some() || !self.lives.values().any(waits),
                "nobody would look for its time-out"
            );
        }
    }
}

/// Our address towards a server.
fn source(server: usize) -> IpAddr {
    [
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        "2001:db8::1".parse().expect("an address"),
    ][server]
}

fn local(server: usize, port: u16) -> SocketAddr {
    SocketAddr::new(source(server), port)
}

fn port(server: usize, number: u16) -> Port {
    Port {
        pool: server as u16,
        socket: 0,
        number,
        source: source(server),
    }
}

fn write(buffer: &mut [u8], id: u16, number: u16) -> usize {
    let [high, low] = number.to_be_bytes();
    let name = [
        4,
        b'H',
        b'o',
        b'a' + high % 26,
        b'a' + low % 26,
        2,
        high,
        low,
        0,
    ];
    let name = Name::parse(&name).expect("two labels");
    write_query(buffer, id, (name, 1, 1), QueryFlags::default()).expect("room")
}

/// Who asks the query of `number`.
fn client(number: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), number)
}

const DESTINATION: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 53);

fn query<'q>(buffer: &'q mut [u8], client: &'q SocketAddr) -> Query<'q> {
    let length = write(buffer, 0x1234, client.port());
    Query {
        parts: parse_query(&buffer[..length]).expect("a query"),
        message: buffer,
        length,
        ends: (client, &DESTINATION),
        protocol: Protocol::Udp,
        way: &Way::Socket { listener: 3 },
        limit: 1_232,
        pool: PoolId(2),
        skip_cache: false,
        client_flags: 0,
        marks: Default::default(),
        extras: Default::default(),
        spare: None,
    }
}

/// The answer, without records, to the query of `number` under `id`.
fn answer(id: u16, number: u16) -> Vec<u8> {
    let mut message = vec![0; 64];
    let length = write(&mut message, id, number);
    message.truncate(length);
    message[2] |= 0x80;
    message
}
