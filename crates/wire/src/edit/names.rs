//! Which names a record holds, and where their compression pointers are.

use crate::codes::qtype;
use crate::message::{Header, Record, Records};
use crate::name::compressed;
use std::ops::Range;

/// Octets before the first name in data of a type whose names may be compressed, and how many names follow. RFC 3597 §4:
/// "Only the RR types defined in RFC 1035" may be, and those of the types below that "receiving servers MUST decompress" as
/// well, because they were compressed once. Of malformed NAPTR data nothing is known.
#[must_use]
pub fn names_in_rdata(rtype: u16, rdata: &[u8]) -> Option<(usize, usize)> {
    match rtype {
        qtype::NS
        | qtype::CNAME
        | qtype::PTR
        | qtype::MD
        | qtype::MF
        | qtype::MB
        | qtype::MG
        | qtype::MR
        | qtype::NXT => Some((0, 1)),
        qtype::SOA | qtype::MINFO | qtype::RP => Some((0, 2)),
        qtype::MX | qtype::AFSDB | qtype::RT => Some((2, 1)),
        qtype::PX => Some((2, 2)),
        qtype::SRV => Some((6, 1)),
        qtype::SIG => Some((18, 1)),
        qtype::NAPTR => Some((before_replacement(rdata)?, 1)),
        _ => None,
    }
}

/// Whether a sender may compress the names in data of this type (RFC 3597 §4): it is one of RFC 1035.
pub(super) fn may_be_compressed(rtype: u16) -> bool {
    matches!(
        rtype,
        qtype::NS
            | qtype::CNAME
            | qtype::PTR
            | qtype::MD
            | qtype::MF
            | qtype::MB
            | qtype::MG
            | qtype::MR
            | qtype::SOA
            | qtype::MINFO
            | qtype::MX
    )
}

/// Octets before the name of a NAPTR record: two numbers, and three strings with their lengths (RFC 3403 §4.1).
fn before_replacement(rdata: &[u8]) -> Option<usize> {
    let mut at = 4;
    for _ in 0..3 {
        at += 1 + usize::from(*rdata.get(at)?);
    }
    (at < rdata.len()).then_some(at)
}

/// Where the names of a record start: its owner's and those of its data.
pub(super) fn starts(message: &[u8], record: &Record) -> Vec<usize> {
    let mut starts = vec![usize::from(record.owner_start)];
    let Some((before, count)) = names_in_rdata(record.rtype, record.rdata(message)) else {
        return starts;
    };
    let mut at = usize::from(record.rdata_start) + before;
    for _ in 0..count {
        if at >= record.rdata_end.into() {
            break;
        }
        starts.push(at);
        match compressed::skip(message, at) {
            Ok(end) => at = end,
            Err(_) => break,
        }
    }
    starts
}

/// The place of the pointer that ends the name at `start`, if one does.
fn pointer_of(message: &[u8], start: usize) -> Option<usize> {
    let end = compressed::skip(message, start).ok()?;
    let last = end.checked_sub(2).filter(|last| *last >= start)?;
    // The root octet ends a name that has no pointer.
    let mut at = start;
    while at < last {
        at += 1 + usize::from(*message.get(at)?);
    }
    (at == last && message[last] >= 0xc0).then_some(last)
}

/// The pointers of names of records that start at `from` or behind it: where they are, and where they lead.
fn pointers(message: &[u8], question_end: u16, from: usize) -> Option<Vec<(usize, usize)>> {
    let header = Header::read(message)?;
    let mut found = Vec::new();
    for record in Records::new(message, question_end, &header).flatten() {
        if usize::from(record.owner_start) < from {
            continue;
        }
        for start in starts(message, &record) {
            // What runs past its record is no name.
            let place = pointer_of(message, start);
            if let Some(place) = place.filter(|place| place + 2 <= usize::from(record.rdata_end)) {
                let field = u16::from_be_bytes([message[place], message[place + 1]]);
                found.push((place, usize::from(field & 0x3fff)));
            }
        }
    }
    Some(found)
}

/// Whether a name of a record behind these octets leads into them.
pub(super) fn is_led_into(message: &[u8], question_end: u16, octets: Range<usize>) -> bool {
    let found = pointers(message, question_end, octets.end).unwrap_or_default();
    found.iter().any(|(_, target)| octets.contains(target))
}

/// Corrects the pointers of all records that start at `from` or behind it: what they name there will lie `delta` octets
/// further on. To be called before anything moves. `None`, and nothing has changed: a pointer would not reach.
pub(super) fn correct_pointers(
    message: &mut [u8],
    question_end: u16,
    from: usize,
    delta: isize,
) -> Option<()> {
    let mut corrected = Vec::new();
    for (place, target) in pointers(message, question_end, from)? {
        if target >= from {
            let target = target
                .checked_add_signed(delta)
                .filter(|target| *target <= 0x3fff)?;
            corrected.push((place, target as u16 | 0xc000));
        }
    }
    for (place, pointer) in corrected {
        message[place..place + 2].copy_from_slice(&pointer.to_be_bytes());
    }
    Some(())
}
