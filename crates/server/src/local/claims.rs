//! Memory for transfers in. Each looks as it grows whether there is room for what came and for what will be made of it, beside
//! what the others need: a zone that a primary sends without end (F34) is given up while the kernel has no reason yet to end the
//! process, and the old one serves on.

use crate::memory::{Cgroups, Left};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A transfer looks when it takes so many octets, and again when it has grown by so many, or by this part of what was to spare
/// where that is more: sixteen that grow at once, and what is made of each, have room in it.
pub(super) const STEP: u64 = 256 << 10;
const PARTS: u64 = 64;

/// Octets of memory for each octet of the changes that are found between a zone and the one that follows it: records of which
/// each has its own owner and data, and the entry of the journal.
const FOUND: u64 = 6;

/// What transfers will take.
pub(super) struct Claims {
    left: Box<dyn Fn() -> Option<Left> + Send + Sync>,
    /// Octets, of all transfers.
    claimed: AtomicU64,
}

/// What one transfer will take, until it is dropped.
pub(super) struct Claim<'c> {
    claims: &'c Claims,
    /// The most octets of changes that are looked for.
    journal: u64,
    octets: u64,
}

/// There is no room for what transfers will take.
#[derive(Debug)]
pub(super) struct NoRoom {
    /// Octets, of all transfers.
    pub(super) claimed: u64,
    pub(super) left: Left,
}

impl Claims {
    pub(super) fn new() -> Claims {
        let cgroups = Cgroups::find();
        Claims::of(move || cgroups.left_of_all())
    }

    /// `left` says what may be taken; `None`: there is no limit.
    fn of(left: impl Fn() -> Option<Left> + Send + Sync + 'static) -> Claims {
        Claims {
            left: Box::new(left),
            claimed: AtomicU64::new(0),
        }
    }

    /// Of a transfer that begins. `journal`: octets of changes that are kept of a zone which is there already; else none.
    pub(super) fn begin(&self, journal: u64) -> Claim<'_> {
        Claim {
            claims: self,
            journal,
            octets: 0,
        }
    }
}

impl Claim<'_> {
    /// Claims what will be made of what came, which is `held`; `built`: the zone, and what it takes to make it. By how many octets
    /// the transfer may grow before it looks again.
    ///
    /// # Errors
    /// There is no room for that: nothing more is to be received.
    pub(super) fn claim(&mut self, held: u64, built: u64) -> Result<u64, NoRoom> {
        let octets = built + FOUND * held.min(self.journal);
        let claimed = &self.claims.claimed;
        let others = claimed.fetch_sub(self.octets, Relaxed) - self.octets;
        claimed.fetch_add(octets, Relaxed);
        self.octets = octets;
        let all = others + octets;
        match (self.claims.left)() {
            Some(left) if left.octets < all => Err(NoRoom { claimed: all, left }),
            Some(left) => Ok(STEP.max((left.octets - all) / PARTS)),
            None => Ok(u64::MAX - held),
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.claimed.fetch_sub(self.octets, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    /// Claims of a process that may take 100 MiB, and what it has taken.
    fn limited() -> (Claims, Arc<AtomicU64>) {
        let taken = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&taken);
        let left = move || {
            Some(Left {
                limit: "memory.max".into(),
                most: 100 * MIB,
                octets: 100 * MIB - seen.load(Relaxed),
            })
        };
        (Claims::of(left), taken)
    }

    #[test]
    fn f34_a_transfer_without_end_is_given_up_while_there_is_room_for_what_is_made_of_it() {
        let (claims, taken) = limited();
        let mut claim = claims.begin(0);
        let (mut held, mut looks) = (0, 0);
        let no_room = loop {
            match claim.claim(held, 2 * held) {
                Ok(step) => held += step,
                Err(no_room) => break no_room,
            }
            taken.store(held, Relaxed);
            looks += 1;
        };
        assert_eq!(no_room.claimed, 2 * held);
        assert!((33 * MIB..35 * MIB).contains(&held), "{held}");
        assert!(looks < 150, "{looks}");
    }

    #[test]
    fn f34_sixteen_transfers_have_room_together_or_are_given_up() {
        let (claims, taken) = limited();
        let mut transfers: Vec<_> = (0..16).map(|_| (claims.begin(0), 0, STEP)).collect();
        let mut most = 0;
        while !transfers.is_empty() {
            // All have grown before the first one looks.
            taken.store(
                transfers.iter().map(|(_, held, step)| held + step).sum(),
                Relaxed,
            );
            transfers.retain_mut(|(claim, held, step)| {
                *held += *step;
                let looked = claim.claim(*held, 2 * *held);
                *step = *looked.as_ref().unwrap_or(&0);
                looked.is_ok()
            });
            let built: u64 = transfers.iter().map(|(_, held, _)| 3 * held).sum();
            most = most.max(built);
        }
        assert!((80 * MIB..=100 * MIB).contains(&most), "{most}");
        assert_eq!(claims.claimed.load(Relaxed), 0, "it is given back");
    }

    #[test]
    fn changes_that_are_looked_for_count_as_far_as_the_journal_keeps_them() {
        let (claims, _) = limited();
        let mut claim = claims.begin(MIB);
        assert!(claim.claim(STEP, 98 * MIB).is_ok());
        assert!(claim.claim(50 * MIB, 94 * MIB).is_ok());
        let no_room = claim.claim(50 * MIB, 95 * MIB).unwrap_err();
        assert_eq!(no_room.claimed, 101 * MIB);
        drop(claim);
        let unlimited = Claims::of(|| None);
        let step = unlimited.begin(0).claim(1, u64::MAX / 2).unwrap();
        assert_eq!(step, u64::MAX - 1);
    }
}
