//! Compiles `crates/server/src/pipeline/cache/log.rs` with loom's atomics, once as it is and three times with something
//! taken out. The checks must hold for the first, and one must fail for each of the others: a check that passes for a
//! weakened twin proves nothing.
//!
//! Run: `cargo test` in this folder.

pub mod exact;
pub mod unannounced;
pub mod unchecked;
pub mod uncounted;
