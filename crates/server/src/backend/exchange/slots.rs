//! Which bodies are free: a bitmap per worker. Its owner takes, anybody gives back.
//!
//! The lowest free body is taken first, so that a few hundred bodies stay hot however many there are. The owner takes all
//! free bits of a word at once and hands them out without atomics ([`Hand`]).
//!
//! ```text
//!  summary  word 0: bit i = "word i of the bitmap may have free bits"
//!  free     word i: bit j = "body 64 i + j is free"
//! ```

use crate::words::{self, Words};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// One worker's bodies.
struct Slice {
    free: Words,
    summary: Words,
}

impl Slice {
    /// All of `bodies` free.
    fn new(bodies: usize) -> Slice {
        let count = bodies / 64;
        let slice = Slice {
            free: words::zeroed(count),
            summary: words::zeroed(count.div_ceil(64)),
        };
        for (index, word) in slice.free.iter().enumerate() {
            word.store(u64::MAX, Relaxed);
            slice.summary[index / 64].fetch_or(1 << (index % 64), Relaxed);
        }
        slice
    }

    /// Takes all free bits of the lowest word that has some.
    fn refill(&self) -> Option<(usize, u64)> {
        for (group, summary) in self.summary.iter().enumerate() {
            let mut bits = summary.load(Relaxed);
            while bits != 0 {
                let index = group * 64 + bits.trailing_zeros() as usize;
                // Acquire: who gave a body back has read it to the end.
                let free = self.free[index].swap(0, Acquire);
                if free != 0 {
                    return Some((index, free));
                }
                self.mark_full(index);
                bits &= bits - 1;
            }
        }
        None
    }

    /// Clears the summary bit of a word that was found empty, and looks again: a body may have come back in between.
    fn mark_full(&self, index: usize) {
        let (group, bit) = (index / 64, 1 << (index % 64));
        self.summary[group].fetch_and(!bit, AcqRel);
        if self.free[index].load(Acquire) != 0 {
            self.summary[group].fetch_or(bit, AcqRel);
        }
    }

    fn give(&self, body: usize) {
        let (index, bit) = (body / 64, 1 << (body % 64));
        if self.free[index].fetch_or(bit, AcqRel) == 0 {
            self.summary[index / 64].fetch_or(1 << (index % 64), AcqRel);
        }
    }
}

/// The free bodies that a worker holds in its hand.
#[derive(Debug, Default)]
pub(super) struct Hand {
    word: usize,
    bits: u64,
    /// Words of the bitmap below this one may have bodies in use.
    high: usize,
}

/// Who has which body.
pub(super) struct Slots {
    slices: Box<[Slice]>,
    /// Bodies per worker are 2^this.
    bits: u32,
}

impl Slots {
    /// 2^`bits` bodies for each of `workers`; at least 64.
    pub(super) fn new(workers: usize, bits: u32) -> Slots {
        let bits = bits.max(6);
        Slots {
            slices: (0..workers).map(|_| Slice::new(1 << bits)).collect(),
            bits,
        }
    }

    /// How many bodies there are in all.
    pub(super) fn count(&self) -> usize {
        self.slices.len() << self.bits
    }

    /// A free body of `worker`; `None` when all are in use.
    pub(super) fn take(&self, worker: usize, hand: &mut Hand) -> Option<u32> {
        if hand.bits == 0 {
            (hand.word, hand.bits) = self.slices[worker].refill()?;
        }
        hand.high = hand.high.max(hand.word + 1);
        let bit = hand.bits.trailing_zeros() as usize;
        hand.bits &= hand.bits - 1;
        Some(((worker << self.bits) + hand.word * 64 + bit) as u32)
    }

    /// Gives a body back, whoever's it is.
    pub(super) fn give(&self, body: u32) {
        let body = body as usize;
        self.slices[body >> self.bits].give(body & ((1 << self.bits) - 1));
    }

    /// The bodies of `worker` in use within word `index` of its bitmap, as bits.
    pub(super) fn used(&self, worker: usize, hand: &Hand, index: usize) -> u64 {
        let free = self.slices[worker].free[index].load(Relaxed);
        let in_hand = if hand.word == index { hand.bits } else { 0 };
        !(free | in_hand)
    }

    /// The number of body `bit` in word `index` of `worker`.
    pub(super) fn body(&self, worker: usize, index: usize, bit: u32) -> u32 {
        ((worker << self.bits) + index * 64) as u32 + bit
    }
}

impl Hand {
    /// Words of the bitmap that may have bodies in use: indices below this.
    pub(super) fn high(&self) -> usize {
        self.high
    }

    /// From word `high` on nothing is in use.
    pub(super) fn lower(&mut self, high: usize) {
        self.high = high;
    }

    /// The word of the bitmap that the last body came from.
    pub(super) fn word(&self) -> usize {
        self.word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_body_is_given_once_and_the_lowest_first() {
        let slots = Slots::new(2, 7);
        let mut hand = Hand::default();
        let taken: Vec<u32> = std::iter::from_fn(|| slots.take(1, &mut hand)).collect();
        assert_eq!(taken, (128..256).collect::<Vec<u32>>());
        slots.give(200);
        slots.give(130);
        assert_eq!(slots.take(1, &mut hand), Some(130));
        assert_eq!(slots.take(1, &mut hand), Some(200));
        assert_eq!(slots.take(1, &mut hand), None);
        assert_eq!(slots.count(), 256);
    }

    #[test]
    fn used_bodies_are_those_neither_free_nor_in_the_hand() {
        let slots = Slots::new(1, 6);
        let mut hand = Hand::default();
        assert_eq!((slots.used(0, &hand, 0), hand.high()), (0, 0));
        let bodies: Vec<u32> = (0..3).filter_map(|_| slots.take(0, &mut hand)).collect();
        slots.give(bodies[1]);
        assert_eq!((slots.used(0, &hand, 0), hand.high()), (0b101, 1));
    }

    #[test]
    fn bodies_given_back_by_other_threads_are_not_lost() {
        let slots = Slots::new(1, 8);
        let mut hand = Hand::default();
        let (sender, receiver) = std::sync::mpsc::channel::<u32>();
        std::thread::scope(|scope| {
            scope.spawn(|| receiver.into_iter().for_each(|body| slots.give(body)));
            let mut left = 100_000;
            while left > 0 {
                match slots.take(0, &mut hand) {
                    Some(body) => {
                        sender.send(body).expect("the other thread listens");
                        left -= 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
            drop(sender);
        });
        let all: HashSet<u32> = std::iter::from_fn(|| slots.take(0, &mut hand)).collect();
        assert_eq!(all.len(), 256);
    }
}
