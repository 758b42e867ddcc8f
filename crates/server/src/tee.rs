//! What TeeAction sends: copies of queries to another server, whose answers are counted and thrown away. Two threads behind
//! a bounded queue of buffers, all made before the first query comes, so that a slow kernel costs copies, which are counted, and
//! never a worker's time.
//!
//! ```text
//!  worker ─ copy ─▶ ring of buffers ─▶ sender ─▶ other server ─▶ receiver: counted
//! ```

mod ring;

use crate::log;
use crate::pipeline::query::{Protocol, Query};
use crate::pipeline::subnet::{self, SubnetTuning};
use ring::Ring;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;
use wire::codes::{edns_option, rcode};
use wire::edit;
use wire::message::{EdnsOption, EdnsParts, Header, parse_query};
use wire::proxy::{self, Ends};

/// Copies that may wait: a tenth of a second at 10,000 queries a second.
const QUEUE: usize = 1_024;

/// The room that each copy has from the start, in bytes: the longest query of an Ethernet frame. 1.5 MB for all of them. What is
/// longer, which few queries are, gets more, and gives it back.
const ROOM: usize = 1_472;

/// How often the receiver looks whether it is still wanted.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest datagram that is sent, in bytes: what an IPv4 packet holds.
const DATAGRAM_MAX: usize = 65_507;

/// The UDP payload size that is said for a client without EDNS, in bytes.
const PAYLOAD_SIZE: u16 = 512;

/// What TeeAction was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TeeOptions {
    pub remote: SocketAddr,
    /// The client's network as an EDNS option (RFC 7871); in place of one that is there where setECSOverride or
    /// SetECSOverrideAction says so.
    pub add_subnet: bool,
    /// The source address.
    pub local: Option<IpAddr>,
    /// A header of the PROXY protocol, version 2, before the query.
    pub add_proxy_protocol: bool,
}

/// One other server that gets copies.
pub struct Tee {
    options: TeeOptions,
    /// See [`Tee::open`]: a configuration that is only checked opens nothing.
    line: OnceLock<Line>,
    counts: Arc<Counts>,
}

/// The way to the thread that sends.
struct Line {
    copies: Arc<Ring<Copied>>,
    sender: Thread,
}

/// A query on its way out.
struct Copied {
    message: Vec<u8>,
    client: SocketAddr,
    destination: SocketAddr,
    protocol: Protocol,
    subnet: SubnetTuning,
}

#[derive(Default)]
struct Counts {
    queries: AtomicU64,
    responses: AtomicU64,
    send_errors: AtomicU64,
    receive_errors: AtomicU64,
    tcp_drops: AtomicU64,
    noerrors: AtomicU64,
    nxdomains: AtomicU64,
    refuseds: AtomicU64,
    servfails: AtomicU64,
    others: AtomicU64,
    /// The action is gone: so are its threads soon.
    ended: AtomicBool,
}

impl Tee {
    pub fn new(options: TeeOptions) -> Tee {
        Tee {
            options,
            line: OnceLock::new(),
            counts: Arc::default(),
        }
    }

    pub fn options(&self) -> &TeeOptions {
        &self.options
    }

    /// Opens the socket and starts the threads, if that was not done before. To be called before queries come; until it was,
    /// and when it fails, which is said, copies count as errors.
    pub fn open(&self) {
        if self.line.get().is_some() {
            return;
        }
        match self.start() {
            Ok(line) => {
                self.line.get_or_init(|| line);
            }
            Err(error) => {
                let remote = self.options.remote;
                log::error!("no queries are copied to {remote}: {error}");
            }
        }
    }

    /// Sends a copy; when too many wait already it is dropped, and counted.
    pub fn copy(&self, query: &Query<'_>, subnet: SubnetTuning) {
        if query.length > DATAGRAM_MAX {
            add(&self.counts.tcp_drops);
            return;
        }
        let line = self.line.get();
        if !line.is_some_and(|line| line.put(query, subnet)) {
            add(&self.counts.send_errors);
        }
    }

    /// By the names that dnsdist gives them.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let counts = &self.counts;
        [
            ("noerrors", &counts.noerrors),
            ("nxdomains", &counts.nxdomains),
            ("other-rcode", &counts.others),
            ("queries", &counts.queries),
            ("recv-errors", &counts.receive_errors),
            ("refuseds", &counts.refuseds),
            ("responses", &counts.responses),
            ("send-errors", &counts.send_errors),
            ("servfails", &counts.servfails),
            ("tcp-drops", &counts.tcp_drops),
        ]
        .map(|(name, count)| (name, count.load(Relaxed)))
        .into()
    }

    fn start(&self) -> io::Result<Line> {
        let socket = Arc::new(self.socket()?);
        let copies = Arc::new(Ring::new(QUEUE, Copied::empty));
        let (counts, listening) = (Arc::clone(&self.counts), Arc::clone(&socket));
        spawn(move || receive(&listening, &counts))?;
        let (options, counts) = (self.options, Arc::clone(&self.counts));
        let waiting = Arc::clone(&copies);
        let sender = spawn(move || send(&options, &waiting, &socket, &counts))?;
        Ok(Line { copies, sender })
    }

    fn socket(&self) -> io::Result<UdpSocket> {
        let any = match self.options.remote {
            SocketAddr::V4(_) => IpAddr::from([0; 4]),
            SocketAddr::V6(_) => IpAddr::from([0_u16; 8]),
        };
        let socket = UdpSocket::bind((self.options.local.unwrap_or(any), 0))?;
        socket.connect(self.options.remote)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        self.counts.ended.store(true, Relaxed);
        if let Some(line) = self.line.get() {
            line.sender.unpark();
        }
    }
}

impl Line {
    /// False: there is no room.
    fn put(&self, query: &Query<'_>, subnet: SubnetTuning) -> bool {
        let is_put = self.copies.put(|copied| {
            copied.message.clear();
            copied.message.extend_from_slice(query.bytes());
            copied.client = *query.client();
            copied.destination = *query.destination();
            copied.protocol = query.protocol;
            copied.subnet = subnet;
        });
        // A system call only where it sleeps.
        self.sender.unpark();
        is_put
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    let thread = std::thread::Builder::new().name("tee".to_owned());
    Ok(thread.spawn(run)?.thread().clone())
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}

/// Sends what comes, until the action is gone.
fn send(options: &TeeOptions, copies: &Ring<Copied>, socket: &UdpSocket, counts: &Counts) {
    loop {
        while copies.take(|copied| copied.send(options, socket, counts)) {}
        if counts.ended.load(Relaxed) {
            return;
        }
        // Who puts something there wakes this thread, also when it has not gone to sleep yet.
        std::thread::park();
    }
}

fn receive(socket: &UdpSocket, counts: &Counts) {
    let mut message = [0; 512];
    while !counts.ended.load(Relaxed) {
        match socket.recv(&mut message) {
            Ok(length) => count(&message[..length], counts),
            Err(error) if is_patience(&error) => {}
            Err(_) => add(&counts.receive_errors),
        }
    }
}

fn is_patience(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn count(message: &[u8], counts: &Counts) {
    let Some(header) = Header::read(message).filter(|header| header.qr()) else {
        return add(&counts.receive_errors);
    };
    add(&counts.responses);
    add(match u16::from(header.rcode()) {
        rcode::NOERROR => &counts.noerrors,
        rcode::NXDOMAIN => &counts.nxdomains,
        rcode::REFUSED => &counts.refuseds,
        rcode::SERVFAIL => &counts.servfails,
        _ => &counts.others,
    });
}

impl Copied {
    /// A buffer for one.
    fn empty() -> Copied {
        let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        Copied {
            message: Vec::with_capacity(ROOM),
            client: nobody,
            destination: nobody,
            protocol: Protocol::Udp,
            subnet: SubnetTuning::default(),
        }
    }

    /// Sends it, and makes room for another one.
    fn send(&mut self, options: &TeeOptions, socket: &UdpSocket, counts: &Counts) {
        match socket.send(&self.message(options)) {
            Ok(_) => add(&counts.queries),
            Err(_) => add(&counts.send_errors),
        }
        self.message.clear();
        self.message.shrink_to(ROOM);
    }

    /// What is sent.
    fn message(&self, options: &TeeOptions) -> Vec<u8> {
        let query = match options.add_subnet {
            true => self.with_subnet().unwrap_or_else(|| self.message.clone()),
            false => self.message.clone(),
        };
        match options.add_proxy_protocol {
            true => [self.proxy_header(), query].concat(),
            false => query,
        }
    }

    /// `None`: it stays as it is.
    fn with_subnet(&self) -> Option<Vec<u8>> {
        let parts = parse_query(&self.message).ok()?;
        // RFC 8945 §5.5: whoever does not share the key of a signed message "MUST forward the message unchanged".
        if parts.is_signed {
            return None;
        }
        let said = |edns: EdnsParts| edns.option(&self.message, edns_option::ECS);
        if parts.edns.and_then(said).is_some() && !self.subnet.override_existing {
            return None;
        }
        let value = subnet::said_of(self.client.ip(), &self.subnet);
        let mut message = self.message[..parts.end.into()].to_vec();
        let (mut length, mut edns) = (message.len(), parts.edns);
        message.resize(length + edit::option_room(&value), 0);
        let code = edns_option::ECS;
        if let Some(found) = edns {
            let places = (parts.question_end, length);
            let (shorter, left) = edit::remove_options(&mut message, places, found, code);
            (length, edns) = (shorter, Some(left));
        }
        let value = &value;
        let option = EdnsOption { code, value };
        let places = (parts.question_end, length);
        let (length, _) = edit::set_option(&mut message, places, edns, option, PAYLOAD_SIZE)?;
        message.truncate(length);
        Some(message)
    }

    fn proxy_header(&self) -> Vec<u8> {
        let ends = Ends {
            source: self.client,
            destination: self.destination,
            transport: self.protocol.transport(),
        };
        let mut header = Vec::new();
        // Without values there is room for it.
        let _ = proxy::write(&mut header, &ends, std::iter::empty());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::scene::{Scene, answer_to, query, query_with_edns};
    use std::time::Instant;
    use wire::codes::qtype;

    fn tee(change: impl FnOnce(&mut TeeOptions)) -> (UdpSocket, Tee) {
        let other = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut options = TeeOptions {
            remote: other.local_addr().expect("an address"),
            add_subnet: false,
            local: None,
            add_proxy_protocol: false,
        };
        change(&mut options);
        let tee = Tee::new(options);
        tee.open();
        (other, tee)
    }

    fn copied(other: &UdpSocket, tee: &Tee, message: &[u8]) -> (Vec<u8>, SocketAddr) {
        Scene::default().parse(message, |query| tee.copy(query, SubnetTuning::default()));
        let mut buffer = [0; 1_024];
        let (length, from) = other.recv_from(&mut buffer).expect("a copy");
        (buffer[..length].to_vec(), from)
    }

    /// Waits until the statistic has this value.
    fn await_count(tee: &Tee, name: &str, value: u64) {
        let until = Instant::now() + Duration::from_secs(60);
        let count = || tee.statistics().iter().find(|row| row.0 == name).unwrap().1;
        while count() != value {
            assert!(Instant::now() < until, "{name}: {}", count());
            std::thread::yield_now();
        }
    }

    #[test]
    fn copies_are_sent_and_their_answers_counted() {
        let (other, tee) = tee(|options| options.local = Some("127.0.0.2".parse().unwrap()));
        let message = query("a.example.", qtype::A);
        let (copy, from) = copied(&other, &tee, &message);
        assert_eq!(
            (copy, from.ip()),
            (message.clone(), IpAddr::from([127, 0, 0, 2]))
        );
        for code in [0, 2, 3, 5, 4] {
            other
                .send_to(&answer_to(&message, code, &[60]), from)
                .unwrap();
        }
        other.send_to(b"junk", from).unwrap();
        await_count(&tee, "recv-errors", 1);
        await_count(&tee, "responses", 5);
        for name in [
            "queries",
            "noerrors",
            "servfails",
            "nxdomains",
            "refuseds",
            "other-rcode",
        ] {
            await_count(&tee, name, 1);
        }
    }

    #[test]
    fn a_copy_says_who_asked_when_it_is_to() {
        let (other, subnets) = tee(|options| options.add_subnet = true);
        let message = query("a.", qtype::A);
        let (copy, _) = copied(&other, &subnets, &message);
        assert!(copy.ends_with(&[0, 8, 0, 7, 0, 1, 24, 0, 192, 0, 2]));
        let mut said = query_with_edns("a.", qtype::A, Some(1_232));
        let end = said.len();
        said[end - 1] = 11;
        said.extend_from_slice(&[0, 8, 0, 7, 0, 1, 24, 0, 198, 51, 100]);
        assert_eq!(copied(&other, &subnets, &said).0, said);
        // Signed, it stays as it is.
        let mut signed = query("a.", qtype::A);
        signed[11] = 1;
        signed.extend([0, 0, qtype::TSIG as u8, 0, 255, 0, 0, 0, 0, 0, 0]);
        assert_eq!(copied(&other, &subnets, &signed).0, signed);
        let (other, proxied) = tee(|options| options.add_proxy_protocol = true);
        let (copy, _) = copied(&other, &proxied, &message);
        assert_eq!(copy[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c");
        assert_eq!(copy[16..24], [192, 0, 2, 9, 192, 0, 2, 1]);
        assert_eq!(
            (copy[24..28].to_vec(), &copy[28..]),
            (vec![0x10, 0x92, 0, 53], &message[..])
        );
    }

    #[test]
    fn what_cannot_be_sent_is_counted_and_nobody_waits() {
        let (other, open) = tee(|_| {});
        let message = query("a.", qtype::A);
        let copy = |tee: &Tee| {
            Scene::default().parse(&message, |query| tee.copy(query, SubnetTuning::default()));
        };
        // Opened twice it is the same.
        open.open();
        copy(&open);
        other.recv_from(&mut [0; 64]).expect("a copy");
        await_count(&open, "queries", 1);
        // Not opened at all.
        let mut closed = Tee::new(*open.options());
        copy(&closed);
        await_count(&closed, "send-errors", 1);
        // With a sender that does nothing.
        let copies = Arc::new(Ring::new(2, Copied::empty));
        let sender = std::thread::current();
        closed.line = OnceLock::from(Line { copies, sender });
        for _ in 0..5 {
            copy(&closed);
        }
        await_count(&closed, "send-errors", 4);
    }
}
