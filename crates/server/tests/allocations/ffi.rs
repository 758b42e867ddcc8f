//! An allocator that counts: the system's, with a number per thread. It has nothing to give to a thread that wants that.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

pub(crate) struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST_HELD: Cell<isize> = const { Cell::new(0) };
}

/// How often this thread has asked for memory.
pub(crate) fn allocations() -> u64 {
    COUNT.get()
}

/// The most bytes that this thread held at once since the function was called last, beside those that it held then.
pub(crate) fn most_held() -> isize {
    let most = MOST_HELD.get();
    HELD.set(0);
    MOST_HELD.set(0);
    most
}

/// Does `work` while this thread gets no memory: what cannot do without ends the process ("memory allocation of … bytes failed").
pub(crate) fn without_memory<T>(work: impl FnOnce() -> T) -> T {
    with_at_most(0, work)
}

/// The same where it gets no more than `most` bytes at once.
pub(crate) fn with_at_most<T>(most: usize, work: impl FnOnce() -> T) -> T {
    MOST.set(most);
    let done = work();
    MOST.set(usize::MAX);
    done
}

/// So many bytes more are held, or fewer.
fn hold(bytes: isize) {
    HELD.set(HELD.get() + bytes);
    MOST_HELD.set(MOST_HELD.get().max(HELD.get()));
}

/// Counts; whether there is memory.
fn count(bytes: usize) -> bool {
    COUNT.set(COUNT.get() + 1);
    bytes <= MOST.get()
}

// SAFETY: every call goes to the system's allocator as it came, or gets null, by which an allocator says that it has nothing;
// counting touches thread-local values without destructors, which neither allocates nor fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !count(layout.size()) {
            return null_mut();
        }
        hold(layout.size() as isize);
        // SAFETY: the caller's promise is System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !count(layout.size()) {
            return null_mut();
        }
        hold(layout.size() as isize);
        // SAFETY: the caller's promise is System's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !count(size) {
            return null_mut();
        }
        hold(size as isize - layout.size() as isize);
        // SAFETY: the caller's promise is System's.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        hold(-(layout.size() as isize));
        // SAFETY: the caller's promise is System's.
        unsafe { System.dealloc(old, layout) }
    }
}
