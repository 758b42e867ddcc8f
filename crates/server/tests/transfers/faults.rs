//! F34: what a primary that lies, is cut off or never ends sends leaves the old zone serving; then AXFR is tried, and the
//! next good transfer is taken.

use crate::daemon::{Millrace, answer, asked};
use crate::primary::{Datagrams, Deed, Primary, Script, Sign, Then, records, soa};
use testnet::loopback::own_port;
use wire::codes::{class, qtype, rcode};
use wire::message::{Header, QueryFlags, write_query};
use wire::name::NameBuf;
use zone::record::Record;

/// Octets that the primary may send, and seconds that it may take: a debug build on a busy machine has all of 50,000 in less.
const MOST: usize = 50_000;
const SECONDS: u32 = 5;

/// A zone of this serial, without the SOA record at its end.
pub(crate) fn zone(serial: u32) -> Vec<Record> {
    let rest = format!("$TTL 300\n@ NS ns\nns A 127.0.0.1\nserial-{serial} TXT x\n");
    [vec![soa(serial)], records(&rest)].concat()
}

pub(crate) fn whole(serial: u32) -> Deed {
    let zone = [zone(serial), vec![soa(serial)]].concat();
    let (front, back) = zone.split_at(2);
    Deed::Send(vec![front.to_vec(), back.to_vec()], Then::Nothing)
}

/// The answer to an IXFR query, in one message.
fn changes(parts: &[&[Record]]) -> Vec<Vec<Record>> {
    vec![parts.concat()]
}

pub(crate) fn good(serial: u32) -> Script {
    Script {
        serial,
        datagrams: Datagrams::Whole,
        ixfr: Deed::Code(rcode::NOTIMP),
        axfr: whole(serial),
        sign: Sign::Right,
        knows_edns: true,
        expire: None,
    }
}

/// A record that only the zone of this serial has.
pub(crate) fn mark(serial: u32) -> Vec<Record> {
    records(&format!("serial-{serial} 300 TXT x\n"))
}

/// A record that is out of the zone.
fn foreign() -> Vec<Record> {
    let owner: NameBuf = "www.example.net.".parse().unwrap();
    let owner = owner.as_name().as_bytes().into();
    let inside = mark(7).swap_remove(0);
    vec![Record { owner, ..inside }]
}

/// What a liar answers an IXFR query with where serial `held` is held, and what is said of it.
fn incremental_lies(held: u32) -> Vec<(Deed, &'static str)> {
    let next = held + 1;
    let (old, new) = (soa(held), soa(next));
    let (old, new) = (std::slice::from_ref(&old), std::slice::from_ref(&new));
    let (gone, come) = (mark(held), mark(next));
    let right = changes(&[new, old, &gone, new, &come, new]);
    let server = records("@ 300 NS ns\n");
    let sent = |messages| Deed::Send(messages, Then::Nothing);
    vec![
        (Deed::Send(right.clone(), Then::Cut), "the transfer was cut"),
        (
            Deed::Send(right.clone(), Then::CutBehind),
            "records behind the answer section are cut",
        ),
        (
            Deed::Send(changes(&[new, old, &gone]), Then::Close),
            "the transfer was cut",
        ),
        (
            sent(changes(&[new, &[soa(held - 1)], &gone, new, &come, new])),
            "is held",
        ),
        (
            sent(changes(&[new, old, &gone, &[soa(next + 1)], &come, new])),
            "each must begin where the last ended",
        ),
        (
            sent(changes(&[new, old, &mark(1), new, &come, new])),
            "the zone has no such record",
        ),
        (
            sent(changes(&[new, old, &server, new, &come, new])),
            "what came is no zone",
        ),
        (
            sent(changes(&[&come, new])),
            "first record is not the zone's SOA",
        ),
        (
            sent(changes(&[new, old, &gone, new, &come, new, &come])),
            "records behind the end of the zone",
        ),
        (
            Deed::Send(vec![[new, old, &gone, new].concat(), come], Then::Endless),
            "more than 50000 octets",
        ),
    ]
}

/// The same for AXFR.
fn whole_lies(held: u32) -> Vec<(Deed, &'static str)> {
    let next = held + 1;
    let sent = |records: Vec<Record>| Deed::Send(vec![records], Then::Nothing);
    let many: Vec<Record> = (0..MOST / 20)
        .flat_map(|number| records(&format!("h{number} 300 A 10.0.0.7\n")))
        .collect();
    let many = many.chunks(1_000).map(<[Record]>::to_vec);
    let large: Vec<Vec<Record>> = [zone(next)].into_iter().chain(many).collect();
    let without_server = [vec![soa(next)], mark(next), vec![soa(next)]].concat();
    vec![
        (
            Deed::Send(vec![zone(next)], Then::Cut),
            "the transfer was cut",
        ),
        (
            Deed::Send(vec![zone(next)], Then::Close),
            "the transfer was cut",
        ),
        (
            Deed::Send(
                vec![[zone(next), vec![soa(next)]].concat()],
                Then::CutBehind,
            ),
            "records behind the answer section are cut",
        ),
        (
            sent([zone(next), vec![soa(next + 1)]].concat()),
            "within or behind a zone of serial",
        ),
        (sent(without_server), "what came is no zone"),
        (sent(Vec::new()), "message without records"),
        (
            Deed::Send(vec![zone(next), mark(next)], Then::Endless),
            "more than 50000 octets",
        ),
        (Deed::Send(large, Then::Nothing), "more than 50000 octets"),
        // It promises what it does not send.
        (whole(held), "is not newer than"),
        (whole(held - 1), "is not newer than"),
        // It says nothing more, and keeps the connection.
        (
            Deed::Send(vec![zone(next)], Then::Nothing),
            "the transfer took more than 5 s",
        ),
    ]
}

/// Whether the server on this port has the record that only the zone of this serial has.
pub(crate) fn has_mark(port: u16, serial: u32) -> bool {
    let name: NameBuf = format!("serial-{serial}.example.com.").parse().unwrap();
    let mut query = vec![0; 300];
    let question = (name.as_name(), qtype::TXT, class::IN);
    let length = write_query(&mut query, 1, question, QueryFlags::default()).unwrap();
    query.truncate(length);
    answer(port, &query).is_some_and(|answer| Header::read(&answer).unwrap().answer_count() == 1)
}

fn assert_serves(ours: &Millrace, serial: u32, after: &str) {
    assert_eq!(asked(ours.port), Some(serial), "{after}:\n{}", ours.log());
    assert!(has_mark(ours.port, serial), "{after}");
    assert!(!has_mark(ours.port, serial + 1), "{after}");
}

/// A secondary that has serial 5 of the primary.
fn secondary(primary: &Primary) -> Millrace {
    let zone = format!(
        "primaries={{'127.0.0.1:{}'}}, maxSize={MOST}, transferTimeout={SECONDS}",
        primary.port
    );
    let ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    ours
}

/// RFC 1035 §3.3.13: "the upper limit on the time interval that can elapse before the zone is no longer authoritative".
#[test]
fn a_zone_expires_while_its_primary_lets_us_wait() {
    let primary = Primary::start(good(5));
    let options = format!(
        "primaries='127.0.0.1:{}', refreshMin=1, refreshMax=1, expireMax=4",
        primary.port
    );
    let ours = Millrace::start(own_port(), &options);
    ours.until_serial(5);
    // It begins, says nothing more, and keeps the connection: for twenty seconds.
    let axfr = Deed::Send(vec![zone(6)], Then::Nothing);
    primary.follow(Script { axfr, ..good(6) });
    ours.until_said("zone example.com. has expired");
    assert!(!ours.log().contains("was not refreshed"), "{}", ours.log());
}

#[test]
fn changes_that_are_cut_or_lie_leave_the_old_zone_and_axfr_is_asked_for() {
    let primary = Primary::start(good(5));
    let ours = secondary(&primary);
    for number in 0..incremental_lies(5).len() {
        let held = 5 + number as u32;
        let (ixfr, reason) = incremental_lies(held).swap_remove(number);
        let lying = Script {
            ixfr,
            axfr: Deed::Code(rcode::REFUSED),
            ..good(held + 1)
        };
        primary.asked();
        primary.follow(lying.clone());
        let said = ours.command(&["zone", "reload"]);
        assert!(
            said.contains("not refreshed") && said.contains(reason),
            "{said}"
        );
        assert_eq!(primary.asked(), [qtype::IXFR, qtype::AXFR], "{said}");
        assert_serves(&ours, held, reason);
        let axfr = whole(held + 1);
        primary.follow(Script { axfr, ..lying });
        let said = ours.command(&["zone", "reload"]);
        assert!(said.contains("came by AXFR"), "{said}");
        assert_serves(&ours, held + 1, reason);
    }
}

#[test]
fn zones_that_are_cut_lie_or_never_end_leave_the_old_one_and_are_asked_for_ever_more_rarely() {
    let primary = Primary::start(good(5));
    let ours = secondary(&primary);
    for (axfr, reason) in whole_lies(5) {
        primary.follow(Script { axfr, ..good(6) });
        let said = ours.command(&["zone", "reload"]);
        assert!(
            said.contains("not refreshed") && said.contains(reason),
            "{said}"
        );
        assert_serves(&ours, 5, reason);
    }
    // RETRY of the SOA record is 60 s, doubled with each failure, up to REFRESH, 3,600 s.
    let status = ours.command(&["zone", "status"]);
    let pause = status.split("asks in ").nth(1).unwrap();
    let pause: u32 = pause.split(' ').next().unwrap().parse().unwrap();
    // The one before was 1,920 s.
    assert!((3_000..=3_600).contains(&pause), "{status}");
    primary.follow(good(6));
    let said = ours.command(&["zone", "reload"]);
    assert!(said.contains("serial 6 came by AXFR"), "{said}");
    assert_serves(&ours, 6, "a good transfer");
    // A record of another zone keeps nobody from the changes.
    let come = [mark(7), foreign()].concat();
    let changes = changes(&[&[soa(7), soa(6)], &mark(6), &[soa(7)], &come, &[soa(7)]]);
    let ixfr = Deed::Send(changes, Then::Nothing);
    primary.follow(Script { ixfr, ..good(7) });
    let said = ours.command(&["zone", "reload"]);
    assert!(said.contains("serial 7 came by IXFR"), "{said}");
    assert_serves(&ours, 7, "good changes");
    ours.until_said("1 record that 127.0.0.1:");
    ours.until_said("is out of zone, and left out, at www.example.net.");
}
