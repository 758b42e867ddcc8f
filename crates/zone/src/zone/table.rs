//! Names by their hashes: eight octets a slot, a third of the slots free.

use super::parts::{NONE, Node};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
use std::hash::{BuildHasher, RandomState};

/// Nodes of an arena, found by name. A slot has 32 bits of the hash and the node's place; those that collide take the next
/// free slot.
pub(super) struct Table {
    slots: Box<[(u32, u32)]>,
    keys: Keys,
}

/// What makes hashes unpredictable: who may write a zone could make its names collide.
#[derive(Clone)]
pub(super) struct Keys(RapidSecrets);

impl Keys {
    pub(super) fn random() -> Keys {
        Keys(RapidSecrets::seed(RandomState::new().hash_one(0)))
    }

    #[inline]
    pub(super) fn hash(&self, name: &[u8]) -> u64 {
        rapidhash_v3_inline::<true, false, false>(name, &self.0)
    }
}

impl Table {
    /// A table of `nodes`, whose names differ.
    pub(super) fn new(arena: &[u8], nodes: &[u32], keys: Keys) -> Table {
        let count = nodes.len() + nodes.len() / 2 + 1;
        let mut table = Table {
            slots: vec![(0, NONE); count].into(),
            keys,
        };
        for node in nodes {
            let (mut slot, tag) = table.start(Node::new(arena, *node).name());
            while table.slots[slot].1 != NONE {
                slot = table.after(slot);
            }
            table.slots[slot] = (tag, *node);
        }
        table
    }

    /// Where to begin, and what to look for.
    #[inline]
    fn start(&self, name: &[u8]) -> (usize, u32) {
        let hash = self.keys.hash(name);
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

    /// The node of `name`, which is in lower case. A free slot ends every search, and there is always one.
    #[inline]
    pub(super) fn find(&self, arena: &[u8], name: &[u8]) -> Option<u32> {
        let (mut slot, tag) = self.start(name);
        loop {
            let (found, node) = self.slots[slot];
            if node == NONE {
                return None;
            }
            if found == tag && Node::new(arena, node).name() == name {
                return Some(node);
            }
            slot = self.after(slot);
        }
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.slots)
    }
}
