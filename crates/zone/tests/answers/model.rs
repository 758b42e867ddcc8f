//! A server that is obviously right: lists that are searched from one end to the other, in the words of the standards.

use super::generate::Question;
use super::read::{Message, Read};
use super::sign::{base32hex, canonical, hash, parent, path};
use wire::codes::qtype::{
    A, AAAA, ANY, CNAME, DNAME, DS, MX, NS, NSEC, NSEC3, NSEC3PARAM, RRSIG, SOA, SVCB,
};
use zone::answer::ALIASES_MAX;
use zone::record::Record;

pub(crate) struct Model<'s> {
    zones: Vec<Zone<'s>>,
}

struct Zone<'s> {
    apex: &'s [u8],
    records: &'s [Record],
}

/// What is to be said of the last name of a chain in the additional section.
struct Extra<'z> {
    zone: &'z Zone<'z>,
    records: Vec<&'z Record>,
    owner: Vec<u8>,
}

impl<'s> Model<'s> {
    pub(crate) fn new(zones: &'s [(Vec<u8>, Vec<Record>)]) -> Model<'s> {
        let zones = zones.iter().map(|(apex, records)| Zone { apex, records });
        Model {
            zones: zones.collect(),
        }
    }

    /// RFC 1034 §4.3.2 step 2: "the zone which is the nearest ancestor to QNAME"; for DS the one above (RFC 4035
    /// §3.1.4.1).
    fn zone(&self, name: &[u8], kind: u16) -> Option<&Zone<'s>> {
        let around = |zone: &&Zone<'s>| within(name, zone.apex);
        let mut around: Vec<&Zone<'s>> = self.zones.iter().filter(around).collect();
        around.sort_by_key(|zone| zone.apex.len());
        let own = around.pop()?;
        match around.pop() {
            // What refers to a zone between the two is not the parent.
            Some(above) if kind == DS && own.apex == name && !above.refers_above(name) => {
                Some(above)
            }
            _ => Some(own),
        }
    }

    pub(crate) fn answer(&self, question: &Question) -> Option<Message> {
        let mut message = Message {
            authoritative: true,
            ..Message::default()
        };
        let mut name = question.name.to_ascii_lowercase();
        let mut zone = self.zone(&name, question.kind)?;
        let mut seen = Vec::new();
        let mut expanded = Vec::new();
        let mut extra = None;
        loop {
            let last = seen.len() == ALIASES_MAX || seen.contains(&name);
            seen.push(name.clone());
            let mut step = Step {
                zone,
                question,
                message: &mut message,
                expanded: &mut expanded,
            };
            let end = step.take(&name, last);
            match end {
                End::Done(found) => {
                    extra = found;
                    break;
                }
                End::Alias(target) => name = target,
            }
            match self.zone(&name, question.kind) {
                Some(next) => zone = next,
                None => break,
            }
        }
        if question.signed {
            for (zone, name) in expanded {
                zone.prove_expansion(&name, &mut message.authority);
            }
        }
        if let Some(extra) = extra {
            extra.add(question.signed, &mut message.additional);
        }
        message.sort();
        message.answer.dedup();
        message.authority.dedup();
        Some(message)
    }
}

enum End<'z> {
    Done(Option<Extra<'z>>),
    Alias(Vec<u8>),
}

struct Step<'q, 'z, 's> {
    zone: &'z Zone<'s>,
    question: &'q Question,
    message: &'q mut Message,
    expanded: &'q mut Vec<(&'z Zone<'s>, Vec<u8>)>,
}

impl<'z, 's: 'z> Step<'_, 'z, 's> {
    fn signed(&self) -> bool {
        self.question.signed
    }

    /// RFC 1034 §4.3.2 step 3: "Start matching down, label by label, in the zone."
    fn take(&mut self, name: &[u8], last: bool) -> End<'z> {
        let zone = self.zone;
        for above in path(name, zone.apex) {
            let is_cut = above != zone.apex && zone.has(above, NS);
            if is_cut && !(above == name && self.question.kind == DS) {
                return self.refer(above);
            }
            if above != name && zone.has(above, DNAME) {
                return self.redirect(above, name, last);
            }
            if is_cut {
                break;
            }
        }
        if zone.exists(name) {
            return self.give(name, name, last);
        }
        let wildcard = zone.source(name);
        if zone.exists(&wildcard) {
            return self.give(&wildcard, name, last);
        }
        self.message.rcode = 3;
        self.put_soa();
        if self.signed() {
            zone.prove_no_name(name, &mut self.message.authority);
        }
        End::Done(None)
    }

    /// What `source`, the name itself or a wildcard, has for `name`.
    fn give(&mut self, source: &[u8], name: &[u8], last: bool) -> End<'z> {
        let zone = self.zone;
        let kind = match self.question.kind {
            ANY => zone.smallest(source, |kind| kind != NSEC),
            RRSIG => None,
            kind => Some(kind),
        };
        let rrset = kind
            .map(|kind| zone.rrset(source, kind))
            .unwrap_or_default();
        let of_signature = (self.question.kind == RRSIG)
            .then(|| zone.smallest_signatures(source))
            .flatten();
        if let Some(kind) = of_signature {
            self.expand(source, name);
            zone.put_signatures(source, name, kind, &mut self.message.answer);
            return End::Done(None);
        }
        if !rrset.is_empty() {
            self.expand(source, name);
            zone.put(
                source,
                name,
                rrset[0].kind,
                self.signed(),
                &mut self.message.answer,
            );
            return End::Done(Some(Extra {
                zone,
                records: rrset,
                owner: name.to_vec(),
            }));
        }
        if let [alias] = zone.rrset(source, CNAME)[..] {
            self.expand(source, name);
            if last {
                return End::Done(None);
            }
            zone.put(source, name, CNAME, self.signed(), &mut self.message.answer);
            return End::Alias(alias.rdata.to_ascii_lowercase());
        }
        self.put_soa();
        if self.signed() {
            let authority = &mut self.message.authority;
            if source != name {
                match zone.is_nsec() {
                    true => zone.prove_expansion(name, authority),
                    false => zone.prove_encloser(name, authority),
                }
            }
            zone.prove_no_data(source, authority);
        }
        End::Done(None)
    }

    fn expand(&mut self, source: &[u8], name: &[u8]) {
        if source != name {
            self.expanded.push((self.zone, name.to_vec()));
        }
    }

    fn put_soa(&mut self) {
        let zone = self.zone;
        let mut records = Vec::new();
        zone.put(zone.apex, zone.apex, SOA, self.signed(), &mut records);
        // RFC 2308 §5: the lower of the MINIMUM field and the TTL.
        for record in &mut records {
            record.ttl = 60;
        }
        self.message.authority.extend(records);
    }

    fn refer(&mut self, cut: &[u8]) -> End<'z> {
        let zone = self.zone;
        self.message.authoritative = !self.message.answer.is_empty();
        zone.put(cut, cut, NS, false, &mut self.message.authority);
        if self.signed() && (zone.is_nsec() || zone.parameters().is_some()) {
            match zone.has(cut, DS) {
                true => zone.put(cut, cut, DS, true, &mut self.message.authority),
                false => zone.prove_no_data(cut, &mut self.message.authority),
            }
        }
        let records = zone.rrset(cut, NS);
        End::Done(Some(Extra {
            zone,
            records,
            owner: cut.to_vec(),
        }))
    }

    /// RFC 6672 §3.2 step 3c.
    fn redirect(&mut self, owner: &[u8], name: &[u8], last: bool) -> End<'z> {
        if last {
            return End::Done(None);
        }
        let redirection = self.zone.rrset(owner, DNAME)[0];
        self.zone
            .put(owner, owner, DNAME, self.signed(), &mut self.message.answer);
        let target = [&name[..name.len() - owner.len()], &redirection.rdata].concat();
        if target.len() > 255 {
            self.message.rcode = 6;
            return End::Done(None);
        }
        self.message.answer.push(Read {
            owner: name.to_vec(),
            kind: CNAME,
            ttl: redirection.ttl,
            data: target.clone(),
        });
        if [CNAME, ANY].contains(&self.question.kind) {
            return End::Done(None);
        }
        End::Alias(target)
    }
}

impl<'s> Zone<'s> {
    fn tree(&self) -> impl Iterator<Item = &'s Record> {
        // NSEC3 records are no names of the tree.
        let of_chain = |record: &&Record| {
            record.kind == NSEC3 || record.kind == RRSIG && covered(record) == NSEC3
        };
        self.records.iter().filter(move |record| !of_chain(record))
    }

    /// RFC 4592 §2.2.3: a name exists that has records, or a name below it has.
    fn exists(&self, name: &[u8]) -> bool {
        self.tree().any(|record| within(&record.owner, name))
    }

    fn rrset(&self, name: &[u8], kind: u16) -> Vec<&'s Record> {
        let records = self.records.iter();
        records
            .filter(|record| *record.owner == *name && record.kind == kind)
            .collect()
    }

    fn has(&self, name: &[u8], kind: u16) -> bool {
        !self.rrset(name, kind).is_empty()
    }

    /// Whether this zone ends with a delegation above `name`.
    fn refers_above(&self, name: &[u8]) -> bool {
        for above in path(name, self.apex) {
            if above == name {
                return false;
            }
            if above != self.apex && self.has(above, NS) {
                return true;
            }
            if self.has(above, DNAME) {
                return false;
            }
        }
        false
    }

    fn signatures(&self, name: &[u8], kind: u16) -> Vec<&'s Record> {
        let records = self.rrset(name, RRSIG).into_iter();
        records.filter(|record| covered(record) == kind).collect()
    }

    /// RFC 4592 §3.3.1: "the closest encloser is the node in the zone's tree of existing domain names that has the most
    /// labels matching the query name".
    fn encloser<'n>(&self, name: &'n [u8]) -> &'n [u8] {
        let path = path(name, self.apex);
        path.into_iter()
            .rev()
            .find(|above| *above != name && self.exists(above))
            .expect("the apex exists")
    }

    /// Where the records of a name are: at the name, or else at the wildcard that stands for it if there is one.
    fn source(&self, name: &[u8]) -> Vec<u8> {
        match self.exists(name) {
            true => name.to_vec(),
            false => [b"\x01*", self.encloser(name)].concat(),
        }
    }

    fn kinds(&self, name: &[u8]) -> Vec<u16> {
        let records = self
            .tree()
            .filter(|record| *record.owner == *name && record.kind != RRSIG);
        let mut kinds: Vec<u16> = records.map(|record| record.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// RFC 8482 §4.1 leaves the choice to the server: ours is the one with the fewest octets, as it compresses them.
    fn smallest(&self, name: &[u8], wanted: impl Fn(u16) -> bool) -> Option<u16> {
        let kinds = self.kinds(name).into_iter().filter(|kind| wanted(*kind));
        kinds.min_by_key(|kind| {
            let records = self.rrset(name, *kind).len() * 12;
            let signatures = self
                .signatures(name, *kind)
                .into_iter()
                .map(|record| 12 + record.rdata.len());
            records + signatures.sum::<usize>() + compressed(name, &self.rrset(name, *kind))
        })
    }

    fn smallest_signatures(&self, name: &[u8]) -> Option<u16> {
        let kinds = self.kinds(name).into_iter();
        kinds
            .filter(|kind| !self.signatures(name, *kind).is_empty())
            .min_by_key(|kind| {
                self.signatures(name, *kind)
                    .into_iter()
                    .map(|record| record.rdata.len())
                    .sum::<usize>()
            })
    }

    fn put(&self, source: &[u8], name: &[u8], kind: u16, signed: bool, section: &mut Vec<Read>) {
        section.extend(
            self.rrset(source, kind)
                .into_iter()
                .map(|record| read(record, name)),
        );
        if signed {
            self.put_signatures(source, name, kind, section);
        }
    }

    fn put_signatures(&self, source: &[u8], name: &[u8], kind: u16, section: &mut Vec<Read>) {
        section.extend(
            self.signatures(source, kind)
                .into_iter()
                .map(|record| read(record, name)),
        );
    }

    // ------------------------------------------------------------------------------------------- proofs

    fn is_nsec(&self) -> bool {
        self.has(self.apex, NSEC)
    }

    fn put_proof(&self, owner: &[u8], kind: u16, section: &mut Vec<Read>) {
        self.put(owner, owner, kind, true, section);
    }

    /// The NSEC record whose owner is the last that is not behind `name`.
    fn put_nsec(&self, name: &[u8], section: &mut Vec<Read>) {
        let records = self.records.iter().filter(|record| record.kind == NSEC);
        let before = records.filter(|record| canonical(&record.owner) <= canonical(name));
        if let Some(record) = before.max_by_key(|record| canonical(&record.owner)) {
            self.put_proof(&record.owner, NSEC, section);
        }
    }

    fn parameters(&self) -> Option<(u16, &'s [u8])> {
        let parameters = self.rrset(self.apex, NSEC3PARAM);
        let data = &parameters.first()?.rdata;
        Some((u16::from_be_bytes([data[2], data[3]]), &data[5..]))
    }

    fn hash_owner(&self, name: &[u8]) -> Vec<u8> {
        let (iterations, salt) = self.parameters().expect("a hashed zone");
        [
            &[32][..],
            &base32hex(&hash(name, iterations, salt)),
            self.apex,
        ]
        .concat()
    }

    fn matches(&self, name: &[u8]) -> bool {
        self.has(&self.hash_owner(name), NSEC3)
    }

    fn put_match(&self, name: &[u8], section: &mut Vec<Read>) {
        self.put_proof(&self.hash_owner(name), NSEC3, section);
    }

    /// The record that matches or covers a name: base32hex sorts as its octets do.
    fn put_cover(&self, name: &[u8], section: &mut Vec<Read>) {
        let wanted = self.hash_owner(name);
        let mut owners: Vec<&Record> = self
            .records
            .iter()
            .filter(|record| record.kind == NSEC3)
            .collect();
        owners.sort_by_key(|record| record.owner.clone());
        let before = owners.iter().rev().find(|record| *record.owner <= *wanted);
        if let Some(record) = before.or(owners.last()) {
            self.put_proof(&record.owner, NSEC3, section);
        }
    }

    /// RFC 5155 §7.2.1, with the closest encloser that an NSEC3 record matches; it is returned.
    fn prove_provable<'n>(
        &self,
        name: &'n [u8],
        encloser: &'n [u8],
        section: &mut Vec<Read>,
    ) -> &'n [u8] {
        let path = path(encloser, self.apex);
        let provable = path.into_iter().rev().find(|above| self.matches(above));
        let provable = provable.expect("the apex is in the chain");
        self.put_match(provable, section);
        self.put_cover(next_closer(name, provable), section);
        provable
    }

    fn prove_no_data(&self, name: &[u8], section: &mut Vec<Read>) {
        if self.is_nsec() {
            self.put_nsec(name, section);
        } else if self.parameters().is_some() {
            match self.matches(name) {
                true => self.put_match(name, section),
                false => drop(self.prove_provable(name, parent(name), section)),
            }
        }
    }

    fn prove_no_name(&self, name: &[u8], section: &mut Vec<Read>) {
        let encloser = self.encloser(name);
        if self.is_nsec() {
            self.put_nsec(name, section);
            self.put_nsec(&[b"\x01*", encloser].concat(), section);
        } else if self.parameters().is_some() {
            let provable = self.prove_provable(name, encloser, section);
            self.put_cover(&[b"\x01*", provable].concat(), section);
        }
    }

    fn prove_encloser(&self, name: &[u8], section: &mut Vec<Read>) {
        if self.parameters().is_some() {
            self.prove_provable(name, self.encloser(name), section);
        }
    }

    fn prove_expansion(&self, name: &[u8], section: &mut Vec<Read>) {
        if self.is_nsec() {
            self.put_nsec(name, section);
        } else if self.parameters().is_some() {
            self.put_cover(next_closer(name, self.encloser(name)), section);
        }
    }

    /// RFC 6672 §2.4: names below a DNAME "will be occluded". Those below a delegation are that one's.
    fn is_redirected(&self, name: &[u8]) -> bool {
        for above in path(name, self.apex) {
            if above != self.apex && self.has(above, NS) {
                return false;
            }
            if above != name && self.has(above, DNAME) {
                return true;
            }
        }
        false
    }

    /// Whether a name is below a delegation or a DNAME, or a delegation.
    fn is_hidden(&self, name: &[u8]) -> bool {
        path(name, self.apex).into_iter().any(|above| {
            above != self.apex && self.has(above, NS) || above != name && self.has(above, DNAME)
        })
    }
}

impl Extra<'_> {
    fn add(&self, signed: bool, section: &mut Vec<Read>) {
        let kind = self.records[0].kind;
        for record in &self.records {
            let target = match kind {
                NS => &record.rdata[..],
                MX => &record.rdata[2..],
                SVCB if record.rdata[2..] == [0] && record.rdata[..2] != [0, 0] => {
                    &self.records[0].owner
                }
                SVCB => &record.rdata[2..],
                _ => continue,
            };
            let owner = if kind == SVCB && record.rdata[2..] == [0] {
                &self.owner[..]
            } else {
                target
            };
            let is_unseen = |target: &[u8]| match kind {
                NS => self.zone.is_redirected(target),
                _ => self.zone.is_hidden(target),
            };
            if !within(target, self.zone.apex) || is_unseen(target) {
                continue;
            }
            let source = self.zone.source(target);
            if *source != *target && self.zone.is_hidden(target) {
                continue;
            }
            for address in [A, AAAA] {
                self.zone.put(&source, owner, address, signed, section);
            }
            // RFC 9460 §4.1: "A, AAAA, and SVCB records".
            if kind == SVCB && *source != *self.records[0].owner {
                self.zone.put(&source, owner, SVCB, signed, section);
            }
        }
        section.sort();
        section.dedup();
    }
}

fn next_closer<'n>(name: &'n [u8], encloser: &[u8]) -> &'n [u8] {
    let mut next_closer = name;
    while parent(next_closer) != encloser {
        next_closer = parent(next_closer);
    }
    next_closer
}

fn within(name: &[u8], apex: &[u8]) -> bool {
    let mut name = name;
    loop {
        if name == apex {
            return true;
        }
        if name[0] == 0 {
            return false;
        }
        name = parent(name);
    }
}

fn covered(record: &Record) -> u16 {
    u16::from_be_bytes([record.rdata[0], record.rdata[1]])
}

fn read(record: &Record, owner: &[u8]) -> Read {
    Read {
        owner: owner.to_vec(),
        kind: record.kind,
        ttl: record.ttl,
        data: record.rdata.to_vec(),
    }
}

/// Octets of the data of an RRset whose names point to the owner's, or to one before.
fn compressed(owner: &[u8], records: &[&Record]) -> usize {
    let mut known: Vec<Vec<u8>> = Vec::new();
    let mut suffix = owner;
    let is_wildcard = owner.starts_with(b"\x01*");
    while suffix[0] != 0 {
        if !(is_wildcard && suffix == owner) {
            known.push(suffix.to_vec());
        }
        suffix = parent(suffix);
    }
    let mut sorted = records.to_vec();
    sorted.sort_by_key(|record| record.rdata.clone());
    let mut octets = 0;
    for record in sorted {
        let (mut name, rest) = match record.kind {
            NS | CNAME => (&record.rdata[..], 0),
            MX => (&record.rdata[2..], 2),
            SOA => {
                // Both names are the apex, which is the owner.
                octets += 4 + 20;
                continue;
            }
            _ => {
                octets += record.rdata.len();
                continue;
            }
        };
        octets += rest;
        let mut new = Vec::new();
        while name[0] != 0 && !known.contains(&name.to_vec()) {
            octets += 1 + usize::from(name[0]);
            new.push(name.to_vec());
            name = parent(name);
        }
        octets += if name[0] == 0 { 1 } else { 2 };
        known.extend(new);
    }
    octets
}
