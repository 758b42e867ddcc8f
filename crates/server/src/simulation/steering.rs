//! What follows from the network: the real [`Paths`] and the real [`plan`], fed as `network::follow` does, and done as
//! `serve::steer` does, with the same orders to workers.

use super::ground::WORKERS;
use super::world::World;
use super::{Checked, Fault};
use crate::backend::server::ServerId;
use crate::clock::Now;
use crate::network::events::NetworkEvent;
use crate::network::follow::watched;
use crate::network::paths::{Change, Paths};
use crate::network::plan::destinations;
use crate::network::{Device, Devices, Plan, PlannedDevice, Route, plan};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As in `network::follow`: how long after a change the kernel is asked, how often a next hop that is not known is knocked at.
const FLOCK: Duration = Duration::from_millis(20);
const AGAIN: Duration = Duration::from_millis(500);

/// As in `serve`: how often is looked for what nobody tells.
const LOOK: Duration = Duration::from_secs(1);

/// What is known of the network, and what is to be done when.
#[derive(Default)]
pub(super) struct Follower {
    paths: Paths,
    devices: Devices,
    plan: Plan,
    ask: Option<Now>,
    replan: bool,
    remind: Now,
    look: Now,
}

impl Follower {
    /// Whether all that was told has been taken into account.
    pub(super) fn is_quiet(&self) -> bool {
        self.ask.is_none() && !self.replan
    }

    fn due(&self) -> Now {
        let remind = self.paths.is_waiting().then_some(self.remind);
        let others = self.ask.into_iter().chain(remind);
        others.fold(self.look, Now::min)
    }

    fn after_change(&mut self, replan: bool, now: Now) {
        self.replan |= replan;
        self.ask.get_or_insert(later(now, FLOCK));
    }
}

fn later(now: Now, by: Duration) -> Now {
    Now(now.0 + by.as_nanos() as u64)
}

impl World<'_> {
    /// What a start does.
    pub(super) fn begin_to_follow(&mut self) -> Checked {
        self.follower.look = later(self.now, LOOK);
        let (links, neighbours) = (self.network.links(), self.network.neighbours());
        let changes = self.follower.paths.reset(links, neighbours);
        self.apply(changes)?;
        self.replan()?;
        self.catch_up(self.now)
    }

    /// Does what is due until `end`, each at its moment.
    pub(super) fn catch_up(&mut self, end: Now) -> Checked {
        loop {
            let due = self.follower.due();
            if due > end {
                break;
            }
            self.now = self.now.max(due);
            self.do_what_is_due()?;
        }
        self.now = end;
        Ok(())
    }

    fn do_what_is_due(&mut self) -> Checked {
        let now = self.now;
        if self.follower.ask.is_some_and(|ask| ask <= now) {
            return self.ask_ways();
        }
        if self.follower.paths.is_waiting() && self.follower.remind <= now {
            self.follower.remind = later(now, AGAIN);
            let changes = self.follower.paths.remind();
            return self.apply(changes);
        }
        self.follower.look = later(now, LOOK);
        self.look_after()
    }

    /// Something that netlink tells.
    pub(super) fn hear(&mut self, event: NetworkEvent) -> Checked {
        let now = self.now;
        match &event {
            NetworkEvent::NeighbourChanged(_) if self.fault == Fault::DeafToNeighbours => {
                return Ok(());
            }
            NetworkEvent::LinkChanged(link) if self.follower.paths.knows(link) => return Ok(()),
            NetworkEvent::LinkGone(index) => {
                self.lose(*index)?;
                self.follower.after_change(true, now);
            }
            NetworkEvent::LinkChanged(_) | NetworkEvent::AddressChanged(_) => {
                self.follower.after_change(true, now);
            }
            NetworkEvent::RouteChanged => self.follower.after_change(false, now),
            NetworkEvent::NeighbourChanged(_) | NetworkEvent::NeighbourGone(_) => {}
            NetworkEvent::Lost => {
                self.follower.after_change(true, now);
                let (links, neighbours) = (self.network.links(), self.network.neighbours());
                let changes = self.follower.paths.reset(links, neighbours);
                return self.apply(changes);
            }
        }
        let changes = self.follower.paths.event(event);
        self.apply(changes)
    }

    fn ask_ways(&mut self) -> Checked {
        self.follower.ask = None;
        let waited = self.follower.paths.is_waiting();
        let replan = std::mem::take(&mut self.follower.replan);
        let mut destinations = self.follower.paths.destinations();
        destinations.sort_by_key(|destination| (destination.address, destination.source));
        for destination in destinations {
            let route = self.network.route(&destination);
            let changes = self.follower.paths.routed(&destination, &route);
            self.apply(changes)?;
        }
        if !waited {
            self.follower.remind = later(self.now, AGAIN);
        }
        match replan {
            true => self.replan(),
            false => Ok(()),
        }
    }

    fn apply(&mut self, changes: Vec<Change>) -> Checked {
        let config = self.instance.config.load_full();
        let server_of = |number: ServerId| {
            let mut servers = config.servers.iter();
            servers.find(|server| server.number == number)
        };
        // Other threads plan, and netlink tells later who has answered.
        let (mut is_to_plan, mut answers) = (false, Vec::new());
        for change in changes {
            match change {
                Change::Frames {
                    server,
                    device,
                    mac,
                } => {
                    if let Some(server) = server_of(server) {
                        server.xsk.set(device, mac);
                    }
                }
                Change::KernelSockets { server, .. } => {
                    if let Some(server) = server_of(server) {
                        server.xsk.clear();
                    }
                }
                Change::Knock {
                    next_hop,
                    interface,
                } => answers.extend(self.network.knock(next_hop, interface)),
                Change::Replan => is_to_plan = self.fault != Fault::NoPlanForRoutes,
            }
        }
        if is_to_plan {
            self.replan()?;
        }
        answers.into_iter().try_for_each(|event| self.hear(event))
    }

    /// What nobody tells of: queues that are others, a program that has gone with its interface.
    fn look_after(&mut self) -> Checked {
        for device in self.programs.devices() {
            if !self.network.has(device.interface) {
                self.lose(device.interface)?;
            }
        }
        let has_other_queues = |planned: &PlannedDevice| {
            let queues = self.network.queues(planned.device.interface);
            queues.is_some_and(|queues| queues != planned.device.queues)
        };
        match self.follower.plan.devices.iter().any(has_other_queues) {
            true => self.replan(),
            false => Ok(()),
        }
    }

    fn replan(&mut self) -> Checked {
        let config = self.instance.config.load_full();
        let view = self.network.view(&destinations(&config.servers));
        let devices = &mut self.follower.devices;
        let plan = plan(&config.listeners, &config.servers, &view, devices);
        match plan == self.follower.plan {
            true => Ok(()),
            false => self.steer(plan),
        }
    }

    fn steer(&mut self, plan: Plan) -> Checked {
        for planned in &plan.devices {
            self.programs.attach(&planned.device);
            self.change(&planned.device);
            self.close_unplanned(planned);
            self.open_missing(planned)?;
            self.programs.apply(planned);
        }
        self.programs.clear_all_but(&plan);
        let sources = Arc::new(plan.impossible_sources.clone());
        self.instance.impossible_sources.store(sources);
        self.follower.plan = plan;
        self.watch()
    }

    /// The ways to these servers are followed from now on, over the devices that are open.
    pub(super) fn watch(&mut self) -> Checked {
        let config = self.instance.config.load_full();
        let paths = self.follower.plan.paths.iter();
        let routes: HashMap<_, Route> = paths.map(|path| (path.server, path.route)).collect();
        let servers = config.servers.iter();
        let servers = servers.map(|server| watched(server, routes.get(&server.number)));
        let changes = self
            .follower
            .paths
            .watch(servers.collect(), self.programs.devices());
        self.follower.ask = Some(self.now);
        self.apply(changes)
    }

    fn change(&mut self, device: &Device) {
        if self.programs.change(device) {
            for party in &self.parties {
                party.order_change(device);
            }
        }
    }

    fn close_unplanned(&mut self, planned: &PlannedDevice) {
        let device = planned.device.number;
        for queue in self.programs.entered(device) {
            if planned.queues.iter().any(|wish| wish.number == queue) {
                continue;
            }
            self.programs.leave(device, queue);
            self.parties[worker_of(queue)].order_close(device, Some(queue));
        }
    }

    fn open_missing(&mut self, planned: &PlannedDevice) -> Checked {
        let device = &planned.device;
        let entered = self.programs.entered(device.number);
        let queues = planned.queues.iter().map(|wish| wish.number);
        for queue in queues.filter(|queue| !entered.contains(queue)) {
            let worker = worker_of(queue);
            self.obey(worker)?;
            self.parties[worker].open(device, queue);
            self.programs.enter(device.number, queue);
        }
        Ok(())
    }

    /// An interface has gone, and with it what was bound to it.
    fn lose(&mut self, interface: u32) -> Checked {
        let Some(device) = self.programs.device_on(interface) else {
            return Ok(());
        };
        self.programs.detach(device);
        for party in &mut self.parties {
            party.order_close(device, None);
        }
        self.follower.devices.retire(interface, Instant::now());
        let planned = &mut self.follower.plan.devices;
        planned.retain(|planned| planned.device.number != device);
        self.watch()
    }
}

/// The worker of a queue.
pub(super) fn worker_of(queue: u32) -> usize {
    queue as usize % WORKERS
}
