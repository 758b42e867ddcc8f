//! What the log is made of. `model/log` compiles the log with loom's in their place, and with segments of two words.

pub(super) use crate::words::{Words, give_back, try_zeroed};
pub(super) use std::sync::OnceLock;
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Words of a segment as a power of two: 2 MiB, a huge page.
pub(super) const SEGMENT_BITS: u32 = 18;
