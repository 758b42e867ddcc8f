//! Queries as lines of text: `name type [flags]`, as kxdpgun and dnsperf write them.
//!
//! Flags: `E` with EDNS, `D` with EDNS and DNSSEC OK. Empty lines and lines that start with `;` or `#` are left out.

use super::Questions;
use crate::failure::{Failure, Outcome};
use wire::codes::{class, parse_qtype};
use wire::message::{QueryFlags, write_query};
use wire::name::NameBuf;

/// What queries from text have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// The largest answer over UDP that a query with EDNS asks for, in octets.
    pub payload_size: u16,
    /// Every query has EDNS, whatever its line says.
    pub edns: bool,
    /// Every query has EDNS and DNSSEC OK.
    pub dnssec_ok: bool,
    /// Options of every query with EDNS, one behind the other: code 2, length 2, value (RFC 6891 §6.1.2).
    pub edns_options: Vec<u8>,
}

impl Default for Style {
    /// EDNS only where the line says so, with 1,232 octets (what fits an unfragmented packet everywhere: DNS flag day 2020).
    fn default() -> Style {
        Style {
            payload_size: 1232,
            edns: false,
            dnssec_ok: false,
            edns_options: Vec::new(),
        }
    }
}

impl Style {
    /// Adds an EDNS option; every query has EDNS from then on.
    pub fn add_option(&mut self, code: u16, value: &[u8]) {
        self.edns = true;
        self.edns_options.extend(code.to_be_bytes());
        self.edns_options.extend((value.len() as u16).to_be_bytes());
        self.edns_options.extend(value);
    }
}

/// Reads lines.
///
/// # Errors
/// The first line that is wrong, with its number.
pub fn parse(text: &[u8], style: Style) -> Outcome<Questions> {
    let mut questions = Questions::default();
    let mut message = [0; 512];
    for (number, line) in text.split(|octet| *octet == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b';' || line[0] == b'#' {
            continue;
        }
        let wrong = |what| Failure::new(format!("line {}: {what}", number + 1));
        let line = std::str::from_utf8(line).map_err(|_| wrong("not UTF-8 text".to_owned()))?;
        let length = write_line(&mut message, line, &style).map_err(wrong)?;
        questions
            .push(&message[..length])
            .map_err(|failure| wrong(failure.to_string()))?;
    }
    Ok(questions)
}

/// Writes the query of one line; returns its length.
fn write_line(message: &mut [u8; 512], line: &str, style: &Style) -> Result<usize, String> {
    let mut words = line.split_ascii_whitespace();
    let (Some(name), Some(qtype)) = (words.next(), words.next()) else {
        return Err(format!(
            "`{line}` has no type: expected `name type [E|D]`, such as `www.example.com A`"
        ));
    };
    let flags = match (words.next(), words.next()) {
        (flags, None) => flags_of(flags, style)?,
        (_, Some(extra)) => {
            return Err(format!("`{extra}` is too much: expected `name type [E|D]`"));
        }
    };
    let name: NameBuf = name.parse().map_err(|error| format!("`{name}`: {error}"))?;
    let qtype = parse_qtype(qtype)
        .ok_or_else(|| format!("`{qtype}` is no type: expected A, AAAA, … or TYPE65280"))?;
    let too_long = || format!("`{line}` does not fit 512 octets");
    let length =
        write_query(message, 0, (name.as_name(), qtype, class::IN), flags).ok_or_else(too_long)?;
    if flags.payload_size.is_none() {
        return Ok(length);
    }
    // The OPT record comes last, and its last two octets are the length of its options.
    let options = &style.edns_options;
    let end = length + options.len();
    message
        .get_mut(length..end)
        .ok_or_else(too_long)?
        .copy_from_slice(options);
    message[length - 2..length].copy_from_slice(&(options.len() as u16).to_be_bytes());
    Ok(end)
}

fn flags_of(word: Option<&str>, style: &Style) -> Result<QueryFlags, String> {
    let (edns, dnssec_ok) = match word {
        None => (false, false),
        Some("E") => (true, false),
        Some("D") => (true, true),
        Some(other) => {
            return Err(format!(
                "`{other}` is no flag: expected E (EDNS), D (EDNS with DNSSEC OK) or nothing"
            ));
        }
    };
    let dnssec_ok = dnssec_ok || style.dnssec_ok;
    let edns = edns || style.edns || dnssec_ok;
    Ok(QueryFlags {
        recursion_desired: true,
        payload_size: edns.then_some(style.payload_size),
        dnssec_ok,
        ..QueryFlags::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::message::parse_query;

    fn failure(text: &str) -> String {
        parse(text.as_bytes(), Style::default())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_manuals_examples_are_read() {
        let text = "abc6.example.com. AAAA\nnotzone. A\r\n\n; note\n# note\na.example.com. NS E\nabcd.example.com. DS D";
        let questions = parse(text.as_bytes(), Style::default()).unwrap();
        assert_eq!(questions.len(), 4);
        let edns: Vec<_> = (0..4)
            .map(|number| {
                let parts = parse_query(questions.get(number).message).unwrap();
                parts.edns.map(|edns| (edns.payload_size, edns.dnssec_ok))
            })
            .collect();
        assert_eq!(edns, [None, None, Some((1232, false)), Some((1232, true))]);
    }

    #[test]
    fn options_reach_every_line() {
        let style = Style {
            payload_size: 4096,
            edns: true,
            dnssec_ok: true,
            ..Style::default()
        };
        let questions = parse(b"a A", style).unwrap();
        let edns = parse_query(questions.get(0).message).unwrap().edns.unwrap();
        assert_eq!((edns.payload_size, edns.dnssec_ok), (4096, true));
    }

    #[test]
    fn options_stand_in_queries_with_edns() {
        let mut style = Style::default();
        style.add_option(10, b"\x01\x02\x03\x04\x05\x06\x07\x08");
        style.add_option(8, &[0, 1, 24, 0, 192, 0, 2]);
        let questions = parse(b"a A", style.clone()).unwrap();
        let message = questions.get(0).message;
        let edns = parse_query(message).unwrap().edns.unwrap();
        let options: Vec<_> = edns
            .options(message)
            .map(|option| (option.code, option.value.len()))
            .collect();
        assert_eq!(options, [(10, 8), (8, 7)]);
        style.add_option(65001, &[0; 500]);
        assert!(
            parse(b"a A", style)
                .unwrap_err()
                .to_string()
                .contains("512 octets")
        );
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number() {
        assert_eq!(
            failure("a A\nexample.com"),
            "line 2: `example.com` has no type: expected `name type [E|D]`, such as `www.example.com A`"
        );
        assert!(failure("a B").starts_with("line 1: `B` is no type"));
        assert!(failure("a A X").starts_with("line 1: `X` is no flag"));
        assert!(failure("a A E D").starts_with("line 1: `D` is too much"));
        assert!(failure("\n\na..b A").starts_with("line 3: `a..b`: empty label"));
        assert!(
            parse(b"\xff A", Style::default())
                .unwrap_err()
                .to_string()
                .contains("UTF-8")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text, Style::default());
        }
    }
}
