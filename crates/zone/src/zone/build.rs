//! Makes a compiled zone of records: they are gathered by name, names are sorted. [`assemble`] encodes them.

mod amend;
mod assemble;

use super::check::next_hash;
use super::fault::{Warning, ZoneError};
use super::nsec3::{ITERATIONS_MAX, Parameters};
use super::parts::NONE;
use super::table::Keys;
use super::{Zone, encode::Sorted, list, names, rdata};
use crate::record::RecordRef;
pub(crate) use amend::Changed;
use assemble::{Assembly, node_error};
use hashbrown::HashTable;
use std::collections::HashSet;
use wire::codes::{class, qtype};
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf};
use wire::ttl::effective;

/// Warnings that are kept: a million of them help nobody.
const WARNINGS_MAX: usize = 1_000;

/// Chains of NSEC3 records that are followed to see which is whole: a signer needs two, and each costs a look at all records.
const CHAINS_MAX: usize = 4;

/// Octets that an owner takes with its place in the table, which doubles.
const OWNER: u64 = 32;

/// Octets that are made of a record beside its data (the headers of its RRset and its own), of an owner beside its name (a node, a
/// gap before it, places in lists and in the table), of one of NSEC3 (its label, its hash, its place in the chain).
const BUILT_OF_RECORD: u64 = 40;
const BUILT_OF_OWNER: u64 = 80;
const BUILT_OF_HASH: u64 = 128;
/// Octets that a record takes while those of its owner are sorted, in a list that doubles.
const SORTED: u64 = 2 * size_of::<Sorted<'_>>() as u64;

/// Takes records one by one, in any order, and makes a [`Zone`] of them. A record takes 16 octets and its data until then.
pub struct ZoneBuilder {
    apex: Box<[u8]>,
    /// Names and data of records, one behind the other.
    octets: Vec<u8>,
    records: Vec<Stored>,
    /// Names of the zone's tree.
    tree: Owners,
    /// Owners of NSEC3 records, which are no names of the tree (RFC 5155 §7.2.8).
    hashes: Owners,
    /// Octets of the names of the tree, those counted that share octets with others; and of the records' data.
    names: u64,
    data: u64,
    /// The most records of one owner.
    most: u64,
    keys: Keys,
    warnings: Vec<Warning>,
}

struct Stored {
    kind: u16,
    length: u16,
    ttl: u32,
    at: u32,
    /// The record of the same owner that came before.
    before: u32,
}

#[derive(Default)]
struct Owners {
    table: HashTable<u32>,
    list: Vec<Owner>,
}

#[derive(Clone, Copy)]
struct Owner {
    at: u32,
    length: u8,
    /// Its records, or as many as can be counted.
    count: u16,
    /// The record that came last.
    last: u32,
    /// Where the name is as it was written, where that is not in lower case.
    written: u32,
}

impl ZoneBuilder {
    /// An empty zone.
    #[must_use]
    pub fn new(apex: Name<'_>) -> ZoneBuilder {
        ZoneBuilder::with_keys(&apex.as_bytes().to_ascii_lowercase(), &Keys::random())
    }

    /// The same for names that are hashed with these keys; the apex in lower case.
    fn with_keys(apex: &[u8], keys: &Keys) -> ZoneBuilder {
        ZoneBuilder {
            apex: apex.into(),
            octets: Vec::new(),
            records: Vec::new(),
            tree: Owners::default(),
            hashes: Owners::default(),
            names: 0,
            data: 0,
            most: 0,
            keys: keys.clone(),
            warnings: Vec::new(),
        }
    }

    /// Adds one record.
    ///
    /// # Errors
    /// Where it cannot be in this zone.
    pub fn push(&mut self, record: RecordRef<'_>) -> Result<(), ZoneError> {
        let name = Name::parse(record.owner)
            .ok()
            .filter(|name| name.len() == record.owner.len());
        let name = name.ok_or(ZoneError::BadOwner {
            octets: record.owner.len(),
        })?;
        self.check(record, name)?;
        let mut lowered = [0; NAME_LENGTH_MAX];
        let lowered = name.to_lowercase(&mut lowered).as_bytes();
        if !names::is_within(lowered, &self.apex) {
            let (owner, apex) = (name.to_owned(), name_of(&self.apex));
            self.warn(Warning::OutOfZone { owner, apex });
            return Ok(());
        }
        let ttl = self.ttl(record, name);
        let covered = (record.kind == qtype::RRSIG)
            .then(|| rdata::covered(record.rdata))
            .flatten();
        let of_chain = covered.unwrap_or(record.kind) == qtype::NSEC3;
        let owners = if of_chain {
            &mut self.hashes
        } else {
            &mut self.tree
        };
        let (number, is_new) = owners.find_or_add(lowered, &self.keys, &mut self.octets);
        if is_new && !of_chain {
            self.names += owners.add_above(number, &self.apex, &self.keys, &self.octets);
        }
        let owner = &mut owners.list[number];
        if record.owner != lowered {
            owner.note_case(record.owner, &mut self.octets);
        }
        let stored = Stored {
            kind: record.kind,
            length: record.rdata.len() as u16,
            ttl,
            at: self.octets.len() as u32,
            before: owner.last,
        };
        owner.last = self.records.len() as u32;
        owner.count = owner.count.saturating_add(1);
        self.most += u64::from(owner.count == u16::MAX || u64::from(owner.count) > self.most);
        self.data += record.rdata.len() as u64;
        self.records.push(stored);
        self.octets.extend(record.rdata);
        if u32::try_from(self.octets.len()).is_err() {
            let apex = name_of(&self.apex);
            return Err(ZoneError::TooLarge { apex });
        }
        Ok(())
    }

    /// Once for records that follow each other.
    #[cold]
    fn warn(&mut self, warning: Warning) {
        if self.warnings.len() < WARNINGS_MAX && self.warnings.last() != Some(&warning) {
            self.warnings.push(warning);
        }
    }

    /// The TTL that a record has here. RFC 2181 §8: "Implementations should treat TTL values received with the most significant
    /// bit set as if the entire value received was zero."
    fn ttl(&mut self, record: RecordRef<'_>, owner: Name<'_>) -> u32 {
        let (kind, ttl) = (record.kind, record.ttl);
        let effective = effective(ttl);
        if effective != ttl {
            let owner = owner.to_owned();
            self.warn(Warning::TtlTooHigh { owner, kind, ttl });
        }
        effective
    }

    fn check(&self, record: RecordRef<'_>, name: Name<'_>) -> Result<(), ZoneError> {
        let owner = || name.to_owned();
        let kind = record.kind;
        if record.class != class::IN {
            return Err(ZoneError::Class {
                owner: owner(),
                class: record.class,
            });
        }
        // RFC 6895 §3.1: 128 to 255 are "Q and Meta-TYPEs"; OPT is one, too, and 0 none at all.
        if matches!(kind, 0 | qtype::OPT | 128..=255) {
            return Err(ZoneError::MetaType {
                owner: owner(),
                kind,
            });
        }
        if record.rdata.len() > u16::MAX.into() {
            let octets = record.rdata.len();
            return Err(ZoneError::RrsetTooLong {
                owner: owner(),
                kind,
                octets,
            });
        }
        if kind == qtype::SOA && !record.owner.eq_ignore_ascii_case(&self.apex) {
            return Err(ZoneError::SoaElsewhere {
                owner: owner(),
                apex: name_of(&self.apex),
            });
        }
        let short = match kind {
            qtype::RRSIG => record.rdata.len() < 18,
            qtype::SOA => record.rdata.len() < 22,
            qtype::NSEC3 | qtype::NSEC3PARAM => record.rdata.len() < 5,
            _ => false,
        };
        if short {
            return Err(ZoneError::BadData {
                owner: owner(),
                kind,
            });
        }
        Ok(())
    }

    /// Octets of memory that it takes, and how many [`ZoneBuilder::finish`] may take beside them: those of the zone that it makes,
    /// and of what it gathers for that.
    #[must_use]
    pub fn memory(&self) -> (u64, u64) {
        let (records, octets) = (self.records.len() as u64, self.octets.len() as u64);
        let (owners, hashes) = (self.tree.list.len() as u64, self.hashes.list.len() as u64);
        // Names are in the arena, and before that in what they are sorted by; data, and names in them that are looked for.
        let built = 2 * (self.names + self.data)
            + records * BUILT_OF_RECORD
            + owners * BUILT_OF_OWNER
            + hashes * BUILT_OF_HASH
            + self.most * SORTED;
        let held = octets + records * size_of::<Stored>() as u64 + (owners + hashes) * OWNER;
        (held, built)
    }

    /// Makes the zone, and tells what is odd about it.
    ///
    /// # Errors
    /// Why the records are no zone.
    pub fn finish(self) -> Result<(Zone, Vec<Warning>), ZoneError> {
        let order = self.tree.sorted(&self.octets);
        self.made(&order)
    }

    /// The same for whoever mends the records.
    ///
    /// # Errors
    /// Why they are no zone, in canonical order: the first of each name, `most` at most.
    pub fn finish_or_tell(self, most: usize) -> Result<(Zone, Vec<Warning>), Vec<ZoneError>> {
        let order = self.tree.sorted(&self.octets);
        self.made(&order)
            .map_err(|first| self.errors(&order, first, most))
    }

    fn made(&self, order: &[Owner]) -> Result<(Zone, Vec<Warning>), ZoneError> {
        let mut assembly = Assembly::new(self, 0);
        let parameters = self.parameters(&mut assembly.warnings)?;
        let (chain, strays) = assembly.proofs(parameters)?;
        assembly.nodes(order, chain.as_ref())?;
        let negative_soa_at = assembly.negative_soa()?;
        assembly.finish(chain, strays, negative_soa_at)
    }

    /// What is wrong with these names' records; and `first`, which ended their assembly, if it is none of that.
    #[cold]
    fn errors(&self, order: &[Owner], first: ZoneError, most: usize) -> Vec<ZoneError> {
        let mut records = Vec::new();
        let of_name = |owner: &Owner| {
            self.records_of(*owner, &mut records);
            node_error(self.name(*owner), &records, &self.apex)
        };
        let mut errors: Vec<ZoneError> = order.iter().filter_map(of_name).take(most).collect();
        if !errors.contains(&first) {
            errors.insert(0, first);
            errors.truncate(most);
        }
        errors
    }

    /// The owner of this name, in lower case, of records other than NSEC3.
    fn owner(&self, name: &[u8]) -> Option<Owner> {
        self.tree.get(name, &self.keys, &self.octets)
    }

    /// How many owners of NSEC3 records there are.
    fn hashes_count(&self) -> usize {
        self.hashes.list.len()
    }

    fn name(&self, owner: Owner) -> &[u8] {
        &self.octets[owner.at as usize..][..owner.length.into()]
    }

    /// The name as it was written, where that is not in lower case.
    fn written(&self, owner: Owner) -> Option<&[u8]> {
        let at = (owner.written != NONE).then_some(owner.written as usize)?;
        Some(&self.octets[at..][..owner.length.into()])
    }

    /// The records of an owner, sorted, without duplicates.
    fn records_of<'r>(&'r self, owner: Owner, into: &mut Vec<Sorted<'r>>) {
        into.clear();
        let mut at = owner.last;
        while let Some(stored) = self.records.get(at as usize) {
            let data = &self.octets[stored.at as usize..][..stored.length.into()];
            let is_signature = stored.kind == qtype::RRSIG;
            let covered = is_signature.then(|| rdata::covered(data)).flatten();
            let kind = covered.unwrap_or(stored.kind);
            into.push(Sorted {
                kind,
                is_signature,
                data,
                ttl: stored.ttl,
            });
            at = stored.before;
        }
        into.sort_unstable();
        // RFC 2181 §5: no two records of an RRset have the same data.
        into.dedup_by_key(|record| (record.kind, record.is_signature, record.data));
        if into.iter().any(has_capital_names) {
            drop_same_names(into);
        }
    }

    /// The ways of hashing names that the apex tells of.
    fn hashings(&self) -> Vec<Parameters> {
        let Some(apex) = self.owner(&self.apex) else {
            return Vec::new();
        };
        let mut records = Vec::new();
        self.records_of(apex, &mut records);
        let wanted = records.iter().filter(|record| {
            // RFC 5155 §4.1.2: "NSEC3PARAM RRs with a Flags field value other than zero MUST be ignored."
            (record.kind, record.is_signature) == (qtype::NSEC3PARAM, false) && record.data[1] == 0
        });
        wanted
            .filter_map(|record| Parameters::read(record.data))
            .collect()
    }

    /// How the zone's names are hashed, if they are.
    fn parameters(&self, warnings: &mut Vec<Warning>) -> Result<Option<Parameters>, ZoneError> {
        let mut listed = self.hashings();
        let parameters = match listed.len() {
            0 | 1 => listed.pop(),
            _ => Some(self.most_whole(listed)),
        };
        let Some(count) = parameters.as_ref().map(|parameters| parameters.iterations) else {
            return Ok(None);
        };
        let apex = name_of(&self.apex);
        if count > ITERATIONS_MAX {
            return Err(ZoneError::Iterations { apex, count });
        }
        if count > 0 {
            warnings.push(Warning::Iterations { apex, count });
        }
        Ok(parameters)
    }

    /// The one of several ways of hashing that a zone is answered by, while its signer goes from one to another. RFC 5155 §7.3:
    /// a server may take any whose chain is whole; RFC 9276 §3.1 has iterations cost much and give nothing, so the one with the
    /// fewest. Where no chain is whole, the fewest iterations decide alone.
    #[cold]
    fn most_whole(&self, mut listed: Vec<Parameters>) -> Parameters {
        listed.sort_by_key(|parameters| parameters.iterations);
        let is_good = |parameters: &Parameters| {
            parameters.iterations <= ITERATIONS_MAX && self.has_whole_chain(parameters)
        };
        let mut looked_at = listed.iter().take(CHAINS_MAX);
        let number = looked_at.position(is_good).unwrap_or(0);
        listed.swap_remove(number)
    }

    /// Whether NSEC3 records with these parameters lead from that of the apex through all of them and back to it.
    fn has_whole_chain(&self, parameters: &Parameters) -> bool {
        let mut links = Vec::new();
        let mut records = Vec::new();
        for owner in &self.hashes.list {
            self.records_of(*owner, &mut records);
            let record = records.first().filter(|record| !record.is_signature);
            let data = record.map_or(&[][..], |record| record.data);
            if Parameters::read(data).as_ref() == Some(parameters) {
                let hash = list::hash_of(self.name(*owner), &self.apex);
                links.push((hash, next_hash(data).map(|(next, _)| *next)));
            }
        }
        links.sort_unstable();
        let behind = links.iter().cycle().skip(1);
        let is_circle = links
            .iter()
            .zip(behind)
            .all(|((_, next), (behind, _))| next.is_some() && next == behind);
        let apex = Some(parameters.hash(&self.apex));
        is_circle && links.binary_search_by_key(&apex, |(hash, _)| *hash).is_ok()
    }
}

/// Whether the record's data have names, and something that may be a capital letter.
fn has_capital_names(record: &Sorted<'_>) -> bool {
    has_names(record) && record.data.iter().any(u8::is_ascii_uppercase)
}

fn has_names(record: &Sorted<'_>) -> bool {
    let kind = record.kind;
    !record.is_signature
        && (rdata::compressible(kind).is_some() || matches!(kind, qtype::SRV | qtype::DNAME))
}

/// Drops records whose data are another's but for capital letters in names: RFC 2181 §5 has an RRset "with different data",
/// and RFC 4034 §6.3 compares them in canonical form.
fn drop_same_names(records: &mut Vec<Sorted<'_>>) {
    let mut known = HashSet::new();
    records.retain(|record| {
        let mut canonical = Vec::new();
        crate::rdata::canonical(record.kind, record.data, &mut canonical);
        !has_names(record) || known.insert((record.kind, canonical))
    });
}

impl Owners {
    fn get(&self, name: &[u8], keys: &Keys, octets: &[u8]) -> Option<Owner> {
        let same = |number: &u32| self.list[*number as usize].is(name, octets);
        let number = self.table.find(keys.hash(name), same)?;
        Some(self.list[*number as usize])
    }

    /// The number of this name, and whether it was not known before.
    fn find_or_add(&mut self, name: &[u8], keys: &Keys, octets: &mut Vec<u8>) -> (usize, bool) {
        let list = &self.list;
        let same = |number: &u32| list[*number as usize].is(name, octets);
        if let Some(number) = self.table.find(keys.hash(name), same) {
            return (*number as usize, false);
        }
        let at = octets.len() as u32;
        octets.extend(name);
        self.add(at, name.len() as u8, keys, octets);
        (self.list.len() - 1, true)
    }

    fn add(&mut self, at: u32, length: u8, keys: &Keys, octets: &[u8]) {
        let owner = Owner {
            at,
            length,
            count: 0,
            last: NONE,
            written: NONE,
        };
        let number = self.list.len() as u32;
        self.list.push(owner);
        let list = &self.list;
        let hash_of = |number: &u32| keys.hash(list[*number as usize].name(octets));
        self.table
            .insert_unique(keys.hash(owner.name(octets)), number, hash_of);
    }

    /// Adds the names between an owner and the apex that are not known yet, and may have no records: empty non-terminals (RFC
    /// 4592 §2.2.2). Octets of the owner's name and of these.
    fn add_above(&mut self, number: usize, apex: &[u8], keys: &Keys, octets: &[u8]) -> u64 {
        let mut owner = self.list[number];
        let mut names = u64::from(owner.length);
        while usize::from(owner.length) > apex.len() {
            let label = 1 + octets[owner.at as usize];
            owner.at += u32::from(label);
            owner.length -= label;
            if self.get(owner.name(octets), keys, octets).is_some() {
                break;
            }
            self.add(owner.at, owner.length, keys, octets);
            names += u64::from(owner.length);
        }
        names
    }

    /// In canonical order.
    fn sorted(&self, octets: &[u8]) -> Vec<Owner> {
        let mut keys = Vec::with_capacity(self.list.len() * 16);
        let mut places = Vec::with_capacity(self.list.len());
        for owner in &self.list {
            let start = keys.len();
            names::push_sort_key(owner.name(octets), &mut keys);
            places.push((start..keys.len(), *owner));
        }
        places.sort_unstable_by(|(one, _), (other, _)| keys[one.clone()].cmp(&keys[other.clone()]));
        places.into_iter().map(|(_, owner)| owner).collect()
    }
}

impl Owner {
    fn name(self, octets: &[u8]) -> &[u8] {
        &octets[self.at as usize..][..self.length.into()]
    }

    fn is(self, name: &[u8], octets: &[u8]) -> bool {
        self.name(octets) == name
    }

    /// Notes how the name was written, not in lower case; of several ways the one whose octets come first stays.
    fn note_case(&mut self, written: &[u8], octets: &mut Vec<u8>) {
        let known = (self.written != NONE).then_some(self.written as usize);
        let known = known.map(|at| &octets[at..][..written.len()]);
        if known.is_none_or(|known| written < known) {
            self.written = octets.len() as u32;
            octets.extend(written);
        }
    }
}

fn name_of(name: &[u8]) -> NameBuf {
    Name::parse(name).expect("names were checked").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Opener, Reader, Settings};
    use crate::zone::encode::encode_hash;
    use crate::zone::parts::Rrset;
    use std::io::ErrorKind;

    const APEX: &str = "example.com.";

    fn tried(text: &str) -> Result<(Zone, Vec<Warning>), ZoneError> {
        let apex: NameBuf = APEX.parse().unwrap();
        let open: Opener<'_> = Box::new(|_| Err(ErrorKind::NotFound.into()));
        let reader = Reader::new("zone", text.as_bytes(), open, Settings::new(apex.as_name()));
        let records = reader.map(|record| record.unwrap());
        Zone::build(apex.as_name(), records)
    }

    fn built(text: &str) -> (Zone, Vec<Warning>) {
        tried(text).unwrap()
    }

    #[test]
    fn records_out_of_the_zone_are_left_out_with_a_warning() {
        let (zone, warnings) = built(
            "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\nfoo.example.org. 60 A 192.0.2.9\n",
        );
        assert_eq!(
            warnings,
            [Warning::OutOfZone {
                owner: "foo.example.org.".parse().unwrap(),
                apex: APEX.parse().unwrap(),
            }]
        );
        assert_eq!(zone.records().count(), 3);
    }

    /// RFC 2181 §8.
    #[test]
    fn a_ttl_above_the_highest_is_none_and_told() {
        let (zone, warnings) = built(
            "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 2147483647 A 192.0.2.1\nhigh 2147483648 A 192.0.2.2\n",
        );
        let high = Warning::TtlTooHigh {
            owner: "high.example.com.".parse().unwrap(),
            kind: qtype::A,
            ttl: 2_147_483_648,
        };
        assert_eq!(warnings, [high]);
        let ttls: Vec<u32> = zone.records().map(|record| record.ttl).collect();
        assert_eq!(ttls, [60, 60, 0, 2_147_483_647]);
    }

    #[test]
    fn what_ends_the_assembly_is_told_with_what_is_wrong_with_names() {
        let told = |text: &str, most| {
            let apex: NameBuf = APEX.parse().unwrap();
            let open: Opener<'_> = Box::new(|_| Err(ErrorKind::NotFound.into()));
            let reader = Reader::new("zone", text.as_bytes(), open, Settings::new(apex.as_name()));
            let mut builder = ZoneBuilder::new(apex.as_name());
            reader.for_each(|record| builder.push(record.unwrap().as_ref()).unwrap());
            builder.finish_or_tell(most).unwrap_err()
        };
        let iterations = format!("@ 60 NSEC3PARAM 1 0 {} -\n", ITERATIONS_MAX + 1);
        let text = format!(
            "@ 60 SOA ns host 1 2 3 4 5\n{iterations}y 60 CNAME z\ny 60 TXT a\nx 60 DNAME a\nx 60 DNAME b\n"
        );
        let [about_chain, no_servers, x, y] = &told(&text, 9)[..] else {
            panic!("{:?}", told(&text, 9))
        };
        assert!(matches!(about_chain, ZoneError::Iterations { .. }));
        assert!(matches!(no_servers, ZoneError::NoNameServers { .. }));
        assert!(matches!(
            x,
            ZoneError::ManyAliases {
                kind: qtype::DNAME,
                ..
            }
        ));
        assert!(matches!(
            y,
            ZoneError::CnameBeside {
                kind: qtype::TXT,
                ..
            }
        ));
        assert_eq!(told(&text, 2).len(), 2);
        // No record at the apex, and none at all.
        assert!(matches!(
            told("x 60 A 192.0.2.1\n", 9)[..],
            [ZoneError::NoSoa { .. }]
        ));
        assert!(matches!(told("", 9)[..], [ZoneError::NoSoa { .. }]));
    }

    /// RFC 9276 §3.1: "an iterations count of 0 MUST be used".
    #[test]
    fn nsec3_iterations_are_warned_of_and_limited() {
        let with = |parameters: &str| {
            let zone = "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n";
            tried(&format!("{zone}@ 60 NSEC3PARAM {parameters}\n"))
        };
        let warnings = |parameters: &str| with(parameters).unwrap().1;
        let apex: NameBuf = APEX.parse().unwrap();
        let told = |count: u16| {
            let apex = apex.clone();
            [Warning::Iterations { apex, count }]
        };
        assert_eq!(warnings("1 0 0 -"), []);
        assert_eq!(warnings("1 0 1 -"), told(1));
        assert_eq!(warnings("1 0 150 ab"), told(ITERATIONS_MAX));
        // RFC 5155 §4.1.2: flags other than zero have it ignored.
        assert_eq!(warnings("1 1 151 -"), []);
        let error = with("1 0 151 -").unwrap_err();
        let count = ITERATIONS_MAX + 1;
        assert_eq!(error, ZoneError::Iterations { apex, count });
    }

    /// NSEC3 records of these hashes, which lead to each other in a circle.
    fn circle(salt: &str, mut hashes: Vec<[u8; 20]>) -> Vec<String> {
        hashes.sort_unstable();
        let label = |hash| String::from_utf8(encode_hash(hash)[1..].to_vec()).unwrap();
        let behind = hashes.iter().cycle().skip(1);
        let links = hashes.iter().zip(behind);
        let line = |(hash, next)| {
            let (hash, next) = (label(hash), label(next));
            format!("{hash} 60 NSEC3 1 0 0 {salt} {next} A\n")
        };
        links.map(line).collect()
    }

    /// RFC 5155 §4, §7.3: a zone may have several chains, and some may be on their way in or out.
    #[test]
    fn of_several_chains_the_whole_one_proves() {
        let salted = |salt: &[u8]| Parameters {
            iterations: 0,
            salt: salt.into(),
        };
        let server = &b"\x02ns\x07example\x03com\x00"[..];
        let names = [&server[3..], server];
        let chain = |salt: &[u8], text: &str| {
            let parameters = salted(salt);
            circle(text, names.map(|name| parameters.hash(name)).to_vec())
        };
        let (plain, other) = (chain(&[], "-"), chain(&[0xab], "ab"));
        let salt_of = |plain: &[String], other: &[String]| {
            let (zone, _) = built(&format!(
                "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n\
                 @ 60 NSEC3PARAM 1 0 0 -\n@ 60 NSEC3PARAM 1 0 0 ab\n{}{}",
                plain.concat(),
                other.concat()
            ));
            let chain = zone.proving().map(|proving| proving.chain);
            chain.map(|chain| chain.parameters.salt.to_vec())
        };
        assert_eq!(salt_of(&plain, &other), Some(vec![]));
        assert_eq!(salt_of(&[], &other), Some(vec![0xab]));
        // One is missing, be it that of the apex or the other.
        assert_eq!(salt_of(&plain[..1], &other), Some(vec![0xab]));
        assert_eq!(salt_of(&plain[1..], &other), Some(vec![0xab]));
        assert_eq!(salt_of(&plain, &other[1..]), Some(vec![]));
        assert_eq!(salt_of(&[], &[]), None);
    }

    /// RFC 4035 §2.4: "All DS RRsets in a zone MUST be signed, and DS RRsets MUST NOT appear at a zone's apex."
    #[test]
    fn a_ds_record_belongs_to_a_delegation_below_the_apex() {
        const DIGEST: &str = "60 DS 1 8 1 2201285F81BBD84AA166313B2835867708739376";
        let warnings = |rest: &str| {
            let text = format!("@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n{rest}");
            built(&text).1
        };
        let apex = APEX.parse().unwrap();
        assert_eq!(
            warnings(&format!("@ {DIGEST}\n")),
            [Warning::DsAtApex { apex }]
        );
        let owner = "sub.example.com.".parse().unwrap();
        assert_eq!(
            warnings(&format!("sub {DIGEST}\n")),
            [Warning::DsWithoutNs { owner }]
        );
        assert_eq!(warnings(&format!("sub 60 NS ns\nsub {DIGEST}\n")), []);
    }

    /// RFC 6672 §2.4: what lies below a DNAME record is not there.
    #[test]
    fn an_address_below_a_dname_reaches_no_name_server() {
        let (_, warnings) = built(
            "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns.old\nold 60 DNAME new\nns.old 60 A 192.0.2.1\n",
        );
        let server: NameBuf = "ns.old.example.com.".parse().unwrap();
        let expected = [
            Warning::BelowDname {
                owner: server.clone(),
            },
            Warning::MissingAddress {
                owner: APEX.parse().unwrap(),
                target: server,
            },
        ];
        assert_eq!(warnings, expected);
    }

    /// RFC 4592 §3.3.1: what is not there and has a wildcard beside it has the wildcard's records.
    #[test]
    fn an_address_of_a_wildcard_reaches_a_name_server() {
        let warnings = |rest: &str| {
            let text = format!("@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns1.pool\n{rest}");
            built(&text).1
        };
        let missing = [Warning::MissingAddress {
            owner: APEX.parse().unwrap(),
            target: "ns1.pool.example.com.".parse().unwrap(),
        }];
        assert_eq!(warnings("* 60 A 192.0.2.1\n"), []);
        assert_eq!(warnings("*.pool 60 AAAA 2001:db8::1\n"), []);
        assert_eq!(warnings("*.pool 60 TXT x\n"), missing);
        let beside = "* 60 A 192.0.2.1\npool 60 TXT x\n";
        assert_eq!(
            warnings(beside),
            missing,
            "the wildcard is not its parent's"
        );
        let there = "*.pool 60 A 192.0.2.1\nns1.pool 60 TXT x\n";
        assert_eq!(warnings(there), missing, "the name itself is there");
    }

    /// However many they are: each type is looked at once.
    #[test]
    fn signatures_of_nothing_are_told_once_a_type() {
        let signature = |kind: &str, number: usize| {
            let rest = format!("13 3 60 20361122000000 20261122000000 {number}");
            format!("www 60 RRSIG {kind} {rest} example.com. Qm9n\n")
        };
        let texts = (0..20_000).map(|number| signature("TXT", number));
        let others = ["AAAA", "MX"].map(|kind| signature(kind, 1));
        let signatures: String = texts.chain(others).collect();
        let (zone, warnings) = built(&format!(
            "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\n\
             ns 60 A 192.0.2.1\nwww 60 AAAA 2001:db8::1\n{signatures}"
        ));
        let expected = [qtype::MX, qtype::TXT].map(|kind| Warning::SignatureOfNothing {
            owner: "www.example.com.".parse().unwrap(),
            kind,
        });
        assert_eq!(warnings, expected);
        assert_eq!(zone.records().count(), 5);
    }

    /// A hostile zone may have 65,000 of them, and each query for the name would look at all.
    #[test]
    fn a_name_with_many_types_is_answered_as_one_with_few() {
        let record = |kind: u16| {
            let length = if kind == 1_500 { 1 } else { 2 };
            let data = &"0000"[..2 * length];
            format!("many 60 TYPE{kind} \\# {length} {data}\n")
        };
        let signature = |kind: u16, data: &str| {
            let rest = "13 3 60 20361122000000 20261122000000 1 example.com.";
            format!("many 60 RRSIG TYPE{kind} {rest} {data}\n")
        };
        let types: String = (1_000..2_000).map(record).collect();
        let signatures = signature(1_700, "Qm9nQm9n") + &signature(1_800, "Qm9n");
        let (zone, _) = built(&format!(
            "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n{types}{signatures}"
        ));
        let many = zone.node_of(b"\x04many\x07example\x03com\x00").unwrap();
        let kind_of = |rrset: Option<Rrset<'_>>| rrset.map(|rrset| rrset.kind);
        for kind in 1_000..2_000 {
            assert_eq!(kind_of(many.rrset(kind)), Some(kind));
        }
        assert_eq!(kind_of(many.rrset(999)), None);
        assert_eq!(kind_of(many.rrset(2_000)), None);
        assert_eq!(kind_of(many.smallest()), Some(1_500));
        assert_eq!(kind_of(many.least_signed()), Some(1_800));
        let few = zone.node_of(b"\x07example\x03com\x00").unwrap();
        assert_eq!(kind_of(few.smallest()), Some(qtype::NS));
        assert_eq!(kind_of(few.least_signed()), None);
    }

    /// RFC 2181 §5.2: one TTL an RRset; RFC 4034 §3: a signature has that of what it covers.
    #[test]
    fn a_signature_has_the_ttl_of_its_rrset_however_that_was_found() {
        const SIGNATURE: &str = "13 3 300 20361122000000 20261122000000 1 example.com. Qm9n";
        let (zone, warnings) = built(&format!(
            "@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\n\
             ns 300 A 192.0.2.1\nns 120 A 192.0.2.2\nns 300 RRSIG A {SIGNATURE}\n\
             www 300 TXT one\nwww 60 RRSIG TXT {SIGNATURE}\n"
        ));
        let owner = "ns.example.com.".parse().unwrap();
        let kind = qtype::A;
        assert_eq!(warnings, [Warning::TtlsDiffer { owner, kind }]);
        let ttls = |label: &[u8]| {
            let records = zone.records();
            let of_name = records.filter(|record| record.owner.starts_with(label));
            of_name
                .map(|record| (record.kind, record.ttl))
                .collect::<Vec<_>>()
        };
        let signed = |kind: u16, count: usize, ttl: u32| {
            let mut expected = vec![(kind, ttl); count];
            expected.push((qtype::RRSIG, ttl));
            expected
        };
        assert_eq!(ttls(b"\x02ns"), signed(qtype::A, 2, 120));
        assert_eq!(ttls(b"\x03www"), signed(qtype::TXT, 1, 300));
    }
}
