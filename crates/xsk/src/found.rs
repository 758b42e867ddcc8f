//! What is on an interface, whoever has put it there.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::attach::attached_program;
use crate::dnsdist;
use crate::error::Result;
use crate::kept;
use crate::nic::Nic;
use crate::sys::bpf;

/// Where bpffs is mounted.
const PINS: &str = "/sys/fs/bpf";

/// How many files below it are looked at, and how deep.
const FILES_MAX: usize = 4_096;
const DEPTH_MAX: usize = 4;

/// The XDP program of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub id: u32,
    /// In the driver, not in the kernel's stack.
    pub native: bool,
    /// As far as the kernel keeps it (15 octets); `None`: this process may not look (CAP_SYS_ADMIN), nor at the maps.
    pub name: Option<String>,
    /// What its instructions hash to, in hexadecimal: the same wherever it is loaded.
    pub tag: Option<String>,
    /// Names of its maps.
    pub maps: Vec<String>,
    /// Where it, its link and its maps are pinned.
    pub pins: Vec<PathBuf>,
}

/// Whose a program is, by its name, its maps and its pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owned {
    /// Ours, kept for the next millrace.
    Kept,
    /// Ours, and it goes with the process that has it: another millrace.
    Running,
    /// The one that `millrace xdp load --dnsdist` attaches.
    KeptForDnsdist,
    /// One that has dnsdist's maps.
    Dnsdist,
    /// What libxdp calls the programs of several owners by.
    Dispatcher,
    /// It may be a firewall.
    Other,
}

impl Found {
    /// What is on the interface; `None`: nothing.
    ///
    /// # Errors
    /// No netlink.
    pub fn on(nic: &Nic) -> Result<Option<Found>> {
        let Some(id) = attached_program(nic.index)? else {
            return Ok(None);
        };
        let facts = bpf::program_by_id(id).and_then(|program| bpf::describe_program(&program));
        let (name, tag, used) = match facts {
            Ok(facts) => (Some(facts.name), Some(hexadecimal(facts.tag)), facts.maps),
            Err(_) => (None, None, Vec::new()),
        };
        let mut pins = pins_of(id, &used);
        // They may be in another bpffs than the usual one.
        pins.extend(dnsdist::pins_on(&kept::folder_of(&nic.name), &used));
        pins.sort();
        pins.dedup();
        Ok(Some(Found {
            id,
            native: bpf::is_native(nic.index).unwrap_or(true),
            name,
            tag,
            maps: used.iter().filter_map(|&id| map_name(id)).collect(),
            pins,
        }))
    }

    /// Whose it is, on the interface with this name.
    pub fn owned(&self, interface: &str) -> Owned {
        let is_kept = |link: &PathBuf| self.pins.contains(link);
        let [ours, for_dnsdist] = kept::links_of(interface);
        let has_map = |name: &str| self.maps.iter().any(|map| map == name);
        match self.name.as_deref() {
            _ if is_kept(&ours) => Owned::Kept,
            _ if is_kept(&for_dnsdist) => Owned::KeptForDnsdist,
            _ if has_map("xskDestinations") => Owned::Dnsdist,
            Some("steer") => Owned::Running,
            Some("xdp_dispatcher") => Owned::Dispatcher,
            _ => Owned::Other,
        }
    }
}

impl Display for Found {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mode = if self.native { "native" } else { "generic" };
        let name = self.name.as_deref().unwrap_or("(root may see its name)");
        write!(out, "{name}, id {}, in {mode} mode", self.id)?;
        match &self.tag {
            Some(tag) => write!(out, ", tag {tag}"),
            None => Ok(()),
        }
    }
}

fn hexadecimal(tag: [u8; 8]) -> String {
    format!("{:016x}", u64::from_be_bytes(tag))
}

fn map_name(id: u32) -> Option<String> {
    let facts = bpf::map_by_id(id).and_then(|map| bpf::describe_map(&map));
    facts.ok().map(|facts| facts.name)
}

/// The files of bpffs that are this program, a link of it, or one of these maps.
fn pins_of(program: u32, maps: &[u32]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(Path::new(PINS), DEPTH_MAX, &mut files);
    files.retain(|path| {
        let is_wanted = |info: String| refers_to(&info, program, maps);
        pinned_info(path).is_some_and(is_wanted)
    });
    files
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => collect(&entry.path(), depth - 1, files),
            Ok(kind) if kind.is_file() && files.len() < FILES_MAX => files.push(entry.path()),
            _ => {}
        }
    }
}

/// What the kernel says of an object that is pinned there (/proc/PID/fdinfo: proc_pid_fdinfo(5)).
fn pinned_info(path: &Path) -> Option<String> {
    let object = bpf::pinned(path).ok()?;
    fs::read_to_string(format!("/proc/self/fdinfo/{}", object.as_raw_fd())).ok()
}

/// A program has the line `prog_id:`, and so has a link; a map has `map_id:`.
fn refers_to(info: &str, program: u32, maps: &[u32]) -> bool {
    let number = |line: &str, name: &str| line.strip_prefix(name)?.trim().parse::<u32>().ok();
    info.lines().any(|line| {
        number(line, "prog_id:") == Some(program)
            || number(line, "map_id:").is_some_and(|id| maps.contains(&id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pinned_is_told_by_what_the_kernel_says() {
        let link = "pos:\t0\nlink_type:\txdp\nlink_id:\t9\nprog_tag:\t0a\nprog_id:\t7\n";
        let map = "pos:\t0\nmap_type:\t17\nmap_id:\t7\n";
        assert!(refers_to(link, 7, &[]) && !refers_to(link, 9, &[9]));
        assert!(refers_to(map, 8, &[3, 7]) && !refers_to(map, 7, &[]));
    }

    #[test]
    fn whose_a_program_is() {
        let of = |name: &str, maps: &[&str], pins: &[&str]| {
            let found = Found {
                id: 7,
                name: Some(name.to_owned()),
                maps: maps.iter().map(|&map| map.to_owned()).collect(),
                pins: pins.iter().map(PathBuf::from).collect(),
                ..Found::default()
            };
            found.owned("ens3f0")
        };
        let link = "/sys/fs/bpf/millrace/ens3f0/link";
        assert_eq!(of("steer", &["sockets"], &[link]), Owned::Kept);
        assert_eq!(of("steer", &["sockets"], &[]), Owned::Running);
        let maps = ["xsk_map", "xskDestinations"];
        let for_dnsdist = "/sys/fs/bpf/millrace/ens3f0/dnsdist";
        assert_eq!(of("dnsdist", &maps, &[for_dnsdist]), Owned::KeptForDnsdist);
        assert_eq!(of("xdp_dns_filter", &maps, &[]), Owned::Dnsdist);
        assert_eq!(of("xdp_dispatcher", &[], &[]), Owned::Dispatcher);
        assert_eq!(of("filter", &["rules"], &["/sys/fs/bpf/x"]), Owned::Other);
    }
}
