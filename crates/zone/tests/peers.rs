//! The same questions to us and to knotd, nsd and named, on the same zones: unsigned, NSEC, NSEC3, NSEC3 with opt-out. And
//! delv validates what we answer.
//!
//! Programs that are not installed (Debian: knot, nsd, bind9, bind9-utils, bind9-dnsutils) are skipped by name.

#[path = "peers/corpus.rs"]
mod corpus;
#[path = "answers/read.rs"]
mod read;
#[path = "peers/servers.rs"]
mod servers;
#[path = "peers/zones.rs"]
mod zones;

use corpus::{Difference, KNOWN, Question, questions};
use read::Message;
use servers::{Peer, Responder};
use zones::Ground;

#[test]
fn knotd_nsd_and_named_answer_the_same() {
    let Some(ground) = Ground::new() else { return };
    let peers = Peer::start_all(&ground);
    let mut differences = Vec::new();
    for question in questions(&ground) {
        let ours = read::message(&ground.ask(&question).expect("the zone is served"));
        for peer in &peers {
            let theirs = read::message(&peer.ask(&question));
            differences.extend(differ(peer, &question, &ours, &theirs));
        }
    }
    for difference in &differences {
        println!("{difference}");
    }
    assert!(
        differences.is_empty(),
        "{} answers differ",
        differences.len()
    );
}

fn differ(peer: &Peer, question: &Question, ours: &Message, theirs: &Message) -> Option<String> {
    let what = Difference::between(ours, theirs)?;
    let is_known = KNOWN
        .iter()
        .any(|known| known.is(peer.name, question, &what));
    (!is_known).then(|| {
        format!(
            "{question:?}: {} differs in {what:?}\nours {ours:#?}\ntheirs {theirs:#?}",
            peer.name
        )
    })
}

#[test]
fn delv_validates_every_signed_answer() {
    let Some(ground) = Ground::new() else { return };
    if !servers::is_installed("delv") {
        println!("SKIP: delv is not installed (Debian: bind9-dnsutils), so nobody validates");
        return;
    }
    let responder = Responder::start(&ground);
    for zone in ground.signed() {
        for (name, kind, outcome) in corpus::VALIDATED {
            let said = responder.delv(zone, name, kind);
            // RFC 5155 §12.2: what a record with opt-out covers may be there unsigned, so a wildcard's answer is not proved.
            let unproved = zone.name.starts_with("optout") && said.contains("unsigned answer");
            assert!(
                said.contains(outcome) || unproved,
                "{name} {kind} in {}: \"{outcome}\" expected\n{said}",
                zone.name
            );
        }
    }
}
