//! A worker's sign of life for one queue, in memory that the kernel program reads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::layout::PASSED_OFFSET;
use crate::sys::memory::Mapping;

/// The heartbeat cell of one queue. The program passes frames to the kernel when frames were redirected and the cell has
/// not changed for 100 ms: so beat when frames were taken or an empty fill ring was refilled, before the wait for more and far more
/// often than that.
#[derive(Clone)]
pub struct Heartbeat {
    cells: Arc<Mapping>,
    offset: usize,
}

impl Heartbeat {
    pub(crate) fn new(cells: Arc<Mapping>, offset: usize) -> Heartbeat {
        Heartbeat { cells, offset }
    }

    /// Asks for the cell, to write to it: the program on another processor has read it. Worth it only where there is other work
    /// before the [`beat`](Heartbeat::beat), a system call to send for one.
    #[inline]
    pub fn foresee(&self) {
        self.cells.prefetch(self.offset);
    }

    /// Adds one. It continues the cell's value: one that started from 0 could equal what the program remembers.
    pub fn beat(&self) {
        let count = self.cells.atomic_u64(self.offset);
        // Not one instruction that locks: it would wait here for the line, which the program on another processor has read for
        // each frame. Where two beat at once one beat is lost, and the other one shows all the same.
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Frames that the program passed because the cell had not changed.
    pub fn passed(&self) -> u64 {
        self.cells
            .atomic_u64(self.offset + PASSED_OFFSET)
            .load(Relaxed)
    }

    /// Beats so far.
    pub fn count(&self) -> u64 {
        self.cells.atomic_u64(self.offset).load(Relaxed)
    }
}

impl fmt::Debug for Heartbeat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Heartbeat({})", self.count())
    }
}
