//! The writer's words may be seen before the moved head: a reader takes what is half overwritten for whole.

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(super) use std::sync::OnceLock;

    /// Two words: a record fills a segment.
    pub(super) const SEGMENT_BITS: u32 = 1;
    pub(super) const FIRST: u64 = 1;

    pub(super) fn fence(order: Ordering) {
        if order != Ordering::Release {
            loom::sync::atomic::fence(order);
        }
    }

    pub(super) type Words = Box<[AtomicU64]>;

    pub(super) fn try_zeroed(count: usize) -> Option<Words> {
        Some((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    /// As the kernel does it, but a word at a time.
    pub(super) fn give_back(words: &Words) -> u64 {
        let zero = |word: &AtomicU64| word.store(0, Ordering::Relaxed);
        words.iter().for_each(zero);
        1
    }
}
#[path = "../../../crates/server/src/pipeline/cache/log.rs"]
mod log;
include!("checks.rs");
