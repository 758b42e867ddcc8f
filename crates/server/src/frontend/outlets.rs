//! The ways out of a worker: kernel sockets by the batch, rings in place, the asynchronous runtime.

use super::devices::Devices;
use super::listeners::outlet;
use super::sys::Outbox;
use crate::backend::Forwarder;
use crate::backend::exchange::{Leg, Port, QUERY_ROOM, Waiting};
use crate::backend::server::Server;
use crate::clock::Now;
use crate::counters::Shard;
use crate::instance::Instance;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::{Arrival, Way};
use crate::pipeline::restart::{self, Again};
use crate::pipeline::suspended::{self, Suspended};
use crate::pipeline::{Env, HandOver, Verdict, respond};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use wire::frame::Headers;
use xsk::Frame;

/// What one worker sends with.
pub struct Outlets {
    pub worker: usize,
    pub instance: Arc<Instance>,
    pub outbox: Outbox,
    /// The rings of this worker; without AF_XDP there are none.
    pub devices: Devices,
}

impl Outlets {
    /// Takes the verdict on a query that came by a kernel socket (or was copied out of its frame).
    pub fn settle(&mut self, verdict: Verdict<'_>, arrival: &Arrival<'_>, env: &mut Env<'_>) {
        match verdict {
            Verdict::Answer(length) => {
                self.answer(
                    *arrival.way,
                    *arrival.destination,
                    *arrival.client,
                    arrival.bytes(length),
                );
            }
            Verdict::Forward(server) => {
                if let Some(forwarded) = env.forwarded() {
                    let message = arrival.bytes(forwarded.length);
                    self.send_legs(message, env);
                    self.forward(server, forwarded.port, message, env);
                }
            }
            Verdict::HandOver(hand_over) => self.hand_over(&hand_over, arrival, env),
            Verdict::Drop(_) => {}
        }
    }

    /// Sends `message` to a client the way its query came, or by the listener's kernel socket when no ring here leads
    /// that way. `destination` is the address the query was sent to: the source of the answer.
    pub fn answer(
        &mut self,
        way: Way,
        destination: SocketAddr,
        client: SocketAddr,
        message: &[u8],
    ) {
        if let Way::Xsk {
            device,
            client_mac,
            our_mac,
        } = way
        {
            let headers = Headers {
                source_mac: &our_mac,
                destination_mac: &client_mac,
                source: &destination,
                destination: &client,
                code_point: 0,
            };
            if self.devices.send_copy(device, &headers, (&[], message)) {
                return;
            }
        }
        let (instance, worker) = (&self.instance, self.worker);
        by_socket(
            (destination, client),
            message,
            (instance, worker),
            &mut self.outbox,
        );
    }

    /// The same by the listener's kernel socket, of an answer that lies in a frame.
    pub fn answer_from(
        &mut self,
        frame: Frame,
        message: Range<usize>,
        ends: (SocketAddr, SocketAddr),
    ) {
        let Outlets {
            devices,
            outbox,
            instance,
            worker,
        } = self;
        let message = &devices.umem().chunk(&frame)[message];
        by_socket(ends, message, (instance, *worker), outbox);
        devices.umem().give(frame);
    }

    /// The answer to a query whose response came: see [`Outlets::answer`].
    pub fn answer_waiting(&mut self, waiting: &Waiting, message: &[u8], env: &Env<'_>) {
        if waiting.delay().is_zero() {
            self.answer(waiting.way, waiting.destination, waiting.client, message);
        } else {
            Self::answer_late(&self.instance, waiting, message, env);
        }
    }

    /// Gives an answer that is to wait to the asynchronous runtime.
    #[cold]
    fn answer_late(instance: &Instance, waiting: &Waiting, message: &[u8], env: &Env<'_>) {
        let ends = (waiting.destination, waiting.client);
        let queue = &instance.hand_over;
        if let Err(reason) = queue.push_answer(ends, message, waiting.delay(), env.shard) {
            env.shard.count_drop(reason);
        }
    }

    /// As [`Outlets::answer_waiting`], for an answer that lies in a frame.
    #[cold]
    pub fn answer_late_from(
        &mut self,
        frame: Frame,
        message: Range<usize>,
        waiting: &Waiting,
        env: &Env<'_>,
    ) {
        let Outlets {
            devices, instance, ..
        } = self;
        let message = &devices.umem().chunk(&frame)[message];
        Self::answer_late(instance, waiting, message, env);
        devices.umem().give(frame);
    }

    /// Gives a client the error that a server of its race has sent, and no other server had anything better.
    pub fn answer_with_error(&mut self, waiting: &mut Waiting, env: &mut Env<'_>) {
        if waiting.held_rcode == 0 {
            return;
        }
        let mut message = [0; QUERY_ROOM];
        match respond::held_error(waiting, &mut message, env) {
            Ok(length) => self.answer_waiting(waiting, waiting.answer(&message, length), env),
            Err(reason) => self.refuse(reason, waiting, env),
        }
    }

    /// What becomes of a query whose response was not taken, for `reason`.
    #[inline]
    pub fn refuse(&mut self, reason: DropReason, waiting: &mut Waiting, env: &mut Env<'_>) {
        env.shard.count_drop(reason);
        if reason == DropReason::ResponseRestarted
            && let Some(again) = restart::again(waiting)
        {
            self.ask_again(again, env);
        }
        if reason == DropReason::ResponseSuspended {
            self.await_outcome(waiting, env);
        }
    }

    /// Has the runtime wait for what becomes of a response that a function has suspended.
    #[cold]
    fn await_outcome(&self, waiting: &mut Waiting, env: &Env<'_>) {
        if let Some(ticket) = suspended::ticket(&waiting.extras.take())
            && let Err(reason) = self.instance.hand_over.push_suspended(ticket)
        {
            env.shard.count_drop(reason);
        }
    }

    /// Takes on what was suspended.
    pub fn go_on(&mut self, suspended: Suspended, env: &mut Env<'_>) {
        let Some(mut resumed) = suspended.resume() else {
            return env.shard.count_drop(DropReason::OutOfMemory);
        };
        let verdict = suspended::go_on(&mut resumed, env);
        let arrival = resumed.query.as_arrival();
        if matches!(verdict, Verdict::Answer(_)) {
            respond::count_sent(*arrival.destination, env);
        }
        self.settle(verdict, &arrival, env);
    }

    /// A query that no server answered in time.
    #[cold]
    pub fn time_out(&mut self, waiting: &mut Waiting, env: &mut Env<'_>) {
        if waiting.held_rcode != 0 {
            self.answer_with_error(waiting, env);
        } else if let Some(again) = restart::timed_out(waiting, env) {
            self.ask_again(again, env);
        }
    }

    #[cold]
    fn ask_again(&mut self, mut again: Again, env: &mut Env<'_>) {
        let verdict = restart::run(&mut again, env);
        let arrival = again.query.as_arrival();
        if matches!(verdict, Verdict::Answer(_)) {
            respond::count_sent(*arrival.destination, env);
        }
        self.settle(verdict, &arrival, env);
    }

    /// Sends a query to its backend by the backend port's kernel socket.
    fn forward(&mut self, server: &Server, port: Port, message: &[u8], env: &Env<'_>) {
        let address = server.options.address;
        if let Some(forwarder) = &env.forwarder
            && let Some(socket) = forwarder.departures.socket(port)
        {
            let header = forwarder.proxy_header(server);
            self.outbox
                .push_query(socket, address, port, (header, message));
        }
    }

    /// Sends the further legs of the query that was just forwarded, of which `message` is a copy.
    #[inline]
    pub fn send_legs(&mut self, message: &[u8], env: &mut Env<'_>) {
        if let Some(forwarder) = &mut env.forwarder
            && !forwarder.share.legs.is_empty()
        {
            self.send_all_legs(message, env.shard, forwarder);
        }
    }

    #[cold]
    fn send_all_legs(&mut self, message: &[u8], shard: &Shard, forwarder: &mut Forwarder<'_>) {
        let mut copy = [0; QUERY_ROOM];
        let Some(copy) = copy.get_mut(..message.len()) else {
            return;
        };
        copy.copy_from_slice(message);
        while let Some(leg) = forwarder.share.legs.pop() {
            copy[..2].copy_from_slice(&leg.id.to_be_bytes());
            forwarder.exchanges.servers().with(leg.server, |server| {
                self.send_leg(&leg, server, copy, shard, forwarder);
            });
        }
    }

    /// By the ring that leads to the server, in a frame of this worker's, or by the port's kernel socket.
    fn send_leg(
        &mut self,
        leg: &Leg,
        server: &Server,
        message: &[u8],
        shard: &Shard,
        forwarder: &Forwarder<'_>,
    ) {
        let address = server.options.address;
        let header = forwarder.proxy_header(server);
        if let Some((device, next_hop)) = server.xsk.get()
            && let Some(queue) = self.devices.queue(device)
        {
            let own_mac = queue.mac;
            let headers = Headers {
                source_mac: &own_mac,
                destination_mac: &next_hop,
                source: &leg.port.end(),
                destination: &address,
                code_point: server.options.source.dscp.into(),
            };
            if self.devices.send_copy(device, &headers, (header, message)) {
                server.trust.count_sent(shard.lane);
                return;
            }
        }
        if let Some(socket) = forwarder.departures.socket(leg.port) {
            self.outbox
                .push_query(socket, address, leg.port, (header, message));
        }
    }

    /// Gives the query to the asynchronous runtime.
    pub fn hand_over(&mut self, hand_over: &HandOver<'_>, arrival: &Arrival<'_>, env: &Env<'_>) {
        let queue = &self.instance.hand_over;
        if let Err(reason) = queue.push(hand_over, arrival, env.config) {
            env.shard.count_drop(reason);
        }
    }

    /// A response came by a kernel socket. Its query has left over AF_XDP where it came so, and that way is trusted as well: what is longer
    /// than a frame comes in fragments, and the program that has dnsdist's maps knows no ports of ours.
    pub fn count_socket_response(&self, waiting: &Waiting, env: &Env<'_>) {
        if !matches!(waiting.way, Way::Xsk { .. }) {
            return;
        }
        let servers = self.instance.exchanges.servers();
        servers.with(waiting.server, |server| {
            if server.xsk.get().is_some() {
                server.trust.count_received(env.shard.lane);
            }
        });
    }

    /// A response came over AF_XDP: that way to its server is trusted.
    pub fn count_xsk_response(&self, waiting: &Waiting, env: &Env<'_>) {
        let servers = self.instance.exchanges.servers();
        servers.with(waiting.server, |server| {
            server.trust.count_received(env.shard.lane)
        });
    }

    /// A response came over AF_XDP that ends no query, late or malformed: that way is trusted, if not what its server says.
    pub fn count_stray_xsk_response(&self, remote: SocketAddr, env: &Env<'_>) {
        let servers = self.instance.exchanges.servers();
        servers.each_at(remote, |server| server.trust.count_received(env.shard.lane));
    }

    /// Sends what was gathered for kernel sockets; what does not leave is waited for no longer.
    pub fn flush_sockets(&mut self, now: Now, shard: &Shard) {
        self.outbox.flush();
        while let Some((port, id)) = self.outbox.take_unsent() {
            shard.count_drop(DropReason::SendFailed);
            self.instance.exchanges.cancel(port, id, now, shard);
        }
    }

    /// Sends what was gathered in this turn; whether frames wait because the kernel takes no more now.
    pub fn flush(&mut self, shard: &Shard) -> bool {
        self.outbox.flush();
        let lost = self.outbox.take_lost();
        for _ in 0..lost {
            shard.count_drop(DropReason::SendFailed);
        }
        self.devices.flush()
    }
}

/// Sends an answer by the kernel socket of the listener that its query was sent to.
fn by_socket(
    (destination, client): (SocketAddr, SocketAddr),
    message: &[u8],
    (instance, worker): (&Instance, usize),
    outbox: &mut Outbox,
) {
    let sent = instance.listeners.answer_by(destination, |sockets| {
        let socket = outlet(sockets, worker);
        outbox.push(socket, client, sockets.source(destination), message);
    });
    if sent.is_none() {
        instance.shards[worker].count_drop(DropReason::SendFailed);
    }
}
