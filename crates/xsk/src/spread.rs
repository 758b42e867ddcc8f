//! The kernel program `bpf/spread.bpf.c`: which worker's kernel socket gets a datagram. The kernel would hash over all
//! sockets of a SO_REUSEPORT group, a stalled worker's too; this one goes past it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::heartbeat::Heartbeat;
use crate::layout::{HEARTBEAT_LENGTH, Settings, WORKERS};
use crate::object;
use crate::program::{mapped, remove};
use crate::sys::bpf::Map;
use crate::sys::memory::Mapping;
use crate::sys::socket::{attach_reuseport, detach_reuseport};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/spread.bpf.o"));

/// A heartbeat for each worker, which all groups of kernel sockets share.
pub struct Pulses {
    map: Map,
    cells: Arc<Mapping>,
}

impl Pulses {
    /// Needs CAP_BPF.
    pub fn new() -> Result<Pulses> {
        let map =
            Map::mappable_array(c"pulses", HEARTBEAT_LENGTH as u32, WORKERS).map_err(|error| {
                Error::system("making the workers' heartbeats (needs CAP_BPF)", error)
            })?;
        Pulses::of(map)
    }

    /// The map, for a process that is to load programs which read it.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn hand_over(&self) -> Result<OwnedFd> {
        self.map
            .descriptor()
            .try_clone_to_owned()
            .map_err(duplicating)
    }

    /// The heartbeats that another process has made.
    ///
    /// # Errors
    /// A descriptor that is not that of [`hand_over`](Pulses::hand_over).
    pub fn take_over(descriptor: OwnedFd) -> Result<Pulses> {
        Pulses::of(object::map_from(descriptor, "pulses", 4, HEARTBEAT_LENGTH)?)
    }

    fn of(map: Map) -> Result<Pulses> {
        let cells = mapped(&map, WORKERS as usize * HEARTBEAT_LENGTH)?;
        Ok(Pulses {
            map,
            cells: Arc::new(cells),
        })
    }

    /// The sign of life of a worker: to beat after each batch of datagrams that it has taken from a kernel socket.
    pub fn heartbeat(&self, worker: u32) -> Result<Heartbeat> {
        check_worker(worker, WORKERS)?;
        Ok(cell(&self.cells, worker))
    }
}

fn duplicating(error: std::io::Error) -> Error {
    Error::system("duplicating a descriptor", error)
}

fn cell(cells: &Arc<Mapping>, worker: u32) -> Heartbeat {
    Heartbeat::new(cells.clone(), worker as usize * HEARTBEAT_LENGTH)
}

/// Number of ways to choose.
pub const SPREADS: usize = 3;

/// Who chose a datagram's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Chosen {
    /// Its hash, as the kernel would.
    ByHash = 0,
    /// Its hash, past workers that show no life or have no socket.
    PastStalled = 1,
    /// Nobody shows life: the kernel, over all sockets.
    ByKernel = 2,
}

/// The program of one group: the kernel sockets of one address and port, one for each worker.
pub struct Spread {
    program: OwnedFd,
    sockets: Map,
    counters: Map,
    cells: Arc<Mapping>,
    workers: u32,
}

impl Spread {
    /// Loads the program for so many workers. Needs CAP_BPF.
    pub fn load(pulses: &Pulses, workers: u32) -> Result<Spread> {
        if workers == 0 || workers > WORKERS {
            return Err(Error::Invalid(format!(
                "{workers} workers: must be 1 to {WORKERS}"
            )));
        }
        let constants = Settings::new(false, workers).to_bytes();
        let object = object::load(OBJECT, &constants, false, &[("pulses", &pulses.map)])?;
        Ok(Spread {
            program: object::program_of(&object, "spread")?,
            sockets: object::map_of(&object, "sockets", 4, 8)?,
            counters: object::map_of(&object, "counters", 4, 8)?,
            cells: pulses.cells.clone(),
            workers,
        })
    }

    /// What another process needs to use this program as its own; [`Pulses::hand_over`]'s map is a part of it.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn hand_over(&self) -> Result<Vec<OwnedFd>> {
        let parts = [
            self.program.as_fd(),
            self.sockets.descriptor(),
            self.counters.descriptor(),
        ];
        let copies = parts.into_iter().map(|part| part.try_clone_to_owned());
        copies.collect::<std::io::Result<_>>().map_err(duplicating)
    }

    /// The program that another process has loaded for these heartbeats and so many workers.
    ///
    /// # Errors
    /// Descriptors that are not those of [`hand_over`](Spread::hand_over).
    pub fn take_over(pulses: &Pulses, workers: u32, parts: Vec<OwnedFd>) -> Result<Spread> {
        let [program, sockets, counters]: [OwnedFd; 3] = parts.try_into().map_err(|_| {
            Error::Invalid("a program was handed over in other than three parts".to_owned())
        })?;
        Ok(Spread {
            program,
            sockets: object::map_from(sockets, "sockets", 4, 8)?,
            counters: object::map_from(counters, "counters", 4, 8)?,
            cells: pulses.cells.clone(),
            workers,
        })
    }

    /// Enters a worker's bound SO_REUSEPORT socket, which is a sign of life. It leaves by being closed.
    pub fn enter(&self, worker: u32, socket: &impl AsFd) -> Result<()> {
        check_worker(worker, self.workers)?;
        let descriptor = socket.as_fd().as_raw_fd() as u64;
        self.sockets
            .update(&worker.to_ne_bytes(), &descriptor.to_ne_bytes())
            .map_err(|error| {
                Error::system(
                    format!("entering the kernel socket of worker {worker}"),
                    error,
                )
            })?;
        cell(&self.cells, worker).beat();
        Ok(())
    }

    /// Takes a worker's socket out, which stays open: the socket of another program's group it can be only then.
    pub fn leave(&self, worker: u32) -> Result<()> {
        check_worker(worker, self.workers)?;
        remove(&self.sockets, &worker.to_ne_bytes(), || {
            format!("removing the kernel socket of worker {worker}")
        })
    }

    /// Lets the program choose for the group from now on, after the sockets were entered; any socket of the group will do.
    /// It stays until the last socket of the group is closed.
    pub fn attach(&self, socket: &impl AsFd) -> Result<()> {
        attach_reuseport(socket.as_fd(), self.program.as_fd()).map_err(|error| {
            Error::system(
                "attaching the program that chooses among kernel sockets",
                error,
            )
        })
    }

    /// Datagrams since load, by [`Chosen`], over all CPUs.
    pub fn counts(&self) -> Result<[u64; SPREADS]> {
        let mut sums = [0; SPREADS];
        for (number, sum) in sums.iter_mut().enumerate() {
            *sum = object::sum_over_cpus(&self.counters, number as u32)?;
        }
        Ok(sums)
    }
}

/// Takes the program off a group of sockets that outlived the process which had put it there; without one nothing happens. The
/// kernel lets the sockets go to another program's map a moment later.
pub fn forget_spread(socket: &impl AsFd) {
    // ENOENT: there is none; before Linux 5.3 it cannot be taken off, and the kernel chooses by hash.
    let _ = detach_reuseport(socket.as_fd());
}

fn check_worker(worker: u32, workers: u32) -> Result<()> {
    if worker < workers {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "worker {worker}: must be 0 to {}",
        workers - 1
    )))
}
