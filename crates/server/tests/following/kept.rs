//! A kept link: the program stays on the interface from one run to the next (docs/af_xdp.md, "Kept programs").

use crate::rig::{PATIENCE, REFUSED, Rig, ask, by_hand, detach, ends};
use libbpf_rs::{MapCore, MapHandle, MapType};
use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use testnet::lab::{Lab, Topology};
use testnet::subject::{Server, StartedBy, Subject, SubjectKind};
use xsk::nic::Nic;

const ADDRESS: &str = "192.0.2.1:53";

fn configuration() -> String {
    "millrace.setKeepXDP(true)\n".to_owned() + &without_keeping()
}

fn without_keeping() -> String {
    "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED
}

/// The id of the program towards clients.
fn program(lab: &Lab) -> Option<u32> {
    let found = lab.server().run(|| {
        let nic = Nic::by_name("enp1s0")?;
        xsk::attached_program(nic.index)
    });
    found.expect("the namespace").expect("netlink")
}

/// `millrace xdp WORDS --interface enp1s0`, with no instance to ask: whether it went well, and what it said.
fn xdp(lab: &Lab, words: &[&str]) -> (bool, String) {
    xdp_of(lab, words, "enp1s0")
}

/// The same of another interface.
fn xdp_of(lab: &Lab, words: &[&str], interface: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command
        .arg("xdp")
        .args(words)
        .args(["--interface", interface])
        .args(["--control", "/nonexistent/control"])
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
    let (done, said) = xdp(&rig.lab, &["unload"]);
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
    let (done, said) = xdp(&lab, &["status"]);
    assert!(
        done && said.contains(&format!("steer, id {second}, in native mode")),
        "{said}"
    );
    assert!(said.contains("destinations"), "{said}");
    let pinned = "pinned    /sys/fs/bpf/millrace/enp1s0/link";
    assert!(said.contains(pinned), "{said}");
    let (done, said) = xdp(&lab, &["unload"]);
    assert!(done && said.contains("taken off"), "{said}");
    assert_eq!(program(&lab), None);
    let (done, said) = xdp(&lab, &["status"]);
    assert!(done && said.contains("no XDP program"), "{said}");
}

#[test]
fn a_program_loaded_by_hand_is_taken_over_and_let_go() {
    let Some(lab) = Rig::lab("byhand", Topology::TwoInterfaces) else {
        return;
    };
    let (done, said) = xdp(&lab, &["load"]);
    assert!(done && said.contains("attached in native mode"), "{said}");
    assert!(program(&lab).is_some());
    let mut rig = Rig::start_in(lab, &configuration());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    // A new interface has no link: the one that was kept is of no use.
    rig.ip("link del enp1s0\n");
    rig.says("enp1s0: the interface is gone");
    let lab = rig.stop();
    let (done, said) = xdp(&lab, &["unload"]);
    assert!(done, "{said}");
}

#[test]
fn a_start_that_keeps_nothing_takes_a_kept_program_s_place_all_the_same() {
    let Some(rig) = Rig::start("kept-once", &configuration()) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let lab = rig.stop();
    let first = program(&lab).expect("our program");
    let link = lab.bpffs().join("millrace/enp1s0/link");
    assert!(link.exists());
    let rig = Rig::start_in(lab, &without_keeping());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_ne!(program(&rig.lab), Some(first));
    assert!(!link.exists());
    let lab = rig.stop();
    assert_eq!(program(&lab), None, "it goes with its process");
}

/// newXsk names maps that nobody has pinned: what is in the way is the program of a process that lives, which stays, and the line
/// says how to take it off.
#[test]
fn a_kept_program_in_the_way_of_new_xsk_is_named_with_what_takes_it_off() {
    let Some(lab) = Rig::lab("kept-xsk", Topology::TwoInterfaces) else {
        return;
    };
    let (done, said) = xdp(&lab, &["load"]);
    assert!(done, "{said}");
    let first = program(&lab);
    // As the process does that has it.
    let folder = File::open(lab.bpffs().join("millrace/enp1s0")).expect("its folder");
    folder.try_lock().expect("nobody has it");
    let configuration = "xsk = newXsk({ifName=\"enp1s0\", NIC_queue_id=0})\n\
        addLocal(\"192.0.2.1:53\", {xskSocket=xsk})\n";
    let mut rig = Rig::start_in(lab, &(configuration.to_owned() + REFUSED));
    rig.says(
        "no AF_XDP on enp1s0, kernel sockets serve: interface enp1s0 already has an XDP program",
    );
    assert!(
        rig.log()
            .contains("`millrace xdp unload --interface enp1s0`")
    );
    assert!(rig.asks(ADDRESS, PATIENCE));
    let lab = rig.stop();
    assert_eq!(program(&lab), first);
    drop(folder);
    let (done, said) = xdp(&lab, &["unload"]);
    assert!(done, "{said}");
}

#[test]
fn a_kept_program_is_taken_over_on_an_interface_that_comes_up_later() {
    let Some(lab) = Rig::lab("kept-late", Topology::TwoInterfaces) else {
        return;
    };
    let (done, said) = xdp(&lab, &["load"]);
    assert!(done, "{said}");
    lab.server().ip("link set enp1s0 down\n").expect("ip");
    let rig = Rig::start_in(lab, &configuration());
    rig.ip("link set enp1s0 up\n");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}

#[test]
fn a_kept_program_goes_along_with_an_interface_that_is_renamed() {
    let Some(rig) = Rig::start("kept-name", &configuration()) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let lab = rig.stop();
    assert!(program(&lab).is_some());
    let rename = "link set enp1s0 down\nlink set enp1s0 name wan0\nlink set wan0 up\n";
    lab.server().ip(rename).expect("ip");
    let rig = Rig::start_in(lab, &configuration());
    rig.is_served_over_xdp(ADDRESS, "wan0");
    rig.server.stop().expect("a good end");
}

#[test]
fn a_kept_program_is_taken_off_by_the_new_name_of_its_interface() {
    let Some(lab) = Rig::lab("kept-off", Topology::TwoInterfaces) else {
        return;
    };
    let (done, said) = xdp(&lab, &["load"]);
    assert!(done, "{said}");
    let rename = "link set enp1s0 down\nlink set enp1s0 name wan0\n";
    lab.server().ip(rename).expect("ip");
    let (done, said) = xdp_of(&lab, &["unload"], "wan0");
    assert!(done && said.contains("taken off"), "{said}");
    let renamed = lab.server().run(|| {
        let nic = Nic::by_name("wan0")?;
        xsk::attached_program(nic.index)
    });
    let renamed = renamed.expect("the namespace").expect("netlink");
    assert_eq!(renamed, None);
}

/// dnsdist's maps as its reference has them, attached and pinned; the lab that they are in. `None`: this needs root.
fn loaded_for_dnsdist(name: &str) -> Option<Lab> {
    let lab = Rig::lab(name, Topology::TwoInterfaces)?;
    let (done, said) = xdp(&lab, &["load", "--dnsdist"]);
    assert!(done && said.contains("pinned in"), "{said}");
    Some(lab)
}

#[test]
fn maps_for_dnsdist_are_those_of_the_reference() {
    let Some(lab) = loaded_for_dnsdist("reference") else {
        return;
    };
    let folder = lab.bpffs().join("dnsdist");
    let facts = |pin: &str| {
        let map = MapHandle::from_pinned_path(folder.join(pin)).expect("a pinned map");
        let sizes = (map.key_size(), map.value_size(), map.max_entries());
        (map.map_type(), sizes)
    };
    assert_eq!(facts("xskmap"), (MapType::Xskmap, (4, 4, 64)));
    let v4 = facts("xsk-destinations-v4");
    assert_eq!(v4, (MapType::Hash, (8, 1, 1_024)));
    let v6 = facts("xsk-destinations-v6");
    assert_eq!(v6, (MapType::Hash, (20, 1, 1_024)));
    // What opens such maps of others takes them.
    let opened = lab.server().run(|| {
        let nic = Nic::by_name("enp1s0")?;
        let mut maps = xsk::Foreign::open(nic.index, &folder.join("xskmap"))?;
        maps.serve(ADDRESS.parse().expect("an address"))?;
        maps.serve("[2001:db8::1]:53".parse().expect("an address"))
    });
    opened.expect("the namespace").expect("dnsdist's maps");
    let (done, said) = xdp(&lab, &["status"]);
    assert!(done && said.contains("dnsdist, id "), "{said}");
    assert!(said.contains("/sys/fs/bpf/dnsdist/xskmap"), "{said}");
    let (done, said) = xdp(&lab, &["load", "--dnsdist"]);
    assert!(!done && said.contains("is there already"), "{said}");
    let (done, said) = xdp(&lab, &["unload"]);
    assert!(done && said.contains("taken off"), "{said}");
    assert_eq!(program(&lab), None);
    assert!(!folder.exists());
}

#[test]
fn maps_for_dnsdist_serve_us_too() {
    let Some(lab) = loaded_for_dnsdist("forus") else {
        return;
    };
    let mut rig = Rig::start_in(lab, &by_hand());
    rig.says("AF_XDP through the maps of somebody else's program (/sys/fs/bpf/dnsdist/xskmap)");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    // A socket map without its sockets leaves everything to the kernel.
    let helper = rig.helper();
    rig.server.end(true).expect("a killed daemon");
    ends(helper);
    kernel_sockets_get_everything(&rig);
}

/// The program goes with its link; the pins of its maps stay.
#[test]
fn pins_that_a_loader_left_are_told_of_and_our_program_serves() {
    let Some(lab) = loaded_for_dnsdist("leftpins") else {
        return;
    };
    let pin = lab.bpffs().join("millrace/enp1s0/dnsdist");
    // At once: a link whose pin is removed lets go of the interface a moment later.
    detach(&pin);
    fs::remove_file(pin).expect("its pin");
    assert_eq!(program(&lab), None);
    let mut rig = Rig::start_in(lab, &by_hand());
    rig.says("enp1s0: /sys/fs/bpf/dnsdist/xskmap is not used, for no program there has this map");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.server.stop().expect("a good end");
}

#[test]
fn maps_for_dnsdist_serve_dnsdist() {
    let Some(program) = dnsdist_with_af_xdp() else {
        println!("SKIP: DNSDIST names no dnsdist of 1.9 or newer");
        return;
    };
    let Some(lab) = loaded_for_dnsdist("theirs") else {
        return;
    };
    let subject = Subject {
        kind: SubjectKind::Dnsdist,
        program,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (configuration, by) = (by_hand(), StartedBy::default());
    let started = Server::start(&subject, &lab, (configuration.as_str(), &by), folder.path());
    let mut server = started.expect("dnsdist to start");
    let map = lab.bpffs().join("dnsdist/xsk-destinations-v4");
    let map = MapHandle::from_pinned_path(map).expect("the destinations");
    let served: [u8; 8] = [192, 0, 2, 1, 0, 53, 0, 0];
    server
        .until(PATIENCE, "dnsdist's destinations", || {
            Ok(map.keys().any(|key| key == served))
        })
        .expect("dnsdist to serve");
    assert!(ask(&lab.client(), ADDRESS, PATIENCE));
    server.end(false).expect("a good end");
    let (done, said) = xdp(&lab, &["unload"]);
    assert!(done, "{said}");
}

/// The program that `DNSDIST` names, if that is one which knows AF_XDP.
fn dnsdist_with_af_xdp() -> Option<PathBuf> {
    let named = PathBuf::from(std::env::var_os("DNSDIST")?);
    let output = Command::new(&named).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = said.strip_prefix("dnsdist ")?.split(['.', ' ']);
    let major: u32 = numbers.next()?.parse().ok()?;
    let minor: u32 = numbers.next()?.parse().ok()?;
    ((major, minor) >= (1, 9)).then_some(named)
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
