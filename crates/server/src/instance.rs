//! What all threads of a running daemon share.

use crate::backend::exchange::Exchanges;
use crate::backend::ports::Ports;
use crate::config::Config;
use crate::counters::Shard;
use crate::frontend::listeners::Listeners;
use crate::handover::Sender;
use arc_swap::ArcSwap;
use std::sync::Arc;

pub struct Instance {
    /// Swapped as a whole by a reload; workers read it through a cache of their own.
    pub config: Arc<ArcSwap<Config>>,
    pub exchanges: Exchanges,
    /// Backend ports: bound kernel sockets, shared by all workers.
    pub ports: Ports,
    pub listeners: Listeners,
    /// One per worker, the asynchronous runtime's last.
    pub shards: Box<[Arc<Shard>]>,
    pub hand_over: Sender,
}
