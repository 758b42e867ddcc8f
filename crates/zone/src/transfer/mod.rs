//! Zone transfers as pure state machines: octets and records in, records and octets out.
//!
//! | module | what | RFCs |
//! | --- | --- | --- |
//! | [`outgoing`] | a zone, or its changes, as messages | 5936 (AXFR), 1995 (IXFR) |
//! | [`incoming`] | messages as records, believed only where they hold together | the same |
//! | [`query`] | the questions of both, SOA queries and NOTIFY | the same, 1996 |
//! | [`journal`] | changes in a file that is only appended to | |
//! | [`serial`] | which zone is newer | 1982 |

pub mod incoming;
pub mod journal;
pub mod outgoing;
pub mod query;
pub mod serial;

use crate::record::{Record, RecordRef};

/// A record, wherever its octets are.
pub trait AsRecord {
    /// A view of it.
    fn as_record(&self) -> RecordRef<'_>;
}

impl AsRecord for Record {
    fn as_record(&self) -> RecordRef<'_> {
        self.as_ref()
    }
}

impl AsRecord for RecordRef<'_> {
    fn as_record(&self) -> RecordRef<'_> {
        *self
    }
}

impl<R: AsRecord> AsRecord for &R {
    fn as_record(&self) -> RecordRef<'_> {
        (*self).as_record()
    }
}

/// The step from one version of a zone to another (RFC 1995 §4): records taken out, records put in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The SOA record before.
    pub from: Record,
    /// What goes, without the SOA.
    pub removed: Vec<Record>,
    /// The SOA record afterwards.
    pub to: Record,
    /// What comes, without the SOA.
    pub added: Vec<Record>,
}

impl Change {
    /// Serials before and afterwards; `None` where a SOA record is none.
    #[must_use]
    pub fn serials(&self) -> Option<(u32, u32)> {
        Some((
            serial::of_soa(&self.from.rdata)?,
            serial::of_soa(&self.to.rdata)?,
        ))
    }

    /// All its records in the order of RFC 1995 §4.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        let removed = std::iter::once(&self.from).chain(&self.removed);
        let added = std::iter::once(&self.to).chain(&self.added);
        removed.chain(added)
    }
}

#[cfg(test)]
mod tests;
