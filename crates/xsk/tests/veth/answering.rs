//! Queries in, answers out, on one queue.

use std::time::Duration;

use testnet::lab::SERVER_CLIENTS;
use xsk::{AttachMode, Flushed, KernelCounters, Reason};

use crate::lab::{
    Client, Echo, Path, RINGS, SERVED, Witness, add_to_word, inside, lab, lab_of_two_queues, until,
};

const NOW: Duration = Duration::ZERO;

fn echoes_in(mode: AttachMode, name: &str) {
    let Some(lab) = lab(name) else { return };
    let mut echo = inside(&lab.server(), || Echo::start(SERVER_CLIENTS, mode));
    assert_eq!(echo.program.mode(), Some(mode));
    for version in 0..2 {
        let mut client = Client::new(&lab, version);
        // More than every ring has slots, so that all of them wrap.
        for round in 0..40 {
            let send = |_| {
                // Else a machine that is frozen between two of them has the worker pass for stalled.
                echo.heartbeat.beat();
                client.send()
            };
            let asked: Vec<u16> = (0..8).map(send).collect();
            let mut answered = Vec::new();
            until("eight answers", || {
                echo.turn();
                answered.extend(client.receive(NOW));
                answered.len() == asked.len()
            });
            answered.sort_unstable_by_key(|(id, _)| *id);
            let expected: Vec<_> = asked.into_iter().map(|id| (id, Path::Xsk)).collect();
            assert_eq!(answered, expected, "round {round}");
        }
    }
    let counters = echo.socket.counters();
    assert_eq!(
        (counters.received, counters.sent, counters.bad_addresses),
        (640, 640, 0)
    );
    until("every frame back", || {
        echo.turn();
        let census = echo.umem.census([&echo.socket]);
        (census.tx, census.completion, census.pipeline) == (0, 0, 0)
    });
    assert_eq!(
        echo.program.verdicts().unwrap()[Reason::TakeQuery as usize],
        640
    );
    let counted = echo.socket.statistics().unwrap();
    let expected = KernelCounters {
        tx_ring_empty: counted.tx_ring_empty,
        ..KernelCounters::default()
    };
    assert_eq!(counted, expected);
}

#[test]
fn queries_are_answered_in_native_mode() {
    echoes_in(AttachMode::Native, "native");
}

#[test]
fn queries_are_answered_in_generic_mode() {
    echoes_in(AttachMode::Generic, "generic");
}

#[test]
fn a_queue_without_a_socket_is_left_to_the_kernel() {
    let Some(lab) = lab_of_two_queues("queue") else {
        return;
    };
    let mut echo = inside(&lab.server(), || {
        Echo::start(SERVER_CLIENTS, AttachMode::Native)
    });
    let _witness = Witness::start(&lab.server(), &SERVED);
    let mut seen = [0; 2];
    // The source port decides the queue.
    for _ in 0..64 {
        let mut client = Client::new(&lab, 0);
        client.send();
        let mut answer = None;
        until("an answer on either path", || {
            echo.turn();
            answer = client.receive(NOW);
            answer.is_some()
        });
        seen[answer.unwrap().1 as usize] += 1;
    }
    let verdicts = echo.program.verdicts().unwrap();
    assert_eq!(
        verdicts[Reason::TakeQuery as usize],
        seen[Path::Xsk as usize]
    );
    assert_eq!(
        verdicts[Reason::PassSocket as usize],
        seen[Path::Kernel as usize]
    );
    assert!(
        seen.iter().all(|&count| count > 0),
        "both queues were used: {seen:?}"
    );
}

#[test]
fn a_full_tx_ring_gives_the_frame_back() {
    let Some(lab) = lab("full") else { return };
    let mut echo = inside(&lab.server(), || {
        Echo::start(SERVER_CLIENTS, AttachMode::Native)
    });
    let mut refused = None;
    let mut sent = 0;
    while refused.is_none() {
        let frame = echo.umem.take().unwrap();
        echo.umem.chunk_mut(&frame)[..60].fill(0);
        match echo.socket.send(frame, 0, 60) {
            Ok(()) => sent += 1,
            Err(frame) => refused = Some(frame),
        }
    }
    assert_eq!(sent, RINGS.tx);
    echo.umem.give(refused.unwrap());
    assert_eq!(echo.socket.flush(), Flushed::Drained);
    let wakeups = echo.socket.counters().wakeups;
    let expected = RINGS.tx.div_ceil(echo.socket.budget());
    assert!(
        wakeups <= u64::from(expected) + 1,
        "{wakeups} wake-ups for {sent} frames"
    );
    until("every frame back", || {
        echo.turn() == 0 && echo.umem.census([&echo.socket]).tx == 0
    });
}

#[test]
fn words_are_replaced_in_the_checksum_too() {
    let mut frame = vec![0x12; 60];
    add_to_word(&mut frame, 40, 44, 1);
    assert_eq!(
        (frame[45], frame[40..42].to_vec()),
        (0x13, vec![0x12, 0x11])
    );
}
