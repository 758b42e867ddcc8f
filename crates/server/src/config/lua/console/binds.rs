//! Listeners, looked at: showBinds, ClientState and what TCP connections did.

use super::super::options::Flag;
use super::super::{define, spec};
use super::{say, say_row, serving};
use crate::config::LocalAddress;
use crate::config::lua::objects::unknown_is_nil;
use crate::config::spec::Spec;
use crate::control::metrics::rows::FrontendRow;
use crate::frontend::tcp::Figures;
use crate::log;
use crate::pipeline::query::Protocol;
use mlua::{Lua, MetaMethod, UserData, UserDataFields, UserDataMethods};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "showBinds", |lua, ()| {
        let (number, address, protocol) = ("#", "Address", "Protocol");
        say_row(
            lua,
            format!("{number:<3} {address:<30} {protocol:<21} Queries"),
        );
        for (number, bind) in binds(lua).iter().enumerate() {
            let Bind {
                address,
                protocol,
                queries,
                ..
            } = bind;
            let (address, protocol) = (address.to_string(), kind(*protocol));
            say_row(
                lua,
                format!("{number:<3} {address:<30} {protocol:<21} {queries}"),
            );
        }
        Ok(())
    })?;
    define(lua, "getBind", |lua, number: usize| {
        Ok(binds(lua).into_iter().nth(number))
    })?;
    define(lua, "getBindCount", |lua, ()| Ok(binds(lua).len()))?;
    define(lua, "requestTCPStatesDump", |lua, ()| {
        let lines = tcp_states(lua);
        lines.iter().for_each(|line| log::info!("{line}"));
        Ok(())
    })?;
    define(lua, "showTCPStats", |lua, ()| {
        show_tcp(lua);
        Ok(())
    })
}

/// An address over one protocol, or a path: dnsdist's ClientState.
#[derive(Debug, Clone)]
struct Bind {
    address: LocalAddress,
    protocol: Protocol,
    queries: u64,
    /// Of TCP.
    connections: Option<Figures>,
}

fn kind(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Udp => "UDP",
        Protocol::Tcp => "TCP",
    }
}

/// The listeners that serve, each over UDP and over TCP; as long as a file is read, those that it has added so far.
fn binds(lua: &Lua) -> Vec<Bind> {
    let Some(metrics) = serving(lua) else {
        return spec(lua).map_or_else(|_| Vec::new(), |spec| added(&spec));
    };
    let mut binds: Vec<Bind> = Vec::new();
    for row in metrics.running().frontends() {
        match binds.iter_mut().find(|bind| bind.is(&row)) {
            // One row a worker.
            Some(bind) => bind.queries += row.queries,
            None => binds.push(Bind {
                address: row.address,
                protocol: row.protocol,
                queries: row.queries,
                connections: row.connections,
            }),
        }
    }
    binds
}

/// In the order in which they will serve: addresses, one after the other, then paths.
fn added(spec: &Spec) -> Vec<Bind> {
    let bind = |address: LocalAddress, protocol| Bind {
        address,
        protocol,
        queries: 0,
        connections: (protocol == Protocol::Tcp).then(Figures::default),
    };
    let mut binds: Vec<Bind> = Vec::new();
    for line in &spec.listeners {
        let address = LocalAddress::Ip(line.address);
        if !binds.iter().any(|known| known.address == address) {
            binds.extend(
                [Protocol::Udp, Protocol::Tcp].map(|protocol| bind(address.clone(), protocol)),
            );
        }
    }
    let paths = spec.paths.iter();
    let paths = paths.map(|line| LocalAddress::Path(Arc::clone(&line.listener.path)));
    binds.extend(paths.map(|path| bind(path, Protocol::Tcp)));
    binds
}

impl Bind {
    fn is(&self, row: &FrontendRow) -> bool {
        (&self.address, self.protocol) == (&row.address, row.protocol)
    }

    /// Where datagrams come to: what can be muted.
    fn of_datagrams(&self) -> Option<SocketAddr> {
        match (self.protocol, &self.address) {
            (Protocol::Udp, LocalAddress::Ip(address)) => Some(*address),
            _ => None,
        }
    }
}

impl UserData for Bind {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
        fields.add_field_method_get("muted", |lua, bind| {
            let spec = spec(lua)?;
            Ok(bind
                .of_datagrams()
                .is_some_and(|address| spec.muted.contains(&address)))
        });
        // "TCP queries are processed normally and responses sent to the client."
        fields.add_field_method_set("muted", |lua, bind, Flag(muted): Flag| {
            let mut spec = spec(lua)?;
            if let Some(address) = bind.of_datagrams()
                && spec.muted.contains(&address) != muted
            {
                match muted {
                    true => spec.muted.insert(address),
                    false => spec.muted.remove(&address),
                };
            }
            Ok(())
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getType", |_, bind, ()| Ok(kind(bind.protocol)));
        // Without encryption there is no TLS library.
        for provider in ["getEffectiveTLSProvider", "getRequestedTLSProvider"] {
            methods.add_method(provider, |_, _, ()| Ok(""));
        }
        methods.add_method("toString", |_, bind, ()| Ok(bind.address.to_string()));
        methods.add_meta_method(MetaMethod::ToString, |_, bind, ()| {
            Ok(bind.address.to_string())
        });
    }
}

// ---------------------------------------------------------------------------------------------- showTCPStats

/// What TCP has to do now, for the log.
fn tcp_states(lua: &Lua) -> Vec<String> {
    let mut lines = vec!["Dumping the TCP states, as requested:".to_owned()];
    for bind in binds(lua) {
        if let Some(figures) = bind.connections {
            let (address, connections) = (&bind.address, figures.connections);
            lines.push(format!("- {address} has {connections} connections"));
        }
    }
    let config = serving(lua).map(|metrics| metrics.config());
    for server in config.iter().flat_map(|config| &config.servers) {
        let (name, tcp) = (server.name_with_address(), &server.tcp);
        lines.push(format!(
            "- {} connections to {name}",
            plain(&tcp.connections)
        ));
    }
    lines
}

fn show_tcp(lua: &Lua) {
    let Some(metrics) = serving(lua) else { return };
    let threads = metrics.config().tuning.tcp.threads;
    for line in workers(threads) {
        say_row(lua, line);
    }
    say(lua, "\nFrontends:");
    table(lua, &["#", "Address"], &FRONTEND);
    let streams = binds(lua);
    let streams = streams.iter().filter(|bind| bind.connections.is_some());
    for (number, bind) in streams.enumerate() {
        let figures = bind.connections.unwrap_or_default();
        let cells = FRONTEND.map(|(_, value)| value(&figures));
        row(lua, &[number.to_string(), bind.address.to_string()], &cells);
    }
    say(lua, "\nBackends:");
    table(lua, &["#", "Name", "Address"], &BACKEND);
    for (number, server) in metrics.config().servers.iter().enumerate() {
        let (name, address) = (&server.options.name, server.options.address.to_string());
        // dnsdist names a server by its address where it has no name.
        let name = if name.is_empty() { &address } else { name };
        let names = [number.to_string(), name.clone(), address.clone()];
        let cells = BACKEND.map(|(_, value)| value(server.tcp.as_ref()));
        row(lua, &names, &cells);
    }
}

/// dnsdist's heading, twelve characters a column: how many threads serve TCP, how many may, and connections that wait for one:
/// here they wait in the kernel alone, whose limit is the listener's `tcpListenQueueSize`.
fn workers(threads: usize) -> [String; 2] {
    let line = |one: &str, two: &str, three: &str, four: &str| {
        format!("{one:<12} {two:<12} {three:<12} {four}")
    };
    let threads = threads.to_string();
    [
        line("Workers", "Max Workers", "Queued", "Max Queued"),
        line(&threads, &threads, "0", "0"),
    ]
}

/// A column of numbers: its title, and what stands in it. Those of dnsdist, in its order, also where there is nothing to count
/// yet: scripts take them by their place.
type Column<T> = (&'static str, fn(&T) -> String);

const FRONTEND: [Column<Figures>; 18] = [
    ("Connections", |tcp| tcp.connections.to_string()),
    ("Max concurrent conn", |tcp| {
        tcp.connections_maximum.to_string()
    }),
    ("Died reading query", |tcp| {
        tcp.died_reading_query.to_string()
    }),
    ("Died sending response", |tcp| {
        tcp.died_sending_response.to_string()
    }),
    ("Gave up", |tcp| tcp.gave_up.to_string()),
    ("Client timeouts", |tcp| tcp.client_timeouts.to_string()),
    ("Downstream timeouts", |tcp| {
        tcp.backend_timeouts.to_string()
    }),
    ("Avg queries/conn", |tcp| {
        average(tcp.queries_per_connection)
    }),
    ("Avg duration", |tcp| average(tcp.duration)),
    ("TLS new sessions", nothing),
    ("TLS Resumptions", nothing),
    ("TLS unknown ticket keys", nothing),
    ("TLS inactive ticket keys", nothing),
    ("TLS 1.0", nothing),
    ("TLS 1.1", nothing),
    ("TLS 1.2", nothing),
    ("TLS 1.3", nothing),
    ("TLS other", nothing),
];

type Backend = crate::backend::tcp::Counters;

const BACKEND: [Column<Backend>; 13] = [
    ("Connections", |tcp| plain(&tcp.connections)),
    ("Max concurrent conn", |tcp| plain(&tcp.connections_maximum)),
    ("Died sending query", |tcp| plain(&tcp.died_sending_query)),
    ("Died reading response", |tcp| {
        plain(&tcp.died_reading_response)
    }),
    ("Gave up", |tcp| plain(&tcp.gave_up)),
    ("Read timeouts", |tcp| plain(&tcp.read_timeouts)),
    ("Write timeouts", |tcp| plain(&tcp.write_timeouts)),
    ("Connect timeouts", |tcp| plain(&tcp.connect_timeouts)),
    ("Total connections", |tcp| plain(&tcp.new_connections)),
    ("Reused connections", |tcp| plain(&tcp.reused_connections)),
    ("TLS resumptions", nothing),
    ("Avg queries/conn", |tcp| {
        average(tcp.queries_per_connection())
    }),
    ("Avg duration", |tcp| average(tcp.duration())),
];

fn nothing<T>(_: &T) -> String {
    "0".to_owned()
}

fn average(value: f64) -> String {
    format!("{value:.6}")
}

fn plain(counter: &AtomicU64) -> String {
    counter.load(Relaxed).to_string()
}

fn table<T, const COLUMNS: usize>(lua: &Lua, names: &[&str], columns: &[Column<T>; COLUMNS]) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    row(lua, &names, &columns.map(|(title, _)| title.to_owned()));
}

/// The number in three characters, everything else in twenty or more.
fn row(lua: &Lua, names: &[String], cells: &[String]) {
    let (number, names) = names.split_first().expect("a row begins with its number");
    let mut line = format!("{number:<3} ");
    for cell in names.iter().chain(cells) {
        line += &format!("{cell:<24} ");
    }
    say_row(lua, line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heading_is_dnsdists() {
        let expected = [
            "Workers      Max Workers  Queued       Max Queued",
            "10           10           0            0",
        ];
        assert_eq!(workers(10), expected);
    }

    /// As dnsdist 1.7.3 shows them.
    #[test]
    fn columns_are_dnsdists() {
        let titles = FRONTEND.map(|(title, _)| title).join("  ");
        assert_eq!(
            titles,
            "Connections  Max concurrent conn  Died reading query  Died sending response  Gave up  Client timeouts  Downstream timeouts  \
             Avg queries/conn  Avg duration  TLS new sessions  TLS Resumptions  TLS unknown ticket keys  TLS inactive ticket keys  \
             TLS 1.0  TLS 1.1  TLS 1.2  TLS 1.3  TLS other"
        );
        let titles = BACKEND.map(|(title, _)| title).join("  ");
        assert_eq!(
            titles,
            "Connections  Max concurrent conn  Died sending query  Died reading response  Gave up  Read timeouts  Write timeouts  \
             Connect timeouts  Total connections  Reused connections  TLS resumptions  Avg queries/conn  Avg duration"
        );
        let tcp = Backend::default();
        tcp.new_connections.store(2, Relaxed);
        tcp.reused_connections.store(3, Relaxed);
        let cells = BACKEND.map(|(_, value)| value(&tcp));
        assert_eq!(cells[8..], ["2", "3", "0", "2.500000", "0.000000"]);
    }
}
