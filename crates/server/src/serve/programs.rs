//! The kernel programs of a plan and the queues below them, as a start makes them.

use super::failure::StartError;
use super::lock;
use super::needs::{AGAIN, Needs};
use super::overview::Overview;
use super::workers::{self, BoundQueue};
use crate::backend::ports::PortWatch;
use crate::config::{Config, Tuning, Xdp};
use crate::frontend::devices::Devices;
use crate::log;
use crate::network::attached::Attached;
use crate::network::helper::Helper;
use crate::network::keeping::Need;
use crate::network::privileges;
use crate::network::steering::Steering;
use crate::network::{self, Device, NetworkView, Plan, plan};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// The kernel programs, told which backend ports are open.
pub(super) struct Bitmaps(pub(super) Arc<Mutex<Steering>>);

impl PortWatch for Bitmaps {
    fn opened(&self, local: SocketAddr) {
        let mut steering = lock(&self.0);
        if let Err(error) = steering.open_port(local.ip(), local.port()) {
            log::warn!("answers to {local} come by its kernel socket: {error}");
        }
    }

    fn closing(&self, local: SocketAddr) {
        lock(&self.0).close_port(local.ip(), local.port());
    }
}

/// Whether a listener or a server is to be reached over AF_XDP.
pub(super) fn wants_xdp(config: &Config) -> bool {
    let listeners = config.listeners.iter().map(|listener| &listener.xdp);
    let servers = config.servers.iter().map(|server| &server.options.xdp);
    listeners.chain(servers).any(|xdp| *xdp != Xdp::Off)
}

/// Whether a listener or a server names queues by newXsk, and with them the map of a program that may be somebody else's.
pub(super) fn uses_others_maps(config: &Config) -> bool {
    let listeners = config.listeners.iter().map(|listener| &listener.xdp);
    let servers = config.servers.iter().map(|server| &server.options.xdp);
    let mut all = listeners.chain(servers);
    all.any(|xdp| matches!(xdp, Xdp::Queues(_)))
}

/// What has to be attached.
///
/// # Errors
/// The kernel does not tell what the network is like.
pub(super) fn planned(config: &Config, devices: &mut network::Devices) -> io::Result<Plan> {
    if !wants_xdp(config) {
        return Ok(Plan::default());
    }
    let view = NetworkView::read(&plan::destinations(&config.servers))?;
    Ok(network::plan(
        &config.listeners,
        &config.servers,
        &view,
        devices,
    ))
}

/// The programs of all planned devices that can have one; which cannot is noted. There are privileges still: no helper is needed.
pub(super) fn attached(plan: &Plan, tuning: &Tuning, needs: &mut Needs) -> Steering {
    let mut steering = Steering::default();
    for planned in &plan.devices {
        let name = &planned.device.name;
        match Attached::attach(
            &Helper::none(),
            planned.device.interface,
            planned.map_path(),
            tuning,
        ) {
            Ok((attached, how)) => {
                attached.warn(planned);
                steering.insert(&planned.device, attached);
                log::info!("{name}: {how}");
            }
            Err(error) => {
                let need = Need::Program(planned.device.number);
                needs.refuse(need, AGAIN, &error.to_string());
            }
        }
    }
    for line in steering.features() {
        log::verbose!("AF_XDP: {line}");
    }
    steering
}

/// The part of a plan whose devices have a program.
pub(super) fn open_part(plan: &Plan, steering: &Steering) -> Plan {
    let mut open = plan.clone();
    open.devices
        .retain(|planned| steering.device(planned.device.number).is_some());
    open
}

/// All devices that have a program.
pub(super) fn open_devices(steering: &Steering) -> Vec<Device> {
    let devices = steering.devices().map(|steered| &steered.device);
    devices.cloned().collect()
}

/// One line for each reason for which AF_XDP could not be had; the first one tells what AF_XDP misses on this machine, too.
pub(super) fn say_what_was_refused(plan: &Plan, needs: &Needs) {
    let mut lines = needs.lines(plan);
    if let Some(line) = lines.first_mut() {
        for shortage in privileges::check(workers::memory(plan)) {
            *line += &format!("; {}", shortage.line);
        }
    }
    lines.iter().for_each(|line| log::warn!("{line}"));
}

/// The frames and bound queues of each worker, with so many frames for each queue. When there is no memory for a worker's, it and
/// those after it have kernel sockets. Which queues cannot be had is noted.
pub(super) fn rings(
    workers: usize,
    plan: &Plan,
    steering: &Mutex<Steering>,
    (mut frames, tuning): (u32, &Tuning),
    needs: &mut Needs,
) -> Result<(Vec<Devices>, Vec<BoundQueue>), StartError> {
    let steering = lock(steering);
    let mut ready = Vec::new();
    let mut rings = Vec::with_capacity(workers);
    while rings.len() < workers {
        let wish = (frames, tuning);
        let outcome = (&mut ready, &mut *needs);
        match workers::devices(rings.len(), plan, &steering, wish, outcome) {
            Ok(devices) => rings.push(devices),
            Err(error) if frames > 0 => {
                needs.refuse_workers(rings.len(), plan, &error.to_string());
                frames = 0;
            }
            Err(error) => return Err(StartError::System(format!("frames for AF_XDP: {error}"))),
        }
    }
    Ok((rings, ready))
}

/// Tells the programs what is ours. Queues have no socket yet: the kernel still gets everything.
pub(super) fn take_traffic(plan: &Plan, steering: &Mutex<Steering>) {
    let mut steering = lock(steering);
    for planned in &plan.devices {
        if let Err(error) = steering.apply(planned) {
            log::warn!(
                "{}: some traffic is left to kernel sockets: {error}",
                planned.device.name
            );
        }
    }
}

/// The last step: queues enter their programs' maps.
pub(super) fn enter(overview: &Overview) {
    let mut steering = lock(&overview.steering);
    for queue in lock(&overview.queues).iter() {
        if enter_queue(&mut steering, queue).is_some() {
            let (number, interface) = (queue.queue, &queue.interface);
            log::info!("queue {number} of {interface} is {}", how_served(queue));
        }
    }
}

/// From now on the queue's frames come to its socket; whether other addresses and ports come over AF_XDP than before. `None`: they
/// do not come, which is said.
pub(super) fn enter_queue(steering: &mut Steering, queue: &BoundQueue) -> Option<bool> {
    let (number, interface) = (queue.queue, &queue.interface);
    let entered = steering.enter(queue.device, number, &queue.socket);
    entered
        .inspect_err(|error| {
            log::warn!("queue {number} of {interface} is left to kernel sockets: {error}");
        })
        .ok()
}

/// How a queue is served, for the log.
pub(super) fn how_served(queue: &BoundQueue) -> String {
    let copy = if queue.zero_copy { "zero-copy" } else { "copy" };
    let polled = if queue.is_polled {
        ", busy polling"
    } else {
        ""
    };
    format!(
        "served over AF_XDP, {copy} mode{polled}; its worker's frames: {}",
        queue.memory.pages(&xsk::smaps())
    )
}
