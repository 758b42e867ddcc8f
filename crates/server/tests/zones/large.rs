//! A zone that takes long to load, beside small ones: who asks is served all the while.

use crate::daemon::{Daemon, ZONE, ask, query};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use wire::codes::{qtype, rcode};

/// More records than a start reads, and fewer octets than any other way to write them.
const MANY: &str = "$GENERATE 1-120000 host-$ 300 A 192.0.2.1\n";

fn rcode_of(answer: &[u8]) -> u16 {
    u16::from(answer[3] & 15)
}

/// Issue 6: "A zone not yet loaded, or expired, answers SERVFAIL", and a start does not wait for it.
#[test]
fn a_start_does_not_wait_for_a_large_zone() {
    let configuration = "millrace.addZone{name='large.example.', file='large'}\n";
    let large = format!("{ZONE}{MANY}");
    let daemon = Daemon::start_with(configuration, &[("large", &large)]);
    let small = query("ns.example.com", qtype::A);
    let last = query("host-120000.large.example", qtype::A);
    // The first answer that there is at all is the small zone's.
    assert_eq!(rcode_of(&ask(daemon.dns, &small)), rcode::NOERROR);
    assert_eq!(rcode_of(&ask(daemon.dns, &last)), rcode::SERVFAIL);
    let status = daemon.say(&["zone", "status", "large.example"]);
    assert!(status.contains("not loaded: SERVFAIL, "), "{status}");
    let until = Instant::now() + Duration::from_secs(60);
    while rcode_of(&ask(daemon.dns, &last)) == rcode::SERVFAIL {
        assert!(
            Instant::now() < until,
            "{}",
            daemon.say(&["zone", "status"])
        );
        assert_eq!(rcode_of(&ask(daemon.dns, &small)), rcode::NOERROR);
    }
    assert_eq!(rcode_of(&ask(daemon.dns, &last)), rcode::NOERROR);
    let status = daemon.say(&["zone", "status", "large.example"]);
    assert!(status.contains("serial 7, 120003 records"), "{status}");
}

/// How many of the daemon's clients were cut off because they did not take their answers.
fn cut_off(daemon: &Daemon) -> f64 {
    let metrics = daemon.metrics();
    let rows = metrics
        .lines()
        .filter(|line| line.starts_with("dnsdist_frontend_tcpdiedsendingresponse{"));
    let values = rows.filter_map(|row| row.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// F31: who has a zone of eleven megabytes sent and reads nothing of it is cut off when setTCPSendTimeout is over; whoever asks
/// over UDP does not notice.
#[test]
fn f31_a_zone_that_nobody_reads_is_cut_off_and_others_are_served() {
    let configuration = "setTCPSendTimeout(1)\n\
         millrace.addZone{name='large.example.', file='large', acl={{action='transfer', address='127.0.0.0/8'}}}\n";
    let records = "x".repeat(250);
    let large = format!("{ZONE}$GENERATE 1-40000 host-$ 300 TXT {records}\n");
    let daemon = Daemon::start_with(configuration, &[("large", &large)]);
    let small = query("ns.example.com", qtype::A);
    let last = query("host-40000.large.example", qtype::TXT);
    let until = Instant::now() + Duration::from_secs(60);
    while rcode_of(&ask(daemon.dns, &last)) != rcode::NOERROR {
        assert!(Instant::now() < until, "the zone is not loaded");
    }
    let transfer = query("large.example", qtype::AXFR);
    let length = (transfer.len() as u16).to_be_bytes();
    let mut client = TcpStream::connect(daemon.dns).expect("it listens");
    client
        .write_all(&[&length[..], &transfer].concat())
        .expect("it reads");
    // Its beginning has come: from here on nothing is read.
    client.read_exact(&mut [0; 2]).expect("an answer");
    let until = Instant::now() + Duration::from_secs(60);
    while cut_off(&daemon) == 0.0 {
        assert!(Instant::now() < until, "{}", daemon.metrics());
        assert_eq!(rcode_of(&ask(daemon.dns, &small)), rcode::NOERROR);
    }
    assert_eq!(cut_off(&daemon), 1.0);
    drop(client);
}
