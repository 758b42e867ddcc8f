//! Transfers with knotd, nsd and named, signed, in both directions: what comes is what the zone file says, and what they
//! got from us is what they give back. Prints SKIP for a server that is not installed.

mod servers;

use servers::{ALL, Kind, Role, SECRET};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::codes::{opcode, qtype};
use wire::message::{Header, parse_query};
use wire::name::NameBuf;
use zone::file::{Opener, Reader, Settings, print_record};
use zone::record::Record;
use zone::transfer::incoming::{Bounds, Incoming, Item, Outcome, Progress, TransferError};
use zone::transfer::outgoing::{MESSAGE_LENGTH, Messages, axfr, ixfr};
use zone::transfer::{AsRecord, Change, query, serial};
use zone::tsig::{Algorithm, Key, Session, sign_request, verify_request};

/// Nothing on loopback takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn origin() -> NameBuf {
    "example.com".parse().unwrap()
}

fn key() -> Arc<Key> {
    let name: NameBuf = "k".parse().unwrap();
    let secret = data_encoding::BASE64.decode(SECRET.as_bytes()).unwrap();
    Arc::new(Key::new(name.as_name(), Algorithm::Sha256, &secret))
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// The records of a zone of this serial that fills several messages.
fn zone(zone_serial: u32) -> Vec<Record> {
    let text = format!(
        "$TTL 1h\n@ SOA ns host {zone_serial} 1h 1h 4w 5m\n NS ns\nns A 127.0.0.1\n\
         $GENERATE 1-2500 host-$ A 192.0.2.${{0,0}}\n\
         a\\.b TXT \"a;b\" \"\\000\\255\" ; c\nMiXeD MX 10 Mail\nsvc SVCB 1 . alpn=\"h2,h3\"\nx TYPE65280 \\# 3 c00c01\n\
         serial-{zone_serial} A 192.0.2.9\n"
    );
    let text = text.replace("192.0.2.${0,0}", "10.0.0.7");
    let open: Opener<'_> = Box::new(|_| Err(io::ErrorKind::NotFound.into()));
    Reader::new(
        "zone",
        text.as_bytes(),
        open,
        Settings::new(origin().as_name()),
    )
    .map(|record| record.unwrap_or_else(|error| panic!("{error}")))
    .collect()
}

fn printed(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records {
        print_record(record.as_ref(), &mut text);
    }
    text
}

/// Lines that are equal where the zones are: servers may change the case of owners.
fn lines(records: &[Record]) -> BTreeSet<String> {
    records
        .iter()
        .map(|record| record.to_string().to_ascii_lowercase())
        .collect()
}

// ------------------------------------------------------------------------------------------ streams

fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length, message].concat())
}

/// Servers say that they are ready some time before they listen.
fn connect(port: u16) -> TcpStream {
    let start = Instant::now();
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::yield_now();
    }
}

/// Asks the server on this port, and takes its answers in.
fn transfer(
    port: u16,
    mut request: Vec<u8>,
    mut incoming: Incoming,
) -> Result<(Outcome, Vec<Item>), TransferError> {
    let mut session = sign_request(&mut request, &key(), now());
    let mut stream = connect(port);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that loads, or forks a new child, drops connections.
    let dropped = |_| TransferError::Malformed("the connection was dropped");
    write_message(&mut stream, &request).map_err(dropped)?;
    let mut items = Vec::new();
    loop {
        let message = read_message(&mut stream).map_err(dropped)?;
        let header = Header::read(&message).unwrap();
        if header.rcode() != 0 {
            return Err(TransferError::Refused(header.rcode().into()));
        }
        let length = session
            .verify(&message, now())
            .unwrap_or_else(|error| panic!("{error}"));
        if let Progress::Done(outcome) =
            incoming.message(&message[..length], |item| items.push(item))?
        {
            assert!(session.is_verified());
            return Ok((outcome, items));
        }
    }
}

fn whole(items: Vec<Item>) -> Vec<Record> {
    let record = |item| match item {
        Item::Whole(record) => record,
        other => panic!("{other:?} in a whole zone"),
    };
    items.into_iter().map(record).collect()
}

fn fetch(port: u16) -> Result<Vec<Record>, TransferError> {
    let incoming = Incoming::axfr(origin().as_name(), 77, Bounds::default());
    transfer(port, query::axfr(77, origin().as_name()), incoming).map(|(_, items)| whole(items))
}

// --------------------------------------------------------------------------------------- secondaries

#[test]
fn we_get_what_they_have() {
    for kind in ALL {
        let records = zone(5);
        let Some(server) = kind.start(Role::Primary, &printed(&records)) else {
            println!(
                "SKIP: a server to transfer with is not installed: {}",
                kind.program
            );
            continue;
        };
        assert_eq!(
            lines(&until_serial(&server, 5)),
            lines(&records),
            "{}",
            kind.program
        );
        for (held, expected) in [(5, Outcome::UpToDate(5)), (4, Outcome::Whole)] {
            let soa = zone(held).remove(0);
            let incoming = Incoming::ixfr(origin().as_name(), 78, held, Bounds::default());
            let request = query::ixfr(78, origin().as_name(), soa.as_ref());
            match transfer(server.port, request, incoming) {
                Ok((outcome, _)) => assert_eq!(outcome, expected, "{}", kind.program),
                // NSD 4.6 knows no IXFR out unless told so.
                Err(error) => assert!(error.asks_for_axfr(), "{}: {error}", kind.program),
            }
        }
    }
}

// ----------------------------------------------------------------------------------------- primaries

/// A primary of ours: the zone, and the changes that led to it.
#[derive(Default)]
struct Primary {
    records: Vec<Record>,
    changes: Vec<Change>,
}

/// What the primary was asked for, and gave.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Soa,
    Whole,
    Changes,
}

fn verified(message: &[u8]) -> Session {
    match verify_request(message, |_| Some(key()), now()) {
        Ok(Some(session)) => session,
        Ok(None) => panic!("a request without a signature"),
        Err(refusal) => panic!("{}", refusal.error),
    }
}

/// The messages that answer a request.
fn answers(primary: &Primary, request: &[u8], asked: &Sender<Asked>) -> Vec<Vec<u8>> {
    let parts = parse_query(request).unwrap();
    let mut session = verified(request);
    let head = &request[..parts.question_end.into()];
    let soa = &primary.records[0];
    let known = query::stated_serial(request, &parts).filter(|_| parts.qtype == qtype::IXFR);
    let is_from = |change: &Change| change.serials().map(|(from, _)| from) == known;
    let start = primary.changes.iter().position(is_from);
    let what = match (parts.qtype, start) {
        (qtype::SOA, _) => Asked::Soa,
        (_, Some(_)) if known.is_some() => Asked::Changes,
        _ if known.is_some() && known == serial::of_soa(&soa.rdata) => Asked::Soa,
        _ => Asked::Whole,
    };
    let reserved = session.signature_length();
    let messages = match what {
        Asked::Soa => packed(ixfr(soa, &[]), head, reserved),
        Asked::Changes => packed(
            ixfr(soa, &primary.changes[start.unwrap()..]),
            head,
            reserved,
        ),
        Asked::Whole => packed(axfr(soa, primary.records[1..].iter()), head, reserved),
    };
    // The test may have seen enough already.
    let _ = asked.send(what);
    let sign = |mut message| {
        session.sign(&mut message, now());
        message
    };
    messages.into_iter().map(sign).collect()
}

fn packed<R: AsRecord>(
    records: impl Iterator<Item = R>,
    query: &[u8],
    reserved: usize,
) -> Vec<Vec<u8>> {
    let mut messages = Messages::new(records, query, MESSAGE_LENGTH, reserved);
    let mut all = Vec::new();
    let mut message = Vec::new();
    while messages.next_message(&mut message).unwrap() {
        all.push(message.clone());
    }
    all
}

/// Serves over UDP and TCP until the test's process ends.
fn serve(primary: &Arc<Mutex<Primary>>, asked: &Sender<Asked>) -> u16 {
    let port = servers::free_port();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let (zone, sender) = (primary.clone(), asked.clone());
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let mut answers = answers(&zone.lock().unwrap(), &buffer[..length], &sender);
            let mut answer = answers.swap_remove(0);
            if !answers.is_empty() || answer.len() > 1_232 {
                // It does not fit: RFC 1995 §2, the SOA alone tells the secondary to come by TCP.
                answer = soa_alone(&zone.lock().unwrap(), &buffer[..length]);
            }
            socket.send_to(&answer, peer).unwrap();
        }
    });
    let (zone, sender) = (primary.clone(), asked.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, zone, sender) = (stream.unwrap(), zone.clone(), sender.clone());
            std::thread::spawn(move || {
                while let Ok(request) = read_message(&mut stream) {
                    let answers = answers(&zone.lock().unwrap(), &request, &sender);
                    for answer in answers {
                        if write_message(&mut stream, &answer).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    port
}

/// Receives, also where the machine was frozen meanwhile: the kernel ends a call with a time-out by EINTR then (signal(7),
/// "Interruption of system calls and library functions by stop signals").
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

fn soa_alone(primary: &Primary, request: &[u8]) -> Vec<u8> {
    let mut session = verified(request);
    let end = parse_query(request).unwrap().question_end;
    let head = &request[..end.into()];
    let mut message = packed(ixfr(&primary.records[0], &[]), head, 0).remove(0);
    session.sign(&mut message, now());
    message
}

#[test]
fn they_get_what_we_have_and_what_changes() {
    for kind in ALL {
        secondary(kind);
    }
}

fn secondary(kind: &Kind) {
    let (sender, asked) = channel();
    let first = Primary {
        records: zone(5),
        changes: Vec::new(),
    };
    let primary = Arc::new(Mutex::new(first));
    let port = serve(&primary, &sender);
    let Some(server) = kind.start(Role::Secondary(port), "") else {
        println!(
            "SKIP: a server to transfer with is not installed: {}",
            kind.program
        );
        return;
    };
    while asked.recv_timeout(PATIENCE).expect("an AXFR") != Asked::Whole {}
    assert_eq!(
        lines(&until_serial(&server, 5)),
        lines(&zone(5)),
        "{}",
        kind.program
    );

    let (old, new) = (zone(5), zone(6));
    let change = Change::between(old.into_iter(), new.iter().cloned()).unwrap();
    *primary.lock().unwrap() = Primary {
        changes: vec![change],
        records: new.clone(),
    };
    let notify = query::notify(9, origin().as_name(), Some(new[0].as_ref()));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
        .send_to(&notify, (Ipv4Addr::LOCALHOST, server.port))
        .unwrap();
    let mut answer = [0; 512];
    let length = receive(&socket, &mut answer).expect("an answer to NOTIFY");
    let header = Header::read(&answer[..length]).unwrap();
    assert_eq!(
        (header.opcode(), header.rcode(), header.qr()),
        (opcode::NOTIFY, 0, true),
        "{}",
        kind.program
    );
    while asked.recv_timeout(PATIENCE).expect("an IXFR") != Asked::Changes {}
    assert_eq!(
        lines(&until_serial(&server, 6)),
        lines(&new),
        "{}",
        kind.program
    );
}

/// The zone of the server as soon as it has this serial. It reads it, or has fetched it, when this is called, and may need
/// a moment to put it in place; nothing tells when but asking.
fn until_serial(server: &servers::Server, wanted: u32) -> Vec<Record> {
    let start = Instant::now();
    let mut last = String::new();
    while start.elapsed() < PATIENCE {
        match fetch(server.port) {
            Ok(records) if serial::of_soa(&records[0].rdata) == Some(wanted) => return records,
            Ok(records) => last = records[0].to_string(),
            Err(error) => last = error.to_string(),
        }
        std::thread::yield_now();
    }
    panic!("serial {wanted} never came: {last}");
}
