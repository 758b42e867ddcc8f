//! Makes another version of a zone of which a few names have changed: the others stay where they are, shared by both.
//!
//! What a name has written down of its surroundings must hold without a look at the tree. So these names are made anew:
//!
//! - those whose records change, and those that changed before, since the base was made;
//! - empty non-terminals that come, and those that go or might (RFC 4592 §2.2.2);
//! - the name above a wildcard that comes or goes;
//! - names with records that point to a name which comes;
//! - everything below a name that becomes a zone cut or a DNAME's owner, or ceases to be one.
//!
//! What NSEC3 records prove about the others is looked up where the chain has changed: [`crate::zone::overlay`].

use super::assemble::{Above, Assembly};
use super::{ZoneBuilder, ZoneError};
use crate::record::Record;
use crate::zone::nsec3::Proofs;
use crate::zone::overlay::{Moved, Overlay, ProofChanges, Runs};
use crate::zone::parts::{DNAME, GONE, NONE, Node};
use crate::zone::proofs::Proving;
use crate::zone::{Base, Denial, Zone, list, names, rdata};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use wire::codes::qtype;

/// By owner, in lower case: the records that it has now, all of them.
pub(crate) type Changed = HashMap<Box<[u8]>, Vec<Record>>;

/// One of so many names may have changed since the base was made; beyond, a new base costs less than to look at two places.
const SHARE: usize = 8;
/// So many always may.
const ALWAYS: usize = 64;

/// The names to be made anew, by [`names::push_sort_key`].
type Names = BTreeMap<Vec<u8>, Touched>;

struct Touched {
    name: Box<[u8]>,
    is_there: bool,
    /// Whether it is a zone cut or owns a DNAME, or which name above it is or does.
    cut: Option<Box<[u8]>>,
}

struct Amendment<'z> {
    old: &'z Zone,
    base: &'z Base,
    changed: &'z Changed,
    names: Names,
    allowed: usize,
}

/// More has changed than is worth it, or what concerns all names.
struct Whole;

impl Zone {
    /// The zone with these records in place of those that their owners had. `None` where a zone should be built of all
    /// records: a large part of them has changed since that was done, or what all names depend on.
    ///
    /// # Errors
    /// Why the records are no zone.
    pub(crate) fn with_changed(&self, changed: &Changed) -> Result<Option<Zone>, ZoneError> {
        let mut amendment = Amendment {
            old: self,
            base: &self.base,
            changed,
            names: Names::new(),
            allowed: self.base.order.len() / SHARE + ALWAYS,
        };
        match amendment.find_names() {
            Ok(()) => amendment.made(),
            Err(Whole) => Ok(None),
        }
    }
}

fn key_of(name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len());
    names::push_sort_key(name, &mut key);
    key
}

/// Whether a record is of the chain of NSEC3 records, whose owners are no names of the tree (RFC 5155 §7.2.8).
fn is_of_chain(record: &Record) -> bool {
    let kind = match record.kind {
        qtype::RRSIG => rdata::covered(&record.rdata),
        kind => Some(kind),
    };
    kind == Some(qtype::NSEC3)
}

/// The name that answers below a name of the base, or refers elsewhere.
fn cut_below(node: Node<'_>) -> Option<Node<'_>> {
    match node.has(DNAME) {
        true => Some(node),
        false => node.cut(),
    }
}

impl<'z> Amendment<'z> {
    fn apex(&self) -> &'z [u8] {
        &self.old.apex
    }

    /// The name as the base has it.
    fn in_base(&self, name: &[u8]) -> Option<Node<'z>> {
        self.base.node_of(name)
    }

    /// The names below `name` as the base has them.
    fn base_below(&self, name: &[u8]) -> impl Iterator<Item = Node<'z>> + use<'z> {
        let base = self.base;
        let not_below = |at: &u32| names::canonical_order(base.node(*at).name(), name).is_le();
        let start = base.order.partition_point(not_below);
        let above: Box<[u8]> = name.into();
        let nodes = base.order[start..].iter().map(|at| base.node(*at));
        nodes.take_while(move |node| names::is_within(node.name(), &above))
    }

    fn has_records(&self, name: &[u8]) -> bool {
        match self.changed.get(name) {
            Some(records) => records.iter().any(|record| !is_of_chain(record)),
            None => self
                .old
                .node_of(name)
                .is_some_and(|node| node.rrsets_count() > 0),
        }
    }

    fn has(&self, name: &[u8], kind: u16) -> bool {
        match self.changed.get(name) {
            Some(records) => records.iter().any(|record| record.kind == kind),
            None => self
                .old
                .node_of(name)
                .is_some_and(|node| node.rrset(kind).is_some()),
        }
    }

    /// Adds a name to those that are made anew.
    fn touch(&mut self, name: &[u8], is_there: bool) -> Result<(), Whole> {
        self.names.entry(key_of(name)).or_insert_with(|| Touched {
            name: name.into(),
            is_there,
            cut: None,
        });
        match self.names.len() > self.allowed {
            true => Err(Whole),
            false => Ok(()),
        }
    }

    fn find_names(&mut self) -> Result<(), Whole> {
        let old = self.old;
        self.touch(&old.apex, true)?;
        if let Some(over) = &old.over {
            for at in over.order.iter().chain(&over.gone) {
                self.touch(old.node(*at).name(), true)?;
            }
        }
        let changed = self.changed;
        for owner in changed.keys() {
            if old.node_of(owner).is_some() || self.has_records(owner) {
                self.touch(owner, true)?;
            }
        }
        self.add_above()?;
        self.settle()?;
        self.add_pointing()?;
        self.follow_cuts()
    }

    /// Empty non-terminals above names that come.
    fn add_above(&mut self) -> Result<(), Whole> {
        let names = self.names.values().map(|touched| touched.name.clone());
        let owners: Vec<Box<[u8]>> = names.filter(|name| self.has_records(name)).collect();
        for owner in &owners {
            let mut name = names::parent(owner);
            while name.len() > self.apex().len() && self.old.node_of(name).is_none() {
                self.touch(name, true)?;
                name = names::parent(name);
            }
        }
        Ok(())
    }

    /// Which of them are there, from the last one up; with them go empty non-terminals that have nothing below any more.
    fn settle(&mut self) -> Result<(), Whole> {
        let mut next = self.names.last_key_value().map(|(key, _)| key.clone());
        while let Some(key) = next {
            let name = self.names[&key].name.clone();
            let is_there = self.has_records(&name) || self.has_below(&key, &name);
            if let Some(touched) = self.names.get_mut(&key) {
                touched.is_there = is_there;
            }
            if name.len() > self.apex().len() {
                let parent = names::parent(&name);
                let leaves = !is_there && !self.has_records(parent);
                let is_wildcard = name.starts_with(b"\x01*");
                let differs = is_wildcard && is_there != self.in_base(&name).is_some();
                if (leaves || differs) && self.old.node_of(parent).is_some() {
                    self.touch(parent, true)?;
                }
            }
            let before = self.names.range::<[u8], _>((Unbounded, Excluded(&*key)));
            next = before.map(|(key, _)| key.clone()).next_back();
        }
        Ok(())
    }

    /// Whether anything is there below a name; those made anew that lie there are settled.
    fn has_below(&self, key: &[u8], name: &[u8]) -> bool {
        let behind = self.names.range::<[u8], _>((Excluded(key), Unbounded));
        let mut touched = behind.take_while(|(below, _)| below.starts_with(key));
        touched.any(|(_, touched)| touched.is_there)
            || self
                .base_below(name)
                .any(|node| !self.names.contains_key(&key_of(node.name())))
    }

    /// Names of the base with records that point to a name which comes.
    fn add_pointing(&mut self) -> Result<(), Whole> {
        let touched = self.names.values();
        let new = |touched: &&Touched| touched.is_there && self.in_base(&touched.name).is_none();
        let new: HashSet<Box<[u8]>> = touched
            .filter(new)
            .map(|touched| touched.name.clone())
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        let base = self.base;
        for at in &base.dangling {
            let node = base.node(*at);
            let is_wanted = |name: &wire::name::NameBuf| {
                new.contains(&*name.as_name().as_bytes().to_ascii_lowercase())
            };
            if list::missing(node).iter().any(is_wanted) {
                self.touch(node.name(), true)?;
            }
        }
        Ok(())
    }

    /// Delegations and DNAMEs that come or go, from the apex down: what lies below is made anew.
    fn follow_cuts(&mut self) -> Result<(), Whole> {
        let mut next = self.names.first_key_value().map(|(key, _)| key.clone());
        while let Some(key) = next {
            let touched = &self.names[&key];
            if touched.is_there {
                let name = touched.name.clone();
                let cut = self.cut_of(&name);
                let before = self
                    .in_base(&name)
                    .map(|node| cut_below(node).map(|cut| cut.name()));
                let differs = before.is_some_and(|before| before != cut.as_deref());
                if let Some(touched) = self.names.get_mut(&key) {
                    touched.cut = cut;
                }
                if differs {
                    for node in self.base_below(&name) {
                        self.touch(node.name(), true)?;
                    }
                }
            }
            let behind = self.names.range::<[u8], _>((Excluded(&*key), Unbounded));
            next = behind.map(|(key, _)| key.clone()).next();
        }
        Ok(())
    }

    /// What [`Touched::cut`] is; that of the name above is known.
    fn cut_of(&self, name: &[u8]) -> Option<Box<[u8]>> {
        let is_apex = name.len() == self.apex().len();
        let above = match is_apex {
            true => None,
            false => {
                let parent = names::parent(name);
                match self.names.get(&key_of(parent)) {
                    Some(touched) => touched.cut.clone(),
                    None => {
                        let node = self.in_base(parent).and_then(cut_below);
                        node.map(|node| node.name().into())
                    }
                }
            }
        };
        let is_cut = || !is_apex && self.has(name, qtype::NS) || self.has(name, qtype::DNAME);
        above.or_else(|| is_cut().then(|| name.into()))
    }

    // ------------------------------------------------------------------------------------------- making

    fn made(&self) -> Result<Option<Zone>, ZoneError> {
        let mut builder = ZoneBuilder::with_keys(self.apex(), self.base.table.keys());
        for touched in self.names.values().filter(|touched| touched.is_there) {
            match self.changed.get(&touched.name) {
                Some(records) => push(
                    &mut builder,
                    records.iter().filter(|record| !is_of_chain(record)),
                )?,
                None => {
                    let node = self.old.node_of(&touched.name);
                    let records = node.into_iter().flat_map(|node| self.old.of_node(node));
                    let records: Vec<Record> = records.collect();
                    push(&mut builder, &records)?;
                }
            }
        }
        let Some(gone) = self.gather_proofs(&mut builder)? else {
            return Ok(None);
        };
        if !self.is_proved_as_before(&builder) {
            return Ok(None);
        }
        Making::new(self, &builder).zone(gone)
    }

    /// Puts the NSEC3 records that the base has not into `builder`; tells which of the base's are no more. `None`: the chain
    /// is another one.
    fn gather_proofs(&self, builder: &mut ZoneBuilder) -> Result<Option<HashSet<u32>>, ZoneError> {
        let proving = self.old.proving();
        let mut gone = HashSet::new();
        if let (Some(over), Some(chain)) = (&self.old.over, self.base.chain()) {
            gone.extend(over.proofs.gone.numbers());
            for number in 0..over.proofs.added.len() {
                let number = (chain.places.len() + number) as u32;
                let records = self.old.of_proof(number);
                let is_kept = |record: &&Record| {
                    let owner = record.owner.to_ascii_lowercase();
                    !self.changed.contains_key(&*owner)
                };
                push(builder, records.iter().filter(is_kept))?;
            }
        }
        for (owner, records) in self.changed {
            let new = records.iter().filter(|record| is_of_chain(record));
            let hash = list::hash_of(owner, self.apex());
            let number = hash
                .zip(proving)
                .and_then(|(hash, proving)| proving.matching(&hash));
            if number.is_none() && new.clone().next().is_none() {
                continue;
            }
            let Some(chain) = self.base.chain().filter(|_| self.base.strays.is_empty()) else {
                return Ok(None);
            };
            gone.extend(number.filter(|number| (*number as usize) < chain.places.len()));
            push(builder, new)?;
        }
        let count = builder.hashes_count() + gone.len();
        Ok((count <= self.allowed).then_some(gone))
    }

    /// Whether what is not there is still proved in the same way: by none, by NSEC, by NSEC3 of the same parameters.
    fn is_proved_as_before(&self, builder: &ZoneBuilder) -> bool {
        let listed = builder.hashings();
        let has_nsec = self.has(self.apex(), qtype::NSEC);
        match &self.base.denial {
            // Which of several is whole only all of the zone tells.
            Denial::Nsec3(chain) => matches!(&listed[..], [only] if *only == chain.parameters),
            Denial::Nsec(_) => listed.is_empty() && has_nsec,
            Denial::Unsigned => listed.is_empty() && !has_nsec,
        }
    }
}

fn push<'r>(
    builder: &mut ZoneBuilder,
    records: impl IntoIterator<Item = &'r Record>,
) -> Result<(), ZoneError> {
    let mut records = records.into_iter();
    records.try_for_each(|record| builder.push(record.as_ref()))
}

/// The changed names as they are encoded.
struct Making<'a, 'z> {
    amendment: &'a Amendment<'z>,
    assembly: Assembly<'a>,
    builder: &'a ZoneBuilder,
    /// What is known of the names that were encoded.
    above: HashMap<&'a [u8], Above>,
    gone: Vec<u32>,
    moved: Moved,
}

impl<'a, 'z> Making<'a, 'z> {
    fn new(amendment: &'a Amendment<'z>, builder: &'a ZoneBuilder) -> Making<'a, 'z> {
        Making {
            amendment,
            assembly: Assembly::new(builder, amendment.base.arena.len()),
            builder,
            above: HashMap::new(),
            gone: Vec::new(),
            moved: Moved::default(),
        }
    }

    fn zone(mut self, gone: HashSet<u32>) -> Result<Option<Zone>, ZoneError> {
        let (old, base) = (self.amendment.old, self.amendment.base);
        let Some(proofs) = self.proofs(gone)? else {
            return Ok(None);
        };
        let proving = base.proving(Some(&proofs));
        for touched in self.amendment.names.values() {
            self.encode(touched, proving)?;
        }
        let negative_soa_at = self.assembly.negative_soa()?;
        let nsec_moved = match &base.denial {
            Denial::Nsec(owners) => {
                let moved = self.moved.keys();
                let number = |at: u32| owners.binary_search(&at).ok();
                Runs::new(moved.filter_map(|at| Some(number(at)? as u32)))
            }
            _ => Runs::default(),
        };
        let assembly = self.assembly;
        let nodes: Vec<u32> = assembly.order.iter().chain(&self.gone).copied().collect();
        let mut over = Overlay {
            origin: base.arena.len() as u32,
            table: assembly.table(&nodes),
            octets: assembly.arena.into(),
            order: assembly.order.into(),
            gone: self.gone.into(),
            nsec: assembly.nsec.into(),
            nsec_moved,
            moved: self.moved,
            proofs,
            cases: assembly.cases.finished(),
        };
        for (place, name) in assembly.wanted.each() {
            let hash = base.table.keys().hash(name);
            if let Some(node) = base.place_now(&over, name, hash) {
                over.octets[place..place + 4].copy_from_slice(&node.to_le_bytes());
            }
        }
        let counts = (assembly.records, assembly.labels_max);
        Ok(Some(Zone::amended(old, over, negative_soa_at, counts)))
    }

    /// Encodes the NSEC3 records that came. `None`: there are some that are not in the chain, or it has lost the apex.
    fn proofs(&mut self, gone: HashSet<u32>) -> Result<Option<ProofChanges>, ZoneError> {
        let base = self.amendment.base;
        let Some(chain) = base.chain() else {
            return Ok(Some(ProofChanges::default()));
        };
        let mut strays = Vec::new();
        let encoded = self
            .assembly
            .encode_proofs(Some(&chain.parameters), &mut strays);
        let (added, left_out) = encoded?;
        if left_out > 0 || !strays.is_empty() {
            return Ok(None);
        }
        let changes = ProofChanges::new(chain, &base.arena, added, gone.into_iter());
        let apex = chain.parameters.hash(self.amendment.apex());
        let has_apex = changes.matching(chain, &base.arena, &apex).is_some();
        Ok(has_apex.then_some(changes))
    }

    fn encode(
        &mut self,
        touched: &'a Touched,
        proving: Option<Proving<'_>>,
    ) -> Result<(), ZoneError> {
        let name = &*touched.name;
        let before = self.amendment.in_base(name);
        let at = self.assembly.next_at();
        if !touched.is_there {
            if before.is_some() {
                self.assembly.push_node(name, &[], [NONE; 4], GONE)?;
                self.gone.push(at);
            }
        } else {
            let parent = self.above(name);
            let mut records = Vec::new();
            if let Some(owner) = self.builder.owner(name) {
                self.builder.records_of(owner, &mut records);
                self.assembly.note_owner(owner);
            }
            let proofs = |_: &Assembly<'_>, delegation| {
                proving.map_or(Proofs::NONE, |proving| proving.of(name, delegation))
            };
            let wildcard = self.wildcard(name);
            let encoded = self
                .assembly
                .encode_node(name, &records, (parent, wildcard), proofs)?;
            self.above.insert(name, encoded.0);
        }
        if let Some(before) = before {
            self.moved.insert(before.at, at);
        }
        Ok(())
    }

    /// What is known of the name above, which is encoded, or as it was.
    fn above(&self, name: &[u8]) -> Option<Above> {
        if name.len() == self.amendment.apex().len() {
            return None;
        }
        let parent = names::parent(name);
        let known = self.above.get(parent).copied();
        known.or_else(|| self.amendment.in_base(parent).map(Above::of))
    }

    /// The wildcard right below a name, where the base has it; one that is made anew is written there when it is.
    fn wildcard(&self, name: &[u8]) -> u32 {
        let wildcard = [b"\x01*", name].concat();
        match self.amendment.names.contains_key(&key_of(&wildcard)) {
            true => NONE,
            false => self
                .amendment
                .in_base(&wildcard)
                .map_or(NONE, |node| node.at),
        }
    }
}
