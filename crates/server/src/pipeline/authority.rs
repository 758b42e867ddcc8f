//! The stage that answers from zones of our own what no rule has decided.

use super::query::{Protocol, Query};
use super::{Env, HandOver, HandOverReason, Verdict, respond};
use crate::config::Config;
use crate::config::pools::PoolId;
use crate::counters::Counter;
use wire::answer::{OPT_LENGTH, append_opt};
use wire::codes::{opcode, qtype, rcode};
use wire::message::Header;
use zone::answer::Outcome;

/// Answers what lies in a served zone, unless a rule has chosen a pool for it.
///
/// Cost where no zone is served: one comparison.
#[inline]
pub fn answer<'c>(query: &mut Query<'_>, env: &mut Env<'c>) -> Option<Verdict<'c>> {
    if env.config.local.is_empty() || query.pool != PoolId::DEFAULT {
        return None;
    }
    answer_served(query, env)
}

/// Apart, so that whoever serves no zone does not carry it along.
#[inline(never)]
fn answer_served<'c>(query: &mut Query<'_>, env: &mut Env<'c>) -> Option<Verdict<'c>> {
    let config: &'c Config = env.config;
    let length = match exception(query) {
        Some(code)
            if config
                .local
                .zones()
                .encloses(query.name(), query.parts.labels) =>
        {
            respond::with_rcode(query, env, code)
        }
        Some(_) => return None,
        None => match from_zones(query, config) {
            From::Nowhere => return None,
            From::Zone(length) => length,
            From::NotLoaded => respond::with_rcode(query, env, rcode::SERVFAIL),
            From::Roomless => {
                return Some(Verdict::HandOver(HandOver {
                    reason: HandOverReason::Oversized,
                    server: None,
                    found: query.found(),
                }));
            }
        },
    };
    // Nobody here recurses.
    respond::edit_header(query.message, |header| header.set_ra(false));
    env.shard.count(Counter::SelfAnswered);
    Some(respond::give(
        &config.chains.self_answered,
        query,
        length,
        env,
    ))
}

/// What is said to queries that zones have no answer for.
fn exception(query: &Query<'_>) -> Option<u16> {
    // RFC 6891 §6.1.3: "If a responder does not implement the VERSION level of the request, then it MUST respond with
    // RCODE=BADVERS."
    if query.parts.edns.is_some_and(|edns| edns.version > 0) {
        return Some(rcode::BADVERS);
    }
    if query.header().opcode() != opcode::QUERY {
        return Some(rcode::NOTIMP);
    }
    // Whom an acl entry with action="transfer" does not name is refused (RFC 5936 §2.2.1), and there are none yet.
    let is_transfer = matches!(query.parts.qtype, qtype::AXFR | qtype::IXFR);
    is_transfer.then_some(rcode::REFUSED)
}

enum From {
    /// No zone encloses the name.
    Nowhere,
    /// The buffer holds the answer, of so many bytes.
    Zone(usize),
    NotLoaded,
    /// The client takes an answer that the buffer has no room for.
    Roomless,
}

fn from_zones(query: &mut Query<'_>, config: &Config) -> From {
    let payload_size = config.tuning.payload_size_self_generated;
    let limit = match query.protocol {
        Protocol::Udp => query.limit.min(payload_size.into()),
        Protocol::Tcp => query.limit,
    };
    let edns = query
        .parts
        .edns
        .filter(|_| config.tuning.edns_in_self_generated);
    let reserved = if edns.is_some() { OPT_LENGTH } else { 0 };
    let room = query.message.len();
    let asked = Header::read(query.message).expect("a parsed query has a header");
    let limit_of_records = limit.min(room) - reserved;
    let zones = config.local.zones();
    let answered = match zone::answer::answer(zones, query.message, &query.parts, limit_of_records)
    {
        Outcome::NotServed => return From::Nowhere,
        Outcome::NotLoaded { .. } => return From::NotLoaded,
        Outcome::Answered(answered) => answered,
    };
    if answered.truncated && limit > room {
        // Whoever has more room asks again: he needs the header and the question, and has the rest in `parts`.
        asked.write(query.message).expect("it was read from there");
        return From::Roomless;
    }
    From::Zone(match edns {
        Some(edns) => append_opt(query.message, answered.length, payload_size, edns.dnssec_ok),
        None => answered.length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::pools::PoolId;
    use crate::config::spec::ZoneSpec;
    use crate::local::Local;
    use crate::pipeline::query::Protocol;
    use crate::pipeline::rules::actions::answer::RCodeAction;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Reply, Scene, query, query_with_edns};
    use std::sync::Arc;
    use wire::message::parse_response;

    const ZONE: &str = "
$TTL 300
@    SOA ns hostmaster 7 3600 600 86400 60
     NS  ns
ns   A   192.0.2.1
www  A   192.0.2.80
big  TXT ( \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\" )
";

    fn spec(folder: &std::path::Path, zone: &str) -> ZoneSpec {
        let file = folder.join("zone");
        std::fs::write(&file, zone).unwrap();
        ZoneSpec {
            place: crate::config::place::Place::command_line(),
            apex: "example.com.".parse().unwrap(),
            file,
        }
    }

    fn scene(zone: &str) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let (local, _) = Local::load(&[spec(folder.path(), zone)], &Local::default());
        let mut scene = Scene::default();
        scene.change(|config| config.local = Arc::new(local));
        scene
    }

    fn answered(scene: &mut Scene, message: &[u8]) -> Vec<u8> {
        match scene.ask(message) {
            Reply::Answer(answer) => answer,
            other => panic!("no answer: {other:?}"),
        }
    }

    /// Flags and RCODE, then the counts of records.
    fn shape(answer: &[u8]) -> (u16, [u16; 3]) {
        let header = Header::read(answer).unwrap();
        let counts = [
            header.answer_count(),
            header.authority_count(),
            header.additional_count(),
        ];
        (header.flags(), counts)
    }

    #[test]
    fn a_served_name_is_answered_from_its_zone() {
        let mut scene = scene(ZONE);
        let answer = answered(&mut scene, &query("wWw.example.com.", qtype::A));
        // QR AA RD.
        assert_eq!(shape(&answer), (0x8500, [1, 0, 0]));
        assert_eq!(answer[13..16], *b"wWw");
        assert!(answer.ends_with(&[192, 0, 2, 80]));
        let missing = answered(&mut scene, &query("nx.example.com.", qtype::A));
        assert_eq!(shape(&missing), (0x8503, [0, 1, 0]));
        assert_eq!(scene.counted(Counter::SelfAnswered), 2);
        assert_eq!(scene.counted(Counter::FrontendNxdomain), 1);
    }

    #[test]
    fn edns_is_answered_with_the_size_that_is_configured() {
        let mut scene = scene(ZONE);
        let message = query_with_edns("www.example.com.", qtype::A, Some(4_096));
        let answer = answered(&mut scene, &message);
        let parts = parse_response(&answer).unwrap();
        assert_eq!(usize::from(parts.end), answer.len());
        assert_eq!(
            parts.edns.map(|edns| (edns.payload_size, edns.version)),
            Some((1_232, 0))
        );
    }

    #[test]
    fn a_limit_that_is_configured_is_kept_over_udp_and_not_over_tcp() {
        let many: String = (0..20)
            .map(|number| format!("many TXT {number} (\"{}\")\n", "x".repeat(60)))
            .collect();
        let mut scene = scene(&format!("{ZONE}{many}"));
        scene.room = 4_000;
        let message = query_with_edns("many.example.com.", qtype::TXT, Some(4_096));
        let answer = answered(&mut scene, &message);
        assert!(answer.len() <= 1_232);
        assert_eq!(shape(&answer).0 & 0x0200, 0x0200, "TC");
        scene.protocol = Protocol::Tcp;
        let answer = answered(&mut scene, &message);
        assert_eq!(shape(&answer), (0x8500, [20, 0, 1]));
    }

    #[test]
    fn rules_come_first() {
        let mut scene = scene(ZONE);
        scene.add_rule(AllRule, RCodeAction::new(rcode::NOTIMP as u8));
        let answer = answered(&mut scene, &query("www.example.com.", qtype::A));
        assert_eq!(shape(&answer).0 & 15, rcode::NOTIMP);
        let refused = scene.examine(&query("www.example.com.", qtype::A), |query, env| {
            query.pool = PoolId(1);
            answer_is_none(query, env)
        });
        assert!(refused, "a rule chose a pool");
    }

    fn answer_is_none(query: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        answer(query, env).is_none()
    }

    #[test]
    fn what_is_not_served_is_refused_where_there_is_no_server() {
        let mut scene = scene(ZONE);
        for name in ["www.example.org.", "com.", "."] {
            let answer = answered(&mut scene, &query(name, qtype::A));
            assert_eq!(shape(&answer), (0x8105, [0; 3]), "{name}");
        }
    }

    #[test]
    fn a_zone_that_is_not_loaded_is_servfail() {
        let mut scene = scene("nonsense");
        let answer = answered(&mut scene, &query("www.example.com.", qtype::A));
        assert_eq!(shape(&answer), (0x8102, [0; 3]));
    }

    /// F11, F12.
    #[test]
    fn other_opcodes_transfers_and_edns_versions_have_their_codes() {
        let mut scene = scene(ZONE);
        let mut notify = query("example.com.", qtype::SOA);
        notify[2] |= opcode::NOTIFY << 3;
        assert_eq!(shape(&answered(&mut scene, &notify)).0 & 15, rcode::NOTIMP);
        let transfer = query("example.com.", qtype::AXFR);
        assert_eq!(
            shape(&answered(&mut scene, &transfer)).0 & 15,
            rcode::REFUSED
        );
        let mut version = query_with_edns("www.example.com.", qtype::A, Some(1_232));
        let at = version.len() - 5;
        version[at] = 1;
        let answer = answered(&mut scene, &version);
        assert_eq!(parse_response(&answer).unwrap().rcode, rcode::BADVERS);
    }

    #[test]
    fn a_reload_keeps_what_did_not_change_and_what_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path(), ZONE);
        let load = |previous: &Local| Local::load(std::slice::from_ref(&spec), previous);
        let zone = |local: &Local| local.zones().zone(0).cloned();
        let (first, lines) = load(&Local::default());
        assert_eq!(
            lines[0].text,
            "zone example.com.: serial 7, 5 records loaded"
        );
        let (second, lines) = load(&first);
        assert!(lines.is_empty());
        assert!(Arc::ptr_eq(&zone(&first).unwrap(), &zone(&second).unwrap()));
        std::fs::write(&spec.file, ZONE.replace("www", "www.example.org.")).unwrap();
        let (third, lines) = load(&second);
        assert!(
            lines[0].is_error && lines[0].text.ends_with("serial 7 serves on"),
            "{lines:?}"
        );
        assert!(Arc::ptr_eq(&zone(&first).unwrap(), &zone(&third).unwrap()));
        std::fs::write(&spec.file, ZONE.replace(" 7 ", " 8 ")).unwrap();
        let (fourth, _) = load(&third);
        assert_eq!(zone(&fourth).unwrap().soa().serial, 8);
    }
}
