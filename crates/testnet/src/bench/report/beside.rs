//! Contenders beside each other, two by two and by their pairs of runs: ours beside the yardstick, beside other servers on the
//! same path, and over AF_XDP beside itself over kernel sockets; our generators beside others with the same options.

use super::tables::number;
use super::{Measured, Part, Table, is_generators_limit, mark, median, peak, sign_of_ratio};
use crate::bench::plan::{Contender, DoorWord, GeneratorWord, Measure, Scenario};
use crate::bench::record::Record;

/// The file of this tree's server.
const OURS: &str = "millrace";

const COLUMNS: [&str; 7] = [
    "contender",
    "beside",
    "what",
    "median",
    "the other's",
    "ratio",
    "difference, median of pairs",
];

/// What is compared: its name, its unit where that is not the record's, the measure that has it, and the number of a record.
type Quantity = (
    &'static str,
    Option<&'static str>,
    Measure,
    fn(&Record) -> f64,
);

pub(super) fn part(all: &[Measured]) -> Part {
    let tables = all.iter().filter_map(|measured| table(*measured));
    Part {
        title: "Beside each other".to_owned(),
        text: "Ratio: of the medians. Difference: contenders take turns, so the runs of one repeat are a pair that met the \
               same machine; the median of what the pairs differ by, in the unit of the row. \"≥\", \"≤\", \"?\": the \
               generator was the limit of the contender, of the other one, of both."
            .to_owned(),
        tables: tables.collect(),
        ..Part::default()
    }
}

fn table(measured: Measured) -> Option<Table> {
    let contenders = &measured.scenario.contenders;
    let quantities = quantities(measured.scenario);
    let mut rows = Vec::new();
    for own in contenders {
        let others = contenders.iter();
        for other in others.filter(|one| is_beside(measured, own, one)) {
            let row = |quantity: &Quantity| row(measured, *quantity, own, other);
            rows.extend(quantities.iter().filter_map(row));
        }
    }
    (!rows.is_empty()).then(|| Table {
        title: measured.scenario.title.clone(),
        columns: COLUMNS.to_vec(),
        rows,
    })
}

/// What the measures of a scenario give; pictures and shares of queues are not compared.
fn quantities(scenario: &Scenario) -> Vec<Quantity> {
    let mut quantities: Vec<Quantity> = Vec::new();
    for measure in &scenario.measures {
        match measure {
            Measure::OverTime | Measure::Evenness | Measure::OnceThrough => continue,
            _ => quantities.push((measure.word(), None, *measure, |record| record.figure)),
        }
        if *measure == Measure::R99 {
            quantities.push(("peak", Some("answers/s"), *measure, peak));
        }
    }
    quantities
}

fn is_beside(measured: Measured, own: &Contender, other: &Contender) -> bool {
    let is_ours = |one: &Contender| one.server == OURS;
    let is_generator_ours = |one: &Contender| {
        matches!(
            one.generator,
            GeneratorWord::Floodgate | GeneratorWord::FloodgateSockets
        )
    };
    if own.name == other.name {
        return false;
    }
    if !is_ours(own) {
        return own.server == other.server
            && is_generator_ours(own)
            && !is_generator_ours(other)
            && own.options == other.options;
    }
    let is_yardstick = measured.scenario.yardstick.as_ref() == Some(&other.name);
    let is_on_same_path = own.door == other.door && !is_ours(other) && !other.yardstick;
    let is_same_over_sockets = own.door == DoorWord::Xdp
        && other.door == DoorWord::Sockets
        && is_ours(other)
        && own.configuration == other.configuration;
    is_yardstick || is_on_same_path || is_same_over_sockets
}

/// Nothing where one of them was not measured.
fn row(
    measured: Measured,
    (name, unit, measure, of_record): Quantity,
    own: &Contender,
    other: &Contender,
) -> Option<Vec<String>> {
    let [mine, theirs] = [own, other].map(|one| measured.records_of(&one.name, measure));
    let numbers = |records: &[&Record]| -> Vec<f64> {
        let numbers = records.iter().map(|record| of_record(record));
        numbers.collect()
    };
    let unit = unit.unwrap_or(&measured.records(measure).next()?.unit);
    let [figure, basis] = [&mine, &theirs].map(|records| median(&numbers(records)));
    if mine.is_empty() || basis <= 0.0 {
        return None;
    }
    let pair = |one: &&Record| {
        let same = theirs.iter().find(|other| other.repeat == one.repeat)?;
        Some(of_record(one) - of_record(same))
    };
    let differences: Vec<f64> = mine.iter().filter_map(pair).collect();
    let sign = sign_of_ratio(is_generators_limit(&mine), is_generators_limit(&theirs));
    let mark = mark(&[mine, theirs].concat());
    Some(vec![
        own.name.clone(),
        other.name.clone(),
        format!("{name}, {unit}"),
        number(figure),
        number(basis),
        format!("{sign}{:.3}{mark}", figure / basis),
        match differences.is_empty() {
            true => String::new(),
            false => format!("{}{mark}", signed(median(&differences))),
        },
    ])
}

fn signed(difference: f64) -> String {
    match difference < 0.0 {
        true => format!("-{}", number(-difference)),
        false => format!("+{}", number(difference)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Library;
    use crate::bench::report::tests::{record, results};

    fn pairs(scenario: &str) -> Vec<(String, String)> {
        let scenarios = Library::ours().scenarios().unwrap();
        let scenario = scenarios.iter().find(|one| one.name == scenario).unwrap();
        let results = results(Vec::new());
        let measured = Measured {
            scenario,
            results: &results,
        };
        let contenders = || scenario.contenders.iter();
        let pairs = contenders().flat_map(|own| contenders().map(move |other| (own, other)));
        pairs
            .filter(|(own, other)| is_beside(measured, own, other))
            .map(|(own, other)| (own.name.clone(), other.name.clone()))
            .collect()
    }

    #[test]
    fn what_the_numbers_are_wanted_against_is_beside_them() {
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        let refused = pairs("refused");
        let over_xdp = "millrace, AF_XDP";
        for other in ["echo", "knotd, AF_XDP", "millrace, sockets"] {
            assert!(refused.contains(&pair(over_xdp, other)), "{other}");
        }
        assert!(refused.contains(&pair("millrace, sockets", "dnsdist, sockets")));
        assert!(!refused.contains(&pair(over_xdp, "dnsdist, sockets")));
        for zones in ["zone-positive", "zone-signed", "zone-nxdomain3"] {
            for size in ["10k", "1m"] {
                let pairs = pairs(&format!("{zones}-{size}"));
                assert!(pairs.contains(&pair(over_xdp, "knotd, AF_XDP")), "{zones}");
            }
        }
        // Of generators those with the same options.
        assert_eq!(
            pairs("generators-sockets"),
            [
                pair("floodgate sockets", "dnsperf"),
                pair("floodgate sockets, -c 10", "dnsperf, -c 10")
            ]
        );
    }

    #[test]
    fn differences_are_those_of_pairs_and_not_of_medians() {
        let scenarios = Library::ours().scenarios().unwrap();
        let cost = |contender: &str, repeat: u32, figure: f64| {
            let mut cost = record(contender, repeat, figure);
            (cost.measure, cost.unit) = (Measure::Cost, "core-us/answer".to_owned());
            cost.disturbed = None;
            cost
        };
        let own = "millrace, AF_XDP";
        // By medians 1.75 more, by pairs 0.25: the machine changed.
        let results = results(vec![
            cost(own, 1, 8.0),
            cost("echo", 1, 7.75),
            cost(own, 2, 10.0),
            cost("echo", 2, 7.6),
            cost(own, 3, 9.5),
            cost("echo", 3, 9.25),
        ]);
        let measured = Measured {
            scenario: &scenarios[0],
            results: &results,
        };
        let rows = table(measured).unwrap().rows;
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0][..3], [own, "echo", "cost, core-us/answer"]);
        assert_eq!(rows[0][3..], ["9.500", "7.750", "1.226", "+0.250"]);
        assert_eq!([-0.5, 2_000.0].map(signed), ["-0.500", "+2000"]);
    }

    #[test]
    fn peaks_are_compared_beside_r99() {
        let scenarios = Library::ours().scenarios().unwrap();
        let search = |contender: &str, figure: f64, peak: f64| {
            let mut search = record(contender, 1, figure);
            search.details = serde_json::json!({ "peak": peak });
            search
        };
        let results = results(vec![
            search("millrace, AF_XDP", 300.0, 400.0),
            search("knotd, AF_XDP", 200.0, 320.0),
        ]);
        let measured = Measured {
            scenario: &scenarios[0],
            results: &results,
        };
        let rows = table(measured).unwrap().rows;
        let told: Vec<(&str, &str)> = rows.iter().map(|row| (&*row[2], &*row[5])).collect();
        assert_eq!(
            told,
            [("r99, queries/s", "1.500"), ("peak, answers/s", "1.250")]
        );
    }
}
