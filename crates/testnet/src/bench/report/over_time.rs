//! Chart (a): answers and CPU time over time, while the offered rate rises steadily; a row of panels for each contender.

use super::axis::Scale;
use super::curves::{Curve, Panel, chart};
use super::{Chart, Measured, Part, middle, numbered};
use crate::bench::course::Course;
use crate::bench::plan::Measure;

/// Panels of a chart: two contenders fit a sheet of paper in letters that can be read.
const PANELS_MAX: usize = 4;

pub(super) fn part(all: &[Measured]) -> Part {
    let charts = all.iter().flat_map(|measured| {
        let panels: Vec<Panel> = measured
            .contenders(Measure::OverTime)
            .iter()
            .filter_map(|(contender, records)| Some((contender, middle(records)?)))
            .flat_map(|(contender, record)| panels(&contender.name, &record.course))
            .collect();
        let title = format!("{}: a rate that rises steadily", measured.scenario.title);
        let sheet = |(number, panels): (usize, &[Panel])| {
            let svg = chart(panels, 2, &title);
            let chart = measured.chart(Measure::OverTime, title.clone(), svg);
            Chart {
                name: numbered(&chart.name, number),
                ..chart
            }
        };
        let sheets = panels.chunks(PANELS_MAX).enumerate().map(sheet);
        sheets.collect::<Vec<Chart>>()
    });
    Part {
        title: "Answers and CPU time over time".to_owned(),
        text: "The offered rate rises from nothing to a fifth beyond the highest R99 of the scenario, the same for all \
               contenders. CPU time is that of the whole machine, in cores: user, system and softirq add up. The server's \
               process has its part of user and system; the kernel's threads (ksoftirqd and others) have theirs of system \
               and softirq. Shown is the run with the median of answers."
            .to_owned(),
        charts: charts.collect(),
        ..Part::default()
    }
}

/// Queries on the left, CPU time on the right.
fn panels(name: &str, course: &Course) -> [Panel; 2] {
    let curve = |name: &str, at: &[f64], values: &[f64]| Curve {
        name: name.to_owned(),
        points: at.iter().copied().zip(values.iter().copied()).collect(),
        rings: Vec::new(),
    };
    let told = |name, values| curve(name, &course.told_at, values);
    let seen = |name, values| curve(name, &course.at, values);
    let across = || ("seconds".to_owned(), Scale::Linear);
    [
        Panel {
            title: format!("{name}: queries a second"),
            across: across(),
            up: ("a second".to_owned(), Scale::Linear),
            curves: vec![
                told("offered", &course.offered),
                told("answered right", &course.right),
            ],
        },
        Panel {
            title: format!("{name}: CPU time"),
            across: across(),
            up: ("cores".to_owned(), Scale::Linear),
            curves: vec![
                seen("user", &course.user),
                seen("system", &course.system),
                seen("softirq", &course.softirq),
                seen("server's process", &course.server),
                seen("kernel's threads", &course.kernel_threads),
            ],
        },
    ]
}
