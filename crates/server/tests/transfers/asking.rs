//! Which primary is asked, over what, and who waits for it.

use crate::daemon::{Millrace, answer_by_stream, asked, until};
use crate::faults::{self, good};
use crate::primary::{Datagrams, Deed, Primary, Script, Then, apex};
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};
use testnet::loopback::own_port;
use wire::codes::{qtype, rcode};
use zone::transfer::query;

#[test]
fn a_primary_that_is_stuck_neither_hides_a_newer_version_nor_confirms_it() {
    let (stuck, other) = (Primary::start(good(5)), Primary::start(good(5)));
    let address = |primary: &Primary| format!("127.0.0.1:{}", primary.port);
    let (first, second) = (address(&stuck), address(&other));
    let zone = format!("primaries={{'{first}', '{second}'}}");
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    let reload = || ours.command(&["zone", "reload"]);
    let said = reload();
    let expected = format!("serial 5 is confirmed by {first}");
    assert!(said.contains(&expected), "{said}");
    other.follow(good(6));
    let said = reload();
    let expected = format!("serial 6 came by AXFR from {second}");
    assert!(said.contains(&expected), "{said}");
    assert_eq!(asked(ours.port), Some(6));
    let behind = format!("{first}: it has serial 5, which does not confirm 6");
    let said = reload();
    let expected = format!("serial 6 is confirmed by {second}; {behind}");
    assert!(said.contains(&expected), "{said}");
    other.follow(good(4));
    let said = reload();
    let expected = format!("not refreshed: {behind}; {second}: it has serial 4");
    assert!(said.contains(&expected), "{said}");
    assert_eq!(asked(ours.port), Some(6));
}

/// RFC 1034 §4.3.5: a zone expires where no check of its serial is possible.
#[test]
fn a_zone_that_a_primary_confirms_lives_on_whatever_another_one_offers() {
    const LIFE: Duration = Duration::from_secs(6);
    let (liar, other) = (Primary::start(good(5)), Primary::start(good(5)));
    let address = |primary: &Primary| format!("127.0.0.1:{}", primary.port);
    let (first, second) = (address(&liar), address(&other));
    let options = "refreshMin=1, refreshMax=1, retryMax=1, expireMax=6";
    let zone = format!("primaries={{'{first}', '{second}'}}, {options}");
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    let refused = Deed::Code(rcode::REFUSED);
    // It begins, says nothing more, and keeps the connection: for twenty seconds.
    let stalls = Deed::Send(vec![faults::zone(6)], Then::Nothing);
    for axfr in [refused.clone(), stalls] {
        liar.follow(Script { axfr, ..good(6) });
        let began = Instant::now();
        until(|| began.elapsed() > LIFE + LIFE / 2, || ours.log());
        assert_eq!(asked(ours.port), Some(5), "{}", ours.log());
        assert!(!ours.log().contains("has expired"), "{}", ours.log());
    }
    liar.follow(Script {
        axfr: refused,
        ..good(6)
    });
    let said = ours.output(&["zone", "reload"]);
    assert_eq!(said.status.code(), Some(1), "what is newer did not come");
    let missed = format!("{first}: it offers serial 6, which did not come: IXFR: ");
    let log = ours.log();
    let expected = format!("was not refreshed: serial 5 is confirmed by {second}; {missed}");
    assert!(log.contains(&expected), "{log}");
    liar.follow(good(6));
    ours.until_serial(6);
    ours.until_said("serial 6 came by AXFR from");
    ours.until_said("; its IXFR was of no use: the primary answers NOTIMP");
}

/// RFC 1034 §4.3.5: the copy of a zone that has expired is "obsolete", and to be discarded: nothing is older than it any more.
#[test]
fn a_zone_that_has_expired_takes_an_older_version_where_nobody_has_its_own() {
    let (one, other) = (Primary::start(good(5)), Primary::start(good(5)));
    let address = |primary: &Primary| format!("127.0.0.1:{}", primary.port);
    let (first, second) = (address(&one), address(&other));
    let options = "refreshMin=1, refreshMax=1, retryMin=1, retryMax=1, expireMax=4";
    let zone = format!("primaries={{'{first}', '{second}'}}, {options}");
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    let refusing = Script {
        axfr: Deed::Code(rcode::REFUSED),
        ..good(4)
    };
    let expire = || {
        one.follow(refusing.clone());
        other.follow(refusing.clone());
        until(|| asked(ours.port).is_none(), || ours.log());
    };
    expire();
    // Both say something else before either is asked again.
    ours.command(&["zone", "freeze"]);
    one.follow(good(4));
    other.follow(good(5));
    ours.command(&["zone", "thaw"]);
    ours.until_serial(5);
    expire();
    ours.until_said(&format!("{first}: the primary answers REFUSED"));
    other.follow(good(4));
    ours.until_serial(4);
    ours.until_said(&format!("serial 4 came by AXFR from {second}"));
}

#[test]
fn a_primary_that_is_of_no_use_over_udp_is_asked_over_tcp() {
    let primary = Primary::start(good(5));
    let address = format!("127.0.0.1:{}", primary.port);
    let zone = format!("primaries={{{{address='{address}', key='k.', source='127.0.0.1'}}}}");
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    for datagrams in [Datagrams::Truncated, Datagrams::Silence] {
        primary.asked();
        primary.follow(Script {
            datagrams,
            ..good(5)
        });
        let said = ours.command(&["zone", "reload"]);
        let expected = format!("serial 5 is confirmed by {address}");
        assert!(said.contains(&expected), "{said}");
        assert_eq!(primary.asked(), [qtype::SOA], "{said}");
    }
}

#[test]
fn a_primary_that_was_silent_is_asked_last_and_once() {
    let dead = UdpSocket::bind((Ipv4Addr::LOCALHOST, own_port())).unwrap();
    dead.set_nonblocking(true).unwrap();
    let queries = || (0..).map_while(|_| dead.recv(&mut [0; 512]).ok()).count();
    let (first, other) = (dead.local_addr().unwrap(), Primary::start(good(5)));
    let second = format!("127.0.0.1:{}", other.port);
    let zone = format!("primaries={{'{first}', '{second}'}}");
    let ours = Millrace::start(own_port(), &zone);
    // The first one has refused a connection.
    ours.until_serial(5);
    let reload = || ours.command(&["zone", "reload"]);
    let said = reload();
    let expected = format!(
        "serial 5 is confirmed by {second}; {first}: UDP: no answer over UDP, asked once; TCP: "
    );
    assert!(said.contains(&expected), "{said}");
    assert_eq!(queries(), 1);
    other.follow(good(6));
    let said = reload();
    let expected = format!("serial 6 came by AXFR from {second}");
    assert!(said.contains(&expected), "{said}");
    assert_eq!(queries(), 0, "it was not waited for");
}

/// Else it would be asked when its zone's times say so, which are an hour.
#[test]
fn a_primary_that_a_reload_names_is_asked_at_once() {
    let (former, next) = (Primary::start(good(5)), Primary::start(good(6)));
    let zone = |primary: &Primary| format!("primaries='127.0.0.1:{}'", primary.port);
    let ours = Millrace::start(own_port(), &zone(&former));
    ours.until_serial(5);
    ours.configure(&zone(&next));
    ours.command(&["reload"]);
    ours.until_serial(6);
}

#[test]
fn a_primary_that_a_reload_makes_a_secondary_serves_on_whoever_answers() {
    let ours = Millrace::start(own_port(), "file='zone'");
    ours.until_serial(5);
    // Nobody listens there.
    ours.configure("primaries='127.0.0.1:1'");
    ours.command(&["reload"]);
    ours.until_said("zone example.com. was not refreshed");
    assert!(!ours.log().contains("has expired"), "{}", ours.log());
    assert_eq!(asked(ours.port), Some(5));
}

/// RFC 7314 §4.
#[test]
fn a_zone_expires_when_its_primary_says_so() {
    let says = |expire| Script { expire, ..good(5) };
    let primary = Primary::start(says(Some(500)));
    let zone = format!(
        "primaries={{{{address='127.0.0.1:{}', key='k.'}}}}",
        primary.port
    );
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    let expires = || {
        let status = ours.command(&["zone", "status"]);
        let seconds = status.split("expires in ").nth(1).unwrap();
        seconds.split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    let within = |most: u32| (most - 60..=most).contains(&expires());
    assert!(within(500), "by the transfer: {}", expires());
    for (said, most) in [
        (Some(900), 900),
        // What is left is more.
        (Some(100), 900),
        (Some(100_000), 86_400),
        (Some(100), 86_400),
        (None, 86_400),
    ] {
        primary.follow(says(said));
        ours.command(&["zone", "reload"]);
        assert!(within(most), "{said:?}: {}", expires());
    }
}

/// RFC 6891 §7: so does who does not know EDNS.
#[test]
fn a_primary_that_refuses_edns_is_asked_without() {
    let says = |serial| Script {
        knows_edns: false,
        ..good(serial)
    };
    let primary = Primary::start(says(5));
    let zone = format!("primaries='127.0.0.1:{}'", primary.port);
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    assert_eq!(primary.asked(), [qtype::AXFR, qtype::AXFR]);
    primary.follow(says(6));
    let said = ours.command(&["zone", "reload"]);
    assert!(said.contains("serial 6 came by AXFR"), "{said}");
    assert_eq!(asked(ours.port), Some(6));
}

/// RFC 7314 §3: a transfer says it, too.
#[test]
fn transfers_out_say_how_long_the_zone_may_be_gone_on_with() {
    let ours = Millrace::start(
        own_port(),
        "file='zone', acl={action='transfer', address='127.0.0.1'}",
    );
    ours.until_serial(5);
    for with_expiry in [true, false] {
        let mut request = query::axfr(9, apex().as_name());
        if with_expiry {
            query::ask_expiry(&mut request);
        }
        let answer = answer_by_stream(ours.port, &request).unwrap();
        let expected = with_expiry.then_some(86_400);
        assert_eq!(query::stated_expiry(&answer), expected);
    }
}

/// Zones whose primary says nothing: more than are transferred at a time.
const DEAD: usize = 20;

#[test]
fn zones_whose_primary_is_dead_do_not_hold_up_the_others() {
    let primary = Primary::start(good(5));
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let zone = format!("primaries='127.0.0.1:{}'", primary.port);
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    let names: Vec<String> = (0..DEAD).map(|number| format!("z{number}.")).collect();
    let line = |name: &String| {
        format!("millrace.addZone{{name='{name}', file='zone', primaries='127.0.0.1:{port}'}}\n")
    };
    let lines: String = names.iter().map(line).collect();
    ours.configure_after(&lines, &zone);
    ours.command(&["reload"]);
    primary.follow(good(6));
    let words: Vec<&str> = ["zone", "reload"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    let (ours, words) = (&ours, &words);
    thread::scope(|scope| {
        scope.spawn(|| ours.command(words));
        let asking = || {
            let status = ours.command(&["zone", "status"]);
            status.matches("asking primaries").count()
        };
        until(|| asking() == DEAD, || ours.log());
        let start = Instant::now();
        let said = ours.command(&["zone", "reload", "example.com."]);
        assert!(said.contains("serial 6 came by AXFR"), "{said}");
        // What is silent is asked for seven seconds: on a slow machine too none of them is done with yet.
        let is_early = start.elapsed() < Duration::from_secs(4);
        assert!(is_early || asking() == DEAD, "{said}");
    });
}
