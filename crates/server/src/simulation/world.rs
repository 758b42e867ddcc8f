//! One run: workers and what surrounds them, and a seed that says what happens next.

use super::backend::{Backend, Sent};
use super::clients::Clients;
use super::ground::{Ground, WORKERS};
use super::keys;
use super::network::{Network, Side};
use super::parties::{End, Party};
use super::programs::{Programs, Verdict};
use super::steering::{Follower, worker_of};
use super::streams::Waits;
use super::{Checked, Fault, Violation};
use crate::backend::exchange::Exchanges;
use crate::backend::exchange::planted::Planted;
use crate::backend::policy::Policy;
use crate::backend::servers::Servers;
use crate::clock::Now;
use crate::config::Config;
use crate::counters::{Shard, Writers};
use crate::frontend::listeners::Listeners;
use crate::frontend::named::NamedSockets;
use crate::handover;
use crate::instance::Instance;
use crate::network::events::NetworkEvent;
use crate::network::keeping::{self, Hands};
use crate::pipeline::rings::Rings;
use crate::random::Random;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use wire::frame::Packet;

/// A query times out after 2 s, and its key is kept back for twice as long: later than this no answer comes.
const OLDEST: Duration = Duration::from_secs(5);

/// Frames of a queue that was closed are ours again after so long.
const QUARANTINE: Duration = Duration::from_millis(200);

/// So long after the last fault of the network is over programs and queues may be refused.
const RELUCTANCE: Duration = Duration::from_secs(2);

/// setMaxUDPOutstanding would be more: few, so that they run out.
const OUTSTANDING: u32 = 16;

/// IDs of so many bits: few, so that keys meet.
const ID_BITS: u32 = 3;

/// What happened before the run, as far as `hedge` goes by it: queries that earned second ones, and how slow answers were.
const EARLIER_QUERIES: usize = 200;
const EARLIER_LATENCY: Duration = Duration::from_millis(10);

/// What a seed has happen beside queries, answers, time and reloads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mix {
    /// Queries that several servers are asked.
    pub(super) several: bool,
    /// Changes of the network.
    network: bool,
    /// Queries by streams.
    streams: bool,
    /// With changes of the network: programs are taken off, and programs and queues refused.
    programs: bool,
}

impl Mix {
    fn random(random: &mut Random) -> Mix {
        let bits = random.below(16);
        Mix {
            several: bits & 1 != 0,
            network: bits & 2 != 0,
            streams: bits & 4 != 0,
            programs: bits & 8 != 0,
        }
    }
}

pub(super) struct World<'g> {
    ground: &'g Ground,
    pub(super) instance: Arc<Instance>,
    /// Where workers hand over: nobody takes it.
    _handed: handover::Receiver,
    pub(super) parties: Vec<Party>,
    pub(super) clients: Clients,
    pub(super) backend: Backend,
    pub(super) network: Network,
    pub(super) follower: Follower,
    pub(super) programs: Programs,
    pub(super) streams: Vec<Waits>,
    /// What the seed says.
    pub(super) random: Random,
    pub(super) mix: Mix,
    pub(super) now: Now,
    pub(super) configuration: usize,
    /// Since when nothing is amiss with the network, where something was: whether it is served again is yet to be seen.
    normal_since: Option<Now>,
    /// Nothing happens any more but what is asked for.
    pub(super) is_at_rest: bool,
    pub(super) fault: Fault,
}

impl<'g> World<'g> {
    pub(super) fn new(ground: &'g Ground, seed: u64, fault: Fault) -> World<'g> {
        let (hand_over, handed) = handover::queue();
        let config = ground.configuration(0, None);
        let mut random = Random::from_seed(seed);
        let instance = Arc::new(instance(ground, config, hand_over, &mut random, fault));
        prepare(&instance);
        ground
            .ports
            .is_stuck
            .store(fault == Fault::OnePort, Relaxed);
        remember_hedging(&instance);
        let parties = (0..WORKERS)
            .map(|number| Party::new(number, &instance, seed))
            .collect();
        World {
            ground,
            instance,
            _handed: handed,
            parties,
            clients: Clients::default(),
            backend: Backend::default(),
            network: Network::new(),
            follower: Follower::default(),
            programs: Programs::new(fault),
            streams: Vec::new(),
            mix: Mix::random(&mut random),
            random,
            now: Now(1_000_000_000_000),
            configuration: 0,
            normal_since: None,
            is_at_rest: false,
            fault,
        }
    }

    /// So many things happen; then everything comes to rest.
    pub(super) fn run(mut self, steps: usize) -> Checked {
        self.begin_to_follow()?;
        for _ in 0..steps {
            self.step()?;
            self.check_frames()?;
        }
        self.recover()?;
        self.rest()?;
        self.check_counts()?;
        self.check_servers()?;
        self.check_service()?;
        keys::check(&self.backend.keys)
    }

    fn step(&mut self) -> Checked {
        let number = self.random.below(WORKERS as u32);
        let worker = number as usize;
        match self.random.below(27) {
            0..=6 => self.ask(number)?,
            7..=11 => self.turn(worker),
            12..=14 => self.send(worker, 4)?,
            15 => self.complete(worker),
            16..=18 => self.answer()?,
            19..=20 => self.wait()?,
            21 => self.reload()?,
            22 => self.distrust(),
            23 => self.obey(worker)?,
            24..=25 if self.mix.network => self.change_network()?,
            26 if self.mix.streams => self.stream()?,
            _ => self.turn(worker),
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------------ clients

    fn ask(&mut self, queue: u32) -> Checked {
        let several = self.mix.several;
        let frame = self.clients.ask(&mut self.random, several);
        self.bring(&frame, queue)?;
        Ok(())
    }

    /// The last query's frame arrives at this queue, or at the last one that there is; whether a worker has it.
    pub(super) fn bring(&mut self, frame: &[u8], queue: u32) -> Result<bool, Violation> {
        let Some((interface, queues)) = self.network.receiver(Side::Clients) else {
            return Ok(false);
        };
        let arrived = self.arrive(interface, queue.min(queues - 1), frame)?;
        if let Some((worker, device)) = arrived {
            self.clients.accepted(worker);
            // A worker that has no queue there answers by kernel sockets.
            if self.programs.entered(device).len() < WORKERS {
                self.clients.excuse_last();
            }
        }
        Ok(arrived.is_some())
    }

    /// A frame arrives: the worker that has it now, and the device; `None`: the kernel has it, or nobody.
    fn arrive(
        &mut self,
        interface: u32,
        queue: u32,
        frame: &[u8],
    ) -> Result<Option<(usize, u8)>, Violation> {
        let packet = Packet::parse(frame, false).expect("what others send is well-formed");
        let device = match self.programs.judge(interface, queue, &packet) {
            Verdict::Redirect(device) => device,
            Verdict::Pass => return Ok(None),
            Verdict::Aborted => {
                let what = format!("queue {queue} of interface {interface} loses {packet:?}");
                return Err(Violation::new("I5", what));
            }
        };
        let worker = worker_of(queue);
        self.check_claim(worker, (device, queue), &packet)?;
        let end = self.parties[worker].ends.get_mut(&device);
        let has_it = end.is_some_and(|end| end.kernel.receive(frame));
        Ok(has_it.then_some((worker, device)))
    }

    /// A query by a stream, or an answer to one.
    fn stream(&mut self) -> Checked {
        match self.random.below(2) {
            0 => self.ask_by_stream(),
            _ => self.answer_stream().map(|_| ()),
        }
    }

    // ------------------------------------------------------------------------------------------ workers

    pub(super) fn turn(&mut self, worker: usize) {
        self.plant(worker);
        self.note(worker);
        self.parties[worker].worker.turn(self.now);
    }

    /// Notes what `worker` is about to take from its rings.
    fn note(&mut self, worker: usize) {
        self.clients.judged(worker, self.configuration, self.now);
        let legs = std::mem::take(&mut self.parties[worker].legs);
        for answer in legs.into_values().flatten() {
            self.clients.heard(answer, self.now);
        }
    }

    /// Does what is wrong on purpose, now and then.
    fn plant(&mut self, worker: usize) {
        if self.fault == Fault::LostFrame && self.random.below(4) == 0 {
            let umem = self.parties[worker].worker.devices_mut().umem();
            umem.take().into_iter().for_each(std::mem::forget);
        }
    }

    /// A worker does what it was told. A queue that is closed is served first, and what is in its TX ring leaves.
    pub(super) fn obey(&mut self, worker: usize) -> Checked {
        if self.parties[worker].is_to_close() {
            self.note(worker);
            self.clients.excuse_all();
        }
        let party = &mut self.parties[worker];
        if self.fault == Fault::LeakedQueue {
            party.leak();
        }
        party.worker.obey_at(self.now);
        for mut end in party.take_closed() {
            while let Some(frame) = end.kernel.send() {
                self.leave(end.interface, &frame)?;
            }
        }
        Ok(())
    }

    /// Up to `most` frames of each device leave.
    fn send(&mut self, worker: usize, most: usize) -> Checked {
        let devices: Vec<u8> = self.parties[worker].ends.keys().copied().collect();
        for device in devices {
            for _ in 0..most {
                let Some(End { kernel, interface }) = self.parties[worker].ends.get_mut(&device)
                else {
                    break;
                };
                let interface = *interface;
                let Some(frame) = kernel.send() else { break };
                self.leave(interface, &frame)?;
            }
        }
        Ok(())
    }

    /// A frame leaves by an interface, for a client or a backend.
    fn leave(&mut self, interface: u32, frame: &[u8]) -> Checked {
        let packet = Packet::parse(frame, false)
            .map_err(|error| Violation::new("I2", format!("a bad frame: {}", error.name())))?;
        self.check_source(interface, &packet)?;
        let is_carried = self.network.carries(interface);
        if Clients::is_client(packet.destination) {
            match is_carried {
                true => self.clients.receive(&packet, frame)?,
                false => self.clients.lost(&packet),
            }
        } else if self
            .network
            .reaches_backends(interface, packet.destination_mac)
        {
            self.backend.receive(&packet, frame, self.now)?;
        }
        Ok(())
    }

    fn complete(&mut self, worker: usize) {
        for end in self.parties[worker].ends.values_mut() {
            if self.fault == Fault::DoubleFree {
                end.kernel.complete_twice();
            }
            while end.kernel.complete() {}
        }
        if self.fault == Fault::DoubleFree {
            // Seen by the worker before frames are counted: what waits in a ring twice is more than was ever sent.
            self.turn(worker);
        }
    }

    // ------------------------------------------------------------------------------------------ backends

    fn answer(&mut self) -> Checked {
        let sent = self.backend.act(&mut self.random);
        self.deliver(sent)
    }

    /// Frames from backends, to any queue of the interface on which the way to them is.
    pub(super) fn deliver(&mut self, sent: Vec<Sent>) -> Checked {
        for Sent { frame, family, leg } in sent {
            let side = self.network.side_of_backends(family);
            let receiver = side.and_then(|side| self.network.receiver(side));
            let Some((interface, queues)) = receiver else {
                continue;
            };
            let queue = self.random.below(queues);
            // Lost where the ring is full, as in life.
            if let Some((worker, device)) = self.arrive(interface, queue, &frame)?
                && let Some(leg) = leg
            {
                let legs = &mut self.parties[worker].legs;
                legs.entry(device).or_default().push(leg);
            }
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------------ time and changes

    /// Time passes. What was sent comes soon or never: nothing lies in a ring for long, and the backend answers nothing that
    /// is older than what a key is kept back for.
    fn wait(&mut self) -> Checked {
        let milliseconds = [1, 20, 400, 2_500][self.random.below(4) as usize];
        if milliseconds > 1 {
            for worker in (0..WORKERS).chain(0..WORKERS) {
                self.turn(worker);
                self.send(worker, usize::MAX)?;
            }
        }
        self.pass(Duration::from_millis(milliseconds))
    }

    /// So much time passes for the network and those who follow it; workers do not look at the clock meanwhile.
    pub(super) fn pass(&mut self, time: Duration) -> Checked {
        self.catch_up(Now(self.now.0 + time.as_nanos() as u64))?;
        if time >= QUARANTINE {
            for party in &mut self.parties {
                party.worker.devices_mut().umem().end_quarantine();
            }
        }
        self.backend.forget_older(self.now, OLDEST);
        let is_over = |since| self.now.since(since) >= self.recovery();
        if self.normal_since.is_some_and(is_over) {
            self.check_recovered()?;
            self.network.is_served();
            self.normal_since = None;
        }
        Ok(())
    }

    /// Something happens to the network, or somebody takes a program of ours off.
    fn change_network(&mut self) -> Checked {
        let told = match self.random.below(8) {
            0 if self.mix.programs => self.take_program_off(),
            _ => self.network.happen(&mut self.random),
        };
        self.normal_since = self.network.is_normal().then_some(self.now);
        told.into_iter().try_for_each(|event| self.hear(event))
    }

    /// Netlink tells nothing of that.
    fn take_program_off(&mut self) -> Vec<NetworkEvent> {
        let side = Side::ALL[self.random.below(2) as usize];
        let index = self.network.index(side);
        if index.is_some_and(|index| self.programs.take_off(index)) {
            self.network.is_reset();
        }
        Vec::new()
    }

    /// Whether a program or a queue is not to be had now.
    pub(super) fn is_refused(&mut self) -> bool {
        let is_over = |since| self.now.since(since) >= RELUCTANCE;
        let may_be = self.mix.network && self.mix.programs;
        let is_late = self.normal_since.is_some_and(is_over);
        let refused = may_be && !is_late && self.random.below(8) == 0;
        if refused {
            self.network.is_reset();
        }
        refused
    }

    /// The last fault of the network is over.
    fn recover(&mut self) -> Checked {
        self.settle()?;
        let told = self.network.restore();
        self.normal_since = Some(self.now);
        told.into_iter().try_for_each(|event| self.hear(event))?;
        self.pass(self.recovery())
    }

    fn reload(&mut self) -> Checked {
        let old = self.instance.config.load_full();
        self.configuration ^= 1;
        let config = self.ground.configuration(self.configuration, Some(&old));
        self.instance.config.store(Arc::new(config));
        prepare(&self.instance);
        keeping::replan(self)?;
        keeping::detach_unplanned(self);
        // Servers may be other ones where the plan is the same.
        self.watch()?;
        self.catch_up(self.now)
    }

    /// AF_XDP is given up for servers, or taken up again, as health checks do.
    fn distrust(&mut self) {
        for server in &self.instance.config.load().servers {
            match self.random.below(3) {
                0 => server.xsk.suspend(),
                _ => server.xsk.resume(),
            }
        }
    }

    // ------------------------------------------------------------------------------------------ rest

    /// Everybody does what there is to do; what is still waited for after that times out, and its keys are free again
    /// (twice the time-out later, and there are few).
    fn rest(&mut self) -> Checked {
        self.backend.forget_all();
        while self.answer_stream()? {}
        for _ in 0..16 {
            self.settle()?;
            self.pass(Duration::from_millis(500))?;
        }
        self.settle()?;
        self.check_owners()
    }

    pub(super) fn settle(&mut self) -> Checked {
        for _ in 0..6 {
            for worker in 0..WORKERS {
                self.obey(worker)?;
                self.turn(worker);
                self.send(worker, usize::MAX)?;
                self.complete(worker);
            }
        }
        Ok(())
    }
}

fn instance(
    ground: &Ground,
    config: Config,
    hand_over: handover::Sender,
    random: &mut Random,
    fault: Fault,
) -> Instance {
    let servers = Arc::new(Servers::default());
    let exchanges =
        Exchanges::new(WORKERS, OUTSTANDING, servers, random).narrowed(ID_BITS, planted(fault));
    let rings = |writers| Rings::new(8, 8, writers);
    let own = (0..WORKERS).map(|number| Shard::new(number, Writers::One, rings(Writers::One)));
    let shared = Shard::new(WORKERS, Writers::Many, rings(Writers::Many));
    Instance {
        exchanges,
        ports: Arc::clone(&ground.ports),
        listeners: Listeners::new(Vec::new()),
        named: NamedSockets::default(),
        pulses: None,
        impossible_sources: Arc::default(),
        hand_over,
        shards: own.chain([shared]).map(Arc::new).collect(),
        config: Arc::new(ArcSwap::from_pointee(config)),
    }
}

/// What is wrong with queries in flight.
fn planted(fault: Fault) -> Planted {
    Planted {
        without_quarantine: fault == Fault::NoQuarantine,
        losers_answer: fault == Fault::LosersAnswer,
        junk_ends_waits: fault == Fault::JunkEndsWaits,
        junk_is_failure: fault == Fault::JunkIsFailure,
        ids_count_up: fault == Fault::CountedIds,
        ..Planted::default()
    }
}

/// What a start or a reload does for the servers of the configuration.
fn prepare(instance: &Instance) {
    let config = instance.config.load();
    for server in &config.servers {
        instance.ports.prepare(server).expect("it is on this host");
    }
    instance.exchanges.servers().publish(&config.servers);
    config.take_effect();
}

/// As if the pools that hedge had been asked for a while.
fn remember_hedging(instance: &Instance) {
    let config = instance.config.load();
    let pools = config.pools.iter().flatten();
    for pool in pools.filter(|pool| pool.policy == Policy::Hedge) {
        (0..EARLIER_QUERIES).for_each(|_| pool.hedging.earn());
        for server in &pool.servers {
            server.slowest.note(EARLIER_LATENCY);
        }
    }
}
