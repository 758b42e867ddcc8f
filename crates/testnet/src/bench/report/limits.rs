//! Chart (c): R99 by server and path.

use super::bars::{Bar, Group};
use super::sheets::{Entry, Theme};
use super::{Measured, Part, figures, is_generators_limit, mark, median, style_of};
use crate::bench::plan::Measure;

pub(super) fn part(all: &[Measured]) -> Part {
    let Some(first) = all.first() else {
        return Part::default();
    };
    let entries = all.iter().filter_map(|measured| entry(*measured));
    let theme = Theme {
        name: "limits",
        title: "R99 by server and path",
        unit: "queries/s",
        line: None,
    };
    Part {
        title: "What servers keep up with".to_owned(),
        text: "R99: the highest offered rate of which 99 % was answered right. The bar is the median, each mark one search. \
               \"≥\": the generator, not the server, was the limit in most searches."
            .to_owned(),
        charts: theme.charts(first.machine(), entries.collect()),
        ..Part::default()
    }
}

fn entry(measured: Measured) -> Option<Entry> {
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
    (!bars.is_empty()).then(|| Entry {
        group: Group {
            title: measured.scenario.title.clone(),
            bars,
        },
        what: measured.scenario.title.clone(),
        records: measured.records(Measure::R99).collect(),
    })
}
