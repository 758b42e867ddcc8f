//! Chart (e): how many answers come from each queue.

use super::bars::{Bar, Group};
use super::sheets::{Entry, Theme};
use super::svg::Style;
use super::{Chart, Measured, Part, mark, middle, style_of};
use crate::bench::plan::{Contender, Measure};
use crate::bench::record::Record;

/// Queues under one headline: they fit a sheet.
const QUEUES_MAX: usize = 16;

pub(super) fn part(all: &[Measured]) -> Part {
    let charts = all.iter().flat_map(|measured| charts(*measured));
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

/// As many charts as the contenders of a scenario and their queues take.
fn charts(measured: Measured) -> Vec<Chart> {
    let contenders = measured.contenders(Measure::Evenness);
    let entries = contenders.iter().flat_map(|(contender, records)| {
        let record = middle(records);
        let groups = record.map(|record| groups_of(contender, record));
        let entry = |group: Group| Entry {
            what: group.title.clone(),
            group,
            records: record.into_iter().collect(),
        };
        groups.into_iter().flatten().map(entry).collect::<Vec<_>>()
    });
    let theme = Theme {
        name: &format!("{}-{}", Measure::Evenness.word(), measured.scenario.name),
        title: &format!("{}: answers by queue", measured.scenario.title),
        unit: "% of an even share",
        line: Some(100.0),
    };
    theme.charts(measured.machine(), entries.collect())
}

/// A contender's queues, under as many headlines as it takes for none to have too many.
fn groups_of(contender: &Contender, record: &Record) -> Vec<Group> {
    let bars = bars(record, style_of(contender));
    let is_whole = bars.len() <= QUEUES_MAX;
    let name = format!("{}{}", contender.name, mark(&[record]));
    let group = |(number, bars): (usize, &[Bar])| {
        let first = number * QUEUES_MAX;
        Group {
            title: match is_whole {
                true => name.clone(),
                false => {
                    let last = first + bars.len() - 1;
                    format!("{name}, queues {first} to {last}")
                }
            },
            bars: bars.to_vec(),
        }
    };
    bars.chunks(QUEUES_MAX).enumerate().map(group).collect()
}

/// A bar for each queue.
fn bars(record: &Record, style: Style) -> Vec<Bar> {
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
        style,
        value: share(*answers),
        all: Vec::new(),
        text: format!("{:.1} % ({answers:.0})", share(*answers)),
    };
    received.iter().enumerate().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Library;
    use crate::bench::report::tests::{record, results};

    #[test]
    fn many_queues_come_on_several_sheets_in_the_style_of_the_door() {
        let scenarios = Library::ours().scenarios().unwrap();
        let mut scenario = scenarios[0].clone();
        scenario.contenders.truncate(1);
        scenario.contenders[0].name = "one".to_owned();
        let mut run = record("one", 1, 100.0);
        (run.scenario, run.measure) = (scenario.name.clone(), Measure::Evenness);
        let queue = serde_json::json!({ "received": 5 });
        run.details = serde_json::json!({ "floodgate": { "threads": vec![queue; 64] } });
        let groups = groups_of(&scenario.contenders[0], &run);
        let titles: Vec<&str> = groups.iter().map(|group| group.title.as_str()).collect();
        assert_eq!(titles[..2], ["one, queues 0 to 15", "one, queues 16 to 31"]);
        assert_eq!(groups[3].bars[15].name, "queue 63");
        let style = style_of(&scenario.contenders[0]);
        let mut bars = groups.iter().flat_map(|group| &group.bars);
        assert!(bars.all(|bar| bar.style == style && bar.value == 100.0));
        let results = results(vec![run]);
        let measured = Measured {
            scenario: &scenario,
            results: &results,
        };
        let names: Vec<String> = charts(measured).into_iter().map(|one| one.name).collect();
        assert_eq!(names.len(), 4, "{names:?}");
        assert!(names[1].ends_with("-2"), "{names:?}");
        let mut disturbed = record("one", 2, 100.0);
        disturbed.details = serde_json::json!({ "floodgate": { "threads": [{ "received": 5 }] } });
        let groups = groups_of(&scenario.contenders[0], &disturbed);
        assert_eq!(groups[0].title, "one *");
    }
}
