//! Loading a compiled kernel program, and finding its parts.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, Once};

use caps::{CapSet, Capability, CapsHashSet};
use libbpf_rs::{MapCore, Object, ObjectBuilder, PrintLevel};

use crate::error::{Error, Result};
use crate::sys::bpf::{self, Map};

/// Whether this kernel gives XDP programs frames of several buffers (`xdp.frags`, 5.18).
pub(crate) fn has_buffers() -> bool {
    bpf::has_xdp_helper(libbpf_sys::BPF_FUNC_xdp_get_buff_len)
}

/// Loads an ELF file of ours with its constants set. `has_buffers`: as a program that takes frames of several buffers, so
/// that a large MTU does not forbid native mode. `shared`: maps that exist already and take the place of the file's.
pub(crate) fn load(
    elf: &[u8],
    constants: &[u8],
    has_buffers: bool,
    shared: &[(&str, &Map)],
) -> Result<Object> {
    let failed = |error: libbpf_rs::Error| {
        let doing = format!(
            "loading the kernel program (needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or CAP_SYS_ADMIN{}",
            match missing() {
                missing if missing.is_empty() => format!("){}", complaints()),
                // libbpf and the verifier would guess at other reasons.
                missing => format!("; {} missing)", missing.join(" and ")),
            }
        );
        Error::system(doing, io::Error::other(error))
    };
    collect_complaints();
    let mut object = ObjectBuilder::default().open_memory(elf).map_err(failed)?;
    for mut map in object.maps_mut() {
        // libbpf names it after the object: match on the suffix.
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(constants).map_err(failed)?;
        }
        if let Some((_, existing)) = shared.iter().find(|(name, _)| map.name() == *name) {
            map.reuse_fd(existing.descriptor()).map_err(failed)?;
        }
    }
    if has_buffers {
        for mut program in object.progs_mut() {
            program.set_flags(libbpf_sys::BPF_F_XDP_HAS_FRAGS);
        }
    }
    object.load().map_err(failed)
}

/// A program of a loaded object.
pub(crate) fn program_of(object: &Object, name: &str) -> Result<OwnedFd> {
    let program = object.progs().find(|program| program.name() == name);
    let program = program.unwrap_or_else(|| panic!("the object has no program `{name}`"));
    let kept = program.as_fd().try_clone_to_owned();
    kept.map_err(|error| Error::system("keeping the kernel program", error))
}

/// A map of a loaded object, whose key and value are as large as we think.
pub(crate) fn map_of(object: &Object, name: &str, key: usize, value: usize) -> Result<Map> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.unwrap_or_else(|| panic!("the object has no map `{name}`"));
    assert_eq!(
        (map.key_size() as usize, map.value_size() as usize),
        (key, value),
        "octets of {name}'s key and value"
    );
    let failed = |error| Error::system(format!("keeping the kernel program's map `{name}`"), error);
    Map::new(map.as_fd().try_clone_to_owned().map_err(failed)?).map_err(failed)
}

/// A map that another process has handed over, whose key and value must be as large as we think.
pub(crate) fn map_from(descriptor: OwnedFd, name: &str, key: usize, value: usize) -> Result<Map> {
    let failed = |error| Error::system(format!("looking at the map `{name}`"), error);
    let facts = bpf::describe_map(&descriptor).map_err(failed)?;
    if (facts.key_size, facts.value_size) != (key, value) {
        return Err(Error::Invalid(format!(
            "the map `{name}` has {} and {} octets of key and value, not {key} and {value}",
            facts.key_size, facts.value_size
        )));
    }
    Map::new(descriptor).map_err(failed)
}

/// The counter of this number in an array of counters per CPU, summed over all CPUs.
pub(crate) fn sum_over_cpus(counters: &Map, number: u32) -> Result<u64> {
    let counts = counters
        .lookup(&number.to_ne_bytes())
        .map_err(|error| Error::system("reading the kernel program's counters", error))?;
    Ok(counts
        .chunks_exact(8)
        .map(|count| u64::from_ne_bytes(count.try_into().expect("8 octets")))
        .sum())
}

/// Capabilities of which loading takes all, where there is no CAP_SYS_ADMIN: capabilities(7).
const NEEDED: [Capability; 3] = [
    Capability::CAP_BPF,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_PERFMON,
];

/// What this thread lacks for loading a program; nothing where that cannot be found out.
fn missing() -> Vec<String> {
    caps::read(None, CapSet::Effective).map_or_else(|_| Vec::new(), |had| missing_in(&had))
}

fn missing_in(had: &CapsHashSet) -> Vec<String> {
    if had.contains(&Capability::CAP_SYS_ADMIN) {
        return Vec::new();
    }
    let missing = NEEDED.iter().filter(|needed| !had.contains(*needed));
    missing.map(Capability::to_string).collect()
}

/// What libbpf has said lately; it would go to stderr otherwise.
static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// How many of libbpf's lines an error shows: the verifier's reason stands at the end.
const COMPLAINTS_SHOWN: usize = 4;

fn collect_complaints() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
            lock_complaints().push(text)
        })));
    });
    lock_complaints().clear();
}

fn complaints() -> String {
    let said = std::mem::take(&mut *lock_complaints()).concat();
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        // It guesses at what the error says already.
        .filter(|line| !line.is_empty() && !line.contains("bpf_object__probe_loading"))
        .collect();
    lines[lines.len().saturating_sub(COMPLAINTS_SHOWN)..]
        .iter()
        .map(|line| format!("; {line}"))
        .collect()
}

fn lock_complaints() -> std::sync::MutexGuard<'static, Vec<String>> {
    COMPLAINTS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_by_what_is_there() {
        let of = |had: &[Capability]| missing_in(&had.iter().copied().collect());
        let [bpf, net_admin, perfmon] = NEEDED;
        assert_eq!(of(&NEEDED), [""; 0]);
        assert_eq!(of(&[Capability::CAP_SYS_ADMIN]), [""; 0], "alone");
        assert_eq!(of(&[bpf, net_admin]), ["CAP_PERFMON"]);
        assert_eq!(of(&[bpf, perfmon]), ["CAP_NET_ADMIN"]);
        assert_eq!(of(&[]), ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]);
    }
}
