//! F36: a reload that cannot be leaves the old configuration serving, says why where it was asked for, and the next good one goes
//! well.

use crate::rig::{REFUSED, Rig, ends};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;

const ADDRESS: &str = "192.0.2.1:53";
const OTHER: &str = "192.0.2.1:5353";
const SERVICE: &str = "192.0.2.1:8099";

fn configuration(more: &str) -> String {
    format!("addLocal(\"{ADDRESS}\", {{xdp=true}})\n{more}{REFUSED}")
}

/// I8: no reload loses what serves.
#[test]
fn f36_a_bad_reload_changes_nothing_and_says_why() {
    let Some(mut rig) = Rig::start("badreload", &configuration("")) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let server = rig.lab.server();
    let taken = server.run(|| UdpSocket::bind(OTHER));
    let taken = taken.expect("the namespace").expect("a socket");
    let in_use = format!("addLocal(\"{OTHER}\")\n");
    let listening = server.run(|| TcpListener::bind(SERVICE));
    let listening = listening.expect("the namespace").expect("a socket");
    let web_in_use = format!("webserver(\"{SERVICE}\")\n");
    let console_in_use = format!("controlSocket(\"{SERVICE}\")\n");
    for (bad, reason) in [
        ("addAction(AllRule(\n", "')' expected"),
        (
            "newServer(\"no-such-backend.invalid.:53\")\n",
            "no-such-backend.invalid.",
        ),
        ("getServer(7):setDown()\n", "attempt to index a nil value"),
        // Its certificate is not there; nor is TLS.
        (
            "addTLSLocal(\"192.0.2.1:853\", \"missing.pem\", \"missing.key\")\n",
            "addTLSLocal is not in millrace yet",
        ),
        (
            &in_use,
            "cannot serve 192.0.2.1:5353: Address already in use",
        ),
        (
            &web_in_use,
            "web server: cannot listen on 192.0.2.1:8099: Address already in use",
        ),
        (
            &console_in_use,
            "console: cannot listen on 192.0.2.1:8099: Address already in use",
        ),
    ] {
        rig.write(&configuration(bad));
        let output = rig.asks_for("reload");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{bad}: {said}");
        assert!(said.contains(reason), "{bad}: {said}");
        rig.says("the configuration was not reloaded, the old one serves on");
        rig.is_served_over_xdp(ADDRESS, "enp1s0");
    }
    drop((taken, listening));
    rig.write(&configuration(&[in_use, console_in_use].concat()));
    let output = rig.asks_for("reload");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("configuration 2 serves"), "{said}");
    rig.is_served_again(OTHER);
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let connected = rig.lab.server().run(|| TcpStream::connect(SERVICE));
    connected.expect("the namespace").expect("the console");
    rig.server.stop().expect("a good end");
}

/// A file that is never read to its end, for its first line waits for a pipe: SIGTERM ends the daemon all the same.
#[test]
fn f36_a_reload_that_does_not_end_does_not_keep_the_daemon_from_its_end() {
    let Some(rig) = Rig::start("endless", &configuration("")) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
    let waits = format!("io.open(\"{}\"):read()\n", pipe.display());
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    rig.write(&configuration(&waits));
    rig.server.signal(Signal::SIGHUP).expect("to signal");
    let mut options = File::options();
    // Refused until somebody reads (fifo(7)).
    options.write(true).custom_flags(libc::O_NONBLOCK);
    let mut end = None;
    rig.awaits("the file to be read", || {
        end = options.open(&pipe).ok();
        end.is_some()
    });
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let daemon = rig.daemon();
    rig.server.signal(Signal::SIGTERM).expect("to signal");
    ends(daemon);
    assert!(
        rig.log().contains("the control thread hangs"),
        "{}",
        rig.log()
    );
    drop(end);
}

/// How many threads the asynchronous runtime has, those included that wait for files for it.
fn threads(rig: &Rig) -> usize {
    let threads = fs::read_dir(format!("/proc/{}/task", rig.daemon())).expect("its threads");
    let names = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|name| name.trim() == "runtime").count()
}

#[test]
fn threads_are_taken_at_start_and_a_reload_says_so() {
    let many = configuration("setMaxTCPClientThreads(40)\n");
    let Some(mut rig) = Rig::start("threads", &configuration("")) else {
        return;
    };
    let stays = "setMaxTCPClientThreads(40) takes effect with the next start: 2 threads go on";
    let said = rig.reload(&many);
    assert!(said.contains(stays), "{said}");
    rig.says(stays);
    let before = threads(&rig);
    assert!(before < 40, "{before}");
    let rig = Rig::start_in(rig.stop(), &many);
    // A thread takes its name when it first runs.
    rig.awaits("40 threads", || threads(&rig) >= 40);
    rig.server.stop().expect("a good end");
}
