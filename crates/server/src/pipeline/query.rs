//! A query as the stages see it, and where it came from.

use super::drop::DropReason;
use super::{Env, Verdict};
use crate::config::pools::PoolId;
use std::net::SocketAddr;
use wire::frame::Mac;
use wire::message::QueryParts;

/// How a query reached us. dnsdist's words are those of `IncomingProtocolRule`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Udp,
    Tcp,
}

/// The way an answer goes back to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the ring of this device, to this Ethernet address. `device` is an index into the table of devices
    /// (network::devices), the same in every worker.
    Xsk {
        device: u8,
        client_mac: Mac,
        our_mac: Mac,
    },
    /// By the kernel socket of the listener with this number.
    Socket { listener: u16 },
    /// By the stream that the asynchronous runtime holds.
    Stream,
}

/// A message that a frontend received, before anybody looked at it.
pub struct Arrival<'m> {
    /// The room for the message and for its answer: the query at the front, `length` bytes of it.
    pub message: &'m mut [u8],
    pub length: usize,
    pub client: SocketAddr,
    /// The address and port that the client sent to: the source of the answer.
    pub destination: SocketAddr,
    pub protocol: Protocol,
    pub way: Way,
    /// The longest answer that this door can carry, in bytes (frame, MTU or 65,535): never more than `message.len()`.
    pub room: usize,
}

/// A query that was parsed: rules, cache and route work on it.
pub struct Query<'m> {
    pub message: &'m mut [u8],
    pub length: usize,
    pub parts: QueryParts,
    pub client: SocketAddr,
    pub destination: SocketAddr,
    pub protocol: Protocol,
    pub way: Way,
    /// The longest answer that fits both this door and what the client said it takes (RFC 6891, section 6.2.3), in bytes.
    pub limit: usize,
    /// The pool that will be asked; "" until an action says otherwise.
    pub pool: PoolId,
    pub skip_cache: bool,
}

impl<'m> Query<'m> {
    /// The "parse" stage: a well-formed query, or the verdict on what is none.
    pub fn parse<'c>(
        arrival: &'m mut Arrival<'_>,
        env: &Env<'_>,
    ) -> Result<Query<'m>, Verdict<'c>> {
        let _ = env;
        let parts = match wire::message::parse_query(&arrival.message[..arrival.length]) {
            Ok(parts) => parts,
            Err(_) => return Err(Verdict::Drop(DropReason::TooShort)),
        };
        Ok(Query {
            length: arrival.length,
            parts,
            client: arrival.client,
            destination: arrival.destination,
            protocol: arrival.protocol,
            way: arrival.way,
            limit: arrival.room.min(usize::from(parts.payload_size())),
            pool: PoolId::DEFAULT,
            skip_cache: false,
            message: arrival.message,
        })
    }
}
