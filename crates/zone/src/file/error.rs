//! What is wrong with a zone file, and where.

use std::fmt;
use std::sync::Arc;

/// An error in a zone file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file's name, as the caller or `$INCLUDE` gave it.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Octet within the line, from 1.
    pub column: u32,
    /// What is wrong, how much, and what would be right.
    pub what: String,
    /// Nothing more of the zone will be read: a bound was exceeded, or a file could not be read.
    pub is_last: bool,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileError {
            file, line, column, ..
        } = self;
        write!(f, "{file}:{line}:{column}: {}", self.what)
    }
}

impl std::error::Error for FileError {}
