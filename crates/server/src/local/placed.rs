//! Where in a zone's file the records are that something is about.

use super::Progress;
use super::read::{Stamps, reader};
use std::collections::HashMap;
use std::path::Path;
use wire::name::Name;
use zone::zone::About;

/// What is told of a zone, and the records that it is about, if it is about some.
pub(super) type Told<'a> = (Option<About<'a>>, String);

/// The texts, each behind the place of the last record that it is about, or behind the file alone where there is none. The file
/// is read again for that, since who remembers places pays for them in every zone.
pub fn placed(apex: Name<'_>, file: &Path, told: Vec<Told<'_>>) -> Vec<String> {
    let path = file.display();
    let mut texts: Vec<String> = told
        .iter()
        .map(|(_, text)| format!("{path}: {text}"))
        .collect();
    let numbers = by_owner(&told);
    let progress = Progress::default();
    // What is no file, such as a pipe, cannot be read again.
    if numbers.is_empty() || !file.is_file() {
        return texts;
    }
    let Ok(mut reader) = reader(apex, file, &Stamps::default(), &progress) else {
        return texts;
    };
    while let Some(read) = reader.read() {
        let about: Vec<usize> = read.map_or(Vec::new(), |record| {
            let owner = record.owner.to_ascii_lowercase();
            let numbers = numbers.get(&owner).into_iter().flatten().copied();
            numbers
                .filter(|number| told[*number].0.is_some_and(|about| about.has(&record)))
                .collect()
        });
        for number in about {
            texts[number] = reader.error(told[number].1.clone()).to_string();
        }
    }
    texts
}

/// The numbers of what is told, by the owner of the records that it is about, in lower case.
fn by_owner(told: &[Told<'_>]) -> HashMap<Vec<u8>, Vec<usize>> {
    let mut numbers: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
    for (number, (about, _)) in told.iter().enumerate() {
        if let Some(about) = about {
            let owner = about.owner().as_name().as_bytes().to_ascii_lowercase();
            numbers.entry(owner).or_default().push(number);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::read;
    use wire::name::NameBuf;

    const ZONE: &str = "\
$TTL 60
@ SOA ns host 1 2 3 4 5
@ NS ns
@ NS missing
@ DNSKEY 257 3 13 Qm9n
ns A 192.0.2.1
ns 90 A 192.0.2.2
elsewhere.example.org. A 192.0.2.3
elsewhere.example.org. AAAA ::1
sub NS a.sub
sub NS NS.Sub
sub TXT unseen
d DNAME ns
x.d A 192.0.2.4
ns RRSIG MX 13 3 60 20361122000000 20261122000000 1 @ Qm9n
ds DS 1 13 2 0000000000000000000000000000000000000000000000000000000000000000
b32 NSEC3 1 0 0 - aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa A
www RRSIG A 13 3 60 20211122000000 20201122000000 1 @ Qm9n
www A 192.0.2.5
mail MX 10 ns
mail MX 10 nowhere
high 2147483648 A 192.0.2.6
";

    /// Each warning of a zone and each oddity, in lines.
    fn lines(zone: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("zone");
        std::fs::write(&file, zone).unwrap();
        let apex: NameBuf = "example.com".parse().unwrap();
        let read = read(apex.as_name(), &file, &Progress::default()).unwrap();
        let oddities = read.zone.oddities(1_795_305_600);
        let warnings = read.warnings.iter();
        let warned = warnings.map(|warning| (Some(warning.about()), warning.to_string()));
        let odd = oddities
            .iter()
            .map(|oddity| (Some(oddity.about()), oddity.to_string()));
        let texts = placed(apex.as_name(), &file, warned.chain(odd).collect());
        let path = format!("{}:", file.display());
        let without_path = |text: String| text.strip_prefix(&path).unwrap().to_owned();
        texts.into_iter().map(without_path).collect()
    }

    #[test]
    fn every_warning_about_records_has_their_place() {
        let found = lines(ZONE);
        let expected = [
            "4:1: name server missing.example.com.",
            "5:1: example.com. has keys",
            "7:1: A records at ns.example.com.",
            "9:1: elsewhere.example.org. is out of zone",
            "10:1: delegation sub.example.com. cannot be followed to a.sub",
            "11:1: delegation sub.example.com. cannot be followed to NS.sub",
            "12:1: TXT at sub.example.com.",
            "14:1: x.d.example.com. is below a DNAME",
            "15:1: RRSIG of MX at ns.example.com. is left out",
            "16:1: DS at ds.example.com. without NS",
            "17:1: 1 NSEC3 records of example.com.",
            "22:1: A at high.example.com. has a TTL of 2147483648 s",
            "21:1: MX of mail.example.com. points to nowhere",
        ];
        for start in expected {
            assert_eq!(
                found.iter().filter(|line| line.starts_with(start)).count(),
                1,
                "{start}: {found:#?}"
            );
        }
        assert!(
            found.iter().all(|line| !line.starts_with(' ')),
            "{found:#?}"
        );
    }
}
