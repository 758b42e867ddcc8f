//! Somebody takes the program off the interface in the middle of a run: the counts after that would be wrong.

use crate::lab::{Deed, Responder, SERVER, end, lab, program_on, queries, quiet_port, start};
use std::io::{BufRead, BufReader};
use std::process::Command;
use testnet::lab::TO_SERVER;

/// Detaches the link of the program with this id: by no path, for it has none.
fn take_off(program: u64) {
    let shown = Command::new("bpftool")
        .args(["-j", "link", "show"])
        .output()
        .unwrap();
    let links: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let links = links.as_array().unwrap();
    let link = links.iter().find(|link| link["prog_id"] == program);
    let id = link.unwrap()["id"].to_string();
    let detached = Command::new("bpftool")
        .args(["link", "detach", "id", &id])
        .status()
        .unwrap();
    assert!(detached.success());
}

#[test]
fn a_program_that_is_taken_off_ends_the_run_with_one_line() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(10);
    let path = file.path().display();
    let line = format!("xdp -t 2 -Q 100 -i {path} {SERVER}");
    let mut flood = start(&lab.client(), &line);
    let mut header = String::new();
    BufReader::new(flood.stdout.as_mut().unwrap())
        .read_line(&mut header)
        .unwrap();
    let shown = program_on(&lab.client(), TO_SERVER);
    let mut words = shown.split_whitespace().skip_while(|word| *word != "id");
    take_off(words.nth(1).unwrap().parse().unwrap());
    let printed = end(flood);
    assert!(!printed.success && printed.out.is_empty(), "{printed:?}");
    assert_eq!(printed.complaint.lines().count(), 1, "{printed:?}");
    let expected = format!("took the XDP program off interface {TO_SERVER}");
    assert!(printed.complaint.contains(&expected), "{printed:?}");
    assert_eq!(program_on(&lab.client(), TO_SERVER), "");
}
