//! What the daemon does to keep programs, queues and tables as planned ([`keeping`](crate::network::keeping)), a step at a
//! time: with the helper, with orders to workers, with a line for the operator and a count.
//!
//! No step ends the others: what is refused is noted ([`Needs`](super::needs::Needs)), and kernel sockets serve meanwhile.

use super::lock;
use super::needs::{AGAIN, OpenedQueue};
use super::programs::{open_devices, planned, wants_xdp};
use super::start::follow;
use super::{Daemon, Event, workers};
use crate::frontend::devices::Opening;
use crate::log;
use crate::network::attached::Attached;
use crate::network::keeping::{Hands, Keeping, Need};
use crate::network::links::MacText;
use crate::network::privileges::may_lock;
use crate::network::{Change, Device, Open, Plan, PlannedDevice};
use crate::worker::Order;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use xsk::Umem;
use xsk::nic::Nic;

/// How long a worker may wait for a queue that the process before this one has just closed: that one reads the same kernel
/// sockets meanwhile.
const PATIENCE_WITH_ANOTHER: Duration = Duration::from_millis(500);

/// Whoever has taken our program off an interface gets this long to put another one there.
const COURTESY: Duration = Duration::from_secs(3);

impl Hands for Daemon {
    type Error = Infallible;

    fn keeping(&self) -> &Keeping {
        &self.keeping
    }

    fn keeping_mut(&mut self) -> &mut Keeping {
        &mut self.keeping
    }

    /// Warns of what is new in it, and moves the ports: programs expect answers there.
    fn plan(&mut self) -> Option<Plan> {
        let config = self.instance.config.load_full();
        let plan = match planned(&config, &mut self.keeping.devices) {
            Ok(plan) => plan,
            Err(error) => {
                // It is asked again every second, and this is said once.
                if !self.keeping.is_overdue {
                    self.account.line(format!(
                        "the network is not followed: the kernel does not say what interfaces there are: {error}"
                    ));
                }
                return None;
            }
        };
        plan.warn_of_what_is_new(&self.keeping.plan);
        self.move_ports(&config, &plan);
        Some(plan)
    }

    fn is_watching(&self) -> bool {
        self.follower.is_some()
    }

    fn device(&self, number: u8) -> Option<Device> {
        lock(&self.steering).device(number).cloned()
    }

    fn devices(&self) -> Vec<Device> {
        open_devices(&lock(&self.steering))
    }

    fn bound(&self, device: u8) -> Vec<u32> {
        let mut bound = self.overview.bound(device);
        bound.extend(self.needs.opening_of(device));
        bound
    }

    /// `ethtool -L` tells those only who ask for its own kind of netlink messages.
    fn queues_of(&self, device: &Device) -> Option<u32> {
        // One that was renamed just now comes by netlink.
        Nic::queues_of(&device.name).ok()
    }

    /// Whoever takes our program off an interface tells nobody: netlink does not speak of links of this kind.
    fn taken_off(&self) -> Vec<u32> {
        lock(&self.steering).taken_off()
    }

    fn is_due(&self, need: Need) -> bool {
        self.needs.is_due(need)
    }

    fn attach(&mut self, planned: &PlannedDevice) {
        let device = &planned.device;
        // Loading a program in vain, every other second, is spared where another one sits.
        let other = xsk::attached_program(device.interface).ok().flatten();
        let config = self.instance.config.load();
        let tuning = &config.tuning;
        let attached = match other.filter(|_| planned.map_path().is_none()) {
            Some(id) if !tuning.keep_xdp => Err(left_alone(id)),
            other => {
                let (interface, path) = (device.interface, planned.map_path());
                let attached = Attached::attach(&self.helper, interface, path, tuning);
                attached.map_err(|error| match other {
                    // It might have been one of ours that was kept.
                    Some(id) => format!("{}: {error}", left_alone(id)),
                    None => error.to_string(),
                })
            }
        };
        match attached {
            Ok((attached, how)) => {
                attached.warn(planned);
                lock(&self.steering).insert(device, attached);
                self.needs.forget(device.number);
                self.overview.changes.count(Change::Attached);
                self.account.change(device, how);
            }
            Err(reason) => {
                let need = Need::Program(device.number);
                if self.needs.refuse(need, AGAIN, &reason) {
                    self.overview.changes.count(Change::AttachRefused);
                    self.account.line(format!(
                        "no AF_XDP on {}, kernel sockets serve: {reason}",
                        device.name
                    ));
                }
            }
        }
    }

    fn change(&mut self, old: &Device, new: &Device) {
        lock(&self.steering).change(new);
        if new.queues > old.queues && is_veth(new.interface) {
            self.renew(new);
        }
        self.overview.rename(new);
        let facts = workers::facts(new);
        self.order(|| Order::Change(new.number, facts));
        self.overview.changes.count(Change::InterfaceChanged);
        self.account.change(new, difference(old, new));
    }

    fn link(&mut self, device: &Device, is_up: bool) {
        let (change, what) = match is_up {
            true => (Change::LinkUp, "it is up"),
            false => (
                Change::LinkDown,
                "it is down or has no carrier: nothing comes by it",
            ),
        };
        self.overview.changes.count(change);
        self.account.link(device, what);
    }

    fn close(&mut self, device: &Device, queue: u32) {
        let number = device.number;
        lock(&self.steering).leave(number, queue);
        self.needs.forget_queue(number, queue);
        self.overview.forget(number, |bound| bound == queue);
        let worker = &self.workers[self.worker_of(queue)];
        worker.reins.order(Order::Close(number, Some(queue)));
        self.overview.changes.count(Change::QueueClosed);
        let line = format!("queue {queue} of {} is closed", device.name);
        self.account.change(device, line);
    }

    fn open(&mut self, device: &Device, queue: u32) -> Result<(), Infallible> {
        if let Err(reason) = self.order_to_open(device, queue) {
            let line = self.refuse_queue(device, queue, &reason);
            line.into_iter().for_each(|line| self.account.line(line));
        }
        Ok(())
    }

    fn apply(&mut self, planned: &PlannedDevice) {
        let device = &planned.device;
        let applied = lock(&self.steering).apply(planned);
        match applied {
            Ok(false) => {}
            Ok(true) => {
                self.overview.changes.count(Change::DestinationsChanged);
                let destinations = planned.destinations.iter().copied();
                self.account.arrival(device, arrival(destinations));
            }
            Err(error) => {
                let line = format!("some traffic is left to kernel sockets: {error}");
                self.account.change(device, line);
            }
        }
    }

    fn clear_all_but(&mut self, plan: &Plan) {
        let cleared = lock(&self.steering).clear_all_but(plan);
        for device in cleared {
            self.overview.changes.count(Change::DestinationsChanged);
            let line = "all queries go to kernel sockets";
            self.account.change(&device, line);
        }
        self.needs.keep_those_of(plan);
        let sources = Arc::new(plan.impossible_sources.clone());
        self.instance.impossible_sources.store(sources);
    }

    /// Its sockets get nothing any more, and their frames are ours again.
    fn detach(&mut self, device: &Device, why: Change) {
        let is_ours = lock(&self.steering).is_ours(device.number);
        self.take_off(device);
        self.overview.changes.count(why);
        let what = match why {
            Change::Detached => {
                let line = "AF_XDP is not needed there any more";
                return self.account.change(device, line);
            }
            Change::ProgramGone => {
                self.needs
                    .refuse(Need::Program(device.number), COURTESY, "");
                match is_ours {
                    true => "our program was taken off it",
                    false => "the program whose maps are used is there no more",
                }
            }
            _ => "the interface is gone",
        };
        self.account.forget(device.number);
        log::warn!("{}: {what}: kernel sockets serve", device.name);
    }

    fn watch(&mut self) -> Result<(), Infallible> {
        let config = self.instance.config.load_full();
        let devices = self.devices();
        let numbers = devices.iter().map(|device| device.number);
        let served = numbers.filter(|number| !self.bound(*number).is_empty());
        let open = Open {
            served: served.collect(),
            devices,
        };
        let plan = &self.keeping.plan;
        match &self.follower {
            Some(follower) => follower.watch(&config.servers, plan, open),
            None if wants_xdp(&config) => {
                self.follower = follow(&config, plan, open, &self.overview.events);
            }
            None => {}
        }
        Ok(())
    }
}

impl Daemon {
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

    /// Whether the worker of this queue has another one, whose frames it would use.
    fn has_frames(&self, queue: u32) -> bool {
        let worker = self.worker_of(queue);
        let bound = self.overview.bound_numbers().into_iter();
        let mut taken = bound.chain(self.needs.opening_numbers());
        taken.any(|number| self.worker_of(number) == worker)
    }

    /// This device and those of the plan that serves of which this queue's worker has one too: as at the start, its frames are
    /// for all of them.
    fn devices_with(&self, device: &Device, queue: u32) -> u32 {
        let worker = self.worker_of(queue);
        let planned = self.keeping.plan.devices.iter();
        let others = planned.filter(|planned| {
            let mut queues = planned.queues.iter();
            planned.device.number != device.number
                && queues.any(|wish| self.worker_of(wish.number) == worker)
        });
        1 + others.count() as u32
    }

    /// Has a queue's worker bind it.
    ///
    /// # Errors
    /// What it takes cannot be had.
    fn order_to_open(&mut self, device: &Device, queue: u32) -> Result<(), String> {
        let worker = &self.workers[self.worker_of(queue)];
        let frames = match self.has_frames(queue) {
            true => 0,
            false => {
                let devices = self.devices_with(device, queue);
                let each = self.memory.frames(u64::from(devices));
                devices * each.map_err(|short| short.reason())?
            }
        };
        let memory = memory_for(frames, &device.name).map_err(|error| error.to_string())?;
        let config = self.instance.config.load();
        let (busy_poll, mode) = (config.tuning.busy_poll, config.tuning.bind_mode);
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
            mode,
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
}

/// Memory for so many frames, where there are to be any and this process may not lock memory itself: the helper registers it.
fn memory_for(frames: u32, interface: &str) -> xsk::Result<Option<OwnedFd>> {
    if frames == 0 || may_lock() {
        return Ok(None);
    }
    Umem::shared_memory(frames, xsk::nic::node(interface)).map(Some)
}

/// What comes over AF_XDP from now on, for the log.
pub(super) fn arrival(destinations: impl IntoIterator<Item = SocketAddr>) -> String {
    let addresses = destinations.into_iter().map(|address| address.to_string());
    let addresses: Vec<String> = addresses.collect();
    format!("queries to {} come over AF_XDP", addresses.join(", "))
}

fn left_alone(program: u32) -> String {
    format!("another XDP program is there (id {program}); it is left alone")
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
    changes.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let line = "it was called enp1s0; its address is 02:00:00:00:00:02, was 02:00:00:00:00:01; its MTU is 1280, was 1500; it has 4 queues, had 2";
        assert_eq!(difference(&old, &new), line);
    }
}
