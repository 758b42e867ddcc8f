//! ipcipher: addresses encrypted to addresses, for logs that others read (https://powerdns.org/ipcipher, which the manual names).
//!
//! IPv4 by ipcrypt, J.-P. Aumasson's permutation of four octets between four parts of the key; IPv6 by AES-128 (FIPS 197),
//! "a straight AES operation … with no further XORing". Called by functions of the configuration alone.

use aes::Aes128;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use sha1::Sha1;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) type Key = [u8; 16];

/// "RFC 2898 with SHA1 as hashing function, `ipcipheripcipher` as salt, 50000 iterations, 16 bytes of key".
pub(super) fn key_of(password: &[u8]) -> Key {
    let mut key = Key::default();
    pbkdf2::pbkdf2_hmac::<Sha1>(password, b"ipcipheripcipher", 50_000, &mut key);
    key
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

fn add(octets: &mut [u8; 4], other: &[u8; 4]) {
    for (octet, other) in octets.iter_mut().zip(other) {
        *octet ^= other;
    }
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

fn encrypted_v6(octets: [u8; 16], key: &Key) -> [u8; 16] {
    let mut block = octets.into();
    Aes128::new(&(*key).into()).encrypt_block(&mut block);
    block.into()
}

fn decrypted_v6(octets: [u8; 16], key: &Key) -> [u8; 16] {
    let mut block = octets.into();
    Aes128::new(&(*key).into()).decrypt_block(&mut block);
    block.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of https://powerdns.org/ipcipher.
    #[test]
    fn published_addresses_are_encrypted_as_published_and_come_back() {
        let plain = *b"some 16-byte key";
        let derived = key_of(b"crypto is not a coin");
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
        assert_eq!(key_of(b""), none);
    }
}
