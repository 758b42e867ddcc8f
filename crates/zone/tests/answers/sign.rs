//! Signs a zone with signatures that are none, and with chains that are right.

use sha1::{Digest, Sha1};
use std::collections::{BTreeMap, BTreeSet};
use wire::codes::qtype::{DNAME, DS, NS, NSEC, NSEC3, NSEC3PARAM, RRSIG};
use zone::record::Record;

#[derive(Clone, Debug)]
pub(crate) enum Chain {
    Unsigned,
    Nsec,
    Nsec3 {
        opt_out: bool,
        iterations: u16,
        salt: Vec<u8>,
    },
}

pub(crate) fn parent(name: &[u8]) -> &[u8] {
    &name[1 + usize::from(name[0])..]
}

/// The names above `name` down from the apex, itself last.
pub(crate) fn path<'n>(name: &'n [u8], apex: &[u8]) -> Vec<&'n [u8]> {
    let mut path = vec![name];
    while path[path.len() - 1].len() > apex.len() {
        path.push(parent(path[path.len() - 1]));
    }
    path.reverse();
    path
}

/// Labels from the root: RFC 4034 §6.1.
pub(crate) fn canonical(name: &[u8]) -> Vec<Vec<u8>> {
    let mut labels = Vec::new();
    let mut rest = name;
    while rest[0] != 0 {
        labels.push(rest[1..=usize::from(rest[0])].to_vec());
        rest = parent(rest);
    }
    labels.reverse();
    labels
}

pub(crate) fn hash(name: &[u8], iterations: u16, salt: &[u8]) -> Vec<u8> {
    let mut hash = Sha1::digest([name, salt].concat()).to_vec();
    for _ in 0..iterations {
        hash = Sha1::digest([&hash[..], salt].concat()).to_vec();
    }
    hash
}

pub(crate) fn base32hex(octets: &[u8]) -> Vec<u8> {
    let bits: String = octets.iter().map(|octet| format!("{octet:08b}")).collect();
    let digits = bits.as_bytes().chunks(5).map(|digit| {
        let digit = std::str::from_utf8(digit).unwrap();
        b"0123456789abcdefghijklmnopqrstuv"[usize::from_str_radix(digit, 2).unwrap()]
    });
    digits.collect()
}

/// Types as NSEC lists them (RFC 4034 §4.1.2), all below 256.
fn bitmap(kinds: &BTreeSet<u16>) -> Vec<u8> {
    let last = kinds.iter().max().copied().unwrap_or(0);
    if kinds.is_empty() {
        return Vec::new();
    }
    let mut map = vec![0_u8; usize::from(last / 8 + 1)];
    for kind in kinds {
        map[usize::from(kind / 8)] |= 0x80 >> (kind % 8);
    }
    [&[0, map.len() as u8][..], &map].concat()
}

fn record(owner: &[u8], kind: u16, ttl: u32, data: Vec<u8>) -> Record {
    Record {
        owner: owner.into(),
        kind,
        class: 1,
        ttl,
        rdata: data.into(),
    }
}

fn signature(owner: &[u8], kind: u16, ttl: u32, apex: &[u8]) -> Record {
    let labels = canonical(owner)
        .iter()
        .filter(|label| *label != b"*")
        .count() as u8;
    let mut data = kind.to_be_bytes().to_vec();
    data.extend([13, labels]);
    data.extend(ttl.to_be_bytes());
    data.extend([0x7f, 0, 0, 0, 0, 0, 0, 1, 0x12, 0x34]);
    data.extend(apex);
    data.extend([1, 2, 3, 4]);
    record(owner, RRSIG, ttl, data)
}

pub(crate) fn sign(apex: &[u8], mut records: Vec<Record>, chain: &Chain) -> Vec<Record> {
    if let Chain::Nsec3 {
        iterations, salt, ..
    } = chain
    {
        let mut data = vec![1, 0];
        data.extend(iterations.to_be_bytes());
        data.push(salt.len() as u8);
        data.extend(salt);
        records.push(record(apex, NSEC3PARAM, 0, data));
    }
    let kinds = visible(apex, &records);
    records.extend(match chain {
        Chain::Unsigned => return records,
        Chain::Nsec => nsec(&kinds, apex),
        Chain::Nsec3 {
            opt_out,
            iterations,
            salt,
        } => nsec3(&kinds, apex, *opt_out, *iterations, salt),
    });
    let mut signed = BTreeMap::new();
    for record in &records {
        let at_cut = kinds
            .get(&*record.owner)
            .is_some_and(|kinds| is_cut(&record.owner, kinds, apex));
        let authoritative = record.kind == NSEC3
            || kinds.contains_key(&*record.owner) && (!at_cut || [DS, NSEC].contains(&record.kind));
        if authoritative {
            signed.insert((record.owner.clone(), record.kind), record.ttl);
        }
    }
    records.extend(
        signed
            .iter()
            .map(|((owner, kind), ttl)| signature(owner, *kind, *ttl, apex)),
    );
    records
}

fn is_cut(name: &[u8], kinds: &BTreeSet<u16>, apex: &[u8]) -> bool {
    name != apex && kinds.contains(&NS)
}

/// The names that are neither below a delegation nor below a DNAME, and their types.
fn visible(apex: &[u8], records: &[Record]) -> BTreeMap<Vec<u8>, BTreeSet<u16>> {
    let mut all: BTreeMap<Vec<u8>, BTreeSet<u16>> = BTreeMap::new();
    for record in records {
        all.entry(record.owner.to_vec())
            .or_default()
            .insert(record.kind);
    }
    let hidden = |name: &[u8]| {
        path(name, apex).iter().any(|above| {
            let kinds = all.get(*above);
            *above != name
                && kinds.is_some_and(|kinds| kinds.contains(&DNAME) || is_cut(above, kinds, apex))
        })
    };
    all.iter()
        .filter(|(name, _)| !hidden(name))
        .map(|(name, kinds)| (name.clone(), kinds.clone()))
        .collect()
}

/// What NSEC says of a name: at a delegation only what is the parent's.
fn listed(name: &[u8], kinds: &BTreeSet<u16>, apex: &[u8]) -> BTreeSet<u16> {
    let cut = is_cut(name, kinds, apex);
    kinds
        .iter()
        .copied()
        .filter(|kind| !cut || [NS, DS].contains(kind))
        .collect()
}

fn nsec(kinds: &BTreeMap<Vec<u8>, BTreeSet<u16>>, apex: &[u8]) -> Vec<Record> {
    let mut names: Vec<&Vec<u8>> = kinds.keys().collect();
    names.sort_by_key(|name| canonical(name));
    let next = names.iter().cycle().skip(1);
    let pairs = names.iter().zip(next);
    let record = |(name, next): (&&Vec<u8>, &&Vec<u8>)| {
        let mut types = listed(name, &kinds[*name], apex);
        types.extend([RRSIG, NSEC]);
        record(name, NSEC, 60, [&next[..], &bitmap(&types)].concat())
    };
    pairs.map(record).collect()
}

fn nsec3(
    kinds: &BTreeMap<Vec<u8>, BTreeSet<u16>>,
    apex: &[u8],
    opt_out: bool,
    iterations: u16,
    salt: &[u8],
) -> Vec<Record> {
    let mut names: BTreeMap<Vec<u8>, BTreeSet<u16>> = BTreeMap::new();
    for (name, types) in kinds {
        if opt_out && is_cut(name, types, apex) && !types.contains(&DS) {
            continue;
        }
        let mut types = listed(name, types, apex);
        if types.iter().any(|kind| *kind != NS) {
            types.insert(RRSIG);
        }
        for above in path(name, apex) {
            names.entry(above.to_vec()).or_default();
        }
        names.insert(name.clone(), types);
    }
    let hashes: BTreeMap<Vec<u8>, &BTreeSet<u16>> = names
        .iter()
        .map(|(name, types)| (hash(name, iterations, salt), types))
        .collect();
    let next = hashes.keys().cycle().skip(1);
    let record = |((own, types), next): ((&Vec<u8>, &&BTreeSet<u16>), &Vec<u8>)| {
        let owner = [&[32][..], &base32hex(own), apex].concat();
        let mut data = vec![1, opt_out.into()];
        data.extend(iterations.to_be_bytes());
        data.push(salt.len() as u8);
        data.extend(salt);
        data.push(20);
        data.extend(next);
        data.extend(bitmap(types));
        record(&owner, NSEC3, 60, data)
    };
    hashes.iter().zip(next).map(record).collect()
}
