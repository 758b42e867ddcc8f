//! R99 is searched by turns: all contenders of a scenario are up at the same time, and each in turn holds the next rate of its own
//! search, until every search is over.
//!
//! A machine has fast and slow minutes, in which the same server keeps up with a quarter more or less. A search takes half a minute:
//! of two that are made one after the other, one may have all of a slow minute. By turns every contender has a part of it, and the
//! order is reversed every time:
//!
//! ```text
//!  turn 1   A 400,000/s ─▶ B 300,000/s ─▶ C 500,000/s        each of them for 5 s
//!  turn 2   C 562,500/s ─▶ B 337,500/s ─▶ A 450,000/s
//!  turn 3   A 424,264/s ─▶ …                                 until it is known to 3 %
//! ```
//!
//! A rate fails where three runs at it have failed, one in each of three turns: in one alone it may have been the machine that did.

use std::time::Duration;

use floodgate::ramp::{self, R99, Ramp};
use floodgate::report::json::ramp_object;
use floodgate::search::{Probe, Rates, Search, least_rate};
use serde_json::{Value, json};

use super::up::processes_of_others;
use super::{Contest, Seats, Up};
use crate::bench::cpu::Used;
use crate::bench::figure::disturbance;
use crate::bench::generator::{Load, Manner, Shot};
use crate::bench::plan::{Contender, Measure};
use crate::bench::record::{Missing, Record};
use crate::bench::witness::Seen;
use crate::{Failure, Outcome};

/// How often a rate is offered before it has failed.
const TRIES: usize = 3;

/// Who searches, and what came of it so far.
struct Searcher<'s> {
    /// The failure of one that searches no more.
    up: Outcome<Up<'s>>,
    search: Search,
    /// Its end, and the peak.
    ramp: Ramp,
    /// How long each rate is held.
    held: Duration,
    /// Every rate that was offered, and what came of it.
    probes: Vec<Value>,
    /// The run of the highest rate that was answered.
    best: Shot,
    /// Of all runs.
    used: Used,
    seen: Seen,
    /// Runs in which the rate that is offered next has failed before.
    failed: Vec<Probe>,
}

impl<'c> Contest<'c> {
    /// Searches R99 of contenders by turns. False: it was stopped.
    pub(super) fn search_by_turns(
        &mut self,
        seats: &mut Seats,
        due: &[&'c Contender],
        repeat: u32,
        is_stopped: &dyn Fn() -> bool,
        see: &mut dyn FnMut(Result<Record, Missing>),
    ) -> bool {
        if due.is_empty() {
            return true;
        }
        let Some(outcomes) = self.searched(seats, due, repeat, is_stopped) else {
            return false;
        };
        for (contender, outcome) in due.iter().zip(outcomes) {
            see(self.judge(&contender.name, (Measure::R99, repeat), outcome));
        }
        true
    }

    /// What each search comes to. Nothing: it was stopped.
    fn searched(
        &self,
        seats: &mut Seats,
        due: &[&'c Contender],
        repeat: u32,
        is_stopped: &dyn Fn() -> bool,
    ) -> Option<Vec<Outcome<Record>>> {
        let up = self.bring_all_up(due, seats, is_stopped)?;
        let firsts = due.iter().map(|contender| self.first_load(contender));
        let searchers = up.into_iter().zip(firsts);
        let mut searchers: Vec<Searcher<'_>> = searchers
            .map(|(up, first)| Searcher::new(up, first))
            .collect();
        let mut places: Vec<usize> = (0..searchers.len()).collect();
        while searchers.iter().any(Searcher::goes_on) {
            for &place in &places {
                if is_stopped() {
                    return None;
                }
                let idle = processes_of_others(searchers.iter().map(|one| &one.up), place);
                searchers[place].take_turn(&idle);
            }
            places.reverse();
        }
        // What a signal has cut short is no figure.
        if is_stopped() {
            return None;
        }
        let records = searchers.into_iter().map(|searcher| {
            let (up, shot, seen) = searcher.outcome()?;
            self.record_of(&up, (Measure::R99, repeat), shot, seen)
        });
        Some(records.collect())
    }
}

impl<'s> Searcher<'s> {
    fn new(up: Outcome<Up<'s>>, first: Load) -> Searcher<'s> {
        let least = least_rate(first.time.as_secs_f64());
        let rates = Rates {
            least,
            start: first.rate.into(),
            highest: ramp::HIGHEST,
        };
        Searcher {
            up,
            search: Search::new(R99, rates),
            ramp: Ramp {
                least,
                ..Ramp::default()
            },
            held: first.time,
            probes: Vec::new(),
            best: Shot::default(),
            used: Used::default(),
            seen: Seen::default(),
            failed: Vec::new(),
        }
    }

    /// Whether there is a rate left to try.
    fn goes_on(&self) -> bool {
        self.up.is_ok() && self.ramp.r99.is_empty()
    }

    /// Holds the next rate, unless the search is over. `idle`: the processes of servers that have no turn.
    fn take_turn(&mut self, idle: &[u32]) {
        if !self.goes_on() {
            return;
        }
        let Ok(up) = &mut self.up else { return };
        let load = Load {
            rate: self.search.rate().round() as u32,
            time: self.held,
        };
        let generator = up.generator.clone();
        let asked = up.asked_by(&generator, load, Manner::Plain, idle);
        let taken = asked.and_then(|(shot, seen)| {
            self.seen.add(&seen);
            self.take(shot)
        });
        if let Err(failure) = taken {
            // Its server ends with it, and disturbs nobody.
            self.up = Err(failure);
        }
    }

    /// Takes what came of the rate.
    ///
    /// # Errors
    /// A generator that does not tell what it offered.
    fn take(&mut self, shot: Shot) -> Outcome<()> {
        if shot.offered == 0.0 {
            return Err(Failure::new(
                "a search needs a generator that tells what it offered (`generator`: floodgate does)",
            ));
        }
        let probe = probe_of(self.search.rate(), &shot);
        self.used.add(&shot.used);
        self.ramp.see(probe);
        self.probes.push(json!({
            "rate": probe.rate,
            "offered": probe.offered,
            "sent": probe.sent,
            "right": probe.right,
            "lost_here": probe.lost_here,
            "disturbed": disturbance(&shot),
        }));
        let reaches = probe.reaches(self.search.goal());
        // Rates that reach the goal only rise, and of one that does not there is nothing but the way in.
        if reaches || self.best.offered == 0.0 {
            self.best = shot;
        }
        self.failed.push(probe);
        if !reaches && self.failed.len() < TRIES {
            return Ok(());
        }
        // Of the runs at a rate the best one tells what the server can do, and whose limit it is.
        let best = self.failed.drain(..).max_by_key(|probe| probe.right);
        let found = best.and_then(|best| self.search.take(&best));
        self.ramp.r99.extend(found);
        Ok(())
    }

    /// What is told of it, as of a search that a generator makes alone: counts are those of the rate that was found.
    fn outcome(self) -> Outcome<(Up<'s>, Shot, Seen)> {
        let up = self.up?;
        let mut details = ramp_object(&self.ramp);
        details["probes"] = Value::Array(self.probes);
        let shot = Shot {
            used: self.used,
            details,
            // Its curves say nothing: rates go up and down.
            course: Default::default(),
            ..self.best
        };
        Ok((up, shot, self.seen))
    }
}

/// A run as the search sees it.
fn probe_of(rate: f64, shot: &Shot) -> Probe {
    let lost = &shot.details["floodgate"]["lost_here"];
    let lost = ["rings_full", "too_long", "other_queues"].map(|name| lost[name].as_u64());
    Probe {
        rate,
        offered: shot.offered as u64,
        sent: shot.sent as u64,
        right: shot.right as u64,
        lost_here: lost.into_iter().flatten().sum(),
        seconds: shot.seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contest::tests::{contest, of_two, seats_of};
    use crate::bench::plan::Library;

    const FIRST: Load = Load {
        rate: 10_000,
        time: Duration::from_secs(1),
    };

    /// A run at the rate that is due, of which so much was answered.
    fn run(searcher: &Searcher<'_>, right: f64) -> Shot {
        let rate = searcher.search.rate().round();
        Shot {
            offered: rate,
            sent: rate,
            right: rate.min(right),
            seconds: 1.0,
            ..Shot::default()
        }
    }

    fn nobody() -> Outcome<Up<'static>> {
        Err(Failure::new("nobody is up"))
    }

    #[test]
    fn a_rate_has_failed_where_three_runs_at_it_did() {
        let mut searcher = Searcher::new(nobody(), FIRST);
        // One that is answered in the last of its runs is not.
        for right in [9_000.0, 5_000.0, 1e6] {
            assert_eq!(searcher.search.rate(), 10_000.0);
            searcher.take(run(&searcher, right)).unwrap();
        }
        for right in [5_000.0, 11_000.0, 9_000.0] {
            assert_eq!(searcher.search.rate(), 11_250.0);
            searcher.take(run(&searcher, right)).unwrap();
        }
        assert!(searcher.search.rate() < 11_250.0);
        assert_eq!(searcher.probes.len(), 6);
        assert_eq!(searcher.best.offered, 10_000.0);
        assert_eq!(searcher.ramp.peak.unwrap().right, 11_000);
    }

    #[test]
    fn whose_limit_it_is_is_told_by_the_best_run() {
        let mut searcher = Searcher::new(nobody(), FIRST);
        let of = |right: f64, sent: f64| {
            let mut shot = run(&searcher, right);
            shot.sent = sent;
            shot
        };
        // In the second run the generator sent what was due, and it was the server that did not answer.
        let runs = [
            of(5_000.0, 5_000.0),
            of(9_000.0, 10_000.0),
            of(6_000.0, 6_000.0),
        ];
        for shot in runs {
            searcher.take(shot).unwrap();
        }
        while searcher.ramp.r99.is_empty() {
            searcher.take(run(&searcher, 1e6)).unwrap();
        }
        assert!(!searcher.ramp.generator_was_the_limit());
        let silent = searcher.take(Shot::default()).unwrap_err().to_string();
        assert!(silent.contains("floodgate does"), "{silent}");
    }

    #[test]
    fn what_the_generator_lost_is_its_own_limit() {
        let lost = json!({"rings_full": 5, "too_long": 1, "other_queues": null, "unwanted": 7});
        let shot = Shot {
            offered: 100.0,
            sent: 99.0,
            right: 90.0,
            seconds: 2.0,
            details: json!({"floodgate": {"lost_here": lost}}),
            ..Shot::default()
        };
        let probe = probe_of(50.0, &shot);
        assert_eq!((probe.lost_here, probe.sent), (6, 99));
        assert_eq!(probe.answers_per_second(), 45.0);
        assert!(probe.generator_failed(R99));
    }

    /// Answers up to 20,000 queries a second, and fails with an option that floodgate does not have.
    const GENERATOR: &str = r#"#!/bin/sh
case "$*" in *--broken*) echo broken >&2; exit 3 ;; esac
while [ "$1" != -Q ]; do shift; done
right=$2
[ "$right" -le 20000 ] || right=20000
echo '{"type": "header", "additional_info": {"attached": "native", "bound": "copy", "threads": 1}}'
echo '{"type": "stats_sum", "floodgate": {"offered": '$2', "not_sent": 0, "right": '$right', "seconds": 1.0}}'
"#;

    #[test]
    fn searches_by_turns_find_what_each_keeps_up_with() {
        let folder = tempfile::tempdir().unwrap();
        let (library, (scenario, settings)) = (Library::ours(), of_two(folder.path(), GENERATOR));
        let mut contest = contest(&scenario, &library, &settings);
        let due = contest.due(Measure::R99, 1);
        let mut seats = seats_of(&scenario);
        let mut seen = Vec::new();
        let mut see = |outcome| seen.push(outcome);
        assert!(!contest.search_by_turns(&mut seats, &due, 1, &|| true, &mut see));
        assert!(contest.search_by_turns(&mut seats, &due, 1, &|| false, &mut see));
        let [Ok(record), Err(missing)] = &seen[..] else {
            panic!("{seen:?}");
        };
        let highest = 20_000.0 / R99 + 1.0;
        assert!(record.figure <= highest && record.figure >= highest / 1.031);
        assert_eq!(record.offered, record.figure.round());
        assert_eq!(record.details["peak"], 20_000.0);
        assert_eq!(record.details["generator_was_the_limit"], false);
        assert!(record.details["probes"].as_array().unwrap().len() > 2);
        assert_eq!((&*missing.contender, &*missing.at), ("echo", "r99, #1"));
        assert!(missing.why.contains("broken"), "{missing}");
        // The next one starts there, and what failed before anything was measured of it is left out.
        assert_eq!(
            f64::from(contest.first_load(due[0]).rate),
            record.figure.floor()
        );
        assert_eq!(contest.due(Measure::R99, 2).len(), 1);
        assert!(
            contest.search_by_turns(&mut seats, &[], 2, &|| true, &mut |_| panic!(
                "nobody is due"
            ))
        );
    }
}
