//! Backends by script on loopback (F17, F20).

mod limits;
mod proxied;

use super::*;
use crate::backend::policy::Policy;
use crate::backend::pool::Pool as ServerPool;
use crate::backend::server::ServerOptions;
use crate::backend::source::Source;
use crate::config::Config;
use crate::counters::Counter;
use crate::pipeline::query::{OwnedQuery, Protocol, Way};
use crate::pipeline::scene::query;
use crate::runtime::Decision;
use crate::runtime::fixture::{
    self, backend, config, framed, jump, read, response, shared, until, write,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;
use wire::codes::qtype;

const MINUTE: Duration = Duration::from_secs(60);

struct Scene {
    shared: Arc<Shared>,
    asked: Box<Asked>,
}

/// A TCP client's query that is to be asked from the backend at `address`.
fn scene(address: SocketAddr) -> Scene {
    scene_with(fixture::server(address))
}

fn scene_with(server: ServerOptions) -> Scene {
    let (shared, asked) = ask_for(config(vec![server]), "wWw.example.", qtype::A);
    Scene { shared, asked }
}

/// A TCP client's query for a name and type, to be asked from the backend at `address`.
pub(crate) fn scene_for(address: SocketAddr, name: &str, qtype: u16) -> (Arc<Shared>, Box<Asked>) {
    ask_for(config(vec![fixture::server(address)]), name, qtype)
}

fn ask_for(config: Config, name: &str, qtype: u16) -> (Arc<Shared>, Box<Asked>) {
    let shared = shared(config);
    let client = "127.0.0.1:5353".parse().unwrap();
    let destination = "127.0.0.1:53".parse().unwrap();
    let mut query = OwnedQuery::copy(
        &query(name, qtype),
        65_535,
        (client, destination),
        (Protocol::Tcp, Way::Stream),
    )
    .unwrap();
    let Decision::Ask(asked) = shared.decide(&mut query, &destination.into()) else {
        panic!("the backend is to be asked");
    };
    (shared, asked)
}

impl Scene {
    async fn ask(&self) -> Result<Vec<u8>, Failure> {
        let mut hold = self.shared.memory.hold();
        let answer = ask(&self.shared, &self.asked, &mut hold).await;
        assert_eq!(self.server().outstanding.get(), 0);
        answer.map(|answer| answer.message)
    }

    fn server(&self) -> &Server {
        &self.asked.server
    }
}

#[tokio::test]
async fn the_answer_has_the_clients_id_and_case() {
    let address = backend(|mut stream| async move {
        let query = read(&mut stream).await.unwrap();
        let mut message = response(&query, 0);
        message[12..24].make_ascii_lowercase();
        write(&mut stream, &message).await;
    });
    let scene = scene(address.await);
    let answer = scene.ask().await.unwrap();
    assert_eq!(answer[..2], scene.asked.query[..2]);
    assert_eq!(answer[12..], scene.asked.query[12..]);
    assert_eq!(scene.server().responses.sum(), 1);
    assert_eq!(scene.server().tcp.new_connections.load(Relaxed), 1);
}

/// Wrong ID, another question, no response, no message at all, and then the answer (invariant I7).
#[tokio::test]
async fn junk_does_not_end_the_wait() {
    let address = backend(|mut stream| async move {
        let query = read(&mut stream).await.unwrap();
        let good = response(&query, 0);
        let mut wrong_id = good.clone();
        wrong_id[0] ^= 1;
        let mut wrong_question = good.clone();
        wrong_question[13] = b'x';
        let mut cut = good.clone();
        cut[7] = 1;
        for message in [&wrong_id, &wrong_question, &cut, &query, &Vec::new(), &good] {
            write(&mut stream, message).await;
        }
    });
    let scene = scene(address.await);
    assert!(scene.ask().await.is_ok());
    assert_eq!(scene.server().nonmatching.sum(), 2);
    assert_eq!(scene.server().noncompliant.sum(), 3);
    let drops = |reason| scene.shared.shard.drops(reason);
    assert_eq!(drops(DropReason::ResponseUnexpected), 1);
    assert_eq!(drops(DropReason::ResponseMismatch), 1);
    assert_eq!(drops(DropReason::ResponseMalformed), 3);
}

#[tokio::test]
async fn an_error_without_question_is_an_answer() {
    let address = backend(|mut stream| async move {
        let mut message = read(&mut stream).await.unwrap();
        message.truncate(12);
        message[2..].copy_from_slice(&[0x80, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
        write(&mut stream, &message).await;
    });
    let scene = scene(address.await);
    let answer = scene.ask().await.unwrap();
    assert_eq!(answer[3], 5);
    assert_eq!(answer[12..], scene.asked.query[12..], "with the question");
}

/// TC over TCP means nothing that asking again would change.
#[tokio::test]
async fn a_truncated_response_is_passed_on() {
    let address = backend(|mut stream| async move {
        let query = read(&mut stream).await.unwrap();
        let mut message = response(&query, 0);
        message[2] |= 2;
        write(&mut stream, &message).await;
        assert_eq!(read(&mut stream).await, None, "asked once");
    });
    let answer = scene(address.await).ask().await.unwrap();
    assert_eq!(answer[2] & 2, 2);
}

#[tokio::test]
async fn a_backend_that_closes_is_not_asked_again() {
    let (connected, mut connections) = tokio::sync::mpsc::unbounded_channel();
    let address = backend(move |mut stream| {
        connected.send(()).unwrap();
        async move {
            let query = read(&mut stream).await.unwrap();
            // The length and half of the message.
            let _ = stream.write_all(&framed(&query)[..10]).await;
        }
    });
    let scene = scene(address.await);
    assert_eq!(scene.ask().await, Err(Failure::Connection));
    assert_eq!(scene.server().tcp.died_reading_response.load(Relaxed), 1);
    assert_eq!(scene.server().tcp.gave_up.load(Relaxed), 1);
    assert_eq!(scene.shared.shard.get(Counter::DownstreamSendErrors), 1);
    connections.recv().await.unwrap();
    assert!(connections.try_recv().is_err(), "one connection");
}

#[tokio::test]
async fn a_backend_that_resets_is_a_failure() {
    let address = backend(|stream| async move {
        // Closed with the query unread, the kernel sends RST.
        stream.readable().await.unwrap();
    });
    let scene = scene(address.await);
    assert_eq!(scene.ask().await, Err(Failure::Connection));
}

/// A backend that says when it has a query, and does not answer.
async fn silent() -> (SocketAddr, mpsc::Receiver<()>) {
    let (asked, seen) = mpsc::channel(1);
    let address = backend(move |mut stream| {
        let asked = asked.clone();
        async move {
            read(&mut stream).await.unwrap();
            asked.send(()).await.unwrap();
            std::future::pending().await
        }
    });
    (address.await, seen)
}

#[tokio::test]
async fn a_backend_that_hangs_costs_its_time_out() {
    let (address, mut seen) = silent().await;
    let scene = scene_with(ServerOptions {
        tcp_receive_timeout: 10 * MINUTE,
        ..fixture::server(address)
    });
    let waiting = async {
        seen.recv().await.unwrap();
        jump(5 * MINUTE).await;
        assert_eq!(scene.server().timeouts.sum(), 0);
        jump(10 * MINUTE).await;
    };
    let (answer, ()) = tokio::join!(scene.ask(), waiting);
    assert_eq!(answer, Err(Failure::Timeout));
    assert_eq!(scene.server().timeouts.sum(), 1);
    assert_eq!(scene.shared.shard.rings.timeouts().len(), 1);
    assert_eq!(scene.server().tcp.read_timeouts.load(Relaxed), 1);
    assert_eq!(scene.shared.shard.get(Counter::DownstreamTimeouts), 1);
}

/// The time-out is for the whole answer: dripping buys none.
#[tokio::test]
async fn a_backend_that_drips_costs_its_time_out() {
    let (asked, mut seen) = mpsc::channel(1);
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let address = backend(move |mut stream| {
        let (asked, told) = (asked.clone(), Arc::clone(&told));
        async move {
            let query = read(&mut stream).await.unwrap();
            asked.send(()).await.unwrap();
            for octet in framed(&response(&query, 1_000)) {
                told.notified().await;
                if stream.write_all(&[octet]).await.is_err() {
                    return;
                }
            }
        }
    });
    let scene = scene_with(ServerOptions {
        tcp_receive_timeout: 30 * MINUTE,
        ..fixture::server(address.await)
    });
    let dripping = async {
        seen.recv().await.unwrap();
        for minute in 0..40 {
            let timeouts = scene.server().timeouts.sum();
            assert!(minute > 25 || timeouts == 0, "{minute}");
            go.notify_one();
            jump(MINUTE).await;
        }
    };
    let (answer, ()) = tokio::join!(scene.ask(), dripping);
    assert_eq!(answer, Err(Failure::Timeout));
}

/// A client that goes away takes its query with it.
#[tokio::test]
async fn a_query_that_is_dropped_is_no_longer_outstanding() {
    let (address, mut seen) = silent().await;
    let scene = scene(address);
    tokio::select! {
        _ = scene.ask() => panic!("nobody answers"),
        _ = seen.recv() => {}
    }
    assert_eq!(scene.server().outstanding.get(), 0);
    let open = || scene.server().tcp.connections.load(Relaxed);
    until("its connection is closed", || open() == 0).await;
}

#[tokio::test]
async fn the_source_address_is_the_servers() {
    let (seen, mut source) = tokio::sync::mpsc::channel(1);
    let address = backend(move |mut stream| {
        let seen = seen.clone();
        async move {
            seen.send(stream.peer_addr().unwrap().ip()).await.unwrap();
            let query = read(&mut stream).await.unwrap();
            write(&mut stream, &response(&query, 65_535)).await;
        }
    });
    let scene = scene_with(ServerOptions {
        source: Source {
            address: Some("127.0.0.9".parse().unwrap()),
            tcp_fast_open: true,
            ..Source::default()
        },
        ..fixture::server(address.await)
    });
    assert_eq!(scene.ask().await.map(|answer| answer.len()), Ok(65_535));
    assert_eq!(source.recv().await.unwrap().to_string(), "127.0.0.9");
}

// ---------------------------------------------------------------------------------------------- connections kept

/// A backend that counts its connections, and answers `per_connection` queries on each before it closes.
async fn counting(per_connection: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let address = backend(move |mut stream| {
        counted.fetch_add(1, Relaxed);
        async move {
            for _ in 0..per_connection {
                let Some(query) = read(&mut stream).await else {
                    return;
                };
                write(&mut stream, &response(&query, 0)).await;
            }
        }
    });
    (address.await, connections)
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let (address, connections) = counting(usize::MAX).await;
    let scene = scene(address);
    for _ in 0..20 {
        assert!(scene.ask().await.is_ok());
    }
    assert_eq!(connections.load(Relaxed), 1);
    assert_eq!(scene.server().tcp.queries_per_connection(), 20.0);
}

/// "one that the backend closed is replaced without a lost query"; the backend gets each query once.
#[tokio::test]
async fn a_connection_that_the_backend_closed_is_replaced() {
    for per_connection in [1, 2, 3] {
        let (address, connections) = counting(per_connection).await;
        let scene = scene(address);
        for turn in 0..12 {
            assert!(scene.ask().await.is_ok(), "query {turn}");
            if turn % 3 == 0 {
                // tidy: sometimes we have seen that it is closed, sometimes not yet
                sleep(Duration::from_millis(5)).await;
            }
        }
        assert_eq!(connections.load(Relaxed), 12 / per_connection);
        assert_eq!(scene.server().tcp.gave_up.load(Relaxed), 0);
    }
}

/// RFC 7766 section 7: "Responses ... to pipelined queries ... can be sent in a different order".
#[tokio::test]
async fn answers_come_in_any_order_on_one_connection() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let address = backend(move |mut stream| {
        counted.fetch_add(1, Relaxed);
        async move {
            let mut queries = Vec::new();
            while queries.len() < 8 {
                queries.push(read(&mut stream).await.unwrap());
            }
            for query in queries.iter().rev() {
                write(&mut stream, &response(query, 0)).await;
            }
            let _ = read(&mut stream).await;
        }
    });
    let options = ServerOptions {
        tcp_in_flight: 8,
        ..fixture::server(address.await)
    };
    let scene = Arc::new(scene_with(options));
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let scene = Arc::clone(&scene);
        asking.spawn(async move {
            let mut hold = scene.shared.memory.hold();
            ask(&scene.shared, &scene.asked, &mut hold).await.is_ok()
        });
    }
    let answered = asking.join_all().await;
    assert_eq!((answered, connections.load(Relaxed)), (vec![true; 8], 1));
    assert_eq!(scene.shared.memory.used(), 0);
}

#[tokio::test]
async fn idle_connections_are_few_and_short() {
    let (address, connections) = counting(usize::MAX).await;
    let mut config = config(vec![fixture::server(address)]);
    config.tuning.tcp.maximum_cached_connections = 2;
    config.tuning.tcp.downstream_idle_timeout = Duration::from_millis(100);
    let (shared, asked) = ask_for(config, "a.example.", qtype::A);
    let ask_once = || async {
        let mut hold = shared.memory.hold();
        ask(&shared, &asked, &mut hold).await.is_ok()
    };
    let five = tokio::join!(ask_once(), ask_once(), ask_once(), ask_once(), ask_once());
    assert_eq!(five, (true, true, true, true, true));
    assert_eq!(connections.load(Relaxed), 5, "one query each at a time");
    let open = || asked.server.tcp.connections.load(Relaxed);
    until("two are kept", || open() <= 2).await;
    until("none is kept for long", || open() == 0).await;
}

// ---------------------------------------------------------------------------------------------- several servers

/// A backend that answers with this RCODE each time that it is told to.
async fn told(code: u8) -> (ServerOptions, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let waiting = Arc::clone(&go);
    let address = backend(move |mut stream| {
        let waiting = Arc::clone(&waiting);
        async move {
            while let Some(query) = read(&mut stream).await {
                waiting.notified().await;
                let mut message = response(&query, 0);
                message[3] |= code;
                write(&mut stream, &message).await;
            }
        }
    });
    (fixture::server(address.await), go)
}

/// What the first of these servers to be asked is asked with this policy.
fn with_policy(policy: Policy, servers: Vec<ServerOptions>) -> (Arc<Shared>, Box<Asked>) {
    let mut config = config(servers);
    let pool = config.pools[0].take().unwrap();
    config.pools[0] = Some(Arc::new(ServerPool {
        name: String::new(),
        servers: pool.servers.clone(),
        cache: None,
        policy,
        circle: Default::default(),
        chooser: None,
        position: Arc::default(),
        hedging: Arc::default(),
        subnets: Default::default(),
    }));
    ask_for(config, "a.example.", qtype::A)
}

async fn rcode_of((shared, asked): &(Arc<Shared>, Box<Asked>)) -> Result<u8, Failure> {
    let mut hold = shared.memory.hold();
    let answer = ask(shared, asked, &mut hold).await?;
    Ok(answer.message[3] & 15)
}

/// The same where a backend is told to answer when `is_so`.
async fn rcode_when(
    raced: &(Arc<Shared>, Box<Asked>),
    go: &Notify,
    is_so: impl FnMut() -> bool,
) -> Result<u8, Failure> {
    let telling = async {
        until("the other one has ended", is_so).await;
        go.notify_one();
    };
    let (code, ()) = tokio::join!(rcode_of(raced), telling);
    code
}

const RACE: Policy = Policy::Race { width: 0 };

#[tokio::test]
async fn the_first_good_answer_wins_over_tcp() {
    let (servfail, say_servfail) = told(2).await;
    let (nxdomain, say_nxdomain) = told(3).await;
    let (noerror, say_noerror) = told(0).await;
    let raced = with_policy(RACE, vec![servfail, nxdomain, noerror]);
    let (shared, asked) = &raced;
    say_servfail.notify_one();
    let is_held = || shared.shard.drops(DropReason::ResponseHeld) == 1;
    let code = rcode_when(&raced, &say_nxdomain, is_held).await;
    assert_eq!(code, Ok(3), "SERVFAIL has waited");
    let servers = &asked.config.servers;
    let sum = |look: fn(&Server) -> u64| servers.iter().map(|server| look(server)).sum::<u64>();
    assert_eq!(sum(|server| server.queries.sum()), 3);
    assert_eq!(sum(|server| server.extra_queries.sum()), 2);
    assert_eq!(shared.shard.drops(DropReason::ResponseHeld), 1);
    // The loser is counted when it answers.
    say_noerror.notify_one();
    let lost = || shared.shard.drops(DropReason::ResponseLost);
    until("the loser has answered", || lost() > 0).await;
    assert_eq!(sum(|server| server.outstanding.get() as u64), 0);
}

#[tokio::test]
async fn errors_are_answers_when_there_is_nothing_better() {
    let (servfail, say_servfail) = told(2).await;
    let (refused, say_refused) = told(5).await;
    let raced = with_policy(RACE, vec![servfail, refused]);
    say_servfail.notify_one();
    let is_held = || raced.0.shard.drops(DropReason::ResponseHeld) == 1;
    assert_eq!(rcode_when(&raced, &say_refused, is_held).await, Ok(5));
    let closing = backend(|mut stream| async move {
        let _ = read(&mut stream).await;
    });
    let (servfail, say_servfail) = told(2).await;
    let raced = with_policy(RACE, vec![servfail, fixture::server(closing.await)]);
    let has_failed = || raced.1.config.servers[1].tcp.gave_up.load(Relaxed) == 1;
    assert_eq!(rcode_when(&raced, &say_servfail, has_failed).await, Ok(2));
}

#[tokio::test]
async fn a_second_server_is_asked_when_the_first_is_late() {
    let (late, _never) = told(0).await;
    let (ready, say) = told(0).await;
    say.notify_one();
    let hedged = with_policy(Policy::Hedge, vec![late, ready]);
    let (_, asked) = &hedged;
    let [first, second] = [0, 1].map(|at: usize| Arc::clone(&asked.config.servers[at]));
    first.slowest_tcp.note(Duration::from_millis(10));
    let pool = asked.config.pools[0].as_ref().unwrap();
    (0..100).for_each(|_| pool.hedging.earn());
    assert_eq!(rcode_of(&hedged).await, Ok(0));
    assert_eq!((first.queries.sum(), second.queries.sum()), (1, 1));
    assert_eq!(second.extra_queries.sum(), 1);
}
