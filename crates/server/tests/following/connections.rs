//! More TCP clients than there are places (F31): those that found one stay, the others are closed, and UDP does not notice.

use crate::resources::memory;
use crate::restart::Load;
use crate::rig::{PATIENCE, REFUSED, Rig, allow_many_sockets};
use nix::sys::socket::{MsgFlags, recv};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use testnet::dns::Query;
use testnet::lab::Topology;

const ADDRESS: &str = "192.0.2.1:53";
/// By turns, so that one client address has ports enough (ip_local_port_range).
const ADDRESSES: [&str; 2] = [ADDRESS, "[2001:db8::1]:53"];

/// Connections that are made, and those that have a place: 10,000 over all listeners, 2,000 of them at the second one
/// (docs/tcp.md).
const MADE: usize = 20_000;
const PLACES: [usize; 2] = [8_000, 2_000];
const HELD: usize = PLACES[0] + PLACES[1];

/// Connections that are made before the daemon is asked whether it has seen them all: tcpListenQueueSize is 4,096.
const AT_ONCE: usize = 1_000;

/// What the daemon may take for a connection with a place: 2,048 bytes that are read ahead, room for its first answers, the task.
/// An optimised build takes 7.3 KiB.
const BYTES_EACH: u64 = 16 << 10;

/// What it may take for all those without a place: they leave nothing.
const BYTES_OF_REFUSED: u64 = 8 << 20;

/// Clients that connect to the addresses by turns, and say nothing.
fn connect(rig: &Rig, count: usize) -> Vec<TcpStream> {
    let connecting = move || {
        let to: [SocketAddr; 2] = ADDRESSES.map(|address| address.parse().expect("an address"));
        let connect = |number: usize| {
            let stream = TcpStream::connect_timeout(&to[number % 2], PATIENCE);
            stream.unwrap_or_else(|error| panic!("connection {number} of {count}: {error}"))
        };
        (0..count).map(connect).collect::<Vec<_>>()
    };
    rig.lab.client().run(connecting).expect("the namespace")
}

/// A number of each listener's, as `/metrics` has it.
fn of_each(rig: &Rig, name: &str) -> [usize; 2] {
    ADDRESSES.map(|address| rig.metric(name, &[("frontend", address)]) as usize)
}

const PRESENT: &str = "dnsdist_frontend_tcpcurrentconnections";
const TURNED_AWAY: &str = "millrace_frontend_tcp_refused_connections";

fn present(rig: &Rig) -> [usize; 2] {
    of_each(rig, PRESENT)
}

fn refused(rig: &Rig) -> [usize; 2] {
    of_each(rig, TURNED_AWAY)
}

/// Makes so many more, in steps that the daemon is awaited after; what it has closed is let go, because a process may not have
/// 20,000 descriptors everywhere.
fn crowd(rig: &Rig, streams: &mut Vec<TcpStream>, more: usize) {
    let seen = || (rig.metric(PRESENT, &[]) + rig.metric(TURNED_AWAY, &[])) as usize;
    let mut made = seen();
    let until = made + more;
    while made < until {
        let some = AT_ONCE.min(until - made);
        streams.retain(is_open);
        streams.extend(connect(rig, some));
        made += some;
        rig.awaits("all connections to be seen", || seen() == made);
    }
}

/// Whether the daemon has not closed it.
fn is_open(stream: &TcpStream) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(stream.as_raw_fd(), &mut [0], flags) == Err(nix::Error::EAGAIN)
}

fn descriptors(rig: &Rig) -> usize {
    let folder = fs::read_dir(format!("/proc/{}/fd", rig.daemon()));
    folder.expect("its descriptors").count()
}

/// Whether a query over a connection of its own is answered; a connection without a place is closed.
fn is_answered(rig: &Rig) -> bool {
    let query = Query::new("www.example.com.", "A");
    let query = query.expect("a query").octets();
    let mut stream = connect(rig, 1).remove(0);
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let length = query.len() as u16;
    let framed = [&length.to_be_bytes()[..], &query].concat();
    // What was closed already may be reset.
    let answered = stream
        .write_all(&framed)
        .and_then(|()| stream.read_exact(&mut [0; 14]));
    match answered {
        Ok(()) => true,
        Err(error) => {
            use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            let closed = [BrokenPipe, ConnectionReset, UnexpectedEof];
            assert!(closed.contains(&error.kind()), "{error}");
            false
        }
    }
}

/// F31: 20,000 connections that say nothing, each of which may stay for two minutes.
#[test]
fn f31_twenty_thousand_idle_connections_are_bounded_and_udp_goes_on() {
    let Some(lab) = Rig::lab("idle-tcp", Topology::TwoInterfaces) else {
        return;
    };
    allow_many_sockets();
    let configuration = format!(
        "addLocal(\"{}\", {{xdp=true}})\n\
         addLocal(\"{}\", {{xdp=true, maxConcurrentTCPConnections={}}})\n\
         setTCPConnectionsOverloadThreshold(0)\n\
         setTCPRecvTimeout(120)\n{REFUSED}",
        ADDRESSES[0], ADDRESSES[1], PLACES[1]
    );
    let rig = Rig::start_in(lab, &configuration);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert!(is_answered(&rig), "{}", rig.log());
    rig.awaits("nobody to be connected", || present(&rig) == [0, 0]);
    let (memory_before, descriptors_before) = (memory(&rig, "RssAnon:"), descriptors(&rig));

    let load = Load::start(&rig, "www.example.com.");
    let mut streams = Vec::new();
    // Of these the second listener refuses 3,000: then 7,000 are there.
    crowd(&rig, &mut streams, 2 * 5_000);
    assert_eq!((present(&rig), refused(&rig)), ([5_000, 2_000], [0, 3_000]));
    crowd(&rig, &mut streams, 2 * 3_000);
    assert_eq!((present(&rig), refused(&rig)), (PLACES, [0, 6_000]));
    let memory_full = memory(&rig, "RssAnon:");
    crowd(&rig, &mut streams, MADE - 2 * 8_000);
    assert_eq!((present(&rig), refused(&rig)), (PLACES, [2_000, 8_000]));
    rig.awaits("those without a place to be closed", || {
        streams.iter().filter(|stream| is_open(stream)).count() == HELD
    });
    let memory_after = memory(&rig, "RssAnon:");
    assert!(!is_answered(&rig), "there is no place for one more");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let asked = load.end();

    let each = memory_full.saturating_sub(memory_before) / HELD as u64;
    let of_refused = memory_after.saturating_sub(memory_full);
    println!(
        "{MADE} idle connections, {HELD} of them with a place: {each} bytes each, {of_refused} for the others; \
         {asked} queries over UDP meanwhile, 0 lost"
    );
    assert!(each <= BYTES_EACH, "{each} bytes for each connection");
    assert!(of_refused <= BYTES_OF_REFUSED, "{of_refused} bytes");
    let more = descriptors(&rig) - descriptors_before;
    assert!(more <= HELD + 16, "{more} descriptors more");

    // When they go, all is as before.
    drop(streams);
    rig.awaits("all to be gone", || present(&rig) == [0, 0]);
    assert!(is_answered(&rig), "{}", rig.log());
    rig.awaits("their descriptors to be closed", || {
        descriptors(&rig) <= descriptors_before + 16
    });
    rig.server.stop().expect("a good end");
}
