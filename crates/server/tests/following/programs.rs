//! Programs on our interfaces: ours taken off, and those of others.

use crate::rig::{REFUSED, Rig};
use std::process::Command;
use testnet::lab::Topology;
use testnet::namespace::run;
use xsk::nic::Nic;
use xsk::{AttachMode, Program};

const ADDRESS: &str = "192.0.2.1:53";

fn configuration() -> String {
    "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED
}

/// Somebody else's program, which passes everything.
fn other_program(lab: &testnet::lab::Lab) -> Program {
    let attached = lab.server().run(|| {
        let nic = Nic::by_name("enp1s0")?;
        let mut program = Program::load()?;
        program.attach(nic.index, AttachMode::Auto)?;
        Ok::<_, xsk::Error>(program)
    });
    attached.expect("the namespace").expect("a program")
}

#[test]
fn a_program_that_was_there_first_is_left_alone_until_it_goes() {
    let Some(lab) = Rig::lab("first", Topology::TwoInterfaces) else {
        return;
    };
    let other = other_program(&lab);
    let mut rig = Rig::start_in(lab, &configuration());
    rig.says("no AF_XDP on enp1s0, kernel sockets serve");
    rig.is_served_by_the_kernel(ADDRESS, "enp1s0");
    assert!(other.is_attached());
    drop(other);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_eq!(rig.changes("attached"), 1.0);
    rig.server.stop().expect("a good end");
}

#[test]
fn ours_taken_off_comes_back_and_anothers_is_left_alone() {
    let Some(mut rig) = Rig::start("taken", &configuration()) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    detach_ours(&rig);
    rig.is_served_by_the_kernel(ADDRESS, "enp1s0");
    rig.says("enp1s0: our program was taken off it: kernel sockets serve");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    detach_ours(&rig);
    let other = other_program(&rig.lab);
    rig.says("another XDP program is there");
    rig.is_served_by_the_kernel(ADDRESS, "enp1s0");
    drop(other);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_eq!(rig.changes("program-gone"), 2.0);
    rig.server.stop().expect("a good end");
}

/// Takes our program off as an operator would: by the number of its link.
fn detach_ours(rig: &Rig) {
    let detached = rig.lab.server().run(|| {
        let nic = Nic::by_name("enp1s0").expect("the interface");
        let program = xsk::attached_program(nic.index).expect("netlink");
        let links = Command::new("bpftool").args(["link", "show"]).output();
        let links = String::from_utf8_lossy(&links.expect("bpftool").stdout).into_owned();
        let ours = format!("prog {} ", program.expect("our program"));
        let line = links
            .lines()
            .find(|line| format!("{line} ").contains(&ours));
        let line = line.unwrap_or_else(|| panic!("no link of {ours}in\n{links}"));
        let number = line.split(':').next().expect("a number");
        run("bpftool", &["link", "detach", "id", number])
    });
    detached
        .expect("the namespace")
        .expect("bpftool link detach");
}
