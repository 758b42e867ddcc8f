//! Chart (f): how near contenders come to the yardsticks.

use super::bars::{Bar, Group, chart, sheets};
use super::{
    Chart, LIMIT, Measured, Part, SOCKETS, XDP, conditions_of, figures, is_generators_limit, mark,
    median, numbered, sign_of_ratio, style_of,
};
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
    let pairs = all
        .iter()
        .flat_map(|measured| RATES.map(|measure| (*measured, measure)));
    let (groups, records): (Vec<Group>, Vec<Vec<&Record>>) = pairs
        .filter_map(|(measured, measure)| {
            Some((
                group(measured, measure)?,
                measured.records(measure).collect(),
            ))
        })
        .unzip();
    let Some(first) = all.first().filter(|_| !groups.is_empty()) else {
        return Part::default();
    };
    let title = "Ratios to the yardsticks".to_owned();
    let unit = "% of the yardstick";
    let conditions = conditions_of(first.machine(), &records.concat());
    let sheet = |(number, groups): (usize, Vec<Group>)| Chart {
        name: numbered("ratios", number),
        title: title.clone(),
        svg: chart(&groups, unit, &[XDP, SOCKETS, LIMIT], Some(100.0), &title),
        conditions: conditions.clone(),
    };
    Part {
        title: title.clone(),
        text: "Medians as parts of the yardstick's median; the yardstick is named in each headline, or behind a name. \
               \"≤\": the generator, not the yardstick, was its limit, so the part is less in truth; \"≥\": that of the \
               server, so it is more; \"?\": of both."
            .to_owned(),
        charts: sheets(groups).into_iter().enumerate().map(sheet).collect(),
        ..Part::default()
    }
}

fn group(measured: Measured, measure: Measure) -> Option<Group> {
    let yardstick = measured.scenario.yardstick.as_deref()?;
    let is_basis = |name: &str| {
        let mut contenders = measured.scenario.contenders.iter();
        contenders.any(|one| measured.yardstick_of(one) == Some(name))
    };
    let others = measured.contenders(measure).into_iter();
    let bars: Vec<Bar> = others
        .filter(|(contender, _)| !is_basis(&contender.name))
        .filter_map(|(contender, records)| bar(measured, measure, contender, &records))
        .collect();
    (!bars.is_empty()).then(|| Group {
        title: format!(
            "{}, {} (yardstick: {yardstick})",
            measured.scenario.title,
            measure.word()
        ),
        bars,
    })
}

/// Nothing where what it is compared with had nothing.
fn bar(
    measured: Measured,
    measure: Measure,
    contender: &Contender,
    records: &[&Record],
) -> Option<Bar> {
    let own = contender.beside.as_deref();
    let yardstick = own.or(measured.scenario.yardstick.as_deref())?;
    let of_yardstick = measured.records_of(yardstick, measure);
    let basis = median(&figures(&of_yardstick));
    if basis <= 0.0 {
        return None;
    }
    let all: Vec<f64> = figures(records)
        .iter()
        .map(|figure| figure / basis * 100.0)
        .collect();
    let sign = sign_of_ratio(
        is_generators_limit(records),
        is_generators_limit(&of_yardstick),
    );
    let mark = mark(&[records, of_yardstick.as_slice()].concat());
    let of = own.map_or_else(String::new, |own| format!(" (of {own})"));
    Some(Bar {
        name: format!("{}{of}", contender.name),
        style: style_of(contender),
        value: median(&all),
        text: format!("{sign}{:.1} %{mark}", median(&all)),
        all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Library;
    use crate::bench::report::tests::{record, results};

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
}
