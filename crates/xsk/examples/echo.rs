//! The limit of user space, on our own crate: a bare AF_XDP echo, one thread, in place: swap, set QR, send.
//!
//! `echo -o OBJECT -i IF [-q QUEUE] [-l OCTETS]` answers DNS queries to port 53 with themselves until it is killed; OBJECT
//! is a compiled bench/yardsticks/steer.bpf.c. With `-l` the answers to queries over IPv4 are messages of so many octets, as a
//! server's would be: the query and one record more, whose data are what lies in the chunk.

mod bare;

use std::error::Error;
use std::os::fd::AsFd;
use std::process::exit;

use bare::Bare;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xsk::{Batch, Flushed, Received, Socket, Umem, UmemOptions};

#[derive(Default)]
struct Arguments {
    object: String,
    interface: String,
    queue: u32,
    /// Octets of each answer's message; 0: as many as the query has.
    length: usize,
}

/// Ethernet, IPv4 without options, UDP.
const HEADERS_LENGTH: usize = 14 + 20 + 8;

/// Octets of the record that fills an answer, before its data: the root's, of a private type (RFC 6895 §3.1).
const FILLER: [u8; 9] = [0, 0xff, 0, 0, 1, 0, 0, 0, 0];

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
            "-l" => found.length = value.parse().unwrap_or_else(|_| usage()),
            _ => usage(),
        }
    }
    if found.interface.is_empty() || found.object.is_empty() {
        usage();
    }
    found
}

fn usage() -> ! {
    eprintln!("usage: echo -o OBJECT -i INTERFACE [-q QUEUE] [-l OCTETS]");
    exit(2);
}

fn echo(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let nic = xsk::nic::Nic::by_name(&arguments.interface)?;
    let bare = Bare::attach(&arguments.object, nic.index)?;
    let mut umem = Umem::new(bare::FRAMES, UmemOptions::default())?;
    let mut socket = bare::bind(&mut umem, nic.index, arguments.queue)?;
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
            answer(&mut umem, &mut socket, received, arguments.length);
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

fn answer(umem: &mut Umem, socket: &mut Socket, received: Received, wanted: usize) {
    let Received {
        frame,
        start,
        length,
    } = received;
    let chunk = &mut umem.chunk_mut(&frame)[start as usize..];
    // An answer is not answered: two echoes would never stop.
    let sent = if turn(&mut chunk[..length as usize]) {
        let length = lengthen(chunk, length as usize, HEADERS_LENGTH + wanted);
        socket.send(frame, start, length as u32)
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

/// Makes a frame over IPv4 `wanted` octets long, if that is long enough for another record; how long it is then. It has no
/// UDP checksum any more, which over IPv4 it need not have (RFC 768), and knotd's have none either.
fn lengthen(chunk: &mut [u8], length: usize, wanted: usize) -> usize {
    let filler_end = length + FILLER.len() + 2;
    if chunk[12..14] != [8, 0] || wanted < filler_end || wanted > chunk.len() {
        return length;
    }
    chunk[length..length + FILLER.len()].copy_from_slice(&FILLER);
    put(chunk, filler_end - 2, wanted - filler_end);
    let additionals = HEADERS_LENGTH + 10;
    put(chunk, additionals, usize::from(chunk[additionals + 1]) + 1);
    let (total, sum) = (16, 24);
    let word = |chunk: &[u8], at| u32::from(u16::from_be_bytes([chunk[at], chunk[at + 1]]));
    // RFC 1624: HC' = ~(~HC + ~m + m').
    let old = (!word(chunk, sum) & 0xffff) + (!word(chunk, total) & 0xffff);
    put(chunk, total, wanted - 14);
    let new = old + word(chunk, total);
    let folded = (new & 0xffff) + (new >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    put(chunk, sum, !folded as usize & 0xffff);
    put(chunk, 38, wanted - 34);
    put(chunk, 40, 0);
    wanted
}

fn put(octets: &mut [u8], at: usize, value: usize) {
    octets[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
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
