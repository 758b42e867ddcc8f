//! Two devices, one UMEM.

use std::net::{SocketAddr, UdpSocket};

use testnet::lab::{Lab, SERVER_BACKENDS, SERVER_CLIENTS};
use xsk::{AttachMode, Batch, Flushed, Program, Received, Socket, Umem, UmemOptions};

use crate::lab::{COPY, RINGS, SERVED, Witness, attached, inside, lab, query, replace_word, until};

/// Two devices, one UMEM: what the bare forwarder does.
struct Forwarder {
    programs: [Program; 2],
    umem: Umem,
    sockets: [Socket; 2],
    batch: Batch,
    peers: [Option<[u8; 6]>; 2],
}

const BACKEND: &str = "198.51.100.2:5353";
const LOCAL: &str = "198.51.100.1:20001";
const BACKEND_MAC: [u8; 6] = [2, 0, 0, 0, 2, 2];
const BACKEND_SIDE_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];

impl Forwarder {
    fn start() -> Forwarder {
        let (clients, clients_nic) = attached(SERVER_CLIENTS, AttachMode::Native);
        let (mut backends, backends_nic) = attached(SERVER_BACKENDS, AttachMode::Native);
        let local: SocketAddr = LOCAL.parse().unwrap();
        backends
            .add_backend(local.ip(), BACKEND.parse().unwrap())
            .unwrap();
        backends.open_port(local.ip(), local.port()).unwrap();
        let mut umem = Umem::new(2 * RINGS.frames(), UmemOptions::default()).unwrap();
        let one = Socket::bind(&mut umem, clients_nic.index, 0, COPY).unwrap();
        let other = Socket::bind(&mut umem, backends_nic.index, 0, COPY).unwrap();
        clients.enter(0, &one).unwrap();
        backends.enter(0, &other).unwrap();
        Forwarder {
            programs: [clients, backends],
            umem,
            sockets: [one, other],
            batch: Batch::new(),
            peers: [None; 2],
        }
    }

    /// Frames of each device leave by the other, in place.
    fn turn(&mut self) {
        for side in 0..2 {
            for socket in &mut self.sockets {
                socket.complete(&mut self.umem);
                socket.refill(&mut self.umem);
            }
            let taken = self.sockets[side].receive(&mut self.umem, &mut self.batch);
            for Received {
                frame,
                start,
                length,
            } in self.batch.drain()
            {
                let octets =
                    &mut self.umem.chunk_mut(&frame)[start as usize..(start + length) as usize];
                if side == 0 {
                    self.peers[0] = Some(octets[6..12].try_into().unwrap());
                    readdress(octets, BACKEND_SIDE_MAC, BACKEND_MAC, LOCAL, BACKEND);
                } else {
                    let client = self.peers[0].expect("a query came first");
                    readdress(
                        octets,
                        testnet::lab::SERVER_MAC,
                        client,
                        SERVED[0],
                        "192.0.2.100:3001",
                    );
                }
                if let Err(frame) = self.sockets[1 - side].send(frame, start, length) {
                    self.umem.give(frame);
                }
            }
            self.sockets[1 - side].flush();
            if taken > 0 {
                self.programs[side].heartbeat(0).unwrap().beat();
            }
        }
        assert_eq!(self.umem.census(&self.sockets).total(), self.umem.frames());
    }
}

/// Gives an IPv4 frame new ends; only words change, so both checksums are adjusted.
fn readdress(frame: &mut [u8], from_mac: [u8; 6], to_mac: [u8; 6], from: &str, to: &str) {
    frame[..6].copy_from_slice(&to_mac);
    frame[6..12].copy_from_slice(&from_mac);
    for (at, port_at, end) in [(26, 34, from), (30, 36, to)] {
        let SocketAddr::V4(end) = end.parse().unwrap() else {
            panic!("{end} is not IPv4")
        };
        let octets = end.ip().octets();
        for (at, word) in [
            (at, [octets[0], octets[1]]),
            (at + 2, [octets[2], octets[3]]),
        ] {
            let word = u16::from_be_bytes(word);
            let before = frame[at..at + 2].to_vec();
            replace_word(frame, 24, at, word);
            frame[at..at + 2].copy_from_slice(&before);
            replace_word(frame, 40, at, word);
        }
        replace_word(frame, 40, port_at, end.port());
    }
}

#[test]
fn two_devices_share_one_umem_in_place_both_ways() {
    let Some(lab) = lab("two") else { return };
    let mut forwarder = inside(&lab.server(), Forwarder::start);
    let _backend = Witness::start(&lab.backend(), &[BACKEND]);
    let client = inside(&lab.client(), || {
        UdpSocket::bind("192.0.2.100:3001").unwrap()
    });
    client.connect(SERVED[0]).unwrap();
    client.set_nonblocking(true).unwrap();
    let mut buffer = [0; 512];
    for id in 0..500u16 {
        client.send(&query(id)).unwrap();
        until("the backend's answer", || {
            forwarder.turn();
            client.recv(&mut buffer).is_ok()
        });
        assert_eq!(
            buffer[..4],
            [(id >> 8) as u8, id as u8, 0x81, 5],
            "ID, QR and the backend's REFUSED"
        );
    }
    let [clients, backends] = &forwarder.sockets;
    assert_eq!(
        (clients.counters().received, backends.counters().received),
        (500, 500)
    );
    assert_eq!(
        clients.counters().bad_addresses + backends.counters().bad_addresses,
        0
    );
    until("every frame back", || {
        forwarder.turn();
        let census = forwarder.umem.census(&forwarder.sockets);
        (census.tx, census.completion, census.pipeline) == (0, 0, 0)
    });
    frames_come_back_when_sockets_close(&lab, forwarder);
}

/// First the one that registered the UMEM closes, a third one joins by the other alone, then all close.
fn frames_come_back_when_sockets_close(lab: &Lab, forwarder: Forwarder) {
    let Forwarder {
        programs,
        mut umem,
        sockets: [first, second],
        ..
    } = forwarder;
    let (interface, total) = (first.interface(), umem.frames());
    programs[0].leave(0).unwrap();
    drop(first);
    let census = umem.census([&second]);
    assert_eq!(
        (census.quarantine, census.total()),
        (RINGS.fill, total),
        "{census:?}"
    );
    umem.reclaim();
    assert_eq!(umem.census([&second]).quarantine, 0);
    let third = inside(&lab.server(), || {
        Socket::bind(&mut umem, interface, 0, COPY)
    })
    .unwrap();
    assert_eq!(umem.census([&second, &third]).fill, 2 * RINGS.fill);
    drop((second, third));
    umem.reclaim();
    assert_eq!(umem.census([]).free, total);
}

#[test]
fn a_device_that_goes_away_gives_its_frames_back() {
    let Some(lab) = lab("gone") else { return };
    let mut forwarder = inside(&lab.server(), Forwarder::start);
    lab.server()
        .ip(&format!("link del {SERVER_CLIENTS}\n"))
        .unwrap();
    until("the program is off", || {
        !forwarder.programs[0].is_attached()
    });
    let frame = forwarder.umem.take().unwrap();
    forwarder.sockets[0].send(frame, 256, 60).unwrap();
    assert!(matches!(
        forwarder.sockets[0].flush(),
        Flushed::Down(libc::ENXIO | libc::ENETDOWN)
    ));
    let Forwarder {
        programs: [_, backends],
        mut umem,
        sockets: [gone, other],
        ..
    } = forwarder;
    drop(gone);
    until("its frames are free", || {
        umem.reclaim();
        umem.census([&other]).quarantine == 0
    });
    assert_eq!(umem.census([&other]).total(), umem.frames());
    assert!(backends.is_attached());
    // Only a live device lets another join.
    let interface = other.interface();
    let second = inside(&lab.server(), || {
        Socket::bind(&mut umem, interface, 1, COPY)
    });
    assert_eq!(second.unwrap().queue(), 1);
}
