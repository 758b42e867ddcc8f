//! Four scripted resolvers, each with a cache and a delay of its own: the upstream of dnsperf's published test, where a
//! balancer that asks all of them is as fast as the fastest for every name.
//!
//! ```text
//!  port    5301   5302   5303   5304
//!  misses  2 ms   5 ms   10 ms  20 ms     each knows another quarter of all names from the start, and what it was asked
//! ```
//!
//! An answer is the query with QR and RA set.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::{During, Outcome};

/// The port of the first; the others follow.
const PORT: u16 = 5301;

/// What a miss costs, by resolver.
const DELAYS: [Duration; 4] = [
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
];

/// SO_RCVBUF in bytes; the kernel doubles it. Whoever asks is as fast as the fastest resolver: all of dnsperf's queries may wait
/// for the slowest.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Names that a cache holds at most; then it begins anew.
const NAMES_MAX: usize = 1 << 20;

/// Answers until the process is ended.
///
/// # Errors
/// When a port is taken, or a socket breaks.
pub fn serve(address: IpAddr) -> Outcome<()> {
    let mut threads = Vec::new();
    for (number, port) in (0..DELAYS.len()).zip(PORT..) {
        let what = format!("resolver on {address} port {port}");
        let socket = UdpSocket::bind((address, port)).during(&what)?;
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).during(&what)?;
        threads.push(std::thread::spawn(move || {
            Resolver::new(number).serve(&socket).during(&what)
        }));
    }
    threads
        .into_iter()
        .try_for_each(|thread| thread.join().unwrap_or(Ok(())))
}

struct Resolver {
    number: usize,
    known: HashSet<u64>,
    /// Answers that wait: when, to whom, what.
    waiting: BinaryHeap<Reverse<(Instant, SocketAddr, Vec<u8>)>>,
}

impl Resolver {
    fn new(number: usize) -> Self {
        Self {
            number,
            known: HashSet::new(),
            waiting: BinaryHeap::new(),
        }
    }

    fn serve(&mut self, socket: &UdpSocket) -> io::Result<()> {
        let mut buffer = [0; 4_096];
        loop {
            // A time-out of zero would be none.
            let patience = self.waiting.peek().map(|Reverse((due, ..))| {
                let left = due.saturating_duration_since(Instant::now());
                left.max(Duration::from_micros(50))
            });
            socket.set_read_timeout(patience)?;
            match socket.recv_from(&mut buffer) {
                Ok((length, peer)) => self.take(&buffer[..length], peer, Instant::now()),
                Err(error) if is_nothing(&error) => {}
                Err(error) => return Err(error),
            }
            while let Some((peer, answer)) = self.next_due(Instant::now()) {
                // Whoever has gone needs no answer.
                let _ = socket.send_to(&answer, peer);
            }
        }
    }

    /// Makes the answer, due at once if the name is known.
    fn take(&mut self, query: &[u8], peer: SocketAddr, now: Instant) {
        let (Some(question), true) = (query.get(12..), query.len() > 16) else {
            return;
        };
        let mut hasher = DefaultHasher::new();
        question.to_ascii_lowercase().hash(&mut hasher);
        let name = hasher.finish();
        if self.known.len() == NAMES_MAX {
            self.known.clear();
        }
        let is_own = name % DELAYS.len() as u64 == self.number as u64;
        let is_known = !self.known.insert(name) || is_own;
        let delay = match is_known {
            true => Duration::ZERO,
            false => DELAYS[self.number],
        };
        let mut answer = query.to_vec();
        answer[2] |= 0x80;
        answer[3] |= 0x80;
        self.waiting.push(Reverse((now + delay, peer, answer)));
    }

    fn next_due(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        let Reverse((due, ..)) = self.waiting.peek()?;
        if *due > now {
            return None;
        }
        let Reverse((_, peer, answer)) = self.waiting.pop()?;
        Some((peer, answer))
    }
}

/// Nothing came in time, or a client's port was closed.
fn is_nothing(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        WouldBlock | TimedOut | Interrupted | ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::Query;

    #[test]
    fn what_is_known_is_answered_at_once_and_the_rest_late() {
        let peer = "192.0.2.1:53".parse().expect("an address");
        let now = Instant::now();
        for (number, delay) in DELAYS.into_iter().enumerate() {
            let mut resolver = Resolver::new(number);
            let (mut at_once, names) = (0, 400);
            for name in 0..names {
                let name = format!("host-{name}.example.");
                let query = Query::new(&name, "A").expect("good words").octets();
                resolver.take(&query, peer, now);
                at_once += usize::from(resolver.next_due(now).is_some());
                while resolver.next_due(now + delay).is_some() {}
                resolver.take(&query.to_ascii_uppercase(), peer, now);
                let (_, answer) = resolver.next_due(now).expect("it was asked before");
                assert_eq!((answer[2] & 0x80, answer[3] & 0x80), (0x80, 0x80));
            }
            assert!((60..140).contains(&at_once), "a quarter of {names}");
        }
    }
}
