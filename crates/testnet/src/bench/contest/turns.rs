//! Cost is measured by turns: all contenders of a scenario are up at the same time, and each in turn is asked for less than a
//! second, until each has had its time.
//!
//! A machine's speed drifts within seconds, by a neighbour on the same core for one, so that two runs of ten seconds one after
//! the other differ by more than what two servers differ by. Between two turns it drifts little; and the order is reversed
//! every time, so that who is early in one round is late in the next:
//!
//! ```text
//!  turn 1   A ─▶ B ─▶ C          a record of each: the sum of its turns, and every turn,
//!  turn 2   C ─▶ B ─▶ A          of which the report tells the median of the differences
//!  turn 3   A ─▶ B ─▶ C …
//! ```
//!
//! Every contender has a lab of its own, with its own backend, so that nothing is started or attached between two turns but
//! the generator and the witness. All are up at once rather than two by two, since then one yardstick serves all, and every two
//! contenders are a pair. A server that has no turn sleeps: millrace, dnsdist, knotd, nsd and the yardsticks take 0.03 % of a core
//! at the most then. What one uses all the same counts as that of a program that disturbs. Memory is the sum over the
//! contenders: six servers with a million signed names each take 5 GiB.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::up::processes_of_others;
use super::{Contest, Seats, Up};
use crate::bench::generator::{Load, Manner, Shot};
use crate::bench::plan::{Contender, Measure};
use crate::bench::record::{Missing, Record, Turn};
use crate::bench::witness::Seen;
use crate::{During, Outcome};

/// About how long a turn takes.
const TURN: Duration = Duration::from_millis(800);

/// Turns are taken by these rules.
struct Rules {
    /// When the turns began, in seconds since 1970.
    since: u64,
    load: Load,
    /// What is asked in each turn.
    queries: Vec<PathBuf>,
}

/// Who takes turns, and what these came to.
struct Player<'s> {
    /// The failure of one that has no turns any more.
    up: Outcome<Up<'s>>,
    shots: Vec<Shot>,
    turns: Vec<Turn>,
    seen: Seen,
}

impl<'c> Contest<'c> {
    /// Measures contenders by turns. False: it was stopped.
    pub(super) fn by_turns(
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
        let outcomes = match self.rules() {
            Ok(rules) => self.outcomes(seats, due, (&rules, repeat), is_stopped),
            Err(failure) => Some(due.iter().map(|_| Err(failure.clone())).collect()),
        };
        let Some(outcomes) = outcomes else {
            return false;
        };
        for (contender, outcome) in due.iter().zip(outcomes) {
            see(self.judge(&contender.name, (Measure::Cost, repeat), outcome));
        }
        true
    }

    /// What each comes to. Nothing: it was stopped.
    fn outcomes(
        &self,
        seats: &mut Seats,
        due: &[&'c Contender],
        (rules, repeat): (&Rules, u32),
        is_stopped: &dyn Fn() -> bool,
    ) -> Option<Vec<Outcome<Record>>> {
        let up = self.bring_all_up(due, seats, is_stopped)?;
        let mut players: Vec<Player<'_>> = up.into_iter().map(Player::new).collect();
        for (number, place) in order(rules.queries.len(), players.len()) {
            if is_stopped() {
                return None;
            }
            let idle = processes_of_others(players.iter().map(|player| &player.up), place);
            players[place].take_turn(rules, number, &idle);
        }
        // What a signal has cut short is no figure.
        if is_stopped() {
            return None;
        }
        let outcomes = players.into_iter().map(|one| self.outcome(one, repeat));
        Some(outcomes.collect())
    }

    fn rules(&self) -> Outcome<Rules> {
        let time = Duration::from_secs(self.settings.seconds.into());
        let turns = turns_in(time);
        let load = self.load(self.scenario.cost_rate.into(), time / turns);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let options = &self.scenario.queries;
        // Messages in wire format are not cut: every turn asks the same then.
        let is_binary = options.iter().any(|one| one == "-B" || one == "--binary");
        let queries = match is_binary {
            true => vec![self.queries.clone(); turns as usize],
            false => cut(&self.queries, turns, queries_in(load))?,
        };
        Ok(Rules {
            since: now.map_or(0, |since| since.as_secs()),
            load,
            queries,
        })
    }

    fn outcome(&self, player: Player<'_>, repeat: u32) -> Outcome<Record> {
        let up = player.up?;
        let shot = sum(&player.shots);
        let mut record = self.record_of(&up, (Measure::Cost, repeat), shot, player.seen)?;
        record.turns = player.turns;
        Ok(record)
    }
}

impl<'s> Player<'s> {
    fn new(up: Outcome<Up<'s>>) -> Player<'s> {
        Player {
            up,
            shots: Vec::new(),
            turns: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// Takes a turn, counted from 0, unless it has failed before. `idle`: the processes of servers that have none.
    fn take_turn(&mut self, rules: &Rules, number: usize, idle: &[u32]) {
        let Ok(up) = &mut self.up else {
            return;
        };
        match asked(up, rules, number, idle) {
            Ok((shot, turn, seen)) => {
                self.shots.push(shot);
                self.turns.push(turn);
                self.seen.add(&seen);
            }
            // Its server ends with it, and disturbs nobody.
            Err(failure) => self.up = Err(failure),
        }
    }
}

/// One turn.
fn asked(
    up: &mut Up<'_>,
    rules: &Rules,
    number: usize,
    idle: &[u32],
) -> Outcome<(Shot, Turn, Seen)> {
    let generator = up.generator.asking(&rules.queries[number]);
    let (shot, seen) = up.asked_by(&generator, rules.load, Manner::Unwoken, idle)?;
    let turn = turn_of(&shot, &up.watched, rules.since, number as u32 + 1);
    Ok((shot, turn, seen))
}

fn turn_of(shot: &Shot, server: &[u32], since: u64, number: u32) -> Turn {
    let nanoseconds = |processes: &[u32]| (shot.used.of(processes) * 1e9).round() as u64;
    Turn {
        since,
        number,
        right: shot.right,
        core_seconds: shot.used.busy(),
        server_nanoseconds: (!server.is_empty()).then(|| nanoseconds(server)),
        generator_nanoseconds: nanoseconds(&[shot.process]),
    }
}

/// How many turns there are in so much time: an even number, so that each order comes as often as its reverse.
fn turns_in(time: Duration) -> u32 {
    let pairs = (time.as_secs_f64() / TURN.as_secs_f64() / 2.0).round();
    (pairs as u32).max(1) * 2
}

/// Whose turn it is, from the first to the last: the number of the turn, and the place of the contender.
fn order(turns: usize, contenders: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..turns).flat_map(move |number| {
        (0..contenders).map(move |place| match number % 2 {
            0 => (number, place),
            _ => (number, contenders - 1 - place),
        })
    })
}

fn queries_in(load: Load) -> usize {
    (f64::from(load.rate) * load.time.as_secs_f64()).ceil() as usize
}

/// Cuts a file of queries into one for each turn, beside it. Each goes on where the one before it ended, as one long run would:
/// were each turn to ask the same, a cache of the processor's would hold what it does not hold in truth.
fn cut(queries: &Path, turns: u32, each: usize) -> Outcome<Vec<PathBuf>> {
    let text = fs::read_to_string(queries).during(format!("reading {}", queries.display()))?;
    let lines: Vec<&str> = text.lines().collect();
    // A generator goes over a file that is short again and again.
    let of_turn = each.min(lines.len());
    let write = |turn: u32| {
        let path = queries.with_extension(format!("{}.txt", turn + 1));
        let from = lines
            .iter()
            .cycle()
            .skip(turn as usize * each % lines.len().max(1));
        let write = || {
            let mut file = BufWriter::new(File::create(&path)?);
            for line in from.take(of_turn) {
                writeln!(file, "{line}")?;
            }
            file.flush()
        };
        write().during(format!("writing {}", path.display()))?;
        Ok(path)
    };
    (0..turns).map(write).collect()
}

/// All turns as one run.
fn sum(shots: &[Shot]) -> Shot {
    let mut sum = Shot::default();
    let mut counts = json!({});
    for shot in shots {
        sum.mode.clone_from(&shot.mode);
        sum.threads = shot.threads;
        sum.offered += shot.offered;
        sum.sent += shot.sent;
        sum.right += shot.right;
        sum.unwanted += shot.unwanted;
        sum.seconds += shot.seconds;
        sum.used.add(&shot.used);
        let own = &shot.details["floodgate"];
        add_counts(&mut counts["floodgate"]["lost_here"], &own["lost_here"]);
        add_counts(&mut counts["floodgate"]["wrong"], &own["wrong"]);
        let rcodes = &shot.details["response_rcodes"];
        add_counts(&mut counts["response_rcodes"], rcodes);
    }
    sum.details = counts;
    sum
}

/// Adds counts by their names; what is nothing stays so.
fn add_counts(sum: &mut Value, counts: &Value) {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    for (name, count) in counts.as_object().into_iter().flatten() {
        let so_far = &mut sum[name.as_str()];
        *so_far = json!(number(so_far) + number(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contest::tests::{contest, of_two, seats_of};
    use crate::bench::plan::Library;

    #[test]
    fn the_order_is_reversed_every_turn() {
        let order: Vec<(usize, usize)> = order(3, 3).collect();
        let turns = [[0, 1, 2], [2, 1, 0], [0, 1, 2]].into_iter().enumerate();
        let wanted = turns.flat_map(|(turn, places)| places.map(|place| (turn, place)));
        assert_eq!(order, wanted.collect::<Vec<_>>());
    }

    #[test]
    fn turns_are_short_and_of_an_even_number() {
        let turns = |seconds: u64| turns_in(Duration::from_secs(seconds));
        assert_eq!([1, 3, 10, 60].map(turns), [2, 4, 12, 76]);
    }

    #[test]
    fn turns_ask_what_one_long_run_would() {
        let folder = tempfile::tempdir().unwrap();
        let queries = folder.path().join("queries.txt");
        fs::write(&queries, "a A\nb A\nc A\nd A\ne A\n").unwrap();
        let cut = |turns: u32, each: usize| -> Vec<String> {
            let files = cut(&queries, turns, each).unwrap();
            let text = |file: &PathBuf| fs::read_to_string(file).unwrap().replace(" A\n", "");
            files.iter().map(text).collect()
        };
        assert_eq!(cut(4, 2), ["ab", "cd", "ea", "bc"]);
        // Over and over again: each turn begins where the one before it ended.
        assert_eq!(cut(3, 7), ["abcde", "cdeab", "eabcd"]);
        fs::write(&queries, "").unwrap();
        assert_eq!(cut(2, 7), ["", ""]);
        assert_eq!(
            queries_in(Load {
                rate: 1_000,
                time: Duration::from_millis(834)
            }),
            834
        );
    }

    #[test]
    fn turns_add_up_to_a_run() {
        let turn = |right: f64, details: Value| {
            let mut shot = Shot {
                mode: "native, copy".to_owned(),
                offered: 50.0,
                sent: 40.0,
                right,
                unwanted: 1.0,
                seconds: 0.5,
                threads: 2,
                details,
                process: 9,
                ..Shot::default()
            };
            shot.used.cores = vec![0.25, 0.5];
            shot
        };
        let first = json!({"floodgate": {"lost_here": {"rings_full": 5}, "latency": 7},
            "response_rcodes": {"REFUSED": 30}});
        let second = json!({"floodgate": {"lost_here": {"rings_full": 2, "too_long": 1}},
            "response_rcodes": {"REFUSED": 20, "SERVFAIL": 3}});
        let sum = sum(&[turn(30.0, first), turn(20.0, second)]);
        assert_eq!((sum.offered, sum.sent, sum.right), (100.0, 80.0, 50.0));
        assert_eq!((sum.unwanted, sum.seconds, sum.threads), (2.0, 1.0, 2));
        assert_eq!((sum.mode.as_str(), sum.used.busy()), ("native, copy", 1.5));
        let own = &sum.details["floodgate"];
        assert_eq!(own["lost_here"], json!({"rings_full": 7, "too_long": 1}));
        let rcodes = json!({"REFUSED": 50, "SERVFAIL": 3});
        assert_eq!(sum.details["response_rcodes"], rcodes);
    }

    #[test]
    fn a_turn_tells_server_and_generator_apart() {
        let mut shot = Shot {
            right: 100.0,
            process: 9,
            ..Shot::default()
        };
        shot.used.cores = vec![0.25, 0.5];
        let times = [(7, 0.000_000_25), (8, 0.5), (9, 0.125)];
        shot.used.processes = times.into();
        let turn = turn_of(&shot, &[7, 8], 1_000, 3);
        assert_eq!((turn.since, turn.number, turn.right), (1_000, 3, 100.0));
        assert_eq!(turn.core_seconds, 0.75);
        assert_eq!(turn.server_nanoseconds, Some(500_000_250));
        assert_eq!(turn.generator_nanoseconds, 125_000_000);
        // The kernel's answers are nobody's.
        assert_eq!(turn_of(&shot, &[], 1_000, 3).server_nanoseconds, None);
    }

    /// Answers ten queries in each turn, and fails with an option that floodgate does not have.
    const GENERATOR: &str = r#"#!/bin/sh
case "$*" in *--broken*) echo broken >&2; exit 3 ;; esac
echo '{"type": "header", "additional_info": {"attached": "native", "bound": "copy", "threads": 1}}'
echo '{"type": "stats_sum", "floodgate": {"offered": 12, "not_sent": 1, "right": 10, "seconds": 0.5}}'
"#;

    #[test]
    fn one_that_fails_is_left_out_and_the_others_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let (library, (scenario, settings)) = (Library::ours(), of_two(folder.path(), GENERATOR));
        let mut contest = contest(&scenario, &library, &settings);
        contest.queries = folder.path().join("queries.txt");
        fs::write(&contest.queries, "a A\n").unwrap();
        let due = contest.due(Measure::Cost, 1);
        let mut seats = seats_of(&scenario);
        let mut seen = Vec::new();
        let mut see = |outcome| seen.push(outcome);
        assert!(!contest.by_turns(&mut seats, &due, 1, &|| true, &mut see));
        assert!(contest.by_turns(&mut seats, &due, 1, &|| false, &mut see));
        let [Ok(record), Err(missing)] = &seen[..] else {
            panic!("{seen:?}");
        };
        assert_eq!(
            (record.right, record.sent, record.seconds),
            (20.0, 22.0, 1.0)
        );
        let numbers = record.turns.iter().map(|turn| turn.number);
        assert_eq!(numbers.collect::<Vec<u32>>(), [1, 2]);
        assert!(record.turns.iter().all(|turn| turn.right == 10.0));
        assert_eq!((&*missing.contender, &*missing.at), ("echo", "cost, #1"));
        assert!(missing.why.contains("broken"), "{missing}");
        // What is done is not done again, and what failed before anything was measured of it is left out.
        assert!(contest.due(Measure::Cost, 1).is_empty());
        let next = contest.due(Measure::Cost, 2);
        assert_eq!(next.len(), 1);
        assert_eq!(next[0].name, "millrace, AF_XDP");
        assert!(
            contest.by_turns(&mut seats, &[], 2, &|| true, &mut |_| panic!(
                "nobody is due"
            ))
        );
    }
}
