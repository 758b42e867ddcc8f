//! A zone that takes long to load, beside small ones: who asks is served all the while.

use crate::daemon::{Daemon, ZONE, ask, query};
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
