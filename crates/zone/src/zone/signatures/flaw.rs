//! What is wrong with the signatures of a zone, in words.

use std::fmt;
use wire::codes::QtypeText;
use wire::name::NameBuf;

/// Something wrong with the signatures of a zone, or with what is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The apex has no key that verifies signatures.
    NoKeys { apex: NameBuf },
    /// Records without a signature, in a zone that has keys, and nothing that proves what is not there.
    Unsigned { owner: NameBuf, kind: u16 },
    /// Records whose signatures are all by keys that the zone does not have.
    NotByKey { owner: NameBuf, kind: u16 },
    /// A signature that is not of these records, or not by this key.
    Wrong {
        owner: NameBuf,
        kind: u16,
        algorithm: u8,
        tag: u16,
    },
    /// A signature in the name of another zone.
    Signer {
        owner: NameBuf,
        kind: u16,
        signer: NameBuf,
        apex: NameBuf,
    },
    /// A signature that is about an owner with another number of labels.
    Labels {
        owner: NameBuf,
        kind: u16,
        labels: u8,
        right: u8,
    },
    /// A signature about records with another TTL, in seconds.
    Ttl {
        owner: NameBuf,
        kind: u16,
        original: u32,
        ttl: u32,
    },
    /// Signed records that are not the zone's own.
    Needless { owner: NameBuf, kind: u16 },
    /// Signatures by a key of a kind that is not known here; the first of them is that of these records.
    Unsupported {
        algorithm: u8,
        tag: u16,
        count: usize,
        owner: NameBuf,
        kind: u16,
    },
}

impl Flaw {
    /// Whether resolvers that validate take what it is about for bogus, or the whole zone for unsigned; else it is a warning.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        !matches!(
            self,
            Flaw::Ttl { .. } | Flaw::Needless { .. } | Flaw::Unsupported { .. }
        )
    }

    /// Counts another one where that is the same but for its place.
    pub(super) fn count(&mut self, other: &Flaw) -> bool {
        let Flaw::Unsupported {
            algorithm,
            tag,
            count,
            ..
        } = self
        else {
            return false;
        };
        match other {
            Flaw::Unsupported {
                algorithm: other_algorithm,
                tag: other_tag,
                count: more,
                ..
            } if (*algorithm, *tag) == (*other_algorithm, *other_tag) => {
                *count += more;
                true
            }
            _ => false,
        }
    }

    /// The text of those that are about one RRSIG record.
    fn write_of_signature(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Wrong {
                owner,
                kind,
                algorithm,
                tag,
            } => write!(
                f,
                "RRSIG of {} at {owner} by key {tag} (algorithm {algorithm}) does not verify: one of the records and the key \
                 as they are now is right (RFC 4035 §5.3.3)",
                QtypeText(*kind)
            ),
            Flaw::Signer {
                owner,
                kind,
                signer,
                apex,
            } => write!(
                f,
                "RRSIG of {} at {owner} names {signer} as its signer: {apex}, the zone, is right (RFC 4035 §5.3.1)",
                QtypeText(*kind)
            ),
            Flaw::Labels {
                owner,
                kind,
                labels,
                right,
            } => write!(
                f,
                "RRSIG of {} at {owner} is about a name of {labels} labels: {right} is right \
                 (RFC 4034 §3.1.3, RFC 4035 §5.3.2)",
                QtypeText(*kind)
            ),
            Flaw::Ttl {
                owner,
                kind,
                original,
                ttl,
            } => write!(
                f,
                "RRSIG of {} at {owner} has an original TTL of {original} s, the records have {ttl} s: the same is right \
                 (RFC 4034 §3.1.4)",
                QtypeText(*kind)
            ),
            other => write!(f, "{other:?}"),
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::NoKeys { apex } => write!(
                f,
                "{apex} has no DNSKEY record with flag 256 and protocol 3: nothing can be verified, and the zone counts as \
                 unsigned (RFC 4034 §2.1)"
            ),
            Flaw::Unsigned { owner, kind } => write!(
                f,
                "{} at {owner} has no RRSIG record, and the zone has keys (RFC 4035 §2.2)",
                QtypeText(*kind)
            ),
            Flaw::NotByKey { owner, kind } => write!(
                f,
                "{} at {owner} has no RRSIG record by a key of the zone: a DNSKEY record at the apex, with flag 256 and \
                 protocol 3, not revoked, is right (RFC 4035 §2.2)",
                QtypeText(*kind)
            ),
            Flaw::Needless { owner, kind } => write!(
                f,
                "{} at {owner} has an RRSIG record and is not the zone's own there: no signature is right (RFC 4035 §2.2)",
                QtypeText(*kind)
            ),
            Flaw::Unsupported {
                algorithm,
                tag,
                count,
                owner,
                kind,
            } => write!(
                f,
                "{count} RRSIG records by key {tag} (algorithm {algorithm}) are not verified, that of {} at {owner} first: \
                 verified are 5, 7, 8 and 10 (RSA of 1,024 to 8,192 bits), 13, 14 and 15",
                QtypeText(*kind)
            ),
            of_signature => of_signature.write_of_signature(f),
        }
    }
}
