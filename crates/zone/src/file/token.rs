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

/// A word of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// Where it starts, from the start of the text; of a quoted one behind its quote.
    pub(crate) start: u32,
    /// Where it ends, its closing quote left out.
    pub(crate) end: u32,
    /// Lines between the start of the entry and this word.
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

const OPEN_QUOTE: &str = "quote without its end in this line: a quoted string ends with '\"' where its line does, or \
                          before; a quote within one is written \\\"";
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
    tokens.clear();
    let mut scan = Scan {
        text,
        whole,
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
    at: usize,
    line: u32,
    /// Parentheses that are open: place and line of each.
    opened: Vec<(usize, u32)>,
}

impl Scan<'_> {
    fn entry(&mut self, tokens: &mut Vec<Token>) -> Result<(), Broken> {
        while let Some(octet) = self.text.get(self.at) {
            match class(*octet) {
                Class::Word | Class::Escape => tokens.push(self.word()?),
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

    /// A word without quotes around it, or the rest of one behind `key=`, which may be in quotes (RFC 9460 §2.1).
    fn word(&mut self) -> Result<Token, Broken> {
        let start = self.at;
        while let Some(octet) = self.text.get(self.at) {
            match class(*octet) {
                Class::Word => self.at += 1,
                Class::Escape => self.escape()?,
                Class::Quote if self.at > start && self.text[self.at - 1] == b'=' => {
                    self.quoted()?;
                }
                _ => break,
            }
        }
        self.finished(start, self.at, false)
    }

    fn quoted(&mut self) -> Result<Token, Broken> {
        let quote = self.at;
        self.at += 1;
        while let Some(octet) = self.text.get(self.at) {
            match *octet {
                b'"' => {
                    self.at += 1;
                    return self.finished(quote + 1, self.at - 1, true);
                }
                b'\n' => return Err(self.wrong(quote, self.line, OPEN_QUOTE)),
                b'\\' => self.escape()?,
                _ => self.at += 1,
            }
        }
        if self.whole {
            return Err(self.wrong(quote, self.line, OPEN_QUOTE));
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

    fn finished(&self, start: usize, end: usize, quoted: bool) -> Result<Token, Broken> {
        // Whether the word goes on is not known yet.
        if end == self.text.len() && !self.whole {
            return Err(Broken::Unfinished);
        }
        Ok(Token {
            // Texts are far shorter than four gigabytes: see `ENTRY_LENGTH_MAX`.
            start: start as u32,
            end: end as u32,
            line: self.line,
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
            blank_owner: self
                .text
                .first()
                .is_some_and(|octet| class(*octet) == Class::Blank || *octet == b'('),
        }
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
        assert_eq!(words(r#"k="v w" x"#), [r#"k="v w""#, "x"]);
        assert_eq!(words(r#"a;b "c"#), ["a"]);
        assert!(words("; nothing\nx").is_empty());
        assert_eq!(words(r"a\;b\ c"), [r"a\;b\ c"]);
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
