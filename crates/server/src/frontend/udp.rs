//! The socket door: datagrams in and out by batches, queries from clients and responses from backends.

use super::listeners::Sockets;
use super::outlets::Outlets;
use super::sys::Inbox;
use crate::backend::exchange::Waiting;
use crate::backend::ports::BoundPort;
use crate::pipeline::drop::DropReason;
use crate::pipeline::proxy::InFront;
use crate::pipeline::query::{Arrival, NO_LISTENER, Protocol, Way};
use crate::pipeline::{self, Env, respond};
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Room for a query and its answer, in bytes: the largest answer over UDP here.
pub const QUERY_ROOM: usize = 4_096;

/// Room for a response from a backend, in bytes: all that UDP can carry.
pub const RESPONSE_ROOM: usize = 65_535;

/// Serves one batch of queries to one of the sockets of a listener; how many datagrams there were.
pub fn queries(
    sockets: &Sockets,
    socket: usize,
    inbox: &mut Inbox,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) -> usize {
    // An error (a pending ICMP error, ENETDOWN) concerns one datagram; the next turn goes on.
    let count = inbox.receive(sockets.udp[socket].as_fd()).unwrap_or(0);
    let listener = env.config.listener_of(&sockets.address);
    for index in 0..count {
        let Some(datagram) = inbox.datagram(index) else {
            env.shard.count_drop(DropReason::TooLong);
            continue;
        };
        let destination = datagram.local.unwrap_or(sockets.address.ip());
        let destination = SocketAddr::new(destination, sockets.address.port());
        let way = Way::Socket {
            listener: sockets.number,
        };
        let mut outgrown = Vec::new();
        let mut arrival = Arrival {
            room: datagram.buffer.len(),
            message: datagram.buffer,
            length: datagram.length,
            client: &datagram.peer,
            destination: &destination,
            protocol: Protocol::Udp,
            way: &way,
            listener: listener.unwrap_or(NO_LISTENER),
            outgrown: &mut outgrown,
            in_front: InFront::FromProxies,
        };
        let verdict = pipeline::run(&mut arrival, env);
        outlets.settle(verdict, &arrival, env);
    }
    count
}

/// Takes one batch of responses from a backend port's socket; how many datagrams there were.
pub fn responses(
    port: &BoundPort,
    inbox: &mut Inbox,
    waiting: &mut Waiting,
    outlets: &mut Outlets,
    env: &mut Env<'_>,
) -> usize {
    let count = inbox.receive(port.as_fd()).unwrap_or(0);
    for index in 0..count {
        let Some(datagram) = inbox.datagram(index) else {
            env.shard.count_drop(DropReason::TooLong);
            continue;
        };
        let (message, length) = (datagram.buffer, datagram.length);
        match respond::accept(port.local(), datagram.peer, message, length, waiting, env) {
            Ok(length) => {
                outlets.count_socket_response(waiting, env);
                outlets.answer_waiting(waiting, waiting.answer(message, length), env);
            }
            Err(reason) => {
                if reason.has_come() {
                    outlets.count_socket_response(waiting, env);
                }
                outlets.refuse(reason, waiting, env);
            }
        }
    }
    count
}
