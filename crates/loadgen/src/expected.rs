//! What answers must say (`--expect FILE`): response codes, and the records of the answer section.
//!
//! ```text
//!  www.example.com A NOERROR          a response code
//!  www.example.com A 192.0.2.1        NOERROR, and these records of this type in the answer section,
//!  www.example.com A 192.0.2.2          no others, in any order
//!  www.example.com TXT "a b" "c"      character strings; any type: \# 4 c0000201 (RFC 3597 §5)
//!  * REFUSED                          everything that has no line
//! ```

use crate::failure::{During, Failure, Outcome};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use wire::codes::{class, parse_qtype, qtype, rcode};
use wire::message::{Header, Records, ResponseParts, Section};
use wire::name::{NAME_LENGTH_MAX, NameBuf, compressed};

/// Most records of one question: their marks fit a word.
const RECORDS_MAX: usize = 64;

/// What one answer must say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    rcode: u16,
    /// Data of all records of the type that was asked for, names in lower case; none: whatever there is.
    records: Option<Vec<Box<[u8]>>>,
}

/// What all answers must say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectations {
    /// By question: name in lower case, type, class.
    by_question: HashMap<Box<[u8]>, Expected>,
    others: Option<Expected>,
}

impl Expectations {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or which line of it is wrong.
    pub fn read(path: &Path) -> Outcome<Expectations> {
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).during(format!("reading expectations from {shown}"))?;
        Expectations::parse(&text).during(&shown)
    }

    /// Reads lines.
    ///
    /// # Errors
    /// The first line that is wrong, with its number.
    pub fn parse(text: &str) -> Outcome<Expectations> {
        let mut expectations = Expectations::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            expectations
                .add(line)
                .map_err(|what| Failure::new(format!("line {}: {what}", number + 1)))?;
        }
        Ok(expectations)
    }

    /// What the answer to this question (name, type, class) must say, if anything.
    pub fn of(&self, question: &[u8]) -> Option<&Expected> {
        let found = self
            .by_question
            .get(question.to_ascii_lowercase().as_slice());
        found.or(self.others.as_ref())
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let wrong =
            || format!("`{line}`: expected `name type RCODE`, `name type RDATA` or `* RCODE`");
        let (name, rest) = line.split_once(char::is_whitespace).ok_or_else(wrong)?;
        let rest = rest.trim_start();
        if name == "*" {
            let rcode = rcode_of(rest).ok_or_else(wrong)?;
            self.others = Some(Expected {
                rcode,
                records: None,
            });
            return Ok(());
        }
        let (rtype, rest) = rest.split_once(char::is_whitespace).ok_or_else(wrong)?;
        let rtype = parse_qtype(rtype)
            .ok_or_else(|| format!("`{rtype}` is no type: expected A, AAAA, … or TYPE65280"))?;
        let name: NameBuf = name.parse().map_err(|error| format!("`{name}`: {error}"))?;
        let mut question = name.as_name().as_bytes().to_ascii_lowercase();
        question.extend(rtype.to_be_bytes());
        question.extend(class::IN.to_be_bytes());
        // The type and class have no letters: looking up in lower case finds them as they are.
        let question = question.to_ascii_lowercase().into_boxed_slice();
        let expected = self.by_question.entry(question).or_default();
        let rest = rest.trim_start();
        if let Some(rcode) = rcode_of(rest) {
            expected.rcode = rcode;
            return Ok(());
        }
        let records = expected.records.get_or_insert_default();
        records.push(rdata_of(rtype, rest)?.into_boxed_slice());
        if records.len() > RECORDS_MAX {
            return Err(format!("more than {RECORDS_MAX} records of one question"));
        }
        Ok(())
    }
}

impl Expected {
    /// Whether a well-formed response says this. `question`: what was asked.
    pub fn is_met(&self, message: &[u8], parts: &ResponseParts, question: &[u8]) -> bool {
        if parts.rcode != self.rcode {
            return false;
        }
        let Some(records) = &self.records else {
            return true;
        };
        let (Some(header), Some((_, fields))) =
            (Header::read(message), question.split_last_chunk::<4>())
        else {
            return false;
        };
        let rtype = u16::from_be_bytes([fields[0], fields[1]]);
        let mut missing = u64::MAX
            .checked_shl(records.len() as u32)
            .map_or(u64::MAX, |rest| !rest);
        for record in Records::new(message, parts.question_end, &header).flatten() {
            if record.section != Section::Answer || record.rtype != rtype {
                continue;
            }
            let mut buffer = [0; 2 * NAME_LENGTH_MAX];
            let place = (
                usize::from(record.rdata_start),
                usize::from(record.rdata_end),
            );
            let rdata = plain(rtype, message, place, &mut buffer);
            let same = |number: &usize| missing >> number & 1 == 1 && *records[*number] == *rdata;
            match (0..records.len()).find(same) {
                Some(number) => missing &= !(1 << number),
                None => return false,
            }
        }
        missing == 0
    }
}

/// Octets in front of the one name that data of this type end with; `None`: there is none.
fn name_in(rtype: u16) -> Option<usize> {
    match rtype {
        qtype::NS | qtype::CNAME | qtype::PTR | qtype::DNAME => Some(0),
        qtype::MX => Some(2),
        qtype::SRV => Some(6),
        _ => None,
    }
}

/// A record's data with their name uncompressed and in lower case.
fn plain<'b>(
    rtype: u16,
    message: &'b [u8],
    (start, end): (usize, usize),
    buffer: &'b mut [u8; 2 * NAME_LENGTH_MAX],
) -> &'b [u8] {
    let whole = message.get(start..end).unwrap_or_default();
    let Some(front) = name_in(rtype).filter(|front| *front < whole.len()) else {
        return whole;
    };
    let mut name = [0; NAME_LENGTH_MAX];
    let Ok(name) = compressed::expand(message, start + front, &mut name) else {
        return whole;
    };
    let length = front + name.as_bytes().len();
    buffer[..front].copy_from_slice(&whole[..front]);
    buffer[front..length].copy_from_slice(name.as_bytes());
    buffer[front..length].make_ascii_lowercase();
    &buffer[..length]
}

/// `NOERROR`, `RCODE23`.
fn rcode_of(text: &str) -> Option<u16> {
    let number = text.strip_prefix("RCODE").map(str::parse);
    rcode::number(text).or_else(|| number?.ok().filter(|code| *code < 1 << 12))
}

/// Data of a record in wire format.
fn rdata_of(rtype: u16, text: &str) -> Result<Vec<u8>, String> {
    let wrong = |what: &str| format!("`{text}`: expected {what}");
    if let Some(generic) = text.strip_prefix("\\#") {
        return generic_of(generic).ok_or_else(|| wrong("\\# LENGTH HEX"));
    }
    if let Some(front) = name_in(rtype) {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let name = words.pop().unwrap_or_default();
        let numbers: Result<Vec<u16>, _> = words.iter().map(|word| word.parse()).collect();
        let numbers = numbers.ok().filter(|numbers| numbers.len() * 2 == front);
        let numbers = numbers.ok_or_else(|| wrong("numbers and a name, as in a zone file"))?;
        let name: NameBuf = name.parse().map_err(|error| format!("`{name}`: {error}"))?;
        let mut rdata: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_be_bytes())
            .collect();
        rdata.extend(name.as_name().as_bytes().to_ascii_lowercase());
        return Ok(rdata);
    }
    match rtype {
        qtype::A => {
            let address: Result<Ipv4Addr, _> = text.parse();
            address
                .map(|address| address.octets().to_vec())
                .map_err(|_| wrong("an IPv4 address or an RCODE"))
        }
        qtype::AAAA => {
            let address: Result<Ipv6Addr, _> = text.parse();
            address
                .map(|address| address.octets().to_vec())
                .map_err(|_| wrong("an IPv6 address or an RCODE"))
        }
        qtype::TXT => strings_of(text).ok_or_else(|| wrong("\"strings\" of up to 255 octets")),
        _ => Err(wrong("an RCODE, or data of this type as \\# LENGTH HEX")),
    }
}

/// `LENGTH HEX…` (RFC 3597 §5).
fn generic_of(text: &str) -> Option<Vec<u8>> {
    let mut words = text.split_whitespace();
    let length: usize = words.next()?.parse().ok()?;
    let digits: String = words.collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let octets: Vec<u8> = digits
        .as_bytes()
        .chunks(2)
        .map(octet)
        .collect::<Option<_>>()?;
    (octets.len() == length && digits.len() == 2 * length).then_some(octets)
}

/// Character strings, each between quotes or a word (RFC 1035 §5.1).
fn strings_of(text: &str) -> Option<Vec<u8>> {
    let mut rdata = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (string, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        rdata.push(u8::try_from(string.len()).ok()?);
        rdata.extend(string.as_bytes());
        rest = behind.trim_start();
    }
    Some(rdata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{Style, text};
    use wire::message::parse_response;

    /// A response with these records of the type asked for, their owner being the question's name.
    fn response(line: &str, rcode: u8, records: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
        let questions = text::parse(line.as_bytes(), Style::default()).unwrap();
        let question = questions.get(0).question.to_vec();
        let mut message = questions.get(0).message.to_vec();
        message[2] |= 0x80;
        message[3] = rcode;
        message[7] = records.len() as u8;
        for rdata in records {
            message.extend([0xc0, 12]);
            message.extend(&question[question.len() - 4..]);
            message.extend([0, 0, 0, 60, 0, rdata.len() as u8]);
            message.extend(*rdata);
        }
        (message, question)
    }

    fn is_met(file: &str, line: &str, rcode: u8, records: &[&[u8]]) -> bool {
        let (message, question) = response(line, rcode, records);
        let parts = parse_response(&message).unwrap();
        let expectations = Expectations::parse(file).unwrap();
        let expected = expectations.of(&question).expect("there is a line for it");
        expected.is_met(&message, &parts, &question)
    }

    #[test]
    fn records_are_compared_in_any_order_and_number() {
        let file = "a.example A 192.0.2.1\nA.EXAMPLE A 192.0.2.2\n";
        let [one, two] = [&[192, 0, 2, 1][..], &[192, 0, 2, 2][..]];
        assert!(is_met(file, "a.example A", 0, &[two, one]));
        for wrong in [&[one][..], &[one, one], &[one, two, two], &[]] {
            assert!(!is_met(file, "a.example A", 0, wrong), "{wrong:?}");
        }
        assert!(!is_met(file, "a.example A", 3, &[one, two]));
    }

    #[test]
    fn a_code_alone_lets_records_be() {
        assert!(is_met(
            "a.example A NOERROR",
            "a.example A",
            0,
            &[&[1, 2, 3, 4]]
        ));
        assert!(is_met("* REFUSED", "other.example A", 5, &[]));
        assert!(!is_met("* REFUSED", "other.example A", 0, &[]));
    }

    #[test]
    fn names_in_data_are_compared_uncompressed_and_without_case() {
        // Ten, and the question's own name.
        let rdata: &[u8] = &[0, 10, 0xc0, 12];
        assert!(is_met("eXample MX 10 EXAMPLE.", "example MX", 0, &[rdata]));
        assert!(!is_met("example MX 20 example.", "example MX", 0, &[rdata]));
    }

    #[test]
    fn data_are_read_in_their_forms() {
        assert_eq!(strings_of("\"a b\" c"), Some(b"\x03a b\x01c".to_vec()));
        assert_eq!(generic_of(" 2 c0 00"), Some(vec![0xc0, 0]));
        assert_eq!((generic_of("3 c000"), generic_of("1 c")), (None, None));
        for wrong in [
            "a A",
            "a A x",
            "a B 1",
            "*",
            "* A",
            "a TXT \"x",
            "a SOA x",
            "a MX x.",
        ] {
            let failure = Expectations::parse(wrong).unwrap_err().to_string();
            assert!(failure.starts_with("line 1: "), "{failure}");
        }
    }
}
