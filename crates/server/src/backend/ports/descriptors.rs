//! What ports may take of the descriptors that this process may have: listeners, clients over TCP, workers and control come first.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs;

/// Of the limit one part in so many is left to others, whatever they have already: clients over TCP, queues, connections to
/// servers.
const PARTS: usize = 5;

/// Any address gets so many, if the kernel gives them: queries must leave.
const FEWEST: usize = 16;

/// Up to what the administrator allows: each source address wants a thousand descriptors, and the usual soft limit is that.
pub(super) fn raise_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // A refusal shows as a shortfall of ports.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

pub(super) fn limit() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE)
        .map_or(0, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}

/// How many of `wanted` ports another source address gets; it has `own` of them already.
pub(super) fn share_of(wanted: usize, own: usize) -> usize {
    // Where that is not told the kernel refuses what is too much.
    let used = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    share(wanted, limit(), used.saturating_sub(own))
}

/// Half of what is left, for a later reload may bring one more address, and that one needs ports too.
fn share(wanted: usize, limit: usize, used: usize) -> usize {
    let left = limit.saturating_sub(limit / PARTS).saturating_sub(used);
    wanted.min((left / 2).max(FEWEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What so many addresses get, one after the other, where others have 40 descriptors.
    fn shares(limit: usize, addresses: usize) -> Vec<usize> {
        let mut used = 40;
        let mut next = || {
            let ports = share(1_024, limit, used);
            used += ports;
            ports
        };
        (0..addresses).map(|_| next()).collect()
    }

    #[test]
    fn ports_leave_descriptors_to_others_and_to_addresses_that_come_later() {
        assert_eq!(shares(1_048_576, 3), [1_024; 3]);
        assert_eq!(shares(4_096, 3), [1_024, 1_024, 594]);
        assert_eq!(shares(1_024, 4), [390, 195, 97, 49]);
        assert_eq!(shares(256, 4), [82, 41, 21, 16]);
        assert_eq!(shares(64, 1), [16], "too few for anybody");
    }
}
