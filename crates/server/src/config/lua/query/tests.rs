//! Functions of the configuration on queries and responses, without sockets.

mod asynchronous;

use crate::backend::exchange::Waiting;
use crate::clock::Now;
use crate::config::LuaState;
use crate::config::pools::PoolNames;
use crate::config::spec::{Purpose, Spec};
use crate::counters::Counter;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::Protocol;
use crate::pipeline::respond;
use crate::pipeline::scene::{Reply, Scene, answer_to, query, query_with_edns};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::codes::{class, qtype, rcode};
use wire::message::{Header, Records, parse_response};

/// Queries to this configuration.
fn scene(text: &str) -> Scene {
    let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
    let text = format!("setACL('0.0.0.0/0') {text}");
    let ran = state.run("test.conf", text.as_bytes());
    ran.unwrap_or_else(|error| panic!("{error}"));
    let config = Arc::new(state).derive(None).unwrap();
    let mut scene = Scene::default();
    scene.config = Arc::new(config);
    scene
}

fn lua(scene: &Scene) -> &Arc<LuaState> {
    scene.config.lua.as_ref().unwrap()
}

/// How many calls failed.
fn errors(scene: &Scene) -> u64 {
    lua(scene).counts.errors.load(Relaxed)
}

/// Runs a text in the state, as the console does.
fn check(scene: &Scene, text: &str) {
    lua(scene)
        .run("check", text.as_bytes())
        .unwrap_or_else(|error| panic!("{error}"));
}

fn answer(scene: &mut Scene, message: &[u8]) -> Vec<u8> {
    match scene.ask(message) {
        Reply::Answer(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// The answer to a query for www.example. A, after a function with this text.
fn answer_by(body: &str) -> Vec<u8> {
    let text = format!("addAction(AllRule(), LuaAction(function(dq) {body} end))");
    let mut scene = scene(&text);
    let answer = answer(&mut scene, &query("www.example.", qtype::A));
    assert_eq!(errors(&scene), 0, "{body}");
    answer
}

/// What waits for a server's response to `asked`.
fn waiting(scene: &mut Scene, asked: &[u8]) -> Waiting {
    let mut waiting = scene.parse(asked, |query| {
        let mut waiting = Waiting::new();
        waiting.client = *query.client();
        waiting.destination = *query.destination();
        waiting.way = *query.way;
        waiting.limit = query.limit;
        waiting.client_flags = query.client_flags;
        waiting.query[..asked.len()].copy_from_slice(asked);
        waiting.query_length = asked.len();
        waiting.parts = query.parts;
        waiting
    });
    waiting.sent = scene.now;
    waiting
}

/// What the client gets of a server's response to `asked` with one address, of 300 seconds.
fn relayed(scene: &mut Scene, asked: &[u8]) -> Vec<u8> {
    let mut waiting = waiting(scene, asked);
    let mut message = answer_to(asked, 0, &[300]);
    let length = message.len();
    message.resize(4_096, 0);
    let done = scene.with_env(|env| respond::response(&mut waiting, &mut message, length, env));
    message.truncate(done.unwrap());
    message
}

/// Type, TTL and data of the records.
fn records(answer: &[u8]) -> Vec<(u16, u32, Vec<u8>)> {
    let parts = parse_response(answer).unwrap();
    let header = Header::read(answer).unwrap();
    Records::new(answer, parts.question_end, &header)
        .map(|record| record.unwrap())
        .map(|record| (record.rtype, record.ttl, record.rdata(answer).to_vec()))
        .collect()
}

#[test]
fn attributes_are_those_of_the_query() {
    let mut scene = scene(
        r#"addAction(AllRule(), LuaAction(function(dq)
             assert(dq.qname:toString() == "wWw.example.", dq.qname:toString())
             assert(dq.qtype == DNSQType.AAAA and dq.qclass == DNSClass.IN)
             assert(dq.opcode == DNSOpcode.Query and dq.rcode == 0)
             assert(dq.remoteaddr:toStringWithPort() == "192.0.2.9:4242")
             assert(dq.localaddr:toStringWithPort() == "192.0.2.1:53")
             assert(dq.tcp == false and dq.skipCache == false and dq.pool == "")
             assert(dq.len == #dq:getContent() and dq.size >= dq.len)
             assert(dq.tempFailureTTL == nil)
             assert(dq:getDO() == false and dq:getProtocol() == "Do53 UDP")
             assert(dq:getServerNameIndication() == "" and dq:getHTTPPath() == "")
             assert(next(dq:getHTTPHeaders()) == nil and dq:getIncomingInterface() == "")
             assert(dq.deviceID == "" and dq.deviceName == "" and dq.requestorID == "")
             dq.deviceID = "d\255\0" assert(dq.deviceID == "d\255\0")
             dq:setTagArray({["\255"]="\0\254"}) assert(dq:getTag("\255") == "\0\254")
             dq:unsetTag("\255") assert(dq:getTag("\255") == "" and next(dq:getTagArray()) == nil)
             assert(dq:getTraceID() == nil and dq:getSpanID() == nil)
             dq:setMetaKey("key", {"value", 5}) dq:setHTTPResponse(200, "body", "text/plain")
             assert(dq.useECS and not dq.ecsOverride and dq.ecsPrefixLength == 24)
             assert(dq:getTrailingData() == "tail")
             assert(dq:getElapsedUs() >= 0 and dq:getQueryTime().tv_sec > 1e9)
             dq:sendTrap("reason")
             local own = dq:getHeader()
             own:setCD(true) assert(not dq.dh:getCD())
             dq:setHeader(own) assert(dq.dh:getCD() and dq.dh:getID() == 0x1234)
             own:setCD(false) dq:setHeader(own)
             local dh = dq.dh
             assert(dh:getRD() and not dh:getCD() and not dh:getAA() and not dh:getAD())
             assert(not dh:getRA() and not dh:getTC() and dh:getID() == 0x1234)
             local count = 0
             for code, view in pairs(dq:getEDNSOptions()) do
               assert(code == EDNSOptionCode.COOKIE and view:count() == 2)
               assert(view:getValues()[1] == "\0a" and view:getValues()[2] == "")
               count = count + 1
             end
             assert(count == 1)
             local before = dq.len
             dq:removeEDNSOption(EDNSOptionCode.COOKIE)
             assert(next(dq:getEDNSOptions()) == nil and dq.len == before - 10 and dq:getTrailingData() == "tail")
             return DNSAction.Refused
           end))"#,
    );
    let mut message = query_with_edns("wWw.example.", qtype::AAAA, Some(1_232));
    let options = b"\x00\x0a\x00\x02\x00a\x00\x0a\x00\x00";
    let end = message.len();
    message[end - 1] = options.len() as u8;
    message.extend_from_slice(options);
    message.extend_from_slice(b"tail");
    assert_eq!(answer(&mut scene, &message)[3] & 15, 5);
    assert_eq!(errors(&scene), 0);
    assert_eq!(scene.counted(Counter::RuleRefused), 1);
    scene.protocol = Protocol::Tcp;
    scene.ask(&message);
    assert_eq!(errors(&scene), 1, "dq.tcp");
}

#[test]
fn what_is_returned_decides() {
    for (body, flags) in [
        ("return DNSAction.Nxdomain", [0x81, 0x03]),
        ("return DNSAction.Refused", [0x81, 0x05]),
        ("return DNSAction.ServFail, 'why'", [0x81, 0x02]),
        ("return DNSAction.Truncate", [0x83, 0x80]),
        (
            "dq.dh:setQR(true) dq.dh:setAA(true) return DNSAction.HeaderModify",
            [0x85, 0x00],
        ),
        (
            "dq.dh:setQR(true) dq.rcode = DNSRCode.NOTIMP return DNSAction.None",
            [0x81, 0x04],
        ),
        // RA is RD then.
        (
            "dq.dh:setQR(true) dq.dh:setTC(true) return DNSAction.HeaderModify",
            [0x83, 0x80],
        ),
    ] {
        assert_eq!(answer_by(body)[2..4], flags, "{body}");
    }
    let asked = query("www.example.", qtype::A);
    for (returned, reply) in [
        ("DNSAction.Drop", Reply::Drop(DropReason::Rule)),
        // No server is there.
        ("DNSAction.Allow", Reply::Drop(DropReason::NoServer)),
        ("DNSAction.None", Reply::Drop(DropReason::Acl)),
        ("DNSAction.NoOp", Reply::Drop(DropReason::Acl)),
        ("DNSAction.Pool, 'other'", Reply::Drop(DropReason::NoServer)),
        ("DNSAction.Pool", Reply::Drop(DropReason::NoServer)),
        ("DNSAction.NoRecurse", Reply::Drop(DropReason::NoServer)),
        ("DNSAction.Spoof, ''", Reply::Drop(DropReason::NoServer)),
        (
            "DNSAction.Spoof, '2001:db8::1'",
            Reply::Drop(DropReason::NoServer),
        ),
    ] {
        let mut scene = scene(&format!(
            "addAction(AllRule(), LuaAction(function() return {returned} end)) addAction(AllRule(), DropAction())"
        ));
        let reply = match reply {
            Reply::Drop(DropReason::Acl) => Reply::Drop(DropReason::Rule),
            other => other,
        };
        assert_eq!(scene.ask(&asked), reply, "{returned}");
        assert_eq!(errors(&scene), 0, "{returned}");
    }
}

#[test]
fn answers_are_spoofed() {
    let address = (qtype::A, 60, vec![192, 0, 2, 1]);
    let other = (qtype::A, 60, vec![192, 0, 2, 2]);
    let alias = (qtype::CNAME, 60, b"\x01a\x07example\x00".to_vec());
    for (body, expected) in [
        ("return DNSAction.Spoof, '192.0.2.1'", vec![address.clone()]),
        (
            "return DNSAction.Spoof, '192.0.2.1, 2001:db8::1 192.0.2.2'",
            vec![address.clone(), other.clone()],
        ),
        (
            "return DNSAction.Spoof, tonumber('c0000201', 16)",
            vec![address.clone()],
        ),
        (
            "return DNSAction.Spoof, '192.0.2.1:53'",
            vec![address.clone()],
        ),
        ("return DNSAction.Spoof, 'a.example'", vec![alias]),
        (
            r"return DNSAction.SpoofRaw, '\192\0\2\1'",
            vec![address.clone()],
        ),
        (
            "dq:spoof(newCA('192.0.2.1')) return DNSAction.HeaderModify",
            vec![address.clone()],
        ),
        (
            "dq:spoof({newCA('192.0.2.1'), newCA('192.0.2.2')}) return DNSAction.Allow",
            vec![address.clone(), other.clone()],
        ),
        // A variable that was never set.
        (
            "dq:spoof({unset, newCA('192.0.2.2')}) return DNSAction.Allow",
            vec![other.clone()],
        ),
        (
            r"dq:spoof({'\192\0\2\1', '\192\0\2\2'}) return DNSAction.None",
            vec![address, other],
        ),
    ] {
        let answer = answer_by(body);
        assert_eq!(answer[2] & 0x80, 0x80, "{body}");
        assert_eq!(records(&answer), expected, "{body}");
    }
}

/// No record is of type ANY.
#[test]
fn raw_data_for_any_have_a_type_of_their_own() {
    let mut scene = scene(
        r"addAction(AllRule(), LuaAction(function(dq) dq:spoof('\7rfc8482\0', DNSQType.HINFO) return DNSAction.Allow end))",
    );
    let answer = answer(&mut scene, &query("www.example.", qtype::ANY));
    let data = b"\x07rfc8482\x00".to_vec();
    assert_eq!(records(&answer), [(qtype::HINFO, 60, data)]);
}

/// The manual's form, a table, and the one before, by position.
#[test]
fn service_bindings_are_made_either_way() {
    let made = |parameters: &str| {
        let mut scene = scene(&format!(
            "addAction(AllRule(), SpoofSVCAction({{newSVCRecordParameters({parameters})}}))"
        ));
        records(&answer(&mut scene, &query("www.example.", qtype::HTTPS)))
    };
    let by_position = made(
        "1, 'dot.example.', {3, 7, 1}, {'dot'}, true, 853, 'e', {'192.0.2.1', '192.0.2.2'}, {'2001:db8::1'}, {['7']='/q'}",
    );
    // The binding, and its hints.
    assert_eq!(by_position.len(), 4);
    let by_name = made(
        "1, 'dot.example.', {mandatory={'port', 'key7', 1}, alpn={'dot'}, noDefaultAlpn=true, port=853, ipv4hint={'192.0.2.1', newCA('192.0.2.2')}, ipv6hint={'2001:db8::1'}, ech='e', key7='/q'}",
    );
    assert_eq!(by_name, by_position);
    assert_eq!(made("1, '.'"), made("1, '.', {}, {}"));
    assert_eq!(made("1, '.', {}"), made("1, '.', {}, {}"));
}

#[test]
fn a_negative_answer_has_its_soa() {
    let answer = answer_by(
        "dq:setNegativeAndAdditionalSOA(true, 'example', 300, 'ns.example', 'mail.example', 1, 2, 3, 4, 5) return DNSAction.Allow",
    );
    assert_eq!(answer[2..4], [0x81, 0x83]);
    let [(rtype, ttl, data)] = &records(&answer)[..] else {
        panic!("one record")
    };
    assert_eq!((*rtype, *ttl), (qtype::SOA, 300));
    assert!(data.ends_with(&[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5]));
}

#[test]
fn records_of_functions_are_of_the_class_that_is_asked_for() {
    for (asked, expected) in [(class::CHAOS, class::CHAOS), (class::ANY, class::IN)] {
        for body in [
            r"dq:spoof('\1x')",
            "dq:setNegativeAndAdditionalSOA(false, '.', 60, '.', '.', 1, 2, 3, 4, 5)",
        ] {
            let mut scene = scene(&format!(
                "addAction(AllRule(), LuaAction(function(dq) {body} return DNSAction.Allow end))"
            ));
            let mut message = query("version.bind.", qtype::TXT);
            let end = message.len();
            message[end - 2..].copy_from_slice(&asked.to_be_bytes());
            let answer = answer(&mut scene, &message);
            let header = Header::read(&answer).unwrap();
            let mut records = Records::new(&answer, end as u16, &header);
            let found = records.next().unwrap().unwrap();
            assert_eq!((errors(&scene), found.class), (0, expected), "{body}");
        }
    }
}

/// The manual, "EDNS on Self-generated answers", says so of "returning a response from Lua" too.
#[test]
fn a_query_that_a_function_makes_an_answer_has_our_opt_record_alone() {
    let answer_after = |rules: &str, message: &[u8]| {
        let mut scene = scene(&format!(
            "{rules} addAction(AllRule(), LuaAction(function(dq) dq.dh:setQR(true) dq.rcode = DNSRCode.REFUSED return DNSAction.HeaderModify end))"
        ));
        let answer = answer(&mut scene, message);
        assert_eq!(errors(&scene), 0, "{rules}");
        assert_eq!(answer[2..4], [0x81, 0x05], "{rules}");
        answer
    };
    let plain = query("www.example.", qtype::A);
    let mut message = query_with_edns("www.example.", qtype::A, Some(4_096));
    let opt = plain.len();
    // DO, an option, and what trails.
    (message[opt + 7], message[opt + 10]) = (0x80, 6);
    message.extend_from_slice(b"\xfd\xe9\x00\x02abtail");
    let ours = b"\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x00";
    for rules in [
        "",
        "addAction(AllRule(), SetNoRecurseAction())",
        "addAction(AllRule(), LuaAction(function(dq) dq.dh:setCD(true) return DNSAction.None end))",
    ] {
        let answer = answer_after(rules, &message);
        assert_eq!(answer[4..12], [0, 1, 0, 0, 0, 0, 0, 1], "{rules}");
        assert_eq!(answer[12..opt], plain[12..], "{rules}");
        assert_eq!(answer[opt..], ours[..], "{rules}");
    }
    for (rules, message) in [
        ("setAddEDNSToSelfGeneratedResponses(false)", &message),
        (
            "addAction(AllRule(), SetEDNSOptionAction(65001, 'ab'))",
            &plain,
        ),
    ] {
        assert_eq!(answer_after(rules, message)[4..], plain[4..], "{rules}");
    }
}

#[test]
fn what_a_function_composes_is_sent_as_it_is() {
    let composed = r"dq:setContent('\18\52\129\128\0\1\0\1\0\0\0\0\1a\0\0\16\0\1\192\12\0\16\0\1\0\0\0\60\0\2\1x') return DNSAction.HeaderModify";
    let answer = answer_by(composed);
    assert_eq!(records(&answer), [(qtype::TXT, 60, b"\x01x".to_vec())]);
    let answer =
        answer_by("dq:spoof(newCA('192.0.2.1')) dq.dh:setAA(true) return DNSAction.HeaderModify");
    assert_eq!(answer[2..4], [0x85, 0x80]);
    assert_eq!(records(&answer), [(qtype::A, 60, vec![192, 0, 2, 1])]);
}

/// Its question need not be as long as the client's.
#[test]
fn what_a_function_makes_of_a_response_is_sent_as_it_is() {
    let content = r"'\18\52\129\128\0\1\0\1\0\0\0\0\1a\0\0\16\0\1\192\12\0\16\0\1\0\0\0\60\0\2\1x'";
    let mut scene = scene(&format!(
        "content = {content} addResponseAction(AllRule(), LuaResponseAction(function(dr) dr:setContent(content) return DNSResponseAction.Allow end))"
    ));
    let answer = relayed(&mut scene, &query("www.example.", qtype::A));
    assert_eq!(records(&answer), [(qtype::TXT, 60, b"\x01x".to_vec())]);
    assert_eq!(answer[12..19], *b"\x01a\x00\x00\x10\x00\x01");
    // Of the same question, the case is the client's.
    let asked = query("A.", qtype::TXT);
    assert_eq!(relayed(&mut scene, &asked)[12..asked.len()], asked[12..]);
    assert_eq!(errors(&scene), 0);
}

#[test]
fn a_response_action_is_told_what_the_cache_had_past_its_time() {
    let mut scene = scene(
        "newServer({address='192.0.2.2', healthCheckMode='down'})
         getPool(''):setCache(newPacketCache(100)) setStaleCacheEntriesTTL(100) told = ''
         addCacheHitResponseAction(AllRule(), LuaResponseAction(function(dr)
           told = told .. tostring(dr:getStaleCacheHit()) .. ' '
           return DNSResponseAction.None
         end))",
    );
    let asked = query("www.example.", qtype::A);
    relayed(&mut scene, &asked);
    for seconds in [10, 310] {
        let stored = scene.now;
        scene.now = Now(stored.0 + seconds * 1_000_000_000);
        answer(&mut scene, &asked);
        scene.now = stored;
    }
    assert_eq!(errors(&scene), 0);
    check(&scene, "assert(told == 'false true ', told)");
}

#[test]
fn a_spoofed_answer_is_for_the_client_as_it_asked() {
    let answer = answer_by(
        "dq:setEDNSOption(65001, 'ab') dq.dh:setRD(false) dq.dh:setCD(true) dq:spoof(newCA('192.0.2.1')) return DNSAction.Allow",
    );
    assert_eq!(answer[2..4], [0x81, 0x80]);
    assert_eq!(records(&answer), [(qtype::A, 60, vec![192, 0, 2, 1])]);
}

#[test]
fn extended_errors_are_for_clients_that_know_edns() {
    let refusing = "addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))";
    for text in [
        format!(
            "addAction(AllRule(), LuaAction(function(dq) dq:setExtendedDNSError(15, 'no') return DNSAction.None end)) {refusing}"
        ),
        format!(
            "addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr) dr:setExtendedDNSError(15, 'no') return DNSResponseAction.None end)) {refusing}"
        ),
    ] {
        let mut scene = scene(&text);
        let plain = query("www.example.", qtype::A);
        assert_eq!(answer(&mut scene, &plain).len(), plain.len(), "{text}");
        let edns = query_with_edns("www.example.", qtype::A, Some(1_232));
        assert_eq!(answer(&mut scene, &edns).len(), edns.len() + 8, "{text}");
        assert_eq!(errors(&scene), 0, "{text}");
    }
}

/// dnsdist takes it, and nothing comes of it.
#[test]
fn what_came_cannot_be_set_and_that_is_said_once() {
    let set = "o.qname = newDNSName('a.test') o.qtype = 28 o.qclass = 3 o.tcp = true o.opcode = 2 \
               o.remoteaddr = newCA('192.0.2.9') o.localaddr = 0 o.len = '' \
               assert(o.qname:toString() == 'www.example.' and o.qtype == 1 and not o.tcp)";
    let mut scene = scene(&format!(
        "local function set(o) {set} end\n\
         addAction(AllRule(), LuaAction(function(dq)\ndq.qname = 1 set(dq) return DNSAction.None end)) \
         addAction(AllRule(), RCodeAction(DNSRCode.REFUSED)) \
         addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr)\n\
           dr.tcp = true return DNSResponseAction.None end))"
    ));
    for _ in 0..2 {
        let answer = answer(&mut scene, &query("www.example.", qtype::A));
        assert_eq!(u16::from(answer[3] & 15), rcode::REFUSED);
    }
    assert_eq!(errors(&scene), 0);
    let expected = "test.conf:1: dq.len, test.conf:1: dq.localaddr, test.conf:1: dq.opcode, test.conf:1: dq.qclass, \
                    test.conf:3: dq.qname, test.conf:1: dq.qtype, test.conf:1: dq.remoteaddr, test.conf:1: dq.tcp, \
                    test.conf:4: dr.tcp";
    assert_eq!(lua(&scene).with(super::fixed::told).join(", "), expected);
}

#[test]
fn what_is_no_attribute_of_a_query_or_only_ours_is_an_error() {
    for attribute in ["size", "nosuch"] {
        let mut scene = scene(&format!(
            "addAction(AllRule(), LuaAction(function(dq) dq.{attribute} = 1 return DNSAction.Refused end))"
        ));
        let answer = answer(&mut scene, &query("www.example.", qtype::A));
        assert_eq!(u16::from(answer[3] & 15), rcode::SERVFAIL);
        assert_eq!(errors(&scene), 1, "{attribute}");
    }
}

#[test]
fn later_rules_see_what_a_function_changed() {
    for (change, rule) in [
        ("dq.dh:setRD(false)", "NotRule(RDRule())"),
        ("dq:setTag('k', 'v')", "TagRule('k', 'v')"),
        (
            "dq:setTagArray({k='v'})",
            "LuaRule(function(dq) return dq:getTag('k') == 'v' and dq:getTagArray().k == 'v' end)",
        ),
        (
            "dq.skipCache = true",
            "LuaRule(function(dq) return dq.skipCache end)",
        ),
        (
            "dq.pool = 'p'",
            "LuaRule(function(dq) return dq.pool == 'p' end)",
        ),
        (
            "dq.tempFailureTTL = 7",
            "LuaRule(function(dq) return dq.tempFailureTTL == 7 end)",
        ),
        (
            "dq.useECS = false dq.ecsOverride = true dq.ecsPrefixLength = 30",
            "LuaRule(function(dq) return not dq.useECS and dq.ecsOverride and dq.ecsPrefixLength == 30 end)",
        ),
        (
            "assert(dq:changeName(newDNSName('other.test')))",
            "QNameRule('other.test')",
        ),
        ("assert(dq:setTrailingData('tail'))", "TrailingDataRule()"),
        (
            "dq:setEDNSOption(EDNSOptionCode.COOKIE, 'abcdefgh')",
            "EDNSOptionRule(EDNSOptionCode.COOKIE)",
        ),
        (
            r"dq:setContent('\0\0\1\0\0\1\0\0\0\0\0\0\0\0\16\0\1')",
            "QTypeRule(DNSQType.TXT)",
        ),
    ] {
        let mut scene = scene(&format!(
            "addAction(AllRule(), LuaAction(function(dq) {change} return DNSAction.None end)) addAction({rule}, RCodeAction(DNSRCode.REFUSED))"
        ));
        let answer = answer(&mut scene, &query("www.example.", qtype::A));
        assert_eq!(
            (answer[3] & 15, &answer[..2]),
            (5, &[0x12, 0x34][..]),
            "{change}"
        );
        assert_eq!(errors(&scene), 0, "{change}");
    }
}

#[test]
fn what_was_said_of_the_clients_network_is_read() {
    let mut scene = scene(
        r#"addACL("::/0") setECSOverride(true) setECSSourcePrefixV4(20) setECSSourcePrefixV6(40)
           addAction("rules.", SetDisableECSAction()) addAction("rules.", SetECSOverrideAction(false))
           addAction("rules.", SetECSPrefixLengthAction(21, 41))
           addAction(AllRule(), LuaAction(function(dq)
             local ruled, v4 = dq.qname == newDNSName("rules."), dq.remoteaddr:isIPv4()
             assert(dq.useECS ~= ruled and dq.ecsOverride ~= ruled)
             assert(dq.ecsPrefixLength == (v4 and 20 or 40) + (ruled and 1 or 0))
             dq.useECS = true assert(dq.useECS)
             return DNSAction.Refused
           end))"#,
    );
    for client in ["192.0.2.9:4242", "[2001:db8::9]:4242"] {
        scene.client = client.parse().unwrap();
        for name in ["rules.", "settings."] {
            assert_eq!(answer(&mut scene, &query(name, qtype::A))[3] & 15, 5);
        }
    }
    assert_eq!(errors(&scene), 0);
}

#[test]
fn what_fails_is_servfail_and_no_match() {
    for body in [
        "error('no')",
        "return nil",
        "return 'Drop'",
        "return 99",
        "return DNSAction.Spoof",
        "dq.nothing.more = 1",
        "dq:setContent('short')",
    ] {
        let mut scene = scene(&format!(
            "addAction(LuaRule(function(dq) {body} end), DropAction()) addAction(AllRule(), LuaAction(function(dq) {body} end))"
        ));
        let answer = answer(&mut scene, &query("a.", qtype::A));
        assert_eq!(answer[3] & 15, 2, "{body}");
        assert!(errors(&scene) >= 1, "{body}");
        assert_eq!(scene.counted(Counter::RuleServfail), 1);
    }
}

/// As in dnsdist: what Lua takes for true may be a slip of the pen.
#[test]
fn what_is_true_or_false_is_nothing_else() {
    for body in [
        "dq.dh:setRD()",
        "dq.dh:setCD(nil)",
        "dq.dh:setTC(1)",
        "dq:getHeader():setAA('x')",
        "dq.skipCache = 1",
        "dq.useECS = nil",
        "dq.ecsOverride = 'x'",
        "dq:setExtendedDNSError(15, '', 1)",
    ] {
        let mut scene = scene(&format!(
            "addAction(AllRule(), LuaAction(function(dq) {body} return DNSAction.Refused end))"
        ));
        let answer = answer(&mut scene, &query("a.", qtype::A));
        assert_eq!((answer[3] & 15, errors(&scene)), (2, 1), "{body}");
    }
}

#[test]
fn a_function_goes_on_after_an_error_that_it_caught() {
    let answer = answer_by(
        "local ok, why = pcall(newDNSName, 'a..b') errlog('no name: ' .. why) return DNSAction.Refused",
    );
    assert_eq!(answer[3] & 15, 5);
}

#[test]
fn a_ttl_of_which_nothing_is_said_stays() {
    let mut scene = scene(
        r"addAction(AllRule(), LuaAction(function(dq) dq:spoof({'\192\0\2\1', '\192\0\2\2'}) return DNSAction.Allow end))
          addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr)
            local calls = 0
            dr:editTTLs(function() calls = calls + 1 if calls == 2 then return 7 end end)
            return DNSResponseAction.None
          end))",
    );
    let answer = answer(&mut scene, &query("www.example.", qtype::A));
    let ttls: Vec<u32> = records(&answer).iter().map(|record| record.1).collect();
    assert_eq!((ttls, errors(&scene)), (vec![60, 7], 0));
}

/// SpoofPacketAction sends what it was given: its question may be another one than the client's, or none.
#[test]
fn functions_look_at_a_packet_whatever_question_it_has() {
    for (packet, name) in [
        (r"\0\0\129\131\0\0\0\0\0\0\0\0", "."),
        (r"\0\0\1\3\0\1\0\0\0\0\0\0\1a\0\0\16\0\1", "a."),
    ] {
        let mut scene = scene(&format!(
            "packet = '{packet}' name = newDNSName('{name}')
             addAction(AllRule(), SpoofPacketAction(packet, #packet))
             addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr)
               assert(dr.qname == name, dr.qname:toString())
               dr:changeName(name)
               return DNSResponseAction.None
             end))"
        ));
        let answer = answer(&mut scene, &query("www.example.", qtype::A));
        assert_eq!((errors(&scene), answer[3] & 15), (0, 3), "{name}");
        assert_eq!(answer[2] & 0x80, 0x80, "a packet that is sent is an answer");
    }
}

/// A packet without a question that one function makes a query, and the next one an answer.
#[test]
fn an_answer_without_a_question_stays_one() {
    let turned = |flag: bool| {
        format!(
            "addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr) dr.dh:setQR({flag}) return DNSResponseAction.None end))"
        )
    };
    let mut scene = scene(&format!(
        r"addAction(AllRule(), SpoofPacketAction('\0\0\129\131\0\0\0\0\0\0\0\0', 12)) {} {}",
        turned(false),
        turned(true),
    ));
    let answer = answer(&mut scene, &query("www.example.", qtype::A));
    assert_eq!(errors(&scene), 0);
    assert_eq!(answer, b"\x12\x34\x81\x83\0\0\0\0\0\0\0\0");
}

#[test]
fn a_number_that_is_no_action_is_servfail() {
    for returned in ["0.5", "0/0", "-1"] {
        let mut scene = scene(&format!(
            "addAction(AllRule(), LuaAction(function() return {returned} end))"
        ));
        let answer = answer(&mut scene, &query("a.", qtype::A));
        assert_eq!((answer[3] & 15, errors(&scene)), (2, 1), "{returned}");
    }
}

#[test]
fn a_function_that_loops_is_stopped_and_rests() {
    let mut scene = scene(
        "addAction(QNameRule('loop.'), LuaAction(function(dq) while true do end end)) addAction(AllRule(), LuaAction(function(dq) return DNSAction.Refused end))",
    );
    scene.now = Now::read();
    let loops = query("loop.", qtype::A);
    assert_eq!(answer(&mut scene, &loops)[3] & 15, 2);
    assert_eq!(answer(&mut scene, &loops)[3] & 15, 2);
    assert_eq!(answer(&mut scene, &query("a.", qtype::A))[3] & 15, 5);
    let counts = &lua(&scene).counts;
    let counted = [
        &counts.calls,
        &counts.errors,
        &counts.stopped,
        &counts.skipped,
    ];
    // The scene's time stands still: the second call comes within the rest.
    assert_eq!(counted.map(|count| count.load(Relaxed)), [2, 1, 1, 1]);
}

#[test]
fn an_object_is_dead_after_its_call() {
    let mut scene = scene(
        r#"addAction(AllRule(), LuaAction(function(dq) kept, header = dq, dq.dh return DNSAction.Refused end))
           addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr)
             assert(not pcall(function() return kept.qname end))
             answered = dr
             return DNSResponseAction.None
           end))"#,
    );
    answer(&mut scene, &query("a.", qtype::A));
    assert_eq!(errors(&scene), 0);
    for use_of_it in [
        "kept.qname",
        "header:getRD()",
        "answered.rcode",
        "kept:getTag('k')",
    ] {
        let text = format!(
            "local ok, why = pcall(function() return {use_of_it} end) assert(not ok and tostring(why):find('belongs to a call that has ended'), tostring(why))"
        );
        check(&scene, &text);
    }
}

/// RFC 6891 §6.1.3; the lower bits of 16 alone would say NOERROR.
#[test]
fn a_response_code_above_15_stands_in_the_opt_record() {
    let code_of = |rules: &str, message: &[u8]| {
        let mut scene = scene(rules);
        let answer = answer(&mut scene, message);
        assert_eq!(errors(&scene), 0, "{rules}");
        parse_response(&answer).unwrap().rcode
    };
    let edns = query_with_edns("a.", qtype::A, Some(4_096));
    let plain = query("a.", qtype::A);
    for rules in [
        "addAction(AllRule(), RCodeAction(23))",
        "addAction(AllRule(), LuaAction(function(dq) dq.rcode = 23 dq.dh:setQR(true) return DNSAction.HeaderModify end))",
        "addAction(AllRule(), LuaAction(function(dq) dq.dh:setQR(true) dq.rcode = 23 return DNSAction.HeaderModify end))",
        r"addAction(AllRule(), LuaAction(function(dq) dq:spoof({'\192\0\2\1'}) dq.rcode = 23 return DNSAction.Allow end))",
        "addAction(AllRule(), RCodeAction(0)) addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr) dr.rcode = 23 return DNSResponseAction.None end))",
    ] {
        assert_eq!(code_of(rules, &edns), 23, "{rules}");
        assert_eq!(code_of(rules, &plain), 2, "{rules}");
    }
    let again = "addAction(AllRule(), RCodeAction(23)) addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr) dr.rcode = 5 return DNSResponseAction.None end))";
    assert_eq!(
        code_of(again, &edns),
        5,
        "nothing of the former one is left"
    );
}

#[test]
fn functions_share_what_the_file_holds() {
    let mut scene = scene(
        "local count = 0 addAction(AllRule(), LuaAction(function() count = count + 1 return DNSAction.Refused end)) function seen() return count end",
    );
    for _ in 0..3 {
        answer(&mut scene, &query("a.", qtype::A));
    }
    check(&scene, "assert(seen() == 3)");
}

#[test]
fn functions_on_responses() {
    let spoofs = r"addAction(AllRule(), LuaAction(function(dq) dq:setTag('k', 'v') dq:spoof({'\192\0\2\1', '\192\0\2\2'}) return DNSAction.Allow end)) ";
    let after = |body: &str| {
        let mut scene = scene(&format!(
            "{spoofs} addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr) {body} end))"
        ));
        let reply = scene.ask(&query("www.example.", qtype::A));
        assert_eq!(errors(&scene), 0, "{body}");
        reply
    };
    let answer_after = |body: &str| match after(body) {
        Reply::Answer(answer) => answer,
        other => panic!("{other:?}"),
    };
    let ttls =
        |answer: &[u8]| -> Vec<u32> { records(answer).iter().map(|record| record.1).collect() };
    let edited = answer_after(
        r#"local calls = 0
           dr:editTTLs(function(section, qclass, qtype, ttl)
             assert(section == DNSSection.Answer and qclass == DNSClass.IN and qtype == DNSQType.A and ttl == 60)
             assert(dr.qtype == DNSQType.A)
             calls = calls + 1
             return calls == 1 and 7 or 0
           end)
           assert(calls == 2 and dr:getTag("k") == "v" and dr:getSelectedBackend() == nil)
           assert(dr.rcode == 0 and dr.dh:getRA() and not dr:getStaleCacheHit() and dr:getRestartCount() == 0)
           return DNSResponseAction.None"#,
    );
    assert_eq!(ttls(&edited), [7, 60]);
    // Its TTLs are elsewhere then.
    let moved = answer_after(
        r#"local ok, why = pcall(function()
             dr:editTTLs(function() dr:changeName(newDNSName("b.")) return 7 end)
           end)
           assert(not ok and tostring(why):find("has changed the response"), tostring(why))
           return DNSResponseAction.Allow"#,
    );
    assert_eq!(ttls(&moved), [60, 60]);
    // Of the other table, and found in many files.
    let passed = answer_after("return DNSAction.None");
    assert_eq!((passed[3] & 15, ttls(&passed)), (0, vec![60, 60]));
    let failed = answer_after("return DNSResponseAction.ServFail");
    assert_eq!((failed[3] & 15, ttls(&failed).len()), (2, 2));
    assert_eq!(
        after("return DNSResponseAction.Drop"),
        Reply::Drop(DropReason::ResponseRule)
    );
    let renamed =
        answer_after("assert(dr:changeName(newDNSName('b.'))) return DNSResponseAction.Allow");
    assert_eq!(renamed[12..15], *b"\x01b\x00");
    assert_eq!(ttls(&renamed), [60, 60]);
    let cut = answer_after("return DNSResponseAction.Truncate");
    assert_eq!((cut[2] & 2, records(&cut).len()), (2, 0));
    let mut over_tcp = scene(&format!(
        "{spoofs} addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function() return DNSResponseAction.Truncate end))"
    ));
    over_tcp.protocol = Protocol::Tcp;
    let whole = answer(&mut over_tcp, &query("www.example.", qtype::A));
    assert_eq!((whole[2] & 2, records(&whole).len()), (0, 2));
    let mut erring = scene(&format!(
        "{spoofs} addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr) assert(dr:restart() == false) end))"
    ));
    // It returns no DNSResponseAction.
    assert_eq!(answer(&mut erring, &query("a.", qtype::A))[3] & 15, 2);
    assert_eq!(errors(&erring), 1);
}

/// The manual's DNSResponse has what its DNSQuestion has.
#[test]
fn a_response_has_what_a_query_has() {
    let mut scene = scene(
        r#"addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))
           addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr)
             assert(dr.tempFailureTTL == nil and dr.useECS and not dr.ecsOverride and dr.ecsPrefixLength == 24)
             dr.tempFailureTTL = 7 assert(dr.tempFailureTTL == 7)
             assert(dr:getHTTPPath() == "" and next(dr:getHTTPHeaders()) == nil)
             assert(dr:getServerNameIndication() == "" and dr:setRestartable() == false)
             assert(dr:getTraceID() == nil and dr:getSpanID() == nil)
             dr:spoof(newCA("192.0.2.1"))
             return DNSResponseAction.Allow
           end))"#,
    );
    let answer = answer(&mut scene, &query("www.example.", qtype::A));
    assert_eq!(errors(&scene), 0);
    assert_eq!(answer[2..4], [0x81, 0x80]);
    assert_eq!(records(&answer), [(qtype::A, 60, vec![192, 0, 2, 1])]);
}

/// One record fills a message to its last octet; with a longer name it would be longer than a message can be.
#[test]
fn f20_a_response_without_room_for_its_name_is_servfail() {
    let mut scene = scene(
        r"addAction(AllRule(), SpoofAction('192.0.2.1'))
          addSelfAnsweredResponseAction(AllRule(), LuaResponseAction(function(dr)
            local counts, question = '\0\1\0\1\0\0\0\0', dr:getContent():sub(13, 29)
            local text = string.rep('\250' .. string.rep('x', 250), 260) .. '\233' .. string.rep('y', 233)
            dr:setContent(dr:getContent():sub(1, 4) .. counts .. question .. '\192\12\0\16\0\1\0\0\0\60\255\214' .. text)
            assert(dr.len == 65535)
            assert(dr:setTrailingData('tail') == false and dr.len == 65535)
            local label = string.rep('n', 63) .. '.'
            local name = newDNSName(label .. label .. label)
            assert(dr:changeName(name) == false)
            assert(dr.qname == name and dr.rcode == DNSRCode.SERVFAIL)
            return DNSResponseAction.Allow
          end))",
    );
    scene.protocol = Protocol::Tcp;
    let answer = answer(&mut scene, &query("www.example.", qtype::A));
    assert_eq!(errors(&scene), 0);
    let long_name = 3 * 64 + 1;
    assert_eq!((answer[3] & 15, answer.len()), (2, 12 + long_name + 4));
    assert!(records(&answer).is_empty());
}

#[test]
fn policies_return_a_place_or_a_server() {
    for (body, expected) in [
        ("return 2", Some(1)),
        ("return servers[2]", Some(1)),
        ("return nil", None),
        ("return 3", None),
        ("return 'x'", None),
        (
            "for at, server in ipairs(servers) do if server.name == 'b' and server:isUp() and server.weight == 7 and server.order == 1 and server:getOutstanding() == 0 then return at end end",
            Some(1),
        ),
        (
            "return dq.qname == newDNSName('www.example') and 1 or 2",
            Some(0),
        ),
        ("return -2 ^ 63", None),
        // The table is the call's own.
        ("table.remove(servers, 1) return servers[1]", Some(1)),
        ("return leastOutstanding.policy({servers[2]}, dq)", Some(1)),
        ("return roundrobin.policy(servers, dq)", Some(0)),
    ] {
        for set in [
            "setServerPolicyLua('mine', choose)",
            "setPoolServerPolicyLua('mine', choose, '')",
            "setServerPolicy(newServerPolicy('mine', choose))",
            "setPoolServerPolicy(newServerPolicy('mine', choose), '')",
        ] {
            let mut scene = scene(&format!(
                "newServer({{address='192.0.2.2', name='a', healthCheckMode='up'}}) newServer({{address='192.0.2.3', name='b', weight=7, order=1, healthCheckMode='up'}}) function choose(servers, dq) {body} end {set}"
            ));
            let config = Arc::clone(&scene.config);
            let pool = config.pool(crate::config::pools::PoolId::DEFAULT).unwrap();
            let chooser = pool.chooser.as_ref().unwrap();
            assert_eq!(chooser.name(), "mine");
            let chosen = scene.examine(&query("www.example.", qtype::A), |query, env| {
                [(); 2].map(|()| {
                    let chosen = chooser.choose(pool, query, env)?;
                    let mut servers = pool.servers.iter();
                    servers.position(|server| Arc::ptr_eq(server, chosen))
                })
            });
            assert_eq!(chosen[0], expected, "{set} {body}");
            if !body.contains("roundrobin") {
                assert_eq!(chosen[1], expected, "{set} {body}");
            }
        }
    }
}

/// The manual's example: `return leastOutstanding.policy(getPoolServers("numbered"), dq)`.
#[test]
fn a_policy_may_return_a_server_of_another_pool() {
    for body in [
        "return leastOutstanding.policy(getPoolServers('numbered'), dq)",
        "return getPoolServers('numbered')[1]",
    ] {
        let mut scene = scene(&format!(
            "newServer({{address='192.0.2.2', healthCheckMode='up'}}) newServer({{address='192.0.2.3', pool='numbered', healthCheckMode='up'}}) setServerPolicyLua('mine', function(servers, dq) {body} end)"
        ));
        let number = scene.config.servers[1].number;
        let picked = scene.examine(&query("www.example.", qtype::A), |query, env| {
            crate::pipeline::route::pick(query, env).map(|picked| picked.server.number)
        });
        assert_eq!(picked, Some(number), "{body}");
        assert_eq!(errors(&scene), 0, "{body}");
    }
}

#[test]
fn a_configuration_without_functions_never_takes_the_lock() {
    let mut scene =
        scene("addAction('a', SetTagAction('k', 'v')) addAction(TagRule('k'), RCodeAction(5))");
    let before = lua(&scene).counts.locks.load(Relaxed);
    for name in ["a.", "b."] {
        scene.ask(&query(name, qtype::A));
    }
    assert_eq!(lua(&scene).counts.locks.load(Relaxed), before);
}

#[test]
fn values_of_the_proxy_protocol_are_read_and_written() {
    let mut scene = scene(
        r#"addAction(AllRule(), SetProxyProtocolValuesAction({[1]="a", [2]="b\0c"}))
           addAction(AllRule(), LuaAction(function(dq)
             local values = dq:getProxyProtocolValues()
             assert(values[1] == "a" and values[2] == "b\0c" and values[3] == nil)
             dq:addProxyProtocolValue(3, "d")
             assert(dq:getProxyProtocolValues()[3] == "d")
             dq:setProxyProtocolValues({[4]="e"})
             assert(dq:getProxyProtocolValues()[1] == nil)
             assert(not pcall(dq.addProxyProtocolValue, dq, 256, "d"))
             assert(not pcall(dq.addProxyProtocolValue, dq, 1, string.rep("x", 65536)))
             return DNSAction.None, ""
           end))
           addAction(NotRule(ProxyProtocolValueRule(4, "e")), DropAction())
           addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))"#,
    );
    answer(&mut scene, &query("a.", qtype::A));
    assert_eq!(errors(&scene), 0);
}
