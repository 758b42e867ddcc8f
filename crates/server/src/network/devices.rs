//! The table of AF_XDP devices: each interface that we open has a small number, the same in every worker.

use super::links::Link;
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
    /// Frames may come with partial UDP checksums (design.md, "Partial checksums").
    pub partial_checksums: bool,
}

/// The devices that this process has ever had. A number is never given to another interface.
#[derive(Debug, Default)]
pub struct Devices {
    /// The interface index of each number.
    interfaces: Vec<u32>,
}

impl Devices {
    /// How many interfaces one process can ever open.
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

    fn number(&mut self, interface: u32) -> Option<u8> {
        let known = self.interfaces.iter().position(|&index| index == interface);
        let position = known.unwrap_or(self.interfaces.len());
        let number = u8::try_from(position).ok()?;
        if known.is_none() {
            self.interfaces.push(interface);
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
