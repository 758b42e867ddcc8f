//! TeeAction: what happens to copies of queries is somebody else's.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::{Action, Outcome};
use crate::tee::Tee;

/// `TeeAction(remote [, addECS [, local [, addProxyProtocol]]])`: "Send copy of query to `remote`, keep stats on responses."
pub struct TeeAction(pub Tee);

impl Action for TeeAction {
    fn act(&self, query: &mut Query<'_>, env: &mut Env<'_>) -> Outcome {
        if !env.is_rehearsal() {
            let mut subnets = env.config.tuning.subnets;
            let wishes = query.extras.as_ref().map(|extras| &extras.subnet);
            if let Some(overrides) = wishes.and_then(|wishes| wishes.override_existing) {
                subnets.override_existing = overrides;
            }
            self.0.copy(query, subnets);
        }
        Outcome::Continue
    }

    fn open(&self) {
        self.0.open();
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        self.0.statistics()
    }

    fn describe(&self) -> String {
        format!("tee to {}", self.0.options().remote)
    }
}
