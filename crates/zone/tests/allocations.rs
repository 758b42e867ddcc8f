//! No answer allocates, whatever it needs: proofs, chains, referrals.

#[path = "../../server/tests/allocations/ffi.rs"]
mod ffi;
#[path = "answers/ground.rs"]
mod ground;
#[path = "answers/sign.rs"]
mod sign;

use ffi::{Counting, allocations, without_memory};
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

/// Knot takes 400 to 500 octets for a signed name.
#[test]
fn a_signed_name_takes_few_octets() {
    let ground = Ground::new(10_000, &REGISTRY);
    let octets = ground.memory_per_name();
    println!("{octets} octets a name: one address, its signature, NSEC3 and its signature");
    assert!(octets < 480, "{octets}");
}
