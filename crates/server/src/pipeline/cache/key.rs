//! What makes two queries the same to the cache: dnsdist's key, as whole words.
//!
//! ```text
//!  0 header flags 16 │ answer, authority, additional counts 3×16
//!  1 type 16 │ class 16 │ length of what follows the question 16 │ length of the name 8, 0 7, over TCP 1
//!  2… the name in lower case │ what follows the question, without the values of skipped EDNS options
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

pub(super) struct Key {
    words: [u64; KEY_MAX],
    count: usize,
}

impl Key {
    /// The key of a query; `None` for one that is not for a cache: not of opcode QUERY, a zone transfer, too much behind its
    /// question.
    #[inline]
    pub(super) fn new(
        query: &[u8],
        parts: &QueryParts,
        protocol: Protocol,
        skipped_options: &[u16],
    ) -> Option<Key> {
        let header = Header::read(query)?;
        let transfer = matches!(parts.qtype, qtype::AXFR | qtype::IXFR);
        if header.opcode() != opcode::QUERY || transfer {
            return None;
        }
        let tail = query.get(parts.question_end.into()..)?;
        if tail.len() > TAIL_MAX {
            return None;
        }
        let mut key = Key {
            words: [0; KEY_MAX],
            count: FIXED,
        };
        key.words[0] = pack([
            header.flags(),
            header.answer_count(),
            header.authority_count(),
            header.additional_count(),
        ]);
        let shape = parts.qname_length << 8 | u16::from(protocol == Protocol::Tcp);
        key.words[1] = pack([parts.qtype, parts.qclass, tail.len() as u16, shape]);
        for word in parts.qname(query).lowercase_words() {
            key.words[key.count] = word;
            key.count += 1;
        }
        key.push_tail(query, parts, skipped_options)?;
        Some(key)
    }

    /// The words in use.
    #[inline]
    pub(super) fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }

    fn push_tail(&mut self, query: &[u8], parts: &QueryParts, skipped: &[u16]) -> Option<()> {
        let start = usize::from(parts.question_end);
        let Some(edns) = parts.edns else {
            return self.push(&query[start..]);
        };
        // The length of all options stays in the key: dnsdist finds cookies of 8 and of 16 bytes different, too.
        self.push(&query[start..usize::from(edns.start) + OPT_LENGTH])?;
        for option in edns.options(query) {
            if !skipped.contains(&option.code) {
                self.push(&option.code.to_be_bytes())?;
                self.push(option.value)?;
            }
        }
        self.push(&query[edns.end.into()..])
    }

    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let room = self
            .words
            .get_mut(self.count..self.count + words::words_for(bytes.len()))?;
        for (word, chunk) in room.iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(padded);
        }
        self.count += room.len();
        Some(())
    }
}

/// Four numbers in one word, the first highest.
pub(super) fn pack(numbers: [u16; 4]) -> u64 {
    let join = |word, number| word << 16 | u64::from(number);
    numbers.into_iter().fold(0, join)
}

pub(super) fn unpack(word: u64) -> [u16; 4] {
    [48, 32, 16, 0].map(|shift| (word >> shift) as u16)
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
