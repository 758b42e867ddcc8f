//! What stays the same object when a configuration follows another (docs/configuration.md, "Reload"): a server by its id, else
//! its name, else its address and options; a rule by its UUID if the file gives one, else its name, else its text and place;
//! a cache by its pool. What the limits of a rule or a server have counted lives on with it.

use super::Config;
use super::spec::{CacheKey, ChainSpecs, RuleSpec, ServerSpec, Spec};
use crate::backend::server::{Server, ServerId, ServerOptions};
use crate::pipeline::cache::PacketCache;
use crate::pipeline::rules::response::ResponseAction;
use crate::pipeline::rules::{Action, RuleOf};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::Arc;
use std::vec::IntoIter;

/// Puts the live objects of `previous` where `spec` means the same, and new ones elsewhere. Returns the number of the
/// next new server.
pub(super) fn keep(spec: &mut Spec, previous: Option<&Config>) -> u32 {
    keep_caches(spec, previous);
    let mut old_servers = OldServers::new(previous.map_or(&[], |previous| &previous.servers));
    let mut next_server = previous.map_or(0, |previous| previous.next_server);
    // Several may have one name: none goes on with what another one still is, unchanged.
    let same: Vec<_> = spec
        .servers
        .iter()
        .map(|server| old_servers.take_same(server))
        .collect();
    for (server, same) in spec.servers.iter_mut().zip(same) {
        let old = same.or_else(|| old_servers.take_namesake(server));
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
    /// Several may have one name,
    by_name: HashMap<&'o str, Vec<usize>>,
    /// and several one address.
    by_address: HashMap<SocketAddr, Vec<usize>>,
}

impl<'o> OldServers<'o> {
    fn new(servers: &'o [Arc<Server>]) -> OldServers<'o> {
        let ids = servers.iter().map(|server| server.options.id.as_str());
        OldServers {
            by_id: ids.enumerate().map(|(at, id)| (id, at)).collect(),
            by_name: places_by(servers, |server| server.options.name.as_str()),
            by_address: places_by(servers, |server| server.options.address),
            servers: servers.iter().map(Some).collect(),
        }
    }

    /// The one that `server` is, unchanged but for what was edited at run time.
    fn take_same(&mut self, server: &ServerSpec) -> Option<Arc<Server>> {
        let options = &server.options;
        // An edit at run time finds the server that it edits by its id, whoever gave that.
        let at = if server.id_given || server.live.is_some() {
            *self.by_id.get(options.id.as_str())?
        } else if options.name.is_empty() {
            self.with_options(self.by_address.get(&options.address)?, options)?
        } else {
            self.with_options(self.by_name.get(options.name.as_str())?, options)?
        };
        self.servers[at].take().map(Arc::clone)
    }

    /// The one whose name `server` has, with other options.
    fn take_namesake(&mut self, server: &ServerSpec) -> Option<Arc<Server>> {
        if server.id_given || server.live.is_some() || server.options.name.is_empty() {
            return None;
        }
        let places = self.by_name.get(server.options.name.as_str())?;
        let old = places.iter().find_map(|at| self.servers[*at].take());
        old.map(Arc::clone)
    }

    /// The first of `candidates` that has these options and goes on as nobody else yet.
    fn with_options(&self, candidates: &[usize], options: &ServerOptions) -> Option<usize> {
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

/// Where those of a key stand, first ones first.
fn places_by<'o, T, K: Eq + Hash>(
    all: &'o [T],
    key: impl Fn(&'o T) -> K,
) -> HashMap<K, Vec<usize>> {
    let mut places: HashMap<K, Vec<usize>> = HashMap::new();
    for (at, one) in all.iter().enumerate() {
        places.entry(key(one)).or_default().push(at);
    }
    places
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
    let mut old_rules = OldRules::new(old_rules, specs);
    for (place, spec) in specs.iter_mut().enumerate() {
        let Some(old) = old_rules.take(spec, place) else {
            continue;
        };
        spec.rule.matches = Arc::clone(&old.matches);
        spec.rule.selector.go_on_from(&*old.selector);
        spec.rule.action.go_on(&old.action);
        if !spec.uuid_given {
            spec.rule.uuid.clone_from(&old.uuid);
        }
    }
}

/// The rules of a chain of the configuration before, each to be found by what can be its identity, and taken once. Found
/// by tables: a chain may have tens of thousands.
struct OldRules<'o, A: ?Sized> {
    rules: Vec<Option<&'o RuleOf<A>>>,
    /// Those whose UUID the new file gives, by it in small letters (RFC 9562 section 4: letters of either case are the
    /// same).
    by_uuid: HashMap<String, &'o RuleOf<A>>,
    /// The others. Names need not be different: each rule of a name goes on with another one of that name.
    by_name: HashMap<&'o str, IntoIter<usize>>,
}

impl<'o, A: Kept + ?Sized> OldRules<'o, A> {
    fn new(old_rules: &'o [RuleOf<A>], specs: &[RuleSpec<A>]) -> OldRules<'o, A> {
        let given = specs.iter().filter(|spec| spec.uuid_given);
        let given: HashSet<String> = given
            .map(|spec| spec.rule.uuid.to_ascii_lowercase())
            .collect();
        let mut by_uuid = HashMap::new();
        let mut rules = Vec::with_capacity(old_rules.len());
        for old in old_rules {
            let uuid = old.uuid.to_ascii_lowercase();
            // What the file names by its UUID is nobody else's, though it reads the same.
            let is_given = given.contains(&uuid);
            rules.push((!is_given).then_some(old));
            if is_given {
                by_uuid.entry(uuid).or_insert(old);
            }
        }
        let by_name = places_by(old_rules, |old| old.name.as_str());
        let by_name = by_name
            .into_iter()
            .map(|(name, places)| (name, places.into_iter()));
        OldRules {
            rules,
            by_uuid,
            by_name: by_name.collect(),
        }
    }

    /// The one that `spec`, which stands at `place`, goes on with.
    fn take(&mut self, spec: &RuleSpec<A>, place: usize) -> Option<&'o RuleOf<A>> {
        let rule = &spec.rule;
        if spec.uuid_given {
            return self.by_uuid.remove(&rule.uuid.to_ascii_lowercase());
        }
        if rule.name.is_empty() {
            let old = self.rules.get_mut(place)?;
            return old.take_if(|old| reads_the_same(rule, old));
        }
        let places = self.by_name.get_mut(rule.name.as_str())?;
        places.find_map(|at| self.rules[at].take())
    }
}

fn reads_the_same<A: Kept + ?Sized>(rule: &RuleOf<A>, old: &RuleOf<A>) -> bool {
    old.name.is_empty()
        && old.selector.describe() == rule.selector.describe()
        && old.action.text() == rule.action.text()
}
