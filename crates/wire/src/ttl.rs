//! Times to live of a response's records: found once, when it is stored, and changed in place when it is given out.
//!
//! RFC 1035 §3.2.1, RFC 2181 §8, RFC 2308 §5. The OPT record has no TTL: those octets hold flags (RFC 6891 §6.1.3).

use crate::bytes::{put_u32, u16_at, u32_at};
use crate::codes::qtype;
use crate::message::{
    BrokenRecord, HEADER_LENGTH, Header, MESSAGE_LENGTH_MAX, Records, ResponseParts, Section,
};
use std::fmt;

/// The TTLs of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ttls {
    /// How many places were collected.
    pub count: usize,
    /// The least TTL, in seconds; `None` without records.
    pub minimum: Option<u32>,
    /// The authority section has an SOA record: where nothing was answered, there is nothing to answer (RFC 2308 §2.2).
    pub has_soa: bool,
}

/// Why TTLs were not collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlError {
    /// The response has more records than there are places to note them.
    TooMany,
    /// The records are malformed.
    BadRecords,
}

impl fmt::Display for TtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TtlError::TooMany => "more records than there are places for their TTLs",
            TtlError::BadRecords => "records differ from the header's counts, or are malformed",
        })
    }
}

impl std::error::Error for TtlError {}

/// What the octets of a TTL mean, in seconds: with its highest bit set 0 (RFC 2181 §8).
#[inline]
#[must_use]
pub const fn effective(ttl: u32) -> u32 {
    if ttl > i32::MAX as u32 { 0 } else { ttl }
}

/// Notes in `offsets` where the TTLs of the response in `message` are, and what they say.
///
/// # Errors
/// [`TtlError::TooMany`] where `offsets` is too short, [`TtlError::BadRecords`] where `parts` are not of `message`.
pub fn collect(
    message: &[u8],
    parts: &ResponseParts,
    offsets: &mut [u16],
) -> Result<Ttls, TtlError> {
    let header = Header::read(message).ok_or(TtlError::BadRecords)?;
    let mut ttls = Ttls::default();
    for record in Records::new(message, parts.question_end, &header) {
        let record = record.map_err(|BrokenRecord| TtlError::BadRecords)?;
        if record.rtype == qtype::OPT {
            continue;
        }
        *offsets.get_mut(ttls.count).ok_or(TtlError::TooMany)? = record.ttl_start;
        ttls.count += 1;
        let ttl = effective(record.ttl);
        ttls.minimum = Some(ttls.minimum.map_or(ttl, |minimum| minimum.min(ttl)));
        ttls.has_soa |= record.rtype == qtype::SOA && record.section == Section::Authority;
    }
    Ok(ttls)
}

/// So many records are found without a large array: all but very few responses have fewer.
pub const FEW_RECORDS: usize = 64;

/// As many records as there can be: each takes 11 octets, behind the header.
pub const RECORDS_MAX: usize = (MESSAGE_LENGTH_MAX - HEADER_LENGTH) / 11;

/// Gives each record of the response in `message` the TTL that `new` makes of its type and its TTL, in seconds.
///
/// # Errors
/// [`TtlError::BadRecords`] where `parts` are not of `message`, which is as it was then.
pub fn change_each(
    message: &mut [u8],
    parts: &ResponseParts,
    new: impl Fn(u16, u32) -> u32,
) -> Result<(), TtlError> {
    let mut few = [0; FEW_RECORDS];
    match collect(message, parts, &mut few) {
        Ok(ttls) => change_at(message, &few[..ttls.count], new),
        Err(TtlError::TooMany) => return change_each_of_many(message, parts, new),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Places for as many records as a message can have are 12 KiB of zeros, to be written for each: not for the few.
#[cold]
#[inline(never)]
fn change_each_of_many(
    message: &mut [u8],
    parts: &ResponseParts,
    new: impl Fn(u16, u32) -> u32,
) -> Result<(), TtlError> {
    let mut many = [0; RECORDS_MAX];
    let ttls = collect(message, parts, &mut many)?;
    change_at(message, &many[..ttls.count], new);
    Ok(())
}

/// A record's type, class and TTL: 2, 2 and 4 octets (RFC 1035 §3.2.1); the offsets are those of TTLs.
fn change_at(message: &mut [u8], offsets: &[u16], new: impl Fn(u16, u32) -> u32) {
    for &offset in offsets {
        let at = usize::from(offset);
        let (rtype, ttl) = (u16_at(message, at - 4), u32_at(message, at));
        if let (Some(rtype), Some(ttl)) = (rtype, ttl) {
            put_u32(message, at, new(rtype, effective(ttl)));
        }
    }
}

/// The octets of a TTL, `octets` until now, that is so many seconds lower, down to 0.
#[inline]
#[must_use]
pub const fn aged(octets: u32, seconds: u32) -> u32 {
    effective(octets).saturating_sub(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::Composed;
    use crate::message::parse_response;
    use proptest::prelude::*;

    const TO_QNAME: &[u8] = b"\xc0\x0c";

    fn collected(message: &[u8], offsets: &mut [u16]) -> Result<Ttls, TtlError> {
        collect(message, &parse_response(message).unwrap(), offsets)
    }

    fn two_addresses_and_opt() -> Vec<u8> {
        Composed::response("www.example.com", 1)
            .record(Section::Answer, TO_QNAME, 1, 300, &[192, 0, 2, 1])
            .record(Section::Answer, TO_QNAME, 1, 200, &[192, 0, 2, 2])
            .opt(0x0000_8000, b"")
            .octets
    }

    /// The TTLs that domain reads, OPT records left out.
    fn read_by_domain(message: &[u8]) -> Vec<u32> {
        let message = domain::base::Message::from_octets(message).unwrap();
        let records = message.iter().map(|record| record.unwrap().0);
        records
            .filter(|record| record.rtype().to_int() != 41)
            .map(|record| record.ttl().as_secs())
            .collect()
    }

    #[test]
    fn ttls_are_found_and_the_opt_record_is_left_alone() {
        let mut message = two_addresses_and_opt();
        let mut offsets = [0; 8];
        let ttls = collected(&message, &mut offsets).unwrap();
        assert_eq!(
            ttls,
            Ttls {
                count: 2,
                minimum: Some(200),
                has_soa: false
            }
        );
        let opt = message[message.len() - 11..].to_vec();
        let parts = parse_response(&message).unwrap();
        change_each(&mut message, &parts, |_, ttl| aged(ttl, 250)).unwrap();
        assert_eq!(read_by_domain(&message), [50, 0]);
        change_each(&mut message, &parts, |_, ttl| ttl.max(20)).unwrap();
        assert_eq!(read_by_domain(&message), [50, 20]);
        change_each(&mut message, &parts, |_, ttl| ttl.min(30)).unwrap();
        assert_eq!(read_by_domain(&message), [30, 20]);
        change_each(&mut message, &parts, |_, _| 60).unwrap();
        assert_eq!(read_by_domain(&message), [60, 60]);
        assert_eq!(&message[message.len() - 11..], &opt);
    }

    #[test]
    fn each_record_gets_the_ttl_that_is_made_of_its_own_and_its_type() {
        let new = |rtype, ttl: u32| if rtype == 1 { ttl / 2 } else { ttl };
        // Few, as many as there are places for few, and more.
        for addresses in [0, 1, FEW_RECORDS - 1, FEW_RECORDS, 700] {
            let response = Composed::response("www.example.com", 1).record(
                Section::Answer,
                TO_QNAME,
                16,
                0x8000_0300,
                b"\x01a",
            );
            let records = (0..addresses as u32).fold(response, |response, ttl| {
                response.record(Section::Answer, TO_QNAME, 1, ttl, &[192, 0, 2, 1])
            });
            let mut message = records.opt(0x0000_8000, b"").octets;
            let opt = message[message.len() - 11..].to_vec();
            let parts = parse_response(&message).unwrap();
            assert_eq!(change_each(&mut message, &parts, new), Ok(()));
            let halves = (0..addresses as u32).map(|ttl| ttl / 2);
            let expected: Vec<u32> = std::iter::once(0).chain(halves).collect();
            assert_eq!(read_by_domain(&message), expected);
            assert_eq!(&message[message.len() - 11..], &opt);
        }
    }

    #[test]
    fn of_another_message_no_ttl_is_changed() {
        let message = two_addresses_and_opt();
        let parts = parse_response(&message).unwrap();
        let mut part = message[..70].to_vec();
        let outcome = change_each(&mut part, &parts, |_, _| 7);
        assert_eq!(outcome, Err(TtlError::BadRecords));
        assert_eq!(part, &message[..70]);
    }

    #[test]
    fn too_few_places_are_an_error() {
        assert_eq!(
            collected(&two_addresses_and_opt(), &mut [0; 1]),
            Err(TtlError::TooMany)
        );
        assert!(collected(&two_addresses_and_opt(), &mut [0; 2]).is_ok());
        let none = Composed::response("www.example.com", 1).octets;
        assert_eq!(collected(&none, &mut []), Ok(Ttls::default()));
    }

    #[test]
    fn parts_of_another_message_are_an_error() {
        let message = two_addresses_and_opt();
        let parts = parse_response(&message).unwrap();
        assert_eq!(
            collect(&message[..70], &parts, &mut [0; 8]),
            Err(TtlError::BadRecords)
        );
        assert_eq!(collect(&[], &parts, &mut [0; 8]), Err(TtlError::BadRecords));
    }

    #[test]
    fn an_soa_record_says_that_there_is_nothing() {
        let soa = [TO_QNAME, TO_QNAME, &[0; 20]].concat();
        let found = |section| {
            let message = Composed::response("www.example.com", 1)
                .record(section, TO_QNAME, 6, 3_600, &soa)
                .octets;
            collected(&message, &mut [0; 8]).unwrap()
        };
        let ttls = Ttls {
            count: 1,
            minimum: Some(3_600),
            has_soa: true,
        };
        assert_eq!(found(Section::Authority), ttls);
        // One that was asked for says nothing of absence.
        assert!(!found(Section::Answer).has_soa);
    }

    #[test]
    fn a_ttl_with_its_highest_bit_set_is_zero() {
        let mut message = Composed::response("www.example.com", 1)
            .record(Section::Answer, TO_QNAME, 1, 0x8000_0001, &[192, 0, 2, 1])
            .octets;
        let mut offsets = [0; 1];
        assert_eq!(collected(&message, &mut offsets).unwrap().minimum, Some(0));
        let parts = parse_response(&message).unwrap();
        change_each(&mut message, &parts, |_, ttl| ttl.min(30)).unwrap();
        assert_eq!(read_by_domain(&message), [0]);
    }

    proptest! {
        #[test]
        fn ageing_is_what_domain_reads(
            records in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 0..20)), 0..20),
            seconds in 0_u32..100_000,
        ) {
            let message = records.iter().fold(Composed::response("example.com", 1), |message, (ttl, rdata)| {
                message.record(Section::Answer, TO_QNAME, 65_280, *ttl, rdata)
            });
            let mut message = message.opt(0, b"").octets;
            let mut offsets = [0; 20];
            let count = collected(&message, &mut offsets).unwrap().count;
            for at in offsets[..count].iter().map(|offset| usize::from(*offset)) {
                let ttl = aged(u32_at(&message, at).unwrap(), seconds);
                put_u32(&mut message, at, ttl).unwrap();
            }
            let expected: Vec<_> =
                records.iter().map(|(ttl, _)| effective(*ttl).saturating_sub(seconds)).collect();
            prop_assert_eq!(read_by_domain(&message), expected);
        }
    }
}
