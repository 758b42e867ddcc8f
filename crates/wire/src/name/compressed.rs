//! Names as they lie in messages, with compression pointers (RFC 1035 §4.1.4), between hard limits: every pointer leads
//! to a place behind the header and before the run of labels that it ends, so that there are no loops; at most 127 are
//! followed; no name grows past 255 octets, and so none past 127 labels.

use super::{LABELS_MAX, NAME_LENGTH_MAX, Name, NameError};

/// Octets of the message's header, where no name can be.
const HEADER_LENGTH: usize = 12;

/// The place behind the name at `start` of `message`: behind its root octet or its pointer. Checks what lies between and
/// that the pointer leads back, but does not follow it: the cost is that of the octets skipped.
///
/// # Errors
/// What is wrong with the name.
#[inline]
pub fn skip(message: &[u8], start: usize) -> Result<usize, NameError> {
    let mut at = start;
    loop {
        match step(message, at, start)? {
            Step::Root => return Ok(at + 1),
            Step::Pointer(_) => return Ok(at + 2),
            Step::Label(length) => at += 1 + length,
        }
        if at - start >= NAME_LENGTH_MAX {
            return Err(NameError::TooLong);
        }
    }
}

/// Writes the name at `start` of `message`, uncompressed, to the start of `buffer`, and returns it from there.
///
/// # Errors
/// What is wrong with the name.
pub fn expand<'b>(
    message: &[u8],
    start: usize,
    buffer: &'b mut [u8; NAME_LENGTH_MAX],
) -> Result<Name<'b>, NameError> {
    let mut written = 0;
    let mut at = start;
    let mut run_start = start;
    let mut pointers = 0;
    loop {
        match step(message, at, run_start)? {
            Step::Root => {
                // Labels leave room for this octet.
                buffer[written] = 0;
                return Ok(Name::measured(&buffer[..=written]));
            }
            Step::Pointer(target) if pointers < LABELS_MAX => {
                pointers += 1;
                at = target;
                run_start = target;
            }
            Step::Pointer(_) => return Err(NameError::Pointer),
            Step::Label(length) => {
                let label = message.get(at..=at + length).ok_or(NameError::Truncated)?;
                let end = written + label.len();
                if end >= NAME_LENGTH_MAX {
                    return Err(NameError::TooLong);
                }
                buffer[written..end].copy_from_slice(label);
                written = end;
                at += label.len();
            }
        }
    }
}

enum Step {
    Root,
    /// Octets of the label, without its length octet.
    Label(usize),
    /// Where it leads.
    Pointer(usize),
}

/// What stands at `at`, in a run of labels that began at `run_start`.
#[inline]
fn step(message: &[u8], at: usize, run_start: usize) -> Result<Step, NameError> {
    let first = *message.get(at).ok_or(NameError::Truncated)?;
    match first {
        0 => Ok(Step::Root),
        1..=63 => Ok(Step::Label(usize::from(first))),
        0xc0.. => {
            let second = *message.get(at + 1).ok_or(NameError::Truncated)?;
            let target = usize::from(first & 0x3f) << 8 | usize::from(second);
            // RFC 1035 §4.1.4: "a pointer to a prior occurance of the same name".
            if target < HEADER_LENGTH || target >= run_start {
                return Err(NameError::Pointer);
            }
            Ok(Step::Pointer(target))
        }
        _ => Err(NameError::LabelType),
    }
}
