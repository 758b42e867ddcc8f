//! A whole zone in a file, from which changes in a journal lead on. Octets only: whoever holds the file writes it beside
//! the old one, calls fsync, and renames it.
//!
//! ```text
//! file:   "millrace zone 1\n" │ zone's name … │ serial 4 │ record │ record │ … │ 0xff │ checksum 16
//! record: owner … │ type 2 │ class 2 │ TTL 4 │ length 2 │ RDATA …       no owner begins with 0xff
//! ```
//!
//! The checksum covers everything before it (SHA-256, cut to 16 octets): a file that was not written whole is none.

use super::journal::view;
use super::query::append;
use crate::record::RecordRef;
use sha2::{Digest, Sha256};
use std::fmt;
use wire::name::{Name, NameBuf};

const MAGIC: &[u8] = b"millrace zone 1\n";
const END: u8 = 0xff;
const CHECKSUM_LENGTH: usize = 16;

/// Why a file is no snapshot of the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// It begins otherwise.
    NotOne,
    /// It is another zone's.
    OtherZone(NameBuf),
    /// It was not written whole, or was changed since.
    Damaged,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::NotOne => {
                f.write_str("no zone's snapshot: remove it, and it is made anew")
            }
            SnapshotError::OtherZone(zone) => {
                write!(
                    f,
                    "snapshot of zone {zone}: each zone needs a file of its own"
                )
            }
            SnapshotError::Damaged => {
                f.write_str("checksum of the snapshot is wrong: remove it, and it is made anew")
            }
        }
    }
}

impl std::error::Error for SnapshotError {}

/// A snapshot while it is written: each function appends octets to `out`, which the caller writes to the file in this
/// order, and may clear between calls.
pub struct Writer(Sha256);

impl Writer {
    /// Begins the file.
    pub fn new(zone: Name<'_>, serial: u32, out: &mut Vec<u8>) -> Writer {
        let start = out.len();
        out.extend(MAGIC);
        out.extend(zone.as_bytes().to_ascii_lowercase());
        out.extend(serial.to_be_bytes());
        Writer(Sha256::new_with_prefix(&out[start..]))
    }

    /// Adds a record.
    pub fn record(&mut self, record: RecordRef<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        append(out, record);
        self.0.update(&out[start..]);
    }

    /// Ends the file.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        out.push(END);
        self.0.update([END]);
        out.extend(&self.0.finalize()[..CHECKSUM_LENGTH]);
    }
}

/// The serial in a file of which the first octets are here; nothing else is checked.
///
/// # Errors
/// It is no snapshot of the zone.
pub fn serial(octets: &[u8], zone: Name<'_>) -> Result<u32, SnapshotError> {
    head(octets, zone).map(|(serial, _)| serial)
}

/// Octets that [`serial`] needs.
pub const HEAD_LENGTH_MAX: usize = MAGIC.len() + wire::name::NAME_LENGTH_MAX + 4;

/// The serial, and what stands behind it.
fn head<'o>(octets: &'o [u8], zone: Name<'_>) -> Result<(u32, &'o [u8]), SnapshotError> {
    let rest = octets.strip_prefix(MAGIC).ok_or(SnapshotError::NotOne)?;
    let name = Name::parse(rest).map_err(|_| SnapshotError::NotOne)?;
    if name != zone {
        return Err(SnapshotError::OtherZone(name.to_owned()));
    }
    let (serial, records) = rest[name.len()..]
        .split_first_chunk()
        .ok_or(SnapshotError::Damaged)?;
    Ok((u32::from_be_bytes(*serial), records))
}

/// The records of a snapshot of `zone`, whose checksum is right.
///
/// # Errors
/// The file is none, or damaged: nothing of it may be used.
pub fn read<'o>(octets: &'o [u8], zone: Name<'_>) -> Result<Records<'o>, SnapshotError> {
    head(octets, zone)?;
    let (covered, checksum) = octets
        .split_last_chunk::<CHECKSUM_LENGTH>()
        .ok_or(SnapshotError::Damaged)?;
    if Sha256::digest(covered)[..CHECKSUM_LENGTH] != *checksum {
        return Err(SnapshotError::Damaged);
    }
    let (_, records) = head(covered, zone)?;
    let rest = records.strip_suffix(&[END]).ok_or(SnapshotError::Damaged)?;
    Ok(Records(rest))
}

/// The records of a snapshot, the SOA first.
pub struct Records<'o>(&'o [u8]);

impl<'o> Iterator for Records<'o> {
    type Item = Result<RecordRef<'o>, SnapshotError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = view(&mut self.0);
        if record.is_none() {
            self.0 = &[];
        }
        Some(record.ok_or(SnapshotError::Damaged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    fn zone() -> NameBuf {
        "example.com".parse().unwrap()
    }

    fn records() -> Vec<Record> {
        let record = |kind, rdata: &[u8]| Record {
            owner: b"\x07Example\x03com\x00"[..].into(),
            kind,
            class: 1,
            ttl: 5,
            rdata: rdata.into(),
        };
        vec![record(6, &[0; 22]), record(1, &[192, 0, 2, 1])]
    }

    fn written() -> Vec<u8> {
        let mut octets = Vec::new();
        let mut writer = Writer::new(zone().as_name(), 7, &mut octets);
        for record in records() {
            writer.record(record.as_ref(), &mut octets);
        }
        writer.finish(&mut octets);
        octets
    }

    #[test]
    fn a_snapshot_there_and_back() {
        let octets = written();
        let read: Vec<Record> = read(&octets, zone().as_name())
            .unwrap()
            .map(|record| record.unwrap().to_owned())
            .collect();
        assert_eq!(read, records());
        assert_eq!(serial(&octets, zone().as_name()), Ok(7));
        let other: NameBuf = "example.net".parse().unwrap();
        let error = serial(&octets, other.as_name());
        assert_eq!(error, Err(SnapshotError::OtherZone(zone())));
    }

    #[test]
    fn f37_a_snapshot_cut_or_changed_anywhere_is_none() {
        let octets = written();
        for at in 0..octets.len() {
            assert!(
                read(&octets[..at], zone().as_name()).is_err(),
                "cut at {at}"
            );
            let mut changed = octets.clone();
            changed[at] ^= 0x10;
            assert!(read(&changed, zone().as_name()).is_err(), "octet {at}");
        }
    }
}
