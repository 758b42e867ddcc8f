//! Encodes a zone that was gathered: NSEC3 records, names with their RRsets, and what is found by them.

use super::{Owner, WARNINGS_MAX, ZoneBuilder, name_of};
use crate::zone::case::Cases;
use crate::zone::check::Target;
use crate::zone::encode::encode_hash;
use crate::zone::encode::{self, Fault, Sorted, Source, Wanted};
use crate::zone::fault::{Warning, ZoneError};
use crate::zone::nsec3::{Chain, Hashed, Parameters, Proofs};
use crate::zone::overlay::Overlay;
use crate::zone::parts::{
    Arena, CHOICES_LENGTH, DEEP, DELEGATION, DNAME, FEW_RRSETS, LABEL_LENGTH, NODE_HEADER_LENGTH,
    NONE, Node, OPTED_OUT, PROOF_LABEL_AT, RECORD_HEADER_LENGTH, RRSET_HEADER_LENGTH, choices,
    u16_at,
};
use crate::zone::proofs::Proving;
use crate::zone::table::Table;
use crate::zone::{Base, Denial, Zone, list, names, rdata, soa_times};
use std::sync::Arc;
use wire::codes::qtype;

/// Octets of a cache line.
const LINE: usize = 64;
/// So many octets at most are left free before a name: a line less is not worth memory without end.
const GAP_MAX: usize = 16;

/// Octets to be left free at the place `end`, so that the next `octets` lie in one line less than they would there.
fn gap(end: usize, octets: usize) -> usize {
    let free = end.next_multiple_of(LINE) - end;
    let lines_from = |start: usize| (start + octets).div_ceil(LINE);
    match free <= GAP_MAX && lines_from(end % LINE) > lines_from(0) {
        true => free,
        false => 0,
    }
}

/// What those below a name have to know of it.
#[derive(Clone, Copy)]
pub(super) struct Above {
    at: u32,
    /// The zone cut or DNAME that they are below.
    cut: u32,
    is_delegation: bool,
}

impl Above {
    /// What a name of a base says.
    pub(super) fn of(node: Node<'_>) -> Above {
        let cut = match node.has(DNAME) {
            true => Some(node),
            false => node.cut(),
        };
        Above {
            at: node.at,
            cut: cut.map_or(NONE, |cut| cut.at),
            is_delegation: cut.is_some_and(|cut| cut.has(DELEGATION)),
        }
    }
}

/// The names above the one that is being encoded, this one last: in canonical order they come before it.
struct Ancestor<'b> {
    name: &'b [u8],
    above: Above,
    proofs: Proofs,
}

/// The arena as it grows.
pub(super) struct Assembly<'b> {
    builder: &'b ZoneBuilder,
    pub(super) arena: Vec<u8>,
    /// What places in the arena begin with.
    origin: usize,
    pub(super) order: Vec<u32>,
    pub(super) nsec: Vec<u32>,
    dangling: Vec<u32>,
    pub(super) wanted: Wanted,
    pub(super) cases: Cases,
    pub(super) warnings: Vec<Warning>,
    pub(super) labels_max: usize,
    pub(super) records: u64,
}

impl<'b> Assembly<'b> {
    pub(super) fn new(builder: &'b ZoneBuilder, origin: usize) -> Assembly<'b> {
        let owners = builder.tree.list.len() + builder.hashes.list.len();
        let room = builder.octets.len() + builder.records.len() * 12 + owners * 56;
        Assembly {
            builder,
            arena: Vec::with_capacity(room),
            origin,
            order: Vec::with_capacity(builder.tree.list.len()),
            nsec: Vec::new(),
            dangling: Vec::new(),
            wanted: Wanted::default(),
            cases: Cases::default(),
            warnings: builder.warnings.clone(),
            labels_max: 0,
            records: 0,
        }
    }

    /// Where the next octets go.
    pub(super) fn next_at(&self) -> u32 {
        (self.origin + self.arena.len()) as u32
    }

    /// Notes how the name was written whose node, or whose NSEC3 record's body, comes next.
    pub(super) fn note_owner(&mut self, owner: Owner) {
        let builder = self.builder;
        if let Some(written) = builder.written(owner) {
            let name = builder.name(owner);
            let place = self.next_at();
            self.cases.note(place, name.iter(), written.iter());
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
        let mut strays = Vec::new();
        let chain = self.encode_proofs(parameters.as_ref(), &mut strays)?.0;
        let chain = parameters.map(|parameters| self.chain(parameters, &chain, &mut strays));
        if let Some(first) = strays.first() {
            let apex = &self.builder.apex;
            let label = &self.arena[*first as usize + PROOF_LABEL_AT..][..LABEL_LENGTH];
            let warning = Warning::StrayNsec3 {
                apex: name_of(apex),
                first: name_of(&[label, apex].concat()),
                count: strays.len(),
            };
            self.warn(|| warning);
        }
        Ok((chain.flatten(), strays))
    }

    /// Encodes the NSEC3 records: hashes and places of those with these parameters, ascending; and how many were left out,
    /// being none.
    pub(super) fn encode_proofs(
        &mut self,
        parameters: Option<&Parameters>,
        strays: &mut Vec<u32>,
    ) -> Result<(Vec<Hashed>, usize), ZoneError> {
        let builder = self.builder;
        let (mut chain, mut left_out) = (Vec::new(), 0);
        let mut records = Vec::new();
        for owner in &builder.hashes.list {
            let name = builder.name(*owner);
            builder.records_of(*owner, &mut records);
            let signed = records.first().is_some_and(|record| !record.is_signature);
            let Some(hash) = list::hash_of(name, &builder.apex).filter(|_| signed) else {
                left_out += 1;
                self.warn(|| Warning::StrayNsec3 {
                    apex: name_of(&builder.apex),
                    first: name_of(name),
                    count: 1,
                });
                continue;
            };
            let place = self.next_at();
            let header_at = self.arena.len();
            self.arena.extend([0; RRSET_HEADER_LENGTH]);
            debug_assert_eq!(header_at + PROOF_LABEL_AT, self.arena.len());
            self.arena.extend(encode_hash(&hash));
            self.note_owner(*owner);
            self.rrset(name, header_at, &records)?;
            let own = Parameters::read(records[0].data);
            if own.is_some() && own.as_ref() == parameters {
                chain.push((hash, place));
            } else {
                strays.push(place);
            }
        }
        chain.sort_unstable();
        Ok((chain, left_out))
    }

    /// A chain, if it has the apex.
    fn chain(
        &self,
        parameters: Parameters,
        records: &[Hashed],
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
        let mut above: Vec<Ancestor<'_>> = Vec::new();
        let mut records = Vec::new();
        for owner in order {
            let name = builder.name(*owner);
            while above
                .last()
                .is_some_and(|ancestor| !names::is_within(name, ancestor.name))
            {
                above.pop();
            }
            builder.records_of(*owner, &mut records);
            let parent = above.last().map(|parent| parent.above);
            let proofs = |assembly: &Self, delegation| {
                let arena = &assembly.arena;
                let proving = chain.map(|chain| Proving::new(chain, arena));
                proving.map_or(Proofs::NONE, |proving| {
                    proofs_of(proving, name, delegation, &above)
                })
            };
            self.align(name, &records);
            self.note_owner(*owner);
            let (own, proofs) = self.encode_node(name, &records, (parent, NONE), proofs)?;
            above.push(Ancestor {
                name,
                above: own,
                proofs,
            });
        }
        Ok(())
    }

    /// Has the next name, with these records, begin at a cache line where it would otherwise lie in one line more than it must, up
    /// to the records of its first RRset: each line is a wait for memory, and [`ahead`](crate::answer::ahead) asks for as few as
    /// there must be. Lines are those of the place where the octets lie now: what is large enough for this to count stays at the
    /// same place of a page wherever it goes.
    fn align(&mut self, name: &[u8], records: &[Sorted<'_>]) {
        let headers = NODE_HEADER_LENGTH + groups(records).count() * RRSET_HEADER_LENGTH;
        let first = groups(records).next().unwrap_or_default().iter();
        let first = first.take_while(|record| !record.is_signature);
        let body = first.map(|record| RECORD_HEADER_LENGTH + record.data.len());
        let octets = headers + name.len() + body.sum::<usize>();
        let end = self.arena.as_ptr().addr() + self.arena.len();
        self.arena.resize(self.arena.len() + gap(end, octets), 0);
    }

    fn node(&self, at: u32) -> Node<'_> {
        Node::new(Arena::new(&self.arena, None), at)
    }

    /// Encodes a name and its RRsets, below another one or the apex, above this wildcard. `proofs` tells what proves things
    /// about it, if that is any of the zone's.
    pub(super) fn encode_node(
        &mut self,
        name: &[u8],
        records: &[Sorted<'_>],
        (parent, wildcard): (Option<Above>, u32),
        proofs: impl FnOnce(&Self, bool) -> Proofs,
    ) -> Result<(Above, Proofs), ZoneError> {
        let is_apex = name.len() == self.builder.apex.len();
        let at = self.next_at();
        let has = |kind| {
            records
                .iter()
                .any(|record| (record.kind, record.is_signature) == (kind, false))
        };
        let cut_above = parent.map_or(NONE, |parent| parent.cut);
        let delegation = cut_above == NONE && !is_apex && has(qtype::NS);
        let redirects = cut_above == NONE && !delegation && has(qtype::DNAME);
        let cut = if delegation { at } else { cut_above };
        let below_delegation = parent.is_some_and(|parent| parent.is_delegation);
        self.check_node(
            name,
            records,
            delegation,
            (cut_above != NONE, below_delegation),
        )?;
        let proofs = match cut_above {
            NONE => proofs(self, delegation),
            _ => Proofs::NONE,
        };
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(delegation, DELEGATION)
            | flag(redirects, DNAME)
            | flag(proofs.opted_out, OPTED_OUT)
            | flag(proofs.is_deep, DEEP);
        let numbers = [cut, wildcard, proofs.first, proofs.second];
        self.push_node(name, records, numbers, flags)?;
        self.note_wildcard(name, parent, at);
        if cut_above == NONE && has(qtype::NSEC) {
            self.nsec.push(at);
        }
        self.order.push(at);
        self.labels_max = self.labels_max.max(names::labels(name));
        if u32::try_from(self.origin + self.arena.len()).is_err() {
            return Err(ZoneError::TooLarge {
                apex: name_of(&self.builder.apex),
            });
        }
        let above = Above {
            at,
            cut: if redirects { at } else { cut },
            is_delegation: delegation || below_delegation,
        };
        Ok((above, proofs))
    }

    /// Writes a wildcard down at the name above, if that is encoded here.
    fn note_wildcard(&mut self, name: &[u8], parent: Option<Above>, at: u32) {
        let place = parent
            .filter(|_| name.starts_with(b"\x01*"))
            .and_then(|parent| (parent.at as usize).checked_sub(self.origin));
        if let Some(place) = place {
            self.arena[place + 4..place + 8].copy_from_slice(&at.to_le_bytes());
        }
    }

    /// The octets of a name and its RRsets.
    pub(super) fn push_node(
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
        let headers_end = headers_at + count * RRSET_HEADER_LENGTH;
        let is_many = count > FEW_RRSETS;
        let choices_length = if is_many { CHOICES_LENGTH } else { 0 };
        self.arena.resize(headers_end + choices_length, 0);
        for (number, group) in groups(records).enumerate() {
            self.rrset(name, headers_at + number * RRSET_HEADER_LENGTH, group)?;
        }
        if is_many {
            let choices = choices(&self.arena[headers_at..headers_end]);
            self.arena[headers_end..headers_end + CHOICES_LENGTH].copy_from_slice(&choices);
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
        let (records, signatures) =
            group.split_at(group.partition_point(|record| !record.is_signature));
        let ttl = records.iter().map(|record| record.ttl).min().unwrap_or(0);
        if records.iter().any(|record| record.ttl != ttl) {
            self.warn(|| Warning::TtlsDiffer {
                owner: name_of(owner),
                kind,
            });
        }
        self.records += group.len() as u64;
        let source = Source {
            owner,
            kind,
            ttl,
            records,
            signatures,
        };
        let apex = &self.builder.apex;
        let (at, places) = (self.arena.len(), (self.origin, header_at));
        encode::encode(&mut self.arena, places, &source, apex, &mut self.wanted)
            .map_err(|fault| error_of(fault, owner, kind))?;
        let is_cased = |record: &Sorted<'_>| record.data.iter().any(u8::is_ascii_uppercase);
        if rdata::compressible(kind).is_some() && records.iter().any(is_cased) {
            self.note_data(&source, at, header_at);
        }
        Ok(())
    }

    /// Notes how the names were written in the data of the RRset whose body is at `at`: a pointer leads to a name that may be
    /// written otherwise.
    fn note_data(&mut self, source: &Source<'_>, at: usize, header_at: usize) {
        let length = usize::from(u16_at(&self.arena, header_at + 8));
        let body = &self.arena[at..at + length];
        let shown = list::listed(
            source.owner,
            source.owner,
            body,
            source.records.len() as u16,
        );
        let shown = shown.iter().flat_map(|record| record.rdata.iter());
        let written = source.records.iter().flat_map(|record| record.data);
        let place = (self.origin + at) as u32;
        self.cases.note(place, shown, written);
    }

    // ----------------------------------------------------------------------------------------- checks

    fn check_node(
        &mut self,
        name: &[u8],
        records: &[Sorted<'_>],
        delegation: bool,
        (is_below, below_delegation): (bool, bool),
    ) -> Result<(), ZoneError> {
        if let Some(error) = node_error(name, records, &self.builder.apex) {
            return Err(error);
        }
        let owner = || name_of(name);
        let has_ds = count(records, qtype::DS) > 0;
        if name.len() == self.builder.apex.len() {
            if has_ds {
                self.warn(|| Warning::DsAtApex { apex: owner() });
            }
        } else if has_ds && !delegation {
            self.warn(|| Warning::DsWithoutNs { owner: owner() });
        }
        if delegation || is_below {
            self.check_below(name, records, delegation, below_delegation);
        }
        for group in by_kind(records).filter(|group| group[0].is_signature) {
            self.warn(|| Warning::SignatureOfNothing {
                owner: owner(),
                kind: group[0].kind,
            });
        }
        Ok(())
    }

    /// Warns of what nobody sees at a delegation, below it, or below a DNAME.
    fn check_below(
        &mut self,
        name: &[u8],
        records: &[Sorted<'_>],
        delegation: bool,
        below_delegation: bool,
    ) {
        let mut records = records
            .iter()
            .filter(|record| !record.is_signature)
            .peekable();
        if !delegation && !below_delegation {
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
        let apex = builder.owner(&builder.apex);
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
        let (at, header_at) = (self.next_at(), self.arena.len());
        self.arena.extend([0; RRSET_HEADER_LENGTH]);
        self.rrset(&builder.apex, header_at, &records)?;
        self.records -= records.len() as u64;
        Ok(at)
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
        let table = self.table(&self.order);
        self.link(&table);
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
        let base = Base {
            apex: builder.apex.clone(),
            apex_at,
            arena: self.arena.into(),
            table,
            order: self.order.into(),
            denial,
            strays: strays.into(),
            dangling: self.dangling.into(),
            cases: self.cases.finished(),
            records: self.records,
        };
        let zone = Zone {
            apex: builder.apex.clone(),
            apex_at,
            labels_max: self.labels_max,
            negative_soa_at,
            soa: soa.unwrap_or_default(),
            records: self.records,
            base: Arc::new(base),
            over: None,
        };
        let mut warnings = self.warnings;
        zone.check_servers(&mut warnings);
        Ok((zone, warnings))
    }

    /// A table of nodes that are encoded here.
    pub(super) fn table(&self, nodes: &[u32]) -> Table {
        let named = nodes.iter().map(|at| {
            let node = self.node(*at - self.origin as u32);
            (*at, node.name())
        });
        Table::new(nodes.len(), named, self.builder.keys.clone())
    }

    /// Writes nodes where records want them.
    fn link(&mut self, table: &Table) {
        let mut order = self.order.iter().peekable();
        for (place, name) in self.wanted.each() {
            let arena = Arena::new(&self.arena, None);
            let hash = self.builder.keys.hash(name);
            if let Some(node) = table.find(arena, name, hash) {
                self.arena[place..place + 4].copy_from_slice(&node.to_le_bytes());
                continue;
            }
            // Both ascend: the owner is the last name that begins before.
            let mut owner = None;
            while let Some(at) = order.next_if(|at| (**at as usize) < place) {
                owner = Some(*at);
            }
            self.dangling.extend(owner);
        }
    }
}

/// The NSEC3 records that prove things about a name (RFC 5155 §7.2), those above it being known.
fn proofs_of(
    proving: Proving<'_>,
    name: &[u8],
    delegation: bool,
    above: &[Ancestor<'_>],
) -> Proofs {
    if let Some(own) = proving.own(name, delegation) {
        return own;
    }
    let encloser = above
        .iter()
        .rev()
        .find(|ancestor| !ancestor.proofs.opted_out);
    let Some(encloser) = encloser else {
        return Proofs::NONE;
    };
    let mut next_closer = name;
    while names::parent(next_closer).len() > encloser.name.len() {
        next_closer = names::parent(next_closer);
    }
    proving.opted_out(name, encloser.proofs.first, next_closer)
}

impl Zone {
    /// The zone `old` with another overlay, which has so many records in all.
    pub(super) fn amended(
        old: &Zone,
        over: Overlay,
        negative_soa_at: u32,
        (records, labels_max): (u64, usize),
    ) -> Zone {
        let base = &old.base;
        let gone = over.moved.keys().map(|at| base.node(at));
        let gone = gone.flat_map(|node| node.rrsets().map(|rrset| rrset.count(true)));
        let proofs = over.proofs.gone.numbers().filter_map(|number| {
            let (_, rrset) = old.proof(base.chain()?, number);
            Some(rrset.count(true))
        });
        let without: u64 = gone.chain(proofs).map(u64::from).sum();
        let mut zone = Zone {
            apex: old.apex.clone(),
            apex_at: over.order[0],
            labels_max: old.labels_max.max(labels_max),
            negative_soa_at,
            soa: old.soa,
            records: base.records - without + records,
            base: Arc::clone(base),
            over: Some(Box::new(over)),
        };
        let soa = zone.node(zone.apex_at).rrset(qtype::SOA);
        zone.soa = soa
            .map(|soa| soa_times(soa.body(false)))
            .unwrap_or_default();
        zone
    }

    /// Warns of name servers that cannot be reached, and of a signed zone that proves nothing.
    fn check_servers(&self, warnings: &mut Vec<Warning>) {
        let apex = self.node(self.apex_at);
        if apex.rrset(qtype::DNSKEY).is_some() && !self.is_signed() {
            warnings.push(Warning::NoChain { apex: self.apex() });
        }
        for at in &self.base.order {
            let node = self.node(*at);
            let own = *at == self.apex_at || node.has(DELEGATION);
            let Some(servers) = node.rrset(qtype::NS).filter(|_| own) else {
                continue;
            };
            for target in list::without_address(node.name(), servers) {
                let owner = name_of(node.name());
                let lowered = target.as_name().as_bytes().to_ascii_lowercase();
                if *at == self.apex_at {
                    // A wildcard may have them.
                    if !matches!(self.target(&lowered), Target::Addresses) {
                        warnings.push(Warning::MissingAddress { owner, target });
                    }
                } else if names::is_within(&lowered, node.name()) {
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
    by_kind(records).filter(|group| !group[0].is_signature)
}

/// The same with those. A record is first wherever one is there.
fn by_kind<'g, 'r>(records: &'g [Sorted<'r>]) -> impl Iterator<Item = &'g [Sorted<'r>]> {
    records.chunk_by(|one, other| one.kind == other.kind)
}

/// How many records of a type are among those of a name.
fn count(records: &[Sorted<'_>], kind: u16) -> usize {
    let wanted = |record: &&Sorted<'_>| (record.kind, record.is_signature) == (kind, false);
    records.iter().filter(wanted).count()
}

/// Why the records of a name cannot stand together.
pub(super) fn node_error(name: &[u8], records: &[Sorted<'_>], apex: &[u8]) -> Option<ZoneError> {
    for kind in [qtype::CNAME, qtype::DNAME] {
        let count = count(records, kind);
        if count > 1 {
            let owner = name_of(name);
            return Some(ZoneError::ManyAliases { owner, kind, count });
        }
    }
    // RFC 2181 §10.1: "An alias name (label of a CNAME record) may, if DNSSEC is in use, have SIG, NXT, and KEY RRs,
    // but may have no other data"; their successors are RRSIG and NSEC.
    let allowed = [qtype::CNAME, qtype::NSEC, qtype::KEY];
    let beside = records
        .iter()
        .find(|record| !record.is_signature && !allowed.contains(&record.kind));
    if let Some(beside) = beside.filter(|_| count(records, qtype::CNAME) > 0) {
        let (owner, kind) = (name_of(name), beside.kind);
        return Some(ZoneError::CnameBeside { owner, kind });
    }
    (name.len() == apex.len())
        .then(|| apex_error(records, apex))
        .flatten()
}

fn apex_error(records: &[Sorted<'_>], apex: &[u8]) -> Option<ZoneError> {
    let apex = name_of(apex);
    match (count(records, qtype::SOA), count(records, qtype::NS)) {
        (0, _) => Some(ZoneError::NoSoa { apex }),
        (1, 0) => Some(ZoneError::NoNameServers { apex }),
        (1, _) => None,
        (count, _) => Some(ZoneError::ManySoas { apex, count }),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_at_the_next_line_where_that_saves_a_line_and_is_near() {
        for (end, octets) in
            (0..LINE).flat_map(|end| (1..3 * LINE).map(move |octets| (end, octets)))
        {
            let lines = |start: usize| (start % LINE + octets).div_ceil(LINE);
            let start = end + gap(end, octets);
            assert!(start - end <= GAP_MAX, "{octets} at {end}");
            assert_eq!(start > end, lines(start) < lines(end), "{octets} at {end}");
            let is_near = end.next_multiple_of(LINE) - end <= GAP_MAX;
            let fewest = octets.div_ceil(LINE);
            assert!(lines(start) == fewest || !is_near, "{octets} at {end}");
        }
    }
}
