//! Signatures that RFCs show, and a zone that is signed here, then broken in one place.

use super::*;
use crate::file::{Opener, Reader, Settings};
use crate::record::Record;
use crate::zone::Oddity;
use crate::zone::check::key_of;
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::io::ErrorKind;
use wire::name::NameBuf;

/// Within the time of the signatures made here.
const NOW: u32 = 1_900_000_000;
const APEX: &[u8] = b"\x07example\x03com\x00";
const CHILD: &[u8] = b"\x03sub\x07example\x03com\x00";

/// Capital letters, a wildcard, a delegation, an empty non-terminal.
const ZONE: &str = "@ 60 SOA NS.Example.NET. host 1 2 3 4 5\n@ 60 NS NS.example.net.\n\
    @ 60 MX 10 Zulu\n@ 60 MX 10 alfa\n@ 60 MX 9 mike\n@ 60 NSEC sub NS SOA MX RRSIG NSEC DNSKEY\n\
    sub 60 NS ns.sub\nns.sub 60 A 192.0.2.3\nsub 60 NSEC *.wild NS RRSIG NSEC\n\
    *.wild 60 TXT b\n*.wild 60 TXT \"B\" a\n*.wild 60 NSEC wWw TXT RRSIG NSEC\n\
    wWw 60 A 192.0.2.2\nwWw 60 A 192.0.2.1\nwWw 60 NSEC @ A RRSIG NSEC\n";

fn name(text: &str) -> NameBuf {
    text.parse().unwrap()
}

fn records(text: &str, apex: &str) -> Vec<Record> {
    let apex = name(apex);
    let open: Opener<'_> = Box::new(|_| Err(ErrorKind::NotFound.into()));
    let settings = Settings::new(apex.as_name());
    let reader = Reader::new("zone", text.as_bytes(), open, settings);
    reader.map(|record| record.unwrap()).collect()
}

fn zone_of(records: Vec<Record>, apex: &str) -> Zone {
    Zone::build(name(apex).as_name(), records).unwrap().0
}

fn flaws(records: Vec<Record>) -> Vec<Flaw> {
    zone_of(records, "example.com.").flaws(1)
}

/// What is wrong with the chain and the times.
fn oddities(records: Vec<Record>, now: u32) -> Vec<Oddity> {
    let mut oddities = zone_of(records, "example.com.").oddities(now);
    oddities.retain(Oddity::is_of_validation);
    oddities
}

// ------------------------------------------------------------------------------------------- signatures of RFCs

/// What is wrong with the records of this type, in a zone of which nothing else is signed.
fn flaws_about(kind: u16, apex: &str, text: &str) -> Vec<Flaw> {
    let rest = "@ 3600 SOA ns.example.org. host 1 2 3 4 5\n@ 3600 NS ns.example.org.\n";
    let records = records(&format!("{rest}{text}"), apex);
    let mut flaws = zone_of(records, apex).flaws(2);
    flaws.retain(|flaw| match flaw {
        Flaw::Unsigned { .. } => false,
        Flaw::Unsupported { kind: found, .. } | Flaw::Wrong { kind: found, .. } => *found == kind,
        _ => true,
    });
    flaws
}

/// RFC 8080 §6.1 with erratum 4935.
const ED25519: &str = "@ 3600 DNSKEY 257 3 15 l02Woi0iS8Aa25FQkUd9RMzZHJpBoRQwAQEX1SxZJA4=\n\
    @ 3600 MX 10 mail.example.com.\n@ 3600 RRSIG MX 15 2 3600 1440021600 1438207200 3613 example.com. \
    oL9krJun7xfBOIWcGHi7mag5/hdZrKWw15jPGrHpjQeRAvTdszaPD+QLs3fx8A4M3e23mRZ9VrbpMngwcrqNAg==\n";

/// RFC 6605 §6.1.
const P256: &str = "@ 3600 DNSKEY 257 3 13 \
    GojIhhXUN/u4v54ZQqGSnyhWJwaubCvTmeexv7bR6edbkrSqQpF64cYbcB7wNcP+e+MAnLr+Wi9xMWyQLc8NAA==\n\
    www 3600 A 192.0.2.1\nwww 3600 RRSIG A 13 3 3600 20100909100439 20100812100439 55648 example.net. \
    qx6wLYqmh+l9oCKTN6qIc+bw6ya+KJ8oMz0YP107epXAyGmt+3SNruPFKG7tZoLBLlUzGGus7ZwmwWep666VCw==\n";

/// RFC 6605 §6.2.
const P384: &str = "@ 3600 DNSKEY 257 3 14 \
    xKYaNhWdGOfJ+nPrL8/arkwf2EY3MDJ+SErKivBVSum1w/egsXvSADtNJhyem5RCOpgQ6K8X1DRSEkrbYQ+OB+v8\
    /uX45NBwY8rp65F6Glur8I/mlVNgF6W/qTI37m40\n\
    www 3600 A 192.0.2.1\nwww 3600 RRSIG A 14 3 3600 20100909102025 20100812102025 10771 example.net. \
    /L5hDKIvGDyI1fcARX3z65qrmPsVz73QD1Mr5CEqOiLP95hxQouuroGCeZOvzFaxsT8Glr74hbavRKayJNuydCuz\
    WTSSPdz7wnqXL5bdcJzusdnI0RSMROxxwGipWcJm\n";

/// RFC 5702 §6.2.
const RSA_SHA512: &str = "@ 3600 DNSKEY 256 3 10 \
    AwEAAdHoNTOW+et86KuJOWRDp1pndvwb6Y83nSVXXyLA3DLroROUkN6X0O6pnWnjJQujX/AyhqFDxj13tOnD9u/1\
    kTg7cV6rklMrZDtJCQ5PCl/D7QNPsgVsMu1J2Q8gpMpztNFLpPBz1bWXjDtaR7ZQBlZ3PFY12ZTSncorffcGmhOL\n\
    www 3600 A 192.0.2.91\nwww 3600 RRSIG A 10 3 3600 20300101000000 20000101000000 3740 example.net. \
    tsb4wnjRUDnB1BUi+t6TMTXThjVnG+eCkWqjvvjhzQL1d0YRoOe0CbxrVDYd0xDtsuJRaeUw1ep94PzEWzr0iGYg\
    ZBWm/zpq+9fOuagYJRfDqfReKBzMweOLDiNa8iP5g9vMhpuv6OPlvpXwm9Sa9ZXIbNl1MBGk0fthPgxdDLw=\n";

/// RFC 5702 §6.1: a key of 512 bits.
const RSA_SHA256: &str = "@ 3600 DNSKEY 256 3 8 \
    AwEAAcFcGsaxxdgiuuGmCkVImy4h99CqT7jwY3pexPGcnUFtR2Fh36BponcwtkZ4cAgtvd4Qs8PkxUdp6p/DlUmObdk=\n\
    www 3600 A 192.0.2.91\nwww 3600 RRSIG A 8 3 3600 20300101000000 20000101000000 9033 example.net. \
    kRCOH6u7l0QGy9qpC9l1sLncJcOKFLJ7GhiUOibu4teYp5VE9RncriShZNz85mwlMgNEacFYK/lPtPiVYP4bwg==\n";

/// RFC 4035 appendices A and B.6: RSA with SHA-1, and a wildcard.
const RSA_SHA1: &str = "@ 3600 DNSKEY 256 3 5 \
    AQOy1bZVvpPqhg4j7EJoM9rI3ZmyEx2OzDBVrZy/lvI5CQePxXHZS4i8dANH4DX3tbHol61ek8EFMcsGXxKciJFH\
    yhl94C+NwILQdzsUlSFovBZsyl/NX6yEbtw/xN9ZNcrbYvgjjZ/UVPZIySFNsgEYvh0z2542lzMKR4Dh8uZffQ==\n\
    *.w 3600 MX 1 AI\n*.w 3600 RRSIG MX 5 2 3600 20040509183619 20040409183619 38519 example. \
    OMK8rAZlepfzLWW75Dxd63jy2wswESzxDKG2f9AMN1CytCd10cYISAxfAdvXSZ7xujKAtPbctvOQ2ofO7AZJ+d01\
    EeeQTVBPq4/6KCWhqe2XTjnkVLNvvhnc0u28aoSsG0+4InvkkOHknKxw4kX18MMR34i8lC36SR5xBni8vHI=\n";

#[test]
fn signatures_that_rfcs_show_verify_and_others_do_not() {
    let (a, mx) = (qtype::A, qtype::MX);
    let shown = [
        (mx, "example.com.", "10 mail", ED25519),
        (a, "example.net.", "192.0.2.1", P256),
        (a, "example.net.", "192.0.2.1", P384),
        (a, "example.net.", "192.0.2.91", RSA_SHA512),
        (mx, "example.", "1 AI", RSA_SHA1),
    ];
    for (kind, apex, said, text) in shown {
        assert_eq!(flaws_about(kind, apex, text), [], "{text}");
        let other = if kind == a { "192.0.2.7" } else { "3 x" };
        let changed = text.replacen(said, other, 1);
        assert_ne!(changed, text);
        let flaws = flaws_about(kind, apex, &changed);
        let is_wrong = matches!(flaws[..], [Flaw::Wrong { .. }]);
        assert!(is_wrong && flaws[0].is_error(), "{flaws:?}");
    }
}

#[test]
fn a_key_that_is_too_short_is_said_and_no_error() {
    let flaws = flaws_about(qtype::A, "example.net.", RSA_SHA256);
    let expected = Flaw::Unsupported {
        algorithm: 8,
        tag: 9033,
        count: 1,
        owner: name("www.example.net."),
        kind: qtype::A,
    };
    assert!(!expected.is_error());
    assert_eq!(flaws, [expected]);
}

#[test]
fn keys_that_are_cut_short_are_no_panic() {
    for key in [&[0_u8][..], &[], &[0, 1], &[3], &[3, 1, 0, 1], &[0; 300]] {
        for algorithm in 0..=17 {
            let data = [&[1, 1, 3, algorithm][..], key].concat();
            let key = Key::read(&data).unwrap();
            assert_ne!(key.verify(b"message", &[0; 64]), Some(true));
        }
    }
}

// ------------------------------------------------------------------------------------------- a zone signed here

fn pair() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn key() -> Record {
    let pair = pair();
    let key = pair.public_key().as_ref();
    of_apex(qtype::DNSKEY, [&[1, 1, 3, 15][..], key].concat())
}

fn of_apex(kind: u16, data: Vec<u8>) -> Record {
    Record {
        owner: APEX.into(),
        kind,
        class: class::IN,
        ttl: 60,
        rdata: data.into(),
    }
}

fn tag() -> u16 {
    key_of(&key().rdata).unwrap().1
}

/// The RRSIG record of these: RFC 4034 §3.1.8.1, §6.2 and §6.3.
fn signature(rrset: &[Record]) -> Record {
    let (owner, kind) = (rrset[0].owner.to_ascii_lowercase(), rrset[0].kind);
    let labels = names::labels(&owner) - usize::from(owner.starts_with(b"\x01*"));
    let mut data = kind.to_be_bytes().to_vec();
    data.extend([15, labels as u8]);
    for number in [60, NOW + 1_000, NOW - 1_000] {
        data.extend(number.to_be_bytes());
    }
    data.extend(tag().to_be_bytes());
    data.extend(APEX);
    let mut message = data.clone();
    let canonical = |record: &Record| match kind {
        qtype::SOA | qtype::NS | qtype::MX => record.rdata.to_ascii_lowercase(),
        _ => record.rdata.to_vec(),
    };
    let mut all: Vec<Vec<u8>> = rrset.iter().map(canonical).collect();
    all.sort();
    for rdata in all {
        message.extend(&owner);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 60, 0, rdata.len() as u8]);
        message.extend(rdata);
    }
    data.extend_from_slice(pair().sign(&message).as_ref());
    let rdata = data.into();
    Record {
        kind: qtype::RRSIG,
        rdata,
        ..rrset[0].clone()
    }
}

/// The records of this text, the key, and the signatures that belong there.
fn signed_of(text: &str) -> Vec<Record> {
    let mut all = records(text, "example.com.");
    all.push(key());
    let place = |record: &Record| (record.owner.to_ascii_lowercase(), record.kind);
    all.sort_by_key(place);
    let rrsets = all.chunk_by(|one, other| place(one) == place(other));
    let is_signed = |rrset: &&[Record]| {
        let [first, ..] = rrset else { return false };
        !first.owner.ends_with(CHILD) || first.kind == qtype::NSEC
    };
    let signatures: Vec<Record> = rrsets.filter(is_signed).map(signature).collect();
    all.extend(signatures);
    all
}

fn signed() -> Vec<Record> {
    signed_of(ZONE)
}

/// The number of the signature of the records of this type at `www`, or elsewhere.
fn place_of(records: &[Record], kind: u16, label: &[u8]) -> usize {
    let found = records.iter().position(|record| {
        let is_of_kind = record.rdata.starts_with(&kind.to_be_bytes());
        record.kind == qtype::RRSIG && is_of_kind && record.owner.starts_with(label)
    });
    found.unwrap()
}

/// What is wrong when the signature of the address of `www` is changed.
fn flaws_with(change: impl FnOnce(&mut [u8])) -> Vec<Flaw> {
    let mut records = signed();
    let place = place_of(&records, qtype::A, b"\x03wWw");
    change(&mut records[place].rdata);
    flaws(records)
}

fn www() -> NameBuf {
    name("www.example.com.")
}

fn wrong_address() -> Flaw {
    Flaw::Wrong {
        owner: www(),
        kind: qtype::A,
        algorithm: 15,
        tag: tag(),
    }
}

#[test]
fn a_zone_that_is_signed_well_has_no_flaw() {
    for threads in [0, 1, 2, 64] {
        let zone = zone_of(signed(), "example.com.");
        assert_eq!(zone.flaws(threads), []);
    }
    assert_eq!(oddities(signed(), NOW), []);
}

#[test]
fn a_bit_that_is_flipped_is_found() {
    let last = |data: &mut [u8]| *data.last_mut().unwrap() ^= 1;
    assert_eq!(flaws_with(last), [wrong_address()]);
    // Its expiration is signed, too.
    assert_eq!(flaws_with(|data| data[11] ^= 1), [wrong_address()]);
    let mut records = signed();
    let is_address = |record: &&mut Record| record.kind == qtype::A && record.owner[1] == b'w';
    let address = records.iter_mut().find(is_address).unwrap();
    address.rdata[3] = 9;
    assert_eq!(flaws(records), [wrong_address()]);
    let text = wrong_address().to_string();
    let said = "RRSIG of A at www.example.com. by key ";
    assert!(text.starts_with(said), "{text}");
}

#[test]
fn fields_of_signatures_are_about_their_records() {
    let owner = www();
    let kind = qtype::A;
    let expected = Flaw::Labels {
        owner: owner.clone(),
        kind,
        labels: 2,
        right: 3,
    };
    assert_eq!(flaws_with(|data| data[3] = 2), [expected]);
    let expected = Flaw::Signer {
        owner: owner.clone(),
        kind,
        signer: name("exbmple.com."),
        apex: name("example.com."),
    };
    assert_eq!(flaws_with(|data| data[21] += 1), [expected]);
    let expected = Flaw::NotByKey { owner, kind };
    assert_eq!(flaws_with(|data| data[17] ^= 1), [expected]);
    // The signer's name is signed in lower case.
    assert_eq!(flaws_with(|data| data[19..26].make_ascii_uppercase()), []);
}

#[test]
fn another_ttl_is_a_warning() {
    let mut records = signed();
    let addresses = records.iter_mut().filter(|record| record.owner[1] == b'w');
    addresses.for_each(|record| record.ttl = 30);
    let found = flaws(records);
    let expected = [qtype::A, qtype::NSEC].map(|kind| Flaw::Ttl {
        owner: www(),
        kind,
        original: 60,
        ttl: 30,
    });
    assert_eq!(found, expected);
    assert!(!found[0].is_error());
}

#[test]
fn an_algorithm_that_is_not_known_is_said_once() {
    let mut records = signed();
    let is_key = |record: &&mut Record| record.kind == qtype::DNSKEY;
    let key = records.iter_mut().find(is_key).unwrap();
    // Ed448.
    key.rdata[3] = 16;
    let (algorithm, tag) = key_of(&key.rdata).unwrap();
    let mut count = 0;
    let all = records.iter_mut();
    for record in all.filter(|record| record.kind == qtype::RRSIG) {
        record.rdata[2] = 16;
        record.rdata[16..18].copy_from_slice(&tag.to_be_bytes());
        count += 1;
    }
    let expected = Flaw::Unsupported {
        algorithm,
        tag,
        count,
        owner: name("example.com."),
        kind: qtype::NS,
    };
    let zone = zone_of(records, "example.com.");
    assert_eq!(zone.flaws(1), std::slice::from_ref(&expected));
    assert_eq!(zone.flaws(3), [expected]);
}

#[test]
fn a_signature_that_is_missing_or_needless_is_found() {
    let mut records = signed();
    let place = place_of(&records, qtype::A, b"\x03wWw");
    let mut moved = records.remove(place);
    let (owner, kind) = (www(), qtype::A);
    let unsigned = Oddity::Unsigned {
        owner: owner.clone(),
        kind,
    };
    assert_eq!(oddities(records.clone(), NOW), [unsigned]);
    // Without a chain it is a flaw.
    let is_of_chain = |record: &Record| {
        record.kind == qtype::NSEC || record.rdata.starts_with(&qtype::NSEC.to_be_bytes())
    };
    let mut without = records.clone();
    without.retain(|record| !is_of_chain(record));
    assert_eq!(flaws(without), [Flaw::Unsigned { owner, kind }]);
    moved.owner = [&b"\x02ns"[..], CHILD].concat().into();
    records.push(moved);
    let needless = Flaw::Needless {
        owner: name("ns.sub.example.com."),
        kind,
    };
    assert!(!needless.is_error());
    assert_eq!(flaws(records), [needless]);
}

#[test]
fn keys_that_may_not_sign_do_not_count() {
    let with_flags = |flags: [u8; 2]| {
        let mut records = signed();
        let is_key = |record: &&mut Record| record.kind == qtype::DNSKEY;
        let key = records.iter_mut().find(is_key).unwrap();
        key.rdata[..2].copy_from_slice(&flags);
        flaws(records)
    };
    let apex = name("example.com.");
    assert_eq!(with_flags([0, 1]), [Flaw::NoKeys { apex }]);
    // Revoked: it has another tag, too.
    let found = with_flags([1, 0x81]);
    let is_other = |flaw: &Flaw| matches!(flaw, Flaw::NotByKey { .. });
    let is_all = !found.is_empty() && found.iter().all(is_other);
    assert!(is_all, "{found:?}");
}

#[test]
fn chains_and_times_are_errors_of_validation() {
    let (owner, kind) = (www(), qtype::NSEC);
    let line = "wWw 60 NSEC @ A RRSIG NSEC\n";
    let without = oddities(signed_of(&ZONE.replace(line, "")), NOW);
    let expected = Oddity::NoProof {
        owner: owner.clone(),
        kind,
    };
    assert!(without.contains(&expected), "{without:?}");
    let others = line.replace(" A ", " A AAAA ");
    let others = signed_of(&ZONE.replace(line, &others));
    assert_eq!(flaws(others.clone()), []);
    assert_eq!(oddities(others, NOW), [Oddity::Types { owner, kind }]);
    for now in [NOW + 1_001, NOW - 1_001] {
        let found = oddities(signed(), now);
        let is_all = matches!(found[..], [Oddity::Signatures { count: 10, .. }]);
        assert!(is_all, "{found:?}");
        assert_eq!(flaws(signed()), []);
    }
}

#[test]
fn a_thousand_warnings_hide_no_error() {
    let (owner, kind) = (www(), qtype::A);
    let mut found = Vec::new();
    for _ in 0..2_000 {
        let owner = owner.clone();
        add(&mut found, Flaw::Needless { owner, kind });
    }
    assert_eq!(found.len(), 1_000);
    add(&mut found, wrong_address());
    assert_eq!(found.last(), Some(&wrong_address()));
}
