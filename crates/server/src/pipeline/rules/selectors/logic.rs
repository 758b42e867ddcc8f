//! Selectors made of selectors, and the one that always matches.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::Selector;

/// `AllRule()`: every query.
pub struct AllRule;

impl Selector for AllRule {
    fn matches(&self, _: &Query<'_>, _: &mut Env<'_>) -> bool {
        true
    }

    fn describe(&self) -> String {
        "All".to_owned()
    }
}
