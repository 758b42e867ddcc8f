//! Time as the pipeline sees it: read once per batch by whoever owns the loop, and passed in. And the time of
//! day, for what leaves the process.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment, in nanoseconds since the process first asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now(pub u64);

impl Now {
    /// Reads the monotonic clock (23 ns).
    pub fn read() -> Now {
        static START: OnceLock<Instant> = OnceLock::new();
        Now(START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
    }

    /// Whole seconds since the process first asked.
    pub fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// Time that has passed since `earlier`; zero when that lies in the future.
    pub fn since(self, earlier: Now) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Seconds since 1970, as the machine's clock has it; 0 where that is before.
pub fn unix() -> u64 {
    unix_of(SystemTime::now())
}

/// A moment of the machine's clock in seconds since 1970; 0 where it is before.
pub fn unix_of(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
