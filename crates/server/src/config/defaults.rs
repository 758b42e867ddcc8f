//! Defaults of dnsdist (its manual: addLocal, setACL, setWebserverConfig, newServer).

use crate::backend::lazy::LazyOptions;
use crate::backend::server::{HealthMode, HealthOptions, ServerOptions};
use crate::backend::source::Source;
use crate::pipeline::acl::Netmask;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

/// Served when neither the file nor the command line names a listener.
pub const LISTENER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53));

/// The port of an address without one.
pub const DNS_PORT: u16 = 53;

/// SOMAXCONN, in connections.
pub const TCP_LISTEN_QUEUE_SIZE: u32 = 4_096;

/// The longest header of the PROXY protocol that is taken, in bytes.
pub const PROXY_HEADER_MAX: usize = 512;

/// Who may ask: private and local addresses.
const ACL: [&str; 9] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "192.168.0.0/16",
    "172.16.0.0/12",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
];

/// Who may read the web server.
const WEB_ACL: [&str; 2] = ["127.0.0.1/32", "::1/128"];

/// Who may use the console.
const CONSOLE_ACL: [&str; 2] = ["127.0.0.0/8", "::1/128"];

pub fn acl() -> Vec<Netmask> {
    netmasks(&ACL)
}

pub fn console_acl() -> Vec<Netmask> {
    netmasks(&CONSOLE_ACL)
}

pub fn web_acl() -> Vec<Netmask> {
    netmasks(&WEB_ACL)
}

/// What `newServer("address")` means, with an id of its own.
pub(crate) fn server(address: SocketAddr) -> ServerOptions {
    ServerOptions {
        address,
        name: String::new(),
        id: super::uuid::random(),
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
            mode: HealthMode::Auto,
            name: "a.root-servers.net.".to_owned(),
            qtype: wire::codes::qtype::A,
            qclass: wire::codes::class::IN,
            interval: Duration::from_secs(1),
            timeout: Duration::from_millis(1_000),
            maximum_failures: 1,
            rise: 1,
            must_resolve: false,
            set_cd: false,
            over_tcp: false,
            function: None,
            is_lazy: false,
            lazy: LazyOptions::default(),
        },
        xdp: super::Xdp::Off,
        mac: None,
    }
}

fn netmasks(texts: &[&str]) -> Vec<Netmask> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_netmask_is_one() {
        assert_eq!(acl().len(), ACL.len());
        assert_eq!(web_acl().len(), WEB_ACL.len());
    }
}
