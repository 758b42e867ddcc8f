//! What is wrong with a zone's records as a whole.

use std::fmt;
use wire::codes::QtypeText;
use wire::name::NameBuf;

/// Why records are no zone that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneError {
    /// The apex has no SOA record.
    NoSoa { apex: NameBuf },
    /// The apex has more than one.
    ManySoas { apex: NameBuf, count: usize },
    /// A SOA record below the apex.
    SoaElsewhere { owner: NameBuf, apex: NameBuf },
    /// The apex has no NS record.
    NoNameServers { apex: NameBuf },
    /// An owner that is no name.
    BadOwner { octets: usize },
    /// A class other than IN.
    Class { owner: NameBuf, class: u16 },
    /// A type that only messages have (RFC 6895 §3.1).
    MetaType { owner: NameBuf, kind: u16 },
    /// A CNAME record beside records of this type.
    CnameBeside { owner: NameBuf, kind: u16 },
    /// Several CNAME or DNAME records.
    ManyAliases {
        owner: NameBuf,
        kind: u16,
        count: usize,
    },
    /// Data without the names that records of this type have.
    BadData { owner: NameBuf, kind: u16 },
    /// More than a message holds.
    RrsetTooLong {
        owner: NameBuf,
        kind: u16,
        octets: usize,
    },
    /// NSEC3 with so many iterations that each negative answer would be dear and believed by nobody.
    Iterations { apex: NameBuf, count: u16 },
    /// More octets than can be addressed.
    TooLarge { apex: NameBuf },
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZoneError::NoSoa { apex } => write!(
                f,
                "{apex} has no SOA record: a zone has one at its apex (RFC 1035 §5.2)"
            ),
            ZoneError::ManySoas { apex, count } => {
                write!(
                    f,
                    "{apex} has {count} SOA records: a zone has one (RFC 1035 §5.2)"
                )
            }
            ZoneError::SoaElsewhere { owner, apex } => {
                write!(
                    f,
                    "SOA record at {owner}: only {apex}, the zone's apex, may have one"
                )
            }
            ZoneError::NoNameServers { apex } => {
                write!(
                    f,
                    "{apex} has no NS record: a zone names its servers at its apex (RFC 1034 §4.2.1)"
                )
            }
            ZoneError::BadOwner { octets } => write!(
                f,
                "owner of {octets} octets is no name: labels of 1 to 63 octets, 255 in all, no pointers (RFC 1035 §3.1)"
            ),
            ZoneError::Class { owner, class } => {
                write!(
                    f,
                    "record of class {class} at {owner}: zones of class IN (1) are served"
                )
            }
            ZoneError::MetaType { owner, kind } => {
                write!(
                    f,
                    "{} record at {owner}: this type is found in messages only (RFC 6895 §3.1)",
                    QtypeText(*kind)
                )
            }
            ZoneError::Iterations { apex, count } => write!(
                f,
                "NSEC3 of {apex} has {count} iterations: at most {}, and 0 is right (RFC 9276 §3.1)",
                super::nsec3::ITERATIONS_MAX
            ),
            ZoneError::TooLarge { apex } => {
                write!(
                    f,
                    "zone {apex} takes more than 4 GiB: split it by delegations"
                )
            }
            of_records => of_records.write_of_records(f),
        }
    }
}

impl ZoneError {
    /// The text of those that are about records of one owner and type.
    fn write_of_records(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZoneError::CnameBeside { owner, kind } => write!(
                f,
                "{owner} has a CNAME record and {}: beside a CNAME record only RRSIG and NSEC may be (RFC 2181 §10.1)",
                QtypeText(*kind)
            ),
            ZoneError::ManyAliases { owner, kind, count } => write!(
                f,
                "{owner} has {count} {} records: one is allowed (RFC 2181 §10.1, RFC 6672 §2.4)",
                QtypeText(*kind)
            ),
            ZoneError::BadData { owner, kind } => {
                write!(
                    f,
                    "data of a {} record at {owner} are too short or have no name where one belongs",
                    QtypeText(*kind)
                )
            }
            ZoneError::RrsetTooLong {
                owner,
                kind,
                octets,
            } => write!(
                f,
                "{} records at {owner} take {octets} octets, and a message holds 65,535: fewer or shorter ones, or several names, are right",
                QtypeText(*kind)
            ),
            other => write!(f, "{other:?}"),
        }
    }
}

impl std::error::Error for ZoneError {}

/// What is odd about a zone that is served all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// An owner that is neither the apex nor below it: left out, as other servers do, for a zone file may have been that of two.
    OutOfZone { owner: NameBuf, apex: NameBuf },
    /// Records of one RRset with different TTLs: the lowest is taken.
    TtlsDiffer { owner: NameBuf, kind: u16 },
    /// A TTL above 2³¹ - 1.
    TtlTooHigh { owner: NameBuf, kind: u16, ttl: u32 },
    /// An RRSIG record whose RRset is not there: left out.
    SignatureOfNothing { owner: NameBuf, kind: u16 },
    /// Records below a DNAME are never seen.
    BelowDname { owner: NameBuf },
    /// Records at or below a delegation that are neither addresses nor belong to the delegation are never seen.
    BelowDelegation { owner: NameBuf, kind: u16 },
    /// A name server within its own delegation without an address.
    MissingGlue { owner: NameBuf, target: NameBuf },
    /// A name server within the zone without an address.
    MissingAddress { owner: NameBuf, target: NameBuf },
    /// A DS record without NS records beside it.
    DsWithoutNs { owner: NameBuf },
    /// A DS record at the apex: it is the parent's.
    DsAtApex { apex: NameBuf },
    /// NSEC3 with iterations.
    Iterations { apex: NameBuf, count: u16 },
    /// NSEC3 records that are not in the zone's chain, the first of them with this owner.
    StrayNsec3 {
        apex: NameBuf,
        first: NameBuf,
        count: usize,
    },
    /// The apex has DNSKEY records, but nothing proves what is not there.
    NoChain { apex: NameBuf },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::OutOfZone { owner, apex } => {
                write!(
                    f,
                    "{owner} is out of zone, and left out: owners are {apex} or end with it"
                )
            }
            Warning::TtlsDiffer { owner, kind } => write!(
                f,
                "{} records at {owner} have different TTLs: the lowest is taken (RFC 2181 §5.2 wants one)",
                QtypeText(*kind)
            ),
            Warning::TtlTooHigh { owner, kind, ttl } => write!(
                f,
                "{} at {owner} has a TTL of {ttl} s, which is taken as 0, as whoever receives it would: at most 2147483647 \
                 is right (RFC 2181 §8)",
                QtypeText(*kind)
            ),
            Warning::SignatureOfNothing { owner, kind } => {
                write!(
                    f,
                    "RRSIG of {} at {owner} is left out: no such record is there",
                    QtypeText(*kind)
                )
            }
            Warning::BelowDname { owner } => {
                write!(
                    f,
                    "{owner} is below a DNAME record and never seen (RFC 6672 §2.4 allows nothing there)"
                )
            }
            Warning::BelowDelegation { owner, kind } => write!(
                f,
                "{} at {owner} is never seen: at and below a delegation only its NS, DS and addresses are",
                QtypeText(*kind)
            ),
            Warning::MissingGlue { owner, target } => {
                write!(
                    f,
                    "delegation {owner} cannot be followed to {target}: add its A or AAAA record"
                )
            }
            Warning::MissingAddress { owner, target } => {
                write!(
                    f,
                    "name server {target} of {owner} has no address: add its A or AAAA record"
                )
            }
            of_dnssec => of_dnssec.write_of_dnssec(f),
        }
    }
}

impl Warning {
    /// The text of those that are about a chain of trust or of proofs.
    fn write_of_dnssec(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::DsWithoutNs { owner } => {
                write!(
                    f,
                    "DS at {owner} without NS: it belongs to a delegation (RFC 4035 §2.4)"
                )
            }
            Warning::DsAtApex { apex } => write!(
                f,
                "DS at {apex}, the zone's own apex: it belongs into the zone above, beside the delegation (RFC 4035 §2.4)"
            ),
            Warning::Iterations { apex, count } => {
                write!(
                    f,
                    "NSEC3 of {apex} has {count} iterations: 0 is right (RFC 9276 §3.1)"
                )
            }
            Warning::StrayNsec3 { apex, first, count } => write!(
                f,
                "{count} NSEC3 records of {apex} are not in the chain that its NSEC3PARAM record tells of, and prove nothing, \
                 {first} first"
            ),
            Warning::NoChain { apex } => write!(
                f,
                "{apex} has keys, but neither NSEC nor a chain of NSEC3 records at its apex: nothing proves what is not there"
            ),
            other => write!(f, "{other:?}"),
        }
    }
}
