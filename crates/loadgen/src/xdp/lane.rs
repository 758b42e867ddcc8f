//! One sending thread: one queue, one AF_XDP socket, one UMEM. Sends what is due, collects what came, until told to end.
//!
//! Cost of a query and its answer: two frames' worth of copying, a cell of the flight table each way, one histogram
//! entry; clock and lock once per batch. The tally is behind a lock for the main thread, which looks once a second.

use super::Wake;
use super::addressing::Addressing;
use crate::failure::{Failure, Outcome};
use crate::flights::{Flights, Found};
use crate::judge::{self, Fault};
use crate::pace::{Due, Pace};
use crate::questions::{Question, Questions};
use crate::tally::Tally;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::message::Header;
use xsk::{BATCH, Batch, Flushed, Received, Socket, Umem};

/// A wait shorter than this is not worth a system call.
const SHORTEST_WAIT: Duration = Duration::from_micros(20);
/// How long to sleep when nothing is due: the end must be noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(2);

/// Queries sent between two looks at what came.
const SENDS_PER_TURN: u32 = 64;
/// Frames collected between two looks at what is due, when more come all the time: a ring.
const MOST_COLLECTED: usize = 4096;

/// What all lanes of a run share.
pub(super) struct Run<'g> {
    pub(super) questions: &'g Questions,
    pub(super) addressing: &'g Addressing,
    /// By lane: any lane may receive any lane's answers.
    pub(super) flights: &'g [Flights],
    pub(super) tallies: &'g [Mutex<Tally>],
    /// Times of flights count from here.
    pub(super) epoch: Instant,
    /// When the run started, in nanoseconds since the epoch.
    pub(super) start: u64,
    /// An answer that takes longer is late, in nanoseconds.
    pub(super) late_after: u64,
    pub(super) accept_partial: bool,
    pub(super) wake: Wake,
    /// Send no more.
    pub(super) stop: AtomicBool,
    /// Lanes that still send.
    pub(super) sending: AtomicUsize,
    /// When the last lane had sent everything, in nanoseconds since the epoch.
    pub(super) sent_until: AtomicU64,
    /// Receive no more.
    pub(super) end: AtomicBool,
}

impl Run<'_> {
    /// Nanoseconds since the epoch.
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

/// A queue and what sends through it.
pub(super) struct Lane {
    pub(super) number: usize,
    /// The interface's name.
    interface: String,
    pub(super) umem: Umem,
    pub(super) socket: Socket,
    batch: Batch,
    /// The question that comes next.
    question: usize,
}

impl Lane {
    /// `questions`: how many there are, one at least.
    pub(super) fn new(
        number: usize,
        interface: &str,
        (umem, socket): (Umem, Socket),
        questions: usize,
    ) -> Lane {
        Lane {
            number,
            interface: interface.to_owned(),
            umem,
            socket,
            batch: Batch::new(),
            // There may be fewer questions than lanes.
            question: number % questions,
        }
    }

    /// Sends by the pace, collects until the run ends.
    ///
    /// # Errors
    /// The interface went down or away.
    pub(super) fn run(&mut self, run: &Run<'_>, mut pace: Pace) -> Outcome<()> {
        std::thread::sleep(Duration::from_nanos(run.start.saturating_sub(run.now())));
        let mut sending = true;
        let ended = loop {
            // In this order the last chunk freed is the first one taken: answers come where answers lay, queries go from where
            // queries lay, and what is written there is still in the cache.
            let received = self.collect_all(run);
            let next = match self.flush() {
                Ok(drained) if sending => self.send(run, &mut pace, drained),
                other => other.map(|drained| Next::idle(drained, LONGEST_WAIT)),
            };
            match next {
                Err(failure) => break Err(failure),
                Ok(Next::Finished) => {
                    sending = false;
                    run.sent_until.fetch_max(run.now(), Ordering::Relaxed);
                    run.sending.fetch_sub(1, Ordering::Release);
                }
                Ok(Next::Wait(time)) if received == 0 => self.wait(time, run.wake),
                Ok(Next::Wait(_) | Next::Now) => {}
            }
            if run.end.load(Ordering::Acquire) {
                break Ok(());
            }
        };
        self.finish(run, sending);
        ended
    }

    fn tally<'r>(&self, run: &'r Run<'_>) -> MutexGuard<'r, Tally> {
        run.tallies[self.number]
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    // -- Sending ------------------------------------------------------------------------------------------------------

    /// Sends what is due, at most one turn's worth. `drained`: the kernel has all that was sent before.
    fn send(&mut self, run: &Run<'_>, pace: &mut Pace, mut drained: bool) -> Outcome<Next> {
        let mut sent = 0;
        let mut octets = 0;
        let mut skipped = 0;
        let next = loop {
            if sent >= SENDS_PER_TURN {
                break Next::Now;
            }
            if run.stop.load(Ordering::Relaxed) {
                break Next::Finished;
            }
            let now = run.now().saturating_sub(run.start);
            match pace.due(now) {
                Due::Finished { skipped: rest } => {
                    skipped += rest;
                    break Next::Finished;
                }
                Due::At(then) => break Next::idle(drained, Duration::from_nanos(then - now)),
                Due::Batch {
                    queries,
                    intended,
                    skipped: before,
                } => {
                    skipped += before;
                    let (count, length) = self.send_batch(run, queries, run.start + intended);
                    sent += count;
                    octets += length;
                    pace.put_back(queries - count);
                    drained = self.flush()?;
                    if !drained || count < queries {
                        break Next::Now;
                    }
                }
            }
        };
        if sent > 0 || skipped > 0 {
            let mut tally = self.tally(run);
            tally.sent += u64::from(sent);
            tally.sent_octets += octets;
            tally.skipped += skipped;
        }
        Ok(next)
    }

    /// Puts up to `queries` into the ring; returns how many it took and the octets of their messages.
    fn send_batch(&mut self, run: &Run<'_>, queries: u32, intended: u64) -> (u32, u64) {
        let mut octets = 0;
        for count in 0..queries {
            match self.send_one(run, intended) {
                Some(length) => octets += length as u64,
                None => return (count, octets),
            }
        }
        (queries, octets)
    }

    /// Puts the next query into the ring; returns the octets of its message. `None`: the ring is full.
    #[inline]
    fn send_one(&mut self, run: &Run<'_>, intended: u64) -> Option<usize> {
        let frame = self.umem.take()?;
        let flights = &run.flights[self.number];
        let summed = run.questions.get_summed(self.question);
        let number = flights.departed();
        let (port, id) = flights.key(number);
        let place = flights.number_of(port, id);
        let chunk = self.umem.chunk_mut(&frame);
        let length = run
            .addressing
            .write(chunk, summed, (self.number, port, id), place);
        if let Err(frame) = self.socket.send(frame, 0, length) {
            self.umem.give(frame);
            return None;
        }
        flights.depart(self.question as u32, intended);
        // Lanes take turns with the questions, so that together they go through the file in its order.
        self.question += run.flights.len();
        if self.question >= run.questions.len() {
            self.question %= run.questions.len();
        }
        Some(summed.0.len())
    }

    /// Gives the ring to the kernel. `false`: it takes no more now.
    fn flush(&mut self) -> Outcome<bool> {
        match self.socket.flush() {
            Flushed::Drained => Ok(true),
            Flushed::Pending(_) => Ok(false),
            Flushed::Down(error) => Err(Failure::new(format!(
                "interface {} cannot send any more: {}: the counts are those until then",
                self.interface,
                std::io::Error::from_raw_os_error(error)
            ))),
        }
    }

    // -- Collecting ---------------------------------------------------------------------------------------------------

    /// Judges and counts all that is there; returns how many frames.
    ///
    /// What has come goes before what is due. Whoever is late and sends first lets answers wait, a ring full of them in the end:
    /// then each is read long after it has left the processor's cache, which takes so much longer that nothing catches up again.
    fn collect_all(&mut self, run: &Run<'_>) -> usize {
        until_short(|| {
            let received = self.collect(run);
            self.socket.refill(&mut self.umem);
            self.socket.complete(&mut self.umem);
            received
        })
    }

    /// Judges and counts what came; returns how many frames.
    fn collect(&mut self, run: &Run<'_>) -> usize {
        let received = self.socket.receive(&mut self.umem, &mut self.batch);
        if received == 0 {
            return 0;
        }
        let now = run.now();
        let mut tally = run.tallies[self.number]
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        for Received {
            frame,
            start,
            length,
        } in self.batch.drain()
        {
            let octets = &mut self.umem.chunk_mut(&frame)[start as usize..][..length as usize];
            count(run, &mut tally, octets, now);
            self.umem.give(frame);
        }
        received
    }

    /// Sleeps for so long, or until frames come where they are to end it.
    fn wait(&self, time: Duration, wake: Wake) {
        if time < SHORTEST_WAIT || wake == Wake::Never {
            return;
        }
        let timeout = Some(TimeSpec::from_duration(time.min(LONGEST_WAIT)));
        let frames = &mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let watched: &mut [PollFd] = match wake {
            Wake::Answers => frames,
            _ => &mut [],
        };
        // An error is a signal: look again.
        let _ = ppoll(watched, timeout, None);
    }

    /// Takes back from the count what never left the ring.
    fn finish(&mut self, run: &Run<'_>, sending: bool) {
        if sending {
            run.sent_until.fetch_max(run.now(), Ordering::Relaxed);
            run.sending.fetch_sub(1, Ordering::Release);
        }
        if let Flushed::Pending(stuck) = self.socket.flush() {
            let mut tally = self.tally(run);
            tally.sent -= u64::from(stuck);
            tally.skipped += u64::from(stuck);
        }
    }
}

/// Collects until less than a whole batch was there, or [`MOST_COLLECTED`]; returns how many frames.
fn until_short(mut collect: impl FnMut() -> usize) -> usize {
    let mut all = 0;
    loop {
        let received = collect();
        all += received;
        if received < BATCH || all >= MOST_COLLECTED {
            return all;
        }
    }
}

/// What to do after a turn of sending.
enum Next {
    /// More is due.
    Now,
    /// Nothing for so long.
    Wait(Duration),
    /// Nothing ever.
    Finished,
}

impl Next {
    /// Nothing is due for so long. Frames that the kernel has not taken do not wait.
    fn idle(drained: bool, time: Duration) -> Next {
        if drained { Next::Wait(time) } else { Next::Now }
    }
}

/// The question of a query so long ago that it is forgotten: any well-formed response may be its answer.
const FORGOTTEN: Question<'static> = Question {
    message: &[],
    question: &[],
    expected: None,
};

/// Judges one frame.
#[inline]
fn count(run: &Run<'_>, tally: &mut Tally, frame: &mut [u8], now: u64) {
    match judge(run, frame, now) {
        Ok(Verdict::Right { answer, latency }) => tally.count_right(&answer, latency),
        Ok(Verdict::Late) => tally.late += 1,
        Ok(Verdict::Duplicate) => tally.duplicate += 1,
        Ok(Verdict::Former) => {}
        Err(fault) => tally.count_wrong(fault),
    }
}

enum Verdict {
    Right {
        answer: judge::Answer,
        latency: u64,
    },
    Late,
    Duplicate,
    /// Late, to a query of an earlier run (of a ramp), which has told of it as never answered: nothing of this run's.
    Former,
}

#[inline]
fn judge(run: &Run<'_>, frame: &mut [u8], now: u64) -> Result<Verdict, Fault> {
    let addressing = run.addressing;
    let (packet, message) = addressing
        .read(frame, run.accept_partial)
        .map_err(Fault::Frame)?;
    let port = addressing.lane_of(packet.destination.port(), run.flights.len());
    let (lane, port) = port.ok_or(Fault::Destination)?;
    let short = Fault::Response(wire::message::ResponseError::TooShort);
    let id = Header::read(message).ok_or(short)?.id();
    let flights = &run.flights[lane];
    let number = flights.number_of(port, id);
    if packet.source != addressing.target(number).server {
        return Err(Fault::Source);
    }
    if packet.destination.ip() != addressing.source(number) {
        return Err(Fault::Destination);
    }
    let question = |number: u32| run.questions.get(number as usize);
    match flights.find(port, id) {
        Found::Never => Err(Fault::NeverAsked),
        Found::Past => judge::check(message, FORGOTTEN).map(|_| Verdict::Late),
        Found::Landed { question: number } => {
            judge::check(message, question(number)).map(|_| Verdict::Duplicate)
        }
        Found::InFlight(flight) => {
            let answer = judge::check(message, question(flight.question))?;
            let latency = now.saturating_sub(flight.intended);
            Ok(if !flights.land(&flight) {
                Verdict::Duplicate
            } else if latency > run.late_after {
                if flight.intended < run.start {
                    Verdict::Former
                } else {
                    Verdict::Late
                }
            } else {
                Verdict::Right { answer, latency }
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::addressing::Target;
    use super::*;
    use crate::questions::{Style, summed, text};
    use wire::frame::{Packet, write_headers};
    use wire::message::ResponseError;
    use xsk::Sources;

    const CHUNK: usize = 2048;

    #[test]
    fn all_that_has_come_is_collected_before_anything_is_sent() {
        let collected = |batches: &[usize]| {
            let mut left = batches.iter().copied();
            let all = until_short(|| left.next().unwrap_or(BATCH));
            (all, left.count())
        };
        assert_eq!(collected(&[0, 9]), (0, 1));
        assert_eq!(collected(&[7, 9]), (7, 1));
        assert_eq!(collected(&[BATCH, BATCH, 5, 9]), (2 * BATCH + 5, 1));
        // Answers that never end do not keep it from sending.
        assert_eq!(collected(&[]).0, MOST_COLLECTED);
    }

    fn addressing() -> Addressing {
        Addressing {
            targets: vec![Target {
                server: "192.0.2.1:53".parse().unwrap(),
                mac: [2, 0, 0, 0, 0, 2],
                sources: Sources {
                    address: "192.0.2.9".parse().unwrap(),
                    prefix: 32,
                },
            }],
            first_port: 16384,
            port_bits: 2,
            local_mac: [2, 0, 0, 0, 0, 1],
            vlan: None,
        }
    }

    /// The frame by which a server sends `message` back to who asked the query of this key; server and client are those of
    /// this number.
    fn answer(
        addressing: &Addressing,
        (port, id): (u16, u16),
        number: u64,
        message: &[u8],
    ) -> Vec<u8> {
        let mut chunk = [0; CHUNK];
        let length = addressing.write(&mut chunk, summed(message), (0, port, id), number) as usize;
        let query = Packet::parse(&chunk[..length], false).unwrap();
        let start = addressing.mean_headers_length();
        let headers = query.reply_headers();
        write_headers(&mut chunk, start, message.len(), &headers).unwrap();
        chunk[..length].to_vec()
    }

    /// A run that started 5,000 ns after its epoch, and whose answers are late after 1,000 ns.
    fn run<'r>(
        (questions, addressing): (&'r Questions, &'r Addressing),
        flights: &'r [Flights],
        tallies: &'r [Mutex<Tally>],
    ) -> Run<'r> {
        Run {
            questions,
            addressing,
            flights,
            tallies,
            epoch: Instant::now(),
            start: 5_000,
            late_after: 1_000,
            accept_partial: false,
            wake: Wake::Answers,
            stop: AtomicBool::new(false),
            sending: AtomicUsize::new(0),
            sent_until: AtomicU64::new(0),
            end: AtomicBool::new(false),
        }
    }

    #[test]
    fn an_answer_is_right_late_or_a_duplicate_by_the_time_at_which_its_query_was_due() {
        let (addressing, flights) = (addressing(), [Flights::new(4, 2)]);
        let questions = text::parse(b"www.example A", Style::default()).unwrap();
        let tallies = [Mutex::new(Tally::default())];
        let run = run((&questions, &addressing), &flights, &tallies);
        let mut response = questions.get(0).message.to_vec();
        response[2] |= 0x80;
        let mut tally = Tally::default();
        // The last one is of an earlier run.
        for (intended, now) in [(6_000, 6_800), (6_000, 7_001), (4_000, 9_000)] {
            let key = flights[0].key(flights[0].depart(0, intended));
            for _ in 0..2 {
                let mut frame = answer(&addressing, key, 0, &response);
                count(&run, &mut tally, &mut frame, now);
            }
        }
        assert_eq!((tally.right, tally.late, tally.duplicate), (1, 1, 3));
        assert_eq!((tally.latency.len(), tally.latency.max()), (1, 800));
        assert_eq!(tally.wrong_total(), 0);
    }

    #[test]
    fn an_answer_of_another_server_or_to_another_of_our_addresses_is_wrong() {
        let mut addressing = addressing();
        let sources = Sources {
            address: "198.51.100.0".parse().unwrap(),
            prefix: 28,
        };
        addressing.targets[0].sources = sources;
        addressing.targets.push(Target {
            server: "192.0.2.2:53".parse().unwrap(),
            mac: [2, 0, 0, 0, 0, 3],
            sources,
        });
        let ends = |number: u64| (addressing.target(number).server, addressing.source(number));
        let (server, client) = ends(0);
        let first = |differ: (bool, bool)| {
            let differs = |number: &u64| {
                let (its_server, its_client) = ends(*number);
                (its_server != server, its_client != client) == differ
            };
            (1..).find(differs).unwrap()
        };
        let (other_server, other_client) = (first((true, false)), first((false, true)));
        let flights = [Flights::new(4, 2)];
        let questions = text::parse(b"www.example A", Style::default()).unwrap();
        let tallies = [Mutex::new(Tally::default())];
        let run = run((&questions, &addressing), &flights, &tallies);
        let mut response = questions.get(0).message.to_vec();
        response[2] |= 0x80;
        let key = flights[0].key(flights[0].depart(0, 6_000));
        let mut tally = Tally::default();
        for number in [other_server, other_client, 0] {
            let mut frame = answer(&addressing, key, number, &response);
            count(&run, &mut tally, &mut frame, 6_500);
        }
        assert_eq!(tally.wrong[Fault::Source.index()], 1);
        assert_eq!(tally.wrong[Fault::Destination.index()], 1);
        assert_eq!((tally.right, tally.answers()), (1, 3));
    }

    #[test]
    fn only_a_well_formed_response_to_a_forgotten_query_is_late() {
        let (addressing, flights) = (addressing(), [Flights::new(4, 2)]);
        let questions = text::parse(b"www.example A", Style::default()).unwrap();
        // The first one's cell has the fifth.
        (0..5).for_each(|intended| {
            flights[0].depart(0, intended);
        });
        let tallies = [Mutex::new(Tally::default())];
        let run = run((&questions, &addressing), &flights, &tallies);
        let echo = questions.get(0).message.to_vec();
        let mut response = echo.clone();
        response[2] |= 0x80;
        // A record is counted that is not there.
        let mut cut = response.clone();
        cut[7] = 1;
        let mut tally = Tally::default();
        for message in [&echo, &cut, &response] {
            let mut frame = answer(&addressing, flights[0].key(0), 0, message);
            count(&run, &mut tally, &mut frame, 10);
        }
        let wrong = |error| tally.wrong[Fault::Response(error).index()];
        assert_eq!(tally.late, 1);
        assert_eq!(wrong(ResponseError::Query), 1);
        assert_eq!(wrong(ResponseError::BadRecords), 1);
        assert_eq!(tally.answers(), 3);
    }
}
