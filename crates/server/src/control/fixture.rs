//! For tests: an instance that stands still.

use super::Running;
use super::metrics::rows::{FrameRow, FrontendRow, HelperRow, SpreadRow, SteerRow, XskRow};
use crate::config::{Config, Webserver};
use crate::counters::{Shard, Writers};
use crate::network::Change;
use crate::pipeline::rings::Rings;
use arc_swap::ArcSwap;
use std::sync::Arc;

pub(crate) struct Standing {
    pub(crate) config: ArcSwap<Config>,
    pub(crate) shards: Vec<Arc<Shard>>,
    pub(crate) frontends: Vec<FrontendRow>,
    pub(crate) xsk: Vec<XskRow>,
    pub(crate) frames: Vec<FrameRow>,
    pub(crate) steer_verdicts: Vec<SteerRow>,
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
        }
    }
}

/// What `webserver("127.0.0.1:8083")` makes.
pub(crate) fn webserver() -> Webserver {
    Webserver {
        address: "127.0.0.1:8083".parse().expect("an address and port"),
        acl: crate::config::defaults::web_acl().into_iter().collect(),
        password: None,
        api_key: None,
        stats_require_authentication: true,
    }
}

impl Running for Standing {
    fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    fn shards(&self) -> Vec<Arc<Shard>> {
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
}
