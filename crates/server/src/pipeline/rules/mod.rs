//! Rules: a selector decides, an action follows. One file per theme under `selectors/` and `actions/`.

pub mod actions;
pub mod limiter;
pub mod names;
pub mod response;
pub mod selectors;
#[cfg(test)]
mod tests;

use super::drop::DropReason;
use super::query::Query;
use super::{Env, HandOverReason, Verdict, respond};
use crate::config::Config;
use crate::counters::{Counter, Sharded};
use response::ResponseRule;
use std::any::Any;
use std::sync::Arc;

/// Decides whether a rule's action is taken.
pub trait Selector: Any + Send + Sync {
    /// The functions of `LuaRule` may change the query; no other selector does.
    fn matches(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> bool;
    /// Goes on with what `former` has counted for its limit, the selector of the same rule before a reload. To be called before
    /// this one serves.
    fn go_on_from(&self, _former: &dyn Selector) {}
    /// What `showRules()` prints.
    fn describe(&self) -> String;
}

/// What a rule does to a query that its selector matched.
pub trait Action: Any + Send + Sync {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome;
    /// Opens what the action needs (sockets, threads), if that is not open: before queries come by it, and at every change of the
    /// configuration.
    fn open(&self) {}
    /// What the Lua method `reload` does, for actions that have one.
    fn reload(&self) {}
    /// Goes on with what `former` has counted for its limit, the action of the same rule before a reload. To be called before
    /// this one serves.
    fn go_on_from(&self, _former: &dyn Action) {}
    /// What the Lua method `getStats` returns, for actions that count.
    fn statistics(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// What `showRules()` prints.
    fn describe(&self) -> String;
}

/// How the chain goes on after an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The next rule is tried.
    Continue,
    /// No further rule: the query goes on to cache and route.
    Allow,
    /// The buffer holds the answer; its length in bytes.
    Answer(usize),
    Drop(DropReason),
    HandOver(HandOverReason),
}

/// The chains of rules beside that of addAction.
#[derive(Clone, Default)]
pub struct Chains {
    /// addCacheMissAction: queries that the cache has no answer for.
    pub cache_miss: Vec<Rule>,
    /// addResponseAction: what backends sent.
    pub response: Vec<ResponseRule>,
    /// addCacheHitResponseAction.
    pub cache_hit: Vec<ResponseRule>,
    /// addCacheInsertedResponseAction: what the cache has just kept.
    pub cache_inserted: Vec<ResponseRule>,
    /// addSelfAnsweredResponseAction: what a rule answered.
    pub self_answered: Vec<ResponseRule>,
    /// addTimeoutResponseAction: queries that no backend answered in time.
    pub timeout: Vec<ResponseRule>,
    /// addXFRResponseAction: messages of transfers from backends.
    pub xfr: Vec<ResponseRule>,
}

impl Chains {
    /// Those whose rules are on responses.
    pub fn on_responses(&self) -> [&[ResponseRule]; 6] {
        [
            &self.response,
            &self.cache_hit,
            &self.cache_inserted,
            &self.self_answered,
            &self.timeout,
            &self.xfr,
        ]
    }
}

/// A rule on queries.
pub type Rule = RuleOf<dyn Action>;

/// A selector with its action, as the configuration made it. `A` is what the chain's actions are.
pub struct RuleOf<A: ?Sized> {
    pub selector: Arc<dyn Selector>,
    pub action: Arc<A>,
    /// The `name` option of addAction; empty when not given.
    pub name: String,
    /// The `uuid` option, or a random one.
    pub uuid: String,
    /// Its number among all rules that this configuration ever made.
    pub created: u64,
    /// How many matched; lives on over a reload that keeps the rule.
    pub matches: Arc<Sharded>,
}

impl<A: ?Sized> Clone for RuleOf<A> {
    fn clone(&self) -> RuleOf<A> {
        RuleOf {
            selector: Arc::clone(&self.selector),
            action: Arc::clone(&self.action),
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            created: self.created,
            matches: Arc::clone(&self.matches),
        }
    }
}

impl<A: ?Sized> RuleOf<A> {
    /// Without name and UUID.
    fn unnamed(selector: impl Selector + 'static, action: Arc<A>) -> RuleOf<A> {
        RuleOf {
            selector: Arc::new(selector),
            action,
            name: String::new(),
            uuid: String::new(),
            created: 0,
            matches: Arc::default(),
        }
    }
}

impl Rule {
    /// Without name and UUID.
    pub fn new(selector: impl Selector + 'static, action: impl Action + 'static) -> Rule {
        RuleOf::unnamed(selector, Arc::new(action))
    }
}

/// Takes the query through the chain of addAction; `None` when it goes on to the cache.
#[inline(always)]
pub fn apply<'c>(query: &mut Query<'_>, env: &mut Env<'c>) -> Option<Verdict<'c>> {
    let config: &'c Config = env.config;
    apply_chain(&config.rules, query, env)
}

/// Takes the query through a chain; `None` when it goes on.
pub fn apply_chain<'c>(
    chain: &[Rule],
    query: &mut Query<'_>,
    env: &mut Env<'c>,
) -> Option<Verdict<'c>> {
    for rule in chain {
        if !rule.selector.matches(query, env) {
            continue;
        }
        rule.matches.count(env.shard.lane);
        match rule.action.act(query, env) {
            Outcome::Continue => {}
            Outcome::Allow => break,
            Outcome::Answer(length) => return Some(answered(query, length, env)),
            Outcome::Drop(reason) => {
                env.shard.count(Counter::RuleDrop);
                return Some(Verdict::Drop(reason));
            }
            Outcome::HandOver(reason) => {
                return Some(super::HandOver::of(query, reason, None));
            }
        }
    }
    // ContinueAction left an answer behind.
    let length = query.length;
    query.header().qr().then(|| answered(query, length, env))
}

/// Gives the client what a rule has made of its query.
pub(super) fn answered<'c>(query: &mut Query<'_>, length: usize, env: &mut Env<'c>) -> Verdict<'c> {
    let config: &'c Config = env.config;
    env.shard.count(Counter::SelfAnswered);
    respond::give(&config.chains.self_answered, query, length, env)
}
