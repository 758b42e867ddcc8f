//! Results as CSV (RFC 4180): a line of names, a line of values.

use super::{QUANTILES, quantile};
use crate::ramp::Ramp;
use crate::xdp::Measurement;

/// Names and values of a result; times in nanoseconds.
fn columns(measurement: &Measurement) -> Vec<(String, String)> {
    let (tally, losses) = (&measurement.tally, &measurement.losses);
    let seconds = measurement.sending.as_secs_f64();
    let mut columns = vec![("seconds".to_owned(), format!("{seconds:.3}"))];
    let counts = [
        ("offered", measurement.offered()),
        ("sent", tally.sent),
        ("right", tally.right),
        ("wrong", tally.wrong_total()),
        ("duplicate", tally.duplicate),
        ("late", tally.late),
        ("unanswered", tally.unanswered()),
        ("not_sent", tally.skipped),
        ("unwanted", losses.unwanted),
        ("rings_full", losses.rings_full),
        ("too_long", losses.large),
        ("other_queues", losses.elsewhere),
        ("interface_dropped_in", losses.interface_rx),
        ("interface_dropped_out", losses.interface_tx),
        ("truncated", tally.truncated),
        ("case_changed", tally.case_changed),
        ("answer_octets", tally.answer_octets),
    ];
    columns.extend(counts.map(|(name, count)| (name.to_owned(), count.to_string())));
    columns.extend(QUANTILES.map(|(name, part)| {
        (
            format!("latency_{name}_ns"),
            quantile(tally, part).to_string(),
        )
    }));
    columns
}

/// Both lines of a result.
pub fn measurement(measurement: &Measurement) -> String {
    let (names, values): (Vec<_>, Vec<_>) = columns(measurement).into_iter().unzip();
    format!("{}\n{}\n", names.join(","), values.join(","))
}

/// Both lines of a ramp's result; rates in queries a second.
pub fn ramp(ramp: &Ramp) -> String {
    let peak = ramp.peak.map_or(0.0, |peak| peak.answers_per_second());
    format!(
        "r99,loss_free,peak,generator_was_the_limit\n{:.0},{:.0},{peak:.0},{}\n",
        ramp.r99_median(),
        ramp.loss_free_median(),
        ramp.generator_was_the_limit()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tally;
    use std::time::Duration;

    #[test]
    fn names_and_values_are_as_many() {
        let measurement = Measurement {
            sending: Duration::from_millis(1500),
            tally: Tally {
                sent: 7,
                skipped: 3,
                ..Tally::default()
            },
            lanes: Vec::new(),
            losses: Default::default(),
            interrupted: 0,
            limits: Vec::new(),
        };
        let text = super::measurement(&measurement);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
        assert!(lines[0].starts_with("seconds,offered,sent,right,"));
        assert!(lines[1].starts_with("1.500,10,7,0,"));
    }
}
