//! Messages that are right, in the words of three libraries, and messages that lie.

use super::*;
use crate::examples::{Composed, query};
use crate::name::Name;
use crate::name::compressed::expand;
use domain::base::iana::{Class, Rtype};
use domain::base::name::ToName;
use domain::base::rdata::UnknownRecordData;
use domain::base::record::ParsedRecord;
use domain::base::{MessageBuilder, TreeCompressor};
use proptest::prelude::*;

type DomainName = domain::base::Name<Vec<u8>>;

const WWW: &[u8] = b"\x03www\x07example\x03com\x00";
/// A compression pointer to the question's name.
const TO_QNAME: &[u8] = b"\xc0\x0c";

fn query_error(message: &Composed) -> QueryError {
    parse_query(&message.octets).unwrap_err()
}

fn plain_query() -> Composed {
    Composed::new(0x0100).question(WWW, 1, 1)
}

// ---- Queries ----

#[test]
fn a_query_is_known_by_its_places() {
    let message = query("www.example.com", 28, None);
    let parts = parse_query(&message).unwrap();
    let expected = QueryParts {
        qname_length: 17,
        labels: 3,
        qtype: 28,
        qclass: 1,
        question_end: 33,
        end: 33,
        edns: None,
        is_signed: false,
    };
    assert_eq!(parts, expected);
    assert_eq!(parts.qname(&message).to_string(), "www.example.com.");
    assert_eq!(parts.question(&message), &message[12..33]);
    assert_eq!(parts.payload_size(), 512);
}

#[test]
fn a_query_knows_its_edns() {
    let options = b"\x00\x0a\x00\x08abcdefgh\xfd\xe9\x00\x00";
    let message = plain_query().opt(0x0000_8001, options).octets;
    let parts = parse_query(&message).unwrap();
    let edns = parts.edns.unwrap();
    let expected = EdnsParts {
        start: 33,
        end: 60,
        payload_size: 1232,
        extended_rcode: 0,
        version: 0,
        dnssec_ok: true,
        z: 1,
    };
    assert_eq!(edns, expected);
    let options: Vec<_> = edns.options(&message).collect();
    let expected = [
        EdnsOption {
            code: 10,
            value: b"abcdefgh",
        },
        EdnsOption {
            code: 65001,
            value: b"",
        },
    ];
    assert_eq!(options, expected);
    assert_eq!((parts.payload_size(), parts.end), (1232, 60));
}

#[test]
fn a_signature_is_seen_wherever_it_stands() {
    for section in [Section::Answer, Section::Authority, Section::Additional] {
        let signed = plain_query().record_of_class(section, b"\x01k\x00", (250, 255, 0), b"");
        assert!(parse_query(&signed.octets).unwrap().is_signed);
    }
    let plain = plain_query().opt(0, b"");
    assert!(!parse_query(&plain.octets).unwrap().is_signed);
}

#[test]
fn an_option_is_found_by_its_code() {
    let options = b"\xfd\xe9\x00\x00\x00\x0a\x00\x02ab\x00\x0a\x00\x01c";
    let message = plain_query().opt(0, options).octets;
    let edns = parse_query(&message).unwrap().edns.unwrap();
    assert_eq!(edns.option(&message, 65001), Some(&b""[..]));
    assert_eq!(edns.option(&message, 10), Some(&b"ab"[..]), "the first");
    assert_eq!(edns.option(&message, 9), None);
    assert_eq!(edns.option(&message[..20], 10), None, "another message");
}

#[test]
fn a_payload_size_below_512_means_512() {
    let small = plain_query().record_of_class(Section::Additional, b"\x00", (41, 100, 0), b"");
    assert_eq!(parse_query(&small.octets).unwrap().payload_size(), 512);
}

#[test]
fn trailing_octets_mean_nothing() {
    let mut message = query("www.example.com", 1, Some(1232));
    let parts = parse_query(&message).unwrap();
    message.extend(b"anything");
    assert_eq!(parse_query(&message), Ok(parts));
    message.resize(100_000, 0);
    assert_eq!(parse_query(&message), Ok(parts));
}

#[test]
fn the_root_is_asked_for() {
    let message = query(".", 2, None);
    let parts = parse_query(&message).unwrap();
    assert_eq!((parts.qname_length, parts.labels, parts.end), (1, 0, 17));
    assert_eq!(parts.qname(&message), Name::ROOT);
}

#[test]
fn f1_every_prefix_of_a_query_is_refused() {
    let message = plain_query().opt(0, b"\x00\x0a\x00\x02ab").octets;
    for length in 0..message.len() {
        let expected = match length {
            0..12 => QueryError::TooShort,
            12..33 => QueryError::TruncatedQuestion,
            _ => QueryError::BadRecords,
        };
        assert_eq!(
            parse_query(&message[..length]),
            Err(expected),
            "{length} octets"
        );
    }
}

#[test]
fn f6_a_response_is_no_query() {
    let mut message = plain_query();
    message.change_header(|header| header.set_qr(true));
    assert_eq!(query_error(&message), QueryError::Response);
    assert_eq!(QueryError::Response.answer(), None);
}

#[test]
fn f9_counts_of_65535_size_nothing() {
    for length in 12..=40 {
        let mut message = vec![0; length];
        message[4..12].fill(0xff);
        assert_eq!(parse_query(&message), Err(QueryError::ManyQuestions));
        message[4..6].copy_from_slice(&[0, 1]);
        assert!(matches!(
            parse_query(&message),
            Err(QueryError::TruncatedQuestion | QueryError::BadRecords)
        ));
        message[2] = 0x80;
        assert!(parse_response(&message).is_err());
    }
    // The longest message, all of it records: no more of them are walked than there are.
    let mut message = vec![0; 70_000];
    message[4..12].copy_from_slice(&[0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(parse_query(&message), Err(QueryError::BadRecords));
}

#[test]
fn f9_counts_that_lie_by_one() {
    let message = plain_query().record(Section::Authority, TO_QNAME, 6, 0, b"abc");
    for count in [
        Header::set_answer_count,
        Header::set_authority_count,
        Header::set_additional_count,
    ] {
        let mut lying = message.clone();
        lying.change_header(|header| count(header, 2));
        assert_eq!(query_error(&lying), QueryError::BadRecords);
    }
    let message = message.opt(0, b"");
    assert!(parse_query(&message.octets).is_ok());
    // One less leaves the OPT record behind as trailing octets.
    let mut lying = message.clone();
    lying.change_header(|header| header.set_additional_count(0));
    assert_eq!(parse_query(&lying.octets).unwrap().edns, None);
    // What was additional is then authority, where no OPT record may be.
    let mut lying = message;
    lying.change_header(|header| {
        header.set_authority_count(2);
        header.set_additional_count(0);
    });
    assert_eq!(query_error(&lying), QueryError::BadEdns);
}

#[test]
fn f10_bad_names_in_questions() {
    for qname in [
        &b"\x40a\x00"[..],
        b"\x80a\x00",
        b"\xc0\x0c",
        b"\xc0\x00",
        b"\x01a\xc0\x0c",
        b"\x01a\xff\xff",
    ] {
        let message = Composed::new(0x0100).question(qname, 1, 1);
        assert_eq!(query_error(&message), QueryError::BadName, "{qname:x?}");
    }
    let too_long = [&[1, b'a'].repeat(128)[..], &[0]].concat();
    assert_eq!(
        query_error(&Composed::new(0).question(&too_long, 1, 1)),
        QueryError::BadName
    );
    let longest = [&[1, b'a'].repeat(127)[..], &[0]].concat();
    let parts = parse_query(&Composed::new(0).question(&longest, 1, 1).octets).unwrap();
    assert_eq!((parts.qname_length, parts.labels), (255, 127));
}

#[test]
fn f10_bad_names_in_records() {
    for owner in [
        &b"\x40a\x00"[..],
        b"\xc0\x21",
        b"\xc0\x40",
        b"\xc0\x00",
        b"\x01a\xc0\x21",
    ] {
        let message = plain_query().record(Section::Additional, owner, 1, 0, b"abcd");
        assert_eq!(query_error(&message), QueryError::BadRecords, "{owner:x?}");
    }
    let message = plain_query().record(Section::Additional, TO_QNAME, 1, 0, b"abcd");
    assert!(parse_query(&message.octets).is_ok());
}

#[test]
fn f11_every_version_of_edns_is_parsed() {
    for version in 0..=255_u8 {
        let flags = u32::from(version) << 16;
        // In another version than 0 the data may be anything.
        let rdata: &[u8] = if version == 0 { b"" } else { b"abc" };
        let message = plain_query().opt(flags, rdata).octets;
        let edns = parse_query(&message).unwrap().edns.unwrap();
        assert_eq!((edns.version, edns.extended_rcode), (version, 0));
    }
}

#[test]
fn f11_opt_records_too_many_or_misplaced() {
    assert_eq!(
        query_error(&plain_query().opt(0, b"").opt(0, b"")),
        QueryError::BadEdns
    );
    for section in [Section::Answer, Section::Authority] {
        let misplaced = plain_query().record(section, b"\x00", 41, 0, b"");
        assert_eq!(query_error(&misplaced), QueryError::BadEdns, "{section:?}");
    }
    for owner in [&b"\x01a\x00"[..], TO_QNAME] {
        let elsewhere = plain_query().record(Section::Additional, owner, 41, 0, b"");
        assert_eq!(query_error(&elsewhere), QueryError::BadEdns, "{owner:x?}");
    }
    // Anywhere in the additional section, though.
    let between = plain_query()
        .record(Section::Additional, TO_QNAME, 1, 0, b"abcd")
        .opt(0, b"")
        .record(Section::Additional, TO_QNAME, 1, 0, b"abcd");
    assert_eq!(
        parse_query(&between.octets)
            .unwrap()
            .edns
            .map(|edns| edns.start),
        Some(49)
    );
}

#[test]
fn f11_options_of_any_length_and_kind() {
    for length in 0..=41_u8 {
        let option = [&[0, 10, 0, length][..], &vec![7; length.into()]].concat();
        let message = plain_query().opt(0, &option).octets;
        let options: Vec<_> = parse_query(&message)
            .unwrap()
            .edns
            .unwrap()
            .options(&message)
            .collect();
        assert_eq!(
            options,
            [EdnsOption {
                code: 10,
                value: &vec![7; length.into()]
            }]
        );
    }
    // ECS of a family that is none, of too long a prefix, with bits behind it; keepalive; unknown: whoever reads them judges.
    for option in [
        &b"\x00\x08\x00\x08\x00\x07\x20\x00abcd"[..],
        b"\x00\x08\x00\x08\x00\x01\xff\x00abcd",
        b"\x00\x08\x00\x05\x00\x01\x01\x00\xff",
        b"\x00\x0b\x00\x02\x00\x64",
        b"\xff\xff\x00\x00",
    ] {
        assert!(parse_query(&plain_query().opt(0, option).octets).is_ok());
    }
}

#[test]
fn f11_options_that_do_not_fill_their_record() {
    for options in [
        &b"\x00"[..],
        b"\x00\x0a",
        b"\x00\x0a\x00",
        b"\x00\x0a\x00\x01",
        b"\x00\x0a\x00\x01ab",
    ] {
        assert_eq!(
            query_error(&plain_query().opt(0, options)),
            QueryError::BadEdns,
            "{options:x?}"
        );
    }
}

#[test]
fn f12_every_opcode_and_class_is_parsed() {
    for opcode in 0..16 {
        for (qtype, qclass) in [
            (1, 1),
            (255, 3),
            (252, 4),
            (251, 254),
            (0, 255),
            (65535, 65535),
            (41, 0),
        ] {
            let mut message = Composed::new(0x0100).question(WWW, qtype, qclass);
            message.change_header(|header| header.set_opcode(opcode));
            let parts = parse_query(&message.octets).unwrap();
            assert_eq!((parts.qtype, parts.qclass), (qtype, qclass));
        }
    }
}

#[test]
fn f12_no_question_and_two() {
    assert_eq!(query_error(&Composed::new(0x0100)), QueryError::NoQuestion);
    assert_eq!(QueryError::NoQuestion.answer(), Some(4));
    assert_eq!(
        query_error(&plain_query().question(WWW, 1, 1)),
        QueryError::ManyQuestions
    );
    assert_eq!(QueryError::ManyQuestions.answer(), Some(1));
}

/// RFC 6891 §6.1.1: an answer to it has an OPT record, too.
#[test]
fn f11_a_message_that_is_refused_may_have_an_opt_record() {
    const DO: u32 = 0x8000;
    let of = |message: &Composed| refused_dnssec_ok(&message.octets);
    let many = || plain_query().question(TO_QNAME, 28, 1).question(WWW, 1, 1);
    assert_eq!(of(&many()), None);
    assert_eq!(of(&many().opt(0, b"")), Some(false));
    assert_eq!(of(&many().opt(DO, b"")), Some(true));
    assert_eq!(of(&Composed::new(0x0100).opt(DO, b"")), Some(true));
    // Of two the first; in another version; with options that do not fill it.
    for (flags, options) in [
        (DO, &b""[..]),
        (0xff_0000 | DO, &b"abc"[..]),
        (DO, &b"abc"[..]),
    ] {
        let message = plain_query().opt(flags, options).opt(0, b"");
        assert_eq!(of(&message), Some(true), "{flags:x} {options:x?}");
    }
    let before = plain_query()
        .record(Section::Authority, TO_QNAME, 6, 0, b"abc")
        .opt(0, b"");
    assert_eq!(of(&before), Some(false));
    // Somewhere else it is none.
    let in_answer = many().record(Section::Answer, b"\x00", 41, DO, b"");
    let elsewhere = many().record(Section::Additional, TO_QNAME, 41, DO, b"");
    assert_eq!((of(&in_answer), of(&elsewhere)), (None, None));
    // What cannot be read to its end may have anything.
    let mut lying = many().opt(DO, b"");
    lying.change_header(|header| header.set_additional_count(2));
    assert_eq!(of(&lying), None);
    let whole = many().opt(DO, b"").octets;
    for length in 0..whole.len() {
        assert_eq!(refused_dnssec_ok(&whole[..length]), None, "{length} octets");
    }
    for octets in [&[0xff; 40][..], &[0; 11], &[0xff; 70_000]] {
        assert_eq!(refused_dnssec_ok(octets), None);
    }
}

#[test]
fn f12_notify_and_update_are_parsed() {
    let soa = [WWW, WWW, &[0; 20]].concat();
    let mut notify =
        Composed::new(0x2400)
            .question(WWW, 6, 1)
            .record(Section::Answer, TO_QNAME, 6, 0, &soa);
    assert_eq!(parse_query(&notify.octets).map(|parts| parts.qtype), Ok(6));
    notify.octets.pop();
    assert_eq!(query_error(&notify), QueryError::BadRecords);
    // Prerequisite and deletion of all records of a name: class ANY, no data (RFC 2136 §2.4.4, §2.5.3); then TSIG.
    let update = Composed::new(0x2800)
        .question(WWW, 6, 1)
        .record_of_class(Section::Answer, TO_QNAME, (255, 255, 0), b"")
        .record_of_class(Section::Authority, TO_QNAME, (255, 255, 0), b"")
        .record_of_class(
            Section::Additional,
            b"\x03key\x00",
            (250, 255, 0),
            b"signature",
        );
    let parts = parse_query(&update.octets).unwrap();
    assert_eq!(
        (parts.qtype, usize::from(parts.end)),
        (6, update.octets.len())
    );
}

#[test]
fn reasons_are_numbered_in_order_and_named_once() {
    let mut names: Vec<_> = QueryError::ALL.iter().map(|error| error.name()).collect();
    names.extend(ResponseError::ALL.iter().map(|error| error.name()));
    for (number, name) in names.iter().enumerate() {
        assert!(!names[..number].contains(name), "{name}");
    }
    assert!(
        QueryError::ALL
            .into_iter()
            .enumerate()
            .all(|(number, error)| error as usize == number)
    );
    assert!(
        ResponseError::ALL
            .into_iter()
            .enumerate()
            .all(|(number, error)| error as usize == number)
    );
    assert!(
        QueryError::ALL
            .iter()
            .all(|error| !error.to_string().is_empty())
    );
    assert!(
        ResponseError::ALL
            .iter()
            .all(|error| !error.to_string().is_empty())
    );
}

#[test]
fn a_query_that_does_not_fit_is_not_written() {
    let name = Name::parse(WWW).unwrap();
    let flags = QueryFlags {
        payload_size: Some(1232),
        ..QueryFlags::default()
    };
    for length in 0..44 {
        assert_eq!(
            write_query(&mut vec![0; length], 1, (name, 1, 1), flags),
            None
        );
    }
    assert_eq!(write_query(&mut [0; 44], 1, (name, 1, 1), flags), Some(44));
}

// ---- Responses ----

#[test]
fn a_response_is_known_by_its_places() {
    let message = Composed::response("www.example.com", 1)
        .record(Section::Answer, TO_QNAME, 1, 300, &[192, 0, 2, 1])
        .record(Section::Answer, TO_QNAME, 1, 300, &[192, 0, 2, 2])
        .opt(0x0100_0000, b"");
    let parts = parse_response(&message.octets).unwrap();
    assert_eq!(
        (parts.rcode, parts.truncated, usize::from(parts.end)),
        (16, false, message.octets.len())
    );
    assert_eq!(
        (
            parts.answer_count,
            parts.authority_count,
            parts.additional_count
        ),
        (2, 0, 1)
    );
    assert_eq!(parts.question_end, 33);
    let question = parts.question.unwrap();
    assert_eq!(
        (question.qtype, question.qclass, question.labels),
        (1, 1, 3)
    );
    assert_eq!(
        question.qname(&message.octets).to_string(),
        "www.example.com."
    );
    let header = Header::read(&message.octets).unwrap();
    let records: Vec<_> = Records::new(&message.octets, 33, &header)
        .map(Result::unwrap)
        .collect();
    let expected = Record {
        section: Section::Answer,
        owner_start: 49,
        rtype: 1,
        class: 1,
        ttl: 300,
        ttl_start: 55,
        rdata_start: 61,
        rdata_end: 65,
    };
    assert_eq!(records[1], expected);
    assert_eq!(records[1].rdata(&message.octets), &[192, 0, 2, 2]);
    assert_eq!(records[1].rdata(&message.octets[..64]), b"");
}

#[test]
fn an_error_response_may_have_no_question() {
    let parts = parse_response(&Composed::new(0x8181).octets).unwrap();
    assert_eq!(
        (parts.question, parts.question_end, parts.end, parts.rcode),
        (None, 12, 12, 1)
    );
}

#[test]
fn f14_junk_responses_are_refused() {
    let good = Composed::response("www.example.com", 1).record(
        Section::Answer,
        TO_QNAME,
        1,
        300,
        &[192, 0, 2, 1],
    );
    assert!(parse_response(&good.octets).is_ok());
    for length in 0..good.octets.len() {
        assert!(
            parse_response(&good.octets[..length]).is_err(),
            "{length} octets"
        );
    }
    let response_error = |message: Composed| parse_response(&message.octets).unwrap_err();
    assert_eq!(response_error(plain_query()), ResponseError::Query);
    assert_eq!(
        response_error(good.clone().question(WWW, 1, 1)),
        ResponseError::ManyQuestions
    );
    assert_eq!(
        response_error(Composed::new(0x8180).question(b"\xc0\x0c", 1, 1)),
        ResponseError::BadName
    );
    assert_eq!(
        response_error(good.clone().opt(0, b"").opt(0, b"")),
        ResponseError::BadEdns
    );
    let after_a_broken_one = good.record(Section::Answer, b"\xc0\xff", 1, 300, &[192, 0, 2, 1]);
    let header = Header::read(&after_a_broken_one.octets).unwrap();
    let mut records = Records::new(&after_a_broken_one.octets, 33, &header);
    assert!(records.next().unwrap().is_ok());
    assert_eq!(records.next(), Some(Err(BrokenRecord)));
    assert_eq!(records.next(), None);
}

#[test]
fn f14_questions_match_by_name_type_and_class() {
    let query = query("www.example.com", 0x4161, None);
    let question = parse_query(&query).unwrap().question(&query).to_vec();
    let response = |qname: &str, qtype| Composed::response(qname, qtype).octets;
    assert!(question_matches(
        &response("www.example.com", 0x4161),
        &question
    ));
    assert!(question_matches(
        &response("wWw.EXAMPLE.com", 0x4161),
        &question
    ));
    // Other name, longer, shorter, other type, that type "in lower case".
    assert!(!question_matches(
        &response("www.example.org", 0x4161),
        &question
    ));
    assert!(!question_matches(
        &response("a.www.example.com", 0x4161),
        &question
    ));
    assert!(!question_matches(
        &response("example.com", 0x4161),
        &question
    ));
    assert!(!question_matches(
        &response("www.example.com", 0x4162),
        &question
    ));
    assert!(!question_matches(
        &response("www.example.com", 0x6161),
        &question
    ));
    let other_class = Composed::new(0x8180).question(WWW, 0x4161, 3).octets;
    assert!(!question_matches(&other_class, &question));
    assert!(!question_matches(&Composed::new(0x8180).octets, &question));
    let mut uncounted = response("www.example.com", 0x4161);
    uncounted[5] = 0;
    assert!(!question_matches(&uncounted, &question));
    assert!(!question_matches(&uncounted[..5], &question));
    assert!(!question_matches(&response("www.example.com", 1), b""));
}

// ---- Second opinions ----

/// Payload size, DO, and options by code.
type DescribedEdns = (u16, bool, Vec<(u16, Vec<u8>)>);

/// What domain writes a message from.
#[derive(Clone, Debug)]
struct Described {
    id: u16,
    flags: u16,
    question: (DomainName, u16, u16),
    records: Vec<(Section, DomainName, u16, u32, Vec<u8>)>,
    edns: Option<DescribedEdns>,
}

fn any_domain_name() -> impl Strategy<Value = DomainName> {
    prop::collection::vec("[a-cA-C]{1,8}", 0..5)
        .prop_map(|labels| format!("{}.", labels.join(".")).parse().unwrap())
}

fn any_described() -> impl Strategy<Value = Described> {
    // Types without a format of their own, so that data can be any.
    let rtype = 65_280_u16..65_500;
    let section = prop::sample::select(vec![
        Section::Answer,
        Section::Authority,
        Section::Additional,
    ]);
    let rdata = prop::collection::vec(any::<u8>(), 0..20);
    let record = (section, any_domain_name(), rtype, any::<u32>(), rdata);
    let options = prop::collection::vec(
        (
            65_001_u16..65_100,
            prop::collection::vec(any::<u8>(), 0..10),
        ),
        0..4,
    );
    (
        any::<(u16, u16)>(),
        (any_domain_name(), any::<u16>(), any::<u16>()),
        prop::collection::vec(record, 0..8),
        prop::option::of((any::<u16>(), any::<bool>(), options)),
    )
        .prop_map(|((id, flags), question, mut records, edns)| {
            records.sort_by_key(|record| record.0);
            Described {
                id,
                flags,
                question,
                records,
                edns,
            }
        })
}

/// The message as domain writes it, names compressed.
fn written_by_domain(described: &Described) -> Vec<u8> {
    let mut builder = MessageBuilder::from_target(TreeCompressor::new(Vec::new())).unwrap();
    builder.header_mut().set_id(described.id);
    let mut builder = builder.question();
    let (qname, qtype, qclass) = &described.question;
    builder
        .push((qname, Rtype::from_int(*qtype), Class::from_int(*qclass)))
        .unwrap();
    let data = |rtype: &u16, rdata: &Vec<u8>| {
        UnknownRecordData::from_octets(Rtype::from_int(*rtype), rdata.clone()).unwrap()
    };
    let of = |section| {
        described
            .records
            .iter()
            .filter(move |record| record.0 == section)
    };
    let mut builder = builder.answer();
    for (_, owner, rtype, ttl, rdata) in of(Section::Answer) {
        builder.push((owner, *ttl, data(rtype, rdata))).unwrap();
    }
    let mut builder = builder.authority();
    for (_, owner, rtype, ttl, rdata) in of(Section::Authority) {
        builder.push((owner, *ttl, data(rtype, rdata))).unwrap();
    }
    let mut builder = builder.additional();
    for (_, owner, rtype, ttl, rdata) in of(Section::Additional) {
        builder.push((owner, *ttl, data(rtype, rdata))).unwrap();
    }
    if let Some((payload_size, dnssec_ok, options)) = &described.edns {
        builder
            .opt(|opt| {
                opt.set_udp_payload_size(*payload_size);
                opt.set_dnssec_ok(*dnssec_ok);
                for (code, value) in options {
                    let length = value.len() as u16;
                    opt.push_raw_option((*code).into(), length, |target| {
                        domain::dep::octseq::OctetsBuilder::append_slice(target, value)
                    })?;
                }
                Ok(())
            })
            .unwrap();
    }
    builder.finish().into_target()
}

/// Sets the flags, QR among them as wanted.
fn with_flags(mut message: Vec<u8>, flags: u16, response: bool) -> Vec<u8> {
    let mut header = Header::read(&message).unwrap();
    header.set_flags(flags);
    header.set_qr(response);
    header.write(&mut message).unwrap();
    message
}

fn check_edns(described: &Described, edns: Option<EdnsParts>, message: &[u8]) {
    assert_eq!(edns.is_some(), described.edns.is_some());
    let (Some(edns), Some((payload_size, dnssec_ok, options))) = (edns, &described.edns) else {
        return;
    };
    assert_eq!(
        (edns.payload_size, edns.dnssec_ok, edns.version),
        (*payload_size, *dnssec_ok, 0)
    );
    let read: Vec<_> = edns
        .options(message)
        .map(|option| (option.code, option.value.to_vec()))
        .collect();
    assert_eq!(&read, options);
}

fn check_records(described: &Described, message: &[u8], start: u16) {
    let header = Header::read(message).unwrap();
    let mut records = Records::new(message, start, &header).map(Result::unwrap);
    for (section, owner, rtype, ttl, rdata) in &described.records {
        let record = records.next().unwrap();
        assert_eq!(
            (record.section, record.rtype, record.ttl),
            (*section, *rtype, *ttl)
        );
        assert_eq!(record.rdata(message), &rdata[..]);
        let mut buffer = [0; 255];
        let read = expand(message, record.owner_start.into(), &mut buffer).unwrap();
        assert_eq!(read, Name::parse(owner.as_slice()).unwrap());
    }
    assert_eq!(records.count(), usize::from(described.edns.is_some()));
}

/// Our walk and domain's over the same octets give the same records, or both end in an error.
fn check_walk(message: &[u8]) {
    let (Some(header), Ok(theirs)) = (
        Header::read(message),
        domain::base::Message::from_octets(message),
    ) else {
        return;
    };
    let Ok(parts) = parse_response(message) else {
        return;
    };
    let ours: Vec<_> = Records::new(message, parts.question_end, &header)
        .map(Result::unwrap)
        .collect();
    let mut walked = Vec::new();
    let Ok(answer) = theirs.answer() else {
        panic!("domain finds no question")
    };
    let mut section = Some(answer);
    while let Some(mut records) = section {
        // domain follows the owners' pointers, we do not until asked: there its walk may end.
        let Ok(mut found) = records
            .by_ref()
            .collect::<Result<Vec<ParsedRecord<'_, _>>, _>>()
        else {
            return;
        };
        walked.append(&mut found);
        section = records.next_section().unwrap();
    }
    assert_eq!(ours.len(), walked.len());
    for (ours, theirs) in ours.iter().zip(walked) {
        let fields = (
            theirs.rtype().to_int(),
            theirs.class().to_int(),
            theirs.ttl().as_secs(),
        );
        assert_eq!((ours.rtype, ours.class, ours.ttl), fields);
        let mut buffer = [0; 255];
        if let Ok(owner) = expand(message, ours.owner_start.into(), &mut buffer) {
            assert_eq!(
                owner.as_bytes(),
                theirs.owner().to_name::<Vec<u8>>().as_slice()
            );
        }
    }
}

proptest! {
    #[test]
    fn any_octets_are_parsed_without_panic(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_query(&octets);
        let _ = parse_response(&octets);
        let _ = question_matches(&octets, octets.get(20..).unwrap_or_default());
        check_walk(&octets);
    }

    #[test]
    fn f9_damaged_messages_are_parsed_without_panic(
        described in any_described(),
        damage in prop::collection::vec((0_usize..200, any::<u8>()), 0..6),
        cut in 0_usize..300,
    ) {
        for response in [false, true] {
            let mut message = with_flags(written_by_domain(&described), described.flags, response);
            for (at, octet) in &damage {
                if let Some(place) = message.get_mut(*at) {
                    *place = *octet;
                }
            }
            message.truncate(cut.max(message.len() / 2));
            if let Ok(parts) = parse_query(&message) {
                prop_assert!(parts.question_end <= parts.end && usize::from(parts.end) <= message.len());
                prop_assert_eq!(parts.qname(&message).len(), usize::from(parts.qname_length));
            }
            if let Ok(parts) = parse_response(&message) {
                prop_assert!(parts.question_end <= parts.end && usize::from(parts.end) <= message.len());
            }
            check_walk(&message);
        }
    }

    #[test]
    fn what_domain_writes_is_read(described in any_described()) {
        let message = with_flags(written_by_domain(&described), described.flags, false);
        let (qname, qtype, qclass) = &described.question;
        let parts = parse_query(&message).unwrap();
        prop_assert_eq!(parts.qname(&message).as_bytes(), qname.as_slice());
        prop_assert_eq!((parts.qtype, parts.qclass), (*qtype, *qclass));
        prop_assert_eq!(usize::from(parts.labels) + 1, qname.label_count());
        prop_assert_eq!(usize::from(parts.end), message.len());
        check_edns(&described, parts.edns, &message);
        check_records(&described, &message, parts.question_end);

        let response = with_flags(message.clone(), described.flags, true);
        let answered = parse_response(&response).unwrap();
        prop_assert_eq!(answered.question.map(|question| question.end), Some(parts.question_end));
        prop_assert_eq!(answered.edns, parts.edns);
        prop_assert_eq!((answered.end, answered.rcode), (parts.end, described.flags & 0x0f));
        prop_assert!(question_matches(&response, parts.question(&message)));
    }

    #[test]
    fn header_agrees_with_domain(octets in any::<[u8; 12]>()) {
        let ours = Header::read(&octets).unwrap();
        let section = domain::base::HeaderSection::for_message_slice(&octets);
        let (theirs, counts) = (section.header(), section.counts());
        prop_assert_eq!(
            (ours.id(), ours.opcode(), ours.rcode()),
            (theirs.id(), theirs.opcode().to_int(), theirs.rcode().to_int())
        );
        prop_assert_eq!(
            [ours.qr(), ours.aa(), ours.tc(), ours.rd(), ours.ra(), ours.z(), ours.ad(), ours.cd()],
            [theirs.qr(), theirs.aa(), theirs.tc(), theirs.rd(), theirs.ra(), theirs.z(), theirs.ad(), theirs.cd()]
        );
        prop_assert_eq!(
            [ours.question_count(), ours.answer_count(), ours.authority_count(), ours.additional_count()],
            [counts.qdcount(), counts.ancount(), counts.nscount(), counts.arcount()]
        );
    }

    #[test]
    fn what_we_ask_domain_and_hickory_read(
        qname in any_domain_name(),
        (id, qtype, rd, cd) in any::<(u16, u16, bool, bool)>(),
        edns in prop::option::of((512_u16.., any::<bool>())),
    ) {
        let flags = QueryFlags {
            recursion_desired: rd,
            checking_disabled: cd,
            payload_size: edns.map(|(payload_size, _)| payload_size),
            dnssec_ok: edns.is_some_and(|(_, dnssec_ok)| dnssec_ok),
        };
        let mut buffer = [0; 282];
        let name = Name::parse(qname.as_slice()).unwrap();
        let length = write_query(&mut buffer, id, (name, qtype, 1), flags).unwrap();
        let message = &buffer[..length];

        let theirs = domain::base::Message::from_octets(message).unwrap();
        let question = theirs.sole_question().unwrap();
        prop_assert_eq!(question.qname().to_name::<Vec<u8>>(), &qname);
        prop_assert_eq!((question.qtype().to_int(), theirs.header().id()), (qtype, id));
        let opt = theirs.opt().map(|opt| (opt.udp_payload_size(), opt.dnssec_ok()));
        prop_assert_eq!(opt, edns);

        let theirs = hickory_proto::op::Message::from_vec(message).unwrap();
        prop_assert_eq!(theirs.queries.len(), 1);
        prop_assert_eq!(u16::from(theirs.queries[0].query_type()), qtype);
        prop_assert_eq!((theirs.metadata.recursion_desired, theirs.metadata.checking_disabled), (rd, cd));
        let opt = theirs.edns.map(|edns| (edns.max_payload(), edns.flags().dnssec_ok));
        prop_assert_eq!(opt, edns);
    }

    #[test]
    fn what_hickory_asks_is_read(labels in prop::collection::vec("[a-z]{1,10}", 0..6), id: u16, edns: bool) {
        use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
        let qname = hickory_proto::rr::Name::from_labels(labels.iter().map(|label| label.as_bytes())).unwrap();
        let mut theirs = Message::new(id, MessageType::Query, OpCode::Query);
        theirs.add_query(Query::query(qname.clone(), hickory_proto::rr::RecordType::AAAA));
        if edns {
            let mut opt = Edns::new();
            opt.set_max_payload(1400).set_dnssec_ok(true);
            theirs.set_edns(opt);
        }
        let message = theirs.to_vec().unwrap();
        let parts = parse_query(&message).unwrap();
        let qname: Vec<_> = qname.iter().collect();
        prop_assert_eq!(parts.qname(&message).labels().collect::<Vec<_>>(), qname);
        prop_assert_eq!((parts.qtype, parts.qclass, usize::from(parts.end)), (28, 1, message.len()));
        let read = parts.edns.map(|edns| (edns.payload_size, edns.dnssec_ok));
        prop_assert_eq!(read, edns.then_some((1400, true)));
    }
}
