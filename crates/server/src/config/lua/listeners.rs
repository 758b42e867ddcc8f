//! Listeners: addLocal, setLocal, newXsk.

use super::objects::{list_of, object};
use super::options::Options;
use super::{console, define, place, spec, wrong};
use crate::config::lua::objects::unknown_is_nil;
use crate::config::named::NamedSpec;
use crate::config::spec::{ListenerSpec, Spec};
use crate::config::{LocalAddress, NamedListener, Xdp, XskQueue, defaults};
use mlua::{FromLua, Lua, Table, UserData, UserDataFields, UserDataMethods, Value};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "addLocal", |lua, (address, options)| {
        let line = line(lua, "addLocal", address, options)?;
        line.add(&mut *spec(lua)?);
        Ok(())
    })?;
    define(lua, "setLocal", |lua, (address, options)| {
        let line = line(lua, "setLocal", address, options)?;
        let mut spec = spec(lua)?;
        spec.listeners.clear();
        spec.paths.clear();
        line.add(&mut spec);
        Ok(())
    })?;
    define(lua, "setTCPFastOpenKey", |lua, text: String| {
        let key = fast_open_key(&text).ok_or_else(|| {
            wrong("four groups of eight hexadecimal digits expected, as in /proc/sys/net/ipv4/tcp_fastopen_key: 00112233-44556677-8899aabb-ccddeeff")
        })?;
        spec(lua)?.tcp_fast_open_key = Some(key);
        Ok(())
    })?;
    define(lua, "newXsk", new_xsk)
}

/// What one call asks for.
enum Line {
    Address(ListenerSpec),
    Path(NamedSpec),
}

impl Line {
    fn add(self, spec: &mut Spec) {
        match self {
            Line::Address(listener) => spec.listeners.push(listener),
            Line::Path(named) => spec.paths.push(named),
        }
    }
}

fn line(
    lua: &Lua,
    function: &'static str,
    address: String,
    table: Option<Table>,
) -> mlua::Result<Line> {
    let mut options = Options::new(lua, function, table);
    let line = match LocalAddress::parse(&address, defaults::DNS_PORT).map_err(wrong)? {
        LocalAddress::Ip(address) => Line::Address(listener(lua, address, &mut options)?),
        LocalAddress::Path(path) => Line::Path(NamedSpec {
            place: place::caller(lua),
            listener: named(path, &mut options)?,
        }),
    };
    options.no_effect_yet(&["doTCP"])?;
    options.finish()?;
    Ok(line)
}

fn listener(
    lua: &Lua,
    address: SocketAddr,
    options: &mut Options<'_>,
) -> mlua::Result<ListenerSpec> {
    let interface = interface(options)?;
    let streams = streams(options)?;
    Ok(ListenerSpec {
        place: place::caller(lua),
        address,
        reuse_port: options.flag("reusePort")?.unwrap_or(false),
        xdp: on_interface(xdp(options)?, interface.as_deref()),
        tcp_listen_queue_size: streams.listen_queue_size,
        maximum_tcp_connections: streams.maximum_connections,
        cpus: options.get("cpus")?.unwrap_or_default(),
        tcp_in_flight: streams.in_flight,
        interface,
        tcp_fast_open_queue: options
            .number("tcpFastOpenQueueSize", "a number of connections")?
            .unwrap_or(0),
        proxy_protocol: streams.proxy_protocol,
    })
}

/// Options of what a UNIX stream socket does not have: interfaces, ports, datagrams, a worker of its own.
const OF_ADDRESSES: [&str; 6] = [
    "reusePort",
    "xdp",
    "xskSocket",
    "interface",
    "cpus",
    "tcpFastOpenQueueSize",
];

fn named(path: Arc<Path>, options: &mut Options<'_>) -> mlua::Result<NamedListener> {
    options.refuse(
        &OF_ADDRESSES,
        "a path is a UNIX stream socket, which has no such thing: take it out",
    )?;
    let streams = streams(options)?;
    Ok(NamedListener {
        path,
        tcp_listen_queue_size: streams.listen_queue_size,
        maximum_tcp_connections: streams.maximum_connections,
        tcp_in_flight: streams.in_flight,
        proxy_protocol: streams.proxy_protocol,
    })
}

/// What lines for addresses and for paths say of connections.
struct Streams {
    listen_queue_size: u32,
    maximum_connections: usize,
    in_flight: usize,
    proxy_protocol: bool,
}

fn streams(options: &mut Options<'_>) -> mlua::Result<Streams> {
    Ok(Streams {
        listen_queue_size: options
            .number("tcpListenQueueSize", "a number of connections")?
            .unwrap_or(defaults::TCP_LISTEN_QUEUE_SIZE),
        maximum_connections: options
            .number(
                "maxConcurrentTCPConnections",
                "a number of connections below 2^32",
            )?
            .map_or(0, |number: u32| number as usize),
        in_flight: options
            .number("maxInFlight", "a number of queries below 65536")?
            .map_or(0, |number: u16| number.into()),
        proxy_protocol: options.flag("enableProxyProtocol")?.unwrap_or(true),
    })
}

/// Whether an interface can have this name: the kernel's rule (dev_valid_name of netdevice(7)'s ioctls).
pub(super) fn is_interface_name(name: &str) -> bool {
    let odd = |octet: u8| octet == b'/' || octet == b':' || octet.is_ascii_whitespace();
    (1..libc::IFNAMSIZ).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.bytes().any(odd)
}

/// `interface=`: by its name; "" is none.
fn interface(options: &mut Options<'_>) -> mlua::Result<Option<String>> {
    let name = options.get::<String>("interface")?;
    let name = name.filter(|name| !name.is_empty());
    if let Some(name) = &name
        && !is_interface_name(name)
    {
        return Err(wrong(format!(
            "interface: '{name}' is no name that an interface can have: eth0 expected"
        )));
    }
    Ok(name)
}

/// Queries come by this interface alone, over AF_XDP too; what is named keeps its say, for the members of a bond.
fn on_interface(xdp: Xdp, interface: Option<&str>) -> Xdp {
    match (xdp, interface) {
        (Xdp::Auto, Some(name)) => Xdp::Interfaces(vec![name.to_owned()]),
        (xdp, _) => xdp,
    }
}

/// As the kernel prints its own: each group a number of 32 bits whose lowest octet comes first in the key.
fn fast_open_key(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    let mut groups = text.trim().split('-');
    for octets in key.chunks_exact_mut(4) {
        let is_hex =
            |group: &&str| group.len() == 8 && group.bytes().all(|digit| digit.is_ascii_hexdigit());
        let group = groups.next().filter(is_hex)?;
        octets.copy_from_slice(&u32::from_str_radix(group, 16).ok()?.to_le_bytes());
    }
    groups.next().is_none().then_some(key)
}

/// `xskSocket=`, dnsdist's, or `xdp=`, ours.
fn xdp(options: &mut Options<'_>) -> mlua::Result<Xdp> {
    let queues = options.get::<XskSocket>("xskSocket")?;
    let wanted = wanted(options)?;
    match (queues, wanted) {
        (Some(_), Xdp::Auto | Xdp::Interfaces(_)) => Err(wrong(
            "xskSocket and xdp in one table: queues come either from newXsk or from xdp",
        )),
        (Some(socket), _) => Ok(Xdp::Queues(vec![socket.0])),
        (None, wanted) => Ok(wanted),
    }
}

/// `xdp=true`, `xdp={"ens3f0", …}` or `xdp="ens3f0"`: for listeners and servers.
pub(super) fn wanted(options: &mut Options<'_>) -> mlua::Result<Xdp> {
    match options.get::<Value>("xdp")? {
        None | Some(Value::Boolean(false)) => Ok(Xdp::Off),
        Some(Value::Boolean(true)) => Ok(Xdp::Auto),
        Some(Value::String(name)) => Ok(Xdp::Interfaces(vec![name.to_str()?.to_owned()])),
        Some(Value::Table(names)) => Ok(Xdp::Interfaces(list_of(&names)?)),
        Some(_) => Err(wrong(
            "xdp: true, false or a table of interface names expected",
        )),
    }
}

/// What newXsk returns.
#[derive(Clone)]
pub(super) struct XskSocket(pub(super) XskQueue);

impl UserData for XskSocket {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        unknown_is_nil(fields);
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getMetrics", |lua, socket, ()| Ok(metrics(lua, &socket.0)));
    }
}

/// XDP_STATISTICS of the socket that serves the queue: a line for each number, under its name in the kernel. Nothing where there
/// is no such socket, or none yet.
fn metrics(lua: &Lua, asked: &XskQueue) -> String {
    let rows = console::serving(lua).map_or_else(Vec::new, |metrics| metrics.running().xsk());
    let row = rows
        .iter()
        .find(|row| row.interface == asked.interface && row.queue == asked.queue);
    row.map_or_else(String::new, |row| numbers(&row.kernel))
}

fn numbers(kernel: &xsk::KernelCounters) -> String {
    let numbers = [
        ("rx_dropped", kernel.rx_dropped),
        ("rx_invalid_descs", kernel.rx_invalid),
        ("tx_invalid_descs", kernel.tx_invalid),
        ("rx_ring_full", kernel.rx_ring_full),
        ("rx_fill_ring_empty_descs", kernel.fill_ring_empty),
        ("tx_ring_empty_descs", kernel.tx_ring_empty),
    ];
    let lines = numbers.map(|(name, number)| format!("{name}: {number}\n"));
    lines.concat()
}

impl FromLua for XskSocket {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<XskSocket> {
        object(&value, "what newXsk returns")
    }
}

/// `newXsk({ifName=, NIC_queue_id=, frameNums=, xskMapPath=})`.
fn new_xsk(lua: &Lua, table: Table) -> mlua::Result<XskSocket> {
    let mut options = Options::new(lua, "newXsk", Some(table));
    let queue = XskQueue {
        interface: options
            .get("ifName")?
            .ok_or_else(|| wrong("ifName is missing: the name of an interface"))?,
        queue: options
            .number("NIC_queue_id", "a queue of the interface, from 0")?
            .ok_or_else(|| wrong("NIC_queue_id is missing: a queue of the interface, from 0"))?,
        map_path: options
            .get("xskMapPath")?
            .unwrap_or_else(|| DEFAULT_MAP_PATH.to_owned()),
    };
    let frames: Option<u32> = options.number("frameNums", "a power of two")?;
    options.finish()?;
    // dnsdist's own check. More than what the rings hold would never be used: `xsk::RingSizes::frames` is what a queue gets.
    match frames.filter(|frames| !frames.is_power_of_two()) {
        Some(frames) => Err(wrong(format!(
            "frameNums: {frames} is not a power of two: 65536 is the usual one"
        ))),
        None => Ok(XskSocket(queue)),
    }
}

/// Where dnsdist's loader pins the XSKMAP.
const DEFAULT_MAP_PATH: &str = "/sys/fs/bpf/dnsdist/xskmap";

#[cfg(test)]
mod tests {
    use crate::config::pools::PoolNames;
    use crate::config::spec::{Purpose, Spec};
    use crate::config::{Config, LuaState};
    use crate::control::fixture::Standing;
    use crate::control::metrics::Metrics;
    use crate::control::metrics::rows::XskRow;
    use std::sync::Arc;

    #[test]
    fn a_socket_shows_what_the_kernel_has_counted_of_its_queue() {
        let state = LuaState::new(Spec::new(Purpose::Serve, PoolNames::default())).unwrap();
        let text = r#"mine = newXsk({ifName="ens3f0", NIC_queue_id=7})
                      others = newXsk({ifName="ens3f0", NIC_queue_id=6})
                      assert(mine:getMetrics() == "")"#;
        state.run("test.conf", text.as_bytes()).unwrap();
        let mut standing = Standing::with(Config::default());
        standing.xsk = vec![XskRow {
            interface: "ens3f0".to_owned(),
            queue: 7,
            zero_copy: true,
            native: true,
            own: xsk::Counters::default(),
            kernel: xsk::KernelCounters {
                rx_dropped: 1,
                rx_invalid: 2,
                tx_invalid: 3,
                rx_ring_full: 4,
                fill_ring_empty: 5,
                tx_ring_empty: 6,
            },
            heartbeat_passes: 0,
        }];
        let metrics = Arc::new(Metrics::new(Arc::new(standing)));
        state.serve(&metrics);
        let text = r#"assert(others:getMetrics() == "")
                      local expected = "rx_dropped: 1\nrx_invalid_descs: 2\ntx_invalid_descs: 3\n" ..
                        "rx_ring_full: 4\nrx_fill_ring_empty_descs: 5\ntx_ring_empty_descs: 6\n"
                      assert(mine:getMetrics() == expected, mine:getMetrics())"#;
        state.run("test", text.as_bytes()).unwrap();
    }
}
