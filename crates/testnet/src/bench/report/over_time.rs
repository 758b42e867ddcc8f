//! Chart (a): answers and CPU time over time, while the offered rate rises steadily; a row of panels for each contender.

use super::axis::Scale;
use super::curves::{Curve, Panel, chart};
use super::{Chart, Measured, Part, mark, middle, numbered};
use crate::bench::course::Course;
use crate::bench::plan::Measure;
use crate::bench::record::Record;

/// Contenders of a chart: two of them, with two panels each, fit a sheet of paper in letters that can be read.
const CONTENDERS_MAX: usize = 2;

pub(super) fn part(all: &[Measured]) -> Part {
    let charts = all.iter().flat_map(|measured| charts(*measured));
    Part {
        title: "Answers and CPU time over time".to_owned(),
        text: "The offered rate rises from nothing to a fifth beyond the highest R99 of the scenario, the same for all \
               contenders; where less is sent than offered, the generator was the limit. CPU time is that of the whole \
               machine, in cores: user, system and softirq add up. The server's process and the kernel's threads \
               (ksoftirqd and others) are told as the kernel counts them, with the softirqs that ran in their \
               time: a process may have more than user and system together. Shown is the run with the \
               median of answers."
            .to_owned(),
        charts: charts.collect(),
        ..Part::default()
    }
}

/// As many charts as the contenders of a scenario take.
fn charts(measured: Measured) -> Vec<Chart> {
    let contenders = measured.contenders_by_server(Measure::OverTime);
    let shown: Vec<(&str, &Record)> = contenders
        .iter()
        .filter_map(|(contender, records)| Some((contender.name.as_str(), middle(records)?)))
        .collect();
    let sheets = shown.chunks(CONTENDERS_MAX).enumerate();
    sheets
        .map(|(number, shown)| {
            let drawn = sheet(measured, shown);
            Chart {
                name: numbered(&drawn.name, number),
                ..drawn
            }
        })
        .collect()
}

fn sheet(measured: Measured, shown: &[(&str, &Record)]) -> Chart {
    let panels = shown.iter().flat_map(|(name, record)| {
        let name = format!("{name}{}", mark(&[record]));
        panels(&name, &record.course)
    });
    let panels: Vec<Panel> = panels.collect();
    let names: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
    let names = names.join("; ");
    let what = format!("answers and CPU time at a rising rate: {names}");
    let records: Vec<&Record> = shown.iter().map(|(_, record)| *record).collect();
    measured.chart(
        Measure::OverTime,
        &what,
        |title| chart(&panels, 2, title),
        &records,
    )
}

/// Queries on the left, CPU time on the right.
fn panels(name: &str, course: &Course) -> [Panel; 2] {
    let curve = |name: &str, at: &[f64], values: &[f64]| Curve {
        name: name.to_owned(),
        points: at.iter().copied().zip(values.iter().copied()).collect(),
        rings: Vec::new(),
    };
    let whole = whole_intervals(&course.offered).min(course.told_at.len());
    let told = |name, values| curve(name, &course.told_at[..whole], values);
    // Samples of the CPUs go on until the last answers are in: both panels have the same axis.
    let until = course.told_at[..whole].last().copied();
    let sampled = course
        .at
        .iter()
        .take_while(|at| until.is_none_or(|until| **at <= until));
    let sampled = sampled.count();
    let seen = |name, values| curve(name, &course.at[..sampled], values);
    let across = || ("seconds".to_owned(), Scale::Linear);
    [
        Panel {
            title: format!("{name}: queries a second"),
            across: across(),
            up: ("a second".to_owned(), Scale::Linear),
            curves: vec![
                told("offered", &course.offered),
                told("sent", &course.sent),
                told("answered right", &course.right),
            ],
        },
        Panel {
            title: format!("{name}: CPU time"),
            across: across(),
            up: ("cores".to_owned(), Scale::Linear),
            curves: [
                seen("user", &course.user),
                seen("system", &course.system),
                seen("softirq", &course.softirq),
                seen("server's process", &course.server),
                seen("kernel's threads", &course.kernel_threads),
            ]
            .into_iter()
            .filter(|curve| curve.name != "server's process" || is_something(curve))
            .collect(),
        },
    ]
}

/// A server on another machine, or one that is a program in the kernel, has no process here: its CPU time is not 0 but unknown.
fn is_something(curve: &Curve) -> bool {
    curve.points.iter().any(|(_, value)| *value > 0.0)
}

/// How many intervals the load lasted for whole: it rises until it ends, and ends within the last.
fn whole_intervals(offered: &[f64]) -> usize {
    match offered {
        [.., before, last] if last < before => offered.len() - 1,
        all => all.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Library;
    use crate::bench::report::tests::{record, results};

    /// One in which every curve has a number of its own.
    fn course() -> Course {
        Course {
            at: vec![0.25],
            user: vec![0.1],
            system: vec![0.2],
            softirq: vec![0.3],
            server: vec![0.4],
            generator: vec![0.5],
            kernel_threads: vec![0.6],
            told_at: vec![0.5],
            offered: vec![900.0],
            sent: vec![800.0],
            right: vec![700.0],
        }
    }

    #[test]
    fn every_use_of_the_cpus_has_its_curve() {
        let drawn = panels("x", &course()).map(|panel| {
            let curves = panel.curves.into_iter();
            let curves = curves.map(|curve| (curve.name, curve.points));
            curves.collect::<Vec<_>>()
        });
        let queries = |name: &str, rate: f64| (name.to_owned(), vec![(0.5, rate)]);
        let cpu = |name: &str, cores: f64| (name.to_owned(), vec![(0.25, cores)]);
        assert_eq!(
            drawn[0],
            [
                queries("offered", 900.0),
                queries("sent", 800.0),
                queries("answered right", 700.0)
            ]
        );
        assert_eq!(
            drawn[1],
            [
                cpu("user", 0.1),
                cpu("system", 0.2),
                cpu("softirq", 0.3),
                cpu("server's process", 0.4),
                cpu("kernel's threads", 0.6),
            ]
        );
    }

    #[test]
    fn a_server_without_a_process_here_has_no_curve() {
        let remote = Course {
            server: vec![0.0],
            ..course()
        };
        let [_, cpu] = panels("x", &remote);
        let names: Vec<&str> = cpu.curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["user", "system", "softirq", "kernel's threads"]);
    }

    #[test]
    fn the_interval_in_which_the_load_ends_is_not_drawn() {
        let course = Course {
            told_at: vec![0.25, 0.5, 0.75],
            offered: vec![100.0, 200.0, 8.0],
            sent: vec![100.0, 190.0, 7.0],
            right: vec![90.0, 180.0, 17.0],
            ..course()
        };
        let course = Course {
            at: vec![0.2, 0.4, 0.6],
            user: vec![0.1; 3],
            system: vec![0.1; 3],
            softirq: vec![0.1; 3],
            server: vec![0.1; 3],
            kernel_threads: vec![0.1; 3],
            ..course
        };
        for panel in panels("x", &course) {
            assert!(panel.curves.iter().all(|curve| curve.points.len() == 2));
        }
        assert_eq!(whole_intervals(&[100.0, 200.0]), 2);
        assert_eq!(whole_intervals(&[]), 0);
    }

    #[test]
    fn sockets_and_af_xdp_of_a_server_come_into_one_chart() {
        let scenarios = Library::ours().scenarios().unwrap();
        for name in ["zone-positive-10k", "zone-nxdomain3-1m"] {
            let scenario = scenarios.iter().find(|one| one.name == name).unwrap();
            let records = scenario.contenders.iter().map(|contender| {
                let mut record = record(&contender.name, 1, 1.0);
                (record.scenario, record.measure) = (name.to_owned(), Measure::OverTime);
                record.course = course();
                record
            });
            let results = results(records.collect());
            let part = part(&[Measured {
                scenario,
                results: &results,
            }]);
            let svg = &part.charts[0].svg;
            for door in ["millrace, AF_XDP", "millrace, sockets"] {
                assert!(svg.contains(&format!(">{door}: CPU time<")), "{name}");
            }
        }
    }

    #[test]
    fn both_doors_are_drawn_with_all_their_curves() {
        let doors = ["millrace, AF_XDP", "millrace, sockets"];
        let records = doors.map(|door| {
            let mut record = record(door, 1, 1.0);
            record.measure = Measure::OverTime;
            record.course = course();
            record
        });
        let results = results(records.to_vec());
        let scenarios = Library::ours().scenarios().unwrap();
        let part = part(&[Measured {
            scenario: &scenarios[0],
            results: &results,
        }]);
        assert_eq!(part.charts.len(), 1);
        let svg = &part.charts[0].svg;
        for door in doors {
            for what in ["queries a second", "CPU time"] {
                assert!(svg.contains(&format!(">{door}: {what}<")), "{svg}");
            }
        }
        // Eight in the legend, and as many for each door.
        assert_eq!(svg.matches("<polyline").count(), 8 + 2 * 8);
    }
}
