//! Charts of bars that lie: a name, a bar with a mark for each measurement, its number.

use super::axis::{Axis, Scale, short};
use super::curves::WIDTH;
use super::svg::{Anchor, LINE, Style, Svg, text_width};

/// Pixels of a bar, and from bar to bar.
const BAR: f64 = 16.0;
const STEP: f64 = 24.0;
/// Pixels for the number behind the longest bar, where no text there is longer.
const NUMBER: f64 = 190.0;
/// Pixels of the legend above, and of the axis below.
const LEGEND: f64 = LINE + 8.0;
const AXIS: f64 = 52.0;

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bar {
    pub name: String,
    pub style: Style,
    /// How long it is.
    pub value: f64,
    /// All measurements.
    pub all: Vec<f64>,
    /// What stands behind it.
    pub text: String,
}

/// Bars under a headline.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub title: String,
    pub bars: Vec<Bar>,
}

/// Pixels that all groups of a chart may be high: with legend and axis it fits a sheet of paper in letters that can be read.
pub(super) const ROOM: f64 = 600.0 - LEGEND - AXIS;

/// Pixels of a headline and the bars under it.
pub(super) fn height_of(group: &Group) -> f64 {
    LINE + 12.0 + group.bars.len() as f64 * STEP
}

/// Draws groups over one axis. `unit` is written at it; `kinds` says what styles mean; at `line` a line goes down all of it.
pub(super) fn chart(
    groups: &[Group],
    unit: &str,
    kinds: &[(Style, &str)],
    line: Option<f64>,
    what: &str,
) -> String {
    let bars = || groups.iter().flat_map(|group| &group.bars);
    let left = bars().map(|bar| text_width(&bar.name)).fold(60.0, f64::max) + 20.0;
    let longest = bars().map(|bar| text_width(&bar.text) + 16.0);
    let right = WIDTH - longest.fold(NUMBER, f64::max);
    let legend = if kinds.is_empty() { 0.0 } else { LEGEND };
    let height = legend + groups.iter().map(height_of).sum::<f64>() + AXIS;
    let values = bars().flat_map(|bar| bar.all.iter().copied().chain([bar.value]));
    let axis = Axis::over(Scale::Linear, values.chain(line));
    let place = |value: f64| left + axis.place(value) * (right - left);
    let mut svg = Svg::new(WIDTH, height);
    draw_kinds(&mut svg, kinds, left);
    let (top, bottom) = (legend, height - 46.0);
    for (tick, text) in &axis.ticks {
        svg.text((place(*tick), bottom + 18.0), Anchor::Middle, text);
    }
    svg.text(
        (f64::midpoint(left, right), bottom + 38.0),
        Anchor::Middle,
        unit,
    );
    let mut y = top;
    for group in groups {
        svg.heading((4.0, y + LINE + 2.0), &group.title);
        y += LINE + 12.0;
        // Lines go along the bars only: headlines are long.
        let (above, below) = (y - 4.0, y + group.bars.len() as f64 * STEP - 4.0);
        for (tick, _) in &axis.ticks {
            svg.rule((place(*tick), above), (place(*tick), below), *tick == 0.0);
        }
        if let Some(line) = line {
            svg.rule((place(line), above), (place(line), below), true);
        }
        for bar in &group.bars {
            draw_bar(&mut svg, bar, (left, y), place);
            y += STEP;
        }
    }
    svg.rule((left, bottom), (right, bottom), true);
    svg.finish(what)
}

fn draw_kinds(svg: &mut Svg, kinds: &[(Style, &str)], left: f64) {
    let mut x = left;
    for (style, name) in kinds {
        svg.bar((x, 4.0), 30.0, BAR - 2.0, *style);
        svg.text((x + 38.0, 16.0), Anchor::Start, name);
        x += 38.0 + text_width(name) + 24.0;
    }
}

fn draw_bar(svg: &mut Svg, bar: &Bar, (left, y): (f64, f64), place: impl Fn(f64) -> f64) {
    svg.text((left - 8.0, y + 12.5), Anchor::End, &bar.name);
    let end = place(bar.value);
    svg.bar((left, y), (end - left).max(1.0), BAR, bar.style);
    let mut furthest = end;
    for value in &bar.all {
        svg.tick((place(*value), y - 2.0), BAR + 4.0);
        furthest = furthest.max(place(*value));
    }
    let text = if bar.text.is_empty() {
        short(bar.value)
    } else {
        bar.text.clone()
    };
    svg.number((furthest + 8.0, y + 12.5), &text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_name_its_number_and_a_mark_for_each_measurement() {
        let group = Group {
            title: "t".to_owned(),
            bars: vec![Bar {
                name: "server".to_owned(),
                style: Style(1),
                value: 1_500.0,
                all: vec![1_400.0, 1_500.0, 1_600.0],
                text: String::new(),
            }],
        };
        let text = chart(
            &[group],
            "queries/s",
            &[(Style(1), "sockets")],
            None,
            "what",
        );
        assert!(
            text.contains(">server<") && text.contains(">1.5 k<"),
            "{text}"
        );
        assert_eq!(text.matches("stroke=\"#000\"").count(), 3);
    }
    #[test]
    fn a_long_text_behind_a_bar_stays_within_the_chart() {
        let text = "x".repeat(60);
        let group = Group {
            title: "t".to_owned(),
            bars: vec![Bar {
                name: "server".to_owned(),
                style: Style(0),
                value: 1_000.0,
                all: Vec::new(),
                text: text.clone(),
            }],
        };
        let drawn = chart(&[group], "queries/s", &[], None, "what");
        let (before, _) = drawn.split_once(&format!(">{text}<")).unwrap();
        let (_, at) = before.rsplit_once("<text x=\"").unwrap();
        let x: f64 = at.split('"').next().unwrap().parse().unwrap();
        assert!(x + text_width(&text) <= WIDTH, "{x}");
    }
}
