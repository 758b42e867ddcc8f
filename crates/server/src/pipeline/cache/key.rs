//! What makes two queries the same to the cache: dnsdist's key, as whole words.
//!
//! ```text
//!  0 type 16 │ class 16 │ length of what follows the question 8, of the name 8
//!    0 1, over TCP 1, OPT record is ours 1, counts follow 1, additional count 1, header flags below the opcode 11
//!  answer, authority, additional counts 3×16, where they are not 0, 0 and the one bit above
//!  the name in lower case │ what follows the question, without the values of skipped EDNS options; kept ones each with
//!    a word of 1 16, 0 16, code 16, length 16 before their value │ zeros, up to four words in all
//! ```
//!
//! Four words at a time are hashed and compared, without a jump for each ([`words::in_groups`]). The zeros make no two keys the
//! same: the lengths are in the first word, that of the options before them, and no kept option is a word of zero.
//!
//! Everything counts but the ID, the name's case and those options; of a UDP payload size its rank, where the cache has ranks.
//! What backends say over UDP and over TCP is kept apart, for over UDP it may be less. So are the answers to clients without
//! EDNS, in whose queries a rule or the stage before this one has put an OPT record: they have none.

use crate::config::cache::CacheOptions;
use crate::pipeline::query::Protocol;
use crate::words;
use arrayvec::ArrayVec;
use wire::codes::qtype;
use wire::message::{EdnsParts, HEADER_LENGTH, Header, QueryParts};
use wire::name::{NAME_LENGTH_MAX, Name};

/// Words before the name at most: with the counts.
const FIXED: usize = 2;

/// Flags of a header below its opcode, which with QR above it is zero in all that are for a cache.
const FLAG_BITS: u32 = 11;

/// In the lowest sixteen bits of the first word.
const ADDITIONAL: u16 = 1 << FLAG_BITS;
const COUNTS_FOLLOW: u16 = 1 << (FLAG_BITS + 1);
const OPT_IS_OURS: u16 = 1 << (FLAG_BITS + 2);
const OVER_TCP: u16 = 1 << (FLAG_BITS + 3);

/// What follows the question may be so long, in bytes: an OPT record with cookie, client subnet and padding to a block of 128.
pub(super) const TAIL_MAX: usize = 240;

/// Words for that at most: options of one byte take two words for five bytes, and three words may be not full.
const TAIL: usize = TAIL_MAX * 2 / 5 + 3;

/// The longest key in words.
const KEY_MAX: usize = FIXED + words::words_for(NAME_LENGTH_MAX) + TAIL;

/// Bytes of an OPT record before its options.
const OPT_LENGTH: usize = 11;

/// Where its UDP payload size lies: behind owner and type.
const PAYLOAD_SIZE: usize = 3;

/// Gives the words of a query's key to `each`, in their order: a look-up hashes and compares them. `None` for a
/// query that is not for a cache: not of opcode QUERY, with QR, a zone transfer, too much behind its question. `edns_added`: its
/// client knows no EDNS, see [`super::Asked::edns_added`].
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
    if header.flags() >> FLAG_BITS != 0 || transfer || tail.len() > TAIL_MAX {
        return None;
    }
    // The question count in the highest place is 1 in every query.
    let counts: &[u8; 8] = query.get(4..)?.first_chunk()?;
    let counts = u64::from_be_bytes(*counts) & 0xffff_ffff_ffff;
    let counted = match counts {
        0 => 0,
        1 => ADDITIONAL,
        _ => COUNTS_FOLLOW,
    };
    let over_tcp = match protocol {
        Protocol::Udp => 0,
        Protocol::Tcp => OVER_TCP,
    };
    let ours = if edns_added { OPT_IS_OURS } else { 0 };
    let lengths = (tail.len() as u16) << 8 | parts.qname_length;
    let marks = over_tcp | ours | counted | header.flags();
    each(pack([parts.qtype, parts.qclass, lengths, marks]));
    if counted == COUNTS_FOLLOW {
        each(counts);
    }
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
    /// A group at least.
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
        self.count = count.max(words::GROUP);
        Some(())
    }

    /// The key of these words, which were one's; `None` when they cannot have been.
    pub(super) fn of(words: &[u64]) -> Option<Key> {
        Question::of(words)?;
        let mut key = Key::default();
        key.words.get_mut(..words.len())?.copy_from_slice(words);
        key.count = words.len();
        (key.count >= words::GROUP).then_some(key)
    }

    #[inline]
    pub(super) fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }
}

/// Words that a [`ShortKey`] has: those of a name of 96 bytes and an OPT record without options, and two.
const SHORT: usize = 2 * words::LINE;

/// The words of a key that has few, as nearly all have: who compares them need not walk the query again.
pub(super) type ShortKey = [u64; SHORT];

/// Makes the key of a query, once; how many words it has, of which the first are in `key` then. `None` as of [`walk`].
#[inline]
pub(super) fn fill_short(
    key: &mut ShortKey,
    query: &[u8],
    parts: &QueryParts,
    origin: (Protocol, bool),
    options: &CacheOptions,
) -> Option<u8> {
    // What is not used is not written: a batch has as many of these as queries, and each cache line of them may be cold.
    key[..words::GROUP].fill(0);
    let (mut places, mut beyond) = (key.iter_mut(), 0);
    walk(query, parts, origin, options, |word| match places.next() {
        Some(place) => *place = word,
        None => beyond += 1,
    })?;
    let count = SHORT - places.len() + beyond;
    Some(count.max(words::GROUP) as u8)
}

const _: () = assert!(KEY_MAX <= u8::MAX as usize);

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
        let [qtype, qclass, lengths, marks] = unpack(*key.first()?);
        let fixed = if marks & COUNTS_FOLLOW == 0 { 1 } else { 2 };
        let words = key.get(fixed..)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let name = Name::parse(bytes.get(..usize::from(lengths & 0xff))?).ok()?;
        Some(Question {
            name: name.as_bytes().into(),
            qtype,
            qclass,
            protocol: match marks & OVER_TCP {
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
