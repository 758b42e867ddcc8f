//! Drawing: a few shapes of SVG 1.1, in styles that differ by dash, marker and hatching, not by colour alone.
//!
//! Own code, because the crates that draw SVG (plotters, poloto) know neither dashes nor markers nor hatching by series, and
//! without these a chart cannot be read without colour. Positions are in pixels of a chart at its natural size.

use std::fmt::{Display, Write};

/// Pixels of the letters.
pub(super) const LETTERS: f64 = 13.0;
/// How much wider bold ones are.
const BOLD: f64 = 1.1;
/// Pixels from line to line.
pub(super) const LINE: f64 = 18.0;

/// How a curve or bar looks: one of so many styles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style(pub usize);

/// Colours that those who see fewer colours tell apart (Okabe and Ito), each with a dash pattern; dark enough for paper.
const STYLES: [(&str, &str); 8] = [
    ("#0060a0", ""),
    ("#c04a00", "8 4"),
    ("#007a58", "2 3"),
    ("#a0407f", "10 3 2 3"),
    ("#202020", "5 2"),
    ("#8a6400", "14 4"),
    ("#2f7fb5", "1 5"),
    ("#6a3fa0", "12 3 2 3 2 3"),
];

impl Style {
    fn colour(self) -> &'static str {
        STYLES[self.0 % STYLES.len()].0
    }

    fn dash(self) -> &'static str {
        STYLES[self.0 % STYLES.len()].1
    }
}

/// Where a text's given position is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn word(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// A drawing.
#[derive(Clone, Debug)]
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    /// An empty one.
    pub(super) fn new(width: f64, height: f64) -> Svg {
        Svg {
            width,
            height,
            body: String::new(),
        }
    }

    fn draw(&mut self, shape: impl Display) {
        let _ = writeln!(self.body, "{shape}");
    }

    /// Ordinary text; `y` is its base line.
    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.draw(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{}">{}</text>"#,
            anchor.word(),
            escaped(text)
        ));
    }

    /// Text on white, wide enough for its spaces: lines behind it do not cross it.
    pub(super) fn number(&mut self, (x, y): (f64, f64), text: &str) {
        self.draw(format_args!(
            r##"<text x="{x:.1}" y="{y:.1}" stroke="#fff" stroke-width="9" stroke-linejoin="round" paint-order="stroke">{}</text>"##,
            escaped(text)
        ));
    }

    /// A headline. One that might be longer than the drawing is wide is set closer, so that its end is not cut off.
    pub(super) fn heading(&mut self, (x, y): (f64, f64), text: &str) {
        let room = self.width - x - 4.0;
        let length = match text_width(text) * BOLD > room {
            true => format!(r#" textLength="{room:.1}" lengthAdjust="spacingAndGlyphs""#),
            false => String::new(),
        };
        self.draw(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-weight="bold"{length}>{}</text>"#,
            escaped(text)
        ));
    }

    /// Text that goes upwards; the position is its middle.
    pub(super) fn upright(&mut self, (x, y): (f64, f64), text: &str) {
        self.draw(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle" transform="rotate(-90 {x:.1} {y:.1})">{}</text>"#,
            escaped(text)
        ));
    }

    /// A thin line of a grid, or the frame of a plot where it is `strong`.
    pub(super) fn rule(&mut self, from: (f64, f64), to: (f64, f64), strong: bool) {
        let colour = if strong { "#444" } else { "#ddd" };
        self.draw(format_args!(
            r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="{colour}"/>"#,
            from.0, from.1, to.0, to.1
        ));
    }

    /// A curve through points, with markers on at most a dozen of them.
    pub(super) fn curve(&mut self, points: &[(f64, f64)], style: Style) {
        let path: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        self.draw(format_args!(
            r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="1.8" stroke-dasharray="{}"/>"#,
            path.join(" "),
            style.colour(),
            style.dash()
        ));
        let step = points.len().div_ceil(12).max(1);
        // Curves that lie on each other show their markers beside each other, where not every point has one.
        let first = style.0 * step / 3 % step;
        for point in points.iter().skip(first).step_by(step) {
            self.marker(*point, style);
        }
    }

    /// A style's marker.
    pub(super) fn marker(&mut self, (x, y): (f64, f64), style: Style) {
        let shape = match style.0 % STYLES.len() {
            0 => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="4""#),
            1 => polygon(x, y, &[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)]),
            2 => polygon(x, y, &[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)]),
            3 => polygon(x, y, &[(0.0, -5.5), (5.5, 0.0), (0.0, 5.5), (-5.5, 0.0)]),
            4 => return self.cross((x, y), style, &[(-4.0, -4.0), (-4.0, 4.0)]),
            5 => polygon(x, y, &[(0.0, 5.0), (5.0, -4.0), (-5.0, -4.0)]),
            6 => return self.cross((x, y), style, &[(-5.0, 0.0), (0.0, -5.0)]),
            _ => format!(r#"<ellipse cx="{x:.1}" cy="{y:.1}" rx="6" ry="3""#),
        };
        // Every other time round the markers are hollow.
        let fill = if (style.0 / STYLES.len()).is_multiple_of(2) {
            style.colour()
        } else {
            "#fff"
        };
        self.draw(format_args!(
            r#"{shape} fill="{fill}" stroke="{}"/>"#,
            style.colour()
        ));
    }

    /// Two lines through a point, each by one of its ends.
    fn cross(&mut self, (x, y): (f64, f64), style: Style, ends: &[(f64, f64)]) {
        for (dx, dy) in ends {
            self.draw(format_args!(
                r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="{}" stroke-width="2"/>"#,
                x + dx,
                y + dy,
                x - dx,
                y - dy,
                style.colour()
            ));
        }
    }

    /// A ring round a point that the text speaks of.
    pub(super) fn ring(&mut self, (x, y): (f64, f64)) {
        self.draw(format_args!(
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="9" fill="none" stroke="#444"/>"##
        ));
    }

    /// A bar: full, hatched or dotted. Drawn line by line: patterns come out of a printer as large pictures.
    pub(super) fn bar(&mut self, (x, y): (f64, f64), width: f64, height: f64, style: Style) {
        let colour = style.colour();
        let fill = if style.0 == 0 { colour } else { "#fff" };
        self.draw(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}" stroke="{colour}"/>"#
        ));
        match style.0 {
            0 => {}
            1 => {
                let lines = ((width - height) / 8.0).max(0.0) as u32;
                let line = |number: u32| {
                    let x = x + 4.0 + f64::from(number) * 8.0;
                    format!("M{x:.1},{:.1}l{height:.1},-{height:.1}", y + height)
                };
                let path: String = (0..lines).map(line).collect();
                self.draw(format_args!(
                    r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>"#
                ));
            }
            _ => {
                for part in [0.25, 0.5, 0.75] {
                    let y = y + height * part;
                    self.draw(format_args!(
                        r#"<path d="M{:.1},{y:.1}h{:.1}" stroke="{colour}" stroke-width="2" stroke-dasharray="2 5"/>"#,
                        x + 3.0,
                        (width - 6.0).max(0.0)
                    ));
                }
            }
        }
    }

    /// A mark across a bar: one measurement of those whose median the bar is.
    pub(super) fn tick(&mut self, (x, y): (f64, f64), height: f64) {
        self.draw(format_args!(
            r##"<line x1="{x:.1}" y1="{y:.1}" x2="{x:.1}" y2="{:.1}" stroke="#000" stroke-width="1.5"/>"##,
            y + height
        ));
    }

    /// The whole element; `what` is for those who cannot see it.
    pub(super) fn finish(self, what: &str) -> String {
        let Svg {
            width,
            height,
            body,
        } = self;
        let what = escaped(what);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"{what}\" font-family=\"DejaVu Sans, Verdana, Arial, \
             sans-serif\" font-size=\"{LETTERS}\" fill=\"#111\">\n<title>{what}</title>\n\
             <rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>\n{body}</svg>\n"
        )
    }
}

fn polygon(x: f64, y: f64, corners: &[(f64, f64)]) -> String {
    let corners: Vec<String> = corners
        .iter()
        .map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy))
        .collect();
    format!(r#"<polygon points="{}""#, corners.join(" "))
}

/// Pixels that a text takes at most, in letters that are wide.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTERS * 0.62
}

/// A text in XML and HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut svg = Svg::new(100.0, 50.0);
        svg.text((1.0, 2.0), Anchor::Start, "a < \"b\" & c");
        let text = svg.finish("<what>");
        assert!(text.contains("a &lt; &quot;b&quot; &amp; c"), "{text}");
        assert!(text.contains("<title>&lt;what&gt;</title>"), "{text}");
    }

    /// Chromium's sans serif leaves 5.3 pixels between the glyphs on both sides of a space: a line there stays visible through less.
    #[test]
    fn the_white_below_a_number_closes_its_spaces() {
        let mut svg = Svg::new(100.0, 50.0);
        svg.number((1.0, 2.0), "87.0 %");
        let text = svg.finish("what");
        let width = text.split("stroke-width=\"").nth(1).unwrap();
        let width: f64 = width.split('"').next().unwrap().parse().unwrap();
        assert!(width > 8.0, "{text}");
    }

    #[test]
    fn a_headline_that_is_too_long_is_set_closer() {
        let heading = |length: usize| {
            let mut svg = Svg::new(500.0, 50.0);
            svg.heading((4.0, 20.0), &"x".repeat(length));
            svg.finish("what")
        };
        assert!(!heading(40).contains("textLength"));
        assert!(heading(80).contains(r#"textLength="492.0""#));
    }

    #[test]
    fn where_points_are_few_every_one_has_its_marker() {
        // Squares and diamonds are polygons.
        for (style, count, markers) in [(1, 5, 5), (3, 12, 12), (3, 13, 7), (7, 24, 12)] {
            let mut svg = Svg::new(100.0, 50.0);
            let points: Vec<(f64, f64)> = (0..count).map(|at| (f64::from(at), 1.0)).collect();
            svg.curve(&points, Style(style));
            let text = svg.finish("what");
            let found = text.matches("<polygon").count() + text.matches("<ellipse").count();
            assert_eq!(found, markers, "style {style}, {count} points");
        }
    }

    #[test]
    fn no_two_styles_look_alike_without_colour() {
        let dashes: std::collections::BTreeSet<&str> =
            STYLES.iter().map(|(_, dash)| *dash).collect();
        assert_eq!(dashes.len(), STYLES.len());
    }
}
