//! HMACs that TSIG may use (RFC 8945 §6, IANA "TSIG Algorithm Names").

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};

/// An algorithm of TSIG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    Md5,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl Algorithm {
    /// Every one, weakest first.
    pub const ALL: [Algorithm; 6] = [
        Algorithm::Md5,
        Algorithm::Sha1,
        Algorithm::Sha224,
        Algorithm::Sha256,
        Algorithm::Sha384,
        Algorithm::Sha512,
    ];

    /// What configurations write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Md5 => "hmac-md5",
            Algorithm::Sha1 => "hmac-sha1",
            Algorithm::Sha224 => "hmac-sha224",
            Algorithm::Sha256 => "hmac-sha256",
            Algorithm::Sha384 => "hmac-sha384",
            Algorithm::Sha512 => "hmac-sha512",
        }
    }

    /// The algorithm of this name: as in [`Algorithm::name`], or `hmac-md5.sig-alg.reg.int`, with or without a dot at the
    /// end, upper or lower case.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Algorithm> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let name = name.strip_suffix(".sig-alg.reg.int").unwrap_or(name);
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// Its name in messages.
    #[must_use]
    pub const fn wire_name(self) -> &'static [u8] {
        match self {
            Algorithm::Md5 => b"\x08hmac-md5\x07sig-alg\x03reg\x03int\x00",
            Algorithm::Sha1 => b"\x09hmac-sha1\x00",
            Algorithm::Sha224 => b"\x0bhmac-sha224\x00",
            Algorithm::Sha256 => b"\x0bhmac-sha256\x00",
            Algorithm::Sha384 => b"\x0bhmac-sha384\x00",
            Algorithm::Sha512 => b"\x0bhmac-sha512\x00",
        }
    }

    /// Octets of a whole MAC.
    #[must_use]
    pub const fn mac_length(self) -> usize {
        match self {
            Algorithm::Md5 => 16,
            Algorithm::Sha1 => 20,
            Algorithm::Sha224 => 28,
            Algorithm::Sha256 => 32,
            Algorithm::Sha384 => 48,
            Algorithm::Sha512 => 64,
        }
    }

    /// A MAC to be fed, keyed with `secret`.
    pub(super) fn keyed(self, secret: &[u8]) -> Digest {
        // RFC 2104 §2: a key may have any length.
        const ANY_LENGTH: &str = "HMAC takes keys of any length";
        match self {
            Algorithm::Md5 => Digest::Md5(Hmac::new_from_slice(secret).expect(ANY_LENGTH)),
            Algorithm::Sha1 => Digest::Sha1(Hmac::new_from_slice(secret).expect(ANY_LENGTH)),
            Algorithm::Sha224 => Digest::Sha224(Hmac::new_from_slice(secret).expect(ANY_LENGTH)),
            Algorithm::Sha256 => Digest::Sha256(Hmac::new_from_slice(secret).expect(ANY_LENGTH)),
            Algorithm::Sha384 => Digest::Sha384(Hmac::new_from_slice(secret).expect(ANY_LENGTH)),
            Algorithm::Sha512 => Digest::Sha512(Hmac::new_from_slice(secret).expect(ANY_LENGTH)),
        }
    }
}

/// A MAC while it is computed.
#[derive(Clone)]
pub(super) enum Digest {
    Md5(Hmac<Md5>),
    Sha1(Hmac<Sha1>),
    Sha224(Hmac<Sha224>),
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
}

/// The same for each kind.
macro_rules! each {
    ($digest:expr, $mac:ident => $what:expr) => {
        match $digest {
            Digest::Md5($mac) => $what,
            Digest::Sha1($mac) => $what,
            Digest::Sha224($mac) => $what,
            Digest::Sha256($mac) => $what,
            Digest::Sha384($mac) => $what,
            Digest::Sha512($mac) => $what,
        }
    };
}

impl Digest {
    pub(super) fn update(&mut self, octets: &[u8]) {
        each!(self, mac => mac.update(octets));
    }

    pub(super) fn finish(self) -> Vec<u8> {
        each!(self, mac => mac.finalize().into_bytes().to_vec())
    }

    /// Whether `mac`, which may be cut, is right; takes the same time wherever it is wrong.
    pub(super) fn verify(self, mac: &[u8]) -> bool {
        each!(self, digest => digest.verify_truncated_left(mac).is_ok())
    }
}
