//! Answers made in the buffer that holds the query: what stays, stays where it is.
//!
//! The question is left byte for byte, its case included. Header bits of an answer of our own (RFC 1035 §4.1.1):
//!
//! | QR | opcode | AA | TC | RD | RA | Z | AD | CD | RCODE |
//! | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
//! | 1 | copied | 0 | 0, or 1 | copied | = RD | 0 | 0 | copied | given |
//!
//! RA = RD is what dnsdist's own answers say.

use crate::codes::rcode as rcodes;
pub use crate::message::OPT_LENGTH;
use crate::message::{
    EdnsOption, HEADER_LENGTH, Header, QueryParts, QuestionParts, opt_record, parse_response,
};

/// What every client takes over UDP, in octets (RFC 1035 §4.2.1).
const UDP_PAYLOAD_MIN: usize = 512;

/// Whether an answer to a query with EDNS has an OPT record. One to a query without it never does (RFC 6891 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdnsPolicy {
    /// It has not.
    Omit,
    /// It has: with this UDP payload size in octets, the query's DO bit, and no options.
    Answer { payload_size: u16 },
}

/// Turns the query in `buffer` into an answer without records and with a response code of up to twelve bits. Returns its
/// length, never more than the query's.
///
/// A code above 15 needs an OPT record to be said; without one SERVFAIL is said, for its lower bits alone would mean
/// something else (those of BADVERS: all well).
///
/// # Panics
/// Where `buffer` is shorter than the message that `parts` come from.
#[inline]
pub fn with_rcode(buffer: &mut [u8], parts: &QueryParts, rcode: u16, edns: EdnsPolicy) -> usize {
    finish(buffer, parts, rcode, false, edns)
}

/// Turns the query in `buffer` into an answer that says: ask again over TCP. Returns its length, never more than the
/// query's.
///
/// # Panics
/// Where `buffer` is shorter than the message that `parts` come from.
#[inline]
pub fn truncated(buffer: &mut [u8], parts: &QueryParts, edns: EdnsPolicy) -> usize {
    finish(buffer, parts, rcodes::NOERROR, true, edns)
}

#[inline]
fn finish(buffer: &mut [u8], parts: &QueryParts, rcode: u16, tc: bool, edns: EdnsPolicy) -> usize {
    let question_end = usize::from(parts.question_end);
    let opt = match (edns, &parts.edns) {
        (EdnsPolicy::Answer { payload_size }, Some(query)) => Some(opt_record(
            payload_size,
            (rcode >> 4) as u8,
            query.dnssec_ok,
        )),
        _ => None,
    };
    let low = if rcode > 15 && opt.is_none() {
        rcodes::SERVFAIL
    } else {
        rcode
    };
    set_header(buffer, low as u8, tc, (1, opt.is_some().into()));
    let Some(opt) = opt else { return question_end };
    // The query's own OPT record lies behind its question, so that there is room for this one.
    buffer[question_end..question_end + OPT_LENGTH].copy_from_slice(&opt);
    question_end + OPT_LENGTH
}

/// The fixed fields of an OPT record in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptFields {
    /// The largest UDP payload its sender takes, in octets.
    pub payload_size: u16,
    /// The upper eight of the twelve bits of response code; the lower four are in the header.
    pub extended_rcode: u8,
    /// As in the query (RFC 3225 §3).
    pub dnssec_ok: bool,
}

/// Octets of an OPT record with these options.
#[inline]
#[must_use]
pub fn opt_length(options: &[EdnsOption<'_>]) -> usize {
    let lengths = options.iter().map(|option| 4 + option.value.len());
    OPT_LENGTH + lengths.sum::<usize>()
}

/// Puts an OPT record behind the `length` octets of an answer, counts it, and returns the new length. Options for which
/// the buffer has no room are left out, the last first.
///
/// # Panics
/// Where `buffer` has no room for [`OPT_LENGTH`] octets more, or holds no header.
#[inline]
pub fn append_opt(
    buffer: &mut [u8],
    length: usize,
    fields: OptFields,
    options: &[EdnsOption<'_>],
) -> usize {
    let mut end = length + OPT_LENGTH;
    let record = opt_record(fields.payload_size, fields.extended_rcode, fields.dnssec_ok);
    buffer[length..end].copy_from_slice(&record);
    if !options.is_empty() {
        end = append_options(buffer, end, options);
    }
    let mut header = Header::read(buffer).expect("an answer has a header");
    header.set_additional_count(header.additional_count() + 1);
    header.write(buffer).expect("it was just read from there");
    end
}

/// Options behind an OPT record that ends at `start` and has none yet; where it ends now.
fn append_options(buffer: &mut [u8], start: usize, options: &[EdnsOption<'_>]) -> usize {
    let mut at = start;
    for option in options {
        let length = option.value.len();
        let Some(place) = buffer.get_mut(at..at + 4 + length) else {
            break;
        };
        place[..2].copy_from_slice(&option.code.to_be_bytes());
        place[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        place[4..].copy_from_slice(option.value);
        at += 4 + length;
    }
    let length = (at - start) as u16;
    buffer[start - 2..start].copy_from_slice(&length.to_be_bytes());
    at
}

/// Turns a message that could not be parsed (see [`crate::message::QueryError::answer`]) into a header alone, with
/// response code `rcode`: what was not understood is not sent back. Returns its length, 12, or 0 where the message does
/// not even have a header.
#[inline]
pub fn header_only(buffer: &mut [u8], rcode: u8) -> usize {
    if buffer.len() < HEADER_LENGTH {
        return 0;
    }
    set_header(buffer, rcode, false, (0, 0));
    HEADER_LENGTH
}

/// Makes the header of a query that of its answer.
#[inline]
fn set_header(buffer: &mut [u8], rcode: u8, tc: bool, (questions, additional): (u16, u16)) {
    let query = Header::read(buffer).expect("a parsed message has a header");
    let mut header = Header::default();
    header.set_id(query.id());
    header.set_qr(true);
    header.set_opcode(query.opcode());
    header.set_tc(tc);
    header.set_rd(query.rd());
    // What was not even understood says nothing of recursion.
    header.set_ra(query.rd() && questions > 0);
    header.set_cd(query.cd());
    header.set_rcode(rcode);
    header.set_question_count(questions);
    header.set_additional_count(additional);
    header.write(buffer).expect("it was just read from there");
}

/// Cuts the response of `length` octets in `buffer` down to header, question and OPT record, and sets TC: what to do
/// when it is too long for its way. Returns the new length, which any client takes: where options would make it more than
/// 512 octets, the OPT record loses them. A response whose records cannot be parsed keeps its question, one without a whole
/// question becomes a header alone; 0 where it does not even have one.
pub fn truncate_response(buffer: &mut [u8], length: usize) -> usize {
    let length = length.min(buffer.len());
    let message = &mut buffer[..length];
    let Some(mut header) = Header::read(message) else {
        return 0;
    };
    let edns = parse_response(message).ok().and_then(|parts| parts.edns);
    let is_asked = header.qr() && header.question_count() == 1;
    let question = is_asked
        .then(|| QuestionParts::parse(message).ok())
        .flatten();
    let mut end = question.map_or(HEADER_LENGTH, |question| question.end.into());
    header.set_tc(true);
    header.set_question_count(question.is_some().into());
    header.set_answer_count(0);
    header.set_authority_count(0);
    header.set_additional_count(edns.is_some().into());
    if let Some(edns) = edns {
        message.copy_within(usize::from(edns.start)..usize::from(edns.end), end);
        end += match usize::from(edns.end - edns.start) {
            whole if end + whole <= UDP_PAYLOAD_MIN => whole,
            _ => {
                // Its last field is the length of its options.
                message[end + OPT_LENGTH - 2..end + OPT_LENGTH].fill(0);
                OPT_LENGTH
            }
        };
    }
    header.write(message).expect("it was just read from there");
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::{Composed, query};
    use crate::message::{QueryError, Section, parse_query};
    use proptest::prelude::*;

    const ANSWER: EdnsPolicy = EdnsPolicy::Answer { payload_size: 1400 };

    /// The answer to `message` with `rcode`.
    fn answered(message: &[u8], rcode: u16, edns: EdnsPolicy) -> Vec<u8> {
        let mut buffer = message.to_vec();
        let parts = parse_query(&buffer).unwrap();
        let length = with_rcode(&mut buffer, &parts, rcode, edns);
        buffer.truncate(length);
        buffer
    }

    #[test]
    fn refused_keeps_the_question_and_its_case() {
        let query = query("wWw.Example.com", 255, None);
        let answer = answered(&query, 5, ANSWER);
        assert_eq!(
            &answer[..12],
            &[0x12, 0x34, 0x81, 0x85, 0, 1, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(&answer[12..], &query[12..]);
    }

    #[test]
    fn rd_cd_and_opcode_are_copied_and_the_other_flags_are_not() {
        for flags in 0..=0x7fff_u16 {
            let mut message = query("example.com", 1, None);
            message[2..4].copy_from_slice(&flags.to_be_bytes());
            let answer = answered(&message, 3, ANSWER);
            let ra = if flags & 0x0100 == 0 { 0 } else { 0x0080 };
            let expected = 0x8000 | flags & 0x7910 | ra | 3;
            assert_eq!(
                Header::read(&answer).unwrap().flags(),
                expected,
                "{flags:#06x}"
            );
        }
    }

    #[test]
    fn f11_an_opt_record_answers_one() {
        let options = b"\x00\x0a\x00\x08abcdefgh";
        let with_do = Composed::new(0x0100)
            .question(b"\x00", 1, 1)
            .opt(0x8000, options)
            .octets;
        let answer = answered(&with_do, 0, ANSWER);
        assert_eq!(
            &answer[17..],
            b"\x00\x00\x29\x05\x78\x00\x00\x80\x00\x00\x00"
        );
        assert_eq!(&answer[4..12], &[0, 1, 0, 0, 0, 0, 0, 1]);
        let without_do = Composed::new(0x0100)
            .question(b"\x00", 1, 1)
            .opt(0x7fff, options)
            .octets;
        assert_eq!(
            &answered(&without_do, 0, ANSWER)[17..],
            b"\x00\x00\x29\x05\x78\x00\x00\x00\x00\x00\x00"
        );
        let omitted = answered(&with_do, 0, EdnsPolicy::Omit);
        assert_eq!((omitted.len(), &omitted[10..12]), (17, &[0, 0][..]));
    }

    #[test]
    fn f11_an_opt_record_is_put_behind_records() {
        let mut buffer = Composed::response("www.example.com", 1)
            .record(Section::Additional, b"\xc0\x0c", 1, 60, &[192, 0, 2, 1])
            .octets;
        let length = buffer.len();
        buffer.resize(length + 50, 0xff);
        let fields = OptFields {
            payload_size: 1_400,
            extended_rcode: 1,
            dnssec_ok: true,
        };
        let option = |code, value| EdnsOption { code, value };
        // The third has no room.
        let options = [option(3, b"ns1"), option(15, b""), option(10, b"12345678")];
        assert_eq!(opt_length(&options[..2]), 11 + 7 + 4);
        buffer.truncate(length + opt_length(&options) - 1);
        let length = append_opt(&mut buffer, length, fields, &options);
        let parts = parse_response(&buffer[..length]).unwrap();
        let edns = parts.edns.unwrap();
        assert_eq!((edns.payload_size, edns.dnssec_ok), (1_400, true));
        assert_eq!(parts.rcode, 16);
        assert_eq!(
            (usize::from(parts.end), parts.additional_count),
            (length, 2)
        );
        assert!(edns.options(&buffer).eq(options[..2].iter().copied()));
    }

    #[test]
    fn f11_badvers_needs_an_opt_record() {
        for version in 1..=255_u32 {
            let query = Composed::new(0x0100)
                .question(b"\x00", 1, 1)
                .opt(version << 16, b"")
                .octets;
            let answer = answered(&query, rcodes::BADVERS, ANSWER);
            let parts = parse_response(&answer).unwrap();
            let edns = parts.edns.unwrap();
            assert_eq!((parts.rcode, edns.version), (16, 0));
        }
        let query = query("example.com", 1, None);
        assert_eq!(
            parse_response(&answered(&query, rcodes::BADVERS, ANSWER))
                .unwrap()
                .rcode,
            2
        );
    }

    #[test]
    fn f12_records_of_a_query_are_dropped() {
        let soa = [0; 22];
        let message = Composed::new(0x2500)
            .question(b"\x01a\x00", 251, 1)
            .record(Section::Authority, b"\xc0\x0c", 6, 0, &soa)
            .opt(0, b"")
            .record_of_class(Section::Additional, b"\x00", (250, 255, 0), b"signature")
            .octets;
        let answer = answered(&message, 4, ANSWER);
        let parts = parse_response(&answer).unwrap();
        assert_eq!((parts.authority_count, parts.additional_count), (0, 1));
        assert_eq!((usize::from(parts.end), parts.rcode), (answer.len(), 4));
        assert_eq!(&answer[12..19], &message[12..19]);
    }

    #[test]
    fn tc_sends_the_client_to_tcp() {
        let mut buffer = query("example.com", 255, Some(4096));
        let parts = parse_query(&buffer).unwrap();
        let length = truncated(&mut buffer, &parts, ANSWER);
        let parts = parse_response(&buffer[..length]).unwrap();
        assert!(parts.truncated);
        assert_eq!(
            (parts.rcode, parts.edns.map(|edns| edns.payload_size)),
            (0, Some(1400))
        );
    }

    #[test]
    fn f9_what_is_not_understood_is_not_sent_back() {
        let mut buffer = query("example.com", 1, None);
        buffer[4..12].fill(0xff);
        let rcode = parse_query(&buffer).unwrap_err().answer().unwrap();
        assert_eq!(header_only(&mut buffer, rcode), 12);
        assert_eq!(
            &buffer[..12],
            &[0x12, 0x34, 0x81, 0x01, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(header_only(&mut [0; 11], rcode), 0);
    }

    #[test]
    fn f8_a_long_response_is_cut_to_its_question() {
        let long = Composed::response("www.example.com", 16)
            .record(Section::Answer, b"\xc0\x0c", 16, 60, &[b'x'; 900])
            .record(Section::Authority, b"\xc0\x0c", 2, 60, b"\xc0\x0c")
            .opt(0x0000_8000, b"\x00\x0a\x00\x02ab");
        let mut buffer = long.octets.clone();
        let length = truncate_response(&mut buffer, long.octets.len());
        let parts = parse_response(&buffer[..length]).unwrap();
        assert!(parts.truncated);
        assert_eq!(
            (
                parts.answer_count,
                parts.authority_count,
                parts.additional_count
            ),
            (0, 0, 1)
        );
        assert_eq!((length, usize::from(parts.end)), (33 + 17, length));
        assert_eq!(&buffer[12..33], &long.octets[12..33]);
        let options: Vec<_> = parts
            .edns
            .unwrap()
            .options(&buffer)
            .map(|option| option.value.to_vec())
            .collect();
        assert_eq!(options, [b"ab"]);
    }

    #[test]
    fn f8_a_cut_response_fits_every_client() {
        for padding in [0_u8, 100, 200, 255] {
            let option = [&[0, 12, 0, padding][..], &vec![0; padding.into()]].concat();
            let qname = [&[1, b'a'].repeat(127)[..], &[0]].concat();
            let response = Composed::new(0x8180)
                .question(&qname, 1, 1)
                .opt(0x0100_8000, &option);
            let mut buffer = response.octets.clone();
            let length = truncate_response(&mut buffer, response.octets.len());
            let parts = parse_response(&buffer[..length]).unwrap();
            assert!(length <= 512);
            assert_eq!(
                (parts.rcode, parts.edns.map(|edns| edns.dnssec_ok)),
                (16, Some(true))
            );
        }
    }

    #[test]
    fn what_is_no_response_is_cut_to_its_question_and_without_one_to_its_header() {
        let mut broken = Composed::response("www.example.com", 16).octets;
        broken[7] = 200;
        let (length, whole) = (broken.len(), broken.clone());
        assert_eq!(truncate_response(&mut broken, length), 33);
        assert_eq!(
            &broken[..12],
            &[0x12, 0x34, 0x83, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(&broken[12..33], &whole[12..33]);
        // No name ends so.
        let mut junk = whole;
        junk[12] = 0xc0;
        assert_eq!(truncate_response(&mut junk, length), 12);
        assert_eq!(
            &junk[..12],
            &[0x12, 0x34, 0x83, 0x80, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(truncate_response(&mut junk, 11), 0);
        assert_eq!(truncate_response(&mut [0; 5], 100), 0);
        let mut without_question = Composed::new(0x8185).octets;
        assert_eq!(truncate_response(&mut without_question, 12), 12);
    }

    proptest! {
        #[test]
        fn each_query_is_owed_an_answer_that_parses(octets in prop::collection::vec(any::<u8>(), 0..100), rcode in 0_u16..24) {
            let mut buffer = octets.clone();
            let length = match parse_query(&octets) {
                Ok(parts) => {
                    let length = with_rcode(&mut buffer, &parts, rcode, ANSWER);
                    prop_assert_eq!(&buffer[12..usize::from(parts.question_end)], parts.question(&octets));
                    length
                }
                Err(error @ (QueryError::TooShort | QueryError::Response)) => {
                    prop_assert_eq!(error.answer(), None);
                    return Ok(());
                }
                Err(error) => header_only(&mut buffer, error.answer().unwrap()),
            };
            prop_assert!(length <= octets.len());
            prop_assert_eq!(usize::from(parse_response(&buffer[..length]).unwrap().end), length);
        }

        #[test]
        fn any_octets_are_cut_without_panic(mut octets in prop::collection::vec(any::<u8>(), 0..100), length in 0_usize..120) {
            let cut = truncate_response(&mut octets, length);
            prop_assert!(cut <= length);
        }
    }
}
