use super::super::fixture;
use super::*;
use crate::counters::Lane;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use testnet::loopback::own_address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::timeout;

/// What a scripted server sends to a query: (from its own address or from another one, message).
type Script = fn(&[u8]) -> Vec<(bool, Vec<u8>)>;

/// A server on loopback that answers each query by `script`; counts them.
async fn backend(script: Script) -> (SocketAddr, Arc<AtomicU32>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("loopback");
    let other = UdpSocket::bind("127.0.0.1:0").await.expect("loopback");
    let address = socket.local_addr().expect("bound");
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            count.fetch_add(1, Relaxed);
            for (own, message) in script(&buffer[..length]) {
                let socket = if own { &socket } else { &other };
                socket.send_to(&message, from).await.expect("loopback");
            }
        }
    });
    (address, asked)
}

/// The answer to `query` with `rcode`.
fn answer(query: &[u8], rcode: u8) -> Vec<u8> {
    let mut message = query.to_vec();
    message[2] |= 0x80;
    message[3] |= rcode;
    message
}

fn changed(query: &[u8], at: usize, octet: u8) -> Vec<u8> {
    let mut message = answer(query, 0);
    message[at] ^= octet;
    message
}

fn well(query: &[u8]) -> Vec<(bool, Vec<u8>)> {
    vec![(true, answer(query, 0))]
}

/// F14: ID, question, class, source address, a message cut short, one that is a query: then the true answer.
fn junk_first(query: &[u8]) -> Vec<(bool, Vec<u8>)> {
    vec![
        (true, changed(query, 1, 1)),
        (true, changed(query, 14, 1)),
        (true, changed(query, query.len() - 1, 2)),
        (false, answer(query, 2)),
        (true, answer(query, 2)[..20].to_vec()),
        (true, query.to_vec()),
        (true, answer(query, 0)),
    ]
}

fn servfail(query: &[u8]) -> Vec<(bool, Vec<u8>)> {
    vec![(true, answer(query, 2))]
}

fn silent(_: &[u8]) -> Vec<(bool, Vec<u8>)> {
    Vec::new()
}

fn checks() -> Arc<Checks> {
    let ports = Arc::new(Ports::new(1, 2, Box::new(())).expect("epoll"));
    Arc::new(Checks::new(
        ports,
        Random::from_seed(1),
        Beats::default(),
        Box::new(|_, _| {}),
    ))
}

/// What is awaited comes sooner, also on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server at `address` that is checked often.
fn server(number: u32, address: SocketAddr) -> Arc<Server> {
    server_within(number, address, PATIENCE)
}

/// The same, but its probes are answered within so long, or not at all.
fn server_within(number: u32, address: SocketAddr, patience: Duration) -> Arc<Server> {
    let mut options = fixture::options(&address.to_string());
    options.health.mode = HealthMode::Auto;
    options.health.interval = Duration::from_millis(20);
    options.health.timeout = patience;
    Arc::new(fixture::server(number, options))
}

/// For servers that are silent.
const SHORT: Duration = Duration::from_millis(200);

/// Waits until the server is up, or down.
async fn wait_for(server: &Server, up: bool) {
    let changed = async {
        while server.state.is_up() != up {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, changed).await.expect("the state changes");
}

#[tokio::test]
async fn the_first_round_finds_out_who_is_up() {
    let scripts: [(Script, Duration, bool); 4] = [
        (well, PATIENCE, true),
        (junk_first, PATIENCE, true),
        (servfail, PATIENCE, false),
        (silent, SHORT, false),
    ];
    let mut servers = Vec::new();
    for (number, (script, patience, _)) in (0..).zip(scripts) {
        servers.push(server_within(number, backend(script).await.0, patience));
    }
    checks().first_round(&servers, &Functions::new()).await;
    for (server, (_, _, up)) in servers.iter().zip(scripts) {
        assert_eq!(server.state.is_up(), up, "{}", server.number.0);
        assert!(server.ports.get().is_some());
    }
}

/// F18: a closed port answers each probe with ICMP, as anybody can who forges it. It says nothing: the probe waits for an
/// answer as long as it would have.
#[tokio::test]
async fn icmp_errors_end_no_probe() {
    let server = server_within(0, own_address(), SHORT);
    let began = Instant::now();
    let result = ask(&server, Pace::soon()).await;
    assert!(matches!(result, Err(probe::Failure::NoAnswer)));
    assert!(began.elapsed() >= server.options.health.timeout);
}

async fn ask(server: &Server, pace: Pace) -> Result<(), probe::Failure> {
    let connected = server.options.source.connected(server.options.address);
    let asked = probe::asked(server, 1, &Functions::new()).expect("a name");
    probe::ask(server, connected.expect("a socket"), &asked, pace).await
}

/// An answer within checkTimeout counts, though the next beat comes later than that.
#[tokio::test]
async fn an_answer_in_time_counts_though_nobody_looked_before_the_time_was_over() {
    let (address, _) = backend(junk_first).await;
    let server = server_within(0, address, Duration::from_millis(40));
    let mut results = Vec::new();
    // On a busy machine an answer may take longer than that.
    while results.len() < 50 && !matches!(results.last(), Some(Ok(()))) {
        results.push(ask(&server, Beats::default().pace()).await);
    }
    assert!(matches!(results.last(), Some(Ok(()))), "{results:?}");
}

#[tokio::test]
async fn a_server_that_is_forced_up_is_not_asked() {
    let (address, asked) = backend(well).await;
    let server = Arc::new(fixture::server(0, fixture::options(&address.to_string())));
    checks()
        .first_round(std::slice::from_ref(&server), &Functions::new())
        .await;
    assert_eq!((asked.load(Relaxed), server.state.word()), (0, "UP"));
    assert!(
        server.ports.get().is_some(),
        "queries have ports to leave from"
    );
}

/// Another weight, say: one lost probe takes no server down that may lose more, and nobody is told of a change that is none.
#[tokio::test]
async fn a_server_that_goes_on_as_it_was_is_not_judged_anew() {
    let (address, asked) = backend(servfail).await;
    let old = server(0, address);
    old.state.set_checked(true);
    let mut options = old.options.clone();
    (options.weight, options.health.maximum_failures) = (5, 3);
    let judge_anew = async |number, options| {
        let new = Arc::new(Server::succeeding(&old, ServerId(number), options));
        let servers = std::slice::from_ref(&new);
        checks().first_round(servers, &Functions::new()).await;
        assert!(new.ports.get().is_some());
        (new.state.word(), asked.load(Relaxed))
    };
    assert_eq!(judge_anew(1, options.clone()).await, ("up", 0));
    // What it is to say is another thing.
    options.health.must_resolve = true;
    assert_eq!(judge_anew(2, options).await, ("down", 1));
}

/// Answers while the flag that its first byte of state names is set.
#[tokio::test]
async fn a_server_goes_down_and_comes_back() {
    static WELL: AtomicU32 = AtomicU32::new(1);
    fn sometimes(query: &[u8]) -> Vec<(bool, Vec<u8>)> {
        let code = if WELL.load(Relaxed) == 1 { 0 } else { 2 };
        vec![(true, answer(query, code))]
    }
    let server = server(0, backend(sometimes).await.0);
    let checks = checks();
    let servers = [Arc::clone(&server)];
    checks.first_round(&servers, &Functions::new()).await;
    checks.follow(&servers, &Functions::new());
    assert_eq!(server.state.word(), "up");
    WELL.store(0, Relaxed);
    wait_for(&server, false).await;
    WELL.store(1, Relaxed);
    wait_for(&server, true).await;
}

#[tokio::test]
async fn servers_that_are_gone_are_not_asked_any_more() {
    let (address, asked) = backend(well).await;
    let checks = checks();
    checks.follow(&[server(0, address)], &Functions::new());
    let twice = async {
        while asked.load(Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, twice).await.expect("it is asked");
    checks.follow(&[], &Functions::new());
    assert!(checks.lock_tasks().is_empty());
}

#[tokio::test]
async fn a_server_is_checked_over_tcp_when_that_is_wanted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let length = stream.read_u16().await.expect("a query");
        let mut query = vec![0; length.into()];
        stream.read_exact(&mut query).await.expect("a query");
        for message in [changed(&query, 0, 1), answer(&query, 0)] {
            stream.write_u16(message.len() as u16).await.expect("open");
            stream.write_all(&message).await.expect("open");
        }
    });
    let mut options = fixture::options(&address.to_string());
    options.health.mode = HealthMode::Auto;
    options.health.over_tcp = true;
    options.health.timeout = PATIENCE;
    let server = Arc::new(fixture::server(0, options));
    checks()
        .first_round(std::slice::from_ref(&server), &Functions::new())
        .await;
    assert!(server.state.is_up());
}

#[tokio::test]
async fn silence_over_xsk_while_probes_succeed_means_kernel_sockets() {
    let server = server(0, backend(well).await.0);
    server.reach_over_xsk(1, [2, 0, 0, 0, 0, 1]);
    let checks = checks();
    let servers = [Arc::clone(&server)];
    checks.first_round(&servers, &Functions::new()).await;
    checks.follow(&servers, &Functions::new());
    (0..100).for_each(|_| server.trust.count_sent(Lane::SHARED));
    let given_up = async {
        while server.xsk.get().is_some() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, given_up)
        .await
        .expect("AF_XDP is given up");
    assert_eq!(
        (server.state.is_up(), server.trust.suspensions()),
        (true, 1)
    );
}
