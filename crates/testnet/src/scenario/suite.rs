//! All scenarios, on every door, in several labs at once; prints one line each and the sums.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::ground::Ground;
use super::model::Scenario;
use super::run::{Transcript, known_gap, run, timed};
use crate::lab::Topology;
use crate::subject::{Door, Subject};
use crate::{During, Failure, Outcome, signals, tree};

/// What to run.
pub struct Suite {
    /// The folder with the scenario files.
    pub folder: PathBuf,
    /// Only files whose path holds one of these words; all if there is none.
    pub words: Vec<String>,
    /// The server under test.
    pub subject: Subject,
    /// The doors to try.
    pub doors: Vec<Door>,
    /// Labs at once.
    pub jobs: usize,
    /// Start of the labs' names.
    pub prefix: String,
    /// The clients' checksum offload is on throughout (F41).
    pub offload: bool,
}

/// The labs of one worker.
type Grounds = BTreeMap<Topology, Ground>;

/// What came of it.
#[derive(Default)]
struct Sums {
    ran: BTreeMap<Door, usize>,
    passed: usize,
    failed: Vec<String>,
    gaps: usize,
}

impl Suite {
    /// All scenarios of tests/scenarios on every door of the subject, changed by `words`:
    /// `--door NAME`, `--jobs N`, `--folder PATH`, `--offload`; other words choose files.
    pub fn from_words(subject: Subject, prefix: &str, words: &[&str]) -> Outcome<Self> {
        let mut suite = Self {
            folder: tree::top().join("tests/scenarios"),
            words: Vec::new(),
            doors: subject.doors().to_vec(),
            subject,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            prefix: prefix.to_owned(),
            offload: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| Failure::new(format!("{word} needs a value")))
            };
            match *word {
                "--door" => suite.doors = vec![door(value()?)?],
                "--jobs" => suite.jobs = value()?.parse().during("--jobs")?,
                "--folder" => suite.folder = PathBuf::from(value()?),
                "--offload" => suite.offload = true,
                _ if word.starts_with('-') => {
                    return Err(Failure::new(format!("no option {word}")));
                }
                _ => suite.words.push((*word).to_owned()),
            }
        }
        Ok(suite)
    }

    /// Runs them. Fails if any scenario fails, or if not all ran on every door. A signal ends it, and its labs are removed.
    pub fn run(&self) -> ExitCode {
        match signals::stop_in_order().and_then(|()| self.scenarios()) {
            Ok(scenarios) => self.run_all(&scenarios),
            Err(failure) => {
                eprintln!("{failure}");
                ExitCode::FAILURE
            }
        }
    }

    fn scenarios(&self) -> Outcome<Vec<Scenario>> {
        let mut paths = Vec::new();
        collect(&self.folder, &mut paths)?;
        paths.sort();
        let wanted = |path: &PathBuf| {
            let text = path.to_string_lossy();
            self.words.is_empty() || self.words.iter().any(|word| text.contains(word))
        };
        let scenarios: Vec<Scenario> = paths
            .iter()
            .filter(|path| wanted(path))
            .map(|path| super::read(path))
            .collect::<Outcome<_>>()?;
        let ours: Vec<Scenario> = scenarios
            .into_iter()
            .filter(|scenario| scenario.subjects.contains(&self.subject.kind))
            .collect();
        if ours.is_empty() {
            return Err(Failure::new(format!(
                "no scenario for {} under {}",
                self.subject.kind.word(),
                self.folder.display()
            )));
        }
        Ok(ours)
    }

    fn run_all(&self, scenarios: &[Scenario]) -> ExitCode {
        let next = AtomicUsize::new(0);
        let sums = Mutex::new(Sums::default());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    let mut grounds = Grounds::new();
                    while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed))
                        && signals::go_on().is_ok()
                    {
                        self.run_one(scenario, &mut grounds, &sums);
                    }
                });
            }
        });
        let sums = sums.into_inner().expect("no worker panics");
        if let Err(stopped) = signals::go_on() {
            println!("{stopped}: {} scenarios had passed", sums.passed);
            return ExitCode::FAILURE;
        }
        self.print(&sums, scenarios.len())
    }

    fn run_one(&self, scenario: &Scenario, grounds: &mut Grounds, sums: &Mutex<Sums>) {
        let name = scenario
            .path
            .strip_prefix(&self.folder)
            .unwrap_or(&scenario.path)
            .display()
            .to_string();
        let mut transcripts: Vec<Transcript> = Vec::new();
        for &door in &self.doors {
            let (outcome, time) = timed(|| self.run_on(scenario, grounds, door));
            // What a signal has cut short is no failure of the server's.
            if signals::go_on().is_err() {
                return;
            }
            let verdict = judge(
                outcome,
                known_gap(scenario, self.subject.kind),
                &mut transcripts,
            );
            sums.lock()
                .expect("no worker panics")
                .add(door, &name, &verdict);
            print_line(door, &name, time, &verdict, &scenario.title);
        }
    }

    fn run_on(
        &self,
        scenario: &Scenario,
        grounds: &mut Grounds,
        door: Door,
    ) -> Outcome<Transcript> {
        let ground = match grounds.entry(scenario.topology) {
            Entry::Occupied(ground) => ground.into_mut(),
            Entry::Vacant(place) => place.insert(Ground::up(&self.prefix, scenario.topology)?),
        };
        ground
            .lab
            .set_client_offload(self.offload || scenario.offload)?;
        let outcome = run(scenario, &self.subject, ground, door);
        if scenario.changes_lab() {
            grounds.remove(&scenario.topology);
        }
        outcome
    }

    fn print(&self, sums: &Sums, scenarios: usize) -> ExitCode {
        let ran: Vec<String> = self
            .doors
            .iter()
            .map(|door| format!("{} on {}", sums.ran(*door), door.word()))
            .collect();
        println!(
            "scenarios: {}; {} passed, {} failed, {} known gaps",
            ran.join(", "),
            sums.passed,
            sums.failed.len(),
            sums.gaps
        );
        sums.failed
            .iter()
            .for_each(|name| println!("failed: {name}"));
        let all_ran = self.doors.iter().all(|door| sums.ran(*door) == scenarios);
        if !all_ran {
            println!(
                "failed: every one of the {scenarios} scenarios should have run on every door"
            );
        }
        if all_ran && sums.failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// The end of one scenario on one door.
enum Verdict {
    Passed,
    /// It failed, as it is known to.
    Gap(String),
    Failed(String),
}

fn judge(
    outcome: Outcome<Transcript>,
    gap: Option<&str>,
    transcripts: &mut Vec<Transcript>,
) -> Verdict {
    match (outcome, gap) {
        (Err(_), Some(reason)) => Verdict::Gap(reason.to_owned()),
        (Err(failure), None) => Verdict::Failed(failure.to_string()),
        (Ok(_), Some(reason)) => {
            Verdict::Failed(format!("it passes now: remove its `gap` line ({reason})"))
        }
        (Ok(transcript), None) => {
            let difference = transcripts
                .first()
                .and_then(|first| differ(first, &transcript));
            transcripts.push(transcript);
            difference.map_or(Verdict::Passed, Verdict::Failed)
        }
    }
}

/// I10: the answers on one door are those on the other.
fn differ(first: &Transcript, other: &Transcript) -> Option<String> {
    let place = first
        .iter()
        .zip(other)
        .position(|(one, other)| one != other)?;
    let (one, other) = (&first[place], &other[place]);
    Some(format!(
        "answer {} differs from the one on the first door:\n  {one}\n  {other}",
        place + 1
    ))
}

impl Sums {
    fn ran(&self, door: Door) -> usize {
        self.ran.get(&door).copied().unwrap_or(0)
    }

    fn add(&mut self, door: Door, name: &str, verdict: &Verdict) {
        *self.ran.entry(door).or_default() += 1;
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Gap(_) => self.gaps += 1,
            Verdict::Failed(_) => self.failed.push(format!("{name} on {}", door.word())),
        }
    }
}

fn print_line(door: Door, name: &str, time: Duration, verdict: &Verdict, title: &str) {
    let (word, detail) = match verdict {
        Verdict::Passed => ("ok", String::new()),
        Verdict::Gap(reason) => ("gap", format!("\n    {reason}")),
        Verdict::Failed(text) => ("FAILED", format!("\n    {title}\n    {text}")),
    };
    println!(
        "{:8} {name:44} {:5.2} s  {word}{detail}",
        door.word(),
        time.as_secs_f32()
    );
}

fn door(word: &str) -> Outcome<Door> {
    Door::of_word(word).ok_or_else(|| Failure::new(format!("no door `{word}`: sockets or xdp")))
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Outcome<()> {
    let what = || format!("reading {}", folder.display());
    for entry in std::fs::read_dir(folder).during(what())? {
        let path = entry.during(what())?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "scenario")
        {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_tree_can_be_read() {
        let mut paths = Vec::new();
        collect(&tree::top().join("tests/scenarios"), &mut paths).expect("a folder");
        for path in &paths {
            super::super::read(path).expect("a good file");
        }
        assert!(!paths.is_empty());
    }

    #[test]
    fn answers_that_differ_between_doors_are_shown() {
        let transcript = |last: &str| vec!["8180".to_owned(), last.to_owned()];
        assert_eq!(differ(&transcript("8183"), &transcript("8183")), None);
        let difference = differ(&transcript("8183"), &transcript("8180")).expect("they differ");
        assert!(difference.starts_with("answer 2 differs"), "{difference}");
    }
}
