//! Zones that scenarios measure: an address for each name that is asked for, signed by kzonesign where that is wanted, made
//! once and kept in target/bench/zones. What answers of them must say.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::plan::{Answers, ZonePlan};
use crate::{During, Failure, Outcome};

/// The zone's name; the server's and the witness's are in it.
const APEX: &str = "example.com.";

/// What its names are made by: `floodgate queries` with the same options asks for them. With `www` before its twelve letters
/// a name has 29 octets, an answer with an address 61, with a signature of ECDSA P-256 179.
const NAMES: [&str; 2] = ["--prefix", "www"];

/// Names above the made-up ones. SOA and NS are as long as it takes to make an NSEC3 negative of 788 octets.
const HEAD: &str = "$TTL 3600
@ SOA ns1 dns-operations-hostmaster 1 7200 3600 1209600 300
@ NS ns1
ns1 A 192.0.2.53
witness A 192.0.2.80
";

/// Names whose addresses are looked at before a run.
const EXPECTED_MAX: usize = 10_000;

/// How kzonesign signs: one key, NSEC3 without iterations and salt (RFC 9276 §3.1), for ten years.
const SIGNING: &str = "database:
    storage: $FOLDER/keys
policy:
  - id: bench
    algorithm: ecdsap256sha256
    single-type-signing: on
    nsec3: on
    nsec3-iterations: 0
    nsec3-salt-length: 0
    rrsig-lifetime: 3650d
    rrsig-refresh: 30d
    dnskey-ttl: 3600
    zone-max-ttl: 3600
    cds-cdnskey-publish: none
zone:
  - domain: example.com.
    storage: $FOLDER
    file: unsigned.zone
    dnssec-policy: bench
";

/// The file of a zone, made if it is not there; `queries` makes a file of queries by floodgate's options.
pub(super) fn file(
    folder: &Path,
    plan: &ZonePlan,
    queries: impl FnOnce(&[String], &Path) -> Outcome<()>,
) -> Outcome<PathBuf> {
    let names = plan.names[0];
    let signed = if plan.signed { "-signed" } else { "" };
    let whole = folder.join(format!("{names}{signed}"));
    let file = whole.join("example.com.zone");
    if file.is_file() {
        return Ok(file);
    }
    println!("  making a zone of {names} names in {}", whole.display());
    // Only what is whole gets the name that is looked for: a run that was cut leaves nothing that looks like a zone.
    let part = folder.join(format!("{names}{signed}.{}", std::process::id()));
    let made = make(&part, plan, queries);
    let kept =
        made.and_then(|()| fs::rename(&part, &whole).during(format!("making {}", whole.display())));
    if kept.is_err() {
        // What could not be made need not be there either.
        let _ = fs::remove_dir_all(&part);
    }
    kept.map(|()| file)
}

fn make(
    folder: &Path,
    plan: &ZonePlan,
    queries: impl FnOnce(&[String], &Path) -> Outcome<()>,
) -> Outcome<()> {
    fs::create_dir_all(folder).during(format!("making {}", folder.display()))?;
    let asked = folder.join("queries.txt");
    let names = ["--random".to_owned(), plan.names[0].to_string()];
    let options: Vec<String> = names.into_iter().chain(NAMES.map(str::to_owned)).collect();
    queries(&options, &asked)?;
    let unsigned = folder.join("unsigned.zone");
    write_zone(&asked, &unsigned, &folder.join("expected.txt")).during("writing a zone")?;
    let file = folder.join("example.com.zone");
    match plan.signed {
        true => sign(folder, &file)?,
        false => fs::rename(&unsigned, &file).during("keeping a zone")?,
    }
    fs::remove_file(&asked).during("removing the names of a zone")
}

/// A zone of the names in the file `asked`, and what answers about the first of them must say.
fn write_zone(asked: &Path, zone: &Path, expected: &Path) -> std::io::Result<()> {
    let asked = BufReader::new(File::open(asked)?);
    let mut zone = BufWriter::new(File::create(zone)?);
    let mut expected = BufWriter::new(File::create(expected)?);
    write!(zone, "$ORIGIN {APEX}\n{HEAD}")?;
    for (number, line) in asked.lines().enumerate() {
        let line = line?;
        let name = line.split(' ').next().unwrap_or_default();
        let host = number % 254 + 1;
        writeln!(zone, "{name} A 192.0.2.{host}")?;
        if number < EXPECTED_MAX {
            writeln!(expected, "{name} A 192.0.2.{host}")?;
        }
    }
    zone.flush()?;
    expected.flush()
}

/// The zone that was written into a folder. kzonesign(1), of `-o`: "Write the output zone file to the specified directory"; how it
/// is called there, it does not say.
fn zone_in(folder: &Path) -> Outcome<PathBuf> {
    let entries = fs::read_dir(folder).during(format!("reading {}", folder.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let zone = paths.find(|path| path.extension().is_some_and(|end| end == "zone"));
    zone.ok_or_else(|| Failure::new("kzonesign wrote no zone"))
}

/// Signs `unsigned.zone` in `folder`.
fn sign(folder: &Path, file: &Path) -> Outcome<()> {
    let (configuration, signed) = (folder.join("signing.conf"), folder.join("signed"));
    for path in [&signed, &folder.join("keys")] {
        fs::create_dir_all(path).during(format!("making {}", path.display()))?;
    }
    let text = SIGNING.replace("$FOLDER", &folder.display().to_string());
    fs::write(&configuration, text).during("writing a configuration")?;
    let mut command = Command::new("kzonesign");
    command
        .arg("-c")
        .arg(&configuration)
        .arg("-o")
        .arg(&signed)
        .arg(APEX);
    let output = command
        .output()
        .during("starting kzonesign, of Debian's package knot-dnssecutils")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("kzonesign: {}", said.trim())));
    }
    fs::rename(zone_in(&signed)?, file).during("keeping a signed zone")?;
    fs::remove_file(folder.join("unsigned.zone")).during("removing a zone that is not signed")
}

/// Files for floodgate's `--expect`.
pub(super) struct Expected {
    /// Response codes alone: what is compared while it is measured.
    pub rcode: PathBuf,
    /// Addresses, too: before it is measured.
    pub records: PathBuf,
}

/// Writes what answers of the zone in `zone` must say.
pub(super) fn expected(folder: &Path, zone: &Path, answers: &Answers) -> Outcome<Expected> {
    let expected = Expected {
        rcode: folder.join("rcode.txt"),
        records: folder.join("records.txt"),
    };
    let all = format!("* {}\n", answers.rcode);
    let known = fs::read_to_string(zone.with_file_name("expected.txt"));
    let known = known.during("reading what is in a zone")?;
    let write = |path: &Path, text: &str| fs::write(path, text).during("writing expectations");
    write(&expected.rcode, &all)?;
    write(&expected.records, &format!("{known}{all}"))?;
    Ok(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_an_address_for_each_name_that_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let plan = ZonePlan {
            names: vec![300],
            signed: false,
        };
        let queries = |options: &[String], path: &Path| {
            assert_eq!(options, ["--random", "300", "--prefix", "www"]);
            let lines = (0..300).map(|number| format!("www{number}.example.com. A D\n"));
            fs::write(path, lines.collect::<String>()).during("writing")
        };
        let zone = file(folder.path(), &plan, queries).unwrap();
        let text = fs::read_to_string(&zone).unwrap();
        assert!(
            text.ends_with("www299.example.com. A 192.0.2.46\n"),
            "{text}"
        );
        // The second time it is there.
        let again = file(folder.path(), &plan, |_, _| panic!("made twice")).unwrap();
        assert_eq!(again, zone);
        let answers = Answers {
            rcode: "NOERROR".to_owned(),
            octets: 61,
        };
        let expected = expected(folder.path(), &zone, &answers).unwrap();
        let records = fs::read_to_string(expected.records).unwrap();
        assert_eq!(records.lines().count(), 301);
        assert!(records.starts_with("www0.example.com. A 192.0.2.1\n"));
        assert!(records.ends_with("\n* NOERROR\n"));
    }

    #[test]
    fn a_signed_zone_is_found_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        assert!(zone_in(folder.path()).is_err());
        let zone = folder.path().join("example.com.zone");
        fs::write(&zone, "").unwrap();
        fs::write(folder.path().join("other"), "").unwrap();
        assert_eq!(zone_in(folder.path()).unwrap(), zone);
    }

    #[test]
    fn what_could_not_be_made_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let plan = ZonePlan {
            names: vec![3],
            signed: false,
        };
        let fails = |_: &[String], _: &Path| Err(Failure::new("no"));
        assert!(file(folder.path(), &plan, fails).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
