//! From octets to the words of one entry (RFC 1035 §5.1): blanks, comments, parentheses, quotes and line ends are gone.
//! Words are places in the text: nothing is copied or allocated for them.
//!
//! An entry is a line, or several that parentheses join:
//!
//! ```text
//! example.com. 3600 IN SOA ns host (  ; a comment ␤
//!     2026112101 1h 15m 4w 5m )␤
//! └──────────────── one entry, eleven words ──────┘
//! ```
//!
//! Whether `key="value"` is one word depends on the record's type.

use super::words;
use std::ops::Range;
use wire::codes::qtype;

/// A word of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// Where it starts, from the start of the text; of a quoted one behind its quote.
    pub(crate) start: u32,
    /// Where it ends, its closing quote left out.
    pub(crate) end: u32,
    /// Lines between the start of the entry and that of this word.
    pub(crate) line: u32,
    /// It stood in quotes.
    pub(crate) quoted: bool,
}

impl Token {
    /// The octets of this word in the text it was found in, escapes as written.
    pub(crate) fn of<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        &text[self.start as usize..self.end as usize]
    }
}

/// How far an entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Octets, the line's end included.
    pub(crate) length: usize,
    /// Line ends among them.
    pub(crate) lines: u32,
    /// The entry begins with a blank: the owner is that of the record before.
    pub(crate) blank_owner: bool,
}

/// Why there is no entry to work with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The text ends within the entry: with more of it, this is to be tried again.
    Unfinished,
    /// The entry is no use. Go on behind `extent`.
    Wrong {
        /// Where.
        at: usize,
        /// Lines before that place.
        line: u32,
        what: &'static str,
        extent: Extent,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Word,
    Blank,
    Newline,
    Comment,
    Open,
    Close,
    Quote,
    Escape,
}

/// What each octet is. A carriage return is a blank, so that lines may end in two octets.
const CLASSES: [Class; 256] = {
    let mut classes = [Class::Word; 256];
    classes[b' ' as usize] = Class::Blank;
    classes[b'\t' as usize] = Class::Blank;
    classes[b'\r' as usize] = Class::Blank;
    classes[b'\n' as usize] = Class::Newline;
    classes[b';' as usize] = Class::Comment;
    classes[b'(' as usize] = Class::Open;
    classes[b')' as usize] = Class::Close;
    classes[b'"' as usize] = Class::Quote;
    classes[b'\\' as usize] = Class::Escape;
    classes
};

fn class(octet: u8) -> Class {
    CLASSES[usize::from(octet)]
}

const OPEN_QUOTE: &str = "quote without its end: a quoted string ends with '\"', in its line or a later one; a quote \
                          within one is written \\\"";
const OPEN_PARENTHESIS: &str =
    "parenthesis that is never closed: ')' belongs behind the last word of the record";
const CLOSING_PARENTHESIS: &str = "')' without a '(' before it";
const BAD_ESCAPE: &str = "backslash at the end of a line: parentheses join lines";

/// Puts the words of the entry at the start of `text` into `tokens`. An entry without words (blank lines, comments) is
/// one as well. `whole` says that nothing follows `text`.
pub(crate) fn tokenize(
    text: &[u8],
    whole: bool,
    tokens: &mut Vec<Token>,
) -> Result<Extent, Broken> {
    scan(text, whole, None, tokens)
}

/// The same with RDATA alone, of this type, which is all of `text`.
pub(crate) fn tokenize_rdata(
    kind: u16,
    text: &[u8],
    tokens: &mut Vec<Token>,
) -> Result<Extent, Broken> {
    scan(text, true, Some(kind), tokens)
}

fn scan(
    text: &[u8],
    whole: bool,
    kind: Option<u16>,
    tokens: &mut Vec<Token>,
) -> Result<Extent, Broken> {
    tokens.clear();
    let mut scan = Scan {
        text,
        whole,
        kind,
        at: 0,
        line: 0,
        opened: Vec::new(),
    };
    scan.entry(tokens)?;
    Ok(scan.extent())
}

struct Scan<'t> {
    text: &'t [u8],
    whole: bool,
    /// The type of RDATA that has no entry around it.
    kind: Option<u16>,
    at: usize,
    line: u32,
    /// Parentheses that are open: place and line of each.
    opened: Vec<(usize, u32)>,
}

impl Scan<'_> {
    fn entry(&mut self, tokens: &mut Vec<Token>) -> Result<(), Broken> {
        while let Some(octet) = self.text.get(self.at) {
            match class(*octet) {
                Class::Word | Class::Escape => {
                    let word = self.word(tokens)?;
                    tokens.push(word);
                }
                Class::Blank => self.at += 1,
                Class::Quote => tokens.push(self.quoted()?),
                Class::Comment => self.comment(),
                Class::Newline => {
                    self.at += 1;
                    self.line += 1;
                    if self.opened.is_empty() {
                        return Ok(());
                    }
                }
                Class::Open => {
                    self.opened.push((self.at, self.line));
                    self.at += 1;
                }
                Class::Close => {
                    if self.opened.pop().is_none() {
                        return Err(self.wrong(self.at, self.line, CLOSING_PARENTHESIS));
                    }
                    self.at += 1;
                }
            }
        }
        match self.opened.first() {
            _ if !self.whole => Err(Broken::Unfinished),
            Some((at, line)) => Err(self.wrong(*at, *line, OPEN_PARENTHESIS)),
            None => Ok(()),
        }
    }

    /// A word without quotes around it; behind `key=` it may go on in quotes. `before` are the words before it.
    fn word(&mut self, before: &[Token]) -> Result<Token, Broken> {
        let (start, line) = (self.at, self.line);
        while let Some(octet) = self.text.get(self.at) {
            match class(*octet) {
                Class::Word => self.at += 1,
                Class::Escape => self.escape()?,
                Class::Quote if self.takes_quotes(start, before) => {
                    self.quoted()?;
                }
                _ => break,
            }
        }
        self.finished(start..self.at, line, false)
    }

    /// Whether the quote here goes on with the word that began at `start`: behind `key=` of a service parameter (RFC 9460
    /// §2.1). In other types it begins a string of its own: RFC 1035 §5.1 has strings either within quotes or "a contiguous
    /// set of characters without interior spaces".
    fn takes_quotes(&self, start: usize, before: &[Token]) -> bool {
        let is_behind_key = self.at > start && self.text[self.at - 1] == b'=';
        if !is_behind_key {
            return false;
        }
        let kind = self.kind.or_else(|| self.kind_among(before));
        matches!(kind, Some(qtype::SVCB | qtype::HTTPS))
    }

    /// The type of the entry's record: behind `[owner] [TTL] [class]`, or `$GENERATE range owner [TTL] [class]`.
    fn kind_among(&self, before: &[Token]) -> Option<u16> {
        let first = before.first()?.of(self.text);
        let behind_owner = match self.has_blank_owner() {
            true => 0,
            false if first.eq_ignore_ascii_case(b"$GENERATE") => 3,
            false => 1,
        };
        let candidates = before.iter().skip(behind_owner).take(3);
        let mut candidates = candidates.map(|word| word.of(self.text));
        let kind = candidates.find(|word| {
            let is_ttl = word.first().is_some_and(u8::is_ascii_digit);
            !is_ttl && words::class(word).is_none()
        })?;
        words::kind(kind)
    }

    fn quoted(&mut self) -> Result<Token, Broken> {
        let (quote, line) = (self.at, self.line);
        self.at += 1;
        while let Some(octet) = self.text.get(self.at) {
            match *octet {
                b'"' => {
                    self.at += 1;
                    return self.finished(quote + 1..self.at - 1, line, true);
                }
                // RFC 1035 §5.1: "Inside a " delimited string any character can occur, except for a " itself".
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                }
                b'\\' => self.escape()?,
                _ => self.at += 1,
            }
        }
        if self.whole {
            // The lines behind the quote's own are no part of the error.
            (self.at, self.line) = (quote, line);
            return Err(self.wrong(quote, line, OPEN_QUOTE));
        }
        Err(Broken::Unfinished)
    }

    /// A backslash, and the octet that it protects.
    fn escape(&mut self) -> Result<(), Broken> {
        match self.text.get(self.at + 1) {
            None if !self.whole => return Err(Broken::Unfinished),
            None | Some(b'\n' | b'\r') => {
                return Err(self.wrong(self.at, self.line, BAD_ESCAPE));
            }
            Some(_) => self.at += 2,
        }
        Ok(())
    }

    /// The word at this place, which began in this line.
    fn finished(&self, place: Range<usize>, line: u32, quoted: bool) -> Result<Token, Broken> {
        // Whether the word goes on is not known yet.
        if place.end == self.text.len() && !self.whole {
            return Err(Broken::Unfinished);
        }
        Ok(Token {
            // Texts are far shorter than four gigabytes: see `ENTRY_LENGTH_MAX`.
            start: place.start as u32,
            end: place.end as u32,
            line,
            quoted,
        })
    }

    fn comment(&mut self) {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|octet| *octet == b'\n');
        self.at += length.unwrap_or(rest.len());
    }

    /// The entry is wrong at a place: it ends with the line that the scan has come to.
    fn wrong(&mut self, at: usize, line: u32, what: &'static str) -> Broken {
        self.comment();
        if self.at == self.text.len() && !self.whole {
            return Broken::Unfinished;
        }
        if self.at < self.text.len() {
            self.at += 1;
            self.line += 1;
        }
        Broken::Wrong {
            at,
            line,
            what,
            extent: self.extent(),
        }
    }

    fn extent(&self) -> Extent {
        Extent {
            length: self.at,
            lines: self.line,
            blank_owner: self.has_blank_owner(),
        }
    }

    /// RFC 1035 §5.1: such an entry begins with a blank. A parenthesis is none: the owner stands behind it.
    fn has_blank_owner(&self) -> bool {
        let first = self.text.first();
        first.is_some_and(|octet| class(*octet) == Class::Blank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut tokens = Vec::new();
        tokenize(text.as_bytes(), true, &mut tokens).unwrap();
        let word = |token: &Token| String::from_utf8(token.of(text.as_bytes()).to_vec()).unwrap();
        tokens.iter().map(word).collect()
    }

    fn broken(text: &str) -> (usize, u32, Extent) {
        match tokenize(text.as_bytes(), true, &mut Vec::new()) {
            Err(Broken::Wrong {
                at, line, extent, ..
            }) => (at, line, extent),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn words_of_one_line() {
        assert_eq!(
            words("a IN  A\t192.0.2.1\r\nb"),
            ["a", "IN", "A", "192.0.2.1"]
        );
        assert_eq!(
            words(r#"a "b c" "" d\"e"f""#),
            ["a", "b c", "", r#"d\"e"#, "f"]
        );
        assert_eq!(words(r#"a;b "c"#), ["a"]);
        assert!(words("; nothing\nx").is_empty());
        assert_eq!(words(r"a\;b\ c"), [r"a\;b\ c"]);
    }

    /// RFC 9460 §2.1 against RFC 1035 §5.1.
    #[test]
    fn quotes_go_on_with_a_service_parameter_and_with_nothing_else() {
        let joined = r#"k="v w""#;
        for before in [
            "a SVCB",
            "a 1h IN HTTPS",
            " IN 60 svcb",
            "a TYPE64",
            "$generate 1-2 a$ 60 HTTPS",
        ] {
            let found = words(&format!("{before} 1 . {joined} x"));
            assert_eq!(found[found.len() - 2..], [joined, "x"], "{before}");
        }
        for before in ["SVCB TXT", " TXT", "a TXT SVCB", "a 60 IN TXT"] {
            let found = words(&format!("{before} {joined} x"));
            assert_eq!(found[found.len() - 3..], ["k=", "v w", "x"], "{before}");
        }
        let mut tokens = Vec::new();
        for (kind, count) in [(qtype::SVCB, 1), (qtype::TXT, 2)] {
            tokenize_rdata(kind, joined.as_bytes(), &mut tokens).unwrap();
            assert_eq!(tokens.len(), count);
        }
    }

    #[test]
    fn a_quoted_string_may_go_over_lines() {
        let text = "a \"b\n;c\n\" d\ne";
        assert_eq!(words(text), ["a", "b\n;c\n", "d"]);
        let mut tokens = Vec::new();
        let extent = tokenize(text.as_bytes(), true, &mut tokens).unwrap();
        assert_eq!((extent.length, extent.lines), (text.len() - 1, 3));
        let lines: Vec<u32> = tokens.iter().map(|token| token.line).collect();
        assert_eq!(lines, [0, 0, 2]);
    }

    #[test]
    fn parentheses_join_lines() {
        assert_eq!(words("a (b ; c)\n d\n)e\nf"), ["a", "b", "d", "e"]);
        assert_eq!(words("a ((b)\n) c\nd"), ["a", "b", "c"]);
        let mut tokens = Vec::new();
        let extent = tokenize(b" a (\n\nb )\nc", true, &mut tokens).unwrap();
        assert_eq!(
            extent,
            Extent {
                length: 10,
                lines: 3,
                blank_owner: true
            }
        );
        assert_eq!(tokens[1].line, 2);
        let extent = tokenize(b"( a\nb )\nc", true, &mut tokens).unwrap();
        assert!(!extent.blank_owner);
        // The type is found behind the owner.
        assert_eq!(words("(txt SVCB 1 . k=\"v w\" )")[4], "k=\"v w\"");
    }

    #[test]
    fn what_is_wrong_is_found_where_it_is_and_left_behind() {
        let extent = |length, lines| Extent {
            length,
            lines,
            blank_owner: false,
        };
        assert_eq!(broken("a \"b\nc"), (2, 0, extent(5, 1)));
        assert_eq!(broken("a )b c\nd"), (2, 0, extent(7, 1)));
        assert_eq!(broken("a (\nb\nc\n"), (2, 0, extent(8, 3)));
        assert_eq!(broken("a\\\nb"), (1, 0, extent(3, 1)));
    }

    #[test]
    fn an_entry_that_is_cut_is_asked_for_again() {
        let text = b"a (b \"c d\" e\\.f\n) g\n";
        for length in 0..text.len() {
            let cut = tokenize(&text[..length], false, &mut Vec::new());
            assert_eq!(cut, Err(Broken::Unfinished), "{length}");
        }
        assert!(tokenize(text, false, &mut Vec::new()).is_ok());
    }
}
