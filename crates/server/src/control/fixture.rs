//! For tests: an instance that stands still.

use super::Running;
use super::metrics::rows::{FrameRow, FrontendRow, HelperRow, SpreadRow, SteerRow, XskRow};
use crate::config::web::WebOptions;
use crate::config::{Config, Webserver};
use crate::control::socket::Commands;
use crate::counters::{Shard, Writers};
use crate::frontend::tap::Tap;
use crate::network::Change;
use crate::network::status::Status;
use crate::pipeline::acl::Netmask;
use crate::pipeline::rings::Rings;
use arc_swap::ArcSwap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

pub(crate) struct Standing {
    pub(crate) config: ArcSwap<Config>,
    pub(crate) shards: Vec<Arc<Shard>>,
    pub(crate) frontends: Vec<FrontendRow>,
    pub(crate) xsk: Vec<XskRow>,
    pub(crate) frames: Vec<FrameRow>,
    pub(crate) steer_verdicts: Vec<SteerRow>,
    /// What set_acl was last called with.
    pub(crate) acl_set: Mutex<Vec<Netmask>>,
    /// set_acl fails, as during a reload.
    pub(crate) keeps_acl: AtomicBool,
    /// Who asked for the counters last.
    pub(crate) asked_by: Mutex<Option<ThreadId>>,
    /// What tap was called with; those that are closed until untap.
    pub(crate) taps: Mutex<Vec<Tap>>,
}

impl Standing {
    /// Two workers under this configuration.
    pub(crate) fn with(config: Config) -> Standing {
        let shards = [0, 1].map(|index| Shard::new(index, Writers::One, Rings::default()));
        Standing {
            config: ArcSwap::from_pointee(config),
            shards: shards.into_iter().map(Arc::new).collect(),
            frontends: Vec::new(),
            xsk: Vec::new(),
            frames: Vec::new(),
            steer_verdicts: Vec::new(),
            acl_set: Mutex::default(),
            keeps_acl: AtomicBool::new(false),
            asked_by: Mutex::default(),
            taps: Mutex::default(),
        }
    }
}

/// What `webserver("127.0.0.1:8083")` makes.
pub(crate) fn webserver() -> Webserver {
    Webserver {
        address: "127.0.0.1:8083".parse().expect("an address and port"),
        acl: crate::config::defaults::web_acl().into_iter().collect(),
        options: WebOptions::default(),
    }
}

/// The ACL changes, and nothing else can be asked for.
impl Commands for Standing {
    fn reload(&self) -> Result<Vec<String>, String> {
        Err("test.conf:3: no".to_owned())
    }

    fn restart(&self) -> Result<Vec<String>, String> {
        Err("no process: no".to_owned())
    }

    fn xdp_status(&self) -> Status {
        Status::default()
    }

    fn set_acl(&self, acl: Vec<Netmask>) -> Result<(), String> {
        if self.keeps_acl.load(Relaxed) {
            return Err("a reload is under way".to_owned());
        }
        self.acl_set
            .lock()
            .expect("no test panics with it")
            .clone_from(&acl);
        Ok(())
    }

    /// There is one interface, `veth0`.
    fn tap(&self, interface: &str, tap: Tap) -> Result<(), String> {
        if interface != "veth0" {
            return Err(format!("AF_XDP is not in use on {interface}"));
        }
        self.taps.lock().expect("no test panics with it").push(tap);
        Ok(())
    }

    fn untap(&self) {
        let mut taps = self.taps.lock().expect("no test panics with it");
        taps.retain(|tap| !tap.is_closed());
    }
}

impl Running for Standing {
    fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    fn shards(&self) -> Vec<Arc<Shard>> {
        *self.asked_by.lock().expect("no test panics with it") = Some(thread::current().id());
        self.shards.clone()
    }

    fn frontends(&self) -> Vec<FrontendRow> {
        self.frontends.clone()
    }

    fn xsk(&self) -> Vec<XskRow> {
        self.xsk.clone()
    }

    fn frames(&self) -> Vec<FrameRow> {
        self.frames.clone()
    }

    fn steer_verdicts(&self) -> Vec<SteerRow> {
        self.steer_verdicts.clone()
    }

    fn spreads(&self) -> Vec<SpreadRow> {
        let address = "192.0.2.1:53".parse().expect("an address and port");
        vec![SpreadRow {
            address,
            counts: [7, 2, 1],
        }]
    }

    fn network_changes(&self) -> Vec<(Change, u64)> {
        vec![(Change::QueueOpened, 2)]
    }

    fn helper(&self) -> HelperRow {
        HelperRow {
            is_alive: true,
            requests: 5,
            refused: 1,
        }
    }

    fn entropy_bits(&self) -> f64 {
        26.0
    }

    fn stop(&self) {}
}
