//! One connection to a backend: queries go in by a channel, answers come back in whatever order the backend has them.
//!
//! ```text
//!  ask ─ Request ─▶ channel ─▶ writing: length, query under an ID of its own ──▶ backend
//!   ▲                             │ waiting: ID → who asked
//!   └─── Answered ◀── reading ◀───┴──────────────────────────────────────────◀── backend
//! ```
//!
//! The connection is a task of its own. It ends with its stream, when nobody needs it any more, or when it was idle too
//! long; whoever waits then learns it by the end of his channel and reads the reason in [`Connection::broken`].

use super::{check, count};
use crate::backend::server::{Server, ServerOptions};
use crate::clock::Now;
use crate::heap;
use crate::pipeline::drop::DropReason;
use crate::runtime::memory::Hold;
use crate::runtime::{Asked, Shared};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;
use wire::message::Header;

/// A query, to be sent to as many servers as it takes.
#[derive(Clone)]
pub(super) struct Question {
    /// As the client sent it.
    pub(super) message: Arc<[u8]>,
    /// Name, type and class.
    place: Range<usize>,
    /// See [`Exchanges::take_with`](crate::backend::exchange::Exchanges::take_with).
    pub(super) allow_empty: bool,
    /// What servers with useProxyProtocol are told of it.
    proxy_header: Arc<[u8]>,
}

impl Question {
    /// `told`: a server is to be told of it by the PROXY protocol. `None`: more than a header can have.
    pub(super) fn of(asked: &Asked, told: bool) -> Option<Question> {
        let start = wire::message::HEADER_LENGTH;
        let proxy_header = match told {
            true => asked.proxy_header()?.into(),
            false => Arc::default(),
        };
        Some(Question {
            proxy_header,
            message: Arc::from(&*asked.query),
            place: start..start + asked.question().len(),
            allow_empty: asked.config.tuning.allow_empty_responses,
        })
    }

    /// What the connection to `server` begins with on which it goes out; most begin with nothing.
    pub(super) fn begin_of(&self, server: &Server) -> Arc<[u8]> {
        match server.options.proxy_protocol {
            true => Arc::clone(&self.proxy_header),
            false => Arc::default(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.message[self.place.clone()]
    }
}

/// Why a connection is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// It was never made.
    Refused,
    ConnectTimeout,
    Sending,
    SendTimeout,
    /// The backend closed it, or sent half a message.
    Receiving,
    /// What it takes is not there on our side, of which the server knows nothing: TCP holds as much as it may, there is no
    /// memory, descriptor or port, or there are as many connections to all servers as may be.
    NoRoom(DropReason),
}

impl Broken {
    /// Whether a connection that had been idle may break so because the backend had closed it.
    pub(super) fn may_be_age(self) -> bool {
        matches!(self, Broken::Sending | Broken::Receiving)
    }

    /// Whether another connection may do better, without a long wait.
    pub(super) fn may_be_retried(self) -> bool {
        self.may_be_age() || self == Broken::Refused
    }
}

/// An answer that belongs to its question, under an ID of the connection's.
pub(super) struct Answered {
    pub(super) message: Vec<u8>,
    pub(super) hold: Hold,
    pub(super) sent: Now,
}

/// What `Connection::ask` leaves to be awaited.
pub(super) struct Reply {
    sent: oneshot::Receiver<()>,
    answered: oneshot::Receiver<Answered>,
}

impl Reply {
    /// `None`: the connection broke.
    pub(super) async fn sent(&mut self) -> Option<()> {
        (&mut self.sent).await.ok()
    }

    /// `None`: the connection broke.
    pub(super) async fn answered(&mut self) -> Option<Answered> {
        (&mut self.answered).await.ok()
    }
}

struct Request {
    question: Question,
    sent: oneshot::Sender<()>,
    answered: oneshot::Sender<Answered>,
}

/// A query that was sent.
struct Waiting {
    question: Question,
    sent: Now,
    answered: oneshot::Sender<Answered>,
}

/// The end of a connection that queries hold.
pub(super) struct Connection {
    requests: mpsc::Sender<Request>,
    broken: Arc<OnceLock<Broken>>,
    /// What it begins with: the header of the PROXY protocol, of servers that want one.
    pub(super) begin: Arc<[u8]>,
    /// Queries that have a place on it.
    pub(super) load: AtomicUsize,
}

impl Connection {
    /// Starts to connect; queries may be asked at once. `idle`: how long it is kept without a query.
    pub(super) fn start(
        shared: &Arc<Shared>,
        server: &Arc<Server>,
        begin: Arc<[u8]>,
        (in_flight, idle): (usize, Duration),
    ) -> Connection {
        let (requests, incoming) = mpsc::channel(in_flight);
        let broken = Arc::new(OnceLock::new());
        let task = Task {
            shared: Arc::clone(shared),
            server: Arc::clone(server),
            waiting: Mutex::default(),
            begin: Arc::clone(&begin),
            idle,
        };
        let reason = Arc::clone(&broken);
        tokio::spawn(async move {
            let ended = task.run(incoming, &reason).await;
            // Whoever still waits learns of it when the task is gone.
            let _ = reason.set(ended);
        });
        Connection {
            requests,
            broken,
            begin,
            load: AtomicUsize::new(0),
        }
    }

    /// Hands a query over; `None`: the connection has ended.
    pub(super) async fn ask(&self, question: &Question) -> Option<Reply> {
        let (sent_sender, sent) = oneshot::channel();
        let (answered_sender, answered) = oneshot::channel();
        let request = Request {
            question: question.clone(),
            sent: sent_sender,
            answered: answered_sender,
        };
        self.requests.send(request).await.ok()?;
        Some(Reply { sent, answered })
    }

    /// Whether queries can still be asked.
    pub(super) fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }

    pub(super) fn broken(&self) -> Broken {
        *self.broken.get().unwrap_or(&Broken::Receiving)
    }
}

// ---------------------------------------------------------------------------------------------- the task

struct Task {
    shared: Arc<Shared>,
    server: Arc<Server>,
    /// By the ID under which they were sent.
    waiting: Mutex<HashMap<u16, Waiting>>,
    /// See [`Connection::begin`].
    begin: Arc<[u8]>,
    idle: Duration,
}

impl Task {
    /// Everything until the end, and why it came. The reason is set before those who wait are let go.
    async fn run(
        &self,
        mut requests: mpsc::Receiver<Request>,
        reason: &OnceLock<Broken>,
    ) -> Broken {
        let ended = match self.connect().await {
            Err(broken) => broken,
            Ok(connection) => {
                let (reader, writer) = connection.stream.into_split();
                tokio::select! {
                    ended = self.read(reader) => ended,
                    ended = self.write(writer, &mut requests) => ended,
                }
            }
        };
        let _ = reason.set(ended);
        // Before the stream is known as closed elsewhere: no new query may believe in this connection.
        requests.close();
        self.waiting().clear();
        ended
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u16, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Open, Broken> {
        let options = &self.server.options;
        let place = place(&self.shared, options).await?;
        Ok(Open {
            stream: open(options).await?,
            _counted: Counted::new(&self.server),
            _place: place,
        })
    }

    /// Sends what is asked until nobody asks any more, or nobody has for long.
    async fn write(
        &self,
        mut writer: OwnedWriteHalf,
        requests: &mut mpsc::Receiver<Request>,
    ) -> Broken {
        // "The sender must ensure that all the protocol header is sent at once": together with the first query.
        let mut bytes = self.begin.to_vec();
        loop {
            let request = match timeout(self.idle, requests.recv()).await {
                Ok(Some(request)) => request,
                // Answers that are waited for may still come: reading ends with the last of them, or by its time.
                Ok(None) => return self.linger().await,
                Err(_) if self.waiting().is_empty() => return Broken::Receiving,
                Err(_) => continue,
            };
            let Some(sent) = self.enter(request, &mut bytes) else {
                continue;
            };
            let sending = writer.write_all(&bytes);
            match timeout(self.server.options.tcp_send_timeout, sending).await {
                // Who asked may have gone.
                Ok(Ok(())) => drop(sent.send(())),
                Ok(Err(_)) => return Broken::Sending,
                Err(_) => return Broken::SendTimeout,
            }
            bytes.clear();
        }
    }

    /// Waits for the last answers of a connection that is retired.
    async fn linger(&self) -> Broken {
        let began = Instant::now();
        let patience = self.server.options.tcp_receive_timeout;
        while began.elapsed() < patience && self.is_waited_for() {
            tokio::time::sleep(LINGER_STEP).await;
        }
        Broken::Receiving
    }

    /// Whether anybody is still there for the answers that are out.
    fn is_waited_for(&self) -> bool {
        let mut waiting = self.waiting();
        waiting.retain(|_, waiting| !waiting.answered.is_closed());
        !waiting.is_empty()
    }

    /// Gives a query an ID and appends it, behind its length, to `bytes`. `None`: who asked has gone, or there is no memory,
    /// which who asked finds out when trying again.
    fn enter(&self, request: Request, bytes: &mut Vec<u8>) -> Option<oneshot::Sender<()>> {
        let Request {
            question,
            sent,
            answered,
        } = request;
        if answered.is_closed() {
            return None;
        }
        let mut waiting = self.waiting();
        waiting.try_reserve(1).ok()?;
        bytes.try_reserve(2 + question.message.len()).ok()?;
        // RFC 5452 section 9.2 wants unpredictable IDs for datagrams; here they keep backends from seeing those of clients.
        let id = std::iter::repeat_with(|| self.shared.random_u16())
            .find(|id| !waiting.contains_key(id))?;
        // RFC 7766 section 8: "SHOULD pass the two-octet length field, and the message described by that length field, to
        // the TCP layer at the same time".
        bytes.extend_from_slice(&(question.message.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&id.to_be_bytes());
        bytes.extend_from_slice(&question.message[2..]);
        let entry = Waiting {
            question,
            sent: Now::read(),
            answered,
        };
        waiting.insert(id, entry);
        Some(sent)
    }

    /// Reads messages and gives each to who asked: those that nobody asked for, and broken ones, end nothing (I7).
    async fn read(&self, mut reader: OwnedReadHalf) -> Broken {
        loop {
            let Ok(length) = reader.read_u16().await else {
                return Broken::Receiving;
            };
            let mut hold = self.shared.memory.hold();
            if hold.set(length.into()).is_err() {
                return Broken::NoRoom(DropReason::TcpMemoryFull);
            }
            let Some(mut message) = heap::zeroed(length.into()) else {
                return Broken::NoRoom(DropReason::OutOfMemory);
            };
            if reader.read_exact(&mut message).await.is_err() {
                return Broken::Receiving;
            }
            if let Err(reason) = self.deliver(message, hold) {
                self.server.count_junk(reason, self.shared.shard.lane);
                self.shared.shard.count_drop(reason);
            }
        }
    }

    fn deliver(&self, message: Vec<u8>, hold: Hold) -> Result<(), DropReason> {
        let header = Header::read(&message).ok_or(DropReason::ResponseMalformed)?;
        let mut all = self.waiting();
        let waiting = all
            .get(&header.id())
            .ok_or(DropReason::ResponseUnexpected)?;
        check(&message, &waiting.question)?;
        if let Some(waiting) = all.remove(&header.id()) {
            // A client that has gone needs no answer.
            let _ = waiting.answered.send(Answered {
                message,
                hold,
                sent: waiting.sent,
            });
        }
        Ok(())
    }
}

/// How often a retired connection looks whether its last answers have come.
const LINGER_STEP: Duration = Duration::from_millis(50);

struct Open {
    stream: TcpStream,
    _counted: Counted,
    _place: OwnedSemaphorePermit,
}

/// A connection among its server's, for as long as it lives.
pub(super) struct Counted {
    server: Arc<Server>,
    since: Instant,
}

impl Counted {
    pub(super) fn new(server: &Arc<Server>) -> Counted {
        let tcp = &server.tcp;
        count(&tcp.new_connections);
        let now = tcp.connections.fetch_add(1, Relaxed) + 1;
        tcp.connections_maximum.fetch_max(now, Relaxed);
        Counted {
            server: Arc::clone(server),
            since: Instant::now(),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let tcp = &self.server.tcp;
        let add = |counter: &AtomicU64, number| counter.fetch_add(number, Relaxed);
        tcp.connections.fetch_sub(1, Relaxed);
        add(&tcp.microseconds, self.since.elapsed().as_micros() as u64);
    }
}

/// A place among the connections to all servers.
///
/// # Errors
/// There was none in the time that making a connection may take.
pub(super) async fn place(
    shared: &Shared,
    options: &ServerOptions,
) -> Result<OwnedSemaphorePermit, Broken> {
    let places = Arc::clone(&shared.backend_connections);
    match timeout(options.tcp_connect_timeout, places.acquire_owned()).await {
        Ok(Ok(place)) => Ok(place),
        // The semaphore is never closed.
        Ok(Err(_)) | Err(_) => Err(Broken::NoRoom(DropReason::BackendConnections)),
    }
}

/// A connection to the server, for who has a place.
///
/// # Errors
/// Why there is none.
pub(super) async fn open(options: &ServerOptions) -> Result<TcpStream, Broken> {
    let socket = options.source.tcp(options.address, None);
    // Where `source` is no address of this host, no query reaches the server: EADDRNOTAVAIL is of ports with connect(2) alone.
    let socket = socket.map_err(|error| unconnected(&error, libc::EADDRINUSE))?;
    let connecting = socket.connect(options.address);
    match timeout(options.tcp_connect_timeout, connecting).await {
        Ok(Ok(stream)) => {
            stream.set_nodelay(true).map_err(|_| Broken::Refused)?;
            Ok(stream)
        }
        Ok(Err(error)) => Err(unconnected(&error, libc::EADDRNOTAVAIL)),
        Err(_) => Err(Broken::ConnectTimeout),
    }
}

/// Why there is no connection; `no_port`: how the system says that all ports are taken.
fn unconnected(error: &io::Error, no_port: i32) -> Broken {
    use libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
    let is_ours = |number| [EMFILE, ENFILE, ENOBUFS, ENOMEM, no_port].contains(&number);
    match error.raw_os_error() {
        Some(number) if is_ours(number) => Broken::NoRoom(DropReason::BackendConnections),
        _ => Broken::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_here_is_no_fault_of_the_server() {
        let ours = Broken::NoRoom(DropReason::BackendConnections);
        for (number, no_port, expected) in [
            (libc::EMFILE, libc::EADDRINUSE, ours),
            (libc::EADDRINUSE, libc::EADDRINUSE, ours),
            (libc::EADDRNOTAVAIL, libc::EADDRNOTAVAIL, ours),
            (libc::EADDRNOTAVAIL, libc::EADDRINUSE, Broken::Refused),
            (libc::ECONNREFUSED, libc::EADDRNOTAVAIL, Broken::Refused),
        ] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(unconnected(&error, no_port), expected, "{error}");
        }
    }
}
