//! Actions that drop.

use crate::pipeline::Env;
use crate::pipeline::drop::DropReason;
use crate::pipeline::query::Query;
use crate::pipeline::rules::limiter::{Bucket, Limit, Rate};
use crate::pipeline::rules::{Action, Outcome};
use std::any::Any;

/// `DropAction()`.
pub struct DropAction;

impl Action for DropAction {
    fn act(&self, _: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        Outcome::Drop(DropReason::Rule)
    }

    fn describe(&self) -> String {
        "drop".to_owned()
    }
}

/// `QPSAction(maxqps)`: drops what exceeds the limit, lets the rest go on to the next rule.
pub struct QPSAction {
    qps: u32,
    limit: Limit<Bucket>,
}

impl QPSAction {
    pub fn new(qps: u32) -> QPSAction {
        QPSAction {
            qps,
            limit: Limit::new(Rate::new(qps, qps), Bucket::default()),
        }
    }
}

impl Action for QPSAction {
    fn act(&self, _: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        if self.limit.take_in(env) {
            return Outcome::Continue;
        }
        Outcome::Drop(DropReason::Rule)
    }

    fn go_on_from(&self, former: &dyn Action) {
        let former: &dyn Any = former;
        if let Some(former) = former.downcast_ref::<QPSAction>() {
            self.limit.go_on_from(&former.limit);
        }
    }

    fn describe(&self) -> String {
        format!("qps limit to {}", self.qps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counter;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::scene::{Reply, Scene, query};
    use wire::codes::qtype;

    #[test]
    fn what_exceeds_the_limit_is_dropped() {
        let mut scene = Scene::with_rule(AllRule, QPSAction::new(3));
        let message = query("a.", qtype::A);
        let dropped = (0..10)
            .filter(|_| scene.ask(&message) == Reply::Drop(DropReason::Rule))
            .count();
        assert_eq!(dropped, 7);
        assert_eq!(scene.counted(Counter::RuleDrop), 7);
    }

    #[test]
    fn drop_drops() {
        let mut scene = Scene::with_rule(AllRule, DropAction);
        assert_eq!(
            scene.ask(&query("a.", qtype::A)),
            Reply::Drop(DropReason::Rule)
        );
    }
}
