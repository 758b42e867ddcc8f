//! What limits have counted lives on over a reload.

use super::*;
use crate::clock::Now;
use crate::pipeline::rules::{Outcome, Selector};
use crate::pipeline::scene::{Scene, query};
use wire::codes::qtype;

/// What the action of a rule said, if the rule matched, and the pool that the query is for.
type Fate = (Option<Outcome>, PoolId);

/// What becomes of 500 queries that meet the first rule at one moment.
fn fates(config: &Config, now: Now) -> Vec<Fate> {
    let (rule, message) = (&config.rules[0], query("a.", qtype::A));
    let mut scene = Scene::default();
    scene.now = now;
    let mut fate = || {
        scene.examine(&message, |query, env| {
            let matches = rule.selector.matches(query, env);
            let outcome = matches.then(|| rule.action.act(query, env));
            (outcome, query.pool)
        })
    };
    (0..500).map(|_| fate()).collect()
}

/// How many of 500 queries at one moment the selector matches.
fn matched(selector: &dyn Selector, now: Now) -> usize {
    let mut scene = Scene::default();
    scene.now = now;
    let message = query("a.", qtype::A);
    let matches = (0..500).filter(|_| scene.matches(selector, &message));
    matches.count()
}

#[test]
fn limits_of_every_kind_live_on_with_their_rule() {
    for rule in [
        "MaxQPSRule(100), AllowAction()",
        "MaxQPSIPRule(100), AllowAction()",
        "AllRule(), QPSAction(100)",
        "AllRule(), QPSPoolAction(100, 'p')",
        "AllRule(), ContinueAction(QPSPoolAction(100, 'p'))",
        "AndRule({AllRule(), NotRule(MaxQPSIPRule(100))}), AllowAction()",
        "OrRule({TCPRule(true), MaxQPSRule(100)}), AllowAction()",
    ] {
        let text = format!("addAction({rule})");
        let (old, now) = (config(&text), Now::read());
        let first = fates(&old, now);
        let within = |fates: &[Fate]| fates.iter().filter(|fate| **fate == first[0]).count();
        assert_eq!(within(&first), 100, "{rule}");
        let new = reload(&text, Some(&old)).unwrap();
        assert_eq!(within(&fates(&new, now)), 0, "{rule}");
        let again = reload(&text, Some(&new)).unwrap();
        assert_eq!(within(&fates(&again, now)), 0, "{rule}");
        let another = format!("addAction({rule}, {{name='another'}})");
        let another = reload(&another, Some(&old)).unwrap();
        assert_eq!(within(&fates(&another, now)), 100, "{rule}");
    }
}

#[test]
fn limits_of_rules_on_responses_live_on() {
    let text = "addResponseAction(MaxQPSRule(100), AllowResponseAction())";
    let now = Now::read();
    let old = config(text);
    assert_eq!(matched(&*old.chains.response[0].selector, now), 100);
    let new = reload(text, Some(&old)).unwrap();
    assert_eq!(matched(&*new.chains.response[0].selector, now), 0);
}

/// 200 at once and one a second: at 100 a second nobody waits 200 s.
#[test]
fn a_limit_that_is_changed_counts_what_was_used_and_holds_nobody_for_longer() {
    let text = |limit: &str| format!("addAction({limit}, AllowAction(), {{name='n'}})");
    let now = Now::read();
    let later = Now(now.0 + 400_000_000_000);
    let slow = config(&text("MaxQPSRule(1, 200)"));
    assert_eq!(matched(&*slow.rules[0].selector, now), 200);
    let fast = reload(&text("MaxQPSRule(100, 200)"), Some(&slow)).unwrap();
    assert_eq!(matched(&*fast.rules[0].selector, now), 0);
    assert_eq!(matched(&*fast.rules[0].selector, later), 200);

    let slow = config(&text("MaxQPSIPRule(1, 32, 64, 200)"));
    assert_eq!(matched(&*slow.rules[0].selector, now), 300);
    let fast = reload(&text("MaxQPSIPRule(100, 32, 64, 200)"), Some(&slow)).unwrap();
    assert_eq!(matched(&*fast.rules[0].selector, now), 500);
    assert_eq!(matched(&*fast.rules[0].selector, later), 300);
    // Other networks.
    let masked = reload(&text("MaxQPSIPRule(1, 24, 64, 200)"), Some(&slow)).unwrap();
    assert_eq!(matched(&*masked.rules[0].selector, now), 300);
}

#[test]
fn a_limit_of_several_rules_stays_one() {
    let text = |more: &str| {
        format!(
            "local limit = MaxQPSRule(100) {more} addAction(limit, AllowAction(), {{name='a'}}) \
             addAction(limit, DropAction())"
        )
    };
    let now = Now::read();
    let old = config(&text(""));
    assert_eq!(matched(&*old.rules[1].selector, now), 100);
    // The second rule is another one by its place, and has the first one's limit all the same.
    let new = reload(&text("addAction('a', DropAction())"), Some(&old)).unwrap();
    assert_eq!(matched(&*new.rules[1].selector, now), 0);
    assert_eq!(matched(&*new.rules[2].selector, now), 0);
}

#[test]
fn what_a_server_may_yet_get_lives_on_whatever_its_options() {
    let text = |options: &str| format!("newServer{{address='192.0.2.1', {options}}}");
    let now = Now::read();
    let passed = |config: &Config| {
        let server = &config.servers[0];
        let passed = (0..500).filter(|_| server.is_within_rate(now));
        passed.count()
    };
    let old = config(&text("name='n', qps=100"));
    assert_eq!(passed(&old), 100);
    for (options, expected) in [
        ("name='n', qps=100, weight=5", 0),
        ("name='n', qps=50", 0),
        ("name='n', qps=200", 0),
        ("name='n'", 500),
        ("name='m', qps=100", 100),
    ] {
        let new = reload(&text(options), Some(&old)).unwrap();
        assert_eq!(passed(&new), expected, "{options}");
    }
}
