//! Zeroed memory of atomic words straight from the allocator, and a hint to the processor about it.

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

/// Asks the processor for the cache line of the word at `place`, which will be written soon; does nothing where there is no such
/// instruction, or no such word.
#[inline]
pub(super) fn prefetch(words: &[AtomicU64], place: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint. It reads nothing and faults at no address, one outside the words included.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(words.as_ptr().wrapping_add(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, place);
}
