//! A worker that stalls while the others go on: its queries pass (bpf/README.md, "The heartbeat"), and past its kernel socket.

use crate::rig::{PATIENCE, REFUSED, Rig, allow_many_sockets, ends, pass};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::fs;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use testnet::again_if_interrupted;
use testnet::dns::Query;
use testnet::metrics::Metrics;
use testnet::namespace::Namespace;

/// How long the worker is held, and how often a query is sent meanwhile.
const HELD: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(5);

/// How long the last answer may take: what is late on a busy machine is not lost.
const LAST_ANSWER: Duration = Duration::from_secs(3);

/// What may be lost before it is noticed.
const NOTICED: Duration = Duration::from_millis(200);

/// Queries lost after that, at most, where a whole process is stopped: probes, one a second for each ring and socket, and what a
/// busy machine adds when it lets a living worker wait for 100 ms as well. Without the program that spreads it would be half of
/// them.
const LATE: usize = (HELD.as_millis() / EVERY.as_millis()) as usize / 10;

/// A held worker's queries may be lost for 100 ms in its ring and then for 100 ms in its kernel socket: two times as long as an
/// owner may show no life (`stall_jiffies` of bpf/heartbeat.h).
const OF_ITS_QUEUE: usize = (NOTICED.as_millis() / EVERY.as_millis()) as usize;

/// And the frames and datagrams that ask whether it lives: one a second to its ring, and one to its socket (`probe_jiffies`), the
/// first ones at once; and the last ones where the machine is frozen before the last query.
const PROBES: usize = 2 * (HELD.as_secs() as usize + 1);

/// Client sockets of each queue. The hash of a client's address and port says which of the daemon's kernel sockets its queries
/// meet first: of so many some meet the held worker's.
const SOCKETS: usize = 16;

/// Of so many new sockets there are enough of each queue: each has it from the kernel by a random number.
const SOCKETS_TRIED: usize = 400;

/// How long the daemon may take to show what it has counted, which it does after the batch that the answer is of. More than a
/// machine is frozen for: what is shown later would be taken for the next socket's.
const SHOWN: Duration = Duration::from_secs(5);

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
    let Some(mut rig) = Rig::start("stalled", &listen) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let sockets = sockets_by_queue(&rig);
    let spread = |chosen| rig.metric("millrace_spread", &[("chosen", chosen)]);
    let by_kernel_before = spread("kernel");
    let living = [("interface", "enp1s0"), ("queue", "0")];
    let passed = || rig.metric("millrace_xsk_heartbeat_passes", &living);
    let passed_before = passed();
    let held = Held::thread(rig.daemon(), "worker-1");
    let [of_living, of_held] = send_by_queue(&sockets);
    let past = spread("past-stalled");
    // A busy machine may let the living worker wait for 100 ms as well. Then its queries are passed to the kernel sockets, of
    // which the held one's may not be known for that yet; where nobody shows life the kernel chooses, the held one's too.
    let by_kernel = (spread("kernel") - by_kernel_before) as usize;
    let passed = (passed() - passed_before) as usize;
    drop(held);
    println!(
        "lost: {} of the held worker's queue, {} of the other's ({passed} passed); {by_kernel} while nobody showed life",
        of_held.len(),
        of_living.len()
    );
    assert!(
        !of_held.is_empty(),
        "worker 1 had no queries: nothing is proved"
    );
    assert!(
        of_held.len() <= OF_ITS_QUEUE + PROBES + by_kernel,
        "more than {OF_ITS_QUEUE} and {PROBES} probes of its queue are lost ({by_kernel} while nobody showed life): {of_held:?}"
    );
    assert!(
        of_living.len() <= passed,
        "lost of the living worker's queue, of which {passed} were passed to the kernel: {of_living:?}"
    );
    assert!(past > 0.0, "no query went past the held worker");
    rig.says("worker-1 has shown no life for 100 ms or longer: ");
    // And then all is as before.
    for _ in 0..20 {
        assert!(rig.asks("192.0.2.1:53", PATIENCE));
    }
    rig.server.stop().expect("a good end");
}

/// By hand nobody sends SIGKILL after SIGTERM: the end of a daemon waits for no worker for ever.
#[test]
fn a_worker_that_hangs_does_not_keep_the_daemon_from_its_end() {
    let listen = "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED;
    let Some(mut rig) = Rig::start("hanging", &listen) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    let daemon = rig.daemon();
    let held = Held::thread(daemon, "worker-1");
    rig.server.signal(Signal::SIGTERM).expect("to signal");
    rig.says("worker-1 hangs: its end is not waited for");
    ends(daemon);
    // Whoever traces a thread is told of its end before the parent is told of the process's.
    waitpid(held.0, Some(WaitPidFlag::__WALL)).expect("its end");
    rig.server.await_end().expect("a good end");
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

/// I4 of a daemon that is stalled.
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

/// How long a living process may take for an answer, on a machine that is frozen meanwhile.
const ANSWERED: Duration = Duration::from_secs(1);

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
    let sending = std::thread::spawn(move || send_for(&client, began, 2 * HELD));
    pass(HELD);
    let killed = began.elapsed();
    rig.server.end(true).expect("a killed daemon");
    // What came while the kernel took it down.
    let late = began.elapsed() + NOTICED;
    let unanswered = sending.join().expect("the client");
    drop(second);
    let lost_late = unanswered.iter().filter(|at| **at > late).count();
    assert_eq!(lost_late, 0, "lost: {unanswered:?}");
    // What was in its buffers; not what came long before.
    assert!(
        unanswered.iter().all(|at| *at + ANSWERED >= killed),
        "lost before: {unanswered:?}"
    );
    println!("{} lost by the kill", unanswered.len());
}

/// I4 of a daemon that is dead.
#[test]
fn a_killed_process_leaves_its_queries_to_the_second_one_at_once() {
    killed("killed", "");
}

#[test]
fn a_killed_process_leaves_its_queries_though_its_program_stays() {
    killed("killed-kept", "millrace.setKeepXDP(true)\n");
}

/// When those queries were sent, counted from `began`, that had no answer in the end. What a machine that was frozen did not send
/// in time is left out: at once it would all be sent before anybody could have noticed that nobody takes it.
fn send_for(client: &Namespace, began: Instant, duration: Duration) -> Vec<Duration> {
    allow_many_sockets();
    let query = query();
    let sent = client.run(move || {
        let mut sockets: Vec<(Duration, UdpSocket)> = Vec::new();
        while began.elapsed() < duration {
            pass(EVERY);
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

/// Client sockets whose queries come by queue 0, and by queue 1. The client's kernel decides by a random number that a socket has
/// from its connect(2) on, and tells nobody: what the daemon counts tells.
fn sockets_by_queue(rig: &Rig) -> [Vec<UdpSocket>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    for _ in 0..SOCKETS_TRIED {
        if found.iter().all(|sockets| sockets.len() == SOCKETS) {
            return found;
        }
        let made = rig.lab.client().run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.connect("192.0.2.1:53").expect("to connect");
            socket
        });
        let socket = made.expect("the namespace");
        if let Some(queue) = queue_of(rig, &socket)
            && found[queue].len() < SOCKETS
        {
            socket.set_nonblocking(true).expect("a socket");
            found[queue].push(socket);
        }
    }
    panic!(
        "of {SOCKETS_TRIED} sockets {} are of queue 0 and {} of queue 1, not {SOCKETS} each",
        found[0].len(),
        found[1].len()
    );
}

/// By which queue one query comes, of a client that asks nothing else. `None`: not by AF_XDP.
fn queue_of(rig: &Rig, socket: &UdpSocket) -> Option<usize> {
    let before = received(rig);
    socket.send(&query()).expect("to send");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    again_if_interrupted(|| socket.recv(&mut [0; 512])).expect("an answer");
    let began = Instant::now();
    loop {
        // Before the look: what is not shown after that long was not received.
        let is_last = began.elapsed() > SHOWN;
        let now = received(rig);
        let queue = (0..2).find(|&queue| now[queue] > before[queue]);
        if queue.is_some() || is_last {
            return queue;
        }
    }
}

/// Frames that each queue has received.
fn received(rig: &Rig) -> [f64; 2] {
    let metrics = Metrics::of(&rig.lab.server()).expect("/metrics");
    ["0", "1"].map(|queue| {
        let labels = [("interface", "enp1s0"), ("queue", queue)];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        metrics.sum("millrace_xsk_received", &labels).unwrap_or(0.0)
    })
}

fn query() -> Vec<u8> {
    let query = Query::new("www.example.com.", "A");
    query.expect("a query").octets()
}

/// Asks by both queues for as long as the worker is held, each query under an ID of its own; as in [`send_for`] never faster than
/// usual. Of each queue: when those were sent that had no answer in the end.
fn send_by_queue(sockets: &[Vec<UdpSocket>; 2]) -> [Vec<Duration>; 2] {
    let mut query = query();
    let mut waiting = HashMap::new();
    let began = Instant::now();
    for number in 0_u16.. {
        pass(EVERY);
        let at = began.elapsed();
        if at >= HELD {
            break;
        }
        query[..2].copy_from_slice(&number.to_be_bytes());
        for (queue, sockets) in sockets.iter().enumerate() {
            let socket = &sockets[usize::from(number) % SOCKETS];
            socket.send(&query).expect("to send");
            waiting.insert((queue, number), at);
        }
    }
    let until = Instant::now() + LAST_ANSWER;
    while !waiting.is_empty() && Instant::now() < until {
        take_answers(sockets, &mut waiting);
        std::thread::park_timeout(Duration::from_millis(1));
    }
    [0, 1].map(|queue| {
        let lost = waiting.iter().filter(|((of, _), _)| *of == queue);
        let mut times: Vec<Duration> = lost.map(|(_, at)| *at).collect();
        times.sort_unstable();
        times
    })
}

fn take_answers(sockets: &[Vec<UdpSocket>; 2], waiting: &mut HashMap<(usize, u16), Duration>) {
    let mut octets = [0; 512];
    for (queue, sockets) in sockets.iter().enumerate() {
        for socket in sockets {
            while socket.recv(&mut octets).is_ok() {
                let id = u16::from_be_bytes([octets[0], octets[1]]);
                waiting.remove(&(queue, id));
            }
        }
    }
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
