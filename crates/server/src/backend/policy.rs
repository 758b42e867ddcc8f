//! Policies: which server of a pool is asked. Names are dnsdist's.

use super::pool::Pool;
use super::server::Server;
use crate::clock::Now;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    #[default]
    LeastOutstanding,
    FirstAvailable,
    RoundRobin,
}

impl Policy {
    pub fn choose<'p>(self, pool: &'p Pool, now: Now) -> Option<&'p Arc<Server>> {
        let _ = now;
        pool.servers.iter().find(|server| server.state.is_up())
    }
}
