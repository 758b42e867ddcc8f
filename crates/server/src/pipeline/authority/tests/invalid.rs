//! What is no query is counted where zones are served.

use super::*;
use statistics::GROUPS;

fn counted(scene: &Scene, name: &str) -> u64 {
    scene.config.authority.statistics.total(cell(name))
}

fn cell(name: &str) -> usize {
    let (group, cell) = name.trim_end_matches(']').split_once('[').unwrap();
    let group = GROUPS.iter().find(|known| known.name == group).unwrap();
    let (cell, _) = group.cells().find(|(_, known)| known == cell).unwrap();
    cell
}

/// An UPDATE names its zone, as a query does, and so does what nobody knows.
#[test]
fn what_is_no_query_and_has_a_name_is_counted_in_its_zone() {
    let mut scene = scene(ZONE);
    scene.change(|config| {
        let own = ["example.com.".parse().unwrap()];
        let zones = config.local.zones();
        config.authority.statistics = Statistics::new(&own, zones, 1, None);
    });
    for code in [opcode::UPDATE, opcode::STATUS] {
        let mut message = query("example.com.", qtype::SOA);
        message[2] |= code << 3;
        let answer = answered(&mut scene, &message);
        assert_eq!(shape(&answer).0 & 15, rcode::NOTIMP);
    }
    let own = &scene.config.authority.statistics.blocks()[1];
    for (name, expected) in [
        ("server-operation[update]", 1),
        ("server-operation[invalid]", 1),
        ("response-code[NOTIMPL]", 2),
    ] {
        assert_eq!(own.sum(cell(name)), expected, "{name}");
    }
}

#[test]
fn what_is_no_query_is_counted_as_an_invalid_operation() {
    let mut scene = scene(ZONE);
    scene.change(|config| {
        let zones = config.local.zones();
        config.authority.statistics = Statistics::new(&[], zones, 1, None);
    });
    let whole = query("www.example.com.", qtype::A);
    let malformed = &whole[..whole.len() - 1];
    let answer = answered(&mut scene, malformed);
    assert_eq!(shape(&answer).0 & 15, rcode::FORMERR);
    let mut without_question = whole[..12].to_vec();
    without_question[5] = 0;
    let answer = answered(&mut scene, &without_question);
    assert_eq!(shape(&answer).0 & 15, rcode::NOTIMP);
    answered(&mut scene, &whole);
    // Nobody is answered.
    let mut response = whole.clone();
    response[2] |= 0x80;
    assert!(matches!(scene.ask(&response), Reply::Drop(_)));
    for (name, expected) in [
        ("server-operation[invalid]", 2),
        ("server-operation[query]", 1),
        ("request-protocol[udp4]", 3),
        ("response-code[FORMERR]", 1),
        ("response-code[NOTIMPL]", 1),
        ("request-bytes[other]", malformed.len() as u64 + 12),
        ("response-bytes[other]", 24),
        ("edns-presence[request]", 0),
    ] {
        assert_eq!(counted(&scene, name), expected, "{name}");
    }
}
