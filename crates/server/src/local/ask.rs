//! What a secondary asks its primaries: SOA queries over UDP, and over TCP where that does not help, transfers over TCP
//! (RFC 1034 §4.3.5, RFC 1995, RFC 5936), signed where the primary has a key (RFC 8945). What comes back is believed only
//! where it holds together (F34): crate `zone` checks messages and records, here are the limits of time.

use super::claims::{Claim, NoRoom, STEP};
use super::progress::Progress;
use super::settings::{Peer, TransferBounds};
use crate::clock;
use crate::log;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use wire::codes::{QtypeText, qtype, rcode};
use wire::message::{
    HEADER_LENGTH, Header, MESSAGE_LENGTH_MAX, Records, Section, parse_response, question_matches,
};
use wire::name::{NAME_LENGTH_MAX, Name, compressed};
use zone::record::Record;
use zone::transfer::incoming::{Incoming, Item, Outcome, Progress as Step, TransferError};
use zone::transfer::{Change, query, serial};
use zone::tsig::{Session, TsigError, sign_request};
use zone::zone::ZoneBuilder;

/// How long a UDP answer is waited for; then the query goes out again.
const TRIES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// How long a connection, and the answer to an SOA query over it, may take; how long another one to a primary that has just had one;
/// and how long the next message of a transfer.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(5);
pub(super) const CONNECT_AGAIN: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(20);

/// How often a request goes out over UDP.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tries {
    /// How long each is waited for.
    pub(super) waits: &'static [Duration],
    pub(super) after_error: AfterError,
}

/// When a request goes out again where something else than its answer came back: nobody listens there yet, or the signature was
/// not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterError {
    /// Behind a quarter of the wait: an operator, or a zone that serves no one yet, waits for it.
    Soon,
    /// When the wait is over.
    InTime,
}

/// How long a primary is waited for that is asked for its serial.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    tries: Tries,
    connect: Duration,
    silence: Duration,
}

impl Patience {
    pub(super) const WHOLE: Patience = Patience {
        tries: Tries {
            waits: &TRIES,
            after_error: AfterError::Soon,
        },
        connect: CONNECT_WITHIN,
        // A server that accepts connections and is stuck: others, and what is told meanwhile, wait behind it.
        silence: CONNECT_WITHIN,
    };

    /// For one that said nothing the last time, when another one has answered.
    pub(super) const SHORT: Patience = Patience {
        tries: Tries {
            waits: &[Duration::from_secs(1)],
            after_error: AfterError::Soon,
        },
        connect: CONNECT_AGAIN,
        silence: Duration::from_secs(1),
    };
}

/// Why a primary was of no help.
#[derive(Debug)]
pub(super) enum AskError {
    /// No answer to any of so many tries.
    NoAnswer(usize),
    /// What was tried, and the system's reason.
    System(&'static str, io::Error),
    /// It said nothing for too long, or all of it took too long.
    Slow(&'static str, Duration),
    Signature(TsigError),
    /// It refuses with this code, in an answer that is not signed, as one should be.
    Unsigned(u16),
    Transfer(TransferError),
    /// Its answer over UDP is cut off.
    Truncated,
    /// It answers, but not with this zone's SOA record, and how.
    NoSoa(String),
    /// It has an older version than the one that is here.
    Behind {
        has: u32,
        held: u32,
    },
    /// What came is no zone.
    Zone(String),
    /// It has said that it has something newer, and sent this serial.
    Older {
        came: u32,
        held: u32,
    },
    /// So many octets came, and what will be made of them has no room in memory; `maxSize`.
    NoRoom(u64, Box<NoRoom>, u64),
    /// IXFR was of no use, and then AXFR.
    Both(Box<[AskError; 2]>),
    /// UDP was of no use, and then TCP.
    Neither(Box<[AskError; 2]>),
    /// An order came that makes its answer useless.
    Overtaken,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::NoAnswer(1) => f.write_str("no answer over UDP, asked once"),
            AskError::NoAnswer(tries) => write!(f, "no answer over UDP, asked {tries} times"),
            AskError::System(what, error) => write!(f, "{what}: {error}"),
            AskError::Slow(what, most) => write!(f, "{what} took more than {} s", most.as_secs()),
            AskError::Signature(error) => write!(f, "signature: {error}"),
            AskError::Unsigned(code) => write!(
                f,
                "it answers {} without a signature: it must know the key, and allow this server what it asks for",
                rcode::name(*code).unwrap_or("an unknown error")
            ),
            AskError::Transfer(error) => write!(f, "{error}"),
            AskError::Truncated => f.write_str("its answer is truncated"),
            AskError::Behind { has, held } => {
                write!(f, "it has serial {has}, which does not confirm {held}")
            }
            AskError::NoSoa(what) => write!(f, "no SOA record in its answer: {what}"),
            AskError::Zone(what) => write!(f, "what came is no zone: {what}"),
            AskError::Older { came, held } => write!(
                f,
                "serial {came} came, which is not newer than {held}, though its SOA record promised so"
            ),
            AskError::NoRoom(came, no_room, max_size) => {
                let NoRoom { claimed, left } = &**no_room;
                write!(
                    f,
                    "more than there is memory for: {} came, what is made of it (and of other transfers) may take {} more, and of \
                     the {} that {} allows {} are left: allow more, or end such a transfer sooner by a maxSize below {}",
                    Megabytes(*came),
                    Megabytes(*claimed),
                    Megabytes(left.most),
                    left.limit.display(),
                    Megabytes(left.octets),
                    Megabytes(*max_size)
                )
            }
            AskError::Both(errors) => write!(f, "IXFR: {}; AXFR: {}", errors[0], errors[1]),
            AskError::Neither(errors) => write!(f, "UDP: {}; TCP: {}", errors[0], errors[1]),
            AskError::Overtaken => f.write_str("an order that came meanwhile has ended it"),
        }
    }
}

/// So many octets, for people.
struct Megabytes(u64);

impl fmt::Display for Megabytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} MB", self.0 as f64 / 1e6)
    }
}

impl From<TransferError> for AskError {
    fn from(error: TransferError) -> AskError {
        AskError::Transfer(error)
    }
}

impl From<TsigError> for AskError {
    fn from(error: TsigError) -> AskError {
        AskError::Signature(error)
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> AskError {
    move |error| AskError::System(what, error)
}

// ---------------------------------------------------------------------------------------------- serials

/// What a primary has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Has {
    pub(super) serial: u32,
    /// For how many seconds whoever has heard this may go on with that version (RFC 7314); `None`: it does not say.
    pub(super) expires_in: Option<u32>,
}

/// The serial that a primary has, and for how long.
///
/// # Errors
/// Why it does not say.
pub(super) async fn serial(
    peer: &Peer,
    apex: Name<'_>,
    patience: Patience,
) -> Result<Has, AskError> {
    // RFC 7314 §4: a secondary asks for the time by the EXPIRE option.
    let with_expiry = || {
        let mut request = query::soa(random_id(), apex);
        query::ask_expiry(&mut request);
        request
    };
    let is_formerr = |answer: &[u8]| {
        Header::read(answer).is_some_and(|header| u16::from(header.rcode()) == rcode::FORMERR)
    };
    let answer = match soa_answer(peer, with_expiry, patience).await {
        Ok(answer) if !is_formerr(&answer) => answer,
        Err(error) if !error.is_unsigned_formerr() => return Err(error),
        // RFC 6891 §7: responders that do not know EDNS "MUST respond with a return code (RCODE) of FORMERR".
        _ => soa_answer(peer, || query::soa(random_id(), apex), patience).await?,
    };
    Ok(Has {
        serial: serial_in(&answer, apex)?,
        expires_in: query::stated_expiry(&answer),
    })
}

/// The answer to such a request, over UDP or where that does not help over TCP.
async fn soa_answer(
    peer: &Peer,
    request: impl Fn() -> Vec<u8>,
    patience: Patience,
) -> Result<Vec<u8>, AskError> {
    let over_udp = match exchange(peer, request(), patience.tries).await {
        Ok(answer) if !is_truncated(&answer) => return Ok(answer),
        // RFC 2181 §9: a client that gets TC "should ignore that response, and query again, using a mechanism, such as a TCP
        // connection, that will permit larger replies".
        Ok(_) => AskError::Truncated,
        // It would sign no better over TCP.
        Err(error @ (AskError::Signature(_) | AskError::Unsigned(_))) => return Err(error),
        // RFC 7766 §5: "TCP MAY be used before sending any UDP queries", so also where they are lost.
        Err(error) => error,
    };
    let over_tcp = exchange_by_stream(peer, request(), patience).await;
    over_tcp.map_err(|error| AskError::Neither(Box::new([over_udp, error])))
}

fn is_truncated(answer: &[u8]) -> bool {
    Header::read(answer).is_some_and(|header| header.tc())
}

fn serial_in(answer: &[u8], apex: Name<'_>) -> Result<u32, AskError> {
    soa_serial(answer, apex).ok_or_else(|| AskError::NoSoa(described(answer)))
}

// ---------------------------------------------------------------------------------------------- UDP

/// Sends a request over UDP until its answer comes, which is returned without its signature. Datagrams that do not belong
/// to it are passed over: whoever does not know the key cannot end the wait.
///
/// # Errors
/// Why there is none.
pub(super) async fn exchange(
    peer: &Peer,
    mut request: Vec<u8>,
    tries: Tries,
) -> Result<Vec<u8>, AskError> {
    let unsigned = request.clone();
    let socket = socket_towards(peer).await?;
    let mut last = AskError::NoAnswer(tries.waits.len());
    for wait in tries.waits {
        request.clone_from(&unsigned);
        let session = signed(peer, &mut request);
        socket
            .send(&request)
            .await
            .map_err(system("cannot be asked"))?;
        let sent = Instant::now();
        match timeout(*wait, answer(&socket, &unsigned, session)).await {
            Ok(Ok(answer)) => return Ok(answer),
            // The next try may do.
            Ok(Err(error)) => {
                last = error;
                match tries.after_error {
                    AfterError::Soon => sleep(*wait / 4).await,
                    AfterError::InTime => sleep_until(sent + *wait).await,
                }
            }
            Err(_) => {}
        }
    }
    Err(last)
}

/// Where messages to it come from.
fn source_of(peer: &Peer) -> SocketAddr {
    let any: IpAddr = match peer.address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    (peer.source.unwrap_or(any), 0).into()
}

/// A connection to it.
///
/// # Errors
/// Why there is none in this time.
pub(super) async fn connection(peer: &Peer, within: Duration) -> Result<TcpStream, AskError> {
    let connecting = timeout(within, connect(peer)).await;
    connecting
        .map_err(|_| AskError::Slow("the connection", within))?
        .map_err(system("no connection"))
}

async fn connect(peer: &Peer) -> io::Result<TcpStream> {
    let socket = match peer.address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    if peer.source.is_some() {
        socket.bind(source_of(peer))?;
    }
    socket.connect(peer.address).await
}

async fn socket_towards(peer: &Peer) -> Result<UdpSocket, AskError> {
    let socket = UdpSocket::bind(source_of(peer))
        .await
        .map_err(system("no socket to ask with"))?;
    socket
        .connect(peer.address)
        .await
        .map_err(system("cannot be reached"))?;
    Ok(socket)
}

/// The answer to `request`, whose signature `session` has made.
async fn answer(
    socket: &UdpSocket,
    request: &[u8],
    mut session: Option<Session>,
) -> Result<Vec<u8>, AskError> {
    let mut buffer = vec![0; MESSAGE_LENGTH_MAX];
    loop {
        let length = socket
            .recv(&mut buffer)
            .await
            .map_err(system("no answer"))?;
        let message = &buffer[..length];
        if !is_answer(message, request) {
            continue;
        }
        return believed(message, session.as_mut());
    }
}

/// The only message of an answer, without its signature; `session` has made that of the request.
fn believed(message: &[u8], session: Option<&mut Session>) -> Result<Vec<u8>, AskError> {
    let Some(session) = session else {
        return Ok(message.to_vec());
    };
    let length = match session.verify(message, clock::unix()) {
        Err(TsigError::Unsigned) => return Err(unsigned(message)),
        verified => verified?,
    };
    let mut answer = message[..length].to_vec();
    // The signature was cut off, and is counted no more.
    if let Some(mut header) = Header::read(&answer) {
        header.set_additional_count(header.additional_count().saturating_sub(1));
        answer[..HEADER_LENGTH].copy_from_slice(header.as_bytes());
    }
    Ok(answer)
}

/// What may be believed of an answer that is not signed as it should be: that it refuses.
fn unsigned(message: &[u8]) -> AskError {
    match Header::read(message).map_or(0, |header| header.rcode()) {
        0 => TsigError::Unsigned.into(),
        code => AskError::Unsigned(code.into()),
    }
}

/// Whether ID, opcode and question are those of the request.
fn is_answer(message: &[u8], request: &[u8]) -> bool {
    let headers = Header::read(message).zip(Header::read(request));
    let is_its = headers.is_some_and(|(answer, asked)| {
        answer.qr() && answer.id() == asked.id() && answer.opcode() == asked.opcode()
    });
    let Ok(parts) = wire::message::parse_query(request) else {
        return false;
    };
    // A refusal may come without the question.
    let is_bare = Header::read(message).is_some_and(|header| header.question_count() == 0);
    is_its && (is_bare || question_matches(message, parts.question(request)))
}

fn soa_serial(answer: &[u8], apex: Name<'_>) -> Option<u32> {
    let parts = parse_response(answer).ok()?;
    let header = Header::read(answer)?;
    if header.rcode() != 0 || !header.aa() {
        return None;
    }
    let start = parts
        .question
        .map_or(HEADER_LENGTH as u16, |question| question.end);
    let mut records = Records::new(answer, start, &header).flatten();
    let is_soa = |record: &wire::message::Record| {
        let mut buffer = [0; NAME_LENGTH_MAX];
        let owner = compressed::expand(answer, record.owner_start.into(), &mut buffer);
        record.section == Section::Answer && record.rtype == qtype::SOA && owner == Ok(apex)
    };
    let record = records.find(is_soa)?;
    let place = usize::from(record.rdata_start)..usize::from(record.rdata_end);
    let mut rdata = Vec::new();
    zone::rdata::expand(qtype::SOA, answer, place, &mut rdata).ok()?;
    serial::of_soa(&rdata)
}

fn described(answer: &[u8]) -> String {
    let Some(header) = Header::read(answer) else {
        return "no whole message".to_owned();
    };
    let code = rcode::name(header.rcode().into()).unwrap_or("an unknown code");
    let authority = if header.aa() {
        ""
    } else {
        ", not authoritative"
    };
    format!("{code}{authority}")
}

// ---------------------------------------------------------------------------------------------- TCP

/// What a transfer came to.
pub(super) enum Received {
    /// Nothing newer than what is held; the primary's serial.
    UpToDate(u32),
    Whole(Box<ZoneBuilder>),
    Changes(Vec<Change>),
}

/// What is said of a message whose records are cut or malformed behind those of the zone.
const CUT_BEHIND: &str = "records behind the answer section are cut or malformed";

/// How much a transfer may be, and take.
pub(super) struct Within<'t, 'c> {
    pub(super) bounds: TransferBounds,
    pub(super) claim: &'t mut Claim<'c>,
    /// How far it has come.
    pub(super) progress: &'t Progress,
}

/// Transfers the zone, or where `held` is its SOA record, what has changed since: over this connection. The second value: for
/// how many seconds the zone may be gone on with, where the primary says so.
///
/// # Errors
/// Why nothing of what came may be used.
pub(super) async fn transfer(
    (peer, stream): (&Peer, TcpStream),
    apex: Name<'_>,
    held: Option<&Record>,
    mut within: Within<'_, '_>,
) -> Result<(Received, Option<u32>), AskError> {
    within.progress.begin(0);
    let bounds = within.bounds;
    let receiving = async {
        match receive((peer, stream), apex, held, &mut within, true).await {
            // RFC 6891 §7: so says who does not know EDNS.
            Err(AskError::Transfer(TransferError::Refused(rcode::FORMERR))) => {
                let stream = connection(peer, CONNECT_AGAIN).await?;
                receive((peer, stream), apex, held, &mut within, false).await
            }
            received => received,
        }
    };
    match timeout(bounds.duration, receiving).await {
        Ok(received) => received,
        Err(_) => Err(AskError::Slow("the transfer", bounds.duration)),
    }
}

async fn receive(
    (peer, mut stream): (&Peer, TcpStream),
    apex: Name<'_>,
    held: Option<&Record>,
    within: &mut Within<'_, '_>,
    asks_expiry: bool,
) -> Result<(Received, Option<u32>), AskError> {
    let (id, bounds) = (random_id(), within.bounds);
    let serial = held.and_then(|soa| serial::of_soa(&soa.rdata));
    let (mut request, mut incoming) = match held.zip(serial) {
        Some((soa, serial)) => (
            query::ixfr(id, apex, soa.as_ref()),
            Incoming::ixfr(apex, id, serial, bounds.incoming()),
        ),
        None => (
            query::axfr(id, apex),
            Incoming::axfr(apex, id, bounds.incoming()),
        ),
    };
    if asks_expiry {
        query::ask_expiry(&mut request);
    }
    let mut session = send(&mut stream, peer, &mut request).await?;
    let (mut expires_in, mut is_first) = (None, true);
    let mut gathered = Gathered::new(apex);
    let mut message = Vec::new();
    loop {
        let cut = "the transfer was cut";
        read_message(&mut stream, &mut message, (cut, SILENCE)).await?;
        within.progress.add(message.len());
        let length = match &mut session {
            Some(session) => verified(session, &message)?,
            None => message.len(),
        };
        let step = incoming.message(&message[..length], |item| gathered.take(item))?;
        // The zone is in the answer section alone. A message that is cut behind that is cut all the same; its signature is counted.
        parse_response(&message).map_err(|_| TransferError::Malformed(CUT_BEHIND))?;
        gathered.check()?;
        gathered.look(incoming.held_back(), message.len(), within)?;
        // With its signature, which stands behind the option and is counted.
        if std::mem::take(&mut is_first) {
            expires_in = query::stated_expiry(&message);
        }
        if let Step::Done(outcome) = step {
            // RFC 8945 §5.3.1: the last message is signed.
            if session.is_some_and(|session| !session.is_verified()) {
                return Err(TsigError::Unsigned.into());
            }
            if let Some((owner, count)) = incoming.left_out() {
                let (records, first) = match count {
                    1 => ("1 record".to_owned(), "is out of zone, and left out, at"),
                    _ => (
                        format!("{count} records"),
                        "are out of zone, and left out, the first at",
                    ),
                };
                log::warn!(
                    "zone {apex}: {records} that {} sent {first} {owner}: owners are {apex} or end with it",
                    peer.address
                );
            }
            return Ok((gathered.received(outcome), expires_in));
        }
    }
}

/// The length of the message without its signature. What a primary says without one it says to refuse.
fn verified(session: &mut Session, message: &[u8]) -> Result<usize, AskError> {
    session.verify(message, clock::unix()).map_err(|error| {
        let code = Header::read(message).map_or(0, |header| header.rcode());
        match error {
            TsigError::Unsigned if code != 0 => TransferError::Refused(code.into()).into(),
            error => AskError::Signature(error),
        }
    })
}

/// Signs a request, where the primary has a key.
fn signed(peer: &Peer, request: &mut Vec<u8>) -> Option<Session> {
    let key = peer.key.as_ref()?;
    Some(sign_request(request, key, clock::unix()))
}

/// Sends a request over a connection; what its answer's signature is checked with.
async fn send(
    stream: &mut TcpStream,
    peer: &Peer,
    request: &mut Vec<u8>,
) -> Result<Option<Session>, AskError> {
    let session = signed(peer, request);
    let mut octets = (request.len() as u16).to_be_bytes().to_vec();
    octets.extend_from_slice(request);
    stream
        .write_all(&octets)
        .await
        .map_err(system("cannot be asked"))?;
    Ok(session)
}

/// The same as [`exchange`] over TCP, once.
///
/// # Errors
/// Why there is no answer.
async fn exchange_by_stream(
    peer: &Peer,
    mut request: Vec<u8>,
    patience: Patience,
) -> Result<Vec<u8>, AskError> {
    let unsigned = request.clone();
    let mut stream = connection(peer, patience.connect).await?;
    let mut session = send(&mut stream, peer, &mut request).await?;
    let mut message = Vec::new();
    let silence = patience.silence;
    read_message(&mut stream, &mut message, ("no answer", silence)).await?;
    if !is_answer(&message, &unsigned) {
        return Err(AskError::NoSoa("it answers another question".to_owned()));
    }
    believed(&message, session.as_mut())
}

/// Reads the next message; `cut`: what is said where the connection ends; `silence`: how long the message may take.
async fn read_message(
    stream: &mut TcpStream,
    message: &mut Vec<u8>,
    (cut, silence): (&'static str, Duration),
) -> Result<(), AskError> {
    let reading = async {
        let length = usize::from(stream.read_u16().await?);
        message.resize(length, 0);
        stream.read_exact(message).await
    };
    match timeout(silence, reading).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(AskError::System(cut, error)),
        Err(_) => Err(AskError::Slow("the next message", silence)),
    }
}

/// Records as they come.
struct Gathered {
    builder: ZoneBuilder,
    changes: Vec<Change>,
    error: Option<String>,
    /// Octets of messages.
    came: u64,
    /// How many octets of memory are taken when it is looked again how many there are.
    look_at: u64,
}

/// Octets of memory for each that is counted of a change, with what the allocator adds; and of what is made of one, copies of its
/// records and of those beside them.
const CHANGE: u64 = 2;
const CHANGED: u64 = 4;

impl Gathered {
    fn new(apex: Name<'_>) -> Gathered {
        Gathered {
            builder: ZoneBuilder::new(apex),
            changes: Vec::new(),
            error: None,
            came: 0,
            look_at: STEP,
        }
    }

    /// Looks behind a message of so many octets whether there is memory for what came, and for what will be made of it.
    /// `held_back`: see [`Incoming::held_back`].
    fn look(
        &mut self,
        held_back: u64,
        octets: usize,
        within: &mut Within<'_, '_>,
    ) -> Result<(), AskError> {
        self.came += octets as u64;
        let (held, built) = self.builder.memory();
        let (held, built) = (held + CHANGE * held_back, built + CHANGED * held_back);
        if held >= self.look_at {
            let no_room = |error| {
                let max_size = within.bounds.octets;
                AskError::NoRoom(self.came, Box::new(error), max_size)
            };
            self.look_at = held + within.claim.claim(held, built).map_err(no_room)?;
        }
        Ok(())
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Whole(record) => {
                if let Err(error) = self.builder.push(record.as_ref()) {
                    self.error.get_or_insert(error.to_string());
                }
            }
            Item::From(from) => self.changes.push(Change {
                to: from.clone(),
                from,
                removed: Vec::new(),
                added: Vec::new(),
            }),
            Item::Removed(record) => self.last(|change| change.removed.push(record)),
            Item::To(record) => self.last(|change| change.to = record),
            Item::Added(record) => self.last(|change| change.added.push(record)),
        }
    }

    fn last(&mut self, add: impl FnOnce(&mut Change)) {
        // Each change begins with its first SOA record: crate zone has seen to it.
        if let Some(change) = self.changes.last_mut() {
            add(change);
        }
    }

    fn check(&mut self) -> Result<(), AskError> {
        self.error
            .take()
            .map_or(Ok(()), |error| Err(AskError::Zone(error)))
    }

    fn received(self, outcome: Outcome) -> Received {
        match outcome {
            Outcome::UpToDate(serial) => Received::UpToDate(serial),
            Outcome::Whole => Received::Whole(Box::new(self.builder)),
            Outcome::Changes => Received::Changes(self.changes),
        }
    }
}

impl AskError {
    /// Whether it is what a server says that knows no EDNS, and looks at the signature of nothing that it does not know.
    fn is_unsigned_formerr(&self) -> bool {
        match self {
            AskError::Unsigned(rcode::FORMERR) => true,
            AskError::Neither(errors) => errors[1].is_unsigned_formerr(),
            _ => false,
        }
    }

    /// Whether it is what comes of a server that is down, or cannot be reached: time was lost with it, as it will be the next
    /// time.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            AskError::NoAnswer(_) | AskError::System(..) | AskError::Slow(..) => true,
            AskError::Both(errors) | AskError::Neither(errors) => errors[1].is_silence(),
            _ => false,
        }
    }

    pub(super) fn is_overtaken(&self) -> bool {
        match self {
            AskError::Overtaken => true,
            AskError::Both(errors) => errors[1].is_overtaken(),
            _ => false,
        }
    }

    /// Whether AXFR should be tried where IXFR went wrong.
    pub(super) fn asks_for_axfr(&self) -> bool {
        match self {
            AskError::Transfer(error) => error.asks_for_axfr(),
            // Changes may be more than the zone that they lead to.
            AskError::NoRoom(..) => true,
            // Servers that do not know IXFR are said to close the connection.
            AskError::System("the transfer was cut", _)
            | AskError::Slow("the next message", _)
            | AskError::Zone(_) => true,
            _ => false,
        }
    }
}

/// An ID that nobody can predict.
pub(super) fn random_id() -> u16 {
    let mut octets = [0; 2];
    getrandom::fill(&mut octets).expect("getrandom(2) cannot fail once the system has started");
    u16::from_be_bytes(octets)
}

/// How messages name a transfer.
pub(super) fn kind_of(held: Option<&Record>) -> impl fmt::Display {
    QtypeText(if held.is_some() {
        qtype::IXFR
    } else {
        qtype::AXFR
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::apex;
    use super::*;
    use std::sync::Arc;
    use wire::message::parse_query;
    use zone::tsig::{Algorithm, Key};

    /// Answers without a signature: FORMERR where there is an OPT record, else REFUSED.
    async fn refuse(socket: UdpSocket) {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
            let parts = parse_query(&buffer[..length]).unwrap();
            let code = match parts.edns {
                Some(_) => rcode::FORMERR,
                None => rcode::REFUSED,
            };
            let mut answer = buffer[..HEADER_LENGTH].to_vec();
            answer[2] |= 0x80;
            answer[3] = code as u8;
            answer[4..].fill(0);
            socket.send_to(&answer, client).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_refusal_without_a_signature_is_told_and_formerr_ends_edns() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let apex = apex();
        let key = Key::new(apex.as_name(), Algorithm::Sha256, b"secret");
        let peer = Peer {
            key: Some(Arc::new(key)),
            ..Peer::new(socket.local_addr().unwrap())
        };
        tokio::spawn(refuse(socket));
        let asked = serial(&peer, apex.as_name(), Patience::WHOLE).await;
        let error = asked.unwrap_err();
        assert!(!error.is_silence());
        let expected = "it answers REFUSED without a signature";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
