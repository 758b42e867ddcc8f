//! Tells of workers that stall: the kernel program counts what it passes to kernel sockets because of one (bpf/README.md, "The
//! heartbeat"), and nobody else says so.

use super::overview::passed_for_stall;
use super::{Daemon, lock};
use crate::log;

/// Looks, one a second, without a passed packet after which a stall is over: what comes later is told anew.
const OVER: u32 = 10;

/// What was passed because of each worker, by its number.
#[derive(Default)]
pub(super) struct Stalls(Vec<Stall>);

#[derive(Default)]
struct Stall {
    /// Packets until the last look.
    passed: u64,
    /// Looks that are left until it is over. 0: there is none.
    left: u32,
}

impl Stalls {
    /// The lines for stalls that have begun since the last look. `passed`: all packets so far, by worker; fewer than before when an
    /// interface has gone with its counts.
    fn look(&mut self, passed: &[u64]) -> Vec<String> {
        self.0.resize_with(passed.len(), Stall::default);
        let stalls = self.0.iter_mut().zip(passed).enumerate();
        let lines = stalls.filter_map(|(worker, (stall, &passed))| {
            let new = stall.look(passed)?;
            let packets = match new {
                1 => "1 packet for it was".to_owned(),
                _ => format!("{new} packets for it were"),
            };
            Some(format!(
                "worker-{worker} has shown no life for 100 ms or longer: {packets} passed to kernel sockets, and more will be until it does (millrace_xsk_heartbeat_passes)"
            ))
        });
        lines.collect()
    }
}

impl Stall {
    /// How many packets are new, if they are the first.
    fn look(&mut self, passed: u64) -> Option<u64> {
        let new = passed.saturating_sub(self.passed);
        self.passed = passed;
        if new == 0 {
            self.left = self.left.saturating_sub(1);
            return None;
        }
        let is_told = self.left > 0;
        self.left = OVER;
        (!is_told).then_some(new)
    }
}

impl Daemon {
    /// Once a second.
    pub(super) fn tell_of_stalls(&mut self) {
        let passed = self.passed_by_worker();
        let lines = self.stalls.look(&passed);
        lines.iter().for_each(|line| log::warn!("{line}"));
    }

    fn passed_by_worker(&self) -> Vec<u64> {
        let mut passed = vec![0; self.workers.len()];
        for steered in lock(&self.steering).devices() {
            for queue in steered.queues() {
                passed[self.worker_of(queue)] += passed_for_stall(steered, queue);
            }
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_told_when_it_begins_and_anew_after_ten_quiet_seconds() {
        let mut stalls = Stalls::default();
        assert!(stalls.look(&[0, 0]).is_empty());
        let told = stalls.look(&[0, 66]);
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("worker-1 has shown no life for 100 ms or longer: 66 packets ")
        );
        // It goes on, with pauses.
        for passed in [100, 100, 100, 101] {
            assert!(stalls.look(&[0, passed]).is_empty());
        }
        for _ in 0..OVER {
            assert!(stalls.look(&[0, 101]).is_empty());
        }
        assert!(stalls.look(&[0, 102])[0].contains(": 1 packet for it was "));
    }

    #[test]
    fn counts_that_go_with_their_interface_are_no_stall() {
        let mut stalls = Stalls::default();
        stalls.look(&[50]);
        (0..OVER).for_each(|_| assert!(stalls.look(&[50]).is_empty()));
        assert!(stalls.look(&[0]).is_empty());
        assert_eq!(stalls.look(&[7]).len(), 1);
    }
}
