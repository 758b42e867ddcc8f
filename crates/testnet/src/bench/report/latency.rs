//! Chart (d): latency against offered rate, from idle to beyond R99.

use serde_json::Value;

use super::axis::{Scale, short};
use super::curves::{Curve, Panel, chart};
use super::{Measured, Part, Table, middle};
use crate::bench::plan::Measure;
use crate::bench::record::Record;

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
