//! The chain of NSEC3 records of a zone (RFC 5155), found by hash.

use super::encode::encode_hash;
use super::parts::{HASH_LENGTH, LABEL_LENGTH, NONE, RRSET_HEADER_LENGTH};
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

    /// The hash of a name in lower case.
    pub(crate) fn hash(&self, name: &[u8]) -> [u8; HASH_LENGTH] {
        self.hash_pieces(&[name])
    }

    /// The hash of the wildcard right below `name`.
    pub(crate) fn hash_wildcard(&self, name: &[u8]) -> [u8; HASH_LENGTH] {
        self.hash_pieces(&[b"\x01*", name])
    }

    fn hash_pieces(&self, pieces: &[&[u8]]) -> [u8; HASH_LENGTH] {
        // RFC 5155 §5: "IH(salt, x, 0) = H(x || salt)", "IH(salt, x, k) = H(IH(salt, x, k-1) || salt), if k > 0".
        let mut state = Sha1::new();
        for piece in pieces {
            state.update(piece);
        }
        state.update(&self.salt);
        let mut hash: [u8; HASH_LENGTH] = state.finalize().into();
        for _ in 0..self.iterations {
            let state = Sha1::new().chain_update(hash).chain_update(&self.salt);
            hash = state.finalize().into();
        }
        hash
    }
}

/// The hash of an NSEC3 record, and where that is in the arena.
pub(super) type Hashed = ([u8; HASH_LENGTH], u32);

/// The chain: hashes in ascending order, found by their first bits in about two steps.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) parameters: Parameters,
    /// The first eight octets of each hash.
    prefixes: Box<[u64]>,
    /// Where each record is in the arena.
    pub(crate) places: Box<[u32]>,
    /// By the first bits of a hash: the number of the first record that has these or higher ones; one more at the end.
    buckets: Box<[u32]>,
    shift: u32,
}

impl Chain {
    /// `records` are hashes and places, ascending, at least one.
    pub(super) fn new(parameters: Parameters, records: &[Hashed]) -> Chain {
        let prefixes: Box<[u64]> = records.iter().map(|(hash, _)| prefix(hash)).collect();
        let bits = (records.len() / 4).max(2).next_power_of_two().ilog2();
        let shift = 64 - bits;
        let buckets = (0..=1_u64 << bits).map(|bucket| {
            let below = |prefix: &u64| prefix >> shift < bucket;
            prefixes.partition_point(below) as u32
        });
        Chain {
            parameters,
            places: records.iter().map(|(_, place)| *place).collect(),
            buckets: buckets.collect(),
            prefixes,
            shift,
        }
    }

    /// How many hashes are not above this one.
    #[inline]
    pub(super) fn not_above(&self, arena: &[u8], hash: &[u8; HASH_LENGTH]) -> usize {
        let wanted = prefix(hash);
        let bucket = (wanted >> self.shift) as usize;
        let (mut start, end) = (
            self.buckets[bucket] as usize,
            self.buckets[bucket + 1] as usize,
        );
        start += self.prefixes[start..end].partition_point(|prefix| *prefix < wanted);
        match self.prefixes[start..end].first() == Some(&wanted) {
            true => start + self.alike_not_above(arena, hash, start..end),
            false => start,
        }
    }

    /// How many of the records in `range` are not above a hash, with whose first eight octets the first of them begins, too.
    /// Several that do are not there by chance, and may be as many as a zone has: nobody looks at each.
    #[cold]
    fn alike_not_above(
        &self,
        arena: &[u8],
        hash: &[u8; HASH_LENGTH],
        range: Range<usize>,
    ) -> usize {
        let (wanted, label) = (prefix(hash), encode_hash(hash));
        let same = self.prefixes[range.clone()].partition_point(|prefix| *prefix == wanted);
        let places = &self.places[range][..same];
        places.partition_point(|place| {
            let known = arena[*place as usize..].first_chunk::<LABEL_LENGTH>();
            known <= Some(&label)
        })
    }

    /// The label of a record's owner. Labels are in the order of their hashes: RFC 5155 §1.3, of hash
    /// order: it "is the same as the canonical DNS name order" in base32hex.
    pub(super) fn label<'z>(&self, arena: &'z [u8], number: usize) -> &'z [u8; LABEL_LENGTH] {
        let at = self.places[number] as usize;
        arena[at..].first_chunk().expect("labels are whole")
    }

    /// The record whose hash is `hash`, or the one before the place where it would be: the one that covers it. The chain is
    /// a circle (RFC 5155 §3.1.7).
    #[inline]
    pub(crate) fn at_or_before(&self, arena: &[u8], hash: &[u8; HASH_LENGTH]) -> u32 {
        let count = self.not_above(arena, hash);
        count.checked_sub(1).unwrap_or(self.prefixes.len() - 1) as u32
    }

    /// The record whose hash is `hash`.
    pub(super) fn matching(&self, arena: &[u8], hash: &[u8; HASH_LENGTH]) -> Option<u32> {
        let number = self.at_or_before(arena, hash);
        let is_it = self.prefixes[number as usize] == prefix(hash)
            && *self.label(arena, number as usize) == encode_hash(hash);
        is_it.then_some(number)
    }
}

#[inline]
fn prefix(hash: &[u8; HASH_LENGTH]) -> u64 {
    let octets = hash.first_chunk().expect("twenty octets");
    u64::from_be_bytes(*octets)
}

/// Octets of an NSEC3 record in the arena before its body.
pub(super) const ENTRY_LENGTH: usize = LABEL_LENGTH + RRSET_HEADER_LENGTH;

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
        let arena = hashes.iter().flat_map(encode_hash).collect();
        let places = (0..).step_by(LABEL_LENGTH);
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
