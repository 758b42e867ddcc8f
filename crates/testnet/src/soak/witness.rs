//! An ordinary client beside the load: kernel sockets, UDP from a new port each time and a TCP connection each time, every answer
//! compared, and every query remembered until the soak has judged it.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::backend::ADDRESS;
use crate::dns::{Answer, Query};
use crate::lab::{Lab, SERVER_V4, SERVER_V6};
use crate::{Failure, Outcome};

/// Time between two queries over UDP, and between two over TCP.
const EVERY_UDP: Duration = Duration::from_millis(10);
const EVERY_TCP: Duration = Duration::from_millis(100);

/// A query without an answer for so long is lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// Of the time between two looks no more counts as waiting: it is longer when the machine was frozen, and nobody could answer.
const LOOK_AT_MOST: Duration = Duration::from_millis(50);

/// A port is kept so long: for a second answer to be seen, and for none that is late to meet the next query from there. While a
/// neighbour does not answer, the kernel holds packets for three seconds (three probes of one second, ip-sysctl.rst).
const KEPT: Duration = Duration::from_secs(4);

/// Over TCP: the kernel sends what was lost on the way again, a SYN after a second (RFC 6298 section 2: "the sender SHOULD set
/// RTO <- 1 second"), and once more 2 s later, which is too late.
const PATIENCE_TCP: Duration = Duration::from_millis(1_800);

const REFUSED: u16 = 5;

/// What became of one query.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub at: Instant,
    pub what: String,
    pub fate: Fate,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Waiting,
    Answered(Duration),
    /// Where its way ended.
    Lost(String),
    /// Its own kernel could not send it: no route, or no link. Lost as well, where service is to be normal.
    NotSent,
    /// A wrong answer, or a second one: never allowed.
    Wrong(String),
}

/// Who asks, and what has become of it.
pub(super) struct Witness {
    asked: Arc<Mutex<Vec<Asked>>>,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// A list that both sides write to.
#[derive(Clone)]
struct Book(Arc<Mutex<Vec<Asked>>>);

impl Witness {
    pub(super) fn start(lab: &Lab) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let end = Arc::new(AtomicBool::new(false));
        let inside = |work: fn(&Book, &AtomicBool)| {
            let (client, book, end) = (lab.client(), Book(Arc::clone(&asked)), Arc::clone(&end));
            std::thread::spawn(move || {
                client
                    .run(|| work(&book, &end))
                    .expect("the clients' namespace");
            })
        };
        let threads = vec![inside(ask_by_udp), inside(ask_by_tcp)];
        Self {
            asked,
            end,
            threads,
        }
    }

    /// Queries of this time, all of which have met their fate. A wrong answer, whenever it came, is a failure.
    pub(super) fn between(&self, from: Instant, to: Instant) -> Outcome<Vec<Asked>> {
        let deadline = to + 3 * PATIENCE;
        loop {
            let (wrong, chosen) = self.look(from, to);
            if let Some(asked) = wrong {
                return Err(Failure::new(format!("{}: {:?}", asked.what, asked.fate)));
            }
            let waiting = |asked: &Asked| asked.fate == Fate::Waiting;
            if !chosen.iter().any(waiting) {
                return Ok(chosen);
            }
            if Instant::now() > deadline {
                return Err(Failure::new("the witness itself hangs"));
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Forgets what was asked before.
    pub(super) fn forget_before(&self, moment: Instant) {
        lock(&self.asked).retain(|asked| asked.at >= moment || asked.fate == Fate::Waiting);
    }

    fn look(&self, from: Instant, to: Instant) -> (Option<Asked>, Vec<Asked>) {
        let asked = lock(&self.asked);
        let is_wrong = |asked: &&Asked| matches!(asked.fate, Fate::Wrong(_));
        let wrong = asked.iter().find(is_wrong).cloned();
        let chosen = asked
            .iter()
            .filter(|asked| asked.at >= from && asked.at < to);
        (wrong, chosen.cloned().collect())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.end.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// How many of them were not answered, and one of those.
pub(super) fn lost(asked: &[Asked]) -> Option<(usize, &Asked)> {
    let answered = |asked: &&Asked| matches!(asked.fate, Fate::Answered(_));
    let mut lost = asked.iter().filter(|asked| !answered(asked));
    let first = lost.next()?;
    Some((1 + lost.count(), first))
}

/// The time within which so many of a hundred were answered.
pub(super) fn percentile(asked: &[Asked], of_a_hundred: usize) -> Duration {
    let times = asked.iter().filter_map(|asked| match asked.fate {
        Fate::Answered(time) => Some(time),
        _ => None,
    });
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let place = (times.len() * of_a_hundred / 100).min(times.len().saturating_sub(1));
    times.get(place).copied().unwrap_or_default()
}

fn lock(asked: &Mutex<Vec<Asked>>) -> MutexGuard<'_, Vec<Asked>> {
    asked
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Book {
    /// Enters a query that is about to be sent; a time that nobody else has is its place.
    fn open(&self, what: String) -> Instant {
        let mut book = lock(&self.0);
        let at = Instant::now();
        book.push(Asked {
            at,
            what,
            fate: Fate::Waiting,
        });
        at
    }

    fn close(&self, at: Instant, fate: Fate) {
        let mut book = lock(&self.0);
        match book.iter_mut().rev().find(|asked| asked.at == at) {
            Some(asked) => asked.fate = fate,
            // What is wrong is told even of a query that was judged and forgotten.
            None if matches!(fate, Fate::Wrong(_)) => book.push(Asked {
                at,
                what: "a query judged before".to_owned(),
                fate,
            }),
            None => {}
        }
    }
}

// ------------------------------------------------------------------------------------------------------------ what is asked

/// A query, and what its answer must say.
struct Question {
    name: String,
    octets: Vec<u8>,
    rcode: u16,
}

/// By turns what a rule answers, what the cache has, and what only a backend knows.
fn question(number: u64, way: &str) -> Question {
    let (name, rcode) = match number % 3 {
        0 => (format!("{way}{number}.refused.example."), REFUSED),
        1 => (format!("{way}{}.cached.example.", number % 50), 0),
        _ => (format!("{way}{number}.fresh.example."), 0),
    };
    let mut query = Query::new(&name, "A").expect("a good name");
    query.id = number as u16;
    Question {
        octets: query.octets(),
        name,
        rcode,
    }
}

impl Question {
    fn judge(&self, answer: &[u8], time: Duration) -> Fate {
        match self.fault(answer) {
            None => Fate::Answered(time),
            Some(fault) => Fate::Wrong(fault),
        }
    }

    fn fault(&self, octets: &[u8]) -> Option<String> {
        let answer = match Answer::read(octets) {
            Ok(answer) => answer,
            Err(failure) => return Some(failure.to_string()),
        };
        let question = self.octets.get(crate::dns::HEADER_OCTETS..);
        let is_ours =
            octets[..2] == self.octets[..2] && Some(answer.question.as_slice()) == question;
        let says =
            answer.rcode == self.rcode && (self.rcode == REFUSED || octets.ends_with(&ADDRESS));
        (!is_ours || !says).then(|| answer.summary())
    }
}

/// IPv4 and IPv6 by turns.
fn server(number: u64) -> SocketAddr {
    let address = if number.is_multiple_of(2) {
        SERVER_V4
    } else {
        SERVER_V6
    };
    (address, 53).into()
}

// ------------------------------------------------------------------------------------------------------------------ UDP

/// A query over UDP whose answer, or second answer, may come.
struct InFlight {
    socket: UdpSocket,
    question: Question,
    at: Instant,
    /// How long the machine has run since.
    waited: Duration,
    is_answered: bool,
    is_given_up: bool,
}

fn ask_by_udp(book: &Book, end: &AtomicBool) {
    let mut flights: VecDeque<InFlight> = VecDeque::new();
    let (mut next, mut last) = (Instant::now(), Instant::now());
    let mut number = 0;
    while !end.load(Relaxed) {
        if Instant::now() >= next {
            flights.extend(send(book, number));
            number += 1;
            next = (next + EVERY_UDP).max(Instant::now());
        }
        wait_for_any(&flights, next);
        let passed = last.elapsed().min(LOOK_AT_MOST);
        last = Instant::now();
        for flight in &mut flights {
            flight.waited += passed;
            flight.collect(book);
            flight.give_up_when_late(book);
        }
        while flights.front().is_some_and(InFlight::is_over) {
            flights.pop_front();
        }
    }
}

fn send(book: &Book, number: u64) -> Option<InFlight> {
    let (question, to) = (question(number, "u"), server(number));
    let at = book.open(format!("{} over UDP to {to}", question.name));
    let sent = || {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        socket.connect(to)?;
        socket.send(&question.octets)?;
        Ok::<_, std::io::Error>(socket)
    };
    match sent() {
        Ok(socket) => Some(InFlight {
            socket,
            question,
            at,
            waited: Duration::ZERO,
            is_answered: false,
            is_given_up: false,
        }),
        Err(_) => {
            book.close(at, Fate::NotSent);
            None
        }
    }
}

/// Until something has come or the next query is due.
fn wait_for_any(flights: &VecDeque<InFlight>, next: Instant) {
    let mut sockets: Vec<PollFd<'_>> = flights
        .iter()
        .map(|flight| PollFd::new(flight.socket.as_fd(), PollFlags::POLLIN))
        .collect();
    let left = next.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
    // Interrupted: the loop looks again.
    let _ = poll(&mut sockets, timeout);
}

impl InFlight {
    fn collect(&mut self, book: &Book) {
        let mut octets = [0; 1_500];
        // An error is an ICMP message: not an answer, and the wait goes on.
        while let Ok(length) = self.socket.recv(&mut octets) {
            let answer = &octets[..length];
            let fate = match self.is_answered {
                false => self.question.judge(answer, self.at.elapsed()),
                true => Fate::Wrong("a second answer".to_owned()),
            };
            self.is_answered = true;
            // Lost is lost, however late it comes.
            if !self.is_given_up || matches!(fate, Fate::Wrong(_)) {
                book.close(self.at, fate);
            }
        }
    }

    fn give_up_when_late(&mut self, book: &Book) {
        if !self.is_answered && !self.is_given_up && self.is_late() {
            self.is_given_up = true;
            book.close(self.at, Fate::Lost("no answer".to_owned()));
        }
    }

    fn is_late(&self) -> bool {
        self.waited > PATIENCE && self.at.elapsed() > PATIENCE
    }

    /// Whether its port is not needed any more.
    fn is_over(&self) -> bool {
        self.is_late() && self.at.elapsed() > KEPT
    }
}

// ------------------------------------------------------------------------------------------------------------------ TCP

fn ask_by_tcp(book: &Book, end: &AtomicBool) {
    let mut number = 0;
    while !end.load(Relaxed) {
        let (question, to) = (question(number, "t"), server(number / 3));
        let at = book.open(format!("{} over TCP to {to}", question.name));
        let fate = match converse(&question, to, at) {
            Ok(answer) => question.judge(&answer, at.elapsed()),
            Err(why) => Fate::Lost(why),
        };
        book.close(at, fate);
        number += 1;
        std::thread::park_timeout(EVERY_TCP.saturating_sub(at.elapsed()));
    }
}

fn converse(question: &Question, to: SocketAddr, began: Instant) -> Result<Vec<u8>, String> {
    let during =
        |what: &'static str| move |error| format!("{what}: {error} after {:?}", began.elapsed());
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE_TCP).map_err(during("connecting"))?;
    let left = PATIENCE_TCP.saturating_sub(began.elapsed());
    let set = stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
    set.map_err(during("a time-out"))?;
    let length = (question.octets.len() as u16).to_be_bytes();
    let message = [length.as_slice(), &question.octets].concat();
    stream.write_all(&message).map_err(during("sending"))?;
    let mut length = [0; 2];
    let read = stream.read_exact(&mut length);
    read.map_err(during("awaiting the answer"))?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    let read = stream.read_exact(&mut answer);
    read.map_err(during("reading the answer"))?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(milliseconds: &[u64]) -> Vec<Asked> {
        let one = |&time: &u64| Asked {
            at: Instant::now(),
            what: time.to_string(),
            fate: match time {
                0 => Fate::Lost(String::new()),
                time => Fate::Answered(Duration::from_millis(time)),
            },
        };
        milliseconds.iter().map(one).collect()
    }

    #[test]
    fn the_lost_are_counted_and_the_answered_sorted() {
        assert!(lost(&asked(&[1, 2])).is_none());
        let all = asked(&[3, 0, 1, 0]);
        let (count, first) = lost(&all).expect("two were lost");
        assert_eq!((count, first.what.as_str()), (2, "0"));
        assert_eq!(percentile(&all, 99), Duration::from_millis(3));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn only_time_in_which_the_machine_runs_makes_a_query_late() {
        let long_ago = Instant::now().checked_sub(2 * KEPT);
        let mut flight = InFlight {
            socket: UdpSocket::bind("127.0.0.1:0").expect("loopback"),
            question: question(0, "u"),
            at: long_ago.expect("a machine that is up for longer"),
            waited: LOOK_AT_MOST,
            is_answered: false,
            is_given_up: false,
        };
        assert!(!flight.is_late() && !flight.is_over());
        flight.waited = 2 * PATIENCE;
        assert!(flight.is_late() && flight.is_over());
        flight.at = Instant::now();
        assert!(!flight.is_late(), "it was sent just now");
    }

    #[test]
    fn an_answer_to_another_question_is_wrong() {
        let (ours, other) = (question(0, "u"), question(3, "u"));
        let mut answer = ours.octets.clone();
        (answer[2], answer[3]) = (0x81, 0x85);
        assert_eq!(ours.fault(&answer), None);
        assert!(other.fault(&answer).is_some());
        answer[3] = 0x82;
        assert!(ours.fault(&answer).is_some(), "SERVFAIL");
    }
}
