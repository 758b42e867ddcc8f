//! What proves things about a name in a zone with NSEC3 records, be they the base's or those that came since.

use super::nsec3::{Chain, Hash, Proofs};
use super::overlay::ProofChanges;
use super::parts::NONE;

/// A chain of NSEC3 records as it is now. Its records have numbers, see [`ProofChanges`].
#[derive(Clone, Copy)]
pub(crate) struct Proving<'z> {
    pub(super) chain: &'z Chain,
    /// The base's octets.
    pub(super) arena: &'z [u8],
    pub(super) changes: Option<&'z ProofChanges>,
}

impl<'z> Proving<'z> {
    /// Of a chain that has not changed; the octets of its base.
    pub(super) fn new(chain: &'z Chain, arena: &'z [u8]) -> Proving<'z> {
        Proving {
            chain,
            arena,
            changes: None,
        }
    }

    /// The record that has this hash, or covers it.
    fn at_or_before(self, hash: &Hash) -> u32 {
        match self.changes {
            None => self.chain.at_or_before(self.arena, hash),
            Some(changes) => changes.at_or_before(self.chain, self.arena, hash),
        }
    }

    /// The record that has this hash.
    pub(super) fn matching(self, hash: &Hash) -> Option<u32> {
        match self.changes {
            None => self.chain.matching(self.arena, hash),
            Some(changes) => changes.matching(self.chain, self.arena, hash),
        }
    }

    /// The hash of a name in lower case.
    fn hash(self, name: &[u8]) -> Hash {
        self.chain.parameters.hash(name)
    }

    /// What a name that has a record of its own has noted; `None`: it has none.
    pub(super) fn own(self, name: &[u8], delegation: bool) -> Option<Proofs> {
        let first = self.matching(&self.hash(name))?;
        // Nothing is answered by a wildcard below a delegation.
        let second = match delegation {
            true => NONE,
            false => self.at_or_before(&self.chain.parameters.hash_wildcard(name)),
        };
        Some(Proofs {
            first,
            second,
            ..Proofs::NONE
        })
    }

    /// What a name that has none has noted: the proof of the closest one above that has one, and what covers `next_closer`.
    pub(super) fn opted_out(self, name: &[u8], first: u32, next_closer: &[u8]) -> Proofs {
        Proofs {
            first,
            second: self.at_or_before(&self.hash(next_closer)),
            opted_out: true,
            is_deep: next_closer.len() < name.len(),
        }
    }

    /// What proves things about a name at or below the apex, which always has a record.
    pub(super) fn of(self, name: &[u8], delegation: bool) -> Proofs {
        if let Some(own) = self.own(name, delegation) {
            return own;
        }
        let mut next_closer = name;
        while next_closer[0] != 0 {
            let above = super::names::parent(next_closer);
            if let Some(first) = self.matching(&self.hash(above)) {
                return self.opted_out(name, first, next_closer);
            }
            next_closer = above;
        }
        Proofs::NONE
    }
}
