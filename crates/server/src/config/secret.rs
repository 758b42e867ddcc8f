//! Passwords and API keys of the web server: plain, or hashed by scrypt (RFC 7914) in dnsdist's text form.
//!
//! ```text
//!  $scrypt$ln=10,p=1,r=8$SZmi+pjuZ4u7L4jhXIkLww==$VRW7BuYUjSVjkjDIK6J1VB/RWx2s4gbz+YXgflWspf8=
//!          work          salt, base64             digest, base64
//! ```
//!
//! The form is that of the PHC strings, but for the padding of base64, which dnsdist writes and PHC forbids; either is read.

use data_encoding::{BASE64, BASE64_NOPAD};
use scrypt::Params;
use std::fmt;

/// What dnsdist's `hashPassword` writes: 16 bytes of salt, 32 of digest, r = 8, p = 1, N = 1,024.
const SALT: usize = 16;
const DIGEST: usize = 32;
const BLOCK_SIZE: u32 = 8;
const PARALLELISM: u32 = 1;
pub const DEFAULT_WORK_FACTOR: u32 = 1_024;

/// One verification takes at most this much memory: whoever may connect may cause one.
const MEMORY_MAX: u64 = 64 << 20;

const FORM: &str = "$scrypt$ln=10,p=1,r=8$SALT$DIGEST";

/// What somebody has to know.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    Plain(String),
    Hashed(Hash),
}

/// What scrypt made of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash {
    work: Work,
    salt: Vec<u8>,
    digest: Vec<u8>,
}

/// scrypt's N (by its logarithm), r and p.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Work {
    log_n: u8,
    r: u32,
    p: u32,
}

/// Why a text is no hash, or a password cannot be hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretError {
    /// It begins as a hash and goes on otherwise.
    Form,
    /// More than the given number of bytes would be needed to check it.
    Memory(u64),
    /// Not a power of two of at least 2.
    WorkFactor(u32),
    /// The kernel gives no random numbers.
    Random(String),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretError::Form => write!(
                f,
                "what begins with $scrypt$ must be of the form {FORM}, as hashPassword() prints it"
            ),
            SecretError::Memory(bytes) => write!(
                f,
                "to check this hash takes {bytes} bytes of memory, at most {MEMORY_MAX} are given: choose a smaller work factor"
            ),
            SecretError::WorkFactor(factor) => {
                write!(f, "work factor: a power of two expected, got {factor}")
            }
            SecretError::Random(error) => write!(f, "no random numbers for the salt: {error}"),
        }
    }
}

impl std::error::Error for SecretError {}

impl Secret {
    /// A text of the configuration: a hash where it begins as one.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn read(text: &str) -> Result<Secret, SecretError> {
        match text.strip_prefix("$scrypt$") {
            Some(rest) => Hash::read(rest).map(Secret::Hashed),
            None => Ok(Secret::Plain(text.to_owned())),
        }
    }

    /// The same secret, no longer readable in memory (`hashPlaintextCredentials`).
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn hashed(self) -> Result<Secret, SecretError> {
        match self {
            Secret::Plain(text) => Hash::of(&text, DEFAULT_WORK_FACTOR).map(Secret::Hashed),
            hashed @ Secret::Hashed(_) => Ok(hashed),
        }
    }

    /// Whether `given` is it. Takes milliseconds and up to 64 MiB where [`Secret::is_slow`].
    pub fn is(&self, given: &[u8]) -> bool {
        match self {
            Secret::Plain(text) => same(given, text.as_bytes()),
            Secret::Hashed(hash) => {
                let mut digest = vec![0; hash.digest.len()];
                let derived =
                    scrypt::scrypt(given, &hash.salt, &hash.work.parameters(), &mut digest);
                derived.is_ok() && same(&digest, &hash.digest)
            }
        }
    }

    /// Whether a look takes so long that nobody else should wait for it.
    pub fn is_slow(&self) -> bool {
        matches!(self, Secret::Hashed(_))
    }
}

impl Hash {
    /// Hashes a password with random salt.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn of(password: &str, work_factor: u32) -> Result<Hash, SecretError> {
        if work_factor < 2 || !work_factor.is_power_of_two() {
            return Err(SecretError::WorkFactor(work_factor));
        }
        let work = Work {
            log_n: work_factor.ilog2() as u8,
            r: BLOCK_SIZE,
            p: PARALLELISM,
        };
        work.check()?;
        let (mut salt, mut digest) = (vec![0; SALT], vec![0; DIGEST]);
        getrandom::fill(&mut salt).map_err(|error| SecretError::Random(error.to_string()))?;
        scrypt::scrypt(password.as_bytes(), &salt, &work.parameters(), &mut digest)
            .expect("32 bytes are a length that scrypt takes");
        Ok(Hash { work, salt, digest })
    }

    /// What follows `$scrypt$`.
    fn read(text: &str) -> Result<Hash, SecretError> {
        let mut parts = text.split('$');
        let (Some(work), Some(salt), Some(digest), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(SecretError::Form);
        };
        let work = Work::read(work).ok_or(SecretError::Form)?;
        work.check()?;
        let salt = bytes(salt).ok_or(SecretError::Form)?;
        let digest = bytes(digest).filter(|digest| (16..=64).contains(&digest.len()));
        let digest = digest.ok_or(SecretError::Form)?;
        Ok(Hash { work, salt, digest })
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Work { log_n, r, p } = self.work;
        let (salt, digest) = (BASE64.encode(&self.salt), BASE64.encode(&self.digest));
        write!(f, "$scrypt$ln={log_n},p={p},r={r}${salt}${digest}")
    }
}

/// Neither secrets nor their hashes belong into a log.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Secret::Plain(_) => "Secret(plain)",
            Secret::Hashed(_) => "Secret(hashed)",
        })
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(…)")
    }
}

impl Work {
    /// `ln=10,p=1,r=8`, in any order.
    fn read(text: &str) -> Option<Work> {
        let (mut log_n, mut r, mut p) = (None, None, None);
        for part in text.split(',') {
            let (name, value) = part.split_once('=')?;
            let value: u32 = value.parse().ok()?;
            match name {
                "ln" => log_n = Some(u8::try_from(value).ok()?),
                "r" => r = Some(value),
                "p" => p = Some(value),
                _ => return None,
            }
        }
        Some(Work {
            log_n: log_n?,
            r: r?,
            p: p?,
        })
    }

    /// RFC 7914, section 6: 128 · r · N bytes for the mixing, 128 · r · p for the blocks.
    fn check(self) -> Result<(), SecretError> {
        let (r, p) = (u64::from(self.r), u64::from(self.p));
        let n = 1_u64.checked_shl(self.log_n.into()).unwrap_or(u64::MAX);
        let memory = n.saturating_add(p).saturating_mul(r.saturating_mul(128));
        if memory > MEMORY_MAX {
            return Err(SecretError::Memory(memory));
        }
        let valid = self.log_n > 0 && Params::new(self.log_n, self.r, self.p).is_ok();
        valid.then_some(()).ok_or(SecretError::Form)
    }

    fn parameters(self) -> Params {
        Params::new(self.log_n, self.r, self.p).expect("they were checked when they were read")
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    BASE64_NOPAD
        .decode(text.trim_end_matches('=').as_bytes())
        .ok()
}

/// Compares in a time that tells nothing but the lengths.
fn same(given: &[u8], expected: &[u8]) -> bool {
    let pairs = given.iter().zip(expected);
    let difference = pairs.fold(0, |difference, (one, other)| difference | (one ^ other));
    given.len() == expected.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What dnsdist-console's documentation prints for the password `bonjour`.
    const OF_BONJOUR: &str = "$scrypt$ln=10,p=1,r=8$SZmi+pjuZ4u7L4jhXIkLww==$VRW7BuYUjSVjkjDIK6J1VB/RWx2s4gbz+YXgflWspf8=";

    #[test]
    fn dnsdists_hashes_are_checked() {
        let secret = Secret::read(OF_BONJOUR).unwrap();
        assert!(secret.is_slow());
        assert!(secret.is(b"bonjour"));
        assert!(!secret.is(b"Bonjour"));
        assert!(!secret.is(OF_BONJOUR.as_bytes()), "the hash is no password");
        let Secret::Hashed(hash) = secret else {
            panic!("not hashed")
        };
        assert_eq!(hash.to_string(), OF_BONJOUR);
        assert!(Secret::read(&OF_BONJOUR.replace('=', "")).is_err());
        let bare = OF_BONJOUR.replace("==$", "$");
        assert!(
            Secret::read(bare.trim_end_matches('='))
                .unwrap()
                .is(b"bonjour")
        );
    }

    #[test]
    fn what_is_hashed_is_known_again_and_never_written_twice_the_same() {
        let (one, other) = (Hash::of("a", 1_024).unwrap(), Hash::of("a", 1_024).unwrap());
        assert_ne!(one, other, "salt");
        let read = Secret::read(&one.to_string()).unwrap();
        assert!(read.is(b"a") && !read.is(b"b"));
        assert!(Secret::Plain("a".to_owned()).hashed().unwrap().is(b"a"));
    }

    #[test]
    fn plain_ones_are_compared_whole() {
        let secret = Secret::read("se:cret").unwrap();
        assert!(secret.is(b"se:cret") && !secret.is(b"se:cre") && !secret.is(b""));
        assert_eq!(format!("{secret:?}"), "Secret(plain)");
    }

    #[test]
    fn what_would_take_too_much_or_is_half_a_hash_is_refused() {
        for (text, error) in [
            ("$scrypt$", SecretError::Form),
            ("$scrypt$ln=10,p=1,r=8$AAAA", SecretError::Form),
            ("$scrypt$ln=10,p=1$AAAA$AAAA", SecretError::Form),
            ("$scrypt$ln=10,p=1,r=8$AAAA$?", SecretError::Form),
            (
                "$scrypt$ln=30,p=1,r=8$AAAA$AAAA",
                SecretError::Memory(((1 << 30) + 1) * 1_024),
            ),
        ] {
            assert_eq!(Secret::read(text), Err(error), "{text}");
        }
        assert_eq!(Hash::of("a", 1_000), Err(SecretError::WorkFactor(1_000)));
    }
}
