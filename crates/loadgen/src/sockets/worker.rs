//! One thread of the closed loop: never more than so many queries wait; each answer lets the next query go.

use super::outstanding::{Found, Outstanding, Query};
use super::sys::BATCH;
use super::transport::{LONGEST_WAIT, Taker, Transport};
use super::{Plan, verbose};
use crate::failure::Outcome;
use crate::judge::{self, Fault};
use crate::pace::{Due, Pace};
use crate::questions::Questions;
use crate::shape::Shape;
use crate::tally::Tally;
use nix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::message::{HEADER_LENGTH, ResponseError};

/// What all threads of a run share.
pub(super) struct Run<'p> {
    pub(super) plan: &'p Plan,
    pub(super) questions: &'p Questions,
    pub(super) started: Instant,
    /// The query that is sent next, of `total`.
    pub(super) next: AtomicU64,
    pub(super) total: u64,
    /// Threads that are not done.
    pub(super) working: AtomicUsize,
    /// Queries that were sent and given up because somebody stopped the run.
    pub(super) interrupted: AtomicU64,
    /// Answers that found no room in a socket.
    pub(super) overflowed: AtomicU64,
    /// What the threads took of their CPUs, in nanoseconds.
    pub(super) cpu_time: AtomicU64,
    /// When the last query was sent or answer came, in nanoseconds since the start.
    pub(super) active_until: AtomicU64,
    /// When the last thread was done, in nanoseconds since the start.
    pub(super) ended: AtomicU64,
    /// Stop at once.
    pub(super) stop: AtomicBool,
}

impl<'p> Run<'p> {
    /// One of so many queries that begins now.
    pub(super) fn new(plan: &'p Plan, questions: &'p Questions, total: u64) -> Run<'p> {
        Run {
            plan,
            questions,
            started: Instant::now(),
            next: AtomicU64::new(0),
            total,
            working: AtomicUsize::new(plan.threads),
            interrupted: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            cpu_time: AtomicU64::new(0),
            active_until: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }
}

impl Run<'_> {
    /// Nanoseconds since the start.
    pub(super) fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// When the time for sending is over, in nanoseconds since the start.
    fn sent_by(&self) -> u64 {
        self.plan
            .limit
            .map_or(u64::MAX, |limit| limit.as_nanos() as u64)
    }

    /// Whether the time for sending is over, at `now`.
    fn is_over(&self, now: u64) -> bool {
        now >= self.sent_by()
    }
}

/// A thread's work.
pub(super) struct Worker<'r, T> {
    run: &'r Run<'r>,
    tally: &'r Mutex<Tally>,
    transport: T,
    clients: usize,
    /// Most queries that may wait.
    limit: usize,
    /// Queries sent by one client before it is the next one's turn.
    turn: usize,
    pace: Option<Pace>,
    outstanding: Outstanding,
    next_client: usize,
    /// When it last sent or got something, in nanoseconds since the start.
    active_until: u64,
    /// CPU time of this thread until there was nothing more to send, in nanoseconds. `None`: there still is.
    cpu_time: Option<u64>,
    /// What is sent by one call. Kept: an array of a call's own would be 1.5 KB to clear, often for a single query.
    messages: Vec<(u16, &'r [u8])>,
    /// Questions that are ours but could not be sent yet.
    backlog: VecDeque<u32>,
    /// Queries that the rate allows, by when it meant each to be sent. Empty where there is no rate.
    due: VecDeque<u64>,
}

impl<'r, T: Transport> Worker<'r, T> {
    /// The worker of a thread (number), with `clients` sockets in `transport`, of whose queries so many may be outstanding.
    pub(super) fn new(
        run: &'r Run<'r>,
        tally: &'r Mutex<Tally>,
        (transport, clients): (T, usize),
        (thread, outstanding): (usize, usize),
    ) -> Worker<'r, T> {
        let limit = outstanding.clamp(1, super::outstanding::OUTSTANDING_MAX);
        let pace = run.plan.rate.map(|rate| pace_of(run.plan, rate, thread));
        Worker {
            run,
            tally,
            transport,
            clients,
            limit,
            // Every client gets its part of what may wait; more at once saves system calls.
            turn: (limit / clients).clamp(1, BATCH / 2),
            pace,
            outstanding: Outstanding::new(),
            next_client: 0,
            active_until: 0,
            cpu_time: None,
            messages: Vec::with_capacity(BATCH),
            backlog: VecDeque::with_capacity(BATCH),
            due: VecDeque::with_capacity(BATCH),
        }
    }

    /// Sends and receives until everything is answered or given up.
    ///
    /// # Errors
    /// A socket that cannot be used any more.
    pub(super) fn work(mut self) -> Outcome<()> {
        let result = self.work_through();
        if result.is_err() {
            // The run has failed: the other threads need not go on until its end before that is said.
            self.run.stop.store(true, Ordering::Relaxed);
        }
        let interrupted = self.outstanding.len() as u64;
        self.run
            .interrupted
            .fetch_add(interrupted, Ordering::Relaxed);
        while self.run.plan.verbose
            && let Some(query) = self.outstanding.give_up(u64::MAX)
        {
            verbose::interrupted(self.run.questions.get(query.question as usize).question);
        }
        let overflowed = self.transport.overflowed();
        self.run.overflowed.fetch_add(overflowed, Ordering::Relaxed);
        let cpu_time = self.cpu_time.unwrap_or_else(cpu_time);
        self.run.cpu_time.fetch_add(cpu_time, Ordering::Relaxed);
        self.run
            .active_until
            .fetch_max(self.active_until, Ordering::Relaxed);
        self.run.ended.fetch_max(self.run.now(), Ordering::Relaxed);
        self.run.working.fetch_sub(1, Ordering::Release);
        result
    }

    fn work_through(&mut self) -> Outcome<()> {
        while !self.run.stop.load(Ordering::Relaxed) {
            let now = self.run.now();
            self.give_up(now);
            let idle = if self.run.is_over(now) {
                Idle::Done
            } else {
                self.send(now)?
            };
            if let Idle::Done = idle {
                self.cpu_time.get_or_insert_with(cpu_time);
            }
            let wait = match idle {
                Idle::Done if self.outstanding.len() == 0 => return Ok(()),
                Idle::Done | Idle::Full => LONGEST_WAIT,
                Idle::Until(then) => Duration::from_nanos(then.saturating_sub(now)),
            };
            let limit = self.wait(wait, now);
            self.receive(limit)?;
        }
        Ok(())
    }

    /// No longer than to the next time-out, or the end of the time for sending.
    fn wait(&mut self, wait: Duration, now: u64) -> Duration {
        let timeout = self.run.plan.timeout.as_nanos() as u64;
        let next = self.outstanding.oldest().map(|oldest| oldest + timeout);
        let next = next.map_or(LONGEST_WAIT, |next| {
            Duration::from_nanos(next.saturating_sub(now))
        });
        wait.min(next).min(LONGEST_WAIT)
    }

    // -- Sending ------------------------------------------------------------------------------------------------------

    /// Sends as much as may be sent now.
    fn send(&mut self, now: u64) -> Outcome<Idle> {
        // A client that takes nothing must not keep the others from their turns.
        let mut refused = 0;
        while refused < self.clients {
            let room = self.limit - self.outstanding.len();
            if room == 0 {
                return Ok(Idle::Full);
            }
            let wanted = match self.allowed(room.min(self.turn), now) {
                Ok(wanted) => wanted,
                Err(then) => return Ok(Idle::Until(then)),
            };
            self.claim(wanted);
            if self.backlog.is_empty() {
                return Ok(Idle::Done);
            }
            match self.send_as_next_client(wanted, now)? {
                0 => refused += 1,
                _ => refused = 0,
            }
        }
        Ok(Idle::Full)
    }

    /// How many of `wanted` queries the rate allows now; or when it allows the next one, in nanoseconds since the start.
    fn allowed(&mut self, wanted: usize, now: u64) -> Result<usize, u64> {
        let Some(pace) = &mut self.pace else {
            return Ok(wanted);
        };
        while self.due.len() < wanted {
            match pace.due(now) {
                Due::Batch { intended, .. } => self.due.push_back(intended),
                Due::At(then) if self.due.is_empty() => return Err(then),
                Due::Finished { .. } if self.due.is_empty() => return Err(self.run.sent_by()),
                _ => break,
            }
        }
        Ok(self.due.len().min(wanted))
    }

    /// Takes questions from the common store until `wanted` are here, if there are so many.
    fn claim(&mut self, wanted: usize) {
        let missing = wanted.saturating_sub(self.backlog.len()) as u64;
        if missing == 0 {
            return;
        }
        let first = self.run.next.fetch_add(missing, Ordering::Relaxed);
        let end = (first + missing).min(self.run.total);
        let questions = self.run.questions.len() as u64;
        self.backlog
            .extend((first.min(end)..end).map(|number| (number % questions) as u32));
    }

    /// Sends up to `wanted` queries by the socket whose turn it is; returns how many it took.
    fn send_as_next_client(&mut self, wanted: usize, now: u64) -> Outcome<usize> {
        let client = self.next_client;
        self.next_client = (client + 1) % self.clients;
        let questions = self.run.questions;
        self.messages.clear();
        for question in self.backlog.iter().take(wanted.min(BATCH)) {
            let query = Query {
                question: *question,
                client: client as u32,
                sent: now,
                intended: self.due.get(self.messages.len()).copied().unwrap_or(now),
            };
            let Some(id) = self.outstanding.enter(query) else {
                break;
            };
            let message = questions.get(*question as usize).message;
            self.messages.push((id, message));
        }
        let sent = self.transport.send(client, &self.messages)?;
        if sent > 0 {
            self.active_until = now;
        }
        for (id, _) in &self.messages[sent..] {
            self.outstanding.withdraw(*id);
        }
        self.backlog.drain(..sent);
        self.due.drain(..sent.min(self.due.len()));
        let octets: usize = self.messages[..sent]
            .iter()
            .map(|(_, message)| message.len())
            .sum();
        let mut tally = lock(self.tally);
        tally.sent += sent as u64;
        tally.sent_octets += octets as u64;
        Ok(sent)
    }

    // -- Receiving ----------------------------------------------------------------------------------------------------

    fn receive(&mut self, limit: Duration) -> Outcome<()> {
        let mut counting = Counting {
            run: self.run,
            outstanding: &mut self.outstanding,
            tally: self.tally,
            locked: None,
            now: 0,
        };
        let received = self.transport.receive(limit, &mut counting);
        self.active_until = self.active_until.max(counting.now);
        received
    }

    /// Gives up what has waited for too long.
    fn give_up(&mut self, now: u64) {
        let timeout = self.run.plan.timeout.as_nanos() as u64;
        let Some(limit) = now.checked_sub(timeout) else {
            return;
        };
        while let Some(query) = self.outstanding.give_up(limit) {
            lock(self.tally).given_up += 1;
            if self.run.plan.verbose {
                verbose::gave_up(self.run.questions.get(query.question as usize).question);
            }
        }
    }
}

/// When the thread of this number sends its part of `rate` queries a second: all threads together send at even intervals.
fn pace_of(plan: &Plan, rate: f64, thread: usize) -> Pace {
    // Ten years: the run ends for other reasons, and nothing is given up.
    let endless = Duration::from_secs(10 * 365 * 86_400);
    let duration = match plan.shape {
        Shape::Constant => endless,
        _ => plan.limit.unwrap_or(endless),
    };
    Pace::new(rate, duration, 1, endless)
        .shaped(plan.shape)
        .of_thread(thread, plan.threads)
        .later(thread as f64 / plan.threads as f64)
}

/// What this thread has used of its CPU, in nanoseconds.
fn cpu_time() -> u64 {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    used.map_or(Duration::ZERO, Into::into).as_nanos() as u64
}

/// Why nothing more is sent.
enum Idle {
    /// All that may wait waits, or a socket is full.
    Full,
    /// The rate allows the next one then, in nanoseconds since the start.
    Until(u64),
    /// There is nothing more to send.
    Done,
}

pub(super) fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Judges and counts what comes.
struct Counting<'w> {
    run: &'w Run<'w>,
    outstanding: &'w mut Outstanding,
    tally: &'w Mutex<Tally>,
    /// Locked once something has come.
    locked: Option<MutexGuard<'w, Tally>>,
    /// When the messages came that are taken now, in nanoseconds since the start. One look at the clock serves them all.
    now: u64,
}

impl Taker for Counting<'_> {
    fn come(&mut self) {
        self.now = self.run.now();
        self.locked.get_or_insert_with(|| lock(self.tally));
    }

    fn take(&mut self, client: usize, message: &[u8]) {
        let tally = self.locked.get_or_insert_with(|| lock(self.tally));
        let came = (client, message, self.now);
        count(self.run, self.outstanding, tally, came);
    }
}

/// Judges and counts one message that came to this client at `now`.
fn count(
    run: &Run<'_>,
    outstanding: &mut Outstanding,
    tally: &mut Tally,
    (client, message, now): (usize, &[u8], u64),
) {
    let Some(header) = message.first_chunk::<HEADER_LENGTH>() else {
        return tally.count_wrong(Fault::Response(ResponseError::TooShort));
    };
    let id = u16::from_be_bytes([header[0], header[1]]);
    let question = |query: &Query| run.questions.get(query.question as usize);
    let check = |query: &Query| {
        // "Destination port against query source port" (RFC 5452 §9.1): the clients share the IDs, and not the ports.
        if query.client as usize != client {
            return Err(Fault::Destination);
        }
        judge::check(message, question(query))
    };
    match outstanding.find(id) {
        Found::Never => tally.count_wrong(Fault::NeverAsked),
        Found::Answered(query) => match check(&query) {
            Ok(_) => tally.duplicate += 1,
            Err(fault) => tally.count_wrong(fault),
        },
        Found::GivenUp(query) => match check(&query) {
            Ok(_) => {
                outstanding.answer_late(id);
                tally.late += 1;
            }
            Err(fault) => tally.count_wrong(fault),
        },
        Found::Waiting(query) => match check(&query) {
            Err(fault) => tally.count_wrong(fault),
            Ok(answer) => {
                let latency = now.saturating_sub(query.intended);
                outstanding.answer(id);
                tally.count_right(&answer, latency);
                if run.plan.verbose {
                    verbose::answered(question(&query).question, &answer, latency);
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::questions::{Style, text};

    /// A socket that cannot be used any more.
    struct Broken;

    impl Transport for Broken {
        fn send(&mut self, _client: usize, _messages: &[(u16, &[u8])]) -> Outcome<usize> {
            Err(Failure::new("sending queries: broken"))
        }

        fn receive(&mut self, _limit: Duration, _taker: &mut dyn Taker) -> Outcome<()> {
            Ok(())
        }

        fn overflowed(&self) -> u64 {
            0
        }
    }

    /// A socket that takes everything.
    struct Open;

    impl Transport for Open {
        fn send(&mut self, _client: usize, messages: &[(u16, &[u8])]) -> Outcome<usize> {
            Ok(messages.len())
        }

        fn receive(&mut self, _limit: Duration, _taker: &mut dyn Taker) -> Outcome<()> {
            Ok(())
        }

        fn overflowed(&self) -> u64 {
            0
        }
    }

    /// Sent 800 ns behind its time.
    const QUERY: Query = Query {
        question: 0,
        client: 0,
        sent: 900,
        intended: 100,
    };

    /// The right answer to the first question.
    fn answer(questions: &Questions, id: u16) -> Vec<u8> {
        let mut message = questions.get(0).message.to_vec();
        message[..2].copy_from_slice(&id.to_be_bytes());
        message[2] |= 0x80;
        message
    }

    /// Two threads with a client each.
    fn plan(rate: Option<f64>) -> Plan {
        let server = "192.0.2.1:53".parse().unwrap();
        Plan {
            clients: 2,
            threads: 2,
            outstanding: 2,
            rate,
            ..Plan::of_one(server, crate::sockets::Transport::Udp)
        }
    }

    fn run<'r>(plan: &'r Plan, questions: &'r Questions) -> Run<'r> {
        Run::new(plan, questions, u64::MAX)
    }

    #[test]
    fn a_thread_that_fails_stops_all() {
        let plan = plan(None);
        let questions = text::parse(b"www.example A", Style::default()).unwrap();
        let run = run(&plan, &questions);
        let tally = Mutex::new(Tally::default());
        let worker = Worker::new(&run, &tally, (Broken, 1), (0, 1));
        assert!(worker.work().is_err());
        assert!(run.stop.load(Ordering::Relaxed));
        assert_eq!(run.working.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_wait_for_a_lost_answer_is_no_time_of_sending() {
        let plan = Plan {
            timeout: Duration::from_millis(5),
            ..plan(None)
        };
        let questions = text::parse(b"www.example A", Style::default()).unwrap();
        let run = Run {
            total: 1,
            ..run(&plan, &questions)
        };
        let tally = Mutex::new(Tally::default());
        let worker = Worker::new(&run, &tally, (Open, 1), (0, 1));
        assert_eq!(worker.work(), Ok(()));
        assert_eq!(lock(&tally).given_up, 1);
        let [active, ended] = [&run.active_until, &run.ended].map(|at| at.load(Ordering::Relaxed));
        assert!(active + 5_000_000 <= ended, "{active}, {ended}");
    }

    #[test]
    fn latency_counts_from_the_time_at_which_a_query_was_due() {
        let plan = plan(Some(2.0));
        let questions = text::parse(b"www.example A", Style::default()).unwrap();
        let run = run(&plan, &questions);
        let (mut outstanding, mut tally) = (Outstanding::new(), Tally::default());
        let id = outstanding.enter(QUERY).unwrap();
        let message = answer(&questions, id);
        count(&run, &mut outstanding, &mut tally, (0, &message, 1_000));
        assert_eq!((tally.right, tally.latency.max()), (1, 900));
    }

    #[test]
    fn what_is_sent_behind_its_time_is_remembered_by_that_time() {
        const NOW: u64 = 700_000_000;
        let plan = plan(Some(2.0));
        let questions = text::parse(b"www.example A", Style::default()).unwrap();
        let run = run(&plan, &questions);
        let tally = Mutex::new(Tally::default());
        let mut worker = Worker::new(&run, &tally, (Open, 1), (0, 2));
        // The first one was due at the start, the next one is a second after it.
        let next = worker.send(NOW);
        assert!(matches!(next, Ok(Idle::Until(1_000_000_000))));
        let sent = Query {
            sent: NOW,
            intended: 0,
            ..QUERY
        };
        assert_eq!(worker.outstanding.find(0), Found::Waiting(sent));
    }

    #[test]
    fn what_is_given_up_is_counted() {
        let plan = plan(None);
        let questions = text::parse(b"www.example A", Style::default()).unwrap();
        let run = run(&plan, &questions);
        let tally = Mutex::new(Tally::default());
        let mut worker = Worker::new(&run, &tally, (Open, 1), (0, 2));
        assert!(matches!(worker.send(0), Ok(Idle::Full)));
        let timeout = plan.timeout.as_nanos() as u64;
        worker.give_up(timeout);
        assert_eq!(lock(&tally).sent, 2);
        assert_eq!(lock(&tally).given_up, 0, "it is not over yet");
        worker.give_up(timeout + 1);
        assert_eq!(lock(&tally).given_up, 2);
    }

    #[test]
    fn an_answer_behind_the_time_out_is_late_once_and_then_a_duplicate() {
        let plan = plan(None);
        let questions = text::parse(b"www.example A", Style::default()).unwrap();
        let run = run(&plan, &questions);
        let mut outstanding = Outstanding::new();
        let mut tally = Tally {
            sent: 1,
            ..Tally::default()
        };
        let id = outstanding.enter(QUERY).unwrap();
        let message = answer(&questions, id);
        assert_eq!(outstanding.give_up(u64::MAX), Some(QUERY));
        for _ in 0..2 {
            count(&run, &mut outstanding, &mut tally, (0, &message, 2_000));
        }
        assert_eq!((tally.right, tally.late, tally.duplicate), (0, 1, 1));
        assert_eq!(tally.unanswered(), 0);
    }

    #[test]
    fn threads_take_turns_in_what_the_rate_allows() {
        let plan = plan(Some(2.0));
        let questions = text::parse(b"www.example A", Style::default()).unwrap();
        let run = run(&plan, &questions);
        let tally = Mutex::new(Tally::default());
        let [mut first, mut second] =
            [0, 1].map(|thread| Worker::new(&run, &tally, (Broken, 1), (thread, 1)));
        assert_eq!(first.allowed(1, 0), Ok(1));
        assert_eq!(second.allowed(1, 0), Err(500_000_000));
        assert_eq!(second.allowed(1, 500_000_000), Ok(1));
    }

    #[test]
    fn a_shape_of_fewer_queries_than_threads_is_sent() {
        let plan = Plan {
            threads: 4,
            shape: Shape::Burst {
                period: 1.0,
                part: 0.5,
            },
            limit: Some(Duration::from_secs(1)),
            ..plan(None)
        };
        let parts: Vec<Pace> = (0..4).map(|thread| pace_of(&plan, 1.0, thread)).collect();
        let totals: Vec<u64> = parts.iter().map(Pace::total).collect();
        assert_eq!(totals, [1, 0, 0, 0]);
        assert!(matches!(
            parts[0].clone().due(0),
            Due::Batch { queries: 1, .. }
        ));
        let ramp = Plan {
            shape: Shape::Ramp { from: 0.0 },
            ..plan
        };
        let parts = (0..4).map(|thread| pace_of(&ramp, 10.0, thread).total());
        assert_eq!(parts.sum::<u64>(), 10);
    }
}
