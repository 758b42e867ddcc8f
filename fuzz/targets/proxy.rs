//! The header of the PROXY protocol, of any octets: nothing panics, no length in it leads beyond what is there or is taken,
//! and what is read is written as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::proxy::{FIXED_LENGTH, Header, LENGTH_MAX, ProxyError, length, parse, write};

fuzz_target!(|octets: &[u8]| {
    // The last two octets say what is taken.
    let (octets, maximum) = match octets.split_last_chunk() {
        Some((octets, maximum)) => (octets, u16::from_be_bytes(*maximum).into()),
        None => (octets, LENGTH_MAX),
    };
    let header = parse(octets, maximum);
    let front = octets.first_chunk::<FIXED_LENGTH>();
    match (&header, front.map(|front| length(front, maximum))) {
        (Ok(header), Some(Ok(length))) => assert_eq!(header.length, length),
        (Err(ProxyError::Truncated), Some(Ok(length))) => assert!(length > octets.len()),
        (Err(error), Some(Err(other))) => assert_eq!(*error, other),
        (Err(ProxyError::Truncated | ProxyError::Signature), None) | (Err(_), Some(Ok(_))) => {}
        (_, front) => panic!("{header:?} of {front:?}"),
    }
    if let Ok(header) = header {
        check(&header, octets, maximum);
    }
});

fn check(header: &Header<'_>, octets: &[u8], maximum: usize) {
    assert!(header.length <= octets.len().min(maximum));
    for cut in 0..header.length {
        assert!(
            parse(&octets[..cut], maximum).is_err(),
            "{cut} octets of it"
        );
    }
    let Some(ends) = header.ends else {
        return assert_eq!(header.values().count(), 0, "of LOCAL nothing counts");
    };
    let mut written = Vec::new();
    // Addresses that are IPv4 in IPv6 take less room.
    write(&mut written, &ends, header.values()).expect("room");
    assert!(written.len() <= header.length);
    let again = parse(&written, LENGTH_MAX).expect("a header");
    assert_eq!((again.length, again.ends), (written.len(), Some(ends)));
    assert!(again.values().eq(header.values()));
}
