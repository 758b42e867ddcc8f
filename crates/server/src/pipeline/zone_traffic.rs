//! What concerns zones of our own and cannot be answered in a frame: transfers (RFC 5936, RFC 1995), NOTIFY (RFC 1996),
//! and whatever is signed (RFC 8945). It goes to the asynchronous runtime: [`crate::local::answer`].

use super::drop::DropReason;
use super::query::Query;
use super::{Env, HandOver, HandOverReason, Verdict, rules};
use crate::heap;
use wire::codes::{opcode, qtype};
use wire::message::Records;

/// Whether the query is of that kind. Cost for others: three comparisons.
#[inline]
pub fn concerns(query: &Query<'_>) -> bool {
    matches!(query.parts.qtype, qtype::AXFR | qtype::IXFR)
        || query.header().opcode() == opcode::NOTIFY
        || query.parts.is_signed
}

/// Takes a signed query through the rules; where no key of ours is known, as any other. RFC 8945 §5.3: "When a server has generated a response to a
/// signed request, it signs the response using the same algorithm and key": that takes a clock, so that the query is handed
/// over with what a rule answered ([`super::extras::Extras::answer`]). A delay of it is lost.
#[cold]
pub fn apply_rules<'c>(query: &mut Query<'_>, env: &mut Env<'c>) -> Option<Verdict<'c>> {
    if !env.config.local.has_keys() {
        return rules::apply(query, env);
    }
    let Some(asked) = heap::copy(query.bytes()) else {
        return Some(Verdict::Drop(DropReason::OutOfMemory));
    };
    let found = query.found();
    let verdict = rules::apply(query, env)?;
    let length = match &verdict {
        Verdict::Answer(length) => *length,
        Verdict::HandOver(delayed) if delayed.reason == HandOverReason::Delayed => {
            delayed.found.length.into()
        }
        _ => return Some(verdict),
    };
    // Functions may make an answer of the query as it is: that has a signature, and no room for another one.
    if has_signature(query) {
        return Some(verdict);
    }
    let mut extras = match verdict {
        Verdict::HandOver(delayed) => delayed.extras,
        _ => query.extras.take(),
    };
    let Some(answer) = heap::copy(&query.message[..length]) else {
        return Some(Verdict::Drop(DropReason::OutOfMemory));
    };
    extras.get_or_insert_default().answer = Some(answer.into_boxed_slice());
    query.message[..asked.len()].copy_from_slice(&asked);
    let answered = HandOver {
        reason: HandOverReason::Zone,
        server: None,
        found,
        extras,
    };
    Some(answered.verdict())
}

/// RFC 8945 §5.1: the TSIG record "MUST be the last RR in the additional data section". One in another place is a signature
/// too, and answered with FORMERR.
#[cold]
pub(super) fn has_signature(query: &Query<'_>) -> bool {
    let records = Records::new(query.message, query.parts.question_end, &query.header());
    records.flatten().any(|record| record.rtype == qtype::TSIG)
}
