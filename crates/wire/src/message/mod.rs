//! DNS messages (RFC 1035 §4): parsed into places, never copied.
//!
//! ```text
//!  0 header 12 │ 12 name … │ type 2 │ class 2 │ records … │ trailing octets, if any
//!              └──────── question ────────────┘ question_end        └ end
//! ```
//!
//! Counts in a header size nothing: they are held against the records that are there. Messages are at most 65,535
//! octets; what lies behind that is not looked at.

mod edns;
mod header;
mod query;
mod records;
mod response;
mod write;

pub use edns::OPT_LENGTH;
pub(crate) use edns::opt_record;
pub use edns::{EdnsOption, EdnsOptions, EdnsParts};
pub use header::{HEADER_LENGTH, Header};
pub use query::{QueryError, QueryParts, edns_without_question, parse_query, refused_dnssec_ok};
pub use records::{BrokenRecord, Record, Records, Section};
pub use response::{QuestionParts, ResponseError, ResponseParts, parse_response, question_matches};
pub use write::{QueryFlags, write_query};

/// The longest message there is: TCP's length field has 16 bits (RFC 1035 §4.2.2).
pub const MESSAGE_LENGTH_MAX: usize = 65_535;

/// What can be addressed by the 16-bit places of parts and records.
#[inline]
fn bounded(message: &[u8]) -> &[u8] {
    &message[..message.len().min(MESSAGE_LENGTH_MAX)]
}

#[cfg(test)]
mod tests;
