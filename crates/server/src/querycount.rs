//! What setQueryCount counts: how often names are asked for, behind a lock that only configurations take which ask for it.

use crate::heap;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names beyond so many are not counted: random ones must not fill the memory (invariant I6). At most some 40 MB.
pub const NAMES_MAX: usize = 100_000;

/// The buffer of query counters.
#[derive(Debug, Default)]
pub struct QueryCounters(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_name: HashMap<Box<str>, u64>,
    /// Queries for names that found no room, or no memory.
    uncounted: u64,
}

/// The buffer as it is at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// Names that have a counter.
    pub names: usize,
    /// Those that were asked for most, and how often.
    pub most: Vec<(Box<str>, u64)>,
    /// Queries for names that found no room.
    pub uncounted: u64,
}

impl QueryCounters {
    /// Counts one more query for `name`.
    pub fn count(&self, name: &str) {
        let mut counts = self.lock();
        if let Some(count) = counts.by_name.get_mut(name) {
            *count += 1;
        } else if counts.by_name.len() < NAMES_MAX
            && counts.by_name.try_reserve(1).is_ok()
            && !heap::is_short()
        {
            counts.by_name.insert(name.into(), 1);
        } else {
            counts.uncounted += 1;
        }
    }

    /// The `most` names that were asked for most often; of equals in alphabetical order.
    ///
    /// Queries wait for the lock meanwhile: of many names only those that are told are sorted.
    pub fn look(&self, most: usize) -> Counted {
        let counts = self.lock();
        let mut names: Vec<_> = counts.by_name.iter().collect();
        if most < names.len() {
            names.select_nth_unstable_by_key(most, |&(name, count)| (Reverse(*count), name));
            names.truncate(most);
        }
        names.sort_unstable_by_key(|&(name, count)| (Reverse(*count), name));
        let most = names.into_iter();
        Counted {
            names: counts.by_name.len(),
            most: most.map(|(name, count)| (name.clone(), *count)).collect(),
            uncounted: counts.uncounted,
        }
    }

    /// Forgets all; how many names there were.
    pub fn clear(&self) -> usize {
        let counts = std::mem::take(&mut *self.lock());
        counts.by_name.len()
    }

    /// Forgets all; the names, and how often they were asked for.
    pub fn take(&self) -> Vec<(Box<str>, u64)> {
        let counts = std::mem::take(&mut *self.lock());
        counts.by_name.into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_by_how_often_they_were_asked_for() {
        let counters = QueryCounters::default();
        for name in ["b", "a", "c", "c"] {
            counters.count(name);
        }
        for (most, told) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)] {
            let all: [(Box<str>, u64); 3] = [("c".into(), 2), ("a".into(), 1), ("b".into(), 1)];
            assert_eq!(counters.look(most).most, all[..told], "{most}");
        }
        let counted = counters.look(2);
        assert_eq!((counted.names, counted.uncounted), (3, 0));
        assert_eq!((counters.clear(), counters.clear()), (3, 0));
        counters.count("d");
        assert_eq!(counters.take(), [("d".into(), 1)]);
        assert!(counters.take().is_empty());
    }

    #[test]
    fn names_beyond_the_limit_take_no_memory() {
        let counters = QueryCounters::default();
        for number in 0..NAMES_MAX + 3 {
            counters.count(&number.to_string());
        }
        counters.count("0");
        let counted = counters.look(1);
        assert_eq!((counted.names, counted.uncounted), (NAMES_MAX, 3));
        assert_eq!(counted.most, [("0".into(), 2)]);
    }
}
