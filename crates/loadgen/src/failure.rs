//! Why something did not work: one line for the person at the keyboard, nothing else reads it.

use std::fmt;

/// What failed, where, why, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

/// What everything returns that can fail outside the loops that send.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure with this text: one line.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<xsk::Error> for Failure {
    fn from(error: xsk::Error) -> Failure {
        Failure(error.to_string())
    }
}

/// Says during what an error came up.
pub trait During<T> {
    /// Turns the error into a [`Failure`] that starts with `what`.
    fn during(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: fmt::Display> During<T> for Result<T, E> {
    fn during(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}
