//! Results as text: kxdpgun's lines first, so that scripts which read them go on working, then what it does not know.

use super::{QUANTILES, Time, Way, percent, quantile, rcode_text};
use crate::judge::Fault;
use crate::ramp::Ramp;
use crate::search::{Found, Probe};
use crate::tally::Tally;
use crate::watch::Part;
use crate::xdp::Measurement;
use std::fmt::Write;
use xsk::{AttachMode, BindMode};

/// Octets of Ethernet's frame check sequence, preamble and gap: what a frame takes on the wire besides itself.
const WIRE_EXTRA: u64 = 24;

/// The line before a run: interface, threads, mode.
pub fn header(way: &Way) -> String {
    let Way::Xdp(description) = way else {
        return "using kernel sockets, threads 1, TCP\n".to_owned();
    };
    let attached = match description.attached {
        AttachMode::Generic => "generic mode",
        _ => "native mode",
    };
    let bound = match description.bound {
        BindMode::ZeroCopy => "zero-copy",
        _ => "copy",
    };
    format!(
        "using interface {}, XDP threads {}, UDP, {attached}, {bound}\n",
        description.interface, description.lanes
    )
}

/// The result of a run. `headers`: octets in front of a message on the wire. `drop`: answers were thrown away unread.
pub fn measurement(measurement: &Measurement, headers: usize, drop: bool) -> String {
    let mut out = String::new();
    for (number, lane) in measurement.lanes.iter().enumerate() {
        let _ = writeln!(
            out,
            "thread#{number:02}: sent {}, received {}",
            lane.sent, lane.received
        );
    }
    let tally = &measurement.tally;
    let seconds = measurement.sending.as_secs_f64();
    let per_second = |count: u64| count as f64 / seconds;
    let _ = writeln!(
        out,
        "total queries:     {} ({:.0} pps) ({:.4}%)",
        tally.sent,
        per_second(tally.sent),
        percent(tally.sent, measurement.offered())
    );
    if drop {
        let _ = writeln!(
            out,
            "answers dropped unread: {}",
            measurement.losses.unwanted
        );
    } else {
        replies(&mut out, tally, seconds, headers);
        judgement(&mut out, measurement);
    }
    losses(&mut out, measurement, drop);
    let _ = writeln!(out, "duration: {} s", (seconds * 1e3).round() / 1e3);
    out
}

/// What kxdpgun prints of answers.
fn replies(out: &mut String, tally: &Tally, seconds: f64, headers: usize) {
    let answers = tally.answers();
    let _ = writeln!(
        out,
        "total replies:     {answers} ({:.0} pps) ({:.0}%)",
        answers as f64 / seconds,
        percent(answers, tally.sent).floor()
    );
    if let Some(size) = tally.answer_octets.checked_div(tally.right) {
        let octets = tally.answer_octets + tally.right * (headers as u64 + WIRE_EXTRA);
        let bits = octets as f64 * 8.0 / seconds;
        let _ = writeln!(
            out,
            "average DNS reply size: {size} B\n\
             average Ethernet reply rate: {bits:.0} bps ({:.2} Mbps)",
            bits / 1e6
        );
    }
    for (rcode, count) in tally.rcodes() {
        let name = rcode_text(rcode);
        let _ = writeln!(out, "responded {name}:   {count}");
    }
}

/// What was right and what was not, and how long it took.
fn judgement(out: &mut String, measurement: &Measurement) {
    let tally = &measurement.tally;
    let _ = writeln!(
        out,
        "answered right:    {} ({:.0}/s) ({:.4}% of queries)",
        tally.right,
        tally.right as f64 / measurement.sending.as_secs_f64(),
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
        "truncated (TC): {}, question in other case: {}, longest answer: {} B",
        tally.truncated, tally.case_changed, tally.answer_octets_max
    );
    if tally.right > 0 {
        let quantiles =
            QUANTILES.map(|(name, part)| format!("{name} {}", Time(quantile(tally, part))));
        let _ = writeln!(
            out,
            "latency from the intended time: {}",
            quantiles.join(", ")
        );
    }
}

/// Where queries and answers went that are missing.
fn losses(out: &mut String, measurement: &Measurement, drop: bool) {
    let (tally, losses) = (&measurement.tally, &measurement.losses);
    let _ = writeln!(
        out,
        "not sent in time (generator's limit): {}",
        tally.skipped
    );
    if !drop {
        let _ = writeln!(
            out,
            "answers lost on this side: {} to full rings, {} too long for a frame, {} on other queues",
            losses.rings_full, losses.large, losses.elsewhere
        );
    }
    let _ = writeln!(
        out,
        "dropped by the interface: {} in, {} out",
        losses.interface_rx, losses.interface_tx
    );
    for limit in &measurement.limits {
        let _ = writeln!(out, "{limit}");
    }
}

/// One line of statistics in between, of a part of the run.
pub fn periodic(tally: &Tally, part: Part) -> String {
    format!(
        "{:.3} to {:.3} s: sent {}, right {}, wrong {}, duplicate {}, late {}, p99 {}\n",
        part.since.as_secs_f64(),
        part.until.as_secs_f64(),
        tally.sent,
        tally.right,
        tally.wrong_total(),
        tally.duplicate,
        tally.late,
        Time(quantile(tally, 0.99))
    )
}

/// One line for a probe of a ramp.
pub fn probe(probe: &Probe, measurement: &Measurement) -> String {
    format!(
        "offered {:.0}/s: sent {:.2}%, right {:.3}%, p99 {}\n",
        probe.rate,
        percent(probe.sent, probe.offered),
        percent(probe.right, probe.offered),
        Time(quantile(&measurement.tally, 0.99))
    )
}

/// The result of a ramp.
pub fn ramp(ramp: &Ramp) -> String {
    let mut out = String::new();
    let all = |found: &[Found]| {
        let rates: Vec<String> = found
            .iter()
            .map(|found| format!("{:.0}", found.rate))
            .collect();
        rates.join(", ")
    };
    let _ = writeln!(
        out,
        "R99 (99% of what was offered answered right): {:.0}/s, median of {}",
        ramp.r99_median(),
        all(&ramp.r99)
    );
    if !ramp.loss_free.is_empty() {
        let _ = writeln!(
            out,
            "highest rate without loss:                    {:.0}/s, median of {}",
            ramp.loss_free_median(),
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
    if ramp.generator_was_the_limit() {
        let _ = writeln!(
            out,
            "The generator itself or --highest was the limit: the server may do more."
        );
    }
    out
}
