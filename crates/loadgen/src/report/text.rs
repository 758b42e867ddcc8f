//! Results as text: kxdpgun's lines first, so that scripts which read them go on working, then what it does not know.

use super::{QUANTILES, Way, longest_answer, or_dash, percent, quantile_text, rcode_text};
use crate::judge::Fault;
use crate::ramp::Ramp;
use crate::search::{Found, Probe};
use crate::tally::Tally;
use crate::watch::Part;
use crate::xdp::Measurement;
use std::fmt::Write;

/// The line before a run: interface, threads, mode.
pub fn header(way: &Way) -> String {
    let (attached, bound) = way.mode();
    match way {
        Way::Xdp(description) => format!(
            "using interface {}, XDP threads {}, UDP, {attached} mode, {bound}\n",
            description.interface, description.lanes
        ),
        Way::KernelSockets { threads, transport } => {
            let transport = transport.name();
            format!("using {bound}, threads {threads}, {transport}\n")
        }
    }
}

/// The result of a run. `headers`: octets in front of a message in its frame.
pub fn measurement(measurement: &Measurement, headers: usize) -> String {
    let mut out = String::new();
    for (number, lane) in measurement.lanes.iter().enumerate() {
        let received = match measurement.unread {
            true => String::new(),
            false => format!(", received {}", lane.received),
        };
        let _ = writeln!(out, "thread#{number:02}: sent {}{received}", lane.sent);
    }
    let tally = &measurement.tally;
    let seconds = measurement.sending.as_secs_f64();
    let per_second = |count: u64| per_second(count, seconds);
    let _ = writeln!(
        out,
        "total queries:     {} ({:.0} pps) ({:.4}%)",
        tally.sent,
        per_second(tally.sent),
        percent(tally.sent, measurement.offered())
    );
    if measurement.unread {
        let _ = writeln!(
            out,
            "answers dropped unread: {}",
            measurement.losses.unwanted
        );
    } else {
        replies(&mut out, tally, seconds, headers);
        judgement(&mut out, measurement);
    }
    losses(&mut out, measurement);
    let _ = writeln!(out, "duration: {}", duration(seconds));
    out
}

/// A rate; 0 where a run was stopped before it began.
fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// How long was sent: whole seconds first where it is these and little more, as a busy generator takes them. kxdpgun 3.2 prints
/// whole seconds alone, and scripts read no others.
fn duration(seconds: f64) -> String {
    const LITTLE: f64 = 0.15;
    let (exact, whole) = ((seconds * 1e3).round() / 1e3, seconds.floor());
    if whole >= 1.0 && exact > whole && seconds - whole <= LITTLE {
        format!("{whole} s ({exact} s)")
    } else {
        format!("{exact} s")
    }
}

/// What kxdpgun prints of answers.
fn replies(out: &mut String, tally: &Tally, seconds: f64, headers: usize) {
    let answers = tally.answers();
    let _ = writeln!(
        out,
        "total replies:     {answers} ({:.0} pps) ({:.0}%)",
        per_second(answers, seconds),
        percent(answers, tally.sent).floor()
    );
    // Of no answers, too: 0, as kxdpgun has it.
    let size = tally.answer_octets.checked_div(tally.right).unwrap_or(0);
    // Of frames as programs see them, without check sequence, preamble and gap: as kxdpgun 3.2 counts.
    let octets = tally.answer_octets + tally.right * headers as u64;
    let bits = per_second(octets * 8, seconds);
    let _ = writeln!(
        out,
        "average DNS reply size: {size} B\n\
         average Ethernet reply rate: {bits:.0} bps ({:.2} Mbps)",
        bits / 1e6
    );
    for (rcode, count) in tally.rcodes() {
        let name = rcode_text(rcode);
        // kxdpgun's counts stand below each other.
        let name = format!("{name}:");
        let _ = writeln!(out, "responded {name:<10} {count}");
    }
}

/// What was right and what was not, and how long it took.
fn judgement(out: &mut String, measurement: &Measurement) {
    let tally = &measurement.tally;
    let _ = writeln!(
        out,
        "answered right:    {} ({:.0}/s) ({:.4}% of queries)",
        tally.right,
        per_second(tally.right, measurement.sending.as_secs_f64()),
        percent(tally.right, tally.sent)
    );
    let _ = writeln!(
        out,
        "wrong {}, duplicate {}, late {}, never answered {}",
        tally.wrong_total(),
        tally.duplicate,
        tally.late,
        tally.unanswered()
    );
    for fault in Fault::all().filter(|fault| tally.wrong[fault.index()] > 0) {
        let _ = writeln!(
            out,
            "wrong, {}: {}",
            fault.name(),
            tally.wrong[fault.index()]
        );
    }
    let _ = writeln!(
        out,
        "truncated (TC): {}, question in other case: {}, longest answer: {}",
        tally.truncated,
        tally.case_changed,
        or_dash(longest_answer(tally).map(|octets| format!("{octets} B")))
    );
    let quantiles = QUANTILES.map(|(name, part)| format!("{name} {}", quantile_text(tally, part)));
    let _ = writeln!(
        out,
        "latency from the intended time: {}",
        quantiles.join(", ")
    );
}

/// Where queries and answers went that are missing.
fn losses(out: &mut String, measurement: &Measurement) {
    let (tally, losses) = (&measurement.tally, &measurement.losses);
    let _ = writeln!(
        out,
        "not sent in time (generator's limit): {}",
        tally.skipped
    );
    if !measurement.unread {
        let _ = writeln!(
            out,
            "answers lost on this side: {} to full rings, {} too long for a frame, {} on other queues",
            losses.rings_full, losses.large, losses.elsewhere
        );
    }
    if let Some((received, to_be_sent)) = losses.interface {
        let _ = writeln!(
            out,
            "dropped by the interface: {received} in, {to_be_sent} out"
        );
    }
    for sentence in measurement.sentences() {
        let _ = writeln!(out, "{sentence}");
    }
}

/// One line of statistics in between, of a part of the run. `drop`: answers are thrown away unread.
pub fn periodic(tally: &Tally, part: Part, drop: bool) -> String {
    if drop {
        return format!(
            "{:.3} to {:.3} s: sent {}\n",
            part.since.as_secs_f64(),
            part.until.as_secs_f64(),
            tally.sent
        );
    }
    format!(
        "{:.3} to {:.3} s: sent {}, right {}, wrong {}, duplicate {}, late {}, p99 {}\n",
        part.since.as_secs_f64(),
        part.until.as_secs_f64(),
        tally.sent,
        tally.right,
        tally.wrong_total(),
        tally.duplicate,
        tally.late,
        quantile_text(tally, 0.99)
    )
}

/// One line for a probe of a ramp.
pub fn probe(probe: &Probe, measurement: &Measurement) -> String {
    format!(
        "offered {:.0}/s: sent {:.2}%, right {:.3}%, p99 {}\n",
        probe.rate,
        percent(probe.sent, probe.offered),
        percent(probe.right, probe.offered),
        quantile_text(&measurement.tally, 0.99)
    )
}

/// The result of a ramp.
pub fn ramp(ramp: &Ramp) -> String {
    let mut out = String::new();
    // A rate of 0 was not measured: not even the lowest one that is tried reached the goal.
    let text = |rate: f64, below: &str| match rate > 0.0 {
        true => format!("{rate:.0}"),
        false => format!("{below}{:.0}", ramp.least),
    };
    let all = |found: &[Found]| {
        let rates: Vec<String> = found.iter().map(|found| text(found.rate, "<")).collect();
        rates.join(", ")
    };
    let _ = match ramp.r99_median() {
        Some(rate) => writeln!(
            out,
            "R99 (99% of what was offered answered right): {}/s, median of {}",
            text(rate, "below "),
            all(&ramp.r99)
        ),
        None => writeln!(
            out,
            "R99 (99% of what was offered answered right): stopped before a rate was found"
        ),
    };
    if let Some(rate) = ramp.loss_free_median() {
        let _ = writeln!(
            out,
            "highest rate without loss:                    {}/s, median of {}",
            text(rate, "below "),
            all(&ramp.loss_free)
        );
    }
    if let Some(peak) = &ramp.peak {
        let _ = writeln!(
            out,
            "peak:                                         {:.0}/s answered right of {:.0}/s offered",
            peak.answers_per_second(),
            peak.rate
        );
    }
    if let Some(limit) = ramp.limit() {
        let _ = writeln!(out, "{limit}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Answer;
    use crate::report::Transport;
    use crate::xdp::{Description, LaneCounts, Losses};
    use std::time::{Duration, UNIX_EPOCH};
    use xsk::{AttachMode, BindMode};

    /// Half a second of four queries and three answers.
    fn measured() -> Measurement {
        let mut tally = Tally {
            sent: 4,
            ..Tally::default()
        };
        for (rcode, length) in [(0, 100), (0, 100), (3, 40)] {
            let answer = Answer {
                rcode,
                truncated: false,
                case_changed: false,
                length,
            };
            tally.count_right(&answer, 1_000);
        }
        Measurement {
            began: UNIX_EPOCH,
            sending: Duration::from_millis(500),
            lanes: vec![LaneCounts {
                sent: 4,
                received: 3,
            }],
            tally,
            losses: Losses {
                unwanted: 7,
                interface: Some((5, 6)),
                ..Losses::default()
            },
            interrupted: 0,
            limits: vec!["The generator itself was the limit.".to_owned()],
            unread: false,
            failure: None,
            remark: None,
        }
    }

    #[test]
    fn a_result_has_kxdpguns_lines_and_ours() {
        // Ethernet, IPv4 and UDP: 42 octets.
        let expected = "\
thread#00: sent 4, received 3
total queries:     4 (8 pps) (100.0000%)
total replies:     3 (6 pps) (75%)
average DNS reply size: 80 B
average Ethernet reply rate: 5856 bps (0.01 Mbps)
responded NOERROR:   2
responded NXDOMAIN:  1
answered right:    3 (6/s) (75.0000% of queries)
wrong 0, duplicate 0, late 0, never answered 1
truncated (TC): 0, question in other case: 0, longest answer: 100 B
latency from the intended time: p50 1.0 us, p90 1.0 us, p99 1.0 us, p99.9 1.0 us, max 1.0 us
not sent in time (generator's limit): 0
answers lost on this side: 0 to full rings, 0 too long for a frame, 0 on other queues
dropped by the interface: 5 in, 6 out
The generator itself was the limit.
duration: 0.5 s
";
        assert_eq!(measurement(&measured(), 42), expected);
    }

    #[test]
    fn scripts_find_every_line_of_kxdpgun_and_whole_seconds() {
        for (seconds, told) in [
            (0.5, "0.5 s"),
            (5.0, "5 s"),
            (5.000_4, "5 s"),
            (60.1014, "60 s (60.101 s)"),
            (2.5, "2.5 s"),
            (4.999_9, "5 s"),
        ] {
            assert_eq!(duration(seconds), told);
        }
        let mut measured = measured();
        measured.tally = Tally {
            sent: 4,
            ..Tally::default()
        };
        let text = measurement(&measured, 42);
        let expected = "\
total replies:     0 (0 pps) (0%)
average DNS reply size: 0 B
average Ethernet reply rate: 0 bps (0.00 Mbps)
";
        assert!(text.contains(expected), "{text}");
        // Ours: nothing that reads like a latency that was measured.
        assert!(text.contains("longest answer: -\n"), "{text}");
        let latencies = "intended time: p50 -, p90 -, p99 -, p99.9 -, max -\n";
        assert!(text.contains(latencies), "{text}");
        let part = Part {
            since: Duration::ZERO,
            until: Duration::from_secs(1),
            offered: None,
        };
        let line = periodic(&measured.tally, part, false);
        assert!(line.ends_with(" late 0, p99 -\n"), "{line}");
    }

    #[test]
    fn of_answers_that_are_thrown_away_nothing_is_told_but_their_number() {
        let expected = "\
thread#00: sent 4
total queries:     4 (8 pps) (100.0000%)
answers dropped unread: 7
not sent in time (generator's limit): 0
dropped by the interface: 5 in, 6 out
The generator itself was the limit.
duration: 0.5 s
";
        let unread = Measurement {
            unread: true,
            ..measured()
        };
        assert_eq!(measurement(&unread, 42), expected);
    }

    #[test]
    fn statistics_in_between_tell_of_answers_unless_they_are_thrown_away() {
        let part = Part {
            since: Duration::from_millis(500),
            until: Duration::from_secs(1),
            offered: None,
        };
        let told = |drop| periodic(&measured().tally, part, drop);
        assert_eq!(
            told(false),
            "0.500 to 1.000 s: sent 4, right 3, wrong 0, duplicate 0, late 0, p99 1.0 us\n"
        );
        assert_eq!(told(true), "0.500 to 1.000 s: sent 4\n");
    }

    #[test]
    fn a_run_that_was_stopped_before_it_began_has_rates() {
        let mut stopped = measured();
        stopped.sending = Duration::ZERO;
        let text = measurement(&stopped, 42);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn drops_that_nobody_looked_at_are_not_told() {
        let mut measured = measured();
        measured.losses.interface = None;
        let text = measurement(&measured, 42);
        assert!(!text.contains("dropped by the interface"), "{text}");
    }

    #[test]
    fn faults_are_told_by_name() {
        let mut measured = measured();
        measured.tally.count_wrong(Fault::OtherQuestion);
        let text = measurement(&measured, 42);
        assert!(text.contains("\nwrong 1, duplicate 0,"), "{text}");
        assert!(text.contains("\nwrong, other-question: 1\n"), "{text}");
    }

    #[test]
    fn the_line_before_a_run_tells_the_way() {
        let way = |attached, bound| {
            Way::Xdp(Description {
                interface: "cli0".to_owned(),
                lanes: 2,
                attached,
                bound,
            })
        };
        assert_eq!(
            header(&way(AttachMode::Generic, BindMode::Copy)),
            "using interface cli0, XDP threads 2, UDP, generic mode, copy\n"
        );
        assert_eq!(
            header(&way(AttachMode::Native, BindMode::ZeroCopy)),
            "using interface cli0, XDP threads 2, UDP, native mode, zero-copy\n"
        );
        let sockets = Way::KernelSockets {
            threads: 1,
            transport: Transport::Tcp,
        };
        assert_eq!(header(&sockets), "using kernel sockets, threads 1, TCP\n");
    }

    #[test]
    fn a_ramp_tells_every_search() {
        let found = |rate| Found {
            rate,
            generator_was_the_limit: true,
        };
        let mut found_all = Ramp {
            r99: vec![found(3e3), found(1e3), found(2e3)],
            loss_free: vec![found(900.0)],
            peak: Some(Probe {
                rate: 3e3,
                offered: 6_000,
                sent: 6_000,
                right: 5_000,
                lost_here: 0,
                seconds: 2.0,
            }),
            least: 100.0,
            failure: None,
        };
        let peak = format!("{:<46}2500/s answered right of 3000/s offered\n", "peak:");
        let expected = format!(
            "R99 (99% of what was offered answered right): 2000/s, median of 3000, 1000, 2000\n\
             highest rate without loss:                    900/s, median of 900\n\
             {peak}\
             The generator itself or --highest was the limit: the server may do more.\n"
        );
        assert_eq!(ramp(&found_all), expected);
        // Not even the lowest rate was without loss.
        found_all.loss_free = vec![found(0.0)];
        let lossy = ramp(&found_all);
        let line = "without loss:                    below 100/s, median of <100\n";
        assert!(lossy.contains(line), "{lossy}");
        // Stopped before the first search had ended.
        found_all.r99.clear();
        found_all.loss_free.clear();
        let expected = format!(
            "R99 (99% of what was offered answered right): stopped before a rate was found\n{peak}"
        );
        assert_eq!(ramp(&found_all), expected);
    }
}
