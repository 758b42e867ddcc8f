//! `--live`: rates, latency and queues on the terminal while a run goes.
//!
//! ```text
//! 192.0.2.1:53 over AF_XDP on eth0                                    12 s, 48 s left
//!
//! sent         812,345/s  ▁▂▃▅▆▇██████
//! right        811,902/s  ▁▂▃▅▆▇██████
//! unanswered   443 so far; wrong 0, duplicate 0, late 0, not sent 0
//! latency      p50 25.1 us p90 31.0 us p99 …
//!
//! queue 0      ██████████████████████████████ 406,000/s
//! queue 1      █████████████████████████████▌ 405,900/s
//! ```

use crate::report::{QUANTILES, quantile_text};
use crate::tally::Tally;
use rustix::termios::tcgetwinsize;
use std::collections::VecDeque;
use std::time::Duration;

/// Columns of the names in front; of a rate in front of its curve.
const NAME: usize = 12;
const RATE: usize = 12;
/// With fewer columns names have no column of their own.
const NARROW: usize = 40;
/// A curve or a bar of fewer columns shows nothing.
const SHORTEST: usize = 4;
/// Rates that are remembered: the widest curve.
const REMEMBERED: usize = 500;

/// Blocks of a curve, from low to high; of a bar's end, from thin to thick.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const PARTS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Takes the screen, and gives it back as it was.
pub const ENTER: &str = "\x1b[?1049h\x1b[?25l";
pub const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// How much a terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

impl Size {
    /// That of the terminal behind standard error, as it is now. One that does not tell has 80 columns and 24 rows.
    pub fn of_terminal() -> Size {
        let told = tcgetwinsize(std::io::stderr());
        let (columns, rows) = told.map_or((0, 0), |size| (size.ws_col, size.ws_row));
        let or = |told: u16, usual: usize| match told {
            0 => usual,
            told => usize::from(told),
        };
        Size {
            columns: or(columns, 80),
            rows: or(rows, 24),
        }
    }

    /// Columns that are written to: what reaches the last one makes some terminals begin a new line.
    pub fn width(self) -> usize {
        self.columns.saturating_sub(1)
    }
}

/// What the view remembers of a run.
pub struct Live {
    headline: String,
    /// What carries a part of the load: `queue` or `thread`.
    lane: &'static str,
    last: Vec<Tally>,
    sent: VecDeque<f64>,
    right: VecDeque<f64>,
    /// What was seen last.
    seen: Seen,
}

/// What one look has found.
#[derive(Default)]
struct Seen {
    elapsed: Duration,
    left: Duration,
    all: Tally,
    /// Of the answers that came since the look before. `None`: none came.
    latencies: Option<Vec<String>>,
    /// Answers a second, by lane.
    rates: Vec<f64>,
}

impl Live {
    /// A view of a run that begins.
    pub fn new(headline: &str, lane: &'static str) -> Live {
        Live {
            headline: headline.to_owned(),
            lane,
            last: Vec::new(),
            sent: VecDeque::new(),
            right: VecDeque::new(),
            seen: Seen::default(),
        }
    }

    /// Looks at `tallies`, by lane, `since` the last look.
    pub fn look(
        &mut self,
        tallies: Vec<Tally>,
        since: Duration,
        (elapsed, left): (Duration, Duration),
    ) {
        let all = Tally::sum(&tallies);
        let before = Tally::sum(&self.last);
        let per_second = |count: u64| count as f64 / since.as_secs_f64().max(1e-3);
        let sent = all.sent.saturating_sub(before.sent);
        remember(&mut self.sent, per_second(sent));
        remember(&mut self.right, per_second(all.right - before.right));
        let answers_before = |lane: usize| self.last.get(lane).map_or(0, Tally::answers);
        let lanes = tallies.iter().enumerate();
        let rates = lanes.map(|(lane, tally)| per_second(tally.answers() - answers_before(lane)));
        self.seen = Seen {
            elapsed,
            left,
            latencies: latencies(&all, &before),
            rates: rates.collect(),
            all,
        };
        self.last = tallies;
    }

    /// The whole screen: no line is longer than the terminal is wide, and there are no more than it has.
    pub fn screen(&self, size: Size) -> String {
        let lines = self.lines(size);
        let cut = |line: &String| line.chars().take(size.width()).collect::<String>();
        let lines: Vec<String> = lines.iter().take(size.rows).map(cut).collect();
        // No new line behind the last one: it would scroll the first one away.
        format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n"))
    }

    /// What there is to show. Where there is little room, empty lines go first, then the hint, then lanes.
    fn lines(&self, size: Size) -> Vec<String> {
        let width = size.width();
        let curves = [("sent", &self.sent), ("right", &self.right)];
        // Both curves on one scale: what is missing below the other is lost.
        let rates = curves.iter().flat_map(|(_, rates)| rates.iter());
        let highest = rates.copied().fold(1.0, f64::max);
        let mut facts = curves
            .map(|(name, rates)| curve(name, rates, (highest, width)))
            .to_vec();
        facts.extend(flow("unanswered", &counts(&self.seen.all), width));
        facts.extend(match &self.seen.latencies {
            Some(quantiles) => flow("latency", quantiles, width),
            None => vec![format!(
                "{:<NAME$} no answer since the last look",
                "latency"
            )],
        });
        let gap = String::new;
        let hint = "Ctrl-C ends with the statistics so far.".to_owned();
        let wanted = self.seen.rates.len();
        // The head, and three gaps and the hint where they fit beside all lanes.
        let left = size.rows.saturating_sub(1 + facts.len());
        match left.checked_sub(4) {
            Some(room) if room >= wanted.min(2) => {
                let lanes = self.lanes(width, room);
                let parts = [vec![self.head(width), gap()], facts, vec![gap()], lanes];
                [parts.concat(), vec![gap(), hint]].concat()
            }
            _ => [vec![self.head(width)], facts, self.lanes(width, left)].concat(),
        }
    }

    fn head(&self, width: usize) -> String {
        let mut times = format!("{} s", self.seen.elapsed.as_secs());
        if !self.seen.left.is_zero() {
            times += &format!(", {} s left", self.seen.left.as_secs());
        }
        let room = width.saturating_sub(times.chars().count() + 1);
        let headline: String = self.headline.chars().take(room).collect();
        format!("{headline:<room$} {times}")
    }

    /// A bar for each lane, of the answers that came to it, in `room` lines.
    fn lanes(&self, width: usize, room: usize) -> Vec<String> {
        let rates = &self.seen.rates;
        let highest = rates.iter().copied().fold(1.0, f64::max);
        let texts: Vec<String> = rates
            .iter()
            .map(|rate| format!("{}/s", grouped(*rate as u64)))
            .collect();
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        let columns = width.saturating_sub(NAME + 2 + longest);
        let line = |lane: usize| {
            let name = format!("{} {lane}", self.lane);
            let bar = bar(rates[lane] / highest, columns);
            format!("{name:<NAME$} {bar}{}", texts[lane])
        };
        if rates.len() <= room {
            return (0..rates.len()).map(line).collect();
        }
        let shown = room.saturating_sub(1);
        let hidden = &rates[shown..];
        let least = hidden.iter().copied().fold(f64::INFINITY, f64::min);
        let least = grouped(least as u64);
        let rest = match shown {
            0 => format!("{} {}s, {least}/s at least", rates.len(), self.lane),
            _ => format!("and {} more, {least}/s at least", hidden.len()),
        };
        (0..shown).map(line).chain([rest]).take(room).collect()
    }
}

fn remember(curve: &mut VecDeque<f64>, rate: f64) {
    if curve.len() == REMEMBERED {
        curve.pop_front();
    }
    curve.push_back(rate);
}

/// The rate now, and a curve of as many of the last ones as fit.
fn curve(name: &str, rates: &VecDeque<f64>, (highest, width): (f64, usize)) -> String {
    let height = |rate: &f64| HEIGHTS[((rate / highest * 8.0) as usize).min(7)];
    let now = rates.back().copied().unwrap_or(0.0);
    let now = format!("{}/s", grouped(now as u64));
    if width < NARROW - 1 {
        return format!("{name} {now}");
    }
    let room = width.saturating_sub(NAME + 1 + RATE + 2);
    let fits = if room < SHORTEST { 0 } else { room };
    let shown = rates.iter().skip(rates.len().saturating_sub(fits));
    format!(
        "{name:<NAME$} {now:>RATE$}  {}",
        shown.map(height).collect::<String>()
    )
}

/// What became of queries so far.
fn counts(all: &Tally) -> Vec<String> {
    vec![
        format!("{} so far;", grouped(all.unanswered())),
        format!("wrong {},", grouped(all.wrong_total())),
        format!("duplicate {},", grouped(all.duplicate)),
        format!("late {},", grouped(all.late)),
        format!("not sent {}", grouped(all.skipped)),
    ]
}

/// Latencies of the answers that came since the look before.
fn latencies(all: &Tally, before: &Tally) -> Option<Vec<String>> {
    let mut recent = all.clone();
    // Fails only where more was counted before than now.
    recent.latency.subtract(&before.latency).ok()?;
    let quantiles =
        QUANTILES.map(|(name, part)| format!("{name} {}", quantile_text(&recent, part)));
    (!recent.latency.is_empty()).then(|| quantiles.to_vec())
}

/// A name and what belongs to it, in as many lines as that takes.
fn flow(name: &str, items: &[String], width: usize) -> Vec<String> {
    let all: usize = items.iter().map(|item| 1 + item.len()).sum();
    // What fits a line only beside a name that is not filled up goes there.
    let (filled, indented) = match width {
        _ if width < NARROW - 1 => (name.len(), 0),
        _ if NAME + all <= width || name.len() + all > width => (NAME, NAME),
        _ => (name.len(), name.len()),
    };
    let mut lines = vec![format!("{name:<filled$}")];
    for item in items {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + item.len() <= width => *line += &format!(" {item}"),
            _ => lines.push(format!("{:<indented$} {item}", "")),
        }
    }
    lines
}

/// A bar of this part of the longest, which has so many columns, in eighths of one; a space behind it. Nothing where it would be
/// too short to show anything.
fn bar(part: f64, columns: usize) -> String {
    if columns < SHORTEST {
        return String::new();
    }
    let eighths = (part * (columns * 8) as f64).round() as usize;
    let mut bar: String = std::iter::repeat_n('█', eighths / 8).collect();
    if let Some(rest) = (eighths % 8).checked_sub(1) {
        bar.push(PARTS[rest]);
    }
    format!("{bar:<columns$} ")
}

/// `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Answer;

    const USUAL: Size = Size {
        columns: 80,
        rows: 24,
    };

    /// The lines of a screen, without what the terminal does not show.
    fn lines(screen: &str) -> Vec<String> {
        let plain = screen.replace("\x1b[H", "").replace("\x1b[J", "");
        let plain = plain.replace("\x1b[K", "");
        plain.split("\r\n").map(str::to_owned).collect()
    }

    /// A view of so many lanes after a second.
    fn live(lanes: usize) -> Live {
        let mut live = Live::new("192.0.2.1:53 over AF_XDP on eth0", "queue");
        let second = Duration::from_secs(1);
        live.look(vec![tally(1_234); lanes], second, (second, second));
        live
    }

    fn tally(right: u64) -> Tally {
        let mut tally = Tally {
            sent: right + 3,
            ..Tally::default()
        };
        let answer = Answer {
            rcode: 0,
            truncated: false,
            case_changed: false,
            length: 50,
        };
        (0..right).for_each(|_| tally.count_right(&answer, 25_000));
        tally
    }

    #[test]
    fn a_screen_has_rates_latency_and_a_bar_for_each_queue() {
        let mut live = Live::new("192.0.2.1:53 over AF_XDP", "queue");
        let second = Duration::from_secs(1);
        live.look(vec![tally(1000), tally(500)], second, (second, second));
        live.look(vec![tally(3000), tally(1500)], second, (2 * second, second));
        let screen = live.screen(USUAL);
        for part in [
            "2 s, 1 s left",
            "sent              3,000/s",
            "unanswered   6 so far; wrong 0",
            "latency      p50 25.",
            "queue 0      ████",
            " 2,000/s",
            " 1,000/s",
        ] {
            assert!(screen.contains(part), "{part}: {screen}");
        }
    }

    #[test]
    fn a_screen_fits_its_terminal_whatever_that_has() {
        for lanes in [1, 2, 12, 64] {
            let live = live(lanes);
            for columns in [1, 20, 40, 80, 81, 132, 400] {
                for rows in [1, 5, 10, 24, 50, 100] {
                    let size = Size { columns, rows };
                    let lines = lines(&live.screen(size));
                    assert!(lines.len() <= rows, "{size:?}: {lines:#?}");
                    let widest = lines.iter().map(|line| line.chars().count()).max();
                    assert!(widest < Some(columns), "{size:?}: {lines:#?}");
                }
            }
        }
    }

    #[test]
    fn bars_are_as_long_as_there_is_room_and_rates_are_whole() {
        let lengths = [40, 80, 200].map(|columns| {
            let lines = lines(&live(2).screen(Size { columns, rows: 24 }));
            let bars = lines.iter().filter(|line| line.starts_with("queue"));
            let bars: Vec<&String> = bars.collect();
            assert!(bars.len() == 2 && bars.iter().all(|bar| bar.ends_with(" 1,234/s")));
            bars[0].matches('█').count()
        });
        assert_eq!(
            lengths,
            [40, 80, 200].map(|columns| columns - 1 - 12 - 2 - 7)
        );
    }

    #[test]
    fn no_number_is_cut_on_a_narrow_terminal() {
        let size = Size {
            columns: 20,
            rows: 24,
        };
        let lines = lines(&live(3).screen(size));
        for line in [
            "sent 3,711/s",
            "right 3,702/s",
            "unanswered",
            " 9 so far; wrong 0,",
        ] {
            assert!(
                lines.iter().any(|found| found == line),
                "{line}: {lines:#?}"
            );
        }
        let flat = Size {
            columns: 40,
            rows: 10,
        };
        let lines = self::lines(&live(3).screen(flat));
        assert_eq!(
            lines.last().unwrap(),
            "3 queues, 1,234/s at least",
            "{lines:#?}"
        );
    }

    #[test]
    fn where_there_is_little_room_the_counts_stay_and_go_on_in_a_line_of_their_own() {
        let size = Size {
            columns: 40,
            rows: 9,
        };
        let lines = lines(&live(3).screen(size));
        assert_eq!(lines.len(), 9, "{lines:#?}");
        assert_eq!(lines[3], "unanswered   9 so far; wrong 0,");
        assert_eq!(lines[4], "             duplicate 0, late 0,");
        assert_eq!(lines[5], "             not sent 0");
        assert!(lines[6].starts_with("latency      p50 25."), "{lines:#?}");
    }

    #[test]
    fn no_latency_is_so_long_that_its_unit_is_cut() {
        for nanoseconds in [1_500, 718_800, 999_900_000] {
            let mut slow = Tally::default();
            slow.latency.record(nanoseconds).unwrap();
            let latencies = latencies(&slow, &Tally::default()).unwrap();
            let lines = flow("latency", &latencies, USUAL.width());
            let [line] = &lines[..] else {
                panic!("{lines:?}")
            };
            assert!(
                line.chars().count() <= USUAL.width() && line.ends_with('s'),
                "{line}"
            );
        }
        assert_eq!(latencies(&Tally::default(), &Tally::default()), None);
    }

    #[test]
    fn bars_and_numbers() {
        assert_eq!(bar(1.0, 44).trim_end().chars().count(), 44);
        assert_eq!(bar(0.5 / 44.0, 44).trim_end(), "▌");
        assert_eq!(bar(0.0, 44).trim_end(), "");
        assert_eq!(
            [999, 1_000, 1_234_567].map(grouped),
            ["999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn many_queues_are_summed_up() {
        let screen = live(20).screen(USUAL);
        assert!(screen.contains("and 6 more, 1,234/s at least"), "{screen}");
        // The cursor stands in the last line at most.
        assert!(screen.matches("\r\n").count() < 24, "{screen}");
        let tall = Size { rows: 60, ..USUAL };
        let screen = live(20).screen(tall);
        assert!(!screen.contains("more") && screen.contains("queue 19 "));
    }
}
