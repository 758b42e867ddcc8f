//! Frames made good enough to get past the checksums, which no fuzzer guesses.

use wire::checksum::Sum;

/// Writes right checksums into whatever looks like UDP over IPv4 or IPv6.
pub fn repair(frame: &mut [u8]) {
    let Some(ethertype) = frame.get(12..14) else {
        return;
    };
    match ethertype {
        [0x08, 0x00] => repair_ipv4(&mut frame[14..]),
        [0x86, 0xdd] => repair_ipv6(&mut frame[14..]),
        _ => {}
    }
}

fn repair_ipv4(packet: &mut [u8]) {
    let Some((header, datagram)) = packet.split_at_mut_checked(20) else {
        return;
    };
    header[10..12].fill(0);
    let sum = Sum::ZERO.bytes(header).checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    repair_udp(datagram, Sum::ZERO.bytes(&header[12..20]));
}

fn repair_ipv6(packet: &mut [u8]) {
    if let Some((header, datagram)) = packet.split_at_mut_checked(40) {
        repair_udp(datagram, Sum::ZERO.bytes(&header[8..40]));
    }
}

/// `addresses`: the sum of both IP addresses.
fn repair_udp(datagram: &mut [u8], addresses: Sum) {
    let Some(length) = datagram
        .get(4..6)
        .map(|field| u16::from_be_bytes([field[0], field[1]]))
    else {
        return;
    };
    let Some(datagram) = datagram.get_mut(..length.into()).filter(|it| it.len() >= 8) else {
        return;
    };
    datagram[6..8].fill(0);
    let sum = addresses.word(17).word(length).bytes(datagram).checksum();
    // RFC 768: 0 means that there is none.
    let sum = if sum == 0 { 0xffff } else { sum };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
}
