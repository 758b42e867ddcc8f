//! ServerPool.

use super::super::options::Flag;
use super::super::{define, spec, wrong};
use super::cache::CacheObject;
use super::server::ServerObject;
use crate::backend::pool::Subnets;
use crate::config::pools::PoolId;
use mlua::{Lua, UserData, UserDataMethods};

/// The functions on pools.
pub(in super::super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "getPool", |lua, name: String| {
        make(lua, &name)?;
        Ok(PoolObject(name))
    })?;
    // "a list of Servers or nil": there is no such pool.
    define(lua, "getPoolServers", |lua, name: String| {
        let spec = spec(lua)?;
        let members = spec.members(&name).into_iter();
        let objects: Vec<_> = members.map(|server| ServerObject(server.key)).collect();
        Ok(spec.pools.contains_key(&name).then_some(objects))
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
        methods.add_method("getECS", |lua, pool, ()| Ok(subnets(lua, pool)?.are_added));
        methods.add_method("setECS", |lua, pool, Flag(enabled): Flag| {
            spec(lua)?.pool(&pool.0).subnets.are_added = enabled;
            Ok(())
        });
        methods.add_method("getDisableZeroScope", |lua, pool, ()| {
            Ok(subnets(lua, pool)?.disable_zero_scope)
        });
        methods.add_method("setDisableZeroScope", |lua, pool, Flag(disabled): Flag| {
            spec(lua)?.pool(&pool.0).subnets.disable_zero_scope = disabled;
            Ok(())
        });
        // The same from the other side.
        methods.add_method("getZeroScope", |lua, pool, ()| {
            Ok(!subnets(lua, pool)?.disable_zero_scope)
        });
        methods.add_method("setZeroScope", |lua, pool, Flag(enabled): Flag| {
            spec(lua)?.pool(&pool.0).subnets.disable_zero_scope = !enabled;
            Ok(())
        });
    }
}

fn subnets(lua: &Lua, pool: &PoolObject) -> mlua::Result<Subnets> {
    let spec = spec(lua)?;
    let pool = spec.pools.get(&pool.0);
    Ok(pool.map(|pool| pool.subnets).unwrap_or_default())
}
