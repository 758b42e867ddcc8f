//! Servers, pools and policies, looked at.

use super::super::options::Options;
use super::super::{define, spec, wrong};
use super::{say, say_row, serving};
use crate::backend::server::{Server, ServerOptions};
use crate::config::spec::{PoolSpec, ServerSpec, Spec};
use crate::pipeline::route;
use mlua::{Lua, Table};
use std::fmt::Display;
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "showServers", |lua, options: Option<Table>| {
        let mut options = Options::new(lua, "showServers", options);
        let with_uuids = options.flag("showUUIDs")?.unwrap_or(false);
        options.finish()?;
        show_servers(lua, with_uuids)
    })?;
    define(lua, "showPools", |lua, ()| show_pools(lua))?;
    define(lua, "showServerPolicy", |lua, ()| {
        let name = policy_name(&*spec(lua)?, None);
        say(lua, name);
        Ok(())
    })?;
    define(lua, "showPoolServerPolicy", |lua, pool: String| {
        let spec = spec(lua)?;
        let found = spec.pools.get(&pool);
        let found = found.ok_or_else(|| wrong(format!("there is no pool '{pool}'")))?;
        let name = policy_name(&spec, Some(found));
        drop(spec);
        say(lua, name);
        Ok(())
    })
}

/// The policy of a pool, or the default one: that of a function, where one chooses.
fn policy_name(spec: &Spec, pool: Option<&PoolSpec>) -> String {
    let (policy, chooser) = match pool.map(|pool| (pool.policy, &pool.chooser)) {
        None | Some((None, None)) => (spec.policy, &spec.chooser),
        Some((own, chooser)) => (own.unwrap_or_default(), chooser),
    };
    route::policy_name(policy, chooser.as_ref()).into_owned()
}

// ---------------------------------------------------------------------------------------------- showServers

/// One line; text, so that the head and the sums are lines too.
struct Line {
    number: String,
    uuid: Option<String>,
    name: String,
    address: String,
    state: String,
    /// Qps, Qlim, Ord, Wt.
    limits: [String; 4],
    /// Queries, Drops, Drate.
    counts: [String; 3],
    /// Lat, TCP, in milliseconds.
    latencies: [String; 2],
    outstanding: String,
    pools: String,
}

impl Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:<3} ", self.number)?;
        if let Some(uuid) = &self.uuid {
            write!(f, "{uuid:<36} ")?;
        }
        write!(
            f,
            "{:<20} {:<29} {:>5}",
            self.name, self.address, self.state
        )?;
        let [qps, qps_limit, order, weight] = &self.limits;
        write!(f, " {qps:>7} {qps_limit:>7} {order:>3} {weight:>2}")?;
        let [queries, drops, drop_rate] = &self.counts;
        write!(f, " {queries:>10} {drops:>7} {drop_rate:>5}")?;
        let [latency, tcp] = &self.latencies;
        write!(
            f,
            " {latency:>5} {tcp:>5} {:>11} {}",
            self.outstanding, self.pools
        )
    }
}

fn show_servers(lua: &Lua, with_uuids: bool) -> mlua::Result<()> {
    say_row(lua, head(with_uuids));
    let servers: Vec<(ServerOptions, Option<Arc<Server>>)> = {
        let spec = spec(lua)?;
        let parts = |server: &ServerSpec| (server.options.clone(), server.live.clone());
        spec.servers.iter().map(parts).collect()
    };
    let metrics = serving(lua);
    let (mut qps, mut queries, mut drops) = (0.0, 0, 0);
    for (number, (options, live)) in servers.iter().enumerate() {
        let rate = metrics.as_ref().zip(live.as_ref());
        let rate = rate.map(|(metrics, live)| metrics.rate(live.number));
        let rate = rate.unwrap_or_default();
        qps += rate.queries;
        queries += live.as_ref().map_or(0, |live| live.queries.sum());
        drops += live.as_ref().map_or(0, |live| live.timeouts.sum());
        say_row(
            lua,
            line(number, options, live.as_deref(), rate, with_uuids),
        );
    }
    say_row(lua, sums(with_uuids, qps, queries, drops));
    Ok(())
}

fn head(with_uuids: bool) -> Line {
    Line {
        number: "#".to_owned(),
        uuid: with_uuids.then(|| "UUID".to_owned()),
        name: "Name".to_owned(),
        address: "Address".to_owned(),
        state: "State".to_owned(),
        limits: ["Qps", "Qlim", "Ord", "Wt"].map(str::to_owned),
        counts: ["Queries", "Drops", "Drate"].map(str::to_owned),
        latencies: ["Lat", "TCP"].map(str::to_owned),
        outstanding: "Outstanding".to_owned(),
        pools: "Pools".to_owned(),
    }
}

/// Before the configuration serves there is no live server: it counts nothing and is down.
fn line(
    number: usize,
    options: &ServerOptions,
    live: Option<&Server>,
    rate: crate::control::metrics::rates::Rate,
    with_uuids: bool,
) -> Line {
    let count = |count: fn(&Server) -> u64| live.map_or(0, count).to_string();
    let milliseconds = |latency: fn(&Server) -> u64| {
        let microseconds = live.map_or(0, latency);
        format!("{:.1}", microseconds as f64 / 1_000.0)
    };
    let pools = options.pools.iter().filter(|pool| !pool.is_empty());
    let address = options.address.to_string();
    Line {
        number: number.to_string(),
        uuid: with_uuids.then(|| options.id.clone()),
        name: cut(if options.name.is_empty() {
            &address
        } else {
            &options.name
        }),
        state: live.map_or("down", |live| live.state.word()).to_owned(),
        limits: [
            format!("{:.1}", rate.queries),
            options.qps.to_string(),
            options.order.to_string(),
            options.weight.to_string(),
        ],
        counts: [
            count(|live| live.queries.sum()),
            count(|live| live.timeouts.sum()),
            format!("{:.1}", rate.timeouts),
        ],
        latencies: [
            milliseconds(Server::latency),
            milliseconds(Server::latency_tcp),
        ],
        outstanding: live.map_or(0, |live| live.outstanding.get()).to_string(),
        pools: pools.cloned().collect::<Vec<_>>().join(" "),
        address,
    }
}

/// dnsdist cuts names at this column.
fn cut(name: &str) -> String {
    name.chars().take(20).collect()
}

fn sums(with_uuids: bool, qps: f64, queries: u64, drops: u64) -> Line {
    let none = String::new;
    Line {
        number: "All".to_owned(),
        uuid: with_uuids.then(none),
        name: none(),
        address: none(),
        state: none(),
        limits: [format!("{qps:.1}"), none(), none(), none()],
        counts: [queries.to_string(), drops.to_string(), none()],
        latencies: [none(), none()],
        outstanding: none(),
        pools: none(),
    }
}

// ---------------------------------------------------------------------------------------------- showPools

fn show_pools(lua: &Lua) -> mlua::Result<()> {
    let spec = spec(lua)?;
    let pools = spec
        .pools
        .iter()
        .map(|(name, pool)| pool_row(&spec, name, pool));
    let rows: Vec<String> = pools.collect();
    drop(spec);
    let [name, cache, policy] = ["Name", "Cache", "ServerPolicy"];
    say_row(lua, format!("{name:<20} {cache:>24} {policy:>20} Servers"));
    rows.iter().for_each(|row| say_row(lua, row));
    Ok(())
}

fn pool_row(spec: &Spec, name: &str, pool: &PoolSpec) -> String {
    let cache = pool.cache.map(|key| {
        let entries = spec.live_cache(key).map_or(0, |cache| cache.len());
        format!("{entries}/{}", spec.cache_options(key).maximum_entries)
    });
    let members = spec.members(name).into_iter();
    let members: Vec<String> = members.map(|server| member(&server.options)).collect();
    format!(
        "{name:<20} {:>24} {:>20} {}",
        cache.unwrap_or_default(),
        policy_name(spec, Some(pool)),
        members.join(", ")
    )
}

fn member(options: &ServerOptions) -> String {
    let address = options.address.to_string();
    match options.name.as_str() {
        "" => format!("{address} {address}"),
        name => format!("{name} {address}"),
    }
}
