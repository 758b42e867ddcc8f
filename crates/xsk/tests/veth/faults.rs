//! Rows of faults.md that meet the rings: each test carries its number.

use std::time::Duration;

use testnet::lab::{SERVER_CLIENTS, TO_SERVER};
use xsk::{AttachMode, Flushed, Reason};

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
        lab.server()
            .ip(&format!("link set {SERVER_CLIENTS} up\n"))
            .unwrap();
        until("the frame has left", || {
            echo.socket.flush() == Flushed::Drained
        });
    }
    until("AF_XDP answers", || {
        client.ask_of(&mut echo) == Some(Path::Xsk)
    });
    until("every frame back", || {
        echo.turn() == 0 && echo.umem.census([&echo.socket]).tx == 0
    });
}

#[test]
fn f25_f26_full_rings_empty_by_themselves() {
    let Some(lab) = lab("starved") else { return };
    let mut echo = inside(&lab.server(), || {
        Echo::start(SERVER_CLIENTS, AttachMode::Native)
    });
    let _witness = Witness::start(&lab.server(), &SERVED[..1]);
    let mut client = Client::new(&lab, 0);
    // Nobody takes frames: the rings fill, and what finds them full is lost.
    for _ in 0..4 * RINGS.rx {
        client.send();
    }
    until("a full RX ring", || echo.socket.waiting().0 == RINGS.rx);
    until("nothing waits", || echo.turn() == 0);
    for _ in 0..100 {
        assert_eq!(client.ask_of(&mut echo), Some(Path::Xsk));
    }
    let census = echo.umem.census([&echo.socket]);
    assert_eq!((census.total(), census.quarantine), (RINGS.frames(), 0));
}
