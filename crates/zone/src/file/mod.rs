//! Zone files (RFC 1035 §5; `$TTL`: RFC 2308 §4; unknown types: RFC 3597 §5; `$GENERATE` as BIND has it).
//!
//! [`Reader`] takes octets from whatever the caller opened and gives one record after the other, or an error that says
//! where, what, and what would be right; after most errors it goes on with the next line. Nothing is read before it is
//! needed, words are places in a buffer, and everything has a bound: see [`Bounds`].

mod entry;
mod error;
mod generate;
mod print;
mod reader;
mod source;
pub(crate) mod token;
pub(crate) mod words;

pub use error::FileError;
pub use print::print_record;
pub use reader::{Bounds, Opener, Reader, Settings};

/// Octets of one entry, line ends and comments within it included: the longest RDATA needs 262,140 of escapes.
pub const ENTRY_LENGTH_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
