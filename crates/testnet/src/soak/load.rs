//! Steady load over AF_XDP: floodgate, in runs that can be interrupted, whose results are added up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::lab::{Lab, SERVER_V4};
use crate::{During, Failure, Outcome, sys};

/// Longer than any soak: it is told when to end.
const SECONDS: &str = "1000000";

/// What came of all runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub sent: u64,
    /// Given up because this side was late.
    pub not_sent: u64,
    pub right: u64,
    pub duplicate: u64,
    /// Faults by name.
    pub wrong: Vec<String>,
}

pub(super) struct Load {
    program: PathBuf,
    queries: PathBuf,
    expected: PathBuf,
    /// Queries a second of the next run.
    pub rate: u32,
    running: Option<Child>,
    pub totals: Totals,
}

impl Load {
    /// Not sending yet. Its files lie in `folder`.
    pub(super) fn new(folder: &Path, rate: u32) -> Outcome<Self> {
        let own = std::env::current_exe().during("finding floodgate")?;
        let program = own.with_file_name("floodgate");
        if !program.exists() {
            let text = format!("no {}: `cargo build -p floodgate` first", program.display());
            return Err(Failure::new(text));
        }
        let (queries, expected) = (folder.join("queries"), folder.join("expected"));
        fs::write(&queries, queries_text()).during("writing the queries")?;
        fs::write(&expected, expected_text()).during("writing what is expected")?;
        Ok(Self {
            program,
            queries,
            expected,
            rate,
            running: None,
            totals: Totals::default(),
        })
    }

    /// From the next run on nothing is asked that only a backend knows.
    pub(super) fn leave_backends_out(&mut self) -> Outcome<()> {
        let text = queries_text();
        let lines = text.lines().filter(|line| !line.contains("fresh"));
        let known: String = lines.map(|line| format!("{line}\n")).collect();
        fs::write(&self.queries, known).during("writing the queries")
    }

    /// Begins a run, unless one goes on.
    pub(super) fn start(&mut self, lab: &Lab) -> Outcome<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let mut command = Command::new(&self.program);
        command
            .args(["xdp", "-j", "-q", "-t", SECONDS, "-Q"])
            .arg(self.rate.to_string())
            .arg("-i")
            .arg(&self.queries)
            .arg("--expect")
            .arg(&self.expected)
            .arg(SERVER_V4.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        sys::unblock_signals(&mut command);
        let child = lab.client().spawn(&mut command, None)?;
        lab.ledger().add(child.id(), "floodgate")?;
        self.running = Some(child);
        Ok(())
    }

    /// Ends the run and adds its result.
    pub(super) fn stop(&mut self) -> Outcome<()> {
        let Some(child) = self.running.take() else {
            return Ok(());
        };
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).during("ending floodgate")?;
        let output = child.wait_with_output().during("waiting for floodgate")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().last().unwrap_or_default();
        let Ok(result) = serde_json::from_str::<Value>(last) else {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::new(format!("floodgate: {last}{complaint}")));
        };
        self.totals.add(&result);
        check_whole(&result)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether a run ended when it should.
fn check_whole(result: &Value) -> Outcome<()> {
    // It tells what was counted until then, too.
    match result["floodgate"]["failure"].as_str() {
        None => Ok(()),
        Some(failure) => Err(Failure::new(format!("floodgate: {failure}"))),
    }
}

impl Totals {
    fn add(&mut self, result: &Value) {
        let own = &result["floodgate"];
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        self.sent += count(&result["queries"]);
        self.not_sent += count(&own["not_sent"]);
        self.right += count(&own["right"]);
        self.duplicate += count(&own["duplicate"]);
        let wrong = own["wrong"].as_object().into_iter().flatten();
        self.wrong
            .extend(wrong.map(|(name, count)| format!("{name} {count}")));
    }
}

/// Half are refused, most of the rest are in the cache after a while, the others only a backend knows.
fn queries_text() -> String {
    let line = |number: u32| match number % 8 {
        0..4 => format!("f{number}.refused.example A\n"),
        4..7 => format!("f{}.cached.example A\n", number % 1_000),
        _ => format!("f{number}.fresh.example A\n"),
    };
    (0..8_000).map(line).collect()
}

fn expected_text() -> String {
    let line = |query: &str| {
        let name = query.split(' ').next().unwrap_or_default();
        match name.contains("refused") {
            true => format!("{name} A REFUSED\n"),
            false => format!("{name} A 192.0.2.77\n"),
        }
    };
    let mut lines: Vec<String> = queries_text().lines().map(line).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn runs_are_added_up() {
        let result = json!({"queries": 5, "floodgate":
            {"right": 3, "duplicate": 1, "wrong": {"other-question": 2}}});
        let mut totals = Totals::default();
        totals.add(&result);
        totals.add(&result);
        assert_eq!((totals.sent, totals.right, totals.duplicate), (10, 6, 2));
        assert_eq!(totals.wrong, ["other-question 2"; 2]);
    }

    #[test]
    fn a_run_that_was_cut_off_is_a_failure() {
        assert_eq!(check_whole(&json!({"floodgate": {"right": 3}})), Ok(()));
        let cut_off = json!({"floodgate": {"right": 3, "failure": "interface cli0 went away"}});
        let failure = check_whole(&cut_off).unwrap_err().to_string();
        assert!(failure.ends_with("interface cli0 went away"), "{failure}");
    }

    #[test]
    fn every_query_has_an_expected_answer() {
        let expected = expected_text();
        for query in queries_text().lines().step_by(97) {
            let name = query.split(' ').next().expect("a name");
            assert!(expected.contains(&format!("{name} A ")), "{name}");
        }
    }
}
