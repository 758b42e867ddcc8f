//! Header → octets.

use super::{
    COMMAND_PROXY, Ends, FAMILY_INET, FAMILY_INET6, FIXED_LENGTH, LENGTH_MAX, SIGNATURE, Transport,
    VERSION, Value,
};
use std::net::{IpAddr, Ipv6Addr};

/// Appends the header with these ends and values to `out`. `None`, and `out` as it was: it would be longer than
/// [`LENGTH_MAX`].
pub fn write<'v>(
    out: &mut Vec<u8>,
    ends: &Ends,
    values: impl Iterator<Item = Value<'v>>,
) -> Option<()> {
    let start = out.len();
    out.extend_from_slice(&SIGNATURE);
    out.push(VERSION << 4 | COMMAND_PROXY);
    addresses(out, ends);
    for value in values {
        let length = u16::try_from(value.octets.len());
        let (Ok(length), true) = (length, out.len() - start <= LENGTH_MAX) else {
            out.truncate(start);
            return None;
        };
        out.push(value.kind);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(value.octets);
    }
    let Ok(behind) = u16::try_from(out.len() - start - FIXED_LENGTH) else {
        out.truncate(start);
        return None;
    };
    out[start + FIXED_LENGTH - 2..][..2].copy_from_slice(&behind.to_be_bytes());
    Some(())
}

/// Family, room for the length, addresses and ports. A header has one family: where the ends have two, the IPv4 address is
/// written as IPv6 (RFC 4291 §2.5.5.2).
fn addresses(out: &mut Vec<u8>, ends: &Ends) {
    let transport = match ends.transport {
        Transport::Stream => 1,
        Transport::Datagram => 2,
    };
    match (ends.source.ip(), ends.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            out.extend_from_slice(&[FAMILY_INET << 4 | transport, 0, 0]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
        (source, destination) => {
            out.extend_from_slice(&[FAMILY_INET6 << 4 | transport, 0, 0]);
            out.extend_from_slice(&as_ipv6(source).octets());
            out.extend_from_slice(&as_ipv6(destination).octets());
        }
    }
    out.extend_from_slice(&ends.source.port().to_be_bytes());
    out.extend_from_slice(&ends.destination.port().to_be_bytes());
}

fn as_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
