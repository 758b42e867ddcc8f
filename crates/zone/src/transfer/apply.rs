//! Changes carried out on a compiled zone (RFC 1995 §4): another zone, or why they do not fit.

use super::{Change, Patch, PatchError};
use crate::record::Record;
use crate::zone::{Warning, Zone, ZoneBuilder, ZoneError};
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

/// The zone that `changes`, which follow each other, make of `zone`; and what is odd about it.
///
/// # Errors
/// Why there is none.
pub fn apply(zone: &Zone, changes: &[Change]) -> Result<(Zone, Vec<Warning>), ApplyError> {
    let mut patch = Patch::new(changes).map_err(ApplyError::Patch)?;
    let held = zone.soa().serial;
    if patch.from_serial() != held {
        return Err(ApplyError::Serial(patch.from_serial(), held));
    }
    let apex = zone.apex();
    let mut builder = ZoneBuilder::new(apex.as_name());
    let mut push = |record: &Record| builder.push(record.as_ref()).map_err(ApplyError::Zone);
    push(patch.soa())?;
    for record in zone.records() {
        if patch.keeps(record.as_ref()) {
            push(&record)?;
        }
    }
    let added = patch.finish().map_err(ApplyError::Patch)?;
    added.iter().try_for_each(push)?;
    builder.finish().map_err(ApplyError::Zone)
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
        assert_eq!(listed[3], "www.example. 60 IN A 192.0.2.4");
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
}
