//! Crate `zone` on zones and questions of any kind: no answer is larger than allowed, `domain` reads every one, and where a
//! signed zone says no it says why.

#![no_main]

use domain::base::{Message, name::ToName};
use fuzz::input::Input;
use libfuzzer_sys::fuzz_target;
use sign::{Chain, sign};
use wire::message::{HEADER_LENGTH, QueryFlags, parse_query, write_query};
use wire::name::Name;
use zone::answer::{Answered, Outcome, Zones, answer};
use zone::record::Record;
use zone::zone::Zone;

#[path = "../../crates/zone/tests/answers/sign.rs"]
mod sign;

const APEX: &[u8] = b"\x01z\x00";
const LABELS: [&[u8]; 6] = [b"a", b"b", b"*", b"ns", b"A\x00", &[b'l'; 63]];
/// A, NS, CNAME, SOA, MX, TXT, AAAA, SRV, DNAME, DS, SVCB, and what only questions have.
const KINDS: [u16; 15] = [1, 2, 5, 6, 15, 16, 28, 33, 39, 43, 64, 46, 47, 255, 99];
const NSEC: u16 = 47;
const NSEC3: u16 = 50;

fuzz_target!(|octets: &[u8]| {
    let mut input = Input::new(octets);
    let Some(zones) = zones(&mut input) else {
        return;
    };
    while let Some(question) = question(&mut input) {
        ask(&zones, question);
    }
});

// ---------------------------------------------------------------------------------------------- zones

fn zones(input: &mut Input<'_>) -> Option<Zones> {
    let chain = match input.octet()? % 4 {
        0 => Chain::Unsigned,
        1 => Chain::Nsec,
        flags => Chain::Nsec3 {
            opt_out: flags == 3,
            iterations: 1,
            salt: vec![7],
        },
    };
    let numbers = [0, 0, 0, 60].repeat(5);
    let mut records = vec![
        record(APEX, 6, [APEX, APEX, &numbers].concat()),
        record(APEX, 2, b"\x02ns\x01z\x00".to_vec()),
    ];
    for _ in 0..input.octet()? % 32 {
        let owner = name(input)?;
        let kind = KINDS[usize::from(input.octet()?) % 11];
        records.push(record(&owner, kind, data(kind, input)?));
    }
    let apex = Name::parse(APEX).expect("a name");
    let records = sign(APEX, records, &chain);
    let (zone, _) = Zone::build(apex, records.iter().cloned()).ok()?;
    assert_eq!(zone.records().count() as u64, zone.records_count());
    Some(Zones::new([(apex.to_owned(), Some(zone.into()))]))
}

fn record(owner: &[u8], kind: u16, data: Vec<u8>) -> Record {
    Record {
        owner: owner.to_ascii_lowercase().into(),
        kind,
        class: 1,
        ttl: 300,
        rdata: data.into(),
    }
}

/// A name of the zone.
fn name(input: &mut Input<'_>) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    for _ in 0..input.octet()? % 4 {
        let label = LABELS[usize::from(input.octet()?) % LABELS.len()];
        name.push(label.len() as u8);
        name.extend(label);
    }
    name.extend(APEX);
    Some(name)
}

/// What a record of this type may have; sometimes any octets.
fn data(kind: u16, input: &mut Input<'_>) -> Option<Vec<u8>> {
    let before: &[u8] = match kind {
        2 | 5 | 39 => &[],
        15 | 64 => &[0, 1],
        33 => &[0; 6],
        _ => return Some(input.octets(16).to_vec()),
    };
    let target = match input.octet()? {
        0 => input.octets(40).to_vec(),
        1 => b"\x03out\x04side\x00".to_vec(),
        2 => vec![0],
        _ => name(input)?,
    };
    Some([before, &target].concat())
}

// ------------------------------------------------------------------------------------------ questions

struct Question {
    name: Vec<u8>,
    kind: u16,
    signed: bool,
    limit: usize,
}

fn question(input: &mut Input<'_>) -> Option<Question> {
    let flags = input.octet()?;
    Some(Question {
        name: name(input)?,
        kind: KINDS[usize::from(input.octet()?) % KINDS.len()],
        signed: flags & 1 == 1,
        limit: match flags >> 1 {
            0..64 => 65_535,
            less => 300 + 20 * usize::from(less - 64),
        },
    })
}

fn ask(zones: &Zones, question: Question) {
    let mut message = vec![0; 65_535];
    let flags = QueryFlags {
        payload_size: Some(1_232),
        dnssec_ok: question.signed,
        ..QueryFlags::default()
    };
    let Ok(name) = Name::parse(&question.name) else {
        return;
    };
    let length = write_query(&mut message, 7, (name, question.kind, 1), flags).expect("room");
    let parts = parse_query(&message[..length]).expect("a query of our own");
    let asked = parts.question(&message).to_vec();
    match answer(zones, &mut message, &parts, question.limit) {
        Outcome::Answered(answered) => {
            assert!(answered.length <= question.limit.max(parts.question_end.into()));
            message.truncate(answered.length);
            assert_eq!(message[HEADER_LENGTH..][..asked.len()], asked);
            judge(zones, &question, &answered, &message);
        }
        other => panic!("{name} is below the apex: {other:?}"),
    }
}

fn judge(zones: &Zones, question: &Question, answered: &Answered, octets: &[u8]) {
    let message = Message::from_octets(octets).expect("a header");
    assert!(message.header().qr() && message.header().tc() == answered.truncated);
    let (_, answers, authority, additional) =
        message.sections().expect("domain reads the sections");
    let mut proofs = 0;
    for section in [answers, authority, additional] {
        for record in section {
            let record = record.expect("domain reads the record");
            let _ = record.owner().to_name::<Vec<u8>>();
            proofs += usize::from([NSEC, NSEC3].contains(&record.rtype().to_int()));
        }
    }
    let signed = zones.zone(0).expect("it is loaded").is_signed();
    let negative = answered.no_data || answered.rcode == 3;
    if signed && question.signed && negative && !answered.truncated {
        // A chain of aliases may end outside.
        assert!(proofs > 0, "a signed zone says no without a proof");
    }
}
