//! Answers: those made here, and those that backends sent.

use super::Env;
use super::query::Query;
use crate::config::Tuning;
use crate::counters::{Counter, Shard};
use wire::answer::EdnsPolicy;
use wire::codes::rcode;
use wire::message::Header;

/// Turns the query in its buffer into an answer with `rcode` and no records; the answer's length in bytes.
pub fn with_rcode(query: &mut Query<'_>, env: &Env<'_>, rcode: u16) -> usize {
    wire::answer::with_rcode(query.message, &query.parts, rcode, edns(&env.config.tuning))
}

/// An answer without records that says: ask again over TCP; its length in bytes.
pub fn truncated(query: &mut Query<'_>, env: &Env<'_>) -> usize {
    wire::answer::truncated(query.message, &query.parts, edns(&env.config.tuning))
}

/// Counts an answer that was made or found here: since 1.8 dnsdist's `responses` holds these too, and they take part in
/// the latencies, with 0.
pub fn count_own(message: &[u8], shard: &Shard) {
    shard.count(Counter::Responses);
    count_rcode(message, shard);
    shard.count(Counter::Latency0To1);
    shard.count(Counter::LatencyCount);
}

/// The frontend-* counters, by the four bits of response code that are in the header.
fn count_rcode(message: &[u8], shard: &Shard) {
    match Header::read(message).map(|header| header.rcode().into()) {
        Some(rcode::NOERROR) => shard.count(Counter::FrontendNoerror),
        Some(rcode::NXDOMAIN) => shard.count(Counter::FrontendNxdomain),
        Some(rcode::SERVFAIL) => shard.count(Counter::FrontendServfail),
        _ => {}
    }
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
