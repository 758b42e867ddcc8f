//! For tests: zones in text, and a secondary.

use super::settings::{Peer, ZoneSettings};
use wire::name::NameBuf;
use zone::file::{Opener, Reader, Settings};
use zone::record::Record;
use zone::zone::Zone;

pub(super) fn apex() -> NameBuf {
    "example.com.".parse().expect("a name")
}

/// A zone of this serial with these lines besides its SOA record and its server.
pub(super) fn text(serial: u32, lines: &str) -> String {
    format!(
        "$TTL 300\n@ SOA ns hostmaster {serial} 3600 600 86400 60\n NS ns\nns A 192.0.2.1\n{lines}\n"
    )
}

pub(super) fn records(serial: u32, lines: &str) -> Vec<Record> {
    let text = text(serial, lines);
    let open: Opener<'_> = Box::new(|_| Err(std::io::ErrorKind::NotFound.into()));
    let apex = apex();
    Reader::new("zone", text.as_bytes(), open, Settings::new(apex.as_name()))
        .map(|record| record.expect("a record"))
        .collect()
}

pub(super) fn zone(serial: u32, lines: &str) -> Zone {
    let built = Zone::build(apex().as_name(), records(serial, lines));
    built.expect("a zone").0
}

/// What a zone holds, one record a line.
pub(super) fn listed(zone: &Zone) -> Vec<String> {
    zone.records().map(|record| record.to_string()).collect()
}

/// Settings of a secondary whose primary never answers.
pub(super) fn secondary() -> ZoneSettings {
    let mut settings = ZoneSettings::new(apex());
    let nobody = "127.0.0.1:1".parse().expect("an address");
    settings.primaries.push(Peer::new(nobody));
    settings
}
