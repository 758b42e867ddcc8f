//! The backends: they answer late, twice, never, with junk or an error, in any order.

use super::clients::{OUR_MAC, SERIAL_OPTION, frame_of};
use super::keys::Key;
use super::races::{LegAnswer, Said};
use super::{Checked, Violation};
use crate::clock::Now;
use crate::random::Random;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use wire::codes::rcode;
use wire::frame::{Family, Headers, Mac, Packet};
use wire::message::HEADER_LENGTH;

const MAC: Mac = [2, 0, 0, 0, 0, 3];

/// The port of the server with `dscp`, and what that says.
const MARKED_PORT: u16 = 5_353;
const CODE_POINT: u8 = 46;

/// Servers with this identity or a greater one are asked together with others, and sometimes have an error to say.
const FIRST_OF_SEVERAL: u8 = 11;

/// A query that came.
struct Pending {
    since: Now,
    packet: Packet,
    message: Vec<u8>,
}

/// A frame on its way to us.
pub(super) struct Sent {
    pub(super) frame: Vec<u8>,
    pub(super) family: Family,
    /// Whose query it is for, where that is known.
    pub(super) leg: Option<LegAnswer>,
}

#[derive(Default)]
pub(super) struct Backend {
    pending: Vec<Pending>,
    /// Those of all queries that came, in order.
    pub(super) keys: Vec<Key>,
}

/// Which server this is: the last octet of its address. Two ports of one address are one server.
pub(super) fn identity(server: SocketAddr) -> u8 {
    match server.ip() {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    }
}

/// Whether the server is asked together with others.
pub(super) fn is_one_of_several(server: SocketAddr) -> bool {
    identity(server) >= FIRST_OF_SEVERAL
}

impl Backend {
    /// A frame that left towards us.
    pub(super) fn receive(&mut self, packet: &Packet, frame: &[u8], now: Now) -> Checked {
        let marked = match packet.destination.port() {
            MARKED_PORT => CODE_POINT << 2,
            _ => 0,
        };
        let mark = match packet.family() {
            Family::V4 => frame[15],
            // RFC 8200 §3: the traffic class lies across the first two octets.
            Family::V6 => frame[14] << 4 | frame[15] >> 4,
        };
        if mark != marked {
            let text = format!("type of service {mark} instead of {marked}");
            return Err(Violation::new("I2", text));
        }
        let message = packet.payload(frame).to_vec();
        self.keys.push(Key {
            source: packet.source,
            id: u16::from_be_bytes([message[0], message[1]]),
            is_marked: marked != 0,
        });
        self.pending.push(Pending {
            since: now,
            packet: *packet,
            message,
        });
        Ok(())
    }

    /// What they send next: frames, right or wrong.
    pub(super) fn act(&mut self, random: &mut Random) -> Vec<Sent> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let place = random.below(self.pending.len() as u32) as usize;
        match random.below(12) {
            0..=5 => vec![self.pending.swap_remove(place).answer_or_error(random)],
            6 => {
                let pending = self.pending.swap_remove(place);
                vec![
                    pending.answer_or_error(random),
                    pending.answer_or_error(random),
                ]
            }
            7 => {
                self.pending.swap_remove(place);
                Vec::new()
            }
            junk => vec![self.pending[place].junk(junk)],
        }
    }

    /// Answers everything.
    pub(super) fn answer_all(&mut self) -> Vec<Sent> {
        let pending = self.pending.drain(..);
        pending.map(|pending| pending.answer(true)).collect()
    }

    pub(super) fn forget_older(&mut self, now: Now, oldest: Duration) {
        self.pending
            .retain(|pending| now.since(pending.since) < oldest);
    }

    pub(super) fn forget_all(&mut self) {
        self.pending.clear();
    }
}

impl Pending {
    fn answer_or_error(&self, random: &mut Random) -> Sent {
        let is_error = is_one_of_several(self.packet.destination) && random.below(3) == 0;
        self.answer(!is_error)
    }

    fn answer(&self, is_good: bool) -> Sent {
        let server = self.packet.destination;
        let message = answer_to(&self.message, server, is_good);
        let said = if is_good { Said::Good } else { Said::Error };
        Sent {
            frame: frame_of(&message, &self.headers()),
            family: self.packet.family(),
            leg: self.leg(said),
        }
    }

    fn leg(&self, said: Said) -> Option<LegAnswer> {
        Some(LegAnswer {
            serial: serial_of(&self.message)?,
            server: identity(self.packet.destination),
            said,
        })
    }

    /// Something that ends no wait (I7).
    fn junk(&self, kind: u32) -> Sent {
        let mut message = answer_to(&self.message, self.packet.destination, true);
        let mut headers = self.headers();
        let another = another_than(self.packet.destination);
        match kind {
            8 => message[HEADER_LENGTH + 1] ^= 1,
            9 => headers.source = &another,
            10 => message.truncate(HEADER_LENGTH),
            _ => message[2] &= 0x7f,
        }
        Sent {
            frame: frame_of(&message, &headers),
            family: self.packet.family(),
            leg: self.leg(Said::Junk),
        }
    }

    fn headers(&self) -> Headers<'_> {
        Headers {
            source_mac: &MAC,
            destination_mac: &OUR_MAC,
            source: &self.packet.destination,
            destination: &self.packet.source,
            code_point: 0,
        }
    }
}

/// A server that was not asked: one of ours, so that the program lets it through, or nobody's where there is no other one.
fn another_than(server: SocketAddr) -> SocketAddr {
    let plain = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 2), 53));
    match server.is_ipv4() {
        true if server == plain => SocketAddr::new(plain.ip(), MARKED_PORT),
        true => plain,
        false => SocketAddr::new(server.ip(), 9),
    }
}

/// The question, and one address that tells what was asked, and whom; or the question and SERVFAIL.
pub(super) fn answer_to(query: &[u8], server: SocketAddr, is_good: bool) -> Vec<u8> {
    let mut answer = query[..question_end(query)].to_vec();
    answer[2] |= 0x80;
    answer[6..12].copy_from_slice(&[0, u8::from(is_good), 0, 0, 0, 0]);
    if is_good {
        answer.extend(*b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04");
        answer.extend(address(query, server));
    } else {
        answer[3] = answer[3] & 0xf0 | rcode::SERVFAIL as u8;
    }
    answer
}

fn question_end(query: &[u8]) -> usize {
    let name = &query[HEADER_LENGTH..];
    let root = name.iter().position(|&octet| octet == 0);
    HEADER_LENGTH + root.expect("a name ends") + 5
}

/// The server's identity and the serial number of a query that tells it, else the number of the name.
fn address(query: &[u8], server: SocketAddr) -> [u8; 4] {
    match serial_of(query) {
        Some(serial) => address_of(identity(server), serial),
        None => [10, 0, 0, query[HEADER_LENGTH + 1] - b'a'],
    }
}

/// What a server answers to the query with this serial number.
pub(super) fn address_of(server: u8, serial: usize) -> [u8; 4] {
    let [_, rest @ ..] = (serial as u32).to_be_bytes();
    [server, rest[0], rest[1], rest[2]]
}

fn serial_of(query: &[u8]) -> Option<usize> {
    let (before, serial) = query.split_last_chunk::<4>()?;
    let option = SERIAL_OPTION.to_be_bytes();
    before
        .ends_with(&[option[0], option[1], 0, 4])
        .then(|| u32::from_be_bytes(*serial) as usize)
}
