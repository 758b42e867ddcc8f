//! Zones and questions over so few labels that everything meets everything.

use super::read::{readable, text};
use super::sign::{Chain, sign};
use proptest::prelude::*;
use std::collections::BTreeSet;
use wire::codes::qtype::{A, AAAA, CNAME, DNAME, DS, MX, NS, SOA, SVCB, TXT};
use zone::record::Record;

/// Zones by their apexes, in lower case.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) zones: Vec<(Vec<u8>, Vec<Record>)>,
}

#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u16,
    /// The DO bit.
    pub(crate) signed: bool,
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (apex, records) in &self.zones {
            writeln!(f, "zone {}", text(apex))?;
            for record in records {
                writeln!(
                    f,
                    "  {} {} {}",
                    text(&record.owner),
                    record.kind,
                    readable(&record.rdata)
                )?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signed = if self.signed { " +do" } else { "" };
        write!(f, "{} {}{signed}", text(&self.name), self.kind)
    }
}

/// Labels above `z.`, the last one next to it.
pub(crate) fn wire(labels: &[&str]) -> Vec<u8> {
    let mut name = Vec::new();
    for label in labels.iter().copied().chain(["z"]) {
        name.push(label.len() as u8);
        name.extend(label.as_bytes());
    }
    name.push(0);
    name
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let label = prop::sample::select(vec!["a", "b", "*", "ns"]);
    prop::collection::vec(label, 0..4).prop_map(|labels| wire(&labels))
}

/// Also names outside every zone.
fn any_target() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        9 => any_name(),
        1 => Just(b"\x02ns\x07outside\x00".to_vec()),
    ]
}

fn any_record() -> impl Strategy<Value = (Vec<u8>, u16, Vec<u8>)> {
    let kinds = vec![A, A, AAAA, TXT, NS, NS, CNAME, DNAME, MX, DS, SVCB];
    let data = (any_target(), any::<u8>());
    (any_name(), prop::sample::select(kinds), data).prop_map(|(owner, kind, (target, number))| {
        let data = match kind {
            A => vec![192, 0, 2, number],
            AAAA => [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[number]].concat(),
            TXT => vec![1, number],
            NS | CNAME | DNAME => target,
            MX => [&[0, number][..], &target].concat(),
            DS => vec![0, number, 13, 2, 1, 2, 3, 4],
            _ if number < 60 => vec![0, 1, 0],
            _ => [&[0, number % 3][..], &target].concat(),
        };
        (owner, kind, data)
    })
}

/// Records of a zone that may be together: one CNAME and nothing beside it, one DNAME, no delegation at a DNAME.
fn tidy(apex: &[u8], records: Vec<(Vec<u8>, u16, Vec<u8>)>) -> Vec<Record> {
    let soa = [
        apex,
        apex,
        &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 60],
    ]
    .concat();
    let mut kept: Vec<(Vec<u8>, u16, Vec<u8>)> = vec![
        (apex.to_vec(), SOA, soa),
        (apex.to_vec(), NS, [b"\x02ns", apex].concat()),
    ];
    for (owner, kind, data) in records {
        let kinds: BTreeSet<u16> = kept
            .iter()
            .filter(|other| other.0 == owner)
            .map(|other| other.1)
            .collect();
        let forbidden = match kind {
            CNAME => !kinds.is_empty(),
            DNAME => kinds.contains(&DNAME) || kinds.contains(&NS) && owner != apex,
            NS => kinds.contains(&DNAME) && owner != apex,
            DS => owner == apex,
            _ => false,
        };
        let within = owner.ends_with(apex);
        let new = !kept.contains(&(owner.clone(), kind, data.clone()));
        if within && new && !forbidden && !kinds.contains(&CNAME) {
            kept.push((owner, kind, data));
        }
    }
    kept.into_iter()
        .map(|(owner, kind, data)| Record {
            owner: owner.into(),
            kind,
            class: 1,
            ttl: 3_600 + u32::from(kind),
            rdata: data.into(),
        })
        .collect()
}

fn chain() -> impl Strategy<Value = Chain> {
    prop_oneof![
        Just(Chain::Unsigned),
        Just(Chain::Nsec),
        (
            any::<bool>(),
            0_u16..3,
            prop::collection::vec(any::<u8>(), 0..3)
        )
            .prop_map(|(opt_out, iterations, salt)| Chain::Nsec3 {
                opt_out,
                iterations,
                salt
            }),
    ]
}

/// Versions of one zone, `z.`, that follow each other: a few records go, a few come, and rarely it is signed in another way.
pub(crate) fn history() -> impl Strategy<Value = Vec<Vec<Record>>> {
    let few = || prop::collection::vec(any_record(), 0..4);
    let gone = prop::collection::vec(any::<prop::sample::Index>(), 0..4);
    let step = (gone, few(), prop::option::weighted(0.1, chain()));
    let steps = prop::collection::vec(step, 1..6);
    let first = prop::collection::vec(any_record(), 0..24);
    (first, chain(), steps).prop_map(|(mut records, mut chain, steps)| {
        let mut versions = vec![version(1, &records, &chain)];
        for (serial, (gone, come, other)) in (2..).zip(steps) {
            for place in &gone {
                if !records.is_empty() {
                    records.swap_remove(place.index(records.len()));
                }
            }
            records.extend(come);
            chain = other.unwrap_or(chain);
            versions.push(version(serial, &records, &chain));
        }
        versions
    })
}

fn version(serial: u8, records: &[(Vec<u8>, u16, Vec<u8>)], chain: &Chain) -> Vec<Record> {
    let apex = wire(&[]);
    let mut records = tidy(&apex, records.to_vec());
    let soa = records.iter_mut().find(|record| record.kind == SOA);
    let soa = soa.expect("each zone has one");
    let place = soa.rdata.len() - 17;
    soa.rdata[place] = serial;
    sign(&apex, records, chain)
}

/// `z.`, and sometimes `a.z.` or `a.b.z.` beside it.
pub(crate) fn scene() -> impl Strategy<Value = Scene> {
    let zone = || (prop::collection::vec(any_record(), 0..14), chain());
    let apex = prop::sample::select(vec![vec!["a"], vec!["a", "b"]]);
    let child = prop::option::of((apex, zone()));
    (zone(), child).prop_map(|(parent, child)| {
        let zone = |apex: Vec<u8>, (records, chain): (Vec<_>, Chain)| {
            let records = tidy(&apex, records);
            let signed = sign(&apex, records, &chain);
            (apex, signed)
        };
        let mut zones = vec![zone(wire(&[]), parent)];
        zones.extend(child.map(|(apex, child)| zone(wire(&apex), child)));
        Scene { zones }
    })
}

pub(crate) fn questions() -> impl Strategy<Value = Vec<Question>> {
    let kinds = vec![
        A, NS, CNAME, SOA, MX, TXT, AAAA, DNAME, DS, SVCB, 47, 99, 255, 46,
    ];
    let question = (any_target(), prop::sample::select(kinds), any::<bool>());
    let question = question.prop_map(|(name, kind, signed)| Question { name, kind, signed });
    prop::collection::vec(question, 30)
}
