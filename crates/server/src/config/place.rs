//! Where something was written, for error messages.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A line of a configuration file, or the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    file: Arc<str>,
    /// Counted from 1; `None` where there are no lines.
    line: Option<usize>,
}

impl Place {
    pub fn line_of(file: &str, line: Option<usize>) -> Place {
        Place {
            file: file.into(),
            line,
        }
    }

    /// The folder of the file.
    pub fn folder(&self) -> &Path {
        Path::new(&*self.file).parent().unwrap_or(Path::new(""))
    }

    pub fn command_line() -> Place {
        Place {
            file: "command line".into(),
            line: None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}
