//! What the daemon does when nobody asks: health checks, looking after the machine, and almost nothing in time.

use crate::restart::Backend;
use crate::rig::{REFUSED, Rig, pass};
use nix::unistd::Pid;
use std::fs;
use std::time::Duration;

const ADDRESS: &str = "192.0.2.1:53";

/// AF_XDP to clients and to backends, whose health is checked once a second.
const CHECKED: &str = "addLocal(\"192.0.2.1:53\", {xdp=true})\n\
    for number = 1, 16 do\n\
      newServer({address=\"198.51.100.2:53\", name=\"server\" .. number, xdp=true, checkInterval=1})\n\
    end\n";
const SERVERS: f64 = 16.0;

/// How long nobody asks, and how often that is measured at most: what a hypervisor takes away while a thread runs the kernel counts
/// as the thread's, and where all processors are busy a health check may come too late. Once it must cost no more.
const IDLE: Duration = Duration::from_secs(5);
const TIMES: u32 = 6;

/// Of a core: 0.1 %. The tests' build, which is not optimised, needs several times the instructions of a release.
const PARTS_OF_A_CORE: u32 = if cfg!(debug_assertions) { 200 } else { 1_000 };

/// Wake-ups a second, of all threads together: a beat of the health checks and the look for answers behind it, the clock of
/// the control thread; that is 3, however many servers there are. With a timer and a socket in epoll for each check it was 70.
const WAKE_UPS_A_SECOND: u64 = 6;

/// What a process has used up.
#[derive(Debug, Clone, Copy)]
struct Used {
    nanoseconds: u64,
    wake_ups: u64,
}

impl Used {
    /// Of all threads of these processes. The kernel's own count in nanoseconds (sched-stats.rst, /proc/PID/schedstat): its
    /// times in ticks are samples.
    fn by(processes: [Pid; 2]) -> Used {
        let mut used = Used {
            nanoseconds: 0,
            wake_ups: 0,
        };
        for process in processes {
            let threads = fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
            for thread in threads.flatten().map(|entry| entry.path()) {
                let read = |file| fs::read_to_string(thread.join(file)).unwrap_or_default();
                let time = read("schedstat");
                let first = time.split(' ').next();
                used.nanoseconds += first.and_then(|text| text.parse().ok()).unwrap_or(0);
                let status = read("status");
                let mut lines = status.lines();
                let line = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
                used.wake_ups += line.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            }
        }
        used
    }
}

#[test]
fn health_checks_alone_cost_a_thousandth_of_a_core() {
    let Some(rig) = Rig::start("idle", &(CHECKED.to_owned() + REFUSED)) else {
        return;
    };
    let _backend = Backend::start(&rig, Duration::ZERO);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let are_up = || rig.metric("dnsdist_server_status", &[]) == SERVERS;
    let processes = [rig.daemon(), rig.helper()];
    let costs_little = || {
        rig.awaits("all servers up", are_up);
        let before = Used::by(processes);
        pass(IDLE);
        let after = Used::by(processes);
        let time = Duration::from_nanos(after.nanoseconds - before.nanoseconds);
        let wake_ups = after.wake_ups - before.wake_ups;
        println!("idle for {IDLE:?}: {time:?} of CPU time, {wake_ups} wake-ups");
        time * PARTS_OF_A_CORE < IDLE && wake_ups < WAKE_UPS_A_SECOND * IDLE.as_secs() && are_up()
    };
    assert!(
        (0..TIMES).any(|_| costs_little()),
        "more than 1/{PARTS_OF_A_CORE} of a core, {WAKE_UPS_A_SECOND} wake-ups a second, or a server down:\n{}",
        rig.log()
    );
    rig.server.stop().expect("a good end");
}
