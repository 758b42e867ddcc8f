//! Sets of names, up to millions: `DNSNameSet` and `SuffixMatchNode`.
//!
//! One arena holds all names in lower case; a hash table holds where each starts. A name that is not there costs one hash
//! and mostly one cache line. The hash is keyed by a random number per process, so that nobody outside can choose names
//! that collide.

use crate::words::words_for;
use hashbrown::HashTable;
use rapidhash::quality::RandomState;
use std::hash::BuildHasher;
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf};

/// So many names are compared sooner than the one asked for is hashed: that takes 110 instructions for a name of 13 bytes.
const FEW: usize = 2;

/// A set of whole names; upper and lower case are the same (RFC 4343).
#[derive(Debug, Clone, Default)]
pub struct NameSet {
    /// The names as [`Name::lowercase_words`], one behind the other.
    arena: Vec<u64>,
    /// Where in the arena each name starts.
    starts: HashTable<u32>,
    hashing: RandomState,
    /// Words of the arena that are no name of the set any more.
    removed: usize,
}

impl NameSet {
    /// Adds a name; whether it is new. A set whose names take 32 GiB takes no more.
    pub fn insert(&mut self, name: &Name<'_>) -> bool {
        let Ok(start) = u32::try_from(self.arena.len()) else {
            return false;
        };
        if self.contains(name) {
            return false;
        }
        self.arena.extend(name.lowercase_words());
        let NameSet {
            arena,
            starts,
            hashing,
            ..
        } = self;
        starts.insert_unique(hashing.hash_one(name), start, |&start| {
            hashing.hash_one(name_at(arena, start).as_name())
        });
        true
    }

    /// Removes a name; whether it was there. When more than half of the arena is no name any more it is made anew: names that
    /// come and go do not fill the memory.
    pub fn remove(&mut self, name: &Name<'_>) -> bool {
        let hash = self.hashing.hash_one(name);
        let arena = &self.arena;
        let entry = self
            .starts
            .find_entry(hash, |&start| is_at(arena, start, name));
        let is_removed = entry.map(|entry| entry.remove()).is_ok();
        if is_removed {
            self.removed += words_for(name.len());
        }
        if self.removed > self.arena.len() / 2 {
            let mut left = NameSet::default();
            for name in self.iter() {
                left.insert(&name.as_name());
            }
            *self = left;
        }
        is_removed
    }

    #[inline]
    pub fn contains(&self, name: &Name<'_>) -> bool {
        let found = |&start: &u32| is_at(&self.arena, start, name);
        if self.starts.len() <= FEW {
            return self.starts.iter().any(found);
        }
        let hash = self.hashing.hash_one(name);
        self.starts.find(hash, found).is_some()
    }

    pub fn len(&self) -> usize {
        self.starts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The names, in lower case and in no order.
    pub fn iter(&self) -> impl Iterator<Item = NameBuf> {
        self.starts.iter().map(|&start| name_at(&self.arena, start))
    }
}

/// Whether `name` is the one that starts there. No name's words are the beginning of another's: they end with its root.
#[inline]
fn is_at(arena: &[u64], start: u32, name: &Name<'_>) -> bool {
    let mut there = arena[start as usize..].iter();
    let mut same = true;
    // To the end, for the hash was the same: that is one loop, and a comparison of two iterators takes twice the instructions.
    name.for_each_lowercase_word(|word| same &= there.next() == Some(&word));
    same
}

fn name_at(arena: &[u64], start: u32) -> NameBuf {
    let words = arena[start as usize..]
        .iter()
        .take(words_for(NAME_LENGTH_MAX));
    let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    Name::parse(&bytes)
        .expect("only names are put in")
        .to_owned()
}

impl<'n> FromIterator<Name<'n>> for NameSet {
    fn from_iter<I: IntoIterator<Item = Name<'n>>>(names: I) -> NameSet {
        let mut set = NameSet::default();
        for name in names {
            set.insert(&name);
        }
        set
    }
}

/// A set of suffixes: it matches its names and everything below them.
#[derive(Debug, Clone, Default)]
pub struct SuffixSet {
    names: NameSet,
    /// Bit n: a name of n labels was added (there are at most 127). Suffixes of other lengths need no look-up, which
    /// also bounds what a name of 127 labels costs.
    labels: u128,
    /// The same of names of n octets: where there are few names, few others are as long.
    octets: [u64; NAME_LENGTH_MAX.div_ceil(64)],
    /// How each name ends, as long as they are few.
    ends: Vec<End>,
}

/// The ends of so many names are compared sooner than the labels of the one asked for are walked.
const FEW_ENDS: usize = 8;

/// Eight octets in upper or lower case.
#[derive(Debug, Clone)]
struct AnyCase {
    /// In lower case; zeros where no octets are.
    word: u64,
    /// Bit 5 where a letter is: an octet that is this letter when the bit is set is it in upper or in lower case.
    letters: u64,
    /// All bits where octets are.
    mask: u64,
}

impl AnyCase {
    /// Of a word in lower case, whose first `unused` octets are none.
    fn of(word: u64, unused: usize) -> AnyCase {
        let letter = |octet: u8| 0x20 * u8::from(octet.is_ascii_lowercase());
        AnyCase {
            word,
            letters: u64::from_le_bytes(word.to_le_bytes().map(letter)),
            mask: u64::MAX << (8 * unused),
        }
    }

    #[inline]
    fn is(&self, word: u64) -> bool {
        (word | self.letters) & self.mask == self.word
    }
}

/// How a name ends: what is below it ends so, too, and most of what is asked for ends otherwise.
#[derive(Debug, Clone)]
struct End {
    /// Of the whole name.
    octets: usize,
    /// Its last eight octets, or all that it has.
    last: AnyCase,
    /// From its beginning, as long as there is any before those.
    front: Box<[AnyCase]>,
}

impl End {
    fn of(name: &Name<'_>) -> End {
        let (octets, eights) = (name.len(), name.lowercase_words());
        End {
            octets,
            last: AnyCase::of(name.last_lowercase_word(), 8_usize.saturating_sub(octets)),
            front: eights
                .take((octets - 1) / 8)
                .map(|word| AnyCase::of(word, 0))
                .collect(),
        }
    }

    /// Whether `name`, whose last octets are these, is the one that this is of, or below it.
    #[inline]
    fn is_above(&self, name: &Name<'_>) -> bool {
        let Some(start) = name.len().checked_sub(self.octets) else {
            return false;
        };
        let eights = name.as_bytes()[start..].as_chunks::<8>().0;
        let mut front = self.front.iter().zip(eights);
        front.all(|(eight, octets)| eight.is(u64::from_le_bytes(*octets)))
            && name.has_label_at(start)
    }
}

impl SuffixSet {
    /// Adds a suffix; whether it is new.
    pub fn insert(&mut self, suffix: &Name<'_>) -> bool {
        self.labels |= 1 << suffix.labels_count();
        self.octets[suffix.len() / 64] |= 1 << (suffix.len() % 64);
        let is_new = self.names.insert(suffix);
        self.note_ends();
        is_new
    }

    /// Without work for sets that are large.
    fn note_ends(&mut self) {
        self.ends.clear();
        if self.names.len() <= FEW_ENDS {
            let ends = self.names.iter().map(|name| End::of(&name.as_name()));
            self.ends.extend(ends);
        }
    }

    /// Whether a name as long as this one was added.
    #[inline]
    fn may_have(&self, suffix: &Name<'_>) -> bool {
        let octets = suffix.len() % 256;
        self.octets[octets / 64] >> (octets % 64) & 1 == 1
    }

    /// Removes a suffix; whether it was there.
    pub fn remove(&mut self, suffix: &Name<'_>) -> bool {
        let is_removed = self.names.remove(suffix);
        self.note_ends();
        is_removed
    }

    /// Whether `name`, of so many labels, is in the set or below a name of the set.
    #[inline]
    pub fn matches(&self, name: &Name<'_>, labels: u8) -> bool {
        if self.names.len() > FEW_ENDS {
            return self.matches_one_of_many(name, labels);
        }
        let last = name.last_word();
        let mut ends = self.ends.iter();
        ends.any(|end| end.last.is(last) && end.is_above(name))
    }

    fn matches_one_of_many(&self, name: &Name<'_>, labels: u8) -> bool {
        let mut left = u32::from(labels);
        for suffix in name.suffixes() {
            // Longest first: the bits above `left` are behind us, none below means that nothing shorter is there.
            let is_there = || self.may_have(&suffix) && self.names.contains(&suffix);
            if self.labels >> left & 1 == 1 && is_there() {
                return true;
            }
            if left == 0 || self.labels & ((1 << left) - 1) == 0 {
                return false;
            }
            left -= 1;
        }
        false
    }

    /// The suffixes, in lower case and in no order.
    pub fn names(&self) -> &NameSet {
        &self.names
    }
}

impl<'n> FromIterator<Name<'n>> for SuffixSet {
    fn from_iter<I: IntoIterator<Item = Name<'n>>>(names: I) -> SuffixSet {
        let mut set = SuffixSet::default();
        for name in names {
            set.insert(&name);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(set: &SuffixSet, name: &str) -> bool {
        let name: NameBuf = name.parse().unwrap();
        let labels = name.as_name().labels_count() as u8;
        set.matches(&name.as_name(), labels)
    }

    fn suffixes(names: &[&str]) -> SuffixSet {
        let names: Vec<NameBuf> = names.iter().map(|name| name.parse().unwrap()).collect();
        names.iter().map(NameBuf::as_name).collect()
    }

    #[test]
    fn a_suffix_ends_at_a_label() {
        let set = suffixes(&["Example.com.", "net."]);
        assert!(matches(&set, "example.COM."));
        assert!(matches(&set, "a.b.example.com."));
        assert!(matches(&set, "net."));
        assert!(!matches(&set, "badexample.com."));
        assert!(!matches(&set, "com."));
        assert!(!matches(&set, "."));
        assert!(matches(&suffixes(&["."]), "a.b."));
        assert!(!matches(&suffixes(&[]), "a.b."));
    }

    #[test]
    fn each_octet_of_a_suffix_counts_and_only_the_case_of_letters_does_not() {
        for length in 1..=60 {
            let suffix = format!("z{}-.q.", "k".repeat(length));
            let set = suffixes(&[&suffix]);
            let below = format!("x.{suffix}");
            for name in [&suffix, &below, &below.to_uppercase()] {
                assert!(matches(&set, name), "{name} of {suffix}");
            }
            assert!(!matches(&set, &format!("x{suffix}")), "{suffix}");
            for place in 0..suffix.len() {
                let (mut other, mut control) = (suffix.clone(), suffix.clone());
                if &suffix[place..=place] == "." {
                    continue;
                }
                other.replace_range(place..=place, "j");
                assert!(!matches(&set, &other), "{other} of {suffix}");
                // What differs from an octet in bit 5 only, as letters of the other case do.
                let twin = suffix.as_bytes()[place] ^ 0x20;
                if !twin.is_ascii_alphabetic() {
                    control.replace_range(place..=place, &format!("\\{twin:03}"));
                    assert!(!matches(&set, &control), "{control} of {suffix}");
                }
            }
        }
    }

    /// The octets of a suffix, its lengths too, may lie within a label.
    #[test]
    fn what_looks_like_a_suffix_within_a_label_is_none() {
        let set = suffixes(&["example.com."]);
        assert!(!matches(&set, "bad\\007example.com."));
        assert!(matches(&set, "bad\\007example.com.example.com."));
    }

    #[test]
    fn what_was_removed_is_gone() {
        let mut set = suffixes(&["a.", "b.a."]);
        let name: NameBuf = "A.".parse().unwrap();
        assert!(!set.insert(&name.as_name()));
        assert!(set.remove(&name.as_name()));
        assert!(!set.remove(&name.as_name()));
        assert!(!matches(&set, "a."));
        assert!(matches(&set, "c.b.a."));
        assert_eq!(set.names().len(), 1);
    }

    #[test]
    fn names_that_come_and_go_take_no_room() {
        let mut set = suffixes(&["stays."]);
        for number in 0..1_000 {
            let name: NameBuf = format!("name-{number}.example.").parse().unwrap();
            assert!(set.insert(&name.as_name()) && set.remove(&name.as_name()));
        }
        assert!(matches(&set, "a.stays.") && !matches(&set, "name-7.example."));
        assert_eq!((set.names.len(), set.names.arena.len()), (1, 1));
    }

    #[test]
    fn a_name_of_127_labels_is_looked_up() {
        let deepest = "a.".repeat(127);
        assert!(matches(&suffixes(&[&deepest]), &deepest));
        assert!(matches(&suffixes(&["a.a."]), &deepest));
    }

    proptest! {
        #[test]
        fn a_suffix_set_is_a_list_of_suffixes(
            set in proptest::collection::vec("([abB]\\.){0,4}", 0..20),
            asked in "([aAb]\\.){0,6}",
        ) {
            let dotted = |name: &str| if name.is_empty() { ".".to_owned() } else { name.to_owned() };
            let set: Vec<NameBuf> = set.iter().map(|name| dotted(name).parse().unwrap()).collect();
            let asked: NameBuf = dotted(&asked).parse().unwrap();
            let expected = set.iter().any(|suffix| asked.as_name().is_within(&suffix.as_name()));
            let suffixes: SuffixSet = set.iter().map(NameBuf::as_name).collect();
            let labels = asked.as_name().labels_count() as u8;
            prop_assert_eq!(suffixes.matches(&asked.as_name(), labels), expected);
            let names: NameSet = set.iter().map(NameBuf::as_name).collect();
            prop_assert_eq!(names.contains(&asked.as_name()), set.contains(&asked));
        }
    }
}
