//! The limit of a balancer, on our own crate: a bare AF_XDP forwarder over two devices, one thread, one UMEM, in place both
//! ways. No DNS work, IPv4 only: addresses, MAC addresses, TTL and checksums. The client's port is kept, so there is
//! nothing to look up; one client at a time: answers go to whoever asked last.
//!
//! `forward OBJECT CLIENT_IF SERVED BACKEND_IF LOCAL BACKEND BACKEND_MAC`, all queues 0, all ports 53; OBJECT is a compiled
//! bench/yardsticks/steer.bpf.c.

mod bare;

use std::error::Error;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::exit;

use bare::Bare;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xsk::nic::Nic;
use xsk::{Batch, Flushed, Received, Socket, Umem, UmemOptions};

const SOURCE_MAC: usize = 6;
const TTL: usize = 22;
const IP_CHECKSUM: usize = 24;
const ADDRESSES: usize = 26;
const UDP_CHECKSUM: usize = 40;

/// One device: our socket on it, and the ends of what leaves by it.
struct Side {
    _bare: Bare,
    socket: Socket,
    ends: Ends,
}

/// MAC addresses (theirs, ours) and IP addresses (ours, theirs), as they stand in a frame.
struct Ends {
    macs: [u8; 12],
    addresses: [u8; 8],
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(arguments) = Arguments::of(&words) else {
        eprintln!("usage: forward OBJECT CLIENT_IF SERVED BACKEND_IF LOCAL BACKEND BACKEND_MAC");
        exit(2);
    };
    if let Err(error) = forward(&arguments) {
        eprintln!("forward: {error}");
        exit(1);
    }
}

struct Arguments {
    object: String,
    client: SideArguments,
    backend: SideArguments,
}

struct SideArguments {
    interface: String,
    local: Ipv4Addr,
    /// The other end, where it is known from the start.
    remote: Option<(Ipv4Addr, [u8; 6])>,
}

impl Arguments {
    fn of(words: &[String]) -> Option<Arguments> {
        let [object, client, served, backend, local, remote, mac] = words else {
            return None;
        };
        Some(Arguments {
            object: object.clone(),
            client: SideArguments {
                interface: client.clone(),
                local: served.parse().ok()?,
                remote: None,
            },
            backend: SideArguments {
                interface: backend.clone(),
                local: local.parse().ok()?,
                remote: Some((remote.parse().ok()?, mac_of(mac)?)),
            },
        })
    }
}

fn mac_of(text: &str) -> Option<[u8; 6]> {
    let octets: Vec<u8> = text
        .split(':')
        .map(|octet| u8::from_str_radix(octet, 16).ok())
        .collect::<Option<_>>()?;
    octets.try_into().ok()
}

fn forward(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut umem = Umem::new(2 * bare::FRAMES, UmemOptions::default())?;
    let mut client = open(&arguments.object, &arguments.client, &mut umem)?;
    let mut backend = open(&arguments.object, &arguments.backend, &mut umem)?;
    let mut batch = Batch::new();
    loop {
        let asked = client.take(&mut umem, &mut batch);
        if let Some(last) = batch.len().checked_sub(1).and_then(|last| batch.get(last)) {
            client
                .ends
                .learn(&umem.chunk(&last.frame)[last.start as usize..]);
        }
        backend.send_all(&mut umem, &mut batch);
        let answered = backend.take(&mut umem, &mut batch);
        client.send_all(&mut umem, &mut batch);
        let drained =
            [&mut client, &mut backend].map(|side| side.socket.flush() == Flushed::Drained);
        if asked + answered == 0 {
            wait(&client.socket, &backend.socket, drained == [true, true]);
        }
    }
}

/// Loads, attaches and binds one side, and enters its socket last.
fn open(object: &str, arguments: &SideArguments, umem: &mut Umem) -> Result<Side, Box<dyn Error>> {
    let nic = Nic::by_name(&arguments.interface)?;
    let bare = Bare::attach(object, nic.index)?;
    let socket = bare::bind(umem, nic.index, 0)?;
    bare.enter(0, &socket)?;
    eprintln!("forward: {} queue 0, {:?}", nic.name, socket.mode()?);
    let (remote, remote_mac) = arguments.remote.unwrap_or((Ipv4Addr::UNSPECIFIED, [0; 6]));
    let mut ends = Ends {
        macs: [0; 12],
        addresses: [0; 8],
    };
    ends.macs[..6].copy_from_slice(&remote_mac);
    ends.macs[6..].copy_from_slice(&nic.mac);
    ends.addresses[..4].copy_from_slice(&arguments.local.octets());
    ends.addresses[4..].copy_from_slice(&remote.octets());
    Ok(Side {
        _bare: bare,
        socket,
        ends,
    })
}

/// Until frames come, or shortly where some could not be sent.
fn wait(client: &Socket, backend: &Socket, drained: bool) {
    let timeout = if drained {
        PollTimeout::NONE
    } else {
        PollTimeout::from(1u8)
    };
    let mut sockets =
        [client, backend].map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
    // An error is a signal: look again.
    let _ = poll(&mut sockets, timeout);
}

impl Side {
    /// Receives a batch, with what belongs to it; returns how many frames.
    fn take(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        self.socket.complete(umem);
        self.socket.refill(umem);
        self.socket.receive(umem, batch)
    }

    /// Sends a batch that came in on the other side.
    fn send_all(&mut self, umem: &mut Umem, batch: &mut Batch) {
        for Received {
            frame,
            start,
            length,
        } in batch.drain()
        {
            self.ends
                .write(&mut umem.chunk_mut(&frame)[start as usize..(start + length) as usize]);
            if let Err(frame) = self.socket.send(frame, start, length) {
                umem.give(frame);
            }
        }
    }
}

impl Ends {
    /// Remembers who sent a frame.
    fn learn(&mut self, frame: &[u8]) {
        self.macs[..6].copy_from_slice(&frame[SOURCE_MAC..SOURCE_MAC + 6]);
        self.addresses[4..].copy_from_slice(&frame[ADDRESSES..ADDRESSES + 4]);
    }

    /// Gives a frame new ends. RFC 1624: the checksums change by what the addresses do, IP's by the TTL too.
    fn write(&self, frame: &mut [u8]) {
        let old = sum(&frame[ADDRESSES..ADDRESSES + 8]);
        let old_ttl = sum(&frame[TTL..TTL + 2]);
        frame[..12].copy_from_slice(&self.macs);
        frame[ADDRESSES..ADDRESSES + 8].copy_from_slice(&self.addresses);
        frame[TTL] = 64;
        let new = sum(&frame[ADDRESSES..ADDRESSES + 8]);
        let new_ttl = sum(&frame[TTL..TTL + 2]);
        patch(frame, IP_CHECKSUM, old + old_ttl, new + new_ttl);
        if frame[UDP_CHECKSUM..UDP_CHECKSUM + 2] != [0, 0] {
            patch(frame, UDP_CHECKSUM, old, new);
        }
    }
}

/// The sum of some words.
fn sum(octets: &[u8]) -> u32 {
    let words = octets.as_chunks::<2>().0.iter();
    words.map(|word| u32::from(u16::from_be_bytes(*word))).sum()
}

/// Changes a checksum by what the sum of the words that it covers has changed.
fn patch(frame: &mut [u8], at: usize, old: u32, new: u32) {
    let checksum = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let changed = u32::from(!checksum) + u32::from(!fold(old)) + u32::from(fold(new));
    let checksum = !fold(changed);
    // 0 would mean that there is none, over UDP.
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// A sum in 16 bits; it has at most a few words.
fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}
