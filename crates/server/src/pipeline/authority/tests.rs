//! Queries through the stages to a zone and back.

use super::cookies::{Cookies, Secrets};
use super::limit::{LimitOptions, ResponseRateLimit};
use super::*;
use crate::clock::Now;
use crate::config::pools::PoolId;
use crate::config::zones::ZoneSpecs;
use crate::local::Local;
use crate::pipeline::acl::Netmask;
use crate::pipeline::rules::actions::answer::RCodeAction;
use crate::pipeline::rules::actions::pass::SetNoRecurseAction;
use crate::pipeline::rules::actions::remember::SetEDNSOptionAction;
use crate::pipeline::rules::limiter::Prefixes;
use crate::pipeline::rules::selectors::logic::AllRule;
use crate::pipeline::run;
use crate::pipeline::scene::{Reply, Scene, query, query_with_edns};
use std::path::PathBuf;
use wire::codes::{edns_option, qtype};
use wire::cookie::Secret;
use wire::message::parse_response;
use wire::name::NameBuf;
use zone::tsig::{Algorithm, Key};

mod invalid;
mod pools;
mod version;

const ZONE: &str = "
$TTL 300
@    SOA ns hostmaster 7 3600 600 86400 60
     NS  ns
ns   A   192.0.2.1
www  A   192.0.2.80
big  TXT ( \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\" )
";

fn local(zone: &str) -> Arc<Local> {
    locals(&[("example.com.", zone)])
}

/// Zones by their names and files.
fn locals(zones: &[(&str, &str)]) -> Arc<Local> {
    let folder = tempfile::tempdir().unwrap();
    let files = zones.iter().map(|(name, zone)| {
        let file = folder.path().join(name);
        std::fs::write(&file, zone).unwrap();
        (name.parse::<NameBuf>().unwrap(), file)
    });
    let files: Vec<(NameBuf, PathBuf)> = files.collect();
    let specs = ZoneSpecs::with(files.iter().map(|(name, file)| (name.clone(), &**file)));
    Arc::new(Local::load(&specs, &Local::default()).0)
}

fn scene(zone: &str) -> Scene {
    let mut scene = Scene::default();
    scene.change(|config| config.local = local(zone));
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

/// RFC 4035 §3.1.6. Records, a refusal, and what has no records for another reason.
#[test]
fn an_authoritative_answer_never_has_cd() {
    let mut scene = scene(ZONE);
    let asked = [
        ("www.example.com.", qtype::A, 0x8500),
        ("nx.example.com.", qtype::A, 0x8503),
        ("www.example.com.", qtype::NXNAME, 0x8101),
        ("www.example.net.", qtype::A, 0x8105),
    ];
    for (name, kind, flags) in asked {
        let mut message = query(name, kind);
        message[3] |= 0x10;
        let answer = answered(&mut scene, &message);
        assert_eq!(shape(&answer).0, flags, "{name} {kind}");
    }
}

/// What a batch looks ahead to, and what it does not.
#[test]
fn a_query_of_a_batch_waits_for_memory_where_the_zone_is_large() {
    let many: String = (0..8_000)
        .map(|number| format!("n{number} TXT \"{}\"\n", "x".repeat(60)))
        .collect();
    let mut large = scene(&format!("{ZONE}{many}"));
    for (name, kind) in [
        ("n77.example.com.", qtype::TXT),
        ("N7999.example.com.", qtype::A),
        ("nx.example.com.", qtype::A),
        ("below.n5.example.com.", qtype::A),
        ("example.com.", qtype::SOA),
    ] {
        let message = query_with_edns(name, kind, Some(1_232));
        let whole = large.ask(&message);
        assert!(matches!(whole, Reply::Answer(_)), "{name}: {whole:?}");
        assert_eq!(large.ask_in_batch(&message), (true, whole), "{name}");
    }
    let (paused, _) = large.ask_in_batch(&query("example.org.", qtype::A));
    assert!(!paused, "it is in no zone");
    let (paused, _) = scene(ZONE).ask_in_batch(&query("www.example.com.", qtype::A));
    assert!(!paused, "the zone is small");
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
    answer(query, None, env).is_none()
}

#[test]
fn what_is_not_served_is_refused_where_there_is_no_server() {
    let mut scene = scene(ZONE);
    for name in ["www.example.org.", "com.", "."] {
        let answer = answered(&mut scene, &query(name, qtype::A));
        assert_eq!(shape(&answer), (0x8105, [0; 3]), "{name}");
    }
}

/// RFC 1034 §3.7.1.
#[test]
fn class_any_is_answered_without_authority() {
    let mut scene = scene(ZONE);
    let mut of_class = |name: &str, class: u16| {
        let mut message = query(name, qtype::A);
        let at = message.len() - 2;
        message[at..].copy_from_slice(&class.to_be_bytes());
        shape(&answered(&mut scene, &message))
    };
    assert_eq!(of_class("www.example.com.", 255), (0x8100, [1, 0, 0]));
    assert_eq!(of_class("nx.example.com.", 255), (0x8103, [0, 1, 0]));
    assert_eq!(of_class("www.example.org.", 255), (0x8105, [0; 3]));
    assert_eq!(of_class("www.example.com.", 4), (0x8105, [0; 3]));
}

/// RFC 5936 §2.2.1.
#[test]
fn transfers_and_notify_of_what_is_not_served_are_not_authoritative() {
    let mut scene = scene(ZONE);
    for kind in [qtype::AXFR, qtype::IXFR] {
        let answer = answered(&mut scene, &query("example.org.", kind));
        assert_eq!(shape(&answer), (0x8109, [0; 3]), "{kind}");
    }
    let mut of_opcode = |opcode: u8| {
        let mut message = query("example.org.", qtype::SOA);
        message[2] |= opcode << 3;
        shape(&answered(&mut scene, &message)).0
    };
    assert_eq!(of_opcode(opcode::NOTIFY), 0xa109);
    assert_eq!(of_opcode(opcode::UPDATE), 0xa904);
}

/// RFC 8945 §5.1: whoever can verify a signature says that it stands in a wrong place.
#[test]
fn what_has_a_signature_is_handed_over_wherever_that_stands() {
    let mut scene = scene(ZONE);
    let signature: &[u8] = &[0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 0];
    let address: &[u8] = &[0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, 1];
    // Where a header counts answers, authority and additional records.
    let (answers, authority, additional) = (7, 9, 11);
    for name in ["www.example.com.", "www.example.org."] {
        for (place, records) in [
            (additional, vec![signature]),
            (additional, vec![address, signature]),
            (additional, vec![signature, address]),
            (authority, vec![signature]),
            (answers, vec![signature]),
        ] {
            let mut message = query(name, qtype::A);
            message[place] = records.len() as u8;
            message.extend(records.concat());
            let reply = scene.ask(&message);
            assert_eq!(
                reply,
                Reply::HandOver(HandOverReason::Zone),
                "{name} {place} {}",
                records.len()
            );
        }
    }
    let mut unsigned = query("www.example.com.", qtype::A);
    unsigned[additional] = 1;
    unsigned.extend(address);
    assert_eq!(shape(&answered(&mut scene, &unsigned)), (0x8500, [1, 0, 0]));
}

/// RFC 8945 §5.3: answers to what is signed are signed, whoever gives them.
#[test]
fn signed_queries_are_handed_over_for_chaos_names_and_with_what_a_rule_answers() {
    let signed = |name: &str, class: u8| {
        let mut message = query(name, qtype::TXT);
        let end = message.len();
        (message[end - 1], message[11]) = (class, 1);
        message.extend([0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 0]);
        message
    };
    let code = |answer: &[u8]| shape(answer).0 & 15;
    let mut scene = scene(ZONE);
    let handed = Reply::HandOver(HandOverReason::Zone);
    assert_eq!(scene.ask(&signed("id.server.", 3)), handed);
    // Who has no keys signs nothing.
    scene.add_rule(AllRule, RCodeAction::new(rcode::REFUSED as u8));
    let message = signed("www.example.org.", 1);
    assert_eq!(code(&answered(&mut scene, &message)), rcode::REFUSED);
    let name: NameBuf = "k.".parse().unwrap();
    let key = Key::new(name.as_name(), Algorithm::Sha256, b"secret");
    let specs = ZoneSpecs {
        keys: vec![Arc::new(key)],
        ..ZoneSpecs::default()
    };
    scene.change(|config| config.local = Arc::new(Local::load(&specs, &Local::default()).0));
    let (asked, answer) = scene.with_arrival(&message, |arrival, env| {
        let Verdict::HandOver(handed) = crate::pipeline::run(arrival, env) else {
            panic!("it is not handed over");
        };
        let extras = handed.extras.as_ref();
        let answer = extras.and_then(|extras| extras.answer.clone());
        (arrival.bytes(handed.found.length.into()).to_vec(), answer)
    });
    assert_eq!(asked, message, "what verifies the signature");
    assert_eq!(code(&answer.unwrap()), rcode::REFUSED);
    let unsigned = query("www.example.org.", qtype::TXT);
    assert_eq!(code(&answered(&mut scene, &unsigned)), rcode::REFUSED);
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
    let mut update = query("example.com.", qtype::SOA);
    update[2] |= opcode::UPDATE << 3;
    assert_eq!(shape(&answered(&mut scene, &update)).0 & 15, rcode::NOTIMP);
    let mut notify = query("example.com.", qtype::SOA);
    notify[2] |= opcode::NOTIFY << 3;
    let handed = Reply::HandOver(HandOverReason::Zone);
    assert_eq!(scene.ask(&notify), handed);
    assert_eq!(scene.ask(&query("example.com.", qtype::AXFR)), handed);
    let mut version = query_with_edns("www.example.com.", qtype::A, Some(1_232));
    let at = version.len() - 5;
    version[at] = 1;
    let answer = answered(&mut scene, &version);
    assert_eq!(parse_response(&answer).unwrap().rcode, rcode::BADVERS);
}

// ---------------------------------------------------------------------------------------------- EDNS

/// A query with these options.
fn with_options(name: &str, qtype: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut message = query_with_edns(name, qtype, Some(1_232));
    let start = message.len();
    for (code, value) in options {
        message.extend(code.to_be_bytes());
        message.extend((value.len() as u16).to_be_bytes());
        message.extend(*value);
    }
    let length = (message.len() - start) as u16;
    message[start - 2..start].copy_from_slice(&length.to_be_bytes());
    message
}

/// The options of an answer.
fn options(answer: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let parts = parse_response(answer).unwrap();
    assert_eq!(usize::from(parts.end), answer.len());
    let edns = parts.edns.expect("an OPT record");
    let options = edns.options(answer);
    options
        .map(|option| (option.code, option.value.to_vec()))
        .collect()
}

fn named(zone: &str) -> Scene {
    let mut scene = scene(zone);
    scene.change(|config| {
        config.authority.identity = "ns1".into();
        config.authority.version = "one".into();
        let secrets = Secrets::Shared(vec![Secret([7; 16])]);
        config.authority.cookies = Some(Arc::new(Cookies::new(secrets, 1_000_000, Now(0))));
    });
    scene
}

#[test]
fn nsid_is_said_to_whoever_asks() {
    let mut scene = named(ZONE);
    let asked = with_options("www.example.com.", qtype::A, &[(edns_option::NSID, b"")]);
    let answer = answered(&mut scene, &asked);
    assert_eq!(options(&answer), [(edns_option::NSID, b"ns1".to_vec())]);
    let plain = query_with_edns("www.example.com.", qtype::A, Some(1_232));
    assert_eq!(options(&answered(&mut scene, &plain)), []);
    scene.change(|config| config.authority.identity = "".into());
    assert_eq!(options(&answered(&mut scene, &asked)), []);
}

/// RFC 7314: for SOA, and with what the SOA record says.
#[test]
fn expire_is_said_of_a_soa() {
    let mut scene = named(ZONE);
    let asked = |qtype| with_options("example.com.", qtype, &[(edns_option::EXPIRE, b"")]);
    let answer = answered(&mut scene, &asked(qtype::SOA));
    let expire = 86_400_u32.to_be_bytes().to_vec();
    assert_eq!(options(&answer), [(edns_option::EXPIRE, expire)]);
    assert_eq!(options(&answered(&mut scene, &asked(qtype::NS))), []);
}

#[test]
fn f11_a_cookie_is_answered_with_one_that_is_good() {
    let mut scene = named(ZONE);
    let mut ask = |cookie: &[u8]| {
        let asked = with_options(
            "www.example.com.",
            qtype::A,
            &[(edns_option::COOKIE, cookie)],
        );
        let answer = answered(&mut scene, &asked);
        (parse_response(&answer).unwrap().rcode, options(&answer))
    };
    let (code, first) = ask(b"01234567");
    assert_eq!(
        (code, first.len(), first[0].1.len()),
        (rcode::NOERROR, 1, 24)
    );
    assert_eq!(first[0].1[..8], *b"01234567");
    assert_eq!(ask(&first[0].1).1, first, "it is fresh");
    assert_eq!(ask(b"0123456").0, rcode::FORMERR);
    assert_eq!(ask(&[0; 41]).0, rcode::FORMERR);
    scene.change(|config| config.authority.cookies = None);
    let asked = with_options("www.example.com.", qtype::A, &[(edns_option::COOKIE, b"0")]);
    assert_eq!(options(&answered(&mut scene, &asked)), []);
}

/// RFC 7873 §5.4.
#[test]
fn f11_a_query_without_a_question_is_answered_with_a_cookie() {
    let mut scene = named(ZONE);
    let asked = |cookie: &[u8]| {
        let length = cookie.len() as u8;
        let mut message = vec![0x12, 0x34, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 4 + length]);
        message.extend([0, edns_option::COOKIE as u8, 0, length]);
        message.extend(cookie);
        message
    };
    let answer = answered(&mut scene, &asked(b"01234567"));
    assert_eq!(answer[..6], [0x12, 0x34, 0x81, 0, 0, 0]);
    assert_eq!(shape(&answer), (0x8100, [0, 0, 1]));
    let first = options(&answer);
    assert_eq!((first.len(), first[0].1.len()), (1, 24));
    let again = answered(&mut scene, &asked(&first[0].1));
    assert_eq!(shape(&again), (0x8100, [0, 0, 1]));
    assert_eq!(options(&again), first, "it is fresh");
    let mut forged = first[0].1.clone();
    forged[23] ^= 1;
    let answer = answered(&mut scene, &asked(&forged));
    assert_eq!(parse_response(&answer).unwrap().rcode, rcode::BADCOOKIE);
    assert_eq!(options(&answer), first);
    let answer = answered(&mut scene, &asked(b"0123"));
    assert_eq!(shape(&answer), (0x8101, [0, 0, 1]), "FORMERR");
    assert_eq!(options(&answer), []);
    scene.change(|config| config.authority.cookies = None);
    let answer = answered(&mut scene, &asked(b"01234567"));
    assert_eq!(shape(&answer), (0x8104, [0, 0, 1]), "NOTIMP");
    assert_eq!(options(&answer), []);
}

#[test]
fn errors_are_told_more_of() {
    let extended = |scene: &mut Scene, name: &str, qtype: u16| {
        let answer = answered(scene, &query_with_edns(name, qtype, Some(1_232)));
        let options = options(&answer);
        assert_eq!(
            (options.len(), options[0].0),
            (1, edns_option::EXTENDEDERROR)
        );
        let code = u16::from_be_bytes(options[0].1[..].try_into().unwrap());
        (parse_response(&answer).unwrap().rcode, code)
    };
    let mut served = named(ZONE);
    assert_eq!(
        extended(&mut served, "www.example.org.", qtype::A),
        (rcode::REFUSED, extended_error::NOT_AUTHORITATIVE)
    );
    // RFC 9824 §3.5.
    for name in ["www.example.com.", "nx.example.com."] {
        assert_eq!(
            extended(&mut served, name, qtype::NXNAME),
            (rcode::FORMERR, extended_error::INVALID_QUERY_TYPE)
        );
    }
    let mut broken = named("nonsense");
    assert_eq!(
        extended(&mut broken, "www.example.com.", qtype::A),
        (rcode::SERVFAIL, extended_error::INVALID_DATA)
    );
}

/// What an answer has room for is what its options leave.
#[test]
fn f8_records_and_options_fit_together() {
    let many: String = (0..40)
        .map(|number| format!("many TXT {number} (\"{}\")\n", "x".repeat(number % 11)))
        .collect();
    let mut scene = named(&format!("{ZONE}{many}"));
    let wishes: [(u16, &[u8]); 3] = [
        (edns_option::NSID, b""),
        (edns_option::COOKIE, b"01234567"),
        (edns_option::ZONEVERSION, b""),
    ];
    for room in 512..1_300 {
        scene.room = room;
        let asked = with_options("many.example.com.", qtype::TXT, &wishes);
        match scene.ask(&asked) {
            Reply::Answer(answer) => {
                assert!(answer.len() <= room);
                assert_eq!(options(&answer).len(), 3, "{room}");
            }
            Reply::HandOver(reason) => assert_eq!(reason, HandOverReason::Oversized),
            other => panic!("{other:?}"),
        }
    }
}

/// I10: whoever has more room than a frame reads the options once more.
#[test]
fn what_a_frame_has_no_room_for_is_handed_over_as_it_was_asked() {
    let many: String = (0..10)
        .map(|number| format!("many TXT {number} (\"{}\")\n", "x".repeat(60)))
        .collect();
    let mut scene = named(&format!("{ZONE}alias CNAME many\n{many}"));
    let wishes: [(u16, &[u8]); 3] = [
        (edns_option::NSID, b""),
        (edns_option::COOKIE, b"01234567"),
        (edns_option::ZONEVERSION, b""),
    ];
    // The alias has room, and is written where the options are.
    let asked = with_options("alias.example.com.", qtype::TXT, &wishes);
    for frame in [asked.len(), 300, 600] {
        scene.frame = frame;
        let left = scene.with_arrival(&asked, |arrival, env| {
            let verdict = run(arrival, env);
            let is_handed_over = matches!(
                &verdict,
                Verdict::HandOver(hand_over) if hand_over.reason == HandOverReason::Oversized
            );
            assert!(is_handed_over, "{frame}");
            arrival.message[..asked.len()].to_vec()
        });
        assert_eq!(left, asked, "{frame}");
    }
    let elsewhere = with_options("www.example.org.", qtype::TXT, &wishes);
    for frame in [elsewhere.len(), elsewhere.len() + 3, 600] {
        scene.frame = frame;
        let left = scene.examine(&elsewhere, |query, env| {
            assert!(answer_is_none(query, env), "{frame}");
            query.bytes().to_vec()
        });
        assert_eq!(left, elsewhere, "{frame}");
    }
    scene.frame = usize::MAX;
    let answer = answered(&mut scene, &asked);
    assert_eq!(
        (shape(&answer), options(&answer).len()),
        ((0x8500, [11, 0, 1]), 3)
    );
    // Counted where it was answered, once.
    let cookies = scene.config.authority.cookies.as_ref().unwrap();
    assert_eq!(cookies.seen.sum(), 1);
}

/// I10: a client that takes them gets as many addresses by AF_XDP as by a kernel socket.
#[test]
fn an_answer_whose_addresses_have_no_room_in_a_frame_is_made_elsewhere() {
    let many: String = (0..10)
        .map(|number| format!("mail MX 1 m{number}\nm{number} AAAA 2001:db8::{number}\n"))
        .collect();
    let mut scene = scene(&format!("{ZONE}{many}"));
    let asked = query_with_edns("mail.example.com.", qtype::MX, Some(1_232));
    let whole = answered(&mut scene, &asked);
    assert_eq!(shape(&whole), (0x8500, [10, 0, 11]));
    for frame in [300, whole.len() - 1] {
        scene.frame = frame;
        let reply = scene.ask(&asked);
        assert_eq!(reply, Reply::HandOver(HandOverReason::Oversized));
    }
}

/// The signature of an answer may take what its options need (RFC 8945 §5.3: the answer is cut, not the signature).
#[test]
fn options_that_have_no_room_leave_a_truncated_answer() {
    let mut scene = named(ZONE);
    let asked = with_options(
        "www.example.com.",
        qtype::A,
        &[(edns_option::COOKIE, b"01234567")],
    );
    let short = scene.examine(&asked, |query, env| {
        query.limit = 30;
        let Some(Verdict::Answer(length)) = answer(query, None, env) else {
            panic!("no answer")
        };
        (length, query.header().tc())
    });
    // Header and question, the OPT record and the whole cookie.
    assert_eq!(short, (33 + 11 + 28, true));
}

#[test]
fn without_edns_of_our_own_nothing_is_said_by_it() {
    let mut scene = named(ZONE);
    scene.change(|config| config.tuning.edns_in_self_generated = false);
    let mut asked = with_options("www.example.com.", qtype::A, &[(edns_option::NSID, b"")]);
    let answer = answered(&mut scene, &asked);
    assert_eq!(shape(&answer), (0x8500, [1, 0, 0]));
    let version = asked.len() - 4 - 5;
    asked[version] = 1;
    // BADVERS cannot be said without an OPT record, and its lower bits mean "all well".
    assert_eq!(shape(&answered(&mut scene, &asked)), (0x8101, [0; 3]));
}

#[test]
fn what_rules_did_to_the_query_is_not_answered() {
    let mut scene = named(ZONE);
    scene.add_rule(AllRule, SetNoRecurseAction);
    let option = SetEDNSOptionAction {
        code: 65_001,
        value: Box::from(*b"abc"),
    };
    scene.add_rule(AllRule, option);
    let answer = answered(&mut scene, &query("www.example.com.", qtype::A));
    assert_eq!(shape(&answer), (0x8500, [1, 0, 0]));
}

// ---------------------------------------------------------------------------------------------- CHAOS

fn chaos(name: &str, qtype: u16) -> Vec<u8> {
    let mut message = query(name, qtype);
    let class = message.len() - 1;
    message[class] = 3;
    message
}

#[test]
fn chaos_names_say_who_and_what_we_are() {
    let mut scene = named(ZONE);
    for (name, text) in [
        ("id.server.", "ns1"),
        ("HOSTNAME.bind.", "ns1"),
        ("version.server.", "one"),
        ("version.bind.", "one"),
    ] {
        let answer = answered(&mut scene, &chaos(name, qtype::TXT));
        assert_eq!(shape(&answer), (0x8100, [1, 0, 0]), "{name}");
        let head = [0xc0, 12, 0, 16, 0, 3, 0, 0, 0, 0, 0, 4, 3];
        assert!(
            answer.ends_with(&[&head, text.as_bytes()].concat()),
            "{name}"
        );
        let other = answered(&mut scene, &chaos(name, qtype::A));
        assert_eq!(shape(&other), (0x8105, [0; 3]), "{name}");
    }
    let unknown = answered(&mut scene, &chaos("www.example.com.", qtype::TXT));
    assert_eq!(shape(&unknown), (0x8105, [0; 3]));
    scene.change(|config| config.authority.version = "".into());
    let silent = answered(&mut scene, &chaos("version.bind.", qtype::TXT));
    assert_eq!(shape(&silent), (0x8105, [0; 3]));
}

// ---------------------------------------------------------------------------------------------- rate limit

const LIMIT: LimitOptions = LimitOptions {
    rate: 5,
    burst: 5,
    total: 0,
    slip: 0,
    prefixes: Prefixes { v4: 24, v6: 56 },
    buckets: 4_096,
    dry_run: false,
};

fn limited(options: LimitOptions, allowed: &[&str]) -> Scene {
    let mut scene = named(ZONE);
    let allowed = allowed.iter().map(|mask| mask.parse::<Netmask>().unwrap());
    let limit = ResponseRateLimit::new(options, allowed.collect(), None);
    scene.change(|config| config.authority.limit = Some(Arc::new(limit)));
    scene
}

fn counts(scene: &Scene) -> [u64; 3] {
    let counts = &scene.config.authority.limit.as_ref().unwrap().counts;
    [&counts.dropped, &counts.slipped, &counts.would_have].map(|counter| counter.sum())
}

/// How many of 20 get an answer that says something.
fn served(scene: &mut Scene, message: &[u8]) -> usize {
    let is_served = |_: &usize| match scene.ask(message) {
        Reply::Answer(answer) => {
            parse_response(&answer).is_ok_and(|parts| !parts.truncated && parts.rcode < 16)
        }
        Reply::Drop(reason) => {
            assert_eq!(reason, DropReason::ResponseRate);
            false
        }
        other => panic!("{other:?}"),
    };
    (0..20).filter(is_served).count()
}

#[test]
fn answers_above_the_limit_are_dropped() {
    let mut scene = limited(LIMIT, &[]);
    assert_eq!(served(&mut scene, &query("www.example.com.", qtype::A)), 5);
    assert_eq!(counts(&scene), [15, 0, 0]);
    assert_eq!(scene.shard.drops(DropReason::ResponseRate), 15);
    assert_eq!(
        served(&mut scene, &query("ns.example.com.", qtype::A)),
        5,
        "another answer"
    );
    assert_eq!(
        served(&mut scene, &query("www.example.org.", qtype::A)),
        5,
        "REFUSED"
    );
    let random = |number: usize| query(&format!("{number}.example.com."), qtype::A);
    let missing = (0..20).filter(|&number| matches!(scene.ask(&random(number)), Reply::Answer(_)));
    assert_eq!(missing.count(), 5, "random names are one answer");
    scene.protocol = Protocol::Tcp;
    assert_eq!(served(&mut scene, &query("www.example.com.", qtype::A)), 20);
}

#[test]
fn names_of_one_wildcard_and_below_one_delegation_are_one_answer() {
    let zone = "*.wild A 192.0.2.7\nsub NS ns.sub\nns.sub A 192.0.2.53\n";
    let mut scene = limited(LIMIT, &[]);
    scene.change(|config| config.local = local(&format!("{ZONE}{zone}")));
    for below in ["wild", "sub"] {
        let random = |number: usize| query(&format!("{number}.{below}.example.com."), qtype::A);
        let answers =
            (0..20).filter(|&number| matches!(scene.ask(&random(number)), Reply::Answer(_)));
        assert_eq!(answers.count(), 5, "{below}");
    }
}

#[test]
fn types_that_an_alias_or_a_delegation_answers_alike_are_one_answer() {
    let zone = "alias CNAME www\nsub NS ns.sub\nns.sub A 192.0.2.53\n";
    let mut scene = limited(LIMIT, &[]);
    scene.change(|config| config.local = local(&format!("{ZONE}{zone}")));
    for name in ["alias.example.com.", "x.sub.example.com."] {
        let mut ask = |qtype: u16| scene.ask(&query(name, qtype));
        let is_answered = |qtype: &u16| matches!(ask(*qtype), Reply::Answer(_));
        let answers = (1_000..1_020).filter(is_answered);
        assert_eq!(answers.count(), 5, "{name}");
    }
    for qtype in [qtype::NS, qtype::SOA] {
        assert_eq!(served(&mut scene, &query("example.com.", qtype)), 5);
    }
}

#[test]
fn a_slip_says_tc_or_gives_a_cookie() {
    let mut scene = limited(LimitOptions { slip: 1, ..LIMIT }, &[]);
    let plain = query("www.example.com.", qtype::A);
    assert_eq!(served(&mut scene, &plain), 5);
    assert_eq!(counts(&scene), [0, 15, 0]);
    assert_eq!(
        shape(&answered(&mut scene, &plain)),
        (0x8300, [0; 3]),
        "QR TC RD"
    );
    let named: [(u16, &[u8]); 2] = [(edns_option::NSID, b""), (edns_option::ZONEVERSION, b"")];
    let named = with_options("www.example.com.", qtype::A, &named);
    let short = answered(&mut scene, &named);
    assert_eq!(shape(&short), (0x8300, [0, 0, 1]));
    assert_eq!(options(&short), [], "no longer than it must be");
    let asked = with_options(
        "www.example.com.",
        qtype::A,
        &[(edns_option::COOKIE, b"01234567")],
    );
    let answer = answered(&mut scene, &asked);
    assert_eq!(parse_response(&answer).unwrap().rcode, rcode::BADCOOKIE);
    let cookie = &options(&answer)[0].1;
    let known = with_options(
        "www.example.com.",
        qtype::A,
        &[(edns_option::COOKIE, cookie)],
    );
    assert_eq!(served(&mut scene, &known), 20, "no forger");
}

/// A client that does not come by TCP takes NOERROR for success: `nsupdate` does.
#[test]
fn a_slip_keeps_the_code_and_says_tc_where_records_are_missing() {
    let mut scene = limited(LimitOptions { slip: 1, ..LIMIT }, &[]);
    let mut update = query("example.com.", qtype::SOA);
    update[2] |= 5 << 3;
    for (message, expected) in [
        (update, 0xa904),
        (query("www.example.org.", qtype::A), 0x8105),
        (query("www.example.com.", qtype::NXNAME), 0x8101),
        (query("nx.example.com.", qtype::A), 0x8303),
        (query("www.example.com.", qtype::MX), 0x8300),
    ] {
        served(&mut scene, &message);
        let short = answered(&mut scene, &message);
        assert_eq!(shape(&short), (expected, [0; 3]));
    }
    assert_eq!(counts(&scene), [0, 5 * 16, 0]);
}

#[test]
fn who_is_allowed_is_not_limited_and_a_dry_run_drops_nothing() {
    let message = query("www.example.com.", qtype::A);
    let mut scene = limited(LIMIT, &["192.0.2.9/32"]);
    assert_eq!(served(&mut scene, &message), 20);
    assert_eq!(counts(&scene), [0; 3]);
    let mut scene = limited(
        LimitOptions {
            dry_run: true,
            ..LIMIT
        },
        &[],
    );
    assert_eq!(served(&mut scene, &message), 20);
    assert_eq!(counts(&scene), [0, 0, 15]);
}

/// F30: a million forged sources and random names; a client at 100 queries a second gets its answers, and so does one with
/// a cookie that asks for a name that is flooded in its network's name. The table is as large as it was.
#[test]
fn f30_a_million_forged_sources_take_nothing_from_others() {
    let limit = LimitOptions {
        rate: 50,
        burst: 50,
        ..LIMIT
    };
    let mut scene = limited(
        LimitOptions {
            buckets: 1 << 16,
            ..limit
        },
        &[],
    );
    scene.change(|config| {
        config.acl = std::iter::once("0.0.0.0/0".parse::<Netmask>().unwrap()).collect()
    });
    let cookie = with_options(
        "www.example.com.",
        qtype::A,
        &[(edns_option::COOKIE, b"01234567")],
    );
    scene.client = "198.51.100.1:1000".parse().unwrap();
    let cookie = options(&answered(&mut scene, &cookie))[0].1.clone();
    let known = with_options(
        "www.example.com.",
        qtype::A,
        &[(edns_option::COOKIE, &cookie)],
    );
    let names =
        ["www", "ns", "big", "nx"].map(|name| query(&format!("{name}.example.com."), qtype::A));
    let mut flood = query("00000000.example.com.", qtype::A);
    let (mut asked, mut got) = (0, 0);
    // 100,000 queries a second, for ten seconds.
    for number in 0..1_000_000_u32 {
        scene.now.0 += 10_000;
        let forged = number.wrapping_mul(2_654_435_761) | 0x0100_0000;
        scene.client = (std::net::Ipv4Addr::from(forged), 1_000).into();
        for (place, digit) in flood[13..21].iter_mut().enumerate() {
            *digit = b'a' + (number >> (4 * place) & 15) as u8;
        }
        scene.ask(&flood);
        if number % 1_000 == 0 {
            scene.client = "203.0.113.5:1000".parse().unwrap();
            asked += 1;
            got += u32::from(matches!(
                scene.ask(&names[asked as usize % 4]),
                Reply::Answer(_)
            ));
        }
        if number % 100 == 0 {
            scene.client = "198.51.100.1:1000".parse().unwrap();
            assert!(
                matches!(scene.ask(&known), Reply::Answer(_)),
                "its cookie is good"
            );
        }
    }
    assert!(got * 100 >= asked * 99, "{got} of {asked}");
}

// ---------------------------------------------------------------------------------------------- statistics

#[test]
fn queries_for_zones_are_counted_as_knot_counts_them() {
    let mut scene = named(ZONE);
    let apex: NameBuf = "example.com.".parse().unwrap();
    scene.change(|config| {
        let zones = config.local.zones();
        config.authority.statistics = Statistics::new(&[apex], zones, 1, None);
    });
    let asked = query_with_edns("www.example.com.", qtype::AAAA, Some(1_232));
    let answer = answered(&mut scene, &asked);
    scene.client = "[2001:db8::1]:1".parse().unwrap();
    scene.protocol = Protocol::Tcp;
    answered(&mut scene, &query("nx.example.com.", qtype::MX));
    answered(&mut scene, &query("www.example.org.", qtype::A));
    let statistics = &scene.config.authority.statistics;
    let count = |name: &str, zone: Option<usize>| {
        let (group, cell) = name.trim_end_matches(']').split_once('[').unwrap();
        let group = statistics::GROUPS
            .iter()
            .find(|known| known.name == group)
            .unwrap();
        let (cell, _) = group.cells().find(|(_, known)| known == cell).unwrap();
        zone.map_or_else(
            || statistics.total(cell),
            |zone| statistics.blocks()[zone].sum(cell),
        )
    };
    for (name, total, own) in [
        ("request-protocol[udp4]", 1, 1),
        ("request-protocol[tcp6]", 2, 1),
        ("server-operation[query]", 3, 2),
        ("edns-presence[request]", 1, 1),
        ("edns-presence[response]", 1, 1),
        ("response-code[NOERROR]", 1, 1),
        ("response-code[NXDOMAIN]", 1, 1),
        ("response-code[REFUSED]", 1, 0),
        ("reply-nodata[AAAA]", 1, 1),
        ("query-type[MX]", 1, 1),
        ("query-size[32-47]", 3, 2),
    ] {
        assert_eq!(
            (count(name, None), count(name, Some(1))),
            (total, own),
            "{name}"
        );
    }
    let size = answer.len() / 16 * 16;
    let sizes = count(&format!("reply-size[{size}-{}]", size + 15), Some(1));
    assert!((1..=2).contains(&sizes));
    assert!(count("response-bytes[reply]", Some(1)) > answer.len() as u64);
}

#[test]
fn options_are_counted_once_a_message() {
    let mut scene = named(ZONE);
    let apex: NameBuf = "example.com.".parse().unwrap();
    scene.change(|config| {
        let zones = config.local.zones();
        config.authority.statistics = Statistics::new(&[apex], zones, 1, None);
    });
    let three: [(u16, &[u8]); 3] = [
        (edns_option::NSID, b""),
        (edns_option::NSID, b""),
        (65_001, b"x"),
    ];
    let asked = with_options("www.example.com.", qtype::A, &three);
    answered(&mut scene, &asked);
    let none = query_with_edns("www.example.com.", qtype::A, Some(1_232));
    answered(&mut scene, &none);
    let statistics = &scene.config.authority.statistics;
    let counted = |name: &str| -> Vec<(String, u64)> {
        let group = statistics::GROUPS
            .iter()
            .find(|known| known.name == name)
            .unwrap();
        let block = &statistics.blocks()[1];
        let cells = group.cells().map(|(cell, name)| (name, block.sum(cell)));
        cells.filter(|(_, count)| *count > 0).collect()
    };
    let once = |name: &str| (name.to_owned(), 1);
    let asked = counted("request-edns-option");
    assert_eq!(asked, [once("NSID"), once("other")]);
    assert_eq!(counted("response-edns-option"), [once("NSID")]);
}

/// What is not answered has been asked for.
#[test]
fn options_of_queries_above_the_limit_are_counted() {
    let mut scene = limited(LimitOptions { slip: 0, ..LIMIT }, &[]);
    scene.change(|config| {
        let zones = config.local.zones();
        config.authority.statistics = Statistics::new(&[], zones, 1, None);
    });
    let asked = with_options("www.example.com.", qtype::A, &[(edns_option::NSID, b"")]);
    assert_eq!(served(&mut scene, &asked), 5);
    let group = statistics::GROUPS
        .iter()
        .find(|known| known.name == "request-edns-option")
        .unwrap();
    let (nsid, _) = group.cells().find(|(_, name)| name == "NSID").unwrap();
    assert_eq!(scene.config.authority.statistics.total(nsid), 20);
}
