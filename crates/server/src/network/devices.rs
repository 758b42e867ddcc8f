//! The table of AF_XDP devices: each interface that we open has a small number, the same in every worker.

use super::links::Link;
use std::time::{Duration, Instant};
use wire::frame::Mac;

/// An interface with AF_XDP sockets of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// What `Way::Xsk` and `XskPath` carry.
    pub number: u8,
    /// The interface's index.
    pub interface: u32,
    pub name: String,
    pub mac: Mac,
    /// The longest IP packet, in bytes.
    pub mtu: u32,
    /// How many receive queues it serves now.
    pub queues: u32,
    /// Frames may come with partial UDP checksums (docs/af_xdp.md, "Checksums").
    pub partial_checksums: bool,
}

/// How long the number of an interface that has gone is not given to another one: queries in flight carry it.
const REST: Duration = Duration::from_secs(60);

/// The devices that have a program of ours.
#[derive(Debug, Clone, Default)]
pub struct Open {
    pub devices: Vec<Device>,
    /// The numbers of those that have a queue too: by the others nothing leaves.
    pub served: Vec<u8>,
}

#[cfg(test)]
impl From<Vec<Device>> for Open {
    /// All of them have one.
    fn from(devices: Vec<Device>) -> Open {
        let served = devices.iter().map(|device| device.number).collect();
        Open { devices, served }
    }
}

/// The devices that this process has. A number is not given to another interface before it has rested.
#[derive(Debug, Default)]
pub struct Devices {
    /// By number.
    interfaces: Vec<Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// The interface's index.
    interface: u32,
    /// When it went.
    gone: Option<Instant>,
}

impl Devices {
    /// How many interfaces one process can open.
    pub const LIMIT: usize = 256;

    /// The device of a link: its old number, or a new one. `None`: not an Ethernet interface, or all numbers are taken.
    pub fn device(&mut self, link: &Link) -> Option<Device> {
        Some(Device {
            mac: link.mac?,
            number: self.number(link.index)?,
            interface: link.index,
            name: link.name.clone(),
            mtu: link.mtu,
            queues: link.queues,
            partial_checksums: link.partial_checksums,
        })
    }

    /// Whether the interface with this index has a number, and has not gone.
    pub fn has(&self, interface: u32) -> bool {
        let mut known = self.interfaces.iter();
        known.any(|known| known.interface == interface && known.gone.is_none())
    }

    /// The interface with this index has gone.
    pub fn retire(&mut self, interface: u32, now: Instant) {
        let mut known = self.interfaces.iter_mut();
        if let Some(known) = known.find(|known| known.interface == interface) {
            known.gone = Some(now);
        }
    }

    /// These are all links that there are: interfaces that are not among them have gone, even if nobody has told of it.
    pub fn retire_all_but(&mut self, links: &[Link], now: Instant) {
        let is_there = |known: &Known| links.iter().any(|link| link.index == known.interface);
        for known in &mut self.interfaces {
            if known.gone.is_none() && !is_there(known) {
                known.gone = Some(now);
            }
        }
    }

    fn number(&mut self, interface: u32) -> Option<u8> {
        let mut all = self.interfaces.iter();
        let rested = |known: &Known| known.gone.is_some_and(|gone| gone.elapsed() >= REST);
        let position = all
            .position(|known| known.interface == interface)
            .or_else(|| self.interfaces.iter().position(rested))
            .unwrap_or(self.interfaces.len());
        let number = u8::try_from(position).ok()?;
        let known = Known {
            interface,
            gone: None,
        };
        match self.interfaces.get_mut(position) {
            Some(place) => *place = known,
            None => self.interfaces.push(known),
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::link;
    use super::super::links::{Link, LinkKind};
    use super::*;

    #[test]
    fn a_number_stays_with_its_interface() {
        let mut devices = Devices::default();
        let first = devices
            .device(&link(7, "a", LinkKind::Veth))
            .expect("a device");
        let second = devices
            .device(&link(9, "b", LinkKind::Veth))
            .expect("a device");
        let renamed = devices
            .device(&link(7, "c", LinkKind::Veth))
            .expect("a device");
        assert_eq!((first.number, second.number, renamed.number), (0, 1, 0));
        assert_eq!(
            devices.device(&Link {
                mac: None,
                ..link(8, "tun0", LinkKind::Virtual)
            }),
            None
        );
    }

    #[test]
    fn a_number_rests_before_another_interface_has_it() {
        let mut devices = Devices::default();
        let number = |devices: &mut Devices, index| {
            let device = devices.device(&link(index, "x", LinkKind::Veth));
            device.map(|device| device.number)
        };
        assert_eq!(number(&mut devices, 7), Some(0));
        let now = Instant::now();
        devices.retire(7, now);
        assert_eq!(number(&mut devices, 8), Some(1));
        // Clocks of machines that have just started do not go back so far.
        let Some(long_ago) = now.checked_sub(REST) else {
            return;
        };
        devices.retire(7, long_ago);
        assert_eq!(number(&mut devices, 9), Some(0));
        assert_eq!(number(&mut devices, 10), Some(2));
    }

    #[test]
    fn an_interface_that_goes_without_a_word_leaves_its_number_too() {
        let mut devices = Devices::default();
        let links = [7, 8].map(|index| link(index, "x", LinkKind::Veth));
        for link in &links {
            assert!(devices.device(link).is_some());
        }
        // Clocks of machines that have just started do not go back so far.
        let Some(long_ago) = Instant::now().checked_sub(REST) else {
            return;
        };
        devices.retire_all_but(&links[..1], long_ago);
        // Since then, not since now.
        devices.retire_all_but(&links[..1], Instant::now());
        let mut number = |index| {
            let device = devices.device(&link(index, "x", LinkKind::Veth));
            device.map(|device| device.number)
        };
        assert_eq!(
            [number(9), number(7), number(10)],
            [Some(1), Some(0), Some(2)]
        );
    }

    #[test]
    fn numbers_run_out() {
        let mut devices = Devices::default();
        for index in 0..Devices::LIMIT as u32 {
            assert!(
                devices
                    .device(&link(index + 1, "x", LinkKind::Veth))
                    .is_some()
            );
        }
        assert_eq!(devices.device(&link(1_000, "y", LinkKind::Veth)), None);
        assert_eq!(
            devices
                .device(&link(1, "x", LinkKind::Veth))
                .map(|device| device.number),
            Some(0)
        );
    }
}
