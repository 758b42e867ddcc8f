//! Keeps programs, queues and tables in line with the network and the configuration while we serve.
//!
//! ```text
//!  netlink ─▶ follower ─▶ Replan ─┐
//!  reload ────────────────────────┼─▶ plan ─▶ steer (network::keeping): attach (by the helper), open queues (by their
//!  once a second: programs, queue ┘           workers), tables
//!  counts, what could not be had
//! ```
//!
//! Nothing here is waited for but the helper: a worker binds its queue between two batches and tells what became of it
//! ([`OpenedQueue`]); only then does the queue enter its program's map. Until then, and whenever something is refused,
//! kernel sockets serve.

use super::hands::arrival;
use super::needs::{AGAIN, OpenedQueue};
use super::programs::{enter_queue, how_served};
use super::start::prepare;
use super::{Daemon, lock, workers};
use crate::backend::server::Server;
use crate::clock::{Now, unix};
use crate::config::Config;
use crate::log;
use crate::network::keeping::{self, Hands, Look, Need};
use crate::network::{Change, Device, Plan};
use crate::notify;
use crate::worker::Order;

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
        if notify::is_heard() {
            notify::status(&self.status());
        }
        self.tell_of_stalls();
        let Ok(()) = keeping::lose_taken_off(self);
        self.keep_interrupts();
        match keeping::look(self) {
            Look::AsPlanned => {}
            Look::Changed => self.replan(),
            Look::Lacking => self.steer_again(),
        }
    }

    /// Addresses, links or routes have changed: what is ours may be another thing now.
    pub(super) fn replan(&mut self) {
        if !self.has_lent_queues() {
            let Ok(()) = keeping::replan(self);
        }
        // A link that is up again, were it down for so short a time that the plan is the same, takes what a worker that sleeps
        // has in its TX ring.
        self.order(|| Order::Wake);
    }

    /// Plans for the network as it is now, for another configuration, and does what is new; the lines for the operator. While
    /// another process has the queues nothing is planned: whatever has asked for it, it is done when that process has failed.
    pub(super) fn plan_anew(&mut self) -> Vec<String> {
        if self.has_lent_queues() {
            return Vec::new();
        }
        let old = self.keeping.plan.clone();
        let Ok(()) = keeping::replan(self);
        self.keeping.plan.say_what_is_new(&old);
        self.account.take_all()
    }

    /// Tells of what has been done, of interfaces that nothing more is under way about.
    pub(super) fn tell(&mut self) {
        let is_under_way = |device| self.needs.opening_of(device).next().is_some();
        let lines = self.account.take(is_under_way);
        lines.iter().for_each(|line| log::notice!("{line}"));
    }

    /// Has the plan carried out that serves: what it names and could not be had may be there now.
    pub(super) fn steer_again(&mut self) {
        let Ok(()) = keeping::steer_again(self);
    }

    /// An interface (by index) was deleted.
    pub(super) fn lose(&mut self, interface: u32) {
        let Ok(()) = keeping::lose(self, interface, Change::InterfaceGone);
    }

    /// Has the ports that queries leave from bound to the sources that are planned: programs expect answers there. Health
    /// checks look after that too, but seldom where they are so configured.
    pub(super) fn move_ports(&self, config: &Config, plan: &Plan) {
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
        for _ in 0..plan.moved_since(&self.keeping.plan) {
            self.overview.changes.count(Change::SourceChanged);
        }
    }

    /// Which worker serves a queue number: its own, or where there are more queues now than at the start (`ethtool -L`, an
    /// interface that came) one that serves others too.
    pub(super) fn worker_of(&self, queue: u32) -> usize {
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
        let was_served = !self.overview.bound(opened.device).is_empty();
        match opened.outcome {
            Ok(done) => {
                let bound = workers::bound(&device, opened.queue, opened.rows, done);
                let entered = enter_queue(&mut lock(&self.steering), &bound);
                if let Some(has_changed) = entered {
                    let how = how_served(&bound);
                    self.account.queue(&device, opened.queue, how);
                    if has_changed {
                        self.overview.changes.count(Change::DestinationsChanged);
                        let taken = lock(&self.steering).taken(opened.device);
                        self.account.arrival(&device, arrival(taken));
                    }
                }
                lock(&self.overview.queues).push(bound);
                self.needs.forget_queue(opened.device, opened.queue);
                self.overview.changes.count(Change::QueueOpened);
                let worker = self.worker_of(opened.queue);
                if worker != opened.queue as usize {
                    let line = format!(
                        "queue {} of {} has worker {worker}, which has another queue too: a restart makes one for each",
                        opened.queue, device.name
                    );
                    self.account.change(&device, line);
                }
            }
            Err(error) => {
                let line = self.refuse_queue(&device, opened.queue, &error.to_string());
                line.iter().for_each(|line| log::warn!("{line}"));
            }
        }
        if !was_served {
            // Servers are reached by it from now on, or not after all.
            let Ok(()) = self.watch();
        }
        self.account.rest();
    }

    /// It cannot be had now; the line for the operator, if the reason is a new one.
    pub(super) fn refuse_queue(
        &mut self,
        device: &Device,
        queue: u32,
        reason: &str,
    ) -> Option<String> {
        let need = Need::Queue(device.number, queue);
        self.needs.refuse(need, AGAIN, reason).then(|| {
            self.overview.changes.count(Change::QueueRefused);
            format!(
                "queue {queue} of {} is left to kernel sockets: {reason}",
                device.name
            )
        })
    }

    /// Takes our program off devices that the configuration needs no more.
    pub(super) fn detach_unplanned(&mut self) -> Vec<String> {
        keeping::detach_unplanned(self);
        self.account.take_all()
    }

    /// Nothing comes by this device's sockets any more: its queues are closed, their frames are ours again.
    pub(super) fn take_off(&mut self, device: &Device) {
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
