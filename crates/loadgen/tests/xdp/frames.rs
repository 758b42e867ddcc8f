//! `-F`, `-L`, `-R`, `-I`: on which CPUs the threads run, and whose addresses frames carry.

use crate::lab::{
    Deed, PORTS, Responder, SERVER, Talking, end, lab, queries, quiet_port, start, summary,
};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::fs;
use testnet::lab::{CLIENT_MAC, CLIENT_V4, SERVER_CLIENTS, SERVER_MAC, TO_SERVER};
use testnet::sys::PacketSocket;
use wire::frame::Packet;

/// Queries that came to an interface so far.
fn seen(interface: &PacketSocket) -> Vec<Packet> {
    let mut seen = Vec::new();
    let mut buffer = [0; 2048];
    while let Ok(captured) = interface.receive(&mut buffer) {
        let packet = Packet::parse(&buffer[..captured.length], false);
        let packet = packet.ok().filter(|_| !captured.outgoing);
        seen.extend(packet.filter(|packet| PORTS.contains(&packet.source.port())));
    }
    seen
}

#[test]
fn frames_carry_the_macs_that_were_given_and_answers_to_them_are_taken() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(50);
    let (own, next) = ([2, 0, 0, 0, 0xa, 1], [2, 0, 0, 0, 0xa, 2]);
    for (options, macs) in [
        ("", (CLIENT_MAC, SERVER_MAC)),
        ("-L 02:00:00:00:0a:01", (own, SERVER_MAC)),
        ("-R 02-00-00-00-0A-02", (CLIENT_MAC, next)),
        (
            "--mac-local 2:0:0:0:a:1 --remote-mac 2:0:0:0:a:2",
            (own, next),
        ),
    ] {
        let interface = lab.server().run(|| PacketSocket::open(SERVER_CLIENTS));
        let interface = interface.unwrap().unwrap();
        let line = format!(
            "xdp -j {options} --patience 60 --late 60 -t 0.1 -Q 500 -i {} {SERVER}",
            file.path().display()
        );
        let result = summary(&end(start(&lab.client(), &line)));
        assert_eq!(result["floodgate"]["right"], 50, "{options}: {result:#}");
        let seen = seen(&interface);
        assert_eq!(seen.len(), 50, "{options}");
        for packet in seen {
            let carried = (packet.source_mac, packet.destination_mac);
            assert_eq!(carried, macs, "{options}");
        }
    }
}

#[test]
fn who_gives_interface_source_and_next_hop_needs_no_route() {
    let Some(lab) = lab() else { return };
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(50);
    // RFC 2544: for benchmarks; nothing leads there.
    let line = format!(
        "xdp -j -I {TO_SERVER} -l {CLIENT_V4} -R 02:00:00:00:01:01 --patience 60 --late 60 \
         -t 0.1 -Q 500 -i {} 198.18.0.1",
        file.path().display()
    );
    let result = summary(&end(start(&lab.client(), &line)));
    assert_eq!(result["floodgate"]["right"], 50, "{result:#}");
}

/// CPUs that this process, and what it starts, may use.
fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut cpus: Vec<usize> = (0..CpuSet::count()).collect();
    cpus.retain(|cpu| set.is_set(*cpu).unwrap());
    cpus
}

/// The CPUs of each thread but the main one, as `Cpus_allowed_list` in proc_pid_status(5) writes them; sorted.
fn cpus_of_threads(process: u32) -> Vec<String> {
    let main = process.to_string();
    let mut lists = Vec::new();
    for task in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let task = task.unwrap();
        if task.file_name().to_string_lossy() == main {
            continue;
        }
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let mut lines = status.lines();
        let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        lists.push(list.unwrap().trim().to_owned());
    }
    lists.sort();
    lists
}

#[test]
fn each_thread_runs_on_the_cpu_that_start_and_step_give_it() {
    let Some(lab) = lab() else { return };
    let _port = quiet_port(&lab, SERVER);
    let _responder = Responder::start(&lab, None, |_| Deed::Answer);
    let file = queries(50);
    let cpus = allowed();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let mut cases = vec![
        (format!("-F {first}s{}", last - first), [first, last]),
        (format!("-F {last}s0"), [last, last]),
    ];
    if cpus.starts_with(&[0, 1]) {
        // "default is 0s1" (kxdpgun's manual).
        cases.extend([(String::new(), [0, 1]), ("-F s1".to_owned(), [0, 1])]);
    }
    for (options, cpus) in cases {
        let mut expected = cpus.map(|cpu| cpu.to_string());
        expected.sort();
        let line = format!(
            "xdp -j -S 20 {options} --patience 60 --late 60 -t 600 -Q 1000 -i {} {SERVER}",
            file.path().display()
        );
        let mut flood = Talking::start(&lab.client(), &line);
        assert_eq!(flood.object()["type"], "header");
        let mut found = Vec::new();
        // One thread may send before the other one has started.
        for _ in 0..100 {
            flood.busy();
            found = cpus_of_threads(flood.id());
            if found == expected {
                break;
            }
        }
        assert_eq!(found, expected, "{options}");
        flood.interrupt();
    }
}
