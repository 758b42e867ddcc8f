//! Spec → Config: everything resolved, everything checked, nothing opened: zones are read by [`crate::local`].

use super::error::{ConfigError, Fault};
use super::identity;
use super::place::Place;
use super::pools::PoolId;
use super::spec::{ListenerSpec, ProxiesSpec, RuleSpec, Spec};
use super::{Config, FastOpen, Listener, Pinning, Xdp, ZoneOptions, authority, defaults, named};
use crate::backend::policy::Circle;
use crate::backend::pool::Pool;
use crate::backend::server::Server;
use crate::pipeline::muted::mute;
use crate::pipeline::proxy::Proxies;
use crate::pipeline::rules::actions::count::counting;
use crate::pipeline::rules::{Chains, Rule, RuleOf};
use crate::querycount::QueryCounters;
use std::sync::Arc;

/// Makes the configuration that workers read. Objects that live on (servers, caches, counters) are those of `previous`
/// where they mean the same, and are left in `spec`.
///
/// # Errors
/// [`ConfigError::Faults`] with everything that is wrong, each with its place.
pub fn derive(spec: &mut Spec, previous: Option<&Config>) -> Result<Config, ConfigError> {
    let mut faults = Vec::new();
    let mut listeners = listeners(&spec.listeners, &mut faults);
    let named = named::listeners(&spec.paths, &mut faults);
    if listeners.is_empty() && named.is_empty() {
        listeners.push(default_listener());
    }
    for listener in &mut listeners {
        listener.tcp_fast_open.key = spec.tcp_fast_open_key;
    }
    if !faults.is_empty() {
        return Err(ConfigError::Faults(faults));
    }
    let next_server = identity::keep(spec, previous);
    let servers: Vec<Arc<Server>> = spec
        .servers
        .iter()
        .filter_map(|server| server.live.clone())
        .collect();
    let mut config = Config {
        generation: previous.map_or(1, |previous| previous.generation + 1),
        acl: spec.acl.iter().copied().collect(),
        proxies: proxies(&spec.proxies),
        rules: query_rules(spec),
        chains: chains(spec),
        pools: pools(spec, &servers, previous),
        pool_names: spec.pool_names.clone(),
        modes: spec
            .servers
            .iter()
            .map(|server| server.options.health.mode)
            .collect(),
        uses_subnets: servers
            .iter()
            .any(|server| server.options.use_client_subnet)
            || spec.pools.values().any(|pool| pool.subnets.are_added),
        servers,
        next_server,
        named,
        muted: spec.muted.iter().copied().collect(),
        traffic: Vec::new(),
        tuning: spec.tuning.clone(),
        webserver: spec.web.derive(),
        server_id: spec.server_id.clone().unwrap_or_default(),
        custom_metrics: Arc::clone(&spec.custom_metrics),
        ears: spec.ears.clone(),
        console: spec.console.derive(),
        carbon: spec.carbon.clone(),
        query_counters: counters(spec),
        local: Arc::default(),
        zone_options: zone_options(spec),
        authority: authority::resolve(spec, previous),
        capabilities: spec.capabilities.clone(),
        lua: None,
        ..Config::default()
    };
    config.listen(listeners);
    Ok(config)
}

/// The chain of addAction, behind the rule that counts where setQueryCount wants one.
fn query_rules(spec: &Spec) -> Vec<Rule> {
    let mut all = rules(&spec.chains.query);
    let count = &spec.query_count;
    if count.is_on {
        all.insert(0, counting(&count.counters, count.filter.as_ref()));
    }
    all
}

/// What that rule counts in.
fn counters(spec: &Spec) -> Option<Arc<QueryCounters>> {
    let count = &spec.query_count;
    count.is_on.then(|| Arc::clone(&count.counters))
}

/// The chains beside that of addAction.
fn chains(spec: &Spec) -> Chains {
    let specs = &spec.chains;
    let mut chains = Chains {
        cache_miss: rules(&specs.cache_miss),
        response: rules(&specs.response),
        cache_hit: rules(&specs.cache_hit),
        cache_inserted: rules(&specs.cache_inserted),
        self_answered: rules(&specs.self_answered),
        timeout: rules(&specs.timeout),
        xfr: rules(&specs.xfr),
    };
    if !spec.muted.is_empty() {
        mute(&mut chains);
    }
    chains
}

fn rules<A: ?Sized>(specs: &[RuleSpec<A>]) -> Vec<RuleOf<A>> {
    specs.iter().map(|spec| spec.rule.clone()).collect()
}

/// One listener per address, with all its lines.
fn listeners(lines: &[ListenerSpec], faults: &mut Vec<Fault>) -> Vec<Listener> {
    let mut listeners: Vec<Listener> = Vec::new();
    for line in lines {
        match listeners
            .iter_mut()
            .find(|listener| listener.address == line.address)
        {
            Some(listener) => add_line(listener, line, faults),
            None => listeners.push(Listener {
                address: line.address,
                sockets: 1,
                reuse_port: line.reuse_port,
                xdp: line.xdp.clone(),
                tcp_listen_queue_size: line.tcp_listen_queue_size,
                maximum_tcp_connections: line.maximum_tcp_connections,
                pinning: vec![Pinning::of(line)],
                tcp_in_flight: line.tcp_in_flight,
                interface: line.interface.clone(),
                tcp_fast_open: FastOpen {
                    queue: line.tcp_fast_open_queue,
                    key: None,
                },
                proxy_protocol: line.proxy_protocol,
            }),
        }
    }
    listeners
}

fn default_listener() -> Listener {
    Listener {
        address: defaults::LISTENER,
        sockets: 1,
        reuse_port: false,
        xdp: Xdp::Off,
        tcp_listen_queue_size: defaults::TCP_LISTEN_QUEUE_SIZE,
        maximum_tcp_connections: 0,
        pinning: vec![Pinning::default()],
        tcp_in_flight: 0,
        interface: None,
        tcp_fast_open: FastOpen::default(),
        proxy_protocol: true,
    }
}

fn proxies(spec: &ProxiesSpec) -> Option<Box<Proxies>> {
    if spec.acl.is_empty() {
        return None;
    }
    Some(Box::new(Proxies {
        acl: spec.acl.iter().copied().collect(),
        apply_acl: spec.apply_acl,
        maximum: spec.maximum,
    }))
}

fn add_line(listener: &mut Listener, line: &ListenerSpec, faults: &mut Vec<Fault>) {
    if !(listener.reuse_port && line.reuse_port) {
        faults.push(Fault {
            place: line.place.clone(),
            text: format!(
                "{} is served by an earlier line already: several lines for one address each need reusePort=true",
                line.address
            ),
        });
    }
    if listener.proxy_protocol != line.proxy_protocol {
        faults.push(Fault {
            place: line.place.clone(),
            text: format!(
                "{} has enableProxyProtocol=false on one line and not on another: all lines of an address are served alike",
                line.address
            ),
        });
    }
    if listener.interface != line.interface {
        faults.push(Fault {
            place: line.place.clone(),
            text: format!(
                "{} has interface='{}' on an earlier line and '{}' here: an address is served on one interface, or on all",
                line.address,
                listener.interface.as_deref().unwrap_or_default(),
                line.interface.as_deref().unwrap_or_default()
            ),
        });
    }
    listener.sockets += 1;
    listener.pinning.push(Pinning::of(line));
    listener.tcp_listen_queue_size = listener
        .tcp_listen_queue_size
        .max(line.tcp_listen_queue_size);
    listener.tcp_in_flight = listener.tcp_in_flight.max(line.tcp_in_flight);
    let queue = &mut listener.tcp_fast_open.queue;
    *queue = line.tcp_fast_open_queue.max(*queue);
    // One line without a limit takes all that come.
    listener.maximum_tcp_connections = match (
        listener.maximum_tcp_connections,
        line.maximum_tcp_connections,
    ) {
        (0, _) | (_, 0) => 0,
        (one, other) => one + other,
    };
    match join(&listener.xdp, &line.xdp) {
        Some(xdp) => listener.xdp = xdp,
        None => faults.push(mixture(line.place.clone(), line)),
    }
}

fn mixture(place: Place, line: &ListenerSpec) -> Fault {
    let text = format!(
        "{} has xskSocket on one line and xdp on another: an address takes its queues either from newXsk or from xdp",
        line.address
    );
    Fault { place, text }
}

/// What two lines for one address ask for together; `None` when they do not fit.
fn join(one: &Xdp, other: &Xdp) -> Option<Xdp> {
    match (one, other) {
        (xdp, Xdp::Off) | (Xdp::Off, xdp) => Some(xdp.clone()),
        (Xdp::Queues(queues), Xdp::Queues(more)) => Some(Xdp::Queues(union(queues, more))),
        (Xdp::Queues(_), _) | (_, Xdp::Queues(_)) => None,
        (Xdp::Auto, _) | (_, Xdp::Auto) => Some(Xdp::Auto),
        (Xdp::Interfaces(names), Xdp::Interfaces(more)) => {
            Some(Xdp::Interfaces(union(names, more)))
        }
    }
}

fn union<T: Clone + PartialEq>(list: &[T], more: &[T]) -> Vec<T> {
    let new = more.iter().filter(|item| !list.contains(item));
    list.iter().chain(new).cloned().collect()
}

/// By number: the pools of this configuration, each with its servers by `order`.
fn pools(
    spec: &Spec,
    servers: &[Arc<Server>],
    previous: Option<&Config>,
) -> Vec<Option<Arc<Pool>>> {
    let mut pools = Vec::new();
    for (name, pool) in &spec.pools {
        let Some(PoolId(number)) = spec.pool_names.find(name) else {
            continue;
        };
        let mut members: Vec<_> = servers
            .iter()
            .filter(|server| server.options.pools.contains(name))
            .cloned()
            .collect();
        members.sort_by_key(|server| server.options.order);
        let old = previous.and_then(|previous| previous.pool(PoolId(number)));
        let number = usize::from(number);
        pools.resize(pools.len().max(number + 1), None);
        let (policy, chooser) = match (pool.policy, &pool.chooser) {
            (None, None) => (spec.policy, spec.chooser.clone()),
            (own, chooser) => (own.unwrap_or_default(), chooser.clone()),
        };
        pools[number] = Some(Arc::new(Pool {
            name: name.clone(),
            circle: Circle::new(policy, &members, &spec.tuning.policies),
            servers: members,
            cache: pool.cache.and_then(|key| spec.live_cache(key)),
            policy,
            chooser,
            position: old.map(|old| Arc::clone(&old.position)).unwrap_or_default(),
            hedging: old.map(|old| Arc::clone(&old.hedging)).unwrap_or_default(),
            subnets: pool.subnets,
        }));
    }
    pools
}

fn zone_options(spec: &Spec) -> Vec<ZoneOptions> {
    let number = |name: &String| spec.pool_names.find(name);
    let zones = spec.zones.list.iter().map(|zone| ZoneOptions {
        apex: zone.settings.apex.clone(),
        pools: zone.pools.iter().filter_map(number).collect(),
        statistics: zone.statistics,
    });
    zones.collect()
}
