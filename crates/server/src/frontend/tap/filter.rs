//! The filter of a mirror: a few words, all of which must hold.
//!
//! | word | holds for |
//! | --- | --- |
//! | `host ADDRESS` | packets from or to it |
//! | `port NUMBER` | UDP from or to it |
//! | `name NAME` | questions for it or anything below it |
//! | `rcode NAME` | responses with this code (`NXDOMAIN`, `3`) |
//! | `query`, `response` | DNS messages of this kind |
//! | `in`, `out` | what was received, what was sent |

use std::fmt;
use std::net::IpAddr;
use wire::codes::rcode;
use wire::frame::Packet;
use wire::message::{HEADER_LENGTH, Header};
use wire::name::{Name, NameBuf};

/// Without words everything passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter(Vec<Word>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Host(IpAddr),
    Port(u16),
    Name(NameBuf),
    RCode(u8),
    /// QR is set.
    Response(bool),
    Received(bool),
}

/// Why words are no filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterError {
    Unknown(String),
    Missing(String),
    Wrong(String, String),
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterError::Unknown(word) => write!(
                f,
                "'{word}' is no word of a filter: host ADDRESS, port NUMBER, name NAME, rcode NAME, query, response, in, out"
            ),
            FilterError::Missing(word) => write!(f, "something is missing behind '{word}'"),
            FilterError::Wrong(word, value) => write!(f, "{word}: '{value}' is none"),
        }
    }
}

impl std::error::Error for FilterError {}

impl Filter {
    /// Reads the words of a command line.
    ///
    /// # Errors
    /// See [`FilterError`].
    pub fn read(words: &[String]) -> Result<Filter, FilterError> {
        let mut words = words.iter().flat_map(|words| words.split_whitespace());
        let mut filter = Filter::default();
        while let Some(word) = words.next() {
            filter.0.push(match word {
                "query" => Word::Response(false),
                "response" => Word::Response(true),
                "in" => Word::Received(true),
                "out" => Word::Received(false),
                "host" | "port" | "name" | "rcode" => {
                    let missing = || FilterError::Missing(word.to_owned());
                    with_value(word, words.next().ok_or_else(missing)?)?
                }
                other => return Err(FilterError::Unknown(other.to_owned())),
            });
        }
        Ok(filter)
    }

    /// Whether a frame passes.
    pub fn matches(&self, frame: &[u8], received: bool) -> bool {
        if self.0.is_empty() {
            return true;
        }
        // A partial checksum is no reason not to show it.
        let packet = Packet::parse(frame, true).ok();
        let message = packet.as_ref().and_then(|packet| message(frame, packet));
        let holds = |word: &Word| match word {
            Word::Received(wanted) => received == *wanted,
            Word::Host(address) => packet.as_ref().is_some_and(|packet| {
                [packet.source.ip(), packet.destination.ip()].contains(address)
            }),
            Word::Port(number) => packet.as_ref().is_some_and(|packet| {
                [packet.source.port(), packet.destination.port()].contains(number)
            }),
            Word::Response(wanted) => header(message).is_some_and(|header| header.qr() == *wanted),
            Word::RCode(code) => {
                header(message).is_some_and(|header| header.qr() && header.rcode() == *code)
            }
            Word::Name(name) => {
                let question = message.and_then(|message| message.get(HEADER_LENGTH..));
                let asked = question.and_then(|question| Name::parse(question).ok());
                asked.is_some_and(|asked| asked.is_within(&name.as_name()))
            }
        };
        self.0.iter().all(holds)
    }
}

fn with_value(word: &str, value: &str) -> Result<Word, FilterError> {
    let read = match word {
        "host" => value.parse().ok().map(Word::Host),
        "port" => value.parse().ok().map(Word::Port),
        "name" => value.parse().ok().map(Word::Name),
        _ => {
            let code = rcode::number(value).or_else(|| value.parse().ok());
            code.filter(|code| *code < 16)
                .map(|code| Word::RCode(code as u8))
        }
    };
    read.ok_or_else(|| FilterError::Wrong(word.to_owned(), value.to_owned()))
}

/// The DNS message of a packet.
fn message<'f>(frame: &'f [u8], packet: &Packet) -> Option<&'f [u8]> {
    let start = usize::from(packet.payload_start);
    frame.get(start..start + usize::from(packet.payload_length))
}

fn header(message: Option<&[u8]>) -> Option<Header> {
    Header::read(message?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::scene::query;
    use wire::codes::qtype;
    use wire::frame::{Headers, write_headers};

    /// A frame from 192.0.2.9:4242 to 192.0.2.1:53 with a question for www.example.
    fn frame(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut message = query("www.example.", qtype::A);
        change(&mut message);
        let mut chunk = vec![0; 64];
        chunk.extend(&message);
        let headers = Headers {
            source_mac: &[2, 0, 0, 0, 0, 9],
            destination_mac: &[2, 0, 0, 0, 0, 1],
            source: &"192.0.2.9:4242".parse().unwrap(),
            destination: &"192.0.2.1:53".parse().unwrap(),
            code_point: 0,
        };
        let head = write_headers(&mut chunk, 64, message.len(), &headers).unwrap();
        chunk.split_off(head)
    }

    fn filter(text: &str) -> Filter {
        Filter::read(&[text.to_owned()]).unwrap()
    }

    #[test]
    fn all_words_must_hold() {
        let query = frame(|_| {});
        // QR and NXDOMAIN.
        let response = frame(|message| {
            message[2] |= 0x80;
            message[3] |= 3;
        });
        for (text, of_query, of_response) in [
            ("", true, true),
            ("host 192.0.2.9", true, true),
            ("host 192.0.2.7", false, false),
            ("port 53 port 4242", true, true),
            ("port 5353", false, false),
            ("name example", true, true),
            ("name WWW.example. query", true, false),
            ("name x.www.example", false, false),
            ("rcode nxdomain", false, true),
            ("rcode 3 response in", false, true),
            ("rcode servfail", false, false),
            ("out", false, false),
        ] {
            let filter = filter(text);
            assert_eq!(filter.matches(&query, true), of_query, "{text}");
            assert_eq!(filter.matches(&response, true), of_response, "{text}");
        }
        assert!(filter("out").matches(&query, false));
        assert!(!filter("port 53").matches(b"no packet", true));
        assert!(filter("").matches(b"no packet", true));
    }

    #[test]
    fn other_words_are_told_what_would_be_right() {
        let error = |text: &str| Filter::read(&[text.to_owned()]).unwrap_err();
        assert_eq!(error("and"), FilterError::Unknown("and".to_owned()));
        assert_eq!(error("port"), FilterError::Missing("port".to_owned()));
        for text in ["host x", "port 70000", "name a..b", "rcode 16", "rcode x"] {
            assert!(matches!(error(text), FilterError::Wrong(..)), "{text}");
        }
    }
}
