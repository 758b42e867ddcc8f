//! The queries of one thread that wait for an answer: by message ID, and in the order in which they were sent.
//!
//! The thread's sockets share its 65,536 IDs, which are used in turn: the state of an ID tells an answer that comes twice
//! from one that comes after its query was given up.

use std::collections::VecDeque;

/// Most queries of one thread that can wait at once: there are no more IDs.
pub const OUTSTANDING_MAX: usize = 1 << 16;

/// Most entries of the order, 16 octets each. Behind a query that waits for long, those that were answered since stay.
const ORDER_MAX: usize = 16 * OUTSTANDING_MAX;

/// A query that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// Number of its question.
    pub(super) question: u32,
    /// Which of the thread's sockets it went by: where its answer must come.
    pub(super) client: u32,
    /// When it was sent, in nanoseconds since the start.
    pub(super) sent: u64,
    /// When it was meant to be sent: earlier only where a rate is kept.
    pub(super) intended: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Never,
    Waiting,
    Answered,
    GivenUp,
}

#[derive(Clone, Copy)]
struct Slot {
    state: State,
    query: Query,
}

/// What an ID is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Waits for its answer.
    Waiting(Query),
    /// Has its answer.
    Answered(Query),
    /// Was given up.
    GivenUp(Query),
    /// Nothing was asked under it.
    Never,
}

/// All queries of a thread.
pub(super) struct Outstanding {
    slots: Box<[Slot]>,
    /// IDs in the order in which they were sent; those that were answered since are still among them.
    order: VecDeque<(u16, u64)>,
    next: u16,
    waiting: usize,
}

impl Outstanding {
    pub(super) fn new() -> Outstanding {
        let unused = Slot {
            state: State::Never,
            query: Query {
                question: 0,
                client: 0,
                sent: 0,
                intended: 0,
            },
        };
        Outstanding {
            slots: vec![unused; OUTSTANDING_MAX].into_boxed_slice(),
            order: VecDeque::new(),
            next: 0,
            waiting: 0,
        }
    }

    /// Queries that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Enters a query; returns its ID. `None`: all IDs wait.
    pub(super) fn enter(&mut self, query: Query) -> Option<u16> {
        if self.waiting == OUTSTANDING_MAX {
            return None;
        }
        while self.slots[usize::from(self.next)].state == State::Waiting {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next = id.wrapping_add(1);
        self.slots[usize::from(id)] = Slot {
            state: State::Waiting,
            query,
        };
        if self.order.len() >= ORDER_MAX {
            self.forget_settled();
        }
        self.order.push_back((id, query.sent));
        self.waiting += 1;
        Some(id)
    }

    /// Takes out of the order what waits no more; of the rest there are no more than IDs.
    #[cold]
    fn forget_settled(&mut self) {
        let slots = &self.slots;
        self.order.retain(|&(id, sent)| {
            let slot = slots[usize::from(id)];
            slot.state == State::Waiting && slot.query.sent == sent
        });
    }

    /// What was asked under an ID.
    pub(super) fn find(&self, id: u16) -> Found {
        let Slot { state, query } = self.slots[usize::from(id)];
        match state {
            State::Never => Found::Never,
            State::Waiting => Found::Waiting(query),
            State::Answered => Found::Answered(query),
            State::GivenUp => Found::GivenUp(query),
        }
    }

    /// Marks a waiting query as answered.
    pub(super) fn answer(&mut self, id: u16) {
        self.settle(id, State::Answered);
    }

    /// Marks a query that was given up as answered, late: what comes after that is a duplicate.
    pub(super) fn answer_late(&mut self, id: u16) {
        let slot = &mut self.slots[usize::from(id)];
        debug_assert_eq!(slot.state, State::GivenUp, "ID {id}");
        slot.state = State::Answered;
    }

    /// Takes a query back that was never sent.
    pub(super) fn withdraw(&mut self, id: u16) {
        self.settle(id, State::Never);
    }

    /// Gives up the oldest query, if it was sent before `limit`, in nanoseconds since the start. `None`: none was.
    pub(super) fn give_up(&mut self, limit: u64) -> Option<Query> {
        while let Some(&(id, sent)) = self.order.front() {
            let slot = self.slots[usize::from(id)];
            let waits = slot.state == State::Waiting && slot.query.sent == sent;
            if waits && sent >= limit {
                return None;
            }
            self.order.pop_front();
            if waits {
                self.settle(id, State::GivenUp);
                return Some(slot.query);
            }
        }
        None
    }

    /// When the oldest waiting query was sent.
    pub(super) fn oldest(&mut self) -> Option<u64> {
        while let Some(&(id, sent)) = self.order.front() {
            let slot = self.slots[usize::from(id)];
            if slot.state == State::Waiting && slot.query.sent == sent {
                return Some(sent);
            }
            self.order.pop_front();
        }
        None
    }

    fn settle(&mut self, id: u16, state: State) {
        let slot = &mut self.slots[usize::from(id)];
        debug_assert_eq!(slot.state, State::Waiting, "ID {id}");
        slot.state = state;
        self.waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(question: u32, sent: u64) -> Query {
        Query {
            question,
            client: 0,
            sent,
            intended: sent,
        }
    }

    #[test]
    fn an_id_is_waiting_then_answered() {
        let mut all = Outstanding::new();
        let id = all.enter(query(7, 1)).unwrap();
        assert_eq!(all.find(id), Found::Waiting(query(7, 1)));
        all.answer(id);
        assert_eq!(all.find(id), Found::Answered(query(7, 1)));
        assert_eq!(all.find(id.wrapping_add(1)), Found::Never);
        assert_eq!((all.len(), all.oldest()), (0, None));
    }

    #[test]
    fn the_oldest_are_given_up_first_and_only_when_it_is_time() {
        let mut all = Outstanding::new();
        let ids: Vec<u16> = (0..4)
            .map(|number| all.enter(query(number, u64::from(number) * 10)).unwrap())
            .collect();
        all.answer(ids[0]);
        assert_eq!(all.oldest(), Some(10));
        assert_eq!(all.give_up(15), Some(query(1, 10)));
        assert_eq!(all.give_up(15), None);
        assert_eq!(all.find(ids[1]), Found::GivenUp(query(1, 10)));
        assert_eq!((all.len(), all.oldest()), (2, Some(20)));
        all.answer_late(ids[1]);
        assert_eq!(all.find(ids[1]), Found::Answered(query(1, 10)));
        assert_eq!(all.len(), 2, "it did not wait any more");
    }

    #[test]
    fn an_id_that_waits_is_not_used_again() {
        let mut all = Outstanding::new();
        let stuck = all.enter(query(0, 0)).unwrap();
        for number in 1..1_200_000_u32 {
            let id = all.enter(query(number, u64::from(number))).unwrap();
            assert_ne!(id, stuck);
            all.answer(id);
        }
        assert!(all.order.len() < ORDER_MAX, "{}", all.order.len());
        assert_eq!(all.oldest(), Some(0));
        assert_eq!(all.give_up(1), Some(query(0, 0)));
        assert_eq!(all.len(), 0);
    }

    #[test]
    fn all_ids_can_wait_and_no_more() {
        let mut all = Outstanding::new();
        for number in 0..OUTSTANDING_MAX {
            all.enter(query(number as u32, 0)).unwrap();
        }
        assert_eq!(all.enter(query(0, 0)), None);
        all.withdraw(99);
        assert_eq!(all.enter(query(0, 0)), Some(99));
    }
}
