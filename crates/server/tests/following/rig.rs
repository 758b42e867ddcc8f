//! A lab with the daemon in it, and the questions that a test asks of it.

use libbpf_rs::Link;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use testnet::again_if_interrupted;
use testnet::dns::Query;
use testnet::lab::{Lab, Plan, Topology};
use testnet::metrics::Metrics;
use testnet::namespace::Namespace;
use testnet::subject::{Server, StartedBy, Subject, SubjectKind};

/// Every query is refused: nothing else is needed to see which way it came.
pub(crate) const REFUSED: &str = "addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))\n";

/// How many times as long as promised a build may take that is not optimised, on a machine that does other things too. That the
/// promise itself is kept, by an optimised daemon and after every fault, is what `lab soak` measures (I9).
const SLOWER: u32 = if cfg!(debug_assertions) { 5 } else { 1 };

/// After a change kernel sockets or AF_XDP serve within this, and AF_XDP within [`AF_XDP_AGAIN`].
const SERVED_AGAIN: Duration = Duration::from_secs(1).saturating_mul(SLOWER);
pub(crate) const AF_XDP_AGAIN: Duration = Duration::from_secs(5).saturating_mul(SLOWER);

/// How long an answer is waited for that may not come, before the next query, and a count that may stay as it is.
const SOON: Duration = Duration::from_millis(100).saturating_mul(SLOWER);

/// How long something is awaited that must come at last: a start, a line, the answer to a query that nothing may lose.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Held shared by every test that has a lab, alone by the one that takes a processor away from the whole machine: meanwhile the
/// kernel lets nobody attach a program (cpus_read_lock), and has been seen not to for half a minute.
static PROCESSORS: RwLock<()> = RwLock::new(());

thread_local! {
    /// This test's part of it, until its thread ends.
    static SHARED: RefCell<Option<RwLockReadGuard<'static, ()>>> = const { RefCell::new(None) };
}

fn share_processors() {
    SHARED.with_borrow_mut(|shared| {
        shared.get_or_insert_with(|| PROCESSORS.read().unwrap_or_else(PoisonError::into_inner));
    });
}

/// Waits until no other test has a lab; none gets one as long as this is held.
pub(crate) fn all_processors_alone() -> RwLockWriteGuard<'static, ()> {
    SHARED.take();
    PROCESSORS.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Rig {
    pub(crate) lab: Lab,
    pub(crate) server: Server,
    folder: tempfile::TempDir,
}

impl Rig {
    /// The daemon under `configuration`, in a lab of this name. `None`: this needs root.
    pub(crate) fn start(name: &str, configuration: &str) -> Option<Rig> {
        let lab = Rig::lab(name, Topology::TwoInterfaces)?;
        Some(Rig::start_in(lab, configuration))
    }

    /// A lab without the daemon. `None`: this needs root.
    pub(crate) fn lab(name: &str, topology: Topology) -> Option<Lab> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIP: network namespaces need root");
            return None;
        }
        share_processors();
        let plan = Plan {
            prefix: format!("follow-{name}"),
            topology,
        };
        Some(Lab::up(plan).expect("a lab"))
    }

    pub(crate) fn start_in(lab: Lab, configuration: &str) -> Rig {
        Rig::start_by(lab, configuration, &StartedBy::default())
    }

    /// The same with words before the daemon's own.
    pub(crate) fn start_by(lab: Lab, configuration: &str, by: &StartedBy) -> Rig {
        let program = Path::new(env!("CARGO_BIN_EXE_millrace"));
        Rig::start_program(lab, configuration, by, program)
    }

    /// The same with another file of the program.
    pub(crate) fn start_program(
        lab: Lab,
        configuration: &str,
        by: &StartedBy,
        program: &Path,
    ) -> Rig {
        let subject = Subject {
            kind: SubjectKind::Millrace,
            program: program.to_owned(),
        };
        let folder = tempfile::tempdir().expect("a folder");
        // The daemon may be somebody else than root.
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.path(), everybody).expect("to open the folder");
        let mut server = Server::start(&subject, &lab, (configuration, by), folder.path())
            .expect("the daemon to start");
        let control = folder.path().join("control");
        server
            .until(PATIENCE, "the control socket", || Ok(control.exists()))
            .expect("the daemon to serve");
        let rig = Rig {
            lab,
            server,
            folder,
        };
        // It is there before anybody answers at it; who answers listens to signals too.
        rig.asks_for("stats");
        rig
    }

    /// Ends the daemon; what is left.
    pub(crate) fn stop(self) -> Lab {
        self.server.stop().expect("a good end");
        self.lab
    }

    /// The next run, after this one has ended.
    pub(crate) fn again(self, configuration: &str) -> Rig {
        Rig::start_in(self.lab, configuration)
    }

    /// Runs `ip` with each line in the server's namespace.
    pub(crate) fn ip(&self, lines: &str) {
        self.lab.server().ip(lines).expect("ip");
    }

    /// Adds the interface `third` (203.0.113.1), of two queues, at whose other end is the backend's namespace (203.0.113.2).
    pub(crate) fn add_third_interface(&self) {
        self.ip(&format!(
            "link add third numtxqueues 2 numrxqueues 2 type veth peer name third-peer netns {}\n\
             link set third up\naddress add 203.0.113.1/24 dev third\n",
            self.lab.backend().name()
        ));
        let peer = "link set third-peer up\naddress add 203.0.113.2/24 dev third-peer\n";
        self.lab.backend().ip(peer).expect("ip");
    }

    /// Runs `ip` with each line in the clients' namespace.
    pub(crate) fn client_ip(&self, lines: &str) {
        self.lab.client().ip(lines).expect("ip");
    }

    /// Gives the daemon another configuration; what it says to that.
    pub(crate) fn reload(&self, configuration: &str) -> String {
        self.write(configuration);
        let output = self.asks_for("reload");
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }

    /// `millrace WORD`, to the daemon.
    pub(crate) fn asks_for(&self, word: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_millrace"))
            .arg(word)
            .arg("--control")
            .arg(self.control())
            .output()
            .expect("millrace")
    }

    /// Puts another configuration into the daemon's file.
    pub(crate) fn write(&self, configuration: &str) {
        let file = self.folder.path().join("server.lua");
        let old = fs::read_to_string(&file).expect("the configuration");
        let prelude: String = old.split_inclusive('\n').take(3).collect();
        fs::write(&file, prelude + configuration).expect("another configuration");
    }

    /// Where the daemon is told what to do.
    pub(crate) fn control(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// The sum of a metric's rows.
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let labels: Vec<_> = labels.iter().map(owned).collect();
        let metrics = Metrics::of(&self.lab.server()).expect("/metrics");
        metrics.sum(name, &labels).unwrap_or(0.0)
    }

    /// Reasons for which queries and answers were dropped, as rows of `/metrics`.
    pub(crate) fn drops(&self) -> Vec<String> {
        let metrics = Metrics::of(&self.lab.server()).expect("/metrics");
        let rows = metrics.all().filter(|row| row.value > 0.0);
        let rows = rows.filter(|row| row.name == "millrace_drops");
        rows.map(ToString::to_string).collect()
    }

    /// How often something has happened to interfaces and queues.
    pub(crate) fn changes(&self, change: &str) -> f64 {
        self.metric("millrace_network_changes", &[("change", change)])
    }

    /// Whether a query from the clients' side is answered within `patience`.
    pub(crate) fn asks(&self, to: &str, patience: Duration) -> bool {
        ask(&self.lab.client(), to, patience)
    }

    /// A query is answered within a second from now, whichever way.
    pub(crate) fn is_served_again(&self, to: &str) {
        let began = Instant::now();
        while !self.asks(to, SOON) {
            let waited = began.elapsed();
            assert!(waited < SERVED_AGAIN, "{to} not served for {waited:?}");
        }
    }

    /// Queries to `to` come over AF_XDP by `interface` within five seconds from now, and meanwhile are answered all the same.
    pub(crate) fn is_served_over_xdp(&self, to: &str, interface: &str) {
        self.is_served_again(to);
        let began = Instant::now();
        while !self.comes_over_xdp(to, interface) {
            let waited = began.elapsed();
            assert!(
                waited < AF_XDP_AGAIN,
                "{to} not over AF_XDP by {interface} for {waited:?}:\n{}",
                self.log()
            );
        }
    }

    /// Queries to `to` are left to the kernel within five seconds from now, and are answered all the while.
    pub(crate) fn is_served_by_the_kernel(&self, to: &str, interface: &str) {
        self.is_served_again(to);
        let began = Instant::now();
        while self.comes_over_xdp(to, interface) {
            assert!(began.elapsed() < AF_XDP_AGAIN, "{to} is still over AF_XDP");
        }
    }

    /// Whether one query, which must be answered, comes over AF_XDP by `interface`.
    fn comes_over_xdp(&self, to: &str, interface: &str) -> bool {
        let received = || self.metric("millrace_xsk_received", &[("interface", interface)]);
        let before = received();
        let answered = self.asks(to, PATIENCE);
        assert!(answered, "{to} does not answer:\n{}", self.log());
        // What the daemon counts it shows after its batch, which is after its answer. A machine that was frozen looks once more.
        let began = Instant::now();
        loop {
            let is_last = began.elapsed() > SOON;
            if received() > before {
                return true;
            }
            if is_last {
                return false;
            }
        }
    }

    /// The privileged helper process.
    pub(crate) fn helper(&self) -> Pid {
        self.process("millrace-helper")
    }

    /// The daemon itself.
    pub(crate) fn daemon(&self) -> Pid {
        self.process("millrace")
    }

    /// The process of this name in the server's namespace.
    fn process(&self, name: &str) -> Pid {
        let own = self
            .lab
            .server()
            .run(|| fs::read_link("/proc/thread-self/ns/net"));
        let namespace = own.expect("the namespace").expect("/proc");
        let processes = fs::read_dir("/proc").expect("/proc").flatten();
        let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_it = |number: &i32| {
            let called = fs::read_to_string(format!("/proc/{number}/comm"));
            let theirs = fs::read_link(format!("/proc/{number}/ns/net"));
            called.is_ok_and(|called| called.trim() == name)
                && theirs.is_ok_and(|theirs| theirs == namespace)
        };
        let number = numbers.find(is_it);
        Pid::from_raw(number.unwrap_or_else(|| panic!("no process {name}")))
    }

    /// Awaits a line of the daemon's.
    pub(crate) fn says(&mut self, text: &str) {
        let said = self.server.await_log(text, PATIENCE);
        said.unwrap_or_else(|failure| panic!("{failure}\n{}", self.log()));
    }

    /// Awaits that all frames of a worker are where they are at rest: its count is made between two batches.
    pub(crate) fn has_all_frames(&self, worker: &str) {
        let worker = [("worker", worker)];
        let pipeline = [worker[0], ("owner", "pipeline")];
        self.awaits(&format!("all frames of {worker:?}"), || {
            let all = self.metric("millrace_xsk_umem_frames", &worker);
            all > 0.0
                && self.metric("millrace_xsk_frames", &worker) == all
                && self.metric("millrace_xsk_frames", &pipeline) == 0.0
        });
    }

    /// Asks again and again until it is so.
    pub(crate) fn awaits(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}:\n{}", self.log());
            pass(Duration::from_millis(5));
        }
    }

    /// What the daemon has written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default()
    }
}

/// A listener for each queue of the interface towards clients, by the map where dnsdist's loader pins it.
pub(crate) fn by_hand() -> String {
    "for i=0,1 do\n\
       local xsk = newXsk({ifName='enp1s0', NIC_queue_id=i, frameNums=65536, xskMapPath='/sys/fs/bpf/dnsdist/xskmap'})\n\
       addLocal('192.0.2.1:53', {xskSocket=xsk, reusePort=true})\n\
     end\n"
    .to_owned()
        + REFUSED
}

/// Takes a program off its interface as an operator would, by its link, which is pinned here.
pub(crate) fn detach(pin: &Path) {
    let link = Link::open(pin).expect("the link that is kept");
    link.detach().expect("to detach it");
}

/// Whether a process is there: whoever is its parent then may leave it as a zombie, of which there is only the name left (proc(5)).
pub(crate) fn is_running(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}

/// Awaits the end of a process that may be nobody's child here, and with it of its locks.
pub(crate) fn ends(process: Pid) {
    let began = Instant::now();
    while is_running(process) {
        assert!(began.elapsed() < PATIENCE, "{process} does not end");
        pass(Duration::from_millis(5));
    }
}

/// Lets time pass: for what is to last so long, or where nothing tells of the end. A thread may be woken early.
pub(crate) fn pass(time: Duration) {
    let began = Instant::now();
    while let Some(left) = time.checked_sub(began.elapsed()) {
        std::thread::park_timeout(left);
    }
}

/// Hundreds of sockets for some tests, tens of thousands for another, as many tests at once as there are processors: the usual
/// limit is 1,024.
pub(crate) fn allow_many_sockets() {
    const MANY: u64 = 65_536;
    static RAISED: Once = Once::new();
    RAISED.call_once(|| {
        let (now, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        let raised = setrlimit(Resource::RLIMIT_NOFILE, now.max(MANY), most.max(MANY));
        // More than the hard limit takes CAP_SYS_RESOURCE (getrlimit(2)).
        let raised = raised.or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, most, most));
        raised.expect("to have many sockets");
    });
}

/// Whether one query from a port of its own is answered within `patience`.
pub(crate) fn ask(from: &Namespace, to: &str, patience: Duration) -> bool {
    let to: SocketAddr = to.parse().expect("an address and port");
    let query = Query::new("www.example.com.", "A")
        .expect("a query")
        .octets();
    let answered = from.run(move || {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).expect("a socket");
        socket.set_read_timeout(Some(patience)).expect("a time-out");
        // While its link is down, or its own address is being made, the kernel may refuse.
        if socket.connect(to).is_err() || socket.send(&query).is_err() {
            return false;
        }
        let mut answer = [0; 512];
        again_if_interrupted(|| socket.recv(&mut answer)).is_ok()
    });
    answered.expect("the namespace")
}
