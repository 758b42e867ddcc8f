//! Queries that a proxy passes on, with the header of the PROXY protocol in front: who really asks, as rules, logs and
//! backends are to see it. The answer goes to the proxy.

pub mod outgoing;
#[cfg(test)]
mod tests;
pub mod values;

use super::carried::Carried;
use super::drop::DropReason;
use super::query::Arrival;
use super::{Env, Verdict, acl};
use crate::config::Config;
use crate::counters::Counter;
use std::net::SocketAddr;
use wire::proxy::{self, Header, LENGTH_MAX, Transport};

/// setProxyProtocolACL and its relatives, when that names anybody.
#[derive(Debug, Clone)]
pub struct Proxies {
    /// From whom a header is taken, and required.
    pub acl: acl::Netmasks,
    /// setProxyProtocolApplyACLToProxiedClients: who is said to ask must be in the ACL too.
    pub apply_acl: bool,
    /// setProxyProtocolMaximumPayloadSize: the longest header that is taken, in bytes.
    pub maximum: usize,
}

/// Whether a header stands in front of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InFront {
    /// Where the sender is one of the [`Proxies`]: datagrams.
    FromProxies,
    /// It does: its connection began with it.
    Header,
    /// It does not.
    Nothing,
}

/// Who asks through whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proxied {
    /// As the header says it: what rules see as the query's client and destination.
    pub client: SocketAddr,
    pub destination: SocketAddr,
    pub transport: Transport,
}

/// The longest header that the connection or datagrams of `client` to the listener in this place begin with, in bytes;
/// `None`: they must not have one. The manual on setProxyProtocolACL: "a proxy protocol payload will be required from these
/// clients, regular DNS queries will no longer be accepted".
pub fn expected(config: &Config, client: SocketAddr, listener: u16) -> Option<usize> {
    let proxies = config.proxies.as_ref()?;
    let listener = config.streams_at(listener);
    let is_expected = listener.is_none_or(|listener| listener.proxy_protocol)
        && proxies.acl.contains(client.ip());
    is_expected.then_some(proxies.maximum)
}

/// The "proxy" stage: takes the header away that stands in front of the query, if one must; what it says.
#[inline(always)]
pub(super) fn take<'c>(arrival: &mut Arrival<'_>, env: &Env<'c>) -> Result<Carried, Verdict<'c>> {
    if env.config.proxies.is_none() && arrival.in_front != InFront::Header {
        return Ok(Carried::NOTHING);
    }
    take_header(arrival, env).map_err(Verdict::Drop)
}

#[inline(never)]
fn take_header(arrival: &mut Arrival<'_>, env: &Env<'_>) -> Result<Carried, DropReason> {
    let maximum = match arrival.in_front {
        InFront::FromProxies => expected(env.config, *arrival.client, arrival.listener),
        // Whoever read it off the stream has seen to its length.
        InFront::Header => Some(LENGTH_MAX),
        InFront::Nothing => None,
    };
    let Some(maximum) = maximum else {
        return Ok(Carried::NOTHING);
    };
    let message = &arrival.message[..arrival.length];
    let header = proxy::parse(message, maximum).map_err(|_| {
        env.shard.count(Counter::ProxyProtocolInvalid);
        DropReason::ProxyProtocolInvalid
    })?;
    let said = said(&header);
    let applies_acl = |proxies: &Proxies| proxies.apply_acl;
    if env.config.proxies.as_deref().is_some_and(applies_acl)
        && let Some(Proxied { client, .. }) = said.as_ref().and_then(|said| said.proxied)
        && !acl::allows(client, env)
    {
        return Err(DropReason::Acl);
    }
    let length = header.length;
    arrival.message.copy_within(length..arrival.length, 0);
    arrival.length -= length;
    Ok(said)
}

/// What the query carries along; nothing of a query that the proxy asks for itself.
fn said(header: &Header<'_>) -> Carried {
    let mut said = Carried::NOTHING;
    let Some(ends) = header.ends else {
        return said;
    };
    let extras = said.get_or_insert_default();
    extras.proxied = Some(Proxied {
        client: ends.source,
        destination: ends.destination,
        transport: ends.transport,
    });
    extras.proxy_values.receive(header);
    said
}
