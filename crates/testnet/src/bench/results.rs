//! `bench/results/DATE/`: raw JSON, CSV, and tables in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::plan::Scenario;
use super::record::{Machine, Record};
use crate::{During, Outcome};

/// Everything of one run of the bench.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    pub machine: Machine,
    pub records: Vec<Record>,
}

impl Results {
    /// Writes all three files; more of the same day go into them anew.
    pub(super) fn write(&self, folder: &Path, scenarios: &[Scenario]) -> Outcome<()> {
        fs::create_dir_all(folder).during(format!("making {}", folder.display()))?;
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).during(format!("writing {}", path.display()))
        };
        let json = serde_json::to_string_pretty(self).during("writing JSON")?;
        write("results.json", json + "\n")?;
        write("results.csv", self.csv())?;
        write("README.md", self.markdown(scenarios))
    }

    /// A line a record (RFC 4180).
    fn csv(&self) -> String {
        let mut text = String::from(
            "scenario,contender,measure,repeat,figure,unit,server,door,generator_mode,queues,offered,sent,right,unwanted,\
             seconds,user_s,system_s,softirq_s,server_s,witness_asked,witness_answered,disturbed\n",
        );
        for record in &self.records {
            let words = [
                quoted(&record.scenario),
                quoted(&record.contender),
                record.measure.to_owned(),
                record.repeat.to_string(),
                format!("{:.3}", record.figure),
                record.unit.to_owned(),
                quoted(&record.server),
                record.door.to_owned(),
                quoted(&record.generator_mode),
                record.queues.to_string(),
                format!("{:.0}", record.offered),
                format!("{:.0}", record.sent),
                format!("{:.0}", record.right),
                format!("{:.0}", record.unwanted),
                format!("{:.3}", record.seconds),
                format!("{:.2}", record.used.user),
                format!("{:.2}", record.used.system),
                format!("{:.2}", record.used.softirq),
                format!("{:.2}", record.server_seconds),
                record.witness.asked.to_string(),
                record.witness.answered.to_string(),
                quoted(record.disturbed.as_deref().unwrap_or_default()),
            ];
            text += &words.join(",");
            text.push('\n');
        }
        text
    }

    /// Conditions, then a table for each scenario and measure.
    fn markdown(&self, scenarios: &[Scenario]) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "# Results of {}\n\nCommit {}. {}, {} CPUs, {} MiB. {}. Generator on CPU {}, server on CPU {}; veth, whose \
             receive work runs on the sender's CPU. Medians; in brackets the repeats in their order. R99: the highest \
             offered rate of which 99 % was answered right. Raw data: [results.json](results.json), \
             [results.csv](results.csv).\n",
            machine.date,
            machine.commit,
            machine.cpu,
            machine.cpus,
            machine.memory_mib,
            machine.kernel,
            machine.generator_cpu,
            machine.server_cpu
        );
        for scenario in scenarios {
            let _ = write!(text, "\n## {}\n", scenario.title);
            for measure in &scenario.measures {
                self.table(&mut text, scenario, measure.word());
            }
        }
        text
    }

    fn table(&self, text: &mut String, scenario: &Scenario, measure: &str) {
        let mut by_contender: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in &self.records {
            if record.scenario == scenario.name && record.measure == measure {
                by_contender
                    .entry(&record.contender)
                    .or_default()
                    .push(record);
            }
        }
        let Some(unit) = by_contender
            .values()
            .flatten()
            .map(|record| record.unit)
            .next()
        else {
            return;
        };
        let yardstick = scenario.yardstick.as_deref();
        let basis = yardstick
            .and_then(|name| by_contender.get(name))
            .map(|records| median(records));
        let _ = write!(
            text,
            "\n**{measure}**, {unit}, {} queue(s)\n\n| contender | {unit} | of the yardstick | witness | version, path |\n\
             | --- | ---: | ---: | ---: | --- |\n",
            scenario.queues
        );
        for contender in &scenario.contenders {
            if let Some(records) = by_contender.get(contender.name.as_str()) {
                row(text, &contender.name, records, basis);
            }
        }
    }
}

/// A contender's line: median and repeats, its part of the yardstick's, what the witness got, what it is.
fn row(text: &mut String, name: &str, records: &[&Record], basis: Option<f64>) {
    let figures: Vec<String> = records.iter().map(|record| number(record.figure)).collect();
    let part = basis
        .filter(|basis| *basis > 0.0)
        .map_or_else(String::new, |basis| {
            format!("{:.1} %", median(records) / basis * 100.0)
        });
    let (asked, answered) = records.iter().fold((0, 0), |(asked, answered), record| {
        (
            asked + record.witness.asked,
            answered + record.witness.answered,
        )
    });
    let disturbed = records.iter().filter(|record| record.disturbed.is_some());
    let disturbed = match disturbed.count() {
        0 => String::new(),
        count => format!(" ({count} of {} disturbed)", records.len()),
    };
    let last = records[records.len() - 1];
    let _ = writeln!(
        text,
        "| {name} | {} ({}){disturbed} | {part} | {answered}/{asked} | {} {} |",
        number(median(records)),
        figures.join(", "),
        last.server,
        last.door
    );
}

/// The middle one, or the lower of the two in the middle.
fn median(records: &[&Record]) -> f64 {
    let mut figures: Vec<f64> = records.iter().map(|record| record.figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) / 2]
}

/// Rates without, small numbers with a fraction.
fn number(figure: f64) -> String {
    if figure.abs() < 1000.0 {
        format!("{figure:.3}")
    } else {
        format!("{figure:.0}")
    }
}

/// A word for CSV.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Library;

    fn record(contender: &str, repeat: u32, figure: f64) -> Record {
        Record {
            scenario: "refused".to_owned(),
            contender: contender.to_owned(),
            measure: "r99",
            repeat,
            figure,
            unit: "queries/s",
            server: "x, \"1\"".to_owned(),
            door: "xdp",
            generator_mode: "native, copy".to_owned(),
            queues: 1,
            offered: 0.0,
            sent: 0.0,
            right: 0.0,
            unwanted: 0.0,
            seconds: 5.0,
            used: Default::default(),
            server_seconds: 0.0,
            witness: Default::default(),
            disturbed: (repeat == 2).then(|| "load".to_owned()),
            details: serde_json::Value::Null,
        }
    }

    #[test]
    fn a_table_has_medians_and_parts_of_the_yardstick() {
        let scenario = Library::ours()
            .scenarios()
            .unwrap()
            .remove("refused")
            .unwrap();
        let yardstick = scenario.yardstick.clone().unwrap();
        let other = &scenario.contenders[0].name;
        let mut records = Vec::new();
        for (repeat, figure) in [(1, 900_000.0), (2, 1_100_000.0), (3, 1_000_000.0)] {
            records.push(record(&yardstick, repeat, figure));
            records.push(record(other, repeat, figure * 0.9));
        }
        let results = Results {
            machine: Machine::here(0, 1),
            records,
        };
        let text = results.markdown(std::slice::from_ref(&scenario));
        assert!(
            text.contains("| 900000 (810000, 990000, 900000) (1 of 3 disturbed) | 90.0 % |"),
            "{text}"
        );
        let csv = results.csv();
        assert_eq!(csv.lines().count(), 7);
        assert!(csv.contains("\"x, \"\"1\"\"\""), "{csv}");
    }
}
