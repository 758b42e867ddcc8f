//! The running instance as operators see it: what `/metrics` and `millrace xdp status` are made of.

use super::Event;
use super::lock;
use super::workers::BoundQueue;
use crate::config::spec::Spec;
use crate::config::{Config, LocalAddress};
use crate::control::Running;
use crate::control::listening::Listening;
use crate::control::metrics::rows::{
    FrameRow, FrontendRow, HelperRow, SpreadRow, SteerRow, XskRow,
};
use crate::control::socket::Commands;
use crate::counters::Shard;
use crate::frontend::tap::Tap;
use crate::instance::Instance;
use crate::network::helper::HelperCounts;
use crate::network::status::{QueueStatus, Status};
use crate::network::steering::{Steered, Steering};
use crate::network::{Change, Changes, Device};
use crate::pipeline::acl::Netmask;
use crate::worker::{Order, Reins};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long workers may take to count their frames; one that is stalled has no row. They take microseconds.
const CENSUS_WITHIN: Duration = Duration::from_millis(50);

/// What whoever asks too late hears.
pub(super) const STOPPING: &str = "the instance is stopping";

/// Shared by the control thread and the asynchronous runtime.
pub(super) struct Overview {
    pub(super) instance: Arc<Instance>,
    pub(super) steering: Arc<Mutex<Steering>>,
    /// Every queue that is bound.
    pub(super) queues: Mutex<Vec<BoundQueue>>,
    /// What has happened to interfaces and queues.
    pub(super) changes: Changes,
    pub(super) helper: Arc<HelperCounts>,
    /// Those of all workers, once they run.
    pub(super) reins: OnceLock<Vec<Reins>>,
    /// Web server and console.
    pub(super) listening: Listening,
    /// To the control thread.
    pub(super) events: Sender<Event>,
    /// Held by the command of the console that runs.
    pub(super) turn: Mutex<()>,
}

impl Overview {
    /// The sockets of a device for which `is_gone` says so are closed; how many.
    pub(super) fn forget(&self, device: u8, is_gone: impl Fn(u32) -> bool) -> usize {
        let mut queues = lock(&self.queues);
        let before = queues.len();
        queues.retain(|queue| queue.device != device || !is_gone(queue.queue));
        before - queues.len()
    }

    /// The device's interface has another name.
    pub(super) fn rename(&self, device: &Device) {
        let mut queues = lock(&self.queues);
        let renamed = queues
            .iter_mut()
            .filter(|queue| queue.device == device.number);
        renamed.for_each(|queue| queue.interface.clone_from(&device.name));
    }

    /// The numbers of all queues that are bound, of whatever device.
    pub(super) fn bound_numbers(&self) -> Vec<u32> {
        let queues = lock(&self.queues);
        queues.iter().map(|bound| bound.queue).collect()
    }

    /// No queue is bound any more.
    pub(super) fn forget_all(&self) {
        lock(&self.queues).clear();
    }

    /// The queues of a device that are bound.
    pub(super) fn bound(&self, device: u8) -> Vec<u32> {
        let queues = lock(&self.queues);
        let queues = queues.iter().filter(|queue| queue.device == device);
        queues.map(|queue| queue.queue).collect()
    }
}

impl Running for Overview {
    fn config(&self) -> Arc<Config> {
        self.instance.config.load_full()
    }

    fn shards(&self) -> Vec<Arc<Shard>> {
        self.instance.shards.to_vec()
    }

    fn frontends(&self) -> Vec<FrontendRow> {
        let listeners = self.instance.listeners.all();
        let config = self.config();
        let traffic =
            |address: &LocalAddress| config.traffic.get(usize::from(config.place_of(address)?));
        let shards = self.instance.shards.len();
        let mut rows = Vec::new();
        for sockets in listeners.iter().flatten() {
            let address = LocalAddress::Ip(sockets.address);
            if let Some([datagrams, stream]) = traffic(&address) {
                let connections = &sockets.connections;
                rows.extend(FrontendRow::of_datagrams(sockets, datagrams, shards));
                rows.push(FrontendRow::of_stream(address, connections, stream, shards));
            }
        }
        for socket in self.instance.named.all().iter() {
            let (address, connections) = (socket.address(), &socket.connections);
            if let Some([_, stream]) = traffic(&address) {
                rows.push(FrontendRow::of_stream(address, connections, stream, shards));
            }
        }
        rows
    }

    fn xsk(&self) -> Vec<XskRow> {
        let steering = self.steering.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.iter().map(|queue| row(queue, &steering)).collect()
    }

    fn frames(&self) -> Vec<FrameRow> {
        let (reply, counts) = channel();
        for reins in self.reins.get().into_iter().flatten() {
            reins.order(Order::Census(reply.clone()));
        }
        drop(reply);
        let until = Instant::now() + CENSUS_WITHIN;
        let next = || counts.recv_timeout(until.saturating_duration_since(Instant::now()));
        let rows = std::iter::from_fn(|| next().ok());
        rows.map(|(worker, census, frames)| FrameRow {
            worker,
            census,
            frames,
        })
        .collect()
    }

    fn steer_verdicts(&self) -> Vec<SteerRow> {
        let steering = self.steering.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = steering.devices().flat_map(|steered| {
            steered
                .attached
                .verdicts()
                .map(|(reason, frames)| SteerRow {
                    interface: steered.device.name.clone(),
                    reason,
                    frames,
                })
        });
        rows.collect()
    }

    fn spreads(&self) -> Vec<SpreadRow> {
        let listeners = self.instance.listeners.all();
        let rows = listeners.iter().flatten().filter_map(|sockets| {
            let counts = sockets.spread.get()?.counts().ok()?;
            Some(SpreadRow {
                address: sockets.address,
                counts,
            })
        });
        rows.collect()
    }

    fn network_changes(&self) -> Vec<(Change, u64)> {
        let counts = Change::ALL.map(|change| (change, self.changes.get(change)));
        counts.to_vec()
    }

    fn helper(&self) -> HelperRow {
        HelperRow {
            is_alive: self.helper.alive.load(Relaxed) == 1,
            requests: self.helper.requests.load(Relaxed),
            refused: self.helper.refused.load(Relaxed),
        }
    }

    fn entropy_bits(&self) -> f64 {
        self.instance.ports.entropy_bits()
    }

    fn stop(&self) {
        // A control thread that has ended is stopping already.
        let _ = self.events.send(Event::Stop);
    }
}

impl Commands for Overview {
    fn reload(&self) -> Result<Vec<String>, String> {
        let (reply, outcome) = channel();
        let asked = self.events.send(Event::Reload(Some(reply)));
        let outcome = asked.ok().and_then(|()| outcome.recv().ok());
        outcome.unwrap_or_else(|| Err(STOPPING.to_owned()))
    }

    fn set_acl(&self, acl: Vec<Netmask>) -> Result<(), String> {
        self.edit(Box::new(move |spec: &mut Spec| spec.acl = acl))
    }

    fn restart(&self) -> Result<Vec<String>, String> {
        let (reply, outcome) = channel();
        let asked = self.events.send(Event::Restart(reply));
        let outcome = asked.ok().and_then(|()| outcome.recv().ok());
        outcome.unwrap_or_else(|| Err("the instance is stopping".to_owned()))
    }

    fn tap(&self, interface: &str, tap: Tap) -> Result<(), String> {
        let steering = self.steering.lock().unwrap_or_else(PoisonError::into_inner);
        let mut devices = steering.devices();
        let found = devices.find(|steered| steered.device.name == interface);
        let Some(steered) = found else {
            return Err(format!("AF_XDP is not in use on {interface}"));
        };
        let device = steered.device.number;
        for reins in self.reins.get().into_iter().flatten() {
            reins.order(Order::Tap(device, tap.clone()));
        }
        Ok(())
    }

    fn untap(&self) {
        for reins in self.reins.get().into_iter().flatten() {
            reins.order(Order::Untap);
        }
    }

    fn xdp_status(&self) -> Status {
        let steering = self.steering.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let smaps = xsk::smaps();
        steering.status(|steered| {
            let mine = |queue: &&BoundQueue| queue.device == steered.device.number;
            let mine = queues.iter().filter(mine);
            mine.map(|queue| queue_status(queue, steered, &smaps))
                .collect()
        })
    }
}

fn queue_status(queue: &BoundQueue, steered: &Steered, smaps: &str) -> QueueStatus {
    let counts = queue.rows.own();
    let heartbeat = steered.attached.heartbeat(queue.queue).ok().flatten();
    QueueStatus {
        number: queue.queue,
        zero_copy: queue.zero_copy,
        is_polled: queue.is_polled,
        entered: steered.is_entered(queue.queue),
        heartbeat: heartbeat.map_or(0, |heartbeat| heartbeat.count()),
        received: counts.received,
        sent: counts.sent,
        frames: queue.memory.pages(smaps).to_string(),
    }
}

fn row(queue: &BoundQueue, steering: &Steering) -> XskRow {
    let steered = steering
        .devices()
        .find(|steered| steered.device.number == queue.device);
    XskRow {
        interface: queue.interface.clone(),
        queue: queue.queue,
        zero_copy: queue.zero_copy,
        native: steered.is_some_and(|steered| steered.attached.is_native()),
        own: queue.rows.own(),
        kernel: queue.rows.kernel(),
        heartbeat_passes: steered.map_or(0, |steered| passed_for_stall(steered, queue.queue)),
    }
}

/// Packets of a queue that the program has passed because its worker had stalled.
pub(super) fn passed_for_stall(steered: &Steered, queue: u32) -> u64 {
    let heartbeat = steered.attached.heartbeat(queue).ok().flatten();
    heartbeat.map_or(0, |heartbeat| heartbeat.passed())
}
