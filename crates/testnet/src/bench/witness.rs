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

/// A witness that asks until it is stopped.
pub(super) struct Witness {
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

impl Witness {
    /// Starts one; it asks `name` with type A.
    pub(super) fn start(client: &Client, name: &str) -> Outcome<Witness> {
        let server = client.target();
        let any = if server.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let opened = client.run(|| {
            let socket = UdpSocket::bind(any)?;
            socket.connect(server)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok::<UdpSocket, std::io::Error>(socket)
        });
        let socket = opened?.during("opening the witness's socket")?;
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
}
