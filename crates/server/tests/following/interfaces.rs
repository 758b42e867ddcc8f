//! Interfaces that change, come and go.

use crate::rig::{REFUSED, Rig};
use testnet::lab::Topology;
use testnet::namespace::{Namespace, run};

const LISTEN: &str = "addLocal(\"192.0.2.1:53\", {xdp=true})\n";
const ADDRESS: &str = "192.0.2.1:53";

/// Takes the interface towards clients away and brings another one of its name.
const DELETE: &str = "link del enp1s0\n";

fn create(rig: &Rig) {
    let client = rig.lab.client();
    rig.ip(&format!(
        "link add enp1s0 address 02:00:00:00:01:01 numtxqueues 2 numrxqueues 2 type veth peer name to-server netns {} address 02:00:00:00:01:64 numtxqueues 2 numrxqueues 2\n\
         link set enp1s0 up\naddress add 192.0.2.1/24 dev enp1s0\n",
        client.name()
    ));
    rig.client_ip("link set to-server up\naddress add 192.0.2.100/24 dev to-server\n");
    let offload = client.run(|| run("ethtool", &["-K", "to-server", "tx", "off"]));
    offload.expect("the namespace").expect("ethtool");
}

/// A namespace that goes with the test.
struct Removed(Namespace);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

fn rig(name: &str) -> Option<Rig> {
    let rig = Rig::start(name, &(LISTEN.to_owned() + REFUSED))?;
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    Some(rig)
}

#[test]
fn another_address_of_its_own() {
    let Some(mut rig) = rig("mac") else { return };
    rig.ip("link set enp1s0 address 02:00:00:00:01:77\n");
    rig.client_ip("neigh flush dev to-server\n");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.says("enp1s0: its address is 02:00:00:00:01:77, was 02:00:00:00:01:01");
    assert_eq!(rig.changes("interface-changed"), 1.0);
    rig.server.stop().expect("a good end");
}

#[test]
fn f23_another_mtu() {
    let Some(mut rig) = rig("mtu") else { return };
    rig.ip("link set enp1s0 mtu 1280\n");
    rig.says("enp1s0: its MTU is 1280, was 1500");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}

#[test]
fn another_name() {
    let Some(mut rig) = rig("name") else { return };
    rig.ip("link set enp1s0 down\nlink set enp1s0 name wan0\nlink set wan0 up\n");
    rig.is_served_over_xdp(ADDRESS, "wan0");
    rig.says("wan0: it was called enp1s0");
    rig.server.stop().expect("a good end");
}

#[test]
fn deleted_and_made_anew() {
    let Some(mut rig) = rig("delete") else { return };
    rig.ip(DELETE);
    rig.says("enp1s0: the interface is gone: kernel sockets serve");
    create(&rig);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    // At once, so that nobody sees that it was gone.
    rig.ip(DELETE);
    create(&rig);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_eq!(rig.changes("interface-gone"), 2.0);
    assert_eq!(rig.changes("attached"), 2.0);
    rig.server.stop().expect("a good end");
}

#[test]
fn moved_to_another_namespace_and_back() {
    let Some(mut rig) = rig("move") else { return };
    let elsewhere = Namespace::named(format!("{}-elsewhere", rig.lab.prefix()));
    elsewhere.create().expect("a namespace");
    let elsewhere = Removed(elsewhere);
    rig.ip(&format!("link set enp1s0 netns {}\n", elsewhere.0.name()));
    rig.says("enp1s0: the interface is gone: kernel sockets serve");
    let back = format!("link set enp1s0 netns {}\n", rig.lab.server().name());
    elsewhere.0.ip(&back).expect("ip");
    rig.ip("link set enp1s0 up\naddress add 192.0.2.1/24 dev enp1s0\n");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}

#[test]
fn down_and_up() {
    let Some(mut rig) = rig("down") else { return };
    rig.ip("link set enp1s0 down\n");
    rig.says("enp1s0 is down");
    rig.ip("link set enp1s0 up\n");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}

#[test]
fn more_queues() {
    let Some(lab) = Rig::lab("queues", Topology::FourQueues) else {
        return;
    };
    let queues = |count: &'static str| {
        let set = lab
            .server()
            .run(|| run("ethtool", &["-L", "enp1s0", "rx", count]));
        set.expect("the namespace").expect("ethtool");
    };
    let peer = lab
        .client()
        .run(|| run("ethtool", &["-L", "to-server", "tx", "2"]));
    peer.expect("the namespace").expect("ethtool");
    queues("2");
    let shared = LISTEN.replace("xdp", "reusePort=true, xdp");
    // Three workers, for one queue more than there are.
    let rig = Rig::start_in(lab, &(shared.repeat(3) + REFUSED));
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let set = rig
        .lab
        .server()
        .run(|| run("ethtool", &["-L", "enp1s0", "rx", "4"]));
    set.expect("the namespace").expect("ethtool");
    let mut rig = rig;
    rig.says("enp1s0: it has 4 queues, had 2");
    rig.says("queue 2 of enp1s0 is served over AF_XDP");
    rig.says("queue 3 of enp1s0 is left to kernel sockets: there are 3 workers");
    for _ in 0..20 {
        rig.is_served_again(ADDRESS);
    }
    rig.server.stop().expect("a good end");
}
