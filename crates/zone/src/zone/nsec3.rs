//! The chain of NSEC3 records of a zone (RFC 5155), found by hash.

use super::encode::encode_hash;
use super::parts::{HASH_LENGTH, LABEL_LENGTH, NONE, PROOF_LABEL_AT};
use sha1::block_api::compress;
use sha1::{Digest, Sha1};
use std::ops::Range;

/// RFC 9276 §3.1: "an iterations count of 0 MUST be used". A negative answer costs as many hashes; resolvers take answers
/// with more than this for unsigned (RFC 9276 §3.2 leaves the number to them, and this is the one they chose).
pub const ITERATIONS_MAX: u16 = 150;

/// How names are hashed (RFC 5155 §5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) iterations: u16,
    pub(crate) salt: Box<[u8]>,
}

impl Parameters {
    /// What the data of an NSEC3PARAM record, or the front of an NSEC3 record's, say; `None` where the algorithm is not
    /// SHA-1, which is the only one.
    pub(crate) fn read(data: &[u8]) -> Option<Parameters> {
        let [1, _, high, low, salt_length, rest @ ..] = data else {
            return None;
        };
        Some(Parameters {
            iterations: u16::from_be_bytes([*high, *low]),
            salt: rest.get(..usize::from(*salt_length))?.into(),
        })
    }

    /// The hash of a name in lower case. RFC 5155 §5: "IH(salt, x, 0) = H(x || salt)", "IH(salt, x, k) =
    /// H(IH(salt, x, k-1) || salt), if k > 0".
    #[inline]
    pub(crate) fn hash(&self, name: &[u8]) -> Hash {
        let mut hash = digest(name, &self.salt);
        for _ in 0..self.iterations {
            hash = digest(&hash, &self.salt);
        }
        hash
    }

    /// The hash of the wildcard right below `name`.
    pub(crate) fn hash_wildcard(&self, name: &[u8]) -> Hash {
        self.hash(&[b"\x01*", name].concat())
    }
}

/// SHA-1 of a name or a hash with the salt behind. Nearly all are one block, which is made here: the hasher of crate `sha1`
/// costs as many instructions as the processor has for the block itself.
#[inline]
fn digest(octets: &[u8], salt: &[u8]) -> Hash {
    let Some(block) = block_of(octets, salt) else {
        let state = Sha1::new().chain_update(octets).chain_update(salt);
        return state.finalize().into();
    };
    // FIPS 180-4 §5.3.1.
    let mut state = [
        0x6745_2301,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];
    compress(&mut state, &[block]);
    let mut hash = [0; HASH_LENGTH];
    for (octets, word) in hash.as_chunks_mut().0.iter_mut().zip(state) {
        *octets = word.to_be_bytes();
    }
    hash
}

/// The only block of what is so short (FIPS 180-4 §5.1.1): a bit behind it, zeros, and the number of its bits.
#[inline]
fn block_of(octets: &[u8], salt: &[u8]) -> Option<[u8; 64]> {
    let length = octets.len() + salt.len();
    if length > 55 {
        return None;
    }
    let mut block = [0; 64];
    block[..octets.len()].copy_from_slice(octets);
    if !salt.is_empty() {
        block[octets.len()..length].copy_from_slice(salt);
    }
    block[length] = 0x80;
    block[62..].copy_from_slice(&(8 * length as u16).to_be_bytes());
    Some(block)
}

/// What a name is found by (RFC 5155 §5).
pub(crate) type Hash = [u8; HASH_LENGTH];

/// The hash of an NSEC3 record, and where that is in the arena.
pub(super) type Hashed = (Hash, u32);

/// Records that a bucket's line has room for. With the mean that [`MEAN_HALVES`] says one bucket of forty has more.
const ROOM: usize = 7;
/// Records of a bucket on average, in halves: of more the lines would be fuller, and more of them too full.
const MEAN_HALVES: usize = 7;

/// A search for a hash is one line: what tells the records of a bucket apart, and where they are.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// The number of its first record, or the next one's.
    first: u32,
    /// Of each hash the bits behind those that tell its bucket, ascending; where there are fewer, the rest has the highest
    /// number.
    parts: [u32; ROOM],
    /// Where the record is that comes before the first one, and where each of them is. Where there are too many, all are [`NONE`].
    places: [u32; ROOM + 1],
}

/// The chain: hashes in ascending order, found by their first bits in one step.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) parameters: Parameters,
    /// By the first bits of a hash; one more at the end.
    buckets: Box<[Bucket]>,
    /// The first eight octets of each hash.
    prefixes: Box<[u64]>,
    /// Where each record is in the arena.
    pub(crate) places: Box<[u32]>,
}

impl Chain {
    /// `records` are hashes and places, ascending, at least one.
    pub(super) fn new(parameters: Parameters, records: &[Hashed]) -> Chain {
        let mut chain = Chain {
            parameters,
            buckets: Box::default(),
            prefixes: records.iter().map(|(hash, _)| prefix(hash)).collect(),
            places: records.iter().map(|(_, place)| *place).collect(),
        };
        let count = 2 * records.len() / MEAN_HALVES + 1;
        let mut buckets = Vec::with_capacity(count + 1);
        let mut first = 0;
        for bucket in 0..=count {
            let is_here = |prefix: &&u64| start(**prefix, count).0 == bucket;
            let length = chain.prefixes[first..].iter().take_while(is_here).count();
            buckets.push(chain.bucket(first..first + length, count));
            first += length;
        }
        chain.buckets = buckets.into();
        chain
    }

    /// One of `count` buckets, which has these records.
    fn bucket(&self, records: Range<usize>, count: usize) -> Bucket {
        let mut bucket = Bucket {
            first: records.start as u32,
            parts: [u32::MAX; ROOM],
            places: [NONE; ROOM + 1],
        };
        if records.len() <= ROOM {
            let before = records.start.checked_sub(1);
            bucket.places[0] = self.places[before.unwrap_or(self.places.len() - 1)];
            let parts = self.prefixes[records.clone()].iter();
            let parts = parts.map(|prefix| start(*prefix, count).1);
            let places = bucket.places[1..].iter_mut().zip(&self.places[records]);
            for ((known, place), part) in bucket.parts.iter_mut().zip(places).zip(parts) {
                (*known, *place.0) = (part, *place.1);
            }
        }
        bucket
    }

    /// How many hashes are not above this one, and where the record is that has it or covers it: the last one of those. The
    /// chain is a circle (RFC 5155 §3.1.7).
    #[inline(always)]
    fn search(&self, arena: &[u8], hash: &Hash) -> (usize, u32) {
        let (number, part) = start(prefix(hash), self.buckets.len() - 1);
        let bucket = &self.buckets[number];
        let below = bucket.parts.iter().filter(|known| **known < part).count();
        let place = bucket.places[below];
        if place == NONE || bucket.parts.get(below) == Some(&part) {
            return self.search_all(arena, hash, number);
        }
        (bucket.first as usize + below, place)
    }

    /// The same where there are many in the bucket, or some that are alike.
    #[cold]
    fn search_all(&self, arena: &[u8], hash: &Hash, bucket: usize) -> (usize, u32) {
        let wanted = prefix(hash);
        let start = self.buckets[bucket].first as usize;
        let behind = self.buckets.get(bucket + 1);
        let end = behind.map_or(self.prefixes.len(), |bucket| bucket.first as usize);
        let below = self.prefixes[start..end].partition_point(|prefix| *prefix < wanted);
        let count = start + below + self.alike_not_above(arena, hash, start + below..end);
        let last = count.checked_sub(1).unwrap_or(self.places.len() - 1);
        (count, self.places[last])
    }

    /// How many hashes are not above this one.
    #[inline]
    pub(super) fn not_above(&self, arena: &[u8], hash: &Hash) -> usize {
        self.search(arena, hash).0
    }

    /// The line that a search for this hash reads.
    #[inline]
    pub(crate) fn line(&self, hash: &Hash) -> *const u8 {
        let (number, _) = start(prefix(hash), self.buckets.len() - 1);
        std::ptr::from_ref(&self.buckets[number]).cast()
    }

    /// Where the record is that has this hash, or covers it.
    #[inline]
    pub(super) fn place_at_or_before(&self, arena: &[u8], hash: &Hash) -> u32 {
        self.search(arena, hash).1
    }

    /// How many of the records in `range` are not above a hash, with whose first eight octets the first of them begins, too.
    /// Several that do are not there by chance, and may be as many as a zone has: nobody looks at each.
    fn alike_not_above(&self, arena: &[u8], hash: &Hash, range: Range<usize>) -> usize {
        let (wanted, label) = (prefix(hash), encode_hash(hash));
        let same = self.prefixes[range.clone()].partition_point(|prefix| *prefix == wanted);
        let places = &self.places[range][..same];
        places.partition_point(|place| *label_at(arena, *place) <= label)
    }

    /// The label of a record's owner. Labels are in the order of their hashes: RFC 5155 §1.3, of hash
    /// order: it "is the same as the canonical DNS name order" in base32hex.
    pub(super) fn label<'z>(&self, arena: &'z [u8], number: usize) -> &'z [u8; LABEL_LENGTH] {
        label_at(arena, self.places[number])
    }

    /// Octets that it occupies.
    pub(super) fn memory(&self) -> usize {
        let (buckets, prefixes) = (size_of_val(&*self.buckets), size_of_val(&*self.prefixes));
        buckets + prefixes + size_of_val(&*self.places)
    }

    /// The number of the record that has this hash, or covers it.
    #[inline]
    pub(crate) fn at_or_before(&self, arena: &[u8], hash: &Hash) -> u32 {
        let count = self.not_above(arena, hash);
        count.checked_sub(1).unwrap_or(self.prefixes.len() - 1) as u32
    }

    /// The record whose hash is `hash`.
    pub(super) fn matching(&self, arena: &[u8], hash: &Hash) -> Option<u32> {
        let number = self.at_or_before(arena, hash);
        let is_it = self.prefixes[number as usize] == prefix(hash)
            && *self.label(arena, number as usize) == encode_hash(hash);
        is_it.then_some(number)
    }
}

#[inline]
fn prefix(hash: &Hash) -> u64 {
    let octets = hash.first_chunk().expect("twenty octets");
    u64::from_be_bytes(*octets)
}

/// The bucket of `count` for hashes that begin so, and what tells them apart there: both ascend as the hashes do.
#[inline]
fn start(prefix: u64, count: usize) -> (usize, u32) {
    let product = u128::from(prefix) * count as u128;
    ((product >> 64) as usize, (product >> 32) as u32)
}

fn label_at(arena: &[u8], place: u32) -> &[u8; LABEL_LENGTH] {
    let octets = &arena[place as usize + PROOF_LABEL_AT..];
    octets.first_chunk().expect("labels are whole")
}

/// The numbers of the records that prove things about a node: see [`super::parts::OPTED_OUT`].
#[derive(Clone, Copy)]
pub(crate) struct Proofs {
    pub(crate) first: u32,
    pub(crate) second: u32,
    pub(crate) opted_out: bool,
    /// See [`super::parts::DEEP`].
    pub(super) is_deep: bool,
}

impl Proofs {
    /// There is nothing to prove anything with.
    pub(super) const NONE: Proofs = Proofs {
        first: NONE,
        second: NONE,
        opted_out: false,
        is_deep: false,
    };
}

#[cfg(test)]
impl Chain {
    /// The records of these hashes, ascending, without salt: the arena with the labels of their owners, and the chain.
    pub(super) fn of_hashes(hashes: &[[u8; HASH_LENGTH]]) -> (Vec<u8>, Chain) {
        let header = [0; PROOF_LABEL_AT];
        let arena = hashes
            .iter()
            .flat_map(|hash| [&header[..], &encode_hash(hash)].concat());
        let arena = arena.collect();
        let places = (0..).step_by(PROOF_LABEL_AT + LABEL_LENGTH);
        let records: Vec<_> = hashes.iter().copied().zip(places).collect();
        let parameters = Parameters {
            iterations: 0,
            salt: Box::default(),
        };
        (arena, Chain::new(parameters, &records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::encode::encode_hash;
    use std::time::{Duration, Instant};

    /// RFC 5155 appendix A: salt aabbccdd, 12 iterations.
    #[test]
    fn hashes_are_those_of_rfc_5155() {
        let parameters =
            Parameters::read(&[1, 0, 0, 12, 4, 0xaa, 0xbb, 0xcc, 0xdd]).expect("well-formed");
        let label = |hash| String::from_utf8(encode_hash(&hash)[1..].to_vec()).unwrap();
        let example = b"\x07example\x00";
        assert_eq!(
            label(parameters.hash(example)),
            "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"
        );
        assert_eq!(
            label(parameters.hash(b"\x01a\x07example\x00")),
            "35mthgpgcu1qg68fab165klnsnk3dpvl"
        );
        assert_eq!(
            label(parameters.hash_wildcard(b"\x01w\x07example\x00")),
            "r53bq7cc2uvmubfu5ocmm6pers9tk9en"
        );
    }

    /// Short ones are one block that is made here, longer ones the hasher's.
    #[test]
    fn hashes_of_any_length_are_those_of_sha_1() {
        let octets: Vec<u8> = (0..=255).collect();
        for (length, salt) in (0..=255).flat_map(|length| [(length, 0), (length, 8)]) {
            let (name, salt) = (&octets[..length], &octets[..salt]);
            let expected: [u8; HASH_LENGTH] = Sha1::digest([name, salt].concat()).into();
            assert_eq!(digest(name, salt), expected, "{length}");
        }
    }

    /// Hashes as names have them: most buckets have room for all of theirs, some have not, and some are empty.
    #[test]
    fn every_hash_is_found_and_whatever_lies_between() {
        for count in [1, 2, 3, 7, 20, 5_000] {
            let mut hashes: Vec<_> = (0..count)
                .map(|number: u32| digest(&number.to_be_bytes(), &[]))
                .collect();
            hashes.sort_unstable();
            let (arena, chain) = Chain::of_hashes(&hashes);
            let others = (0..count + 100).map(|number| digest(&number.to_le_bytes(), b"other"));
            let ends = [[0; HASH_LENGTH], [u8::MAX; HASH_LENGTH]];
            for wanted in others.chain(ends).chain(hashes.iter().copied()) {
                let not_above = hashes.partition_point(|hash| *hash <= wanted);
                assert_eq!(chain.not_above(&arena, &wanted), not_above);
                let last = not_above.checked_sub(1).unwrap_or(hashes.len() - 1);
                assert_eq!(
                    chain.place_at_or_before(&arena, &wanted),
                    chain.places[last]
                );
            }
        }
    }

    /// Owners that somebody has made up: to look at each of them, for each question, would take minutes.
    #[test]
    fn hashes_that_begin_alike_are_found_at_once() {
        let count = 1_u32 << 16;
        let hash = |number: u32| {
            let mut hash = [7; HASH_LENGTH];
            hash[16..].copy_from_slice(&number.to_be_bytes());
            hash
        };
        let numbers = (0..count).map(|number| 2 * number);
        let hashes: Vec<_> = numbers.map(hash).collect();
        let (arena, chain) = Chain::of_hashes(&hashes);
        let began = Instant::now();
        for number in 0..count {
            let found = [0, 1].map(|more| chain.at_or_before(&arena, &hash(2 * number + more)));
            assert_eq!(found, [number; 2]);
        }
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn the_chain_is_a_circle() {
        let hash = |first: u8, last: u8| {
            let mut hash = [0; HASH_LENGTH];
            (hash[0], hash[19]) = (first, last);
            hash
        };
        let hashes = [hash(1, 0), hash(1, 5), hash(1, 9), hash(200, 0)];
        let (arena, chain) = Chain::of_hashes(&hashes);
        for (wanted, number) in [
            (hash(0, 0), 3),
            (hash(1, 0), 0),
            (hash(1, 4), 0),
            (hash(1, 5), 1),
            (hash(1, 200), 2),
            (hash(199, 0), 2),
            (hash(200, 0), 3),
            (hash(255, 0), 3),
        ] {
            assert_eq!(chain.at_or_before(&arena, &wanted), number, "{wanted:?}");
        }
        assert_eq!(chain.matching(&arena, &hash(1, 5)), Some(1));
        assert_eq!(chain.matching(&arena, &hash(1, 6)), None);
    }
}
