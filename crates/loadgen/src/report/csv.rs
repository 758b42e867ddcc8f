//! Results as CSV (RFC 4180): a line of names, a line of values.

use super::{QUANTILES, Way, longest_answer, quantile, rcode_text};
use crate::judge::Fault;
use crate::ramp::Ramp;
use crate::xdp::Measurement;
use std::fmt::Display;

/// Names and values of a result; times in nanoseconds. Empty: nobody looked.
fn columns(measurement: &Measurement, way: &Way) -> Vec<(String, String)> {
    let (tally, losses) = (&measurement.tally, &measurement.losses);
    let seconds = measurement.sending.as_secs_f64();
    let seen = |count: u64| (!measurement.unread).then_some(count);
    let mut columns = vec![("seconds".to_owned(), format!("{seconds:.3}"))];
    let counts = [
        ("offered", Some(measurement.offered())),
        ("sent", Some(tally.sent)),
        ("right", seen(tally.right)),
        ("wrong", seen(tally.wrong_total())),
        ("duplicate", seen(tally.duplicate)),
        ("late", seen(tally.late)),
        ("unanswered", seen(tally.unanswered())),
        ("not_sent", Some(tally.skipped)),
        ("unwanted", Some(losses.unwanted)),
        ("rings_full", seen(losses.rings_full)),
        ("too_long", seen(losses.large)),
        ("other_queues", seen(losses.elsewhere)),
    ];
    columns.extend(counts.map(|(name, count)| (name.to_owned(), or_empty(count))));
    let (received, to_be_sent) = losses.interface.unzip();
    let drops = [
        ("interface_dropped_in", received),
        ("interface_dropped_out", to_be_sent),
    ];
    columns.extend(drops.map(|(name, count)| (name.to_owned(), or_empty(count))));
    let counts = [
        ("truncated", tally.truncated),
        ("case_changed", tally.case_changed),
        ("answer_octets", tally.answer_octets),
    ];
    columns.extend(counts.map(|(name, count)| (name.to_owned(), or_empty(seen(count)))));
    columns.extend(QUANTILES.map(|(name, part)| {
        let latency = or_empty(quantile(tally, part));
        (format!("latency_{name}_ns"), latency)
    }));
    columns.extend(further(measurement, way).map(|(name, value)| (name.to_owned(), value)));
    columns
}

/// What tables did not always have: at the end, so that all the others keep their places.
fn further(measurement: &Measurement, way: &Way) -> [(&'static str, String); 5] {
    let tally = &measurement.tally;
    let rcodes = tally
        .rcodes()
        .map(|(rcode, count)| (rcode_text(rcode), count));
    let faults = Fault::all().filter(|fault| tally.wrong[fault.index()] > 0);
    let faults = faults.map(|fault| (fault.name(), tally.wrong[fault.index()]));
    let limited = u8::from(!measurement.limits.is_empty());
    [
        ("answer_octets_max", or_empty(longest_answer(tally))),
        ("rcodes", counted(rcodes)),
        ("wrong_kinds", counted(faults)),
        ("mode", mode(way)),
        ("generator_was_the_limit", limited.to_string()),
    ]
}

/// `NOERROR:12 NXDOMAIN:3`.
fn counted<N: Display>(counts: impl Iterator<Item = (N, u64)>) -> String {
    let counts: Vec<String> = counts
        .map(|(name, count)| format!("{name}:{count}"))
        .collect();
    counts.join(" ")
}

/// `native zero-copy`, `kernel sockets`.
fn mode(way: &Way) -> String {
    match (way, way.mode()) {
        (Way::Xdp(_), (attached, bound)) => format!("{attached} {bound}"),
        (Way::KernelSockets { .. }, (_, bound)) => bound.to_owned(),
    }
}

fn or_empty(value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Both lines of a result.
pub fn measurement(measurement: &Measurement, way: &Way) -> String {
    let (names, values): (Vec<_>, Vec<_>) = columns(measurement, way).into_iter().unzip();
    format!("{}\n{}\n", names.join(","), values.join(","))
}

/// Both lines of a ramp's result; rates in queries a second, empty where it was stopped before one was found.
pub fn ramp(ramp: &Ramp, way: &Way) -> String {
    let rate = |rate: Option<f64>| or_empty(rate.map(|rate| format!("{rate:.0}")));
    format!(
        "r99,loss_free,peak,generator_was_the_limit,mode\n{},{},{},{},{}\n",
        rate(ramp.r99_median()),
        rate(ramp.loss_free_median()),
        rate(ramp.peak.map(|peak| peak.answers_per_second())),
        ramp.generator_was_the_limit(),
        mode(way)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Answer;
    use crate::report::Transport;
    use crate::search::{Found, Probe};
    use crate::tally::Tally;
    use crate::xdp::{Description, Losses};
    use std::time::{Duration, UNIX_EPOCH};
    use xsk::{AttachMode, BindMode};

    const SOCKETS: Way = Way::KernelSockets {
        threads: 1,
        transport: Transport::Udp,
    };

    fn zero_copy() -> Way {
        Way::Xdp(Description {
            interface: "cli0".to_owned(),
            lanes: 1,
            attached: AttachMode::Native,
            bound: BindMode::ZeroCopy,
        })
    }

    fn measured() -> Measurement {
        Measurement {
            began: UNIX_EPOCH,
            sending: Duration::from_millis(1500),
            tally: Tally {
                sent: 7,
                skipped: 3,
                ..Tally::default()
            },
            lanes: Vec::new(),
            losses: Losses::default(),
            interrupted: 0,
            limits: Vec::new(),
            unread: false,
            failure: None,
            remark: None,
        }
    }

    /// The value of the column of this name.
    fn value(text: &str, name: &str) -> String {
        let (names, values) = text.trim_end().split_once('\n').unwrap();
        let place = names.split(',').position(|found| found == name);
        let value = values.split(',').nth(place.unwrap());
        value.unwrap().to_owned()
    }

    #[test]
    fn names_and_values_are_as_many() {
        let text = measurement(&measured(), &zero_copy());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
        assert!(lines[1].starts_with("1.500,10,7,0,"));
    }

    #[test]
    fn new_columns_come_last() {
        let text = measurement(&measured(), &SOCKETS);
        let expected = "seconds,offered,sent,right,wrong,duplicate,late,unanswered,not_sent,\
             unwanted,rings_full,too_long,other_queues,interface_dropped_in,interface_dropped_out,\
             truncated,case_changed,answer_octets,latency_p50_ns,latency_p90_ns,latency_p99_ns,\
             latency_p99.9_ns,latency_max_ns,answer_octets_max,rcodes,wrong_kinds,mode,\
             generator_was_the_limit";
        assert_eq!(text.lines().next(), Some(expected));
    }

    #[test]
    fn mode_limit_and_kinds_of_answers_are_told() {
        let mut measured = measured();
        let text = measurement(&measured, &SOCKETS);
        assert_eq!(value(&text, "mode"), "kernel sockets");
        assert_eq!(value(&text, "generator_was_the_limit"), "0");
        assert_eq!(value(&text, "rcodes"), "");
        measured.limits = vec!["The generator itself was the limit, \"alas\".".to_owned()];
        for (rcode, length) in [(0, 90), (3, 40), (0, 50)] {
            let answer = Answer {
                rcode,
                truncated: false,
                case_changed: false,
                length,
            };
            measured.tally.count_right(&answer, 1_000);
        }
        measured.tally.count_wrong(Fault::NeverAsked);
        measured.tally.count_wrong(Fault::OtherQuestion);
        let text = measurement(&measured, &zero_copy());
        for (name, expected) in [
            ("wrong", "2"),
            ("answer_octets_max", "90"),
            ("rcodes", "NOERROR:2 NXDOMAIN:1"),
            ("wrong_kinds", "never-asked:1 other-question:1"),
            ("mode", "native zero-copy"),
            ("generator_was_the_limit", "1"),
        ] {
            assert_eq!(value(&text, name), expected, "{name}");
        }
    }

    #[test]
    fn drops_that_nobody_looked_at_are_empty() {
        let mut measured = measured();
        let drops = |measured: &Measurement| {
            let text = measurement(measured, &SOCKETS);
            ["interface_dropped_in", "interface_dropped_out"].map(|name| value(&text, name))
        };
        assert_eq!(drops(&measured), ["", ""]);
        measured.losses.interface = Some((0, 4));
        assert_eq!(drops(&measured), ["0", "4"]);
    }

    #[test]
    fn what_was_not_measured_is_empty() {
        let mut measured = measured();
        let values = |measured: &Measurement, names: &[&str]| {
            let text = measurement(measured, &SOCKETS);
            let values = names.iter().map(|name| value(&text, name));
            values.collect::<Vec<_>>().join("|")
        };
        let latencies = ["latency_p50_ns", "latency_max_ns", "answer_octets_max"];
        assert_eq!(values(&measured, &latencies), "||");
        let counts = ["sent", "right", "late", "unanswered", "rings_full"];
        assert_eq!(values(&measured, &counts), "7|0|0|7|0");
        measured.unread = true;
        assert_eq!(values(&measured, &counts), "7||||");
    }

    #[test]
    fn a_ramp_that_is_stopped_has_its_peak_alone() {
        let mut found = Ramp {
            peak: Some(Probe {
                rate: 3e3,
                offered: 3_000,
                sent: 3_000,
                right: 2_500,
                lost_here: 0,
                seconds: 1.0,
            }),
            ..Ramp::default()
        };
        assert_eq!(
            ramp(&found, &zero_copy()),
            "r99,loss_free,peak,generator_was_the_limit,mode\n,,2500,false,native zero-copy\n"
        );
        found.r99 = vec![Found {
            rate: 2e3,
            generator_was_the_limit: true,
        }];
        found.loss_free = vec![Found {
            rate: 0.0,
            generator_was_the_limit: false,
        }];
        assert!(ramp(&found, &zero_copy()).contains("\n2000,0,2500,true,"));
    }
}
