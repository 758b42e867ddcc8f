//! Where names are in the data of records, as far as answers need to know.

use wire::codes::qtype;

/// Octets before the first name, and names that follow each other from there, in data whose names may be compressed.
///
/// RFC 3597 §4: "servers MUST NOT compress domain names embedded in the RDATA of types that are class-specific or not
/// well-known", which are those of RFC 1035.
pub(crate) fn compressible(kind: u16) -> Option<(usize, usize)> {
    match kind {
        qtype::NS
        | qtype::MD
        | qtype::MF
        | qtype::CNAME
        | qtype::MB
        | qtype::MG
        | qtype::MR
        | qtype::PTR => Some((0, 1)),
        qtype::SOA | qtype::MINFO => Some((0, 2)),
        qtype::MX => Some((2, 1)),
        _ => None,
    }
}

/// Where the name is whose addresses belong in the additional section (RFC 1035 §3.3.9, §3.3.11, RFC 2782, RFC 9460 §4.1).
pub(crate) fn target(kind: u16) -> Option<usize> {
    match kind {
        qtype::NS => Some(0),
        qtype::MX | qtype::SVCB | qtype::HTTPS => Some(2),
        qtype::SRV => Some(6),
        _ => None,
    }
}

/// What a signature's data say it signs (RFC 4034 §3.1.1).
pub(crate) fn covered(rrsig: &[u8]) -> Option<u16> {
    rrsig.first_chunk().map(|kind| u16::from_be_bytes(*kind))
}
