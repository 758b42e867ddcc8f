//! The daemon over a bond whose members fail over, go and come, and beside VLANs. For kernels that lack the modules stage
//! `kernels` runs this file in a VM.

use crate::rig::{REFUSED, Rig};
use testnet::Outcome;
use testnet::lab::{Lab, SERVER_CLIENTS, TO_SERVER, Topology};
use testnet::namespace::{Namespace, run};

const LISTEN: &str = "addLocal(\"192.0.2.1:53\", {xdp=true})\n";
const ADDRESS: &str = "192.0.2.1:53";

/// The member beside [`SERVER_CLIENTS`], the clients' end of it, and the bonds at both ends.
const SECOND: &str = "enp3s0";
const TO_SECOND: &str = "to-server-2";
const BOND: &str = "bond1";
const CLIENT_BOND: &str = "bond2";

/// Of VLAN 7, and of VLAN 8.
const TAGGED: [&str; 2] = ["203.0.113.1:53", "203.0.113.129:53"];

/// Whether this kernel has the module that `tried` needs; a line where it has not.
fn has_module(module: &str, tried: Outcome<()>) -> bool {
    let Err(failure) = tried else { return true };
    let text = failure.to_string();
    assert!(text.contains("Unknown device type"), "{text}");
    println!("SKIP: this kernel lacks a module: {module}");
    false
}

fn ethtool(namespace: &Namespace, words: &[&str]) {
    let set = namespace.run(|| run("ethtool", words));
    set.expect("the namespace").expect("ethtool");
}

/// Bonds two pairs at both ends, the lab's own being the primary one; `false` and a line where there is no bond.
fn has_bond(lab: &Lab) -> bool {
    // A link that goes down is noticed within 10 ms, at one end before the other: meanwhile the backup one receives, too.
    let bond = |name: &str, address: &str| {
        format!(
            "link add {name} address {address} type bond mode active-backup miimon 10 all_slaves_active 1\n"
        )
    };
    let added = lab.server().ip(&bond(BOND, "02:00:00:00:01:01"));
    if !has_module("bonding", added) {
        return false;
    }
    let client = lab.client();
    client
        .ip(&bond(CLIENT_BOND, "02:00:00:00:01:64"))
        .expect("ip");
    add_second(lab);
    let ours = joined(BOND, [SERVER_CLIENTS, SECOND], "192.0.2.1/24");
    lab.server().ip(&ours).expect("ip");
    let theirs = joined(CLIENT_BOND, [TO_SERVER, TO_SECOND], "192.0.2.100/24");
    client.ip(&theirs).expect("ip");
    true
}

/// Makes the second pair; its ends are down.
fn add_second(lab: &Lab) {
    let client = lab.client();
    let pair = format!(
        "link add {SECOND} address 02:00:00:00:03:01 numtxqueues 2 numrxqueues 2 type veth \
         peer name {TO_SECOND} netns {} address 02:00:00:00:03:64 numtxqueues 2 numrxqueues 2\n",
        client.name()
    );
    lab.server().ip(&pair).expect("ip");
    ethtool(&client, &["-K", TO_SECOND, "tx", "off"]);
}

/// What `ip` is to do to make two interfaces members of a bond, the first one its primary, and give it an address.
fn joined(bond: &str, [first, second]: [&str; 2], address: &str) -> String {
    format!(
        "address flush dev {first}\n\
         link set {first} down\n\
         link set {first} master {bond}\n\
         link set {second} master {bond}\n\
         link set {bond} type bond primary {first}\n\
         link set {bond} up\n\
         address add {address} dev {bond}\n"
    )
}

/// The daemon, served over the primary member; `None` and a line where that cannot be.
fn bonded(name: &str) -> Option<Rig> {
    let lab = Rig::lab(name, Topology::TwoInterfaces).filter(has_bond)?;
    let rig = Rig::start_in(lab, &(LISTEN.to_owned() + REFUSED));
    rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    Some(rig)
}

#[test]
fn a_bond_fails_over_and_back() {
    let Some(rig) = bonded("bondfails") else {
        return;
    };
    // Our end, and the other one, by which the carrier is lost.
    let ours = |word: &str| rig.ip(&format!("link set {SERVER_CLIENTS} {word}\n"));
    let theirs = |word: &str| rig.client_ip(&format!("link set {TO_SERVER} {word}\n"));
    let ends: [&dyn Fn(&str); 2] = [&ours, &theirs];
    for set in ends {
        set("down");
        rig.is_served_over_xdp(ADDRESS, SECOND);
        set("up");
        rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    }
    for worker in ["0", "1"] {
        rig.has_all_frames(worker);
    }
    rig.server.stop().expect("a good end");
}

#[test]
fn members_of_a_bond_go_and_come() {
    let Some(mut rig) = bonded("bondmembers") else {
        return;
    };
    // The kernel takes down what leaves a bond.
    rig.ip(&format!(
        "link set {SECOND} nomaster\nlink set {SECOND} up\n"
    ));
    rig.says("enp3s0: all queries go to kernel sockets");
    rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    // It comes back, and is soon the only one.
    rig.ip(&format!(
        "link set {SECOND} down\nlink set {SECOND} master {BOND}\nlink set {SERVER_CLIENTS} nomaster\n\
         link set {SERVER_CLIENTS} down\n"
    ));
    rig.is_served_over_xdp(ADDRESS, SECOND);
    rig.ip(&format!("link set {SERVER_CLIENTS} master {BOND}\n"));
    rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    // It is deleted, and another one of its name is made.
    rig.ip(&format!("link del {SECOND}\n"));
    // The kernel takes the program off it first: on a slow machine that is noticed before the interface is gone.
    let lines = ["the interface is gone", "our program was taken off it"];
    let lines = lines.map(|why| format!("enp3s0: {why}: kernel sockets serve"));
    rig.awaits("the loss of enp3s0 to be said", || {
        let log = rig.log();
        lines.iter().any(|line| log.contains(line))
    });
    rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    add_second(&rig.lab);
    rig.client_ip(&format!("link set {TO_SECOND} master {CLIENT_BOND}\n"));
    rig.ip(&format!("link set {SECOND} master {BOND}\n"));
    rig.ip(&format!("link set {SERVER_CLIENTS} down\n"));
    rig.is_served_over_xdp(ADDRESS, SECOND);
    rig.server.stop().expect("a good end");
}

/// Adds a VLAN device at both ends, with addresses of its own; whether that can be.
fn has_vlan(lab: &Lab, id: u32, network: [&str; 2]) -> bool {
    let ends = [
        (lab.server(), SERVER_CLIENTS, network[0]),
        (lab.client(), TO_SERVER, network[1]),
    ];
    for (namespace, interface, address) in ends {
        // Else veth hands the tag over beside the frame, where an XDP program cannot see it.
        ethtool(&namespace, &["-K", interface, "txvlan", "off"]);
        let added = namespace.ip(&format!(
            "link add link {interface} name {interface}.{id} type vlan id {id}\n"
        ));
        if !has_module("8021q", added) {
            return false;
        }
        let lines =
            format!("link set {interface}.{id} up\naddress add {address} dev {interface}.{id}\n");
        namespace.ip(&lines).expect("ip");
    }
    true
}

/// One VLAN is there at the start, and one comes and goes; what has no tag is served over AF_XDP all the while.
#[test]
fn vlans_are_served_by_kernel_sockets_and_the_rest_over_af_xdp() {
    let first = |lab: &Lab| has_vlan(lab, 7, ["203.0.113.1/25", "203.0.113.2/25"]);
    let Some(lab) = Rig::lab("vlans", Topology::TwoInterfaces).filter(first) else {
        return;
    };
    let tagged = format!("addLocal(\"{}\", {{xdp=true}})\n", TAGGED[0]);
    let mut rig = Rig::start_in(lab, &(LISTEN.to_owned() + &tagged + REFUSED));
    rig.says("enp1s0.7 is a VLAN interface: tagged frames are left to the kernel");
    rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    rig.is_served_by_the_kernel(TAGGED[0], SERVER_CLIENTS);
    // Under a wildcard the addresses of VLANs are served addresses too.
    let wildcard = "addLocal(\"0.0.0.0:53\", {xdp=true})\n".to_owned() + REFUSED;
    let rig = Rig::start_in(rig.stop(), &wildcard);
    rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    rig.is_served_by_the_kernel(TAGGED[0], SERVER_CLIENTS);
    let second = ["203.0.113.129/25", "203.0.113.130/25"];
    assert!(has_vlan(&rig.lab, 8, second));
    rig.is_served_by_the_kernel(TAGGED[1], SERVER_CLIENTS);
    rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    rig.ip("link del enp1s0.8\n");
    rig.is_served_over_xdp(ADDRESS, SERVER_CLIENTS);
    rig.is_served_by_the_kernel(TAGGED[0], SERVER_CLIENTS);
    rig.server.stop().expect("a good end");
}
