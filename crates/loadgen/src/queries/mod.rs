//! Files of queries: made up, from a zone, from captured traffic.

pub mod capture;
pub mod made_up;
pub mod zone;

use crate::failure::{During, Failure, Outcome};
use std::fmt;
use std::io::Write;
use wire::codes::{QtypeText, class};
use wire::message::{QueryFlags, write_query};
use wire::name::NameBuf;

/// One query to write into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub name: NameBuf,
    pub qtype: u16,
    pub edns: Edns,
}

/// What a query of a file says of EDNS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edns {
    #[default]
    None,
    Plain,
    DnssecOk,
}

impl Asked {
    /// A query without EDNS.
    pub fn new(name: NameBuf, qtype: u16) -> Asked {
        Asked {
            name,
            qtype,
            edns: Edns::None,
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = match self.edns {
            Edns::None => "",
            Edns::Plain => " E",
            Edns::DnssecOk => " D",
        };
        let name = self.name.to_string();
        // Lines that begin so are comments (`questions::text`).
        let escape = if name.starts_with([';', '#']) {
            "\\"
        } else {
            ""
        };
        write!(f, "{escape}{name} {}{flag}", QtypeText(self.qtype))
    }
}

/// Writes queries as lines of text, or in wire format behind their lengths.
pub struct Writer<W> {
    out: W,
    binary: bool,
    written: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W, binary: bool) -> Writer<W> {
        Writer {
            out,
            binary,
            written: 0,
        }
    }

    /// Writes one query.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, asked: &Asked) -> Outcome<()> {
        self.written += 1;
        let written = if self.binary {
            let mut message = [0; 512];
            let flags = QueryFlags {
                recursion_desired: true,
                payload_size: (asked.edns != Edns::None).then_some(1232),
                dnssec_ok: asked.edns == Edns::DnssecOk,
                ..QueryFlags::default()
            };
            let question = (asked.name.as_name(), asked.qtype, class::IN);
            let length = write_query(&mut message, 0, question, flags).expect("282 octets suffice");
            return self.write_message(&message[..length]);
        } else {
            writeln!(self.out, "{asked}")
        };
        written.during("writing queries")
    }

    /// Writes a message as it is, behind its length.
    fn write_message(&mut self, message: &[u8]) -> Outcome<()> {
        let length = (message.len() as u16).to_be_bytes();
        self.out
            .write_all(&length)
            .and_then(|()| self.out.write_all(message))
            .during("writing queries")
    }

    /// Ends the file; returns how many queries are in it.
    ///
    /// # Errors
    /// The file cannot be written, or has no queries.
    pub fn finish(mut self) -> Outcome<u64> {
        self.out.flush().during("writing queries")?;
        if self.written == 0 {
            return Err(Failure::new("no queries were found"));
        }
        Ok(self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{Carrier, Format, Questions, Style};

    #[test]
    fn what_is_written_is_read_the_same_in_both_formats() {
        let all = [
            ("a.example.", 1, Edns::None),
            ("b.example.", 28, Edns::Plain),
            (".", 65280, Edns::DnssecOk),
            ("\\#1.example.", 1, Edns::None),
            ("\\;.example.", 1, Edns::None),
        ];
        let mut read = Vec::new();
        for (binary, format) in [
            (false, Format::Text(Style::default())),
            (true, Format::Binary(Carrier::Frame)),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut writer = Writer::new(file.reopen().unwrap(), binary);
            for (name, qtype, edns) in all {
                let name = name.parse().unwrap();
                writer.write(&Asked { name, qtype, edns }).unwrap();
            }
            assert_eq!(writer.finish().unwrap(), 5);
            read.push(Questions::read(file.path(), format).unwrap());
        }
        assert_eq!(read[0], read[1]);
    }

    #[test]
    fn a_file_without_queries_is_an_error() {
        assert!(Writer::new(Vec::new(), false).finish().is_err());
    }
}
