//! Statistics as text and as a table, and how long answers took.

use super::super::define;
use super::{rings, say, serving};
use crate::control::metrics::text::Value;
use mlua::{Lua, Table};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "dumpStats", |lua, ()| {
        let lines = dump(&statistics(lua));
        lines.iter().for_each(|line| say(lua, line));
        Ok(())
    })?;
    define(lua, "getStatisticsCounters", |lua, ()| table(lua))?;
    define(lua, "showResponseLatency", |lua, ()| {
        let latencies = rings::responses(lua);
        let latencies = latencies.iter().filter_map(|entry| entry.answered);
        let milliseconds =
            latencies.map(|answered| f64::from(answered.latency_microseconds) / 1_000.0);
        let lines = histogram(&milliseconds.collect::<Vec<_>>());
        lines.iter().for_each(|line| say(lua, line));
        Ok(())
    })
}

/// All of dnsdist's statistics by name.
fn statistics(lua: &Lua) -> Vec<(String, Value)> {
    let metrics = serving(lua);
    let mut statistics = metrics.map_or_else(Vec::new, |metrics| metrics.dialect_statistics());
    statistics.sort_by(|one, other| one.0.cmp(&other.0));
    statistics
}

/// Two columns, the first half beside the second.
fn dump(statistics: &[(String, Value)]) -> Vec<String> {
    let (left, right) = statistics.split_at(statistics.len().div_ceil(2));
    let mut lines: Vec<String> = left.iter().map(cell).collect();
    for (line, statistic) in lines.iter_mut().zip(right) {
        line.push_str(&cell(statistic));
    }
    lines
        .into_iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn cell((name, value): &(String, Value)) -> String {
    let value = match value {
        Value::Real(number) => format!("{number:>13.1}  "),
        whole => format!("{:>11}    ", whole.to_string()),
    };
    format!("{name:<35}\t{value}")
}

fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, value) in statistics(lua) {
        match value {
            Value::Whole(number) => table.raw_set(name, number)?,
            Value::Signed(number) => table.raw_set(name, number)?,
            Value::Real(number) => table.raw_set(name, number)?,
        }
    }
    Ok(table)
}

/// Classes of the histogram, each twice as wide as the one before.
const CLASSES: usize = 15;

/// The first class ends here, in milliseconds.
const FIRST: f64 = 0.1;

/// Characters of the longest bar.
const BAR: f64 = 70.0;

/// How many answers took up to 0.1 ms, up to 0.2 ms and so on; what took longer than the last class is in it.
fn histogram(milliseconds: &[f64]) -> Vec<String> {
    if milliseconds.is_empty() {
        return vec!["No traffic yet.".to_owned()];
    }
    let ends: [f64; CLASSES] = std::array::from_fn(|class| FIRST * f64::from(1 << class));
    let mut counts = [0.0; CLASSES];
    for latency in milliseconds {
        let class = ends.iter().position(|end| latency <= end);
        counts[class.unwrap_or(CLASSES - 1)] += 1.0;
    }
    let most = counts.iter().copied().fold(1.0, f64::max);
    let average = milliseconds.iter().sum::<f64>() / milliseconds.len() as f64;
    let head = [
        format!("Average response latency: {average:.2} msec"),
        "   msec\t".to_owned(),
    ];
    let bars = ends.iter().zip(counts).map(|(end, count)| {
        let bar = "*".repeat((BAR * count / most).round() as usize);
        format!("{end:>7.2}\t{bar}")
    });
    head.into_iter().chain(bars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_stand_in_two_columns() {
        let statistics = [
            ("acl-drops".to_owned(), Value::Whole(7)),
            ("latency-avg100".to_owned(), Value::Real(1.25)),
            ("uptime".to_owned(), Value::Whole(2)),
        ];
        assert_eq!(
            dump(&statistics),
            [
                "acl-drops                          \t          7    uptime                             \t          2",
                "latency-avg100                     \t          1.2",
            ]
        );
    }

    #[test]
    fn latencies_stand_in_classes_that_double() {
        assert_eq!(histogram(&[]), ["No traffic yet."]);
        let lines = histogram(&[0.05, 0.1, 0.15, 5_000.0]);
        assert_eq!(lines.len(), 2 + CLASSES);
        assert_eq!(lines[0], "Average response latency: 1250.08 msec");
        assert_eq!(lines[2], format!("   0.10\t{}", "*".repeat(70)));
        assert_eq!(lines[3], format!("   0.20\t{}", "*".repeat(35)));
        assert_eq!(lines[4], "   0.40\t");
        assert_eq!(lines[16], format!("1638.40\t{}", "*".repeat(35)));
    }
}
