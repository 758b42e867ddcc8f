//! Domain names (RFC 1035 §3.1, §4.1.4): borrowed from a message ([`Name`]), owned ([`NameBuf`]), compressed
//! ([`compressed`]).
//!
//! ```text
//! 3 w w w 7 e x a m p l e 3 c o m 0        17 octets, 3 labels; the 0 is the root
//! ```
//!
//! Upper and lower case ASCII letters are the same in comparisons and hashes, and are kept everywhere else (RFC 4343).

pub mod compressed;
mod owned;
mod text;

pub use owned::NameBuf;
pub use text::NameTextError;

use std::fmt;
use std::hash::{Hash, Hasher};

/// RFC 1035 §2.3.4: "names 255 octets or less", the length octets and the root's counted.
pub const NAME_LENGTH_MAX: usize = 255;
/// RFC 1035 §2.3.4: "labels 63 octets or less".
pub const LABEL_LENGTH_MAX: usize = 63;
/// What fits in 255 octets: 127 labels of one octet, and the root.
pub const LABELS_MAX: usize = 127;

/// An uncompressed name, its root octet included. What is in one was checked: labels of at most 63 octets, 255 in all.
#[derive(Clone, Copy)]
pub struct Name<'m>(&'m [u8]);

/// Why bytes are not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The bytes end before the name does.
    Truncated,
    /// More than 255 octets.
    TooLong,
    /// The two high bits of a length octet are 01 or 10, which mean nothing (RFC 1035 §4.1.4; RFC 6891 §5 for 01).
    LabelType,
    /// A compression pointer where none may be.
    Compressed,
    /// A compression pointer that does not point backwards to a place behind the header, or too many of them.
    Pointer,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::Truncated => {
                "name runs past the end of its message: it ends with a zero octet"
            }
            NameError::TooLong => "name longer than 255 octets (RFC 1035 §2.3.4)",
            NameError::LabelType => {
                "label type 01 or 10: only lengths up to 63 and pointers are defined"
            }
            NameError::Compressed => "compression pointer in a name that may not be compressed",
            NameError::Pointer => {
                "compression pointer that does not lead back to an earlier name of the message"
            }
        })
    }
}

impl std::error::Error for NameError {}

/// Length in octets and number of labels of the uncompressed name that `bytes` begin with.
#[inline]
pub(crate) fn measure(bytes: &[u8]) -> Result<(usize, u8), NameError> {
    let mut at = 0;
    let mut labels = 0;
    loop {
        let length = *bytes.get(at).ok_or(NameError::Truncated)?;
        match length {
            0 => return Ok((at + 1, labels)),
            1..=63 => {}
            0xc0.. => return Err(NameError::Compressed),
            _ => return Err(NameError::LabelType),
        }
        at += 1 + usize::from(length);
        labels += 1;
        // The root's octet is still to come.
        if at >= NAME_LENGTH_MAX {
            return Err(NameError::TooLong);
        }
    }
}

impl<'m> Name<'m> {
    /// The root.
    pub const ROOT: Name<'static> = Name(&[0]);

    /// The name that `bytes` begin with; what follows it is no matter.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with it; a compressed name is an error.
    pub fn parse(bytes: &'m [u8]) -> Result<Name<'m>, NameError> {
        let (length, _) = measure(bytes)?;
        Ok(Name(&bytes[..length]))
    }

    /// The name that `bytes` are, which was measured before.
    #[inline]
    pub fn measured(bytes: &'m [u8]) -> Name<'m> {
        debug_assert_eq!(measure(bytes).map(|(length, _)| length), Ok(bytes.len()));
        Name(bytes)
    }

    /// The octets as they go over the wire, the root's included.
    #[inline]
    #[must_use]
    pub const fn as_bytes(&self) -> &'m [u8] {
        self.0
    }

    /// Octets on the wire, 1 to 255.
    #[inline]
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "no name is empty: the root has one octet"
    )]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether this is the root.
    #[inline]
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.0.len() <= 1
    }

    /// Labels without the root's: 3 for `www.example.com.`.
    #[must_use]
    pub fn labels_count(&self) -> usize {
        self.labels().count()
    }

    /// The labels from the left, without their length octets and without the root.
    #[inline]
    #[must_use]
    pub const fn labels(&self) -> Labels<'m> {
        Labels(self.0)
    }

    /// The name without its first label; `None` for the root.
    #[inline]
    #[must_use]
    pub fn parent(&self) -> Option<Name<'m>> {
        split_label(self.0).map(|(_, rest)| Name(rest))
    }

    /// The name itself, its parent, and so on to the root.
    #[inline]
    #[must_use]
    pub const fn suffixes(&self) -> Suffixes<'m> {
        Suffixes(Some(*self))
    }

    /// Whether this is `ancestor` or below it. Every name is below the root.
    #[must_use]
    pub fn is_within(&self, ancestor: &Name<'_>) -> bool {
        // Only a suffix that starts at a label can be the ancestor: the same length alone may fall inside a label.
        self.suffixes()
            .find(|suffix| suffix.len() <= ancestor.len())
            .is_some_and(|suffix| suffix == *ancestor)
    }

    /// Writes the name in lower case to the start of `buffer`, and returns it from there: a key for tables.
    #[inline]
    pub fn to_lowercase<'b>(&self, buffer: &'b mut [u8; NAME_LENGTH_MAX]) -> Name<'b> {
        let lowered = &mut buffer[..self.0.len()];
        let lower = |eight: &[u8; 8]| lowercase_eight(u64::from_le_bytes(*eight)).to_le_bytes();
        // The last eight overlap those before, which costs less than one octet after another.
        if let (Some(last), Some(place)) = (self.0.last_chunk(), lowered.last_chunk_mut()) {
            *place = lower(last);
            let eights = self.0.as_chunks().0.iter();
            for (eight, place) in eights.zip(lowered.as_chunks_mut().0) {
                *place = lower(eight);
            }
        } else {
            lowered.copy_from_slice(self.0);
            lowered.make_ascii_lowercase();
        }
        Name(lowered)
    }

    /// The name in lower case, eight octets to a word, the first lowest; the last word is filled up with zeros. Equal for
    /// equal names only.
    #[inline]
    pub fn lowercase_words(&self) -> impl Iterator<Item = u64> {
        let (words, tail) = self.0.as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let last = (!tail.is_empty()).then(|| self.last_octets(tail));
        words.chain(last).map(lowercase_eight)
    }

    /// Gives each of [`lowercase_words`](Name::lowercase_words) to `each`: one loop and one branch, where a chained iterator is a
    /// call (12 instructions of a cache hit).
    #[inline(always)]
    pub fn for_each_lowercase_word(&self, mut each: impl FnMut(u64)) {
        let (words, tail) = self.0.as_chunks::<8>();
        for word in words {
            each(lowercase_eight(u64::from_le_bytes(*word)));
        }
        if !tail.is_empty() {
            each(lowercase_eight(self.last_octets(tail)));
        }
    }

    /// The last eight octets in lower case, the last one highest; of a shorter name with zeros below them. Names with the same
    /// end have the same octets there.
    #[inline]
    #[must_use]
    pub fn last_lowercase_word(&self) -> u64 {
        lowercase_eight(self.last_word())
    }

    /// The same in the case that they have.
    #[inline]
    #[must_use]
    pub fn last_word(&self) -> u64 {
        match self.0.last_chunk::<8>() {
            Some(eight) => u64::from_le_bytes(*eight),
            None => self.last_octets(self.0) << (8 * (8 - self.0.len())),
        }
    }

    /// Whether a label begins `at` octets behind the name's beginning, or the root.
    #[inline]
    #[must_use]
    pub fn has_label_at(&self, at: usize) -> bool {
        let mut place = 0;
        while place < at {
            let Some(length) = self.0.get(place) else {
                return false;
            };
            place += 1 + usize::from(*length);
        }
        place == at && at < self.0.len()
    }

    /// Up to seven octets at the end, the first lowest: read as eight, where there are so many, of which those before are shifted
    /// out.
    #[inline]
    fn last_octets(&self, tail: &[u8]) -> u64 {
        match self.0.last_chunk::<8>() {
            Some(eight) => u64::from_le_bytes(*eight) >> (8 * (8 - tail.len())),
            None => tail
                .iter()
                .rev()
                .fold(0, |word, octet| word << 8 | u64::from(*octet)),
        }
    }

    /// An owned copy.
    #[must_use]
    pub fn to_owned(&self) -> NameBuf {
        NameBuf::from(*self)
    }
}

/// Cuts the first label off; `None` at the root, or where the bytes are no name.
#[inline]
fn split_label(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    match bytes.split_first()? {
        (0, _) => None,
        (length, rest) => rest.split_at_checked(usize::from(*length)),
    }
}

/// See [`Name::labels`].
#[derive(Clone, Debug)]
pub struct Labels<'m>(&'m [u8]);

impl<'m> Iterator for Labels<'m> {
    type Item = &'m [u8];

    #[inline]
    fn next(&mut self) -> Option<&'m [u8]> {
        let (label, rest) = split_label(self.0)?;
        self.0 = rest;
        Some(label)
    }
}

/// See [`Name::suffixes`].
#[derive(Clone, Debug)]
pub struct Suffixes<'m>(Option<Name<'m>>);

impl<'m> Iterator for Suffixes<'m> {
    type Item = Name<'m>;

    #[inline]
    fn next(&mut self) -> Option<Name<'m>> {
        let suffix = self.0?;
        self.0 = suffix.parent();
        Some(suffix)
    }
}

// RFC 4343 §3: letters compare without regard to case. Length octets are below 64 and letters above: the whole name can
// be compared as one text.
impl PartialEq<Name<'_>> for Name<'_> {
    #[inline]
    fn eq(&self, other: &Name<'_>) -> bool {
        self.0.eq_ignore_ascii_case(other.0)
    }
}

impl Eq for Name<'_> {}

impl Hash for Name<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // No end mark is needed: a name ends where its root is, so none is the beginning of another.
        self.for_each_lowercase_word(|word| state.write_u64(word));
    }
}

/// Lowers the ASCII letters among eight octets at once.
#[inline]
#[must_use]
pub const fn lowercase_eight(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Within seven bits an addition cannot carry into the next octet; the eighth bit tells the outcome.
    let seven_bits = word & (0x7f * EACH);
    let from_a = seven_bits + (0x80 - b'A' as u64) * EACH;
    let past_z = seven_bits + (0x80 - b'Z' as u64 - 1) * EACH;
    let upper = from_a & !past_z & !word & (0x80 * EACH);
    // 0x20 is what tells lower case from upper.
    word | upper >> 2
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(self, f)
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(self, f)
    }
}

#[cfg(test)]
mod tests;
