//! Real connections on loopback.

use super::*;
use crate::backend::server::ServerOptions;
use crate::config::{Config, TcpTuning};
use crate::counters::Counter;
use crate::pipeline::drop::DropReason;
use crate::pipeline::scene::query;
use crate::runtime::fixture::{
    PATIENCE, answering, backend, config, framed, jump, read, response, server, shared, until,
    write,
};
use crate::runtime::memory::Memory;
use crate::stop::Stopper;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use testnet::loopback::own_address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wire::codes::qtype;

mod at_path;
mod hostile;
mod order;

const MINUTE: Duration = Duration::from_secs(60);

struct Scene {
    frontend: Arc<Frontend>,
    counters: Arc<Counters>,
    address: SocketAddr,
    stopper: Stopper,
    accepting: JoinHandle<io::Result<()>>,
}

/// A frontend without backends.
async fn start() -> Scene {
    start_with(config(Vec::new())).await
}

async fn start_tuned(tune: impl FnOnce(&mut TcpTuning)) -> Scene {
    let mut config = config(Vec::new());
    tune(&mut config.tuning.tcp);
    start_with(config).await
}

async fn start_with(config: Config) -> Scene {
    start_sharing(shared(config)).await
}

async fn start_sharing(shared: Arc<Shared>) -> Scene {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let frontend = Arc::new(Frontend::new(shared));
    let counters = Arc::new(Counters::default());
    let stopper = Stopper::default();
    let accepting = tokio::spawn(serve(
        listener,
        Arc::clone(&frontend),
        Arc::clone(&counters),
        stopper.watch(),
    ));
    Scene {
        frontend,
        counters,
        address,
        stopper,
        accepting,
    }
}

impl Scene {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Serves by another configuration, whose listener is the scene's.
    fn listen(&self, mut config: Config, adapt: impl FnOnce(&mut crate::config::Listener)) {
        let mut listener = crate::config::Listener {
            address: self.address,
            sockets: 1,
            reuse_port: false,
            xdp: crate::config::Xdp::Off,
            tcp_listen_queue_size: 10,
            maximum_tcp_connections: 0,
            pinning: Vec::new(),
            tcp_in_flight: 0,
            interface: None,
            tcp_fast_open: crate::config::FastOpen::default(),
            proxy_protocol: true,
        };
        adapt(&mut listener);
        config.listen(vec![listener]);
        self.frontend.shared.set_config(config);
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.frontend.shared.shard.drops(reason)
    }

    /// Stops and waits until all tasks have finished.
    async fn stop(self) {
        self.stopper.stop();
        self.stopper.finished().await;
        self.accepting.await.unwrap().unwrap();
        assert_eq!(self.counters.figures().connections, 0);
        assert_eq!(self.frontend.shared.memory.used(), 0);
    }
}

/// A query for `name` under this ID.
fn asking(name: &str, id: u16) -> Vec<u8> {
    let mut message = query(name, qtype::A);
    message[..2].copy_from_slice(&id.to_be_bytes());
    message
}

fn id(message: &[u8]) -> u16 {
    u16::from_be_bytes([message[0], message[1]])
}

fn rcode(message: &[u8]) -> u8 {
    message[3] & 15
}

// ---------------------------------------------------------------------------------------------- framing

#[tokio::test]
async fn pipelined_queries_are_answered_whole_or_octet_by_octet() {
    let scene = start().await;
    let mut client = scene.connect().await;
    let mut bytes = framed(&asking("refused.example.", 1));
    bytes.extend(framed(&asking("reFUSED.example.", 2)));
    client.write_all(&bytes).await.unwrap();
    for octet in framed(&asking("refused.example.", 3)) {
        client.write_all(&[octet]).await.unwrap();
    }
    for expected in 1..=3 {
        let answer = read(&mut client).await.unwrap();
        assert_eq!((id(&answer), rcode(&answer)), (expected, 5));
    }
    drop(client);
    let counters = Arc::clone(&scene.counters);
    scene.stop().await;
    assert_eq!(counters.queries.load(Relaxed), 3);
    assert_eq!(counters.responses.load(Relaxed), 3);
    assert_eq!(counters.figures().queries_per_connection, 3.0);
}

#[test]
fn accepting_rests_for_want_of_descriptors_and_not_for_one_connection() {
    for (number, is_of_one) in [
        (libc::ECONNABORTED, true),
        (libc::ENETDOWN, true),
        (libc::EPROTO, true),
        (libc::EHOSTUNREACH, true),
        (libc::EMFILE, false),
        (libc::ENOBUFS, false),
    ] {
        let error = io::Error::from_raw_os_error(number);
        assert_eq!(is_of_one_connection(&error), is_of_one, "{error}");
    }
}

#[tokio::test]
async fn what_is_not_dns_over_tcp_closes_the_connection() {
    let scene = start().await;
    let mut response = asking("refused.example.", 1);
    response[2] |= 0x80;
    for bytes in [vec![0, 0], framed(&[0; 11]), framed(&response)] {
        let mut client = scene.connect().await;
        client.write_all(&bytes).await.unwrap();
        assert_eq!(read(&mut client).await, None, "{bytes:?}");
    }
    // Each has a name (I11).
    let drops = [DropReason::TooShort, DropReason::NotQuery].map(|reason| scene.drops(reason));
    assert_eq!(drops, [2, 1]);
    scene.stop().await;
}

#[tokio::test]
async fn a_client_outside_the_acl_is_not_listened_to() {
    let config = Config {
        acl: Default::default(),
        ..config(Vec::new())
    };
    let scene = start_with(config).await;
    let mut client = scene.connect().await;
    assert_eq!(read(&mut client).await, None, "before it has said anything");
    assert_eq!(scene.drops(DropReason::Acl), 1);
    let shared = &scene.frontend.shared;
    assert_eq!(shared.shard.get(Counter::AclDrops), 1);
    let figures = scene.counters.figures();
    assert_eq!(figures.connections_maximum, 0, "it takes no place");
    scene.stop().await;
}

#[tokio::test]
async fn a_dropped_query_ends_the_connection_after_the_answers_before_it() {
    let scene = start().await;
    let mut client = scene.connect().await;
    write(&mut client, &asking("refused.example.", 1)).await;
    write(&mut client, &asking("dropped.example.", 2)).await;
    assert_eq!(read(&mut client).await.map(|answer| id(&answer)), Some(1));
    assert_eq!(read(&mut client).await, None);
    assert_eq!(scene.drops(DropReason::Rule), 1);
    scene.stop().await;
}

#[tokio::test]
async fn a_half_closed_connection_gets_its_answers() {
    let scene = start_with(config(vec![server(answering(0).await)])).await;
    let mut client = scene.connect().await;
    write(&mut client, &asking("www.example.", 7)).await;
    client.shutdown().await.unwrap();
    assert_eq!(read(&mut client).await.map(|answer| id(&answer)), Some(7));
    assert_eq!(read(&mut client).await, None);
    scene.stop().await;
}

// ---------------------------------------------------------------------------------------------- limits (F31)

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_closed_and_one_in_the_middle_of_a_query_too() {
    let scene = start_tuned(|tuning| tuning.receive_timeout = Duration::from_secs(2)).await;
    for bytes in [&[][..], &[0], &[0, 50, 1, 2, 3]] {
        let began = Instant::now();
        let mut client = scene.connect().await;
        client.write_all(bytes).await.unwrap();
        assert_eq!(read(&mut client).await, None);
        assert!(began.elapsed() >= Duration::from_secs(2));
    }
    assert_eq!(scene.counters.client_timeouts.load(Relaxed), 3);
    scene.stop().await;
}

#[tokio::test]
async fn time_outs_of_zero_are_none() {
    let scene = start_tuned(|tuning| {
        tuning.receive_timeout = Duration::ZERO;
        tuning.send_timeout = Duration::ZERO;
    })
    .await;
    let mut client = scene.connect().await;
    let connections = || scene.counters.figures().connections;
    until("it is let in", || connections() == 1).await;
    jump(30 * MINUTE).await;
    write(&mut client, &asking("refused.example.", 7)).await;
    assert_eq!(read(&mut client).await.map(|answer| id(&answer)), Some(7));
    drop(client);
    scene.stop().await;
}

/// Slowloris: an octet now and then does not buy time.
#[tokio::test]
async fn a_query_has_to_come_in_time_as_a_whole() {
    let scene = start_tuned(|tuning| tuning.receive_timeout = 10 * MINUTE).await;
    let mut client = scene.connect().await;
    let connections = || scene.counters.figures().connections;
    until("it is let in", || connections() == 1).await;
    let timeouts = || scene.counters.client_timeouts.load(Relaxed);
    let mut minutes = 0;
    for octet in framed(&asking("refused.example.", 1)) {
        if timeouts() > 0 || client.write_all(&[octet]).await.is_err() {
            break;
        }
        jump(MINUTE).await;
        minutes += 1;
    }
    assert_eq!(read(&mut client).await, None);
    assert!((9..20).contains(&minutes), "{minutes}");
    assert_eq!(timeouts(), 1);
    scene.stop().await;
}

/// A backend that says when it has a query, and answers it when it is told to.
async fn told() -> (SocketAddr, mpsc::Receiver<()>, Arc<Notify>) {
    let (asked, seen) = mpsc::channel(1);
    let go = Arc::new(Notify::new());
    let waiting = Arc::clone(&go);
    let address = backend(move |mut stream| {
        let (asked, waiting) = (asked.clone(), Arc::clone(&waiting));
        async move {
            let query = read(&mut stream).await.unwrap();
            asked.send(()).await.unwrap();
            waiting.notified().await;
            write(&mut stream, &response(&query, 0)).await;
        }
    });
    (address.await, seen, go)
}

#[tokio::test]
async fn a_client_whose_answer_is_under_way_may_be_silent() {
    let (address, mut seen, go) = told().await;
    let mut config = config(vec![ServerOptions {
        tcp_receive_timeout: 30 * MINUTE,
        ..server(address)
    }]);
    config.tuning.tcp.receive_timeout = 2 * MINUTE;
    let scene = start_with(config).await;
    let mut client = scene.connect().await;
    write(&mut client, &asking("www.example.", 7)).await;
    seen.recv().await.unwrap();
    jump(9 * MINUTE).await;
    go.notify_one();
    assert_eq!(read(&mut client).await.map(|answer| id(&answer)), Some(7));
    scene.stop().await;
}

/// RFC 7766 section 6.2.3: who waits for an answer is not idle.
#[tokio::test]
async fn the_time_for_the_next_query_begins_with_the_last_answer() {
    let (address, mut seen, go) = told().await;
    let mut config = config(vec![ServerOptions {
        tcp_receive_timeout: 30 * MINUTE,
        ..server(address)
    }]);
    config.tuning.tcp.receive_timeout = 4 * MINUTE;
    let scene = start_with(config).await;
    let mut client = scene.connect().await;
    write(&mut client, &asking("www.example.", 7)).await;
    seen.recv().await.unwrap();
    jump(3 * MINUTE).await;
    go.notify_one();
    assert_eq!(read(&mut client).await.map(|answer| id(&answer)), Some(7));
    jump(3 * MINUTE).await;
    write(&mut client, &asking("refused.example.", 8)).await;
    assert_eq!(read(&mut client).await.map(|answer| id(&answer)), Some(8));
    drop(client);
    scene.stop().await;
}

#[tokio::test]
async fn queries_per_connection_are_limited() {
    let scene = start_tuned(|tuning| tuning.maximum_queries_per_connection = 2).await;
    let mut client = scene.connect().await;
    let mut bytes = Vec::new();
    for id in 1..=3 {
        bytes.extend(framed(&asking("refused.example.", id)));
    }
    client.write_all(&bytes).await.unwrap();
    for expected in 1..=2 {
        let answer = read(&mut client).await.unwrap();
        assert_eq!(id(&answer), expected);
    }
    assert_eq!(read(&mut client).await, None);
    drop(client);
    scene.stop().await;
}

#[tokio::test]
async fn connections_last_for_a_limited_time() {
    let scene = start_tuned(|tuning| {
        tuning.maximum_connection_duration = 5 * MINUTE;
        tuning.receive_timeout = 10 * MINUTE;
    })
    .await;
    let mut client = scene.connect().await;
    // At the beginning, and after one to four minutes.
    for id in 0..5 {
        write(&mut client, &asking("refused.example.", id)).await;
        assert!(read(&mut client).await.is_some(), "minute {id}");
        jump(MINUTE).await;
    }
    assert_eq!(read(&mut client).await, None);
    drop(client);
    scene.stop().await;
}

#[tokio::test]
async fn connections_per_client_are_limited() {
    let scene = start_tuned(|tuning| {
        tuning.maximum_connections_per_client = 1;
        tuning.overload_threshold = 0;
    })
    .await;
    let mut first = scene.connect().await;
    write(&mut first, &asking("refused.example.", 1)).await;
    assert!(read(&mut first).await.is_some());
    let mut second = scene.connect().await;
    assert_eq!(read(&mut second).await, None);
    assert_eq!(scene.counters.figures().refused, 1);
    drop((first, second));
    scene.stop().await;
}

/// A client that does not read is cut off: what waits for it is bounded by places and by time.
#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let mut config = config(vec![server(answering(65_535).await)]);
    config.tuning.tcp.send_timeout = Duration::from_millis(500);
    let scene = start_with(config).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut client = socket.connect(scene.address).await.unwrap();
    // More than the sockets' buffers hold; sending ends when the other side is gone.
    for id in 0..1_000 {
        if client
            .write_all(&framed(&asking("www.example.", id)))
            .await
            .is_err()
        {
            break;
        }
    }
    let counters = Arc::clone(&scene.counters);
    until("it is cut off", || counters.figures().connections == 0).await;
    assert_eq!(counters.figures().died_sending_response, 1);
    scene.stop().await;
}

#[tokio::test]
async fn bytes_are_limited() {
    let mut tight = Shared::new(
        Arc::new(arc_swap::ArcSwap::from_pointee(config(Vec::new()))),
        Arc::clone(&shared(config(Vec::new())).shard),
    );
    tight.memory = Memory::new(10_000);
    let scene = start_sharing(Arc::new(tight)).await;
    let mut long = asking("refused.example.", 1);
    long.resize(20_000, 0);
    let mut client = scene.connect().await;
    write(&mut client, &long).await;
    assert_eq!(read(&mut client).await, None);
    assert_eq!(scene.drops(DropReason::TcpMemoryFull), 1);
    let mut client = scene.connect().await;
    write(&mut client, &long[..9_000]).await;
    assert!(read(&mut client).await.is_some());
    drop(client);
    scene.stop().await;
}

// ---------------------------------------------------------------------------------------------- backends

#[tokio::test]
async fn the_longest_message_there_is_passes() {
    let scene = start_with(config(vec![server(answering(65_535).await)])).await;
    let mut client = scene.connect().await;
    let mut long = asking("WWW.example.", 9);
    long.resize(60_000, 0);
    write(&mut client, &long).await;
    let answer = read(&mut client).await.unwrap();
    assert_eq!((id(&answer), answer.len()), (9, 65_535));
    assert_eq!(answer[12..24], long[12..24], "the question, its case kept");
    drop(client);
    assert_eq!(scene.frontend.shared.shard.get(Counter::Responses), 1);
    scene.stop().await;
}

/// As dnsdist: the client is told at once that there will be no answer.
#[tokio::test]
async fn a_backend_that_cannot_be_asked_closes_the_connection() {
    let nobody = own_address();
    let scene = start_with(config(vec![server(nobody)])).await;
    let mut client = scene.connect().await;
    write(&mut client, &asking("www.example.", 1)).await;
    assert_eq!(read(&mut client).await, None);
    assert_eq!(scene.counters.figures().gave_up, 1);
    scene.stop().await;
}

#[tokio::test]
async fn a_query_that_a_backend_has_no_connection_for_closes_the_connection() {
    let (address, mut seen, go) = told().await;
    let options = ServerOptions {
        tcp_maximum_connections: 1,
        ..server(address)
    };
    let scene = start_with(config(vec![options])).await;
    let mut first = scene.connect().await;
    write(&mut first, &asking("www.example.", 1)).await;
    seen.recv().await.unwrap();
    let mut second = scene.connect().await;
    write(&mut second, &asking("www.example.", 2)).await;
    assert_eq!(read(&mut second).await, None);
    assert_eq!(scene.drops(DropReason::BackendConnections), 1);
    let timeouts = scene.counters.figures().client_timeouts;
    assert_eq!(timeouts, 0, "it is not for its silence");
    go.notify_one();
    assert_eq!(read(&mut first).await.map(|answer| id(&answer)), Some(1));
    drop((first, second));
    scene.stop().await;
}

// ---------------------------------------------------------------------------------------------- stop

#[tokio::test]
async fn a_stop_closes_idle_connections_and_finishes_queries() {
    let (address, mut seen, go) = told().await;
    let scene = start_with(config(vec![server(address)])).await;
    let mut idle = scene.connect().await;
    let mut busy = scene.connect().await;
    write(&mut busy, &asking("www.example.", 5)).await;
    seen.recv().await.unwrap();
    scene.stopper.stop();
    assert_eq!(read(&mut idle).await, None);
    go.notify_one();
    assert_eq!(read(&mut busy).await.map(|answer| id(&answer)), Some(5));
    assert_eq!(busy.read(&mut [0]).await.unwrap(), 0);
    drop(busy);
    scene.stop().await;
}
