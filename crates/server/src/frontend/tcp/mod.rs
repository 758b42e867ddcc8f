//! Queries over TCP (RFC 1035 section 4.2.2, RFC 7766).

pub mod counters;

pub use counters::{Counters, Figures};
