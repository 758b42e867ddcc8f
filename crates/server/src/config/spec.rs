//! What people wrote: mutable, owned by the control thread. The Lua functions fill it, [`super::derive`] makes a
//! [`super::Config`] of it and leaves the live objects here, so that the next edit finds them.

use super::authority::AuthoritySpec;
use super::cache::CacheOptions;
use super::console::ConsoleSpec;
use super::lua::datagrams::Ear;
use super::named::NamedSpec;
use super::place::Place;
use super::pools::PoolNames;
use super::web::WebSpec;
use super::zones::ZoneSpecs;
use super::{Tuning, Xdp};
use crate::backend::policy::Policy;
use crate::backend::pool::Subnets;
use crate::backend::server::{Server, ServerOptions};
use crate::control::carbon::Export;
use crate::control::metrics::custom::CustomMetrics;
use crate::log;
use crate::pipeline::acl::Netmask;
use crate::pipeline::cache::PacketCache;
use crate::pipeline::route::Chooser;
use crate::pipeline::rules::actions::count::CountFilter;
use crate::pipeline::rules::response::ResponseAction;
use crate::pipeline::rules::{Action, RuleOf};
use crate::querycount::QueryCounters;
use caps::Capability;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

pub struct Spec {
    /// What the file is read for.
    pub purpose: Purpose,
    /// One per addLocal line for an address, in their order.
    pub listeners: Vec<ListenerSpec>,
    /// One per addLocal line for a path.
    pub paths: Vec<NamedSpec>,
    pub acl: Vec<Netmask>,
    pub proxies: ProxiesSpec,
    pub chains: ChainSpecs,
    /// In the order of newServer lines.
    pub servers: Vec<ServerSpec>,
    pub pool_names: PoolNames,
    /// Pools that exist, by name.
    pub pools: BTreeMap<String, PoolSpec>,
    /// In the order of newPacketCache lines.
    pub caches: Vec<CacheSpec>,
    /// setServerPolicy.
    pub policy: Policy,
    /// setServerPolicyLua: in place of `policy`.
    pub chooser: Option<Arc<dyn Chooser>>,
    pub tuning: Tuning,
    /// setStructuredLogging, setVerbose.
    pub logging: log::Settings,
    /// setInstanceFromServerID.
    pub log_instance: bool,
    pub web: WebSpec,
    /// declareMetric.
    pub custom_metrics: Arc<CustomMetrics>,
    /// Paths where functions hear other processes (newNetworkListener).
    pub ears: Vec<Arc<Ear>>,
    pub console: ConsoleSpec,
    /// carbonServer, in their order.
    pub carbon: Vec<Export>,
    /// ClientState.muted, of UDP.
    pub muted: BTreeSet<SocketAddr>,
    pub query_count: QueryCount,
    /// setTCPFastOpenKey.
    pub tcp_fast_open_key: Option<[u8; 16]>,
    /// setServerID.
    pub server_id: Option<String>,
    /// How zones are answered from.
    pub authority: AuthoritySpec,
    /// addCapabilitiesToRetain.
    pub capabilities: Vec<Capability>,
    /// millrace.addZone and its relatives.
    pub zones: ZoneSpecs,
    /// What the operator should know of this file, once.
    pub remarks: Vec<Remark>,
    /// A configuration was derived of it: its live objects are here.
    pub is_derived: bool,
    /// How often Lua functions have written to it.
    pub edits: u64,
    next_server_key: u64,
    rules_created: u64,
    /// Of rules, in small letters.
    uuids_given: HashSet<String>,
}

/// What a configuration file is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To serve with it: a start or a reload.
    Serve,
    /// `--check-config`: nothing is touched.
    Check,
    /// `-c`: to find the console's address and key.
    Client,
}

/// One addLocal line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerSpec {
    pub place: Place,
    pub address: SocketAddr,
    pub reuse_port: bool,
    pub xdp: Xdp,
    /// tcpListenQueueSize, in connections.
    pub tcp_listen_queue_size: u32,
    /// maxConcurrentTCPConnections; 0 is no limit.
    pub maximum_tcp_connections: usize,
    /// cpus: processors by number.
    pub cpus: Vec<usize>,
    /// maxInFlight: queries on a TCP connection at a time; 0 is one, in order.
    pub tcp_in_flight: usize,
    /// interface: the only one by which queries come.
    pub interface: Option<String>,
    /// tcpFastOpenQueueSize: connections whose first query came with the SYN and which are not accepted yet; 0 is none.
    pub tcp_fast_open_queue: u32,
    /// enableProxyProtocol: proxies must send a header, see [`ProxiesSpec`].
    pub proxy_protocol: bool,
}

/// setProxyProtocolACL and its relatives.
pub struct ProxiesSpec {
    pub acl: Vec<Netmask>,
    /// setProxyProtocolApplyACLToProxiedClients.
    pub apply_acl: bool,
    /// setProxyProtocolMaximumPayloadSize, in bytes.
    pub maximum: usize,
}

/// setQueryCount and its relatives.
#[derive(Default, Clone)]
pub struct QueryCount {
    pub is_on: bool,
    /// setQueryCountFilter.
    pub filter: Option<Arc<dyn CountFilter>>,
    pub counters: Arc<QueryCounters>,
}

/// The chains of rules, in the order in which queries and responses meet them.
#[derive(Default)]
pub struct ChainSpecs {
    /// addAction.
    pub query: Vec<RuleSpec<dyn Action>>,
    /// addCacheMissAction.
    pub cache_miss: Vec<RuleSpec<dyn Action>>,
    /// addResponseAction.
    pub response: Vec<RuleSpec<dyn ResponseAction>>,
    /// addCacheHitResponseAction.
    pub cache_hit: Vec<RuleSpec<dyn ResponseAction>>,
    /// addCacheInsertedResponseAction.
    pub cache_inserted: Vec<RuleSpec<dyn ResponseAction>>,
    /// addSelfAnsweredResponseAction.
    pub self_answered: Vec<RuleSpec<dyn ResponseAction>>,
    /// addTimeoutResponseAction.
    pub timeout: Vec<RuleSpec<dyn ResponseAction>>,
    /// addXFRResponseAction.
    pub xfr: Vec<RuleSpec<dyn ResponseAction>>,
}

/// One rule of a chain.
pub struct RuleSpec<A: ?Sized> {
    pub rule: RuleOf<A>,
    /// Whether the file names the UUID: only then it is the rule's identity over a reload.
    pub uuid_given: bool,
}

impl<A: ?Sized> Clone for RuleSpec<A> {
    fn clone(&self) -> RuleSpec<A> {
        RuleSpec {
            rule: self.rule.clone(),
            ..*self
        }
    }
}

/// One newServer line.
pub struct ServerSpec {
    pub place: Place,
    /// The server's name within this Spec: never used again in it.
    pub key: ServerKey,
    /// Whether the file names the id: only then it is the server's identity over a reload.
    pub id_given: bool,
    pub options: ServerOptions,
    /// The server that serves since the last derivation.
    pub live: Option<Arc<Server>>,
}

/// What Lua's Server objects hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerKey(pub u64);

/// One newPacketCache line.
pub struct CacheSpec {
    pub options: CacheOptions,
    /// The cache that serves since the last derivation.
    pub live: Option<Arc<PacketCache>>,
}

/// What Lua's PacketCache objects hold: an index into [`Spec::caches`], which never shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey(usize);

/// What the configuration says of one pool.
#[derive(Default)]
pub struct PoolSpec {
    /// An entry of [`Spec::caches`].
    pub cache: Option<CacheKey>,
    /// The pool's own policy; without one, that of setServerPolicy.
    pub policy: Option<Policy>,
    /// setPoolServerPolicyLua: in place of `policy`.
    pub chooser: Option<Arc<dyn Chooser>>,
    pub subnets: Subnets,
}

/// A line for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    pub place: Place,
    pub kind: RemarkKind,
    /// The function, or `function: option`; or as `kind` says.
    pub subject: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemarkKind {
    /// A function or option of the dialect that only observes or tunes, and does nothing here yet. Said when serving,
    /// not by `--check-config`.
    NoEffectYet,
    /// An option that the dialect does not have. Always said: it is a slip of the pen.
    UnknownOption,
    /// A path, the subject, that a zone's acl names and nobody listens at. Always said: no query comes by it.
    UnservedPath,
    /// A key of setKey that is none, the subject says why. Always said: the console lets nobody in.
    UnusableKey,
    /// A name of addCapabilitiesToRetain that no capability has. Always said: it is a slip of the pen.
    UnknownCapability,
    /// A folder of includeDirectory that is not there. Always said: nothing of it is read.
    NoFolder,
}

/// More would help nobody.
const REMARKS_MAX: usize = 1_000;

impl Spec {
    /// An empty configuration with dnsdist's defaults. `pool_names` are those of the configuration before, so that a
    /// number is never given twice.
    pub fn new(purpose: Purpose, pool_names: PoolNames) -> Spec {
        Spec {
            purpose,
            listeners: Vec::new(),
            paths: Vec::new(),
            acl: super::defaults::acl(),
            proxies: ProxiesSpec {
                acl: Vec::new(),
                apply_acl: false,
                maximum: super::defaults::PROXY_HEADER_MAX,
            },
            chains: ChainSpecs::default(),
            servers: Vec::new(),
            pool_names,
            pools: BTreeMap::from([(String::new(), PoolSpec::default())]),
            caches: Vec::new(),
            policy: Policy::default(),
            chooser: None,
            tuning: Tuning::default(),
            logging: log::Settings::DEFAULT,
            log_instance: false,
            web: WebSpec::default(),
            custom_metrics: Arc::default(),
            ears: Vec::new(),
            carbon: Vec::new(),
            muted: BTreeSet::new(),
            query_count: QueryCount::default(),
            tcp_fast_open_key: None,
            server_id: None,
            authority: AuthoritySpec::default(),
            console: ConsoleSpec::default(),
            capabilities: Vec::new(),
            zones: ZoneSpecs::default(),
            remarks: Vec::new(),
            is_derived: false,
            edits: 0,
            next_server_key: 0,
            rules_created: 0,
            uuids_given: HashSet::new(),
        }
    }

    /// How the file wants lines to look.
    pub fn log_settings(&self) -> log::Settings {
        let instance = self.server_id.clone();
        log::Settings {
            instance: instance.filter(|id| self.log_instance && !id.is_empty()),
            ..self.logging.clone()
        }
    }

    /// The servers of the pool `name` by `order`, as its policy sees them.
    pub fn members(&self, name: &str) -> Vec<&ServerSpec> {
        let servers = self.servers.iter();
        let is_in = |server: &&ServerSpec| server.options.pools.iter().any(|pool| pool == name);
        let mut members: Vec<&ServerSpec> = servers.filter(is_in).collect();
        members.sort_by_key(|server| server.options.order);
        members
    }

    /// A key that no server of this Spec has had.
    pub fn next_server_key(&mut self) -> ServerKey {
        self.next_server_key += 1;
        ServerKey(self.next_server_key)
    }

    /// Puts a number on a new rule.
    pub fn count_rule(&mut self) -> u64 {
        self.rules_created += 1;
        self.rules_created - 1
    }

    /// Whether no rule was given this UUID before; of either case, RFC 9562 section 4.
    pub fn note_uuid(&mut self, uuid: &str) -> bool {
        self.uuids_given.insert(uuid.to_ascii_lowercase())
    }

    pub fn add_cache(&mut self, options: CacheOptions) -> CacheKey {
        self.caches.push(CacheSpec {
            options,
            live: None,
        });
        CacheKey(self.caches.len() - 1)
    }

    pub fn cache(&mut self, key: CacheKey) -> &mut CacheSpec {
        &mut self.caches[key.0]
    }

    pub fn cache_options(&self, key: CacheKey) -> &CacheOptions {
        &self.caches[key.0].options
    }

    pub fn live_cache(&self, key: CacheKey) -> Option<Arc<PacketCache>> {
        self.caches[key.0].live.clone()
    }

    /// Notes something for the operator, once however often a loop comes by: where it says nothing about a line, only
    /// for the first one.
    pub fn remark(&mut self, remark: Remark) {
        let is_known = self.remarks.iter().any(|known| {
            (known.kind, &known.subject) == (remark.kind, &remark.subject)
                && (remark.kind == RemarkKind::NoEffectYet || known.place == remark.place)
        });
        if !is_known && self.remarks.len() < REMARKS_MAX {
            self.remarks.push(remark);
        }
    }

    /// The pool of that name, made if it is new.
    pub fn pool(&mut self, name: &str) -> &mut PoolSpec {
        self.pools.entry(name.to_owned()).or_default()
    }
}
