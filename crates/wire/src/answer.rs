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
use crate::message::{HEADER_LENGTH, Header, QueryParts, parse_response};
use crate::message::{OPT_LENGTH, opt_record};

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
    let opt = match (edns, parts.edns) {
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
    header.set_ra(query.rd());
    header.set_cd(query.cd());
    header.set_rcode(rcode);
    header.set_question_count(questions);
    header.set_additional_count(additional);
    header.write(buffer).expect("it was just read from there");
}

/// Cuts the response of `length` octets in `buffer` down to header, question and OPT record, and sets TC: what to do
/// when it is too long for its way. Returns the new length. A response that cannot be parsed becomes a header alone; 0
/// where it does not even have one.
pub fn truncate_response(buffer: &mut [u8], length: usize) -> usize {
    let length = length.min(buffer.len());
    let message = &mut buffer[..length];
    let Some(mut header) = Header::read(message) else {
        return 0;
    };
    let parts = parse_response(message).ok();
    let edns = parts.and_then(|parts| parts.edns);
    let mut end = parts.map_or(HEADER_LENGTH, |parts| usize::from(parts.question_end));
    header.set_tc(true);
    header.set_question_count(parts.is_some_and(|parts| parts.question.is_some()).into());
    header.set_answer_count(0);
    header.set_authority_count(0);
    header.set_additional_count(edns.is_some().into());
    if let Some(edns) = edns {
        message.copy_within(usize::from(edns.start)..usize::from(edns.end), end);
        end += usize::from(edns.end - edns.start);
    }
    header.write(message).expect("it was just read from there");
    end
}
