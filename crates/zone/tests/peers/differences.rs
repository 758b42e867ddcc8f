//! What differs in two answers, and where servers are known to differ.

use super::corpus::Question;
use super::read::{Message, Read};
use wire::codes::qtype::{A, AAAA, SOA, SVCB, TXT};

/// What is not the same in two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    Rcode,
    Authoritative,
    Truncated,
    Answer,
    Authority,
    Additional,
}

impl Difference {
    /// The first one.
    pub(crate) fn between(ours: &Message, theirs: &Message) -> Option<Difference> {
        let mut addresses = theirs.additional.iter().filter(is_address);
        let lacks_addresses = addresses.any(|record| !ours.additional.contains(record));
        let differs = [
            (ours.rcode != theirs.rcode, Difference::Rcode),
            (
                ours.authoritative != theirs.authoritative,
                Difference::Authoritative,
            ),
            (ours.truncated != theirs.truncated, Difference::Truncated),
            (ours.answer != theirs.answer, Difference::Answer),
            (ours.authority != theirs.authority, Difference::Authority),
            (lacks_addresses, Difference::Additional),
        ];
        differs
            .into_iter()
            .find_map(|(differs, what)| differs.then_some(what))
    }
}

/// A difference that is theirs, with the reason.
pub(crate) struct Known {
    peer: &'static str,
    /// What names begin with; "" is every name.
    name: &'static str,
    kinds: &'static [u16],
    what: Difference,
}

impl Known {
    pub(crate) fn is(&self, peer: &str, question: &Question, what: &Difference) -> bool {
        self.peer == peer
            && question.name.starts_with(self.name)
            && (self.kinds.is_empty() || self.kinds.contains(&question.kind))
            && self.what == *what
    }
}

pub(crate) const KNOWN: &[Known] = &[
    // RFC 1034 §3.6.2: "domain software should not fail when presented with CNAME chains or loops; CNAME chains should be
    // followed and CNAME loops signalled as an error". named signals it by SERVFAIL; knotd, nsd and we by the records alone,
    // which show it.
    Known {
        peer: "named",
        name: "loop1.",
        kinds: &[A],
        what: Difference::Rcode,
    },
    // RFC 6672 §3.2: "If the resulting name is longer than 255 octets", YXDOMAIN; knotd 3.2 says NXDOMAIN.
    Known {
        peer: "knotd",
        name: "eeee",
        kinds: &[],
        what: Difference::Rcode,
    },
    // RFC 4035 §3.1.3.2 asks for both: "An NSEC RR proving that there is no exact match", and one "proving that the zone
    // contains no RRsets that would match [...] via wildcard name expansion". Behind a DNAME nsd gives one.
    Known {
        peer: "nsd",
        name: "b.old.nsec.",
        kinds: &[],
        what: Difference::Authority,
    },
    // RFC 5155 §7.2.3: "the server MUST include the NSEC3 RR that matches QNAME"; nsd adds the closest encloser's.
    Known {
        peer: "nsd",
        name: "*.wild.",
        kinds: &[TXT],
        what: Difference::Authority,
    },
    // RFC 2308 §3: "The TTL of this record is set from the minimum of the MINIMUM field of the SOA record and the TTL of the
    // SOA itself"; named says 0 where it was the SOA record that was asked for (its option zero-no-soa-ttl).
    Known {
        peer: "named",
        name: "sub.child.",
        kinds: &[SOA],
        what: Difference::Authority,
    },
    Known {
        peer: "named",
        name: "child.child.",
        kinds: &[SOA],
        what: Difference::Authority,
    },
    // RFC 5155 §7.2.2, for a name below an empty non-terminal that opt-out has no record for: nsd leaves the closest
    // provable encloser's proof out.
    Known {
        peer: "nsd",
        name: "x.ent2.optout.",
        kinds: &[],
        what: Difference::Authority,
    },
    // RFC 1034 §4.3.2, step 3c: "set the owner of the RR to be QNAME, and not the node with the "*" label"; knotd gives a
    // service's target the wildcard's own name.
    Known {
        peer: "knotd",
        name: "wildsvc.",
        kinds: &[SVCB],
        what: Difference::Additional,
    },
];

/// What the additional section is for here. RFC 1034 §4.3.2, step 6: "attempt to add any other RRs which may be useful";
/// servers add more or fewer, and what one of them adds, we add.
pub(crate) fn is_address(record: &&Read) -> bool {
    [A, AAAA].contains(&record.kind)
}
