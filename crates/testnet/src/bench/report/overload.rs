//! What is left of a contender's peak when twice as much is sent.

use super::tables::number;
use super::{
    Measured, Part, Table, UNKNOWN, conditions_of, figures, is_generators_limit, mark, median,
    peak, title,
};
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

/// Of what was offered, so much was sent where the generator was no limit: the last moment of a run is not whole.
const WHOLE: f64 = 0.975;

pub(super) fn part(all: &[Measured]) -> Part {
    let (overloaded, others): (Vec<Measured>, Vec<Measured>) = all
        .iter()
        .partition(|measured| measured.records(Measure::Overload).next().is_some());
    let tables = overloaded.into_iter().filter_map(table);
    Part {
        title: "Peaks and overload".to_owned(),
        text: "R99: the median of its searches. Peak: the most that was answered right a second at any rate of any of them. \
               Then twice the peak was offered, and answers were dropped unread and counted on the client's interface: what \
               was sent, less what that interface dropped, and what came back, medians of all repeats. \"Generator's limit\": \
               the generator could send no more than that, which is less than twice the peak; \"?\": so what the \
               contender would answer at twice its peak is not known."
            .to_owned(),
        tables: tables.chain(peaks(&others)).collect(),
        ..Part::default()
    }
}

/// Of how many times its peak a contender got, where the generator could not send as much as was to be offered.
pub(super) fn limit(measured: Measured, contender: &str) -> Option<f64> {
    let runs = measured.records_of(contender, Measure::Overload);
    let median_of = |rate: fn(&Record) -> f64| {
        let rates: Vec<f64> = runs.iter().map(|run| rate(run)).collect();
        median(&rates)
    };
    let (sent, offered) = (median_of(sent_a_second), median_of(offered_a_second));
    let peak = highest(&measured.records_of(contender, Measure::R99));
    let is_short = sent < WHOLE * offered && peak > 0.0;
    is_short.then(|| sent / peak)
}

/// The same in words.
pub(super) fn words(times: f64) -> String {
    format!("sent {times:.2} times its peak")
}

fn highest(searches: &[&Record]) -> f64 {
    let peaks = searches.iter().map(|search| peak(search));
    peaks.fold(0.0, f64::max)
}

/// Of a scenario in which contenders are overloaded.
fn table(measured: Measured) -> Option<Table> {
    let contenders = measured.contenders(Measure::R99);
    let rows = contenders.iter();
    let rows: Vec<Vec<String>> = rows
        .map(|(contender, searches)| row(measured, contender, searches))
        .collect();
    let records = [Measure::R99, Measure::Overload].map(|measure| measured.records(measure));
    let records: Vec<&Record> = records.into_iter().flatten().collect();
    let what = format!("{}: queries and answers a second", measured.scenario.title);
    (!rows.is_empty()).then(|| Table {
        title: title(&what, &records),
        conditions: conditions_of(measured.machine(), &records),
        columns: COLUMNS.to_vec(),
        rows,
    })
}

/// R99 and peak of all scenarios in which nobody is overloaded.
fn peaks(all: &[Measured]) -> Option<Table> {
    let mut rows = Vec::new();
    for measured in all {
        for (contender, searches) in measured.contenders(Measure::R99) {
            let mut row = vec![measured.scenario.title.clone()];
            row.extend(r99_and_peak(contender, &searches));
            rows.push(row);
        }
    }
    let records = all.iter().flat_map(|one| one.records(Measure::R99));
    let records: Vec<&Record> = records.collect();
    let machine = all.first()?.machine();
    (!rows.is_empty()).then(|| Table {
        title: title(
            "R99 and peak where nobody was overloaded: queries and answers a second",
            &records,
        ),
        conditions: conditions_of(machine, &records),
        columns: vec!["scenario", "contender", "R99", "peak"],
        rows,
    })
}

fn r99_and_peak(contender: &Contender, searches: &[&Record]) -> [String; 3] {
    let mark = mark(searches);
    let least = match is_generators_limit(searches) {
        true => "≥ ",
        false => "",
    };
    [
        contender.name.clone(),
        format!("{least}{}{mark}", number(median(&figures(searches)))),
        format!("{least}{}{mark}", number(highest(searches))),
    ]
}

fn row(measured: Measured, contender: &Contender, searches: &[&Record]) -> Vec<String> {
    let peak = highest(searches);
    let runs = measured.records_of(&contender.name, Measure::Overload);
    let mut row = r99_and_peak(contender, searches).to_vec();
    if runs.is_empty() {
        row.resize(COLUMNS.len(), String::new());
        return row;
    }
    let sent: Vec<f64> = runs.iter().map(|run| sent_a_second(run)).collect();
    let (sign, why) = match limit(measured, &contender.name) {
        Some(_) => (UNKNOWN, ", generator's limit"),
        None => ("", ""),
    };
    let all = [searches, runs.as_slice()].concat();
    let mut add = |sign: &str, rate: f64, why: &str| {
        row.push(format!("{sign}{}{}", number(rate), mark(&runs)));
        row.push(match peak > 0.0 {
            true => format!("{sign}{:.1}\u{a0}%{}{why}", rate / peak * 100.0, mark(&all)),
            false => String::new(),
        });
    };
    add("", median(&sent), why);
    add(sign, median(&figures(&runs)), "");
    row
}

fn offered_a_second(run: &Record) -> f64 {
    match run.seconds > 0.0 {
        true => run.offered / run.seconds,
        false => 0.0,
    }
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
    use crate::bench::report::tests::{overload, record, results};

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
    fn less_than_twice_the_peak_is_the_generators_limit() {
        let scenarios = Library::ours().scenarios().unwrap();
        let run = |contender: &str, sent: f64| overload(contender, 190_000.0, (4_000_000.0, sent));
        let results = results(vec![
            record("millrace, AF_XDP", 1, 200_000.0),
            record("echo", 1, 200_000.0),
            run("millrace, AF_XDP", 2_840_000.0),
            run("echo", 3_990_000.0),
        ]);
        let measured = Measured {
            scenario: &scenarios[0],
            results: &results,
        };
        assert_eq!(limit(measured, "millrace, AF_XDP"), Some(1.42));
        assert_eq!(limit(measured, "echo"), None);
        assert_eq!(limit(measured, "nobody"), None);
        assert_eq!(
            measured.sign(Measure::Overload, "millrace, AF_XDP", "echo"),
            "? "
        );
        assert_eq!(
            measured.sign(Measure::Overload, "echo", "millrace, AF_XDP"),
            "? "
        );
        assert_eq!(measured.sign(Measure::Overload, "echo", "echo"), "");
        let table = table(measured).unwrap();
        let limited = "142.0\u{a0}%, generator's limit";
        assert_eq!(
            table.rows[0][3..],
            ["284000", limited, "? 190000", "? 95.0\u{a0}%"]
        );
        assert_eq!(
            table.rows[1][3..],
            ["399000", "199.5\u{a0}%", "190000", "95.0\u{a0}%"]
        );
        assert!(
            table.conditions.contains("commit c0ffee"),
            "{}",
            table.conditions
        );
    }

    #[test]
    fn scenarios_without_overload_have_one_table_that_ends_with_the_peak() {
        let scenarios = Library::ours().scenarios().unwrap();
        let results = results(vec![record("echo", 1, 250_000.0)]);
        let part = part(&[Measured {
            scenario: &scenarios[0],
            results: &results,
        }]);
        assert_eq!(part.tables.len(), 1);
        assert_eq!(
            part.tables[0].columns,
            ["scenario", "contender", "R99", "peak"]
        );
        assert_eq!(
            part.tables[0].rows,
            [["REFUSED", "echo", "250000", "250000"]]
        );
    }
}
