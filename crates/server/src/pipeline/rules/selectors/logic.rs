//! Selectors made of selectors, and the one that always matches.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::Selector;
use std::any::Any;
use std::sync::Arc;

/// `AllRule()`: every query.
pub struct AllRule;

impl Selector for AllRule {
    fn matches(&self, _: &mut Query<'_>, _: &mut Env<'_>) -> bool {
        true
    }

    fn describe(&self) -> String {
        "All".to_owned()
    }
}

/// `AndRule(selectors)`: all of them, asked in order up to the first that does not match. None: always.
pub struct AndRule(pub Vec<Arc<dyn Selector>>);

impl Selector for AndRule {
    fn matches(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        self.0.iter().all(|selector| selector.matches(query, env))
    }

    fn go_on_from(&self, former: &dyn Selector) {
        let former: &dyn Any = former;
        if let Some(former) = former.downcast_ref::<AndRule>() {
            parts_go_on(&self.0, &former.0);
        }
    }

    fn describe(&self) -> String {
        joined(&self.0, " && ")
    }
}

/// `OrRule(selectors)`: at least one of them, asked in order up to the first that matches. None: never.
pub struct OrRule(pub Vec<Arc<dyn Selector>>);

impl Selector for OrRule {
    fn matches(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        self.0.iter().any(|selector| selector.matches(query, env))
    }

    fn go_on_from(&self, former: &dyn Selector) {
        let former: &dyn Any = former;
        if let Some(former) = former.downcast_ref::<OrRule>() {
            parts_go_on(&self.0, &former.0);
        }
    }

    fn describe(&self) -> String {
        joined(&self.0, " || ")
    }
}

/// Each goes on from the one that was in its place.
fn parts_go_on(parts: &[Arc<dyn Selector>], former: &[Arc<dyn Selector>]) {
    for (part, former) in parts.iter().zip(former) {
        part.go_on_from(&**former);
    }
}

fn joined(selectors: &[Arc<dyn Selector>], word: &str) -> String {
    let texts: Vec<String> = selectors
        .iter()
        .map(|selector| format!("({})", selector.describe()))
        .collect();
    texts.join(word)
}

/// `NotRule(selector)`.
pub struct NotRule(pub Arc<dyn Selector>);

impl Selector for NotRule {
    fn matches(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        !self.0.matches(query, env)
    }

    fn go_on_from(&self, former: &dyn Selector) {
        let former: &dyn Any = former;
        if let Some(former) = former.downcast_ref::<NotRule>() {
            self.0.go_on_from(&*former.0);
        }
    }

    fn describe(&self) -> String {
        format!("!({})", self.0.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::rules::selectors::client::TCPRule;
    use crate::pipeline::rules::selectors::message::QTypeRule;
    use crate::pipeline::scene::{Scene, query};
    use wire::codes::qtype;

    #[test]
    fn and_or_not() {
        let any: Arc<dyn Selector> = Arc::new(QTypeRule(qtype::ANY));
        let tcp: Arc<dyn Selector> = Arc::new(TCPRule(true));
        let udp: Arc<dyn Selector> = Arc::new(NotRule(Arc::clone(&tcp)));
        let mut scene = Scene::default();
        let mut matches =
            |selector: &dyn Selector| scene.matches(selector, &query("a.", qtype::ANY));
        let both = AndRule(vec![Arc::clone(&any), udp]);
        assert!(matches(&both));
        assert!(!matches(&AndRule(vec![Arc::clone(&any), Arc::clone(&tcp)])));
        assert!(matches(&OrRule(vec![Arc::clone(&tcp), any])));
        assert!(!matches(&OrRule(vec![tcp])));
        assert!(matches(&AndRule(Vec::new())));
        assert!(!matches(&OrRule(Vec::new())));
        assert_eq!(both.describe(), "(qtype==ANY) && (!(TCP))");
    }
}
