//! EDNS: the OPT record and its options (RFC 6891 §6.1).
//!
//! ```text
//! start │ 0 root name │ 1 type 2 │ 3 payload size 2 │ 5 extended RCODE 1 │ 6 version 1 │ 7 DO 1 bit, Z 15 │ 9 length 2 │ 11 options │ end
//! ```

use super::records::{Record, Section};
use crate::bytes::u16_at;
use crate::codes::qtype;

/// Octets of an OPT record without options.
pub const OPT_LENGTH: usize = 11;
/// The DO bit in the upper half of the flags (RFC 3225 §3).
pub(crate) const DNSSEC_OK: u16 = 0x8000;

/// The OPT record of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdnsParts {
    /// Where the record starts: its owner, one zero octet.
    pub start: u16,
    /// Where it ends.
    pub end: u16,
    /// The largest UDP payload its sender takes, in octets, as written: below 512 means 512 (RFC 6891 §6.2.3).
    pub payload_size: u16,
    /// The upper eight of the twelve bits of response code.
    pub extended_rcode: u8,
    /// 0 is the only version there is.
    pub version: u8,
    /// DNSSEC records are welcome.
    pub dnssec_ok: bool,
    /// The fifteen flags that mean nothing yet.
    pub z: u16,
}

/// Where the OPT record of a message is, and whether there is a TSIG record: gathered while its records are walked.
#[derive(Default)]
pub(super) struct EdnsSearch {
    found: Option<EdnsParts>,
    signature: bool,
}

/// An OPT record where none may be, or a malformed one.
pub(super) struct BadOpt;

impl EdnsSearch {
    /// Looks at one record of `message`.
    #[inline]
    pub(super) fn see(&mut self, message: &[u8], record: &Record) -> Result<(), BadOpt> {
        if record.rtype != qtype::OPT {
            self.signature |= record.rtype == qtype::TSIG;
            return Ok(());
        }
        // RFC 6891 §6.1.1: "If a query message with more than one OPT RR is received, a FORMERR (RCODE=1) MUST be
        // returned"; it belongs in the additional section, and its owner "MUST be 0 (root domain)".
        let at_root = message.get(usize::from(record.owner_start)) == Some(&0);
        if self.found.is_some() || record.section != Section::Additional || !at_root {
            return Err(BadOpt);
        }
        let edns = EdnsParts::of(record);
        // What the data of another version look like is not known.
        if edns.version == 0 && !options_fill(record.rdata(message)) {
            return Err(BadOpt);
        }
        self.found = Some(edns);
        Ok(())
    }

    #[inline]
    pub(super) fn found(self) -> Option<EdnsParts> {
        self.found
    }

    #[inline]
    pub(super) fn saw_signature(&self) -> bool {
        self.signature
    }
}

/// Whether options follow each other exactly to the end of the data.
#[inline]
fn options_fill(rdata: &[u8]) -> bool {
    let mut options = EdnsOptions(rdata);
    while options.next().is_some() {}
    options.0.is_empty()
}

impl EdnsParts {
    fn of(record: &Record) -> EdnsParts {
        let range = (record.owner_start, record.rdata_end);
        EdnsParts::with(range, record.class, record.ttl)
    }

    /// Where the OPT record ends that starts at `start` with the root as its owner; `None`: there is none, or it is malformed.
    #[inline(always)]
    pub(super) fn end_at(message: &[u8], start: u16) -> Option<u16> {
        const TYPE: [u8; 2] = qtype::OPT.to_be_bytes();
        let rest = message.get(start.into()..)?;
        let (fixed, rdata) = rest.split_first_chunk::<OPT_LENGTH>()?;
        let [0, t1, t2, _, _, _, version, _, _, l1, l2] = *fixed else {
            return None;
        };
        let rdata = rdata.get(..u16::from_be_bytes([l1, l2]).into())?;
        let is_good = rdata.is_empty() || version != 0 || options_fill(rdata);
        // Within the message, which is no longer than 65,535 octets.
        let end = start + OPT_LENGTH as u16 + rdata.len() as u16;
        ([t1, t2] == TYPE && is_good).then_some(end)
    }

    /// The OPT record from `start` to `end`; `None`: these octets are not there.
    #[inline(always)]
    pub(super) fn between(message: &[u8], start: u16, end: u16) -> Option<EdnsParts> {
        let fixed: &[u8; OPT_LENGTH] = message.get(start.into()..)?.first_chunk()?;
        let [_, _, _, c1, c2, ttl @ .., _, _] = *fixed;
        let class = u16::from_be_bytes([c1, c2]);
        Some(EdnsParts::with(
            (start, end),
            class,
            u32::from_be_bytes(ttl),
        ))
    }

    /// By the range of the record, its class and its TTL.
    #[inline(always)]
    fn with((start, end): (u16, u16), class: u16, ttl: u32) -> EdnsParts {
        let [extended_rcode, version, high, low] = ttl.to_be_bytes();
        let flags = u16::from_be_bytes([high, low]);
        EdnsParts {
            start,
            end,
            payload_size: class,
            extended_rcode,
            version,
            dnssec_ok: flags & DNSSEC_OK != 0,
            z: flags & !DNSSEC_OK,
        }
    }

    /// The options, in `message` from which these parts come.
    #[must_use]
    pub fn options<'m>(&self, message: &'m [u8]) -> EdnsOptions<'m> {
        let start = usize::from(self.start) + OPT_LENGTH;
        EdnsOptions(message.get(start..self.end.into()).unwrap_or_default())
    }

    /// The octets of the first option with this code, in `message` from which these parts come.
    #[must_use]
    pub fn option<'m>(&self, message: &'m [u8], code: u16) -> Option<&'m [u8]> {
        let mut options = self.options(message);
        let first = options.find(|option| option.code == code)?;
        Some(first.value)
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdnsOption<'m> {
    /// See [`crate::codes::edns_option`].
    pub code: u16,
    /// Its octets.
    pub value: &'m [u8],
}

/// The options of an OPT record; ends at the first that is not whole.
///
/// ```text
/// code 2 │ length 2 │ value …
/// ```
#[derive(Clone, Debug)]
pub struct EdnsOptions<'m>(&'m [u8]);

impl<'m> Iterator for EdnsOptions<'m> {
    type Item = EdnsOption<'m>;

    #[inline]
    fn next(&mut self) -> Option<EdnsOption<'m>> {
        let code = u16_at(self.0, 0)?;
        let length = u16_at(self.0, 2)?;
        let (value, rest) = self.0[4..].split_at_checked(length.into())?;
        self.0 = rest;
        Some(EdnsOption { code, value })
    }
}

/// An OPT record without options, version 0.
#[inline]
pub(crate) fn opt_record(
    payload_size: u16,
    extended_rcode: u8,
    dnssec_ok: bool,
) -> [u8; OPT_LENGTH] {
    let [type_high, type_low] = qtype::OPT.to_be_bytes();
    let [size_high, size_low] = payload_size.to_be_bytes();
    let flags = if dnssec_ok { (DNSSEC_OK >> 8) as u8 } else { 0 };
    [
        0,
        type_high,
        type_low,
        size_high,
        size_low,
        extended_rcode,
        0,
        flags,
        0,
        0,
        0,
    ]
}
