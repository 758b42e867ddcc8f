//! What processes of the server's hold, and what the kernel holds for them: flat, however often they are killed (F21).

use std::fs;
use std::path::Path;

use crate::namespace::Namespace;
use crate::{During, Outcome};

/// Pages of 4 KiB that a kill may leave locked, at most: the frames of one queue are three times as many. Others on the machine
/// lock some meanwhile.
const LOCKED_PAGES: u64 = 1_024;

/// What is held at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Footing {
    /// Processes in the server's namespace, and their descriptors.
    processes: usize,
    descriptors: usize,
    /// Pages that the kernel has locked for I/O, on the whole machine; 0 before Linux 5.8, which does not tell.
    locked_pages: u64,
}

impl Footing {
    /// As it is now, in the server's namespace.
    pub(super) fn of(server: &Namespace) -> Outcome<Self> {
        let own = server.run(|| fs::read_link("/proc/thread-self/ns/net"))?;
        let own = own.during("reading which namespace the server's is")?;
        let vmstat = fs::read_to_string("/proc/vmstat").during("reading /proc/vmstat")?;
        let mut footing = Self {
            locked_pages: locked_pages(&vmstat),
            ..Self::default()
        };
        for process in fs::read_dir("/proc").during("reading /proc")?.flatten() {
            let folder = process.path();
            if fs::read_link(folder.join("ns/net")).is_ok_and(|theirs| theirs == own) {
                footing.processes += 1;
                footing.descriptors += descriptors(&folder);
            }
        }
        Ok(footing)
    }

    /// Whether so many kills have left nothing, each a little that adds up included.
    pub(super) fn is_flat_since(&self, before: &Self, kills: u16) -> bool {
        let locked = before.locked_pages + LOCKED_PAGES * u64::from(kills);
        self.processes <= before.processes
            && self.descriptors <= before.descriptors
            && self.locked_pages <= locked
    }
}

/// Those of a process (its folder in /proc), which may end meanwhile.
fn descriptors(folder: &Path) -> usize {
    fs::read_dir(folder.join("fd")).map_or(0, Iterator::count)
}

fn locked_pages(vmstat: &str) -> u64 {
    let row = |name: &str| {
        let mut rows = vmstat.lines().filter_map(|line| line.split_once(' '));
        let row = rows.find(|(found, _)| *found == name);
        row.and_then(|(_, count)| count.parse().ok()).unwrap_or(0)
    };
    let locked: u64 = row("nr_foll_pin_acquired");
    locked.saturating_sub(row("nr_foll_pin_released"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_kill_leaves_is_found() {
        let before = Footing {
            processes: 2,
            descriptors: 90,
            locked_pages: 50_000,
        };
        assert!(before.is_flat_since(&before, 200));
        let fewer = Footing {
            descriptors: 80,
            locked_pages: 0,
            ..before
        };
        assert!(fewer.is_flat_since(&before, 200));
        for more in [
            Footing {
                processes: 3,
                ..before
            },
            Footing {
                descriptors: 91,
                ..before
            },
            // One queue's frames each time.
            Footing {
                locked_pages: 50_000 + 200 * 3_072,
                ..before
            },
        ] {
            assert!(!more.is_flat_since(&before, 200), "{more:?}");
        }
    }

    #[test]
    fn locked_pages_are_those_that_were_not_given_back() {
        let text =
            "nr_dirtied 7\nnr_foll_pin_acquired 12300\nnr_foll_pin_released 12000\nnr_bounce 1\n";
        assert_eq!(locked_pages(text), 300);
        assert_eq!(locked_pages("nr_dirtied 7\n"), 0);
    }
}
