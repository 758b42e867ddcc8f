//! Tables: every figure with everything that it depends on, and what could not be measured.

use std::collections::BTreeMap;

use super::{
    Measured, Part, Table, UNKNOWN, commits, figures, is_generators_limit, median, overload,
    place_of, server_of, sign_of_ratio, title,
};
use crate::bench::plan::Measure;
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
               the runs at 10 %. What is the same for all rows stands above them. Loss: what was sent and not answered right; where answers were dropped unread, what did \
               not come back. Witness: an ordinary client over kernel sockets beside the load. Lost here: what of all \
               repeats together the generator's machine lost, by cause. \"≥\", \"≤\", \"?\": the generator was the limit of \
               the server, of the yardstick, of both; in overload \"?\": it could send no more than what is told."
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
            conditions: String::new(),
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

fn table(measured: Measured, measure: Measure) -> Option<Table> {
    let contenders = measured.contenders(measure);
    let (_, first) = contenders.first()?;
    let basis = |contender| {
        let yardstick = measured.yardstick_of(contender, measure)?;
        let mut all = contenders.iter();
        let (_, records) = all.find(|(contender, _)| contender.name == yardstick)?;
        Some(Basis {
            figure: median(&figures(records)),
            is_limited: is_generators_limit(records),
        })
    };
    let records: Vec<&Record> = measured.records(measure).collect();
    let differs = Differs::among(&records);
    let rows = contenders.iter().map(|(contender, records)| {
        let limit = overload::limit(measured, &contender.name);
        let limit = limit.filter(|_| measure == Measure::Overload);
        row(&contender.name, records, basis(contender), differs, limit)
    });
    let what = format!(
        "{}: {}, {}",
        measured.scenario.title,
        measure.word(),
        first[0].unit
    );
    let has_records = |name: &&str| !measured.records_of(name, measure).is_empty();
    let yardstick = measured.best_yardstick(measure).filter(has_records);
    let yardstick = yardstick.map_or_else(String::new, |name| format!(" Yardstick: {name}."));
    Some(Table {
        title: title(&what, &records),
        conditions: format!("{}{yardstick}", place_of(measured.machine(), &records)),
        ..without_empty(COLUMNS.to_vec(), rows.collect())
    })
}

/// Columns in which no row has anything say nothing: that of the yardstick where there is none, for example.
fn without_empty(columns: Vec<&'static str>, rows: Vec<Vec<String>>) -> Table {
    let is_told = |column: usize| rows.iter().any(|row| !row[column].is_empty());
    let told: Vec<usize> = (0..columns.len())
        .filter(|column| is_told(*column))
        .collect();
    let of_row = |row: &Vec<String>| told.iter().map(|column| row[*column].clone()).collect();
    Table {
        columns: told.iter().map(|column| columns[*column]).collect(),
        rows: rows.iter().map(of_row).collect(),
        ..Table::default()
    }
}

/// What is not the same in all rows of a table, so that every row tells its own; the rest stands above them.
#[derive(Clone, Copy, Debug, Default)]
struct Differs {
    commit: bool,
    generator: bool,
    generator_mode: bool,
}

impl Differs {
    fn among(records: &[&Record]) -> Differs {
        let several = |word: fn(&Record) -> &str| {
            let first = records.first().map(|record| word(record));
            records.iter().any(|record| Some(word(record)) != first)
        };
        Differs {
            commit: several(|record| &record.commit),
            generator: several(|record| &record.generator),
            generator_mode: several(|record| &record.generator_mode),
        }
    }
}

/// What others are compared with: the yardstick's figure, and whether it is the generator's limit.
#[derive(Clone, Copy)]
struct Basis {
    figure: f64,
    is_limited: bool,
}

/// A contender's figures; `basis` is the yardstick's; `limit`: how many times its peak the generator could send at the most.
fn row(
    name: &str,
    records: &[&Record],
    basis: Option<Basis>,
    differs: Differs,
    limit: Option<f64>,
) -> Vec<String> {
    let figures = figures(records);
    let repeats: Vec<String> = figures.iter().copied().map(number).collect();
    let is_limited = is_generators_limit(records);
    let sign = |of_basis: bool| match limit {
        Some(_) => UNKNOWN,
        None => sign_of_ratio(is_limited, of_basis),
    };
    let part = basis.filter(|basis| basis.figure > 0.0);
    vec![
        name.to_owned(),
        format!("{}{}", sign(false), number(median(&figures))),
        repeats.join(", "),
        part.map_or_else(String::new, |basis| {
            let percent = median(&figures) / basis.figure * 100.0;
            format!("{}{percent:.1}\u{a0}%", sign(basis.is_limited))
        }),
        if_told(sum(records, |record| record.offered)),
        sent(records, limit),
        answered(records),
        loss(records),
        seen(records),
        mode(records, differs),
        version(records, differs),
        disturbed(records),
    ]
}

fn sum(records: &[&Record], count: fn(&Record) -> f64) -> f64 {
    records.iter().map(|record| count(record)).sum()
}

fn sent(records: &[&Record], limit: Option<f64>) -> String {
    let why = limit.map_or_else(String::new, |times| {
        format!(", generator's limit: {times:.2} times the peak")
    });
    format!("{}{why}", if_told(sum(records, |record| record.sent)))
}

/// Answers, which nobody has looked at where they were only counted.
fn answered(records: &[&Record]) -> String {
    let answered = sum(records, |record| record.right.max(record.unwanted));
    let is_unread = records.iter().any(|record| record.is_unread());
    format!("{answered:.0}{}", if is_unread { " (unread)" } else { "" })
}

/// Of nothing that was sent nothing can be lost.
fn loss(records: &[&Record]) -> String {
    let sending = records.iter().filter(|record| record.sent > 0.0);
    let loss: Vec<f64> = sending.map(|record| record.loss()).collect();
    match loss.is_empty() {
        true => String::new(),
        false => format!("{:.3}\u{a0}%{}", median(&loss) * 100.0, lost_here(records)),
    }
}

/// How server and generator got onto their interfaces.
fn mode(records: &[&Record], differs: Differs) -> String {
    let last = records[records.len() - 1];
    let server = match last.server_mode.is_empty() {
        true => last.door.clone(),
        false => format!("{}, {}", last.door, last.server_mode),
    };
    words(&[
        &server,
        &if_differs(differs.generator_mode, &last.generator_mode),
    ])
}

fn version(records: &[&Record], differs: Differs) -> String {
    let last = records[records.len() - 1];
    let commits = Vec::from_iter(commits(records.iter().copied())).join(", ");
    words(&[
        &server_of(last),
        &if_differs(differs.generator, &last.generator),
        &if_differs(differs.commit, &format!("commit {commits}")),
    ])
}

/// A word that stands above the table where it is the same for all rows.
fn if_differs(differs: bool, word: &str) -> String {
    if differs {
        word.to_owned()
    } else {
        String::new()
    }
}

/// Which repeats were, and why.
fn disturbed(records: &[&Record]) -> String {
    let why = records.iter().filter_map(|record| {
        let why = record.disturbed.as_ref()?;
        Some(format!("#{}: {why}", record.repeat))
    });
    let why: Vec<String> = why.collect();
    match why.is_empty() {
        true => "no".to_owned(),
        false => why.join("; "),
    }
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

    const ALL: Differs = Differs {
        commit: true,
        generator: true,
        generator_mode: true,
    };

    #[test]
    fn what_all_rows_share_is_told_above_them_and_not_in_each() {
        let mut records = [record("a", 1, 5.0), record("b", 1, 6.0)];
        let of = |records: &[Record]| {
            let both: Vec<&Record> = records.iter().collect();
            row("a", &both[..1], None, Differs::among(&both), None)
        };
        assert_eq!(of(&records)[9..11], ["xdp", "x 1"]);
        records[1].generator_mode = "generic".to_owned();
        records[1].commit = "decaf".to_owned();
        assert_eq!(
            of(&records)[9..11],
            ["xdp; native, copy", "x 1; commit c0ffee"]
        );
    }

    #[test]
    fn an_overload_tells_that_nobody_read_and_where_the_generator_ended() {
        let mut run = record("a", 1, 90.0);
        (run.right, run.unwanted) = (0.0, 900.0);
        let basis = Some(Basis {
            figure: 100.0,
            is_limited: false,
        });
        let told = row("a", &[&run], basis, ALL, None);
        assert_eq!(told[5..7], ["1000", "900 (unread)"]);
        let told = row("a", &[&run], basis, ALL, Some(1.5));
        assert_eq!((&*told[1], &*told[3]), ("? 90.000", "? 90.0\u{a0}%"));
        assert_eq!(told[5], "1000, generator's limit: 1.50 times the peak");
    }

    #[test]
    fn a_column_of_nothing_is_none() {
        let rows = [["a", "", "1"], ["b", "", ""]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        let table = without_empty(vec!["name", "of the yardstick", "sent"], rows);
        assert_eq!(table.columns, ["name", "sent"]);
        assert_eq!(table.rows, [["a", "1"], ["b", ""]]);
    }

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
        let limited = row("a", &records, basis(true), ALL, None);
        assert_eq!(limited[3], "≤ 90.0\u{a0}%");
        let row = row("a", &records, basis(false), ALL, None);
        assert_eq!(row.len(), COLUMNS.len());
        assert_eq!(
            row[..4],
            ["a", "900000", "810000, 990000, 900000", "90.0\u{a0}%"]
        );
        assert_eq!(
            (row[7].as_str(), row[11].as_str()),
            ("1.000\u{a0}%", "#2: load")
        );
        assert_eq!(row[10], "x 1; floodgate 0; commit c0ffee");
    }

    #[test]
    fn what_was_not_sent_is_not_lost_and_a_wrong_answer_to_the_witness_is_told() {
        let mut none = record("a", 1, 0.0);
        (none.sent, none.right) = (0.0, 0.0);
        none.witness.asked = 9;
        none.witness.answered = 7;
        let told = row("a", &[&none], None, ALL, None);
        assert_eq!(told[4..9], ["", "", "0", "", "7/9"]);
        none.witness.wrong = 2;
        none.details = serde_json::json!({ "generator_was_the_limit": true });
        let told = row("a", &[&none], None, ALL, None);
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
        let told = row("a", &both, None, ALL, None);
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
        let told = row("a", &both, None, ALL, None);
        assert_eq!(told[10], "x 1; floodgate 0; commit c0ffee, decaf");
        assert_eq!(told[9], "xdp, copy mode; native, copy");
        let told = row("a", &both[..1], None, ALL, None);
        assert_eq!(told[10], "x 1; floodgate 0; commit c0ffee");
    }
}
