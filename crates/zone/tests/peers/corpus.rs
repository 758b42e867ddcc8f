//! Questions, and where servers are known to differ.

use super::read::{Message, Read};
use super::zones::Ground;
use wire::codes::qtype::{
    A, AAAA, CNAME, DNAME, DNSKEY, DS, HTTPS, MX, NS, NSEC, NSEC3PARAM, SOA, SRV, SVCB, TXT,
};

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    pub(crate) name: String,
    pub(crate) kind: u16,
    /// The DO bit.
    pub(crate) signed: bool,
}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signed = if self.signed { " +do" } else { "" };
        write!(
            f,
            "{} {}{signed}",
            self.name,
            wire::codes::QtypeText(self.kind)
        )
    }
}

/// Names below the zone, and types.
const CORPUS: &[(&str, &[u16])] = &[
    ("", &[A, NS, SOA, MX, TXT, DNSKEY, NSEC3PARAM, DS, CNAME]),
    ("www.", &[A, AAAA, TXT, DS, CNAME, 65_280]),
    ("WwW.", &[A]),
    ("text.", &[TXT, A]),
    ("odd.", &[65_280, A]),
    ("_sip._tcp.", &[SRV, A]),
    ("_tcp.", &[A, SRV]),
    ("svc.", &[SVCB]),
    ("https.", &[HTTPS, A]),
    // Aliases.
    ("alias.", &[A, AAAA, TXT, CNAME, MX]),
    ("alias2.", &[A, TXT]),
    ("to-nx.", &[A]),
    ("nx.", &[A]),
    ("to-out.", &[A]),
    ("to-wild.", &[A, TXT]),
    ("to-sub.", &[A]),
    ("loop1.", &[A, CNAME]),
    // Wildcards.
    ("one.wild.", &[A, MX, TXT, DS]),
    ("two.one.wild.", &[A, TXT]),
    ("*.wild.", &[A, TXT]),
    ("wild.", &[A]),
    ("y.wild.", &[A, MX]),
    ("z.y.wild.", &[A]),
    ("x.y.wild.", &[A, TXT]),
    ("some.wildalias.", &[A, CNAME, TXT]),
    ("some.wildnx.", &[A]),
    // Empty non-terminals, and what is not there.
    ("ent.", &[A]),
    ("b.c.ent.", &[A, TXT]),
    ("a.b.c.ent.", &[TXT]),
    ("x.b.c.ent.", &[TXT]),
    ("nowhere.", &[A, MX]),
    ("a.nowhere.", &[A]),
    ("a.b.c.d.e.nowhere.", &[A]),
    ("a.www.", &[A]),
    ("\\000.", &[A]),
    ("zzzz.", &[A]),
    // Delegations.
    ("sub.", &[A, NS, SOA, DS, TXT]),
    ("host.sub.", &[A, NS, DS]),
    ("ns1.sub.", &[A, AAAA]),
    ("a.b.sub.", &[A]),
    ("signed.", &[A, NS, DS]),
    ("x.signed.", &[A, DS]),
    ("sibling.", &[A, DS]),
    ("deleg.ent2.", &[A, NS, DS]),
    ("x.deleg.ent2.", &[A]),
    ("ent2.", &[A]),
    ("x.ent2.", &[A]),
    // A delegation whose zone is served beside its parent, in some of the zones.
    ("child.", &[A, NS, SOA, DS, TXT]),
    ("www.child.", &[A, DS, MX]),
    ("nowhere.child.", &[A]),
    ("some.w.child.", &[TXT, A]),
    ("ns1.child.", &[A, AAAA]),
    // Redirections.
    ("old.", &[DNAME, TXT, A]),
    ("a.old.", &[A, TXT, CNAME]),
    ("b.old.", &[A]),
    ("b.a.old.", &[A]),
    ("x.out.", &[A]),
    (
        "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee.ffffffffffffffffffffffffffffff.long.",
        &[A],
    ),
    ("a.www.", &[NSEC]),
];

pub(crate) fn questions(ground: &Ground) -> impl Iterator<Item = Question> {
    let zones = ground.files.iter().map(|file| file.name);
    zones.flat_map(|zone| {
        CORPUS.iter().flat_map(move |(name, kinds)| {
            kinds.iter().flat_map(move |kind| {
                [false, true].map(|signed| Question {
                    name: format!("{name}{zone}"),
                    kind: *kind,
                    signed,
                })
            })
        })
    })
}

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
];

/// What the additional section is for here. RFC 1034 §4.3.2, step 6: "attempt to add any other RRs which may be useful";
/// servers add more or fewer, and what one of them adds, we add.
fn is_address(record: &&Read) -> bool {
    [A, AAAA].contains(&record.kind)
}
