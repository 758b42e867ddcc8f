//! What is kept of every measurement: the figure, and everything that it depends on.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;

use super::cpu::Used;
use super::witness::Seen;

/// One measurement of one contender.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Record {
    pub scenario: String,
    pub contender: String,
    pub measure: &'static str,
    /// Counted from 1.
    pub repeat: u32,
    /// The figure itself, in `unit`.
    pub figure: f64,
    pub unit: &'static str,
    /// What the server says of itself.
    pub server: String,
    /// `sockets` or `xdp`.
    pub door: &'static str,
    /// How the generator got onto its interface.
    pub generator_mode: String,
    pub queues: u32,
    pub offered: f64,
    pub sent: f64,
    pub right: f64,
    /// Answers dropped unread, where answers were not wanted.
    pub unwanted: f64,
    pub seconds: f64,
    pub(super) used: Used,
    /// CPU time of the server's process, seconds.
    pub server_seconds: f64,
    pub witness: Seen,
    /// Why the run is not to be trusted.
    pub disturbed: Option<String>,
    /// Everything that the generator said.
    pub details: Value,
}

/// Where it was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub date: String,
    pub commit: String,
    pub kernel: String,
    pub cpu: String,
    pub cpus: usize,
    /// CPUs of generator and server.
    pub generator_cpu: usize,
    pub server_cpu: usize,
    pub memory_mib: u64,
}

impl Machine {
    /// Looks around.
    pub(super) fn here(generator_cpu: usize, server_cpu: usize) -> Machine {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Machine {
            date: said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            commit: said("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
            kernel: said("uname", &["-srm"]),
            cpu: field(&cpuinfo, "model name").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get()),
            generator_cpu,
            server_cpu,
            memory_mib: field(&meminfo, "MemTotal")
                .trim_end_matches(" kB")
                .parse()
                .map_or(0, |kilobytes: u64| kilobytes / 1024),
        }
    }
}

/// The folder of today's results.
pub(super) fn today() -> String {
    let date = said("date", &["-u", "+%Y-%m-%d"]);
    if date.is_empty() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        return now.map_or(0, |since| since.as_secs()).to_string();
    }
    date
}

/// The first line that a program prints; empty where it fails.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().next().unwrap_or_default().to_owned()
}

/// The value of the first line `NAME : VALUE`.
fn field<'t>(text: &'t str, name: &str) -> &'t str {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':'))
        .map_or("", |(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_names() {
        assert_eq!(field("a : 1\nmodel name\t: X 5\n", "model name"), "X 5");
        assert_eq!(field("", "model name"), "");
    }
}
