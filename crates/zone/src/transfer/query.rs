//! The questions that primaries and secondaries ask each other: SOA, AXFR (RFC 5936 §2.1), IXFR (RFC 1995 §3), NOTIFY
//! (RFC 1996 §3).

use crate::rdata;
use crate::record::RecordRef;
use crate::transfer::serial;
use wire::answer::{OptFields, append_opt, opt_length};
use wire::codes::{class, edns_option, opcode, qtype};
use wire::message::{
    EdnsOption, HEADER_LENGTH, Header, QueryParts, Records, Section, parse_response,
};
use wire::name::{NAME_LENGTH_MAX, Name, compressed};

/// The largest answer over UDP that is asked for, in octets: no path cuts it into fragments.
const PAYLOAD_SIZE: u16 = 1_232;

/// Has a query ask, too, how long the zone may be gone on with (RFC 7314 §2): by an OPT record with an empty EXPIRE option.
pub fn ask_expiry(message: &mut Vec<u8>) {
    let options = [EdnsOption {
        code: edns_option::EXPIRE,
        value: &[],
    }];
    let fields = OptFields {
        payload_size: PAYLOAD_SIZE,
        extended_rcode: 0,
        dnssec_ok: false,
    };
    let length = message.len();
    message.resize(length + opt_length(&options), 0);
    append_opt(message, length, fields, &options);
}

/// What an answer says to that, in seconds; `None`: nothing.
#[must_use]
pub fn stated_expiry(answer: &[u8]) -> Option<u32> {
    let edns = parse_response(answer).ok()?.edns?;
    let option = edns.option(answer, edns_option::EXPIRE)?;
    Some(u32::from_be_bytes(option.try_into().ok()?))
}

/// A query for the zone's SOA record.
#[must_use]
pub fn soa(id: u16, zone: Name<'_>) -> Vec<u8> {
    question(id, opcode::QUERY, zone, qtype::SOA)
}

/// A query for the whole zone.
#[must_use]
pub fn axfr(id: u16, zone: Name<'_>) -> Vec<u8> {
    question(id, opcode::QUERY, zone, qtype::AXFR)
}

/// A query for what changed since this SOA record.
#[must_use]
pub fn ixfr(id: u16, zone: Name<'_>, held: RecordRef<'_>) -> Vec<u8> {
    let mut message = question(id, opcode::QUERY, zone, qtype::IXFR);
    // RFC 1995 §3: "the authority section containing the SOA record of client's version of the zone".
    append(&mut message, held);
    set_counts(&mut message, |header| header.set_authority_count(1));
    message
}

/// Tells a secondary that the zone has this SOA record now.
#[must_use]
pub fn notify(id: u16, zone: Name<'_>, current: Option<RecordRef<'_>>) -> Vec<u8> {
    let mut message = question(id, opcode::NOTIFY, zone, qtype::SOA);
    set_counts(&mut message, |header| header.set_aa(true));
    if let Some(current) = current {
        append(&mut message, current);
        set_counts(&mut message, |header| header.set_answer_count(1));
    }
    message
}

fn question(id: u16, opcode: u8, zone: Name<'_>, kind: u16) -> Vec<u8> {
    let mut header = Header::default();
    header.set_id(id);
    header.set_opcode(opcode);
    header.set_question_count(1);
    let mut message = Vec::with_capacity(512);
    message.extend_from_slice(header.as_bytes());
    message.extend_from_slice(zone.as_bytes());
    message.extend(kind.to_be_bytes());
    message.extend(class::IN.to_be_bytes());
    message
}

/// Appends a record uncompressed; nothing of it is counted yet.
pub(super) fn append(message: &mut Vec<u8>, record: RecordRef<'_>) {
    message.extend_from_slice(record.owner);
    fixed(message, record);
    message.extend_from_slice(record.rdata);
}

/// Type, class, TTL and length.
pub(super) fn fixed(message: &mut Vec<u8>, record: RecordRef<'_>) {
    message.extend(record.kind.to_be_bytes());
    message.extend(record.class.to_be_bytes());
    message.extend(record.ttl.to_be_bytes());
    message.extend((record.rdata.len() as u16).to_be_bytes());
}

/// Changes the header of a message that has one.
pub(super) fn set_counts(message: &mut [u8], change: impl FnOnce(&mut Header)) {
    if let Some(mut header) = Header::read(message) {
        change(&mut header);
        // It was read from there: there is room.
        let _ = header.write(message);
    }
}

/// The serial that an IXFR query or a NOTIFY tells: that of a SOA record at the zone's name, in the authority or the
/// answer section. `None` where there is none, which an IXFR query must have and a NOTIFY may.
#[must_use]
pub fn stated_serial(message: &[u8], parts: &QueryParts) -> Option<u32> {
    let header = Header::read(message)?;
    let section = match header.opcode() {
        opcode::NOTIFY => Section::Answer,
        _ => Section::Authority,
    };
    let records = Records::new(message, parts.question_end, &header);
    let is_soa =
        |record: &wire::message::Record| record.section == section && record.rtype == qtype::SOA;
    let record = records.flatten().find(is_soa)?;
    let mut buffer = [0; NAME_LENGTH_MAX];
    let owner = compressed::expand(message, record.owner_start.into(), &mut buffer).ok()?;
    if owner != parts.qname(message) {
        return None;
    }
    let mut expanded = Vec::new();
    let place = usize::from(record.rdata_start)..usize::from(record.rdata_end);
    rdata::expand(qtype::SOA, message, place, &mut expanded).ok()?;
    serial::of_soa(&expanded)
}

/// Where records of answers to such questions start.
pub(super) const fn question_end(zone: Name<'_>) -> usize {
    HEADER_LENGTH + zone.len() + 4
}
