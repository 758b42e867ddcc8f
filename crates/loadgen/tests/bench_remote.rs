//! `./dev bench --remote`: a tiny scenario against a server that is there already, in another namespace, by the floodgate
//! that was just built.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use testnet::again_if_interrupted;
use testnet::lab::{Lab, SERVER_V4, Topology};

/// The test runs itself once more, in the client's namespace: whoever finds this in the environment is the bench. Its value is
/// the bench's command line.
const WORDS: &str = "FLOODGATE_TEST_BENCH";
const NAME: &str = "a_remote_server_is_measured_by_its_address_alone";

const SCENARIO: &str = r#"
title = "Tiny"
queries = ["--random", "100"]
measures = ["cost"]
cost_rate = 500

[[contenders]]
name = "nobody"
server = "none"

[[contenders]]
name = "echo"
server = "none"
"#;

/// No such program: whoever starts a server where none is to be started fails.
const SERVER: &str = "program = \"/nonexistent\"\n";

/// Scenarios and servers as bench/ has them.
fn library(folder: &Path) {
    for (place, text) in [
        ("scenarios/tiny.toml", SCENARIO),
        ("servers/none.toml", SERVER),
    ] {
        let path = folder.join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Answers every query by turning it round, until it is dropped.
struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Echo {
    fn start(lab: &Lab) -> Echo {
        let bound = lab.server().run(|| UdpSocket::bind((SERVER_V4, 53)));
        let socket = bound.unwrap().unwrap();
        let look_every = Some(Duration::from_millis(50));
        socket.set_read_timeout(look_every).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut message = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                let came = again_if_interrupted(|| socket.recv_from(&mut message));
                if let Ok((length, client)) = came {
                    message[2] |= 0x80;
                    socket.send_to(&message[..length], client).unwrap();
                }
            }
        });
        Echo {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs the bench in the client's namespace: what it printed.
fn bench(lab: &Lab, words: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", NAME, "--nocapture"])
        .env(WORDS, words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = lab.client().spawn(&mut command, None).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn a_remote_server_is_measured_by_its_address_alone() {
    if let Ok(words) = std::env::var(WORDS) {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        // What it came to is in its files.
        let prefix = format!("flood-test-bench-{}", std::process::id());
        let _ = testnet::bench::run(&prefix, &words);
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP: network namespaces and AF_XDP need root");
        return;
    }
    let lab = Lab::up_beside_others("flood-test", Topology::OneInterface).unwrap();
    let _echo = Echo::start(&lab);
    let folder = tempfile::tempdir().unwrap();
    library(folder.path());
    let results = folder.path().join("results/here");
    let built = Path::new(env!("CARGO_BIN_EXE_floodgate")).parent().unwrap();
    let words = format!(
        "--bench {} --built {} --results {} --repeats 1 --search 1 --seconds 1 --remote {SERVER_V4}",
        folder.path().display(),
        built.display(),
        results.display()
    );
    // Which contender it is must be said.
    let said = bench(&lab, &format!("{words} tiny"));
    let wrong = "--as NAME says which contender it is, of tiny one of nobody; echo";
    assert!(said.contains(wrong), "{said}");
    assert!(!results.exists(), "{said}");
    let said = bench(&lab, &format!("{words} --as echo tiny"));
    let text = fs::read_to_string(results.join("results.json"));
    let text = text.unwrap_or_else(|error| panic!("{error}: {said}"));
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["missing"], Value::Array(Vec::new()), "{said}");
    let place = all["machine"]["place"].as_str().unwrap_or_default();
    assert!(
        place.starts_with("Server at 192.0.2.1:53, on another machine"),
        "{place}"
    );
    let records = all["records"].as_array().unwrap();
    assert_eq!(records.len(), 1, "{said}");
    check_record(&records[0]);
    for (file, part) in [
        ("README.md", "Tiny: cost, core-us/answer (AF_XDP; 2 queues)"),
        ("report.html", "Tiny: cost, "),
        ("results.csv", "echo"),
    ] {
        let text = fs::read_to_string(results.join(file)).unwrap();
        assert!(text.contains(part), "{file} has no {part}");
    }
}

/// A second at 500 queries a second, asked over AF_XDP.
fn check_record(record: &Value) {
    for (name, value) in [
        ("contender", "echo"),
        ("measure", "cost"),
        ("server", "at 192.0.2.1:53"),
        ("generator_mode", "native, copy"),
        ("server_mode", ""),
    ] {
        assert_eq!(record[name], value, "{record:#}");
    }
    assert_eq!(record["offered"], 500.0, "{record:#}");
    assert_eq!(record["queues"], 2, "{record:#}");
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    assert!(record["figure"].is_number(), "{record:#}");
    // A machine that is busy with other tests may lose some.
    let right = number(&record["right"]);
    assert!(
        (100.0..=500.0).contains(&right),
        "{right} right: {record:#}"
    );
    let witness = &record["witness"];
    assert!(number(&witness["answered"]) > 0.0, "{record:#}");
    assert_eq!(witness["wrong"], 0, "{record:#}");
}
