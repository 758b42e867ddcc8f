//! A primary that does as it is told, lies included.

use crate::faults::mark;
use crate::servers::SECRET;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use testnet::loopback::own_port;
use wire::codes::{class, edns_option, qtype, rcode};
use wire::message::{Header, parse_query};
use wire::name::NameBuf;
use zone::file::{Opener, Reader, Settings};
use zone::record::Record;
use zone::transfer::query;
use zone::tsig::{Algorithm, Key, Session, sign_request, verify_request};

/// What the primary does.
#[derive(Clone)]
pub(crate) struct Script {
    /// What its SOA record says.
    pub(crate) serial: u32,
    /// How it answers over UDP.
    pub(crate) datagrams: Datagrams,
    pub(crate) ixfr: Deed,
    pub(crate) axfr: Deed,
    /// How it signs what goes over TCP, where it was asked with a signature.
    pub(crate) sign: Sign,
    /// Else it answers whoever comes with an OPT record with FORMERR.
    pub(crate) knows_edns: bool,
    /// What it answers an EXPIRE option with.
    pub(crate) expire: Option<u32>,
}

/// How a question over UDP is answered.
#[derive(Clone, Copy)]
pub(crate) enum Datagrams {
    Whole,
    /// With TC, and without the record.
    Truncated,
    /// Not at all.
    Silence,
}

/// What it does when it is asked for a transfer.
#[derive(Clone)]
pub(crate) enum Deed {
    /// Answers with this code.
    Code(u16),
    /// Sends what changed since the serial that the client has, as a good primary does.
    Changes,
    /// Sends messages with these records, then goes on so.
    Send(Vec<Vec<Record>>, Then),
}

/// What comes behind the messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing: the client is to close.
    Nothing,
    /// The connection is closed.
    Close,
    /// It is closed within the last message.
    Cut,
    /// The last message again and again.
    Endless,
    /// Nothing, and the last message ends within its OPT record.
    CutBehind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Right,
    Never,
    AllButTheLast,
    WrongMac,
    /// A thousand seconds ago.
    Late,
    OtherKey,
}

/// One on a port of loopback, over UDP and TCP, until the test's process ends.
pub(crate) struct Primary {
    pub(crate) port: u16,
    script: Arc<Mutex<Script>>,
    asked: Arc<Mutex<Vec<u16>>>,
}

impl Primary {
    pub(crate) fn start(script: Script) -> Primary {
        // A query of another test may have come to be sent from a port that was free.
        let both = |port: u16| {
            let address = (Ipv4Addr::LOCALHOST, port);
            Some((
                port,
                TcpListener::bind(address).ok()?,
                UdpSocket::bind(address).ok()?,
            ))
        };
        let bound = (0..100).find_map(|_| both(own_port()));
        let (port, listener, socket) = bound.expect("a port of both");
        let script = Arc::new(Mutex::new(script));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let of_datagrams = Arc::clone(&script);
        thread::spawn(move || answer_datagrams(&socket, &of_datagrams));
        let (of_streams, seen) = (Arc::clone(&script), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, seen) = (Arc::clone(&of_streams), Arc::clone(&seen));
                // What the client ends is an error here, and expected.
                thread::spawn(move || serve(&mut stream.unwrap(), &script, &seen));
            }
        });
        Primary {
            port,
            script,
            asked,
        }
    }

    pub(crate) fn follow(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }

    /// The types that it was asked for over TCP since this was called last.
    pub(crate) fn asked(&self) -> Vec<u16> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

pub(crate) fn apex() -> NameBuf {
    "example.com.".parse().unwrap()
}

/// The key of this name, whose secret all share.
pub(crate) fn key(name: &str, algorithm: Algorithm) -> Arc<Key> {
    let name: NameBuf = name.parse().unwrap();
    let secret = data_encoding::BASE64.decode(SECRET.as_bytes()).unwrap();
    Arc::new(Key::new(name.as_name(), algorithm, &secret))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// The records of a zone file.
pub(crate) fn records(text: &str) -> Vec<Record> {
    let open: Opener<'_> = Box::new(|_| Err(io::ErrorKind::NotFound.into()));
    let apex = apex();
    let settings = Settings::new(apex.as_name());
    let reader = Reader::new("zone", text.as_bytes(), open, settings);
    reader.map(|record| record.unwrap()).collect()
}

/// The zone's SOA record with this serial.
pub(crate) fn soa(serial: u32) -> Record {
    records(&format!("@ 300 SOA ns host {serial} 3600 60 86400 60\n")).remove(0)
}

fn answer_datagrams(socket: &UdpSocket, script: &Mutex<Script>) {
    let mut buffer = [0; 4_096];
    while let Ok((length, client)) = socket.recv_from(&mut buffer) {
        let request = &buffer[..length];
        let script = script.lock().unwrap().clone();
        let mut answer = match script.datagrams {
            _ if is_too_new(request, &script) => refusal(request, qtype::SOA, rcode::FORMERR),
            Datagrams::Whole => message(request, qtype::SOA, &[soa(script.serial)]),
            Datagrams::Truncated => truncated(request),
            Datagrams::Silence => continue,
        };
        tell_expiry(&mut answer, request, script.expire);
        if let Some(mut session) = session(request) {
            session.sign(&mut answer, now());
        }
        socket.send_to(&answer, client).unwrap();
    }
}

/// Whether the request has an OPT record, of which this primary knows nothing.
fn is_too_new(request: &[u8], script: &Script) -> bool {
    !script.knows_edns && parse_query(request).unwrap().edns.is_some()
}

/// An answer with this code.
fn refusal(request: &[u8], kind: u16, code: u16) -> Vec<u8> {
    let mut refusal = message(request, kind, &[]);
    refusal[3] |= code as u8;
    refusal
}

/// Puts an OPT record with an EXPIRE option behind an answer, where one was asked for.
fn tell_expiry(answer: &mut Vec<u8>, request: &[u8], expire: Option<u32>) {
    let edns = parse_query(request).unwrap().edns;
    let option = edns.and_then(|edns| edns.option(request, edns_option::EXPIRE));
    if let Some(expire) = expire.filter(|_| option.is_some()) {
        answer.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 8, 0, 9, 0, 4]);
        answer.extend(expire.to_be_bytes());
        answer[11] += 1;
    }
}

/// An answer that says: come by TCP.
fn truncated(request: &[u8]) -> Vec<u8> {
    let mut answer = message(request, qtype::SOA, &[]);
    let mut header = Header::read(&answer).unwrap();
    header.set_tc(true);
    answer[..header.as_bytes().len()].copy_from_slice(header.as_bytes());
    answer
}

/// What signs the answers; `None`: the request was not signed.
fn session(request: &[u8]) -> Option<Session> {
    let find = |name: wire::name::Name<'_>| Some(key(&name.to_string(), Algorithm::Sha256));
    let verified = verify_request(request, find, now());
    verified.unwrap_or_else(|refusal| panic!("{}", refusal.error))
}

fn serve(
    stream: &mut TcpStream,
    script: &Mutex<Script>,
    asked: &Mutex<Vec<u16>>,
) -> io::Result<()> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut request = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut request)?;
    let kind = parse_query(&request).unwrap().qtype;
    let script = script.lock().unwrap().clone();
    asked.lock().unwrap().push(kind);
    let expire = script.expire;
    let deed = match kind {
        _ if is_too_new(&request, &script) => Deed::Code(rcode::FORMERR),
        qtype::IXFR => script.ixfr,
        qtype::SOA => Deed::Send(vec![vec![soa(script.serial)]], Then::Nothing),
        _ => script.axfr,
    };
    let mut session = session(&request);
    let (messages, then) = match deed {
        Deed::Code(code) => (vec![refusal(&request, kind, code)], Then::Nothing),
        Deed::Changes => {
            let records = changes(&request, script.serial);
            (vec![message(&request, kind, &records)], Then::Nothing)
        }
        Deed::Send(messages, then) => {
            let messages = messages.iter();
            let messages = messages.map(|records| message(&request, kind, records));
            (messages.collect(), then)
        }
    };
    let count = messages.len();
    for (number, mut message) in messages.into_iter().enumerate() {
        tell_expiry(&mut message, &request, expire);
        if then == Then::CutBehind && number + 1 == count {
            // Three octets more would be a whole one.
            message.extend([0, 0, 41, 4, 208, 0, 0, 0]);
            message[11] += 1;
        }
        if let Some(session) = &mut session {
            sign(&mut message, session, script.sign, number + 1 == count);
        }
        let mut octets = (message.len() as u16).to_be_bytes().to_vec();
        octets.extend(message);
        let is_last = number + 1 == count;
        match then {
            Then::Cut if is_last => octets.truncate(octets.len() / 2),
            Then::Endless if is_last => loop {
                stream.write_all(&octets)?;
            },
            _ => {}
        }
        stream.write_all(&octets)?;
    }
    match then {
        // Until the client closes.
        Then::Nothing | Then::CutBehind => stream.read(&mut length).map(drop),
        _ => Ok(()),
    }
}

/// The records of an answer to an IXFR query, where the primary has this serial. Later steps than can be in a message are
/// left out.
fn changes(request: &[u8], serial: u32) -> Vec<Record> {
    const STEPS: u32 = 100;
    let parts = parse_query(request).unwrap();
    let held = query::stated_serial(request, &parts).unwrap();
    let last = serial.min(held + STEPS);
    let step = |from: u32| {
        [
            vec![soa(from)],
            mark(from),
            vec![soa(from + 1)],
            mark(from + 1),
        ]
    };
    let steps = (held..last).flat_map(step).flatten();
    let end = (last > held).then(|| soa(last));
    [soa(last)].into_iter().chain(steps).chain(end).collect()
}

fn sign(message: &mut Vec<u8>, session: &mut Session, sign: Sign, is_last: bool) {
    match sign {
        Sign::Right => session.sign(message, now()),
        Sign::Never => {}
        Sign::AllButTheLast if is_last => {}
        Sign::AllButTheLast => session.sign(message, now()),
        Sign::WrongMac => {
            session.sign(message, now());
            // RFC 8945 §4.2: the MAC, then three fields of two octets.
            let last = message.len() - 7;
            message[last] ^= 1;
        }
        Sign::Late => session.sign(message, now() - 1_000),
        Sign::OtherKey => drop(sign_request(message, &key("x.", Algorithm::Sha256), now())),
    }
}

/// An authoritative answer with these records, uncompressed.
fn message(request: &[u8], kind: u16, records: &[Record]) -> Vec<u8> {
    let asked = Header::read(request).unwrap();
    let mut header = Header::default();
    header.set_id(asked.id());
    header.set_qr(true);
    header.set_aa(true);
    header.set_question_count(1);
    header.set_answer_count(records.len() as u16);
    let mut message = header.as_bytes().to_vec();
    message.extend(apex().as_name().as_bytes());
    message.extend(kind.to_be_bytes());
    message.extend(class::IN.to_be_bytes());
    for record in records {
        message.extend_from_slice(&record.owner);
        message.extend(record.kind.to_be_bytes());
        message.extend(record.class.to_be_bytes());
        message.extend(record.ttl.to_be_bytes());
        message.extend((record.rdata.len() as u16).to_be_bytes());
        message.extend_from_slice(&record.rdata);
    }
    message
}
