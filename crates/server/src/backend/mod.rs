//! Backends: the servers that are asked, the pools they stand in, the policies that choose one, the queries in flight,
//! the ports they leave from, the checks that tell who is up.

pub mod buffers;
pub mod exchange;
#[cfg(test)]
pub(crate) mod fixture;
pub mod health;
pub mod lazy;
pub mod policy;
pub mod pool;
pub mod ports;
pub mod quantile;
pub mod server;
pub mod servers;
pub mod several;
pub mod source;
pub mod tcp;
pub mod trust;

use crate::clock::Now;
use crate::config::Tuning;
use crate::pipeline::extras::Extras;
use crate::pipeline::proxy::outgoing;
use crate::pipeline::query::{Protocol, Query};
use crate::random::Random;
use exchange::{Departure, Exchanges, OpenError, Port, Share};
use ports::{Departures, Ports};
use server::Server;
use std::net::SocketAddr;

/// What a worker sends queries to backends with: one per batch.
pub struct Forwarder<'c> {
    pub exchanges: &'c Exchanges,
    /// The worker's own.
    pub share: &'c mut Share,
    pub ports: &'c Ports,
    pub departures: &'c mut Departures,
    /// What there is to know of the query that was just forwarded.
    pub forwarded: Option<Forwarded>,
}

/// A query on its way to a backend over UDP.
#[derive(Debug, Clone, Copy)]
pub struct Forwarded {
    /// It is so many bytes at the front of its buffer: rules may have changed that.
    pub length: usize,
    /// The backend port it must leave from.
    pub port: Port,
}

impl Forwarder<'_> {
    /// Opens an exchange with `server`: the query in its buffer then has the ID under which it must leave from the port.
    ///
    /// # Errors
    /// The query is as it was.
    pub fn forward(
        &mut self,
        query: &mut Query<'_>,
        server: &Server,
        tuning: &Tuning,
        now: Now,
        random: &mut Random,
    ) -> Result<Port, OpenError> {
        if server.options.proxy_protocol {
            self.announce(query)?;
        }
        let port = self
            .departures
            .pick(self.ports, server, random)
            .ok_or(OpenError::NoPort)?;
        let departure = Departure {
            server,
            port,
            now,
            timeout: server.options.udp_timeout.unwrap_or(tuning.udp_timeout),
            maximum_outstanding: tuning.maximum_udp_outstanding,
        };
        self.exchanges.open(self.share, query, &departure, random)?;
        Ok(port)
    }

    /// Writes what servers with useProxyProtocol are told of the query.
    #[inline(never)]
    fn announce(&mut self, query: &Query<'_>) -> Result<(), OpenError> {
        let ends = (*query.client(), *query.destination());
        self.tell(ends, query.protocol, query.extras.as_deref())
    }

    fn tell(
        &mut self,
        ends: (SocketAddr, SocketAddr),
        protocol: Protocol,
        extras: Option<&Extras>,
    ) -> Result<(), OpenError> {
        let header = &mut self.share.proxy_header;
        header.clear();
        outgoing::tell(header, ends, protocol, extras).ok_or(OpenError::ProxyHeader)
    }

    /// What goes out to the server in front of the query that was just forwarded.
    #[inline]
    pub fn proxy_header(&self, server: &Server) -> &[u8] {
        match server.options.proxy_protocol {
            true => &self.share.proxy_header,
            false => &[],
        }
    }
}
