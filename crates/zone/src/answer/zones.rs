//! The zones of a server, found by the names in them.

use super::Serves;
use crate::zone::Zone;
use crate::zone::names::{labels, same};
use crate::zone::parts::DELEGATION;
use hashbrown::HashTable;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf};

/// A set of zones; does not change: another set takes its place.
pub struct Zones {
    entries: Vec<Entry>,
    table: HashTable<u32>,
    /// Bit *n* is set where an apex of *n* labels is.
    depths: u128,
    /// The labels of the only apex, if there is one: it is compared, not hashed.
    only: Option<u8>,
    /// See [`Zone::is_large`].
    has_large: bool,
    keys: RapidSecrets,
}

struct Entry {
    /// In lower case.
    apex: Box<[u8]>,
    zone: Option<Arc<Zone>>,
}

/// The zone for a name.
#[derive(Clone, Copy)]
pub(super) struct Home<'z> {
    /// Its number.
    pub(super) number: u32,
    /// `None` where it is not loaded.
    pub(super) zone: Option<&'z Zone>,
}

impl Zones {
    /// A set of zones by their apexes; those that are not loaded yet, or are no longer to be served, are `None`. Of several
    /// with the same apex the last one counts.
    pub fn new(zones: impl IntoIterator<Item = (NameBuf, Option<Arc<Zone>>)>) -> Zones {
        let mut set = Zones::default();
        for (apex, zone) in zones {
            let apex = apex.as_name().as_bytes().to_ascii_lowercase();
            set.has_large |= zone.as_ref().is_some_and(|zone| zone.is_large());
            match set.number(&apex) {
                Some(number) => set.entries[number as usize].zone = zone,
                None => set.add(apex.into(), zone),
            }
        }
        set
    }

    fn add(&mut self, apex: Box<[u8]>, zone: Option<Arc<Zone>>) {
        let depth = labels(&apex);
        self.depths |= 1 << depth;
        self.only = self.entries.is_empty().then_some(depth as u8);
        let hash = self.hash(&apex);
        self.entries.push(Entry { apex, zone });
        let (entries, keys) = (&self.entries, &self.keys);
        let hash_of = |number: &u32| {
            rapidhash_v3_inline::<true, false, false>(&entries[*number as usize].apex, keys)
        };
        let number = entries.len() as u32 - 1;
        self.table.insert_unique(hash, number, hash_of);
    }

    /// How many zones these are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether looking ahead ([`ahead`](super::ahead)) is worth it for any of them.
    #[must_use]
    #[inline]
    pub fn has_large(&self) -> bool {
        self.has_large
    }

    /// The zone with this number, which answers tell; `None` where it is not loaded.
    #[must_use]
    pub fn zone(&self, number: usize) -> Option<&Arc<Zone>> {
        self.entries.get(number)?.zone.as_ref()
    }

    /// The zone of this number, see [`Zones::find`].
    #[inline]
    pub(super) fn home(&self, number: u32) -> Home<'_> {
        let zone = self.entries[number as usize].zone.as_deref();
        Home { number, zone }
    }

    /// The number of the zone with this apex.
    #[must_use]
    pub fn number_of(&self, apex: Name<'_>) -> Option<usize> {
        let apex = apex.as_bytes().to_ascii_lowercase();
        self.number(&apex).map(|number| number as usize)
    }

    /// Each apex and its zone, by number.
    pub fn iter(&self) -> impl Iterator<Item = (Name<'_>, Option<&Arc<Zone>>)> {
        self.entries.iter().map(|entry| {
            let apex = Name::parse(&entry.apex).expect("the apex was a name");
            (apex, entry.zone.as_ref())
        })
    }

    #[inline]
    fn hash(&self, apex: &[u8]) -> u64 {
        rapidhash_v3_inline::<true, false, false>(apex, &self.keys)
    }

    #[inline]
    fn number(&self, apex: &[u8]) -> Option<u32> {
        let same = |number: &u32| *self.entries[*number as usize].apex == *apex;
        self.table.find(self.hash(apex), same).copied()
    }

    /// The number of the zone with the longest apex at or above `name`, of so many labels, of those that serve.
    #[must_use]
    pub fn enclosing(&self, name: Name<'_>, labels: u8, serves: Serves<'_>) -> Option<usize> {
        let home = self.find(name.as_bytes(), labels.into(), false, serves)?;
        Some(home.number as usize)
    }

    /// Of the zones that serve the one with the longest apex at or above `name`, in whatever case, of so many labels.
    /// `for_parent`: where `name` is an apex, the zone above it goes first, if there is one.
    ///
    /// RFC 4035 §3.1.4.1: DS records "appear only at the parental side of zone cuts", and whoever serves both sides answers
    /// from there.
    #[inline(always)]
    pub(super) fn find(
        &self,
        name: &[u8],
        labels: usize,
        for_parent: bool,
        serves: Serves<'_>,
    ) -> Option<Home<'_>> {
        match self.only {
            Some(depth) => self.find_only(name, labels, depth.into(), serves),
            None => self.find_among(name, labels, for_parent, serves),
        }
    }

    fn find_among(
        &self,
        name: &[u8],
        labels: usize,
        for_parent: bool,
        serves: Serves<'_>,
    ) -> Option<Home<'_>> {
        let mut lowered = [0; NAME_LENGTH_MAX];
        let name = Name::measured(name).to_lowercase(&mut lowered).as_bytes();
        let mut own = None;
        let (mut suffix, mut depth) = (name, labels);
        loop {
            if self.depths >> depth & 1 == 1
                && let Some(number) = self.number(suffix)
                && serves(number as usize)
            {
                let zone = self.entries[number as usize].zone.as_deref();
                let home = Home { number, zone };
                if !for_parent {
                    return Some(home);
                }
                if depth != labels {
                    // RFC 4035 §3.1.4.1: the child's server, where it has not the parent, "MUST return an authoritative "no
                    // data" response".
                    let refers = |zone: &Zone| refers_above(zone, name, labels);
                    return own.filter(|_| zone.is_some_and(refers)).or(Some(home));
                }
                own = Some(home);
            }
            if depth == 0 {
                return own;
            }
            suffix = &suffix[1 + usize::from(suffix[0])..];
            depth -= 1;
        }
    }
}

impl Zones {
    /// The same where there is one zone, whose apex has so many labels.
    #[inline]
    fn find_only(
        &self,
        name: &[u8],
        labels: usize,
        depth: usize,
        serves: Serves<'_>,
    ) -> Option<Home<'_>> {
        let entry = self.entries.first()?;
        let start = name.len().checked_sub(entry.apex.len())?;
        // The same octets may begin within a label.
        let mut at = 0;
        for _ in depth..labels {
            at += 1 + usize::from(name[at]);
        }
        let is_below = at == start && same(&entry.apex, &name[start..]);
        (is_below && serves(0)).then_some(Home {
            number: 0,
            zone: entry.zone.as_deref(),
        })
    }
}

/// Whether `zone` has delegated a name above `name`, of so many labels: what is there is another's.
#[cold]
fn refers_above(zone: &Zone, name: &[u8], labels: usize) -> bool {
    let cut = zone.find(name, labels).node.cut();
    cut.is_some_and(|cut| cut.has(DELEGATION) && cut.name().len() < name.len())
}

impl Default for Zones {
    fn default() -> Zones {
        Zones {
            entries: Vec::new(),
            table: HashTable::new(),
            depths: 0,
            only: None,
            has_large: false,
            keys: RapidSecrets::seed(RandomState::new().hash_one(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Outcome, answer_among};
    use crate::file::{Opener, Reader, Settings};
    use std::io::ErrorKind;
    use wire::codes::{class, qtype};
    use wire::message::{Header, QueryFlags, parse_query, write_query};

    fn zone(apex: &str, lines: &str) -> (NameBuf, Option<Arc<Zone>>) {
        let apex: NameBuf = apex.parse().unwrap();
        let text = format!("@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n{lines}");
        let open: Opener<'_> = Box::new(|_| Err(ErrorKind::NotFound.into()));
        let reader = Reader::new("zone", text.as_bytes(), open, Settings::new(apex.as_name()));
        let records = reader.map(|record| record.unwrap());
        let (zone, _) = Zone::build(apex.as_name(), records).unwrap();
        (apex, Some(zone.into()))
    }

    /// RFC 1034 §4.3.2: the client goes on from where it is not served.
    #[test]
    fn an_alias_leads_only_into_zones_that_serve_the_query() {
        let zones = Zones::new([
            zone("example.", "alias 60 CNAME www.inner.test.\n"),
            zone("inner.test.", "www 60 A 192.0.2.7\n"),
        ]);
        let name: NameBuf = "alias.example.".parse().unwrap();
        let mut asked = [0; 512];
        let question = (name.as_name(), qtype::A, class::IN);
        let length = write_query(&mut asked, 1, question, QueryFlags::default()).unwrap();
        let parts = parse_query(&asked[..length]).unwrap();
        let counted = |serves: &dyn Fn(usize) -> bool| {
            let mut message = asked;
            let outcome = answer_among((&zones, serves), None, &mut message, &parts, 512);
            assert!(matches!(outcome, Outcome::Answered(_)));
            Header::read(&message).unwrap().answer_count()
        };
        assert_eq!(counted(&|_| true), 2);
        assert_eq!(counted(&|zone| zone == 0), 1, "the CNAME record alone");
    }

    /// RFC 1034 §4.3.2: of the zones that are served the parent refers to the child, behind an alias too.
    #[test]
    fn a_zone_that_does_not_serve_the_query_does_not_hide_the_one_above_it() {
        let zones = Zones::new([
            zone(
                "example.",
                "alias 60 CNAME www.c\nc 60 NS ns.c\nns.c 60 A 192.0.2.2\n",
            ),
            zone("c.example.", "www 60 A 192.0.2.7\n"),
        ]);
        let counted = |name: &str, kind, serves: Serves<'_>| {
            let name: NameBuf = name.parse().unwrap();
            let mut message = [0; 512];
            let question = (name.as_name(), kind, class::IN);
            let length = write_query(&mut message, 1, question, QueryFlags::default()).unwrap();
            let parts = parse_query(&message[..length]).unwrap();
            match answer_among((&zones, serves), None, &mut message, &parts, 512) {
                Outcome::Answered(answered) => {
                    let header = Header::read(&message).unwrap();
                    let counts = [
                        header.answer_count(),
                        header.authority_count(),
                        header.additional_count(),
                    ];
                    Some((answered.zone, counts))
                }
                Outcome::NotServed => None,
                Outcome::NotLoaded { .. } => panic!("both are loaded"),
            }
        };
        let (parent, child): (Serves<'_>, Serves<'_>) = (&|zone| zone == 0, &|zone| zone == 1);
        let www = "www.c.example.";
        assert_eq!(counted(www, qtype::A, &|_| true), Some((1, [1, 0, 0])));
        assert_eq!(counted(www, qtype::A, parent), Some((0, [0, 1, 1])));
        let alias = counted("alias.example.", qtype::A, parent);
        assert_eq!(alias, Some((0, [1, 1, 1])));
        assert_eq!(counted("example.", qtype::SOA, child), None);
        // RFC 4035 §3.1.4.1: "no data" of the child, where the parent is not served.
        let signer = counted("c.example.", qtype::DS, child);
        assert_eq!(signer, Some((1, [0, 1, 0])));
    }

    /// RFC 4035 §3.1.4.1: whoever serves the child, and above it not the parent but an ancestor of that, answers for the
    /// child.
    #[test]
    fn signers_of_a_child_are_asked_of_its_parent_and_of_no_other() {
        let delegations = "c 60 NS ns.c\nns.c 60 A 192.0.2.2\nb 60 NS ns.b\nns.b 60 A 192.0.2.3\n";
        let zones = Zones::new([
            zone("example.", delegations),
            zone("c.example.", ""),
            zone("a.b.example.", ""),
        ]);
        for (name, labels, number) in [
            ("c.example.", 2, 0),
            ("x.c.example.", 3, 1),
            ("a.b.example.", 3, 2),
            ("x.a.b.example.", 4, 2),
            ("b.example.", 2, 0),
            ("example.", 1, 0),
        ] {
            let name: NameBuf = name.parse().unwrap();
            let found = zones.find(name.as_name().as_bytes(), labels, true, &|_| true);
            assert_eq!(found.unwrap().number, number, "{name}");
        }
    }
}
