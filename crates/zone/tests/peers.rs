//! The same questions to us and to knotd, nsd and named, on the same zones: unsigned, NSEC, NSEC3, NSEC3 with opt-out. And
//! delv validates every answer of ours that is signed.
//!
//! Programs that are not installed (Debian: knot, nsd, bind9, bind9-utils, bind9-dnsutils) are skipped by name.

#[path = "peers/corpus.rs"]
mod corpus;
#[path = "peers/differences.rs"]
mod differences;
#[path = "peers/random.rs"]
mod random;
#[path = "answers/read.rs"]
mod read;
#[path = "peers/servers.rs"]
mod servers;
#[path = "peers/validation.rs"]
mod validation;
#[path = "peers/zones.rs"]
mod zones;

use corpus::{Question, any_questions, questions};
use differences::{Difference, KNOWN};
use read::{Message, Read};
use servers::{Peer, Responder};
use std::collections::BTreeSet;
use validation::NOT_VALIDATED;
use wire::codes::qtype;
use zone::record::Record;
use zone::zone::Flaw;
use zones::{Ground, ZoneFile};

#[test]
fn knotd_nsd_and_named_answer_the_same() {
    let Some(ground) = Ground::new() else { return };
    let peers = Peer::start_all(&ground);
    let mut differences = Vec::new();
    for question in questions(&ground) {
        let ours = read::message(&ground.ask(&question).expect("the zone is served"));
        for peer in &peers {
            // What we answer over TCP is the same: crates/server/tests/zones/same.rs.
            for theirs in [peer.ask(&question), peer.ask_stream(&question)] {
                let theirs = read::message(&theirs);
                differences.extend(differ(peer, &question, &ours, &theirs));
            }
        }
    }
    are_none(&differences);
}

/// RFC 8482 §4.1: "A DNS responder that receives an ANY query MAY decline to provide a conventional ANY response or MAY instead
/// send a response with a single RRset (or a larger subset of available RRsets) in the answer section." So servers choose
/// otherwise: what we choose they give to who asks for its type, and to ANY they give something, too. Where there is nothing to
/// choose from, ANY gets the same from all.
#[test]
fn any_gets_one_rrset_that_the_others_have_too() {
    let Some(ground) = Ground::new() else { return };
    let peers = Peer::start_all(&ground);
    let mut differences = Vec::new();
    for any in any_questions(&ground) {
        let ours = ground.message(&any);
        let question = chosen(&any, &ours);
        for peer in &peers {
            let theirs = read::message(&peer.ask(&any));
            // RFC 8482 §4.4: "A DNS responder MAY behave differently when processing ANY queries received over different
            // transports": nsd says to come by TCP.
            let says_nothing = theirs.answer.is_empty() && !theirs.truncated;
            if question != any {
                if says_nothing {
                    differences.push(format!("{any:?}: {} has nothing", peer.name));
                }
                let theirs = read::message(&peer.ask(&question));
                differences.extend(differ(peer, &question, &ours, &theirs));
            } else if !theirs.truncated {
                differences.extend(differ(peer, &any, &ours, &theirs));
            }
        }
    }
    are_none(&differences);
}

/// The question for the one RRset that ANY was answered with; the same question where it was answered with none.
fn chosen(any: &Question, answer: &Message) -> Question {
    let records = answer.answer.iter().map(|record| record.kind);
    let kinds: BTreeSet<u16> = records.filter(|kind| *kind != qtype::RRSIG).collect();
    assert!(kinds.len() < 2, "{any:?} has more than one: {answer:#?}");
    Question {
        kind: kinds.first().copied().unwrap_or(any.kind),
        ..any.clone()
    }
}

fn are_none(differences: &[String]) {
    for difference in differences {
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

/// What zones and questions are made of, each time others. Of the first, MX records and the like point to names of wildcards.
const SEEDS: [u64; 3] = [5, 12, 22];

/// Questions to each of the zones that nobody thought of.
const RANDOM_QUESTIONS: usize = 250;

/// They differ among themselves, where the corpus says: somebody answers as we do, and the addresses that knotd and nsd both
/// have of use, we have, too.
#[test]
fn somebody_answers_as_we_do_whatever_the_zone_and_the_question() {
    let differences = SEEDS.iter().flat_map(|seed| random_differences(*seed));
    are_none(&differences.collect::<Vec<_>>());
}

fn random_differences(seed: u64) -> Vec<String> {
    let mut numbers = random::Numbers(seed);
    let zones =
        random::ZONES.map(|(name, signed)| (name, random::zone(name, &mut numbers), signed));
    let Some(ground) = Ground::of(zones.clone()) else {
        return Vec::new();
    };
    let peers = Peer::start_all(&ground);
    if peers.len() < 3 {
        return Vec::new();
    }
    let questions = zones
        .iter()
        .flat_map(|(name, text, _)| std::iter::repeat_n((name, text), RANDOM_QUESTIONS));
    let questions = questions.map(|(name, text)| random::question(name, text, &mut numbers));
    questions
        .filter_map(|question| alone(&ground, &peers, &question))
        .collect()
}

/// What nobody answers as we do, or lacks addresses that two others have.
fn alone(ground: &Ground, peers: &[Peer], question: &Question) -> Option<String> {
    let ours = ground.message(question);
    let theirs: Vec<Message> = peers
        .iter()
        .map(|peer| read::message(&peer.ask_stream(question)))
        .collect();
    let [first, second, ..] = &theirs[..] else {
        return None;
    };
    let shared = first.additional.iter().filter(differences::is_address);
    let mut shared = shared.filter(|record| second.additional.contains(record));
    let lacks = shared.any(|record| !ours.additional.contains(record));
    (lacks || !theirs.iter().any(|one| agrees(&ours, one, &theirs)))
        .then(|| format!("{question:?}\nours {ours:#?}\ntheirs {theirs:#?}"))
}

/// Whether one of them answers as we do. RFC 4035 §3.1.3.4 has two NSEC records for a wildcard without data; where the wildcard is an
/// empty non-terminal, and behind a DNAME, each of the others may give another one of the two.
fn agrees(ours: &Message, one: &Message, all: &[Message]) -> bool {
    let has = |message: &Message, record: &Read| message.authority.contains(record);
    match Difference::between(ours, one) {
        None => true,
        Some(Difference::Authority) => {
            let has_more = one.authority.iter().all(|record| has(ours, record));
            let mut records = ours.authority.iter();
            has_more && records.all(|record| all.iter().any(|other| has(other, record)))
        }
        Some(_) => false,
    }
}

/// `None` where nobody validates.
fn ground_for_delv() -> Option<Ground> {
    if !zones::is_installed("delv") {
        println!("SKIP: delv is not installed (Debian: bind9-dnsutils), so nobody validates");
        return None;
    }
    Ground::new()
}

/// Every answer of the corpus to a query with DO: valid in all its parts, or of those that the list says cannot be.
#[test]
fn delv_validates_every_signed_answer() {
    let Some(ground) = ground_for_delv() else {
        return;
    };
    let (mut parts, mut complaints) = (BTreeSet::new(), Vec::new());
    let mut left_out = vec![0; NOT_VALIDATED.len()];
    let (mut all, mut taken) = (0, 0);
    for question in questions(&ground).filter(|question| question.signed) {
        all += 1;
        let answer = ground.message(&question);
        let mut reasons = NOT_VALIDATED.iter();
        if let Some(place) = reasons.position(|left| (left.is)(&ground, &question, &answer)) {
            left_out[place] += 1;
            continue;
        }
        match validation::take_apart(&ground, &question, &answer) {
            Ok(questions) => {
                taken += 1;
                parts.extend(questions);
            }
            Err(complaint) => complaints.push(complaint),
        }
    }
    let responder = Responder::start(&ground.zones);
    complaints.extend(validation::complaints(&ground, &responder, &parts));
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!(
        "{taken} of {all} answers, made up of {} that delv is asked to validate",
        parts.len()
    );
    for (left, count) in NOT_VALIDATED.iter().zip(&left_out) {
        println!("{count} not validated: {}", left.reason);
        assert!(*count > 0, "no answer is like that any more");
    }
    assert!(complaints.is_empty(), "{} complaints", complaints.len());
}

/// A test of the test. RFC 4035 §5.5: "If for whatever reason none of the RRSIGs can be validated, the response SHOULD be
/// considered BAD."
#[test]
fn delv_finds_one_broken_signature() {
    let Some(ground) = ground_for_delv() else {
        return;
    };
    let of_zone = |name: &str, kind: u16| Question {
        name: format!("{name}nsec.test."),
        kind,
        signed: true,
    };
    let whole = of_zone("mail.", qtype::A);
    let zone = ground.home(&whole).expect("it is served");
    // Whose signature over what is broken, and where that is seen: in data, in a wildcard's, in what denies a type, a name that
    // a wildcard stands for, a name.
    let broken = [
        ("www.", qtype::A, of_zone("www.", qtype::A)),
        ("*.wild.", qtype::A, of_zone("one.wild.", qtype::A)),
        ("www.", qtype::NSEC, of_zone("www.", qtype::TXT)),
        ("*.wild.", qtype::NSEC, of_zone("one.wild.", qtype::A)),
        ("a.new.", qtype::NSEC, of_zone("nowhere.", qtype::A)),
    ];
    let responder = Responder::start(&ground.zones);
    for (name, covered, question) in broken {
        let validate = |responder: &Responder| validation::validate(&ground, responder, &question);
        assert_eq!(validate(&responder), Ok(()), "before");
        let responder = Responder::start(&ground.with_broken(zone, name, covered));
        assert!(
            validate(&responder).is_err(),
            "{question:?} is believed, and {name} has a broken signature over {covered}"
        );
        let validated = validation::validate(&ground, &responder, &whole);
        assert_eq!(validated, Ok(()), "what else there is");
    }
}

/// Another test of the test: what is in an answer and in none of its parts, or the other way round, is not passed over.
/// The same zones as `millrace zone check --dnssec` looks at them: wildcards, delegations, occluded names, NSEC, NSEC3, opt-out.
#[test]
fn every_signature_of_dnssec_signzone_verifies() {
    let Some(ground) = Ground::new() else { return };
    let signed: Vec<&ZoneFile> = ground
        .files
        .iter()
        .filter(|file| file.anchor.is_some())
        .collect();
    assert_eq!(signed.len(), 4);
    for file in signed {
        let (name, mut records) = (
            file.apex(),
            zones::records(file.apex().as_name(), &file.file),
        );
        let zone = zones::built(name.as_name(), records.clone());
        assert_eq!(zone.flaws(2), [], "{name}");
        let is_address =
            |record: &&mut Record| record.kind == qtype::A && record.owner.starts_with(b"\x03www");
        let address = records.iter_mut().find(is_address).expect("an address");
        *address.rdata.last_mut().expect("four octets") ^= 1;
        let flaws = zones::built(name.as_name(), records).flaws(2);
        assert!(
            matches!(flaws[..], [Flaw::Wrong { kind: qtype::A, .. }]),
            "{name}: {flaws:?}"
        );
    }
}

#[test]
fn an_answer_with_a_record_too_many_or_too_few_is_found() {
    let Some(ground) = Ground::new() else { return };
    for name in ["alias2.", "to-wild.", "b.old.", "sub.", "nowhere."] {
        let question = Question {
            name: format!("{name}nsec3.test."),
            kind: qtype::A,
            signed: true,
        };
        let take_apart = |answer: &Message| validation::take_apart(&ground, &question, answer);
        let is_whole = |answer: &Message| take_apart(answer).is_ok();
        let answer = ground.message(&question);
        assert!(is_whole(&answer), "{answer:#?}");
        for place in 0..answer.answer.len() + answer.authority.len() {
            let mut less = answer.clone();
            let _ = match place.checked_sub(answer.answer.len()) {
                None => less.answer.remove(place),
                Some(place) => less.authority.remove(place),
            };
            assert!(!is_whole(&less), "{less:#?}");
        }
        let mut more = answer;
        more.authority.extend(of_www(&ground));
        more.sort();
        assert!(!is_whole(&more), "{more:#?}");
    }
}

/// Valid records that nobody has asked for.
fn of_www(ground: &Ground) -> Vec<read::Read> {
    let question = Question {
        name: "www.nsec3.test.".to_owned(),
        kind: qtype::AAAA,
        signed: true,
    };
    ground.message(&question).answer
}
