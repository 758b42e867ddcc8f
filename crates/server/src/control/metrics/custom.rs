//! Metrics that the operator declares and counts in Lua: `declareMetric`, `incMetric`, `decMetric`, `setMetric`,
//! `getMetric`. Their numbers live on over a reload that declares them again.
//!
//! One lock, taken by Lua functions that use them and by whoever shows them: never by a configuration without.

use super::text::{Kind, Text, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All that were declared.
#[derive(Debug, Default)]
pub struct CustomMetrics(Mutex<BTreeMap<String, CustomMetric>>);

#[derive(Debug, Clone, PartialEq)]
struct CustomMetric {
    kind: Kind,
    description: String,
    shown: Shown,
    /// By labels, as they are written; `""` without.
    values: BTreeMap<Labels, f64>,
}

/// How a metric stands in /metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its name there; empty: `dnsdist_` and its own.
    pub name: String,
    /// The manual: "If set to true, the metric will be expected to have labels and it will not be automatically created without
    /// labels".
    pub with_labels: bool,
}

impl CustomMetric {
    /// The value without labels, 0 before it was changed; `None` where there is none.
    fn unlabelled(&self) -> Option<f64> {
        let value = self.values.get(&Labels::new()).copied();
        value.or_else(|| (!self.shown.with_labels).then_some(0.0))
    }
}

/// `(name, value)`, by name.
pub type Labels = Vec<(String, String)>;

/// Why a metric was not declared, counted or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricError {
    BadName(String),
    BadPrometheusName(String),
    BadKind(String),
    /// The name of a label.
    BadLabel(String),
    /// A statistic of ours has that name.
    BuiltIn(String),
    /// Ours are rows of that name in /metrics.
    BuiltInRow(String),
    /// Another metric of the configuration has that name, in /metrics or as one of another type.
    Taken(String),
    Unknown(String),
    NotACounter(String),
    NotAGauge(String),
}

impl fmt::Display for MetricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricError::BadName(name) => write!(
                f,
                "'{name}' is no name of a metric: lower-case letters, digits and dashes expected"
            ),
            MetricError::BadPrometheusName(name) => write!(
                f,
                "'{name}' is no name for Prometheus: letters, digits and underscores expected, a digit not first"
            ),
            MetricError::BadKind(kind) => {
                write!(f, "type '{kind}': counter or gauge expected")
            }
            MetricError::BadLabel(name) => write!(
                f,
                "'{name}' is no name of a label: letters, digits, underscores expected, no digit and not two underscores first"
            ),
            MetricError::BuiltIn(name) => write!(
                f,
                "'{name}' is a built-in statistic, whose name no metric can take: another name expected"
            ),
            MetricError::BuiltInRow(name) => write!(
                f,
                "{name} is a built-in row of /metrics: another name expected, or one for /metrics as the fourth argument"
            ),
            MetricError::Taken(name) => write!(
                f,
                "{name} was declared already, for another metric or as another type: another name expected"
            ),
            MetricError::Unknown(name) => {
                write!(f, "{name} was not declared: declareMetric comes first")
            }
            MetricError::NotACounter(name) => {
                write!(f, "{name} is a gauge: setMetric changes it")
            }
            MetricError::NotAGauge(name) => {
                write!(f, "{name} is a counter: incMetric and decMetric change it")
            }
        }
    }
}

impl std::error::Error for MetricError {}

impl CustomMetrics {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, CustomMetric>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Declares one; again with the same words changes nothing.
    ///
    /// # Errors
    /// See [`MetricError`].
    pub fn declare(
        &self,
        name: &str,
        kind: &str,
        description: &str,
        mut shown: Shown,
    ) -> Result<(), MetricError> {
        let usual = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit();
        if name.is_empty() || !name.bytes().all(|octet| usual(octet) || octet == b'-') {
            return Err(MetricError::BadName(name.to_owned()));
        }
        if super::statistics::is_built_in(name) {
            return Err(MetricError::BuiltIn(name.to_owned()));
        }
        shown.name = match &*shown.name {
            "" => format!("dnsdist_{}", name.replace('-', "_")),
            other => checked(other)?,
        };
        if super::is_family(&shown.name) {
            return Err(MetricError::BuiltInRow(shown.name));
        }
        let metric = CustomMetric {
            kind: match kind {
                "counter" => Kind::Counter,
                "gauge" => Kind::Gauge,
                _ => return Err(MetricError::BadKind(kind.to_owned())),
            },
            description: description.replace(['\n', '\\'], " "),
            shown,
            values: BTreeMap::new(),
        };
        let mut metrics = self.lock();
        let is_same = |other: &CustomMetric| other.shown.name == metric.shown.name;
        if metrics
            .iter()
            .any(|(other, known)| other != name && is_same(known))
        {
            return Err(MetricError::Taken(metric.shown.name));
        }
        let values = match metrics.get(name) {
            Some(known) if known.kind == metric.kind => known.values.clone(),
            Some(_) => return Err(MetricError::Taken(name.to_owned())),
            None => BTreeMap::new(),
        };
        metrics.insert(name.to_owned(), CustomMetric { values, ..metric });
        Ok(())
    }

    /// Adds `step` to a counter; its new value.
    ///
    /// # Errors
    /// It was not declared, or is a gauge; or a label has no name that Prometheus takes.
    pub fn add(&self, name: &str, labels: Labels, step: f64) -> Result<f64, MetricError> {
        self.change(name, Kind::Counter, labels, |value| value + step)
    }

    /// Sets a gauge; its new value.
    ///
    /// # Errors
    /// It was not declared, or is a counter; or a label has no name that Prometheus takes.
    pub fn set(&self, name: &str, labels: Labels, value: f64) -> Result<f64, MetricError> {
        self.change(name, Kind::Gauge, labels, |_| value)
    }

    fn change(
        &self,
        name: &str,
        kind: Kind,
        labels: Labels,
        change: impl FnOnce(f64) -> f64,
    ) -> Result<f64, MetricError> {
        if let Some((label, _)) = labels.iter().find(|(label, _)| !is_label(label)) {
            return Err(MetricError::BadLabel(label.clone()));
        }
        let mut metrics = self.lock();
        let unknown = || MetricError::Unknown(name.to_owned());
        let metric = metrics.get_mut(name).ok_or_else(unknown)?;
        if metric.kind != kind {
            return Err(match kind {
                Kind::Counter => MetricError::NotACounter(name.to_owned()),
                _ => MetricError::NotAGauge(name.to_owned()),
            });
        }
        let value = metric.values.entry(labels).or_default();
        *value = change(*value);
        Ok(*value)
    }

    /// The value of a metric; 0 before it was changed.
    ///
    /// # Errors
    /// It was not declared.
    pub fn get(&self, name: &str, labels: &Labels) -> Result<f64, MetricError> {
        let metrics = self.lock();
        let metric = metrics.get(name);
        let metric = metric.ok_or_else(|| MetricError::Unknown(name.to_owned()))?;
        Ok(metric.values.get(labels).copied().unwrap_or_default())
    }

    /// Takes over the numbers of those that `previous` has under the same name and of the same kind: counters add to them what
    /// the file counted while it was read, gauges keep what it set.
    pub fn count_on(&self, previous: &CustomMetrics) {
        if std::ptr::eq(self, previous) {
            return;
        }
        let mut metrics = self.lock();
        for (name, old) in previous.lock().iter() {
            let new = metrics.get_mut(name);
            let Some(new) = new.filter(|new| new.kind == old.kind) else {
                continue;
            };
            for (labels, value) in &old.values {
                let known = new.values.entry(labels.clone());
                match old.kind {
                    Kind::Counter => *known.or_default() += value,
                    _ => {
                        known.or_insert(*value);
                    }
                }
            }
        }
    }

    /// Name and value of each. The manual: "Labels are only available for prometheus. Metrics with labels are otherwise ignored."
    pub fn statistics(&self) -> Vec<(String, Value)> {
        let metrics = self.lock();
        let rows = metrics.iter().filter_map(|(name, metric)| {
            let value = metric.unlabelled()?;
            Some((name.clone(), shown(metric.kind, value)))
        });
        rows.collect()
    }

    /// The families in /metrics, but those whose name is there already.
    pub fn write(&self, text: &mut Text) {
        for metric in self.lock().values() {
            if text.has(&metric.shown.name) {
                continue;
            }
            let mut rows = text.family(&metric.shown.name, metric.kind, &metric.description);
            if let Some(value) = metric.unlabelled() {
                rows.row("", &[], shown(metric.kind, value));
            }
            let labelled = metric
                .values
                .iter()
                .filter(|(labels, _)| !labels.is_empty());
            for (labels, value) in labelled {
                let labels = labels.iter();
                let labels: Vec<_> = labels
                    .map(|(name, value)| (name.as_str(), value.as_str()))
                    .collect();
                rows.row("", &labels, shown(metric.kind, *value));
            }
        }
    }
}

/// Counters are whole numbers, as dnsdist's are.
fn shown(kind: Kind, value: f64) -> Value {
    match kind {
        Kind::Counter => Value::Signed(value as i64),
        _ => Value::Real(value),
    }
}

/// prometheus.io, "Metric labels": `[a-zA-Z_][a-zA-Z0-9_]*`, and two underscores begin what is Prometheus' own (`__name__`).
/// Another one makes Prometheus refuse the whole text.
fn is_label(name: &str) -> bool {
    let usual = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_';
    let starts = name.bytes().next();
    let is_free = starts.is_some_and(|first| !first.is_ascii_digit()) && !name.starts_with("__");
    is_free && name.bytes().all(usual)
}

/// prometheus.io, "Metric names": `[a-zA-Z_:][a-zA-Z0-9_:]*`.
fn checked(name: &str) -> Result<String, MetricError> {
    let usual = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'_' | b':');
    let starts = name
        .bytes()
        .next()
        .is_some_and(|first| !first.is_ascii_digit());
    if !starts || !name.bytes().all(usual) {
        return Err(MetricError::BadPrometheusName(name.to_owned()));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Shown {
        Shown {
            name: name.to_owned(),
            with_labels: false,
        }
    }

    fn declared() -> CustomMetrics {
        let metrics = CustomMetrics::default();
        let shown = Shown::default();
        metrics.declare("seen", "counter", "Seen.", shown).unwrap();
        let shown = named("room_heat");
        metrics.declare("heat", "gauge", "Heat.", shown).unwrap();
        metrics
    }

    #[test]
    fn counters_count_and_gauges_are_set() {
        let metrics = declared();
        assert_eq!(metrics.add("seen", vec![], 1.0), Ok(1.0));
        assert_eq!(metrics.add("seen", vec![], -3.0), Ok(-2.0));
        assert_eq!(metrics.set("heat", vec![], 21.5), Ok(21.5));
        assert_eq!(metrics.get("heat", &vec![]), Ok(21.5));
        let unknown = MetricError::Unknown("x".to_owned());
        assert_eq!(metrics.get("x", &vec![]), Err(unknown));
        assert!(metrics.add("heat", vec![], 1.0).is_err());
        assert!(metrics.set("seen", vec![], 1.0).is_err());
        let mut text = Text::default();
        metrics.write(&mut text);
        let expected = "# HELP dnsdist_seen Seen.\n# TYPE dnsdist_seen counter\ndnsdist_seen -2\n\
                        # HELP room_heat Heat.\n# TYPE room_heat gauge\nroom_heat 21.5\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn labels_make_rows() {
        let metrics = declared();
        let label = |value: &str| vec![("kind".to_owned(), value.to_owned())];
        metrics.add("seen", label("a"), 2.0).unwrap();
        metrics.add("seen", label("b"), 3.0).unwrap();
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        let rows = "dnsdist_seen 0\ndnsdist_seen{kind=\"a\"} 2\ndnsdist_seen{kind=\"b\"} 3\n";
        assert!(text.contains(rows), "{text}");
        let seen = metrics.statistics()[1].clone();
        assert_eq!(seen, ("seen".to_owned(), Value::Signed(0)));
    }

    #[test]
    fn labels_have_names_that_prometheus_takes() {
        let metrics = declared();
        let label = |name: &str| vec![(name.to_owned(), "a".to_owned())];
        for name in ["", "1", "a-b", "a b", "\u{e4}", "__name__", "__"] {
            let error = MetricError::BadLabel(name.to_owned());
            let (added, set) = (label(name), label(name));
            assert_eq!(metrics.add("seen", added, 1.0), Err(error.clone()));
            assert_eq!(metrics.set("heat", set, 1.0), Err(error));
        }
        assert_eq!(metrics.add("seen", label("_A1"), 1.0), Ok(1.0));
    }

    #[test]
    fn one_with_labels_has_no_row_without() {
        let metrics = CustomMetrics::default();
        let shown = Shown {
            name: "kinds".to_owned(),
            with_labels: true,
        };
        metrics.declare("kinds", "counter", "", shown).unwrap();
        let label = vec![("kind".to_owned(), "a".to_owned())];
        metrics.add("kinds", label, 1.0).unwrap();
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        assert!(text.ends_with("counter\nkinds{kind=\"a\"} 1\n"), "{text}");
        assert_eq!(metrics.statistics(), []);
    }

    #[test]
    fn a_family_of_ours_keeps_its_name() {
        let metrics = declared();
        let mut text = Text::default();
        text.single("dnsdist_seen", Kind::Gauge, "Ours.", 7);
        metrics.write(&mut text);
        let text = text.finish();
        assert!(
            text.contains("dnsdist_seen 7\n") && !text.contains("Seen."),
            "{text}"
        );
    }

    #[test]
    fn names_that_are_taken_or_none_are_refused() {
        let metrics = declared();
        for (name, kind, prometheus) in [
            ("Seen", "counter", None),
            ("", "counter", None),
            ("a", "histogram", None),
            ("queries", "counter", None),
            ("latency-bucket", "counter", None),
            ("a", "counter", Some("1a")),
            ("a", "counter", Some("dnsdist_queries")),
            ("a", "counter", Some("dnsdist_latency_bucket")),
            ("a", "counter", Some("millrace_a")),
            ("a", "counter", Some("room_heat")),
            ("seen", "gauge", None),
        ] {
            let shown = named(prometheus.unwrap_or_default());
            let declared = metrics.declare(name, kind, "", shown);
            assert!(declared.is_err(), "{name} {kind} {prometheus:?}");
        }
    }

    #[test]
    fn a_reload_counts_on() {
        let (old, new) = (declared(), declared());
        old.add("seen", vec![], 7.0).unwrap();
        new.count_on(&old);
        assert_eq!(new.get("seen", &vec![]), Ok(7.0));
        new.count_on(&new);
        assert_eq!(new.get("seen", &vec![]), Ok(7.0));
    }

    /// A file may count its own loading: a counter that fell would look like a restart.
    #[test]
    fn what_a_file_counts_while_it_is_read_comes_on_top() {
        let (old, new) = (declared(), declared());
        let label = |value: &str| vec![("kind".to_owned(), value.to_owned())];
        old.add("seen", vec![], 7.0).unwrap();
        old.add("seen", label("a"), 3.0).unwrap();
        old.set("heat", vec![], 20.0).unwrap();
        old.set("heat", label("a"), 30.0).unwrap();
        new.add("seen", vec![], 1.0).unwrap();
        new.set("heat", vec![], 21.0).unwrap();
        new.count_on(&old);
        assert_eq!(new.get("seen", &vec![]), Ok(8.0));
        assert_eq!(new.get("seen", &label("a")), Ok(3.0));
        assert_eq!(new.get("heat", &vec![]), Ok(21.0));
        assert_eq!(new.get("heat", &label("a")), Ok(30.0));
    }
}
