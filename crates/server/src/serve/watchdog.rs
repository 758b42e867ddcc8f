//! WATCHDOG=1 for systemd, as long as every worker makes its turns. A worker that hangs (a rule that loops, a defect) sends no
//! report, nothing is told, and when WatchdogSec= is over systemd starts the service anew.

use super::workers::reports;
use crate::notify;
use crate::worker::Reins;
use std::time::{Duration, Instant};

/// Reports are asked for so often within the time that systemd waits.
const TIMES: u32 = 3;

/// Starts to tell, if systemd waits for it. A thread of its own: what reads a configuration or serves TCP is not what is watched.
///
/// # Errors
/// The kernel gives no thread.
pub(super) fn start(workers: Vec<Reins>) -> std::io::Result<()> {
    let Some(interval) = notify::watchdog_interval() else {
        return Ok(());
    };
    let every = interval / TIMES;
    std::thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(move || {
            loop {
                let began = Instant::now();
                if all_report(&workers, every) {
                    notify::alive();
                }
                std::thread::sleep(every.saturating_sub(began.elapsed()));
            }
        })
        .map(drop)
}

/// Whether every worker reports within this time.
fn all_report(workers: &[Reins], within: Duration) -> bool {
    reports(workers.iter(), within) == workers.len()
}
