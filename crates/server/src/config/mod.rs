//! Configuration: [`spec::Spec`] is what people wrote, mutable, owned by the control thread; [`Config`] is what workers
//! read: resolved, immutable, swapped as a whole. Live state (servers, caches, counters) is in objects that a Config
//! points to.

pub mod addresses;
pub mod authority;
pub mod by_address;
pub mod cache;
pub mod console;
pub mod defaults;
pub mod derive;
pub mod error;
mod identity;
pub mod load;
pub mod lua;
pub mod named;
mod pinning;
pub mod place;
pub mod pools;
pub mod secret;
pub mod spec;
#[cfg(test)]
mod tests;
mod uuid;
pub mod web;
pub mod zones;

pub use cache::Cleaning;
pub use derive::derive;
pub use error::ConfigError;
pub use load::{Overrides, load};
pub use lua::state::LuaState;
pub use named::{LocalAddress, NamedListener};
pub use pinning::{Pinning, processors_of};
pub use web::Webserver;

use self::lua::datagrams::Ear;
use crate::backend::policy::PolicyTuning;
use crate::backend::pool::Pool;
use crate::backend::server::{HealthMode, Server};
use crate::control::carbon::Export;
use crate::control::metrics::custom::CustomMetrics;
use crate::counters::Traffic;
use crate::local::Local;
use crate::pipeline::acl::Netmasks;
use crate::pipeline::authority::Authority;
use crate::pipeline::proxy::Proxies;
#[cfg(doc)]
use crate::pipeline::query::Protocol;
use crate::pipeline::rings::RingOptions;
use crate::pipeline::rules::actions::count::COUNTING;
use crate::pipeline::rules::{Chains, Rule};
use crate::pipeline::subnet::SubnetTuning;
use crate::querycount::QueryCounters;
use by_address::ByAddress;
use caps::Capability;
use console::Console;
use pools::{PoolId, PoolNames};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::name::NameBuf;
use xsk::{AttachMode, BindMode};

/// One immutable configuration: a query sees exactly one of them (invariant I8). The default one serves nobody.
#[derive(Clone, Default)]
pub struct Config {
    /// Grows by one with each swap.
    pub generation: u64,
    pub acl: Netmasks,
    /// Who passes queries on with a header of the PROXY protocol; `None`: nobody.
    pub proxies: Option<Box<Proxies>>,
    pub rules: Vec<Rule>,
    pub chains: Chains,
    /// By [`PoolId`]; `None` where a name is known and no pool exists in this configuration.
    pub pools: Vec<Option<Arc<Pool>>>,
    /// All pool names so far.
    pub pool_names: PoolNames,
    /// All servers, by order of configuration.
    pub servers: Vec<Arc<Server>>,
    /// What the configuration forces, by the same order; [`Config::take_effect`] sees to it.
    pub modes: Vec<HealthMode>,
    /// The number of the next new server, never given before.
    pub next_server: u32,
    /// See [`Config::listen`].
    pub listeners: Vec<Listener>,
    /// The same by address.
    pub by_address: ByAddress,
    /// Paths that are served; their places are behind those of all `listeners`.
    pub named: Vec<NamedListener>,
    /// ClientState.muted: listeners that answer nobody over UDP.
    pub muted: Vec<SocketAddr>,
    /// What passes each listener, by their places and by [`Protocol`]; none before [`Config::count_traffic`].
    pub traffic: Vec<[Arc<Traffic>; 2]>,
    pub tuning: Tuning,
    /// Some server has useClientSubnet.
    pub uses_subnets: bool,
    pub webserver: Option<Webserver>,
    /// setServerID; empty when not given.
    pub server_id: String,
    /// declareMetric: shared with the Lua state that counts them.
    pub custom_metrics: Arc<CustomMetrics>,
    /// Paths where functions hear other processes (newNetworkListener).
    pub ears: Vec<Arc<Ear>>,
    pub console: Console,
    /// carbonServer.
    pub carbon: Vec<Export>,
    /// What setQueryCount counts; `None`: it is off.
    pub query_counters: Option<Arc<QueryCounters>>,
    /// The zones of `millrace.addZone`.
    pub local: Arc<Local>,
    /// What of these zones is for the pipeline alone, in their order.
    pub zone_options: Vec<ZoneOptions>,
    /// How zones are answered from.
    pub authority: Authority,
    /// addCapabilitiesToRetain: taken at start.
    pub capabilities: Vec<Capability>,
    /// The state whose functions the rules of this configuration call; `None` before [`LuaState::derive`].
    pub lua: Option<Arc<LuaState>>,
}

/// What a listener says of the connections that it takes, and of headers before what they carry.
#[derive(Debug, Clone, Copy)]
pub struct Streams {
    /// maxConcurrentTCPConnections; 0 is no limit.
    pub maximum_connections: usize,
    /// maxInFlight: queries on a connection at a time; 0 is one, in order.
    pub in_flight: usize,
    /// enableProxyProtocol.
    pub proxy_protocol: bool,
}

impl Config {
    /// To be called as soon as this configuration serves: servers that serve on are up, down or checked as it says.
    /// What setUp and setDown forced and the file does not hold is dropped.
    pub fn take_effect(&self) {
        for (server, mode) in self.servers.iter().zip(&self.modes) {
            server.state.set_mode(*mode);
        }
    }

    /// How long the last answer to a query that has left may be waited for.
    pub fn longest_timeout(&self) -> Duration {
        let own = self
            .servers
            .iter()
            .filter_map(|server| server.options.udp_timeout);
        own.chain([self.tuning.udp_timeout])
            .max()
            .unwrap_or_default()
    }

    /// To be called before this configuration serves, where it was derived a while ago: servers that succeed others of
    /// `previous` are as well as those are by now.
    pub fn catch_up_with(&self, previous: &Config) {
        for server in &self.servers {
            let others = previous.servers.iter();
            let others = others.filter(|old| !Arc::ptr_eq(old, server));
            others.for_each(|old| server.catch_up_with(old));
        }
    }

    /// The rules of addAction: `rules` without the one that setQueryCount has before them.
    pub fn listed_rules(&self) -> &[Rule] {
        match self.rules.split_first() {
            Some((first, rest)) if first.uuid == COUNTING => rest,
            _ => &self.rules,
        }
    }

    /// To be called before this configuration serves: opens what actions of its rules need, and listens where functions hear others.
    pub fn open_actions(&self) {
        for rule in self.rules.iter().chain(&self.chains.cache_miss) {
            rule.action.open();
        }
        for rule in self.chains.on_responses().into_iter().flatten() {
            rule.action.open();
        }
        if let Some(state) = &self.lua {
            self.ears.iter().for_each(|ear| ear.open(state));
        }
    }

    /// Gets every listener and zone counters for so many shards: those that `previous` had for it, or new ones; and metrics
    /// of the operator's own count on from here. The zones must be there.
    pub fn count_traffic(&mut self, shards: usize, previous: Option<&Config>) {
        if let Some(previous) = previous {
            self.custom_metrics.count_on(&previous.custom_metrics);
        }
        let traffic = |address: LocalAddress| {
            let previous = previous.and_then(|previous| {
                let place = previous.local_addresses().position(|old| old == address)?;
                previous.traffic.get(place).cloned()
            });
            previous.unwrap_or_else(|| [(); 2].map(|()| Arc::new(Traffic::new(shards))))
        };
        self.traffic = self.local_addresses().map(traffic).collect();
        self.count_zones(shards, previous);
    }

    /// Gives it these listeners.
    pub fn listen(&mut self, listeners: Vec<Listener>) {
        self.by_address = ByAddress::of(&listeners);
        self.listeners = listeners;
    }

    /// The place of the listener that serves `destination`.
    #[inline]
    pub fn listener_of(&self, destination: &SocketAddr) -> Option<u16> {
        self.by_address.find(destination)
    }

    /// What is served, each in the place of its listener.
    pub fn local_addresses(&self) -> impl Iterator<Item = LocalAddress> {
        let addresses = self.listeners.iter();
        let addresses = addresses.map(|listener| LocalAddress::Ip(listener.address));
        let paths = self.named.iter().map(|named| &named.path);
        addresses.chain(paths.map(|path| LocalAddress::Path(Arc::clone(path))))
    }

    /// The place of the listener that serves what came by `address`.
    pub fn place_of(&self, address: &LocalAddress) -> Option<u16> {
        let path = match address {
            LocalAddress::Ip(address) => return self.listener_of(address),
            LocalAddress::Path(path) => path,
        };
        let place = self.named.iter().position(|named| named.path == *path)?;
        u16::try_from(self.listeners.len() + place).ok()
    }

    /// The path of the listener in this place; `None`: it has an address, or there is none.
    pub fn path_at(&self, place: u16) -> Option<&Arc<Path>> {
        let place = usize::from(place).checked_sub(self.listeners.len())?;
        self.named.get(place).map(|named| &named.path)
    }

    /// What the listener in this place says of connections, be it an address or a path; `None`: there is none.
    pub fn streams_at(&self, place: u16) -> Option<Streams> {
        let place = usize::from(place);
        if let Some(listener) = self.listeners.get(place) {
            return Some(Streams {
                maximum_connections: listener.maximum_tcp_connections,
                in_flight: listener.tcp_in_flight,
                proxy_protocol: listener.proxy_protocol,
            });
        }
        let named = self.named.get(place - self.listeners.len())?;
        Some(Streams {
            maximum_connections: named.maximum_tcp_connections,
            in_flight: named.tcp_in_flight,
            proxy_protocol: named.proxy_protocol,
        })
    }

    pub fn pool(&self, id: PoolId) -> Option<&Arc<Pool>> {
        self.pools.get(usize::from(id.0))?.as_ref()
    }
}

/// What a zone is besides its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneOptions {
    pub apex: NameBuf,
    /// The pools that it serves; none: the default one.
    pub pools: Vec<PoolId>,
    /// It has counters of its own.
    pub statistics: bool,
}

/// One address that is served, with all its `addLocal` lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub address: SocketAddr,
    /// How many `addLocal` lines name it: sockets in its SO_REUSEPORT group.
    pub sockets: usize,
    pub reuse_port: bool,
    pub xdp: Xdp,
    /// tcpListenQueueSize, in connections.
    pub tcp_listen_queue_size: u32,
    /// maxConcurrentTCPConnections; 0 is no limit.
    pub maximum_tcp_connections: usize,
    /// cpus of each `addLocal` line.
    pub pinning: Vec<Pinning>,
    /// maxInFlight: queries on a TCP connection at a time; 0 is one, in order.
    pub tcp_in_flight: usize,
    /// The only interface by which queries come.
    pub interface: Option<String>,
    pub tcp_fast_open: FastOpen,
    /// enableProxyProtocol.
    pub proxy_protocol: bool,
}

/// TCP Fast Open of a listener (RFC 7413).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FastOpen {
    /// tcpFastOpenQueueSize: connections whose first query came with the SYN and which are not accepted yet; 0: it is off.
    pub queue: u32,
    /// setTCPFastOpenKey; `None`: the kernel's own.
    pub key: Option<[u8; 16]>,
}

/// Where AF_XDP is wanted for a listener or a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Xdp {
    /// Kernel sockets only.
    Off,
    /// `xdp=true`: every queue of the right interfaces, found from the address or the route.
    Auto,
    /// `xdp={"ens3f0", …}`: every queue of these interfaces.
    Interfaces(Vec<String>),
    /// dnsdist's `newXsk` objects: exactly these queues.
    Queues(Vec<XskQueue>),
}

/// What `newXsk` was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XskQueue {
    pub interface: String,
    pub queue: u32,
    /// The pinned XSKMAP of a program that somebody else loaded.
    pub map_path: String,
}

/// Limits and time-outs that workers read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// millrace.setKeepXDP: programs stay on their interfaces when the process ends.
    pub keep_xdp: bool,
    /// millrace.setXDPMode: where programs run, and how frames come from and go to the hardware.
    pub attach_mode: AttachMode,
    pub bind_mode: BindMode,
    /// millrace.setBusyPoll; `None`: workers sleep when nothing is there.
    pub busy_poll: Option<xsk::BusyPoll>,
    /// setUDPTimeout.
    pub udp_timeout: Duration,
    /// setMaxUDPOutstanding: queries in flight.
    pub maximum_udp_outstanding: u32,
    /// setUDPSocketBufferSizes.
    pub udp_buffers: UdpBuffers,
    /// setDropEmptyQueries.
    pub drop_empty_queries: bool,
    /// setServFailWhenNoServer.
    pub servfail_when_no_server: bool,
    /// setVerboseHealthChecks: checks that fail are logged.
    pub verbose_health_checks: bool,
    /// fixupCase: nothing depends on it.
    pub fixup_case: bool,
    /// setStaleCacheEntriesTTL, in seconds: when no server of a pool is up, its cache serves what expired no longer ago.
    pub stale_cache_entries_ttl: u32,
    /// setCacheCleaningDelay, setCacheCleaningPercentage.
    pub cleaning: Cleaning,
    /// setAddEDNSToSelfGeneratedResponses.
    pub edns_in_self_generated: bool,
    /// setPayloadSizeOnSelfGeneratedAnswers, in bytes.
    pub payload_size_self_generated: u16,
    /// setMaxTCPConnectionsPerClient … and its relatives: the limits of crate::frontend::tcp.
    pub tcp: TcpTuning,
    /// setRingBuffersSize, setRingBuffersOptions: taken at start.
    pub rings: RingOptions,
    pub policies: PolicyTuning,
    /// What servers with useClientSubnet are told.
    pub subnets: SubnetTuning,
    /// setAllowEmptyResponse: NOERROR and NXDOMAIN without a question are answers.
    pub allow_empty_responses: bool,
    /// truncateTC: what a server truncated is cut down to its question.
    pub truncate_tc: bool,
}

/// SO_RCVBUF and SO_SNDBUF of UDP sockets, at listeners and towards servers, in bytes; 0: what they have without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpBuffers {
    pub receive: usize,
    pub send: usize,
}

/// Limits of TCP clients and of connections to backends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpTuning {
    /// setMaxTCPClientThreads: threads of crate::runtime, taken at start.
    pub threads: usize,
    /// setTCPRecvTimeout; zero is no limit.
    pub receive_timeout: Duration,
    /// setTCPSendTimeout; zero is no limit.
    pub send_timeout: Duration,
    /// setMaxTCPQueriesPerConnection; 0 is no limit.
    pub maximum_queries_per_connection: usize,
    /// setMaxTCPConnectionDuration; zero is no limit.
    pub maximum_connection_duration: Duration,
    /// setMaxTCPConnectionsPerClient; 0 is no limit.
    pub maximum_connections_per_client: usize,
    /// Over all listeners; one whose maxConcurrentTCPConnections is more takes as many.
    pub maximum_connections: usize,
    /// setTCPConnectionsOverloadThreshold, in percent of the two limits above and of a listener's own: see
    /// [`hurry`](Self::hurry). 0 is never.
    pub overload_threshold: u8,
    /// setMaxTCPConnectionRatePerClient, in connections a second; 0 is no limit.
    pub maximum_connection_rate_per_client: u32,
    /// setTCPConnectionRateInterval: over so long.
    pub connection_rate_interval: Duration,
    /// setBanDurationForExceedingTCPTLSRate.
    pub rate_ban: Duration,
    /// setTCPConnectionsMaskV4, setTCPConnectionsMaskV6: who is the same client, in bits.
    pub client_bits_v4: u8,
    pub client_bits_v6: u8,
    /// setTCPConnectionsMaskV4Port: how many bits of an IPv4 client's port tell it from others of its address.
    pub client_bits_port_v4: u8,
    /// setMaxTCPReadIOsPerQuery: so often may be read until a query is there; 0 is no limit.
    pub maximum_reads_per_query: u32,
    /// setBanDurationForExceedingMaxReadIOsPerQuery.
    pub reads_ban: Duration,
    /// setMaxCachedTCPConnectionsPerDownstream: idle connections to a backend that are kept.
    pub maximum_cached_connections: usize,
    /// setTCPDownstreamMaxIdleTime: for so long.
    pub downstream_idle_timeout: Duration,
}

impl TcpTuning {
    /// Threads, where nothing is said. Two, so that a slow scrape or a slow reload does not hold up TCP; more would take time
    /// from workers.
    pub const THREADS: usize = 2;

    /// The most threads: each has a stack, and the system has a limit of them.
    pub const THREADS_MAX: usize = 1_024;

    /// Whether so many connections are so near to a limit of them (0 is none) that new ones are to [`hurry`](Self::hurry).
    pub fn is_overload(&self, connections: usize, limit: usize) -> bool {
        let threshold = usize::from(self.overload_threshold);
        threshold > 0 && limit > 0 && connections * 100 >= limit.saturating_mul(threshold)
    }

    /// What the manual on setTCPConnectionsOverloadThreshold leaves to a connection then: one query, which is waited for half a
    /// second, and five seconds in all.
    pub fn hurry(&mut self) {
        const RECEIVE_TIMEOUT: Duration = Duration::from_millis(500);
        const DURATION: Duration = Duration::from_secs(5);
        self.maximum_queries_per_connection = 1;
        self.receive_timeout = self.receive_timeout.min(RECEIVE_TIMEOUT);
        self.maximum_connection_duration = match self.maximum_connection_duration {
            limit if limit.is_zero() => DURATION,
            limit => limit.min(DURATION),
        };
    }
}

impl Default for Tuning {
    /// dnsdist's defaults.
    fn default() -> Tuning {
        Tuning {
            keep_xdp: false,
            attach_mode: AttachMode::Auto,
            bind_mode: BindMode::Auto,
            busy_poll: None,
            udp_timeout: Duration::from_secs(2),
            maximum_udp_outstanding: 65_535,
            udp_buffers: UdpBuffers::default(),
            drop_empty_queries: false,
            servfail_when_no_server: false,
            verbose_health_checks: false,
            fixup_case: false,
            stale_cache_entries_ttl: 0,
            cleaning: Cleaning::default(),
            edns_in_self_generated: true,
            payload_size_self_generated: 1_232,
            tcp: TcpTuning {
                // Not dnsdist's: a thread here has many clients, and takes time from workers.
                threads: TcpTuning::THREADS,
                receive_timeout: Duration::from_secs(2),
                send_timeout: Duration::from_secs(2),
                maximum_queries_per_connection: 0,
                maximum_connection_duration: Duration::ZERO,
                maximum_connections_per_client: 0,
                maximum_connections: 10_000,
                overload_threshold: 90,
                maximum_connection_rate_per_client: 0,
                connection_rate_interval: Duration::from_secs(5 * 60),
                rate_ban: Duration::from_secs(10),
                client_bits_v4: 32,
                client_bits_v6: 128,
                client_bits_port_v4: 0,
                // Nobody is banned whom the file does not speak of.
                maximum_reads_per_query: 0,
                reads_ban: Duration::from_secs(60),
                maximum_cached_connections: 10,
                downstream_idle_timeout: Duration::from_secs(300),
            },
            rings: RingOptions::default(),
            policies: PolicyTuning::default(),
            subnets: SubnetTuning::default(),
            allow_empty_responses: false,
            truncate_tc: false,
        }
    }
}
