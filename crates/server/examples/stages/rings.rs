//! The whole way of a query through a worker: frames come into its RX rings, it takes a turn, and its TX rings hold what leaves.
//! What the stages beside this file leave out is here: rings, frames, checksums, the headers in front of an answer.
//!
//! The kernel's end of the rings is simulated. What only the waiting takes is not in a turn: poll(2) and a look at the clock, one
//! of each a batch.

use crate::ground::{NOW, Scene, configuration, numbered, query, respond};
use arc_swap::ArcSwap;
use millrace::backend::exchange::Exchanges;
use millrace::backend::ports::Ports;
use millrace::backend::servers::Servers;
use millrace::config::Config;
use millrace::counters::{Shard, Writers};
use millrace::frontend::devices::{Devices, Facts};
use millrace::frontend::listeners::Listeners;
use millrace::frontend::outlets::Outlets;
use millrace::handover;
use millrace::instance::Instance;
use millrace::pipeline::rings::Rings;
use millrace::random::Random;
use millrace::worker::Worker;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Uid;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use wire::frame::{Headers, Mac, Packet, write_headers};
use xsk::simulated::Kernel;
use xsk::{RingSizes, Umem};

/// Frames that come at once: what kxdpgun and floodgate send at a time.
const BATCH: usize = 10;

/// Enough that nothing is ever full.
const RINGS: RingSizes = RingSizes {
    fill: 64,
    rx: 64,
    tx: 64,
    completion: 128,
};
const FRAMES: u32 = 512;

/// Device numbers.
const CLIENTS: u8 = 0;
const BACKENDS: u8 = 1;

/// Beside the address that the worker's host has here.
const BACKEND: &str = "198.51.100.2:53";

const OUR_MAC: Mac = [2, 0, 0, 0, 0, 1];
const THEIR_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// Names that are asked for in turn.
const NAMES: u32 = 1_000;

/// One worker with a queue of each device.
pub(crate) struct Course {
    scene: Scene,
    worker: Worker,
    clients: Kernel,
    backends: Kernel,
    /// Where the worker would hand over: nobody takes it, and nothing here does.
    _handed: handover::Receiver,
    /// Frames with what is asked, and the next one's place among them.
    queries: Vec<Vec<u8>>,
    next: usize,
    /// Grows with each query that must have a name of its own.
    number: u32,
}

impl Course {
    /// What is counted, by name.
    pub(crate) const ALL: [(&str, Scene); 4] = [
        ("loop-refused", Scene::Refused),
        ("loop-hit", Scene::Hit),
        ("loop-forward", Scene::Forward),
        ("loop-authority", Scene::Authority),
    ];

    /// Gives this thread a network of its own where there is a backend, whose address nobody else has.
    ///
    /// # Panics
    /// Not as root.
    pub(crate) fn new(scene: Scene) -> Course {
        let config = configuration("", scene, BACKEND);
        if matches!(scene, Scene::Hit | Scene::Forward) {
            assert!(
                Uid::effective().is_root(),
                "a network of its own needs root"
            );
            unshare(CloneFlags::CLONE_NEWNET).expect("root may");
            for words in ["link set lo up", "address add 198.51.100.1/24 dev lo"] {
                let status = Command::new("ip").args(words.split(' ')).status();
                assert!(status.expect("iproute2").success(), "ip {words}");
            }
        }
        let (hand_over, handed) = handover::queue();
        let chunks = Umem::shared_memory(FRAMES, None).expect("memory");
        let mut devices = Devices::new(Umem::of_shared_memory(&chunks).expect("memory"));
        let mut kernel_of = |device: u8| {
            let made = xsk::simulated::socket(devices.umem(), &chunks, &RINGS, 0);
            let (socket, kernel) = made.expect("memory");
            devices.adopt(device, socket, FACTS);
            kernel
        };
        let (clients, backends) = (kernel_of(CLIENTS), kernel_of(BACKENDS));
        let outlets = Outlets {
            worker: 0,
            instance: Arc::new(instance(config, hand_over)),
            outbox: Default::default(),
            devices,
        };
        let (worker, _) = Worker::new(outlets).expect("descriptors");
        let mut course = Course {
            scene,
            worker: worker.seeded(7),
            clients,
            backends,
            _handed: handed,
            queries: Vec::new(),
            next: 0,
            number: 0,
        };
        course.fill();
        course
    }

    /// What fills up as it is used is used once.
    fn fill(&mut self) {
        self.queries = match self.scene {
            Scene::Refused => vec![asking(&query(b"\x03www\x07example\x03com\x00"))],
            _ => (0..NAMES).map(|number| asking(&numbered(number))).collect(),
        };
        if self.scene == Scene::Hit {
            for _ in 0..NAMES as usize / BATCH {
                self.forward(&mut |worker| worker.turn(NOW));
            }
        }
        self.serve(3 * NAMES as usize, |worker| worker.turn(NOW));
    }

    /// Takes so many queries to their answers, in batches; `turn` has the worker take its turns.
    pub(crate) fn serve(&mut self, count: usize, mut turn: impl FnMut(&mut Worker)) {
        for _ in 0..count / BATCH {
            if self.scene == Scene::Forward {
                for query in &mut self.queries[..BATCH] {
                    self.number += 1;
                    *query = asking(&numbered(0x1000_0000 + self.number));
                }
                self.next = 0;
                self.forward(&mut turn);
            } else {
                self.bring();
                turn(&mut self.worker);
                self.take_answers();
            }
        }
    }

    /// A batch to the backend and back.
    fn forward(&mut self, turn: &mut impl FnMut(&mut Worker)) {
        self.bring();
        turn(&mut self.worker);
        let asked: Vec<Vec<u8>> = std::iter::from_fn(|| self.backends.send()).collect();
        assert_eq!(asked.len(), BATCH, "{:?}: all are forwarded", self.scene);
        for frame in asked {
            assert!(self.backends.complete() && self.backends.receive(&answering(&frame)));
        }
        turn(&mut self.worker);
        self.take_answers();
    }

    fn bring(&mut self) {
        for _ in 0..BATCH {
            let taken = self.clients.receive(&self.queries[self.next]);
            assert!(taken, "the rings have room");
            self.next = (self.next + 1) % self.queries.len();
        }
    }

    /// Each query of a batch has its answer.
    fn take_answers(&mut self) {
        for _ in 0..BATCH {
            let answer = self.clients.send().expect("an answer for each query");
            assert!(answer[44] & 0x80 != 0, "QR");
            assert!(self.clients.complete());
        }
        assert!(self.clients.send().is_none(), "one answer for each query");
    }
}

const FACTS: Facts = Facts {
    mac: OUR_MAC,
    mtu: 1_500,
    accept_partial: false,
};

fn instance(config: Config, hand_over: handover::Sender) -> Instance {
    let mut random = Random::from_seed(7);
    let servers = Arc::new(Servers::default());
    servers.publish(&config.servers);
    let ports = Ports::new(1, 16, Box::new(())).expect("epoll");
    for server in &config.servers {
        ports.prepare(server).expect("it is on this host");
        server.reach_over_xsk(BACKENDS, THEIR_MAC);
    }
    let shard = |number, writers| {
        let rings = Rings::new(5_000, 5_000, writers);
        Arc::new(Shard::new(number, writers, rings))
    };
    Instance {
        exchanges: Exchanges::new(1, 65_535, servers, &mut random),
        ports: Arc::new(ports),
        listeners: Listeners::new(Vec::new()),
        named: Default::default(),
        pulses: None,
        impossible_sources: Arc::default(),
        hand_over,
        shards: Box::new([shard(0, Writers::One), shard(1, Writers::Many)]),
        config: Arc::new(ArcSwap::from_pointee(config)),
    }
}

/// A frame from a client.
fn asking(message: &[u8]) -> Vec<u8> {
    let client = SocketAddr::from(([192, 0, 2, 9], 4_242));
    let service = SocketAddr::from(([192, 0, 2, 1], 53));
    framed(client, service, message)
}

/// The frame with the backend's answer to the query in `frame`.
fn answering(frame: &[u8]) -> Vec<u8> {
    let mut packet = Packet::default();
    packet.read(frame, false).expect("a good frame");
    let start = usize::from(packet.payload_start);
    let query = &frame[start..start + usize::from(packet.payload_length)];
    let mut answer = [0; 512];
    let length = respond(query, [query[0], query[1]], &mut answer);
    framed(packet.destination, packet.source, &answer[..length])
}

fn framed(source: SocketAddr, destination: SocketAddr, message: &[u8]) -> Vec<u8> {
    const START: usize = 64;
    let headers = Headers {
        source_mac: &THEIR_MAC,
        destination_mac: &OUR_MAC,
        source: &source,
        destination: &destination,
        code_point: 0,
    };
    let mut chunk = [&[0; START], message].concat();
    let start = write_headers(&mut chunk, START, message.len(), &headers);
    chunk.split_off(start.expect("there is room in front"))
}
