//! Chart (d): latency against offered rate, from idle to beyond R99.

use serde_json::Value;

use super::axis::{Scale, short};
use super::curves::{Curve, Panel, chart};
use super::{Measured, Part, Table, median, middle};
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
        let title = format!("{}: latency against offered rate", measured.scenario.title);
        let svg = chart(&panels, 2, &title);
        measured.chart(Measure::Latency, title, svg)
    });
    Part {
        title: "Latency".to_owned(),
        text: "From the time at which a query was meant to be sent, so that a stall is not hidden, to its right answer. Each \
               contender at parts of its own R99, 110 % the highest; rings: idle (200 queries a second) and 10 %. Idle cores \
               sleep, and waking them takes longer than an answer."
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
        let points = points(middle(records)?);
        let place = |point: &Value| {
            let latency = point[quantile].as_f64()? / 1e3;
            Some((point["rate"].as_f64()?, latency)).filter(|_| latency > 0.0)
        };
        Some(Curve {
            name: contender.name.clone(),
            points: points.iter().filter_map(place).collect(),
            rings: points.iter().take(2).filter_map(place).collect(),
        })
    });
    Panel {
        title: title.to_owned(),
        across: ("queries offered a second".to_owned(), Scale::Logarithmic),
        up: ("microseconds".to_owned(), Scale::Logarithmic),
        curves: curves.collect(),
    }
}

/// Idle and at 10 %, in numbers.
fn table(measured: Measured) -> Table {
    let mut rows = Vec::new();
    for (contender, records) in measured.contenders(Measure::Latency) {
        let points = middle(&records).map_or(&[][..], points);
        for point in points.iter().take(2) {
            let microseconds = |quantile: &str| {
                let latency = point[quantile].as_f64();
                latency.map_or_else(String::new, |latency| short(latency / 1e3))
            };
            let count = |name: &str| point[name].as_f64().unwrap_or(0.0);
            rows.push(vec![
                contender.name.clone(),
                point["load"].as_str().unwrap_or_default().to_owned(),
                format!("{:.0}", count("rate")),
                format!("{:.0}", count("sent")),
                format!("{:.0}", count("right")),
                microseconds("p50"),
                microseconds("p99"),
                microseconds("p99.9"),
                microseconds("max"),
            ]);
        }
    }
    Table {
        title: format!("{}: latency in microseconds", measured.scenario.title),
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
