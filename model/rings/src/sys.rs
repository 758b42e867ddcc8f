//! The memory of one ring as loom sees it.

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;

/// Slots of the ring: so few that it wraps within a check.
pub const SIZE: u32 = 2;

/// Positions start here, so that they wrap too.
pub const START: u32 = u32::MAX;

/// Two positions, flags, slots. Loom reports a slot that one side touches while the other may.
pub struct Memory {
    pub(crate) producer: AtomicU32,
    pub(crate) consumer: AtomicU32,
    pub(crate) flags: AtomicU32,
    pub(crate) slots: [UnsafeCell<u64>; SIZE as usize],
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory {
            producer: AtomicU32::new(START),
            consumer: AtomicU32::new(START),
            flags: AtomicU32::new(0),
            slots: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }
    }

    pub(crate) fn read(&self, position: u32) -> u64 {
        // SAFETY: this is what is being checked: loom panics when somebody writes at the same time.
        self.slots[(position % SIZE) as usize].with(|slot| unsafe { *slot })
    }

    pub(crate) fn write(&self, position: u32, value: u64) {
        // SAFETY: as in `read`.
        self.slots[(position % SIZE) as usize].with_mut(|slot| unsafe { *slot = value });
    }
}

// SAFETY: two sides share it as a ring promises; loom checks each access to the slots.
unsafe impl Sync for Memory {}
