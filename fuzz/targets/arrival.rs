//! Entries of a packet cache as another process hands them over, some changed on their way: what is cut off is refused, what
//! was taken in is listed and leaves again as the same.

#![no_main]

use fuzz::input::Input;
use fuzz::world::{World, cached_pool};
use libfuzzer_sys::fuzz_target;
use millrace::clock::Now;
use millrace::counters::{Lane, Writers};
use millrace::pipeline::cache::{Asked, PacketCache};
use millrace::pipeline::query::Protocol;
use std::collections::BTreeSet;
use wire::message::{parse_query, parse_response};
use wire::name::Name;

/// So few, with one that is made up, that all find room whatever sets they fall into.
const ENTRIES: u8 = 4;

fuzz_target!(|octets: &[u8]| {
    let now = World::default().now();
    let (_, cache) = cached_pool();
    let mut input = Input::new(octets);
    for number in 0..ENTRIES {
        keep(cache, number, now);
    }
    let entries = leaving(cache, now);
    assert_eq!(entries.len(), usize::from(ENTRIES));
    cache.expunge(0);
    for mut entry in entries {
        for cut in 0..entry.len() {
            assert!(!cache.arrive(&entry[..cut], now), "{cut} octets of it");
        }
        change(&mut entry, &mut input);
        cache.arrive(&entry, now);
    }
    // No longer than the others: all of them stay in a cache of sixteen.
    let made_up = input.octets(200);
    cache.arrive(made_up, now);
    for entry in cache.entries(now) {
        let name = entry.name.as_name();
        assert_eq!(Name::parse(name.as_bytes()), Ok(name));
    }
    let before = leaving(cache, now);
    cache.expunge(0);
    assert_eq!(cache.len(), 0);
    for entry in &before {
        assert!(cache.arrive(entry, now), "it was taken before");
    }
    assert_eq!(leaving(cache, now), before);
});

fn leaving(cache: &PacketCache, now: Now) -> BTreeSet<Vec<u8>> {
    cache.leaving(now).collect()
}

/// Up to three octets become others.
fn change(entry: &mut [u8], input: &mut Input<'_>) {
    for _ in 0..input.octet().unwrap_or_default() % 4 {
        let place = usize::from(input.number().unwrap_or_default()) % entry.len();
        entry[place] = input.octet().unwrap_or_default();
    }
}

/// Keeps the answer to a query of this number: so many addresses.
fn keep(cache: &PacketCache, number: u8, now: Now) {
    let question = [1, b'a' + number, 0, 0, 1, 0, 1];
    let query = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &question].concat();
    let head = [0, 7, 0x81, 0x80, 0, 1, 0, number + 1, 0, 0, 0, 0];
    let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 192, 0, 2, number];
    let records = record.repeat(usize::from(number) + 1);
    let response = [&head[..], &question, &records].concat();
    let parts = parse_query(&query).expect("a query");
    let read = parse_response(&response).expect("a response");
    let asked = Asked {
        edns_added: false,
        failure_ttl: None,
        query: &query,
        parts: &parts,
        protocol: Protocol::Udp,
    };
    let lane = Lane::new(0, Writers::One);
    assert!(cache.insert(asked, &response, &read, now, lane));
}
