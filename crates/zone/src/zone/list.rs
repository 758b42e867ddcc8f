//! The records of a zone one by one: what a transfer sends and a zone file holds.

use super::encode::encode_hash;
use super::nsec3;
use super::parts::{Node, Rrset};
use super::{Denial, Zone, rdata};
use crate::record::Record;
use wire::codes::{class, qtype};
use wire::message::{HEADER_LENGTH, Header, Records};
use wire::name::compressed::expand;
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
        records(apex.name(), soa).swap_remove(0)
    }

    /// Every record: the SOA record first, then names in canonical order, and at last the NSEC3 records. Owners are in
    /// lower case.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let chain: &[u32] = match &self.denial {
            Denial::Nsec3(chain) => &chain.places,
            _ => &[],
        };
        let names = self.order.iter().flat_map(|at| of_node(self.node(*at)));
        let proofs = chain.iter().chain(&self.strays);
        let soa = std::iter::once(self.soa_record());
        let mut first = true;
        let others = names.filter(move |record| {
            let skipped = first && record.kind == qtype::SOA;
            first &= !skipped;
            !skipped
        });
        soa.chain(others)
            .chain(proofs.flat_map(|place| self.of_proof(*place)))
    }

    fn of_proof(&self, place: u32) -> Vec<Record> {
        let (hash, rrset) = nsec3::read(&self.arena, place, self.apex.len());
        let owner = [&encode_hash(hash)[..], &self.apex].concat();
        records(&owner, rrset)
    }
}

fn of_node(node: Node<'_>) -> impl Iterator<Item = Record> {
    node.rrsets()
        .flat_map(move |rrset| records(node.name(), rrset))
}

/// Names of servers that belong in the zone and have no address there.
pub(super) fn without_address(owner: &[u8], servers: Rrset<'_>) -> Vec<NameBuf> {
    let has_address = |node: &Node<'_>| {
        let kinds = [qtype::A, qtype::AAAA];
        kinds.into_iter().any(|kind| node.rrset(kind).is_some())
    };
    let lacking = servers
        .wanted()
        .filter(|(_, node)| !node.as_ref().is_some_and(has_address));
    let mut lacking = lacking
        .map(|(place, _)| servers.body_base() + usize::from(place))
        .peekable();
    if lacking.peek().is_none() {
        return Vec::new();
    }
    let message = message_of(owner, servers);
    let mut buffer = [0; NAME_LENGTH_MAX];
    lacking
        .filter_map(|at| {
            expand(&message, at, &mut buffer)
                .ok()
                .map(|name| name.to_owned())
        })
        .collect()
}

/// An RRset's body behind a question for its owner, where its pointers are right.
fn message_of(owner: &[u8], rrset: Rrset<'_>) -> Vec<u8> {
    let mut message = vec![0; HEADER_LENGTH];
    message.extend(owner);
    message.extend([0; 4]);
    message.extend(rrset.body(true));
    message
}

/// The records and signatures of one RRset.
fn records(owner: &[u8], rrset: Rrset<'_>) -> Vec<Record> {
    let message = message_of(owner, rrset);
    let mut header = Header::default();
    header.set_answer_count(rrset.count(true));
    let start = rrset.body_base() as u16;
    let records = Records::new(&message, start, &header).map_while(Result::ok);
    records
        .map(|record| Record {
            owner: owner.into(),
            kind: record.rtype,
            class: class::IN,
            ttl: record.ttl,
            rdata: uncompressed(&message, &record),
        })
        .collect()
}

fn uncompressed(message: &[u8], record: &wire::message::Record) -> Box<[u8]> {
    let data = record.rdata(message);
    let Some((before, count)) = rdata::compressible(record.rtype) else {
        return data.into();
    };
    let mut whole = data[..before].to_vec();
    let mut at = usize::from(record.rdata_start) + before;
    for _ in 0..count {
        let mut buffer = [0; NAME_LENGTH_MAX];
        let name = expand(message, at, &mut buffer).unwrap_or(Name::ROOT);
        whole.extend(name.as_bytes());
        at = wire::name::compressed::skip(message, at).unwrap_or(message.len());
    }
    whole.extend(&message[at..usize::from(record.rdata_end)]);
    whole.into()
}
