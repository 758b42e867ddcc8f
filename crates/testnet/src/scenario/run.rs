//! One scenario on one door, from the server's start to its end.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::backend::Backend;
use super::checks;
use super::client::Clients;
use super::expect;
use super::model::{Action, Comparison, Counter, Restart, Scenario, Step};
use crate::exceptions::Exceptions;
use crate::kernel_counters::KernelCounters;
use crate::lab::Lab;
use crate::metrics::Metrics;
use crate::sniffer::{Sighting, Sniffer};
use crate::subject::{Door, Server, StartedBy, Subject, SubjectKind};
use crate::{During, Failure, Outcome};

/// What must be the same on every door: one entry per answer, in order.
pub(super) type Transcript = Vec<String>;

/// The server's start, TCP included (reference, 0.1: "within 2 s of start"); a loaded machine gets more.
const START: Duration = Duration::from_secs(5);
/// What is awaited comes sooner, also on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between the moments at which a start is interrupted.
const EARLY_STEP: Duration = Duration::from_millis(5);

/// Runs a scenario; a failure names the line it happened at.
pub(super) fn run(
    scenario: &Scenario,
    subject: &Subject,
    ground: &Ground,
    door: Door,
) -> Outcome<Transcript> {
    let folder = ground.lab.ledger().folder().join("run");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).during(format!("making {}", folder.display()))?;
    let text = configuration(scenario, door);
    let start = Start {
        subject,
        lab: &ground.lab,
        listen: scenario.listen,
        text,
        by: &scenario.start,
        folder,
    };
    let outcome = Run::begin(scenario, ground, door, &start).and_then(Run::finish);
    let log = || last_lines(&start.folder.join("server.log"));
    outcome.map_err(|failure| Failure::new(format!("{failure}{}", log())))
}

/// A lab with what watches it, for run after run.
pub(super) struct Ground {
    pub(super) lab: Lab,
    pub(super) exceptions: Exceptions,
}

/// All that a start of the server needs, the first and those of `restart`.
pub(super) struct Start<'a> {
    subject: &'a Subject,
    lab: &'a Lab,
    listen: SocketAddr,
    text: String,
    by: &'a StartedBy,
    folder: PathBuf,
}

impl Start<'_> {
    /// Starts the server and awaits nothing.
    fn begin(&self) -> Outcome<Server> {
        let configuration = (self.text.as_str(), self.by);
        Server::start(self.subject, self.lab, configuration, &self.folder)
    }

    /// Starts the server and awaits TCP and /metrics; gives the counters that it starts with.
    fn server(&self) -> Outcome<(Server, Metrics)> {
        let mut server = self.begin()?;
        server.await_ready(self.lab, self.listen, START)?;
        let mut before = Metrics::default();
        let namespace = self.lab.server();
        server.until(START, "/metrics to answer", || {
            Ok(Metrics::of(&namespace)
                .map(|metrics| before = metrics)
                .is_ok())
        })?;
        Ok((server, before))
    }
}

/// A scenario on its way.
pub(super) struct Run<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) ground: &'a Ground,
    pub(super) door: Door,
    start: &'a Start<'a>,
    server: Server,
    pub(super) backends: Vec<Backend>,
    pub(super) clients: Clients<'a>,
    sniffer: Sniffer,
    /// What it saw, without the answers to floods.
    pub(super) sightings: Vec<Sighting>,
    pub(super) kernel_before: KernelCounters,
    /// The counters when this server started, and how many queries had been asked by then.
    pub(super) before: Metrics,
    pub(super) asked_before: usize,
    transcript: Transcript,
}

impl<'a> Run<'a> {
    fn begin(
        scenario: &'a Scenario,
        ground: &'a Ground,
        door: Door,
        start: &'a Start<'a>,
    ) -> Outcome<Self> {
        let namespace = ground.lab.backend();
        let backends = scenario
            .backends
            .iter()
            .map(|script| Backend::start(script, &namespace));
        let backends = backends.collect::<Outcome<_>>()?;
        let (mut server, before) = start.server()?;
        if door == Door::Xdp {
            // Until the next hop is known a backend is asked by kernel sockets, as is right.
            server.await_log_times(
                "Server reached over AF_XDP",
                scenario.servers_by_xdp(),
                START,
            )?;
        }
        Ok(Self {
            scenario,
            ground,
            door,
            start,
            server,
            backends,
            clients: Clients::new(&ground.lab),
            sniffer: Sniffer::start(&ground.lab)?,
            sightings: Vec::new(),
            kernel_before: KernelCounters::of(&ground.lab.client())?,
            before,
            asked_before: 0,
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
        self.check_all()?;
        self.server.stop()?;
        checks::nothing_left(&self.ground.lab)?;
        Ok(self.transcript)
    }

    pub(super) fn is_for_us(&self, step: &Step) -> bool {
        step.door.is_none_or(|door| door == self.door)
            && step
                .subject
                .is_none_or(|kind| kind == self.start.subject.kind)
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
            Action::ExpectMaybe(label) => self.clients.allow_answer(label.as_deref()),
            Action::ExpectClosed(name) => self.clients.await_closed(name, PATIENCE),
            Action::Close(name) => self.clients.close(name),
            Action::HalfClose(name) => self.clients.half_close(name),
            Action::Counter(counter) => self.await_counter(counter),
            Action::Seen {
                backend,
                transport,
                count,
            } => self
                .backend(backend)
                .await_seen(*transport, *count, PATIENCE),
            Action::Sent {
                backend,
                count,
                within,
            } => self.backend(backend).await_sent(*count, *within),
            Action::Told { backend, front } => self.backend(backend).check_told(front),
            Action::Turn { backend, answering } => {
                self.backend(backend).set_answering(*answering);
                Ok(())
            }
            Action::Log(text) => self.server.await_log(text, PATIENCE),
            Action::Pass(time) => {
                let _ = self.server.until(*time, "time to pass", || Ok(false));
                Ok(())
            }
            Action::Link { end, up } => self.ground.lab.set_link(*end, *up),
            Action::Mtu { end, octets } => self.ground.lab.set_mtu(*end, *octets),
            Action::Flap { end, times } => (0..*times).try_for_each(|_| {
                self.ground.lab.set_link(*end, false)?;
                self.ground.lab.set_link(*end, true)
            }),
            Action::Inject { end, frame } => self.ground.lab.inject(*end, frame),
            Action::Restart { how, times } => {
                (0..*times).try_for_each(|round| self.restart(*how, round))
            }
            Action::Flood {
                octets,
                destination,
                times,
            } => self.flood(octets, *destination, *times),
            Action::Signal(signal) => self.server.signal(*signal),
        }
    }

    fn restart(&mut self, how: Restart, round: u16) -> Outcome<()> {
        match how {
            Restart::Terminated => self.server.end(false)?,
            Restart::Killed => self.server.end(true)?,
            Restart::Early => {
                self.server.end(false)?;
                // Another moment of the start in each round.
                self.start.begin()?.end_early(EARLY_STEP * round.into())?;
                checks::nothing_left(&self.ground.lab)?;
            }
            Restart::Overlapping => {
                self.server.signal(Signal::SIGTERM)?;
                let next = self.start.begin()?;
                self.server.await_end()?;
                // What the old one still held the new one may have refused: with a line, and without harm to anybody.
                next.end_overlapped()?;
            }
        }
        (self.server, self.before) = self.start.server()?;
        self.asked_before = self.clients.asked().len();
        Ok(())
    }

    /// Sends a message as fast as it goes. Its answers are sound or a failure, and not counted.
    fn flood(&mut self, octets: &[u8], destination: SocketAddr, times: u32) -> Outcome<()> {
        let socket = self.clients.flooding(destination)?;
        for round in 0..times {
            socket.send(octets).during("flooding")?;
            // Before the watcher's buffer is full.
            if round % 4_096 == 0 {
                self.watch()?;
            }
        }
        Ok(())
    }

    /// Takes what the clients' interface has seen.
    pub(super) fn watch(&mut self) -> Outcome<()> {
        let flooded = |sighting: &Sighting| self.clients.was_flooded_from(sighting.destination);
        for sighting in self.sniffer.sightings()? {
            if sighting.fault.is_some() || !flooded(&sighting) {
                self.sightings.push(sighting);
            }
        }
        Ok(())
    }

    /// Awaits that it is so, while the server lives.
    pub(super) fn until(
        &mut self,
        within: Duration,
        what: &str,
        is_so: impl FnMut() -> Outcome<bool>,
    ) -> Outcome<()> {
        self.server.until(within, what, is_so)
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
        let namespace = self.ground.lab.server();
        let mut last = None;
        let outcome = self.server.until(counter.within, "a counter", || {
            last = Metrics::of(&namespace)?.sum(&counter.name, &counter.labels);
            Ok(last.is_some_and(|now| reached(counter, before, now)))
        });
        outcome.map_err(|failure| {
            let Counter { name, labels, comparison, value, .. } = counter;
            Failure::new(match last {
                None => format!("/metrics has no row {name} {labels:?} ({failure})"),
                Some(now) => {
                    format!("{name} went from {before} to {now}, {comparison:?} {value} was expected ({failure})")
                }
            })
        })
    }
}

fn reached(counter: &Counter, before: f64, now: f64) -> bool {
    match counter.comparison {
        Comparison::GrownBy => now - before == counter.value,
        Comparison::GrownByAtLeast => now - before >= counter.value,
        Comparison::GrownByLess => now - before < counter.value,
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
fn last_lines(log: &Path) -> String {
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
