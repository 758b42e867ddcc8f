//! How names were written. RFC 1035 §2.3.3: "When data enters the domain system, its original case should be preserved
//! whenever possible"; RFC 4343 §4.1 says the same of output. A compiled zone has its owners in lower case, and names within
//! data point to parts of them; what was written otherwise is noted here, beside everything that answers are made of, for
//! whoever lists the zone's records.

/// What differs from what the zone's octets say, by place: of a name's node its owner, of an NSEC3 record's body its owner, of
/// another RRset's body the data of its records. A name with a capital letter takes nine octets and one more for each eight of
/// its own; others none.
#[derive(Default)]
pub(super) struct Cases {
    /// Ascending.
    places: Vec<u32>,
    /// Where the bits of each begin.
    starts: Vec<u32>,
    /// One for each octet, the lowest first: it is the other one of a capital and a small letter.
    bits: Vec<u8>,
}

/// What tells a capital letter from a small one.
const CASE: u8 = 0x20;

impl Cases {
    /// Notes how the octets were written that are shown at `place`, which is behind all others.
    pub(super) fn note<'s, 'w>(
        &mut self,
        place: u32,
        shown: impl Iterator<Item = &'s u8>,
        written: impl Iterator<Item = &'w u8>,
    ) {
        let start = self.bits.len();
        let different = shown.zip(written).enumerate();
        for (at, _) in different.filter(|(_, (shown, written))| shown != written) {
            self.bits.resize(start + at / 8 + 1, 0);
            self.bits[start + at / 8] |= 1 << (at % 8);
        }
        if self.bits.len() > start {
            self.places.push(place);
            self.starts.push(start as u32);
        }
    }

    /// Makes octets what was written at `place`.
    pub(super) fn restore<'o>(&self, place: u32, octets: impl Iterator<Item = &'o mut u8>) {
        let Ok(number) = self.places.binary_search(&place) else {
            return;
        };
        let end = self.starts.get(number + 1).copied();
        let end = end.map_or(self.bits.len(), |end| end as usize);
        let bits = &self.bits[self.starts[number] as usize..end];
        for (at, octet) in octets.enumerate().take(8 * bits.len()) {
            if bits[at / 8] >> (at % 8) & 1 == 1 {
                *octet ^= CASE;
            }
        }
    }

    /// The same without room for more.
    pub(super) fn finished(mut self) -> Cases {
        self.places.shrink_to_fit();
        self.starts.shrink_to_fit();
        self.bits.shrink_to_fit();
        self
    }

    /// Octets.
    pub(super) fn memory(&self) -> usize {
        4 * (self.places.len() + self.starts.len()) + self.bits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdata;
    use crate::record::Record;
    use crate::transfer::{Change, apply::apply};
    use crate::zone::Zone;
    use wire::codes::qtype;
    use wire::name::{Name, NameBuf};

    #[test]
    fn what_was_written_comes_back() {
        let mut cases = Cases::default();
        let pairs = [
            (3, "www.example", "wWw.exampLe"),
            (5, "plain", "plain"),
            (9, "a", "A"),
        ];
        for (place, shown, written) in pairs {
            cases.note(place, shown.as_bytes().iter(), written.as_bytes().iter());
        }
        let cases = cases.finished();
        for (place, shown, written) in pairs {
            let mut octets = shown.as_bytes().to_vec();
            cases.restore(place, octets.iter_mut());
            assert_eq!(octets, written.as_bytes());
        }
        assert_eq!(cases.memory(), 2 * 8 + 3);
    }

    fn record(owner: &str, kind: u16, text: &str) -> Record {
        let owner: NameBuf = owner.parse().unwrap();
        Record {
            owner: owner.as_name().as_bytes().into(),
            kind,
            class: 1,
            ttl: 60,
            rdata: rdata::parse(kind, text, Name::ROOT).unwrap(),
        }
    }

    fn soa(serial: u32) -> Record {
        let text = format!("NS.Example. host.EXAMPLE. {serial} 1h 15m 4w 5m");
        record("Example", qtype::SOA, &text)
    }

    fn listed(zone: &Zone) -> Vec<String> {
        zone.records().map(|record| record.to_string()).collect()
    }

    /// Owners, and names in data that are written as pointers to them or to each other.
    #[test]
    fn a_zone_lists_names_as_they_were_written() {
        let apex: NameBuf = "example".parse().unwrap();
        let records = vec![
            soa(1),
            record("Example", qtype::NS, "NS.Example."),
            record("Example", qtype::MX, "5 mail.other."),
            record("Example", qtype::MX, "6 back.OTHER."),
            record("NS.Example", qtype::A, "192.0.2.1"),
            record("plain.example", qtype::A, "192.0.2.3"),
            record("WWW.eXample", qtype::CNAME, "Www.plain.EXAMPLE."),
        ];
        let (zone, _) = Zone::build(apex.as_name(), records.clone()).unwrap();
        let text = |record: &Record| record.to_string();
        let mut expected: Vec<String> = records.iter().map(text).collect();
        let mut given = listed(&zone);
        assert_eq!(given[0], expected[0]);
        expected.sort();
        given.sort();
        assert_eq!(given, expected);
        // What changes is as the change says, what does not stays, whether all is compiled anew or not.
        let change = Change {
            from: soa(1),
            removed: vec![record("www.example", qtype::CNAME, "www.plain.example.")],
            to: soa(2),
            added: vec![record("wwW.example", qtype::A, "192.0.2.9")],
        };
        let (newer, _) = apply(&zone, &[change]).unwrap();
        assert!(newer.changed_count() > 0);
        let given = listed(&newer);
        assert!(given.contains(&"wwW.example. 60 IN A 192.0.2.9".to_owned()));
        assert!(given.contains(&"NS.Example. 60 IN A 192.0.2.1".to_owned()));
        assert!(given.contains(&"Example. 60 IN NS NS.Example.".to_owned()));
        let (whole, _) = Zone::build(apex.as_name(), newer.records()).unwrap();
        assert_eq!(listed(&whole), given);
        let difference = Change::between(zone.records(), newer.records()).unwrap();
        assert_eq!((difference.removed.len(), difference.added.len()), (1, 1));
    }

    /// RFC 2181 §5, RFC 4034 §6.3.
    #[test]
    fn data_that_differ_by_capital_letters_of_names_alone_are_one_record() {
        let apex: NameBuf = "example".parse().unwrap();
        let records = vec![
            soa(1),
            record("example", qtype::NS, "NS.Example."),
            record("example", qtype::NS, "b.example."),
            record("example", qtype::NS, "ns.example."),
            record("example", qtype::SRV, "1 2 3 a.example."),
            record("example", qtype::SRV, "1 2 3 A.example."),
            record("www.example", qtype::CNAME, "A.example."),
            record("www.example", qtype::CNAME, "a.example."),
            record("t.example", qtype::TXT, "A"),
            record("t.example", qtype::TXT, "a"),
        ];
        let (zone, _) = Zone::build(apex.as_name(), records).unwrap();
        let count = |kind| zone.records().filter(|record| record.kind == kind).count();
        let kinds = [qtype::NS, qtype::SRV, qtype::CNAME, qtype::TXT];
        assert_eq!(kinds.map(count), [2, 1, 1, 2]);
        assert_eq!(zone.records_count(), 7);
        assert!(listed(&zone).contains(&"Example. 60 IN NS NS.Example.".to_owned()));
    }

    /// As signers write them.
    #[test]
    fn hashes_in_capitals_stay_so() {
        let apex: NameBuf = "example".parse().unwrap();
        let of_kind = |owner: &str, kind: u16, rdata: &[u8]| Record {
            kind,
            rdata: rdata.into(),
            ..record(owner, qtype::A, "192.0.2.1")
        };
        let owner = format!("{}00.example", "0AV".repeat(10));
        let proof = [&[1_u8, 0, 0, 0, 0, 20][..], &[7; 20], &[0, 1, 0x40]].concat();
        let records = vec![
            record("example", qtype::SOA, "ns. host. 1 1h 15m 4w 5m"),
            record("example", qtype::NS, "ns."),
            of_kind("example", qtype::NSEC3PARAM, &[1, 0, 0, 0, 0]),
            of_kind(&owner, qtype::NSEC3, &proof),
        ];
        let (zone, _) = Zone::build(apex.as_name(), records.clone()).unwrap();
        let given: Vec<Record> = zone.records().collect();
        assert!(given.contains(&records[3]), "{given:?}");
    }
}
