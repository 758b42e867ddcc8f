//! Frames that nobody should send (F1 to F7, F9 to F12): by AF_PACKET, from the clients' side.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;

use super::{Fault, Harm, Kind};
use crate::dns::Query;
use crate::frame::{Checksum, Shape};
use crate::lab::{CLIENT_V4, CLIENT_V6, Lab, SERVER_V4, SERVER_V6, TO_SERVER};
use crate::soak::ground::Ground;
use crate::soak::random::Random;
use crate::sys::PacketSocket;
use crate::{During, Outcome};

pub(super) const KINDS: [Kind; 3] = [
    Kind {
        name: "frames-messages",
        draw: |random| Box::new(Frames::draw(random, Mischief::Messages)),
    },
    Kind {
        name: "frames-headers",
        draw: |random| Box::new(Frames::draw(random, Mischief::Headers)),
    },
    Kind {
        name: "frames-lengths",
        draw: |random| Box::new(Frames::draw(random, Mischief::Lengths)),
    },
];

/// What is wrong with them.
#[derive(Debug, Clone, Copy)]
enum Mischief {
    /// DNS messages with octets changed, in packets that are sound.
    Messages,
    /// Checksums, lengths, options, extension headers, fragments, tags.
    Headers,
    /// Frames that are cut.
    Lengths,
}

#[derive(Debug)]
struct Frames {
    mischief: Mischief,
    seed: u64,
    count: u64,
}

impl Frames {
    fn draw(random: &mut Random, mischief: Mischief) -> Self {
        Self {
            mischief,
            seed: random.next(),
            count: random.between(500, 3_000),
        }
    }

    /// The same for the same seed.
    fn frames(&self) -> Vec<Vec<u8>> {
        let mut random = Random::new(self.seed);
        (0..self.count)
            .flat_map(|_| self.mischief.frames(&mut random))
            .collect()
    }
}

impl Display for Frames {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let mischief = format!("{:?}", self.mischief).to_lowercase();
        write!(
            formatter,
            "{} frames with bad {mischief}, of seed {}",
            self.count, self.seed
        )
    }
}

impl Fault for Frames {
    fn harm(&self) -> Harm {
        Harm::None
    }

    fn begin(&mut self, ground: &mut Ground) -> Outcome<()> {
        send(&ground.lab, &self.frames())
    }
}

/// Sends whole frames from the clients' interface. What its own kernel does not take is not sent.
pub(super) fn send(lab: &Lab, frames: &[Vec<u8>]) -> Outcome<()> {
    let sent = lab.client().run(|| {
        let socket = PacketSocket::open(TO_SERVER)?;
        for frame in frames {
            let _ = socket.send(frame);
        }
        Ok::<(), std::io::Error>(())
    });
    sent?.during("sending frames")
}

impl Mischief {
    fn frames(self, random: &mut Random) -> Vec<Vec<u8>> {
        let (client, server) = if random.between(0, 1) == 0 {
            (CLIENT_V4, SERVER_V4)
        } else {
            (CLIENT_V6, SERVER_V6)
        };
        // A port that neither floodgate nor the kernel's clients have.
        let source = SocketAddr::new(client, random.between(1_024, 9_999) as u16);
        let destination = SocketAddr::new(server, 53);
        let mut message = query(random);
        let mut shape = Shape::default();
        match self {
            Self::Messages => change(&mut message, random),
            Self::Headers => shape = wrong_headers(random),
            Self::Lengths => shape.cut_octets = Some(random.between(14, 90) as usize),
        }
        shape.frames(source, destination, &message)
    }
}

fn query(random: &mut Random) -> Vec<u8> {
    let name = format!("m{}.refused.example.", random.next() % 100_000);
    Query::new(&name, "A").expect("a good name").octets()
}

/// Up to eight octets anywhere, and perhaps an end that comes too soon or too late.
fn change(message: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.between(1, 8) {
        let place = random.between(0, message.len() as u64 - 1) as usize;
        message[place] = random.next() as u8;
    }
    match random.between(0, 3) {
        0 => message.truncate(random.between(0, message.len() as u64) as usize),
        1 => message.extend((0..random.between(1, 600)).map(|_| random.next() as u8)),
        _ => {}
    }
}

fn wrong_headers(random: &mut Random) -> Shape {
    let checksum =
        |random: &mut Random| random.one_of(&[Checksum::Right, Checksum::Wrong, Checksum::Zero]);
    let mut shape = Shape {
        ip_checksum: checksum(random),
        udp_checksum: checksum(random),
        ..Shape::default()
    };
    match random.between(0, 6) {
        0 => shape.ip_length_offset = random.between(0, 40) as i32 - 20,
        1 => shape.udp_length_offset = random.between(0, 40) as i32 - 20,
        2 => shape.ip_options = vec![1; 4 * random.between(1, 10) as usize],
        // Hop-by-hop and destination options.
        3 => {
            shape.extensions = (0..random.between(1, 10))
                .map(|_| random.one_of(&[0, 60]))
                .collect()
        }
        4 => shape.fragments = random.between(2, 4) as usize,
        5 => shape.vlan = Some(random.between(1, 4_094) as u16),
        _ => shape.ip_length_zero = true,
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_frames_again() {
        for mischief in [Mischief::Messages, Mischief::Headers, Mischief::Lengths] {
            let frames = |seed| {
                let count = 300;
                Frames {
                    mischief,
                    seed,
                    count,
                }
                .frames()
            };
            assert_eq!(frames(1), frames(1));
            assert_ne!(frames(1), frames(2));
        }
    }
}
