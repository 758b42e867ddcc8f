//! For tests: servers and pools as `newServer(address)` makes them.

use super::policy::{Circle, Policy};
use super::pool::Pool;
use super::server::{HealthMode, Server, ServerId, ServerOptions};
use crate::config::defaults;
use std::sync::Arc;

/// dnsdist's defaults, but without an id and always up.
pub(crate) fn options(address: &str) -> ServerOptions {
    let mut options = defaults::server(address.parse().expect("an address and port"));
    options.id.clear();
    options.health.mode = HealthMode::Up;
    options
}

/// A server that is up.
pub(crate) fn server(number: u32, options: ServerOptions) -> Server {
    Server::new(ServerId(number), options)
}

/// A pool of these servers, without cache, with the default policy.
pub(crate) fn pool(name: &str, servers: &[Arc<Server>]) -> Arc<Pool> {
    Arc::new(Pool {
        name: name.to_owned(),
        servers: servers.to_vec(),
        cache: None,
        policy: Policy::default(),
        circle: Circle::default(),
        position: Arc::default(),
        chooser: None,
        hedging: Arc::default(),
        subnets: Default::default(),
    })
}
