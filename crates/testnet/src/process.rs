//! A process that the lab started: awaited by event, ended by its own descriptor's process only.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::ledger::Ledger;
use crate::{During, Failure, Outcome, again_if_interrupted, signals, sys};

/// A running child. Dropping it kills it; `terminate` asks first.
pub struct Process {
    name: String,
    child: Child,
    descriptor: OwnedFd,
}

impl Process {
    /// Takes over a child and writes it into the lab's ledger.
    pub fn new(name: &str, child: Child, ledger: &Ledger) -> Outcome<Self> {
        let descriptor = sys::process_descriptor(child.id()).during(format!("watching {name}"))?;
        ledger.add(child.id(), name)?;
        Ok(Self {
            name: name.to_owned(),
            child,
            descriptor,
        })
    }

    /// What it was called when it was started.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Becomes readable when it ends.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Its number, for whoever looks at /proc.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Awaits its end for at most `limit`; `None` means that it still runs.
    pub fn ended_within(&mut self, limit: Duration) -> Outcome<Option<ExitStatus>> {
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut ends = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        let ended = again_if_interrupted(|| Ok(poll(&mut ends, timeout)?))
            .during(format!("waiting for {}", self.name))?;
        if ended == 0 {
            return Ok(None);
        }
        self.child
            .wait()
            .map(Some)
            .during(format!("waiting for {}", self.name))
    }

    /// Asks again and again until it is so; the process's end stops the waiting at once.
    pub fn until(
        &mut self,
        within: Duration,
        what: &str,
        mut is_so: impl FnMut() -> Outcome<bool>,
    ) -> Outcome<()> {
        let deadline = Instant::now() + within;
        while !is_so()? {
            signals::go_on()?;
            if let Some(status) = self.ended_within(Duration::from_millis(5))? {
                return Err(Failure::new(format!(
                    "{} ended by itself ({status}), waiting for {what}",
                    self.name
                )));
            }
            if Instant::now() > deadline {
                return Err(Failure::new(format!(
                    "waited {} s for {what}",
                    within.as_secs_f32()
                )));
            }
        }
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Outcome<()> {
        // The child is not reaped before we wait for it, so its number cannot belong to another yet.
        kill(Pid::from_raw(self.child.id() as i32), signal)
            .during(format!("sending {signal} to {}", self.name))
    }

    /// Sends SIGTERM and returns how it ended; more than `limit` is a failure.
    pub fn terminate(&mut self, limit: Duration) -> Outcome<ExitStatus> {
        if let Some(status) = self.ended_within(Duration::ZERO)? {
            return Err(Failure::new(format!(
                "{} had ended by itself: {status}",
                self.name
            )));
        }
        self.signal(Signal::SIGTERM)?;
        self.ended_within(limit)?.ok_or_else(|| {
            Failure::new(format!(
                "{} still ran {} s after SIGTERM",
                self.name,
                limit.as_secs_f32()
            ))
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
