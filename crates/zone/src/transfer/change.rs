//! Steps from one version of a zone to another: told (RFC 1995 §4), found between two zones, carried out on one.

use super::serial;
use crate::rdata;
use crate::record::{Record, RecordRef};
use crate::zone::names::canonical_order;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::iter::Peekable;
use wire::codes::{QtypeText, qtype};
use wire::name::Name;

/// The step from one version of a zone to another (RFC 1995 §4): records taken out, records put in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The SOA record before.
    pub from: Record,
    /// What goes, without the SOA.
    pub removed: Vec<Record>,
    /// The SOA record afterwards.
    pub to: Record,
    /// What comes, without the SOA.
    pub added: Vec<Record>,
}

impl Change {
    /// Serials before and afterwards; `None` where a SOA record is none.
    #[must_use]
    pub fn serials(&self) -> Option<(u32, u32)> {
        Some((
            serial::of_soa(&self.from.rdata)?,
            serial::of_soa(&self.to.rdata)?,
        ))
    }

    /// All its records in the order of RFC 1995 §4.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        let removed = std::iter::once(&self.from).chain(&self.removed);
        let added = std::iter::once(&self.to).chain(&self.added);
        removed.chain(added)
    }

    /// The step from `old` to `new`, whose records come as [`crate::zone::Zone::records`] gives them: the SOA first, then
    /// owners in canonical order, proofs of NSEC3 at last. Another order costs records that are removed and added for
    /// nothing, but is no mistake. `None` where a zone does not begin with its SOA.
    pub fn between(
        old: impl Iterator<Item = Record>,
        new: impl Iterator<Item = Record>,
    ) -> Option<Change> {
        Change::between_within(old, new, u64::MAX)
    }

    /// The same; `None` also where its records have more than `most` octets of owners and data, which it holds no more of then.
    pub fn between_within(
        mut old: impl Iterator<Item = Record>,
        mut new: impl Iterator<Item = Record>,
        most: u64,
    ) -> Option<Change> {
        let is_soa = |record: &Record| record.kind == qtype::SOA;
        let mut change = Change {
            from: old.next().filter(is_soa)?,
            removed: Vec::new(),
            to: new.next().filter(is_soa)?,
            added: Vec::new(),
        };
        let (mut old, mut new) = (old.peekable(), new.peekable());
        let mut octets = 0;
        while octets <= most {
            let known = (change.removed.len(), change.added.len());
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Some(change),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => place(old, new),
            };
            if order.is_le() {
                take_owner(&mut old, &mut change.removed);
            }
            if order.is_ge() {
                take_owner(&mut new, &mut change.added);
            }
            if order.is_eq() {
                change.cancel();
            }
            let more = (&change.removed[known.0..], &change.added[known.1..]);
            let more = more.0.iter().chain(more.1);
            let of = |record: &Record| (record.owner.len() + record.rdata.len()) as u64;
            octets += more.map(of).sum::<u64>();
        }
        None
    }

    /// Takes out what the last owner of both sides has in common.
    fn cancel(&mut self) {
        let Some(owner) = self.removed.last().map(|record| record.owner.clone()) else {
            return;
        };
        let start = |records: &[Record]| {
            let others = records.iter().rposition(|record| record.owner != owner);
            others.map_or(0, |at| at + 1)
        };
        let removed = self.removed.split_off(start(&self.removed));
        let added = self.added.split_off(start(&self.added));
        // Most owners have not changed.
        if removed == added {
            return;
        }
        let goes: HashSet<&Record> = removed.iter().collect();
        let comes: HashSet<&Record> = added.iter().collect();
        let gone = removed.iter().filter(|record| !comes.contains(record));
        self.removed.extend(gone.cloned());
        let new = added.iter().filter(|record| !goes.contains(record));
        self.added.extend(new.cloned());
    }
}

/// Which owner comes first.
fn place(one: &Record, other: &Record) -> Ordering {
    let order = is_proof(one).cmp(&is_proof(other));
    order.then_with(|| canonical_order(&lowered(&one.owner), &lowered(&other.owner)))
}

/// A name in lower case, as most are: no length of a label is a capital letter.
fn lowered(name: &[u8]) -> Cow<'_, [u8]> {
    match name.iter().any(u8::is_ascii_uppercase) {
        true => name.to_ascii_lowercase().into(),
        false => name.into(),
    }
}

/// NSEC3 records and their signatures, which are listed last.
fn is_proof(record: &Record) -> bool {
    let covers = |kind: u16| record.rdata.starts_with(&kind.to_be_bytes());
    record.kind == qtype::NSEC3 || record.kind == qtype::RRSIG && covers(qtype::NSEC3)
}

/// Moves all records of the owner that comes next.
fn take_owner(records: &mut Peekable<impl Iterator<Item = Record>>, out: &mut Vec<Record>) {
    let Some(first) = records.next() else { return };
    let (owner, proof) = (first.owner.clone(), is_proof(&first));
    out.push(first);
    let is_same = |record: &Record| record.owner == owner && is_proof(record) == proof;
    while let Some(record) = records.next_if(is_same) {
        out.push(record);
    }
}

// ------------------------------------------------------------------------------------------- patches

/// Changes that do not fit the zone, or each other: what they lead to is not the primary's zone (F34).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// A record goes that is not there.
    Missing(Record),
    /// A record comes that is there already.
    Present(Record),
    /// A change does not begin where the one before ended, or there is none.
    Serials,
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (record, what) = match self {
            PatchError::Missing(record) => (record, "is removed, but the zone has no such record"),
            PatchError::Present(record) => (record, "is added, but the zone has it already"),
            PatchError::Serials => {
                return f.write_str("changes that do not follow each other: each must begin with the serial that the one before led to");
            }
        };
        match Name::parse(&record.owner) {
            Ok(owner) => write!(f, "{owner} {} {what}", QtypeText(record.kind)),
            Err(error) => write!(f, "owner of a changed record: {error}"),
        }
    }
}

impl std::error::Error for PatchError {}

/// What becomes of a record that changes name.
struct Fate {
    /// The record as it was named first.
    named: Record,
    /// It must be in the zone before.
    was: bool,
    /// It was found there.
    found: bool,
    /// It is in the zone afterwards, like this.
    now: Option<Record>,
}

/// Those of one owner, by type and RDATA in canonical form: case and TTL do not tell records apart.
type Fates = HashMap<(u16, Vec<u8>), Fate>;

/// Several changes at once, to be carried out on the records of a zone one by one.
///
/// ```text
/// for owner of patch.owners(): for record of the old zone's at owner: patch.keeps(record) → into the new zone
/// patch.finish()? → these too; the SOA comes from patch.soa()
/// ```
pub struct Patch {
    fates: HashMap<Box<[u8]>, Fates>,
    from: u32,
    soa: Record,
    error: Option<PatchError>,
}

impl Patch {
    /// Folds changes that follow each other into one.
    ///
    /// # Errors
    /// They contradict each other.
    pub fn new(changes: &[Change]) -> Result<Patch, PatchError> {
        let serials: Option<Vec<_>> = changes.iter().map(Change::serials).collect();
        let serials = serials.ok_or(PatchError::Serials)?;
        let follows = |pair: &[(u32, u32)]| pair[0].1 == pair[1].0;
        let (Some((from, _)), Some(last)) = (serials.first(), changes.last()) else {
            return Err(PatchError::Serials);
        };
        if !serials.windows(2).all(follows) {
            return Err(PatchError::Serials);
        }
        let mut patch = Patch {
            fates: HashMap::new(),
            from: *from,
            soa: last.to.clone(),
            error: None,
        };
        // Its SOA record changes, whatever else does.
        let apex = last.to.owner.to_ascii_lowercase().into();
        patch.fates.insert(apex, Fates::new());
        for change in changes {
            change
                .removed
                .iter()
                .try_for_each(|record| patch.fold(record, None))?;
            change
                .added
                .iter()
                .try_for_each(|record| patch.fold(record, Some(record)))?;
        }
        Ok(patch)
    }

    /// The serial that the zone must have before.
    #[must_use]
    pub const fn from_serial(&self) -> u32 {
        self.from
    }

    /// The SOA record afterwards.
    #[must_use]
    pub const fn soa(&self) -> &Record {
        &self.soa
    }

    fn fold(&mut self, record: &Record, now: Option<&Record>) -> Result<(), PatchError> {
        let owner = record.owner.to_ascii_lowercase().into();
        let fates = self.fates.entry(owner).or_default();
        match fates.entry(identity(record.as_ref())) {
            Entry::Occupied(mut known) => {
                let fate = known.get_mut();
                match (&fate.now, now) {
                    (Some(_), Some(_)) => return Err(PatchError::Present(record.clone())),
                    (None, None) => return Err(PatchError::Missing(record.clone())),
                    _ => {}
                }
                fate.now = now.cloned();
            }
            Entry::Vacant(place) => {
                place.insert(Fate {
                    named: record.clone(),
                    was: now.is_none(),
                    found: false,
                    now: now.cloned(),
                });
            }
        }
        Ok(())
    }

    /// Owners of records that come or go, in lower case, and the apex.
    pub fn owners(&self) -> impl Iterator<Item = &[u8]> {
        self.fates.keys().map(|owner| &**owner)
    }

    /// Whether a record of the zone stays as it is; its SOA does not.
    pub fn keeps(&mut self, record: RecordRef<'_>) -> bool {
        if record.kind == qtype::SOA {
            return false;
        }
        let mut buffer = [0; 255];
        let Some(owner) = buffer.get_mut(..record.owner.len()) else {
            return true;
        };
        owner.copy_from_slice(record.owner);
        owner.make_ascii_lowercase();
        let Some(fates) = self.fates.get_mut(&*owner) else {
            return true;
        };
        let Some(fate) = fates.get_mut(&identity(record)) else {
            return true;
        };
        fate.found = true;
        if !fate.was {
            self.error
                .get_or_insert(PatchError::Present(record.to_owned()));
        }
        false
    }

    /// What the zone has besides what it keeps, and without the SOA.
    ///
    /// # Errors
    /// The changes do not fit the zone whose records were shown.
    pub fn finish(self) -> Result<Vec<Record>, PatchError> {
        let mut added = Vec::new();
        let mut error = self.error;
        for fate in self.fates.into_values().flat_map(HashMap::into_values) {
            if fate.was && !fate.found {
                error.get_or_insert(PatchError::Missing(fate.named));
            }
            added.extend(fate.now);
        }
        error.map_or(Ok(added), Err)
    }
}

/// What tells a record apart from others of its owner.
fn identity(record: RecordRef<'_>) -> (u16, Vec<u8>) {
    let mut octets = Vec::with_capacity(record.rdata.len());
    rdata::canonical(record.kind, record.rdata, &mut octets);
    (record.kind, octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(owner: &[u8], kind: u16, rdata: &[u8]) -> Record {
        Record {
            owner: owner.into(),
            kind,
            class: 1,
            ttl: 5,
            rdata: rdata.into(),
        }
    }

    fn soa(serial: u8) -> Record {
        let rdata = [&[0, 0, 0, 0, 0, serial][..], &[0; 16]].concat();
        record(b"\x01a\x00", qtype::SOA, &rdata)
    }

    fn address(owner: u8, octet: u8) -> Record {
        record(&[1, owner, 1, b'a', 0], qtype::A, &[192, 0, 2, octet])
    }

    fn patched(old: &[Record], changes: &[Change]) -> Result<Vec<Record>, PatchError> {
        let mut patch = Patch::new(changes)?;
        let mut zone = vec![patch.soa().clone()];
        zone.extend(
            old.iter()
                .filter(|record| patch.keeps(record.as_ref()))
                .cloned(),
        );
        zone.extend(patch.finish()?);
        Ok(zone)
    }

    fn change(from: u8, removed: &[Record], to: u8, added: &[Record]) -> Change {
        Change {
            from: soa(from),
            removed: removed.to_vec(),
            to: soa(to),
            added: added.to_vec(),
        }
    }

    #[test]
    fn f34_changes_that_do_not_fit_the_zone() {
        let old = [soa(1), address(b'x', 1)];
        let missing = address(b'x', 2);
        let fits = change(1, &[address(b'X', 1)], 2, std::slice::from_ref(&missing));
        assert_eq!(
            patched(&old, std::slice::from_ref(&fits)),
            Ok(vec![soa(2), missing.clone()])
        );
        let lies = change(1, std::slice::from_ref(&missing), 2, &[]);
        assert_eq!(
            patched(&old, &[lies]),
            Err(PatchError::Missing(missing.clone()))
        );
        let lies = change(1, &[], 2, &[address(b'x', 1)]);
        let error = patched(&old, &[lies]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x.a. A is added, but the zone has it already"
        );
        // Two changes that contradict each other, and two that do not follow each other.
        let again = change(2, &[address(b'x', 1)], 3, &[]);
        assert!(matches!(
            patched(&old, &[fits.clone(), again]),
            Err(PatchError::Missing(_))
        ));
        let again = change(2, &[], 3, std::slice::from_ref(&missing));
        assert!(matches!(
            patched(&old, &[fits.clone(), again]),
            Err(PatchError::Present(_))
        ));
        assert_eq!(
            patched(&old, &[fits.clone(), change(3, &[], 4, &[])]),
            Err(PatchError::Serials)
        );
        assert_eq!(patched(&old, &[]), Err(PatchError::Serials));
        // Out, in again, with another TTL: the last one holds.
        let mut slower = address(b'x', 1);
        slower.ttl = 9;
        let back = change(2, &[missing], 3, std::slice::from_ref(&slower));
        assert_eq!(patched(&old, &[fits, back]), Ok(vec![soa(3), slower]));
    }

    /// Each is looked for among all others, of which 300,000 squared would be too many.
    #[test]
    fn f34_changes_of_very_many_records_of_one_name_take_seconds() {
        let start = std::time::Instant::now();
        let numbered = |number: u32| record(b"\x01x\x01a\x00", 65_280, &number.to_be_bytes());
        let records: Vec<Record> = (0..300_000).map(numbered).collect();
        let mut patch = Patch::new(&[change(1, &records, 2, &[])]).unwrap();
        assert!(records.iter().all(|record| !patch.keeps(record.as_ref())));
        assert!(patch.finish().unwrap().is_empty());
        assert!(start.elapsed().as_secs() < 60);
    }

    #[test]
    fn the_difference_of_very_many_records_of_one_name_takes_seconds() {
        let start = std::time::Instant::now();
        let numbered = |number: u32| record(b"\x01x\x01a\x00", 65_280, &number.to_be_bytes());
        let zone = |serial: u8, numbers: std::ops::Range<u32>| {
            std::iter::once(soa(serial)).chain(numbers.map(numbered))
        };
        let change = Change::between(zone(1, 0..300_000), zone(2, 1..300_001)).unwrap();
        assert_eq!(change.removed, [numbered(0)]);
        assert_eq!(change.added, [numbered(300_000)]);
        assert!(start.elapsed().as_secs() < 60);
    }

    #[test]
    fn a_difference_that_is_too_long_is_none() {
        let zone = |serial: u8, owners: std::ops::Range<u8>| {
            std::iter::once(soa(serial)).chain(owners.map(|owner| address(owner, 1)))
        };
        // Three owners go, one comes; "b" to "d" are in both.
        let within = |most| Change::between_within(zone(1, b'_'..b'e'), zone(2, b'b'..b'f'), most);
        let change = within(u64::MAX).unwrap();
        let octets = change.removed.iter().chain(&change.added);
        let octets: usize = octets
            .map(|record| record.owner.len() + record.rdata.len())
            .sum();
        assert_eq!(change.removed.len() + change.added.len(), 4);
        assert_eq!(within(octets as u64), Some(change));
        assert_eq!(within(octets as u64 - 1), None);
    }

    /// Owners and octets from few, sorted as a zone lists them.
    fn any_zone() -> impl Strategy<Value = Vec<Record>> {
        prop::collection::btree_set((b'a'..b'g', 0_u8..4, any::<bool>()), 0..12).prop_map(|parts| {
            let record = |(owner, octet, proof): (u8, u8, bool)| match proof {
                true => record(
                    &[1, owner, 1, b'a', 0],
                    qtype::NSEC3,
                    &[1, 0, 0, 0, 0, 1, octet],
                ),
                false => address(owner, octet),
            };
            let mut records: Vec<Record> = parts.into_iter().map(record).collect();
            records.sort_by(place);
            records
        })
    }

    proptest! {
        #[test]
        fn the_difference_of_two_zones_leads_from_one_to_the_other(old in any_zone(), new in any_zone(), shuffled: bool) {
            let listed = |serial: u8, records: &[Record]| [&[soa(serial)], records].concat();
            let (mut old, new) = (listed(1, &old), listed(2, &new));
            if shuffled {
                old[1..].reverse();
            }
            let change = Change::between(old.iter().cloned(), new.iter().cloned()).unwrap();
            if !shuffled {
                // Nothing moves for nothing.
                prop_assert!(change.removed.iter().all(|record| !new.contains(record)));
                prop_assert!(change.added.iter().all(|record| !old.contains(record)));
            }
            let mut found = patched(&old, &[change]).unwrap();
            found[1..].sort_by(|a, b| place(a, b).then_with(|| a.rdata.cmp(&b.rdata)));
            let mut expected = new;
            expected[1..].sort_by(|a, b| place(a, b).then_with(|| a.rdata.cmp(&b.rdata)));
            prop_assert_eq!(found, expected);
        }
    }
}
