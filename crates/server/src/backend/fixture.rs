//! For tests: servers and pools as `newServer(address)` makes them.

use super::lazy::LazyOptions;
use super::policy::{Circle, Policy};
use super::pool::Pool;
use super::server::{HealthMode, HealthOptions, Server, ServerId, ServerOptions};
use super::source::Source;
use crate::config::Xdp;
use std::sync::Arc;
use std::time::Duration;

/// dnsdist's defaults.
pub(crate) fn options(address: &str) -> ServerOptions {
    ServerOptions {
        address: address.parse().expect("an address and port"),
        name: String::new(),
        id: String::new(),
        pools: vec![String::new()],
        order: 1,
        weight: 1,
        qps: 0,
        udp_timeout: None,
        tcp_connect_timeout: Duration::from_secs(5),
        tcp_send_timeout: Duration::from_secs(30),
        tcp_receive_timeout: Duration::from_secs(30),
        tcp_only: false,
        use_client_subnet: false,
        proxy_protocol: false,
        disable_zero_scope: false,
        reconnect_on_up: false,
        tcp_in_flight: 1,
        tcp_maximum_connections: 0,
        tcp_attempts: None,
        source: Source::default(),
        health: HealthOptions {
            mode: HealthMode::Up,
            name: "a.root-servers.net.".to_owned(),
            qtype: 1,
            qclass: 1,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            maximum_failures: 1,
            rise: 1,
            must_resolve: false,
            set_cd: false,
            over_tcp: false,
            function: None,
            is_lazy: false,
            lazy: LazyOptions::default(),
        },
        xdp: Xdp::Off,
        mac: None,
    }
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
