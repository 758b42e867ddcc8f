//! Invariant I13: nothing under pipeline/ allocates, whatever becomes of the query. The one thing that is allocated as
//! the cache fills, a segment of its log for every few thousand entries, is allocated before the count starts.

#[path = "allocations/ffi.rs"]
mod ffi;
#[path = "../examples/stages/ground.rs"]
mod ground;

use ffi::{Counting, allocations};
use ground::{Ground, Scene};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn no_query_allocates() {
    for (name, scene) in Scene::ALL {
        let mut ground = Ground::new(scene);
        let before = allocations();
        ground.serve(2_000);
        assert_eq!(allocations() - before, 0, "in 2,000 queries: {name}");
    }
}

#[test]
fn what_allocates_is_counted() {
    let before = allocations();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(allocations() - before, 1);
}
