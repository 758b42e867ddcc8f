//! The results of `floodgate sockets`: dnsperf's statistics block, so that scripts which read it go on working, then what
//! it does not know.

use super::{QUANTILES, percent, quantile_text, rcode_text};
use crate::judge::Fault;
use crate::sockets::{Connections, End, Measurement};
use crate::tally::Tally;
use crate::watch::Part;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Name and version, where dnsperf has its own: scripts look for both lines, and record the version.
pub const BANNER: &str = concat!(
    "DNS Performance Testing Tool\nVersion ",
    env!("CARGO_PKG_VERSION"),
    "\nfloodgate, in the manner of dnsperf\n\n"
);

/// The lines before a run.
pub fn status(command_line: &str, servers: &[SocketAddr], until: &str) -> String {
    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    format!(
        "{BANNER}\
         [Status] Command line: {command_line}\n\
         [Status] Sending queries (to {})\n\
         [Status] Started at: {}\n\
         [Status] {until}\n",
        servers.join(", "),
        date(SystemTime::now()),
    )
}

/// When a run will stop, by its time limit and number of runs.
pub fn stopping(limit: Option<Duration>, runs: Option<u64>) -> String {
    let plural = |runs| if runs == 1 { "" } else { "s" };
    match (limit, runs) {
        (Some(limit), None) => format!("Stopping after {:.6} seconds", limit.as_secs_f64()),
        (None, Some(runs)) => format!("Stopping after {runs} run{} through file", plural(runs)),
        (Some(limit), Some(runs)) => format!(
            "Stopping after {:.6} seconds or {runs} run{} through file",
            limit.as_secs_f64(),
            plural(runs)
        ),
        (None, None) => "Stopping when interrupted".to_owned(),
    }
}

/// One line of statistics in between: answers a second in this part of the run.
pub fn interval(tally: &Tally, part: Part) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!(
        "{}.{:06}: {:.6}\n",
        now.as_secs(),
        now.subsec_micros(),
        tally.right as f64 / part.length().as_secs_f64()
    )
}

/// The block of a part of the run, instead of its line (`-O verbose-interval-stats`): as that of the whole run, but that its
/// run time is the time since the start, and that it tells no least and no longest latency. `histogram`: with the counts of
/// each bucket of latencies.
pub fn statistics(tally: &Tally, part: Part, histogram: bool) -> String {
    let mut out = String::from("Interval Statistics:\n\n");
    counts(&mut out, tally, (tally.given_up, 0));
    sizes_and_rate(&mut out, tally, (part.until, part.length()));
    mean_latency(&mut out, &tally.latency);
    if histogram {
        buckets(&mut out, &tally.latency, ANSWERS);
    }
    let _ = writeln!(out);
    out
}

/// The result of a run. `histogram`: with the counts of each bucket of latencies.
pub fn measurement(measurement: &Measurement, histogram: bool) -> String {
    let mut out = String::new();
    let end = match measurement.end {
        End::TimeLimit => "time limit",
        End::EndOfFile => "end of file",
        End::Interrupted => "interruption",
    };
    let _ = writeln!(out, "[Status] Testing complete ({end})\n\nStatistics:\n");
    let tally = &measurement.tally;
    let interrupted = measurement.interrupted;
    let lost = tally.sent.saturating_sub(tally.right + interrupted);
    counts(&mut out, tally, (lost, interrupted));
    let run_time = measurement.duration;
    sizes_and_rate(&mut out, tally, (run_time, run_time));
    latency(&mut out, &tally.latency, histogram.then_some(ANSWERS));
    if measurement.connections.attempts > 0 {
        connections(&mut out, &measurement.connections, histogram);
    }
    judgement(&mut out, tally);
    let overflowed = measurement.overflowed;
    let _ = writeln!(
        out,
        "  answers lost on this side: {overflowed} to full buffers of sockets"
    );
    for limit in measurement.limits() {
        let _ = writeln!(out, "\n{limit}");
    }
    out
}

fn counts(out: &mut String, tally: &Tally, (lost, interrupted): (u64, u64)) {
    let _ = writeln!(out, "  Queries sent:         {}", tally.sent);
    let mut line = |name: &str, count| {
        let _ = writeln!(
            out,
            "  {name:<21} {count} ({:.2}%)",
            percent(count, tally.sent)
        );
    };
    line("Queries completed:", tally.right);
    line("Queries lost:", lost);
    if interrupted > 0 {
        line("Queries interrupted:", interrupted);
    }
    let rcodes: Vec<String> = tally
        .rcodes()
        .map(|(rcode, count)| {
            let part = percent(count, tally.right);
            format!("{} {count} ({part:.2}%)", rcode_text(rcode))
        })
        .collect();
    let _ = writeln!(out, "\n  Response codes:       {}", rcodes.join(", "));
}

/// `counted`: the part of the run time in which the tally was counted.
fn sizes_and_rate(out: &mut String, tally: &Tally, (run_time, counted): (Duration, Duration)) {
    let average = |octets: u64, count: u64| octets.checked_div(count).unwrap_or(0);
    let seconds = run_time.as_secs_f64();
    let _ = writeln!(
        out,
        "  Average packet size:  request {}, response {}\n  \
           Run time (s):         {seconds:.6}\n  \
           Queries per second:   {:.6}\n",
        average(tally.sent_octets, tally.sent),
        average(tally.answer_octets, tally.right),
        tally.right as f64 / counted.as_secs_f64()
    );
}

/// What the buckets of latencies count.
const ANSWERS: &str = "answer count";
const CONNECTIONS: &str = "connection count";

/// Latencies of a whole run. `counted`: with the counts of each bucket, which are counts of this.
fn latency(out: &mut String, latency: &Histogram<u64>, counted: Option<&str>) {
    let least = if latency.is_empty() { 0 } else { latency.min() };
    let _ = writeln!(
        out,
        "  Average Latency (s):  {:.6} (min {:.6}, max {:.6})",
        latency.mean() / 1e9,
        least as f64 / 1e9,
        latency.max() as f64 / 1e9
    );
    deviation(out, latency);
    if let Some(counted) = counted {
        buckets(out, latency, counted);
    }
    let _ = writeln!(out);
}

/// Latencies of a part of a run.
fn mean_latency(out: &mut String, latency: &Histogram<u64>) {
    let mean = latency.mean() / 1e9;
    let _ = writeln!(out, "  Average Latency (s):  {mean:.6}");
    deviation(out, latency);
}

fn deviation(out: &mut String, latency: &Histogram<u64>) {
    if latency.len() > 1 {
        let deviation = latency.stdev() / 1e9;
        let _ = writeln!(out, "  Latency StdDev (s):   {deviation:.6}");
    }
}

/// Every bucket that has something, from its first to its last microsecond, in seconds.
fn buckets(out: &mut String, latency: &Histogram<u64>, counted: &str) {
    let _ = writeln!(out, "  Latency bucket (s):   {counted}");
    let mut counts = BTreeMap::<(u64, u64), u64>::new();
    for bucket in latency.iter_recorded() {
        let ends = bucket_of(bucket.value_iterated_to() / 1_000);
        *counts.entry(ends).or_insert(0) += bucket.count_at_value();
    }
    for ((first, last), count) in counts {
        let (first, last) = (first as f64 / 1e6, last as f64 / 1e6);
        let _ = writeln!(out, "  {first:.6} - {last:.6}:  {count}");
    }
}

/// The first and the last latency of the bucket that a latency is in, all in microseconds: from each power of two to the next
/// there are 32, "roughly 3 % resolution" (dnsperf's manual).
fn bucket_of(latency: u64) -> (u64, u64) {
    let width_bits = latency.checked_ilog2().unwrap_or(0).saturating_sub(5);
    let first = (latency >> width_bits) << width_bits;
    (first, first + (1_u64 << width_bits) - 1)
}

/// "Latency histograms for DNS answers and connections" (dnsperf's manual, `latency-histogram`).
fn connections(out: &mut String, connections: &Connections, histogram: bool) {
    let _ = writeln!(
        out,
        "Connection Statistics:\n\n  Reconnections:        {}\n",
        connections.again
    );
    let counted = histogram.then_some(CONNECTIONS);
    latency(out, &connections.latency, counted);
}

/// What dnsperf does not know.
fn judgement(out: &mut String, tally: &Tally) {
    let _ = writeln!(out, "Answers:\n");
    let _ = writeln!(
        out,
        "  right {}, wrong {}, duplicate {}, late {}, truncated (TC) {}, question in other case {}",
        tally.right,
        tally.wrong_total(),
        tally.duplicate,
        tally.late,
        tally.truncated,
        tally.case_changed
    );
    for fault in Fault::all().filter(|fault| tally.wrong[fault.index()] > 0) {
        let count = tally.wrong[fault.index()];
        let _ = writeln!(out, "  wrong, {}: {count}", fault.name());
    }
    let quantiles = QUANTILES.map(|(name, part)| format!("{name} {}", quantile_text(tally, part)));
    let _ = writeln!(out, "  latency: {}", quantiles.join(", "));
}

/// `Sat Nov 21 19:24:14 2026`, in UTC.
fn date(time: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days from 1 March of year 0, so that the day that is sometimes missing is the last of a year (Fliegel and Van
    // Flandern's method).
    let day = days + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    format!(
        "{} {} {day_of_month:2} {:02}:{:02}:{:02} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Answer;

    #[test]
    fn dates_are_written_as_ctime_does() {
        let at = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(at(951_827_696), "Tue Feb 29 12:34:56 2000");
        assert_eq!(at(1_795_289_054), "Sat Nov 21 19:24:14 2026");
        assert_eq!(at(4_107_542_399), "Sun Feb 28 23:59:59 2100");
        assert_eq!(at(4_107_542_400), "Mon Mar  1 00:00:00 2100");
    }

    #[test]
    fn the_block_has_dnsperfs_lines() {
        let mut tally = Tally {
            sent: 4,
            sent_octets: 124,
            ..Tally::default()
        };
        let answer = Answer {
            rcode: 3,
            truncated: false,
            case_changed: false,
            length: 31,
        };
        tally.count_right(&answer, 14_000);
        tally.count_right(&answer, 26_000);
        let measured = Measurement {
            began: UNIX_EPOCH,
            duration: Duration::from_secs(2),
            sending: Duration::from_secs(2),
            tally,
            interrupted: 1,
            overflowed: 3,
            busy: 0.5,
            rate: Some(4.0),
            connections: Connections::default(),
            end: End::TimeLimit,
            failure: None,
        };
        let text = super::measurement(&measured, true);
        let expected = "\
[Status] Testing complete (time limit)

Statistics:

  Queries sent:         4
  Queries completed:    2 (50.00%)
  Queries lost:         1 (25.00%)
  Queries interrupted:  1 (25.00%)

  Response codes:       NXDOMAIN 2 (100.00%)
  Average packet size:  request 31, response 31
  Run time (s):         2.000000
  Queries per second:   1.000000

  Average Latency (s):  0.000020 (min 0.000014, max 0.000026)
  Latency StdDev (s):   0.000006
  Latency bucket (s):   answer count
  0.000014 - 0.000014:  1
  0.000026 - 0.000026:  1

Answers:
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("on this side: 3 to full"), "{text}");
        assert!(text.contains("was the limit: 3 answers"), "{text}");
    }

    #[test]
    fn a_part_of_a_run_has_a_block_of_its_own() {
        let mut tally = Tally {
            sent: 4,
            sent_octets: 124,
            given_up: 1,
            ..Tally::default()
        };
        let answer = Answer {
            rcode: 0,
            truncated: false,
            case_changed: false,
            length: 31,
        };
        tally.count_right(&answer, 70_000);
        tally.count_right(&answer, 71_900);
        let part = Part {
            since: Duration::from_secs(1),
            until: Duration::from_secs(2),
            offered: None,
        };
        // Lost is what was given up: one more is still on its way.
        let expected = "\
Interval Statistics:

  Queries sent:         4
  Queries completed:    2 (50.00%)
  Queries lost:         1 (25.00%)

  Response codes:       NOERROR 2 (100.00%)
  Average packet size:  request 31, response 31
  Run time (s):         2.000000
  Queries per second:   2.000000

  Average Latency (s):  0.000071
  Latency StdDev (s):   0.000001
  Latency bucket (s):   answer count
  0.000070 - 0.000071:  2

";
        assert_eq!(statistics(&tally, part, true), expected);
        let plain = statistics(&tally, part, false);
        assert!(!plain.contains("bucket"), "{plain}");
        let line = interval(&tally, part);
        assert!(line.ends_with(": 2.000000\n"), "{line}");
    }

    #[test]
    fn buckets_are_three_per_cent_wide_at_most() {
        // As dnsperf 2.14 prints them.
        for (latency, bucket) in [
            (0, (0, 0)),
            (58, (58, 58)),
            (63, (63, 63)),
            (64, (64, 65)),
            (71, (70, 71)),
            (131, (128, 131)),
            (1400, (1376, 1407)),
            (1_000_000_000_000, (996_432_412_672, 1_013_612_281_855)),
        ] {
            assert_eq!(bucket_of(latency), bucket);
        }
        let connections = Connections {
            attempts: 1,
            ..Connections::default()
        };
        let told = |histogram| {
            let mut out = String::new();
            super::connections(&mut out, &connections, histogram);
            out
        };
        let line = "  Latency bucket (s):   connection count\n";
        assert!(told(true).contains(line), "{}", told(true));
        assert!(!told(false).contains("bucket"), "{}", told(false));
    }

    #[test]
    fn what_the_limit_was_is_said() {
        let measured = Measurement {
            began: UNIX_EPOCH,
            duration: Duration::from_secs(2),
            sending: Duration::from_secs(2),
            tally: Tally {
                sent: 4,
                ..Tally::default()
            },
            interrupted: 0,
            overflowed: 0,
            busy: 0.5,
            rate: Some(4.0),
            connections: Connections::default(),
            end: End::TimeLimit,
            failure: None,
        };
        assert_eq!(
            measured.limits(),
            [
                "2 queries a second were sent of 4 asked for: as many waited for their answers as may (-q)."
            ]
        );
        let text = super::measurement(&measured, false);
        // dnsperf's own line has zeros where nothing was answered; ours has none.
        for line in [
            "\n  Average Latency (s):  0.000000 (min 0.000000, max 0.000000)\n",
            "\n  latency: p50 -, p90 -, p99 -, p99.9 -, max -\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let cut_off = Measurement {
            connections: Connections {
                again: 3,
                ..Connections::default()
            },
            ..measured.clone()
        };
        let said = cut_off.limits().concat();
        let or = "as may (-q), or had no connection (3 were asked for again).";
        assert!(said.ends_with(or), "{said}");
        // A query was lost, and waited for until its time-out: all were sent in time.
        let waited = Measurement {
            duration: Duration::from_secs(7),
            tally: Tally {
                sent: 8,
                ..Tally::default()
            },
            ..measured.clone()
        };
        assert!(waited.limits().is_empty(), "{:?}", waited.limits());
        let without_port = Measurement {
            connections: Connections {
                without_port: 3,
                ..Connections::default()
            },
            ..measured.clone()
        };
        assert!(without_port.limits()[0].contains("3 times it had no port free"));
        let busy = Measurement {
            busy: 0.97,
            ..measured
        };
        assert!(busy.limits()[0].contains("at work 97% of the time"));
    }

    #[test]
    fn the_end_of_a_run_is_said_in_advance() {
        assert_eq!(stopping(None, Some(1)), "Stopping after 1 run through file");
        assert_eq!(
            stopping(Some(Duration::from_secs(2)), None),
            "Stopping after 2.000000 seconds"
        );
    }
}
