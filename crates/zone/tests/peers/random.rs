//! Zones and questions that nobody thought of: few labels, so that everything meets everything. A seed determines them.

use super::corpus::Question;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use wire::codes::qtype;

/// Names and how dnssec-signzone is asked; `None` is unsigned.
pub(crate) const ZONES: [(&str, Option<&[&str]>); 8] = [
    ("r0.test.", None),
    ("r1.test.", None),
    ("r2.test.", Some(&[])),
    ("r3.test.", Some(&[])),
    ("r4.test.", Some(&["-3", "-", "-H", "0"])),
    ("r5.test.", Some(&["-3", "-", "-H", "0"])),
    ("r6.test.", Some(&["-3", "-", "-H", "0", "-A"])),
    ("r7.test.", Some(&["-3", "aabb", "-H", "2", "-A"])),
];

const LABELS: &[&str] = &["a", "b", "c", "*", "ns", "mail"];

/// Those of questions: some are in no zone.
const ASKED_LABELS: &[&str] = &["a", "b", "c", "*", "ns", "mail", "x", "\\000", "ZZ"];

const KINDS: &[&str] = &[
    "A", "A", "AAAA", "TXT", "NS", "NS", "NS", "CNAME", "CNAME", "DNAME", "MX", "SRV", "SVCB",
    "HTTPS", "PTR", "NAPTR",
];

const ASKED_KINDS: &[u16] = &[
    qtype::A,
    qtype::A,
    qtype::AAAA,
    qtype::NS,
    qtype::CNAME,
    qtype::SOA,
    qtype::MX,
    qtype::TXT,
    qtype::DNAME,
    qtype::DS,
    qtype::SRV,
    qtype::SVCB,
    qtype::HTTPS,
    qtype::NSEC3PARAM,
    qtype::DNSKEY,
];

/// Numbers that look random: splitmix64.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A name below the zone, with a dot at its end where it is not the zone's own.
    fn name(&mut self, labels: &[&str], most: usize) -> String {
        let count = self.below(most + 1);
        (0..count)
            .map(|_| self.one_of(labels).to_owned() + ".")
            .collect()
    }
}

/// Data by type, by owner.
type Owners = BTreeMap<String, BTreeMap<&'static str, BTreeSet<String>>>;

/// The text of a zone file that knotd, nsd and named all load.
pub(crate) fn zone(apex: &str, numbers: &mut Numbers) -> String {
    let mut owners = Owners::new();
    add(&mut owners, apex, apex, "NS", format!("ns.{apex}"));
    add(
        &mut owners,
        apex,
        &format!("ns.{apex}"),
        "A",
        "192.0.2.53".to_owned(),
    );
    for _ in 0..8 + numbers.below(24) {
        let owner = numbers.name(LABELS, 4) + apex;
        let kind = numbers.one_of(KINDS);
        let target = match numbers.below(10) {
            0 => "ns.outside.".to_owned(),
            _ => numbers.name(LABELS, 4) + apex,
        };
        if kind == "NS" && numbers.below(2) == 0 && !owner.starts_with('*') {
            delegate(&mut owners, apex, &owner, numbers);
        } else {
            let data = data(kind, &target, numbers.below(250));
            add(&mut owners, apex, &owner, kind, data);
        }
    }
    written(apex, &hidden_left_out(owners))
}

fn data(kind: &str, target: &str, number: usize) -> String {
    match kind {
        "A" => format!("192.0.2.{number}"),
        "AAAA" => format!("2001:db8::{number:x}"),
        "TXT" => format!("\"{number}\""),
        "MX" => format!("{number} {target}"),
        "SRV" => format!("0 {number} 5060 {target}"),
        "SVCB" | "HTTPS" => format!("{} {target}", number % 3),
        "NAPTR" => format!("1 {number} \"a\" \"\" \"\" {target}"),
        _ => target.to_owned(),
    }
}

/// A delegation with glue, half of them with a DS record.
fn delegate(owners: &mut Owners, apex: &str, owner: &str, numbers: &mut Numbers) {
    let server = format!("ns.{owner}");
    add(owners, apex, owner, "NS", server.clone());
    add(owners, apex, &server, "A", "192.0.2.77".to_owned());
    if numbers.below(2) == 0 {
        let digest = "0123456789abcdef".repeat(4);
        add(owners, apex, owner, "DS", format!("1 13 2 {digest}"));
    }
}

/// Adds a record where it may be: what is left out no server loads.
fn add(owners: &mut Owners, apex: &str, owner: &str, kind: &'static str, data: String) {
    let kinds = owners.entry(owner.to_owned()).or_default();
    let has = |other| kinds.contains_key(other);
    let (is_apex, server) = (owner == apex, format!("ns.{apex}"));
    let is_forbidden = match kind {
        _ if has("CNAME") => true,
        "CNAME" => !kinds.is_empty(),
        // One that leads below itself grows until each server has enough in its own way.
        "DNAME" => is_apex || has("DNAME") || has("NS") || data.ends_with(owner),
        // named wants an address for each server of the apex that is in the zone.
        "NS" if is_apex => data != server && data != "ns.outside.",
        "NS" => owner == server || owner.starts_with('*') || has("DNAME"),
        "DS" => is_apex || !has("NS"),
        _ => false,
    };
    if !is_forbidden {
        kinds.entry(kind).or_default().insert(data);
    }
}

/// Without what lies below a DNAME, which nsd refuses.
fn hidden_left_out(mut owners: Owners) -> Owners {
    let redirected = owners
        .iter()
        .filter(|(_, kinds)| kinds.contains_key("DNAME"));
    let ends: Vec<String> = redirected.map(|(owner, _)| format!(".{owner}")).collect();
    owners.retain(|owner, _| !ends.iter().any(|end| owner.ends_with(end)));
    owners
}

fn written(apex: &str, owners: &Owners) -> String {
    let mut text = format!("{apex} 3600 SOA ns.{apex} host.{apex} 1 7200 3600 1209600 300\n");
    for (owner, kinds) in owners {
        for (place, (kind, all)) in kinds.iter().enumerate() {
            for data in all {
                // Nothing can fail when a String is written to.
                let _ = writeln!(text, "{owner} {} {kind} {data}", 600 + place);
            }
        }
    }
    text
}

/// A question about the zone of this text: half of them about names that are in it, or below those.
pub(crate) fn question(apex: &str, text: &str, numbers: &mut Numbers) -> Question {
    let name = match numbers.below(2) {
        0 => numbers.name(ASKED_LABELS, 4) + apex,
        _ => {
            let lines: Vec<&str> = text.lines().collect();
            let owner = numbers.one_of(&lines).split(' ').next();
            numbers.name(ASKED_LABELS, 1) + owner.unwrap_or(apex)
        }
    };
    Question {
        name,
        kind: numbers.one_of(ASKED_KINDS),
        signed: numbers.below(3) > 0,
    }
}
