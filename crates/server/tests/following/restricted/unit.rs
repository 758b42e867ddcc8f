//! packaging's unit, in the words of setpriv(1) and prlimit(1), and in filters for seccomp(2), as systemd.exec(5) says.

use caps::{CapSet, Capability};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::process::{Command, Stdio};
use testnet::seccomp::Filter;
use testnet::sys::Denied;

const PATH: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/systemd/millrace.service"
);

/// The user `nobody`, who stands for `millrace`.
pub(super) const USER: u32 = 65_534;

/// The settings of `[Service]`, in their order.
pub(super) struct Unit(Vec<(String, String)>);

impl Unit {
    pub(super) fn read() -> Unit {
        let text = fs::read_to_string(PATH).expect("the unit");
        let service = text.split("[Service]\n").nth(1).expect("[Service]");
        let lines = service.lines().take_while(|line| !line.starts_with('['));
        let settings = lines
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once('='));
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Unit(settings.map(owned).collect())
    }

    /// The names of all that is set.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The value of a setting; of several the last one counts.
    pub(super) fn value(&self, name: &str) -> &str {
        let mut settings = self.0.iter().rev();
        let found = settings.find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// The words of a list, to which each line adds.
    fn words(&self, name: &str) -> Vec<&str> {
        let lines = self.0.iter().filter(|(known, _)| known == name);
        lines
            .flat_map(|(_, value)| value.split_whitespace())
            .collect()
    }

    fn is_on(&self, name: &str) -> bool {
        self.value(name) == "yes"
    }

    /// Words that start what follows as the unit's user, with its limits and capabilities.
    pub(super) fn command(&self) -> Vec<String> {
        assert!(self.is_on("NoNewPrivileges"));
        let memory = self.limit("LimitMEMLOCK", Resource::RLIMIT_MEMLOCK, u64::MAX);
        let most = fs::read_to_string("/proc/sys/fs/nr_open").expect("fs.nr_open");
        let most = most.trim().parse().expect("a number");
        let files = self.limit("LimitNOFILE", Resource::RLIMIT_NOFILE, most);
        let ambient = capabilities(&self.words("AmbientCapabilities"), memory);
        let bounding = capabilities(&self.words("CapabilityBoundingSet"), memory);
        let words = format!(
            "prlimit --memlock={} --nofile={} \
             setpriv --no-new-privs --reuid={USER} --regid={USER} --clear-groups \
             --inh-caps={ambient} --ambient-caps={ambient} --bounding-set={bounding}",
            limit_word(memory),
            limit_word(files)
        );
        words.split_whitespace().map(str::to_owned).collect()
    }

    /// What the unit sets, or as much of it as may be had: without CAP_SYS_RESOURCE nobody raises a hard limit, and systemd
    /// then takes what there is.
    fn limit(&self, name: &str, resource: Resource, most: u64) -> u64 {
        let wanted = match self.value(name) {
            "infinity" => RLIM_INFINITY,
            number => number.parse().expect("a limit"),
        };
        let (_, hard) = getrlimit(resource).expect("a limit");
        let may_raise = caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_RESOURCE);
        match may_raise.expect("our capabilities") {
            true => wanted.min(most),
            false => wanted.min(hard),
        }
    }

    /// What the unit's settings refuse, as filters.
    ///
    /// # Errors
    /// systemd-analyze cannot be run, or the kernel's header is not there.
    pub(super) fn denied(&self) -> io::Result<Vec<Denied>> {
        let calls = Calls::known()?;
        let mut filters = vec![
            self.listed_calls(&calls),
            self.families(&calls),
            self.calls_by_their_own_settings(&calls),
        ];
        if self.is_on("RestrictNamespaces") {
            filters.extend(namespaces(&calls));
        }
        if self.is_on("RestrictSUIDSGID") {
            filters.extend(set_id_bits(&calls));
        }
        if self.is_on("RestrictRealtime") {
            let set = calls.number("sched_setscheduler");
            let policies = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
            let policies = policies.map(|policy| policy as u32);
            filters.push(Filter::argument_but(set, (1, &policies), libc::EPERM));
        }
        if self.is_on("LockPersonality") {
            let call = calls.number("personality");
            filters.push(Filter::argument_but(call, (0, &[0]), libc::EPERM));
        }
        Ok(filters.into_iter().map(Denied::Calls).collect())
    }

    /// SystemCallFilter, with SystemCallErrorNumber and SystemCallArchitectures. "execve(), exit(), exit_group(), getrlimit(),
    /// rt_sigreturn(), sigreturn() system calls and the system calls for querying time and sleeping are implicitly allow-listed":
    /// those are @default.
    fn listed_calls(&self, calls: &Calls) -> Filter {
        assert_eq!(self.value("SystemCallErrorNumber"), "EPERM");
        assert_eq!(self.value("SystemCallArchitectures"), "native");
        let mut words = self.words("SystemCallFilter");
        words.push("@default");
        Filter::calls_but(&calls.numbers(&words), libc::EPERM)
    }

    /// RestrictAddressFamilies: "Restricts the set of socket address families accessible to the processes of this unit",
    /// others with EAFNOSUPPORT.
    fn families(&self, calls: &Calls) -> Filter {
        let known = |name: &str| match name {
            "AF_UNIX" => libc::AF_UNIX,
            "AF_INET" => libc::AF_INET,
            "AF_INET6" => libc::AF_INET6,
            "AF_NETLINK" => libc::AF_NETLINK,
            "AF_XDP" => libc::AF_XDP,
            other => panic!("RestrictAddressFamilies={other}: the test does not know its number"),
        };
        let words = self.words("RestrictAddressFamilies");
        let families: Vec<u32> = words.into_iter().map(|name| known(name) as u32).collect();
        let socket = calls.number("socket");
        Filter::argument_but(socket, (0, &families), libc::EAFNOSUPPORT)
    }

    /// Those that a setting takes away whatever SystemCallFilter says.
    fn calls_by_their_own_settings(&self, calls: &Calls) -> Filter {
        let settings: [(&str, &[&str]); 5] = [
            ("PrivateDevices", &["@raw-io"]),
            ("ProtectClock", &["@clock"]),
            ("ProtectHostname", &["sethostname", "setdomainname"]),
            ("ProtectKernelLogs", &["syslog"]),
            ("ProtectKernelModules", &["@module"]),
        ];
        let on = settings.into_iter().filter(|(name, _)| self.is_on(name));
        let words: Vec<&str> = on.flat_map(|(_, words)| words).copied().collect();
        Filter::calls(&calls.numbers(&words), libc::EPERM)
    }
}

/// `CAP_NET_RAW` → `-all,+net_raw`. Where the limit of locked memory is not what the unit wants, a capability stands for it.
fn capabilities(names: &[&str], locked_memory: u64) -> String {
    let mut words = "-all".to_owned();
    for name in names {
        words += &name.to_lowercase().replace("cap_", ",+");
    }
    if locked_memory != RLIM_INFINITY {
        words += ",+ipc_lock";
    }
    words
}

fn limit_word(limit: u64) -> String {
    match limit {
        RLIM_INFINITY => "unlimited".to_owned(),
        number => number.to_string(),
    }
}

/// RestrictNamespaces. The flags of clone3() lie in memory, where no filter sees them: the C library is told that there is no
/// such call, and takes the older one.
fn namespaces(calls: &Calls) -> Vec<Filter> {
    let flags = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    let flags = (0, flags as u32);
    vec![
        Filter::calls(&[calls.number("clone3")], libc::ENOSYS),
        Filter::calls(&[calls.number("setns")], libc::EPERM),
        Filter::argument_bits(calls.number("unshare"), flags, libc::EPERM),
        Filter::argument_bits(calls.number("clone"), flags, libc::EPERM),
    ]
}

/// RestrictSUIDSGID: "any attempts to set the set-user-ID (SUID) or set-group-ID (SGID) bits on files or directories will be
/// denied", as far as one argument tells. That of openat2() lies in memory.
fn set_id_bits(calls: &Calls) -> Vec<Filter> {
    let bits = libc::S_ISUID | libc::S_ISGID;
    let modes = [
        ("chmod", 1),
        ("fchmod", 1),
        ("fchmodat", 2),
        ("creat", 1),
        ("mkdir", 1),
        ("mkdirat", 2),
        ("mknod", 1),
        ("mknodat", 2),
    ];
    let mode =
        |(name, place)| Filter::argument_bits(calls.number(name), (place, bits), libc::EPERM);
    let mut filters: Vec<Filter> = modes.into_iter().map(mode).collect();
    filters.push(Filter::calls(&[calls.number("openat2")], libc::ENOSYS));
    filters
}

/// System calls as systemd groups them, and as the kernel numbers them.
struct Calls {
    /// The members of a group: calls, and other groups.
    groups: HashMap<String, Vec<String>>,
    numbers: HashMap<String, u32>,
}

impl Calls {
    fn known() -> io::Result<Calls> {
        let listed = Command::new("systemd-analyze")
            .args(["--no-pager", "syscall-filter"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| io::Error::new(error.kind(), format!("systemd-analyze: {error}")))?;
        let headers = [
            "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
            "/usr/include/asm/unistd_64.h",
        ];
        let mut headers = headers
            .iter()
            .filter_map(|path| fs::read_to_string(path).ok());
        let header = headers.next().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "asm/unistd_64.h: no such header")
        })?;
        Ok(Calls {
            groups: groups(&String::from_utf8_lossy(&listed.stdout)),
            numbers: numbers(&header),
        })
    }

    /// The number of one that there must be.
    fn number(&self, name: &str) -> u32 {
        let number = self.numbers.get(name);
        *number.unwrap_or_else(|| panic!("{name} is no system call of this machine's"))
    }

    /// Those of calls and groups.
    fn numbers(&self, words: &[&str]) -> Vec<u32> {
        let mut numbers = BTreeSet::new();
        for word in words {
            if word.starts_with('@') {
                self.add_group(word, &mut numbers);
            } else {
                numbers.insert(self.number(word));
            }
        }
        numbers.into_iter().collect()
    }

    fn add_group(&self, group: &str, numbers: &mut BTreeSet<u32>) {
        let members = self.groups.get(group);
        for member in members.unwrap_or_else(|| panic!("systemd has no group {group}")) {
            match member.starts_with('@') {
                true => self.add_group(member, numbers),
                // Others are calls of other machines, or younger than the header.
                false => numbers.extend(self.numbers.get(member)),
            }
        }
    }
}

/// From what `systemd-analyze syscall-filter` prints: a group's name, and behind four blanks each of its members.
fn groups(text: &str) -> HashMap<String, Vec<String>> {
    let mut groups = HashMap::<String, Vec<String>>::new();
    let mut group = String::new();
    for line in text.lines() {
        match line.strip_prefix("    ") {
            None => line.trim_end().clone_into(&mut group),
            Some(member) if member.starts_with('#') => {}
            Some(member) => {
                let members = groups.entry(group.clone()).or_default();
                members.push(member.to_owned());
            }
        }
    }
    groups
}

/// From lines as `#define __NR_read 0`.
fn numbers(header: &str) -> HashMap<String, u32> {
    let number = |line: &str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    header.lines().filter_map(number).collect()
}

#[test]
fn groups_and_numbers_are_read_as_they_are_printed() {
    let text = "@a\n    # Some\n    @b\n    read\n\n@b\n    # More\n    write\n    elsewhere\n\n# Ungrouped\n#   x\n";
    let header =
        "#define _ASM_UNISTD_64_H\n#define __NR_read 0\n#define __NR_write 1\n#define __NR_x 2\n";
    let calls = Calls {
        groups: groups(text),
        numbers: numbers(header),
    };
    assert_eq!(calls.numbers(&["@a"]), [0, 1]);
    assert_eq!(calls.numbers(&["@b", "x"]), [1, 2]);
}
