//! The report of a run of the bench: charts with their conditions, tables, what could not be measured; as one page of HTML
//! that needs nothing else, and as Markdown beside its charts.
//!
//! ```text
//!  Results ─▶ Report: head, parts ( text, charts, tables ) ─▶ report.html, README.md, charts/NAME.svg
//! ```
//!
//! What is said below every chart and table of how it came about is in [`conditions`](mod@conditions). A theme of charts is a
//! file: [`over_time`], [`once_through`], [`limits`], [`latency`], [`evenness`], [`ratios`]; so are the tables that set figures
//! against each other: [`overload`], [`beside`].

mod axis;
mod bars;
mod beside;
mod conditions;
mod curves;
mod evenness;
pub(super) mod latency;
mod limits;
mod once_through;
mod over_time;
mod overload;
mod page;
mod ratios;
mod sheets;
mod svg;
mod tables;

use super::plan::{Contender, Measure, Scenario};
use super::record::{Machine, Record};
use super::results::Results;
use conditions::{
    commits, conditions, conditions_of, left_out, paths_of, place_of, queues_in_words, server_of,
};
use svg::Style;

/// Everything that is shown.
#[derive(Clone, Debug)]
pub(super) struct Report {
    title: String,
    /// Where and how it was measured: a line each.
    conditions: Vec<String>,
    parts: Vec<Part>,
}

/// A headline and what is under it.
#[derive(Clone, Debug, Default)]
struct Part {
    title: String,
    text: String,
    charts: Vec<Chart>,
    tables: Vec<Table>,
}

/// A drawing with what must be known to read it.
#[derive(Clone, Debug)]
struct Chart {
    /// Its file's name.
    name: String,
    title: String,
    svg: String,
    /// Under what conditions it was measured.
    conditions: String,
}

/// Rows under names; numbers stand at the right.
#[derive(Clone, Debug, Default)]
struct Table {
    title: String,
    /// Under what conditions it was measured; nothing of what was not.
    conditions: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// The records of one scenario, which may be none.
#[derive(Clone, Copy)]
struct Measured<'r> {
    scenario: &'r Scenario,
    results: &'r Results,
}

impl Report {
    /// Makes one; what the results have no records of is left out.
    pub(super) fn of(results: &Results, scenarios: &[Scenario]) -> Report {
        let all: Vec<Measured> = scenarios
            .iter()
            .map(|scenario| Measured { scenario, results })
            .collect();
        let parts = [
            tables::missing(results),
            over_time::part(&all),
            once_through::part(&all),
            limits::part(&all),
            latency::part(&all),
            evenness::part(&all),
            ratios::part(&all),
            overload::part(&all),
            beside::part(&all),
            tables::all(&all),
        ];
        let something = |part: &Part| !part.charts.is_empty() || !part.tables.is_empty();
        let mut conditions = conditions(results);
        conditions.extend(left_out(results, scenarios));
        Report {
            title: format!("Results of {}", results.machine.date),
            conditions,
            parts: parts.into_iter().filter(something).collect(),
        }
    }

    /// Every chart's name and drawing.
    pub(super) fn charts(&self) -> impl Iterator<Item = (&str, &str)> {
        let charts = self.parts.iter().flat_map(|part| &part.charts);
        charts.map(|chart| (chart.name.as_str(), chart.svg.as_str()))
    }
}

impl<'r> Measured<'r> {
    /// Its records of a measure, in the order in which they were made.
    fn records(self, measure: Measure) -> impl Iterator<Item = &'r Record> {
        let Measured { scenario, results } = self;
        results
            .records
            .iter()
            .filter(move |record| record.scenario == scenario.name && record.measure == measure)
    }

    /// Those of one contender.
    fn records_of(self, contender: &str, measure: Measure) -> Vec<&'r Record> {
        self.records(measure)
            .filter(|record| record.contender == contender)
            .collect()
    }

    /// Contenders that have records of a measure, with these, in the scenario's order.
    fn contenders(self, measure: Measure) -> Vec<(&'r Contender, Vec<&'r Record>)> {
        let contenders = self.scenario.contenders.iter();
        contenders
            .map(|contender| (contender, self.records_of(&contender.name, measure)))
            .filter(|(_, records)| !records.is_empty())
            .collect()
    }

    /// The same with the doors of each server beside each other, servers in the order of their first.
    fn contenders_by_server(self, measure: Measure) -> Vec<(&'r Contender, Vec<&'r Record>)> {
        let all = &self.scenario.contenders;
        let mut contenders = self.contenders(measure);
        contenders.sort_by_key(|(contender, _)| {
            let mut servers = all.iter().map(|one| &one.server);
            servers.position(|server| *server == contender.server)
        });
        contenders
    }

    /// The name of the contender that one is compared with: its own, or the best of the scenario's.
    fn yardstick_of(self, contender: &'r Contender, measure: Measure) -> Option<&'r str> {
        let own = contender.beside.as_deref();
        own.or_else(|| self.best_yardstick(measure))
    }

    /// The scenario's yardstick; of several the one with the best median of a measure.
    fn best_yardstick(self, measure: Measure) -> Option<&'r str> {
        let yardsticks = &self.scenario.yardsticks;
        let figure = |name: &str| {
            let records = self.records_of(name, measure);
            let figure = median(&figures(&records));
            let better = if measure.is_better_when_less() {
                -figure
            } else {
                figure
            };
            (!records.is_empty()).then_some(better)
        };
        let measured = yardsticks
            .iter()
            .filter_map(|name| Some((name, figure(name)?)));
        let best = measured.max_by(|(_, one), (_, other)| one.total_cmp(other));
        let best = best.map(|(name, _)| name).or(yardsticks.first());
        best.map(String::as_str)
    }

    /// What stands before a ratio of two contenders, one of which the generator may have limited.
    fn sign(self, measure: Measure, own: &str, yardstick: &str) -> &'static str {
        let [own, yardstick] = [own, yardstick].map(|name| (name, self.records_of(name, measure)));
        if measure == Measure::Overload {
            // With more load either might have answered more, or less.
            let is_short = |name: &str| overload::limit(self, name).is_some();
            return match is_short(own.0) || is_short(yardstick.0) {
                true => UNKNOWN,
                false => "",
            };
        }
        sign_of_ratio(
            is_generators_limit(&own.1),
            is_generators_limit(&yardstick.1),
        )
    }

    fn machine(self) -> &'r Machine {
        &self.results.machine
    }

    /// A chart of these records of a measure, which are all that it shows. Its title says what differs from other charts: the
    /// scenario, `what` is measured, by which path, over how many queues.
    fn chart(
        self,
        measure: Measure,
        what: &str,
        svg: impl Fn(&str) -> String,
        records: &[&Record],
    ) -> Chart {
        let title = title(&format!("{}: {what}", self.scenario.title), records);
        Chart {
            name: format!("{}-{}", measure.word(), self.scenario.name),
            svg: svg(&title),
            title,
            conditions: conditions_of(self.machine(), records),
        }
    }
}

/// A title with the path and the queues of what it stands over.
fn title(what: &str, records: &[&Record]) -> String {
    let all = || records.iter().copied();
    format!("{what} ({}; {})", paths_of(all()), queues_in_words(all()))
}

/// Whether the generator, not the server, was the limit in most searches.
fn is_generators_limit(records: &[&Record]) -> bool {
    let limited = records
        .iter()
        .filter(|record| record.details["generator_was_the_limit"] == true);
    limited.count() * 2 > records.len()
}

/// What stands before a ratio whose parts the generator limits: its own, and the yardstick's.
fn sign_of_ratio(own: bool, yardstick: bool) -> &'static str {
    match (own, yardstick) {
        (false, false) => "",
        (true, false) => "≥ ",
        (false, true) => "≤ ",
        (true, true) => UNKNOWN,
    }
}

/// What stands before a number that might be more or less had the generator been faster.
const UNKNOWN: &str = "? ";

/// What stands behind a number if a run that it comes from was disturbed.
fn mark(records: &[&Record]) -> &'static str {
    match records.iter().any(|record| record.disturbed.is_some()) {
        true => " *",
        false => "",
    }
}

/// The style of a contender's bars: full for AF_XDP, hatched for sockets, dotted for what no server can beat.
fn style_of(contender: &Contender) -> Style {
    match (contender.yardstick, contender.door.door().word()) {
        (true, _) => LIMIT.0,
        (false, "sockets") => SOCKETS.0,
        (false, _) => XDP.0,
    }
}

/// The name of a chart's file where it takes several: `limits`, `limits-2`.
fn numbered(name: &str, number: usize) -> String {
    match number {
        0 => name.to_owned(),
        number => format!("{name}-{}", number + 1),
    }
}

const XDP: (Style, &str) = (Style(0), "AF_XDP");
const SOCKETS: (Style, &str) = (Style(1), "kernel sockets");
const LIMIT: (Style, &str) = (Style(2), "yardstick");

/// Figures of records.
fn figures(records: &[&Record]) -> Vec<f64> {
    records.iter().map(|record| record.figure).collect()
}

/// The middle one, or the mean of the two in the middle; 0 of none. The lower of two would flatter what is better when less.
pub(in crate::bench) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// The standard error of the median of numbers: 1.2533·σ/√n, as for numbers that lie normally, with σ from the median distance
/// to their median, which a few that lie far away do not change. Nothing of fewer than two.
fn error_of_median(numbers: &[f64]) -> Option<f64> {
    let middle = median(numbers);
    let distances: Vec<f64> = numbers.iter().map(|one| (one - middle).abs()).collect();
    let sigma = 1.4826 * median(&distances);
    (numbers.len() > 1).then(|| 1.2533 * sigma / (numbers.len() as f64).sqrt())
}

/// The record whose figure is the middle one, or the lower of the two in the middle.
fn middle<'r>(records: &[&'r Record]) -> Option<&'r Record> {
    let mut sorted = records.to_vec();
    sorted.sort_by(|one, other| one.figure.total_cmp(&other.figure));
    let middle = sorted.len().saturating_sub(1) / 2;
    sorted.get(middle).copied()
}

/// The most that was answered right a second at any rate that a search offered. A search that tells none had its R99 at least.
pub(in crate::bench) fn peak(search: &Record) -> f64 {
    let told = search.details["peak"].as_f64();
    told.unwrap_or(search.figure)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::course::Course;
    use crate::bench::plan::Library;
    use crate::bench::record::Missing;

    /// An overload of ten seconds: what was answered a second, and how many queries were to be sent and were.
    pub(super) fn overload(contender: &str, figure: f64, (offered, sent): (f64, f64)) -> Record {
        Record {
            measure: Measure::Overload,
            unit: "answers/s".to_owned(),
            offered,
            sent,
            seconds: 10.0,
            ..record(contender, 1, figure)
        }
    }

    /// A record of the scenario `refused`.
    pub(in crate::bench) fn record(contender: &str, repeat: u32, figure: f64) -> Record {
        Record {
            scenario: "refused".to_owned(),
            contender: contender.to_owned(),
            measure: Measure::R99,
            repeat,
            figure,
            unit: "queries/s".to_owned(),
            commit: "c0ffee".to_owned(),
            server: "x 1".to_owned(),
            generator: "floodgate 0".to_owned(),
            door: "xdp".to_owned(),
            server_mode: String::new(),
            generator_mode: "native, copy".to_owned(),
            queues: 1,
            offered: 0.0,
            sent: 1000.0,
            right: 990.0,
            unwanted: 0.0,
            seconds: 5.0,
            used: Default::default(),
            server_seconds: 0.0,
            witness: Default::default(),
            disturbed: (repeat == 2).then(|| "load".to_owned()),
            details: serde_json::Value::Null,
            course: Course::default(),
            turns: Vec::new(),
        }
    }

    pub(in crate::bench) fn results(records: Vec<Record>) -> Results {
        Results {
            machine: Machine::here("Here."),
            search_seconds: 5,
            seconds: 10,
            scale: 1.0,
            whole: Default::default(),
            records,
            missing: vec![Missing {
                scenario: "refused".to_owned(),
                contender: "nsd".to_owned(),
                at: "r99, #1".to_owned(),
                why: "not <installed>".to_owned(),
            }],
        }
    }

    /// A little of every measure of every scenario.
    fn everything(scenarios: &[Scenario]) -> Results {
        let mut records = Vec::new();
        for scenario in scenarios {
            for measure in &scenario.measures {
                for (number, contender) in scenario.contenders.iter().enumerate() {
                    let mut record = record(&contender.name, 1, 1000.0 * (number + 1) as f64);
                    record.scenario = scenario.name.clone();
                    record.measure = *measure;
                    record.course.at = vec![0.25, 0.5];
                    record.course.told_at = vec![0.25, 0.5];
                    record.course.user = vec![0.5, 0.75];
                    record.course.right = vec![0.5, 0.75];
                    record.details = serde_json::json!({
                        "points": [{"load": "idle", "rate": 100, "p50": 5000, "p99": 9000}],
                        "floodgate": {"threads": [{"received": 5}, {"received": 6}]},
                    });
                    records.push(record);
                }
            }
        }
        results(records)
    }

    #[test]
    fn every_theme_has_a_chart_in_both_forms() {
        let scenarios = Library::ours().scenarios().unwrap();
        let report = Report::of(&everything(&scenarios), &scenarios);
        let (page, markdown) = (report.page(), report.markdown());
        for theme in [
            "over-time-",
            "once-through-",
            "limits",
            "latency-",
            "evenness-",
            "ratios",
        ] {
            let charts = report.charts().filter(|(name, _)| name.starts_with(theme));
            assert!(charts.count() > 0, "no chart of {theme}");
            assert!(markdown.contains(&format!("](charts/{theme}")), "{theme}");
        }
        assert_eq!(page.matches("<svg").count(), report.charts().count());
        let names: std::collections::BTreeSet<&str> =
            report.charts().map(|(name, _)| name).collect();
        assert_eq!(names.len(), report.charts().count(), "a file for each");
        assert!(
            !page.contains("http://")
                || page.matches("http://").count() == page.matches("<svg").count()
        );
        assert!(page.contains("not &lt;installed&gt;"));
    }

    #[test]
    fn every_chart_and_table_has_a_title_of_its_own_and_its_conditions() {
        let scenarios = Library::ours().scenarios().unwrap();
        let report = Report::of(&everything(&scenarios), &scenarios);
        let mut titles = std::collections::BTreeSet::new();
        for part in &report.parts {
            let charts = part.charts.iter().map(|one| (&one.title, &one.conditions));
            let tables = part.tables.iter().map(|one| (&one.title, &one.conditions));
            for (title, conditions) in charts
                .chain(tables)
                .filter(|(title, _)| *title != "Failures")
            {
                assert!(titles.insert(title), "twice: {title}");
                assert!(
                    title.ends_with(" queue)") || title.ends_with(" queues)"),
                    "{title}"
                );
                let words = [
                    &*results(Vec::new()).machine.kernel,
                    "commit c0ffee",
                    "floodgate 0 (native, copy)",
                ];
                for word in words {
                    assert!(conditions.contains(word), "{title}: {conditions}");
                }
            }
        }
    }

    #[test]
    fn one_number_that_lies_far_away_does_not_change_the_error_of_a_median() {
        let error = |last: f64| error_of_median(&[1.0, 2.0, 3.0, 4.0, last]).unwrap();
        // Distances 2, 1, 0, 1 and that of the last: their median is 1.
        assert!((error(5.0) - 1.2533 * 1.4826 / 5.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!(error(5.0), error(5e9));
        assert_eq!([&[][..], &[7.0]].map(error_of_median), [None, None]);
        assert_eq!(error_of_median(&[7.0, 7.0]), Some(0.0));
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[4.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[]), 0.0);
        // What is drawn is one run all the same.
        let records = [4.0, 1.0, 3.0, 2.0].map(|figure| record("a", 1, figure));
        let records: Vec<&Record> = records.iter().collect();
        assert_eq!(middle(&records).map(|one| one.figure), Some(2.0));
        assert!(middle(&[]).is_none());
    }
}
