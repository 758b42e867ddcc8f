//! The compiled zone: immutable, swapped whole, made for answers that are a few copies.
//!
//! A name is found by one hash lookup per label that is missing, and lies beside its RRsets; what the tree would tell (the
//! delegation above, the wildcard below, the NSEC3 records that prove things about it) is written down at every name when
//! the zone is made. [`parts`] draws the bytes.
//!
//! A version of which little has changed shares the base with the one before and has an [`overlay`] of its own.
//!
//! RFC 1034 (§4.2: zones and cuts), 2181 (§5, §10.1), 4034 (§6.1: canonical order), 4592 (wildcards), 5155 (NSEC3), 6672
//! (DNAME), 9276 (iterations).

mod about;
mod build;
mod case;
mod check;
mod encode;
mod fault;
mod list;
pub(crate) mod names;
pub(crate) mod nsec3;
mod overlay;
pub(crate) mod parts;
mod proofs;
mod rdata;
mod signatures;
mod table;

pub use about::About;
pub(crate) use build::Changed;
pub use build::ZoneBuilder;
pub use check::{Oddity, SignatureFault};
pub use fault::{Warning, ZoneError};
pub use nsec3::ITERATIONS_MAX;
pub use signatures::Flaw;

use crate::record::Record;
use case::Cases;
use nsec3::{Chain, Hash, Proofs};
use overlay::Overlay;
use parts::{
    Arena, DEEP, DELEGATION, GONE, NONE, Node, OPTED_OUT, Rrset, proof_at, u32_at, whole_proof_at,
};
use proofs::Proving;
use std::sync::Arc;
use table::Table;
use wire::name::{Name, NameBuf};

/// Octets of names and records from which on a zone is more than a core's own caches have (half a MiB to two, with all else
/// that is in them).
const LARGE: usize = 1 << 19;

/// Octets of an NSEC3 record and its signature by ECDSA P-256, about.
const PROOF_OCTETS: usize = 256;

/// A zone that can be asked.
pub struct Zone {
    /// In lower case.
    apex: Box<[u8]>,
    apex_at: u32,
    /// Labels of the name that has most of them, the root's not counted.
    labels_max: usize,
    /// The header of the SOA RRset of negative answers, with their TTL.
    negative_soa_at: u32,
    soa: SoaTimes,
    records: u64,
    base: Arc<Base>,
    /// What has changed since the base was made.
    over: Option<Box<Overlay>>,
}

/// What was compiled of all records of a version. Others that came of it share it.
struct Base {
    apex: Box<[u8]>,
    apex_at: u32,
    arena: Box<[u8]>,
    table: Table,
    /// Every name, in canonical order.
    order: Box<[u32]>,
    denial: Denial,
    /// NSEC3 records that are in no chain; they are transferred, no more.
    strays: Box<[u32]>,
    /// Names with records that point to names which belong in the zone and are not there.
    dangling: Box<[u32]>,
    cases: Cases,
    records: u64,
}

/// The numbers of a SOA record (RFC 1035 §3.3.13), times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoaTimes {
    pub serial: u32,
    pub refresh: u32,
    pub retry: u32,
    pub expire: u32,
    pub minimum: u32,
}

/// How it is proved that something is not there.
pub(crate) enum Denial {
    Unsigned,
    /// The names that have NSEC records, in canonical order.
    Nsec(Box<[u32]>),
    Nsec3(Chain),
}

/// Where a name is in a zone, or would be.
#[derive(Clone, Copy)]
pub(crate) struct Found<'z> {
    /// The name itself, or the closest one above it that exists: the closest encloser (RFC 4592 §3.3.1).
    pub(crate) node: Node<'z>,
    /// Where the closest encloser begins within the name: 0 where it is the name itself.
    pub(crate) encloser_at: usize,
    /// Where the name begins that is one label longer than the closest encloser.
    pub(crate) next_closer_at: usize,
}

impl Found<'_> {
    #[inline]
    pub(crate) fn exact(&self) -> bool {
        self.encloser_at == 0
    }
}

impl Zone {
    /// A zone of these records, in any order, and what is odd about it.
    ///
    /// # Errors
    /// Why they are no zone. Reading stops there.
    pub fn build(
        apex: Name<'_>,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(Zone, Vec<Warning>), ZoneError> {
        let mut builder = ZoneBuilder::new(apex);
        for record in records {
            builder.push(record.as_ref())?;
        }
        builder.finish()
    }

    /// Its apex, in lower case.
    #[must_use]
    pub fn apex(&self) -> NameBuf {
        Name::parse(&self.apex)
            .expect("the apex was a name")
            .to_owned()
    }

    /// Labels of its apex, the root's not counted.
    #[must_use]
    pub fn apex_labels(&self) -> u8 {
        // A name has at most 127.
        names::labels(&self.apex) as u8
    }

    /// What its SOA record says.
    #[must_use]
    pub fn soa(&self) -> SoaTimes {
        self.soa
    }

    /// How many records it has, signatures counted.
    #[must_use]
    pub fn records_count(&self) -> u64 {
        self.records
    }

    /// How many names it has, empty non-terminals counted, owners of NSEC3 records not.
    #[must_use]
    pub fn names_count(&self) -> usize {
        let changed = self
            .over
            .as_ref()
            .map(|over| (over.moved.count(), over.order.len()));
        let (without, with) = changed.unwrap_or_default();
        self.base.order.len() - without + with
    }

    /// How many names have changed since all were compiled.
    #[must_use]
    pub fn changed_count(&self) -> usize {
        self.over.as_ref().map_or(0, |over| over.order.len())
    }

    /// Whether what is not there is proved.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        !matches!(self.base.denial, Denial::Unsigned)
    }

    /// Octets that it occupies, those that it shares with other versions counted.
    #[must_use]
    pub fn memory(&self) -> usize {
        let base = &self.base;
        let denial = match &base.denial {
            Denial::Unsigned => 0,
            Denial::Nsec(names) => 4 * names.len(),
            Denial::Nsec3(chain) => chain.memory(),
        };
        let over = self.over.as_ref().map_or(0, |over| over.memory());
        base.arena.len()
            + base.table.memory()
            + 4 * (base.order.len() + base.dangling.len())
            + base.cases.memory()
            + denial
            + over
    }

    #[inline]
    pub(crate) fn apex_wire(&self) -> &[u8] {
        &self.apex
    }

    #[inline]
    fn arena(&self) -> Arena<'_> {
        Arena::new(&self.base.arena, self.over.as_deref())
    }

    #[inline]
    pub(crate) fn denial(&self) -> &Denial {
        &self.base.denial
    }

    #[inline]
    pub(crate) fn node(&self, at: u32) -> Node<'_> {
        Node::new(self.arena(), at)
    }

    /// The SOA record of negative answers.
    #[inline]
    pub(crate) fn negative_soa(&self) -> Rrset<'_> {
        Rrset::read(self.arena(), self.negative_soa_at as usize, self.apex.len())
    }

    /// Where the name is, which is below the apex; `None`: there is none.
    #[inline(always)]
    fn place_below(&self, name: &[u8]) -> Option<u32> {
        let hash = self.base.table.keys().hash(name);
        match &self.over {
            None => self.base.place_of(name, hash),
            Some(over) => self.base.place_now(over, name, hash),
        }
    }

    /// The name itself, in lower case.
    fn node_of(&self, name: &[u8]) -> Option<Node<'_>> {
        let at = match name.len() == self.apex.len() {
            true => (*name == *self.apex).then_some(self.apex_at),
            false => self.place_below(name),
        };
        at.map(|at| self.node(at))
    }

    /// Where `name`, in whatever case, of so many labels, at or below the apex, is or would be. One probe for each label more
    /// than the closest encloser has, but none for labels beyond the zone's deepest name.
    #[inline(always)]
    pub(crate) fn find(&self, name: &[u8], labels: usize) -> Found<'_> {
        let apex_at = name.len() - self.apex.len();
        let (mut at, mut next_closer_at) = (0, 0);
        for _ in self.labels_max..labels {
            next_closer_at = at;
            at += 1 + usize::from(name[at]);
        }
        loop {
            let node = if at == apex_at {
                Some(self.apex_at)
            } else {
                self.place_below(&name[at..])
            };
            if let Some(node) = node {
                let node = self.node(node);
                return Found {
                    node,
                    encloser_at: at,
                    next_closer_at,
                };
            }
            next_closer_at = at;
            at += 1 + usize::from(name[at]);
        }
    }

    /// Whether it is more than a core's own caches have.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.base.arena.len() >= LARGE
    }

    /// The hash that [`find`](Self::find) begins with.
    #[inline]
    pub(crate) fn first_hash(&self, name: &[u8], labels: usize) -> u64 {
        let mut at = 0;
        for _ in self.labels_max..labels {
            at += 1 + usize::from(name[at]);
        }
        self.base.table.keys().hash(&name[at..])
    }

    /// Where the search for a hash begins.
    #[inline]
    pub(crate) fn slot(&self, hash: u64) -> *const u8 {
        self.base.table.first_slot(hash)
    }

    /// The name with this hash that was there when all were compiled; or another with the same hash.
    #[inline]
    pub(crate) fn supposed(&self, hash: u64) -> Option<Node<'_>> {
        let node = self.base.table.supposed(hash)?;
        Some(self.node(node))
    }

    /// What [`find`](Self::find) gives for `name`, if that is the name at this place, as [`supposed`](Self::supposed) gave it.
    /// `None`: it is not, or the zone has changed since all were compiled.
    #[inline]
    pub(crate) fn find_at(&self, place: u32, name: &[u8]) -> Option<Found<'_>> {
        let node = self.node(place);
        let is_it = self.over.is_none() && names::same(node.name(), name);
        is_it.then_some(Found {
            node,
            encloser_at: 0,
            next_closer_at: 0,
        })
    }

    /// In a zone with NSEC records: the name before `name`, in lower case, in canonical order, or itself, that has one.
    pub(crate) fn nsec_at_or_before(&self, owners: &[u32], name: &[u8]) -> Option<Node<'_>> {
        let count = |owners: &[u32]| {
            let not_above = |owner: &u32| names::canonical_order(self.node(*owner).name(), name);
            owners.partition_point(|owner| not_above(owner).is_le())
        };
        let last = |owners: &[u32]| Some(self.node(*owners[..count(owners)].last()?));
        let Some(over) = &self.over else {
            // The apex is the first of all names.
            return last(owners);
        };
        let kept = over.nsec_moved.last_outside(count(owners) as u32);
        let kept = kept.map(|number| self.node(owners[number as usize]));
        // The one that comes last.
        let order =
            |one: &Node<'_>, other: &Node<'_>| names::canonical_order(one.name(), other.name());
        kept.into_iter().chain(last(&over.nsec)).max_by(order)
    }

    /// Where the NSEC3 record is that covers names with this hash.
    #[inline]
    pub(crate) fn covering(&self, chain: &Chain, hash: &Hash) -> u32 {
        match &self.over {
            None => chain.place_at_or_before(&self.base.arena, hash),
            Some(over) => self.covering_now(over, chain, hash),
        }
    }

    /// The same, where the chain may have changed.
    #[inline(never)]
    fn covering_now(&self, over: &Overlay, chain: &Chain, hash: &Hash) -> u32 {
        let number = over.proofs.at_or_before(chain, &self.base.arena, hash);
        self.proof_place(chain, number)
    }

    /// What proves that something is not there, in a zone with NSEC3 records.
    fn proving(&self) -> Option<Proving<'_>> {
        self.base
            .proving(self.over.as_deref().map(|over| &over.proofs))
    }

    /// The NSEC3 record of this number: the label of its owner, and its RRset.
    pub(crate) fn proof(
        &self,
        chain: &Chain,
        number: u32,
    ) -> (&[u8; parts::LABEL_LENGTH], Rrset<'_>) {
        let place = self.proof_place(chain, number);
        proof_at(self.arena(), place, self.apex.len())
    }

    /// Where the NSEC3 record of this number is; [`NONE`] where there is none.
    #[inline]
    pub(crate) fn proof_place(&self, chain: &Chain, number: u32) -> u32 {
        match chain.places.get(number as usize) {
            Some(place) => *place,
            None => self.added_proof_place(chain, number),
        }
    }

    #[inline(never)]
    fn added_proof_place(&self, chain: &Chain, number: u32) -> u32 {
        let added = self.over.as_ref().map(|over| &over.proofs.added);
        let number = number as usize - chain.places.len();
        let place = added.and_then(|added| added.get(number));
        place.map_or(NONE, |(_, place)| *place)
    }

    /// The NSEC3 record at this place as it is sent, see [`parts::whole_proof_at`].
    #[inline]
    pub(crate) fn whole_proof(&self, place: u32) -> (&[u8], u16) {
        whole_proof_at(self.arena(), place)
    }

    /// The octets of most NSEC3 records with their signature, at this place, if one may be there.
    #[inline]
    pub(crate) fn proof_octets(&self, place: u32) -> Option<&[u8; PROOF_OCTETS]> {
        self.base.arena.get(place as usize..)?.first_chunk()
    }

    /// The numbers of the NSEC3 records that prove things about a name.
    #[inline]
    pub(crate) fn proofs_of(&self, node: Node<'_>) -> Proofs {
        let noted = Proofs {
            first: node.proof(),
            second: node.second_proof(),
            opted_out: node.has(OPTED_OUT),
            is_deep: node.has(DEEP),
        };
        match &self.over {
            None => noted,
            Some(over) => self.proofs_now(over, node, noted),
        }
    }

    /// The same, where the chain may have changed since a name has noted them.
    #[inline(never)]
    fn proofs_now(&self, over: &Overlay, node: Node<'_>, noted: Proofs) -> Proofs {
        let Some(proving) = self.proving().filter(|_| node.at < over.origin) else {
            return noted;
        };
        let changed = over.proofs.concern(noted.first, noted.second);
        // A record that came for a name between does not touch what covers the name above that one.
        let may_differ = changed || noted.is_deep && !over.proofs.added.is_empty();
        match noted.first != NONE && may_differ {
            true => proving.of(node.name(), node.has(DELEGATION)),
            false => noted,
        }
    }
}

impl Base {
    fn chain(&self) -> Option<&Chain> {
        match &self.denial {
            Denial::Nsec3(chain) => Some(chain),
            _ => None,
        }
    }

    #[inline]
    fn proving<'z>(&'z self, changes: Option<&'z overlay::ProofChanges>) -> Option<Proving<'z>> {
        Some(Proving {
            chain: self.chain()?,
            arena: &self.arena,
            changes,
        })
    }

    /// A name as it was.
    fn node(&self, at: u32) -> Node<'_> {
        Node::new(Arena::new(&self.arena, None), at)
    }

    /// A name in lower case as it was.
    fn node_of(&self, name: &[u8]) -> Option<Node<'_>> {
        let at = match name.len() == self.apex.len() {
            true => (*name == *self.apex).then_some(self.apex_at),
            false => self.place_of(name, self.table.keys().hash(name)),
        };
        at.map(|at| self.node(at))
    }

    /// Where the name was, which is below the apex and has this hash.
    #[inline(always)]
    fn place_of(&self, name: &[u8], hash: u64) -> Option<u32> {
        let arena = Arena::new(&self.arena, None);
        self.table.find(arena, name, hash)
    }

    /// Where the name is, `over` being what has changed.
    #[inline(never)]
    fn place_now(&self, over: &Overlay, name: &[u8], hash: u64) -> Option<u32> {
        let arena = Arena::new(&self.arena, Some(over));
        match over.table.find(arena, name, hash) {
            Some(at) => (!Node::new(arena, at).has(GONE)).then_some(at),
            None => self.place_of(name, hash),
        }
    }
}

impl std::fmt::Debug for Zone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zone")
            .field("apex", &self.apex())
            .field("serial", &self.soa.serial)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

/// The five numbers at the end of a SOA record's data.
fn soa_times(data: &[u8]) -> SoaTimes {
    let numbers = &data[data.len() - 20..];
    let number = |place: usize| u32::from_le_bytes(u32_at(numbers, 4 * place).to_be_bytes());
    SoaTimes {
        serial: number(0),
        refresh: number(1),
        retry: number(2),
        expire: number(3),
        minimum: number(4),
    }
}
