//! Maps that somebody else's loader has pinned, in dnsdist's layout: a socket map, and the destinations of each version of
//! IP, which its XDP program reads. There is no heartbeat in it: a stalled owner is not passed by.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::attach::attached_program;
use crate::dnsdist::DNSDIST_PINS;
use crate::error::{Error, Result};
use crate::layout::foreign_destination;
use crate::program::{check_served, enter, leave, not_served, remove};
use crate::sys::bpf::{self, Map};

/// The pinned maps of a program that is not ours, on one interface. What we enter is removed when the value is dropped;
/// do that before the sockets close: the program loses frames for an entry without a socket.
pub struct Foreign {
    sockets: Map,
    destinations_v4: Map,
    destinations_v6: Map,
    entered: HashSet<u32>,
    served: HashSet<SocketAddr>,
    /// The index of the interface, and the id of the program that was there.
    interface: u32,
    program: Option<u32>,
}

impl Foreign {
    /// Opens the socket map at `path` and the destination maps beside it (else where dnsdist's loader pins them), if the
    /// program attached to this interface (index) uses them: stale pins outlive their loaders and would serve nothing.
    /// Needs CAP_SYS_ADMIN, to look at that program.
    pub fn open(interface: u32, path: &Path) -> Result<Foreign> {
        let program = attached_program(interface)?;
        Foreign::of(Foreign::maps(interface, path)?, interface, program)
    }

    /// The maps alone, for a process that may not look: [`Foreign::of`].
    pub fn maps(interface: u32, path: &Path) -> Result<Vec<OwnedFd>> {
        let used = maps_on(interface, path)?;
        let folder = path
            .parent()
            .filter(|folder| folder.join("xsk-destinations-v4").exists());
        let folder = folder.unwrap_or(Path::new(DNSDIST_PINS));
        Ok(vec![
            open_used(interface, path, &used)?,
            open_used(interface, &folder.join("xsk-destinations-v4"), &used)?,
            open_used(interface, &folder.join("xsk-destinations-v6"), &used)?,
        ])
    }

    /// The maps that [`Foreign::maps`] has found; `program` was on the interface (index) before that: its id
    /// ([`attached_program`]).
    pub fn of(maps: Vec<OwnedFd>, interface: u32, program: Option<u32>) -> Result<Foreign> {
        let maps: [OwnedFd; 3] = maps.try_into().map_err(|maps: Vec<_>| {
            Error::Invalid(format!(
                "{} maps of somebody else's program, not 3",
                maps.len()
            ))
        })?;
        let failed = |error| Error::system("taking the maps of somebody else's program", error);
        let [sockets, destinations_v4, destinations_v6] = maps.map(Map::new);
        Ok(Foreign {
            sockets: sockets.map_err(failed)?,
            destinations_v4: destinations_v4.map_err(failed)?,
            destinations_v6: destinations_v6.map_err(failed)?,
            entered: HashSet::new(),
            served: HashSet::new(),
            interface,
            program,
        })
    }

    /// Whether the program is still there whose maps these are: somebody may have taken it off, or put another one in its
    /// place, with maps of its own; or the device is gone.
    pub fn is_attached(&self) -> bool {
        match bpf::attached_program(self.interface) {
            Ok(program) => program.is_some() && program == self.program,
            // Whoever has no descriptor left to ask with knows nothing.
            Err(error) => error.raw_os_error() != Some(libc::ENODEV),
        }
    }

    /// Puts a socket into the map: from now on it gets the queue's frames.
    pub fn enter(&mut self, queue: u32, socket: &impl AsFd) -> Result<()> {
        enter(&self.sockets, queue, socket.as_fd())?;
        self.entered.insert(queue);
        Ok(())
    }

    /// Takes our socket out of the map.
    pub fn leave(&mut self, queue: u32) -> Result<()> {
        if self.entered.remove(&queue) {
            leave(&self.sockets, queue)
        } else {
            Ok(())
        }
    }

    /// Takes queries to this address and port from now on.
    pub fn serve(&mut self, served: SocketAddr) -> Result<()> {
        check_served(served)?;
        let map = self.destinations(served);
        map.update(&foreign_destination(served), &[1])
            .map_err(|error| not_served(served, map, error))?;
        self.served.insert(served);
        Ok(())
    }

    /// Leaves queries to this address and port to the kernel, if it was we who entered them.
    pub fn unserve(&mut self, served: SocketAddr) -> Result<()> {
        if !self.served.remove(&served) {
            return Ok(());
        }
        remove(
            self.destinations(served),
            &foreign_destination(served),
            || format!("removing {served}"),
        )
    }

    fn destinations(&self, served: SocketAddr) -> &Map {
        if served.is_ipv4() {
            &self.destinations_v4
        } else {
            &self.destinations_v6
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // Destinations first: a frame that finds one and no socket is lost. An error leaves an entry behind; there is
        // nobody to tell, and nothing else to do about it.
        for served in std::mem::take(&mut self.served) {
            let _ = remove(
                self.destinations(served),
                &foreign_destination(served),
                String::new,
            );
        }
        for queue in std::mem::take(&mut self.entered) {
            let _ = leave(&self.sockets, queue);
        }
    }
}

/// Ids of the maps that the program on an interface uses.
fn maps_on(interface: u32, path: &Path) -> Result<Vec<u32>> {
    let failed = |error| {
        Error::system(
            format!("asking for the XDP program of interface {interface}"),
            error,
        )
    };
    let Some(id) = bpf::attached_program(interface).map_err(failed)? else {
        return Err(stale(interface, path, "no XDP program is attached"));
    };
    bpf::program_maps(&bpf::program_by_id(id).map_err(failed)?).map_err(failed)
}

fn open_used(interface: u32, path: &Path, used: &[u32]) -> Result<OwnedFd> {
    let failed = |error| opening(path, error);
    let descriptor: OwnedFd = bpf::pinned(path).map_err(failed)?;
    let facts = bpf::describe_map(&descriptor).map_err(failed)?;
    if !used.contains(&facts.id) {
        return Err(stale(
            interface,
            path,
            "the XDP program attached there uses other maps",
        ));
    }
    Ok(descriptor)
}

/// A pin that is somebody else's can be opened by root as it starts, no longer by root without its capabilities.
fn opening(path: &Path, error: io::Error) -> Error {
    let needs = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (millrace must run as its owner: chown it, or --owner of `millrace xdp load`)"
        }
        _ => "",
    };
    Error::system(
        format!("opening the pinned map {}{needs}", path.display()),
        error,
    )
}

fn stale(interface: u32, path: &Path, reason: &str) -> Error {
    Error::StaleMaps {
        interface,
        path: PathBuf::from(path),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_of_somebody_elses_says_whose_it_must_be() {
        let said = |kind: io::ErrorKind| opening(Path::new("/pin"), kind.into()).to_string();
        let denied = said(io::ErrorKind::PermissionDenied);
        assert!(denied.starts_with("opening the pinned map /pin (millrace must "));
        assert!(said(io::ErrorKind::NotFound).starts_with("opening the pinned map /pin: "));
    }
}
