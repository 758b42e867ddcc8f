//! What a start reads before it serves: small zones, which are there when it says that it is ready. The others come later,
//! each as soon as it is read, and are answered with SERVFAIL until then. Counted in records, not in time, so that the same
//! zones wait on every machine; and a file may be short and make a million records (`$GENERATE`).

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

/// Records that a start reads, of all zones together: a tenth of a second.
const RECORDS_EARLY: i64 = 100_000;

/// What files of so many octets hold is not even begun.
const OCTETS_EARLY: u64 = 8 << 20;

/// Room for records, shared by all threads that load.
#[derive(Debug)]
pub(super) struct Room {
    /// `None`: whatever there is.
    records: Option<AtomicI64>,
}

impl Room {
    /// For everything.
    pub(super) const WHOLE: Room = Room { records: None };

    /// For what a start reads.
    pub(super) fn early() -> Room {
        Room {
            records: Some(AtomicI64::new(RECORDS_EARLY)),
        }
    }

    #[cfg(test)]
    pub(super) fn of(records: i64) -> Room {
        Room {
            records: Some(AtomicI64::new(records)),
        }
    }

    /// Whether a file of so many octets is to be begun.
    pub(super) fn holds_octets(&self, octets: u64) -> bool {
        let is_left = |records: &AtomicI64| octets <= OCTETS_EARLY && records.load(Relaxed) > 0;
        self.records.as_ref().is_none_or(is_left)
    }

    /// Takes the room of one record; whether there was any.
    pub(super) fn take(&self) -> bool {
        let took = |records: &AtomicI64| records.fetch_sub(1, Relaxed) > 0;
        self.records.as_ref().is_none_or(took)
    }

    /// Gives back what a zone had taken that did not fit: smaller ones may.
    pub(super) fn give(&self, records: i64) {
        if let Some(left) = &self.records {
            left.fetch_add(records, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_for_so_many_records_and_for_small_files() {
        let room = Room::early();
        assert!(room.holds_octets(OCTETS_EARLY) && !room.holds_octets(OCTETS_EARLY + 1));
        let taken = (0..RECORDS_EARLY + 5).filter(|_| room.take()).count();
        assert_eq!(taken as i64, RECORDS_EARLY);
        assert!(!room.holds_octets(1));
        room.give(RECORDS_EARLY);
        assert!(room.holds_octets(1));
        assert!(Room::WHOLE.holds_octets(u64::MAX) && Room::WHOLE.take());
    }
}
