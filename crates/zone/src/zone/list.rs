//! The records of a zone one by one: what a transfer sends and a zone file holds.

use super::case::Cases;
use super::encode::decode_hash;
use super::parts::{
    HASH_LENGTH, LABEL_LENGTH, Node, OWNER_ITSELF, RECORD_HEADER_LENGTH, Rrset, body_base,
    proof_at, wire_u16,
};
use super::{Zone, names, rdata};
use crate::record::Record;
use std::cmp::Ordering;
use std::ops::Range;
use wire::codes::{class, qtype};
use wire::message::HEADER_LENGTH;
use wire::name::compressed::{expand, skip};
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf};

impl Zone {
    /// The SOA record as it was read.
    ///
    /// # Panics
    /// Never: no zone is made without one.
    #[must_use]
    pub fn soa_record(&self) -> Record {
        let apex = self.node(self.apex_at);
        let soa = apex.rrset(qtype::SOA).expect("a zone has one");
        self.listed(apex, &self.written(apex), soa).swap_remove(0)
    }

    /// Every record: the SOA record first, then names in canonical order, and at last the NSEC3 records. Upper and lower
    /// case are as they were read.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let names = self.places().into_iter();
        let names = names.flat_map(|at| self.of_node(self.node(at)));
        let proofs = self.proof_numbers().into_iter();
        let proofs = proofs.flat_map(|number| self.of_proof(number));
        let strays = self.base.strays.iter();
        let strays = strays.flat_map(|place| self.of_stray(*place));
        let soa = std::iter::once(self.soa_record());
        let mut first = true;
        let others = names.filter(move |record| {
            let skipped = first && record.kind == qtype::SOA;
            first &= !skipped;
            !skipped
        });
        soa.chain(others).chain(proofs).chain(strays)
    }

    /// The records of one owner, whose name is given as on the wire and in lower case.
    #[must_use]
    pub fn records_of(&self, owner: &[u8]) -> Vec<Record> {
        let node = self.node_of(owner).into_iter();
        let mut records: Vec<Record> = node.flat_map(|node| self.of_node(node)).collect();
        let number = hash_of(owner, &self.apex)
            .zip(self.proving())
            .and_then(|(hash, proving)| proving.matching(&hash));
        if let Some(number) = number {
            records.extend(self.of_proof(number));
        }
        let strays = self.base.strays.iter();
        let strays = strays.flat_map(|place| self.of_stray(*place));
        records.extend(strays.filter(|record| record.owner.eq_ignore_ascii_case(owner)));
        records
    }

    /// Where the names are, in canonical order.
    pub(super) fn places(&self) -> Vec<u32> {
        let Some(over) = &self.over else {
            return self.base.order.to_vec();
        };
        let kept = self.base.order.iter().copied();
        let kept = kept.filter(|at| !over.moved.has(*at));
        let name = |at: u32| self.node(at).name();
        merged(kept, over.order.iter().copied(), |one, other| {
            names::canonical_order(name(one), name(other))
        })
    }

    /// The numbers of the NSEC3 records of the chain, by hash.
    pub(super) fn proof_numbers(&self) -> Vec<u32> {
        let Some(chain) = self.base.chain() else {
            return Vec::new();
        };
        let count = chain.places.len() as u32;
        let Some(over) = &self.over else {
            return (0..count).collect();
        };
        let kept = (0..count).filter(|number| !over.proofs.gone.has(*number));
        let added = (count..).take(over.proofs.added.len());
        let hash = |number: u32| self.proof(chain, number).0;
        merged(kept, added, |one, other| hash(one).cmp(hash(other)))
    }

    /// The records of a name of the tree.
    pub(super) fn of_node<'z>(&'z self, node: Node<'z>) -> impl Iterator<Item = Record> + use<'z> {
        let owner = self.written(node);
        node.rrsets()
            .flat_map(move |rrset| self.listed(node, &owner, rrset))
    }

    /// A name as it was written.
    fn written(&self, node: Node<'_>) -> Box<[u8]> {
        let mut owner: Box<[u8]> = node.name().into();
        self.cases_at(node.at).restore(node.at, owner.iter_mut());
        owner
    }

    /// The records and signatures of an RRset of a name that was written as `owner`.
    fn listed(&self, node: Node<'_>, owner: &[u8], rrset: Rrset<'_>) -> Vec<Record> {
        let mut records = listed(node.name(), owner, rrset.body(true), rrset.count(true));
        let data = records
            .iter_mut()
            .flat_map(|record| record.rdata.iter_mut());
        self.cases_at(rrset.at).restore(rrset.at, data);
        records
    }

    /// How the names were written of what is at this place.
    fn cases_at(&self, place: u32) -> &Cases {
        match &self.over {
            Some(over) if place >= over.origin => &over.cases,
            _ => &self.base.cases,
        }
    }

    pub(super) fn of_proof(&self, number: u32) -> Vec<Record> {
        let chain = self.base.chain().expect("who has a number has a chain");
        self.with_label(self.proof(chain, number))
    }

    fn of_stray(&self, place: u32) -> Vec<Record> {
        self.with_label(proof_at(self.arena(), place, self.apex.len()))
    }

    fn with_label(&self, (label, rrset): (&[u8; LABEL_LENGTH], Rrset<'_>)) -> Vec<Record> {
        let name = [&label[..], &self.apex].concat();
        let mut owner = name.clone();
        self.cases_at(rrset.at).restore(rrset.at, owner.iter_mut());
        listed(&name, &owner, rrset.body(true), rrset.count(true))
    }
}

/// Two ascending lists as one.
fn merged(
    one: impl Iterator<Item = u32>,
    other: impl Iterator<Item = u32>,
    order: impl Fn(u32, u32) -> Ordering,
) -> Vec<u32> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    let mut all = Vec::new();
    while let (Some(first), Some(second)) = (one.peek(), other.peek()) {
        let is_first = order(*first, *second).is_lt();
        all.extend(if is_first { one.next() } else { other.next() });
    }
    all.extend(one.chain(other));
    all
}

/// The hash that the owner of an NSEC3 record right below the apex stands for.
pub(super) fn hash_of(owner: &[u8], apex: &[u8]) -> Option<[u8; HASH_LENGTH]> {
    let label = usize::from(owner[0]);
    (owner.len() == label + 1 + apex.len())
        .then(|| decode_hash(&owner[1..=label]))
        .flatten()
}

/// Names of servers that belong in the zone and have no address there.
pub(super) fn without_address(owner: &[u8], servers: Rrset<'_>) -> Vec<NameBuf> {
    let has_address = |node: Node<'_>| {
        let kinds = [qtype::A, qtype::AAAA];
        !node.is_redirected() && kinds.into_iter().any(|kind| node.rrset(kind).is_some())
    };
    targets_of(owner, servers, |node| !node.is_some_and(has_address))
}

/// Names that the records of a name point to, which belong in the zone and are not there.
pub(super) fn missing(node: Node<'_>) -> Vec<NameBuf> {
    let missing = |rrset| targets_of(node.name(), rrset, |node| node.is_none());
    node.rrsets().flat_map(missing).collect()
}

/// Names that an RRset points to, within the zone, whose node is as wanted.
fn targets_of(
    owner: &[u8],
    rrset: Rrset<'_>,
    is_wanted: impl Fn(Option<Node<'_>>) -> bool,
) -> Vec<NameBuf> {
    let wanted = rrset.wanted().filter(|(_, node)| is_wanted(*node));
    let mut places = wanted
        .filter(|(place, _)| *place != OWNER_ITSELF)
        .map(|(place, _)| rrset.body_base() + usize::from(place))
        .peekable();
    if places.peek().is_none() {
        return Vec::new();
    }
    let message = message_of(owner, rrset.body(true));
    let mut buffer = [0; NAME_LENGTH_MAX];
    let names = places.filter_map(|at| {
        let name = expand(&message, at, &mut buffer).ok()?;
        Some(name.to_owned())
    });
    names.collect()
}

/// An RRset's body behind a question for its owner, where its pointers are right.
fn message_of(owner: &[u8], body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER_LENGTH];
    message.extend(owner);
    message.extend([0; 4]);
    message.extend(body);
    message
}

/// The first records of an RRset's body, so many, as the zone's octets say: names that are pointers to `name`, in lower
/// case, are so too. Their owner is written as `owner`.
pub(super) fn listed(name: &[u8], owner: &[u8], body: &[u8], count: u16) -> Vec<Record> {
    let message = message_of(name, body);
    let mut at = body_base(name.len());
    // Places are not those of a message on the wire: an RRset and its signatures may be longer together than one is.
    let records = (0..count).map(|_| {
        let start = at + RECORD_HEADER_LENGTH;
        let end = start + usize::from(wire_u16(&message, start - 2));
        let kind = wire_u16(&message, at + 2);
        let ttl = u32::from_be_bytes([6, 7, 8, 9].map(|place| message[at + place]));
        at = end;
        Record {
            owner: owner.into(),
            kind,
            class: class::IN,
            ttl,
            rdata: uncompressed(&message, kind, start..end),
        }
    });
    records.collect()
}

/// The data of this type at a place of a message, their names whole.
fn uncompressed(message: &[u8], kind: u16, place: Range<usize>) -> Box<[u8]> {
    let data = &message[place.clone()];
    let Some((before, count)) = rdata::compressible(kind) else {
        return data.into();
    };
    let mut whole = data[..before].to_vec();
    let mut at = place.start + before;
    for _ in 0..count {
        let mut buffer = [0; NAME_LENGTH_MAX];
        let name = expand(message, at, &mut buffer).unwrap_or(Name::ROOT);
        whole.extend(name.as_bytes());
        at = skip(message, at).unwrap_or(message.len());
    }
    whole.extend(&message[at..place.end]);
    whole.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn record(owner: &str, kind: u16, data: Box<[u8]>) -> Record {
        let owner: NameBuf = owner.parse().unwrap();
        Record {
            owner: owner.as_name().as_bytes().into(),
            kind,
            class: class::IN,
            ttl: 60,
            rdata: data,
        }
    }

    /// Whatever is not listed is lacking in transfers, in files, and in the zone that changes lead to; and nobody is told.
    #[test]
    fn rrsets_that_no_message_has_room_for_are_listed_whole() {
        let parsed = |kind, text| crate::rdata::parse(kind, text, Name::ROOT).unwrap();
        let signed = [0_u8, 1, 13, 2, 0, 0, 0, 60];
        let signature = [&signed[..], &[0; 10], b"\x07example\x00", &[7; 64]].concat();
        let soa = parsed(qtype::SOA, "ns. host. 1 2 3 4 5");
        let mut records = vec![
            record("example", qtype::SOA, soa),
            record("example", qtype::NS, parsed(qtype::NS, "ns.")),
            record("long.example", 65_280, vec![7; 65_520].into()),
            record("many.example", qtype::RRSIG, signature.into()),
        ];
        // Alone they fit a message, with the signature they do not.
        let address = |number: u32| record("many.example", qtype::A, number.to_be_bytes().into());
        records.extend((0..4_090).map(address));
        let apex: NameBuf = "example".parse().unwrap();
        let (zone, _) = Zone::build(apex.as_name(), records.clone()).unwrap();
        let listed: HashSet<Record> = zone.records().collect();
        assert_eq!(listed.len(), records.len());
        assert!(records.iter().all(|record| listed.contains(record)));
        let many = zone.records_of(b"\x04many\x07example\x00");
        assert_eq!(many.len(), 4_091);
    }
}
