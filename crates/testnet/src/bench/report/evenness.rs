//! Chart (e): how many answers come from each queue.

use super::bars::{Bar, Group, chart};
use super::svg::Style;
use super::{Measured, Part, middle};
use crate::bench::plan::Measure;
use crate::bench::record::Record;

pub(super) fn part(all: &[Measured]) -> Part {
    let charts = all.iter().filter_map(|measured| {
        let contenders = measured.contenders(Measure::Evenness);
        let groups = contenders.iter().filter_map(|(contender, records)| {
            let bars = bars(middle(records)?);
            (!bars.is_empty()).then(|| Group {
                title: contender.name.clone(),
                bars,
            })
        });
        let groups: Vec<Group> = groups.collect();
        let title = format!(
            "{}: answers by queue, {} queues",
            measured.scenario.title, measured.scenario.queues
        );
        (!groups.is_empty()).then(|| {
            let svg = chart(&groups, "% of an even share", &[], Some(100.0), &title);
            measured.chart(Measure::Evenness, title.clone(), svg)
        })
    });
    Part {
        title: "Evenness".to_owned(),
        text: "Answers by the queue of the client on which they came, which on a veth is the server's queue that sent them; \
               100 % is an even share. The generator sends as many queries to each queue. Shown \
               is the run with the median."
            .to_owned(),
        charts: charts.collect(),
        ..Part::default()
    }
}

/// A bar for each queue.
fn bars(record: &Record) -> Vec<Bar> {
    let queues = record.details["floodgate"]["threads"].as_array();
    let received: Vec<f64> = queues
        .into_iter()
        .flatten()
        .map(|queue| queue["received"].as_f64().unwrap_or(0.0))
        .collect();
    let even = received.iter().sum::<f64>() / received.len().max(1) as f64;
    let share = |answers: f64| {
        if even > 0.0 {
            answers / even * 100.0
        } else {
            0.0
        }
    };
    let bar = |(number, answers): (usize, &f64)| Bar {
        name: format!("queue {number}"),
        style: Style(number % 2),
        value: share(*answers),
        all: Vec::new(),
        text: format!("{:.1} % ({answers:.0})", share(*answers)),
    };
    received.iter().enumerate().map(bar).collect()
}
