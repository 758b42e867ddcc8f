//! What functions suspend, and what others make of it.

use super::*;
use crate::config::pools::PoolId;
use crate::pipeline::carried::Carried;
use crate::pipeline::{HandOverReason, Verdict, restart, run, suspended};

const SUSPEND: &str = "suspended = dq:suspend(1, 2, 1000) return DNSAction.Allow";

fn suspending(body: &str) -> Scene {
    let text = format!("addAction(AllRule(), LuaAction(function(dq) {body} end))");
    scene(&text)
}

/// What a query that is suspended is handed over with.
fn handed_over(scene: &mut Scene, asked: &[u8]) -> Carried {
    scene.with_arrival(asked, |arrival, env| match run(arrival, env) {
        Verdict::HandOver(hand_over) => {
            assert_eq!(hand_over.reason, HandOverReason::Suspended);
            hand_over.extras.clone()
        }
        other => panic!("{other:?}"),
    })
}

#[test]
fn what_is_suspended_is_handed_over_and_found_by_its_key() {
    let mut scene = suspending(SUSPEND);
    let extras = handed_over(&mut scene, &query("wWw.example.", qtype::A));
    check(
        &scene,
        r#"assert(suspended and getAsynchronousObject(1, 3) == nil)
           local object = getAsynchronousObject(1, 2)
           local dq = object:getDQ()
           assert(dq.qname:toString() == "wWw.example." and dq.dh:getID() == 0x1234)
           assert(not dq:suspend(4, 4, 1) and not pcall(object.getDR, object))
           dq.dh:setCD(true) dq:setTag("key", "value") dq.pool = "other"
           assert(object:resume() and not object:resume() and not object:drop())
           assert(not pcall(object.getDQ, object) and getAsynchronousObject(1, 2) == nil)"#,
    );
    let ticket = suspended::ticket(&extras).unwrap();
    let suspended = ticket.take().unwrap();
    assert_eq!(suspended.message[3] & 0x10, 0x10, "CD");
    let tags = &suspended.extras.as_ref().unwrap().tags;
    assert_eq!(tags[&b"key"[..]], Box::from(*b"value"));
    assert_ne!(suspended.found.pool, PoolId::DEFAULT);
    assert_eq!(lua(&scene).holder.count(), 1);
    drop(suspended);
    assert_eq!(lua(&scene).holder.count(), 0);
}

/// Where a verdict is lost, what it was about is, too.
#[test]
fn what_nobody_waits_for_is_gone() {
    let mut scene = suspending(SUSPEND);
    for _ in 0..3 {
        let reply = scene.ask(&query("a.", qtype::A));
        assert_eq!(reply, Reply::HandOver(HandOverReason::Suspended));
        check(
            &scene,
            "assert(suspended and getAsynchronousObject(1, 2) == nil)",
        );
    }
    assert_eq!(lua(&scene).holder.count(), 0);
}

#[test]
fn a_function_that_fails_has_suspended_nothing() {
    for body in [
        "assert(dq:suspend(1, 2, 1000)) error('no')",
        "assert(dq:suspend(1, 2, 1000)) return nil",
        "assert(dq:suspend(1, 2, 1000)) dq:setTag('a', 'b') return DNSAction.Allow",
        "dq:suspend(65536, 2, 1000) return DNSAction.Allow",
        "dq:suspend(1, -1, 1000) return DNSAction.Allow",
    ] {
        let mut scene = suspending(body);
        let answer = answer(&mut scene, &query("a.", qtype::A));
        assert_eq!((answer[3] & 15, errors(&scene)), (2, 1), "{body}");
        assert_eq!(lua(&scene).holder.count(), 0);
        check(&scene, "assert(getAsynchronousObject(1, 2) == nil)");
    }
}

#[test]
fn rules_policies_and_answers_out_of_reach_cannot_suspend() {
    let mut scene = scene(
        r#"addAction(LuaRule(function(dq) return dq:suspend(1, 2, 1000) end), DropAction())
           setServerPolicyLua("none", function(servers, dq)
             asked = true assert(not dq:suspend(1, 2, 1000)) return nil
           end)
           addTimeoutResponseAction(AllRule(), LuaResponseAction(function(dr)
             late = true assert(not dr:suspend(1, 2, 1000)) return DNSResponseAction.None
           end))"#,
    );
    let reply = scene.ask(&query("a.", qtype::A));
    assert_eq!(reply, Reply::Drop(DropReason::NoServer));
    let mut waiting = waiting(&mut scene, &query("a.", qtype::A));
    let again = scene.with_env(|env| restart::timed_out(&mut waiting, env));
    assert!(again.is_none());
    check(&scene, "assert(asked and late)");
    assert_eq!(errors(&scene), 0);
}

#[test]
fn a_response_goes_on_to_the_cache_and_its_client() {
    let mut scene = scene(
        r#"addResponseAction(AllRule(), LuaResponseAction(function(dr)
             assert(dr:suspend(1, 2, 1000)) return DNSResponseAction.Allow
           end))
           addResponseAction(AllRule(), DropResponseAction())
           getPool(""):setCache(newPacketCache(10))"#,
    );
    let asked = query("wWw.a.", qtype::A);
    let mut waiting = waiting(&mut scene, &asked);
    let mut message = answer_to(&asked, 0, &[300]);
    let length = message.len();
    message.resize(4_096, 0);
    let outcome = scene.with_env(|env| respond::response(&mut waiting, &mut message, length, env));
    assert_eq!(outcome, Err(DropReason::ResponseSuspended));
    let ticket = suspended::ticket(&waiting.extras).unwrap();
    check(
        &scene,
        r#"local object = getAsynchronousObject(1, 2)
           assert(object:getDR().rcode == 0 and object:getDQ().dh:getQR())
           object:getDR():editTTLs(function() return 7 end)
           assert(not object:getDR():restart() and object:resume())"#,
    );
    let mut resumed = ticket.take().unwrap().resume().unwrap();
    let verdict = scene.with_env(|env| format!("{:?}", suspended::go_on(&mut resumed, env)));
    assert_eq!(verdict, format!("Answer({length})"));
    let answer = resumed.query.bytes(length);
    assert_eq!(records(answer)[0].1, 7);
    assert_eq!(answer[12..asked.len()], asked[12..]);
    assert_eq!(scene.counted(Counter::Responses), 1);
    assert!(matches!(scene.ask(&asked), Reply::Answer(_)));
    assert_eq!(scene.counted(Counter::CacheHits), 1);
}

/// AsynchronousObject:setRCode.
#[test]
fn a_response_code_makes_an_answer_of_a_query() {
    let mut scene = suspending(SUSPEND);
    let asked = query_with_edns("a.", qtype::A, Some(4_096));
    let extras = handed_over(&mut scene, &asked);
    check(
        &scene,
        r#"local object = getAsynchronousObject(1, 2)
           assert(object:setRCode(DNSRCode.REFUSED, true) and object:resume())
           assert(not object:setRCode(DNSRCode.NXDOMAIN, true))"#,
    );
    let ticket = suspended::ticket(&extras).unwrap();
    let mut resumed = ticket.take().unwrap().resume().unwrap();
    let length = scene.with_env(|env| match suspended::go_on(&mut resumed, env) {
        Verdict::Answer(length) => length,
        other => panic!("{other:?}"),
    });
    let answer = resumed.query.bytes(length);
    assert_eq!(answer[2..4], [0x81, 5], "QR RD REFUSED");
    assert_eq!(answer[11], 1, "an OPT record of ours");
    assert_eq!(scene.counted(Counter::SelfAnswered), 1);
}
