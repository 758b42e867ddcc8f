//! What one socket has counted: written by the thread that owns the socket, read by any.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that one thread adds to.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Not one instruction that locks: nobody else writes.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.read().wrapping_add(count), Relaxed);
    }

    #[inline]
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts of a socket, in one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Tally {
    pub(crate) received: Count,
    pub(crate) sent: Count,
    pub(crate) completed: Count,
    pub(crate) tx_full: Count,
    pub(crate) fill_empty: Count,
    pub(crate) wakeups: Count,
    pub(crate) bad_addresses: Count,
    /// Frames whose checksum their sender had left to its device: counted by whoever reads the frames.
    pub partial_checksums: Count,
}

/// One moment of a [`Tally`]; frames, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub received: u64,
    pub sent: u64,
    pub completed: u64,
    /// Frames that found the TX ring full.
    pub tx_full: u64,
    /// Times the fill ring was found empty.
    pub fill_empty: u64,
    /// System calls to send.
    pub wakeups: u64,
    /// Slots whose address or length could not be true: not used.
    pub bad_addresses: u64,
    /// Frames whose checksum their sender had left to its device.
    pub partial_checksums: u64,
}

impl Tally {
    /// All of them; each is right, but while frames come they are not of one moment.
    pub fn read(&self) -> Counters {
        Counters {
            received: self.received.read(),
            sent: self.sent.read(),
            completed: self.completed.read(),
            tx_full: self.tx_full.read(),
            fill_empty: self.fill_empty.read(),
            wakeups: self.wakeups.read(),
            bad_addresses: self.bad_addresses.read(),
            partial_checksums: self.partial_checksums.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_one_cache_line_and_is_read_by_another_thread() {
        assert_eq!((size_of::<Tally>(), align_of::<Tally>()), (64, 64));
        let tally = Tally::default();
        tally.received.add(2);
        tally.received.add(3);
        tally.partial_checksums.add(1);
        let read = std::thread::scope(|scope| scope.spawn(|| tally.read()).join().unwrap());
        let expected = Counters {
            received: 5,
            partial_checksums: 1,
            ..Counters::default()
        };
        assert_eq!(read, expected);
    }
}
