//! An owner that dies, stops, or gives its queue up again and again.

use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testnet::lab::SERVER_CLIENTS;
use xsk::{AttachMode, Socket, Umem, UmemOptions};

use crate::lab::{COPY, Client, Echo, PATIENCE, Path, RINGS, SERVED, Witness, inside, lab, until};
use crate::owner::Owner;

const SHORT: Duration = Duration::from_millis(50);

/// Asks until a hundred answers have come over AF_XDP: an owner that a busy machine holds up for 100 ms is passed by.
fn ask_a_hundred(client: &mut Client) {
    let mut answered = 0;
    until("a hundred answers over AF_XDP", || {
        answered += usize::from(client.ask(SHORT) == Some(Path::Xsk));
        answered == 100
    });
}

#[test]
fn a_killed_owner_leaves_its_traffic_to_the_kernel() {
    let Some(lab) = lab("killed") else { return };
    let _witness = Witness::start(&lab.server(), &SERVED);
    let mut client = Client::new(&lab, 0);
    let mut owner = Owner::start(&lab);
    ask_a_hundred(&mut client);
    owner.signal(Signal::SIGKILL);
    owner.wait();
    until("the kernel answers", || {
        client.ask(SHORT) == Some(Path::Kernel)
    });
    for _ in 0..500 {
        assert_eq!(client.ask(PATIENCE), Some(Path::Kernel));
    }
}

#[test]
fn a_stopped_owner_leaves_its_traffic_to_the_kernel_until_it_goes_on() {
    let Some(lab) = lab("stopped") else { return };
    let _witness = Witness::start(&lab.server(), &SERVED);
    let owner = Owner::start(&lab);
    let mut client = Client::new(&lab, 0);
    until("AF_XDP answers", || client.ask(SHORT) == Some(Path::Xsk));
    owner.signal(Signal::SIGSTOP);
    until("the owner is stopped", || owner.is_stopped());
    let stopped = Instant::now();
    let mut sent = Vec::new();
    let mut passed = None;
    until("the kernel answers", || {
        let before = Instant::now();
        let id = client.send();
        sent.push((id, before, Instant::now()));
        passed = client.receive(Duration::from_millis(10)).filter(|answer| {
            *answer == (answer.0, Path::Kernel) && sent.iter().any(|(id, ..)| *id == answer.0)
        });
        passed.is_some()
    });
    // 100 ms from the first frame that nobody took. Answers keep their order: none before the first one was passed. The clock is
    // read on both sides of each: between them the machine may have been frozen.
    let (passed, _) = passed.unwrap();
    let place = sent.iter().position(|(id, ..)| *id == passed).unwrap();
    let last_kept = sent[place.saturating_sub(1)].1;
    let kept = last_kept.saturating_duration_since(sent[0].2);
    assert!(kept < Duration::from_millis(250), "{kept:?} until PASS");
    let mut asked = HashSet::new();
    for _ in 0..1000 {
        asked.insert(client.send());
        take_answer(&client, &mut asked);
    }
    // A probe a second has no answer.
    let seconds = stopped.elapsed().as_secs() as usize + 1;
    until("all answers but those to probes", || {
        take_answer(&client, &mut asked);
        asked.len() <= seconds
    });
    owner.signal(Signal::SIGCONT);
    let continued = Instant::now();
    until("AF_XDP answers again", || {
        client.ask(SHORT) == Some(Path::Xsk)
    });
    // At once; a busy machine takes longer.
    assert!(
        continued.elapsed() < Duration::from_secs(10),
        "{:?} until AF_XDP answered",
        continued.elapsed()
    );
    ask_a_hundred(&mut client);
}

/// Takes an answer, and out of `asked` what it answers, if that was the kernel.
fn take_answer(client: &Client, asked: &mut HashSet<u16>) {
    if let Some((id, Path::Kernel)) = client.receive(SHORT) {
        asked.remove(&id);
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Memory mappings: a ring that stays mapped keeps its queue busy for ever.
fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("socket:") || line.contains("bpf-map"))
        .count()
}

/// Set in the process that counts its own descriptors; this test program's other tests have their own.
const ALONE: &str = "XSK_TEST_ALONE";

#[test]
fn f21_a_queue_can_be_taken_again_two_hundred_times() {
    if std::env::var_os(ALONE).is_some() {
        return take_and_give_up_two_hundred_times();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "leaving::f21_a_queue_can_be_taken_again_two_hundred_times",
        "--nocapture",
    ]);
    assert!(command.env(ALONE, "1").status().unwrap().success());
}

fn take_and_give_up_two_hundred_times() {
    let Some(lab) = lab("rebind") else { return };
    let mut client = Client::new(&lab, 0);
    let (descriptors_before, mappings_before) = (descriptors(), mappings());
    for _ in 0..20 {
        // Everything anew, as after a restart.
        let mut echo = inside(&lab.server(), || {
            Echo::start(SERVER_CLIENTS, AttachMode::Native)
        });
        client.send();
        until("an answer", || {
            echo.turn();
            client
                .receive(Duration::ZERO)
                .is_some_and(|(_, path)| path == Path::Xsk)
        });
    }
    let interface = inside(&lab.server(), || xsk::nic::Nic::by_name(SERVER_CLIENTS))
        .unwrap()
        .index;
    let mut umem = Umem::new(RINGS.frames(), UmemOptions::default()).unwrap();
    for round in 0..180 {
        let socket = inside(&lab.server(), || {
            Socket::bind(&mut umem, interface, 0, COPY)
        });
        drop(socket.unwrap_or_else(|error| panic!("round {round}: {error}")));
    }
    umem.reclaim();
    assert_eq!(umem.census([]).free, RINGS.frames());
    drop(umem);
    assert_eq!(
        (descriptors(), mappings()),
        (descriptors_before, mappings_before)
    );
}
