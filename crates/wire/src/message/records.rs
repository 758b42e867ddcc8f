//! Walks the records of a message (RFC 1035 §4.1.3) without following pointers: linear in the message's length.

use super::header::Header;
use crate::name::compressed;

/// The sections behind the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    Answer,
    Authority,
    Additional,
}

/// One record, as places in its message.
///
/// ```text
/// owner_start name │ type 2 │ class 2 │ ttl_start TTL 4 │ length 2 │ rdata_start … rdata_end
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The section it is in.
    pub section: Section,
    /// Where its owner's name starts; it may be compressed: see [`compressed::expand`].
    pub owner_start: u16,
    /// Its type: see [`crate::codes::qtype`].
    pub rtype: u16,
    /// Its class; of an OPT record the payload size.
    pub class: u16,
    /// The four octets where the TTL is, as a number. See [`crate::ttl::effective`] for what they mean.
    pub ttl: u32,
    /// Where these octets are.
    pub ttl_start: u16,
    /// Where the record's data start.
    pub rdata_start: u16,
    /// Where they end, and the record.
    pub rdata_end: u16,
}

impl Record {
    /// Its data within its message; empty for another, shorter one.
    #[must_use]
    pub fn rdata<'m>(&self, message: &'m [u8]) -> &'m [u8] {
        message
            .get(self.rdata_start.into()..self.rdata_end.into())
            .unwrap_or_default()
    }
}

/// A record was promised that is not there whole, or whose name is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenRecord;

/// The records of a message, section by section. After a broken one there is none.
#[derive(Clone, Debug)]
pub struct Records<'m> {
    message: &'m [u8],
    at: usize,
    /// What is left of each section.
    counts: [u16; 3],
}

impl<'m> Records<'m> {
    /// Walks from `start`, the end of the question, as many records as the header counts.
    #[inline]
    #[must_use]
    pub fn new(message: &'m [u8], start: u16, header: &Header) -> Records<'m> {
        Records {
            message: super::bounded(message),
            at: start.into(),
            counts: [
                header.answer_count(),
                header.authority_count(),
                header.additional_count(),
            ],
        }
    }

    /// Where the next record starts; at last, where the message ends.
    #[inline]
    #[must_use]
    pub const fn position(&self) -> u16 {
        // Never past the bounded message.
        self.at as u16
    }

    #[inline]
    fn section(&mut self) -> Option<Section> {
        const SECTIONS: [Section; 3] = [Section::Answer, Section::Authority, Section::Additional];
        let (count, section) = self
            .counts
            .iter_mut()
            .zip(SECTIONS)
            .find(|(count, _)| **count != 0)?;
        *count -= 1;
        Some(section)
    }

    #[inline]
    fn record(&mut self, section: Section) -> Option<Record> {
        let fixed = compressed::skip(self.message, self.at).ok()?;
        let fields: &[u8; 10] = self.message.get(fixed..)?.first_chunk()?;
        let [
            type_high,
            type_low,
            class_high,
            class_low,
            ttl @ ..,
            length_high,
            length_low,
        ] = *fields;
        let rdata_start = fixed + fields.len();
        let rdata_end = rdata_start + usize::from(u16::from_be_bytes([length_high, length_low]));
        if rdata_end > self.message.len() {
            return None;
        }
        let owner_start = self.at as u16;
        self.at = rdata_end;
        Some(Record {
            section,
            owner_start,
            rtype: u16::from_be_bytes([type_high, type_low]),
            class: u16::from_be_bytes([class_high, class_low]),
            ttl: u32::from_be_bytes(ttl),
            ttl_start: (fixed + 4) as u16,
            rdata_start: rdata_start as u16,
            rdata_end: rdata_end as u16,
        })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, BrokenRecord>;

    // Whatever is parsed passes here; left to the compiler, its choice changes with the number of callers elsewhere: 100
    // instructions a query.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let section = self.section()?;
        let record = self.record(section);
        if record.is_none() {
            self.counts = [0; 3];
        }
        Some(record.ok_or(BrokenRecord))
    }
}
