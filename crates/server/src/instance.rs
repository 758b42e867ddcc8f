//! What all threads of a running daemon share.

use crate::backend::exchange::Exchanges;
use crate::backend::ports::Ports;
use crate::config::Config;
use crate::counters::Shard;
use crate::frontend::listeners::Listeners;
use arc_swap::ArcSwap;
use std::sync::Arc;

pub struct Instance {
    /// Swapped as a whole by a reload; workers read it through a cache of their own.
    pub config: Arc<ArcSwap<Config>>,
    pub exchanges: Exchanges,
    /// Backend ports: bound kernel sockets, shared by all workers.
    pub ports: Arc<Ports>,
    pub listeners: Listeners,
    /// One per worker, the asynchronous runtime's last.
    pub shards: Box<[Arc<Shard>]>,
}

impl Instance {
    /// Queries that wait for a backend's answer.
    pub fn in_flight(&self) -> i64 {
        let config = self.config.load();
        config
            .servers
            .iter()
            .map(|server| server.outstanding.get())
            .sum()
    }
}
