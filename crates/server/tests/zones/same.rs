//! Issue 6: the same question to `millrace` and to others gets the same answer. `crates/zone/tests/peers.rs` asks knotd, nsd
//! and named what crate `zone` answers; here the daemon answers that by its sockets, without root. Over AF_XDP, octet by octet:
//! `crates/server/tests/following/doors.rs`.

use crate::corpus::{any_questions, questions};
use crate::daemon::{Daemon, ask, ask_stream};
use crate::read::{self, Message};
use crate::zones::{Ground, ZoneFile};
use wire::message::parse_response;

#[test]
fn the_daemon_answers_as_what_was_compared_with_others_over_udp_and_tcp() {
    let Some(ground) = Ground::new() else { return };
    let are_signed = ground.files.iter().any(|zone| zone.anchor.is_some());
    assert!(are_signed, "no zone is signed");
    let daemon = Daemon::start(&configuration(&ground));
    for question in questions(&ground).chain(any_questions(&ground)) {
        let expected = read::message(&ground.ask(&question).expect("the zone is served"));
        let message = question.message();
        for (way, answer) in [
            ("UDP", ask(daemon.dns, &message)),
            ("TCP", ask_stream(daemon.dns, &message)),
        ] {
            assert_eq!(without_opt(answer), expected, "{question:?} over {way}");
        }
    }
}

/// The zones, and answers as large as the others are asked for.
fn configuration(ground: &Ground) -> String {
    let line = |zone: &ZoneFile| {
        let (name, file) = (zone.name, zone.file.display());
        format!("millrace.addZone{{name='{name}', file='{file}'}}\n")
    };
    let zones: String = ground.files.iter().map(line).collect();
    let state = ground.folder.path().join("state");
    format!(
        "setPayloadSizeOnSelfGeneratedAnswers(4096)\nmillrace.setStateDirectory('{}')\n{zones}",
        state.display()
    )
}

/// The OPT record is the server's, not the zone's.
fn without_opt(mut answer: Vec<u8>) -> Message {
    let parts = parse_response(&answer).expect("an answer");
    let edns = parts.edns.expect("an OPT record");
    assert_eq!(edns.end, parts.end, "the OPT record is the last one");
    answer.truncate(edns.start.into());
    let count = parts.additional_count - 1;
    answer[10..12].copy_from_slice(&count.to_be_bytes());
    read::message(&answer)
}
