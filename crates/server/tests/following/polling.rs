//! Busy polling: interrupts are held back while the daemon polls, and no longer, however it ends.

use crate::rig::{AF_XDP_AGAIN, REFUSED, Rig, ends};
use nix::sys::signal::{Signal, kill};
use std::process::{Command, Output, Stdio};
use std::time::Instant;
use testnet::lab::{Lab, Topology};

const ADDRESS: &str = "192.0.2.1:53";

fn configuration() -> String {
    "millrace.setBusyPoll{microseconds=50}\naddLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned()
        + REFUSED
}

/// Runs a program where the daemon runs: its /sys shows these interfaces.
fn output(lab: &Lab, program: &str, words: &[&str]) -> Output {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = lab.server().spawn(&mut command, Some(&lab.bpffs()));
    let output = child.expect("a program").wait_with_output();
    output.expect("a program to end")
}

/// napi_defer_hard_irqs and gro_flush_timeout of the interface towards clients.
fn interrupts(lab: &Lab) -> String {
    interrupts_of(lab, "enp1s0")
}

fn interrupts_of(lab: &Lab, interface: &str) -> String {
    let folder = format!("/sys/class/net/{interface}");
    let files = ["napi_defer_hard_irqs", "gro_flush_timeout"];
    let files = files.map(|name| format!("{folder}/{name}"));
    let found = output(lab, "cat", &[&files[0], &files[1]]);
    String::from_utf8_lossy(&found.stdout).replace('\n', " ")
}

fn set_interrupts(lab: &Lab, times: u32, nanoseconds: u32) {
    let script = format!(
        "echo {times} > /sys/class/net/enp1s0/napi_defer_hard_irqs; echo {nanoseconds} > /sys/class/net/enp1s0/gro_flush_timeout"
    );
    assert!(output(lab, "sh", &["-c", &script]).status.success());
}

/// They become so within a few seconds.
fn become_so(lab: &Lab, expected: &str) {
    let began = Instant::now();
    while interrupts(lab) != expected {
        assert!(
            began.elapsed() < AF_XDP_AGAIN,
            "{} and not {expected}",
            interrupts(lab)
        );
    }
}

const HELD: &str = "2 200000 ";
const BEFORE: &str = "1 777 ";

#[test]
fn interrupts_are_held_back_as_long_as_the_daemon_polls() {
    let Some(lab) = Rig::lab("polling", Topology::TwoInterfaces) else {
        return;
    };
    set_interrupts(&lab, 1, 777);
    let mut rig = Rig::start_in(lab, &configuration());
    rig.says("enp1s0: interrupts are held back, for its queues are polled");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_eq!(interrupts(&rig.lab), HELD);
    // A reload without it.
    let without = "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED;
    rig.reload(&without);
    become_so(&rig.lab, BEFORE);
    rig.reload(&configuration());
    become_so(&rig.lab, HELD);
    // A good end.
    let lab = rig.stop();
    become_so(&lab, BEFORE);
    // A killed daemon: the helper is there a moment longer.
    let mut rig = Rig::start_in(lab, &configuration());
    become_so(&rig.lab, HELD);
    rig.server.end(true).expect("a killed daemon");
    become_so(&rig.lab, BEFORE);
}

/// A reload wishes for it when the queues are open already.
#[test]
fn interrupts_are_not_held_back_for_queues_that_are_not_polled() {
    let Some(lab) = Rig::lab("polllate", Topology::TwoInterfaces) else {
        return;
    };
    set_interrupts(&lab, 1, 777);
    let without = "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED;
    let mut rig = Rig::start_in(lab, &without);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.reload(&configuration());
    rig.says("millrace.setBusyPoll counts for queues that are opened from now on");
    assert_eq!(interrupts(&rig.lab), BEFORE);
    assert!(!rig.log().contains("interrupts are held back"));
    rig.stop();
}

/// What has another name meanwhile is set as it was all the same.
#[test]
fn interrupts_of_an_interface_that_was_renamed_come_as_before() {
    let Some(lab) = Rig::lab("pollname", Topology::TwoInterfaces) else {
        return;
    };
    set_interrupts(&lab, 1, 777);
    let mut rig = Rig::start_in(lab, &configuration());
    become_so(&rig.lab, HELD);
    rig.ip("link set enp1s0 down\nlink set enp1s0 name wan0\nlink set wan0 up\n");
    rig.says("wan0: it was called enp1s0");
    assert_eq!(interrupts_of(&rig.lab, "wan0"), HELD);
    let lab = rig.stop();
    let began = Instant::now();
    while interrupts_of(&lab, "wan0") != BEFORE {
        assert!(began.elapsed() < AF_XDP_AGAIN, "they are held back still");
    }
}

#[test]
fn what_a_daemon_left_that_was_killed_with_its_helper_is_set_back_by_hand_or_by_the_next() {
    let Some(lab) = Rig::lab("pollkill", Topology::TwoInterfaces) else {
        return;
    };
    set_interrupts(&lab, 1, 777);
    let lab = killed_with_its_helper(lab);
    let said = output(
        &lab,
        env!("CARGO_BIN_EXE_millrace"),
        &["xdp", "unload", "--interface", "enp1s0"],
    );
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains("interrupts come as before"), "{said:?}");
    assert_eq!(interrupts(&lab), BEFORE);
    let lab = killed_with_its_helper(lab);
    let without = "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED;
    let rig = Rig::start_in(lab, &without);
    become_so(&rig.lab, BEFORE);
    // One that polls takes what is written down for what was before, not what it finds.
    let lab = killed_with_its_helper(rig.stop());
    let mut rig = Rig::start_in(lab, &configuration());
    rig.says("enp1s0: interrupts are held back, for its queues are polled");
    become_so(&rig.stop(), BEFORE);
}

/// The next one serves by kernel sockets alone, or polls another interface.
#[test]
fn what_a_killed_daemon_left_is_set_back_by_one_that_does_not_use_the_interface() {
    let Some(lab) = Rig::lab("pollleft", Topology::TwoInterfaces) else {
        return;
    };
    set_interrupts(&lab, 1, 777);
    let lab = killed_with_its_helper(lab);
    let sockets = "addLocal(\"192.0.2.1:53\")\n".to_owned() + REFUSED;
    let rig = Rig::start_in(lab, &sockets);
    become_so(&rig.lab, BEFORE);
    let lab = killed_with_its_helper(rig.stop());
    let elsewhere = configuration().replace("192.0.2.1", "198.51.100.1");
    let rig = Rig::start_in(lab, &elsewhere);
    become_so(&rig.lab, BEFORE);
    rig.stop();
}

fn killed_with_its_helper(lab: Lab) -> Lab {
    let mut rig = Rig::start_in(lab, &configuration());
    become_so(&rig.lab, HELD);
    let helper = rig.helper();
    kill(helper, Signal::SIGKILL).expect("the helper");
    rig.server.end(true).expect("a killed daemon");
    ends(helper);
    let Rig { lab, .. } = rig;
    assert_eq!(interrupts(&lab), HELD);
    lab
}
