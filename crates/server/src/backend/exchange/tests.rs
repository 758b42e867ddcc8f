//! What an exchange table must never do: lose an exchange, end one twice, or end one for the wrong answer.

use super::*;
use crate::backend::fixture;
use crate::config::pools::PoolId;
use crate::counters::Writers;
use crate::pipeline::query::{Protocol, Way};
use crate::pipeline::rings::Rings;
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc;
use wire::message::{QueryFlags, write_query};
use wire::name::Name;

mod legs;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// A server with dnsdist's defaults.
pub(crate) fn server(number: u32, address: &str) -> Server {
    fixture::server(number, fixture::options(address))
}

/// A table with its servers, a worker's part and counters.
struct Bench {
    exchanges: Exchanges,
    servers: [Arc<Server>; 2],
    share: Share,
    shard: Shard,
    random: Random,
    waiting: Waiting,
    now: Now,
}

const PORT: Port = Port {
    pool: 0,
    socket: 0,
    number: 40_000,
    source: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
};

fn local() -> SocketAddr {
    PORT.end()
}

/// What came back of an exchange: the client's port names the query.
type Taken = Result<u16, DropReason>;

impl Bench {
    fn new(maximum_outstanding: u32, id_mask: u16) -> Bench {
        let servers = ["192.0.2.7:53", "192.0.2.8:53"];
        let servers = [0, 1].map(|number| Arc::new(server(number, servers[number as usize])));
        let registry = Arc::new(Servers::default());
        registry.publish(&servers);
        let mut random = Random::from_seed(7);
        let mut exchanges = Exchanges::new(1, maximum_outstanding, registry, &mut random);
        exchanges.id_mask = id_mask;
        Bench {
            share: exchanges.share(0),
            exchanges,
            servers,
            shard: Shard::new(0, Writers::One, Rings::default()),
            random,
            waiting: Waiting::new(),
            now: Now(SECOND),
        }
    }

    /// Opens an exchange for the query that the client with port `number` sent; the ID it got.
    fn open(&mut self, number: u16, server: usize, timeout: Duration) -> Result<u16, OpenError> {
        let mut message = [0; 64];
        let client = client(number);
        let mut query = query(&mut message, &client);
        let departure = Departure {
            server: &self.servers[server],
            port: PORT,
            now: self.now,
            timeout,
            maximum_outstanding: u32::MAX,
        };
        self.exchanges
            .open(&mut self.share, &mut query, &departure, &mut self.random)?;
        Ok(query.header().id())
    }

    fn take(&mut self, local: SocketAddr, remote: SocketAddr, message: &[u8]) -> Taken {
        let Bench {
            exchanges,
            shard,
            waiting,
            now,
            ..
        } = self;
        exchanges.take(local, remote, message, *now, shard, waiting)?;
        Ok(waiting.client.port())
    }

    fn expire(&mut self) -> Vec<u16> {
        let Bench {
            exchanges,
            share,
            shard,
            waiting,
            now,
            ..
        } = self;
        let mut ended = Vec::new();
        exchanges.expire(share, *now, shard, waiting, |waiting| {
            ended.push(waiting.client.port())
        });
        ended
    }

    fn outstanding(&self) -> [i64; 2] {
        [0, 1].map(|server: usize| self.servers[server].outstanding.get())
    }
}

/// The name that the client with port `number` asks for.
fn name(number: u16) -> Vec<u8> {
    let label = format!("Host-{number}");
    let mut name = vec![label.len() as u8];
    name.extend_from_slice(label.as_bytes());
    name.extend_from_slice(b"\x07example\x00");
    name
}

fn write(buffer: &mut [u8], id: u16, number: u16) -> usize {
    let name = name(number);
    let name = Name::parse(&name).expect("a name");
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
        parts: wire::message::parse_query(&buffer[..length]).expect("a query"),
        message: buffer,
        length,
        ends: (client, &DESTINATION),
        protocol: Protocol::Udp,
        way: &Way::Socket { listener: 3 },
        limit: 1_232,
        pool: PoolId(2),
        skip_cache: false,
        marks: Default::default(),
        extras: Default::default(),
        spare: None,
        client_flags: 0,
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

const TIMEOUT: Duration = Duration::from_secs(2);

#[test]
fn an_answer_ends_its_exchange_once() {
    let mut bench = Bench::new(100, u16::MAX);
    let id = bench.open(5, 0, TIMEOUT).expect("room");
    assert_eq!(bench.outstanding(), [1, 0]);
    let remote = bench.servers[0].options.address;
    bench.now.0 += 300_000;
    assert_eq!(bench.take(local(), remote, &answer(id, 5)), Ok(5));
    assert_eq!(bench.outstanding(), [0, 0]);
    assert_eq!(
        Header::read(bench.waiting.message()).map(|header| header.id()),
        Some(0x1234)
    );
    assert_eq!(bench.waiting.way, Way::Socket { listener: 3 });
    for _ in 0..100 {
        let again = bench.take(local(), remote, &answer(id, 5));
        assert_eq!(again, Err(DropReason::ResponseLate), "F16");
    }
    assert_eq!(bench.servers[0].responses.sum(), 1);
}

/// F14, F15: whatever differs, the wait goes on, and the true answer is still taken.
#[test]
fn junk_from_the_right_address_ends_nothing() {
    let mut bench = Bench::new(100, u16::MAX);
    let id = bench.open(5, 0, TIMEOUT).expect("room");
    let remote = bench.servers[0].options.address;
    let elsewhere = SocketAddr::new(remote.ip(), 54);
    let other_local = SocketAddr::new("192.0.2.9".parse().expect("an address"), PORT.number);
    let other_port = SocketAddr::new(PORT.source, PORT.number + 1);
    let good = answer(id, 5);
    let changed = |at: usize, octet: u8| {
        let mut message = good.clone();
        message[at] = octet;
        message
    };
    let last = good.len() - 1;
    use DropReason::{ResponseMalformed, ResponseMismatch, ResponseUnexpected};
    let junk = [
        (local(), remote, answer(id ^ 1, 5), ResponseUnexpected),
        (other_port, remote, good.clone(), ResponseUnexpected),
        (local(), elsewhere, good.clone(), ResponseMismatch),
        (other_local, remote, good.clone(), ResponseMismatch),
        (
            local(),
            bench.servers[1].options.address,
            good.clone(),
            ResponseMismatch,
        ),
        (local(), remote, answer(id, 6), ResponseMismatch),
        (local(), remote, changed(last, 3), ResponseMismatch),
        (local(), remote, changed(last - 2, 28), ResponseMismatch),
        (local(), remote, changed(2, 0), ResponseMalformed),
        (local(), remote, changed(7, 1), ResponseMalformed),
        (local(), remote, changed(5, 2), ResponseMalformed),
        (local(), remote, good[..last].to_vec(), ResponseMalformed),
        (local(), remote, good[..11].to_vec(), ResponseMalformed),
        (
            local(),
            remote,
            changed(5, 0)[..12].to_vec(),
            ResponseMismatch,
        ),
    ];
    for (local, remote, message, reason) in junk {
        assert_eq!(
            bench.take(local, remote, &message),
            Err(reason),
            "{message:?}"
        );
    }
    assert_eq!(bench.outstanding(), [1, 0]);
    assert_eq!(bench.servers[0].nonmatching.sum(), 5);
    assert_eq!(bench.servers[0].noncompliant.sum(), 4);
    let mut shouted = good;
    shouted.make_ascii_uppercase();
    shouted[..2].copy_from_slice(&id.to_be_bytes());
    assert_eq!(bench.take(local(), remote, &shouted), Ok(5));
}

#[test]
fn an_error_without_a_question_is_an_answer() {
    let mut bench = Bench::new(100, u16::MAX);
    let id = bench.open(5, 0, TIMEOUT).expect("room");
    let remote = bench.servers[0].options.address;
    let mut message = answer(id, 5);
    message.truncate(12);
    message[5] = 0;
    for (code, expected) in [
        (rcode::NOERROR, Err(DropReason::ResponseMismatch)),
        (rcode::NXDOMAIN, Err(DropReason::ResponseMismatch)),
        (rcode::FORMERR, Ok(5)),
    ] {
        message[3] = code as u8;
        assert_eq!(bench.take(local(), remote, &message), expected);
    }
}

/// Found by fuzzing: what cannot be made the client's answer must not end the wait.
#[test]
fn an_error_with_records_but_without_a_question_is_junk() {
    let mut bench = Bench::new(100, u16::MAX);
    let id = bench.open(5, 0, TIMEOUT).expect("room");
    let remote = bench.servers[0].options.address;
    let mut bare = answer(id, 5);
    bare.truncate(12);
    bare[3..12].copy_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0, 1]);
    let junk = [
        (&[0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0][..], 0),
        (&[0, 0, 41, 4, 208, 0, 0, 0, 0, 2, 0, 0, 12, 1, 252], 508),
    ];
    for (record, padding) in junk {
        let message = [&bare, record, &vec![0; padding]].concat();
        let taken = bench.take(local(), remote, &message);
        assert_eq!(taken, Err(DropReason::ResponseMismatch), "{record:?}");
    }
    let opt = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
    let with_opt = [&bare[..], &opt].concat();
    assert_eq!(bench.take(local(), remote, &with_opt), Ok(5));
}

#[test]
fn time_outs_come_after_the_time_and_late_answers_are_known_as_late() {
    let mut bench = Bench::new(100, u16::MAX);
    assert_eq!(bench.exchanges.next_expiry(&bench.share), None);
    let id = bench.open(5, 1, TIMEOUT).expect("room");
    let deadline = Now(bench.now.0 + 2 * SECOND);
    assert_eq!(bench.exchanges.next_expiry(&bench.share), Some(deadline));
    bench.now.0 = deadline.0 - 1;
    assert!(bench.expire().is_empty());
    bench.now = deadline;
    assert_eq!(bench.expire(), [5]);
    assert_eq!(
        (bench.outstanding(), bench.servers[1].timeouts.sum()),
        ([0, 0], 1)
    );
    assert_eq!(bench.shard.get(Counter::DownstreamTimeouts), 1);
    let remote = bench.servers[1].options.address;
    assert_eq!(
        bench.take(local(), remote, &answer(id, 5)),
        Err(DropReason::ResponseLate)
    );
    bench.now.0 += SECOND;
    assert!(bench.expire().is_empty());
    assert_eq!(bench.exchanges.next_expiry(&bench.share), None);
}

#[test]
fn a_query_that_could_not_be_sent_is_forgotten() {
    let mut bench = Bench::new(100, u16::MAX);
    let id = bench.open(5, 0, TIMEOUT).expect("room");
    for _ in 0..2 {
        bench.exchanges.cancel(PORT, id, bench.now, &bench.shard);
        let errors = bench.servers[0].send_errors.sum();
        assert_eq!((bench.outstanding(), errors), ([0, 0], 1));
    }
    bench.now.0 += 10 * SECOND;
    assert!(bench.expire().is_empty());
}

/// I6: dnsdist's defaults make room for 262,144 queries, 192 MB, of which nothing is touched before it is used.
#[test]
fn room_that_is_not_used_takes_no_memory() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").expect("procfs");
        let pages = status
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse::<usize>().ok());
        pages.expect("a number") * 4_096
    };
    let before = resident();
    let bench = Bench::new(65_535, u16::MAX);
    assert_eq!(bench.exchanges.slots.count(), 262_144);
    // Other tests run meanwhile, in the same memory.
    assert!(resident().saturating_sub(before) < 50_000_000);
}

#[test]
fn long_queries_and_full_servers_are_refused_and_change_nothing() {
    let mut bench = Bench::new(100, u16::MAX);
    let mut message = vec![0; QUERY_ROOM + 1];
    let client = client(5);
    let mut long = query(&mut message, &client);
    long.length = QUERY_ROOM + 1;
    let mut departure = Departure {
        server: &bench.servers[0],
        port: PORT,
        now: bench.now,
        timeout: TIMEOUT,
        maximum_outstanding: 0,
    };
    let opened = bench
        .exchanges
        .open(&mut bench.share, &mut long, &departure, &mut bench.random);
    assert_eq!(opened, Err(OpenError::QueryTooLong));
    long.length = 30;
    let opened = bench
        .exchanges
        .open(&mut bench.share, &mut long, &departure, &mut bench.random);
    assert_eq!(opened, Err(OpenError::Full));
    assert_eq!(long.header().id(), 0x1234);
    departure.maximum_outstanding = 1;
    let opened = bench
        .exchanges
        .open(&mut bench.share, &mut long, &departure, &mut bench.random);
    assert_eq!((opened, bench.outstanding()), (Ok(()), [1, 0]));
}

#[test]
fn all_bodies_can_be_in_flight_and_all_come_back() {
    let mut bench = Bench::new(1_000, u16::MAX);
    let room = bench.exchanges.slots.count();
    for round in 0..3 {
        for number in 0..room {
            assert!(
                bench.open(number as u16, 0, TIMEOUT).is_ok(),
                "round {round}, number {number}"
            );
        }
        assert_eq!(bench.open(0, 0, TIMEOUT), Err(OpenError::Full));
        bench.now.0 += 2 * SECOND;
        let mut ended = 0;
        // A thousand a call; what is opened between calls must not be lost.
        while ended < room {
            let now = bench.expire().len();
            assert!(now > 0, "{ended} of {room} ended");
            ended += now;
        }
        assert_eq!(bench.outstanding(), [0, 0]);
    }
}

#[test]
fn what_is_opened_during_a_walk_times_out_too() {
    let mut bench = Bench::new(1_000, u16::MAX);
    let mut opened = 0;
    let mut ended = 0;
    for turn in 0..60 {
        for _ in 0..700 {
            opened += usize::from(bench.open(turn, 0, Duration::from_millis(100)).is_ok());
        }
        bench.now.0 += SECOND / 50;
        ended += bench.expire().len();
    }
    for _ in 0..20 {
        bench.now.0 += SECOND;
        ended += bench.expire().len();
    }
    assert_eq!((ended, bench.outstanding()), (opened, [0, 0]));
    assert_eq!(bench.exchanges.next_expiry(&bench.share), None);
}

/// "utilizing the full range available (0-65535)" (RFC 5452, section 9.2). Of 4 × 65,536 random IDs 64,336 are different.
#[test]
fn ids_use_all_sixteen_bits() {
    let mut bench = Bench::new(1_000, u16::MAX);
    let remote = bench.servers[0].options.address;
    let mut counts = vec![0_u8; 1 << 16];
    for turn in 0..4_u32 << 16 {
        let number = turn as u16;
        let id = bench.open(number, 0, TIMEOUT).expect("room");
        counts[usize::from(id)] += 1;
        // A second per thousand queries, so that no key is kept back for long.
        bench.now.0 += SECOND / 1_000;
        assert_eq!(bench.take(local(), remote, &answer(id, number)), Ok(number));
    }
    let different = counts.iter().filter(|&&count| count > 0).count();
    let highest = counts.iter().max();
    assert!((64_000..64_700).contains(&different), "{different} IDs");
    assert!(highest <= Some(&24), "{highest:?} times the same ID");
}

/// Asks one question again and again, never answers in time, but soon after each time-out. Tells whether an answer was ever
/// taken: with 16 IDs, some slot is used again by then.
fn late_answers_are_taken(without_quarantine: bool) -> bool {
    let mut bench = Bench::new(100, 0x000f);
    bench.exchanges.planted.without_quarantine = without_quarantine;
    let remote = bench.servers[0].options.address;
    let mut lives: Vec<(u16, Now)> = Vec::new();
    for _ in 0..200 {
        if let Ok(id) = bench.open(5, 0, TIMEOUT) {
            lives.push((id, Now(bench.now.0 + 2 * SECOND)));
        }
        bench.now.0 += SECOND / 10;
        bench.expire();
        let now = bench.now;
        let late = |deadline: Now| deadline <= now && now.since(deadline) < TIMEOUT;
        for (id, _) in lives.iter().filter(|(_, deadline)| late(*deadline)) {
            if bench.take(local(), remote, &answer(*id, 5)).is_ok() {
                return true;
            }
        }
    }
    false
}

/// Each server may have a udpTimeout of its own: a late answer of a slow one must not find the query to a fast one, and a key
/// of the fast one is free again soon.
#[test]
fn keys_are_kept_back_by_the_time_out_of_the_server_that_was_silent() {
    let fast = Duration::from_millis(100);
    let mut bench = Bench::new(100, 0);
    bench.open(5, 0, TIMEOUT).expect("room");
    bench.now.0 += 2 * SECOND;
    assert_eq!(bench.expire(), [5]);
    bench.now.0 += 39 * SECOND / 10;
    assert_eq!(bench.open(6, 1, fast), Err(OpenError::Full));
    bench.now.0 += SECOND / 10;
    bench.open(6, 1, fast).expect("twice its time-out is over");
    bench.now.0 += SECOND / 10;
    assert_eq!(bench.expire(), [6]);
    bench.now.0 += SECOND / 10;
    assert_eq!(bench.open(7, 0, TIMEOUT), Err(OpenError::Full));
    bench.now.0 += SECOND / 10;
    bench.open(7, 0, TIMEOUT).expect("it was a short one");
}

#[test]
fn a_slot_is_not_reused_while_an_answer_to_its_former_life_could_match() {
    assert!(!late_answers_are_taken(false));
    assert!(
        late_answers_are_taken(true),
        "the test must see what the quarantine prevents"
    );
}

/// What happens to the table, in the order of the network's whims.
#[derive(Debug, Clone)]
enum Step {
    Open {
        number: u16,
        server: usize,
    },
    /// The true answer to the exchange that was opened so many before the last.
    Answer(usize),
    /// The same from the other server, for another question, under another ID.
    FromElsewhere(usize),
    OtherQuestion(usize),
    OtherId(usize),
    Wait {
        milliseconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..50_u16, 0..2_usize).prop_map(|(number, server)| Step::Open { number, server }),
        4 => (0..40_usize).prop_map(Step::Answer),
        1 => (0..40_usize).prop_map(Step::FromElsewhere),
        1 => (0..40_usize).prop_map(Step::OtherQuestion),
        1 => (0..40_usize).prop_map(Step::OtherId),
        1 => (0..1_500_u64).prop_map(|milliseconds| Step::Wait { milliseconds }),
    ]
}

/// Time-outs are told so much late at most, in nanoseconds.
const WALKS_APART: u64 = 2_000_000;

/// An exchange as a simple map knows it.
#[derive(Debug, Clone, Copy)]
struct Model {
    number: u16,
    server: usize,
    deadline: u64,
    waits: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_table_does_what_a_map_would(steps in proptest::collection::vec(step(), 1..300)) {
        let mut bench = Bench::new(100, 0x00ff);
        // By ID; a new life of an ID replaces the old one, which must have ended.
        let mut model: HashMap<u16, Model> = HashMap::new();
        let mut opened: Vec<u16> = Vec::new();
        for step in steps {
            let pick = |back: usize| {
                let id = *opened.get(opened.len().checked_sub(back + 1)?)?;
                Some((id, model[&id]))
            };
            match step {
                Step::Open { number, server } => {
                    if let Ok(id) = bench.open(number, server, TIMEOUT) {
                        let deadline = bench.now.0 + 2 * SECOND;
                        let old = model.insert(id, Model { number, server, deadline, waits: true });
                        prop_assert!(old.is_none_or(|old| !old.waits), "two queries under one ID");
                        opened.push(id);
                    }
                }
                Step::Answer(back) => {
                    let Some((id, exchange)) = pick(back) else { continue };
                    let remote = bench.servers[exchange.server].options.address;
                    let expected = if exchange.waits { Ok(exchange.number) } else { Err(DropReason::ResponseLate) };
                    prop_assert_eq!(bench.take(local(), remote, &answer(id, exchange.number)), expected);
                    model.entry(id).and_modify(|exchange| exchange.waits = false);
                }
                Step::FromElsewhere(back) => {
                    let Some((id, exchange)) = pick(back) else { continue };
                    let remote = bench.servers[1 - exchange.server].options.address;
                    prop_assert!(bench.take(local(), remote, &answer(id, exchange.number)).is_err());
                }
                Step::OtherQuestion(back) => {
                    let Some((id, exchange)) = pick(back) else { continue };
                    let remote = bench.servers[exchange.server].options.address;
                    prop_assert!(bench.take(local(), remote, &answer(id, exchange.number + 1)).is_err());
                }
                Step::OtherId(back) => {
                    let Some((id, exchange)) = pick(back) else { continue };
                    let remote = bench.servers[exchange.server].options.address;
                    prop_assert!(bench.take(local(), remote, &answer(id ^ 0x8000, exchange.number)).is_err());
                }
                Step::Wait { milliseconds } => {
                    bench.now.0 += milliseconds * SECOND / 1_000;
                    let mut ended = bench.expire();
                    let due = model.values_mut().filter(|exchange| exchange.waits && exchange.deadline <= bench.now.0);
                    let due: Vec<&mut Model> = due.collect();
                    // One walk ends all that are due, and the next comes a little later.
                    if ended.is_empty() && due.iter().all(|exchange| exchange.deadline + WALKS_APART > bench.now.0) {
                        continue;
                    }
                    let mut expected: Vec<u16> = due.into_iter().map(|exchange| {
                        exchange.waits = false;
                        exchange.number
                    }).collect();
                    ended.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(ended, expected);
                }
            }
            let outstanding = [0, 1].map(|server| {
                model.values().filter(|exchange| exchange.waits && exchange.server == server).count() as i64
            });
            prop_assert_eq!(bench.outstanding(), outstanding);
        }
    }
}

/// A query on its way, in the stress test: what the network needs to answer it.
#[derive(Clone, Copy)]
struct InFlight {
    id: u16,
    port: u16,
    number: u16,
}

/// How many queries each worker of the stress test sends: client ports, so at most 65,536.
const QUERIES: u16 = 20_000;

/// I1 under threads: two workers open, two other threads both receive every answer, time-outs fall in between; each
/// exchange ends exactly once.
#[test]
fn each_exchange_ends_exactly_once_whoever_ends_it() {
    const WORKERS: usize = 2;
    let server = Arc::new(server(0, "192.0.2.7:53"));
    let registry = Arc::new(Servers::default());
    registry.publish(std::slice::from_ref(&server));
    let exchanges = Exchanges::new(WORKERS, 512, registry, &mut Random::from_seed(1));
    let ends: Vec<Vec<AtomicU32>> = (0..WORKERS)
        .map(|_| (0..QUERIES).map(|_| AtomicU32::new(0)).collect())
        .collect();
    let count = |waiting: &Waiting| {
        let worker = usize::from(waiting.pool.0);
        ends[worker][usize::from(waiting.client.port())].fetch_add(1, Relaxed);
    };
    let (exchanges, server, count) = (&exchanges, &server, &count);
    std::thread::scope(|scope| {
        let senders = [(); 2].map(|()| {
            let (sender, receiver) = mpsc::channel();
            scope.spawn(move || answer_all(exchanges, server, receiver, count));
            sender
        });
        for worker in 0..WORKERS {
            let senders = senders.clone();
            scope.spawn(move || run_worker(exchanges, worker, server, &senders, count));
        }
    });
    for (worker, ends) in ends.iter().enumerate() {
        for (number, ends) in ends.iter().enumerate() {
            assert_eq!(ends.load(Relaxed), 1, "query {number} of worker {worker}");
        }
    }
    assert_eq!(server.outstanding.get(), 0);
}

/// Gives the answers to all that is in flight, but for one in eight.
fn answer_all(
    exchanges: &Exchanges,
    server: &Server,
    flights: mpsc::Receiver<InFlight>,
    count: &impl Fn(&Waiting),
) {
    let shard = Shard::new(0, Writers::Many, Rings::default());
    let mut waiting = Waiting::new();
    for flight in flights.into_iter().filter(|flight| flight.number % 8 != 0) {
        let message = answer(flight.id, flight.number);
        let local = SocketAddr::new(PORT.source, flight.port);
        let remote = server.options.address;
        match exchanges.take(local, remote, &message, Now::read(), &shard, &mut waiting) {
            Ok(_) => count(&waiting),
            Err(reason) => assert_ne!(reason, DropReason::ResponseMalformed),
        }
    }
}

/// Opens an exchange for each number, expiring as it goes, and waits for the last time-out.
fn run_worker(
    exchanges: &Exchanges,
    worker: usize,
    server: &Server,
    senders: &[mpsc::Sender<InFlight>],
    count: &impl Fn(&Waiting),
) {
    let shard = Shard::new(worker, Writers::One, Rings::default());
    let mut share = exchanges.share(worker);
    let mut random = Random::from_seed(worker as u64);
    let mut waiting = Waiting::new();
    let mut number = 0;
    while number < QUERIES || exchanges.next_expiry(&share).is_some() {
        let now = Now::read();
        exchanges.expire(&mut share, now, &shard, &mut waiting, count);
        if number == QUERIES {
            std::thread::yield_now();
            continue;
        }
        let mut message = [0; 64];
        let client = client(number);
        let mut query = query(&mut message, &client);
        query.pool = PoolId(worker as u16);
        let port = Port {
            number: 40_000 + number / 64 % 64,
            ..PORT
        };
        let departure = Departure {
            server,
            port,
            now,
            timeout: Duration::from_micros(500 + u64::from(number % 7) * 100),
            maximum_outstanding: 2_000,
        };
        match exchanges.open(&mut share, &mut query, &departure, &mut random) {
            Ok(()) => {
                let flight = InFlight {
                    id: query.header().id(),
                    port: port.number,
                    number,
                };
                for sender in senders {
                    sender.send(flight).expect("the network is there");
                }
                number += 1;
            }
            Err(error) => assert_eq!(error, OpenError::Full),
        }
    }
}
