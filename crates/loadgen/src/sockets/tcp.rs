//! Clients over TCP (RFC 1035 §4.2.2, RFC 7766): queries are pipelined, a connection that ends is made anew.

use super::Plan;
use super::sys::id_length;
use super::transport::{Taker, Transport, wait_for_events};
use super::udp::local_address;
use crate::failure::{During, Failure, Outcome};
use crate::tally::latencies;
use hdrhistogram::Histogram;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Octets that may wait to be written by one connection before it takes no more queries.
const WRITE_MAX: usize = 65_536;
/// Octets read at once.
const READ_SIZE: usize = 65_536;
/// Events taken at once.
const EVENTS: usize = 64;

/// What was counted of connections.
#[derive(Clone, Debug)]
pub struct Connections {
    /// Connections that were asked for.
    pub attempts: u64,
    /// Those of them that took the place of one that ended or failed.
    pub again: u64,
    /// Attempts that could not be made: this machine had no port free.
    pub without_port: u64,
    /// From asking for a connection to having it, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Default for Connections {
    fn default() -> Connections {
        Connections {
            attempts: 0,
            again: 0,
            without_port: 0,
            latency: latencies(),
        }
    }
}

/// A client whose connection failed tries again after this time.
const PAUSE: Duration = Duration::from_millis(20);

/// The TCP clients of one thread.
pub(super) struct TcpClients<'r> {
    plan: &'r Plan,
    connections: &'r Mutex<Connections>,
    /// The number of the first client among all.
    first: usize,
    clients: Vec<Client>,
    epoll: Epoll,
    events: Vec<EpollEvent>,
    /// There was no connection yet, and will be none: why.
    failed: Option<Failure>,
}

/// One client: a connection, or none just now.
#[derive(Default)]
struct Client {
    stream: Option<TcpStream>,
    /// When it was asked for; none: it stands.
    asked: Option<Instant>,
    /// To be written, and how much of it is.
    out: Vec<u8>,
    written: usize,
    /// Read, but not a whole message yet.
    read: Vec<u8>,
    /// Queries and answers of this connection.
    queries: u64,
    answers: u64,
    last_query: Option<Instant>,
    /// No other attempt before.
    pause_until: Option<Instant>,
    /// Connections before this one.
    former: u64,
}

impl<'r> TcpClients<'r> {
    /// Asks for the connections of the clients of these numbers.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub(super) fn open(
        plan: &'r Plan,
        numbers: Range<usize>,
        connections: &'r Mutex<Connections>,
    ) -> Outcome<TcpClients<'r>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).during("opening connections")?;
        let mut clients = TcpClients {
            plan,
            connections,
            first: numbers.start,
            clients: numbers.map(|_| Client::default()).collect(),
            epoll,
            events: vec![EpollEvent::empty(); EVENTS],
            failed: None,
        };
        (0..clients.clients.len()).try_for_each(|client| clients.connect(client))?;
        Ok(clients)
    }

    /// Asks for a client's connection, anew if there was one. Then ports that former connections still keep (TIME-WAIT,
    /// RFC 9293 §3.6.1) end nothing: the client tries again soon.
    fn connect(&mut self, number: usize) -> Outcome<()> {
        let client = self.first + number;
        let Some(stream) = start(self.plan, client)? else {
            if self.clients[number].former == 0 {
                return Err(Failure::new(format!(
                    "connecting client {} to {}: no port is free here; try fewer clients (-c), or more source addresses (-a)",
                    client + 1,
                    self.plan.server(client)
                )));
            }
            self.clients[number].pause_until = Some(Instant::now() + PAUSE);
            lock(self.connections).without_port += 1;
            return Ok(());
        };
        // Edges: everything is read and written until the kernel has no more, so one registration is enough.
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        self.epoll
            .add(&stream, EpollEvent::new(flags, number as u64))
            .during("opening connections")?;
        let client = &mut self.clients[number];
        let former = client.former;
        *client = Client {
            stream: Some(stream),
            asked: Some(Instant::now()),
            former: former + 1,
            ..Client::default()
        };
        let mut connections = lock(self.connections);
        connections.attempts += 1;
        connections.again += u64::from(former > 0);
        Ok(())
    }

    /// Reads, writes and, where the connection has just been made, notes how long that took.
    fn serve(&mut self, number: usize, taker: &mut dyn Taker) {
        let client = &mut self.clients[number];
        if let (Some(asked), Some(stream)) = (client.asked, &client.stream) {
            match stream.take_error() {
                Ok(None) if stream.peer_addr().is_ok() => {
                    client.asked = None;
                    let latency = asked.elapsed().as_nanos() as u64;
                    lock(self.connections).latency.saturating_record(latency);
                }
                Ok(None) => return,
                Ok(Some(error)) | Err(error) => return self.give_up(number, &error),
            }
        }
        if client.stream.is_some()
            && (client.write().is_err() || client.read(number, taker).is_err())
        {
            client.stream = None;
        }
    }

    /// A connection was not made: the client tries again soon, but where none was ever made the run is over.
    fn give_up(&mut self, number: usize, error: &std::io::Error) {
        let client = &mut self.clients[number];
        client.stream = None;
        client.pause_until = Some(Instant::now() + PAUSE);
        if lock(self.connections).latency.is_empty() {
            let server = self.plan.server(self.first + number);
            self.failed = Some(Failure::new(format!(
                "no TCP connection to {server}: {error}"
            )));
        }
    }
}

impl Transport for TcpClients<'_> {
    fn send(&mut self, number: usize, messages: &[(u16, &[u8])]) -> Outcome<usize> {
        let limit = self.plan.queries_per_connection.unwrap_or(u64::MAX);
        let client = &mut self.clients[number];
        if client.is_used_up(limit, self.plan.timeout) {
            client.stream = None;
        }
        if client.stream.is_none() {
            if client
                .pause_until
                .is_none_or(|until| until <= Instant::now())
            {
                self.connect(number)?;
            }
            return Ok(0);
        }
        if client.asked.is_some() || client.out.len() - client.written >= WRITE_MAX {
            return Ok(0);
        }
        let count = messages.len().min((limit - client.queries) as usize);
        for (id, message) in &messages[..count] {
            client.put(*id, message);
        }
        if count > 0 {
            client.queries += count as u64;
            client.last_query = Some(Instant::now());
        }
        if client.write().is_err() {
            client.stream = None;
        }
        Ok(count)
    }

    fn receive(&mut self, limit: Duration, taker: &mut dyn Taker) -> Outcome<()> {
        let ready = wait_for_events(&self.epoll, &mut self.events, limit)?;
        for at in 0..ready {
            let client = self.events[at].data() as usize;
            self.serve(client, taker);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// None: whoever sends waits until there is room (RFC 9293 §3.8.6).
    fn overflowed(&self) -> u64 {
        0
    }
}

impl Client {
    /// Whether it has sent all that it may, and has every answer or need not wait any longer.
    fn is_used_up(&self, limit: u64, timeout: Duration) -> bool {
        let waited = self.last_query.is_some_and(|last| last.elapsed() > timeout);
        self.queries >= limit && (self.answers >= self.queries || waited)
    }

    /// Appends a message behind its length, under its ID; one that is too short for an ID as it is.
    fn put(&mut self, id: u16, message: &[u8]) {
        self.out.extend((message.len() as u16).to_be_bytes());
        let head = id_length(message);
        self.out.extend(&id.to_be_bytes()[..head]);
        self.out.extend(&message[head..]);
    }

    /// Writes until everything is out or the kernel takes no more.
    fn write(&mut self) -> std::io::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        while self.written < self.out.len() {
            match stream.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads until there is no more, and hands out whole messages as those of the client of this number. The end of the
    /// connection is an error.
    fn read(&mut self, number: usize, taker: &mut dyn Taker) -> std::io::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        loop {
            let filled = self.read.len();
            self.read.resize(filled + READ_SIZE, 0);
            let result = stream.read(&mut self.read[filled..]);
            self.read
                .truncate(filled + result.as_ref().map_or(0, |count| *count));
            match result {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    taker.come();
                    self.answers += hand_out(&mut self.read, number, taker);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Takes whole messages from the front of what this client read; returns how many.
fn hand_out(read: &mut Vec<u8>, client: usize, taker: &mut dyn Taker) -> u64 {
    let (mut at, mut count) = (0, 0);
    while let Some((length, rest)) = read[at..].split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length));
        let Some(message) = rest.get(..length) else {
            break;
        };
        taker.take(client, message);
        count += 1;
        at += 2 + length;
    }
    read.drain(..at);
    count
}

/// A socket that is being connected, and does not block. `None`: this machine has no port free for it.
fn start(plan: &Plan, client: usize) -> Outcome<Option<TcpStream>> {
    let local = local_address(plan, client)?;
    let server = plan.server(client);
    let opening = || format!("connecting client {} to {server}", client + 1);
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let descriptor = socket(family, SockType::Stream, flags, None).during(opening())?;
    setsockopt(&descriptor, sockopt::TcpNoDelay, &true).during(opening())?;
    if let Some(size) = plan.buffer_size {
        setsockopt(&descriptor, sockopt::SndBuf, &size).during(opening())?;
        setsockopt(&descriptor, sockopt::RcvBuf, &size).during(opening())?;
    }
    if plan.local.is_some() || plan.local_port != 0 {
        setsockopt(&descriptor, sockopt::ReuseAddr, &true).during(opening())?;
        bind(descriptor.as_raw_fd(), &SockaddrStorage::from(local)).during(opening())?;
    }
    match connect(descriptor.as_raw_fd(), &SockaddrStorage::from(server)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(Some(TcpStream::from(descriptor))),
        Err(Errno::EADDRNOTAVAIL) => Ok(None),
        Err(error) => Err(error).during(opening()),
    }
}

fn lock(connections: &Mutex<Connections>) -> std::sync::MutexGuard<'_, Connections> {
    connections
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::transport::Taken;
    use nix::sys::socket::getsockopt;
    use std::net::TcpListener;

    #[test]
    fn a_port_that_is_not_free_yet_ends_no_run_that_has_begun() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let local_port = free.local_addr().unwrap().port();
        drop(free);
        let address = server.local_addr().unwrap();
        let plan = Plan {
            local_port,
            ..Plan::of_one(address, super::super::Transport::Tcp)
        };
        let connections = Mutex::default();
        let mut clients = TcpClients::open(&plan, 0..1, &connections).unwrap();
        // The first connection keeps its port, as one in TIME-WAIT does.
        clients.connect(0).unwrap();
        assert!(clients.clients[0].pause_until.is_some());
        assert_eq!(lock(&connections).without_port, 1);
        assert_eq!(lock(&connections).attempts, 1);
        let another = Mutex::default();
        let Err(failure) = TcpClients::open(&plan, 0..1, &another) else {
            panic!("two connections between the same two ports");
        };
        let failure = failure.to_string();
        assert!(failure.contains("no port is free here"), "{failure}");
    }

    #[test]
    fn buffers_are_as_large_as_the_plan_says() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let plan = Plan {
            buffer_size: Some(65_536),
            ..Plan::of_one(address, super::super::Transport::Tcp)
        };
        let stream = start(&plan, 0).unwrap().unwrap();
        // Linux takes twice as much, half of it for what it keeps besides (socket(7)).
        assert_eq!(getsockopt(&stream, sockopt::SndBuf), Ok(131_072));
        assert_eq!(getsockopt(&stream, sockopt::RcvBuf), Ok(131_072));
    }

    #[test]
    fn whole_messages_are_handed_out_and_the_rest_stays() {
        let mut read = b"\0\x02ab\0\0\0\x03cd".to_vec();
        let mut taken = Taken::default();
        assert_eq!(hand_out(&mut read, 3, &mut taken), 2);
        assert_eq!(taken.0, [(3, b"ab".to_vec()), (3, Vec::new())]);
        assert_eq!(read, b"\0\x03cd");
        read.extend(b"e");
        assert_eq!(hand_out(&mut read, 4, &mut taken), 1);
        assert_eq!(taken.0[2], (4, b"cde".to_vec()));
        assert!(read.is_empty());
    }

    #[test]
    fn a_message_goes_behind_its_length_under_its_id() {
        let mut client = Client::default();
        client.put(0x0102, b"xxquery");
        client.put(3, b"x");
        assert_eq!(client.out, b"\0\x07\x01\x02query\0\x01x");
    }
}
