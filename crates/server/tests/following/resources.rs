//! Processors and memory that become fewer: what serves goes on with less, and nobody is ended for want of memory.

use crate::restart::Load;
use crate::rig::{PATIENCE, REFUSED, Rig, all_processors_alone, pass};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use testnet::again_if_interrupted;
use testnet::dns::Query;
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
        // What the last process had is given back by and by.
        let began = Instant::now();
        while let Err(error) = fs::write(&file, bytes.to_string()) {
            let waited = began.elapsed();
            assert!(waited < PATIENCE, "no limit of {bytes}: {error}");
            std::thread::park_timeout(Duration::from_millis(50));
        }
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
        while fs::remove_dir(&self.folder).is_err() && began.elapsed() < Duration::from_secs(20) {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

/// The last processor, taken away from the whole machine until this is dropped (Documentation/core-api/cpu_hotplug.rst).
struct Offline {
    file: PathBuf,
}

impl Offline {
    /// `None`: this machine gives none away. To be called by whoever has [`all_processors_alone`].
    fn last() -> Option<Offline> {
        let folder = |number| format!("/sys/devices/system/cpu/cpu{number}/online");
        let files = (1..).map(|number| PathBuf::from(folder(number)));
        let last = files.take_while(|file| file.exists()).last();
        let file = last.filter(|file| Offline::take(file));
        if file.is_none() {
            println!("SKIP: no processor can be taken offline");
        }
        Some(Offline { file: file? })
    }

    /// False: it is not given away. While somebody else changes what processors there are, the kernel is busy.
    fn take(file: &Path) -> bool {
        let began = Instant::now();
        loop {
            match fs::write(file, "0") {
                Err(error) if is_busy(&error) && began.elapsed() < Duration::from_secs(10) => {
                    std::thread::park_timeout(Duration::from_millis(20));
                }
                outcome => return outcome.is_ok(),
            }
        }
    }

    fn number(&self) -> &str {
        let folder = self.file.parent().and_then(Path::file_name);
        let name = folder.and_then(|name| name.to_str()).expect("cpuN");
        name.trim_start_matches("cpu")
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        // Others are asked to give way; it may take more than one try.
        while fs::write(&self.file, "1").is_err() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

/// The numbers of the processors that this test may run on: not every container has all of the machine's.
fn own_processors() -> Vec<String> {
    let own = sched_getaffinity(Pid::from_raw(0)).expect("our processors");
    let numbers = (0..CpuSet::count()).filter(|number| own.is_set(*number) == Ok(true));
    numbers.map(|number| number.to_string()).collect()
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
    cgroup.may_use(&own_processors()[0]);
    let rig = Rig::start_by(lab, &(LISTEN.to_owned() + REFUSED), &cgroup.starts());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    for _ in 0..100 {
        assert!(rig.asks(ADDRESS, PATIENCE));
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
    let own = own_processors();
    let (first, all) = (own[0].as_str(), own.join(","));
    cgroup.may_use(&all);
    let rig = Rig::start_by(lab, &(LISTEN.to_owned() + REFUSED), &cgroup.starts());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let load = Load::start(&rig, "www.example.com.");
    for processors in [first, &all, first] {
        cgroup.set("cpuset.cpus", processors);
        pass(Duration::from_millis(300));
    }
    let asked = load.end();
    println!("{asked} queries, 0 lost");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}

/// The processor of a pinned worker goes offline, and comes back, while queries come.
#[test]
fn f28_a_processor_goes_offline_under_a_pinned_worker_and_no_query_is_lost() {
    let configuration = LISTEN.replace("xdp=true", "xdp=true, cpus={0, 1}") + REFUSED;
    let Some(lab) = Rig::lab("offline", Topology::FourQueues) else {
        return;
    };
    let _alone = all_processors_alone();
    let Some(offline) = Offline::last() else {
        return;
    };
    let pinned = format!("cpus={{0, {}}}", offline.number());
    drop(offline);
    let rig = Rig::start_in(lab, &configuration.replace("cpus={0, 1}", &pinned));
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let load = Load::start(&rig, "www.example.com.");
    for _ in 0..3 {
        let Some(offline) = Offline::last() else {
            panic!("the processor went offline before");
        };
        pass(Duration::from_millis(200));
        drop(offline);
        pass(Duration::from_millis(100));
    }
    println!("{} queries, 0 lost", load.end());
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
            began.elapsed() < PATIENCE,
            "{:?}, not {expected:?}",
            run_on(rig)
        );
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn workers_run_where_cpus_says_and_a_reload_changes_it() {
    let cpus = |list: &str| LISTEN.replace("xdp=true", &format!("xdp=true, {list}")) + REFUSED;
    let own = own_processors();
    let (first, last) = (own[0].as_str(), own[own.len() - 1].as_str());
    let Some(mut rig) = Rig::start("cpus", &cpus(&format!("cpus={{{last}, {first}}}"))) else {
        return;
    };
    await_workers_on(&rig, [last, first]);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.reload(&cpus(&format!("cpus={{{first}}}")));
    await_workers_on(&rig, [first, first]);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    // One that there is not.
    rig.reload(&cpus("cpus={900}"));
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.says("worker 1 runs on any processor");
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
        assert!(rig.asks(ADDRESS, PATIENCE));
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

/// Answers every query with a text of 448 octets that may be kept for an hour, until it is dropped.
struct Texts(Arc<AtomicBool>);

impl Texts {
    fn start(rig: &Rig) -> Texts {
        let running = Arc::new(AtomicBool::new(true));
        let until = Arc::clone(&running);
        let opened = rig.lab.backend().run(|| UdpSocket::bind("198.51.100.2:53"));
        let socket = opened.expect("the namespace").expect("a socket");
        socket
            .set_read_timeout(Some(Duration::from_millis(5)))
            .expect("a time-out");
        std::thread::spawn(move || {
            // A pointer to the question, TXT, IN, 3,600 s, 448 octets: four texts of 111.
            let mut record = vec![0xc0, 12, 0, 16, 0, 1, 0, 0, 0x0e, 0x10, 0x01, 0xc0];
            for _ in 0..4 {
                record.push(111);
                record.extend([b'x'; 111]);
            }
            let mut octets = [0; 512];
            while until.load(Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut octets) {
                    // QR, one answer, and no OPT record (RFC 1035 section 4.1.1).
                    (octets[2], octets[7]) = (octets[2] | 0x80, 1);
                    let answer = [&octets[..length], &record].concat();
                    socket.send_to(&answer, from).expect("to answer");
                }
            }
        });
        Texts(running)
    }
}

impl Drop for Texts {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Asks for the names with these numbers, eight at once from ports of their own: all must be answered.
fn ask_for_texts(rig: &Rig, numbers: std::ops::Range<u32>) {
    let asking = move || {
        let sockets: Vec<UdpSocket> = (0..8)
            .map(|_| {
                let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
                socket.connect(ADDRESS).expect("a route");
                let patience = Some(PATIENCE);
                socket.set_read_timeout(patience).expect("a time-out");
                socket
            })
            .collect();
        let mut octets = [0; 2_048];
        let mut next = numbers.clone();
        while !next.is_empty() {
            let batch: Vec<u32> = next.by_ref().take(sockets.len()).collect();
            for (number, socket) in batch.iter().zip(&sockets) {
                let name = format!("n{number}.example.com.");
                let query = Query::new(&name, "TXT").expect("a query").octets();
                socket.send(&query).expect("to send");
            }
            for (number, socket) in batch.iter().zip(&sockets) {
                let Ok(length) = again_if_interrupted(|| socket.recv(&mut octets)) else {
                    return Some(*number);
                };
                assert!(length > 448, "an answer of {length} octets");
            }
        }
        None
    };
    let unanswered = rig.lab.client().run(asking).expect("the namespace");
    assert_eq!(unanswered, None, "{:?}:\n{}", rig.drops(), rig.log());
}

/// F33: the limit is just above what it takes; then the cache wants twenty megabytes more. It grows no more, and every query is
/// answered; when there is room again it grows.
#[test]
fn f33_a_limit_just_above_the_steady_state_costs_cache_and_no_query() {
    let Some(lab) = Rig::lab("limit", Topology::TwoInterfaces) else {
        return;
    };
    let Some(cgroup) = Cgroup::make("memory", "millrace-limit") else {
        return;
    };
    let configuration = LISTEN.to_owned()
        + "setMaxUDPOutstanding(512)\n\
           setRingBuffersSize(1000)\n\
           newServer({address=\"198.51.100.2:53\", healthCheckMode=\"up\", xdp=true})\n\
           getPool(\"\"):setCache(newPacketCache(200000))\n";
    let mut rig = Rig::start_by(lab, &configuration, &cgroup.starts());
    let _texts = Texts::start(&rig);
    ask_for_texts(&rig, 0..2_000);
    let steady = cgroup.used();
    println!("steady at {steady} bytes, {} at most", cgroup.most());
    cgroup.limit(steady + MARGIN + 4 * MIB);
    ask_for_texts(&rig, 2_000..30_000);
    rig.says("packet caches grow no more");
    // What the cgroup uses has pages of files in it, which come and go.
    let limited = memory(&rig, "RssAnon:");
    println!("{limited} bytes of its own, {} at most", cgroup.most());
    assert_eq!(cgroup.killed(), 0, "{}", rig.log());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    cgroup.limit(steady + 8 * MARGIN);
    rig.says("there is room again");
    // More than there is room for by now: the ring goes round, and is longer then.
    ask_for_texts(&rig, 30_000..80_000);
    let grown = memory(&rig, "RssAnon:");
    assert!(
        grown > limited + 8 * MIB,
        "the cache grows again: {limited}, {grown}"
    );
    assert_eq!(cgroup.killed(), 0);
    rig.server.stop().expect("a good end");
}

/// F33: others take what the limit leaves. The cache gives back its oldest entries' memory, and every query is answered; when there
/// is room again it grows.
#[test]
fn f33_a_cache_gives_back_what_others_need_and_no_query_is_lost() {
    let Some(lab) = Rig::lab("given", Topology::TwoInterfaces) else {
        return;
    };
    let Some(cgroup) = Cgroup::make("memory", "millrace-given") else {
        return;
    };
    let configuration = LISTEN.to_owned()
        + "setMaxUDPOutstanding(512)\n\
           setRingBuffersSize(1000)\n\
           newServer({address=\"198.51.100.2:53\", healthCheckMode=\"up\", xdp=true})\n\
           getPool(\"\"):setCache(newPacketCache(200000))\n";
    let mut rig = Rig::start_by(lab, &configuration, &cgroup.starts());
    let _texts = Texts::start(&rig);
    ask_for_texts(&rig, 0..20_000);
    let (full, used) = (memory(&rig, "RssAnon:"), cgroup.used());
    // As if others had taken it: a limit that comes down is met in the same way.
    cgroup.limit(used + 6 * MIB);
    rig.says("packet caches have given");
    ask_for_texts(&rig, 20_000..24_000);
    let left = memory(&rig, "RssAnon:");
    println!("{full} bytes of its own, {left} after that");
    assert!(left + 4 * MIB < full, "nothing was given: {full}, {left}");
    assert_eq!(cgroup.killed(), 0, "{}", rig.log());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    cgroup.limit(used + 8 * MARGIN);
    rig.says("there is room again");
    ask_for_texts(&rig, 24_000..44_000);
    let grown = memory(&rig, "RssAnon:");
    assert!(grown > left + 4 * MIB, "it grows again: {left}, {grown}");
    assert_eq!(cgroup.killed(), 0);
    rig.server.stop().expect("a good end");
}

/// Bytes of the daemon's memory by one line of proc_pid_status(5).
pub(crate) fn memory(rig: &Rig, kind: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", rig.daemon()));
    let status = status.expect("its status");
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(kind));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number(kilobytes.expect("a number of kB")) * 1_024
}

/// Sets how much address space the daemon may have: bytes, or `unlimited`.
fn limit_address_space(rig: &Rig, most: &str) {
    let status = Command::new("prlimit")
        .arg("--pid")
        .arg(rig.daemon().to_string())
        // The soft limit, which can be taken back.
        .arg(format!("--as={most}:"))
        .status();
    assert!(status.expect("prlimit").success(), "--as={most}:");
}

/// F33: from one moment on the kernel gives the daemon no memory for its cache (RLIMIT_AS; a segment takes four megabytes of
/// addresses for a moment). New entries take the place of old ones, and every query is answered; when there is memory again the
/// cache grows.
#[test]
fn f33_where_mmap_fails_the_cache_gives_way_and_no_query_is_lost() {
    let Some(lab) = Rig::lab("mmap", Topology::TwoInterfaces) else {
        return;
    };
    let configuration = LISTEN.to_owned()
        + "setMaxUDPOutstanding(512)\n\
           setRingBuffersSize(1000)\n\
           newServer({address=\"198.51.100.2:53\", healthCheckMode=\"up\", xdp=true})\n\
           getPool(\"\"):setCache(newPacketCache(200000))\n";
    let rig = Rig::start_in(lab, &configuration);
    let _texts = Texts::start(&rig);
    ask_for_texts(&rig, 0..2_000);
    let taken = memory(&rig, "VmSize:");
    limit_address_space(&rig, &(taken + 3 * MIB).to_string());
    ask_for_texts(&rig, 2_000..12_000);
    let limited = memory(&rig, "RssAnon:");
    limit_address_space(&rig, "unlimited");
    ask_for_texts(&rig, 12_000..32_000);
    let grown = memory(&rig, "RssAnon:");
    println!("{taken} bytes of addresses; {limited} bytes used at the limit, {grown} without");
    assert!(
        grown > limited + 4 * MIB,
        "the cache grows again: {limited}, {grown}"
    );
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}
