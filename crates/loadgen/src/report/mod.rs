//! Results as people and programs read them: text, JSON, CSV.

pub mod csv;
pub mod dnsperf;
pub mod json;
pub mod text;

use crate::failure::{Failure, Outcome};
use crate::tally::Tally;
use crate::xdp::Description;
use std::fmt;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use xsk::{AttachMode, BindMode};

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    /// One JSON object a line.
    Json,
    /// A line of names and a line of values a result.
    Csv,
}

/// What carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

impl Transport {
    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
        }
    }
}

/// How queries get onto the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Xdp(Description),
    KernelSockets {
        threads: usize,
        transport: Transport,
    },
}

impl Way {
    /// How the program is attached and sockets are bound: `native` or `generic`, `zero-copy` or `copy`; `none` and
    /// `kernel sockets`.
    pub fn mode(&self) -> (&'static str, &'static str) {
        let Way::Xdp(description) = self else {
            return ("none", "kernel sockets");
        };
        let attached = match description.attached {
            AttachMode::Generic => "generic",
            _ => "native",
        };
        let bound = match description.bound {
            BindMode::ZeroCopy => "zero-copy",
            _ => "copy",
        };
        (attached, bound)
    }
}

/// Why something did not get to standard output: what came first.
static UNSAID: OnceLock<String> = OnceLock::new();

/// Writes to standard output at once. Where nobody reads it any more (`| head -1`), the run goes on in silence; of what could
/// not be written [`all_is_said`] tells at the end.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = said
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = UNSAID.set(error.to_string());
    }
}

/// Whether standard output has all that was said.
///
/// # Errors
/// It has not, because the disk is full for example: results are not there.
pub fn all_is_said() -> Outcome<()> {
    match UNSAID.get() {
        None => Ok(()),
        Some(error) => Err(Failure::new(format!(
            "writing to standard output: {error}: results are missing there"
        ))),
    }
}

/// Writes to standard error at once, whether somebody reads it or not: the terminal may be gone, the disk full.
pub fn tell(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a table to standard output, and to standard error the sentences that it has no place for, a line each.
pub fn say_table<S: fmt::Display>(table: &str, sentences: impl IntoIterator<Item = S>) {
    say(table);
    for sentence in sentences {
        tell(&format!("{sentence}\n"));
    }
}

/// The latencies that are shown: a name and a quantile.
pub const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
];

/// The latency that this part of the right answers stayed below, in nanoseconds. `None`: nothing was answered right.
pub fn quantile(tally: &Tally, quantile: f64) -> Option<u64> {
    let latency = &tally.latency;
    // The bucket's upper end may lie above what was ever seen.
    let value = || latency.value_at_quantile(quantile).min(latency.max());
    (!latency.is_empty()).then(value)
}

/// The same as people read it.
pub fn quantile_text(tally: &Tally, part: f64) -> String {
    or_dash(quantile(tally, part).map(Time))
}

/// A value as people read it: `-` where nothing was measured, for a 0 would say that something was.
pub fn or_dash(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Octets of the longest right answer. `None`: there was none.
pub fn longest_answer(tally: &Tally) -> Option<u16> {
    (tally.right > 0).then_some(tally.answer_octets_max)
}

/// A part of a whole in per cent; 0 of 0 is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

/// A time as people read it: `850 ns`, `35.1 us`, `2.40 ms`, `1.50 s`.
pub struct Time(pub u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} us", nanoseconds / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} ms", nanoseconds / 1e6),
            _ => write!(f, "{:.2} s", nanoseconds / 1e9),
        }
    }
}

/// The name of a response code, or its number.
pub fn rcode_text(rcode: Option<u16>) -> String {
    match rcode {
        None => "OTHER".to_owned(),
        Some(number) => {
            wire::codes::rcode::name(number).map_or_else(|| format!("RCODE{number}"), str::to_owned)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_that_fits() {
        let texts: Vec<String> = [999, 35_100, 2_400_000, 1_500_000_000]
            .into_iter()
            .map(|time| Time(time).to_string())
            .collect();
        assert_eq!(texts, ["999 ns", "35.1 us", "2.40 ms", "1.50 s"]);
    }

    #[test]
    fn no_quantile_lies_above_what_was_seen() {
        let mut tally = Tally::default();
        tally.latency.record(1_234_567).unwrap();
        for (name, part) in QUANTILES {
            assert!(
                quantile(&tally, part) <= Some(tally.latency.max()),
                "{name}"
            );
        }
        assert_eq!(percent(1, 0), 0.0);
    }

    #[test]
    fn what_was_not_measured_is_no_number() {
        let mut tally = Tally::default();
        assert_eq!(quantile(&tally, 0.5), None);
        assert_eq!(quantile_text(&tally, 0.99), "-");
        assert_eq!(longest_answer(&tally), None);
        tally.latency.record(1_500).unwrap();
        assert_eq!(quantile_text(&tally, 0.99), "1.5 us");
    }
}
