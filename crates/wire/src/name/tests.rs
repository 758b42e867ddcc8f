//! Names in octets and in text, and what must not be taken for one.

use super::compressed::{expand, skip};
use super::*;
use domain::base::name::ToName;
use domain::dep::octseq::Parser;
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder, BinEncodable};
use proptest::prelude::*;
use std::hash::{BuildHasher, RandomState};

fn buf(text: &str) -> NameBuf {
    text.parse().unwrap()
}

/// `count` labels of `length` octets, without a root.
fn labels(count: usize, length: usize) -> Vec<u8> {
    let mut label = vec![b'a'; length + 1];
    label[0] = length as u8;
    label.repeat(count)
}

/// An uncompressed name of exactly this many octets.
fn wire_of_length(length: usize) -> Vec<u8> {
    let mut wire = labels((length - 1) / 64, 63);
    match length - 1 - wire.len() {
        0 => {}
        // One octet cannot be a label: take one from the label before it.
        1 => {
            wire.truncate(wire.len() - 64);
            wire.extend(labels(1, 62));
            wire.extend(labels(1, 1));
        }
        rest => wire.extend(labels(1, rest - 1)),
    }
    wire.push(0);
    assert_eq!(wire.len(), length);
    wire
}

#[test]
fn a_name_knows_its_labels_and_suffixes() {
    let name = buf("www.Example.com");
    let name = name.as_name();
    assert_eq!(name.as_bytes(), b"\x03www\x07Example\x03com\x00");
    assert_eq!((name.len(), name.labels_count()), (17, 3));
    assert_eq!(
        name.labels().collect::<Vec<_>>(),
        [&b"www"[..], b"Example", b"com"]
    );
    let suffixes: Vec<_> = name.suffixes().map(|suffix| suffix.to_string()).collect();
    assert_eq!(suffixes, ["www.Example.com.", "Example.com.", "com.", "."]);
    let begins = (0..20).filter(|&at| name.has_label_at(at));
    assert_eq!(begins.collect::<Vec<_>>(), [0, 4, 12, 16]);
    assert!(Name::ROOT.has_label_at(0) && !Name::ROOT.has_label_at(1));
    assert_eq!(Name::ROOT.suffixes().count(), 1);
    assert_eq!(Name::ROOT.parent(), None);
    assert_eq!(
        (Name::ROOT.to_string(), Name::ROOT.labels_count()),
        (".".into(), 0)
    );
}

#[test]
fn what_follows_a_name_is_no_matter() {
    assert_eq!(Name::parse(b"\x01a\x00\xff\xff").unwrap().len(), 3);
}

#[test]
fn case_counts_for_nothing() {
    let (lower, upper) = (buf("a@[`{z-host.example."), buf("A@[`{Z-HOST.EXAMPLE"));
    assert_eq!(lower, upper);
    let state = RandomState::new();
    assert_eq!(state.hash_one(&lower), state.hash_one(&upper));
    // Octets 32 apart that are not letters differ: @ and `, [ and {.
    assert_ne!(buf("@.example"), buf("`.example"));
    assert_ne!(buf("[.example"), buf("{.example"));
    let mut buffer = [0; 255];
    assert_eq!(
        upper.as_name().to_lowercase(&mut buffer).as_bytes(),
        lower.as_name().as_bytes()
    );
}

#[test]
fn within_ends_at_labels() {
    let (apex, below, beside) = (
        buf("example.com"),
        buf("www.EXAMPLE.com"),
        buf("wwwexample.com"),
    );
    assert!(below.as_name().is_within(&apex.as_name()));
    assert!(apex.as_name().is_within(&apex.as_name()));
    assert!(apex.as_name().is_within(&Name::ROOT));
    assert!(!apex.as_name().is_within(&below.as_name()));
    assert!(!beside.as_name().is_within(&apex.as_name()));
    // The octets of one label may look like labels: `x\007example\003com.` ends in the octets of `example.com.`.
    assert!(
        !buf(r"x\007example\003com")
            .as_name()
            .is_within(&apex.as_name())
    );
}

#[test]
fn f10_label_types_01_and_10_and_pointers() {
    for first in 0x40..=0xbf {
        assert_eq!(
            Name::parse(&[first, 0, 0]),
            Err(NameError::LabelType),
            "{first:#x}"
        );
    }
    for first in 0xc0..=0xff {
        assert_eq!(
            Name::parse(&[first, 12, 0]),
            Err(NameError::Compressed),
            "{first:#x}"
        );
    }
    assert_eq!(Name::parse(b"\x03ww"), Err(NameError::Truncated));
    assert_eq!(Name::parse(b"\x03www"), Err(NameError::Truncated));
    assert_eq!(Name::parse(b""), Err(NameError::Truncated));
}

#[test]
fn f10_255_octets_are_a_name_and_256_are_not() {
    for length in [1, 3, 63, 64, 65, 66, 254, 255] {
        assert_eq!(Name::parse(&wire_of_length(length)).unwrap().len(), length);
    }
    for length in [256, 257, 300] {
        assert_eq!(
            Name::parse(&wire_of_length(length)),
            Err(NameError::TooLong),
            "{length}"
        );
    }
}

#[test]
fn f10_127_labels_are_a_name_and_128_are_not() {
    let mut wire = labels(127, 1);
    wire.push(0);
    assert_eq!(Name::parse(&wire).unwrap().labels_count(), 127);
    assert_eq!(measure(&wire), Ok((255, 127)));
    let mut wire = labels(128, 1);
    wire.push(0);
    assert_eq!(Name::parse(&wire), Err(NameError::TooLong));
}

/// A message of a header, then these octets; names start at 12.
fn message(octets: &[u8]) -> Vec<u8> {
    [&[0; 12], octets].concat()
}

fn expanded(message: &[u8], start: usize) -> Result<String, NameError> {
    expand(message, start, &mut [0; 255]).map(|name| name.to_string())
}

#[test]
fn a_compressed_name_is_expanded() {
    let message = message(b"\x07example\x03com\x00\x03www\xc0\x0c\x01a\xc0\x19\xc0\x1f\xff");
    assert_eq!(expanded(&message, 12).unwrap(), "example.com.");
    assert_eq!(expanded(&message, 25).unwrap(), "www.example.com.");
    assert_eq!(expanded(&message, 31).unwrap(), "a.www.example.com.");
    assert_eq!(expanded(&message, 35).unwrap(), "a.www.example.com.");
    for (start, end) in [(12, 25), (25, 31), (31, 35), (35, 37)] {
        assert_eq!(skip(&message, start), Ok(end));
    }
}

#[test]
fn f10_pointers_lead_back_and_not_into_the_header() {
    // To itself, forward, to the beginning of its own labels, into them, into the header.
    for octets in [
        &b"\xc0\x0c"[..],
        b"\xc0\x0e\x01a\x00",
        b"\x01a\xc0\x0c",
        b"\x02\x01a\xc0\x0d",
        b"\xc0\x00",
        b"\xc0\x0b",
        b"\x01a\xc0\x00",
        b"\xff\xff",
    ] {
        let message = message(octets);
        assert_eq!(skip(&message, 12), Err(NameError::Pointer), "{octets:x?}");
        assert_eq!(
            expanded(&message, 12),
            Err(NameError::Pointer),
            "{octets:x?}"
        );
    }
    // Two that point at each other: the second points forward.
    let message = message(b"\xc0\x0e\xc0\x0c");
    assert_eq!(expanded(&message, 14), Err(NameError::Pointer));
    for cut in [&b"\xc0"[..], b"\x01a\xc0", b"\x01", b"\x05abcd", b""] {
        let message = super::tests::message(cut);
        assert_eq!(skip(&message, 12), Err(NameError::Truncated), "{cut:x?}");
        assert_eq!(
            expanded(&message, 12),
            Err(NameError::Truncated),
            "{cut:x?}"
        );
    }
    assert_eq!(skip(&[0; 12], 13), Err(NameError::Truncated));
}

#[test]
fn f10_a_chain_of_pointers_ends() {
    // The root, then pointers each to the one before it.
    let mut octets = vec![0, 0];
    for hop in 0..200_u16 {
        octets.extend((0xc000 | (12 + 2 * hop)).to_be_bytes());
    }
    let message = message(&octets);
    assert_eq!(expanded(&message, 12 + 2 * 127), Ok(".".into()));
    assert_eq!(expanded(&message, 12 + 2 * 128), Err(NameError::Pointer));
}

#[test]
fn f10_expansion_stops_at_255_octets() {
    // Each name is one label and the name before it: 4 octets, then 8, then 12 …
    let mut octets = b"\x02aa\x00".to_vec();
    let mut starts = vec![12];
    for _ in 0..100 {
        let previous = *starts.last().unwrap();
        starts.push(12 + octets.len());
        octets.extend(b"\x02aa");
        octets.extend((0xc000 | previous as u16).to_be_bytes());
    }
    let message = message(&octets);
    for (number, start) in starts.into_iter().enumerate() {
        let length = 3 * (number + 1) + 1;
        let mut buffer = [0; 255];
        match expand(&message, start, &mut buffer) {
            Ok(name) => assert_eq!(name.len(), length),
            Err(error) => assert!(
                length > 255 && error == NameError::TooLong,
                "{length}: {error}"
            ),
        }
        assert!(skip(&message, start).is_ok());
    }
    assert_eq!(
        skip(&super::tests::message(&wire_of_length(256)), 12),
        Err(NameError::TooLong)
    );
}

#[test]
fn text_is_read_with_or_without_its_last_dot() {
    assert_eq!(
        buf("example.com").as_name().as_bytes(),
        b"\x07example\x03com\x00"
    );
    assert_eq!(buf("example.com."), buf("example.com"));
    assert_eq!(buf(".").as_name().as_bytes(), b"\x00");
    assert_eq!(
        buf(r"a\.b.\065\000\255\\").as_name().as_bytes(),
        b"\x03a.b\x04A\x00\xff\\\x00"
    );
    assert_eq!(buf(r"a\.b\\c\ d\200;").to_string(), r"a\.b\\c\032d\200;.");
    // One octet of Latin-1, which is no UTF-8.
    let name = NameBuf::from_text(b"caf\xe9.be").unwrap();
    assert_eq!(name.as_name().as_bytes(), b"\x04caf\xe9\x02be\x00");
}

#[test]
fn text_that_is_no_name_says_where_and_why() {
    for (text, error) in [
        ("", NameTextError::Empty),
        ("..", NameTextError::EmptyLabel { at: 0 }),
        (".com", NameTextError::EmptyLabel { at: 0 }),
        ("a..b", NameTextError::EmptyLabel { at: 2 }),
        ("a.b..", NameTextError::EmptyLabel { at: 4 }),
        ("a\\", NameTextError::Escape { at: 1 }),
        ("a\\256", NameTextError::Escape { at: 1 }),
        ("a\\25", NameTextError::Escape { at: 1 }),
        ("a\\2x5", NameTextError::Escape { at: 1 }),
    ] {
        assert_eq!(text.parse::<NameBuf>(), Err(error), "{text}");
        assert!(!error.to_string().is_empty());
    }
    let long = "a".repeat(64);
    let error = NameTextError::LabelTooLong { at: 64, length: 64 };
    assert_eq!(long.parse::<NameBuf>(), Err(error));
    assert!("a".repeat(63).parse::<NameBuf>().is_ok());
}

#[test]
fn f10_text_of_255_and_256_octets() {
    assert_eq!(buf(&"a.".repeat(127)).as_name().len(), 255);
    let error = NameTextError::TooLong { length: 257 };
    assert_eq!("a.".repeat(128).parse::<NameBuf>(), Err(error));
    let text = |last: usize| format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(last));
    assert_eq!(buf(&text(61)).as_name().len(), 255);
    assert_eq!(
        text(62).parse::<NameBuf>(),
        Err(NameTextError::TooLong { length: 256 })
    );
}

/// A name of any octets.
fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let label = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 1..12),
        1 => prop::collection::vec(any::<u8>(), 1..=63),
    ];
    prop::collection::vec(label, 0..12).prop_map(|labels| {
        let mut wire = Vec::new();
        for label in labels.iter().filter(|label| label.len() < 64) {
            if wire.len() + 1 + label.len() < 255 {
                wire.push(label.len() as u8);
                wire.extend(label);
            }
        }
        wire.push(0);
        wire
    })
}

/// Octets in which names, pointers and nonsense are likely.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => (1_u8..6).prop_map(|length| [&[length][..], &vec![b'a'; length.into()]].concat()),
        2 => (0_u8..60).prop_map(|target| vec![0xc0, target]),
        1 => Just(vec![0]),
        1 => prop::collection::vec(any::<u8>(), 1..3),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| message(&pieces.concat()))
}

proptest! {
    #[test]
    fn any_octets_are_no_trouble(octets in prop::collection::vec(any::<u8>(), 0..300), start in 0_usize..310) {
        let _ = Name::parse(&octets);
        let _ = skip(&octets, start);
        let _ = expand(&octets, start, &mut [0; 255]);
    }

    #[test]
    fn domain_and_hickory_read_the_same_names(octets in prop::collection::vec(any::<u8>(), 0..40)) {
        let ours = Name::parse(&octets);
        let mut parser = Parser::from_ref(&octets[..]);
        let theirs = domain::base::Name::parse(&mut parser);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            prop_assert_eq!(ours.as_bytes(), theirs.as_slice());
            let hickory = hickory_proto::rr::Name::read(&mut BinDecoder::new(&octets)).unwrap();
            prop_assert_eq!(ours.labels().collect::<Vec<_>>(), hickory.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn domain_and_hickory_agree_on_names_of_any_octets(wire in any_name()) {
        let ours = Name::parse(&wire).unwrap();
        let theirs = domain::base::Name::from_octets(&wire[..]).unwrap();
        prop_assert_eq!(ours.labels_count() + 1, theirs.label_count());
        let hickory = hickory_proto::rr::Name::from_bytes(&wire).unwrap();
        prop_assert_eq!(ours.labels_count(), hickory.iter().count());
        prop_assert_eq!(ours.as_bytes(), &hickory.to_bytes().unwrap()[..]);
    }

    #[test]
    fn text_reads_back_here_and_in_domain(wire in any_name()) {
        let name = Name::parse(&wire).unwrap();
        let text = name.to_string();
        let back: NameBuf = text.parse().unwrap();
        prop_assert_eq!(back.as_name().as_bytes(), &wire[..]);
        let theirs: domain::base::Name<Vec<u8>> = text.parse().unwrap();
        prop_assert_eq!(theirs.as_slice(), &wire[..]);
        let ours: NameBuf = theirs.fmt_with_dot().to_string().parse().unwrap();
        prop_assert_eq!(ours.as_name().as_bytes(), &wire[..]);
    }

    #[test]
    fn equal_names_have_equal_hashes(wire in any_name(), flips in prop::collection::vec(any::<bool>(), 255)) {
        let mut other = wire.clone();
        for (octet, flip) in other.iter_mut().zip(flips) {
            if flip && octet.is_ascii_alphabetic() {
                *octet ^= 0x20;
            }
        }
        let (name, other) = (Name::parse(&wire).unwrap(), Name::parse(&other).unwrap());
        let state = RandomState::new();
        prop_assert_eq!(name, other);
        prop_assert_eq!(state.hash_one(name), state.hash_one(other));
        let (mut one, mut two) = ([0; 255], [0; 255]);
        prop_assert_eq!(name.to_lowercase(&mut one).as_bytes(), other.to_lowercase(&mut two).as_bytes());
    }

    #[test]
    fn eight_octets_are_lowered_as_each_alone(octets: [u8; 8]) {
        let lowered = lowercase_eight(u64::from_ne_bytes(octets)).to_ne_bytes();
        prop_assert_eq!(lowered, octets.map(|octet| octet.to_ascii_lowercase()));
    }

    #[test]
    fn f10_domain_expands_the_same_names(message in any_message(), start in 12_usize..80) {
        let mut buffer = [0; 255];
        let ours = expand(&message, start, &mut buffer);
        let mut parser = Parser::from_ref(&message[..]);
        let theirs = parser.advance(start).ok().and_then(|()| domain::base::ParsedName::parse_ref(&mut parser).ok());
        match (ours, theirs) {
            (Ok(ours), Some(theirs)) => {
                let theirs = theirs.to_name::<Vec<u8>>();
                prop_assert_eq!(ours.as_bytes(), theirs.as_slice());
                prop_assert_eq!(skip(&message, start), Ok(parser.pos()));
            }
            (Ok(ours), None) => prop_assert!(false, "domain refuses {ours}"),
            // domain follows pointers into the header.
            (Err(error), Some(_)) => prop_assert_eq!(error, NameError::Pointer),
            (Err(_), None) => {}
        }
    }
}
