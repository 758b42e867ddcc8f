use super::super::exchange::tests::server;
use super::*;
use std::collections::HashSet;
use std::iter;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

/// Remembers what it was told.
#[derive(Default)]
struct Diary(Arc<Mutex<Vec<(bool, SocketAddr)>>>);

impl PortWatch for Diary {
    fn opened(&self, local: SocketAddr) {
        self.0.lock().expect("no panic").push((true, local));
    }

    fn closing(&self, local: SocketAddr) {
        self.0.lock().expect("no panic").push((false, local));
    }
}

fn ports(count: usize) -> (Arc<Ports>, Server) {
    let ports = Arc::new(Ports::new(2, count, Box::new(())).expect("epoll"));
    let server = server(0, "127.0.0.1:53");
    let source = ports.prepare(&server).expect("loopback");
    let source = source.local_addr().expect("connected").ip();
    assert_eq!(source, "127.0.0.1".parse::<IpAddr>().expect("an address"));
    (ports, server)
}

#[test]
fn a_server_gets_ports_of_the_address_that_the_kernel_sends_from() {
    let (ports, server) = ports(4);
    let mut random = Random::from_seed(1);
    let port = Departures::default()
        .pick(&ports, &server, &mut random)
        .expect("ports are open");
    assert_eq!((port.pool, port.source), (0, IpAddr::from([127, 0, 0, 1])));
    let six = super::super::exchange::tests::server(1, "[::1]:53");
    assert_eq!(Departures::default().pick(&ports, &six, &mut random), None);
    if ports.prepare(&six).is_ok() {
        let port = Departures::default()
            .pick(&ports, &six, &mut random)
            .expect("ports are open");
        assert_eq!((port.pool, port.source), (1, Ipv6Addr::LOCALHOST.into()));
    }
    ports.prepare(&server).expect("loopback");
    assert_eq!(
        server.ports.get(),
        Some(0),
        "the same source, the same pool"
    );
}

#[test]
fn servers_share_ports_whose_packets_leave_alike() {
    let (ports, plain) = ports(4);
    let other = |number, by: Source| {
        let mut options = super::super::fixture::options("127.0.0.1:5353");
        options.source = by;
        let server = super::super::fixture::server(number, options);
        ports.prepare(&server).expect("loopback");
        server.ports.get()
    };
    let alike = Source {
        tcp_fast_open: true,
        late_port: false,
        ..Source::default()
    };
    assert_eq!(other(1, alike), plain.ports.get());
    let marked = Source {
        dscp: 46,
        ..Source::default()
    };
    let by_interface = Source {
        interface: Some("lo".to_owned()),
        ..Source::default()
    };
    assert_eq!(other(2, marked.clone()), Some(1));
    assert_eq!(other(3, by_interface), Some(2));
    assert_eq!(other(4, marked), Some(1));
}

#[test]
fn a_batch_sends_clusters_and_batches_use_all_ports() {
    let (ports, server) = ports(8);
    let mut random = Random::from_seed(1);
    let mut seen = HashSet::new();
    for _ in 0..100 {
        let mut departures = Departures::default();
        let batch: Vec<Port> = (0..CLUSTER)
            .filter_map(|_| departures.pick(&ports, &server, &mut random))
            .collect();
        assert_eq!(batch, [batch[0]; CLUSTER as usize]);
        assert!(departures.socket(batch[0]).is_some());
        seen.insert(batch[0].number);
    }
    assert_eq!(seen.len(), 8);
}

#[test]
fn ten_bits_of_ports_and_sixteen_of_id() {
    let (ports, _) = ports(16);
    assert!((ports.entropy_bits() - 20.0).abs() < 1e-9);
}

/// What comes to a port is read by exactly one worker, and the port is told by its address.
#[test]
fn each_port_is_read_by_one_worker() {
    let (ports, _) = ports(6);
    let mut readers = [ports.reader(0), ports.reader(1)];
    let pools = ports.pools.load();
    let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    for port in &pools[0].ports {
        sender.send_to(b"answer", port.local()).expect("loopback");
    }
    let mut read = Vec::new();
    let mut read_all = || {
        for reader in &mut readers {
            reader
                .for_each_ready(|port| {
                    let mut buffer = [0; 16];
                    assert_eq!(port.socket.recv(&mut buffer).expect("ready"), 6);
                    read.push(port.local());
                })
                .expect("epoll");
        }
        read.len()
    };
    // Usually loopback delivers before a call that sends returns, a busy machine later.
    let until = Instant::now() + Duration::from_secs(60);
    while read_all() < pools[0].ports.len() && Instant::now() < until {}
    read.sort_unstable();
    let mut all: Vec<SocketAddr> = pools[0].ports.iter().map(|port| port.local()).collect();
    all.sort_unstable();
    assert_eq!(read, all);
}

#[test]
fn ports_that_are_opened_later_have_the_buffers_that_are_wanted() {
    let (ports, _) = ports(1);
    let receives = |ports: &Ports| {
        let pools = ports.pools.load();
        let port = Arc::clone(&pools[0].ports[0]);
        nix::sys::socket::getsockopt(&port, RcvBuf).expect("a socket")
    };
    assert_eq!(receives(&ports), 2 * RECEIVE_BUFFER);
    ports.size_buffers(UdpBuffers {
        receive: 40_000,
        send: 0,
    });
    ports
        .rotate_one(Now(0), Duration::from_secs(2), &mut Random::from_seed(1))
        .expect("loopback");
    assert_eq!(receives(&ports), 80_000);
}

#[test]
fn a_port_is_opened_before_use_and_closed_after_the_time_out() {
    let diary = Diary::default();
    let events = Arc::clone(&diary.0);
    let ports = Ports::new(1, 1, Box::new(diary)).expect("epoll");
    let server = server(0, "127.0.0.1:53");
    ports.prepare(&server).expect("loopback");
    let mut random = Random::from_seed(1);
    let pick = |ports: &Ports| {
        let port = Departures::default()
            .pick(ports, &server, &mut Random::from_seed(1))
            .expect("open");
        port.end()
    };
    let drain = Duration::from_secs(2);
    let first = pick(&ports);
    ports
        .rotate_one(Now(0), drain, &mut random)
        .expect("loopback");
    let second = pick(&ports);
    assert_ne!(first, second);
    assert_eq!(
        *events.lock().expect("no panic"),
        [(true, first), (true, second)]
    );
    assert!(
        ports.pools.load()[0].find(first.port()).is_some(),
        "still read"
    );
    ports
        .rotate_one(Now(2_000_000_000), drain, &mut random)
        .expect("loopback");
    assert_eq!(events.lock().expect("no panic")[2], (false, first));
    assert!(ports.pools.load()[0].find(first.port()).is_none());
    assert!(UdpSocket::bind(first).is_ok(), "the socket is closed");
}

#[test]
fn an_address_that_nobody_is_asked_from_keeps_no_ports() {
    let (ports, server) = ports(4);
    let mut random = Random::from_seed(1);
    let drain = Duration::from_secs(2);
    let open = |ports: &Ports| ports.pools.load()[0].by_number.len();
    ports.retire_unused(iter::once(&server), Now(0), drain);
    assert!(
        Departures::default()
            .pick(&ports, &server, &mut random)
            .is_some()
    );
    ports.retire_unused(iter::empty(), Now(0), drain);
    assert_eq!(
        (
            Departures::default().pick(&ports, &server, &mut random),
            open(&ports)
        ),
        (None, 4)
    );
    ports
        .rotate_one(Now(1), drain, &mut random)
        .expect("nothing to do");
    assert_eq!(open(&ports), 4, "answers may still come");
    ports
        .rotate_one(Now(2_000_000_000), drain, &mut random)
        .expect("nothing to do");
    assert_eq!(open(&ports), 0);
    ports.prepare(&server).expect("loopback");
    assert_eq!(
        (server.ports.get(), open(&ports)),
        (Some(0), 4),
        "it is asked again"
    );
}

/// What the kernel prefers after a route has changed is said here by the server's `source`.
#[test]
fn a_server_whose_source_is_another_one_moves_to_its_ports() {
    let (ports, mut server) = ports(4);
    let [old, new] = [1, 2].map(|host| IpAddr::from([127, 0, 0, host]));
    let mut random = Random::from_seed(1);
    let mut earlier = Departures::default();
    assert!(earlier.pick(&ports, &server, &mut random).is_some());
    server.reach_over_xsk(1, [2, 0, 0, 0, 0, 9]);
    server.xsk.suspend();
    ports.prepare(&server).expect("loopback");
    assert_eq!(ports.source_of(&server), Some(old));
    assert_eq!(server.xsk.get(), None, "it has not moved");

    server.options.source.address = Some(new);
    ports.prepare(&server).expect("loopback");
    assert_eq!(ports.source_of(&server), Some(new));
    assert!(server.xsk.get().is_some(), "AF_XDP is tried again");
    ports.retire_unused(iter::once(&server), Now(0), Duration::from_secs(2));
    let port = Departures::default().pick(&ports, &server, &mut random);
    assert_eq!(port.map(|port| port.source), Some(new));
    for _ in 0..100 {
        let port = earlier.pick(&ports, &server, &mut random);
        let port = port.expect("a batch ends where it began");
        assert_eq!(port.source, old);
        assert!(earlier.socket(port).is_some());
    }
    let pools = ports.pools.load();
    assert_eq!(pools[0].by_number.len(), 4, "answers may still come");
}

/// A route that goes back and forth must not take a thousand descriptors each time.
#[test]
fn ports_that_drain_are_used_again_when_their_address_is() {
    let diary = Diary::default();
    let events = Arc::clone(&diary.0);
    let ports = Ports::new(1, 4, Box::new(diary)).expect("epoll");
    let server = server(0, "127.0.0.1:53");
    let prepared = |ports: &Ports| {
        ports.prepare(&server).expect("loopback");
        let pools = ports.pools.load();
        let numbers = pools[0].ports.iter().map(|port| port.local());
        numbers.collect::<HashSet<_>>()
    };
    let first = prepared(&ports);
    let drain = Duration::from_secs(2);
    for turn in 0..100 {
        ports.retire_unused(iter::empty(), Now(turn), drain);
        assert_eq!(ports.source_of(&server), None);
        assert_eq!(prepared(&ports), first);
    }
    assert_eq!(events.lock().expect("no panic").len(), 4);
    let mut random = Random::from_seed(1);
    let later = Now(3_000_000_000);
    ports
        .rotate_one(later, drain, &mut random)
        .expect("loopback");
    let opened = events.lock().expect("no panic").iter().all(|event| event.0);
    assert!(opened, "none was to be closed");
}

#[test]
fn a_shortfall_says_how_many_and_why() {
    let error = io::Error::from_raw_os_error(24);
    let text = shortfall("192.0.2.1:0".parse().expect("an address"), 3, 1_024, &error);
    assert!(
        text.starts_with("3 of 1024 backend ports on 192.0.2.1: Too many open files"),
        "{text}"
    );
}
