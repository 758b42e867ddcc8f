//! What hands a device's frames to our sockets: our own program, or somebody else's whose pinned maps we may use.

use super::helper::{Helper, HelperError};
use super::plan::{BackendPair, PlannedDevice};
use crate::config::Tuning;
use crate::log;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use xsk::{AttachMode, Foreign, Handed, Heartbeat, Program, Reason};

pub enum Attached {
    Ours(Program),
    /// dnsdist's loader put it there; the path is that of its socket map. It knows destinations only: answers of backends
    /// come by kernel sockets. It knows no heartbeat.
    Theirs(Foreign, String),
}

impl Attached {
    /// Attaches our program, or takes the maps at `map_path` where somebody else's program uses them; what it is, for the
    /// log.
    pub fn attach(
        helper: &Helper,
        interface: u32,
        map_path: Option<&str>,
        tuning: &Tuning,
    ) -> Result<(Attached, String), HelperError> {
        let (keep, mode) = (tuning.keep_xdp, tuning.attach_mode);
        match (helper.attach(interface, keep, mode), map_path) {
            (Ok((program, mode)), _) => Ok((
                Attached::Ours(program),
                format!("AF_XDP program attached in {mode}"),
            )),
            (Err(error), Some(path)) if error.is_busy() => {
                let foreign = helper.open_maps(interface, Path::new(path));
                // That of a millrace which runs has other maps: what takes it off is the first thing to say.
                let foreign = foreign.map_err(|why| error.because(&why))?;
                let line = format!(
                    "AF_XDP through the maps of somebody else's program ({path}): without heartbeat, a stalled daemon is not noticed"
                );
                Ok((Attached::Theirs(foreign, path.to_owned()), line))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Warns of queries that somebody else's program would lose, and of maps that newXsk names and no program here uses.
    pub fn warn(&self, planned: &PlannedDevice) {
        if !self.passes_without_socket()
            && let Some(line) = losses(planned)
        {
            log::warn!("{line}");
        }
        // A pin outlives the loader that made it, and its map would serve nothing. Without the right to look there is none.
        if let (Attached::Ours(_), Some(path)) = (self, planned.map_path())
            && Path::new(path).exists()
        {
            let name = &planned.device.name;
            log::warn!(
                "{name}: {path} is not used, for no program there has this map: a loader that is gone has left the pin, and our own program serves"
            );
        }
    }

    /// The cell that the worker of a queue beats in; only our program looks at one.
    pub fn heartbeat(&self, queue: u32) -> xsk::Result<Option<Heartbeat>> {
        match self {
            Attached::Ours(program) => program.heartbeat(queue).map(Some),
            Attached::Theirs(..) => Ok(None),
        }
    }

    pub fn enter(&mut self, queue: u32, socket: &impl AsFd) -> xsk::Result<()> {
        match self {
            Attached::Ours(program) => program.enter(queue, socket),
            Attached::Theirs(foreign, _) => foreign.enter(queue, socket),
        }
    }

    pub fn leave(&mut self, queue: u32) -> xsk::Result<()> {
        match self {
            Attached::Ours(program) => program.leave(queue),
            Attached::Theirs(foreign, _) => foreign.leave(queue),
        }
    }

    pub fn serve(&mut self, destination: SocketAddr) -> xsk::Result<()> {
        match self {
            Attached::Ours(program) => program.serve(destination),
            Attached::Theirs(foreign, _) => foreign.serve(destination),
        }
    }

    pub fn unserve(&mut self, destination: SocketAddr) -> xsk::Result<()> {
        match self {
            Attached::Ours(program) => program.unserve(destination),
            Attached::Theirs(foreign, _) => foreign.unserve(destination),
        }
    }

    pub fn add_backend(&mut self, pair: &BackendPair) -> xsk::Result<()> {
        match self {
            Attached::Ours(program) => program.add_backend(pair.source, pair.backend),
            Attached::Theirs(..) => Ok(()),
        }
    }

    pub fn remove_backend(&mut self, pair: &BackendPair) -> xsk::Result<()> {
        match self {
            Attached::Ours(program) => program.remove_backend(pair.source, pair.backend),
            Attached::Theirs(..) => Ok(()),
        }
    }

    pub fn open_port(&mut self, source: IpAddr, port: u16) -> xsk::Result<()> {
        match self {
            Attached::Ours(program) => program.open_port(source, port),
            Attached::Theirs(..) => Ok(()),
        }
    }

    pub fn close_port(&mut self, source: IpAddr, port: u16) {
        if let Attached::Ours(program) = self {
            program.close_port(source, port);
        }
    }

    /// How often our program judged so; theirs does not say.
    pub fn verdicts(&self) -> impl Iterator<Item = (Reason, u64)> + use<> {
        let counts = match self {
            Attached::Ours(program) => program.verdicts().ok(),
            Attached::Theirs(..) => None,
        };
        Reason::ALL.into_iter().zip(counts.into_iter().flatten())
    }

    /// From now on our program goes with this value even if it was to be kept.
    pub fn let_go(&self) {
        if let Attached::Ours(program) = self {
            program.let_go();
        }
    }

    /// The link of our program, for another process to put its own on; theirs has none.
    pub fn bequeath(&self) -> xsk::Result<Option<(Handed, Vec<OwnedFd>)>> {
        match self {
            Attached::Ours(program) => program.bequeath().map(Some),
            Attached::Theirs(..) => Ok(None),
        }
    }

    /// Our program is on its link again, after another process's.
    pub fn restore(&self) -> xsk::Result<()> {
        match self {
            Attached::Ours(program) => program.restore(),
            Attached::Theirs(..) => Ok(()),
        }
    }

    /// Our program and its link, to be put on once more ([`Program::renew`]); in generic mode that is not needed.
    pub fn ends(&self) -> xsk::Result<Option<Vec<OwnedFd>>> {
        match self {
            Attached::Ours(program) if self.is_native() => program.ends().map(Some),
            _ => Ok(None),
        }
    }

    /// Tells our program the interface's own address; theirs looks at none.
    pub fn set_mac(&self, mac: wire::frame::Mac) {
        if let Attached::Ours(program) = self {
            program.set_mac(mac);
        }
    }

    /// Whether the program is still on its interface.
    pub fn is_there(&self) -> bool {
        match self {
            Attached::Ours(program) => program.is_attached(),
            Attached::Theirs(foreign, _) => foreign.is_attached(),
        }
    }

    /// Whether frames for a queue without a socket go to the kernel; dnsdist's own program loses them.
    pub fn passes_without_socket(&self) -> bool {
        matches!(self, Attached::Ours(_))
    }

    /// In the driver, not in the kernel's stack.
    pub fn is_native(&self) -> bool {
        match self {
            Attached::Ours(program) => program.mode() != Some(AttachMode::Generic),
            Attached::Theirs(..) => true,
        }
    }
}

/// What is lost where a program does not pass what comes on a queue without a socket, for the log.
fn losses(planned: &PlannedDevice) -> Option<String> {
    let device = &planned.device;
    let is_read = |number: &u32| planned.queues.iter().any(|wish| wish.number == *number);
    let unread = (0..device.queues).filter(|number| !is_read(number));
    let unread: Vec<String> = unread.map(|number| number.to_string()).collect();
    if unread.is_empty() {
        return None;
    }
    let (name, queues) = (&device.name, unread.join(", "));
    Some(format!(
        "{name}: queries that come on its queues {queues} are lost, for no newXsk names these and somebody else's program does not pass them: one newXsk for each of the {} queues is needed, or fewer queues (ethtool -L {name})",
        device.queues
    ))
}

#[cfg(test)]
mod tests {
    use super::super::devices::Devices;
    use super::super::fixtures::{lab, listener, socket};
    use super::super::plan::plan;
    use super::*;
    use crate::config::Xdp;

    #[test]
    fn queues_that_nobody_reads_are_named() {
        let planned = |numbers: &[u32]| {
            let queues = numbers.iter().map(|number| socket("enp1s0", *number));
            let listeners = [listener("192.0.2.1:53", Xdp::Queues(queues.collect()))];
            let plan = plan(&listeners, &[], &lab(), &mut Devices::default());
            plan.devices[0].clone()
        };
        assert_eq!(losses(&planned(&[0, 1])), None);
        let line = losses(&planned(&[1])).expect("queue 0");
        assert!(line.starts_with("enp1s0: queries that come on its queues 0 are lost"));
    }
}
