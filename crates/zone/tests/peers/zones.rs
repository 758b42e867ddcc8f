//! The zones, signed anew for each run: BIND's tools do that in a second.

use super::corpus::Question;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wire::message::{QueryFlags, parse_query, write_query};
use wire::name::{Name, NameBuf};
use zone::answer::{Outcome, Zones, answer};
use zone::file::{Reader, Settings};
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

/// Names, what is in them, and how dnssec-signzone is asked; `None` is unsigned. The last ones are children of others.
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

/// How many of them are children.
const CHILDREN: usize = 2;

impl Ground {
    pub(crate) fn new() -> Option<Ground> {
        for program in ["dnssec-signzone", "dnssec-keygen"] {
            if !super::servers::is_installed(program) {
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
        let files: Vec<ZoneFile> = ZONES
            .iter()
            .map(|(name, text, signed)| {
                let file = folder.path().join(name.trim_end_matches('.'));
                fs::write(&file, text).expect("a zone file");
                let file = signed.map_or(file.clone(), |words| {
                    sign(folder.path(), name, &file, words)
                });
                ZoneFile { name, file }
            })
            .collect();
        let zones = Zones::new(files.iter().map(|file| {
            let name: NameBuf = file.name.parse().expect("a name");
            let zone = compiled(name.as_name(), &file.file);
            (name, Some(zone.into()))
        }));
        Some(Ground {
            folder,
            files,
            zones,
        })
    }

    /// Those that are signed, without the children.
    pub(crate) fn signed(&self) -> &[ZoneFile] {
        &self.files[1..self.files.len() - CHILDREN]
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

fn compiled(name: Name<'_>, file: &Path) -> Zone {
    let octets = fs::File::open(file).expect("a zone file");
    let opener = Box::new(|_: &str| Err(std::io::Error::other("nothing is included")));
    let reader = Reader::new("zone", octets, opener, Settings::new(name));
    let records = reader.map(|record| record.unwrap_or_else(|error| panic!("{error}")));
    let (zone, _) = Zone::build(name, records).unwrap_or_else(|error| panic!("{error}"));
    zone
}
