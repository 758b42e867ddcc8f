//! `millrace restart`: a new process takes over and no query is lost, whatever becomes of it.

use crate::rig::{PATIENCE, Rig, ends};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, recv, send, setsockopt, sockopt};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testnet::dns::Query;
use testnet::subject::StartedBy;

const ADDRESS: &str = "192.0.2.1:53";

/// Queries a second while a debug build does what costs none of them, on a machine that does other things too.
const RATE: u32 = 2_000;

/// The same of a restart: as many as two busy cores carry with these clients. `lab soak restarts` does it with release builds at
/// 100,000.
const MANY: u32 = 10_000;

/// Queries that a client which had no processor for a while asks at once, and those that may wait for answers: more would be
/// lost in buffers, which is not what is tested.
const AT_ONCE: f64 = 64.0;
const WAITING: usize = 2_000;

/// SO_RCVBUF of clients and backends, in bytes: they may have to wait for a processor too.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Refuses what is not for the backend, which answers late.
fn configuration(more: &str) -> String {
    format!(
        "{more}addLocal(\"{ADDRESS}\", {{xdp=true}})\n\
         newServer({{address=\"198.51.100.2:53\", name=\"late\", healthCheckMode=\"up\", xdp=true}})\n\
         addAction(\"example.com.\", RCodeAction(DNSRCode.REFUSED))\n"
    )
}

/// Asks at a fixed rate until it is told to end.
pub(crate) struct Load {
    end: Arc<AtomicBool>,
    asking: JoinHandle<(usize, usize)>,
}

impl Load {
    pub(crate) fn start(rig: &Rig, name: &'static str) -> Load {
        Load::at(rig, name, RATE)
    }

    /// The same at this rate.
    fn at(rig: &Rig, name: &'static str, rate: u32) -> Load {
        let end = Arc::new(AtomicBool::new(false));
        let (client, until) = (rig.lab.client(), Arc::clone(&end));
        let asking = std::thread::spawn(move || {
            client
                .run(move || ask_until(&until, name, rate))
                .expect("the namespace")
        });
        Load { end, asking }
    }

    /// How many were asked; all must have been answered.
    pub(crate) fn end(self) -> usize {
        self.end.store(true, Relaxed);
        let (asked, answered) = self.asking.join().expect("the client");
        assert_eq!(asked, answered, "{} lost", asked - answered);
        asked
    }
}

/// Many source ports, so that every queue and every kernel socket is asked.
const PORTS: usize = 16;

fn ask_until(end: &AtomicBool, name: &str, rate: u32) -> (usize, usize) {
    let to: SocketAddr = ADDRESS.parse().expect("an address and port");
    let sockets: Vec<UdpSocket> = (0..PORTS)
        .map(|_| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.connect(to).expect("a route");
            socket.set_nonblocking(true).expect("a socket");
            setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).expect("a buffer");
            socket
        })
        .collect();
    let mut query = Query::new(name, "A").expect("a query").octets();
    let mut waiting = HashSet::new();
    let (mut asked, mut answered) = (0usize, 0usize);
    let (mut last, mut due) = (Instant::now(), 0.0f64);
    while !end.load(Relaxed) {
        let now = Instant::now();
        due += (now - last).as_secs_f64() * f64::from(rate);
        (last, due) = (now, due.min(AT_ONCE));
        while due >= 1.0 && waiting.len() < WAITING {
            due -= 1.0;
            let id = (asked / PORTS) as u16;
            query[..2].copy_from_slice(&id.to_be_bytes());
            sockets[asked % PORTS].send(&query).expect("to send");
            waiting.insert((asked % PORTS, id));
            asked += 1;
        }
        answered += collect(&sockets, &mut waiting);
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let until = Instant::now() + PATIENCE;
    while !waiting.is_empty() && Instant::now() < until {
        answered += collect(&sockets, &mut waiting);
        std::thread::park_timeout(Duration::from_millis(1));
    }
    (asked, answered)
}

fn collect(sockets: &[UdpSocket], waiting: &mut HashSet<(usize, u16)>) -> usize {
    let mut answers = 0;
    let mut octets = [0; 512];
    for (place, socket) in sockets.iter().enumerate() {
        while socket.recv(&mut octets).is_ok() {
            let id = u16::from_be_bytes([octets[0], octets[1]]);
            answers += usize::from(waiting.remove(&(place, id)));
        }
    }
    answers
}

/// A backend that answers everything, `delay` later.
pub(crate) struct Backend(Arc<AtomicBool>);

impl Backend {
    pub(crate) fn start(rig: &Rig, delay: Duration) -> Backend {
        let running = Arc::new(AtomicBool::new(true));
        let until = Arc::clone(&running);
        let namespace = rig.lab.backend();
        let socket = namespace
            .run(|| UdpSocket::bind("198.51.100.2:53"))
            .expect("the namespace")
            .expect("a socket");
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).expect("a buffer");
        socket
            .set_read_timeout(Some(Duration::from_millis(1)))
            .expect("a time-out");
        std::thread::spawn(move || answer_late(&socket, delay, &until));
        Backend(running)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

fn answer_late(socket: &UdpSocket, delay: Duration, until: &AtomicBool) {
    let mut waiting = std::collections::VecDeque::new();
    let mut octets = [0; 512];
    while until.load(Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut octets) {
            octets[2] |= 0x80;
            waiting.push_back((Instant::now(), octets[..length].to_vec(), from));
        }
        while let Some((came, _, _)) = waiting.front()
            && came.elapsed() >= delay
        {
            let (_, answer, to) = waiting.pop_front().expect("there is one");
            socket.send_to(&answer, to).expect("to answer");
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A restart that goes well; the process that has taken over.
pub(crate) fn restarted(rig: &mut Rig) -> Pid {
    let before = rig.daemon();
    let output = rig.asks_for("restart");
    assert!(output.status.success(), "{}\n{}", said(&output), rig.log());
    rig.server.await_end().expect("the old process to end");
    let after = rig.daemon();
    assert_ne!(before, after);
    after
}

/// Ends a process that is not a child of this one, and awaits that.
pub(crate) fn end(process: Pid) {
    let _ = kill(process, Signal::SIGTERM);
    ends(process);
}

#[test]
fn a_restart_loses_no_query() {
    let Some(mut rig) = Rig::start("restart", &configuration("")) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let load = Load::at(&rig, "www.example.com.", MANY);
    let process = restarted(&mut rig);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let asked = load.end();
    println!("restart: {asked} queries, 0 lost");
    end(process);
}

/// Its queues of both interfaces share a worker's frames.
#[test]
fn a_worker_has_as_many_frames_after_a_restart() {
    let Some(mut rig) = Rig::start("asmany", &configuration("")) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let frames = |rig: &Rig| rig.metric("millrace_xsk_umem_frames", &[]);
    let before = frames(&rig);
    let process = restarted(&mut rig);
    rig.says("enp1s0: the AF_XDP program has taken the last one's place, in native mode");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.awaits(&format!("{before} frames"), || frames(&rig) == before);
    end(process);
}

#[test]
fn answers_in_flight_come_from_the_old_process() {
    let Some(mut rig) = Rig::start("inflight", &configuration("millrace.setKeepXDP(true)\n"))
    else {
        return;
    };
    let _backend = Backend::start(&rig, Duration::from_millis(300));
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let load = Load::start(&rig, "www.late.example.");
    // A few hundred are on their way when the restart begins.
    std::thread::park_timeout(Duration::from_millis(500));
    let process = restarted(&mut rig);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let asked = load.end();
    println!("restart with answers in flight: {asked} queries, 0 lost");
    end(process);
}

/// Answers one query with an address that may be kept for an hour, and is gone.
fn answer_once(rig: &Rig) -> JoinHandle<()> {
    let namespace = rig.lab.backend();
    let socket = namespace
        .run(|| UdpSocket::bind("198.51.100.2:53"))
        .expect("the namespace")
        .expect("a socket");
    std::thread::spawn(move || {
        let mut octets = [0; 512];
        let (length, from) = socket.recv_from(&mut octets).expect("a query");
        // QR, one answer; its name is the question's (RFC 1035 section 4.1.4), A, IN, 3,600 s, 4 octets.
        (octets[2], octets[7]) = (octets[2] | 0x80, 1);
        let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4, 192, 0, 2, 77];
        let answer = [&octets[..length], &record].concat();
        socket.send_to(&answer, from).expect("to answer");
    })
}

/// The backend answers once: what the next process says it can only have from the cache.
#[test]
fn the_cache_is_handed_over() {
    let configuration = format!(
        "addLocal(\"{ADDRESS}\", {{xdp=true}})\n\
         newServer({{address=\"198.51.100.2:53\", name=\"once\", healthCheckMode=\"up\", xdp=true}})\n\
         getPool(\"\"):setCache(newPacketCache(1000))\n"
    );
    let Some(mut rig) = Rig::start("cached", &configuration) else {
        return;
    };
    let backend = answer_once(&rig);
    assert!(rig.asks(ADDRESS, PATIENCE), "{}", rig.log());
    backend.join().expect("the backend");
    let process = restarted(&mut rig);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let asked = rig.metric("dnsdist_server_queries", &[("server", "once")]);
    let hits = rig.metric("dnsdist_cache_hits", &[]);
    assert!(asked == 0.0 && hits > 0.0, "{asked} asked, {hits} hits");
    end(process);
}

#[test]
fn a_bad_configuration_leaves_the_old_process_serving() {
    let Some(mut rig) = Rig::start("badnew", &configuration("")) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let load = Load::start(&rig, "www.example.com.");
    let old = rig.daemon();
    rig.write("addLocl(\"192.0.2.1:53\")\n");
    let output = rig.asks_for("restart");
    assert!(!output.status.success());
    assert!(said(&output).contains("addLocl"), "{}", said(&output));
    rig.says("no restart, this process serves on");
    assert_eq!(rig.daemon(), old);
    rig.write(&configuration(""));
    let process = restarted(&mut rig);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    load.end();
    end(process);
}

/// A zone whose file is a pipe: a reload is under way for as long as this end is open.
fn hold_reload(rig: &Rig, pipe: &Path) -> File {
    mkfifo(pipe, Mode::S_IRWXU).expect("a pipe");
    let zone = format!(
        "millrace.addZone{{name=\"example.org.\", file=\"{}\"}}\n",
        pipe.display()
    );
    rig.write(&configuration(&zone));
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.signal(Signal::SIGHUP).expect("to signal");
    let mut options = File::options();
    // Refused until somebody reads (fifo(7)).
    options.write(true).custom_flags(libc::O_NONBLOCK);
    let mut end = None;
    rig.awaits("the zone to be read", || {
        end = options.open(pipe).ok();
        end.is_some()
    });
    end.expect("the pipe's end")
}

/// What a reload has opened for itself would be "in use" for the next process, which reads the same file.
#[test]
fn a_restart_during_a_reload_is_refused_and_says_why() {
    let Some(mut rig) = Rig::start("reloading", &configuration("")) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut pipe = hold_reload(&rig, &folder.path().join("zone"));
    let output = rig.asks_for("restart");
    assert!(!output.status.success());
    let refusal = "a reload is under way: try again when it has ended";
    assert!(said(&output).contains(refusal), "{}", said(&output));
    let zone = b"@ 300 SOA ns hostmaster 7 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.1\n";
    pipe.write_all(zone).expect("the zone");
    drop(pipe);
    rig.says("configuration 2 serves");
    // The pipe holds no zone any more.
    rig.write(&configuration(""));
    let process = restarted(&mut rig);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    end(process);
}

#[test]
fn a_successor_that_dies_half_way_is_no_loss() {
    let Some(mut rig) = Rig::start("halfway", &configuration("")) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let load = Load::start(&rig, "www.example.com.");
    let old = rig.daemon();
    // Half-way is where a file says: the new process reads it.
    rig.write("os.execute('kill -9 $PPID')\n");
    let output = rig.asks_for("restart");
    assert!(!output.status.success());
    assert!(
        said(&output).contains("ended before it served"),
        "{}",
        said(&output)
    );
    assert_eq!(rig.daemon(), old);
    rig.write(&configuration(""));
    let process = restarted(&mut rig);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    load.end();
    end(process);
}

/// Set where the next test has this one started in the place of the new program.
const IS_SUCCESSOR: &str = "MILLRACE_TEST_IS_SUCCESSOR";

/// What a successor does that takes what it is given and has the old process leave its queues.
fn have_the_queues_left() {
    let end = std::io::stdin().as_raw_fd();
    send(end, br#"{"says":"ready"}"#, MsgFlags::empty()).expect("to be ready");
    let mut octets = [0; 4_096];
    loop {
        let length = recv(end, &mut octets, MsgFlags::empty()).expect("a word");
        if length == 0 || octets[..length].windows(6).any(|part| part == b"\"left\"") {
            return;
        }
    }
}

/// A successor that ends then.
#[test]
fn successor_that_ends_when_the_queues_are_left() {
    if std::env::var_os(IS_SUCCESSOR).is_some() {
        have_the_queues_left();
    }
}

/// A successor that says so in a folder, and ends when it is told to there.
#[test]
fn successor_that_keeps_the_queues_until_it_is_told() {
    let Some(folder) = std::env::var_os(IS_SUCCESSOR) else {
        return;
    };
    let folder = Path::new(&folder);
    have_the_queues_left();
    File::create(folder.join("left")).expect("a file");
    let began = Instant::now();
    while !folder.join("enough").exists() && began.elapsed() < PATIENCE {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Puts a program there, by a process of its own: who has a file open to write, were it for a moment in a copy of this process
/// that another test starts something with, keeps others from running it ("Text file busy").
fn install(from: &Path, to: &Path) {
    let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    let (from, to) = (text(from), text(to));
    testnet::namespace::run("install", &["-m", "755", &from, &to]).expect("a program");
}

/// Has the next restart of the daemon, whose program this is, run a test of this file in its place.
fn replace(program: &Path, test: &str, value: &str) {
    let tests = std::env::current_exe().expect("this test");
    let script = format!(
        "#!/bin/sh\nexport {IS_SUCCESSOR}={value}\nexec {} --exact restart::{test}\n",
        tests.display()
    );
    let newer = program.with_file_name("newer");
    std::fs::write(&newer, script).expect("a new version");
    install(&newer, program);
}

#[test]
fn a_successor_that_dies_after_the_queues_were_left_is_no_loss() {
    let Some(lab) = Rig::lab("toolate", testnet::lab::Topology::TwoInterfaces) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("millrace");
    install(Path::new(env!("CARGO_BIN_EXE_millrace")), &program);
    let mut rig = Rig::start_program(lab, &configuration(""), &StartedBy::default(), &program);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let load = Load::start(&rig, "www.example.com.");
    let old = rig.daemon();
    replace(
        &program,
        "successor_that_ends_when_the_queues_are_left",
        "1",
    );
    let output = rig.asks_for("restart");
    assert!(!output.status.success());
    assert!(
        said(&output).contains("ended before it served"),
        "{}",
        said(&output)
    );
    rig.says("no restart, this process serves on");
    assert_eq!(rig.daemon(), old);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    load.end();
    rig.server.stop().expect("a good end");
}

/// Adds a server when the queues are left.
fn edit_when_left(folder: &Path) -> String {
    format!(
        "local done = false\n\
         function maintenance()\n\
         local file = not done and io.open('{}/left')\n\
         if file then\n\
         file:close()\n\
         done = true\n\
         newServer({{address='198.51.100.3:53', healthCheckMode='up', xdp=true}})\n\
         end\n\
         end\n",
        folder.display()
    )
}

/// What the console, the API or a callback changes meanwhile binds no queue: the successor would find it taken.
#[test]
fn an_edit_while_the_queues_are_left_does_not_take_them_back() {
    let Some(lab) = Rig::lab("edited", testnet::lab::Topology::TwoInterfaces) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("millrace");
    install(Path::new(env!("CARGO_BIN_EXE_millrace")), &program);
    let edited = configuration(&edit_when_left(folder.path()));
    let mut rig = Rig::start_program(lab, &edited, &StartedBy::default(), &program);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let requests = |rig: &Rig| rig.metric("millrace_helper_requests", &[]);
    let before = requests(&rig);
    replace(
        &program,
        "successor_that_keeps_the_queues_until_it_is_told",
        &folder.path().display().to_string(),
    );
    let control = rig.control();
    let asking = std::thread::spawn(move || {
        let mut restart = Command::new(env!("CARGO_BIN_EXE_millrace"));
        restart.arg("restart").arg("--control").arg(control);
        restart.output().expect("millrace")
    });
    rig.says("configuration 2 serves");
    let more = requests(&rig) - before;
    let log = rig.log();
    // On a machine that stood still for ten seconds the successor has been given up by now, rightly.
    if !log.contains("no restart") {
        assert_eq!(more, 1.0, "the successor's start, and no queue:\n{log}");
    }
    File::create(folder.path().join("enough")).expect("a file");
    let output = asking.join().expect("the client");
    assert!(!output.status.success(), "{}", said(&output));
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}
