//! A zone that is read anew while it is asked for.

use crate::daemon::{Daemon, ZONE, query};
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;
use testnet::again_if_interrupted;
use wire::codes::qtype;

/// How long an answer is waited for: on loopback nothing else loses one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Each has another serial.
const RELOADS: u32 = 10;

/// Issue 6: "a zone reload never drops a query".
#[test]
fn no_query_is_lost_while_a_zone_is_reloaded() {
    let daemon = Daemon::start("");
    // It serves.
    daemon.ask("ns.example.com.", qtype::A);
    let message = query("ns.example.com.", qtype::A);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(daemon.dns).expect("it is there");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut answer = vec![0; 512];
    thread::scope(|scope| {
        let reloads = scope.spawn(|| reload_again_and_again(&daemon));
        while !reloads.is_finished() {
            socket.send(&message).expect("it is there");
            let length = again_if_interrupted(|| socket.recv(&mut answer));
            let length = length.expect("an answer within 60 s");
            assert_eq!(answer[3] & 15, 0, "NOERROR: {:02x?}", &answer[..length]);
            assert_eq!(answer[7], 1, "an address");
        }
    });
}

fn reload_again_and_again(daemon: &Daemon) {
    for serial in 10..10 + RELOADS {
        let zone = ZONE.replace(" 7 ", &format!(" {serial} "));
        // Of another length each time: a clock may stand still between two of them.
        let comment = "x".repeat(serial as usize);
        daemon.write("zone", &format!("{zone};{comment}\n"));
        let said = daemon.say(&["zone", "reload", "example.com."]);
        assert!(said.contains(&format!("serial {serial}, ")), "{said}");
    }
}
