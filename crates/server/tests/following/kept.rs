//! A kept link: the program stays on the interface from one run to the next (design.md, "Two lifetimes").

use crate::rig::{PATIENCE, REFUSED, Rig, ends};
use std::net::UdpSocket;
use std::process::Command;
use testnet::lab::Lab;
use xsk::nic::Nic;

const ADDRESS: &str = "192.0.2.1:53";

fn configuration() -> String {
    "millrace.setKeepXDP(true)\naddLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED
}

/// The id of the program towards clients.
fn program(lab: &Lab) -> Option<u32> {
    let found = lab.server().run(|| {
        let nic = Nic::by_name("enp1s0")?;
        xsk::attached_program(nic.index)
    });
    found.expect("the namespace").expect("netlink")
}

/// `millrace xdp WORD --interface enp1s0`: whether it went well, and what it said.
fn xdp(lab: &Lab, word: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command
        .args(["xdp", word, "--interface", "enp1s0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = lab.server().spawn(&mut command, Some(&lab.bpffs()));
    let output = child.expect("millrace xdp").wait_with_output();
    let output = output.expect("millrace xdp to end");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

#[test]
fn a_kept_program_stays_and_the_next_start_takes_its_place() {
    let Some(mut rig) = Rig::start("kept", &configuration()) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let first = program(&rig.lab).expect("our program");
    let (done, said) = xdp(&rig.lab, "unload");
    assert!(
        !done && said.contains("belongs to another millrace"),
        "{said}"
    );
    let helper = rig.helper();
    rig.server.end(true).expect("a killed daemon");
    ends(helper);
    assert_eq!(program(&rig.lab), Some(first));
    kernel_sockets_get_everything(&rig);
    let rig = rig.again(&configuration());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let second = program(&rig.lab).expect("our program");
    assert_ne!(first, second);
    let lab = rig.stop();
    assert_eq!(program(&lab), Some(second));
    let (done, said) = xdp(&lab, "unload");
    assert!(done && said.contains("taken off"), "{said}");
    assert_eq!(program(&lab), None);
}

#[test]
fn a_program_loaded_by_hand_is_taken_over_and_let_go() {
    let Some(lab) = Rig::lab("byhand", testnet::lab::Topology::TwoInterfaces) else {
        return;
    };
    let (done, said) = xdp(&lab, "load");
    assert!(done && said.contains("attached in Native mode"), "{said}");
    assert!(program(&lab).is_some());
    let mut rig = Rig::start_in(lab, &configuration());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    // A new interface has no link: the one that was kept is of no use.
    rig.ip("link del enp1s0\n");
    rig.says("enp1s0: the interface is gone");
    let lab = rig.stop();
    let (done, said) = xdp(&lab, "unload");
    assert!(done, "{said}");
}

/// Without its daemon the program passes what it took: another server on the address is asked.
fn kernel_sockets_get_everything(rig: &Rig) {
    let server = rig.lab.server();
    let bind = || testnet::namespace::bind_when_free(|| UdpSocket::bind(ADDRESS));
    let socket = server.run(bind).expect("the namespace").expect("a socket");
    let answering = std::thread::spawn(move || {
        let mut query = [0; 512];
        let (length, client) = socket.recv_from(&mut query).expect("a query");
        socket.send_to(&query[..length], client).expect("an answer");
    });
    assert!(rig.asks(ADDRESS, PATIENCE));
    answering.join().expect("one query");
}
