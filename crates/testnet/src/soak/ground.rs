//! Where a soak takes place: the lab, the daemon and its configuration, backends, load and witness.

use std::io::ErrorKind;
use std::net::{IpAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::backend::Backend;
use super::daemon::{Daemon, run_beside, said};
use super::load::Load;
use super::witness::Witness;
use crate::exceptions::Exceptions;
use crate::kernel_counters::KernelCounters;
use crate::lab::{
    Lab, Plan, SERVER_BACKENDS, SERVER_CLIENTS, SERVER_V4, SERVER_V6, TO_SERVER, Topology,
};
use crate::metrics::Metrics;
use crate::namespace::{Namespace, run};
use crate::scenario::checks::no_program;
use crate::subject::Subject;
use crate::{Failure, Outcome};

/// Queues of each interface at the start; there are four that could be.
const QUEUES: u8 = 2;

/// How long AF_XDP may take to serve again (I9).
const AF_XDP_AGAIN: Duration = Duration::from_secs(5);

/// How long the kernels themselves may take.
const KERNELS_AGAIN: Duration = Duration::from_secs(20);

/// A port where nobody listens, and how long its refusal may take.
const NOBODY: u16 = 9;
const LOOK_AT_LEAST: Duration = Duration::from_millis(100);

const SERVER_TO_BACKENDS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));

/// How long after a daemon its helper may be there.
const HELPERS_END: Duration = Duration::from_secs(20);

pub(super) struct Ground {
    // In the order in which they must end.
    pub load: Load,
    pub witness: Witness,
    pub backends: [Backend; 2],
    pub daemon: Daemon,
    pub exceptions: Exceptions,
    kernel_before: [KernelCounters; 2],
    pub folder: PathBuf,
    pub lab: Lab,
}

impl Ground {
    pub(super) fn prepare(
        prefix: &str,
        subject: &Subject,
        configuration: &str,
        rate: u32,
    ) -> Outcome<Self> {
        let lab = Lab::up(Plan {
            prefix: prefix.to_owned(),
            topology: Topology::FourQueues,
        })?;
        set_queues(&lab.client(), &lab.server(), SERVER_CLIENTS, QUEUES)?;
        set_queues(&lab.backend(), &lab.server(), SERVER_BACKENDS, QUEUES)?;
        announce_addresses(&lab.backend())?;
        let folder = lab.ledger().folder().to_owned();
        let backends = [
            Backend::start(&lab.backend(), "198.51.100.2")?,
            Backend::start(&lab.backend(), "198.51.100.3")?,
        ];
        let exceptions = Exceptions::watch(prefix)?;
        let kernel_before = counters(&lab)?;
        let daemon = Daemon::start(subject, &lab, configuration, &folder)?;
        let mut load = Load::new(&folder, rate)?;
        load.start(&lab)?;
        Ok(Self {
            load,
            witness: Witness::start(&lab),
            backends,
            daemon,
            exceptions,
            kernel_before,
            folder,
            lab,
        })
    }

    /// Awaits that the kernels themselves reach each other again: they look at a link once a second (linkwatch) and ask for a
    /// neighbour as often, and the daemon cannot be sooner. A port where nobody listens is refused at once.
    pub(super) fn await_kernels(&self) -> Outcome<()> {
        let (client, backend) = (self.lab.client(), self.lab.backend());
        let ways = [
            (&client, SERVER_V4),
            (&client, SERVER_V6),
            (&backend, SERVER_TO_BACKENDS),
        ];
        for (from, to) in ways {
            let refused = || {
                let tried = TcpStream::connect_timeout(&(to, NOBODY).into(), LOOK_AT_LEAST);
                tried.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
            };
            let what = format!("the kernel at {to} to be reached");
            self.daemon
                .until(KERNELS_AGAIN, &what, || from.run(refused))?;
        }
        Ok(())
    }

    /// Awaits that frames come by AF_XDP from clients, and go by it to backends.
    pub(super) fn await_af_xdp(&self) -> Outcome<()> {
        let before = self.path_counts()?;
        let mut now = before;
        let outcome = self
            .daemon
            .until(AF_XDP_AGAIN, "AF_XDP on both interfaces", || {
                now = self.path_counts()?;
                // Another process counts from nothing.
                Ok((0..2).all(|side| now[side] != before[side]))
            });
        outcome.map_err(|failure| {
            Failure::new(format!(
                "{failure}: received from clients {} and then {}, sent to backends {} and then {}",
                before[0], now[0], before[1], now[1]
            ))
        })
    }

    fn path_counts(&self) -> Outcome<[f64; 2]> {
        let metrics = Metrics::of(&self.lab.server())?;
        let sum = |name, interface: &str| {
            let labels = [("interface".to_owned(), interface.to_owned())];
            metrics.sum(name, &labels).unwrap_or(0.0)
        };
        Ok([
            sum("millrace_xsk_received", SERVER_CLIENTS),
            sum("millrace_xsk_sent", SERVER_BACKENDS),
        ])
    }

    /// What kernels and programs complain of: nothing (I2, I5).
    pub(super) fn check_kernels(&self) -> Outcome<()> {
        self.exceptions.check(&self.lab.server())?;
        for (now, before) in counters(&self.lab)?.iter().zip(&self.kernel_before) {
            now.check_unchanged_since(before)?;
        }
        Ok(())
    }

    /// Ends the daemon; its program is kept, and then taken off by hand.
    pub(super) fn end(self) -> Outcome<()> {
        let Self { daemon, lab, .. } = self;
        let program = daemon.program();
        daemon.stop()?;
        for interface in [SERVER_CLIENTS, SERVER_BACKENDS] {
            let words = ["xdp", "unload", "--interface", interface];
            let output = run_beside(&program, &lab, &words)?;
            if !output.status.success() {
                let text = format!("the program stays on {interface}: {}", said(&output));
                return Err(Failure::new(text));
            }
        }
        // The helper of the last process may hold it a moment longer.
        let began = Instant::now();
        loop {
            match no_program(&lab) {
                Err(_) if began.elapsed() < HELPERS_END => {
                    std::thread::park_timeout(Duration::from_millis(10));
                }
                outcome => return outcome,
            }
        }
    }

    /// What the daemon has said last.
    pub(super) fn last_lines(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

/// How many queues one interface of the server's has, and its peer: veth wants as many to receive as its peer has to send.
pub(super) fn set_queues(
    peer: &Namespace,
    server: &Namespace,
    interface: &'static str,
    count: u8,
) -> Outcome<()> {
    let count = count.to_string();
    let set = |namespace: &Namespace, interface: &str, words: &[&str]| {
        namespace.run(|| run("ethtool", &[&["-L", interface], words].concat()))?
    };
    // Fewer are sent to before fewer receive, and more receive before more are sent to: one of the two orders fits, and what
    // is set already is no failure.
    let both = ["rx", count.as_str(), "tx", count.as_str()];
    let _ = set(peer, TO_SERVER, &["tx", &count]);
    set(server, interface, &both).or_else(|failure| already(&failure))?;
    set(peer, TO_SERVER, &both).or_else(|failure| already(&failure))
}

fn already(failure: &Failure) -> Outcome<()> {
    // ethtool's words, old and new.
    let text = failure.to_string();
    match text.contains("unmodified") || text.contains("no channel parameters changed") {
        true => Ok(()),
        false => Err(failure.clone()),
    }
}

/// A changed hardware address is told to the neighbours, as virtual machines do that move.
fn announce_addresses(namespace: &Namespace) -> Outcome<()> {
    let path = format!("/proc/sys/net/ipv4/conf/{TO_SERVER}/arp_notify");
    let written = namespace.run(|| std::fs::write(&path, "1"))?;
    written.map_err(|error| Failure::new(format!("writing {path}: {error}")))
}

fn counters(lab: &Lab) -> Outcome<[KernelCounters; 2]> {
    Ok([
        KernelCounters::of(&lab.client())?,
        KernelCounters::of(&lab.backend())?,
    ])
}

/// The console's key; it is nobody else's.
const KEY: &str = "bWlsbHJhY2UncyBzb2FrOiAzMiBieXRlcyBvZiBrZXk=";

/// Rules, cache and two backends: all that a query can meet. `more` comes before the rules.
pub(super) fn configuration(more: &str) -> String {
    format!(
        "millrace.setKeepXDP(true)\n\
         addLocal(\"192.0.2.1:53\", {{xdp=true}})\n\
         addLocal(\"[2001:db8::1]:53\", {{xdp=true}})\n\
         controlSocket(\"127.0.0.1:5199\")\n\
         setKey(\"{KEY}\")\n\
         setWebserverConfig({{apiKey=\"lab\"}})\n\
         setUDPTimeout(1)\n\
         setMaxTCPConnectionsPerClient(400)\n\
         for place, name in ipairs({{\"one\", \"two\"}}) do\n\
         \x20 newServer({{address=\"198.51.100.\" .. (place + 1) .. \":53\", name=name, pool=\"auth\", xdp=true, \
         checkInterval=1, maxCheckFailures=2, rise=1}})\n\
         end\n\
         getPool(\"auth\"):setCache(newPacketCache(5000))\n\
         {more}\
         addAction(\"refused.example.\", RCodeAction(DNSRCode.REFUSED))\n\
         addAction(\"fresh.example.\", SetSkipCacheAction())\n\
         addAction(AllRule(), PoolAction(\"auth\"))\n"
    )
}
