//! What can be wrong with a configuration.

use super::place::Place;
use std::fmt;

/// Why there is no configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// The file could not be read: its path and the system's reason.
    Unreadable { path: String, reason: String },
    /// Lua stopped there: a syntax error, an unknown name, a wrong argument. The text begins with `FILE:LINE: `.
    Lua(String),
    /// A file called `os.exit` with this status.
    Exit { place: Place, status: i32 },
    /// The file ran to its end, and these things that it says do not fit together.
    Faults(Vec<Fault>),
}

/// One thing that is wrong, with the line that says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub place: Place,
    pub text: String,
}

impl ConfigError {
    /// One line per thing that is wrong.
    pub fn lines(&self) -> Vec<String> {
        match self {
            ConfigError::Faults(faults) => faults.iter().map(Fault::to_string).collect(),
            other => vec![other.to_string()],
        }
    }

    /// The exit status of a check that met this.
    pub fn status(&self) -> u8 {
        self.status_or(1)
    }

    /// The exit status of a start that met this: dnsdist's 1, or 78, which tells a service manager that another try is in vain.
    pub fn status_of_start(&self, is_managed: bool) -> u8 {
        self.status_or(if is_managed { EX_CONFIG } else { 1 })
    }

    fn status_or(&self, usual: u8) -> u8 {
        match self {
            // The kernel keeps the low eight bits of an exit status.
            ConfigError::Exit { status, .. } => *status as u8,
            _ => usual,
        }
    }
}

/// "Something was found in an unconfigured or misconfigured state" (sysexits.h); systemd calls it CONFIG.
const EX_CONFIG: u8 = 78;

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable { path, reason } => {
                write!(f, "{path}: cannot be read: {reason}")
            }
            ConfigError::Lua(text) => f.write_str(text),
            ConfigError::Exit { place, status } => {
                write!(f, "{place}: os.exit({status}) was called")
            }
            ConfigError::Faults(_) => f.write_str(&self.lines().join("\n")),
        }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}
