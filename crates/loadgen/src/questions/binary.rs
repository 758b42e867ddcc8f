//! Queries as messages in wire format, each behind its length in two octets, as over TCP (RFC 1035 §4.2.2).
//!
//! ```text
//! length 2 │ message … │ length 2 │ message … │
//! ```
//!
//! Messages may be anything: they go out as they are, but for their first two octets, the ID.

use super::{Carrier, Questions};
use crate::failure::{Failure, Outcome};

/// Reads messages that `carrier` is to carry.
///
/// # Errors
/// The place of the first message that runs past the end or is too long.
pub(super) fn parse(octets: &[u8], carrier: Carrier) -> Outcome<Questions> {
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
        carrier.check(length).map_err(wrong)?;
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
    use wire::frame::Family;

    #[test]
    fn messages_follow_each_other() {
        let questions = parse(b"\0\x03abc\0\0\0\x01d", Carrier::Frame).unwrap();
        let messages: Vec<_> = (0..3).map(|number| questions.get(number).message).collect();
        assert_eq!(messages, [&b"abc"[..], b"", b"d"]);
    }

    #[test]
    fn what_runs_past_the_end_is_named_with_its_place() {
        let failure = |octets: &[u8]| parse(octets, Carrier::Frame).unwrap_err().to_string();
        assert_eq!(
            failure(b"\0\x01a\0\x05abcd"),
            "octet 3: a message of 5 octets, but only 4 follow"
        );
        assert_eq!(
            failure(b"\0\x01a\0"),
            "octet 3: one octet where the length takes two"
        );
    }

    #[test]
    fn each_carrier_takes_what_it_can_carry_and_names_another_one() {
        for (carrier, most, other) in [
            (Carrier::Frame, 1726, "-T, or by `floodgate sockets`"),
            (Carrier::Datagram(Family::V4), 65_507, "-m tcp"),
            (Carrier::Datagram(Family::V6), 65_527, "-m tcp"),
            (Carrier::Stream, 65_535, ""),
        ] {
            let file = |length: u16| {
                let mut octets = length.to_be_bytes().to_vec();
                octets.resize(2 + usize::from(length), 0);
                octets
            };
            assert!(parse(&file(most), carrier).is_ok(), "{carrier:?}");
            let Some(longer) = most.checked_add(1) else {
                continue;
            };
            let failure = parse(&file(longer), carrier).unwrap_err().to_string();
            let says = format!("octet 0: a message of {longer} octets: at most {most} fit ");
            assert!(failure.starts_with(&says), "{failure}");
            assert!(failure.ends_with(other), "{failure}");
        }
    }
}
