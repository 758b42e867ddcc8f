//! Queries as lines of text: `name type [flags]`, as kxdpgun and dnsperf write them.
//!
//! Flags: `E` with EDNS, `D` with EDNS and DNSSEC OK, in lower case too; `edns=SIZE`, `cookie=HEX`, `ecs=NETWORK`,
//! `option=CODE:HEX` for this query alone. Empty lines and lines that start with `;` or `#` are left out.

use super::{EdnsOption, Questions};
use crate::failure::{Failure, Outcome};
use wire::codes::{class, parse_qtype};
use wire::message::{QueryFlags, write_query};
use wire::name::NameBuf;

/// The longest line, in octets: a name takes up to 1,020 (`\065` for each octet), options in hexadecimal twice what is left of
/// a message's 512. What is longer is another kind of file, and would make a complaint as long.
const LINE_MAX: usize = 4096;

/// What queries from text have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// The largest answer over UDP that a query with EDNS asks for, in octets.
    pub payload_size: u16,
    /// Every query has EDNS, whatever its line says.
    pub edns: bool,
    /// Every query has EDNS and DNSSEC OK.
    pub dnssec_ok: bool,
    /// Options of every query, less those with the code of an option of its own.
    pub edns_options: Vec<EdnsOption>,
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
    pub fn add_option(&mut self, option: EdnsOption) {
        self.edns = true;
        self.edns_options.push(option);
    }
}

/// Reads lines.
///
/// # Errors
/// The first line that is wrong, with its number.
pub fn parse(text: &[u8], style: Style) -> Outcome<Questions> {
    read(text, &style, |wrong, _| Err(wrong))
}

/// Reads lines as dnsperf does. It asks for name and type where what is behind them is wrong, and leaves lines out that are no
/// queries: [`Questions::shortened`] and [`Questions::left_out`] have their numbers.
///
/// # Errors
/// More than there is room for.
pub fn parse_what_is_right(text: &[u8], style: Style) -> Outcome<Questions> {
    let (mut left_out, mut shortened): (Option<(usize, Failure)>, _) = (None, None);
    let mut questions = read(text, &style, |wrong, short| {
        let such = match short {
            None => &mut left_out,
            Some(_) => &mut shortened,
        };
        such.get_or_insert((0, wrong)).0 += 1;
        Ok(short)
    })?;
    questions.left_out = left_out;
    questions.shortened = shortened;
    Ok(questions)
}

/// Reads lines; `on_wrong` decides of each that is wrong whether it ends this, or what of its query without flags is taken: it
/// gets the length, if there is such a query.
fn read(
    text: &[u8],
    style: &Style,
    mut on_wrong: impl FnMut(Failure, Option<usize>) -> Outcome<Option<usize>>,
) -> Outcome<Questions> {
    let mut questions = Questions::default();
    let mut message = [0; 512];
    for (number, line) in text.split(|octet| *octet == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b';' || line[0] == b'#' {
            continue;
        }
        let wrong = |what: String| Failure::new(format!("line {}: {what}", number + 1));
        let length = match readable(line).and_then(|line| write_line(&mut message, line, style)) {
            Ok(length) => Some(length),
            Err(what) => on_wrong(wrong(what), write_short(&mut message, line, style))?,
        };
        if let Some(length) = length {
            questions
                .push(&message[..length])
                .map_err(|failure| wrong(failure.to_string()))?;
        }
    }
    Ok(questions)
}

/// Writes the query of a line without its flags, if there is one; returns its length.
fn write_short(message: &mut [u8; 512], line: &[u8], style: &Style) -> Option<usize> {
    let mut words = readable(line).ok()?.split_ascii_whitespace();
    let line = format!("{} {}", words.next()?, words.next()?);
    write_line(message, &line, style).ok()
}

/// The text of a line, if it is one that could be a query.
fn readable(line: &[u8]) -> Result<&str, String> {
    if line.len() > LINE_MAX {
        return Err(format!(
            "{} octets: no query needs more than {LINE_MAX}",
            line.len()
        ));
    }
    std::str::from_utf8(line)
        .map_err(|_| "not UTF-8 text; -B reads messages in wire format".to_owned())
}

/// Writes the query of one line; returns its length.
fn write_line(message: &mut [u8; 512], line: &str, style: &Style) -> Result<usize, String> {
    let mut words = line.split_ascii_whitespace();
    let (Some(name), Some(qtype)) = (words.next(), words.next()) else {
        return Err(format!(
            "`{line}` has no type: expected `name type [E|D]`, such as `www.example.com A`"
        ));
    };
    let (flags, options) = flags_of(words, style)?;
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
    let end = length + options.len();
    message
        .get_mut(length..end)
        .ok_or_else(too_long)?
        .copy_from_slice(&options);
    message[length - 2..length].copy_from_slice(&(options.len() as u16).to_be_bytes());
    Ok(end)
}

/// Flags and EDNS options of a query: those that its words add, behind those of all.
fn flags_of<'l>(
    words: impl Iterator<Item = &'l str>,
    style: &Style,
) -> Result<(QueryFlags, Vec<u8>), String> {
    let (mut edns, mut dnssec_ok) = (style.edns || style.dnssec_ok, style.dnssec_ok);
    let mut payload_size = style.payload_size;
    let mut own: Vec<EdnsOption> = Vec::new();
    for word in words {
        edns = true;
        let mut add = |option: Result<EdnsOption, String>| -> Result<(), String> {
            let option = option.map_err(|what| format!("`{word}`: {what}"))?;
            own.push(option);
            Ok(())
        };
        match word.split_once('=') {
            None if word.eq_ignore_ascii_case("E") => {}
            None if word.eq_ignore_ascii_case("D") => dnssec_ok = true,
            Some(("edns", size)) => {
                let wrong = |_| format!("`{word}`: must be octets, at most 65535");
                payload_size = size.parse().map_err(wrong)?;
            }
            Some(("cookie", cookie)) => add(EdnsOption::cookie(cookie))?,
            Some(("ecs", network)) => add(EdnsOption::client_subnet(network))?,
            Some(("option", option)) => add(EdnsOption::from_text(option))?,
            _ => {
                return Err(format!(
                    "`{word}` is no flag: expected E (EDNS), D (EDNS with DNSSEC OK), edns=SIZE, cookie=HEX, ecs=NETWORK, \
                     option=CODE:HEX or nothing"
                ));
            }
        }
    }
    let flags = QueryFlags {
        recursion_desired: true,
        payload_size: edns.then_some(payload_size),
        dnssec_ok,
        ..QueryFlags::default()
    };
    Ok((flags, in_wire_format(&style.edns_options, &own)))
}

/// The options of all queries and those of one, one behind the other. What a query has itself it does not get from all: "in
/// the event of multiple COOKIE options, only the first is considered" (RFC 7873 §5.2).
fn in_wire_format(of_all: &[EdnsOption], own: &[EdnsOption]) -> Vec<u8> {
    let is_own = |option: &&EdnsOption| own.iter().any(|other| other.code == option.code);
    let others = of_all.iter().filter(|option| !is_own(option));
    let mut octets = Vec::new();
    others
        .chain(own)
        .for_each(|option| option.append_to(&mut octets));
    octets
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
    fn corners_of_lines_are_read() {
        // Tabs and several spaces, CRLF, escapes, types in lower case and by number, the root, no newline at the end.
        let text = "\ta.example.\t \tAAAA\tD \r\n \r\na\\.b.example aaaa\r\n\\097.example type65280\n\
            . ns\nA.Example TXT";
        let questions = parse(text.as_bytes(), Style::default()).unwrap();
        let asked: Vec<_> = (0..questions.len())
            .map(|number| questions.get(number).question)
            .collect();
        assert_eq!(
            asked,
            [
                &b"\x01a\x07example\0\0\x1c\0\x01"[..],
                b"\x03a.b\x07example\0\0\x1c\0\x01",
                b"\x01a\x07example\0\xff\0\0\x01",
                b"\0\0\x02\0\x01",
                b"\x01A\x07Example\0\0\x10\0\x01",
            ]
        );
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
        style.add_option(EdnsOption::cookie("0102030405060708").unwrap());
        style.add_option(EdnsOption::client_subnet("192.0.2.0/24").unwrap());
        let questions = parse(b"a A", style.clone()).unwrap();
        let message = questions.get(0).message;
        let edns = parse_query(message).unwrap().edns.unwrap();
        let options: Vec<_> = edns
            .options(message)
            .map(|option| (option.code, option.value.len()))
            .collect();
        assert_eq!(options, [(10, 8), (8, 7)]);
        style.add_option(EdnsOption {
            code: 65001,
            value: vec![0; 500],
        });
        assert!(
            parse(b"a A", style)
                .unwrap_err()
                .to_string()
                .contains("512 octets")
        );
    }

    #[test]
    fn a_line_has_options_of_its_own() {
        let text =
            "a A D edns=4096 ecs=192.0.2.0/24 cookie=0102030405060708\na A option=65001:ff\na A";
        let questions = parse(text.as_bytes(), Style::default()).unwrap();
        let edns: Vec<_> = (0..3)
            .map(|number| {
                let message = questions.get(number).message;
                let edns = parse_query(message).unwrap().edns?;
                let codes: Vec<u16> = edns.options(message).map(|option| option.code).collect();
                Some((edns.payload_size, edns.dnssec_ok, codes))
            })
            .collect();
        assert_eq!(edns[0], Some((4096, true, vec![8, 10])));
        assert_eq!(edns[1], Some((1232, false, vec![65001])));
        assert_eq!(edns[2], None);
    }

    #[test]
    fn an_option_of_a_line_takes_the_place_of_that_of_all() {
        let mut style = Style::default();
        style.add_option(EdnsOption::cookie("0102030405060708").unwrap());
        style.add_option(EdnsOption::client_subnet("192.0.2.0/24").unwrap());
        let text = "a A ecs=2001:db8::/32\na A option=65001: option=65001:\na A";
        let questions = parse(text.as_bytes(), style).unwrap();
        let options = |number: usize| {
            let message = questions.get(number).message;
            let edns = parse_query(message).unwrap().edns.unwrap();
            let options = edns.options(message);
            options
                .map(|option| (option.code, option.value.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(options(0), [(10, 8), (8, 8)]);
        assert_eq!(options(1), [(10, 8), (8, 7), (65001, 0), (65001, 0)]);
        assert_eq!(options(2), [(10, 8), (8, 7)]);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_number() {
        assert_eq!(
            failure("a A\nexample.com"),
            "line 2: `example.com` has no type: expected `name type [E|D]`, such as `www.example.com A`"
        );
        assert!(failure("a B").starts_with("line 1: `B` is no type"));
        assert!(failure("a A X").starts_with("line 1: `X` is no flag"));
        assert!(failure("a A E x=5").starts_with("line 1: `x=5` is no flag"));
        assert!(failure("a A cookie=12").starts_with("line 1: `cookie=12`: must be 16"));
        assert!(failure("\n\na..b A").starts_with("line 3: `a..b`: empty label"));
        let long = format!("a A\n{} A", "a".repeat(5000));
        assert_eq!(
            failure(&long),
            "line 2: 5002 octets: no query needs more than 4096"
        );
        assert!(
            parse(b"\xff A", Style::default())
                .unwrap_err()
                .to_string()
                .contains("UTF-8")
        );
    }

    #[test]
    fn wrong_lines_are_left_out_where_that_is_wanted() {
        let text = b"a A\n\na..b A\nb A\nc\nd NOTYPE\n";
        let questions = parse_what_is_right(text, Style::default()).unwrap();
        assert_eq!(questions.len(), 2);
        let (count, first) = questions.left_out().unwrap();
        assert_eq!(count, 3);
        assert!(first.to_string().starts_with("line 3: `a..b`"), "{first}");
        let questions = parse_what_is_right(b"a A\n; b\n", Style::default()).unwrap();
        assert_eq!((questions.len(), questions.left_out()), (1, None));
    }

    #[test]
    fn flags_that_are_none_are_ignored_where_that_is_wanted() {
        let text = b"a A\nb A junk\nc A D ecs=1\nd\n";
        let questions = parse_what_is_right(text, Style::default()).unwrap();
        assert_eq!((questions.len(), questions.left_out().unwrap().0), (3, 1));
        let (count, first) = questions.shortened().unwrap();
        let first = first.to_string();
        assert!(count == 2 && first.starts_with("line 2: `junk`"), "{first}");
        let plain = parse(b"a A\nb A\nc A", Style::default()).unwrap();
        let messages = |questions: &Questions| {
            let all = (0..3).map(|number| questions.get(number).message.to_vec());
            all.collect::<Vec<_>>()
        };
        assert_eq!(messages(&questions), messages(&plain));
    }

    #[test]
    fn flags_may_be_in_lower_case() {
        let edns = |line: &str| {
            let questions = parse(line.as_bytes(), Style::default()).unwrap();
            let parts = parse_query(questions.get(0).message).unwrap();
            parts.edns.map(|edns| edns.dnssec_ok)
        };
        let told = ["a A e", "a A d", "a A"].map(edns);
        assert_eq!(told, [Some(false), Some(true), None]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text, Style::default());
        }
    }
}
