//! Frame in, verdict out: a case for each row of the table in `bpf/README.md`, run by the kernel (BPF_PROG_TEST_RUN)
//! without an interface. Rows of tests/FAULTS.md carry their number.

mod frames;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use frames::{OUR_MAC, THEIR_MAC, datagram, ethernet, ipv4, ipv6, query, udp};
use xsk::{Heartbeat, Program, ROOM, Reason, Socket};

const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

const SERVED: [&str; 2] = ["192.0.2.1:53", "[2001:db8::1]:53"];
const CLIENTS: [&str; 2] = ["192.0.2.9:40000", "[2001:db8::9]:40000"];
const BACKENDS: [&str; 2] = ["198.51.100.2:5353", "[2001:db8:1::2]:5353"];
const LOCALS: [&str; 2] = ["198.51.100.1", "2001:db8:1::1"];
const OPEN_PORT: u16 = 20001;

fn socket_address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The program with a socket on queue 0, our addresses and our backends; `None` and a line without root.
struct Bench {
    program: Program,
    heartbeat: Heartbeat,
}

impl Bench {
    fn new() -> Option<Bench> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIP: loading the kernel program needs root");
            return None;
        }
        let mut program = Program::load().unwrap();
        program.set_mac(OUR_MAC);
        for (at, served) in SERVED.into_iter().enumerate() {
            program.serve(socket_address(served)).unwrap();
            program
                .add_backend(address(LOCALS[at]), socket_address(BACKENDS[at]))
                .unwrap();
            program.open_port(address(LOCALS[at]), OPEN_PORT).unwrap();
        }
        let heartbeat = program.heartbeat(0).unwrap();
        Some(Bench { program, heartbeat })
    }

    /// Which counter a frame moved, after checks that hold for every frame.
    fn judge(&self, frame: &[u8]) -> Reason {
        let before = self.program.verdicts().unwrap();
        let (verdict, after) = self.program.test_run(frame, 0).unwrap();
        assert_eq!(after, frame, "the program changed the frame");
        let counted = self.program.verdicts().unwrap();
        let moved: Vec<Reason> = Reason::ALL
            .into_iter()
            .filter(|&reason| counted[reason as usize] != before[reason as usize])
            .collect();
        assert_eq!(moved.len(), 1, "counters moved: {moved:?}");
        assert_eq!(counted[moved[0] as usize], before[moved[0] as usize] + 1);
        let taken = matches!(
            moved[0],
            Reason::TakeQuery | Reason::TakeAnswer | Reason::TakeProbe
        );
        assert_eq!(
            verdict,
            if taken { XDP_REDIRECT } else { XDP_PASS },
            "{:?}",
            moved[0]
        );
        moved[0]
    }

    /// The same with a living owner.
    fn judge_alive(&self, frame: &[u8]) -> Reason {
        self.heartbeat.beat();
        self.judge(frame)
    }
}

/// A good query of each version of IP.
fn good(version: usize) -> Vec<u8> {
    datagram(
        socket_address(CLIENTS[version]),
        socket_address(SERVED[version]),
        &query(1),
    )
}

/// The same with some octets overwritten.
fn good_with(version: usize, changes: &[(usize, &[u8])]) -> Vec<u8> {
    changed(good(version), changes)
}

fn changed(mut frame: Vec<u8>, changes: &[(usize, &[u8])]) -> Vec<u8> {
    for (at, octets) in changes {
        frame[*at..at + octets.len()].copy_from_slice(octets);
    }
    frame
}

/// An IPv6 query behind so many extension headers of 8 octets.
fn behind_extension_headers(count: usize, kind: u8) -> Vec<u8> {
    let (client, served) = (socket_address(CLIENTS[1]), socket_address(SERVED[1]));
    let mut payload = Vec::new();
    for left in (0..count).rev() {
        payload.extend([if left == 0 { 17 } else { kind }, 0, 1, 4, 0, 0, 0, 0]);
    }
    payload.extend(udp(client, served, &query(1)));
    ethernet(
        OUR_MAC,
        THEIR_MAC,
        0x86dd,
        &ipv6(client.ip(), served.ip(), kind, &payload),
    )
}

fn with_ipv4_options() -> Vec<u8> {
    let mut frame = good(0);
    frame[14] = 0x46;
    frame.splice(34..34, [1, 1, 1, 0]);
    let length = (frame.len() - 14) as u16;
    changed(frame, &[(16, &length.to_be_bytes())])
}

/// A query of so many octets of DNS, or an answer.
fn sized(from: &str, to: &str, payload: usize) -> Vec<u8> {
    datagram(socket_address(from), socket_address(to), &vec![0; payload])
}

fn padded(mut frame: Vec<u8>, length: usize) -> Vec<u8> {
    frame.resize(length, 0);
    frame
}

fn answer(version: usize, port: u16) -> Vec<u8> {
    datagram(
        socket_address(BACKENDS[version]),
        SocketAddr::new(address(LOCALS[version]), port),
        &query(1),
    )
}

/// Sentence, frame, counter.
fn cases() -> Vec<(&'static str, Vec<u8>, Reason)> {
    use Reason::*;
    let mut cases = ours();
    cases.extend(short_or_for_others());
    cases.extend(odd());
    cases.extend([
        (
            "a query to an address that is not ours (transit)",
            to_other("203.0.113.1:53"),
            PassOther,
        ),
        (
            "a query to a port of ours that is not served",
            to_other("192.0.2.1:5353"),
            PassOther,
        ),
        (
            "an IPv6 query to an address that is not ours",
            to_other("[2001:db8::2]:53"),
            PassOther,
        ),
        (
            "an answer from a stranger to an open port",
            stranger(),
            PassOther,
        ),
        (
            "an answer from our backend's other port",
            from_port_54(),
            PassOther,
        ),
        (
            "an answer from our backend to a port that is not open",
            answer(0, OPEN_PORT + 1),
            PassPort,
        ),
        (
            "an IPv6 answer to a port that is not open",
            answer(1, OPEN_PORT - 1),
            PassPort,
        ),
        (
            "11 octets of DNS",
            sized(CLIENTS[0], SERVED[0], 11),
            PassDns,
        ),
        (
            "11 octets of DNS over IPv6, padded",
            padded(sized(CLIENTS[1], SERVED[1], 11), 80),
            PassDns,
        ),
        ("no DNS at all", sized(CLIENTS[0], SERVED[0], 0), PassDns),
        (
            "F7: a query one octet longer than a chunk's room",
            sized(CLIENTS[0], SERVED[0], ROOM - 41),
            PassLarge,
        ),
        (
            "F7: a query padded beyond a chunk's room",
            padded(good(1), ROOM + 1),
            PassLarge,
        ),
        (
            "F7: an answer of 3,000 octets",
            sized(BACKENDS[0], "198.51.100.1:20001", 3000),
            PassLarge,
        ),
    ]);
    cases
}

/// What ends too early, or is somebody else's.
fn short_or_for_others() -> Vec<(&'static str, Vec<u8>, Reason)> {
    use Reason::*;
    vec![
        (
            "a frame that ends inside the IPv4 header",
            good(0)[..33].to_vec(),
            PassShort,
        ),
        (
            "a frame that ends inside the IPv6 header",
            good(1)[..53].to_vec(),
            PassShort,
        ),
        (
            "a frame that ends inside the UDP header",
            good(0)[..41].to_vec(),
            PassShort,
        ),
        (
            "another station's frame that ends inside the IPv4 header",
            good_with(0, &[(0, &THEIR_MAC)])[..33].to_vec(),
            PassMac,
        ),
        (
            "a query to another station's MAC address",
            good_with(0, &[(0, &THEIR_MAC)]),
            PassMac,
        ),
        (
            "a query to the broadcast MAC address",
            good_with(0, &[(0, &[0xff; 6])]),
            PassMac,
        ),
        (
            "a query to a multicast MAC address",
            good_with(1, &[(0, &[0x33, 0x33, 0, 0, 0, 1])]),
            PassMac,
        ),
        (
            "ARP",
            ethernet(OUR_MAC, THEIR_MAC, 0x0806, &[0; 28]),
            PassProtocol,
        ),
    ]
}

/// What is no plain UDP over IPv4 or IPv6.
fn odd() -> Vec<(&'static str, Vec<u8>, Reason)> {
    use Reason::*;
    vec![
        ("a query behind a VLAN tag", tagged(0x8100), PassProtocol),
        (
            "a query behind a provider's VLAN tag",
            tagged(0x88a8),
            PassProtocol,
        ),
        (
            "F3: an IPv4 query with options",
            with_ipv4_options(),
            PassOptions,
        ),
        (
            "IPv4's EtherType before an IPv6 packet",
            good_with(1, &[(12, &[8, 0])]),
            PassOptions,
        ),
        (
            "IPv6's EtherType before an IPv4 packet",
            good_with(0, &[(12, &[0x86, 0xdd])]),
            PassOptions,
        ),
        (
            "an IPv4 header length below five words",
            good_with(0, &[(14, &[0x44])]),
            PassOptions,
        ),
        (
            "F2: the first IPv4 fragment of a query",
            good_with(0, &[(20, &[0x20, 0])]),
            PassFragment,
        ),
        (
            "F2: a later IPv4 fragment of a query",
            good_with(0, &[(20, &[0, 3])]),
            PassFragment,
        ),
        (
            "F2: a fragment that ends inside the UDP header",
            good_with(0, &[(20, &[0x20, 0])])[..41].to_vec(),
            PassFragment,
        ),
        (
            "TCP to our address and port",
            good_with(0, &[(23, &[6])]),
            PassTransport,
        ),
        (
            "ESP to our address",
            good_with(0, &[(23, &[50])]),
            PassTransport,
        ),
        (
            "ICMPv6 to our address",
            good_with(1, &[(20, &[58])]),
            PassTransport,
        ),
        (
            "F2: an IPv6 fragment header",
            behind_extension_headers(1, 44),
            PassTransport,
        ),
    ]
}

/// What we take.
fn ours() -> Vec<(&'static str, Vec<u8>, Reason)> {
    use Reason::*;
    vec![
        (
            "an IPv4 query to an address and port that we serve",
            good(0),
            TakeQuery,
        ),
        (
            "an IPv6 query to an address and port that we serve",
            good(1),
            TakeQuery,
        ),
        (
            "a short query that Ethernet has padded",
            padded(sized(CLIENTS[0], SERVED[0], 17), 60),
            TakeQuery,
        ),
        (
            "12 octets of DNS",
            sized(CLIENTS[0], SERVED[0], 12),
            TakeQuery,
        ),
        (
            "F7: a query that just fits a chunk's room",
            sized(CLIENTS[1], SERVED[1], ROOM - 62),
            TakeQuery,
        ),
        (
            "an IPv4 query without DF",
            good_with(0, &[(20, &[0, 0])]),
            TakeQuery,
        ),
        (
            "F5: a wrong IPv4 header checksum is user space's to judge",
            good_with(0, &[(24, &[1, 2])]),
            TakeQuery,
        ),
        (
            "F5: a UDP checksum of 0 is user space's to judge",
            good_with(1, &[(60, &[0, 0])]),
            TakeQuery,
        ),
        (
            "F6: a source of 127.0.0.1 is user space's to judge",
            good_with(0, &[(26, &[127, 0, 0, 1])]),
            TakeQuery,
        ),
        (
            "F6: source port 0 is user space's to judge",
            good_with(0, &[(34, &[0, 0])]),
            TakeQuery,
        ),
        (
            "F6: an answer to our service is user space's to judge",
            good_with(0, &[(44, &[0x81])]),
            TakeQuery,
        ),
        (
            "an IPv4 answer from our backend to an open port",
            answer(0, OPEN_PORT),
            TakeAnswer,
        ),
        (
            "an IPv6 answer from our backend to an open port",
            answer(1, OPEN_PORT),
            TakeAnswer,
        ),
    ]
}

fn tagged(ethertype: u16) -> Vec<u8> {
    let mut frame = good(0);
    frame.splice(12..12, ethertype.to_be_bytes().into_iter().chain([0, 7]));
    frame
}

fn to_other(to: &str) -> Vec<u8> {
    let to = socket_address(to);
    datagram(
        socket_address(CLIENTS[usize::from(to.is_ipv6())]),
        to,
        &query(1),
    )
}

fn stranger() -> Vec<u8> {
    datagram(
        socket_address("198.51.100.3:5353"),
        socket_address("198.51.100.1:20001"),
        &query(1),
    )
}

fn from_port_54() -> Vec<u8> {
    datagram(
        socket_address("198.51.100.2:54"),
        socket_address("198.51.100.1:20001"),
        &query(1),
    )
}

/// I4 and I5: what is not ours is passed, and no other verdict but redirect is ever given ([`Bench::judge`]).
#[test]
fn every_row_of_the_table_has_its_verdict() {
    let Some(bench) = Bench::new() else { return };
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    for (sentence, frame, reason) in cases() {
        assert_eq!(bench.judge_alive(&frame), reason, "{sentence}");
    }
}

#[test]
fn f1_no_prefix_of_a_query_is_taken_without_twelve_octets_of_dns() {
    let Some(bench) = Bench::new() else { return };
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    for version in 0..2 {
        let frame = padded(good(version), 121);
        // Below an Ethernet header newer kernels (not 5.10) refuse to run a program; on the wire there is nothing so short.
        for length in 0..14 {
            let run = bench.program.test_run(&frame[..length], 0);
            assert!(run.is_err() || run.is_ok_and(|(verdict, _)| verdict == XDP_PASS));
        }
        for length in 14..=120 {
            let taken = bench.judge_alive(&frame[..length]) == Reason::TakeQuery;
            assert_eq!(
                taken,
                length >= good(version).len(),
                "IPv{} query cut to {length} octets",
                [4, 6][version]
            );
        }
    }
}

#[test]
fn f3_no_chain_of_extension_headers_is_taken() {
    let Some(bench) = Bench::new() else { return };
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    for count in 1..=10 {
        for kind in [0, 43, 44, 60, 135] {
            let frame = behind_extension_headers(count, kind);
            assert_eq!(
                bench.judge_alive(&frame),
                Reason::PassTransport,
                "{count} headers of type {kind}"
            );
        }
    }
}

#[test]
fn f4_no_lying_length_is_taken() {
    let Some(bench) = Bench::new() else { return };
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    // Where the lengths of IP and UDP stand, and what they should be.
    for (version, ip_at, ip, udp_at) in [(0, 16, 20 + 8 + 36, 38), (1, 18, 8 + 36, 58)] {
        for lie in [0, 1, 7, 8, 19, 20, ip - 1, ip + 1, ip + 100, 0xffff] {
            let frame = good_with(version, &[(ip_at, &(lie as u16).to_be_bytes())]);
            assert_eq!(
                bench.judge_alive(&frame),
                Reason::PassLength,
                "IPv{} length {lie}",
                [4, 6][version]
            );
        }
        for lie in [0, 1, 7, 8, 11, 43, 45, 100, 0xffff] {
            let frame = good_with(version, &[(udp_at, &(lie as u16).to_be_bytes())]);
            assert_eq!(
                bench.judge_alive(&frame),
                Reason::PassLength,
                "UDP length {lie}"
            );
        }
    }
}

#[test]
fn f7_a_frame_in_several_buffers_passes() {
    let Some(bench) = Bench::new() else { return };
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    if bench.program.features()[0].ends_with(": yes") {
        assert_eq!(
            bench.judge_alive(&sized(CLIENTS[0], SERVED[0], 8000)),
            Reason::PassBuffers
        );
    } else {
        println!("SKIP: {}", bench.program.features()[0]);
    }
}

#[test]
fn what_we_no_longer_serve_passes() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    bench.program.unserve(socket_address(SERVED[0])).unwrap();
    bench.program.unserve(socket_address(SERVED[0])).unwrap();
    assert_eq!(bench.judge_alive(&good(0)), Reason::PassOther);
    assert_eq!(bench.judge_alive(&good(1)), Reason::TakeQuery);
    bench.program.close_port(address(LOCALS[0]), OPEN_PORT);
    assert_eq!(bench.judge_alive(&answer(0, OPEN_PORT)), Reason::PassPort);
    assert_eq!(bench.judge_alive(&answer(1, OPEN_PORT)), Reason::TakeAnswer);
    bench
        .program
        .remove_backend(address(LOCALS[1]), socket_address(BACKENDS[1]))
        .unwrap();
    assert_eq!(bench.judge_alive(&answer(1, OPEN_PORT)), Reason::PassOther);
}

#[test]
fn a_backend_is_known_for_the_address_that_it_answers_to_alone() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    let (backend, second) = (socket_address(BACKENDS[0]), address("198.51.100.10"));
    let frame = datagram(backend, SocketAddr::new(second, OPEN_PORT), &query(1));
    assert_eq!(bench.judge_alive(&frame), Reason::PassOther);
    bench.program.add_backend(second, backend).unwrap();
    assert_eq!(
        bench.judge_alive(&frame),
        Reason::PassPort,
        "the first address's open ports are not the second's"
    );
    bench.program.open_port(second, OPEN_PORT).unwrap();
    assert_eq!(bench.judge_alive(&frame), Reason::TakeAnswer);
}

#[test]
fn a_queue_whose_owner_is_gone_passes() {
    let Some(bench) = Bench::new() else { return };
    assert_eq!(
        bench.judge_alive(&good(0)),
        Reason::PassSocket,
        "before there was a socket"
    );
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    assert_eq!(bench.judge_alive(&good(0)), Reason::TakeQuery);
    bench.program.leave(0).unwrap();
    assert_eq!(
        bench.judge_alive(&good(0)),
        Reason::PassSocket,
        "after it left"
    );
    bench.program.enter(0, &socket).unwrap();
    assert_eq!(bench.judge_alive(&good(0)), Reason::TakeQuery);
    drop(socket);
    assert_eq!(
        bench.judge_alive(&good(0)),
        Reason::PassSocket,
        "after it was closed"
    );
}

#[test]
fn a_stalled_owner_is_passed_by_and_probed_once_a_second() {
    let Some(bench) = Bench::new() else { return };
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    let frame = good(0);
    let before = Instant::now();
    assert_eq!(
        bench.judge(&frame),
        Reason::TakeQuery,
        "entering the map is a sign of life"
    );
    let entered = (before, Instant::now());
    // Where this thread is interrupted it asks rarely: a moment is known no better than by the last judgement before it,
    // and the clock is read on both sides of each.
    let until = |reason: Reason, since: Instant| {
        let mut last = since;
        loop {
            let before = Instant::now();
            let seen = bench.judge(&frame);
            if seen == reason {
                break (last, (before, Instant::now()));
            }
            assert!(
                entered.1.elapsed() < Duration::from_secs(60),
                "still {seen:?}, waiting for {reason:?}"
            );
            last = before;
        }
    };
    let (alive, stalled) = until(Reason::TakeProbe, entered.1);
    assert!(
        stalled.1 - entered.0 >= Duration::from_millis(90),
        "stalled after {:?}",
        stalled.1 - entered.0
    );
    assert!(
        alive - entered.1 <= Duration::from_millis(250),
        "alive after {:?}",
        alive - entered.1
    );
    assert_eq!(
        bench.judge(&frame),
        Reason::PassStalled,
        "one probe is enough"
    );
    assert_eq!(bench.heartbeat.passed(), 1);
    assert_eq!(
        bench.program.heartbeat(1).unwrap().passed(),
        0,
        "another queue"
    );
    let (passed, probed) = until(Reason::TakeProbe, stalled.1);
    let (shortest, longest) = (passed - stalled.1, probed.1 - stalled.0);
    assert!(
        longest >= Duration::from_millis(980) && shortest <= Duration::from_millis(1200),
        "probed after {shortest:?} to {longest:?}"
    );
    bench.heartbeat.beat();
    assert_eq!(bench.judge(&frame), Reason::TakeQuery, "alive again");
}

#[test]
fn an_idle_owner_is_never_stalled() {
    let Some(bench) = Bench::new() else { return };
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    assert_eq!(bench.judge(&good(0)), Reason::TakeQuery);
    // The owner has taken that frame, and nothing comes for longer than the limit.
    bench.heartbeat.beat();
    let idle = Instant::now();
    while idle.elapsed() < Duration::from_millis(200) {
        assert_eq!(
            bench.judge(&ethernet(OUR_MAC, THEIR_MAC, 0x0806, &[0; 28])),
            Reason::PassProtocol
        );
    }
    assert_eq!(bench.judge(&good(0)), Reason::TakeQuery);
}

#[test]
fn ipv4_in_the_clothes_of_ipv6_is_not_taken() {
    let Some(bench) = Bench::new() else { return };
    let socket = Socket::open().unwrap();
    bench.program.enter(0, &socket).unwrap();
    let (client, served) = (
        socket_address(CLIENTS[1]),
        socket_address("[c000:201::]:53"),
    );
    let frame = ethernet(
        OUR_MAC,
        THEIR_MAC,
        0x86dd,
        &ipv6(
            client.ip(),
            served.ip(),
            17,
            &udp(client, served, &query(1)),
        ),
    );
    assert_eq!(
        bench.judge_alive(&frame),
        Reason::PassOther,
        "192.0.2.1 and twelve zeros as an IPv6 address"
    );
    let client = socket_address(CLIENTS[0]);
    let packet = ipv4(
        client.ip(),
        address("192.0.2.1"),
        17,
        &udp(client, socket_address(SERVED[0]), &query(1)),
    );
    assert_eq!(
        bench.judge_alive(&ethernet(OUR_MAC, THEIR_MAC, 0x0800, &packet)),
        Reason::TakeQuery
    );
}

#[test]
fn a_wildcard_or_multicast_address_is_refused() {
    let Some(mut bench) = Bench::new() else {
        return;
    };
    for refused in ["0.0.0.0:53", "[::]:53", "224.0.0.1:53", "192.0.2.1:0"] {
        assert!(
            bench.program.serve(socket_address(refused)).is_err(),
            "{refused}"
        );
    }
}
