//! What the kernel tells about a network interface by ioctl, in the network namespace of the calling thread.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GRXFH: u32 = 0x29;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_drvinfo` of <linux/ethtool.h>.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    others: [u8; 160],
}

/// `struct ethtool_channels` of <linux/ethtool.h>.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Channels {
    command: u32,
    pub(crate) max_rx: u32,
    max_tx: u32,
    max_other: u32,
    pub(crate) max_combined: u32,
    pub(crate) rx: u32,
    tx: u32,
    other: u32,
    pub(crate) combined: u32,
}

/// `struct ethtool_value` of <linux/ethtool.h>.
#[repr(C)]
struct Value {
    command: u32,
    number: u32,
}

/// `struct ethtool_ringparam` of <linux/ethtool.h>.
#[repr(C)]
#[derive(Default)]
struct Rings {
    command: u32,
    max_rx: u32,
    others: [u32; 3],
    rx: u32,
    more: [u32; 3],
}

/// `struct ethtool_rxnfc` of <linux/ethtool.h>: 192 octets, of which ETHTOOL_GRXFH uses the first 16.
#[repr(C)]
struct Classification {
    command: u32,
    flow: u32,
    fields: u64,
    others: [u64; 22],
}

/// A socket to ask with.
pub(crate) struct Asker(OwnedFd);

impl Asker {
    pub(crate) fn new() -> io::Result<Asker> {
        // SAFETY: no memory is involved.
        let descriptor =
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else has it.
        Ok(Asker(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    pub(crate) fn mac(&self, name: &CStr) -> io::Result<[u8; 6]> {
        let mut request = request(name);
        self.ask(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: the kernel has filled this member of the union; any bits are octets.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
        Ok(std::array::from_fn(|at| address[at] as u8))
    }

    /// Octets of the largest IP packet.
    pub(crate) fn mtu(&self, name: &CStr) -> io::Result<u32> {
        let mut request = request(name);
        self.ask(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the kernel has filled this member of the union; any bits are a number.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    /// The driver's name; empty where a device has none (lo).
    pub(crate) fn driver(&self, name: &CStr) -> String {
        let mut info = DriverInfo {
            command: ETHTOOL_GDRVINFO,
            driver: [0; 32],
            others: [0; 160],
        };
        let mut request = request(name);
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut info).cast();
        if self.ask(libc::SIOCETHTOOL, &mut request).is_err() {
            return String::new();
        }
        let length = info
            .driver
            .iter()
            .position(|&octet| octet == 0)
            .unwrap_or(info.driver.len());
        String::from_utf8_lossy(&info.driver[..length]).into_owned()
    }

    pub(crate) fn channels(&self, name: &CStr) -> io::Result<Channels> {
        let mut channels = Channels {
            command: ETHTOOL_GCHANNELS,
            ..Channels::default()
        };
        let mut request = request(name);
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut channels).cast();
        self.ask(libc::SIOCETHTOOL, &mut request)?;
        Ok(channels)
    }

    /// What one of the commands with a single number answers (ETHTOOL_GTXCSUM, ETHTOOL_GFLAGS).
    pub(crate) fn number(&self, name: &CStr, command: u32) -> io::Result<u32> {
        let mut value = Value { command, number: 0 };
        let mut request = request(name);
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
        self.ask(libc::SIOCETHTOOL, &mut request)?;
        Ok(value.number)
    }

    /// Slots of the receive ring, and how many it could have.
    pub(crate) fn rx_ring(&self, name: &CStr) -> io::Result<(u32, u32)> {
        let mut rings = Rings {
            command: ETHTOOL_GRINGPARAM,
            ..Rings::default()
        };
        let mut request = request(name);
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut rings).cast();
        self.ask(libc::SIOCETHTOOL, &mut request)?;
        Ok((rings.rx, rings.max_rx))
    }

    /// The RXH_ bits of what chooses the queue of a flow (UDP_V4_FLOW, UDP_V6_FLOW).
    pub(crate) fn hash_fields(&self, name: &CStr, flow: u32) -> io::Result<u64> {
        let mut classification = Classification {
            command: ETHTOOL_GRXFH,
            flow,
            fields: 0,
            others: [0; 22],
        };
        let mut request = request(name);
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut classification).cast();
        self.ask(libc::SIOCETHTOOL, &mut request)?;
        Ok(classification.fields)
    }

    fn ask(&self, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: all these requests take an ifreq; where it points to a structure (ethtool), that one lives through the
        // call and is as large as its command says.
        let returned =
            unsafe { libc::ioctl(self.0.as_raw_fd(), what as _, std::ptr::from_mut(request)) };
        if returned < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

fn request(name: &CStr) -> libc::ifreq {
    // SAFETY: an ifreq is integers and a pointer: zero is a value of each.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, &from) in request
        .ifr_name
        .iter_mut()
        .zip(name.to_bytes().iter().take(room))
    {
        *to = from as libc::c_char;
    }
    request
}

/// The index of an interface of this name.
pub(crate) fn index(name: &CStr) -> Option<u32> {
    // SAFETY: reads a string that lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// The name of an interface of this index.
pub(crate) fn name(index: u32) -> Option<CString> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the kernel's library writes at most IF_NAMESIZE octets, the closing zero included.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    CStr::from_bytes_until_nul(&name).ok().map(CStr::to_owned)
}

/// Length of a tick of the kernel's coarse clock, nanoseconds: one jiffy.
pub(crate) fn jiffy_nanoseconds() -> u64 {
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    let returned = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut resolution) };
    assert!(
        returned == 0 && resolution.tv_nsec > 0,
        "CLOCK_MONOTONIC_COARSE (Linux 2.6.32) has no resolution"
    );
    resolution.tv_nsec as u64
}
