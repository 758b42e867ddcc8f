//! The PROXY protocol: from whom it is taken, and the values that go with a query.

use super::objects::netmask_group;
use super::options::Flag;
use super::{actions, define, selectors, spec, wrong};
use crate::pipeline::proxy::values::Values;
use crate::pipeline::rules::actions::proxy::{
    SetAdditionalProxyProtocolValueAction, SetProxyProtocolValuesAction,
};
use crate::pipeline::rules::selectors::proxy::ProxyProtocolValueRule;
use mlua::{Lua, LuaString, Table, Value};
use wire::proxy::{FIXED_LENGTH, LENGTH_MAX};

pub(super) fn register(lua: &Lua) -> mlua::Result<()> {
    define(lua, "setProxyProtocolACL", |lua, masks: Value| {
        let masks = netmask_group::list(masks, lua)?;
        spec(lua)?.proxies.acl = masks;
        Ok(())
    })?;
    define(
        lua,
        "setProxyProtocolApplyACLToProxiedClients",
        |lua, Flag(apply): Flag| {
            spec(lua)?.proxies.apply_acl = apply;
            Ok(())
        },
    )?;
    define(
        lua,
        "setProxyProtocolMaximumPayloadSize",
        |lua, size: usize| {
            // The manual: "This setting can't be set to a value lower than 16 since it would deny of Proxy Protocol headers."
            spec(lua)?.proxies.maximum = size.clamp(FIXED_LENGTH, LENGTH_MAX);
            Ok(())
        },
    )?;
    values(lua)
}

fn values(lua: &Lua) -> mlua::Result<()> {
    define(
        lua,
        "ProxyProtocolValueRule",
        |_, (kind, value): (u8, Option<LuaString>)| {
            selectors::made(ProxyProtocolValueRule {
                kind,
                value: value.map(|value| value.as_bytes()[..].into()),
            })
        },
    )?;
    define(lua, "SetProxyProtocolValuesAction", |_, table: Table| {
        actions::made(SetProxyProtocolValuesAction {
            values: of_table(&table)?,
        })
    })?;
    define(
        lua,
        "SetAdditionalProxyProtocolValueAction",
        |_, (kind, value): (u8, LuaString)| {
            actions::made(SetAdditionalProxyProtocolValueAction {
                kind,
                octets: octets(&value)?,
            })
        },
    )
}

/// `{[0]="foo", [42]="bar"}`, by type.
pub(super) fn of_table(table: &Table) -> mlua::Result<Values> {
    let mut values = Vec::new();
    for pair in table.pairs::<u8, LuaString>() {
        let (kind, value) = pair?;
        values.push((kind, octets(&value)?));
    }
    values.sort_by_key(|(kind, _)| *kind);
    Ok(values.into_iter().collect())
}

/// One value.
pub(super) fn octets(value: &LuaString) -> mlua::Result<Box<[u8]>> {
    let octets: Box<[u8]> = value.as_bytes()[..].into();
    if octets.len() > VALUE_MAX {
        return Err(wrong(format!(
            "a value of {} bytes: at most {VALUE_MAX} go into a PROXY header",
            octets.len()
        )));
    }
    Ok(octets)
}

/// What one value of a header can have beside IPv6 addresses, in bytes.
const VALUE_MAX: usize = u16::MAX as usize - 36 - 3;
