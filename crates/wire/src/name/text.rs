//! Names as people write them (RFC 1035 §5.1, RFC 4343 §2.1).

use super::{LABEL_LENGTH_MAX, NAME_LENGTH_MAX, Name};
use std::fmt::{self, Write};

/// Why text is not a name. Places are octets from the start of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameTextError {
    /// Nothing there at all.
    Empty,
    /// Two dots in a row, or one at the beginning.
    EmptyLabel { at: usize },
    /// A label that ends at this place has more than 63 octets.
    LabelTooLong { at: usize, length: usize },
    /// More than 255 octets on the wire.
    TooLong { length: usize },
    /// A backslash with neither three digits up to 255 nor a single other character behind it.
    Escape { at: usize },
}

impl fmt::Display for NameTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameTextError::Empty => f.write_str("empty name: the root is written '.'"),
            NameTextError::EmptyLabel { at } => {
                write!(
                    f,
                    "empty label at octet {at}: a dot may only stand between labels and at the end"
                )
            }
            NameTextError::LabelTooLong { at, length } => {
                write!(
                    f,
                    "label that ends at octet {at} has {length} octets: 63 are allowed"
                )
            }
            NameTextError::TooLong { length } => {
                write!(f, "name needs {length} octets on the wire: 255 are allowed")
            }
            NameTextError::Escape { at } => {
                write!(
                    f,
                    "bad escape at octet {at}: a backslash takes one character, or three digits from 000 to 255"
                )
            }
        }
    }
}

impl std::error::Error for NameTextError {}

/// Writes the name with its dot at the end. Dots and backslashes within labels get a backslash; what is not a printing
/// ASCII character is written `\DDD`, the space too.
pub(super) fn write(name: &Name<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if name.is_root() {
        return f.write_char('.');
    }
    for label in name.labels() {
        for octet in label {
            match octet {
                b'.' | b'\\' => write!(f, "\\{}", char::from(*octet))?,
                0x21..=0x7e => f.write_char(char::from(*octet))?,
                _ => write!(f, "\\{octet:03}")?,
            }
        }
        f.write_char('.')?;
    }
    Ok(())
}

/// The octets on the wire of a name in text.
pub(super) fn read(text: &[u8]) -> Result<Vec<u8>, NameTextError> {
    match text {
        [] => return Err(NameTextError::Empty),
        b"." => return Ok(vec![0]),
        _ => {}
    }
    let mut wire = Vec::with_capacity(text.len() + 2);
    let mut at = 0;
    while at < text.len() {
        at = read_label(text, at, &mut wire)?;
    }
    wire.push(0);
    match wire.len() {
        ..=NAME_LENGTH_MAX => Ok(wire),
        length => Err(NameTextError::TooLong { length }),
    }
}

/// Reads one label and the dot behind it, if there is one; returns the place behind.
fn read_label(text: &[u8], mut at: usize, wire: &mut Vec<u8>) -> Result<usize, NameTextError> {
    let length_at = wire.len();
    wire.push(0);
    while let Some(octet) = text.get(at).filter(|octet| **octet != b'.') {
        if *octet == b'\\' {
            let (octet, length) =
                read_escape(&text[at + 1..]).ok_or(NameTextError::Escape { at })?;
            wire.push(octet);
            at += 1 + length;
        } else {
            wire.push(*octet);
            at += 1;
        }
    }
    match wire.len() - length_at - 1 {
        0 => return Err(NameTextError::EmptyLabel { at }),
        length @ ..=LABEL_LENGTH_MAX => wire[length_at] = length as u8,
        length => return Err(NameTextError::LabelTooLong { at, length }),
    }
    Ok(at + 1)
}

/// The octet that an escape means, and how long it is without its backslash.
fn read_escape(text: &[u8]) -> Option<(u8, usize)> {
    match text {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => {
            let number = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
            Some((u8::try_from(number).ok()?, 3))
        }
        [b'0'..=b'9', ..] | [] => None,
        [octet, ..] => Some((*octet, 1)),
    }
}
