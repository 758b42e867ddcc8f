//! Networks made by hand, for the tests of this folder.

use super::addresses::LocalAddress;
use super::links::{Link, LinkKind};
use super::routes::{Destination, Route};
use super::view::NetworkView;
use crate::backend::fixture;
use crate::backend::server::{HealthMode, Server, ServerId};
use crate::config::{FastOpen, Listener, Xdp, XskQueue};
use std::net::IpAddr;
use std::sync::Arc;

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// An Ethernet interface that is up, with two queues, its index in its MAC.
pub(super) fn link(index: u32, name: &str, kind: LinkKind) -> Link {
    Link {
        index,
        name: name.to_owned(),
        mac: Some([2, 0, 0, 0, 0, index as u8]),
        mtu: 1_500,
        up: true,
        carrier: true,
        kind,
        master: None,
        queues: 2,
        partial_checksums: kind != LinkKind::Device,
    }
}

/// The lab's server: `lo`, `enp1s0` (index 2, towards clients), `enp2s0` (index 3, towards backends).
pub(super) fn lab() -> NetworkView {
    let mut loopback = link(1, "lo", LinkKind::Loopback);
    loopback.queues = 1;
    let links = vec![
        loopback,
        link(2, "enp1s0", LinkKind::Veth),
        link(3, "enp2s0", LinkKind::Veth),
    ];
    let mut view = NetworkView {
        links,
        ..NetworkView::default()
    };
    for (address, interface) in [
        ("127.0.0.1", 1),
        ("::1", 1),
        ("192.0.2.1", 2),
        ("2001:db8::1", 2),
        ("fe80::2", 2),
        ("198.51.100.1", 3),
        ("fe80::3", 3),
    ] {
        view.addresses.push(LocalAddress {
            address: ip(address),
            interface,
            prefix: 24,
        });
    }
    view
}

pub(super) fn add_route(
    view: &mut NetworkView,
    to: &str,
    interface: u32,
    source: &str,
    next_hop: &str,
) {
    let destination = Destination {
        address: ip(to),
        source: None,
        interface: 0,
    };
    let route = Route {
        interface,
        source: ip(source),
        next_hop: ip(next_hop),
    };
    view.routes.insert(destination, Ok(route));
}

pub(super) fn listener(address: &str, xdp: Xdp) -> Listener {
    Listener {
        address: address.parse().expect("an address and port"),
        sockets: 1,
        reuse_port: false,
        xdp,
        tcp_listen_queue_size: 10,
        maximum_tcp_connections: 0,
        pinning: Vec::new(),
        tcp_in_flight: 0,
        interface: None,
        tcp_fast_open: FastOpen::default(),
        proxy_protocol: true,
    }
}

pub(super) fn socket(interface: &str, queue: u32) -> XskQueue {
    let map_path = "/sys/fs/bpf/dnsdist/xskmap".to_owned();
    XskQueue {
        interface: interface.to_owned(),
        queue,
        map_path,
    }
}

pub(super) fn server(number: u32, address: &str, xdp: Xdp) -> Server {
    let mut options = fixture::options(address);
    options.health.mode = HealthMode::Auto;
    options.xdp = xdp;
    Server::new(ServerId(number), options)
}

pub(super) fn shared(server: Server) -> Arc<Server> {
    Arc::new(server)
}
