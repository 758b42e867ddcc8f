//! What `floodgate sockets` says for programs, and what it makes of contents: every count exactly what the server did.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::thread::spawn;

/// Seconds that answers are waited for, of which some never come: longer than a machine is frozen for, or those that do come would
/// be late.
const TIMEOUT: f64 = 2.5;

/// Starts a server and tells its port. `answer` makes an answer of a query, by its number, or says that there is none.
fn server(mut answer: impl FnMut(u64, &mut Vec<u8>) -> bool + Send + 'static) -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    spawn(move || {
        let mut buffer = [0; 512];
        for number in 0.. {
            let (length, client) = socket.recv_from(&mut buffer).unwrap();
            let mut message = buffer[..length].to_vec();
            message[2] |= 0x80;
            if answer(number, &mut message) {
                socket.send_to(&message, client).unwrap();
            }
        }
    });
    port
}

/// One that answers with the address 192.0.2.1.
fn address_server() -> u16 {
    server(|_, message| {
        message[7] = 1;
        // The question's name, type A, class IN, 60 s, four octets.
        message.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01");
        true
    })
}

fn file_of(lines: impl Iterator<Item = String>) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for line in lines {
        writeln!(file, "{line}").unwrap();
    }
    file
}

fn queries(count: usize) -> tempfile::NamedTempFile {
    file_of((0..count).map(|number| format!("name{number}.flood.example A")))
}

fn flood(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodgate"));
    command.args(line.split_whitespace());
    command
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// All lines, each an object.
fn objects(output: &Output) -> Vec<Value> {
    let read =
        |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}"));
    text(output).lines().map(read).collect()
}

/// The columns of a table of one row.
fn columns(output: &Output) -> BTreeMap<String, String> {
    let text = text(output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let (names, values) = (lines[0].split(','), lines[1].split(','));
    assert_eq!(names.clone().count(), values.clone().count(), "{text}");
    let pairs = names.zip(values);
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Answers one of three, refuses one, and ignores one.
fn mixed_server() -> u16 {
    server(|number, message| {
        message[3] |= if number % 3 == 1 { 5 } else { 0 };
        number % 3 != 2
    })
}

#[test]
fn json_has_a_header_parts_of_the_run_and_a_result_that_holds_them() {
    let port = mixed_server();
    let file = queries(60);
    let line = format!(
        "sockets --json -s 127.0.0.1 -p {port} -d {} -t {TIMEOUT} -q 60 -c 3 -T 3 -S 0.1",
        file.path().display()
    );
    let objects = objects(&flood(&line).output().unwrap());
    let (header, rest) = objects.split_first().unwrap();
    let (result, parts) = rest.split_last().unwrap();
    assert_eq!(header["type"], "header", "{header:#}");
    assert_eq!(header["stats_interval"], 0.1, "{header:#}");
    assert_eq!(header["timeout"], TIMEOUT, "{header:#}");
    assert_eq!(
        header["additional_info"],
        json!({"threads": 3, "attached": "none", "bound": "kernel sockets"})
    );
    assert!(!parts.is_empty());
    let (mut told, mut until) = (0, 0);
    for part in parts {
        assert_eq!(part["type"], "stats_periodic", "{part:#}");
        told += part["queries"].as_u64().unwrap();
        // Parts follow each other.
        let end = part["until"].as_u64().unwrap();
        assert!(end > until, "{parts:#?}");
        until = end;
    }
    assert!(told <= 60, "{parts:#?}");
    assert!(objects.iter().all(|one| one["runid"] == header["runid"]));
    assert_eq!(result["type"], "stats_sum", "{result:#}");
    assert_eq!(result["queries"], 60, "{result:#}");
    assert_eq!(result["responses"], 40);
    assert_eq!(result["timeouts"], 20);
    // It began when its first part did, however long the last answers were waited for.
    let [began, part] = [result, &parts[0]].map(|told| told["since"].as_u64().unwrap());
    assert!(began.abs_diff(part) < 50_000_000, "{began} {part}");
    assert_eq!(result["interrupted"], 0);
    assert_eq!(
        result["response_rcodes"],
        json!({"NOERROR": 20, "REFUSED": 20})
    );
    assert_eq!(result["conn_info"]["type"], "udp");
    let own = &result["floodgate"];
    assert_eq!(
        (&own["right"], &own["wrong"], &own["offered"]),
        (&json!(40), &json!({}), &json!(60))
    );
    let latency = &own["latency_from_intended_time"];
    assert!(latency["p50"].as_u64() > Some(0), "{own:#}");
    assert!(latency["max"].as_u64() >= latency["p99"].as_u64());
}

#[test]
fn csv_is_a_row_of_the_same_counts() {
    let port = mixed_server();
    let file = queries(60);
    let line = format!(
        "sockets --csv -s 127.0.0.1 -p {port} -d {} -t {TIMEOUT} -q 60",
        file.path().display()
    );
    let columns = columns(&flood(&line).output().unwrap());
    for (name, value) in [
        ("offered", "60"),
        ("sent", "60"),
        ("right", "40"),
        ("wrong", "0"),
        ("unanswered", "20"),
        ("rcodes", "NOERROR:20 REFUSED:20"),
        ("wrong_kinds", ""),
        ("mode", "kernel sockets"),
        // Nobody looked at an interface.
        ("interface_dropped_in", ""),
    ] {
        assert_eq!(columns[name], value, "{name}: {columns:#?}");
    }
    // Nobody sends or answers while lost answers are waited for.
    let seconds: f64 = columns["seconds"].parse().unwrap();
    assert!((0.0..TIMEOUT).contains(&seconds), "{seconds}");
}

/// dnsperf 2.10 does the same: one query is lost, and the run time is that of the others.
#[test]
fn a_lost_query_does_not_make_the_run_time_longer() {
    let port = server(|number, _| number % 60 != 7);
    let file = queries(60);
    let timed = |options: &str| {
        let line = format!(
            "-s 127.0.0.1 -p {port} -d {} -t {TIMEOUT} {options}",
            file.path().display()
        );
        let text = text(&flood(&line).output().unwrap());
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            line.split_whitespace().last().unwrap().parse().unwrap()
        };
        assert!(text.contains("Queries lost:         1 (1.67%)"), "{text}");
        let (time, rate) = (value("Run time (s):"), value("Queries per second:"));
        // The time is told with six places, of which 59 queries may take few: 2,186 us were 59.01 queries by the printed figures.
        assert!((time * rate - 59.0).abs() < rate * 1e-6, "{text}");
        time
    };
    assert!(timed("") < TIMEOUT);
    // The time limit belongs to it, as dnsperf has it.
    let time = timed("-l 0.5 -Q 120");
    assert!((0.5..TIMEOUT).contains(&time), "{time}");
}

#[test]
fn answers_with_the_expected_contents_are_right_and_others_are_not() {
    let port = address_server();
    let file = queries(20);
    let options = format!(
        "-s 127.0.0.1 -p {port} -d {} -t {TIMEOUT} -q 20",
        file.path().display()
    );
    // Every second address is another one than what is answered.
    let address = |number| format!("name{number}.flood.example A 192.0.2.{}", 1 + number % 2);
    let half = file_of((0..20).map(address));
    let half = format!("sockets {options} --expect {}", half.path().display());
    let block = text(&flood(&half).output().unwrap());
    for line in [
        "Queries completed:    10 (50.00%)",
        "Queries lost:         10 (50.00%)",
        "right 10, wrong 10, duplicate 0, late 0, truncated (TC) 0, question in other case 0",
        "wrong, other-contents: 10",
    ] {
        let found = block.lines().any(|found| found.trim_start() == line);
        assert!(found, "no {line} in\n{block}");
    }
    let as_json = objects(&flood(&format!("{half} --json")).output().unwrap());
    let result = as_json.last().unwrap();
    assert_eq!(result["floodgate"]["right"], 10, "{result:#}");
    assert_eq!(
        result["floodgate"]["wrong"],
        json!({"other-contents": 10}),
        "{result:#}"
    );
    assert_eq!(
        (&result["unexpected"], &result["timeouts"]),
        (&json!(10), &json!(10))
    );
    let as_csv = columns(&flood(&format!("{half} --csv")).output().unwrap());
    assert_eq!(as_csv["wrong_kinds"], "other-contents:10", "{as_csv:#?}");
    assert_eq!((as_csv["right"].as_str(), &*as_csv["wrong"]), ("10", "10"));
    // What every answer says, and what none does.
    for (expected, right) in [("* NOERROR", 20), ("* NXDOMAIN", 0)] {
        let all = file_of([expected.to_owned()].into_iter());
        let line = format!("sockets {options} --json --expect {}", all.path().display());
        let objects = objects(&flood(&line).output().unwrap());
        let result = objects.last().unwrap();
        assert_eq!(result["floodgate"]["right"], right, "{result:#}");
    }
}

#[test]
fn expectations_that_are_not_understood_are_one_line_before_anything_is_sent() {
    let file = queries(1);
    for (line, complaint) in [
        (
            "name0.flood.example A 192.0.2.300",
            "line 2: `192.0.2.300`: expected an IPv4 address or an RCODE",
        ),
        ("name0.flood.example", "line 2: `name0.flood.example`: "),
        ("* MAYBE", "line 2: `* MAYBE`: expected "),
        (
            "another.flood.example A NOERROR",
            "none of the queries is among the expectations",
        ),
    ] {
        let expected = file_of(["# ours", line].map(str::to_owned).into_iter());
        let line = format!(
            "sockets -s 127.0.0.1 -d {} --expect {}",
            file.path().display(),
            expected.path().display()
        );
        let output = flood(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let complaint = format!("{}: {complaint}", expected.path().display());
        assert!(said.contains(&complaint), "{said}");
    }
}

#[test]
fn statistics_that_a_signal_asks_for_are_those_of_the_run_so_far() {
    let port = server(|_, _| true);
    let file = queries(10);
    let line = format!(
        "sockets --json --quiet -s 127.0.0.1 -p {port} -d {} -l 60 -t 60 -Q 500",
        file.path().display()
    );
    let mut child = flood(&line).stdout(Stdio::piped()).spawn().unwrap();
    let process = Pid::from_raw(child.id() as i32);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut objects = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    assert_eq!(objects.next().unwrap()["type"], "header");
    let mut told = Vec::new();
    // Each signal is one line: the run goes on, and tells of all of it.
    while told.last().is_none_or(|queries| *queries < 100) && told.len() < 10_000 {
        kill(process, Signal::SIGUSR1).unwrap();
        let line = objects.next().unwrap();
        assert_eq!(line["type"], "stats_periodic", "{line}");
        told.push(line["queries"].as_u64().unwrap());
    }
    assert!(told.is_sorted(), "{told:?}");
    assert!(told.last() >= Some(&100), "{told:?}");
    kill(process, Signal::SIGINT).unwrap();
    let result = objects.last().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(result["type"], "stats_sum", "{result}");
    assert!(result["queries"].as_u64() >= told.last().copied());
}

#[test]
fn a_shape_whose_last_query_leaves_early_takes_its_whole_time() {
    let port = address_server();
    let file = queries(10);
    // The second of two bursts is over after 0.55 s.
    let line = format!(
        "-s 127.0.0.1 -p {port} -d {} -Q 100 -l 1 --shape burst:0.5,0.1 --json",
        file.path().display()
    );
    let output = flood(&line).output().unwrap();
    let result = objects(&output).pop().unwrap();
    assert_eq!(result["queries"], 100, "{result:#}");
    let seconds = result["floodgate"]["seconds"].as_f64().unwrap();
    assert!(seconds >= 1.0, "{result:#}");
}
