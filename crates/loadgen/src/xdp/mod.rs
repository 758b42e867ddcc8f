//! `floodgate xdp`: an open-loop generator over AF_XDP, one sending thread per queue.
//!
//! ```text
//!  main thread    signals, progress, statistics in between; decides when the run has ended
//!  lane i         queue i: AF_XDP socket, UMEM, source ports, flight table, tally
//!  kernel         bpf/collect.bpf.c: answers to our ports → socket of their queue; everything else → the kernel's stack
//! ```

pub mod addressing;
mod lane;
mod measurement;

pub(crate) use measurement::time_of_day;
pub use measurement::{LaneCounts, Losses, Measurement, not_sent};

use crate::failure::{Failure, Outcome};
use crate::flights::Flights;
use crate::pace::Pace;
use crate::path;
use crate::questions::Questions;
use crate::shape::Shape;
use crate::tally::Tally;
use crate::watch::{Schedule, Watch};
use addressing::{Addressing, Target, port_bits};
use clap::ValueEnum;
use lane::{Lane, Run};
use measurement::Baseline;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Pid;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wire::frame::Mac;
use xsk::nic::Nic;
use xsk::{
    AttachMode, BindMode, CHUNK, Collection, Collector, Options, RingSizes, Socket, Sources, Umem,
    UmemOptions,
};

/// How frames get to and from the wire (`-m`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Native and zero-copy where the driver can.
    #[default]
    Auto,
    /// Native, but copying.
    Copy,
    /// In the kernel's stack.
    Generic,
}

/// What ends a lane's sleep between two batches (`--wake`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Wake {
    /// Answers, and the schedule: each answer is seen when it comes.
    #[default]
    Answers,
    /// The schedule alone. Answers are seen when the next batch is due, and wake nobody: what a wake-up costs the server's core
    /// is the same then whether the generator sleeps when an answer comes or not.
    Schedule,
    /// It never sleeps.
    Never,
}

/// On which CPUs the lanes run (`-F`): lane i on `start + i · step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affinity {
    pub start: usize,
    pub step: usize,
}

impl Default for Affinity {
    fn default() -> Affinity {
        Affinity { start: 0, step: 1 }
    }
}

impl Affinity {
    /// Whether every lane has its CPU.
    ///
    /// # Errors
    /// One is not there, or this program may not use it.
    fn check(self, lanes: usize) -> Outcome<()> {
        // On a thread of its own, which ends with what it tried.
        let missing = std::thread::scope(|scope| {
            let tries = scope.spawn(|| (0..lanes).find(|lane| !self.pin(*lane)));
            tries.join().expect("it does not panic")
        });
        let Some(lane) = missing else {
            return Ok(());
        };
        Err(Failure::new(format!(
            "-F {}s{}: CPU {}, of sending thread {} of {lanes}, is not there or not for this program, which may use CPUs {}",
            self.start,
            self.step,
            self.cpu(lane),
            lane + 1,
            allowed_cpus()
        )))
    }

    fn cpu(self, lane: usize) -> usize {
        self.start + lane * self.step
    }

    /// Pins the calling thread. `false`: the CPU does not exist or is not allowed, and the kernel chooses.
    fn pin(self, lane: usize) -> bool {
        let mut cpus = CpuSet::new();
        let is_set = cpus.set(self.cpu(lane)).is_ok();
        is_set && sched_setaffinity(Pid::from_raw(0), &cpus).is_ok()
    }
}

/// `0-1`, as the kernel has it.
fn allowed_cpus() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines();
    let list = lines.filter_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(str::trim).collect()
}

/// Everything that a generator must know before it starts.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One at least; all are reached through one interface.
    pub targets: Vec<SocketAddr>,
    /// The interface's name, where the route's is not wanted.
    pub interface: Option<String>,
    /// Source addresses, where the kernel's choice is not wanted.
    pub sources: Option<Sources>,
    pub local_mac: Option<Mac>,
    pub remote_mac: Option<Mac>,
    pub vlan: Option<u16>,
    /// Source ports.
    pub ports: RangeInclusive<u16>,
    pub mode: Mode,
    /// Throw answers away in the kernel.
    pub drop: bool,
    /// Queries sent at once, where a number was asked for.
    pub batch: Option<u32>,
    /// Lanes take turns, and without a number that was asked for send fewer at once at low rates than [`BATCH`], a batch a
    /// millisecond at most. What a server keeps up with is not to be found out by a load of bursts.
    pub evenly: bool,
    /// CPUs that were asked for; without it the usual ones, as far as there are so many.
    pub affinity: Option<Affinity>,
    /// An answer that takes longer is late.
    pub late_after: Duration,
    /// How far behind its schedule the generator may fall before it gives queries up.
    pub patience: Duration,
    /// How the rate changes.
    pub shape: Shape,
    pub wake: Wake,
}

/// Queries sent at once unless another number is asked for, as kxdpgun has it.
const BATCH: u32 = 10;

impl Plan {
    /// Queries that a lane of so many a second sends at once.
    fn batch(&self, rate: f64) -> u32 {
        let usual = match self.evenly {
            true => (rate / 1e3).clamp(1.0, f64::from(BATCH)) as u32,
            false => BATCH,
        };
        self.batch.unwrap_or(usual)
    }

    /// What each of so many lanes has of a schedule.
    fn paces(&self, rate: f64, duration: Duration, lanes: usize) -> Vec<Pace> {
        let batch = self.batch(rate / lanes as f64);
        let whole = Pace::new(rate, duration, batch, self.patience).shaped(self.shape);
        (0..lanes)
            .map(|lane| self.pace_of(&whole, lane, lanes))
            .collect()
    }

    /// What a lane, of so many, has of the whole schedule.
    fn pace_of(&self, whole: &Pace, lane: usize, lanes: usize) -> Pace {
        let part = whole.clone().of_thread(lane, lanes);
        match self.evenly {
            true => part.later(lane as f64 / lanes as f64),
            false => part,
        }
    }
}

/// A generator with everything set up, ready to measure any number of times. Dropping it leaves nothing attached.
pub struct Generator {
    plan: Plan,
    questions: Questions,
    addressing: Addressing,
    /// Before the sockets: frames must not be redirected to what is closed.
    collector: Collector,
    lanes: Vec<Lane>,
    flights: Vec<Flights>,
    nic: Nic,
    attached: AttachMode,
    epoch: Instant,
}

/// A generator's sockets, found out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub interface: String,
    pub lanes: usize,
    /// Native or generic.
    pub attached: AttachMode,
    /// Copy or zero-copy.
    pub bound: BindMode,
}

/// Most queries that a lane's flight table remembers, whatever rate and shape ask for: 16 octets each, 256 MiB.
const FLIGHTS_MAX: f64 = (1 << 24) as f64;

/// Time for the threads to start, so that they need not begin by catching up.
const START_DELAY: Duration = Duration::from_millis(2);

/// How often the main thread looks whether the run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Generator {
    /// Finds the way to the server, loads and attaches the collecting program, binds a socket to every queue. `rate`:
    /// the highest that will be asked for, in queries a second.
    ///
    /// # Errors
    /// One line that says what is missing.
    pub fn new(plan: Plan, questions: Questions, rate: f64) -> Outcome<Generator> {
        let (nic, mut addressing) = find_way(&plan)?;
        let lanes = nic.queues as usize;
        plan.affinity
            .map_or(Ok(()), |affinity| affinity.check(lanes))?;
        addressing.port_bits = port_bits(&plan.ports, lanes)?;
        let collector = Collector::load(&collection(&plan, &addressing))?;
        let of_lane = rate / lanes as f64;
        let batch = plan.batch.unwrap_or(BATCH);
        let remembered = remembered(plan.shape, of_lane, plan.late_after, batch);
        let flights = || Flights::new(remembered, addressing.port_bits).with_ids_of_its_own();
        let mut generator = Generator {
            flights: (0..lanes).map(|_| flights()).collect(),
            lanes: Vec::new(),
            attached: AttachMode::Generic,
            epoch: Instant::now(),
            plan,
            questions,
            addressing,
            collector,
            nic,
        };
        generator.attach()?;
        Ok(generator)
    }

    /// Attaches, binds, and enters the sockets last: before that, nothing must be redirected to them.
    fn attach(&mut self) -> Outcome<()> {
        let (attach, bind) = match self.plan.mode {
            Mode::Auto => (AttachMode::Auto, BindMode::Auto),
            Mode::Copy => (AttachMode::Native, BindMode::Copy),
            Mode::Generic => (AttachMode::Generic, BindMode::Copy),
        };
        let attachment = self.collector.attach(self.nic.index, attach);
        let attachment = attachment.map_err(|error| not_attached(self.plan.mode, error))?;
        self.attached = attachment.mode;
        let options = Options {
            rings: RingSizes::default(),
            mode: bind,
            ..Options::default()
        };
        for queue in 0..self.nic.queues {
            let mut umem = Umem::new(options.rings.frames(), UmemOptions::default())?;
            let socket = Socket::bind(&mut umem, self.nic.index, queue, options);
            let frames = options.rings.frames() * self.nic.queues;
            let socket = socket.map_err(|error| not_bound(frames, error))?;
            let questions = self.questions.len();
            let lane = Lane::new(queue as usize, &self.nic.name, (umem, socket), questions);
            self.lanes.push(lane);
        }
        for lane in &self.lanes {
            self.collector.enter(lane.number as u32, &lane.socket)?;
        }
        Ok(())
    }

    /// Interface, threads and modes.
    ///
    /// # Errors
    /// The kernel does not tell the mode.
    pub fn description(&self) -> Outcome<Description> {
        Ok(Description {
            interface: self.nic.name.clone(),
            lanes: self.lanes.len(),
            attached: self.attached,
            bound: self.lanes[0].socket.mode()?,
        })
    }

    /// What is measured, in a few words.
    fn headline(&self) -> String {
        let targets: Vec<String> = self
            .plan
            .targets
            .iter()
            .map(SocketAddr::to_string)
            .collect();
        format!("{} over AF_XDP on {}", targets.join(", "), self.nic.name)
    }

    /// Octets of headers in front of a query's message, the mean of all targets.
    pub fn mean_headers_length(&self) -> usize {
        self.addressing.mean_headers_length()
    }

    /// Sends at this rate for so long, waits for the last answers, and says what was counted. Ends early when the watch
    /// says so, or, with a [`failure`](Measurement::failure), when the interface went down or away.
    ///
    /// # Errors
    /// Nothing could be sent, or somebody took the program off the interface.
    pub fn measure(
        &mut self,
        rate: f64,
        duration: Duration,
        watch: &mut Watch,
    ) -> Outcome<Measurement> {
        let tallies: Vec<Mutex<Tally>> = self.lanes.iter().map(|_| Mutex::default()).collect();
        let before = Baseline::read(&self.nic.name, &self.collector, &self.lanes)?;
        let run = Run {
            questions: &self.questions,
            addressing: &self.addressing,
            flights: &self.flights,
            tallies: &tallies,
            epoch: self.epoch,
            start: (self.epoch.elapsed() + START_DELAY).as_nanos() as u64,
            late_after: self.plan.late_after.as_nanos() as u64,
            accept_partial: self.nic.may_have_partial_checksums(),
            wake: self.plan.wake,
            stop: AtomicBool::new(false),
            sending: AtomicUsize::new(self.lanes.len()),
            sent_until: AtomicU64::new(0),
            end: AtomicBool::new(false),
        };
        let lanes = self.lanes.len();
        let paces = self.plan.paces(rate, duration, lanes);
        let affinity = self.plan.affinity.unwrap_or_default();
        let schedule = schedule(paces.clone(), (self.epoch, run.start));
        watch.start((&self.headline(), "queue"), duration, Some(schedule));
        let results = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .lanes
                .iter_mut()
                .zip(paces)
                .map(|(lane, pace)| {
                    let run = &run;
                    scope.spawn(move || {
                        affinity.pin(lane.number);
                        lane.run(run, pace)
                    })
                })
                .collect();
            // Before the end a lane is only done when it has failed.
            let has_failed = || threads.iter().any(|thread| thread.is_finished());
            oversee(&run, watch, !self.plan.drop, has_failed);
            threads
                .into_iter()
                .map(|thread| thread.join().expect("lanes do not panic"))
                .collect::<Vec<_>>()
        });
        watch.end(Tally::sum(&each(&run)));
        let (mut sending, failure) = self.ending(&run, results)?;
        if !watch.is_stopped() && failure.is_none() {
            // The last batch leaves one interval before the time is over.
            sending = sending.max(duration);
        }
        let began = time_of_day(self.epoch + Duration::from_nanos(run.start));
        let after = Baseline::read(&self.nic.name, &self.collector, &self.lanes)?;
        let tallies = tallies.into_iter().map(|tally| {
            tally
                .into_inner()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
        });
        let counted = Measurement::new((began, sending), tallies.collect(), after.since(&before));
        Ok(Measurement {
            unread: self.plan.drop,
            failure,
            ..counted
        })
    }
}

impl Generator {
    /// How long was sent, and what ended it before its time, if anything did.
    ///
    /// # Errors
    /// Nothing was sent, or somebody took the program off the interface.
    fn ending(
        &self,
        run: &Run<'_>,
        results: Vec<Outcome<()>>,
    ) -> Outcome<(Duration, Option<Failure>)> {
        let sent_until = run.sent_until.load(Ordering::Relaxed);
        let sending = Duration::from_nanos(sent_until.saturating_sub(run.start));
        let failed = results.into_iter().find_map(Result::err);
        match self.gone().or(failed) {
            Some(failure) if Tally::sum(&each(run)).sent == 0 => Err(failure),
            Some(failure) => Ok((sending, Some(failure))),
            None => self.check_attached().map(|()| (sending, None)),
        }
    }

    /// That the interface is gone, if it is: whoever only waits for answers does not notice.
    fn gone(&self) -> Option<Failure> {
        let is_there = Nic::name_of(self.nic.index).is_ok();
        (!is_there).then(|| {
            Failure::new(format!(
                "interface {} went away during the run: the counts are those until then",
                self.nic.name
            ))
        })
    }

    /// Whether answers still come here.
    ///
    /// # Errors
    /// Somebody has taken the program off the interface.
    fn check_attached(&self) -> Outcome<()> {
        if self.collector.is_attached() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "somebody took the XDP program off interface {} during the run: answers went to the kernel from then on",
            self.nic.name
        )))
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // Out of the map before the sockets close: frames for a closed one would be lost. A failure leaves nothing to do.
        for lane in &self.lanes {
            let _ = self.collector.leave(lane.number as u32);
        }
    }
}

/// Why the program is not on the interface, and what would be right.
fn not_attached(mode: Mode, error: xsk::Error) -> Failure {
    let by_driver =
        matches!(error, xsk::Error::System { .. }) && error.raw_os_error() != Some(libc::EPERM);
    if mode == Mode::Copy && by_driver {
        return Failure::new(format!(
            "{error}; -m copy asks for native mode: -m auto and -m generic run in the kernel's stack where the driver has none"
        ));
    }
    error.into()
}

/// Why a queue has no socket, and what would be right. All queues have so many frames, which are locked in memory.
fn not_bound(frames: u32, error: xsk::Error) -> Failure {
    if error.raw_os_error() != Some(libc::ENOBUFS) {
        return error.into();
    }
    let needed = u64::from(frames) * CHUNK as u64;
    let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or((0, 0));
    Failure::new(format!(
        "locked memory: {needed} octets are needed for the frames of all queues, and RLIMIT_MEMLOCK allows {soft}: give the program \
         CAP_IPC_LOCK, or raise the limit to {} KiB or more (`ulimit -l` up to the hard limit, {} KiB; beyond it root does, by \
         memlock in /etc/security/limits.conf or LimitMEMLOCK= in a unit)",
        needed.div_ceil(1024),
        hard / 1024
    ))
}

/// How many queries the lanes together should have sent by a time.
fn schedule(lanes: Vec<Pace>, (epoch, start): (Instant, u64)) -> Schedule {
    Box::new(move |time| {
        let now = (time - epoch).as_nanos() as u64;
        let now = now.checked_sub(start);
        let due = lanes
            .iter()
            .map(|lane| now.map_or(0, |now| lane.due_by(now)));
        due.sum()
    })
}

/// Watches over a run until all lanes have sent everything and the last answers are in, or their time is over, or one has
/// failed.
fn oversee(run: &Run<'_>, watch: &mut Watch, answers: bool, has_failed: impl Fn() -> bool) {
    while run.sending.load(Ordering::Acquire) > 0 && !has_failed() {
        if !watch.turn(LOOK_EVERY, || each(run)) {
            run.stop.store(true, Ordering::Release);
        }
    }
    let patience = Duration::from_nanos(run.late_after);
    let (waiting, stops) = (Instant::now(), watch.stops());
    let more = || waiting.elapsed() < patience && unanswered(run) > 0 && !has_failed();
    while answers && watch.stops() == stops && more() {
        watch.turn(LOOK_EVERY, || each(run));
    }
    run.end.store(true, Ordering::Release);
}

/// What each lane has counted.
fn each(run: &Run<'_>) -> Vec<Tally> {
    let lock = |tally: &Mutex<Tally>| match tally.lock() {
        Ok(tally) => tally.clone(),
        Err(poisoned) => poisoned.into_inner().clone(),
    };
    run.tallies.iter().map(lock).collect()
}

fn unanswered(run: &Run<'_>) -> u64 {
    Tally::sum(&each(run)).unanswered()
}

/// Queries that a lane's flight table must remember at a mean of `rate` a second: what may leave before an answer is late, by
/// the shape's peak and not its mean, half a second more, and a batch, which leaves as a whole.
fn remembered(shape: Shape, rate: f64, late_after: Duration, batch: u32) -> u64 {
    let window = late_after.as_secs_f64() + 0.5;
    let queries = rate * shape.most_within(window) + f64::from(batch);
    queries.min(FLIGHTS_MAX) as u64
}

/// Interface and addresses: what the kernel says where nothing is given by hand.
fn find_way(plan: &Plan) -> Outcome<(Nic, Addressing)> {
    let given = plan.interface.as_deref().map(Nic::by_name).transpose()?;
    let mut targets: Vec<Target> = Vec::new();
    let mut found: Option<Nic> = None;
    for &server in &plan.targets {
        let (nic, sources, mac) = way_to(plan, given.as_ref(), server)?;
        if sources.address.is_ipv4() != server.is_ipv4() {
            return Err(Failure::new(format!(
                "source {} and target {} are of different versions of IP",
                sources.address,
                server.ip()
            )));
        }
        targets.push(Target {
            // Without its scope, which is no part of frames.
            server: SocketAddr::new(server.ip(), server.port()),
            mac,
            sources,
        });
        let first = found.get_or_insert_with(|| nic.clone());
        if first.index != nic.index {
            return Err(Failure::new(format!(
                "{} is reached through {}, {} through {}: all targets must be reached through one interface",
                plan.targets[0].ip(),
                first.name,
                server.ip(),
                nic.name
            )));
        }
    }
    let nic = found.ok_or_else(|| Failure::new("no target to send to"))?;
    let addressing = Addressing {
        targets,
        first_port: *plan.ports.start(),
        port_bits: 0,
        local_mac: plan.local_mac.unwrap_or(nic.mac),
        vlan: plan.vlan,
    };
    Ok((nic, addressing))
}

/// Interface, source and the next hop's MAC address.
fn way_to(plan: &Plan, given: Option<&Nic>, server: SocketAddr) -> Outcome<(Nic, Sources, Mac)> {
    let target = server.ip();
    let interface = interface_to(given, server)?;
    if let Some(nic) = given {
        path::check_ethernet(&nic.name, target)?;
    }
    if let (Some(nic), Some(sources), Some(mac)) = (given, plan.sources, plan.remote_mac) {
        // Nothing to ask: not even a route is needed.
        return Ok((nic.clone(), sources, mac));
    }
    let route = path::route(target, interface)?;
    let nic = given
        .cloned()
        .map_or_else(|| Nic::by_index(route.interface), Ok)?;
    path::check_ethernet(&nic.name, target)?;
    let own = Sources {
        address: route.source,
        prefix: if target.is_ipv4() { 32 } else { 128 },
    };
    let mac = plan
        .remote_mac
        .map_or_else(|| path::resolve(&route, target), Ok)?;
    Ok((nic, plan.sources.unwrap_or(own), mac))
}

/// The interface (index) that is asked for: by itself, or by the server's address (`fe80::1%eth0`).
fn interface_to(given: Option<&Nic>, server: SocketAddr) -> Outcome<Option<u32>> {
    let scope = path::scope_of(server);
    match given {
        None => {
            path::check_scope(server)?;
            Ok(Some(scope).filter(|scope| *scope != 0))
        }
        Some(nic) if scope == 0 || scope == nic.index => Ok(Some(nic.index)),
        Some(nic) => Err(Failure::new(format!(
            "{server} is on another interface than {} (-I)",
            nic.name
        ))),
    }
}

fn collection(plan: &Plan, addressing: &Addressing) -> Collection {
    Collection {
        mac: addressing.local_mac,
        targets: plan.targets.clone(),
        sources: covering(&addressing.targets),
        ports: plan.ports.clone(),
        vlan: plan.vlan,
        drop: plan.drop,
    }
}

/// What the program takes answers to: of each version of IP the smallest network that has the sources of all targets, which may
/// differ (that of `fe80::1%eth0` is no other one's). Who else is in it gets nothing from a target at one of our ports.
fn covering(targets: &[Target]) -> Vec<Sources> {
    let of_version = |is_ipv4: bool| {
        let sources = targets.iter().map(|target| target.sources);
        let of_it = sources.filter(|sources| sources.address.is_ipv4() == is_ipv4);
        of_it.reduce(network_of_both)
    };
    [true, false].into_iter().filter_map(of_version).collect()
}

/// The smallest network that has both, of one version of IP.
fn network_of_both(one: Sources, other: Sources) -> Sources {
    let equal = match (one.address, other.address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    };
    Sources {
        address: one.address,
        prefix: one.prefix.min(other.prefix).min(equal as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_there_is_refused_and_the_usual_ones_need_not_be() {
        // One that this program may use.
        let list = allowed_cpus();
        let first = list.split(['-', ',']).next().unwrap();
        let start = first.parse().unwrap();
        let of = |start, step| Affinity { start, step };
        assert_eq!(of(start, 0).check(64), Ok(()));
        for (wrong, lanes, cpu) in [
            (of(1000, 0), 1, "CPU 1000, of sending thread 1 of 1,"),
            (of(start, 1000), 2, "of sending thread 2 of 2,"),
            // More than the kernel's sets have.
            (of(60_000, 1), 1, "CPU 60000, of"),
        ] {
            let failure = wrong.check(lanes).unwrap_err().to_string();
            assert!(failure.contains(cpu), "{failure}");
            assert!(
                failure.ends_with(&format!("may use CPUs {list}")),
                "{failure}"
            );
        }
        // This thread is where it was.
        assert_eq!(allowed_cpus(), list);
    }

    #[test]
    fn a_ramp_has_no_bursts_at_low_rates() {
        let mut plan = Plan {
            targets: Vec::new(),
            interface: None,
            sources: None,
            local_mac: None,
            remote_mac: None,
            vlan: None,
            ports: 1..=2,
            mode: Mode::Auto,
            drop: false,
            batch: None,
            evenly: true,
            affinity: None,
            late_after: Duration::from_secs(1),
            patience: Duration::from_secs(1),
            shape: Shape::Constant,
            wake: Wake::Answers,
        };
        let batches = |plan: &Plan| [50.0, 2_500.0, 1e6].map(|rate| plan.batch(rate));
        assert_eq!(batches(&plan), [1, 2, 10]);
        let whole = Pace::new(100.0, Duration::from_secs(1), 1, Duration::from_secs(1));
        let begin =
            |plan: &Plan| [0, 1].map(|lane| plan.pace_of(&whole, lane, 2).due_by(9_000_000));
        assert_eq!(begin(&plan), [1, 0]);
        plan.evenly = false;
        assert_eq!(batches(&plan), [10, 10, 10]);
        assert_eq!(begin(&plan), [1, 1]);
        plan.batch = Some(32);
        assert_eq!(batches(&plan), [32, 32, 32]);
    }

    #[test]
    fn too_little_locked_memory_tells_the_limit_and_what_is_needed() {
        let refused = |number| {
            let error = std::io::Error::from_raw_os_error(number);
            not_bound(25 << 10, xsk::Error::system("registering frames", error)).to_string()
        };
        let said = refused(libc::ENOBUFS);
        assert!(said.contains("52428800 octets are needed"), "{said}");
        assert!(said.contains("to 51200 KiB or more"), "{said}");
        assert!(!refused(libc::EINVAL).contains("ulimit"));
    }

    #[test]
    fn what_lanes_should_have_sent_is_the_whole_schedule() {
        let pace = Pace::new(1000.0, Duration::from_secs(1), 10, Duration::from_secs(1));
        let epoch = Instant::now();
        let lanes = (0..2).map(|lane| pace.clone().of_thread(lane, 2));
        let due_by = schedule(lanes.collect(), (epoch, 5_000_000));
        let due = [0, 4, 5, 105, 2000].map(|time| due_by(epoch + Duration::from_millis(time)));
        // Both begin at once, each with a batch every 20 ms.
        assert_eq!(due, [0, 0, 20, 120, 1000]);
    }

    #[test]
    fn the_program_takes_answers_to_the_sources_of_all_targets() {
        let sources = |text: &str| {
            let (address, prefix) = text.split_once('/').unwrap();
            Sources {
                address: address.parse().unwrap(),
                prefix: prefix.parse().unwrap(),
            }
        };
        let target = |text: &&str| Target {
            server: SocketAddr::new(sources(text).address, 53),
            mac: Mac::default(),
            sources: sources(text),
        };
        for (of_targets, expected) in [
            (&["192.0.2.9/32"][..], &["192.0.2.9/32"][..]),
            (&["192.0.2.9/32", "192.0.2.9/32"][..], &["192.0.2.9/32"][..]),
            (
                &["192.0.2.9/32", "192.0.2.11/32"][..],
                &["192.0.2.9/30"][..],
            ),
            (
                &["2001:db8::9/128", "fe80::9/128"][..],
                &["2001:db8::9/0"][..],
            ),
            (
                &["fe80::9/128", "10.0.0.1/32", "fe80::8/128", "10.0.0.0/24"][..],
                &["10.0.0.1/24", "fe80::9/127"][..],
            ),
        ] {
            let targets: Vec<Target> = of_targets.iter().map(target).collect();
            let expected: Vec<Sources> = expected.iter().map(|text| sources(text)).collect();
            assert_eq!(covering(&targets), expected, "{of_targets:?}");
        }
    }

    #[test]
    fn a_table_holds_what_leaves_before_an_answer_is_late_and_no_more_than_there_is_memory_for() {
        let second = Duration::from_secs(1);
        assert_eq!(remembered(Shape::Constant, 1e6, second, 10), 1_500_010);
        let up = Shape::Ramp { from: 0.0 };
        assert_eq!(remembered(up, 1e6, second, 10), 3_000_010);
        // A long burst by its rate, a short one by the queries that it has.
        let burst = |period| Shape::Burst { period, part: 0.25 };
        assert_eq!(remembered(burst(60.0), 1e5, second, 10), 600_010);
        assert_eq!(remembered(burst(0.5), 1e5, second, 10), 200_010);
        // Slow, and yet ten leave at once.
        assert_eq!(remembered(Shape::Constant, 1.0, second, 10), 11);
        let hour = Duration::from_secs(3600);
        assert_eq!(remembered(up, 1e6, hour, 10), 1 << 24);
    }
}
