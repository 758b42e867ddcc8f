//! The cache by its rules, against a naive model, and under several threads.

use super::*;
use crate::backend::fixture;
use crate::backend::pool::Pool;
use crate::backend::server::HealthMode;
use crate::config::pools::PoolId;
use crate::pipeline::rules::Rule;
use crate::pipeline::rules::actions::answer::RCodeAction;
use crate::pipeline::rules::actions::remember::SetEDNSOptionAction;
use crate::pipeline::rules::selectors::logic::AllRule;
use crate::pipeline::rules::selectors::message::QTypeRule;
use crate::pipeline::scene::{Reply, Scene, answer_to, query, query_with_edns};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::codes::{qtype, rcode};
use wire::message::{HEADER_LENGTH, parse_query, parse_response};
use wire::name::NameBuf;

fn options(change: impl FnOnce(&mut CacheOptions)) -> CacheOptions {
    let mut options = CacheOptions::new(1_000);
    change(&mut options);
    options
}

/// A scene whose default pool has a server and a cache.
pub(super) fn scene(change: impl FnOnce(&mut CacheOptions)) -> (Scene, Arc<PacketCache>) {
    let cache = Arc::new(PacketCache::new(options(change)));
    let pool = Pool {
        name: String::new(),
        servers: vec![Arc::new(fixture::server(
            1,
            fixture::options("192.0.2.53:53"),
        ))],
        cache: Some(Arc::clone(&cache)),
        policy: Default::default(),
        chooser: None,
        hedging: Default::default(),
        subnets: Default::default(),
        circle: Default::default(),
        position: Arc::default(),
    };
    let mut scene = Scene::default();
    scene.change(|config| config.pools = vec![Some(Arc::new(pool))]);
    (scene, cache)
}

pub(super) fn keep(cache: &PacketCache, scene: &Scene, query: &[u8], response: &[u8]) -> bool {
    let asked = Asked {
        query,
        parts: &parse_query(query).unwrap(),
        protocol: scene.protocol,
        edns_added: false,
        failure_ttl: None,
    };
    let parts = parse_response(response).unwrap();
    cache.insert(asked, response, &parts, scene.now, scene.shard.lane)
}

/// The answer from the cache.
pub(super) fn hit(scene: &mut Scene, query: &[u8]) -> Option<Vec<u8>> {
    match scene.ask(query) {
        Reply::Answer(answer) => Some(answer),
        _ => None,
    }
}

pub(super) fn wait(scene: &mut Scene, seconds: u64) {
    scene.now = Now(scene.now.0 + Duration::from_secs(seconds).as_nanos() as u64);
}

pub(super) fn ttls(answer: &[u8]) -> Vec<u32> {
    let mut places = [0; 100];
    let ttls = ttl::collect(answer, &parse_response(answer).unwrap(), &mut places).unwrap();
    let read = |&place: &u16| {
        answer[place.into()..][..4]
            .try_into()
            .map(u32::from_be_bytes)
    };
    places[..ttls.count]
        .iter()
        .map(|place| read(place).unwrap())
        .collect()
}

#[test]
fn a_hit_has_the_clients_id_case_and_flags_and_aged_ttls() {
    let (mut scene, cache) = scene(|_| ());
    let asked = query("www.example.", qtype::A);
    assert!(hit(&mut scene, &asked).is_none());
    assert!(keep(
        &cache,
        &scene,
        &asked,
        &answer_to(&asked, 0, &[300, 40])
    ));
    wait(&mut scene, 7);
    let mut again = query("WWW.exAMPle.", qtype::A);
    again[..2].copy_from_slice(&[0xbe, 0xef]);
    let answer = hit(&mut scene, &again).unwrap();
    assert_eq!(answer[..4], [0xbe, 0xef, 0x81, 0x80]);
    assert_eq!(answer[12..again.len()], again[12..]);
    assert_eq!(ttls(&answer), [293, 33]);
    wait(&mut scene, 33);
    assert!(hit(&mut scene, &again).is_none(), "40 seconds are over");
    let counts = [Counter::CacheHits, Counter::CacheMisses].map(|counter| scene.counted(counter));
    assert_eq!(counts, [1, 2]);
    assert_eq!(
        (cache.counts().hits.sum(), cache.counts().misses.sum()),
        (1, 2)
    );
    assert_eq!(scene.counted(Counter::FrontendNoerror), 1);
    assert_eq!(scene.counted(Counter::SelfAnswered), 0);
}

#[test]
fn addresses_are_shuffled_where_that_is_wanted() {
    for wanted in [false, true] {
        let (mut scene, cache) = scene(|options| options.shuffle = wanted);
        let asked = query("www.example.", qtype::A);
        let mut response = answer_to(&asked, 0, &[300; 4]);
        let length = response.len();
        for number in 1..=4 {
            response[length - 1 - 16 * (4 - number)] = number as u8;
        }
        assert!(keep(&cache, &scene, &asked, &response));
        let orders: BTreeSet<_> = (0..100)
            .map(|_| {
                let answer = hit(&mut scene, &asked).unwrap();
                let addresses = answer[asked.len()..].chunks(16).map(|record| record[15]);
                let order: Vec<u8> = addresses.collect();
                assert_eq!(
                    order.iter().map(|number| u32::from(*number)).sum::<u32>(),
                    10
                );
                order
            })
            .collect();
        match wanted {
            false => assert_eq!(orders, BTreeSet::from([vec![1, 2, 3, 4]])),
            true => assert!(orders.len() > 10, "of 24: {}", orders.len()),
        }
    }
}

/// As dnsdist 1.7.3 was seen to do, asked in all these ways.
#[test]
fn what_makes_queries_different() {
    let (mut scene, cache) = scene(|_| ());
    let plain = query("a.", qtype::A);
    keep(&cache, &scene, &plain, &answer_to(&plain, 0, &[300]));
    for (place, bits) in [(2, 1), (3, 0x10), (3, 0x20), (3, 0x40), (2, 2)] {
        let mut other = plain.clone();
        other[place] ^= bits;
        assert!(
            hit(&mut scene, &other).is_none(),
            "flag {bits:#x} of byte {place}"
        );
    }
    let edns = query_with_edns("a.", qtype::A, Some(1_232));
    let mut dnssec = edns.clone();
    dnssec[plain.len() + 7] = 0x80;
    let trailing = [&plain[..], b"x"].concat();
    let larger = query_with_edns("a.", qtype::A, Some(4_096));
    let other_type = query("a.", qtype::AAAA);
    let mut other_class = plain.clone();
    other_class[plain.len() - 1] = 3;
    for other in [
        &edns,
        &dnssec,
        &trailing,
        &larger,
        &other_type,
        &other_class,
    ] {
        assert!(hit(&mut scene, other).is_none());
        keep(&cache, &scene, other, &answer_to(other, 0, &[300]));
        assert!(hit(&mut scene, other).is_some());
    }
    scene.protocol = Protocol::Tcp;
    assert!(hit(&mut scene, &plain).is_none());
    assert_eq!(cache.len(), 7);
}

/// The same bytes behind the question are a record of one section, or of another one, or nothing at all.
#[test]
fn what_the_header_counts_makes_queries_different() {
    let record = [&[0, 0, 16, 0, 1, 0, 0, 0, 0, 0, 3], &b"\x02ab"[..]].concat();
    let asked = |counts: [u8; 3], name: &str| {
        let mut message = [query(name, qtype::A), record.clone()].concat();
        for (count, place) in counts.into_iter().zip([7, 9, 11]) {
            message[place] = count;
        }
        message
    };
    // Keys of a group, of a few, and of more than a short one has.
    for name in ["a.", "www.example.com.", &"abcdefghijklmnop.".repeat(12)] {
        let (mut scene, cache) = scene(|_| ());
        let all = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]];
        for (known, counts) in all.into_iter().enumerate() {
            let asked = asked(counts, name);
            assert!(hit(&mut scene, &asked).is_none(), "{name} {counts:?}");
            assert!(keep(
                &cache,
                &scene,
                &asked,
                &answer_to(&query(name, qtype::A), 0, &[300])
            ));
            assert!(hit(&mut scene, &asked).is_some(), "{name} {counts:?}");
            assert_eq!(cache.len(), known + 1);
        }
        let named = cache.entries(scene.now).map(|entry| entry.name.to_string());
        assert!(named.eq([name; 4]), "lists read all of them");
    }
}

/// A hit waits for each, where the worker has slept: the key has no padding.
#[test]
fn an_address_with_an_opt_record_takes_two_cache_lines() {
    let (scene, cache) = scene(|_| ());
    let asked = query_with_edns("www-0000001.example.com.", qtype::A, Some(1_232));
    let mut response = answer_to(&asked, 0, &[300]);
    response[11] = 1;
    response.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    let before = cache.log.head();
    assert!(keep(&cache, &scene, &asked, &response));
    assert_eq!(cache.log.head() - before, 2 * crate::words::LINE as u64);
}

fn with_option(code: u16, value: &[u8]) -> Vec<u8> {
    let mut message = query_with_edns("a.", qtype::A, Some(1_232));
    let length = message.len();
    message[length - 1] = 4 + value.len() as u8;
    message.extend(code.to_be_bytes());
    message.extend((value.len() as u16).to_be_bytes());
    message.extend(value);
    message
}

/// RFC 6891 §7: whoever asks without an OPT record gets none. To the server both queries are the same.
#[test]
fn an_opt_record_of_a_rule_is_not_that_of_a_client() {
    let (mut scene, cache) = scene(|_| ());
    let option = SetEDNSOptionAction {
        code: 65_001,
        value: Box::from(*b"abc"),
    };
    scene.add_rule(AllRule, option);
    let plain = query("a.", qtype::A);
    let edns = query_with_edns("a.", qtype::A, Some(512));
    let keep_as_forwarded = |scene: &mut Scene, message: &[u8]| {
        scene.examine(message, |query, env| {
            assert!(rules::apply(query, env).is_none());
            let response = answer_to(query.bytes(), 0, &[300]);
            let parts = parse_response(&response).unwrap();
            let lane = env.shard.lane;
            let kept = cache.insert(Asked::by(query), &response, &parts, env.now, lane);
            assert!(kept);
            query.bytes().to_vec()
        })
    };
    let forwarded = keep_as_forwarded(&mut scene, &plain);
    assert!(hit(&mut scene, &plain).is_some());
    assert!(hit(&mut scene, &edns).is_none(), "its answer has EDNS");
    assert_eq!(keep_as_forwarded(&mut scene, &edns), forwarded);
    assert!(hit(&mut scene, &edns).is_some());
    assert_eq!(cache.len(), 2);
}

#[test]
fn cookies_do_not_count_unless_told() {
    let one = with_option(10, b"12345678");
    let (mut scene, cache) = scene(|_| ());
    keep(&cache, &scene, &one, &answer_to(&one, 0, &[300]));
    assert!(hit(&mut scene, &with_option(10, b"abcdefgh")).is_some());
    assert!(hit(&mut scene, &with_option(10, b"abcdefghabcdefgh")).is_none());
    assert!(hit(&mut scene, &with_option(3, b"abcdefgh")).is_none());
    let (mut scene, cache) = self::scene(|options| options.skip_options = vec![3]);
    keep(&cache, &scene, &one, &answer_to(&one, 0, &[300]));
    assert!(hit(&mut scene, &with_option(10, b"abcdefgh")).is_none());
    assert!(hit(&mut scene, &one).is_some());
}

#[test]
fn payload_sizes_of_one_rank_share_an_entry() {
    let (mut scene, cache) = scene(|options| options.payload_ranks = vec![512, 1_232]);
    let with = |size| query_with_edns("a.", qtype::A, Some(size));
    let asked = with(1_400);
    assert!(keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300])));
    for (size, shared) in [(1_232, true), (4_096, true), (1_231, false), (512, false)] {
        assert_eq!(hit(&mut scene, &with(size)).is_some(), shared, "{size}");
    }
    assert!(hit(&mut scene, &query("a.", qtype::A)).is_none());
    // What one client takes whole another one of its rank does not.
    let long = answer_to(&with(1_200), 0, &[300; 60]);
    assert!(keep(&cache, &scene, &with(1_200), &long));
    let cut = [600, 1_200].map(|size| hit(&mut scene, &with(size)).unwrap()[2] & 2);
    assert_eq!(cut, [2, 0]);
}

/// Found by fuzzing: skipped options of other lengths must not make up for kept ones.
#[test]
fn where_an_option_ends_makes_a_difference() {
    let (mut scene, cache) = scene(|_| ());
    let with_padding = |value: &[u8], padding: u8| {
        let mut message = with_option(65_001, value);
        let length = message.len() - value.len() - 5;
        message[length] += 4 + padding;
        message.extend([0, 12, 0, padding]);
        message.extend(vec![0; padding.into()]);
        message
    };
    let one = with_padding(b"a", 2);
    keep(&cache, &scene, &one, &answer_to(&one, 0, &[300]));
    assert!(hit(&mut scene, &one).is_some());
    let other = with_padding(b"a\0", 1);
    assert_eq!(one.len(), other.len());
    assert!(hit(&mut scene, &other).is_none());
}

/// A key ends with zeros.
#[test]
fn options_without_anything_make_a_difference() {
    let (mut scene, cache) = scene(|_| ());
    let skipped = with_option(12, &[0; 4]);
    let mut nothing_twice = with_option(0, b"");
    let length = nothing_twice.len();
    nothing_twice[length - 5] += 4;
    nothing_twice.extend([0; 4]);
    assert_eq!(skipped.len(), nothing_twice.len());
    keep(&cache, &scene, &skipped, &answer_to(&skipped, 0, &[300]));
    assert!(hit(&mut scene, &skipped).is_some());
    assert!(hit(&mut scene, &nothing_twice).is_none());
}

/// Short keys are compared by the words that were hashed, long ones by the query.
#[test]
fn names_of_all_lengths_are_found() {
    let (mut scene, cache) = scene(|_| {});
    let name = |length: usize| format!("{}.{}.example.", "a".repeat(length), "b".repeat(length));
    let lengths = 1..=63;
    for length in lengths.clone() {
        let asked = query(&name(length), qtype::A);
        assert!(keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[60])));
    }
    for length in lengths {
        let asked = query(&name(length).to_uppercase(), qtype::A);
        let answer = hit(&mut scene, &asked).expect("it was kept");
        assert_eq!(answer[12..asked.len()], asked[12..], "{length}");
        assert_eq!(hit(&mut scene, &query(&name(length), qtype::AAAA)), None);
    }
}

#[test]
fn what_is_for_no_cache() {
    let (mut scene, cache) = scene(|options| options.maximum_entry_size = 200);
    let plain = query("a.", qtype::A);
    let mut notify = plain.clone();
    notify[2] |= 4 << 3;
    let transfer = query("a.", qtype::AXFR);
    let padded = with_option(12, &[0; 230]);
    for other in [&notify, &transfer, &padded] {
        assert!(!keep(&cache, &scene, other, &answer_to(other, 0, &[300])));
        assert!(hit(&mut scene, other).is_none());
    }
    assert_eq!(scene.counted(Counter::CacheMisses), 3);
    assert!(
        !keep(&cache, &scene, &plain, &answer_to(&plain, 0, &[300; 20])),
        "too long"
    );
    assert!(
        !keep(&cache, &scene, &plain, &answer_to(&plain, 0, &[])),
        "no TTL"
    );
    assert!(
        !keep(&cache, &scene, &plain, &answer_to(&plain, 0, &[300, 0])),
        "TTL 0"
    );
    assert!(
        !keep(&cache, &scene, &plain, &answer_to(&plain, 4, &[300])),
        "NOTIMP"
    );
    let mut truncated = answer_to(&plain, 0, &[300]);
    truncated[2] |= 2;
    assert!(!keep(&cache, &scene, &plain, &truncated));
    assert!(cache.is_empty());
}

/// How long `response` is given out, by trying.
fn lives(response: &[u8], change: impl FnOnce(&mut CacheOptions)) -> Option<u64> {
    let (mut scene, cache) = scene(change);
    let asked = query("a.", qtype::A);
    if !keep(&cache, &scene, &asked, response) {
        return None;
    }
    let start = scene.now;
    while hit(&mut scene, &asked).is_some() {
        wait(&mut scene, 5);
    }
    Some(scene.now.since(start).as_secs())
}

/// NXDOMAIN or NODATA with an SOA record.
fn negative(rcode: u16, ttl: u32, minimum: u32) -> Vec<u8> {
    let mut response = answer_to(&query("a.", qtype::A), rcode as u8, &[]);
    response[9] = 1;
    response.extend([0xc0, 12, 0, 6, 0, 1]);
    response.extend(ttl.to_be_bytes());
    response.extend([0, 24, 0xc0, 12, 0xc0, 12]);
    response.extend([0; 16]);
    response.extend(minimum.to_be_bytes());
    response
}

/// A CNAME record of this TTL in front of NODATA.
fn alias_to_nothing(ttl: u32) -> Vec<u8> {
    let mut response = negative(rcode::NOERROR, 50, 30);
    response[7] = 1;
    let question_end = query("a.", qtype::A).len();
    let behind = response.split_off(question_end);
    response.extend([0xc0, 12, 0, 5, 0, 1]);
    response.extend(ttl.to_be_bytes());
    response.extend([0, 2, 0xc0, 12]);
    response.extend(behind);
    response
}

#[test]
fn how_long_responses_live() {
    let asked = query("a.", qtype::A);
    let positive = |ttl: u32| answer_to(&asked, 0, &[ttl]);
    assert_eq!(lives(&positive(50), |_| ()), Some(50));
    assert_eq!(
        lives(&positive(50), |options| options.maximum_ttl = 20),
        Some(20)
    );
    assert_eq!(
        lives(&positive(50), |options| options.minimum_ttl = 51),
        None
    );
    for code in [rcode::SERVFAIL, rcode::REFUSED] {
        let failure = answer_to(&asked, code as u8, &[]);
        assert_eq!(lives(&failure, |_| ()), Some(60));
        assert_eq!(
            lives(&failure, |options| options.temporary_failure_ttl = 0),
            None
        );
    }
    for code in [rcode::NXDOMAIN, rcode::NOERROR] {
        // The TTL counts, not MINIMUM.
        assert_eq!(lives(&negative(code, 50, 30), |_| ()), Some(50));
        assert_eq!(lives(&negative(code, 30, 50), |_| ()), Some(30));
        let capped = |options: &mut CacheOptions| options.maximum_negative_ttl = 10;
        assert_eq!(lives(&negative(code, 50, 30), capped), Some(10));
    }
    let capped = |options: &mut CacheOptions| options.maximum_negative_ttl = 10;
    assert_eq!(lives(&alias_to_nothing(300), capped), Some(10));
    assert_eq!(lives(&alias_to_nothing(20), |_| ()), Some(20));
    let mut truncated = positive(50);
    truncated[2] |= 2;
    assert_eq!(
        lives(&truncated, |options| options.truncated_ttl = 15),
        Some(15)
    );
}

#[test]
fn a_ttl_below_the_minimum_is_counted() {
    let (scene, cache) = scene(|options| options.minimum_ttl = 100);
    let asked = query("a.", qtype::A);
    keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[50]));
    assert_eq!(cache.counts().ttl_too_shorts.sum(), 1);
}

#[test]
fn ttls_are_left_alone_if_so_configured() {
    let (mut scene, cache) = scene(|options| options.dont_age = true);
    let asked = query("a.", qtype::A);
    keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300, 200]));
    wait(&mut scene, 100);
    assert_eq!(ttls(&hit(&mut scene, &asked).unwrap()), [300, 200]);
}

/// What is read while somebody writes may be anything.
#[test]
fn places_of_ttls_outside_the_body_are_passed_over() {
    let (table, log) = (Table::new(8), Log::new(65_536));
    let mut key = Key::default();
    let asked = query("www.example.", qtype::A);
    let parts = parse_query(&asked).unwrap();
    let filled = key.fill(&asked, &parts, (Protocol::Udp, false), &options(|_| {}));
    assert!(filled.is_some());
    let body = [7; 10];
    let draft = Draft {
        key: &key,
        stored: 0,
        expires: 1,
        stamp: 0,
        head: &asked,
        body: &body,
        places: &[2, 7, 10, 65_535],
    };
    let room = log.reserve(draft.len()).unwrap();
    draft.write(&room);
    assert!(table.put(5, room.position, None, &log));
    let place = table.search(5, &log, |_| true).unwrap();
    let record = Record::open(&log, place.position).unwrap();
    for (change, ttl) in [
        (Ttl::Age(0x0707_0000), [0, 0, 7, 7]),
        (Ttl::Set(9), [0, 0, 0, 9]),
    ] {
        let (mut head, mut rest) = ([0; HEADER_LENGTH], [1; 32]);
        assert_eq!(
            record.read(&mut head, &mut rest, change, |flags| flags),
            Some(body.len())
        );
        assert_eq!(rest[..body.len()], [&[7; 2][..], &ttl, &[7; 4]].concat());
    }
}

#[test]
fn stale_entries_serve_only_while_no_server_is_up() {
    let (mut scene, cache) = scene(|options| options.stale_ttl = 9);
    scene.change(|config| config.tuning.stale_cache_entries_ttl = 100);
    let asked = query("a.", qtype::A);
    keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300, 20]));
    wait(&mut scene, 30);
    assert!(hit(&mut scene, &asked).is_none());
    let pool = scene.config.pool(PoolId::DEFAULT).unwrap();
    pool.servers[0].state.set_mode(HealthMode::Down);
    assert_eq!(ttls(&hit(&mut scene, &asked).unwrap()), [9, 9]);
    wait(&mut scene, 90);
    assert!(hit(&mut scene, &asked).is_none(), "expired for 100 seconds");
}

#[test]
fn an_answer_that_does_not_fit_the_client_is_cut_and_stays_whole_in_the_cache() {
    let (mut scene, cache) = scene(|_| ());
    let asked = query("a.", qtype::A);
    let long = answer_to(&asked, 0, &[300; 60]);
    keep(&cache, &scene, &asked, &long);
    for room in [600, 1_472] {
        scene.room = room;
        let answer = hit(&mut scene, &asked).unwrap();
        assert_eq!(
            (answer.len(), answer[2] & 2),
            (asked.len(), 2),
            "in {room} bytes"
        );
    }
    let entry = cache.entries(scene.now).next().unwrap();
    assert_eq!(entry.response[12..], long[12..]);
}

#[test]
fn skip_cache_neither_asks_nor_keeps() {
    use crate::pipeline::rules::actions::pass::SetSkipCacheAction;
    use crate::pipeline::rules::selectors::logic::AllRule;
    let (mut scene, cache) = scene(|_| ());
    scene.add_rule(AllRule, SetSkipCacheAction);
    let asked = query("a.", qtype::A);
    keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300]));
    assert!(hit(&mut scene, &asked).is_none());
    assert_eq!(scene.counted(Counter::CacheMisses), 0);
}

/// Hits, misses, what no cache takes, what rules decide: a query that pauses is counted and answered as one that does not.
#[test]
fn a_query_of_a_batch_is_answered_as_one_by_itself() {
    let ask = |in_batch: bool| {
        let (mut scene, cache) = scene(|_| ());
        let known = query("known.example.", qtype::A);
        assert!(keep(
            &cache,
            &scene,
            &known,
            &answer_to(&known, 0, &[60, 70])
        ));
        scene.change(|config| {
            let refuse = RCodeAction::new(rcode::REFUSED as u8);
            config.rules = vec![Rule::new(QTypeRule(qtype::ANY), refuse)];
        });
        let mut update = known.clone();
        update[2] |= 5 << 3;
        let asked = [
            (known, true),
            (
                query_with_edns("known.example.", qtype::A, Some(1_232)),
                true,
            ),
            (query("known.example.", qtype::ANY), false),
            (update, false),
        ];
        let replies = asked.map(|(query, pauses)| match in_batch {
            true => {
                let (paused, reply) = scene.ask_in_batch(&query);
                assert_eq!(paused, pauses);
                reply
            }
            false => scene.ask(&query),
        });
        let counters = [Counter::Queries, Counter::CacheHits, Counter::CacheMisses];
        (replies, counters.map(|counter| scene.counted(counter)))
    };
    assert_eq!(ask(true), ask(false));
    assert_eq!(ask(true).1, [4, 1, 2]);
}

#[test]
fn rules_on_hits_and_misses_have_their_turn() {
    use crate::pipeline::rules::Rule;
    use crate::pipeline::rules::actions::answer::RCodeAction;
    use crate::pipeline::rules::actions::response::LimitTTLResponseAction;
    use crate::pipeline::rules::response::ResponseRule;
    use crate::pipeline::rules::selectors::logic::AllRule;
    let (mut scene, cache) = scene(|_| ());
    scene.change(|config| {
        config.chains.cache_miss = vec![Rule::new(AllRule, RCodeAction::new(5))];
        let limit = LimitTTLResponseAction {
            minimum: 0,
            maximum: 10,
            types: Vec::new(),
        };
        config.chains.cache_hit = vec![ResponseRule::new(AllRule, limit)];
    });
    let asked = query("a.", qtype::A);
    assert_eq!(hit(&mut scene, &asked).unwrap()[3] & 15, 5);
    keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300]));
    assert_eq!(ttls(&hit(&mut scene, &asked).unwrap()), [10]);
}

#[test]
fn entries_are_listed_and_taken_out() {
    let (mut scene, cache) = scene(|_| ());
    for name in ["a.example.", "B.a.example.", "c."] {
        for qtype in [qtype::A, qtype::AAAA] {
            let asked = query(name, qtype);
            keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300]));
        }
    }
    wait(&mut scene, 100);
    assert_eq!(cache.len(), 6);
    let entries: Vec<Entry> = cache.entries(scene.now).collect();
    assert_eq!(entries.len(), 6);
    let keys: std::collections::HashSet<u32> = entries.iter().map(|entry| entry.key).collect();
    assert!(keys.len() > 1, "keys differ as queries do");
    let entry = entries
        .iter()
        .find(|entry| entry.name.to_string() == "b.a.example.");
    let entry = entry.unwrap();
    assert_eq!((entry.age, entry.left, entry.qclass), (100, 200, 1));
    assert_eq!(ttls(&entry.response), [300]);
    let name: NameBuf = "A.Example.".parse().unwrap();
    let named = name.as_name();
    assert_eq!(cache.expunge_by_name(&named, Some(qtype::A), false), 1);
    assert_eq!(cache.expunge_by_name(&named, None, true), 3);
    assert_eq!(cache.purge_expired(0, scene.now), 0);
    wait(&mut scene, 200);
    assert_eq!(cache.purge_expired(1, scene.now), 1);
    assert_eq!(cache.purge_expired(0, scene.now), 1);
    assert_eq!(cache.expunge(0), 0);
    assert!(cache.is_empty());
}

#[test]
fn there_are_never_more_entries_than_configured() {
    for maximum in [0, 1, 10, 100] {
        let (mut scene, cache) = scene(|options| options.maximum_entries = maximum);
        for number in 0..1_000 {
            let asked = query(&format!("n{number}."), qtype::A);
            keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300]));
            assert!(cache.len() <= maximum);
        }
        assert!(
            cache.len() >= maximum * 9 / 10,
            "{} of {maximum}",
            cache.len()
        );
        let last = query("n999.", qtype::A);
        assert!(maximum < 100 || hit(&mut scene, &last).is_some());
    }
}

/// What is asked for outlives what is not, whether the log (2 MiB) or the table is full first. Who gives way is the older of
/// two, so a popular entry may be unlucky; first in, first out would leave none.
#[test]
fn the_newest_and_the_popular_stay() {
    for (maximum, records) in [(1_000, 200), (100, 1)] {
        let (mut scene, cache) = scene(|options| options.maximum_entries = maximum);
        let names = |word: &'static str| {
            (0..20).map(move |number| query(&format!("{word}{number}."), qtype::A))
        };
        for asked in names("popular").chain(names("forgotten")) {
            keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300]));
        }
        for number in 0..2_000 {
            let asked = query(&format!("n{number}."), qtype::A);
            let response = answer_to(&asked, 0, &vec![300; records]);
            assert!(keep(&cache, &scene, &asked, &response));
            assert!(hit(&mut scene, &asked).is_some(), "the newest");
            for popular in names("popular").skip(number % 5).step_by(5) {
                hit(&mut scene, &popular);
            }
        }
        let mut left = |word| {
            names(word)
                .filter(|asked| hit(&mut scene, asked).is_some())
                .count()
        };
        let (popular, forgotten) = (left("popular"), left("forgotten"));
        assert!(popular >= 10, "{popular} of 20 with {maximum} entries");
        assert_eq!(forgotten, 0);
        assert!(cache.len() <= maximum);
    }
}

/// A cache holds as many entries as it was made for: the hash spreads them over the sets. Its seed is another one for each
/// cache, and some are unlucky for a small one: as many small ones are filled as make a large one.
#[test]
fn as_many_entries_as_configured_are_held() {
    const ALL: usize = 10_000;
    for maximum in [100, 1_000, ALL] {
        let fill = |_| {
            let (scene, cache) = scene(|options| options.maximum_entries = maximum);
            for number in 0..maximum {
                let asked = query(&format!("n{number}."), qtype::A);
                assert!(keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300])));
            }
            cache.len()
        };
        let held: usize = (0..ALL / maximum).map(fill).sum();
        assert!(held >= ALL * 99 / 100, "{held} of {ALL}, {maximum} each");
    }
}

/// Entries written again must not make others old: hits alone write nothing but once, however often they come.
#[test]
fn a_full_cache_that_is_only_read_is_not_written() {
    let (mut scene, cache) = scene(|options| options.maximum_entries = 100);
    let names = || (0..100).map(|number| query(&format!("n{number}."), qtype::A));
    for asked in names() {
        keep(&cache, &scene, &asked, &answer_to(&asked, 0, &[300]));
    }
    let mut heads = Vec::new();
    for _ in 0..20 {
        let served = names()
            .filter(|asked| hit(&mut scene, asked).is_some())
            .count();
        assert_eq!(served, cache.len(), "all that is held is served");
        heads.push(cache.log.head());
    }
    assert!(heads.iter().all(|head| *head == heads[0]), "{heads:?}");
}

#[derive(Debug, Clone)]
enum Step {
    Insert { name: u8, ttl: u32, records: usize },
    Ask { name: u8, upper: bool },
    Wait(u64),
    Expunge(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..40, 0u32..100, 0usize..30).prop_map(|(name, ttl, records)| Step::Insert {
            name,
            ttl,
            records
        }),
        (0u8..40, any::<bool>()).prop_map(|(name, upper)| Step::Ask { name, upper }),
        (0u64..40).prop_map(Step::Wait),
        (0u8..40).prop_map(Step::Expunge),
    ]
}

proptest! {
    /// A map from question to response and moment says the same, step by step.
    #[test]
    fn the_cache_is_a_map_with_times(steps in proptest::collection::vec(step(), 1..200)) {
        let (mut scene, cache) = scene(|_| ());
        let mut model: HashMap<u8, (Vec<u8>, u64, u32)> = HashMap::new();
        let name = |number: u8, upper: bool| {
            let name = format!("name{number}.example.");
            if upper { name.to_uppercase() } else { name }
        };
        for step in steps {
            match step {
                Step::Insert { name: number, ttl, records } => {
                    let asked = query(&name(number, false), qtype::A);
                    let response = answer_to(&asked, 0, &vec![ttl; records]);
                    let kept = keep(&cache, &scene, &asked, &response);
                    prop_assert_eq!(kept, ttl > 0 && records > 0);
                    if kept {
                        model.insert(number, (response, scene.now.seconds(), ttl));
                    }
                }
                Step::Ask { name: number, upper } => {
                    let asked = query(&name(number, upper), qtype::A);
                    let answer = hit(&mut scene, &asked);
                    let now = scene.now.seconds();
                    let expected = model.get(&number).filter(|(_, stored, ttl)| now < stored + u64::from(*ttl));
                    prop_assert_eq!(answer.is_some(), expected.is_some());
                    if let (Some(answer), Some((response, stored, ttl))) = (answer, expected) {
                        prop_assert_eq!(&answer[12..asked.len()], &asked[12..]);
                        prop_assert_eq!(answer.len().min(512), response.len().min(answer.len()).min(512));
                        let left = ttl - (now - stored) as u32;
                        prop_assert!(ttls(&answer).iter().all(|ttl| *ttl == left));
                    }
                }
                Step::Wait(seconds) => wait(&mut scene, seconds),
                Step::Expunge(number) => {
                    let named: NameBuf = name(number, true).parse().unwrap();
                    let removed = cache.expunge_by_name(&named.as_name(), None, false);
                    prop_assert_eq!(removed == 1, model.remove(&number).is_some());
                }
            }
        }
    }

    #[test]
    fn any_query_and_any_response_are_taken(
        tail in proptest::collection::vec(any::<u8>(), 0..60),
        response in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (mut scene, cache) = scene(|_| ());
        let message = [query("a.", qtype::A), tail].concat();
        scene.ask(&message);
        let asked = query("a.", qtype::A);
        let response = [answer_to(&asked, 0, &[]), response].concat();
        if let Ok(parts) = parse_response(&response) {
            let asked = Asked {
                query: &asked,
                parts: &parse_query(&asked).unwrap(),
                protocol: Protocol::Udp,
                edns_added: false,
                failure_ttl: None,
            };
            cache.insert(asked, &response, &parts, scene.now, scene.shard.lane);
        }
    }
}

/// Writers go round the log of a small cache again and again while readers check what they get: every answer is one that
/// was written, whole, for that name.
#[test]
fn readers_and_writers_at_once() {
    let cache = Arc::new(PacketCache::new(options(|options| {
        options.maximum_entries = 64
    })));
    let done = AtomicBool::new(false);
    let name = |number: u64| format!("name{number}.");
    let write = |seed: u64| {
        let scene = Scene::default();
        for round in 0..8_000u64 {
            let number = (round * 7 + seed) % 100;
            let asked = query(&name(number), qtype::A);
            // The name's number is in each record: its TTL.
            let records = vec![1_000 + number as u32; 1 + (round % 100) as usize];
            keep(&cache, &scene, &asked, &answer_to(&asked, 0, &records));
        }
        done.store(true, Relaxed);
    };
    let hits = std::thread::scope(|scope| {
        scope.spawn(|| write(1));
        scope.spawn(|| write(2));
        let reader = || {
            let mut scene = Scene::default();
            scene.protocol = Protocol::Udp;
            scene.room = 4_096;
            let mut hits = 0;
            for round in 0u64.. {
                let number = round % 100;
                let asked = query(&name(number), qtype::A);
                let answer = scene.parse(&asked, |query| {
                    let served =
                        cache.serve(query, None, Now(1_000_000_000_000), || 0, Lane::SHARED);
                    match served {
                        Some(Served::Answer(length)) => Some(query.message[..length].to_vec()),
                        Some(Served::TooLong) => panic!("4,096 bytes do"),
                        None => {
                            assert_eq!(query.bytes(), asked, "the query is as it was");
                            None
                        }
                    }
                });
                if let Some(answer) = answer {
                    hits += 1;
                    assert_eq!(answer[12..asked.len()], asked[12..]);
                    let expected = 1_000 + number as u32;
                    assert!(ttls(&answer).iter().all(|ttl| *ttl == expected));
                }
                // It may have begun when the writers were done: then each name is asked for once.
                if round >= 100 && done.load(Relaxed) {
                    break;
                }
            }
            hits
        };
        scope.spawn(reader).join().unwrap()
    });
    assert!(hits > 0);
}
