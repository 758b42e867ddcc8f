//! How the rate changes during a run.
//!
//! ```text
//! constant        ramp:0          burst:1,0.2       sine:2,0.5
//!  ▄▄▄▄▄▄▄▄       ▁▂▃▄▅▆▇█        █    █    █       ▅▇▇▅▃▁▁▃▅▇▇▅
//! ```
//!
//! A shape moves time: what a constant rate would have sent after x seconds, a shape has sent after
//! [`time_of`](Shape::time_of)(x) seconds, whatever the rate is.

use std::f64::consts::TAU;

/// The course of the rate. Its mean is the rate that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Shape {
    #[default]
    Constant,
    /// Straight from this part of the rate at the start, 0 to 2, to the mirrored part at the end.
    Ramp { from: f64 },
    /// Everything of each period, in seconds, within this part of it.
    Burst { period: f64, part: f64 },
    /// Up and down by this part of the rate, below 1, once in each period, in seconds.
    Sine { period: f64, depth: f64 },
}

impl Shape {
    /// The highest momentary rate, as a multiple of the mean.
    pub fn peak(&self) -> f64 {
        match *self {
            Shape::Constant => 1.0,
            // At one of its ends.
            Shape::Ramp { from } => from.max(2.0 - from),
            Shape::Burst { part, .. } => 1.0 / part,
            Shape::Sine { depth, .. } => 1.0 + depth,
        }
    }

    /// Seconds at a constant rate that send at least as much as this shape within any `window` seconds.
    pub fn most_within(&self, window: f64) -> f64 {
        let at_peak = window * self.peak();
        match *self {
            // However steep, a burst has no more than its period.
            Shape::Burst { period, .. } => at_peak.min(window + period),
            _ => at_peak,
        }
    }

    /// Seconds at a constant rate that send as much as this shape within `time` seconds of a run of `duration` seconds.
    pub fn sent_at(&self, time: f64, duration: f64) -> f64 {
        match *self {
            Shape::Constant => time,
            Shape::Ramp { from } => from * time + (1.0 - from) * time * time / duration,
            Shape::Burst { period, part } => {
                let start = (time / period).floor() * period;
                start + ((time - start) / part).min(period)
            }
            Shape::Sine { period, depth } => {
                time + depth * period / TAU * (1.0 - (TAU * time / period).cos())
            }
        }
    }

    /// The inverse: when as much is sent as a constant rate sends within `sent` seconds.
    pub fn time_of(&self, sent: f64, duration: f64) -> f64 {
        match *self {
            Shape::Constant => sent,
            Shape::Ramp { from } => {
                // The root of a square equation, in the form that does not subtract equals.
                let root = (from * from + 4.0 * (1.0 - from) * sent / duration).max(0.0);
                let divisor = from + root.sqrt();
                if divisor > 0.0 {
                    2.0 * sent / divisor
                } else {
                    0.0
                }
            }
            Shape::Burst { period, part } => {
                let start = (sent / period).floor() * period;
                start + (sent - start) * part
            }
            Shape::Sine { period, depth } => {
                let (mut low, mut high) = (sent - depth * period / TAU * 2.0, sent);
                // Halving forty times: below a nanosecond for any period that makes sense.
                for _ in 0..40 {
                    let middle = f64::midpoint(low, high);
                    if self.sent_at(middle, duration) < sent {
                        low = middle;
                    } else {
                        high = middle;
                    }
                }
                high.max(0.0)
            }
        }
    }

    /// Reads `constant`, `ramp:FROM`, `burst:SECONDS,PART`, `sine:SECONDS,DEPTH`.
    ///
    /// # Errors
    /// What would be right.
    pub fn from_text(text: &str) -> Result<Shape, String> {
        let wrong = || {
            "must be constant, ramp:FROM (0 to 2), burst:SECONDS,PART or sine:SECONDS,DEPTH (part and depth 0.01 to 0.99)"
                .to_owned()
        };
        let (word, values) = text.split_once(':').unwrap_or((text, ""));
        let values = values
            .split(',')
            .filter(|value| !value.is_empty())
            .map(str::parse::<f64>)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| wrong())?;
        let fits = |period: f64, part: f64| {
            (0.000_1..=1e6).contains(&period) && (0.01..=0.99).contains(&part)
        };
        match (word, &values[..]) {
            ("constant", []) => Ok(Shape::Constant),
            ("ramp", &[from]) if (0.0..=2.0).contains(&from) => Ok(Shape::Ramp { from }),
            ("burst", &[period, part]) if fits(period, part) => Ok(Shape::Burst { period, part }),
            ("sine", &[period, depth]) if fits(period, depth) => Ok(Shape::Sine { period, depth }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(text: &str) -> Shape {
        Shape::from_text(text).unwrap()
    }

    #[test]
    fn shapes_are_read_or_refused() {
        assert_eq!(shape("constant"), Shape::Constant);
        assert_eq!(shape("ramp:0.5"), Shape::Ramp { from: 0.5 });
        assert_eq!(
            shape("burst:1,0.2"),
            Shape::Burst {
                period: 1.0,
                part: 0.2
            }
        );
        assert_eq!(
            shape("sine:2,0.9"),
            Shape::Sine {
                period: 2.0,
                depth: 0.9
            }
        );
        for wrong in [
            "",
            "square:1",
            "ramp",
            "ramp:3",
            "burst:0,0.5",
            "burst:1",
            "sine:1,1",
            "sine:1,x",
        ] {
            assert!(Shape::from_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_ramp_from_nothing_has_sent_a_quarter_after_half_the_time() {
        assert_eq!(shape("ramp:0").sent_at(5.0, 10.0), 2.5);
        assert_eq!(shape("ramp:2").sent_at(5.0, 10.0), 7.5);
        assert_eq!(shape("ramp:0").sent_at(10.0, 10.0), 10.0);
    }

    #[test]
    fn a_burst_is_over_after_its_part() {
        let burst = shape("burst:1,0.2");
        assert!((burst.sent_at(0.2, 9.0) - 1.0).abs() < 1e-12);
        assert!((burst.sent_at(0.9, 9.0) - 1.0).abs() < 1e-12);
        assert!((burst.time_of(1.5, 9.0) - 1.1).abs() < 1e-12);
    }

    #[test]
    fn bursts_are_as_high_as_they_are_short_and_hold_no_more_than_their_period() {
        let burst = shape("burst:1,0.01");
        assert_eq!(burst.peak(), 100.0);
        assert!((burst.most_within(0.001) - 0.1).abs() < 1e-9);
        // Two of them, and a half of nothing.
        assert_eq!(burst.most_within(1.5), 2.5);
        assert_eq!(shape("ramp:0").peak(), 2.0);
        assert_eq!(shape("ramp:1.5").peak(), 1.5);
        assert_eq!(shape("sine:2,0.25").peak(), 1.25);
        assert_eq!(Shape::Constant.most_within(3.0), 3.0);
    }

    /// A shape of each kind, by number.
    fn any_shape(which: usize, first: f64, second: f64) -> Shape {
        match which {
            0 => Shape::Constant,
            1 => Shape::Ramp { from: second * 2.0 },
            2 => Shape::Burst {
                period: first,
                part: second,
            },
            _ => Shape::Sine {
                period: first,
                depth: second,
            },
        }
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_the_most_and_the_peak_is_reached(
            which in 0..4_usize,
            first in 0.1..5.0_f64,
            second in 0.05..0.95_f64,
            start in 0.0..10.0_f64,
            window in 0.001..10.0_f64,
        ) {
            let shape = any_shape(which, first, second);
            let sent = |from: f64, to: f64| shape.sent_at(to, 20.0) - shape.sent_at(from, 20.0);
            prop_assert!(
                sent(start, start + window) <= shape.most_within(window) + 1e-9,
                "{:?} from {} for {}", shape, start, window
            );
            // What is sent in each millisecond of 20 s is never above the peak, and at least once about it.
            let rates = (0..20_000_u32).map(|step| {
                let from = f64::from(step) / 1000.0;
                sent(from, from + 0.001) / 0.001
            });
            let highest = rates.fold(0.0, f64::max);
            let peak = shape.peak();
            prop_assert!(highest <= peak + 1e-6, "{:?} has {}", shape, highest);
            prop_assert!(highest >= peak * 0.99, "{:?} has {}", shape, highest);
        }

        #[test]
        fn time_and_what_is_sent_are_inverse(
            which in 0..4_usize,
            first in 0.1..5.0_f64,
            second in 0.05..0.95_f64,
            sent in 0.0..20.0_f64,
        ) {
            let shape = any_shape(which, first, second);
            let time = shape.time_of(sent, 20.0);
            prop_assert!(time >= 0.0);
            prop_assert!((shape.sent_at(time, 20.0) - sent).abs() < 1e-6, "{:?} at {}", shape, time);
        }
    }
}
