//! The service with all that its unit takes from it: system calls, families of addresses, capabilities, limits, places to write.
//! Nothing of systemd runs here: the unit is read, and setpriv(1), prlimit(1), mounts and seccomp(2) do as it says, each
//! inherited by what a restart starts.
//!
//! ```text
//! sandbox.sh (mounts) → prlimit → setpriv (user, capabilities, no_new_privs) → this test program (seccomp) → millrace
//! ```

mod confined;
mod unit;

use crate::restart::{Backend, end, restarted};
use crate::rig::{PATIENCE, Rig, ask};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Pid;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use testnet::again_if_interrupted;
use testnet::dns::{Query, rcode_name};
use testnet::lab::{Lab, Topology};
use testnet::subject::StartedBy;
use testnet::sys::{Denied, PacketSocket, deny, deny_here};
use unit::{USER, Unit};

const ADDRESS: &str = "192.0.2.1:53";
const BEHIND: &str = "198.51.100.1:53";

/// On the interface towards backends, which nothing else has to do with.
const LISTEN_BEHIND: &str = "addLocal(\"198.51.100.1:53\", {xdp=true})\n";

/// Where this program is started in the place of the daemon: the daemon's command, a word a line.
const COMMAND: &str = "MILLRACE_TEST_COMMAND";

/// What the tests here put into effect, with the folder of the test in the place of those that the service may write in.
const APPLIED: [&str; 30] = [
    "AmbientCapabilities",
    "AppArmorProfile",
    "CapabilityBoundingSet",
    "Group",
    "LimitMEMLOCK",
    "LimitNOFILE",
    "LockPersonality",
    "LogsDirectory",
    "NoNewPrivileges",
    "PrivateDevices",
    "ProtectClock",
    "ProtectControlGroups",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectProc",
    "ProtectSystem",
    "ReadWritePaths",
    "RestrictAddressFamilies",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "RuntimeDirectory",
    "StateDirectory",
    "SystemCallArchitectures",
    "SystemCallErrorNumber",
    "SystemCallFilter",
    "UMask",
    "User",
];

/// What only systemd itself can do, or what takes nothing from a service that does not look for it: tests/packaging/booted.
const BY_SYSTEMD: [&str; 18] = [
    "ConfigurationDirectory",
    "ConfigurationDirectoryMode",
    "ExecStart",
    "ExecStartPre",
    "FileDescriptorStoreMax",
    "KillMode",
    "MemoryDenyWriteExecute",
    "NotifyAccess",
    "PrivateTmp",
    "ProtectHome",
    "RemoveIPC",
    "Restart",
    "RestartPreventExitStatus",
    "RestartSec",
    "TimeoutStartSec",
    "TimeoutStopSec",
    "Type",
    "WatchdogSec",
];

/// LuaJIT calls a function of the configuration from C: the machine code for that is made while it runs.
const CALLBACK: &str = r#"
local ffi = require("ffi")
ffi.cdef("void qsort(void *, size_t, size_t, int (*)(const int32_t *, const int32_t *));")
local descending = ffi.cast("int (*)(const int32_t *, const int32_t *)", function(a, b) return b[0] - a[0] end)
addAction("callback.example.", LuaAction(function(dq)
  local numbers = ffi.new("int32_t[3]", {3, 53, 5})
  ffi.C.qsort(numbers, 3, 4, descending)
  if numbers[0] == 53 then return DNSAction.Nxdomain end
  return DNSAction.Refused
end))
"#;

/// A machine that is frozen for a while fails no health check: while the server is down nobody answers.
fn configuration(more: &str) -> String {
    format!(
        "millrace.setKeepXDP(true)\n\
         addLocal(\"{ADDRESS}\", {{xdp=true}})\n{more}\
         newServer({{address=\"198.51.100.2:53\", name=\"checked\", checkInterval=1, checkTimeout=3000, \
                    maxCheckFailures=1, rise=1}})\n\
         addAction(\"refused.example.\", RCodeAction(DNSRCode.REFUSED))\n\
         {CALLBACK}"
    )
}

/// What the unit's settings refuse. `None`: there is nothing here that knows.
fn denied() -> Option<Vec<Denied>> {
    let denied = Unit::read().denied();
    if let Err(error) = &denied {
        println!("SKIP: the unit's filter of system calls is not made: {error}");
    }
    denied.ok()
}

/// Starts a lab's daemon under all of it. `None`: this needs root.
fn rig(name: &str) -> Option<Rig> {
    denied()?;
    let lab = Rig::lab(name, Topology::TwoInterfaces)?;
    prepare_bpffs(&lab);
    let unit = Unit::read();
    let test = std::env::current_exe().expect("the path of this test");
    let script = format!(
        "export {COMMAND}=\"$(printf '%s\\n' \"$@\")\"\n\
         exec {} --exact restricted::becomes_the_daemon_under_the_filters\n",
        test.display()
    );
    let sandbox = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/following/restricted/sandbox.sh"
    );
    let mut command = ["sh", sandbox, unit.value("UMask")]
        .map(str::to_owned)
        .to_vec();
    command.extend(unit.command());
    command.extend(["sh", "-c", &script, "sh"].map(str::to_owned));
    let by = StartedBy {
        command,
        denied: Vec::new(),
    };
    Some(Rig::start_by(lab, &configuration(""), &by))
}

/// As the unit's ExecStartPre does, for the user that there is here.
fn prepare_bpffs(lab: &Lab) {
    let links = lab.bpffs().join("millrace");
    fs::create_dir(&links).expect("a folder in bpffs");
    chown(&links, Some(USER), Some(USER)).expect("to give it away");
}

/// Not a test of its own: [`rig`] has this program started so, where nothing is left but to have the filters.
#[test]
fn becomes_the_daemon_under_the_filters() {
    let Ok(words) = std::env::var(COMMAND) else {
        return;
    };
    let mut words = words.lines();
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).env_remove(COMMAND);
    deny(&mut command, &denied().expect("filters"));
    panic!("the daemon does not start: {}", command.exec());
}

/// The response code of the answer to a query over UDP.
fn answer(rig: &Rig, name: &str) -> String {
    let query = Query::new(name, "A").expect("a query").octets();
    let answered = rig.lab.client().run(move || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(ADDRESS)?;
        socket.send(&query)?;
        let mut answer = [0; 512];
        again_if_interrupted(|| socket.recv(&mut answer))?;
        Ok::<_, io::Error>(answer[3])
    });
    rcode(answered.expect("the namespace").expect("an answer"))
}

/// The same over TCP.
fn answer_over_tcp(rig: &Rig, name: &str) -> String {
    let query = Query::new(name, "A").expect("a query").octets();
    let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
    let answered = rig.lab.client().run(move || {
        let mut stream = TcpStream::connect(ADDRESS)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&framed)?;
        // The length of the message, and its header.
        let mut answer = [0; 14];
        stream.read_exact(&mut answer)?;
        Ok::<_, io::Error>(answer[5])
    });
    rcode(answered.expect("the namespace").expect("an answer"))
}

/// "RCODE: Response code - this 4 bit field" (RFC 1035 section 4.1.1).
fn rcode(octet: u8) -> String {
    rcode_name(u16::from(octet & 15))
}

/// All that the service does for clients.
fn serves(rig: &Rig) {
    rig.awaits("a health check that goes well", || {
        rig.metric("dnsdist_server_status", &[("server", "checked")]) == 1.0
    });
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_eq!(answer(rig, "www.example.com."), "NOERROR");
    assert_eq!(answer(rig, "refused.example."), "REFUSED");
    assert_eq!(answer_over_tcp(rig, "refused.example."), "REFUSED");
    assert_eq!(answer(rig, "callback.example."), "NXDOMAIN");
    assert_eq!(rig.metric("millrace_helper_alive", &[]), 1.0);
}

/// Awaits that queries from behind come over AF_XDP.
fn serves_behind(rig: &Rig) {
    rig.awaits("AF_XDP on the interface that a reload has added", || {
        let answered = ask(&rig.lab.backend(), BEHIND, PATIENCE);
        assert!(answered, "{BEHIND} does not answer:\n{}", rig.log());
        rig.metric("millrace_xsk_received", &[("interface", "enp2s0")]) > 0.0
    });
}

/// The restrictions are on this process, and not on some other that has started it.
fn is_restricted(process: Pid) {
    let file = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).expect(name);
    let status = file("status");
    // SECCOMP_MODE_FILTER is 2 (proc_pid_status(5)).
    for line in [
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "CapPrm:\t0000000000000000",
        &format!("Uid:\t{USER}\t{USER}\t{USER}\t{USER}"),
    ] {
        assert!(status.contains(line), "{line} is not in\n{status}");
    }
    // The fifth word is the place, the sixth begins with ro or rw (proc_pid_mountinfo(5)).
    let mounts = file("mountinfo");
    for place in ["/", "/proc/sys", "/sys", "/sys/fs/bpf"] {
        // The last of several is the one to be seen; / is no mount point in a chroot.
        let mut words = mounts.lines().rev().map(|line| line.split(' ').skip(4));
        let found = words.find_map(|mut words| {
            let is_it = words.next() == Some(place);
            is_it.then(|| words.next().unwrap_or_default().to_owned())
        });
        if let Some(options) = found {
            assert!(options.starts_with("ro"), "{place} is {options}:\n{mounts}");
        }
    }
}

/// The daemon and its helper are under an AppArmor profile.
fn is_confined_by(rig: &Rig, profile: &str) {
    for process in [rig.daemon(), rig.helper()] {
        let current = fs::read_to_string(format!("/proc/{process}/attr/apparmor/current"));
        assert_eq!(
            current.expect("AppArmor").trim(),
            format!("{profile} (enforce)")
        );
    }
}

/// What a call that is refused leaves in the log, in the words of strerror(3).
const REFUSALS: [&str; 5] = [
    "Operation not permitted",
    "Permission denied",
    "Read-only file system",
    "Address family not supported",
    "Function not implemented",
];

#[test]
fn under_all_that_the_unit_takes_the_service_serves_reloads_and_restarts() {
    let Some(mut rig) = rig("restricted") else {
        return;
    };
    let _backend = Backend::start(&rig, Duration::ZERO);
    is_restricted(rig.daemon());
    serves(&rig);
    rig.says("mode, to be kept");
    // A port below 1,024, another interface: the helper has the capabilities, and no more calls than the daemon.
    let said = rig.reload(&configuration(LISTEN_BEHIND));
    assert!(said.contains("enp2s0: AF_XDP program attached"), "{said}");
    serves(&rig);
    serves_behind(&rig);
    let process = restarted(&mut rig);
    is_restricted(process);
    serves(&rig);
    serves_behind(&rig);
    let log = rig.log();
    for words in REFUSALS {
        assert!(!log.contains(words), "{words}:\n{log}");
    }
    end(process);
}

/// Root could do all of this: it is the unit's filters that refuse it.
#[test]
fn what_the_unit_does_not_list_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: only root may do what the filters are to refuse");
        return;
    }
    let Some(denied) = denied() else { return };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_owned();
    // A filter holds the thread that has it, and what it starts.
    let tried = std::thread::spawn(move || {
        deny_here(&denied).expect("filters");
        UdpSocket::bind("127.0.0.1:0").expect("a family that is listed");
        let set_group_id = fs::Permissions::from_mode(0o2600);
        [
            nix::unistd::chroot("/").map_err(io::Error::from),
            unshare(CloneFlags::CLONE_NEWUTS).map_err(io::Error::from),
            fs::set_permissions(path, set_group_id),
            PacketSocket::open("lo").map(drop),
        ]
    });
    let errors = tried.join().expect("a thread");
    let errors = errors.map(|tried| tried.err().and_then(|error| error.raw_os_error()));
    let (no, family) = (Some(libc::EPERM), Some(libc::EAFNOSUPPORT));
    assert_eq!(errors, [no, no, no, family]);
}

/// A line that is new in the unit is put into effect here, or is known to be systemd's alone.
#[test]
fn every_line_of_the_unit_is_accounted_for() {
    let unit = Unit::read();
    for name in unit.names() {
        let is_known = APPLIED.contains(&name) || BY_SYSTEMD.contains(&name);
        assert!(is_known, "{name}= is applied by no test");
    }
    // What the filters and mounts take for granted.
    for (name, value) in [
        ("ProtectSystem", "strict"),
        ("ProtectProc", "invisible"),
        ("ProtectKernelTunables", "yes"),
        ("ProtectControlGroups", "yes"),
        ("ReadWritePaths", "-/sys/fs/bpf/millrace"),
        ("MemoryDenyWriteExecute", "no"),
    ] {
        assert_eq!(unit.value(name), value, "{name}=");
    }
}
