//! Changes in a file that is only appended to: what it needs to survive `kill -9` at any octet. Octets only: whoever holds
//! the file writes an entry whole, calls fsync, and only then serves the new serial.
//!
//! ```text
//! file:  "millrace journal 1\n" │ zone's name … │ checksum 16 │ entry │ entry │ …
//! entry: length of the body 4 │ body … │ checksum 16
//! body:  octets of what is removed 4 │ old SOA │ removed … │ new SOA │ added …
//! record: owner … │ type 2 │ class 2 │ TTL 4 │ length 2 │ RDATA …
//! ```
//!
//! A checksum covers the entry and the checksum before it (SHA-256, cut to 16 octets): an entry that was torn, moved, or
//! belongs to another file ends the journal there, and what precedes it is right.

use super::query::append;
use super::{Change, serial};
use crate::rdata;
use crate::record::{Record, RecordRef};
use sha2::{Digest, Sha256};
use std::fmt;
use wire::codes::qtype;
use wire::name::{Name, NameBuf};

const MAGIC: &[u8] = b"millrace journal 1\n";

/// What chains one entry to the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum([u8; 16]);

impl Checksum {
    fn of(previous: &[u8], octets: &[u8]) -> Checksum {
        let digest = Sha256::new()
            .chain_update(previous)
            .chain_update(octets)
            .finalize();
        let mut cut = [0; 16];
        cut.copy_from_slice(&digest[..16]);
        Checksum(cut)
    }
}

/// Why a file is no journal of the zone at all. A damaged tail is no error: see [`Journal::damage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// It begins otherwise.
    NotOne,
    /// It is another zone's.
    OtherZone(NameBuf),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::NotOne => f.write_str(
                "no journal, or its beginning is damaged: remove it, and secondaries get whole zones until it has grown anew",
            ),
            JournalError::OtherZone(zone) => write!(f, "journal of zone {zone}: each zone needs a file of its own"),
        }
    }
}

impl std::error::Error for JournalError {}

/// What a new file begins with, and what its first entry is chained to.
#[must_use]
pub fn header(zone: Name<'_>) -> (Vec<u8>, Checksum) {
    let mut octets = MAGIC.to_vec();
    octets.extend(zone.as_bytes().to_ascii_lowercase());
    let checksum = Checksum::of(&[], &octets);
    octets.extend(checksum.0);
    (octets, checksum)
}

/// An entry for `change`, to be appended behind the one that ends with `previous`; and what the next is chained to.
/// `None`: the change has more than the 4 GiB that an entry holds.
#[must_use]
pub fn entry(change: &Change, previous: Checksum) -> Option<(Vec<u8>, Checksum)> {
    let mut octets = vec![0; 8];
    append(&mut octets, change.from.as_ref());
    change
        .removed
        .iter()
        .for_each(|record| append(&mut octets, record.as_ref()));
    let removed_length = u32::try_from(octets.len() - 8).ok()?;
    append(&mut octets, change.to.as_ref());
    change
        .added
        .iter()
        .for_each(|record| append(&mut octets, record.as_ref()));
    let length = u32::try_from(octets.len() - 4).ok()?;
    octets[..4].copy_from_slice(&length.to_be_bytes());
    octets[4..8].copy_from_slice(&removed_length.to_be_bytes());
    let checksum = Checksum::of(&previous.0, &octets);
    octets.extend(checksum.0);
    Some((octets, checksum))
}

/// A journal that was read.
#[derive(Clone, Debug)]
pub struct Journal {
    /// Changes from the oldest to the newest; each begins where the one before ended.
    pub changes: Vec<Change>,
    /// Octets that are whole. The file must be cut to them before anything is appended.
    pub length: usize,
    /// What the next entry is chained to.
    pub checksum: Checksum,
    /// What stands behind: an entry that was torn, or something that does not belong there.
    pub damage: Option<&'static str>,
    /// The serial that the last entry behind that leads to, as far as what stands there can be read.
    pub lost: Option<u32>,
}

impl Journal {
    /// The changes that lead from this serial to the newest; `None` where it is not known, or is the newest.
    #[must_use]
    pub fn since(&self, serial: u32) -> Option<&[Change]> {
        let is_from = |change: &Change| change.serials().is_some_and(|(from, _)| from == serial);
        let start = self.changes.iter().rposition(is_from)?;
        Some(&self.changes[start..])
    }

    /// The changes that lead from one serial to another; `None` where one of them is not known.
    #[must_use]
    pub fn between(&self, from: u32, to: u32) -> Option<&[Change]> {
        let changes = self.since(from)?;
        let is_last = |change: &Change| change.serials().is_some_and(|(_, reached)| reached == to);
        let count = changes.iter().position(is_last)? + 1;
        Some(&changes[..count])
    }

    /// The serial that the newest change led to.
    #[must_use]
    pub fn newest(&self) -> Option<u32> {
        self.changes.last()?.serials().map(|(_, to)| to)
    }
}

/// Reads a journal of `zone`.
///
/// # Errors
/// The file is none, or another zone's: nothing may be appended to it.
pub fn read(octets: &[u8], zone: Name<'_>) -> Result<Journal, JournalError> {
    let rest = octets.strip_prefix(MAGIC).ok_or(JournalError::NotOne)?;
    let name = Name::parse(rest).map_err(|_| JournalError::NotOne)?;
    let (expected, checksum) = header(name);
    if !octets.starts_with(&expected) {
        return Err(JournalError::NotOne);
    }
    if name != zone {
        return Err(JournalError::OtherZone(name.to_owned()));
    }
    let mut journal = Journal {
        changes: Vec::new(),
        length: expected.len(),
        checksum,
        damage: None,
        lost: None,
    };
    while journal.length < octets.len() && journal.damage.is_none() {
        match next(&octets[journal.length..], &journal) {
            Ok((change, length, checksum)) => {
                journal.changes.push(change);
                journal.length += length;
                journal.checksum = checksum;
            }
            Err(damage) => journal.damage = Some(damage),
        }
    }
    journal.lost = last_serial(&octets[journal.length..]);
    Ok(journal)
}

/// The serial that the last of these entries leads to, whatever their checksums are.
fn last_serial(mut octets: &[u8]) -> Option<u32> {
    let mut last = None;
    while let Some((length, rest)) = octets.split_first_chunk() {
        let Some((body, rest)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize) else {
            break;
        };
        let serials = change(body).and_then(|change| change.serials());
        last = serials.map(|(_, to)| to).or(last);
        octets = rest.get(16..).unwrap_or_default();
    }
    last
}

/// The first entry of `octets`: its change, its length, its checksum.
fn next(octets: &[u8], journal: &Journal) -> Result<(Change, usize, Checksum), &'static str> {
    const TORN: &str = "the last entry was not written whole";
    let length = octets
        .first_chunk()
        .map(|length| u32::from_be_bytes(*length))
        .ok_or(TORN)?;
    let end = 4 + length as usize;
    let (covered, rest) = octets.split_at_checked(end).ok_or(TORN)?;
    let written = rest.first_chunk::<16>().ok_or(TORN)?;
    let checksum = Checksum::of(&journal.checksum.0, covered);
    if checksum.0 != *written {
        return Err("checksum of an entry is wrong");
    }
    let change = change(&covered[4..]).ok_or("an entry holds no change")?;
    let (from, to) = change.serials().ok_or("an entry holds no change")?;
    let last = journal.changes.last().and_then(Change::serials);
    if last.is_some_and(|(_, reached)| reached != from) || !serial::is_newer(to, from) {
        return Err("an entry does not continue the one before");
    }
    Ok((change, end + 16, checksum))
}

fn change(body: &[u8]) -> Option<Change> {
    let (length, rest) = body.split_first_chunk()?;
    let (removed, added) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (from, removed) = half(removed)?;
    let (to, added) = half(added)?;
    Some(Change {
        from,
        removed,
        to,
        added,
    })
}

/// A SOA record, and those behind it.
fn half(octets: &[u8]) -> Option<(Record, Vec<Record>)> {
    let mut rest = octets;
    let soa = record(&mut rest).filter(|record| record.kind == qtype::SOA)?;
    let mut records = Vec::new();
    while !rest.is_empty() {
        records.push(record(&mut rest)?);
    }
    Some((soa, records))
}

fn record(rest: &mut &[u8]) -> Option<Record> {
    let record = view(rest)?;
    rdata::check(record.kind, record.rdata).ok()?;
    Some(record.to_owned())
}

/// The record that `rest` begins with, which is taken off it.
pub(super) fn view<'o>(rest: &mut &'o [u8]) -> Option<RecordRef<'o>> {
    let owner = Name::parse(rest).ok()?;
    let (fixed, tail) = rest[owner.len()..].split_first_chunk::<10>()?;
    let [k0, k1, c0, c1, t0, t1, t2, t3, l0, l1] = *fixed;
    let (rdata, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes([l0, l1])))?;
    let owner = &rest[..owner.len()];
    *rest = tail;
    Some(RecordRef {
        owner,
        kind: u16::from_be_bytes([k0, k1]),
        class: u16::from_be_bytes([c0, c1]),
        ttl: u32::from_be_bytes([t0, t1, t2, t3]),
        rdata,
    })
}
