//! Octets → header.

use super::{
    COMMAND_LOCAL, COMMAND_PROXY, Ends, FAMILY_INET, FAMILY_INET6, FIXED_LENGTH, Header,
    ProxyError, SIGNATURE, Transport, VERSION, Value,
};
use crate::bytes::u16_at;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where the fields of the fixed part are.
const VERSION_AND_COMMAND: usize = 12;
const FAMILY_AND_TRANSPORT: usize = 13;
const LENGTH: usize = 14;

/// The length of the header that begins with these octets, in bytes; `maximum`: what is taken, the fixed part included.
/// For streams: "The receiver must not start to parse an address before the whole address block is received."
///
/// # Errors
/// What is wrong with its beginning.
pub fn length(front: &[u8; FIXED_LENGTH], maximum: usize) -> Result<usize, ProxyError> {
    if front[..SIGNATURE.len()] != SIGNATURE {
        return Err(ProxyError::Signature);
    }
    let version = front[VERSION_AND_COMMAND] >> 4;
    if version != VERSION {
        return Err(ProxyError::Version(version));
    }
    let behind = u16_at(front, LENGTH).ok_or(ProxyError::Truncated)?;
    match FIXED_LENGTH + usize::from(behind) {
        length if length > maximum => Err(ProxyError::TooLong(length)),
        length => Ok(length),
    }
}

/// The header at the front of `bytes`, of `maximum` bytes at most; what follows it is none of its business.
///
/// IPv4 addresses that are written as IPv6 (`::ffff:192.0.2.1`), because the other end is one, are IPv4 again.
///
/// # Errors
/// Why it is none that can be used.
pub fn parse(bytes: &[u8], maximum: usize) -> Result<Header<'_>, ProxyError> {
    let Some(front) = bytes.first_chunk() else {
        let known = bytes.len().min(SIGNATURE.len());
        return Err(match bytes[..known] == SIGNATURE[..known] {
            true => ProxyError::Truncated,
            false => ProxyError::Signature,
        });
    };
    let length = length(front, maximum)?;
    let block = bytes
        .get(FIXED_LENGTH..length)
        .ok_or(ProxyError::Truncated)?;
    match front[VERSION_AND_COMMAND] & 15 {
        COMMAND_LOCAL => Ok(Header {
            length,
            ends: None,
            values: &[],
        }),
        COMMAND_PROXY => {
            let (ends, values) = ends(front[FAMILY_AND_TRANSPORT], block)?;
            check(values)?;
            Ok(Header {
                length,
                ends: Some(ends),
                values,
            })
        }
        command => Err(ProxyError::Command(command)),
    }
}

/// The addresses, and what follows them.
fn ends(family: u8, block: &[u8]) -> Result<(Ends, &[u8]), ProxyError> {
    let transport = match family & 15 {
        1 => Transport::Stream,
        2 => Transport::Datagram,
        _ => return Err(ProxyError::Family(family)),
    };
    let too_short = ProxyError::Addresses(block.len() as u16);
    let (addresses, rest) = match family >> 4 {
        FAMILY_INET => {
            let (fields, rest) = block.split_first_chunk::<12>().ok_or(too_short)?;
            let address = |at| ipv4(fields, at);
            ((address(0), address(4), &fields[8..]), rest)
        }
        FAMILY_INET6 => {
            let (fields, rest) = block.split_first_chunk::<36>().ok_or(too_short)?;
            let address = |at| ipv6(fields, at);
            ((address(0), address(16), &fields[32..]), rest)
        }
        _ => return Err(ProxyError::Family(family)),
    };
    let (source, destination, ports) = addresses;
    let port = |at| u16::from_be_bytes([ports[at], ports[at + 1]]);
    let ends = Ends {
        source: SocketAddr::new(source, port(0)),
        destination: SocketAddr::new(destination, port(2)),
        transport,
    };
    Ok((ends, rest))
}

fn ipv4(fields: &[u8; 12], at: usize) -> IpAddr {
    let mut octets = [0; 4];
    octets.copy_from_slice(&fields[at..at + 4]);
    Ipv4Addr::from(octets).into()
}

fn ipv6(fields: &[u8; 36], at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&fields[at..at + 16]);
    Ipv6Addr::from(octets).to_canonical()
}

/// Whether the values end where the header does.
fn check(mut values: &[u8]) -> Result<(), ProxyError> {
    while !values.is_empty() {
        (_, values) = split(values).ok_or(ProxyError::Value)?;
    }
    Ok(())
}

/// The first value, and the rest.
fn split(values: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (&[kind, high, low], rest) = values.split_first_chunk()?;
    let (octets, rest) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
    Some((Value { kind, octets }, rest))
}

impl<'h> Header<'h> {
    /// The values, in their order; none of the command LOCAL.
    pub fn values(&self) -> impl Iterator<Item = Value<'h>> {
        let mut rest = self.values;
        std::iter::from_fn(move || {
            let (value, behind) = split(rest)?;
            rest = behind;
            Some(value)
        })
    }
}
