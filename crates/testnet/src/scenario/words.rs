//! The words of one line of a scenario, each taken once; a word that nobody took is an error.

use std::str::FromStr;

use crate::{Failure, Outcome};

/// What is left of a line.
#[derive(Debug, Clone)]
pub struct Words<'a> {
    rest: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// Splits a line at blanks.
    pub fn of(line: &'a str) -> Self {
        Self {
            rest: line.split_whitespace().collect(),
        }
    }

    /// Takes the first word that is left.
    pub fn next(&mut self, what: &str) -> Outcome<&'a str> {
        if self.rest.is_empty() {
            return Err(Failure::new(format!("{what} is missing")));
        }
        Ok(self.rest.remove(0))
    }

    /// Takes the first word if it ends in a colon: `LABEL:`.
    pub fn label(&mut self) -> Option<&'a str> {
        let label = self.rest.first()?.strip_suffix(':')?;
        self.rest.remove(0);
        Some(label)
    }

    /// Takes this very word if it is there.
    pub fn flag(&mut self, word: &str) -> bool {
        let place = self.rest.iter().position(|other| *other == word);
        place.map(|place| self.rest.remove(place)).is_some()
    }

    /// Takes the value of the next `key=value`.
    pub fn value(&mut self, key: &str) -> Option<&'a str> {
        let value_of = |word: &&'a str| {
            word.strip_prefix(key)
                .and_then(|rest| rest.strip_prefix('='))
        };
        let place = self.rest.iter().position(|word| value_of(word).is_some())?;
        value_of(&self.rest.remove(place))
    }

    /// Takes the value of `key=value` and reads it.
    pub fn parsed<T: FromStr>(&mut self, key: &str) -> Outcome<Option<T>> {
        self.value(key).map(|value| parse(key, value)).transpose()
    }

    /// Takes the value of `key=NUMBER`, decimal or `0x` hexadecimal.
    pub fn number(&mut self, key: &str) -> Outcome<Option<u16>> {
        self.value(key).map(|value| number(key, value)).transpose()
    }

    /// Takes every word for which `wanted` is true.
    pub fn take_all(&mut self, wanted: impl Fn(&str) -> bool) -> Vec<&'a str> {
        let (taken, rest) = self.rest.iter().partition(|word| wanted(word));
        self.rest = rest;
        taken
    }

    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Fails if anything is left.
    pub fn end(self) -> Outcome<()> {
        match self.rest.first() {
            None => Ok(()),
            Some(word) => Err(Failure::new(format!(
                "`{word}` means nothing here (tests/scenarios/README.md lists what does)"
            ))),
        }
    }
}

/// Reads a value and names the key in the failure.
pub(crate) fn parse<T: FromStr>(key: &str, value: &str) -> Outcome<T> {
    value
        .parse()
        .map_err(|_| Failure::new(format!("`{value}` is no value for {key}")))
}

fn number(key: &str, value: &str) -> Outcome<u16> {
    match value.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => value.parse(),
    }
    .map_err(|_| {
        Failure::new(format!(
            "`{value}` is no number for {key} (0 to 65535, or 0x…)"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_once_and_what_is_left_is_named() {
        let mut words = Words::of("q1: www.example.com. A tcp id=0x10 option=1 option=2 bogus");
        assert_eq!(words.label(), Some("q1"));
        assert_eq!(words.next("a name").expect("there"), "www.example.com.");
        assert!(words.flag("tcp") && !words.flag("tcp"));
        assert_eq!(words.number("id").expect("a number"), Some(16));
        assert_eq!(
            (
                words.value("option"),
                words.value("option"),
                words.value("option")
            ),
            (Some("1"), Some("2"), None)
        );
        assert_eq!(words.next("a type").expect("there"), "A");
        assert!(
            words
                .end()
                .expect_err("one is left")
                .to_string()
                .contains("bogus")
        );
    }

    #[test]
    fn a_bad_number_is_named() {
        let failure = Words::of("id=70000").number("id").expect_err("too large");
        assert!(failure.to_string().contains("70000"), "{failure}");
    }
}
