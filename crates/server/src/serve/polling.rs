//! Keeps the interrupts of interfaces held back whose queues are polled (millrace.setBusyPoll), by the helper.

use super::programs::open_devices;
use super::{Daemon, lock};
use crate::config::{Config, Tuning};
use crate::log;
use crate::network::interrupts::Interrupts;
use crate::network::{Device, Plan};
use std::collections::HashMap;
use std::io::ErrorKind;

/// Of which interfaces (index) the interrupts are held back for us; `false`: that was refused, and is not asked again.
#[derive(Debug, Default)]
pub(super) struct Polling(HashMap<u32, bool>);

impl Daemon {
    /// Once a second: interfaces come, reloads change what is wanted, and whoever held them back before may have let them.
    pub(super) fn keep_interrupts(&mut self) {
        let is_wanted = self.instance.config.load().tuning.busy_poll.is_some();
        if !is_wanted && self.polling.0.is_empty() {
            return;
        }
        let devices = open_devices(&lock(&self.steering));
        let is_open = |index: &u32| devices.iter().any(|device| device.interface == *index);
        self.polling.0.retain(|index, _| is_open(index));
        for device in &devices {
            if is_wanted && !self.is_unpolled(device) {
                self.hold(device);
            } else {
                self.let_interrupts(device);
            }
        }
    }

    /// Whether no queue of a device is polled though there are some: they were opened before that was wished for.
    fn is_unpolled(&self, device: &Device) -> bool {
        let queues = lock(&self.overview.queues);
        let own = queues.iter().filter(|queue| queue.device == device.number);
        let polled: Vec<bool> = own.map(|queue| queue.is_polled).collect();
        !polled.is_empty() && !polled.contains(&true)
    }

    /// A line for each wish of another configuration that what is open already does not follow.
    pub(super) fn opened_as_before(&self, before: &Config, config: &Config) -> Vec<String> {
        let (before, now) = (&before.tuning, &config.tuning);
        let modes = |tuning: &Tuning| (tuning.attach_mode, tuning.bind_mode);
        let changed = [
            (
                before.busy_poll != now.busy_poll,
                "millrace.setBusyPoll counts for queues that are opened from now on; those that are open stay as they are until \
                 `millrace restart`",
            ),
            (
                modes(before) != modes(now),
                "millrace.setXDPMode counts for programs and queues that come from now on; what is open stays as it is until a \
                 stop and a start",
            ),
        ];
        let is_open = !lock(&self.overview.queues).is_empty();
        let changed = changed
            .into_iter()
            .filter(|(is_changed, _)| *is_changed && is_open);
        changed.map(|(_, line)| line.to_owned()).collect()
    }

    fn hold(&mut self, device: &Device) {
        let name = &device.name;
        let are_held = Interrupts::of(device.interface).are_held();
        match self.polling.0.get(&device.interface) {
            Some(true) if are_held => return,
            Some(false) => return,
            _ => {}
        }
        let held = self.helper.hold_interrupts(device.interface, true);
        match &held {
            // The process before this one lets them when it ends: then they are ours.
            Err(error) if are_held && error.is_again() => return,
            Ok(()) => log::info!("{name}: interrupts are held back, for its queues are polled"),
            Err(error) => {
                log::warn!("{name}: its queues are polled, but interrupts come as before: {error}")
            }
        }
        self.polling.0.insert(device.interface, held.is_ok());
    }

    fn let_interrupts(&mut self, device: &Device) {
        if self.polling.0.remove(&device.interface) != Some(true) {
            return;
        }
        match self.helper.hold_interrupts(device.interface, false) {
            Ok(()) => log::notice!("{}: interrupts come as before", device.name),
            Err(error) => log::warn!("{}: {error}", device.name),
        }
    }
}

/// Sets interfaces as they were that a process before this one could not: it was killed with its helper. Not those of `plan`
/// where this one `polls`: it holds them back itself, and takes what is written down for what was before.
pub(super) fn let_leftovers(plan: &Plan, polls: bool) {
    let is_planned = |index: u32| {
        let mut planned = plan.devices.iter();
        planned.any(|planned| planned.device.interface == index)
    };
    for index in Interrupts::noted() {
        if polls && is_planned(index) {
            continue;
        }
        let interrupts = Interrupts::of(index);
        let name = interrupts.name();
        let name = name.unwrap_or_else(|_| format!("interface {index}, which is gone"));
        match interrupts.restore() {
            Ok(false) => {}
            Ok(true) => {
                log::notice!("{name}: interrupts come as before a millrace that was killed")
            }
            // Of one that runs: the process before this one, for instance, which lets them when it ends.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => log::warn!("{name}: its interrupts are held back still: {error}"),
        }
    }
}
