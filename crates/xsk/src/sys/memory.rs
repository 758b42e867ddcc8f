//! Memory that we share with the kernel: chunks, rings, cells of BPF maps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::ring::Shared;

/// Octets of a huge page, reserved or transparent: what x86-64 and most others have beside their usual pages.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory without a name, to be mapped by several processes; it can never become shorter. On reserved huge pages where
/// enough are free (its length is rounded up then), else on transparent ones where the kernel has some to spare; on `node` of the
/// machine if it can be had there.
pub(crate) fn nameless(length: usize, node: Option<u32>) -> io::Result<OwnedFd> {
    if length >= HUGE_PAGE
        && let Ok(made) = nameless_reserved(length, node)
    {
        return Ok(made);
    }
    let made = nameless_of(length, 0)?;
    let mapping = Mapping::aligned_of(made.as_fd(), nameless_length(&made)?, 0)?;
    mapping.advise_huge_pages();
    mapping.prefer(node);
    mapping.gather();
    Ok(made)
}

fn nameless_reserved(length: usize, node: Option<u32>) -> io::Result<OwnedFd> {
    let flags = libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
    let made = nameless_of(length.next_multiple_of(HUGE_PAGE), flags)?;
    let length = nameless_length(&made)?;
    // Where too few are free this fails: not in a place that was ours before, see `aligned_of`. Huge pages begin where they can.
    let mapping = Mapping::map(length, libc::MAP_SHARED, made.as_raw_fd(), 0)?;
    mapping.prefer(node);
    mapping.populate()?;
    Ok(made)
}

fn nameless_of(length: usize, flags: u32) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags;
    // SAFETY: reads a string that lives through the call.
    let made = unsafe { libc::memfd_create(c"umem".as_ptr(), flags) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else has it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(made) };
    let file = std::fs::File::from(descriptor);
    file.set_len(length as u64)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no memory is involved.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file.into())
}

/// The length in octets of memory that [`nameless`] has made; an error for anything that could become shorter.
pub(crate) fn nameless_length(descriptor: &OwnedFd) -> io::Result<usize> {
    // SAFETY: no memory is involved.
    let seals = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 {
        return Err(io::Error::last_os_error());
    }
    if seals & libc::F_SEAL_SHRINK == 0 {
        return Err(io::Error::other("the memory may become shorter"));
    }
    let file = std::fs::File::from(descriptor.try_clone()?);
    Ok(file.metadata()?.len() as usize)
}

/// Octets of a usual page, at least.
const SMALL_PAGE: usize = 4 << 10;

/// Memory that is nobody else's.
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// The node of the machine that the page at `address` lies on, which is brought in if need be. `None`: the kernel knows of no
/// nodes, or there is no memory.
pub(crate) fn node_of(address: u64) -> Option<u32> {
    const MPOL_F_NODE: u64 = 1;
    const MPOL_F_ADDR: u64 = 2;
    let mut node: i32 = -1;
    let flags = MPOL_F_NODE | MPOL_F_ADDR;
    let none = std::ptr::null_mut::<u64>();
    // SAFETY: the kernel writes one integer; the address is only looked up, and an error if nothing is there.
    let asked = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            none,
            0_u64,
            address,
            flags,
        )
    };
    u32::try_from(node).ok().filter(|_| asked == 0)
}

/// An area of mapped memory, unmapped when dropped.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the area stays mapped until the value is dropped, whichever thread has it, and every access goes through an
// atomic, a ring half (which is not shared between threads, see `MappedRing`), or an unsafe function.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives out only atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Private zeroed memory, on huge pages if wished (fewer TLB misses, otherwise the same): reserved ones where enough are
    /// free, else transparent ones where the kernel has some to spare. On `node` of the machine if it can be had there.
    pub(crate) fn anonymous(
        length: usize,
        huge_pages: bool,
        node: Option<u32>,
    ) -> io::Result<Mapping> {
        if huge_pages
            && length >= HUGE_PAGE
            && let Ok(mapping) = Mapping::reserved(length, node)
        {
            return Ok(mapping);
        }
        let mapping = Mapping::aligned(length)?;
        if huge_pages {
            mapping.advise_huge_pages();
        }
        mapping.prefer(node);
        Ok(mapping)
    }

    /// On reserved huge pages, all of them there: one that is missing later would end the process.
    fn reserved(length: usize, node: Option<u32>) -> io::Result<Mapping> {
        let flags = libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        let mapping = Mapping::map(length.next_multiple_of(HUGE_PAGE), PRIVATE | flags, -1, 0)?;
        mapping.prefer(node);
        mapping.populate()?;
        Ok(mapping)
    }

    /// From where a huge page can begin: kernels before Linux 6.7 map anywhere.
    fn aligned(length: usize) -> io::Result<Mapping> {
        let whole = Mapping::map(length + HUGE_PAGE, PRIVATE, -1, 0)?;
        let before = whole.start.as_ptr().align_offset(HUGE_PAGE);
        let end = before + length.next_multiple_of(SMALL_PAGE);
        // SAFETY: inside the mapping, at most its last octet.
        let (start, behind) = unsafe { (whole.start.add(before), whole.start.add(end)) };
        for (start, length) in [(whole.start, before), (behind, whole.length - end)] {
            if length > 0 {
                // SAFETY: a part of the mapping that nobody has a pointer into, nor gets one.
                unsafe { libc::munmap(start.as_ptr().cast(), length) };
            }
        }
        std::mem::forget(whole);
        Ok(Mapping { start, length })
    }

    /// Shared memory of a descriptor, from where a huge page can begin; `flags`: more of mmap(2).
    fn aligned_of(descriptor: BorrowedFd<'_>, length: usize, flags: i32) -> io::Result<Mapping> {
        let place = Mapping::aligned(length)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: over a mapping of ours that nobody has a pointer into, and which unmaps what is there in its end.
        let start = unsafe {
            libc::mmap(
                place.start.as_ptr().cast(),
                length,
                protection,
                libc::MAP_SHARED | libc::MAP_FIXED | flags,
                descriptor.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // The kernel may have taken the old mapping away before it failed, and another thread may have one there by now:
            // nothing may be unmapped. What is left of ours is addresses without memory.
            std::mem::forget(place);
            return Err(error);
        }
        Ok(place)
    }

    /// What [`nameless`] has made, all of it there.
    pub(crate) fn of_nameless(descriptor: BorrowedFd<'_>, length: usize) -> io::Result<Mapping> {
        Mapping::aligned_of(descriptor, length, libc::MAP_POPULATE)
    }

    /// Shared memory of a descriptor: a ring of an AF_XDP socket, the values of a BPF array.
    pub(crate) fn of_descriptor(
        descriptor: BorrowedFd<'_>,
        length: usize,
        offset: i64,
    ) -> io::Result<Mapping> {
        Mapping::map(
            length,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            descriptor.as_raw_fd(),
            offset,
        )
    }

    /// Asks for huge pages.
    pub(crate) fn advise_huge_pages(&self) {
        // SAFETY: advice about memory that is mapped as long as `self` lives; it changes no content. A refusal costs only
        // speed.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.length, libc::MADV_HUGEPAGE) };
    }

    /// Asks for pages of that node of the machine (mbind(2)); where it has none left, or nobody knows of nodes, others do.
    fn prefer(&self, node: Option<u32>) {
        const MPOL_PREFERRED: i32 = 1;
        let Some(node) = node.filter(|node| *node < 64) else {
            return;
        };
        let nodes: u64 = 1 << node;
        // SAFETY: a wish about memory that is mapped as long as `self` lives; the kernel reads 64 bits of `nodes`.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.length,
                MPOL_PREFERRED,
                &raw const nodes,
                u64::from(u64::BITS) + 1,
                0,
            )
        };
    }

    /// Has all pages be there now, so that none can be missing when it is touched. Before Linux 5.14 nobody can ask for that:
    /// there the kernel's own count of reserved pages is trusted.
    fn populate(&self) -> io::Result<()> {
        // SAFETY: as if each page were written to without changing it.
        let done = unsafe {
            libc::madvise(
                self.start.as_ptr().cast(),
                self.length,
                libc::MADV_POPULATE_WRITE,
            )
        };
        match done {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Has its pages be huge ones where the kernel can, whatever it does by itself: for shared memory it does nothing by default
    /// (`shmem_enabled`). A refusal, as that of any kernel before Linux 6.1, costs only speed.
    fn gather(&self) {
        const MADV_COLLAPSE: i32 = 25;
        // It gathers pages that are there.
        if self.length >= HUGE_PAGE && self.populate().is_ok() {
            // SAFETY: advice about memory that is mapped as long as `self` lives; it changes no content.
            unsafe { libc::madvise(self.start.as_ptr().cast(), self.length, MADV_COLLAPSE) };
        }
    }

    fn map(length: usize, flags: i32, descriptor: i32, offset: i64) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                flags,
                descriptor,
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start =
            NonNull::new(start.cast()).expect("mmap without MAP_FIXED never maps address 0");
        Ok(Mapping { start, length })
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Octets, to read. Panics outside the area.
    ///
    /// # Safety
    /// Nobody, the kernel included, writes to them while the slice lives.
    #[inline]
    pub(crate) unsafe fn slice(&self, offset: usize, length: usize) -> &[u8] {
        self.check(offset, length, 1);
        // SAFETY: inside the mapping (checked), which lives as long as `self`; the caller vouches for writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) }
    }

    /// Octets, to write. Panics outside the area.
    ///
    /// # Safety
    /// Nobody, the kernel included, writes to them while the slice lives.
    #[inline]
    pub(crate) unsafe fn slice_mut(&mut self, offset: usize, length: usize) -> &mut [u8] {
        self.check(offset, length, 1);
        // SAFETY: as `slice`, and `&mut self` excludes other references of ours.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), length) }
    }

    /// A cell that the kernel may read or write at the same time. Panics outside the area.
    pub(crate) fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, 8, 8);
        // SAFETY: inside the mapping and aligned (checked); lives as long as `self`; accessed only atomically.
        unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Asks the processor for the cache line at `offset`, to write to it; does nothing where there is no such instruction.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        prefetch_to_write(self.start.as_ptr().wrapping_add(offset));
    }

    #[inline(always)]
    fn check(&self, offset: usize, length: usize, align: usize) {
        let end = offset.checked_add(length);
        let inside = end.is_some_and(|end| end <= self.length);
        if !inside || !offset.is_multiple_of(align) {
            self.refuse(offset, length, align);
        }
    }

    #[cold]
    fn refuse(&self, offset: usize, length: usize, align: usize) -> ! {
        panic!(
            "{length} octets at {offset}, a multiple of {align}, are not all in a mapping of {} octets",
            self.length
        )
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the area is ours alone, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// One ring of an AF_XDP socket as the kernel maps it. `T` is what the kernel keeps in a slot.
pub(crate) struct MappedRing<T> {
    /// Keeps the three pointers below valid.
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    size: u32,
}

/// What may lie in a slot: any bit pattern is a value.
pub(crate) trait Slot: Copy {}
impl Slot for u64 {}
impl Slot for libc::xdp_desc {}

// SAFETY: the pointers point into the mapping that the value owns. It is not `Sync`: slots are plain memory, and one
// thread at a time is one side of the ring.
unsafe impl<T: Slot> Send for MappedRing<T> {}

impl<T: Slot> MappedRing<T> {
    /// Maps a ring of `size` slots, a power of two, whose parts lie where `offsets` says.
    pub(crate) fn map(
        descriptor: BorrowedFd<'_>,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<MappedRing<T>> {
        assert!(
            size.is_power_of_two(),
            "a ring of {size} slots: must be a power of two"
        );
        let slots_length = size as usize * size_of::<T>();
        let mapping = Mapping::of_descriptor(
            descriptor,
            offsets.desc as usize + slots_length,
            page_offset,
        )?;
        let part = |offset: u64, length, align| {
            mapping.check(offset as usize, length, align);
            // SAFETY: inside the mapping (checked just now).
            unsafe { mapping.start.add(offset as usize) }
        };
        Ok(MappedRing {
            producer: part(offsets.producer, 4, 4).cast(),
            consumer: part(offsets.consumer, 4, 4).cast(),
            flags: part(offsets.flags, 4, 4).cast(),
            slots: part(offsets.desc, slots_length, align_of::<T>()).cast(),
            _mapping: mapping,
            size,
        })
    }
}

impl<T: Slot> Shared for MappedRing<T> {
    type Slot = T;

    fn size(&self) -> u32 {
        self.size
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: points into the mapping that `self` owns, aligned; accessed only atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: points into the mapping that `self` owns, aligned; accessed only atomically.
        unsafe { self.consumer.as_ref() }
    }

    fn flags(&self) -> &AtomicU32 {
        // SAFETY: points into the mapping that `self` owns, aligned; accessed only atomically.
        unsafe { self.flags.as_ref() }
    }

    fn read(&self, position: u32) -> T {
        let slot = (position & (self.size - 1)) as usize;
        // SAFETY: slot < size, so inside the mapping; any bits are a `T`. The kernel does not write it before we release it.
        unsafe { self.slots.add(slot).read() }
    }

    fn write(&self, position: u32, value: T) {
        let slot = (position & (self.size - 1)) as usize;
        // SAFETY: slot < size, so inside the mapping. The kernel does not read it before we publish it, and `&self` is
        // not shared between threads.
        unsafe { self.slots.add(slot).write(value) }
    }

    #[inline]
    fn foresee(&self, position: u32) {
        prefetch_line(self.producer.as_ptr().cast());
        let slot = (position & (self.size - 1)) as usize;
        prefetch_line(self.slots.as_ptr().wrapping_add(slot).cast());
    }
}

/// Asks the processor for the cache line at `place`, which will be read soon; does nothing where there is no such instruction, or
/// nothing there.
#[inline(always)]
pub fn prefetch_line(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint. It reads nothing and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Asks the processor for the cache line at `place`, to write to it; does nothing where there is no such instruction.
///
/// Not by `_mm_prefetch` with `_MM_HINT_ET0`: compiled for any x86-64 that asks for the line to read it, and the first write would
/// ask the other processor once more. Those too old for `prefetchw` take it for a NOP.
#[inline(always)]
fn prefetch_to_write<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint. It reads nothing and faults at no address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// membarrier(2), MEMBARRIER_CMD_GLOBAL: returns when every RCU read-side section that had begun is over.
pub(crate) fn synchronize() -> io::Result<()> {
    // SAFETY: takes three integers and touches no memory.
    match unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// MPOL_DEFAULT and MPOL_PREFERRED of <linux/mempolicy.h>.
    const DEFAULT: i32 = 0;
    const PREFERRED: i32 = 1;

    /// What the kernel was asked for of a mapping's pages, and on which nodes (get_mempolicy(2)). `None`: it knows of none.
    fn policy(mapping: &Mapping) -> Option<(i32, u64)> {
        const MPOL_F_ADDR: u64 = 2;
        let (mut policy, mut nodes) = (-1_i32, [0_u64; 16]);
        // SAFETY: the kernel writes one integer, and at most the 1,024 bits of `nodes`; the address is only looked up.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut policy,
                nodes.as_mut_ptr(),
                1_024_u64,
                mapping.start.as_ptr(),
                MPOL_F_ADDR,
            )
        };
        (asked == 0).then_some((policy, nodes[0]))
    }

    /// Workers make their frames at the same time, and for huge pages that are not there each tries in vain.
    #[test]
    fn what_fails_takes_no_other_thread_s_memory() {
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let length = 2 * HUGE_PAGE;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    // Where there are huge pages, this does not fail, and takes nothing either.
                    drop(nameless_reserved(length, None));
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                let mapping = Mapping::map(length, PRIVATE, -1, 0).expect("memory");
                for page in (0..length).step_by(SMALL_PAGE) {
                    mapping.atomic_u64(page).store(1, Ordering::Relaxed);
                }
                for page in (0..length).step_by(SMALL_PAGE) {
                    let kept = mapping.atomic_u64(page).load(Ordering::Relaxed);
                    assert_eq!(kept, 1, "page at {page}");
                }
            }
        });
    }

    fn private(huge_pages: bool, node: Option<u32>) -> Option<(i32, u64)> {
        policy(&Mapping::anonymous(2 * HUGE_PAGE, huge_pages, node).unwrap())
    }

    fn shared(node: Option<u32>) -> Option<(i32, u64)> {
        let memory = nameless(2 * HUGE_PAGE, node).unwrap();
        let length = nameless_length(&memory).unwrap();
        let mapping = Mapping::map(length, libc::MAP_SHARED, memory.as_raw_fd(), 0);
        policy(&mapping.unwrap())
    }

    #[test]
    fn pages_of_any_size_are_wished_for_on_the_cards_node() {
        if private(false, None).is_none() {
            println!("this kernel knows of no nodes: nothing is proved");
            return;
        }
        for huge_pages in [false, true] {
            assert_eq!(private(huge_pages, Some(0)), Some((PREFERRED, 1)));
            // No card, a firmware that does not tell, a node that there is not: whatever is nearest.
            for node in [None, Some(63), Some(64)] {
                assert_eq!(private(huge_pages, node), Some((DEFAULT, 0)), "{node:?}");
            }
        }
        assert_eq!(shared(Some(0)), Some((PREFERRED, 1)));
        assert_eq!(shared(None), Some((DEFAULT, 0)));
    }
}
