//! What is kept of every measurement: the figure, and everything that it depends on.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::course::Course;
use super::cpu::Used;
use super::plan::Measure;
use super::witness::Seen;
use crate::tree;

/// One measurement of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub scenario: String,
    pub contender: String,
    pub measure: Measure,
    /// Counted from 1.
    pub repeat: u32,
    /// The figure itself, in `unit`.
    pub figure: f64,
    pub unit: String,
    /// Of the tree that was measured; runs of several commits may add up in a folder.
    #[serde(default)]
    pub commit: String,
    /// What the server says of itself.
    pub server: String,
    /// What the generator says of itself.
    pub generator: String,
    /// `sockets` or `xdp`.
    pub door: String,
    /// How the server got onto its interfaces, where its log says so: `copy mode`.
    #[serde(default)]
    pub server_mode: String,
    /// How the generator got onto its interface.
    pub generator_mode: String,
    pub queues: u32,
    pub offered: f64,
    pub sent: f64,
    pub right: f64,
    /// Answers dropped unread, where answers were not wanted.
    pub unwanted: f64,
    pub seconds: f64,
    pub(super) used: Used,
    /// CPU time of the server's process, seconds.
    pub server_seconds: f64,
    pub witness: Seen,
    /// Why the run is not to be trusted.
    pub disturbed: Option<String>,
    /// Everything that the generator said.
    pub details: Value,
    /// What happened when; empty for searches, which are long, and for turns, which are short.
    pub course: Course,
    /// The turns that it is the sum of, where contenders took turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<Turn>,
}

/// A short run of a contender between those of others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Turn {
    /// When the turns of this repeat began, in seconds since 1970: those of contenders that took turns with each other have the
    /// same.
    pub since: u64,
    /// From 1. Turns of one number are beside each other.
    pub number: u32,
    pub right: f64,
    /// Time of all cores that were busy, in steps of /proc.
    pub core_seconds: f64,
    /// What the server's processes used, by their clocks; none where a program in the kernel answers.
    pub server_nanoseconds: Option<u64>,
    /// The same of the generator.
    pub generator_nanoseconds: u64,
}

impl Record {
    /// Whether its answers were dropped unread: how many were right is not known.
    pub(super) fn is_unread(&self) -> bool {
        self.unwanted > self.right
    }

    /// Queries that nobody answered right, as a part of those sent; answers that are dropped unread count as right.
    pub(super) fn loss(&self) -> f64 {
        let answered = self.right.max(self.unwanted);
        if self.sent > 0.0 {
            (1.0 - answered / self.sent).max(0.0)
        } else {
            0.0
        }
    }
}

/// Something that could not be measured: it is said in the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Missing {
    pub scenario: String,
    /// Who could not; empty where the whole scenario could not.
    pub contender: String,
    /// The measure at which it failed, and the repeat.
    pub at: String,
    pub why: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.contender.as_str() {
            "" => write!(f, "{}: {}", self.at, self.why),
            contender => write!(f, "{} {contender}: {}", self.at, self.why),
        }
    }
}

/// Where it was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Machine {
    pub date: String,
    pub commit: String,
    pub kernel: String,
    pub cpu: String,
    pub cpus: usize,
    /// Which CPUs did what, and what joined both sides: whole sentences.
    pub place: String,
    pub memory_mib: u64,
}

impl Machine {
    /// Looks around. `place`: which CPUs do what.
    pub(super) fn here(place: &str) -> Machine {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Machine {
            date: said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            commit: commit_of(&tree::top()),
            kernel: said("uname", &["-srm"]),
            cpu: field(&cpuinfo, "model name").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get()),
            place: place.to_owned(),
            memory_mib: field(&meminfo, "MemTotal")
                .trim_end_matches(" kB")
                .parse()
                .map_or(0, |kilobytes: u64| kilobytes / 1024),
        }
    }

    /// This one where an earlier run was on the same: with both dates, and every commit. `None`: it was on another.
    pub(super) fn going_on(self, earlier: &Machine) -> Option<Machine> {
        let same = self.kernel == earlier.kernel
            && self.cpu == earlier.cpu
            && self.cpus == earlier.cpus
            && self.place == earlier.place;
        let began = earlier.date.split(" to ").next().unwrap_or_default();
        let date = match began == self.date {
            true => self.date.clone(),
            false => format!("{began} to {}", self.date),
        };
        let is_known = earlier.commit.split(", ").any(|one| one == self.commit);
        let commit = match is_known {
            true => earlier.commit.clone(),
            false => format!("{}, {}", earlier.commit, self.commit),
        };
        same.then_some(Machine {
            date,
            commit,
            ..self
        })
    }
}

/// The folder of today's results.
pub(super) fn today() -> String {
    let date = said("date", &["-u", "+%Y-%m-%d"]);
    if date.is_empty() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        return now.map_or(0, |since| since.as_secs()).to_string();
    }
    date
}

/// What git calls the tree that `folder` is in, wherever this is run; `unknown` where git does not know.
fn commit_of(folder: &Path) -> String {
    let describe = ["describe", "--always", "--dirty", "--abbrev=12"];
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(describe)
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

/// The first line that a program prints, be it a complaint; empty where it cannot be started.
pub(super) fn said<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S]) -> String {
    let text = all_said(program, arguments);
    let mut lines = text.lines().map(str::trim);
    lines
        .find(|line| !line.is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// Everything that a program prints.
pub(super) fn all_said<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S]) -> String {
    let output = Command::new(program).args(arguments).output();
    let octets = output.map_or_else(
        |_| Vec::new(),
        |output| [output.stdout, output.stderr].concat(),
    );
    String::from_utf8_lossy(&octets).into_owned()
}

/// The value of the first line `NAME : VALUE`.
pub(super) fn field<'t>(text: &'t str, name: &str) -> &'t str {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':'))
        .map_or("", |(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_turns_is_written_and_read_as_before_there_were_any() {
        let mut record = crate::bench::report::tests::record("a", 1, 5.0);
        let text = serde_json::to_string(&record).unwrap();
        assert!(!text.contains("turns"), "{text}");
        let read: Record = serde_json::from_str(&text).unwrap();
        assert!(read.turns.is_empty());
        record.turns.push(Turn {
            since: 1_000,
            number: 1,
            right: 2.0,
            core_seconds: 0.5,
            server_nanoseconds: None,
            generator_nanoseconds: 7,
        });
        let text = serde_json::to_string(&record).unwrap();
        let read: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(read.turns, record.turns);
    }

    #[test]
    fn a_machine_that_goes_on_has_all_dates_and_commits() {
        let at = |date: &str, commit: &str| Machine {
            date: date.to_owned(),
            commit: commit.to_owned(),
            ..Machine::here("Here.")
        };
        let second = at("12:00", "b").going_on(&at("10:00", "a")).unwrap();
        let third = at("13:00", "b").going_on(&second).unwrap();
        assert_eq!(
            (third.date.as_str(), third.commit.as_str()),
            ("10:00 to 13:00", "a, b")
        );
        let elsewhere = Machine::here("There.");
        assert!(elsewhere.going_on(&third).is_none());
    }

    #[test]
    fn the_commit_is_that_of_the_tree_and_not_of_where_the_bench_is_run() {
        assert_eq!(commit_of(Path::new("/proc")), "unknown");
        assert!(!commit_of(&tree::top()).contains(' '));
    }

    #[test]
    fn what_is_missing_says_who_and_when_as_far_as_there_is_somebody() {
        let mut missing = Missing {
            scenario: "refused".to_owned(),
            contender: "nsd".to_owned(),
            at: "r99, #1".to_owned(),
            why: "no answer".to_owned(),
        };
        assert_eq!(missing.to_string(), "r99, #1 nsd: no answer");
        missing.contender.clear();
        assert_eq!(missing.to_string(), "r99, #1: no answer");
    }

    #[test]
    fn fields_are_found_by_their_names() {
        assert_eq!(field("a : 1\nmodel name\t: X 5\n", "model name"), "X 5");
        assert_eq!(field("", "model name"), "");
    }
}
