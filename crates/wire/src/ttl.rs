//! Times to live of a response's records: found once, when it is stored, and changed in place when it is given out.
//!
//! RFC 1035 §3.2.1, RFC 2181 §8, RFC 2308 §5. The OPT record has no TTL: those octets hold flags (RFC 6891 §6.1.3).

use crate::bytes::{put_u32, u32_at};
use crate::codes::qtype;
use crate::message::{BrokenRecord, Header, Record, Records, ResponseParts, Section};
use std::fmt;

/// The TTLs of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ttls {
    /// How many places were collected.
    pub count: usize,
    /// The least TTL, in seconds; `None` without records.
    pub minimum: Option<u32>,
    /// How long the absence of what was asked for may be believed, in seconds: the lesser of TTL and MINIMUM of the SOA
    /// record in the authority section (RFC 2308 §5); `None` without one.
    pub negative: Option<u32>,
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
        if record.rtype == qtype::SOA && record.section == Section::Authority {
            ttls.negative = soa_minimum(message, &record).map(|minimum| minimum.min(ttl));
        }
    }
    Ok(ttls)
}

/// The MINIMUM field of an SOA record, its last (RFC 1035 §3.3.13).
fn soa_minimum(message: &[u8], soa: &Record) -> Option<u32> {
    // Two names of at least one octet and five numbers.
    let whole = soa.rdata(message).len() >= 2 + 5 * 4;
    whole.then(|| u32_at(message, usize::from(soa.rdata_end) - 4).map(effective))?
}

/// Takes `seconds` off each TTL, down to 0.
#[inline]
pub fn age(message: &mut [u8], offsets: &[u16], seconds: u32) {
    change(message, offsets, |ttl| ttl.saturating_sub(seconds));
}

/// Lowers each TTL that is above `maximum`, in seconds, to it.
#[inline]
pub fn cap(message: &mut [u8], offsets: &[u16], maximum: u32) {
    change(message, offsets, |ttl| ttl.min(maximum));
}

/// Raises each TTL that is below `minimum`, in seconds, to it.
#[inline]
pub fn floor(message: &mut [u8], offsets: &[u16], minimum: u32) {
    change(message, offsets, |ttl| ttl.max(minimum));
}

/// Sets each TTL to `seconds`.
#[inline]
pub fn set(message: &mut [u8], offsets: &[u16], seconds: u32) {
    change(message, offsets, |_| seconds);
}

/// Places outside the message are passed over.
#[inline]
fn change(message: &mut [u8], offsets: &[u16], new: impl Fn(u32) -> u32) {
    for offset in offsets {
        let at = usize::from(*offset);
        let changed = u32_at(message, at).map(|ttl| new(effective(ttl)));
        if let Some(ttl) = changed {
            put_u32(message, at, ttl);
        }
    }
}
