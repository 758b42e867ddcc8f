//! The clients of a scenario: their sockets and connections, what they asked, what came back.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};

use super::model::{Ask, Payload, Transport};
use crate::lab::{CLIENT_V4, CLIENT_V6, End, Lab};
use crate::namespace::bind_when_free;
use crate::{During, Failure, Outcome, again_if_interrupted};

/// All clients of one run.
pub(super) struct Clients<'a> {
    lab: &'a Lab,
    channels: BTreeMap<String, Channel>,
    asked: Vec<Asked>,
    /// Queries that may have an answer nobody awaits.
    allowed: Vec<Asked>,
    /// By where floods went: the socket that they came from, and its address.
    flooding: HashMap<SocketAddr, (UdpSocket, SocketAddr)>,
}

/// A query that was sent.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// What `expect` calls it.
    pub label: String,
    /// The message.
    pub octets: Vec<u8>,
    /// Where it went.
    pub destination: SocketAddr,
    /// Over what.
    pub transport: Transport,
    /// It is for the kernel's sockets even where AF_XDP serves.
    pub kernel: bool,
    channel: String,
}

/// A socket or connection, with answers that nobody has asked for yet.
struct Channel {
    socket: Socket,
    waiting: Vec<Vec<u8>>,
}

enum Socket {
    Udp {
        socket: UdpSocket,
        server: SocketAddr,
    },
    Tcp(TcpStream),
    /// The source is not ours to receive at.
    Nowhere,
}

/// IDs that the runner gives start here, so that they are recognised in captures.
const FIRST_ID: u16 = 0x4d00;

impl<'a> Clients<'a> {
    /// Clients in a lab, none of which has spoken yet.
    pub(super) fn new(lab: &'a Lab) -> Self {
        Self {
            lab,
            channels: BTreeMap::new(),
            asked: Vec::new(),
            allowed: Vec::new(),
            flooding: HashMap::new(),
        }
    }

    /// Everything that was asked, in order.
    pub(super) fn asked(&self) -> &[Asked] {
        &self.asked
    }

    /// Sends a query.
    pub(super) fn ask(&mut self, ask: &Ask) -> Outcome<()> {
        let number = self.asked.len();
        let octets = message(&ask.payload, FIRST_ID + number as u16);
        let channel = ask.via.clone().unwrap_or_else(|| format!("#{number}"));
        if !self.channels.contains_key(&channel) {
            let socket = self.open(ask)?;
            self.channels.insert(
                channel.clone(),
                Channel {
                    socket,
                    waiting: Vec::new(),
                },
            );
        }
        self.asked.push(Asked {
            label: ask.label.clone().unwrap_or_else(|| format!("#{number}")),
            octets: octets.clone(),
            destination: ask.destination,
            transport: ask.transport,
            kernel: ask.kernel,
            channel: channel.clone(),
        });
        let channel = &self.channels[&channel];
        match &ask.frame {
            Some(shape) => {
                let payload = [&ask.front[..], &octets].concat();
                self.send_frames(&shape.frames(channel.source(ask), ask.destination, &payload))
            }
            None => channel
                .socket
                .send(&ask.front, &octets, ask.split)
                .during(format!("sending to {}", ask.destination)),
        }
    }

    /// The socket that all floods to there come from: the kernel chooses a queue for each socket, and what one flood has filled
    /// another is to meet. What comes back to it is nobody's business.
    pub(super) fn flooding(&mut self, destination: SocketAddr) -> Outcome<UdpSocket> {
        let (socket, _) = match self.flooding.entry(destination) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let opened = self.lab.client().run(|| connected(destination))?;
                free.insert(opened.during("opening a flood")?)
            }
        };
        socket.try_clone().during("opening a flood")
    }

    /// Whether a flood came from there.
    pub(super) fn was_flooded_from(&self, source: SocketAddr) -> bool {
        self.flooding.values().any(|(_, from)| *from == source)
    }

    /// The query that `label` names, or the last one.
    pub(super) fn find(&self, label: Option<&str>) -> Outcome<Asked> {
        let found = match label {
            Some(label) => self.asked.iter().rfind(|asked| asked.label == label),
            None => self.asked.last(),
        };
        found
            .cloned()
            .ok_or_else(|| Failure::new("no such query was asked before"))
    }

    /// Awaits the answer to a query, by its ID.
    pub(super) fn answer(&mut self, asked: &Asked, within: Duration) -> Outcome<Vec<u8>> {
        let channel = self
            .channels
            .get_mut(&asked.channel)
            .ok_or_else(|| Failure::new("the client closed"))?;
        let deadline = Instant::now() + within;
        loop {
            let place = channel
                .waiting
                .iter()
                .position(|octets| octets.get(..2) == asked.octets.get(..2));
            if let Some(place) = place {
                return Ok(channel.waiting.remove(place));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let octets = channel
                .socket
                .receive(left.max(Duration::from_millis(1)))
                .map_err(|error| match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        Failure::new(format!("no answer within {} ms", within.as_millis()))
                    }
                    _ => Failure::new(format!("receiving: {error}")),
                })?;
            channel.waiting.push(octets);
        }
    }

    /// Awaits that the server closes a connection.
    pub(super) fn await_closed(&mut self, name: &str, within: Duration) -> Outcome<()> {
        let channel = self
            .channels
            .get(name)
            .ok_or_else(|| Failure::new(format!("no connection `{name}`")))?;
        let Socket::Tcp(mut stream) = channel.socket.try_clone()? else {
            return Err(Failure::new(format!("`{name}` is no TCP connection")));
        };
        stream
            .set_read_timeout(Some(within))
            .during("setting a time-out")?;
        let read = again_if_interrupted(|| stream.read(&mut [0; 1]));
        judge_end(name, read, within)
    }

    /// Closes a client's end.
    pub(super) fn close(&mut self, name: &str) -> Outcome<()> {
        let closed = self.channels.remove(name);
        closed
            .map(drop)
            .ok_or_else(|| Failure::new(format!("no connection `{name}`")))
    }

    /// Ends what a client sends on a connection; what it is sent it still takes.
    pub(super) fn half_close(&mut self, name: &str) -> Outcome<()> {
        let channel = self.channels.get(name);
        match channel.map(|channel| &channel.socket) {
            Some(Socket::Tcp(stream)) => stream
                .shutdown(Shutdown::Write)
                .during(format!("closing half of `{name}`")),
            _ => Err(Failure::new(format!("no connection `{name}`"))),
        }
    }

    /// Lets the query have an answer, or none.
    pub(super) fn allow_answer(&mut self, label: Option<&str>) -> Outcome<()> {
        let asked = self.find(label)?;
        self.allowed.push(asked);
        Ok(())
    }

    /// Fails if anything came that no `expect` took; gives how many came that were allowed to.
    pub(super) fn check_nothing_left(&mut self) -> Outcome<usize> {
        let mut allowed = 0;
        for (name, channel) in &mut self.channels {
            while let Ok(octets) = channel.socket.receive(Duration::from_millis(1)) {
                channel.waiting.push(octets);
            }
            for octets in &channel.waiting {
                let answers =
                    |asked: &Asked| asked.channel == *name && asked.octets[..2] == octets[..2];
                if let Some(place) = self.allowed.iter().position(answers) {
                    self.allowed.swap_remove(place);
                    allowed += 1;
                    continue;
                }
                let labels = self.asked.iter().filter(|asked| answers(asked));
                let labels: Vec<&str> = labels.map(|asked| asked.label.as_str()).collect();
                let length = octets.len();
                let text =
                    format!("an answer that nothing expects, of {length} octets, to {labels:?}");
                return Err(Failure::new(text));
            }
        }
        Ok(allowed)
    }

    fn open(&self, ask: &Ask) -> Outcome<Socket> {
        let source = SocketAddr::new(ask.source, ask.source_port);
        let what = format!("opening a client at {source}");
        let bind = || match &ask.frame {
            // Another client of this scenario may have it, for as long as it runs.
            Some(_) => UdpSocket::bind(source),
            None => bind_when_free(|| UdpSocket::bind(source)),
        };
        match ask.transport {
            Transport::Udp => match self.lab.client().run(bind)? {
                Ok(socket) => Ok(Socket::Udp {
                    socket,
                    server: ask.destination,
                }),
                // A forged source: the frame goes out, nothing can come back.
                Err(_) if ask.frame.is_some() => Ok(Socket::Nowhere),
                Err(error) => Err(error).during(what),
            },
            Transport::Tcp => {
                let descriptor = self
                    .lab
                    .client()
                    .run(|| connect_from(source, ask.destination))?;
                let stream = TcpStream::from(descriptor.during(what)?);
                stream.set_nodelay(true).during("TCP_NODELAY")?;
                Ok(Socket::Tcp(stream))
            }
        }
    }

    fn send_frames(&self, frames: &[Vec<u8>]) -> Outcome<()> {
        frames
            .iter()
            .try_for_each(|frame| self.lab.inject(End::Clients, frame))
    }
}

impl Channel {
    fn source(&self, ask: &Ask) -> SocketAddr {
        match &self.socket {
            Socket::Udp { socket, .. } => socket.local_addr().expect("it is bound"),
            _ => SocketAddr::new(ask.source, ask.source_port),
        }
    }
}

impl Socket {
    fn try_clone(&self) -> Outcome<Self> {
        match self {
            Self::Tcp(stream) => Ok(Self::Tcp(
                stream.try_clone().during("sharing a connection")?,
            )),
            _ => Ok(Self::Nowhere),
        }
    }

    fn send(&self, front: &[u8], octets: &[u8], split: bool) -> io::Result<()> {
        match self {
            Self::Udp { socket, server } => {
                let datagram = [front, octets].concat();
                socket.send_to(&datagram, server).map(drop)
            }
            Self::Tcp(stream) => {
                let mut stream = stream;
                // RFC 1035 section 4.2.2: "prefixed with a two byte length field".
                let length = (octets.len() as u16).to_be_bytes();
                let message = [front, length.as_slice(), octets].concat();
                let step = if split { 1 } else { message.len() };
                message
                    .chunks(step)
                    .try_for_each(|piece| stream.write_all(piece))
            }
            Self::Nowhere => Ok(()),
        }
    }

    fn receive(&mut self, within: Duration) -> io::Result<Vec<u8>> {
        match self {
            Self::Udp { socket, server } => receive_datagram(socket, *server, within),
            Self::Tcp(stream) => receive_message(stream, within),
            Self::Nowhere => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Whether what was read of the connection `name` is its end.
fn judge_end(name: &str, read: io::Result<usize>, within: Duration) -> Outcome<()> {
    use io::ErrorKind::{ConnectionReset, TimedOut, WouldBlock};
    let text = match read {
        Ok(0) => return Ok(()),
        Ok(_) => format!("`{name}`: the server sent more instead of closing"),
        Err(error) => match error.kind() {
            ConnectionReset => return Ok(()),
            WouldBlock | TimedOut => {
                format!("`{name}` is still open after {} ms", within.as_millis())
            }
            _ => format!("`{name}`: awaiting its end: {error}"),
        },
    };
    Err(Failure::new(text))
}

fn receive_datagram(
    socket: &UdpSocket,
    server: SocketAddr,
    within: Duration,
) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 65536];
    socket.set_read_timeout(Some(within))?;
    let (length, source) = again_if_interrupted(|| socket.recv_from(&mut buffer))?;
    if (source.ip(), source.port()) != (server.ip(), server.port()) {
        return Err(io::Error::other(format!(
            "an answer from {source}, though {server} was asked"
        )));
    }
    buffer.truncate(length);
    Ok(buffer)
}

fn receive_message(stream: &mut TcpStream, within: Duration) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(within))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut octets = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut octets)?;
    Ok(octets)
}

/// A socket of the client's own address that is connected to there, and its address.
fn connected(destination: SocketAddr) -> io::Result<(UdpSocket, SocketAddr)> {
    let source = if destination.is_ipv4() {
        CLIENT_V4
    } else {
        CLIENT_V6
    };
    let socket = UdpSocket::bind((source, 0))?;
    socket.connect(destination)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Connects from a given source address, which std cannot.
fn connect_from(source: SocketAddr, destination: SocketAddr) -> nix::Result<OwnedFd> {
    let family = if matches!(source.ip(), IpAddr::V4(_)) {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let descriptor = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&descriptor, sockopt::ReuseAddr, &true)?;
    let raw = std::os::fd::AsRawFd::as_raw_fd(&descriptor);
    bind(raw, &SockaddrStorage::from(source))?;
    connect(raw, &SockaddrStorage::from(destination))?;
    Ok(descriptor)
}

/// The octets of a payload; `next_id` is used where none is given.
fn message(payload: &Payload, next_id: u16) -> Vec<u8> {
    match payload {
        Payload::Octets(octets) => octets.clone(),
        Payload::Query { query, id, counts } => {
            let mut query = query.clone();
            query.id = id.unwrap_or(next_id);
            let mut octets = query.octets();
            for (place, count) in counts.iter().flatten().enumerate() {
                octets[4 + 2 * place..6 + 2 * place].copy_from_slice(&count.to_be_bytes());
            }
            octets
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn an_end_a_time_out_and_an_error_are_told_apart() {
        let judged = |read: io::Result<usize>| {
            let judged = judge_end("c", read, Duration::from_millis(5));
            judged.map_err(|failure| failure.to_string())
        };
        let failed = |kind: ErrorKind| judged(Err(kind.into()));
        assert_eq!(judged(Ok(0)), Ok(()));
        assert_eq!(failed(ErrorKind::ConnectionReset), Ok(()));
        let open: Result<(), String> = Err("`c` is still open after 5 ms".to_owned());
        assert_eq!(failed(ErrorKind::WouldBlock), open);
        assert_eq!(failed(ErrorKind::TimedOut), open);
        let error = judged(Err(io::Error::other("a reason"))).unwrap_err();
        assert_eq!(error, "`c`: awaiting its end: a reason");
        assert!(judged(Ok(1)).unwrap_err().contains("sent more"));
    }
}
