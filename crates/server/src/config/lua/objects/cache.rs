//! PacketCache.

use super::super::options::Flag;
use super::super::{console, spec, wrong};
use super::address::{AnyAddress, ComboAddress};
use super::name::{AnyName, DnsName};
use super::{list_of, object};
use crate::clock::{self, Now};
use crate::config::spec::CacheKey;
use crate::counters::Sharded;
use crate::pipeline::cache::{CacheCounts, Entry, PacketCache};
use crate::pipeline::query::Protocol;
use data_encoding::BASE64;
use mlua::{FromLua, Lua, MetaMethod, Table, UserData, UserDataMethods, Value};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use wire::codes::qtype;
use wire::message::{Header, Record, Records, Section, parse_response};

/// What newPacketCache returns: the name of an entry of the Spec.
#[derive(Clone, Copy)]
pub(in super::super) struct CacheObject(pub(in super::super) CacheKey);

impl FromLua for CacheObject {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<CacheObject> {
        object(&value, "what newPacketCache returns")
    }
}

impl CacheObject {
    /// The cache that serves; `None` before the configuration does.
    fn live(self, lua: &Lua) -> mlua::Result<Option<Arc<PacketCache>>> {
        Ok(spec(lua)?.live_cache(self.0))
    }

    /// Entries now, and at most.
    fn fill(self, lua: &Lua) -> mlua::Result<(usize, usize)> {
        let entries = self.live(lua)?.map_or(0, |cache| cache.len());
        Ok((entries, spec(lua)?.cache_options(self.0).maximum_entries))
    }

    /// How many entries of these names, or below them, were removed.
    fn expunge_names(
        self,
        lua: &Lua,
        names: &Names,
        qtype: Option<u16>,
        suffix: bool,
    ) -> mlua::Result<usize> {
        let Some(cache) = self.live(lua)? else {
            return Ok(0);
        };
        let qtype = qtype.filter(|qtype| *qtype != qtype::ANY);
        let names = names.0.iter().map(|name| name.0.as_name());
        Ok(names
            .map(|name| cache.expunge_by_name(&name, qtype, suffix))
            .sum())
    }
}

impl UserData for CacheObject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("expunge", |lua, cache, left: usize| {
            Ok(cache.live(lua)?.map_or(0, |cache| cache.expunge(left)))
        });
        methods.add_method("purgeExpired", |lua, cache, left: usize| {
            let purge = |cache: Arc<PacketCache>| cache.purge_expired(left, Now::read());
            Ok(cache.live(lua)?.map_or(0, purge))
        });
        methods.add_method(
            "expungeByName",
            |lua, cache, (names, qtype, suffix): (Names, Option<u16>, Option<Flag>)| {
                let suffix = Flag::or(suffix, false);
                let records = cache.expunge_names(lua, &names, qtype, suffix)?;
                console::say(lua, format!("Expunged {records} records"));
                Ok(())
            },
        );
        methods.add_method("isFull", |lua, cache, ()| {
            cache.fill(lua).map(|(entries, maximum)| entries >= maximum)
        });
        methods.add_method("toString", |lua, cache, ()| text(*cache, lua));
        methods.add_meta_method(MetaMethod::ToString, |lua, cache, ()| text(*cache, lua));
        methods.add_method("printStats", |lua, cache, ()| {
            console::say(lua, format!("Entries: {}", text(*cache, lua)?));
            let live = cache.live(lua)?;
            for (title, count) in COUNTS {
                let count = live.as_ref().map_or(0, |cache| count(cache.counts()).sum());
                console::say(lua, format!("{title}: {count}"));
            }
            Ok(())
        });
        methods.add_method("dump", |lua, cache, (path, raw): (String, Option<Flag>)| {
            let live = cache.live(lua)?;
            let records = dump(live.as_deref(), &path, Flag::or(raw, false))
                .map_err(|error| wrong(format!("{path}: cannot be written: {error}")))?;
            console::say(lua, format!("Dumped {records} records"));
            Ok(())
        });
        methods.add_method("getAddressListByDomain", |lua, cache, name: AnyName| {
            let live = cache.live(lua)?;
            let found = entries(live.as_deref()).filter(|entry| entry.name == name.0);
            let addresses: BTreeSet<IpAddr> = found.flat_map(|entry| addresses(&entry)).collect();
            let addresses = addresses.into_iter();
            Ok(addresses
                .map(|address| ComboAddress(SocketAddr::new(address, 0)))
                .collect::<Vec<_>>())
        });
        methods.add_method(
            "getDomainListByAddress",
            |lua, cache, address: AnyAddress| {
                let live = cache.live(lua)?;
                let found = entries(live.as_deref())
                    .filter(|entry| addresses(entry).contains(&address.0.ip()));
                let mut names: Vec<_> = found.map(|entry| entry.name).collect();
                names.sort_by_key(ToString::to_string);
                names.dedup();
                Ok(names.into_iter().map(DnsName).collect::<Vec<_>>())
            },
        );
        methods.add_method("getStats", |lua, cache, ()| stats(*cache, lua));
    }
}

/// What expungeByName takes: a name, or a table of names.
struct Names(Vec<AnyName>);

impl FromLua for Names {
    fn from_lua(value: Value, lua: &Lua) -> mlua::Result<Names> {
        let names: Vec<AnyName> = match value {
            Value::Table(names) => list_of(&names)?,
            name => vec![AnyName::from_lua(name, lua)?],
        };
        Ok(Names(names))
    }
}

/// `3/1000`.
fn text(cache: CacheObject, lua: &Lua) -> mlua::Result<String> {
    let (entries, maximum) = cache.fill(lua)?;
    Ok(format!("{entries}/{maximum}"))
}

/// A title and its count.
type Count = (&'static str, fn(&CacheCounts) -> &Sharded);

/// What printStats shows, in dnsdist's order.
const COUNTS: [Count; 8] = [
    ("Hits", |counts| &counts.hits),
    ("Misses", |counts| &counts.misses),
    ("Deferred inserts", |counts| &counts.deferred_inserts),
    ("Deferred lookups", |counts| &counts.deferred_lookups),
    ("Lookup Collisions", |counts| &counts.lookup_collisions),
    ("Insert Collisions", |counts| &counts.insert_collisions),
    ("TTL Too Shorts", |counts| &counts.ttl_too_shorts),
    ("Cleanup Count", |counts| &counts.cleanups),
];

fn entries(cache: Option<&PacketCache>) -> impl Iterator<Item = Entry> {
    cache
        .into_iter()
        .flat_map(|cache| cache.entries(Now::read()))
}

/// One line an entry, into a new file: what is there is not overwritten. How many.
fn dump(cache: Option<&PacketCache>, path: &str, raw: bool) -> std::io::Result<usize> {
    let mut file = BufWriter::new(File::create_new(path)?);
    writeln!(file, "; dnsdist's packet cache dump follows\n;")?;
    let now = clock::unix();
    let mut records = 0;
    for entry in entries(cache) {
        writeln!(file, "{}", line(&entry, now, raw))?;
        records += 1;
    }
    file.flush()?;
    Ok(records)
}

/// An entry as dnsdist dumps it; `now` in seconds since 1970.
fn line(entry: &Entry, now: u64, raw: bool) -> String {
    let header = Header::read(&entry.response).unwrap_or_default();
    let qtype = qtype::name(entry.qtype).map(str::to_owned);
    let response = match raw {
        true => format!(", packet {}", BASE64.encode(&entry.response)),
        false => String::new(),
    };
    format!(
        "{} {} {} ; rcode {}, key {}, length {}, received over UDP {}, added {}{response}",
        entry.name,
        entry.left,
        qtype.unwrap_or_else(|| format!("TYPE{}", entry.qtype)),
        header.flags() & 15,
        entry.key,
        entry.response.len(),
        u8::from(entry.protocol == Protocol::Udp),
        now.saturating_sub(entry.age.into()),
    )
}

/// In the A and AAAA records of the answer section.
fn addresses(entry: &Entry) -> BTreeSet<IpAddr> {
    let message = &entry.response;
    let Ok(parts) = parse_response(message) else {
        return BTreeSet::new();
    };
    let header = Header::read(message).unwrap_or_default();
    let records = Records::new(message, parts.question_end, &header).flatten();
    let records = records.filter(|record| record.section == Section::Answer);
    let address = |record: Record| match record.rtype {
        qtype::A => <[u8; 4]>::try_from(record.rdata(message))
            .ok()
            .map(IpAddr::from),
        qtype::AAAA => <[u8; 16]>::try_from(record.rdata(message))
            .ok()
            .map(IpAddr::from),
        _ => None,
    };
    records.filter_map(address).collect()
}

/// The manual's names.
fn stats(object: CacheObject, lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let (entries, maximum) = object.fill(lua)?;
    table.raw_set("entries", entries)?;
    table.raw_set("maxEntries", maximum)?;
    let live = object.live(lua)?;
    let fields: [Count; 8] = [
        ("hits", |counts| &counts.hits),
        ("misses", |counts| &counts.misses),
        ("deferredLookups", |counts| &counts.deferred_lookups),
        ("deferredInserts", |counts| &counts.deferred_inserts),
        ("lookupCollisions", |counts| &counts.lookup_collisions),
        ("insertCollisions", |counts| &counts.insert_collisions),
        ("ttlTooShorts", |counts| &counts.ttl_too_shorts),
        ("cleanupCount", |counts| &counts.cleanups),
    ];
    for (name, count) in fields {
        let count = live.as_ref().map_or(0, |cache| count(cache.counts()).sum());
        table.raw_set(name, count)?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::codes::class;

    #[test]
    fn a_dump_has_dnsdists_lines() {
        let mut entry = Entry {
            name: "www.example.com.".parse().unwrap(),
            qtype: qtype::TXT,
            qclass: class::IN,
            key: 2_867_384_720,
            protocol: Protocol::Udp,
            age: 7,
            left: 23,
            response: vec![0; 12],
        };
        assert_eq!(
            line(&entry, 1_725_921_945, false),
            "www.example.com. 23 TXT ; rcode 0, key 2867384720, length 12, received over UDP 1, added 1725921938"
        );
        entry.protocol = Protocol::Tcp;
        let raw = line(&entry, 1_725_921_945, true);
        assert!(
            raw.ends_with(" UDP 0, added 1725921938, packet AAAAAAAAAAAAAAAA"),
            "{raw}"
        );
    }
}
