//! Frames that are right, and each way of being wrong that a name was given to.

use super::*;
use proptest::prelude::*;
use std::net::{SocketAddrV4, SocketAddrV6};

const CLIENT_MAC: Mac = [2, 0, 0, 0, 0, 1];
const SERVER_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// What [`Headers`] tell of.
#[derive(Clone, Copy, Debug)]
struct Ends {
    source_mac: Mac,
    destination_mac: Mac,
    source: SocketAddr,
    destination: SocketAddr,
    code_point: u32,
}

impl Ends {
    fn headers(&self) -> Headers<'_> {
        Headers {
            source_mac: &self.source_mac,
            destination_mac: &self.destination_mac,
            source: &self.source,
            destination: &self.destination,
            code_point: self.code_point,
        }
    }
}

fn headers(source: &str, destination: &str) -> Ends {
    Ends {
        source_mac: CLIENT_MAC,
        destination_mac: SERVER_MAC,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        code_point: 0,
    }
}

fn headers_v4() -> Ends {
    headers("192.0.2.66:40000", "192.0.2.1:53")
}

fn headers_v6() -> Ends {
    headers("[2001:db8::66]:40000", "[2001:db8::1]:53")
}

fn both() -> [Ends; 2] {
    [headers_v4(), headers_v6()]
}

/// A frame with exactly this payload.
fn frame(headers: &Ends, payload: &[u8]) -> Vec<u8> {
    let start = Family::of(&headers.source).headers_length();
    let mut frame = vec![0; start];
    frame.extend_from_slice(payload);
    assert_eq!(
        write_headers(&mut frame, start, payload.len(), &headers.headers()),
        Some(0)
    );
    frame
}

/// Sets octets and makes the IPv4 header checksum right again.
fn with(mut frame: Vec<u8>, at: usize, octets: &[u8]) -> Vec<u8> {
    frame[at..at + octets.len()].copy_from_slice(octets);
    if frame[12..14] == [8, 0] {
        frame[24..26].fill(0);
        let checksum = Sum::ZERO.bytes(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

/// Makes the UDP checksum what a sender leaves who trusts in a network card.
fn with_partial_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let (addresses, udp) = if frame[12..14] == [8, 0] {
        (26..34, 34)
    } else {
        (22..54, 54)
    };
    let length = u16::try_from(frame.len() - udp).unwrap();
    let sum = Sum::ZERO
        .bytes(&frame[addresses])
        .word(17)
        .word(length)
        .fold();
    frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn error(frame: &[u8]) -> FrameError {
    Packet::parse(frame, false).unwrap_err()
}

/// `www.example.com A`, from the first octet of the Ethernet header, its sums computed outside this crate.
const KNOWN_V4: &[u8] = &[
    0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00, // Ethernet
    0x45, 0, 0, 0x3d, 0, 0, 0x40, 0, 0x40, 0x11, 0xb6, 0x6c, 192, 0, 2, 66, 192, 0, 2,
    1, // IPv4
    0x9c, 0x40, 0, 0x35, 0, 0x29, 0x82, 0x52, // UDP
    0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, // DNS
    3, b'w', b'w', b'w', 7, b'e', b'x', b'a', b'm', b'p', b'l', b'e', 3, b'c', b'o', b'm', 0, 0, 1,
    0, 1,
];

#[test]
fn a_known_frame_is_written_and_parsed() {
    assert_eq!(frame(&headers_v4(), &KNOWN_V4[42..]), KNOWN_V4);
    let packet = Packet::parse(KNOWN_V4, false).unwrap();
    let expected = Packet {
        source: "192.0.2.66:40000".parse().unwrap(),
        destination: "192.0.2.1:53".parse().unwrap(),
        source_mac: CLIENT_MAC,
        destination_mac: SERVER_MAC,
        payload_start: 42,
        payload_length: 33,
        checksum: UdpChecksum::Verified,
    };
    assert_eq!(packet, expected);
    assert_eq!(packet.payload(KNOWN_V4), &KNOWN_V4[42..]);
    assert_eq!(packet.payload(&KNOWN_V4[..74]), b"");
}

#[test]
fn f1_every_prefix_is_refused_and_every_padding_accepted() {
    for headers in both() {
        let whole = frame(&headers, &[7; 33]);
        for length in 0..whole.len() {
            assert!(
                Packet::parse(&whole[..length], true).is_err(),
                "{length} octets"
            );
        }
        let packet = Packet::parse(&whole, false).unwrap();
        for padding in 0..=60 {
            let mut padded = whole.clone();
            padded.extend(std::iter::repeat_n(0xee, padding));
            assert_eq!(
                Packet::parse(&padded, false),
                Ok(packet),
                "{padding} octets behind"
            );
        }
    }
}

#[test]
fn f3_extension_headers_are_named() {
    let whole = frame(&headers_v6(), &[7; 33]);
    for next_header in [0, 43, 50, 51, 60, 135, 139, 140] {
        assert_eq!(
            error(&with(whole.clone(), 20, &[next_header])),
            FrameError::ExtensionHeader
        );
    }
    assert_eq!(error(&with(whole.clone(), 20, &[44])), FrameError::Fragment);
    for protocol in [1, 6, 58, 132, 136] {
        assert_eq!(
            error(&with(whole.clone(), 20, &[protocol])),
            FrameError::NotUdp
        );
    }
}

#[test]
fn f2_fragments_are_named() {
    let whole = frame(&headers_v4(), &[7; 33]);
    for field in [[0x20, 0], [0x00, 1], [0x1f, 0xff], [0x60, 0]] {
        assert_eq!(
            error(&with(whole.clone(), 20, &field)),
            FrameError::Fragment
        );
    }
    for field in [[0, 0], [0x40, 0], [0x80, 0], [0xc0, 0]] {
        assert!(Packet::parse(&with(whole.clone(), 20, &field), false).is_ok());
    }
}

#[test]
fn f4_ip_length_lies() {
    let whole = frame(&headers_v4(), &[7; 33]);
    // Longer than the frame, shorter than IP and UDP headers; then what UDP says does not agree.
    for length in [62_u16, 65_535, 0, 19, 20, 27] {
        assert_eq!(
            error(&with(whole.clone(), 16, &length.to_be_bytes())),
            FrameError::IpLength,
            "{length}"
        );
    }
    for length in [28_u16, 60] {
        assert_eq!(
            error(&with(whole.clone(), 16, &length.to_be_bytes())),
            FrameError::UdpLength,
            "{length}"
        );
    }
    let mut padded = with(whole, 16, &62_u16.to_be_bytes());
    padded.push(0);
    assert_eq!(error(&padded), FrameError::UdpLength);

    let whole = frame(&headers_v6(), &[7; 33]);
    // 0 is what a jumbogram says.
    for length in [42_u16, 65_535, 0, 7] {
        assert_eq!(
            error(&with(whole.clone(), 18, &length.to_be_bytes())),
            FrameError::IpLength,
            "{length}"
        );
    }
    for length in [8_u16, 40] {
        assert_eq!(
            error(&with(whole.clone(), 18, &length.to_be_bytes())),
            FrameError::UdpLength,
            "{length}"
        );
    }
}

#[test]
fn f4_udp_length_lies() {
    for headers in both() {
        let at = Family::of(&headers.source).headers_length() - 4;
        for length in [0_u16, 7, 8, 40, 42, 65_535] {
            let lying = with(frame(&headers, &[7; 33]), at, &length.to_be_bytes());
            assert_eq!(
                error(&lying),
                FrameError::UdpLength,
                "{length} instead of 41"
            );
        }
    }
}

#[test]
fn a_marked_frame_is_good_and_differs_in_nothing_else() {
    for headers in both() {
        let plain = frame(&headers, &[7; 33]);
        let with_code_point = |code_point| {
            let headers = Ends {
                code_point,
                ..headers
            };
            frame(&headers, &[7; 33])
        };
        let marked = with_code_point(46);
        let parsed = Packet::parse(&marked, false).unwrap();
        assert_eq!(parsed, Packet::parse(&plain, false).unwrap());
        // RFC 3246 §2.8: the code point of expedited forwarding is 101110.
        let class = u16::from_be_bytes([marked[14], marked[15]]) << 4 >> 8;
        let octet = match marked[12..14] {
            [8, 0] => marked[15],
            _ => class as u8,
        };
        assert_eq!(octet, 0b1011_1000);
        assert_eq!(with_code_point(0), plain);
        // Six bits: what is above them reaches no other field.
        assert_eq!(with_code_point(0b1100_0000 | 46), marked);
    }
}

#[test]
fn f5_any_flipped_bit_below_ethernet_is_found() {
    for headers in both() {
        let whole = frame(&headers, &[7; 33]);
        // IPv6 sums neither traffic class and flow label nor the hop limit.
        let unsummed =
            |at: usize| Family::of(&headers.source) == Family::V6 && matches!(at, 14..=17 | 21);
        for at in (14..whole.len()).filter(|at| !unsummed(*at)) {
            for bit in 0..8 {
                let mut wrong = whole.clone();
                wrong[at] ^= 1 << bit;
                assert!(
                    Packet::parse(&wrong, false).is_err(),
                    "octet {at}, bit {bit}"
                );
            }
        }
    }
}

#[test]
fn f5_each_bad_checksum_has_its_name() {
    let mut wrong = frame(&headers_v4(), &[7; 33]);
    wrong[24] ^= 1;
    assert_eq!(error(&wrong), FrameError::IpChecksum);
    for headers in both() {
        let mut wrong = frame(&headers, &[7; 33]);
        *wrong.last_mut().unwrap() ^= 1;
        assert_eq!(error(&wrong), FrameError::UdpChecksum);
        assert_eq!(Packet::parse(&wrong, true), Err(FrameError::UdpChecksum));
    }
    let absent = with(frame(&headers_v4(), &[7; 33]), 40, &[0, 0]);
    assert_eq!(
        Packet::parse(&absent, false).unwrap().checksum,
        UdpChecksum::Absent
    );
    let absent = with(frame(&headers_v6(), &[7; 33]), 60, &[0, 0]);
    assert_eq!(error(&absent), FrameError::UdpChecksumAbsent);
}

#[test]
fn f6_martian_sources() {
    for source in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.255.255.255",
        "224.0.0.1",
        "239.1.1.1",
    ] {
        let headers = headers(&format!("{source}:40000"), "192.0.2.1:53");
        assert_eq!(
            error(&frame(&headers, &[7; 33])),
            FrameError::MartianSource,
            "{source}"
        );
    }
    for source in ["255.255.255.255:40000", "192.0.2.1:40000", "192.0.2.1:53"] {
        assert_eq!(
            error(&frame(&headers(source, "192.0.2.1:53"), &[7; 33])),
            FrameError::MartianSource
        );
    }
    for source in ["::", "::1", "ff02::1", "::ffff:192.0.2.66", "2001:db8::1"] {
        let headers = headers(&format!("[{source}]:40000"), "[2001:db8::1]:53");
        assert_eq!(
            error(&frame(&headers, &[7; 33])),
            FrameError::MartianSource,
            "{source}"
        );
    }
    let from_a_group = with(frame(&headers_v4(), &[7; 33]), 6, &[0xff; 6]);
    assert_eq!(error(&from_a_group), FrameError::GroupSourceMac);
}

#[test]
fn f6_source_port_zero() {
    for headers in [
        headers("192.0.2.66:0", "192.0.2.1:53"),
        headers("[2001:db8::66]:0", "[2001:db8::1]:53"),
    ] {
        assert_eq!(
            error(&frame(&headers, &[7; 33])),
            FrameError::SourcePortZero
        );
    }
}

#[test]
fn f41_partial_checksums_only_where_they_are_accepted() {
    for headers in both() {
        let partial = with_partial_checksum(frame(&headers, &[7; 33]));
        assert_eq!(
            Packet::parse(&partial, true).unwrap().checksum,
            UdpChecksum::Partial
        );
        assert_eq!(error(&partial), FrameError::UdpChecksum);
        let full = frame(&headers, &[7; 33]);
        assert_eq!(
            Packet::parse(&full, true).unwrap().checksum,
            UdpChecksum::Verified
        );
    }
}

#[test]
fn what_is_not_plain_ip_and_udp_is_named() {
    let whole = frame(&headers_v4(), &[7; 33]);
    for ethertype in [[0x81, 0], [0x88, 0xa8], [8, 6], [0, 0x2e]] {
        let mut other = whole.clone();
        other[12..14].copy_from_slice(&ethertype);
        assert_eq!(error(&other), FrameError::NotIp);
    }
    assert_eq!(
        error(&with(whole.clone(), 14, &[0x46])),
        FrameError::IpOptions
    );
    assert_eq!(
        error(&with(whole.clone(), 14, &[0x44])),
        FrameError::IpHeaderLength
    );
    assert_eq!(
        error(&with(whole.clone(), 14, &[0x65])),
        FrameError::IpVersion
    );
    assert_eq!(error(&with(whole, 23, &[6])), FrameError::NotUdp);
    let whole = frame(&headers_v6(), &[7; 33]);
    assert_eq!(error(&with(whole, 14, &[0x45])), FrameError::IpVersion);
}

#[test]
fn reasons_are_numbered_in_order_and_named_once() {
    for (number, reason) in FrameError::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, number);
        assert!(!reason.to_string().is_empty());
        let name = reason.name();
        assert!(
            name.bytes()
                .all(|octet| octet.is_ascii_lowercase() || octet == b'-'),
            "{name}"
        );
        assert_eq!(
            FrameError::ALL
                .iter()
                .filter(|other| other.name() == name)
                .count(),
            1
        );
    }
}

#[test]
fn a_query_over_ipv4_leaves_over_ipv6_with_its_payload_where_it_was() {
    let received = frame(&headers_v4(), &[7; 33]);
    let mut chunk = vec![0xcc; 256];
    chunk.extend_from_slice(&received);
    chunk.resize(2048, 0xcc);
    let packet = Packet::parse(&chunk[256..], false).unwrap();
    let payload_start = 256 + usize::from(packet.payload_start);
    let out = headers_v6();
    let start = write_headers(
        &mut chunk,
        payload_start,
        packet.payload_length.into(),
        &out.headers(),
    )
    .unwrap();
    assert_eq!(start, payload_start - 62);
    let sent = Packet::parse(&chunk[start..payload_start + 33], false).unwrap();
    assert_eq!(
        (sent.source, sent.destination),
        (out.source, out.destination)
    );
    assert_eq!(sent.payload(&chunk[start..]), &[7; 33]);
    // Neighbours are untouched.
    assert!(
        chunk[..start]
            .iter()
            .chain(&chunk[payload_start + 33..])
            .all(|octet| *octet == 0xcc)
    );
}

#[test]
fn an_answer_goes_back_where_its_query_came_from() {
    for headers in both() {
        let packet = Packet::parse(&frame(&headers, &[7; 33]), false).unwrap();
        let reply = packet.reply_headers();
        assert_eq!(
            (*reply.source, *reply.destination),
            (headers.destination, headers.source)
        );
        assert_eq!(
            (reply.source_mac, reply.destination_mac),
            (&SERVER_MAC, &CLIENT_MAC)
        );
        assert_eq!(packet.family(), Family::of(&headers.source));
    }
}

#[test]
fn an_answer_has_a_hop_limit_of_our_own() {
    for (headers, hop_limit) in both().into_iter().zip([22, 21]) {
        let mut chunk = with(frame(&headers, &[7; 33]), hop_limit, &[1]);
        let packet = Packet::parse(&chunk, false).unwrap();
        let (reply, start) = (packet.reply_headers(), packet.payload_start.into());
        assert_eq!(write_headers(&mut chunk, start, 33, &reply), Some(0));
        assert_eq!(chunk[hop_limit], 64);
    }
}

#[test]
fn what_has_no_room_is_not_written() {
    let mixed = Ends {
        source: headers_v6().source,
        ..headers_v4()
    };
    for (headers, start, length) in [
        (headers_v4(), 41, 10),
        (headers_v6(), 61, 10),
        (headers_v4(), 42, 59),
        (headers_v4(), 101, 0),
        (headers_v4(), 42, usize::MAX),
        (headers_v4(), usize::MAX, 1),
        (mixed, 70, 10),
    ] {
        let mut chunk = [0xcc; 100];
        assert_eq!(
            write_headers(&mut chunk, start, length, &headers.headers()),
            None,
            "{start} {length}"
        );
        assert_eq!(chunk, [0xcc; 100]);
    }
    // 65,535 is the most that IPv4's total length and UDP's length can say.
    let mut chunk = vec![0; 70_000];
    for (headers, longest) in [(headers_v4(), 65_507), (headers_v6(), 65_527)] {
        assert!(write_headers(&mut chunk, 100, longest, &headers.headers()).is_some());
        assert_eq!(
            write_headers(&mut chunk, 100, longest + 1, &headers.headers()),
            None
        );
    }
}

#[test]
fn f5_a_computed_checksum_of_zero_is_sent_as_all_ones() {
    for headers in both() {
        let checksum_at = Family::of(&headers.source).headers_length() - 2;
        let mut whole = frame(&headers, &[0; 12]);
        // A payload word that is the checksum of the rest makes the whole sum up to all ones, its checksum to 0.
        let word: [u8; 2] = whole[checksum_at..checksum_at + 2].try_into().unwrap();
        let mut payload = [0; 12];
        payload[..2].copy_from_slice(&word);
        whole = frame(&headers, &payload);
        assert_eq!(&whole[checksum_at..checksum_at + 2], &[0xff, 0xff]);
        assert_eq!(
            Packet::parse(&whole, false).unwrap().checksum,
            UdpChecksum::Verified
        );
    }
}

fn any_source_v4() -> impl Strategy<Value = SocketAddr> {
    (any::<[u8; 4]>(), 1_u16..)
        .prop_filter("martian", |(octets, _)| !is_martian_ipv4((*octets).into()))
        .prop_map(|(octets, port)| SocketAddrV4::new(octets.into(), port).into())
}

fn any_source_v6() -> impl Strategy<Value = SocketAddr> {
    (any::<[u8; 16]>(), 1_u16..)
        .prop_filter("martian", |(octets, _)| !is_martian_ipv6((*octets).into()))
        .prop_map(|(octets, port)| SocketAddrV6::new(octets.into(), port, 0, 0).into())
}

fn any_headers() -> impl Strategy<Value = Ends> {
    let ends = prop_oneof![
        (any_source_v4(), any_source_v4()),
        (any_source_v6(), any_source_v6())
    ];
    (any::<Mac>(), any::<Mac>(), ends, 0_u32..64)
        .prop_filter("to itself", |(_, _, (source, destination), _)| {
            source.ip() != destination.ip()
        })
        .prop_map(|(mut source_mac, destination_mac, ends, code_point)| {
            source_mac[0] &= !1;
            let (source, destination) = ends;
            Ends {
                source_mac,
                destination_mac,
                source,
                destination,
                code_point,
            }
        })
}

proptest! {
    #[test]
    fn any_octets_are_parsed_without_panic(octets in prop::collection::vec(any::<u8>(), 0..200), partial: bool) {
        let _ = Packet::parse(&octets, partial);
    }

    #[test]
    fn a_damaged_frame_is_parsed_without_panic(
        headers in any_headers(),
        damage in prop::collection::vec((0_usize..120, any::<u8>()), 0..8),
        length in 0_usize..120,
    ) {
        let mut octets = frame(&headers, &[7; 50]);
        for (at, octet) in damage {
            if let Some(place) = octets.get_mut(at) {
                *place = octet;
            }
        }
        octets.truncate(length);
        if let Ok(packet) = Packet::parse(&octets, true) {
            let end = usize::from(packet.payload_start) + usize::from(packet.payload_length);
            prop_assert!(end <= octets.len());
        }
    }

    #[test]
    fn a_payload_whose_sum_is_known_gets_the_same_headers(
        headers in any_headers(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let expected = frame(&headers, &payload);
        let start = expected.len() - payload.len();
        let mut summed = expected.clone();
        summed[..start].fill(0);
        // Kept in 16 bits, as by whoever has many payloads.
        let sum = Sum::ZERO.word(Sum::ZERO.bytes(&payload).fold());
        prop_assert_eq!(write_headers_summed(&mut summed, start, payload.len(), &headers.headers(), sum), Some(0));
        prop_assert_eq!(summed, expected);
    }

    /// Each case runs all payload lengths, so there need not be many.
    #[test]
    fn what_is_written_is_parsed_again(headers in any_headers(), seed: u8) {
        let payload: Vec<u8> = (0..1400_usize).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
        for length in 12..=payload.len() {
            let whole = frame(&headers, &payload[..length]);
            let packet = Packet::parse(&whole, false).unwrap();
            let read = (packet.source, packet.destination, packet.source_mac, packet.destination_mac);
            let wrote = (headers.source, headers.destination, headers.source_mac, headers.destination_mac);
            prop_assert_eq!(read, wrote);
            prop_assert_eq!(packet.checksum, UdpChecksum::Verified);
            prop_assert_eq!(packet.payload(&whole), &payload[..length]);
            let partial = with_partial_checksum(whole);
            prop_assert_eq!(Packet::parse(&partial, true).map(|packet| packet.checksum), Ok(UdpChecksum::Partial));
        }
    }
}
