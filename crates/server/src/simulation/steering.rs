//! What follows from the network: the real [`Due`], the real [`plan`] and the real steps in their order ([`keeping`]), with
//! simulated time, events and programs; workers get the orders that `serve::hands` gives them.

use super::ground::WORKERS;
use super::world::World;
use super::{Checked, Fault, Violation};
use crate::backend::server::ServerId;
use crate::clock::Now;
use crate::network;
use crate::network::due::{Decision, Due, Heard, Notice, Task};
use crate::network::events::NetworkEvent;
use crate::network::follow::watched;
use crate::network::keeping::{self, Hands, Keeping, Look, Need};
use crate::network::paths::Change;
use crate::network::plan::destinations;
use crate::network::{Device, Plan, PlannedDevice, plan};
use std::sync::Arc;
use std::time::Duration;

/// As in `serve`: how often is looked for what nobody tells.
const LOOK: Duration = Duration::from_secs(1);

/// What is known of the network, and what is to be done when.
#[derive(Default)]
pub(super) struct Follower {
    due: Due,
    keeping: Keeping,
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
        keeping::replan(self)?;
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
                Decision::Change(change) => answers.extend(self.change_way(change)),
            }
        }
        for notice in told {
            match notice {
                Notice::Replan => keeping::replan(self)?,
                Notice::PathChanged => {}
                Notice::LinkGone(interface) => {
                    keeping::lose(self, interface, network::Change::InterfaceGone)?;
                }
            }
        }
        answers.into_iter().try_for_each(|event| self.hear(event))
    }

    /// Carries out a change that concerns a server; what netlink tells of that.
    fn change_way(&self, change: Change) -> Option<NetworkEvent> {
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
            } => server_of(server)?.reach_over_xsk(device, mac),
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
        keeping::lose_taken_off(self)?;
        match keeping::look(self) {
            Look::AsPlanned => Ok(()),
            Look::Changed => keeping::replan(self),
            Look::Lacking if self.fault == Fault::NoSecondTry => Ok(()),
            Look::Lacking => keeping::steer_again(self),
        }
    }
}

impl Hands for World<'_> {
    type Error = Violation;

    fn keeping(&self) -> &Keeping {
        &self.follower.keeping
    }

    fn keeping_mut(&mut self) -> &mut Keeping {
        &mut self.follower.keeping
    }

    fn plan(&mut self) -> Option<Plan> {
        let config = self.instance.config.load_full();
        let view = self.network.view(&destinations(&config.servers));
        let devices = &mut self.follower.keeping.devices;
        Some(plan(&config.listeners, &config.servers, &view, devices))
    }

    fn is_watching(&self) -> bool {
        true
    }

    fn device(&self, number: u8) -> Option<Device> {
        self.programs.device(number).cloned()
    }

    fn devices(&self) -> Vec<Device> {
        self.programs.devices()
    }

    fn bound(&self, device: u8) -> Vec<u32> {
        self.programs.entered(device)
    }

    fn queues_of(&self, device: &Device) -> Option<u32> {
        self.network.queues(device.interface)
    }

    fn taken_off(&self) -> Vec<u32> {
        if self.fault == Fault::BlindToPrograms {
            return Vec::new();
        }
        let is_off = |device: &Device| {
            self.programs.is_off(device.number) || !self.network.has(device.interface)
        };
        let devices = self.programs.devices().into_iter();
        let taken_off = devices.filter(is_off);
        taken_off.map(|device| device.interface).collect()
    }

    /// What is refused is tried again at every look.
    fn is_due(&self, _: Need) -> bool {
        true
    }

    fn attach(&mut self, planned: &PlannedDevice) {
        if self.network.has(planned.device.interface) && !self.is_refused() {
            self.programs.attach(&planned.device);
        }
    }

    fn change(&mut self, _: &Device, new: &Device) {
        self.programs.change(new);
        for party in &self.parties {
            party.order_change(new);
        }
    }

    /// A line for the operator, who is not there.
    fn link(&mut self, _: &Device, _: bool) {}

    fn close(&mut self, device: &Device, queue: u32) {
        self.programs.leave(device.number, queue);
        self.parties[worker_of(queue)].order_close(device.number, Some(queue));
    }

    fn open(&mut self, device: &Device, queue: u32) -> Checked {
        if self.is_refused() {
            return Ok(());
        }
        let worker = worker_of(queue);
        self.obey(worker)?;
        self.parties[worker].open(device, queue);
        self.programs.enter(device.number, queue);
        Ok(())
    }

    fn apply(&mut self, planned: &PlannedDevice) {
        self.programs.apply(planned);
    }

    fn clear_all_but(&mut self, plan: &Plan) {
        self.programs.clear_all_but(plan);
        let sources = Arc::new(plan.impossible_sources.clone());
        self.instance.impossible_sources.store(sources);
    }

    fn detach(&mut self, device: &Device, _: network::Change) {
        self.programs.detach(device.number);
        for party in &mut self.parties {
            party.order_close(device.number, None);
        }
    }

    fn watch(&mut self) -> Checked {
        let config = self.instance.config.load_full();
        let servers = watched(&config.servers, &self.follower.keeping.plan);
        let open = self.programs.devices().into();
        let decisions = self.follower.due.watch(servers, open, self.now);
        self.carry_out(decisions)
    }
}

/// The worker of a queue.
pub(super) fn worker_of(queue: u32) -> usize {
    queue as usize % WORKERS
}
