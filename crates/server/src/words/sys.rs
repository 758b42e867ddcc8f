//! Zeroed memory of atomic words straight from the allocator.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::sync::atomic::AtomicU64;

/// `count` words of zero. The allocator takes large blocks from the kernel as pages that cost nothing until they are
/// touched; writing the zeros ourselves would touch them all.
pub(super) fn zeroed(count: usize) -> Box<[AtomicU64]> {
    // SAFETY: an AtomicU64 has the size and bit validity of u64, so all-zero bytes are the initialised value 0.
    unsafe { Box::<[AtomicU64]>::new_zeroed_slice(count).assume_init() }
}

/// The same; `None` when the allocator has nothing. (Box has such a function, which is not stable yet.)
pub(super) fn try_zeroed(count: usize) -> Option<Box<[AtomicU64]>> {
    let layout = Layout::array::<AtomicU64>(count).ok()?;
    if layout.size() == 0 {
        return Some(Box::default());
    }
    // SAFETY: the layout is not of size zero.
    let start = unsafe { alloc_zeroed(layout) }.cast::<AtomicU64>();
    if start.is_null() {
        return None;
    }
    let words = std::ptr::slice_from_raw_parts_mut(start, count);
    // SAFETY: the global allocator has just given this block for `count` words, which is what a Box of them gives back; zero
    // bytes are AtomicU64s of value 0.
    Some(unsafe { Box::from_raw(words) })
}
