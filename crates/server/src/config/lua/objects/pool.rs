//! ServerPool.

use super::super::{define, spec, wrong};
use super::cache::CacheObject;
use super::server::ServerObject;
use crate::config::pools::PoolId;
use mlua::{Lua, UserData, UserDataMethods};

/// The functions on pools.
pub(in super::super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "getPool", |lua, name: String| {
        make(lua, &name)?;
        Ok(PoolObject(name))
    })?;
    define(lua, "getPoolServers", |lua, name: String| {
        let spec = spec(lua)?;
        let members = spec
            .servers
            .iter()
            .filter(|server| server.options.pools.contains(&name));
        Ok(members
            .map(|server| ServerObject(server.key))
            .collect::<Vec<_>>())
    })?;
    define(lua, "getPoolNames", |lua, ()| {
        let spec = spec(lua)?;
        Ok(spec.pools.keys().cloned().collect::<Vec<_>>())
    })
}

/// Makes the pool `name`, if it is not there.
pub(in super::super) fn make(lua: &Lua, name: &str) -> mlua::Result<()> {
    number(lua, name)?;
    let mut spec = spec(lua)?;
    if !spec.pools.contains_key(name) {
        spec.pool(name);
    }
    Ok(())
}

/// The number of the pool `name`, which need not exist.
pub(in super::super) fn number(lua: &Lua, name: &str) -> mlua::Result<PoolId> {
    let mut spec = spec(lua)?;
    // To look does not edit.
    let known = spec.pool_names.find(name);
    let number = known.or_else(|| spec.pool_names.number(name));
    number.ok_or_else(|| {
        wrong(format!(
            "pool '{name}': 65536 pool names are in use, that is the limit"
        ))
    })
}

/// What getPool returns: the name of a pool that exists.
#[derive(Clone)]
struct PoolObject(String);

impl UserData for PoolObject {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("setCache", |lua, pool, cache: CacheObject| {
            spec(lua)?.pool(&pool.0).cache = Some(cache.0);
            Ok(())
        });
        methods.add_method("unsetCache", |lua, pool, ()| {
            spec(lua)?.pool(&pool.0).cache = None;
            Ok(())
        });
        methods.add_method("getCache", |lua, pool, ()| {
            Ok(spec(lua)?
                .pools
                .get(&pool.0)
                .and_then(|pool| pool.cache)
                .map(CacheObject))
        });
        methods.add_method("getECS", |_, _, ()| Ok(false));
        methods.add_method("setECS", |_, _, enabled: bool| not_yet("setECS", enabled));
        methods.add_method("getZeroScope", |_, _, ()| Ok(false));
        // Without EDNS Client Subnet there is no scope.
        methods.add_method("setZeroScope", |_, _, _: bool| Ok(()));
    }
}

fn not_yet(method: &str, enabled: bool) -> mlua::Result<()> {
    match enabled {
        true => Err(wrong(format!(
            "{method}(true) is not in millrace yet: it would change what backends are asked"
        ))),
        false => Ok(()),
    }
}
