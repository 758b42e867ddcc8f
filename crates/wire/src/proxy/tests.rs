use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The document's layout by hand: UDP over IPv4, 192.0.2.9:4242 to 192.0.2.1:53, one value.
const HEADER: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x12\x00\x12\xc0\x00\x02\x09\xc0\x00\x02\x01\x10\x92\x00\x35\xe0\x00\x03abc";

fn ends(source: &str, destination: &str, transport: Transport) -> Ends {
    Ends {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        transport,
    }
}

fn written(ends: &Ends, values: &[(u8, Vec<u8>)]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let values = values.iter().map(|(kind, octets)| Value {
        kind: *kind,
        octets,
    });
    write(&mut out, ends, values).map(|()| out)
}

/// The example with some octets changed.
fn changed(at: usize, octets: &[u8]) -> Vec<u8> {
    let mut header = HEADER.to_vec();
    header[at..at + octets.len()].copy_from_slice(octets);
    header
}

#[test]
fn a_header_is_read_and_written_as_the_document_draws_it() {
    let header = parse(HEADER, 512).expect("a header");
    let said = ends("192.0.2.9:4242", "192.0.2.1:53", Transport::Datagram);
    assert_eq!((header.length, header.ends), (HEADER.len(), Some(said)));
    let values: Vec<_> = header.values().collect();
    let expected = Value {
        kind: 0xe0,
        octets: b"abc",
    };
    assert_eq!(values, [expected]);
    assert_eq!(written(&said, &[(0xe0, b"abc".to_vec())]).unwrap(), HEADER);
    let front = HEADER.first_chunk().unwrap();
    assert_eq!(length(front, 512), Ok(HEADER.len()));
}

#[test]
fn what_follows_the_header_is_not_looked_at() {
    let query = [HEADER, b"query"].concat();
    assert_eq!(parse(&query, 512).unwrap().length, HEADER.len());
}

#[test]
fn a_header_of_two_families_is_ipv6_and_read_back_as_both() {
    let said = ends("192.0.2.9:1", "[2001:db8::1]:53", Transport::Stream);
    let header = written(&said, &[]).unwrap();
    assert_eq!((header[13], header.len()), (0x21, 16 + 36));
    assert_eq!(parse(&header, 512).unwrap().ends, Some(said));
}

#[test]
fn of_local_nothing_but_the_length_counts() {
    assert_eq!(parse(&LOCAL, 16).unwrap().ends, None);
    // Family UNIX, and values that are none.
    let mut local = LOCAL.to_vec();
    (local[13], local[15]) = (0x31, 2);
    assert_eq!(parse(&local, 512), Err(ProxyError::Truncated));
    local.extend([0xff; 2]);
    let header = parse(&local, 512).unwrap();
    assert_eq!((header.length, header.ends), (18, None));
    assert_eq!(header.values().count(), 0);
}

/// F13: hostile headers, each named by what is wrong with it.
#[test]
fn f13_each_fault_has_its_name() {
    let cases = [
        (b"no header, but a query".to_vec(), ProxyError::Signature),
        (
            b"PROXY TCP4 192.0.2.9 192.0.2.1 1 53\r\n".to_vec(),
            ProxyError::Signature,
        ),
        (Vec::new(), ProxyError::Truncated),
        (HEADER[..15].to_vec(), ProxyError::Truncated),
        (HEADER[..30].to_vec(), ProxyError::Truncated),
        (changed(12, &[0x11]), ProxyError::Version(1)),
        (changed(12, &[0x31]), ProxyError::Version(3)),
        (changed(12, &[0x22]), ProxyError::Command(2)),
        (changed(13, &[0x00]), ProxyError::Family(0x00)),
        (changed(13, &[0x10]), ProxyError::Family(0x10)),
        (changed(13, &[0x13]), ProxyError::Family(0x13)),
        (changed(13, &[0x31]), ProxyError::Family(0x31)),
        (changed(13, &[0x42]), ProxyError::Family(0x42)),
        (changed(13, &[0x22]), ProxyError::Addresses(18)),
        (changed(14, &[0, 11]), ProxyError::Addresses(11)),
        (changed(14, &[0, 14]), ProxyError::Value),
        (changed(14, &[0, 17]), ProxyError::Value),
        (changed(29, &[0, 4]), ProxyError::Value),
        (changed(14, &[0xff, 0xff]), ProxyError::TooLong(65_551)),
    ];
    for (octets, error) in cases {
        assert_eq!(parse(&octets, 512), Err(error), "{octets:02x?}");
        assert!(!error.to_string().is_empty());
    }
    let length = HEADER.len();
    assert_eq!(parse(HEADER, length - 1), Err(ProxyError::TooLong(length)));
}

#[test]
fn a_header_longer_than_its_length_can_say_is_not_written() {
    let said = ends("192.0.2.9:1", "192.0.2.1:53", Transport::Datagram);
    let longest = usize::from(u16::MAX) - 12 - 3;
    assert_eq!(
        written(&said, &[(1, vec![0; longest])]).unwrap().len(),
        LENGTH_MAX
    );
    assert_eq!(written(&said, &[(1, vec![0; longest + 1])]), None);
    assert_eq!(written(&said, &[(1, vec![0; 65_536])]), None);
    let mut out = b"before".to_vec();
    let values = [0; 2].map(|kind| Value {
        kind,
        octets: &[0; 40_000],
    });
    assert_eq!(write(&mut out, &said, values.into_iter()), None);
    assert_eq!(out, b"before");
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
        any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).to_canonical()),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        (source, destination) in (address(), address()),
        ports in any::<(u16, u16)>(),
        is_stream in any::<bool>(),
        values in vec((any::<u8>(), vec(any::<u8>(), 0..40)), 0..6),
        rest in vec(any::<u8>(), 0..20),
    ) {
        let transport = if is_stream { Transport::Stream } else { Transport::Datagram };
        let said = Ends {
            source: SocketAddr::new(source, ports.0),
            destination: SocketAddr::new(destination, ports.1),
            transport,
        };
        let header = written(&said, &values).unwrap();
        let bytes = [&header[..], &rest].concat();
        let read = parse(&bytes, header.len()).unwrap();
        prop_assert_eq!((read.length, read.ends), (header.len(), Some(said)));
        let back: Vec<_> = read.values().map(|value| (value.kind, value.octets.to_vec())).collect();
        prop_assert_eq!(back, values);
        prop_assert_eq!(parse(&bytes, header.len() - 1), Err(ProxyError::TooLong(header.len())));
    }

    #[test]
    fn any_octets_are_a_header_within_them_or_an_error(
        is_signed in any::<bool>(),
        rest in vec(any::<u8>(), 0..100),
        maximum in 0_usize..200,
    ) {
        let mut bytes = if is_signed { SIGNATURE.to_vec() } else { Vec::new() };
        bytes.extend(rest);
        if let Ok(header) = parse(&bytes, maximum) {
            prop_assert!(header.length <= bytes.len().min(maximum));
            prop_assert!(header.ends.is_some() || header.values().next().is_none());
        }
    }

    #[test]
    fn a_part_of_a_header_is_none(cut in 0..HEADER.len()) {
        prop_assert_eq!(parse(&HEADER[..cut], 512), Err(ProxyError::Truncated));
    }
}
