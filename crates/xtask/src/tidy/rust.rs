//! Rust source taken apart just enough: what is code, what is comment, where tests begin.

/// One line of Rust source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Its number, from 1.
    pub number: usize,
    /// Its code, string and character literals emptied.
    pub code: String,
    /// Its comment, without the slashes.
    pub comment: String,
    /// It stands behind `#[cfg(test)]` at the file's left edge.
    pub in_tests: bool,
}

/// Where the reader is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    Code,
    /// Nested this deep.
    Comment(u32),
    /// Ends with a quote and this many hashes; escapes count if there is none.
    Text(usize),
}

/// Splits source into lines.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let mut state = In::Code;
    let mut in_tests = false;
    let line = |(place, line): (usize, &str)| {
        in_tests |= line.starts_with("#[cfg(test)]");
        let (code, comment) = split(line, &mut state);
        Line {
            number: place + 1,
            code,
            comment,
            in_tests,
        }
    };
    text.lines().enumerate().map(line).collect()
}

fn split(line: &str, state: &mut In) -> (String, String) {
    let (mut code, mut comment) = (String::new(), String::new());
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        let mut step = character.len_utf8();
        match *state {
            In::Comment(depth) => {
                if rest.starts_with("*/") {
                    (*state, step) = (
                        if depth == 1 {
                            In::Code
                        } else {
                            In::Comment(depth - 1)
                        },
                        2,
                    );
                } else if rest.starts_with("/*") {
                    (*state, step) = (In::Comment(depth + 1), 2);
                } else {
                    comment.push(character);
                }
            }
            In::Text(hashes) => {
                if hashes == 0 && character == '\\' {
                    step = rest
                        .char_indices()
                        .nth(2)
                        .map_or(rest.len(), |(place, _)| place);
                } else if let Some(end) = text_end(rest, hashes) {
                    code.push('"');
                    (*state, step) = (In::Code, end);
                }
            }
            In::Code if rest.starts_with("//") => {
                comment.push_str(rest.trim_start_matches('/'));
                break;
            }
            In::Code if rest.starts_with("/*") => (*state, step) = (In::Comment(1), 2),
            In::Code => match text_start(rest, code.chars().last()) {
                Some((octets, hashes)) => {
                    code.push('"');
                    (*state, step) = (In::Text(hashes), octets);
                }
                None => {
                    step = character_literal(rest).unwrap_or(step);
                    code.push(if step > 2 { '_' } else { character });
                }
            },
        }
        rest = &rest[step..];
    }
    (code, comment)
}

/// A quote, or `r#"`: octets of the opening and how many hashes end it.
fn text_start(rest: &str, before: Option<char>) -> Option<(usize, usize)> {
    if rest.starts_with('"') {
        return Some((1, 0));
    }
    let in_word = before.is_some_and(|character| character.is_alphanumeric() || character == '_');
    let raw = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    let opens = raw[hashes..].starts_with('"') && !in_word;
    // Without hashes a raw text has no escapes either; the difference does not matter to any check.
    opens.then(|| (rest.len() - raw.len() + hashes + 1, hashes))
}

fn text_end(rest: &str, hashes: usize) -> Option<usize> {
    let behind = rest.strip_prefix('"')?;
    let found = behind.bytes().take_while(|octet| *octet == b'#').count();
    (found >= hashes).then_some(1 + hashes)
}

/// Octets of `'x'` or `'\n'`; a lifetime is none.
fn character_literal(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    let end = match inner.strip_prefix('\\') {
        Some(escaped) => {
            1 + escaped
                .char_indices()
                .skip(1)
                .find(|(_, character)| *character == '\'')?
                .0
        }
        None => {
            inner
                .char_indices()
                .nth(1)
                .filter(|(_, character)| *character == '\'')?
                .0
        }
    };
    Some(1 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_all(text: &str) -> Vec<(String, String)> {
        lines(text)
            .into_iter()
            .map(|line| (line.code, line.comment))
            .collect()
    }

    #[test]
    fn texts_and_comments_are_no_code() {
        let found = split_all("let a = \"b { // c\"; // d\n/* e { \n f */ g('{', 'h') \"i\\\"{\"");
        assert_eq!(found[0], ("let a = \"\"; ".to_owned(), " d".to_owned()));
        assert_eq!(found[1].0, "");
        assert_eq!(found[2].0, " g(_, _) \"\"");
    }

    #[test]
    fn raw_texts_end_with_their_hashes() {
        assert_eq!(split_all("x(r#\"a \" { \"#) }")[0].0, "x(\"\") }");
        assert_eq!(split_all("let r = 1; for r\n")[0].0, "let r = 1; for r");
    }

    #[test]
    fn a_lifetime_is_code() {
        assert_eq!(
            split_all("fn a<'b>(c: &'b str) {")[0].0,
            "fn a<'b>(c: &'b str) {"
        );
    }

    #[test]
    fn tests_begin_at_their_attribute() {
        let found = lines("fn a() {}\n#[cfg(test)]\nmod tests {\n");
        assert_eq!(
            found.iter().map(|line| line.in_tests).collect::<Vec<_>>(),
            [false, true, true]
        );
    }
}
