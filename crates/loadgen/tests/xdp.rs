//! `floodgate xdp` against a scripted server: every count exactly what the script made it.

#[path = "xdp/frames.rs"]
mod frames;
#[path = "xdp/gone.rs"]
mod gone;
#[path = "xdp/interim.rs"]
mod interim;
mod lab;
#[path = "xdp/live.rs"]
mod live;
#[path = "xdp/modes.rs"]
mod modes;
#[path = "xdp/ramps.rs"]
mod ramps;
#[path = "xdp/refusals.rs"]
mod refusals;
#[path = "xdp/taken_off.rs"]
mod taken_off;
#[path = "xdp/unreachable.rs"]
mod unreachable;

use floodgate::questions::{Style, text};
use lab::{
    Deed, Responder, SERVER, Talking, end, lab, program_on, queries, quiet_port, start, summary,
};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv6Addr, UdpSocket};
use std::process::Command;
use std::time::Duration;
use testnet::again_if_interrupted;
use testnet::lab::{CLIENT_V4, SERVER_CLIENTS, SERVER_V6, TO_SERVER};
use testnet::namespace::Namespace;

/// Queries of a run, and the deeds that its script repeats: each happens as often.
const QUERIES: u64 = 1300;
const SCRIPT: [Deed; 13] = [
    Deed::Answer,
    Deed::Ignore,
    Deed::Twice,
    Deed::OtherQuestion,
    Deed::OtherId,
    Deed::WrongUdpChecksum,
    Deed::WrongIpChecksum,
    Deed::OtherSourcePort,
    Deed::Unturned,
    Deed::Refused,
    Deed::Truncated,
    Deed::OtherCase,
    Deed::Longer,
];
/// The machine that tests may be busy: nothing is given up, and no answer is late.
const PATIENT: &str = "--patience 60 --late 60";
const EACH: u64 = QUERIES / SCRIPT.len() as u64;

#[test]
fn everything_that_comes_back_is_counted_as_what_it_is() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let responder = Responder::start(&lab, None, |number| SCRIPT[number as usize % SCRIPT.len()]);
    let file = queries(700);
    let line = format!(
        "xdp -j -q -t 0.65 -Q 2000 --patience 60 --late 10 -i {} {SERVER}",
        file.path().display()
    );
    let result = summary(&end(start(&lab.client(), &line)));
    assert_eq!(responder.stop(), QUERIES);
    let own = &result["floodgate"];
    assert_eq!(result["queries"], QUERIES, "{result:#}");
    assert_eq!(own["offered"], QUERIES);
    // Answer, Twice, Refused, Truncated and OtherCase have a right first answer.
    assert_eq!(own["right"], 5 * EACH, "{result:#}");
    assert_eq!(own["duplicate"], EACH);
    assert_eq!(own["late"], 0);
    assert_eq!(own["truncated"], EACH);
    assert_eq!(own["case_changed"], EACH);
    assert_eq!(
        own["wrong"],
        json!({
            "other-question": EACH,
            // Half of the 65,536 IDs away: never asked in so short a run.
            "never-asked": EACH,
            "udp-checksum": EACH,
            "ip-checksum": EACH,
            "response-is-query": EACH,
            // Octets behind the last record that the header counts.
            "response-bad-records": EACH,
            // The kernel has these all the same.
            "other-source": EACH,
        })
    );
    assert_eq!(result["timeouts"], QUERIES - 5 * EACH);
    assert_eq!(
        result["response_rcodes"],
        json!({"NOERROR": 4 * EACH, "REFUSED": EACH})
    );
    let threads = own["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 2, "a thread for each queue");
    assert_eq!(threads[0]["sent"], QUERIES / 2);
    assert_eq!(
        program_on(&lab.client(), TO_SERVER),
        "",
        "nothing is left attached"
    );
}

#[test]
fn a_wrong_answer_does_not_end_the_wait_for_the_right_one() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::WrongThenRight);
    let file = queries(100);
    let line = format!(
        "xdp -j {PATIENT} -t 0.2 -Q 1000 -i {} {SERVER}",
        file.path().display()
    );
    let result = summary(&end(start(&lab.client(), &line)));
    assert_eq!(result["floodgate"]["right"], 200, "{result:#}");
    assert_eq!(result["floodgate"]["wrong"], json!({"other-question": 200}));
}

#[test]
fn answers_are_read_whatever_ends_a_sleep() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    for wake in ["answers", "schedule", "never"] {
        let line = format!(
            "xdp -j {PATIENT} -t 0.2 -Q 1000 --wake {wake} -i {} {SERVER}",
            file.path().display()
        );
        let result = summary(&end(start(&lab.client(), &line)));
        assert_eq!(result["floodgate"]["right"], 200, "{wake}: {result:#}");
    }
}

#[test]
fn a_single_query_is_asked_by_the_threads_of_all_queues() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(1);
    let line = format!(
        "xdp -j {PATIENT} -t 0.2 -Q 1000 -i {} {SERVER}",
        file.path().display()
    );
    let result = summary(&end(start(&lab.client(), &line)));
    let own = &result["floodgate"];
    assert_eq!(own["right"], 200, "{result:#}");
    let sent = |thread: usize| &own["threads"][thread]["sent"];
    assert_eq!((sent(0), sent(1)), (&json!(100), &json!(100)));
}

#[test]
fn a_late_answer_is_late_and_not_right() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |number| match number {
        0..100 => Deed::Late(8000),
        _ => Deed::Answer,
    });
    let file = queries(100);
    let line = format!(
        "xdp -j -t 9 -Q 200 --patience 60 --late 4 -i {} {SERVER}",
        file.path().display()
    );
    let result = summary(&end(start(&lab.client(), &line)));
    assert_eq!(result["floodgate"]["late"], 100, "{result:#}");
    assert_eq!(result["floodgate"]["right"], 1700);
    assert_eq!(result["timeouts"], 100);
}

#[test]
fn a_stall_shows_in_the_latencies_of_the_queries_that_it_delayed() {
    const STALL: Duration = Duration::from_millis(500);
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let path = file.path().display();
    let line = format!("xdp -j {PATIENT} -S 20 -t 600 -Q 1000 -i {path} {SERVER}");
    let mut flood = Talking::start(&lab.client(), &line);
    assert_eq!(flood.object()["type"], "header");
    flood.busy();
    flood.signal(Signal::SIGSTOP);
    // tidy: the time is what is tested
    std::thread::sleep(STALL);
    flood.signal(Signal::SIGCONT);
    // All that was due meanwhile is sent, and answered at once.
    let longest = |told: &serde_json::Value| {
        let nanoseconds = told["floodgate"]["latency_from_intended_time"]["max"].as_u64();
        // Null of a part in which nothing was answered.
        Duration::from_nanos(nanoseconds.unwrap_or(0))
    };
    let shown = (0..1000).any(|_| longest(&flood.object()) >= STALL / 2);
    assert!(shown, "500 queries were delayed, and none took longer");
    let result = flood.interrupt();
    assert!(longest(&result) >= STALL / 2, "{result:#}");
    assert_eq!(result["floodgate"]["not_sent"], 0, "{result:#}");
    assert_eq!(result["floodgate"]["right"], result["queries"]);
}

#[test]
fn ipv6_source_networks_tags_and_binary_files() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER_V6);
    let responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let path = file.path().display();
    let six = format!("xdp -j {PATIENT} -t 0.2 -Q 1000 -b 7 -i {path} {SERVER_V6}");
    let result = summary(&end(start(&lab.client(), &six)));
    assert_eq!(result["floodgate"]["right"], 200, "{result:#}");
    let network = format!("xdp -j {PATIENT} -t 0.2 -Q 1000 -l 192.0.2.128/25 -i {path} {SERVER}");
    let result = summary(&end(start(&lab.client(), &network)));
    assert_eq!(result["floodgate"]["right"], 200, "{result:#}");
    let binary = binary_queries();
    let binary = format!(
        "xdp -j {PATIENT} -t 0.2 -Q 1000 -B -i {} {SERVER}",
        binary.path().display()
    );
    let result = summary(&end(start(&lab.client(), &binary)));
    assert_eq!(result["floodgate"]["right"], 200, "{result:#}");
    drop(responder);
    let _tagged = Responder::start(&lab, Some(7), |_| Deed::Answer);
    let tagged = format!("xdp -j {PATIENT} -t 0.2 -Q 1000 -v 7 -i {path} {SERVER}");
    let result = summary(&end(start(&lab.client(), &tagged)));
    assert_eq!(result["floodgate"]["right"], 200, "{result:#}");
}

#[test]
fn answers_to_a_burst_are_right_although_more_wait_than_the_mean_rate_tells() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Late(400));
    let file = queries(100);
    // A hundred times the rate, all the time: 400 queries wait where the mean rate leaves 105 before an answer is late.
    let line = format!(
        "xdp -j -t 0.5 -Q 10 --shape burst:10000,0.01 --patience 60 --late 10 -i {} {SERVER}",
        file.path().display()
    );
    let result = summary(&end(start(&lab.client(), &line)));
    assert_eq!(result["queries"], 500, "{result:#}");
    assert_eq!(result["floodgate"]["right"], 500, "{result:#}");
    assert_eq!(result["floodgate"]["late"], 0);
}

/// The link-local address of an interface.
fn link_local(namespace: &Namespace, interface: &str) -> String {
    let shown = Command::new("ip")
        .args(["-n", namespace.name(), "-6", "-o", "address", "show"])
        .args(["dev", interface, "scope", "link"])
        .output()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let mut words = text.split_whitespace();
    let address = words.find_map(|word| word.strip_suffix("/64"));
    address.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn an_address_of_every_link_is_reached_by_its_scope() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, Ipv6Addr::UNSPECIFIED.into());
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let path = file.path().display();
    let server = link_local(&lab.server(), SERVER_CLIENTS);
    for target in [
        format!("{server}%{TO_SERVER}"),
        format!("-I {TO_SERVER} {server}"),
        // Each from an address of its own, though both are of IPv6.
        format!("{SERVER_V6} {server}%{TO_SERVER}"),
    ] {
        let line = format!("xdp -j {PATIENT} -t 0.2 -Q 1000 -i {path} {target}");
        let result = summary(&end(start(&lab.client(), &line)));
        assert_eq!(result["floodgate"]["right"], 200, "{line}: {result:#}");
    }
    let printed = end(start(&lab.client(), &format!("xdp -i {path} {server}")));
    assert!(!printed.success, "{printed:?}");
    let says = format!("such as {server}%eth0");
    assert!(printed.complaint.contains(&says), "{printed:?}");
}

/// Two messages in wire format, each behind its length.
fn binary_queries() -> tempfile::NamedTempFile {
    let questions = text::parse(b"a.example A\nb.example TXT D", Style::default()).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for number in 0..questions.len() {
        let message = questions.get(number).message;
        file.write_all(&(message.len() as u16).to_be_bytes())
            .unwrap();
        file.write_all(message).unwrap();
    }
    file
}

#[test]
fn an_ordinary_client_beside_it_keeps_its_answers() {
    let Some(lab) = lab() else { return };
    let server = quiet_port(&lab, SERVER);
    // The generator's queries come here too, after a pause of the machine's very many at once.
    setsockopt(&server, sockopt::RcvBufForce, &(64 << 20)).unwrap();
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let line = format!(
        "xdp -j {PATIENT} -t 2 -Q 1000 -i {} {SERVER}",
        file.path().display()
    );
    let mut flood = start(&lab.client(), &line);
    let mut first = String::new();
    // Its first line says that everything is attached.
    BufReader::new(flood.stdout.as_mut().unwrap())
        .read_line(&mut first)
        .unwrap();
    let answering = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        let mut answered = 0;
        while answered < 50 {
            let (length, client) = server.recv_from(&mut buffer).unwrap();
            if !lab::PORTS.contains(&client.port()) {
                server.send_to(&buffer[..length], client).unwrap();
                answered += 1;
            }
        }
    });
    let client = lab.client().run(|| UdpSocket::bind((CLIENT_V4, 0)));
    let client = client.unwrap().unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    for number in 0..50_u8 {
        client.send_to(&[number; 20], (SERVER, 53)).unwrap();
        let mut answer = [0; 64];
        let (length, _) = again_if_interrupted(|| client.recv_from(&mut answer)).unwrap();
        assert_eq!(answer[..length], [number; 20]);
    }
    answering.join().unwrap();
    let result = summary(&end(flood));
    assert_eq!(result["floodgate"]["right"], 2000, "{result:#}");
}

#[test]
fn an_interrupt_ends_the_run_with_what_was_counted() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let line = format!(
        "xdp -j {PATIENT} -S 100 -t 600 -Q 1000 -i {} {SERVER}",
        file.path().display()
    );
    let mut flood = start(&lab.client(), &line);
    let mut lines = BufReader::new(flood.stdout.take().unwrap()).lines();
    let header = lines.next().unwrap().unwrap();
    assert!(header.contains("\"type\":\"header\""), "{header}");
    let between = lines.next().unwrap().unwrap();
    assert!(between.contains("stats_periodic"), "{between}");
    kill(Pid::from_raw(flood.id() as i32), Signal::SIGINT).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(flood.wait().unwrap().success());
    let read = |line: &String| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let (last, between) = rest.split_last().unwrap();
    let result = read(last);
    let sent = result["queries"].as_u64().unwrap();
    // "only metrics collected in the given period": none counts what another has counted.
    let told = between
        .iter()
        .map(|line| read(line)["queries"].as_u64().unwrap());
    assert!(told.sum::<u64>() <= sent);
    assert_eq!(result["type"], "stats_sum");
    assert!((1..600_000).contains(&sent), "{result:#}");
    assert_eq!(result["floodgate"]["right"], sent);
    assert_eq!(result["floodgate"]["not_sent"], 0);
    assert_eq!(responder.stop(), sent);
    assert_eq!(program_on(&lab.client(), TO_SERVER), "");
}

#[test]
fn unwanted_answers_are_dropped_in_the_kernel_and_counted() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(100);
    let line = format!(
        "xdp -j {PATIENT} -r -t 0.5 -Q 1000 -i {} {SERVER}",
        file.path().display()
    );
    let result = summary(&end(start(&lab.client(), &line)));
    assert_eq!(result["queries"], 500, "{result:#}");
    // Nobody looked at them: not even a 0 is told.
    assert!(result.get("responses").is_none(), "{result:#}");
    assert!(result["floodgate"]["right"].is_null(), "{result:#}");
    let unwanted = result["floodgate"]["lost_here"]["unwanted"]
        .as_u64()
        .unwrap();
    // Nobody waits for them: the last may still be on their way when the run ends.
    assert!((1..=500).contains(&unwanted), "{result:#}");
    assert_eq!(result["timeouts"], 500 - unwanted, "{result:#}");
}

#[test]
fn a_ramp_finds_what_a_slow_server_keeps_up_with() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    // Answers nine of ten: no rate reaches 99 %.
    let _responder = Responder::start(&lab, None, |number| match number % 10 {
        0 => Deed::Ignore,
        _ => Deed::Answer,
    });
    let file = queries(100);
    let line = format!(
        "xdp -j --ramp --repeat 1 -t 0.2 -Q 400 --late 0.3 -i {} {SERVER}",
        file.path().display()
    );
    let printed = end(start(&lab.client(), &line));
    let result = summary(&printed);
    assert_eq!(result["type"], "ramp");
    assert_eq!(result["r99"], 0.0, "{printed:?}");
    assert!(result["peak"].as_f64().unwrap() > 0.0);
    assert_eq!(program_on(&lab.client(), TO_SERVER), "");
}

#[test]
fn several_targets_are_asked_evenly_and_contents_are_compared() {
    let Some(lab) = lab() else { return };
    let second = "192.0.2.7";
    let server = lab.server();
    server
        .ip(&format!("addr add {second}/24 dev {SERVER_CLIENTS}\n"))
        .unwrap();
    let _ports = [SERVER, second.parse().unwrap()].map(|address| quiet_port(&lab, address));
    let responder = Responder::start(&lab, None, |number| {
        [Deed::Answer, Deed::Refused][number as usize % 2]
    });
    let file = queries(700);
    let mut expected = tempfile::NamedTempFile::new().unwrap();
    writeln!(expected, "* NOERROR").unwrap();
    let line = format!(
        "xdp -j -q -t 0.5 -Q 2000 --patience 60 --late 10 --expect {} -i {} {SERVER} {second}",
        expected.path().display(),
        file.path().display()
    );
    let result = summary(&end(start(&lab.client(), &line)));
    assert_eq!(responder.stop(), 1000);
    let own = &result["floodgate"];
    assert_eq!(own["right"], 500, "{result:#}");
    assert_eq!(own["wrong"], json!({"other-contents": 500}));
}

#[test]
fn targets_of_both_versions_of_ip_are_asked_in_one_run() {
    let Some(lab) = lab() else { return };
    let _ports = [SERVER, SERVER_V6].map(|address| quiet_port(&lab, address));
    let responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(700);
    let line = format!(
        "xdp -j -q -t 0.5 -Q 2000 {PATIENT} -i {} {SERVER} {SERVER_V6}",
        file.path().display()
    );
    let result = summary(&end(start(&lab.client(), &line)));
    assert_eq!(responder.stop(), 1000);
    assert_eq!(result["floodgate"]["right"], 1000, "{result:#}");
}

#[test]
fn what_cannot_work_is_one_clear_line() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let file = queries(1);
    let path = file.path().display();
    let (empty, mut malformed) = (queries(0), queries(1));
    writeln!(malformed, "a.example NOTYPE").unwrap();
    for (line, complaint) in [
        (
            format!("xdp -i {} {SERVER}", empty.path().display()),
            "has no queries: expected a line each",
        ),
        (
            format!("xdp -i {} {SERVER}", malformed.path().display()),
            "line 2: `NOTYPE` is no type",
        ),
        (
            format!("xdp -i {path} -I nosuch {SERVER}"),
            "there is no network interface nosuch",
        ),
        (
            format!("xdp -i {path} 198.18.0.1"),
            "Network is unreachable",
        ),
        (format!("xdp -i {path} {CLIENT_V4}"), "is this machine"),
        (
            format!("xdp -i {path} -I lo {SERVER}"),
            "interface lo is the loopback interface",
        ),
        (
            format!("xdp -i {path} -F 60000 {SERVER}"),
            "CPU 60000, of sending thread 1 of 2, is not there",
        ),
        (format!("xdp -i {path} {SERVER}:53"), "-p takes the port"),
        (
            format!("xdp -i {path} --ramp --highest 5 {SERVER}"),
            "a higher rate, or -t 20 or more",
        ),
        (
            format!("xdp -i {path} -l ::1 {SERVER}"),
            "different versions of IP",
        ),
        (
            format!("xdp -i {path} {SERVER} 198.18.0.1"),
            "Network is unreachable",
        ),
        (format!("xdp -i {path} --live {SERVER}"), "no terminal"),
        (
            format!("xdp -i {path} --expect {path} {SERVER}"),
            "line 1: `name0.flood.example A`: expected",
        ),
        (format!("xdp -i /nonexistent {SERVER}"), "No such file"),
    ] {
        let printed = end(start(&lab.client(), &line));
        assert!(!printed.success && printed.out.is_empty(), "{line}");
        assert_eq!(printed.complaint.lines().count(), 1, "{printed:?}");
        assert!(printed.complaint.contains(complaint), "{printed:?}");
        assert_eq!(program_on(&lab.client(), TO_SERVER), "", "{line}");
    }
}

#[test]
fn a_tunnel_carries_no_frames_and_that_is_said_at_once() {
    let Some(lab) = lab() else { return };
    let tunnel =
        "tuntap add dev tunnel mode tun\nlink set tunnel up\naddr add 198.18.0.1/24 dev tunnel\n";
    lab.client().ip(tunnel).unwrap();
    let file = queries(1);
    let line = format!("xdp -i {} 198.18.0.9", file.path().display());
    let printed = end(start(&lab.client(), &line));
    assert!(!printed.success && printed.out.is_empty(), "{printed:?}");
    let said = "floodgate: interface tunnel is no Ethernet, where AF_XDP reaches no server";
    assert!(printed.complaint.starts_with(said), "{printed:?}");
    assert_eq!(printed.complaint.lines().count(), 1, "{printed:?}");
}

#[test]
fn the_program_of_another_one_is_left_alone() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let file = queries(1);
    let path = file.path().display();
    let line = format!("xdp -j -t 600 -i {path} {SERVER}");
    let mut first = start(&lab.client(), &line);
    let mut header = String::new();
    BufReader::new(first.stdout.as_mut().unwrap())
        .read_line(&mut header)
        .unwrap();
    let second = end(start(&lab.client(), &line));
    assert!(!second.success && second.out.is_empty(), "{second:?}");
    assert_eq!(second.complaint.lines().count(), 1, "{second:?}");
    assert!(
        second
            .complaint
            .contains(&format!("interface {TO_SERVER} already has an XDP program")),
        "{second:?}"
    );
    assert_ne!(
        program_on(&lab.client(), TO_SERVER),
        "",
        "the first one's is left alone"
    );
    kill(Pid::from_raw(first.id() as i32), Signal::SIGKILL).unwrap();
    first.wait().unwrap();
    assert_eq!(program_on(&lab.client(), TO_SERVER), "", "killed, and gone");
}
