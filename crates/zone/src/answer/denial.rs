//! Proofs of what is not there (RFC 4035 §3.1.3, RFC 5155 §7.2): stored NSEC and NSEC3 records, each once.

use super::Response;
use super::writer::{Full, Placed, Section};
use crate::zone::names::parent;
use crate::zone::nsec3::{Chain, Proofs};
use crate::zone::parts::{NONE, Node, Rrset};
use crate::zone::{Denial, Zone};
use wire::codes::qtype;
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

impl<'n> Absent<'n> {
    fn next_closer(&self) -> &'n [u8] {
        &self.name[self.next_closer_at..]
    }
}

impl<'z> Response<'z, '_> {
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
                self.put_nsec(zone, number, owner, near)
            }
            // RFC 5155 §7.2.3, §7.2.4, §7.2.7: the record that matches, or where opt-out left it out, "a closest provable
            // encloser proof".
            Denial::Nsec3(chain) => {
                let proofs = zone.proofs_of(node);
                self.put_nsec3(zone, number, chain, proofs.first, near)?;
                if proofs.opted_out {
                    self.put_nsec3(zone, number, chain, proofs.second, near)?;
                }
                Ok(())
            }
        }
    }

    /// Proves that neither the name nor a wildcard for it is there.
    pub(super) fn prove_no_name(
        &mut self,
        zone: &'z Zone,
        number: u32,
        absent: &Absent<'_>,
    ) -> Result<(), Full> {
        match zone.denial() {
            Denial::Unsigned => Ok(()),
            Denial::Nsec(owners) => {
                // RFC 4035 §3.1.3.2: "An NSEC RR proving that there is no exact match", and one "proving that the zone
                // contains no RRsets that would match <SNAME, SCLASS> via wildcard name expansion".
                self.prove_expansion(zone, number, absent)?;
                let encloser = zone.node(absent.encloser).name();
                let mut wildcard = [0; 257];
                wildcard[..2].copy_from_slice(b"\x01*");
                wildcard[2..2 + encloser.len()].copy_from_slice(encloser);
                let covering = zone.nsec_at_or_before(owners, &wildcard[..2 + encloser.len()]);
                self.put_nsec(zone, number, covering, absent.placed)
            }
            Denial::Nsec3(chain) => {
                // RFC 5155 §7.2.2: "the closest encloser proof", and "an NSEC3 RR that covers the wildcard RR at the
                // closest encloser".
                let provable = self.prove_encloser(zone, number, chain, absent)?;
                self.put_nsec3(zone, number, chain, provable.second, absent.placed)
            }
        }
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
                self.put_nsec(zone, number, covering, absent.placed)
            }
            // RFC 5155 §7.2.6: "an NSEC3 RR that covers the 'next closer' name".
            Denial::Nsec3(chain) => {
                self.put_covering(zone, number, chain, absent.next_closer(), absent.placed)
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
                self.prove_encloser(zone, number, chain, absent)?;
                self.prove_no_data(zone, number, wildcard, absent.placed)
            }
        }
    }

    /// RFC 5155 §7.2.1: "An NSEC3 RR that matches the closest (provable) encloser", and one "that covers the "next closer"
    /// name". Returns what proves things about the encloser that was proved.
    fn prove_encloser(
        &mut self,
        zone: &'z Zone,
        number: u32,
        chain: &'z Chain,
        absent: &Absent<'_>,
    ) -> Result<Proofs, Full> {
        let encloser = zone.node(absent.encloser);
        let proofs = zone.proofs_of(encloser);
        self.put_nsec3(zone, number, chain, proofs.first, absent.placed)?;
        if !proofs.opted_out {
            self.put_covering(zone, number, chain, absent.next_closer(), absent.placed)?;
            return Ok(proofs);
        }
        self.put_nsec3(zone, number, chain, proofs.second, absent.placed)?;
        // The apex is never left out.
        let mut name = encloser.name();
        loop {
            name = parent(name);
            let provable = zone.find(name, crate::zone::names::labels(name)).node;
            let proofs = zone.proofs_of(provable);
            if !proofs.opted_out {
                return Ok(proofs);
            }
        }
    }

    fn put_covering(
        &mut self,
        zone: &'z Zone,
        number: u32,
        chain: &'z Chain,
        name: &[u8],
        near: Placed,
    ) -> Result<(), Full> {
        let covering = zone.covering(chain, name);
        self.put_nsec3(zone, number, chain, covering, near)
    }

    fn put_nsec3(
        &mut self,
        zone: &'z Zone,
        number: u32,
        chain: &'z Chain,
        record: u32,
        near: Placed,
    ) -> Result<(), Full> {
        if record == NONE {
            return Ok(());
        }
        let apex = zone.apex_wire().len();
        let (label, rrset) = zone.proof(chain, record);
        if !self.is_new(number, &rrset) {
            return Ok(());
        }
        let apex_at = self.writer.rest_of(near, apex).at;
        self.writer
            .put_named(Section::Authority, &rrset, (label, apex_at), true)
    }

    fn put_nsec(
        &mut self,
        zone: &'z Zone,
        number: u32,
        owner: Option<Node<'z>>,
        near: Placed,
    ) -> Result<(), Full> {
        let Some((owner, rrset)) = owner.and_then(|owner| Some((owner, owner.rrset(qtype::NSEC)?)))
        else {
            return Ok(());
        };
        if !self.is_new(number, &rrset) {
            return Ok(());
        }
        let apex = zone.apex_wire().len();
        let apex_at = self.writer.rest_of(near, apex);
        let name = owner.name();
        if name.len() == apex {
            self.writer.put(Section::Authority, &rrset, apex_at, true)?;
            return Ok(());
        }
        let labels = &name[..name.len() - apex];
        self.writer
            .put_named(Section::Authority, &rrset, (labels, apex_at.at), true)
    }

    /// Remembers a proof; whether it was not there before.
    fn is_new(&mut self, number: u32, rrset: &Rrset<'_>) -> bool {
        let key = (number, rrset.at);
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
