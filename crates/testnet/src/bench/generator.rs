//! Who asks: floodgate, kxdpgun or dnsperf, run as operators run them, and what they print.

use std::io::{BufRead, BufReader, Read};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::client::Client;
use super::course::{Course, EVERY, Sampler};
use super::cpu::{Snapshot, Used};
use super::plan::GeneratorWord;
use super::record::{all_said, said};
use crate::{During, Failure, Outcome, sys};

/// A generator of queries.
#[derive(Clone, Debug)]
pub(super) struct Generator {
    pub word: GeneratorWord,
    program: PathBuf,
    queries: PathBuf,
    options: Vec<String>,
}

/// What one run of it came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Shot {
    /// Native or generic, copy or zero-copy; or kernel sockets.
    pub mode: String,
    pub offered: f64,
    pub sent: f64,
    /// Answered right, or answered where the generator does not judge.
    pub right: f64,
    /// Answers dropped unread.
    pub unwanted: f64,
    pub seconds: f64,
    /// Its threads; over AF_XDP, one for each queue.
    pub threads: u32,
    /// Everything else it said.
    pub details: Value,
    /// CPU time from its start to its end.
    pub(super) used: Used,
    /// The number of its process.
    pub process: u32,
    /// What happened when.
    pub course: Course,
}

/// What a program that has run to its end leaves.
struct Ran {
    lines: Vec<String>,
    used: Used,
    course: Course,
    process: u32,
}

/// A run's rate and time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub rate: u32,
    pub time: Duration,
}

/// What else a run is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Plain,
    /// Answers are thrown away unread.
    Drop,
    /// From nothing to twice the rate, steadily.
    Rising,
    /// Answers wake nobody: they are read when the next queries are due.
    Unwoken,
}

impl Generator {
    /// `KXDPGUN` and `DNSPERF` name other programs than the packaged ones.
    pub(super) fn new(
        word: GeneratorWord,
        stage_built: &Path,
        queries: &Path,
        options: &[String],
    ) -> Generator {
        let named = |variable, name: &str| {
            std::env::var_os(variable).map_or_else(|| PathBuf::from(name), PathBuf::from)
        };
        Generator {
            program: match word {
                GeneratorWord::Floodgate | GeneratorWord::FloodgateSockets => {
                    stage_built.join("floodgate")
                }
                GeneratorWord::Kxdpgun => named("KXDPGUN", "kxdpgun"),
                GeneratorWord::Dnsperf => named("DNSPERF", "dnsperf"),
            },
            word,
            queries: queries.to_owned(),
            options: options.to_vec(),
        }
    }

    /// Its name and version.
    pub(super) fn version(&self) -> String {
        match self.word {
            GeneratorWord::Floodgate | GeneratorWord::FloodgateSockets => {
                said(&self.program, &["--version"])
            }
            GeneratorWord::Kxdpgun => said(&self.program, &["-V"]),
            // It has no option for its version: it stands in front of whatever it prints.
            GeneratorWord::Dnsperf => {
                let text = all_said(&self.program, &["-h"]);
                let version = text.lines().find_map(|line| line.strip_prefix("Version "));
                format!("dnsperf {}", version.unwrap_or_default().trim())
            }
        }
    }

    /// The same with other queries.
    pub(super) fn asking(&self, queries: &Path) -> Generator {
        Generator {
            queries: queries.to_owned(),
            ..self.clone()
        }
    }

    /// Sends at a rate for a time.
    pub(super) fn shoot(
        &self,
        client: &Client,
        load: Load,
        manner: Manner,
        watched: &[u32],
    ) -> Outcome<Shot> {
        let mut words = vec!["-t".to_owned(), load.time.as_secs_f64().to_string()];
        words.extend(["-Q".to_owned(), load.rate.to_string()]);
        match manner {
            Manner::Plain => {}
            Manner::Drop => words.push("-r".to_owned()),
            // Others have their own ways.
            Manner::Unwoken if self.word != GeneratorWord::Floodgate => {}
            Manner::Unwoken => words.extend(["--wake".to_owned(), "schedule".to_owned()]),
            Manner::Rising => words.extend(["--shape".to_owned(), "ramp:0".to_owned()]),
        }
        if self.word == GeneratorWord::Floodgate {
            words.extend(["-S".to_owned(), EVERY.as_millis().to_string()]);
        }
        self.run_open_loop(client, &words, watched)
    }

    /// Searches R99 from a rate; every rate is held for so long.
    pub(super) fn search(&self, client: &Client, load: Load, watched: &[u32]) -> Outcome<Shot> {
        let words = [
            "--ramp=r99".to_owned(),
            "--repeat".to_owned(),
            "1".to_owned(),
            "-t".to_owned(),
            load.time.as_secs_f64().to_string(),
            "-Q".to_owned(),
            load.rate.to_string(),
        ];
        let mut shot = self.run_open_loop(client, &words, watched)?;
        // A search is long, and its curves say nothing: rates go up and down.
        shot.course = Course::default();
        Ok(shot)
    }

    fn run_open_loop(&self, client: &Client, words: &[String], watched: &[u32]) -> Outcome<Shot> {
        let mut command = self.command(client);
        if self.word == GeneratorWord::Floodgate {
            command.args(["xdp", "-j", "-q"]);
        }
        command
            .args(words)
            .arg("-p")
            .arg(client.target().port().to_string())
            .arg("-i")
            .arg(&self.queries)
            .args(&self.options)
            .arg(client.target().ip().to_string());
        if let Some(cpu) = client.cpu() {
            command.args(["-F", &format!("{cpu}s0")]);
        }
        let ran = self.output(client, &mut command, watched)?;
        // kxdpgun leaves its program behind.
        client.clear();
        let mut shot = match self.word {
            GeneratorWord::Kxdpgun => shot_of_kxdpgun(&ran.lines),
            _ => shot_of_json(&ran.lines, ran.course),
        }?;
        (shot.used, shot.process) = (ran.used, ran.process);
        Ok(shot)
    }

    /// A closed loop over sockets, for so long or once through the queries.
    pub(super) fn closed_loop(
        &self,
        client: &Client,
        time: Option<Duration>,
        watched: &[u32],
    ) -> Outcome<Shot> {
        let mut command = self.command(client);
        if self.word == GeneratorWord::FloodgateSockets {
            command.args(["sockets", "--quiet"]);
        }
        command
            .args(["-s", &client.target().ip().to_string(), "-p"])
            .arg(client.target().port().to_string())
            .arg("-d")
            .arg(&self.queries)
            .args(&self.options);
        if let Some(time) = time {
            command.args(["-l", &time.as_secs().max(1).to_string()]);
        }
        let ran = self.output(client, &mut command, watched)?;
        let mut shot = shot_of_dnsperf(&ran.lines)?;
        (shot.used, shot.course, shot.process) = (ran.used, ran.course, ran.process);
        Ok(shot)
    }

    /// On the generator's CPU, if it has one, with all its threads.
    fn command(&self, client: &Client) -> Command {
        let mut command = match client.cpu() {
            None => Command::new(&self.program),
            Some(cpu) => {
                let mut command = Command::new("taskset");
                command.arg("-c").arg(cpu.to_string()).arg(&self.program);
                command
            }
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        sys::unblock_signals(&mut command);
        command
    }

    fn is_ours(&self) -> bool {
        matches!(
            self.word,
            GeneratorWord::Floodgate | GeneratorWord::FloodgateSockets
        )
    }

    /// Runs it to its end; CPU time counts from its first line, when everything is set up, or from its start where that
    /// line does not come then.
    fn output(&self, client: &Client, command: &mut Command, watched: &[u32]) -> Outcome<Ran> {
        let mut child = Started(client.spawn(command)?);
        let name = self.program.file_name().unwrap_or_default();
        client.write_down(child.id(), &name.to_string_lossy())?;
        let complaint = complaint_of(&mut child);
        let sampler = Sampler::start(watched, child.id());
        let watched: Vec<u32> = watched
            .iter()
            .copied()
            .chain([child.id(), std::process::id()])
            .collect();
        let out = child.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(out).lines();
        let mut before = Snapshot::take_with_others(&watched)?;
        let first = lines.next();
        if self.is_ours() {
            // Others keep their lines back until they have many.
            before = Snapshot::take_with_others(&watched)?;
        }
        // Its time is in /proc until it is waited for: the last line comes before its end.
        let mut text: Vec<String> = first
            .into_iter()
            .chain(lines)
            .collect::<Result<_, _>>()
            .during("reading what the generator prints")?;
        let used = Snapshot::take_with_others(&watched)?.since(&before);
        let course = sampler.stop();
        let complaint = complaint.join().unwrap_or_default();
        let status = child.wait().during("waiting for the generator")?;
        if !status.success() {
            return Err(Failure::new(format!(
                "{} ended with {status}: {}",
                self.program.display(),
                complaint.trim()
            )));
        }
        text.retain(|line| !line.is_empty());
        Ok(Ran {
            lines: text,
            used,
            course,
            process: child.id(),
        })
    }
}

/// A generator that was started: none goes on beside the next run, whatever ends this one.
struct Started(Child);

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Fails only where it was waited for already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How much of what a generator complains about is kept, octets.
const COMPLAINT_MAX: u64 = 4_096;

/// What it complains about, read while it runs: dnsperf warns of every answer that comes late, and would wait for ever for
/// somebody to read it once the pipe is full.
fn complaint_of(child: &mut Child) -> JoinHandle<String> {
    let errors = child.stderr.take();
    std::thread::spawn(move || {
        let mut complaint = Vec::new();
        if let Some(mut errors) = errors {
            let mut kept = errors.by_ref().take(COMPLAINT_MAX);
            // What cannot be read is not told; the generator's end tells of its failure all the same.
            let _ = kept.read_to_end(&mut complaint);
            let _ = std::io::copy(&mut errors, &mut std::io::sink());
        }
        String::from_utf8_lossy(&complaint).into_owned()
    })
}

fn unreadable(lines: &[String]) -> Failure {
    Failure::new(format!(
        "the generator printed nothing that is understood: {}",
        lines.last().map_or("", String::as_str)
    ))
}

/// floodgate's: a header, statistics in between or probes, and a summary or a ramp.
fn shot_of_json(lines: &[String], mut course: Course) -> Outcome<Shot> {
    let objects: Vec<Value> = lines
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let (Some(header), Some(last)) = (objects.first(), objects.last()) else {
        return Err(unreadable(lines));
    };
    course.tell(&objects);
    let info = &header["additional_info"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // A ramp tells no counts: those of the probe that it found do.
    let found = |probe: &&Value| probe["type"] == "probe" && probe["rate"] == last["r99"];
    let counted = objects.iter().rev().find(found).unwrap_or(last);
    let own = &counted["floodgate"];
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let offered = number(&own["offered"]);
    let seconds = [&own["seconds"], &counted["seconds"]].map(number);
    Ok(Shot {
        mode: format!("{}, {}", word(&info["attached"]), word(&info["bound"])),
        offered,
        sent: offered - number(&own["not_sent"]),
        right: number(&own["right"]),
        unwanted: number(&own["lost_here"]["unwanted"]),
        seconds: seconds[0].max(seconds[1]),
        threads: number(&info["threads"]) as u32,
        details: last.clone(),
        course,
        ..Shot::default()
    })
}

/// kxdpgun 3.2's: `total queries:     2010 (1005 pps)`, `total replies: …`, `duration: 2 s`.
fn shot_of_kxdpgun(lines: &[String]) -> Outcome<Shot> {
    let number = |name: &str| {
        let line = lines
            .iter()
            .find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let mode = lines
        .iter()
        .find_map(|line| line.split(", ").find(|part| part.ends_with(" mode")));
    Ok(Shot {
        mode: mode
            .unwrap_or_default()
            .trim_end_matches(" mode")
            .to_owned(),
        sent: number("total queries:").ok_or_else(|| unreadable(lines))?,
        right: number("total replies:").unwrap_or(0.0),
        seconds: number("duration:").ok_or_else(|| unreadable(lines))?,
        ..Shot::default()
    })
}

/// dnsperf's statistics block.
fn shot_of_dnsperf(lines: &[String]) -> Outcome<Shot> {
    let number = |name: &str| {
        let line = lines
            .iter()
            .find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let sent = number("Queries sent:").ok_or_else(|| unreadable(lines))?;
    let told = |name| number(name).unwrap_or(0.0);
    Ok(Shot {
        mode: "kernel sockets".to_owned(),
        offered: sent,
        sent,
        right: number("Queries completed:").unwrap_or(0.0),
        seconds: number("Run time (s):").ok_or_else(|| unreadable(lines))?,
        details: serde_json::json!({
            "average_latency_seconds": told("Average Latency (s):"),
            "lost": told("Queries lost:"),
            "queries_per_second": told("Queries per second:"),
        }),
        ..Shot::default()
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::ledger::Ledger;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_generator_that_complains_much_comes_to_its_end() {
        let generator = Generator::new(
            GeneratorWord::Dnsperf,
            Path::new(""),
            Path::new("queries.txt"),
            &[],
        );
        let client = Client::before("192.0.2.9:53".parse().unwrap());
        let run = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let ran = generator.output(&client, &mut command, &[]);
            ran.map(|ran| ran.lines)
        };
        // Far more than a pipe holds, before its first line.
        let much = "head -c 300000 /dev/zero >&2; echo done";
        assert_eq!(run(much).unwrap(), ["done"]);
        let failure = run("echo what is wrong >&2; exit 3").unwrap_err();
        assert!(failure.to_string().contains("what is wrong"), "{failure}");
    }

    #[test]
    fn a_generator_is_written_down_while_it_runs() {
        let prefix = format!("generator-test-{}", std::process::id());
        let ledger = Ledger::open(&prefix).unwrap();
        let target = "192.0.2.9:53".parse().unwrap();
        let client = Client::before(target).written_in(ledger.book());
        let program = Path::new("/built/floodgate");
        let generator = Generator {
            word: GeneratorWord::Floodgate,
            program: program.to_owned(),
            queries: PathBuf::new(),
            options: Vec::new(),
        };
        let mut command = Command::new("sh");
        // Until it is written down it waits.
        command.args(["-c", "until test -s \"$0\"; do :; done; cat \"$0\""]);
        command.arg(ledger.folder().join("processes"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let ran = generator.output(&client, &mut command, &[]).unwrap();
        let told = format!("{} ", ran.process);
        let line = &ran.lines[0];
        assert!(
            line.starts_with(&told) && line.ends_with(" floodgate"),
            "{line}"
        );
        ledger.remove();
    }

    #[test]
    fn a_generator_that_is_not_waited_for_ends() {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let ended = crate::sys::process_descriptor(child.id()).unwrap();
        drop(Started(child));
        let mut ends = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut ends, PollTimeout::ZERO), Ok(1));
    }

    #[test]
    fn kxdpguns_words_are_understood() {
        let text = "using interface cli0, XDP threads 1, UDP, native mode\n\
            thread#00: sent 2010, received 2010\n\
            total queries:     2010 (1005 pps)\n\
            total replies:     2009 (1004 pps) (99%)\n\
            duration: 2 s\n";
        let shot = shot_of_kxdpgun(&lines(text)).unwrap();
        assert_eq!((shot.sent, shot.right, shot.seconds), (2010.0, 2009.0, 2.0));
        assert_eq!(shot.mode, "native");
        assert!(shot_of_kxdpgun(&lines("error: no")).is_err());
    }

    #[test]
    fn dnsperfs_block_is_understood() {
        let text = "Statistics:\n\n  Queries sent:         212102\n  Queries completed:    212100 (99.99%)\n  \
            Queries lost:         2 (0.01%)\n  \
            Run time (s):         2.003459\n  Queries per second:   105866.903\n\n  Average Latency (s):  0.000770 (min 0.000014, max 0.011383)\n";
        let shot = shot_of_dnsperf(&lines(text)).unwrap();
        assert_eq!((shot.sent, shot.right), (212_102.0, 212_100.0));
        assert_eq!(shot.seconds, 2.003459);
        assert_eq!(shot.details["average_latency_seconds"], 0.00077);
        assert_eq!(shot.details["lost"], 2.0);
        assert_eq!(shot.details["queries_per_second"], 105_866.903);
    }

    #[test]
    fn floodgates_lines_are_understood() {
        let text = r#"{"type":"header","additional_info":{"attached":"native","bound":"copy"}}
{"type":"stats_sum","queries":9,"floodgate":{"offered":10,"not_sent":1,"right":8,"seconds":2.0,"lost_here":{"unwanted":7}}}"#;
        let shot = shot_of_json(&lines(text), Course::default()).unwrap();
        assert_eq!((shot.offered, shot.sent, shot.right), (10.0, 9.0, 8.0));
        assert_eq!((shot.unwanted, shot.seconds), (7.0, 2.0));
        assert_eq!(shot.mode, "native, copy");
    }

    #[test]
    fn a_ramps_counts_are_those_of_the_probe_that_it_found() {
        let text = r#"{"type":"header"}
{"type":"probe","rate":200.0,"seconds":5.0,"floodgate":{"offered":1000,"not_sent":1,"right":995}}
{"type":"probe","rate":400.0,"seconds":5.0,"floodgate":{"offered":2000,"not_sent":0,"right":995}}
{"type":"ramp","r99":200.0}"#;
        let shot = shot_of_json(&lines(text), Course::default()).unwrap();
        assert_eq!(
            (shot.offered, shot.sent, shot.right),
            (1000.0, 999.0, 995.0)
        );
        assert_eq!((shot.seconds, &shot.details["r99"]), (5.0, &200.0.into()));
    }
}
