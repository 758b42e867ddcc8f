//! Axes: where a number lies, and which numbers are written beside it.

/// Which numbers an axis has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// From 0.
    Linear,
    /// Whole numbers that count something, from the first to the last.
    Counted,
    Logarithmic,
}

/// One axis with its range.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Numbers to be written, with their texts.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// An axis on which all these numbers lie.
    pub(super) fn over(scale: Scale, numbers: impl Iterator<Item = f64>) -> Axis {
        let numbers = numbers.filter(|number| number.is_finite());
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for number in numbers.filter(|number| scale != Scale::Logarithmic || *number > 0.0) {
            low = low.min(number);
            high = high.max(number);
        }
        if low > high {
            (low, high) = (1.0, 1.0);
        }
        match scale {
            Scale::Linear => linear(high),
            Scale::Counted => counted(low, high),
            Scale::Logarithmic => logarithmic(low, high),
        }
    }

    /// Where a number lies: 0 at the low end, 1 at the high end.
    pub(super) fn place(&self, number: f64) -> f64 {
        let part = match self.scale {
            Scale::Logarithmic => {
                (number.max(self.low) / self.low).ln() / (self.high / self.low).ln()
            }
            _ => (number - self.low) / (self.high - self.low),
        };
        part.clamp(0.0, 1.0)
    }
}

fn linear(high: f64) -> Axis {
    // Where everything is nothing, up to one of it.
    let high = if high > 0.0 { high } else { 1.0 };
    let step = step(high / 5.0);
    let count = (high / step).ceil().max(1.0);
    let ticks = (0..=count as u32).map(|number| f64::from(number) * step);
    Axis {
        scale: Scale::Linear,
        low: 0.0,
        high: count * step,
        ticks: ticks.map(|tick| (tick, short(tick))).collect(),
    }
}

fn counted(low: f64, high: f64) -> Axis {
    let step = ((high - low) / 12.0).ceil().max(1.0);
    let count = ((high - low) / step).floor() as u32;
    let ticks = (0..=count).map(|number| low + f64::from(number) * step);
    Axis {
        scale: Scale::Counted,
        low: low - 0.5,
        high: high + 0.5,
        ticks: ticks.map(|tick| (tick, format!("{tick:.0}"))).collect(),
    }
}

/// From a tenth of a decade below to one above.
fn logarithmic(low: f64, high: f64) -> Axis {
    let (low, high) = (low / 1.26, high.max(low * 2.0) * 1.26);
    // Fewer numbers of each decade where there are many decades.
    let parts: &[f64] = match (high / low).log10() {
        ..2.0 => &[1.0, 2.0, 3.0, 5.0],
        2.0..4.0 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = decades.flat_map(|decade| parts.iter().map(move |part| part * 10_f64.powi(decade)));
    Axis {
        scale: Scale::Logarithmic,
        low,
        high,
        ticks: all
            .filter(|tick| (low..=high).contains(tick))
            .map(|tick| (tick, short(tick)))
            .collect(),
    }
}

/// The next round number: 1, 2 or 5 with noughts.
fn step(least: f64) -> f64 {
    let decade = 10_f64.powf(least.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].map(|part| part * decade);
    // Slack: 0.2 × 5 is not quite 1; and a run of 10 s that lasted 10.05 s would leave a third of its panel empty.
    let fits = |step: &&f64| **step >= least * 0.95;
    round.iter().find(fits).copied().unwrap_or(10.0 * decade)
}

/// A number in three digits: `1.2 M`, `850 k`, `35`, `0.12`.
pub(super) fn short(number: f64) -> String {
    let (scaled, unit) = match number.abs() {
        0.0 => return "0".to_owned(),
        magnitude if magnitude >= 999_500.0 => (number / 1e6, " M"),
        magnitude if magnitude >= 999.5 => (number / 1e3, " k"),
        _ => (number, ""),
    };
    let decimals = match scaled.abs() {
        100.0.. => 0,
        10.0..100.0 => 1,
        1.0..10.0 => 2,
        _ => 3,
    };
    let digits = format!("{scaled:.decimals$}");
    let digits = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        &digits
    };
    format!("{digits}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let texts = [
            0.0,
            0.1234,
            35.0,
            999.0,
            1_000.0,
            12_345.0,
            999_700.0,
            1_234_567.0,
        ]
        .map(short);
        assert_eq!(
            texts,
            ["0", "0.123", "35", "999", "1 k", "12.3 k", "1 M", "1.23 M"]
        );
    }

    #[test]
    fn a_linear_axis_begins_at_nothing_and_ends_at_a_round_number() {
        let axis = Axis::over(Scale::Linear, [3.0, 870.0].into_iter());
        assert_eq!((axis.low, axis.high), (0.0, 1000.0));
        assert_eq!(axis.ticks.len(), 6);
        assert_eq!((axis.place(500.0), axis.place(5000.0)), (0.5, 1.0));
        let axis = Axis::over(Scale::Linear, [10.05].into_iter());
        assert_eq!((axis.high, axis.ticks.len()), (12.0, 7));
        let nothing = Axis::over(Scale::Linear, [0.0].into_iter());
        assert_eq!((nothing.high, nothing.ticks.len()), (1.0, 6));
    }

    #[test]
    fn a_logarithmic_axis_has_a_place_for_everything() {
        for (low, high) in [(1.0, 1.0), (5.0, 9.0), (10.0, 3e5), (1e-3, 1e9)] {
            let axis = Axis::over(Scale::Logarithmic, [low, high, 0.0].into_iter());
            assert!(axis.place(low) > 0.0 && axis.place(high) < 1.0);
            assert!(
                (1..=16).contains(&axis.ticks.len()),
                "{low} {high}: {:?}",
                axis.ticks
            );
        }
    }

    #[test]
    fn runs_are_counted() {
        let axis = Axis::over(Scale::Counted, [1.0, 3.0].into_iter());
        let texts: Vec<&str> = axis.ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["1", "2", "3"]);
        assert_eq!(axis.place(2.0), 0.5);
    }

    #[test]
    fn an_axis_over_nothing_is_an_axis() {
        for scale in [Scale::Linear, Scale::Counted, Scale::Logarithmic] {
            assert!(!Axis::over(scale, std::iter::empty()).ticks.is_empty());
        }
    }
}
