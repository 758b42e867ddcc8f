//! Both ends of the queries on the wire, and frames between them.
//!
//! ```text
//!  0 Ethernet 14 │ IPv4 20 or IPv6 40 │ UDP 8 │ message …            the frame starts with its chunk: fewest cache lines
//!  0 MACs 12 │ VLAN tag 4 │ EtherType 2 │ IP … │ UDP 8 │ message …   with a tag (IEEE 802.1Q)
//! ```

use crate::failure::{Failure, Outcome};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use wire::checksum::Sum;
use wire::frame::{Family, FrameError, Headers, Mac, Packet, write_headers_summed};
use xsk::Sources;

/// EtherType of a frame with a VLAN tag.
const ETHERTYPE_VLAN: u16 = 0x8100;
const VLAN_LENGTH: usize = 4;
/// Octets of both MAC addresses.
const MACS_LENGTH: usize = 12;

/// A server that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub server: SocketAddr,
    /// The next hop's address on the link.
    pub mac: Mac,
    /// The addresses that queries to it come from, of its version of IP.
    pub sources: Sources,
}

/// Who asks, and who is asked.
#[derive(Clone, Debug)]
pub struct Addressing {
    /// The servers, one at least. They are asked evenly.
    pub targets: Vec<Target>,
    /// The first source port; lanes have `2^port_bits` each, one lane's behind the other's.
    pub first_port: u16,
    /// Number of ports of a lane, as a power of two.
    pub port_bits: u32,
    /// Our address on the link.
    pub local_mac: Mac,
    /// The tag of all frames.
    pub vlan: Option<u16>,
}

/// Spreads a range of ports over lanes: how many each has, as a power of two.
///
/// # Errors
/// Fewer ports than lanes.
pub fn port_bits(ports: &RangeInclusive<u16>, lanes: usize) -> Outcome<u32> {
    let each = ports.len() / lanes;
    if each == 0 {
        return Err(Failure::new(format!(
            "{} source ports for {lanes} sending threads: each needs one at least",
            ports.len()
        )));
    }
    Ok(each.ilog2().min(crate::flights::PORT_BITS_MAX))
}

impl Addressing {
    /// Octets in front of a message, the mean of all targets: Ethernet, the tag where there is one, IP, UDP.
    pub fn mean_headers_length(&self) -> usize {
        let tag = self.vlan.map_or(0, |_| VLAN_LENGTH);
        let lengths = self.targets.iter().map(Target::headers_length);
        tag + lengths.sum::<usize>() / self.targets.len()
    }

    /// Writes the frame of a query into a chunk, from its start; returns the frame's length. The message's sum is that of
    /// [`crate::questions::summed`]: to read the message again, just copied, would cost more than all of its headers. `port`
    /// counts from the lane's first; `number` decides which source and target it has, see [`source`](Addressing::source).
    ///
    /// # Panics
    /// Where the chunk is too small: what [`crate::questions::Carrier::Frame`] carries fits.
    #[inline]
    pub fn write(
        &self,
        chunk: &mut [u8],
        (message, mut sum): (&[u8], Sum),
        (lane, port, id): (usize, u16, u16),
        number: u64,
    ) -> u32 {
        let target = self.target(number);
        let tag = self.vlan.map_or(0, |_| VLAN_LENGTH);
        let start = tag + target.headers_length();
        let end = start + message.len();
        chunk[start..end].copy_from_slice(message);
        if message.len() >= 2 {
            chunk[start..start + 2].copy_from_slice(&id.to_be_bytes());
            sum = sum.word(id);
        }
        let port = self.first_port + ((lane as u16) << self.port_bits) + port;
        let headers = Headers {
            source_mac: &self.local_mac,
            destination_mac: &target.mac,
            source: &SocketAddr::new(source_of(target.sources, number), port),
            destination: &target.server,
            code_point: 0,
        };
        write_headers_summed(chunk, start, message.len(), &headers, sum)
            .expect("chunks have room, and sources are of their target's version of IP");
        if let Some(vlan) = self.vlan {
            insert_tag(chunk, vlan);
        }
        end as u32
    }

    /// Parses and checks a frame that came in; takes a tag out first.
    ///
    /// # Errors
    /// Why it is no good datagram.
    #[inline]
    pub fn read<'f>(
        &self,
        frame: &'f mut [u8],
        accept_partial: bool,
    ) -> Result<(Packet, &'f [u8]), FrameError> {
        let frame = match self.vlan {
            None => frame,
            Some(_) if frame.len() < MACS_LENGTH + VLAN_LENGTH => return Err(FrameError::TooShort),
            Some(_) => {
                frame.copy_within(..MACS_LENGTH, VLAN_LENGTH);
                &mut frame[VLAN_LENGTH..]
            }
        };
        let packet = Packet::parse(frame, accept_partial)?;
        Ok((packet, packet.payload(frame)))
    }

    /// The lane that owns one of our ports, and which of its ports it is; `None`: not ours.
    #[inline]
    pub fn lane_of(&self, port: u16, lanes: usize) -> Option<(usize, u16)> {
        let offset = port.checked_sub(self.first_port)?;
        let lane = usize::from(offset) >> self.port_bits;
        (lane < lanes).then_some((lane, offset & ((1 << self.port_bits) - 1)))
    }

    /// The server that the query of this number goes to.
    #[inline]
    pub fn target(&self, number: u64) -> &Target {
        match self.targets.as_slice() {
            [only] => only,
            // Not the bits that choose the source: every source asks every target.
            all => &all[(spread(!number) % all.len() as u64) as usize],
        }
    }

    /// The source address of the query of this number (of which only the bits of port and ID count).
    #[inline]
    pub fn source(&self, number: u64) -> IpAddr {
        source_of(self.target(number).sources, number)
    }
}

impl Target {
    /// Octets of Ethernet, IP and UDP in front of a message.
    #[inline]
    fn headers_length(&self) -> usize {
        Family::of(&self.server).headers_length()
    }
}

/// The source address of the query of this number: the addresses of a network evenly, whatever carries the queries.
#[inline]
pub fn source_of(sources: Sources, number: u64) -> IpAddr {
    let Sources { address, prefix } = sources;
    match address {
        IpAddr::V4(network) if prefix < 32 => host_of_v4(network, prefix, number).into(),
        IpAddr::V6(network) if prefix < 128 => host_of_v6(network, prefix, number).into(),
        single => single,
    }
}

/// One host of a network, each as often as any other.
#[inline]
fn host_of_v4(network: Ipv4Addr, prefix: u8, number: u64) -> Ipv4Addr {
    let hosts = 1_u64 << (32 - prefix);
    let first = network.to_bits() & !((hosts - 1) as u32);
    // Neither the network's own address nor everybody's (RFC 1122 §3.2.1.3), but for links of two (RFC 3021).
    let kept = if prefix == 31 { 0 } else { 1 };
    let host = kept + spread(number) % (hosts - 2 * kept);
    Ipv4Addr::from_bits(first | host as u32)
}

/// The same; of a network of more than 2^64 hosts, the first so many. The first address is its routers' (RFC 4291 §2.6.1), but
/// on links of two (RFC 6164).
#[inline]
fn host_of_v6(network: Ipv6Addr, prefix: u8, number: u64) -> Ipv6Addr {
    let hosts = u128::MAX >> prefix;
    let host = match u64::try_from(hosts).unwrap_or(u64::MAX) {
        1 => spread(number) & 1,
        others => 1 + spread(number) % others,
    };
    Ipv6Addr::from_bits(network.to_bits() & !hosts | u128::from(host))
}

/// The finaliser of SplitMix64: neighbouring numbers come out far from each other.
#[inline]
fn spread(number: u64) -> u64 {
    let mut random = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    random = (random ^ random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    random = (random ^ random >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    random ^ random >> 31
}

/// Moves the MAC addresses four octets forward and puts the tag behind them.
fn insert_tag(chunk: &mut [u8], vlan: u16) {
    chunk.copy_within(VLAN_LENGTH..VLAN_LENGTH + MACS_LENGTH, 0);
    chunk[MACS_LENGTH..MACS_LENGTH + 2].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
    chunk[MACS_LENGTH + 2..MACS_LENGTH + 4].copy_from_slice(&vlan.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::{Questions, summed};
    use proptest::prelude::*;
    use wire::frame::UdpChecksum;

    fn addressing(target: &str, source: &str, prefix: u8) -> Addressing {
        Addressing {
            targets: vec![Target {
                server: target.parse().unwrap(),
                mac: [2, 0, 0, 0, 0, 2],
                sources: Sources {
                    address: source.parse().unwrap(),
                    prefix,
                },
            }],
            first_port: 16384,
            port_bits: 4,
            local_mac: [2, 0, 0, 0, 0, 1],
            vlan: None,
        }
    }

    #[test]
    fn a_frame_has_both_ends_the_id_and_right_checksums() {
        for (target, source) in [
            ("192.0.2.1:53", "192.0.2.9"),
            ("[2001:db8::1]:53", "2001:db8::9"),
        ] {
            let prefix = if target.starts_with('[') { 128 } else { 32 };
            let addressing = addressing(target, source, prefix);
            let mut chunk = [0; 2048];
            let length =
                addressing.write(&mut chunk, summed(b"\0\0query"), (2, 3, 0x1234), 7) as usize;
            let (packet, payload) = addressing.read(&mut chunk[..length], false).unwrap();
            assert_eq!(packet.destination, addressing.targets[0].server);
            assert_eq!(
                packet.source,
                SocketAddr::new(source.parse().unwrap(), 16384 + 2 * 16 + 3)
            );
            assert_eq!(packet.destination_mac, addressing.targets[0].mac);
            assert_eq!(
                (payload, packet.checksum),
                (&b"\x12\x34query"[..], UdpChecksum::Verified)
            );
            assert_eq!(addressing.lane_of(packet.source.port(), 4), Some((2, 3)));
        }
    }

    #[test]
    fn targets_of_both_versions_of_ip_are_asked_each_from_an_address_of_its_own() {
        let mut both = addressing("192.0.2.1:53", "192.0.2.9", 32);
        let second = addressing("[2001:db8::1]:53", "2001:db8::9", 128);
        both.targets.extend(second.targets);
        assert_eq!(both.mean_headers_length(), (42 + 62) / 2);
        let mut asked = [0; 2];
        for number in 0..100 {
            let mut chunk = [0; 2048];
            let length = both.write(&mut chunk, summed(b"\0\0query"), (0, 0, 1), number) as usize;
            let (packet, _) = both.read(&mut chunk[..length], false).unwrap();
            assert_eq!(packet.destination, both.target(number).server);
            assert_eq!(packet.source.ip(), both.source(number));
            asked[usize::from(packet.source.is_ipv6())] += 1;
        }
        assert!(asked.iter().all(|asked| *asked > 30), "{asked:?}");
    }

    #[test]
    fn a_tag_goes_in_and_comes_out() {
        let mut addressing = addressing("192.0.2.1:53", "192.0.2.9", 32);
        let mut plain = [0; 2048];
        let untagged = addressing.write(&mut plain, summed(b"\0\0query"), (0, 0, 1), 0) as usize;
        addressing.vlan = Some(7);
        let mut chunk = [0; 2048];
        let length = addressing.write(&mut chunk, summed(b"\0\0query"), (0, 0, 1), 0) as usize;
        assert_eq!(length, untagged + 4);
        assert_eq!(
            length,
            addressing.mean_headers_length() + b"\0\0query".len()
        );
        assert_eq!(chunk[12..16], [0x81, 0, 0, 7]);
        assert_eq!(
            [&chunk[..12], &chunk[16..length]].concat(),
            plain[..untagged]
        );
        assert!(addressing.read(&mut chunk[..length], false).is_ok());
        assert_eq!(
            addressing.read(&mut chunk[..15], false),
            Err(FrameError::TooShort)
        );
    }

    #[test]
    fn ports_that_are_not_ours_have_no_lane() {
        let addressing = addressing("192.0.2.1:53", "192.0.2.9", 32);
        assert_eq!(addressing.lane_of(16383, 2), None);
        assert_eq!(addressing.lane_of(16384 + 31, 2), Some((1, 15)));
        assert_eq!(addressing.lane_of(16384 + 32, 2), None);
    }

    #[test]
    fn ports_are_shared_out_in_powers_of_two() {
        assert_eq!(port_bits(&(1000..=1999), 3).unwrap(), 8);
        assert_eq!(port_bits(&(1..=65535), 1).unwrap(), 14);
        assert!(port_bits(&(1..=1), 2).is_err());
    }

    #[test]
    fn one_address_is_that_address() {
        for (source, prefix) in [("192.0.2.9", 32), ("2001:db8::9", 128)] {
            let addressing = addressing("192.0.2.1:53", source, prefix);
            assert_eq!(addressing.source(99), source.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn a_small_prefix_is_used_evenly_without_its_first_and_last_address() {
        let addressing = addressing("192.0.2.1:53", "192.0.2.97", 29);
        let mut uses = std::collections::HashMap::new();
        for number in 0..6000 {
            *uses.entry(addressing.source(number)).or_insert(0) += 1;
        }
        let mut hosts: Vec<_> = uses.keys().copied().collect();
        hosts.sort();
        let expected: Vec<IpAddr> = (97..=102)
            .map(|last| IpAddr::from([192, 0, 2, last]))
            .collect();
        assert_eq!(hosts, expected);
        assert!(
            uses.values().all(|uses| (850..1150).contains(uses)),
            "{uses:?}"
        );
    }

    #[test]
    fn a_small_prefix_of_ipv6_is_used_without_its_routers_address() {
        for (prefix, expected) in [(126, &[1, 2, 3][..]), (127, &[0, 1][..])] {
            let addressing = addressing("[2001:db8::1]:53", "2001:db8::", prefix);
            let host = |number| match addressing.source(number) {
                IpAddr::V6(address) => address.octets()[15],
                IpAddr::V4(address) => panic!("{address}"),
            };
            let hosts: std::collections::BTreeSet<u8> = (0..1000).map(host).collect();
            assert!(hosts.iter().eq(expected), "/{prefix}: {hosts:?}");
        }
    }

    #[test]
    fn targets_are_asked_evenly_from_every_source() {
        let mut addressing = addressing("192.0.2.1:53", "192.0.2.96", 30);
        for last in [2, 3] {
            addressing.targets.push(Target {
                server: SocketAddr::from(([192, 0, 2, last], 53)),
                mac: [2, 0, 0, 0, 0, last],
                sources: addressing.targets[0].sources,
            });
        }
        let mut uses = std::collections::HashMap::new();
        for number in 0..6000 {
            let pair = (addressing.source(number), addressing.target(number).server);
            *uses.entry(pair).or_insert(0) += 1;
        }
        assert_eq!(uses.len(), 6);
        assert!(
            uses.values().all(|uses| (850..1150).contains(uses)),
            "{uses:?}"
        );
        let mut chunk = [0; 2048];
        let length = addressing.write(&mut chunk, summed(b"\0\0query"), (0, 0, 1), 5) as usize;
        let (packet, _) = addressing.read(&mut chunk[..length], false).unwrap();
        assert_eq!(packet.destination, addressing.target(5).server);
        assert_eq!(packet.destination_mac, addressing.target(5).mac);
    }

    proptest! {
        #[test]
        fn a_message_summed_when_it_was_read_has_the_checksum_of_one_read_again(
            message in prop::collection::vec(any::<u8>(), 0..80),
            id in any::<u16>(),
            is_four in any::<bool>(),
        ) {
            let addressing = if is_four {
                addressing("192.0.2.1:53", "192.0.2.9", 32)
            } else {
                addressing("[2001:db8::1]:53", "2001:db8::9", 128)
            };
            let mut questions = Questions::default();
            questions.push(&message).unwrap();
            let mut chunk = [0; 2048];
            let length = addressing.write(&mut chunk, questions.get_summed(0), (0, 0, id), 0) as usize;
            let (packet, payload) = addressing.read(&mut chunk[..length], false).unwrap();
            prop_assert_eq!(packet.checksum, UdpChecksum::Verified);
            let mut sent = message;
            if let Some(place) = sent.first_chunk_mut::<2>() {
                *place = id.to_be_bytes();
            }
            prop_assert_eq!(payload, sent);
        }

        #[test]
        fn sources_stay_within_their_prefix(number in any::<u64>(), prefix in 0_u8..=32) {
            let four = addressing("192.0.2.1:53", "198.51.100.77", prefix);
            let IpAddr::V4(address) = four.source(number) else { panic!() };
            let base = Ipv4Addr::new(198, 51, 100, 77);
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            prop_assert_eq!(address.to_bits() & mask, base.to_bits() & mask);
            let six = addressing("[2001:db8::1]:53", "2001:db8::77", 96 + prefix);
            let IpAddr::V6(address) = six.source(number) else { panic!() };
            prop_assert_eq!(&address.octets()[..12], &[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
    }
}
