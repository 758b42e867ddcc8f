//! The limit of user space, on our own crate: a bare AF_XDP echo, one thread, in place: swap, set QR, send.
//!
//! `echo -o OBJECT -i IF [-q QUEUE]` answers DNS queries to port 53 with themselves until it is killed; OBJECT is a compiled
//! bench/yardsticks/steer.bpf.c.

mod bare;

use std::error::Error;
use std::os::fd::AsFd;
use std::process::exit;

use bare::Bare;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xsk::{Batch, Flushed, Options, Received, RingSizes, Socket, Umem, UmemOptions};

#[derive(Default)]
struct Arguments {
    object: String,
    interface: String,
    queue: u32,
}

fn main() {
    if let Err(error) = echo(&arguments()) {
        eprintln!("echo: {error}");
        exit(1);
    }
}

fn arguments() -> Arguments {
    let mut found = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| usage());
        match word.as_str() {
            "-o" => found.object = value,
            "-i" => found.interface = value,
            "-q" => found.queue = value.parse().unwrap_or_else(|_| usage()),
            _ => usage(),
        }
    }
    if found.interface.is_empty() || found.object.is_empty() {
        usage();
    }
    found
}

fn usage() -> ! {
    eprintln!("usage: echo -o OBJECT -i INTERFACE [-q QUEUE]");
    exit(2);
}

fn echo(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let nic = xsk::nic::Nic::by_name(&arguments.interface)?;
    let bare = Bare::attach(&arguments.object, nic.index)?;
    let mut umem = Umem::new(RingSizes::default().frames(), UmemOptions::default())?;
    let mut socket = Socket::bind(&mut umem, nic.index, arguments.queue, Options::default())?;
    bare.enter(arguments.queue, &socket)?;
    eprintln!(
        "echo: {} queue {}, {:?}",
        nic.name,
        arguments.queue,
        socket.mode()?
    );

    let mut batch = Batch::new();
    loop {
        socket.complete(&mut umem);
        socket.refill(&mut umem);
        let taken = socket.receive(&mut umem, &mut batch);
        for received in batch.drain() {
            answer(&mut umem, &mut socket, received);
        }
        let flushed = socket.flush();
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
