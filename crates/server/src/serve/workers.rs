//! Makes the workers: frames and rings by the plan, a thread each.

use super::needs::{AGAIN, Needs};
use super::programs::wants_xdp;
use crate::config::{Config, Listener, Tuning, processors_of};
use crate::frontend::devices::{Devices, Facts, Opened, Opening, QueueRows};
use crate::frontend::outlets::Outlets;
use crate::instance::Instance;
use crate::log;
use crate::network::keeping::Need;
use crate::network::steering::Steering;
use crate::network::{Device, Plan, PlannedDevice};
use crate::worker::{Order, Reins, Worker};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xsk::{BindMode, BusyPoll, RingSizes, Socket, Umem, UmemOptions};

/// How many of these workers have carried out, within this time, all that they were ordered.
pub(super) fn reports<'r>(workers: impl Iterator<Item = &'r Reins>, within: Duration) -> usize {
    let (reply, reports) = channel();
    workers.for_each(|worker| worker.order(Order::Report(reply.clone())));
    drop(reply);
    let until = Instant::now() + within;
    let next = || reports.recv_timeout(until.saturating_duration_since(Instant::now()));
    std::iter::from_fn(|| next().ok()).count()
}

/// One worker as the control thread knows it.
pub(super) struct RunningWorker {
    pub(super) reins: Reins,
    thread: JoinHandle<()>,
    /// Its other end goes with the thread, and nothing is ever said by it.
    ended: Receiver<()>,
}

impl RunningWorker {
    /// Waits for its end, but not for longer than until this moment: one that hangs ends with the process. Whether it has ended.
    pub(super) fn await_end(self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        if self.ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            let name = self.thread.thread().name().unwrap_or_default();
            log::error!("{name} hangs: its end is not waited for");
            return false;
        }
        if self.thread.join().is_err() {
            log::error!("a worker ended by a panic");
        }
        true
    }
}

/// A queue that a worker's socket is bound to.
pub(super) struct BoundQueue {
    pub(super) device: u8,
    pub(super) queue: u32,
    pub(super) interface: String,
    /// To enter it into its program's map.
    pub(super) socket: OwnedFd,
    pub(super) zero_copy: bool,
    pub(super) is_polled: bool,
    /// Where the frames of its worker are.
    pub(super) memory: xsk::Area,
    pub(super) rows: Arc<QueueRows>,
}

/// How many workers a plan needs: one per queue index, or one per `addLocal` of the address that has most. Where no
/// interface is there yet, as many as there are processors: so many queues it will have when it comes.
pub(super) fn count(plan: &Plan, config: &Config) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let awaited = wants_xdp(config) && plan.devices.is_empty();
    let queues = plan
        .devices
        .iter()
        .flat_map(|device| &device.queues)
        .map(|wish| wish.number as usize + 1);
    let sockets = config.listeners.iter().map(|listener| listener.sockets);
    let awaited = awaited.then(processors);
    queues.chain(sockets).chain(awaited).max().unwrap_or(1)
}

/// How many queues a plan has.
pub(super) fn queues(plan: &Plan) -> u64 {
    let queues = plan
        .devices
        .iter()
        .map(|planned| planned.queues.len() as u64);
    queues.sum()
}

/// Bytes of frames that all workers take.
pub(super) fn memory(plan: &Plan) -> u64 {
    queues(plan) * u64::from(RingSizes::default().frames()) * xsk::CHUNK as u64
}

/// The rings of worker `number`, with so many frames for each queue; with none it has no ring. A queue that cannot be bound is
/// noted: kernel sockets serve it.
pub(super) fn devices(
    number: usize,
    plan: &Plan,
    steering: &Steering,
    (frames, tuning): (u32, &Tuning),
    (ready, needs): (&mut Vec<BoundQueue>, &mut Needs),
) -> xsk::Result<Devices> {
    let mine = || {
        plan.devices.iter().filter(|planned| {
            let mut queues = planned.queues.iter();
            frames > 0 && queues.any(|wish| wish.number as usize == number)
        })
    };
    // A worker without a queue still has one frame, so that nothing asks whether there is a UMEM.
    let all = mine().count() as u32 * frames;
    let options = UmemOptions {
        // Cards on several nodes share the frames: the first one's is as good as any.
        node: mine().find_map(|planned| xsk::nic::node(&planned.device.name)),
        ..UmemOptions::default()
    };
    let mut devices = Devices::new(Umem::new(all.max(1), options)?);
    let has_program = |planned: &&PlannedDevice| steering.device(planned.device.number).is_some();
    for planned in mine().filter(has_program) {
        let place = (number as u32, frames, tuning.bind_mode);
        let socket =
            Socket::open().inspect(|socket| poll(socket, tuning.busy_poll, place.0, planned));
        match socket.and_then(|socket| bind(place, planned, steering, (socket, &mut devices))) {
            Ok(entry) => ready.push(entry),
            Err(error) => {
                let need = Need::Queue(planned.device.number, place.0);
                needs.refuse(need, AGAIN, &error.to_string());
            }
        }
    }
    Ok(devices)
}

/// Waits for a queue that its last owner has not let go: nobody is served by this thread yet.
const PATIENCE_AT_START: Duration = Duration::from_secs(1);

/// Has a queue's socket polled, if that is wished; without it serves as well.
fn poll(socket: &OwnedFd, busy_poll: Option<BusyPoll>, queue: u32, planned: &PlannedDevice) {
    if let Some(Err(error)) = busy_poll.map(|wish| wish.prefer(socket)) {
        let name = &planned.device.name;
        log::warn!("queue {queue} of {name} is not busy-polled: {error}");
    }
}

fn bind(
    (queue, frames, mode): (u32, u32, BindMode),
    planned: &PlannedDevice,
    steering: &Steering,
    (socket, devices): (OwnedFd, &mut Devices),
) -> xsk::Result<BoundQueue> {
    let opening = Opening {
        patience: PATIENCE_AT_START,
        frames,
        mode,
        ..opening(queue, &planned.device, steering, socket)?
    };
    let rows = Arc::clone(&opening.rows);
    Ok(bound(&planned.device, queue, rows, devices.open(opening)?))
}

/// What a worker needs to bind a queue of a device that has a program.
pub(super) fn opening(
    queue: u32,
    device: &Device,
    steering: &Steering,
    descriptor: OwnedFd,
) -> xsk::Result<Opening> {
    Ok(Opening {
        device: device.number,
        interface: device.interface,
        queue,
        descriptor,
        heartbeat: steering.heartbeat(device.number, queue)?,
        facts: facts(device),
        rows: Arc::default(),
        frames: RingSizes::default().frames(),
        memory: None,
        node: xsk::nic::node(&device.name),
        mode: BindMode::Auto,
        patience: Duration::ZERO,
    })
}

/// What workers must know of a device.
pub(super) fn facts(device: &Device) -> Facts {
    Facts {
        mac: device.mac,
        mtu: device.mtu as usize,
        accept_partial: device.partial_checksums,
    }
}

/// The control thread's entry for a queue that a worker has bound.
pub(super) fn bound(
    device: &Device,
    queue: u32,
    rows: Arc<QueueRows>,
    opened: Opened,
) -> BoundQueue {
    BoundQueue {
        device: device.number,
        queue,
        interface: device.name.clone(),
        socket: opened.socket,
        zero_copy: opened.zero_copy,
        is_polled: opened.is_polled,
        memory: opened.memory,
        rows,
    }
}

/// Has a worker run where the configuration says, if that is something else than `before`; where it says nothing any more,
/// where this thread may.
pub(super) fn pin(number: usize, reins: &Reins, config: &Config, before: &[Listener]) {
    let processors = processors_of(&config.listeners, number);
    if processors == processors_of(before, number) {
        return;
    }
    let set = match processors.is_empty() {
        true => sched_getaffinity(Pid::from_raw(0)),
        false => set_of(&processors),
    };
    match set {
        Ok(set) => reins.order(Order::Pin(set)),
        Err(error) => log::warn!(
            "worker {number} runs on any processor: cpus={processors:?} is not a set of processors: {error}"
        ),
    }
}

fn set_of(processors: &[usize]) -> nix::Result<CpuSet> {
    let mut set = CpuSet::new();
    processors
        .iter()
        .try_for_each(|&processor| set.set(processor))?;
    Ok(set)
}

/// Starts a worker's thread.
pub(super) fn start(
    number: usize,
    devices: Devices,
    instance: &Arc<Instance>,
) -> io::Result<RunningWorker> {
    let outlets = Outlets {
        worker: number,
        instance: Arc::clone(instance),
        outbox: Default::default(),
        devices,
    };
    let (worker, reins) = Worker::new(outlets)?;
    pin(number, &reins, &instance.config.load(), &[]);
    let (running, ended) = channel();
    let run = move || {
        // Until the worker has ended, be it by a panic.
        let _running = running;
        worker.run();
    };
    let thread = std::thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(run)?;
    Ok(RunningWorker {
        reins,
        thread,
        ended,
    })
}
