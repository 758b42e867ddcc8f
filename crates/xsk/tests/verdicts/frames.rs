//! Frames for tests, built by hand so that they can be wrong in any way.

use std::net::{IpAddr, SocketAddr};

pub(crate) const OUR_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
pub(crate) const THEIR_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 2];

/// A query for `example. A` with an EDNS record, 36 octets.
pub(crate) fn query(id: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 1]);
    message.extend(b"\x07example\x00\x00\x01\x00\x01");
    message.extend([0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    message
}

/// A whole frame with right lengths and checksums.
pub(crate) fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let datagram = udp(from, to, payload);
    let (ethertype, packet) = match (from.ip(), to.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => (0x0800, ipv4(from.ip(), to.ip(), 17, &datagram)),
        (IpAddr::V6(_), IpAddr::V6(_)) => (0x86dd, ipv6(from.ip(), to.ip(), 17, &datagram)),
        _ => panic!("{from} and {to} speak different versions of IP"),
    };
    ethernet(OUR_MAC, THEIR_MAC, ethertype, &packet)
}

pub(crate) fn ethernet(to: [u8; 6], from: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from[..], &ethertype.to_be_bytes(), payload].concat()
}

pub(crate) fn ipv4(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = 20 + payload.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(octets(from));
    packet.extend(octets(to));
    let sum = !checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

pub(crate) fn ipv6(from: IpAddr, to: IpAddr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 64]);
    packet.extend(octets(from));
    packet.extend(octets(to));
    packet.extend(payload);
    packet
}

/// A UDP datagram with its checksum.
pub(crate) fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let mut datagram = from.port().to_be_bytes().to_vec();
    datagram.extend(to.port().to_be_bytes());
    datagram.extend(length.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    let mut summed = [octets(from.ip()), octets(to.ip())].concat();
    summed.extend([0, 17]);
    summed.extend(length.to_be_bytes());
    summed.extend(&datagram);
    let sum = match !checksum(&summed) {
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

/// The sum of RFC 1071, not complemented.
pub(crate) fn checksum(octets: &[u8]) -> u16 {
    let words = octets
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
