//! Answers: those made here, and those that backends sent.

use super::Env;
use super::query::Query;
use crate::config::Tuning;
use wire::answer::EdnsPolicy;

/// Turns the query in its buffer into an answer with `rcode` and no records; the answer's length in bytes.
pub fn with_rcode(query: &mut Query<'_>, env: &Env<'_>, rcode: u16) -> usize {
    wire::answer::with_rcode(query.message, &query.parts, rcode, edns(&env.config.tuning))
}

/// setAddEDNSToSelfGeneratedResponses and setPayloadSizeOnSelfGeneratedAnswers.
fn edns(tuning: &Tuning) -> EdnsPolicy {
    if !tuning.edns_in_self_generated {
        return EdnsPolicy::Omit;
    }
    EdnsPolicy::Answer {
        payload_size: tuning.payload_size_self_generated,
    }
}
