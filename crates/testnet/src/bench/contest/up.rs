//! A contender is brought up: its server started, awaited, and its answers looked at, before anything is measured of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{CHECK, Contest, WITNESS_NAME};
use crate::bench::client::Client;
use crate::bench::cpu::{Used, descendants};
use crate::bench::generator::{Generator, Load, Manner, Shot};
use crate::bench::plan::Contender;
use crate::bench::stage::{Running, Stage};
use crate::bench::witness::{FirstAnswer, Seen, Witness};
use crate::{Failure, Outcome, ledger};

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

/// By contender: where it is measured in all repeats, where all are up at the same time.
pub(super) type Seats = BTreeMap<String, Seat>;

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

    /// Brings contenders up at the same time, each in a lab of its own; the failure of one that does not come up. Nothing: it was
    /// stopped.
    pub(super) fn bring_all_up<'s>(
        &self,
        due: &[&'s Contender],
        seats: &'s mut Seats,
        is_stopped: &dyn Fn() -> bool,
    ) -> Option<Vec<Outcome<Up<'s>>>> {
        let built: Vec<Outcome<()>> = due.iter().map(|one| self.seat(seats, one)).collect();
        let seats = &*seats;
        let mut up = Vec::new();
        for (&contender, built) in due.iter().zip(built) {
            if is_stopped() {
                return None;
            }
            up.push(built.and_then(|()| self.bring_up(contender, &seats[&contender.name])));
        }
        Some(up)
    }

    /// Builds the lab of a contender, if it has none yet.
    fn seat(&self, seats: &mut Seats, contender: &Contender) -> Outcome<()> {
        if seats.contains_key(&contender.name) {
            return Ok(());
        }
        let Some(own) = &self.seat.stage else {
            return Err(Failure::new("a server on another machine has no lab"));
        };
        let mut names = self.scenario.contender_names().into_iter();
        let number = names.position(|name| name == contender.name).unwrap_or(0) as u32 + 1;
        let prefix = ledger::numbered(&self.settings.prefix, number);
        let stage = own.another(&prefix, self.scenario)?;
        let client = stage.client();
        let stage = Some(stage);
        seats.insert(contender.name.clone(), Seat { stage, client });
        Ok(())
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
    /// Asks it once, by this generator. The witness asks only this contender, and no longer than that lasts. `idle`: the
    /// processes of servers that have no turn.
    pub(super) fn asked_by(
        &mut self,
        generator: &Generator,
        load: Load,
        manner: Manner,
        idle: &[u32],
    ) -> Outcome<(Shot, Seen)> {
        let watched = [&self.watched[..], idle].concat();
        let witness = Witness::start(self.client, WITNESS_NAME)?;
        let shot = generator.shoot(self.client, load, manner, &watched);
        let seen = witness.stop();
        self.check()?;
        let mut shot = shot?;
        count_as_others(idle, &mut shot.used);
        Ok((shot, seen))
    }

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

/// A server that does not sleep while another one has its turn disturbs as any program does.
fn count_as_others(idle: &[u32], used: &mut Used) {
    used.others += used.of(idle);
    used.processes.retain(|process, _| !idle.contains(process));
}

/// The processes of all servers that are up but the one at this place.
pub(super) fn processes_of_others<'u>(
    up: impl Iterator<Item = &'u Outcome<Up<'u>>>,
    place: usize,
) -> Vec<u32> {
    let others = up.enumerate().filter(|(other, _)| *other != place);
    let up = others.filter_map(|(_, up)| up.as_ref().ok());
    up.flat_map(|up| up.watched.iter().copied()).collect()
}

/// Fails if the server has ended; one on another machine is not looked at.
fn check(running: Option<&mut Running<'_>>) -> Outcome<()> {
    running.map_or(Ok(()), Running::check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contest::tests::{contest, settings};
    use crate::bench::plan::Library;

    #[test]
    fn a_server_that_does_not_sleep_without_a_turn_counts_as_another_program() {
        let mut used = Used {
            others: 0.5,
            processes: [(9, 0.125), (10, 0.25)].into(),
            ..Used::default()
        };
        count_as_others(&[10], &mut used);
        assert_eq!(used.others, 0.75);
        assert_eq!(used.processes, [(9, 0.125)].into());
    }

    #[test]
    fn a_contender_without_a_lab_to_be_had_is_told() {
        let (library, settings) = (Library::ours(), settings());
        let scenario = library.scenarios().unwrap().remove(0);
        let contest = contest(&scenario, &library, &settings);
        let seat = contest.seat(&mut Seats::new(), &scenario.contenders[0]);
        assert!(seat.unwrap_err().to_string().contains("has no lab"));
    }
}
