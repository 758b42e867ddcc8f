//! What a Carbon server gets, in dnsdist's words.

use super::Export;
use crate::backend::pool::Pool;
use crate::backend::server::Server;
use crate::clock;
use crate::control::metrics::Metrics;
use crate::control::metrics::rows::FrontendRow;
use crate::control::metrics::text::Value;
use crate::control::name_of;
use crate::counters::Sharded;
use crate::frontend::tcp::Figures;
use crate::pipeline::cache::CacheCounts;
use crate::pipeline::query::Protocol;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// All lines of one export; `counted` is what setQueryCount has counted since the last one.
pub(super) fn lines(export: &Export, metrics: &Metrics, counted: &[(Box<str>, u64)]) -> String {
    let config = metrics.config();
    let host = match export.host.as_str() {
        "" => name_of(&config).replace('.', "_"),
        // "ourname can be used to override your hostname": as it is written.
        name => name.to_owned(),
    };
    let mut lines = Lines {
        head: format!("{}.{host}.{}", export.namespace, export.instance),
        seconds: clock::unix(),
        text: String::new(),
    };
    for (name, value) in metrics.dialect_statistics() {
        lines.add(&name, value);
    }
    for server in &config.servers {
        lines.server(server);
    }
    for row in listeners(metrics.running().frontends()) {
        lines.frontend(&row);
    }
    for pool in config.pools.iter().flatten() {
        lines.pool(pool);
    }
    // "For querycount statistics these two variables are currently ignored": namespace and instance.
    lines.head = "dnsdist.querycount".to_owned();
    for (name, count) in counted {
        lines.add(&format!("{}.queries", one_word(name)), (*count).into());
    }
    lines.text
}

/// A name as one step of a path: dots part those, and white space the path from its number.
fn one_word(name: &str) -> String {
    name.replace(|letter: char| letter == '.' || letter.is_whitespace(), "_")
}

/// The rows of the sockets of one listener as one.
fn listeners(rows: Vec<FrontendRow>) -> Vec<FrontendRow> {
    let mut listeners: Vec<FrontendRow> = Vec::new();
    for row in rows {
        let is_same = |known: &&mut FrontendRow| {
            (&known.address, known.protocol) == (&row.address, row.protocol)
        };
        match listeners.iter_mut().find(is_same) {
            Some(known) => {
                known.queries += row.queries;
                known.responses += row.responses;
            }
            None => listeners.push(row),
        }
    }
    listeners
}

struct Lines {
    head: String,
    seconds: u64,
    text: String,
}

impl Lines {
    fn add(&mut self, name: &str, value: Value) {
        let (head, seconds) = (&self.head, self.seconds);
        // A string takes any formatting.
        let _ = writeln!(self.text, "{head}.{name} {value} {seconds}");
    }

    fn server(&mut self, server: &Server) {
        let options = &server.options;
        let name = match options.name.as_str() {
            "" => options.address.to_string(),
            name => name.to_owned(),
        };
        let place = format!("servers.{}", one_word(&name));
        for (what, value) in SERVER {
            self.add(&format!("{place}.{what}"), value(server));
        }
    }

    fn frontend(&mut self, row: &FrontendRow) {
        let address = row.address.to_string().replace('.', "_");
        let protocol = match row.protocol {
            Protocol::Udp => "udp",
            Protocol::Tcp => "tcp",
        };
        let place = format!("frontends.{address}_{protocol}");
        self.add(&format!("{place}.queries"), row.queries.into());
        self.add(&format!("{place}.responses"), row.responses.into());
        let tcp = row.connections.unwrap_or_default();
        for (what, value) in FRONTEND {
            self.add(&format!("{place}.{what}"), value(&tcp));
        }
        // There is no encryption yet.
        for what in OF_TLS {
            self.add(&format!("{place}.{what}"), Value::Whole(0));
        }
    }

    fn pool(&mut self, pool: &Pool) {
        let name = match pool.name.as_str() {
            "" => "_default_",
            name => name,
        };
        let place = format!("pools.{}", one_word(name));
        let up = pool.servers.iter().filter(|server| server.state.is_up());
        self.add(&format!("{place}.servers"), whole(pool.servers.len()));
        self.add(&format!("{place}.servers-up"), whole(up.count()));
        let Some(cache) = &pool.cache else { return };
        let size = whole(cache.options().maximum_entries);
        self.add(&format!("{place}.cache-size"), size);
        self.add(&format!("{place}.cache-entries"), whole(cache.len()));
        for (what, count) in CACHE {
            let count = count(cache.counts()).sum();
            self.add(&format!("{place}.{what}"), count.into());
        }
    }
}

fn whole(number: usize) -> Value {
    Value::Whole(number as u64)
}

fn plain(counter: &AtomicU64) -> Value {
    counter.load(Relaxed).into()
}

/// A name of dnsdist's, with its mistakes: graphs ask for it by that; and what it counts.
type Column<T> = (&'static str, fn(&T) -> Value);

const SERVER: [Column<Server>; 19] = [
    ("queries", |server| server.queries.sum().into()),
    ("responses", |server| server.responses.sum().into()),
    ("drops", |server| server.timeouts.sum().into()),
    ("latency", |server| {
        Value::Real(server.latency() as f64 / 1_000.0)
    }),
    ("senderrors", |server| server.send_errors.sum().into()),
    ("outstanding", |server| {
        Value::Signed(server.outstanding.get())
    }),
    ("tcpdiedsendingquery", |server| {
        plain(&server.tcp.died_sending_query)
    }),
    ("tcpdiedreaddingresponse", |server| {
        plain(&server.tcp.died_reading_response)
    }),
    ("tcpgaveup", |server| plain(&server.tcp.gave_up)),
    ("tcpreadimeouts", |server| plain(&server.tcp.read_timeouts)),
    ("tcpwritetimeouts", |server| {
        plain(&server.tcp.write_timeouts)
    }),
    ("tcpconnecttimeouts", |server| {
        plain(&server.tcp.connect_timeouts)
    }),
    ("tcpcurrentconnections", |server| {
        plain(&server.tcp.connections)
    }),
    ("tcpmaxconcurrentconnections", |server| {
        plain(&server.tcp.connections_maximum)
    }),
    ("tcpnewconnections", |server| {
        plain(&server.tcp.new_connections)
    }),
    ("tcpreusedconnections", |server| {
        plain(&server.tcp.reused_connections)
    }),
    ("tcpavgqueriesperconnection", |server| {
        Value::Real(server.tcp.queries_per_connection())
    }),
    ("tcpavgconnectionduration", |server| {
        Value::Real(server.tcp.duration())
    }),
    // There is no encryption yet.
    ("tlsresumptions", |_| Value::Whole(0)),
];

const FRONTEND: [Column<Figures>; 9] = [
    ("tcpdiedreadingquery", |tcp| tcp.died_reading_query.into()),
    ("tcpdiedsendingresponse", |tcp| {
        tcp.died_sending_response.into()
    }),
    ("tcpgaveup", |tcp| tcp.gave_up.into()),
    ("tcpclientimeouts", |tcp| tcp.client_timeouts.into()),
    ("tcpdownstreamtimeouts", |tcp| tcp.backend_timeouts.into()),
    ("tcpcurrentconnections", |tcp| tcp.connections.into()),
    ("tcpmaxconcurrentconnections", |tcp| {
        tcp.connections_maximum.into()
    }),
    ("tcpavgqueriesperconnection", |tcp| {
        Value::Real(tcp.queries_per_connection)
    }),
    ("tcpavgconnectionduration", |tcp| Value::Real(tcp.duration)),
];

const OF_TLS: [&str; 9] = [
    "tls10-queries",
    "tls11-queries",
    "tls12-queries",
    "tls13-queries",
    "tls-unknown-queries",
    "tlsnewsessions",
    "tlsresumptions",
    "tlsunknownticketkeys",
    "tlsinactiveticketkeys",
];

/// Which of its counts a cache's line has.
type CountOf = fn(&CacheCounts) -> &Sharded;

const CACHE: [(&str, CountOf); 7] = [
    ("cache-hits", |counts| &counts.hits),
    ("cache-misses", |counts| &counts.misses),
    ("cache-deferred-inserts", |counts| &counts.deferred_inserts),
    ("cache-deferred-lookups", |counts| &counts.deferred_lookups),
    ("cache-lookup-collisions", |counts| {
        &counts.lookup_collisions
    }),
    ("cache-insert-collisions", |counts| {
        &counts.insert_collisions
    }),
    ("cache-ttl-too-shorts", |counts| &counts.ttl_too_shorts),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fixture::{options, pool, server};
    use crate::backend::server::ServerOptions;
    use crate::config::cache::CacheOptions;
    use crate::config::{Config, LocalAddress};
    use crate::control::fixture::Standing;
    use crate::pipeline::cache::PacketCache;
    use std::sync::Arc;
    use std::time::Duration;

    fn standing() -> Standing {
        let named = ServerOptions {
            name: "a\tb c.d".to_owned(),
            ..options("192.0.2.3:53")
        };
        let spaced = pool("a b\n.c", &[]);
        let servers = vec![
            Arc::new(server(0, options("192.0.2.2:53"))),
            Arc::new(server(1, named)),
        ];
        let mut pool = Arc::into_inner(pool("", &servers[..1])).unwrap();
        pool.cache = Some(Arc::new(PacketCache::new(CacheOptions::new(100))));
        let mut standing = Standing::with(Config {
            servers,
            pools: vec![Some(Arc::new(pool)), Some(spaced)],
            ..Config::default()
        });
        let row = |protocol, thread, queries, connections| FrontendRow {
            address: LocalAddress::parse("192.0.2.1", 53).unwrap(),
            protocol,
            thread,
            queries,
            noncompliant_queries: 0,
            responses: 1,
            connections,
        };
        let figures = Figures {
            client_timeouts: 9,
            ..Figures::default()
        };
        standing.frontends = vec![
            row(Protocol::Udp, 0, 3, None),
            row(Protocol::Udp, 1, 4, None),
            row(Protocol::Tcp, 0, 5, Some(figures)),
        ];
        standing
    }

    fn sent(host: &str, counted: &[(Box<str>, u64)]) -> String {
        let export = Export {
            server: "192.0.2.9:2003".parse().unwrap(),
            host: host.to_owned(),
            every: Duration::from_secs(30),
            namespace: "n".to_owned(),
            instance: "i".to_owned(),
        };
        lines(&export, &Metrics::new(Arc::new(standing())), counted)
    }

    #[test]
    fn servers_listeners_and_pools_have_dnsdists_names() {
        let text = sent("ns1.example", &[]);
        for line in [
            "n.ns1.example.i.queries 0 ",
            "n.ns1.example.i.servers.192_0_2_2:53.tcpdiedreaddingresponse 0 ",
            "n.ns1.example.i.servers.192_0_2_2:53.tlsresumptions 0 ",
            "n.ns1.example.i.frontends.192_0_2_1:53_udp.queries 7 ",
            "n.ns1.example.i.frontends.192_0_2_1:53_udp.responses 2 ",
            "n.ns1.example.i.frontends.192_0_2_1:53_tcp.queries 5 ",
            "n.ns1.example.i.frontends.192_0_2_1:53_tcp.tcpclientimeouts 9 ",
            "n.ns1.example.i.frontends.192_0_2_1:53_tcp.tls13-queries 0 ",
            "n.ns1.example.i.pools._default_.servers 1 ",
            "n.ns1.example.i.pools._default_.servers-up 1 ",
            "n.ns1.example.i.pools._default_.cache-size 100 ",
            "n.ns1.example.i.pools._default_.cache-ttl-too-shorts 0 ",
            "n.ns1.example.i.servers.a_b_c_d.queries 0 ",
            "n.ns1.example.i.pools.a_b__c.servers 0 ",
        ] {
            let found = text.lines().filter(|found| found.starts_with(line));
            assert_eq!(found.count(), 1, "{line}\n{text}");
        }
        let words = text.lines().map(|line| line.split(' ').count());
        assert!(words.clone().min() == Some(3) && words.max() == Some(3));
    }

    #[test]
    fn a_machines_name_is_one_word() {
        let text = sent("", &[]);
        let names = text.lines().map(|line| line.split('.').nth(2));
        assert!(names.take(10).all(|word| word == Some("i")), "{text}");
    }

    #[test]
    fn names_that_were_counted_are_lines_of_their_own() {
        let counted = [("www.example.com".into(), 3), ("a b".into(), 1)];
        let text = sent("ns1", &counted);
        assert!(text.contains("\ndnsdist.querycount.www_example_com.queries 3 "));
        assert!(
            text.contains("\ndnsdist.querycount.a_b.queries 1 "),
            "{text}"
        );
    }
}
