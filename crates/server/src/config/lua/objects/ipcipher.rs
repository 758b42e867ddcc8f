//! ipcipher: addresses encrypted to addresses, for logs that others read (https://powerdns.org/ipcipher, which the manual names).
//!
//! IPv4 by ipcrypt, J.-P. Aumasson's permutation of four octets between four parts of the key; IPv6 by AES-128 (FIPS 197),
//! "a straight AES operation … with no further XORing". Neither is for secrets that last; both are slow and small here, and
//! called by functions of the configuration alone.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use std::array::from_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) type Key = [u8; 16];

/// "RFC 2898 with SHA1 as hashing function, `ipcipheripcipher` as salt, 50000 iterations, 16 bytes of key". `None` never
/// comes: HMAC takes keys of any length.
pub(super) fn key_of(password: &[u8]) -> Option<Key> {
    let keyed = Hmac::<Sha1>::new_from_slice(password).ok()?;
    let mac = |message: &[u8]| {
        let mut mac = keyed.clone();
        mac.update(message);
        let mut octets = [0_u8; 20];
        octets.copy_from_slice(&mac.finalize().into_bytes());
        octets
    };
    // RFC 2898 §5.2: U_1 = PRF (P, S || INT (i)); the first block is longer than the key.
    let mut last = mac(b"ipcipheripcipher\x00\x00\x00\x01");
    let mut block = last;
    for _ in 1..50_000 {
        last = mac(&last);
        add(&mut block, &last);
    }
    block.first_chunk().copied()
}

pub(super) fn encrypted(address: IpAddr, key: &Key) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from(encrypted_v4(address.octets(), key)).into(),
        IpAddr::V6(address) => Ipv6Addr::from(encrypted_v6(address.octets(), key)).into(),
    }
}

pub(super) fn decrypted(address: IpAddr, key: &Key) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from(decrypted_v4(address.octets(), key)).into(),
        IpAddr::V6(address) => Ipv6Addr::from(decrypted_v6(address.octets(), key)).into(),
    }
}

/// Adds `other` without carries.
fn add(octets: &mut [u8], other: &[u8]) {
    for (octet, other) in octets.iter_mut().zip(other) {
        *octet ^= other;
    }
}

fn encrypted_v4(mut state: [u8; 4], key: &Key) -> [u8; 4] {
    let (parts, _) = key.as_chunks::<4>();
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            state = permuted(state);
        }
        add(&mut state, part);
    }
    state
}

fn decrypted_v4(mut state: [u8; 4], key: &Key) -> [u8; 4] {
    let (parts, _) = key.as_chunks::<4>();
    for (number, part) in parts.iter().enumerate().rev() {
        add(&mut state, part);
        if number > 0 {
            state = permuted_back(state);
        }
    }
    state
}

fn permuted([mut a, mut b, mut c, mut d]: [u8; 4]) -> [u8; 4] {
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(2) ^ a;
    d = d.rotate_left(5) ^ c;
    a = a.rotate_left(4).wrapping_add(d);
    c = c.wrapping_add(b);
    b = b.rotate_left(3) ^ c;
    d = d.rotate_left(7) ^ a;
    [a, b, c.rotate_left(4), d]
}

fn permuted_back([mut a, mut b, mut c, mut d]: [u8; 4]) -> [u8; 4] {
    c = c.rotate_right(4);
    d = (d ^ a).rotate_right(7);
    b = (b ^ c).rotate_right(3);
    c = c.wrapping_sub(b);
    a = a.wrapping_sub(d).rotate_right(4);
    d = (d ^ c).rotate_right(5);
    b = (b ^ a).rotate_right(2);
    [a.wrapping_sub(b), b, c.wrapping_sub(d), d]
}

/// FIPS 197 §5.1: the state's columns lie one behind the other.
fn encrypted_v6(mut state: [u8; 16], key: &Key) -> [u8; 16] {
    let keys = round_keys(key);
    add(&mut state, &keys[0]);
    for (round, key) in keys.iter().enumerate().skip(1) {
        // SubBytes and ShiftRows: row r turns by r columns.
        state = from_fn(|at| SUBSTITUTES[usize::from(state[(at + 4 * (at % 4)) % 16])]);
        if round < ROUNDS {
            mix_columns(&mut state, [2, 3, 1, 1]);
        }
        add(&mut state, key);
    }
    state
}

/// FIPS 197 §5.3: the same backwards.
fn decrypted_v6(mut state: [u8; 16], key: &Key) -> [u8; 16] {
    let keys = round_keys(key);
    for (round, key) in keys.iter().enumerate().skip(1).rev() {
        add(&mut state, key);
        if round < ROUNDS {
            mix_columns(&mut state, [14, 11, 13, 9]);
        }
        state = from_fn(|at| ORIGINALS[usize::from(state[(at + 12 * (at % 4)) % 16])]);
    }
    add(&mut state, &keys[0]);
    state
}

/// For a key of 128 bits.
const ROUNDS: usize = 10;

/// FIPS 197 §5.2.
fn round_keys(key: &Key) -> [Key; ROUNDS + 1] {
    let mut keys = [*key; ROUNDS + 1];
    let mut constant = 1;
    for round in 1..=ROUNDS {
        let before = keys[round - 1];
        // RotWord and SubWord of the last word.
        let mut word = [13, 14, 15, 12].map(|at| SUBSTITUTES[usize::from(before[at])]);
        word[0] ^= constant;
        constant = doubled(constant);
        for (new, old) in keys[round].chunks_mut(4).zip(before.chunks(4)) {
            add(&mut word, old);
            new.copy_from_slice(&word);
        }
    }
    keys
}

/// FIPS 197 §5.1.3, §5.3.3: each column times a polynomial, whose coefficients these are for the first row.
fn mix_columns(state: &mut [u8; 16], factors: [u8; 4]) {
    let (columns, _) = state.as_chunks_mut::<4>();
    for column in columns {
        let old = *column;
        *column = from_fn(|row| {
            let product = |at: usize| multiplied(old[(row + at) % 4], factors[at]);
            product(0) ^ product(1) ^ product(2) ^ product(3)
        });
    }
}

/// FIPS 197 §4.2: the product modulo x⁸ + x⁴ + x³ + x + 1.
fn multiplied(mut octet: u8, mut factor: u8) -> u8 {
    let mut product = 0;
    while factor != 0 {
        if factor & 1 != 0 {
            product ^= octet;
        }
        octet = doubled(octet);
        factor >>= 1;
    }
    product
}

const fn doubled(octet: u8) -> u8 {
    let carry = if octet & 0x80 != 0 { 0x1b } else { 0 };
    octet << 1 ^ carry
}

/// FIPS 197 §5.1.1: the inverse of each octet, transformed. As 3 generates all octets but 0, its powers meet their inverses
/// on the way.
const SUBSTITUTES: [u8; 256] = {
    let mut table = [0; 256];
    table[0] = 0x63;
    let (mut octet, mut inverse) = (1_u8, 1_u8);
    loop {
        // Times 3, and divided by 3.
        octet ^= doubled(octet);
        inverse ^= inverse << 1;
        inverse ^= inverse << 2;
        inverse ^= inverse << 4;
        if inverse & 0x80 != 0 {
            inverse ^= 0x09;
        }
        let turned = inverse
            ^ inverse.rotate_left(1)
            ^ inverse.rotate_left(2)
            ^ inverse.rotate_left(3)
            ^ inverse.rotate_left(4);
        table[octet as usize] = turned ^ 0x63;
        if octet == 1 {
            break table;
        }
    }
};

/// [`SUBSTITUTES`] backwards.
const ORIGINALS: [u8; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        table[SUBSTITUTES[octet] as usize] = octet as u8;
        octet += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of https://powerdns.org/ipcipher.
    #[test]
    fn published_addresses_are_encrypted_as_published_and_come_back() {
        let plain = *b"some 16-byte key";
        let derived = key_of(b"crypto is not a coin").unwrap();
        for (key, address, expected) in [
            (plain, "127.0.0.1", "114.62.227.59"),
            (plain, "8.8.8.8", "46.48.51.50"),
            (plain, "1.2.3.4", "171.238.15.199"),
            (derived, "198.41.0.4", "139.111.117.167"),
            (derived, "130.161.180.1", "66.235.221.231"),
            (derived, "0.0.0.0", "203.253.152.187"),
            (plain, "::1", "3718:8853:1723:6c88:7e5f:2e60:c79a:2bf"),
            (
                plain,
                "2001:503:ba3e::2:30",
                "64d2:883d:ffb5:dd79:24b:943c:22aa:4ae7",
            ),
            (
                plain,
                "2001:db8::",
                "ce7e:7e39:d282:e7b1:1d6d:5ca1:d4de:246f",
            ),
            (
                derived,
                "2001:db8::",
                "a8f5:16c8:e2ea:23b9:748d:67a2:4107:9d2e",
            ),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let hidden = encrypted(address, &key);
            assert_eq!(hidden.to_string(), expected, "{address}");
            assert_eq!(decrypted(hidden, &key), address);
        }
    }

    #[test]
    fn keys_come_of_passwords_as_published() {
        let none = [
            0xbb, 0x8d, 0xcd, 0x7b, 0xe9, 0xa6, 0xf4, 0x3b, 0x33, 0x04, 0xc6, 0x40, 0xd7, 0xd7,
            0x10, 0x3c,
        ];
        assert_eq!(key_of(b""), Some(none));
    }
}
