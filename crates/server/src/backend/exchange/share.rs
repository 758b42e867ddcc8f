//! What one worker alone knows of the exchange table.

use super::Leg;
use super::hedges::Hedges;
use super::slots::Hand;
use crate::clock::Now;
use std::time::Duration;

/// One worker's part of the table: the free bodies in its hand, and where it is in its walk for time-outs.
#[derive(Debug)]
pub struct Share {
    /// The worker's number: its bodies are those of this slice.
    pub(super) worker: usize,
    pub(super) hand: Hand,
    pub(super) walk: Walk,
    /// The further legs of the query that was just forwarded: to be sent before the query itself is.
    pub legs: Vec<Leg>,
    /// What servers with useProxyProtocol are told of that query; it goes out in front of it.
    pub proxy_header: Vec<u8>,
    /// Queries that a second server will be asked unless the first answers soon.
    pub(super) hedges: Hedges,
}

impl Share {
    pub(super) fn new(worker: usize) -> Share {
        Share {
            worker,
            hand: Hand::default(),
            walk: Walk::default(),
            legs: Vec::new(),
            proxy_header: Vec::new(),
            hedges: Hedges::default(),
        }
    }
}

/// Where a worker is in looking through its bodies in use, and when it must look again.
///
/// A walk notes the earliest deadline it meets, and opening an exchange lowers it: with answers coming in, that is one
/// walk per time-out; with nothing in flight, none.
#[derive(Debug)]
pub(super) struct Walk {
    /// Not before this; [`NEVER`] when nothing is in flight.
    pub(super) next: Now,
    /// The earliest deadline met since the walk began.
    earliest: Now,
    /// The word of the bitmap that is looked at next.
    pub(super) cursor: usize,
    /// Behind the last word that was seen with bodies in use since the walk began.
    high: usize,
}

const NEVER: Now = Now(u64::MAX);

/// Time-outs are noticed so much late at most, and walks follow each other no faster.
const PAUSE: Duration = Duration::from_millis(2);

impl Default for Walk {
    fn default() -> Walk {
        Walk {
            next: NEVER,
            earliest: NEVER,
            cursor: 0,
            high: 0,
        }
    }
}

impl Walk {
    /// There is an exchange that ends at `deadline`.
    pub(super) fn note(&mut self, deadline: Now) {
        self.earliest = self.earliest.min(deadline);
        self.next = self.next.min(deadline);
    }

    /// There are bodies in use in word `index` of the bitmap.
    pub(super) fn saw(&mut self, index: usize) {
        self.high = self.high.max(index + 1);
    }

    pub(super) fn is_due(&self, now: Now) -> bool {
        self.next <= now
    }

    /// When the next walk is due; `None` when nothing is in flight.
    pub(super) fn due(&self) -> Option<Now> {
        (self.next != NEVER).then_some(self.next)
    }

    /// All words were looked at; how many of them may still have bodies in use.
    pub(super) fn finish(&mut self, now: Now) -> usize {
        let pause = Now(now.0 + PAUSE.as_nanos() as u64);
        self.next = match self.earliest {
            NEVER => NEVER,
            earliest => earliest.max(pause),
        };
        self.earliest = NEVER;
        self.cursor = 0;
        std::mem::take(&mut self.high)
    }
}
