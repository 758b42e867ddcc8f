//! Ethernet frames as raw clients send them, right ones and wrong ones.
//!
//! ```text
//! ┌─ 14 ─────┬ 4 ──┬ 20 + options / 40 + extensions ┬ 8 ──┬──────────┬─────────┐
//! │ Ethernet │VLAN?│ IPv4 or IPv6                   │ UDP │ payload  │ padding │
//! └──────────┴─────┴────────────────────────────────┴─────┴──────────┴─────────┘
//! ```
//! RFC 791, RFC 8200, RFC 768; checksums by RFC 1071.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::scenario::words::{Words, parse};
use crate::{Failure, Outcome, dns, lab};

/// How a frame differs from an ordinary one. `Shape::default()` is ordinary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// Only the first octets are sent.
    pub cut_octets: Option<usize>,
    /// Padded behind the IP packet to this size, as Ethernet does below 60 octets.
    pub pad_octets: Option<usize>,
    /// An 802.1Q tag with this VLAN.
    pub vlan: Option<u16>,
    /// Sent in this many IP fragments, last one first if `backwards`.
    pub fragments: usize,
    /// Last fragment first.
    pub backwards: bool,
    /// IPv4 options, a multiple of 4 octets.
    pub ip_options: Vec<u8>,
    /// IPv6 extension headers before UDP, by protocol number.
    pub extensions: Vec<u8>,
    /// IPv4 header checksum.
    pub ip_checksum: Checksum,
    /// UDP checksum.
    pub udp_checksum: Checksum,
    /// Added to IPv4's total length, IPv6's payload length.
    pub ip_length_offset: i32,
    /// IPv6's payload length or IPv4's total length is 0.
    pub ip_length_zero: bool,
    /// Added to UDP's length.
    pub udp_length_offset: i32,
    /// TTL or hop limit; 64 unless given.
    pub hops: Option<u8>,
    /// Destination MAC address; the server's unless given.
    pub mac: Option<[u8; 6]>,
}

/// A checksum field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checksum {
    /// As the RFC says.
    #[default]
    Right,
    /// One bit off.
    Wrong,
    /// 0: "no checksum" for UDP over IPv4, forbidden over IPv6 (RFC 8200 section 8.1).
    Zero,
    /// The folded, uncomplemented sum of the pseudo-header, as checksum offload leaves it.
    Partial,
}

const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

impl Shape {
    /// Reads the words `frame.…` of a line; `None` if there is none.
    pub fn from_words(words: &mut Words<'_>) -> Outcome<Option<Self>> {
        let taken = words.take_all(|word| word == "frame" || word.starts_with("frame."));
        if taken.is_empty() {
            return Ok(None);
        }
        let mut shape = Self::default();
        for word in taken.iter().filter_map(|word| word.strip_prefix("frame.")) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            shape.set(key, value)?;
        }
        Ok(Some(shape))
    }

    fn set(&mut self, key: &str, value: &str) -> Outcome<()> {
        match key {
            "cut" => self.cut_octets = Some(parse(key, value)?),
            "pad" => self.pad_octets = Some(parse(key, value)?),
            "vlan" => self.vlan = Some(parse(key, value)?),
            "fragments" => self.fragments = parse(key, value)?,
            "backwards" => self.backwards = true,
            "ip-options" => self.ip_options = dns::octets_of_hex(value)?,
            "extensions" => {
                self.extensions = value.split(',').map(extension).collect::<Outcome<_>>()?
            }
            "ip-checksum" => self.ip_checksum = checksum_word(value)?,
            "udp-checksum" => self.udp_checksum = checksum_word(value)?,
            "ip-length" if value == "0" => self.ip_length_zero = true,
            "ip-length" => self.ip_length_offset = parse(key, value)?,
            "udp-length" => self.udp_length_offset = parse(key, value)?,
            "hops" => self.hops = Some(parse(key, value)?),
            "mac" => self.mac = Some(mac(value)?),
            _ => return Err(Failure::new(format!("`frame.{key}` means nothing"))),
        }
        Ok(())
    }

    /// The frames that carry `payload`: one, or as many as there are fragments.
    pub fn frames(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
        payload: &[u8],
    ) -> Vec<Vec<u8>> {
        let datagram = self.datagram(source, destination, payload);
        let addresses = (source.ip(), destination.ip());
        let mut frames: Vec<Vec<u8>> = pieces(&datagram, self.fragments.max(1))
            .into_iter()
            .map(|(offset, piece, last)| {
                let fragment = (self.fragments > 1).then_some((offset, !last));
                self.frame(addresses, fragment, piece)
            })
            .collect();
        if self.backwards {
            frames.reverse();
        }
        frames
    }

    /// UDP header and payload.
    fn datagram(&self, source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
        let length = 8 + payload.len();
        let mut datagram = Vec::with_capacity(length);
        datagram.extend(source.port().to_be_bytes());
        datagram.extend(destination.port().to_be_bytes());
        datagram.extend(((length as i32 + self.udp_length_offset) as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(payload);
        let pseudo = pseudo_header(source.ip(), destination.ip(), length);
        let checksum = match self.udp_checksum {
            Checksum::Right => udp_checksum(&pseudo, &datagram),
            Checksum::Wrong => udp_checksum(&pseudo, &datagram) ^ 0x0100,
            Checksum::Zero => 0,
            Checksum::Partial => sum(&pseudo, 0),
        };
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        datagram
    }

    fn frame(
        &self,
        addresses: (IpAddr, IpAddr),
        fragment: Option<(usize, bool)>,
        piece: &[u8],
    ) -> Vec<u8> {
        let mut frame = self.mac.unwrap_or(lab::SERVER_MAC).to_vec();
        frame.extend(lab::CLIENT_MAC);
        if let Some(vlan) = self.vlan {
            frame.extend([0x81, 0]);
            frame.extend(vlan.to_be_bytes());
        }
        match addresses {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([8, 0]);
                frame.extend(self.header_v4(source, destination, fragment, piece.len()));
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd]);
                frame.extend(self.headers_v6(source, destination, fragment, piece.len()));
            }
            _ => panic!("the parser gives both addresses one family"),
        }
        frame.extend(piece);
        frame.resize(frame.len().max(self.pad_octets.unwrap_or(0)), 0);
        frame.truncate(self.cut_octets.unwrap_or(usize::MAX));
        frame
    }

    fn header_v4(
        &self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        fragment: Option<(usize, bool)>,
        octets: usize,
    ) -> Vec<u8> {
        let header_octets = 20 + self.ip_options.len();
        let mut header = vec![0x40 | (header_octets / 4) as u8, 0];
        header.extend(self.ip_length(header_octets + octets).to_be_bytes());
        header.extend([0x12, 0x34]);
        let (offset, more) = fragment.unwrap_or((0, false));
        header.extend(((offset / 8) as u16 | u16::from(more) << 13).to_be_bytes());
        header.extend([self.hops.unwrap_or(64), UDP, 0, 0]);
        header.extend(source.octets());
        header.extend(destination.octets());
        header.extend(&self.ip_options);
        let checksum = match self.ip_checksum {
            Checksum::Wrong => !sum(&header, 0) ^ 0x0100,
            Checksum::Zero => 0,
            Checksum::Right | Checksum::Partial => !sum(&header, 0),
        };
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    fn headers_v6(
        &self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        fragment: Option<(usize, bool)>,
        octets: usize,
    ) -> Vec<u8> {
        let mut chain: Vec<(u8, Vec<u8>)> = self
            .extensions
            .iter()
            .map(|&number| (number, vec![0, 0, 1, 4, 0, 0, 0, 0]))
            .collect();
        if let Some((offset, more)) = fragment {
            let [high, low] = (offset as u16 | u16::from(more)).to_be_bytes();
            chain.push((FRAGMENT, vec![0, 0, high, low, 0, 0, 0x12, 0x34]));
        }
        let first = chain.first().map_or(UDP, |(number, _)| *number);
        let mut header = vec![0x60, 0, 0, 0];
        header.extend(self.ip_length(8 * chain.len() + octets).to_be_bytes());
        header.extend([first, self.hops.unwrap_or(64)]);
        header.extend(source.octets());
        header.extend(destination.octets());
        for (place, (_, octets)) in chain.iter().enumerate() {
            header.push(chain.get(place + 1).map_or(UDP, |(number, _)| *number));
            header.extend(&octets[1..]);
        }
        header
    }

    fn ip_length(&self, octets: usize) -> u16 {
        if self.ip_length_zero {
            0
        } else {
            (octets as i32 + self.ip_length_offset) as u16
        }
    }
}

/// Cuts a datagram into `count` pieces at multiples of 8 octets: offset, octets, whether it is the last.
fn pieces(datagram: &[u8], count: usize) -> Vec<(usize, &[u8], bool)> {
    let octets = if count == 1 {
        datagram.len()
    } else {
        datagram.len().div_ceil(count).next_multiple_of(8)
    };
    let chunks: Vec<&[u8]> = datagram.chunks(octets.max(8)).collect();
    let last = chunks.len() - 1;
    chunks
        .into_iter()
        .enumerate()
        .map(|(place, piece)| (place * octets, piece, place == last))
        .collect()
}

/// The pseudo-header of RFC 768 and RFC 8200 section 8.1.
fn pseudo_header(source: IpAddr, destination: IpAddr, udp_octets: usize) -> Vec<u8> {
    let mut pseudo = Vec::with_capacity(40);
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => pseudo.extend(address.octets()),
            IpAddr::V6(address) => pseudo.extend(address.octets()),
        }
    }
    pseudo.extend((udp_octets as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, UDP]);
    pseudo
}

fn udp_checksum(pseudo: &[u8], datagram: &[u8]) -> u16 {
    // RFC 768: "If the computed checksum is zero, it is transmitted as all ones".
    match !sum(datagram, sum(pseudo, 0)) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// True if the checksum in a whole UDP datagram is right for these addresses.
pub fn udp_checksum_is_right(source: IpAddr, destination: IpAddr, datagram: &[u8]) -> bool {
    sum(
        datagram,
        sum(&pseudo_header(source, destination, datagram.len()), 0),
    ) == 0xffff
}

/// The one's complement sum of RFC 1071, folded, not complemented.
pub fn sum(octets: &[u8], start: u16) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut total: u32 = u32::from(start) + octets.chunks(2).map(word).sum::<u32>();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn extension(word: &str) -> Outcome<u8> {
    match word {
        "hop-by-hop" => Ok(0),
        "destination" => Ok(DESTINATION_OPTIONS),
        _ => Err(Failure::new(format!(
            "`{word}` is no extension header: hop-by-hop or destination"
        ))),
    }
}

fn checksum_word(word: &str) -> Outcome<Checksum> {
    match word {
        "wrong" => Ok(Checksum::Wrong),
        "zero" => Ok(Checksum::Zero),
        "partial" => Ok(Checksum::Partial),
        _ => Err(Failure::new(format!(
            "`{word}` is no checksum: wrong, zero or partial"
        ))),
    }
}

fn mac(text: &str) -> Outcome<[u8; 6]> {
    let octets = dns::octets_of_hex(&text.replace(':', ""))?;
    octets
        .try_into()
        .map_err(|_| Failure::new(format!("`{text}` is no MAC address")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(words: &str, source: &str, destination: &str) -> Vec<Vec<u8>> {
        let shape = Shape::from_words(&mut Words::of(words))
            .expect("good words")
            .expect("a frame");
        shape.frames(
            source.parse().expect("address"),
            destination.parse().expect("address"),
            b"0123456789abcdef",
        )
    }

    fn v4(words: &str) -> Vec<Vec<u8>> {
        built(words, "192.0.2.100:1024", "192.0.2.1:53")
    }

    #[test]
    fn an_ordinary_frame_has_right_lengths_and_checksums() {
        let frame = &v4("frame")[0];
        assert_eq!(frame.len(), 14 + 20 + 8 + 16);
        assert_eq!(sum(&frame[14..34], 0), 0xffff);
        assert!(udp_checksum_is_right(
            [192, 0, 2, 100].into(),
            [192, 0, 2, 1].into(),
            &frame[34..]
        ));
        let frame = &built("frame", "[2001:db8::100]:1024", "[2001:db8::1]:53")[0];
        let [source, destination] = [&frame[22..38], &frame[38..54]]
            .map(|octets| IpAddr::from(<[u8; 16]>::try_from(octets).expect("16 octets")));
        assert!(udp_checksum_is_right(source, destination, &frame[54..]));
    }

    #[test]
    fn a_partial_checksum_is_the_sum_of_the_pseudo_header() {
        let frame = &v4("frame.udp-checksum=partial")[0];
        let pseudo = pseudo_header([192, 0, 2, 100].into(), [192, 0, 2, 1].into(), 24);
        assert_eq!(frame[40..42], sum(&pseudo, 0).to_be_bytes());
    }

    #[test]
    fn fragments_join_to_the_datagram() {
        let frames = v4("frame.fragments=2");
        assert_eq!(frames.len(), 2);
        assert_eq!(
            (frames[0].len(), frames[1].len()),
            (14 + 20 + 16, 14 + 20 + 8)
        );
        assert_eq!(frames[0][20..22], [0x20, 0], "more fragments");
        assert_eq!(frames[1][20..22], [0, 2], "at octet 16");
        assert_eq!(v4("frame.fragments=2 frame.backwards")[0], frames[1]);
    }

    #[test]
    fn extension_headers_form_a_chain_that_ends_at_udp() {
        let words = "frame.extensions=hop-by-hop,destination";
        let frame = &built(words, "[2001:db8::100]:1024", "[2001:db8::1]:53")[0];
        assert_eq!(
            (frame[20], frame[54], frame[62]),
            (0, DESTINATION_OPTIONS, UDP)
        );
    }

    #[test]
    fn wrong_words_are_named() {
        for word in [
            "frame.colour=red",
            "frame.udp-checksum=odd",
            "frame.mac=01",
            "frame.extensions=x",
        ] {
            assert!(Shape::from_words(&mut Words::of(word)).is_err(), "{word}");
        }
    }
}
