//! Chart (b): dnsperf's published test by run number: latency, queries lost, queries a second, run time.

use super::axis::Scale;
use super::curves::{Curve, Panel, chart};
use super::{Measured, Part};
use crate::bench::plan::Measure;
use crate::bench::record::Record;

/// A panel's title, what is written at its axis, and the number of a record.
type Quantity = (&'static str, &'static str, fn(&Record) -> f64);

const QUANTITIES: [Quantity; 4] = [
    ("Average latency", "milliseconds", |record| {
        told(record, "average_latency_seconds") * 1e3
    }),
    ("Queries lost", "queries", |record| told(record, "lost")),
    ("Queries a second", "a second", |record| {
        told(record, "queries_per_second")
    }),
    ("Run time", "seconds", |record| record.seconds),
];

fn told(record: &Record, name: &str) -> f64 {
    record.details[name].as_f64().unwrap_or(0.0)
}

pub(super) fn part(all: &[Measured]) -> Part {
    let charts = all.iter().filter_map(|measured| {
        measured.records(Measure::OnceThrough).next()?;
        let panels: Vec<Panel> = QUANTITIES
            .iter()
            .map(|quantity| panel(*measured, quantity))
            .collect();
        let title = measured.scenario.title.clone();
        let svg = chart(&panels, 2, &title);
        Some(measured.chart(Measure::OnceThrough, title, svg))
    });
    Part {
        title: "dnsperf's published test, by run number".to_owned(),
        text: "Once through a file of unique names, over kernel sockets on the client's side, in the order AF_XDP, sockets, \
               AF_XDP: what changes with time would set the first and the last apart."
            .to_owned(),
        charts: charts.collect(),
        ..Part::default()
    }
}

fn panel(measured: Measured, (title, unit, number): &Quantity) -> Panel {
    let contenders = measured.contenders(Measure::OnceThrough);
    let curves = contenders.iter().map(|(contender, records)| Curve {
        name: contender.name.clone(),
        points: records
            .iter()
            .map(|record| (f64::from(record.repeat), number(record)))
            .collect(),
        rings: Vec::new(),
    });
    Panel {
        title: (*title).to_owned(),
        across: ("run".to_owned(), Scale::Counted),
        up: ((*unit).to_owned(), Scale::Linear),
        curves: curves.collect(),
    }
}
