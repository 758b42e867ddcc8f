//! PacketCache.

use super::super::spec;
use super::name::AnyName;
use super::object;
use crate::clock::Now;
use crate::config::spec::CacheKey;
use crate::pipeline::cache::PacketCache;
use mlua::{FromLua, Lua, Table, UserData, UserDataMethods, Value};
use std::sync::Arc;
use wire::codes::qtype;

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
        Ok((entries, spec(lua)?.cache(self.0).options.maximum_entries))
    }
}

impl UserData for CacheObject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("expunge", |lua, cache, left: usize| {
            cache.live(lua)?.inspect(|cache| {
                cache.expunge(left);
            });
            Ok(())
        });
        methods.add_method("purgeExpired", |lua, cache, left: usize| {
            cache.live(lua)?.inspect(|cache| {
                cache.purge_expired(left, Now::read());
            });
            Ok(())
        });
        methods.add_method(
            "expungeByName",
            |lua, cache, (name, qtype, suffix): (AnyName, Option<u16>, Option<bool>)| {
                let qtype = qtype.filter(|qtype| *qtype != qtype::ANY);
                let suffix = suffix.unwrap_or(false);
                cache.live(lua)?.inspect(|cache| {
                    cache.expunge_by_name(&name.0.as_name(), qtype, suffix);
                });
                Ok(())
            },
        );
        methods.add_method("isFull", |lua, cache, ()| {
            cache.fill(lua).map(|(entries, maximum)| entries >= maximum)
        });
        methods.add_method("toString", |lua, cache, ()| {
            let (entries, maximum) = cache.fill(lua)?;
            Ok(format!("Packet cache: {entries}/{maximum} entries"))
        });
        methods.add_method("getStats", |lua, cache, ()| stats(*cache, lua));
    }
}

/// The manual's names.
fn stats(object: CacheObject, lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let Some(cache) = object.live(lua)? else {
        return Ok(table);
    };
    let counts = cache.counts();
    table.raw_set("entries", cache.len())?;
    for (name, count) in [
        ("hits", &counts.hits),
        ("misses", &counts.misses),
        ("deferredLookups", &counts.deferred_lookups),
        ("deferredInserts", &counts.deferred_inserts),
        ("lookupCollisions", &counts.lookup_collisions),
        ("insertCollisions", &counts.insert_collisions),
        ("ttlTooShorts", &counts.ttl_too_shorts),
        ("cleanupCount", &counts.cleanups),
    ] {
        table.raw_set(name, count.sum())?;
    }
    Ok(table)
}
