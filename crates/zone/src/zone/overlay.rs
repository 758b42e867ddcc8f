//! What has changed in a zone since it was compiled: the changed names alone, over the others, which versions share.
//!
//! Places in the arena go on behind the base's: one number tells where a name is, whichever of the two has it. A link that
//! leads to a name of the base which has changed since leads on to the changed one ([`Overlay::newest`]); whatever such a
//! link cannot say (a name that comes or goes, a delegation that others lie below) makes the name with the link a changed
//! one, too: `build/amend.rs` finds those.

use super::case::Cases;
use super::encode::encode_hash;
use super::nsec3::{Chain, Hash, Hashed};
use super::parts::NONE;
use super::table::Table;
use hashbrown::HashTable;

/// The changed names of a zone.
pub(crate) struct Overlay {
    /// Where the base ends and these octets begin.
    pub(super) origin: u32,
    pub(super) octets: Box<[u8]>,
    /// The changed names, and as nodes that are [`super::parts::GONE`] those of the base that are no more.
    pub(super) table: Table,
    /// Those that are there, in canonical order.
    pub(super) order: Box<[u32]>,
    /// Those of the base that are no more.
    pub(super) gone: Box<[u32]>,
    /// Of those that are there the ones whose NSEC records count.
    pub(super) nsec: Box<[u32]>,
    /// Which of the base's names with NSEC records are made anew or are no more, by number in the list of these.
    pub(super) nsec_moved: Runs,
    /// By place in the base: where the name is now.
    pub(super) moved: Moved,
    pub(super) proofs: ProofChanges,
    pub(super) cases: Cases,
}

impl Overlay {
    /// Where the name is now that a link says is at `at`.
    #[inline]
    pub(super) fn newest(&self, at: u32) -> u32 {
        match at < self.origin {
            true => self.moved.get(at).unwrap_or(at),
            false => at,
        }
    }

    pub(super) fn memory(&self) -> usize {
        let proofs = &self.proofs;
        self.octets.len()
            + self.table.memory()
            + 4 * (self.order.len() + self.gone.len() + self.nsec.len())
            + self.nsec_moved.memory()
            + self.moved.memory()
            + self.cases.memory()
            + proofs.gone.memory()
            + proofs.touched.memory()
            + size_of_val(&*proofs.added)
    }
}

/// Numbers by numbers. Who writes a zone does not choose them.
#[derive(Default)]
pub(super) struct Moved(HashTable<(u32, u32)>);

impl Moved {
    pub(super) fn insert(&mut self, from: u32, to: u32) {
        let entry = self.0.entry(
            spread(from),
            |known| known.0 == from,
            |known| spread(known.0),
        );
        *entry.or_insert((from, to)).into_mut() = (from, to);
    }

    #[inline]
    pub(super) fn get(&self, from: u32) -> Option<u32> {
        let found = self.0.find(spread(from), |known| known.0 == from)?;
        Some(found.1)
    }

    #[inline]
    pub(super) fn has(&self, from: u32) -> bool {
        self.get(from).is_some()
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The numbers that it has, in no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(from, _)| *from)
    }

    fn memory(&self) -> usize {
        9 * self.0.capacity()
    }
}

fn spread(number: u32) -> u64 {
    // 2^64 divided by the golden ratio: upper and lower bits both differ then.
    let spread = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread ^ spread >> 32
}

/// Numbers as runs of those that follow each other, first and last of each. A signer that works its way through a zone changes
/// an eighth of it without a gap: no search may take a step for each of these.
#[derive(Default)]
pub(super) struct Runs(Box<[(u32, u32)]>);

impl Runs {
    /// Of numbers that differ, in any order.
    pub(super) fn new(numbers: impl Iterator<Item = u32>) -> Runs {
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        let runs = numbers.chunk_by(|number, next| number + 1 == *next);
        Runs(runs.map(|run| (run[0], run[run.len() - 1])).collect())
    }

    /// The last number below `end` that is none of them.
    #[inline]
    pub(super) fn last_outside(&self, end: u32) -> Option<u32> {
        let number = end.checked_sub(1)?;
        let begun = self.0.partition_point(|(first, _)| *first <= number);
        match self.0[..begun].last() {
            Some((first, last)) if number <= *last => first.checked_sub(1),
            _ => Some(number),
        }
    }

    #[inline]
    pub(super) fn has(&self, number: u32) -> bool {
        self.last_outside(number + 1) != Some(number)
    }

    /// All of them, ascending.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    fn memory(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// What has changed in a chain of NSEC3 records. A proof is a number: below the count of the base's chain one of that, else
/// one of those that came.
#[derive(Default)]
pub(super) struct ProofChanges {
    /// Ascending; hash and place.
    pub(super) added: Box<[Hashed]>,
    /// Numbers of the base's that are no more.
    pub(super) gone: Runs,
    /// Those that are no more, and those behind which others came: what a name of the base says of these may no longer hold.
    pub(super) touched: Moved,
}

impl ProofChanges {
    pub(super) fn new(
        chain: &Chain,
        arena: &[u8],
        added: Vec<Hashed>,
        gone: impl Iterator<Item = u32>,
    ) -> ProofChanges {
        let mut changes = ProofChanges {
            added: added.into(),
            gone: Runs::new(gone),
            ..ProofChanges::default()
        };
        for number in changes.gone.numbers() {
            changes.touched.insert(number, NONE);
        }
        for (hash, _) in &changes.added {
            changes
                .touched
                .insert(chain.at_or_before(arena, hash), NONE);
        }
        changes
    }

    /// As [`Chain::at_or_before`], of what the chain is now.
    pub(super) fn at_or_before(&self, chain: &Chain, arena: &[u8], hash: &Hash) -> u32 {
        let own = self.own_below(chain, chain.not_above(arena, hash));
        let added = self.added.partition_point(|(added, _)| added <= hash);
        let nearest = self.greater(chain, arena, own, added.checked_sub(1));
        // The chain is a circle: before the first comes the last.
        let last = || {
            let own = self.own_below(chain, chain.places.len());
            self.greater(chain, arena, own, self.added.len().checked_sub(1))
        };
        nearest.or_else(last).unwrap_or(NONE)
    }

    /// The last one of the base below `number` that is still there.
    fn own_below(&self, chain: &Chain, number: usize) -> Option<u32> {
        debug_assert!(number <= chain.places.len());
        self.gone.last_outside(number as u32)
    }

    fn greater(
        &self,
        chain: &Chain,
        arena: &[u8],
        own: Option<u32>,
        added: Option<usize>,
    ) -> Option<u32> {
        let number = |added: usize| (chain.places.len() + added) as u32;
        match (own, added) {
            (Some(own), Some(added)) => {
                let label = chain.label(arena, own as usize);
                let is_own = *label > encode_hash(&self.added[added].0);
                Some(if is_own { own } else { number(added) })
            }
            (own, added) => own.or(added.map(number)),
        }
    }

    /// As [`Chain::matching`].
    pub(super) fn matching(&self, chain: &Chain, arena: &[u8], hash: &Hash) -> Option<u32> {
        let added = self.added.binary_search_by(|(added, _)| added.cmp(hash));
        if let Ok(added) = added {
            return Some((chain.places.len() + added) as u32);
        }
        let own = chain.matching(arena, hash)?;
        (!self.gone.has(own)).then_some(own)
    }

    /// Whether what was written down with these numbers may no longer hold.
    #[inline]
    pub(super) fn concern(&self, first: u32, second: u32) -> bool {
        self.touched.has(first) || self.touched.has(second)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parts::HASH_LENGTH;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    #[test]
    fn runs_of_numbers_are_passed_in_one_step() {
        let runs = Runs::new([7, 2, 3, 0, 9, 8].into_iter());
        assert_eq!(*runs.0, [(0, 0), (2, 3), (7, 9)]);
        for (end, last) in [
            (0, None),
            (1, None),
            (2, Some(1)),
            (3, Some(1)),
            (4, Some(1)),
            (5, Some(4)),
            (7, Some(6)),
            (8, Some(6)),
            (10, Some(6)),
            (11, Some(10)),
        ] {
            assert_eq!(runs.last_outside(end), last, "{end}");
        }
        assert_eq!(Runs::default().last_outside(5), Some(4));
        assert!(runs.numbers().eq([0, 2, 3, 7, 8, 9]));
        let has = |number: &u32| runs.has(*number);
        assert!((0..12).filter(has).eq(runs.numbers()));
    }

    /// All but the first were signed anew: a step for each of them, for each question, would take minutes.
    #[test]
    fn proofs_before_many_that_are_gone_are_found_at_once() {
        let count = 1_u32 << 17;
        let hash = |number: u32| {
            let mut hash = [0; HASH_LENGTH];
            hash[..4].copy_from_slice(&number.to_be_bytes());
            hash
        };
        let hashes: Vec<_> = (0..count).map(hash).collect();
        let (arena, chain) = Chain::of_hashes(&hashes);
        let changes = ProofChanges::new(&chain, &arena, Vec::new(), 1..count);
        let began = Instant::now();
        for number in 0..count {
            let found = changes.at_or_before(&chain, &arena, &hash(number));
            assert_eq!(found, 0, "{number}");
        }
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    fn hash(number: u8) -> [u8; HASH_LENGTH] {
        let mut hash = [0; HASH_LENGTH];
        // Some share their first eight octets.
        (hash[0], hash[19]) = (number / 4, number % 4);
        hash
    }

    proptest! {
        /// What is found is what would be found in a chain made of the same hashes anew.
        #[test]
        fn a_changed_chain_is_searched_as_a_new_one(
            base in prop::collection::btree_set(0_u8..60, 1..20),
            changed in prop::collection::btree_map(0_u8..60, any::<bool>(), 0..12),
            wanted in 0_u8..60,
        ) {
            let hashes: Vec<_> = base.iter().map(|number| hash(*number)).collect();
            let (arena, chain) = Chain::of_hashes(&hashes);
            let gone: Vec<u32> = (0..).zip(&base).filter(|(_, number)| changed.contains_key(number)).map(|(at, _)| at).collect();
            let added: Vec<_> = changed.iter().filter(|(_, stays)| **stays).map(|(number, _)| (hash(*number), 1_000)).collect();
            let mut now: BTreeMap<[u8; HASH_LENGTH], u32> = (0..).zip(&base).filter(|(_, number)| !changed.contains_key(number)).map(|(at, number)| (hash(*number), at)).collect();
            now.extend((0..).zip(&added).map(|(at, (hash, _))| (*hash, base.len() as u32 + at)));
            let changes = ProofChanges::new(&chain, &arena, added, gone.into_iter());
            let wanted = hash(wanted);
            let expected = now.range(..=wanted).next_back().or(now.iter().next_back());
            prop_assert_eq!(changes.at_or_before(&chain, &arena, &wanted), expected.map_or(NONE, |(_, number)| *number));
            prop_assert_eq!(changes.matching(&chain, &arena, &wanted), now.get(&wanted).copied());
            // What is not touched holds.
            let before = chain.at_or_before(&arena, &wanted);
            if !changes.concern(before, NONE) {
                prop_assert_eq!(changes.at_or_before(&chain, &arena, &wanted), before);
            }
        }
    }
}
