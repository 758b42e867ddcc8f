//! Zeroed memory of atomic words straight from the allocator.

#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;

/// `count` words of zero. The allocator takes large blocks from the kernel as pages that cost nothing until they are
/// touched; writing the zeros ourselves would touch them all.
pub(super) fn zeroed(count: usize) -> Box<[AtomicU64]> {
    // SAFETY: an AtomicU64 has the size and bit validity of u64, so all-zero bytes are the initialised value 0.
    unsafe { Box::<[AtomicU64]>::new_zeroed_slice(count).assume_init() }
}
