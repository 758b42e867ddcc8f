//! What setQueryCount has done with every query, before all rules of the file.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::selectors::logic::AllRule;
use crate::pipeline::rules::{Action, Outcome, Rule};
use crate::querycount::QueryCounters;
use std::sync::Arc;

/// Says under what name a query is counted; `None`: under none.
pub trait CountFilter: Send + Sync {
    fn name(&self, query: &Query<'_>, env: &Env<'_>) -> Option<String>;
}

/// Counts queries by name, or as the function of setQueryCountFilter says.
struct CountAction {
    counters: Arc<QueryCounters>,
    filter: Option<Arc<dyn CountFilter>>,
}

impl Action for CountAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        let name = match &self.filter {
            None => Some(shown(query)),
            Some(filter) => filter.name(query, env),
        };
        if let Some(name) = name {
            self.counters.count(&name);
        }
        Outcome::Continue
    }

    fn describe(&self) -> String {
        "count".to_owned()
    }
}

/// dnsdist's form: case as the client wrote it, no dot at the end.
fn shown(query: &Query<'_>) -> String {
    let mut name = query.name().to_string();
    if name.len() > 1 {
        name.pop();
    }
    name
}

/// The UUID of the rule that counts: no list shows it, and `explain` leaves it out.
pub const COUNTING: &str = "setQueryCount";

/// The rule that stands before those of the file.
pub fn counting(counters: &Arc<QueryCounters>, filter: Option<&Arc<dyn CountFilter>>) -> Rule {
    let action = CountAction {
        counters: Arc::clone(counters),
        filter: filter.map(Arc::clone),
    };
    Rule {
        uuid: COUNTING.to_owned(),
        ..Rule::new(AllRule, action)
    }
}
