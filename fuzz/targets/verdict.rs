//! The kernel program against the parser in Rust: what one redirects the other reads, and the other way round.
//!
//! They may differ where the program does not look: checksums, source addresses and ports, a group as the Ethernet source.

#![no_main]

use fuzz::ffi::Kernel;
use fuzz::frames::repair;
use fuzz::input::Input;
use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, SocketAddr};
use wire::frame::{FrameError, Mac, Packet};
use xsk::{ROOM, Reason};

const OUR_MAC: Mac = [2, 0, 0, 0, 0, 1];

/// Addresses that may be served, in the order in which steps add them.
const SERVED: [&str; 4] = [
    "192.0.2.1:53",
    "[2001:db8::1]:53",
    "192.0.2.1:5300",
    "192.0.2.9:53",
];

/// Our address, the backend, and the bitmap of our ports.
const BACKENDS: [(&str, &str, u32); 2] = [
    ("192.0.2.1", "192.0.2.2:53", 0),
    ("2001:db8::1", "[2001:db8::2]:53", 1),
];

/// What the program was told, as the simplest of models.
struct World {
    kernel: Kernel,
    served: Vec<SocketAddr>,
    backends: Vec<(IpAddr, SocketAddr, u32)>,
    /// Bitmaps and ports.
    open: Vec<(u32, u16)>,
}

fuzz_target!(|octets: &[u8]| {
    let mut world = World::new();
    let mut input = Input::new(octets);
    while let Some(step) = input.octet() {
        match step % 8 {
            0 => world.serve(),
            1 => world.unserve(),
            2 => world.toggle_port(u32::from(step) / 8 % 2, input.number().unwrap_or(40_000)),
            _ => {
                let mut frame = input.piece().unwrap_or_default().to_vec();
                frame.truncate(4_096);
                world.compare(&frame);
                repair(&mut frame);
                world.compare(&frame);
            }
        }
    }
});

impl World {
    fn new() -> World {
        let mut world = World {
            kernel: Kernel::load(OUR_MAC),
            served: Vec::new(),
            backends: Vec::new(),
            open: Vec::new(),
        };
        for (local, remote, bitmap) in BACKENDS {
            let backend = (local.parse().unwrap(), remote.parse().unwrap(), bitmap);
            world.kernel.trust(backend.0, backend.1, bitmap);
            world.backends.push(backend);
            world.toggle_port(bitmap, 40_000);
        }
        world.serve();
        world.serve();
        world
    }

    fn serve(&mut self) {
        if let Some(next) = SERVED.get(self.served.len()) {
            let next = next.parse().unwrap();
            self.kernel.serve(next);
            self.served.push(next);
        }
    }

    fn unserve(&mut self) {
        self.kernel.unserve();
        self.served.pop();
    }

    fn toggle_port(&mut self, bitmap: u32, port: u16) {
        let was_open = self.open.contains(&(bitmap, port));
        self.kernel.set_port(bitmap, port, !was_open);
        match was_open {
            true => self.open.retain(|other| *other != (bitmap, port)),
            false => self.open.push((bitmap, port)),
        }
    }

    fn compare(&mut self, frame: &[u8]) {
        let reason = self.kernel.steer(frame);
        for accept_partial in [false, true] {
            match Packet::parse(frame, accept_partial) {
                Ok(packet) => assert_eq!(reason, self.expected(frame, &packet), "{packet:?}"),
                Err(error) => assert!(
                    is_not_looked_at(error) || is_unreadable(reason),
                    "{reason:?}, but {error}"
                ),
            }
        }
    }

    /// What `bpf/README.md`'s table says of a good datagram, row by row.
    fn expected(&self, frame: &[u8], packet: &Packet) -> Reason {
        if packet.destination_mac != OUR_MAC {
            return Reason::PassMac;
        }
        let destination = packet.destination;
        let backend = self
            .backends
            .iter()
            .find(|(local, remote, _)| (*local, *remote) == (destination.ip(), packet.source));
        let taken = match backend {
            _ if self.served.contains(&destination) => Reason::TakeQuery,
            None => return Reason::PassOther,
            Some((.., bitmap)) if self.open.contains(&(*bitmap, destination.port())) => {
                Reason::TakeAnswer
            }
            Some(_) => return Reason::PassPort,
        };
        match frame.len() {
            _ if packet.payload_length < 12 => Reason::PassDns,
            length if length > ROOM => Reason::PassLarge,
            _ => taken,
        }
    }
}

/// Errors that the program leaves to us.
fn is_not_looked_at(error: FrameError) -> bool {
    matches!(
        error,
        FrameError::GroupSourceMac
            | FrameError::IpChecksum
            | FrameError::MartianSource
            | FrameError::SourcePortZero
            | FrameError::UdpChecksum
            | FrameError::UdpChecksumAbsent
    )
}

/// Rows of the table that say: no datagram that we read, or not to us.
fn is_unreadable(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::PassShort
            | Reason::PassMac
            | Reason::PassProtocol
            | Reason::PassOptions
            | Reason::PassFragment
            | Reason::PassTransport
            | Reason::PassLength
    )
}
