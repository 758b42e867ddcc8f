//! The AF_XDP door: a frame becomes a query and leaves as its answer, in the chunk in which it came.
//!
//! ```text
//!  chunk, 2,048 bytes
//!  0        256 = start        +42 or +62                                        2048
//!  | headroom | Ethernet IP UDP | DNS message ──────────▶ the answer grows here  |
//!             ◀── new headers are written backwards from the message: an IPv4 query may leave over IPv6
//! ```

use super::devices::Unsent;
use super::outlets::Outlets;
use super::tap::Before;
use super::udp;
use crate::backend::exchange::{QUERY_ROOM, Waiting};
use crate::backend::server::Server;
use crate::backend::{Forwarded, Forwarder};
use crate::config::Config;
use crate::instance::Instance;
use crate::network::addresses::ImpossibleSources;
use crate::pipeline::drop::DropReason;
use crate::pipeline::proxy::InFront;
use crate::pipeline::query::{Arrival, Protocol, Way};
use crate::pipeline::{self, Env, HandOver, Paused, Verdict, respond};

use arc_swap::{ArcSwap, Cache};
use arrayvec::ArrayVec;
use std::ops::Range;
use std::sync::Arc;
use wire::frame::Headers;
use wire::frame::{FrameError, Packet, UdpChecksum};
use wire::message::Header;
use xsk::{Batch, CHUNK, Frame, Received};

/// Queries that are looked ahead to: what they need of memory is asked for before the first of them goes on.
const AHEAD: usize = 16;

/// What a worker takes frames in with, for all of its queues.
pub struct Intake {
    batch: Batch,
    ahead: Ahead,
    /// What frames cannot truly come from.
    impossible: Cache<Arc<ArcSwap<ImpossibleSources>>, Arc<ImpossibleSources>>,
}

impl Intake {
    pub fn new(instance: &Instance) -> Intake {
        Intake {
            batch: Batch::default(),
            ahead: Ahead::default(),
            impossible: Cache::new(Arc::clone(&instance.impossible_sources)),
        }
    }
}

/// Queries of a batch that have paused: their frames, and beside each where it came in and what is known of it. These are
/// written where they stay, for to move them takes as long as to make them. Beside the last frame there is always room for
/// the query that is looked at.
#[derive(Default)]
struct Ahead {
    parked: ArrayVec<Frame, AHEAD>,
    places: Box<[Place; AHEAD]>,
    paused: Box<[Paused; AHEAD]>,
    /// Where a message goes on that has no room in its frame; empty again when its verdict is carried out.
    outgrown: Vec<u8>,
}

/// Where a query came in, and where its message starts in its frame.
struct Place {
    device: u8,
    listener: u16,
    start: usize,
    packet: Packet,
    /// The stages borrow it: a copy would be of what was just written field by field.
    way: Way,
}

impl Default for Place {
    fn default() -> Place {
        Place {
            device: 0,
            listener: 0,
            start: 0,
            packet: Packet::default(),
            way: Way::Stream,
        }
    }
}

/// Serves one batch of frames of `device`, but for those that have paused ([`go_on`]); how many there were.
pub fn serve(
    device: u8,
    intake: &mut Intake,
    waiting: &mut Waiting,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) -> usize {
    let count = outlets.devices.receive(device, &mut intake.batch);
    if count == 0 {
        return 0;
    }
    if outlets.devices.is_tapped() {
        let queue = outlets.devices.queue(device);
        let queue = queue.map_or(0, |queue| queue.socket.queue());
        return tapped((device, queue), intake, waiting, outlets, env);
    }
    serve_batch(device, intake, waiting, outlets, env);
    count
}

/// The same for the queue at a place among those that this worker has beside its own.
#[cold]
#[inline(never)]
pub fn serve_further(
    place: usize,
    intake: &mut Intake,
    waiting: &mut Waiting,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) -> usize {
    let received = outlets.devices.receive_further(place, &mut intake.batch);
    let Some((device, queue, count @ 1..)) = received else {
        return 0;
    };
    if outlets.devices.is_tapped() {
        return tapped((device, queue), intake, waiting, outlets, env);
    }
    serve_batch(device, intake, waiting, outlets, env);
    count
}

fn serve_batch(
    device: u8,
    intake: &mut Intake,
    waiting: &mut Waiting,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) {
    let Intake {
        batch,
        ahead,
        impossible,
    } = intake;
    let impossible = impossible.load();
    for received in batch.drain() {
        one(device, received, impossible, ahead, waiting, outlets, env);
        if ahead.parked.is_full() {
            ahead.go_on(outlets, env);
        }
    }
}

/// Takes on the queries that have paused.
#[inline]
pub fn go_on(intake: &mut Intake, outlets: &mut Outlets, env: &mut Env<'_>) {
    if !intake.ahead.parked.is_empty() {
        intake.ahead.go_on(outlets, env);
    }
}

impl Ahead {
    fn go_on(&mut self, outlets: &mut Outlets, env: &mut Env<'_>) {
        while self.foresee(outlets, env.config) {}
        let Ahead {
            parked,
            places,
            paused,
            outgrown,
        } = self;
        let known = places.iter().zip(paused.iter_mut());
        for (frame, (place, paused)) in parked.drain(..).zip(known) {
            let mut arrival = place.arrival(&frame, outlets, outgrown);
            let verdict = pipeline::go_on(&mut arrival, paused, env);
            settle(verdict, place, frame, outgrown, outlets, env);
        }
    }

    /// Asks memory for what comes next for each query; whether there will be more to ask for.
    #[inline]
    fn foresee(&mut self, outlets: &mut Outlets, config: &Config) -> bool {
        let mut more = false;
        let is_alone = self.parked.len() == 1;
        let known = self.places.iter().zip(self.paused.iter_mut());
        for (frame, (place, paused)) in self.parked.iter().zip(known) {
            let umem = outlets.devices.umem();
            let message = || &umem.chunk(frame)[place.start..];
            more |= paused.foresee(message, is_alone, config);
        }
        more
    }
}

/// Serves a batch as [`serve`] does, and copies what somebody wants to see.
#[cold]
#[inline(never)]
fn tapped(
    (device, queue): (u8, u32),
    intake: &mut Intake,
    waiting: &mut Waiting,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) -> usize {
    let Intake {
        batch,
        ahead,
        impossible,
    } = intake;
    let impossible = impossible.load();
    let mut count = 0;
    for received in batch.drain() {
        count += 1;
        let (start, length) = (received.start as usize, received.length as usize);
        let chunk = outlets.devices.umem().chunk(&received.frame);
        // On the stack: serving it needs no memory, and showing it must not either.
        let mut copy = [0; CHUNK];
        let copy = &mut copy[..length];
        copy.copy_from_slice(&chunk[start..start + length]);
        let before = Before::of(env.shard);
        one(device, received, impossible, ahead, waiting, outlets, env);
        ahead.go_on(outlets, env);
        let mark = before.mark(env.shard);
        outlets
            .devices
            .show_received((device, queue), copy, mark, env.now);
    }
    count
}

/// Serves one frame, or parks it where what it holds is a query that pauses.
#[inline]
fn one(
    device: u8,
    received: Received,
    impossible: &ImpossibleSources,
    ahead: &mut Ahead,
    waiting: &mut Waiting,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) {
    let Received {
        frame,
        start,
        length,
    } = received;
    let place = &mut ahead.places[ahead.parked.len()];
    let packet = &mut place.packet;
    if !parse(device, &frame, start, length, packet, outlets, env) {
        return outlets.devices.umem().give(frame);
    }
    if impossible.has(packet.source.ip()) {
        env.shard.count_drop(DropReason::FrameSource);
        return outlets.devices.umem().give(frame);
    }
    let start = start as usize + usize::from(packet.payload_start);
    // What is for no listener is for a backend port: the program takes nothing else.
    let Some(listener) = env.config.listener_of(&packet.destination) else {
        return response(frame, start, packet, waiting, outlets, env);
    };
    (place.device, place.listener, place.start) = (device, listener, start);
    place.way = Way::Xsk {
        device,
        client_mac: place.packet.source_mac,
        our_mac: place.packet.destination_mac,
    };
    query(frame, ahead, outlets, env);
}

/// Whether it is a good frame, which is then `packet`.
#[inline]
fn parse(
    device: u8,
    frame: &Frame,
    start: u32,
    length: u32,
    packet: &mut Packet,
    outlets: &mut Outlets,
    env: &Env<'_>,
) -> bool {
    let accept_partial = outlets
        .devices
        .queue(device)
        .is_some_and(|queue| queue.accept_partial);
    let bytes = &outlets.devices.umem().chunk(frame)[start as usize..(start + length) as usize];
    if let Err(error) = packet.read(bytes, accept_partial) {
        env.shard.count_drop(reason(error));
        return false;
    }
    if packet.checksum == UdpChecksum::Partial
        && let Some(queue) = outlets.devices.queue(device)
    {
        queue.socket.tally().partial_checksums.add(1);
    }
    true
}

fn reason(error: FrameError) -> DropReason {
    match error {
        FrameError::IpChecksum | FrameError::UdpChecksum | FrameError::UdpChecksumAbsent => {
            DropReason::FrameChecksum
        }
        FrameError::MartianSource | FrameError::SourcePortZero | FrameError::GroupSourceMac => {
            DropReason::FrameSource
        }
        _ => DropReason::FrameMalformed,
    }
}

impl Place {
    /// The message in `frame` as the stages take it.
    #[inline]
    fn arrival<'m>(
        &'m self,
        frame: &'m Frame,
        outlets: &'m mut Outlets,
        outgrown: &'m mut Vec<u8>,
    ) -> Arrival<'m> {
        let message = &mut outlets.devices.umem().chunk_mut(frame)[self.start..];
        self.arrival_in(message, outgrown)
    }

    #[inline]
    fn arrival_in<'m>(&'m self, message: &'m mut [u8], outgrown: &'m mut Vec<u8>) -> Arrival<'m> {
        let packet = &self.packet;
        Arrival {
            message,
            length: usize::from(packet.payload_length),
            client: &packet.source,
            destination: &packet.destination,
            protocol: Protocol::Udp,
            way: &self.way,
            listener: self.listener,
            // What the frame cannot carry, the kernel's socket can: both doors give the same answers.
            room: udp::QUERY_ROOM,
            outgrown,
            in_front: InFront::FromProxies,
        }
    }
}

/// Serves the query in `frame`, whose place is the next one.
#[inline]
fn query(frame: Frame, ahead: &mut Ahead, outlets: &mut Outlets, env: &mut Env<'_>) {
    // There is room: whoever fills the last place goes on with them all.
    let next = ahead.parked.len();
    let (place, paused) = (&ahead.places[next], &mut ahead.paused[next]);
    let outgrown = &mut ahead.outgrown;
    let mut arrival = place.arrival(&frame, outlets, outgrown);
    match pipeline::begin(&mut arrival, paused, env) {
        Some(verdict) => settle(verdict, place, frame, outgrown, outlets, env),
        None => ahead.parked.push(frame),
    }
}

/// Carries out a verdict on the query in `frame`, or in `outgrown` where it has outgrown that. Small, for it is there twice,
/// and most verdicts are an answer.
#[inline(always)]
fn settle(
    verdict: Verdict<'_>,
    place: &Place,
    frame: Frame,
    outgrown: &mut Vec<u8>,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) {
    if !outgrown.is_empty() {
        let outgrown = std::mem::take(outgrown);
        return settle_outgrown(verdict, place, frame, outgrown, outlets, env);
    }
    match verdict {
        Verdict::Answer(length) => {
            let headers = place.packet.reply_headers();
            let message = place.start..place.start + length;
            answer(frame, message, place.device, &headers, outlets, env);
        }
        Verdict::Forward(server) => forward(frame, place.start, server, outlets, env),
        Verdict::HandOver(hand_over) => hand_over_from(frame, &hand_over, place, outlets, env),
        Verdict::Drop(_) => outlets.devices.umem().give(frame),
    }
}

/// The same away from the frame, which is free then.
#[cold]
fn settle_outgrown(
    verdict: Verdict<'_>,
    place: &Place,
    frame: Frame,
    mut outgrown: Vec<u8>,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) {
    let mut nothing = Vec::new();
    let arrival = place.arrival_in(&mut outgrown, &mut nothing);
    outlets.settle(verdict, &arrival, env);
    outlets.devices.umem().give(frame);
}

/// Gives the query in `frame` to the asynchronous runtime.
#[cold]
fn hand_over_from(
    frame: Frame,
    hand_over: &HandOver<'_>,
    place: &Place,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) {
    let Outlets {
        devices, instance, ..
    } = &mut *outlets;
    let mut outgrown = Vec::new();
    let message = &mut devices.umem().chunk_mut(&frame)[place.start..];
    let arrival = place.arrival_in(message, &mut outgrown);
    if let Err(reason) = instance.hand_over.push(hand_over, &arrival, env.config) {
        env.shard.count_drop(reason);
    }
    devices.umem().give(frame);
}

/// Sends copies of the query in `frame` to the other servers of its race.
#[inline]
fn send_legs(frame: &Frame, message: Range<usize>, outlets: &mut Outlets, env: &mut Env<'_>) {
    let has_legs = |forwarder: &Forwarder<'_>| !forwarder.share.legs.is_empty();
    if env.forwarder.as_ref().is_some_and(has_legs) {
        let mut copy = [0; QUERY_ROOM];
        let message = &outlets.devices.umem().chunk(frame)[message];
        let Some(copy) = copy.get_mut(..message.len()) else {
            return;
        };
        copy.copy_from_slice(message);
        outlets.send_legs(copy, env);
    }
}

/// Ethernet, IPv6 and UDP, in bytes: what is written in front of a message.
const HEADERS_MAX: usize = 14 + 40 + 8;

/// Sends the query in `frame` to its backend, behind what the server is to be told of it: in place where a ring of ours leads
/// there, else by the port's kernel socket.
fn forward(
    mut frame: Frame,
    start: usize,
    server: &Server,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) {
    let Some(Forwarded { length, port }) = env.forwarded() else {
        return outlets.devices.umem().give(frame);
    };
    let message = start..start + length;
    // Before the frame leaves, and its bytes with it.
    send_legs(&frame, message.clone(), outlets, env);
    let Some(forwarder) = &env.forwarder else {
        return outlets.devices.umem().give(frame);
    };
    let address = server.options.address;
    let header = forwarder.proxy_header(server);
    let length = header.len() + length;
    if let Some((device, next_hop)) = server.xsk.get()
        && let Some(queue) = outlets.devices.queue(device)
        && header.len() + HEADERS_MAX <= start
    {
        let own_mac = queue.mac;
        let headers = Headers {
            source_mac: &own_mac,
            destination_mac: &next_hop,
            source: &port.end(),
            destination: &address,
            code_point: server.options.source.dscp.into(),
        };
        let chunk = outlets.devices.umem().chunk_mut(&frame);
        let id = Header::read(&chunk[start..]).map(|header| header.id());
        let start = start - header.len();
        if !header.is_empty() {
            chunk[start..start + header.len()].copy_from_slice(header);
        }
        let devices = &mut outlets.devices;
        match devices.send(device, frame, start, length, &headers) {
            Ok(()) => return server.trust.count_sent(env.shard.lane),
            Err(Unsent::RingFull) => {
                env.shard.count_drop(DropReason::RingFull);
                if let Some(id) = id {
                    // Not a time-out of the server's: nothing was sent.
                    forwarder.exchanges.cancel(port, id, env.now, env.shard);
                }
                return;
            }
            Err(Unsent::NoWay(back)) => frame = back,
        }
    }
    let Outlets {
        devices, outbox, ..
    } = outlets;
    let message = &devices.umem().chunk(&frame)[message];
    if let Some(socket) = forwarder.departures.socket(port) {
        outbox.push_query(socket, address, port, (header, message));
    }
    devices.umem().give(frame);
}

/// A datagram to one of our backend ports: the answer to a query that waits becomes the client's, in its own frame.
fn response(
    frame: Frame,
    start: usize,
    packet: &Packet,
    waiting: &mut Waiting,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) {
    let message = &mut outlets.devices.umem().chunk_mut(&frame)[start..];
    let length = usize::from(packet.payload_length);
    let (local, remote) = (packet.destination, packet.source);
    match respond::accept(local, remote, message, length, waiting, env) {
        Ok(length) if !waiting.outgrown.is_empty() => {
            outlets.count_xsk_response(waiting, env);
            outlets.devices.umem().give(frame);
            outlets.answer_waiting(waiting, &waiting.outgrown[..length], env);
        }
        Ok(length) => {
            outlets.count_xsk_response(waiting, env);
            let message = start..start + length;
            if !waiting.delay().is_zero() {
                return outlets.answer_late_from(frame, message, waiting, env);
            }
            match waiting.way {
                Way::Xsk {
                    device,
                    client_mac,
                    our_mac,
                } => {
                    let headers = Headers {
                        source_mac: &our_mac,
                        destination_mac: &client_mac,
                        source: &waiting.destination,
                        destination: &waiting.client,
                        code_point: 0,
                    };
                    answer(frame, message, device, &headers, outlets, env);
                }
                Way::Socket { .. } | Way::Stream => {
                    outlets.answer_from(frame, message, (waiting.destination, waiting.client));
                }
            }
        }
        Err(reason) => {
            if reason.has_come() {
                outlets.count_xsk_response(waiting, env);
            } else if reason.is_of_its_server() {
                outlets.count_stray_xsk_response(remote, env);
            }
            outlets.devices.umem().give(frame);
            outlets.refuse(reason, waiting, env);
        }
    }
}

/// Sends the answer that lies in `frame` to its client: by the ring of `device` where this worker has one and the packet
/// fits, else by the listener's kernel socket.
fn answer(
    frame: Frame,
    message: Range<usize>,
    device: u8,
    headers: &Headers<'_>,
    outlets: &mut Outlets,
    env: &Env<'_>,
) {
    let (start, length) = (message.start, message.len());
    match outlets.devices.send(device, frame, start, length, headers) {
        Ok(()) => {}
        Err(Unsent::RingFull) => env.shard.count_drop(DropReason::RingFull),
        Err(Unsent::NoWay(frame)) => {
            outlets.answer_from(frame, message, (*headers.source, *headers.destination));
        }
    }
}
