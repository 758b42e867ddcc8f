//! What concerns zones of our own and cannot be answered in a frame: transfers (RFC 5936, RFC 1995), NOTIFY (RFC 1996),
//! and whatever is signed (RFC 8945). It goes to the asynchronous runtime: [`crate::local::answer`].

use super::query::Query;
use wire::codes::{opcode, qtype};
use wire::message::Records;

/// Whether the query is of that kind. Cost for others: three comparisons.
#[inline]
pub fn concerns(query: &Query<'_>) -> bool {
    let header = query.header();
    let has_more_than_opt = header.additional_count() > u16::from(query.parts.edns.is_some());
    matches!(query.parts.qtype, qtype::AXFR | qtype::IXFR)
        || header.opcode() == opcode::NOTIFY
        || has_more_than_opt && is_signed(query)
}

/// Whether the last record is a signature. RFC 8945 §5.1: it "MUST be the last RR in the additional data section".
#[cold]
fn is_signed(query: &Query<'_>) -> bool {
    let records = Records::new(query.message, query.parts.question_end, &query.header());
    let last = records.flatten().last();
    last.is_some_and(|record| record.rtype == qtype::TSIG)
}
