//! A worker that stalls while the others go on: design.md, "Stalled means PASS too", and past its kernel socket.

use crate::rig::{PATIENCE, REFUSED, Rig, pass};
use nix::sys::ptrace;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use testnet::dns::Query;
use testnet::namespace::Namespace;

/// How long the worker is held, and how often a query is sent meanwhile.
const HELD: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(5);

/// How long the last answer may take: what is late on a busy machine is not lost.
const LAST_ANSWER: Duration = Duration::from_secs(3);

/// What may be lost before it is noticed.
const NOTICED: Duration = Duration::from_millis(200);

/// Queries lost after that, at most: probes, one a second for each ring and socket, and what a busy machine adds when it lets
/// the living worker wait for 100 ms as well. Without the program that spreads it would be half of them. It is a bound over both
/// queues: which one a query goes to the client's kernel decides by a random number of its socket, which it tells nobody.
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
    let unanswered = send_for(&rig.lab.client(), Instant::now(), HELD);
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
        assert!(rig.asks("192.0.2.1:53", PATIENCE));
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
    let is_over = Arc::new(AtomicBool::new(false));
    let (client, until) = (rig.lab.client(), Arc::clone(&is_over));
    let looping = std::thread::spawn(move || {
        let query = Query::new("loop.example.", "A").expect("a query").octets();
        let send = move || {
            while !until.load(Relaxed) {
                // From many ports: both workers get one.
                let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
                socket.connect("192.0.2.1:53").expect("to connect");
                socket.send(&query).expect("to send");
                std::thread::park_timeout(EVERY * 10);
            }
        };
        client.run(send).expect("the namespace");
    });
    let unanswered = send_for(&rig.lab.client(), Instant::now(), HELD);
    rig.awaits("a rule that is stopped twice", || {
        rig.metric("millrace_lua_stopped", &[]) >= 2.0
    });
    is_over.store(true, Relaxed);
    looping.join().expect("the client");
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
            assert!(began.elapsed() < PATIENCE, "no second daemon");
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
    let unanswered = send_for(&rig.lab.client(), Instant::now(), HELD);
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
    let Some(mut rig) = Rig::start(name, &(first.to_owned() + LISTEN + REFUSED)) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let by_sockets = LISTEN.replace("xdp=true, ", "") + REFUSED;
    let second = Second::start(&rig, &by_sockets);
    let (client, began) = (rig.lab.client(), Instant::now());
    let sending = std::thread::spawn(move || send_for(&client, began, HELD));
    pass(Duration::from_millis(500));
    let killed = began.elapsed();
    rig.server.end(true).expect("a killed daemon");
    // What came while the kernel took it down.
    let late = began.elapsed() + NOTICED;
    let unanswered = sending.join().expect("the client");
    drop(second);
    let lost_late = unanswered.iter().filter(|at| **at > late).count();
    assert_eq!(lost_late, 0, "lost: {unanswered:?}");
    // What was in its buffers.
    assert!(
        unanswered.iter().all(|at| *at + NOTICED >= killed),
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

/// When those queries were sent, counted from `began`, that had no answer in the end.
fn send_for(client: &Namespace, began: Instant, duration: Duration) -> Vec<Duration> {
    allow_many_sockets();
    let query = Query::new("www.example.com.", "A")
        .expect("a query")
        .octets();
    let sent = client.run(move || {
        let mut sockets: Vec<(Duration, UdpSocket)> = Vec::new();
        while began.elapsed() < duration {
            let next = began + EVERY * sockets.len() as u32;
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            // Each from a port of its own: the hash takes them to both queues and all sockets.
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.connect("192.0.2.1:53").expect("to connect");
            socket.set_nonblocking(true).expect("a socket");
            sockets.push((began.elapsed(), socket));
            let (_, socket) = &sockets[sockets.len() - 1];
            socket.send(&query).expect("to send");
        }
        without_answer(sockets)
    });
    sent.expect("the namespace")
}

/// Awaits the answers; which queries get none.
fn without_answer(mut sockets: Vec<(Duration, UdpSocket)>) -> Vec<Duration> {
    let until = Instant::now() + LAST_ANSWER;
    while !sockets.is_empty() && Instant::now() < until {
        sockets.retain(|(_, socket)| socket.recv(&mut [0; 512]).is_err());
        std::thread::park_timeout(Duration::from_millis(1));
    }
    sockets.into_iter().map(|(at, _)| at).collect()
}

/// Hundreds of sockets for each test, as many tests at once as there are processors: the usual limit is 1,024.
fn allow_many_sockets() {
    const MANY: u64 = 65_536;
    let (now, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let wanted = now.max(most.min(MANY));
    setrlimit(Resource::RLIMIT_NOFILE, wanted, most).expect("to have many sockets");
}
