//! Charts of curves: one or more panels beside and below each other, one legend for all of them.

use super::axis::{Axis, Scale};
use super::svg::{Anchor, LINE, Style, Svg, text_width};

/// Pixels of a whole chart: what a page of 1,200 has beside its margins.
pub(super) const WIDTH: f64 = 1120.0;

/// Pixels of a panel, which lets two charts of two rows stand on a sheet of paper, and round its plot.
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 50.0;
/// Pixels of a line in the legend. The curves of CPU time and of queries stand in one row.
const SAMPLE: f64 = 30.0;

/// A curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Curve {
    /// The same in all panels: its style goes by it.
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Points that the text speaks of.
    pub rings: Vec<(f64, f64)>,
}

/// One plot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Panel {
    pub title: String,
    /// What is written at the axes, and how they count.
    pub across: (String, Scale),
    pub up: (String, Scale),
    pub curves: Vec<Curve>,
}

/// Draws panels, `columns` in a row. `what` is for those who cannot see it.
pub(super) fn chart(panels: &[Panel], columns: usize, what: &str) -> String {
    let names = names(panels);
    let rows = panels.len().div_ceil(columns);
    let legend = legend_rows(&names);
    let legend_height = legend.len() as f64 * LINE + 10.0;
    let mut svg = Svg::new(WIDTH, legend_height + rows as f64 * HEIGHT);
    draw_legend(&mut svg, &names, &legend);
    let width = WIDTH / columns as f64;
    for (number, panel) in panels.iter().enumerate() {
        let x = (number % columns) as f64 * width;
        let y = legend_height + (number / columns) as f64 * HEIGHT;
        let axes = Axes::of(panel, panels);
        draw_panel(&mut svg, panel, &names, &axes, (x, y), width);
    }
    svg.finish(what)
}

/// Names of all curves in the order in which they first come.
fn names(panels: &[Panel]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for curve in panels.iter().flat_map(|panel| &panel.curves) {
        if !names.contains(&curve.name) {
            names.push(curve.name.clone());
        }
    }
    names
}

/// Which names stand in each row of the legend.
fn legend_rows(names: &[String]) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = Vec::new();
    let mut used = f64::INFINITY;
    for (number, name) in names.iter().enumerate() {
        let width = legend_width(name);
        if used + width > WIDTH - LEFT {
            rows.push(Vec::new());
            used = 0.0;
        }
        used += width;
        rows.last_mut().expect("just pushed one").push(number);
    }
    rows
}

/// A sample of the line, the name, a gap.
fn legend_width(name: &str) -> f64 {
    SAMPLE + 10.0 + text_width(name) + 14.0
}

fn draw_legend(svg: &mut Svg, names: &[String], rows: &[Vec<usize>]) {
    for (row, entries) in rows.iter().enumerate() {
        let y = 10.0 + row as f64 * LINE;
        let mut x = LEFT;
        for number in entries {
            svg.curve(&[(x, y), (x + SAMPLE, y)], Style(*number));
            svg.text((x + SAMPLE + 10.0, y + 4.5), Anchor::Start, &names[*number]);
            x += legend_width(&names[*number]);
        }
    }
}

/// The axes of a panel. From 0, panels of one unit go equally far and equally high: they are there to be compared.
#[derive(Debug, PartialEq)]
struct Axes {
    across: Axis,
    up: Axis,
}

impl Axes {
    fn of(panel: &Panel, panels: &[Panel]) -> Axes {
        let across = alike(panel, panels, |one| &one.across);
        let up = alike(panel, panels, |one| &one.up);
        Axes {
            across: Axis::over(panel.across.1, points(&across).map(|point| point.0)),
            up: Axis::over(panel.up.1, points(&up).map(|point| point.1)),
        }
    }
}

/// The panels whose axis is the same as this one's.
fn alike<'a>(
    panel: &'a Panel,
    panels: &'a [Panel],
    axis: impl Fn(&Panel) -> &(String, Scale),
) -> Vec<&'a Panel> {
    let together = axis(panel).1 == Scale::Linear;
    let panels = if together {
        panels
    } else {
        std::slice::from_ref(panel)
    };
    let same = |one: &&Panel| axis(one) == axis(panel);
    panels.iter().filter(same).collect()
}

fn points<'a>(panels: &'a [&Panel]) -> impl Iterator<Item = &'a (f64, f64)> {
    let curves = panels.iter().flat_map(|panel| &panel.curves);
    curves.flat_map(|curve| &curve.points)
}

fn draw_panel(
    svg: &mut Svg,
    panel: &Panel,
    names: &[String],
    Axes { across, up }: &Axes,
    (x, y): (f64, f64),
    width: f64,
) {
    let (left, right) = (x + LEFT, x + width - RIGHT);
    let (top, bottom) = (y + TOP, y + HEIGHT - BOTTOM);
    let place = |(a, b): (f64, f64)| {
        (
            left + across.place(a) * (right - left),
            bottom - up.place(b) * (bottom - top),
        )
    };
    svg.heading((left, y + 20.0), &panel.title);
    for (tick, text) in &up.ticks {
        let (_, at) = place((0.0, *tick));
        svg.rule((left, at), (right, at), false);
        svg.text((left - 8.0, at + 4.5), Anchor::End, text);
    }
    let mut free = f64::NEG_INFINITY;
    for (tick, text) in &across.ticks {
        let (at, _) = place((*tick, 0.0));
        svg.rule((at, top), (at, bottom), false);
        // Numbers that would touch the one before are left out.
        if at - text_width(text) / 2.0 > free {
            svg.text((at, bottom + 18.0), Anchor::Middle, text);
            free = at + text_width(text) / 2.0 + 6.0;
        }
    }
    svg.rule((left, top), (left, bottom), true);
    svg.rule((left, bottom), (right, bottom), true);
    let middle = f64::midpoint(left, right);
    svg.text((middle, bottom + 38.0), Anchor::Middle, &panel.across.0);
    svg.upright((x + 16.0, f64::midpoint(top, bottom)), &panel.up.0);
    for curve in &panel.curves {
        let style = names.iter().position(|name| *name == curve.name);
        let points: Vec<(f64, f64)> = curve.points.iter().copied().map(place).collect();
        svg.curve(&points, Style(style.unwrap_or(0)));
        for ring in &curve.rings {
            svg.ring(place(*ring));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(names: &[&str]) -> Panel {
        Panel {
            title: "t".to_owned(),
            across: ("x".to_owned(), Scale::Linear),
            up: ("y".to_owned(), Scale::Logarithmic),
            curves: names
                .iter()
                .map(|name| Curve {
                    name: (*name).to_owned(),
                    points: vec![(0.0, 1.0), (5.0, 100.0)],
                    rings: vec![(5.0, 100.0)],
                })
                .collect(),
        }
    }

    #[test]
    fn a_curve_has_the_same_style_in_every_panel() {
        let panels = [panel(&["a", "b"]), panel(&["b"])];
        assert_eq!(names(&panels), ["a", "b"]);
        let text = chart(&panels, 2, "what");
        // Of `b`: in the legend, and in both panels.
        assert_eq!(text.matches("stroke-dasharray=\"8 4\"").count(), 3);
    }

    #[test]
    fn panels_of_one_unit_go_equally_high() {
        let of = |unit: &str, scale: Scale, highest: f64| {
            let mut panel = panel(&["a"]);
            panel.up = (unit.to_owned(), scale);
            panel.curves[0].points = vec![(0.0, 1.0), (5.0, highest)];
            panel
        };
        let panels = [
            of("cores", Scale::Linear, 1.0),
            of("cores", Scale::Linear, 2.0),
            of("a second", Scale::Linear, 9_000.0),
            of("microseconds", Scale::Logarithmic, 10.0),
            of("microseconds", Scale::Logarithmic, 90.0),
        ];
        let axes = panels.each_ref().map(|panel| Axes::of(panel, &panels).up);
        assert_eq!(axes[0], axes[1]);
        assert_eq!(axes[0].place(2.0), 1.0);
        assert_ne!(axes[3], axes[4]);
    }

    #[test]
    fn panels_of_one_time_go_equally_far() {
        let until = |unit: &str, last: f64| {
            let mut panel = panel(&["a"]);
            panel.across.0 = unit.to_owned();
            panel.curves[0].points = vec![(0.0, 1.0), (last, 2.0)];
            panel
        };
        let panels = [
            until("seconds", 9.9),
            until("seconds", 10.1),
            until("run", 3.0),
        ];
        let axes = panels
            .each_ref()
            .map(|panel| Axes::of(panel, &panels).across);
        assert_eq!(axes[0], axes[1]);
        assert_ne!(axes[0], axes[2]);
    }

    #[test]
    fn a_long_legend_has_more_rows() {
        let long: Vec<String> = (0..6).map(|_| "x".repeat(40)).collect();
        let of_time =
            "offered;sent;answered right;user;system;softirq;server's process;kernel's threads";
        let of_time: Vec<String> = of_time.split(';').map(str::to_owned).collect();
        assert_eq!(legend_rows(&of_time).len(), 1);
        let rows = legend_rows(&long);
        assert!(rows.len() > 1);
        assert_eq!(rows.concat(), [0, 1, 2, 3, 4, 5]);
    }
}
