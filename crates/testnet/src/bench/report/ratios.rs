//! Chart (f): how near contenders come to the yardsticks.

use super::bars::{Bar, Group, chart, sheets};
use super::{
    Chart, LIMIT, Measured, Part, SOCKETS, XDP, conditions_of, figures, median, numbered, style_of,
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
        text:
            "Medians as parts of the yardstick's median; the yardstick is named in each headline."
                .to_owned(),
        charts: sheets(groups).into_iter().enumerate().map(sheet).collect(),
        ..Part::default()
    }
}

fn group(measured: Measured, measure: Measure) -> Option<Group> {
    let yardstick = measured.scenario.yardstick.as_deref()?;
    let basis = median(&figures(&measured.records_of(yardstick, measure)));
    let others = measured.contenders(measure).into_iter();
    let bars: Vec<Bar> = others
        .filter(|(contender, _)| contender.name != yardstick && basis > 0.0)
        .map(|(contender, records)| {
            let all: Vec<f64> = figures(&records)
                .iter()
                .map(|figure| figure / basis * 100.0)
                .collect();
            Bar {
                name: contender.name.clone(),
                style: style_of(contender),
                value: median(&all),
                text: format!("{:.1} %", median(&all)),
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
