//! The members of a bond: a program and a socket on each, the addresses on the bond.

use std::time::Duration;

use testnet::lab::{End, Lab, SERVER_CLIENTS, TO_SERVER};
use testnet::namespace::run;
use xsk::AttachMode;

use crate::lab::{Client, Echo, Path, Witness, has_module, inside, lab, until};

/// The member beside [`SERVER_CLIENTS`], and the clients' end of it.
const SECOND: &str = "enp3s0";
const TO_SECOND: &str = "to-server-2";
const BOND: &str = "bond1";
/// What clients ask over each member.
const SERVERS: [&str; 2] = ["192.0.2.1:53", "203.0.113.1:53"];
const CLIENTS: [&str; 2] = ["192.0.2.100:0", "203.0.113.2:0"];
/// The same hosts at a port that is not served: only the kernel answers there.
const UNSERVED: [&str; 2] = ["192.0.2.1:5300", "203.0.113.1:5300"];
const SHORT: Duration = Duration::from_millis(50);

/// Makes a second pair and bonds the server's ends; `false` and a line where there is no bond.
fn has_bond(lab: &Lab) -> bool {
    // A link that goes down is noticed within 10 ms.
    let added = lab.server().ip(&format!(
        "link add {BOND} address 02:00:00:00:01:01 type bond mode active-backup miimon 10\n"
    ));
    if !has_module("bonding", added) {
        return false;
    }
    let client = lab.client();
    let server_lines = format!(
        "link add {SECOND} address 02:00:00:00:03:01 numtxqueues 1 numrxqueues 1 type veth \
         peer name {TO_SECOND} netns {} address 02:00:00:00:03:64 numtxqueues 1 numrxqueues 1\n\
         address del 192.0.2.1/24 dev {SERVER_CLIENTS}\n\
         link set {SERVER_CLIENTS} down\n\
         link set {SERVER_CLIENTS} master {BOND}\n\
         link set {SECOND} master {BOND}\n\
         link set {BOND} up\n\
         address add 192.0.2.1/24 dev {BOND}\n\
         address add 203.0.113.1/24 dev {BOND}\n\
         neigh replace 192.0.2.100 lladdr 02:00:00:00:01:64 dev {BOND} nud permanent\n\
         neigh replace 203.0.113.2 lladdr 02:00:00:00:03:64 dev {BOND} nud permanent\n",
        client.name()
    );
    lab.server().ip(&server_lines).unwrap();
    // The backup member hears no question for a hardware address. All members have the bond's.
    let client_lines = format!(
        "link set {TO_SECOND} up\n\
         address add 203.0.113.2/24 dev {TO_SECOND}\n\
         neigh replace 192.0.2.1 lladdr 02:00:00:00:01:01 dev {TO_SERVER} nud permanent\n\
         neigh replace 203.0.113.1 lladdr 02:00:00:00:01:01 dev {TO_SECOND} nud permanent\n"
    );
    client.ip(&client_lines).unwrap();
    let offload = inside(&client, || run("ethtool", &["-K", TO_SECOND, "tx", "off"]));
    offload.unwrap_or_else(|failure| panic!("{failure}"));
    true
}

/// A worker on each member; both serve what the bond has.
fn workers(lab: &Lab) -> [Echo; 2] {
    [SERVER_CLIENTS, SECOND].map(|member| {
        let mut echo = inside(&lab.server(), || Echo::start(member, AttachMode::Native));
        for server in SERVERS {
            echo.program.serve(server.parse().unwrap()).unwrap();
        }
        echo
    })
}

#[test]
fn each_member_of_a_bond_is_served_whichever_is_active() {
    let Some(lab) = lab("bond").filter(has_bond) else {
        return;
    };
    let mut workers = workers(&lab);
    let _witness = Witness::start(&lab.server(), &SERVERS);
    let _unserved = Witness::start(&lab.server(), &UNSERVED);
    let client = lab.client();
    let asking = |member: usize, to| Client::between(&client, CLIENTS[member], to);
    let mut served = [asking(0, SERVERS[0]), asking(1, SERVERS[1])];
    let mut unserved = [asking(0, UNSERVED[0]), asking(1, UNSERVED[1])];
    let mut all_over_af_xdp = |member: usize| {
        served[member].reach(&mut workers[member]);
        let before = workers[member].socket.counters().received;
        for _ in 0..20 {
            assert_eq!(
                served[member].ask_of(&mut workers[member]),
                Some(Path::Xsk),
                "member {member}"
            );
        }
        let received = workers[member].socket.counters().received;
        assert_eq!(received - before, 20, "member {member}");
    };
    let mut the_kernel_answers = |member: usize| {
        until("the kernel answers over the bond", || {
            unserved[member].ask(SHORT) == Some(Path::Kernel)
        });
    };
    // The first member is active, the second one is not: its frames are taken all the same.
    all_over_af_xdp(0);
    all_over_af_xdp(1);
    the_kernel_answers(0);
    lab.set_link(End::ServerClients, false).unwrap();
    all_over_af_xdp(1);
    the_kernel_answers(1);
    lab.set_link(End::ServerClients, true).unwrap();
    all_over_af_xdp(0);
    all_over_af_xdp(1);
}
