//! The clients: what they ask, and whether what they get may be.

use super::{Checked, Violation};
use crate::random::Random;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use wire::codes::{class, qtype};
use wire::frame::{Headers, Mac, Packet, write_headers};
use wire::message::{HEADER_LENGTH, Header, QueryFlags, write_query};
use wire::name::Name;

pub(super) const SERVICE: &str = "192.0.2.1:53";
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);
pub(super) const OUR_MAC: Mac = [2, 0, 0, 0, 0, 1];
const CLIENT_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// An EDNS option of local use (RFC 6891 §9) that tells the backend which query it sees.
pub(super) const SERIAL_OPTION: u16 = 65_001;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A rule answers.
    Ruled,
    /// A rule drops it.
    Dropped,
    /// One of a few names, from the backend or the cache.
    Cached(u8),
    /// Always the same name, from the backend each time.
    Fresh,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] = [Kind::Ruled, Kind::Dropped, Kind::Cached(0), Kind::Fresh];

    fn random(random: &mut Random) -> Kind {
        match random.below(8) {
            0 => Kind::Ruled,
            1 => Kind::Dropped,
            2..=3 => Kind::Cached(random.below(3) as u8),
            _ => Kind::Fresh,
        }
    }

    fn name(self) -> Vec<u8> {
        match self {
            Kind::Ruled => b"\x01a\x05ruled\x00".to_vec(),
            Kind::Dropped => b"\x01a\x07dropped\x00".to_vec(),
            Kind::Cached(number) => [b"\x01", &[b'a' + number][..], b"\x06cached\x00"].concat(),
            Kind::Fresh => b"\x01a\x05fresh\x00".to_vec(),
        }
    }
}

/// A query that was sent.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    message: Vec<u8>,
    /// Its frame came into the ring of a worker.
    pub(super) accepted: bool,
    /// The configuration by which it was judged.
    pub(super) judged_by: Option<usize>,
    pub(super) answers: u32,
}

/// All queries, by serial number, which is the client's port less 1,024.
#[derive(Default)]
pub(super) struct Clients {
    pub(super) asked: Vec<Asked>,
    /// Of accepted ones that a worker has not yet taken, by worker.
    pub(super) in_ring: HashMap<usize, Vec<usize>>,
}

impl Clients {
    pub(super) fn ask(&mut self, random: &mut Random) -> Vec<u8> {
        let kind = Kind::random(random);
        self.ask_for(kind, random)
    }

    /// The frame of a new query.
    pub(super) fn ask_for(&mut self, kind: Kind, random: &mut Random) -> Vec<u8> {
        let serial = self.asked.len();
        let message = message(kind, serial, random.next_u32() as u16);
        let frame = frame(&message, serial);
        self.asked.push(Asked {
            kind,
            message,
            accepted: false,
            judged_by: None,
            answers: 0,
        });
        frame
    }

    /// The last query's frame is in the ring of `worker`.
    pub(super) fn accepted(&mut self, worker: usize) {
        let serial = self.asked.len() - 1;
        self.asked[serial].accepted = true;
        self.in_ring.entry(worker).or_default().push(serial);
    }

    /// `worker` has taken all that was in its ring, the configuration of this number being in force.
    pub(super) fn judged(&mut self, worker: usize, configuration: usize) {
        for serial in self.in_ring.remove(&worker).unwrap_or_default() {
            self.asked[serial].judged_by = Some(configuration);
        }
    }

    /// A frame that left towards the clients.
    pub(super) fn receive(&mut self, frame: &[u8]) -> Checked {
        let packet = Packet::parse(frame, false)
            .map_err(|error| Violation::new("I2", format!("a bad frame: {}", error.name())))?;
        let client = packet.destination;
        let serial = usize::from(client.port() - 1_024);
        let message = packet.payload(frame);
        let Some(asked) = self.asked.get_mut(serial) else {
            return Err(Violation::new("I2", format!("{client} asked nothing")));
        };
        let is_for_it = packet.source == SERVICE.parse().expect("an address")
            && packet.destination_mac == CLIENT_MAC
            && packet.source_mac == OUR_MAC;
        if !is_for_it {
            return Err(Violation::new("I2", format!("wrong ends: {packet:?}")));
        }
        asked.answers += 1;
        if asked.answers > 1 {
            return Err(Violation::new("I1", format!("{asked:?} got two answers")));
        }
        check(asked, serial, message)
    }
}

/// Whether `message` answers the query.
fn check(asked: &Asked, serial: usize, message: &[u8]) -> Checked {
    let header = Header::read(message).ok_or_else(|| Violation::new("I2", "no header"))?;
    let question = HEADER_LENGTH..HEADER_LENGTH + asked.kind.name().len() + 4;
    if message[..2] != asked.message[..2]
        || message.get(question.clone()) != asked.message.get(question.clone())
    {
        return Err(Violation::new(
            "I2",
            format!("{message:?} is no answer to {asked:?}"),
        ));
    }
    let address = message.get(question.end + 12..question.end + 16);
    let expected = match asked.kind {
        Kind::Dropped => return Err(Violation::new("I1", "what a rule drops was answered")),
        Kind::Ruled => {
            let rcode = asked.judged_by.map(super::ground::ruled_rcode);
            let is_right = rcode.is_some_and(|rcode| rcode == header.rcode());
            return is_right.then_some(()).ok_or_else(|| {
                Violation::new("I8", format!("RCODE {} for {asked:?}", header.rcode()))
            });
        }
        Kind::Cached(number) => [10, 0, 0, number],
        Kind::Fresh => (serial as u32).to_be_bytes(),
    };
    if address != Some(&expected[..]) {
        let what = format!("{asked:?} got the answer {address:?} to another query");
        return Err(Violation::new("I1", what));
    }
    Ok(())
}

fn message(kind: Kind, serial: usize, id: u16) -> Vec<u8> {
    let name = kind.name();
    let name = Name::parse(&name).expect("a name");
    let flags = QueryFlags {
        recursion_desired: true,
        payload_size: Some(1_232),
        ..QueryFlags::default()
    };
    let mut message = vec![0; 300];
    let length = write_query(&mut message, id, (name, qtype::A, class::IN), flags);
    message.truncate(length.expect("300 octets do"));
    if kind == Kind::Fresh {
        let length = message.len();
        message[length - 1] = 8;
        message.extend(SERIAL_OPTION.to_be_bytes());
        message.extend([0, 4]);
        message.extend((serial as u32).to_be_bytes());
    }
    message
}

fn frame(message: &[u8], serial: usize) -> Vec<u8> {
    let headers = Headers {
        source_mac: CLIENT_MAC,
        destination_mac: OUR_MAC,
        source: SocketAddr::from((CLIENT, 1_024 + serial as u16)),
        destination: SERVICE.parse().expect("an address"),
        code_point: 0,
    };
    frame_of(message, &headers)
}

/// A frame around a message.
pub(super) fn frame_of(message: &[u8], headers: &Headers) -> Vec<u8> {
    const HEADERS: usize = 42;
    let mut frame = vec![0; HEADERS + message.len()];
    frame[HEADERS..].copy_from_slice(message);
    let start = write_headers(&mut frame, HEADERS, message.len(), headers);
    assert_eq!(start, Some(0), "IPv4");
    frame
}
