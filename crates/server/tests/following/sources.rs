//! Servers that are to be asked from another of our addresses, because their routes say so: queries go on over AF_XDP, from
//! there. Health checks, which look after sources too, come once an hour here.

use crate::restart::Load;
use crate::rig::{AF_XDP_AGAIN, Rig};
use nix::sys::socket::{setsockopt, sockopt};
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testnet::namespace::Namespace;

const ADDRESS: &str = "192.0.2.1:53";

const CONFIGURATION: &str = "addLocal(\"192.0.2.1:53\", {xdp=true})\n\
     newServer({address=\"198.51.100.2:53\", xdp=true, healthCheckMode=\"up\", \
     checkInterval=3600})\n";

/// SO_RCVBUF of the backend, in bytes: it may have to wait for a processor.
const RECEIVE_BUFFER: usize = 8 << 20;

/// A backend that answers everything at once, and knows who has asked last.
struct Backend {
    asker: Arc<Mutex<Option<IpAddr>>>,
    running: Arc<AtomicBool>,
}

impl Backend {
    fn start(rig: &Rig) -> Backend {
        let bind = || UdpSocket::bind("198.51.100.2:53");
        let socket = rig.lab.backend().run(bind);
        let socket = socket.expect("the namespace").expect("a socket");
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).expect("a buffer");
        let short = Duration::from_millis(10);
        socket.set_read_timeout(Some(short)).expect("a time-out");
        let backend = Backend {
            asker: Arc::default(),
            running: Arc::new(AtomicBool::new(true)),
        };
        let (asker, running) = (Arc::clone(&backend.asker), Arc::clone(&backend.running));
        std::thread::spawn(move || {
            let mut octets = [0; 512];
            while running.load(Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut octets) else {
                    continue;
                };
                *asker.lock().expect("no panic") = Some(from.ip());
                octets[2] |= 0x80;
                // There may be no way back just now.
                let _ = socket.send_to(&octets[..length], from);
            }
        });
        backend
    }

    fn asker(&self) -> Option<IpAddr> {
        *self.asker.lock().expect("no panic")
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.running.store(false, Relaxed);
    }
}

/// Queries are answered over AF_XDP by `interface`, from this address of ours, within the time that is promised.
fn is_asked_from(rig: &mut Rig, backend: &Backend, source: &str, interface: &str) {
    let began = Instant::now();
    rig.says(&format!("198.51.100.2:53 is asked from {source} now"));
    assert!(began.elapsed() < AF_XDP_AGAIN, "{}", rig.log());
    rig.is_served_over_xdp(ADDRESS, interface);
    let asker: Option<IpAddr> = source.parse().ok();
    assert_eq!(backend.asker(), asker, "{}", rig.log());
}

fn moves(rig: &Rig) -> f64 {
    rig.changes("source-changed")
}

/// Programs expect answers at the new address at once, while the ports were bound to the old one for as long as health checks
/// said nothing else.
#[test]
fn a_route_that_prefers_another_source_moves_its_server_and_loses_nothing() {
    let Some(mut rig) = Rig::start("source", CONFIGURATION) else {
        return;
    };
    let backend = Backend::start(&rig);
    rig.is_served_over_xdp(ADDRESS, "enp2s0");
    let load = Load::start(&rig, "www.example.com.");
    rig.ip("address add 198.51.100.77/24 dev enp2s0\n\
            route replace 198.51.100.2/32 dev enp2s0 src 198.51.100.77\n");
    is_asked_from(&mut rig, &backend, "198.51.100.77", "enp2s0");
    let asked = load.end();
    println!("another source: {asked} queries, 0 lost");
    // No other query's answer is on its way now.
    rig.is_served_over_xdp(ADDRESS, "enp2s0");
    assert_eq!(rig.metric("millrace_server_xsk", &[]), 1.0);
    assert_eq!(moves(&rig), 1.0, "{}", rig.log());
    rig.ip("route del 198.51.100.2/32 dev enp2s0\n");
    is_asked_from(&mut rig, &backend, "198.51.100.1", "enp2s0");
    assert_eq!(moves(&rig), 2.0, "{}", rig.log());
    rig.server.stop().expect("a good end");
}

/// An address that is taken away is asked from no more, and no query waits for the next health check.
#[test]
fn a_source_that_is_removed() {
    let Some(mut rig) = Rig::start("source-gone", CONFIGURATION) else {
        return;
    };
    let backend = Backend::start(&rig);
    rig.is_served_over_xdp(ADDRESS, "enp2s0");
    rig.ip("address add 198.51.100.77/24 dev enp2s0\n\
            route replace 198.51.100.2/32 dev enp2s0 src 198.51.100.77\n");
    is_asked_from(&mut rig, &backend, "198.51.100.77", "enp2s0");
    rig.ip("address del 198.51.100.77/24 dev enp2s0\n");
    is_asked_from(&mut rig, &backend, "198.51.100.1", "enp2s0");
    rig.server.stop().expect("a good end");
}

/// For a moment queries and answers go by different interfaces, which the kernel may be told to refuse (ip-sysctl.rst).
fn allow_detours(namespace: &Namespace) {
    let allow = || {
        let folders = fs::read_dir("/proc/sys/net/ipv4/conf").expect("settings");
        for folder in folders.flatten() {
            fs::write(folder.path().join("rp_filter"), "0").expect("a setting");
        }
    };
    namespace.run(allow).expect("the namespace");
}

#[test]
fn a_route_that_moves_to_another_interface_takes_the_source_along() {
    let Some(mut rig) = Rig::start("source-moves", CONFIGURATION) else {
        return;
    };
    let backend = Backend::start(&rig);
    rig.is_served_over_xdp(ADDRESS, "enp2s0");
    rig.add_third_interface();
    allow_detours(&rig.lab.server());
    allow_detours(&rig.lab.backend());
    rig.ip("route add 198.51.100.2/32 via 203.0.113.2 dev third\n");
    is_asked_from(&mut rig, &backend, "203.0.113.1", "third");
    rig.ip("link del third\n");
    is_asked_from(&mut rig, &backend, "198.51.100.1", "enp2s0");
    rig.server.stop().expect("a good end");
}
