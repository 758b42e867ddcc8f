//! From which serials changes are known (RFC 1995): from those of which secondaries have one version, and no other.

use crate::daemon::{Millrace, answer_by_stream, text};
use crate::faults::{good, mark, zone};
use crate::primary::{Deed, Primary, Script, Then, apex, soa};
use std::fs;
use testnet::loopback::own_port;
use wire::codes::qtype;
use wire::message::{HEADER_LENGTH, Header, Records};
use zone::transfer::query;

/// Whether who has this serial gets what has changed since; else the whole zone.
fn knows_changes(ours: &Millrace, since: u32) -> bool {
    let apex = apex();
    let request = query::ixfr(9, apex.as_name(), soa(since).as_ref());
    let answer = answer_by_stream(ours.port, &request).unwrap();
    let header = Header::read(&answer).unwrap();
    let start = HEADER_LENGTH + apex.as_name().as_bytes().len() + 4;
    let records = Records::new(&answer, start as u16, &header);
    let types: Vec<u16> = records.map(|record| record.unwrap().rtype).collect();
    assert!(types.len() > 2 && types[0] == qtype::SOA, "{types:?}");
    types[1] == qtype::SOA
}

#[test]
fn a_file_that_had_other_contents_by_the_same_serial_goes_whole() {
    let options = "file='zone', acl={action='transfer', address='127.0.0.1'}";
    let ours = Millrace::start(own_port(), options);
    ours.until_serial(5);
    let version = |serial: u32, line: &str| {
        fs::write(ours.folder.path().join("zone"), text(serial) + line).unwrap();
        let said = ours.command(&["zone", "reload"]);
        ours.until_serial(serial);
        said
    };
    version(6, "");
    assert!(knows_changes(&ours, 5));
    let said = version(6, "www A 10.0.0.2\n");
    let until = "secondaries do not see it until the serial is greater than 6";
    assert!(said.contains(until), "{said}");
    version(7, "www A 10.0.0.2\n");
    assert!(!knows_changes(&ours, 6) && !knows_changes(&ours, 5));
    version(8, "");
    assert!(knows_changes(&ours, 7) && !knows_changes(&ours, 6));
    // Down, and up again to where it was.
    version(3, "");
    let said = version(8, "www A 10.0.0.3\n");
    assert!(said.contains("greater than 8"), "{said}");
    version(9, "www A 10.0.0.3\n");
    assert!(![3, 7, 8].iter().any(|serial| knows_changes(&ours, *serial)));
    version(10, "");
    assert!(knows_changes(&ours, 9));
}

#[test]
fn what_a_primary_had_sent_with_other_contents_goes_on_whole() {
    let primary = Primary::start(good(5));
    let options = format!(
        "primaries='127.0.0.1:{}', acl={{action='transfer', address='127.0.0.1'}}",
        primary.port
    );
    let ours = Millrace::start(own_port(), &options);
    ours.until_serial(5);
    let came = |word: &str, script: Script| {
        let serial = script.serial;
        primary.follow(script);
        let said = ours.command(&["zone", word, "example.com."]);
        ours.until_serial(serial);
        said
    };
    let by_changes = |serial: u32| Script {
        ixfr: Deed::Changes,
        ..good(serial)
    };
    let said = came("retransfer", good(5));
    assert!(!said.contains("secondaries"), "{said}");
    came("refresh", by_changes(6));
    assert!(knows_changes(&ours, 5));
    let other = vec![[zone(6), mark(77), vec![soa(6)]].concat()];
    let axfr = Deed::Send(other, Then::Nothing);
    let said = came("retransfer", Script { axfr, ..good(6) });
    let unseen =
        "; its serial is 6 as before: secondaries do not see it until the serial is greater than 6";
    assert!(said.contains(unseen), "{said}");
    let said = came("refresh", by_changes(7));
    assert!(said.contains("came by IXFR"), "{said}");
    assert!(!knows_changes(&ours, 6) && !knows_changes(&ours, 5));
    came("refresh", by_changes(8));
    assert!(knows_changes(&ours, 7));
    // A lower one, and up again.
    let said = came("retransfer", good(3));
    let unseen =
        "its serial went from 8 to 3: secondaries do not see it until the serial is greater than 8";
    assert!(said.contains(unseen), "{said}");
    ours.until_said(&format!("zone example.com.: {unseen}"));
    came("refresh", by_changes(8));
    came("refresh", by_changes(9));
    assert!(![3, 7, 8].iter().any(|serial| knows_changes(&ours, *serial)));
    came("refresh", by_changes(10));
    assert!(knows_changes(&ours, 9));
}
