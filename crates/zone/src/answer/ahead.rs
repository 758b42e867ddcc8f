//! Looking ahead: whoever has several queries asks memory for what each of them needs first, before it waits for any.
//!
//! A name of a zone that is larger than a processor's caches costs a wait for its slot in the table, one for the name itself, and
//! one for what lies behind it; a name that is not there costs waits for what covers it. What is asked for here is only supposed:
//! [`answer`](super::answer) looks whether it is the name, and takes it from there.

use super::denial::Absence;
use super::{Among, Zones};
use crate::zone::nsec3::Hash;
use crate::zone::parts::{DNAME, OPTED_OUT};
use crate::zone::{Denial, Zone};
use wire::codes::qtype;
use wire::message::QueryParts;
use wire::name::NAME_LENGTH_MAX;

/// Octets of a cache line.
const LINE: usize = 64;

/// Lines of an answer: its name, the headers of its RRsets and its records; and with their signatures.
const LINES: usize = 2;
const SIGNED_LINES: usize = 4;

/// A name that will be looked up.
#[derive(Clone, Copy, Debug)]
pub struct Foreseen {
    /// The zone's number.
    pub(super) zone: u32,
    hash: u64,
    is_signed: bool,
    next: Next,
}

/// What is asked for next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The slot of the table that the name will be looked for in.
    Slot,
    /// What that slot tells of; or, where it tells of none, what the proof of that will be looked for in.
    Name,
    /// The proof, which covers this hash.
    Proof(Absence, Hash),
    /// Nothing more.
    Done(Known),
}

/// What is known of a name when there is nothing more to ask for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    Nothing,
    /// It is not there.
    Absent(Absence),
    /// It is at this place in the zone, or another one with the same hash is.
    Supposed(u32),
}

/// What can be asked for of a query's name. `None`: it is in no zone that is loaded, or in one that is so small that nothing need
/// be asked for.
#[inline]
pub fn foresee(among: Among<'_>, message: &[u8], parts: &QueryParts) -> Option<Foreseen> {
    Foreseen::in_zones(among, message, parts, Zone::is_large)
}

impl Foreseen {
    /// The same, however small the zone is.
    pub fn of(zones: &Zones, message: &[u8], parts: &QueryParts) -> Option<Foreseen> {
        Foreseen::in_zones((zones, &|_| true), message, parts, |_| true)
    }

    #[inline(always)]
    fn in_zones(
        (zones, serves): Among<'_>,
        message: &[u8],
        parts: &QueryParts,
        is_meant: impl FnOnce(&Zone) -> bool,
    ) -> Option<Foreseen> {
        let name = parts.qname(message).as_bytes();
        let labels = usize::from(parts.labels);
        let home = zones.find(name, labels, parts.qtype == qtype::DS, serves)?;
        let zone = home.zone.filter(|zone| is_meant(zone))?;
        Some(Foreseen {
            zone: home.number,
            hash: zone.first_hash(name, labels),
            is_signed: parts.edns.is_some_and(|edns| edns.dnssec_ok),
            next: Next::Slot,
        })
    }

    /// Asks by `want` for what comes next, of the same zones and for the same query as before; whether there will be more to ask
    /// for when that has come. To be called for all queries of a batch in turn: a processor waits even where it only asks, if it
    /// must find out first where the memory is, but it finds out several at once.
    #[inline]
    pub fn ask(
        &mut self,
        zones: &Zones,
        (message, parts): (&[u8], &QueryParts),
        want: impl Fn(*const u8),
    ) -> bool {
        let Some(zone) = zones.zone(self.zone as usize) else {
            return false;
        };
        self.next = match self.next {
            Next::Slot => {
                want(zone.slot(self.hash));
                Next::Name
            }
            Next::Name => match zone.supposed(self.hash) {
                Some(node) => {
                    let lines = if self.is_signed { SIGNED_LINES } else { LINES };
                    ask_lines(node.octets(), lines, want);
                    Next::Done(Known::Supposed(node.at))
                }
                None if self.is_signed => absent(zone, message, parts, want),
                None => Next::Done(Known::Nothing),
            },
            Next::Proof(absence, hash) => prove(zone, absence, &hash, want),
            done @ Next::Done(_) => done,
        };
        !matches!(self.next, Next::Done(_))
    }

    /// What is known of the name by now.
    #[inline]
    pub(super) fn known(&self) -> Known {
        match self.next {
            Next::Done(known) => known,
            _ => Known::Nothing,
        }
    }
}

/// Looks for a name that is not there, in a zone with NSEC3 records, and asks for where its proof will be looked for.
fn absent(zone: &Zone, message: &[u8], parts: &QueryParts, want: impl Fn(*const u8)) -> Next {
    let Denial::Nsec3(chain) = zone.denial() else {
        return Next::Done(Known::Nothing);
    };
    let mut name = [0; NAME_LENGTH_MAX];
    let name = parts.qname(message).to_lowercase(&mut name).as_bytes();
    let found = zone.find(name, usize::from(parts.labels));
    let node = found.node;
    if found.exact() || node.has_cut() || node.has(DNAME) || node.has(OPTED_OUT) {
        return Next::Done(Known::Nothing);
    }
    let hash = chain.parameters.hash(&name[found.next_closer_at..]);
    want(chain.line(&hash));
    Next::Proof(Absence::of(&found), hash)
}

/// Asks for so many lines of these octets, or for all where they are fewer.
#[inline]
fn ask_lines(octets: &[u8], lines: usize, want: impl Fn(*const u8)) {
    let lines = octets.chunks(LINE).take(lines);
    lines.for_each(|line| want(line.as_ptr()));
}

/// Asks for what covers the name.
fn prove(zone: &Zone, mut absence: Absence, hash: &Hash, want: impl Fn(*const u8)) -> Next {
    let Denial::Nsec3(chain) = zone.denial() else {
        return Next::Done(Known::Nothing);
    };
    absence.covering = zone.covering(chain, hash);
    if let Some(octets) = zone.proof_octets(absence.covering) {
        ask_lines(octets, SIGNED_LINES, want);
    }
    Next::Done(Known::Absent(absence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Opener, Reader, Settings};
    use std::cell::Cell;
    use std::io::ErrorKind;
    use std::sync::Arc;
    use wire::codes::class;
    use wire::message::{QueryFlags, parse_query, write_query};
    use wire::name::NameBuf;

    fn zones(names: usize, more: &str) -> Zones {
        let apex: NameBuf = "example.".parse().unwrap();
        let addresses: String = (0..names)
            .map(|number| format!("n{number} 60 A 192.0.2.1\n"))
            .collect();
        let text = format!("@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS n0\n{addresses}{more}");
        let open: Opener<'_> = Box::new(|_| Err(ErrorKind::NotFound.into()));
        let reader = Reader::new("zone", text.as_bytes(), open, Settings::new(apex.as_name()));
        let records = reader.map(|record| record.unwrap());
        let (zone, _) = Zone::build(apex.as_name(), records).unwrap();
        Zones::new([(apex, Some(Arc::new(zone)))])
    }

    /// How many lines are asked for in each look, for an address.
    fn looks(zones: &Zones, name: &str, dnssec_ok: bool) -> Option<Vec<usize>> {
        let name: NameBuf = name.parse().unwrap();
        let mut message = [0; 512];
        let flags = QueryFlags {
            payload_size: dnssec_ok.then_some(1_232),
            dnssec_ok,
            ..QueryFlags::default()
        };
        let question = (name.as_name(), qtype::A, class::IN);
        let length = write_query(&mut message, 1, question, flags).unwrap();
        let parts = parse_query(&message[..length]).unwrap();
        let mut foreseen = foresee((zones, &|_| true), &message, &parts)?;
        let mut looks = Vec::new();
        loop {
            let count = Cell::new(0);
            let more = foreseen.ask(zones, (&message, &parts), |_| count.set(count.get() + 1));
            looks.push(count.get());
            if !more {
                return Some(looks);
            }
        }
    }

    #[test]
    fn names_of_large_zones_are_asked_for() {
        let large = zones(10_000, "");
        let looks = |name| looks(&large, name, false);
        assert_eq!(looks("n9000.example."), Some(vec![1, 2]));
        assert_eq!(looks("N77.exAMPLE."), Some(vec![1, 2]));
        // No name of the zone is so deep: the search begins with the one above.
        assert_eq!(looks("a.b.n77.example."), Some(vec![1, 2]));
        assert_eq!(looks("nx.example."), Some(vec![1, 0]));
        assert_eq!(looks("n77.example.org."), None);
        assert_eq!(
            super::tests::looks(&zones(100, ""), "n77.example.", false),
            None
        );
    }

    /// A chain of one record, that of the apex, covers all else.
    #[test]
    fn what_proves_that_a_name_is_not_there_is_asked_for() {
        // RFC 5155 §5 of the apex, without salt and iterations.
        let hash = "3msev9usmd4br9s97v51r2tdvmr9iqo1";
        let chain = format!("@ 60 NSEC3PARAM 1 0 0 -\n{hash} 60 NSEC3 1 0 0 - {hash} NS SOA\n");
        let behind: String = (0..10)
            .map(|number| format!("z{number} 60 TXT \"{}\"\n", "x".repeat(200)))
            .collect();
        let large = zones(10_000, &format!("{chain}{behind}"));
        let lines = looks(&large, "nx.example.", true).unwrap();
        assert_eq!(lines[..2], [1, 1]);
        assert!(lines[2..].iter().sum::<usize>() <= 4, "{lines:?}");
        assert_eq!(lines.len(), 3);
        assert_eq!(looks(&large, "nx.example.", false), Some(vec![1, 0]));
        let there = looks(&large, "n5.example.", true).unwrap();
        assert_eq!(there.len(), 2, "it is there");
    }
}
