//! Asking backends over TCP (RFC 7766): a connection per query.
//!
//! One connection, one query, one answer: nothing is tried twice, so that a backend gets one query per client query.
//! The wait is bounded as a whole by the server's time-outs, however slowly octets drip in (F17).

use super::exchange::is_bare_error;
use super::server::Server;
use crate::pipeline::drop::DropReason;
use crate::runtime::memory::Hold;
use crate::runtime::{Asked, Shared};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use wire::message::{Header, parse_response, question_matches};

/// What a server's TCP connections did; dnsdist's numbers per server.
#[derive(Debug, Default)]
pub struct Counters {
    pub died_sending_query: AtomicU64,
    pub died_reading_response: AtomicU64,
    pub gave_up: AtomicU64,
    pub connect_timeouts: AtomicU64,
    pub read_timeouts: AtomicU64,
    pub write_timeouts: AtomicU64,
    /// Now.
    pub connections: AtomicU64,
    /// The most at a time.
    pub connections_maximum: AtomicU64,
    pub new_connections: AtomicU64,
    /// All of ended connections together.
    pub microseconds: AtomicU64,
}

impl Counters {
    /// On average: one, or none before the first.
    pub fn queries_per_connection(&self) -> f64 {
        f64::from(u8::from(self.new_connections.load(Relaxed) > 0))
    }

    /// Of ended connections, on average, in milliseconds.
    pub fn duration(&self) -> f64 {
        let ended = self
            .new_connections
            .load(Relaxed)
            .saturating_sub(self.connections.load(Relaxed));
        self.microseconds.load(Relaxed) as f64 / 1_000.0 / ended.max(1) as f64
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection, or it broke.
    Connection,
    /// The server took the query and did not answer in time.
    Timeout,
    /// An answer came that the client does not get.
    Dropped(DropReason),
}

/// What the client gets.
pub struct Answer {
    pub message: Vec<u8>,
    /// How long it is to wait (DelayAction), over UDP.
    pub delay: Duration,
}

/// Asks the server and makes the client's answer of its response; `hold` then holds the answer's bytes.
///
/// # Errors
/// Why there is none; everything is counted.
pub async fn ask(shared: &Shared, asked: &Asked, hold: &mut Hold) -> Result<Answer, Failure> {
    let server = &asked.server;
    let _in_flight = InFlight::enter(server);
    server.queries.count(shared.shard.lane);
    let (mut message, since) = match exchange(shared, asked, hold).await {
        Ok(answered) => answered,
        Err(failure) => return Err(count_failure(shared, server, failure)),
    };
    server.responses.count(shared.shard.lane);
    server.record_latency_tcp(since.elapsed().as_micros() as u64);
    let length = message.len();
    // An error without question gets the client's.
    message.resize(length + asked.question().len(), 0);
    let answer = shared.answer(asked, &mut message, length);
    let (length, delay) = answer.map_err(Failure::Dropped)?;
    message.truncate(length);
    // No more than is held already: the query and the response.
    let _ = hold.set(message.len());
    Ok(Answer { message, delay })
}

fn count_failure(shared: &Shared, server: &Server, failure: Failure) -> Failure {
    use crate::counters::Counter;
    match failure {
        Failure::Connection => {
            count(&server.tcp.gave_up);
            server.send_errors.count(shared.shard.lane);
            shared.shard.count(Counter::DownstreamSendErrors);
        }
        Failure::Timeout => {
            server.timeouts.count(shared.shard.lane);
            shared.shard.count(Counter::DownstreamTimeouts);
        }
        Failure::Dropped(reason) => shared.shard.count_drop(reason),
    }
    failure
}

/// A query in flight, for as long as this lives: a client that goes away ends it too.
struct InFlight<'s>(&'s Server);

impl InFlight<'_> {
    fn enter(server: &Server) -> InFlight<'_> {
        // setMaxUDPOutstanding is for datagrams; here the runtime's own places are the limit.
        server.outstanding.enter(u32::MAX);
        InFlight(server)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.outstanding.leave();
    }
}

/// Sends the query; the response, under the client's ID, and when the query was sent.
async fn exchange(
    shared: &Shared,
    asked: &Asked,
    hold: &mut Hold,
) -> Result<(Vec<u8>, Instant), Failure> {
    let server = &asked.server;
    let options = &server.options;
    let mut connection = connect(shared, server).await?;
    // RFC 5452 section 9.2 wants unpredictable IDs for datagrams; here they keep backends from seeing those of clients.
    let id = shared.random_u16().to_be_bytes();
    let sending = send(&mut connection.stream, id, &asked.query);
    match timeout(options.tcp_send_timeout, sending).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => {
            count(&server.tcp.died_sending_query);
            return Err(Failure::Connection);
        }
        Err(_) => {
            count(&server.tcp.write_timeouts);
            return Err(Failure::Connection);
        }
    }
    let since = Instant::now();
    let receiving = receive(&mut connection.stream, shared, asked, id, hold);
    match timeout(options.tcp_receive_timeout, receiving).await {
        Ok(Ok(mut response)) => {
            response[..2].copy_from_slice(&asked.query[..2]);
            Ok((response, since))
        }
        Ok(Err(failure)) => {
            count(&server.tcp.died_reading_response);
            Err(failure)
        }
        Err(_) => {
            count(&server.tcp.read_timeouts);
            Err(Failure::Timeout)
        }
    }
}

// ---------------------------------------------------------------------------------------------- connection

/// A connection to a server, counted for as long as it lives.
struct Connection<'s> {
    stream: TcpStream,
    server: &'s Server,
    since: Instant,
    _place: tokio::sync::SemaphorePermit<'s>,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let tcp = &self.server.tcp;
        tcp.connections.fetch_sub(1, Relaxed);
        let microseconds = self.since.elapsed().as_micros() as u64;
        tcp.microseconds.fetch_add(microseconds, Relaxed);
    }
}

async fn connect<'s>(shared: &'s Shared, server: &'s Server) -> Result<Connection<'s>, Failure> {
    let options = &server.options;
    let connecting = async {
        // The semaphore is never closed.
        let place = shared.backend_connections.acquire().await.ok()?;
        let stream = open(options.address, options.source).await.ok()?;
        Some((stream, place))
    };
    let (stream, place) = match timeout(options.tcp_connect_timeout, connecting).await {
        Ok(Some(connected)) => connected,
        Ok(None) => return Err(Failure::Connection),
        Err(_) => {
            count(&server.tcp.connect_timeouts);
            return Err(Failure::Connection);
        }
    };
    let tcp = &server.tcp;
    count(&tcp.new_connections);
    let now = tcp.connections.fetch_add(1, Relaxed) + 1;
    tcp.connections_maximum.fetch_max(now, Relaxed);
    Ok(Connection {
        stream,
        server,
        since: Instant::now(),
        _place: place,
    })
}

async fn open(address: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// RFC 7766 section 8: "SHOULD pass the two-octet length field, and the message described by that length field, to the TCP
/// layer at the same time".
async fn send(stream: &mut TcpStream, id: [u8; 2], query: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(query.len() + 2);
    bytes.extend_from_slice(&(query.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&id);
    bytes.extend_from_slice(&query[2..]);
    stream.write_all(&bytes).await
}

/// Reads messages until one answers the query: others, and broken ones, do not end the wait (invariant I7).
async fn receive(
    stream: &mut TcpStream,
    shared: &Shared,
    asked: &Asked,
    id: [u8; 2],
    hold: &mut Hold,
) -> Result<Vec<u8>, Failure> {
    loop {
        let length = usize::from(stream.read_u16().await.map_err(|_| Failure::Connection)?);
        let held = hold.set(asked.query.len() + length);
        held.map_err(|_| Failure::Dropped(DropReason::TcpMemoryFull))?;
        let mut message = vec![0; length];
        let read = stream.read_exact(&mut message).await;
        read.map_err(|_| Failure::Connection)?;
        match check(&message, asked, id) {
            Ok(()) => return Ok(message),
            Err(reason) => {
                asked.server.nonmatching.count(shared.shard.lane);
                shared.shard.count_drop(reason);
            }
        }
    }
}

/// Whether a message answers the query that went out under `id`.
fn check(message: &[u8], asked: &Asked, id: [u8; 2]) -> Result<(), DropReason> {
    let header = Header::read(message).ok_or(DropReason::ResponseMalformed)?;
    if header.id().to_be_bytes() != id {
        return Err(DropReason::ResponseUnexpected);
    }
    let parts = parse_response(message).map_err(|_| DropReason::ResponseMalformed)?;
    let question = asked.question();
    let answers = match parts.question {
        Some(_) => question_matches(message, question),
        None => is_bare_error(&parts),
    };
    if answers {
        Ok(())
    } else {
        Err(DropReason::ResponseMismatch)
    }
}

#[cfg(test)]
mod tests;
