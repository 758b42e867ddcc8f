//! A signed zone as those of registries and hosters are: many names, NSEC3 without iterations and salt, signatures of the
//! length of ECDSA P-256's. For counting.

use super::sign::{Chain, sign};
use std::fmt::Write;
use wire::message::{QueryFlags, QueryParts, parse_query, write_query};
use wire::name::{Name, NameBuf};
use zone::answer::{Outcome, Zones, answer};
use zone::record::Record;
use zone::zone::Zone;

/// What is asked.
pub(crate) const QUESTIONS: [(&str, (&str, u16)); 7] = [
    ("an address", ("n5.example.com.", 1)),
    ("no data", ("n5.example.com.", 28)),
    ("no name", ("x.example.com.", 1)),
    ("a wildcard", ("x.wild.example.com.", 1)),
    ("an alias", ("alias.example.com.", 1)),
    ("a delegation", ("x.sub.example.com.", 1)),
    ("a redirection", ("n5.old.example.com.", 1)),
];

pub(crate) struct Ground {
    zones: Zones,
    names: usize,
    message: Vec<u8>,
}

/// The chain of a registry's zone.
pub(crate) const REGISTRY: Chain = Chain::Nsec3 {
    opt_out: true,
    iterations: 0,
    salt: Vec::new(),
};

impl Ground {
    pub(crate) fn new(names: usize, chain: &Chain) -> Ground {
        let apex: NameBuf = "example.com.".parse().expect("a name");
        let apex_wire = apex.as_name().as_bytes();
        let record = |owner: &str, kind, rdata: &[u8]| Record {
            owner: name(owner),
            kind,
            class: 1,
            ttl: 3_600,
            rdata: rdata.into(),
        };
        let numbers = [0_u32, 1, 2, 3, 300].map(u32::to_be_bytes).concat();
        let mut records = vec![
            record("", 6, &[apex_wire, apex_wire, &numbers].concat()),
            record("", 2, &name("ns.")),
            record("ns.", 1, &[192, 0, 2, 1]),
            record("*.wild.", 1, &[192, 0, 2, 2]),
            record("alias.", 5, &name("n5.")),
            record("sub.", 2, &name("ns.sub.")),
            record("ns.sub.", 1, &[192, 0, 2, 3]),
            record("old.", 39, apex_wire),
        ];
        records.extend((0..names).map(|number| record(&format!("n{number}."), 1, &[192, 0, 2, 4])));
        let mut records = sign(apex_wire, records, chain);
        for signature in records.iter_mut().filter(|record| record.kind == 46) {
            // Four octets of signature are there.
            signature.rdata = [&signature.rdata[..], &[7; 60]].concat().into();
        }
        let (zone, _) = Zone::build(apex.as_name(), records).expect("a zone");
        Ground {
            zones: Zones::new([(apex, Some(zone.into()))]),
            names,
            message: vec![0; 1_232],
        }
    }

    /// The answer's length.
    pub(crate) fn ask(&mut self, (name, kind): (&str, u16)) -> usize {
        let (query, parts) = query(name, kind);
        self.message[..query.len()].copy_from_slice(&query);
        match answer(&self.zones, &mut self.message, &parts, 1_221) {
            Outcome::Answered(answered) => answered.length,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub(crate) fn memory_per_name(&self) -> usize {
        let zone = self.zones.zone(0).expect("it is loaded");
        zone.memory() / self.names
    }
}

/// A zone file with so many names below the apex, an address and its signature each.
pub(crate) fn file(names: usize) -> String {
    let mut text =
        String::from("$TTL 3600\n@ SOA ns host 1 7200 3600 1209600 300\n@ NS ns.example.net.\n");
    for number in 0..names {
        let _ = writeln!(text, "n{number} A 192.0.2.1");
        let _ = writeln!(
            text,
            "n{number} RRSIG A 13 3 3600 20361122000000 20261122000000 1 example.com. Qm9n"
        );
    }
    text
}

/// A name of the zone.
fn name(text: &str) -> Box<[u8]> {
    let name: NameBuf = format!("{text}example.com.").parse().expect("a name");
    name.as_name().as_bytes().into()
}

/// With the DO bit. The octets are on the stack: who counts allocations counts those of answers.
fn query(name: &str, kind: u16) -> ([u8; 100], QueryParts) {
    let mut octets = [0; 256];
    let mut at = 0;
    for label in name.split_terminator('.') {
        octets[at] = label.len() as u8;
        octets[at + 1..=at + label.len()].copy_from_slice(label.as_bytes());
        at += 1 + label.len();
    }
    let name = Name::parse(&octets).expect("a name");
    let flags = QueryFlags {
        payload_size: Some(1_232),
        dnssec_ok: true,
        ..QueryFlags::default()
    };
    let mut message = [0; 100];
    let length = write_query(&mut message, 1, (name, kind, 1), flags).expect("room");
    let parts = parse_query(&message[..length]).expect("a query of our own");
    (message, parts)
}
