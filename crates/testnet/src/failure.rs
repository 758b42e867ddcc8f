//! Why something in the laboratory did not work: text for a person, nothing else reads it.

use std::fmt;

/// One sentence that says what failed, where, and why; the outermost cause stands first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

/// What everything in the laboratory returns.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Says during what an error came up.
pub trait During<T> {
    /// Turns the error into a `Failure` that starts with `what`.
    fn during(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: fmt::Display> During<T> for Result<T, E> {
    fn during(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}
