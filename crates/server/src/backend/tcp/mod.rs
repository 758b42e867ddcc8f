//! Asking backends over TCP (RFC 7766): connections are kept and used again.
//!
//! A query takes a connection of the server's pool that has room for it ([`pool`]), else a new one. A backend gets one query
//! per client query; only where a connection that was used before is closed without an answer, the query goes out once more,
//! on a new one: RFC 7766 section 6.2.4, "DNS clients ... SHOULD retry unanswered queries if the connection closes before
//! receiving all outstanding responses." The wait is bounded as a whole by the server's time-outs, however slowly octets drip
//! in (F17).

mod connection;
mod pool;
mod several;
pub mod transfer;

pub use pool::Pool;

use super::exchange::{is_bare, is_empty};
use super::server::Server;
use crate::clock::Now;
use crate::heap;
use crate::holder::Ticket;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::OwnedQuery;
use crate::pipeline::restart::Again;
use crate::runtime::memory::Hold;
use crate::runtime::{Asked, Decision, NoAnswer, Shared};
use connection::{Broken, Question};
use pool::Place;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::timeout;
use wire::message::{parse_response, question_matches};

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
    /// Queries that went out on a connection that others had used before.
    pub reused_connections: AtomicU64,
    /// Queries for which maxConcurrentTCPConnections left no connection.
    pub too_many_connections: AtomicU64,
    /// All of ended connections together.
    pub microseconds: AtomicU64,
}

impl Counters {
    /// On average, of connections that were made.
    pub fn queries_per_connection(&self) -> f64 {
        let made = self.new_connections.load(Relaxed);
        (made + self.reused_connections.load(Relaxed)) as f64 / made.max(1) as f64
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

/// A response, under the client's ID, and who sent it.
struct Reply {
    message: Vec<u8>,
    /// For the message.
    hold: Hold,
    server: Arc<Server>,
}

/// Asks the server, or several where the pool's policy says so, and makes the client's answer of the response; `hold` then
/// holds the answer's bytes.
///
/// # Errors
/// Why there is none; everything is counted.
pub async fn ask(shared: &Arc<Shared>, asked: &Asked, hold: &mut Hold) -> Result<Answer, Failure> {
    let mut asked_again: Option<Box<Asked>> = None;
    loop {
        let asked = asked_again.as_deref().unwrap_or(asked);
        let (mut query, mut decision) = match ask_once(shared, asked, hold).await {
            Ok(answer) => return Ok(answer),
            Err(Ended::Again(again)) => decide_again(shared, *again, asked),
            Err(Ended::Suspended(ticket)) => shared
                .outcome(ticket, None)
                .await
                .map_err(Failure::Dropped)?,
            Err(Ended::Failed(failure)) => match failure {
                Failure::Dropped(_) => return Err(failure),
                Failure::Connection | Failure::Timeout => {
                    let again = shared.timed_out(asked, &asked.server).ok_or(failure)?;
                    decide_again(shared, *again, asked)
                }
            },
        };
        while let Decision::Suspended(ticket) = decision {
            (query, decision) = shared
                .outcome(ticket, None)
                .await
                .map_err(Failure::Dropped)?;
        }
        match decision {
            Decision::Ask(next) => asked_again = Some(next),
            Decision::Answer(length, delay) => {
                let Some(message) = heap::copy(query.bytes(length)) else {
                    return Err(out_of_memory(shared));
                };
                // It was made here: there is room for the client's query already.
                let _ = hold.set(message.len());
                return Ok(Answer { message, delay });
            }
            Decision::Zone(_) | Decision::Suspended(_) => {
                return Err(Failure::Dropped(DropReason::NoServer));
            }
            Decision::Drop(reason) => return Err(Failure::Dropped(reason)),
        }
    }
}

/// What becomes of a query that a rule wants asked again.
fn decide_again(shared: &Shared, mut again: Again, asked: &Asked) -> (OwnedQuery, Decision) {
    let decision = shared.decide_again(&mut again, &asked.config);
    (again.query, decision)
}

/// Why one asking gave no answer.
enum Ended {
    Failed(Failure),
    /// A rule wants the query asked again.
    Again(Box<Again>),
    /// A function has suspended the response.
    Suspended(Ticket),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Failed(failure)
    }
}

#[cold]
fn out_of_memory(shared: &Shared) -> Failure {
    shared.shard.count_drop(DropReason::OutOfMemory);
    Failure::Dropped(DropReason::OutOfMemory)
}

async fn ask_once(shared: &Arc<Shared>, asked: &Asked, hold: &mut Hold) -> Result<Answer, Ended> {
    // The question is shared by tasks, which take no refusal.
    if heap::is_short() {
        return Err(out_of_memory(shared).into());
    }
    let pool = asked.config.pool(asked.found.pool);
    let several = pool.filter(|pool| pool.policy.asks_several());
    let told = several.is_some() || asked.server.options.proxy_protocol;
    let Some(question) = Question::of(asked, told) else {
        return Err(count_failure(shared, &asked.server, Failure::Connection).into());
    };
    let reply = match several {
        Some(pool) => several::ask(shared, asked, pool, &question).await,
        None => ask_one(shared, &asked.server, &question, false).await,
    };
    if let Err(Failure::Timeout) = &reply {
        shared.remember_timeout(asked);
    }
    let reply = reply?;
    let Reply {
        mut message,
        hold: held,
        server,
    } = reply;
    *hold = held;
    let length = message.len();
    // An error without question gets the client's.
    if message.try_reserve(asked.question().len()).is_err() {
        return Err(out_of_memory(shared).into());
    }
    message.resize(length + asked.question().len(), 0);
    let answer = shared.answer(asked, &server, &mut message, length);
    let (length, delay) = answer.map_err(|none| match none {
        NoAnswer::Dropped(reason) => Ended::Failed(Failure::Dropped(reason)),
        NoAnswer::Again(again) => Ended::Again(again),
        NoAnswer::Suspended(ticket) => Ended::Suspended(ticket),
    })?;
    message.truncate(length);
    // No more than is held already but for a question.
    let _ = hold.set(message.len());
    Ok(Answer { message, delay })
}

/// Asks one server; counted. `is_extra`: another one is asked the same.
async fn ask_one(
    shared: &Arc<Shared>,
    server: &Arc<Server>,
    question: &Question,
    is_extra: bool,
) -> Result<Reply, Failure> {
    let _in_flight = InFlight::enter(server);
    let lane = shared.shard.lane;
    server.queries.count(lane);
    if is_extra {
        server.extra_queries.count(lane);
    }
    let began = Now::read();
    match exchange(shared, server, question).await {
        Ok(answered) => {
            server.responses.count(lane);
            let latency = Now::read().since(answered.sent);
            server.record_latency_tcp(latency.as_micros() as u64);
            server.slowest_tcp.note(Now::read().since(began));
            let connection::Answered {
                mut message, hold, ..
            } = answered;
            message[..2].copy_from_slice(&question.message[..2]);
            server.note_answer(code_of(&message));
            Ok(Reply {
                message,
                hold,
                server: Arc::clone(server),
            })
        }
        Err(failure) => Err(count_failure(shared, server, failure)),
    }
}

/// One query on a connection of the pool, or on a new one; a second time on a new one when the first was closed.
async fn exchange(
    shared: &Arc<Shared>,
    server: &Arc<Server>,
    question: &Question,
) -> Result<connection::Answered, Failure> {
    let begin = question.begin_of(server);
    if let Some(place) = server.tcp_pool.find(server.options.tcp_in_flight, &begin) {
        count(&server.tcp.reused_connections);
        match on(place, server, question).await {
            Err(Attempt::Broken(broken)) if broken.may_be_age() => {}
            result => return result.map_err(|attempt| attempt.failure(server)),
        }
    }
    on_new(shared, server, question).await
}

/// One query on a new connection, and on further ones where `retries` says so and no connection came about, or it ended
/// before the answer. An answer that is late is waited for once.
async fn on_new(
    shared: &Arc<Shared>,
    server: &Arc<Server>,
    question: &Question,
) -> Result<connection::Answered, Failure> {
    let mut left = server.options.tcp_attempts.unwrap_or(1).max(1);
    loop {
        if heap::is_short() {
            return Err(Failure::Dropped(DropReason::OutOfMemory));
        }
        make_room(shared, server)?;
        let begin = question.begin_of(server);
        let place = server.tcp_pool.connect(shared, server, begin);
        left -= 1;
        match on(place, server, question).await {
            Err(Attempt::Broken(broken)) if left > 0 && broken.may_be_retried() => {}
            result => return result.map_err(|attempt| attempt.failure(server)),
        }
    }
}

/// Makes room for one more connection to the server: idle ones give way, those of all servers where there are too many in all.
///
/// # Errors
/// There are as many to this one as may be, or more than the others could have.
fn make_room(shared: &Shared, server: &Server) -> Result<(), Failure> {
    if shared.backend_connections.available_permits() == 0 {
        for other in &shared.config().servers {
            other.tcp_pool.clear_idle();
        }
    }
    if is_full(server) {
        server.tcp_pool.clear_idle();
    }
    if is_full(server) || takes_all(shared, server) {
        count(&server.tcp.too_many_connections);
        return Err(Failure::Dropped(DropReason::BackendConnections));
    }
    Ok(())
}

/// The manual on maxConcurrentTCPConnections: "When that limit is reached, queries routed to that backend that cannot be
/// forwarded over an existing connection will be dropped."
fn is_full(server: &Server) -> bool {
    let maximum = server.options.tcp_maximum_connections;
    maximum > 0 && server.tcp_pool.open() >= maximum
}

/// A server that takes queries and says nothing keeps each one's connection until its time-out. It leaves half of what is free to
/// the others: nobody else would be asked.
fn takes_all(shared: &Shared, server: &Server) -> bool {
    let has_others = shared.config().servers.len() > 1;
    has_others && server.tcp_pool.open() > shared.backend_connections.available_permits()
}

/// What became of a query on one connection, if no answer.
enum Attempt {
    Broken(Broken),
    TimedOut,
}

impl Attempt {
    fn failure(self, server: &Server) -> Failure {
        let tcp = &server.tcp;
        match self {
            Attempt::TimedOut => {
                count(&tcp.read_timeouts);
                return Failure::Timeout;
            }
            Attempt::Broken(Broken::NoRoom(reason)) => return Failure::Dropped(reason),
            Attempt::Broken(Broken::Refused) => {}
            Attempt::Broken(Broken::ConnectTimeout) => count(&tcp.connect_timeouts),
            Attempt::Broken(Broken::Sending) => count(&tcp.died_sending_query),
            Attempt::Broken(Broken::SendTimeout) => count(&tcp.write_timeouts),
            Attempt::Broken(Broken::Receiving) => count(&tcp.died_reading_response),
        }
        Failure::Connection
    }
}

async fn on(
    place: Place,
    server: &Arc<Server>,
    question: &Question,
) -> Result<connection::Answered, Attempt> {
    let connection = Arc::clone(place.connection());
    let broken = || Attempt::Broken(connection.broken());
    let mut reply = connection.ask(question).await.ok_or_else(broken)?;
    // Until it is sent, the time-outs of connecting and sending are the connection's own.
    reply.sent().await.ok_or_else(broken)?;
    let answered = timeout(server.options.tcp_receive_timeout, reply.answered()).await;
    let answered = answered.map_err(|_| Attempt::TimedOut)?;
    let answered = answered.ok_or_else(broken)?;
    place.answered();
    Ok(answered)
}

fn count_failure(shared: &Shared, server: &Server, failure: Failure) -> Failure {
    use crate::counters::Counter;
    match failure {
        Failure::Connection => {
            count(&server.tcp.gave_up);
            server.send_errors.count(shared.shard.lane);
            server.note_failure();
            shared.shard.count(Counter::DownstreamSendErrors);
        }
        Failure::Timeout => {
            server.timeouts.count(shared.shard.lane);
            server.note_failure();
            shared.shard.count(Counter::DownstreamTimeouts);
        }
        Failure::Dropped(reason) => shared.shard.count_drop(reason),
    }
    failure
}

/// The RCODE of an answer that was checked, as far as the header has it.
fn code_of(message: &[u8]) -> u16 {
    let header = wire::message::Header::read(message);
    header.map_or(0, |header| header.rcode().into())
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

/// Whether a message, whose ID is right, answers this question.
fn check(message: &[u8], question: &Question) -> Result<(), DropReason> {
    let parts = parse_response(message).map_err(|_| DropReason::ResponseMalformed)?;
    let answers = match parts.question {
        Some(_) => question_matches(message, question.bytes()),
        None => is_bare(&parts) && (question.allow_empty || !is_empty(&parts)),
    };
    if answers {
        Ok(())
    } else {
        Err(DropReason::ResponseMismatch)
    }
}

#[cfg(test)]
mod tests;
