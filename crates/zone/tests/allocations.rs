//! No answer allocates, whatever it needs: proofs, chains, referrals.

#[path = "../../server/tests/allocations/ffi.rs"]
mod ffi;
#[path = "answers/ground.rs"]
mod ground;
#[path = "answers/sign.rs"]
mod sign;

use ffi::{Counting, allocations};
use ground::{Ground, QUESTIONS, REGISTRY};
use sign::Chain;

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

/// Knot takes 400 to 500 octets for a signed name.
#[test]
fn a_signed_name_takes_few_octets() {
    let ground = Ground::new(10_000, &REGISTRY);
    let octets = ground.memory_per_name();
    println!("{octets} octets a name: one address, its signature, NSEC3 and its signature");
    assert!(octets < 480, "{octets}");
}
