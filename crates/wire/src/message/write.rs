//! Queries of our own: health checks, and what the generator asks.

use super::edns;
use super::header::{HEADER_LENGTH, Header};
use crate::name::Name;

/// What a query of our own asks for besides its question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryFlags {
    /// Recursion desired.
    pub recursion_desired: bool,
    /// Checking disabled.
    pub checking_disabled: bool,
    /// With EDNS, and the largest UDP payload in octets.
    pub payload_size: Option<u16>,
    /// DNSSEC records are welcome; needs `payload_size`.
    pub dnssec_ok: bool,
}

/// Writes a query of opcode QUERY to the start of `buffer`, and returns its length; `None` where it does not fit, which
/// cannot be with 282 octets. Octets of the buffer may have been written all the same.
#[must_use]
pub fn write_query(
    buffer: &mut [u8],
    id: u16,
    (qname, qtype, qclass): (Name<'_>, u16, u16),
    flags: QueryFlags,
) -> Option<usize> {
    let mut header = Header::default();
    header.set_id(id);
    header.set_rd(flags.recursion_desired);
    header.set_cd(flags.checking_disabled);
    header.set_question_count(1);
    header.set_additional_count(flags.payload_size.is_some().into());
    header.write(buffer)?;
    let fields = HEADER_LENGTH + qname.len();
    let end = fields + 4;
    buffer
        .get_mut(HEADER_LENGTH..fields)?
        .copy_from_slice(qname.as_bytes());
    buffer
        .get_mut(fields..fields + 2)?
        .copy_from_slice(&qtype.to_be_bytes());
    buffer
        .get_mut(fields + 2..end)?
        .copy_from_slice(&qclass.to_be_bytes());
    let Some(payload_size) = flags.payload_size else {
        return Some(end);
    };
    let opt = edns::opt_record(payload_size, 0, flags.dnssec_ok);
    buffer.get_mut(end..end + opt.len())?.copy_from_slice(&opt);
    Some(end + opt.len())
}
