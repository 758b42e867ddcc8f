//! Transfers, signatures and journals of any octets (F34, F37): nothing panics, bounds hold, no forgery is believed, and
//! what came in whole goes out and comes in again as the same.

#![no_main]

use fuzz::input::Input;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use wire::message::Header;
use wire::name::{Name, NameBuf};
use zone::record::Record;
use zone::transfer::incoming::{Bounds, Incoming, Item, Outcome, Progress};
use zone::transfer::outgoing::{Messages, axfr};
use zone::transfer::{journal, query, serial};
use zone::tsig::{Algorithm, Key, sign_request, verify_request};

const BOUNDS: Bounds = Bounds {
    records: 1_000,
    octets: 100_000,
};
const ID: u16 = 7;
/// A time at which all is signed, in seconds since 1970.
const NOW: u64 = 1_800_000_000;

fuzz_target!(|octets: &[u8]| {
    let zone: NameBuf = "a".parse().expect("a name");
    signatures(octets, &zone);
    changed_signatures(octets, &zone);
    let _ = journal::read(octets, zone.as_name());
    let (mut entries, _) = journal::header(zone.as_name());
    entries.extend_from_slice(octets);
    let read = journal::read(&entries, zone.as_name()).expect("its header is right");
    assert!(read.length <= entries.len());
    assert_eq!(read.damage.is_none(), read.length == entries.len());
    for held in [None, Some(1)] {
        transfer(octets, &zone, held);
    }
});

fn transfer(octets: &[u8], zone: &NameBuf, held: Option<u32>) {
    let mut input = Input::new(octets);
    let mut incoming = match held {
        Some(held) => Incoming::ixfr(zone.as_name(), ID, held, BOUNDS),
        None => Incoming::axfr(zone.as_name(), ID, BOUNDS),
    };
    let mut items = Vec::new();
    for _ in 0..20 {
        let message = message(&mut input, zone, held.is_some());
        match incoming.message(&message, |item| items.push(item)) {
            Ok(Progress::More) => {}
            Ok(Progress::Done(Outcome::Whole)) => return out_and_in(zone, items),
            Ok(Progress::Done(_)) | Err(_) => break,
        }
    }
    assert!(items.len() as u64 <= BOUNDS.records);
}

/// A message whose header is near enough.
fn message(input: &mut Input<'_>, zone: &NameBuf, changes: bool) -> Vec<u8> {
    let mut message = if changes {
        query::ixfr(ID, zone.as_name(), soa(1).as_ref())
    } else {
        query::axfr(ID, zone.as_name())
    };
    message.truncate(12 + 3 + 4);
    let count = input.octet().unwrap_or_default();
    let length = usize::from(input.octet().unwrap_or_default());
    message.extend_from_slice(input.octets(length));
    let mut header = Header::read(&message).expect("one was written");
    header.set_qr(true);
    header.set_authority_count(0);
    header.set_answer_count((count % 16).into());
    header.write(&mut message).expect("one was there");
    message
}

fn soa(serial: u32) -> Record {
    let [a, b, c, d] = serial.to_be_bytes();
    Record {
        owner: b"\x01a\x00"[..].into(),
        kind: 6,
        class: 1,
        ttl: 5,
        rdata: [&[0, 0, a, b, c, d][..], &[0; 16]].concat().into(),
    }
}

fn out_and_in(zone: &NameBuf, items: Vec<Item>) {
    let records: Vec<Record> = items
        .into_iter()
        .map(|item| match item {
            Item::Whole(record) => record,
            other => panic!("{other:?} in a whole zone"),
        })
        .collect();
    let (first, others) = records.split_first().expect("the SOA comes first");
    assert!(serial::of_soa(&first.rdata).is_some());
    let query = query::axfr(ID, zone.as_name());
    let mut messages = Messages::new(axfr(first, others.iter()), &query, 600, 0);
    let mut incoming = Incoming::axfr(zone.as_name(), ID, Bounds::default());
    let (mut message, mut again) = (Vec::new(), Vec::new());
    let mut progress = Progress::More;
    while messages
        .next_message(&mut message)
        .expect("records that fit")
    {
        let taken = incoming.message(&message, |item| again.push(item));
        progress = taken.expect("what we send");
    }
    assert_eq!(progress, Progress::Done(Outcome::Whole));
    let whole = records.iter().cloned().map(Item::Whole);
    assert!(again.into_iter().eq(whole), "another zone than was sent");
}

fn signatures(octets: &[u8], name: &NameBuf) {
    let key = Arc::new(Key::new(name.as_name(), Algorithm::Sha256, b"secret"));
    let is_signed = verify_request(octets, |_| Some(key.clone()), NOW);
    assert!(!matches!(is_signed, Ok(Some(_))), "a forgery");
    let mut request = query::axfr(ID, name.as_name());
    let mut client = sign_request(&mut request, &key, NOW);
    assert!(client.verify(octets, NOW).is_err(), "a forgery");
}

/// A request that was signed, and changed at places that the input names: it is believed where but its ID or the case of names
/// in its signature is another (RFC 8945 §4.3.2, §4.3.3).
fn changed_signatures(octets: &[u8], name: &NameBuf) {
    let key = Arc::new(Key::new(name.as_name(), Algorithm::Sha256, b"secret"));
    let mut signed = query::axfr(ID, name.as_name());
    let start = signed.len();
    let _ = sign_request(&mut signed, &key, NOW);
    let mut changed = signed.clone();
    for [place, flipped] in octets.as_chunks::<2>().0 {
        let at = usize::from(*place) % changed.len();
        changed[at] ^= flipped;
    }
    // The ID left out, and names in lower case: that of the key 3, type, class, TTL and length 10, that of the algorithm.
    let meant = |message: &[u8]| {
        let mut message = message.to_vec();
        let names_end = start + 13 + Algorithm::Sha256.wire_name().len();
        message[..2].fill(0);
        message[start..start + 3].make_ascii_lowercase();
        message[start + 13..names_end].make_ascii_lowercase();
        message
    };
    let key_of = |asked: Name<'_>| (asked == key.name()).then(|| key.clone());
    let is_believed = matches!(verify_request(&changed, key_of, NOW), Ok(Some(_)));
    assert_eq!(
        is_believed,
        meant(&changed) == meant(&signed),
        "{changed:?}"
    );
}
