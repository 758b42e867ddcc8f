//! What operators see and say: the console, the web server with its API and `/metrics`, Carbon, the socket of our own commands
//! and the mirror behind it. Never called from the packet path.

pub mod carbon;
pub mod client;
pub mod console;
pub mod credentials;
#[cfg(test)]
pub(crate) mod fixture;
pub mod listening;
pub mod metrics;
pub mod mirror;
pub mod news;
pub mod process;
pub mod protocol;
mod reading;
pub mod socket;
pub mod web;

use crate::config::Config;
use crate::config::authority::host_name;
use crate::counters::Shard;
use crate::network::Change;
use metrics::rows::{FrameRow, FrontendRow, HelperRow, SpreadRow, SteerRow, XskRow};
use std::sync::Arc;

/// The running instance, as this module sees it.
pub trait Running: Send + Sync {
    /// The configuration of this moment.
    fn config(&self) -> Arc<Config>;
    /// The counters of all workers and of the asynchronous runtime.
    fn shards(&self) -> Vec<Arc<Shard>>;
    fn frontends(&self) -> Vec<FrontendRow>;
    /// One per AF_XDP socket.
    fn xsk(&self) -> Vec<XskRow>;
    /// The frames of each worker.
    fn frames(&self) -> Vec<FrameRow>;
    /// What the kernel program did with frames, per interface and reason.
    fn steer_verdicts(&self) -> Vec<SteerRow>;
    /// By whom the sockets of listeners were chosen, and how often.
    fn spreads(&self) -> Vec<SpreadRow>;
    /// What has happened to interfaces, programs and queues, and how often.
    fn network_changes(&self) -> Vec<(Change, u64)>;
    /// The privileged helper process.
    fn helper(&self) -> HelperRow;
    /// Of query ID and source port towards backends, in bits.
    fn entropy_bits(&self) -> f64;
    /// Ends the instance, as SIGTERM does.
    fn stop(&self);
}

/// What this instance calls itself: setServerID's word, else the machine's name.
pub fn name_of(config: &Config) -> String {
    if !config.server_id.is_empty() {
        return config.server_id.clone();
    }
    host_name()
}
