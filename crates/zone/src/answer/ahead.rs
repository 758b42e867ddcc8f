//! Looking ahead: whoever has several queries asks memory for what each of them needs first, before it waits for any.
//!
//! A name of a zone that is larger than a processor's caches costs a wait for its slot in the table, one for the name itself, and
//! one for what lies behind it. What is asked for here is only supposed: [`answer`](super::answer) looks it up by itself.

use super::Zones;
use wire::codes::qtype;
use wire::message::QueryParts;

/// Octets of a cache line.
const LINE: usize = 64;

/// Lines of an answer: its name, the headers of its RRsets and its records; and with their signatures.
const LINES: u8 = 2;
const SIGNED_LINES: u8 = 4;

/// A name that will be looked up.
#[derive(Clone, Copy, Debug)]
pub struct Foreseen {
    zone: u32,
    hash: u64,
    lines: u8,
}

/// Asks by `want` for the slot of the table that the name will be looked for in. `None`: it is in no zone that is loaded, or in one
/// that is so small that it need not be asked for.
#[inline]
pub fn foresee(
    zones: &Zones,
    message: &[u8],
    parts: &QueryParts,
    want: impl FnOnce(*const u8),
) -> Option<Foreseen> {
    let name = parts.qname(message).as_bytes();
    let labels = usize::from(parts.labels);
    let home = zones.find(name, labels, parts.qtype == qtype::DS)?;
    let (hash, slot) = home.zone?.first_slot(name, labels)?;
    want(slot);
    let is_signed = parts.edns.is_some_and(|edns| edns.dnssec_ok);
    Some(Foreseen {
        zone: home.number,
        hash,
        lines: if is_signed { SIGNED_LINES } else { LINES },
    })
}

impl Foreseen {
    /// Asks for the name and what lies behind it, if its slot has come and tells of one.
    #[inline]
    pub fn foresee_name(&self, zones: &Zones, want: impl Fn(*const u8)) {
        let zone = zones.zone(self.zone as usize);
        if let Some(octets) = zone.and_then(|zone| zone.supposed(self.hash)) {
            let lines = octets.chunks(LINE).take(self.lines.into());
            lines.for_each(|line| want(line.as_ptr()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Opener, Reader, Settings};
    use crate::zone::Zone;
    use std::cell::RefCell;
    use std::io::ErrorKind;
    use std::sync::Arc;
    use wire::message::parse_query;
    use wire::name::NameBuf;

    fn zones(names: usize) -> Zones {
        let apex: NameBuf = "example.".parse().unwrap();
        let addresses: String = (0..names)
            .map(|number| format!("n{number} 60 A 192.0.2.1\n"))
            .collect();
        let text = format!("@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS n0\n{addresses}");
        let open: Opener<'_> = Box::new(|_| Err(ErrorKind::NotFound.into()));
        let reader = Reader::new("zone", text.as_bytes(), open, Settings::new(apex.as_name()));
        let records = reader.map(|record| record.unwrap());
        let (zone, _) = Zone::build(apex.as_name(), records).unwrap();
        Zones::new([(apex, Some(Arc::new(zone)))])
    }

    /// How many lines are asked for in the first and in the second look, for an address.
    fn looks(zones: &Zones, name: &str) -> Option<(usize, usize)> {
        let name: NameBuf = name.parse().unwrap();
        let mut message = b"\0\x01\0\0\0\x01\0\0\0\0\0\0".to_vec();
        message.extend(name.as_name().as_bytes());
        message.extend([0, 1, 0, 1]);
        let parts = parse_query(&message).unwrap();
        let wanted = RefCell::new(Vec::new());
        let want = |place: *const u8| wanted.borrow_mut().push(place);
        let foreseen = foresee(zones, &message, &parts, want)?;
        let first = wanted.borrow().len();
        foreseen.foresee_name(zones, want);
        Some((first, wanted.borrow().len() - first))
    }

    #[test]
    fn names_of_large_zones_are_asked_for() {
        let large = zones(10_000);
        assert_eq!(looks(&large, "n9000.example."), Some((1, 2)));
        assert_eq!(looks(&large, "N77.exAMPLE."), Some((1, 2)));
        // No name of the zone is so deep: the search begins with the one above.
        assert_eq!(looks(&large, "a.b.n77.example."), Some((1, 2)));
        assert_eq!(looks(&large, "nx.example."), Some((1, 0)));
        assert_eq!(looks(&large, "n77.example.org."), None);
        assert_eq!(looks(&zones(100), "n77.example."), None);
    }
}
