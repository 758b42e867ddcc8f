//! What a server with `useProxyProtocol` is told of a query: a header in front of each datagram, or of a connection.

use super::super::extras::Extras;
use super::super::query::Protocol;
use std::net::SocketAddr;
use wire::proxy::{Ends, write};

/// Appends the header of a query that came from the first of `ends` to the second, unless a proxy named others, to `header`.
/// `None`, and nothing is appended: its values are more than a header can have.
pub fn tell(
    header: &mut Vec<u8>,
    (source, destination): (SocketAddr, SocketAddr),
    protocol: Protocol,
    extras: Option<&Extras>,
) -> Option<()> {
    let own = Ends {
        source,
        destination,
        transport: protocol.transport(),
    };
    let ends = extras
        .and_then(|extras| extras.proxied)
        .map_or(own, |proxied| Ends {
            source: proxied.client,
            destination: proxied.destination,
            transport: proxied.transport,
        });
    let values = extras.iter().flat_map(|extras| extras.proxy_values.iter());
    write(header, &ends, values)
}
