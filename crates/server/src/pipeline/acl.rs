//! Who may ask: `setACL` and its relatives.

use super::Env;
use super::query::Arrival;
use crate::counters::Counter;
use std::net::IpAddr;

/// A set of netmasks with longest-prefix lookup.
#[derive(Debug, Clone, Default)]
pub struct Netmasks {
    masks: Vec<ipnet::IpNet>,
}

impl Netmasks {
    pub fn new(masks: impl IntoIterator<Item = ipnet::IpNet>) -> Netmasks {
        Netmasks {
            masks: masks.into_iter().collect(),
        }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.masks.iter().any(|mask| mask.contains(&address))
    }
}

pub fn allows(arrival: &Arrival<'_>, env: &Env<'_>) -> bool {
    let allowed = env.config.acl.contains(arrival.client.ip());
    if !allowed {
        env.shard.count(Counter::AclDrops);
    }
    allowed
}
