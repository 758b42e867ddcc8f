//! Rows of tests/FAULTS.md that meet the rings: each test carries its number.

use std::time::Duration;

use testnet::lab::{SERVER_CLIENTS, TO_SERVER};
use xsk::{AttachMode, CHUNK, Flushed, ROOM, Reason, Umem};

use crate::lab::{Client, Echo, Path, RINGS, SERVED, Witness, inside, lab, until};

const NOW: Duration = Duration::ZERO;

#[test]
fn f7_frames_larger_than_a_chunk_are_left_to_the_kernel() {
    let Some(lab) = lab("large") else { return };
    for (namespace, interface) in [(lab.server(), SERVER_CLIENTS), (lab.client(), TO_SERVER)] {
        namespace
            .ip(&format!("link set {interface} mtu 3506\n"))
            .unwrap();
    }
    let mut echo = inside(&lab.server(), || {
        Echo::start(SERVER_CLIENTS, AttachMode::Native)
    });
    let _witness = Witness::start(&lab.server(), &SERVED);
    let mut client = Client::new(&lab, 0);
    for padding in [1714, 1715, 2048, 3400] {
        let id = client.send_padded(padding);
        let mut answered = None;
        until("an answer", || {
            echo.turn();
            answered = client.receive(NOW);
            answered.is_some()
        });
        // Ethernet, IPv4, UDP and the query make 78 octets of the 1,792.
        let path = if padding <= 1714 {
            Path::Xsk
        } else {
            Path::Kernel
        };
        assert_eq!(answered, Some((id, path)), "{padding} octets of padding");
    }
    let verdicts = echo.program.verdicts().unwrap();
    assert_eq!(verdicts[Reason::TakeQuery as usize], 1);
    assert_eq!(
        verdicts[Reason::PassLarge as usize] + verdicts[Reason::PassBuffers as usize],
        3
    );
    assert_eq!(echo.socket.statistics().unwrap().rx_dropped, 0);
    let Echo {
        mut umem, socket, ..
    } = echo;
    drop(socket);
    until("every frame back", || {
        umem.reclaim();
        umem.census([]).free == RINGS.frames()
    });
    check_canaries(&mut umem);
}

/// Frames were mapped as zeros: only the one that held the query that AF_XDP got may be otherwise, and only between its
/// headroom and its end.
fn check_canaries(umem: &mut Umem) {
    let mut touched = Vec::new();
    while let Some(frame) = umem.take() {
        let chunk = umem.chunk(&frame);
        let first = chunk.iter().position(|octet| *octet != 0);
        touched.extend(first.map(|first| (first, chunk.iter().rposition(|octet| *octet != 0))));
        // Kept out of the free list, or it would come again.
        std::mem::forget(frame);
    }
    assert_eq!(touched.len(), 1, "{touched:?}");
    let (first, last) = touched[0];
    assert!(first >= CHUNK - ROOM, "headroom: {first}");
    assert!(last < Some(CHUNK), "{last:?}");
}

#[test]
fn f22_a_link_that_goes_down_and_up_loses_no_frames() {
    let Some(lab) = lab("flap") else { return };
    let mut echo = inside(&lab.server(), || {
        Echo::start(SERVER_CLIENTS, AttachMode::Native)
    });
    let _witness = Witness::start(&lab.server(), &SERVED[..1]);
    let mut client = Client::new(&lab, 0);
    for _ in 0..50 {
        client.reach(&mut echo);
        until("AF_XDP answers", || {
            client.ask_of(&mut echo) == Some(Path::Xsk)
        });
        lab.server()
            .ip(&format!("link set {SERVER_CLIENTS} down\n"))
            .unwrap();
        let frame = echo.umem.take().unwrap();
        echo.umem.chunk_mut(&frame)[..60].fill(0);
        echo.socket.send(frame, 0, 60).unwrap();
        assert_eq!(echo.socket.flush(), Flushed::Down(libc::ENETDOWN));
        assert_eq!(echo.socket.unsent(), 1);
        lab.server()
            .ip(&format!("link set {SERVER_CLIENTS} up\n"))
            .unwrap();
        until("the frame has left", || {
            echo.socket.flush() == Flushed::Drained
        });
        assert_eq!(echo.socket.unsent(), 0);
    }
    client.reach(&mut echo);
    until("AF_XDP answers", || {
        client.ask_of(&mut echo) == Some(Path::Xsk)
    });
    until("every frame back", || {
        echo.turn() == 0 && echo.umem.census([&echo.socket]).tx == 0
    });
}

#[test]
fn f25_a_tx_ring_whose_frames_do_not_leave_takes_no_more_than_it_holds() {
    let Some(lab) = lab("withheld") else { return };
    let mut echo = inside(&lab.server(), || {
        Echo::start(SERVER_CLIENTS, AttachMode::Native)
    });
    let _witness = Witness::start(&lab.server(), &SERVED[..1]);
    let mut client = Client::new(&lab, 0);
    for _ in 0..3 {
        client.reach(&mut echo);
        until("AF_XDP answers", || {
            client.ask_of(&mut echo) == Some(Path::Xsk)
        });
        lab.server()
            .ip(&format!("link set {SERVER_CLIENTS} down\n"))
            .unwrap();
        let sent = fill_tx(&mut echo);
        assert_eq!(sent, RINGS.tx, "as many as the ring holds");
        // Nothing leaves, nothing is completed, and nothing is lost.
        assert_eq!(echo.socket.flush(), Flushed::Down(libc::ENETDOWN));
        assert_eq!(fill_tx(&mut echo), 0);
        let census = echo.umem.census([&echo.socket]);
        assert_eq!((census.tx, census.pipeline), (RINGS.tx, 0));
        assert_eq!(census.total(), RINGS.frames());
        lab.server()
            .ip(&format!("link set {SERVER_CLIENTS} up\n"))
            .unwrap();
        // A wake-up sends 32 at most in copy mode: it is tried again until the ring is drained.
        until("all have left", || {
            echo.turn();
            echo.socket.flush() == Flushed::Drained && echo.umem.census([&echo.socket]).tx == 0
        });
    }
    client.reach(&mut echo);
    until("AF_XDP answers", || {
        client.ask_of(&mut echo) == Some(Path::Xsk)
    });
}

/// Sends frames of zeros until the ring takes no more; how many it took.
fn fill_tx(echo: &mut Echo) -> u32 {
    let mut sent = 0;
    loop {
        let frame = echo.umem.take().unwrap();
        echo.umem.chunk_mut(&frame)[..60].fill(0);
        if let Err(frame) = echo.socket.send(frame, 0, 60) {
            echo.umem.give(frame);
            return sent;
        }
        sent += 1;
    }
}

#[test]
fn f25_f26_full_rings_empty_by_themselves() {
    let Some(lab) = lab("starved") else { return };
    let mut echo = inside(&lab.server(), || {
        Echo::start(SERVER_CLIENTS, AttachMode::Native)
    });
    let _witness = Witness::start(&lab.server(), &SERVED[..1]);
    let mut client = Client::new(&lab, 0);
    // Nobody takes frames: the rings fill, and what finds them full is lost. The worker shows life meanwhile, else on a machine
    // that is frozen for 100 ms it would be passed by before they are full.
    for _ in 0..4 * RINGS.rx {
        echo.heartbeat.beat();
        client.send();
    }
    until("a full RX ring", || echo.socket.waiting().0 == RINGS.rx);
    until("nothing waits", || {
        // On a slow machine frames still come: their answers would leave no room for those that are asked for below.
        while client.receive(Duration::ZERO).is_some() {}
        echo.turn() == 0
    });
    for _ in 0..100 {
        assert_eq!(client.ask_of(&mut echo), Some(Path::Xsk));
    }
    let census = echo.umem.census([&echo.socket]);
    assert_eq!((census.total(), census.quarantine), (RINGS.frames(), 0));
}
