//! Rules on responses: the same selectors, which see the response's header, question and records; actions of their own.

use super::{RuleOf, Selector};
use crate::backend::server::ServerId;
use crate::clock::Now;
use crate::pipeline::Env;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::Query;
use crate::pipeline::suspended::Wishes;
use std::sync::Arc;

/// A response on its way to a client.
pub struct Response<'m> {
    /// The response as selectors see it: message and parts are the response's, addresses and protocol the client's.
    pub view: Query<'m>,
    /// Whose it is; `None`: made or found here.
    pub server: Option<ServerId>,
    /// When its query was.
    pub asked: Now,
    /// Functions may suspend it.
    pub may_wait: bool,
    /// Its client knows EDNS.
    pub client_edns: bool,
    /// TTLs above this many seconds are lowered to it, after the cache has kept them as they were.
    pub maximum_returned_ttl: Option<u32>,
}

impl Response<'_> {
    /// What rules have decided about it beside what travels with its query.
    pub fn wishes(&self) -> Wishes {
        Wishes {
            client_edns: self.client_edns,
            maximum_returned_ttl: self.maximum_returned_ttl,
        }
    }
}

/// What a rule does to a response that its selector matched.
pub trait ResponseAction: Send + Sync {
    fn act(&self, response: &mut Response<'_>, env: &mut Env<'_>) -> ResponseOutcome;
    /// As [`super::Action::open`].
    fn open(&self) {}
    /// What the Lua method `reload` does, for actions that have one.
    fn reload(&self) {}
    /// What `showResponseRules()` prints.
    fn describe(&self) -> String;
}

/// How the chain goes on after an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// The next rule is tried.
    Continue,
    /// No further rule.
    Allow,
    Drop,
}

/// A rule on responses.
pub type ResponseRule = RuleOf<dyn ResponseAction>;

impl ResponseRule {
    /// Without name and UUID.
    pub fn new(
        selector: impl Selector + 'static,
        action: impl ResponseAction + 'static,
    ) -> ResponseRule {
        RuleOf::unnamed(selector, Arc::new(action))
    }
}

/// Takes a response through a chain.
///
/// # Errors
/// An action dropped it.
pub fn apply(
    chain: &[ResponseRule],
    response: &mut Response<'_>,
    env: &mut Env<'_>,
) -> Result<(), DropReason> {
    for rule in chain {
        if !rule.selector.matches(&mut response.view, env) {
            continue;
        }
        rule.matches.count(env.shard.lane);
        match rule.action.act(response, env) {
            ResponseOutcome::Continue => {}
            ResponseOutcome::Allow => return Ok(()),
            ResponseOutcome::Drop => return Err(DropReason::ResponseRule),
        }
    }
    Ok(())
}
