//! What goes over the console's connection: nonces, then messages in boxes of libsodium's `crypto_secretbox`
//! (XSalsa20-Poly1305, 256-bit key).
//!
//! ```text
//!  each side, once:     nonce 24
//!  each message:        length 4, big-endian │ box: tag 16, text length-16
//! ```
//!
//! Each side makes both nonces from the two that were sent, so that neither alone decides:
//!
//! ```text
//!  own 24     AAAAAAAAAAAA BBBBBBBBBBBB        reading  AAAAAAAAAAAA DDDDDDDDDDDD
//!  theirs 24  CCCCCCCCCCCC DDDDDDDDDDDD        writing  CCCCCCCCCCCC BBBBBBBBBBBB
//! ```
//!
//! After every message its first four bytes, a big-endian number, count up by one.

use crypto_secretbox::aead::{Aead, KeyInit};
use crypto_secretbox::{Nonce as BoxNonce, XSalsa20Poly1305};
use data_encoding::{BASE64, BASE64_NOPAD};
use std::fmt;
use std::str::FromStr;

/// The bytes of a nonce.
pub const NONCE_LENGTH: usize = 24;

/// The bytes before each box.
pub const LENGTH_LENGTH: usize = 4;

/// How much longer than its text a box is, in bytes.
pub const OVERHEAD: usize = 16;

pub type Nonce = [u8; NONCE_LENGTH];

/// The secret that client and server share: `setKey`.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_LENGTH]);

const KEY_LENGTH: usize = 32;

impl Key {
    /// A new one.
    ///
    /// # Errors
    /// When the kernel gives no random numbers.
    pub fn random() -> std::io::Result<Key> {
        let mut key = [0; KEY_LENGTH];
        fill(&mut key)?;
        Ok(Key(key))
    }

    /// As `setKey` takes it.
    pub fn base64(&self) -> String {
        BASE64.encode(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// What is no key: how many bytes there were, if it was base64 at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadKey(Option<usize>);

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a key is {KEY_LENGTH} bytes in base64, as makeKey() or `openssl rand -base64 {KEY_LENGTH}` print; "
        )?;
        match self.0 {
            Some(bytes) => write!(f, "this one is {bytes} bytes long"),
            None => f.write_str("this is not base64"),
        }
    }
}

impl std::error::Error for BadKey {}

impl FromStr for Key {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Key, BadKey> {
        // Files have keys without the padding, too: one character, for 32 bytes.
        let digits = text.trim();
        let digits = digits.strip_suffix('=').unwrap_or(digits);
        let bytes = BASE64_NOPAD.decode(digits.as_bytes());
        let bytes = bytes.map_err(|_| BadKey(None))?;
        let length = bytes.len();
        let key = bytes.try_into().map_err(|_| BadKey(Some(length)))?;
        Ok(Key(key))
    }
}

/// A nonce to send.
///
/// # Errors
/// When the kernel gives no random numbers.
pub fn nonce() -> std::io::Result<Nonce> {
    let mut nonce = [0; NONCE_LENGTH];
    fill(&mut nonce)?;
    Ok(nonce)
}

fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(bytes).map_err(|error| std::io::Error::other(error.to_string()))
}

/// One side of a connection on which both nonces were exchanged.
pub struct Cipher {
    secretbox: XSalsa20Poly1305,
    reading: Nonce,
    writing: Nonce,
}

/// A box that was not sealed with this key and this nonce: another key, a lost message, somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSealedForUs;

impl Cipher {
    /// The side that sent `own` and received `theirs`.
    pub fn new(key: &Key, own: &Nonce, theirs: &Nonce) -> Cipher {
        Cipher {
            secretbox: XSalsa20Poly1305::new(&key.0.into()),
            reading: halves(own, theirs),
            writing: halves(theirs, own),
        }
    }

    /// The next message: its length, then its box.
    pub fn seal(&mut self, text: &[u8]) -> Vec<u8> {
        let nonce = BoxNonce::from(self.writing);
        count_up(&mut self.writing);
        let sealed = self
            .secretbox
            .encrypt(&nonce, text)
            .expect("a text in memory is shorter than the cipher's limit of 2^70 bytes");
        let mut message = Vec::with_capacity(LENGTH_LENGTH + sealed.len());
        message.extend((sealed.len() as u32).to_be_bytes());
        message.extend(sealed);
        message
    }

    /// The text in the next box that came.
    ///
    /// # Errors
    /// It is not from the other side; nothing that follows can be read.
    pub fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, NotSealedForUs> {
        let nonce = BoxNonce::from(self.reading);
        count_up(&mut self.reading);
        let opened = self.secretbox.decrypt(&nonce, sealed);
        opened.map_err(|_| NotSealedForUs)
    }
}

/// The first half of one, the second of the other.
fn halves(first: &Nonce, second: &Nonce) -> Nonce {
    let mut nonce = *first;
    nonce[NONCE_LENGTH / 2..].copy_from_slice(&second[NONCE_LENGTH / 2..]);
    nonce
}

fn count_up(nonce: &mut Nonce) {
    if let Some(counter) = nonce.first_chunk_mut::<4>() {
        *counter = u32::from_be_bytes(*counter).wrapping_add(1).to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::HEXLOWER;

    /// Keys and nonces of the vectors: bytes that count up.
    fn counting<const N: usize>(start: u8) -> [u8; N] {
        std::array::from_fn(|at| start.wrapping_add(at as u8))
    }

    fn pair() -> (Cipher, Cipher) {
        let key = Key(counting(0));
        let (client, server) = (counting(0x40), counting(0x80));
        (
            Cipher::new(&key, &client, &server),
            Cipher::new(&key, &server, &client),
        )
    }

    /// The example of NaCl's own documentation ("Cryptography in NaCl", section 10: firstkey, nonce, message and box).
    #[test]
    fn boxes_are_those_of_nacl() {
        let hex = |text: &str| HEXLOWER.decode(text.as_bytes()).expect("a test writes hex");
        let key = hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
        let nonce = hex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
        let text = hex(concat!(
            "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c6129",
            "6cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde",
            "048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705"
        ));
        let expected = concat!(
            "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a",
            "c0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae",
            "90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74",
            "e355a5"
        );
        let mut cipher = Cipher::new(
            &Key(key.try_into().unwrap()),
            &[0; NONCE_LENGTH],
            &[0; NONCE_LENGTH],
        );
        cipher.writing = nonce.try_into().unwrap();
        let message = cipher.seal(&text);
        assert_eq!(
            &message[..4],
            ((text.len() + OVERHEAD) as u32).to_be_bytes()
        );
        assert_eq!(HEXLOWER.encode(&message[4..]), expected);
    }

    #[test]
    fn each_side_reads_with_what_the_other_writes() {
        let (client, server) = pair();
        assert_eq!(client.reading, server.writing);
        assert_eq!(client.writing, server.reading);
        assert_eq!(
            HEXLOWER.encode(&client.reading),
            "404142434445464748494a4b8c8d8e8f9091929394959697"
        );
    }

    #[test]
    fn messages_come_through_in_their_order_only() {
        let (mut client, mut server) = pair();
        for text in ["", "showServers()", "x"] {
            let message = client.seal(text.as_bytes());
            assert_eq!(message.len(), LENGTH_LENGTH + OVERHEAD + text.len());
            assert_eq!(server.open(&message[4..]).unwrap(), text.as_bytes());
        }
        let first = client.seal(b"first");
        let second = client.seal(b"second");
        assert_eq!(server.open(&second[4..]), Err(NotSealedForUs));
        assert_eq!(server.open(&first[4..]), Err(NotSealedForUs));
    }

    #[test]
    fn what_was_changed_or_is_short_is_not_opened() {
        let (mut client, _) = pair();
        let message = client.seal(b"rmServer(0)");
        for at in 0..message.len() - LENGTH_LENGTH {
            let mut sealed = message[LENGTH_LENGTH..].to_vec();
            sealed[at] ^= 1;
            assert_eq!(pair().1.open(&sealed), Err(NotSealedForUs));
        }
        for length in 0..OVERHEAD {
            assert_eq!(pair().1.open(&vec![0; length]), Err(NotSealedForUs));
        }
    }

    #[test]
    fn the_first_four_bytes_count() {
        let mut nonce: Nonce = [0xff; NONCE_LENGTH];
        count_up(&mut nonce);
        assert_eq!(nonce[..5], [0, 0, 0, 0, 0xff]);
        count_up(&mut nonce);
        assert_eq!(nonce[..5], [0, 0, 0, 1, 0xff]);
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = Key::random().unwrap();
        assert_eq!(key.base64().parse(), Ok(key.clone()));
        let text = key.base64();
        assert_eq!(text.trim_end_matches('=').parse(), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "Key(…)");
        assert_eq!("AAAA".parse::<Key>(), Err(BadKey(Some(3))));
        assert_eq!("not base64".parse::<Key>(), Err(BadKey(None)));
        assert_eq!(format!("{text}=").parse::<Key>(), Err(BadKey(None)));
    }
}
