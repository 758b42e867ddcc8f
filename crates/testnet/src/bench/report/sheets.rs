//! Groups of bars in as many charts as it takes for each to fit a sheet of paper; each has a title of its own, and the
//! conditions of the runs that it shows, not of those on other sheets.

use super::bars::{Group, ROOM, chart, height_of};
use super::svg::Style;
use super::{Chart, LIMIT, SOCKETS, XDP, conditions_of, numbered, title};
use crate::bench::record::{Machine, Record};

/// A group with what is to be said of it.
#[derive(Clone, Debug)]
pub(super) struct Entry<'r> {
    pub group: Group,
    /// What it shows, for the title of its chart.
    pub what: String,
    /// What its bars come from.
    pub records: Vec<&'r Record>,
}

/// What all sheets of a theme share.
pub(super) struct Theme<'t> {
    /// Of their files: `limits`, `limits-2`.
    pub name: &'t str,
    /// What their titles begin with.
    pub title: &'t str,
    /// What is written at the axis.
    pub unit: &'t str,
    /// Where a line goes down.
    pub line: Option<f64>,
}

impl Theme<'_> {
    /// The charts of all groups.
    pub(super) fn charts(&self, machine: &Machine, entries: Vec<Entry>) -> Vec<Chart> {
        let sheets = sheets(entries, |entry| height_of(&entry.group));
        let sheets = sheets.into_iter().enumerate();
        sheets
            .map(|(number, entries)| self.sheet(machine, number, entries))
            .collect()
    }

    fn sheet(&self, machine: &Machine, number: usize, entries: Vec<Entry>) -> Chart {
        let whats: Vec<&str> = entries.iter().map(|entry| entry.what.as_str()).collect();
        let all = entries.iter().flat_map(|entry| &entry.records);
        let records: Vec<&Record> = all.copied().collect();
        let title = title(&format!("{}: {}", self.title, whats.join("; ")), &records);
        let groups: Vec<Group> = entries.into_iter().map(|entry| entry.group).collect();
        let bars = || groups.iter().flat_map(|group| &group.bars);
        let is_drawn = |kind: &(Style, &str)| bars().any(|bar| bar.style == kind.0);
        let kinds: Vec<(Style, &str)> =
            [XDP, SOCKETS, LIMIT].into_iter().filter(is_drawn).collect();
        Chart {
            name: numbered(self.name, number),
            svg: chart(&groups, self.unit, &kinds, self.line, &title),
            title,
            conditions: conditions_of(machine, &records),
        }
    }
}

/// Things of some height in as many rows as it takes for none to be too high.
fn sheets<T>(all: Vec<T>, height: impl Fn(&T) -> f64) -> Vec<Vec<T>> {
    let mut sheets: Vec<Vec<T>> = Vec::new();
    let mut used = f64::INFINITY;
    for one in all {
        let height = height(&one);
        if used + height > ROOM {
            sheets.push(Vec::new());
            used = 0.0;
        }
        used += height;
        sheets.last_mut().expect("just pushed one").push(one);
    }
    sheets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::bars::Bar;
    use crate::bench::report::tests::record;

    fn group(count: usize) -> Group {
        let bar = Bar {
            name: String::new(),
            style: Style(0),
            value: 1.0,
            all: Vec::new(),
            text: String::new(),
        };
        Group {
            title: count.to_string(),
            bars: vec![bar; count],
        }
    }

    #[test]
    fn no_chart_of_bars_is_higher_than_a_sheet() {
        let sheets = sheets([10, 4, 5, 6, 30, 6].map(group).to_vec(), height_of);
        let counts: Vec<Vec<usize>> = sheets
            .iter()
            .map(|sheet| sheet.iter().map(|group| group.bars.len()).collect())
            .collect();
        // One that is too high by itself is alone.
        assert_eq!(counts, [vec![10, 4], vec![5, 6], vec![30], vec![6]]);
    }

    #[test]
    fn a_sheet_says_what_it_shows_and_tells_of_no_other_sheets_runs() {
        let records = [
            record("a", 1, 5.0),
            record("b", 1, 5.0),
            record("c", 1, 5.0),
        ];
        let entry = |number: usize| Entry {
            group: group(12),
            what: records[number].contender.clone(),
            records: vec![&records[number]],
        };
        let theme = Theme {
            name: "limits",
            title: "R99",
            unit: "queries/s",
            line: None,
        };
        let charts = theme.charts(&Machine::here("Here."), [0, 1, 2].map(entry).to_vec());
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        let expected =
            ["R99: a", "R99: b", "R99: c"].map(|what| format!("{what} (AF_XDP; 1 queue)"));
        assert_eq!(titles, expected);
        assert_eq!(charts[2].name, "limits-3");
        // The legend has the kinds of bars that are there.
        assert!(charts[0].svg.contains(">AF_XDP<") && !charts[0].svg.contains(">yardstick<"));
        assert!(
            charts[0]
                .conditions
                .contains(", sent 1000, answered right 990, ")
        );
    }
}
