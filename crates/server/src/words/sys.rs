//! Zeroed memory of atomic words, on huge pages where it is large, and a hint to the processor about it.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Octets of a transparent huge page.
const HUGE_PAGE: usize = 2 << 20;

/// From so many octets on, more than half of a huge page, memory is mapped from where one can begin and advised so: a look-up in a
/// table of megabytes meets no TLB miss of its own then. A processor waits for such a miss even where it only asks ahead.
const MAPPED: usize = HUGE_PAGE / 2 + 1;

/// Words that are zero at first; pages of them take no memory until they are touched.
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomic, and the memory is this value's alone until it is dropped.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// `None` when there is no memory.
    pub(super) fn zeroed(count: usize) -> Option<Words> {
        let layout = Layout::array::<AtomicU64>(count).ok()?;
        let start = match layout.size() {
            0 => NonNull::dangling(),
            MAPPED.. => mapped(layout.size())?.cast(),
            // SAFETY: the layout is not of size zero.
            _ => NonNull::new(unsafe { alloc_zeroed(layout) })?.cast(),
        };
        Some(Words { start, count })
    }

    /// Of what was mapped; how many octets.
    pub(super) fn give_back(&self) -> u64 {
        let octets = self.octets();
        if octets < MAPPED {
            return 0;
        }
        let advice = libc::MADV_DONTNEED;
        // SAFETY: a mapping of `mapped`, private and anonymous: its pages are zero from then on, as if zeros had been stored in
        // words that are atomic. It stays mapped.
        let given = unsafe { libc::madvise(self.start.as_ptr().cast(), octets, advice) };
        if given == 0 { octets as u64 } else { 0 }
    }

    fn octets(&self) -> usize {
        self.count * size_of::<AtomicU64>()
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: memory for so many words, zeroed or dangling for none; zero bytes are AtomicU64s of value 0. It lives as long as
        // `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        match self.octets() {
            0 => {}
            octets @ MAPPED.. => unmap(self.start.cast(), whole_pages(octets)),
            octets => {
                let align = align_of::<AtomicU64>();
                // SAFETY: from alloc_zeroed with this layout; nobody has a reference any more.
                unsafe {
                    let layout = Layout::from_size_align_unchecked(octets, align);
                    dealloc(self.start.as_ptr().cast(), layout);
                }
            }
        }
    }
}

impl Default for Words {
    fn default() -> Words {
        Words {
            start: NonNull::dangling(),
            count: 0,
        }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} words", self.count)
    }
}

/// Octets of zero from where a huge page can begin.
fn mapped(octets: usize) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let octets = whole_pages(octets);
    let length = octets.checked_add(HUGE_PAGE)?;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
    let whole = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if whole == libc::MAP_FAILED {
        return None;
    }
    let whole = NonNull::new(whole.cast::<u8>())?;
    let before = whole.align_offset(HUGE_PAGE);
    // SAFETY: inside the mapping.
    let start = unsafe { whole.add(before) };
    let end = before + octets;
    unmap(whole, before);
    // SAFETY: inside the mapping, or its end.
    unmap(unsafe { whole.add(end) }, length - end);
    // SAFETY: advice about memory that was just mapped; a refusal costs only speed.
    unsafe { libc::madvise(start.as_ptr().cast(), octets, libc::MADV_HUGEPAGE) };
    Some(start)
}

/// Octets of a usual page, at least.
const PAGE: usize = 4 << 10;

/// So many octets with what is left over at the end: a huge page where that fills more than half of one.
fn whole_pages(octets: usize) -> usize {
    let page = match octets % HUGE_PAGE {
        MAPPED.. => HUGE_PAGE,
        _ => PAGE,
    };
    // No allocation is as large as to overflow.
    octets.checked_next_multiple_of(page).unwrap_or(octets)
}

/// Gives mapped memory back that nobody has a reference to.
fn unmap(start: NonNull<u8>, octets: usize) {
    if octets > 0 {
        // SAFETY: whole pages of a mapping of `mapped`, which are nobody's any more.
        unsafe { libc::munmap(start.as_ptr().cast(), octets) };
    }
}
