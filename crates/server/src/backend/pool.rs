//! A pool: servers that answer the same questions, with a cache before them.

use super::policy::{Circle, Policy};
use super::server::Server;
use super::several::Hedging;
use crate::pipeline::cache::PacketCache;
use crate::pipeline::route::Chooser;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[derive(Clone)]
pub struct Pool {
    pub name: String,
    /// By `order`, then by the order of configuration.
    pub servers: Vec<Arc<Server>>,
    pub cache: Option<Arc<PacketCache>>,
    /// The pool's own policy, or the default one.
    pub policy: Policy,
    /// In place of `policy`.
    pub chooser: Option<Arc<dyn Chooser>>,
    /// chashed's; empty for the other policies.
    pub circle: Circle,
    /// roundrobin's position; lives on over a reload.
    pub position: Arc<AtomicU64>,
    /// hedge's allowance; lives on over a reload.
    pub hedging: Arc<Hedging>,
    /// Where no server is chosen.
    pub subnets: Subnets,
}

/// Whether the client's network is said, and what of its answers the cache keeps for all networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subnets {
    /// ServerPool:setECS. The manual: "Set to true if dnsdist should add EDNS Client Subnet information to the query before
    /// looking up into the cache, when all servers from this pool are down."
    pub are_added: bool,
    /// ServerPool:setDisableZeroScope.
    pub disable_zero_scope: bool,
}
