//! Contenders beside each other, two by two and by their pairs of runs: ours beside the yardstick, beside other servers on the
//! same path, and over AF_XDP beside itself over kernel sockets; our generators beside others with the same options.

use super::tables::number;
use super::{Measured, Part, Table, conditions_of, mark, median, overload, peak, title};
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
               generator was the limit of the contender, of the other one, of both; in overload \"?\": of either, and so \
               much was sent as is told."
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
    let records = quantities
        .iter()
        .filter(|(name, _, measure, _)| *name == measure.word())
        .flat_map(|(_, _, measure, _)| measured.records(*measure));
    let records: Vec<&Record> = records.collect();
    let what = format!("{}: contenders two by two", measured.scenario.title);
    (!rows.is_empty()).then(|| Table {
        title: title(&what, &records),
        conditions: conditions_of(measured.machine(), &records),
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
    let yardsticks = &measured.scenario.yardsticks;
    let is_yardstick = yardsticks.contains(&other.name);
    // Each of ours beside the best that others can do.
    let is_one_of_several = yardsticks.len() > 1 && is_yardstick;
    if own.name == other.name {
        return false;
    }
    if !is_ours(own) {
        return own.server == other.server
            && is_generator_ours(own)
            && !is_generator_ours(other)
            && (own.options == other.options || is_one_of_several);
    }
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
    let sign = measured.sign(measure, &own.name, &other.name);
    let mark = mark(&[mine, theirs].concat());
    Some(vec![
        own.name.clone(),
        other.name.clone(),
        format!("{name}, {unit}{}", limits(measured, measure, [own, other])),
        number(figure),
        number(basis),
        format!("{sign}{:.3}{mark}", figure / basis),
        match differences.is_empty() {
            true => String::new(),
            false => format!("{}{mark}", signed(median(&differences))),
        },
    ])
}

/// How much of the overload both got, where the generator was the limit.
fn limits(measured: Measured, measure: Measure, both: [&Contender; 2]) -> String {
    let limits = both.map(|one| overload::limit(measured, &one.name));
    if measure != Measure::Overload || limits == [None, None] {
        return String::new();
    }
    let [own, other] =
        limits.map(|times| times.map_or("twice".to_owned(), |times| format!("{times:.2} times")));
    format!("; sent {own} and {other} the peaks")
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
    use crate::bench::report::tests::{overload, record, results};

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
    fn generators_are_beside_every_value_of_which_the_best_is_the_yardstick() {
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        let pairs = pairs("generators");
        for own in ["floodgate, -b 32", "floodgate, -b 10"] {
            for other in ["kxdpgun, -b 32", "kxdpgun, -b 10"] {
                assert!(pairs.contains(&pair(own, other)), "{own} beside {other}");
            }
        }
    }

    #[test]
    fn an_overload_says_what_both_got_where_that_is_less_than_was_to_be() {
        let scenarios = Library::ours().scenarios().unwrap();
        let run = |contender: &str, sent: f64| overload(contender, 300.0, (8_000.0, sent));
        let results = results(vec![
            record("millrace, AF_XDP", 1, 400.0),
            record("knotd, AF_XDP", 1, 400.0),
            run("millrace, AF_XDP", 6_000.0),
            run("knotd, AF_XDP", 8_000.0),
        ]);
        let table = table(Measured {
            scenario: &scenarios[0],
            results: &results,
        });
        let rows = table.unwrap().rows;
        let row = rows
            .iter()
            .find(|row| row[2].starts_with("overload"))
            .unwrap();
        assert_eq!(
            row[2],
            "overload, answers/s; sent 1.50 times and twice the peaks"
        );
        assert_eq!(row[5], "? 1.000");
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
