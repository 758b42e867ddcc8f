//! Encodes a zone that was gathered: NSEC3 records, names with their RRsets, and what is found by them.

use super::{Owner, Sorted, ZoneBuilder, name_of};
use crate::zone::encode::{self, Fault, Source, Wanted, decode_hash};
use crate::zone::fault::{Warning, ZoneError};
use crate::zone::nsec3::{self, Chain, Parameters, Proofs};
use crate::zone::parts::{
    DELEGATION, DNAME, HASH_LENGTH, NODE_HEADER_LENGTH, NONE, Node, OPTED_OUT, RRSET_HEADER_LENGTH,
};
use crate::zone::table::Table;
use crate::zone::{Denial, Zone, list, names, soa_times};
use wire::codes::qtype;

/// Warnings that are kept: a million of them help nobody.
const WARNINGS_MAX: usize = 1_000;

/// The names above the one that is being encoded, this one last: in canonical order they come before it.
struct Ancestor {
    at: u32,
    cut: u32,
    length: usize,
    redirects: bool,
    proofs: Proofs,
}

/// The arena as it grows.
pub(super) struct Assembly<'b> {
    builder: &'b ZoneBuilder,
    arena: Vec<u8>,
    order: Vec<u32>,
    nsec: Vec<u32>,
    wanted: Wanted,
    pub(super) warnings: Vec<Warning>,
    labels_max: usize,
    records: u64,
}

impl<'b> Assembly<'b> {
    pub(super) fn new(builder: &'b ZoneBuilder) -> Assembly<'b> {
        let owners = builder.tree.list.len() + builder.hashes.list.len();
        let room = builder.octets.len() + builder.records.len() * 12 + owners * 56;
        Assembly {
            builder,
            arena: Vec::with_capacity(room),
            order: Vec::with_capacity(builder.tree.list.len()),
            nsec: Vec::new(),
            wanted: Wanted::default(),
            warnings: builder.warnings.clone(),
            labels_max: 0,
            records: 0,
        }
    }

    fn warn(&mut self, warning: impl FnOnce() -> Warning) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(warning());
        }
    }

    // ------------------------------------------------------------------------------------------ NSEC3

    /// Encodes the NSEC3 records: the chain, and those that are not in it.
    pub(super) fn proofs(
        &mut self,
        parameters: Option<Parameters>,
    ) -> Result<(Option<Chain>, Vec<u32>), ZoneError> {
        let builder = self.builder;
        let (mut chain, mut strays) = (Vec::new(), Vec::new());
        let mut records = Vec::new();
        for owner in &builder.hashes.list {
            let name = builder.name(*owner);
            builder.records_of(*owner, &mut records);
            let label = usize::from(name[0]);
            let hash = (name.len() == label + 1 + builder.apex.len())
                .then(|| decode_hash(&name[1..=label]))
                .flatten();
            let signed = records.first().is_some_and(|record| !record.is_signature);
            let Some(hash) = hash.filter(|_| signed) else {
                self.warn(|| Warning::StrayNsec3 {
                    apex: name_of(&builder.apex),
                    count: 1,
                });
                continue;
            };
            let place = self.arena.len() as u32;
            self.arena.extend(hash);
            let header_at = self.arena.len();
            self.arena.extend([0; RRSET_HEADER_LENGTH]);
            debug_assert_eq!(self.arena.len() - place as usize, nsec3::ENTRY_LENGTH);
            self.rrset(name, header_at, &records)?;
            let own = Parameters::read(records[0].data);
            if own.is_some() && own == parameters {
                chain.push((hash, place));
            } else {
                strays.push(place);
            }
        }
        chain.sort_unstable();
        let chain = parameters.map(|parameters| self.chain(parameters, &chain, &mut strays));
        if !strays.is_empty() {
            let count = strays.len();
            self.warn(|| Warning::StrayNsec3 {
                apex: name_of(&builder.apex),
                count,
            });
        }
        Ok((chain.flatten(), strays))
    }

    /// A chain, if it has the apex.
    fn chain(
        &self,
        parameters: Parameters,
        records: &[([u8; HASH_LENGTH], u32)],
        strays: &mut Vec<u32>,
    ) -> Option<Chain> {
        if !records.is_empty() {
            let chain = Chain::new(parameters, records);
            let apex = chain.parameters.hash(&self.builder.apex);
            if chain.matching(&self.arena, &apex).is_some() {
                return Some(chain);
            }
        }
        strays.extend(records.iter().map(|(_, place)| *place));
        None
    }

    // ------------------------------------------------------------------------------------------ names

    pub(super) fn nodes(
        &mut self,
        order: &[Owner],
        chain: Option<&Chain>,
    ) -> Result<(), ZoneError> {
        let builder = self.builder;
        let mut above: Vec<Ancestor> = Vec::new();
        let mut records = Vec::new();
        for owner in order {
            let name = builder.name(*owner);
            while above
                .last()
                .is_some_and(|ancestor| !names::is_within(name, self.node(ancestor.at).name()))
            {
                above.pop();
            }
            builder.records_of(*owner, &mut records);
            let ancestor = self.encode_node(name, &records, &above, chain)?;
            above.push(ancestor);
        }
        Ok(())
    }

    fn node(&self, at: u32) -> Node<'_> {
        Node::new(&self.arena, at)
    }

    /// Encodes a name and its RRsets.
    fn encode_node(
        &mut self,
        name: &[u8],
        records: &[Sorted<'_>],
        above: &[Ancestor],
        chain: Option<&Chain>,
    ) -> Result<Ancestor, ZoneError> {
        let is_apex = name.len() == self.builder.apex.len();
        let at = self.arena.len() as u32;
        let has = |kind| {
            records
                .iter()
                .any(|record| (record.kind, record.is_signature) == (kind, false))
        };
        let parent = above.last();
        let cut_above = parent.map_or(NONE, |parent| {
            if parent.redirects {
                parent.at
            } else {
                parent.cut
            }
        });
        let delegation = cut_above == NONE && !is_apex && has(qtype::NS);
        let redirects = cut_above == NONE && !delegation && has(qtype::DNAME);
        let cut = if delegation { at } else { cut_above };
        self.check_node(name, records, cut, delegation)?;
        let proofs = if cut_above == NONE {
            self.proofs_of(name, delegation, above, chain)
        } else {
            Proofs::NONE
        };
        let mut flags = if delegation { DELEGATION } else { 0 };
        flags |= if redirects { DNAME } else { 0 };
        flags |= if proofs.opted_out { OPTED_OUT } else { 0 };
        self.push_node(
            name,
            records,
            [cut, NONE, proofs.first, proofs.second],
            flags,
        )?;
        if let Some(parent) = parent.filter(|_| name.starts_with(b"\x01*")) {
            let place = parent.at as usize + 4;
            self.arena[place..place + 4].copy_from_slice(&at.to_le_bytes());
        }
        if cut_above == NONE && has(qtype::NSEC) {
            self.nsec.push(at);
        }
        self.order.push(at);
        self.labels_max = self.labels_max.max(names::labels(name));
        if u32::try_from(self.arena.len()).is_err() {
            return Err(ZoneError::TooLarge {
                apex: name_of(&self.builder.apex),
            });
        }
        Ok(Ancestor {
            at,
            cut,
            length: name.len(),
            redirects,
            proofs,
        })
    }

    /// The octets of a name and its RRsets.
    fn push_node(
        &mut self,
        name: &[u8],
        records: &[Sorted<'_>],
        numbers: [u32; 4],
        flags: u8,
    ) -> Result<(), ZoneError> {
        let count = groups(records).count();
        let start = self.arena.len();
        for number in numbers {
            self.arena.extend(number.to_le_bytes());
        }
        self.arena.extend((count as u16).to_le_bytes());
        self.arena.extend([flags, name.len() as u8]);
        debug_assert_eq!(self.arena.len(), start + NODE_HEADER_LENGTH);
        self.arena.extend(name);
        let headers_at = self.arena.len();
        self.arena
            .resize(headers_at + count * RRSET_HEADER_LENGTH, 0);
        for (number, group) in groups(records).enumerate() {
            self.rrset(name, headers_at + number * RRSET_HEADER_LENGTH, group)?;
        }
        Ok(())
    }

    /// Encodes one RRset and its signatures, `group`, which begins with a record.
    fn rrset(
        &mut self,
        owner: &[u8],
        header_at: usize,
        group: &[Sorted<'_>],
    ) -> Result<(), ZoneError> {
        let kind = group[0].kind;
        let (data, signatures) =
            group.split_at(group.partition_point(|record| !record.is_signature));
        let ttl = data.iter().map(|record| record.ttl).min().unwrap_or(0);
        if data.iter().any(|record| record.ttl != ttl) {
            self.warn(|| Warning::TtlsDiffer {
                owner: name_of(owner),
                kind,
            });
        }
        self.records += group.len() as u64;
        let data: Vec<&[u8]> = data.iter().map(|record| record.data).collect();
        let signatures: Vec<(u32, &[u8])> = signatures
            .iter()
            .map(|record| (record.ttl, record.data))
            .collect();
        let source = Source {
            owner,
            kind,
            ttl,
            data: &data,
            signatures: &signatures,
        };
        let apex = &self.builder.apex;
        encode::encode(&mut self.arena, header_at, &source, apex, &mut self.wanted)
            .map_err(|fault| error_of(fault, owner, kind))
    }

    /// The NSEC3 records that prove things about a name (RFC 5155 §7.2).
    fn proofs_of(
        &self,
        name: &[u8],
        delegation: bool,
        above: &[Ancestor],
        chain: Option<&Chain>,
    ) -> Proofs {
        let Some(chain) = chain else {
            return Proofs::NONE;
        };
        let hash = chain.parameters.hash(name);
        if let Some(first) = chain.matching(&self.arena, &hash) {
            // Nothing is answered by a wildcard below a delegation.
            let second = if delegation {
                NONE
            } else {
                chain.at_or_before(&self.arena, &chain.parameters.hash_wildcard(name))
            };
            return Proofs {
                first,
                second,
                opted_out: false,
            };
        }
        let encloser = above
            .iter()
            .rev()
            .find(|ancestor| !ancestor.proofs.opted_out);
        let Some(encloser) = encloser else {
            return Proofs::NONE;
        };
        let mut next_closer = name;
        while names::parent(next_closer).len() > encloser.length {
            next_closer = names::parent(next_closer);
        }
        let hash = chain.parameters.hash(next_closer);
        Proofs {
            first: encloser.proofs.first,
            second: chain.at_or_before(&self.arena, &hash),
            opted_out: true,
        }
    }

    // ----------------------------------------------------------------------------------------- checks

    fn check_node(
        &mut self,
        name: &[u8],
        records: &[Sorted<'_>],
        cut: u32,
        delegation: bool,
    ) -> Result<(), ZoneError> {
        let owner = || name_of(name);
        let count = |kind| {
            let wanted = |record: &&Sorted<'_>| (record.kind, record.is_signature) == (kind, false);
            records.iter().filter(wanted).count()
        };
        for kind in [qtype::CNAME, qtype::DNAME] {
            let count = count(kind);
            if count > 1 {
                return Err(ZoneError::ManyAliases {
                    owner: owner(),
                    kind,
                    count,
                });
            }
        }
        // RFC 2181 §10.1: "An alias name (label of a CNAME record) may, if DNSSEC is in use, have SIG, NXT, and KEY RRs,
        // but may have no other data"; their successors are RRSIG and NSEC.
        let allowed = [qtype::CNAME, qtype::NSEC, qtype::KEY];
        let beside = records
            .iter()
            .find(|record| !record.is_signature && !allowed.contains(&record.kind));
        if let Some(beside) = beside.filter(|_| count(qtype::CNAME) > 0) {
            return Err(ZoneError::CnameBeside {
                owner: owner(),
                kind: beside.kind,
            });
        }
        if name.len() == self.builder.apex.len() {
            self.check_apex(count(qtype::SOA), count(qtype::NS))?;
        } else if count(qtype::DS) > 0 && !delegation {
            self.warn(|| Warning::DsWithoutNs { owner: owner() });
        }
        if cut != NONE {
            self.check_below(name, records, cut, delegation);
        }
        for record in records.iter().filter(|record| record.is_signature) {
            if count(record.kind) == 0 {
                self.warn(|| Warning::SignatureOfNothing {
                    owner: owner(),
                    kind: record.kind,
                });
            }
        }
        Ok(())
    }

    fn check_apex(&self, soas: usize, name_servers: usize) -> Result<(), ZoneError> {
        let apex = name_of(&self.builder.apex);
        match (soas, name_servers) {
            (0, _) => Err(ZoneError::NoSoa { apex }),
            (1, 0) => Err(ZoneError::NoNameServers { apex }),
            (1, _) => Ok(()),
            (count, _) => Err(ZoneError::ManySoas { apex, count }),
        }
    }

    /// Warns of what nobody sees at a delegation, below it, or below a DNAME.
    fn check_below(&mut self, name: &[u8], records: &[Sorted<'_>], cut: u32, delegation: bool) {
        let mut records = records
            .iter()
            .filter(|record| !record.is_signature)
            .peekable();
        if !delegation && !self.node(cut).has(DELEGATION) {
            if records.peek().is_some() {
                self.warn(|| Warning::BelowDname {
                    owner: name_of(name),
                });
            }
            return;
        }
        let seen = |kind| match kind {
            qtype::A | qtype::AAAA => true,
            qtype::NS | qtype::DS | qtype::NSEC => delegation,
            _ => false,
        };
        if let Some(record) = records.find(|record| !seen(record.kind)) {
            self.warn(|| Warning::BelowDelegation {
                owner: name_of(name),
                kind: record.kind,
            });
        }
    }

    // ------------------------------------------------------------------------------------------- ends

    /// Encodes the SOA record of negative answers; returns where its header is.
    pub(super) fn negative_soa(&mut self) -> Result<u32, ZoneError> {
        let builder = self.builder;
        let apex = builder
            .tree
            .get(&builder.apex, &builder.keys, &builder.octets);
        let apex = apex.ok_or_else(|| ZoneError::NoSoa {
            apex: name_of(&builder.apex),
        })?;
        let mut records = Vec::new();
        builder.records_of(apex, &mut records);
        records.retain(|record| record.kind == qtype::SOA);
        let first = records.first().filter(|record| !record.is_signature);
        let first = first.ok_or_else(|| ZoneError::NoSoa {
            apex: name_of(&builder.apex),
        })?;
        // RFC 2308 §3: "The TTL of this record is set from the minimum of the MINIMUM field of the SOA record and the TTL
        // of the SOA itself". Its signature's follows (RFC 4034 §3).
        let ttl = first.ttl.min(soa_times(first.data).minimum);
        for record in &mut records {
            record.ttl = ttl;
        }
        let header_at = self.arena.len();
        self.arena.extend([0; RRSET_HEADER_LENGTH]);
        self.rrset(&builder.apex, header_at, &records)?;
        self.records -= records.len() as u64;
        Ok(header_at as u32)
    }

    pub(super) fn finish(
        mut self,
        chain: Option<Chain>,
        strays: Vec<u32>,
        negative_soa_at: u32,
    ) -> Result<(Zone, Vec<Warning>), ZoneError> {
        let builder = self.builder;
        if u32::try_from(self.arena.len()).is_err() {
            return Err(ZoneError::TooLarge {
                apex: name_of(&builder.apex),
            });
        }
        let table = Table::new(&self.arena, &self.order, builder.keys.clone());
        for (place, name) in self.wanted.each() {
            if let Some(node) = table.find(&self.arena, name) {
                self.arena[place..place + 4].copy_from_slice(&node.to_le_bytes());
            }
        }
        let apex_at = self.order[0];
        let soa = self
            .node(apex_at)
            .rrset(qtype::SOA)
            .map(|soa| soa_times(soa.body(false)));
        let is_signed = self.node(apex_at).rrset(qtype::NSEC).is_some();
        let denial = match chain {
            Some(chain) => Denial::Nsec3(chain),
            None if is_signed => Denial::Nsec(std::mem::take(&mut self.nsec).into()),
            None => Denial::Unsigned,
        };
        let zone = Zone {
            apex: builder.apex.clone(),
            apex_at,
            labels_max: self.labels_max,
            arena: self.arena.into(),
            table,
            order: self.order.into(),
            denial,
            negative_soa_at,
            strays: strays.into(),
            soa: soa.unwrap_or_default(),
            records: self.records,
        };
        let mut warnings = self.warnings;
        zone.check_servers(&mut warnings);
        Ok((zone, warnings))
    }
}

impl Zone {
    /// Warns of name servers that cannot be reached, and of a signed zone that proves nothing.
    fn check_servers(&self, warnings: &mut Vec<Warning>) {
        let apex = self.node(self.apex_at);
        if apex.rrset(qtype::DNSKEY).is_some() && !self.is_signed() {
            warnings.push(Warning::NoChain { apex: self.apex() });
        }
        for at in &self.order {
            let node = self.node(*at);
            let own = *at == self.apex_at || node.has(DELEGATION);
            let Some(servers) = node.rrset(qtype::NS).filter(|_| own) else {
                continue;
            };
            for target in list::without_address(node.name(), servers) {
                let owner = name_of(node.name());
                if *at == self.apex_at {
                    warnings.push(Warning::MissingAddress { owner, target });
                } else if names::is_within(
                    &target.as_name().as_bytes().to_ascii_lowercase(),
                    node.name(),
                ) {
                    warnings.push(Warning::MissingGlue { owner, target });
                }
            }
            if warnings.len() >= WARNINGS_MAX {
                return;
            }
        }
    }
}

/// The records of each type, its signatures behind them; signatures of nothing are left out.
fn groups<'g, 'r>(records: &'g [Sorted<'r>]) -> impl Iterator<Item = &'g [Sorted<'r>]> {
    let groups = records.chunk_by(|one, other| one.kind == other.kind);
    groups.filter(|group| !group[0].is_signature)
}

fn error_of(fault: Fault, owner: &[u8], kind: u16) -> ZoneError {
    let owner = name_of(owner);
    match fault {
        Fault::Data => ZoneError::BadData { owner, kind },
        Fault::Length(octets) => ZoneError::RrsetTooLong {
            owner,
            kind,
            octets,
        },
    }
}
