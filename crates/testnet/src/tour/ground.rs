//! Where the tour takes place: a lab of namespaces for root, this machine's loopback for others.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::lab::{Lab, Plan, SERVER_V4, Topology};
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::{During, Outcome, sys, tree};

/// A lab, or here.
pub(super) enum Ground {
    Lab(Lab),
    Here(Ledger),
}

/// Who does something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
    Backend,
}

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

impl Ground {
    /// Makes the ground, and removes what a killed tour left.
    pub(super) fn make(prefix: &str) -> Outcome<Self> {
        if nix::unistd::geteuid().is_root() {
            let plan = Plan {
                prefix: prefix.to_owned(),
                topology: Topology::TwoInterfaces,
            };
            return Lab::up(plan).map(Self::Lab);
        }
        let ledger = Ledger::open(prefix)?;
        for ended in ledger.end_processes() {
            eprintln!("ended what an earlier run left: {ended}");
        }
        ledger.empty()?;
        Ok(Self::Here(ledger))
    }

    /// Removes it with its files.
    pub(super) fn remove(self) {
        match self {
            Self::Lab(lab) => drop(lab),
            Self::Here(ledger) => ledger.remove(),
        }
    }

    /// What was made, for people.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Lab(lab) => format!(
                "Lab: {} (192.0.2.100, 2001:db8::100) ═ {} (192.0.2.1, 2001:db8::1) ═ {} (198.51.100.2)",
                lab.client().name(),
                lab.server().name(),
                lab.backend().name()
            ),
            Self::Here(_) => {
                "Not root, so kernel sockets on 127.0.0.1 only. As root: a lab of network \
                              namespaces, and AF_XDP towards clients and backend."
                    .to_owned()
            }
        }
    }

    /// What can be typed while it stands.
    pub(super) fn what_next(&self) -> String {
        let log = self.folder().join("millrace.log").display().to_string();
        let lines = match self {
            Self::Lab(lab) => format!(
                "  ip netns exec {0} kdig @192.0.2.1 www.example.com\n  \
                   ip netns exec {0} kdig @2001:db8::1 anything.wild.example.com TXT +dnssec\n  \
                   ip netns exec {0} kdig @192.0.2.1 www.example.net      knotd's, behind it\n  \
                   ./dev lab metrics xsk                what AF_XDP carried, queue by queue\n  \
                   target/release/millrace xdp status --control {1}\n  \
                   ./dev lab shell server               a shell beside millrace (client, backend)",
                lab.client().name(),
                self.control().display()
            ),
            Self::Here(_) => "  kdig @127.0.0.1 -p 5300 www.example.com\n  \
                                kdig @127.0.0.1 -p 5300 anything.wild.example.com TXT\n  \
                                curl -s http://127.0.0.1:8083/metrics"
                .to_owned(),
        };
        format!(
            "\nType next, in another terminal:\n{lines}\nIts log: {log}\nCtrl-C ends and removes everything."
        )
    }

    /// Starts a process that has its log in the ground's folder, and no part in the terminal's Ctrl-C.
    pub(super) fn spawn(&self, role: Role, command: &mut Command, name: &str) -> Outcome<Process> {
        let log = File::create(self.log_path(name))
            .during(format!("making {}", self.log_path(name).display()))?;
        let errors = log.try_clone().during("sharing the log")?;
        command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0);
        sys::unblock_signals(command);
        let child = match self {
            Self::Lab(lab) => self
                .namespace(lab, role)
                .spawn(command, Some(&lab.bpffs()))?,
            Self::Here(_) => command.spawn().during(format!("starting {name}"))?,
        };
        Process::new(name, child, self.ledger())
    }

    /// Does something in the place of a role.
    pub(super) fn in_place_of<T: Send>(
        &self,
        role: Role,
        work: impl FnOnce() -> T + Send,
    ) -> Outcome<T> {
        match self {
            Self::Lab(lab) => self.namespace(lab, role).run(work),
            Self::Here(_) => Ok(work()),
        }
    }

    /// True if TCP connects.
    pub(super) fn connects(&self, role: Role, address: SocketAddr) -> Outcome<bool> {
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok();
        self.in_place_of(role, connect)
    }

    /// The server's /metrics.
    pub(super) fn metrics(&self) -> Outcome<Metrics> {
        match self {
            Self::Lab(lab) => Metrics::of(&lab.server()),
            Self::Here(_) => Metrics::here(),
        }
    }

    /// Where clients ask.
    pub(super) fn server_address(&self) -> SocketAddr {
        match self {
            Self::Lab(_) => SocketAddr::new(SERVER_V4, 53),
            Self::Here(_) => SocketAddr::from((HERE, 5300)),
        }
    }

    /// Where knotd answers.
    pub(super) fn backend_address(&self) -> SocketAddr {
        match self {
            Self::Lab(_) => SocketAddr::from(([198, 51, 100, 2], 53)),
            Self::Here(_) => SocketAddr::from((HERE, 5301)),
        }
    }

    /// The configuration of the server.
    pub(super) fn server_configuration(&self) -> PathBuf {
        examples().join(match self {
            Self::Lab(_) => "millrace.lua",
            Self::Here(_) => "sockets.lua",
        })
    }

    /// Where millrace takes commands.
    pub(super) fn control(&self) -> PathBuf {
        self.folder().join("control")
    }

    /// Fills in examples/lab/knot.conf; gives the file's path.
    pub(super) fn write_knot_configuration(&self) -> Outcome<PathBuf> {
        let template = examples().join("knot.conf");
        let text =
            fs::read_to_string(&template).during(format!("reading {}", template.display()))?;
        let folder = self.folder().join("knotd");
        fs::create_dir_all(&folder).during(format!("making {}", folder.display()))?;
        let address = self.backend_address();
        let text = text
            .replace("$FOLDER", &folder.display().to_string())
            .replace("$ZONES", &examples().display().to_string())
            .replace("$LISTEN", &format!("{}@{}", address.ip(), address.port()));
        let path = folder.join("knot.conf");
        fs::write(&path, text).during(format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// What a process wrote.
    pub(super) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.log_path(name)).unwrap_or_default()
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}.log"))
    }

    fn folder(&self) -> &Path {
        self.ledger().folder()
    }

    fn ledger(&self) -> &Ledger {
        match self {
            Self::Lab(lab) => lab.ledger(),
            Self::Here(ledger) => ledger,
        }
    }

    fn namespace(&self, lab: &Lab, role: Role) -> Namespace {
        match role {
            Role::Client => lab.client(),
            Role::Server => lab.server(),
            Role::Backend => lab.backend(),
        }
    }
}

fn examples() -> PathBuf {
    tree::top().join("examples/lab")
}
