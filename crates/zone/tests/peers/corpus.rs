//! Questions.

use super::zones::Ground;
use wire::codes::qtype::{
    A, AAAA, ANY, CNAME, DNAME, DNSKEY, DS, HTTPS, MX, NS, NSEC, NSEC3PARAM, SOA, SRV, SVCB, TXT,
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
    ("large.", &[TXT, A]),
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
    ("relay.", &[MX]),
    ("_wild._tcp.", &[SRV]),
    ("wildsvc.", &[SVCB]),
    ("abroad.", &[A, NS]),
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

/// Names below the zone that are asked for ANY: with several RRsets and with one, an alias, wildcards, what is not there,
/// delegations.
const ANY_NAMES: &[&str] = &[
    "",
    "www.",
    "mail.",
    "odd.",
    "alias.",
    "one.wild.",
    "some.wildalias.",
    "ent.",
    "b.c.ent.",
    "nowhere.",
    "a.www.",
    "sub.",
    "host.sub.",
    "signed.",
];

pub(crate) fn questions(ground: &Ground) -> impl Iterator<Item = Question> {
    let zones = ground.files.iter().map(|file| file.name);
    zones.flat_map(|zone| {
        let corpus = CORPUS.iter();
        corpus.flat_map(move |(name, kinds)| {
            let kinds = kinds.iter();
            kinds.flat_map(move |kind| both(zone, name, *kind))
        })
    })
}

/// What RFC 8482 leaves to the server.
pub(crate) fn any_questions(ground: &Ground) -> impl Iterator<Item = Question> {
    let zones = ground.files.iter().map(|file| file.name);
    zones.flat_map(|zone| {
        let names = ANY_NAMES.iter();
        names.flat_map(move |name| both(zone, name, ANY))
    })
}

/// Without and with the DO bit.
fn both(zone: &str, name: &str, kind: u16) -> [Question; 2] {
    [false, true].map(|signed| Question {
        name: format!("{name}{zone}"),
        kind,
        signed,
    })
}
