//! Ethernet, IP and UDP headers written backwards in front of a payload that already lies in its chunk.
//!
//! A frame comes in with one pair of headers and leaves with another, of another family perhaps, while its payload stays
//! where it is:
//!
//! ```text
//! chunk  │ headroom ……………………………………… │ payload │ room │
//! in                    │ IPv4, 42 │ payload │
//! out              │ IPv6, 62      │ payload │         ← the frame starts earlier
//! ```

use super::{
    ETHERNET_LENGTH, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_HEADERS_LENGTH, IPV4_LENGTH,
    IPV6_HEADERS_LENGTH, Mac, PROTOCOL_UDP, UDP_LENGTH,
};
use crate::checksum::Sum;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

/// Time to live and hop limit of everything we send.
const HOP_LIMIT: u8 = 64;

/// Both ends of a frame that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'e> {
    /// Ethernet address of the device that sends.
    pub source_mac: &'e Mac,
    /// Ethernet address of the next hop.
    pub destination_mac: &'e Mac,
    /// Our address and port.
    pub source: &'e SocketAddr,
    /// Theirs; of the same family.
    pub destination: &'e SocketAddr,
    /// How the packet is to be forwarded: six bits of the DS field (RFC 2474 §3). 0 is the default (§4.1).
    ///
    /// As a word, for compilers read it as one: one octet of it, just written, a processor would wait for.
    pub code_point: u32,
}

impl Headers<'_> {
    /// IPv4's type of service, IPv6's traffic class: "Six bits of the DS field are used as a codepoint" (RFC 2474 §3), the
    /// upper ones. The others say that nobody here knows ECN (RFC 3168 §5).
    #[inline]
    const fn ds_field(&self) -> u8 {
        (self.code_point as u8) << 2
    }
}

/// Writes headers in front of the `payload_length` octets at `payload_start` of `chunk`, with full checksums, and
/// returns where the frame starts; it ends with the payload. `None`, and nothing is written, where there is no room in
/// front, the payload is not within the chunk or longer than IP can say, or the addresses are of two families.
#[inline]
#[must_use]
pub fn write_headers(
    chunk: &mut [u8],
    payload_start: usize,
    payload_length: usize,
    headers: &Headers<'_>,
) -> Option<usize> {
    write(chunk, payload_start, payload_length, headers, Sum::bytes)
}

/// The same for whoever knows the payload's sum, as [`Sum::bytes`] has it: the payload is not read.
#[inline]
#[must_use]
pub fn write_headers_summed(
    chunk: &mut [u8],
    payload_start: usize,
    payload_length: usize,
    headers: &Headers<'_>,
    payload_sum: Sum,
) -> Option<usize> {
    let add_payload = |sum: Sum, _: &[u8]| sum.and(payload_sum);
    write(chunk, payload_start, payload_length, headers, add_payload)
}

/// Writes headers; `add_payload` adds a payload to a sum.
#[inline]
fn write(
    chunk: &mut [u8],
    payload_start: usize,
    payload_length: usize,
    headers: &Headers<'_>,
    add_payload: impl FnOnce(Sum, &[u8]) -> Sum,
) -> Option<usize> {
    let payload_end = payload_start.checked_add(payload_length)?;
    match (headers.source, headers.destination) {
        (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            let start = payload_start.checked_sub(IPV4_HEADERS_LENGTH)?;
            let (head, payload) = chunk.get_mut(start..payload_end)?.split_first_chunk_mut()?;
            let ends = (source, destination);
            write_ipv4(head, payload, headers, ends, add_payload).map(|()| start)
        }
        (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
            let start = payload_start.checked_sub(IPV6_HEADERS_LENGTH)?;
            let (head, payload) = chunk.get_mut(start..payload_end)?.split_first_chunk_mut()?;
            let ends = (source, destination);
            write_ipv6(head, payload, headers, ends, add_payload).map(|()| start)
        }
        _ => None,
    }
}

fn write_ipv4(
    head: &mut [u8; IPV4_HEADERS_LENGTH],
    payload: &[u8],
    headers: &Headers<'_>,
    (source, destination): (&SocketAddrV4, &SocketAddrV4),
    add_payload: impl FnOnce(Sum, &[u8]) -> Sum,
) -> Option<()> {
    let total_length = u16::try_from(IPV4_LENGTH + UDP_LENGTH + payload.len()).ok()?;
    let udp_length = total_length - IPV4_LENGTH as u16;
    // Summed from the values: to read wide what was just written narrow would wait for the stores (10 ns here).
    let addresses = Sum::ZERO
        .bytes(&source.ip().octets())
        .bytes(&destination.ip().octets());
    let version_to_service = u16::from_be_bytes([0x45, headers.ds_field()]);
    let flags = 0x4000_u16;
    let hop_limit_and_protocol = u16::from_be_bytes([HOP_LIMIT, PROTOCOL_UDP]);
    let ip_sum = addresses
        .word(version_to_service)
        .word(total_length)
        .word(flags)
        .word(hop_limit_and_protocol);
    write_ethernet(head, headers, ETHERTYPE_IPV4);
    put(head, 14, version_to_service.to_be_bytes());
    put(head, 16, total_length.to_be_bytes());
    // An atomic datagram (do-not-fragment set, not a fragment) may have any ID (RFC 6864 §4.1): 0, and no counter is shared.
    put(head, 18, [0, 0]);
    put(head, 20, flags.to_be_bytes());
    put(head, 22, [HOP_LIMIT, PROTOCOL_UDP]);
    put(head, 24, ip_sum.checksum().to_be_bytes());
    put(head, 26, source.ip().octets());
    put(head, 30, destination.ip().octets());
    let sum = write_udp(
        head,
        (source.port(), destination.port()),
        udp_length,
        addresses,
    );
    write_udp_checksum(head, add_payload(sum, payload));
    Some(())
}

fn write_ipv6(
    head: &mut [u8; IPV6_HEADERS_LENGTH],
    payload: &[u8],
    headers: &Headers<'_>,
    (source, destination): (&SocketAddrV6, &SocketAddrV6),
    add_payload: impl FnOnce(Sum, &[u8]) -> Sum,
) -> Option<()> {
    let udp_length = u16::try_from(UDP_LENGTH + payload.len()).ok()?;
    write_ethernet(head, headers, ETHERTYPE_IPV6);
    // RFC 8200 §3: four bits of version, eight of traffic class, twenty of flow label, which is 0.
    let class = headers.ds_field();
    put(head, 14, [0x60 | class >> 4, class << 4, 0, 0]);
    put(head, 18, udp_length.to_be_bytes());
    put(head, 20, [PROTOCOL_UDP, HOP_LIMIT]);
    put(head, 22, source.ip().octets());
    put(head, 38, destination.ip().octets());
    let addresses = Sum::ZERO
        .bytes(&source.ip().octets())
        .bytes(&destination.ip().octets());
    let sum = write_udp(
        head,
        (source.port(), destination.port()),
        udp_length,
        addresses,
    );
    write_udp_checksum(head, add_payload(sum, payload));
    Some(())
}

#[inline]
fn write_ethernet<const N: usize>(head: &mut [u8; N], headers: &Headers<'_>, ethertype: u16) {
    put(head, 0, *headers.destination_mac);
    put(head, 6, *headers.source_mac);
    put(head, ETHERNET_LENGTH - 2, ethertype.to_be_bytes());
}

/// Writes the UDP header at the end of `head`, but its checksum; returns the sum of the pseudo-header and of what was written,
/// `addresses` being that of both IP addresses.
#[inline]
fn write_udp<const N: usize>(
    head: &mut [u8; N],
    (source_port, destination_port): (u16, u16),
    length: u16,
    addresses: Sum,
) -> Sum {
    let start = N - UDP_LENGTH;
    put(head, start, source_port.to_be_bytes());
    put(head, start + 2, destination_port.to_be_bytes());
    put(head, start + 4, length.to_be_bytes());
    // The length stands in the pseudo-header and in the header.
    addresses
        .word(PROTOCOL_UDP.into())
        .word(length)
        .word(length)
        .word(source_port)
        .word(destination_port)
}

/// Writes the UDP checksum, the last two octets of `head`, by the sum of all that it covers.
#[inline]
fn write_udp_checksum<const N: usize>(head: &mut [u8; N], sum: Sum) {
    // RFC 768: "If the computed checksum is zero, it is transmitted as all ones"; zero means that there is none.
    let checksum = match sum.checksum() {
        0 => 0xffff,
        sum => sum,
    };
    put(head, N - 2, checksum.to_be_bytes());
}

/// Writes at a place that the array's length makes sure of.
#[inline(always)]
fn put<const N: usize, const M: usize>(bytes: &mut [u8; N], at: usize, value: [u8; M]) {
    bytes[at..at + M].copy_from_slice(&value);
}
