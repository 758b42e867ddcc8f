//! A bounded queue whose places are made once: several threads fill them, one empties them, and nobody allocates or waits (the
//! bounded queue of Dmitry Vyukov, the content of each place behind a lock that its turns keep free).
//!
//! ```text
//!  a place's turn   position                  free, for whoever takes this position
//!                   position + 1              filled
//!                   position + all places     emptied: free in the next round
//! ```

use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The queue; two places or more.
pub(super) struct Ring<T> {
    places: Box<[Place<T>]>,
    /// The position that is filled next.
    tail: AtomicUsize,
    /// The position that is emptied next: only one thread does.
    head: AtomicUsize,
}

struct Place<T> {
    turn: AtomicUsize,
    /// Who has the turn meets nobody here.
    content: Mutex<T>,
}

impl<T> Place<T> {
    fn content(&self) -> MutexGuard<'_, T> {
        // Contents are written anew whatever the last writer died of.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Ring<T> {
    /// So many places, with what `make` makes.
    pub(super) fn new(count: usize, make: impl Fn() -> T) -> Ring<T> {
        let place = |position| Place {
            turn: AtomicUsize::new(position),
            content: Mutex::new(make()),
        };
        Ring {
            places: (0..count).map(place).collect(),
            tail: AtomicUsize::new(0),
            head: AtomicUsize::new(0),
        }
    }

    /// Has `fill` write to the next free place. False: there is none.
    pub(super) fn put(&self, fill: impl FnOnce(&mut T)) -> bool {
        let mut position = self.tail.load(Relaxed);
        loop {
            let place = &self.places[position % self.places.len()];
            let turn = place.turn.load(Acquire);
            if turn < position {
                return false;
            }
            if turn > position {
                position = self.tail.load(Relaxed);
                continue;
            }
            let (tail, next) = (&self.tail, position + 1);
            match tail.compare_exchange_weak(position, next, Relaxed, Relaxed) {
                Ok(_) => {
                    fill(&mut place.content());
                    place.turn.store(next, Release);
                    return true;
                }
                Err(current) => position = current,
            }
        }
    }

    /// Has `empty` read the oldest place that is filled. False: there is none. For one thread only.
    pub(super) fn take(&self, empty: impl FnOnce(&mut T)) -> bool {
        let position = self.head.load(Relaxed);
        let place = &self.places[position % self.places.len()];
        if place.turn.load(Acquire) != position + 1 {
            return false;
        }
        empty(&mut place.content());
        let free_again = position + self.places.len();
        place.turn.store(free_again, Release);
        self.head.store(position + 1, Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn places_are_used_again_and_what_finds_none_is_told() {
        let ring = Ring::new(2, || 0);
        let put = |number| ring.put(|place| *place = number);
        let take = || {
            let mut taken = None;
            ring.take(|place| taken = Some(*place));
            taken
        };
        assert_eq!(take(), None);
        for round in 0..5 {
            assert!(put(round) && put(round + 100));
            assert!(!put(7), "there is no room");
            let taken = [take(), take(), take()];
            assert_eq!(taken, [Some(round), Some(round + 100), None]);
        }
    }

    #[test]
    fn whoever_puts_nothing_is_lost_and_each_ones_order_stays() {
        const EACH: usize = 10_000;
        const THREADS: usize = 3;
        let ring = Arc::new(Ring::new(8, || (0, 0)));
        let put = |thread: usize| {
            let ring = Arc::clone(&ring);
            std::thread::spawn(move || {
                for number in 0..EACH {
                    while !ring.put(|place| *place = (thread, number)) {
                        std::thread::yield_now();
                    }
                }
            })
        };
        let threads: Vec<_> = (0..THREADS).map(put).collect();
        let mut next = [0; THREADS];
        while next.iter().sum::<usize>() < THREADS * EACH {
            let taken = ring.take(|&mut (thread, number)| {
                assert_eq!(number, next[thread]);
                next[thread] += 1;
            });
            if !taken {
                std::thread::yield_now();
            }
        }
        for thread in threads {
            thread.join().expect("it ends");
        }
    }
}
