//! Chart (f): how near contenders come to the yardsticks.

use super::bars::{Bar, Group};
use super::sheets::{Entry, Theme};
use super::{Measured, Part, figures, mark, median, overload, style_of};
use crate::bench::plan::{Contender, Measure};
use crate::bench::record::Record;

/// Measures of which more is better: ratios of others mean something else.
const RATES: [Measure; 4] = [
    Measure::R99,
    Measure::Overload,
    Measure::Send,
    Measure::ClosedLoop,
];

pub(super) fn part(all: &[Measured]) -> Part {
    let Some(first) = all.first() else {
        return Part::default();
    };
    let pairs = all
        .iter()
        .flat_map(|measured| RATES.map(|measure| (*measured, measure)));
    let entries = pairs.filter_map(|(measured, measure)| {
        Some(Entry {
            group: group(measured, measure)?,
            what: format!("{}, {}", measured.scenario.title, measure.word()),
            records: measured.records(measure).collect(),
        })
    });
    let theme = Theme {
        name: "ratios",
        title: "Ratios to the yardsticks",
        unit: "% of the yardstick",
        line: Some(100.0),
    };
    Part {
        title: theme.title.to_owned(),
        text: "Medians as parts of the yardstick's median; the yardstick is named in each headline, or behind a name. \
               \"≤\": the generator, not the yardstick, was its limit, so the part is less in truth; \"≥\": that of the \
               server, so it is more; \"?\": of both. Overload: \"sent 1.50 times its peak\" is the generator's limit, for \
               twice the peak was to be sent; what would be answered then is not known, which is \"?\" too."
            .to_owned(),
        charts: theme.charts(first.machine(), entries.collect()),
        ..Part::default()
    }
}

fn group(measured: Measured, measure: Measure) -> Option<Group> {
    let yardstick = measured.best_yardstick(measure)?;
    let is_basis = |name: &str| {
        let mut contenders = measured.scenario.contenders.iter();
        contenders.any(|one| measured.yardstick_of(one, measure) == Some(name))
    };
    let others = measured.contenders(measure).into_iter();
    let bars: Vec<Bar> = others
        .filter(|(contender, _)| !is_basis(&contender.name))
        .filter_map(|(contender, records)| bar(measured, measure, contender, &records))
        .collect();
    let best = match measured.scenario.yardsticks.len() {
        0 | 1 => "",
        _ => ", the best of its kind",
    };
    (!bars.is_empty()).then(|| Group {
        title: format!(
            "{}, {} (yardstick: {yardstick}{best}{})",
            measured.scenario.title,
            measure.word(),
            limit(measured, measure, yardstick)
        ),
        bars,
    })
}

/// How much of the overload a contender got, where the generator was the limit.
fn limit(measured: Measured, measure: Measure, contender: &str) -> String {
    let limit = overload::limit(measured, contender).filter(|_| measure == Measure::Overload);
    limit.map_or_else(String::new, |times| format!(", {}", overload::words(times)))
}

/// Nothing where what it is compared with had nothing.
fn bar(
    measured: Measured,
    measure: Measure,
    contender: &Contender,
    records: &[&Record],
) -> Option<Bar> {
    let yardstick = measured.yardstick_of(contender, measure)?;
    let of_yardstick = measured.records_of(yardstick, measure);
    let basis = median(&figures(&of_yardstick));
    if basis <= 0.0 {
        return None;
    }
    let all: Vec<f64> = figures(records)
        .iter()
        .map(|figure| figure / basis * 100.0)
        .collect();
    let sign = measured.sign(measure, &contender.name, yardstick);
    let mark = mark(&[records, of_yardstick.as_slice()].concat());
    let own = contender.beside.as_ref();
    let of = own.map_or_else(String::new, |own| format!(" (of {own})"));
    let limit = limit(measured, measure, &contender.name);
    Some(Bar {
        name: format!("{}{of}", contender.name),
        style: style_of(contender),
        value: median(&all),
        text: format!("{sign}{:.1} %{mark}{limit}", median(&all)),
        all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Library;
    use crate::bench::report::tests::{overload, record, results};

    #[test]
    fn a_ratio_says_if_the_generator_was_the_limit_or_a_run_disturbed() {
        let scenarios = Library::ours().scenarios().unwrap();
        let of = |contender: &str, repeat: u32, limited: bool| {
            let mut record = record(contender, repeat, 1000.0);
            record.details = serde_json::json!({ "generator_was_the_limit": limited });
            record
        };
        let texts = |records: Vec<Record>| -> Vec<String> {
            let results = results(records);
            let measured = Measured {
                scenario: &scenarios[0],
                results: &results,
            };
            let group = group(measured, Measure::R99).unwrap();
            group.bars.into_iter().map(|bar| bar.text).collect()
        };
        let contenders = |repeat: u32, limited: bool| {
            vec![
                of("echo", 1, limited),
                of("millrace, AF_XDP", repeat, false),
                of("reflector (XDP_TX)", 1, true),
            ]
        };
        // The second run of all is disturbed.
        assert_eq!(texts(contenders(1, true)), ["≤ 100.0 %", "? 100.0 %"]);
        assert_eq!(texts(contenders(2, false)), ["100.0 % *", "≥ 100.0 %"]);
    }

    #[test]
    fn a_contender_with_a_yardstick_of_its_own_is_a_part_of_that() {
        let scenarios = Library::ours().scenarios().unwrap();
        let mut scenarios = scenarios.iter();
        let scenario = scenarios.find(|one| one.name == "generators-sockets");
        let of = |contender: &str, figure: f64| {
            let mut run = record(contender, 1, figure);
            (run.scenario, run.measure) = ("generators-sockets".to_owned(), Measure::ClosedLoop);
            run
        };
        let results = results(vec![
            of("floodgate sockets", 300.0),
            of("dnsperf", 200.0),
            of("floodgate sockets, -c 10", 480.0),
            of("dnsperf, -c 10", 400.0),
        ]);
        let measured = Measured {
            scenario: scenario.unwrap(),
            results: &results,
        };
        let bars = group(measured, Measure::ClosedLoop).unwrap().bars;
        let told: Vec<(&str, &str)> = bars.iter().map(|bar| (&*bar.name, &*bar.text)).collect();
        assert_eq!(told[0], ("floodgate sockets", "150.0 %"));
        let second = "floodgate sockets, -c 10 (of dnsperf, -c 10)";
        assert_eq!(told[1], (second, "120.0 %"));
    }

    #[test]
    fn an_overload_that_the_generator_limited_says_what_was_sent() {
        let scenarios = Library::ours().scenarios().unwrap();
        let run = |contender: &str, sent: f64| overload(contender, 300_000.0, (8_000_000.0, sent));
        let results = results(vec![
            record("millrace, AF_XDP", 1, 400_000.0),
            record("echo", 1, 400_000.0),
            run("millrace, AF_XDP", 6_000_000.0),
            run("echo", 5_000_000.0),
        ]);
        let measured = Measured {
            scenario: &scenarios[0],
            results: &results,
        };
        let group = group(measured, Measure::Overload).unwrap();
        assert_eq!(
            group.title,
            "REFUSED, overload (yardstick: echo, sent 1.25 times its peak)"
        );
        assert_eq!(group.bars[0].text, "? 100.0 %, sent 1.50 times its peak");
    }

    #[test]
    fn of_several_yardsticks_the_best_is_the_one() {
        let scenarios = Library::ours().scenarios().unwrap();
        let mut scenarios = scenarios.iter();
        let scenario = scenarios.find(|one| one.name == "generators").unwrap();
        let of = |contender: &str, figure: f64| {
            let mut run = record(contender, 1, figure);
            (run.scenario, run.measure) = ("generators".to_owned(), Measure::Send);
            run
        };
        let results = results(vec![
            of("floodgate, -b 32", 380.0),
            of("kxdpgun, -b 32", 300.0),
            of("kxdpgun, -b 10", 400.0),
        ]);
        let measured = Measured {
            scenario,
            results: &results,
        };
        let group = group(measured, Measure::Send).unwrap();
        assert!(
            group
                .title
                .ends_with("(yardstick: kxdpgun, -b 10, the best of its kind)"),
            "{}",
            group.title
        );
        let told: Vec<(&str, &str)> = group
            .bars
            .iter()
            .map(|bar| (&*bar.name, &*bar.text))
            .collect();
        assert_eq!(
            told,
            [("floodgate, -b 32", "95.0 %"), ("kxdpgun, -b 32", "75.0 %")]
        );
        // Where less is better, the best is the one with less.
        assert_eq!(
            measured.best_yardstick(Measure::Send),
            Some("kxdpgun, -b 10")
        );
        let mut costs = results.records.clone();
        costs.iter_mut().for_each(|one| one.measure = Measure::Cost);
        let results = super::super::tests::results(costs);
        let measured = Measured {
            scenario,
            results: &results,
        };
        assert_eq!(
            measured.best_yardstick(Measure::Cost),
            Some("kxdpgun, -b 32")
        );
    }
}
