//! Ctrl-C, and the end of the terminal, as an event that can be awaited together with the end of a process.

use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::process::Process;
use crate::{During, Failure, Outcome, again_if_interrupted};

/// SIGINT, SIGTERM and SIGHUP, taken from their default action for the rest of the process's life: a terminal that is closed
/// leaves no lab behind. SIGHUP is left alone where it is ignored, as nohup(1) has it.
pub(crate) struct Signals {
    descriptor: SignalFd,
}

impl Signals {
    /// Blocks them for this thread and those it starts; children need `sys::unblock_signals`.
    pub(crate) fn take() -> Outcome<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if !is_hangup_ignored(&status) {
            set.add(Signal::SIGHUP);
        }
        set.thread_block()
            .during("blocking SIGINT, SIGTERM and SIGHUP")?;
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

/// What ends a run of this process as a whole: [`stop_in_order`].
static STOP: OnceLock<Signals> = OnceLock::new();

/// From now on a signal does not end this process: [`go_on`] fails, and whoever has a lab drops it, which removes it. Before
/// other threads are started.
pub(crate) fn stop_in_order() -> Outcome<()> {
    let signals = Signals::take()?;
    // Who was first has the same.
    let _ = STOP.set(signals);
    Ok(())
}

/// Fails once a signal has come, where [`stop_in_order`] was called.
pub(crate) fn go_on() -> Outcome<()> {
    let stop = STOP.get();
    match stop.is_some_and(|signals| signals.came(Duration::ZERO)) {
        true => Err(Failure::new("stopped by a signal")),
        false => Ok(()),
    }
}

/// Whether a process ignores SIGHUP, by its /proc/PID/status (proc_pid_status(5)): a signal that is blocked would come all the
/// same.
fn is_hangup_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let hangup = 1_u64 << (Signal::SIGHUP as u32 - 1);
    mask.is_some_and(|mask| mask & hangup != 0)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::ledger::Ledger;

    #[test]
    fn a_signal_ends_what_is_awaited() {
        // On a thread of its own, which blocks signals and then is gone.
        std::thread::spawn(stopped_while_it_awaits).join().unwrap();
    }

    fn stopped_while_it_awaits() {
        stop_in_order().unwrap();
        go_on().unwrap();
        let prefix = format!("signals-test-{}", std::process::id());
        let ledger = Ledger::open(&prefix).unwrap();
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let mut process = Process::new("sleep", child, &ledger).unwrap();
        // To this thread alone: other tests do not see it.
        nix::sys::signal::raise(Signal::SIGTERM).unwrap();
        let failure = process
            .until(Duration::from_secs(600), "what never is so", || Ok(false))
            .unwrap_err();
        assert_eq!(failure.to_string(), "stopped by a signal");
        drop(process);
        ledger.remove();
    }

    #[test]
    fn a_hangup_that_is_ignored_is_seen() {
        let status = |command: &str| {
            let output = Command::new("sh")
                .args(["-c", command])
                .stderr(Stdio::null())
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let ignoring = status("trap '' HUP; cat /proc/self/status");
        assert!(is_hangup_ignored(&ignoring));
        assert!(!is_hangup_ignored("SigIgn:\t0000000000001000\n"));
        assert!(!is_hangup_ignored(""));
    }
}
