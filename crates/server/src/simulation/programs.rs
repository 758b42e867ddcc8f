//! The kernel program's tables, and what it lets a ring have by them: what `network::steering` fills, without the maps.

use super::Fault;
use crate::network::plan::BackendPair;
use crate::network::{Device, Plan, PlannedDevice};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use wire::frame::Packet;

/// What becomes of a frame that comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The kernel gets it; so it does where there is no program.
    Pass,
    /// The socket of the device with this number gets it.
    Redirect(u8),
    /// Nobody gets it: what the kernel makes of a redirect to a queue without a socket, unless the program says otherwise.
    Aborted,
}

/// The program on one device.
struct Program {
    device: Device,
    /// Somebody has taken it off: the kernel gets everything.
    is_off: bool,
    /// Queues whose frames go to a socket of ours.
    entered: BTreeSet<u32>,
    destinations: HashSet<SocketAddr>,
    backends: HashSet<BackendPair>,
}

pub(super) struct Programs {
    /// By device number.
    all: BTreeMap<u8, Program>,
    /// A fault: nothing is ever taken out.
    are_stale: bool,
    /// What the program says of frames for a queue without a socket (the flags of bpf_redirect_map).
    fallback: Verdict,
}

impl Programs {
    /// None yet.
    pub(super) fn new(fault: Fault) -> Programs {
        Programs {
            all: BTreeMap::new(),
            are_stale: fault == Fault::StaleTables,
            fallback: match fault {
                Fault::NoFallback => Verdict::Aborted,
                _ => Verdict::Pass,
            },
        }
    }

    /// The device has a program from now on, with empty tables, if it had none.
    pub(super) fn attach(&mut self, device: &Device) {
        self.all.entry(device.number).or_insert_with(|| Program {
            device: device.clone(),
            is_off: false,
            entered: BTreeSet::new(),
            destinations: HashSet::new(),
            backends: HashSet::new(),
        });
    }

    pub(super) fn detach(&mut self, device: u8) {
        self.all.remove(&device);
    }

    /// Somebody takes off the program of the interface with this index; whether it had one.
    pub(super) fn take_off(&mut self, interface: u32) -> bool {
        let mut all = self.all.values_mut();
        let program = all.find(|program| program.device.interface == interface);
        program.is_some_and(|program| !std::mem::replace(&mut program.is_off, true))
    }

    /// Whether somebody has taken off the program of the device with this number.
    pub(super) fn is_off(&self, device: u8) -> bool {
        let program = self.all.get(&device);
        program.is_some_and(|program| program.is_off)
    }

    /// What is known of a device has changed.
    pub(super) fn change(&mut self, device: &Device) {
        if let Some(program) = self.all.get_mut(&device.number) {
            program.device = device.clone();
        }
    }

    /// What is known of a device that has a program.
    pub(super) fn device(&self, number: u8) -> Option<&Device> {
        self.all.get(&number).map(|program| &program.device)
    }

    /// All devices that have a program.
    pub(super) fn devices(&self) -> Vec<Device> {
        let devices = self.all.values().map(|program| &program.device);
        devices.cloned().collect()
    }

    /// The number of the device on the interface with this index.
    pub(super) fn device_on(&self, interface: u32) -> Option<u8> {
        Some(self.on(interface)?.device.number)
    }

    fn on(&self, interface: u32) -> Option<&Program> {
        let mut all = self.all.values();
        all.find(|program| program.device.interface == interface)
    }

    /// Takes what `planned` says from clients and backends, and nothing else any more.
    pub(super) fn apply(&mut self, planned: &PlannedDevice) {
        let Some(program) = self.all.get_mut(&planned.device.number) else {
            return;
        };
        if !self.are_stale {
            program.destinations.clear();
            program.backends.clear();
        }
        program.destinations.extend(&planned.destinations);
        program.backends.extend(&planned.backends);
    }

    /// Devices that `plan` does not name take nothing any more, but for those that are down.
    pub(super) fn clear_all_but(&mut self, plan: &Plan) {
        let is_named = |number: u8| {
            let mut devices = plan.devices.iter();
            devices.any(|planned| planned.device.number == number)
        };
        for (number, program) in &mut self.all {
            let sleeps = plan.down.contains(&program.device.interface);
            if !is_named(*number) && !sleeps && !self.are_stale {
                program.destinations.clear();
                program.backends.clear();
            }
        }
    }

    /// From now on the queue's frames come to its socket.
    pub(super) fn enter(&mut self, device: u8, queue: u32) {
        if let Some(program) = self.all.get_mut(&device) {
            program.entered.insert(queue);
        }
    }

    /// From now on the queue's frames go to the kernel's sockets.
    pub(super) fn leave(&mut self, device: u8, queue: u32) {
        if let Some(program) = self.all.get_mut(&device) {
            program.entered.remove(&queue);
        }
    }

    /// Queues of a device whose frames come to a socket.
    pub(super) fn entered(&self, device: u8) -> Vec<u32> {
        let program = self.all.get(&device);
        program.map_or_else(Vec::new, |program| {
            program.entered.iter().copied().collect()
        })
    }

    /// What becomes of a packet that comes in by this interface and queue: the last rows of the table in bpf/README.md.
    pub(super) fn judge(&self, interface: u32, queue: u32, packet: &Packet) -> Verdict {
        let Some(program) = self.on(interface).filter(|program| !program.is_off) else {
            return Verdict::Pass;
        };
        let pair = BackendPair {
            source: packet.destination.ip(),
            backend: packet.source,
        };
        let is_ours =
            program.destinations.contains(&packet.destination) || program.backends.contains(&pair);
        match (is_ours, program.entered.contains(&queue)) {
            (true, true) => Verdict::Redirect(program.device.number),
            (true, false) => self.fallback,
            (false, _) => Verdict::Pass,
        }
    }

    /// Whether queries to this address come to a socket, by this queue of the interface.
    pub(super) fn serves(&self, interface: u32, queue: u32, destination: SocketAddr) -> bool {
        self.on(interface).is_some_and(|program| {
            let takes = program.destinations.contains(&destination);
            !program.is_off && program.entered.contains(&queue) && takes
        })
    }

    /// Whether answers of this backend come to sockets, by all of so many queues of the interface.
    pub(super) fn expects(&self, interface: u32, queues: u32, pair: &BackendPair) -> bool {
        self.on(interface).is_some_and(|program| {
            let has_all = (0..queues).all(|queue| program.entered.contains(&queue));
            !program.is_off && has_all && program.backends.contains(pair)
        })
    }
}
