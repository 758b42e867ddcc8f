//! One run: workers and what surrounds them, and a seed that says what happens next.

use super::backend::{self, Backend};
use super::clients::{Clients, Kind, OUR_MAC};
use super::ground::{Ground, WORKERS};
use super::{Checked, Fault, Violation};
use crate::backend::exchange::Exchanges;
use crate::backend::servers::Servers;
use crate::clock::Now;
use crate::config::Config;
use crate::counters::{Shard, Writers};
use crate::frontend::devices::{Devices, Facts};
use crate::frontend::listeners::Listeners;
use crate::frontend::outlets::Outlets;
use crate::handover;
use crate::instance::Instance;
use crate::pipeline::drop::DropReason;
use crate::pipeline::rings::Rings;
use crate::random::Random;
use crate::worker::Worker;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::Duration;
use xsk::simulated::Kernel;
use xsk::{RingSizes, Umem};

const RINGS: RingSizes = RingSizes {
    fill: 16,
    rx: 16,
    tx: 16,
    completion: 64,
};
const FRAMES: u32 = 48;

/// Device numbers.
const CLIENTS: u8 = 0;
const BACKENDS: u8 = 1;

const MILLISECOND: u64 = 1_000_000;

/// A query times out after 2 s, and its key is kept back for twice as long: later than this no answer comes.
const OLDEST: Duration = Duration::from_secs(5);

/// setMaxUDPOutstanding would be more: few, so that they run out.
const OUTSTANDING: u32 = 16;

/// IDs of so many bits: few, so that keys meet.
const ID_BITS: u32 = 3;

/// A worker with the kernel's ends of its rings, by device.
struct Party {
    worker: Worker,
    kernels: [Kernel; 2],
}

pub(super) struct World<'g> {
    ground: &'g Ground,
    instance: Arc<Instance>,
    /// Where workers hand over: nobody takes it.
    _handed: handover::Receiver,
    parties: Vec<Party>,
    clients: Clients,
    backend: Backend,
    /// What the seed says.
    random: Random,
    now: Now,
    configuration: usize,
    fault: Fault,
}

impl<'g> World<'g> {
    pub(super) fn new(ground: &'g Ground, seed: u64, fault: Fault) -> World<'g> {
        let (hand_over, handed) = handover::queue();
        let config = ground.configuration(0, None);
        let mut random = Random::from_seed(seed);
        let instance = Arc::new(instance(ground, config, hand_over, &mut random, fault));
        prepare(&instance);
        let parties = (0..WORKERS)
            .map(|number| party(number, &instance, seed))
            .collect();
        World {
            ground,
            instance,
            _handed: handed,
            parties,
            clients: Clients::default(),
            backend: Backend::default(),
            random,
            now: Now(1_000_000_000_000),
            configuration: 0,
            fault,
        }
    }

    /// So many things happen; then everything comes to rest.
    pub(super) fn run(mut self, steps: usize) -> Checked {
        for _ in 0..steps {
            self.step()?;
            self.check_frames()?;
        }
        self.rest()?;
        self.check_counts()?;
        self.check_service()
    }

    fn step(&mut self) -> Checked {
        let number = self.random.below(WORKERS as u32) as usize;
        match self.random.below(20) {
            0..=5 => self.ask(number),
            6..=10 => self.turn(number),
            11..=13 => self.send(number, 4)?,
            14 => self.complete(number),
            15..=16 => self.answer(),
            17 => self.wait()?,
            18 => self.reload(),
            _ => self.reroute(),
        }
        Ok(())
    }

    fn ask(&mut self, worker: usize) {
        let frame = self.clients.ask(&mut self.random);
        if self.parties[worker].kernels[usize::from(CLIENTS)].receive(&frame) {
            self.clients.accepted(worker);
        }
    }

    fn turn(&mut self, worker: usize) {
        self.plant(worker);
        let party = &mut self.parties[worker];
        party.worker.turn(self.now);
        self.clients.judged(worker, self.configuration);
    }

    /// Does what is wrong on purpose, now and then.
    fn plant(&mut self, worker: usize) {
        if self.fault == Fault::LostFrame && self.random.below(4) == 0 {
            let umem = self.parties[worker].worker.devices_mut().umem();
            umem.take().into_iter().for_each(std::mem::forget);
        }
    }

    /// Up to `most` frames of each device leave.
    fn send(&mut self, worker: usize, most: usize) -> Checked {
        for device in [CLIENTS, BACKENDS] {
            for _ in 0..most {
                let kernel = &mut self.parties[worker].kernels[usize::from(device)];
                let Some(frame) = kernel.send() else { break };
                match device {
                    CLIENTS => self.clients.receive(&frame)?,
                    _ => self.backend.receive(&frame, self.now)?,
                }
            }
        }
        Ok(())
    }

    fn complete(&mut self, worker: usize) {
        for kernel in &mut self.parties[worker].kernels {
            if self.fault == Fault::DoubleFree {
                kernel.complete_twice();
            }
            while kernel.complete() {}
        }
    }

    fn answer(&mut self) {
        let frames = self.backend.act(&mut self.random);
        self.deliver(&frames);
    }

    /// Frames from the backend, to any queue.
    fn deliver(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            let worker = self.random.below(WORKERS as u32) as usize;
            // Lost where the ring is full, as in life.
            self.parties[worker].kernels[usize::from(BACKENDS)].receive(frame);
        }
    }

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
        self.now = Now(self.now.0 + milliseconds * MILLISECOND);
        self.backend.forget_older(self.now, OLDEST);
        Ok(())
    }

    fn reload(&mut self) {
        let old = self.instance.config.load_full();
        self.configuration ^= 1;
        let config = self.ground.configuration(self.configuration, Some(&old));
        self.instance.config.store(Arc::new(config));
        prepare(&self.instance);
    }

    /// The route to the backend goes, or comes back.
    fn reroute(&mut self) {
        for server in &self.instance.config.load().servers {
            match self.random.below(3) {
                0 => server.xsk.clear(),
                _ => server.xsk.set(BACKENDS, backend::MAC),
            }
        }
    }

    /// I3: no frame has two owners or none.
    fn check_frames(&self) -> Checked {
        for (number, party) in self.parties.iter().enumerate() {
            let (census, frames) = party.worker.devices().census();
            let devices = [CLIENTS, BACKENDS].map(|device| party.worker.devices().queue(device));
            let queues = devices.iter().flatten();
            let bad: u64 = queues
                .map(|queue| queue.socket.counters().bad_addresses)
                .sum();
            if census.total() != frames || census.pipeline > 0 || bad > 0 {
                let what =
                    format!("worker {number} of {frames}: {census:?}, {bad} given back twice");
                return Err(Violation::new("I3", what));
            }
        }
        Ok(())
    }

    /// Everybody does what there is to do; what is still waited for after that times out, and its keys are free again
    /// (twice the time-out later, and there are few).
    fn rest(&mut self) -> Checked {
        self.backend.forget_all();
        for _ in 0..16 {
            self.settle()?;
            self.now = Now(self.now.0 + 500 * MILLISECOND);
        }
        self.settle()?;
        self.check_frames()
    }

    fn settle(&mut self) -> Checked {
        for _ in 0..6 {
            for worker in 0..WORKERS {
                self.turn(worker);
                self.send(worker, usize::MAX)?;
                self.complete(worker);
            }
        }
        Ok(())
    }

    /// I1: what has no answer has a reason that was counted. I6: nothing is waited for any more.
    fn check_counts(&self) -> Checked {
        let in_flight = self.instance.in_flight();
        if in_flight != 0 {
            return Err(Violation::new(
                "I6",
                format!("{in_flight} queries in flight at rest"),
            ));
        }
        let asked = self.clients.asked.iter();
        let silent = asked
            .filter(|asked| asked.accepted && asked.answers == 0)
            .count() as u64;
        let reasons = [
            DropReason::Rule,
            DropReason::NoServer,
            DropReason::ExchangesFull,
            DropReason::SendFailed,
            DropReason::RingFull,
        ];
        let shards = self.instance.shards.iter();
        let dropped: u64 = shards
            .flat_map(|shard| reasons.map(|reason| shard.drops(reason)))
            .sum();
        let servers = &self.instance.config.load().servers;
        let late: u64 = servers.iter().map(|server| server.timeouts.sum()).sum();
        if silent != dropped + late {
            let what =
                format!("{silent} queries without an answer, {dropped} dropped, {late} timed out");
            return Err(Violation::new("I1", what));
        }
        Ok(())
    }

    /// I9: everything is answered once nothing is wrong any more. I7: what the backend sent before has done no harm.
    fn check_service(&mut self) -> Checked {
        for server in &self.instance.config.load().servers {
            server.xsk.set(BACKENDS, backend::MAC);
        }
        for kind in Kind::ALL {
            let frame = self.clients.ask_for(kind, &mut self.random);
            if !self.parties[0].kernels[usize::from(CLIENTS)].receive(&frame) {
                return Err(Violation::new("I9", "no chunk to receive into at rest"));
            }
            self.clients.accepted(0);
            self.settle()?;
            let answers = self.backend.answer_all();
            self.deliver(&answers);
            self.settle()?;
            let asked = self.clients.asked.last().expect("it was just asked");
            if (asked.answers == 1) != (kind != Kind::Dropped) {
                return Err(Violation::new("I9", format!("{asked:?} at rest")));
            }
        }
        self.check_frames()
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
    let exchanges = Exchanges::new(WORKERS, OUTSTANDING, servers, random);
    let rings = |writers| Rings::new(8, 8, writers);
    let own = (0..WORKERS).map(|number| Shard::new(number, Writers::One, rings(Writers::One)));
    let shared = Shard::new(WORKERS, Writers::Many, rings(Writers::Many));
    Instance {
        exchanges: exchanges.narrowed(ID_BITS, fault == Fault::NoQuarantine),
        ports: Arc::clone(&ground.ports),
        listeners: Listeners::new(Vec::new()),
        pulses: None,
        impossible_sources: ArcSwap::default(),
        hand_over,
        shards: own.chain([shared]).map(Arc::new).collect(),
        config: Arc::new(ArcSwap::from_pointee(config)),
    }
}

/// What a start or a reload does for the servers of the configuration.
fn prepare(instance: &Instance) {
    let config = instance.config.load();
    for server in &config.servers {
        instance.ports.prepare(server).expect("it is on this host");
        if !server.xsk.is_known() {
            server.xsk.set(BACKENDS, backend::MAC);
        }
    }
    instance.exchanges.servers().publish(&config.servers);
    config.take_effect();
}

fn party(number: usize, instance: &Arc<Instance>, seed: u64) -> Party {
    let chunks = Umem::shared_memory(FRAMES, None).expect("memory");
    let mut devices = Devices::new(Umem::of_shared_memory(&chunks).expect("memory"));
    let facts = Facts {
        mac: OUR_MAC,
        mtu: 1_500,
        accept_partial: false,
    };
    let kernels = [CLIENTS, BACKENDS].map(|device| {
        let made = xsk::simulated::socket(devices.umem(), &chunks, &RINGS);
        let (socket, kernel) = made.expect("memory");
        devices.adopt(device, socket, facts);
        kernel
    });
    let outlets = Outlets {
        worker: number,
        instance: Arc::clone(instance),
        outbox: Default::default(),
        devices,
    };
    let (worker, _) = Worker::new(outlets).expect("descriptors");
    Party {
        worker: worker.seeded(seed ^ number as u64),
        kernels,
    }
}
