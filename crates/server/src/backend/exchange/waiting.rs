//! What comes out of the table when an exchange ends.

use super::QUERY_ROOM;
use crate::backend::server::ServerId;
use crate::clock::Now;
use crate::config::pools::PoolId;
use crate::pipeline::carried::Carried;
use crate::pipeline::extras::Marks;
use crate::pipeline::query::Way;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use wire::message::QueryParts;

/// What was remembered of a query: owned, copied out of the table. One per worker, used again and again.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub server: ServerId,
    pub client: SocketAddr,
    pub destination: SocketAddr,
    pub way: Way,
    /// The longest answer for this client and door, in bytes.
    pub limit: usize,
    pub pool: PoolId,
    pub skip_cache: bool,
    /// Whether the exchange was a leg of a race.
    pub is_leg: bool,
    /// Of a race that nobody won in time: the RCODE of an error that waited for a better answer; 0 is none.
    pub held_rcode: u8,
    /// See [`Query::client_flags`].
    pub client_flags: u16,
    pub marks: Marks,
    /// See [`Query::extras`].
    pub extras: Carried,
    pub sent: Now,
    /// The query as the client sent it (after the rules), under its own ID.
    pub query: [u8; QUERY_ROOM],
    pub query_length: usize,
    pub parts: QueryParts,
    /// The answer, when it has outgrown the buffer that the response came in; empty else.
    pub outgrown: Vec<u8>,
}

impl Waiting {
    /// Room for a query; what it holds means nothing yet.
    pub fn new() -> Waiting {
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        Waiting {
            server: ServerId(0),
            client: nowhere,
            destination: nowhere,
            way: Way::Stream,
            limit: 0,
            pool: PoolId::DEFAULT,
            skip_cache: false,
            is_leg: false,
            held_rcode: 0,
            client_flags: 0,
            marks: Marks::default(),
            extras: Carried::NOTHING,
            sent: Now(0),
            query: [0; QUERY_ROOM],
            query_length: 0,
            parts: QueryParts {
                qname_length: 0,
                labels: 0,
                qtype: 0,
                qclass: 0,
                question_end: 0,
                end: 0,
                edns: None,
                is_signed: false,
            },
            outgrown: Vec::new(),
        }
    }

    /// The answer made of the response in `message`: so many bytes of that, or of what it has outgrown it into.
    pub fn answer<'m>(&'m self, message: &'m [u8], length: usize) -> &'m [u8] {
        match self.outgrown.is_empty() {
            true => &message[..length],
            false => &self.outgrown[..length],
        }
    }

    /// How long the answer is to wait (DelayAction), over UDP.
    pub fn delay(&self) -> Duration {
        match (self.extras.as_deref(), self.way) {
            (None, _) | (_, Way::Stream) => Duration::ZERO,
            (Some(extras), _) => extras.delay,
        }
    }

    /// The query's bytes.
    pub fn message(&self) -> &[u8] {
        &self.query[..self.query_length]
    }
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting::new()
    }
}
