//! The interface goes down or away in the middle of a run: what was counted until then is told, then one line says what happened.

use crate::lab::{Deed, Responder, SERVER, Talking, lab, queries, quiet_port};
use serde_json::Value;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testnet::lab::TO_SERVER;

#[test]
fn the_statistics_so_far_are_told_and_one_line_says_what_happened() {
    const DOWN: &str = "cannot send any more: Network is down";
    // Who looks while it goes sees it down.
    for (change, said) in [
        ("set dev {} down", [DOWN, DOWN]),
        ("del dev {}", [DOWN, "went away during the run"]),
    ] {
        let Some(lab) = lab() else { return };
        let _port = quiet_port(&lab, SERVER);
        let is_quiet = Arc::new(AtomicBool::new(false));
        let quiet = is_quiet.clone();
        let _responder = Responder::start(&lab, None, move |_| {
            match quiet.load(Ordering::Relaxed) {
                // What is sent to an interface that is down is an error.
                true => Deed::Ignore,
                false => Deed::Answer,
            }
        });
        let file = queries(100);
        let path = file.path().display();
        let line =
            format!("xdp -j -S 50 -t 600 -Q 1000 --patience 60 --late 60 -i {path} {SERVER}");
        let mut flood = Talking::start(&lab.client(), &line);
        assert_eq!(flood.object()["type"], "header");
        while flood.busy()["floodgate"]["right"].as_u64() == Some(0) {}
        is_quiet.store(true, Ordering::Relaxed);
        let change = format!("link {}\n", change.replace("{}", TO_SERVER));
        lab.client().ip(&change).unwrap();
        let mut errors = flood.errors();
        let (lines, code) = flood.end();
        let mut complaint = String::new();
        errors.read_to_string(&mut complaint).unwrap();
        assert_eq!(code, Some(1), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        let expected = said.map(|said| format!("floodgate: interface {TO_SERVER} {said}"));
        let is_said = expected.iter().any(|said| complaint.starts_with(said));
        assert!(is_said, "{complaint}");
        let result: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!(result["type"], "stats_sum", "{result:#}");
        let own = &result["floodgate"];
        assert!(own["right"].as_u64() > Some(0), "{result:#}");
        // Ten minutes were planned, and the time until then is told.
        let seconds = own["seconds"].as_f64().unwrap();
        assert!(seconds > 0.0 && seconds < 500.0, "{result:#}");
        let failure = own["failure"].as_str().unwrap();
        assert!(complaint.contains(failure), "{complaint}{failure}");
    }
}

#[test]
fn over_sockets_too() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Ignore);
    let file = queries(100);
    let path = file.path().display();
    let line =
        format!("sockets --json -S 0.05 -l 600 -t 600 -q 60000 -Q 1000 -s {SERVER} -d {path}");
    let mut flood = Talking::start(&lab.client(), &line);
    assert_eq!(flood.object()["type"], "header");
    flood.busy();
    let gone = format!("link del dev {TO_SERVER}\n");
    lab.client().ip(&gone).unwrap();
    let mut errors = flood.errors();
    let (lines, code) = flood.end();
    let mut complaint = String::new();
    errors.read_to_string(&mut complaint).unwrap();
    assert_eq!(code, Some(1), "{complaint}");
    let expected = "floodgate: sending queries: Network is unreachable";
    assert!(complaint.starts_with(expected), "{complaint}");
    let result: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!(result["type"], "stats_sum", "{result:#}");
    assert!(result["queries"].as_u64() > Some(0), "{result:#}");
}
