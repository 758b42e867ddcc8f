//! Watches what the server sends to the clients' interface, frame by frame: how many answers there
//! were at all, and whether each was a sound packet (invariants I1 and I2).

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::sys::socket::{setsockopt, sockopt};

use crate::frame::{sum, udp_checksum_is_right};
use crate::lab::{CLIENT_MAC, Lab, TO_SERVER};
use crate::sys::PacketSocket;
use crate::{During, Failure, Outcome};

/// A packet socket on the clients' interface. Frames wait in it until `answers` takes them.
pub struct Sniffer {
    socket: PacketSocket,
}

/// The beginning of a UDP datagram that arrived at the clients' interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Who sent it.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// What is wrong with its frame, if anything.
    pub fault: Option<&'static str>,
}

impl Sniffer {
    /// Begins to watch.
    pub fn start(lab: &Lab) -> Outcome<Self> {
        let socket = lab
            .client()
            .run(|| PacketSocket::open(TO_SERVER))?
            .during("watching the clients' interface")?;
        // What clients send is seen too, and waits here with the rest: a flood of 50,000 frames takes some 40 MB.
        setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20))
            .during("enlarging the watcher's buffer")?;
        Ok(Self { socket })
    }

    /// Everything that arrived so far and was not taken yet.
    pub fn sightings(&self) -> Outcome<Vec<Sighting>> {
        let mut buffer = vec![0; 65536];
        let mut sightings = Vec::new();
        loop {
            match self.socket.receive(&mut buffer) {
                Ok(captured) if captured.outgoing => {}
                Ok(captured) => sightings.extend(sighting(&buffer[..captured.length])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(sightings),
                // Said once after the link was down; the socket goes on when it is up.
                Err(error) if error.kind() == ErrorKind::NetworkDown => {}
                Err(error) => {
                    return Err(Failure::new(format!(
                        "watching the clients' interface: {error}"
                    )));
                }
            }
        }
    }
}

const UDP: u8 = 17;
const FRAGMENT: u8 = 44;

/// Reads a frame; `None` unless it is the first or only piece of a UDP datagram.
fn sighting(frame: &[u8]) -> Option<Sighting> {
    let fault = (frame.get(..6)? != CLIENT_MAC).then_some("it is for another MAC address");
    let packet = frame.get(14..)?;
    let (source, destination, whole, udp, header_fault) = match frame.get(12..14)? {
        [8, 0] => packet_v4(packet)?,
        [0x86, 0xdd] => packet_v6(packet)?,
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(udp.get(at..at + 2)?.try_into().ok()?));
    let udp_fault = if whole {
        udp_fault(source, destination, udp)
    } else {
        None
    };
    Some(Sighting {
        source: SocketAddr::new(source, port(0)?),
        destination: SocketAddr::new(destination, port(2)?),
        fault: fault.or(header_fault).or(udp_fault),
    })
}

type Packet<'a> = (IpAddr, IpAddr, bool, &'a [u8], Option<&'static str>);

fn packet_v4(packet: &[u8]) -> Option<Packet<'_>> {
    let header_octets = usize::from(packet.first()? & 15) * 4;
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]);
    if packet.get(9) != Some(&UDP) || fragment & 0x1fff != 0 {
        return None;
    }
    let address = |at: usize| {
        Some(Ipv4Addr::from(
            <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?,
        ))
    };
    let fault = if sum(packet.get(..header_octets)?, 0) != 0xffff {
        Some("its IPv4 header checksum is wrong")
    } else if total > packet.len() {
        Some("its IPv4 total length is larger than its frame")
    } else {
        None
    };
    let udp = packet.get(header_octets..total.min(packet.len()))?;
    Some((
        address(12)?.into(),
        address(16)?.into(),
        fragment & 0x2000 == 0,
        udp,
        fault,
    ))
}

fn packet_v6(packet: &[u8]) -> Option<Packet<'_>> {
    let length = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
    let address = |at: usize| {
        Some(Ipv6Addr::from(
            <[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?,
        ))
    };
    let behind = packet.get(40..(40 + length).min(packet.len()))?;
    let fault =
        (40 + length > packet.len()).then_some("its IPv6 payload length is larger than its frame");
    let (whole, udp) = match *packet.get(6)? {
        UDP => (true, behind),
        // A first fragment has offset 0; its checksum is over more than is here.
        FRAGMENT if behind.first() == Some(&UDP) && behind.get(2..4)? == [0, 1] => {
            (false, behind.get(8..)?)
        }
        _ => return None,
    };
    Some((address(8)?.into(), address(24)?.into(), whole, udp, fault))
}

fn udp_fault(source: IpAddr, destination: IpAddr, udp: &[u8]) -> Option<&'static str> {
    let length = usize::from(u16::from_be_bytes([*udp.get(4)?, *udp.get(5)?]));
    if length != udp.len() {
        return Some("its UDP length is not its IP payload's length");
    }
    match (udp.get(6..8)?, source) {
        // RFC 768: "An all zero transmitted checksum value means that the transmitter generated no checksum".
        ([0, 0], IpAddr::V4(_)) => None,
        _ if udp_checksum_is_right(source, destination, udp) => None,
        _ => Some("its UDP checksum is wrong"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Checksum, Shape};

    fn seen(shape: &Shape, source: &str, destination: &str) -> Option<Sighting> {
        let addresses = (
            source.parse().expect("address"),
            destination.parse().expect("address"),
        );
        let frames = shape.frames(addresses.0, addresses.1, &[0; 24]);
        sighting(&frames[0])
    }

    const V4: (&str, &str) = ("192.0.2.1:53", "192.0.2.100:1024");
    const V6: (&str, &str) = ("[2001:db8::1]:53", "[2001:db8::100]:1024");

    #[test]
    fn sound_frames_have_no_fault() {
        let shape = Shape {
            mac: Some(CLIENT_MAC),
            ..Shape::default()
        };
        for (source, destination) in [V4, V6] {
            let sighting = seen(&shape, source, destination).expect("it is UDP");
            assert_eq!(
                (sighting.source.to_string().as_str(), sighting.fault),
                (source, None)
            );
        }
    }

    #[test]
    fn each_fault_is_named() {
        let sound = || Shape {
            mac: Some(CLIENT_MAC),
            ..Shape::default()
        };
        let udp = Shape {
            udp_checksum: Checksum::Wrong,
            ..sound()
        };
        let zero = Shape {
            udp_checksum: Checksum::Zero,
            ..sound()
        };
        let ip = Shape {
            ip_checksum: Checksum::Wrong,
            ..sound()
        };
        let length = Shape {
            udp_length_offset: 1,
            ..sound()
        };
        let fault = |shape: &Shape, (source, destination)| {
            seen(shape, source, destination).expect("UDP").fault
        };
        assert_eq!(
            fault(&Shape::default(), V4),
            Some("it is for another MAC address")
        );
        assert_eq!(fault(&udp, V4), Some("its UDP checksum is wrong"));
        assert_eq!(
            (fault(&zero, V4), fault(&zero, V6)),
            (None, Some("its UDP checksum is wrong"))
        );
        assert_eq!(fault(&ip, V4), Some("its IPv4 header checksum is wrong"));
        assert_eq!(
            fault(&length, V6),
            Some("its UDP length is not its IP payload's length")
        );
    }

    #[test]
    fn a_first_fragment_is_seen_once() {
        let shape = Shape {
            mac: Some(CLIENT_MAC),
            fragments: 2,
            ..Shape::default()
        };
        for (source, destination) in [V4, V6] {
            let addresses = (
                source.parse().expect("address"),
                destination.parse().expect("address"),
            );
            let frames = shape.frames(addresses.0, addresses.1, &[0; 24]);
            let seen: Vec<_> = frames.iter().filter_map(|frame| sighting(frame)).collect();
            assert_eq!((frames.len(), seen.len(), seen[0].fault), (2, 1, None));
        }
    }
}
