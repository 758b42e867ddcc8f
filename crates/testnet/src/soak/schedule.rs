//! What happens when: nothing but a seed decides it. Kinds of faults come in rounds, each kind once a round, in an order that
//! differs from round to round.

use std::time::Duration;

use super::faults::{self, Fault, Kind};
use super::random::Random;

/// A fault, how long it lasts, and how long nothing happens after service must be normal again.
#[derive(Debug)]
pub(super) struct Step {
    pub fault: Box<dyn Fault>,
    pub hold: Duration,
    pub calm: Duration,
}

/// Steps without end.
pub(super) struct Schedule {
    random: Random,
    kinds: Vec<&'static Kind>,
    round: Vec<&'static Kind>,
}

impl Schedule {
    /// Of all kinds whose name holds one of `words`, or of all where there is none.
    pub(super) fn new(seed: u64, words: &[String]) -> Self {
        let is_asked_for = |kind: &&Kind| {
            words.is_empty() || words.iter().any(|word| kind.name.contains(word.as_str()))
        };
        Self {
            random: Random::new(seed),
            kinds: faults::kinds().filter(is_asked_for).collect(),
            round: Vec::new(),
        }
    }
}

impl Iterator for Schedule {
    type Item = Step;

    /// `None`: there is no such kind.
    fn next(&mut self) -> Option<Step> {
        if self.round.is_empty() {
            self.round = self.kinds.clone();
            self.random.shuffle(&mut self.round);
        }
        let kind = self.round.pop()?;
        Some(Step {
            fault: (kind.draw)(&mut self.random),
            hold: Duration::from_millis(self.random.between(200, 1_200)),
            calm: Duration::from_millis(self.random.between(500, 1_500)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn first(seed: u64, count: usize) -> Vec<String> {
        let steps = Schedule::new(seed, &[]).take(count);
        let text = |step: Step| format!("{} {:?} {:?}", step.fault, step.hold, step.calm);
        steps.map(text).collect()
    }

    #[test]
    fn a_seed_is_a_schedule_and_another_seed_another() {
        assert_eq!(first(7, 300), first(7, 300));
        assert_ne!(first(7, 300), first(8, 300));
    }

    #[test]
    fn every_kind_comes_once_a_round() {
        let count = faults::kinds().count();
        let names: HashSet<_> = faults::kinds().map(|kind| kind.name).collect();
        assert_eq!(names.len(), count, "two kinds have one name");
        let mut schedule = Schedule::new(3, &[]);
        for _ in 0..5 {
            let drawn: HashSet<_> = (0..count)
                .map(|_| {
                    let left = schedule.round.len();
                    schedule.next().expect("a step");
                    let round = &schedule.round;
                    assert!(left == 0 || round.len() == left - 1);
                    round.iter().map(|kind| kind.name).collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(drawn.len(), count);
            assert!(schedule.round.is_empty());
        }
    }

    #[test]
    fn words_choose_kinds_and_a_word_that_fits_none_gives_no_step() {
        let of = |word: &str| Schedule::new(1, &[word.to_owned()]).next();
        assert!(of("link").is_some());
        assert!(of("no such kind").is_none());
    }
}
