//! What stays the same object when a configuration follows another (design.md, reload): a server by its id, else its
//! name, else its address and options; a rule by its UUID if the file gives one, else its name, else its text and place;
//! a cache by its pool. What the limits of a rule or a server have counted lives on with it.

use super::Config;
use super::spec::{CacheKey, ChainSpecs, RuleSpec, ServerSpec, Spec};
use crate::backend::server::{Server, ServerId, ServerOptions};
use crate::pipeline::cache::PacketCache;
use crate::pipeline::rules::response::ResponseAction;
use crate::pipeline::rules::{Action, RuleOf};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Puts the live objects of `previous` where `spec` means the same, and new ones elsewhere. Returns the number of the
/// next new server.
pub(super) fn keep(spec: &mut Spec, previous: Option<&Config>) -> u32 {
    keep_caches(spec, previous);
    let mut old_servers = OldServers::new(previous.map_or(&[], |previous| &previous.servers));
    let mut next_server = previous.map_or(0, |previous| previous.next_server);
    for server in &mut spec.servers {
        let old = old_servers.take(server);
        keep_server(server, old, &mut next_server);
    }
    // Rules of a Spec that was edited have what they had; a new one that reads as an old one is another rule.
    if let Some(previous) = previous.filter(|_| !spec.is_derived) {
        keep_chains(&mut spec.chains, previous);
        if let Some(counters) = &previous.query_counters {
            spec.query_count.counters = Arc::clone(counters);
        }
    }
    spec.is_derived = true;
    next_server
}

fn keep_server(server: &mut ServerSpec, old: Option<Arc<Server>>, next_server: &mut u32) {
    if let Some(old) = &old
        && !server.id_given
    {
        server.options.id.clone_from(&old.options.id);
    }
    if let Some(old) = &old
        && says_the_same(&server.options, &old.options)
    {
        server.live = Some(Arc::clone(old));
        return;
    }
    let (number, options) = (ServerId(*next_server), server.options.clone());
    *next_server += 1;
    let new = match old {
        Some(old) => Server::succeeding(&old, number, options),
        None => Server::new(number, options),
    };
    server.live = Some(Arc::new(new));
}

/// The servers of the configuration before, each to be found by what can be its identity, and taken once.
struct OldServers<'o> {
    servers: Vec<Option<&'o Arc<Server>>>,
    by_id: HashMap<&'o str, usize>,
    by_name: HashMap<&'o str, usize>,
    /// Several may have one address.
    by_address: HashMap<SocketAddr, Vec<usize>>,
}

impl<'o> OldServers<'o> {
    fn new(servers: &'o [Arc<Server>]) -> OldServers<'o> {
        let mut by_address: HashMap<SocketAddr, Vec<usize>> = HashMap::new();
        for (at, server) in servers.iter().enumerate() {
            by_address
                .entry(server.options.address)
                .or_default()
                .push(at);
        }
        let by = |key: fn(&Server) -> &str| {
            servers
                .iter()
                .enumerate()
                .rev()
                .map(|(at, server)| (key(server), at))
                .collect()
        };
        OldServers {
            by_id: by(|server| &server.options.id),
            by_name: by(|server| &server.options.name),
            by_address,
            servers: servers.iter().map(Some).collect(),
        }
    }

    /// The one that `server` goes on with.
    fn take(&mut self, server: &ServerSpec) -> Option<Arc<Server>> {
        let at = self.find(server)?;
        self.servers[at].take().map(Arc::clone)
    }

    fn find(&self, server: &ServerSpec) -> Option<usize> {
        let options = &server.options;
        // An edit at run time finds the server that it edits by its id, whoever gave that.
        if server.id_given || server.live.is_some() {
            return self.by_id.get(options.id.as_str()).copied();
        }
        if !options.name.is_empty() {
            return self.by_name.get(options.name.as_str()).copied();
        }
        let candidates = self.by_address.get(&options.address)?;
        candidates.iter().copied().find(|at| {
            self.servers[*at].is_some_and(|old| {
                let with_old_id = ServerOptions {
                    id: old.options.id.clone(),
                    ..options.clone()
                };
                says_the_same(&with_old_id, &old.options)
            })
        })
    }
}

/// Whether the options are the same but for what setUp, setDown and setAuto change.
fn says_the_same(options: &ServerOptions, old: &ServerOptions) -> bool {
    let mut options = options.clone();
    options.health.mode = old.health.mode;
    options == *old
}

/// A cache that several pools share is the one that the first of them had.
fn keep_caches(spec: &mut Spec, previous: Option<&Config>) {
    let wishes: Vec<(String, CacheKey)> = spec
        .pools
        .iter()
        .filter_map(|(name, pool)| Some((name.clone(), pool.cache?)))
        .collect();
    let mut kept: Vec<Arc<PacketCache>> = spec
        .caches
        .iter()
        .filter_map(|cache| cache.live.clone())
        .collect();
    for (name, key) in wishes {
        let cache = spec.cache(key);
        if cache.live.is_some() {
            continue;
        }
        // Pools that shared a cache and do not any more: the first keeps it.
        let old = previous.and_then(|previous| cache_of(previous, &name));
        let old = old.filter(|old| {
            *old.options() == cache.options && !kept.iter().any(|taken| Arc::ptr_eq(taken, old))
        });
        let live = old.unwrap_or_else(|| Arc::new(PacketCache::new(cache.options.clone())));
        kept.push(Arc::clone(&live));
        cache.live = Some(live);
    }
}

fn cache_of(config: &Config, pool: &str) -> Option<Arc<PacketCache>> {
    config.pool(config.pool_names.find(pool)?)?.cache.clone()
}

fn keep_chains(specs: &mut ChainSpecs, previous: &Config) {
    let chains = &previous.chains;
    keep_rules(&mut specs.query, previous.listed_rules());
    keep_rules(&mut specs.cache_miss, &chains.cache_miss);
    keep_rules(&mut specs.response, &chains.response);
    keep_rules(&mut specs.cache_hit, &chains.cache_hit);
    keep_rules(&mut specs.cache_inserted, &chains.cache_inserted);
    keep_rules(&mut specs.self_answered, &chains.self_answered);
    keep_rules(&mut specs.timeout, &chains.timeout);
    keep_rules(&mut specs.xfr, &chains.xfr);
}

/// What the rules of a chain do, as it is known again.
trait Kept {
    fn text(&self) -> String;
    /// Goes on with what the one of the same rule before has counted.
    fn go_on(&self, former: &Self);
}

impl Kept for dyn Action {
    fn text(&self) -> String {
        self.describe()
    }

    fn go_on(&self, former: &Self) {
        self.go_on_from(former);
    }
}

impl Kept for dyn ResponseAction {
    fn text(&self) -> String {
        self.describe()
    }

    /// None of them has a limit.
    fn go_on(&self, _: &Self) {}
}

fn keep_rules<A: Kept + ?Sized>(specs: &mut [RuleSpec<A>], old_rules: &[RuleOf<A>]) {
    // Names need not be different: each rule of a name goes on with another one of that name. What the file names by its
    // UUID is nobody else's, though it reads the same.
    let is_given = |old: &RuleOf<A>| {
        let mut given = specs.iter().filter(|spec| spec.uuid_given);
        given.any(|spec| spec.rule.uuid == old.uuid)
    };
    let mut is_taken: Vec<bool> = old_rules.iter().map(is_given).collect();
    for (place, spec) in specs.iter_mut().enumerate() {
        let candidates = (old_rules, is_taken.as_slice());
        let Some(at) = same_rule(spec, place, candidates) else {
            continue;
        };
        is_taken[at] = true;
        let old = &old_rules[at];
        spec.rule.matches = Arc::clone(&old.matches);
        spec.rule.selector.go_on_from(&*old.selector);
        spec.rule.action.go_on(&old.action);
        if !spec.uuid_given {
            spec.rule.uuid.clone_from(&old.uuid);
        }
    }
}

/// Which of the old rules it is.
fn same_rule<A: Kept + ?Sized>(
    spec: &RuleSpec<A>,
    place: usize,
    (old_rules, is_taken): (&[RuleOf<A>], &[bool]),
) -> Option<usize> {
    let rule = &spec.rule;
    let by_uuid = old_rules.iter().position(|old| old.uuid == rule.uuid);
    if by_uuid.is_some() || spec.uuid_given {
        return by_uuid;
    }
    if !rule.name.is_empty() {
        let mut old_rules = old_rules.iter().zip(is_taken);
        return old_rules.position(|(old, is_taken)| !is_taken && old.name == rule.name);
    }
    let old = old_rules.get(place)?;
    let is_same = !is_taken[place]
        && old.name.is_empty()
        && old.selector.describe() == rule.selector.describe()
        && old.action.text() == rule.action.text();
    is_same.then_some(place)
}
