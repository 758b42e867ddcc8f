//! Crate `wire` on any octets: nothing panics, what is written reads back, and `domain` reads the same wherever both accept.

#![no_main]

use domain::base::name::ToName;
use domain::base::{Message, ParsedName};
use domain::dep::octseq::Parser;
use libfuzzer_sys::fuzz_target;
use wire::answer::{EdnsPolicy, OPT_LENGTH, header_only, truncate_response, truncated, with_rcode};
use wire::codes::{qtype, rcode};
use wire::message::{
    EdnsParts, HEADER_LENGTH, Header, QueryFlags, QueryParts, Record, Records, ResponseParts,
    parse_query, parse_response, question_matches, refused_dnssec_ok, write_query,
};
use wire::name::compressed::{expand, skip};
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf, NameError};
use wire::ttl;

type DomainName = domain::base::Name<Vec<u8>>;

fuzz_target!(|octets: &[u8]| {
    names(octets);
    text(octets);
    match parse_query(octets) {
        Ok(parts) => query(octets, &parts),
        Err(error) => {
            let mut buffer = octets.to_vec();
            let length = error
                .answer()
                .map_or(0, |rcode| header_only(&mut buffer, rcode));
            assert!(length == 0 || is_answer(&buffer[..length], octets));
            // What its answer takes the room of.
            let has_opt = refused_dnssec_ok(octets).is_some();
            assert!(!has_opt || octets.len() >= HEADER_LENGTH + OPT_LENGTH);
        }
    }
    if let Ok(parts) = parse_response(octets) {
        response(octets, &parts);
    }
    let mut cut = octets.to_vec();
    let length = truncate_response(&mut cut, octets.len());
    assert!(length <= octets.len() && length <= 512);
});

// ---------------------------------------------------------------------------------------------- names

fn names(octets: &[u8]) {
    if let Ok(name) = Name::parse(octets) {
        let text = name.to_string();
        let back: NameBuf = text.parse().expect("what was printed");
        assert_eq!(back.as_name().as_bytes(), name.as_bytes());
        let theirs: DomainName = text.parse().expect("what was printed");
        assert_eq!(theirs.as_slice(), name.as_bytes());
        assert!(name.suffixes().all(|suffix| name.is_within(&suffix)));
        assert_eq!(name.suffixes().count(), name.labels_count() + 1);
    }
    // Some names that lie in a message, and the places behind them.
    for start in (HEADER_LENGTH..octets.len()).take(64) {
        compressed(octets, start);
    }
}

fn compressed(message: &[u8], start: usize) {
    let mut buffer = [0; NAME_LENGTH_MAX];
    let ours = expand(message, start, &mut buffer);
    let mut parser = Parser::from_ref(message);
    let advanced = parser.advance(start);
    let theirs = advanced.map(|()| ParsedName::parse_ref(&mut parser));
    match (ours, theirs) {
        (Ok(ours), Ok(Ok(theirs))) => {
            assert_eq!(ours.as_bytes(), theirs.to_name::<Vec<u8>>().as_slice());
            assert_eq!(skip(message, start), Ok(parser.pos()));
        }
        (Ok(ours), _) => panic!("domain refuses {ours}"),
        // domain follows pointers into the header.
        (Err(error), Ok(Ok(_))) => assert_eq!(error, NameError::Pointer),
        (Err(_), _) => {}
    }
}

fn text(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else {
        return;
    };
    let Ok(name) = text.parse::<NameBuf>() else {
        return;
    };
    let back: NameBuf = name.to_string().parse().expect("what was printed");
    assert_eq!(back.as_name().as_bytes(), name.as_name().as_bytes());
    if let Ok(theirs) = text.parse::<DomainName>() {
        assert_eq!(theirs.as_slice(), name.as_name().as_bytes());
    }
}

// -------------------------------------------------------------------------------------------- queries

fn query(octets: &[u8], parts: &QueryParts) {
    let end = usize::from(parts.end);
    assert_eq!(
        parse_query(&octets[..end]),
        Ok(*parts),
        "trailing octets mean nothing"
    );
    let records = records(octets, parts.question_end);
    read_by_domain(
        &octets[..end],
        Some((parts.qname(octets), parts.qtype, parts.qclass)),
        &records,
        parts.edns,
    );
    write_back(octets, parts);
    answers(octets, parts);
}

/// A query of our own for the same reads as it was meant.
fn write_back(octets: &[u8], parts: &QueryParts) {
    let header = Header::read(octets).expect("a parsed query has one");
    let flags = QueryFlags {
        recursion_desired: header.rd(),
        checking_disabled: header.cd(),
        payload_size: parts.edns.map(|edns| edns.payload_size),
        dnssec_ok: parts.edns.is_some_and(|edns| edns.dnssec_ok),
    };
    let mut buffer = [0; 282];
    let question = (parts.qname(octets), parts.qtype, parts.qclass);
    let length = write_query(&mut buffer, header.id(), question, flags).expect("282 octets do");
    let written = parse_query(&buffer[..length]).expect("our own query");
    assert_eq!(written.question(&buffer), parts.question(octets));
    assert_eq!(
        written
            .edns
            .map(|edns| (edns.payload_size, edns.dnssec_ok, edns.version)),
        parts
            .edns
            .map(|edns| (edns.payload_size, edns.dnssec_ok, 0))
    );
    assert_eq!(usize::from(written.end), length);
}

fn answers(octets: &[u8], parts: &QueryParts) {
    let wanted = u16::from(octets[0]) << 4 & 0xfff | u16::from(octets[1] & 15);
    for edns in [
        EdnsPolicy::Omit,
        EdnsPolicy::Answer {
            payload_size: 1_232,
        },
    ] {
        let with_opt = edns != EdnsPolicy::Omit && parts.edns.is_some();
        let said = if with_opt || wanted < 16 {
            wanted
        } else {
            rcode::SERVFAIL
        };
        let mut buffer = octets.to_vec();
        let length = with_rcode(&mut buffer, parts, wanted, edns);
        made_answer(&buffer[..length], octets, parts, with_opt, said);
        let mut buffer = octets.to_vec();
        let length = truncated(&mut buffer, parts, edns);
        made_answer(&buffer[..length], octets, parts, with_opt, 0);
        assert!(Header::read(&buffer).is_some_and(|header| header.tc()));
    }
}

fn made_answer(answer: &[u8], query: &[u8], parts: &QueryParts, with_opt: bool, rcode: u16) {
    let read = parse_response(answer).expect("an answer of our own");
    assert!(is_answer(answer, query));
    assert_eq!(usize::from(read.end), answer.len());
    assert!(answer.len() <= usize::from(parts.end));
    assert_eq!(
        &answer[HEADER_LENGTH..usize::from(parts.question_end)],
        parts.question(query)
    );
    assert_eq!((read.edns.is_some(), read.rcode), (with_opt, rcode));
}

/// QR set; ID, opcode, RD and CD as asked.
fn is_answer(answer: &[u8], query: &[u8]) -> bool {
    let (Some(answer), Some(query)) = (Header::read(answer), Header::read(query)) else {
        return false;
    };
    answer.qr()
        && answer.id() == query.id()
        && answer.opcode() == query.opcode()
        && (answer.rd(), answer.cd()) == (query.rd(), query.cd())
}

// ------------------------------------------------------------------------------------------ responses

fn response(octets: &[u8], parts: &ResponseParts) {
    let end = usize::from(parts.end);
    let records = records(octets, parts.question_end);
    let question = parts
        .question
        .map(|question| (question.qname(octets), question.qtype, question.qclass));
    read_by_domain(&octets[..end], question, &records, parts.edns);
    if parts.question.is_some() {
        own_question_matches(octets, parts);
    }
    ttls(octets, parts, &records);
    let mut cut = octets.to_vec();
    let length = truncate_response(&mut cut, octets.len());
    let read = parse_response(&cut[..length]).expect("what was cut");
    assert!(read.truncated && usize::from(read.end) == length);
    assert_eq!((read.question, read.rcode), (parts.question, parts.rcode));
    assert_eq!(read.edns.is_some(), parts.edns.is_some());
}

fn own_question_matches(octets: &[u8], parts: &ResponseParts) {
    let end = usize::from(parts.question_end);
    let mut question = octets[HEADER_LENGTH..end].to_vec();
    let fields = question.len() - 4;
    question[..fields].make_ascii_uppercase();
    assert!(question_matches(octets, &question));
    for place in fields..question.len() {
        question[place] ^= 0x20;
        assert!(!question_matches(octets, &question));
        question[place] ^= 0x20;
    }
}

/// Only the four octets of each TTL change, and as was said.
fn ttls(octets: &[u8], parts: &ResponseParts, records: &[Record]) {
    let with_ttl: Vec<&Record> = records
        .iter()
        .filter(|record| record.rtype != qtype::OPT)
        .collect();
    let mut places = vec![0; with_ttl.len()];
    let found = ttl::collect(octets, parts, &mut places).expect("room for all");
    let effective = |record: &&Record| ttl::effective(record.ttl);
    assert_eq!(found.count, with_ttl.len());
    assert_eq!(found.minimum, with_ttl.iter().map(effective).min());
    let mut aged = octets.to_vec();
    for place in places.into_iter().map(usize::from) {
        let ttl: &mut [u8; 4] = aged[place..].first_chunk_mut().expect("a TTL");
        *ttl = ttl::aged(u32::from_be_bytes(*ttl), 100).to_be_bytes();
    }
    let bounded = ttl::change_each(&mut aged, parts, |_, ttl| ttl.clamp(5, 3_600));
    assert_eq!(bounded, Ok(()));
    let mut expected = octets.to_vec();
    for record in with_ttl {
        let ttl = ttl::effective(record.ttl)
            .saturating_sub(100)
            .clamp(5, 3_600);
        let place = usize::from(record.ttl_start);
        expected[place..place + 4].copy_from_slice(&ttl.to_be_bytes());
    }
    assert_eq!(aged, expected);
}

fn records(octets: &[u8], start: u16) -> Vec<Record> {
    let header = Header::read(octets).expect("a parsed message has one");
    Records::new(octets, start, &header)
        .map(|record| record.expect("a parsed message has whole records"))
        .collect()
}

/// `message`, which ends with its last record, as domain reads it.
fn read_by_domain(
    message: &[u8],
    question: Option<(Name<'_>, u16, u16)>,
    records: &[Record],
    edns: Option<EdnsParts>,
) {
    let theirs = Message::from_octets(message).expect("domain wants twelve octets");
    if let Some((qname, qtype, qclass)) = question {
        let asked = theirs.sole_question().expect("domain reads the question");
        let name = asked.qname().to_name::<Vec<u8>>();
        assert_eq!(name.as_slice(), qname.as_bytes());
        assert_eq!(
            (asked.qtype().to_int(), asked.qclass().to_int()),
            (qtype, qclass)
        );
    }
    records_by_domain(message, &theirs, records);
    let Some((ours, theirs)) = edns.zip(theirs.opt()) else {
        return;
    };
    assert_eq!(ours.payload_size, theirs.udp_payload_size());
    assert_eq!(
        (ours.version, ours.dnssec_ok),
        (theirs.version(), theirs.dnssec_ok())
    );
}

fn records_by_domain(message: &[u8], theirs: &Message<&[u8]>, records: &[Record]) {
    let mut ours = records.iter();
    let Ok(section) = theirs.answer() else {
        panic!("domain finds no end of the question");
    };
    let mut section = Some(section);
    while let Some(mut current) = section {
        for theirs in &mut current {
            let ours = ours.next().expect("no more than the header counts");
            let mut buffer = [0; NAME_LENGTH_MAX];
            let owner = expand(message, ours.owner_start.into(), &mut buffer);
            // A pointer that both refuse to follow; domain stops there, we need not know.
            let Ok(theirs) = theirs else {
                assert!(owner.is_err(), "domain refuses {owner:?}");
                return;
            };
            if let Ok(owner) = owner {
                assert_eq!(
                    owner.as_bytes(),
                    theirs.owner().to_name::<Vec<u8>>().as_slice()
                );
            }
            assert_eq!(
                (ours.rtype, ours.class),
                (theirs.rtype().to_int(), theirs.class().to_int())
            );
            assert_eq!(
                (ours.ttl, ours.rdata(message).len()),
                (theirs.ttl().as_secs(), theirs.rdlen().into())
            );
        }
        section = current
            .next_section()
            .expect("every record of it was readable");
    }
    assert!(ours.next().is_none(), "domain reads as many records");
}
