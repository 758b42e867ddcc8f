//! The additional section: addresses of the names that an answer points to (RFC 1034 §4.3.2, step 6).

use super::Response;
use super::writer::{Full, Placed, Section};
use crate::zone::Zone;
use crate::zone::parts::{DNAME, Node, OWNER_ITSELF, POINTER_MAX, Rrset};
use wire::codes::qtype;
use wire::name::NAME_LENGTH_MAX;
use wire::name::compressed::expand;

/// An RRset whose targets' addresses are of use.
#[derive(Clone, Copy)]
pub(super) struct Extra<'z> {
    /// The zone's number.
    pub(super) zone: u32,
    pub(super) rrset: Rrset<'z>,
    /// Where its body is in the message.
    pub(super) body_at: usize,
    pub(super) owner: Placed,
    /// The delegation, where this is one.
    pub(super) cut: Option<u32>,
}

impl<'z> Response<'z, '_> {
    /// Addresses of the names in the data of an RRset, as many as fit; of a delegation those first without which nobody
    /// gets there.
    #[inline]
    pub(super) fn add_addresses(&mut self, extra: &Extra<'z>) -> Result<(), Full> {
        match extra.cut {
            Some(cut) => self.add_glue(extra, cut)?,
            None => {
                let is_ns = extra.rrset.kind == qtype::NS;
                for (place, node) in extra.rrset.targets() {
                    // Nothing below a delegation is ours to say, but where servers are; nothing below a DNAME is there.
                    if node.cut().is_none() || is_ns && !node.is_redirected() {
                        self.left_out |= self.add_addresses_of(extra, place, node).is_err();
                    }
                }
            }
        }
        if extra.rrset.wanted().any(|(_, node)| node.is_none()) {
            self.add_addresses_of_absent(extra);
        }
        Ok(())
    }

    fn add_glue(&mut self, extra: &Extra<'z>, cut: u32) -> Result<(), Full> {
        let is_required = |node: &Node<'_>| node.cut().is_some_and(|own| own.at == cut);
        for (place, node) in extra.rrset.targets().filter(|(_, node)| is_required(node)) {
            // RFC 9471 §2.1: "If the name server is unable to include all available glue records for in-domain name
            // servers, it MUST set TC=1".
            self.add_addresses_of(extra, place, node)?;
        }
        let is_other = |node: &Node<'_>| !is_required(node) && !node.is_redirected();
        for (place, node) in extra.rrset.targets().filter(|(_, node)| is_other(node)) {
            self.left_out |= self.add_addresses_of(extra, place, node).is_err();
        }
        Ok(())
    }

    fn add_addresses_of(
        &mut self,
        extra: &Extra<'z>,
        place: u16,
        node: Node<'z>,
    ) -> Result<(), Full> {
        let owner = match place {
            OWNER_ITSELF => extra.owner,
            place => Placed {
                at: extra.body_at + usize::from(place),
                length: node.name().len(),
            },
        };
        self.put_addresses(extra, owner, node)
    }

    /// Addresses of names that are not in the zone, where a wildcard stands for them (RFC 4592 §3.3): RFC 1034 §4.3.2 step 6
    /// takes them from "local data", in which they are found as if they were asked for.
    #[cold]
    fn add_addresses_of_absent(&mut self, extra: &Extra<'z>) {
        let zones = self.zones;
        let Some(zone) = zones.zone(extra.zone as usize) else {
            return;
        };
        for (place, _) in extra.rrset.wanted().filter(|(_, node)| node.is_none()) {
            let added = self.add_addresses_by_wildcard(extra, zone, place);
            self.left_out |= added.is_err();
        }
    }

    fn add_addresses_by_wildcard(
        &mut self,
        extra: &Extra<'z>,
        zone: &'z Zone,
        place: u16,
    ) -> Result<(), Full> {
        let at = extra.body_at + usize::from(place);
        // Beyond, no pointer leads there, nor is it known where the name has come to lie.
        if at > POINTER_MAX {
            return Err(Full);
        }
        let mut name = [0; NAME_LENGTH_MAX];
        let Ok(target) = expand(self.writer.message, at, &mut name) else {
            return Ok(());
        };
        let (length, labels) = (target.len(), target.labels_count());
        name[..length].make_ascii_lowercase();
        let found = zone.find(&name[..length], labels);
        // Below a delegation another zone knows, and below a DNAME nothing is there.
        let is_hidden = found.exact() || found.node.has_cut() || found.node.has(DNAME);
        match found.node.wildcard().filter(|_| !is_hidden) {
            Some(wildcard) => self.put_addresses(extra, Placed { at, length }, wildcard),
            None => Ok(()),
        }
    }

    /// What is of use of a node, under this name.
    fn put_addresses(
        &mut self,
        extra: &Extra<'z>,
        owner: Placed,
        node: Node<'z>,
    ) -> Result<(), Full> {
        for kind in [qtype::A, qtype::AAAA] {
            if let Some(rrset) = node.rrset(kind) {
                self.writer
                    .put(Section::Additional, &rrset, owner, self.signed)?;
            }
        }
        // RFC 9460 §4.1: servers "SHOULD return A, AAAA, and SVCB records in the Additional Section for any TargetNames that
        // are in the zone". The owner's own are the answer.
        let kind = extra.rrset.kind;
        if matches!(kind, qtype::SVCB | qtype::HTTPS)
            && let Some(rrset) = node.rrset(kind).filter(|rrset| rrset.at != extra.rrset.at)
        {
            self.writer
                .put(Section::Additional, &rrset, owner, self.signed)?;
        }
        Ok(())
    }
}
