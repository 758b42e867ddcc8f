//! What operators see of AF_XDP while it serves: packets by `millrace mirror`, reasons by `millrace explain`.

use crate::rig::{PATIENCE, REFUSED, Rig};
use std::process::{Child, Command, Output, Stdio};

const ADDRESS: &str = "192.0.2.1:53";

fn mirror(rig: &Rig, file: &std::path::Path, filter: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["mirror", "--interface", "enp1s0", "--count", "2", "-w"])
        .arg(file)
        .arg("--control")
        .arg(rig.control())
        .args(filter)
        .stdout(Stdio::null())
        .spawn()
        .expect("millrace mirror")
}

/// Query and answer, whole and marked, as long as somebody looks; nothing is copied before or after.
#[test]
fn a_mirror_shows_what_came_and_what_went() {
    let configuration = "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED;
    let Some(rig) = Rig::start("mirror", &configuration) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mirror.pcapng");
    let mut child = mirror(&rig, &file, &["host 192.0.2.1", "name example.com"]);
    // The mirror is open when it has written its first blocks; then one query and its answer are all that it waits for.
    rig.awaits("the mirror's first blocks", || {
        std::fs::metadata(&file).is_ok_and(|file| file.len() > 0)
    });
    while child.try_wait().expect("a child").is_none() {
        assert!(rig.asks(ADDRESS, PATIENCE));
    }
    let bytes = std::fs::read(&file).expect("a file");
    let text = String::from_utf8_lossy(&bytes);
    // The client's port decides on which queue.
    for mark in ["answered", "sent"] {
        let is_marked = |queue| text.contains(&format!("xsk queue {queue}, {mark}"));
        assert!([0, 1].into_iter().any(is_marked), "{mark}: {text}");
    }
    assert!(text.contains("\u{7}example\u{3}com"), "{text}");
    if let Ok(read) = Command::new("tcpdump")
        .args(["-n", "-r"])
        .arg(&file)
        .output()
    {
        let lines = String::from_utf8_lossy(&read.stdout).into_owned();
        assert!(lines.contains("Refused"), "{lines}");
    }
    assert!(rig.asks(ADDRESS, PATIENCE), "it serves on");
    rig.server.stop().expect("a good end");
}

/// `millrace mirror --interface enp1s0 -w - host 192.0.2.1 | tcpdump -n -l -c 2 -r -`
fn piped(rig: &Rig) -> (Child, Child) {
    let mut mirror = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["mirror", "--interface", "enp1s0", "-w", "-"])
        .arg("--control")
        .arg(rig.control())
        .args(["host", "192.0.2.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("millrace mirror");
    let pipe = mirror.stdout.take().expect("its standard output");
    let tcpdump = Command::new("tcpdump")
        .args(["-n", "-l", "-c", "2", "-r", "-"])
        .stdin(pipe)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tcpdump");
    (mirror, tcpdump)
}

/// Asks until a child has ended; what it has printed.
fn ask_until_it_ends(rig: &Rig, what: &str, mut child: Child) -> Output {
    rig.awaits(&format!("{what} to end"), || {
        assert!(rig.asks(ADDRESS, PATIENCE));
        child.try_wait().expect("a child").is_some()
    });
    child.wait_with_output().expect("its output")
}

/// Packets come to tcpdump while they pass, and the mirror ends when nobody reads on.
#[test]
fn tcpdump_reads_a_mirror_through_a_pipe() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("SKIP: tcpdump is not installed");
        return;
    }
    let configuration = "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED;
    let Some(rig) = Rig::start("mirror-piped", &configuration) else {
        return;
    };
    rig.is_served_over_xdp(ADDRESS, "enp1s0");
    let (mirror, tcpdump) = piped(&rig);
    let read = ask_until_it_ends(&rig, "tcpdump", tcpdump);
    let lines = String::from_utf8_lossy(&read.stdout).into_owned();
    let said = String::from_utf8_lossy(&read.stderr).into_owned();
    assert!(read.status.success(), "{lines}{said}");
    assert!(said.contains("link-type EN10MB"), "{said}");
    assert_eq!(lines.lines().count(), 2, "{lines}");
    // One question, one answer, as tcpdump prints them.
    for part in [" > 192.0.2.1.53: ", "A? www.example.com.", " Refused"] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    let wrote = ask_until_it_ends(&rig, "millrace mirror", mirror);
    let said = String::from_utf8_lossy(&wrote.stderr);
    assert!(wrote.status.success() && said.is_empty(), "{said}");
    rig.server.stop().expect("a good end");
}

#[test]
fn an_explanation_names_the_rule_and_counts_nothing() {
    let configuration = "addLocal(\"192.0.2.1:53\", {xdp=true})\n".to_owned() + REFUSED;
    let Some(rig) = Rig::start("explain", &configuration) else {
        return;
    };
    let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["explain", "www.example.com", "A", "--from", "192.0.2.2"])
        .arg("--control")
        .arg(rig.control())
        .output()
        .expect("millrace explain");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("rule      0: All => set rcode 5"), "{text}");
    assert!(text.contains("verdict   answered here: REFUSED"), "{text}");
    assert_eq!(rig.metric("dnsdist_queries", &[]), 0.0);
    assert_eq!(rig.metric("dnsdist_rule_hits", &[]), 0.0);
    rig.server.stop().expect("a good end");
}
