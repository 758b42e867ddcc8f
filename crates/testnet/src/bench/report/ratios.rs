//! Chart (f): how near contenders come to the yardsticks.

use super::bars::{Bar, Group, chart, sheets};
use super::{
    Chart, LIMIT, Measured, Part, SOCKETS, XDP, conditions_of, figures, is_generators_limit, mark,
    median, numbered, sign_of_ratio, style_of,
};
use crate::bench::plan::Measure;
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
        text: "Medians as parts of the yardstick's median; the yardstick is named in each headline. \"≤\": the generator, not \
               the yardstick, was its limit, so the part is less in truth; \"≥\": that of the server, so it is more; \"?\": \
               of both."
            .to_owned(),
        charts: sheets(groups).into_iter().enumerate().map(sheet).collect(),
        ..Part::default()
    }
}

fn group(measured: Measured, measure: Measure) -> Option<Group> {
    let yardstick = measured.scenario.yardstick.as_deref()?;
    let of_yardstick = measured.records_of(yardstick, measure);
    let basis = median(&figures(&of_yardstick));
    let (is_limited, is_marked) = (is_generators_limit(&of_yardstick), mark(&of_yardstick));
    let others = measured.contenders(measure).into_iter();
    let bars: Vec<Bar> = others
        .filter(|(contender, _)| contender.name != yardstick && basis > 0.0)
        .map(|(contender, records)| {
            let all: Vec<f64> = figures(&records)
                .iter()
                .map(|figure| figure / basis * 100.0)
                .collect();
            let sign = sign_of_ratio(is_generators_limit(&records), is_limited);
            let mark = if is_marked.is_empty() {
                mark(&records)
            } else {
                is_marked
            };
            Bar {
                name: contender.name.clone(),
                style: style_of(contender),
                value: median(&all),
                text: format!("{sign}{:.1} %{mark}", median(&all)),
                all,
            }
        })
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
}
