//! Measures the contenders of a scenario, one after the other and over again, so that what changes with time meets all of
//! them alike.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::generator::{Generator, Load, Shot};
use super::plan::{Contender, Library, Measure, Scenario};
use super::record::Record;
use super::stage::{Cpus, Places, Running, Stage};
use super::witness::{Seen, Witness};
use crate::{Failure, Outcome};

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
}

/// How long a server may take to give its first answer.
const START: Duration = Duration::from_secs(15);

/// A run is disturbed when others used more than this part of one core.
const OTHERS: f64 = 0.03;
/// Or the hypervisor gave this part of a core away.
const STEAL: f64 = 0.02;

/// The name that the witness asks for.
const WITNESS_NAME: &str = "witness.example.com.";

/// A scenario that is being measured.
pub(super) struct Contest<'c> {
    scenario: &'c Scenario,
    library: &'c Library,
    settings: &'c Settings,
    stage: Stage,
    queries: PathBuf,
    /// By contender: the R99 that was found last, to start near by, and the most answered a second.
    last: BTreeMap<String, f64>,
}

impl<'c> Contest<'c> {
    /// Builds the lab and makes the queries.
    pub(super) fn prepare(
        scenario: &'c Scenario,
        library: &'c Library,
        settings: &'c Settings,
    ) -> Outcome<Contest<'c>> {
        let (places, cpus) = (&settings.places, settings.cpus);
        let stage = Stage::build(&settings.prefix, scenario, library, places, cpus)?;
        let queries = stage.folder().join("queries.txt");
        make_queries(&places.built, &scenario.queries, &queries)?;
        Ok(Contest {
            scenario,
            library,
            settings,
            stage,
            queries,
            last: BTreeMap::new(),
        })
    }

    /// Measures everything; `see` gets each record as it comes. A contender that cannot start is told once, and left out.
    pub(super) fn run(mut self, mut see: impl FnMut(Record)) -> Outcome<()> {
        let mut out: Vec<String> = Vec::new();
        for &measure in &self.scenario.measures {
            for repeat in 1..=self.settings.repeats {
                for contender in &self.scenario.contenders {
                    if out.contains(&contender.name) {
                        continue;
                    }
                    match self.measure(contender, measure, repeat) {
                        Ok(record) => {
                            if measure == Measure::R99 {
                                self.last.insert(contender.name.clone(), record.figure);
                            }
                            see(record);
                        }
                        Err(failure) => {
                            eprintln!("  {} is left out: {failure}", contender.name);
                            out.push(contender.name.clone());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn measure(&self, contender: &Contender, measure: Measure, repeat: u32) -> Outcome<Record> {
        let backend = self.scenario.backend.as_ref();
        let _backend = backend
            .map(|name| self.stage.start_backend(name))
            .transpose()?;
        let mut running = self.stage.start(contender)?;
        let generator = self.generator(contender);
        self.await_answers(&mut running)?;
        let witness = Witness::start(
            &self.stage.lab().client(),
            self.stage.target(),
            WITNESS_NAME,
        )?;
        let watched: Vec<u32> = running.process_id().into_iter().collect();
        let shot = self.shoot(contender, measure, &generator, &watched);
        let seen = witness.stop();
        running.check()?;
        let shot = shot?;
        Ok(self.record(contender, measure, repeat, (shot, seen, watched)))
    }

    fn generator(&self, contender: &Contender) -> Generator {
        Generator::new(
            contender.generator,
            &self.settings.places.built,
            &self.queries,
            &contender.options,
            self.settings.cpus,
        )
    }

    /// Asks slowly until something is answered: then everything is attached, and the backend is known to be up.
    fn await_answers(&self, running: &mut Running<'_>) -> Outcome<()> {
        let started = Instant::now();
        let floodgate = Contender {
            generator: Default::default(),
            options: Vec::new(),
            ..self.scenario.contenders[0].clone()
        };
        let generator = self.generator(&floodgate);
        let load = Load {
            rate: 100,
            time: Duration::from_millis(200),
        };
        loop {
            running.check()?;
            // The first answers of a backend that is thought down are failures, and answers all the same.
            let shot = generator.shoot(&self.stage, load, false, &[])?;
            let failures = shot.details["response_rcodes"]["SERVFAIL"].as_f64();
            if shot.right - failures.unwrap_or(0.0) > 0.0 {
                return Ok(());
            }
            if started.elapsed() > START {
                return Err(Failure::new(format!(
                    "no answer within {} s",
                    START.as_secs()
                )));
            }
        }
    }

    fn shoot(
        &self,
        contender: &Contender,
        measure: Measure,
        generator: &Generator,
        watched: &[u32],
    ) -> Outcome<Shot> {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let time = seconds(self.settings.seconds);
        let known = self.last.get(&contender.name).copied();
        let load = |rate: f64, time| Load {
            rate: (rate * self.settings.scale).max(100.0) as u32,
            time,
        };
        match measure {
            Measure::R99 => {
                let start = known.map_or(self.scenario.start_rate.into(), |rate| {
                    rate * 0.7 / self.settings.scale
                });
                let load = load(start, seconds(self.settings.search_seconds));
                generator.search(&self.stage, load, watched)
            }
            Measure::Cost => {
                let load = load(self.scenario.cost_rate.into(), time);
                generator.shoot(&self.stage, load, false, watched)
            }
            Measure::Overload => {
                let twice = known.map(|peak| 2.0 * peak / self.settings.scale);
                let rate = self.scenario.overload_rate.map(f64::from).or(twice);
                let load = load(rate.unwrap_or(2e6), time);
                generator.shoot(&self.stage, load, true, watched)
            }
            Measure::Send => {
                let rate = self.scenario.overload_rate.unwrap_or(4_000_000);
                generator.shoot(&self.stage, load(rate.into(), time), false, watched)
            }
            Measure::ClosedLoop => generator.closed_loop(&self.stage, time, watched),
        }
    }

    fn record(
        &self,
        contender: &Contender,
        measure: Measure,
        repeat: u32,
        (shot, witness, watched): (Shot, Seen, Vec<u32>),
    ) -> Record {
        let (figure, unit) = figure(measure, &shot);
        let server = self.library.server(&contender.server);
        let server_seconds = watched
            .first()
            .and_then(|process| shot.used.processes.get(process));
        Record {
            scenario: self.scenario.name.clone(),
            contender: contender.name.clone(),
            measure: measure.word(),
            repeat,
            figure,
            unit,
            server: server.map_or_else(|_| String::new(), |server| self.stage.version(&server)),
            door: contender.door.door().word(),
            generator_mode: shot.mode.clone(),
            queues: self.scenario.queues,
            offered: shot.offered,
            sent: shot.sent,
            right: shot.right,
            unwanted: shot.unwanted,
            seconds: shot.seconds,
            server_seconds: server_seconds.copied().unwrap_or(0.0),
            disturbed: disturbance(&shot),
            witness,
            used: shot.used,
            details: shot.details,
        }
    }
}

/// The number that a measure is about, with its unit.
fn figure(measure: Measure, shot: &Shot) -> (f64, &'static str) {
    let per = |count: f64, whole: f64| if whole > 0.0 { count / whole } else { 0.0 };
    match measure {
        Measure::R99 => (shot.details["r99"].as_f64().unwrap_or(0.0), "queries/s"),
        Measure::Cost => (per(shot.used.busy() * 1e6, shot.right), "core-us/answer"),
        Measure::Overload => (per(shot.unwanted, shot.seconds), "answers/s"),
        Measure::Send => (per(shot.sent, shot.seconds), "queries/s"),
        Measure::ClosedLoop => (per(shot.right, shot.seconds), "answers/s"),
    }
}

/// Why a run is not to be trusted, if it is not.
fn disturbance(shot: &Shot) -> Option<String> {
    let wall = shot.used.wall.max(0.001);
    let others = shot.used.by_others() / wall;
    let steal = shot.used.steal / wall;
    if others > OTHERS {
        return Some(format!(
            "other programs used {:.0}% of a core",
            others * 100.0
        ));
    }
    (steal > STEAL).then(|| format!("the hypervisor took {:.0}% of a core", steal * 100.0))
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
        Ok(output) => Err(Failure::new(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
        Err(error) => Err(Failure::new(format!(
            "starting {}: {error}",
            built.join("floodgate").display()
        ))),
    }
}
