//! I8: no reload loses a query. A listener that a reload removes takes no more of them, and what it took is answered.

use crate::rig::{PATIENCE, REFUSED, Rig};
use nix::sys::signal::{Signal, kill};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use testnet::dns::Query;
use testnet::namespace::Namespace;

const ADDRESS: &str = "192.0.2.1:53";
const OTHER: &str = "192.0.2.1:54";
const SERVER: &str = "198.51.100.2:53";

/// Queries in flight when the reload comes.
const QUERIES: u16 = 20;

fn socket_in(namespace: &Namespace, address: &str) -> UdpSocket {
    let socket = namespace.run(|| UdpSocket::bind(address));
    let socket = socket.expect("the namespace").expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    socket
}

fn query() -> Vec<u8> {
    let query = Query::new("www.example.com.", "A").expect("a question");
    query.octets()
}

/// Sends queries of these IDs, counted from 0, to [`ADDRESS`].
fn ask(client: &UdpSocket) {
    for id in 0..QUERIES {
        let mut query = query();
        query[..2].copy_from_slice(&id.to_be_bytes());
        client.send_to(&query, ADDRESS).expect("to send");
    }
}

/// What the server got, with the addresses to answer.
fn taken(server: &UdpSocket) -> Vec<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 512];
    let mut take = || {
        let (length, from) = server.recv_from(&mut buffer).expect("a query");
        (buffer[..length].to_vec(), from)
    };
    (0..QUERIES).map(|_| take()).collect()
}

/// The IDs of what came from [`ADDRESS`], all of them.
fn answered(client: &UdpSocket) -> Vec<u16> {
    let mut buffer = [0; 512];
    let mut next = || {
        let (_, from) = client.recv_from(&mut buffer).expect("an answer");
        assert_eq!(from.to_string(), ADDRESS);
        u16::from_be_bytes([buffer[0], buffer[1]])
    };
    let mut ids: Vec<u16> = (0..QUERIES).map(|_| next()).collect();
    ids.sort_unstable();
    ids
}

/// The port is closed to whoever asks now.
fn is_closed(rig: &Rig) {
    let client = socket_in(&rig.lab.client(), "192.0.2.100:0");
    client.connect(ADDRESS).expect("to connect");
    // What comes before it is closed waits for the server, as the others do.
    let soon = Some(Duration::from_millis(100));
    client.set_read_timeout(soon).expect("a time-out");
    rig.awaits("a closed port", || {
        let _ = client.send(&query());
        let error = client.recv(&mut [0; 512]).err();
        error.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
}

/// Somebody else may have the port soon.
fn is_left(rig: &Rig) {
    let server = rig.lab.server();
    rig.awaits("the port to be free", || {
        let bound = server.run(|| UdpSocket::bind(ADDRESS));
        bound.expect("the namespace").is_ok()
    });
}

fn what_waits_for_a_server_is_answered(name: &str, options: &str, server_options: &str) {
    let configuration = |address: &str| {
        format!(
            "addLocal(\"{address}\", {{{options}}})\nsetUDPTimeout(60)\n\
             newServer({{address=\"{SERVER}\", healthCheckMode=\"up\"{server_options}}})\n"
        )
    };
    let Some(rig) = Rig::start(name, &configuration(ADDRESS)) else {
        return;
    };
    let server = socket_in(&rig.lab.backend(), SERVER);
    let client = socket_in(&rig.lab.client(), "192.0.2.100:0");
    ask(&client);
    let queries = taken(&server);
    let said = rig.reload(&configuration(OTHER));
    assert!(said.contains("configuration 2 serves"), "{said}");
    is_closed(&rig);
    for (mut message, from) in queries {
        message[2] |= 0x80;
        server.send_to(&message, from).expect("to answer");
    }
    assert_eq!(answered(&client), (0..QUERIES).collect::<Vec<u16>>());
    let lost = rig.drops();
    assert!(
        lost.iter().all(|drop| !drop.contains("send-failed")),
        "{lost:?}"
    );
    rig.stop();
}

#[test]
fn queries_of_a_removed_listener_that_wait_for_a_server_are_answered_by_sockets() {
    what_waits_for_a_server_is_answered("leave", "", "");
}

#[test]
fn queries_of_a_removed_listener_that_wait_for_a_server_are_answered_over_af_xdp() {
    what_waits_for_a_server_is_answered("leavexdp", "xdp=true", ", xdp=true");
}

#[test]
fn answers_that_a_rule_delays_come_from_a_removed_listener_which_then_is_gone() {
    let delayed = format!("addAction(AllRule(), DelayAction(2000))\n{REFUSED}");
    let configuration = |address: &str| format!("addLocal(\"{address}\")\n{delayed}");
    let Some(rig) = Rig::start("leavelate", &configuration(ADDRESS)) else {
        return;
    };
    let client = socket_in(&rig.lab.client(), "192.0.2.100:0");
    ask(&client);
    rig.awaits("the queries", || {
        rig.metric("dnsdist_queries", &[]) >= f64::from(QUERIES)
    });
    let began = Instant::now();
    rig.reload(&configuration(OTHER));
    assert_eq!(answered(&client), (0..QUERIES).collect::<Vec<u16>>());
    is_left(&rig);
    assert!(began.elapsed() < PATIENCE);
    // And back: whoever left at a moment's notice is in nobody's way.
    rig.reload(&configuration(ADDRESS));
    ask(&client);
    rig.awaits("the queries", || {
        rig.metric("dnsdist_queries", &[]) >= f64::from(2 * QUERIES)
    });
    rig.reload(&configuration(OTHER));
    let said = rig.reload(&format!("addLocal(\"{ADDRESS}\")\n{REFUSED}"));
    assert!(said.contains("serves"), "{said}");
    rig.is_served_again(ADDRESS);
    rig.stop();
}

/// Else whoever shares the address, or asks another server next, would wait for a socket that nobody reads.
#[test]
fn a_daemon_that_ends_answers_what_waits_and_takes_no_more() {
    let configuration = format!(
        "addLocal(\"{ADDRESS}\", {{reusePort=true}})\n\
         newServer({{address=\"{SERVER}\", healthCheckMode=\"up\"}})\n"
    );
    let Some(mut rig) = Rig::start("leaveend", &configuration) else {
        return;
    };
    let server = socket_in(&rig.lab.backend(), SERVER);
    let client = socket_in(&rig.lab.client(), "192.0.2.100:0");
    ask(&client);
    let queries = taken(&server);
    kill(rig.daemon(), Signal::SIGTERM).expect("to signal");
    rig.says("SIGTERM: millrace stops");
    is_closed(&rig);
    for (mut message, from) in queries {
        message[2] |= 0x80;
        server.send_to(&message, from).expect("to answer");
    }
    assert_eq!(answered(&client), (0..QUERIES).collect::<Vec<u16>>());
    rig.stop();
}
