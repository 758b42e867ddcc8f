//! What is asked: messages in wire format, read once before the run and sent over and over.
//!
//! ```text
//!  octets   │ message 0 │ message 1 │ message 2 │ …      read in this order, so the next one is mostly in the cache
//!  entries  │ start, length, question's length, sum │ …
//! ```

mod binary;
mod edns_option;
pub mod text;

pub use edns_option::{EdnsOption, network};
pub use text::Style;

use crate::expected::{Expectations, Expected};
use crate::failure::{During, Failure, Outcome};
use std::path::Path;
use wire::checksum::Sum;
use wire::frame::Family;
use wire::message::{HEADER_LENGTH, parse_query};

/// What carries messages, and so how long one may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A frame of an AF_XDP chunk.
    Frame,
    /// A datagram of a kernel socket, which the kernel sends in fragments where the way needs it.
    Datagram(Family),
    /// A TCP connection.
    Stream,
}

impl Carrier {
    /// The longest message, in octets.
    pub const fn length_max(self) -> usize {
        match self {
            // A chunk's 1,792 less the headers of IPv6 and a VLAN tag.
            Carrier::Frame => xsk::ROOM - 66,
            // Length of IPv4 (RFC 791 §3.1): header 20 and UDP's 8 with the message, 65,535 together.
            Carrier::Datagram(Family::V4) => 65_535 - 28,
            // Payload length of IPv6 (RFC 8200 §3): UDP's 8 with the message.
            Carrier::Datagram(Family::V6) => 65_535 - 8,
            // Two octets of length in front (RFC 1035 §4.2.2).
            Carrier::Stream => 65_535,
        }
    }

    /// Whether it carries a message of so many octets.
    ///
    /// # Errors
    /// What it carries at most, and what would carry more.
    fn check(self, length: usize) -> Result<(), String> {
        let most = self.length_max();
        if length <= most {
            return Ok(());
        }
        let limit = match self {
            Carrier::Frame => {
                "fit a frame of AF_XDP; longer ones go with -T, or by `floodgate sockets`"
            }
            Carrier::Datagram(_) => "fit a datagram; longer ones go with -m tcp",
            Carrier::Stream => "are a message",
        };
        Err(format!(
            "a message of {length} octets: at most {most} {limit}"
        ))
    }
}

/// All messages of a run. Their IDs are set when they are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    octets: Vec<u8>,
    entries: Vec<Entry>,
    /// What answers must say, by number; empty where nothing is expected of any.
    expected: Vec<Option<Expected>>,
    /// How many lines were left out, and what is wrong with the first of them.
    left_out: Option<(usize, Failure)>,
    /// How many lines were read without what is behind name and type, and what is wrong with that of the first of them.
    shortened: Option<(usize, Failure)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    start: u32,
    length: u16,
    /// Octets of name, type and class; 0 where the message is not a query that can be understood.
    question_length: u16,
    /// What [`summed`] says, folded.
    sum: u16,
}

/// A message, and the sum for its checksum (RFC 1071) without the ID, which is another one each time it is sent.
pub fn summed(message: &[u8]) -> (&[u8], Sum) {
    let behind_id = message.get(2..).unwrap_or(message);
    (message, Sum::ZERO.bytes(behind_id))
}

/// One message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'q> {
    /// The whole message; its first two octets are replaced by the ID.
    pub message: &'q [u8],
    /// Name, type and class, as an answer must repeat them; empty where the message has none.
    pub question: &'q [u8],
    /// What the answer must say, if anything.
    pub expected: Option<&'q Expected>,
}

/// How a file of questions is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line each: name, type, flags.
    Text(Style),
    /// The same, less the lines that are wrong.
    TextThatIsRight(Style),
    /// The length in two octets, most significant first, and the message, which this is to carry.
    Binary(Carrier),
}

impl Format {
    /// What a file without queries should have.
    const fn expected(&self) -> &'static str {
        match self {
            Format::Binary(_) => "messages in wire format, each behind its length in two octets",
            _ => "a line each, such as `www.example.com A`",
        }
    }
}

impl Questions {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// One line: the file cannot be read, or which line or place of it is wrong, or that it has no questions.
    pub fn read(path: &Path, format: Format) -> Outcome<Questions> {
        let shown = path.display();
        let octets = if path == Path::new("-") {
            let mut octets = Vec::new();
            std::io::Read::read_to_end(&mut std::io::stdin(), &mut octets).map(|_| octets)
        } else {
            std::fs::read(path)
        };
        let octets = octets.during(format!("reading queries from {shown}"))?;
        let expected = format.expected();
        let questions = match format {
            Format::Text(style) => text::parse(&octets, style),
            Format::TextThatIsRight(style) => text::parse_what_is_right(&octets, style),
            Format::Binary(carrier) => binary::parse(&octets, carrier),
        };
        let questions = questions.during(&shown)?;
        if questions.is_empty() {
            return Err(match &questions.left_out {
                Some((_, first)) => Failure::new(format!("{shown} has no queries: {first}")),
                None => Failure::new(format!("{shown} has no queries: expected {expected}")),
            });
        }
        Ok(questions)
    }

    /// How many lines of the file are no queries and were left out, and what is wrong with the first of them.
    pub fn left_out(&self) -> Option<(usize, &Failure)> {
        self.left_out.as_ref().map(|(count, first)| (*count, first))
    }

    /// How many lines were read without what is behind name and type, and what is wrong with that of the first of them.
    pub fn shortened(&self) -> Option<(usize, &Failure)> {
        self.shortened
            .as_ref()
            .map(|(count, first)| (*count, first))
    }

    /// Adds a message.
    ///
    /// # Errors
    /// It is longer than any message, or all of them together need more than 4 GiB.
    pub fn push(&mut self, message: &[u8]) -> Outcome<()> {
        Carrier::Stream.check(message.len()).map_err(Failure::new)?;
        let start = u32::try_from(self.octets.len())
            .map_err(|_| Failure::new("more than 4 GiB of messages"))?;
        let question_length =
            parse_query(message).map_or(0, |parts| usize::from(parts.question_end) - HEADER_LENGTH);
        self.octets.extend_from_slice(message);
        self.entries.push(Entry {
            start,
            length: message.len() as u16,
            question_length: question_length as u16,
            sum: summed(message).1.fold(),
        });
        Ok(())
    }

    /// Lets answers be compared with what is expected of them.
    ///
    /// # Errors
    /// Nothing is expected of any: the file is of other names.
    pub fn expect(&mut self, expectations: &Expectations) -> Outcome<()> {
        let expected = (0..self.len()).map(|number| expectations.of(self.get(number).question));
        self.expected = expected.map(Option::<&Expected>::cloned).collect();
        if self.expected.iter().all(Option::is_none) {
            return Err(Failure::new(
                "none of the queries is among the expectations",
            ));
        }
        Ok(())
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The message of this number.
    ///
    /// # Panics
    /// Where there are not so many.
    #[inline]
    pub fn get(&self, number: usize) -> Question<'_> {
        let entry = self.entries[number];
        let message = self.message(entry);
        let question = match entry.question_length {
            0 => &[],
            length => &message[HEADER_LENGTH..HEADER_LENGTH + usize::from(length)],
        };
        Question {
            message,
            question,
            expected: self.expected.get(number).and_then(Option::as_ref),
        }
    }

    /// The message of this number and its sum, as [`summed`] has it: computed once, when it was read.
    ///
    /// # Panics
    /// Where there are not so many.
    #[inline]
    pub fn get_summed(&self, number: usize) -> (&[u8], Sum) {
        let entry = self.entries[number];
        (self.message(entry), Sum::ZERO.word(entry.sum))
    }

    #[inline]
    fn message(&self, entry: Entry) -> &[u8] {
        let start = entry.start as usize;
        &self.octets[start..start + usize::from(entry.length)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Vec<u8> {
        let questions = text::parse(text.as_bytes(), Style::default()).unwrap();
        questions.get(0).message.to_vec()
    }

    #[test]
    fn a_question_is_name_type_and_class() {
        let mut questions = Questions::default();
        questions.push(&written("a.example TXT E")).unwrap();
        let question = questions.get(0);
        assert_eq!(question.question, b"\x01a\x07example\0\0\x10\0\x01");
        assert_eq!(question.message.len(), 12 + question.question.len() + 11);
    }

    #[test]
    fn what_is_no_query_is_sent_and_has_no_question() {
        let mut questions = Questions::default();
        questions.push(b"\0\0\x80").unwrap();
        questions.push(&[]).unwrap();
        assert_eq!(questions.get(0).message, b"\0\0\x80");
        assert_eq!(
            (questions.get(0).question, questions.get(1).question),
            (&[][..], &[][..])
        );
    }

    #[test]
    fn what_nothing_carries_is_refused() {
        let mut questions = Questions::default();
        assert!(questions.push(&[0; 65_535]).is_ok());
        assert!(questions.push(&[0; 65_536]).is_err());
        assert_eq!(questions.get(0).message.len(), 65_535);
    }

    #[test]
    fn missing_and_empty_files_are_named() {
        let missing = Path::new("/nonexistent/queries");
        let error = Questions::read(missing, Format::Binary(Carrier::Frame))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("reading queries from /nonexistent/queries: "),
            "{error}"
        );
        let empty = tempfile::NamedTempFile::new().unwrap();
        let error = Questions::read(empty.path(), Format::Text(Style::default())).unwrap_err();
        let expected = "has no queries: expected a line each";
        assert!(error.to_string().contains(expected), "{error}");
        let error = Questions::read(empty.path(), Format::Binary(Carrier::Frame)).unwrap_err();
        let expected = "has no queries: expected messages in wire format";
        assert!(error.to_string().contains(expected), "{error}");
        std::fs::write(empty.path(), "a..b A\nc\n").unwrap();
        let format = Format::TextThatIsRight(Style::default());
        let error = Questions::read(empty.path(), format).unwrap_err();
        assert!(
            error.to_string().contains("has no queries: line 1: `a..b`"),
            "{error}"
        );
    }
}
