//! A contender is brought up: its server started, awaited, and its answers looked at, before anything is measured of it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{CHECK, Contest, WITNESS_NAME};
use crate::bench::client::Client;
use crate::bench::cpu::descendants;
use crate::bench::generator::{Generator, Load, Manner};
use crate::bench::plan::Contender;
use crate::bench::stage::{Running, Stage};
use crate::bench::witness::FirstAnswer;
use crate::{Failure, Outcome};

/// How long a server may take to give its first answer.
const START: Duration = Duration::from_secs(15);

/// The same with a zone to load first, of a million signed names at the most.
const START_WITH_ZONE: Duration = Duration::from_secs(180);

/// A negative answer is shorter where one NSEC3 record proves two things.
const LENGTH_TOLERANCE: f64 = 0.01;

/// Where a contender is measured.
pub(super) struct Seat {
    /// The lab; none where the server is on another machine.
    pub stage: Option<Stage>,
    pub client: Client,
}

/// A contender that answers as it should, and with what it is measured.
pub(super) struct Up<'s> {
    pub contender: &'s Contender,
    pub client: &'s Client,
    pub generator: Generator,
    /// Its server's processes: some servers answer from a child of theirs.
    pub watched: Vec<u32>,
    /// From its start to its first answer.
    pub start: Duration,
    running: Option<Running<'s>>,
    backend: Option<Running<'s>>,
}

impl Contest<'_> {
    /// Starts a contender's server, and the scenario's backend, and looks at its answers.
    pub(super) fn bring_up<'s>(&self, contender: &'s Contender, seat: &'s Seat) -> Outcome<Up<'s>> {
        let stage = seat.stage.as_ref();
        if let Some(stage) = stage {
            stage.set_queues(self.scenario.queues_of(contender))?;
        }
        let backend = match (stage, &self.scenario.backend) {
            (Some(stage), Some(name)) => Some(stage.start_backend(name)?),
            _ => None,
        };
        let began = Instant::now();
        let running = stage.map(|stage| stage.start(contender)).transpose()?;
        let first = FirstAnswer::start(&seat.client, WITNESS_NAME)?;
        let expected = self.expected.as_ref().filter(|_| !contender.yardstick);
        let mut up = Up {
            contender,
            client: &seat.client,
            generator: self.generator(contender, expected.map(|files| &files.rcode)),
            watched: Vec::new(),
            start: Duration::ZERO,
            running,
            backend,
        };
        self.await_answers(&mut up)?;
        let first = first.stop().unwrap_or_else(Instant::now);
        up.start = first.saturating_duration_since(began);
        for server in [&up.running, &up.backend].into_iter().flatten() {
            server.write_down_children()?;
        }
        self.check_answers(&up, expected.map(|files| &files.records))?;
        let process = up.running.as_ref().and_then(Running::process_id);
        let children = process.map(descendants).unwrap_or_default();
        up.watched = process.into_iter().chain(children).collect();
        if let Some(stage) = stage {
            stage.pin(&up.watched)?;
        }
        Ok(up)
    }

    fn generator(&self, contender: &Contender, expected: Option<&PathBuf>) -> Generator {
        let mut options = contender.options.clone();
        if let Some(path) = expected {
            options.extend(["--expect".to_owned(), path.display().to_string()]);
        }
        let built = &self.settings.places.built;
        Generator::new(contender.generator, built, &self.queries, &options)
    }

    /// Floodgate, whoever the contenders' generators are.
    fn floodgate(&self, expected: Option<&PathBuf>) -> Generator {
        let contender = Contender {
            generator: Default::default(),
            options: Vec::new(),
            ..self.scenario.contenders[0].clone()
        };
        self.generator(&contender, expected)
    }

    /// Fails if answers are not what the scenario says that they are: in response codes, in addresses, in length.
    fn check_answers(&self, up: &Up<'_>, expected: Option<&PathBuf>) -> Outcome<()> {
        let Some(answers) = &self.scenario.answers else {
            return Ok(());
        };
        let shot = self
            .floodgate(expected)
            .shoot(up.client, CHECK, Manner::Plain, &[])?;
        let own = &shot.details["floodgate"];
        let octets = own["answer_octets"].as_f64().unwrap_or(0.0) / shot.right.max(1.0);
        let is_length = (octets / f64::from(answers.octets) - 1.0).abs() < LENGTH_TOLERANCE;
        let is_right = own["wrong"]
            .as_object()
            .is_some_and(serde_json::Map::is_empty);
        if is_right && is_length && shot.right > 0.0 {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{}: answers of {octets:.1} octets, where {} and {} octets belong: {own}",
            up.contender.name, answers.rcode, answers.octets
        )))
    }

    /// Asks slowly until something is answered: then everything is attached, and the backend is known to be up.
    fn await_answers(&self, up: &mut Up<'_>) -> Outcome<()> {
        let started = Instant::now();
        let patience = match &self.scenario.zone {
            Some(_) => START_WITH_ZONE,
            None => START,
        };
        let generator = self.floodgate(None);
        let load = Load {
            rate: 100,
            time: Duration::from_millis(200),
        };
        loop {
            check(up.running.as_mut())?;
            // The first answers of a backend that is thought down are failures, and answers all the same.
            let shot = generator.shoot(up.client, load, Manner::Plain, &[])?;
            let failures = shot.details["response_rcodes"]["SERVFAIL"].as_f64();
            if shot.right - failures.unwrap_or(0.0) > 0.0 {
                return Ok(());
            }
            if started.elapsed() > patience {
                return Err(Failure::new(format!(
                    "no answer within {} s",
                    patience.as_secs()
                )));
            }
        }
    }
}

impl Up<'_> {
    /// Fails if its server has ended, or its backend: what was measured before that is no figure.
    pub(super) fn check(&mut self) -> Outcome<()> {
        check(self.running.as_mut())?;
        check(self.backend.as_mut())
    }

    /// How the server got onto its interfaces.
    pub(super) fn mode(&self) -> String {
        self.running
            .as_ref()
            .map_or_else(String::new, Running::mode)
    }
}

/// Fails if the server has ended; one on another machine is not looked at.
fn check(running: Option<&mut Running<'_>>) -> Outcome<()> {
    running.map_or(Ok(()), Running::check)
}
