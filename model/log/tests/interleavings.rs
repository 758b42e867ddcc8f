//! The log holds in every interleaving; each twin fails in one.

use model_log::{exact, unannounced, unchecked, uncounted};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs a check in all interleavings; returns how many there were.
fn explored(check: fn()) -> u32 {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    loom::model(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        check();
    });
    let explored = count.load(Ordering::Relaxed);
    println!("{explored} interleavings");
    explored
}

#[test]
fn what_is_not_lost_is_whole() {
    assert!(explored(exact::read_while_overwritten) > 100);
}

#[test]
fn a_writer_that_is_a_round_behind_meets_nobody() {
    assert!(explored(exact::writers_do_not_meet) > 100);
}

#[test]
fn what_is_given_back_is_not_taken_for_whole() {
    assert!(explored(exact::read_while_given_back) > 100);
}

#[test]
#[should_panic(expected = "a lost record was taken for whole")]
fn a_missing_fence_of_who_gives_back_is_found_out() {
    explored(unannounced::read_while_given_back);
}

#[test]
#[should_panic(expected = "a lost record was taken for whole")]
fn a_missing_fence_of_the_writer_is_found_out() {
    explored(unannounced::read_while_overwritten);
}

#[test]
#[should_panic(expected = "a lost record was taken for whole")]
fn a_missing_fence_of_the_reader_is_found_out() {
    explored(unchecked::read_while_overwritten);
}

#[test]
#[should_panic(expected = "a lost record was taken for whole")]
fn a_missing_count_of_writers_is_found_out() {
    explored(uncounted::writers_do_not_meet);
}
