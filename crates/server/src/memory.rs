//! How much memory this process may still take: by the limits of its memory cgroup and of those around it, and by what the
//! system has. At memory.max the kernel ends a process, above memory.high it makes it sleep.

use std::fs;
use std::path::{Path, PathBuf};

/// What the system says of its memory (proc(5)): kilobytes, of which the kernel counts 1,024.
const MEMINFO: &str = "/proc/meminfo";

/// Bytes that must be left, at least: what comes within a second, when this is looked at again.
const LEFT_AT_LEAST: u64 = 16 << 20;

/// And this part of the limit.
const LEFT_PARTS: u64 = 20;

/// Of what the system has, this part must be left: MemAvailable is without what the kernel keeps for itself.
const SYSTEM_PARTS: u64 = 100;

/// What cgroup v1 says where there is no limit: the most pages that the kernel counts (PAGE_COUNTER_MAX), of 4 KiB.
const UNLIMITED: u64 = i64::MAX as u64 & !0xfff;

/// The files that tell of one cgroup; names of cgroup v2 or v1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Files {
    limit: PathBuf,
    used: PathBuf,
    statistics: PathBuf,
}

/// The limits of this process's cgroup and those around it, as far as they can be read.
#[derive(Debug, Default)]
pub struct Cgroups(Vec<Files>);

/// What may be taken until a limit is met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The file that says it.
    pub limit: PathBuf,
    /// Octets that there may be, and that may be taken still.
    pub most: u64,
    pub octets: u64,
}

impl Cgroups {
    /// Finds the cgroup once: a service stays in its own.
    pub fn find() -> Cgroups {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let places = places(&own).into_iter();
        Cgroups(places.filter(|files| files.limit.exists()).collect())
    }

    /// A limit that is so near that nothing more should be taken.
    pub fn near(&self) -> Option<&Path> {
        let near = self.0.iter().find(|files| files.is_near());
        near.map(|files| files.limit.as_path())
    }

    /// How many bytes too many are taken, when half of what must be left is gone: so many that a quarter of it is gone then, so that
    /// caches do not grow at once for what they have given back.
    pub fn too_much(&self) -> u64 {
        let all = self.0.iter().filter_map(Files::too_much);
        all.max().unwrap_or(0)
    }

    /// What may be taken until the first limit is met. `None`: there is no limit.
    pub fn left(&self) -> Option<Left> {
        let lefts = self.0.iter().filter_map(Files::left);
        lefts.min_by_key(|left| left.octets)
    }

    /// The same, where the system may have less than the limits allow.
    pub fn left_of_all(&self) -> Option<Left> {
        let system = fs::read_to_string(MEMINFO).ok();
        let system = system.and_then(|text| available(&text));
        let lefts = self.left().into_iter().chain(system);
        lefts.min_by_key(|left| left.octets)
    }
}

/// What the system can give without swapping (proc(5): MemAvailable).
fn available(meminfo: &str) -> Option<Left> {
    let kilobytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let most = kilobytes("MemTotal:")? * 1_024;
    let available = kilobytes("MemAvailable:")? * 1_024;
    Some(Left {
        limit: MEMINFO.into(),
        most,
        octets: available.saturating_sub(LEFT_AT_LEAST.max(most / SYSTEM_PARTS)),
    })
}

impl Files {
    fn at(folder: &Path, [limit, used]: [&str; 2]) -> Files {
        Files {
            limit: folder.join(limit),
            used: folder.join(used),
            statistics: folder.join("memory.stat"),
        }
    }

    /// What may be taken; `None`: there is no limit.
    fn left(&self) -> Option<Left> {
        let (most, used) = self.limit_and_used()?;
        Some(Left {
            limit: self.limit.clone(),
            most,
            octets: to_take(most, used.saturating_sub(self.cached())),
        })
    }

    /// See [`Cgroups::too_much`].
    fn too_much(&self) -> Option<u64> {
        let (limit, used) = self.limit_and_used()?;
        let left = limit.saturating_sub(used.saturating_sub(self.cached()));
        let reserve = reserve(limit);
        (left < reserve / 2).then(|| reserve / 4 * 3 - left)
    }

    /// Whether nothing may be taken. The statistics, for which the kernel adds up what every core has counted, are read only
    /// when the limit is near without them: this is asked once a second.
    fn is_near(&self) -> bool {
        let all_counted = |(limit, used)| to_take(limit, used) == 0;
        self.limit_and_used().is_some_and(all_counted)
            && self.left().is_some_and(|left| left.octets == 0)
    }

    fn limit_and_used(&self) -> Option<(u64, u64)> {
        let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let limit = number(&self.limit).filter(|limit| *limit < UNLIMITED)?;
        Some((limit, number(&self.used)?))
    }

    fn cached(&self) -> u64 {
        cached(&fs::read_to_string(&self.statistics).unwrap_or_default())
    }
}

/// Where this process's cgroup is, and those that it is in, by what /proc/self/cgroup says (cgroups(7)):
/// "hierarchy-ID:controller-list:cgroup-path".
fn places(own: &str) -> Vec<Files> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let root = Path::new("/sys/fs/cgroup");
        let (root, limits, used) = match controllers {
            "" => (
                root.to_owned(),
                &["memory.max", "memory.high"][..],
                "memory.current",
            ),
            _ if controllers.split(',').any(|name| name == "memory") => (
                root.join("memory"),
                &["memory.limit_in_bytes"][..],
                "memory.usage_in_bytes",
            ),
            _ => return None,
        };
        let folders = Path::new(path).ancestors().map(|part| root.join(part));
        let files = folders.flat_map(|folder| {
            let of = |limit: &&str| Files::at(&folder, [limit, used]);
            limits.iter().map(of).collect::<Vec<_>>()
        });
        Some(files.collect::<Vec<_>>())
    };
    own.lines().filter_map(line).flatten().collect()
}

/// Bytes of files that the kernel keeps and would let go first, without those that are mapped: the program itself among them,
/// which would be read from the disk again and again.
fn cached(statistics: &str) -> u64 {
    let value = |name: &str| {
        let mut lines = statistics.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let either = |one, other| value(one).or_else(|| value(other)).unwrap_or(0);
    let inactive = either("total_inactive_file ", "inactive_file ");
    inactive.saturating_sub(either("total_mapped_file ", "file_mapped "))
}

fn to_take(limit: u64, used: u64) -> u64 {
    let left = limit.saturating_sub(used);
    left.saturating_sub(reserve(limit))
}

/// Bytes that must be left of a limit.
fn reserve(limit: u64) -> u64 {
    LEFT_AT_LEAST.max(limit / LEFT_PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_is_found_by_either_version() {
        let own = "4:memory:/system.slice/millrace.service\n1:name=systemd:/x\n0::/a/b\n";
        let found = places(own);
        // With those around it; version 2 has two limits.
        assert_eq!(found.len(), 3 + 2 * 3);
        let v1 = "/sys/fs/cgroup/memory/system.slice/millrace.service/memory.limit_in_bytes";
        assert_eq!(found[0].limit, Path::new(v1));
        assert_eq!(found[3].limit, Path::new("/sys/fs/cgroup/a/b/memory.max"));
        assert_eq!(found[4].limit, Path::new("/sys/fs/cgroup/a/b/memory.high"));
        assert_eq!(found[5].limit, Path::new("/sys/fs/cgroup/a/memory.max"));
        assert_eq!(found[4].used, found[3].used);
    }

    #[test]
    fn files_in_memory_do_not_count_unless_mapped() {
        let statistics =
            "cache 4096\ninactive_file 8192\ntotal_inactive_file 12288\ntotal_mapped_file 4096\n";
        assert_eq!(cached(statistics), 8_192);
        assert_eq!(cached("anon 1\ninactive_file 8192\n"), 8_192);
        // The program's own pages would come back at once.
        assert_eq!(cached("file_mapped 9000\ninactive_file 8192\n"), 0);
        assert_eq!(cached(""), 0);
    }

    #[test]
    fn what_the_kernel_would_let_go_is_asked_for_near_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::at(folder.path(), ["memory.max", "memory.current"]);
        let write = |path: &Path, number: u64| fs::write(path, format!("{number}\n")).unwrap();
        assert!(!files.is_near(), "no files, no limit");
        fs::write(&files.limit, "max\n").unwrap();
        assert_eq!(files.left(), None, "a file that sets none");
        write(&files.used, 1);
        write(&files.limit, 9_223_372_036_854_771_712);
        assert_eq!(files.left(), None, "version 1 says it so");
        write(&files.limit, 1 << 30);
        write(&files.used, 1_000 << 20);
        assert!(files.is_near());
        let cached = format!("inactive_file {}\n", 200_u64 << 20);
        fs::write(&files.statistics, cached).unwrap();
        assert!(!files.is_near());
        fs::remove_file(&files.statistics).unwrap();
        write(&files.used, 900 << 20);
        assert!(!files.is_near());
        let left = Left {
            limit: files.limit.clone(),
            most: 1 << 30,
            octets: to_take(1 << 30, 900 << 20),
        };
        assert_eq!(files.left().as_ref(), Some(&left));
        assert_eq!(Cgroups(vec![files]).left(), Some(left));
    }

    #[test]
    fn a_twentieth_or_16_mib_must_be_left() {
        assert!(to_take(1 << 30, 900 << 20) > 0);
        assert_eq!(to_take(1 << 30, 1_000 << 20), 0);
        assert_eq!(to_take(64 << 20, 44 << 20), 4 << 20);
        assert_eq!(to_take(64 << 20, 49 << 20), 0);
        assert!(to_take(u64::MAX, 1 << 40) > 1 << 40);
    }

    #[test]
    fn what_the_system_has_counts_where_it_is_less() {
        let text = "MemTotal:       24683624 kB\nMemFree:  1 kB\nMemAvailable:    2000000 kB\n";
        let left = available(text).unwrap();
        assert_eq!(left.most, 24_683_624 << 10);
        assert_eq!(left.octets, (2_000_000 << 10) - left.most / SYSTEM_PARTS);
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        assert!(Cgroups::default().left_of_all().is_some());
    }

    #[test]
    fn f33_what_is_too_much_is_given_back_when_half_of_the_reserve_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::at(folder.path(), ["memory.max", "memory.current"]);
        let write = |path: &Path, number: u64| fs::write(path, format!("{number}\n")).unwrap();
        assert_eq!(files.too_much(), None);
        write(&files.limit, 64 << 20);
        for (used, expected) in [
            (40, None),
            (50, None),
            (56, None),
            (57, Some(5)),
            (70, Some(12)),
        ] {
            write(&files.used, used << 20);
            assert_eq!(
                files.too_much(),
                expected.map(|number| number << 20),
                "{used}"
            );
        }
        fs::write(&files.statistics, format!("inactive_file {}\n", 20 << 20)).unwrap();
        assert_eq!(files.too_much(), None, "the kernel lets go of these first");
        let cgroups = Cgroups(vec![files.clone()]);
        assert_eq!(cgroups.too_much(), 0);
        fs::remove_file(&files.statistics).unwrap();
        assert_eq!(cgroups.too_much(), 12 << 20);
    }
}
