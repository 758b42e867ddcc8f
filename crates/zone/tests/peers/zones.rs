//! The zones, signed anew for each run: BIND's tools do that in a second.

use super::corpus::Question;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wire::message::{QueryFlags, parse_query, write_query};
use wire::name::{Name, NameBuf};
use zone::answer::{Outcome, Zones, answer};
use zone::file::{Reader, Settings};
use zone::record::Record;
use zone::zone::Zone;

pub(crate) struct Ground {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) files: Vec<ZoneFile>,
    pub(crate) zones: Zones,
}

pub(crate) struct ZoneFile {
    /// With its dot.
    pub(crate) name: &'static str,
    pub(crate) file: PathBuf,
    /// Its key-signing key, as delv takes it; `None` where it is not signed.
    pub(crate) anchor: Option<PathBuf>,
}

const PLAIN: &str = include_str!("plain.zone");

/// What lies below a delegation of a zone beside it: parent and child on one server.
const CHILD: &str = "$TTL 3600
@    SOA  ns1 hostmaster 1 7200 3600 1209600 300
     NS   ns1
ns1  A    192.0.2.57
www  A    192.0.2.58
*.w  TXT  \"of the child\"
";

/// Names, what is in them, and how dnssec-signzone is asked; `None` is unsigned. Some are children of others.
const ZONES: [(&str, &str, Option<&[&str]>); 6] = [
    ("plain.test.", PLAIN, None),
    ("nsec.test.", PLAIN, Some(&[])),
    ("nsec3.test.", PLAIN, Some(&["-3", "-", "-H", "0"])),
    (
        "optout.test.",
        PLAIN,
        Some(&["-3", "aabb", "-H", "3", "-A"]),
    ),
    ("child.plain.test.", CHILD, None),
    ("child.nsec3.test.", CHILD, Some(&["-3", "-", "-H", "0"])),
];

impl Ground {
    /// The zones of the corpus.
    pub(crate) fn new() -> Option<Ground> {
        Ground::of(ZONES.map(|(name, text, signed)| (name, text.to_owned(), signed)))
    }

    /// Zones of these texts, signed where that is asked.
    pub(crate) fn of(
        zones: impl IntoIterator<Item = (&'static str, String, Option<&'static [&'static str]>)>,
    ) -> Option<Ground> {
        for program in ["dnssec-signzone", "dnssec-keygen"] {
            if !is_installed(program) {
                println!(
                    "SKIP: {program} is not installed (Debian: bind9-utils), so there are no signed zones"
                );
                return None;
            }
        }
        let folder = tempfile::tempdir().expect("a folder for the zones");
        // knotd and named may become somebody else.
        Command::new("chmod")
            .arg("755")
            .arg(folder.path())
            .status()
            .expect("chmod");
        let files = zones.into_iter().map(|(name, text, signed)| {
            let file = folder.path().join(name.trim_end_matches('.'));
            fs::write(&file, text).expect("a zone file");
            let Some(words) = signed else {
                let anchor = None;
                return ZoneFile { name, file, anchor };
            };
            let file = sign(folder.path(), name, &file, words);
            let anchor = Some(anchor(folder.path(), name));
            ZoneFile { name, file, anchor }
        });
        let files: Vec<ZoneFile> = files.collect();
        let zones = Zones::new(files.iter().map(|file| {
            let name = file.apex();
            let zone = built(name.as_name(), records(name.as_name(), &file.file));
            (name, Some(zone.into()))
        }));
        Some(Ground {
            folder,
            files,
            zones,
        })
    }

    /// Our answer.
    pub(crate) fn ask(&self, question: &Question) -> Option<Vec<u8>> {
        let mut message = question.message();
        let parts = parse_query(&message).expect("a query of our own");
        message.resize(65_535, 0);
        match answer(&self.zones, &mut message, &parts, 65_535) {
            Outcome::Answered(answered) => message.truncate(answered.length),
            _ => return None,
        }
        Some(message)
    }
}

impl ZoneFile {
    pub(crate) fn apex(&self) -> NameBuf {
        self.name.parse().expect("a name")
    }
}

impl Question {
    pub(crate) fn message(&self) -> Vec<u8> {
        let name: NameBuf = self.name.parse().expect("a name");
        let flags = QueryFlags {
            payload_size: Some(4_096),
            dnssec_ok: self.signed,
            ..QueryFlags::default()
        };
        let mut buffer = vec![0; 300];
        let question = (name.as_name(), self.kind, 1);
        let length = write_query(&mut buffer, 0x1234, question, flags).expect("300 octets do");
        buffer.truncate(length);
        buffer
    }
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = Path::new("/usr/sbin").to_owned();
    std::env::split_paths(&path)
        .chain([sbin])
        .any(|folder| folder.join(program).exists())
}

fn sign(folder: &Path, name: &str, file: &Path, words: &[&str]) -> PathBuf {
    let keys = folder.join(format!("keys-{name}"));
    fs::create_dir(&keys).expect("a folder for keys");
    run(Command::new("dnssec-keygen")
        .args(["-q", "-a", "ECDSAP256SHA256", "-f", "KSK", "-K"])
        .arg(&keys)
        .arg(name));
    run(Command::new("dnssec-keygen")
        .args(["-q", "-a", "ECDSAP256SHA256", "-K"])
        .arg(&keys)
        .arg(name));
    let signed = file.with_extension("signed");
    run(Command::new("dnssec-signzone")
        .current_dir(folder)
        .args(["-q", "-S", "-P", "-u", "-K"])
        .arg(&keys)
        .args(words)
        .args(["-o", name, "-f"])
        .arg(&signed)
        .arg(file));
    signed
}

fn run(command: &mut Command) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("it is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// Writes the zone's key-signing key for delv; where to.
fn anchor(folder: &Path, name: &str) -> PathBuf {
    let keys = fs::read_dir(folder.join(format!("keys-{name}"))).expect("keys");
    let files = keys.flatten().map(|file| file.path());
    let mut records = files
        .filter(|file| file.extension().is_some_and(|end| end == "key"))
        .map(|file| {
            let text = fs::read_to_string(file).expect("a key");
            let mut lines = text.lines();
            let record = lines.find(|line| !line.starts_with(';'));
            record.expect("a record").to_owned()
        });
    let record = records
        .find(|line| line.contains(" 257 "))
        .expect("a key-signing key");
    let words: Vec<&str> = record
        .split_whitespace()
        .skip_while(|word| *word != "257")
        .collect();
    let key = words[3..].concat();
    let text = format!("trust-anchors {{ \"{name}\" static-key 257 3 13 \"{key}\"; }};\n");
    let file = folder.join(format!("anchor-{name}"));
    fs::write(&file, text).expect("an anchor");
    file
}

pub(crate) fn records(name: Name<'_>, file: &Path) -> Vec<Record> {
    let octets = fs::File::open(file).expect("a zone file");
    let opener = Box::new(|_: &str| Err(std::io::Error::other("nothing is included")));
    let reader = Reader::new("zone", octets, opener, Settings::new(name));
    reader
        .map(|record| record.unwrap_or_else(|error| panic!("{error}")))
        .collect()
}

pub(crate) fn built(name: Name<'_>, records: Vec<Record>) -> Zone {
    let (zone, _) = Zone::build(name, records).unwrap_or_else(|error| panic!("{error}"));
    zone
}
