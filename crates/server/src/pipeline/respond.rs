//! Answers: those made here, and those that backends sent.

use super::Env;
use super::query::Query;

/// Turns the query in its buffer into an answer with `rcode` and no records; the answer's length in bytes.
pub fn with_rcode(query: &mut Query<'_>, env: &Env<'_>, rcode: u8) -> usize {
    let edns = env.config.tuning.edns_in_self_generated.then_some(env.config.tuning.payload_size_self_generated);
    wire::answer::with_rcode(query.message, &query.parts, rcode, edns)
}
