//! RDATA of every type in use: on the wire, as text, checked, in canonical form.
//!
//! A type is a row of fields ([`table`]); what walks over fields ([`walk`]) is written once and serves every function
//! here. Types without a row, and any type where wanted, are written as RFC 3597 §5 says.
//!
//! | RFC | types |
//! | --- | --- |
//! | 1035 | A, NS, CNAME, SOA, WKS, PTR, HINFO, MINFO, MX, TXT, MB, MD, MF, MG, MR |
//! | 1183, 1348, 1706, 1712, 1876, 2163 | RP, AFSDB, X25, ISDN, RT; NSAP, GPOS, LOC, PX |
//! | 2230, 2782, 3123, 3403, 3596, 4398, 4025, 4701, 6672 | KX, SRV, APL, NAPTR, AAAA, CERT, IPSECKEY, DHCID, DNAME |
//! | 4034, 5155, 7344, 4255, 6698, 8162, 8005, 7477, 8976 | DNSSEC, SSHFP, TLSA, SMIMEA, HIP, CSYNC, ZONEMD |
//! | 2874, drafts | A6; SINK (draft-eastlake-kitchen-sink), DOA (draft-durand-doa-over-dns) |
//! | 6742, 7043, 7553, 7929, 8659, 8777, 9460, 9461, 9540, 9859 | ILNP, EUI48, EUI64, URI, OPENPGPKEY, CAA, AMTRELAY, SVCB, HTTPS, DSYNC |

mod a6;
pub(crate) mod kinds;
mod location;
mod params;
mod prefixes;
pub(crate) mod print;
pub(crate) mod read;
pub(crate) mod table;
mod walk;

use crate::file::token::tokenize_rdata;
use crate::file::words::Words;
use std::fmt;
use std::ops::Range;
use table::Field;
use walk::{Names, walk};
use wire::name::{NAME_LENGTH_MAX, Name, compressed};

/// RDLENGTH has 16 bits (RFC 1035 §3.2.1).
pub const RDATA_LENGTH_MAX: usize = 65_535;

/// Why RDATA on the wire is not that of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdataError {
    /// Octets from the start of the RDATA to the field that is wrong.
    pub at: usize,
    /// What is wrong with it, and what would be right.
    pub what: &'static str,
}

impl fmt::Display for RdataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "octet {} of the RDATA: {}", self.at, self.what)
    }
}

impl std::error::Error for RdataError {}

/// The number of a service parameter's key by its name, `key667` being that of any (RFC 9460 §14.3).
pub fn service_parameter(name: &str) -> Option<u16> {
    params::key(name.as_bytes())
}

/// A time as RRSIG records have it, in seconds since 1970, which wrap: `YYYYMMDDHHmmSS` or a plain number (RFC 4034 §3.2).
/// `None`: it is neither.
#[must_use]
pub fn time(text: &str) -> Option<u32> {
    read::time(text.as_bytes())
}

/// Checks that `rdata` is one of this type: lengths, names, order where order is prescribed. Any octets are right for a
/// type that is not known.
///
/// # Errors
/// The first field that is wrong.
pub fn check(kind: u16, rdata: &[u8]) -> Result<(), RdataError> {
    match table::row(kind) {
        Some(row) => walk(rdata, 0..rdata.len(), row, Names::Whole, |_, _| {}),
        None => Ok(()),
    }
}

/// The RDATA of this type that `text` says; relative names end with `origin` (as on the wire).
///
/// # Errors
/// What is wrong, and what would be right.
pub fn parse(kind: u16, text: &str, origin: Name<'_>) -> Result<Box<[u8]>, String> {
    let mut tokens = Vec::new();
    // A blank at the start and words behind the end of a line mean nothing here: one line is one RDATA.
    let extent = tokenize_rdata(kind, text.as_bytes(), &mut tokens).map_err(|_| {
        "quotes or parentheses are not closed: each belongs to a pair within the text".to_owned()
    })?;
    if extent.length < text.len() {
        return Err("RDATA of several lines: parentheses join lines".to_owned());
    }
    let mut words = Words::new(text.as_bytes(), &tokens, origin.as_bytes());
    let mut rdata = Vec::new();
    read::read(kind, &mut words, &mut rdata).map_err(|wrong| wrong.what)?;
    Ok(rdata.into())
}

/// Appends the RDATA at `range` of `message`, its names expanded, to `out`, and checks it.
///
/// Names may be compressed where RFC 3597 §4 tells receivers to expect it, and in other types that name a lower-case
/// canonical form.
///
/// # Errors
/// The first field that is wrong.
pub fn expand(
    kind: u16,
    message: &[u8],
    range: Range<usize>,
    out: &mut Vec<u8>,
) -> Result<(), RdataError> {
    let Some(row) = table::row(kind) else {
        out.extend_from_slice(message.get(range).unwrap_or_default());
        return Ok(());
    };
    let start = out.len();
    let mut pointer = None;
    walk(
        message,
        range.clone(),
        row,
        Names::InMessage,
        |field, place| {
            let mut buffer = [0; NAME_LENGTH_MAX];
            if field != Field::Name {
                out.extend_from_slice(&message[place]);
            } else if let Ok(name) = compressed::expand(message, place.start, &mut buffer) {
                out.extend_from_slice(name.as_bytes());
            } else {
                pointer.get_or_insert(place.start - range.start);
            }
        },
    )?;
    // Names that were cut short behind a pointer are only found when it is followed.
    if let Some(at) = pointer {
        let what = "compressed name is malformed where its pointer leads";
        return Err(RdataError { at, what });
    }
    if out.len() - start > RDATA_LENGTH_MAX {
        let what = "RDATA grows past 65535 octets when its names are expanded";
        return Err(RdataError { at: 0, what });
    }
    Ok(())
}

/// Appends the canonical form: names of the types that RFC 4034 §6.2 and RFC 6840 §5.1 list in lower case. Malformed
/// RDATA is appended as it is.
pub fn canonical(kind: u16, rdata: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(rdata);
    names(kind, rdata, |place, lowered| {
        if lowered {
            // Length octets are at most 63 and no letters.
            out[start + place.start..start + place.end].make_ascii_lowercase();
        }
    });
}

/// Shows the place of each name in well-formed RDATA, and whether it is a name that canonical form lowers; those are
/// also the only ones that may be compressed, in types of RFC 1035 (RFC 3597 §4).
pub fn names(kind: u16, rdata: &[u8], mut each: impl FnMut(Range<usize>, bool)) {
    let Some(row) = table::row(kind) else { return };
    // What is malformed has no names behind that place; callers checked before.
    let _ = walk(rdata, 0..rdata.len(), row, Names::Whole, |field, place| {
        match field {
            // A6's is in RFC 4034's list too, though it is never compressed.
            Field::Name | Field::PrefixName => each(place, true),
            Field::PlainName => each(place, false),
            _ => {}
        }
    });
}

/// The types in the bit map of well-formed RDATA of an NSEC, NSEC3 or CSYNC record, ascending.
pub fn bitmap_kinds(map: &[u8]) -> impl Iterator<Item = u16> + '_ {
    kinds::each(map)
}

/// Appends the bit map of these types (RFC 4034 §4.1.2); sorts them.
pub fn bitmap(kinds: &mut [u16], out: &mut Vec<u8>) {
    kinds::write(kinds, out);
}

/// RDATA as text: in the form of its type; what is unknown or malformed as RFC 3597 §5 writes it.
#[derive(Clone, Copy, Debug)]
pub struct RdataText<'r>(pub u16, pub &'r [u8]);

impl fmt::Display for RdataText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        print::print(self.0, self.1, &mut text);
        f.write_str(text.strip_prefix(' ').unwrap_or(&text))
    }
}

#[cfg(test)]
mod tests;
