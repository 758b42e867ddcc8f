//! What is left of a contender's peak when twice as much is sent.

use super::tables::number;
use super::{Measured, Part, Table, figures, mark, median, peak};
use crate::bench::plan::{Contender, Measure};
use crate::bench::record::Record;

const COLUMNS: [&str; 7] = [
    "contender",
    "R99",
    "peak",
    "sent a second",
    "of the peak",
    "answers a second",
    "of the peak",
];

/// Columns of scenarios in which nobody is overloaded.
const NAME_R99_PEAK: usize = 3;

pub(super) fn part(all: &[Measured]) -> Part {
    let tables = all.iter().filter_map(|measured| table(*measured));
    Part {
        title: "Peaks and overload".to_owned(),
        text: "R99: the median of its searches. Peak: the most that was answered right a second at any rate of any of them. \
               Then twice the peak was offered, and answers were dropped unread and counted on the client's interface: what \
               was sent, less what that interface dropped, and what came back, medians of all repeats. Where less than twice \
               the peak was sent, the generator could send no more."
            .to_owned(),
        tables: tables.collect(),
        ..Part::default()
    }
}

fn table(measured: Measured) -> Option<Table> {
    let contenders = measured.contenders(Measure::R99);
    let mut rows: Vec<Vec<String>> = contenders
        .iter()
        .map(|(contender, searches)| row(measured, contender, searches))
        .collect();
    let is_overloaded = rows.iter().any(|row| !row[NAME_R99_PEAK].is_empty());
    let columns = match is_overloaded {
        true => &COLUMNS[..],
        false => &COLUMNS[..NAME_R99_PEAK],
    };
    rows.iter_mut().for_each(|row| row.truncate(columns.len()));
    (!rows.is_empty()).then(|| Table {
        title: format!("{}: queries and answers a second", measured.scenario.title),
        columns: columns.to_vec(),
        rows,
    })
}

fn row(measured: Measured, contender: &Contender, searches: &[&Record]) -> Vec<String> {
    let peaks = searches.iter().map(|search| peak(search));
    let peak = peaks.fold(0.0, f64::max);
    let runs = measured.records_of(&contender.name, Measure::Overload);
    let sent: Vec<f64> = runs.iter().map(|run| sent_a_second(run)).collect();
    let all = [searches, runs.as_slice()].concat();
    let part = |rate: f64| match peak > 0.0 {
        true => format!("{:.1}\u{a0}%{}", rate / peak * 100.0, mark(&all)),
        false => String::new(),
    };
    let mut row = vec![
        contender.name.clone(),
        format!("{}{}", number(median(&figures(searches))), mark(searches)),
        format!("{}{}", number(peak), mark(searches)),
    ];
    if runs.is_empty() {
        row.resize(COLUMNS.len(), String::new());
        return row;
    }
    for rate in [median(&sent), median(&figures(&runs))] {
        row.push(format!("{}{}", number(rate), mark(&runs)));
        row.push(part(rate));
    }
    row
}

/// What went out: what the generator's interface dropped did not.
fn sent_a_second(run: &Record) -> f64 {
    let dropped = &run.details["floodgate"]["lost_here"]["interface_dropped_out"];
    let sent = run.sent - dropped.as_f64().unwrap_or(0.0);
    match run.seconds > 0.0 {
        true => sent.max(0.0) / run.seconds,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Library;
    use crate::bench::report::tests::{record, results};

    #[test]
    fn answers_under_overload_are_a_part_of_the_highest_peak() {
        let scenarios = Library::ours().scenarios().unwrap();
        let search = |contender: &str, repeat: u32, figure: f64, peak: f64| {
            let mut search = record(contender, repeat, figure);
            search.details = serde_json::json!({ "peak": peak });
            search
        };
        let mut run = record("millrace, AF_XDP", 1, 190_000.0);
        run.measure = Measure::Overload;
        (run.sent, run.seconds) = (4_100_000.0, 10.0);
        let lost = serde_json::json!({"unwanted": 1_900_000, "interface_dropped_out": 100_000});
        run.details = serde_json::json!({"floodgate": {"lost_here": lost}});
        let results = results(vec![
            search("millrace, AF_XDP", 1, 150_000.0, 190_000.0),
            search("millrace, AF_XDP", 3, 170_000.0, 200_000.0),
            search("echo", 1, 250_000.0, 300_000.0),
            run,
        ]);
        let table = table(Measured {
            scenario: &scenarios[0],
            results: &results,
        });
        let rows = table.unwrap().rows;
        assert_eq!(
            rows[0],
            [
                "millrace, AF_XDP",
                "160000",
                "200000",
                "400000",
                "200.0\u{a0}%",
                "190000",
                "95.0\u{a0}%"
            ]
        );
        // Not overloaded: its peak is told all the same.
        assert_eq!(rows[1], ["echo", "250000", "300000", "", "", "", ""]);
    }

    #[test]
    fn where_nobody_was_overloaded_the_table_ends_with_the_peak() {
        let scenarios = Library::ours().scenarios().unwrap();
        let results = results(vec![record("echo", 1, 250_000.0)]);
        let table = table(Measured {
            scenario: &scenarios[0],
            results: &results,
        });
        let table = table.unwrap();
        assert_eq!(table.columns, ["contender", "R99", "peak"]);
        assert_eq!(table.rows[0].len(), 3);
    }
}
