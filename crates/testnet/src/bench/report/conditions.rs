//! Under what conditions figures came about, in words: at the head of the report, with every chart and with every table.

use std::collections::{BTreeMap, BTreeSet};

use crate::bench::plan::{Measure, Scenario};
use crate::bench::record::{Machine, Record};
use crate::bench::results::Results;

/// The lines at the head.
pub(super) fn conditions(results: &Results) -> Vec<String> {
    let machine = &results.machine;
    let disturbed = results
        .records
        .iter()
        .filter(|record| record.disturbed.is_some());
    let several = match commits(&results.records).len() {
        0 | 1 => "",
        _ => " Every figure says of which it is.",
    };
    let mut lines = vec![
        format!("Commit {}.{several}", machine.commit),
        format!(
            "{}, {} CPUs, {} MiB; {}.",
            machine.cpu, machine.cpus, machine.memory_mib, machine.kernel
        ),
        format!(
            "{} Rates of a search were held for {} s, other runs took {} s.",
            machine.place, results.search_seconds, results.seconds
        ),
        format!(
            "{} {} of {} runs were disturbed: other programs used more than 3 % of a core, or the hypervisor took 2 %. \
             *: one at least of the runs behind a number was.",
            repeats(&results.records),
            disturbed.count(),
            results.records.len()
        ),
    ];
    if results.scale != 1.0 {
        lines.push(format!(
            "Only tried out: all rates were multiplied by {}. No figure here means anything.",
            results.scale
        ));
    }
    lines
}

/// Of how many runs figures are the median.
fn repeats(records: &[Record]) -> String {
    let mut counts: BTreeMap<(&str, &str, Measure), usize> = BTreeMap::new();
    for record in records {
        let key = (
            record.scenario.as_str(),
            record.contender.as_str(),
            record.measure,
        );
        *counts.entry(key).or_default() += 1;
    }
    let (fewest, most) = (counts.values().min(), counts.values().max());
    match (fewest.copied(), most.copied()) {
        (Some(1), Some(1)) => {
            "Every figure is that of a single run: how far runs differ is not known.".to_owned()
        }
        (Some(fewest), Some(most)) if fewest == most => {
            format!("Figures are medians of {most} runs.")
        }
        (Some(fewest), Some(most)) => {
            format!("Figures are medians of {fewest} to {most} runs; the tables show them all.")
        }
        _ => "Nothing was measured.".to_owned(),
    }
}

/// A line about records that are not shown, for no scenario of the tree has a place for them.
pub(super) fn left_out(results: &Results, scenarios: &[Scenario]) -> Option<String> {
    let has = |scenario: &Scenario, record: &Record| {
        let mut contenders = scenario.contenders.iter();
        scenario.name == record.scenario
            && scenario.measures.contains(&record.measure)
            && contenders.any(|contender| contender.name == record.contender)
    };
    let records = results.records.iter();
    let unknown = records.filter(|record| !scenarios.iter().any(|one| has(one, record)));
    let names: BTreeSet<String> = unknown
        .map(|record| {
            format!(
                "{} of {} in {}",
                record.measure.word(),
                record.contender,
                record.scenario
            )
        })
        .collect();
    let names = Vec::from_iter(names).join("; ");
    (!names.is_empty())
        .then(|| format!("Measured, and not shown, for the scenarios have it no longer: {names}."))
}

/// The commits that records are of, each once.
pub(super) fn commits<'r>(records: impl IntoIterator<Item = &'r Record>) -> BTreeSet<&'r str> {
    let commits = records.into_iter().map(|record| record.commit.as_str());
    commits.collect()
}

/// How many queues the interfaces had while records were made: `2`, of several runs `1 and 2`.
pub(super) fn queues_of<'r>(records: impl IntoIterator<Item = &'r Record>) -> String {
    let queues = records.into_iter().map(|record| record.queues);
    let queues: BTreeSet<u32> = queues.collect();
    let words: Vec<String> = queues.iter().map(u32::to_string).collect();
    words.join(" and ")
}

/// `1 queue`, `2 queues`, `1 and 2 queues`.
pub(super) fn queues_in_words<'r>(records: impl IntoIterator<Item = &'r Record>) -> String {
    match queues_of(records).as_str() {
        "1" => "1 queue".to_owned(),
        several => format!("{several} queues"),
    }
}

/// By which path queries went into the servers: `AF_XDP and kernel sockets`.
pub(super) fn paths_of<'r>(records: impl IntoIterator<Item = &'r Record>) -> String {
    let doors: BTreeSet<&str> = records.into_iter().map(|one| one.door.as_str()).collect();
    let has = |door: &str| doors.contains(door);
    match (has("xdp"), has("sockets")) {
        (true, true) => "AF_XDP and kernel sockets",
        (_, true) => "kernel sockets",
        _ => "AF_XDP",
    }
    .to_owned()
}

/// Where some records came about, of what and by what, in one line: what all rows of a table have together.
pub(super) fn place_of(machine: &Machine, records: &[&Record]) -> String {
    format!(
        "{}, {}, commit {}. Generator: {} ({}). Queues: {}.",
        machine.cpu,
        machine.kernel,
        distinct(records, |record| record.commit.clone()),
        distinct(records, |record| record.generator.clone()),
        distinct(records, |record| record.generator_mode.clone()),
        queues_of(records.iter().copied())
    )
}

/// Under what conditions some records came about, in one line: also what was counted.
pub(super) fn conditions_of(machine: &Machine, records: &[&Record]) -> String {
    let servers = distinct(records, server_of);
    let mode = distinct(records, |record| record.server_mode.clone());
    let server = match (servers.is_empty(), mode.is_empty()) {
        // Programs in the kernel tell no version.
        (true, _) => String::new(),
        (false, true) => format!(" Server: {servers}."),
        (false, false) => format!(" Server: {servers}; its mode, where it says one: {mode}."),
    };
    format!(
        "{}{server} {}",
        place_of(machine, records),
        counts_of(records)
    )
}

/// What a server is: ours says first whose command line it takes, which beside dnsdist itself reads like another one of these.
pub(super) fn server_of(record: &Record) -> String {
    let inner = record.server.strip_prefix("dnsdist (");
    match inner.and_then(|inner| inner.strip_suffix(')')) {
        Some(own) if own.starts_with("millrace ") => own.to_owned(),
        _ => record.server.clone(),
    }
}

/// Every word that records have, each once.
fn distinct(records: &[&Record], word: fn(&Record) -> String) -> String {
    let words: BTreeSet<String> = records.iter().map(|record| word(record)).collect();
    let words = words.into_iter().filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("; ")
}

/// What records counted, together.
fn counts_of(records: &[&Record]) -> String {
    let sum = |number: fn(&Record) -> f64| records.iter().map(|record| number(record)).sum::<f64>();
    let sent = sum(|record| record.sent);
    let loss = match sent > 0.0 {
        true => {
            let answered = sum(|record| record.right.max(record.unwanted));
            format!(", loss {:.3} %", (1.0 - answered / sent).max(0.0) * 100.0)
        }
        false => String::new(),
    };
    let disturbed = records.iter().filter(|record| record.disturbed.is_some());
    let wrong = match sum(|record| record.witness.wrong as f64) {
        0.0 => String::new(),
        wrong => format!(" ({wrong:.0} wrong)"),
    };
    format!(
        "All runs together: offered {}, sent {sent:.0}, {}{loss}, witness {:.0} of {:.0}{wrong}, disturbed {} of {}.",
        offered(records),
        answered(records),
        sum(|record| record.witness.answered as f64),
        sum(|record| record.witness.asked as f64),
        disturbed.count(),
        records.len()
    )
}

/// How many queries were meant to be sent, as far as generators tell it: kxdpgun does not.
fn offered(records: &[&Record]) -> String {
    let told = records.iter().filter(|record| record.offered > 0.0);
    let told: Vec<f64> = told.map(|record| record.offered).collect();
    let sum: f64 = told.iter().sum();
    match told.len() {
        0 => "not told".to_owned(),
        all if all == records.len() => format!("{sum:.0}"),
        some => format!("{sum:.0} (told by {some} of {} runs)", records.len()),
    }
}

/// Answers that were looked at, and those that were only counted, which are not the same.
fn answered(records: &[&Record]) -> String {
    let (unread, read): (Vec<&Record>, Vec<&Record>) =
        records.iter().partition(|record| record.is_unread());
    let right: f64 = read.iter().map(|record| record.right).sum();
    let back: f64 = unread.iter().map(|record| record.unwanted).sum();
    match (read.is_empty(), unread.is_empty()) {
        (_, true) => format!("answered right {right:.0}"),
        (true, false) => format!("answered, unread, {back:.0}"),
        (false, false) => format!("answered right {right:.0}, and unread {back:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Library;
    use crate::bench::report::Report;
    use crate::bench::report::tests::{record, results};

    #[test]
    fn conditions_are_told_with_every_chart() {
        let records = [record("a", 1, 5.0), record("a", 2, 6.0)];
        let records: Vec<&Record> = records.iter().collect();
        let text = conditions_of(&Machine::here("Here."), &records);
        assert!(
            text.contains("sent 2000, answered right 1980, loss 1.000 %"),
            "{text}"
        );
        assert!(
            text.contains("native, copy") && text.contains("disturbed 1 of 2"),
            "{text}"
        );
        let mut lied_to = record("a", 1, 5.0);
        (lied_to.witness.asked, lied_to.witness.wrong) = (9, 3);
        let text = conditions_of(&Machine::here("Here."), &[&lied_to]);
        assert!(text.contains("witness 0 of 9 (3 wrong), "), "{text}");
    }

    #[test]
    fn queues_of_several_runs_are_all_told() {
        let mut records = [1, 2, 3].map(|repeat| record("a", repeat, 5.0));
        assert_eq!(queues_of(&records), "1");
        records[1].queues = 2;
        assert_eq!(queues_of(&records), "1 and 2");
    }

    #[test]
    fn a_figure_says_of_which_commit_it_is() {
        let mut results = results(vec![record("a", 1, 5.0), record("a", 2, 6.0)]);
        results.machine.commit = "c0ffee, decaf".to_owned();
        assert_eq!(conditions(&results)[0], "Commit c0ffee, decaf.");
        results.records[1].commit = "decaf".to_owned();
        results.records[1].server_mode = "copy mode".to_owned();
        assert_eq!(
            conditions(&results)[0],
            "Commit c0ffee, decaf. Every figure says of which it is."
        );
        let [first, second] = [0, 1].map(|place| &results.records[place]);
        let text = conditions_of(&results.machine, &[second]);
        assert!(text.contains(", commit decaf. "), "{text}");
        assert!(
            text.contains("Server: x 1; its mode, where it says one: copy mode. All runs"),
            "{text}"
        );
        let text = conditions_of(&results.machine, &[first, second]);
        assert!(text.contains(", commit c0ffee; decaf. "), "{text}");
    }

    #[test]
    fn the_head_says_of_how_many_runs_figures_are() {
        let one = [record("a", 1, 5.0), record("b", 1, 6.0)];
        assert!(repeats(&one).contains("of a single run"));
        let two = [record("a", 1, 5.0), record("a", 2, 6.0)];
        assert_eq!(repeats(&two), "Figures are medians of 2 runs.");
        let both = [one, two].concat();
        assert!(repeats(&both[1..]).contains("medians of 1 to 2 runs"));
        assert_eq!(repeats(&[]), "Nothing was measured.");
    }

    #[test]
    fn what_is_measured_and_not_shown_is_named() {
        let scenarios = Library::ours().scenarios().unwrap();
        let known = record("millrace, AF_XDP", 1, 5.0);
        let shown = results(vec![known.clone()]);
        assert_eq!(left_out(&shown, &scenarios), None);
        let both = results(vec![known, record("gone", 1, 6.0)]);
        let report = Report::of(&both, &scenarios);
        let line = report.conditions.last().unwrap();
        assert!(line.ends_with(": r99 of gone in refused."), "{line}");
    }

    #[test]
    fn what_nobody_told_is_no_nought_and_what_nobody_read_is_not_right() {
        let mut records = [record("a", 1, 5.0), record("a", 3, 6.0)];
        let told = |records: &[Record]| counts_of(&records.iter().collect::<Vec<_>>());
        assert!(told(&records).contains("offered not told, sent 2000"));
        records[0].offered = 1000.0;
        assert!(told(&records).contains("offered 1000 (told by 1 of 2 runs), "));
        (records[1].right, records[1].unwanted) = (0.0, 900.0);
        let both = told(&records);
        assert!(
            both.contains("answered right 990, and unread 900, loss 5.500 %"),
            "{both}"
        );
        let one = told(&records[1..]);
        assert!(
            one.contains("answered, unread, 900, loss 10.000 %"),
            "{one}"
        );
    }

    #[test]
    fn our_server_is_told_from_dnsdist() {
        let mut record = record("a", 1, 5.0);
        for (says, shown) in [
            ("dnsdist (millrace 0.1.0)", "millrace 0.1.0"),
            ("dnsdist 1.7.3 (Lua 5.1.4)", "dnsdist 1.7.3 (Lua 5.1.4)"),
            ("", ""),
        ] {
            record.server = says.to_owned();
            assert_eq!(server_of(&record), shown);
        }
    }

    #[test]
    fn paths_and_queues_are_told_in_words() {
        let mut records = [record("a", 1, 5.0), record("b", 1, 5.0)];
        assert_eq!(paths_of(&records), "AF_XDP");
        assert_eq!(queues_in_words(&records), "1 queue");
        records[0].door = "sockets".to_owned();
        records[0].queues = 2;
        assert_eq!(paths_of(&records), "AF_XDP and kernel sockets");
        assert_eq!(paths_of(&records[..1]), "kernel sockets");
        assert_eq!(queues_in_words(&records), "1 and 2 queues");
        assert_eq!(queues_in_words(&records[..1]), "2 queues");
    }
}
