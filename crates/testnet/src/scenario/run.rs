//! One scenario on one door, from the server's start to its end.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::backend::Backend;
use super::client::Clients;
use super::expect;
use super::model::{Action, Comparison, Counter, Scenario, Step, Transport};
use crate::kernel_counters::KernelCounters;
use crate::lab::Lab;
use crate::metrics::Metrics;
use crate::sniffer::Sniffer;
use crate::subject::{Door, Server, Subject, SubjectKind};
use crate::{During, Failure, Outcome};

/// What must be the same on every door: one entry per answer, in order.
pub(super) type Transcript = Vec<String>;

/// The server's start, TCP included (reference, 0.1: "within 2 s of start"); a loaded machine gets more.
const START: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a scenario; a failure names the line it happened at.
pub(super) fn run(
    scenario: &Scenario,
    subject: &Subject,
    lab: &Lab,
    door: Door,
) -> Outcome<Transcript> {
    let folder = lab.ledger().folder().join("run");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).during(format!("making {}", folder.display()))?;
    let outcome = Run::start(scenario, subject, lab, door, &folder).and_then(Run::finish);
    outcome.map_err(|failure| {
        Failure::new(format!(
            "{failure}{}",
            last_lines(&folder.join("server.log"))
        ))
    })
}

struct Run<'a> {
    scenario: &'a Scenario,
    subject: &'a Subject,
    lab: &'a Lab,
    door: Door,
    server: Server,
    backends: Vec<Backend>,
    clients: Clients<'a>,
    sniffer: Sniffer,
    kernel_before: KernelCounters,
    before: Metrics,
    transcript: Transcript,
}

impl<'a> Run<'a> {
    fn start(
        scenario: &'a Scenario,
        subject: &'a Subject,
        lab: &'a Lab,
        door: Door,
        folder: &Path,
    ) -> Outcome<Self> {
        let namespace = lab.backend();
        let backends: Outcome<Vec<Backend>> = scenario
            .backends
            .iter()
            .map(|script| Backend::start(script, &namespace))
            .collect();
        let backends = backends?;
        let mut server = Server::start(subject, lab, &configuration(scenario, door), folder)?;
        server.await_ready(lab, scenario.listen, START)?;
        Ok(Self {
            scenario,
            subject,
            lab,
            door,
            server,
            backends,
            clients: Clients::new(lab),
            sniffer: Sniffer::start(lab)?,
            kernel_before: KernelCounters::of(&lab.client())?,
            before: Metrics::of(&lab.server())?,
            transcript: Transcript::new(),
        })
    }

    fn finish(mut self) -> Outcome<Transcript> {
        for step in &self.scenario.steps {
            if self.is_for_us(step) {
                let place = format!("{}:{}", self.scenario.path.display(), step.line);
                self.step(step).during(place)?;
            }
        }
        self.check_answers()?;
        self.check_backends()?;
        if self.door == Door::Xdp {
            self.check_xdp()?;
        }
        self.server.stop()?;
        Ok(self.transcript)
    }

    fn is_for_us(&self, step: &Step) -> bool {
        step.door.is_none_or(|door| door == self.door)
            && step.subject.is_none_or(|kind| kind == self.subject.kind)
    }

    fn step(&mut self, step: &Step) -> Outcome<()> {
        match &step.action {
            Action::Ask(ask) => self.clients.ask(ask),
            Action::Expect(expect) => {
                let asked = self.clients.find(expect.label.as_deref())?;
                let octets = self.clients.answer(&asked, expect.within)?;
                self.transcript
                    .push(expect::check(expect, &asked, &octets)?);
                Ok(())
            }
            // What comes all the same is found at the end, when the awaited event has passed.
            Action::ExpectNone(label) => self.clients.find(label.as_deref()).map(drop),
            Action::ExpectClosed(name) => self.clients.await_closed(name, PATIENCE),
            Action::Close(name) => self.clients.close(name),
            Action::Counter(counter) => self.await_counter(counter),
            Action::Seen {
                backend,
                transport,
                count,
            } => self
                .backend(backend)
                .await_seen(*transport, *count, PATIENCE),
            Action::Turn { backend, answering } => {
                self.backend(backend).set_answering(*answering);
                Ok(())
            }
            Action::Log(text) => self.server.await_log(text, PATIENCE),
            Action::Pass(time) => {
                let _ = self.server.until(*time, "time to pass", || Ok(false));
                Ok(())
            }
            Action::Signal(signal) => self.server.signal(*signal),
        }
    }

    fn backend(&self, name: &str) -> &Backend {
        let found = self.backends.iter().find(|backend| backend.name() == name);
        found.expect("the parser knows every backend that a step names")
    }

    fn await_counter(&mut self, counter: &Counter) -> Outcome<()> {
        let before = self
            .before
            .sum(&counter.name, &counter.labels)
            .unwrap_or(0.0);
        let namespace = self.lab.server();
        let mut last = None;
        let outcome = self.server.until(counter.within, "a counter", || {
            last = Metrics::of(&namespace)?.sum(&counter.name, &counter.labels);
            Ok(last.is_some_and(|now| reached(counter, before, now)))
        });
        outcome.map_err(|failure| match last {
            None => Failure::new(format!(
                "/metrics has no row {} {:?} ({failure})",
                counter.name, counter.labels
            )),
            Some(now) => {
                let Counter {
                    name,
                    comparison,
                    value,
                    ..
                } = counter;
                let text = format!(
                    "{name} went from {before} to {now}, {comparison:?} {value} was expected"
                );
                Failure::new(format!("{text} ({failure})"))
            }
        })
    }

    /// I1 and I2: no answer but the expected ones, each a sound packet.
    fn check_answers(&mut self) -> Outcome<()> {
        self.clients.check_nothing_left()?;
        KernelCounters::of(&self.lab.client())?.check_unchanged_since(&self.kernel_before)?;
        let asked = self.clients.asked();
        let from: HashSet<_> = asked.iter().map(|asked| asked.destination).collect();
        let sightings = self.sniffer.sightings()?;
        let answers: Vec<_> = sightings
            .iter()
            .filter(|sighting| from.contains(&sighting.source))
            .collect();
        if let Some((answer, fault)) = answers
            .iter()
            .find_map(|answer| Some((answer, answer.fault?)))
        {
            let text = format!(
                "an answer to {} is no sound packet: {fault}",
                answer.destination
            );
            return Err(Failure::new(text));
        }
        let expected = self
            .scenario
            .expected_datagrams(|step| self.is_for_us(step));
        if answers.len() == expected {
            return Ok(());
        }
        Err(Failure::new(format!(
            "the server sent {} UDP answers where {expected} were expected",
            answers.len()
        )))
    }

    /// I7: what the rules saw is what the backend gets, octet by octet after the ID.
    fn check_backends(&self) -> Outcome<()> {
        let asked = self.clients.asked();
        for backend in &self.backends {
            backend.check_all_expected()?;
            for seen in backend.seen() {
                let same = |octets: &[u8]| octets.get(2..) == seen.octets.get(2..);
                if !asked.iter().any(|asked| same(&asked.octets)) {
                    let hex = crate::dns::hex_of_octets(&seen.octets);
                    let text =
                        format!("backend {} got {hex}, which no client sent", backend.name());
                    return Err(Failure::new(text));
                }
            }
        }
        Ok(())
    }

    /// The run's queries really came by AF_XDP: as many as the clients sent over UDP.
    fn check_xdp(&self) -> Outcome<()> {
        let by_xdp =
            |asked: &&super::client::Asked| asked.transport == Transport::Udp && !asked.kernel;
        let sent = self.clients.asked().iter().filter(by_xdp).count() as f64;
        let now = Metrics::of(&self.lab.server())?;
        let labels = [(
            "interface".to_owned(),
            crate::lab::SERVER_CLIENTS.to_owned(),
        )];
        let sum = |metrics: &Metrics| metrics.sum("millrace_xsk_received", &labels);
        let received =
            sum(&now).ok_or_else(|| Failure::new("/metrics has no row millrace_xsk_received"))?;
        let received = received - sum(&self.before).unwrap_or(0.0);
        if received >= sent {
            return Ok(());
        }
        Err(Failure::new(format!(
            "AF_XDP received {received} frames from clients who sent {sent} queries"
        )))
    }
}

impl Scenario {
    /// How many answers clients await over UDP.
    fn expected_datagrams(&self, is_for_us: impl Fn(&Step) -> bool) -> usize {
        let mut transports = std::collections::HashMap::new();
        let mut last = Transport::Udp;
        let mut count = 0;
        for step in self.steps.iter().filter(|step| is_for_us(step)) {
            match &step.action {
                Action::Ask(ask) => {
                    last = ask.transport;
                    transports.extend(ask.label.clone().map(|label| (label, last)));
                }
                Action::Expect(expect) => {
                    let transport = expect
                        .label
                        .as_ref()
                        .and_then(|label| transports.get(label))
                        .unwrap_or(&last);
                    count += usize::from(*transport == Transport::Udp);
                }
                _ => {}
            }
        }
        count
    }
}

fn reached(counter: &Counter, before: f64, now: f64) -> bool {
    match counter.comparison {
        Comparison::GrownBy => now - before == counter.value,
        Comparison::GrownByAtLeast => now - before >= counter.value,
        Comparison::Is => now == counter.value,
    }
}

fn configuration(scenario: &Scenario, door: Door) -> String {
    let (listen, backend) = door.options();
    let fits = |(only, _): &&(Option<Door>, String)| *only == Some(door);
    let own = scenario.configurations.iter().find(fits);
    let common = || {
        scenario
            .configurations
            .iter()
            .find(|(only, _)| only.is_none())
    };
    let (_, text) = own
        .or_else(common)
        .expect("the parser saw one for each door");
    text.replace("$LISTEN", listen).replace("$BACKEND", backend)
}

/// The end of the server's log, for failures.
fn last_lines(log: &PathBuf) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(8);
    lines[from..]
        .iter()
        .map(|line| format!("\n        server: {line}"))
        .collect()
}

/// How long a run took, for people.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// True if this subject is known to fail the scenario today.
pub(super) fn known_gap(scenario: &Scenario, kind: SubjectKind) -> Option<&str> {
    scenario
        .gaps
        .iter()
        .find(|(subject, _)| *subject == kind)
        .map(|(_, reason)| reason.as_str())
}
