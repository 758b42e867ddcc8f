//! A backend that answers every query for an A record with 192.0.2.77, or does what a fault has it do.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::dns;
use crate::namespace::{Namespace, bind_when_free};
use crate::{During, Outcome};

/// How it behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Conduct {
    /// As it should.
    Good,
    /// Its ports are closed.
    Dead,
    /// It takes queries and connections, and says nothing.
    Silent,
    /// False answers first: other IDs, other questions, queries; then the true one.
    Lying,
    /// Its answers take 300 ms.
    Slow,
    /// Each answer comes a hundred times (F16).
    Repeating,
    /// Every second query is lost (F19).
    Lossy,
    /// Over TCP an octet every 20 ms; over UDP as it should (F17).
    Dripping,
    /// Connections are reset when the query is in (F17).
    Resetting,
    Ended,
}

/// All of them, by number.
const CONDUCTS: [Conduct; 10] = [
    Conduct::Good,
    Conduct::Dead,
    Conduct::Silent,
    Conduct::Lying,
    Conduct::Slow,
    Conduct::Repeating,
    Conduct::Lossy,
    Conduct::Dripping,
    Conduct::Resetting,
    Conduct::Ended,
];

/// What it answers with.
pub(super) const ADDRESS: [u8; 4] = [192, 0, 2, 77];

const SLOW: Duration = Duration::from_millis(300);
const COPIES: usize = 100;

/// How long it may take to notice another conduct.
const NOTICED: Duration = Duration::from_millis(20);

#[derive(Clone)]
struct Shared(Arc<AtomicU8>);

impl Shared {
    fn conduct(&self) -> Conduct {
        CONDUCTS[usize::from(self.0.load(Relaxed))]
    }
}

pub(super) struct Backend {
    shared: Shared,
    threads: Vec<JoinHandle<()>>,
}

impl Backend {
    /// Starts it on an address of the backends' namespace, port 53.
    pub(super) fn start(namespace: &Namespace, address: &str) -> Outcome<Self> {
        let address: SocketAddr = format!("{address}:53").parse().during("its address")?;
        let shared = Shared(Arc::new(AtomicU8::new(Conduct::Good as u8)));
        let sockets = namespace.run(|| {
            let udp = bind_when_free(|| UdpSocket::bind(address))?;
            Ok::<_, std::io::Error>((udp, bind_when_free(|| TcpListener::bind(address))?))
        });
        let (udp, tcp) = sockets?.during(format!("opening backend {address}"))?;
        let ports = [(); 2].map(|()| Port {
            namespace: namespace.clone(),
            address,
            shared: shared.clone(),
        });
        let [for_udp, for_tcp] = ports;
        let threads = vec![
            std::thread::spawn(move || for_udp.serve_udp(udp)),
            std::thread::spawn(move || for_tcp.serve_tcp(tcp)),
        ];
        Ok(Self { shared, threads })
    }

    /// From now on; noticed within 20 ms.
    pub(super) fn behave(&self, conduct: Conduct) {
        self.shared.0.store(conduct as u8, Relaxed);
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.behave(Conduct::Ended);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

// ------------------------------------------------------------------------------------------------------------------ UDP

/// One port of a backend: closed while it is dead.
struct Port {
    namespace: Namespace,
    address: SocketAddr,
    shared: Shared,
}

impl Port {
    /// Keeps, closes or opens the socket as the conduct wants it. `false`: there is none now.
    fn keep<T: Send>(
        &self,
        socket: &mut Option<T>,
        open: impl Fn(SocketAddr) -> std::io::Result<T> + Sync,
    ) -> bool {
        if self.shared.conduct() == Conduct::Dead {
            *socket = None;
            std::thread::park_timeout(NOTICED);
        } else if socket.is_none() {
            let opened = self.namespace.run(|| bind_when_free(|| open(self.address)));
            *socket = Some(opened.expect("the namespace").expect("a backend's port"));
        }
        socket.is_some()
    }

    fn serve_udp(&self, socket: UdpSocket) {
        let mut late = Late::default();
        let mut count = 0_u64;
        let mut socket = Some(socket);
        while self.shared.conduct() != Conduct::Ended {
            if !self.keep(&mut socket, UdpSocket::bind::<SocketAddr>) {
                continue;
            }
            let Some(socket) = &socket else { continue };
            let _ = socket.set_read_timeout(Some(late.patience()));
            let mut octets = [0; 1_500];
            if let Ok((length, peer)) = socket.recv_from(&mut octets) {
                count += 1;
                let conduct = (self.shared.conduct(), count);
                answer_datagram(socket, (&octets[..length], peer), conduct, &mut late);
            }
            late.send_due(socket);
        }
    }

    fn serve_tcp(&self, listener: TcpListener) {
        let mut listener = Some(listener);
        while self.shared.conduct() != Conduct::Ended {
            if !self.keep(&mut listener, TcpListener::bind::<SocketAddr>) {
                continue;
            }
            let Some(listener) = &listener else { continue };
            let _ = listener.set_nonblocking(true);
            match listener.accept() {
                Ok((stream, _)) => {
                    let shared = self.shared.clone();
                    std::thread::spawn(move || converse(stream, &shared));
                }
                Err(_) => std::thread::park_timeout(Duration::from_millis(2)),
            }
        }
    }
}

fn answer_datagram(
    socket: &UdpSocket,
    (query, peer): (&[u8], SocketAddr),
    (conduct, count): (Conduct, u64),
    late: &mut Late,
) {
    let Some(answer) = answer(query) else { return };
    // Whoever has gone needs no answer: errors of sending are his.
    let send = |octets: &[u8]| drop(socket.send_to(octets, peer));
    match conduct {
        Conduct::Dead | Conduct::Silent | Conduct::Ended => {}
        Conduct::Lossy if count % 2 == 0 => {}
        Conduct::Slow => late.0.push_back((Instant::now() + SLOW, peer, answer)),
        Conduct::Repeating => (0..COPIES).for_each(|_| send(&answer)),
        Conduct::Lying => {
            lies(query, &answer).iter().for_each(|lie| send(lie));
            send(&answer);
        }
        Conduct::Good | Conduct::Lossy | Conduct::Dripping | Conduct::Resetting => send(&answer),
    }
}

/// Answers whose time has not come yet, in order.
#[derive(Default)]
struct Late(VecDeque<(Instant, SocketAddr, Vec<u8>)>);

impl Late {
    /// How long to wait for a query meanwhile.
    fn patience(&self) -> Duration {
        match self.0.is_empty() {
            true => NOTICED,
            false => Duration::from_millis(1),
        }
    }

    fn send_due(&mut self, socket: &UdpSocket) {
        while let Some((due, ..)) = self.0.front()
            && *due <= Instant::now()
        {
            let (_, peer, answer) = self.0.pop_front().expect("there is one");
            let _ = socket.send_to(&answer, peer);
        }
    }
}

/// What is no answer to the query, though it looks like one.
fn lies(query: &[u8], answer: &[u8]) -> [Vec<u8>; 4] {
    let changed = |place: usize, bits: u8| {
        let mut octets = answer.to_vec();
        octets[place] ^= bits;
        octets
    };
    // Another ID, another name, the query itself, half of an answer.
    [
        changed(1, 0x55),
        changed(dns::HEADER_OCTETS + 1, 1),
        query.to_vec(),
        answer[..answer.len() / 2].to_vec(),
    ]
}

// ------------------------------------------------------------------------------------------------------------------ TCP

/// Answers queries of one connection until its end, its peer's or the backend's.
fn converse(mut stream: TcpStream, shared: &Shared) -> Option<()> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(NOTICED)).ok()?;
    loop {
        let query = next_message(&mut stream, shared)?;
        let answer = answer(&query)?;
        let length = (answer.len() as u16).to_be_bytes();
        let message = [length.as_slice(), &answer].concat();
        match shared.conduct() {
            Conduct::Dead | Conduct::Ended => return None,
            Conduct::Silent => {}
            Conduct::Resetting => return reset(&stream),
            Conduct::Slow => {
                std::thread::park_timeout(SLOW);
                stream.write_all(&message).ok()?;
            }
            Conduct::Dripping => {
                for octet in message {
                    stream.write_all(&[octet]).ok()?;
                    std::thread::park_timeout(Duration::from_millis(20));
                }
            }
            _ => stream.write_all(&message).ok()?,
        }
    }
}

/// The next query; `None` where the connection or the backend is at its end.
fn next_message(stream: &mut TcpStream, shared: &Shared) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    let mut wanted = 2;
    while octets.len() < wanted {
        let mut room = [0; 4_096];
        let most = (wanted - octets.len()).min(room.len());
        match stream.read(&mut room[..most]) {
            Ok(0) => return None,
            Ok(length) => octets.extend(&room[..length]),
            Err(error) if is_nothing(&error) => {}
            Err(_) => return None,
        }
        if matches!(shared.conduct(), Conduct::Ended | Conduct::Dead) {
            return None;
        }
        if octets.len() == 2 {
            wanted = 2 + usize::from(u16::from_be_bytes([octets[0], octets[1]]));
        }
    }
    Some(octets.split_off(2))
}

fn is_nothing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Closes with RST instead of FIN: nothing lingers.
fn reset(stream: &TcpStream) -> Option<()> {
    let none = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let _ = nix::sys::socket::setsockopt(stream, nix::sys::socket::sockopt::Linger, &none);
    None
}

/// The true answer to a query with one question; nothing for what is no query.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    const A: [u8; 4] = [0, 1, 0, 1];
    if query.len() < dns::HEADER_OCTETS || query[2] & 0x80 != 0 {
        return None;
    }
    let question = dns::question_of(query).ok()?;
    let is_address = question.ends_with(&A);
    let mut answer = query[..dns::HEADER_OCTETS].to_vec();
    answer[2] |= 0x84;
    answer[3] &= 0x10;
    let counts = [query[4], query[5], 0, u8::from(is_address), 0, 0, 0, 0];
    answer[4..12].copy_from_slice(&counts);
    answer.extend(question);
    if is_address {
        // The question's name, A, IN, 5 s, 4 octets.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
        answer.extend(ADDRESS);
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::{Answer, Query};

    #[test]
    fn the_true_answer_is_whole_and_no_lie_is_like_it() {
        let query = Query::new("www.example.com.", "A").expect("words").octets();
        let answer = answer(&query).expect("an answer");
        let read = Answer::read(&answer).expect("a message");
        assert_eq!((read.sections[0].len(), read.rcode), (1, 0));
        assert!(answer.ends_with(&ADDRESS));
        assert!(lies(&query, &answer).iter().all(|lie| *lie != answer));
    }

    #[test]
    fn conducts_are_found_by_their_number() {
        for conduct in CONDUCTS {
            assert_eq!(CONDUCTS[conduct as usize], conduct);
        }
    }
}
