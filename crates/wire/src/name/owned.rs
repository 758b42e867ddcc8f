//! A name that owns its octets.

use super::{Name, NameTextError, text};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// An owned [`Name`]: configuration, tables, keys. Not for the packet path, which borrows.
#[derive(Clone)]
pub struct NameBuf(Box<[u8]>);

impl NameBuf {
    /// The name, borrowed.
    #[inline]
    #[must_use]
    pub fn as_name(&self) -> Name<'_> {
        Name(&self.0)
    }
}

impl NameBuf {
    /// As [`NameBuf::from_str`]; octets above 127 stand for themselves, whatever encoding the text is in.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn from_text(text: &[u8]) -> Result<NameBuf, NameTextError> {
        text::read(text).map(|octets| NameBuf(octets.into()))
    }
}

impl From<Name<'_>> for NameBuf {
    fn from(name: Name<'_>) -> NameBuf {
        NameBuf(name.as_bytes().into())
    }
}

impl FromStr for NameBuf {
    type Err = NameTextError;

    /// Reads a name as people write it, with or without the dot at the end; `.` is the root. `\.` is a dot within a
    /// label, `\065` the octet of that decimal number (RFC 1035 §5.1).
    fn from_str(text: &str) -> Result<NameBuf, NameTextError> {
        NameBuf::from_text(text.as_bytes())
    }
}

impl PartialEq for NameBuf {
    fn eq(&self, other: &NameBuf) -> bool {
        self.as_name() == other.as_name()
    }
}

impl Eq for NameBuf {}

impl PartialEq<Name<'_>> for NameBuf {
    fn eq(&self, other: &Name<'_>) -> bool {
        self.as_name() == *other
    }
}

impl Hash for NameBuf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_name().hash(state);
    }
}

impl fmt::Display for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_name().fmt(f)
    }
}

impl fmt::Debug for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
