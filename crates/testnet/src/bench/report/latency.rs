//! Chart (d): latency against offered rate, from idle to beyond R99.

use serde_json::Value;

use super::axis::{Scale, short};
use super::curves::{Curve, Panel, chart};
use super::{Measured, Part, Table, conditions_of, median, title};
use crate::bench::plan::{Measure, Scenario};
use crate::bench::record::Record;
use crate::bench::results::Results;

pub(super) fn part(all: &[Measured]) -> Part {
    let measured = || {
        all.iter()
            .filter(|measured| measured.records(Measure::Latency).next().is_some())
    };
    let charts = measured().map(|measured| {
        let panels = [("Median", "p50"), ("99 of 100 are faster", "p99")];
        let panels = panels.map(|(title, quantile)| panel(*measured, title, quantile));
        let what = "latency against offered rate, with idle and 10 % load";
        let records: Vec<&Record> = measured.records(Measure::Latency).collect();
        measured.chart(
            Measure::Latency,
            what,
            |title| chart(&panels, 2, title),
            &records,
        )
    });
    Part {
        title: "Latency".to_owned(),
        text: "From the time at which a query was meant to be sent, so that a stall is not hidden, to its right answer. Each \
               contender at parts of its own R99, 110 % the highest; rings: idle (200 queries a second) and 10 %, medians of \
               all repeats, the rest of one. *: a run of the curve, or of the row, was disturbed. Idle cores sleep, and waking \
               them takes longer than an answer. Counts below a chart or table are those of the runs at 10 %."
            .to_owned(),
        charts: charts.collect(),
        tables: measured().map(|measured| table(*measured)).collect(),
    }
}

/// For the terminal: the medians of p50 and p99 at 10 % of each contender's own R99, and whether "NAME, AF_XDP" is no worse than
/// "NAME, sockets". Nothing where none was measured.
pub(in crate::bench) fn summary(results: &Results, scenario: &Scenario) -> Vec<String> {
    let measured = Measured { scenario, results };
    let figures: Vec<(&str, [f64; 2])> = measured
        .contenders(Measure::Latency)
        .into_iter()
        .map(|(contender, records)| {
            let at_tenth = |quantile: &str| {
                let point = |record: &&Record| {
                    let value = points(record).get(AT_TENTH)?[quantile].as_f64()?;
                    Some(value / 1e3)
                };
                let values: Vec<f64> = records.iter().filter_map(point).collect();
                median(&values)
            };
            (contender.name.as_str(), ["p50", "p99"].map(at_tenth))
        })
        .collect();
    let told = figures.iter().map(|(name, [p50, p99])| {
        format!("{name}: p50 {p50:.1} us, p99 {p99:.1} us at 10 % of its R99")
    });
    let compared = figures.iter().filter_map(|(name, xdp)| {
        let both = name.strip_suffix(", AF_XDP")?;
        let other = format!("{both}, sockets");
        let (_, sockets) = figures.iter().find(|(name, _)| **name == other)?;
        let word = |place: usize| match xdp[place] <= sockets[place] {
            true => "no worse",
            false => "WORSE",
        };
        let (p50, p99) = (word(0), word(1));
        Some(format!(
            "{both}, AF_XDP against sockets: p50 {p50}, p99 {p99}"
        ))
    });
    told.chain(compared).collect()
}

/// Which point of a record is that at 10 %.
const AT_TENTH: usize = 1;

fn points(record: &Record) -> &[Value] {
    record.details["points"]
        .as_array()
        .map_or(&[], Vec::as_slice)
}

fn panel(measured: Measured, title: &str, quantile: &str) -> Panel {
    let contenders = measured.contenders(Measure::Latency);
    let curves = contenders.iter().filter_map(|(contender, records)| {
        let loads = loads(records);
        let place = |load: &&str| {
            let latency = of_all(records, load, quantile) / 1e3;
            (latency > 0.0).then(|| (of_all(records, load, "rate"), latency))
        };
        let is_disturbed = loads.iter().any(|load| is_disturbed(records, load));
        let curve = Curve {
            name: format!("{}{}", contender.name, mark_if(is_disturbed)),
            points: loads.iter().filter_map(place).collect(),
            rings: loads.iter().take(2).filter_map(place).collect(),
        };
        (!curve.points.is_empty()).then_some(curve)
    });
    Panel {
        title: title.to_owned(),
        across: ("queries offered a second".to_owned(), Scale::Logarithmic),
        up: ("microseconds".to_owned(), Scale::Logarithmic),
        curves: curves.collect(),
    }
}

/// The loads of a curve, which only one of the repeats may have gone through to its end.
fn loads<'r>(records: &[&'r Record]) -> Vec<&'r str> {
    let longest = records.iter().map(|record| points(record));
    let longest = longest.max_by_key(|points| points.len()).unwrap_or(&[]);
    let words = longest.iter().map(|point| point["load"].as_str());
    words.flatten().collect()
}

/// The median of a number at a load, over the repeats that have it.
fn of_all(records: &[&Record], load: &str, name: &str) -> f64 {
    let all = records.iter().flat_map(|record| points(record));
    let at_load = all.filter(|point| point["load"] == load);
    let numbers: Vec<f64> = at_load.filter_map(|point| point[name].as_f64()).collect();
    median(&numbers)
}

/// Whether any of the repeats has a number at a load.
fn is_told(records: &[&Record], load: &str, name: &str) -> bool {
    let all = records.iter().flat_map(|record| points(record));
    let mut at_load = all.filter(|point| point["load"] == load);
    at_load.any(|point| point[name].is_number())
}

/// Whether a run at a load was disturbed. Records of earlier versions do not tell it by load: all were if the record was.
fn is_disturbed(records: &[&Record], load: &str) -> bool {
    records.iter().any(|record| {
        let mut at_load = points(record).iter().filter(|point| point["load"] == load);
        at_load.any(|point| match point.get("disturbed") {
            Some(why) => why.is_string(),
            None => record.disturbed.is_some(),
        })
    })
}

fn mark_if(is_disturbed: bool) -> &'static str {
    match is_disturbed {
        true => " *",
        false => "",
    }
}

/// Idle and at 10 %, in numbers: each the median of all repeats.
fn table(measured: Measured) -> Table {
    let mut rows = Vec::new();
    for (contender, records) in measured.contenders(Measure::Latency) {
        for load in loads(&records).into_iter().take(2) {
            let microseconds = |quantile: &str| {
                let latency = of_all(&records, load, quantile);
                match latency > 0.0 {
                    true => short(latency / 1e3),
                    false => String::new(),
                }
            };
            let count = |name: &str| match is_told(&records, load, name) {
                true => format!("{:.0}", of_all(&records, load, name)),
                false => String::new(),
            };
            let mark = mark_if(is_disturbed(&records, load));
            rows.push(vec![
                format!("{}{mark}", contender.name),
                load.to_owned(),
                count("rate"),
                count("sent"),
                count("right"),
                microseconds("p50"),
                microseconds("p99"),
                microseconds("p99.9"),
                microseconds("max"),
            ]);
        }
    }
    let records: Vec<&Record> = measured.records(Measure::Latency).collect();
    let what = format!(
        "{}: latency in microseconds, medians of all repeats",
        measured.scenario.title
    );
    Table {
        title: title(&what, &records),
        conditions: conditions_of(measured.machine(), &records),
        columns: vec![
            "contender",
            "load",
            "offered a second",
            "sent",
            "answered right",
            "p50",
            "p99",
            "p99.9",
            "max",
        ],
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Library;
    use crate::bench::report::tests::{record, results};

    #[test]
    fn a_curve_is_of_one_repeat_and_its_figures_of_all() {
        let point = |load: &str, p50: u32| serde_json::json!({"load": load, "p50": p50});
        let latency = |points: &[Value]| {
            let mut record = record("a", 1, 0.0);
            record.details = serde_json::json!({ "points": points });
            record
        };
        let records = [
            latency(&[point("idle", 9_000), point("10 %", 4_000)]),
            latency(&[
                point("idle", 7_000),
                point("10 %", 5_000),
                point("90 %", 8_000),
            ]),
            latency(&[point("idle", 8_000), point("10 %", 6_000)]),
        ];
        let records: Vec<&Record> = records.iter().collect();
        assert_eq!(loads(&records), ["idle", "10 %", "90 %"]);
        let medians = loads(&records).into_iter();
        let medians: Vec<f64> = medians.map(|load| of_all(&records, load, "p50")).collect();
        assert_eq!(medians, [8_000.0, 5_000.0, 8_000.0]);
    }

    #[test]
    fn every_number_of_the_table_is_the_median_of_all_repeats() {
        let latency = |figure: f64, p50: u32, p99: u32| {
            let mut record = record("millrace, AF_XDP", 1, figure);
            record.measure = Measure::Latency;
            let point = |load: &str| {
                serde_json::json!({"load": load, "rate": 200, "sent": 1000, "right": p50,
                    "p50": p50, "p99": p99})
            };
            let points = ["idle", "10 %", "25 %"].map(point);
            record.details = serde_json::json!({ "points": points });
            record
        };
        // The run whose p99 is the median has the lowest p50.
        let results = results(vec![
            latency(1.0, 900, 1_000),
            latency(2.0, 300, 2_000),
            latency(3.0, 600, 3_000),
        ]);
        let scenarios = Library::ours().scenarios().unwrap();
        let table = table(Measured {
            scenario: &scenarios[0],
            results: &results,
        });
        assert!(
            table
                .title
                .contains("medians of all repeats (AF_XDP; 1 queue)")
        );
        assert_eq!(table.rows.len(), 2);
        assert_eq!(table.rows[0][..2], ["millrace, AF_XDP", "idle"]);
        assert_eq!(table.rows[1][1], "10 %");
        for row in &table.rows {
            assert_eq!(row[2..], ["200", "1000", "600", "0.6", "2", "", ""]);
        }
    }

    #[test]
    fn what_a_point_does_not_tell_is_no_nought() {
        let mut bare = record("millrace, AF_XDP", 1, 5.0);
        bare.measure = Measure::Latency;
        bare.details =
            serde_json::json!({ "points": [{"load": "idle", "rate": 200, "p50": 5_000}] });
        let results = results(vec![bare]);
        let scenarios = Library::ours().scenarios().unwrap();
        let table = table(Measured {
            scenario: &scenarios[0],
            results: &results,
        });
        assert_eq!(table.rows[0][2..], ["200", "", "", "5", "", "", ""]);
    }

    #[test]
    fn what_was_disturbed_is_told_by_load() {
        let latency = |repeat: u32, points: Value| {
            let mut record = record("millrace, AF_XDP", repeat, 5.0);
            record.measure = Measure::Latency;
            record.details = serde_json::json!({ "points": points });
            record
        };
        let point = |load: &str, disturbed: Value| serde_json::json!({"load": load, "rate": 200, "p50": 5, "p99": 9, "disturbed": disturbed});
        let whole = vec![point("idle", Value::Null), point("10 %", "load".into())];
        let told = latency(1, Value::Array(whole));
        let told: &[&Record] = &[&told];
        assert!(!is_disturbed(told, "idle") && is_disturbed(told, "10 %"));
        // The second run of all is disturbed; an earlier version told no more.
        let earlier = latency(2, serde_json::json!([{"load": "idle"}]));
        assert!(is_disturbed(&[&earlier], "idle"));
        let results = results(vec![told[0].clone()]);
        let scenarios = Library::ours().scenarios().unwrap();
        let measured = Measured {
            scenario: &scenarios[0],
            results: &results,
        };
        let table = table(measured);
        let names: Vec<&str> = table.rows.iter().map(|row| &*row[0]).collect();
        assert_eq!(names, ["millrace, AF_XDP", "millrace, AF_XDP *"]);
        let panel = panel(measured, "Median", "p50");
        assert_eq!(panel.curves[0].name, "millrace, AF_XDP *");
    }

    #[test]
    fn the_doors_are_compared_by_their_medians_at_a_tenth() {
        let point = |p50: u32, p99: u32| serde_json::json!({ "p50": p50, "p99": p99 });
        let latency = |contender: &str, p50: u32, p99: u32| {
            let mut record = record(contender, 1, 0.0);
            record.scenario = "latency".to_owned();
            record.measure = Measure::Latency;
            record.details = serde_json::json!({ "points": [point(1, 1), point(p50, p99)] });
            record
        };
        let records = vec![
            latency("REFUSED, AF_XDP", 9_000, 30_000),
            latency("REFUSED, sockets", 10_000, 20_000),
        ];
        let scenarios = Library::ours().scenarios().unwrap();
        let scenario = scenarios.iter().find(|one| one.name == "latency").unwrap();
        assert_eq!(
            summary(&results(records), scenario),
            [
                "REFUSED, AF_XDP: p50 9.0 us, p99 30.0 us at 10 % of its R99",
                "REFUSED, sockets: p50 10.0 us, p99 20.0 us at 10 % of its R99",
                "REFUSED, AF_XDP against sockets: p50 no worse, p99 WORSE",
            ]
        );
    }
}
