//! How far long work has come, for whoever wants to see it: a few atomic words, written by the work, read by anybody.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The work on one zone.
#[derive(Debug, Default)]
pub struct Progress {
    /// Octets read or written of a file, or that came of a transfer.
    done: AtomicU64,
    /// Octets that there are; 0 where nobody knows.
    total: AtomicU64,
    /// Records read of a file; a short file may make many (`$GENERATE`).
    records: AtomicU64,
}

impl Progress {
    /// Nothing is done of so many octets.
    pub fn begin(&self, total: u64) {
        self.done.store(0, Relaxed);
        self.total.store(total, Relaxed);
        self.records.store(0, Relaxed);
    }

    pub fn add(&self, octets: usize) {
        self.done.fetch_add(octets as u64, Relaxed);
    }

    /// So many records are read by now.
    pub fn have(&self, records: u64) {
        self.records.store(records, Relaxed);
    }

    pub fn records(&self) -> u64 {
        self.records.load(Relaxed)
    }

    /// Octets that were done, and that there are.
    pub fn read(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.total.load(Relaxed))
    }
}
