//! The backend: it answers late, twice, never, with junk, in any order.

use super::clients::{OUR_MAC, SERIAL_OPTION, frame_of};
use super::{Checked, Violation};
use crate::clock::Now;
use crate::random::Random;
use std::time::Duration;
use wire::frame::{Headers, Mac, Packet};
use wire::message::HEADER_LENGTH;

pub(super) const MAC: Mac = [2, 0, 0, 0, 0, 3];

/// The port of the server with `dscp`, and what that says.
const MARKED_PORT: u16 = 5_353;
const CODE_POINT: u8 = 46;

/// A query that came.
struct Pending {
    since: Now,
    packet: Packet,
    message: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Backend {
    pending: Vec<Pending>,
}

impl Backend {
    /// A frame that left towards us.
    pub(super) fn receive(&mut self, frame: &[u8], now: Now) -> Checked {
        let packet = Packet::parse(frame, false)
            .map_err(|error| Violation::new("I2", format!("a bad frame: {}", error.name())))?;
        let marked = match packet.destination.port() {
            MARKED_PORT => CODE_POINT << 2,
            _ => 0,
        };
        if packet.destination.is_ipv4() && frame[15] != marked {
            let text = format!("type of service {} instead of {marked}", frame[15]);
            return Err(Violation::new("I2", text));
        }
        let message = packet.payload(frame).to_vec();
        self.pending.push(Pending {
            since: now,
            packet,
            message,
        });
        Ok(())
    }

    /// What it sends next: frames, right or wrong.
    pub(super) fn act(&mut self, random: &mut Random) -> Vec<Vec<u8>> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let place = random.below(self.pending.len() as u32) as usize;
        match random.below(12) {
            0..=5 => vec![self.pending.swap_remove(place).answer()],
            6 => {
                let answer = self.pending.swap_remove(place).answer();
                vec![answer.clone(), answer]
            }
            7 => {
                self.pending.swap_remove(place);
                Vec::new()
            }
            junk => vec![self.pending[place].junk(junk)],
        }
    }

    /// Answers everything.
    pub(super) fn answer_all(&mut self) -> Vec<Vec<u8>> {
        let pending = self.pending.drain(..);
        pending.map(|pending| pending.answer()).collect()
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
    fn answer(&self) -> Vec<u8> {
        frame_of(&self.message_of_answer(), &self.headers())
    }

    /// Something that ends no wait (I7).
    fn junk(&self, kind: u32) -> Vec<u8> {
        let mut message = self.message_of_answer();
        let mut headers = self.headers();
        match kind {
            8 => message[HEADER_LENGTH + 1] ^= 1,
            9 => headers.source.set_port(9),
            10 => message.truncate(HEADER_LENGTH),
            _ => message[2] &= 0x7f,
        }
        frame_of(&message, &headers)
    }

    fn headers(&self) -> Headers {
        Headers {
            source_mac: MAC,
            destination_mac: OUR_MAC,
            source: self.packet.destination,
            destination: self.packet.source,
            code_point: 0,
        }
    }

    /// The question, and one address that tells what was asked.
    fn message_of_answer(&self) -> Vec<u8> {
        let question = self.question_end();
        let mut answer = self.message[..question].to_vec();
        answer[2] |= 0x80;
        answer[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
        answer.extend(*b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04");
        answer.extend(self.address());
        answer
    }

    fn question_end(&self) -> usize {
        let name = &self.message[HEADER_LENGTH..];
        let root = name.iter().position(|&octet| octet == 0);
        HEADER_LENGTH + root.expect("a name ends") + 5
    }

    /// The serial number of a query that tells it, else the number of the name.
    fn address(&self) -> [u8; 4] {
        let end = self.message.len();
        let option = SERIAL_OPTION.to_be_bytes();
        if self.message[..end - 4].ends_with(&[option[0], option[1], 0, 4]) {
            let serial = self.message[end - 4..].first_chunk();
            return *serial.expect("four octets");
        }
        [10, 0, 0, self.message[HEADER_LENGTH + 1] - b'a']
    }
}
