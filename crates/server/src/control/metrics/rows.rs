//! Tables of `/metrics`: what is shown per server, pool, rule, frontend and AF_XDP socket, column by column.

use super::text::{Family, Kind, Text, Value};
use crate::backend::pool::Pool;
use crate::backend::server::Server;
use crate::config::{Config, LocalAddress};
use crate::counters::{Passage, Traffic};
use crate::frontend::listeners::Sockets;
use crate::frontend::tcp::{Counters, Figures};
use crate::network::Change;
use crate::pipeline::cache::PacketCache;
use crate::pipeline::query::Protocol;
use crate::pipeline::rules::RuleOf;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What one listening socket received and sent.
#[derive(Debug, Clone)]
pub struct FrontendRow {
    pub address: LocalAddress,
    pub protocol: Protocol,
    /// Which of the sockets of this address and protocol, from 0.
    pub thread: usize,
    pub queries: u64,
    pub noncompliant_queries: u64,
    pub responses: u64,
    /// For TCP.
    pub connections: Option<Figures>,
}

impl FrontendRow {
    /// What came over UDP, a row per worker: to its sockets and to its rings. What the asynchronous runtime sends (the
    /// last shard) leaves by the first socket.
    pub fn of_datagrams<'s>(
        sockets: &'s Sockets,
        traffic: &'s Traffic,
        shards: usize,
    ) -> impl Iterator<Item = FrontendRow> + use<'s> {
        let runtime = shards - 1;
        let count = move |passage, worker| {
            let own = traffic.get(passage, worker);
            own + if worker == 0 {
                traffic.get(passage, runtime)
            } else {
                0
            }
        };
        (0..runtime).map(move |worker| FrontendRow {
            address: sockets.address.into(),
            protocol: Protocol::Udp,
            thread: worker,
            queries: count(Passage::Query, worker),
            noncompliant_queries: count(Passage::Noncompliant, worker),
            responses: count(Passage::Response, worker),
            connections: None,
        })
    }

    /// What came over TCP, or by a path; the asynchronous runtime, whose shard is the last, serves it all.
    pub fn of_stream(
        address: LocalAddress,
        counters: &Counters,
        traffic: &Traffic,
        shards: usize,
    ) -> FrontendRow {
        FrontendRow {
            address,
            protocol: Protocol::Tcp,
            thread: 0,
            queries: counters.queries.load(Relaxed),
            noncompliant_queries: traffic.get(Passage::Noncompliant, shards - 1),
            responses: counters.responses.load(Relaxed),
            connections: Some(counters.figures()),
        }
    }
}

/// One AF_XDP socket.
#[derive(Debug, Clone)]
pub struct XskRow {
    pub interface: String,
    pub queue: u32,
    /// Zero-copy, not copy.
    pub zero_copy: bool,
    /// The program is attached in the driver, not in the kernel's stack.
    pub native: bool,
    pub own: xsk::Counters,
    pub kernel: xsk::KernelCounters,
    /// Frames that the kernel program passed because this socket's owner had stalled.
    pub heartbeat_passes: u64,
}

/// Who has chosen the kernel sockets for the datagrams of a listener.
#[derive(Debug, Clone, Copy)]
pub struct SpreadRow {
    pub address: SocketAddr,
    /// By [`xsk::Chosen`].
    pub counts: [u64; xsk::SPREADS],
}

/// The privileged helper process.
#[derive(Debug, Clone, Copy)]
pub struct HelperRow {
    pub is_alive: bool,
    pub requests: u64,
    pub refused: u64,
}

/// The frames of one worker's UMEM.
#[derive(Debug, Clone)]
pub struct FrameRow {
    pub worker: usize,
    pub census: xsk::Census,
    /// All of them; what the owners have adds up to this (invariant I3).
    pub frames: u32,
}

/// How often the kernel program judged so.
#[derive(Debug, Clone)]
pub struct SteerRow {
    pub interface: String,
    pub reason: xsk::Reason,
    pub frames: u64,
}

macro_rules! columns {
    ($($kind:ident $name:literal $value:expr, $help:literal;)+) => {
        &[$(Family { name: $name, kind: Kind::$kind, help: $help, value: $value },)+]
    };
}

// ---------------------------------------------------------------------------------------------- servers

/// A server and the label that only it has.
struct ServerRow {
    label: String,
    server: Arc<Server>,
}

impl Deref for ServerRow {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

const SERVER: &[Family<ServerRow>] = columns! {
    Gauge "status" |server| server.state.is_up().into(), "1: queries are sent to this server, 0: not.";
    Counter "queries" |server| server.queries.sum().into(), "Queries sent to this server.";
    Counter "responses" |server| server.responses.sum().into(), "Responses of this server.";
    Counter "noncompliantresponses" |server| server.noncompliant.sum().into(), "Messages of this server that were no DNS.";
    Counter "drops" |server| server.timeouts.sum().into(), "Queries that this server did not answer in time.";
    Gauge "latency" |server| milliseconds(server.latency()), "Average latency of this server, in milliseconds.";
    Gauge "tcplatency" |server| milliseconds(server.latency_tcp()), "Average latency of this server over TCP, in milliseconds.";
    Counter "senderrors" |server| server.send_errors.sum().into(), "Queries that could not be sent to this server.";
    Gauge "outstanding" |server| Value::Signed(server.outstanding.get()), "Queries that wait for this server.";
    Gauge "order" |server| Value::Signed(server.options.order.into()), "Servers of a lower order are asked first.";
    Gauge "weight" |server| u64::from(server.options.weight).into(), "Share of queries among servers of an order.";
    Counter "tcpdiedsendingquery" |server| plain(&server.tcp.died_sending_query), "Connections that broke while a query was sent.";
    Counter "tcpdiedreadingresponse" |server| plain(&server.tcp.died_reading_response), "Connections that broke before the response was read.";
    Counter "tcpgaveup" |server| plain(&server.tcp.gave_up), "Queries given up for want of a connection.";
    Counter "tcpconnecttimeouts" |server| plain(&server.tcp.connect_timeouts), "Connections that were not made in time.";
    Counter "tcpreadtimeouts" |server| plain(&server.tcp.read_timeouts), "Responses that did not come in time.";
    Counter "tcpwritetimeouts" |server| plain(&server.tcp.write_timeouts), "Queries that the server did not take in time.";
    Gauge "tcpcurrentconnections" |server| plain(&server.tcp.connections), "Connections to this server now.";
    Counter "tcpmaxconcurrentconnections" |server| plain(&server.tcp.connections_maximum), "The most connections to this server at a time.";
    Counter "tcptoomanyconcurrentconnections" |server| plain(&server.tcp.too_many_connections), "Queries for which maxConcurrentTCPConnections left no connection.";
    Counter "tcpnewconnections" |server| plain(&server.tcp.new_connections), "Connections made to this server.";
    Counter "tcpreusedconnections" |server| plain(&server.tcp.reused_connections), "Queries sent on a connection that was there already.";
    Gauge "tcpavgqueriesperconn" |server| Value::Real(server.tcp.queries_per_connection()), "Queries of a connection, on average.";
    // Nothing is encrypted yet.
    Counter "tlsresumptions" |_| 0_u64.into(), "TLS sessions with this server that were resumed.";
    Counter "healthcheckfailures" |server| plain(&server.health.failures), "Health checks that failed.";
    Counter "healthcheckfailuresparsing" |server| plain(&server.health.parsing), "Answers to health checks that were no DNS.";
    Counter "healthcheckfailurestimeout" |server| plain(&server.health.timeout), "Health checks that were not answered in time.";
    Counter "healthcheckfailuresnetwork" |server| plain(&server.health.network), "Health checks that could not be sent, or whose connection broke.";
    Counter "healthcheckfailuresmismatch" |server| plain(&server.health.mismatch), "Messages that answered no health check under way.";
    Counter "healthcheckfailuresinvalid" |server| plain(&server.health.invalid), "Health checks whose answer said no.";
    Gauge "tcpavgconnduration" |server| Value::Real(server.tcp.duration()), "Duration of a connection, on average, in milliseconds.";
};

/// What dnsdist has no rows for.
const OWN_SERVER: &[Family<ServerRow>] = columns! {
    Counter "nonmatching" |server| server.nonmatching.sum().into(), "Messages from this server that answered no query.";
    Gauge "xsk" |server| server.xsk.get().is_some().into(), "1: queries go to this server over AF_XDP, 0: by kernel sockets.";
    Counter "extra_queries" |server| server.extra_queries.sum().into(), "Of the queries sent to this server those that another one was asked as well: race, hedge.";
    Counter "xsk_suspensions" |server| server.trust.suspensions().into(), "Times that AF_XDP was given up for this server for a while.";
};

/// The columns dnsdist_server_*: one row per server.
pub fn servers(text: &mut Text, config: &Config) {
    // A name that stands again at another address stays as it is: the address is a label too.
    let names = config.servers.iter();
    let names = names.map(|server| (server_label(server), server.options.address));
    let labels = distinct(names);
    let rows = labels.into_iter().zip(config.servers.iter().cloned());
    let rows: Vec<_> = rows
        .map(|(label, server)| ServerRow { label, server })
        .collect();
    text.table("dnsdist_server_", SERVER, &rows, server_labels);
    text.table("millrace_server_", OWN_SERVER, &rows, server_labels);
}

fn server_labels(row: &ServerRow) -> [(&'static str, String); 2] {
    [
        ("server", row.label.clone()),
        ("address", row.options.address.to_string()),
    ]
}

/// The same names, but `#2` and so on behind those that stand again beside the same other labels: a row that stands twice makes
/// Prometheus refuse the whole text, while dnsdist lets names stand twice.
fn distinct<L: Clone + Eq + Hash>(names: impl Iterator<Item = (String, L)>) -> Vec<String> {
    let mut seen: HashMap<(String, L), usize> = HashMap::new();
    let mut given = HashSet::new();
    let names = names.map(|(name, others)| {
        let times = seen.entry((name.clone(), others.clone())).or_default();
        loop {
            *times += 1;
            let label = match *times {
                1 => name.clone(),
                times => format!("{name}#{times}"),
            };
            // One may be called so itself.
            if given.insert((label.clone(), others.clone())) {
                return label;
            }
        }
    });
    names.collect()
}

fn plain(counter: &AtomicU64) -> Value {
    counter.load(Relaxed).into()
}

/// The server's name, or its address without one, with `_` for each dot, as dnsdist writes it.
fn server_label(server: &Server) -> String {
    let options = &server.options;
    if options.name.is_empty() {
        return options.address.to_string().replace('.', "_");
    }
    options.name.replace('.', "_")
}

fn milliseconds(microseconds: u64) -> Value {
    Value::Real(microseconds as f64 / 1_000.0)
}

// ---------------------------------------------------------------------------------------------- pools and rules

const POOL: &[Family<PoolRow>] = columns! {
    Gauge "servers" |row| (row.pool.servers.len() as u64).into(), "Servers in this pool.";
    Gauge "active_servers" |row| active(&row.pool).into(), "Servers in this pool that are up.";
};

const CACHE: &[Family<CachedPool>] = columns! {
    Gauge "size" |row| (row.cache.options().maximum_entries as u64).into(), "Entries that this pool's cache can hold.";
    Gauge "entries" |row| (row.cache.len() as u64).into(), "Entries in this pool's cache.";
    Counter "hits" |row| row.cache.counts().hits.sum().into(), "Answers from this pool's cache.";
    Counter "misses" |row| row.cache.counts().misses.sum().into(), "Queries that this pool's cache had no answer for.";
    Counter "deferred_inserts" |row| row.cache.counts().deferred_inserts.sum().into(), "Responses not kept because another writer was faster.";
    Counter "deferred_lookups" |row| row.cache.counts().deferred_lookups.sum().into(), "Entries that were overwritten while they were read.";
    Counter "lookup_collisions" |row| row.cache.counts().lookup_collisions.sum().into(), "Queries that met another one with the same hash.";
    Counter "insert_collisions" |row| row.cache.counts().insert_collisions.sum().into(), "Responses that replaced another one with the same hash.";
    Counter "ttl_too_shorts" |row| row.cache.counts().ttl_too_shorts.sum().into(), "Responses not kept because their TTL was below minTTL.";
    Counter "cleanup_count_total" |row| row.cache.counts().cleanups.sum().into(), "Times that this pool's cache was cleaned.";
};

/// A pool and the label that only it has.
struct PoolRow {
    label: String,
    pool: Arc<Pool>,
}

/// The cache of a pool, and the pool's label.
struct CachedPool {
    label: String,
    cache: Arc<PacketCache>,
}

/// The columns dnsdist_pool_*: one row per pool, and those of its cache, where it has one.
pub fn pools(text: &mut Text, config: &Config) {
    let pools: Vec<_> = config.pools.iter().flatten().cloned().collect();
    let labels = distinct(pools.iter().map(|pool| (pool_label(pool), ())));
    let rows = labels.into_iter().zip(pools);
    let rows: Vec<_> = rows.map(|(label, pool)| PoolRow { label, pool }).collect();
    text.table("dnsdist_pool_", POOL, &rows, |row| {
        [("pool", row.label.clone())]
    });
    let cached = rows.into_iter().filter_map(|PoolRow { label, pool }| {
        let cache = pool.cache.clone()?;
        Some(CachedPool { label, cache })
    });
    let cached: Vec<_> = cached.collect();
    text.table("dnsdist_pool_cache_", CACHE, &cached, |row| {
        [("pool", row.label.clone())]
    });
}

/// dnsdist's word for the pool without a name.
fn pool_label(pool: &Pool) -> String {
    match pool.name.as_str() {
        "" => "_default_".to_owned(),
        name => name.to_owned(),
    }
}

fn active(pool: &Pool) -> u64 {
    let servers = pool.servers.iter();
    servers.filter(|server| server.state.is_up()).count() as u64
}

const RULE_HITS: &str = "dnsdist_rule_hits";

/// dnsdist_rule_hits, of all chains, by name or, without one, by UUID.
pub fn rules(text: &mut Text, config: &Config) {
    let chains = &config.chains;
    let responses = chains.on_responses();
    let queries = config.listed_rules().iter();
    let queries = queries.chain(&chains.cache_miss).map(hits);
    let all: Vec<_> = queries
        .chain(responses.into_iter().flatten().map(hits))
        .collect();
    let names = distinct(all.iter().map(|(id, _)| (id.clone(), ())));
    let help = "Queries or responses that this rule matched.";
    let mut rows = text.family(RULE_HITS, Kind::Counter, help);
    for (id, (_, hits)) in names.iter().zip(all) {
        rows.row("", &[("id", id)], hits);
    }
}

fn hits<A: ?Sized>(rule: &RuleOf<A>) -> (String, u64) {
    let id = if rule.name.is_empty() {
        &rule.uuid
    } else {
        &rule.name
    };
    (id.clone(), rule.matches.sum())
}

// ---------------------------------------------------------------------------------------------- frontends

/// Whether a table here has a family of that name, whatever the configuration; those of millrace_ are not looked for.
pub fn is_built_in(name: &str) -> bool {
    is_in("dnsdist_server_", SERVER, name)
        || is_in("dnsdist_pool_", POOL, name)
        || is_in("dnsdist_pool_cache_", CACHE, name)
        || is_in("dnsdist_frontend_", FRONTEND, name)
        || is_in("dnsdist_frontend_", CONNECTIONS, name)
        || WITHOUT_ROWS.iter().any(|(other, ..)| *other == name)
        || name == RULE_HITS
}

fn is_in<T>(prefix: &str, columns: &[Family<T>], name: &str) -> bool {
    let column = name.strip_prefix(prefix);
    column.is_some_and(|column| columns.iter().any(|family| family.name == column))
}

const FRONTEND: &[Family<FrontendRow>] = columns! {
    Counter "queries" |row| row.queries.into(), "Queries that this frontend received.";
    Counter "noncompliantqueries" |row| row.noncompliant_queries.into(), "Queries of this frontend that broke the protocol.";
    Counter "responses" |row| row.responses.into(), "Responses that this frontend sent.";
};

const CONNECTIONS: &[Family<(FrontendRow, Figures)>] = columns! {
    Counter "tcpdiedreadingquery" |(_, tcp)| tcp.died_reading_query.into(), "Connections that ended within a query.";
    Counter "tcpdiedsendingresponse" |(_, tcp)| tcp.died_sending_response.into(), "Connections that ended before a response was sent.";
    Counter "tcpgaveup" |(_, tcp)| tcp.gave_up.into(), "Connections closed because the backend could not be asked.";
    // Manuals before 2.0 leave out a letter.
    Counter "tcpclientimeouts" |(_, tcp)| tcp.client_timeouts.into(), "Connections closed because the client took too long: tcpclienttimeouts under its former name.";
    Counter "tcpclienttimeouts" |(_, tcp)| tcp.client_timeouts.into(), "Connections closed because the client took too long.";
    Counter "tcpdownstreamtimeouts" |(_, tcp)| tcp.backend_timeouts.into(), "Connections closed because the backend took too long.";
    Gauge "tcpcurrentconnections" |(_, tcp)| tcp.connections.into(), "Connections of clients now.";
    Counter "tcpmaxconcurrentconnections" |(_, tcp)| tcp.connections_maximum.into(), "The most connections of clients at a time.";
    Gauge "tcpavgqueriesperconnection" |(_, tcp)| Value::Real(tcp.queries_per_connection), "Queries of a connection, on average.";
    Gauge "tcpavgconnectionduration" |(_, tcp)| Value::Real(tcp.duration), "Duration of a connection, on average, in milliseconds.";
};

const OWN_CONNECTIONS: &[Family<(FrontendRow, Figures)>] = columns! {
    Counter "tcp_refused_connections" |(_, tcp)| tcp.refused.into(), "Connections of clients that there was no place for.";
};

/// Families of dnsdist's that have rows for encrypted listeners and dynamic blocks only, of which there are none.
const WITHOUT_ROWS: [(&str, Kind, &str); 14] = [
    (
        "dnsdist_dynblocks_nmg_top_offenders_hits_per_second",
        Kind::Gauge,
        "Queries per second of the netmasks that are blocked most.",
    ),
    (
        "dnsdist_dynblocks_smt_top_offenders_hits_per_second",
        Kind::Gauge,
        "Queries per second for the suffixes that are blocked most.",
    ),
    (
        "dnsdist_frontend_doh_bad_requests",
        Kind::Counter,
        "Requests that held no DNS query.",
    ),
    (
        "dnsdist_frontend_doh_http_method_queries",
        Kind::Counter,
        "DoH queries by HTTP method.",
    ),
    (
        "dnsdist_frontend_doh_http_version_queries",
        Kind::Counter,
        "DoH queries by HTTP version.",
    ),
    (
        "dnsdist_frontend_doh_responses",
        Kind::Counter,
        "DoH responses by type.",
    ),
    (
        "dnsdist_frontend_doh_version_status_responses",
        Kind::Counter,
        "DoH responses by HTTP version and status.",
    ),
    (
        "dnsdist_frontend_http_connects",
        Kind::Counter,
        "Connections made for DoH.",
    ),
    (
        "dnsdist_frontend_tlshandshakefailures",
        Kind::Counter,
        "TLS handshakes that failed, by reason.",
    ),
    (
        "dnsdist_frontend_tlsinactiveticketkeys",
        Kind::Counter,
        "TLS sessions resumed by a key that is no longer the active one.",
    ),
    (
        "dnsdist_frontend_tlsnewsessions",
        Kind::Counter,
        "New TLS sessions.",
    ),
    (
        "dnsdist_frontend_tlsqueries",
        Kind::Counter,
        "Queries over TLS by its version.",
    ),
    (
        "dnsdist_frontend_tlsresumptions",
        Kind::Counter,
        "TLS sessions resumed.",
    ),
    (
        "dnsdist_frontend_tlsunknownticketkeys",
        Kind::Counter,
        "TLS sessions not resumed because their key is unknown.",
    ),
];

/// What dnsdist's text names though there is nothing to count yet: HELP and TYPE, and no row.
pub fn without_rows(text: &mut Text) {
    for (name, kind, help) in WITHOUT_ROWS {
        text.family(name, kind, help);
    }
}

/// The columns dnsdist_frontend_*: one row per listening socket.
pub fn frontends(text: &mut Text, rows: Vec<FrontendRow>) {
    text.table("dnsdist_frontend_", FRONTEND, &rows, frontend_labels);
    let streams = rows
        .into_iter()
        .filter_map(|row| row.connections.map(|tcp| (row, tcp)));
    let streams: Vec<_> = streams.collect();
    let labels = |(row, _): &_| frontend_labels(row);
    text.table("dnsdist_frontend_", CONNECTIONS, &streams, labels);
    text.table("millrace_frontend_", OWN_CONNECTIONS, &streams, labels);
}

fn frontend_labels(row: &FrontendRow) -> [(&'static str, String); 3] {
    let protocol = match row.protocol {
        Protocol::Udp => "UDP",
        Protocol::Tcp => "TCP",
    };
    [
        ("frontend", row.address.to_string()),
        ("proto", protocol.to_owned()),
        ("thread", row.thread.to_string()),
    ]
}

// ---------------------------------------------------------------------------------------------- AF_XDP

const XSK: &[Family<XskRow>] = columns! {
    Counter "received" |row| row.own.received.into(), "Frames received.";
    Counter "sent" |row| row.own.sent.into(), "Frames sent.";
    Counter "tx_ring_full" |row| row.own.tx_full.into(), "Frames that found the TX ring full.";
    Counter "fill_starved" |row| row.own.fill_empty.into(), "Times that the fill ring was found empty.";
    Counter "wakeups" |row| row.own.wakeups.into(), "System calls to send.";
    Counter "bad_addresses" |row| row.own.bad_addresses.into(), "Ring entries of the kernel that could not be true.";
    Counter "partial_checksums" |row| row.own.partial_checksums.into(), "Frames whose checksum the sender had left to its device.";
    Counter "heartbeat_passes" |row| row.heartbeat_passes.into(), "Frames passed to the kernel because the owner of the socket had stalled.";
    Counter "rx_dropped" |row| row.kernel.rx_dropped.into(), "Frames that the kernel dropped: too long for a chunk.";
    Counter "rx_invalid" |row| row.kernel.rx_invalid.into(), "Fill ring entries that the kernel did not accept.";
    Counter "rx_ring_full" |row| row.kernel.rx_ring_full.into(), "Frames that the kernel dropped because the RX ring was full.";
    Counter "rx_fill_ring_empty" |row| row.kernel.fill_ring_empty.into(), "Times that the kernel found the fill ring empty.";
    Counter "tx_invalid" |row| row.kernel.tx_invalid.into(), "TX ring entries that the kernel did not accept.";
    Counter "tx_ring_empty" |row| row.kernel.tx_ring_empty.into(), "Times that the kernel found the TX ring empty.";
};

/// The columns millrace_xsk_*: one row per AF_XDP socket.
pub fn xsk(text: &mut Text, rows: &[XskRow]) {
    text.table("millrace_xsk_", XSK, rows, |row| {
        [
            ("interface", row.interface.clone()),
            ("queue", row.queue.to_string()),
        ]
    });
    let help = "How an AF_XDP socket is bound and its program attached; always 1.";
    let mut modes = text.family("millrace_xsk_mode", Kind::Gauge, help);
    for row in rows {
        let labels = [
            ("interface", row.interface.as_str()),
            ("queue", &row.queue.to_string()),
            ("mode", if row.zero_copy { "zero-copy" } else { "copy" }),
            ("attach", if row.native { "native" } else { "generic" }),
        ];
        modes.row("", &labels, 1);
    }
}

/// millrace_spread: datagrams to the kernel sockets of listeners, by who has chosen the socket.
pub fn spreads(text: &mut Text, rows: &[SpreadRow]) {
    let help = "Datagrams to kernel sockets beside AF_XDP: spread by hash, past stalled workers, or by the kernel alone.";
    let mut spreads = text.family("millrace_spread", Kind::Counter, help);
    for row in rows {
        let address = row.address.to_string();
        for (chosen, count) in ["hash", "past-stalled", "kernel"].iter().zip(row.counts) {
            let labels = [("frontend", address.as_str()), ("chosen", chosen)];
            spreads.row("", &labels, count);
        }
    }
}

const HELPER: &[Family<HelperRow>] = columns! {
    Gauge "alive" |row| row.is_alive.into(), "1: the privileged helper process is there, 0: it is not, or is not needed.";
    Counter "requests" |row| row.requests.into(), "Requests that the privileged helper has answered.";
    Counter "refused" |row| row.refused.into(), "Requests that it has refused or not answered.";
};

/// millrace_network_changes, by what has changed, and millrace_helper_*.
pub fn network(text: &mut Text, changes: &[(Change, u64)], helper: HelperRow) {
    let help = "What has happened to interfaces, kernel programs and queues while serving.";
    let mut rows = text.family("millrace_network_changes", Kind::Counter, help);
    for (change, count) in changes {
        rows.row("", &[("change", change.name())], *count);
    }
    text.table("millrace_helper_", HELPER, &[helper], |_| []);
}

/// millrace_xsk_frames and millrace_xsk_umem_frames: who has the frames of each worker, and how many there are.
pub fn frames(text: &mut Text, rows: &[FrameRow]) {
    let help = "Frames of a worker by owner; they add up to millrace_xsk_umem_frames.";
    let mut owners = text.family("millrace_xsk_frames", Kind::Gauge, help);
    for row in rows {
        for (owner, frames) in row.census.owners() {
            let labels = [
                ("worker", row.worker.to_string()),
                ("owner", owner.to_owned()),
            ];
            let labels = labels
                .each_ref()
                .map(|(name, value)| (*name, value.as_str()));
            owners.row("", &labels, u64::from(frames));
        }
    }
    let mut all = text.family(
        "millrace_xsk_umem_frames",
        Kind::Gauge,
        "Frames of a worker.",
    );
    for row in rows {
        all.row(
            "",
            &[("worker", &row.worker.to_string())],
            u64::from(row.frames),
        );
    }
}

/// millrace_steer_verdicts: what the kernel program did, by interface and reason.
pub fn steer(text: &mut Text, rows: &[SteerRow]) {
    let help = "Frames by the kernel program's verdict.";
    let mut verdicts = text.family("millrace_steer_verdicts", Kind::Counter, help);
    for row in rows {
        let labels = [
            ("interface", row.interface.as_str()),
            ("reason", row.reason.name()),
        ];
        verdicts.row("", &labels, row.frames);
    }
}
