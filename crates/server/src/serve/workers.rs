//! Makes the workers: frames and rings by the plan, a thread each.

use crate::config::Config;
use crate::frontend::devices::{Devices, Queue, QueueRows};
use crate::frontend::outlets::Outlets;
use crate::instance::Instance;
use crate::log;
use crate::network::steering::Steering;
use crate::network::{Plan, PlannedDevice};
use crate::worker::{Reins, Worker};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use xsk::{BindMode, Options, RingSizes, Socket, Umem, UmemOptions};

/// One worker as the control thread knows it.
pub(super) struct RunningWorker {
    pub(super) reins: Reins,
    pub(super) thread: JoinHandle<()>,
}

/// A queue that a worker's socket is bound to.
pub(super) struct BoundQueue {
    pub(super) device: u8,
    pub(super) queue: u32,
    pub(super) interface: String,
    /// To enter it into its program's map.
    pub(super) socket: OwnedFd,
    pub(super) zero_copy: bool,
    pub(super) rows: Arc<QueueRows>,
}

/// How many workers a plan needs: one per queue index, or one per `addLocal` of the address that has most.
pub(super) fn count(plan: &Plan, config: &Config) -> usize {
    let queues = plan
        .devices
        .iter()
        .flat_map(|device| &device.queues)
        .map(|wish| wish.number as usize + 1);
    let sockets = config.listeners.iter().map(|listener| listener.sockets);
    queues.chain(sockets).max().unwrap_or(1)
}

/// Bytes of frames that all workers take.
pub(super) fn memory(plan: &Plan) -> u64 {
    let queues = plan
        .devices
        .iter()
        .map(|planned| planned.queues.len() as u64);
    queues.sum::<u64>() * u64::from(RingSizes::default().frames()) * xsk::CHUNK as u64
}

/// The frames and rings of worker `number`. A queue that cannot be bound is one warning: kernel sockets serve it.
pub(super) fn devices(
    number: usize,
    plan: &Plan,
    steering: &Steering,
    ready: &mut Vec<BoundQueue>,
) -> xsk::Result<Devices> {
    let mine = || {
        plan.devices.iter().filter(|planned| {
            planned
                .queues
                .iter()
                .any(|wish| wish.number as usize == number)
        })
    };
    // A worker without a queue still has one frame, so that nothing asks whether there is a UMEM.
    let frames: u32 = mine().map(|planned| rings(planned, number).frames()).sum();
    let mut devices = Devices::new(Umem::new(frames.max(1), UmemOptions::default())?);
    for planned in mine() {
        match bind(number as u32, planned, steering, devices.umem()) {
            Ok((queue, entry)) => {
                devices.insert(planned.device.number, queue);
                ready.push(entry);
            }
            Err(error) => log::warn!(
                "queue {number} of {} is not served over AF_XDP, kernel sockets serve it: {error}",
                planned.device.name
            ),
        }
    }
    Ok(devices)
}

/// Ring sizes for a queue: what newXsk's frameNums allows, dnsdist's and our default being more than enough.
fn rings(planned: &PlannedDevice, number: usize) -> RingSizes {
    let _ = (planned, number);
    RingSizes::default()
}

fn bind(
    queue: u32,
    planned: &PlannedDevice,
    steering: &Steering,
    umem: &mut Umem,
) -> xsk::Result<(Queue, BoundQueue)> {
    let device = &planned.device;
    let options = Options {
        rings: rings(planned, queue as usize),
        mode: BindMode::Auto,
    };
    let socket = Socket::bind(umem, device.interface, queue, options)?;
    let heartbeat = steering.heartbeat(device.number, queue)?;
    let rows = Arc::new(QueueRows::default());
    let entry = BoundQueue {
        device: device.number,
        queue,
        interface: device.name.clone(),
        socket: socket
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| xsk::Error::system("duplicating an AF_XDP socket", error))?,
        zero_copy: matches!(socket.mode()?, BindMode::ZeroCopy),
        rows: Arc::clone(&rows),
    };
    let queue = Queue {
        socket,
        heartbeat,
        mac: device.mac,
        accept_partial: device.partial_checksums,
        mtu: device.mtu as usize,
        partial_checksums: 0,
        rows,
    };
    Ok((queue, entry))
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
    let thread = std::thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || worker.run())?;
    Ok(RunningWorker { reins, thread })
}
