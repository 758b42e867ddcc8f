//! Tables: every figure with everything that it depends on, and what could not be measured.

use std::collections::BTreeMap;

use super::{
    Measured, Part, Table, commits, figures, is_generators_limit, median, queues_of, sign_of_ratio,
};
use crate::bench::record::Record;
use crate::bench::results::Results;

const COLUMNS: [&str; 12] = [
    "contender",
    "figure, median",
    "repeats",
    "of the yardstick",
    "offered",
    "sent",
    "answered right",
    "loss",
    "witness",
    "mode",
    "version",
    "disturbed",
];

/// A table for each scenario and measure.
pub(super) fn all(all: &[Measured]) -> Part {
    let tables = all.iter().flat_map(|measured| {
        let measures = measured.scenario.measures.iter();
        measures.filter_map(|measure| table(*measured, *measure))
    });
    Part {
        title: "All figures".to_owned(),
        text: "Offered, sent, answered and the witness's counts are those of all repeats together. R99: the highest offered \
               rate of which 99 % was answered right; its counts are those of the run at that rate, those of a latency of \
               the runs at 10 %. Loss: what was sent and not answered right; where answers were dropped unread, what did \
               not come back. Witness: an ordinary client over kernel sockets beside the load. Lost here: what of all \
               repeats together the generator's machine lost, by cause. \"≥\", \"≤\", \"?\": the generator was the limit of \
               the server, of the yardstick, of both."
            .to_owned(),
        tables: tables.collect(),
        ..Part::default()
    }
}

/// What is not in the report, and why.
pub(super) fn missing(results: &Results) -> Part {
    let rows = results.missing.iter().map(|missing| {
        vec![
            missing.scenario.clone(),
            missing.contender.clone(),
            missing.at.clone(),
            one_line(&missing.why),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return Part::default();
    }
    Part {
        title: "What could not be measured".to_owned(),
        tables: vec![Table {
            title: "Failures".to_owned(),
            columns: vec!["scenario", "contender", "at", "why"],
            rows,
        }],
        ..Part::default()
    }
}

/// What a server wrote may be long, and of many lines.
fn one_line(why: &str) -> String {
    let words: Vec<&str> = why.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

fn table(measured: Measured, measure: crate::bench::plan::Measure) -> Option<Table> {
    let contenders = measured.contenders(measure);
    let (_, first) = contenders.first()?;
    let basis = |contender| {
        let yardstick = measured.yardstick_of(contender)?;
        let mut all = contenders.iter();
        let (_, records) = all.find(|(contender, _)| contender.name == yardstick)?;
        Some(Basis {
            figure: median(&figures(records)),
            is_limited: is_generators_limit(records),
        })
    };
    let of_several_commits = commits(&measured.results.records).len() > 1;
    let rows = contenders.iter().map(|(contender, records)| {
        let basis = basis(contender);
        row(&contender.name, records, basis, of_several_commits)
    });
    Some(Table {
        title: format!(
            "{}: {}, {}, {} queue(s)",
            measured.scenario.title,
            measure.word(),
            first[0].unit,
            queues_of(measured.records(measure))
        ),
        columns: COLUMNS.to_vec(),
        rows: rows.collect(),
    })
}

/// What others are compared with: the yardstick's figure, and whether it is the generator's limit.
#[derive(Clone, Copy)]
struct Basis {
    figure: f64,
    is_limited: bool,
}

/// A contender's figures; `basis` is the yardstick's. Where the folder is `of_several_commits` its own are told.
fn row(
    name: &str,
    records: &[&Record],
    basis: Option<Basis>,
    of_several_commits: bool,
) -> Vec<String> {
    let figures = figures(records);
    let repeats: Vec<String> = figures.iter().copied().map(number).collect();
    let part = basis.filter(|basis| basis.figure > 0.0);
    let is_limited = is_generators_limit(records);
    let least = if is_limited { "≥ " } else { "" };
    let sum = |count: fn(&Record) -> f64| records.iter().map(|record| count(record)).sum::<f64>();
    // Of nothing that was sent nothing can be lost.
    let loss: Vec<f64> = records
        .iter()
        .filter(|record| record.sent > 0.0)
        .map(|record| record.loss())
        .collect();
    let disturbed: Vec<String> = records
        .iter()
        .filter_map(|record| {
            let why = record.disturbed.as_ref()?;
            Some(format!("#{}: {why}", record.repeat))
        })
        .collect();
    let last = records[records.len() - 1];
    let door = match last.server_mode.is_empty() {
        true => last.door.clone(),
        false => format!("{}, {}", last.door, last.server_mode),
    };
    let own_commits = Vec::from_iter(commits(records.iter().copied())).join(", ");
    let commit = match of_several_commits {
        true => format!("commit {own_commits}"),
        false => String::new(),
    };
    vec![
        name.to_owned(),
        format!("{least}{}", number(median(&figures))),
        repeats.join(", "),
        part.map_or_else(String::new, |basis| {
            let sign = sign_of_ratio(is_limited, basis.is_limited);
            let percent = median(&figures) / basis.figure * 100.0;
            format!("{sign}{percent:.1}\u{a0}%")
        }),
        if_told(sum(|record| record.offered)),
        if_told(sum(|record| record.sent)),
        format!("{:.0}", sum(|record| record.right.max(record.unwanted))),
        match loss.is_empty() {
            true => String::new(),
            false => format!("{:.3}\u{a0}%{}", median(&loss) * 100.0, lost_here(records)),
        },
        seen(records),
        words(&[&door, &last.generator_mode]),
        words(&[&last.server, &last.generator, &commit]),
        if disturbed.is_empty() {
            "no".to_owned()
        } else {
            disturbed.join("; ")
        },
    ]
}

/// What of the loss was the generator's own, by cause, where there was any: `; lost here: rings full 5`.
fn lost_here(records: &[&Record]) -> String {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for record in records {
        let causes = record.details["floodgate"]["lost_here"].as_object();
        for (cause, count) in causes.into_iter().flatten() {
            *sums.entry(cause.replace('_', " ")).or_default() += count.as_f64().unwrap_or(0.0);
        }
    }
    // Answers that were to be dropped unread are none that were lost.
    let causes = sums
        .iter()
        .filter(|(cause, count)| *cause != "unwanted" && **count > 0.0);
    let causes: Vec<String> = causes
        .map(|(cause, count)| format!("{cause} {count:.0}"))
        .collect();
    match causes.is_empty() {
        true => String::new(),
        false => format!("; lost here: {}", causes.join(", ")),
    }
}

/// A count; nothing where the generator tells none, as kxdpgun does of what it was to send.
fn if_told(count: f64) -> String {
    match count > 0.0 {
        true => format!("{count:.0}"),
        false => String::new(),
    }
}

/// What the witness saw.
fn seen(records: &[&Record]) -> String {
    let sum = |count: fn(&Record) -> u64| records.iter().map(|record| count(record)).sum::<u64>();
    let wrong = match sum(|record| record.witness.wrong) {
        0 => String::new(),
        wrong => format!(", {wrong} wrong"),
    };
    format!(
        "{}/{}{wrong}",
        sum(|record| record.witness.answered),
        sum(|record| record.witness.asked)
    )
}

/// Those that are there.
fn words(words: &[&String]) -> String {
    let words = words.iter().map(|word| word.as_str());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("; ")
}

/// Rates without, small numbers with a fraction.
pub(super) fn number(figure: f64) -> String {
    if figure.abs() < 1000.0 {
        format!("{figure:.3}")
    } else {
        format!("{figure:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::record;

    #[test]
    fn a_long_reason_is_one_line() {
        assert_eq!(one_line("a\n  b"), "a b");
        assert_eq!(one_line(&"é".repeat(400)).chars().count(), 302);
    }

    #[test]
    fn a_row_has_median_repeats_and_the_part_of_the_yardstick() {
        let records = [
            record("a", 1, 810_000.0),
            record("a", 2, 990_000.0),
            record("a", 3, 900_000.0),
        ];
        let records: Vec<&Record> = records.iter().collect();
        let basis = |is_limited| {
            let figure = 1_000_000.0;
            Some(Basis { figure, is_limited })
        };
        let limited = row("a", &records, basis(true), false);
        assert_eq!(limited[3], "≤ 90.0\u{a0}%");
        let row = row("a", &records, basis(false), false);
        assert_eq!(row.len(), COLUMNS.len());
        assert_eq!(
            row[..4],
            ["a", "900000", "810000, 990000, 900000", "90.0\u{a0}%"]
        );
        assert_eq!(
            (row[7].as_str(), row[11].as_str()),
            ("1.000\u{a0}%", "#2: load")
        );
        assert_eq!(row[10], "x 1; floodgate 0");
    }

    #[test]
    fn what_was_not_sent_is_not_lost_and_a_wrong_answer_to_the_witness_is_told() {
        let mut none = record("a", 1, 0.0);
        (none.sent, none.right) = (0.0, 0.0);
        none.witness.asked = 9;
        none.witness.answered = 7;
        let told = row("a", &[&none], None, false);
        assert_eq!(told[4..9], ["", "", "0", "", "7/9"]);
        none.witness.wrong = 2;
        none.details = serde_json::json!({ "generator_was_the_limit": true });
        let told = row("a", &[&none], None, false);
        assert_eq!((&*told[1], &*told[8]), ("≥ 0.000", "7/9, 2 wrong"));
    }

    #[test]
    fn what_the_generators_machine_lost_is_told_by_cause() {
        let mut records = [record("a", 1, 5.0), record("a", 2, 6.0)];
        for (record, full) in records.iter_mut().zip([3, 4]) {
            let lost = serde_json::json!({"unwanted": 9, "rings_full": full, "too_long": 0, "interface_dropped_in": 1});
            record.details = serde_json::json!({"floodgate": {"lost_here": lost}});
        }
        let both: Vec<&Record> = records.iter().collect();
        let told = row("a", &both, None, false);
        assert_eq!(
            told[7],
            "1.000\u{a0}%; lost here: interface dropped in 2, rings full 7"
        );
    }

    #[test]
    fn a_row_has_its_commits_where_the_folder_has_several_and_the_servers_mode() {
        let mut records = [record("a", 1, 5.0), record("a", 2, 6.0)];
        records[1].commit = "decaf".to_owned();
        records[1].server_mode = "copy mode".to_owned();
        let both: Vec<&Record> = records.iter().collect();
        let told = row("a", &both, None, true);
        assert_eq!(told[10], "x 1; floodgate 0; commit c0ffee, decaf");
        assert_eq!(told[9], "xdp, copy mode; native, copy");
        let told = row("a", &both[..1], None, true);
        assert_eq!(told[10], "x 1; floodgate 0; commit c0ffee");
    }
}
