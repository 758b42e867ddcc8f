//! Contenders beside each other, two by two and by their pairs of runs: ours beside the yardstick, beside other servers on the
//! same path, and over AF_XDP beside itself over kernel sockets; our generators beside others with the same options. Where
//! contenders took turns, the pairs are their turns, and everybody is beside the yardstick.

use std::collections::BTreeSet;

use super::tables::number;
use super::{
    Measured, Part, Table, conditions_of, error_of_median, mark, median, overload, peak, title,
};
use crate::bench::plan::{Contender, DoorWord, GeneratorWord, Measure, Scenario};
use crate::bench::record::{Record, Turn};

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

/// What is compared.
#[derive(Clone, Copy)]
struct Quantity {
    name: &'static str,
    /// Where it is not the record's.
    unit: Option<&'static str>,
    /// Which has it.
    measure: Measure,
    numbers: Numbers,
}

/// Where the numbers of a quantity come from.
#[derive(Clone, Copy)]
enum Numbers {
    /// One of each record.
    OfRecord(fn(&Record) -> f64),
    /// One of each turn.
    OfTurns(OfTurn),
}

/// Two numbers with the same are a pair: the repeat, when turns began, and which turn it was.
type Key = (u32, u64, u32);

pub(super) fn part(all: &[Measured]) -> Part {
    let tables = all.iter().filter_map(|measured| table(*measured));
    Part {
        title: "Beside each other".to_owned(),
        text: "Ratio: of the medians. Difference: contenders take turns, so the runs of one repeat are a pair that met the \
               same machine; the median of what the pairs differ by, in the unit of the row. \"≥\", \"≤\", \"?\": the \
               generator was the limit of the contender, of the other one, of both; in overload \"?\": of either, and so \
               much was sent as is told. \"By turns\": pairs are the turns of less than a second that contenders took one \
               after the other, of all repeats. Behind the median of their differences is its standard error, 1.2533·σ/√n, \
               where n is the number of pairs and σ 1.4826 times the median distance of a difference from that median: for \
               it one turn that was disturbed does not count. Time of server and generator is what the kernel counts for \
               their processes in nanoseconds; what it does outside of them (threads of its own, wake-ups of an idle core) is \
               in that of the cores alone, which it counts in steps of 10 ms."
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
        for other in contenders.iter().filter(|one| one.name != own.name) {
            let is_told = |quantity: &&Quantity| is_beside(measured, quantity, own, other);
            let row = |quantity: &Quantity| row(measured, quantity, own, other);
            rows.extend(quantities.iter().filter(is_told).filter_map(row));
        }
    }
    let records = quantities
        .iter()
        .filter(|one| one.name == one.measure.word())
        .flat_map(|one| measured.records(one.measure));
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
    for &measure in &scenario.measures {
        let quantity = |name, unit, numbers| Quantity {
            name,
            unit,
            measure,
            numbers,
        };
        let figure = Numbers::OfRecord(|record| record.figure);
        match measure {
            Measure::OverTime | Measure::Evenness | Measure::OnceThrough => continue,
            _ => quantities.push(quantity(measure.word(), None, figure)),
        }
        if measure == Measure::R99 {
            let peaks = Numbers::OfRecord(peak);
            quantities.push(quantity("peak", Some("answers/s"), peaks));
        }
        if measure == Measure::Cost {
            let of_turns = OF_TURNS.iter();
            quantities.extend(of_turns.map(|(name, number)| {
                quantity(name, Some("ns/answer"), Numbers::OfTurns(*number))
            }));
        }
    }
    quantities
}

/// A number that a turn tells, if it does.
type OfTurn = fn(&Turn) -> Option<f64>;

/// What a turn tells of an answer, in nanoseconds.
const OF_TURNS: [(&str, OfTurn); 3] = [
    ("by turns: server", |turn| {
        per_answer(turn, turn.server_nanoseconds? as f64)
    }),
    ("by turns: server and generator", |turn| {
        let server = turn.server_nanoseconds.unwrap_or(0);
        per_answer(turn, (server + turn.generator_nanoseconds) as f64)
    }),
    ("by turns: all cores", |turn| {
        per_answer(turn, turn.core_seconds * 1e9)
    }),
];

/// Nothing where nothing was answered right.
fn per_answer(turn: &Turn, whole: f64) -> Option<f64> {
    (turn.right > 0.0).then(|| whole / turn.right)
}

impl Quantity {
    /// The numbers of these records, each with what makes it one of a pair.
    fn of(&self, records: &[&Record]) -> Vec<(Key, f64)> {
        let of_record = |record: &&Record| match self.numbers {
            Numbers::OfRecord(number) => vec![((record.repeat, 0, 0), number(record))],
            Numbers::OfTurns(number) => {
                let turns = record.turns.iter().filter_map(|turn| {
                    let key = (record.repeat, turn.since, turn.number);
                    Some((key, number(turn)?))
                });
                turns.collect()
            }
        };
        records.iter().flat_map(of_record).collect()
    }

    /// A number of it as it is shown: nanoseconds whole.
    fn shown(&self, figure: f64) -> String {
        match self.numbers {
            Numbers::OfRecord(_) => number(figure),
            Numbers::OfTurns(_) => format!("{figure:.0}"),
        }
    }

    /// The median of what pairs differ by; of turns with its error, and how many they are. Nothing where there is no pair.
    fn shown_difference(&self, differences: &[f64], mark: &str) -> String {
        if differences.is_empty() {
            return String::new();
        }
        let difference = median(differences);
        let sign = if difference < 0.0 { "-" } else { "+" };
        let shown = format!("{sign}{}", self.shown(difference.abs()));
        let count = differences.len();
        match (self.numbers, error_of_median(differences)) {
            (Numbers::OfTurns(_), Some(error)) => {
                format!("{shown} ± {error:.0}{mark} ({count} turns)")
            }
            _ => format!("{shown}{mark}"),
        }
    }
}

/// Turns tell of every contender how far it is from its yardstick.
fn is_beside(measured: Measured, quantity: &Quantity, own: &Contender, other: &Contender) -> bool {
    let is_of_turns = matches!(quantity.numbers, Numbers::OfTurns(_));
    let yardstick = measured.yardstick_of(own, quantity.measure);
    is_pair(measured, own, other) || is_of_turns && yardstick == Some(other.name.as_str())
}

fn is_pair(measured: Measured, own: &Contender, other: &Contender) -> bool {
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
    quantity: &Quantity,
    own: &Contender,
    other: &Contender,
) -> Option<Vec<String>> {
    let Quantity { name, measure, .. } = *quantity;
    let records = [own, other].map(|one| measured.records_of(&one.name, measure));
    let [mut mine, mut theirs] = [&records[0], &records[1]].map(|records| quantity.of(records));
    if let Numbers::OfTurns(_) = quantity.numbers {
        only_pairs(&mut mine, &mut theirs);
    }
    let middle = |numbers: &[(Key, f64)]| {
        let numbers: Vec<f64> = numbers.iter().map(|(_, number)| *number).collect();
        median(&numbers)
    };
    let unit = quantity
        .unit
        .unwrap_or(&measured.records(measure).next()?.unit);
    let [figure, basis] = [&mine, &theirs].map(|numbers| middle(numbers));
    if mine.is_empty() || basis <= 0.0 {
        return None;
    }
    let pair = |(key, number): &(Key, f64)| {
        let (_, same) = theirs.iter().find(|(other, _)| other == key)?;
        Some(number - same)
    };
    let differences: Vec<f64> = mine.iter().filter_map(pair).collect();
    let sign = measured.sign(measure, &own.name, &other.name);
    let mark = mark(&records.concat());
    Some(vec![
        own.name.clone(),
        other.name.clone(),
        format!("{name}, {unit}{}", limits(measured, measure, [own, other])),
        quantity.shown(figure),
        quantity.shown(basis),
        format!("{sign}{:.3}{mark}", figure / basis),
        quantity.shown_difference(&differences, mark),
    ])
}

/// Leaves out turns that were taken without the other one: they say nothing beside those of another time.
fn only_pairs(mine: &mut Vec<(Key, f64)>, theirs: &mut Vec<(Key, f64)>) {
    let keys = |numbers: &[(Key, f64)]| -> BTreeSet<Key> {
        let keys = numbers.iter().map(|(key, _)| *key);
        keys.collect()
    };
    let (own, others) = (keys(mine), keys(theirs));
    mine.retain(|(key, _)| others.contains(key));
    theirs.retain(|(key, _)| own.contains(key));
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
            .filter(|(own, other)| own.name != other.name && is_pair(measured, own, other))
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
        let quantity = &quantities(&scenarios[0])[0];
        let shown = [-0.5, 2_000.0].map(|one| quantity.shown_difference(&[one], " *"));
        assert_eq!(shown, ["-0.500 *", "+2000 *"]);
    }

    /// The cost of a contender in turns: when they began, and what the server took for a thousand answers in each.
    fn by_turns(contender: &str, repeat: u32, since: u64, server: &[u64]) -> Record {
        let mut cost = record(contender, repeat, 8.0);
        (cost.measure, cost.unit) = (Measure::Cost, "core-us/answer".to_owned());
        cost.disturbed = None;
        let turn = |(number, nanoseconds): (usize, &u64)| Turn {
            since,
            number: number as u32 + 1,
            right: 1_000.0,
            core_seconds: 0.008,
            server_nanoseconds: (*nanoseconds > 0).then_some(*nanoseconds),
            generator_nanoseconds: 3_000_000,
        };
        cost.turns = server.iter().enumerate().map(turn).collect();
        cost
    }

    #[test]
    fn turns_are_pairs_over_all_repeats_and_one_that_was_disturbed_does_not_count() {
        let scenarios = Library::ours().scenarios().unwrap();
        let own = "millrace, AF_XDP";
        let (slow, fast) = (3_000_000, 2_000_000);
        let results = results(vec![
            // 100, 200 and 300 ns more, at two speeds of the machine; and once it was disturbed.
            by_turns(own, 1, 50, &[slow + 100_000, fast + 200_000]),
            by_turns("echo", 1, 50, &[slow, fast]),
            by_turns(own, 3, 90, &[fast + 300_000, fast + 900_000_000]),
            by_turns("echo", 3, 90, &[fast, fast]),
            // Taken at another time than the yardstick's.
            by_turns(own, 4, 95, &[fast, fast]),
            by_turns("echo", 4, 99, &[slow, slow]),
            by_turns("knotd, AF_XDP", 1, 50, &[slow + 700_000, fast + 700_000]),
            by_turns("reflector (XDP_TX)", 1, 50, &[0, 0]),
        ]);
        let measured = Measured {
            scenario: &scenarios[0],
            results: &results,
        };
        let rows = table(measured).unwrap().rows;
        let told = |name: &str, other: &str, what: &str| -> Vec<String> {
            let is_it = |row: &&Vec<String>| [&row[0], &row[1]] == [name, other] && row[2] == what;
            rows.iter().find(is_it).cloned().unwrap_or_default()
        };
        let server = "by turns: server, ns/answer";
        // Of 100, 200, 300 and 899,800 or so: 250, and distances of 50, 50, 150 and more: σ is 148.26.
        let row = told(own, "echo", server);
        assert_eq!(row[3..], ["2700", "2000", "1.350", "+250 ± 93 (4 turns)"]);
        let both = told(own, "echo", "by turns: server and generator, ns/answer");
        assert_eq!(both[3..5], ["5700", "5000"]);
        assert_eq!(both[6], "+250 ± 93 (4 turns)");
        let cores = told(own, "echo", "by turns: all cores, ns/answer");
        assert_eq!(cores[3..], ["8000", "8000", "1.000", "+0 ± 0 (4 turns)"]);
        // Everybody is beside the yardstick, and a program in the kernel has no server.
        let knotd = told("knotd, AF_XDP", "echo", server);
        assert_eq!(knotd[6], "+700 ± 0 (2 turns)");
        assert!(!told(own, "knotd, AF_XDP", server).is_empty());
        assert!(told("echo", "knotd, AF_XDP", server).is_empty());
        assert!(told("reflector (XDP_TX)", "echo", server).is_empty());
        let reflector = told(
            "reflector (XDP_TX)",
            "echo",
            "by turns: server and generator, ns/answer",
        );
        assert_eq!(reflector[3], "3000");
        assert!(told("knotd, AF_XDP", "echo", "cost, core-us/answer").is_empty());
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
