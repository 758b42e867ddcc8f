//! The kernel program `bpf/collect.bpf.c` on one interface: it takes the answers to a generator's queries, and nothing else.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};

use crate::attach::{AttachMode, Attached, Attachment};
use crate::error::{Error, Result};
use crate::layout;
use crate::object;
use crate::program::{check_served, enter, leave};
use crate::sys::bpf::{self, Map};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/collect.bpf.o"));

/// The tag that means that frames carry none.
const NO_VLAN: u16 = 0xffff;

/// Octets of `struct collection`.
const COLLECTION_LENGTH: usize = 100;
/// Where the only server lies in it.
const ONLY: usize = 80;

/// Addresses with a common beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    pub address: IpAddr,
    /// Bits of `address` that count: at most 32 or 128.
    pub prefix: u8,
}

/// What the program takes: answers from these servers to these addresses and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    /// The generator's MAC address.
    pub mac: [u8; 6],
    /// The servers, addresses and ports.
    pub targets: Vec<SocketAddr>,
    /// Its source addresses; the last one of each version of IP counts.
    pub sources: Vec<Sources>,
    /// Its source ports.
    pub ports: RangeInclusive<u16>,
    /// The tag of its frames and of the answers.
    pub vlan: Option<u16>,
    /// Count answers and throw them away.
    pub drop: bool,
}

/// Number of counters.
pub const COLLECTED: usize = 6;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Collected {
    /// An answer, to the socket of its queue.
    AnswerTaken = 0,
    /// An answer, thrown away as asked.
    AnswerDropped = 1,
    /// An answer longer than a chunk's room, or in fragments, of which the first is counted; passed to the kernel.
    AnswerLarge = 2,
    /// An answer on a queue without a socket, passed to the kernel.
    AnswerSocket = 3,
    /// Anything else, passed to the kernel.
    NoAnswer = 4,
    /// To one of our addresses and ports, but from no server of ours; passed to the kernel.
    OtherSource = 5,
}

/// The collecting program of one interface. Its attachment ends with the value, or with the process however that ends.
pub struct Collector {
    program: OwnedFd,
    sockets: Map,
    counters: Map,
    attached: Option<Attached>,
}

impl Collector {
    /// Loads the program. Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or CAP_SYS_ADMIN.
    pub fn load(collection: &Collection) -> Result<Collector> {
        let object = object::load(OBJECT, &constants(collection)?, object::has_buffers(), &[])?;
        let targets = object::map_of(&object, "targets", 20, 1)?;
        for target in &collection.targets {
            add_target(&targets, *target)?;
        }
        Ok(Collector {
            program: object::program_of(&object, "collect")?,
            sockets: object::map_of(&object, "sockets", 4, 4)?,
            counters: object::map_of(&object, "counters", 4, 8)?,
            attached: None,
        })
    }

    /// Attaches to an interface (index). A program of somebody else's is left where it is: [`Error::ForeignProgram`].
    pub fn attach(&mut self, interface: u32, mode: AttachMode) -> Result<Attachment> {
        let (attached, attachment) = Attached::attach(&self.program, interface, mode)?;
        self.attached = Some(attached);
        Ok(attachment)
    }

    /// Whether the program is still on its interface.
    pub fn is_attached(&self) -> bool {
        self.attached.as_ref().is_some_and(Attached::is_alive)
    }

    /// Puts a socket into the map: from now on it gets the queue's answers.
    pub fn enter(&self, queue: u32, socket: &impl AsFd) -> Result<()> {
        enter(&self.sockets, queue, socket.as_fd())
    }

    /// Takes a queue's socket out of the map.
    pub fn leave(&self, queue: u32) -> Result<()> {
        leave(&self.sockets, queue)
    }

    /// Frames since load, by [`Collected`], over all CPUs.
    pub fn counts(&self) -> Result<[u64; COLLECTED]> {
        let mut sums = [0; COLLECTED];
        for (number, sum) in sums.iter_mut().enumerate() {
            *sum = object::sum_over_cpus(&self.counters, number as u32)?;
        }
        Ok(sums)
    }

    /// Runs the program over a frame on queue 0; returns XDP's verdict (1 = DROP, 2 = PASS, 4 = REDIRECT).
    pub fn test_run(&self, frame: &[u8]) -> Result<u32> {
        let run = bpf::test_run(&self.program, frame, None);
        let doing = || format!("running the collecting program over {} octets", frame.len());
        run.map(|(verdict, _)| verdict)
            .map_err(|error| Error::system(doing(), error))
    }
}

/// Takes answers from this server.
fn add_target(targets: &Map, target: SocketAddr) -> Result<()> {
    check_served(target)?;
    targets
        .update(&layout::destination(target), &[1])
        .map_err(|error| Error::system(format!("entering target {target}"), error))
}

/// `struct collection`: MAC address, tag, first and last port, drop, sources of IPv4 and of IPv6, the only server.
fn constants(collection: &Collection) -> Result<[u8; COLLECTION_LENGTH]> {
    let (first, last) = (*collection.ports.start(), *collection.ports.end());
    if first == 0 || first > last {
        return Err(Error::Invalid(format!(
            "source ports {first} to {last}: must be an ascending range within 1 to 65535"
        )));
    }
    let mut octets = [0; COLLECTION_LENGTH];
    octets[..6].copy_from_slice(&collection.mac);
    octets[6..8].copy_from_slice(&collection.vlan.unwrap_or(NO_VLAN).to_ne_bytes());
    octets[8..10].copy_from_slice(&first.to_ne_bytes());
    octets[10..12].copy_from_slice(&last.to_ne_bytes());
    octets[12..16].copy_from_slice(&u32::from(collection.drop).to_ne_bytes());
    // Where a version has no sources, nothing must match: all ones are nobody's address.
    octets[16..ONLY].fill(0xff);
    for sources in &collection.sources {
        let at = if sources.address.is_ipv4() { 16 } else { 48 };
        octets[at..at + 16].copy_from_slice(&layout::address(sources.address));
        octets[at + 16..at + 32].copy_from_slice(&mask(sources)?);
    }
    if let [only] = collection.targets.as_slice() {
        octets[ONLY..].copy_from_slice(&layout::destination(*only));
    }
    Ok(octets)
}

/// The leading bits that count, in the sixteen octets of an address.
fn mask(sources: &Sources) -> Result<[u8; 16]> {
    let bits = if sources.address.is_ipv4() { 32 } else { 128 };
    if sources.prefix > bits {
        return Err(Error::Invalid(format!(
            "prefix {}/{}: must be at most {bits} bits",
            sources.address, sources.prefix
        )));
    }
    let ones = u128::MAX.checked_shl(128 - u32::from(sources.prefix));
    Ok(ones.unwrap_or(0).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: &str = include_str!("../../../bpf/collect.h");

    fn collection() -> Collection {
        Collection {
            mac: [2, 0, 0, 0, 0, 1],
            targets: vec!["198.51.100.1:53".parse().unwrap()],
            sources: vec![Sources {
                address: "192.0.2.96".parse().unwrap(),
                prefix: 28,
            }],
            ports: 0x1020..=0x3040,
            vlan: None,
            drop: true,
        }
    }

    #[test]
    fn counters_have_the_names_and_numbers_of_the_kernel_half() {
        for line in [
            "ANSWER_TAKEN = 0,",
            "ANSWER_DROPPED = 1,",
            "ANSWER_LARGE = 2,",
            "ANSWER_SOCKET = 3,",
            "NO_ANSWER = 4,",
            "OTHER_SOURCE = 5,",
            "COLLECTED = 6\n",
            "#define NO_VLAN 0xffff\n",
        ] {
            assert!(SHARED.contains(line), "collect.h has no {line:?}");
        }
    }

    #[test]
    fn constants_lie_where_the_kernel_half_has_them() {
        let octets = constants(&collection()).unwrap();
        assert_eq!(octets[..6], [2, 0, 0, 0, 0, 1]);
        assert_eq!(octets[6..8], [0xff, 0xff]);
        assert_eq!(octets[8..12], [0x20, 0x10, 0x40, 0x30], "little-endian");
        assert_eq!(octets[12..16], [1, 0, 0, 0]);
        assert_eq!(octets[16..20], [192, 0, 2, 96]);
        assert_eq!(octets[32..36], [0xff, 0xff, 0xff, 0xf0]);
        assert_eq!(octets[36..48], [0; 12]);
        assert_eq!(octets[48..80], [0xff; 32]);
        assert_eq!(octets[80..84], [198, 51, 100, 1]);
        assert_eq!(octets[96..], [0, 53, 4, 0], "port, version");
        let two = Collection {
            targets: ["198.51.100.1:53", "[2001:db8::1]:53"]
                .map(|one| one.parse().unwrap())
                .to_vec(),
            ..collection()
        };
        assert_eq!(
            constants(&two).unwrap()[80..],
            [0; 20],
            "they are in the map"
        );
    }

    #[test]
    fn impossible_ranges_are_refused() {
        let mut wrong = collection();
        wrong.ports = RangeInclusive::new(9, 8);
        assert!(constants(&wrong).is_err());
        wrong = collection();
        wrong.sources[0].prefix = 33;
        assert!(constants(&wrong).is_err());
        wrong.sources[0].prefix = 0;
        assert_eq!(constants(&wrong).unwrap()[32..48], [0; 16]);
    }
}
