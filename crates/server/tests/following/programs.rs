//! Programs on our interfaces: ours taken off, and those of others.

use crate::restart::{Load, end, restarted};
use crate::rig::{REFUSED, Rig, by_hand, detach};
use libbpf_rs::{MapCore, MapHandle};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testnet::lab::{Lab, Topology};
use testnet::namespace::run;
use testnet::subject::StartedBy;
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

/// The same in place of ours, which is taken off; how often that took, for the daemon may be faster with putting it back.
fn other_program_for_ours(rig: &Rig) -> (Program, u32) {
    let load = || {
        let nic = Nic::by_name("enp1s0")?;
        let mut program = Program::load()?;
        for tries in 1..=TRIES {
            detach_ours(rig);
            match program.attach(nic.index, AttachMode::Auto) {
                Ok(_) => return Ok((program, tries)),
                Err(_) => rig.is_served_over_xdp(ADDRESS, "enp1s0"),
            }
        }
        Err(xsk::Error::Invalid(format!(
            "ours was back {TRIES} times before another one could be there"
        )))
    };
    let attached = rig.lab.server().run(load);
    attached.expect("the namespace").expect("a program")
}

/// How often another program may come too late.
const TRIES: u32 = 20;

/// What `millrace xdp WORDS` prints where the daemon is.
fn xdp(rig: &Rig, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.arg("xdp").args(words).arg("--control");
    command.arg(rig.control()).stdout(Stdio::piped());
    let child = rig.lab.server().spawn(&mut command, Some(&rig.lab.bpffs()));
    let output = child.expect("millrace xdp").wait_with_output();
    String::from_utf8_lossy(&output.expect("millrace xdp to end").stdout).into_owned()
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
    let is_named = |said: &str| {
        let line = said
            .lines()
            .find(|line| line.starts_with("  program   steer, id "));
        line.is_some_and(|line| line.contains(", tag "))
    };
    for words in [&["status"][..], &["status", "--interface", "enp1s0"]] {
        let said = xdp(&rig, words);
        let line = "enp1s0: not the running millrace's: kernel sockets serve there";
        assert!(said.contains(line) && is_named(&said), "{said}");
    }
    drop(other);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert!(!xdp(&rig, &["status"]).contains("not the running millrace's"));
    assert_eq!(rig.changes("attached"), 1.0);
    rig.server.stop().expect("a good end");
}

/// It is tried again every other second, and said once.
#[test]
fn f27_what_the_start_is_refused_is_said_once() {
    let Some(lab) = Rig::lab("refused", Topology::TwoInterfaces) else {
        return;
    };
    let start = ["setpriv", "--bounding-set=-net_raw"].map(str::to_owned);
    let by = StartedBy {
        command: start.to_vec(),
        ..StartedBy::default()
    };
    let server = "newServer({address=\"198.51.100.2:53\", xdp=true})\n".to_owned();
    let mut rig = Rig::start_by(lab, &(server + &configuration()), &by);
    rig.says("CAP_NET_RAW is missing, to open AF_XDP sockets");
    rig.awaits("the queues are tried again, twice", || {
        rig.metric("millrace_helper_refused", &[]) >= 8.0
    });
    let log = rig.log();
    for interface in ["enp1s0", "enp2s0"] {
        let queues = format!("queues 0, 1 of {interface}");
        assert_eq!(log.matches(&queues).count(), 1, "{log}");
    }
    assert_eq!(rig.changes("queue-refused"), 4.0);
    // A program is on that interface, and nothing leaves by it.
    rig.says("no queue of enp2s0 could be opened");
    assert!(!log.contains("reached over AF_XDP"), "{log}");
    assert_eq!(rig.metric("millrace_server_xsk", &[]), 0.0);
    rig.is_served_by_the_kernel(ADDRESS, "enp1s0");
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
    let (other, tries) = other_program_for_ours(&rig);
    rig.says("another XDP program is there");
    rig.is_served_by_the_kernel(ADDRESS, "enp1s0");
    drop(other);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_eq!(rig.changes("program-gone"), f64::from(1 + tries));
    rig.server.stop().expect("a good end");
}

/// Somebody else's program with maps in dnsdist's layout, on the interface towards clients; where its maps are pinned. `None`:
/// there are no tools to make it.
fn dnsdist_like(lab: &Lab) -> Option<PathBuf> {
    let tools = ["clang", "bpftool"].into_iter();
    let mut missing = tools.filter(|tool| Command::new(tool).arg("--version").output().is_err());
    if let Some(tool) = missing.next() {
        println!("SKIP: somebody else's program cannot be made: {tool} is not installed");
        return None;
    }
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../xsk/tests/veth/foreign.bpf.c"
    );
    let text = |path: PathBuf| path.to_str().expect("a path in UTF-8").to_owned();
    let object = text(lab.ledger().folder().join("foreign.bpf.o"));
    let (program, maps) = (lab.bpffs().join("foreign"), lab.bpffs().join("elsewhere"));
    let (program, folder) = (text(program), text(maps.clone()));
    let compile =
        format!("-O2 -g -target bpf -I/usr/include/x86_64-linux-gnu -c {source} -o {object}");
    let load = format!("prog load {object} {program} type xdp pinmaps {folder}");
    let attach = format!("net attach xdpdrv pinned {program} dev enp1s0");
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let run_line = |tool, line: String| {
        let line = words(&line);
        run(tool, &line.iter().map(String::as_str).collect::<Vec<_>>())
    };
    run_line("clang", compile).expect("to compile");
    run_line("bpftool", load).expect("to load");
    let attached = lab.server().run(|| run_line("bpftool", attach));
    attached.expect("the namespace").expect("to attach");
    Some(maps)
}

/// Puts the pins where dnsdist's loader has them.
fn pin(lab: &Lab, maps: &Path) {
    let folder = lab.bpffs().join("dnsdist");
    fs::create_dir(&folder).expect("a folder");
    let names = [
        ("destinations_v4", "xsk-destinations-v4"),
        ("destinations_v6", "xsk-destinations-v6"),
        ("xskmap", "xskmap"),
    ];
    for (from, to) in names {
        fs::rename(maps.join(from), folder.join(to)).expect("to move a pin");
    }
}

/// The daemon with these maps, which were there first. `None`: this needs root, and tools.
fn with_anothers_maps(name: &str) -> Option<Rig> {
    let lab = Rig::lab(name, Topology::TwoInterfaces)?;
    let maps = dnsdist_like(&lab)?;
    pin(&lab, &maps);
    let rig = Rig::start_in(lab, &by_hand());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    Some(rig)
}

/// As dnsdist's own, the program loses what it takes on a queue without a socket.
#[test]
fn a_restart_with_anothers_maps_loses_no_query() {
    let Some(mut rig) = with_anothers_maps("anothers") else {
        return;
    };
    let load = Load::start(&rig, "www.example.com.");
    let process = restarted(&mut rig);
    load.end();
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    end(process);
    let map = rig.lab.bpffs().join("dnsdist/xsk-destinations-v4");
    let map = MapHandle::from_pinned_path(map).expect("the destinations");
    assert_eq!(map.keys().count(), 0, "nothing of ours is left");
}

#[test]
fn anothers_program_that_goes_is_missed_and_ours_takes_its_place() {
    let Some(mut rig) = with_anothers_maps("missed") else {
        return;
    };
    let detach = ["net", "detach", "xdpdrv", "dev", "enp1s0"];
    let detached = rig.lab.server().run(|| run("bpftool", &detach));
    detached.expect("the namespace").expect("to detach");
    rig.says("enp1s0: the program whose maps are used is there no more: kernel sockets serve");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    assert_eq!(rig.changes("program-gone"), 1.0);
    rig.server.stop().expect("a good end");
}

/// The interface has two queues.
#[test]
fn a_queue_that_no_newxsk_names_is_warned_of() {
    let Some(lab) = Rig::lab("unnamed", Topology::TwoInterfaces) else {
        return;
    };
    let Some(maps) = dnsdist_like(&lab) else {
        return;
    };
    pin(&lab, &maps);
    let first = by_hand().replace("i=0,1", "i=0,0");
    let mut rig = Rig::start_in(lab, &first);
    rig.says("enp1s0: queries that come on its queues 1 are lost");
    rig.server.stop().expect("a good end");
}

/// What takes CAP_SYS_ADMIN is done by the helper, long after the daemon has none.
#[test]
fn maps_of_somebody_elses_program_are_used_when_they_come_later() {
    let Some(lab) = Rig::lab("maps", Topology::TwoInterfaces) else {
        return;
    };
    let Some(maps) = dnsdist_like(&lab) else {
        return;
    };
    let mut rig = Rig::start_in(lab, &by_hand());
    rig.says("no AF_XDP on enp1s0, kernel sockets serve");
    rig.is_served_by_the_kernel(ADDRESS, "enp1s0");
    pin(&rig.lab, &maps);
    rig.says("AF_XDP through the maps of somebody else's program (/sys/fs/bpf/dnsdist/xskmap)");
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    // When the last queue had its socket.
    let arrival = "queries to 192.0.2.1:53 come over AF_XDP";
    rig.says(arrival);
    let log = rig.log();
    let line = log.lines().find(|line| line.contains(arrival));
    assert!(
        line.is_some_and(|line| line.contains("\"enp1s0: ")),
        "{log}"
    );
    assert_eq!(rig.changes("destinations-changed"), 1.0);
    rig.server.stop().expect("a good end");
}

/// Takes our program off, which is kept so that its link can be found.
fn detach_ours(rig: &Rig) {
    let pin = rig.lab.bpffs().join("millrace/enp1s0/link");
    rig.awaits("the link that is kept", || pin.exists());
    detach(&pin);
}
