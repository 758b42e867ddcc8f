//! F37: whatever the disk does, no corrupt zone is served, and after a crash a committed serial is.

use crate::daemon::{Millrace, asked, until};
use crate::faults::{good, has_mark};
use crate::primary::{Deed, Primary, Script};
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use testnet::loopback::own_port;
use wire::codes::rcode;
use zone::transfer::query;

fn secondary_of(primary: &Primary) -> String {
    // A journal that is soon too long, so that it is shortened, too.
    format!("primaries='127.0.0.1:{}', journalSize=2000", primary.port)
}

/// The primary has this serial, and knows what changed.
fn at(serial: u32) -> Script {
    Script {
        ixfr: Deed::Changes,
        ..good(serial)
    }
}

fn assert_serves(ours: &Millrace, serial: u32) {
    ours.until_serial(serial);
    assert!(has_mark(ours.port, serial), "{}", ours.log());
    assert!(!has_mark(ours.port, serial + 1));
}

/// A small tmpfs in a mount namespace of its own, which ends with this.
struct Disk {
    holder: Child,
    path: PathBuf,
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Disk {
    /// `None` without the privilege to mount.
    fn mount(path: &Path) -> Option<Disk> {
        fs::create_dir(path).unwrap();
        let script = "mount -t tmpfs -o size=96k tmpfs \"$0\" && exec cat";
        let holder = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(path)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut disk = Disk {
            holder,
            path: path.to_owned(),
        };
        until(
            || disk.is_mounted() || disk.holder_has_ended(),
            || "the tmpfs is not mounted".to_owned(),
        );
        disk.holder.try_wait().unwrap().is_none().then_some(disk)
    }

    fn holder_has_ended(&self) -> bool {
        let state = fs::read_to_string(format!("/proc/{}/stat", self.holder.id()));
        state.map_or(true, |state| state.contains(") Z "))
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string(format!("/proc/{}/mounts", self.holder.id()));
        let wanted = format!("tmpfs {} tmpfs", self.path.display());
        mounts.is_ok_and(|mounts| mounts.contains(&wanted))
    }

    /// Words that start a program where the disk is seen.
    fn words(&self) -> Vec<String> {
        let holder = self.holder.id().to_string();
        ["nsenter", "--target", &holder, "--mount"]
            .map(str::to_owned)
            .to_vec()
    }

    fn remount(&self, how: &str) {
        let words = self.words();
        let done = Command::new(&words[0])
            .args(&words[1..])
            .args(["mount", "-o", how])
            .arg(&self.path)
            .status();
        assert!(done.unwrap().success());
    }

    /// A file that takes all the room there is.
    fn ballast(&self) -> PathBuf {
        let root = format!("/proc/{}/root{}", self.holder.id(), self.path.display());
        Path::new(&root).join("ballast")
    }

    fn fill(&self) {
        let mut file = File::create(self.ballast()).unwrap();
        while file.write_all(&[0; 1_024]).is_ok() {}
    }
}

#[test]
fn f37_a_disk_that_is_full_or_read_only_costs_what_comes_meanwhile_and_no_more() {
    let primary = Primary::start(at(5));
    let mut disk = None;
    let mut ours = Millrace::start_with(own_port(), &secondary_of(&primary), |folder| {
        disk = Disk::mount(&folder.join("state"));
        disk.as_ref().map(Disk::words).unwrap_or_default()
    });
    let Some(disk) = disk else {
        println!("SKIP: no tmpfs can be mounted, so no disk is full");
        return;
    };
    ours.until_serial(5);
    for (serial, reason) in [(6, "No space left on device"), (8, "Read-only file system")] {
        let kept = serial - 1;
        match serial {
            6 => disk.fill(),
            _ => disk.remount("remount,ro"),
        }
        for newer in [serial, serial + 1] {
            primary.follow(at(newer));
            let said = ours.command(&["zone", "reload"]);
            assert!(said.contains("came by IXFR"), "{said}");
            assert_serves(&ours, newer);
        }
        ours.until_said(reason);
        ours.until_said(&format!("after a restart serial {kept} serves"));
        ours.restart();
        assert_serves(&ours, kept);
        match serial {
            6 => fs::remove_file(disk.ballast()).unwrap(),
            _ => disk.remount("remount,rw"),
        }
        let said = ours.command(&["zone", "reload"]);
        assert!(said.contains("came by IXFR"), "{said}");
        ours.restart();
        assert_serves(&ours, serial + 1);
    }
}

#[test]
fn f37_a_disk_that_is_full_before_anything_is_kept_costs_the_zone_at_a_restart() {
    let primary = Primary::start(at(5));
    let mut disk = None;
    let mut ours = Millrace::start_with(own_port(), &secondary_of(&primary), |folder| {
        disk = Disk::mount(&folder.join("state"));
        disk.iter().for_each(Disk::fill);
        disk.as_ref().map(Disk::words).unwrap_or_default()
    });
    if disk.is_none() {
        println!("SKIP: no tmpfs can be mounted, so no disk is full");
        return;
    }
    assert_serves(&ours, 5);
    ours.until_said("after a restart the zone is answered with SERVFAIL until a primary sends it");
    // Nobody sends it.
    let axfr = Deed::Code(rcode::REFUSED);
    primary.follow(Script { axfr, ..at(5) });
    ours.restart();
    ours.until_said("was not refreshed");
    assert_eq!(asked(ours.port), None);
}

#[test]
fn f37_an_fsync_that_fails_is_no_commit_and_the_next_version_is_written_whole() {
    let primary = Primary::start(at(5));
    let mut is_built = false;
    let mut ours = Millrace::start_with(own_port(), &secondary_of(&primary), |folder| {
        let library = folder.join("fsync.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transfers/fsync.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(source)
            .status();
        is_built = built.is_ok_and(|status| status.success());
        let preload = format!("LD_PRELOAD={}", library.display());
        let fails = format!("FSYNC_FAILS={}", folder.join("fails").display());
        if is_built {
            vec!["env".to_owned(), preload, fails]
        } else {
            Vec::new()
        }
    });
    if !is_built {
        println!("SKIP: cc is not installed, so no fsync fails");
        return;
    }
    ours.until_serial(5);
    let fails = ours.folder.path().join("fails");
    fs::write(&fails, "").unwrap();
    primary.follow(at(6));
    let said = ours.command(&["zone", "reload"]);
    assert!(said.contains("came by IXFR"), "{said}");
    assert_serves(&ours, 6);
    ours.until_said("Input/output error");
    fs::remove_file(&fails).unwrap();
    primary.follow(at(7));
    ours.command(&["zone", "reload"]);
    assert_serves(&ours, 7);
    let journal = ours.folder.path().join("state/example.com.journal");
    assert!(!journal.exists(), "nobody knows what of it is on the disk");
    ours.restart();
    assert_serves(&ours, 7);
}

/// Says so when it is dropped.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// How often the daemon is killed.
const KILLS: u32 = 10;

#[test]
fn f37_what_was_served_before_a_kill_is_served_after_it() {
    let primary = Primary::start(at(5));
    let mut ours = Millrace::start(own_port(), &secondary_of(&primary));
    ours.until_serial(5);
    let (serial, is_over) = (AtomicU32::new(5), AtomicBool::new(false));
    let port = ours.port;
    thread::scope(|scope| {
        scope.spawn(|| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let notify = query::notify(3, crate::primary::apex().as_name(), None);
            while !is_over.load(SeqCst) {
                primary.follow(at(serial.fetch_add(1, SeqCst) + 1));
                // While it is dead nobody listens.
                let _ = socket.send_to(&notify, (Ipv4Addr::LOCALHOST, port));
                // tidy: a primary whose zone changes often.
                thread::sleep(Duration::from_millis(3));
            }
        });
        // Also when something fails, else that thread goes on.
        let _over = Over(&is_over);
        for _ in 0..KILLS {
            let before = asked(port).unwrap_or_default();
            until(|| asked(port) > Some(before + 3), || ours.log());
            let seen = asked(port);
            ours.restart();
            until(|| asked(port).is_some(), || ours.log());
            assert!(asked(port) >= seen, "{seen:?} was served\n{}", ours.log());
        }
    });
    let last = serial.load(SeqCst);
    primary.follow(at(last));
    ours.command(&["zone", "reload"]);
    assert_serves(&ours, last);
    let log = ours.log();
    assert!(!log.contains("cannot be used"), "{log}");
}

#[test]
fn f37_a_damaged_journal_is_told_with_what_it_loses() {
    let primary = Primary::start(at(5));
    let zone = format!("primaries='127.0.0.1:{}'", primary.port);
    let mut ours = Millrace::start(own_port(), &zone);
    ours.until_serial(5);
    for serial in 6..9 {
        primary.follow(at(serial));
        ours.command(&["zone", "reload"]);
        assert_serves(&ours, serial);
    }
    ours.kill();
    let journal = ours.folder.path().join("state/example.com.journal");
    let mut octets = fs::read(&journal).unwrap();
    // In the second of three entries.
    let middle = octets.len() / 2;
    octets[middle] ^= 1;
    fs::write(&journal, octets).unwrap();
    // Nobody has what is newer.
    primary.follow(at(6));
    ours.restart();
    assert_serves(&ours, 6);
    ours.until_said("example.com.journal: damaged at octet ");
    ours.until_said("the changes behind serial 6 are discarded, up to serial 8 as far as can be");
}

#[test]
fn f37_a_crash_before_the_first_facts_leaves_a_zone_that_serves() {
    let primary = Primary::start(at(5));
    let mut ours = Millrace::start(own_port(), &secondary_of(&primary));
    ours.until_serial(5);
    ours.kill();
    fs::remove_file(ours.folder.path().join("state/example.com.facts")).unwrap();
    // Nobody confirms what is kept.
    primary.follow(at(4));
    ours.restart();
    assert_serves(&ours, 5);
}

#[test]
fn two_processes_share_a_state_directory_and_one_of_them_writes() {
    let primary = Primary::start(at(5));
    let mut older = Millrace::start(own_port(), &secondary_of(&primary));
    older.until_serial(5);
    let state = older.folder.path().join("state");
    let mut newer = Millrace::start_with(own_port(), &secondary_of(&primary), |folder| {
        symlink(&state, folder.join("state")).unwrap();
        Vec::new()
    });
    newer.until_serial(5);
    newer.until_said("another process keeps its zones there");
    primary.follow(at(6));
    older.command(&["zone", "reload"]);
    assert_serves(&older, 6);
    assert_serves(&newer, 5);
    older.kill();
    // What the other one kept last: nobody was asked.
    assert_serves(&newer, 6);
    primary.follow(at(7));
    newer.command(&["zone", "reload"]);
    newer.restart();
    assert_serves(&newer, 7);
}
