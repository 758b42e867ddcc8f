//! Interfaces that change, come and go.

use crate::restart::{end, restarted};
use crate::rig::{AF_XDP_AGAIN, PATIENCE, REFUSED, Rig, pass};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use testnet::dns::Query;
use testnet::lab::{Lab, Topology};
use testnet::namespace::{Namespace, run};

const LISTEN: &str = "addLocal(\"192.0.2.1:53\", {xdp=true})\n";
const ADDRESS: &str = "192.0.2.1:53";

/// Takes the interface towards clients away and brings another one of its name.
const DELETE: &str = "link del enp1s0\n";

fn create(rig: &Rig, queues: u32) {
    let client = rig.lab.client();
    rig.ip(&format!(
        "link add enp1s0 address 02:00:00:00:01:01 numtxqueues {queues} numrxqueues {queues} type veth peer name to-server netns {} address 02:00:00:00:01:64 numtxqueues {queues} numrxqueues {queues}\n\
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
    create(&rig, 2);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    // At once, so that nobody sees that it was gone.
    rig.ip(DELETE);
    create(&rig, 2);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_eq!(rig.changes("interface-gone"), 2.0);
    assert_eq!(rig.changes("attached"), 2.0);
    rig.server.stop().expect("a good end");
}

/// Under wildcards there is most to tell of an interface that comes: program, queues, addresses of both families.
#[test]
fn an_interface_that_goes_and_comes_under_wildcards_is_a_line_each() {
    let wildcards = "addLocal(\"0.0.0.0:53\", {xdp=true})\naddLocal(\"[::]:53\", {xdp=true})\n"
        .to_owned()
        + REFUSED;
    let Some(mut rig) = Rig::start("a-line-each", &wildcards) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let lines = |rig: &Rig| {
        let log = rig.log();
        let of_it = log.lines().filter(|line| line.contains("enp1s0"));
        of_it.map(str::to_owned).collect::<Vec<String>>()
    };
    let before = lines(&rig).len();
    rig.ip(DELETE);
    rig.says("enp1s0: the interface is gone: kernel sockets serve");
    assert_eq!(lines(&rig).len(), before + 1, "{}", rig.log());
    create(&rig, 2);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let come = lines(&rig).split_off(before + 1);
    let attached = come
        .iter()
        .filter(|line| line.contains("AF_XDP program attached"));
    let told: Vec<&String> = attached.collect();
    assert_eq!(told.len(), 1, "{come:?}");
    assert!(
        told[0].contains("queues 0, 1 are served over AF_XDP"),
        "{come:?}"
    );
    assert!(told[0].contains("come over AF_XDP"), "{come:?}");
    // An address that comes after the interface is an event of its own.
    let addresses = come.iter().filter(|line| !line.contains("attached"));
    let mut others = addresses.map(|line| line.contains("enp1s0: queries to "));
    assert!(others.all(|is_address| is_address), "{come:?}");
    rig.server.stop().expect("a good end");
}

#[test]
fn moved_to_another_namespace_and_back() {
    let Some(mut rig) = rig("move") else { return };
    let elsewhere = Namespace::named(format!("{}-elsewhere", rig.lab.prefix()));
    // A run that was killed may have left it.
    if elsewhere.exists() {
        elsewhere.remove().expect("an old namespace to go");
    }
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
    rig.says("enp1s0: it is down or has no carrier: nothing comes by it");
    rig.ip("link set enp1s0 up\n");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.says("enp1s0: it is up");
    // The cable of the clients, which stays in the plan.
    rig.client_ip("link set to-server down\n");
    rig.awaits("the carrier's loss to be counted", || {
        rig.changes("link-down") == 2.0
    });
    rig.client_ip("link set to-server up\n");
    rig.awaits("the carrier's return to be counted", || {
        rig.changes("link-up") == 2.0
    });
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}

/// A query whose answer has come while the link towards its client was down, and waits in the ring; that client.
fn with_an_answer_in_the_ring(name: &str) -> Option<(Rig, UdpSocket)> {
    let configuration = LISTEN.to_owned()
        + "setUDPTimeout(60)\n\
           newServer({address=\"198.51.100.2:53\", healthCheckMode=\"up\", xdp=true})\n\
           addAction(\"example.com.\", RCodeAction(DNSRCode.REFUSED))\n";
    let rig = Rig::start(name, &configuration)?;
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let bind = |namespace: Namespace, address: &str| {
        let socket = namespace.run(|| UdpSocket::bind(address));
        let socket = socket.expect("the namespace").expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        socket
    };
    let backend = bind(rig.lab.backend(), "198.51.100.2:53");
    let client = bind(rig.lab.client(), "0.0.0.0:0");
    let query = Query::new("www.late.example.", "A").expect("a query");
    client.send_to(&query.octets(), ADDRESS).expect("to send");
    let mut octets = [0; 512];
    let (length, from) = backend.recv_from(&mut octets).expect("a query");
    rig.ip("link set enp1s0 down\n");
    octets[2] |= 0x80;
    let answer = &octets[..length];
    backend.send_to(answer, from).expect("to answer");
    rig.awaits("the answer in the ring", || {
        rig.metric("millrace_xsk_frames", &[("owner", "tx")]) > 0.0
    });
    Some((rig, client))
}

/// Nothing else happens there: the worker that has the answer sleeps, and must be woken.
#[test]
fn f22_an_answer_that_waits_for_its_link_is_sent_when_that_is_up_again() {
    let Some((rig, client)) = with_an_answer_in_the_ring("waits") else {
        return;
    };
    rig.ip("link set enp1s0 up\n");
    let mut octets = [0; 512];
    client.recv(&mut octets).expect("the answer");
    rig.server.stop().expect("a good end");
}

/// When the interface goes the answer is lost, by a name.
#[test]
fn f22_an_answer_that_a_deleted_interface_had_to_send_is_counted() {
    let Some((mut rig, _client)) = with_an_answer_in_the_ring("unsent") else {
        return;
    };
    let lost = || rig.metric("millrace_drops", &[("reason", "send-failed")]);
    assert_eq!(lost(), 0.0);
    rig.ip(DELETE);
    rig.awaits("its loss to be counted", || lost() == 1.0);
    rig.says("enp1s0: the interface is gone: kernel sockets serve");
    rig.server.stop().expect("a good end");
}

/// Each time the link is back before a second has passed, at our end and at the clients'; then all is as before.
#[test]
fn f22_links_that_flap_within_a_second() {
    let Some(rig) = rig("flaps") else { return };
    for pause in [0, 20, 200, 700].map(Duration::from_millis) {
        let pass = || pass(pause);
        rig.ip("link set enp1s0 down\n");
        pass();
        rig.ip("link set enp1s0 up\n");
        rig.is_served_over_xdp(ADDRESS, "enp1s0");
        rig.client_ip("link set to-server down\n");
        pass();
        rig.client_ip("link set to-server up\n");
        rig.is_served_over_xdp(ADDRESS, "enp1s0");
        // Again and again, without a pause to recover in.
        for _ in 0..4 {
            rig.ip("link set enp1s0 down\n");
            pass();
            rig.ip("link set enp1s0 up\n");
            pass();
        }
        rig.is_served_over_xdp(ADDRESS, "enp1s0");
    }
    for worker in ["0", "1"] {
        rig.has_all_frames(worker);
    }
    rig.server.stop().expect("a good end");
}

/// Sets how many queues there are: ours to receive from, and the clients' to send by, which must never be more.
fn set_queues(lab: &Lab, count: &str) {
    let set = |namespace: Namespace, interface, word| {
        let set = namespace.run(|| run("ethtool", &["-L", interface, word, count]));
        set.expect("the namespace").expect("ethtool");
    };
    let ours = || set(lab.server(), "enp1s0", "rx");
    let theirs = || set(lab.client(), "to-server", "tx");
    match count {
        "4" => (ours(), theirs()),
        _ => (theirs(), ours()),
    };
}

/// Asks until a queue of each of these numbers has received something over AF_XDP.
fn are_served_over_xdp(rig: &Rig, queues: &[&str]) {
    let began = Instant::now();
    let is_silent = |queue: &&&str| {
        let labels = [("interface", "enp1s0"), ("queue", **queue)];
        rig.metric("millrace_xsk_received", &labels) == 0.0
    };
    while let Some(silent) = queues.iter().find(is_silent) {
        rig.is_served_again(ADDRESS);
        assert!(
            began.elapsed() < AF_XDP_AGAIN,
            "queue {silent} is not served:\n{}",
            rig.log()
        );
    }
}

#[test]
fn more_queues_than_workers() {
    let Some(lab) = Rig::lab("queues", Topology::FourQueues) else {
        return;
    };
    set_queues(&lab, "2");
    let mut rig = Rig::start_in(lab, &(LISTEN.to_owned() + REFUSED));
    are_served_over_xdp(&rig, &["0", "1"]);
    set_queues(&rig.lab, "4");
    rig.says("enp1s0: it has 4 queues, had 2");
    rig.says("queue 3 of enp1s0 has worker 1, which has another queue too");
    are_served_over_xdp(&rig, &["0", "1", "2", "3"]);
    // All of a worker's queues have its frames, and none is lost.
    rig.has_all_frames("1");
    let said = rig.reload(&(LISTEN.to_owned() + REFUSED));
    assert!(said.contains("configuration 2 serves"), "{said}");
    are_served_over_xdp(&rig, &["0", "1", "2", "3"]);
    // The next process has a worker for each.
    restarted(&mut rig);
    are_served_over_xdp(&rig, &["0", "1", "2", "3"]);
    rig.has_all_frames("3");
    assert_eq!(rig.log().matches("has worker 1, which").count(), 1);
    end(rig.daemon());
}

#[test]
fn an_interface_with_more_queues_than_workers_comes() {
    let Some(mut rig) = rig("wider") else { return };
    rig.ip(DELETE);
    rig.says("enp1s0: the interface is gone: kernel sockets serve");
    create(&rig, 4);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    are_served_over_xdp(&rig, &["0", "1", "2", "3"]);
    rig.server.stop().expect("a good end");
}
