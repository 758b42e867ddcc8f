//! The JSON objects of dnsdist's API, as its manual describes them and as dnsdist 1.7.3 sends them.

use crate::backend::pool::Pool;
use crate::backend::server::{Server, ServerId};
use crate::clock::Now;
use crate::config::Config;
use crate::config::pools::PoolId;
use crate::control::metrics::Metrics;
use crate::control::metrics::rows::FrontendRow;
use crate::control::metrics::text::Value as Number;
use crate::log;
use crate::pipeline::acl::Netmasks;
use crate::pipeline::query::Protocol;
use crate::pipeline::rings::Entry;
use crate::pipeline::route;
use crate::pipeline::rules::response::ResponseRule;
use crate::pipeline::rules::{Rule, RuleOf};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What `/api/v1/servers/localhost` says.
pub(super) fn overview(metrics: &Metrics) -> Value {
    let config = metrics.config();
    let chains = &config.chains;
    let statistics = metrics.dialect_statistics().into_iter();
    let statistics: Map<String, Value> = statistics
        .map(|(name, value)| (name, value.into()))
        .collect();
    let local = config.local_addresses();
    let local: Vec<String> = local.map(|address| address.to_string()).collect();
    let pools = config.pools.iter().flatten().enumerate();
    json!({
        "acl": acl(&config),
        "cache-hit-response-rules": response_rules(&chains.cache_hit),
        "cache-inserted-response-rules": response_rules(&chains.cache_inserted),
        "cache-miss-rules": rules(&chains.cache_miss),
        "daemon_type": "dnsdist",
        "dohFrontends": [],
        "frontends": frontends(metrics),
        "local": local.join(", "),
        "pools": pools.map(|(id, pool)| numbered(pool_object(pool), id)).collect::<Vec<_>>(),
        "response-rules": response_rules(&chains.response),
        "rules": rules(config.listed_rules()),
        "self-answered-response-rules": response_rules(&chains.self_answered),
        "servers": servers(metrics, &config.servers),
        "statistics": statistics,
        "version": crate::version(),
    })
}

fn numbered(mut object: Map<String, Value>, id: usize) -> Value {
    object.insert("id".to_owned(), id.into());
    Value::Object(object)
}

fn object<const FIELDS: usize>(fields: [(&str, Value); FIELDS]) -> Map<String, Value> {
    let fields = fields.into_iter();
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The default pool's policy.
pub(super) fn policy(config: &Config) -> Cow<'_, str> {
    let pool = config.pool(PoolId::DEFAULT);
    pool.map_or_else(Cow::default, |pool| {
        route::policy_name(pool.policy, pool.chooser.as_ref())
    })
}

fn acl(config: &Config) -> String {
    config.acl.to_string()
}

pub(super) fn netmasks(acl: &Netmasks) -> Vec<String> {
    acl.iter().map(|netmask| netmask.to_string()).collect()
}

pub(super) fn setting(name: &str, value: impl Into<Value>) -> Value {
    json!({"name": name, "type": "ConfigSetting", "value": value.into()})
}

/// What `/config` says.
pub(super) fn settings(config: &Config) -> Vec<Value> {
    let tuning = &config.tuning;
    vec![
        setting("acl", acl(config)),
        setting("allow-empty-response", tuning.allow_empty_responses),
        setting("control-socket", control_socket(config)),
        setting("ecs-override", tuning.subnets.override_existing),
        setting("ecs-source-prefix-v4", tuning.subnets.v4_prefix),
        setting("ecs-source-prefix-v6", tuning.subnets.v6_prefix),
        setting("fixup-case", tuning.fixup_case),
        setting("max-outstanding", tuning.maximum_udp_outstanding),
        setting("server-policy", policy(config)),
        setting("stale-cache-entries-ttl", tuning.stale_cache_entries_ttl),
        setting("tcp-recv-timeout", tuning.tcp.receive_timeout.as_secs()),
        setting("tcp-send-timeout", tuning.tcp.send_timeout.as_secs()),
        setting("truncate-tc", tuning.truncate_tc),
        setting("verbose", log::settings().verbose),
        setting("verbose-health-checks", tuning.verbose_health_checks),
    ]
}

/// Where the console listens; dnsdist's default where it does not.
fn control_socket(config: &Config) -> String {
    let address = config.console.address;
    address.map_or_else(
        || "127.0.0.1:5199".to_owned(),
        |address| address.to_string(),
    )
}

// ---------------------------------------------------------------------------------------------------- servers, pools

fn servers(metrics: &Metrics, servers: &[Arc<Server>]) -> Vec<Value> {
    let servers = servers.iter().enumerate();
    servers
        .map(|(id, server)| numbered(server_object(metrics, server), id))
        .collect()
}

fn plain(counter: &AtomicU64) -> Value {
    counter.load(Relaxed).into()
}

fn milliseconds(microseconds: u64) -> Value {
    real(microseconds as f64 / 1_000.0)
}

/// As statistics are written: without a fraction where there is none.
fn real(number: f64) -> Value {
    Number::Real(number).into()
}

fn server_object(metrics: &Metrics, server: &Server) -> Map<String, Value> {
    let (options, tcp, health) = (&server.options, &server.tcp, &server.health);
    let rate = metrics.rate(server.number);
    let mut fields = object([
        ("address", options.address.to_string().into()),
        ("dropRate", real(rate.timeouts)),
        ("latency", milliseconds(server.latency())),
        ("name", name(server).into()),
        ("nonCompliantResponses", server.noncompliant.sum().into()),
        ("order", options.order.into()),
        ("outstanding", server.outstanding.get().into()),
        ("pools", pools_of(server).into()),
        ("protocol", "Do53".into()),
        ("qps", real(rate.queries)),
        ("qpsLimit", options.qps.into()),
        ("queries", server.queries.sum().into()),
        ("responses", server.responses.sum().into()),
        ("reuseds", server.timeouts.sum().into()),
        ("sendErrors", server.send_errors.sum().into()),
        ("state", server.state.word().into()),
        ("weight", options.weight.into()),
    ]);
    fields.extend(object([
        ("tcpAvgConnectionDuration", real(tcp.duration())),
        (
            "tcpAvgQueriesPerConnection",
            real(tcp.queries_per_connection()),
        ),
        ("tcpConnectTimeouts", plain(&tcp.connect_timeouts)),
        ("tcpCurrentConnections", plain(&tcp.connections)),
        ("tcpDiedReadingResponse", plain(&tcp.died_reading_response)),
        ("tcpDiedSendingQuery", plain(&tcp.died_sending_query)),
        ("tcpGaveUp", plain(&tcp.gave_up)),
        ("tcpLatency", milliseconds(server.latency_tcp())),
        (
            "tcpMaxConcurrentConnections",
            plain(&tcp.connections_maximum),
        ),
        ("tcpNewConnections", plain(&tcp.new_connections)),
        ("tcpReadTimeouts", plain(&tcp.read_timeouts)),
        ("tcpReusedConnections", plain(&tcp.reused_connections)),
        (
            "tcpTooManyConcurrentConnections",
            plain(&tcp.too_many_connections),
        ),
        ("tcpWriteTimeouts", plain(&tcp.write_timeouts)),
        ("tlsResumptions", 0.into()),
    ]));
    fields.extend(object([
        ("healthCheckFailures", plain(&health.failures)),
        ("healthCheckFailureInvalid", plain(&health.invalid)),
        ("healthCheckFailureMismatch", plain(&health.mismatch)),
        ("healthCheckFailureNetwork", plain(&health.network)),
        ("healthCheckFailureParsing", plain(&health.parsing)),
        ("healthCheckFailureTimeout", plain(&health.timeout)),
    ]));
    fields
}

/// dnsdist names a server by its address where it has no name.
fn name(server: &Server) -> String {
    let options = &server.options;
    if options.name.is_empty() {
        return options.address.to_string();
    }
    options.name.clone()
}

/// dnsdist lists none where there is only the default pool.
fn pools_of(server: &Server) -> Vec<String> {
    let pools = &server.options.pools;
    if pools.iter().all(String::is_empty) {
        return Vec::new();
    }
    let mut pools = pools.clone();
    pools.sort();
    pools
}

fn pool_object(pool: &Pool) -> Map<String, Value> {
    let cache = pool.cache.as_ref();
    let count = |field: fn(&crate::pipeline::cache::CacheCounts) -> &crate::counters::Sharded| {
        Value::from(cache.map_or(0, |cache| field(cache.counts()).sum()))
    };
    let size = cache.map_or(0, |cache| cache.options().maximum_entries);
    object([
        ("cacheCleanupCount", count(|counts| &counts.cleanups)),
        (
            "cacheDeferredInserts",
            count(|counts| &counts.deferred_inserts),
        ),
        (
            "cacheDeferredLookups",
            count(|counts| &counts.deferred_lookups),
        ),
        ("cacheEntries", cache.map_or(0, |cache| cache.len()).into()),
        ("cacheHits", count(|counts| &counts.hits)),
        (
            "cacheInsertCollisions",
            count(|counts| &counts.insert_collisions),
        ),
        (
            "cacheLookupCollisions",
            count(|counts| &counts.lookup_collisions),
        ),
        ("cacheMisses", count(|counts| &counts.misses)),
        ("cacheSize", size.into()),
        ("cacheTTLTooShorts", count(|counts| &counts.ttl_too_shorts)),
        ("name", pool.name.clone().into()),
        ("serversCount", pool.servers.len().into()),
    ])
}

/// What `/pool?name=` says. Servers have the numbers that they have in the overview.
pub(super) fn one_pool(metrics: &Metrics, config: &Config, pool: &Pool) -> Value {
    let members = config.servers.iter().enumerate();
    let members = members.filter(|(_, server)| {
        pool.servers
            .iter()
            .any(|member| Arc::ptr_eq(member, server))
    });
    let servers: Vec<Value> = members
        .map(|(id, server)| numbered(server_object(metrics, server), id))
        .collect();
    json!({"stats": pool_object(pool), "servers": servers})
}

// ---------------------------------------------------------------------------------------------------- frontends

fn frontends(metrics: &Metrics) -> Vec<Value> {
    let rows = metrics.running().frontends().into_iter().enumerate();
    rows.map(|(id, row)| numbered(frontend(&row), id)).collect()
}

fn frontend(row: &FrontendRow) -> Map<String, Value> {
    let tcp = row.connections.unwrap_or_default();
    let is_tcp = row.protocol == Protocol::Tcp;
    let mut fields = object([
        ("address", row.address.to_string().into()),
        ("nonCompliantQueries", row.noncompliant_queries.into()),
        ("queries", row.queries.into()),
        ("responses", row.responses.into()),
        ("tcp", is_tcp.into()),
        ("tcpAvgConnectionDuration", real(tcp.duration)),
        (
            "tcpAvgQueriesPerConnection",
            real(tcp.queries_per_connection),
        ),
        ("tcpClientTimeouts", tcp.client_timeouts.into()),
        ("tcpCurrentConnections", tcp.connections.into()),
        ("tcpDiedReadingQuery", tcp.died_reading_query.into()),
        ("tcpDiedSendingResponse", tcp.died_sending_response.into()),
        ("tcpDownstreamTimeouts", tcp.backend_timeouts.into()),
        ("tcpGaveUp", tcp.gave_up.into()),
        (
            "tcpMaxConcurrentConnections",
            tcp.connections_maximum.into(),
        ),
        ("type", if is_tcp { "TCP" } else { "UDP" }.into()),
        ("udp", (!is_tcp).into()),
    ]);
    // There is no encryption yet.
    fields.extend(OF_TLS.map(|name| (name.to_owned(), 0.into())));
    fields
}

const OF_TLS: [&str; 17] = [
    "tls10Queries",
    "tls11Queries",
    "tls12Queries",
    "tls13Queries",
    "tlsHandshakeFailuresDHKeyTooSmall",
    "tlsHandshakeFailuresInappropriateFallBack",
    "tlsHandshakeFailuresNoSharedCipher",
    "tlsHandshakeFailuresUnknownCipher",
    "tlsHandshakeFailuresUnknownKeyExchangeType",
    "tlsHandshakeFailuresUnknownProtocol",
    "tlsHandshakeFailuresUnsupportedEC",
    "tlsHandshakeFailuresUnsupportedProtocol",
    "tlsInactiveTicketKey",
    "tlsNewSessions",
    "tlsResumptions",
    "tlsUnknownQueries",
    "tlsUnknownTicketKey",
];

// ---------------------------------------------------------------------------------------------------- rules

fn rules(chain: &[Rule]) -> Vec<Value> {
    let rules = chain.iter().enumerate();
    let rules = rules.map(|(id, rule)| {
        let mut fields = rule_object(rule, rule.action.describe(), id);
        let statistics = rule.action.statistics().into_iter();
        let statistics: Map<_, _> = statistics
            .map(|(name, count)| (name.to_owned(), count.into()))
            .collect();
        fields.insert("action-stats".to_owned(), statistics.into());
        Value::Object(fields)
    });
    rules.collect()
}

fn response_rules(chain: &[ResponseRule]) -> Vec<Value> {
    let rules = chain.iter().enumerate();
    rules
        .map(|(id, rule)| Value::Object(rule_object(rule, rule.action.describe(), id)))
        .collect()
}

fn rule_object<A: ?Sized>(rule: &RuleOf<A>, action: String, id: usize) -> Map<String, Value> {
    object([
        ("action", action.into()),
        ("creationOrder", rule.created.into()),
        ("id", id.into()),
        ("matches", rule.matches.sum().into()),
        ("name", rule.name.clone().into()),
        ("rule", rule.selector.describe().into()),
        ("uuid", rule.uuid.clone().into()),
    ])
}

// ---------------------------------------------------------------------------------------------------- rings

/// What `/rings` says: at most so many of the most recent queries and responses, the most recent first.
pub(super) fn rings(metrics: &Metrics, queries: usize, responses: usize) -> Value {
    let (config, now) = (metrics.config(), Now::read());
    let servers = config.servers.iter();
    let servers: HashMap<ServerId, SocketAddr> = servers
        .map(|server| (server.number, server.options.address))
        .collect();
    let shards = metrics.running().shards();
    let latest = |entries: Vec<Vec<Entry>>, limit: usize| {
        let mut entries: Vec<Entry> = entries.into_iter().flatten().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.time));
        let entries = entries.iter().take(limit);
        let shown: Vec<Value> = entries
            .map(|entry| Value::Object(ring_entry(entry, now, &servers)))
            .collect();
        shown
    };
    let all = |entries: fn(&crate::pipeline::rings::Rings) -> Vec<Entry>| {
        shards.iter().map(|shard| entries(&shard.rings)).collect()
    };
    json!({
        "queries": latest(all(crate::pipeline::rings::Rings::queries), queries),
        "responses": latest(all(crate::pipeline::rings::Rings::responses), responses),
    })
}

fn ring_entry(
    entry: &Entry,
    now: Now,
    servers: &HashMap<ServerId, SocketAddr>,
) -> Map<String, Value> {
    let flag = |bit: u16| Value::from(entry.flags & bit != 0);
    let protocol = match entry.protocol {
        Protocol::Udp => "DoUDP",
        Protocol::Tcp => "DoTCP",
    };
    let mut fields = object([
        ("age", now.since(entry.time).as_secs_f64().into()),
        ("id", entry.id.into()),
        ("name", entry.name.to_string().into()),
        ("protocol", protocol.into()),
        ("qtype", entry.qtype.into()),
        ("rd", flag(0x0100)),
        ("requestor", entry.client.to_string().into()),
        ("size", entry.size.into()),
    ]);
    if let Some(answered) = entry.answered {
        // One that was removed meanwhile has no name any more.
        let backend = servers.get(&answered.server).map(ToString::to_string);
        fields.extend(object([
            ("aa", flag(0x0400)),
            ("answers", entry.answers.into()),
            ("backend", backend.unwrap_or_default().into()),
            ("latency", answered.latency_microseconds.into()),
            ("rcode", (entry.flags & 15).into()),
            ("tc", flag(0x0200)),
        ]));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::rings::Answered;

    #[test]
    fn an_entry_of_the_rings_has_its_id_and_its_answers() {
        let entry = Entry {
            time: Now(1_000),
            client: "192.0.2.7:4242".parse().unwrap(),
            protocol: Protocol::Udp,
            name: "www.example.com.".parse().unwrap(),
            qtype: 1,
            id: 4_711,
            flags: 0x8580,
            size: 60,
            answers: 2,
            answered: Some(Answered {
                server: ServerId(3),
                latency_microseconds: 1_500,
            }),
        };
        let servers = HashMap::from([(ServerId(3), "192.0.2.53:53".parse().unwrap())]);
        let shown = Value::Object(ring_entry(&entry, Now(1_000), &servers));
        assert_eq!(shown["id"], 4_711);
        assert_eq!(shown["answers"], 2);
        assert_eq!(shown["backend"], "192.0.2.53:53");
        let shown = Value::Object(ring_entry(&entry, Now(1_000), &HashMap::new()));
        assert_eq!(shown["backend"], "", "the manual: a string");
    }
}
