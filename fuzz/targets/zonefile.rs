//! Crate `zone` on zone files of any octets: nothing panics, work is bounded, places are within the file, and what was read
//! is printed, checked and read again as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Read;
use wire::codes::qtype;
use wire::message::HEADER_LENGTH;
use wire::name::{Name, NameBuf};
use zone::file::{Bounds, Opener, Reader, Settings, print_record};
use zone::rdata::{self, RdataText};
use zone::record::Record;

/// Few enough that a run is short, whatever `$GENERATE` and `$INCLUDE` say.
const BOUNDS: Bounds = Bounds {
    records: 300,
    generate: 100,
    depth: 3,
    includes: 3,
};

fuzz_target!(|octets: &[u8]| {
    let records = read(octets, octets);
    for record in &records {
        of_its_type(record);
    }
    let mut printed = String::new();
    for record in &records {
        print_record(record.as_ref(), &mut printed);
    }
    let again = read(printed.as_bytes(), b"");
    assert_eq!(again, records, "what was printed is read again");
    on_the_wire(octets);
});

/// Records of a file; every file it includes is `included`.
fn read(octets: &[u8], included: &[u8]) -> Vec<Record> {
    let origin: NameBuf = "example.com".parse().expect("a name");
    let open: Opener<'_> = Box::new(|path| {
        assert!(!path.starts_with('/') && !path.split('/').any(|part| part == ".."));
        Ok(Box::new(included) as Box<dyn Read>)
    });
    let settings = Settings {
        bounds: BOUNDS,
        ..Settings::new(origin.as_name())
    };
    let lines = 1 + octets.len().max(included.len());
    let mut records = Vec::new();
    let mut errors = 0;
    for result in Reader::new("zone", octets, open, settings) {
        match result {
            Ok(record) => records.push(record),
            Err(error) => {
                assert!((1..=lines).contains(&(error.line as usize)), "{error}");
                assert!(error.column as usize <= lines && !error.what.is_empty());
                errors += 1;
            }
        }
    }
    assert!(records.len() as u64 <= BOUNDS.records);
    // At most one a line and file, and one for each that is included.
    assert!(errors <= 4 * lines + 1);
    records
}

fn of_its_type(record: &Record) {
    Name::parse(&record.owner).expect("a name as owner");
    rdata::check(record.kind, &record.rdata).expect("RDATA of its type");
    let mut canonical = Vec::new();
    rdata::canonical(record.kind, &record.rdata, &mut canonical);
    assert_eq!(canonical.len(), record.rdata.len());
    let mut expanded = vec![0; HEADER_LENGTH];
    expanded.extend_from_slice(&record.rdata);
    let place = HEADER_LENGTH..expanded.len();
    let mut out = Vec::new();
    rdata::expand(record.kind, &expanded, place, &mut out).expect("names that are whole");
    assert_eq!(out, &*record.rdata);
}

/// The same octets as RDATA of a message: type, then what it is.
fn on_the_wire(octets: &[u8]) {
    let Some((kind, message)) = octets.split_first_chunk() else {
        return;
    };
    // Most types are below 300.
    let kind = u16::from_be_bytes(*kind) % 300;
    let mut out = Vec::new();
    let place = message.len().min(HEADER_LENGTH)..message.len();
    if rdata::expand(kind, message, place, &mut out).is_err() {
        return;
    }
    if let Err(error) = rdata::check(kind, &out) {
        panic!("{kind}: expanded and wrong: {error}");
    }
    let text = RdataText(kind, &out).to_string();
    // What has no type has no text but that of RFC 3597, and messages only have some.
    let back = rdata::parse(kind, &text, Name::ROOT).expect("what was printed");
    assert_eq!(*back, *out, "{} {text}", qtype::name(kind).unwrap_or("?"));
}
