//! Faults that the simulation plants, to see that its checks find them.

use super::Exchanges;
use super::entries::{AFTER_ANSWER, Entry, Place, State};
use crate::clock::Now;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// What is wrong on purpose.
#[derive(Debug, Default)]
pub(crate) struct Planted {
    /// Keys are used again at once.
    pub(crate) without_quarantine: bool,
    /// Who has lost a race answers as well.
    pub(crate) losers_answer: bool,
    /// Junk ends the wait for the true answer.
    pub(crate) junk_ends_waits: bool,
    /// Junk says that its server is not well.
    pub(crate) junk_is_failure: bool,
    /// IDs count up.
    pub(crate) ids_count_up: bool,
    pub(crate) last_id: AtomicU16,
}

impl Exchanges {
    /// With IDs of so few bits that keys meet, and with these faults.
    pub(crate) fn narrowed(mut self, id_bits: u32, planted: Planted) -> Exchanges {
        self.id_mask = (1 << id_bits) - 1;
        self.planted = planted;
        self
    }

    pub(super) fn planted_id(&self, random: u16) -> u16 {
        match self.planted.ids_count_up {
            true => self.planted.last_id.fetch_add(1, Relaxed) & self.id_mask,
            false => random,
        }
    }

    /// Does what junk for `entry` must not do.
    pub(super) fn heed_junk(&self, (place, entry): (Place, Entry), now: Now) {
        let body = self.bodies.get(entry.body());
        if self.planted.junk_is_failure {
            self.servers
                .with(body.server(), |server| server.note_failure());
        }
        let free = self.kept_until(now, AFTER_ANSWER);
        let ends = self.planted.junk_ends_waits && !body.is_leg();
        if ends && self.entries.end(place, entry, State::Answered, free) {
            self.take_extras(entry.body());
            self.servers
                .with(body.server(), |server| server.outstanding.leave());
            self.slots.give(entry.body());
        }
    }
}
