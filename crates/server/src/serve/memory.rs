//! How near this process is to the limit of its memory cgroup: at the limit the kernel ends it. What can do with less (packet
//! caches) takes no more when it is near.

use crate::log;
use crate::words;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that must be left, at least: what comes within a second, when this is looked at again.
const LEFT_AT_LEAST: u64 = 16 << 20;

/// And this part of the limit.
const LEFT_PARTS: u64 = 20;

/// The files that tell of one cgroup; names of cgroup v2 or v1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Files {
    limit: PathBuf,
    used: PathBuf,
    statistics: PathBuf,
}

/// The limit of this process's cgroup, if there is one to be read.
#[derive(Debug, Default)]
pub(super) struct Memory(Option<Files>);

impl Memory {
    /// Finds the cgroup once: a service stays in its own.
    pub(super) fn find() -> Memory {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let files = places(&own).into_iter().find(|files| files.limit.exists());
        Memory(files)
    }

    /// Looks, and lets caches grow or not.
    pub(super) fn look(&self) {
        let Some(files) = &self.0 else { return };
        let may_grow = files.has_room().unwrap_or(true);
        if words::let_grow(may_grow) {
            match may_grow {
                true => log::notice!("memory: there is room again, packet caches may grow"),
                false => log::warn!(
                    "memory: near the limit of {}: packet caches grow no more, new entries take the place of old ones",
                    files.limit.display()
                ),
            }
        }
    }
}

impl Files {
    fn at(folder: &Path, [limit, used]: [&str; 2]) -> Files {
        Files {
            limit: folder.join(limit),
            used: folder.join(used),
            statistics: folder.join("memory.stat"),
        }
    }

    /// `None`: there is no limit.
    fn has_room(&self) -> Option<bool> {
        let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let (limit, used) = (number(&self.limit)?, number(&self.used)?);
        let statistics = fs::read_to_string(&self.statistics).unwrap_or_default();
        Some(is_enough(limit, used.saturating_sub(cached(&statistics))))
    }
}

/// Where this process's cgroup is, by what /proc/self/cgroup says (cgroups(7)): "hierarchy-ID:controller-list:cgroup-path".
fn places(own: &str) -> Vec<Files> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let root = Path::new("/sys/fs/cgroup");
        match controllers {
            "" => Some(Files::at(
                &root.join(path),
                ["memory.max", "memory.current"],
            )),
            _ if controllers.split(',').any(|name| name == "memory") => Some(Files::at(
                &root.join("memory").join(path),
                ["memory.limit_in_bytes", "memory.usage_in_bytes"],
            )),
            _ => None,
        }
    };
    own.lines().filter_map(line).collect()
}

/// Bytes of files that the kernel keeps and would let go first.
fn cached(statistics: &str) -> u64 {
    let value = |name: &str| {
        let mut lines = statistics.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    value("total_inactive_file ")
        .or_else(|| value("inactive_file "))
        .unwrap_or(0)
}

fn is_enough(limit: u64, used: u64) -> bool {
    limit.saturating_sub(used) >= LEFT_AT_LEAST.max(limit / LEFT_PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_is_found_by_either_version() {
        let own = "4:memory:/system.slice/millrace.service\n1:name=systemd:/x\n0::/a/b\n";
        let found = places(own);
        assert_eq!(found.len(), 2);
        let v1 = "/sys/fs/cgroup/memory/system.slice/millrace.service/memory.limit_in_bytes";
        assert_eq!(found[0].limit, Path::new(v1));
        assert_eq!(found[1].limit, Path::new("/sys/fs/cgroup/a/b/memory.max"));
    }

    #[test]
    fn files_in_memory_do_not_count() {
        let statistics = "cache 4096\ninactive_file 8192\ntotal_inactive_file 12288\n";
        assert_eq!(cached(statistics), 12_288);
        assert_eq!(cached("anon 1\ninactive_file 8192\n"), 8_192);
        assert_eq!(cached(""), 0);
    }

    #[test]
    fn a_twentieth_or_16_mib_must_be_left() {
        assert!(is_enough(1 << 30, 900 << 20));
        assert!(!is_enough(1 << 30, 1_000 << 20));
        assert!(is_enough(64 << 20, 48 << 20));
        assert!(!is_enough(64 << 20, 49 << 20));
        assert!(is_enough(u64::MAX, 1 << 40));
    }
}
