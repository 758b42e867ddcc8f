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

use crate::report::{QUANTILES, Time, quantile};
use crate::tally::Tally;
use std::collections::VecDeque;
use std::time::Duration;

/// Columns of a line, of the curves, and of the longest bar.
const COLUMNS: usize = 79;
const CURVE: usize = 40;
const BAR: usize = 44;
/// Most queues with a line of their own: with all else they fit the 24 lines of a terminal, which would scroll otherwise.
const LANES: usize = 12;

/// Blocks of a curve, from low to high; of a bar's end, from thin to thick.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const PARTS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Takes the screen, and gives it back as it was.
pub const ENTER: &str = "\x1b[?1049h\x1b[?25l";
pub const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// What the view remembers of a run.
pub struct Live {
    headline: String,
    /// What carries a part of the load: `queue` or `thread`.
    lane: &'static str,
    last: Vec<Tally>,
    sent: VecDeque<f64>,
    right: VecDeque<f64>,
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
        }
    }

    /// The whole screen: `tallies` by lane, `since` the last one.
    pub fn screen(
        &mut self,
        tallies: Vec<Tally>,
        since: Duration,
        times: (Duration, Duration),
    ) -> String {
        let all = Tally::sum(&tallies);
        let before = Tally::sum(&self.last);
        let per_second = |count: u64| count as f64 / since.as_secs_f64().max(1e-3);
        let sent = all.sent.saturating_sub(before.sent);
        remember(&mut self.sent, per_second(sent));
        remember(&mut self.right, per_second(all.right - before.right));
        let mut lines = vec![self.head(times), String::new()];
        // Both curves on one scale: what is missing below the other is lost.
        let highest = self
            .sent
            .iter()
            .chain(&self.right)
            .copied()
            .fold(1.0, f64::max);
        lines.push(curve("sent", &self.sent, highest));
        lines.push(curve("right", &self.right, highest));
        lines.push(format!(
            "{:<12} {} so far; wrong {}, duplicate {}, late {}, not sent {}",
            "unanswered",
            grouped(all.unanswered()),
            grouped(all.wrong_total()),
            grouped(all.duplicate),
            grouped(all.late),
            grouped(all.skipped)
        ));
        lines.push(latency(&all, &before));
        lines.push(String::new());
        lines.extend(self.lanes(&tallies, per_second));
        lines.extend([
            String::new(),
            "Ctrl-C ends with the statistics so far.".to_owned(),
        ]);
        self.last = tallies;
        let mut screen = String::from("\x1b[H");
        for line in lines {
            screen += &line.chars().take(COLUMNS).collect::<String>();
            screen += "\x1b[K\r\n";
        }
        screen + "\x1b[J"
    }

    fn head(&self, (elapsed, left): (Duration, Duration)) -> String {
        let mut times = format!("{} s", elapsed.as_secs());
        if !left.is_zero() {
            times += &format!(", {} s left", left.as_secs());
        }
        let room = COLUMNS.saturating_sub(times.chars().count() + 1);
        let headline: String = self.headline.chars().take(room).collect();
        format!("{headline:<room$} {times}")
    }

    /// A bar for each lane, of the answers that came to it.
    fn lanes(&self, tallies: &[Tally], per_second: impl Fn(u64) -> f64) -> Vec<String> {
        let before = |number: usize| self.last.get(number).map_or(0, Tally::answers);
        let rates: Vec<f64> = tallies
            .iter()
            .enumerate()
            .map(|(number, tally)| per_second(tally.answers() - before(number)))
            .collect();
        let highest = rates.iter().copied().fold(1.0, f64::max);
        let bars = rates.iter().enumerate().take(LANES);
        let mut lines: Vec<String> = bars
            .map(|(number, rate)| {
                let name = format!("{} {number}", self.lane);
                let rate_text = grouped(*rate as u64);
                format!("{name:<12} {} {rate_text}/s", bar(rate / highest))
            })
            .collect();
        if let Some(hidden @ [_, ..]) = rates.get(LANES..) {
            let least = hidden.iter().copied().fold(f64::INFINITY, f64::min);
            lines.push(format!(
                "and {} more, {}/s at least",
                hidden.len(),
                grouped(least as u64)
            ));
        }
        lines
    }
}

fn remember(curve: &mut VecDeque<f64>, rate: f64) {
    if curve.len() == CURVE {
        curve.pop_front();
    }
    curve.push_back(rate);
}

fn curve(name: &str, rates: &VecDeque<f64>, highest: f64) -> String {
    let height = |rate: &f64| HEIGHTS[((rate / highest * 8.0) as usize).min(7)];
    let now = rates.back().copied().unwrap_or(0.0);
    let now = format!("{}/s", grouped(now as u64));
    format!(
        "{name:<12} {now:>12}  {}",
        rates.iter().map(height).collect::<String>()
    )
}

/// Latencies of the answers that came since the last screen.
fn latency(all: &Tally, before: &Tally) -> String {
    let mut recent = all.clone();
    // Fails only where more was counted before than now.
    if recent.latency.subtract(&before.latency).is_err() || recent.latency.is_empty() {
        return format!("{:<12} no answer since the last look", "latency");
    }
    let quantiles =
        QUANTILES.map(|(name, part)| format!("{name} {}", Time(quantile(&recent, part))));
    let quantiles = quantiles.join(" ");
    // Five latencies of nine columns each fit only beside a name that is not filled up.
    let wide = format!("{:<12} {quantiles}", "latency");
    match wide.chars().count() > COLUMNS {
        true => format!("latency {quantiles}"),
        false => wide,
    }
}

/// A bar of this part of the longest, in eighths of a column.
fn bar(part: f64) -> String {
    let eighths = (part * (BAR * 8) as f64).round() as usize;
    let mut bar: String = std::iter::repeat_n('█', eighths / 8).collect();
    if let Some(rest) = (eighths % 8).checked_sub(1) {
        bar.push(PARTS[rest]);
    }
    format!("{bar:<BAR$}")
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
        live.screen(vec![tally(1000), tally(500)], second, (second, second));
        let screen = live.screen(vec![tally(3000), tally(1500)], second, (2 * second, second));
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
        assert!(
            screen
                .lines()
                .all(|line| line.chars().count() <= COLUMNS + 8),
            "{screen}"
        );
    }

    #[test]
    fn no_latency_is_so_long_that_its_unit_is_cut() {
        for nanoseconds in [1_500, 718_800, 999_900_000] {
            let mut slow = Tally::default();
            slow.latency.record(nanoseconds).unwrap();
            let line = latency(&slow, &Tally::default());
            assert!(
                line.chars().count() <= COLUMNS && line.ends_with('s'),
                "{line}"
            );
        }
    }

    #[test]
    fn bars_and_numbers() {
        assert_eq!(bar(1.0).trim_end().chars().count(), BAR);
        assert_eq!(bar(0.5 / BAR as f64).trim_end(), "▌");
        assert_eq!(bar(0.0).trim_end(), "");
        assert_eq!(
            [999, 1_000, 1_234_567].map(grouped),
            ["999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn many_queues_are_summed_up() {
        let mut live = Live::new("x", "queue");
        let second = Duration::from_secs(1);
        let screen = live.screen(vec![tally(1); 20], second, (second, Duration::ZERO));
        assert!(screen.contains("and 8 more, 1/s at least"), "{screen}");
        // The cursor stands on the line behind the last one.
        assert!(screen.matches("\r\n").count() < 24, "{screen}");
    }
}
