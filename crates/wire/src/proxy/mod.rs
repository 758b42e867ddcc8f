//! The header of the PROXY protocol, version 2 (HAProxy's document "The PROXY protocol", section 2.2): who really asks,
//! said by a proxy in front of a datagram, or once in front of a stream.
//!
//! ```text
//!  signature 12 │ version 4 bits, command 4 │ family 4, transport 4 │ length 16 │ addresses │ values …
//!                                                                      └─ of all behind it ────────┘
//!  addresses    source │ destination │ source port 16 │ destination port 16
//!  a value      type 8 │ length 16 │ octets
//! ```

mod parse;
#[cfg(test)]
mod tests;
mod write;

pub use parse::{length, parse};
pub use write::write;

use std::fmt;
use std::net::SocketAddr;

/// "The binary header format starts with a constant 12 bytes block containing the protocol signature".
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Octets that every header has: up to the length of the rest.
pub const FIXED_LENGTH: usize = 16;

/// The longest header, in bytes: the length of what follows the fixed part is a number of 16 bits.
pub const LENGTH_MAX: usize = FIXED_LENGTH + u16::MAX as usize;

/// The header of a connection that a proxy makes for itself, health checks above all: "When a sender presents a LOCAL
/// connection, it should not present any address so it sets this field to zero."
pub const LOCAL: [u8; FIXED_LENGTH] = *b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

const VERSION: u8 = 2;
const COMMAND_LOCAL: u8 = 0;
const COMMAND_PROXY: u8 = 1;
const FAMILY_INET: u8 = 1;
const FAMILY_INET6: u8 = 2;

/// Both ends of what the proxy passes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub transport: Transport,
}

/// How the source reached the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// 0x1, SOCK_STREAM: TCP.
    Stream,
    /// 0x2, SOCK_DGRAM: UDP.
    Datagram,
}

/// A header, as it lies in front of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'h> {
    /// All of it, in bytes: the query begins behind.
    pub length: usize,
    /// `None`: the command LOCAL. "The receiver must accept this connection as valid and must use the real connection
    /// endpoints and discard the protocol block".
    pub ends: Option<Ends>,
    values: &'h [u8],
}

/// A type and what is said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value<'h> {
    /// 0 to 255; the document gives a meaning to some, the `PP2_TYPE_*`.
    pub kind: u8,
    /// At most 65,535 bytes.
    pub octets: &'h [u8],
}

impl Value<'_> {
    /// PP2_TYPE_CRC32C: a checksum of the header that has it.
    pub const CRC32C: u8 = 0x03;
    /// PP2_TYPE_NOOP: "should be ignored when parsed".
    pub const NOOP: u8 = 0x04;
}

/// Why octets are no header that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyError {
    /// They do not begin with the signature.
    Signature,
    /// They end before the header does.
    Truncated,
    /// Another version than 2: "the receiver must only accept this value".
    Version(u8),
    /// "Receivers must drop connections presenting unexpected values here."
    Command(u8),
    /// Neither IPv4 nor IPv6 by a stream or datagrams. Of an unspecified family, "the receiver is free to accept the
    /// connection anyway … or to reject it"; UNIX sockets have no addresses that a query could come from.
    Family(u8),
    /// The header is longer than who receives it takes, in bytes.
    TooLong(usize),
    /// Shorter than addresses of its family, in bytes.
    Addresses(u16),
    /// A value ends behind the header, or too few octets are left for a type and a length.
    Value,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyError::Signature => {
                f.write_str("no PROXY header of version 2: it begins otherwise")
            }
            ProxyError::Truncated => f.write_str("a PROXY header that ends too early"),
            ProxyError::Version(version) => {
                write!(f, "a PROXY header of version {version}: 2 expected")
            }
            ProxyError::Command(command) => {
                write!(
                    f,
                    "a PROXY header with command {command}: 0 (LOCAL) or 1 (PROXY) expected"
                )
            }
            ProxyError::Family(family) => write!(
                f,
                "a PROXY header of family and transport {family:#04x}: 0x11, 0x12, 0x21 or 0x22 expected"
            ),
            ProxyError::TooLong(length) => {
                write!(
                    f,
                    "a PROXY header of {length} bytes: that is more than is taken"
                )
            }
            ProxyError::Addresses(length) => {
                write!(
                    f,
                    "a PROXY header with {length} bytes behind its length: too few for addresses"
                )
            }
            ProxyError::Value => {
                f.write_str("a PROXY header whose values do not end where it does")
            }
        }
    }
}

impl std::error::Error for ProxyError {}
