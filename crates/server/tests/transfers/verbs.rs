//! What operators have done with a zone: `millrace zone refresh`, `freeze`, `thaw`, `flush`, `backup`, `restore`, `purge`,
//! `read`.

use crate::daemon::{Millrace, PATIENCE, answer, answer_by_stream, asked, serial_in, until};
use crate::faults::good;
use crate::primary::{Primary, apex, soa};
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use testnet::again_if_interrupted;
use testnet::loopback::own_port;
use wire::codes::rcode;
use wire::message::Header;
use zone::transfer::query;

/// A primary with serial 5, and who has it from there.
fn pair(options: &str) -> (Primary, Millrace) {
    let primary = Primary::start(good(5));
    let zone = format!("primaries='127.0.0.1:{}'{options}", primary.port);
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    (primary, ours)
}

#[test]
fn a_frozen_secondary_is_refreshed_at_its_thaw() {
    let (primary, ours) = pair("");
    let zone = |word: &str| ours.command(&["zone", word, "example.com."]);
    let status = || ours.command(&["zone", "status"]);
    let said = zone("refresh");
    assert!(said.contains("serial 5 is confirmed by"), "{said}");
    assert_eq!(zone("freeze"), "example.com.: it is frozen\n");
    primary.asked();
    primary.follow(good(6));
    let notify = query::notify(9, apex().as_name(), None);
    let answer = answer(ours.port, &notify).unwrap();
    assert_eq!(Header::read(&answer).unwrap().rcode(), 0);
    let waits = "frozen, and something waits for its thaw";
    until(|| status().contains(waits), status);
    for word in ["reload", "refresh", "retransfer"] {
        let said = zone(word);
        let expected = "it is frozen: `millrace zone thaw example.com.` comes first";
        assert!(said.contains(expected), "{word}: {said}");
    }
    assert_eq!(asked(ours.port), Some(5));
    assert!(primary.asked().is_empty());
    let said = zone("thaw");
    assert!(said.contains("serial 6 came by AXFR"), "{said}");
    ours.until_serial(6);
    assert!(!status().contains("frozen"), "{}", status());
}

/// Scripts alarm on it.
#[test]
fn the_exit_status_says_whether_zones_serve() {
    let (_primary, serving) = pair("");
    let code = |ours: &Millrace, words: &[&str]| ours.output(words).status.code();
    assert_eq!(code(&serving, &["zone", "status"]), Some(0));
    assert_eq!(code(&serving, &["zone", "status", "other."]), Some(1));
    // Nobody listens there.
    let waiting = Millrace::start(own_port(), "primaries='127.0.0.1:1'");
    let status = || code(&waiting, &["zone", "status", "example.com."]);
    until(|| status() == Some(3), || waiting.log());
    let said = waiting.command(&["zone", "status"]);
    assert!(said.contains("not loaded: SERVFAIL"), "{said}");
}

/// Its secondaries are those of the primary, which tells them itself.
#[test]
fn what_a_primary_has_sent_that_blocks_notify_is_told_when_an_operator_says_so() {
    let primary = Primary::start(good(5));
    let secondary = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    secondary.set_read_timeout(Some(PATIENCE)).unwrap();
    let zone = format!(
        "primaries={{address='127.0.0.1:{}', blockNotifyAfterTransfer=true}}, notify='{}'",
        primary.port,
        secondary.local_addr().unwrap()
    );
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    primary.follow(good(6));
    ours.command(&["zone", "refresh"]);
    ours.until_serial(6);
    let said = ours.command(&["zone", "notify"]);
    assert!(said.contains("1 server is told of serial 6"), "{said}");
    // Who was told of serial 5 has not answered, and is told again.
    let mut told = [0; 512];
    let length = again_if_interrupted(|| secondary.recv(&mut told)).unwrap();
    assert_eq!(serial_in(&told[..length]), Some(6), "{}", ours.log());
}

#[test]
fn what_is_purged_is_transferred_anew() {
    let (_primary, ours) = pair("");
    let zone = |word: &str| ours.command(&["zone", word, "example.com."]);
    zone("refresh");
    // So that nobody is asked meanwhile.
    zone("freeze");
    let kept = ours.folder.path().join("state/example.com.zone");
    assert!(kept.exists());
    let said = zone("purge");
    assert!(said.starts_with("example.com.: purged; "), "{said}");
    assert!(!kept.exists());
    until(|| asked(ours.port).is_none(), || ours.log());
    let said = zone("read");
    assert!(said.contains("not loaded, or expired"), "{said}");
    let status = ours.command(&["zone", "status"]);
    assert!(status.contains("something waits for its thaw"), "{status}");
    let said = zone("thaw");
    assert!(said.contains("serial 5 came by AXFR"), "{said}");
    ours.until_serial(5);
    assert!(kept.exists());
}

#[test]
fn what_serves_is_written_and_read() {
    let (_primary, ours) = pair(", file='flushed'");
    let said = ours.command(&["zone", "flush", "example.com."]);
    assert!(said.contains("serial 5, "), "{said}");
    let read = ours.command(&["zone", "read", "example.com."]);
    let flushed = fs::read_to_string(ours.folder.path().join("flushed")).unwrap();
    assert_eq!(read, flushed);
    let one = ours.command(&["zone", "read", "example.com.", "serial-5", "TXT"]);
    assert_eq!(one, "serial-5.example.com. 300 IN TXT \"x\"\n");
    let missing = ours.folder.path().join("missing");
    let said = ours.command(&["zone", "flush", "--to", missing.to_str().unwrap()]);
    assert!(said.contains("a directory expected"), "{said}");
}

#[test]
fn a_backup_serves_again_and_outlives_the_process() {
    let (primary, mut ours) = pair("");
    let copies = ours.folder.path().join("copies");
    let copies = copies.to_str().unwrap();
    let zone = |ours: &Millrace, words: &[&str]| ours.command(&[&["zone"], words].concat());
    primary.follow(good(6));
    let said = zone(&ours, &["refresh"]);
    assert!(said.contains("serial 6 came by "), "{said}");
    let copied = zone(&ours, &["backup", "--to", copies, "+journal", "+kaspdb"]);
    let expected = "example.com.: serial 6 copied to ";
    assert!(copied.starts_with(expected), "{copied}");
    assert!(copied.contains("+kaspdb: no effect"), "{copied}");
    let again = zone(&ours, &["backup", "--to", copies]);
    assert!(again.contains("is a backup already"), "{again}");
    primary.follow(good(7));
    let said = zone(&ours, &["refresh"]);
    assert!(said.contains("serial 7 came by "), "{said}");
    let file = Path::new(copies).join("example.com/zone");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let refused = zone(&ours, &["restore", "--from", copies]);
    assert!(refused.ends_with("; serial 7 serves on\n"), "{refused}");
    fs::write(&file, whole).unwrap();
    zone(&ours, &["freeze"]);
    let refused = zone(&ours, &["restore", "--from", copies]);
    assert!(refused.contains("it is frozen: "), "{refused}");
    assert_eq!(asked(ours.port), Some(7));
    zone(&ours, &["thaw"]);
    // So that whenever it is asked it confirms what is restored.
    primary.follow(good(6));
    let restored = zone(&ours, &["restore", "--from", copies, "+journal"]);
    assert!(restored.contains("serial 6 restored from "), "{restored}");
    ours.until_serial(6);
    ours.restart();
    ours.until_serial(6);
}

#[test]
fn frozen_transfers_are_refused() {
    let zone = "file='zone', acl={action='transfer', address='127.0.0.1'}";
    let ours = Millrace::start(own_port(), zone);
    ours.until_serial(5);
    let code = || {
        let request = query::axfr(9, apex().as_name());
        let answer = answer_by_stream(ours.port, &request).unwrap();
        u16::from(Header::read(&answer).unwrap().rcode())
    };
    assert_eq!(code(), rcode::NOERROR);
    ours.command(&["zone", "xfr-freeze"]);
    assert_eq!(code(), rcode::REFUSED);
    let status = ours.command(&["zone", "status"]);
    assert!(status.contains("transfers out are frozen"), "{status}");
    assert_eq!(asked(ours.port), Some(5));
    ours.command(&["zone", "xfr-thaw"]);
    assert_eq!(code(), rcode::NOERROR);
}

/// Some secondaries ask for changes whenever REFRESH is over.
#[test]
fn who_has_the_newest_serial_is_no_transfer_in_the_log() {
    let zone = "file='zone', acl={action='transfer', address='127.0.0.1'}";
    let ours = Millrace::start(own_port(), zone);
    ours.until_serial(5);
    let apex = apex();
    for request in [
        query::ixfr(9, apex.as_name(), soa(5).as_ref()),
        query::axfr(9, apex.as_name()),
    ] {
        let answer = answer_by_stream(ours.port, &request).unwrap();
        assert_eq!(Header::read(&answer).unwrap().rcode(), 0);
    }
    ours.until_said("serial 5 went by AXFR to 127.0.0.1:");
    assert!(!ours.log().contains("by IXFR"), "{}", ours.log());
}
