//! Changes carried out on a compiled zone (RFC 1995 §4): another zone, or why they do not fit.

use super::{Change, Patch, PatchError};
use crate::record::Record;
use crate::zone::{Changed, Warning, Zone, ZoneBuilder, ZoneError};
use std::fmt;

/// Why changes lead to no zone. The old one stays.
#[derive(Debug)]
pub enum ApplyError {
    /// They do not fit the zone, or each other.
    Patch(PatchError),
    /// What they lead to is no zone.
    Zone(ZoneError),
    /// They begin with another serial than the zone's; theirs, and the zone's.
    Serial(u32, u32),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyError::Patch(error) => write!(f, "{error}"),
            ApplyError::Zone(error) => write!(f, "{error}"),
            ApplyError::Serial(from, held) => {
                write!(f, "changes from serial {from}: {held} is held")
            }
        }
    }
}

impl std::error::Error for ApplyError {}

/// The zone that `changes`, which follow each other, make of `zone`; and what is odd about it, where all of it was compiled
/// anew. Where little has changed since that was done last, the changed names are, and the others are shared with `zone`.
///
/// # Errors
/// Why there is none.
pub fn apply(zone: &Zone, changes: &[Change]) -> Result<(Zone, Vec<Warning>), ApplyError> {
    let mut patch = Patch::new(changes).map_err(ApplyError::Patch)?;
    let held = zone.soa().serial;
    if patch.from_serial() != held {
        return Err(ApplyError::Serial(patch.from_serial(), held));
    }
    let mut changed = Changed::new();
    for owner in patch.owners() {
        let records = zone.records_of(owner);
        changed.insert(owner.into(), records);
    }
    for records in changed.values_mut() {
        records.retain(|record| patch.keeps(record.as_ref()));
    }
    let soa = patch.soa().clone();
    for record in patch
        .finish()
        .map_err(ApplyError::Patch)?
        .into_iter()
        .chain([soa])
    {
        let owner = record.owner.to_ascii_lowercase().into();
        changed.entry(owner).or_default().push(record);
    }
    match zone.with_changed(&changed).map_err(ApplyError::Zone)? {
        Some(zone) => Ok((zone, Vec::new())),
        None => whole(zone, &changed).map_err(ApplyError::Zone),
    }
}

/// The same, made of all records.
fn whole(zone: &Zone, changed: &Changed) -> Result<(Zone, Vec<Warning>), ZoneError> {
    let apex = zone.apex();
    let mut builder = ZoneBuilder::new(apex.as_name());
    let mut push = |record: &Record| builder.push(record.as_ref());
    changed.values().flatten().try_for_each(&mut push)?;
    for record in zone.records() {
        if !changed.contains_key(&*record.owner.to_ascii_lowercase()) {
            push(&record)?;
        }
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdata;
    use wire::codes::qtype;
    use wire::name::NameBuf;

    fn record(owner: &str, kind: u16, text: &str) -> Record {
        let (owner, apex): (NameBuf, NameBuf) =
            (owner.parse().unwrap(), "example".parse().unwrap());
        Record {
            owner: owner.as_name().as_bytes().into(),
            kind,
            class: 1,
            ttl: 60,
            rdata: rdata::parse(kind, text, apex.as_name()).unwrap(),
        }
    }

    fn soa(serial: u32) -> Record {
        record(
            "example",
            qtype::SOA,
            &format!("ns host {serial} 1h 15m 4w 5m"),
        )
    }

    fn step(from: u32, removed: &str, added: &str) -> Change {
        Change {
            from: soa(from),
            removed: vec![record("www.example", qtype::A, removed)],
            to: soa(from + 1),
            added: vec![record("WWW.example", qtype::A, added)],
        }
    }

    #[test]
    fn changes_make_another_zone_or_none() {
        let apex: NameBuf = "example".parse().unwrap();
        let records = [
            soa(1),
            record("example", qtype::NS, "ns"),
            record("ns.example", qtype::A, "192.0.2.1"),
            record("www.example", qtype::A, "192.0.2.2"),
        ];
        let (zone, _) = Zone::build(apex.as_name(), records).unwrap();
        let steps = [
            step(1, "192.0.2.2", "192.0.2.3"),
            step(2, "192.0.2.3", "192.0.2.4"),
        ];
        let (newer, _) = apply(&zone, &steps).unwrap();
        let listed: Vec<String> = newer.records().map(|record| record.to_string()).collect();
        assert_eq!((newer.soa().serial, listed.len()), (3, 4));
        assert_eq!(listed[3], "WWW.example. 60 IN A 192.0.2.4");
        let error = |steps: &[Change]| apply(&zone, steps).unwrap_err().to_string();
        assert_eq!(error(&steps[1..]), "changes from serial 2: 1 is held");
        let lies = step(1, "192.0.2.9", "192.0.2.3");
        assert!(error(&[lies]).contains("the zone has no such record"));
        let mut without_server = step(1, "192.0.2.2", "192.0.2.3");
        without_server
            .removed
            .push(record("example", qtype::NS, "ns"));
        assert!(matches!(
            apply(&zone, &[without_server]),
            Err(ApplyError::Zone(_))
        ));
    }

    fn numbered(number: u32) -> Record {
        record(&format!("n{number}.example"), qtype::A, "192.0.2.9")
    }

    /// The names that change are made anew, the others are shared; when an eighth has changed, all are compiled together.
    #[test]
    fn a_change_touches_what_it_changes() {
        let apex: NameBuf = "example".parse().unwrap();
        let mut records = vec![soa(1), record("example", qtype::NS, "ns.example.")];
        records.extend((0..2_000).map(numbered));
        let (mut zone, _) = Zone::build(apex.as_name(), records).unwrap();
        assert_eq!(zone.changed_count(), 0);
        let whole = zone.memory();
        let mut counts = Vec::new();
        for step in 0..8 {
            let change = Change {
                from: soa(1 + step),
                removed: (50 * step..50 * (step + 1)).map(numbered).collect(),
                to: soa(2 + step),
                added: vec![numbered(5_000 + step)],
            };
            (zone, _) = apply(&zone, &[change]).unwrap();
            counts.push(zone.changed_count());
            let records: Vec<Record> = zone.records().collect();
            let (fresh, _) = Zone::build(apex.as_name(), records.clone()).unwrap();
            assert_eq!(fresh.records().collect::<Vec<_>>(), records);
            assert_eq!(zone.names_count(), fresh.names_count());
            assert!(zone.memory() < whole + whole / 4);
        }
        // The apex and what came; 250 and 64 names may have changed, those that are gone counted.
        assert_eq!(counts, [2, 3, 4, 5, 6, 7, 0, 2]);
    }
}
