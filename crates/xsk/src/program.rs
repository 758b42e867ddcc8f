//! The kernel program `bpf/steer.bpf.c` on one interface: loading, attaching, and the tables that say what is ours.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::attach::{AttachMode, Attached, Attachment};
use crate::error::{Error, Result};
use crate::heartbeat::Heartbeat;
use crate::kept::{self, Kept};
use crate::layout::{
    self, CPU_LENGTH, DEVICE_LENGTH, GENERATION_OFFSET, HEARTBEAT_LENGTH, LOCALS, PORTS_LENGTH,
    QUEUES, REASONS, SERVED, Settings,
};
use crate::nic::Nic;
use crate::object;
use crate::sys::bpf::{self, Map};
use crate::sys::memory::Mapping;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// The program of one interface. Its attachment ends with the value, or with the process however that ends; then every
/// frame goes to the kernel.
pub struct Program {
    program: OwnedFd,
    destinations: Map,
    backends: Map,
    sockets: Map,
    cpus: Map,
    device: Mapping,
    ports: Mapping,
    heartbeats: Arc<Mapping>,
    served: HashSet<SocketAddr>,
    locals: HashMap<IpAddr, Local>,
    attached: Option<Attached>,
    has_buffers: bool,
    features: Vec<String>,
    /// The maps behind `device`, `ports` and `heartbeats`: to give them to another process.
    mapped: [Map; 3],
}

/// The maps, with octets of key and value (of one CPU).
const MAPS: [(&str, usize, usize); 7] = [
    ("destinations", 20, 1),
    ("backends", 36, 4),
    ("sockets", 4, 4),
    ("cpus", 4, CPU_LENGTH),
    ("device", 4, DEVICE_LENGTH),
    ("ports", 4, PORTS_LENGTH),
    ("heartbeats", 4, HEARTBEAT_LENGTH),
];

/// The place of the link among the descriptors of [`Program::hand_over`], between the program and the maps.
const LINK: usize = 1;

/// What is to be said of a program beside its descriptors ([`Program::hand_over`], [`Program::bequeath`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The index of the interface it is attached to.
    pub interface: u32,
    /// In the driver, not in the kernel's stack.
    pub native: bool,
    /// Loaded for frames in several buffers.
    pub has_buffers: bool,
    /// Where its link is kept, if it is to be.
    pub kept: Option<PathBuf>,
}

/// One of our addresses towards backends: its bitmap, and what needs it.
struct Local {
    bitmap: u32,
    backends: HashSet<SocketAddr>,
    open_ports: u32,
}

impl Program {
    /// Loads the program with empty tables. Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or CAP_SYS_ADMIN.
    pub fn load() -> Result<Program> {
        let has_buffers = object::has_buffers();
        let object = object::load(
            OBJECT,
            &Settings::new(has_buffers, 0).to_bytes(),
            has_buffers,
            &[],
        )?;
        let map =
            |(name, key, value): (&str, usize, usize)| object::map_of(&object, name, key, value);
        let mut maps = Vec::with_capacity(MAPS.len());
        for facts in MAPS {
            maps.push(map(facts)?);
        }
        Program::of(object::program_of(&object, "steer")?, maps, has_buffers)
    }

    /// `maps` in the order of [`MAPS`].
    fn of(program: OwnedFd, maps: Vec<Map>, has_buffers: bool) -> Result<Program> {
        let [
            destinations,
            backends,
            sockets,
            cpus,
            device,
            ports,
            heartbeats,
        ]: [Map; MAPS.len()] = maps
            .try_into()
            .map_err(|_| Error::Invalid(format!("not {} maps", MAPS.len())))?;
        let bitmaps = SERVED as usize + 1;
        Ok(Program {
            program,
            destinations,
            backends,
            sockets,
            cpus,
            device: mapped(&device, DEVICE_LENGTH)?,
            ports: mapped(&ports, bitmaps * PORTS_LENGTH)?,
            heartbeats: Arc::new(mapped(&heartbeats, QUEUES as usize * HEARTBEAT_LENGTH)?),
            served: HashSet::new(),
            locals: HashMap::new(),
            attached: None,
            has_buffers,
            mapped: [device, ports, heartbeats],
            features: vec![format!(
                "frames in several buffers (xdp.frags, Linux 5.18): {}",
                if has_buffers {
                    "yes"
                } else {
                    "no, a large MTU may forbid native mode"
                }
            )],
        })
    }

    /// Attaches to an interface (index). A program of somebody else's is left where it is: [`Error::ForeignProgram`]. One of ours
    /// that was kept, and that no process has, gives way, and nothing is kept any more.
    pub fn attach(&mut self, interface: u32, mode: AttachMode) -> Result<Attachment> {
        if let Some(attached) = &self.attached {
            return Err(Error::Invalid(format!(
                "this program is attached to interface {} already",
                attached.interface
            )));
        }
        self.set_mac(Nic::by_index(interface)?.mac);
        let attached = Attached::attach(&self.program, interface, mode);
        let (attached, attachment) = attached.or_else(|error| match error {
            Error::ForeignProgram { .. } => kept::take_back(&self.program, interface)
                .map(|attached| attached.with(None))
                .ok_or(error),
            error => Err(error),
        })?;
        self.attached = Some(attached);
        Ok(attachment)
    }

    /// The same by a link that is pinned in bpffs and stays when the process ends: the next start gives it a program of its
    /// own, without touching the interface ([`unload`](crate::unload) takes it off).
    pub fn attach_kept(&mut self, interface: u32, mode: AttachMode) -> Result<Attachment> {
        if self.attached.is_some() {
            return Err(Error::Invalid(
                "this program is attached already".to_owned(),
            ));
        }
        self.set_mac(Nic::by_index(interface)?.mac);
        let (attached, attachment) = kept::attach(&self.program, interface, mode)?;
        self.attached = Some(attached);
        Ok(attachment)
    }

    /// From now on the program goes with this value even if it was to be kept.
    pub fn let_go(&self) {
        if let Some(kept) = self.attached.as_ref().and_then(Attached::kept) {
            kept.let_go();
        }
    }

    /// What another process needs to use this program as its own, once it is attached: the descriptors are its own then,
    /// and the program stays attached when this value is dropped.
    ///
    /// # Errors
    /// Not attached, or no descriptors left.
    pub fn hand_over(&self) -> Result<(Handed, Vec<OwnedFd>)> {
        let attached = self.attached.as_ref().ok_or_else(|| {
            Error::Invalid("a program that is not attached is not handed over".to_owned())
        })?;
        let failed = |error| Error::system("duplicating a descriptor", error);
        let [device, ports, heartbeats] = &self.mapped;
        let maps = [
            &self.destinations,
            &self.backends,
            &self.sockets,
            &self.cpus,
            device,
            ports,
            heartbeats,
        ];
        let maps = maps.into_iter().map(Map::descriptor);
        let ends = [self.program.as_fd(), attached.descriptor()].into_iter();
        let lock = attached.kept().map(|kept| kept.lock().as_fd());
        let parts = ends.chain(maps).chain(lock);
        let copies = parts.map(|fd| fd.try_clone_to_owned());
        let handed = Handed {
            interface: attached.interface,
            native: attached.mode == AttachMode::Native,
            has_buffers: self.has_buffers,
            kept: attached.kept().map(|kept| kept.folder().to_owned()),
        };
        Ok((
            handed,
            copies.collect::<std::io::Result<_>>().map_err(failed)?,
        ))
    }

    /// The program that another process has handed over, its tables as empty as they were loaded.
    ///
    /// # Errors
    /// Descriptors that are not those of [`hand_over`](Program::hand_over).
    pub fn take_over(handed: Handed, descriptors: Vec<OwnedFd>) -> Result<Program> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || {
            let missing =
                || Error::Invalid("a program was handed over in too few parts".to_owned());
            descriptors.next().ok_or_else(missing)
        };
        let (program, link) = (next()?, next()?);
        let mut maps = Vec::with_capacity(MAPS.len());
        for (name, key, value) in MAPS {
            maps.push(object::map_from(next()?, name, key, value)?);
        }
        let mut program = Program::of(program, maps, handed.has_buffers)?;
        let mut attached = Attached::of(link, handed.interface, handed.native);
        if let Some(folder) = handed.kept {
            attached = attached.kept_in(Kept::of(folder, next()?));
        }
        program.attached = Some(attached);
        Ok(program)
    }

    /// The link alone, for another process whose program takes this one's place on the interface
    /// ([`succeed`](Program::succeed)). Maps and program stay ours: two versions share no layout.
    ///
    /// # Errors
    /// Not attached, or no descriptors left.
    pub fn bequeath(&self) -> Result<(Handed, Vec<OwnedFd>)> {
        let (handed, parts) = self.hand_over()?;
        let maps = LINK + 1..LINK + 1 + MAPS.len();
        let parts = parts.into_iter().enumerate().skip(LINK);
        let links = parts.filter(|(place, _)| !maps.contains(place));
        Ok((handed, links.map(|(_, part)| part).collect()))
    }

    /// Takes the place of the program of another process on its interface; nothing is lost, and the interface is not
    /// touched. `descriptors` are those of [`bequeath`](Program::bequeath). From Linux 5.19 on this takes no capability.
    ///
    /// # Errors
    /// The link is on no interface any more, or the kernel refuses.
    pub fn succeed(&mut self, handed: Handed, descriptors: Vec<OwnedFd>) -> Result<()> {
        let mut descriptors = descriptors.into_iter();
        let missing = || Error::Invalid("a link was handed over in too few parts".to_owned());
        let mut attached = Attached::of(
            descriptors.next().ok_or_else(missing)?,
            handed.interface,
            handed.native,
        );
        if let Some(folder) = handed.kept {
            let lock = descriptors.next().ok_or_else(missing)?;
            attached = attached.kept_in(Kept::of(folder, lock));
        }
        self.set_mac(Nic::by_index(handed.interface)?.mac);
        self.put_on(attached.link())?;
        self.attached = Some(attached);
        Ok(())
    }

    /// The link has this program again: whoever was to succeed it has failed.
    ///
    /// # Errors
    /// Not attached, or the kernel refuses.
    pub fn restore(&self) -> Result<()> {
        let attached = self.attached.as_ref();
        let attached = attached.ok_or_else(|| {
            Error::Invalid("a program that is not attached has no link".to_owned())
        })?;
        self.put_on(attached.link())
    }

    /// What [`renew`](Program::renew) needs, for a process that may.
    ///
    /// # Errors
    /// Not attached, or no descriptors left.
    pub fn ends(&self) -> Result<Vec<OwnedFd>> {
        let (_, mut parts) = self.hand_over()?;
        parts.truncate(LINK + 1);
        Ok(parts)
    }

    /// Puts a program on its link once more, by way of another one, for which `ends` are those of [`ends`](Program::ends).
    /// veth runs no program on queues that it got while it had one (`ethtool -L`; Linux 6.18), until it gets another. What
    /// comes meanwhile goes to the kernel. Needs what [`load`](Program::load) needs.
    ///
    /// # Errors
    /// Other descriptors, or the kernel refuses.
    pub fn renew(ends: &[OwnedFd]) -> Result<()> {
        let [program, link] = ends else {
            return Err(Error::Invalid("not a program and its link".to_owned()));
        };
        Program::load()?.put_on(link)?;
        bpf::update_link(link, program)
            .map_err(|error| Error::system("giving a link its program again", error))
    }

    fn put_on(&self, link: &OwnedFd) -> Result<()> {
        bpf::update_link(link, &self.program)
            .map_err(|error| Error::system("giving a link its program", error))
    }

    /// Takes the program off the interface: every frame goes to the kernel.
    pub fn detach(&mut self) {
        self.attached = None;
    }

    /// Whether the program is still on its interface: somebody may have taken it off, or the device is gone.
    pub fn is_attached(&self) -> bool {
        self.attached.as_ref().is_some_and(Attached::is_alive)
    }

    /// Native or generic, while attached.
    pub fn mode(&self) -> Option<AttachMode> {
        self.attached.as_ref().map(|attached| attached.mode)
    }

    /// What this kernel can and cannot do for us, a line each, for the log.
    pub fn features(&self) -> &[String] {
        &self.features
    }

    /// The interface's own address; [`attach`](Program::attach) sets it, a change must be told.
    pub fn set_mac(&self, mac: [u8; 6]) {
        let mut octets = [0; 8];
        octets[..6].copy_from_slice(&mac);
        self.device
            .atomic_u64(0)
            .store(u64::from_ne_bytes(octets), Relaxed);
    }

    /// Makes every CPU forget its recent look-ups, after an entry was removed or replaced.
    fn forget_recent(&self) {
        self.device
            .atomic_u64(GENERATION_OFFSET)
            .fetch_add(1, Release);
    }

    /// Puts a socket into the map, last of all that is done to start: from now on it gets the queue's frames.
    pub fn enter(&self, queue: u32, socket: &impl AsFd) -> Result<()> {
        check_queue(queue)?;
        let descriptor = socket.as_fd().as_raw_fd() as u32;
        self.sockets
            .update(&queue.to_ne_bytes(), &descriptor.to_ne_bytes())
            .map_err(|error| {
                Error::system(format!("entering a socket for queue {queue}"), error)
            })?;
        self.heartbeat(queue)?.beat();
        Ok(())
    }

    /// Takes a queue's socket out of the map: its frames go to the kernel. What is in its ring already is still there.
    pub fn leave(&self, queue: u32) -> Result<()> {
        check_queue(queue)?;
        remove(&self.sockets, &queue.to_ne_bytes(), || {
            format!("removing the socket of queue {queue}")
        })
    }

    /// Takes queries to this address and port from now on.
    pub fn serve(&mut self, served: SocketAddr) -> Result<()> {
        check_served(served)?;
        self.destinations
            .update(&layout::destination(served), &[1])
            .map_err(|error| not_served(served, &self.destinations, error))?;
        self.served.insert(served);
        let (word, bit) = port_cell(SERVED, served.port());
        self.ports.atomic_u64(word).fetch_or(bit, Relaxed);
        Ok(())
    }

    /// Leaves queries to this address and port to the kernel.
    pub fn unserve(&mut self, served: SocketAddr) -> Result<()> {
        self.served.remove(&served);
        if self
            .served
            .iter()
            .all(|other| other.port() != served.port())
        {
            let (word, bit) = port_cell(SERVED, served.port());
            self.ports.atomic_u64(word).fetch_and(!bit, Relaxed);
        }
        remove(&self.destinations, &layout::destination(served), || {
            format!("removing {served}")
        })?;
        self.forget_recent();
        Ok(())
    }

    /// Takes answers from this backend to open ports of one of our addresses.
    pub fn add_backend(&mut self, local: IpAddr, backend: SocketAddr) -> Result<()> {
        if local.is_ipv4() != backend.is_ipv4() {
            return Err(Error::Invalid(format!(
                "backend {backend} cannot answer to {local}: another version of IP"
            )));
        }
        let entry = self.local(local)?;
        entry.backends.insert(backend);
        let bitmap = entry.bitmap;
        self.backends
            .update(&layout::backend(local, backend), &bitmap.to_ne_bytes())
            .map_err(|error| {
                let what = format!("backend {backend} of {local}");
                let pairs = "pairs of a backend and an address of ours";
                not_entered(&what, pairs, &self.backends, error)
            })?;
        self.forget_recent();
        Ok(())
    }

    /// Leaves this backend's answers to the kernel.
    pub fn remove_backend(&mut self, local: IpAddr, backend: SocketAddr) -> Result<()> {
        let Some(entry) = self.locals.get_mut(&local) else {
            return Ok(());
        };
        entry.backends.remove(&backend);
        self.forget_if_unused(local);
        remove(&self.backends, &layout::backend(local, backend), || {
            format!("removing backend {backend} of {local}")
        })?;
        self.forget_recent();
        Ok(())
    }

    /// Opens one of our ports to backends' answers. Bind its kernel socket first, use it afterwards.
    pub fn open_port(&mut self, local: IpAddr, port: u16) -> Result<()> {
        let bitmap = self.local(local)?.bitmap;
        let (word, bit) = port_cell(bitmap, port);
        if self.ports.atomic_u64(word).fetch_or(bit, Relaxed) & bit == 0 {
            self.local(local)?.open_ports += 1;
        }
        Ok(())
    }

    /// Closes one of our ports: answers to it go to the kernel socket that holds it.
    pub fn close_port(&mut self, local: IpAddr, port: u16) {
        let Some(entry) = self.locals.get_mut(&local) else {
            return;
        };
        let (word, bit) = port_cell(entry.bitmap, port);
        if self.ports.atomic_u64(word).fetch_and(!bit, Relaxed) & bit != 0 {
            entry.open_ports -= 1;
            self.forget_if_unused(local);
        }
    }

    /// The entry of one of our addresses, with a bitmap of its own.
    fn local(&mut self, address: IpAddr) -> Result<&mut Local> {
        let taken = |bitmap: &u32| self.locals.values().any(|local| local.bitmap == *bitmap);
        let free = (0..LOCALS).find(|bitmap| !taken(bitmap));
        match (self.locals.entry(address), free) {
            (Entry::Occupied(found), _) => Ok(found.into_mut()),
            (Entry::Vacant(place), Some(bitmap)) => Ok(place.insert(Local {
                bitmap,
                backends: HashSet::new(),
                open_ports: 0,
            })),
            (Entry::Vacant(_), None) => Err(Error::Invalid(format!(
                "{address} is one source address too many: towards backends an interface can have {LOCALS}"
            ))),
        }
    }

    /// Lets another address have the bitmap, which is all zeros again.
    fn forget_if_unused(&mut self, address: IpAddr) {
        self.locals.retain(|local, entry| {
            *local != address || !entry.backends.is_empty() || entry.open_ports > 0
        });
    }

    /// The sign of life of a queue's worker.
    pub fn heartbeat(&self, queue: u32) -> Result<Heartbeat> {
        check_queue(queue)?;
        Ok(Heartbeat::new(
            self.heartbeats.clone(),
            queue as usize * HEARTBEAT_LENGTH,
        ))
    }

    /// Frames by verdict since load, in the order of [`Reason::ALL`](crate::Reason::ALL), over all CPUs.
    pub fn verdicts(&self) -> Result<[u64; REASONS]> {
        let cpus = self
            .cpus
            .lookup(&0u32.to_ne_bytes())
            .map_err(|error| Error::system("reading the kernel program's counters", error))?;
        let mut sums = [0; REASONS];
        for cpu in cpus.chunks_exact(CPU_LENGTH) {
            for (sum, count) in sums.iter_mut().zip(cpu.chunks_exact(8)) {
                *sum += u64::from_ne_bytes(count.try_into().expect("8 octets"));
            }
        }
        Ok(sums)
    }

    /// Runs the program over a frame that comes from nowhere; returns XDP's verdict (2 = PASS, 4 = REDIRECT) and the
    /// frame after it. A queue other than 0 needs Linux 5.15 and an attached program.
    pub fn test_run(&self, frame: &[u8], queue: u32) -> Result<(u32, Vec<u8>)> {
        let interface = self
            .attached
            .as_ref()
            .map_or(1, |attached| attached.interface);
        let receiver = (queue != 0).then_some((interface, queue));
        bpf::test_run(&self.program, frame, receiver).map_err(|error| {
            Error::system(
                format!(
                    "running the kernel program over {} octets on queue {queue}",
                    frame.len()
                ),
                error,
            )
        })
    }
}

/// Offset of the word and mask of the bit of a port in the bitmaps.
fn port_cell(bitmap: u32, port: u16) -> (usize, u64) {
    (
        bitmap as usize * PORTS_LENGTH + usize::from(port) / 64 * 8,
        1 << (port % 64),
    )
}

pub(crate) fn check_queue(queue: u32) -> Result<()> {
    if queue < QUEUES {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "queue {queue}: the kernel program knows 0 to {}",
        QUEUES - 1
    )))
}

/// What a map can hold: one address and port. A wildcard must be resolved to the local addresses first.
pub(crate) fn check_served(served: SocketAddr) -> Result<()> {
    if served.ip().is_unspecified() || served.ip().is_multicast() || served.port() == 0 {
        return Err(Error::Invalid(format!(
            "serving {served}: must be one unicast address and a port"
        )));
    }
    Ok(())
}

/// Why an address and port could not be entered into a map of destinations.
pub(crate) fn not_served(served: SocketAddr, map: &Map, error: std::io::Error) -> Error {
    let what = "addresses and ports: 0.0.0.0 and :: take one for each local address";
    not_entered(&served.to_string(), what, map, error)
}

/// Why something could not be entered into a map of such entries. Of one that is full the kernel says E2BIG, "Argument list too
/// long".
fn not_entered(new: &str, entries: &str, map: &Map, error: std::io::Error) -> Error {
    if error.raw_os_error() != Some(libc::E2BIG) {
        return Error::system(format!("entering {new}"), error);
    }
    let room = map.entries();
    Error::Invalid(format!(
        "{new} is one too many: an interface has room for {room} {entries}"
    ))
}

/// Puts a socket into a map of sockets by queue.
pub(crate) fn enter(sockets: &Map, queue: u32, socket: BorrowedFd<'_>) -> Result<()> {
    sockets
        .update(
            &queue.to_ne_bytes(),
            &(socket.as_raw_fd() as u32).to_ne_bytes(),
        )
        .map_err(|error| Error::system(format!("entering a socket for queue {queue}"), error))
}

pub(crate) fn leave(sockets: &Map, queue: u32) -> Result<()> {
    remove(sockets, &queue.to_ne_bytes(), || {
        format!("removing the socket of queue {queue}")
    })
}

/// Removes an entry; that there is none is as good.
pub(crate) fn remove(map: &Map, key: &[u8], doing: impl FnOnce() -> String) -> Result<()> {
    match map.delete(key) {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
            Err(Error::system(doing(), error))
        }
        _ => Ok(()),
    }
}

pub(crate) fn mapped(map: &Map, length: usize) -> Result<Mapping> {
    Mapping::of_descriptor(map.descriptor(), length, 0)
        .map_err(|error| Error::system(format!("mapping {length} octets of a BPF array"), error))
}
