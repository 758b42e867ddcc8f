//! The program that a restart starts: the one that this process was started from, as it is on the disk by then.

use super::{HelperError, started};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The argument that tells a process whose standard input is: it is to succeed the process at its other end.
pub const SUCCEED: &str = "--succeed";

/// Its path and arguments, as they were at the start: an upgrade has put another file there when it is needed, and
/// /proc/self/exe would name the one that is gone.
#[derive(Debug, Clone)]
pub(super) struct OwnProgram {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Default for OwnProgram {
    fn default() -> OwnProgram {
        let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        arguments.retain(|argument| argument != SUCCEED);
        OwnProgram {
            path: std::env::current_exe().unwrap_or_default(),
            arguments,
        }
    }
}

impl OwnProgram {
    /// Starts it; the number of its process. Whoever watches over this process by its number must not watch over that one by
    /// it, and sockets that came with this one's start are none of its: so these variables are left out.
    pub(super) fn start(&self, end: OwnedFd) -> Result<i32, HelperError> {
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .arg(SUCCEED)
            .env_remove("WATCHDOG_PID")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .stdin(Stdio::from(end));
        let child = command.spawn().map_err(|error| {
            let error =
                std::io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
            started(error)
        })?;
        Ok(child.id() as i32)
    }
}
