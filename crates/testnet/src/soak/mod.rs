//! The soak (F40 in small): the daemon under steady load over AF_XDP, with an ordinary client beside it, while faults that a seed
//! chooses come and go. After each has cleared, service is normal within a second and over AF_XDP within five; at the end nothing
//! has crept up, no frame is missing, no query had two answers.
//!
//! ```text
//!  fault begins ── hold ── it clears ── 1 s ── calm: every query is answered ── the next begins
//!  └── where it may not harm: every query is answered ──┘
//! ```

mod backend;
mod daemon;
mod drift;
mod faults;
mod flood;
mod ground;
mod load;
mod race;
mod random;
mod restarts;
mod schedule;
mod witness;

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use drift::{Drift, Reading};
use faults::Harm;
use ground::{Ground, configuration};
use schedule::{Schedule, Step};
use witness::{lost, percentile};

use crate::metrics::Metrics;
use crate::scenario::checks::{lost_frames, sound_rings};
use crate::subject::Subject;
use crate::{During, Failure, Outcome, signals};

pub const USAGE: &str =
    "usage: lab soak [--seed N] [--seconds N | --minutes N] [--rate N] [KIND]...
       lab soak flood|restarts [--small] [--rate N] | restarts --sockets | race
  flood        a million forged sources, and two clients that are none (F30)
  race         dnsperf's published test: unique names, each once, to four resolvers at once
  restarts     restarts by hand-over at the highest rate that loses nothing without one
  --seed N     which faults, and in which order (default: the time)
  --minutes N  how long (default 20)
  --rate N     queries a second over AF_XDP (default 3000; flood 125000, restarts at most 100000)
  --sockets    the server has no AF_XDP: its kernel sockets alone
  --small      a few seconds of it: flood 40,000 queries, one restart at 3000
  KIND         only faults whose name holds one of these words";

/// After a fault has cleared service is normal within this (I9), not counting what the machine is frozen for.
const NORMAL_AGAIN: Duration = Duration::from_secs(1);

/// Before the first fault: until caches and connections are there.
const WARM_UP: Duration = Duration::from_secs(3);

/// How long frames may be under way after the last query.
const AT_REST_WITHIN: Duration = Duration::from_secs(20);

struct Options {
    seed: u64,
    time: Duration,
    rate: Option<u32>,
    /// Of a flood, of restarts: no more than shows that what must be counted is counted right.
    is_small: bool,
    /// Of restarts: without AF_XDP.
    by_sockets: bool,
    words: Vec<String>,
}

/// Queries a second beside the faults.
const RATE: u32 = 3_000;

impl Options {
    fn read(words: &[&str]) -> Outcome<Self> {
        let mut options = Self {
            seed: std::time::UNIX_EPOCH
                .elapsed()
                .map_or(1, |time| time.as_secs()),
            time: Duration::from_secs(20 * 60),
            rate: None,
            is_small: false,
            by_sockets: false,
            words: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut number = || {
                let value = words.next().and_then(|value| value.parse::<u64>().ok());
                value.ok_or_else(|| Failure::new(format!("{word} takes a number\n{USAGE}")))
            };
            match word {
                "--seed" => options.seed = number()?,
                "--seconds" => options.time = Duration::from_secs(number()?),
                "--minutes" => options.time = Duration::from_secs(60 * number()?),
                "--rate" => options.rate = Some(number()?.clamp(1, 10_000_000) as u32),
                "--small" => options.is_small = true,
                "--sockets" => options.by_sockets = true,
                _ if word.starts_with('-') => return Err(Failure::new(USAGE)),
                _ => options.words.push(word.to_owned()),
            }
        }
        Ok(options)
    }
}

/// Runs a soak; a failure is said with all that is needed to repeat it.
pub fn run(prefix: &str, subject: &Subject, words: &[&str]) -> Outcome<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: network namespaces and AF_XDP need root");
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::read(words)?;
    signals::stop_in_order()?;
    let kinds: Vec<&str> = options.words.iter().map(String::as_str).collect();
    match kinds[..] {
        ["restarts"] => return restarts::run(prefix, subject, &options),
        _ if options.by_sockets => {
            let text = format!("--sockets is for restarts\n{USAGE}");
            return Err(Failure::new(text));
        }
        ["flood"] => return flood::run(prefix, subject, &options),
        _ if options.is_small => {
            let text = format!("--small is for flood and restarts\n{USAGE}");
            return Err(Failure::new(text));
        }
        ["race"] => return race::run(prefix, subject),
        _ => {}
    }
    if Schedule::new(options.seed, &options.words).next().is_none() {
        return Err(Failure::new(format!("no such kind of fault\n{USAGE}")));
    }
    println!("soak: seed {}, {:?}", options.seed, options.time);
    let rate = options.rate.unwrap_or(RATE);
    let ground = Ground::prepare(prefix, subject, &configuration(""), rate)?;
    let mut soak = Soak {
        ground,
        drift: Drift::default(),
        history: Vec::new(),
        began: Instant::now(),
    };
    let outcome = soak.go(&options);
    let outcome = outcome.map_err(|failure| match signals::go_on() {
        Ok(()) => soak.explain(&failure, &options),
        // What a signal has cut short is no failure of the daemon's.
        Err(stopped) => stopped,
    });
    outcome?;
    soak.finish()?;
    Ok(ExitCode::SUCCESS)
}

struct Soak {
    ground: Ground,
    drift: Drift,
    /// What has happened, with its time.
    history: Vec<String>,
    began: Instant,
}

impl Soak {
    fn go(&mut self, options: &Options) -> Outcome<()> {
        self.ground.daemon.watch_for(WARM_UP)?;
        self.ground.await_af_xdp()?;
        for step in Schedule::new(options.seed, &options.words) {
            if self.began.elapsed() > options.time {
                break;
            }
            self.step(step)?;
        }
        self.at_the_end()
    }

    fn step(&mut self, step: Step) -> Outcome<()> {
        let mut fault = step.fault;
        let at = self.began.elapsed().as_secs_f32();
        let line = format!("{at:8.1} s  {fault}, {:?}", step.hold);
        println!("{line}");
        self.history.push(line);
        let started = Instant::now();
        let harm = fault.harm();
        fault.begin(&mut self.ground).during("beginning it")?;
        self.ground.daemon.watch_for(step.hold)?;
        fault.clear(&mut self.ground).during("clearing it")?;
        self.ground.await_kernels()?;
        let cleared = Instant::now();
        let from = match harm {
            Harm::None => started,
            Harm::UntilItClears => cleared + self.ground.daemon.watch_for_running(NORMAL_AGAIN)?,
        };
        self.ground.await_af_xdp()?;
        let calm = Instant::now();
        self.ground.daemon.watch_for(step.calm)?;
        self.check_service(from, calm)?;
        self.ground.check_kernels()
    }

    /// Every query from then until now is answered; those since `calm` tell of drift.
    fn check_service(&mut self, from: Instant, calm: Instant) -> Outcome<()> {
        let witness = &self.ground.witness;
        let asked = witness.between(from, Instant::now())?;
        if let Some((count, first)) = lost(&asked) {
            let text = format!(
                "{count} of {} queries unanswered that should not be; the first, {:?} after service had to be normal: {} ({:?})",
                asked.len(),
                first.at - from,
                first.what,
                first.fate
            );
            return Err(Failure::new(text));
        }
        let p99 = percentile(&witness.between(calm, Instant::now())?, 99);
        witness.forget_before(calm);
        let daemon = &self.ground.daemon;
        self.drift
            .add(Reading::of(daemon.id(), daemon.generation)?, p99)
    }

    /// What holds when all is over: nothing crept up, nobody had two answers, no frame is missing.
    fn at_the_end(&mut self) -> Outcome<()> {
        self.drift.check_p99()?;
        let ground = &mut self.ground;
        ground.load.stop()?;
        let totals = &ground.load.totals;
        if totals.duplicate > 0 || !totals.wrong.is_empty() {
            let text = format!(
                "floodgate had {} second answers and these wrong ones: {:?}",
                totals.duplicate, totals.wrong
            );
            return Err(Failure::new(text));
        }
        // The witness's own queries are few enough for a moment without any frame under way.
        let server = ground.lab.server();
        let mut missing = None;
        let outcome = ground.daemon.until(AT_REST_WITHIN, "frames to add up", || {
            missing = lost_frames(&Metrics::of(&server)?);
            Ok(missing.is_none())
        });
        outcome.map_err(|failure| {
            Failure::new(format!("{failure}: {}", missing.unwrap_or_default()))
        })?;
        sound_rings(&Metrics::of(&server)?)?;
        ground.check_kernels()
    }

    /// The failure, how it came to it, and how it comes again.
    fn explain(&self, failure: &Failure, options: &Options) -> Failure {
        let mut text = format!("soak: {failure}\nwhat had happened:\n");
        for line in &self.history {
            let _ = writeln!(text, "{line}");
        }
        let _ = write!(
            text,
            "the daemon's last lines:\n{}\nto repeat it: lab soak --seed {} --seconds {} {}",
            self.ground.last_lines(),
            options.seed,
            options.time.as_secs(),
            options.words.join(" ")
        );
        Failure::new(text)
    }

    /// Ends the daemon, and says how it was.
    fn finish(self) -> Outcome<()> {
        let (kilobytes, descriptors) = self.drift.most();
        let (first, last) = self.drift.p99();
        let totals = self.ground.load.totals.clone();
        let generations = self.ground.daemon.generation;
        println!(
            "soak: {} faults, {} queries over AF_XDP, {} answered right, {generations} processes, at most {kilobytes} kB and \
             {descriptors} descriptors, p99 {first:?} and then {last:?}",
            self.history.len(),
            totals.sent,
            totals.right
        );
        self.ground.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_told_apart() {
        let words = ["--small", "flood", "--rate", "5000", "--seconds", "7"];
        let options = Options::read(&words).expect("options");
        assert!(options.is_small);
        assert_eq!(options.rate, Some(5_000));
        assert_eq!(options.time, Duration::from_secs(7));
        assert_eq!(options.words, ["flood"]);
        for wrong in [&["--rate"][..], &["--rate", "many"], &["--smaller"]] {
            assert!(Options::read(wrong).is_err(), "{wrong:?}");
        }
    }
}
