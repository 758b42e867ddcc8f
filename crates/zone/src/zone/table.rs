//! Names by their hashes: eight octets a slot, a third of the slots free.

use super::names;
use super::parts::{Arena, NONE, Node};
use std::hash::{BuildHasher, RandomState};
use wire::name::lowercase_eight;

/// Nodes of an arena, found by name. A slot has 32 bits of the hash and the node's place; those that collide take the next
/// free slot.
pub(super) struct Table {
    slots: Box<[(u32, u32)]>,
    keys: Keys,
}

/// What makes hashes unpredictable: who may write a zone could make its names collide.
#[derive(Clone)]
pub(super) struct Keys([u64; 3]);

impl Keys {
    pub(super) fn random() -> Keys {
        let state = RandomState::new();
        // Odd factors lose no bits.
        Keys([0, 1, 2].map(|number| state.hash_one(number) | 1))
    }

    /// The hash of a name in whatever case: who asks is not copied into lower case first, for what was just written in pieces a
    /// processor reads in others late only ("store forwarding" fails).
    ///
    /// Eight octets a step, the last eight of which overlap those before; the steps are those of wyhash: a product of 128
    /// bits, folded.
    #[inline(always)]
    pub(super) fn hash(&self, name: &[u8]) -> u64 {
        let Keys([start, factor, last_factor]) = *self;
        let lower = |eight: &[u8; 8]| lowercase_eight(u64::from_le_bytes(*eight));
        let mut hash = start ^ name.len() as u64;
        match name.last_chunk() {
            Some(last) => {
                for eight in name.as_chunks().0 {
                    hash = folded(hash ^ lower(eight), factor);
                }
                hash ^= lower(last);
            }
            None => {
                let mut eight = [0; 8];
                eight[..name.len()].copy_from_slice(name);
                hash ^= lower(&eight);
            }
        }
        folded(hash, last_factor)
    }
}

#[inline(always)]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl Table {
    /// A table of so many nodes: their places and names, which differ.
    pub(super) fn new<'n>(
        count: usize,
        nodes: impl Iterator<Item = (u32, &'n [u8])>,
        keys: Keys,
    ) -> Table {
        let mut table = Table {
            slots: vec![(0, NONE); count + count / 2 + 1].into(),
            keys,
        };
        for (node, name) in nodes {
            let (mut slot, tag) = table.start(table.keys.hash(name));
            while table.slots[slot].1 != NONE {
                slot = table.after(slot);
            }
            table.slots[slot] = (tag, node);
        }
        table
    }

    /// What its hashes are made with.
    #[inline]
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Where to begin, and what to look for.
    #[inline]
    fn start(&self, hash: u64) -> (usize, u32) {
        let slot = ((hash >> 32) * self.slots.len() as u64) >> 32;
        (slot as usize, hash as u32)
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() {
            0
        } else {
            slot + 1
        }
    }

    /// The node of `name`, which is in whatever case and has this hash. A free slot ends every search, and there is always one.
    #[inline(always)]
    pub(super) fn find(&self, arena: Arena<'_>, name: &[u8], hash: u64) -> Option<u32> {
        let (mut slot, tag) = self.start(hash);
        loop {
            let (found, node) = self.slots[slot];
            if node == NONE {
                return None;
            }
            if found == tag && names::same(Node::new(arena, node).name(), name) {
                return Some(node);
            }
            slot = self.after(slot);
        }
    }

    /// Where the search for a hash begins, for whoever wants it nearer.
    #[inline]
    pub(super) fn first_slot(&self, hash: u64) -> *const u8 {
        std::ptr::from_ref(&self.slots[self.start(hash).0]).cast()
    }

    /// The node that a search for this hash looks at first, whatever its name is.
    #[inline]
    pub(super) fn supposed(&self, hash: u64) -> Option<u32> {
        let (mut slot, tag) = self.start(hash);
        loop {
            match self.slots[slot] {
                (_, NONE) => return None,
                (found, node) if found == tag => return Some(node),
                _ => slot = self.after(slot),
            }
        }
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Names as zones have them: hashes of a million differ, as random ones would but for one time in millions, and so do
    /// their halves, of which one finds the slot and the other tells names of a slot apart.
    #[test]
    fn hashes_spread() {
        let keys = Keys::random();
        let name = |number: u32| format!("\x08{number:08x}\x07example\x03com\x00").into_bytes();
        let hashes: Vec<u64> = (0..200_000)
            .map(|number| keys.hash(&name(number)))
            .collect();
        let different: HashSet<u64> = hashes.iter().copied().collect();
        assert_eq!(different.len(), hashes.len());
        for shift in [0, 32, 46] {
            let mut counts = [0_u32; 1 << 10];
            for hash in &hashes {
                counts[(hash >> shift) as usize & 1_023] += 1;
            }
            // 195 each; the chance of one beyond ten times the deviation is nil.
            assert!(
                counts.iter().all(|count| (60..340).contains(count)),
                "{counts:?}"
            );
        }
        let short: HashSet<u64> = (0..=255).map(|octet| keys.hash(&[1, octet, 0])).collect();
        // Of letters, one case.
        assert_eq!(short.len(), 256 - 26);
    }
}
