//! What must not creep up: memory, descriptors, the time that answers take. A process is compared with itself, the time over all.

use std::fs;
use std::time::Duration;

use crate::{During, Failure, Outcome};

/// What a process may take more than at its first reading: caches, rings of recent queries and buffers fill meanwhile.
const GROWTH_KILOBYTES: u64 = 64 << 10;
/// Connections to backends, and sockets that are being exchanged.
const GROWTH_DESCRIPTORS: u64 = 32;
/// The p99 of the last third against that of the first; and what a busy machine adds.
const SLOWER_AT_MOST: u32 = 4;
const SLOWER_ANYWAY: Duration = Duration::from_millis(20);

/// What one process takes at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// Which of the processes that have served, counted from 1.
    pub generation: usize,
    pub resident_kilobytes: u64,
    pub descriptors: u64,
}

impl Reading {
    pub(super) fn of(process: u32, generation: usize) -> Outcome<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"));
        let status = status.during("reading the daemon's status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        let descriptors = fs::read_dir(format!("/proc/{process}/fd"));
        Ok(Self {
            generation,
            resident_kilobytes: kilobytes.ok_or_else(|| Failure::new("no VmRSS"))?,
            descriptors: descriptors.during("reading its descriptors")?.count() as u64,
        })
    }
}

/// All readings of a soak.
#[derive(Debug, Default)]
pub(super) struct Drift {
    readings: Vec<Reading>,
    slowest: Vec<Duration>,
}

impl Drift {
    /// Adds what was read while all was calm, and the p99 of that time.
    pub(super) fn add(&mut self, reading: Reading, p99: Duration) -> Outcome<()> {
        self.readings.push(reading);
        self.slowest.push(p99);
        let mut own = self
            .readings
            .iter()
            .filter(|other| other.generation == reading.generation);
        let first = own.next().expect("at least the one that was just added");
        let grown = reading.resident_kilobytes > first.resident_kilobytes + GROWTH_KILOBYTES
            || reading.descriptors > first.descriptors + GROWTH_DESCRIPTORS;
        match grown {
            true => Err(Failure::new(format!(
                "it grows: {first:?}, now {reading:?}"
            ))),
            false => Ok(()),
        }
    }

    /// p99 of the first and of the last third of the soak: their medians.
    pub(super) fn p99(&self) -> (Duration, Duration) {
        let third = (self.slowest.len() / 3).max(1).min(self.slowest.len());
        let end = self.slowest.len() - third;
        (median(&self.slowest[..third]), median(&self.slowest[end..]))
    }

    /// Fails if answers take longer at the end than at the beginning.
    pub(super) fn check_p99(&self) -> Outcome<()> {
        let (first, last) = self.p99();
        match last > first * SLOWER_AT_MOST + SLOWER_ANYWAY {
            true => Err(Failure::new(format!("p99 was {first:?}, and is {last:?}"))),
            false => Ok(()),
        }
    }

    /// The most that any process took.
    pub(super) fn most(&self) -> (u64, u64) {
        let most = |of: fn(&Reading) -> u64| self.readings.iter().map(of).max().unwrap_or(0);
        (
            most(|reading| reading.resident_kilobytes),
            most(|reading| reading.descriptors),
        )
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(generation: usize, descriptors: u64) -> Reading {
        Reading {
            generation,
            resident_kilobytes: 1_000,
            descriptors,
        }
    }

    #[test]
    fn a_process_is_compared_with_itself() {
        let mut drift = Drift::default();
        let p99 = Duration::from_millis(1);
        assert!(drift.add(reading(1, 100), p99).is_ok());
        assert!(drift.add(reading(1, 120), p99).is_ok());
        assert!(drift.add(reading(2, 1_000), p99).is_ok());
        assert!(drift.add(reading(1, 140), p99).is_err(), "40 more");
        assert_eq!(drift.most(), (1_000, 1_000));
    }

    #[test]
    fn answers_that_become_slow_are_found() {
        let mut drift = Drift::default();
        for time in 0..9 {
            let p99 = Duration::from_millis(if time < 6 { 5 } else { 50 });
            drift.add(reading(1, 1), p99).expect("no growth");
        }
        assert!(drift.check_p99().is_err());
        assert!(Drift::default().check_p99().is_ok());
    }
}
