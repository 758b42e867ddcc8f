//! The compiled zone answers as the obviously right one in `answers/model.rs` does, over generated zones in which
//! wildcards, empty non-terminals, delegations and DNAMEs run into each other.

#[path = "answers/generate.rs"]
mod generate;
#[path = "answers/model.rs"]
mod model;
#[path = "answers/read.rs"]
mod read;
#[path = "answers/sign.rs"]
mod sign;

use ::wire::message::{QueryFlags, parse_query, write_query};
use ::wire::name::Name;
use generate::{Question, Scene, history, questions, scene, wire};
use model::Model;
use proptest::prelude::*;
use read::{Message, Read};
use sign::Chain;
use std::sync::Arc;
use zone::answer::ahead::Foreseen;
use zone::answer::{Among, Answered, Outcome, Zones, answer, answer_among};
use zone::record::Record;
use zone::transfer::{Change, apply};
use zone::zone::Zone;

/// The answer in octets, and what is said of it: the same where somebody has looked ahead to it.
fn ask(zones: &Zones, question: &Question, limit: usize) -> Option<(Vec<u8>, Answered)> {
    let mut message = vec![0; 65_535];
    let name = Name::parse(&question.name).expect("a generated name");
    let flags = QueryFlags {
        payload_size: question.signed.then_some(1_232),
        dnssec_ok: question.signed,
        ..QueryFlags::default()
    };
    let length = write_query(&mut message, 0x1234, (name, question.kind, 1), flags)?;
    let parts = parse_query(&message[..length]).expect("a query of our own");
    let mut other = message.clone();
    let whole = |outcome, mut message: Vec<u8>| match outcome {
        Outcome::Answered(answered) => {
            message.truncate(answered.length);
            Some((message, answered))
        }
        _ => None,
    };
    let plain = whole(answer(zones, &mut message, &parts, limit), message);
    let mut foreseen = Foreseen::of(zones, &other, &parts);
    if let Some(foreseen) = &mut foreseen {
        while foreseen.ask(zones, (&other, &parts), |_| {}) {}
    }
    let all: Among<'_> = (zones, &|_| true);
    let outcome = answer_among(all, foreseen.as_ref(), &mut other, &parts, limit);
    assert_eq!(
        whole(outcome, other),
        plain,
        "looked ahead to: {question:?}"
    );
    plain
}

fn compiled(scene: &Scene) -> Zones {
    let zones = scene.zones.iter().map(|(apex, records)| {
        let name = Name::parse(apex).expect("a generated name");
        let built = Zone::build(name, records.iter().cloned());
        let (zone, _) = built.unwrap_or_else(|error| panic!("{error}: {records:?}"));
        (name.to_owned(), Some(zone.into()))
    });
    Zones::new(zones)
}

/// The step from one version of a zone to the next.
fn change(old: &[Record], new: &[Record]) -> Change {
    let soa = |records: &[Record]| records.iter().find(|record| record.kind == 6).cloned();
    let without = |records: &[Record], others: &[Record]| -> Vec<Record> {
        let differs = |record: &&Record| record.kind != 6 && !others.contains(record);
        records.iter().filter(differs).cloned().collect()
    };
    Change {
        from: soa(old).expect("a zone has one"),
        removed: without(old, new),
        to: soa(new).expect("a zone has one"),
        added: without(new, old),
    }
}

/// Whether all records of `cut` are in `whole`, and of each RRset all.
fn is_part_of(cut: &Message, whole: &Message) -> bool {
    let sections = [
        (&cut.answer, &whole.answer),
        (&cut.authority, &whole.authority),
        (&cut.additional, &whole.additional),
    ];
    sections.into_iter().all(|(part, whole)| {
        let same = |one: &Read, other: &Read| (&one.owner, one.kind) == (&other.owner, other.kind);
        part.iter().all(|record| {
            let count = |list: &[Read]| list.iter().filter(|other| same(record, other)).count();
            whole.contains(record) && (count(part) == count(whole) || record.kind == 46)
        })
    })
}

/// RFC 6672 §2.4: what lies below a DNAME is not there, the address of a name server neither.
#[test]
fn an_address_below_a_dname_is_not_said() {
    let apex = wire(&[]);
    let record = |owner: &[&str], kind: u16, rdata: Vec<u8>| Record {
        owner: wire(owner).into(),
        kind,
        class: 1,
        ttl: 60,
        rdata: rdata.into(),
    };
    let server = ["ns", "old"];
    let records = vec![
        record(&[], 6, [&apex[..], &apex, &[0; 20]].concat()),
        record(&[], 2, wire(&server)),
        record(&["sub"], 2, wire(&server)),
        record(&["old"], 39, wire(&["new"])),
        record(&server, 1, vec![192, 0, 2, 1]),
    ];
    let scene = Scene {
        zones: vec![(apex.clone(), records)],
    };
    let zones = compiled(&scene);
    for (name, kind) in [(apex, 2), (wire(&["www", "sub"]), 1)] {
        let question = Question {
            name,
            kind,
            signed: false,
        };
        let (octets, _) = ask(&zones, &question, 65_535).expect("an answer");
        let message = read::message(&octets);
        assert_eq!(message.additional, []);
        let expected = Model::new(&scene.zones).answer(&question);
        assert_eq!(Some(message), expected);
    }
}

/// RFC 9460 §2.5.2: of a wildcard ".", the owner, is the name that was asked for, and "*.z." is the wildcard's own.
#[test]
fn a_service_of_a_wildcard_that_points_to_itself_by_both_names_has_both_addresses() {
    let apex = wire(&[]);
    let record = |owner: &[&str], kind: u16, rdata: Vec<u8>| Record {
        owner: wire(owner).into(),
        kind,
        class: 1,
        ttl: 60,
        rdata: rdata.into(),
    };
    let records = vec![
        record(&[], 6, [&apex[..], &apex, &[0; 20]].concat()),
        record(&[], 2, wire(&["ns"])),
        record(&["*"], 64, vec![0, 1, 0]),
        record(&["*"], 64, [vec![0, 2], wire(&["*"])].concat()),
        record(&["*"], 1, vec![192, 0, 2, 1]),
    ];
    let scene = Scene {
        zones: vec![(apex, records)],
    };
    let question = Question {
        name: wire(&["a"]),
        kind: 64,
        signed: false,
    };
    let (octets, _) = ask(&compiled(&scene), &question, 65_535).expect("an answer");
    let message = read::message(&octets);
    assert_eq!(message.additional.len(), 2, "{message:?}");
    let expected = Model::new(&scene.zones).answer(&question);
    assert_eq!(Some(message), expected);
}

/// RFC 4035 §3.1.3.3 wants the proof beside what a wildcard gives, however long that is; no pointer leads behind 16 KiB.
#[test]
fn a_proof_behind_a_long_rrset_is_there() {
    let apex = wire(&[]);
    let record = |owner: &[&str], kind: u16, rdata: Vec<u8>| Record {
        owner: wire(owner).into(),
        kind,
        class: 1,
        ttl: 60,
        rdata: rdata.into(),
    };
    let soa = [&apex[..], &apex, &[0; 20]].concat();
    let mut records = vec![record(&[], 6, soa), record(&[], 2, apex.clone())];
    let text = |number: u8| [&[250, number][..], &[b'x'; 249]].concat();
    records.extend((0..80).map(|number| record(&["*"], 16, text(number))));
    let nsec3 = Chain::Nsec3 {
        opt_out: false,
        iterations: 0,
        salt: Vec::new(),
    };
    for chain in [Chain::Nsec, nsec3] {
        let signed = sign::sign(&apex, records.clone(), &chain);
        let scene = Scene {
            zones: vec![(apex.clone(), signed)],
        };
        let question = Question {
            name: wire(&["nx"]),
            kind: 16,
            signed: true,
        };
        let (octets, _) = ask(&compiled(&scene), &question, 65_535).expect("an answer");
        let message = read::message(&octets);
        assert!(octets.len() > 16_384 && !message.truncated, "{chain:?}");
        let expected = Model::new(&scene.zones).answer(&question);
        assert_eq!(Some(message), expected, "{chain:?}");
        let length = octets.len();
        let (cut, answered) = ask(&compiled(&scene), &question, length - 1).expect("an answer");
        assert!(answered.truncated && cut.len() < length, "{chain:?}");
    }
}

/// RFC 1035 §4.1.4: what a name has in common with the question's is written once.
#[test]
fn the_owner_of_an_nsec_record_is_as_short_as_the_question_lets_it_be() {
    let apex = wire(&[]);
    let deep = wire(&["deep", "down"]);
    let record = |owner: &[u8], kind: u16, rdata: Vec<u8>| Record {
        owner: owner.into(),
        kind,
        class: 1,
        ttl: 60,
        rdata: rdata.into(),
    };
    let soa = [&apex[..], &apex, &[0; 16], &[0, 0, 0, 60]].concat();
    let records = vec![
        record(&apex, 6, soa),
        record(&apex, 2, apex.clone()),
        record(&deep, 1, vec![192, 0, 2, 1]),
    ];
    let scene = Scene {
        zones: vec![(apex.clone(), sign::sign(&apex, records, &Chain::Nsec))],
    };
    // RFC 4034 §4.1.1: the next name, here in the apex's record for the wildcard, is never compressed.
    for (name, spelled, times) in [
        (deep, &b"\x04deep"[..], 1),
        (wire(&["x", "deep", "down"]), b"\x04deep", 1),
        (wire(&["x", "DOWN"]), b"\x04down", 2),
    ] {
        let question = Question {
            name,
            kind: 15,
            signed: true,
        };
        let (octets, _) = ask(&compiled(&scene), &question, 65_535).expect("an answer");
        let expected = Model::new(&scene.zones).answer(&question);
        assert_eq!(Some(read::message(&octets)), expected);
        let windows = octets.windows(spelled.len());
        let found = windows.filter(|window| window.eq_ignore_ascii_case(spelled));
        assert_eq!(found.count(), times, "{question:?}");
    }
}

/// RFC 1035 §4.1.1: TC says that a message "was truncated", and nothing of its RCODE.
#[test]
fn an_answer_that_does_not_fit_has_its_code_all_the_same() {
    let apex = wire(&[]);
    let record = |kind: u16, rdata: Vec<u8>| Record {
        owner: apex.clone().into(),
        kind,
        class: 1,
        ttl: 60,
        rdata: rdata.into(),
    };
    let soa = [&apex[..], &apex, &[0; 20]].concat();
    let scene = Scene {
        zones: vec![(apex.clone(), vec![record(6, soa), record(2, apex.clone())])],
    };
    let question = Question {
        name: wire(&["nx"]),
        kind: 1,
        signed: false,
    };
    let (octets, answered) = ask(&compiled(&scene), &question, 30).expect("an answer");
    let message = read::message(&octets);
    assert_eq!(
        (message.rcode, message.truncated, answered.rcode),
        (3, true, 3)
    );
    assert!(message.authority.is_empty() && octets.len() <= 30);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_compiled_zone_answers_as_the_obvious_one(scene in scene(), questions in questions()) {
        let zones = compiled(&scene);
        let model = Model::new(&scene.zones);
        for question in &questions {
            let expected = model.answer(question);
            let given = ask(&zones, question, 65_535);
            let given = given.map(|(octets, _)| read::message(&octets));
            prop_assert!(given == expected, "given {:#?}\nexpected {:#?}\n{:?} in\n{:?}", given, expected, question, scene);
        }
    }

    /// A chain of changes, each carried out on what the ones before made: the changed names over the others, and what all of
    /// them would be if they were compiled together.
    #[test]
    fn a_changed_zone_answers_as_the_obvious_one(versions in history(), questions in questions()) {
        let apex = wire(&[]);
        let name = Name::parse(&apex).expect("the apex");
        let (zone, _) = Zone::build(name, versions[0].iter().cloned()).expect("a zone");
        let mut zone = Arc::new(zone);
        for pair in versions.windows(2) {
            let change = change(&pair[0], &pair[1]);
            let applied = apply::apply(&zone, std::slice::from_ref(&change));
            let (changed, _) = applied.unwrap_or_else(|error| panic!("{error}: {change:?}"));
            zone = Arc::new(changed);
            let (fresh, _) = Zone::build(name, pair[1].iter().cloned()).expect("a zone");
            prop_assert_eq!(zone.soa(), fresh.soa());
            prop_assert_eq!(zone.records().collect::<Vec<_>>(), fresh.records().collect::<Vec<_>>());
            prop_assert_eq!((zone.records_count(), zone.names_count()), (fresh.records_count(), fresh.names_count()));
            let zones = Zones::new([(name.to_owned(), Some(Arc::clone(&zone)))]);
            let scene = Scene { zones: vec![(apex.clone(), pair[1].clone())] };
            let model = Model::new(&scene.zones);
            for question in &questions {
                let expected = model.answer(question);
                let given = ask(&zones, question, 65_535).map(|(octets, _)| read::message(&octets));
                prop_assert!(given == expected, "given {:#?}\nexpected {:#?}\n{:?} in\n{:?} after\n{:?}", given, expected, question, scene, change);
            }
        }
    }

    /// F8: whole RRsets or TC, whatever the limit.
    #[test]
    fn a_limit_is_kept(scene in scene(), questions in questions()) {
        let zones = compiled(&scene);
        for question in &questions {
            let Some((whole, _)) = ask(&zones, question, 65_535) else { continue };
            let full = read::message(&whole);
            for limit in [whole.len(), whole.len() - 1, whole.len() / 2, 100] {
                let Some((octets, answered)) = ask(&zones, question, limit.max(64)) else {
                    return Err(TestCaseError::fail("answered before, and not now"));
                };
                prop_assert!(octets.len() <= limit.max(64));
                let cut = read::message(&octets);
                prop_assert_eq!(cut.truncated, answered.truncated);
                // What is cut within a chain does not know its end.
                let is_cut_early = cut.truncated && cut.rcode == 0;
                prop_assert!(cut.rcode == full.rcode || is_cut_early);
                prop_assert!(is_part_of(&cut, &full), "{:?} of {:?}", cut, full);
                if !cut.truncated {
                    prop_assert_eq!((&cut.answer, &cut.authority), (&full.answer, &full.authority));
                    prop_assert_eq!(answered.left_out, cut.additional != full.additional);
                }
            }
        }
    }

    #[test]
    fn records_come_back_as_they_were(scene in scene()) {
        let zones = compiled(&scene);
        for (number, (_, records)) in scene.zones.iter().enumerate() {
            let zone = zones.zone(number).expect("it is loaded");
            let mut back: Vec<_> = zone.records().collect();
            prop_assert_eq!(back[0].kind, 6);
            prop_assert_eq!(back.len() as u64, zone.records_count());
            let mut records = records.clone();
            let key = |record: &zone::record::Record| (record.owner.clone(), record.kind, record.rdata.clone());
            back.sort_by_key(key);
            records.sort_by_key(key);
            prop_assert_eq!(back, records);
        }
    }
}
