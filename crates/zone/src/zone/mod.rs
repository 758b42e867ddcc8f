//! The compiled zone: immutable, swapped whole, made for answers that are a few copies.
//!
//! A name is found by one hash lookup per label that is missing, and lies beside its RRsets; what the tree would tell (the
//! delegation above, the wildcard below, the NSEC3 records that prove things about it) is written down at every name when
//! the zone is made. [`parts`] draws the bytes.
//!
//! RFC 1034 (§4.2: zones and cuts), 2181 (§5, §10.1), 4034 (§6.1: canonical order), 4592 (wildcards), 5155 (NSEC3), 6672
//! (DNAME), 9276 (iterations).

mod build;
mod encode;
mod fault;
mod list;
pub(crate) mod names;
pub(crate) mod nsec3;
pub(crate) mod parts;
mod rdata;
mod table;

pub use build::ZoneBuilder;
pub(crate) use encode::encode_hash;
pub use fault::{Warning, ZoneError};
pub use nsec3::ITERATIONS_MAX;

use crate::record::Record;
use nsec3::Chain;
use parts::{Node, Rrset, u32_at};
use table::Table;
use wire::name::{Name, NameBuf};

/// A zone that can be asked.
pub struct Zone {
    /// In lower case.
    apex: Box<[u8]>,
    apex_at: u32,
    /// Labels of the name that has most of them, the root's not counted.
    labels_max: usize,
    arena: Box<[u8]>,
    table: Table,
    /// Every name, in canonical order.
    order: Box<[u32]>,
    denial: Denial,
    /// The header of the SOA RRset of negative answers, with their TTL.
    negative_soa_at: u32,
    /// NSEC3 records that are in no chain; they are transferred, no more.
    strays: Box<[u32]>,
    soa: SoaTimes,
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
        self.order.len()
    }

    /// Whether what is not there is proved.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        !matches!(self.denial, Denial::Unsigned)
    }

    /// Octets that it occupies.
    #[must_use]
    pub fn memory(&self) -> usize {
        let denial = match &self.denial {
            Denial::Unsigned => 0,
            Denial::Nsec(names) => 4 * names.len(),
            // A prefix and a place each, and a bucket for four.
            Denial::Nsec3(chain) => 13 * chain.places.len(),
        };
        self.arena.len() + self.table.memory() + 4 * self.order.len() + denial
    }

    #[inline]
    pub(crate) fn apex_wire(&self) -> &[u8] {
        &self.apex
    }

    #[inline]
    pub(crate) fn arena(&self) -> &[u8] {
        &self.arena
    }

    #[inline]
    pub(crate) fn denial(&self) -> &Denial {
        &self.denial
    }

    #[inline]
    pub(crate) fn node(&self, at: u32) -> Node<'_> {
        Node::new(&self.arena, at)
    }

    /// The SOA record of negative answers.
    #[inline]
    pub(crate) fn negative_soa(&self) -> Rrset<'_> {
        Rrset::read(&self.arena, self.negative_soa_at as usize, self.apex.len())
    }

    /// Where `name`, in lower case, of so many labels, at or below the apex, is or would be. One probe for each label more
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
                self.table.find(&self.arena, &name[at..])
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

    /// In a zone with NSEC records: the name before `name`, in lower case, in canonical order, or itself, that has one.
    pub(crate) fn nsec_at_or_before(&self, owners: &[u32], name: &[u8]) -> Option<Node<'_>> {
        let not_above =
            |owner: &u32| names::canonical_order(self.node(*owner).name(), name).is_le();
        let count = owners.partition_point(not_above);
        // The apex is the first of all names.
        Some(self.node(owners[count.checked_sub(1)?]))
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
