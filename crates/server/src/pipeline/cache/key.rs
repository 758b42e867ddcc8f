//! What makes two queries the same to the cache: dnsdist's key, as whole words.
//!
//! ```text
//!  0 header flags 16 │ answer, authority, additional counts 3×16
//!  1 type 16 │ class 16 │ length of what follows the question 16 │ length of the name 8, 0 7, over TCP 1
//!  2… the name in lower case │ what follows the question, without the values of skipped EDNS options; kept ones each with
//!     a word of 0 32, code 16, length 16 before their value
//! ```
//!
//! Everything counts but the ID, the name's case and those options. What backends say over UDP and over TCP is kept apart, for
//! over UDP it may be less.

use crate::pipeline::query::Protocol;
use crate::words;
use wire::codes::{opcode, qtype};
use wire::message::{HEADER_LENGTH, Header, QueryParts};
use wire::name::{NAME_LENGTH_MAX, Name};

/// Words before the name.
const FIXED: usize = 2;

/// Words for what follows the question: an OPT record with cookie, client subnet and padding to a block of 128 bytes.
const TAIL: usize = 32;

/// What follows the question may be so long, in bytes. (Each kept option takes words of its own.)
pub(super) const TAIL_MAX: usize = 240;

/// The longest key in words.
const KEY_MAX: usize = FIXED + words::words_for(NAME_LENGTH_MAX) + TAIL;

/// Bytes of an OPT record before its options.
const OPT_LENGTH: usize = 11;

/// Where a key is put together: it is too large to be moved about.
pub(super) struct Key {
    words: [u64; KEY_MAX],
    count: usize,
}

impl Default for Key {
    #[inline]
    fn default() -> Key {
        Key {
            words: [0; KEY_MAX],
            count: 0,
        }
    }
}

impl Key {
    /// Makes the key of a query, once. `None` for one that is not for a cache: not of opcode QUERY, a zone transfer, too
    /// much behind its question.
    #[inline]
    pub(super) fn fill(
        &mut self,
        query: &[u8],
        parts: &QueryParts,
        protocol: Protocol,
        skipped_options: &[u16],
    ) -> Option<()> {
        let header = Header::read(query)?;
        let transfer = matches!(parts.qtype, qtype::AXFR | qtype::IXFR);
        let tail = query.get(parts.question_end.into()..)?;
        if header.opcode() != opcode::QUERY || transfer || tail.len() > TAIL_MAX {
            return None;
        }
        self.words[0] = pack([
            header.flags(),
            header.answer_count(),
            header.authority_count(),
            header.additional_count(),
        ]);
        let shape = parts.qname_length << 8 | u16::from(protocol == Protocol::Tcp);
        self.words[1] = pack([parts.qtype, parts.qclass, tail.len() as u16, shape]);
        let name = parts.qname(query);
        for (place, word) in self.words[FIXED..].iter_mut().zip(name.lowercase_words()) {
            *place = word;
        }
        self.count = FIXED + name.len().div_ceil(8);
        self.push_tail(query, parts, skipped_options)
    }

    /// The key of these words, which were one's; `None` when they cannot have been.
    pub(super) fn of(words: &[u64]) -> Option<Key> {
        Question::of(words)?;
        let mut key = Key::default();
        key.words.get_mut(..words.len())?.copy_from_slice(words);
        key.count = words.len();
        Some(key)
    }

    /// The words in use.
    #[inline]
    pub(super) fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }

    #[inline]
    fn push_tail(&mut self, query: &[u8], parts: &QueryParts, skipped: &[u16]) -> Option<()> {
        let start = usize::from(parts.question_end);
        let Some(edns) = parts.edns else {
            return self.push(&query[start..]);
        };
        // The length of all options stays in the key: dnsdist finds cookies of 8 and of 16 bytes different, too.
        self.push(&query[start..usize::from(edns.start) + OPT_LENGTH])?;
        for option in edns.options(query) {
            if !skipped.contains(&option.code) {
                // Without its length a value would be the same as one with a zero more, where a skipped option is so
                // much shorter, and as another option's beginning.
                let [code, length] = [option.code, option.value.len() as u16];
                self.push(&pack([0, 0, code, length]).to_le_bytes())?;
                self.push(option.value)?;
            }
        }
        self.push(&query[edns.end.into()..])
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let (chunks, rest) = bytes.as_chunks::<8>();
        let places = self.words.get_mut(self.count..)?;
        let (whole, behind) = places.split_at_mut_checked(chunks.len())?;
        for (place, chunk) in whole.iter_mut().zip(chunks) {
            *place = u64::from_le_bytes(*chunk);
        }
        self.count += chunks.len();
        if !rest.is_empty() {
            *behind.first_mut()? = words::partial(rest);
            self.count += 1;
        }
        Some(())
    }
}

/// Four numbers in one word, the first highest.
#[inline]
pub(super) const fn pack(numbers: [u16; 4]) -> u64 {
    let [first, second, third, fourth] = numbers;
    (first as u64) << 48 | (second as u64) << 32 | (third as u64) << 16 | fourth as u64
}

#[inline]
pub(super) const fn unpack(word: u64) -> [u16; 4] {
    [
        (word >> 48) as u16,
        (word >> 32) as u16,
        (word >> 16) as u16,
        word as u16,
    ]
}

/// What a key says of its question: for lists of what is cached.
pub(super) struct Question {
    /// In lower case.
    pub(super) name: Box<[u8]>,
    pub(super) qtype: u16,
    pub(super) qclass: u16,
    pub(super) protocol: Protocol,
}

impl Question {
    /// Reads it out of a key's words; `None` if they are none.
    pub(super) fn of(key: &[u64]) -> Option<Question> {
        let [qtype, qclass, _, shape] = unpack(*key.get(1)?);
        let words = key.get(FIXED..)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let name = Name::parse(bytes.get(..usize::from(shape >> 8))?).ok()?;
        Some(Question {
            name: name.as_bytes().into(),
            qtype,
            qclass,
            protocol: match shape & 1 {
                0 => Protocol::Udp,
                _ => Protocol::Tcp,
            },
        })
    }

    /// As it lies in a message.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let fields = [self.qtype.to_be_bytes(), self.qclass.to_be_bytes()];
        [&self.name, fields.as_flattened()].concat()
    }
}

/// Where a message's question starts.
pub(super) const QUESTION_START: usize = HEADER_LENGTH;
