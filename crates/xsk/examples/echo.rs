//! The limit of user space, on our own crate: a bare AF_XDP echo, one thread, in place: swap, set QR, send.
//!
//! `echo -i IF [-q QUEUE] ADDRESS:PORT...` answers DNS queries to these addresses with themselves until it is killed.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::exit;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xsk::{
    AttachMode, Batch, Flushed, Options, Program, Received, RingSizes, Socket, Umem, UmemOptions,
};

struct Arguments {
    interface: String,
    queue: u32,
    served: Vec<SocketAddr>,
}

fn main() {
    if let Err(error) = echo(&arguments()) {
        eprintln!("echo: {error}");
        exit(1);
    }
}

fn arguments() -> Arguments {
    let mut found = Arguments {
        interface: String::new(),
        queue: 0,
        served: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-i" => found.interface = words.next().unwrap_or_default(),
            "-q" => {
                found.queue = words
                    .next()
                    .and_then(|queue| queue.parse().ok())
                    .unwrap_or_else(|| usage())
            }
            address => found
                .served
                .push(address.parse().unwrap_or_else(|_| usage())),
        }
    }
    if found.interface.is_empty() || found.served.is_empty() {
        usage();
    }
    found
}

fn usage() -> ! {
    eprintln!("usage: echo -i INTERFACE [-q QUEUE] ADDRESS:PORT...");
    exit(2);
}

fn echo(arguments: &Arguments) -> xsk::Result<()> {
    let nic = xsk::nic::Nic::by_name(&arguments.interface)?;
    let rings = RingSizes::default();
    let mut program = Program::load()?;
    let mode = program.attach(nic.index, AttachMode::Auto)?.mode;
    let mut umem = Umem::new(rings.frames(), UmemOptions::default())?;
    let mut socket = Socket::bind(
        &mut umem,
        nic.index,
        arguments.queue,
        Options {
            rings,
            ..Options::default()
        },
    )?;
    for &served in &arguments.served {
        program.serve(served)?;
    }
    program.enter(arguments.queue, &socket)?;
    let heartbeat = program.heartbeat(arguments.queue)?;
    eprintln!(
        "echo: {} queue {}, {mode:?}, {:?}",
        nic.name,
        arguments.queue,
        socket.mode()?
    );

    let mut batch = Batch::new();
    loop {
        socket.complete(&mut umem);
        let refilled = socket.refill(&mut umem);
        let taken = socket.receive(&mut umem, &mut batch);
        for received in batch.drain() {
            answer(&mut umem, &mut socket, received);
        }
        let flushed = socket.flush();
        if taken > 0 || refilled.was_empty {
            heartbeat.beat();
        }
        if taken == 0 {
            wait(&socket, flushed);
        }
    }
}

/// Until frames come, or shortly where some could not be sent.
fn wait(socket: &Socket, flushed: Flushed) {
    let timeout = if flushed == Flushed::Drained {
        PollTimeout::NONE
    } else {
        PollTimeout::from(1u8)
    };
    // An error is a signal: look again.
    let _ = poll(
        &mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)],
        timeout,
    );
}

fn answer(umem: &mut Umem, socket: &mut Socket, received: Received) {
    let Received {
        frame,
        start,
        length,
    } = received;
    let octets = &mut umem.chunk_mut(&frame)[start as usize..(start + length) as usize];
    // An answer is not answered: two echoes would never stop.
    let sent = if turn(octets) {
        socket.send(frame, start, length)
    } else {
        Err(frame)
    };
    if let Err(frame) = sent {
        umem.give(frame);
    }
}

/// Turns a query around: the program has checked that it is UDP over IPv4 without options, or over IPv6 without headers.
/// `false`: it is an answer.
fn turn(frame: &mut [u8]) -> bool {
    let (addresses, length) = if frame[12..14] == [0x86, 0xdd] {
        (22, 16)
    } else {
        (26, 4)
    };
    let udp = addresses + 2 * length;
    if frame[udp + 10] & 0x80 != 0 {
        return false;
    }
    swap(&mut frame[..12], 6);
    swap(&mut frame[addresses..udp], length);
    swap(&mut frame[udp..udp + 4], 2);
    set_qr(&mut frame[udp..]);
    true
}

/// Exchanges two neighbours of this length.
fn swap(octets: &mut [u8], length: usize) {
    let (one, other) = octets.split_at_mut(length);
    one.swap_with_slice(other);
}

/// RFC 1624: only the flags word has changed, by 0x8000. A sum of 0 is none (IPv4).
fn set_qr(udp: &mut [u8]) {
    udp[10] |= 0x80;
    let sum = u16::from_be_bytes([udp[6], udp[7]]);
    if sum != 0 {
        let changed = u32::from(!sum) + 0x8000;
        let folded = !((changed & 0xffff) + (changed >> 16)) as u16;
        udp[6..8].copy_from_slice(&if folded == 0 { 0xffff } else { folded }.to_be_bytes());
    }
}
