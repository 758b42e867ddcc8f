//! What all threads of a running daemon share.

use crate::backend::exchange::Exchanges;
use crate::backend::ports::Ports;
use crate::config::Config;
use crate::counters::Shard;
use crate::frontend::listeners::Listeners;
use crate::frontend::named::NamedSockets;
use crate::handover::Sender;
use crate::network::addresses::ImpossibleSources;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::Duration;
use xsk::Pulses;

pub struct Instance {
    /// Swapped as a whole by a reload; workers read it through a cache of their own.
    pub config: Arc<ArcSwap<Config>>,
    pub exchanges: Exchanges,
    /// Backend ports: bound kernel sockets, shared by all workers.
    pub ports: Arc<Ports>,
    pub listeners: Listeners,
    pub named: NamedSockets,
    /// Signs of life of workers at their kernel sockets; `None`: the kernel gives none (no CAP_BPF at start).
    pub pulses: Option<Pulses>,
    /// What frames cannot truly come from. Workers read it through a cache of their own.
    pub impossible_sources: Arc<ArcSwap<ImpossibleSources>>,
    pub hand_over: Sender,
    /// One per worker, the asynchronous runtime's last.
    pub shards: Box<[Arc<Shard>]>,
}

impl Instance {
    /// How long the last answer to a query that has left may be waited for.
    pub fn longest_timeout(&self) -> Duration {
        self.config.load().longest_timeout()
    }

    /// Queries that wait for a backend's answer, or for a function to have them go on.
    pub fn in_flight(&self) -> i64 {
        let config = self.config.load();
        let held = config.lua.as_ref().map_or(0, |lua| lua.holder.count());
        let outstanding = config.servers.iter().map(|server| server.outstanding.get());
        held as i64 + outstanding.sum::<i64>()
    }
}
