//! Ctrl-C as an event that can be awaited together with the end of a process.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::process::Process;
use crate::{During, Failure, Outcome, again_if_interrupted};

/// SIGINT and SIGTERM, taken from their default action for the rest of the process's life.
pub(crate) struct Signals {
    descriptor: SignalFd,
}

impl Signals {
    /// Blocks them for this thread and those it starts; children need `sys::unblock_signals`.
    pub(crate) fn take() -> Outcome<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block().during("blocking SIGINT and SIGTERM")?;
        let descriptor =
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).during("making a signalfd")?;
        Ok(Self { descriptor })
    }

    /// True if one has come, waiting for at most `limit`. It stays to be seen again.
    pub(crate) fn came(&self, limit: Duration) -> bool {
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut descriptors = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        again_if_interrupted(|| Ok(poll(&mut descriptors, timeout)?)).is_ok_and(|ready| ready > 0)
    }

    /// Waits for a signal; the end of one of the processes before it is a failure.
    pub(crate) fn await_stop(&self, processes: &mut [&mut Process]) -> Outcome<()> {
        let mut descriptors = vec![PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        descriptors.extend(
            processes
                .iter()
                .map(|process| PollFd::new(process.descriptor(), PollFlags::POLLIN)),
        );
        again_if_interrupted(|| Ok(poll(&mut descriptors, PollTimeout::NONE)?))
            .during("waiting")?;
        let ready: Vec<bool> = descriptors
            .iter()
            .map(|descriptor| descriptor.any().unwrap_or(false))
            .collect();
        drop(descriptors);
        if ready[0] {
            return Ok(());
        }
        for process in processes {
            if let Some(status) = process.ended_within(Duration::ZERO)? {
                return Err(Failure::new(format!(
                    "{} ended by itself: {status}",
                    process.name()
                )));
            }
        }
        Ok(())
    }
}
