//! Invariant I13: nothing under pipeline/ allocates, whatever becomes of the query. The one thing that is allocated as
//! the cache fills, a segment of its log for every few thousand entries, is allocated before the count starts.

#[path = "allocations/ffi.rs"]
mod ffi;
#[path = "../examples/stages/ground.rs"]
mod ground;
#[path = "../examples/stages/listed.rs"]
mod listed;
#[path = "../examples/stages/rings.rs"]
mod rings;
#[path = "allocations/short.rs"]
mod short;

use ffi::{Counting, allocations, most_held, without_memory};
use ground::{Ground, NOW, Scene};
use nix::unistd::Uid;
use rings::Course;

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn no_query_allocates() {
    // A call takes memory: Lua's own, and what is asked for before it ([`millrace::heap`]).
    let scenes = Scene::ALL.into_iter();
    for (name, scene) in scenes.filter(|(_, scene)| *scene != Scene::Lua) {
        let mut ground = Ground::new("", scene);
        let before = allocations();
        ground.serve(2_000);
        assert_eq!(allocations() - before, 0, "in 2,000 queries: {name}");
    }
}

/// The same behind every rule, action and policy that is listed with its cost, but where it is marked.
#[test]
fn no_listed_rule_allocates_but_where_it_is_marked() {
    let mut wrong = Vec::new();
    for listed in listed::listed() {
        let scene = Scene::ALL.iter().find(|(name, _)| *name == listed.scene);
        let (_, scene) = scene.expect("a scene");
        let mut ground = Ground::new(&listed.lines, *scene);
        let before = allocations();
        ground.serve(2_000);
        let allocated = allocations() - before;
        if (allocated > 0) != listed.cost.ends_with('*') {
            let lines = listed.lines;
            wrong.push(format!("{allocated} allocations in 2,000 queries: {lines}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same of a whole worker: frames in, frames out.
#[test]
fn no_turn_of_a_worker_allocates() {
    if !Uid::effective().is_root() {
        return println!("SKIP: not root: the backend's address belongs into a network of its own");
    }
    for (name, scene) in Course::ALL {
        let mut course = Course::new(scene);
        let mut allocated = 0;
        course.serve(2_000, |worker| {
            let before = allocations();
            worker.turn(NOW);
            allocated += allocations() - before;
        });
        assert_eq!(allocated, 0, "in 2,000 queries: {name}");
    }
}

/// F33: the allocator has nothing, and every query gets its answer all the same. What a full cache would take is asked of the
/// kernel: tests/following/resources.rs has it refuse.
#[test]
fn f33_queries_are_answered_while_the_allocator_fails() {
    // Those that take long to build go the way of `Hit`.
    let slow = [Scene::Suffixes, Scene::Prefixes];
    let scenes = Scene::ALL.into_iter().map(|(_, scene)| scene);
    for scene in scenes.filter(|scene| !slow.contains(scene)) {
        let mut ground = Ground::new("", scene);
        without_memory(|| ground.serve(1_000));
        ground.serve(10);
    }
}

#[test]
fn what_allocates_is_counted() {
    most_held();
    let before = allocations();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!((allocations() - before, most_held()), (1, 100));
}
