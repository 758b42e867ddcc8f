//! What stays the same object when a configuration follows another (design.md, reload): a server by its id, else its
//! name, else its address and options; a rule by its UUID if the file gives one, else its name, else its text and place;
//! a cache by its pool.

use super::Config;
use super::spec::{CacheKey, RuleSpec, ServerSpec, Spec};
use crate::backend::server::{Server, ServerId, ServerOptions};
use crate::pipeline::cache::PacketCache;
use crate::pipeline::rules::Rule;
use std::sync::Arc;

/// Puts the live objects of `previous` where `spec` means the same, and new ones elsewhere. Returns the number of the
/// next new server.
pub(super) fn keep(spec: &mut Spec, previous: Option<&Config>) -> u32 {
    keep_caches(spec, previous);
    let mut next_server = previous.map_or(0, |previous| previous.next_server);
    let mut old_servers: Vec<Arc<Server>> = previous
        .map(|previous| previous.servers.clone())
        .unwrap_or_default();
    for server in &mut spec.servers {
        keep_server(server, &mut old_servers, &mut next_server);
    }
    if let Some(previous) = previous {
        keep_rules(&mut spec.rules, &previous.rules);
    }
    next_server
}

fn keep_server(server: &mut ServerSpec, old_servers: &mut Vec<Arc<Server>>, next_server: &mut u32) {
    let old = old_servers
        .iter()
        .position(|old| is_same_server(server, old))
        .map(|at| old_servers.remove(at));
    if let Some(old) = &old
        && !server.id_given
    {
        server.options.id.clone_from(&old.options.id);
    }
    match old {
        Some(old) if old.options == server.options => server.live = Some(old),
        old => {
            let new = Server::new(ServerId(*next_server), server.options.clone());
            *next_server += 1;
            if let Some(old) = old.filter(|old| old.options.address == new.options.address) {
                new.state.set_checked(old.state.is_checked_up());
            }
            server.live = Some(Arc::new(new));
        }
    }
}

fn is_same_server(server: &ServerSpec, old: &Arc<Server>) -> bool {
    // An edit at run time finds the server that it edits.
    if server
        .live
        .as_ref()
        .is_some_and(|live| Arc::ptr_eq(live, old))
    {
        return true;
    }
    if server.id_given {
        return server.options.id == old.options.id;
    }
    if !server.options.name.is_empty() {
        return server.options.name == old.options.name;
    }
    let with_old_id = ServerOptions {
        id: old.options.id.clone(),
        ..server.options.clone()
    };
    with_old_id == old.options
}

/// A cache that several pools share is the one that the first of them had.
fn keep_caches(spec: &mut Spec, previous: Option<&Config>) {
    let pools: Vec<(String, CacheKey)> = spec
        .pools
        .iter()
        .filter_map(|(name, pool)| Some((name.clone(), pool.cache?)))
        .collect();
    for (name, key) in pools {
        let old = previous.and_then(|previous| {
            let id = previous.pool_names.find(&name)?;
            previous.pool(id)?.cache.clone()
        });
        let cache = spec.cache(key);
        let serves = cache
            .live
            .take()
            .or(old)
            .filter(|live| *live.options() == cache.options);
        cache.live =
            Some(serves.unwrap_or_else(|| Arc::new(PacketCache::new(cache.options.clone()))));
    }
}

fn keep_rules(rules: &mut [RuleSpec], old_rules: &[Rule]) {
    for (place, spec) in rules.iter_mut().enumerate() {
        let Some(old) = same_rule(spec, place, old_rules) else {
            continue;
        };
        spec.rule.matches = Arc::clone(&old.matches);
        if !spec.uuid_given {
            spec.rule.uuid.clone_from(&old.uuid);
        }
    }
}

fn same_rule<'o>(spec: &RuleSpec, place: usize, old_rules: &'o [Rule]) -> Option<&'o Rule> {
    let rule = &spec.rule;
    if let Some(old) = old_rules.iter().find(|old| old.uuid == rule.uuid) {
        return Some(old);
    }
    if spec.uuid_given {
        return None;
    }
    if !rule.name.is_empty() {
        return old_rules.iter().find(|old| old.name == rule.name);
    }
    old_rules.get(place).filter(|old| {
        old.name.is_empty()
            && old.selector.describe() == rule.selector.describe()
            && old.action.describe() == rule.action.describe()
    })
}
