//! The log as it is.

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(super) use std::sync::OnceLock;

    /// Two words: a record fills a segment.
    pub(super) const SEGMENT_BITS: u32 = 1;

    pub(super) fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }

    pub(super) type Words = Box<[AtomicU64]>;

    pub(super) fn try_zeroed(count: usize) -> Option<Words> {
        Some((0..count).map(|_| AtomicU64::new(0)).collect())
    }
}
#[path = "../../../crates/server/src/pipeline/cache/log.rs"]
mod log;
include!("checks.rs");
