//! A server that does to each query what a script says: whole frames, so that everything about them can be wrong.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use std::os::fd::AsFd;
use testnet::again_if_interrupted;
use testnet::lab::{Lab, SERVER_CLIENTS};
use testnet::namespace::Namespace;
use testnet::sys::PacketSocket;
use wire::frame::{Headers, Packet, write_headers};

/// SO_RCVBUF in octets. What the machine sends waits here with what comes, and after a pause of the machine's all that was due
/// comes at once: the default holds some hundred frames, and the others would be lost.
const RECEIVE_BUFFER: usize = 64 << 20;

/// What becomes of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Answer,
    Ignore,
    Twice,
    OtherQuestion,
    OtherId,
    WrongUdpChecksum,
    WrongIpChecksum,
    OtherSourcePort,
    Unturned,
    Refused,
    Truncated,
    OtherCase,
    /// Octets behind the last record.
    Longer,
    /// After so many milliseconds.
    Late(u64),
    /// Another question first, then the true answer.
    WrongThenRight,
}

/// The server, until it is dropped.
pub struct Responder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Responder {
    /// Starts a server in the lab's server namespace. `deed` decides by the number of the query, in the order of
    /// arrival. `tag`: answers carry this VLAN tag.
    pub fn start(
        lab: &Lab,
        tag: Option<u16>,
        deed: impl Fn(u64) -> Deed + Send + 'static,
    ) -> Responder {
        Responder::start_on((&lab.server(), SERVER_CLIENTS), tag, deed)
    }

    /// The same on an interface of another namespace.
    pub fn start_on(
        (namespace, interface): (&Namespace, &str),
        tag: Option<u16>,
        deed: impl Fn(u64) -> Deed + Send + 'static,
    ) -> Responder {
        let opened = namespace.run(|| PacketSocket::open(interface));
        let socket = opened.unwrap().unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut server = Server {
                socket,
                tag,
                seen: 0,
                later: VecDeque::new(),
            };
            while !stopped.load(Ordering::Relaxed) {
                server.turn(&deed);
            }
            server.seen
        });
        Responder {
            stop,
            thread: Some(thread),
        }
    }

    /// Ends it; returns how many queries it saw.
    pub fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Server {
    socket: PacketSocket,
    tag: Option<u16>,
    seen: u64,
    later: VecDeque<(Instant, Vec<u8>)>,
}

impl Server {
    /// Waits for a frame or for the time of a late answer.
    fn turn(&mut self, deed: &impl Fn(u64) -> Deed) {
        let timeout = PollTimeout::from(5_u8);
        let mut frames = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        again_if_interrupted(|| Ok(poll(&mut frames, timeout)?)).unwrap();
        while let Some((due, _)) = self.later.front()
            && *due <= Instant::now()
        {
            let (_, frame) = self.later.pop_front().unwrap();
            self.socket.send(&frame).unwrap();
        }
        let mut buffer = [0; 2048];
        while let Ok(captured) = self.socket.receive(&mut buffer) {
            let frame = &buffer[..captured.length];
            if let Some((packet, message)) = query(frame).filter(|_| !captured.outgoing) {
                let deed = deed(self.seen);
                self.seen += 1;
                self.answer(&packet, message, deed);
            }
        }
    }

    fn answer(&mut self, packet: &Packet, query: &[u8], deed: Deed) {
        let other = SocketAddr::new(packet.destination.ip(), 54);
        let mut headers = packet.reply_headers();
        let mut message = query.to_vec();
        message[2] |= 0x80;
        match deed {
            Deed::Ignore => return,
            Deed::OtherQuestion | Deed::WrongThenRight => message[13] ^= 1,
            Deed::OtherId => message[0] ^= 0x80,
            Deed::OtherSourcePort => headers.source = &other,
            Deed::Unturned => message[2] &= 0x7f,
            Deed::Refused => message[3] |= 5,
            Deed::Truncated => message[2] |= 2,
            Deed::OtherCase => message[13] ^= 0x20,
            Deed::Longer => message.extend([0; 4]),
            _ => {}
        }
        let mut frame = self.frame(&headers, &message);
        match deed {
            Deed::WrongUdpChecksum => *frame.last_mut().unwrap() ^= 1,
            Deed::WrongIpChecksum => {
                let at = frame.len() - message.len() - 8 - 20 + 8;
                frame[at] ^= 1;
            }
            _ => {}
        }
        if let Deed::Late(milliseconds) = deed {
            let due = Instant::now() + Duration::from_millis(milliseconds);
            return self.later.push_back((due, frame));
        }
        self.socket.send(&frame).unwrap();
        match deed {
            Deed::Twice => self.socket.send(&frame).unwrap(),
            Deed::WrongThenRight => self.answer(packet, query, Deed::Answer),
            _ => {}
        }
    }

    fn frame(&self, headers: &Headers, message: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 100 + message.len()];
        frame[100..].copy_from_slice(message);
        let start = write_headers(&mut frame, 100, message.len(), headers).unwrap();
        frame.drain(..start);
        if let Some(tag) = self.tag {
            let [high, low] = tag.to_be_bytes();
            frame.splice(12..12, [0x81, 0, high, low]);
        }
        frame
    }
}

/// A query of the generator's.
fn query(frame: &[u8]) -> Option<(Packet, &[u8])> {
    let packet = Packet::parse(frame, false).ok()?;
    let to_us = packet.destination.port() == 53 && super::PORTS.contains(&packet.source.port());
    to_us.then(|| (packet, packet.payload(frame)))
}
