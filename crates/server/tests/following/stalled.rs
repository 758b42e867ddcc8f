//! A worker that stalls while the others go on: design.md, "Stalled means PASS too", and past its kernel socket.

use crate::rig::{REFUSED, Rig};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testnet::dns::Query;

/// How long the worker is held, and how often a query is sent meanwhile.
const HELD: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(5);

/// What may be lost before it is noticed.
const NOTICED: Duration = Duration::from_millis(200);

/// Queries lost after that, at most: probes, one a second for each ring and socket, and what a busy machine adds when it lets
/// the living worker wait for 100 ms as well. Without the program that spreads it would be half of them.
const LATE: usize = (HELD.as_millis() / EVERY.as_millis()) as usize / 10;

/// One thread of the daemon, stopped until this is dropped.
pub(crate) struct Held(Pid);

impl Held {
    pub(crate) fn thread(daemon: Pid, name: &str) -> Held {
        let threads = fs::read_dir(format!("/proc/{daemon}/task")).expect("its threads");
        let called = |number: &i32| {
            let path = format!("/proc/{daemon}/task/{number}/comm");
            fs::read_to_string(path).is_ok_and(|found| found.trim() == name)
        };
        let mut numbers = threads.flatten().filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some(number).filter(called)
        });
        let thread = Pid::from_raw(numbers.next().expect("a thread of that name"));
        ptrace::seize(thread, ptrace::Options::empty()).expect("to trace it");
        ptrace::interrupt(thread).expect("to stop it");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it to stop");
        Held(thread)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

#[test]
fn f26_a_held_worker_loses_200_ms_of_its_queue() {
    let listen = "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED;
    let Some(rig) = Rig::start("stalled", &listen) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let held = Held::thread(rig.daemon(), "worker-1");
    let unanswered = send_for(&rig, HELD);
    let late = unanswered.iter().filter(|at| **at > NOTICED).count();
    let past = rig.metric("millrace_spread", &[("chosen", "past-stalled")]);
    drop(held);
    assert!(
        !unanswered.is_empty(),
        "worker 1 had no queries: nothing is proved"
    );
    assert!(
        late <= LATE,
        "{late} lost after {NOTICED:?}: {unanswered:?}"
    );
    assert!(past > 0.0, "no query went past the held worker");
    // And then all is as before.
    for _ in 0..20 {
        assert!(rig.asks("192.0.2.1:53", Duration::from_secs(1)));
    }
    rig.server.stop().expect("a good end");
}

/// A Lua rule is stopped after 20 ms, and not called for a second (rules/lua-loop.scenario): others wait, and none is lost.
#[test]
fn a_rule_that_loops_costs_no_other_query() {
    let loops = "addLocal(\"192.0.2.1:53\", {xdp=true})\n\
                 addAction(\"loop.example.\", LuaAction(function(dq) while true do end end))\n"
        .to_owned()
        + REFUSED;
    let Some(rig) = Rig::start("looping", &loops) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let client = rig.lab.client();
    let looping = std::thread::spawn(move || {
        let query = Query::new("loop.example.", "A").expect("a query").octets();
        let send = move || {
            let began = Instant::now();
            while began.elapsed() < HELD {
                // From many ports: both workers get one.
                let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
                socket.connect("192.0.2.1:53").expect("to connect");
                socket.send(&query).expect("to send");
                std::thread::park_timeout(EVERY * 10);
            }
        };
        client.run(send).expect("the namespace");
    });
    let unanswered = send_for(&rig, HELD);
    looping.join().expect("the client");
    assert!(
        rig.metric("millrace_lua_stopped", &[]) >= 2.0,
        "{}",
        rig.log()
    );
    assert!(unanswered.is_empty(), "{unanswered:?} lost");
    rig.server.stop().expect("a good end");
}

/// Another daemon on the same address, ended when this is dropped.
struct Second {
    daemon: Child,
    _folder: tempfile::TempDir,
}

impl Second {
    fn start(rig: &Rig, configuration: &str) -> Second {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("second.lua");
        fs::write(&file, "setACL(\"0.0.0.0/0\")\n".to_owned() + configuration)
            .expect("a configuration");
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        let control = folder.path().join("control");
        command.arg("-C").arg(&file).arg("--control").arg(&control);
        command.arg("--supervised").stdout(Stdio::null());
        let daemon = rig.lab.server().spawn(&mut command, None);
        let second = Second {
            daemon: daemon.expect("a second daemon"),
            _folder: folder,
        };
        let began = Instant::now();
        while !control.exists() {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "no second daemon"
            );
            std::thread::park_timeout(Duration::from_millis(5));
        }
        second
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[test]
fn a_stopped_process_leaves_its_queries_to_the_one_started_after_it() {
    let listen = "addLocal(\"192.0.2.1:53\", {xdp=true, reusePort=true})\n".to_owned() + REFUSED;
    let Some(rig) = Rig::start("second", &listen) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let first = rig.daemon();
    let second = Second::start(&rig, &listen);
    kill(first, Signal::SIGSTOP).expect("to stop it");
    let unanswered = send_for(&rig, HELD);
    kill(first, Signal::SIGCONT).expect("to let it go on");
    drop(second);
    let late = unanswered.iter().filter(|at| **at > NOTICED).count();
    assert!(
        late <= LATE,
        "{late} lost after {NOTICED:?}: {unanswered:?}"
    );
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    rig.server.stop().expect("a good end");
}

/// The rings and sockets of a killed process go with it: what comes from then on is the second one's, though the program may
/// stay on the interface.
fn killed(name: &str, first: &str) {
    const LISTEN: &str = "addLocal(\"192.0.2.1:53\", {xdp=true, reusePort=true})\n";
    let Some(rig) = Rig::start(name, &(first.to_owned() + LISTEN + REFUSED)) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let by_sockets = LISTEN.replace("xdp=true, ", "") + REFUSED;
    let second = Second::start(&rig, &by_sockets);
    let first = rig.daemon();
    let until_killed = Duration::from_millis(500);
    let killer = std::thread::spawn(move || {
        std::thread::park_timeout(until_killed);
        kill(first, Signal::SIGKILL).expect("to kill it");
    });
    let unanswered = send_for(&rig, HELD);
    killer.join().expect("the killer");
    drop(second);
    // What was in its buffers, and came while the kernel took it down (a debug build, a busy machine: some milliseconds).
    let late = until_killed + NOTICED;
    let lost_late = unanswered.iter().filter(|at| **at > late).count();
    assert_eq!(lost_late, 0, "lost: {unanswered:?}");
    assert!(
        unanswered.iter().all(|at| *at + EVERY * 4 >= until_killed),
        "lost before: {unanswered:?}"
    );
    println!("{} lost by the kill", unanswered.len());
}

#[test]
fn a_killed_process_leaves_its_queries_to_the_second_one_at_once() {
    killed("killed", "");
}

#[test]
fn a_killed_process_leaves_its_queries_though_its_program_stays() {
    killed("killed-kept", "millrace.setKeepXDP(true)\n");
}

/// When those queries were sent, after the beginning, that had no answer in the end.
fn send_for(rig: &Rig, duration: Duration) -> Vec<Duration> {
    let query = Query::new("www.example.com.", "A")
        .expect("a query")
        .octets();
    let client = rig.lab.client();
    let sent = client.run(move || {
        let began = Instant::now();
        let mut sockets: Vec<(Duration, UdpSocket)> = Vec::new();
        while began.elapsed() < duration {
            let next = began + EVERY * sockets.len() as u32;
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            // Each from a port of its own: the hash takes them to both queues and all sockets.
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.connect("192.0.2.1:53").expect("to connect");
            sockets.push((began.elapsed(), socket));
            let (_, socket) = &sockets[sockets.len() - 1];
            socket.send(&query).expect("to send");
        }
        let patience = Some(Duration::from_millis(50));
        let mut unanswered = Vec::new();
        for (at, socket) in sockets {
            socket.set_read_timeout(patience).expect("a time-out");
            if socket.recv(&mut [0; 512]).is_err() {
                unanswered.push(at);
            }
        }
        unanswered
    });
    sent.expect("the namespace")
}
