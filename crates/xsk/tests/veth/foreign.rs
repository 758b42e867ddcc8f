//! Maps that another loader has pinned in dnsdist's layout.

use std::fs;
use std::path::{Path as File, PathBuf};
use std::process::Command;
use std::time::Duration;

use testnet::lab::{Lab, SERVER_CLIENTS};
use testnet::namespace::run;
use xsk::nic::Nic;
use xsk::{Error, Foreign, Socket, Umem, UmemOptions};

use crate::lab::{COPY, Client, Echo, PATIENCE, Path, RINGS, SERVED, Witness, inside, lab, until};

/// Where the tools are that another loader would have, or a line that says which is missing.
fn has_tools() -> bool {
    let missing = ["clang", "bpftool"]
        .into_iter()
        .find(|tool| Command::new(tool).arg("--version").output().is_err());
    if let Some(tool) = missing {
        println!("SKIP: somebody else's program cannot be made: {tool} is not installed");
    }
    missing.is_none()
}

/// Loads the stand-in and pins its maps where dnsdist's loader would, under the lab's own bpffs.
fn pin(lab: &Lab) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/veth/foreign.bpf.c");
    let object = lab.ledger().folder().join("foreign.bpf.o");
    let folder = lab.bpffs().join("dnsdist");
    let text = |path: &File| path.to_str().unwrap().to_owned();
    let clang = [
        "-O2",
        "-g",
        "-target",
        "bpf",
        "-I/usr/include/x86_64-linux-gnu",
        "-c",
        source,
        "-o",
    ];
    run("clang", &[&clang[..], &[&text(&object)]].concat()).unwrap();
    let (program, maps) = (text(&lab.bpffs().join("foreign")), text(&folder));
    run(
        "bpftool",
        &[
            "prog",
            "load",
            &text(&object),
            &program,
            "type",
            "xdp",
            "pinmaps",
            &maps,
        ],
    )
    .unwrap();
    for version in ["v4", "v6"] {
        let from = folder.join(format!("destinations_{version}"));
        fs::rename(from, folder.join(format!("xsk-destinations-{version}"))).unwrap();
    }
    folder.join("xskmap")
}

fn attach(lab: &Lab) {
    let program = lab.bpffs().join("foreign");
    let program = program.to_str().unwrap();
    let arguments = [
        "net",
        "attach",
        "xdpdrv",
        "pinned",
        program,
        "dev",
        SERVER_CLIENTS,
    ];
    inside(&lab.server(), || run("bpftool", &arguments)).unwrap();
}

/// Entries of a pinned map: with BTF bpftool prints each twice, once formatted.
fn entries(map: &File) -> usize {
    let output = Command::new("bpftool")
        .args(["-j", "map", "dump", "pinned"])
        .arg(map)
        .output();
    String::from_utf8(output.unwrap().stdout)
        .unwrap()
        .matches("formatted")
        .count()
}

#[test]
fn pinned_maps_that_the_attached_program_does_not_use_are_refused() {
    let Some(lab) = lab("stale").filter(|_| has_tools()) else {
        return;
    };
    let map = pin(&lab);
    let index = inside(&lab.server(), || Nic::by_name(SERVER_CLIENTS))
        .unwrap()
        .index;
    let open = || inside(&lab.server(), || Foreign::open(index, &map).map(drop));
    let without = open().unwrap_err();
    assert!(matches!(without, Error::StaleMaps { .. }), "{without}");
    let _echo = inside(&lab.server(), || {
        Echo::start(SERVER_CLIENTS, xsk::AttachMode::Native)
    });
    let other = open().unwrap_err();
    assert!(
        matches!(other, Error::StaleMaps { .. }) && without.to_string() != other.to_string(),
        "{other}"
    );
}

#[test]
fn a_program_that_somebody_takes_off_is_missed() {
    let Some(lab) = lab("missed").filter(|_| has_tools()) else {
        return;
    };
    let map = pin(&lab);
    attach(&lab);
    let index = inside(&lab.server(), || Nic::by_name(SERVER_CLIENTS))
        .unwrap()
        .index;
    let foreign = inside(&lab.server(), || Foreign::open(index, &map))
        .unwrap_or_else(|error| panic!("{error}"));
    let is_attached = || inside(&lab.server(), || foreign.is_attached());
    assert!(is_attached());
    let detach = ["net", "detach", "xdpdrv", "dev", SERVER_CLIENTS];
    inside(&lab.server(), || run("bpftool", &detach)).unwrap();
    assert!(!is_attached(), "it is off");
    let _echo = inside(&lab.server(), || {
        Echo::start(SERVER_CLIENTS, xsk::AttachMode::Native)
    });
    assert!(!is_attached(), "another one is there");
    lab.server()
        .ip(&format!("link del {SERVER_CLIENTS}\n"))
        .unwrap();
    assert!(!is_attached(), "the device is gone");
}

#[test]
fn pinned_maps_of_the_attached_program_are_used_and_left_as_they_were() {
    let Some(lab) = lab("foreign").filter(|_| has_tools()) else {
        return;
    };
    let map = pin(&lab);
    attach(&lab);
    let folder = map.parent().unwrap();
    let ours_and_theirs = |count| {
        assert_eq!(entries(&folder.join("xsk-destinations-v4")), count + 1);
        assert_eq!(entries(&folder.join("xsk-destinations-v6")), count);
    };
    // 203.0.113.1:53, which somebody else serves.
    let theirs = "203 0 113 1 0 53 0 0".split(' ');
    let path = folder.join("xsk-destinations-v4");
    let head = ["map", "update", "pinned", path.to_str().unwrap(), "key"];
    let update: Vec<&str> = head
        .into_iter()
        .chain(theirs)
        .chain(["value", "1"])
        .collect();
    run("bpftool", &update).unwrap();

    let _witness = Witness::start(&lab.server(), &SERVED);
    let index = inside(&lab.server(), || Nic::by_name(SERVER_CLIENTS))
        .unwrap()
        .index;
    let mut foreign = inside(&lab.server(), || Foreign::open(index, &map))
        .unwrap_or_else(|error| panic!("{error}"));
    let mut umem = Umem::new(RINGS.frames(), UmemOptions::default()).unwrap();
    let mut socket = inside(&lab.server(), || Socket::bind(&mut umem, index, 0, COPY)).unwrap();
    foreign.enter(0, &socket).unwrap();
    for served in SERVED {
        foreign.serve(served.parse().unwrap()).unwrap();
    }
    ours_and_theirs(1);
    let mut batch = xsk::Batch::new();
    for version in 0..2 {
        let mut client = Client::new(&lab, version);
        client.send();
        until("an answer over AF_XDP", || {
            crate::lab::turn(&mut umem, &mut socket, &mut batch);
            client
                .receive(Duration::ZERO)
                .is_some_and(|(_, path)| path == Path::Xsk)
        });
    }
    drop(foreign);
    ours_and_theirs(0);
    drop(socket);
    let mut client = Client::new(&lab, 0);
    assert_eq!(
        client.ask(PATIENCE),
        Some(Path::Kernel),
        "nothing of ours is left in the maps"
    );
}
