//! Actions that choose a pool of servers.

use crate::config::pools::PoolId;
use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::limiter::{Bucket, Limit, Rate};
use crate::pipeline::rules::{Action, Outcome};
use std::any::Any;

/// `PoolAction(poolname [, stop])`.
pub struct PoolAction {
    pub pool: PoolId,
    pub name: String,
    /// No further rule is tried. dnsdist's default is true.
    pub stop: bool,
}

impl Action for PoolAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        choose(query, self.pool, self.stop)
    }

    fn describe(&self) -> String {
        format!("to pool {}", self.name)
    }
}

/// `QPSPoolAction(maxqps, poolname [, stop])`: the pool for what does not exceed the limit; the rest goes on to the next
/// rule.
pub struct QPSPoolAction {
    qps: u32,
    pool: PoolAction,
    limit: Limit<Bucket>,
}

impl QPSPoolAction {
    pub fn new(qps: u32, pool: PoolAction) -> QPSPoolAction {
        QPSPoolAction {
            qps,
            pool,
            limit: Limit::new(Rate::new(qps, qps), Bucket::default()),
        }
    }
}

impl Action for QPSPoolAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        if self.limit.take_in(env) {
            return choose(query, self.pool.pool, self.pool.stop);
        }
        Outcome::Continue
    }

    fn go_on_from(&self, former: &dyn Action) {
        let former: &dyn Any = former;
        if let Some(former) = former.downcast_ref::<QPSPoolAction>() {
            self.limit.go_on_from(&former.limit);
        }
    }

    fn describe(&self) -> String {
        format!("max {} to pool {}", self.qps, self.pool.name)
    }
}

fn choose(query: &mut Query<'_>, pool: PoolId, stop: bool) -> Outcome {
    query.pool = pool;
    if stop {
        Outcome::Allow
    } else {
        Outcome::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::rules::Rule;
    use crate::pipeline::rules::actions::limit::DropAction;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::rules::{self};
    use crate::pipeline::scene::{Scene, query};
    use wire::codes::qtype;

    fn pool(number: u16, stop: bool) -> PoolAction {
        PoolAction {
            pool: PoolId(number),
            name: format!("p{number}"),
            stop,
        }
    }

    fn chosen(scene: &mut Scene, rules: Vec<Rule>) -> (PoolId, bool) {
        scene.change(|config| config.rules = rules);
        scene.examine(&query("a.", qtype::A), |query, env| {
            let dropped = rules::apply(query, env).is_some();
            (query.pool, dropped)
        })
    }

    #[test]
    fn stop_is_the_end_of_the_chain() {
        let mut scene = Scene::default();
        let rule = |stop| Rule::new(AllRule, pool(3, stop));
        let stopped = chosen(&mut scene, vec![rule(true), Rule::new(AllRule, DropAction)]);
        assert_eq!(stopped, (PoolId(3), false));
        let went_on = chosen(
            &mut scene,
            vec![rule(false), Rule::new(AllRule, DropAction)],
        );
        assert_eq!(went_on, (PoolId(3), true));
        assert_eq!(pool(3, true).describe(), "to pool p3");
    }

    #[test]
    fn what_exceeds_the_limit_stays_in_its_pool() {
        let mut scene = Scene::default();
        let rule = Rule::new(AllRule, QPSPoolAction::new(2, pool(4, true)));
        let pools = [0; 3].map(|_| chosen(&mut scene, vec![rule.clone()]).0);
        assert_eq!(pools, [PoolId(4), PoolId(4), PoolId::DEFAULT]);
        assert_eq!(rule.action.describe(), "max 2 to pool p4");
    }
}
