//! Privileges are given away for good and by the first thread: each case runs as a process of its own.

use caps::{CapSet, Capability, CapsHashSet};
use millrace::network::privileges::{Dropped, PrivilegeError, Wish, drop_privileges};
use nix::unistd::{Gid, Uid};
use std::process::Command;

/// Names the case that a process is for.
const CASE: &str = "MILLRACE_TEST_CASE";

/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

type Case = (&'static str, fn());

const CASES: [Case; 5] = [
    (
        "everything goes but what was asked for",
        everything_goes_but_what_was_asked_for,
    ),
    (
        "root without capabilities stays root",
        root_without_capabilities_stays_root,
    ),
    (
        "a thread that keeps more is noticed",
        a_thread_that_keeps_more_is_noticed,
    ),
    ("names that do not exist", names_that_do_not_exist),
    (
        "the kernel program's maps stay ours",
        the_kernel_programs_maps_stay_ours,
    ),
];

fn main() {
    if let Ok(name) = std::env::var(CASE) {
        let case = CASES.iter().find(|(known, _)| *known == name);
        return case.expect("a case of this test").1();
    }
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: only root has privileges to give away");
        return;
    }
    let program = std::env::current_exe().expect("the path of this test");
    for (name, _) in CASES {
        let status = Command::new(&program)
            .env(CASE, name)
            .status()
            .expect("this test as another process");
        assert!(status.success(), "{name}: {status}");
        println!("test {name} ... ok");
    }
}

fn read(set: CapSet) -> CapsHashSet {
    caps::read(None, set).expect("capabilities")
}

fn everything_goes_but_what_was_asked_for() {
    let retain = [Capability::CAP_NET_RAW];
    let wish = Wish {
        user: Some("nobody"),
        group: Some("65534"),
        retain: &retain,
        xdp: false,
    };
    let dropped = drop_privileges(&wish).expect("privileges to give away");
    assert_eq!(
        dropped,
        Dropped {
            kept: vec!["CAP_NET_RAW".to_owned()],
            warnings: vec![]
        }
    );
    let kept = CapsHashSet::from([Capability::CAP_NET_RAW]);
    for set in [CapSet::Permitted, CapSet::Effective, CapSet::Bounding] {
        assert_eq!(read(set), kept, "{set:?}");
    }
    assert_eq!(nix::unistd::getuid(), Uid::from_raw(NOBODY));
    assert_eq!(nix::unistd::getgid(), Gid::from_raw(NOBODY));
    assert_eq!(nix::unistd::getgroups(), Ok(vec![]));
    assert_eq!(nix::sys::prctl::get_no_new_privs(), Ok(true));
    let thread = std::thread::spawn(move || assert_eq!(read(CapSet::Permitted), kept));
    thread.join().expect("a new thread has no more");
    assert!(nix::unistd::setuid(Uid::from_raw(0)).is_err());
}

fn root_without_capabilities_stays_root() {
    let dropped = drop_privileges(&Wish::default()).expect("privileges to give away");
    assert_eq!(dropped, Dropped::default());
    assert!(read(CapSet::Permitted).is_empty() && nix::unistd::getuid().is_root());
    let retain = [Capability::CAP_SYS_ADMIN];
    let again = drop_privileges(&Wish {
        retain: &retain,
        ..Wish::default()
    });
    let warnings = again.expect("nothing left to give away").warnings;
    assert_eq!(
        warnings,
        ["CAP_SYS_ADMIN was to be kept, but this process never had it"]
    );
}

fn a_thread_that_keeps_more_is_noticed() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    let error = drop_privileges(&Wish::default()).expect_err("a thread that was there before");
    assert!(
        matches!(&error, PrivilegeError::Threads(threads) if threads.len() == 1),
        "{error}"
    );
    drop(stop);
    assert!(thread.join().expect("a thread").is_err());
}

fn names_that_do_not_exist() {
    let error = |wish: Wish<'_>| {
        drop_privileges(&wish)
            .expect_err("a wrong name")
            .to_string()
    };
    let wish = Wish {
        group: Some("no-such-group"),
        ..Wish::default()
    };
    assert!(error(wish).starts_with("there is no group no-such-group"));
}

/// Stopping takes queues and destinations out of the maps, long after everything was given away.
fn the_kernel_programs_maps_stay_ours() {
    let mut program = match xsk::Program::load() {
        Ok(program) => program,
        Err(error) => return println!("SKIP: {error}"),
    };
    let wish = Wish {
        user: Some("nobody"),
        xdp: true,
        ..Wish::default()
    };
    drop_privileges(&wish).expect("privileges to give away");
    let served = "192.0.2.1:53".parse().expect("an address");
    program.serve(served).expect("an entry made");
    program.unserve(served).expect("an entry removed");
    program.leave(0).expect("a queue without a socket");
}
