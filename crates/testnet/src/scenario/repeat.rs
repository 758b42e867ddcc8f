//! `each N in 0..41` … `end` in `[steps]`: the lines between, once for each number, `$N` standing for it.

use std::ops::RangeInclusive;

use super::words::{Words, parse};
use crate::{Failure, Outcome};

/// Lines under way to be repeated.
#[derive(Debug)]
pub(super) struct Repeat {
    mark: String,
    numbers: RangeInclusive<u32>,
    lines: Vec<(usize, String)>,
}

impl Repeat {
    /// Reads the line that begins one; `None` for any other line.
    pub(super) fn of_line(line: &str) -> Outcome<Option<Self>> {
        let Some(rest) = line.strip_prefix("each ") else {
            return Ok(None);
        };
        let mut words = Words::of(rest);
        let mark = format!("${}", words.next("a name")?);
        let range = match (words.next("`in`")?, words.next("FIRST..LAST")?) {
            ("in", range) => range.split_once(".."),
            _ => None,
        };
        let (first, last) = range.ok_or_else(|| Failure::new("each NAME in FIRST..LAST"))?;
        words.end()?;
        Ok(Some(Self {
            mark,
            numbers: parse("each", first)?..=parse("each", last)?,
            lines: Vec::new(),
        }))
    }

    /// Keeps a line.
    pub(super) fn push(&mut self, number: usize, line: &str) {
        self.lines.push((number, line.to_owned()));
    }

    /// All lines in order, with their numbers in the file.
    pub(super) fn unrolled(self) -> impl Iterator<Item = (usize, String)> {
        let Self {
            mark,
            numbers,
            lines,
        } = self;
        numbers.flat_map(move |number| {
            let value = number.to_string();
            let lines = lines.iter();
            let filled = lines.map(|(place, line)| (*place, line.replace(&mark, &value)));
            filled.collect::<Vec<_>>()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_once_for_each_number() {
        let mut repeat = Repeat::of_line("each N in 9..10")
            .expect("good")
            .expect("one");
        repeat.push(3, "ask a$N: example.com. A opcode=$N");
        repeat.push(4, "expect a$N: none");
        let lines: Vec<_> = repeat.unrolled().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(
            lines[2],
            (3, "ask a10: example.com. A opcode=10".to_owned())
        );
        assert!(Repeat::of_line("ask a. A").expect("no such line").is_none());
        assert!(Repeat::of_line("each N of 1..2").is_err());
    }
}
