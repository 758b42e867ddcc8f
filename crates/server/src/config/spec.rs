//! What people wrote: mutable, owned by the control thread. The Lua functions fill it, `derive` makes a [`super::Config`] of it.

use super::pools::PoolNames;
use super::{Listener, Tuning, Webserver};
use crate::backend::server::Server;
use crate::pipeline::rules::Rule;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Default)]
pub struct Spec {
    pub listeners: Vec<Listener>,
    pub acl: Vec<ipnet::IpNet>,
    pub rules: Vec<Rule>,
    pub servers: Vec<Arc<Server>>,
    pub pools: PoolNames,
    pub pool_specs: HashMap<String, PoolSpec>,
    pub tuning: Tuning,
    pub webserver: Option<Webserver>,
}

/// What the configuration says of one pool.
#[derive(Default)]
pub struct PoolSpec {
    pub cache: Option<Arc<crate::pipeline::cache::PacketCache>>,
    pub policy: Option<crate::backend::policy::Policy>,
}
