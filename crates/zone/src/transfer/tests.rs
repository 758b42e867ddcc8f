use super::incoming::{Bounds, Incoming, Item, Outcome, Progress, TransferError};
use super::journal::{self, JournalError};
use super::outgoing::{MESSAGE_LENGTH, Messages, RecordTooLong, axfr, ixfr};
use super::*;
use crate::rdata;
use proptest::prelude::*;
use wire::codes::qtype;
use wire::message::{Header, parse_query, parse_response};
use wire::name::NameBuf;

fn zone() -> NameBuf {
    "example.com".parse().unwrap()
}

fn record(owner: &str, kind: u16, text: &str) -> Record {
    let owner: NameBuf = owner.parse().unwrap();
    Record {
        owner: owner.as_name().as_bytes().into(),
        kind,
        class: 1,
        ttl: 3_600,
        rdata: rdata::parse(kind, text, zone().as_name()).unwrap(),
    }
}

fn soa(serial: u32) -> Record {
    record(
        "example.com",
        qtype::SOA,
        &format!("ns host {serial} 1h 15m 4w 5m"),
    )
}

fn address(number: u32) -> Record {
    let owner = format!("Host-{number}.sub.example.com");
    record(
        &owner,
        qtype::A,
        &format!("192.0.{}.{}", number / 256 % 256, number % 256),
    )
}

fn change(from: u32, to: u32) -> Change {
    Change {
        from: soa(from),
        removed: vec![address(from)],
        to: soa(to),
        added: vec![address(to), record("example.com", qtype::TXT, "\"added\"")],
    }
}

/// Header and question of a query.
fn asked(kind: u16) -> Vec<u8> {
    let mut message = query::axfr(7, zone().as_name());
    let kind_at = message.len() - 4;
    message[kind_at..kind_at + 2].copy_from_slice(&kind.to_be_bytes());
    message
}

fn messages<R: AsRecord>(
    records: impl Iterator<Item = R>,
    kind: u16,
    length_max: usize,
) -> Vec<Vec<u8>> {
    let mut messages = Messages::new(records, &asked(kind), length_max, 0);
    let mut all = Vec::new();
    let mut message = Vec::new();
    while messages.next_message(&mut message).unwrap() {
        assert!(parse_response(&message).is_ok());
        all.push(message.clone());
    }
    all
}

/// What these messages come to, and their records.
fn received(
    mut incoming: Incoming,
    messages: &[Vec<u8>],
) -> (Result<Progress, TransferError>, Vec<Item>) {
    let mut items = Vec::new();
    let mut progress = Ok(Progress::More);
    for message in messages {
        progress = incoming.message(message, |item| items.push(item));
        if progress.is_err() {
            break;
        }
    }
    (progress, items)
}

fn incoming_axfr() -> Incoming {
    Incoming::axfr(zone().as_name(), 7, Bounds::default())
}

fn incoming_ixfr(held: u32) -> Incoming {
    Incoming::ixfr(zone().as_name(), 7, held, Bounds::default())
}

// ---------------------------------------------------------------------------------------- whole zones

#[test]
fn a_whole_zone_there_and_back() {
    let others: Vec<Record> = (0..5_000).map(address).collect();
    for length_max in [512, MESSAGE_LENGTH, 65_535] {
        let sent = messages(axfr(&soa(9), others.iter()), qtype::AXFR, length_max);
        assert!(sent.iter().all(|message| message.len() <= length_max));
        let octets: usize = sent.iter().map(Vec::len).sum();
        // 2 of label length, 9 or so of label, 2 of pointer, 10 fixed, 4 of address.
        assert!(octets < 5_000 * 34, "{octets}");
        let (progress, items) = received(incoming_axfr(), &sent);
        assert_eq!(progress, Ok(Progress::Done(Outcome::Whole)));
        let whole: Vec<Item> = std::iter::once(soa(9))
            .chain(others.clone())
            .map(Item::Whole)
            .collect();
        assert_eq!(items, whole);
        // The same where changes were asked for.
        let sent = messages(axfr(&soa(9), others.iter()), qtype::IXFR, length_max);
        assert_eq!(
            received(incoming_ixfr(3), &sent),
            (Ok(Progress::Done(Outcome::Whole)), whole)
        );
    }
}

#[test]
fn records_of_the_greatest_length_go_out_alone() {
    let large = Record {
        rdata: vec![7; 65_535 - 12 - 15 - 10].into(),
        ..record("x.example.com", 731, "\\# 0")
    };
    let others = [address(1), large.clone(), address(2)];
    let sent = messages(axfr(&soa(9), others.iter()), qtype::AXFR, MESSAGE_LENGTH);
    let (progress, items) = received(incoming_axfr(), &sent);
    assert_eq!(progress, Ok(Progress::Done(Outcome::Whole)));
    assert!(items == [soa(9), address(1), large.clone(), address(2)].map(Item::Whole));
    // With a signature there would be no room.
    let sent = axfr(&soa(9), others.iter())
        .map(|record| record.as_record().to_owned())
        .collect::<Vec<_>>();
    let mut messages = Messages::new(sent.iter(), &asked(qtype::AXFR), MESSAGE_LENGTH, 80);
    let mut message = Vec::new();
    assert_eq!(messages.next_message(&mut message), Ok(true));
    let error = messages.next_message(&mut message).expect_err("too long");
    assert!(
        error == RecordTooLong(large)
            && error
                .to_string()
                .starts_with("x.example.com. TYPE731: 65498 octets")
    );
}

/// RFC 5936 §2.2.2: it "MUST be copied from the query"; §3.4: the owners' case is the zone's.
#[test]
fn the_question_is_the_clients() {
    let mut query = asked(qtype::AXFR);
    query[2] |= 1;
    query[13..20].copy_from_slice(b"eXAMPLE");
    let others = [address(1), address(2)];
    let records = axfr(&soa(9), others.iter())
        .map(|record| record.as_record().to_owned())
        .collect::<Vec<_>>();
    let mut messages = Messages::new(records.iter(), &query, 120, 0);
    let mut all = Vec::new();
    let mut message = Vec::new();
    while messages.next_message(&mut message).unwrap() {
        all.push(message.clone());
    }
    assert!(all.len() > 1);
    assert_eq!(all[0][12..query.len()], query[12..]);
    // QR, AA, RD.
    assert!(all.iter().all(|message| message[2] == 0x85));
    let (progress, items) = received(incoming_axfr(), &all);
    assert_eq!(progress, Ok(Progress::Done(Outcome::Whole)));
    assert!(items == [soa(9), address(1), address(2)].map(Item::Whole));
}

#[test]
fn a_zone_of_a_soa_alone() {
    let none: [Record; 0] = [];
    let sent = messages(axfr(&soa(9), none.iter()), qtype::AXFR, MESSAGE_LENGTH);
    let (progress, items) = received(incoming_axfr(), &sent);
    assert_eq!(
        (progress, items.len()),
        (Ok(Progress::Done(Outcome::Whole)), 1)
    );
}

// -------------------------------------------------------------------------------------------- changes

#[test]
fn changes_there_and_back() {
    let changes = [change(1, 2), change(2, 5), change(5, 9)];
    for length_max in [200, MESSAGE_LENGTH] {
        let sent = messages(ixfr(&soa(9), &changes), qtype::IXFR, length_max);
        let (progress, items) = received(incoming_ixfr(1), &sent);
        assert_eq!(progress, Ok(Progress::Done(Outcome::Changes)));
        let mut expected = Vec::new();
        for Change {
            from,
            removed,
            to,
            added,
        } in changes.clone()
        {
            expected.push(Item::From(from));
            expected.extend(removed.into_iter().map(Item::Removed));
            expected.push(Item::To(to));
            expected.extend(added.into_iter().map(Item::Added));
        }
        assert_eq!(items, expected);
    }
    let sent = messages(ixfr(&soa(9), &[]), qtype::IXFR, MESSAGE_LENGTH);
    assert_eq!(
        received(incoming_ixfr(9), &sent),
        (Ok(Progress::Done(Outcome::UpToDate(9))), vec![])
    );
    assert_eq!(
        received(incoming_ixfr(10), &sent).0,
        Ok(Progress::Done(Outcome::UpToDate(9)))
    );
    assert_eq!(received(incoming_ixfr(8), &sent).0, Ok(Progress::More));
}

// ------------------------------------------------------------------------------- primaries that lie, F34

/// A message of these records, with the question.
fn message_of(records: &[Record], kind: u16) -> Vec<u8> {
    messages(records.iter(), kind, 65_535).remove(0)
}

#[test]
fn f34_zones_that_do_not_hold_together() {
    let outside = record("example.net", qtype::A, "192.0.2.1");
    let other_soa = record("example.net", qtype::SOA, ". . 9 1 1 1 1");
    let low_soa = record("a.example.com", qtype::SOA, ". . 9 1 1 1 1");
    for records in [
        &[address(1), soa(9)][..],
        &[soa(9), address(1), soa(8)],
        &[outside.clone(), soa(9), soa(9)],
        &[soa(9), soa(9), outside],
        &[soa(9), other_soa, soa(9)],
        &[soa(9), low_soa, soa(9)],
        &[soa(9), soa(9), address(1)],
        &[soa(9), address(1), soa(9), address(2)],
        &[soa(9), address(1), soa(9), soa(9)],
    ] {
        let (progress, _) = received(incoming_axfr(), &[message_of(records, qtype::AXFR)]);
        assert!(progress.is_err(), "{records:?}");
    }
    // Cut at any octet: never done.
    let whole = message_of(&[soa(9), address(1), soa(9)], qtype::AXFR);
    for length in 0..whole.len() {
        let (progress, _) = received(incoming_axfr(), &[whole[..length].to_vec()]);
        assert!(progress.is_err(), "{length}: {progress:?}");
    }
    assert_eq!(
        received(
            incoming_axfr(),
            &[message_of(&[soa(9), address(1)], qtype::AXFR)]
        )
        .0,
        Ok(Progress::More)
    );
}

/// In a zone file they are left out with a warning: a secondary has what its primary would have.
#[test]
fn f34_records_out_of_the_zone_are_left_out_and_counted() {
    let outside = |owner: &str| record(owner, qtype::A, "192.0.2.1");
    let (one, other) = (outside("example.net"), outside("notexample.com"));
    let whole = [
        soa(9),
        one.clone(),
        address(1),
        other.clone(),
        address(2),
        soa(9),
    ];
    let change = [
        soa(9),
        one.clone(),
        soa(1),
        address(1),
        one.clone(),
        soa(9),
        other.clone(),
        address(2),
        soa(9),
    ];
    let changed = vec![
        Item::From(soa(1)),
        Item::Removed(address(1)),
        Item::To(soa(9)),
        Item::Added(address(2)),
    ];
    let zone = || [soa(9), address(1), address(2)].map(Item::Whole).to_vec();
    let came = |mut incoming: Incoming, records: &[Record], kind: u16| {
        let mut items = Vec::new();
        let message = message_of(records, kind);
        let progress = incoming.message(&message, |item| items.push(item));
        let left_out = incoming.left_out();
        let left_out = left_out.map(|(owner, count)| (owner.to_string(), count));
        (progress.unwrap(), items, left_out)
    };
    let left_out = |count: u64| Some(("example.net.".to_owned(), count));
    assert_eq!(
        came(incoming_axfr(), &whole, qtype::AXFR),
        (Progress::Done(Outcome::Whole), zone(), left_out(2))
    );
    assert_eq!(
        came(incoming_ixfr(1), &whole, qtype::IXFR),
        (Progress::Done(Outcome::Whole), zone(), left_out(2))
    );
    assert_eq!(
        came(incoming_ixfr(1), &change, qtype::IXFR),
        (Progress::Done(Outcome::Changes), changed, left_out(3))
    );
    let inside = [soa(9), address(1), address(2), soa(9)];
    assert_eq!(
        came(incoming_axfr(), &inside, qtype::AXFR),
        (Progress::Done(Outcome::Whole), zone(), None)
    );
}

#[test]
fn f34_changes_that_do_not_hold_together() {
    for records in [
        &[soa(9), soa(2), address(1), soa(9), soa(9)][..],
        &[soa(9), soa(1), soa(2), soa(3), soa(9), soa(9)],
        &[soa(9), soa(1), soa(9), address(1), soa(8)],
        &[soa(9), soa(1), soa(9), soa(9), address(1)],
    ] {
        let (progress, _) = received(incoming_ixfr(1), &[message_of(records, qtype::IXFR)]);
        let error = progress.expect_err("changes that do not follow each other");
        assert!(error.asks_for_axfr(), "{error}");
    }
}

/// In a journal they would be the end: nothing that came behind would be read again.
#[test]
fn f34_changes_that_lead_to_no_greater_serial() {
    for records in [
        &[soa(3), soa(5), address(1), soa(3), soa(3)][..],
        &[soa(9), soa(5), soa(4), soa(4), soa(9), soa(9)],
        &[soa(9), soa(5), soa(5), soa(5), soa(9), soa(9)],
        // All the way round: each step is less than half of it.
        &[
            soa(4),
            soa(5),
            soa(0x7000_0005),
            soa(0x7000_0005),
            soa(0xe000_0004),
            soa(0xe000_0004),
            soa(4),
            soa(4),
        ],
    ] {
        let (progress, _) = received(incoming_ixfr(5), &[message_of(records, qtype::IXFR)]);
        let error = progress.expect_err("changes that lead back");
        assert!(error.asks_for_axfr(), "{error}");
    }
}

#[test]
fn f34_messages_that_answer_something_else() {
    let whole = || message_of(&[soa(9), address(1), soa(9)], qtype::AXFR);
    let with_header = |change: &dyn Fn(&mut Header)| {
        let mut message = whole();
        let mut header = Header::read(&message).unwrap();
        change(&mut header);
        header.write(&mut message).unwrap();
        message
    };
    for message in [
        with_header(&|header| header.set_id(8)),
        with_header(&|header| header.set_qr(false)),
        with_header(&|header| header.set_tc(true)),
        with_header(&|header| header.set_opcode(4)),
        with_header(&|header| header.set_answer_count(0)),
        with_header(&|header| header.set_answer_count(4)),
        with_header(&|header| header.set_question_count(2)),
        message_of(&[soa(9), address(1), soa(9)], qtype::IXFR),
    ] {
        assert!(received(incoming_axfr(), &[message]).0.is_err());
    }
    let refused = received(
        incoming_axfr(),
        &[with_header(&|header| header.set_rcode(5))],
    )
    .0;
    assert_eq!(refused, Err(TransferError::Refused(5)));
    assert!(
        refused.is_err_and(|error| error.asks_for_axfr() && error.to_string().contains("REFUSED"))
    );
}

/// A server without the zone needs no acl.
#[test]
fn what_a_primary_answers_is_said_with_what_would_help() {
    for (code, said) in [
        (5, "REFUSED: it must serve the zone, and allow"),
        (2, "SERVFAIL: it has not loaded the zone"),
        (4, "NOTIMP"),
    ] {
        let error = TransferError::Refused(code).to_string();
        assert!(error.contains(&format!("answers {said}")), "{error}");
        assert_eq!(error.contains("allow"), code == 5, "{error}");
    }
}

#[test]
fn f34_endless_and_too_large_transfers_end() {
    let bounds = Bounds {
        records: 100,
        octets: 10_000,
    };
    let others: Vec<Record> = (0..1_000).map(address).collect();
    let sent = messages(axfr(&soa(9), others.iter()), qtype::AXFR, 512);
    let incoming = Incoming::axfr(zone().as_name(), 7, bounds);
    let (progress, items) = received(incoming, &sent);
    assert_eq!(progress, Err(TransferError::TooMuch("records", 100)));
    assert!(items.len() <= 100);
    let bounds = Bounds {
        records: 1_000_000,
        ..bounds
    };
    let incoming = Incoming::axfr(zone().as_name(), 7, bounds);
    assert_eq!(
        received(incoming, &sent).0,
        Err(TransferError::TooMuch("octets", 10_000))
    );
}

/// Records below one long owner are some sixteen octets each on the wire, and twenty times that in memory.
#[test]
fn f34_changes_that_grow_when_they_are_expanded_end() {
    let label = "a".repeat(63);
    let owner = format!("{label}.{label}.{label}.example.com");
    let ones = |count: u32| {
        let all = (0..count).map(|one| {
            record(
                &owner,
                qtype::A,
                &format!("192.0.{}.{}", one / 256, one % 256),
            )
        });
        let added = all.collect();
        let change = Change {
            added,
            removed: Vec::new(),
            ..change(1, 9)
        };
        messages(ixfr(&soa(9), &[change]), qtype::IXFR, 65_535)
    };
    let octets = 100_000;
    let bounds = Bounds {
        records: 1_000_000,
        octets,
    };
    for (count, is_held) in [(300, true), (3_000, false)] {
        let sent = ones(count);
        let on_the_wire: usize = sent.iter().map(Vec::len).sum();
        assert!((on_the_wire as u64) < octets, "{on_the_wire}");
        let incoming = Incoming::ixfr(zone().as_name(), 7, 1, bounds);
        let (progress, _) = received(incoming, &sent);
        let expected = match is_held {
            true => Ok(Progress::Done(Outcome::Changes)),
            false => Err(TransferError::TooMuch(
                "octets of changes in memory",
                octets,
            )),
        };
        assert_eq!(progress, expected);
    }
    assert!(TransferError::TooMuch("", 0).asks_for_axfr());
}

// -------------------------------------------------------------------------------------------- queries

#[test]
fn queries_state_what_is_held() {
    let zone = zone();
    let message = query::ixfr(3, zone.as_name(), soa(77).as_ref());
    let parts = parse_query(&message).unwrap();
    assert_eq!(
        (parts.qtype, query::stated_serial(&message, &parts)),
        (qtype::IXFR, Some(77))
    );
    let message = query::notify(3, zone.as_name(), Some(soa(78).as_ref()));
    let parts = parse_query(&message).unwrap();
    assert_eq!(query::stated_serial(&message, &parts), Some(78));
    let message = query::notify(3, zone.as_name(), None);
    let parts = parse_query(&message).unwrap();
    assert_eq!(
        (parts.qtype, query::stated_serial(&message, &parts)),
        (qtype::SOA, None)
    );
    let mut other = soa(5);
    other.owner = b"\x03net\x00"[..].into();
    let message = query::ixfr(3, zone.as_name(), other.as_ref());
    let parts = parse_query(&message).unwrap();
    assert_eq!(query::stated_serial(&message, &parts), None);
    assert!(parse_query(&query::soa(3, zone.as_name())).is_ok());
    assert!(parse_query(&query::axfr(3, zone.as_name())).is_ok());
}

/// RFC 7314.
#[test]
fn queries_ask_how_long_the_zone_may_be_gone_on_with() {
    let zone = zone();
    let mut message = query::ixfr(3, zone.as_name(), soa(77).as_ref());
    query::ask_expiry(&mut message);
    let parts = parse_query(&message).unwrap();
    assert_eq!(usize::from(parts.end), message.len());
    assert_eq!(query::stated_serial(&message, &parts), Some(77));
    let options = parts.edns.unwrap().options(&message);
    let options: Vec<_> = options
        .map(|option| (option.code, option.value.len()))
        .collect();
    assert_eq!(options, [(wire::codes::edns_option::EXPIRE, 0)]);
    // The same as an answer, first with nothing said.
    message[2] |= 0x80;
    assert_eq!(query::stated_expiry(&message), None);
    let end = message.len();
    (message[end - 5], message[end - 1]) = (8, 4);
    message.extend(600_u32.to_be_bytes());
    assert_eq!(query::stated_expiry(&message), Some(600));
}

// ------------------------------------------------------------------------------------------- journals

fn journal_of(changes: &[Change]) -> Vec<u8> {
    let (mut octets, mut checksum) = journal::header(zone().as_name());
    for change in changes {
        let (entry, next) = journal::entry(change, checksum).unwrap();
        octets.extend(entry);
        checksum = next;
    }
    octets
}

#[test]
fn a_journal_there_and_back() {
    let changes = [change(1, 2), change(2, 5), change(5, 9)];
    let octets = journal_of(&changes);
    let journal = journal::read(&octets, zone().as_name()).unwrap();
    assert_eq!(
        (&journal.changes[..], journal.length, journal.damage),
        (&changes[..], octets.len(), None)
    );
    assert_eq!(journal.lost, None);
    assert_eq!(journal.since(2), Some(&changes[1..]));
    assert_eq!((journal.since(9), journal.since(3)), (None, None));
    let other: NameBuf = "example.net".parse().unwrap();
    assert_eq!(
        journal::read(&octets, other.as_name()).unwrap_err(),
        JournalError::OtherZone(zone())
    );
    assert_eq!(
        journal::read(b"", zone().as_name()).unwrap_err(),
        JournalError::NotOne
    );
}

#[test]
fn f37_a_journal_cut_anywhere_keeps_its_whole_entries() {
    let changes = [change(1, 2), change(2, 5), change(5, 9)];
    let octets = journal_of(&changes);
    let ends: Vec<usize> = (0..=3)
        .map(|count| journal_of(&changes[..count]).len())
        .collect();
    for length in 0..octets.len() {
        let Ok(journal) = journal::read(&octets[..length], zone().as_name()) else {
            assert!(length < ends[0]);
            continue;
        };
        let whole = ends.iter().rposition(|end| *end <= length).unwrap();
        assert_eq!(
            (journal.changes.len(), journal.length),
            (whole, ends[whole])
        );
        assert_eq!(journal.damage.is_some(), length != ends[whole]);
        // What is appended behind the whole entries is read.
        let mut mended = octets[..journal.length].to_vec();
        let next = changes.get(whole).unwrap();
        mended.extend(journal::entry(next, journal.checksum).unwrap().0);
        assert_eq!(
            journal::read(&mended, zone().as_name()).unwrap().changes,
            changes[..=whole]
        );
    }
}

#[test]
fn f37_a_journal_changed_anywhere_ends_there() {
    let changes = [change(1, 2), change(2, 5)];
    let octets = journal_of(&changes);
    for at in 0..octets.len() {
        let mut changed = octets.clone();
        changed[at] ^= 0x10;
        if let Ok(journal) = journal::read(&changed, zone().as_name()) {
            assert!(journal.damage.is_some(), "octet {at}");
            assert_eq!(journal.changes, changes[..journal.changes.len()]);
        }
    }
    // The newest serial that stands behind the damage is told.
    let changes = [change(1, 2), change(2, 5), change(5, 9)];
    let mut octets = journal_of(&changes);
    let second = journal_of(&changes[..1]).len();
    octets[second + 30] ^= 0x10;
    let journal = journal::read(&octets, zone().as_name()).unwrap();
    assert_eq!((journal.newest(), journal.lost), (Some(2), Some(9)));
    // An entry of another file, whole as it is.
    let (mut octets, checksum) = journal::header(zone().as_name());
    octets.extend(journal::entry(&changes[0], checksum).unwrap().0);
    octets.extend(journal::entry(&changes[1], checksum).unwrap().0);
    let journal = journal::read(&octets, zone().as_name()).unwrap();
    assert_eq!((journal.changes.len(), journal.damage.is_some()), (1, true));
}

proptest! {
    #[test]
    fn any_messages_are_no_trouble(body in prop::collection::vec(any::<u8>(), 0..300), counts in any::<[u8; 3]>()) {
        let mut header = Header::default();
        header.set_id(7);
        header.set_qr(true);
        header.set_answer_count(counts[0].into());
        header.set_authority_count(u16::from(counts[1] & 1));
        let message = [header.as_bytes(), &body[..]].concat();
        for incoming in [incoming_axfr(), incoming_ixfr(1)] {
            let _ = received(incoming, &[message.clone(), message.clone()]);
        }
        let _ = journal::read(&[&journal_of(&[]), &body[..]].concat(), zone().as_name());
    }
}
