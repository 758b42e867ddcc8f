//! What the log is made of. `model/log` compiles the log with loom's in their place, and with segments of two words.

pub(super) use crate::words::{Words, give_back, try_zeroed};
pub(super) use std::sync::OnceLock;
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Words of a segment as a power of two: 2 MiB, a huge page.
pub(super) const SEGMENT_BITS: u32 = 18;

/// Where the first record lies: at a cache line, as do all that follow records of whole ones, and not at 0, which is no position.
pub(super) const FIRST: u64 = crate::words::LINE as u64;
