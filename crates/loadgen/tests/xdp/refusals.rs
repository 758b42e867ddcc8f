//! Who lacks a privilege is told which one, in one line, and leaves nothing on the interface.

use crate::lab::{SERVER, lab, program_on, queries};
use std::process::{Command, Output, Stdio};
use testnet::lab::TO_SERVER;
use testnet::namespace::Namespace;

/// Runs floodgate by a program that takes something from it.
fn run_by(namespace: &Namespace, by: &str, line: &str) -> Output {
    let mut words = by.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .arg(env!("CARGO_BIN_EXE_floodgate"))
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = namespace.spawn(&mut command, None).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_missing_privilege_is_one_line_that_names_it_and_nothing_is_left_attached() {
    let Some(lab) = lab() else { return };
    let file = queries(10);
    let line = format!("-t 1 -i {} {SERVER}", file.path().display());
    let without = |capabilities: &str| {
        format!("setpriv --inh-caps={capabilities} --bounding-set={capabilities}")
    };
    for (by, named) in [
        (
            without("-all"),
            "; CAP_BPF and CAP_NET_ADMIN and CAP_PERFMON missing)",
        ),
        (without("-bpf,-sys_admin"), "; CAP_BPF missing)"),
        (without("-net_admin,-sys_admin"), "; CAP_NET_ADMIN missing)"),
        (without("-perfmon,-sys_admin"), "; CAP_PERFMON missing)"),
        // The program is on the interface when this one is found to be missing.
        (without("-net_raw"), "CAP_NET_RAW"),
        // And this one, which stands for memory that may be locked.
        (
            format!("prlimit --memlock=65536 {}", without("-ipc_lock")),
            "RLIMIT_MEMLOCK",
        ),
    ] {
        for command in ["xdp", "xdp -j", "xdp --ramp --highest 5000"] {
            let output = run_by(&lab.client(), &by, &format!("{command} {line}"));
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{by}: {output:?}");
            assert!(output.stdout.is_empty(), "{by}: {output:?}");
            assert_eq!(complaint.lines().count(), 1, "{by}: {complaint}");
            assert!(complaint.contains(named), "{by}: {complaint}");
            assert!(!complaint.contains("libbpf"), "{by}: {complaint}");
            assert_eq!(program_on(&lab.client(), TO_SERVER), "", "{by}");
        }
    }
}

#[test]
fn who_may_do_nothing_can_still_measure_over_sockets() {
    let Some(lab) = lab() else { return };
    let file = queries(10);
    // Nobody is there: the queries are lost, the run is none the worse.
    let line = format!("-t 0.1 -s {SERVER} -d {}", file.path().display());
    let by = "setpriv --inh-caps=-all --bounding-set=-all";
    let output = run_by(&lab.client(), by, &line);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.contains("Queries sent:         10\n"), "{text}");
}
