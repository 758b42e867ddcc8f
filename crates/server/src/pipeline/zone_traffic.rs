//! What concerns zones of our own and cannot be answered in a frame: transfers (RFC 5936, RFC 1995), NOTIFY (RFC 1996),
//! and whatever is signed (RFC 8945). It goes to the asynchronous runtime: [`crate::local::answer`].

use super::query::Query;
use wire::codes::{opcode, qtype};
use wire::message::Records;

/// Whether the query is of that kind. Cost for others: three comparisons.
#[inline]
pub fn concerns(query: &Query<'_>) -> bool {
    matches!(query.parts.qtype, qtype::AXFR | qtype::IXFR)
        || query.header().opcode() == opcode::NOTIFY
        || is_signed(query)
}

/// Whether any of its records is a signature. Cost where there is no record but the OPT record: one comparison.
#[inline]
pub fn is_signed(query: &Query<'_>) -> bool {
    let has_more_than_opt = query.header().records_count() > u32::from(query.parts.edns.is_some());
    has_more_than_opt && has_signature(query)
}

/// RFC 8945 §5.1: the TSIG record "MUST be the last RR in the additional data section". One in another place is a signature
/// too, and answered with FORMERR.
#[cold]
fn has_signature(query: &Query<'_>) -> bool {
    let records = Records::new(query.message, query.parts.question_end, &query.header());
    records.flatten().any(|record| record.rtype == qtype::TSIG)
}
