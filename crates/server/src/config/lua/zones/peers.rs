//! Lists within `millrace.addZone{}`: `primaries` and `notify`, which are servers, and `acl`.

use super::super::options::shown;
use super::super::{place, spec, wrong};
use crate::config::addresses::with_port;
use crate::config::defaults::DNS_PORT;
use crate::config::named::path_of;
use crate::local::{Acl, AclEntry, Action, Peer, Scope, Span};
use crate::pipeline::acl::Netmask;
use crate::pipeline::query::Protocol;
use mlua::{Lua, Table, Value};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use wire::name::NameBuf;
use zone::tsig::Key;

/// What is said of a server.
const OF_SERVERS: [&str; 3] = ["address", "key", "source"];
/// What is said of one that sends the zone; the last as Knot's `block-notify-after-transfer`.
const OF_PRIMARIES: [&str; 4] = ["address", "key", "source", BLOCKS_NOTIFY];
const BLOCKS_NOTIFY: &str = "blockNotifyAfterTransfer";

/// The servers that send the zone, see [`peers`].
pub(super) fn primaries(lua: &Lua, value: Option<Value>) -> mlua::Result<Vec<Peer>> {
    peers(lua, "primaries", value, &OF_PRIMARIES)
}

/// The servers that are told, see [`peers`].
pub(super) fn told(lua: &Lua, value: Option<Value>) -> mlua::Result<Vec<Peer>> {
    peers(lua, "notify", value, &OF_SERVERS)
}

/// The servers that `value` lists: `{{address="192.0.2.1:53", key="k."}, …}`; one alone, and an address without a key, need
/// no table around. `known`: what may be said of each.
fn peers(lua: &Lua, option: &str, value: Option<Value>, known: &[&str]) -> mlua::Result<Vec<Peer>> {
    let peer = |(place, value): (String, Value)| match value {
        Value::String(address) => address_of(&place, &address.to_string_lossy()).map(Peer::new),
        Value::Table(table) => peer(lua, &place, &table, known),
        other => Err(wrong(format!(
            "{place}: {{address=\"192.0.2.1:53\", key=\"k.\"}} expected, got {}",
            shown(&other)
        ))),
    };
    each(option, value, "address")?
        .into_iter()
        .map(peer)
        .collect()
}

fn peer(lua: &Lua, place: &str, table: &Table, known: &[&str]) -> mlua::Result<Peer> {
    only(place, table, known)?;
    let address = text(place, table, "address")?;
    let address = address.ok_or_else(|| {
        wrong(format!(
            "{place}: address: it is missing, as in address=\"192.0.2.1:53\""
        ))
    })?;
    let key = text(place, table, "key")?;
    let address = address_of(place, &address)?;
    let source = text(place, table, "source")?;
    let source = source.map(|source| source_of(place, &source, address));
    Ok(Peer {
        address,
        source: source.transpose()?,
        key: key.map(|name| key_of(lua, place, &name)).transpose()?,
        blocks_notify: flag(place, table, BLOCKS_NOTIFY)?,
    })
}

fn address_of(place: &str, text: &str) -> mlua::Result<SocketAddr> {
    let address =
        with_port(text, DNS_PORT).map_err(|error| wrong(format!("{place}: address: {error}")))?;
    match address.port() {
        0 => Err(wrong(format!(
            "{place}: address: '{text}': a port from 1 to 65535 expected, or none, which means {DNS_PORT}"
        ))),
        _ => Ok(address),
    }
}

/// An address of ours, of the same family as the peer's.
fn source_of(place: &str, text: &str, peer: SocketAddr) -> mlua::Result<IpAddr> {
    let source: Option<IpAddr> = text.parse().ok();
    let source = source.filter(|source| source.is_ipv4() == peer.is_ipv4());
    source.ok_or_else(|| {
        wrong(format!(
            "{place}: source: an address of this host without a port expected, of the family of {}, got '{text}'",
            peer.ip()
        ))
    })
}

/// A key that was added before.
fn key_of(lua: &Lua, place: &str, name: &str) -> mlua::Result<Arc<Key>> {
    let parsed: NameBuf = name
        .parse()
        .map_err(|error| wrong(format!("{place}: key: '{name}': {error}")))?;
    let spec = spec(lua)?;
    let key = spec.zones.key(parsed.as_name());
    key.map(Arc::clone).ok_or_else(|| {
        wrong(format!(
            "{place}: key: there is no '{name}': a millrace.addKey{{name=\"{name}\", …}} must stand before this line"
        ))
    })
}

// ------------------------------------------------------------------------------------------------ acl

/// The permissions that `value` lists: `{{action="transfer", address={"192.0.2.0/24"}, key="k."}, …}`.
pub(super) fn acl(lua: &Lua, value: Option<Value>) -> mlua::Result<Acl> {
    let mut entries = Vec::new();
    for (place, value) in each("acl", value, "action")? {
        let Value::Table(table) = value else {
            return Err(wrong(format!(
                "{place}: {{action=\"transfer\", address={{\"192.0.2.0/24\"}}, key=\"k.\"}} expected, got {}",
                shown(&value)
            )));
        };
        permission(lua, &place, &table, &mut entries)?;
    }
    Ok(entries.into_iter().collect())
}

fn permission(
    lua: &Lua,
    place: &str,
    table: &Table,
    entries: &mut Vec<AclEntry>,
) -> mlua::Result<()> {
    const KNOWN: [&str; 5] = ["action", "address", "key", "protocol", "deny"];
    only(place, table, &KNOWN)?;
    let denies = flag(place, table, "deny")?;
    let actions = actions(place, table, denies)?;
    let keys = texts(place, table, "key")?
        .iter()
        .map(|name| key_of(lua, place, name).map(|key| Some(key.name().to_owned())))
        .collect::<mlua::Result<Vec<_>>>()?;
    let scopes = scopes(place, table)?;
    if keys.is_empty() && scopes.is_empty() {
        let who = if denies { "denied" } else { "allowed" };
        return Err(wrong(format!(
            "{place}: address or key: one of them must say who is {who}; everybody is address={{\"0.0.0.0/0\", \"::/0\"}}"
        )));
    }
    let scopes = match scopes.is_empty() {
        true => vec![Scope::Everywhere],
        false => scopes,
    };
    let keys = if keys.is_empty() { vec![None] } else { keys };
    let protocols = protocols(place, table)?;
    for action in actions {
        for scope in &scopes {
            for protocol in &protocols {
                entries.extend(keys.iter().map(|key| AclEntry {
                    action,
                    scope: scope.clone(),
                    key: key.clone(),
                    protocol: *protocol,
                    denies,
                }));
            }
        }
    }
    Ok(())
}

/// Knot's manual on `deny`: "If no action is specified, deny all actions."
fn actions(place: &str, table: &Table, denies: bool) -> mlua::Result<Vec<Action>> {
    let words = texts(place, table, "action")?;
    if words.is_empty() && denies {
        return Ok(Action::ALL.to_vec());
    }
    if words.is_empty() {
        return Err(wrong(format!(
            "{place}: action: it is missing: {} expected",
            Action::WORDS
        )));
    }
    let action = |word: &String| {
        Action::of_word(word).ok_or_else(|| {
            wrong(format!(
                "{place}: action: {} expected, got '{word}'",
                Action::WORDS
            ))
        })
    };
    words.iter().map(action).collect()
}

/// What messages come by; `None`: by whatever it is.
fn protocols(place: &str, table: &Table) -> mlua::Result<Vec<Option<Protocol>>> {
    let protocol = |word: &String| match word.as_str() {
        "udp" => Ok(Some(Protocol::Udp)),
        "tcp" => Ok(Some(Protocol::Tcp)),
        _ => Err(wrong(format!(
            "{place}: protocol: \"udp\" or \"tcp\" expected, got '{word}'; without it an entry holds for both"
        ))),
    };
    let words = texts(place, table, "protocol")?;
    if words.is_empty() {
        return Ok(vec![None]);
    }
    words.iter().map(protocol).collect()
}

fn scopes(place: &str, table: &Table) -> mlua::Result<Vec<Scope>> {
    let texts = texts(place, table, "address")?;
    texts.iter().map(|text| scope_of(place, text)).collect()
}

/// The path of a listener; else a network, an address, or two addresses with a hyphen between.
fn scope_of(place: &str, text: &str) -> mlua::Result<Scope> {
    if text.starts_with('/') {
        let path = path_of(text).map(Scope::Path);
        return path.map_err(|error| wrong(format!("{place}: address: {error}")));
    }
    // No address in IPv4 has a letter, and none in IPv6 has no colon.
    if !text.contains(':') && text.contains(|letter: char| letter.is_alphabetic()) {
        return Err(wrong(format!(
            "{place}: address: '{text}' is neither an address nor the path of a listener, which begins with /: as in \"192.0.2.0/24\" or \"/run/millrace/dns.sock\""
        )));
    }
    span_of(place, text).map(Scope::Addresses)
}

/// A network, an address, or two addresses with a hyphen between.
fn span_of(place: &str, text: &str) -> mlua::Result<Span> {
    if let Some((first, last)) = text.split_once('-') {
        let address = |text: &str| text.trim().parse::<IpAddr>().ok();
        let ends = address(first).zip(address(last));
        let range = ends.and_then(|(first, last)| Span::range(first, last));
        return range.ok_or_else(|| {
            wrong(format!(
                "{place}: address: '{text}' is no range: two addresses of one family, the lower one first, as in \"192.0.2.10-192.0.2.20\""
            ))
        });
    }
    match text.parse::<Netmask>() {
        Ok(Netmask {
            network,
            negated: false,
        }) => Ok(network.into()),
        Ok(_) => Err(wrong(format!(
            "{place}: address: '{text}': a ! excludes nobody here: an entry of its own with deny=true does"
        ))),
        // Not what the error itself says: that names a !, which is nothing here, and knows neither ranges nor paths.
        Err(_) => Err(wrong(format!(
            "{place}: address: '{text}': an address, a prefix (0-32 bits for IPv4, 0-128 for IPv6) or a range expected, as in \"192.0.2.0/24\" or \"192.0.2.10-192.0.2.20\""
        ))),
    }
}

// ---------------------------------------------------------------------------------------------- lists

/// The entries of a list, each with how messages call it. A table with the field `mark` is an entry by itself.
fn each(option: &str, value: Option<Value>, mark: &str) -> mlua::Result<Vec<(String, Value)>> {
    let Some(Value::Table(table)) = value else {
        let alone = value.filter(|value| !value.is_nil());
        return Ok(alone
            .map(|value| (option.to_owned(), value))
            .into_iter()
            .collect());
    };
    if table.contains_key(mark)? {
        return Ok(vec![(option.to_owned(), Value::Table(table))]);
    }
    let entries = table.sequence_values::<Value>().enumerate();
    let entries = entries.map(|(at, value)| Ok((format!("{option}[{}]", at + 1), value?)));
    let entries: Vec<_> = entries.collect::<mlua::Result<_>>()?;
    if entries.is_empty() && !table.is_empty() {
        return Err(wrong(format!(
            "{option}: a list in braces expected, as in {option}={{{{{mark}=…}}}}"
        )));
    }
    only_numbered(option, &table, entries.len())?;
    Ok(entries)
}

/// No field but those of a list of this length: one with a name, or what stands behind a nil, would be passed over.
fn only_numbered(place: &str, list: &Table, length: usize) -> mlua::Result<()> {
    for pair in list.pairs::<Value, Value>() {
        let name = shown(&pair?.0);
        let is_entry = |at: usize| (1..=length).contains(&at);
        if !name.parse().is_ok_and(is_entry) {
            return Err(wrong(format!(
                "{place}: '{name}' is of none of its {length} entries: what belongs to one stands in braces with it, and none is nil"
            )));
        }
    }
    Ok(())
}

/// Whether this field is true; without it, it is not.
fn flag(place: &str, table: &Table, field: &str) -> mlua::Result<bool> {
    match table.raw_get(field)? {
        Value::Nil => Ok(false),
        Value::Boolean(is_set) => Ok(is_set),
        other => Err(wrong(format!(
            "{place}: {field}: true or false expected, got {}",
            shown(&other)
        ))),
    }
}

/// The text in this field.
fn text(place: &str, table: &Table, field: &str) -> mlua::Result<Option<String>> {
    table
        .raw_get(field)
        .map_err(|error| wrong(format!("{place}: {field}: {}", place::text_of(&error))))
}

/// The texts in this field, which may be one or a list.
fn texts(place: &str, table: &Table, field: &str) -> mlua::Result<Vec<String>> {
    match table.raw_get(field)? {
        Value::Table(list) => {
            let texts = list.sequence_values::<String>().map(|text| {
                text.map_err(|error| wrong(format!("{place}: {field}: {}", place::text_of(&error))))
            });
            let texts: Vec<_> = texts.collect::<mlua::Result<_>>()?;
            only_numbered(&format!("{place}: {field}"), &list, texts.len())?;
            Ok(texts)
        }
        _ => Ok(text(place, table, field)?.into_iter().collect()),
    }
}

/// No field but these: another one is a slip of the pen, and would open or close a door.
fn only(place: &str, table: &Table, known: &[&str]) -> mlua::Result<()> {
    for pair in table.pairs::<Value, Value>() {
        let name = shown(&pair?.0);
        if !known.contains(&name.as_str()) {
            return Err(wrong(format!(
                "{place}: there is no '{name}': {} expected",
                known.join(", ")
            )));
        }
    }
    Ok(())
}
