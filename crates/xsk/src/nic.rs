//! Facts about a network interface that AF_XDP depends on, of the calling thread's network namespace.

use std::ffi::CString;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::sys::interface::{self, Asker};

/// Drivers whose frames can come from the same host, with a checksum that the sender left to hardware which does not exist.
const PARTIAL_CHECKSUM_DRIVERS: [&str; 5] = ["veth", "virtio_net", "tun", "netkit", "vif"];

/// What was found about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    pub index: u32,
    pub name: String,
    /// The driver's name; empty where there is none.
    pub driver: String,
    pub mac: [u8; 6],
    /// Octets of the largest IP packet.
    pub mtu: u32,
    /// RX queues in use now.
    pub queues: u32,
    /// RX queues that the hardware could have.
    pub max_queues: u32,
}

impl Nic {
    pub fn by_name(name: &str) -> Result<Nic> {
        let wanted = CString::new(name).map_err(|_| Error::NoInterface(format!("{name:?}")))?;
        let index = interface::index(&wanted).ok_or_else(|| Error::NoInterface(name.to_owned()))?;
        Nic::read(index, wanted)
    }

    pub fn by_index(index: u32) -> Result<Nic> {
        let name = interface::name(index)
            .ok_or_else(|| Error::NoInterface(format!("of index {index}")))?;
        Nic::read(index, name)
    }

    /// The name that the interface with this index has now, and nothing else.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn name_of(index: u32) -> Result<String> {
        let name = interface::name(index)
            .ok_or_else(|| Error::NoInterface(format!("of index {index}")))?;
        Ok(name.to_string_lossy().into_owned())
    }

    /// RX queues in use now of the interface of this name, and nothing else: for whoever asks again and again. [`Nic::by_name`]
    /// asks the driver for its name too, which may take the card's firmware.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn queues_of(name: &str) -> Result<u32> {
        let failed =
            |error| Error::system(format!("asking for the queues of interface {name}"), error);
        let wanted = CString::new(name).map_err(|_| Error::NoInterface(format!("{name:?}")))?;
        let queues = match Asker::new().map_err(failed)?.channels(&wanted) {
            Ok(channels) => channels.rx + channels.combined,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Err(failed(error)),
            Err(_) => queues_in_sysfs(name),
        };
        Ok(queues.max(1))
    }

    fn read(index: u32, name: CString) -> Result<Nic> {
        let text = name.to_string_lossy().into_owned();
        let failed = |what: &str| {
            let doing = format!("asking for the {what} of interface {text}");
            move |error| Error::system(doing, error)
        };
        let asker = Asker::new().map_err(failed("facts"))?;
        // Drivers count a pair as "combined", or RX and TX apart (veth); those with one queue may not answer at all.
        let (queues, max_queues) = match asker.channels(&name) {
            Ok(channels) => (
                channels.rx + channels.combined,
                channels.max_rx.max(channels.max_combined),
            ),
            Err(_) => (queues_in_sysfs(&text), queues_in_sysfs(&text)),
        };
        Ok(Nic {
            index,
            driver: asker.driver(&name),
            mac: asker.mac(&name).map_err(failed("MAC address"))?,
            mtu: asker.mtu(&name).map_err(failed("MTU"))?,
            queues: queues.max(1),
            max_queues: max_queues.max(queues).max(1),
            name: text,
        })
    }

    /// Whether senders on the same host can be behind it, so that UDP checksums may be partial: only the pseudo-header's
    /// sum, folded, not complemented.
    pub fn may_have_partial_checksums(&self) -> bool {
        PARTIAL_CHECKSUM_DRIVERS.contains(&self.driver.as_str())
    }
}

/// Where an interface's folder in /sys/class/net tells its node, the first that is there: a virtio device has none of its own, the
/// PCI device that it is on has.
pub const NODE_FILES: [&str; 2] = ["device/numa_node", "device/../numa_node"];

/// The node of the machine that an interface's card is wired to. `None`: the machine has but one, or there is no card (veth).
pub fn node(name: &str) -> Option<u32> {
    node_below(&Path::new("/sys/class/net").join(name))
}

/// The node that an interface's folder tells.
fn node_below(folder: &Path) -> Option<u32> {
    let mut texts = NODE_FILES
        .iter()
        .filter_map(|file| fs::read_to_string(folder.join(file)).ok());
    node_in(&texts.next()?)
}

/// What the file says. -1: the firmware does not tell.
fn node_in(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// What an operator may have set on an interface, and AF_XDP feels. `None`: its driver does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Slots of the receive ring, and how many it could have.
    pub rx_ring: Option<(u32, u32)>,
    /// The RXH_ bits of <linux/ethtool.h> of what chooses the queue of UDP over IPv4.
    pub udp4_hash: Option<u64>,
    /// The same over IPv6.
    pub udp6_hash: Option<u64>,
    /// Whether received TCP segments are joined by the card.
    pub lro: Option<bool>,
    /// Whether the card computes checksums of what is sent.
    pub tx_checksum: Option<bool>,
    /// Whether the card takes 802.1Q tags off what it receives, before an XDP program sees it.
    pub rx_vlan: Option<bool>,
}

impl Tuning {
    pub fn read(name: &str) -> Result<Tuning> {
        /// <linux/ethtool.h>.
        const ETHTOOL_GTXCSUM: u32 = 0x16;
        const ETHTOOL_GFLAGS: u32 = 0x25;
        const ETH_FLAG_RXVLAN: u32 = 1 << 8;
        const ETH_FLAG_LRO: u32 = 1 << 15;
        const UDP_V4_FLOW: u32 = 2;
        const UDP_V6_FLOW: u32 = 6;
        let wanted = CString::new(name).map_err(|_| Error::NoInterface(format!("{name:?}")))?;
        let asker = Asker::new().map_err(|error| {
            Error::system(
                format!("asking for the settings of interface {name}"),
                error,
            )
        })?;
        let flags = asker.number(&wanted, ETHTOOL_GFLAGS).ok();
        let checksum = asker.number(&wanted, ETHTOOL_GTXCSUM).ok();
        Ok(Tuning {
            rx_ring: asker.rx_ring(&wanted).ok().filter(|(_, most)| *most > 0),
            udp4_hash: asker.hash_fields(&wanted, UDP_V4_FLOW).ok(),
            udp6_hash: asker.hash_fields(&wanted, UDP_V6_FLOW).ok(),
            lro: flags.map(|flags| flags & ETH_FLAG_LRO != 0),
            tx_checksum: checksum.map(|on| on != 0),
            rx_vlan: flags.map(|flags| flags & ETH_FLAG_RXVLAN != 0),
        })
    }
}

fn queues_in_sysfs(name: &str) -> u32 {
    let Ok(entries) = fs::read_dir(Path::new("/sys/class/net").join(name).join("queues")) else {
        return 1;
    };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-"))
        .count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_an_index_and_a_queue() {
        let lo = Nic::by_name("lo").unwrap();
        assert_eq!(Nic::by_index(lo.index).unwrap(), lo);
        assert_eq!(Nic::name_of(lo.index).unwrap(), "lo");
        assert!(Nic::name_of(i32::MAX as u32).is_err());
        assert!(lo.queues >= 1 && lo.mtu >= 1280 && !lo.may_have_partial_checksums());
    }

    #[test]
    fn a_card_is_on_a_node_unless_the_firmware_does_not_tell() {
        assert_eq!(["0\n", "1\n"].map(node_in), [Some(0), Some(1)]);
        assert_eq!(["-1\n", ""].map(node_in), [None, None]);
        // No card is behind it.
        assert_eq!(node("lo"), None);
    }

    #[test]
    fn a_virtio_card_is_on_the_node_of_the_pci_device_that_it_is_on() {
        // /sys/class/net/NAME/device is a link to .../0000:00:03.0/virtio0, where no file numa_node is.
        let top = tempfile::tempdir().unwrap();
        let (pci, card) = (top.path().join("pci"), top.path().join("card"));
        fs::create_dir_all(pci.join("virtio0")).unwrap();
        fs::create_dir(&card).unwrap();
        std::os::unix::fs::symlink(pci.join("virtio0"), card.join("device")).unwrap();
        assert_eq!(node_below(&card), None);
        fs::write(pci.join("numa_node"), "1\n").unwrap();
        assert_eq!(node_below(&card), Some(1));
        // One of its own goes first.
        fs::write(pci.join("virtio0/numa_node"), "0\n").unwrap();
        assert_eq!(node_below(&card), Some(0));
    }

    #[test]
    fn queues_can_be_asked_for_alone() {
        let lo = Nic::by_name("lo").unwrap();
        assert_eq!(Nic::queues_of("lo").unwrap(), lo.queues);
        let error = Nic::queues_of("nosuchnic0").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn what_a_driver_does_not_say_is_unknown() {
        let tuning = Tuning::read("lo").unwrap();
        assert_eq!((tuning.rx_ring, tuning.udp4_hash), (None, None));
        assert_eq!((tuning.lro, tuning.rx_vlan), (Some(false), Some(false)));
        assert_eq!(Tuning::read("nosuchnic0").unwrap(), Tuning::default());
    }

    #[test]
    fn an_unknown_interface_is_named_in_the_error() {
        let error = Nic::by_name("nosuchnic0").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no network interface nosuchnic0"
        );
    }
}
