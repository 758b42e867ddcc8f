//! Queries as messages in wire format, each behind its length in two octets, as over TCP (RFC 1035 §4.2.2).
//!
//! ```text
//! length 2 │ message … │ length 2 │ message … │
//! ```
//!
//! Messages may be anything: they go out as they are, but for their first two octets, the ID.

use super::Questions;
use crate::failure::{Failure, Outcome};

/// Reads messages.
///
/// # Errors
/// The place of the first message that runs past the end or is too long.
pub(super) fn parse(octets: &[u8]) -> Outcome<Questions> {
    let mut questions = Questions::default();
    let mut rest = octets;
    while !rest.is_empty() {
        let at = octets.len() - rest.len();
        let wrong = |what: String| Failure::new(format!("octet {at}: {what}"));
        let Some((length, behind)) = rest.split_first_chunk() else {
            return Err(wrong("one octet where the length takes two".to_owned()));
        };
        let length = usize::from(u16::from_be_bytes(*length));
        let Some((message, behind)) = behind.split_at_checked(length) else {
            return Err(wrong(format!(
                "a message of {length} octets, but only {} follow",
                behind.len()
            )));
        };
        questions
            .push(message)
            .map_err(|failure| wrong(failure.to_string()))?;
        rest = behind;
    }
    Ok(questions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_each_other() {
        let questions = parse(b"\0\x03abc\0\0\0\x01d").unwrap();
        let messages: Vec<_> = (0..3).map(|number| questions.get(number).message).collect();
        assert_eq!(messages, [&b"abc"[..], b"", b"d"]);
    }

    #[test]
    fn what_runs_past_the_end_is_named_with_its_place() {
        let failure = parse(b"\0\x01a\0\x05abcd").unwrap_err().to_string();
        assert_eq!(failure, "octet 3: a message of 5 octets, but only 4 follow");
        let failure = parse(b"\0\x01a\0").unwrap_err().to_string();
        assert_eq!(failure, "octet 3: one octet where the length takes two");
    }
}
