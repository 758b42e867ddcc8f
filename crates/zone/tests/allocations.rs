//! No answer allocates, whatever it needs: proofs, chains, referrals.

#[path = "../../server/tests/allocations/ffi.rs"]
mod ffi;
#[path = "answers/ground.rs"]
mod ground;
#[path = "answers/sign.rs"]
mod sign;

use ffi::{Counting, allocations, most_held, without_memory};
use ground::{Ground, QUESTIONS, REGISTRY};
use sign::Chain;
use wire::name::NameBuf;
use zone::file::{Reader, Settings};
use zone::zone::ZoneBuilder;

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn no_answer_allocates() {
    for chain in [Chain::Unsigned, Chain::Nsec, REGISTRY] {
        let mut ground = Ground::new(100, &chain);
        for (case, question) in QUESTIONS {
            let before = allocations();
            for _ in 0..10 {
                assert!(ground.ask(question) > 0, "{case}");
            }
            let count = allocations() - before;
            assert_eq!(count, 0, "in 10 answers: {case}, {chain:?}");
        }
    }
}

/// F33: answers are made while the allocator has nothing.
#[test]
fn f33_answers_are_made_while_the_allocator_fails() {
    let mut ground = Ground::new(100, &REGISTRY);
    for (case, question) in QUESTIONS {
        let length = without_memory(|| ground.ask(question));
        assert!(length > 0, "{case}");
    }
}

/// Reading and compiling takes memory by the piece, not by the record: lists that double as they grow.
#[test]
fn a_record_that_is_loaded_allocates_nothing_of_its_own() {
    let load = |names: usize| {
        let text = ground::file(names);
        let apex: NameBuf = "example.com.".parse().expect("a name");
        let before = allocations();
        let nothing = Box::new(|_: &str| Err(std::io::Error::other("nothing is included")));
        let settings = Settings::new(apex.as_name());
        let mut reader = Reader::new("zone", text.as_bytes(), nothing, settings);
        let mut builder = ZoneBuilder::new(apex.as_name());
        while let Some(record) = reader.read() {
            builder
                .push(record.expect("a record"))
                .expect("of this zone");
        }
        let (zone, _) = builder.finish().expect("a zone");
        assert_eq!(zone.names_count(), names + 1);
        allocations() - before
    };
    let (few, many) = (load(1_000), load(8_000));
    println!("{few} allocations for 1,000 names, {many} for 8,000");
    // Doubling three times more, in a dozen lists.
    assert!(many < few + 100, "{few} for 1,000 names, {many} for 8,000");
    assert!(few < 400, "{few}");
}

/// Records of a file, as they are gathered.
fn gathered(text: &str) -> ZoneBuilder {
    let apex: NameBuf = "example.com.".parse().expect("a name");
    let nothing = Box::new(|_: &str| Err(std::io::Error::other("nothing is included")));
    let settings = Settings::new(apex.as_name());
    let mut reader = Reader::new("zone", text.as_bytes(), nothing, settings);
    let mut builder = ZoneBuilder::new(apex.as_name());
    while let Some(record) = reader.read() {
        let record = record.expect("a record");
        builder.push(record).expect("of this zone");
    }
    builder
}

/// F34: what is received is bounded by what will be made of it.
#[test]
fn f34_a_zone_takes_no_more_to_be_made_than_is_foreseen() {
    let lines = |count: usize, line: fn(usize) -> String| {
        let head = "$TTL 300\n@ SOA ns host 1 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n";
        let lines: String = (0..count).map(line).collect();
        format!("{head}{lines}")
    };
    let deep = |number: usize| format!("{}{number} A 192.0.2.1\n", "a.".repeat(100));
    for (what, text) in [
        (
            "one address",
            lines(20_000, |number| format!("{number} A 192.0.2.1\n")),
        ),
        ("names without records above", lines(200, deep)),
        (
            "delegations",
            lines(5_000, |number| {
                format!("d{number} NS n.d{number}\nn.d{number} A 192.0.2.1\n")
            }),
        ),
        (
            "capital letters",
            lines(5_000, |number| {
                format!("HOST-{number} MX 10 MAIL.HOST-{number}\n")
            }),
        ),
        (
            "many records of a name",
            lines(20_000, |number| {
                format!("h{} TXT {number}\n", number / 1_000)
            }),
        ),
        (
            "many types of a name",
            lines(5_000, |number| {
                format!("h TYPE{} \\# 1 00\n", number + 1_000)
            }),
        ),
        (
            "long data",
            lines(5_000, |number| {
                format!("h{number} TXT {}\n", "x".repeat(250))
            }),
        ),
        ("signed", ground::file(5_000)),
    ] {
        let builder = gathered(&text);
        let (held, foreseen) = builder.memory();
        most_held();
        let zone = builder.finish().expect("a zone").0;
        let most = most_held();
        println!(
            "{what}: {held} held, {foreseen} foreseen, {most} taken, {} octets",
            zone.memory()
        );
        // Lists that double have room that is never touched, and no memory there.
        assert!(
            most * 4 / 5 <= foreseen as isize,
            "{what}: {most} taken, {foreseen} foreseen"
        );
    }
}

/// Knot takes 400 to 500 octets for a signed name.
#[test]
fn a_signed_name_takes_few_octets() {
    let ground = Ground::new(10_000, &REGISTRY);
    let octets = ground.memory_per_name();
    println!("{octets} octets a name: one address, its signature, NSEC3 and its signature");
    assert!(octets < 480, "{octets}");
}
