//! F39: privileges were given away, and a reload needs some.

use crate::rig::{AF_XDP_AGAIN, PATIENCE, REFUSED, Rig, ends};
use caps::{CapSet, Capability};
use nix::sys::signal::{Signal, kill};
use std::fs;

const FIRST: &str = "addLocal(\"192.0.2.1:53\", {xdp=true})\n";
const SECOND: &str = "addLocal(\"198.51.100.1:53\", {xdp=true})\n";

#[test]
fn f39_a_reload_that_needs_port_53_and_rings_gets_them_by_the_helper() {
    let Some(mut rig) = Rig::start("reload", &(FIRST.to_owned() + REFUSED)) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let said = rig.reload(&(FIRST.to_owned() + SECOND + REFUSED));
    assert!(said.contains("enp2s0: AF_XDP program attached"), "{said}");
    let from = rig.lab.backend();
    let began = std::time::Instant::now();
    let received = || rig.metric("millrace_xsk_received", &[("interface", "enp2s0")]);
    while received() == 0.0 {
        assert!(
            crate::rig::ask(&from, "198.51.100.1:53", PATIENCE),
            "{}",
            rig.log()
        );
        assert!(began.elapsed() < AF_XDP_AGAIN, "{}", rig.log());
    }
    assert!(rig.metric("millrace_helper_requests", &[]) >= 3.0);
    // And what is not needed any more is given back.
    let said = rig.reload(&(FIRST.to_owned() + REFUSED));
    assert!(
        said.contains("enp2s0: AF_XDP is not needed there any more"),
        "{said}"
    );
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let helper = rig.helper();
    rig.server.end(true).expect("a killed daemon");
    // It does not outlive the daemon.
    ends(helper);
}

#[test]
fn f39_without_the_helper_what_serves_goes_on_and_a_reload_says_why_not() {
    let Some(mut rig) = Rig::start("alone", &(FIRST.to_owned() + REFUSED)) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    assert_eq!(rig.metric("millrace_helper_alive", &[]), 1.0);
    let helper = rig.helper();
    kill(helper, Signal::SIGKILL).expect("to kill the helper");
    rig.says("the privileged helper process has ended");
    assert_eq!(rig.metric("millrace_helper_alive", &[]), 0.0);
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let said = rig.reload(&(FIRST.to_owned() + SECOND + REFUSED));
    assert!(
        said.contains("cannot serve 198.51.100.1:53: Permission denied"),
        "{said}"
    );
    // A process that this one started would have no AF_XDP at all.
    let output = rig.asks_for("restart");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("`systemctl restart`"), "{said}");
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    rig.server.stop().expect("a good end");
}

#[test]
fn the_daemon_has_no_capability_and_the_helper_few() {
    let Some(rig) = Rig::start("caps", &(FIRST.to_owned() + REFUSED)) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let helper = rig.helper();
    let status = |process| {
        fs::read_to_string(format!("/proc/{process}/status")).expect("a process's status")
    };
    let few = [
        Capability::CAP_NET_BIND_SERVICE,
        Capability::CAP_NET_ADMIN,
        Capability::CAP_NET_RAW,
        Capability::CAP_IPC_LOCK,
        Capability::CAP_SYS_RESOURCE,
        Capability::CAP_PERFMON,
        Capability::CAP_BPF,
        // For the process of a restart.
        Capability::CAP_SETUID,
        Capability::CAP_SETGID,
        Capability::CAP_CHOWN,
    ];
    // What this test does not have, it could not give.
    let own = caps::read(None, CapSet::Permitted).expect("capabilities");
    let few = few.iter().filter(|capability| own.contains(capability));
    let few: u64 = few.map(|capability| capability.bitmask()).sum();
    assert!(status(helper).contains(&format!("CapPrm:\t{few:016x}")));
    let daemon = status(rig.daemon());
    assert!(daemon.contains("CapPrm:\t0000000000000000"), "{daemon}");
    rig.server.stop().expect("a good end");
}
