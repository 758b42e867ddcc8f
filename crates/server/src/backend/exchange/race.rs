//! Races: one query, several servers, one answer (the policies `race` and `hedge`).
//!
//! Each server asked is a *leg*: an exchange of its own, with port, ID, deadline and a copy of the query. What the legs
//! share is one word in the body of the first, which is therefore kept until the last leg has ended.
//!
//! ```text
//!  leg 1 ─ body ◀──┐ 63      24 23     16      8 7          0
//!  leg 2 ─ body ───┤ │ 0      │ held │ decided │ legs out │    the word RACE of leg 1's body
//!  leg 3 ─ body ───┘
//! ```
//!
//! A leg ends as any exchange does, once, by the swap of its entry; then it leaves the race by a swap of that word. The
//! first good answer decides: whatever comes later has lost (I1). An error is held back while a better answer may come; the
//! last leg to end then gives the client the error. Losers stay in flight until their answer or time-out: their servers
//! have the query, and their latencies are as true as the winner's.

use super::entries::Place;
use super::hedges::Hedge;
use super::{Departure, Exchanges, OpenError, Port, Share, Waiting};
use crate::backend::server::ServerId;
use crate::clock::Now;
use crate::counters::{Lane, Writers};
use crate::pipeline::carried::Carried;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::Query;
use crate::random::Random;
use wire::codes::rcode;

/// Servers that one query is asked from at most.
pub const LEGS_MAX: usize = 16;

/// A race: the number of its first leg's body. Good as long as one of its legs is known to be out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaceId(u32);

/// A leg that is open and must be sent: the query under this ID, by this port, to this server.
#[derive(Debug, Clone, Copy)]
pub struct Leg {
    pub server: ServerId,
    pub port: Port,
    pub id: u16,
}

/// Whether an answer with this RCODE says something about the server rather than the name: another one may do better.
pub fn is_error(code: u16) -> bool {
    matches!(
        code,
        rcode::FORMERR | rcode::SERVFAIL | rcode::NOTIMP | rcode::REFUSED
    )
}

// ---------------------------------------------------------------------------------------------- the word

/// How a leg ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// By an answer with this RCODE.
    Answer(u16),
    /// By time, or it was never sent.
    Nothing,
}

/// What the ending of a leg means for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The answer is the client's.
    Won,
    /// The client has its answer, or will get it from whoever won.
    Lost,
    /// The answer is an error that waits for a better one.
    Held,
    /// Nothing came, and other legs are out.
    Waits,
    /// Nothing came, and this was the last: the client gets the error that was held, if it is not 0.
    Over(u8),
}

/// The word that the legs share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Race(pub(super) u64);

const LEGS: u64 = 0xff;
const DECIDED: u64 = 1 << 8;
const HELD_SHIFT: u32 = 16;

impl Race {
    pub(super) fn of(legs: u8) -> Race {
        Race(legs.into())
    }

    /// Legs that have not ended.
    pub(super) fn legs(self) -> u64 {
        self.0 & LEGS
    }

    fn is_decided(self) -> bool {
        self.0 & DECIDED != 0
    }

    fn held(self) -> u8 {
        (self.0 >> HELD_SHIFT) as u8
    }

    /// The race without one leg, which ended so, and what that means. Nobody leaves a race without legs.
    pub(super) fn leave(self, ending: Ending) -> (Race, Outcome) {
        let rest = Race(self.0 - 1);
        let is_last = rest.legs() == 0;
        let decided = Race(rest.0 | DECIDED);
        match ending {
            _ if self.is_decided() => (rest, Outcome::Lost),
            Ending::Answer(code) if is_last || !is_error(code) => (decided, Outcome::Won),
            Ending::Answer(code) => {
                let state = rest.0 & !(0xff << HELD_SHIFT) | u64::from(code & 0xff) << HELD_SHIFT;
                (Race(state), Outcome::Held)
            }
            Ending::Nothing if is_last => (decided, Outcome::Over(self.held())),
            Ending::Nothing => (rest, Outcome::Waits),
        }
    }

    /// The race with one leg more; `None` when it is over.
    pub(super) fn join(self) -> Option<Race> {
        let open = !self.is_decided() && (1..LEGS).contains(&self.legs());
        open.then_some(Race(self.0 + 1))
    }
}

// ---------------------------------------------------------------------------------------------- the table

impl Exchanges {
    /// Opens the first exchange of a race of `legs`, as [`Exchanges::open`] does. The others follow by
    /// [`Exchanges::open_leg`], or are given up by [`Exchanges::give_up_leg`].
    pub fn open_race(
        &self,
        share: &mut Share,
        query: &mut Query<'_>,
        departure: &Departure<'_>,
        random: &mut Random,
        legs: u8,
    ) -> Result<RaceId, OpenError> {
        let body = self.open_as(share, query, departure, random, |body, own| {
            body.lead(own, legs);
        })?;
        Ok(RaceId(body))
    }

    /// Opens one more exchange of `race`, which counts it already; the ID under which the query must leave.
    pub fn open_leg(
        &self,
        share: &mut Share,
        race: RaceId,
        departure: &Departure<'_>,
        random: &mut Random,
    ) -> Result<u16, OpenError> {
        let Departure {
            server, port, now, ..
        } = *departure;
        let first = self.bodies.get(race.0);
        let (id, _) = self.occupy(share, departure, random, |body, _, deadline| {
            body.follow(&first, (server, port), (now, deadline));
        })?;
        let lane = Lane::new(share.worker, Writers::One);
        server.extra_queries.count(lane);
        Ok(id)
    }

    /// A leg that `race` counts will not be opened. The RCODE of an error to give now, because it was the last one; 0 is
    /// none.
    pub fn give_up_leg(&self, race: RaceId) -> u8 {
        match self.leave_first(race.0, Ending::Nothing) {
            Outcome::Over(held) => held,
            _ => 0,
        }
    }

    /// One leg more, unless the race is over.
    pub fn join(&self, race: RaceId) -> bool {
        self.bodies.get(race.0).join_race()
    }

    /// Remembers that `race`, a race of one leg that was just opened, wants a second one at `due`.
    pub fn hedge(&self, share: &mut Share, race: RaceId, due: Now) {
        let entry = self.entries.get(Place(self.bodies.get(race.0).place()));
        share.hedges.push(Hedge {
            due,
            body: race.0,
            entry,
        });
    }

    /// The next query of this worker that has waited for its first server long enough; `waiting` then holds it.
    ///
    /// It may end any moment: [`Exchanges::join`] tells.
    pub fn next_late(&self, share: &mut Share, now: Now, waiting: &mut Waiting) -> Option<RaceId> {
        while let Some(Hedge { body, entry, .. }) = share.hedges.pop(now) {
            let words = self.bodies.get(body);
            // Only this worker uses its bodies again: while the entry is the same, so is the query.
            if self.entries.get(Place(words.place())) == entry {
                words.read(waiting);
                return Some(RaceId(body));
            }
        }
        None
    }

    /// The extras of the query of a race, as long as it goes on.
    #[cold]
    pub fn extras_of(&self, race: RaceId) -> Carried {
        match self.bodies.get(race.0).has_extras() {
            true => self.extras.copy(race.0),
            false => Carried::NOTHING,
        }
    }

    /// When [`Exchanges::next_late`] has something to look at.
    #[inline]
    pub fn next_hedge(&self, share: &Share) -> Option<Now> {
        share.hedges.next()
    }

    /// The answer that ended the leg in `body`, whose query `waiting` holds.
    ///
    /// # Errors
    /// Why the client does not get it.
    #[cold]
    pub(super) fn leave_with_answer(
        &self,
        body: u32,
        code: u16,
        now: Now,
        waiting: &mut Waiting,
    ) -> Result<(), DropReason> {
        self.note_latency(now, waiting);
        let since = self.bodies.get(self.bodies.get(body).first_leg()).sent();
        match self.leave(body, Ending::Answer(code)) {
            Outcome::Won => {
                waiting.sent = since;
                Ok(())
            }
            #[cfg(test)]
            Outcome::Lost if self.planted.losers_answer => Ok(()),
            Outcome::Held => Err(DropReason::ResponseHeld),
            Outcome::Lost | Outcome::Waits | Outcome::Over(_) => Err(DropReason::ResponseLost),
        }
    }

    /// The exchange in `body`, whose query `waiting` holds, has timed out; whether nobody is waited for any more.
    pub(super) fn gives_up(&self, body: u32, now: Now, waiting: &mut Waiting) -> bool {
        waiting.held_rcode = 0;
        if !waiting.is_leg {
            self.slots.give(body);
            return true;
        }
        self.note_latency(now, waiting);
        let since = self.bodies.get(self.bodies.get(body).first_leg()).sent();
        let Outcome::Over(held) = self.leave(body, Ending::Nothing) else {
            return false;
        };
        (waiting.held_rcode, waiting.sent) = (held, since);
        true
    }

    /// The leg in `body` has ended: it leaves its race, and bodies that nobody needs any more are free.
    pub(super) fn leave(&self, body: u32, ending: Ending) -> Outcome {
        let first = self.bodies.get(body).first_leg();
        if body != first {
            self.slots.give(body);
        }
        self.leave_first(first, ending)
    }

    fn leave_first(&self, first: u32, ending: Ending) -> Outcome {
        let (outcome, was_last) = self.bodies.get(first).leave_race(ending);
        if was_last {
            self.take_extras(first);
            self.slots.give(first);
        }
        outcome
    }

    /// What `hedge` goes by: how slow the server's slowest answers are, those that never came among them.
    fn note_latency(&self, now: Now, waiting: &Waiting) {
        self.servers.with(waiting.server, |server| {
            server.slowest.note(now.since(waiting.sent));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ending() -> impl Strategy<Value = Ending> {
        prop_oneof![
            Just(Ending::Nothing),
            (0..6_u16).prop_map(Ending::Answer),
            Just(Ending::Answer(rcode::SERVFAIL)),
        ]
    }

    proptest! {
        /// I1 of a race: however its legs end, the client is served once, by the first good answer if there is one.
        #[test]
        fn a_race_has_one_end(endings in proptest::collection::vec(ending(), 1..=LEGS_MAX)) {
            let mut race = Race::of(endings.len() as u8);
            let mut outcomes = Vec::new();
            for &ending in &endings {
                let (next, outcome) = race.leave(ending);
                outcomes.push(outcome);
                race = next;
            }
            prop_assert_eq!(race.legs(), 0);
            prop_assert_eq!(race.join(), None);
            let good = endings.iter().position(|ending| matches!(ending, Ending::Answer(code) if !is_error(*code)));
            let ends = |outcome: &Outcome| matches!(outcome, Outcome::Won | Outcome::Over(_));
            prop_assert_eq!(outcomes.iter().filter(|outcome| ends(outcome)).count(), 1);
            let end = outcomes.iter().position(ends).unwrap();
            prop_assert_eq!(end, good.unwrap_or(endings.len() - 1));
            if let Outcome::Over(held) = outcomes[end] {
                let last_error = endings.iter().rev().find_map(|ending| match ending {
                    Ending::Answer(code) => Some(*code as u8),
                    Ending::Nothing => None,
                });
                prop_assert_eq!(held, last_error.unwrap_or(0));
            }
        }
    }

    #[test]
    fn nobody_joins_a_race_that_is_over_or_full() {
        let race = Race::of(1).join().expect("one leg is out");
        assert_eq!(race.legs(), 2);
        let (won, _) = race.leave(Ending::Answer(rcode::NOERROR));
        assert_eq!((won.legs(), won.join()), (1, None));
        assert_eq!(Race::of(u8::MAX).join(), None);
    }
}
