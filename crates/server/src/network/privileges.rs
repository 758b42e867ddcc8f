//! Privileges: what setting up takes, and how it is given away before anybody is served (capabilities(7)).
//!
//! Capabilities belong to threads, not to processes: a thread that runs already keeps what it has. So the order of a
//! start is:
//!
//! 1. [`raise_memlock`], sockets bound, programs attached, AF_XDP sockets bound: all on the one thread there is;
//! 2. [`drop_privileges`], which fails loudly when it meets a second thread that would keep more;
//! 3. threads: each starts with what is left.
//!
//! What serving needs afterwards is nothing:
//!
//! | what | needs |
//! | --- | --- |
//! | sockets and rings that are bound, their counters | nothing |
//! | backend ports, exchanged one by one (all above 1,023) | nothing |
//! | heartbeats and backend ports in the kernel program (mapped memory) | nothing |
//! | netlink: reading, following | nothing |
//! | destinations and queues in the kernel program (bpf(2) on maps that we hold) | nothing from Linux 5.19 on; before, CAP_BPF where kernel.unprivileged_bpf_disabled is not 0: then it is kept |
//! | a listener below port 1,024; a queue; a device, that a reload or the network adds | CAP_NET_BIND_SERVICE; CAP_NET_RAW; CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON: the [`helper`](super::helper) has them |

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Group, Uid, User};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;

/// What a configuration and the command line say.
#[derive(Debug, Clone, Default)]
pub struct Wish<'w> {
    /// `-u`: a name or a number.
    pub user: Option<&'w str>,
    /// `-g`: a name or a number.
    pub group: Option<&'w str>,
    /// addCapabilitiesToRetain.
    pub retain: &'w [Capability],
    /// Whether AF_XDP is in use.
    pub xdp: bool,
}

/// What became of it, for the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dropped {
    /// What is kept, by name.
    pub kept: Vec<String>,
    /// What was to be kept and never was there, and what is kept for a reason of ours.
    pub warnings: Vec<String>,
}

/// Why privileges could not be given away. To serve on with them would not be what was asked for.
#[derive(Debug)]
pub enum PrivilegeError {
    NoUser(String),
    NoGroup(String),
    /// The kernel refused.
    System {
        doing: String,
        error: io::Error,
    },
    /// Threads that were there before, by number, have more than was to be kept.
    Threads(Vec<i32>),
}

impl fmt::Display for PrivilegeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrivilegeError::NoUser(name) => {
                write!(out, "there is no user {name} (-u takes a name or a number)")
            }
            PrivilegeError::NoGroup(name) => write!(
                out,
                "there is no group {name} (-g takes a name or a number)"
            ),
            PrivilegeError::System { doing, error } => write!(out, "{doing}: {error}"),
            PrivilegeError::Threads(threads) => write!(
                out,
                "threads {threads:?} started before capabilities were dropped and keep them: this is a mistake in millrace"
            ),
        }
    }
}

impl std::error::Error for PrivilegeError {}

type Result<T> = std::result::Result<T, PrivilegeError>;

/// The capability of this name, in capital or small letters: `CAP_SYS_ADMIN`.
pub fn capability(name: &str) -> Option<Capability> {
    name.to_ascii_uppercase().parse().ok()
}

/// The names of all capabilities (capabilities(7)), sorted.
pub fn capabilities_there_are() -> String {
    names(&caps::all())
}

/// The names of these, sorted.
pub fn names<'c>(capabilities: impl IntoIterator<Item = &'c Capability>) -> String {
    let names = capabilities.into_iter().map(ToString::to_string);
    let sorted: BTreeSet<String> = names.collect();
    Vec::from_iter(sorted).join(", ")
}

/// What a reload has to say of addCapabilitiesToRetain: a process gives the others away as it starts, and gets none back.
pub fn capabilities_that_stay(began_with: &[Capability], wanted: &[Capability]) -> Option<String> {
    let listed = |all: &[Capability]| match all {
        [] => "none".to_owned(),
        all => names(all),
    };
    let (old, new) = (listed(began_with), listed(wanted));
    (old != new).then(|| {
        format!("addCapabilitiesToRetain takes effect with the next start: {new} now, {old} when this one began")
    })
}

/// Whether there are the user and the group that `-u` and `-g` name.
///
/// # Errors
/// There are not.
pub fn look_up(user: Option<&str>, group: Option<&str>) -> Result<()> {
    user.map(user_number).transpose()?;
    group.map(group_number).transpose()?;
    Ok(())
}

/// Gives away everything but what `wish` keeps: groups, user, capabilities in all sets, and the right to gain any by
/// running a program. Before threads start.
pub fn drop_privileges(wish: &Wish<'_>) -> Result<Dropped> {
    let mut dropped = Dropped::default();
    let kept = kept(wish, &mut dropped)?;
    change_group(wish.group)?;
    shrink_bounds(&kept)?;
    change_user(wish.user)?;
    narrow(&kept)?;
    nix::sys::prctl::set_no_new_privs().map_err(system("setting no_new_privs"))?;
    let threads = threads_with_more(&kept);
    if !threads.is_empty() {
        return Err(PrivilegeError::Threads(threads));
    }
    dropped.kept = kept.iter().map(ToString::to_string).collect();
    dropped.kept.sort();
    Ok(dropped)
}

/// What was asked for and is there, and CAP_BPF where the kernel is old.
fn kept(wish: &Wish<'_>, dropped: &mut Dropped) -> Result<CapsHashSet> {
    let permitted =
        caps::read(None, CapSet::Permitted).map_err(capabilities("reading capabilities"))?;
    let mut kept = CapsHashSet::new();
    for wanted in wish.retain {
        if permitted.contains(wanted) {
            kept.insert(*wanted);
        } else {
            dropped.warnings.push(format!(
                "{wanted} was to be kept, but this process never had it"
            ));
        }
    }
    if wish.xdp
        && maps_need_a_capability()
        && permitted.contains(&Capability::CAP_BPF)
        && kept.insert(Capability::CAP_BPF)
    {
        let reason = "this kernel lets nobody else touch BPF maps (Linux 5.19 does, or kernel.unprivileged_bpf_disabled=0)";
        dropped.warnings.push(format!("CAP_BPF is kept: {reason}"));
    }
    Ok(kept)
}

/// The group that `-g` names, by name or by number.
///
/// # Errors
/// There is none of that name.
pub fn group_number(name: &str) -> Result<Gid> {
    let found = match name.parse() {
        Ok(number) => Some(Gid::from_raw(number)),
        Err(_) => Group::from_name(name).ok().flatten().map(|group| group.gid),
    };
    found.ok_or_else(|| PrivilegeError::NoGroup(name.to_owned()))
}

fn change_group(group: Option<&str>) -> Result<()> {
    let Some(name) = group else { return Ok(()) };
    let gid = group_number(name)?;
    nix::unistd::setgroups(&[]).map_err(system("leaving all groups (-g)"))?;
    nix::unistd::setgid(gid).map_err(system(&format!("changing to group {name} (-g)")))
}

/// The user that `-u` names, by name or by number.
fn user_number(name: &str) -> Result<Uid> {
    let found = match name.parse() {
        Ok(number) => Some(Uid::from_raw(number)),
        Err(_) => User::from_name(name).ok().flatten().map(|user| user.uid),
    };
    found.ok_or_else(|| PrivilegeError::NoUser(name.to_owned()))
}

/// Changes the user of all threads (the C library tells each); what this thread may keep stays in its permitted set.
fn change_user(user: Option<&str>) -> Result<()> {
    let Some(name) = user else { return Ok(()) };
    let uid = user_number(name)?;
    nix::sys::prctl::set_keepcaps(true).map_err(system("keeping capabilities over -u"))?;
    nix::unistd::setuid(uid).map_err(system(&format!("changing to user {name} (-u)")))?;
    nix::sys::prctl::set_keepcaps(false).map_err(system("keeping capabilities over -u"))
}

/// No program that is run later can have what is not kept. Only who has CAP_SETPCAP can and need do this.
fn shrink_bounds(kept: &CapsHashSet) -> Result<()> {
    if !has(Capability::CAP_SETPCAP) {
        return Ok(());
    }
    let bounds =
        caps::read(None, CapSet::Bounding).map_err(capabilities("reading capabilities"))?;
    for capability in bounds.difference(kept) {
        caps::drop(None, CapSet::Bounding, *capability)
            .map_err(capabilities("dropping capabilities"))?;
    }
    Ok(())
}

/// Leaves this thread `kept` and no more. The effective set comes first and the permitted one last: each step must be
/// within the one above it.
fn narrow(kept: &CapsHashSet) -> Result<()> {
    let dropping = || capabilities("dropping capabilities");
    caps::set(None, CapSet::Effective, kept).map_err(dropping())?;
    caps::clear(None, CapSet::Ambient).map_err(dropping())?;
    caps::clear(None, CapSet::Inheritable).map_err(dropping())?;
    caps::set(None, CapSet::Permitted, kept).map_err(dropping())
}

/// Threads of this process that may do more than `kept`.
fn threads_with_more(kept: &CapsHashSet) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let numbers = tasks
        .flatten()
        .filter_map(|task| task.file_name().to_str()?.parse().ok());
    let has_more = |thread: &i32| {
        // A thread that has ended has nothing.
        caps::read(Some(*thread), CapSet::Permitted)
            .is_ok_and(|permitted| !permitted.is_subset(kept))
    };
    numbers.filter(has_more).collect()
}

fn has(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

fn system(doing: &str) -> impl Fn(nix::Error) -> PrivilegeError {
    move |error| PrivilegeError::System {
        doing: doing.to_owned(),
        error: error.into(),
    }
}

fn capabilities(doing: &str) -> impl Fn(caps::errors::CapsError) -> PrivilegeError {
    move |error| PrivilegeError::System {
        doing: doing.to_owned(),
        error: io::Error::other(error.to_string()),
    }
}

// ------------------------------------------------------------------------------------------------ what AF_XDP needs

/// Lets this process lock as much memory as it may: frames are locked, and so are BPF maps before Linux 5.11.
pub fn raise_memlock() {
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK) else {
        return;
    };
    if setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_err() {
        // Without CAP_SYS_RESOURCE the hard limit is the most; what is still missing, `check` and the kernel will tell.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    }
}

/// Whether this process, without any capability, could lock as much memory as it likes. A limit is shared with all that runs
/// as the same user: how much of it is left, nobody tells.
pub fn may_lock() -> bool {
    getrlimit(Resource::RLIMIT_MEMLOCK).is_ok_and(|(limit, _)| limit == RLIM_INFINITY)
}

/// Something that AF_XDP needs or could use and does not find. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    pub line: String,
    /// Without it there is no AF_XDP; otherwise something is lost, and the line says what.
    pub fatal: bool,
}

/// What is missing for AF_XDP with frames of `umem` bytes in all.
pub fn check(umem: u64) -> Vec<Shortage> {
    let mut shortages: Vec<Shortage> = missing_capabilities()
        .into_iter()
        .map(|line| Shortage { line, fatal: true })
        .collect();
    shortages.extend(missing_memlock(umem).map(|line| Shortage { line, fatal: true }));
    if !fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false) {
        let line = "no /sys/kernel/btf/vmlinux (a kernel without CONFIG_DEBUG_INFO_BTF): what newer kernels could add is not used";
        shortages.push(Shortage {
            line: line.to_owned(),
            fatal: false,
        });
    }
    shortages
}

/// XDP programs are loaded by CAP_BPF with CAP_NET_ADMIN and CAP_PERFMON, or CAP_SYS_ADMIN; attached by CAP_NET_ADMIN;
/// AF_XDP sockets are opened by CAP_NET_RAW.
fn missing_capabilities() -> Vec<String> {
    let mut lines = Vec::new();
    for (wanted, purpose) in [
        (&[Capability::CAP_NET_RAW][..], "to open AF_XDP sockets"),
        (
            &[Capability::CAP_NET_ADMIN],
            "to attach a program to an interface",
        ),
        (
            &[Capability::CAP_BPF, Capability::CAP_PERFMON],
            "to load the program",
        ),
    ] {
        lines.extend(lacking(wanted, &has).map(|subject| {
            format!(
                "{subject} missing, {purpose} (root, or AmbientCapabilities= of the systemd unit)"
            )
        }));
    }
    lines
}

/// Which of these is not there, as the beginning of a sentence; CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON.
fn lacking(wanted: &[Capability], has: &impl Fn(Capability) -> bool) -> Option<String> {
    let is_of_bpf = wanted.contains(&Capability::CAP_BPF);
    if is_of_bpf && has(Capability::CAP_SYS_ADMIN) {
        return None;
    }
    let missing = wanted.iter().filter(|wanted| !has(**wanted));
    let missing: Vec<String> = missing.map(ToString::to_string).collect();
    let instead = if is_of_bpf { " (or CAP_SYS_ADMIN)" } else { "" };
    match missing.len() {
        0 => None,
        1 => Some(format!("{}{instead} is", missing[0])),
        _ => Some(format!("{}{instead} are", missing.join(" and "))),
    }
}

/// Frames count against the limit unless CAP_IPC_LOCK lifts it.
fn missing_memlock(umem: u64) -> Option<String> {
    let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    let lacking = limit < umem && !has(Capability::CAP_IPC_LOCK);
    lacking.then(|| {
        format!("RLIMIT_MEMLOCK is {limit} bytes, the frames take {umem} (LimitMEMLOCK=infinity in the systemd unit, or ulimit -l)")
    })
}

/// Whether bpf(2) on maps that we hold takes CAP_BPF: before Linux 5.19, unless the sysctl is 0.
fn maps_need_a_capability() -> bool {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    need_a_capability(
        &text("/proc/sys/kernel/unprivileged_bpf_disabled"),
        &text("/proc/sys/kernel/osrelease"),
    )
}

/// The same by what the two files say.
fn need_a_capability(disabled: &str, release: &str) -> bool {
    disabled.trim() != "0" && version(release) < Some((5, 19))
}

/// `5.10.0-28-amd64` → (5, 10).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']);
    Some((
        numbers.next()?.parse().ok()?,
        numbers.next()?.trim().parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f27_what_is_missing_is_said_in_a_line_each() {
        let lines = std::thread::spawn(|| {
            narrow(&CapsHashSet::new()).expect("capabilities of this thread");
            check(u64::MAX)
        });
        let lines: Vec<Shortage> = lines.join().expect("a thread");
        let fatal: Vec<&str> = lines
            .iter()
            .filter(|line| line.fatal)
            .map(|line| line.line.as_str())
            .collect();
        for (line, word) in
            fatal
                .iter()
                .zip(["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF", "RLIMIT_MEMLOCK"])
        {
            assert!(line.starts_with(word), "{fatal:?}");
        }
    }

    #[test]
    fn f27_only_what_is_missing_is_named() {
        use Capability::{CAP_BPF, CAP_NET_RAW, CAP_PERFMON, CAP_SYS_ADMIN};
        let bpf = [CAP_BPF, CAP_PERFMON];
        for (wanted, there, expected) in [
            (&[CAP_NET_RAW][..], &[][..], Some("CAP_NET_RAW is")),
            (&[CAP_NET_RAW], &[CAP_SYS_ADMIN], Some("CAP_NET_RAW is")),
            (&[CAP_NET_RAW], &[CAP_NET_RAW], None),
            (
                &bpf,
                &[],
                Some("CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN) are"),
            ),
            (&bpf, &[CAP_BPF], Some("CAP_PERFMON (or CAP_SYS_ADMIN) is")),
            (&bpf, &[CAP_PERFMON], Some("CAP_BPF (or CAP_SYS_ADMIN) is")),
            (&bpf, &bpf, None),
            (&bpf, &[CAP_SYS_ADMIN], None),
        ] {
            let found = lacking(wanted, &|capability| there.contains(&capability));
            assert_eq!(found.as_deref(), expected, "{wanted:?} {there:?}");
        }
    }

    #[test]
    fn a_capability_is_known_in_capital_and_in_small_letters() {
        for name in ["CAP_SYS_ADMIN", "cap_sys_admin", "Cap_Sys_Admin"] {
            assert_eq!(capability(name), Some(Capability::CAP_SYS_ADMIN));
        }
        for name in ["CAP_NOSUCH", "SYS_ADMIN", ""] {
            assert_eq!(capability(name), None);
        }
        let all = capabilities_there_are();
        assert!(all.starts_with("CAP_AUDIT_CONTROL, ") && all.contains(", CAP_SYS_ADMIN, "));
    }

    #[test]
    fn another_list_of_capabilities_waits_for_the_next_start() {
        use Capability::{CAP_NET_RAW, CAP_SYS_ADMIN};
        let (one, other) = ([CAP_SYS_ADMIN, CAP_NET_RAW], [CAP_NET_RAW, CAP_SYS_ADMIN]);
        assert_eq!(capabilities_that_stay(&one, &other), None);
        assert_eq!(capabilities_that_stay(&[], &[]), None);
        assert_eq!(
            capabilities_that_stay(&[], &one).unwrap(),
            "addCapabilitiesToRetain takes effect with the next start: CAP_NET_RAW, CAP_SYS_ADMIN now, none when this one began"
        );
        assert_eq!(
            capabilities_that_stay(&[CAP_NET_RAW], &[]).unwrap(),
            "addCapabilitiesToRetain takes effect with the next start: none now, CAP_NET_RAW when this one began"
        );
    }

    #[test]
    fn f27_maps_take_a_capability_before_linux_5_19_unless_the_sysctl_is_0() {
        for (disabled, release, expected) in [
            ("2\n", "5.10.0-28-amd64\n", true),
            ("1\n", "5.18.3\n", true),
            ("0\n", "5.10.0-28-amd64\n", false),
            ("2\n", "5.19.0\n", false),
            ("2\n", "6.18.44\n", false),
        ] {
            assert_eq!(
                need_a_capability(disabled, release),
                expected,
                "{disabled:?} {release:?}"
            );
        }
    }

    #[test]
    fn kernel_releases() {
        assert_eq!(version("5.10.0-28-amd64\n"), Some((5, 10)));
        assert_eq!(version("6.18.44"), Some((6, 18)));
        assert!(version("5.9") < Some((5, 19)));
    }
}
