//! F34: a zone without end does not take the memory that there is.

use crate::daemon::{Millrace, asked};
use crate::faults::{good, mark, zone};
use crate::primary::{Deed, Primary, Script, Then, records};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testnet::loopback::own_port;

/// Octets that the daemon may take: of a debug build as of another one some tens of millions are taken before.
const MOST: u64 = 200 << 20;

/// A memory cgroup, removed when it is dropped and empty.
struct Cgroup(PathBuf);

impl Cgroup {
    fn make(name: &str) -> Option<Cgroup> {
        let root = Path::new("/sys/fs/cgroup");
        let places = [
            (root.join("memory").join(name), "memory.limit_in_bytes"),
            (root.join(name), "memory.max"),
        ];
        for (folder, limit) in places {
            let made = fs::create_dir(&folder);
            if fs::write(folder.join(limit), MOST.to_string()).is_ok() {
                return Some(Cgroup(folder));
            }
            if made.is_ok() {
                let _ = fs::remove_dir(&folder);
            }
        }
        None
    }

    /// Words that start a program in it.
    fn words(&self) -> Vec<String> {
        let script = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", self.0.display());
        ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Whoever was in it may be on the way out.
        let began = Instant::now();
        while fs::remove_dir(&self.0).is_err() && began.elapsed() < Duration::from_secs(5) {
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

#[test]
fn f34_a_zone_without_end_is_given_up_before_memory_is_gone_and_the_old_one_serves() {
    let Some(cgroup) = Cgroup::make("millrace-endless") else {
        println!("SKIP: no memory cgroup can be made, so no limit is near");
        return;
    };
    let primary = Primary::start(good(5));
    let options = format!("primaries='127.0.0.1:{}'", primary.port);
    let ours = Millrace::start_with(own_port(), &options, |_| cgroup.words());
    ours.until_serial(5);
    let many: String = (0..1_000)
        .map(|number| format!("h{number} 300 A 10.0.0.7\n"))
        .collect();
    let axfr = Deed::Send(vec![zone(6), mark(6), records(&many)], Then::Endless);
    primary.follow(Script { axfr, ..good(6) });
    let said = ours.command(&["zone", "reload"]);
    for part in [
        "more than there is memory for: ",
        " and of the 209.7 MB that /sys/fs/cgroup/",
        "by a maxSize below 4295.0 MB",
    ] {
        assert!(said.contains(part), "{said}\n{}", ours.log());
    }
    assert_eq!(asked(ours.port), Some(5), "{}", ours.log());
    // It is whole as before: what came was given back.
    primary.follow(good(6));
    let said = ours.command(&["zone", "reload"]);
    assert!(said.contains("serial 6 came by AXFR"), "{said}");
    println!("{}", ours.log());
    drop(ours);
}
