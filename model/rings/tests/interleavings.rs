//! The rings hold in every interleaving; each weakened twin fails in one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use model_rings::{exact, unfenced, unobserved, unpublished};

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
fn slots_are_handed_over_whole_and_in_order() {
    assert!(explored(exact::hand_over) > 100);
}

#[test]
fn many_slots_are_handed_over_whole_and_in_order() {
    assert!(explored(exact::hand_over_many) > 30);
}

#[test]
fn a_sleeping_consumer_is_woken() {
    assert!(explored(exact::fall_asleep) > 3);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_position_stored_relaxed_is_found_out() {
    explored(unpublished::hand_over);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_position_read_relaxed_is_found_out_by_many() {
    explored(unobserved::hand_over_many);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_position_read_relaxed_is_found_out() {
    explored(unobserved::hand_over);
}

#[test]
#[should_panic(expected = "nobody wakes it")]
fn a_missing_barrier_is_found_out() {
    explored(unfenced::fall_asleep);
}

/// The twins differ in one thing each: what is not weakened still holds.
#[test]
fn each_twin_is_weak_in_one_place() {
    explored(unpublished::fall_asleep);
    explored(unobserved::fall_asleep);
}
