//! Chart (b): dnsperf's published test by run number: latency, queries lost, queries a second, run time.

use super::axis::Scale;
use super::curves::{Curve, Panel, chart};
use super::{Measured, Part};
use crate::bench::plan::Measure;
use crate::bench::record::Record;

/// A panel's title, what is written at its axis, and the number of a record.
type Quantity = (&'static str, &'static str, fn(&Record) -> Option<f64>);

const QUANTITIES: [Quantity; 4] = [
    ("Average latency", "milliseconds", |record| {
        Some(told(record, "average_latency_seconds")? * 1e3)
    }),
    ("Queries lost", "queries", |record| told(record, "lost")),
    ("Queries a second", "a second", |record| {
        told(record, "queries_per_second")
    }),
    ("Run time", "seconds", |record| Some(record.seconds)),
];

/// What a generator told; what it did not is no nought, and has no point.
fn told(record: &Record, name: &str) -> Option<f64> {
    record.details[name].as_f64()
}

pub(super) fn part(all: &[Measured]) -> Part {
    let charts = all.iter().filter_map(|measured| {
        let records: Vec<&Record> = measured.records(Measure::OnceThrough).collect();
        records.first()?;
        let panels: Vec<Panel> = QUANTITIES
            .iter()
            .map(|quantity| panel(*measured, quantity))
            .collect();
        let what = "latency, queries lost, queries a second, run time by run number";
        let svg = |title: &str| chart(&panels, 2, title);
        Some(measured.chart(Measure::OnceThrough, what, svg, &records))
    });
    Part {
        title: "dnsperf's published test, by run number".to_owned(),
        text: "Once through a file of unique names, over kernel sockets on the client's side, in the order AF_XDP, sockets, \
               AF_XDP, and dnsdist behind these: what changes with time would set the two of AF_XDP apart. Rings: runs that \
               were disturbed."
            .to_owned(),
        charts: charts.collect(),
        ..Part::default()
    }
}

fn panel(measured: Measured, (title, unit, number): &Quantity) -> Panel {
    let contenders = measured.contenders(Measure::OnceThrough);
    let point = |record: &&Record| Some((f64::from(record.repeat), number(record)?));
    let curves = contenders.iter().map(|(contender, records)| {
        let disturbed = records.iter().filter(|record| record.disturbed.is_some());
        Curve {
            name: contender.name.clone(),
            points: records.iter().filter_map(point).collect(),
            rings: disturbed.filter_map(point).collect(),
        }
    });
    Panel {
        title: (*title).to_owned(),
        across: ("run".to_owned(), Scale::Counted),
        up: ((*unit).to_owned(), Scale::Linear),
        curves: curves.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Library;
    use crate::bench::report::tests::{record, results};

    #[test]
    fn latency_and_queries_lost_come_into_their_panels() {
        let scenarios = Library::ours().scenarios().unwrap();
        let mut scenarios = scenarios.iter();
        let scenario = scenarios.find(|one| one.name == "dnsperf-defaults");
        let scenario = scenario.unwrap();
        let mut run = record("sockets", 2, 0.0);
        run.scenario = scenario.name.clone();
        run.measure = Measure::OnceThrough;
        run.details = serde_json::json!({"average_latency_seconds": 0.5, "lost": 3.0, "queries_per_second": 900.0});
        let results = results(vec![run]);
        let measured = Measured {
            scenario,
            results: &results,
        };
        let panels = QUANTITIES.iter().map(|quantity| panel(measured, quantity));
        let drawn: Vec<(String, Vec<(f64, f64)>)> = panels
            .map(|panel| {
                let curve = &panel.curves[0];
                // The second run of all is disturbed.
                assert_eq!(curve.rings, curve.points);
                (panel.title, curve.points.clone())
            })
            .collect();
        let run = |title: &str, number: f64| (title.to_owned(), vec![(2.0, number)]);
        assert_eq!(
            drawn,
            [
                run("Average latency", 500.0),
                run("Queries lost", 3.0),
                run("Queries a second", 900.0),
                run("Run time", 5.0),
            ]
        );
        let part = part(&[measured]);
        assert!(part.charts[0].svg.contains(">Queries lost<"));
    }
    #[test]
    fn what_was_not_told_has_no_point() {
        let run = record("a", 1, 5.0);
        let drawn = QUANTITIES.map(|(_, _, number)| number(&run));
        assert_eq!(drawn, [None, None, None, Some(5.0)]);
    }
}
