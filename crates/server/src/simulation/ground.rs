//! What all runs share: configurations, and backend ports, which are real sockets in a network namespace of this thread's.

use crate::backend::ports::Ports;
use crate::config::pools::PoolNames;
use crate::config::spec::{Purpose, Spec};
use crate::config::{Config, LuaState};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Uid;
use std::process::Command;
use std::sync::Arc;

/// Both serve the same; names below `ruled.` get what the first line says.
const CONFIGURATIONS: [&str; 2] = ["REFUSED", "NXDOMAIN"];

/// Servers whose address ends with 11 or more are asked with others at a time: see [`super::backend`].
const COMMON: &str = r#"
addLocal("192.0.2.1:53", {xdp=true})
addLocal("[2001:db8:1::1]:53", {xdp=true})
setACL({"192.0.2.0/24", "2001:db8:1::/64"})
local function server(pool, address, options)
  options = options or {}
  options.pool, options.address = pool, address
  -- Nobody checks them here: what their queries tell of them is looked at.
  options.healthCheckMode, options.lazyHealthCheckMode = "lazy", "TimeoutOnly"
  options.xdp = true
  newServer(options)
end
server("cached", "198.51.100.2:53")
server("fresh", "198.51.100.2:5353", {dscp=46})
server("six", "[2001:db8:2::2]:53", {source="2001:db8:2::1"})
server("race", "198.51.100.11:53")
server("race", "198.51.100.12:53")
server("race", "[2001:db8:2::13]:53", {source="2001:db8:2::1"})
server("hedge", "198.51.100.21:53")
server("hedge", "198.51.100.22:53")
setPoolServerPolicy(race, "race")
setPoolServerPolicy(hedge, "hedge")
getPool("cached"):setCache(newPacketCache(1000))
addAction("dropped.", DropAction())
for _, pool in ipairs({"cached", "fresh", "six", "race", "hedge"}) do
  addAction(pool .. ".", PoolAction(pool))
end
"#;

/// What makes the backends' addresses ones of this namespace: what is sent there by kernel sockets is lost without an error.
const ADDRESSES: [&str; 4] = [
    "link set lo up",
    "address add 198.51.100.1/24 dev lo",
    "-6 address add 2001:db8:2::1/64 dev lo nodad",
    "-6 route add local 2001:db8:2::/64 dev lo",
];

/// Ports per source address: few, so that keys meet.
const PORTS: usize = 2;

pub(super) const WORKERS: usize = 2;

pub(super) struct Ground {
    pub(super) ports: Arc<Ports>,
    /// Files run in it one after the other: to make one for each takes twice as long as all that is simulated.
    state: Arc<LuaState>,
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
        for words in ADDRESSES {
            let status = Command::new("ip").args(words.split(' ')).status();
            assert!(status.expect("iproute2").success(), "ip {words}");
        }
        let ports = Ports::new(WORKERS, PORTS, Box::new(())).expect("epoll");
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default()));
        Ground {
            ports: Arc::new(ports),
            state: Arc::new(state.expect("Lua")),
        }
    }

    /// The configuration of this number, following `previous` as a reload does.
    pub(super) fn configuration(&self, number: usize, previous: Option<&Config>) -> Config {
        let rule = CONFIGURATIONS[number];
        let text = format!("addAction(\"ruled.\", RCodeAction(DNSRCode.{rule})){COMMON}");
        let names =
            previous.map_or_else(PoolNames::default, |previous| previous.pool_names.clone());
        self.state
            .edit(|spec| *spec = Spec::new(Purpose::Serve, names));
        let run = self.state.run("simulated", text.as_bytes());
        run.expect("the file is good");
        let mut config = self.state.derive(previous).expect("the file is good");
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
