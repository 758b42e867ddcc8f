//! What answers must say (`--expect FILE`): response codes, and the records of the answer section.
//!
//! ```text
//!  www.example.com A NOERROR          a response code
//!  www.example.com A 192.0.2.1        NOERROR, and these records of this type in the answer section,
//!  www.example.com A 192.0.2.2          no others, in any order
//!  www.example.com TXT "a \"b" "c"    character strings (RFC 1035 §5.1); any type: \# 4 c0000201 (RFC 3597 §5)
//!  * REFUSED                          everything that has no line
//! ```

use crate::failure::{During, Failure, Outcome};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use wire::codes::{class, parse_qtype, qtype, rcode};
use wire::edit::names_in_rdata;
use wire::message::{Header, Records, ResponseParts, Section};
use wire::name::{NAME_LENGTH_MAX, NameBuf, compressed};

/// Most records of one question: their marks fit a word.
const RECORDS_MAX: usize = 64;

/// The longest data of a type with names, in octets, when they are uncompressed: two names, and the numbers of an SOA record.
const PLAIN_MAX: usize = 2 * NAME_LENGTH_MAX + 20;

/// What one answer must say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// None: no line has said it yet.
    rcode: Option<u16>,
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
            return self.others.get_or_insert_default().say(rcode);
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
            return expected.say(rcode);
        }
        let rdata = rdata_of(rtype, rest)?.into_boxed_slice();
        expected.say(rcode::NOERROR)?;
        let records = expected.records.get_or_insert_default();
        // "There can not be" two that are the same (RFC 2181 §5): a line that comes twice means one record.
        if !records.contains(&rdata) {
            records.push(rdata);
        }
        if records.len() > RECORDS_MAX {
            return Err(format!("more than {RECORDS_MAX} records of one question"));
        }
        Ok(())
    }
}

impl Expected {
    /// The response code by one more line.
    fn say(&mut self, rcode: u16) -> Result<(), String> {
        match self.rcode.replace(rcode) {
            Some(other) if other != rcode => Err(format!(
                "response code {rcode}, where a line before has {other} for the same question: one of them must go (records \
                 mean NOERROR, which is 0)"
            )),
            _ => Ok(()),
        }
    }

    /// Whether a well-formed response says this. `question`: what was asked.
    pub fn is_met(&self, message: &[u8], parts: &ResponseParts, question: &[u8]) -> bool {
        if Some(parts.rcode) != self.rcode {
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
            let mut buffer = [0; PLAIN_MAX];
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

/// Octets in front of the names in data of this type, and how many names follow; `None`: there are none. These are the names
/// that may come compressed (RFC 3597 §4), and DNAME's, which some compress all the same.
fn names_in(rtype: u16, rdata: &[u8]) -> Option<(usize, usize)> {
    match rtype {
        qtype::DNAME => Some((0, 1)),
        other => names_in_rdata(other, rdata),
    }
}

/// A record's data with their names uncompressed and in lower case.
fn plain<'b>(
    rtype: u16,
    message: &'b [u8],
    place: (usize, usize),
    buffer: &'b mut [u8; PLAIN_MAX],
) -> &'b [u8] {
    let rdata = message.get(place.0..place.1).unwrap_or_default();
    let names = names_in(rtype, rdata);
    match names.and_then(|names| write_plain(names, message, place, buffer)) {
        Some(length) => &buffer[..length],
        None => rdata,
    }
}

/// Writes data with their names uncompressed and in lower case; how long they are then, in octets. `None`: they are no such
/// data.
fn write_plain(
    (front, names): (usize, usize),
    message: &[u8],
    (start, end): (usize, usize),
    buffer: &mut [u8; PLAIN_MAX],
) -> Option<usize> {
    let mut at = start + front;
    buffer
        .get_mut(..front)?
        .copy_from_slice(message.get(start..at)?);
    let mut length = front;
    for _ in 0..names {
        let mut expanded = [0; NAME_LENGTH_MAX];
        let name = compressed::expand(message, at, &mut expanded).ok()?;
        let place = buffer.get_mut(length..length + name.len())?;
        place.copy_from_slice(name.as_bytes());
        place.make_ascii_lowercase();
        length += name.len();
        at = compressed::skip(message, at).ok()?;
    }
    let rest = message.get(at..end)?;
    buffer
        .get_mut(length..length + rest.len())?
        .copy_from_slice(rest);
    Some(length + rest.len())
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
        let octets = generic_of(generic).ok_or_else(|| wrong("\\# LENGTH HEX"))?;
        // As data of answers are compared: a name in lower case.
        let (whole, mut buffer) = ((0, octets.len()), [0; PLAIN_MAX]);
        return Ok(plain(rtype, &octets, whole, &mut buffer).to_vec());
    }
    let names = match rtype {
        qtype::SIG | qtype::NXT => None,
        _ => names_in(rtype, &[]),
    };
    if let Some(names) = names {
        let behind = if rtype == qtype::SOA { 5 } else { 0 };
        return with_names(text, names, behind);
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

/// Numbers of 16 bits, names, and so many numbers of 32 bits: the types with names are so, except NAPTR, SIG and NXT.
fn with_names(
    text: &str,
    (front, names): (usize, usize),
    behind: usize,
) -> Result<Vec<u8>, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let numbers = front / 2;
    let count = numbers + names + behind;
    let wrong = || format!("`{text}`: expected {count} numbers and names, as in a zone file");
    if words.len() != count {
        return Err(wrong());
    }
    let mut rdata = Vec::new();
    for (place, word) in words.into_iter().enumerate() {
        if place < numbers {
            let number: u16 = word.parse().map_err(|_| wrong())?;
            rdata.extend(number.to_be_bytes());
        } else if place < numbers + names {
            let name: NameBuf = word.parse().map_err(|error| format!("`{word}`: {error}"))?;
            rdata.extend(name.as_name().as_bytes().to_ascii_lowercase());
        } else {
            let number: u32 = word.parse().map_err(|_| wrong())?;
            rdata.extend(number.to_be_bytes());
        }
    }
    Ok(rdata)
}

/// `LENGTH HEX…` (RFC 3597 §5).
fn generic_of(text: &str) -> Option<Vec<u8>> {
    let mut words = text.split_whitespace();
    let length: usize = words.next()?.parse().ok()?;
    let digits: String = words.collect();
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
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
    let mut rest = text.trim().as_bytes();
    while !rest.is_empty() {
        let (string, behind) = string_of(rest)?;
        rdata.push(u8::try_from(string.len()).ok()?);
        rdata.extend(string);
        rest = behind.trim_ascii_start();
    }
    Some(rdata)
}

/// The first character string, and what follows it. A backslash has the next character mean itself, or three digits an octet.
fn string_of(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let is_quoted = text.first() == Some(&b'"');
    let mut rest = text.get(usize::from(is_quoted)..)?;
    let mut string = Vec::new();
    loop {
        rest = match rest {
            [] if is_quoted => return None,
            [] => return Some((string, rest)),
            [b'"', behind @ ..] if is_quoted => return Some((string, behind)),
            [blank, ..] if !is_quoted && blank.is_ascii_whitespace() => {
                return Some((string, rest));
            }
            [b'\\', escape @ ..] => {
                let (octet, length) = escape_of(escape)?;
                string.push(octet);
                &escape[length..]
            }
            [octet, behind @ ..] => {
                string.push(*octet);
                behind
            }
        };
    }
}

/// The octet that an escape means, and how long it is without its backslash.
fn escape_of(text: &[u8]) -> Option<(u8, usize)> {
    match text {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => {
            let [a, b, c] = [a, b, c].map(|digit| u16::from(digit - b'0'));
            Some((u8::try_from(a * 100 + b * 10 + c).ok()?, 3))
        }
        [b'0'..=b'9', ..] | [] => None,
        [octet, ..] => Some((*octet, 1)),
    }
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
    fn lines_of_one_question_agree_and_a_record_that_comes_twice_is_one() {
        let file = "a.example A 192.0.2.1\nA.example A 192.0.2.1\na.example A NOERROR\n* REFUSED\n* REFUSED\n";
        assert!(is_met(file, "a.example A", 0, &[&[192, 0, 2, 1]]));
        for wrong in [
            "a A NXDOMAIN\nA. A NOERROR",
            "a A NXDOMAIN\na A 192.0.2.1",
            "a A 192.0.2.1\na A SERVFAIL",
            "* REFUSED\n* NOERROR",
        ] {
            let failure = Expectations::parse(wrong).unwrap_err().to_string();
            assert!(failure.starts_with("line 2: response code"), "{failure}");
        }
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
        let generic = "example MX \\# 11 000a 074558414D504C4500";
        assert!(is_met(generic, "example MX", 0, &[rdata]));
        // What follows the name is no data of the type.
        let longer: &[u8] = &[0, 10, 0xc0, 12, 0];
        assert!(!is_met(generic, "example MX", 0, &[longer]));
    }

    #[test]
    fn all_names_in_data_are_uncompressed() {
        let soa: &[u8] =
            b"\x02NS\xc0\x0c\x01H\xc0\x0c\0\0\0\x07\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05";
        let text = "example SOA ns.example. h.example. 7 2 3 4 5";
        let generic = "example SOA \\# 43 026e73076578616d706c6500 0168076578616d706c6500 \
            0000000700000002000000030000000400000005";
        for file in [text, generic] {
            assert!(is_met(file, "example SOA", 0, &[soa]), "{file}");
        }
        let other = "example SOA ns.example. h.example. 8 2 3 4 5";
        assert!(!is_met(other, "example SOA", 0, &[soa]));
        let minfo = "example MINFO a.example. B.example.";
        let two: &[u8] = b"\x01a\xc0\x0c\x01b\xc0\x0c";
        assert!(is_met(minfo, "example MINFO", 0, &[two]));
        // The second runs past the data.
        assert!(!is_met(minfo, "example MINFO", 0, &[&two[..6]]));
        // A NAPTR's comes behind its strings.
        let naptr: &[u8] = b"\0\x01\0\x02\x01u\0\0\x01A\xc0\x0c";
        let generic = "example NAPTR \\# 19 00010002 0175 00 00 0161 076578616d706c6500";
        assert!(is_met(generic, "example NAPTR", 0, &[naptr]));
    }

    #[test]
    fn data_are_read_in_their_forms() {
        assert_eq!(strings_of("\"a b\" c"), Some(b"\x03a b\x01c".to_vec()));
        assert_eq!(generic_of(" 2 c0 00"), Some(vec![0xc0, 0]));
        for wrong in ["3 c000", "1 c", "1 +f"] {
            assert_eq!(generic_of(wrong), None, "{wrong}");
        }
        let escaped = r#""a\"b" \065\ c "\\" """#;
        let strings = b"\x03a\"b\x03A c\x01\\\0".to_vec();
        assert_eq!(strings_of(escaped), Some(strings));
        for wrong in [r#""a\""#, r"\256", r"\25", r"a\"] {
            assert_eq!(strings_of(wrong), None, "{wrong}");
        }
        for wrong in [
            "a A",
            "a A x",
            "a B 1",
            "*",
            "* A",
            "a TXT \"x",
            "a SOA x",
            "a SOA a. b. 1 2 3 4 4294967296",
            "a MX x.",
            "a MX 5 x..y",
        ] {
            let failure = Expectations::parse(wrong).unwrap_err().to_string();
            assert!(failure.starts_with("line 1: "), "{failure}");
        }
    }
}
