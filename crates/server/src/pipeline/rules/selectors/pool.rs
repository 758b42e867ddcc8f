//! Selectors by the state of a pool of servers.

use crate::config::pools::PoolId;
use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::Selector;

/// `PoolAvailableRule(poolname)`: at least one server of the pool is up.
pub struct PoolAvailableRule {
    pub pool: PoolId,
    pub name: String,
}

impl Selector for PoolAvailableRule {
    fn matches(&self, _: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        let pool = env.config.pool(self.pool);
        pool.is_some_and(|pool| pool.servers.iter().any(|server| server.state.is_up()))
    }

    fn describe(&self) -> String {
        format!("pool '{}' is available", self.name)
    }
}

/// `PoolOutstandingRule(poolname, limit)`: more than `limit` queries are in flight to the pool's servers.
pub struct PoolOutstandingRule {
    pub pool: PoolId,
    pub name: String,
    pub limit: u64,
}

impl Selector for PoolOutstandingRule {
    fn matches(&self, _: &mut Query<'_>, env: &mut Env<'_>) -> bool {
        let servers = env
            .config
            .pool(self.pool)
            .map_or(&[][..], |pool| &pool.servers);
        let outstanding: i64 = servers
            .iter()
            .map(|server| server.outstanding.get().max(0))
            .sum();
        outstanding as u64 > self.limit
    }

    fn describe(&self) -> String {
        format!("pool '{}' outstanding > {}", self.name, self.limit)
    }
}
