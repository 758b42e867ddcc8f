//! Zone transfers as pure state machines: octets and records in, records and octets out.
//!
//! | module | what | RFCs |
//! | --- | --- | --- |
//! | [`change`] | from one version of a zone to the next | 1995 |
//! | [`outgoing`] | a zone, or its changes, as messages | 5936 (AXFR), 1995 (IXFR) |
//! | [`incoming`] | messages as records, believed only where they hold together | the same |
//! | [`query`] | the questions of both, SOA queries and NOTIFY | the same, 1996 |
//! | [`journal`] | changes in a file that is only appended to | |
//! | [`snapshot`] | a whole zone in a file | |
//! | [`apply`] | changes carried out on a compiled zone | 1995 |
//! | [`serial`] | which zone is newer | 1982 |

pub mod apply;
pub mod change;
pub mod incoming;
pub mod journal;
pub mod outgoing;
pub mod query;
pub mod serial;
pub mod snapshot;

pub use change::{Change, Patch, PatchError};

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

#[cfg(test)]
mod tests;
