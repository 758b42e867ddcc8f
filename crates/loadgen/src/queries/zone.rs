//! Queries from a zone file (RFC 1035 §5.1): every owner and type in it, once.
//!
//! Only what is needed to know owners and types is understood: $ORIGIN, owners left out, parentheses, strings, comments. What
//! records say is skipped.

use super::{Asked, Writer};
use crate::failure::{During, Failure, Outcome};
use std::collections::HashSet;
use std::io::Write;
use wire::codes::{class, parse_class, parse_qtype, qtype};
use wire::name::NameBuf;

/// Types that nobody asks for by themselves.
const NOT_ASKED: [u16; 3] = [qtype::RRSIG, qtype::NSEC, qtype::NSEC3];

/// Writes the queries. `origin`: what relative names are in until the file says otherwise.
///
/// # Errors
/// The line that is wrong, or the file cannot be written.
pub fn queries(text: &str, origin: Option<&str>, writer: &mut Writer<impl Write>) -> Outcome<()> {
    let mut origin = origin.map(str::to_owned);
    let mut owner: Option<String> = None;
    let mut asked = HashSet::new();
    for entry in entries(text) {
        let wrong = |what: String| Failure::new(format!("line {}: {what}", entry.line));
        if !entry.is_closed {
            return Err(wrong("a parenthesis that is never closed".to_owned()));
        }
        let first = entry.words.first().map_or("", String::as_str);
        match first.to_ascii_uppercase().as_str() {
            "$ORIGIN" => {
                let name = entry.words.get(1).map(String::as_str).unwrap_or(".");
                origin = Some(absolute(name, origin.as_deref()).map_err(wrong)?);
                continue;
            }
            "$INCLUDE" => {
                return Err(wrong(
                    "$INCLUDE is not followed: give the file it names".to_owned(),
                ));
            }
            directive if directive.starts_with('$') => continue,
            _ => {}
        }
        let fields = if entry.owner_left_out {
            &entry.words[..]
        } else {
            owner = Some(absolute(first, origin.as_deref()).map_err(wrong)?);
            &entry.words[1..]
        };
        let owner = owner
            .as_ref()
            .ok_or_else(|| wrong("the first record has no owner".to_owned()))?;
        let qtype = type_of(fields).ok_or_else(|| wrong("no type where one belongs".to_owned()))?;
        if !NOT_ASKED.contains(&qtype) && asked.insert((owner.to_ascii_lowercase(), qtype)) {
            let name: NameBuf = owner
                .parse()
                .during(format!("line {}: {owner}", entry.line))?;
            writer.write(&Asked::new(name, qtype))?;
        }
    }
    Ok(())
}

/// The type behind TTL and class, which may be left out and stand in either order.
fn type_of(fields: &[String]) -> Option<u16> {
    let mut fields = fields.iter();
    for _ in 0..3 {
        let field = fields.next()?;
        let is_ttl = field.starts_with(|first: char| first.is_ascii_digit());
        let is_class = parse_class(field).is_some_and(|number| number != class::ANY);
        if !is_ttl && !is_class {
            return parse_qtype(field);
        }
    }
    None
}

/// A name as it is, or in the origin.
fn absolute(name: &str, origin: Option<&str>) -> Result<String, String> {
    // A dot that a backslash precedes is part of a label.
    if name.ends_with('.') && !name.ends_with("\\.") {
        return Ok(name.to_owned());
    }
    let Some(origin) = origin else {
        return Err(format!(
            "{name} is relative and there is no $ORIGIN: --origin gives one"
        ));
    };
    Ok(match (name, origin.trim_end_matches('.')) {
        ("@", "") => ".".to_owned(),
        ("@", origin) => format!("{origin}."),
        (name, "") => format!("{name}."),
        (name, origin) => format!("{name}.{origin}."),
    })
}

/// One record or directive.
struct Entry {
    /// The line that it starts on, counted from 1.
    line: usize,
    /// It starts with a space: its owner is the last one's.
    owner_left_out: bool,
    words: Vec<String>,
    /// Every parenthesis has its other end.
    is_closed: bool,
}

/// Entries of the file: lines, or several lines in parentheses.
fn entries(text: &str) -> impl Iterator<Item = Entry> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        loop {
            let (number, line) = lines.next()?;
            let mut entry = Entry {
                line: number + 1,
                owner_left_out: line.starts_with([' ', '\t']),
                words: Vec::new(),
                is_closed: true,
            };
            let mut depth = words(line, 0, &mut entry.words);
            while depth > 0 {
                let Some((_, line)) = lines.next() else {
                    entry.is_closed = false;
                    break;
                };
                depth = words(line, depth, &mut entry.words);
            }
            if !entry.words.is_empty() || !entry.is_closed {
                return Some(entry);
            }
        }
    })
}

/// Appends the words of a line, without comments and parentheses; returns how many parentheses are open behind it.
fn words(line: &str, mut depth: u32, words: &mut Vec<String>) -> u32 {
    let mut word = String::new();
    let mut quoted = false;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                word.push(letter);
                word.extend(letters.next());
            }
            '"' => quoted = !quoted,
            _ if quoted => word.push(letter),
            ';' => break,
            '(' | ')' | ' ' | '\t' => {
                depth = match letter {
                    '(' => depth + 1,
                    ')' => depth.saturating_sub(1),
                    _ => depth,
                };
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(letter),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(zone: &str, origin: Option<&str>) -> Outcome<Vec<String>> {
        let mut octets = Vec::new();
        queries(zone, origin, &mut Writer::new(&mut octets, false))?;
        let text = String::from_utf8(octets).unwrap();
        Ok(text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn each_owner_and_type_comes_once() {
        let zone = "\
$ORIGIN example.com.
$TTL 3600
@   IN SOA ns hostmaster ( 1 ; serial
       7200 3600
       86400 3600 )
    3600 NS ns
ns  IN 3600 A 192.0.2.1
    A 192.0.2.2
www TXT \"a ; in a string\" \"( another\"
*.wild 3600 IN AAAA 2001:db8::1
www RRSIG A 13 3 3600 20260101000000 20250101000000 1 example.com. AAAA
other.example.net. 300 CAA 0 issue \"ca\"
$ORIGIN sub
x TYPE65280 \\# 0
";
        assert_eq!(
            lines(zone, None).unwrap(),
            [
                "example.com. SOA",
                "example.com. NS",
                "ns.example.com. A",
                "www.example.com. TXT",
                "*.wild.example.com. AAAA",
                "other.example.net. CAA",
                "x.sub.example.com. TYPE65280",
            ]
        );
    }

    #[test]
    fn a_zone_without_origin_needs_one() {
        let failure = lines("www A 192.0.2.1", None).unwrap_err().to_string();
        assert!(failure.starts_with("line 1: www is relative"), "{failure}");
        assert_eq!(
            lines("www A 192.0.2.1\n@ NS ns", Some("example.")).unwrap(),
            ["www.example. A", "example. NS"]
        );
        assert_eq!(lines("com NS a.", Some(".")).unwrap(), ["com. NS"]);
    }

    #[test]
    fn names_in_other_case_are_the_same() {
        let zone = "a.example. A 192.0.2.1\nA.EXAMPLE. A 192.0.2.2\n";
        assert_eq!(lines(zone, None).unwrap(), ["a.example. A"]);
    }

    #[test]
    fn a_parenthesis_without_its_other_end_swallows_nothing() {
        let zone = "a. A 192.0.2.1\nb. SOA b. b. (1 2\n3 4 5\nc. A 192.0.2.1\n";
        let failure = lines(zone, None).unwrap_err().to_string();
        assert_eq!(failure, "line 2: a parenthesis that is never closed");
    }

    #[test]
    fn a_record_without_a_type_is_named() {
        let failure = lines("a. IN\n", None).unwrap_err().to_string();
        assert_eq!(failure, "line 1: no type where one belongs");
        let failure = lines(" A 192.0.2.1\n", None).unwrap_err().to_string();
        assert_eq!(failure, "line 1: the first record has no owner");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z@$ .;()\"\\\\\n\tA0-9]{0,200}") {
            let _ = lines(&text, Some("example."));
        }
    }
}
