//! Why the daemon does not start, and how that is said.

use crate::commands::say_why;
use crate::config::ConfigError;
use crate::{log, notify};
use std::io;
use std::process::ExitCode;

/// Why the daemon does not start.
pub(super) enum StartError {
    Config(ConfigError),
    /// What was tried, and the kernel's reason.
    System(String),
}

impl StartError {
    /// For the process that was to be succeeded.
    pub(super) fn reason(&self) -> String {
        match self {
            StartError::Config(error) => error.lines().join("\n"),
            StartError::System(reason) => reason.clone(),
        }
    }

    /// Says it in the log; the exit status.
    pub(super) fn say(&self) -> ExitCode {
        match self {
            StartError::Config(error) => {
                say_why(error);
                error.status_of_start(notify::is_heard()).into()
            }
            StartError::System(reason) => {
                log::error!("{reason}");
                ExitCode::FAILURE
            }
        }
    }
}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> StartError {
        StartError::Config(error)
    }
}

pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let what = what.into();
    move |error| StartError::System(format!("{what}: {error}"))
}
