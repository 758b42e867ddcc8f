//! DNS cookies: what a client and a server prove to each other that they have spoken before (RFC 7873), with server
//! cookies that all servers of one address make alike (RFC 9018).
//!
//! ```text
//! option:         client cookie 8 │ server cookie 8 to 32, or nothing
//! server cookie:  version 1 │ reserved 3 │ time 4 │ hash 8        time: seconds since 1970, modulo 2^32
//! hash:           SipHash-2-4 (client cookie │ version │ reserved │ time │ client's address)
//! ```

use crate::bytes::u32_at;
use std::net::IpAddr;

/// Octets of a client cookie.
pub const CLIENT_COOKIE_LENGTH: usize = 8;
/// Octets of the server cookies made here.
pub const SERVER_COOKIE_LENGTH: usize = 16;
/// The one version of RFC 9018.
const VERSION: u8 = 1;
/// RFC 9018 §4.3: "The DNS server SHOULD allow cookies within a 1-hour period in the past".
const AGE_MAX_SECONDS: i32 = 3_600;
/// RFC 9018 §4.3: "and a 5-minute period into the future to allow operation of low-volume clients and some limited
/// time skew".
const AHEAD_MAX_SECONDS: i32 = 300;
/// RFC 9018 §4.3: "The DNS server SHOULD generate a new Server Cookie at least if the received Server Cookie from the
/// client is more than half an hour old".
const FRESH_SECONDS: i32 = 1_800;

/// What makes server cookies nobody else can make.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

/// A secret is not for logs.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The COOKIE option of a query, in octets of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    pub client: [u8; CLIENT_COOKIE_LENGTH],
    /// `None` where there is none, or one of a length that is not made here: somebody else's.
    pub server: Option<[u8; SERVER_COOKIE_LENGTH]>,
}

/// How old a server cookie is that was made with a secret of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// It may be used again.
    Fresh,
    /// It is good, and its client should get another.
    Old,
}

impl Cookie {
    /// Reads the option's octets. `None`: of no length that such an option may have, which RFC 7873 §5.2.2 answers with
    /// FORMERR: "If the COOKIE option is too short to contain a Client Cookie, or … the Server Cookie … is not legal".
    #[must_use]
    pub fn parse(option: &[u8]) -> Option<Cookie> {
        let (client, server) = option.split_first_chunk()?;
        match server.len() {
            0 | 8..=32 => Some(Cookie {
                client: *client,
                server: server.try_into().ok(),
            }),
            _ => None,
        }
    }

    /// When the server cookie says that it was made, in seconds since 1970; anybody may have written that.
    #[must_use]
    pub fn made_at(&self) -> Option<u32> {
        u32_at(self.server.as_ref()?, 4)
    }

    /// Whether the server cookie was made with `secret` for this client's `address` and is neither too old nor from the
    /// future; `time` is now, in seconds since 1970.
    #[must_use]
    pub fn check(&self, secret: &Secret, address: IpAddr, time: u32) -> Option<Age> {
        let server = self.server.as_ref()?;
        let (head, hash) = server.split_at(8);
        if head[0] != VERSION {
            return None;
        }
        // RFC 9018 §4.3: "All comparisons involving these fields MUST use Serial Number Arithmetic".
        let age = time.wrapping_sub(u32_at(head, 4)?) as i32;
        if !(-AHEAD_MAX_SECONDS..=AGE_MAX_SECONDS).contains(&age) {
            return None;
        }
        let expected = self.hash(head, secret, address);
        // Of eight octets no difference in time is seen from afar: they are compared as one word.
        (u64::from_le_bytes(hash.try_into().ok()?) == expected).then_some(
            match age > FRESH_SECONDS {
                true => Age::Old,
                false => Age::Fresh,
            },
        )
    }

    /// A new server cookie for this client.
    #[must_use]
    pub fn make(&self, secret: &Secret, address: IpAddr, time: u32) -> [u8; SERVER_COOKIE_LENGTH] {
        let mut cookie = [0; SERVER_COOKIE_LENGTH];
        cookie[0] = VERSION;
        cookie[4..8].copy_from_slice(&time.to_be_bytes());
        let hash = self.hash(&cookie[..8], secret, address);
        cookie[8..].copy_from_slice(&hash.to_le_bytes());
        cookie
    }

    /// RFC 9018 §4.4.
    fn hash(&self, head: &[u8], secret: &Secret, address: IpAddr) -> u64 {
        let mut input = [0; 32];
        input[..8].copy_from_slice(&self.client);
        input[8..16].copy_from_slice(head);
        let length = match address {
            IpAddr::V4(address) => {
                input[16..20].copy_from_slice(&address.octets());
                20
            }
            IpAddr::V6(address) => {
                input[16..].copy_from_slice(&address.octets());
                32
            }
        };
        siphash(secret, &input[..length])
    }
}

/// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF").
#[must_use]
pub fn siphash(secret: &Secret, input: &[u8]) -> u64 {
    let [low, high] = [0, 8].map(|at| {
        let octets = secret.0[at..at + 8].try_into().expect("eight of sixteen");
        u64::from_le_bytes(octets)
    });
    let mut state = [
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = input.as_chunks::<8>();
    for word in words {
        absorb(&mut state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = input.len() as u8;
    absorb(&mut state, u64::from_le_bytes(last));
    state[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

#[inline]
fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

#[inline]
fn round(state: &mut [u64; 4]) {
    let [a, b, c, d] = state;
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn octets<const N: usize>(hex: &str) -> [u8; N] {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        std::array::from_fn(|at| digit(2 * at))
    }

    /// RFC 9018 appendix A: its secret.
    fn secret() -> Secret {
        Secret(octets("e5e973e5a6b2a43f48e7dc849e37bfcf"))
    }

    /// The vectors of the paper that defines it: key 00 01 … 0f, input 00 01 … .
    #[test]
    fn siphash_is_the_papers() {
        let key = Secret(std::array::from_fn(|at| at as u8));
        let input: [u8; 15] = std::array::from_fn(|at| at as u8);
        assert_eq!(siphash(&key, &input), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash(&key, &[]), 0x726f_db47_dd0e_0e31);
    }

    /// RFC 9018 appendix A.1.
    #[test]
    fn a_first_cookie_is_that_of_the_rfc() {
        let cookie = Cookie::parse(&octets::<8>("2464c4abcf10c957")).unwrap();
        let address = "198.51.100.100".parse().unwrap();
        let made = cookie.make(&secret(), address, 1_559_731_985);
        assert_eq!(made, octets("010000005cf79f111f8130c3eee29480"));
    }

    /// RFC 9018 appendix A.3: what the reserved octets say is part of the hash, and of no other meaning. That cookie is 6,715 s
    /// old when it comes, and §4.3 wants "a 1-hour window in the past".
    #[test]
    fn a_cookie_with_reserved_octets_is_good() {
        let option: [u8; 24] = octets("fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5");
        let cookie = Cookie::parse(&option).unwrap();
        let address = "203.0.113.203".parse().unwrap();
        let time = 1_559_734_700;
        let earlier = time - 4_000;
        assert_eq!(cookie.check(&secret(), address, earlier), Some(Age::Old));
        assert_eq!(cookie.check(&secret(), address, time), None);
        assert_eq!(
            cookie.make(&secret(), address, time),
            octets("010000005cf7a9acf73a7810aca2381e")
        );
    }

    /// RFC 9018 appendix A.4.
    #[test]
    fn a_cookie_over_ipv6_with_the_secret_before() {
        let option: [u8; 24] = octets("22681ab97d52c298010000005cf7c57926556bd0934c72f8");
        let cookie = Cookie::parse(&option).unwrap();
        let address = "2001:db8:220:1:59de:d0f4:8769:82b8".parse().unwrap();
        let before = Secret(octets("dd3bdf9344b678b185a6f5cb60fca715"));
        let after = Secret(octets("445536bcd2513298075a5d379663c962"));
        let time = 1_559_741_961;
        assert_eq!(cookie.check(&before, address, time), Some(Age::Fresh));
        assert_eq!(cookie.check(&after, address, time), None);
        assert_eq!(
            cookie.make(&after, address, time),
            octets("010000005cf7c609a6bb79d16625507a")
        );
    }

    #[test]
    fn a_cookie_is_good_for_an_hour() {
        let client = octets("2464c4abcf10c957");
        let address = "192.0.2.1".parse().unwrap();
        // It was made when 32 bits of seconds were nearly over.
        let made_at = u32::MAX - 10;
        let cookie = Cookie {
            client,
            server: None,
        };
        let server = Some(cookie.make(&secret(), address, made_at));
        let cookie = Cookie { client, server };
        let aged =
            |seconds: i32| cookie.check(&secret(), address, made_at.wrapping_add_signed(seconds));
        assert_eq!([aged(-301), aged(3_601)], [None; 2]);
        assert_eq!([aged(-300), aged(0), aged(1_800)], [Some(Age::Fresh); 3]);
        assert_eq!([aged(1_801), aged(3_600)], [Some(Age::Old); 2]);
        let elsewhere = "192.0.2.2".parse().unwrap();
        assert_eq!(cookie.check(&secret(), elsewhere, made_at), None);
    }

    /// F11: lengths 0 to 41.
    #[test]
    fn f11_an_option_has_a_client_cookie_and_a_whole_server_cookie() {
        for length in 0..=41 {
            let parsed = Cookie::parse(&vec![7; length]);
            let is_legal = length == 8 || (16..=40).contains(&length);
            assert_eq!(parsed.is_some(), is_legal, "{length}");
            assert_eq!(
                parsed.is_some_and(|cookie| cookie.server.is_some()),
                length == 24
            );
        }
    }

    proptest! {
        #[test]
        fn no_octet_of_a_cookie_may_change(at in 0_usize..24, bit in 0_u8..8, time: u32, address: u128) {
            let address = IpAddr::V6(address.into());
            let client = octets("0102030405060708");
            let server = Cookie { client, server: None }.make(&secret(), address, time);
            let mut option = [&client[..], &server].concat();
            prop_assert_eq!(Cookie::parse(&option).unwrap().check(&secret(), address, time), Some(Age::Fresh));
            option[at] ^= 1 << bit;
            prop_assert_eq!(Cookie::parse(&option).unwrap().check(&secret(), address, time), None);
        }
    }
}
