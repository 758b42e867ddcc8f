//! One scenario on one door, from the server's start to its end.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::backend::Backend;
use super::checks;
use super::client::Clients;
use super::expect;
use super::footing::Footing;
use super::ground::Ground;
use super::model::{Action, Comparison, Counter, Flood, Restart, Scenario, Step};
use crate::kernel_counters::KernelCounters;
use crate::lab::{End, Lab, SERVER_BACKENDS, SERVER_CLIENTS, TO_SERVER, Topology};
use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::sniffer::{Sighting, Sniffer};
use crate::subject::{Door, Server, StartedBy, Subject, SubjectKind};
use crate::{During, Failure, Outcome};

/// What must be the same on every door: one entry per answer, in order.
pub(super) type Transcript = Vec<String>;

/// The server's start, TCP included (reference, 0.1: "within 2 s of start"); a loaded machine, or one that its hypervisor
/// stops now and then, gets more.
const START: Duration = Duration::from_secs(15);
/// What is awaited comes sooner, also on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a flood waits for its counter before it is sent once more.
const ROUND: Duration = Duration::from_millis(500);
/// From so many kills on it is looked whether they have left something.
const MANY_KILLS: u16 = 10;
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
            Action::Release(name) => {
                for backend in &self.backends {
                    backend.release(name);
                }
                Ok(())
            }
            Action::Turn { backend, answering } => {
                self.backend(backend).set_answering(*answering);
                Ok(())
            }
            Action::Log(text) => self.server.await_log(text, PATIENCE),
            Action::Logged { text, lines } => self.server.check_logged(text, *lines),
            Action::Pass(time) => {
                let _ = self.server.until(*time, "time to pass", || Ok(false));
                Ok(())
            }
            Action::Link { end, up } => self.set_link(*end, *up),
            Action::Mtu { end, octets } => self.ground.lab.set_mtu(*end, *octets),
            Action::Flap { end, times } => self.flap(*end, *times),
            Action::Inject { end, frame } => self.ground.lab.inject(*end, frame),
            Action::Restart { how, times } => self.restart_times(*how, *times),
            Action::Flood(flood) => self.flood(flood),
            Action::Signal(signal) => self.server.signal(*signal),
        }
    }

    /// Restarts so often; many kills leave nothing that adds up (F21).
    fn restart_times(&mut self, how: Restart, times: u16) -> Outcome<()> {
        let server = self.ground.lab.server();
        let is_looked_at = matches!(how, Restart::Killed) && times >= MANY_KILLS;
        let before = is_looked_at.then(|| Footing::of(&server)).transpose()?;
        (0..times).try_for_each(|round| self.restart(how, round))?;
        let Some(before) = before else { return Ok(()) };
        let mut now = before;
        let what = "processes, descriptors and locked memory to be as before";
        // What was killed last the kernel gives back a little later.
        let flat = self.until(PATIENCE, what, || {
            now = Footing::of(&server)?;
            Ok(now.is_flat_since(&before, times))
        });
        flat.map_err(|failure| Failure::new(format!("{before:?}, now {now:?}: {failure}")))
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

    /// Takes an end down, or up: then its pair carries frames before the next step, or what that sends would be lost where
    /// the kernel's worker that says so to the queues is late.
    fn set_link(&mut self, end: End, up: bool) -> Outcome<()> {
        self.ground.lab.set_link(end, up)?;
        match up {
            true => self.await_links_of(end),
            false => Ok(()),
        }
    }

    /// Takes an end down and up again, as fast as it goes.
    fn flap(&mut self, end: End, times: u16) -> Outcome<()> {
        for _ in 0..times {
            self.ground.lab.set_link(end, false)?;
            self.ground.lab.set_link(end, true)?;
        }
        self.await_links_of(end)
    }

    /// Awaits that both interfaces of the pair that `end` belongs to are operational.
    fn await_links_of(&mut self, end: End) -> Outcome<()> {
        let lab = &self.ground.lab;
        let towards_backends = matches!(end, End::Backends | End::ServerBackends)
            && self.scenario.topology != Topology::OneInterface;
        let (peer, interface) = match towards_backends {
            true => (lab.backend(), SERVER_BACKENDS),
            false => (lab.client(), SERVER_CLIENTS),
        };
        let server = lab.server();
        self.server
            .until(PATIENCE, "both ends of a link to be up", || {
                Ok(is_up(&server, interface)? && is_up(&peer, TO_SERVER)?)
            })
    }

    /// Sends a message as fast as it goes, again and again where it waits for a counter. Its answers are sound or a failure,
    /// and not counted.
    fn flood(&mut self, flood: &Flood) -> Outcome<()> {
        let socket = self.clients.flooding(flood.destination)?;
        let Some(counter) = &flood.until else {
            return self.flood_once(&socket, flood);
        };
        let metrics = Metrics::of(&self.ground.lab.server())?;
        let before = sum_of(&metrics, counter);
        let deadline = Instant::now() + counter.within;
        loop {
            self.flood_once(&socket, flood)?;
            match self.await_growth(counter, before, ROUND) {
                Err(failure) if Instant::now() > deadline => return Err(failure),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    fn flood_once(&mut self, socket: &UdpSocket, flood: &Flood) -> Outcome<()> {
        for round in 0..flood.times {
            socket.send(&flood.octets).during("flooding")?;
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
        let before = sum_of(&self.before, counter);
        self.await_growth(counter, before, counter.within)
    }

    /// Awaits that the counter is where it should be, growth being counted from `before`.
    fn await_growth(&mut self, counter: &Counter, before: f64, within: Duration) -> Outcome<()> {
        let namespace = self.ground.lab.server();
        let (mut last, mut unread) = (None, String::new());
        let outcome = self.server.until(within, "a counter", || {
            match Metrics::of(&namespace) {
                Ok(metrics) => last = metrics.sum(&counter.name, &counter.labels),
                // A server without descriptors has none for its page either: it is asked again.
                Err(failure) => unread = format!("; {failure}"),
            }
            Ok(last.is_some_and(|now| reached(counter, before, now)))
        });
        outcome.map_err(|failure| {
            let Counter { name, labels, comparison, value, .. } = counter;
            Failure::new(match last {
                None => format!("/metrics has no row {name} {labels:?} ({failure}{unread})"),
                Some(now) => {
                    format!("{name} went from {before} to {now}, {comparison:?} {value} was expected ({failure})")
                }
            })
        })
    }
}

/// The rows of a counter added up; 0 where there is none yet.
fn sum_of(metrics: &Metrics, counter: &Counter) -> f64 {
    metrics.sum(&counter.name, &counter.labels).unwrap_or(0.0)
}

/// Whether an interface is operational, which is more than not to be down: its queues carry frames.
fn is_up(namespace: &Namespace, interface: &str) -> Outcome<bool> {
    let words = ["-brief", "link", "show", "dev", interface];
    Ok(says_up(&namespace.output("ip", &words)?))
}

/// Whether `ip -brief link show` says so: `NAME STATE ADDRESS …`.
fn says_up(text: &str) -> bool {
    text.split_whitespace().nth(1) == Some("UP")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_up_when_its_state_says_so() {
        let line = |state: &str| {
            format!("enp1s0@if2  {state}  02:00:00:00:01:01 <BROADCAST,MULTICAST,UP> \n")
        };
        assert!(says_up(&line("UP")));
        for state in ["DOWN", "LOWERLAYERDOWN", "UNKNOWN"] {
            assert!(!says_up(&line(state)), "{state}");
        }
        assert!(!says_up(""));
    }

    #[test]
    fn growth_is_counted_from_where_it_began() {
        let counter = |comparison| Counter {
            name: "millrace_x".to_owned(),
            labels: Vec::new(),
            comparison,
            value: 3.0,
            within: PATIENCE,
        };
        let metrics = Metrics::read("millrace_x{a=\"b\"} 4\nmillrace_x{a=\"c\"} 1\n");
        let least = counter(Comparison::GrownByAtLeast);
        assert_eq!(sum_of(&metrics.expect("good text"), &least), 5.0);
        assert_eq!(sum_of(&Metrics::default(), &least), 0.0);
        assert!(reached(&least, 5.0, 8.0) && !reached(&least, 5.0, 7.0));
        assert!(!reached(&counter(Comparison::GrownBy), 5.0, 9.0));
    }
}
