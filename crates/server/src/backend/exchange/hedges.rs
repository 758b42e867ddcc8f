//! When a second server is to be asked: what one worker alone knows, so without atomics, and without a timer a query.

use super::entries::Entry;
use crate::clock::Now;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Queries of one worker that may wait for their second server at a time; one more has to do with its first.
const HEDGES_MAX: usize = 8_192;

/// A query, and when its second server is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hedge {
    pub(super) due: Now,
    pub(super) body: u32,
    /// As it was when the query left.
    pub(super) entry: Entry,
}

/// A heap by the moment: answers end most queries before they are due, and those are passed by then.
#[derive(Debug, Default)]
pub(super) struct Hedges {
    heap: BinaryHeap<Reverse<ByMoment>>,
}

#[derive(Debug, Clone, Copy)]
struct ByMoment(Hedge);

impl PartialEq for ByMoment {
    fn eq(&self, other: &ByMoment) -> bool {
        self.0.due == other.0.due
    }
}

impl Eq for ByMoment {}

impl PartialOrd for ByMoment {
    fn partial_cmp(&self, other: &ByMoment) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByMoment {
    fn cmp(&self, other: &ByMoment) -> std::cmp::Ordering {
        self.0.due.cmp(&other.0.due)
    }
}

impl Hedges {
    pub(super) fn push(&mut self, hedge: Hedge) {
        if self.heap.capacity() == 0 {
            self.heap.reserve_exact(HEDGES_MAX);
        }
        if self.heap.len() < HEDGES_MAX {
            self.heap.push(Reverse(ByMoment(hedge)));
        }
    }

    /// The first that is due.
    pub(super) fn pop(&mut self, now: Now) -> Option<Hedge> {
        self.next().filter(|&due| due <= now)?;
        self.heap.pop().map(|Reverse(ByMoment(hedge))| hedge)
    }

    pub(super) fn next(&self) -> Option<Now> {
        self.heap.peek().map(|Reverse(ByMoment(hedge))| hedge.due)
    }
}
