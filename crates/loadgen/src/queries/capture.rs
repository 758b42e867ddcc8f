//! Queries from captured traffic: pcap and pcapng files, as tcpdump and Wireshark write them.
//!
//! ```text
//! pcap    magic 4, … │ link type 4 at 20 │ then records: time 8 │ kept 4 │ length 4 │ frame …
//! pcapng  blocks: type 4 │ length 4 │ body … │ length 4      section 0x0a0d0d0a, interface 1, simple packet 3, packet 6
//! ```
//!
//! Taken are queries over UDP to a port. Checksums are not looked at: captures at the sender have them unfinished.

use super::{Asked, Edns, Writer};
use crate::failure::{Failure, Outcome};
use std::io::Write;
use wire::message::parse_query;

/// Writes the queries that went to this UDP port.
///
/// # Errors
/// It is no capture file, it is one of links that are not known and nothing else, or the file cannot be written.
pub fn queries(capture: &[u8], port: u16, writer: &mut Writer<impl Write>) -> Outcome<()> {
    let order = match capture.first_chunk() {
        Some([0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1]) => Order::Little,
        Some([0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d]) => Order::Big,
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => return from_blocks(capture, port, writer),
        _ => {
            return Err(Failure::new(
                "no capture file: expected pcap or pcapng, as `tcpdump -w FILE` writes it",
            ));
        }
    };
    let link = order.u32(capture, 20).unwrap_or(0) as u16;
    check_link(link)?;
    let mut rest = capture.get(24..).unwrap_or_default();
    while let Some(kept) = order.u32(rest, 8) {
        let Some(frame) = rest.get(16..16 + kept as usize) else {
            break;
        };
        write_query_of(frame, link, port, writer)?;
        rest = &rest[16 + kept as usize..];
    }
    Ok(())
}

fn from_blocks(capture: &[u8], port: u16, writer: &mut Writer<impl Write>) -> Outcome<()> {
    let mut links: Vec<u16> = Vec::new();
    let mut order = Order::Little;
    let mut rest = capture;
    while rest.len() >= 12 {
        if rest[..4] == [0x0a, 0x0d, 0x0d, 0x0a] {
            let big = rest[8..12] == [0x1a, 0x2b, 0x3c, 0x4d];
            order = if big { Order::Big } else { Order::Little };
            links.clear();
        }
        let length = order.u32(rest, 4).unwrap_or(0) as usize;
        let Some(block) = rest.get(..length).filter(|block| block.len() >= 12) else {
            break;
        };
        let body = &block[8..length - 4];
        let kept = |at: usize, interface: u32| {
            let kept = order.u32(body, at)? as usize;
            let link = links.get(interface as usize)?;
            let start = if at == 0 { 4 } else { 20 };
            let room = body.len().saturating_sub(start);
            Some((body.get(start..start + kept.min(room))?, *link))
        };
        let found = match order.u32(block, 0) {
            Some(1) => {
                links.push(order.u16(body, 0).unwrap_or(0));
                None
            }
            Some(3) => kept(0, 0),
            Some(6) => order.u32(body, 0).and_then(|interface| kept(12, interface)),
            _ => None,
        };
        if let Some((frame, link)) = found {
            write_query_of(frame, link, port, writer)?;
        }
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    Ok(())
}

/// The byte order of a file.
#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u32(self, octets: &[u8], at: usize) -> Option<u32> {
        let four = *octets.get(at..)?.first_chunk()?;
        Some(match self {
            Order::Little => u32::from_le_bytes(four),
            Order::Big => u32::from_be_bytes(four),
        })
    }

    fn u16(self, octets: &[u8], at: usize) -> Option<u16> {
        let two = *octets.get(at..)?.first_chunk()?;
        Some(match self {
            Order::Little => u16::from_le_bytes(two),
            Order::Big => u16::from_be_bytes(two),
        })
    }
}

fn write_query_of(
    frame: &[u8],
    link: u16,
    port: u16,
    writer: &mut Writer<impl Write>,
) -> Outcome<()> {
    let message = packet_in(frame, link).and_then(|packet| datagram_in(packet, port));
    let Some(message) = message else {
        return Ok(());
    };
    let Ok(parts) = parse_query(message) else {
        return Ok(());
    };
    writer.write(&Asked {
        name: parts.qname(message).to_owned(),
        qtype: parts.qtype,
        edns: match parts.edns {
            None => Edns::None,
            Some(edns) if edns.dnssec_ok => Edns::DnssecOk,
            Some(_) => Edns::Plain,
        },
    })
}

/// Whether [`packet_in`] knows this kind of link.
fn check_link(link: u16) -> Outcome<()> {
    // Longer than the headers of any kind.
    if packet_in(&[0; 64], link).is_some() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "frames of link type {link}: expected those of Ethernet (1), of IP alone (101), of loopback or of Linux's `any`"
    )))
}

/// The IP packet in a frame, by the kind of link (tcpdump.org/linktypes.html).
fn packet_in(frame: &[u8], link: u16) -> Option<&[u8]> {
    const BSD_LOOPBACK: u16 = 0;
    const ETHERNET: u16 = 1;
    const RAW_IP_OF_LINUX: u16 = 12; // the number in memory, which some programs write
    const RAW_IP: u16 = 101;
    const OPENBSD_LOOPBACK: u16 = 108;
    const LINUX_COOKED: u16 = 113;
    const RAW_IPV4: u16 = 228;
    const RAW_IPV6: u16 = 229;
    const LINUX_COOKED_2: u16 = 276;
    match link {
        RAW_IP_OF_LINUX | RAW_IP | RAW_IPV4 | RAW_IPV6 => Some(frame),
        BSD_LOOPBACK | OPENBSD_LOOPBACK => frame.get(4..),
        LINUX_COOKED => frame.get(16..),
        LINUX_COOKED_2 => frame.get(20..),
        ETHERNET => {
            let mut at = 12;
            // Over any number of VLAN tags.
            while matches!(frame.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8]) {
                at += 4;
            }
            frame.get(at + 2..)
        }
        _ => None,
    }
}

/// The message of an unfragmented UDP datagram to this port.
fn datagram_in(packet: &[u8], port: u16) -> Option<&[u8]> {
    const UDP: u8 = 17;
    let udp = match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&UDP) && Order::Big.u16(packet, 6)? & 0x3fff == 0 => {
            packet.get(usize::from(packet[0] & 0x0f) * 4..)?
        }
        6 if packet.get(6) == Some(&UDP) => packet.get(40..)?,
        _ => return None,
    };
    if Order::Big.u16(udp, 2)? != port {
        return None;
    }
    udp.get(8..usize::from(Order::Big.u16(udp, 4)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{Style, text};
    use crate::xdp::addressing::Addressing;
    use proptest::prelude::*;
    use xsk::Sources;

    /// A frame with the query of a line, to this server.
    fn frame(line: &str, target: &str, vlan: Option<u16>) -> Vec<u8> {
        let questions = text::parse(line.as_bytes(), Style::default()).unwrap();
        let target: std::net::SocketAddr = target.parse().unwrap();
        let source = if target.is_ipv4() {
            "192.0.2.9"
        } else {
            "2001:db8::9"
        };
        let addressing = Addressing {
            targets: vec![crate::xdp::addressing::Target {
                server: target,
                mac: [4; 6],
                sources: Sources {
                    address: source.parse().unwrap(),
                    prefix: if target.is_ipv4() { 32 } else { 128 },
                },
            }],
            first_port: 4000,
            port_bits: 0,
            local_mac: [2; 6],
            vlan,
        };
        let mut frame = vec![0; 600];
        let length = addressing.write(&mut frame, questions.get_summed(0), (0, 0, 1), 0);
        frame.truncate(length as usize);
        frame
    }

    fn frames() -> Vec<Vec<u8>> {
        vec![
            frame("a.example A", "192.0.2.1:53", None),
            frame("b.example AAAA E", "[2001:db8::1]:53", Some(7)),
            frame("other.port A", "192.0.2.1:5353", None),
            frame("c.example TXT D", "192.0.2.1:53", None),
        ]
    }

    const EXPECTED: [&str; 3] = ["a.example. A", "b.example. AAAA E", "c.example. TXT D"];

    fn lines(capture: &[u8]) -> Outcome<Vec<String>> {
        let mut octets = Vec::new();
        queries(capture, 53, &mut Writer::new(&mut octets, false))?;
        let text = String::from_utf8(octets).unwrap();
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn pcap(frames: &[Vec<u8>], link: u32, skip: usize) -> Vec<u8> {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1];
        file.extend([0; 16]);
        file.extend(link.to_le_bytes());
        for frame in frames {
            let frame = &frame[skip..];
            file.extend([0; 8]);
            file.extend((frame.len() as u32).to_le_bytes());
            file.extend((frame.len() as u32).to_le_bytes());
            file.extend(frame);
        }
        file
    }

    fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
        let block = |kind: u32, body: &[u8]| {
            let mut body = body.to_vec();
            body.resize(body.len().next_multiple_of(4), 0);
            let length = (body.len() as u32 + 12).to_be_bytes();
            [&kind.to_be_bytes(), &length[..], &body, &length].concat()
        };
        let mut file = block(0x0a0d_0d0a, &[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0]);
        file.extend(block(1, &[0, 1, 0, 0, 0, 0, 0, 0]));
        for frame in frames {
            let length = (frame.len() as u32).to_be_bytes();
            file.extend(block(6, &[&[0; 12][..], &length, &length, frame].concat()));
        }
        file
    }

    #[test]
    fn queries_to_the_port_come_out_of_both_kinds_of_file() {
        assert_eq!(lines(&pcap(&frames(), 1, 0)).unwrap(), EXPECTED);
        assert_eq!(lines(&pcapng(&frames())).unwrap(), EXPECTED);
        let untagged = [frames()[0].clone(), frames()[3].clone()];
        // The frames of a link, and how many octets of Ethernet's headers stand for theirs.
        for (link, skip) in [(101, 14), (12, 14), (228, 14), (0, 10), (108, 10)] {
            assert_eq!(
                lines(&pcap(&untagged, link, skip)).unwrap(),
                ["a.example. A", "c.example. TXT D"],
                "{link}"
            );
        }
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        assert!(lines(b"example.com A\n").is_err());
        assert!(lines(b"").is_err());
        // Wi-Fi: nothing of it can be read.
        let failure = lines(&pcap(&frames(), 105, 0)).unwrap_err().to_string();
        assert!(failure.contains("link type 105"), "{failure}");
    }

    #[test]
    fn a_capture_that_was_cut_off_gives_what_it_has() {
        let whole = pcap(&frames(), 1, 0);
        assert_eq!(lines(&whole[..whole.len() - 1]).unwrap(), EXPECTED[..2]);
        let whole = pcapng(&frames());
        assert_eq!(lines(&whole[..whole.len() - 1]).unwrap(), EXPECTED[..2]);
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
            blocks in any::<bool>(),
        ) {
            let mut file = if blocks { pcapng(&frames()) } else { pcap(&frames(), 1, 0) };
            for (at, octet) in flips {
                let at = at.index(file.len());
                file[at] = octet;
            }
            if let Ok(lines) = lines(&file) {
                // Whatever names were asked for: none of them is a comment, or two words.
                let read = text::parse(lines.join("\n").as_bytes(), Style::default());
                prop_assert_eq!(read.map(|read| read.len()), Ok(lines.len()));
            }
        }
    }
}
