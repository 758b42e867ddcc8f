//! Which records something that is wrong with a zone is about: who reads its file again finds their line by that.

use super::rdata::covered;
use super::{Flaw, Oddity, Warning, ZoneError};
use crate::record::RecordRef;
use wire::codes::qtype;
use wire::name::NameBuf;

/// The records of one owner that something is about.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    owner: &'a NameBuf,
    which: Which<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Which<'a> {
    All,
    OfType(u16),
    /// Those of a type that point to a name.
    To(u16, &'a NameBuf),
    /// RRSIG records that cover a type, by any key or by that of a key tag.
    Signatures(u16, Option<u16>),
}

impl<'a> About<'a> {
    const fn all(owner: &'a NameBuf) -> About<'a> {
        let which = Which::All;
        About { owner, which }
    }

    pub(super) const fn of_type(owner: &'a NameBuf, kind: u16) -> About<'a> {
        let which = Which::OfType(kind);
        About { owner, which }
    }

    const fn to(owner: &'a NameBuf, kind: u16, target: &'a NameBuf) -> About<'a> {
        let which = Which::To(kind, target);
        About { owner, which }
    }

    const fn signatures(owner: &'a NameBuf, kind: u16, tag: Option<u16>) -> About<'a> {
        let which = Which::Signatures(kind, tag);
        About { owner, which }
    }

    /// Whose records they are.
    #[must_use]
    pub const fn owner(&self) -> &'a NameBuf {
        self.owner
    }

    /// Whether this record is one of them; its owner is the right one.
    #[must_use]
    pub fn has(&self, record: &RecordRef<'_>) -> bool {
        match self.which {
            Which::All => true,
            Which::OfType(kind) => record.kind == kind,
            Which::To(kind, target) => record.kind == kind && points_to(record, target),
            Which::Signatures(kind, tag) => {
                record.kind == qtype::RRSIG
                    && covered(record.rdata) == Some(kind)
                    && tag.is_none_or(|tag| tag_of(record.rdata) == Some(tag))
            }
        }
    }
}

/// Whether an NS, MX or SRV record points to this name.
fn points_to(record: &RecordRef<'_>, target: &NameBuf) -> bool {
    let numbers = match record.kind {
        qtype::MX => 2,
        qtype::SRV => 6,
        _ => 0,
    };
    let name = record.rdata.get(numbers..);
    name.is_some_and(|name| name.eq_ignore_ascii_case(target.as_name().as_bytes()))
}

/// The key tag of an RRSIG record (RFC 4034 §3.1: behind type, algorithm, labels, TTL and two times).
fn tag_of(data: &[u8]) -> Option<u16> {
    let octets = data.get(16..18)?;
    Some(u16::from_be_bytes([octets[0], octets[1]]))
}

impl ZoneError {
    /// The records that it is about and that are good each by itself; `None`: others.
    #[must_use]
    pub const fn about(&self) -> Option<About<'_>> {
        match self {
            ZoneError::CnameBeside { owner, kind }
            | ZoneError::ManyAliases { owner, kind, .. }
            | ZoneError::RrsetTooLong { owner, kind, .. } => Some(About::of_type(owner, *kind)),
            ZoneError::ManySoas { apex, .. } => Some(About::of_type(apex, qtype::SOA)),
            ZoneError::Iterations { apex, .. } => Some(About::of_type(apex, qtype::NSEC3PARAM)),
            _ => None,
        }
    }
}

impl Warning {
    /// The records that it is about.
    #[must_use]
    pub const fn about(&self) -> About<'_> {
        match self {
            Warning::OutOfZone { owner, .. }
            | Warning::BelowDname { owner }
            | Warning::StrayNsec3 { first: owner, .. } => About::all(owner),
            Warning::TtlsDiffer { owner, kind }
            | Warning::TtlTooHigh { owner, kind, .. }
            | Warning::BelowDelegation { owner, kind } => About::of_type(owner, *kind),
            Warning::SignatureOfNothing { owner, kind } => About::signatures(owner, *kind, None),
            Warning::MissingGlue { owner, target } | Warning::MissingAddress { owner, target } => {
                About::to(owner, qtype::NS, target)
            }
            Warning::DsWithoutNs { owner } | Warning::DsAtApex { apex: owner } => {
                About::of_type(owner, qtype::DS)
            }
            Warning::Iterations { apex, .. } => About::of_type(apex, qtype::NSEC3PARAM),
            Warning::NoChain { apex } => About::of_type(apex, qtype::DNSKEY),
        }
    }
}

impl Oddity {
    /// The records that it is about; where these are missing, none may be in the file.
    #[must_use]
    pub const fn about(&self) -> About<'_> {
        match self {
            Oddity::Alias {
                owner,
                kind,
                target,
            }
            | Oddity::NoAddress {
                owner,
                kind,
                target,
            } => About::to(owner, *kind, target),
            Oddity::Unsigned { owner, kind } | Oddity::Broken { owner, kind } => {
                About::of_type(owner, *kind)
            }
            // The owner of an NSEC3 record is a hash: what it is about has a name.
            Oddity::Types { owner, kind } if *kind == qtype::NSEC => About::of_type(owner, *kind),
            Oddity::Types { owner, .. } | Oddity::NoProof { owner, .. } => About::all(owner),
            Oddity::Signatures { owner, kind, .. } => About::signatures(owner, *kind, None),
        }
    }
}

impl Flaw {
    /// The records that it is about; where these are missing, none may be in the file.
    #[must_use]
    pub const fn about(&self) -> About<'_> {
        match self {
            Flaw::NoKeys { apex } => About::of_type(apex, qtype::DNSKEY),
            Flaw::Unsigned { owner, kind } => About::of_type(owner, *kind),
            Flaw::Wrong {
                owner, kind, tag, ..
            }
            | Flaw::Unsupported {
                owner, kind, tag, ..
            } => About::signatures(owner, *kind, Some(*tag)),
            Flaw::NotByKey { owner, kind }
            | Flaw::Signer { owner, kind, .. }
            | Flaw::Labels { owner, kind, .. }
            | Flaw::Ttl { owner, kind, .. }
            | Flaw::Needless { owner, kind } => About::signatures(owner, *kind, None),
        }
    }
}
