//! What makes two queries the same to the cache: dnsdist's key, as whole words.
//!
//! ```text
//!  0 header flags 16 │ answer, authority, additional counts 3×16
//!  1 type 16 │ class 16 │ length of what follows the question 16 │ length of the name 8, 0 6, OPT record is ours 1, over TCP 1
//!  2… the name in lower case │ what follows the question, without the values of skipped EDNS options; kept ones each with
//!     a word of 1 16, 0 16, code 16, length 16 before their value │ zeros, up to a whole number of groups of four words
//! ```
//!
//! Groups are hashed and compared without a jump for each word. The zeros make no two keys the same: the lengths are in the
//! second word, that of the options before them, and no kept option is a word of zero.
//!
//! Everything counts but the ID, the name's case and those options; of a UDP payload size its rank, where the cache has ranks.
//! What backends say over UDP and over TCP is kept apart, for over UDP it may be less. So are the answers to clients without
//! EDNS, in whose queries a rule or the stage before this one has put an OPT record: they have none.

use crate::config::cache::CacheOptions;
use crate::pipeline::query::Protocol;
use crate::words;
use arrayvec::ArrayVec;
use wire::codes::{opcode, qtype};
use wire::message::{EdnsParts, HEADER_LENGTH, Header, QueryParts};
use wire::name::{NAME_LENGTH_MAX, Name};

/// Words before the name.
const FIXED: usize = 2;

/// What follows the question may be so long, in bytes: an OPT record with cookie, client subnet and padding to a block of 128.
pub(super) const TAIL_MAX: usize = 240;

/// Words for that at most: options of one byte take two words for five bytes, and three words may be not full.
const TAIL: usize = TAIL_MAX * 2 / 5 + 3;

/// The longest key in words.
const KEY_MAX: usize =
    (FIXED + words::words_for(NAME_LENGTH_MAX) + TAIL).next_multiple_of(words::GROUP);

/// Bytes of an OPT record before its options.
const OPT_LENGTH: usize = 11;

/// Where its UDP payload size lies: behind owner and type.
const PAYLOAD_SIZE: usize = 3;

/// Gives the words of a query's key to `each`, in their order: a look-up hashes and compares them. `None` for a
/// query that is not for a cache: not of opcode QUERY, a zone transfer, too much behind its question. `edns_added`: its client
/// knows no EDNS, see [`super::Asked::edns_added`].
#[inline]
pub(super) fn walk(
    query: &[u8],
    parts: &QueryParts,
    (protocol, edns_added): (Protocol, bool),
    options: &CacheOptions,
    mut each: impl FnMut(u64),
) -> Option<()> {
    let header = Header::read(query)?;
    let transfer = matches!(parts.qtype, qtype::AXFR | qtype::IXFR);
    let tail = query.get(parts.question_end.into()..)?;
    if header.opcode() != opcode::QUERY || transfer || tail.len() > TAIL_MAX {
        return None;
    }
    // The question count in the highest place, which is 1 in every query, gives way to the flags.
    let counts: &[u8; 8] = query.get(4..)?.first_chunk()?;
    let counts = u64::from_be_bytes(*counts) & 0xffff_ffff_ffff;
    each(u64::from(header.flags()) << 48 | counts);
    let origin = u16::from(edns_added) << 1 | u16::from(protocol == Protocol::Tcp);
    let shape = parts.qname_length << 8 | origin;
    each(pack([parts.qtype, parts.qclass, tail.len() as u16, shape]));
    parts.qname(query).for_each_lowercase_word(&mut each);
    let Some(edns) = parts.edns else {
        walk_bytes(tail, &mut each);
        return Some(());
    };
    // The length of all options stays in the key: dnsdist finds cookies of 8 and of 16 bytes different, too.
    let fixed = usize::from(edns.start) + OPT_LENGTH;
    let front = &query[parts.question_end.into()..fixed];
    let ranked;
    let front = match options.payload_ranks.is_empty() {
        true => front,
        false => {
            ranked = ranked_front(front, edns, options);
            &ranked
        }
    };
    if let Some(opt) = front.as_array::<OPT_LENGTH>() {
        // Most follow the question at once: of so many bytes it is known which words they are.
        walk_bytes(opt, &mut each);
    } else {
        walk_bytes(front, &mut each);
    }
    if fixed == query.len() {
        // Most OPT records have no options, and most queries nothing behind them.
        return Some(());
    }
    for option in edns.options(query) {
        if !options.skip_options.contains(&option.code) {
            // Without its length a value would be the same as one with a zero more, where a skipped option is so
            // much shorter, and as another option's beginning.
            each(pack([1, 0, option.code, option.value.len() as u16]));
            walk_bytes(option.value, &mut each);
        }
    }
    walk_bytes(&query[edns.end.into()..], &mut each);
    Some(())
}

/// What lies from the question to the options of the OPT record, with the rank of the payload size in its place. It does not
/// take `each`: a hash that somebody may write to lies in memory, and a hit takes 47 instructions more.
#[cold]
#[inline(never)]
fn ranked_front(front: &[u8], edns: EdnsParts, options: &CacheOptions) -> ArrayVec<u8, TAIL_MAX> {
    let mut ranked: ArrayVec<u8, TAIL_MAX> = front.iter().copied().take(TAIL_MAX).collect();
    let rank = options.rank_of(edns.payload_size.max(512));
    if let Some(opt) = front.len().checked_sub(OPT_LENGTH) {
        let place = opt + PAYLOAD_SIZE;
        ranked[place..place + 2].copy_from_slice(&rank.to_be_bytes());
    }
    ranked
}

#[inline]
fn walk_bytes(bytes: &[u8], each: &mut impl FnMut(u64)) {
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        each(u64::from_le_bytes(*chunk));
    }
    if !rest.is_empty() {
        each(words::last(bytes, rest.len()));
    }
}

/// The words of a key, for an entry.
pub(super) struct Key {
    words: [u64; KEY_MAX],
    /// Of whole groups.
    count: usize,
}

impl Default for Key {
    fn default() -> Key {
        Key {
            words: [0; KEY_MAX],
            count: 0,
        }
    }
}

impl Key {
    /// Makes the key of a query, once; `None` as of [`walk`].
    pub(super) fn fill(
        &mut self,
        query: &[u8],
        parts: &QueryParts,
        origin: (Protocol, bool),
        options: &CacheOptions,
    ) -> Option<()> {
        let mut count = 0;
        walk(query, parts, origin, options, |word| {
            self.words[count] = word;
            count += 1;
        })?;
        self.count = count.next_multiple_of(words::GROUP);
        Some(())
    }

    /// The key of these words, which were one's; `None` when they cannot have been.
    pub(super) fn of(words: &[u64]) -> Option<Key> {
        Question::of(words)?;
        let mut key = Key::default();
        key.words.get_mut(..words.len())?.copy_from_slice(words);
        key.count = words.len();
        key.count.is_multiple_of(words::GROUP).then_some(key)
    }

    #[inline]
    pub(super) fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }

    #[inline]
    pub(super) fn groups(&self) -> &[[u64; words::GROUP]] {
        self.words().as_chunks().0
    }
}

/// Words that a [`ShortKey`] has: those of a name of 64 bytes and an OPT record without options.
const SHORT: usize = 3 * words::GROUP;

/// The words of a key that has few, as nearly all have: who compares them need not walk the query again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ShortKey {
    /// With room for zeros behind them.
    words: [u64; SHORT + words::GROUP],
    /// How many groups there are, of which the first are here.
    groups: usize,
}

impl ShortKey {
    /// Makes the key of a query, once; `None` as of [`walk`].
    #[inline]
    pub(super) fn fill(
        &mut self,
        query: &[u8],
        parts: &QueryParts,
        origin: (Protocol, bool),
        options: &CacheOptions,
    ) -> Option<()> {
        let (mut places, mut beyond) = (self.words[..SHORT].iter_mut(), 0);
        walk(query, parts, origin, options, |word| match places.next() {
            Some(place) => *place = word,
            None => beyond += 1,
        })?;
        let count = SHORT - places.len();
        let zeros: Option<&mut [u64; words::GROUP]> = self.words[count..].first_chunk_mut();
        *zeros? = [0; words::GROUP];
        self.groups = (count + beyond).div_ceil(words::GROUP);
        Some(())
    }

    /// All of them; `None`: there are too many.
    #[inline]
    pub(super) fn groups(&self) -> Option<&[[u64; words::GROUP]]> {
        self.words[..SHORT].as_chunks().0.get(..self.groups)
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
