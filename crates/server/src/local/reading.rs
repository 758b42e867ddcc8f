//! What `millrace zone read` shows: records of what is served now.

use super::Local;
use std::fmt::Write;
use std::sync::Arc;
use wire::codes::{QtypeText, parse_qtype};
use wire::name::{NAME_LENGTH_MAX, Name, NameBuf};
use zone::record::Record;
use zone::zone::Zone;

/// Octets of text that are passed on at a time, or a record more.
const PIECE: usize = 1 << 16;

/// Records of one version of a zone.
pub struct Reading {
    zone: Arc<Zone>,
    /// Those of one owner; `None`: all.
    chosen: Option<Vec<Record>>,
}

impl Reading {
    pub fn serial(&self) -> u32 {
        self.zone.soa().serial
    }

    /// Passes the records on as lines of a zone file, many at a time, until `take` is false.
    pub fn lines(&self, take: impl FnMut(String) -> bool) {
        match &self.chosen {
            Some(chosen) => pieces(chosen.iter(), take),
            None => pieces(self.zone.records(), take),
        }
    }
}

fn pieces<R: std::fmt::Display>(
    records: impl Iterator<Item = R>,
    mut take: impl FnMut(String) -> bool,
) {
    let mut text = String::new();
    for record in records {
        // Nothing can fail when a String is written to.
        let _ = writeln!(text, "{record}");
        if text.len() > PIECE && !take(std::mem::take(&mut text)) {
            return;
        }
    }
    take(text);
}

impl Local {
    /// The records of this zone; of one owner in it, `@` being the zone's own name; of one type there.
    ///
    /// # Errors
    /// A name or a type that is none, or is not there; a zone that is not served.
    pub fn reading(
        &self,
        zone: &str,
        name: Option<&str>,
        rtype: Option<&str>,
    ) -> Result<Reading, String> {
        let picked = self.picked(&[zone.to_owned()])?;
        let (live, _) = picked.first().ok_or("a zone's name expected")?;
        let apex = &live.apex;
        let zone = live.served().ok_or_else(|| {
            format!("zone {apex}: not loaded, or expired: `millrace zone status {apex}` says more")
        })?;
        let chosen = name
            .map(|name| chosen(&zone, apex.as_name(), name, rtype))
            .transpose()?;
        Ok(Reading { zone, chosen })
    }
}

fn chosen(
    zone: &Zone,
    apex: Name<'_>,
    name: &str,
    rtype: Option<&str>,
) -> Result<Vec<Record>, String> {
    let owner = owner(apex, name)?;
    let kind = match rtype {
        Some(text) => {
            let kind = parse_qtype(text);
            Some(kind.ok_or_else(|| format!("'{text}': a type (AAAA, TYPE28) expected"))?)
        }
        None => None,
    };
    let mut lowered = [0; NAME_LENGTH_MAX];
    let lowered = owner.as_name().to_lowercase(&mut lowered);
    let mut records = zone.records_of(lowered.as_bytes());
    if records.is_empty() {
        return Err(format!("zone {apex}: no records at {owner}"));
    }
    records.retain(|record| kind.is_none_or(|kind| record.kind == kind));
    match kind {
        Some(kind) if records.is_empty() => {
            let kind = QtypeText(kind);
            Err(format!("zone {apex}: no records of type {kind} at {owner}"))
        }
        _ => Ok(records),
    }
}

/// A name within the zone, whole or as the zone's file would have it.
fn owner(apex: Name<'_>, text: &str) -> Result<NameBuf, String> {
    if text == "@" {
        return Ok(apex.to_owned());
    }
    let parse = |text: &str| {
        let name = text.parse::<NameBuf>();
        name.map_err(|error| format!("'{text}': {error}"))
    };
    let name = parse(text)?;
    match (name.as_name().is_within(&apex), text.ends_with('.')) {
        (true, _) => Ok(name),
        (false, true) => Err(format!("{name} is not in zone {apex}")),
        (false, false) => parse(&format!("{text}.{apex}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::text;
    use super::*;
    use crate::config::zones::ZoneSpecs;
    use std::fs;

    #[test]
    fn all_records_or_those_of_a_name_or_a_type_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("zone");
        let lines = "www A 192.0.2.80\nwww A 192.0.2.81\nwww TXT x";
        fs::write(&file, text(7, lines)).unwrap();
        let specs = ZoneSpecs::of_file("example.com.", &file);
        let (local, _) = Local::load(&specs, &Local::default());
        let read = |name: Option<&str>, rtype: Option<&str>| {
            let mut lines = String::new();
            let reading = local.reading("example.com", name, rtype)?;
            assert_eq!(reading.serial(), 7);
            reading.lines(|text| {
                lines.push_str(&text);
                true
            });
            Ok::<_, String>(lines)
        };
        assert_eq!(read(None, None).unwrap().lines().count(), 6);
        let address =
            "www.example.com. 300 IN A 192.0.2.80\nwww.example.com. 300 IN A 192.0.2.81\n";
        for name in ["www", "WWW.example.com", "www.example.com."] {
            assert_eq!(read(Some(name), Some("A")).unwrap(), address);
            assert_eq!(read(Some(name), None).unwrap().lines().count(), 3);
        }
        let soa = read(Some("@"), Some("soa")).unwrap();
        assert!(soa.starts_with("example.com. 300 IN SOA ns."), "{soa}");
        for (name, rtype, reason) in [
            ("nx", None, ": no records at nx.example.com."),
            ("www", Some("MX"), "no records of type MX at www."),
            ("www", Some("nonsense"), "a type (AAAA, TYPE28) expected"),
            ("www.example.org.", None, "is not in zone example.com."),
        ] {
            let error = read(Some(name), rtype).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let error = local.reading("example.org", None, None).err().unwrap();
        assert!(error.contains("zone example.org. is not served"), "{error}");
    }
}
