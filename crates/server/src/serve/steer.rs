//! Keeps programs, queues and tables in line with the network and the configuration while we serve.
//!
//! ```text
//!  netlink ─▶ follower ─▶ Replan ─┐
//!  reload ────────────────────────┼─▶ plan ─▶ steer: attach (by the helper), open queues (by their workers), tables
//!  once a second: programs, queue ┘
//!  counts, what could not be had
//! ```
//!
//! Nothing here is waited for but the helper: a worker binds its queue between two batches and tells what became of it
//! ([`OpenedQueue`]); only then does the queue enter its program's map. Until then, and whenever something is refused,
//! kernel sockets serve.

use super::memory::TooLittle;
use super::start::{enter_queue, follow, lock, open_devices, planned, prepare, wants_xdp};
use super::{Daemon, Event, workers};
use crate::backend::server::Server;
use crate::clock::Now;
use crate::config::Config;
use crate::config::authority::unix;
use crate::frontend::devices::{Opened, Opening, QueueRows};
use crate::log;
use crate::network::attached::Attached;
use crate::network::links::MacText;
use crate::network::privileges::may_lock;
use crate::network::{Change, Device, Plan, PlannedDevice};
use crate::worker::Order;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xsk::Umem;
use xsk::nic::Nic;

/// How long to wait before something that was refused is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// How long a worker may wait for a queue that the process before this one has just closed: that one reads the same kernel
/// sockets meanwhile.
const PATIENCE_WITH_ANOTHER: Duration = Duration::from_millis(500);

/// Whoever has taken our program off an interface gets this long to put another one there.
const COURTESY: Duration = Duration::from_secs(3);

/// What became of a queue that a worker was to bind.
pub struct OpenedQueue {
    device: u8,
    queue: u32,
    ticket: u64,
    rows: Arc<QueueRows>,
    outcome: xsk::Result<Opened>,
}

/// Something that a plan names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Need {
    Program(u8),
    Queue(u8, u32),
}

impl Need {
    fn device(self) -> u8 {
        match self {
            Need::Program(device) | Need::Queue(device, _) => device,
        }
    }

    fn is_in(self, plan: &Plan) -> bool {
        plan.devices.iter().any(|planned| match self {
            Need::Program(device) => planned.device.number == device,
            Need::Queue(device, number) => {
                planned.device.number == device
                    && planned.queues.iter().any(|wish| wish.number == number)
            }
        })
    }
}

/// What is planned and not there.
#[derive(Default)]
pub(super) struct Needs {
    /// What was refused: not to be tried before this moment, and why, so that a reason is said once.
    refused: HashMap<Need, (Instant, String)>,
    /// Queues that workers bind now. Each has its ticket: what comes back with another one is out of date.
    opening: HashMap<(u8, u32), u64>,
    tickets: u64,
}

impl Needs {
    /// After a start that had no memory for the frames of these queues, which has been said.
    pub(super) fn after(plan: &Plan, too_little: Option<&TooLittle>) -> Needs {
        let mut needs = Needs::default();
        for planned in plan.devices.iter().filter(|_| too_little.is_some()) {
            let device = planned.device.number;
            for wish in &planned.queues {
                let reason = too_little.map(TooLittle::reason).unwrap_or_default();
                needs.refuse(Need::Queue(device, wish.number), AGAIN, &reason);
            }
        }
        needs
    }

    /// Whether it is to be tried now.
    fn is_due(&self, need: Need) -> bool {
        let is_opening = matches!(need, Need::Queue(device, queue) if self.opening.contains_key(&(device, queue)));
        let refused = self.refused.get(&need);
        !is_opening && refused.is_none_or(|(until, _)| *until <= Instant::now())
    }

    /// It was refused; whether that is for a new reason.
    fn refuse(&mut self, need: Need, again: Duration, reason: &str) -> bool {
        let entry = (Instant::now() + again, reason.to_owned());
        let old = self.refused.insert(need, entry);
        old.is_none_or(|(_, known)| known != reason)
    }

    fn open(&mut self, device: u8, queue: u32) -> u64 {
        self.tickets += 1;
        self.opening.insert((device, queue), self.tickets);
        self.tickets
    }

    /// Whether any queue is being bound.
    pub(super) fn is_opening(&self) -> bool {
        !self.opening.is_empty()
    }

    /// The numbers of the queues that are being bound, of whatever device.
    fn opening_numbers(&self) -> impl Iterator<Item = u32> {
        self.opening.keys().map(|(_, number)| *number)
    }

    /// Whether this is what is waited for.
    fn takes(&mut self, opened: &OpenedQueue) -> bool {
        let key = (opened.device, opened.queue);
        let current = self.opening.get(&key) == Some(&opened.ticket);
        if current {
            self.opening.remove(&key);
        }
        current
    }

    /// The device is gone, and all that was to be had of it.
    pub(super) fn forget(&mut self, device: u8) {
        self.refused.retain(|need, _| need.device() != device);
        self.opening.retain(|(number, _), _| *number != device);
    }

    /// The queue is closed, or will be.
    fn forget_queue(&mut self, device: u8, queue: u32) -> bool {
        self.refused.remove(&Need::Queue(device, queue));
        self.opening.remove(&(device, queue)).is_some()
    }

    fn keep_those_of(&mut self, plan: &Plan) {
        self.refused.retain(|need, _| need.is_in(plan));
    }
}

impl Daemon {
    /// Once a second: what nobody tells us of.
    pub(super) fn look_after(&mut self) {
        self.helper.look_after();
        self.give_up_successor();
        if let Some(cookies) = &self.instance.config.load().authority.cookies {
            cookies.set_clock(unix(), Now::read());
        }
        if self.has_lent_queues() {
            return;
        }
        // Whoever takes our program off an interface tells nobody: netlink does not speak of links of this kind.
        let taken_off = lock(&self.steering).taken_off();
        for interface in taken_off {
            self.lose(interface, Change::ProgramGone);
        }
        // `ethtool -L` tells those only who ask for its own kind of netlink messages.
        self.keep_interrupts();
        let has_other_queues = |planned: &PlannedDevice| {
            // One that was renamed just now comes by netlink.
            let queues = Nic::queues_of(&planned.device.name);
            queues.is_ok_and(|queues| queues != planned.device.queues)
        };
        if self.plan.devices.iter().any(has_other_queues) {
            self.replan();
        } else if self
            .plan
            .devices
            .iter()
            .any(|planned| self.is_lacking(planned))
        {
            let config = self.instance.config.load_full();
            let lines = self.steer(&config, self.plan.clone());
            lines.iter().for_each(|line| log::notice!("{line}"));
        }
    }

    /// Whether something of a device is to be tried again.
    fn is_lacking(&self, planned: &PlannedDevice) -> bool {
        let device = planned.device.number;
        if lock(&self.steering).device(device).is_none() {
            return self.needs.is_due(Need::Program(device));
        }
        let bound = self.overview.bound(device);
        let mut queues = planned.queues.iter().map(|wish| wish.number);
        queues.any(|queue| !bound.contains(&queue) && self.needs.is_due(Need::Queue(device, queue)))
    }

    /// Addresses, links or routes have changed: what is ours may be another thing now.
    pub(super) fn replan(&mut self) {
        let config = self.instance.config.load_full();
        let lines = self.plan_anew(&config);
        lines.iter().for_each(|line| log::notice!("{line}"));
        // A link that is up again, were it down for so short a time that the plan is the same, takes what a worker that sleeps
        // has in its TX ring.
        self.order(|| Order::Wake);
    }

    /// Plans for the network as it is now and does what is new; the lines for the operator. While another process has the
    /// queues nothing is planned: whatever has asked for it, it is done when that process has failed.
    pub(super) fn plan_anew(&mut self, config: &Config) -> Vec<String> {
        if self.has_lent_queues() {
            return Vec::new();
        }
        let plan = match planned(config, &mut self.devices) {
            Ok(plan) => plan,
            Err(error) => {
                let line = format!(
                    "the network is not followed: the kernel does not say what interfaces there are: {error}"
                );
                return vec![line];
            }
        };
        plan.say_what_is_new(&self.plan);
        self.move_ports(config, &plan);
        if plan == self.plan && self.follower.is_some() {
            return Vec::new();
        }
        self.steer(config, plan)
    }

    /// Has the ports that queries leave from bound to the sources that are planned: programs expect answers there. Health
    /// checks look after that too, but seldom where they are so configured.
    fn move_ports(&self, config: &Config, plan: &Plan) {
        let ports = &self.instance.ports;
        let path_of = |server: &Server| {
            let mut paths = plan.paths.iter();
            paths.find(|path| path.server == server.number)
        };
        let mut is_moved = false;
        for server in &config.servers {
            let Some(path) = path_of(server) else {
                continue;
            };
            let before = server.ports.get();
            if ports.source_of(server) != Some(path.route.source) {
                prepare(server, ports);
                is_moved |= before.is_some() && before != server.ports.get();
            }
        }
        if is_moved {
            let servers = config.servers.iter().map(|server| &**server);
            let drain = self.instance.longest_timeout();
            ports.retire_unused(servers, Now::read(), drain);
        }
        for _ in 0..plan.moved_since(&self.plan) {
            self.overview.changes.count(Change::SourceChanged);
        }
    }

    /// Brings everything in line with `plan`; the lines for the operator.
    pub(super) fn steer(&mut self, config: &Config, plan: Plan) -> Vec<String> {
        let mut lines = Vec::new();
        for planned in &plan.devices {
            lines.extend(self.attach(planned));
            lines.extend(self.change(&planned.device));
            lines.extend(self.close_unplanned(planned));
            lines.extend(self.open_missing(planned));
            lines.extend(self.apply(planned));
        }
        for device in lock(&self.steering).clear_all_but(&plan) {
            self.overview.changes.count(Change::DestinationsChanged);
            lines.push(format!("{}: all queries go to kernel sockets", device.name));
        }
        self.needs.keep_those_of(&plan);
        let sources = Arc::new(plan.impossible_sources.clone());
        self.instance.impossible_sources.store(sources);
        self.plan = plan;
        self.watch(config);
        lines
    }

    /// Servers are reached over the devices that are open now.
    pub(super) fn watch(&mut self, config: &Config) {
        let open = open_devices(&lock(&self.steering));
        match &self.follower {
            Some(follower) => follower.watch(&config.servers, &self.plan, open),
            None if wants_xdp(config) => {
                self.follower = follow(config, &self.plan, open, &self.overview.events);
            }
            None => {}
        }
    }

    /// Gets a device its program, unless it has one or it is too early to ask again.
    fn attach(&mut self, planned: &PlannedDevice) -> Option<String> {
        let device = &planned.device;
        let need = Need::Program(device.number);
        if lock(&self.steering).device(device.number).is_some() || !self.needs.is_due(need) {
            return None;
        }
        // Loading a program in vain, every other second, is spared where another one sits.
        let other = xsk::attached_program(device.interface).ok().flatten();
        let attached = match other {
            Some(id) if planned.map_path().is_none() => Err(format!(
                "another XDP program is there (id {id}); it is left alone"
            )),
            _ => {
                let keep = self.instance.config.load().tuning.keep_xdp;
                let (interface, path) = (device.interface, planned.map_path());
                let attached = Attached::attach(&self.helper, interface, path, keep);
                attached.map_err(|error| error.to_string())
            }
        };
        match attached {
            Ok((attached, how)) => {
                attached.warn_of_losses(planned);
                lock(&self.steering).insert(device, attached);
                self.needs.forget(device.number);
                self.overview.changes.count(Change::Attached);
                Some(format!("{}: {how}", device.name))
            }
            Err(reason) => {
                let is_new = self.needs.refuse(need, AGAIN, &reason);
                is_new.then(|| {
                    self.overview.changes.count(Change::AttachRefused);
                    format!(
                        "no AF_XDP on {}, kernel sockets serve: {reason}",
                        device.name
                    )
                })
            }
        }
    }

    /// A device's own address, name, largest packet or number of queues is another one.
    fn change(&mut self, device: &Device) -> Option<String> {
        let mut steering = lock(&self.steering);
        let old = steering.device(device.number)?.clone();
        if old == *device {
            return None;
        }
        steering.change(device);
        drop(steering);
        if device.queues > old.queues && is_veth(device.interface) {
            self.renew(device);
        }
        self.overview.rename(device);
        let facts = workers::facts(device);
        self.order(|| Order::Change(device.number, facts));
        self.overview.changes.count(Change::InterfaceChanged);
        Some(difference(&old, device))
    }

    /// Has the program run on queues that the device has got.
    fn renew(&self, device: &Device) {
        let ends = lock(&self.steering).ends(device.number);
        let renewed = match ends {
            Ok(Some(ends)) => self.helper.renew(&ends).map_err(|error| error.to_string()),
            Ok(None) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = renewed {
            let name = &device.name;
            log::warn!("{name}: its new queues are left to kernel sockets: {reason}");
        }
    }

    /// Closes queues that the device has no more, or that nobody wants.
    fn close_unplanned(&mut self, planned: &PlannedDevice) -> Vec<String> {
        let device = planned.device.number;
        let is_planned = |queue| planned.queues.iter().any(|wish| wish.number == queue);
        let mut lines = Vec::new();
        for queue in self.overview.bound(device) {
            if is_planned(queue) {
                continue;
            }
            lock(&self.steering).leave(device, queue);
            self.needs.forget_queue(device, queue);
            self.overview.forget(device, |number| number == queue);
            let worker = &self.workers[self.worker_of(queue)];
            worker.reins.order(Order::Close(device, Some(queue)));
            self.overview.changes.count(Change::QueueClosed);
            lines.push(format!(
                "queue {queue} of {} is closed",
                planned.device.name
            ));
        }
        lines
    }

    /// Has the queues bound that are planned and are not.
    fn open_missing(&mut self, planned: &PlannedDevice) -> Vec<String> {
        let device = &planned.device;
        if lock(&self.steering).device(device.number).is_none() {
            return Vec::new();
        }
        let bound = self.overview.bound(device.number);
        let missing = planned.queues.iter().map(|wish| wish.number);
        let missing = missing.filter(|queue| !bound.contains(queue));
        let missing: Vec<u32> = missing
            .filter(|&queue| self.needs.is_due(Need::Queue(device.number, queue)))
            .collect();
        let refused = missing.into_iter().filter_map(|queue| {
            let reason = self.open(device, queue).err()?;
            self.refuse_queue(device, queue, &reason)
        });
        refused.collect()
    }

    /// Whether the worker of this queue has another one, whose frames it would use.
    fn has_frames(&self, queue: u32) -> bool {
        let worker = self.worker_of(queue);
        let bound = self.overview.bound_numbers().into_iter();
        let mut taken = bound.chain(self.needs.opening_numbers());
        taken.any(|number| self.worker_of(number) == worker)
    }

    fn open(&mut self, device: &Device, queue: u32) -> Result<(), String> {
        let worker = &self.workers[self.worker_of(queue)];
        let frames = match self.has_frames(queue) {
            true => 0,
            false => self.memory.frames(1).map_err(|short| short.reason())?,
        };
        let memory = memory_for(frames, &device.name).map_err(|error| error.to_string())?;
        let busy_poll = self.instance.config.load().tuning.busy_poll;
        let descriptor = self
            .helper
            .open_socket(device.interface, queue, busy_poll, memory.as_ref())
            .map_err(|error| error.to_string())?;
        let opening = workers::opening(queue, device, &lock(&self.steering), descriptor)
            .map_err(|error| error.to_string())?;
        let patience = match self.predecessor {
            Some(_) => PATIENCE_WITH_ANOTHER,
            None => Duration::ZERO,
        };
        let opening = Opening {
            frames,
            memory,
            patience,
            ..opening
        };
        let (number, ticket) = (device.number, self.needs.open(device.number, queue));
        let (rows, events) = (Arc::clone(&opening.rows), self.overview.events.clone());
        let tell = move |outcome| {
            let opened = OpenedQueue {
                device: number,
                queue,
                ticket,
                rows,
                outcome,
            };
            // A control thread that has ended needs no news.
            let _ = events.send(Event::Opened(opened));
        };
        let order = Order::Open(Box::new(opening), Box::new(tell));
        worker.reins.order(order);
        Ok(())
    }

    /// Which worker serves a queue number: its own, or where there are more queues now than at the start (`ethtool -L`, an
    /// interface that came) one that serves others too.
    fn worker_of(&self, queue: u32) -> usize {
        queue as usize % self.workers.len()
    }

    /// A worker has bound a queue: from now on it gets the queue's frames.
    pub(super) fn opened(&mut self, opened: OpenedQueue) {
        // Whoever has thought better of it has ordered the worker to close it.
        if !self.needs.takes(&opened) {
            return;
        }
        let Some(device) = lock(&self.steering).device(opened.device).cloned() else {
            return;
        };
        match opened.outcome {
            Ok(done) => {
                let bound = workers::bound(&device, opened.queue, opened.rows, done);
                if enter_queue(&mut lock(&self.steering), &bound) {
                    self.overview.changes.count(Change::DestinationsChanged);
                    let taken = lock(&self.steering).taken(opened.device);
                    log::notice!("{}", arrival(&device.name, taken));
                }
                lock(&self.overview.queues).push(bound);
                self.needs.forget_queue(opened.device, opened.queue);
                self.overview.changes.count(Change::QueueOpened);
                let worker = self.worker_of(opened.queue);
                if worker != opened.queue as usize {
                    log::notice!(
                        "queue {} of {} has worker {worker}, which has another queue too: a restart makes one for each",
                        opened.queue,
                        device.name
                    );
                }
            }
            Err(error) => {
                let line = self.refuse_queue(&device, opened.queue, &error.to_string());
                line.iter().for_each(|line| log::warn!("{line}"));
            }
        }
    }

    fn refuse_queue(&mut self, device: &Device, queue: u32, reason: &str) -> Option<String> {
        let need = Need::Queue(device.number, queue);
        self.needs.refuse(need, AGAIN, reason).then(|| {
            self.overview.changes.count(Change::QueueRefused);
            format!(
                "queue {queue} of {} is left to kernel sockets: {reason}",
                device.name
            )
        })
    }

    /// Tells a device's program what is ours.
    fn apply(&mut self, planned: &PlannedDevice) -> Option<String> {
        let name = &planned.device.name;
        match lock(&self.steering).apply(planned) {
            Ok(false) => None,
            Ok(true) => {
                self.overview.changes.count(Change::DestinationsChanged);
                Some(arrival(name, planned.destinations.iter().copied()))
            }
            Err(error) => Some(format!(
                "{name}: some traffic is left to kernel sockets: {error}"
            )),
        }
    }

    /// Takes our program off devices that the configuration needs no more.
    pub(super) fn detach_unplanned(&mut self) -> Vec<String> {
        let steering = lock(&self.steering);
        let devices = steering.devices().map(|steered| steered.device.clone());
        let is_planned = |device: &Device| Need::Program(device.number).is_in(&self.plan);
        let unplanned: Vec<Device> = devices.filter(|device| !is_planned(device)).collect();
        drop(steering);
        let lines = unplanned.iter().map(|device| {
            self.take_off(device);
            self.overview.changes.count(Change::Detached);
            format!("{}: AF_XDP is not needed there any more", device.name)
        });
        lines.collect()
    }

    /// An interface was deleted, or its program was taken off it: its sockets get nothing any more, and their frames are
    /// ours again.
    pub(super) fn lose(&mut self, interface: u32, why: Change) {
        let Some(device) = lock(&self.steering).device_on(interface).cloned() else {
            return;
        };
        let is_ours = lock(&self.steering).is_ours(device.number);
        self.take_off(&device);
        self.overview.changes.count(why);
        let what = if why == Change::ProgramGone {
            self.needs
                .refuse(Need::Program(device.number), COURTESY, "");
            match is_ours {
                true => "our program was taken off it",
                false => "the program whose maps are used is there no more",
            }
        } else {
            // The next plan must be another one, even if the interface comes back at once.
            self.devices.retire(interface, Instant::now());
            let planned = &mut self.plan.devices;
            planned.retain(|planned| planned.device.number != device.number);
            "the interface is gone"
        };
        log::warn!("{}: {what}: kernel sockets serve", device.name);
        let config = self.instance.config.load_full();
        self.watch(&config);
    }

    fn take_off(&mut self, device: &Device) {
        let number = device.number;
        for queue in self.overview.bound(number) {
            lock(&self.steering).leave(number, queue);
        }
        lock(&self.steering).detach(number);
        self.overview.forget(number, |_| true);
        self.needs.forget(number);
        self.order(|| Order::Close(number, None));
    }
}

/// Memory for so many frames, where there are to be any and this process may not lock memory itself: the helper registers it.
fn memory_for(frames: u32, interface: &str) -> xsk::Result<Option<OwnedFd>> {
    if frames == 0 || may_lock() {
        return Ok(None);
    }
    Umem::shared_memory(frames, xsk::nic::node(interface)).map(Some)
}

/// What comes over AF_XDP from now on, for the log.
fn arrival(interface: &str, destinations: impl IntoIterator<Item = SocketAddr>) -> String {
    let addresses = destinations.into_iter().map(|address| address.to_string());
    let addresses: Vec<String> = addresses.collect();
    format!(
        "{interface}: queries to {} come over AF_XDP",
        addresses.join(", ")
    )
}

/// Whose new queues run no program by themselves.
fn is_veth(interface: u32) -> bool {
    Nic::by_index(interface).is_ok_and(|nic| nic.driver == "veth")
}

/// What is another thing than before, for the log.
fn difference(old: &Device, new: &Device) -> String {
    let mut changes = Vec::new();
    if old.name != new.name {
        changes.push(format!("it was called {}", old.name));
    }
    if old.mac != new.mac {
        changes.push(format!(
            "its address is {}, was {}",
            MacText(new.mac),
            MacText(old.mac)
        ));
    }
    if old.mtu != new.mtu {
        changes.push(format!("its MTU is {}, was {}", new.mtu, old.mtu));
    }
    if old.queues != new.queues {
        changes.push(format!("it has {} queues, had {}", new.queues, old.queues));
    }
    format!("{}: {}", new.name, changes.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_news_once_and_waits() {
        let mut needs = Needs::default();
        let need = Need::Program(1);
        assert!(needs.is_due(need));
        assert!(needs.refuse(need, Duration::from_secs(60), "busy"));
        assert!(!needs.refuse(need, Duration::from_secs(60), "busy"));
        assert!(!needs.is_due(need));
        assert!(needs.refuse(need, Duration::ZERO, "gone"));
        assert!(needs.is_due(need));
        needs.keep_those_of(&Plan::default());
        assert!(needs.refused.is_empty());
    }

    #[test]
    fn what_comes_back_with_an_old_ticket_is_not_taken() {
        let mut needs = Needs::default();
        let opened = |ticket| OpenedQueue {
            device: 1,
            queue: 0,
            ticket,
            rows: Arc::default(),
            outcome: Err(xsk::Error::Invalid(String::new())),
        };
        let first = needs.open(1, 0);
        assert!(!needs.is_due(Need::Queue(1, 0)));
        needs.forget(1);
        let second = needs.open(1, 0);
        assert!(!needs.takes(&opened(first)));
        assert!(needs.takes(&opened(second)));
        assert!(needs.is_due(Need::Queue(1, 0)));
    }

    #[test]
    fn a_change_is_told_in_one_line() {
        let old = Device {
            number: 0,
            interface: 2,
            name: "enp1s0".to_owned(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1_500,
            queues: 2,
            partial_checksums: true,
        };
        let new = Device {
            name: "wan0".to_owned(),
            mac: [2, 0, 0, 0, 0, 2],
            mtu: 1_280,
            queues: 4,
            ..old.clone()
        };
        let line = "wan0: it was called enp1s0; its address is 02:00:00:00:00:02, was 02:00:00:00:00:01; its MTU is 1280, was 1500; it has 4 queues, had 2";
        assert_eq!(difference(&old, &new), line);
    }
}
