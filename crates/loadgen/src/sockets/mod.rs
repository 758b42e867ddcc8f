//! `floodgate sockets`: a closed-loop generator over kernel sockets, as dnsperf: a query for each answer.
//!
//! ```text
//!  thread i    its clients (sockets), its outstanding queries (65,536 message IDs), its tally
//!  shared      the question that comes next, the end
//! ```

mod outstanding;
mod sys;
mod tcp;
mod transport;
mod udp;
mod verbose;
mod worker;

pub use outstanding::OUTSTANDING_MAX;
pub use tcp::Connections;

use crate::connections::allow_many_files;
use crate::failure::{Failure, Outcome};
use crate::questions::Questions;
use crate::shape::Shape;
use crate::tally::Tally;
use crate::watch::Watch;
use crate::xdp::{LaneCounts, Losses, time_of_day};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use worker::{Run, Worker, lock};
use xsk::Sources;

/// By what queries go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

/// Everything about a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One at least; each has as many clients as any other, or one more.
    pub servers: Vec<SocketAddr>,
    pub transport: Transport,
    /// Sockets, all threads together.
    pub clients: usize,
    pub threads: usize,
    /// Queries that may wait for their answers, all threads together; of each thread [`OUTSTANDING_MAX`] at most.
    pub outstanding: usize,
    /// Queries a second, all threads together; none: as fast as answers come.
    pub rate: Option<f64>,
    /// How the rate changes until the time is over.
    pub shape: Shape,
    /// A query without an answer for so long is given up.
    pub timeout: Duration,
    /// Send for so long.
    pub limit: Option<Duration>,
    /// Go through the questions so often; none: until the time is over.
    pub runs: Option<u64>,
    /// Queries by one TCP connection.
    pub queries_per_connection: Option<u64>,
    /// Each client sends from the next address of these.
    pub local: Option<Sources>,
    /// The first client's port, the next one's is one higher; 0: as the kernel chooses.
    pub local_port: u16,
    /// Octets of the sockets' buffers.
    pub buffer_size: Option<usize>,
    /// Print a line for every query.
    pub verbose: bool,
}

impl Plan {
    /// One client of a server, with one query at a time.
    #[cfg(test)]
    pub(crate) fn of_one(server: SocketAddr, transport: Transport) -> Plan {
        Plan {
            servers: vec![server],
            transport,
            clients: 1,
            threads: 1,
            outstanding: 1,
            rate: None,
            shape: Shape::Constant,
            timeout: Duration::from_secs(1),
            limit: None,
            runs: None,
            queries_per_connection: None,
            local: None,
            local_port: 0,
            buffer_size: None,
            verbose: false,
        }
    }

    /// The part of a run of so long in which queries are sent: behind the time limit are only answers and time-outs.
    pub fn sending(&self, duration: Duration) -> Duration {
        self.limit.map_or(duration, |limit| limit.min(duration))
    }

    /// Whom the run asks, and how.
    fn headline(&self) -> String {
        let transport = match self.transport {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
        };
        let servers: Vec<String> = self.servers.iter().map(SocketAddr::to_string).collect();
        format!("{} over {transport} sockets", servers.join(", "))
    }

    /// Whom a client asks.
    fn server(&self, client: usize) -> SocketAddr {
        self.servers[client % self.servers.len()]
    }
}

/// What one run came to.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// When it began.
    pub began: SystemTime,
    /// From the first query until all was sent, or the time was over, and the last answer had come: dnsperf's run time. What is
    /// waited for behind that and never comes is not in it, or one lost query would make seconds of a run of milliseconds.
    pub duration: Duration,
    /// The part of it in which queries were sent: see [`Plan::sending`]. Where all were sent, to the last answer.
    pub sending: Duration,
    pub tally: Tally,
    /// Queries that waited when somebody stopped the run.
    pub interrupted: u64,
    /// Answers that found the buffer of their socket full.
    pub overflowed: u64,
    /// The part of the time of sending that the threads had work for, from 0 to 1; 0 of a run that is too short to tell.
    pub busy: f64,
    /// The rate that was asked for, in queries a second.
    pub rate: Option<f64>,
    /// TCP connections.
    pub connections: Connections,
    pub end: End,
    /// What ended the run before its time: the counts are those until then.
    pub failure: Option<Failure>,
}

/// Threads that have so little time left that more answers would not have let them send more.
const BUSY: f64 = 0.95;

/// A run that sends for less than this spends most of it on its first query and on starting its threads.
const SHORTEST_JUDGED: Duration = Duration::from_millis(10);

/// The part of a rate that may be missing, since a run does not end with the last query's due time.
const RATE_KEPT: f64 = 0.99;

impl Measurement {
    /// In words: what on our side or by our options kept the rate from being higher.
    pub fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if self.busy >= BUSY {
            let percent = self.busy * 100.0;
            limits.push(format!(
                "The generator itself was the limit: its threads were at work {percent:.0}% of the time. Try more of them (-T), \
                 on CPUs of their own."
            ));
        }
        if self.overflowed > self.tally.sent / 1000 {
            limits.push(format!(
                "The generator itself was the limit: {} answers came and found its sockets' buffers full. Try larger ones (-b), \
                 more sockets (-c), or fewer queries at once (-q).",
                self.overflowed
            ));
        }
        if self.connections.without_port > 0 {
            limits.push(format!(
                "The generator itself was the limit: {} times it had no port free for a new connection. Try more queries by each \
                 (-O num-queries-per-conn), or more source addresses (-a).",
                self.connections.without_port
            ));
        }
        let reached = self.tally.sent as f64 / self.sending.as_secs_f64();
        if let Some(rate) = self.rate
            && self.end == End::TimeLimit
            && reached < rate * RATE_KEPT
            && limits.is_empty()
        {
            // Over TCP a server that went away keeps the rate down as well.
            let or = match self.connections.again {
                0 => String::new(),
                again => format!(", or had no connection ({again} were asked for again)"),
            };
            limits.push(format!(
                "{reached:.0} queries a second were sent of {rate:.0} asked for: as many waited for their answers as may (-q){or}."
            ));
        }
        limits
    }

    /// The same as that of one lane, for what prints both.
    pub fn of_all_threads(self) -> crate::xdp::Measurement {
        crate::xdp::Measurement {
            began: self.began,
            sending: self.duration,
            limits: self.limits(),
            interrupted: self.interrupted,
            lanes: vec![LaneCounts {
                sent: self.tally.sent,
                received: self.tally.answers(),
            }],
            tally: self.tally,
            losses: Losses {
                rings_full: self.overflowed,
                ..Losses::default()
            },
            unread: false,
            failure: self.failure,
            remark: None,
        }
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    TimeLimit,
    EndOfFile,
    Interrupted,
}

/// How often the main thread looks whether the run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs until everything is sent and answered, the time is over, the watch says so, or, with a
/// [`failure`](Measurement::failure), a socket cannot be used any more.
///
/// # Errors
/// A socket that cannot be opened, or none that could send.
pub fn measure(plan: &Plan, questions: &Questions, watch: &mut Watch) -> Outcome<Measurement> {
    allow_many_files()?;
    let tallies: Vec<Mutex<Tally>> = (0..plan.threads).map(|_| Mutex::default()).collect();
    let connections = Mutex::new(Connections::default());
    let total = plan
        .runs
        .map_or(u64::MAX, |runs| runs.saturating_mul(questions.len() as u64));
    let mut run = Run::new(plan, questions, total);
    // All sockets before the first query, so that a run does not begin and then fail.
    let clients: Vec<Clients> = (0..plan.threads)
        .map(|thread| Clients::open(plan, thread, &connections))
        .collect::<Outcome<_>>()?;
    run.started = Instant::now();
    let limit = plan.limit.unwrap_or_default();
    watch.start((&plan.headline(), "thread"), limit, None);
    let results: Vec<Outcome<()>> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = clients
            .into_iter()
            .zip(&tallies)
            .enumerate()
            .map(|(thread, (clients, tally))| {
                let outstanding = share(plan.outstanding, plan.threads, thread).len();
                scope.spawn(move || clients.work(run, tally, (thread, outstanding)))
            })
            .collect();
        oversee(run, &tallies, watch);
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.expect("workers do not panic"))
            .collect()
    });
    watch.end(Tally::sum(&each(&tallies)));
    let ended = Duration::from_nanos(run.ended.load(Ordering::Relaxed));
    let failure = results.into_iter().find_map(Result::err);
    let tally = Tally::sum(&each(&tallies));
    if let Some(failure) = &failure
        && tally.sent == 0
    {
        return Err(failure.clone());
    }
    let sent_all = run.next.load(Ordering::Relaxed) >= total;
    let active = Duration::from_nanos(run.active_until.load(Ordering::Relaxed));
    // Behind the end of the file somebody may wait for a whole time-out: the threads have no work then.
    let sending = plan.sending(if sent_all { active } else { ended });
    let whole = sending.as_nanos() as f64 * plan.threads as f64;
    let cpu_time = run.cpu_time.load(Ordering::Relaxed) as f64;
    Ok(Measurement {
        began: time_of_day(run.started),
        duration: sending.max(active),
        sending,
        overflowed: run.overflowed.load(Ordering::Relaxed),
        busy: match sending >= SHORTEST_JUDGED {
            true => (cpu_time / whole).min(1.0),
            false => 0.0,
        },
        rate: plan.rate,
        tally,
        interrupted: run.interrupted.load(Ordering::Relaxed),
        end: match (watch.is_stopped() || failure.is_some(), sent_all) {
            (true, _) => End::Interrupted,
            (_, true) => End::EndOfFile,
            _ => End::TimeLimit,
        },
        connections: connections
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner()),
        failure,
    })
}

/// The sockets of one thread.
enum Clients<'r> {
    Udp(udp::UdpClients, usize),
    Tcp(tcp::TcpClients<'r>, usize),
}

impl<'r> Clients<'r> {
    fn open(
        plan: &'r Plan,
        thread: usize,
        connections: &'r Mutex<Connections>,
    ) -> Outcome<Clients<'r>> {
        let clients = share(plan.clients, plan.threads, thread);
        let count = clients.len();
        Ok(match plan.transport {
            Transport::Udp => Clients::Udp(udp::UdpClients::open(plan, clients)?, count),
            Transport::Tcp => {
                Clients::Tcp(tcp::TcpClients::open(plan, clients, connections)?, count)
            }
        })
    }

    /// `part`: which thread it is, and how many of its queries may be outstanding.
    fn work(self, run: &Run<'_>, tally: &Mutex<Tally>, part: (usize, usize)) -> Outcome<()> {
        match self {
            Clients::Udp(clients, count) => Worker::new(run, tally, (clients, count), part).work(),
            Clients::Tcp(clients, count) => Worker::new(run, tally, (clients, count), part).work(),
        }
    }
}

/// What a thread has of `all`: as many as any other, or one more.
fn share(all: usize, threads: usize, thread: usize) -> Range<usize> {
    let start = |thread: usize| thread * all / threads;
    start(thread)..start(thread + 1)
}

/// Watches over a run until all threads are done.
fn oversee(run: &Run<'_>, tallies: &[Mutex<Tally>], watch: &mut Watch) {
    while run.working.load(Ordering::Acquire) > 0 {
        if !watch.turn(LOOK_EVERY, || each(tallies)) {
            run.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// What each thread has counted.
fn each(tallies: &[Mutex<Tally>]) -> Vec<Tally> {
    tallies.iter().map(|tally| lock(tally).clone()).collect()
}
