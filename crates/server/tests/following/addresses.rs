//! Addresses and routes that come, go and move.

use crate::rig::{AF_XDP_AGAIN, PATIENCE, REFUSED, Rig};

/// Said of an interface that came later, in the line that tells of all its changes: that its link is up may come before it, as
/// fast as that event came. Queues are in one part or two, by the pages that their workers' frames lie in.
const ATTACHED_LATER: &str = "AF_XDP program attached in native mode; queue";

#[test]
fn a_wildcard_listener_serves_what_comes() {
    let wildcard = "addLocal(\"0.0.0.0:53\", {xdp=true})\n".to_owned() + REFUSED;
    let Some(mut rig) = Rig::start("wildcard", &wildcard) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    rig.ip("address add 192.0.2.9/24 dev enp1s0\n");
    rig.is_served_over_xdp("192.0.2.9:53", "enp1s0");
    assert!(rig.changes("destinations-changed") >= 1.0);
    rig.ip("address del 192.0.2.9/24 dev enp1s0\n");
    // A new interface, with an address of its own.
    let client = rig.lab.client();
    rig.ip(&format!(
        "link add late0 numtxqueues 2 numrxqueues 2 type veth peer name late-peer netns {}\n\
         link set late0 up\naddress add 203.0.113.1/24 dev late0\n",
        client.name()
    ));
    rig.client_ip("link set late-peer up\naddress add 203.0.113.100/24 dev late-peer\n");
    rig.is_served_over_xdp("203.0.113.1:53", "late0");
    rig.says(ATTACHED_LATER);
    rig.server.stop().expect("a good end");
}

#[test]
fn an_anycast_address_is_served_on_interfaces_that_come_up() {
    let Some(lab) = Rig::lab("anycast", testnet::lab::Topology::TwoInterfaces) else {
        return;
    };
    let anycast = "address add 203.0.113.53/32 dev lo\nlink set enp1s0 down\n";
    lab.server().ip(anycast).expect("ip");
    let listen = "addLocal(\"203.0.113.53:53\", {xdp=true})\n".to_owned() + REFUSED;
    let rig = Rig::start_in(lab, &listen);
    rig.client_ip("route add 203.0.113.53/32 via 192.0.2.1 dev to-server\n");
    rig.ip("link set enp1s0 up\n");
    rig.is_served_over_xdp("203.0.113.53:53", "enp1s0");
    rig.server.stop().expect("a good end");
}

/// Anycast under a wildcard, of both families: what a routing daemon adds when the service is well, and takes away.
#[test]
fn an_anycast_address_that_comes_later_is_served_under_a_wildcard() {
    let wildcards = "addLocal(\"0.0.0.0:53\", {xdp=true})\naddLocal(\"[::]:53\", {xdp=true})\n"
        .to_owned()
        + REFUSED;
    let Some(rig) = Rig::start("anycast-late", &wildcards) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    rig.is_served_over_xdp("[2001:db8::1]:53", "enp1s0");
    // On the link by its number, the other one behind a route: for an address on lo nobody answers neighbour solicitations.
    rig.client_ip("route add 2001:db8:53::53/128 via 2001:db8::1 dev to-server\n");
    rig.ip("address add 192.0.2.53/32 dev lo\n");
    rig.is_served_over_xdp("192.0.2.53:53", "enp1s0");
    rig.ip("address add 2001:db8:53::53/128 dev lo\n");
    rig.is_served_over_xdp("[2001:db8:53::53]:53", "enp1s0");
    let changed = || rig.changes("destinations-changed");
    assert!(changed() >= 2.0, "{}", rig.log());
    let before = changed();
    rig.ip("address del 192.0.2.53/32 dev lo\n");
    rig.awaits("the address to be left out", || changed() > before);
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    rig.server.stop().expect("a good end");
}

/// The listener names an address that comes after the start. The kernel binds it where ip_nonlocal_bind says so
/// (Documentation/networking/ip-sysctl.rst); neither dnsdist's language nor ours has an option for that.
#[test]
fn an_anycast_address_that_a_listener_names_may_come_after_it() {
    let Some(lab) = Rig::lab("anycast-named", testnet::lab::Topology::TwoInterfaces) else {
        return;
    };
    let allowed = lab
        .server()
        .run(|| std::fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1"));
    allowed.expect("the namespace").expect("a setting");
    let listen = "addLocal(\"192.0.2.53:53\", {xdp=true})\n".to_owned() + REFUSED;
    let mut rig = Rig::start_in(lab, &listen);
    rig.says("no interface has the address 192.0.2.53");
    rig.ip("address add 192.0.2.53/32 dev lo\n");
    rig.is_served_over_xdp("192.0.2.53:53", "enp1s0");
    // It goes with what the machine announces, and comes back.
    rig.ip("address del 192.0.2.53/32 dev lo\n");
    rig.server
        .await_log_times("no interface has the address 192.0.2.53", 2, PATIENCE)
        .expect("the address to be missed");
    rig.ip("address add 192.0.2.53/32 dev lo\n");
    rig.is_served_over_xdp("192.0.2.53:53", "enp1s0");
    rig.server.stop().expect("a good end");
}

#[test]
fn an_address_that_moves_to_another_interface() {
    let listen = "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED;
    let Some(rig) = Rig::start("moves", &listen) else {
        return;
    };
    rig.is_served_over_xdp("192.0.2.1:53", "enp1s0");
    rig.ip("address del 192.0.2.1/24 dev enp1s0\naddress add 192.0.2.1/32 dev enp2s0\nroute add 192.0.2.0/24 dev enp1s0\n");
    rig.is_served_again("192.0.2.1:53");
    let asked = || {
        let backend = rig.lab.backend();
        crate::rig::ask(&backend, "192.0.2.1:53", PATIENCE)
    };
    let began = std::time::Instant::now();
    let received = || rig.metric("millrace_xsk_received", &[("interface", "enp2s0")]);
    while received() == 0.0 {
        assert!(asked(), "{}", rig.log());
        assert!(began.elapsed() < AF_XDP_AGAIN, "{}", rig.log());
    }
    rig.server.stop().expect("a good end");
}

#[test]
fn a_backend_whose_route_moves_to_an_interface_that_was_not_open() {
    let configuration = "addLocal(\"192.0.2.1:53\", {xdp=true})\n\
         newServer({address=\"198.51.100.2:53\", xdp=true, healthCheckMode=\"up\"})\n";
    let Some(mut rig) = Rig::start("route", configuration) else {
        return;
    };
    rig.says("interface=\"enp2s0\"");
    rig.add_third_interface();
    rig.ip("route add 198.51.100.2/32 via 203.0.113.2 dev third src 198.51.100.1\n");
    rig.says(ATTACHED_LATER);
    rig.says("interface=\"third\"");
    assert_eq!(rig.metric("millrace_server_xsk", &[]), 1.0);
    rig.ip("link del third\n");
    rig.server
        .await_log_times("interface=\"enp2s0\"", 2, PATIENCE)
        .expect("the server to be reached as before");
    rig.server.stop().expect("a good end");
}
