//! The report of a run of the bench: charts with their conditions, tables, what could not be measured; as one page of HTML
//! that needs nothing else, and as Markdown beside its charts.
//!
//! ```text
//!  Results ─▶ Report: head, parts ( text, charts, tables ) ─▶ report.html, README.md, charts/NAME.svg
//! ```
//!
//! A theme of charts is a file: [`over_time`], [`once_through`], [`limits`], [`latency`], [`evenness`], [`ratios`]; so are the
//! tables that set figures against each other: [`overload`], [`beside`].

mod axis;
mod bars;
mod beside;
mod curves;
mod evenness;
pub(super) mod latency;
mod limits;
mod once_through;
mod over_time;
mod overload;
mod page;
mod ratios;
mod svg;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Contender, Measure, Scenario};
use super::record::{Machine, Record};
use super::results::Results;
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

    /// The name of the contender that one is compared with: its own, or the scenario's.
    fn yardstick_of(self, contender: &'r Contender) -> Option<&'r str> {
        let own = contender.beside.as_deref();
        own.or(self.scenario.yardstick.as_deref())
    }

    fn machine(self) -> &'r Machine {
        &self.results.machine
    }

    /// A chart of its records of a measure.
    fn chart(self, measure: Measure, title: String, svg: String) -> Chart {
        let records: Vec<&Record> = self.records(measure).collect();
        Chart {
            name: format!("{}-{}", measure.word(), self.scenario.name),
            title,
            svg,
            conditions: conditions_of(self.machine(), &records),
        }
    }
}

/// The lines at the head.
fn conditions(results: &Results) -> Vec<String> {
    let machine = &results.machine;
    let disturbed = results
        .records
        .iter()
        .filter(|record| record.disturbed.is_some());
    let several = match commits(&results.records).len() {
        0 | 1 => "",
        _ => " Every figure says of which it is.",
    };
    let mut lines = vec![
        format!("Commit {}.{several}", machine.commit),
        format!(
            "{}, {} CPUs, {} MiB; {}.",
            machine.cpu, machine.cpus, machine.memory_mib, machine.kernel
        ),
        format!(
            "{} Rates of a search were held for {} s, other runs took {} s.",
            machine.place, results.search_seconds, results.seconds
        ),
        format!(
            "{} {} of {} runs were disturbed: other programs used more than 3 % of a core, or the hypervisor took 2 %. \
             *: one at least of the runs behind a number was.",
            repeats(&results.records),
            disturbed.count(),
            results.records.len()
        ),
    ];
    if results.scale != 1.0 {
        lines.push(format!(
            "Only tried out: all rates were multiplied by {}. No figure here means anything.",
            results.scale
        ));
    }
    lines
}

/// Of how many runs figures are the median.
fn repeats(records: &[Record]) -> String {
    let mut counts: BTreeMap<(&str, &str, Measure), usize> = BTreeMap::new();
    for record in records {
        let key = (
            record.scenario.as_str(),
            record.contender.as_str(),
            record.measure,
        );
        *counts.entry(key).or_default() += 1;
    }
    let (fewest, most) = (counts.values().min(), counts.values().max());
    match (fewest.copied(), most.copied()) {
        (Some(1), Some(1)) => {
            "Every figure is that of a single run: how far runs differ is not known.".to_owned()
        }
        (Some(fewest), Some(most)) if fewest == most => {
            format!("Figures are medians of {most} runs.")
        }
        (Some(fewest), Some(most)) => {
            format!("Figures are medians of {fewest} to {most} runs; the tables show them all.")
        }
        _ => "Nothing was measured.".to_owned(),
    }
}

/// A line about records that are not shown, for no scenario of the tree has a place for them.
fn left_out(results: &Results, scenarios: &[Scenario]) -> Option<String> {
    let has = |scenario: &Scenario, record: &Record| {
        let mut contenders = scenario.contenders.iter();
        scenario.name == record.scenario
            && scenario.measures.contains(&record.measure)
            && contenders.any(|contender| contender.name == record.contender)
    };
    let records = results.records.iter();
    let unknown = records.filter(|record| !scenarios.iter().any(|one| has(one, record)));
    let names: BTreeSet<String> = unknown
        .map(|record| {
            format!(
                "{} of {} in {}",
                record.measure.word(),
                record.contender,
                record.scenario
            )
        })
        .collect();
    let names = Vec::from_iter(names).join("; ");
    (!names.is_empty())
        .then(|| format!("Measured, and not shown, for the scenarios have it no longer: {names}."))
}

/// The commits that records are of, each once.
fn commits<'r>(records: impl IntoIterator<Item = &'r Record>) -> BTreeSet<&'r str> {
    let commits = records.into_iter().map(|record| record.commit.as_str());
    commits.collect()
}

/// How many queues the interfaces had while records were made: `2`, of several runs `1 and 2`.
fn queues_of<'r>(records: impl IntoIterator<Item = &'r Record>) -> String {
    let queues = records.into_iter().map(|record| record.queues);
    let queues: BTreeSet<u32> = queues.collect();
    let words: Vec<String> = queues.iter().map(u32::to_string).collect();
    words.join(" and ")
}

/// Under what conditions some records came about, in one line.
fn conditions_of(machine: &Machine, records: &[&Record]) -> String {
    let distinct = |word: fn(&Record) -> String| {
        let words: BTreeSet<String> = records.iter().map(|record| word(record)).collect();
        let words = words.into_iter().filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("; ")
    };
    let sum = |number: fn(&Record) -> f64| records.iter().map(|record| number(record)).sum::<f64>();
    let sent = sum(|record| record.sent);
    let answered = sum(|record| record.right.max(record.unwanted));
    let loss = if sent > 0.0 {
        (1.0 - answered / sent).max(0.0) * 100.0
    } else {
        0.0
    };
    let disturbed = records.iter().filter(|record| record.disturbed.is_some());
    let wrong = match sum(|record| record.witness.wrong as f64) {
        0.0 => String::new(),
        wrong => format!(" ({wrong:.0} wrong)"),
    };
    let server_mode = match distinct(|record| record.server_mode.clone()) {
        mode if mode.is_empty() => mode,
        mode => format!(" ({mode})"),
    };
    format!(
        "{}, {}, commit {}. Versions: {}{server_mode}. Generator: {} ({}). Queues: {}. All runs together: offered {:.0}, \
         sent {sent:.0}, answered right {answered:.0}, loss {loss:.3} %, witness {:.0} of {:.0}{wrong}, disturbed {} of {}.",
        machine.cpu,
        machine.kernel,
        distinct(|record| record.commit.clone()),
        distinct(|record| record.server.clone()),
        distinct(|record| record.generator.clone()),
        distinct(|record| record.generator_mode.clone()),
        distinct(|record| record.queues.to_string()),
        sum(|record| record.offered),
        sum(|record| record.witness.answered as f64),
        sum(|record| record.witness.asked as f64),
        disturbed.count(),
        records.len()
    )
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
        (true, true) => "? ",
    }
}

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
        let names: BTreeSet<&str> = report.charts().map(|(name, _)| name).collect();
        assert_eq!(names.len(), report.charts().count(), "a file for each");
        assert!(
            !page.contains("http://")
                || page.matches("http://").count() == page.matches("<svg").count()
        );
        assert!(page.contains("not &lt;installed&gt;"));
    }

    #[test]
    fn conditions_are_told_with_every_chart() {
        let records = [record("a", 1, 5.0), record("a", 2, 6.0)];
        let records: Vec<&Record> = records.iter().collect();
        let text = conditions_of(&Machine::here("Here."), &records);
        assert!(
            text.contains("sent 2000, answered right 1980, loss 1.000 %"),
            "{text}"
        );
        assert!(
            text.contains("native, copy") && text.contains("disturbed 1 of 2"),
            "{text}"
        );
        let mut lied_to = record("a", 1, 5.0);
        (lied_to.witness.asked, lied_to.witness.wrong) = (9, 3);
        let text = conditions_of(&Machine::here("Here."), &[&lied_to]);
        assert!(text.contains("witness 0 of 9 (3 wrong), "), "{text}");
    }

    #[test]
    fn queues_of_several_runs_are_all_told() {
        let mut records = [1, 2, 3].map(|repeat| record("a", repeat, 5.0));
        assert_eq!(queues_of(&records), "1");
        records[1].queues = 2;
        assert_eq!(queues_of(&records), "1 and 2");
    }

    #[test]
    fn a_figure_says_of_which_commit_it_is() {
        let mut results = results(vec![record("a", 1, 5.0), record("a", 2, 6.0)]);
        results.machine.commit = "c0ffee, decaf".to_owned();
        assert_eq!(conditions(&results)[0], "Commit c0ffee, decaf.");
        results.records[1].commit = "decaf".to_owned();
        results.records[1].server_mode = "copy mode".to_owned();
        assert_eq!(
            conditions(&results)[0],
            "Commit c0ffee, decaf. Every figure says of which it is."
        );
        let [first, second] = [0, 1].map(|place| &results.records[place]);
        let text = conditions_of(&results.machine, &[second]);
        assert!(
            text.contains(", commit decaf. Versions: x 1 (copy mode). "),
            "{text}"
        );
        let text = conditions_of(&results.machine, &[first, second]);
        assert!(text.contains(", commit c0ffee; decaf. "), "{text}");
    }

    #[test]
    fn the_head_says_of_how_many_runs_figures_are() {
        let one = [record("a", 1, 5.0), record("b", 1, 6.0)];
        assert!(repeats(&one).contains("of a single run"));
        let two = [record("a", 1, 5.0), record("a", 2, 6.0)];
        assert_eq!(repeats(&two), "Figures are medians of 2 runs.");
        let both = [one, two].concat();
        assert!(repeats(&both[1..]).contains("medians of 1 to 2 runs"));
        assert_eq!(repeats(&[]), "Nothing was measured.");
    }

    #[test]
    fn what_is_measured_and_not_shown_is_named() {
        let scenarios = Library::ours().scenarios().unwrap();
        let known = record("millrace, AF_XDP", 1, 5.0);
        let shown = results(vec![known.clone()]);
        assert_eq!(left_out(&shown, &scenarios), None);
        let both = results(vec![known, record("gone", 1, 6.0)]);
        let report = Report::of(&both, &scenarios);
        let line = report.conditions.last().unwrap();
        assert!(line.ends_with(": r99 of gone in refused."), "{line}");
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
