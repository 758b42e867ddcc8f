//! Queries in flight to backends: what the answer will need, shared by all threads.

use super::server::{Server, ServerId};
use crate::clock::Now;
use crate::config::pools::PoolId;
use crate::pipeline::query::{Query, Way};
use crate::random::Random;
use std::net::SocketAddr;
use wire::message::QueryParts;

/// A backend port of the pool: which socket, and its number in host order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Index into the port pool of the server's source address.
    pub socket: u16,
    pub number: u16,
    /// Where the port is bound.
    pub source: std::net::IpAddr,
}

/// The longest query that an exchange remembers whole, in bytes; longer ones are handed over.
pub const QUERY_ROOM: usize = 512;

/// The table of queries in flight.
pub struct Exchanges {}

/// What was remembered of a query whose response has come: owned, copied out of the slot.
pub struct Waiting {
    pub server: ServerId,
    pub client: SocketAddr,
    pub destination: SocketAddr,
    pub way: Way,
    /// The longest answer for this client and door, in bytes.
    pub limit: usize,
    pub pool: PoolId,
    pub skip_cache: bool,
    pub sent: Now,
    /// The query as the client sent it (after the rules), under its own ID.
    pub query: [u8; QUERY_ROOM],
    pub query_length: usize,
    pub parts: QueryParts,
}

impl Exchanges {
    /// Remembers the query and gives it the ID and port under which it goes out.
    /// `None`: no slot is free.
    pub fn open(
        &self,
        query: &mut Query<'_>,
        server: &Server,
        now: Now,
        random: &mut Random,
    ) -> Option<Port> {
        let _ = (query, server, now, random);
        None
    }
}
