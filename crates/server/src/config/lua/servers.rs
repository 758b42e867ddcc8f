//! Backends: newServer and what finds or removes them.

use super::listeners::{self, XskSocket};
use super::objects::server::{self, ServerObject};
use super::objects::{list_of, pool};
use super::options::{Options, shown};
use super::{define, health, place, spec, wrong};
use crate::backend::ports::PORTS_PER_SOURCE;
use crate::backend::server::ServerOptions;
use crate::backend::source::Source;
use crate::config::place::Place;
use crate::config::spec::{ServerSpec, Spec};
use crate::config::{Xdp, addresses, defaults, uuid};
use mlua::{FromLua, Lua, Value};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "newServer", new_server)?;
    define(lua, "getServer", |lua, which: Value| {
        let spec = spec(lua)?;
        Ok(find(&spec, &which).map(|at| ServerObject(spec.servers[at].key)))
    })?;
    define(lua, "getServers", |lua, ()| {
        let spec = spec(lua)?;
        Ok(spec
            .servers
            .iter()
            .map(|server| ServerObject(server.key))
            .collect::<Vec<_>>())
    })?;
    define(lua, "rmServer", |lua, which: Value| {
        let mut spec = spec(lua)?;
        let at = find(&spec, &which).ok_or_else(|| not_found(&spec, &which))?;
        spec.servers.remove(at);
        Ok(())
    })
}

fn not_found(spec: &Spec, which: &Value) -> mlua::Error {
    if ServerObject::is_one(which) {
        return server::removed();
    }
    wrong(format!(
        "no server {}: a number below {}, a UUID or a Server expected",
        shown(which),
        spec.servers.len()
    ))
}

/// An `id` as it is compared and shown: usually a UUID, however that is written.
fn written(id: &str) -> String {
    uuid::canonical(id).unwrap_or_else(|| id.to_owned())
}

/// A server by its number, its UUID or itself.
fn find(spec: &Spec, which: &Value) -> Option<usize> {
    let at = match which {
        Value::Integer(number) => usize::try_from(*number).ok()?,
        Value::String(id) => {
            let id = written(&id.to_string_lossy());
            let is_meant = |server: &ServerSpec| server.options.id.eq_ignore_ascii_case(&id);
            spec.servers.iter().position(is_meant)?
        }
        Value::UserData(object) => {
            let key = object.borrow::<ServerObject>().ok()?.0;
            spec.servers.iter().position(|server| server.key == key)?
        }
        _ => return None,
    };
    (at < spec.servers.len()).then_some(at)
}

/// `newServer("address")`, `newServer({address=, …})`, `newServer("address", {…})` as the page on AF_XDP writes, and
/// `newServer("address", qps)` of old.
fn new_server(lua: &Lua, (first, second): (Value, Value)) -> mlua::Result<ServerObject> {
    let (address, table, qps) = match (first, second) {
        (Value::Table(table), Value::Nil) => (table.get("address")?, Some(table), None),
        (Value::String(address), Value::Table(table)) => {
            (Value::String(address), Some(table), None)
        }
        (Value::String(address), Value::Nil) => (Value::String(address), None, None),
        (first, qps) if matches!(qps, Value::Integer(_) | Value::Number(_)) => match first {
            Value::Table(table) => (
                table.get("address")?,
                Some(table),
                Some(u32::from_lua(qps, lua)?),
            ),
            address => (address, None, Some(u32::from_lua(qps, lua)?)),
        },
        (first, second) => {
            return Err(wrong(format!(
                "an address or a table of options expected, got {} and {}",
                shown(&first),
                shown(&second)
            )));
        }
    };
    let Value::String(address) = address else {
        return Err(wrong(format!(
            "address: an address expected, got {}",
            shown(&address)
        )));
    };
    let address =
        addresses::with_port(&address.to_string_lossy(), defaults::DNS_PORT).map_err(wrong)?;
    let mut options = Options::new(lua, "newServer", table);
    let server = read(lua, address, &mut options, qps)?;
    options.finish()?;
    add(&mut *spec(lua)?, place::caller(lua), server)
}

/// What was read of one newServer call.
struct Read {
    options: ServerOptions,
    id_given: bool,
}

fn add(spec: &mut Spec, place: Place, read: Read) -> mlua::Result<ServerObject> {
    let key = spec.next_server_key();
    spec.servers.push(ServerSpec {
        place,
        key,
        id_given: read.id_given,
        options: read.options,
        live: None,
    });
    // As dnsdist numbers them: getServer(0) is the first by `order`, not the first line. An `order` that was set since a line
    // counts with the next line.
    spec.servers.sort_by_key(|server| server.options.order);
    Ok(ServerObject(key))
}

fn read(
    lua: &Lua,
    address: SocketAddr,
    options: &mut Options<'_>,
    qps: Option<u32>,
) -> mlua::Result<Read> {
    let mut server = defaults::server(address);
    options.skip("address");
    if let Some(name) = options.get("name")? {
        server.name = name;
    }
    let id: Option<String> = options.get("id")?;
    let id_given = id.is_some();
    server.id = id.map_or(server.id, |id| written(&id));
    if let Some(names) = options.get::<Value>("pool")? {
        let pools = pool_names(lua, names);
        server.pools = pools.map_err(|error| wrong(format!("pool: {}", place::text_of(&error))))?;
    }
    server.order = options
        .number("order", "a whole number")?
        .unwrap_or(server.order);
    if let Some(number) = options.number("weight", WEIGHTS)? {
        server.weight = weight(number)?;
    }
    server.qps = options
        .number("qps", "queries per second")?
        .or(qps)
        .unwrap_or(server.qps);
    read_transport(options, &mut server)?;
    health::read(lua, options, &mut server.health)?;
    read_xdp(options, &mut server)?;
    check_addresses(&server)?;
    skip_the_rest(options)?;
    Ok(Read {
        options: server,
        id_given,
    })
}

/// What cannot work together.
fn check_addresses(server: &ServerOptions) -> mlua::Result<()> {
    let source = &server.source;
    if let Some(address) = source.address
        && address.is_ipv4() != server.address.is_ipv4()
    {
        return Err(wrong(format!(
            "source: {address} cannot be the source of packets to {}: an address of the same family expected",
            server.address.ip()
        )));
    }
    Ok(())
}

const WEIGHTS: &str = "a number from 1 to 2147483647";

pub(super) fn weight(number: i64) -> mlua::Result<u32> {
    match u32::try_from(number) {
        Ok(weight @ 1..=0x7fff_ffff) => Ok(weight),
        _ => Err(wrong(format!("weight: {WEIGHTS} expected, got {number}"))),
    }
}

/// A pool's name or a table of names.
pub(super) fn pool_names(lua: &Lua, value: Value) -> mlua::Result<Vec<String>> {
    let names: Vec<String> = match value {
        Value::Table(table) => list_of(&table)?,
        name => vec![String::from_lua(name, lua)?],
    };
    for name in &names {
        pool::make(lua, name)?;
    }
    Ok(if names.is_empty() {
        vec![String::new()]
    } else {
        names
    })
}

fn read_transport(options: &mut Options<'_>, server: &mut ServerOptions) -> mlua::Result<()> {
    // 0 says nothing of its own: a query that waits for no answer is lost.
    let udp_timeout = options.seconds("udpTimeout")?;
    server.udp_timeout = udp_timeout.filter(|timeout| !timeout.is_zero());
    if let Some(timeout) = tcp_timeout(options, "tcpConnectTimeout")? {
        server.tcp_connect_timeout = timeout;
    }
    if let Some(timeout) = tcp_timeout(options, "tcpSendTimeout")? {
        server.tcp_send_timeout = timeout;
    }
    if let Some(timeout) = tcp_timeout(options, "tcpRecvTimeout")? {
        server.tcp_receive_timeout = timeout;
    }
    server.tcp_only = options.flag("tcpOnly")?.unwrap_or(false);
    server.use_client_subnet = options.flag("useClientSubnet")?.unwrap_or(false);
    server.proxy_protocol = options.flag("useProxyProtocol")?.unwrap_or(false);
    // Of queries that came over an encrypted channel: there is none.
    options.flag("proxyProtocolAdvertiseTLS")?;
    server.reconnect_on_up = options.flag("reconnectOnUp")?.unwrap_or(false);
    server.disable_zero_scope = options.flag("disableZeroScope")?.unwrap_or(false);
    // dnsdist: 0, the default, is one after the other.
    let in_flight = options.number("maxInFlight", "a number of queries below 65536")?;
    server.tcp_in_flight = in_flight.map_or(1, |number: u16| usize::from(number).max(1));
    let connections = options.number("maxConcurrentTCPConnections", CONNECTIONS)?;
    server.tcp_maximum_connections = connections.map_or(0, |number: u32| number as usize);
    server.tcp_attempts = options.number("retries", "a number of connections")?;
    server.source = source(options)?;
    Ok(())
}

/// One of the times that a query over TCP may take: without any, none would be answered.
fn tcp_timeout(options: &mut Options<'_>, name: &'static str) -> mlua::Result<Option<Duration>> {
    let timeout = options.seconds(name)?;
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(wrong(format!(
            "{name}: at least 1 second expected, got 0: every query over TCP would fail at once"
        )));
    }
    Ok(timeout)
}

const CONNECTIONS: &str = "a number of connections below 2^32";

/// `source`, and what else is said of the sockets towards a server.
fn source(options: &mut Options<'_>) -> mlua::Result<Source> {
    let text = options.get::<String>("source")?.unwrap_or_default();
    let (address, interface) = source_of(&text)?;
    let dscp = options.number("dscp", CODE_POINTS)?.unwrap_or(0);
    if dscp > MAXIMUM_CODE_POINT {
        return Err(wrong(format!("dscp: {CODE_POINTS} expected, got {dscp}")));
    }
    sockets(options)?;
    let default = Source::default();
    let late_port = options.flag("ipBindAddrNoPort")?;
    Ok(Source {
        address,
        interface,
        dscp,
        late_port: late_port.unwrap_or(default.late_port),
        tcp_fast_open: options.flag("tcpFastOpen")?.unwrap_or(false),
    })
}

const CODE_POINTS: &str = "a code point from 0 to 63";

/// RFC 2474 §3: six bits.
const MAXIMUM_CODE_POINT: u8 = 63;

/// `192.0.2.2`, `eth0` or `192.0.2.2@eth0`.
fn source_of(text: &str) -> mlua::Result<(Option<IpAddr>, Option<String>)> {
    let (address, interface) = match text.split_once('@') {
        _ if text.is_empty() => return Ok((None, None)),
        Some((address, interface)) => (address.parse().map(Some), Some(interface)),
        None => match text.parse() {
            Ok(address) => (Ok(Some(address)), None),
            Err(_) => (Ok(None), Some(text)),
        },
    };
    match (address, interface) {
        (Ok(address), None) => Ok((address, None)),
        (Ok(address), Some(name)) if listeners::is_interface_name(name) => {
            Ok((address, Some(name.to_owned())))
        }
        _ => Err(wrong(format!(
            "source: '{text}' is neither an address (192.0.2.2) nor an interface (eth0) nor both (192.0.2.2@eth0)"
        ))),
    }
}

/// `sockets`: all servers share so many source ports as no file asks for.
fn sockets(options: &mut Options<'_>) -> mlua::Result<()> {
    let wanted: Option<u32> = options.number("sockets", "a number of sockets")?;
    if wanted.is_some_and(|wanted| wanted as usize > PORTS_PER_SOURCE) {
        options.no_effect_yet(&["sockets"])?;
    }
    Ok(())
}

/// `xskSockets={…}`, `xskSocket=` as the page on AF_XDP writes, `xdp=` of ours, and `MACAddr=`.
fn read_xdp(options: &mut Options<'_>, server: &mut ServerOptions) -> mlua::Result<()> {
    let mut queues = Vec::new();
    for name in ["xskSockets", "xskSocket"] {
        match options.get::<Value>(name)? {
            None => {}
            Some(Value::Table(sockets)) => {
                let sockets = list_of::<XskSocket>(&sockets)?.into_iter();
                queues.extend(sockets.map(|socket| socket.0));
            }
            Some(_) => queues.extend(options.get::<XskSocket>(name)?.map(|socket| socket.0)),
        }
    }
    server.xdp = match (queues.is_empty(), listeners::wanted(options)?) {
        (true, wanted) => wanted,
        (false, Xdp::Off) => Xdp::Queues(queues),
        (false, _) => {
            return Err(wrong(
                "xskSockets and xdp in one table: queues come either from newXsk or from xdp",
            ));
        }
    };
    server.mac = options
        .get::<String>("MACAddr")?
        .filter(|text| !text.is_empty())
        .map(|text| mac(&text))
        .transpose()?;
    Ok(())
}

fn mac(text: &str) -> mlua::Result<[u8; 6]> {
    parse_mac(text).ok_or_else(|| {
        wrong(format!(
            "MACAddr: '{text}' is not an Ethernet address: 00:11:22:33:44:55 expected"
        ))
    })
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut octets = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        let is_octet = |part: &&str| {
            matches!(part.len(), 1 | 2) && part.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        let part = parts.next().filter(is_octet)?;
        *octet = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(octets)
}

/// The options that nobody of the above has read.
fn skip_the_rest(options: &mut Options<'_>) -> mlua::Result<()> {
    options.not_yet(&["dohPath", "tls"])?;
    options.no_effect_yet(&[
        "autoUpgrade",
        "autoUpgradeDoHKey",
        "autoUpgradeInterval",
        "autoUpgradeKeep",
        "autoUpgradePool",
        // Without `tls` these have nothing to say.
        "caStore",
        "ciphers",
        "ciphersTLS13",
        "enableRenegotiation",
        "keyLogFile",
        "ktls",
        "releaseBuffers",
        "subjectAddr",
        "subjectName",
        "validateCertificates",
        // Nor these without `dohPath` and `autoUpgrade`.
        "addXForwardedHeaders",
        "lazyHealthCheckWhenUpgraded",
    ])
}
