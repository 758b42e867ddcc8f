//! The asynchronous runtime beside the packet path: TCP clients, queries handed over, the web server, the control socket.
//! Its tasks put queries to the same pipeline as the workers do.

#[cfg(test)]
pub(crate) mod fixture;
pub mod memory;

use crate::backend::exchange::{QUERY_ROOM, Waiting};
use crate::backend::server::Server;
use crate::clock::Now;
use crate::config::{Config, LocalAddress};
use crate::counters::{Counter, Shard};
use crate::heap;
use crate::holder::Ticket;
use crate::local::answer;
use crate::pipeline::carried::Carried;
use crate::pipeline::drop::DropReason;
use crate::pipeline::proxy::outgoing;
use crate::pipeline::query::{Arrival, Found, NO_LISTENER, OwnedQuery, Protocol, Way};
use crate::pipeline::restart::{self, Again};
use crate::pipeline::suspended::{self, Suspended};
use crate::pipeline::{self, Env, HandOver, HandOverReason, Verdict, respond, xfr};
use crate::random::Random;
use arc_swap::ArcSwap;
use memory::Memory;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Queries and answers of TCP clients and of backends asked over TCP, in bytes: room for 1,024 messages of the greatest
/// length, or for 100,000 usual ones.
const MEMORY: usize = 64 << 20;

/// Connections to backends at a time. With the port pool's 1,024 sockets and the clients'
/// connections they must stay within the usual hard limit of 524,288 descriptors, and do by far.
const BACKEND_CONNECTIONS: usize = 1_024;

/// Zones that go out at a time: each keeps six messages of up to 64 KiB, and its version of the zone.
const TRANSFERS: usize = 64;

/// A runtime with so many threads, one at least, of this name.
///
/// # Errors
/// When it cannot be started.
pub fn build(name: &str, threads: usize) -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()
}

/// What a reload has to say of the number of threads that it wants: those of `runtime` began with the process.
pub fn threads_that_stay(runtime: &tokio::runtime::Runtime, wanted: usize) -> Option<String> {
    let running = runtime.metrics().num_workers();
    (running != wanted).then(|| {
        format!(
            "setMaxTCPClientThreads({wanted}) takes effect with the next start: {running} threads go on"
        )
    })
}

/// What all tasks of the runtime share.
pub struct Shared {
    config: Arc<ArcSwap<Config>>,
    /// The runtime's own counters: its threads are many writers.
    pub shard: Arc<Shard>,
    pub memory: Memory,
    /// Places for connections to backends.
    pub backend_connections: Arc<Semaphore>,
    /// Places for zones that go out.
    pub transfers: Semaphore,
}

/// What becomes of a query of the runtime's.
pub enum Decision {
    /// The query's buffer holds the answer, so many bytes of it; over UDP it waits so long (DelayAction).
    Answer(usize, Duration),
    /// A backend is to be asked.
    Ask(Box<Asked>),
    /// A zone of our own is asked for a transfer, or by a signed query.
    Zone(Box<answer::Asked>),
    /// A function has suspended it.
    Suspended(Ticket),
    Drop(DropReason),
}

/// A query that a backend is to answer over TCP, with the configuration that said so: the answer sees no other one
/// (invariant I8).
pub struct Asked {
    pub config: Arc<Config>,
    pub server: Arc<Server>,
    /// The query as the client sent it (after the rules), under its own ID.
    pub query: Box<[u8]>,
    pub found: Found,
    /// What rules want of the answer.
    pub extras: Carried,
    /// Who sent it, to where: a proxy, perhaps.
    pub client: SocketAddr,
    pub destination: SocketAddr,
    pub way: Way,
    pub since: Now,
}

/// Why a response gives no answer.
pub enum NoAnswer {
    Dropped(DropReason),
    /// A rule wants the query asked again.
    Again(Box<Again>),
    /// A function has suspended the response.
    Suspended(Ticket),
}

type Decided = Result<(Arc<Server>, Found, Carried), Decision>;

/// Whom a verdict wants asked over TCP, or what else it is.
fn decided(verdict: Verdict<'_>) -> Decided {
    match verdict {
        Verdict::Answer(length) => Err(Decision::Answer(length, Duration::ZERO)),
        Verdict::Drop(reason) => Err(Decision::Drop(reason)),
        Verdict::HandOver(late) if late.reason == HandOverReason::Delayed => {
            Err(Decision::Answer(late.found.length.into(), late.delay()))
        }
        Verdict::HandOver(held) if held.reason == HandOverReason::Suspended => {
            Err(suspended_decision(&held))
        }
        Verdict::HandOver(hand_over) => hand_over
            .server
            .map(|server| (Arc::clone(server), hand_over.found, hand_over.extras))
            .ok_or(Decision::Drop(DropReason::NoServer)),
        // Only what came in a datagram goes out in one.
        Verdict::Forward(_) => Err(Decision::Drop(DropReason::NoServer)),
    }
}

/// Of what a function has suspended.
fn suspended_decision(held: &HandOver<'_>) -> Decision {
    let ticket = suspended::ticket(&held.extras).map(Decision::Suspended);
    ticket.unwrap_or(Decision::Drop(DropReason::HandOverFull))
}

thread_local! {
    static RANDOM: RefCell<Random> =
        RefCell::new(Random::from_kernel().expect("getrandom(2) cannot fail once the system has started"));
}

impl Shared {
    pub fn new(config: Arc<ArcSwap<Config>>, shard: Arc<Shard>) -> Shared {
        Shared {
            config,
            shard,
            memory: Memory::new(MEMORY),
            backend_connections: Arc::new(Semaphore::new(BACKEND_CONNECTIONS)),
            transfers: Semaphore::new(TRANSFERS),
        }
    }

    #[cfg(test)]
    pub(crate) fn set_config(&self, config: Config) {
        self.config.store(Arc::new(config));
    }

    /// The configuration of this moment.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Takes a query that came over TCP, or by a path, through all stages of the pipeline.
    pub fn decide(&self, query: &mut OwnedQuery, came_by: &LocalAddress) -> Decision {
        let config = self.config();
        let mut arrival = query.as_arrival();
        arrival.listener = config.place_of(came_by).unwrap_or(NO_LISTENER);
        let decided = self.with_env(&config, |env| match pipeline::run(&mut arrival, env) {
            Verdict::Answer(length) => {
                // Made or found here: with 0, as in the latencies of all protocols.
                env.shard.count(Counter::LatencyTcpCount);
                Err(Decision::Answer(length, Duration::ZERO))
            }
            verdict => self.decided(verdict, &arrival, &config),
        });
        self.asking(decided, query, &config)
    }

    fn decided(
        &self,
        verdict: Verdict<'_>,
        arrival: &Arrival<'_>,
        config: &Arc<Config>,
    ) -> Decided {
        match verdict {
            Verdict::HandOver(hand_over) if hand_over.reason == HandOverReason::Zone => {
                let asked = answer::Asked::copy(&hand_over, hand_over.found, arrival, config);
                Err(asked.map_or_else(
                    || self.out_of_memory(),
                    |asked| Decision::Zone(Box::new(asked)),
                ))
            }
            verdict => decided(verdict),
        }
    }

    /// Waits for what becomes of something that a function has suspended, and takes it on as [`Shared::go_on`] does.
    ///
    /// # Errors
    /// It was dropped, or there is no memory; counted.
    pub async fn outcome(
        &self,
        ticket: Ticket,
        came_by: Option<&LocalAddress>,
    ) -> Result<(OwnedQuery, Decision), DropReason> {
        let Some(suspended) = ticket.outcome().await else {
            self.shard.count_drop(DropReason::SuspendedDropped);
            return Err(DropReason::SuspendedDropped);
        };
        let going_on = self.go_on(suspended, came_by);
        going_on.ok_or(DropReason::OutOfMemory)
    }

    /// Takes on what was suspended, with the configuration that it was judged by; the query with its buffer. `None`: there is no
    /// memory. `came_by`: where the client is heard, if it came by a stream.
    pub fn go_on(
        &self,
        suspended: Box<Suspended>,
        came_by: Option<&LocalAddress>,
    ) -> Option<(OwnedQuery, Decision)> {
        let config = Arc::clone(&suspended.config);
        let resumed = match heap::is_short() {
            true => None,
            false => suspended.resume(),
        };
        let Some(mut resumed) = resumed else {
            self.out_of_memory();
            return None;
        };
        let asked = resumed.asked();
        let decided = self.with_env(&config, |env| {
            let verdict = suspended::go_on(&mut resumed, env);
            let mut arrival = resumed.query.as_arrival();
            let place = came_by.and_then(|address| config.place_of(address));
            arrival.listener = place.unwrap_or(NO_LISTENER);
            self.decided(verdict, &arrival, &config)
        });
        if matches!(decided, Err(Decision::Answer(..))) && resumed.query.way == Way::Stream {
            let latency = asked.map(|asked| Now::read().since(asked));
            self.count_tcp_latency(latency.unwrap_or_default());
        }
        let decision = self.asking(decided, &resumed.query, &config);
        Some((resumed.query, decision))
    }

    fn asking(&self, decided: Decided, query: &OwnedQuery, config: &Arc<Config>) -> Decision {
        let (server, found, extras) = match decided {
            Ok(decided) => decided,
            Err(decision) => return decision,
        };
        let Some(message) = heap::copy(query.bytes(found.length.into())) else {
            return self.out_of_memory();
        };
        Decision::Ask(Box::new(Asked {
            server,
            query: message.into_boxed_slice(),
            found,
            extras,
            client: query.client,
            destination: query.destination,
            way: query.way,
            since: Now::read(),
            config: Arc::clone(config),
        }))
    }

    #[cold]
    fn out_of_memory(&self) -> Decision {
        self.shard.count_drop(DropReason::OutOfMemory);
        Decision::Drop(DropReason::OutOfMemory)
    }

    /// Takes a query on whose answer in the cache had no room in its frame; the answer's length in bytes, and how long it
    /// is to wait. It is dropped when the entry has gone meanwhile: the client asks again, as when a datagram is lost.
    pub fn resume(
        &self,
        config: &Arc<Config>,
        query: &mut OwnedQuery,
        found: &Found,
        extras: Carried,
    ) -> Decision {
        let mut arrival = query.as_arrival();
        self.with_env(config, |env| {
            match pipeline::resume(&mut arrival, found, extras, env) {
                Verdict::Answer(length) => Decision::Answer(length, Duration::ZERO),
                Verdict::HandOver(late) if late.reason == HandOverReason::Delayed => {
                    Decision::Answer(late.found.length.into(), late.delay())
                }
                Verdict::HandOver(held) if held.reason == HandOverReason::Suspended => {
                    env.shard.count_hand_over(held.reason);
                    suspended_decision(&held)
                }
                Verdict::HandOver(_) | Verdict::Forward(_) => {
                    env.shard.count_drop(DropReason::HandOverFull);
                    Decision::Drop(DropReason::HandOverFull)
                }
                Verdict::Drop(reason) => Decision::Drop(reason),
            }
        })
    }

    /// Makes the client's answer of the response of `server`, the first `length` bytes of `message`; its length in bytes, and
    /// how long it is to wait.
    ///
    /// # Errors
    /// Why there is none; counted.
    pub fn answer(
        &self,
        asked: &Asked,
        server: &Server,
        message: &mut Vec<u8>,
        length: usize,
    ) -> Result<(usize, Duration), NoAnswer> {
        if heap::is_short() {
            self.shard.count_drop(DropReason::OutOfMemory);
            return Err(NoAnswer::Dropped(DropReason::OutOfMemory));
        }
        let mut waiting = asked.waiting(server);
        let answer = self.with_env(&asked.config, |env| {
            let length = respond::response(&mut waiting, message, length, env)?;
            Ok((length, waiting.delay()))
        });
        if !waiting.outgrown.is_empty() {
            *message = std::mem::take(&mut waiting.outgrown);
        }
        if answer.is_ok() && asked.way == Way::Stream {
            self.count_tcp_latency(Now::read().since(asked.since));
        }
        answer.map_err(|reason: DropReason| {
            self.shard.count_drop(reason);
            if reason == DropReason::ResponseSuspended
                && let Some(ticket) = suspended::ticket(&waiting.extras)
            {
                return NoAnswer::Suspended(ticket);
            }
            match restart::again(&mut waiting) {
                Some(again) if reason == DropReason::ResponseRestarted => {
                    NoAnswer::Again(Box::new(again))
                }
                _ => NoAnswer::Dropped(reason),
            }
        })
    }

    fn count_tcp_latency(&self, latency: Duration) {
        let latency = latency.as_micros() as u64;
        self.shard.count(Counter::LatencyTcpCount);
        self.shard.add(Counter::LatencyTcpSumMicroseconds, latency);
    }

    /// Counts that the first message of a transfer goes to its client, who asks over TCP.
    pub fn count_transfer_passed(&self, asked: &Asked, message: &[u8]) {
        let latency = Now::read().since(asked.since);
        respond::count_transfer_passed(message, latency, &self.shard);
        self.count_tcp_latency(latency);
    }

    /// Rules on a query that `server` did not answer.
    pub fn timed_out(&self, asked: &Asked, server: &Server) -> Option<Box<Again>> {
        if heap::is_short() {
            return None;
        }
        let mut waiting = asked.waiting(server);
        let again = self.with_env(&asked.config, |env| restart::timed_out(&mut waiting, env));
        again.map(Box::new)
    }

    /// Takes a query through the pipeline that is to be asked again.
    pub fn decide_again(&self, again: &mut Again, config: &Arc<Config>) -> Decision {
        let decided = self.with_env(config, |env| decided(restart::run(again, env)));
        self.asking(decided, &again.query, config)
    }

    /// Rules on a message of a transfer.
    ///
    /// # Errors
    /// A rule dropped it, or there is no memory: the transfer ends. Who passes it counts that.
    pub fn transferred(
        &self,
        asked: &Asked,
        server: &Server,
        message: &mut Vec<u8>,
    ) -> Result<(), DropReason> {
        if heap::is_short() {
            return Err(DropReason::OutOfMemory);
        }
        let mut waiting = asked.waiting(server);
        let judged = self.with_env(&asked.config, |env| xfr::judge(&mut waiting, message, env));
        let length = judged?;
        if !waiting.outgrown.is_empty() {
            *message = std::mem::take(&mut waiting.outgrown);
        }
        message.truncate(length);
        Ok(())
    }

    /// Nobody has answered what was asked over TCP: topTimeouts tells of it, if there is memory.
    pub fn remember_timeout(&self, asked: &Asked) {
        if heap::is_short() {
            return;
        }
        let waiting = asked.waiting(&asked.server);
        respond::timed_out(&waiting, Now::read(), &self.shard);
    }

    /// Counts an answer over UDP that the runtime has sent.
    pub fn count_sent(&self, destination: SocketAddr) {
        self.with_env(&self.config(), |env| respond::count_sent(destination, env));
    }

    /// Does something with what stages of the pipeline use beside the query.
    pub fn with_env<T>(&self, config: &Arc<Config>, act: impl FnOnce(&mut Env<'_>) -> T) -> T {
        RANDOM.with_borrow_mut(|random| {
            act(&mut Env {
                config,
                now: Now::read(),
                random,
                shard: &self.shard,
                forwarder: None,
            })
        })
    }

    /// A number nobody can predict.
    pub fn random_u16(&self) -> u16 {
        RANDOM.with_borrow_mut(|random| random.next_u32() as u16)
    }
}

impl Asked {
    /// Name, type and class, as the client wrote them.
    pub fn question(&self) -> &[u8] {
        self.found.parts.question(&self.query)
    }

    /// What a server with useProxyProtocol is told of the query. `None`: more than a header can have.
    pub fn proxy_header(&self) -> Option<Vec<u8>> {
        let protocol = match self.way {
            Way::Stream => Protocol::Tcp,
            Way::Xsk { .. } | Way::Socket { .. } => Protocol::Udp,
        };
        let mut header = Vec::new();
        let ends = (self.client, self.destination);
        outgoing::tell(&mut header, ends, protocol, self.extras.as_deref())?;
        Some(header)
    }

    /// What the pipeline needs to know of the query. Of one longer than [`QUERY_ROOM`] it gets the front: the question is
    /// there; the cache is not to take its answer.
    pub(crate) fn waiting(&self, server: &Server) -> Box<Waiting> {
        let length = self.query.len().min(QUERY_ROOM);
        let mut query = [0; QUERY_ROOM];
        query[..length].copy_from_slice(&self.query[..length]);
        Box::new(Waiting {
            server: server.number,
            client: self.client,
            destination: self.destination,
            way: self.way,
            limit: self.found.limit.into(),
            pool: self.found.pool,
            skip_cache: self.found.skip_cache || length < self.query.len(),
            is_leg: false,
            held_rcode: 0,
            client_flags: self.found.client_flags,
            marks: self.found.marks,
            extras: self.extras.clone(),
            sent: self.since,
            query,
            query_length: length,
            parts: self.found.parts,
            outgrown: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_threads_as_wanted_until_the_next_start() {
        let runtime = build("runtime", 3).unwrap();
        assert_eq!(runtime.metrics().num_workers(), 3);
        assert_eq!(threads_that_stay(&runtime, 3), None);
        assert_eq!(
            threads_that_stay(&runtime, 8).unwrap(),
            "setMaxTCPClientThreads(8) takes effect with the next start: 3 threads go on"
        );
    }
}
