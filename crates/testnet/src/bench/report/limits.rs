//! Chart (c): R99 by server and path.

use super::bars::{Bar, Group, chart, sheets};
use super::{
    Chart, LIMIT, Measured, Part, SOCKETS, XDP, conditions_of, figures, is_generators_limit, mark,
    median, numbered, style_of,
};
use crate::bench::plan::Measure;
use crate::bench::record::Record;

pub(super) fn part(all: &[Measured]) -> Part {
    let groups: Vec<Group> = all.iter().filter_map(|measured| group(*measured)).collect();
    let Some(first) = all.first().filter(|_| !groups.is_empty()) else {
        return Part::default();
    };
    let title = "R99 by server and path".to_owned();
    let records: Vec<&Record> = all
        .iter()
        .flat_map(|measured| measured.records(Measure::R99))
        .collect();
    let conditions = conditions_of(first.machine(), &records);
    let sheet = |(number, groups): (usize, Vec<Group>)| Chart {
        name: numbered("limits", number),
        title: title.clone(),
        svg: chart(&groups, "queries/s", &[XDP, SOCKETS, LIMIT], None, &title),
        conditions: conditions.clone(),
    };
    Part {
        title: "What servers keep up with".to_owned(),
        text: "R99: the highest offered rate of which 99 % was answered right. The bar is the median, each mark one search. \
               \"≥\": the generator, not the server, was the limit in most searches."
            .to_owned(),
        charts: sheets(groups).into_iter().enumerate().map(sheet).collect(),
        ..Part::default()
    }
}

fn group(measured: Measured) -> Option<Group> {
    let contenders = measured.contenders(Measure::R99);
    let bars = contenders.iter().map(|(contender, records)| {
        let all = figures(records);
        let sign = if is_generators_limit(records) {
            "≥ "
        } else {
            ""
        };
        Bar {
            name: contender.name.clone(),
            style: style_of(contender),
            value: median(&all),
            text: format!("{sign}{:.0}{}", median(&all), mark(records)),
            all,
        }
    });
    let bars: Vec<Bar> = bars.collect();
    (!bars.is_empty()).then(|| Group {
        title: measured.scenario.title.clone(),
        bars,
    })
}
