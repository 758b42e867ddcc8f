//! What follows from the network: the real [`Due`] and the real [`plan`], with simulated time and events, and done as
//! `serve::steer` does, with the same orders to workers.

use super::ground::WORKERS;
use super::world::World;
use super::{Checked, Fault};
use crate::backend::server::ServerId;
use crate::clock::Now;
use crate::network::due::{Decision, Due, Heard, Notice, Task};
use crate::network::events::NetworkEvent;
use crate::network::follow::watched;
use crate::network::paths::Change;
use crate::network::plan::destinations;
use crate::network::{Device, Devices, Plan, PlannedDevice, plan};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As in `serve`: how often is looked for what nobody tells.
const LOOK: Duration = Duration::from_secs(1);

/// What is known of the network, and what is to be done when.
#[derive(Default)]
pub(super) struct Follower {
    due: Due,
    devices: Devices,
    plan: Plan,
    look: Now,
}

impl Follower {
    /// Whether all that was told has been taken into account.
    pub(super) fn is_quiet(&self) -> bool {
        self.due.is_quiet()
    }

    /// What is to be done next, and when. `None`: a look at what nobody tells.
    fn next_task(&self) -> (Now, Option<Task>) {
        match self.due.next_task() {
            Some((at, task)) if at <= self.look => (at, Some(task)),
            _ => (self.look, None),
        }
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
        let decisions = self.follower.due.start(links, neighbours, self.now);
        self.carry_out(decisions)?;
        self.replan()?;
        self.catch_up(self.now)
    }

    /// Does what is due until `end`, each at its moment.
    pub(super) fn catch_up(&mut self, end: Now) -> Checked {
        loop {
            let (at, task) = self.follower.next_task();
            if at > end {
                break;
            }
            self.now = self.now.max(at);
            self.do_what_is_due(task)?;
        }
        self.now = end;
        Ok(())
    }

    fn do_what_is_due(&mut self, task: Option<Task>) -> Checked {
        match task {
            Some(Task::Ask) => self.ask_ways(),
            Some(Task::Remind) => {
                let decisions = self.follower.due.remind(self.now);
                self.carry_out(decisions)
            }
            None => {
                self.follower.look = later(self.now, LOOK);
                self.look_after()
            }
        }
    }

    /// Something that netlink tells.
    pub(super) fn hear(&mut self, event: NetworkEvent) -> Checked {
        let is_of_neighbour = matches!(event, NetworkEvent::NeighbourChanged(_));
        if is_of_neighbour && self.fault == Fault::DeafToNeighbours {
            return Ok(());
        }
        let decisions = match self.follower.due.hear(event, self.now) {
            Heard::Decisions(decisions) => decisions,
            Heard::TooMuch => {
                let (links, neighbours) = (self.network.links(), self.network.neighbours());
                self.follower.due.read(links, neighbours, self.now)
            }
        };
        self.carry_out(decisions)
    }

    fn ask_ways(&mut self) -> Checked {
        let asking = self.follower.due.begin_asking(self.now);
        for destination in &asking.destinations {
            let route = self.network.route(destination);
            let decisions = self.follower.due.routed(destination, &route);
            self.carry_out(decisions)?;
        }
        let decisions = self.follower.due.end_asking(asking, self.now);
        self.carry_out(decisions)
    }

    fn carry_out(&mut self, decisions: Vec<Decision>) -> Checked {
        // Another thread is told and plans, and netlink tells later who has answered.
        let (mut told, mut answers) = (Vec::new(), Vec::new());
        for decision in decisions {
            match decision {
                Decision::Tell(notice) => told.push(notice),
                Decision::Change(Change::Replan) if self.fault == Fault::NoPlanForRoutes => {}
                Decision::Change(Change::Replan) => told.push(Notice::Replan),
                Decision::Change(change) => answers.extend(self.apply(change)),
            }
        }
        for notice in told {
            match notice {
                Notice::Replan => self.replan()?,
                Notice::LinkGone(interface) => self.lose(interface)?,
            }
        }
        answers.into_iter().try_for_each(|event| self.hear(event))
    }

    /// Carries out a change that concerns a server; what netlink tells of that.
    fn apply(&self, change: Change) -> Option<NetworkEvent> {
        let config = self.instance.config.load();
        let server_of = |number: ServerId| {
            let mut servers = config.servers.iter();
            servers.find(|server| server.number == number)
        };
        match change {
            Change::Frames {
                server,
                device,
                mac,
            } => server_of(server)?.xsk.set(device, mac),
            Change::KernelSockets { server, .. } => server_of(server)?.xsk.clear(),
            Change::Knock {
                next_hop,
                interface,
            } => return self.network.knock(next_hop, interface),
            // It concerns the plan.
            Change::Replan => {}
        }
        None
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
        let servers = watched(&config.servers, &self.follower.plan);
        let devices = self.programs.devices();
        let decisions = self.follower.due.watch(servers, devices, self.now);
        self.carry_out(decisions)
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
