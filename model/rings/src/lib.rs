//! Compiles `crates/xsk/src/ring.rs` with loom's atomics, once as it is and three times with one ordering weakened. The
//! checks must hold for the first and fail for the others: a check that passes for a weakened twin proves nothing.
//!
//! Run: `cargo test` in this folder. Both sides are threads of loom, and each keeps its own position in a plain field:
//! otherwise loom explores a single interleaving (seen; hence the tests count).

pub mod exact;
pub mod sys;
pub mod unfenced;
pub mod unobserved;
pub mod unpublished;
