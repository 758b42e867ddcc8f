//! Processors and memory that become fewer: what serves goes on with less, and nobody is ended for want of memory.

use crate::restart::Load;
use crate::rig::{REFUSED, Rig};
use std::collections::HashSet;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testnet::lab::Topology;
use testnet::subject::StartedBy;

const ADDRESS: &str = "192.0.2.1:53";
const LISTEN: &str = "addLocal(\"192.0.2.1:53\", {xdp=true})\n";

/// Bytes that the daemon leaves free below a limit, and those of the frames of four queues.
const MARGIN: u64 = 16 << 20;
const FRAMES: u64 = 4 * 12_352 * 2_048;
const MIB: u64 = 1 << 20;

/// A cgroup of one controller, removed when it is dropped and empty.
struct Cgroup {
    folder: PathBuf,
    /// Mounts what shows it, where the daemon sees it: a lab has a /sys of its own.
    mount: String,
}

impl Cgroup {
    fn make(controller: &str, name: &str) -> Option<Cgroup> {
        let root = Path::new("/sys/fs/cgroup");
        let of_v1 = format!(
            "mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/{controller} && \
             mount -t cgroup -o {controller} none /sys/fs/cgroup/{controller}"
        );
        let of_v2 = "mount -t cgroup2 none /sys/fs/cgroup".to_owned();
        let places = [
            (root.join(controller).join(name), of_v1),
            (root.join(name), of_v2),
        ];
        for (folder, mount) in places {
            let made = fs::create_dir(&folder);
            let files = ["cpuset.cpus", "memory.limit_in_bytes", "memory.max"].into_iter();
            let mut files = files.filter(|file| file.starts_with(controller));
            if files.any(|file| folder.join(file).exists()) {
                return Some(Cgroup { folder, mount });
            }
            if made.is_ok() {
                let _ = fs::remove_dir(&folder);
            }
        }
        println!("SKIP: no cgroup can be made with the controller {controller}");
        None
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.folder.join(file), value).expect("to set what the cgroup may");
    }

    /// One processor or more; of all nodes' memory.
    fn may_use(&self, processors: &str) {
        self.set("cpuset.cpus", processors);
        self.set("cpuset.mems", "0");
    }

    /// The first of these files that there is: cgroup v1 and v2 have names of their own.
    fn file(&self, names: [&str; 2]) -> PathBuf {
        let paths = names.map(|name| self.folder.join(name));
        let found = paths.iter().find(|path| path.exists());
        found.cloned().expect("a file of the cgroup")
    }

    fn limit(&self, bytes: u64) {
        let file = self.file(["memory.limit_in_bytes", "memory.max"]);
        fs::write(file, bytes.to_string()).expect("to limit the memory");
    }

    /// Bytes in use, without files that nobody has used for long, or mapped: as the daemon counts.
    fn used(&self) -> u64 {
        let file = self.file(["memory.usage_in_bytes", "memory.current"]);
        let used: u64 = number(&fs::read_to_string(file).expect("what is used"));
        let mapped = self
            .counted("mapped_file ")
            .max(self.counted("file_mapped "));
        used - self.counted("inactive_file ").saturating_sub(mapped)
    }

    /// The most bytes that were ever in use.
    fn most(&self) -> u64 {
        let file = self.file(["memory.max_usage_in_bytes", "memory.peak"]);
        number(&fs::read_to_string(file).expect("what was used at most"))
    }

    fn counted(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.folder.join("memory.stat")).expect("statistics");
        let mut lines = text.lines();
        lines
            .find_map(|line| line.strip_prefix(name))
            .map_or(0, number)
    }

    /// How often somebody was ended because the limit was met.
    fn killed(&self) -> u64 {
        let file = self.file(["memory.oom_control", "memory.events"]);
        let text = fs::read_to_string(file).expect("events");
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("oom_kill "));
        number(line.expect("a count of kills"))
    }

    /// Starts what follows in this cgroup.
    fn starts(&self) -> StartedBy {
        let script = format!(
            "{} && echo $$ >{}/cgroup.procs && exec \"$@\"",
            self.mount,
            self.folder.display()
        );
        let words = ["sh", "-c", &script, "sh"];
        StartedBy {
            command: words.map(str::to_owned).to_vec(),
            denied: Vec::new(),
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Whoever was in it may be on the way out.
        let began = Instant::now();
        while fs::remove_dir(&self.folder).is_err() && began.elapsed() < Duration::from_secs(2) {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

fn number(text: &str) -> u64 {
    text.trim().parse().expect("a number")
}

#[test]
fn f28_a_cpuset_of_one_processor_serves_four_queues() {
    let Some(lab) = Rig::lab("cpuset", Topology::FourQueues) else {
        return;
    };
    let Some(cgroup) = Cgroup::make("cpuset", "millrace-one-processor") else {
        return;
    };
    cgroup.may_use("0");
    let rig = Rig::start_by(lab, &(LISTEN.to_owned() + REFUSED), &cgroup.starts());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    for _ in 0..100 {
        assert!(rig.asks(ADDRESS, Duration::from_secs(1)));
    }
    rig.server.stop().expect("a good end");
}

/// A processor that is taken away moves the threads on it to those that are left, as here: the cpuset becomes smaller.
#[test]
fn f28_a_processor_goes_and_comes_back_and_no_query_is_lost() {
    let Some(lab) = Rig::lab("processor", Topology::FourQueues) else {
        return;
    };
    let Some(cgroup) = Cgroup::make("cpuset", "millrace-processor-goes") else {
        return;
    };
    let all = fs::read_to_string("/sys/devices/system/cpu/online").expect("processors");
    cgroup.may_use(all.trim());
    let rig = Rig::start_by(lab, &(LISTEN.to_owned() + REFUSED), &cgroup.starts());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let load = Load::start(&rig, "www.example.com.");
    for processors in ["0", all.trim(), "0"] {
        cgroup.set("cpuset.cpus", processors);
        std::thread::park_timeout(Duration::from_millis(300));
    }
    let asked = load.end();
    println!("{asked} queries, 0 lost");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}

/// The processors that each worker may run on.
fn run_on(rig: &Rig) -> Vec<String> {
    let daemon = rig.daemon();
    let tasks = fs::read_dir(format!("/proc/{daemon}/task")).expect("its threads");
    let mut workers: Vec<(String, String)> = tasks
        .flatten()
        .filter_map(|task| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let of = |name| {
                let mut lines = status.lines();
                Some(
                    lines
                        .find_map(|line| line.strip_prefix(name))?
                        .trim()
                        .to_owned(),
                )
            };
            let name = of("Name:").filter(|name| name.starts_with("worker-"))?;
            Some((name, of("Cpus_allowed_list:")?))
        })
        .collect();
    workers.sort();
    workers.into_iter().map(|(_, list)| list).collect()
}

/// Awaits that the workers run there: they hear of it between two batches.
fn await_workers_on(rig: &Rig, expected: [&str; 2]) {
    let began = Instant::now();
    while run_on(rig) != expected {
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}, not {expected:?}",
            run_on(rig)
        );
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn workers_run_where_cpus_says_and_a_reload_changes_it() {
    let cpus = |list: &str| LISTEN.replace("xdp=true", &format!("xdp=true, {list}")) + REFUSED;
    let Some(rig) = Rig::start("cpus", &cpus("cpus={1, 0}")) else {
        return;
    };
    await_workers_on(&rig, ["1", "0"]);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.reload(&cpus("cpus={0}"));
    await_workers_on(&rig, ["0", "0"]);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    // One that there is not.
    rig.reload(&cpus("cpus={900}"));
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let log = rig.log();
    assert!(log.contains("worker 1 runs on any processor"), "{log}");
    rig.reload(&cpus("reusePort=false"));
    let status = fs::read_to_string("/proc/self/status").expect("our status");
    let mut lines = status.lines();
    let all = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let all = all.expect("our processors").trim();
    await_workers_on(&rig, [all, all]);
    rig.server.stop().expect("a good end");
}

#[test]
fn f28_a_tight_memory_cgroup_costs_frames_or_af_xdp_but_not_the_service() {
    let Some(lab) = Rig::lab("tight", Topology::FourQueues) else {
        return;
    };
    let Some(cgroup) = Cgroup::make("memory", "millrace-tight") else {
        return;
    };
    let configuration = LISTEN.to_owned() + REFUSED;
    let rig = Rig::start_by(lab, &configuration, &cgroup.starts());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let all = cgroup.used();
    println!("{all} bytes used, {} at most", cgroup.most());
    let lab = rig.stop();

    cgroup.limit(all - FRAMES / 2);
    let mut rig = Rig::start_by(lab, &configuration, &cgroup.starts());
    rig.says("memory is tight: each of 4 queues gets");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_eq!(cgroup.killed(), 0);
    let lab = rig.stop();

    // What there is without frames, and less than the least of those.
    cgroup.limit(all - FRAMES + 4 * MIB);
    let mut rig = Rig::start_by(lab, &configuration, &cgroup.starts());
    rig.says("no AF_XDP for now, kernel sockets serve: the frames of 4 queues take");
    rig.is_served_by_the_kernel(ADDRESS, "enp1s0");
    for _ in 0..20 {
        assert!(rig.asks(ADDRESS, Duration::from_secs(1)));
    }
    assert_eq!(cgroup.killed(), 0);
    assert_eq!(
        rig.log().matches("kernel sockets").count(),
        1,
        "one line:\n{}",
        rig.log()
    );
    // There is room again, and AF_XDP without a restart.
    cgroup.limit(all + 2 * MARGIN);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}

#[test]
fn f33_just_below_the_limit_caches_grow_no_more_and_the_service_goes_on() {
    let Some(lab) = Rig::lab("limit", Topology::TwoInterfaces) else {
        return;
    };
    let Some(cgroup) = Cgroup::make("memory", "millrace-limit") else {
        return;
    };
    let configuration = LISTEN.to_owned()
        + "newServer({address=\"198.51.100.2:53\", healthCheckMode=\"up\", xdp=true})\n\
           getPool(\"\"):setCache(newPacketCache(1000000))\n";
    let mut rig = Rig::start_by(lab, &configuration, &cgroup.starts());
    let socket = rig
        .lab
        .backend()
        .run(|| UdpSocket::bind("198.51.100.2:53"))
        .expect("the namespace")
        .expect("a socket");
    std::thread::spawn(move || answer_all(&socket));
    // What is touched once for all: buffers, tables.
    let again = ask_for(&rig, 0..2_000);
    println!("{again} asked again at first");
    cgroup.limit(cgroup.used() + MARGIN + 2 * MIB);
    let mut again = ask_for(&rig, 2_000..10_000);
    println!("{again} asked again until near the limit");
    rig.says("packet caches grow no more");
    let before = cgroup.used();
    again += ask_for(&rig, 10_000..20_000);
    println!("{again} asked again in all");
    let grown = cgroup.used().saturating_sub(before);
    println!("{before} bytes used near the limit, {grown} more 10,000 answers later");
    assert!(grown < 3 * MIB, "{grown} bytes more near the limit");
    assert_eq!(cgroup.killed(), 0);
    // What was kept last is there, though the cache is full.
    let hits = || rig.metric("dnsdist_pool_cache_hits", &[]);
    let hit = hits();
    ask_for(&rig, 19_900..20_000);
    assert!(hits() > hit, "the cache serves no more");
    rig.server.stop().expect("a good end");
}

/// Octets of the text in an answer.
const TEXT: usize = 400;

/// Answers each query with a text, until nobody asks any more.
fn answer_all(socket: &UdpSocket) {
    let patience = Some(Duration::from_secs(10));
    socket.set_read_timeout(patience).expect("a time-out");
    let mut message = [0; 1_024];
    while let Ok((length, from)) = socket.recv_from(&mut message) {
        let mut answer = message[..length].to_vec();
        answer[2] |= 0x80;
        answer[7] = 1;
        // The question's name, TXT, IN, 300 s, and two strings.
        answer.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 1, 44]);
        answer.extend((TEXT as u16).to_be_bytes());
        for length in [255, TEXT - 255 - 2] {
            answer.push(length as u8);
            answer.extend(std::iter::repeat_n(b'x', length));
        }
        let _ = socket.send_to(&answer, from);
    }
}

/// Asks for the texts of names with these numbers, below 2^16, some at a time, until all are answered; how many were asked for
/// once more.
fn ask_for(rig: &Rig, numbers: std::ops::Range<u32>) -> usize {
    const AT_ONCE: usize = 32;
    let client = rig.lab.client();
    let asked = client.run(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.connect(ADDRESS).expect("a route");
        let patience = Some(Duration::from_millis(500));
        socket.set_read_timeout(patience).expect("a time-out");
        let mut numbers = numbers.peekable();
        let mut waiting = HashSet::new();
        let mut again = 0;
        while numbers.peek().is_some() || !waiting.is_empty() {
            for number in numbers.by_ref().take(AT_ONCE - waiting.len()) {
                socket.send(&query(number)).expect("to send");
                waiting.insert(number as u16);
            }
            let mut answer = [0; 1_024];
            match socket.recv(&mut answer) {
                Ok(length) => {
                    assert!(length > TEXT, "an answer of {length} octets");
                    waiting.remove(&u16::from_be_bytes([answer[0], answer[1]]));
                }
                Err(_) => {
                    again += waiting.len();
                    for &number in &waiting {
                        socket.send(&query(number.into())).expect("to send");
                    }
                }
            }
        }
        again
    });
    asked.expect("the namespace")
}

fn query(number: u32) -> Vec<u8> {
    let mut query = (number as u16).to_be_bytes().to_vec();
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let label = format!("n{number}");
    query.push(label.len() as u8);
    query.extend(label.as_bytes());
    query.extend(b"\x07example\x03com\0\0\x10\0\x01");
    query
}
