//! The zone files under `zones/`, as other servers' checkers read them: each prints what it read, and that must be what we
//! read. Prints SKIP for a checker that is not installed (Debian packages bind9-utils, nsd).

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use wire::name::NameBuf;
use zone::file::{Opener, Reader, Settings, print_record};
use zone::rdata;
use zone::record::Record;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/zones");

/// Checkers that print a zone: program, arguments before the zone's name, between name and file.
const CHECKERS: &[(&str, &[&str])] = &[
    (
        "named-checkzone",
        &[
            "-q", "-D", "-o", "-", "-i", "none", "-k", "ignore", "-n", "ignore", "-m", "ignore",
            "-M", "ignore", "-S", "ignore", "-r", "ignore", "-T", "ignore", "-s", "full",
        ],
    ),
    ("nsd-checkzone", &["-p"]),
];

fn origin() -> NameBuf {
    "example.com".parse().unwrap()
}

fn read(name: &str, text: &[u8]) -> Vec<Record> {
    let open: Opener<'_> = Box::new(|path| {
        let file = fs::File::open(Path::new(FOLDER).join(path))?;
        Ok(Box::new(file) as Box<dyn Read>)
    });
    Reader::new(name, text, open, Settings::new(origin().as_name()))
        .map(|record| record.unwrap_or_else(|error| panic!("{error}")))
        .collect()
}

/// Records as lines that are equal where the records are: names in lower case, sorted.
fn lines(records: &[Record]) -> BTreeSet<String> {
    records
        .iter()
        .map(|record| {
            let mut rdata = Vec::new();
            rdata::canonical(record.kind, &record.rdata, &mut rdata);
            let canonical = Record {
                owner: record.owner.to_ascii_lowercase().into(),
                rdata: rdata.into(),
                ..record.clone()
            };
            canonical.to_string()
        })
        .collect()
}

fn zones() -> Vec<PathBuf> {
    let entries = fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut zones: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|end| end == "zone"))
        .collect();
    zones.sort();
    zones
}

/// What the checker prints; `None` where it is not installed.
fn printed(program: &str, arguments: &[&str], zone: &Path) -> Option<Vec<u8>> {
    let output = Command::new(program)
        .args(arguments)
        .arg("example.com")
        .arg(zone.file_name().unwrap())
        .current_dir(FOLDER)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{program}: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.stdout.is_empty(),
        "{program} {}: {said}",
        zone.display()
    );
    Some(output.stdout)
}

#[test]
fn other_servers_read_the_same_records() {
    for (program, arguments) in CHECKERS {
        for zone in zones() {
            let text = fs::read(&zone).unwrap();
            let name = zone.file_name().unwrap().to_string_lossy();
            let remark = text
                .split(|octet| *octet == b'\n')
                .next()
                .unwrap_or_default();
            let remark = String::from_utf8_lossy(remark);
            if remark.starts_with("; not:") && remark.contains(program) {
                continue;
            }
            let Some(theirs) = printed(program, arguments, &zone) else {
                println!("SKIP: {program} is not installed");
                break;
            };
            let (ours, theirs) = (lines(&read(&name, &text)), lines(&read(program, &theirs)));
            let only_ours: Vec<_> = ours.difference(&theirs).collect();
            let only_theirs: Vec<_> = theirs.difference(&ours).collect();
            assert!(
                only_ours.is_empty() && only_theirs.is_empty(),
                "{name}: only we: {only_ours:#?}\nonly {program}: {only_theirs:#?}"
            );
        }
    }
}

#[test]
fn what_is_printed_is_read_again() {
    for zone in zones() {
        let text = fs::read(&zone).unwrap();
        let records = read(&zone.to_string_lossy(), &text);
        assert!(records.len() > 3);
        let mut printed = String::new();
        for record in &records {
            print_record(record.as_ref(), &mut printed);
        }
        assert_eq!(read("printed", printed.as_bytes()), records);
    }
}
