//! Measures the contenders of a scenario, one after the other and over again, so that what changes with time meets all of
//! them alike; R99 by turns of one rate each ([`searches`]), cost by turns of less than a second ([`turns`]).

mod searches;
mod turns;
mod up;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Client;
use super::figure::{AT_TENTH, disturbance, figure, point, started};
use super::generator::{Generator, Load, Manner, Shot};
use super::plan::{Contender, Library, Measure, Scenario, ZonePlan};
use super::record::{Missing, Record};
use super::report::{median, peak};
use super::stage::{Cpus, Places, Stage, named};
use super::witness::{Seen, Witness};
use super::zones::{self, Expected};
use crate::lab::Lab;
use crate::ledger::Ledger;
use crate::signals::Signals;
use crate::{Failure, Outcome};
use up::{Seat, Seats, Up};

/// How a run is made.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub prefix: String,
    pub repeats: u32,
    /// How long each rate of a search is held.
    pub search_seconds: u32,
    /// How long cost, overload and the like are measured.
    pub seconds: u32,
    /// Multiplies every rate of the scenario: for trying the bench out on a busy machine.
    pub scale: f64,
    pub cpus: Cpus,
    pub places: Places,
    /// A server on another machine that is there already; no lab is built.
    pub remote: Option<SocketAddr>,
    /// What is told of that one, which cannot be asked: its version, its machine.
    pub server: String,
}

/// What is asked before it is measured, to see that answers are right.
const CHECK: Load = Load {
    rate: 2_000,
    time: Duration::from_millis(500),
};

/// A rate that rises goes so far beyond the best R99.
const BEYOND: f64 = 1.2;

/// Queries a second that leave a server idle.
const IDLE: f64 = 200.0;

/// At which parts of its R99 a contender's latency is measured, and what they are called; the first [`FIGURES`] again in every
/// repeat, for they are figures: the rest is a curve, once.
static LOADS: [(&str, Option<f64>); 8] = [
    ("idle", None),
    ("10 %", Some(0.1)),
    ("25 %", Some(0.25)),
    ("50 %", Some(0.5)),
    ("75 %", Some(0.75)),
    ("90 %", Some(0.9)),
    ("100 %", Some(1.0)),
    ("110 %", Some(1.1)),
];
const FIGURES: usize = 2;

/// The name that the witness asks for.
const WITNESS_NAME: &str = "witness.example.com.";

/// A scenario that is being measured.
pub(super) struct Contest<'c> {
    scenario: &'c Scenario,
    library: &'c Library,
    settings: &'c Settings,
    /// Of the tree that is measured.
    commit: &'c str,
    /// Where contenders are measured one after the other.
    seat: Seat,
    /// What is owned on this machine where there is no lab that has one.
    ledger: Option<Ledger>,
    queries: PathBuf,
    /// What answers must say, if the scenario says it.
    expected: Option<Expected>,
    /// By contender: the R99 that was found last; the next search starts near by.
    last: BTreeMap<String, f64>,
    /// By contender: every R99 that was found. Parts of an R99 are parts of their median, which is the one that reports tell.
    found: BTreeMap<String, Vec<f64>>,
    /// By contender: its peak, the most that it answered right a second at any rate that its searches offered.
    peaks: BTreeMap<String, f64>,
    /// By contender: where its first search starts, if it was measured before.
    near: BTreeMap<String, f64>,
    /// Contender, measure and repeat of what was measured.
    done: BTreeSet<(String, Measure, u32)>,
    /// By contender: how often it has failed.
    failures: BTreeMap<String, u32>,
}

impl<'c> Contest<'c> {
    /// Builds the lab, unless the server is remote, and makes the queries.
    pub(super) fn prepare(
        scenario: &'c Scenario,
        library: &'c Library,
        settings: &'c Settings,
        commit: &'c str,
    ) -> Outcome<Contest<'c>> {
        let (places, cpus) = (&settings.places, settings.cpus);
        let build = || Stage::build(&settings.prefix, scenario, library, places, cpus);
        let (mut stage, ledger, client, folder) = match settings.remote {
            Some(target) => {
                let (client, ledger) = before(&settings.prefix, target)?;
                let folder = ledger.folder().to_owned();
                (None, Some(ledger), client, folder)
            }
            None => {
                let stage = build()?;
                for left in Lab::down_numbered(&settings.prefix)? {
                    eprintln!("removed what an earlier run left: {left}");
                }
                let (client, folder) = (stage.client(), stage.folder().to_owned());
                (Some(stage), None, client, folder)
            }
        };
        let queries = folder.join("queries.txt");
        make_queries(&places.built, &scenario.queries, &queries)?;
        let expected = match (&mut stage, &scenario.zone) {
            (Some(stage), Some(plan)) => give_zone(stage, scenario, plan, places)?,
            _ => None,
        };
        Ok(Contest {
            scenario,
            library,
            settings,
            commit,
            seat: Seat { stage, client },
            ledger,
            queries,
            expected,
            last: BTreeMap::new(),
            found: BTreeMap::new(),
            peaks: BTreeMap::new(),
            near: BTreeMap::new(),
            done: BTreeSet::new(),
            failures: BTreeMap::new(),
        })
    }

    /// Goes on behind records of an earlier run: what of this scenario is among them is not measured again. Searches start near
    /// what [`near`] found.
    pub(super) fn behind(mut self, records: &[Record], near: BTreeMap<String, f64>) -> Contest<'c> {
        for record in records {
            if record.scenario == self.scenario.name {
                self.keep(record);
            }
        }
        self.near = near;
        self
    }

    /// Remembers what was measured.
    fn keep(&mut self, record: &Record) {
        let name = &record.contender;
        self.done
            .insert((name.clone(), record.measure, record.repeat));
        if record.measure == Measure::R99 {
            self.last.insert(name.clone(), record.figure);
            let found = self.found.entry(name.clone()).or_default();
            found.push(record.figure);
            let highest = self.peaks.entry(name.clone()).or_default();
            *highest = f64::max(*highest, peak(record));
        }
    }

    /// Measures everything, until a signal comes; `see` gets each record as it comes, and what could not be measured. A
    /// contender that fails twice, or before anything was measured of it, is left out from then on. False: a signal came.
    pub(super) fn run(
        mut self,
        signals: &Signals,
        mut see: impl FnMut(Result<Record, Missing>),
    ) -> bool {
        let is_stopped = || signals.came(Duration::ZERO);
        for &measure in &self.scenario.measures {
            // Labs of their own are there as long as turns are taken.
            let mut seats = Seats::new();
            for repeat in 1..=measure.repeats(self.settings.repeats) {
                let due = self.due(measure, repeat);
                // A server on another machine is there alone.
                let goes_on = match (measure, &self.seat.stage) {
                    (Measure::R99, Some(_)) => {
                        self.search_by_turns(&mut seats, &due, repeat, &is_stopped, &mut see)
                    }
                    (Measure::Cost, Some(_)) => {
                        self.by_turns(&mut seats, &due, repeat, &is_stopped, &mut see)
                    }
                    _ => self.one_by_one(&due, (measure, repeat), &is_stopped, &mut see),
                };
                if !goes_on {
                    return false;
                }
            }
        }
        true
    }

    /// Whose turn it is in a repeat of a measure.
    fn due(&self, measure: Measure, repeat: u32) -> Vec<&'c Contender> {
        let is_due = |one: &&Contender| {
            let name = &one.name;
            let is_there = self.settings.remote.is_some() || is_named(self.library, one);
            let was_measured = self.done.iter().any(|(of, ..)| of == name);
            let failed = self.failures.get(name).copied().unwrap_or(0);
            let is_done = self.done.contains(&(name.clone(), measure, repeat));
            one.takes_part_in(measure) && is_there && !is_done && failed <= u32::from(was_measured)
        };
        self.scenario.contenders.iter().filter(is_due).collect()
    }

    /// Measures contenders one after the other. False: it was stopped.
    fn one_by_one(
        &mut self,
        due: &[&'c Contender],
        (measure, repeat): (Measure, u32),
        is_stopped: &dyn Fn() -> bool,
        see: &mut dyn FnMut(Result<Record, Missing>),
    ) -> bool {
        for contender in due {
            // It may have come while the scenario was made ready: nothing is begun then.
            if is_stopped() {
                return false;
            }
            let measured_now = self.measure(contender, measure, repeat);
            // What a signal has cut short, Ctrl-C its generator for example, is no figure.
            if is_stopped() {
                return false;
            }
            see(self.judge(&contender.name, (measure, repeat), measured_now));
        }
        true
    }

    /// Remembers what was measured, or that it could not be.
    fn judge(
        &mut self,
        contender: &str,
        (measure, repeat): (Measure, u32),
        measured_now: Outcome<Record>,
    ) -> Result<Record, Missing> {
        match measured_now {
            Ok(record) => {
                self.keep(&record);
                Ok(record)
            }
            Err(failure) => {
                *self.failures.entry(contender.to_owned()).or_default() += 1;
                Err(Missing {
                    scenario: self.scenario.name.clone(),
                    contender: contender.to_owned(),
                    at: format!("{}, #{repeat}", measure.word()),
                    why: failure.to_string(),
                })
            }
        }
    }

    fn measure(&self, contender: &Contender, measure: Measure, repeat: u32) -> Outcome<Record> {
        let mut up = self.bring_up(contender, &self.seat)?;
        let witness = Witness::start(&self.seat.client, WITNESS_NAME)?;
        let shot = self.shoot(measure, &up);
        let seen = witness.stop();
        up.check()?;
        let mut shot = shot?;
        if matches!(measure, Measure::Start | Measure::Memory) {
            shot.details["server"] = started(up.start, &up.watched)?;
        }
        if measure == Measure::ServerCost {
            shot.details["server"] = self.core_of_server(&shot)?;
        }
        self.record_of(&up, (measure, repeat), shot, seen)
    }

    fn shoot(&self, measure: Measure, up: &Up<'_>) -> Outcome<Shot> {
        let (contender, generator, watched) = (up.contender, &up.generator, &up.watched[..]);
        let client = &self.seat.client;
        let time = Duration::from_secs(self.settings.seconds.into());
        let load = |rate: f64, time| self.load(rate, time);
        match measure {
            Measure::R99 => generator.search(client, self.first_load(contender), watched),
            Measure::Cost | Measure::ServerCost | Measure::Evenness => {
                let load = load(self.scenario.cost_rate.into(), time);
                generator.shoot(client, load, Manner::Unwoken, watched)
            }
            Measure::Overload => {
                let load = load(self.overload_rate(&contender.name), time);
                generator.shoot(client, load, Manner::Drop, watched)
            }
            Measure::Send => {
                let rate = self.scenario.overload_rate.unwrap_or(4_000_000);
                generator.shoot(client, load(rate.into(), time), Manner::Plain, watched)
            }
            Measure::OverTime => {
                // The same for all contenders, so that their curves compare: up to a fifth beyond the best R99.
                let medians = self.found.values().map(|found| median(found));
                let best = medians.reduce(f64::max);
                let known = best.map(|rate| rate / self.settings.scale);
                let rate = known.unwrap_or(self.scenario.start_rate.into());
                let load = load(rate * BEYOND / 2.0, time);
                generator.shoot(client, load, Manner::Rising, watched)
            }
            Measure::Latency => {
                let rate = self.latency_rate(&contender.name)?;
                let has_curve = self
                    .done
                    .iter()
                    .any(|(name, of, _)| *name == contender.name && *of == measure);
                let loads = match has_curve {
                    true => &LOADS[..FIGURES],
                    false => &LOADS[..],
                };
                self.latencies(generator, rate, loads, watched)
            }
            Measure::Start | Measure::Memory => {
                generator.shoot(client, CHECK, Manner::Plain, watched)
            }
            Measure::ClosedLoop => generator.closed_loop(client, Some(time), watched),
            Measure::OnceThrough => generator.closed_loop(client, None, watched),
        }
    }

    /// A rate, at the scale of this run.
    fn load(&self, rate: f64, time: Duration) -> Load {
        Load {
            rate: (rate * self.settings.scale).max(100.0) as u32,
            time,
        }
    }

    /// With what a search begins, and how long each rate is held.
    fn first_load(&self, contender: &Contender) -> Load {
        let known = self.known_rate(&contender.name);
        let near = known.or_else(|| self.near.get(&contender.name).copied());
        let start = near.map_or(self.scenario.start_rate.into(), |rate| {
            rate / self.settings.scale
        });
        let time = Duration::from_secs(self.settings.search_seconds.into());
        self.load(start, time)
    }

    /// The R99 that was found last; of one that had none nothing is known.
    fn known_rate(&self, contender: &str) -> Option<f64> {
        let last = self.last.get(contender).copied();
        last.filter(|rate| *rate > 0.0)
    }

    /// Queries a second of which parts are offered while latency is measured.
    fn latency_rate(&self, contender: &str) -> Outcome<f64> {
        match self.found.get(contender).map(|found| median(found)) {
            Some(rate) if rate > 0.0 => Ok(rate),
            Some(_) => Err(Failure::new(
                "its R99 is 0, so there is no load of which 10 % and the like could be offered",
            )),
            None => Ok(f64::from(self.scenario.cost_rate) * self.settings.scale),
        }
    }

    /// What the server's CPU did; that of another machine cannot be seen.
    fn core_of_server(&self, shot: &Shot) -> Outcome<Value> {
        let core = shot.used.cores.get(self.settings.cpus.server);
        match (core, self.settings.remote) {
            (Some(seconds), None) => Ok(json!({ "core_seconds": seconds })),
            _ => Err(Failure::new(
                "the time of the server's CPU is not told: it is on another machine, or none of /proc/stat",
            )),
        }
    }

    /// Queries a second, before they are scaled, that are more than a contender can answer: what the scenario says, or twice
    /// the contender's peak.
    fn overload_rate(&self, contender: &str) -> f64 {
        let peak = self.peaks.get(contender);
        let twice = peak.map(|peak| 2.0 * peak / self.settings.scale);
        let said = self.scenario.overload_rate.map(f64::from);
        said.or(twice).unwrap_or(2e6)
    }

    /// Latencies at parts of a rate; the first is as good as idle. Counts and CPU time are those of the run that the figure is
    /// of: loss at 110 % says nothing of it.
    fn latencies(
        &self,
        generator: &Generator,
        rate: f64,
        loads: &[(&str, Option<f64>)],
        watched: &[u32],
    ) -> Outcome<Shot> {
        let time = Duration::from_secs(self.settings.search_seconds.into());
        let mut of_figure = Shot::default();
        let mut points = Vec::new();
        for (place, (name, part)) in loads.iter().enumerate() {
            let rate = part.map_or(IDLE, |part| (rate * part).max(IDLE)) as u32;
            let load = Load { rate, time };
            let shot = generator.shoot(&self.seat.client, load, Manner::Plain, watched)?;
            points.push(point(name, rate, &shot));
            if place == AT_TENTH {
                of_figure = shot;
            }
        }
        of_figure.details = json!({ "points": points });
        Ok(of_figure)
    }

    /// What is told of a run of a contender that was up.
    fn record_of(
        &self,
        up: &Up<'_>,
        (measure, repeat): (Measure, u32),
        shot: Shot,
        seen: Seen,
    ) -> Outcome<Record> {
        let of_run = (shot, seen, up.watched.clone());
        let mut record = self.record(up.contender, measure, repeat, of_run)?;
        record.generator = up.generator.version();
        record.server_mode = up.mode();
        Ok(record)
    }

    fn record(
        &self,
        contender: &Contender,
        measure: Measure,
        repeat: u32,
        (shot, witness, watched): (Shot, Seen, Vec<u32>),
    ) -> Outcome<Record> {
        let (figure, unit) = figure(measure, &shot)?;
        let server = self.library.server(&contender.server);
        let server_seconds = shot.used.of(&watched);
        Ok(Record {
            scenario: self.scenario.name.clone(),
            contender: contender.name.clone(),
            measure,
            repeat,
            figure,
            unit: unit.to_owned(),
            commit: self.commit.to_owned(),
            generator: String::new(),
            server: match (&self.seat.stage, server) {
                (Some(stage), Ok(server)) => stage.version(&server),
                _ => format!("{} at {}", self.settings.server, self.seat.client.target())
                    .trim()
                    .to_owned(),
            },
            door: contender.door.door().word().to_owned(),
            server_mode: String::new(),
            generator_mode: shot.mode.clone(),
            queues: match self.seat.stage {
                Some(_) => self.scenario.queues_of(contender),
                None => shot.threads,
            },
            offered: shot.offered,
            sent: shot.sent,
            right: shot.right,
            unwanted: shot.unwanted,
            seconds: shot.seconds,
            server_seconds,
            disturbed: disturbance(&shot),
            witness,
            used: shot.used,
            details: shot.details,
            course: shot.course,
            turns: Vec::new(),
        })
    }
}

impl Drop for Contest<'_> {
    fn drop(&mut self) {
        // A lab takes its folder away itself.
        if let Some(ledger) = self.ledger.take() {
            ledger.remove();
        }
    }
}

/// Where queries to a server on another machine come from. As in a lab, one bench at a time has this machine, what runs here is
/// written down, and what an earlier bench that was killed has left running is ended.
fn before(prefix: &str, target: SocketAddr) -> Outcome<(Client, Ledger)> {
    let ledger = Ledger::open(&format!("{prefix}-remote"))?;
    for left in ledger.end_processes() {
        eprintln!("ended what an earlier run left: {left}");
    }
    ledger.empty()?;
    let client = Client::before(target).written_in(ledger.book());
    Ok((client, ledger))
}

/// By contender: the R99 that was found last, in the scenario or else in any other. A search that starts there is over sooner,
/// and finds its limit all the same.
pub(super) fn near(records: &[Record], scenario: &str) -> BTreeMap<String, f64> {
    let mut near = BTreeMap::new();
    for own in [false, true] {
        let found = records.iter().filter(|record| {
            record.measure == Measure::R99
                && record.figure > 0.0
                && (record.scenario == scenario) == own
        });
        near.extend(found.map(|record| (record.contender.clone(), record.figure)));
    }
    near
}

/// A server that the environment may name is no contender where it names none, and nothing is said of it.
fn is_named(library: &Library, contender: &Contender) -> bool {
    let server = library.server(&contender.server);
    server.map_or(true, |server| !server.words || named(&server).is_some())
}

/// Makes the scenario's zone for its servers; what answers must say.
fn give_zone(
    stage: &mut Stage,
    scenario: &Scenario,
    plan: &ZonePlan,
    places: &Places,
) -> Outcome<Option<Expected>> {
    let queries = |options: &[String], path: &Path| make_queries(&places.built, options, path);
    let file = zones::file(&places.zones, plan, queries)?;
    stage.set_zone(&file);
    let answers = scenario.answers.as_ref();
    let write = |answers| zones::expected(stage.folder(), &file, answers);
    answers.map(write).transpose()
}

fn make_queries(built: &Path, options: &[String], path: &Path) -> Outcome<()> {
    let output = Command::new(built.join("floodgate"))
        .arg("queries")
        .args(options)
        .arg("-o")
        .arg(path)
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().trim_start_matches("floodgate: ");
            Err(Failure::new(format!(
                "floodgate queries {}: {said}",
                options.join(" ")
            )))
        }
        Err(error) => Err(Failure::new(format!(
            "starting {}: {error}",
            built.join("floodgate").display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::record;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Stdio;
    use std::time::Instant;

    #[test]
    fn options_of_queries_that_are_refused_are_told() {
        let folder = tempfile::tempdir().unwrap();
        // Another program that knows no such option.
        std::os::unix::fs::symlink("/bin/ls", folder.path().join("floodgate")).unwrap();
        let options = ["--randon", "5"].map(str::to_owned);
        let failure = make_queries(folder.path(), &options, Path::new("/dev/null"));
        let said = failure.unwrap_err().to_string();
        assert!(said.starts_with("floodgate queries --randon 5: "), "{said}");
        assert!(said.contains("option '--randon'"), "{said}");
    }

    /// At a tenth of all rates, before a server on another machine.
    pub(super) fn settings() -> Settings {
        let nowhere = PathBuf::new;
        Settings {
            prefix: "test".to_owned(),
            repeats: 1,
            search_seconds: 1,
            seconds: 1,
            scale: 0.1,
            cpus: Cpus {
                generator: 0,
                server: 1,
            },
            places: Places {
                built: nowhere(),
                yardsticks: nowhere(),
                zones: nowhere(),
            },
            remote: "192.0.2.9:53".parse().ok(),
            server: "knotd 3.5".to_owned(),
        }
    }

    /// A scenario whose second contender has a generator that fails by an option, and settings with which this script is asked.
    pub(super) fn of_two(folder: &Path, generator: &str) -> (Scenario, Settings) {
        let program = folder.join("floodgate");
        std::fs::write(&program, generator).unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let mut scenario = Library::ours().scenarios().unwrap().remove(0);
        scenario.contenders.truncate(2);
        scenario.contenders[1].options = vec!["--broken".to_owned()];
        let mut settings = settings();
        settings.places.built = folder.to_owned();
        (scenario, settings)
    }

    /// Seats without a lab.
    pub(super) fn seats_of(scenario: &Scenario) -> Seats {
        let names = scenario.contender_names().into_iter();
        let seat = |name: &str| {
            let client = Client::before("127.0.0.1:9".parse().unwrap());
            let stage = None;
            (name.to_owned(), Seat { stage, client })
        };
        names.map(seat).collect()
    }

    /// A contest in which nothing was measured yet.
    pub(super) fn contest<'c>(
        scenario: &'c Scenario,
        library: &'c Library,
        settings: &'c Settings,
    ) -> Contest<'c> {
        Contest {
            scenario,
            library,
            settings,
            commit: "c0ffee",
            seat: Seat {
                stage: None,
                client: Client::before("192.0.2.9:53".parse().unwrap()),
            },
            ledger: None,
            queries: PathBuf::new(),
            expected: None,
            last: BTreeMap::new(),
            found: BTreeMap::new(),
            peaks: BTreeMap::new(),
            near: BTreeMap::new(),
            done: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }

    #[test]
    fn what_a_bench_before_another_machine_left_running_is_ended_by_the_next_one() {
        let prefix = format!("contest-test-{}", std::process::id());
        let target = "192.0.2.9:53".parse().unwrap();
        let (client, ledger) = before(&prefix, target).unwrap();
        let second = before(&prefix, target).map(drop).unwrap_err();
        assert!(second.to_string().contains("in use by process"), "{second}");
        let mut left = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        client.write_down(left.id(), "cat").unwrap();
        // As when it is killed: its files stay.
        drop(ledger);
        let deadline = Instant::now() + Duration::from_secs(20);
        let ledger = loop {
            match before(&prefix, target) {
                Ok((_, ledger)) => break ledger,
                // A process that another test is just starting has a copy of the lock.
                Err(failure) => assert!(Instant::now() < deadline, "{failure}"),
            }
            std::thread::park_timeout(Duration::from_millis(5));
        };
        // It would end well otherwise, for waiting closes its input.
        assert!(!left.wait().unwrap().success());
        ledger.remove();
    }

    #[test]
    fn overload_is_twice_the_peak_and_not_twice_the_r99() {
        let (library, settings) = (Library::ours(), settings());
        let mut scenario = library.scenarios().unwrap().remove(0);
        let search = |repeat: u32, figure: f64, peak: f64| {
            let mut search = record("a", repeat, figure);
            search.details = json!({ "peak": peak });
            search
        };
        let records = [
            search(1, 100.0, 160.0),
            search(2, 110.0, 150.0),
            record("b", 1, 80.0),
        ];
        let contest_now = contest(&scenario, &library, &settings);
        let contest_now = contest_now.behind(&records, BTreeMap::new());
        assert_eq!(contest_now.overload_rate("a").round(), 3200.0);
        assert_eq!(contest_now.last["a"], 110.0);
        // Without a peak, twice what is known; without anything, what nobody answers.
        assert_eq!(contest_now.overload_rate("b").round(), 1600.0);
        assert_eq!(contest_now.overload_rate("c"), 2e6);
        drop(contest_now);
        scenario.overload_rate = Some(7);
        let contest_now = contest(&scenario, &library, &settings);
        let contest_now = contest_now.behind(&records, BTreeMap::new());
        assert_eq!(contest_now.overload_rate("a"), 7.0);
    }

    #[test]
    fn one_that_had_no_rate_has_no_parts_of_it() {
        let (library, settings) = (Library::ours(), settings());
        let scenario = library.scenarios().unwrap().remove(0);
        let records = [record("none", 1, 0.0), record("some", 1, 700.0)];
        let contest = contest(&scenario, &library, &settings);
        let contest = contest.behind(&records, BTreeMap::new());
        assert_eq!(contest.known_rate("none"), None);
        let failure = contest.latency_rate("none").unwrap_err().to_string();
        assert!(failure.contains("its R99 is 0"), "{failure}");
        assert_eq!(contest.latency_rate("some").unwrap(), 700.0);
        assert!(contest.core_of_server(&Shot::default()).is_err());
        // Never searched: what the scenario says, at the scale of this run.
        assert_eq!(contest.latency_rate("never").unwrap(), 10_000.0);
    }

    #[test]
    fn a_tenth_of_an_r99_is_of_the_median_and_not_of_the_last() {
        let (library, settings) = (Library::ours(), settings());
        let scenario = library.scenarios().unwrap().remove(0);
        let records = [800.0, 700.0, 100.0].map(|figure| record("a", 1, figure));
        let contest = contest(&scenario, &library, &settings);
        let contest = contest.behind(&records, BTreeMap::new());
        assert_eq!(contest.latency_rate("a").unwrap(), 700.0);
        // The next search goes on from the last all the same.
        assert_eq!(contest.known_rate("a"), Some(100.0));
    }

    #[test]
    fn the_time_of_the_servers_cpu_is_told_of_this_machine_alone() {
        let (library, mut settings) = (Library::ours(), settings());
        settings.remote = None;
        let scenario = library.scenarios().unwrap().remove(0);
        let contest = contest(&scenario, &library, &settings);
        let mut shot = Shot::default();
        shot.used.cores = vec![0.25, 0.75];
        let told = contest.core_of_server(&shot).unwrap();
        assert_eq!(told["core_seconds"], 0.75);
        shot.used.cores.truncate(1);
        assert!(contest.core_of_server(&shot).is_err());
    }

    #[test]
    fn a_record_has_the_commit_that_it_is_of() {
        let (library, settings) = (Library::ours(), settings());
        let scenario = library.scenarios().unwrap().remove(0);
        let shot = Shot {
            right: 1.0,
            ..Shot::default()
        };
        let seen = (shot, Seen::default(), Vec::new());
        let contest = contest(&scenario, &library, &settings);
        let made = contest.record(&scenario.contenders[0], Measure::Cost, 1, seen);
        assert_eq!(made.unwrap().commit, "c0ffee");
    }

    #[test]
    fn a_search_that_found_no_rate_has_failed_and_one_that_found_none_answered_has_not() {
        let (library, settings) = (Library::ours(), settings());
        let scenario = library.scenarios().unwrap().remove(0);
        let contest = contest(&scenario, &library, &settings);
        let made = |details: Value| {
            let shot = Shot {
                details,
                ..Shot::default()
            };
            let seen = (shot, Seen::default(), Vec::new());
            contest.record(&scenario.contenders[0], Measure::R99, 1, seen)
        };
        // Stopped before it had one; no floodgate's.
        for details in [json!({"r99": null, "peak": 5.0}), Value::Null] {
            let failure = made(details).unwrap_err().to_string();
            assert!(failure.contains("has found no rate"), "{failure}");
        }
        for rate in [0.0, 7.0] {
            assert_eq!(made(json!({ "r99": rate })).unwrap().figure, rate);
        }
    }

    #[test]
    fn a_server_that_the_environment_may_name_is_no_contender_without_it() {
        let library = Library::ours();
        let scenario = library.scenarios().unwrap().remove(0);
        let of = |server: &str| {
            let mut contenders = scenario.contenders.iter();
            contenders.find(|one| one.server == server).unwrap()
        };
        assert!(is_named(&library, of("millrace")));
        let is_there = named(&library.server("named").unwrap()).is_some();
        assert_eq!(is_named(&library, of("named")), is_there);
    }

    #[test]
    fn a_search_starts_near_what_the_contender_had_last() {
        let mut other = record("b", 1, 7.0);
        other.scenario = "cache".to_owned();
        let mut cost = record("a", 1, 9.0);
        cost.measure = Measure::Cost;
        let records = [record("a", 1, 5.0), record("a", 2, 6.0), other, cost];
        let found = |name: &str, figure: f64| (name.to_owned(), figure);
        let both = BTreeMap::from([found("a", 6.0), found("b", 7.0)]);
        assert_eq!(near(&records, "refused"), both);
        assert_eq!(near(&records, "forward"), both);
        let mut records = records.to_vec();
        records[0].scenario = "cache".to_owned();
        assert_eq!(near(&records, "cache")["a"], 5.0);
        // One that had none starts like one that was never measured.
        assert!(near(&[record("a", 1, 0.0)], "refused").is_empty());
    }
}
