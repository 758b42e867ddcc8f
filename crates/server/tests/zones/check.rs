//! `millrace zone check` and `millrace zone print`: a zone file, and no daemon.

use crate::daemon::ZONE;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What one of the two makes of a file with the zone example.com.: whether all is well, and what it says where.
struct Said {
    well: bool,
    out: String,
    error: String,
}

fn zone(word: &str, file: &Path) -> Said {
    zone_with(word, file, &[])
}

fn zone_with(word: &str, file: &Path, options: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(["zone", word]).arg(file).arg("example.com");
    command.args(options);
    let output = command.output().expect("the program starts");
    Said {
        well: output.status.success(),
        out: String::from_utf8(output.stdout).expect("text"),
        error: String::from_utf8(output.stderr).expect("text"),
    }
}

#[test]
fn a_zone_file_is_checked_and_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("zone");
    fs::write(&file, format!("{ZONE}mail 300 MX 10 nowhere\n")).expect("a file");
    let checked = zone("check", &file);
    assert!(checked.well, "{}", checked.error);
    let summary = format!("{}: zone example.com., serial 7, ", file.display());
    assert!(checked.out.starts_with(&summary), "{}", checked.out);
    assert!(checked.out.contains(", 4 records, "), "{}", checked.out);
    let warned = checked.error;
    assert!(warned.contains("zone:4:1: warning: MX of "), "{warned}");
    assert!(warned.contains(" nowhere.example.com."), "{warned}");
    let printed = zone("print", &file);
    assert!(printed.well, "{}", printed.error);
    let lines: Vec<&str> = printed.out.lines().collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let address = "ns.example.com. 300 IN A 192.0.2.1";
    assert!(lines.contains(&address), "{lines:?}");
    // What was printed is read again, and is the same.
    fs::write(&file, &printed.out).expect("a file");
    assert_eq!(zone("print", &file).out, printed.out);
}

#[test]
fn a_zone_file_that_is_wrong_is_a_failure_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("zone");
    fs::write(&file, format!("{ZONE}www A 192.0.2.300\n")).expect("a file");
    for word in ["check", "print"] {
        let said = zone(word, &file);
        assert!(!said.well && said.out.is_empty(), "{}", said.out);
        let error = said.error;
        assert!(error.contains("zone:4:7: "), "{error}");
        assert!(error.contains("192.0.2.300"), "{error}");
    }
}

/// Signatures that are none: seen only where they are verified.
#[test]
fn signatures_are_verified_where_that_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("zone");
    let signature = |kind: &str| {
        let times = "20361122000000 20261122000000";
        format!("@ 60 RRSIG {kind} 13 2 60 {times} 44413 example.com. Qm9n\n")
    };
    let signatures = ["SOA", "NS", "DNSKEY", "NSEC"].map(signature);
    let records = "@ 60 SOA ns.example.net. host 1 2 3 4 5\n@ 60 NS ns.example.net.\n\
                   @ 60 DNSKEY 257 3 13 Qm9n\n@ 60 NSEC @ NS SOA RRSIG NSEC DNSKEY\n";
    fs::write(&file, format!("{records}{}", signatures.concat())).expect("a file");
    let within = ["--time", "20300101000000"];
    let without = zone_with("check", &file, &within);
    assert!(without.well, "{}", without.error);
    assert_eq!(without.error.lines().count(), 1, "{}", without.error);
    assert!(without.error.contains("--dnssec"), "{}", without.error);
    assert!(without.out.contains(", signed, "), "{}", without.out);
    let options = [&within[..], &["--dnssec"]].concat();
    let verified = zone_with("check", &file, &options);
    assert!(!verified.well, "{}", verified.error);
    let is_error = |line: &&str| line.contains(": error: RRSIG of ");
    let errors = verified.error.lines().filter(is_error).count();
    assert_eq!(errors, 4, "{}", verified.error);
    // A signature that has expired is an error, too, where signatures are verified.
    let late = ["--time", "20370101000000"];
    let warned = zone_with("check", &file, &late);
    assert!(warned.well && warned.error.contains(": warning: 4 RRSIG "));
    let options = [&late[..], &["--dnssec"]].concat();
    let verified = zone_with("check", &file, &options);
    assert!(verified.error.contains(": error: 4 RRSIG records have "));
}
