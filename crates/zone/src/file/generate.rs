//! `$GENERATE`: one line for many records, as BIND's manual has it.
//!
//! ```text
//! $GENERATE start-stop[/step] owner [TTL] [class] type RDATA      $GENERATE 1-254 ${0,3} A 192.0.2.$
//! ```
//!
//! In owner and RDATA `$` is the number, `${offset,width,base}` the number moved, padded with zeroes, in base `d`, `o`,
//! `x`, `X`, or as nibbles from the right with dots between (`n`, `N`); `$$` and `\$` are a dollar sign.

use super::words::{Word, Words, Wrong, class, decimal, kind};

/// A width beyond this could not be a part of a name, and is no number.
const WIDTH_MAX: u32 = 255;

/// Records to come from one `$GENERATE`.
pub(super) struct Generate {
    /// The next number, and the last that may come.
    next: u64,
    stop: u64,
    step: u64,
    owner: Vec<u8>,
    /// TTL, class and type as written.
    middle: Vec<u8>,
    rdata: Vec<u8>,
}

impl Generate {
    /// What stands behind `$GENERATE`; at most so many records.
    pub(super) fn read(words: &mut Words<'_>, records_max: u32) -> Result<Generate, Wrong> {
        let range_word = words.want("a range such as 1-254 or 0-100/2")?;
        let (start, stop, step) = range(range_word.text).ok_or_else(|| {
            range_word.wrong("a range start-stop or start-stop/step belongs here: numbers to 2147483647, a step of at least 1, stop not before start")
        })?;
        let count = (stop - start) / step + 1;
        if count > u64::from(records_max) {
            return Err(range_word.wrong(format_args!(
                "range of {count} records: one $GENERATE makes at most {records_max}"
            )));
        }
        let owner = words.want("the owner's pattern")?;
        let mut generate = Generate {
            next: start,
            stop,
            step,
            owner: owner.text.to_vec(),
            middle: Vec::new(),
            rdata: Vec::new(),
        };
        check(&owner, owner.text)?;
        generate.read_middle(words)?;
        let first = words.peek();
        generate.read_rdata(words);
        match first {
            Some(word) => check(&word, &generate.rdata)?,
            None => {
                return Err(
                    words.wrong("too short: the pattern of the RDATA belongs here".to_owned())
                );
            }
        }
        Ok(generate)
    }

    /// To the type.
    fn read_middle(&mut self, words: &mut Words<'_>) -> Result<(), Wrong> {
        loop {
            let word = words.want("a type")?;
            self.middle.extend_from_slice(word.text);
            self.middle.push(b' ');
            let is_ttl = word.text.first().is_some_and(u8::is_ascii_digit);
            if !is_ttl && class(word.text).is_none() {
                return match kind(word.text) {
                    Some(_) => Ok(()),
                    None => Err(word.wrong("a type belongs here, such as A or PTR")),
                };
            }
        }
    }

    /// The rest; a single string in quotes means what is in it, as BIND reads it.
    fn read_rdata(&mut self, words: &mut Words<'_>) {
        let first = words.peek();
        words.rest_as_written(&mut self.rdata);
        if let Some(word) = first
            && word.quoted
            && self.rdata.len() == word.text.len() + 2
        {
            self.rdata = word.text.to_vec();
        }
    }

    /// Writes the next record's line to `line`; `None`: there are no more.
    pub(super) fn next_line(&mut self, line: &mut Vec<u8>) -> Option<Result<(), String>> {
        if self.next > self.stop {
            return None;
        }
        line.clear();
        let number = self.next;
        self.next += self.step;
        let mut write = || {
            expand(&self.owner, number, line)?;
            line.push(b' ');
            line.extend_from_slice(&self.middle);
            expand(&self.rdata, number, line)
        };
        Some(write().map_err(str::to_owned))
    }
}

fn range(text: &[u8]) -> Option<(u64, u64, u64)> {
    let number = |text: &[u8]| decimal(text).filter(|number| *number <= i32::MAX as u32);
    let dash = text.iter().position(|octet| *octet == b'-')?;
    let (start, rest) = (&text[..dash], &text[dash + 1..]);
    let (stop, step) = match rest.iter().position(|octet| *octet == b'/') {
        Some(slash) => (&rest[..slash], number(&rest[slash + 1..])?),
        None => (rest, 1),
    };
    let (start, stop) = (number(start)?, number(stop)?);
    (start <= stop && step > 0).then_some((start.into(), stop.into(), step.into()))
}

/// Finds what is wrong with a pattern before it is used.
fn check(word: &Word<'_>, pattern: &[u8]) -> Result<(), Wrong> {
    expand(pattern, i32::MAX as u64, &mut Vec::new()).map_err(|what| word.wrong(what))
}

const BAD_MODIFIER: &str =
    "pattern: ${offset,width,base} takes an offset, a width from 0 to 255, and d, o, x, X, n or N";

/// Appends the pattern with this number in it.
fn expand(pattern: &[u8], number: u64, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut at = 0;
    while let Some(octet) = pattern.get(at) {
        match (octet, pattern.get(at + 1)) {
            (b'\\', Some(b'$')) | (b'$', Some(b'$')) => {
                out.push(b'$');
                at += 2;
            }
            (b'\\', Some(next)) => {
                out.extend([b'\\', *next]);
                at += 2;
            }
            (b'$', Some(b'{')) => {
                let length = pattern[at..]
                    .iter()
                    .position(|octet| *octet == b'}')
                    .ok_or(BAD_MODIFIER)?;
                modified(&pattern[at + 2..at + length], number, out)?;
                at += length + 1;
            }
            (b'$', _) => {
                out.extend(number.to_string().bytes());
                at += 1;
            }
            _ => {
                out.push(*octet);
                at += 1;
            }
        }
    }
    Ok(())
}

/// `offset,width,base`.
fn modified(modifier: &[u8], number: u64, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut parts = modifier.split(|octet| *octet == b',');
    let offset = std::str::from_utf8(parts.next().unwrap_or_default()).ok();
    let offset: i32 = offset
        .and_then(|text| text.parse().ok())
        .ok_or(BAD_MODIFIER)?;
    let width = parts
        .next()
        .map_or(Some(0), decimal)
        .filter(|width| *width <= WIDTH_MAX);
    let width = width.ok_or(BAD_MODIFIER)? as usize;
    let base = parts.next().unwrap_or(b"d");
    if parts.next().is_some() {
        return Err(BAD_MODIFIER);
    }
    let moved = number as i64 + i64::from(offset);
    let value = u64::try_from(moved).map_err(|_| "pattern: the offset makes a number below 0")?;
    let digits = match base {
        b"d" => format!("{value:0width$}"),
        b"o" => format!("{value:0width$o}"),
        b"x" => format!("{value:0width$x}"),
        b"X" => format!("{value:0width$X}"),
        b"n" => nibbles(value, width),
        b"N" => nibbles(value, width).to_ascii_uppercase(),
        _ => return Err(BAD_MODIFIER),
    };
    out.extend_from_slice(digits.as_bytes());
    Ok(())
}

/// Hexadecimal digits from the last to the first, dots between; `width` counts both.
fn nibbles(mut value: u64, width: usize) -> String {
    let mut text = String::new();
    loop {
        text.push(char::from_digit((value & 15) as u32, 16).unwrap_or('0'));
        value >>= 4;
        if value == 0 && text.len() >= width {
            return text;
        }
        text.push('.');
        if value == 0 && text.len() >= width {
            return text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(pattern: &str, number: u64) -> Result<String, &'static str> {
        let mut out = Vec::new();
        expand(pattern.as_bytes(), number, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn patterns() {
        for (pattern, number, text) in [
            ("host-$", 7, "host-7"),
            ("$.${1}.$", 7, "7.8.7"),
            ("${0,3}", 7, "007"),
            ("${-2,3,d}", 7, "005"),
            ("${0,4,x}${0,2,X}", 171, "00abAB"),
            ("${0,0,o}", 8, "10"),
            ("${0,7,n}", 0x12, "2.1.0.0"),
            ("${0,3,N}", 0xab, "B.A"),
            (r"a$$b\$c\.d", 7, r"a$b$c\.d"),
            ("nothing", 7, "nothing"),
        ] {
            assert_eq!(expanded(pattern, number).as_deref(), Ok(text), "{pattern}");
        }
        for pattern in [
            "${",
            "${}",
            "${a}",
            "${0,256}",
            "${0,1,z}",
            "${0,1,d,1}",
            "${-9}",
        ] {
            assert!(expanded(pattern, 7).is_err(), "{pattern}");
        }
    }

    #[test]
    fn ranges() {
        assert_eq!(range(b"1-254"), Some((1, 254, 1)));
        assert_eq!(range(b"0-2147483647/3"), Some((0, i32::MAX as u64, 3)));
        for wrong in [
            "1",
            "2-1",
            "1-2/0",
            "-1-2",
            "1-2147483648",
            "a-b",
            "1-2/",
            "1--2",
        ] {
            assert_eq!(range(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
