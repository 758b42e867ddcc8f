//! Proofs of what is not there (RFC 4035 §3.1.3, RFC 5155 §7.2): stored NSEC and NSEC3 records, each once.

use super::Response;
use super::writer::{Full, Placed, Section};
use crate::zone::names::{is_within, parent};
use crate::zone::nsec3::{Chain, Proofs};
use crate::zone::parts::{NONE, Node, POINTER_MAX};
use crate::zone::{Denial, Found, Zone};
use std::hint::black_box;
use wire::codes::qtype;
use wire::message::HEADER_LENGTH;
use wire::name::NAME_LENGTH_MAX;
use wire::name::compressed::expand;

/// A name that a wildcard answered for.
#[derive(Clone, Copy, Default)]
pub(super) struct Expansion {
    /// The zone's number.
    pub(super) zone: u32,
    /// Where the closest encloser is in the zone.
    pub(super) encloser: u32,
    /// Where the name is in the message.
    pub(super) placed: Placed,
    /// Where in the name the next closer name begins.
    pub(super) next_closer_at: usize,
}

/// A name whose absence is to be proved.
#[derive(Clone, Copy)]
pub(super) struct Absent<'n> {
    /// In lower case.
    pub(super) name: &'n [u8],
    pub(super) placed: Placed,
    /// The closest encloser's place in its zone.
    pub(super) encloser: u32,
    /// Where in the name the next closer name begins.
    pub(super) next_closer_at: usize,
}

/// What is known of a name that is not there, before its answer is begun: where [`Found`] says that it would be, and what covers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absence {
    /// The closest encloser's place in its zone.
    encloser: u32,
    /// Where the closest encloser begins in the name.
    encloser_at: u8,
    /// Where in the name the next closer name begins.
    next_closer_at: u8,
    /// Where in the zone the NSEC3 record is that covers the next closer name.
    pub(super) covering: u32,
}

impl Absence {
    /// Of a name of which it is not known yet what covers it.
    pub(super) fn of(found: &Found<'_>) -> Absence {
        Absence {
            encloser: found.node.at,
            // A name has 255 octets.
            encloser_at: found.encloser_at as u8,
            next_closer_at: found.next_closer_at as u8,
            covering: NONE,
        }
    }

    /// Where the name would be in its zone.
    #[inline]
    pub(super) fn found<'z>(&self, zone: &'z Zone) -> Found<'z> {
        Found {
            node: zone.node(self.encloser),
            encloser_at: self.encloser_at.into(),
            next_closer_at: self.next_closer_at.into(),
        }
    }
}

impl<'n> Absent<'n> {
    fn next_closer(&self) -> &'n [u8] {
        &self.name[self.next_closer_at..]
    }
}

/// Where in a zone the NSEC3 records are that prove things about the closest encloser of an absent name.
struct Closest {
    /// RFC 5155 §7.2.1: "An NSEC3 RR that matches the closest (provable) encloser".
    matching: u32,
    /// "An NSEC3 RR that covers the "next closer" name".
    covering: u32,
    /// What covers or matches the wildcard below that encloser.
    wildcard: u32,
}

/// What proves things about the closest name above one that opt-out left out, which it has not. The apex is never left out.
#[cold]
fn provable(zone: &Zone, left_out: Node<'_>) -> Proofs {
    let mut name = left_out.name();
    loop {
        name = parent(name);
        let above = zone.find(name, crate::zone::names::labels(name)).node;
        let proofs = zone.proofs_of(above);
        if !proofs.opted_out {
            return proofs;
        }
    }
}

impl<'z> Response<'z, '_> {
    /// Finds what proves things about the closest encloser. Memory is asked for the record that covers: of a name that nobody has
    /// asked for before it is far away, and there is other work to be done.
    fn closest(&self, zone: &Zone, chain: &Chain, absent: &Absent<'_>) -> Closest {
        let encloser = zone.node(absent.encloser);
        let proofs = zone.proofs_of(encloser);
        let (covering, wildcard) = match proofs.opted_out {
            false => (
                self.covering(zone, chain, absent),
                zone.proof_place(chain, proofs.second),
            ),
            true => (
                zone.proof_place(chain, proofs.second),
                zone.proof_place(chain, provable(zone, encloser).second),
            ),
        };
        Closest {
            matching: zone.proof_place(chain, proofs.first),
            covering,
            wildcard,
        }
    }

    /// Where in a zone the NSEC3 record is that covers the next closer name. It is known already where that was looked ahead to.
    #[inline]
    fn covering(&self, zone: &Zone, chain: &Chain, absent: &Absent<'_>) -> u32 {
        // What begins where the question does is the name that was asked for, whole, and not what an alias leads to.
        let is_asked = absent.placed.at == HEADER_LENGTH;
        if let Some(absence) = self.absence.filter(|_| is_asked) {
            return absence.covering;
        }
        let hash = chain.parameters.hash(absent.next_closer());
        let covering = zone.covering(chain, &hash);
        if let Some(octets) = zone.proof_octets(covering) {
            // Read of its lines is what nobody waits for.
            black_box(octets[0] ^ octets[64] ^ octets[128] ^ octets[192]);
        }
        covering
    }

    /// Proves that the name of `node` has no records of the type asked for, or that a delegation is not signed.
    pub(super) fn prove_no_data(
        &mut self,
        zone: &'z Zone,
        number: u32,
        node: Node<'z>,
        near: Placed,
    ) -> Result<(), Full> {
        match zone.denial() {
            Denial::Unsigned => Ok(()),
            // RFC 4035 §3.1.3.1; an empty non-terminal has none of its own: the one before covers it (RFC 4035 §3.1.3.2).
            Denial::Nsec(owners) => {
                let owner = zone.nsec_at_or_before(owners, node.name());
                self.put_nsec(number, owner, near)
            }
            // RFC 5155 §7.2.3, §7.2.4, §7.2.7: the record that matches, or where opt-out left it out, "a closest provable
            // encloser proof".
            Denial::Nsec3(chain) => {
                let proofs = zone.proofs_of(node);
                let first = zone.proof_place(chain, proofs.first);
                self.put_nsec3(zone, number, first, near)?;
                if proofs.opted_out {
                    let second = zone.proof_place(chain, proofs.second);
                    self.put_nsec3(zone, number, second, near)?;
                }
                Ok(())
            }
        }
    }

    /// Says that the name is not there, and proves where that is wanted that neither it is nor a wildcard for it.
    pub(super) fn deny_name(
        &mut self,
        zone: &'z Zone,
        number: u32,
        absent: &Absent<'_>,
    ) -> Result<(), Full> {
        let denial = zone.denial();
        let closest = match denial {
            Denial::Nsec3(chain) if self.signed => Some(self.closest(zone, chain, absent)),
            _ => None,
        };
        self.put_soa(zone)?;
        if let Some(closest) = closest {
            // RFC 5155 §7.2.2: "the closest encloser proof", and "an NSEC3 RR that covers the wildcard RR at the closest
            // encloser". What covers the name comes last: memory may take a while to bring it.
            for proof in [closest.matching, closest.wildcard, closest.covering] {
                self.put_nsec3(zone, number, proof, absent.placed)?;
            }
        } else if let Denial::Nsec(owners) = denial
            && self.signed
        {
            // RFC 4035 §3.1.3.2: "An NSEC RR proving that there is no exact match", and one "proving that the zone
            // contains no RRsets that would match <SNAME, SCLASS> via wildcard name expansion".
            self.prove_expansion(zone, number, absent)?;
            let encloser = zone.node(absent.encloser).name();
            let mut wildcard = [0; 257];
            wildcard[..2].copy_from_slice(b"\x01*");
            wildcard[2..2 + encloser.len()].copy_from_slice(encloser);
            let covering = zone.nsec_at_or_before(owners, &wildcard[..2 + encloser.len()]);
            self.put_nsec(number, covering, absent.placed)?;
        }
        Ok(())
    }

    /// Proves that a wildcard was right to answer.
    pub(super) fn prove_expansion(
        &mut self,
        zone: &'z Zone,
        number: u32,
        absent: &Absent<'_>,
    ) -> Result<(), Full> {
        match zone.denial() {
            Denial::Unsigned => Ok(()),
            // RFC 4035 §3.1.3.3.
            Denial::Nsec(owners) => {
                let covering = zone.nsec_at_or_before(owners, absent.name);
                self.put_nsec(number, covering, absent.placed)
            }
            // RFC 5155 §7.2.6: "an NSEC3 RR that covers the 'next closer' name".
            Denial::Nsec3(chain) => {
                let covering = self.covering(zone, chain, absent);
                self.put_nsec3(zone, number, covering, absent.placed)
            }
        }
    }

    /// Proves that the wildcard for a name has no records of the type asked for.
    pub(super) fn prove_no_wildcard_data(
        &mut self,
        zone: &'z Zone,
        number: u32,
        absent: &Absent<'_>,
        wildcard: Node<'z>,
    ) -> Result<(), Full> {
        match zone.denial() {
            Denial::Unsigned => Ok(()),
            // RFC 4035 §3.1.3.4.
            Denial::Nsec(_) => {
                self.prove_expansion(zone, number, absent)?;
                self.prove_no_data(zone, number, wildcard, absent.placed)
            }
            // RFC 5155 §7.2.5: "a closest encloser proof", and "an NSEC3 RR that matches the wildcard".
            Denial::Nsec3(chain) => {
                let closest = self.closest(zone, chain, absent);
                self.put_nsec3(zone, number, closest.matching, absent.placed)?;
                self.put_nsec3(zone, number, closest.covering, absent.placed)?;
                self.prove_no_data(zone, number, wildcard, absent.placed)
            }
        }
    }

    /// Puts the NSEC3 record at this place of the zone, if there is one, into the authority section.
    fn put_nsec3(
        &mut self,
        zone: &'z Zone,
        number: u32,
        proof: u32,
        near: Placed,
    ) -> Result<(), Full> {
        if proof == NONE || !self.is_new(number, proof) {
            return Ok(());
        }
        let apex_at = self.writer.rest_of(near, zone.apex_wire().len()).at;
        let (octets, count) = zone.whole_proof(proof);
        self.writer.put_proof((octets, count), apex_at)
    }

    fn put_nsec(&mut self, number: u32, owner: Option<Node<'z>>, near: Placed) -> Result<(), Full> {
        let Some((owner, rrset)) = owner.and_then(|owner| Some((owner, owner.rrset(qtype::NSEC)?)))
        else {
            return Ok(());
        };
        if !self.is_new(number, rrset.at) {
            return Ok(());
        }
        let name = owner.name();
        let shared = self.shared_end(name, near)?;
        let labels = &name[..name.len() - shared.length];
        if labels.is_empty() {
            self.writer.put(Section::Authority, &rrset, shared, true)?;
            return Ok(());
        }
        self.writer
            .put_named(Section::Authority, &rrset, (labels, shared.at), true)
    }

    /// The longest end that a name in lower case has in common with the one at `near`, of those that a pointer reaches.
    fn shared_end(&self, name: &[u8], near: Placed) -> Result<Placed, Full> {
        let mut buffer = [0; NAME_LENGTH_MAX];
        let length = expand(self.writer.message, near.at, &mut buffer).map_or(0, |near| near.len());
        buffer[..length].make_ascii_lowercase();
        let mut end = &buffer[..length];
        while let [first, ..] = end {
            if is_within(name, end) {
                let shared = self.writer.rest_of(near, end.len());
                if shared.at <= POINTER_MAX {
                    return Ok(shared);
                }
            }
            if *first == 0 {
                break;
            }
            end = parent(end);
        }
        Err(Full)
    }

    /// Remembers a proof by its place in the zone with this number; whether it was not there before.
    #[inline]
    fn is_new(&mut self, number: u32, place: u32) -> bool {
        let key = (number, place);
        let proofs = &mut self.trail().proofs;
        let new = !proofs.items().contains(&key);
        if new {
            proofs.push(key);
        }
        new
    }

    /// Proves that each wildcard that answered was right to do so.
    pub(super) fn prove_expansions(&mut self) -> Result<(), Full> {
        let Some(trail) = &self.trail else {
            return Ok(());
        };
        // Copied: what follows remembers its proofs in the same place.
        let expansions = trail.expansions.clone();
        for expansion in expansions.items() {
            let Some(zone) = self.zones.zone(expansion.zone as usize) else {
                continue;
            };
            let mut buffer = [0; NAME_LENGTH_MAX];
            let Ok(name) = expand(self.writer.message, expansion.placed.at, &mut buffer) else {
                continue;
            };
            let length = name.len();
            buffer[..length].make_ascii_lowercase();
            let absent = Absent {
                name: &buffer[..length],
                placed: expansion.placed,
                encloser: expansion.encloser,
                next_closer_at: expansion.next_closer_at,
            };
            self.prove_expansion(zone, expansion.zone, &absent)?;
        }
        Ok(())
    }
}
