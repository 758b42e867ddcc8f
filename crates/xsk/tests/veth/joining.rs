//! What stands in the way of a start: other programs, busy queues.

use std::time::{Duration, Instant};

use testnet::lab::SERVER_CLIENTS;
use xsk::{AttachMode, Error, Options, Program, Socket, Umem, UmemOptions};

use crate::lab::{COPY, Echo, RINGS, attached, inside, lab};

#[test]
fn a_program_of_somebody_else_is_never_replaced() {
    let Some(lab) = lab("other") else { return };
    for (there, ours) in [
        (AttachMode::Native, AttachMode::Auto),
        (AttachMode::Generic, AttachMode::Native),
    ] {
        let refused = inside(&lab.server(), || {
            let (other, nic) = attached(SERVER_CLIENTS, there);
            let refused = Program::load().unwrap().attach(nic.index, ours);
            assert!(other.is_attached());
            refused
        });
        let Err(Error::ForeignProgram { program, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_ne!(program, 0);
    }
}

#[test]
fn a_busy_queue_is_named_after_a_second() {
    let Some(lab) = lab("busy") else { return };
    let echo = inside(&lab.server(), || {
        Echo::start(SERVER_CLIENTS, AttachMode::Native)
    });
    let mut umem = Umem::new(RINGS.frames(), UmemOptions::default()).unwrap();
    let started = Instant::now();
    let interface = echo.socket.interface();
    let a_second = Options {
        patience: Duration::from_secs(1),
        ..COPY
    };
    let refused = inside(&lab.server(), || {
        Socket::bind(&mut umem, interface, 0, a_second)
    });
    assert!(matches!(refused, Err(Error::QueueBusy { queue: 0, .. })));
    assert!(started.elapsed() >= Duration::from_secs(1));
    umem.reclaim();
    assert_eq!(umem.census([]).free, umem.frames());
}
