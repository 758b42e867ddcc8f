//! Programs on our interfaces: ours taken off, and those of others.

use crate::rig::{REFUSED, Rig};
use libbpf_rs::Link;
use testnet::lab::Topology;
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
    let kept = "millrace.setKeepXDP(true)\n".to_owned() + &configuration();
    let Some(mut rig) = Rig::start("taken", &kept) else {
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

/// Takes our program off as an operator would, by its link, which is kept so that it can be found.
fn detach_ours(rig: &Rig) {
    let pin = rig.lab.bpffs().join("millrace/enp1s0/link");
    let link = Link::open(pin).expect("the link that is kept");
    link.detach().expect("to detach it");
}
