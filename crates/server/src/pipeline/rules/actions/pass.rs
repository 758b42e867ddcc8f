//! Actions after which the query goes on, changed or not.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::{Action, Outcome};
use std::any::Any;
use std::sync::Arc;
use wire::message::Header;

/// `AllowAction()`: no further rule.
pub struct AllowAction;

impl Action for AllowAction {
    fn act(&self, _: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        Outcome::Allow
    }

    fn describe(&self) -> String {
        "allow".to_owned()
    }
}

/// `NoneAction()`: for its count of matches.
pub struct NoneAction;

impl Action for NoneAction {
    fn act(&self, _: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        Outcome::Continue
    }

    fn describe(&self) -> String {
        "no op".to_owned()
    }
}

/// `HTTPStatusAction(status, body [, contentType [, options]])`: for queries over HTTPS, of which there are none; all others
/// go on.
pub struct HTTPStatusAction {
    pub status: u16,
}

impl Action for HTTPStatusAction {
    fn act(&self, _: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        Outcome::Continue
    }

    fn describe(&self) -> String {
        format!("return an HTTP status of {}", self.status)
    }
}

/// `ContinueAction(action)`: takes the action, then goes on to the next rule whatever it said. An answer that it made is
/// sent after the last rule.
pub struct ContinueAction(pub Arc<dyn Action>);

impl Action for ContinueAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        if let Outcome::Answer(length) = self.0.act(query, env) {
            query.length = length;
            // Further rules find an answer here, not the query that was longer.
            query.find_end();
        }
        Outcome::Continue
    }

    fn open(&self) {
        self.0.open();
    }

    fn reload(&self) {
        self.0.reload();
    }

    fn go_on_from(&self, former: &dyn Action) {
        let former: &dyn Any = former;
        if let Some(former) = former.downcast_ref::<ContinueAction>() {
            self.0.go_on_from(&*former.0);
        }
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        self.0.statistics()
    }

    fn describe(&self) -> String {
        format!("continue after: {}", self.0.describe())
    }
}

/// `SetSkipCacheAction()`: the cache is not asked and does not keep the answer.
pub struct SetSkipCacheAction;

impl Action for SetSkipCacheAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        query.skip_cache = true;
        Outcome::Continue
    }

    fn describe(&self) -> String {
        "skip cache".to_owned()
    }
}

/// `SetNoRecurseAction()`: takes RD off what the backend gets; the client's answer has it as the client said.
pub struct SetNoRecurseAction;

impl Action for SetNoRecurseAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        change_header(query, |header| header.set_rd(false))
    }

    fn describe(&self) -> String {
        "set rd=0".to_owned()
    }
}

/// `SetDisableValidationAction()`: sets CD in what the backend gets; the client's answer has it as the client said.
pub struct SetDisableValidationAction;

impl Action for SetDisableValidationAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        change_header(query, |header| header.set_cd(true))
    }

    fn describe(&self) -> String {
        "set cd=1".to_owned()
    }
}

fn change_header(query: &mut Query<'_>, change: impl Fn(&mut Header)) -> Outcome {
    let mut header = query.header();
    change(&mut header);
    header
        .write(query.message)
        .expect("a parsed query has a header");
    Outcome::Continue
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::drop::DropReason;
    use crate::pipeline::rules::Rule;
    use crate::pipeline::rules::actions::answer::RCodeAction;
    use crate::pipeline::rules::actions::limit::DropAction;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::rules::selectors::message::RDRule;
    use crate::pipeline::scene::{Reply, Scene, query, query_with_edns};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use wire::codes::qtype;

    #[test]
    fn allow_ends_the_chain_and_none_does_not() {
        let refused = || RCodeAction::new(5);
        let message = query("a.", qtype::A);
        let mut scene = Scene::with_rule(AllRule, NoneAction);
        scene.add_rule(AllRule, refused());
        assert!(matches!(scene.ask(&message), Reply::Answer(_)));
        let mut scene = Scene::with_rule(AllRule, AllowAction);
        scene.add_rule(AllRule, refused());
        assert!(!matches!(scene.ask(&message), Reply::Answer(_)));
        assert_eq!(scene.config.rules[0].matches.sum(), 1);
        assert_eq!(scene.config.rules[1].matches.sum(), 0);
    }

    #[test]
    fn continue_goes_on_after_a_drop_and_keeps_an_answer() {
        let message = query("a.", qtype::A);
        let mut scene = Scene::with_rule(AllRule, ContinueAction(Arc::new(DropAction)));
        scene.add_rule(AllRule, ContinueAction(Arc::new(RCodeAction::new(5))));
        scene.add_rule(AllRule, NoneAction);
        let Reply::Answer(answer) = scene.ask(&message) else {
            panic!("no answer")
        };
        assert_eq!(answer[3] & 15, 5);
        assert_eq!(scene.config.rules[2].matches.sum(), 1);
        let text = scene.config.rules[0].action.describe();
        assert_eq!(text, "continue after: drop");
    }

    /// A query with a long option, which the answer that ContinueAction left behind has not: whoever looks for the query's end
    /// in it would be far behind the answer's.
    #[test]
    fn continue_leaves_an_answer_whose_end_is_known() {
        struct Look;
        impl Action for Look {
            fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
                assert_eq!(usize::from(query.parts.end), query.length);
                assert!(query.knows_edns());
                Outcome::Continue
            }

            fn describe(&self) -> String {
                String::new()
            }
        }
        let mut message = query_with_edns("a.", qtype::A, Some(1_232));
        let at = message.len() - 2;
        message[at..].copy_from_slice(&304_u16.to_be_bytes());
        message.extend([0xfd, 0xe9, 1, 44]);
        message.extend([7; 300]);
        let refused = Arc::new(RCodeAction::new(5));
        let mut scene = Scene::with_rule(AllRule, ContinueAction(refused));
        scene.add_rule(AllRule, Look);
        assert!(matches!(scene.ask(&message), Reply::Answer(answer) if answer.len() < 60));
    }

    #[test]
    fn what_actions_need_is_opened_with_the_configuration() {
        #[derive(Default)]
        struct Opens(AtomicU32);
        impl Action for Opens {
            fn act(&self, _: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
                Outcome::Continue
            }

            fn open(&self) {
                self.0.fetch_add(1, Relaxed);
            }

            fn describe(&self) -> String {
                String::new()
            }
        }
        let (first, missed) = (Arc::new(Opens::default()), Arc::new(Opens::default()));
        let mut scene = Scene::with_rule(AllRule, ContinueAction(first.clone()));
        let rule = Rule::new(AllRule, ContinueAction(missed.clone()));
        scene.change(|config| config.chains.cache_miss.push(rule));
        scene.config.open_actions();
        assert_eq!(
            [&first, &missed].map(|action| action.0.load(Relaxed)),
            [1, 1]
        );
    }

    #[test]
    fn what_continue_wraps_is_reloaded_and_tells_what_it_counted() {
        #[derive(Default)]
        struct Reloads(AtomicU32);
        impl Action for Reloads {
            fn act(&self, _: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
                Outcome::Continue
            }

            fn reload(&self) {
                self.0.fetch_add(1, Relaxed);
            }

            fn statistics(&self) -> Vec<(&'static str, u64)> {
                vec![("reloads", self.0.load(Relaxed).into())]
            }

            fn describe(&self) -> String {
                String::new()
            }
        }
        let action = ContinueAction(Arc::new(Reloads::default()));
        action.reload();
        assert_eq!(action.statistics(), [("reloads", 1)]);
    }

    #[test]
    fn later_rules_see_the_changed_header() {
        let mut scene = Scene::with_rule(AllRule, SetNoRecurseAction);
        scene.add_rule(RDRule, DropAction);
        let reply = scene.ask(&query("a.", qtype::A));
        assert_ne!(reply, Reply::Drop(DropReason::Rule));
    }
}
