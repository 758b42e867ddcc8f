//! The text format of Prometheus, version 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).
//!
//! Our own writer because dnsdist's names stand in people's dashboards: libraries append `_total` to counters.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

/// What a number says of itself in its TYPE line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A number of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    Whole(u64),
    Signed(i64),
    Real(f64),
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Whole(number) => number.fmt(f),
            Value::Signed(number) => number.fmt(f),
            Value::Real(f64::INFINITY) => f.write_str("+Inf"),
            Value::Real(f64::NEG_INFINITY) => f.write_str("-Inf"),
            Value::Real(number) => number.fmt(f),
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Whole(number)
    }
}

impl From<bool> for Value {
    fn from(on: bool) -> Value {
        Value::Whole(on.into())
    }
}

impl From<Value> for serde_json::Value {
    fn from(value: Value) -> serde_json::Value {
        match value {
            Value::Whole(number) => number.into(),
            Value::Signed(number) => number.into(),
            // The manual's types are integers: a fraction stands only where there is one.
            Value::Real(number) if number.fract() == 0.0 && number.abs() < WHOLE => {
                (number as i64).into()
            }
            Value::Real(number) => number.into(),
        }
    }
}

/// Below this every whole number is one of 64 bits of floating point.
const WHOLE: f64 = (1_u64 << 53) as f64;

/// One column of a table: a family of rows, one row per `T`.
pub struct Family<T> {
    /// Without the table's prefix.
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub value: fn(&T) -> Value,
}

/// Families under way, by name: a name stands once, and all of its rows behind it, as the format demands.
#[derive(Default)]
pub struct Text {
    families: BTreeMap<String, String>,
    /// The `instance` label of every row; `None`: they have none.
    instance: Option<String>,
}

impl Text {
    /// Every row says whose it is.
    pub fn of_instance(instance: Option<String>) -> Text {
        Text {
            families: BTreeMap::new(),
            instance,
        }
    }

    /// Starts a family and gives the place for its rows.
    ///
    /// # Panics
    /// When the family is there already: a mistake in a table.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) -> Rows<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        let former = self.families.insert(name.to_owned(), head);
        assert!(former.is_none(), "metric family {name} stands twice");
        Rows {
            text: self.families.get_mut(name).expect("it was just put there"),
            name: name.to_owned(),
            instance: self.instance.as_deref(),
        }
    }

    /// Whether a family of this name is there already.
    pub fn has(&self, name: &str) -> bool {
        self.families.contains_key(name)
    }

    /// A family of one row without labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Into<Value>) {
        self.family(name, kind, help).row("", &[], value);
    }

    /// One family per column, in each a row per item, with the item's labels.
    pub fn table<T, const LABELS: usize>(
        &mut self,
        prefix: &str,
        columns: &[Family<T>],
        items: &[T],
        labels: fn(&T) -> [(&'static str, String); LABELS],
    ) {
        for column in columns {
            let mut rows = self.family(
                &format!("{prefix}{}", column.name),
                column.kind,
                column.help,
            );
            for item in items {
                let labels = labels(item);
                let labels = labels
                    .each_ref()
                    .map(|(name, value)| (*name, value.as_str()));
                rows.row("", &labels, (column.value)(item));
            }
        }
    }

    /// The whole text, families by name.
    pub fn finish(self) -> String {
        self.families.into_values().collect()
    }
}

/// The place for the rows of one family.
pub struct Rows<'t> {
    text: &'t mut String,
    name: String,
    instance: Option<&'t str>,
}

impl Rows<'_> {
    /// Adds a row; `suffix` is that of a histogram's rows, empty otherwise.
    pub fn row(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Into<Value>) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        let mut opening = '{';
        // A label that stands twice makes Prometheus refuse the whole text.
        let is_said = labels.iter().any(|(name, _)| *name == "instance");
        let instance = self.instance.filter(|_| !is_said);
        let instance = instance.map(|instance| ("instance", instance));
        for (name, value) in labels.iter().copied().chain(instance) {
            let _ = write!(self.text, "{opening}{name}=\"{}\"", Escaped(value));
            opening = ',';
        }
        let closing = if opening == '{' { "" } else { "}" };
        let _ = writeln!(self.text, "{closing} {}", value.into());
    }
}

/// A label's value: "backslash, double-quote, and line feed" are escaped.
struct Escaped<'v>(&'v str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_behind_their_family_and_families_by_name() {
        let mut text = Text::default();
        text.single("b", Kind::Gauge, "Second.", Value::Real(0.5));
        let mut rows = text.family("a", Kind::Counter, "First.");
        rows.row("", &[("x", "1"), ("y", "2")], 7);
        rows.row("", &[("x", "say \"hi\" \\ \n")], 8);
        assert_eq!(
            text.finish(),
            "# HELP a First.\n# TYPE a counter\na{x=\"1\",y=\"2\"} 7\n\
             a{x=\"say \\\"hi\\\" \\\\ \\n\"} 8\n\
             # HELP b Second.\n# TYPE b gauge\nb 0.5\n"
        );
    }

    #[test]
    fn every_row_may_say_whose_it_is() {
        let mut text = Text::of_instance(Some("ns\"1".to_owned()));
        text.single("b", Kind::Gauge, "B.", 1);
        text.family("c", Kind::Gauge, "C.")
            .row("", &[("x", "y")], 2);
        text.family("d", Kind::Gauge, "D.")
            .row("", &[("instance", "own")], 3);
        let text = text.finish();
        assert!(text.contains("\nd{instance=\"own\"} 3\n"), "{text}");
        assert!(text.contains("\nb{instance=\"ns\\\"1\"} 1\n"), "{text}");
        assert!(
            text.contains("\nc{x=\"y\",instance=\"ns\\\"1\"} 2\n"),
            "{text}"
        );
    }

    #[test]
    fn numbers_without_end_are_written_as_the_format_has_them() {
        for (number, expected) in [
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
            (-1.5, "-1.5"),
        ] {
            assert_eq!(Value::Real(number).to_string(), expected);
        }
    }

    #[test]
    #[should_panic(expected = "stands twice")]
    fn a_family_stands_once() {
        let mut text = Text::default();
        text.single("a", Kind::Gauge, "One.", 1);
        text.single("a", Kind::Gauge, "Two.", 2);
    }
}
