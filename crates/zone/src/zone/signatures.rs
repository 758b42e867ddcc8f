//! Verifies the signatures of a zone: dear, so only for whoever asks. What is seen without keys is in [`super::check`].
//!
//! RFC 4034 (§3.1: fields of RRSIG, §3.1.8.1: what is signed, §6: canonical form and order), 4035 (§2.2: what is signed,
//! §5.3: when a signature counts), 5011 (§2.1: revoked keys), 6840 (§5.1: names in lower case).

mod flaw;
mod keys;
#[cfg(test)]
mod tests;

pub use flaw::Flaw;

use super::check::{ODDITIES_MAX, data_of, is_of_child, is_ours, name_of};
use super::parts::{Node, Rrset, wire_u16};
use super::{Denial, Zone, list, names};
use crate::rdata;
use keys::Key;
use std::thread;
use wire::codes::{class, qtype};
use wire::name::Name;

impl Zone {
    /// What is wrong with its signatures, their times aside, in the order of names: at most a thousand errors and as many
    /// warnings; so many threads look. A signature takes tens of microseconds.
    ///
    /// # Panics
    /// Never: no look at a name does.
    #[must_use]
    pub fn flaws(&self, threads: usize) -> Vec<Flaw> {
        let keys = self.node(self.apex_at).rrset(qtype::DNSKEY).into_iter();
        let keys = keys.flat_map(|keys| data_of(keys.body(false)));
        let keys: Vec<Key> = keys.filter_map(Key::read).collect();
        if keys.is_empty() {
            return vec![Flaw::NoKeys { apex: self.apex() }];
        }
        let mut flaws = spread(&self.places(), threads, |places| {
            let mut look = Look::new(self, &keys);
            places.iter().for_each(|at| look.at_name(self.node(*at)));
            look.flaws
        });
        if let Denial::Nsec3(chain) = self.denial() {
            flaws.extend(spread(&self.proof_numbers(), threads, |numbers| {
                let mut look = Look::new(self, &keys);
                for number in numbers {
                    let (label, rrset) = self.proof(chain, *number);
                    look.at_rrset(&[&label[..], &self.apex].concat(), rrset);
                }
                look.flaws
            }));
        }
        let mut all = Vec::new();
        flaws.into_iter().for_each(|flaw| add(&mut all, flaw));
        all
    }
}

/// What `each` finds in the parts of a list, one a thread, in the list's order.
fn spread(list: &[u32], threads: usize, each: impl Fn(&[u32]) -> Vec<Flaw> + Sync) -> Vec<Flaw> {
    let length = list.len().div_ceil(threads.max(1)).max(1);
    let each = &each;
    thread::scope(|scope| {
        let parts: Vec<_> = list
            .chunks(length)
            .map(|part| scope.spawn(move || each(part)))
            .collect();
        parts
            .into_iter()
            .flat_map(|part| part.join().expect("no look at a name panics"))
            .collect()
    })
}

/// Adds what was found, or counts it where its like is there. Many warnings leave room for errors.
fn add(flaws: &mut Vec<Flaw>, flaw: Flaw) {
    if flaws.iter_mut().any(|known| known.count(&flaw)) {
        return;
    }
    let alike = |known: &&Flaw| known.is_error() == flaw.is_error();
    if flaws.iter().filter(alike).count() < ODDITIES_MAX {
        flaws.push(flaw);
    }
}

/// A look at one name after the other.
struct Look<'z> {
    zone: &'z Zone,
    keys: &'z [Key],
    flaws: Vec<Flaw>,
}

impl<'z> Look<'z> {
    fn new(zone: &'z Zone, keys: &'z [Key]) -> Look<'z> {
        let flaws = Vec::new();
        Look { zone, keys, flaws }
    }

    fn tell(&mut self, flaw: Flaw) {
        add(&mut self.flaws, flaw);
    }

    fn at_name(&mut self, node: Node<'z>) {
        let is_occluded = node.cut().is_some_and(|cut| cut.at != node.at);
        for rrset in node.rrsets() {
            let kind = rrset.kind;
            if !is_occluded && is_ours(node, kind) && !is_of_child(node, kind) {
                self.at_rrset(node.name(), rrset);
            } else if rrset.signatures > 0 {
                let owner = name_of(node.name());
                self.tell(Flaw::Needless { owner, kind });
            }
        }
    }

    /// Records that are to be signed; their owner in lower case.
    fn at_rrset(&mut self, owner: &[u8], rrset: Rrset<'_>) {
        let kind = rrset.kind;
        if rrset.signatures == 0 {
            // Where there is a chain, that is among the oddities.
            if !self.zone.is_signed() {
                let owner = name_of(owner);
                self.tell(Flaw::Unsigned { owner, kind });
            }
            return;
        }
        let set = Signed::new(owner, rrset);
        let mut is_by_key = false;
        for data in data_of(rrset.signatures_body()) {
            let signature = Signature::read(data);
            is_by_key |= signature.is_some_and(|signature| self.at_signature(&set, &signature));
        }
        if !is_by_key {
            let owner = name_of(owner);
            self.tell(Flaw::NotByKey { owner, kind });
        }
    }

    /// Returns whether it is by a key that may sign, right or wrong.
    fn at_signature(&mut self, set: &Signed<'_>, signature: &Signature<'_>) -> bool {
        let (algorithm, tag) = (signature.algorithm, signature.tag);
        let all = self.keys;
        let keys = all.iter().filter(|key| key.is(algorithm, tag));
        let keys: Vec<&Key> = keys.collect();
        if keys.is_empty() {
            return false;
        }
        let may_sign = keys.iter().any(|key| key.may_sign);
        let (owner, kind) = (name_of(set.owner), set.kind);
        if signature.ttl != set.ttl {
            self.tell(Flaw::Ttl {
                owner: owner.clone(),
                kind,
                original: signature.ttl,
                ttl: set.ttl,
            });
        }
        if let Some(flaw) = set.misfit(signature, self.zone.apex_wire()) {
            self.tell(flaw);
            return may_sign;
        }
        let message = set.message(signature);
        let verdicts = keys.iter();
        let verdicts = verdicts.map(|key| key.verify(&message, signature.octets));
        let verdicts: Vec<Option<bool>> = verdicts.collect();
        if verdicts.contains(&Some(true)) {
            return may_sign;
        }
        self.tell(match verdicts.contains(&None) {
            true => Flaw::Unsupported {
                algorithm,
                tag,
                count: 1,
                owner,
                kind,
            },
            false => Flaw::Wrong {
                owner,
                kind,
                algorithm,
                tag,
            },
        });
        may_sign
    }
}

/// The data of an RRSIG record (RFC 4034 §3.1).
struct Signature<'s> {
    /// What comes before the signer's name.
    fields: &'s [u8; 18],
    algorithm: u8,
    labels: u8,
    /// The original one, in seconds.
    ttl: u32,
    tag: u16,
    signer: &'s [u8],
    octets: &'s [u8],
}

impl<'s> Signature<'s> {
    fn read(data: &'s [u8]) -> Option<Signature<'s>> {
        let (fields, rest) = data.split_first_chunk::<18>()?;
        let length = Name::parse(rest).ok()?.len();
        let (signer, octets) = rest.split_at(length);
        Some(Signature {
            fields,
            algorithm: fields[2],
            labels: fields[3],
            ttl: u32::from_be_bytes([fields[4], fields[5], fields[6], fields[7]]),
            tag: wire_u16(fields, 16),
            signer,
            octets,
        })
    }
}

/// Records as they are signed.
struct Signed<'s> {
    /// In lower case.
    owner: &'s [u8],
    kind: u16,
    /// Seconds.
    ttl: u32,
    /// Canonical, in canonical order.
    data: Vec<Vec<u8>>,
}

impl<'s> Signed<'s> {
    fn new(owner: &'s [u8], rrset: Rrset<'_>) -> Signed<'s> {
        let kind = rrset.kind;
        // Names of theirs that were written with capital letters are lowered where what lists has not done so.
        let records = list::listed(owner, owner, rrset.body(false), rrset.count(false));
        let data = records.iter().map(|record| {
            let mut data = Vec::with_capacity(record.rdata.len());
            rdata::canonical(kind, &record.rdata, &mut data);
            data
        });
        let mut data: Vec<Vec<u8>> = data.collect();
        // RFC 4034 §6.3: "treating the RDATA portion of the canonical form of each RR as a left-justified unsigned octet
        // sequence".
        data.sort_unstable();
        let ttl = rrset.ttl();
        Signed {
            owner,
            kind,
            ttl,
            data,
        }
    }

    /// What in the fields of a signature is not about these records (RFC 4035 §5.3.1).
    fn misfit(&self, signature: &Signature<'_>, apex: &[u8]) -> Option<Flaw> {
        let (owner, kind) = (name_of(self.owner), self.kind);
        if !signature.signer.eq_ignore_ascii_case(apex) {
            return Some(Flaw::Signer {
                owner,
                kind,
                signer: name_of(signature.signer),
                apex: name_of(apex),
            });
        }
        // RFC 4034 §3.1.3: "MUST NOT count either the null (root) label that terminates the owner name or the wildcard label
        // (if present)". Fewer are there only in answers that a wildcard gave (RFC 4035 §5.3.2), and a zone holds none.
        let is_wildcard = self.owner.starts_with(b"\x01*");
        let right = (names::labels(self.owner) - usize::from(is_wildcard)) as u8;
        (signature.labels != right).then_some(Flaw::Labels {
            owner,
            kind,
            labels: signature.labels,
            right,
        })
    }

    /// What a signature is about: RFC 4034 §3.1.8.1, "RRSIG_RDATA | RR(1) | RR(2)...".
    fn message(&self, signature: &Signature<'_>) -> Vec<u8> {
        let mut message = signature.fields.to_vec();
        message.extend(signature.signer.to_ascii_lowercase());
        for data in &self.data {
            message.extend(self.owner);
            message.extend(self.kind.to_be_bytes());
            message.extend(class::IN.to_be_bytes());
            message.extend(signature.ttl.to_be_bytes());
            message.extend((data.len() as u16).to_be_bytes());
            message.extend(data);
        }
        message
    }
}
