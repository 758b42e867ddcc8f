//! The clients: what they ask, and whether what they get may be.

use super::backend::address_of;
use super::races::{Heard, LegAnswer};
use super::{Checked, Violation};
use crate::clock::Now;
use crate::random::Random;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use wire::codes::{class, qtype, rcode};
use wire::frame::{Family, Headers, Mac, Packet, write_headers};
use wire::message::{HEADER_LENGTH, Header, QueryFlags, write_query};
use wire::name::Name;

/// Both IP versions, in the order of `Family as usize`.
pub(super) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

const SERVICES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1)),
];
const CLIENTS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x100)),
];
pub(super) const OUR_MAC: Mac = [2, 0, 0, 0, 0, 1];
const CLIENT_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// The client's port is the query's serial number and this.
const FIRST_PORT: u16 = 1_024;

/// An EDNS option of local use (RFC 6891 §9) that tells the backend which query it sees.
pub(super) const SERIAL_OPTION: u16 = 65_001;

/// setUDPTimeout's default: a server that was asked is waited for so long.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The servers of what is asked from one, by [`super::backend::identity`].
const ONLY_SERVER: u8 = 2;

/// Where clients of an IP version send to.
pub(super) fn service(family: Family) -> SocketAddr {
    SocketAddr::new(SERVICES[family as usize], 53)
}

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
    /// The same, from a server with an IPv6 address.
    Six,
    /// From several servers at once.
    Race,
    /// From a second server, too, when the first one is slow.
    Hedge,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] = [
        Kind::Ruled,
        Kind::Dropped,
        Kind::Cached(0),
        Kind::Fresh,
        Kind::Six,
        Kind::Race,
        Kind::Hedge,
    ];

    fn random(random: &mut Random, asks_several: bool) -> Kind {
        match random.below(16) {
            0 => Kind::Ruled,
            1 => Kind::Dropped,
            2..=3 => Kind::Cached(random.below(3) as u8),
            4..=5 => Kind::Six,
            6..=8 if asks_several => Kind::Race,
            9..=10 if asks_several => Kind::Hedge,
            _ => Kind::Fresh,
        }
    }

    fn name(self) -> Vec<u8> {
        match self {
            Kind::Ruled => b"\x01a\x05ruled\x00".to_vec(),
            Kind::Dropped => b"\x01a\x07dropped\x00".to_vec(),
            Kind::Cached(number) => [b"\x01", &[b'a' + number][..], b"\x06cached\x00"].concat(),
            Kind::Fresh => b"\x01a\x05fresh\x00".to_vec(),
            Kind::Six => b"\x01a\x03six\x00".to_vec(),
            Kind::Race => b"\x01a\x04race\x00".to_vec(),
            Kind::Hedge => b"\x01a\x05hedge\x00".to_vec(),
        }
    }

    /// Whether more servers than one may be asked.
    pub(super) fn asks_several(self) -> bool {
        matches!(self, Kind::Race | Kind::Hedge)
    }

    /// Whether the query says its serial number.
    fn tells_serial(self) -> bool {
        matches!(self, Kind::Fresh | Kind::Six) || self.asks_several()
    }
}

/// By which configuration, and when, a worker has judged a query.
#[derive(Debug, Clone, Copy)]
struct Judged {
    configuration: usize,
    at: Now,
}

/// A query that was sent.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    family: Family,
    message: Vec<u8>,
    /// Its frame came into the ring of a worker, or it came by a stream.
    pub(super) accepted: bool,
    /// Its answer may have gone by a kernel socket, or with an interface that went down: nobody here sees it.
    pub(super) excused: bool,
    judged: Option<Judged>,
    pub(super) answers: u32,
    pub(super) heard: Heard,
}

/// All queries, by serial number.
#[derive(Default)]
pub(super) struct Clients {
    pub(super) asked: Vec<Asked>,
    /// Of accepted ones that a worker has not yet taken, by worker.
    in_ring: HashMap<usize, Vec<usize>>,
}

impl Clients {
    /// The frame of a new query.
    pub(super) fn ask(&mut self, random: &mut Random, asks_several: bool) -> Vec<u8> {
        let kind = Kind::random(random, asks_several);
        let family = FAMILIES[random.below(2) as usize];
        self.ask_for(kind, family, random)
    }

    /// The same for a query of this kind.
    pub(super) fn ask_for(&mut self, kind: Kind, family: Family, random: &mut Random) -> Vec<u8> {
        let serial = self.add(kind, family, random);
        frame(&self.asked[serial].message, family, serial)
    }

    /// A new query that comes by a stream and is judged now; its serial number.
    pub(super) fn ask_by_stream(
        &mut self,
        random: &mut Random,
        asks_several: bool,
        (configuration, at): (usize, Now),
    ) -> usize {
        let kind = Kind::random(random, asks_several);
        let family = FAMILIES[random.below(2) as usize];
        let serial = self.add(kind, family, random);
        let asked = &mut self.asked[serial];
        asked.accepted = true;
        asked.judged = Some(Judged { configuration, at });
        serial
    }

    fn add(&mut self, kind: Kind, family: Family, random: &mut Random) -> usize {
        let serial = self.asked.len();
        self.asked.push(Asked {
            kind,
            family,
            message: message(kind, serial, random.next_u32() as u16),
            accepted: false,
            excused: false,
            judged: None,
            answers: 0,
            heard: Heard::default(),
        });
        serial
    }

    /// What a stream brings of a query: who asks where, and the message.
    pub(super) fn by_stream(&self, serial: usize) -> ((SocketAddr, SocketAddr), &[u8]) {
        let Asked {
            family, message, ..
        } = &self.asked[serial];
        let ends = (client(*family, serial), service(*family));
        (ends, message.as_slice())
    }

    /// The last query's frame is in the ring of `worker`.
    pub(super) fn accepted(&mut self, worker: usize) {
        let serial = self.asked.len() - 1;
        self.asked[serial].accepted = true;
        self.in_ring.entry(worker).or_default().push(serial);
    }

    /// `worker` takes all that is in its ring now, the configuration of this number being in force.
    pub(super) fn judged(&mut self, worker: usize, configuration: usize, at: Now) {
        for serial in self.in_ring.remove(&worker).unwrap_or_default() {
            self.asked[serial].judged = Some(Judged { configuration, at });
        }
    }

    /// A worker takes what a server has sent for a query.
    pub(super) fn heard(&mut self, answer: LegAnswer, now: Now) {
        let asked = &mut self.asked[answer.serial];
        let is_in_time = |judged: Judged| now.since(judged.at) < TIMEOUT;
        let is_in_time = asked.judged.is_some_and(is_in_time);
        asked.heard.note(answer, is_in_time);
    }

    /// From now on nobody knows by which way the answers to these leave: a queue towards the clients is missing, or will be.
    pub(super) fn excuse_all(&mut self) {
        let silent = self.asked.iter_mut().filter(|asked| asked.answers == 0);
        silent.for_each(|asked| asked.excused = true);
    }

    /// The same of the last one.
    pub(super) fn excuse_last(&mut self) {
        if let Some(asked) = self.asked.last_mut() {
            asked.excused = true;
        }
    }

    /// Whether a packet is for a client.
    pub(super) fn is_client(address: SocketAddr) -> bool {
        CLIENTS.contains(&address.ip())
    }

    /// A frame that left towards the clients was lost on its way.
    pub(super) fn lost(&mut self, packet: &Packet) {
        let serial = serial_at(packet.destination);
        if let Some(asked) = serial.and_then(|serial| self.asked.get_mut(serial)) {
            asked.excused = true;
        }
    }

    /// A frame that left towards the clients.
    pub(super) fn receive(&mut self, packet: &Packet, frame: &[u8]) -> Checked {
        let to = packet.destination;
        let serial = serial_at(to).filter(|serial| *serial < self.asked.len());
        let Some(serial) = serial else {
            return Err(Violation::new("I2", format!("{to} asked nothing")));
        };
        let family = self.asked[serial].family;
        let is_for_it = packet.source == service(family)
            && to == client(family, serial)
            && packet.destination_mac == CLIENT_MAC
            && packet.source_mac == OUR_MAC;
        if !is_for_it {
            return Err(Violation::new("I2", format!("wrong ends: {packet:?}")));
        }
        self.answered(serial, packet.payload(frame))
    }

    /// An answer to the query with this serial number.
    pub(super) fn answered(&mut self, serial: usize, message: &[u8]) -> Checked {
        let asked = &mut self.asked[serial];
        asked.answers += 1;
        if asked.answers > 1 {
            return Err(Violation::new("I1", format!("{asked:?} got two answers")));
        }
        check(asked, serial, message)
    }
}

fn client(family: Family, serial: usize) -> SocketAddr {
    SocketAddr::new(CLIENTS[family as usize], FIRST_PORT + serial as u16)
}

fn serial_at(client: SocketAddr) -> Option<usize> {
    client.port().checked_sub(FIRST_PORT).map(usize::from)
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
            let rcode = asked.judged.map(|judged| judged.configuration);
            let rcode = rcode.map(super::ground::ruled_rcode);
            let is_right = rcode.is_some_and(|rcode| rcode == header.rcode());
            return is_right.then_some(()).ok_or_else(|| {
                Violation::new("I8", format!("RCODE {} for {asked:?}", header.rcode()))
            });
        }
        Kind::Race | Kind::Hedge => {
            return check_winner(asked, serial, header.rcode(), address);
        }
        Kind::Cached(number) => [10, 0, 0, number],
        Kind::Fresh | Kind::Six => address_of(ONLY_SERVER, serial),
    };
    if address != Some(&expected[..]) {
        let what = format!("{asked:?} got the answer {address:?} to another query");
        return Err(Violation::new("I1", what));
    }
    Ok(())
}

/// Whether an answer is that of the server which had the first good one, or an error where nobody had better.
fn check_winner(asked: &Asked, serial: usize, code: u8, address: Option<&[u8]>) -> Checked {
    let server = match u16::from(code) {
        rcode::NOERROR => address.and_then(|address| address.first().copied()),
        _ => None,
    };
    let is_right = match server {
        Some(server) => address == Some(&address_of(server, serial)[..]),
        None => u16::from(code) == rcode::SERVFAIL,
    };
    if is_right && asked.heard.allows(server) {
        return Ok(());
    }
    let what = format!("RCODE {code}, {address:?}, number {serial} for {asked:?}");
    Err(Violation::new("I1", what))
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
    if kind.tells_serial() {
        let length = message.len();
        message[length - 1] = 8;
        message.extend(SERIAL_OPTION.to_be_bytes());
        message.extend([0, 4]);
        message.extend((serial as u32).to_be_bytes());
    }
    message
}

fn frame(message: &[u8], family: Family, serial: usize) -> Vec<u8> {
    let headers = Headers {
        source_mac: &CLIENT_MAC,
        destination_mac: &OUR_MAC,
        source: &client(family, serial),
        destination: &service(family),
        code_point: 0,
    };
    frame_of(message, &headers)
}

/// A frame around a message.
pub(super) fn frame_of(message: &[u8], headers: &Headers<'_>) -> Vec<u8> {
    let start = Family::of(headers.destination).headers_length();
    let mut frame = vec![0; start + message.len()];
    frame[start..].copy_from_slice(message);
    let written = write_headers(&mut frame, start, message.len(), headers);
    assert_eq!(written, Some(0), "the headers fill what is left for them");
    frame
}
