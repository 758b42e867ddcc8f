//! What all runs share: configurations, and backend ports, which are real sockets in a network namespace of this thread's.

use crate::backend::ports::Ports;
use crate::config::load::{Overrides, load};
use crate::config::spec::Purpose;
use crate::config::{Config, LuaState};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Uid;
use std::process::Command;
use std::sync::Arc;

/// Both serve the same; names below `ruled.` get what the first line says.
const CONFIGURATIONS: [&str; 2] = ["REFUSED", "NXDOMAIN"];

const COMMON: &str = r#"
addLocal("192.0.2.1:53")
setACL("192.0.2.0/24")
newServer({address="198.51.100.2:53", healthCheckMode="up", pool="cached"})
newServer({address="198.51.100.2:5353", healthCheckMode="up", pool="fresh", dscp=46})
getPool("cached"):setCache(newPacketCache(1000))
addAction("dropped.", DropAction())
addAction("cached.", PoolAction("cached"))
addAction("fresh.", PoolAction("fresh"))
"#;

/// Ports per source address: few, so that keys meet.
const PORTS: usize = 2;

pub(super) const WORKERS: usize = 2;

pub(super) struct Ground {
    pub(super) ports: Arc<Ports>,
    directory: tempfile::TempDir,
}

/// Whether a network namespace can be made.
pub(super) fn can_be() -> bool {
    Uid::effective().is_root()
}

/// Does `work` on a thread that has a network of its own; `None`: it cannot have one.
pub(super) fn with<R: Send>(work: impl FnOnce(&Ground) -> R + Send) -> Option<R> {
    if !can_be() {
        println!("SKIP: not root: the backend's address belongs into a network namespace");
        return None;
    }
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("root may");
            work(&Ground::new())
        });
        thread.join()
    });
    match result {
        Ok(result) => Some(result),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

impl Ground {
    fn new() -> Ground {
        for words in ["link set lo up", "address add 198.51.100.1/24 dev lo"] {
            let status = Command::new("ip").args(words.split(' ')).status();
            assert!(status.expect("iproute2").success(), "ip {words}");
        }
        let directory = tempfile::tempdir().expect("a directory");
        for (number, rule) in CONFIGURATIONS.iter().enumerate() {
            let rule = format!("addAction(\"ruled.\", RCodeAction(DNSRCode.{rule}))");
            let file = directory.path().join(number.to_string());
            std::fs::write(file, format!("{rule}{COMMON}")).expect("a file");
        }
        let ports = Ports::new(WORKERS, PORTS, Box::new(())).expect("epoll");
        Ground {
            ports: Arc::new(ports),
            directory,
        }
    }

    /// The configuration of this number, following `previous` as a reload does.
    pub(super) fn configuration(&self, number: usize, previous: Option<&Config>) -> Config {
        let file = self.directory.path().join(number.to_string());
        let state = load(Some(&file), &Overrides::default(), Purpose::Serve, previous);
        let state: Arc<LuaState> = Arc::new(state.expect("the file is good"));
        let mut config = state.derive(previous).expect("the file is good");
        config.count_traffic(WORKERS + 1, previous);
        config
    }
}

/// The RCODE that configuration `number` gives to names below `ruled.`.
pub(super) fn ruled_rcode(number: usize) -> u8 {
    match CONFIGURATIONS[number] {
        "REFUSED" => 5,
        _ => 3,
    }
}
