//! An ordinary client beside the load: kernel sockets, few queries, every answer checked. What it sees is what others on the
//! interface would.

use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::client::Client;
use crate::dns::Query;
use crate::{During, Outcome, again_if_interrupted};

/// Time between two of its queries.
const EVERY: Duration = Duration::from_millis(50);
/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between queries to a server that does not answer yet, and how long each answer is waited for.
const OFTEN: Duration = Duration::from_millis(10);

/// What the witness saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub asked: u64,
    /// With the right ID and question.
    pub answered: u64,
    pub wrong: u64,
    /// The slowest answer, in microseconds.
    pub slowest_microseconds: u64,
}

impl Seen {
    /// Adds what was seen at another time.
    pub(super) fn add(&mut self, other: &Seen) {
        self.asked += other.asked;
        self.answered += other.answered;
        self.wrong += other.wrong;
        self.slowest_microseconds = self.slowest_microseconds.max(other.slowest_microseconds);
    }
}

/// A witness that asks until it is stopped.
pub(super) struct Witness {
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

impl Witness {
    /// Starts one; it asks `name` with type A.
    pub(super) fn start(client: &Client, name: &str) -> Outcome<Witness> {
        let socket = open(client, PATIENCE)?;
        let message = Query::new(name, "A")?.octets();
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || ask_until(&stopped, &socket, &message));
        Ok(Witness { stop, thread })
    }

    /// Stops it.
    pub(super) fn stop(self) -> Seen {
        // Fails only where the thread has ended already.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// Asks often, from the start of a server on, until something is answered without an error.
pub(super) struct FirstAnswer {
    stop: Sender<()>,
    thread: JoinHandle<Option<Instant>>,
}

impl FirstAnswer {
    /// Starts asking `name` with type A.
    pub(super) fn start(client: &Client, name: &str) -> Outcome<FirstAnswer> {
        let socket = open(client, OFTEN)?;
        let message = Query::new(name, "A")?.octets();
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || first_answer(&stopped, &socket, &message));
        Ok(FirstAnswer { stop, thread })
    }

    /// Stops asking. When the answer came; nothing if none did.
    pub(super) fn stop(self) -> Option<Instant> {
        // Fails only where the thread has ended already.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

fn first_answer(stopped: &Receiver<()>, socket: &UdpSocket, message: &[u8]) -> Option<Instant> {
    let mut answer = [0; 4096];
    while stopped.recv_timeout(OFTEN) == Err(RecvTimeoutError::Timeout) {
        // Fails where nobody listens yet.
        if socket.send(message).is_err() {
            continue;
        }
        while let Ok(length) = again_if_interrupted(|| socket.recv(&mut answer)) {
            let answer = &answer[..length];
            let is_error = answer.get(3).is_none_or(|flags| flags & 0x0f != 0);
            if is_answer(answer, message) && !is_error {
                return Some(Instant::now());
            }
        }
    }
    None
}

/// A socket of the client's that is connected with the server.
fn open(client: &Client, patience: Duration) -> Outcome<UdpSocket> {
    let server = client.target();
    let any = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let opened = client.run(|| {
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(patience))?;
        Ok::<UdpSocket, std::io::Error>(socket)
    });
    opened?.during("opening the witness's socket")
}

fn ask_until(stopped: &Receiver<()>, socket: &UdpSocket, message: &[u8]) -> Seen {
    let mut seen = Seen::default();
    let mut id = 0_u16;
    while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        id = id.wrapping_add(1);
        ask(socket, message, id, &mut seen);
    }
    seen
}

/// Asks once. Answers to earlier queries that come now are let pass.
fn ask(socket: &UdpSocket, message: &[u8], id: u16, seen: &mut Seen) {
    let mut query = message.to_vec();
    query[..2].copy_from_slice(&id.to_be_bytes());
    seen.asked += 1;
    if socket.send(&query).is_err() {
        return;
    }
    let started = Instant::now();
    let mut answer = [0; 4096];
    while let Ok(length) = again_if_interrupted(|| socket.recv(&mut answer)) {
        let answer = &answer[..length];
        if answer.get(..2) != Some(&id.to_be_bytes()[..]) {
            continue;
        }
        if is_answer(answer, &query) {
            seen.answered += 1;
            let time = started.elapsed().as_micros() as u64;
            seen.slowest_microseconds = seen.slowest_microseconds.max(time);
        } else {
            seen.wrong += 1;
        }
        return;
    }
}

/// QR is set, and the question is that of the query.
fn is_answer(answer: &[u8], query: &[u8]) -> bool {
    let question = 12..query.len();
    answer.get(2).is_some_and(|flags| flags & 0x80 != 0)
        && answer.get(question.clone()) == query.get(question)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_qr_and_the_question() {
        let query = Query::new("example.com.", "A").unwrap().octets();
        let mut answer = query.clone();
        assert!(!is_answer(&answer, &query), "a query is no answer");
        answer[2] |= 0x80;
        assert!(is_answer(&answer, &query));
        answer[13] ^= 1;
        assert!(!is_answer(&answer, &query));
    }

    #[test]
    fn what_was_seen_at_several_times_adds_up() {
        let mut seen = Seen::default();
        for (wrong, slowest_microseconds) in [(0, 70), (1, 40)] {
            seen.add(&Seen {
                asked: 16,
                answered: 15,
                wrong,
                slowest_microseconds,
            });
        }
        let counts = (seen.asked, seen.answered, seen.wrong);
        assert_eq!((counts, seen.slowest_microseconds), ((32, 30, 1), 70));
    }

    #[test]
    fn the_first_answer_that_is_no_error_counts() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = Client::before(server.local_addr().unwrap());
        let began = Instant::now();
        let first = FirstAnswer::start(&client, "example.com.").unwrap();
        let mut errors_sent = began;
        for rcode in [2, 5, 0] {
            errors_sent = Instant::now();
            let mut query = [0; 512];
            let (length, asker) = server.recv_from(&mut query).unwrap();
            (query[2], query[3]) = (0x80, rcode);
            server.send_to(&query[..length], asker).unwrap();
        }
        // It ends by itself; whoever stops it before has none.
        let at = first.thread.join().unwrap().unwrap();
        assert!(at >= errors_sent, "{:?}", at - began);
        let nobody = Client::before(server.local_addr().unwrap());
        let none = FirstAnswer::start(&nobody, "example.com.").unwrap();
        assert_eq!(none.stop(), None);
    }
}
