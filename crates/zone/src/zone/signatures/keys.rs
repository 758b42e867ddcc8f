//! The keys of a zone, and what they say of a signature.
//!
//! RFC 3110 (RSA keys), 4034 (§2.1: DNSKEY), 5155 (§2: algorithm 7), 5702 (RSA with SHA-2), 6605 (ECDSA), 8080 (Ed25519).

use crate::zone::check::key_of;
use crate::zone::parts::wire_u16;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519,
    RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

/// RFC 4034 §2.1.1: without this flag a key "MUST NOT be used to verify RRSIGs that cover RRsets".
const ZONE_KEY: u16 = 0x0100;
/// RFC 5011 §2.1: such a key signs its own revocation, and counts for nothing else.
const REVOKED: u16 = 0x0080;
/// RFC 4034 §2.1.2.
const PROTOCOL: u8 = 3;

/// A DNSKEY record that verifies signatures.
pub(super) struct Key {
    algorithm: u8,
    tag: u16,
    /// It is not revoked.
    pub(super) may_sign: bool,
    /// `None`: not known here.
    method: Option<Method>,
}

enum Method {
    Plain(UnparsedPublicKey<Vec<u8>>),
    Rsa(RsaPublicKeyComponents<Vec<u8>>, &'static RsaParameters),
}

impl Key {
    /// The data of a DNSKEY record; `None`: it is no key of the zone.
    pub(super) fn read(data: &[u8]) -> Option<Key> {
        let (algorithm, tag) = key_of(data)?;
        let (fields, key) = data.split_first_chunk::<4>()?;
        let flags = wire_u16(fields, 0);
        let is_of_zone = flags & ZONE_KEY != 0 && fields[2] == PROTOCOL;
        is_of_zone.then(|| Key {
            algorithm,
            tag,
            may_sign: flags & REVOKED == 0,
            method: method(algorithm, key),
        })
    }

    /// Whether signatures with this algorithm and tag may be its own.
    pub(super) fn is(&self, algorithm: u8, tag: u16) -> bool {
        (self.algorithm, self.tag) == (algorithm, tag)
    }

    /// Whether a signature is of this message; `None`: its algorithm, or an RSA key of its size, is not known here.
    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> Option<bool> {
        let verified = match self.method.as_ref()? {
            Method::Plain(key) => key.verify(message, signature),
            Method::Rsa(key, parameters) => key.verify(parameters, message, signature),
        };
        Some(verified.is_ok())
    }
}

/// IANA's "DNS Security Algorithm Numbers".
fn method(algorithm: u8, key: &[u8]) -> Option<Method> {
    // RFC 6605 §4: keys are the two coordinates; before them the library wants the octet for "uncompressed".
    let point = || [&[4][..], key].concat();
    match algorithm {
        5 | 7 => rsa(key, &RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY),
        8 => rsa(key, &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
        10 => rsa(key, &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
        13 => {
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point());
            Some(Method::Plain(key))
        }
        14 => {
            let key = UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point());
            Some(Method::Plain(key))
        }
        15 => {
            let key = UnparsedPublicKey::new(&ED25519, key.to_vec());
            Some(Method::Plain(key))
        }
        _ => None,
    }
}

/// RFC 3110 §2: the exponent's length in one octet, or in two behind a zero; the exponent; the modulus. `None`: of a size
/// that the library does not take.
fn rsa(key: &[u8], parameters: &'static RsaParameters) -> Option<Method> {
    let (length, rest) = match key {
        [0, high, low, rest @ ..] => (u16::from_be_bytes([*high, *low]), rest),
        [length, rest @ ..] => (u16::from(*length), rest),
        [] => return None,
    };
    let (e, n) = rest.split_at_checked(length.into())?;
    let (e, n) = (without_zeros(e), without_zeros(n));
    // Exponents of up to 33 bits, moduli of up to 8,192.
    let is_known = match e {
        [] => false,
        [first, _, _, _, _] => *first < 2,
        e => e.len() < 5,
    };
    let is_known = is_known && (128..=1_024).contains(&n.len());
    let (n, e) = (n.to_vec(), e.to_vec());
    is_known.then_some(Method::Rsa(RsaPublicKeyComponents { n, e }, parameters))
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|octet| **octet == 0).count();
    &number[zeros..]
}
