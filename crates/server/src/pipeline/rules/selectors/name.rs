//! Selectors by the name asked for.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::Selector;
use crate::pipeline::rules::names::{NameSet, SuffixSet};
use regex::bytes::{Regex, RegexBuilder};
use std::sync::Arc;
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf};

/// `QNameRule(qname)`: exactly this name.
pub struct QNameRule(pub NameBuf);

impl Selector for QNameRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        self.0 == query.name()
    }

    fn describe(&self) -> String {
        format!("qname=={}", self.0)
    }
}

/// `QNameSuffixRule(suffixes [, quiet])` and its older name `SuffixMatchNodeRule`: these names and all below them.
pub struct QNameSuffixRule {
    pub suffixes: Arc<SuffixSet>,
    /// Do not list the suffixes in showRules().
    pub quiet: bool,
}

impl Selector for QNameSuffixRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        self.suffixes.matches(&query.name(), query.parts.labels)
    }

    fn describe(&self) -> String {
        if self.quiet {
            return "qname==in-set".to_owned();
        }
        let names = self.suffixes.names().iter();
        let mut names: Vec<String> = names.map(|name| name.to_string()).collect();
        names.sort_unstable();
        format!("qname in {}", names.join(", "))
    }
}

/// `QNameSetRule(set)`: exactly one of these names.
pub struct QNameSetRule(pub Arc<NameSet>);

impl Selector for QNameSetRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        self.0.contains(&query.name())
    }

    fn describe(&self) -> String {
        format!("qname in DNSNameSet({} FQDNs)", self.0.len())
    }
}

/// `QNameLabelsCountRule(min, max)`: fewer labels than `minimum` or more than `maximum`, the root not counted.
pub struct QNameLabelsCountRule {
    pub minimum: u32,
    pub maximum: u32,
}

impl Selector for QNameLabelsCountRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        !(self.minimum..=self.maximum).contains(&query.parts.labels.into())
    }

    fn describe(&self) -> String {
        let (minimum, maximum) = (self.minimum, self.maximum);
        format!("labels count < {minimum} || labels count > {maximum}")
    }
}

/// `QNameWireLengthRule(min, max)`: a name of fewer than `minimum` or more than `maximum` bytes on the wire.
pub struct QNameWireLengthRule {
    pub minimum: usize,
    pub maximum: usize,
}

impl Selector for QNameWireLengthRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        !(self.minimum..=self.maximum).contains(&query.parts.qname_length.into())
    }

    fn describe(&self) -> String {
        let (minimum, maximum) = (self.minimum, self.maximum);
        format!("wire length < {minimum} || wire length > {maximum}")
    }
}

/// `RegexRule(regex)`: the name as text, without its last dot, in any case. Linear in the name's length, whatever the
/// expression.
pub struct RegexRule {
    regex: Regex,
    shown: String,
}

impl RegexRule {
    /// # Errors
    /// What is wrong with the expression, or that it takes too much memory (10 MB).
    pub fn new(expression: &str) -> Result<RegexRule, regex::Error> {
        Ok(RegexRule {
            regex: compiled(expression)?,
            shown: format!("Regex: {expression}"),
        })
    }

    /// `RE2Rule(regex)`: "this rule requires a full match of the query name".
    ///
    /// # Errors
    /// As [`RegexRule::new`].
    pub fn whole(expression: &str) -> Result<RegexRule, regex::Error> {
        Ok(RegexRule {
            regex: compiled(&format!("^(?:{expression})$"))?,
            shown: format!("RE2 match: {expression}"),
        })
    }
}

fn compiled(expression: &str) -> Result<Regex, regex::Error> {
    let mut builder = RegexBuilder::new(expression);
    builder.case_insensitive(true).build()
}

impl Selector for RegexRule {
    fn matches(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        let mut text = [0; TEXT_LENGTH_MAX];
        self.regex.is_match(write_text(&query.name(), &mut text))
    }

    fn describe(&self) -> String {
        self.shown.clone()
    }
}

/// Each byte of a name takes at most four: `\065`.
const TEXT_LENGTH_MAX: usize = NAME_LENGTH_MAX * 4;

/// Writes the name as people write it but for the last dot (RFC 1035 §5.1), without allocating; the root is nothing.
fn write_text<'t>(name: &Name<'_>, text: &'t mut [u8; TEXT_LENGTH_MAX]) -> &'t [u8] {
    let mut at = 0;
    let mut put = |byte| {
        text[at] = byte;
        at += 1;
    };
    for (number, label) in name.labels().enumerate() {
        if number > 0 {
            put(b'.');
        }
        for &byte in label {
            match byte {
                b'.' | b'\\' => [b'\\', byte].map(&mut put).len(),
                0x21..=0x7e => [byte].map(&mut put).len(),
                _ => {
                    let digits = [byte / 100, byte / 10 % 10, byte % 10].map(|digit| b'0' + digit);
                    [b'\\', digits[0], digits[1], digits[2]].map(&mut put).len()
                }
            };
        }
    }
    &text[..at]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::scene::{Scene, query};
    use wire::codes::qtype;

    fn matches(selector: &dyn Selector, name: &str) -> bool {
        Scene::default().matches(selector, &query(name, qtype::A))
    }

    fn set<T: for<'n> FromIterator<Name<'n>>>(names: &[&str]) -> Arc<T> {
        let names: Vec<NameBuf> = names.iter().map(|name| name.parse().unwrap()).collect();
        Arc::new(names.iter().map(NameBuf::as_name).collect())
    }

    #[test]
    fn whole_names_suffixes_and_sets() {
        let exact = QNameRule("example.com.".parse().unwrap());
        assert!(matches(&exact, "EXAMPLE.com."));
        assert!(!matches(&exact, "www.example.com."));
        let mut suffix = QNameSuffixRule {
            suffixes: set(&["b.example.", "a.example."]),
            quiet: false,
        };
        assert!(matches(&suffix, "x.A.example."));
        assert!(!matches(&suffix, "example."));
        let whole = QNameSetRule(set(&["b.example.", "a.example."]));
        assert!(matches(&whole, "B.example."));
        assert!(!matches(&whole, "x.b.example."));
        assert_eq!(exact.describe(), "qname==example.com.");
        assert_eq!(suffix.describe(), "qname in a.example., b.example.");
        suffix.quiet = true;
        assert_eq!(suffix.describe(), "qname==in-set");
        assert_eq!(whole.describe(), "qname in DNSNameSet(2 FQDNs)");
    }

    #[test]
    fn lengths_outside_the_range_match() {
        let labels = QNameLabelsCountRule {
            minimum: 1,
            maximum: 2,
        };
        let lengths = QNameWireLengthRule {
            minimum: 3,
            maximum: 5,
        };
        let outside = [".", "a.", "a.b.", "a.b.c."].map(|name| {
            let (labels, lengths) = (matches(&labels, name), matches(&lengths, name));
            (labels, lengths)
        });
        // Wire lengths 1, 3, 5 and 7.
        let [root, one, two, three] = outside;
        assert_eq!((root, one), ((true, true), (false, false)));
        assert_eq!((two, three), ((false, false), (true, true)));
        assert_eq!(labels.describe(), "labels count < 1 || labels count > 2");
        assert_eq!(lengths.describe(), "wire length < 3 || wire length > 5");
    }

    #[test]
    fn a_regular_expression_sees_the_name_without_its_last_dot() {
        let digits = RegexRule::new(r"[0-9]{4,}\.example$").unwrap();
        assert!(matches(&digits, "a1234.EXAMPLE."));
        assert!(!matches(&digits, "a1234.example.com."));
        assert!(matches(&RegexRule::new("^$").unwrap(), "."));
        assert!(matches(&RegexRule::new(r"^a\\\.b$").unwrap(), r"a\.b."));
        assert!(matches(
            &RegexRule::new(r"^\\000\\255$").unwrap(),
            r"\000\255."
        ));
        assert!(RegexRule::new("(?=a)").is_err(), "no look-around");
        let whole = RegexRule::whole("b|powerdns").unwrap();
        assert!(matches(&whole, "PowerDNS."));
        for other in [
            "prefixpowerdns.",
            "sub.powerdns.",
            "powerdnssuffix.",
            "powerdns.tld.",
        ] {
            assert!(!matches(&whole, other), "{other}");
        }
        assert_eq!(whole.describe(), "RE2 match: b|powerdns");
    }
}
