//! A worker with the kernel's ends of its rings.

use super::races::LegAnswer;
use crate::frontend::devices::{Devices, Facts};
use crate::frontend::outlets::Outlets;
use crate::instance::Instance;
use crate::network::Device;
use crate::worker::{Order, Reins, Worker};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use xsk::simulated::Kernel;
use xsk::{RingSizes, Umem};

pub(super) const RINGS: RingSizes = RingSizes {
    fill: 16,
    rx: 16,
    tx: 16,
    completion: 128,
};

/// What the rings of two devices hold, and a third one that was made while the first has not gone yet.
const FRAMES: u32 = 96;

/// The kernel's end of a queue.
pub(super) struct End {
    pub(super) kernel: Kernel,
    /// The interface's index.
    pub(super) interface: u32,
}

pub(super) struct Party {
    pub(super) worker: Worker,
    reins: Reins,
    /// The memory of its frames.
    chunks: OwnedFd,
    /// By device number.
    pub(super) ends: BTreeMap<u8, End>,
    /// Devices whose queue the worker was told to close, and has not yet.
    closing: Vec<(u8, Option<u32>)>,
    /// What servers have sent that is in its rings, by device number.
    pub(super) legs: BTreeMap<u8, Vec<LegAnswer>>,
}

impl Party {
    pub(super) fn new(number: usize, instance: &Arc<Instance>, seed: u64) -> Party {
        let chunks = Umem::shared_memory(FRAMES, None).expect("memory");
        let outlets = Outlets {
            worker: number,
            instance: Arc::clone(instance),
            outbox: Default::default(),
            devices: Devices::new(Umem::of_shared_memory(&chunks).expect("memory")),
        };
        let (worker, reins) = Worker::new(outlets).expect("descriptors");
        Party {
            worker: worker.seeded(seed ^ number as u64),
            reins,
            chunks,
            ends: BTreeMap::new(),
            closing: Vec::new(),
            legs: BTreeMap::new(),
        }
    }

    /// The worker has one queue more. All that was ordered before must have been carried out.
    pub(super) fn open(&mut self, device: &Device, queue: u32) {
        let devices = self.worker.devices_mut();
        let made = xsk::simulated::socket(devices.umem(), &self.chunks, &RINGS, queue);
        let (socket, kernel) = made.expect("memory");
        devices.adopt(device.number, socket, facts(device));
        let end = End {
            kernel,
            interface: device.interface,
        };
        self.ends.insert(device.number, end);
    }

    pub(super) fn order_change(&self, device: &Device) {
        self.reins
            .order(Order::Change(device.number, facts(device)));
    }

    /// `None`: all queues of the device.
    pub(super) fn order_close(&mut self, device: u8, queue: Option<u32>) {
        self.closing.push((device, queue));
        self.reins.order(Order::Close(device, queue));
    }

    /// Whether a queue will be closed when orders are carried out: then the worker takes what is in all its rings.
    pub(super) fn is_to_close(&self) -> bool {
        self.closing.iter().any(|&(device, queue)| {
            let open = self.worker.devices().numbers(device);
            open.iter()
                .any(|number| queue.is_none_or(|queue| *number == queue))
        })
    }

    /// A fault: the queues that are to be closed go, and with them what they have.
    pub(super) fn leak(&mut self) {
        for (device, _) in self.closing.clone() {
            for number in self.worker.devices().numbers(device) {
                std::mem::forget(self.worker.devices_mut().remove(device, number));
            }
        }
    }

    /// The kernel's ends of queues that were closed.
    pub(super) fn take_closed(&mut self) -> Vec<End> {
        self.closing.clear();
        let gone = self.ends.keys().copied();
        let gone: Vec<u8> = gone
            .filter(|device| self.worker.devices().queue(*device).is_none())
            .collect();
        gone.iter()
            .filter_map(|device| self.ends.remove(device))
            .collect()
    }
}

fn facts(device: &Device) -> Facts {
    Facts {
        mac: device.mac,
        mtu: device.mtu as usize,
        accept_partial: device.partial_checksums,
    }
}
