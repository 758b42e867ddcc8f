//! One client by a stream: reads queries, puts them to the pipeline, writes answers as they become ready.

use super::admission;
use super::asking::Asker;
use super::counters::Counters;
use super::order::{Answer, End, Place, Places, Ready, moment, turn, unwritten};
use super::stream::{Counted, Ends, Stream};
use crate::backend::tcp::transfer;
use crate::clock::Now;
use crate::config::TcpTuning;
use crate::heap;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::{OwnedQuery, Protocol, Way};
use crate::runtime::memory::Hold;
use crate::runtime::{Decision, Shared};
use crate::stop::Stop;
use std::collections::TryReserveError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use wire::message::MESSAGE_LENGTH_MAX;
use wire::proxy;

/// Bytes that are read ahead, and read of a message before room for more is made: few queries are longer.
const READ_AHEAD: usize = 2_048;

/// Answers are gathered up to so many bytes before they are written.
const GATHERED: usize = 16_384;

pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Arc<Counters>,
    pub(super) tuning: TcpTuning,
    /// Queries that are worked on at a time: addLocal's maxInFlight, or one. The manual (Out-of-order): "As many as maxInFlight
    /// queries will then be read from a TCP connection, processed and forwarded to a backend simultaneously. If there is more
    /// queries pending, they will be processed once a response has been sent for one of the already processed queries."
    pub(super) in_flight: usize,
    pub(super) ends: Ends,
    /// Its place among all connections, as long as it lasts.
    pub(super) place: admission::Place,
    /// Where the client is a proxy: the longest header that its connection begins with, in bytes.
    pub(super) proxy_header_maximum: Option<usize>,
    pub(super) stop: Stop,
}

/// How long, and for how many octets, a client is still heard that has been told the end, so that what it sent meanwhile
/// does not make the kernel reset the connection and with it the last answers.
const LINGER: (Duration, u64) = (Duration::from_millis(500), 65_536);

/// How long a client must have been silent after a stop for its connection to be closed: what it had sent before, or was
/// sending, is answered.
const SILENCE: Duration = Duration::from_millis(20);

/// How long after a stop a client is heard that is never silent.
const HEARD: Duration = Duration::from_millis(300);

/// A connection that is counted as open until this is dropped: at its end, or where a fault ends its task.
struct Opened {
    counters: Arc<Counters>,
    began: Instant,
    queries: u64,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.counters.closed(self.queries, self.began.elapsed());
    }
}

impl Connection {
    /// Serves until the client, a limit or the stop ends it. It is counted as open already.
    pub(super) async fn serve(self, stream: impl Stream) {
        let mut opened = Opened {
            counters: Arc::clone(&self.counters),
            began: Instant::now(),
            queries: 0,
        };
        let (reader, writer) = stream.halves();
        opened.queries = self.exchange(reader, writer).await;
    }

    /// Reads and writes at once; how many queries there were. Queries still with backends end with this function.
    async fn exchange<R, W>(&self, reader: R, writer: W) -> u64
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let (answers, outgoing) = mpsc::channel(unwritten(self.in_flight));
        let ready = Ready {
            answers,
            failed: Arc::default(),
            last: self.last_moment(),
        };
        let reader = Counted::new(reader, self.tuning.maximum_reads_per_query);
        let mut reader = BufReader::with_capacity(READ_AHEAD, reader);
        let mut asking = JoinSet::new();
        let mut queries = 0;
        let writing = self.write(writer, outgoing);
        tokio::pin!(writing);
        let end = tokio::select! {
            end = self.read(&mut reader, ready, &mut asking, &mut queries) => end,
            _ = &mut writing => End::Broken,
        };
        if end == End::ClientTimeout {
            Counters::count(&self.counters.client_timeouts);
        }
        if reader.get_ref().is_exhausted() {
            let ban = self.tuning.reads_ban.as_nanos() as u64;
            self.place.ban(Now(Now::read().0.saturating_add(ban)));
        }
        if end != End::Broken
            // Ends with the last answer: those who ask backends have the channel's only senders now.
            && let Some(mut writer) = writing.await
            && end == End::Enough
            && writer.shutdown().await.is_ok()
        {
            let (duration, octets) = LINGER;
            reader.get_mut().count_no_more();
            // From the reader's own buffer: `copy` would take another one.
            let mut rest = reader.take(octets);
            let mut nowhere = tokio::io::sink();
            let _ = timeout(duration, tokio::io::copy_buf(&mut rest, &mut nowhere)).await;
        }
        queries
    }

    // ------------------------------------------------------------------------------------------ reading

    async fn read<R: AsyncRead + Unpin>(
        &self,
        reader: &mut BufReader<Counted<R>>,
        ready: Ready,
        asking: &mut JoinSet<()>,
        queries: &mut u64,
    ) -> End {
        let places = Places::new(self.in_flight);
        let mut stop = self.stop.clone();
        let last = ready.last;
        let header = match self.proxy_header(reader, &mut stop, last).await {
            Ok(header) => header,
            Err(end) => return end,
        };
        reader.get_mut().begin();
        let mut heard_until = None;
        loop {
            while asking.try_join_next().is_some() {}
            if is_past(&stop, &mut heard_until) {
                return End::Enough;
            }
            // In this order: a query that failed gives its place back, and no other one begins then; one that has come before a
            // stop is not lost with it.
            let first = tokio::select! {
                biased;
                () = ready.failed.notified() => Err(End::Enough),
                () = moment(last) => Err(End::Enough),
                first = self.wait_for_query(reader, &places) => first,
                () = silence_after(&mut stop) => Err(End::Enough),
            };
            let unwritten = match first {
                Ok(unwritten) => unwritten,
                Err(end) => return end,
            };
            let reading = timeout(self.tuning.receive_timeout, self.message(reader));
            let message = tokio::select! {
                message = reading => message,
                () = moment(last) => return End::Enough,
            };
            let (message, hold) = match message {
                Ok(Ok(message)) => message,
                Ok(Err(end)) => return end,
                Err(_) => return End::ClientTimeout,
            };
            let place = match turn(unwritten, &places, &ready).await {
                Ok(place) => place,
                Err(end) => return end,
            };
            *queries += 1;
            reader.get_mut().begin();
            let Some(query) = self.query(&header, &message) else {
                return self.out_of_memory();
            };
            drop(message);
            if let Err(end) = self.decide(query, hold, place, &ready, asking).await {
                return end;
            }
            if *queries == self.tuning.maximum_queries_per_connection as u64 {
                return End::Enough;
            }
        }
    }

    /// setMaxTCPConnectionDuration.
    fn last_moment(&self) -> Option<Instant> {
        let duration = self.tuning.maximum_connection_duration;
        (!duration.is_zero()).then(|| Instant::now() + duration)
    }

    /// Waits for a place and then for the first octet of a message. A client whose answers are under way may be silent: its
    /// time begins when the last of them is written.
    async fn wait_for_query<R: AsyncRead + Unpin>(
        &self,
        reader: &mut BufReader<R>,
        places: &Places,
    ) -> Result<OwnedSemaphorePermit, End> {
        let places = &places.unwritten;
        let place = Arc::clone(places).acquire_owned().await;
        let place = place.map_err(|_| End::Broken)?;
        let silence = async {
            let _others = places
                .acquire_many(unwritten(self.in_flight) as u32 - 1)
                .await;
            sleep(self.tuning.receive_timeout).await;
        };
        tokio::select! {
            biased;
            first = reader.fill_buf() => match first {
                Ok([]) => Err(End::Closed),
                Ok(_) => Ok(place),
                Err(_) => Err(End::Broken),
            },
            () = silence => Err(End::ClientTimeout),
        }
    }

    /// One message behind its length (RFC 1035 section 4.2.2).
    async fn message<R: AsyncRead + Unpin>(
        &self,
        reader: &mut BufReader<R>,
    ) -> Result<(Vec<u8>, Hold), End> {
        let length = reader.read_u16().await.map_err(|error| self.died(&error))?;
        let length = usize::from(length);
        let mut message = Vec::new();
        let mut hold = self.shared.memory.hold();
        // Room grows with what has come, not with what the client says will come.
        while message.len() < length {
            let begin = message.len();
            let end = length.min(begin + begin.max(READ_AHEAD));
            hold.set(end).map_err(|_| self.memory_full())?;
            let room = message.try_reserve_exact(end - begin);
            room.map_err(|_| self.out_of_memory())?;
            message.resize(end, 0);
            let read = reader.read_exact(&mut message[begin..]).await;
            read.map_err(|error| self.died(&error))?;
        }
        Ok((message, hold))
    }

    fn died(&self, _: &io::Error) -> End {
        Counters::count(&self.counters.died_reading_query);
        End::Broken
    }

    /// The queries under way still get their answers.
    fn out_of_memory(&self) -> End {
        self.shared.shard.count_drop(DropReason::OutOfMemory);
        End::Enough
    }

    fn memory_full(&self) -> End {
        self.shared.shard.count_drop(DropReason::TcpMemoryFull);
        End::Enough
    }

    /// The header of the PROXY protocol that a proxy's connection begins with; of others nothing.
    async fn proxy_header<R: AsyncRead + Unpin>(
        &self,
        reader: &mut BufReader<R>,
        stop: &mut Stop,
        last: Option<Instant>,
    ) -> Result<Vec<u8>, End> {
        let Some(maximum) = self.proxy_header_maximum else {
            return Ok(Vec::new());
        };
        let reading = timeout(self.tuning.receive_timeout, read_header(reader, maximum));
        let header = tokio::select! {
            header = reading => header.map_err(|_| End::ClientTimeout)?,
            () = silence_after(stop) => return Err(End::Enough),
            () = moment(last) => return Err(End::Enough),
        };
        let header = header.map_err(|error| self.died(&error))?;
        if header.is_empty() {
            return Err(End::Closed);
        }
        if proxy::parse(&header, maximum).is_err() {
            let Some(mut query) = self.query(&header, &[]) else {
                return Err(self.out_of_memory());
            };
            // The pipeline says so too, and counts it.
            self.shared.decide(&mut query, &self.ends.address);
            return Err(End::Enough);
        }
        Ok(header)
    }

    // ------------------------------------------------------------------------------------------ deciding

    /// A query as the pipeline takes it: each as if the connection's header stood in front of it. `None`: there is no memory
    /// for it, or for the tasks that it may take.
    fn query(&self, header: &[u8], message: &[u8]) -> Option<OwnedQuery> {
        if heap::is_short() {
            return None;
        }
        let addresses = (self.ends.client, self.ends.address.destination());
        let door = (Protocol::Tcp, Way::Stream);
        if self.proxy_header_maximum.is_none() {
            return OwnedQuery::copy(message, MESSAGE_LENGTH_MAX, addresses, door);
        }
        let both = heap::joined(&[header, message])?;
        let query = OwnedQuery::copy(&both, MESSAGE_LENGTH_MAX, addresses, door)?;
        Some(query.behind_header())
    }

    async fn decide(
        &self,
        mut query: OwnedQuery,
        mut hold: Hold,
        place: Place,
        ready: &Ready,
        asking: &mut JoinSet<()>,
    ) -> Result<(), End> {
        let decision = self.shared.decide(&mut query, &self.ends.address);
        // Whom a proxy names and the ACL keeps out has asked nothing, here as over UDP.
        if !matches!(decision, Decision::Drop(DropReason::Acl)) {
            Counters::count(&self.counters.queries);
        }
        match decision {
            Decision::Answer(length, _) => {
                hold.set(length).map_err(|_| self.memory_full())?;
                let message = heap::copy(query.bytes(length));
                let message = message.ok_or_else(|| self.out_of_memory())?;
                let sent = ready.send(message, hold, place).await;
                sent.then_some(()).ok_or(End::Broken)
            }
            Decision::Ask(asked) if !transfer::is_transfer(&asked) => {
                let asker = self.asker(ready);
                asking.spawn(async move { asker.ask(asked, hold, place).await });
                Ok(())
            }
            decision @ (Decision::Ask(_) | Decision::Zone(_) | Decision::Suspended(_)) => {
                let following = self.asker(ready).follow(decision, hold, place);
                asking.spawn(until(ready.last, following));
                Ok(())
            }
            // As dnsdist does (seen with 1.7.3): nobody waits on a connection for an answer that will not come.
            Decision::Drop(_) => Err(End::Enough),
        }
    }

    fn asker(&self, ready: &Ready) -> Asker {
        Asker {
            shared: Arc::clone(&self.shared),
            counters: Arc::clone(&self.counters),
            address: self.ends.address.clone(),
            ready: ready.clone(),
        }
    }

    // ------------------------------------------------------------------------------------------ writing

    /// Writes answers until nobody is left to make any; `None` when the client does not take them.
    async fn write<W: AsyncWrite + Unpin>(
        &self,
        mut writer: W,
        mut answers: mpsc::Receiver<Answer>,
    ) -> Option<W> {
        let mut bytes = Vec::new();
        let mut gathered = Vec::new();
        while let Some(answer) = answers.recv().await {
            bytes.clear();
            if gather(answer, &mut answers, &mut gathered, &mut bytes).is_err() {
                // Those that were gathered are lost with the one that was not.
                for _ in 0..=gathered.len() {
                    self.shared.shard.count_drop(DropReason::OutOfMemory);
                }
                return None;
            }
            let writing = timeout(self.tuning.send_timeout, writer.write_all(&bytes));
            if !matches!(writing.await, Ok(Ok(()))) {
                Counters::count(&self.counters.died_sending_response);
                return None;
            }
            self.counters
                .responses
                .fetch_add(gathered.len() as u64, Relaxed);
            gathered.clear();
        }
        Some(writer)
    }
}

/// Gathers `first`, and what else is ready up to [`GATHERED`] bytes, and makes `bytes` of them.
///
/// # Errors
/// There is no memory.
fn gather(
    first: Answer,
    answers: &mut mpsc::Receiver<Answer>,
    gathered: &mut Vec<Answer>,
    bytes: &mut Vec<u8>,
) -> Result<(), TryReserveError> {
    let mut next = Some(first);
    while let Some(answer) = next {
        gathered.try_reserve(1)?;
        bytes.try_reserve(2 + answer.message.len())?;
        // RFC 7766 section 8: "SHOULD pass the two-octet length field, and the message described by that length field, to the
        // TCP layer at the same time".
        bytes.extend_from_slice(&(answer.message.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&answer.message);
        gathered.push(answer);
        next = match bytes.len() < GATHERED {
            true => answers.try_recv().ok(),
            false => None,
        };
    }
    Ok(())
}

/// Reads a header of the PROXY protocol, as far as it comes: no more of it than `maximum` bytes, and no more than the fixed
/// part of what is none.
async fn read_header<R: AsyncRead + Unpin>(
    reader: &mut BufReader<R>,
    maximum: usize,
) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    let fixed = proxy::FIXED_LENGTH;
    reader.take(fixed as u64).read_to_end(&mut header).await?;
    let length = header
        .first_chunk()
        .map(|front| proxy::length(front, maximum));
    if let Some(Ok(length)) = length {
        let rest = (length - fixed) as u64;
        reader.take(rest).read_to_end(&mut header).await?;
    }
    Ok(header)
}

/// Whether a stop was so long ago that nothing more is heard; `until` is when that is, from the first look after the stop on.
fn is_past(stop: &Stop, until: &mut Option<Instant>) -> bool {
    if !stop.is_requested() {
        return false;
    }
    let now = Instant::now();
    *until.get_or_insert(now + HEARD) <= now
}

/// Waits for a stop, and then as long as a client has to be silent.
async fn silence_after(stop: &mut Stop) {
    stop.requested().await;
    sleep(SILENCE).await;
}

/// Passes a transfer, as far as it comes until its connection has lasted as long as it may: other queries are bounded by the
/// times of their servers, a transfer is not.
async fn until(last: Option<Instant>, passing: impl Future<Output = ()>) {
    tokio::select! {
        () = moment(last) => {}
        () = passing => {}
    }
}
