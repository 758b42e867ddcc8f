//! The words of one entry, taken one by one and read as numbers, times, names, strings.

use super::token::Token;
use std::fmt::Display;
use wire::codes;
use wire::name::{LABEL_LENGTH_MAX, NAME_LENGTH_MAX, NameTextError};

/// What is wrong with an entry, and at which of its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Number of the word; the number of words where one is missing.
    pub(crate) word: usize,
    /// What, how much, and what would be right.
    pub(crate) what: String,
}

/// One word.
#[derive(Clone, Copy)]
pub(crate) struct Word<'t> {
    /// Its octets, escapes as written.
    pub(crate) text: &'t [u8],
    /// It stood in quotes.
    pub(crate) quoted: bool,
    number: usize,
}

impl Word<'_> {
    /// An error at this word that quotes it, cut where it is long.
    pub(crate) fn wrong(&self, right: impl Display) -> Wrong {
        self.wrong_part(self.text, right)
    }

    /// An error at this word that quotes a part of it.
    pub(crate) fn wrong_part(&self, part: &[u8], right: impl Display) -> Wrong {
        const QUOTED_MAX: usize = 60;
        let shown = shown(part.get(..QUOTED_MAX).unwrap_or(part));
        let dots = if part.len() > QUOTED_MAX { "…" } else { "" };
        Wrong {
            word: self.number,
            what: format!("'{shown}{dots}': {right}"),
        }
    }

    /// A decimal number of at most `max`.
    pub(crate) fn number(&self, max: u32) -> Result<u32, Wrong> {
        decimal(self.text)
            .filter(|number| *number <= max)
            .ok_or_else(|| self.wrong(format_args!("a number from 0 to {max} belongs here")))
    }

    /// A time span in seconds, or with units: `1h30m`.
    pub(crate) fn seconds(&self) -> Result<u32, Wrong> {
        seconds(self.text).ok_or_else(|| {
            self.wrong("a time from 0 to 4294967295 seconds, or with units such as 1w2d3h4m5s, belongs here")
        })
    }

    /// A type's number.
    pub(crate) fn kind(&self) -> Result<u16, Wrong> {
        kind(self.text).ok_or_else(|| {
            self.wrong("unknown type: a name such as AAAA, or TYPE and its number (RFC 3597), belongs here")
        })
    }

    /// Appends the name, made absolute by `origin`, to `out`.
    pub(crate) fn name(&self, origin: &[u8], out: &mut Vec<u8>) -> Result<(), Wrong> {
        name(self.text, origin, out).map_err(|error| self.wrong(error))
    }

    /// Appends the octets that the word means.
    pub(crate) fn octets(&self, out: &mut Vec<u8>) -> Result<(), Wrong> {
        unescape(self.text, out).map_err(|at| {
            self.wrong_part(
                &self.text[at..],
                "bad escape: a backslash takes one character, or three digits from 000 to 255",
            )
        })
    }
}

/// The words of an entry that were not taken yet.
pub(crate) struct Words<'t> {
    text: &'t [u8],
    tokens: &'t [Token],
    next: usize,
    /// What relative names end with, as on the wire.
    pub(crate) origin: &'t [u8],
}

impl<'t> Words<'t> {
    pub(crate) fn new(text: &'t [u8], tokens: &'t [Token], origin: &'t [u8]) -> Words<'t> {
        Words {
            text,
            tokens,
            next: 0,
            origin,
        }
    }

    /// Whether all were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.next >= self.tokens.len()
    }

    /// The next word, left where it is.
    pub(crate) fn peek(&self) -> Option<Word<'t>> {
        let token = self.tokens.get(self.next)?;
        Some(Word {
            text: token.of(self.text),
            quoted: token.quoted,
            number: self.next,
        })
    }

    /// The next word, if there is one.
    pub(crate) fn take(&mut self) -> Option<Word<'t>> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }

    /// The next word. Where there is none, `missing` says what belongs there.
    pub(crate) fn want(&mut self, missing: impl Display) -> Result<Word<'t>, Wrong> {
        self.take().ok_or_else(|| Wrong {
            word: self.next,
            what: format!("too short: {missing} belongs here"),
        })
    }

    /// An error where the words have come to.
    pub(crate) fn wrong(&self, what: String) -> Wrong {
        Wrong {
            word: self.next,
            what,
        }
    }

    /// Nothing may be left of what the entry is.
    pub(crate) fn end(&self, entry: &str) -> Result<(), Wrong> {
        match self.peek() {
            None => Ok(()),
            Some(word) => Err(word.wrong(format_args!(
                "too much: {entry} was complete before this word"
            ))),
        }
    }

    /// All that is left, as it is written, words joined by single blanks and quotes kept: what `$GENERATE` multiplies.
    pub(crate) fn rest_as_written(&mut self, out: &mut Vec<u8>) {
        let mut first = true;
        while let Some(word) = self.take() {
            if !std::mem::take(&mut first) {
                out.push(b' ');
            }
            let quote: &[u8] = if word.quoted { b"\"" } else { b"" };
            out.extend_from_slice(quote);
            out.extend_from_slice(word.text);
            out.extend_from_slice(quote);
        }
    }
}

/// Octets for an error: as they were written; what a terminal would obey, or is not UTF-8, as an escape.
pub(crate) fn shown(octets: &[u8]) -> String {
    let mut shown = String::with_capacity(octets.len());
    for chunk in octets.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character.is_control() {
                true => shown.extend(character.escape_default()),
                false => shown.push(character),
            }
        }
        for octet in chunk.invalid() {
            shown.extend(octet.escape_ascii().map(char::from));
        }
    }
    shown
}

// ---------------------------------------------------------------------------------------------- readings

/// A number of decimal digits and nothing else.
pub(crate) fn decimal(text: &[u8]) -> Option<u32> {
    // Ten digits hold every number; this way the sum cannot overflow.
    if text.is_empty() || text.len() > 10 {
        return None;
    }
    let mut number = 0_u64;
    for octet in text {
        let digit = octet.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    u32::try_from(number).ok()
}

/// Seconds as a plain number or with units, upper or lower case: `1w2d3h4m5s`.
pub(crate) fn seconds(text: &[u8]) -> Option<u32> {
    if let Some(plain) = decimal(text) {
        return Some(plain);
    }
    let mut total = 0_u32;
    let mut digits_start = 0;
    for (at, octet) in text.iter().enumerate() {
        let unit = match octet.to_ascii_lowercase() {
            b'0'..=b'9' => continue,
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        let span = decimal(&text[digits_start..at])?.checked_mul(unit)?;
        total = total.checked_add(span)?;
        digits_start = at + 1;
    }
    // Digits without a unit behind others with one would be anybody's guess.
    (digits_start == text.len() && !text.is_empty()).then_some(total)
}

/// The number of a type: by its name, or as RFC 3597 §5 writes it.
pub(crate) fn kind(text: &[u8]) -> Option<u16> {
    use wire::codes::qtype;
    match text {
        b"A" => return Some(qtype::A),
        b"NS" => return Some(qtype::NS),
        b"AAAA" => return Some(qtype::AAAA),
        b"RRSIG" => return Some(qtype::RRSIG),
        b"NSEC" => return Some(qtype::NSEC),
        b"NSEC3" => return Some(qtype::NSEC3),
        b"DS" => return Some(qtype::DS),
        b"TXT" => return Some(qtype::TXT),
        b"MX" => return Some(qtype::MX),
        b"CNAME" => return Some(qtype::CNAME),
        _ => {}
    }
    codes::parse_qtype(std::str::from_utf8(text).ok()?)
}

/// The number of a class: `IN`, `CH`, `CHAOS`, `HS`, `CLASS32`.
pub(crate) fn class(text: &[u8]) -> Option<u16> {
    if text == b"IN" {
        return Some(codes::class::IN);
    }
    // What questions may hold besides is no class of a record.
    codes::parse_class(std::str::from_utf8(text).ok()?)
        .filter(|class| !matches!(*class, 0 | codes::class::NONE | codes::class::ANY))
}

/// Appends the octets on the wire of the name `text` to `out`; a relative one gets `origin`, and `@` is `origin`.
pub(crate) fn name(text: &[u8], origin: &[u8], out: &mut Vec<u8>) -> Result<(), NameTextError> {
    let start = out.len();
    match text {
        [] => return Err(NameTextError::Empty),
        b"@" => {
            out.extend_from_slice(origin);
            return Ok(());
        }
        b"." => {
            out.push(0);
            return Ok(());
        }
        _ => {}
    }
    let mut at = 0;
    loop {
        at = label(text, at, out)?;
        // RFC 1035 §5.1: names that "do not end in a dot are called relative".
        if at == text.len() {
            out.extend_from_slice(origin);
            break;
        }
        at += 1;
        if at == text.len() {
            out.push(0);
            break;
        }
        if out.len() - start > NAME_LENGTH_MAX {
            break;
        }
    }
    match out.len() - start {
        ..=NAME_LENGTH_MAX => Ok(()),
        length => Err(NameTextError::TooLong { length }),
    }
}

/// Appends the label at `at`; returns the place of the dot behind it, or the end.
fn label(text: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, NameTextError> {
    let length_at = out.len();
    out.push(0);
    while let Some(octet) = text.get(at) {
        match octet {
            b'.' => break,
            b'\\' => {
                let (octet, length) =
                    escaped(&text[at + 1..]).ok_or(NameTextError::Escape { at })?;
                out.push(octet);
                at += 1 + length;
            }
            _ => {
                out.push(*octet);
                at += 1;
            }
        }
    }
    match out.len() - length_at - 1 {
        0 => return Err(NameTextError::EmptyLabel { at }),
        length @ ..=LABEL_LENGTH_MAX => out[length_at] = length as u8,
        length => return Err(NameTextError::LabelTooLong { at, length }),
    }
    Ok(at)
}

/// The octet that an escape means, and how long it is without its backslash (RFC 1035 §5.1: `\X`, `\DDD`).
pub(crate) fn escaped(text: &[u8]) -> Option<(u8, usize)> {
    match text {
        [a @ b'0'..=b'9', rest @ ..] => {
            let [b @ b'0'..=b'9', c @ b'0'..=b'9', ..] = rest else {
                return None;
            };
            let number = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
            Some((u8::try_from(number).ok()?, 3))
        }
        [octet, ..] => Some((*octet, 1)),
        [] => None,
    }
}

/// Appends the octets that `text` means; where an escape is bad, its place is the error.
pub(crate) fn unescape(text: &[u8], out: &mut Vec<u8>) -> Result<(), usize> {
    let mut at = 0;
    while let Some(octet) = text.get(at) {
        if *octet == b'\\' {
            let (octet, length) = escaped(&text[at + 1..]).ok_or(at)?;
            out.push(octet);
            at += 1 + length;
        } else {
            out.push(*octet);
            at += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_units() {
        for (text, value) in [
            ("0", Some(0)),
            ("3600", Some(3_600)),
            ("1h30m", Some(5_400)),
            ("1W2D3h4m5S", Some(788_645)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("7102w", None),
            ("1h30", None),
            ("h", None),
            ("", None),
            ("1y", None),
            ("-1", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn errors_show_words_as_they_were_written_and_nothing_that_a_terminal_obeys() {
        for (octets, text) in [
            (&b"a\\256"[..], "a\\256"),
            (b"alpn=\"\"", "alpn=\"\""),
            ("b\u{fc}cher".as_bytes(), "b\u{fc}cher"),
            (b"\x1b[31m\x00\t", "\\u{1b}[31m\\u{0}\\t"),
            (b"\xc2\x9b31m", "\\u{9b}31m"),
            (b"a\xffb\xc3", "a\\xffb\\xc3"),
        ] {
            assert_eq!(shown(octets), text);
        }
    }

    #[test]
    fn names_get_their_origin() {
        let wire = |text: &str| {
            let mut out = b"x".to_vec();
            name(text.as_bytes(), b"\x01o\x00", &mut out).map(|()| out[1..].to_vec())
        };
        assert_eq!(wire("a.b").unwrap(), b"\x01a\x01b\x01o\x00");
        assert_eq!(wire("a.b.").unwrap(), b"\x01a\x01b\x00");
        assert_eq!(wire("@").unwrap(), b"\x01o\x00");
        assert_eq!(wire(".").unwrap(), b"\x00");
        assert_eq!(wire(r"\@").unwrap(), b"\x01@\x01o\x00");
        assert_eq!(wire(r"a\.b\065").unwrap(), b"\x04a.bA\x01o\x00");
        assert!(matches!(
            wire("a..b"),
            Err(NameTextError::EmptyLabel { .. })
        ));
        assert!(matches!(wire(".a"), Err(NameTextError::EmptyLabel { .. })));
        assert!(matches!(wire(r"a\2"), Err(NameTextError::Escape { .. })));
        assert!(wire(&"a.".repeat(127)).is_ok());
        assert!(matches!(
            wire(&"a.".repeat(128)),
            Err(NameTextError::TooLong { .. })
        ));
        // 255 octets by the origin's doing, and 256.
        let labels = |last: usize| format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(last));
        assert!(wire(&labels(59)).is_ok());
        assert!(matches!(
            wire(&labels(60)),
            Err(NameTextError::TooLong { length: 256 })
        ));
    }
}
