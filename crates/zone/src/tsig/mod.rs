//! Transaction signatures (RFC 8945): messages signed and verified with a shared secret, single ones and the chains of
//! messages that a transfer has. The time is an argument everywhere: seconds since 1970.
//!
//! ```text
//! TSIG record, the last of a message:
//! key name │ type 250 │ class ANY │ TTL 0 │ length 2 │ algorithm name │ time 6 │ fudge 2 │ MAC length 2 │ MAC …
//!          │ original ID 2 │ error 2 │ length 2 │ other data
//! ```

mod algorithm;
mod record;
mod session;

pub use algorithm::Algorithm;
pub use record::Malformed;
pub use session::{Refusal, Session, TsigError, sign_request, verify_request};

use std::fmt;
use wire::name::{Name, NameBuf};

/// Seconds that clocks may differ: RFC 8945 §10 recommends 300.
pub const FUDGE_SECONDS: u16 = 300;

/// A secret shared with somebody, under a name.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    name: NameBuf,
    algorithm: Algorithm,
    secret: Box<[u8]>,
    mac_length_min: usize,
}

impl Key {
    /// MACs must be whole: see [`Key::accept_truncated`].
    #[must_use]
    pub fn new(name: Name<'_>, algorithm: Algorithm, secret: &[u8]) -> Key {
        Key {
            name: name.to_owned(),
            algorithm,
            secret: secret.into(),
            mac_length_min: algorithm.mac_length(),
        }
    }

    /// MACs of at least so many octets do (RFC 8945 §5.2.2.1), never fewer than ten or half of the algorithm's.
    #[must_use]
    pub fn accept_truncated(self, mac_length_min: usize) -> Key {
        let whole = self.algorithm.mac_length();
        Key {
            mac_length_min: mac_length_min.clamp(record::mac_length_least(self.algorithm), whole),
            ..self
        }
    }

    /// Its name: both sides call it so.
    #[must_use]
    pub fn name(&self) -> Name<'_> {
        self.name.as_name()
    }

    /// What it is used with.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// Without the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} {})", self.name, self.algorithm.name())
    }
}

#[cfg(test)]
mod tests;
