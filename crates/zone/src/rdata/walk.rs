//! Walks over the fields of RDATA on the wire and checks each: the one reading that printing, checking, canonical form
//! and expansion of compressed names share.

use super::table::Field;
use super::{RdataError, a6, kinds, location, params, prefixes};
use std::ops::Range;
use wire::name::{Name, NameError, compressed};

/// How names lie there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// Whole.
    Whole,
    /// As in a message from its header on: fields that may be compressed may be.
    InMessage,
}

/// What is not there whole.
const SHORT: &str = "RDATA ends within a field: every field of its type is needed";

/// Walks the RDATA at `range` of `octets`, and shows each field and its place to `each`.
pub(super) fn walk(
    octets: &[u8],
    range: Range<usize>,
    row: &[Field],
    names: Names,
    mut each: impl FnMut(Field, Range<usize>),
) -> Result<(), RdataError> {
    let wrong = |at: usize, what| RdataError {
        at: at.saturating_sub(range.start),
        what,
    };
    let octets = octets.get(..range.end).ok_or(wrong(range.start, SHORT))?;
    let mut at = range.start;
    for field in row {
        let place = Place {
            octets,
            start: range.start,
            at,
            names,
        };
        let length = place.length(*field).map_err(|what| wrong(at, what))?;
        let end = at + length;
        if end > range.end {
            return Err(wrong(at, SHORT));
        }
        each(*field, at..end);
        at = end;
    }
    if at != range.end {
        return Err(wrong(
            at,
            "octets behind the last field: the RDATA of this type ends here",
        ));
    }
    Ok(())
}

struct Place<'o> {
    octets: &'o [u8],
    start: usize,
    at: usize,
    names: Names,
}

impl Place<'_> {
    fn rest(&self) -> &[u8] {
        self.octets.get(self.at..).unwrap_or_default()
    }

    /// Octets of the field that begins here; more than there are where it is cut.
    fn length(&self, field: Field) -> Result<usize, &'static str> {
        let rest = self.rest();
        match field {
            Field::U8 | Field::Word8(_) | Field::RelayKind => Ok(1),
            Field::U16 | Field::Word16(_) | Field::Kind => Ok(2),
            Field::U32 | Field::Seconds | Field::Time | Field::Ip4 => Ok(4),
            Field::Node => Ok(8),
            Field::Ip6 => Ok(16),
            Field::Eui(length) => Ok(length),
            Field::Name => self.name(self.names),
            Field::PlainName => self.name(Names::Whole),
            Field::Text | Field::Salt => counted(rest),
            Field::OptionalText if rest.is_empty() => Ok(0),
            Field::OptionalText => counted(rest),
            Field::Texts => texts(rest),
            Field::Tag => tag(rest),
            Field::Hash => match counted(rest)? {
                1 => Err("empty hash: at least one octet is needed"),
                length => Ok(length),
            },
            Field::LongText | Field::OptionalBase64 | Field::Base64OrDash => Ok(rest.len()),
            Field::Base64 | Field::Nsap => at_least(1, rest),
            Field::Hex(least) => at_least(least, rest),
            Field::Digest => self.digest(),
            Field::Kinds => kinds::check(rest),
            Field::Gateway(mask) => self.gateway(mask),
            Field::AddressSuffix => a6::check(rest),
            Field::PrefixName if self.octets[self.start] == 0 => Ok(0),
            // RFC 2874 §3.1: "By the rules of [DNSIS], this name MUST NOT be compressed."
            Field::PrefixName => self.name(Names::Whole),
            Field::Location => location::check(rest),
            Field::Prefixes => prefixes::check(rest),
            Field::Params => params::check(rest),
            Field::HostIdentity => host_identity(rest),
            Field::Services => services(rest),
        }
    }

    fn name(&self, names: Names) -> Result<usize, &'static str> {
        let length = match names {
            Names::Whole => Name::parse(self.rest()).map(|name| name.len()),
            Names::InMessage => compressed::skip(self.octets, self.at).map(|end| end - self.at),
        };
        length.map_err(|error| match error {
            NameError::Truncated => "name runs past the end of the RDATA",
            NameError::TooLong => "name longer than 255 octets",
            NameError::LabelType => "label type 01 or 10: only lengths up to 63 are defined",
            NameError::Compressed => "compressed name where none may be compressed (RFC 3597 §4)",
            NameError::Pointer => "compression pointer that does not lead back to an earlier name",
        })
    }

    fn digest(&self) -> Result<usize, &'static str> {
        let length = self.rest().len();
        // The octet before is the digest's type.
        if length != digest_length(self.octets[self.at - 1]).unwrap_or(length.max(1)) {
            return Err(
                "digest has a wrong length: 20 octets for SHA-1, 32 for SHA-256, 48 for SHA-384",
            );
        }
        Ok(length)
    }

    fn gateway(&self, mask: u8) -> Result<usize, &'static str> {
        match self.octets[self.start + 1] & mask {
            0 => Ok(0),
            1 => Ok(4),
            2 => Ok(16),
            3 => self.name(Names::Whole),
            _ => Err("unknown kind of gateway: 0 is none, 1 IPv4, 2 IPv6, 3 a name"),
        }
    }
}

/// Octets of a digest: IANA's "DS RR Type Digest Algorithms".
pub(super) fn digest_length(kind: u8) -> Option<usize> {
    match kind {
        1 => Some(20),
        2 | 3 | 5 | 6 => Some(32),
        4 => Some(48),
        _ => None,
    }
}

/// All that is left, if it is as long as it must be.
fn at_least(least: usize, rest: &[u8]) -> Result<usize, &'static str> {
    match rest.len() {
        length if length >= least => Ok(length),
        0 => Err("last field is empty: at least one octet is needed"),
        _ => Err("digest too short: ZONEMD has at least 12 octets (RFC 8976 §2.2.4)"),
    }
}

fn counted(rest: &[u8]) -> Result<usize, &'static str> {
    let length = rest.first().ok_or(SHORT)?;
    Ok(1 + usize::from(*length))
}

fn texts(rest: &[u8]) -> Result<usize, &'static str> {
    let mut at = 0;
    loop {
        at += counted(rest.get(at..).unwrap_or_default())?;
        if at >= rest.len() {
            return Ok(at);
        }
    }
}

fn tag(rest: &[u8]) -> Result<usize, &'static str> {
    let length = counted(rest)?;
    let tag = rest.get(1..length).ok_or(SHORT)?;
    // RFC 8659 §4.1: "Tags MUST NOT be zero length"; "ASCII letters … and digits".
    if tag.is_empty() || !tag.iter().all(u8::is_ascii_alphanumeric) {
        return Err("tag: one or more letters and digits are needed (RFC 8659 §4.1)");
    }
    Ok(length)
}

/// ```text
/// HIT length 1 │ algorithm 1 │ key length 2 │ HIT … │ key … │ names of rendezvous servers …
/// ```
fn host_identity(rest: &[u8]) -> Result<usize, &'static str> {
    let [hit_length, _, key_high, key_low, ..] = rest else {
        return Err(SHORT);
    };
    let key_length = usize::from(u16::from_be_bytes([*key_high, *key_low]));
    if *hit_length == 0 || key_length == 0 {
        return Err("host identity without a tag or without a key: both are needed");
    }
    let mut at = 4 + usize::from(*hit_length) + key_length;
    while at < rest.len() {
        at += Name::parse(&rest[at..])
            .map_err(|_| "name of a rendezvous server is malformed")?
            .len();
    }
    Ok(at)
}

/// Protocol and bit map of ports.
fn services(rest: &[u8]) -> Result<usize, &'static str> {
    match rest.len() {
        0 => Err(SHORT),
        1..=8_193 => Ok(rest.len()),
        _ => Err("bit map of ports longer than 8192 octets: these hold all ports"),
    }
}
